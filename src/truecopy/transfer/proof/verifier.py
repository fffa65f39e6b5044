"""What every verifier of a transfer offers, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.relation import Key
from truecopy.transfer.gate import Gate
from truecopy.transfer.plan import TablePlan
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISSING, EXTRA, DIFFERS, DIGEST, ROGUE = "missing", "extra", "differs", "digest", "rogue"
SHOWN = 100
"""Mismatches that an outcome names; all of them are counted."""


@dataclass(frozen=True)
class Mismatch:
    """Something that is not on the target as it is on the source.

    Attributes:
        kind: `missing` (the target has no such row), `extra` (the source has none), `differs` (in `columns`),
            `digest` (of a whole table) or `rogue` (written by somebody else).
        key: Canonical texts; empty where the table has no key or all of it is meant.
        detail: What a digest or the target's log said, in words.
    """

    table: str
    kind: str
    key: Key = ()
    columns: tuple[str, ...] = ()
    key_names: tuple[str, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        named = ", ".join(
            f"{name}={'NULL' if text is None else text}"
            for name, text in zip(self.key_names, self.key, strict=True)
        )
        row = f"the row {named} of {self.table}" if self.key else self.table
        said = {
            MISSING: "is missing on the target",
            EXTRA: "is on the target and not on the source",
            DIFFERS: f"differs in {', '.join(self.columns)}",
        }
        return f"{row} {said.get(self.kind, self.detail)}"


@dataclass(frozen=True)
class Outcome:
    """What a verifier has found so far.

    Attributes:
        tables: How many tables were compared.
        rows: How many rows were compared; those that changed, each time.
        found: How many mismatches there are; `mismatches` names the first of them.
        waiting: Rows that have still to be looked at.
        reason: Why it is no proof, where nothing or not everything was compared.
        told: Called when somebody was told of it: the verifier need not keep it any longer.
    """

    verifier: str
    tables: int = 0
    rows: int = 0
    found: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    waiting: int = 0
    seconds: float = 0.0
    reason: str = ""
    told: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """A verifier that compared nothing has not passed."""
        return self.tables > 0 and not self.found and not self.waiting and not self.reason

    def __str__(self) -> str:
        if self.found:
            shown = "; ".join(map(str, self.mismatches[:3]))
            more = f"; and {self.found - 3} more" if self.found > 3 else ""
            return f"{self.verifier}: {shown}{more}"
        if self.reason or not self.tables:
            return f"{self.verifier} is no proof: {self.reason or 'nothing was compared'}"
        left = f", {self.waiting} still to be looked at" if self.waiting else ""
        tables = f"{self.tables:,} table{'s' if self.tables != 1 else ''}"
        return f"{self.verifier}: {self.rows:,} rows of {tables} compared{left}"


class NotProven(CannotFinish):
    """Source and target are not shown to be equal; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome

    def told(self) -> None:
        self.outcome.told()


HasApplied = Callable[[Endpoint, str], bool]
"""Whether the replication has written everything up to a position of a source's log."""


@dataclass(frozen=True)
class Scene:
    """What a verifier works on.

    Attributes:
        plans: By source table, as in the stream's column `table`.
        spark: Where the work runs once it is large; None for always here.
        has_applied: Tells rows that are wrong from rows that are on their way; without it, rows that
            differ wait for the cutover.
        gate: Asked before rows are read, for as long as writers write; None for no ceilings.
    """

    task: str
    annotation: str
    plans: Mapping[str, TablePlan]
    spark: SparkSession | None = None
    has_applied: HasApplied | None = None
    gate: Gate | None = None

    def wait_for_turn(self) -> None:
        """Returns when rows may be compared."""
        if self.gate is not None:
            self.gate.before_looks()

    def paced(self, options: Options) -> Options:
        """Waits for that; gives the options with the ceilings that hold then."""
        self.wait_for_turn()
        if self.gate is None:
            return options
        limits = self.gate.limits
        return replace(
            options,
            connections=limits.connections or None,
            chunk_seconds=limits.statement_seconds,
        )


class Verifier(Protocol):
    """One way to prove a transfer, from before its first write to the end of its cutover.

    The order of calls: `start`; then, in any number, `observe` for each batch of changes *before* it is
    applied and `applied` after it, and `work` beside them; before cutover `shrink`, as often as wanted;
    while writers are locked out and everything is applied, `finish`; at last `close`. `work` and `shrink`
    may run in another thread than `observe` and `applied`.
    """

    name: str

    @property
    def waiting(self) -> int:
        """Rows that have still to be looked at."""
        ...

    def start(self, *, resumed: bool) -> None:
        """Before this run writes anything; `resumed` when an earlier run has written."""
        ...

    def observe(self, changes: pa.Table, reached: Mapping[str, str]) -> None:
        """Hears of a batch of the source's changes before it is applied, in pieces, since it may be large.

        Args:
            changes: Columns `table`, `schema_id`, `kind` and `key`; none in the last piece. Tables that were emptied or
                dropped are among them, without a key.
            reached: In the last piece, the position after the batch, by shard.
        """
        ...

    def applied(self) -> None:
        """Everything that was observed is on the target."""
        ...

    def work(self) -> Outcome:
        """Some work in the background; what it gives is for sure, not a row that is on its way."""
        ...

    def shrink(self) -> Outcome:
        """Leaves as little as possible for `finish`, while writers still write."""
        ...

    def finish(self) -> Outcome:
        """The last word, with writers locked out and every change applied."""
        ...

    def close(self) -> None: ...
