"""Views of a log in a folder: statements in a file, for DuckDB and for Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from truecopy.changelog.facts import Base, partition
from truecopy.changelog.store import BASE, CHANGES, VIEWS, Store
from truecopy.changelog.view_names import short_names
from truecopy.changelog.views import LOG_COLUMNS, make_views, views_of
from truecopy.engines.array_views import Arrays, backticked
from truecopy.engines.duckdb_views import ARRAYS


@dataclass(frozen=True)
class FileReader:
    """An engine that reads files.

    Attributes:
        create: What makes a view.
        events: Reads the files of events in some folders below one.
        base: Reads those of base rows in a folder.
        no_numbers: An empty array.
    """

    name: str
    create: str
    events: Callable[[Path, str], str]
    base: Callable[[Path], str]
    no_numbers: str
    reader: Arrays


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _from_zero(array: str, place: int) -> str:
    return f"{array}[{place}]"


DUCKDB = FileReader(
    "duckdb",
    "CREATE OR REPLACE VIEW",
    lambda folder, below: (
        f"read_parquet({_literal(f'{folder}/{below}/*.parquet')}, hive_partitioning = true,"
        " hive_types = {'table': VARCHAR, 'day': DATE})"
    ),
    lambda folder: f"read_parquet({_literal(f'{folder}/*.parquet')}, hive_partitioning = false)",
    "CAST([] AS INTEGER[])",
    ARRAYS,
)
SPARK = FileReader(
    "spark",
    "CREATE OR REPLACE TEMPORARY VIEW",
    lambda folder, below: f"parquet.`{folder}/{below}`".replace("/*", ""),
    lambda folder: f"parquet.`{folder}`",
    "cast(array() AS array<int>)",
    replace(
        ARRAYS,
        quote=backticked,
        element=_from_zero,
        key_element=_from_zero,
        contains="array_contains({}, {})".format,
    ),
)


def write_views(store: Store) -> None:
    """Writes the files of views anew, each in one step."""

    def write() -> bool:
        for files in (DUCKDB, SPARK):
            final = store.folder / VIEWS / f"{files.name}.sql"
            unfinished = final.with_suffix(f".{os.getpid()}.new")
            unfinished.write_text(views_sql(store, files), encoding="utf-8")
            unfinished.replace(final)
        return True

    make_views(store, write)


def views_sql(store: Store, files: FileReader) -> str:
    """The statements for one kind of readers."""
    statements = []
    if store.files():
        whole = files.events(store.folder / CHANGES, "*/*")
        statements.append(f"{files.create} changes AS SELECT * FROM {whole};")
    names = short_names(store.tables())
    for view in views_of(store, _Folder(store, files)):
        name = files.reader.quote(f"{names[view.table]}_{view.kind}")
        statements.append(f"{files.create} {name} AS\n{view.query};")
    return "\n\n".join(statements) + "\n"


@dataclass(frozen=True)
class _Folder:
    """See `truecopy.changelog.views.Source`."""

    store: Store
    files: FileReader

    @property
    def reader(self) -> Arrays:
        return self.files.reader

    def history(self, table: str) -> str | None:
        folder = self.store.folder / CHANGES / f"table={partition(table)}"
        return self.files.events(folder, "*") if self.store.files(table) else None

    def log(self, table: str, base: Base) -> list[str]:
        parts = []
        key = self.reader.quote("key")
        if any(chunk.rows is not None for chunk in self.store.chunks(base.number, table)):
            folder = self.store.folder / BASE / str(base.number) / f"table={partition(table)}"
            parts.append(
                f"SELECT {base.batch} AS batch, -1 AS commit_order, -1 AS seq, era, 'snapshot' AS kind,"
                f" {key}, after, {self.files.no_numbers} AS unchanged, schema_id FROM {self.files.base(folder)}"
            )
        if (events := self.history(table)) is not None:
            told = ", ".join(key if name == "key" else name for name in LOG_COLUMNS)
            parts.append(f"SELECT {told} FROM {events} WHERE batch > {base.batch}")
        return parts
