"""Replication: the source's changes into the target, batch after batch, from where the ledger stands."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from truecopy.engines import pool
from truecopy.engines.lines import transaction
from truecopy.engines.protocols import LogsInPart
from truecopy.mapping.changes import map_changes
from truecopy.mapping.routes import parse_name
from truecopy.model.change import CHANGE_SCHEMA, DROP, INSERT, REDEFINITIONS, RENAME, TRUNCATE
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, KeyTaken, TruecopyError
from truecopy.model.position import contains, parse_position
from truecopy.spark import explain_spark
from truecopy.stream.request import Request
from truecopy.transfer.apply import (
    DONE,
    TIED,
    Applying,
    Line,
    Place,
    Withdrawing,
    is_behind,
    shard_of,
)
from truecopy.transfer.carried import CarriedTables
from truecopy.transfer.joining import Notes
from truecopy.transfer.ledger import Ledger
from truecopy.transfer.narrowing import narrowed_changes
from truecopy.transfer.origins import Origins
from truecopy.transfer.packing import SHARED, SLICES, Fact, Packed, pack, packed
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.redefinition import EMPTIED, DefinitionChanged
from truecopy.transfer.settings import AT_MOST_ONCE, ROW, TABLE, Settings
from truecopy.transfer.succession import Successor
from truecopy.transfer.ties import tied_plans

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

SETTLE_SECONDS = 10.0
AS_THEY_ARE = (
    "shard", "position", "commit_order", "seq", "committed_at", "kind", "table", "key", "after",
    "unchanged", "schema_id",
)  # fmt: skip
"""What is needed of a change whose row arrives as it is."""
_APART = (TRUNCATE, *REDEFINITIONS)
"""Changes that are not of rows: their transactions stand alone."""


class Replication:
    """Applies batches of the change stream; lives on the driver.

    Attributes:
        tables: What it carries.
        applied: Changes by source table, since it was made.
        replaying: Whether the end of the copy has not been passed yet.
        failure: Why the last batch could not be applied.
        connections: The most to the target at the same time, asked before each batch; 0 for one per core.
    """

    def __init__(
        self,
        settings: Settings,
        target: Endpoint,
        plans: Mapping[str, TablePlan],
        origins: Mapping[str, Place],
        epoch: int,
    ) -> None:
        self._settings = settings
        self._source = parse_endpoint(settings.source)
        self._target = target
        self.tables = CarriedTables(settings, target, plans, epoch)
        self._origins = origins
        self._epoch = epoch
        self._notes = Notes(settings.task, epoch)
        with pool.lease(target) as session:
            self._progress = self._opened(self._ledger(session))
            self._copied_at = self._ledger(session).copied_at()
        self.applied: Counter[str] = Counter()
        self.replaying = True
        self.failure: TruecopyError | None = None
        self.connections: Callable[[], int] = lambda: settings.connections
        # Where the next batch of each shard begins. A part that stands further, since a run ended
        # between the transactions of two parts, must not get what is in already.
        self._reached = self.positions()
        self._settled_at = time.monotonic()

    def _opened(self, ledger: Ledger) -> dict[str, Place]:
        """Where all parts stand. Each shard has a line of its own, which moves when whole batches are in.

        Without it a part whose first change was not written when a run ended would hold nothing back.
        """
        progress = ledger.progress()
        for shard, origin in self._origins.items():
            if shard not in progress:
                self._record_beginning(shard, origin)
                ledger.open_part(shard, *origin, self._epoch)
                progress[shard] = origin
        return progress

    def _record_beginning(self, shard: str, origin: Place) -> None:
        """On a shard of a keyspace, before anything else: streams take what is in its log so far for the copy."""
        if self._settings.leg and self._settings.leg.onto:
            with pool.lease(self._target) as session:
                Origins(cast(Any, session)).begin(shard, *origin)

    def start(self) -> dict[str, Place]:
        """Where a stream has to begin that this is to apply; what was applied before is passed over."""
        with pool.lease(self._target) as session:
            # A batch that failed may have moved some.
            self._progress = self._ledger(session).progress()
        self.settle()
        self._reached = self.positions()
        return self._reached

    def positions(self) -> dict[str, Place]:
        """Where to go on: of each shard the position of the part that is furthest behind."""
        found = dict(self._origins)
        for shard in found:
            mine = [at for part, at in self._progress.items() if shard_of(part) == shard]
            behind = [at for at in mine if all(_contains(other[0], at[0]) for other in mine)]
            if behind:
                found[shard] = behind[0]
        return found

    @property
    def columns(self) -> Sequence[str]:
        """Those of the stream that it needs."""
        is_mapped = any(plan.is_mapped for plan in self.tables.plans.values())
        # What a table needs that is planned late is not known.
        if is_mapped or self._settings.leg or not self.tables.are_all_planned:
            return tuple(CHANGE_SCHEMA.names)
        return (*AS_THEY_ARE, "before") if tied_plans(self.tables.plans) else AS_THEY_ARE

    def apply(self, changes: Packed, _: int) -> None:
        """Applies a batch."""
        try:
            is_apart = any(fact.kind in _APART for fact in changes.facts)
            if facts := changes.facts if is_apart else self._carried(changes.facts):
                self._notes.begin(_ends(facts))
                if is_apart:
                    self._apply_pieces(self._not_copied(changes.rows()))
                else:
                    self._apply(changes, facts)
                self._notes.end(self._progress)
            if time.monotonic() - self._settled_at > SETTLE_SECONDS:
                self.settle()
        except TruecopyError as error:
            self.failure = error  # on its way through Spark it becomes a text
            if isinstance(error, DefinitionChanged):
                self.settle()  # the target may be another one when what came before would be read again
            raise

    def _apply_pieces(self, rows: DataFrame) -> None:
        """A batch in which tables are emptied, go, or get other names."""
        from pyspark.sql import functions as F

        apart = rows.where(F.col("kind").isin(*_APART)).select("shard", "commit_order")
        cuts = sorted((row[0], row[1]) for row in apart.distinct().collect())
        for piece, is_apart in _pieces(rows, cuts):
            with packed(piece) as changes:
                emptied = self._redefined(changes) if is_apart else set()
                facts = self._carried(changes.facts)
                if any(fact.kind == TRUNCATE or fact.table in emptied for fact in facts):
                    self._apply_truncating(changes, facts, emptied)
                elif facts:
                    self._apply(changes, facts)

    def _redefined(self, changes: Packed) -> set[str]:
        """Judges what happened to tables as a whole in one transaction; gives those that are empty after it."""
        found = changes.rows().where(f"kind IN {REDEFINITIONS}").orderBy("seq")
        rows = found.select("table", "kind", "after", "position").collect()
        taken = {row["after"][0] for row in rows if row["kind"] == RENAME}
        emptied = set()
        for row in rows:
            table, at = row["table"], row["position"]
            renamed = None if row["kind"] == DROP else parse_name(row["after"][0])
            if self.tables.has(table):
                successor = Successor(at) if table in taken else None
                verdict = self.tables.judged(table, renamed, at, successor)
                emptied |= {table} if verdict == EMPTIED else set()
            elif renamed is not None and self.tables.has(str(renamed)):
                self.tables.require_accepted(table, renamed, at)
        return emptied

    def _apply(self, changes: Packed, facts: Sequence[Fact]) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import from_arrow_schema

        effects = self._effects(changes, facts).withColumn("part", self._part())
        work = self._work(facts)
        sorted_ = effects.repartition(self._parallel(effects), "part").sortWithinPartitions(
            "part", "table", "slice"
        )

        def done_by(work: Applying) -> list[Row]:
            return sorted_.mapInArrow(cast(Any, work), from_arrow_schema(DONE)).collect()

        try:
            done = done_by(work)
        except (Py4JError, PySparkException) as error:
            leg = self._settings.leg
            if leg and leg.is_shared and isinstance(taken := explain_spark(error), KeyTaken):
                done_by(Withdrawing(**vars(work)))
                raise taken from error
            raise
        for row in done:
            if row["failure"]:
                raise CannotFinish(row["failure"])
            self.applied[row["table"]] += row["changes"]
        for part in {row["part"] for row in done}:
            self._progress[part] = work.ends[shard_of(part)]
        self._reached |= work.ends

    def _apply_truncating(
        self, changes: Packed, facts: Sequence[Fact], made_again: set[str]
    ) -> None:
        """One transaction of the source that empties tables: one transaction of the target for all parts.

        Rows of an emptied table are in many parts, so that no part alone could do it. Of tables that were dropped,
        those are empty that were made again.
        """
        effects = self._effects(changes, facts)
        emptied = {
            table: seq
            for table, seq in _emptied(changes.rows(), made_again).items()
            if table in self.tables.plans
        }
        for table in emptied:
            self._require_own(table)
        work = replace(self._work(facts), emptied=emptied)
        ((shard, end),) = work.ends.items()
        parts = [part for part in self._progress if shard_of(part) == shard]
        if any(_contains(self._progress[part][0], end[0]) for part in parts):
            return  # all of them went on together, before the last run ended
        counts = Counter[str](emptied.keys())
        with pool.lease(self._target) as session:
            target: Any = session
            ledger = self._ledger(target)
            with transaction(target):
                work.mark(target)
                for part in parts:
                    work.advance(ledger, part)
                for table in emptied:
                    emptied_table = self.tables.plans[table].target
                    target.delete_all(emptied_table, annotation=self._settings.annotation)
                work.write_steps(target, work.steps(shard, _lines(effects, shard), counts))
        self._progress |= dict.fromkeys(parts, end)
        self.applied.update(counts)
        self._reached |= work.ends

    def _require_own(self, table: str) -> None:
        plan = self.tables.plans[table]
        if plan.mapping.merged:
            raise CannotFinish(
                f"{table} was truncated, and {plan.target.tables[0]} holds rows of other tables, too:"
                " delete its rows there, and start the task anew"
            )

    def settle(self) -> None:
        """Brings parts that had no change to where the others are, so that a restart need not read for them again."""
        self._settled_at = time.monotonic()
        for shard, reached in self._reached.items():
            behind = [
                (part, at[0])
                for part, at in self._progress.items()
                if shard_of(part) == shard and not _contains(at[0], reached[0])
            ]
            if behind:
                with pool.lease(self._target) as session:
                    moved = self._ledger(session).settle(behind, *reached, self._epoch)
                self._progress |= dict.fromkeys(moved, reached)

    def _work(self, facts: Sequence[Fact]) -> Applying:
        return Applying(
            self._settings.task,
            self._epoch,
            self._settings.annotation,
            self._target,
            dict(self.tables.targets),
            dict(self._progress),
            dict(self._reached),
            _ends(facts),
            self._copied_ahead(),
            origin=leg.shard if (leg := self._settings.leg) and leg.onto else "",
            progress_first=self._settings.delivery == AT_MOST_ONCE,
            replaying=self.replaying,
            leave_none=self.connections() > 0,
        )

    def _carried(self, facts: Sequence[Fact]) -> list[Fact]:
        """The facts about the task's tables; one that it should carry and does not know is told."""
        for fact in facts:
            if fact.table is None or fact.table in self.tables.plans or fact.kind in REDEFINITIONS:
                continue
            if fact.table in self.tables.sources and fact.schema_id:
                self.tables.plan_late(fact.table, self.tables.definitions.find(fact.schema_id))
            elif self._settings.wants(parse_name(fact.table)):
                raise CannotFinish(
                    f"{fact.table} has changes at {fact.position} and was not there when"
                    f" {self._settings.task} began: exclude it, or start the task anew"
                )
        known = [fact for fact in facts if fact.table in self.tables.plans]
        for fact in known:
            if fact.kind == INSERT and fact.left_out:
                raise CannotFinish(
                    f"a key of {fact.table} was changed at or before {fact.position}, and the log left out long"
                    f" values of the row: {self._whole_rows(fact.table)}, and copy the table anew"
                )
        return known

    def _whole_rows(self, table: str | None) -> str:
        with pool.lease(self._source) as source:
            if isinstance(source, LogsInPart):
                return f"{source.log_whole_rows(parse_name(table or ''))} on the source"
        return "let the source log whole rows"

    def _copied_ahead(self) -> dict[str, str]:
        """What copies of a known position have seen and must not come again."""
        return {
            table: position
            for table, position in self._copied_at.items()
            if not any(_contains(reached, position) for reached, _ in self._reached.values())
        }

    def _not_copied(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        for table, position in self._copied_ahead().items():
            rows = rows.where((F.col("table") != table) | _behind(position)("position"))
        return rows

    def _effects(self, changes: Packed, facts: Sequence[Fact]) -> DataFrame:
        """Changes of the target's rows, packed."""
        from pyspark.sql import functions as F

        of_rows = [fact for fact in facts if fact.kind not in _APART]
        schema_ids = {fact.schema_id for fact in of_rows if fact.schema_id}
        self.tables.learn(schema_ids)
        frame = changes.frame.where(f"kind NOT IN {_APART}")
        if leg := self._settings.leg:
            rows = replace(changes, frame=frame).rows()
            definitions = {one: self.tables.definitions.find(one) for one in schema_ids}
            frame = pack(narrowed_changes(rows, leg, definitions))
        mapped = schema_ids & self.tables.mappings.keys()
        frames = [frame.where(F.col("schema_id").isin(list(schema_ids - mapped)))]
        for schema_id in mapped:
            of_one = frame.where(F.col("schema_id") == schema_id)
            rows = replace(changes, frame=of_one).rows()
            made = map_changes(rows, self.tables.mappings[schema_id])
            table = self.tables.definitions.find(schema_id).table
            frames.append(pack(made.withColumn("table", F.lit(table))))
        return reduce(lambda one, other: one.unionAll(other), frames)

    def _parallel(self, frame: DataFrame) -> int:
        with pool.lease(self._target) as session:
            if session.driver_local:
                return 1  # a file has one writer
        return self.connections() or frame.sparkSession.sparkContext.defaultParallelism

    def _part(self) -> Column:
        """Which part a change belongs to, as the consistency asks."""
        from pyspark.sql import functions as F

        if self._settings.consistency not in (ROW, TABLE):
            return F.col("shard")
        plans = self.tables.plans.items()
        shared = [name for name, plan in plans if plan.mapping.shares_rows]
        of_table = F.when(
            F.col("table").isin([*tied_plans(self.tables.plans), *shared]),
            F.concat_ws("/", "shard", F.lit(TIED)),
        ).otherwise(F.concat_ws("/", "shard", F.lit("t"), "table"))
        if self._settings.consistency == TABLE:
            return of_table
        sliced = [name for name, plan in plans if plan.sliced]
        of_slice = F.concat_ws("/", "shard", F.lit("s"), F.col("slice").cast("string"))
        return F.when(F.col("table").isin(sliced), of_slice).otherwise(of_table)

    def _ledger(self, session: Any) -> Ledger:
        return Ledger(session, self._settings.task)


def replicated(request: Request) -> Request:
    """The stream of a source, as a replication needs it."""
    return replace(request, settings={**request.settings, "redefinitions": "told"})


def _pieces(batch: DataFrame, cuts: Sequence[tuple[str, int]]) -> Sequence[tuple[DataFrame, bool]]:
    """The batch cut at transactions that change tables as a whole, which stand alone."""
    from pyspark.sql import functions as F

    if not cuts:
        return [(batch, False)]
    shards = sorted({shard for shard, _ in cuts})
    found = [(batch.where(~F.col("shard").isin(shards)), False)]
    order = F.col("commit_order")
    for shard in shards:
        here = batch.where(F.col("shard") == shard)
        before = -1
        for _, cut in (one for one in cuts if one[0] == shard):
            found.append((here.where((order > before) & (order < cut)), False))
            found.append((here.where(order == cut), True))
            before = cut
        found.append((here.where(order > before), False))
    return found


def _emptied(batch: DataFrame, made_again: set[str]) -> dict[str, int]:
    """The tables that were emptied, and the number of the change that did it last."""
    from pyspark.sql import functions as F

    found = (
        batch.where(
            (F.col("kind") == TRUNCATE)
            | ((F.col("kind") == DROP) & F.col("table").isin(list(made_again)))
        )
        .groupBy("table")
        .agg(F.max("seq").alias("seq"))
    )
    return {row["table"]: row["seq"] for row in found.collect()}


def _lines(effects: DataFrame, part: str) -> Iterator[Line]:
    """Packed changes on the driver, all of a slice after the other, some slices at a time."""
    sorted_ = effects.repartition(SLICES, "table", "slice").sortWithinPartitions("table", "slice")
    for row in sorted_.select(*SHARED, "slice", "payload").toLocalIterator():
        packed_row = pa.RecordBatch.from_pylist([row.asDict()])
        yield Line(part, row["table"], row["schema_id"], row["slice"], packed_row)


def _ends(facts: Sequence[Fact]) -> dict[str, Place]:
    """The last position of each shard in the batch, with its commit time in microseconds."""
    ordered = sorted(facts, key=lambda fact: fact.commit_order)
    return {fact.shard: (fact.position, fact.committed_at) for fact in ordered}


def _behind(position: str) -> Any:
    """Whether a change comes after a position; for Spark."""
    from pyspark.sql.pandas.functions import arrow_udf

    def behind(positions: pa.Array) -> pa.Array:
        return is_behind(positions, position)

    make: Any = arrow_udf  # its overloads do not know functions of Arrow arrays by their hints
    return make(behind, "boolean")


def _contains(a: str, b: str) -> bool:
    return contains(parse_position(a), parse_position(b))
