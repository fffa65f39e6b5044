"""A task verified from outside, by a process of its own, whether the task runs or stands.

All rows are compared, and those that differ are watched. Such a row may be on its way. Each look at it comes
after the replication has passed everything that the source's log had when the look began, so the target's row
is right as well when it is the source's of the look before. It is wrong when the source row stood still for
the delay, and the target did not equal it at any look; and when the source, asked once more after it shows
all that the target can have, still has the same row.

Nothing of the task is touched: how far it has come is read from the target, and the record of the target
verifier is copied before it is used.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from truecopy.engines import pool
from truecopy.engines.protocols import Digests, Introspects, Session
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.relation import Key
from truecopy.spark import session as spark_session
from truecopy.telemetry import span
from truecopy.transfer.ledger import SNAPSHOT
from truecopy.transfer.limits import Limits
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.behind import Behind
from truecopy.transfer.proof.checksum import all_digests
from truecopy.transfer.proof.chosen import CHECKSUM, INLINE, ITERATIVE, TARGET
from truecopy.transfer.proof.digest_pass import ROWS_WITHOUT_SPARK, compare_all
from truecopy.transfer.proof.look import differences
from truecopy.transfer.proof.mapped import MappedSource, is_looked_up
from truecopy.transfer.proof.target_alone import rogue_writes
from truecopy.transfer.proof.verifier import Scene
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.verify.buckets import compare_by_buckets
from truecopy.verify.certificate import issue_certificate
from truecopy.verify.chunks import chunk_rows
from truecopy.verify.compare import ChunkResult
from truecopy.verify.differences import Difference, Row, from_arrow, from_bytes
from truecopy.verify.live import Settled, watch
from truecopy.verify.matching import Comparison, Finding
from truecopy.verify.options import Options
from truecopy.verify.report import DIFFERENT, NOT_COMPARED, Report, TableReport, overall
from truecopy.verify.summary import settled_result, table_report, to_record, without_differences
from truecopy.verify.verification import Listener, Silence, open_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERIFIERS = (INLINE, ITERATIVE, CHECKSUM, TARGET)


_Named = tuple[int, Key]
"""A row: the number of its pair, and what it is known by there."""
_Found = tuple[_Named, Difference]


class _NotYet(Exception):
    """The replication has not come to where it must be before rows are judged."""


@dataclass(frozen=True)
class Pair:
    """A table of the target, and the source tables whose rows arrive there."""

    plans: tuple[TablePlan, ...]

    @cached_property
    def comparison(self) -> Comparison:
        first = self.plans[0].comparison
        tables = tuple(plan.mapping.source for plan in self.plans)
        return replace(
            first,
            source=replace(first.source, tables=tables),
            source_tables=tuple(t for plan in self.plans for t in plan.comparison.source_tables),
        )

    @property
    def is_mapped(self) -> bool:
        return self.plans[0].is_mapped

    @property
    def is_looked_up(self) -> bool:
        """Whether single rows can be asked for; else all of them are compared again."""
        return len(self.plans) == 1 and is_looked_up(self.plans[0])


@span("verify")
def verify_task(
    settings: Settings,
    verifiers: Collection[str] = (),
    *,
    options: Options | None = None,
    listener: Listener | None = None,
) -> Report:
    """Compares what a task carries, as it is mapped, with what has arrived.

    Args:
        settings: The task, as it goes now (`cutover.standing`).
        verifiers: Those to run; by default those of the task. Rows are compared in any case: by the digests of
            whole tables first where it is `checksum` alone, else by those of chunks.
        options: The pace, by default that of the task, the delay and the settle time; what is compared, the task says.
        listener: Hears of the progress.
    """
    chosen = _paced(options or Options(), settings.limits)
    source, target = parse_endpoint(settings.source), parse_endpoint(settings.target)
    with pool.lease(source) as here, pool.lease(target) as there:
        behind = Behind(settings, here, there)
        if behind.phase == SNAPSHOT:
            raise UsageError(
                f"{settings.task} is still copying, and rows are missing that are to come: verify it afterwards"
            )
        plans = Transfer(settings).planned(here, there)
        work = _Work(settings, (here, there), list(plans.values()), behind, chosen)
        return work.run(verifiers or settings.verify, listener or Silence())


def _paced(options: Options, limits: Limits) -> Options:
    """With the ceilings of the task where none are given."""
    paced = replace(options, live=True, limit=None, sample=None)
    if options.connections is None:
        paced = replace(paced, connections=limits.connections or None)
    if options.replica is None and limits.replicas:
        first = parse_endpoint(limits.replicas[0])
        paced = replace(paced, replica=first, max_lag=limits.max_lag)
    return paced


class _Work:
    """The steps of one verification."""

    def __init__(
        self,
        settings: Settings,
        sides: tuple[Session, Session],
        plans: Sequence[TablePlan],
        behind: Behind,
        options: Options,
    ) -> None:
        self._settings = settings
        self._sides = sides
        self._behind = behind
        self._options = options
        groups: dict[object, list[TablePlan]] = {}
        for plan in plans:
            groups.setdefault(plan.target.tables[0], []).append(plan)
        self._pairs = [Pair(tuple(group)) for group in groups.values()]
        self._plans = plans
        self._unjudged = set[int]()

    def run(self, verifiers: Collection[str], listener: Listener) -> Report:
        started_at, begun = time.time(), time.monotonic()
        positions = self._positions("before")
        identity = self._identity()
        record = open_record(None, identity)
        comparisons = [pair.comparison for pair in self._pairs]
        record.start(identity, [])
        listener.planned(comparisons, len(comparisons), sum(c.rows for c in comparisons), 0)
        for result in self._first(whole_first=set(verifiers) <= {CHECKSUM, TARGET}):
            record.add(to_record(result))
            listener.advanced(comparisons[result.comparison], result)
        suspects = {
            (number, _name(difference))
            for found in record.records(only_found=True)
            for number in (found.comparison,)
            for difference in from_arrow(from_bytes(found.differences))
        }
        if suspects:
            listener.said(f"watching {len(suspects):,} rows that differed")
            for number, settled in self._settle(suspects).items():
                compared = [without_differences(one) for one in record.records(number)]
                record.replace(number, [*compared, to_record(settled_result(number, settled))])
        record.finish()
        rogue = self._rogue() if TARGET in verifiers else {}
        tables = [
            self._judged(
                table_report(comparison, number, record.records(number), None, self._options, None),
                rogue.get(comparison.target_name, ()),
                is_judged=number not in self._unjudged,
            )
            for number, comparison in enumerate(comparisons)
        ]
        report = Report(
            source=self._sides[0].endpoint,
            target=self._sides[1].endpoint,
            options=self._options,
            verdict=overall(tuple(tables)),
            tables=tuple(tables),
            seconds=time.monotonic() - begun,
            started_at=started_at,
            positions=positions | self._positions("after"),
            comparisons=tuple(comparisons),
            record=record,
        )
        return issue_certificate(report, {"task": self._settings.task, "verifiers": [*verifiers]})

    # The first comparison

    def _first(self, *, whole_first: bool) -> Iterator[ChunkResult]:
        plain = [n for n, pair in enumerate(self._pairs) if not pair.is_mapped]
        if whole_first:
            plans = [self._pairs[n].plans[0] for n in plain]
            scene = Scene(self._settings.task, self._settings.annotation, {}, self._spark)
            found = zip(plain, all_digests(scene, plans), strict=True)
            equal = {number: digest for number, (digest, other) in found if digest == other}
            for number, digest in equal.items():
                yield ChunkResult(number, 0, digest, digest)
            plain = [number for number in plain if number not in equal]
        comparisons = [self._pairs[n].comparison for n in plain]
        for result in compare_all(self._spark, comparisons, self._options):
            yield replace(result, comparison=plain[result.comparison])
        for number, pair in enumerate(self._pairs):
            if pair.is_mapped:
                yield from self._mapped(pair, number)

    def _mapped(self, pair: Pair, number: int) -> Iterator[ChunkResult]:
        assert self._spark is not None
        source: Any = MappedSource(self._spark, pair.plans)
        sides = source, self._sides[1]
        yield from compare_by_buckets(self._spark, pair.comparison, number, sides, self._options)

    @cached_property
    def _spark(self) -> SparkSession | None:
        """Started only where the work needs it, or is worth it."""
        comparisons = [pair.comparison for pair in self._pairs]
        in_databases = all(isinstance(side, Digests) for side in self._sides)
        rows = sum(comparison.rows for comparison in comparisons)
        is_large = any(
            not one.ordered and one.rows > chunk_rows(one, self._options) for one in comparisons
        )
        if (
            in_databases
            and rows <= ROWS_WITHOUT_SPARK
            and not is_large
            and not any(pair.is_mapped for pair in self._pairs)
        ):
            return None
        return spark_session(self._settings.master)

    # Rows that differed

    def _settle(self, suspects: Collection[_Named]) -> dict[int, Settled]:
        """What became of rows of all tables, which are looked at together: the replication is waited for once."""
        options = self._options
        left, seen = set(suspects), dict[_Named, Row | None]()
        different = list[_Found]()
        try:
            while_moving = watch(
                [_packed(name) for name in sorted(left, key=str)],
                lambda keys: self._look([_unpacked(key) for key in keys], left, seen),
                *(options.delay, options.settle_time, time.monotonic, time.sleep),
            )
            found = [(_unpacked(one.key), one) for one in while_moving.different]
            different = self._confirmed(found, left)
        except _NotYet:
            self._unjudged = {number for number, _ in left}
        sure = {name for name, _ in different}
        return {
            number: Settled(
                tuple(self._plain(one, number) for (n, _), one in different if n == number),
                sum(n == number for n, _ in left - sure),
            )
            for number in sorted({number for number, _ in suspects})
        }

    def _look(
        self, names: Sequence[_Named], left: set[_Named], seen: dict[_Named, Row | None]
    ) -> list[Difference]:
        """Those of the rows that are not right now; `left` loses those that are."""
        if not self._behind.catches_up(self._options.settle_time):
            raise _NotYet
        found = self._again(names)
        news = [(name, one) for name, one in found if name not in seen or seen[name] != one.target]
        seen.update({name: one.source for name, one in found})
        left.difference_update(set(names) - {name for name, _ in news})
        return [replace(one, key=_packed(name)) for name, one in news]

    def _confirmed(self, found: Sequence[_Found], left: set[_Named]) -> list[_Found]:
        """Those that still differ when the source shows whatever the target can have."""
        if not found:
            return []
        if not self._behind.is_visible(self._options.settle_time):
            raise _NotYet
        names = sorted({name for name, _ in found}, key=str)
        again = self._again(names)
        left.difference_update(set(names) - {name for name, _ in again})
        same = {(name, one.source) for name, one in again}
        pairs = {number for number, _ in names}
        tables = {n: [plan.source_name for plan in self._pairs[n].plans] for n in pairs}
        self._unjudged = {n for n in pairs if self._behind.has_pending(tables[n])}
        return [
            (name, one)
            for name, one in found
            if (name, one.source) in same and name[0] not in self._unjudged
        ]

    def _plain(self, one: Difference, number: int) -> Difference:
        """With its own key."""
        width = self._pairs[number].comparison.source.key_width
        return replace(one, key=(one.source or one.target or ())[:width])

    def _again(self, names: Sequence[_Named]) -> list[_Found]:
        """How these rows differ now."""
        wanted: dict[int, list[Key]] = {}
        for number, key in names:
            wanted.setdefault(number, []).append(key)
        return [
            ((number, _name(one)), one)
            for number, keys in wanted.items()
            for one in self._again_in(self._pairs[number], keys)
        ]

    def _again_in(self, pair: Pair, keys: Sequence[Key]) -> Iterator[Difference]:
        if pair.is_looked_up:
            yield from differences(pair.plans[0], keys, self._spark)
            return
        results = (
            self._mapped(pair, 0)
            if pair.is_mapped
            else compare_all(self._spark, [pair.comparison], self._options)
        )
        wanted = set(keys)
        for result in results:
            yield from (one for one in from_arrow(result.table) if _name(one) in wanted)

    # The report

    def _judged(self, table: TableReport, rogue: Sequence[str], *, is_judged: bool) -> TableReport:
        if rogue:
            findings = tuple(Finding("rogue", "", line, fatal=True) for line in rogue)
            reason = table.reason or "somebody else has written to the target"
            return replace(
                table, verdict=DIFFERENT, reason=reason, structure=(*table.structure, *findings)
            )
        if not is_judged:
            reason = (
                f"{table.unsettled:,} rows differ and may be on their way: {self._behind.why()}"
            )
            return replace(table, verdict=NOT_COMPARED, reason=reason)
        return table

    def _rogue(self) -> dict[str, list[str]]:
        plans = {plan.source_name: plan for plan in self._plans}
        scene = Scene(self._settings.task, self._settings.annotation, plans)
        return rogue_writes(scene, self._sides[1].endpoint)

    def _identity(self) -> str:
        of_ends = self._options.fingerprint(*(side.endpoint for side in self._sides))
        return hashlib.sha256(f"{self._settings.task} {of_ends}".encode()).hexdigest()[:16]

    def _positions(self, when: str) -> dict[str, str | None]:
        return {
            f"{name}_{when}": cast(Introspects, side).position()
            for name, side in zip(("source", "target"), self._sides, strict=True)
        }


def _name(difference: Difference) -> Key:
    """What to know a row by: its key, or all of it."""
    return difference.key or (difference.kind, *(difference.source or difference.target or ()))


def _packed(name: _Named) -> Key:
    number, key = name
    return str(number), *key


def _unpacked(key: Key) -> _Named:
    return int(key[0] or 0), key[1:]
