"""Tables in MySQL and MariaDB as other engines have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from truecopy.engines import creation
from truecopy.engines.creation import Shape
from truecopy.engines.mysql_dialect import MySQLDialect
from truecopy.engines.sql import table_sql
from truecopy.model.table import Column, ForeignKey, Index, Table, TableName
from truecopy.model.types import (
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
    Unknown,
    Uuid,
)

FAMILY = ("mysql", "mariadb")
_KEY_BYTES = 3072
"""Of an index of InnoDB, all columns together."""
_ROW_BYTES = 32_000
"""Of texts kept in the row: half of what a row may have, so that the rest surely fits."""
_LONGEST_VARCHAR = 4000
_MOST_DIGITS, _MOST_SCALE, _MOST_BITS = 65, 30, 64
_ONLY_MARIADB = ("uuid", "inet4", "inet6")


@dataclass(frozen=True)
class Server:
    """What depends on the server that the table is made on."""

    is_mariadb: bool
    version: tuple[int, ...]
    is_tidb: bool = False

    @property
    def engine(self) -> str:
        return "mariadb" if self.is_mariadb else "mysql"

    @property
    def text(self) -> str:
        """Character set and collation under which texts are equal only if they are the same.

        The plain binary collations take `a` and `a ` for equal.
        """
        exact = "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"
        known = self.is_mariadb or self.version >= (8, 0, 17)
        collation = exact if known and not self.is_tidb else "utf8mb4_bin"
        return f"CHARACTER SET utf8mb4 COLLATE {collation}"

    @property
    def uuid(self) -> str:
        if self.is_mariadb and self.version >= (10, 7):
            return "uuid"
        return "char(36) CHARACTER SET ascii COLLATE ascii_bin"


def create_table(dialect: MySQLDialect, server: Server, table: Table) -> list[str]:
    """The table with its key."""
    key, _ = creation.key_of(table)
    columns = []
    in_row = 0
    for column in table.columns:
        native = type_of(server, table, column, in_row)
        in_row += _bytes_in_row(native)
        declared = _declaration(dialect, column, native)
        if column.name in table.numbered and key[:1] == (column.name,) and _is_whole(native):
            declared += " AUTO_INCREMENT"
        columns.append(declared)
    made = creation.table_statement(dialect, table, columns)
    return [f"{made} ENGINE=InnoDB DEFAULT {server.text}"]


def add_columns(
    dialect: MySQLDialect, server: Server, table: Table, columns: Sequence[Column]
) -> list[str]:
    """Columns that a table gets later."""
    declared = [_declaration(dialect, c, type_of(server, table, c, _ROW_BYTES)) for c in columns]
    return creation.column_statements(dialect, table, declared)


def _declaration(dialect: MySQLDialect, column: Column, native: str) -> str:
    parts = [dialect.quote(column.name), native.replace("%", "%%")]
    parts.append("NULL" if column.nullable else "NOT NULL")
    if native.startswith("timestamp"):
        # Without one, a server may choose to change it with every update of the row.
        size = native.partition(" ")[0].removeprefix("timestamp")
        parts.append("DEFAULT NULL" if column.nullable else f"DEFAULT CURRENT_TIMESTAMP{size}")
    return " ".join(parts)


def create_indexes(
    dialect: MySQLDialect, server: Server, table: Table, taken: Iterable[str]
) -> list[str]:
    """The other indexes; of long texts as many characters as an index may have."""
    found = []
    indexes = creation.later_indexes(table)
    names = creation.index_names(table, indexes, taken, shared=False)
    for index, free in zip(indexes, names, strict=True):
        parts = [
            dialect.quote(name) + (f"({size})" if size else "")
            for name, size in zip(index.columns, _prefixes(server, table, index), strict=True)
        ]
        found.append(creation.index_statement(dialect, table, index, free, parts))
    return found


def warnings(server: Server, table: Table) -> list[str]:
    """What will be otherwise."""
    found = creation.shared_warnings(table)
    key, _ = creation.key_of(table)
    for column in table.columns:
        native = type_of(server, table, column, 0)
        place = f"{table.name}.{column.name}"
        if column.name in table.numbered and not (key[:1] == (column.name,) and _is_whole(native)):
            found.append(f"{place} does not number its rows: it is not the first of the key")
        if isinstance(column.type, Json) and not server.is_mariadb and table.engine != "mysql":
            found.append(f"{place}: MySQL rounds numbers in JSON to doubles")
        if creation.is_declared_by(FAMILY, table, column):
            continue
        length = creation.shape_of(column, table.engine).length
        bound = _bound(table, column.name)
        if bound and isinstance(column.type, Text | Binary) and (length is None or length > bound):
            found.append(f"{place} is part of a key: it holds {native}, and no more")
        if isinstance(column.type, Decimal) and "decimal(65,30)" in native:
            found.append(f"{place} has no bound: it holds {native}, and no more")
        if column.type == Timestamp(zone=True):
            found.append(f"{place} holds times from 1970 to 2038, and no others")
    if table.engine in FAMILY and table.engine != server.engine and table.collations:
        found.append(
            f"{table.name} gets other collations, which {server.engine} has: {server.text}"
        )
    return found


def reference_gaps(server: Server, table: Table, reference: ForeignKey, parent: Table) -> list[str]:
    """Columns must be of one type, whatever they hold, and those referred to the first of an index."""
    found = []
    for own, its in creation.referring(table, reference, parent):
        mine, theirs = type_of(server, table, own, 0), type_of(server, parent, its, 0)
        if _bare(mine) != _bare(theirs):
            found.append(f"{own.name} is {mine} there, and {its.name} of {parent.name} {theirs}")
    columns = reference.parent_columns
    indexed = [parent.primary, *parent.keys, *(i.columns for i in parent.indexes)]
    if not any(one[: len(columns)] == columns for one in indexed):
        found.append(f"{parent.name} has no index of {', '.join(columns)} there")
    return found


def type_of(server: Server, table: Table, column: Column, in_row: int) -> str:
    """The declaration that holds every value; `in_row` bytes are taken by columns before it."""
    is_own = creation.is_declared_by(FAMILY, table, column)
    if is_own and (server.is_mariadb or column.native not in _ONLY_MARIADB):
        return _own(server, table, column)
    shape = creation.shape_of(column, table.engine)
    found = _declare(server, shape, _bound(table, column.name), in_row)
    if found is None:
        raise creation.cannot_hold(table, column, "MySQL or MariaDB")
    return found


def numbering_sql(dialect: MySQLDialect, name: TableName, first: int) -> str:
    """AUTO_INCREMENT never goes below what is there, whatever it is told."""
    return f"ALTER TABLE {table_sql(dialect, name)} AUTO_INCREMENT = {first:d}"


def _own(server: Server, table: Table, column: Column) -> str:
    """As it is; a JSON column of MariaDB is a text with a check, which its other name makes."""
    if isinstance(column.type, Json):
        return "json"
    if column.charset is None:
        return column.native
    collation = dict(table.collations).get(column.name)
    same = collation if table.engine == server.engine else None
    if same is None and column.charset == "utf8mb4":
        return f"{column.native} {server.text}"
    return f"{column.native} CHARACTER SET {column.charset}" + (f" COLLATE {same}" if same else "")


def _bound(table: Table, name: str) -> int | None:
    """Bytes that a column may have which is found as a whole by a key; None for any other."""
    key, _ = creation.key_of(table)
    whole = [key, *(i.columns for i in creation.later_indexes(table) if i.unique)]
    whole += [reference.columns for reference in table.foreign_keys]  # indexed with them
    shares = [_share(table, columns) for columns in whole if name in columns]
    return min(shares) if shares else None


def _share(table: Table, columns: tuple[str, ...]) -> int:
    sized = [c for c in table.columns if c.name in columns and isinstance(c.type, Text | Binary)]
    others = 16 * (len(columns) - len(sized))
    return (_KEY_BYTES - others) // max(len(sized), 1)


def _prefixes(server: Server, table: Table, index: Index) -> list[int | None]:
    if table.engine in FAMILY or index.unique:
        return list(index.prefixes or (None,) * len(index.columns))
    given = dict(zip(index.columns, index.prefixes, strict=False))
    found: list[int | None] = []
    for name in index.columns:
        column = table.column(name)
        size = given.get(name)
        if column is not None and isinstance(column.type, Text | Binary) and size is None:
            native = type_of(server, table, column, 0)
            width = 4 if isinstance(column.type, Text) else 1
            limit = _share(table, index.columns) // width
            held = creation.shape_of(column, table.engine).length
            if native.startswith("long") or held is None or held > limit:
                size = limit
        found.append(size)
    return found


def _declare(server: Server, shape: Shape, bound: int | None, in_row: int) -> str | None:
    match shape.kind:
        case Integer():
            return _whole_number(shape)
        case Boolean():
            return "tinyint(1)"
        case Decimal(scale):
            return _decimal(shape.precision, scale)
        case Float():
            return "float" if shape.single else "double"
        case Date():
            return "date"
        case Time():
            return f"time({shape.fraction})"
        case Timestamp(zone):
            return f"{'timestamp' if zone else 'datetime'}({shape.fraction})"
        case Text():
            return f"{_text(shape, bound, in_row)} {server.text}"
        case Unknown():
            return f"{_text(Shape(Text()), bound, in_row)} {server.text}"
        case Binary():
            return _binary(shape, bound, in_row)
        case Json():
            return "json"
        case Uuid():
            return server.uuid
        case Bits(width):
            return f"bit({width})" if width and width <= _MOST_BITS else None
        case _:
            return None


def _whole_number(shape: Shape) -> str | None:
    if shape.bits is None:
        return "decimal(65,0)"
    if shape.bits > 64:
        return "decimal(39,0)"
    names = ((8, "tinyint"), (16, "smallint"), (24, "mediumint"), (32, "int"), (64, "bigint"))
    name = next(name for limit, name in names if shape.bits <= limit)
    return name if shape.signed else f"{name} unsigned"


def _decimal(precision: int | None, scale: int | None) -> str | None:
    if precision is None or scale is None:
        return f"decimal({_MOST_DIGITS},{_MOST_SCALE})"
    fits = precision <= _MOST_DIGITS and scale <= _MOST_SCALE
    return f"decimal({precision},{scale})" if fits else None


def _text(shape: Shape, bound: int | None, in_row: int) -> str:
    if bound is not None:
        return f"varchar({min(shape.length or _KEY_BYTES, bound // 4)})"
    length = shape.length
    if length is None or length > _LONGEST_VARCHAR or in_row + 4 * length > _ROW_BYTES:
        return "longtext"
    if shape.fixed and length <= 255:
        return f"char({length})"
    return f"varchar({length})"


def _binary(shape: Shape, bound: int | None, in_row: int) -> str:
    if bound is not None:
        return f"varbinary({min(shape.length or _KEY_BYTES, bound)})"
    length = shape.length
    if length is None or length > _LONGEST_VARCHAR or in_row + length > _ROW_BYTES:
        return "longblob"
    return f"varbinary({length})"


def _bytes_in_row(native: str) -> int:
    head, bracket, rest = native.partition("(")
    if not bracket or not head.endswith(("char", "binary")):
        return 16
    return int(rest.partition(")")[0]) * (4 if head.endswith("char") else 1)


def _bare(native: str) -> str:
    """A declaration without what columns that refer to each other may differ in."""
    return re.sub(r"\(\d+\)| zerofill|^var", "", native)


def _is_whole(native: str) -> bool:
    return native.replace("(", " ").split(maxsplit=1)[0] in (
        "tinyint",
        "smallint",
        "mediumint",
        "int",
        "bigint",
    )
