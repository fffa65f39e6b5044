"""A change log as tables of a database: `truecopy_changes` with a row per event, `truecopy_changes_base`, a ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from truecopy.changelog.events import READ_SCHEMA
from truecopy.changelog.facts import EventFile
from truecopy.changelog.ledger import CREATE_LEDGER
from truecopy.changelog.loading import find_or_make, row_target
from truecopy.changelog.log import Log
from truecopy.changelog.pieces import Piece
from truecopy.changelog.table_rows import (
    BASE_KEY,
    BASE_PLACES,
    EVENT_KEY,
    EVENT_PLACES,
    MARKS,
    BaseRows,
    EventRows,
    Held,
    Place,
    ReadingEvents,
)
from truecopy.changelog.view_names import CURRENT, HISTORY, view_names
from truecopy.engines import pool
from truecopy.engines.lines import Lines
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.table import Column, Table, TableName

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

CHANGES, BASE_ROWS, DEFINITIONS = "truecopy_changes", "truecopy_changes_base", "truecopy_definition"
TURN = "turn"
"""The word that says who may write: an epoch, and a number that every commit moves."""
_CREATE_DEFINITIONS = f"""CREATE TABLE IF NOT EXISTS {DEFINITIONS} (
    schema_id VARCHAR(64) NOT NULL PRIMARY KEY, document TEXT NOT NULL)"""
_PIECE_ROWS = 50_000


def _keyed(name: str, places: tuple[Place, ...], key: tuple[str, ...]) -> Table:
    columns = tuple(Column(p.name, p.type, p.native, nullable=p.name not in key) for p in places)
    table = Table(TableName(None, name), columns, keys=(key,), unique=(key,), primary=key)
    return replace(table, engine="postgresql")


_EVENTS = _keyed(CHANGES, EVENT_PLACES, EVENT_KEY)
_ROWS = _keyed(BASE_ROWS, BASE_PLACES, BASE_KEY)


class TableStore(Log):
    """The log of a database, by its name."""

    def __init__(self, endpoint: Endpoint, log: str) -> None:
        if not log.replace("_", "").replace("-", "").isalnum() or len(log) > 64:
            raise UsageError(f"{log!r} cannot be the name of a log: use letters, digits, - and _")
        self.endpoint = endpoint
        self.log = log
        super().__init__(LeasedLines(endpoint), log)

    @classmethod
    def make(cls, endpoint: Endpoint, log: str) -> TableStore:
        """Opens a log, with its tables made where they are missing."""
        made = cls(endpoint, log)
        with pool.lease(endpoint) as session:
            Lines(cast(Any, session)).create((*CREATE_LEDGER, _CREATE_DEFINITIONS))
            for table in (_EVENTS, _ROWS):
                find_or_make(session, table)
        return made

    @classmethod
    def open(cls, endpoint: Endpoint, log: str) -> TableStore:
        """Opens a log that is there."""
        with pool.lease(endpoint) as session:
            there = cast(Any, session).find("truecopy_log_word") is not None
        found = cls(endpoint, log)
        if not there or found.word("source") is None:
            raise UsageError(
                f"{endpoint} has no change log {log}: truecopy changelog start makes one"
            )
        return found

    @property
    def place(self) -> str:
        return f"{self.endpoint} ({self.log})"

    @property
    def views(self) -> str | None:
        (stem,) = view_names(self.log, ["TABLE"]).values()
        return f"{stem}_{CURRENT}, {stem}_{HISTORY}"

    @cached_property
    def events(self) -> Held:
        return self._held(_EVENTS, EVENT_PLACES)

    @cached_property
    def rows(self) -> Held:
        return self._held(_ROWS, BASE_PLACES)

    def _held(self, table: Table, places: tuple[Place, ...]) -> Held:
        with pool.lease(self.endpoint) as session:
            return Held(places, row_target(session, table, find_or_make(session, table)))

    # Reading

    def event_pieces(self, files: Sequence[EventFile]) -> list[Piece]:
        """Batches together, up to a size."""
        pieces: list[Piece] = []
        for table in dict.fromkeys(file.table for file in files):
            some: list[EventFile] = []
            for file in (file for file in files if file.table == table):
                if some and sum(one.rows for one in some) + file.rows > _PIECE_ROWS:
                    pieces.append(self._piece(table, some))
                    some = []
                some.append(file)
            pieces.append(self._piece(table, some))
        return pieces

    def _piece(self, table: str, files: Sequence[EventFile]) -> EventRows:
        return EventRows(self.events, self.log, table, files[0].first, files[-1].last)

    def base_pieces(self, base: int, table: str) -> list[Piece]:
        chunks = [chunk for chunk in self.chunks(base, table) if chunk.rows]
        return [BaseRows(self.rows, self.log, base, chunk) for chunk in chunks]

    def marks(self, spark: SparkSession, files: Sequence[EventFile]) -> DataFrame:
        return self._frame(spark, files, MARKS)

    def frame(self, spark: SparkSession, files: Sequence[EventFile]) -> DataFrame:
        return self._frame(spark, files, READ_SCHEMA)

    def _frame(
        self, spark: SparkSession, files: Sequence[EventFile], schema: pa.Schema
    ) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        pieces = self.event_pieces(files)
        numbers = spark.range(0, len(pieces), 1, max(len(pieces), 1))
        return numbers.mapInArrow(ReadingEvents(pieces, schema).batches, from_arrow_schema(schema))

    def keep(self, definition: Definition) -> None:
        with self.transaction():
            keep_definition(self._statements, definition)

    def definition(self, schema_id: str) -> Definition:
        rows = self._all(f"SELECT document FROM {DEFINITIONS} WHERE schema_id = ?", schema_id)
        if not rows:
            raise CannotFinish(
                f"{DEFINITIONS} in {self.endpoint} has no {schema_id} any more: rows of that definition cannot be read"
            )
        return Definition.from_json(rows[0][0])

    def is_written(self) -> bool | None:
        """A writer may be on any machine."""
        return None

    # Writing

    def remove(self, rows: str, *values: object) -> None:
        """Inside a transaction: rows of one of the log's tables."""
        self._run(f"DELETE FROM {rows}", *values)

    def claim(self) -> int:
        """A new epoch, with which the writes of others find no line."""
        with self.transaction():
            epoch = int((self.word(TURN) or "0 0").split()[0]) + 1
            self.say(TURN, f"{epoch} 0")
            self.forget("stop")
        return epoch


class LeasedLines:
    """Statements through a session that is leased for each question, or transaction: a file is not held open."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._open: Lines | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with pool.lease(self._endpoint) as session:
            lines = Lines(cast(Any, session))
            with lines.transaction():
                self._open = lines
                try:
                    yield
                finally:
                    self._open = None

    def execute(self, sql: str, *values: object) -> int:
        assert self._open is not None, "inside a transaction"
        return self._open.execute(sql, *values)

    def fetch(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        if self._open is not None:
            return self._open.fetch(sql, *values)
        with pool.lease(self._endpoint) as session:
            return Lines(cast(Any, session)).look(sql, *values)


def keep_definition(statements: Any, definition: Definition) -> None:
    """Inside a transaction: beside the events, so that they can be read without the source."""
    found = statements.fetch(
        f"SELECT 1 FROM {DEFINITIONS} WHERE schema_id = ?", definition.schema_id
    )
    if not found:
        statements.execute(
            f"INSERT INTO {DEFINITIONS} VALUES (?, ?)", definition.schema_id, definition.to_json()
        )
