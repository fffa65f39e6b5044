"""What a database's log must offer to be streamed from.

A `ChangeLog` lives on the driver and finds boundaries between transactions; a `Part` is a piece of
the log between two of them, made of plain values, which an executor reads. A part read twice gives
the same rows, and a range gives the same rows however it is cut into parts: everything that promises
delivery stands on that. So nothing is ever looked up in the live tables while a part is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from importlib.metadata import entry_points
from typing import Any, Protocol, Self, cast, runtime_checkable

import pyarrow as pa

from truecopy.extras import needed_by
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError

GROUP = "truecopy.changes"


class Level(Enum):
    """How much of the source's order a log keeps."""

    ROW = "row"
    TABLE = "table"
    TRANSACTION = "transaction"


class LogGone(CannotFinish):
    """The log does not reach back to where the stream wants to start."""


@dataclass(frozen=True)
class Mark:
    """A boundary between two transactions of one shard's log.

    Attributes:
        position: What it means, in the engine's own form: everything contained in it is before.
        place: Where it is on one server (file and offset, segment): empty when that is not known.
        committed_at: When the last transaction before it was committed; microseconds since the epoch,
            0 when not known.
        written: Bytes of the log up to here, counted from anywhere: differences are what matters.
        schemas: The definitions in force here, as a set that the metastore knows by this name; empty
            where the log itself says them.
    """

    position: str
    place: str = ""
    committed_at: int = 0
    written: int = 0
    schemas: str = ""

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Lag:
    """How far a reader is behind the end of the log."""

    bytes: int
    seconds: float


@dataclass(frozen=True)
class Wanted:
    """What a consumer asks of a stream; plain values that travel to the executors.

    Attributes:
        shard: The name that rows and tokens carry.
        tables: Names or patterns with `*`; empty for every table of the database.
        keys_only: Leave `before` and `after` out, which a log with minimal row images can serve.
        settings: Options of one engine (`slot`, `work`, `server_ids`, `cursor`, …).
        fallbacks: Other servers of the shard, for a part whose server is gone when it is read.
        before: Whether `before` is wanted; else a log may leave it out.
    """

    shard: str
    tables: tuple[str, ...] = ()
    keys_only: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    fallbacks: tuple[Endpoint, ...] = ()
    before: bool = True

    def with_shard(self, shard: str) -> Wanted:
        return replace(self, shard=shard)


class Part(Protocol):
    """A piece of a log, readable anywhere; made of plain values that can be pickled."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """The changes of this piece, as batches of `CHANGE_SCHEMA`; `restart_at` is left null."""
        ...


@runtime_checkable
class ChangeLog(Protocol):
    """The log of one server, as the driver sees it. Used by one thread at a time."""

    level: Level

    def missing(self) -> list[str]:
        """What keeps this log from being streamed, a line each with its remedy; empty when all is well."""
        ...

    def oldest(self) -> Mark:
        """The first boundary that the log still reaches."""
        ...

    def current(self) -> Mark:
        """The end of the log now: everything that was committed before this call is before it."""
        ...

    def seek(self, position: str) -> Mark:
        """The boundary that a position stands for; `LogGone` when the log starts later."""
        ...

    def seek_time(self, at: int) -> Mark:
        """A boundary before every transaction committed at `at` (microseconds) or later."""
        ...

    def advance(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        """The furthest boundary at most `max_bytes` after `start`, and at least one transaction after it.

        Waits up to `wait` seconds for news and gives `start` back when there are none. Never steps
        over a change of a table's definition.
        """
        ...

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[Part]:
        """The range as about `parts` parts, in order; works in a new process, too, for a replayed batch.

        The definitions that the parts' rows refer to are in the metastore before this returns.
        """
        ...

    def lag(self, mark: Mark) -> Lag: ...

    def release(self, mark: Mark) -> None:
        """Nothing before this boundary will be asked for again."""
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


@runtime_checkable
class Follows(Protocol):
    """A log of a server that may itself follow another one."""

    def behind(self) -> float | None:
        """Seconds behind its own source, 0 for a server that has none; None where it does not follow any more."""
        ...


@dataclass(frozen=True)
class LoggedStatement:
    """A statement that changed tables as a whole.

    Attributes:
        tables: Their names, as the stream has them; `SCHEMA.*` for all of a schema.
        annotation: The comment that it begins with.
        made: Those that it makes.
        renamed: Those that have another name after it, and which.
    """

    txn: str
    position: str
    tables: tuple[str, ...]
    text: str
    annotation: str | None
    made: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class KeepsStatements(Protocol):
    """A log that holds the statements which define, alter and empty tables."""

    def statements(self, start: Mark, end: Mark) -> Iterator[LoggedStatement]:
        """Those of a range, of every table, in the order of the log."""
        ...


@runtime_checkable
class KnowsVisible(Protocol):
    """A log that may be ahead of what can be read in the tables."""

    def visible(self) -> Mark:
        """A boundary before which everything can be read by whoever asks now: where snapshots start from."""
        ...


@runtime_checkable
class RecordsOrigins(Protocol):
    """A log in which filtered replication leaves the source's positions."""

    def seek_origin(self, origins: Mapping[str, str]) -> Mark:
        """A boundary before everything that these positions of source shards do not contain.

        `LogGone` when the log starts later than the replication from one of them.
        """
        ...


@runtime_checkable
class Fed(Protocol):
    """A log whose server can say what filtered replication has brought it."""

    def fed_by(self) -> Mapping[str, str]:
        """The source shards, and the last position that was applied of each."""
        ...

    def fed_since(self) -> int:
        """When the first row was written here, by the copy or by replication; microseconds, 0 when not known."""
        ...


def open_log(endpoint: Endpoint, wanted: Wanted) -> ChangeLog:
    """The log of an endpoint, through entry points: a new engine needs no change here.

    With the setting `cursor`, tables are polled instead, whether the engine has a log or not.
    """
    if wanted.settings.get("cursor"):
        from truecopy.stream.polling import open_polling  # it builds on this module

        return open_polling(endpoint, wanted)
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if endpoint.scheme not in known:
        raise UsageError(
            f"{endpoint.scheme}:// has no change stream; known are {', '.join(sorted(known))}"
        )
    with needed_by(f"{endpoint.scheme}://"):
        opener = cast(Callable[[Endpoint, Wanted], ChangeLog], known[endpoint.scheme].load())
    return opener(endpoint, wanted)
