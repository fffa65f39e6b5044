"""What a transfer is asked to do, as plain values; the task file is one way to say it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from truecopy.mapping.choice import Choice
from truecopy.mapping.plan import MappingRules
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.secret import Secret
from truecopy.model.table import TableName
from truecopy.stream.request import DEFAULT_MAX_BYTES, Request
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.leg import Leg
from truecopy.transfer.limits import Limits
from truecopy.transfer.webhook import Hook

AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE = "at-least-once", "at-most-once", "exactly-once"
ROW, TABLE, TRANSACTION = "row", "table", "transaction"
REFUSE_CASCADES, TARGET_CASCADES = "refuse", "target"
CHUNK_ROWS, CHUNK_BYTES = 20_000, 16 << 20


@dataclass(frozen=True)
class Reading:
    """How the source's changes are read; see `stream.request.Request`, which has the same names."""

    shard: str = ""
    max_bytes: int = DEFAULT_MAX_BYTES
    parts: int = 0
    skew: float = 2.0
    max_lag: float = 60.0
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """One transfer.

    Attributes:
        task: Its name; the target's ledger knows it by that.
        source, target: URLs.
        tables: Names or patterns of source tables; empty for all.
        exclude: Patterns of source tables to leave out.
        rules: What becomes of rows: routes, filters, transformers.
        ddl: What to do when the source's tables change: `additive` carries new columns that are NULL so far,
            `pause` leaves them to a person, too.
        cascades: Who does what foreign keys of the source do and its log does not tell: `refuse` or `target`.
        verify: The verifiers that watch the replication: `inline`, `iterative`, `target`.
        continuous: How every replicated change is checked on the target, beside a run that lasts; None for not at all.
        limits: What may be taken from the databases; can be changed while it runs.
        hook: Who is told of events.
        leg: Of a keyspace: which part of it this transfer carries.
        reading: How changes are read.
        chunk_rows, chunk_bytes: The size of a chunk; 0 where it was not chosen.
        spark: Settings of Spark, over our own.
        metastore: Where definitions of tables are kept; None for the state folder.
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
    cascades: str = REFUSE_CASCADES
    verify: tuple[str, ...] = ()
    continuous: ContinuousOptions | None = None
    limits: Limits = field(default_factory=Limits)
    hook: Hook | None = None
    reading: Reading = field(default_factory=Reading)
    chunk_rows: int = 0
    chunk_bytes: int = 0
    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    metastore: Secret | None = None
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
        how = dict(vars(self.reading)) | {
            "settings": {"slot": self.slot(), **self.reading.settings}
        }
        if self.cascades == TARGET_CASCADES:
            how["settings"]["cascades"] = TARGET_CASCADES
        if self.connections:
            how["parts"] = min(self.reading.parts or self.connections, self.connections)
        if self.leg is not None:
            # Legs that begin at the same shard are streams of their own, which cannot share one that was named.
            how["shard"], how["settings"]["slot"] = self.leg.shard, self.slot()
        return Request(self.source, tables=self.tables, **how)

    def slot(self, reader: str = "") -> str:
        """Where a source keeps its log for each reader: two tasks of the same tables let go of different changes."""
        # A shard is known by its name, since another of its servers may be read the next time.
        where = "" if self.leg else f"{parse_endpoint(self.source).identity}\n"
        return f"truecopy_{hashlib.sha256(f'{where}{reader}{self.task}'.encode()).hexdigest()[:12]}"

    @property
    def annotation(self) -> str:
        task = self.leg.task if self.leg else self.task
        digest = hashlib.sha256(task.encode()).hexdigest()[:8]
        return f"truecopy {task} {digest}".replace("*/", "* /")


def chunk_rows(settings: Settings, row_bytes: int) -> int:
    """The rows of a chunk of rows of that size: as was chosen, else some thousands that fit into a task's memory."""
    if settings.chunk_rows:
        return settings.chunk_rows
    fitting = max((settings.chunk_bytes or CHUNK_BYTES) // max(row_bytes, 1), 1)
    return fitting if settings.chunk_bytes else min(fitting, CHUNK_ROWS)
