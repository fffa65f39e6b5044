"""Replication: the source's changes into the target, batch after batch, from where the ledger stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.engines import pool
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import TRUNCATE
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.position import contains, parse_position
from truecopy.model.table import TableName
from truecopy.transfer.apply import SLICES, Applying, PartStep
from truecopy.transfer.ledger import Ledger
from truecopy.transfer.plan import ChangeTarget, TablePlan, change_target
from truecopy.transfer.settings import AT_MOST_ONCE, ROW, TABLE, Settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Replication:
    """Applies batches of the change stream; lives on the driver."""

    def __init__(
        self,
        settings: Settings,
        target: Endpoint,
        plans: Mapping[str, TablePlan],
        origins: Mapping[str, tuple[str, int]],
        epoch: int,
    ) -> None:
        self._settings = settings
        self._target = target
        self._plans = plans
        self._origins = origins
        self._epoch = epoch
        self._definitions = Definitions()
        self._targets: dict[str, ChangeTarget] = {}
        with pool.lease(target) as session:
            self._progress = self._ledger(session).progress()
        self.applied: Counter[str] = Counter()
        # Where the next batch of each shard begins. A part that stands further, since a run ended
        # between the transactions of two parts, must not get what is in already.
        self._reached = {shard: position for shard, (position, _) in self.positions().items()}

    def positions(self) -> dict[str, tuple[str, int]]:
        """Where to go on: of each shard the position of the part that is furthest behind."""
        found = dict(self._origins)
        for shard in found:
            mine = [at for part, at in self._progress.items() if _shard_of(part) == shard]
            behind = [at for at in mine if all(_contains(other[0], at[0]) for other in mine)]
            if behind:
                found[shard] = behind[0]
        return found

    def apply(self, batch: DataFrame, _: int) -> None:
        """What `foreachBatch` calls."""
        batch = batch.persist()
        try:
            self._apply(batch)
        finally:
            batch.unpersist()

    def _apply(self, batch: DataFrame) -> None:
        from pyspark.sql import functions as F

        changes = self._carried(batch).withColumn("part", self._part())
        facts = (
            changes.groupBy("part", "shard", "schema_id", "kind")
            .agg(F.max(F.struct("commit_order", "position", "committed_at")).alias("last"))
            .collect()
        )
        if not facts:
            return
        _refuse_truncates(facts)
        self._learn({fact["schema_id"] for fact in facts if fact["schema_id"]})
        ends = _ends(facts)
        parts = {fact["part"]: fact["shard"] for fact in facts}
        steps = {part: self._step(part, ends[shard]) for part, shard in parts.items()}
        ahead = {
            part: step.old
            for part, step in steps.items()
            if not _contains(self._reached[parts[part]], step.old)
        }
        if ahead:
            changes = changes.where(_news(ahead)("part", "position"))
        work = Applying(
            self._settings.task,
            self._epoch,
            self._settings.annotation,
            self._target,
            dict(self._targets),
            steps,
            progress_first=self._settings.delivery == AT_MOST_ONCE,
        )
        done = (
            _net_effect(changes)
            .repartition(self._parallel(batch), "part")
            .sortWithinPartitions("part")
            .mapInArrow(work, "part string, table string, changes long")
            .collect()
        )
        for row in done:
            self.applied[row["table"]] += row["changes"]
        for part in {row["part"] for row in done}:
            self._progress[part] = steps[part].new, steps[part].committed_at
        for shard, (position, _) in ends.items():
            self._reached[shard] = position

    def _carried(self, batch: DataFrame) -> DataFrame:
        """The changes of the task's tables; one that it should carry and does not know is told."""
        from pyspark.sql import functions as F

        known = F.col("table").isin(list(self._plans))
        for row in batch.where(~known).select("table", "position").distinct().limit(1000).collect():
            schema, _, table = row["table"].rpartition(".")
            if self._settings.wants(TableName(schema or None, table)):
                raise CannotFinish(
                    f"{row['table']} has changes at {row['position']} and was not there when {self._settings.task}"
                    " began: exclude it, or start the task anew"
                )
        return batch.where(known)

    def _parallel(self, batch: DataFrame) -> int:
        with pool.lease(self._target) as session:
            if session.driver_local:
                return 1  # a file has one writer
        return self._settings.connections or batch.sparkSession.sparkContext.defaultParallelism

    def _part(self) -> Column:
        """Which part a change belongs to, as the consistency asks."""
        from pyspark.sql import functions as F

        of_table = F.concat_ws("/", "shard", F.lit("t"), "table")
        if self._settings.consistency == TABLE:
            return of_table
        if self._settings.consistency != ROW:
            return F.col("shard")
        sliced = [name for name, plan in self._plans.items() if plan.sliced]
        number = F.pmod(F.xxhash64("table", "key"), F.lit(SLICES))
        of_slice = F.concat_ws("/", "shard", F.lit("s"), number.cast("string"))
        return F.when(F.col("table").isin(sliced), of_slice).otherwise(of_table)

    def _learn(self, schema_ids: set[str]) -> None:
        for schema_id in schema_ids - self._targets.keys():
            definition = self._definitions.find(schema_id)
            self._targets[schema_id] = change_target(self._plans[definition.table], definition)

    def _step(self, part: str, end: tuple[str, int]) -> PartStep:
        if part not in self._progress:
            position, committed_at = self._origins[_shard_of(part)]
            with pool.lease(self._target) as session:
                self._ledger(session).open_part(part, position, committed_at, self._epoch)
            self._progress[part] = position, committed_at
        return PartStep(self._progress[part][0], *end)

    def _ledger(self, session: Any) -> Ledger:
        return Ledger(session, self._settings.task)


