"""Points of a log: what a token or a time includes of each shard's events, to the transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.changelog.eras import Era, descendants
from truecopy.changelog.facts import NO_DAY, Base
from truecopy.changelog.log import Log
from truecopy.changelog.packing import Bound, behind
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.stream.request import parse_point

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

CURRENT = "current"


@dataclass(frozen=True)
class PointInLog:
    """What is included of each era; nothing of those that it does not name."""

    bounds: Mapping[int, Bound]

    def includes(self) -> Column:
        """The condition on events, for Spark."""
        from pyspark.sql import functions as F

        found = F.lit(False)
        for era, (batch, order) in self.bounds.items():
            is_before = (F.col("batch") < batch) | (
                (F.col("batch") == batch) & (F.col("commit_order") < order)
            )
            found = found | ((F.col("era") == era) & is_before)
        return found


def after_batch(store: Log, batch: int) -> PointInLog:
    """The end of a batch."""
    return PointInLog({era.number: (batch + 1, -1) for era in store.eras() if era.first <= batch})


def find_point(store: Log, spark: SparkSession, text: str) -> tuple[PointInLog, Base]:
    """The point that a user means, and the newest base that it can be restored from."""
    point = parse_point(text, (CURRENT,))
    if point == CURRENT:
        found = after_batch(store, store.last)
    elif isinstance(point, int):
        found = _at_time(store, spark, point)
    elif isinstance(point, EventToken):
        found = _at_position(store, spark, KeyspacePosition((point,)))
    else:
        assert isinstance(point, KeyspacePosition)
        found = _at_position(store, spark, point)
    ready = [base for base in store.bases() if _is_ready(store, base, found)]
    if isinstance(point, int):
        ready = [base for base in ready if base.ready_at <= point]
    if not ready:
        raise _too_early(store)
    return found, ready[-1]


def _is_ready(store: Log, base: Base, point: PointInLog) -> bool:
    """Whether the point is not before the events that have overtaken the copy."""
    if base.ready is None:
        return False
    eras = [era for era in store.eras() if era.first <= base.ready]
    return all(point.bounds.get(era.number, (0, 0)) >= (base.ready + 1, -1) for era in eras)


def _too_early(store: Log) -> UsageError:
    bases = store.bases()
    if not bases:
        return UsageError(
            f"the log in {store.place} was begun without a base (--from), so nothing can be restored from it: begin"
            " another one without --from"
        )
    first = bases[0]
    if first.ready is None:
        return UsageError(
            "the base of the log is not complete: let truecopy changelog start come to its end"
        )
    end = store.end_of(first.ready).token() if first.ready >= store.oldest else None
    return UsageError(
        f"the log cannot be restored at points before its base was complete: not before"
        f" {_moment(first.ready_at)}, or the position {end}"
    )


def _at_time(store: Log, spark: SparkSession, at: int) -> PointInLog:
    """Of each shard, what is before its first transaction that was committed then or later."""
    from pyspark.sql import functions as F

    end = store.end_of(store.last)
    known = max(end.slowest, int(store.word("seen_at") or 0))
    if at > known:
        raise CannotFinish(
            f"the log has come to {_moment(known)} only: wait until it has {_moment(at)}"
        )
    bounds = dict(after_batch(store, store.last).bounds)
    day = datetime.fromtimestamp(at / 1e6, UTC).date().isoformat()
    files = [file for file in store.files() if file.day == NO_DAY or file.day >= day]
    if files:
        events = store.marks(spark, files)
        later = events.where(F.col("committed_at") >= F.expr(f"timestamp_micros({at})"))
        firsts = later.groupBy("era").agg(F.min(F.struct("batch", "commit_order")).alias("first"))
        for row in firsts.collect():
            bounds[row["era"]] = (row["first"]["batch"], row["first"]["commit_order"])
    return PointInLog(bounds)


def _at_position(store: Log, spark: SparkSession, point: KeyspacePosition) -> PointInLog:
    """Of each shard that is named, what its position contains; what led to these shards wholly."""
    eras = store.eras()
    named: dict[int, Bound] = {}
    for token in point.tokens:
        era = _era_of(store, eras, token)
        named[era.number] = _bound(store, spark, era, str(token.position))
    bounds = dict(named)
    mine = [era for era in eras if era.number in named]
    later = set[int]().union(*(descendants(eras, era) for era in mine))
    for era in eras:
        if era.number in named or era.number in later:
            continue
        if not any(era.number in one.ancestors for one in mine):
            raise UsageError(
                f"the token says nothing of shard {era.shard}: use a position of the keyspace (tck1.…), or a time"
            )
        bounds[era.number] = (store.last + 1, -1)
    return PointInLog(bounds)


def _era_of(store: Log, eras: list[Era], token: EventToken) -> Era:
    """The era of a token: of a shard that served twice, the last one that had begun by then."""
    mine = [era for era in eras if era.shard == token.shard]
    if not mine:
        shards = ", ".join(sorted({era.shard for era in eras}))
        raise UsageError(f"the token is of shard {token.shard}, and the log of {shards}")
    for era in reversed(mine):
        begun = store.end_of(max(era.first, store.oldest)).marks.get(era.shard)
        if begun is None or contains(token.position, parse_position(begun.position)):
            return era
    raise _too_early(store)


def _bound(store: Log, spark: SparkSession, era: Era, position: str) -> Bound:
    """The first transaction of an era that a position does not contain."""
    from pyspark.sql import functions as F

    low, high = max(era.first, store.oldest), _last_batch(store, era)
    if not _contains(position, _end(store, era, low)):
        raise _too_early(store)
    if not _contains(_end(store, era, high), position):
        raise CannotFinish(
            f"the log has come to {_end(store, era, high)} of shard {era.shard} only: wait until it has {position}"
        )
    while low < high:  # the last batch whose end is contained
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if _contains(position, _end(store, era, middle)) else (low, middle - 1)
        )
    files = [file for file in store.files() if file.first <= low + 1 <= file.last]
    if not files:
        return low + 1, -1
    events = store.marks(spark, files)
    events = events.where((F.col("batch") == low + 1) & (F.col("era") == era.number))
    first = events.where(is_behind(position)("position")).agg(F.min("commit_order")).first()
    if first is None or first[0] is None:
        return low + 2, -1
    return low + 1, int(first[0])


def _last_batch(store: Log, era: Era) -> int:
    """The last batch in whose end the era's shard is."""
    low, high = max(era.first, store.oldest), store.last
    nexts = [one.first for one in store.eras() if era.number in one.ancestors]
    return min([high, *(first - 1 for first in nexts)]) if nexts else max(low, high)


def _end(store: Log, era: Era, batch: int) -> str:
    mark = store.end_of(batch).marks.get(era.shard)
    return mark.position if mark else store.reached()[era.shard]


def is_behind(position: str) -> Any:
    """Whether an event comes after a position; for Spark."""
    from pyspark.sql.pandas.functions import arrow_udf

    def is_later(positions: pa.Array) -> pa.Array:
        return behind(positions, position)

    make: Any = arrow_udf  # its overloads do not know functions of Arrow arrays by their hints
    return make(is_later, "boolean")


def _contains(a: str, b: str) -> bool:
    return contains(parse_position(a), parse_position(b))


def _moment(at: int) -> str:
    return (
        datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )
