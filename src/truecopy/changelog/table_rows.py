"""Events, and rows of a base, as rows of a database: texts of columns, arrays as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import duckdb
import pyarrow as pa

from truecopy.changelog.events import days_of
from truecopy.changelog.facts import BaseChunk
from truecopy.changelog.loading import RowTarget
from truecopy.changelog.pieces import Piece
from truecopy.engines import pool
from truecopy.engines.protocols import Reads
from truecopy.model.relation import WHOLE, Relation
from truecopy.model.types import Integer, Text, Timestamp, Type

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

    def read(self, session: Any, names: Sequence[str], where: str) -> pa.Table:
        """Columns of events or rows that a condition wants."""
        wanted = [
            at for at, place in enumerate(self.target.places) if self.places[place].event in names
        ]
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
            where = _equals(session, {"log": self.log, "table_name": self.table})
            where = f"{where} AND batch BETWEEN {self.first} AND {self.last}"
            yield self.held.read(session, names, where)


@dataclass(frozen=True)
class BaseRows:
    """Rows of one chunk of a base; see `truecopy.changelog.pieces.Piece`."""

    held: Held
    log: str
    base: int
    chunk: BaseChunk

    def read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        one = self.chunk
        words = {"log": self.log, "base": self.base, "table_name": one.table, "chunk": one.number}
        if one.era:  # a base that was moved forward has those of all eras together
            words["era"] = one.era
        with pool.lease(self.held.relation.endpoint) as session:
            yield self.held.read(session, names, _equals(session, words))


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
class ReadingEvents:
    """What executors need to read columns of pieces by their numbers; plain values."""

    pieces: Sequence[Piece]
    schema: pa.Schema

    def batches(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in numbers:
            for number in some.column("id").to_pylist():
                for table in self.pieces[number].read(self.schema.names):
                    yield from self._whole(table).cast(self.schema).to_batches()

    def _whole(self, events: pa.Table) -> pa.Table:
        """With what a table does not keep."""
        if "day" in self.schema.names:
            events = events.append_column("day", days_of(events))
        lacking = [one for one in self.schema if one.name not in events.column_names]
        for one in lacking:
            events = events.append_column(one.name, pa.nulls(events.num_rows, one.type))
        return events.select(self.schema.names)


def _equals(session: Any, words: Mapping[str, object]) -> str:
    return " AND ".join(f"{name} = {session.literal(value)}" for name, value in words.items())


def _in_duckdb(query: str, given: pa.Table, words: dict[str, str]) -> pa.Table:
    with duckdb.connect() as scratch:
        scratch.execute("SET TimeZone = 'UTC'; SET threads = 1")
        scratch.register("given", given)
        found: pa.Table = scratch.sql(query, params=words or None).to_arrow_table()
    return found
