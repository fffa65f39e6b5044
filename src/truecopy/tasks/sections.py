"""The parts of a task file about the work itself: proof, ceilings, Spark, the stream, the cutover."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from truecopy.mapping.choice import nearest
from truecopy.stream.request import DEFAULT_MAX_BYTES, ENGINE_SETTINGS
from truecopy.tasks.ends import Address
from truecopy.tasks.values import DayHours, Duration, SecretText, Section, Size


class Continuous(Section):
    """Every replicated change is checked on the target."""

    short: ClassVar = {"type": "boolean"}

    mode: Literal["full", "fast"] = "full"
    """`full` compares all columns, `fast` whether the row is there."""
    validate_interval: Annotated[Duration, Field(gt=0)] = 10.0
    """The longest time that a change waits to be checked, and the time between two tries of a row that failed."""
    validate_changes: Annotated[int, Field(ge=1)] = 10_000
    """So many changes are checked at once, before the interval is over."""
    row_error_delay: Duration = 1800.0
    """How long a row may fail before it is an error."""
    initial_delay: Duration = 1800.0
    """No errors before this time has passed, or validation has caught up once."""
    batch_query_size: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Keys that one question to the target asks for."""
    max_pending_rows: Annotated[int, Field(ge=1)] = 1_000_000
    """Validation stops itself above this."""
    max_pending_bytes: Size = 256 << 20
    """Validation stops itself above this."""
    meta_flush_interval: Duration = 60.0
    """How often the position is stored while there is nothing to check; each check is stored at once."""
    connections: Annotated[int, Field(ge=1)] | None = None
    """Connections to the target at the same time; none: as `throttle` says, else one per core."""
    rate: Annotated[int, Field(ge=1)] | None = None
    """Rows per second that the target is asked for; none: as fast as it goes."""
    float_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of the larger one by which two floats may differ."""
    float_absolute: Annotated[float, Field(ge=0)] = 0.0
    """By how much two floats may differ, however small they are."""
    applied: Literal["auto", "task", "replica", "lag"] = "auto"
    """What tells how far the replication is: the task's own progress, the position of a replica, or `lag`."""
    lag: Duration = 60.0
    """With `lag`: what was committed longer ago than this is taken for applied."""


def _on_or_off(data: object) -> object:
    return {} if data is True else None if data is False else data


class Verify(Section):
    """How the copy is proved."""

    inline: bool = True
    """Compare changed rows again later; each chunk is compared before it is committed in any case."""
    iterative: bool = False
    """Compare all rows after the copy, and what differs or changed again until nothing is left."""
    checksum: bool = False
    """Compare a digest of each whole table at the cutover."""
    target: bool = False
    """Read the target's own log: a write that is not ours fails the run."""
    continuous: Annotated[Continuous | None, BeforeValidator(_on_or_off)] = None
    """Check every replicated change, for as long as the task runs."""


class Throttle(Section):
    """What the work may take from a production database; can be changed while it runs."""

    rate: Annotated[int, Field(ge=1)] | None = None
    """Rows per second that are read; none: as fast as it goes."""
    connections: Annotated[int, Field(ge=1)] | None = None
    """Connections to each end at the same time; none: one per core."""
    statement_seconds: Duration = 1.0
    """What one statement should take at most; chunks shrink to it."""
    replicas: tuple[Address, ...] = ()
    """Replicas whose lag pauses the work."""
    max_lag: Duration = 1.0
    """Lag of a replica above which the work pauses."""
    hours: tuple[DayHours, ...] = ()
    """Parts of the day in which rows are copied; none: always. Replication goes on at any hour."""
    timezone: str = "UTC"
    """The zone of `hours`."""


class Chunks(Section):
    """How tables are cut for the copy."""

    rows: Annotated[int, Field(ge=1)] | None = None
    """Rows of a chunk; none: by `bytes`."""
    bytes: Annotated[Size, Field(ge=1)] | None = None
    """Size of a chunk, by the average row; none: 16m, and at most 20,000 rows."""


