"""What a transfer is asked to do, as plain values; the task file is one way to say it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from truecopy.mapping.choice import Choice
from truecopy.mapping.plan import MappingRules
from truecopy.model.table import TableName
from truecopy.stream.request import Request
from truecopy.transfer.leg import Leg
from truecopy.transfer.limits import Limits
from truecopy.transfer.webhook import Hook

AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE = "at-least-once", "at-most-once", "exactly-once"
ROW, TABLE, TRANSACTION = "row", "table", "transaction"


@dataclass(frozen=True)
class Settings:
    """One transfer.

    Attributes:
        task: Its name; the target's ledger knows it by that.
        source, target: URLs.
        tables: Names or patterns of source tables; empty for all.
        exclude: Patterns of source tables to leave out.
        rules: What becomes of rows: routes, filters, transformers.
        ddl: What to do when the source's tables change: `additive` carries new columns that are NULL so far.
        verify: The verifiers that watch the replication: `inline`, `iterative`, `target`.
        limits: What may be taken from the databases; can be changed while it runs.
        hook: Who is told of events.
        leg: Of a keyspace: which part of it this transfer carries.
        annotation: The mark on every statement that is written.
    """

    task: str
    source: str = field(repr=False)
    target: str = field(repr=False)
    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rules: MappingRules = field(default_factory=MappingRules)
    delivery: str = AT_LEAST_ONCE
    consistency: str = ROW
    ddl: str = "additive"
    verify: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    hook: Hook | None = None
    chunk_rows: int = 0
    master: str | None = None
    leg: Leg | None = None

    def wants(self, name: TableName) -> bool:
        """Whether the task carries a table; our own tables never travel."""
        own = name.table.startswith("truecopy_")
        return not own and Choice(self.tables, self.exclude).wants(name)

    @property
    def connections(self) -> int:
        """The most that are open to either side; 0 for one per core."""
        return self.limits.connections

    @property
    def request(self) -> Request:
        """The stream of its source."""
        if self.leg is None:
            return Request(self.source, tables=self.tables)
        # Legs that begin at the same shard are streams of their own, which must not share a slot.
        slot = f"truecopy_{hashlib.sha256(self.task.encode()).hexdigest()[:12]}"
        return Request(self.source, self.leg.shard, self.tables, settings={"slot": slot})

    @property
    def annotation(self) -> str:
        task = self.leg.task if self.leg else self.task
        digest = hashlib.sha256(task.encode()).hexdigest()[:8]
        return f"truecopy {task} {digest}".replace("*/", "* /")
