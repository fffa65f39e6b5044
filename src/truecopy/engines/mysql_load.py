"""Many rows into MySQL and MariaDB at once: LOAD DATA LOCAL from memory, and DELETE by a list of keys.

LOAD DATA LOCAL drops duplicates and cuts values with a mere warning, also in strict mode: so rows
are counted, and no warning is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import loading
from truecopy.engines.mysql_dialect import MySQLDialect
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import delete_keys_sql, move_sql, table_sql
from truecopy.model.relation import Key, Relation
from truecopy.model.table import Column
from truecopy.model.types import Binary, Bits, Boolean, Decimal, Integer, Text, Type, Uuid

SQL_MODE = (
    "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,"
    # A 0 is a 0 and not the next number; zero dates and days such as February 30 are what they are
    # at the source.
    "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
)
# Longer lists are turned into temporary tables by MariaDB (`in_predicate_conversion_threshold`), and
# cost the range optimiser of both more than they save.
_KEYS_IN_A_LIST = 900
_KEYS_IN_CONDITIONS = 200
_DUPLICATE = 1062
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0"}


@dataclass(frozen=True)
class ServerWarning:
    """One line of SHOW WARNINGS."""

    level: str
    code: int
    message: str


def load_sql(relation: Relation, rows: pa.Table, annotation: str | None) -> str:
    """The statement; values that are no text are made from variables."""
    dialect = MySQLDialect()
    chosen = loading.written(relation)
    made = {i: _expression(relation.columns[i], relation.types[i]) for i in chosen}
    if any(made.values()):
        # The assignments make MariaDB forget that a 0 was given, and number that row (10.11): a 0
        # has to be one of them.
        made.update(
            {i: "{}" for i in chosen if made[i] is None and _may_be_numbered(relation, rows, i)}
        )
    places, sets = [], []
    for i, expression in made.items():
        name = _plain_name(dialect, relation.columns[i].name)
        places.append(name if expression is None else f"@v{i}")
        if expression is not None:
            sets.append(f"{name} = {expression.format(f'@v{i}')}")
    table = table_sql(dialect, loading.target_table(relation)).replace("%%", "%")
    return (
        f"{loading.comment(annotation)}LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table}"
        " CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\'"
        f" LINES TERMINATED BY '\\n' ({', '.join(places)})"
        + (f" SET {', '.join(sets)}" if sets else "")
    )


def file_of(relation: Relation, rows: pa.Table) -> Iterator[memoryview]:
    """The bytes that LOAD DATA reads."""
    chosen = loading.written(relation)
    for piece in loading.pieces(rows):
        columns = [
            loading.own_texts(relation.columns[i], relation.types[i], piece.column(i))
            for i in chosen
        ]
        yield from loading.lines(columns, _ESCAPES)


def deletions(relation: Relation, keys: pa.Table, annotation: str | None) -> Iterator[Statement]:
    """The statements that delete the rows with these keys."""
    dialect, mark = MySQLDialect(), loading.comment(annotation).replace("%", "%%")
    step = _KEYS_IN_A_LIST if relation.key_width == 1 else _KEYS_IN_CONDITIONS
    for at in range(0, keys.num_rows, step):
        part = loading.texts_of_key(keys.slice(at, step))
        statement = delete_keys_sql(dialect, relation, part)
        yield Statement(mark + statement.sql, statement.values)


def moving(
    relation: Relation, key: Key, row: Sequence[str | None], annotation: str | None
) -> Statement:
    """The statement that gives the row with a key other values."""
    mark = loading.comment(annotation).replace("%", "%%")
    statement = move_sql(MySQLDialect(), relation, key, row)
    return Statement(mark + statement.sql, statement.values)


def require_all(
    relation: Relation, rows: pa.Table, taken: int, warnings: Sequence[ServerWarning]
) -> None:
    """Raises where a row was dropped or a value changed."""
    if taken == rows.num_rows and not warnings:
        return
    # What was dropped tells more than what was changed on the way.
    for warning in sorted(warnings, key=lambda w: (w.level == "Note", w.code != _DUPLICATE)):
        place = re.search(r" at row (\d+)", warning.message)
        kind = loading.DuplicateRow if warning.code == _DUPLICATE else loading.RowRefused
        number = int(place[1]) - 1 if place else -1
        if 0 <= number < rows.num_rows:
            raise loading.refuse(relation, rows, number, warning.message, kind)
        raise kind(
            f"{loading.target_table(relation)} on {relation.endpoint} cannot take a row:"
            f" {warning.message}"
        )
    loading.require_all(relation, rows, taken)


def _may_be_numbered(relation: Relation, rows: pa.Table, i: int) -> bool:
    column = relation.columns[i]
    numbers = isinstance(column.type, Integer) and not column.nullable
    return numbers and pc.index(rows.column(i), "0").as_py() >= 0


def _plain_name(dialect: MySQLDialect, name: str) -> str:
    """Quoted for a statement without parameters, where % stands for itself."""
    return dialect.quote(name).replace("%%", "%")


def _expression(column: Column, kind: Type) -> str | None:
    """How a column's value is made of a text, where the server's own reading is not it."""
    own, kind = column.type, loading.own_kind(column, kind)
    match kind:
        case Binary():
            return "CONVERT(UNHEX({}) USING utf8mb4)" if isinstance(own, Text) else "UNHEX({})"
        case Uuid() if isinstance(own, Binary):
            return "UNHEX(REPLACE({},'-',''))"
        case Bits() if isinstance(own, Bits):
            return "CAST(CONV({},2,10) AS UNSIGNED)"
        case Integer() | Boolean() | Decimal() if isinstance(own, Bits):
            return "CAST({} AS UNSIGNED)"
        case Integer() if column.native.startswith("year"):
            return "{} + 0"  # as text, 0 would be the year 2000
        case _:
            return None
