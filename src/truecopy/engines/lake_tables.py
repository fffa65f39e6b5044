"""Tables that tasks keep in a lake: a folder each, with a description beside the files.

The description says what files cannot: the key, and which columns of text hold values of another type.
Columns are declared as DuckDB declares them, in the types that Parquet, Delta and Spark share.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from truecopy.engines.duckdb_dialect import canonical_type, order_of
from truecopy.model.errors import UsageError
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Decimal

DESCRIPTION = "_truecopy.json"
OWN_FOLDER = "_truecopy"
"""Beside the tables: the ledger, locks, and files that are not published yet."""

PARQUET, DELTA = "parquet", "delta"
DELTA_LOG = "_delta_log"

_AS_TEXT = ("TIME", "INTERVAL", "BIT", "HUGEINT", "UHUGEINT", "BIGNUM", "VARINT")
_STORED = {
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INTEGER",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20,0)",
    "TIMESTAMP_S": "TIMESTAMP",
    "TIMESTAMP_MS": "TIMESTAMP",
    "UUID": "VARCHAR",
    "JSON": "VARCHAR",
    **dict.fromkeys(_AS_TEXT, "VARCHAR"),
}
_ARROW = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
}


@dataclass(frozen=True)
class LakeColumn:
    """A column; `weak` where text holds values of another type, which the source alone knows."""

    name: str
    native: str
    nullable: bool = True
    weak: bool = False

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, arrow_type(self.native), nullable=self.nullable)


@dataclass(frozen=True)
class LakeTable:
    """A table that tasks write; `format` is how its rows are kept."""

    folder: Path
    format: str
    columns: tuple[LakeColumn, ...]
    key: tuple[str, ...] = ()

    @property
    def name(self) -> TableName:
        return TableName(None, self.folder.name)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([column.arrow for column in self.columns])

    def described(self, rows: int, size: int) -> Table:
        """For whoever reads or writes it."""
        return Table(
            name=self.name,
            columns=tuple(map(_column, self.columns)),
            keys=(self.key,) if self.key else (),
            unique=(self.key,) if self.key else (),
            primary=self.key,
            rows=rows,
            row_bytes=size // max(rows, 1) or 100,
            engine="lake",
            whole=True,
        )

    def with_columns(self, table: Table) -> LakeTable:
        """The same table with the columns that a statement has added."""
        known = {column.name for column in self.columns}
        more = [stored(column) for column in table.columns if column.name not in known]
        return LakeTable(self.folder, self.format, (*self.columns, *more), self.key)


def made_of(folder: Path, form: str, table: Table) -> LakeTable:
    """A table of the lake for one that DuckDB has described."""
    if table.name.table.startswith((".", "_")) or "/" in table.name.table:
        raise UsageError(
            f"{table.name} cannot be a table of a lake: folders whose names begin with . or _ are no tables; give it"
            " another name with routes"
        )
    key = table.keys[0] if table.keys else ()
    columns = [
        LakeColumn(c.name, one.native, c.name not in key, one.weak)
        for c, one in ((c, stored(c)) for c in table.columns)
    ]
    return LakeTable(folder / table.name.table, form, tuple(columns), key)


def stored(column: Column) -> LakeColumn:
    """How a lake keeps what DuckDB declares so."""
    brackets = re.search(r"(\[\])*$", column.native)
    assert brackets is not None
    element = column.native[: brackets.start()]
    plain = "VARCHAR" if element.startswith("ENUM(") else _STORED.get(element, element)
    native = plain + brackets[0]
    return LakeColumn(column.name, native, True, element in _AS_TEXT and not brackets[0])


def arrow_type(native: str) -> pa.DataType:
    """What files hold a column of this declaration as."""
    if native.endswith("[]"):
        return pa.list_(pa.field("element", arrow_type(native.removesuffix("[]"))))
    if sized := re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", native):
        return pa.decimal128(int(sized[1]), int(sized[2]))
    if native not in _ARROW:
        raise UsageError(f"a lake has no type for {native}: leave the column out, or cast it")
    return _ARROW[native]


def find_described(folder: Path) -> dict[str, LakeTable]:
    """The tables of a lake that tasks keep, by name."""
    found = (read_description(path) for path in sorted(folder.iterdir()) if path.is_dir())
    return {table.folder.name: table for table in found if table is not None}


def read_description(folder: Path) -> LakeTable | None:
    """The table in a folder; None where no task keeps it."""
    try:
        plain = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    columns = tuple(LakeColumn(**column) for column in plain["columns"])
    return LakeTable(folder, plain["format"], columns, tuple(plain["key"]))


def write_description(table: LakeTable) -> None:
    """Written last when a table is made: what has none is no table yet."""
    plain = {
        "format": table.format,
        "key": table.key,
        "columns": [asdict(column) for column in table.columns],
    }
    unfinished = table.folder / f"{DESCRIPTION}.new"
    unfinished.write_text(json.dumps(plain, indent=1), encoding="utf-8")
    make_durable(unfinished)
    unfinished.replace(table.folder / DESCRIPTION)
    make_durable(table.folder)


def make_durable(*paths: Path) -> None:
    """What was written to files, and which files a folder has, survives a power cut."""
    for path in paths:
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def read_files_sql(files: Sequence[Path], columns: Sequence[tuple[str, str]]) -> str:
    """All rows of Parquet files as a query of DuckDB, with just these columns; those a file lacks are NULL."""
    names = ", ".join(_quote(name) for name, _ in columns)
    typed = ", ".join(f"CAST(NULL AS {native}) AS {_quote(name)}" for name, native in columns)
    none = f"SELECT {typed} WHERE false"
    if not files:
        return none
    listed = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    found = f"SELECT * FROM read_parquet([{listed}], union_by_name=true)"
    return f"SELECT {names} FROM ({none} UNION ALL BY NAME {found})"


def _column(column: LakeColumn) -> Column:
    kind = canonical_type(column.native)
    return Column(
        name=column.name,
        type=kind,
        native=column.native,
        nullable=column.nullable,
        weak=column.weak,
        order=order_of(column.native, kind) if not column.weak else None,
        fraction=kind.scale if isinstance(kind, Decimal) else None,
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