def _net_effect(changes: DataFrame) -> DataFrame:
    """The last change of each key; of a table without a key, every change."""
    from pyspark.sql import functions as F

    order = F.struct("commit_order", "seq")
    alone = F.when(F.coalesce(F.size("key"), F.lit(0)) <= 0, order)
    last = F.max_by(F.struct("kind", "after", "schema_id"), order)
    return (
        changes.groupBy("part", "table", "key", alone.alias("alone"))
        .agg(last.alias("last"), F.count(F.lit(1)).alias("changes"))
        .select("part", "table", "key", "last.*", "changes")
    )


def _ends(facts: list[Any]) -> dict[str, tuple[str, int]]:
    """The last position of each shard in the batch, with its commit time in microseconds."""
    last: dict[str, Any] = {}
    for fact in facts:
        known = last.get(fact["shard"])
        if known is None or fact["last"]["commit_order"] > known["commit_order"]:
            last[fact["shard"]] = fact["last"]
    return {
        shard: (found["position"], _microseconds(found["committed_at"]))
        for shard, found in last.items()
    }


def _microseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1_000_000) if moment else 0


def _refuse_truncates(facts: list[Any]) -> None:
    for fact in facts:
        if fact["kind"] == TRUNCATE:
            raise CannotFinish(
                f"a table of shard {fact['shard']} was truncated at {fact['last']['position']}: truncate it on the"
                " target, and start the task anew"
            )


def _news(ahead: Mapping[str, str]) -> Any:
    """Whether a change is not in its part yet; only parts that are ahead of the batch have any."""
    from pyspark.sql.pandas.functions import arrow_udf

    old = {part: parse_position(position) for part, position in ahead.items()}

    def is_news(part: pa.Array, position: pa.Array) -> pa.Array:
        known: dict[tuple[str, str], bool] = {}
        found = []
        for pair in zip(part.to_pylist(), position.to_pylist(), strict=True):
            if pair not in known:
                stands = old.get(pair[0])
                known[pair] = stands is None or not contains(stands, parse_position(pair[1]))
            found.append(known[pair])
        return pa.array(found)

    make: Any = arrow_udf  # its overloads do not know functions of Arrow arrays by their hints
    return make(is_news, "boolean")


def _contains(a: str, b: str) -> bool:
    return contains(parse_position(a), parse_position(b))


def _shard_of(part: str) -> str:
    return part.rsplit("/", 2)[0] if part.count("/") >= 2 else part
