"""A connection that runs queries of a user: timed, limited, cancelled on the server, described.

An engine supplies how a statement is run and described, its SQL of scratch tables, and what its
errors mean; the limit of time and the cancellation are here, once.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import TracebackType
from typing import Any, Self, cast

from truecopy.engines.queries.failure import Kind, QueryFailed, failed
from truecopy.engines.queries.texts import Texts
from truecopy.extras import needed_by
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.model.shape import QueryColumn

GROUP = "truecopy.queries.engines"
DEFAULT_SCRATCH = "truecopy_scratch"
ROWS_AT_ONCE = 5000
CANCEL_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class Outcome:
    """What running a statement cost; None where the engine does not tell."""

    seconds: float
    cpu_seconds: float | None = None
    memory_bytes: int | None = None


class QuerySession(ABC):
    """One connection for one thread; `cancel` alone may come from another one.

    Attributes:
        dialect: What sqlglot calls this engine's SQL.
        scratch: The schema (with its catalog, where there are such) that takes all tables we make.
        keeps_scratch: Whether scratch tables outlive the connection.
        makes_views: Whether a view in the scratch schema may read tables of another one.
        describes_cheaply: Whether `describe` runs nothing.
        serves_tasks: Whether connections of other processes see scratch tables.
        is_of_spark: Whether the Spark session of this process sees them.
    """

    dialect: str
    texts: Texts
    scratch: tuple[str, ...]
    keeps_scratch = True
    makes_views = True
    describes_cheaply = True
    serves_tasks = True
    is_of_spark = False

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    @property
    def survives_crashes(self) -> bool:
        """Whether scratch tables hold the same rows after the server crashed."""
        return True

    # Supplied by an engine

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Runs a statement as it is written."""

    @abstractmethod
    def select(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a small result of SQL that was made here."""

    @abstractmethod
    def stream(self, sql: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """The rows of a large result of SQL that was made here, some thousands at a time."""

    @abstractmethod
    def describe(self, query: str) -> tuple[QueryColumn, ...]:
        """The columns of a query, which is not run."""

    @abstractmethod
    def names(self, query: str) -> list[str]:
        """What the engine calls the columns of a query, doubles and all; it may end in LIMIT 0."""

    @abstractmethod
    def explain(self, query: str) -> str:
        """The engine's plan, as text."""

    @abstractmethod
    def cancel(self) -> None:
        """Stops what runs, on the server."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def explained(self, error: Exception) -> QueryFailed | None:
        """The failure behind a driver's error; None for an error that is not one of the driver."""

    @abstractmethod
    def scratch_tables(self, prefix: str) -> list[str]:
        """Tables and views of the scratch schema whose names start so; an absent schema has none."""

    @abstractmethod
    def make_scratch(self) -> None:
        """Makes the scratch schema, where it is not there."""

    @abstractmethod
    def use(self, catalog: str | None, schema: str | None) -> None:
        """Where names without a schema are looked up."""

    @abstractmethod
    def set(self, settings: Mapping[str, str]) -> None:
        """Settings of the session."""

    def end_orphans(self, prefix: str) -> None:
        """Ends statements about scratch tables of that prefix which outlived their client.

        Engines that stop when their client goes have none.
        """
        del prefix

    def read_only(self) -> None:
        """Refuses every write from now on, where the engine can."""
        return

    def create_as(self, table: str, query: str) -> str:
        """The statement that keeps a query's result."""
        return f"CREATE TABLE {table} AS {query}"

    def storable(self, column: QueryColumn) -> str | None:
        """How a column is cast where the engine cannot keep it as it is; None: as it is."""
        del column
        return None

    def usage(self) -> tuple[float | None, int | None]:
        """Seconds of CPU so far, and peak memory in bytes, of what ran here; None where unknown."""
        return None, None

    def memory_bound(self) -> int | None:
        """Asked after a statement ran out of memory: the most that it can have used; None where unknown."""
        return None

    # Shared

    def scratch_name(self, table: str) -> str:
        """A scratch table, quoted and qualified."""
        return ".".join(self.quote(part) for part in (*self.scratch, table))

    def quote(self, name: str) -> str:
        """An identifier for a statement that is run as it is written."""
        return self.texts.quote(name).replace("%%", "%")

    def run(self, sql: str, seconds: float | None = None) -> Outcome:
        """Runs a statement within a limit of time."""
        before, _ = self.usage()
        started = time.monotonic()
        with self.limited(seconds):
            self.execute(sql)
        spent = time.monotonic() - started
        after, memory = self.usage()
        cpu = None if before is None or after is None else max(0.0, after - before)
        return Outcome(spent, cpu, memory)

    def fetch(self, sql: str, seconds: float | None = None) -> list[tuple[Any, ...]]:
        """The rows of a small result, within a limit of time."""
        with self.limited(seconds):
            return self.select(sql)

    def columns(self, query: str, seconds: float | None = None) -> tuple[QueryColumn, ...]:
        """The columns of a query, within a limit of time."""
        with self.limited(seconds):
            return self.describe(query)

    def drop(self, name: str) -> None:
        """Drops a scratch table or view that may be there."""
        for kind in ("TABLE", "VIEW"):
            try:
                self.execute(f"DROP {kind} IF EXISTS {self.scratch_name(name)}")
            except Exception as error:
                # `DROP TABLE` of a view is an error in some engines, and the other way round.
                found = self.explained(error)
                if found is None or found.failure.kind is Kind.CONNECTION:
                    raise

    @contextmanager
    def limited(self, seconds: float | None) -> Iterator[None]:
        """Cancels what runs after some seconds; a driver's errors come out as failures."""
        over, expired, cancelling = threading.Event(), threading.Event(), threading.Lock()

        def watch() -> None:
            pause = seconds
            while not over.wait(pause):  # again, as a statement may not have reached the server yet
                expired.set()
                with cancelling:
                    if not over.is_set():
                        self._cancel_if_possible()
                pause = CANCEL_PAUSE_SECONDS

        if seconds:
            threading.Thread(target=watch, name="truecopy-limit", daemon=True).start()
        try:
            yield
        except QueryFailed:
            raise
        except Exception as error:
            if expired.is_set():
                raise failed(
                    Kind.TIME_LIMIT, f"cancelled on {self.endpoint} after {seconds:g} s"
                ) from None
            found = self.explained(error)
            if found is None:
                raise
            raise found from None
        finally:
            over.set()
            with cancelling:  # or it would meet the next statement
                pass

    def _cancel_if_possible(self) -> None:
        try:
            self.cancel()
        except Exception as error:
            if self.explained(error) is None:
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_session(endpoint: Endpoint, scratch: str | None = None) -> QuerySession:
    """Opens a connection by the scheme of its URL, through entry points."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if endpoint.scheme not in found:
        raise UsageError(
            f"{endpoint.scheme}:// runs no queries; known are {', '.join(sorted(found))}"
        )
    with needed_by(f"{endpoint.scheme}://"):
        engine = cast(
            "Callable[[Endpoint, str | None], QuerySession]", found[endpoint.scheme].load()
        )
        return engine(endpoint, scratch)  # which may import its client only now


def blocks(cursor: Any) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a cursor of Python's database interface, some at a time."""
    while found := cursor.fetchmany(ROWS_AT_ONCE):
        yield [tuple(row) for row in found]


def text_rows(rows: Sequence[Sequence[object]]) -> list[str]:
    """The first column of rows, as text."""
    return [str(row[0]) for row in rows]
