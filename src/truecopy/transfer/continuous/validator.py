"""A running validation: a streaming query over the source's changes, and rounds that check them on the target.

Small batches are held until there are enough changes or the interval is over; a large one is a round of its own.
Nothing that is held is lost with the process: the stored position moves only with the round that checks it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import pool
from truecopy.metastore.database import choose_metastore
from truecopy.metastore.definitions import Definitions
from truecopy.metastore.validations import (
    STOPPED,
    Found,
    PendingPart,
    Standing,
    TakenOver,
    Validations,
    Wishes,
)
from truecopy.model.change import CHANGE_SCHEMA, TRUNCATE
from truecopy.model.endpoint import mask_secrets, parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.spark import choose_settings, explain_spark, explained
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request, parse_point
from truecopy.transfer.continuous.applied import Applied, Part, Place, choose_applied
from truecopy.transfer.continuous.checking import DONE, INPUT, TURN, Checking
from truecopy.transfer.continuous.compare import Comparer
from truecopy.transfer.continuous.effects import effects
from truecopy.transfer.continuous.entries import from_bytes
from truecopy.transfer.continuous.judge import MICROSECONDS, Emptied, Rules
from truecopy.transfer.continuous.options import FULL, LONGEST_SECONDS, ContinuousOptions
from truecopy.transfer.continuous.tables import Tables, explain_trouble
from truecopy.transfer.ledger import TASKS, Ledger
from truecopy.transfer.packing import Packed, apply_each
from truecopy.transfer.proof.observed import end_offset
from truecopy.transfer.proof.visible import log_end
from truecopy.transfer.replicate import AS_THEY_ARE
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_BYTES = 64 << 20
"""The most that a batch reads of the log, where a task does not say less: what workers hold at a time."""

SMALL_BYTES = 8 << 20
"""Batches up to this are held on the driver until a check is due."""

_BEAT_SECONDS = 1.0
_LOOK_SECONDS = 0.2
_LOG_END_SECONDS = 5.0
_PAUSES = 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 60.0, 60.0
"""Between tries of a round that failed; then validation stops."""
_FOREVER = 1 << 62


class _Stopping(Exception):
    """Asked to stop, while waiting for the replication."""


@dataclass
class Held:
    """Batches that wait to be checked together.

    Attributes:
        frames: On the driver, each with the number of its batch.
        large: A batch that stays with Spark.
        ends: Of each part: where the last of its changes stands.
        reached: Of each shard: where the changes end.
        emptied: Tables that were emptied.
    """

    frames: list[pa.Table] = field(default_factory=list)
    large: DataFrame | None = None
    changes: int = 0
    ends: dict[Part, Place] = field(default_factory=dict)
    reached: dict[str, Place] = field(default_factory=dict)
    emptied: dict[tuple[str, str], Emptied] = field(default_factory=dict)


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
        self._definitions = Definitions()
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._held = Held()
        self._turn = 0
        self._checked_at = time.monotonic()
        self._flushed_at = time.monotonic()
        self._tries = 0
        self._waits = ""
        self._rate = 0.0
        self._taken_at = 0.0
        self._asked_at = -_LOG_END_SECONDS
        self._end: dict[str, str] = {}
        self._is_broken = False
        self._failure: TruecopyError | None = None

    @property
    def task(self) -> str:
        return self._settings.task

    def tell(self, line: str) -> None:
        """Says something to the user."""
        secrets = parse_endpoint(self._settings.source), self._target
        self._said(mask_secrets(line, secrets))

    def begin(self, start: str | None = None, at: Mapping[str, Place] | None = None) -> Standing:
        """Takes the validation over, or begins it.

        Args:
            start: `current`, a time or a token; None to go on.
            at: Where one begins that is new; None for now.
        """
        self._require_replication()
        standing = self._store.find(self.task)
        if standing is None or start is not None:
            position = self._find(start or "current") if start or at is None else at
            if standing is not None:
                self._store.restart(self.task, position)
            return self._store.claim(self.task, self._options.mode, position)
        return self._store.claim(self.task, self._options.mode, standing.position)

    def _find(self, start: str) -> dict[str, Place]:
        with KeyspaceStream(self._stream) as stream:
            if lines := stream.missing():
                raise CannotFinish("; ".join(lines))
            offset = stream.start(parse_point(start, ("current",)))
        marks = offset.marks.items()
        return {shard: (mark.position, mark.committed_at) for shard, mark in marks}

    def run(self, start: str | None = None, at: Mapping[str, Place] | None = None) -> None:
        """Validates until `stop`, by hand or by an error; see `begin`."""
        standing = self.begin(start, at)
        try:
            self._open(standing)
            while not self._stop.is_set():
                try:
                    self._follow()
                except (TakenOver, UsageError):
                    raise
                except CannotFinish as error:
                    self._pause_after(error)
        except TakenOver:
            raise
        except TruecopyError as error:
            secrets = parse_endpoint(self._settings.source), self._target
            self._store.stop(self.task, mask_secrets(str(error), secrets), self._epoch)
            raise
        except BaseException:
            self._store.stop(self.task, "interrupted", self._epoch)
            raise
        self._store.stop(self.task, "", self._epoch)

    def run_beside(self) -> None:
        """Validates beside a run of the task, once that replicates; from the first change after the copy on.

        One that was stopped by hand stands still until somebody starts it.
        """
        standing = self._store.find(self.task)
        if standing is not None and standing.state == STOPPED and standing.stop_asked:
            self.tell("validation was stopped by hand: truecopy validate start goes on")
            return
        while (at := self._replicated_from()) is None:
            if self._stop.wait(_BEAT_SECONDS):
                return
        self.run(at=at)

    def _replicated_from(self) -> dict[str, Place] | None:
        """Where the changes begin that this run of the task brings; None before it replicates."""
        with pool.lease(self._target) as session:
            target: Any = session
            if target.find(TASKS) is None:
                return None
            ledger = Ledger(target, self.task)
            line, progress = ledger.find(), ledger.progress()
        if line is None or line.phase != "replicate":
            return None
        marks = Offset.parse(line.origin).marks.items()
        found = {shard: (mark.position, mark.committed_at) for shard, mark in marks}
        # Later runs do not go back to the copy: its log may be gone.
        for part, place in progress.items() if line.epoch > 1 else ():
            if part in found:
                found[part] = place
        return found

    def stop(self) -> None:
        """Ends a run that another thread is in, after the check that is under way."""
        self._stop.set()

    # Before the first batch

    def _require_replication(self) -> None:
        """A task that only copies has no changes to be looked at."""
        with pool.lease(self._target) as session:
            found: Any = session
            if found.find(TASKS) is None:
                return
            line = Ledger(found, self.task).find()
        if line is not None and line.phase == "snapshot":
            raise UsageError(
                f"{self.task} has only copied rows so far, and replicates nothing that could be validated: run it"
                " without --snapshot-only"
            )

    def _open(self, standing: Standing) -> None:
        self._epoch = standing.epoch
        self._position = dict(standing.position)
        self._caught_up = standing.caught_up
        self._started = time.time()
        self._spark = spark_session(self._settings.master)
        self._tables = Tables(self._settings, self._spark)
        with KeyspaceStream(self._stream) as stream:
            left_out = stream.left_out()
        self._tables.open(left_out)
        options = self._options
        with pool.lease(self._target) as session:
            self._applied: Applied = choose_applied(
                options.applied,
                options.lag,
                self._settings,
                session,
                frozenset(self._tables.unsliced),
            )
        self._learn_pending()
        self._store.set_stages(self.task, self._tables.news())

    def _learn_pending(self) -> None:
        known = set[str]()
        for _, payload in self._store.parts(self.task, (), _FOREVER):
            known.update(pc.unique(from_bytes(payload).column("schema_id")).to_pylist())
        self._tables.learn(known)

    # The query

    def _follow(self) -> None:
        """Runs the streaming query from where the stored position is, until it ends or is to stop."""
        self._held = Held()
        self._failure = None
        self._is_broken = False
        tokens = tuple(
            EventToken(committed_at, shard, parse_position(position))
            for shard, (position, committed_at) in self._position.items()
        )
        start = str(tokens[0] if len(tokens) == 1 else KeyspacePosition(tokens))
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
        if self._tries >= len(_PAUSES):
            raise error
        self._waits = f"tries again after: {error}"
        self.tell(self._waits)
        pause, self._tries = _PAUSES[self._tries], self._tries + 1
        deadline = time.monotonic() + pause
        while time.monotonic() < deadline and not self._stop.is_set():
            self._hear()
            self._stop.wait(_BEAT_SECONDS)

    def _beat(self, query: StreamingQuery) -> None:
        """Between batches: what is due is looked at, and how things stand is told."""
        self._hear()
        if not self._lock.acquire(blocking=False):
            return
        try:
            end = end_offset(query)
            marks = end.marks.items() if end else ()
            at = {
                shard: (mark.position, mark.committed_at)
                for shard, mark in marks
                if not _is_behind((mark.position, 0), self._held.reached.get(shard))
            }
            self._held.reached |= at
            if self._is_broken or not query.isActive:
                return
            self._caught_up = self._caught_up or (bool(at) and self._is_idle(query))
            if self._is_round_due():
                with explained():
                    self._check()
            elif at and self._is_idle(query):
                self._move(at)
        except _Stopping:
            return
        finally:
            self._lock.release()

    def _hear(self) -> None:
        if self._store.hear(self.task, self._epoch, self._report()):
            self._stop.set()

    def _report(self) -> dict[str, Any]:
        held = self._held
        checked = self._position if held.changes or held.large is not None else held.reached
        checked = checked or self._position
        newest = max((at for _, at in checked.values()), default=0)
        behind = time.time() - newest / MICROSECONDS if held.changes or self._waits else 0.0
        return {
            "lag_seconds": round(max(behind, 0.0), 3),
            "held_changes": held.changes,
            "rows_per_second": round(self._rate, 1),
            "waits": self._waits,
            "applied_by": self._applied.name,
            "checked": {shard: position for shard, (position, _) in checked.items()},
            "log_end": self._log_end(),
        }

    def _log_end(self) -> dict[str, str]:
        """Where the source's log ends; asked for now and then."""
        if time.monotonic() - self._asked_at > _LOG_END_SECONDS and len(self._position) == 1:
            self._asked_at = time.monotonic()
            with suppress(TruecopyError):
                end = log_end(parse_endpoint(self._settings.source))
                (shard,) = self._position
                self._end = {shard: end} if end else {}
        return self._end

    def _move(self, at: Mapping[str, Place]) -> None:
        """There is nothing to check: notes now and then how far the stream is."""
        if time.monotonic() - self._flushed_at >= self._options.meta_flush_interval:
            self._flushed_at = time.monotonic()
            self._position |= at
            self._store.store(self.task, self._epoch, at, {}, (), (), (), self._caught_up)

    def _is_idle(self, query: StreamingQuery) -> bool:
        """Whether everything that the log has was read and checked."""
        is_quiet = time.monotonic() - self._taken_at > 2 * _BEAT_SECONDS
        return is_quiet and not self._held.changes and not query.status["isDataAvailable"]

    # Batches

    def _take(self, changes: Packed, _: int) -> None:
        """A batch of the stream; for `foreachBatch`."""
        with self._lock:
            try:
                if self._stop.is_set() or self._is_broken:
                    raise _Stopping  # what was dropped must not be passed over
                self._taken_at = time.monotonic()
                with explained():
                    self._hold(changes)
                    if self._held.large is not None or self._is_round_due():
                        self._check()
            except BaseException as error:
                # Whoever goes on reads all that is held again, from the stored position.
                self._is_broken = True
                self._held = Held()
                if isinstance(error, TruecopyError):
                    self._failure = error  # on its way through Spark it becomes a text
                raise

    def _hold(self, changes: Packed) -> None:
        """Takes a batch up: what it is about, and the changes themselves, unless there are very many."""
        from pyspark.sql import functions as F

        held, facts = self._held, changes.facts
        self._turn += 1
        for fact in sorted(facts, key=lambda fact: fact.commit_order):
            held.reached[fact.shard] = fact.position, fact.committed_at
        self._tables.learn({fact.schema_id for fact in facts if fact.schema_id})
        wanted = {
            fact.schema_id: self._definitions.find(fact.schema_id)
            for fact in facts
            if fact.schema_id in self._tables.checks and fact.kind != TRUNCATE
        }
        if any(fact.kind == TRUNCATE for fact in facts):
            held.emptied |= self._emptied(changes)
        if not wanted:
            return
        made = effects(changes, wanted, self._tables.mappings, self._settings.leg).where(
            F.col("kind") != TRUNCATE
        )
        told = made.select(
            "shard",
            "table",
            "slice",
            "commit_order",
            "position",
            "committed_at",
            F.length("payload").alias("size"),
        ).collect()
        for row in sorted(told, key=lambda row: row["commit_order"]):
            part = row["shard"], row["table"], row["slice"]
            held.ends[part] = row["position"], row["committed_at"]
        frame = made.select(
            F.concat_ws("/", "shard", "table", F.col("slice").cast("string")).alias("part"),
            F.lit(self._turn).cast("long").alias("turn"),
            *INPUT.names[2:],
        )
        if sum(row["size"] for row in told) > SMALL_BYTES:
            held.large = frame
            return
        table = frame.toArrow().cast(INPUT)
        held.frames.append(table)
        held.changes += sum(map(_rows_inside, table.column("payload")))

    def _emptied(self, changes: Packed) -> dict[tuple[str, str], Emptied]:
        rows = changes.rows().where(f"kind = '{TRUNCATE}'")
        found = rows.select("shard", "table", "commit_order", "seq", "position").collect()
        return {
            (shard, table): Emptied(order + self._turn * TURN, seq, position)
            for shard, table, order, seq, position in sorted(found)
        }

    # Rounds

    def _is_round_due(self) -> bool:
        held, options = self._held, self._options
        since = time.monotonic() - self._checked_at
        if held.changes >= options.validate_changes:
            return True
        if (held.changes or held.emptied) and since >= options.validate_interval:
            return True
        due = self._store.pending(self.task).due_at
        return bool(self._store.wishes(self.task)) or (due is not None and due <= _now())

    def _check(self) -> None:
        """A round: everything that is held, and what is due, once the replication has come that far."""
        held = self._held
        while not self._covers(held.ends):
            if self._stop.is_set():
                raise _Stopping
            # What is held has to wait; what failed before need not.
            due = self._store.pending(self.task).due_at
            if due is not None and due <= _now():
                self._round(Held(reached={}))
            self._stop.wait(_LOOK_SECONDS)
        self._waits = ""
        self._round(held)
        self._held = Held(reached=held.reached)
        self._checked_at = time.monotonic()
        self._tries = 0

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
        begun, now = time.monotonic(), _now()
        wishes = self._store.wishes(self.task)
        everything = bool(wishes or held.emptied)
        parts = ["/".join(map(str, part)) for part in held.ends]
        blobs = list(self._store.parts(self.task, parts, _FOREVER if everything else now))
        if held.large is None and not held.frames and not blobs:
            self._save(held, {}, [], [], [], wishes)
            return
        reached = {**self._position, **held.reached}
        rules = self._rules(now, reached, wishes, held)
        done = self._run(self._input(held, blobs), rules)
        processed, pending, found, gone = self._sorted_out(done)
        self._save(held, processed, gone, pending, found, wishes)
        self._store.set_stages(self.task, self._tables.news())
        seconds = time.monotonic() - begun
        self._rate = sum(processed.values()) / seconds if seconds else 0.0
        self._require_room()

    def _rules(
        self,
        now: int,
        reached: Mapping[str, Place],
        wishes: Wishes,
        held: Held,
    ) -> Rules:
        options = self._options
        waited = time.time() - self._started >= options.initial_delay
        return Rules(
            now,
            int(options.validate_interval * MICROSECONDS),
            int(options.row_error_delay * MICROSECONDS),
            int(LONGEST_SECONDS * MICROSECONDS),
            {shard: position for shard, (position, _) in reached.items()},
            self._caught_up or waited,
            wishes.asked,
            wishes.released,
            dict(held.emptied),
        )

    def _input(self, held: Held, blobs: Sequence[tuple[str, bytes]]) -> DataFrame:
        rows: dict[str, list[Any]] = {name: [None] * len(blobs) for name in INPUT.names}
        rows |= {"part": [part for part, _ in blobs], "payload": [data for _, data in blobs]}
        pending = pa.Table.from_pydict(rows, schema=INPUT)
        small = pa.concat_tables([*held.frames, pending])
        frame = self._spark.createDataFrame(small)
        return frame if held.large is None else held.large.unionAll(frame)

    def _run(self, frame: DataFrame, rules: Rules) -> list[Any]:
        from pyspark.sql.pandas.types import from_arrow_schema

        options, tables = self._options, self._tables
        lanes = self._lanes
        work: Any = Checking(
            self._target,
            self._applied,
            Comparer(dict(tables.checks), options.mode == FULL, options.tolerance),
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
                errors = counts.pop("errors")
                pending.append(
                    PendingPart(row["part"], bytes(row["payload"]), counts, errors, row["due_at"])
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
        moved = {
            shard: place
            for shard, place in held.reached.items()
            if not _is_behind(place, self._position.get(shard))
        }
        newest = max((at for _, at in held.reached.values()), default=0)
        near = 2 * self._options.validate_interval + 10
        is_near = newest > 0 and time.time() - newest / MICROSECONDS <= near
        caught_up = self._caught_up or is_near
        self._store.store(
            self.task, self._epoch, moved, processed, parts, pending, found, caught_up, wishes
        )
        self._position |= moved
        self._caught_up = caught_up
        self._flushed_at = time.monotonic()

    def _require_room(self) -> None:
        """Stops where more is pending than may be: everything is stored, and can be gone on from."""
        options, pending = self._options, self._store.pending(self.task)
        rows = pending.total + pending.errors
        for count, most, name, word in (
            (rows, options.max_pending_rows, "max-pending-rows", "rows"),
            (pending.size, options.max_pending_bytes, "max-pending-bytes", "bytes"),
        ):
            if count > most:
                raise TooMuchPending(
                    f"{count} {word} of {self.task} are pending, more than {name} = {most}: is the replication right at"
                    " all? Mend it or raise the limit, and start again; what is pending is kept"
                )


def stream_of(settings: Settings) -> Request:
    """The stream of the source, beside that of the replication: with a slot of its own where there are slots."""
    request = settings.request
    digest = hashlib.sha256(f"validate {settings.task}".encode()).hexdigest()[:12]
    own = {**request.settings, "slot": f"truecopy_v{digest}"}
    return replace(request, settings=own, max_bytes=min(request.max_bytes, BATCH_BYTES))


class TooMuchPending(UsageError):
    """More is pending than may be."""

    exit_code = CannotFinish.exit_code


def _rows_inside(payload: Any) -> int:
    with pa.ipc.open_stream(payload.as_buffer()) as reader:
        return sum(batch.num_rows for batch in reader)


def _is_behind(place: Place, other: Place | None) -> bool:
    if other is None:
        return False
    return not contains(parse_position(place[0]), parse_position(other[0]))


def _now() -> int:
    return time.time_ns() // 1000
