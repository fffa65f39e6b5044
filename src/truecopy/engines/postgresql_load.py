"""Many rows into PostgreSQL at once: COPY from memory, and DELETE by arrays of keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import loading
from truecopy.engines.postgresql_dialect import PostgreSQLDialect, input_text
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import and_where, table_sql
from truecopy.model.relation import Relation
from truecopy.model.table import Column
from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Type,
    Uuid,
)

ANNOTATE = Statement("SELECT pg_logical_emit_message(true, 'truecopy', %s)")
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
# Types whose input is the canonical text, or nearly so: see `loading.own_texts`.
_READ_AS_THEY_ARE = (Integer, Boolean, Decimal, Float, Date, Time, Timestamp, Text, Json, Uuid)


def copy_sql(dialect: PostgreSQLDialect, relation: Relation) -> str:
    """The statement that the rows are sent to."""
    names = ", ".join(dialect.quote(relation.columns[i].name) for i in loading.written(relation))
    table = table_sql(dialect, loading.target_table(relation))
    return f"COPY {table} ({names}) FROM STDIN".replace("%%", "%")


def file_of(relation: Relation, rows: pa.Table) -> Iterator[memoryview]:
    """The bytes that COPY reads."""
    chosen = loading.written(relation)
    for piece in loading.pieces(rows):
        columns = [_texts(relation.columns[i], relation.types[i], piece.column(i)) for i in chosen]
        yield from loading.lines(columns, _ESCAPES)


def refuse_nul(relation: Relation, rows: pa.Table) -> None:
    """PostgreSQL's text holds every character but one."""
    for i in loading.written(relation):
        if isinstance(relation.columns[i].type, Text):
            number = pc.index(pc.match_substring(rows.column(i), "\0"), True).as_py()
            if number >= 0:
                why = "holds the character NUL, which PostgreSQL's text cannot: use bytea"
                raise loading.refuse(relation, rows, number, f"{relation.columns[i].name} {why}")


def explain(error: psycopg.Error, relation: Relation, rows: pa.Table) -> loading.RowRefused | None:
    """The error of a COPY with the row that it is about; None where it is about none."""
    place = re.search(r"^COPY .*, line (\d+)", error.diag.context or "", re.MULTILINE)
    number = int(place[1]) - 1 if place else -1
    if not 0 <= number < rows.num_rows:
        return None
    told = " ".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))
    is_there = isinstance(error, psycopg.errors.UniqueViolation)
    kind = loading.DuplicateRow if is_there else loading.RowRefused
    return loading.refuse(relation, rows, number, told, kind)


def delete_sql(dialect: PostgreSQLDialect, relation: Relation, keys: pa.Table) -> Statement:
    """One statement for all keys: arrays are one value each, whatever their length."""
    names = [
        f"truecopy_k{i}" for i in range(relation.key_width)
    ]  # as no column of the table is called
    arrays, values = [], []
    for column, kind, texts in zip(relation.key, relation.key_types, keys.columns, strict=True):
        arrays.append(f"%s::text[]::{_comparable(column)}[]")
        values.append([input_text(column.type, kind, text) for text in texts.to_pylist()])
    conditions = [
        f"t.{dialect.quote(column.name)} = k.{name}"
        for column, name in zip(relation.key, names, strict=True)
    ]
    return Statement(
        f"DELETE FROM {table_sql(dialect, loading.target_table(relation))} AS t"
        f" USING unnest({', '.join(arrays)}) AS k ({', '.join(names)})"
        f" WHERE {' AND '.join(conditions)}{and_where(dialect, relation)}",
        tuple(values),
    )


def _texts(column: Column, kind: Type, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    own, kind = column.type, loading.own_kind(column, kind)
    match kind:
        case Binary() if isinstance(own, Binary):
            return pc.binary_join_element_wise("\\x", texts, "")
        case Uuid() if isinstance(own, Binary):
            return pc.binary_join_element_wise("\\x", pc.replace_substring(texts, "-", ""), "")
        case Bits() if isinstance(own, Bits):
            return texts
        case _ if isinstance(kind, _READ_AS_THEY_ARE) and not isinstance(own, Bits | Array):
            return loading.own_texts(column, kind, texts)
        case _:
            return loading.by_value(texts, lambda text: input_text(own, kind, text))


def _comparable(column: Column) -> str:
    """The type of a key's values: the column's own, without the size, to which a cast would cut."""
    match column.type:
        case Integer():
            return "bigint"
        case Boolean():
            return "boolean"
        case Decimal():
            return "numeric"
        case Float():
            return "float8"
        case Time() if column.native.startswith("interval"):
            return "interval"
        case Time():
            return "time"
        case Timestamp(zone):
            return "timestamptz" if zone else "timestamp"
        case Bits():
            return "varbit"
        case Text() if column.padded:
            return "bpchar"
        case Text() if column.native.startswith("character varying"):
            return "text"
        case _:
            return column.native
