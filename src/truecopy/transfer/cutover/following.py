"""The replication of a task, going on beside whoever waits for how far it is.

It runs from before writers are locked out until they are let in somewhere: starting it anew would take
longer than all the rest.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from truecopy.model.errors import CannotFinish
from truecopy.model.position import parse_position
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.spark import explain_spark
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import Mark
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request
from truecopy.transfer.cutover.downtime import NoAnswer, within
from truecopy.transfer.packing import Apply, apply_each
from truecopy.transfer.proof.observed import end_offset
from truecopy.transfer.replicate import Replication, replicated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.05
_STOP_SECONDS = 20.0


class Following:
    """A streaming query from where the ledger stands; ends with its block."""

    def __init__(self, request: Request, replication: Replication) -> None:
        self._request = request
        self._replication = replication
        self._start = Offset(
            {
                shard: Mark(position, committed_at=committed_at)
                for shard, (position, committed_at) in replication.start().items()
            }
        )
        self._checkpoint = tempfile.TemporaryDirectory(
            prefix="truecopy-", ignore_cleanup_errors=True
        )
        self.query: Any = None

    def start(self, spark: SparkSession, apply: Apply) -> None:
        tokens = tuple(
            EventToken(mark.committed_at, shard, parse_position(mark.position))
            for shard, mark in self._start.marks.items()
        )
        start = str(tokens[0] if len(tokens) == 1 else KeyspacePosition(tokens))
        columns = self._replication.columns
        writer = apply_each(spark, replicated(self._request), start, columns, apply)
        self.query = writer.option("checkpointLocation", self._checkpoint.name).start()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it; a batch that waits for a target which stands still is left to end by itself."""
        if self.query is not None:
            with suppress(NoAnswer):
                within(_STOP_SECONDS, self.query.stop)
        self._checkpoint.cleanup()

    def applied(self) -> Offset:
        """Everything before this is on the target."""
        return end_offset(self.query) or self._start

    def check(self) -> None:
        """Raises what has ended the replication."""
        if self.query.isActive:
            return
        if self._replication.failure is not None:
            raise self._replication.failure
        error = self.query.exception()
        raise explain_spark(error) if error else CannotFinish("the replication has ended by itself")

    def wait_for(self, stream: KeyspaceStream, end: Offset, seconds: float) -> bool:
        """Returns when everything up to there is on the target; False when that took too long."""
        deadline = time.monotonic() + seconds
        while not stream.has_reached(self.applied(), end):
            self.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True
