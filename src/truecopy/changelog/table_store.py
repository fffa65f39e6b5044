"""A change log as tables of a database: `truecopy_changes` with a row per event, `truecopy_changes_base`, a ledger.

Executors read and write the rows as the texts of columns; arrays are JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pyarrow as pa

from truecopy.changelog.facts import BaseChunk, EventFile
from truecopy.changelog.ledger import CREATE_LEDGER, Log
from truecopy.changelog.loading import RowTarget, find_or_make, row_target
from truecopy.changelog.pieces import Piece
from truecopy.engines import pool
from truecopy.engines.lines import Lines
from truecopy.engines.protocols import Reads
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.relation import WHOLE, Relation
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Integer, Text, Timestamp, Type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES, BASE_ROWS, DEFINITIONS = "truecopy_changes", "truecopy_changes_base", "truecopy_definition"
TURN = "turn"
"""The word that says who may write: an epoch, and a number that every commit moves."""
_CREATE_DEFINITIONS = f"""CREATE TABLE IF NOT EXISTS {DEFINITIONS} (
    schema_id VARCHAR(64) NOT NULL PRIMARY KEY, document TEXT NOT NULL)"""
_PIECE_ROWS = 50_000
_NAME = "character varying(190)"


@dataclass(frozen=True)
class Place:
    """A column of a table that holds events or rows.

    Attributes:
        native: Its declaration, as PostgreSQL has it.
        made: How DuckDB makes its text.
        event: The column of an event that it holds.
        read: How DuckDB makes that of the text.
    """

    name: str
    type: Type
    native: str
    made: str
    event: str = ""
    read: str = "{}"


def _text(name: str, native: str, event: str) -> Place:
    return Place(name, Text(), native, f'"{event}"', event)


def _number(name: str, native: str, event: str) -> Place:
    return Place(
        name, Integer(), native, f'CAST("{event}" AS VARCHAR)', event, f"CAST({{}} AS {native})"
    )


def _array(name: str, event: str, element: str = "VARCHAR") -> Place:
    made, read = f'CAST(to_json("{event}") AS VARCHAR)', f"from_json({{}}, '[\"{element}\"]')"
    return Place(name, Text(), "text", made, event, read)


EVENT_PLACES = (
    Place("log", Text(), "character varying(64)", "$log"),
    _number("batch", "bigint", "batch"),
    _text("shard", _NAME, "shard"),
    _number("commit_order", "bigint", "commit_order"),
    _number("seq", "integer", "seq"),
    _number("era", "integer", "era"),
    _text("position", "text", "position"),
    _text("txn", "text", "txn"),
    Place(
        "committed_at",
        Timestamp(zone=False),
        "timestamp without time zone",
        "strftime(CAST(committed_at AS TIMESTAMP), '%Y-%m-%d %H:%M:%S.%f')",
        "committed_at",
        "CAST({} AS TIMESTAMP)",
    ),
    _text("kind", "character varying(20)", "kind"),
    _text("table_name", _NAME, "table"),
    _array("row_key", "key"),
    _array("before_row", "before"),
    _array("after_row", "after"),
    _array("unchanged", "unchanged", "INTEGER"),
    _text("schema_id", "character varying(64)", "schema_id"),
    _text("annotation", "text", "annotation"),
    _text("origin", "text", "origin"),
)
EVENT_KEY = ("log", "batch", "shard", "commit_order", "seq")

BASE_PLACES = (
    Place("log", Text(), "character varying(64)", "$log"),
    Place("base", Integer(), "integer", "$base"),
    _number("era", "integer", "era"),
    Place("table_name", Text(), _NAME, "$table"),
    Place("chunk", Integer(), "bigint", "$chunk"),
    Place("nth", Integer(), "bigint", "CAST(row_number() OVER () AS VARCHAR)"),
    _text("shard", _NAME, "shard"),
    _array("row_key", "key"),
    _array("after_row", "after"),
    _text("schema_id", "character varying(64)", "schema_id"),
)
BASE_KEY = ("log", "base", "era", "table_name", "chunk", "nth")


@dataclass(frozen=True)
class Held:
    """A table that holds events or rows; plain values for executors."""

    places: tuple[Place, ...]
    target: RowTarget

    @property
    def relation(self) -> Relation:
        return self.target.relation

    def texts(self, rows: pa.Table, **words: object) -> pa.Table:
        """Events or rows as the texts of the table's columns, `words` where they have none."""
        made = [self.places[place].made for place in self.target.places]
        columns = ", ".join(f"{one} AS c{i}" for i, one in enumerate(made))
        given = {name: str(value) for name, value in words.items()}
        return _in_duckdb(f"SELECT {columns} FROM given", rows, given).cast(
            pa.schema([(f"c{i}", pa.string()) for i in range(len(made))])
        )

    def read(self, session: Any, names: Sequence[str], **words: object) -> pa.Table:
        """Columns of events or rows where the table's columns are these."""
        wanted = [
            at for at, place in enumerate(self.target.places) if self.places[place].event in names
        ]
        where = " AND ".join(f"{name} = {session.literal(value)}" for name, value in words.items())
        return self._read(session, wanted, where)

    def read_batches(
        self, session: Any, names: Sequence[str], log: str, table: str, first: int, last: int
    ) -> pa.Table:
        """Columns of the events of a table in some batches."""
        wanted = [
            at for at, place in enumerate(self.target.places) if self.places[place].event in names
        ]
        where = (
            f"log = {session.literal(log)} AND table_name = {session.literal(table)}"
            f" AND batch BETWEEN {first} AND {last}"
        )
        return self._read(session, wanted, where)

    def _read(self, session: Any, wanted: Sequence[int], where: str) -> pa.Table:
        narrow = replace(
            self.relation,
            columns=tuple(self.relation.columns[at] for at in wanted),
            types=tuple(self.relation.types[at] for at in wanted),
            key_width=0,
            where=where,
        )
        texts = cast(Reads, session).rows(narrow, WHOLE)
        places = [self.places[self.target.places[at]] for at in wanted]
        columns = ", ".join(
            f'{place.read.format(f"c{i}")} AS "{place.event}"' for i, place in enumerate(places)
        )
        return _in_duckdb(f"SELECT {columns} FROM given", texts, {})


