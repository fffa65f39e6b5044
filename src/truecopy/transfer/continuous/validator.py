"""A running validation: a streaming query over the source's changes, and when what it brings is checked.

Small batches are held until there are enough changes or the interval is over; a large one is a round of its own.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from sqlalchemy.exc import SQLAlchemyError

from truecopy.engines import pool
from truecopy.metastore.database import choose_metastore
from truecopy.metastore.validations import STOPPED, Standing, TakenOver, Validations
from truecopy.model.change import CHANGE_SCHEMA
from truecopy.model.endpoint import mask_secrets, parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.spark import choose_settings, explain_spark, explained
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.transfer.continuous.applied import Applied, Part, Place, choose_applied, require_views
from truecopy.transfer.continuous.beginning import (
    claim,
    keep_log,
    position_of,
    replicated_from,
    stream_of,
)
from truecopy.transfer.continuous.entries import from_bytes, identities_of
from truecopy.transfer.continuous.held import HELD_BYTES, Gathering, Held, not_behind
from truecopy.transfer.continuous.judge import MICROSECONDS
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.releasing import Releasing
from truecopy.transfer.continuous.rounds import FOREVER, Rounds
from truecopy.transfer.continuous.tables import Tables
from truecopy.transfer.continuous.trying import Tries, metastore_explained
from truecopy.transfer.packing import Packed, apply_each
from truecopy.transfer.proof.observed import end_offset
from truecopy.transfer.proof.visible import log_end
from truecopy.transfer.replicate import AS_THEY_ARE
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_BEAT_SECONDS = 1.0
_LOOK_SECONDS = 0.2
_LOG_END_SECONDS = 5.0


class _Stopping(Exception):
    """Asked to stop, while waiting for the replication."""


class Validator:
    """One task, or one leg of it.

    Args:
        settings: The task.
        options: How it is validated.
        said: Hears what the user should know.
    """

    def __init__(
        self,
        settings: Settings,
        options: ContinuousOptions,
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._options = options
        self._said = said
        self._target = parse_endpoint(settings.target)
        self._stream = stream_of(settings)
        choose_settings(settings.spark)
        if settings.metastore is not None:
            choose_metastore(settings.metastore)
        self._store = Validations()
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._held = Held()
        self._checked_at = time.monotonic()
        self._tries = Tries()
        self._waits = ""
        self._taken_at = 0.0
        self._asked_at = -_LOG_END_SECONDS
        self._end: dict[str, str] = {}
        self._releasing = Releasing(self._stream)
        self._is_open = False
        self._is_broken = False
        self._is_at_rest = False
        self._failure: TruecopyError | None = None

    @property
    def task(self) -> str:
        return self._settings.task

    def tell(self, line: str) -> None:
        """Says something to the user."""
        secrets = parse_endpoint(self._settings.source), self._target
        self._said(mask_secrets(line, secrets))

    def keep_log(self) -> None:
        """Has the source keep its log from now on: for a run that is about to copy, and replicates later."""
        try:
            keep_log(self._settings)
        except TruecopyError as error:  # which the run will meet, too
            self.tell(f"the log is not kept for validation: {error}")

    def begin(self, start: str | None = None, at: Mapping[str, Place] | None = None) -> Standing:
        """Takes the validation over, or begins it.

        Args:
            start: `current`, a time or a token; None to go on.
            at: Where one begins that is new; None for now.
        """
        is_new = self._store.find(self.task) is None
        standing = claim(self._settings, self._options.mode, start, at)
        if is_new and at is not None and standing.position != at:
            begin = ", ".join(position for position, _ in standing.position.values())
            self.tell(
                f"the log that is kept for validation begins at {begin}: earlier changes are not validated"
            )
        return standing

    def run(self, start: str | None = None, at: Mapping[str, Place] | None = None) -> None:
        """Validates until `stop`, by hand or by an error; see `begin`."""
        standing = self.begin(start, at)
        self._epoch = standing.epoch
        try:
            with self._heard():
                with metastore_explained():
                    self._open(standing)
                while not self._stop.is_set():
                    try:
                        with metastore_explained():
                            self._follow()
                    except (TakenOver, UsageError):
                        raise
                    except CannotFinish as error:
                        self._pause_after(error)
        except TakenOver:
            raise
        except TruecopyError as error:
            secrets = parse_endpoint(self._settings.source), self._target
            self._note_stop(mask_secrets(str(error), secrets))
            raise
        except BaseException:
            self._note_stop("interrupted")
            raise
        self._note_stop("")

    def _note_stop(self, why: str) -> None:
        # A metastore that cannot be told hears nothing more, either: the process is taken for gone.
        with suppress(SQLAlchemyError):
            self._store.stop(self.task, why, self._epoch)

    def run_beside(self, is_new: bool) -> None:
        """Validates beside a run of the task, once that replicates; of one that is new, all changes after the copy.

        One that was stopped by hand stands still until somebody starts it.
        """
        with pool.lease(self._target) as session:
            require_views(session)
        standing = self._store.find(self.task)
        if standing is not None and standing.state == STOPPED and standing.stop_asked:
            self.tell("validation was stopped by hand: truecopy validate start goes on")
            return
        while (at := self._replicated_from(is_new)) is None:
            if self._stop.wait(_BEAT_SECONDS):
                return
        self.run(at=at)

    def _replicated_from(self, is_new: bool) -> Mapping[str, Place] | None:
        try:
            return replicated_from(self._settings, is_new)
        except CannotFinish:  # the run itself meets what lasts
            return None

    def stop(self) -> None:
        """Ends a run that another thread is in, after the check that is under way."""
        self._stop.set()

    # Before the first batch

    def _open(self, standing: Standing) -> None:
        settings, options = self._settings, self._options
        self._spark = spark_session(settings.master)
        self._tables = Tables(settings, self._spark)
        with KeyspaceStream(self._stream) as stream:
            left_out = stream.left_out()
        self._tables.open(left_out)
        unsliced = frozenset(self._tables.unsliced)
        with pool.lease(self._target) as session:
            self._applied: Applied = choose_applied(
                options.applied, options.lag, settings, session, unsliced
            )
        self._gathering = Gathering(self._tables, settings.leg)
        self._rounds = Rounds(settings, options, standing, self._tables, self._applied, self._spark)
        self._learn_pending(self._tables.take_up_again(self._store.stages(self.task)))
        self._store.set_stages(self.task, self._tables.news())
        self._is_open = True

    def _learn_pending(self, taken_up: Set[str]) -> None:
        """Learns what pending rows are of; those of tables that are taken up again are of a state long gone."""
        known, gone, watched = set[str](), list[str](), set[str]()
        for part, payload in self._store.parts(self.task, (), FOREVER):
            rows = from_bytes(payload)
            if taken_up.isdisjoint(pc.unique(rows.column("table")).to_pylist()):
                known.update(pc.unique(rows.column("schema_id")).to_pylist())
                watched.update(identities_of(rows.filter(rows.column("is_error"))))
            else:
                gone.append(part)
        if gone:
            self._rounds.forget(gone)
        self._tables.learn(known)
        self._rounds.look_at_unwatched(watched)

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Says once a second that the process is there, whatever it is busy with, and hears whether it is to stop."""
        over = threading.Event()
        newer = list[TakenOver]()

        def hear() -> None:
            while not over.wait(_BEAT_SECONDS):
                try:
                    self._hear()
                except TakenOver as error:
                    newer.append(error)
                    self._stop.set()
                    return
                except Exception:  # noqa: BLE001 - the next round says so, if it lasts; a deaf one is never stopped
                    continue

        thread = threading.Thread(target=hear, name="heard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if newer:
            raise newer[0]

    # The query

    def _follow(self) -> None:
        """Runs the streaming query from where the stored position is, until it ends or is to stop."""
        self._held = Held()
        self._failure = None
        self._is_broken = False
        self._is_at_rest = False
        start = str(position_of(self._rounds.position))
        with tempfile.TemporaryDirectory(prefix="truecopy-") as checkpoint:
            writer = apply_each(self._spark, self._stream, start, self._columns, self._take)
            query = writer.option("checkpointLocation", checkpoint).start()
            try:
                while query.isActive and not self._stop.is_set():
                    self._beat(query)
                    self._stop.wait(_BEAT_SECONDS)
            finally:
                with self._lock:
                    pass  # a check that is under way ends first
                with suppress(Exception):  # Spark itself may have been stopped by the same signal
                    query.stop()
            self._raise(query)

    @property
    def _columns(self) -> Sequence[str]:
        is_plain = not self._settings.leg and not self._settings.rules.routes
        is_plain = is_plain and not self._settings.rules.rules
        return AS_THEY_ARE if is_plain else CHANGE_SCHEMA.names

    def _raise(self, query: StreamingQuery) -> None:
        if self._stop.is_set():
            return
        if self._failure is not None:
            raise self._failure
        if (error := query.exception()) is not None:
            raise explain_spark(error)

    def _pause_after(self, error: CannotFinish) -> None:
        """Tries again after a while what failed for a reason that may pass; not for ever."""
        pause = self._tries.pause_after(error)
        self._waits = f"tries again after: {error}"
        self.tell(self._waits)
        self._stop.wait(pause)

    def _beat(self, query: StreamingQuery) -> None:
        """Between batches: what is due is looked at."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            end = end_offset(query)
            marks = end.marks.items() if end else ()
            ends = {shard: (mark.position, mark.committed_at) for shard, mark in marks}
            at = not_behind(ends, self._held.reached)
            self._held.reached |= at
            if end is not None:
                self._releasing.look(end, self._rounds.position)
            if self._is_broken or not query.isActive:
                return
            # A query that has just begun looks idle, too: it is once it says how far it has read.
            self._is_at_rest = bool(at) and self._is_idle(query)
            self._rounds.caught_up |= self._is_at_rest
            if self._is_round_due():
                with explained():
                    self._check()
            elif self._is_at_rest:
                self._waits = ""
                self._tries.succeeded()
                if self._is_flush_due():
                    self._rounds.move(at)
        except _Stopping:
            return
        finally:
            self._lock.release()

    def _hear(self) -> None:
        if self._store.hear(self.task, self._epoch, self._report()):
            self._stop.set()

    def _report(self) -> dict[str, Any]:
        if not self._is_open:
            return {}
        held, position = self._held, self._rounds.position
        is_waiting = bool(held.changes or held.emptied or held.large is not None or self._waits)
        checked = dict(position if is_waiting else held.reached or position)
        end = self._log_end()
        is_done = not is_waiting and (self._is_at_rest or _has_all(checked, end))
        # Before anything was read, and where the log does not say its end, nobody knows whether there is more.
        is_known = is_done or is_waiting or bool(held.reached or end)
        newest = max((at for _, at in checked.values()), default=0)
        behind = 0.0 if is_done else max(time.time() - newest / MICROSECONDS, 0.0)
        return {
            "lag_seconds": round(behind, 3) if is_known else None,
            "held_changes": held.changes,
            "rows_per_second": round(self._rounds.rate, 1),
            "waits": self._waits,
            "applied_by": self._applied.name,
            "checked": {shard: position for shard, (position, _) in checked.items()},
            "log_end": end,
        }

    def _log_end(self) -> dict[str, str]:
        """Where the source's log ends; asked for now and then."""
        shards = list(self._rounds.position)
        if time.monotonic() - self._asked_at > _LOG_END_SECONDS and len(shards) == 1:
            self._asked_at = time.monotonic()
            with suppress(TruecopyError):
                end = log_end(parse_endpoint(self._settings.source))
                self._end = {shards[0]: end} if end else {}
        return self._end

    def _is_idle(self, query: StreamingQuery) -> bool:
        """Whether everything that the log has was read and checked."""
        held = self._held
        is_quiet = time.monotonic() - self._taken_at > 2 * _BEAT_SECONDS
        is_done = is_quiet and not held.changes and not held.emptied
        return is_done and not query.status["isDataAvailable"]

    def _is_flush_due(self) -> bool:
        return time.monotonic() - self._rounds.stored_at >= self._options.meta_flush_interval

    # Batches, and when they are checked

    def _take(self, changes: Packed, _: int) -> None:
        """A batch of the stream; for `foreachBatch`."""
        with self._lock:
            try:
                if self._stop.is_set() or self._is_broken:
                    raise _Stopping  # what was dropped must not be passed over
                self._taken_at = time.monotonic()
                self._is_at_rest = False
                with explained(), metastore_explained():
                    self._gathering.hold(self._held, changes)
                    self._store.set_stages(self.task, self._tables.news())
                    if self._held.large is not None or self._is_round_due():
                        self._check()
            except BaseException as error:
                # Whoever goes on reads all that is held again, from the stored position.
                self._is_broken = True
                self._held = Held()
                if isinstance(error, TruecopyError):
                    self._failure = error  # on its way through Spark it becomes a text
                raise

    def _is_round_due(self) -> bool:
        held, options = self._held, self._options
        since = time.monotonic() - self._checked_at
        if held.changes >= options.validate_changes or held.size >= HELD_BYTES:
            return True
        if (held.changes or held.emptied) and since >= options.validate_interval:
            return True
        return self._rounds.is_due()

    def _check(self) -> None:
        """A round: everything that is held, and what is due, once the replication has come that far."""
        held = self._held
        # What a check takes, and waits for, is part of the interval: the next change waits no longer than that.
        self._checked_at = time.monotonic()
        while not self._covers(held.ends):
            if self._stop.is_set():
                raise _Stopping
            # What is held has to wait; what failed before, and what somebody asked for, need not.
            if self._rounds.is_due():
                self._round(Held())
            self._stop.wait(_LOOK_SECONDS)
        self._waits = ""
        self._round(held)
        self._held = Held(reached=held.reached)
        self._tries.succeeded()

    def _covers(self, ends: Mapping[Part, Place]) -> bool:
        if not ends:
            return True
        with pool.lease(self._target) as session:
            covered = self._applied.covers(session, ends)
        if not covered:
            (position, _), *_ = sorted(ends.values(), key=lambda place: -place[1])
            self._waits = f"waits for the replication to come to {position}"
        return covered

    def _round(self, held: Held) -> None:
        self._tables.learn_lacking()
        self._rounds.run(held)


def _has_all(checked: Mapping[str, Place], end: Mapping[str, str]) -> bool:
    """Whether everything up to the end of the log was checked, where that is known of all shards."""
    return checked.keys() == end.keys() and all(
        contains(parse_position(position), parse_position(end[shard]))
        for shard, (position, _) in checked.items()
    )
