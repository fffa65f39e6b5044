"""Checks of what is held and what is due: one Spark job each, stored whole before the next one begins."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.engines import pool
from truecopy.metastore.validation_errors import IGNORED, NEW, Found, Wishes
from truecopy.metastore.validations import PendingPart, Standing, Validations
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.transfer.continuous.applied import Applied, Place
from truecopy.transfer.continuous.checking import DONE, Checking
from truecopy.transfer.continuous.compare import Comparer
from truecopy.transfer.continuous.held import Held, not_behind
from truecopy.transfer.continuous.judge import MICROSECONDS, Rules
from truecopy.transfer.continuous.options import FULL, LONGEST_SECONDS, ContinuousOptions
from truecopy.transfer.continuous.pieces import INPUT
from truecopy.transfer.continuous.tables import Tables, explain_trouble
from truecopy.transfer.continuous.unwatched import Unwatched
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOREVER = 1 << 62


class TooMuchPending(UsageError):
    """More is pending than may be."""

    exit_code = CannotFinish.exit_code


class Rounds:
    """The checks of one validation, from a claim of it on.

    Attributes:
        position: By shard: up to where changes were taken up, as stored.
        caught_up: Whether it has caught up with the source once.
        rate: Changes per second in the last one.
        stored_at: When something was stored last, by the monotonic clock.
    """

    def __init__(
        self,
        settings: Settings,
        options: ContinuousOptions,
        standing: Standing,
        tables: Tables,
        applied: Applied,
        spark: SparkSession,
    ) -> None:
        self._settings = settings
        self._options = options
        self._epoch = standing.epoch
        self._tables = tables
        self._applied = applied
        self._spark = spark
        self._target = parse_endpoint(settings.target)
        self._store = Validations()
        self._unwatched = Unwatched(settings, (), spark)
        self._started = time.time()
        self.position: dict[str, Place] = dict(standing.position)
        self.caught_up = standing.caught_up
        self.rate = 0.0
        self.stored_at = time.monotonic()

    @property
    def _task(self) -> str:
        return self._settings.task

    def is_due(self) -> bool:
        """Whether a row that failed is to be looked at again by now, or somebody has asked for something."""
        due = self._store.pending(self._task).due_at
        return (due is not None and due <= _now()) or bool(self._store.errors.wishes(self._task))

    def run(self, held: Held) -> None:
        """Checks what is held and what is due."""
        begun, now = time.monotonic(), _now()
        wishes = self._store.errors.wishes(self._task)
        everything = bool(wishes or held.emptied)
        parts = ["/".join(map(str, part)) for part in held.ends]
        blobs = list(self._store.parts(self._task, parts, FOREVER if everything else now))
        settled = self._unwatched.settled(wishes.asked)
        if held.large is None and not held.frames and not blobs:
            self._save(held, {}, [], [], settled, wishes)
            return
        done = self._check(self._input(held, blobs), self._rules(now, wishes, held))
        processed, pending, found, gone = self._sorted_out(done)
        self._save(held, processed, gone, pending, [*found, *settled], wishes)
        self._store.set_stages(self._task, self._tables.news())
        seconds = time.monotonic() - begun
        self.rate = sum(processed.values()) / seconds if seconds else 0.0
        self._require_room()

    def forget(self, parts: Sequence[str]) -> None:
        """Lets go of what is pending in some parts."""
        self._store.store(self._task, self._epoch, {}, {}, parts, (), (), self.caught_up)

    def look_at_unwatched(self, watched: Set[str]) -> None:
        """Looks at errors that are open and have no pending row, by their names; from now on when that is asked for."""
        errors = self._store.errors.of(self._task, (NEW, IGNORED))
        mine = [
            error
            for error in errors
            if error.name not in watched and self._tables.carries(error.table)
        ]
        self._unwatched = Unwatched(self._settings, mine, self._spark)
        if found := self._unwatched.all_settled():
            self._store.store(self._task, self._epoch, {}, {}, (), (), found, self.caught_up)
            self._unwatched.forget(found)

    def move(self, at: Mapping[str, Place]) -> None:
        """There is nothing to check: stores how far the stream is."""
        self.stored_at = time.monotonic()
        self.position = {**self.position, **at}
        self._store.store(self._task, self._epoch, at, {}, (), (), (), self.caught_up)

    def _rules(self, now: int, wishes: Wishes, held: Held) -> Rules:
        options = self._options
        waited = time.time() - self._started >= options.initial_delay
        reached = {**self.position, **held.reached}
        return Rules(
            now,
            int(options.validate_interval * MICROSECONDS),
            int(options.row_error_delay * MICROSECONDS),
            int(LONGEST_SECONDS * MICROSECONDS),
            {shard: position for shard, (position, _) in reached.items()},
            self.caught_up or waited,
            wishes.asked,
            wishes.released,
            dict(held.emptied),
        )

    def _input(self, held: Held, blobs: Sequence[tuple[str, bytes]]) -> DataFrame:
        if held.large is not None and not held.frames and not blobs:
            return held.large
        rows: dict[str, list[Any]] = {name: [None] * len(blobs) for name in INPUT.names}
        rows |= {"part": [part for part, _ in blobs], "payload": [data for _, data in blobs]}
        pending = pa.Table.from_pydict(rows, schema=INPUT)
        small = pa.concat_tables([*held.frames, pending])
        frame = self._spark.createDataFrame(small)
        return frame if held.large is None else held.large.unionAll(frame)

    def _check(self, frame: DataFrame, rules: Rules) -> list[Any]:
        from pyspark.sql.pandas.types import from_arrow_schema

        options, lanes = self._options, self._lanes
        work: Any = Checking(
            self._target,
            self._applied,
            Comparer(dict(self._tables.checks), options.mode == FULL, options.tolerance),
            rules,
            options.batch_query_size,
            options.rate / lanes,
            leave_none=options.connections > 0,
        )
        done = (
            frame.repartition(lanes, "part")
            .sortWithinPartitions("part")
            .mapInArrow(work, from_arrow_schema(DONE))
        )
        return list(done.collect())

    @property
    def _lanes(self) -> int:
        with pool.lease(self._target) as session:
            if session.driver_local:
                return 1
        wanted = self._options.connections or self._settings.connections
        return wanted or self._spark.sparkContext.defaultParallelism

    def _sorted_out(
        self, rows: Sequence[Any]
    ) -> tuple[dict[str, int], list[PendingPart], list[Found], list[str]]:
        processed: dict[str, int] = {}
        pending, found, gone = list[PendingPart](), list[Found](), list[str]()
        troubles: dict[str, str] = {}
        for row in rows:
            if row["part"] is not None:
                gone.append(row["part"])
            if row["payload"] is not None:
                counts = json.loads(row["counts"])
                pending.append(
                    PendingPart(
                        row["part"],
                        bytes(row["payload"]),
                        counts["rows"],
                        counts["errors"],
                        row["due_at"],
                        counts["failed"],
                    )
                )
            if row["processed"] is not None:
                for kind, count in json.loads(row["processed"]).items():
                    processed[kind] = processed.get(kind, 0) + count
                found += [Found(**event) for event in json.loads(row["events"])]
                troubles |= json.loads(row["troubles"])
        explain_trouble(self._tables, troubles)
        return processed, pending, found, gone

    def _save(
        self,
        held: Held,
        processed: Mapping[str, int],
        parts: Sequence[str],
        pending: Sequence[PendingPart],
        found: Sequence[Found],
        wishes: Wishes,
    ) -> None:
        """Stores what a round came to, in one step."""
        moved = not_behind(held.reached, self.position)
        newest = max((at for _, at in held.reached.values()), default=0)
        near = 2 * self._options.validate_interval + 10
        is_near = newest > 0 and time.time() - newest / MICROSECONDS <= near
        caught_up = self.caught_up or is_near
        self._store.store(
            self._task, self._epoch, moved, processed, parts, pending, found, caught_up, wishes
        )
        self._unwatched.forget(found)
        self.position = {**self.position, **moved}
        self.caught_up = caught_up
        self.stored_at = time.monotonic()

    def _require_room(self) -> None:
        """Stops where more is pending than may be: everything is stored, and can be gone on from."""
        options, pending = self._options, self._store.pending(self._task)
        rows = pending.total + pending.errors
        for count, most, name, word in (
            (rows, options.max_pending_rows, "max-pending-rows", "rows"),
            (pending.size, options.max_pending_bytes, "max-pending-bytes", "bytes"),
        ):
            if count > most:
                raise TooMuchPending(
                    f"{count} {word} of {self._task} are pending, more than {name} = {most}: is the replication right"
                    " at all? Mend it or raise the limit, and start again; what is pending is kept"
                )


def _now() -> int:
    return time.time_ns() // 1000