@dataclass(frozen=True)
class EventRows:
    """Events of one table in some batches; see `truecopy.changelog.pieces.Piece`."""

    held: Held
    log: str
    table: str
    first: int
    last: int

    def read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        with pool.lease(self.held.relation.endpoint) as session:
            yield self.held.read_batches(
                session, names, self.log, self.table, self.first, self.last
            )


@dataclass(frozen=True)
class BaseRows:
    """Rows of one chunk of a base; see `truecopy.changelog.pieces.Piece`."""

    held: Held
    log: str
    base: int
    chunk: BaseChunk

    def read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        one = self.chunk
        words = {"era": one.era, "table_name": one.table, "chunk": one.number}
        with pool.lease(self.held.relation.endpoint) as session:
            yield self.held.read(session, names, log=self.log, base=self.base, **words)


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
        made.events, made.rows  # noqa: B018 - which makes them
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

    @cached_property
    def events(self) -> Held:
        return self._held(CHANGES, EVENT_PLACES, EVENT_KEY)

    @cached_property
    def rows(self) -> Held:
        return self._held(BASE_ROWS, BASE_PLACES, BASE_KEY)

    def _held(self, name: str, places: tuple[Place, ...], key: tuple[str, ...]) -> Held:
        columns = tuple(
            Column(p.name, p.type, p.native, nullable=p.name not in key) for p in places
        )
        made = Table(TableName(None, name), columns, keys=(key,), unique=(key,), primary=key)
        table = replace(made, engine="postgresql")
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
        from pyspark.sql.pandas.types import from_arrow_schema

        pieces = self.event_pieces(files)
        numbers = spark.range(0, len(pieces), 1, max(len(pieces), 1))
        return numbers.mapInArrow(ReadingMarks(pieces).batches, from_arrow_schema(MARKS))

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

    # Writers

    def claim(self) -> int:
        """A new epoch, with which the writes of others find no line."""
        with self.transaction():
            epoch = int((self.word(TURN) or "0 0").split()[0]) + 1
            self.say(TURN, f"{epoch} 0")
            self.forget("stop")
        return epoch


MARKS = pa.schema(
    [
        ("era", pa.int32()),
        ("batch", pa.int64()),
        ("commit_order", pa.int64()),
        ("seq", pa.int32()),
        ("kind", pa.string()),
        ("committed_at", pa.timestamp("us", tz="UTC")),
        ("position", pa.string()),
        ("schema_id", pa.string()),
    ]
)


@dataclass(frozen=True)
class ReadingMarks:
    """What executors need to read pieces by their numbers; plain values."""

    pieces: Sequence[Piece]

    def batches(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for number in some.column("id").to_pylist():
                for table in self.pieces[number].read(MARKS.names):
                    yield from table.select(MARKS.names).cast(MARKS).to_batches()


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


def _in_duckdb(query: str, given: pa.Table, words: dict[str, str]) -> pa.Table:
    with duckdb.connect() as scratch:
        scratch.execute("SET TimeZone = 'UTC'; SET threads = 1")
        scratch.register("given", given)
        found: pa.Table = scratch.sql(query, params=words or None).to_arrow_table()
    return found