class Spark(Section):
    """Where the work runs."""

    master: str | None = None
    """`local[*]`, `spark://…`, `yarn`, `k8s://…`; none: all cores of this machine."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Settings of Spark by name, over those that Truecopy makes."""


class Stream(Section):
    """How changes are read."""

    shard: str | None = None
    """The name that tokens carry; the same for a primary and its replicas. None: the database's name."""
    max_bytes: Size = DEFAULT_MAX_BYTES
    """The most that one batch reads of a log; the least is one transaction."""
    parts: Annotated[int, Field(ge=0)] = 0
    """Spark partitions per shard and batch; 0: one per core."""
    skew: Duration = 2.0
    """How far a shard may be ahead of the slowest one."""
    max_lag: Duration = 60.0
    """Lag at which a server of a shard is left for another one."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Settings of the source's engine, as of `truecopy stream --set`."""

    @model_validator(mode="after")
    def _knows_settings(self) -> Stream:
        for name in self.settings:
            if name == "cascades":
                raise ValueError("settings.cascades: write cascades: beside stream:")
            if name not in ENGINE_SETTINGS:
                raise ValueError(f"settings.{name}: unknown{nearest(name, ENGINE_SETTINGS)}")
        return self


class CutoverCommands(Section):
    """Shell commands of a cutover. Each may be run again; 0 means that everything is done."""

    hold: str | None = None
    """Keeps writers from the old side (`lock: command`)."""
    release: str | None = None
    """Lets them in there again, when the cutover is given up (`lock: command`)."""
    switch: str | None = None
    """Lets writers into the new side, whatever `lock` is."""
    attempts: Annotated[int, Field(ge=1)] = 3
    """How often a command is run that does not end with 0."""


class CutoverCallback(Section):
    """An HTTP address that is told what to do with writers; any answer but 2xx is a failure."""

    short: ClassVar = {"type": "string", "pattern": "^https?://"}

    url: SecretText
    """It takes JSON: `task`, `direction` (`forth`, `back`) and `step` (`hold`, `release`, `switch`)."""
    attempts: Annotated[int, Field(ge=1)] = 5
    """How often it is tried."""
    timeout: Duration = 10.0
    """How long each try may take."""

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data


class Cutover(Section):
    """How the target takes over."""

    lock: Literal["auto", "read-only", "tables", "revoke", "command", "callback", "none"] = "auto"
    """How writers of the source are held off: a read-only server or table locks (MySQL, MariaDB), rights that are
    taken back (PostgreSQL), a command, an HTTP address, or by hand. `auto`: as the source's engine does it best."""
    commands: CutoverCommands = CutoverCommands()
    """Commands that hold writers off, let them in again, and let them into the new side."""
    callback: CutoverCallback | None = None
    """An address that does the same."""
    max_lag: Duration = 5.0
    """The lag below which the cutover begins."""
    max_wait: Duration = 600.0
    """For how long it waits for that before it is given up."""
    max_downtime: Duration = 60.0
    """After this time the cutover is given up and writers are let in again."""
    sequences: bool = True
    """Set sequences and AUTO_INCREMENT of the target."""
    reverse: bool = True
    """Replicate back what is written to the new side, so that there is a way back."""

    @model_validator(mode="after")
    def _fits_together(self) -> Cutover:
        if self.lock == "callback" and self.callback is None:
            raise ValueError("lock: callback needs callback: an HTTP address")
        if self.lock == "command":
            for name in ("hold", "release", "switch"):
                if not getattr(self.commands, name):
                    raise ValueError(f"lock: command needs commands: {{{name}: …}}")
        return self


class Webhook(Section):
    """Who is told of a change of state."""

    short: ClassVar = {"type": "string", "pattern": "^https?://"}

    url: SecretText
    """An HTTP address that takes JSON. Treated as a secret, since many hold a token."""
    events: tuple[Literal["state", "error", "cutover"], ...] = ("state", "error", "cutover")
    """What is told."""

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data
