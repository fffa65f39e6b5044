"""What SQLite and DuckDB say before rows move: files of this machine, with nobody to ask for a right."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from truecopy.engines.advice import (
    CASE,
    FAR_TIMES,
    NO_NUMBERS,
    SPACES,
    ZERO_DATES,
    Arrival,
    Retention,
    RowLimit,
    Trigger,
    Uncarried,
)
from truecopy.engines.protocols import Statement
from truecopy.engines.relational import RelationalSession
from truecopy.engines.sql import table_sql
from truecopy.model.finding import Finding, Level, Subject
from truecopy.model.guarantees import TargetLevel
from truecopy.model.table import Column, Table, TableName

_PASSED_OVER = {"NOCASE": CASE, "RTRIM": SPACES}


class FileAdvisor:
    """What both share; see `truecopy.engines.advice.Advisor`."""

    target_level = TargetLevel.TRANSACTION
    holds = frozenset[str]()
    byte_size = ""
    """The size of a value, by its quoted name."""

    def __init__(self, session: RelationalSession, path: Path) -> None:
        self._session = session
        self._path = path

    def as_source(self, tables: Sequence[Table]) -> Iterator[Finding]:  # noqa: ARG002
        yield from ()

    def as_target(self, arrival: Arrival) -> Iterator[Finding]:  # noqa: ARG002
        yield from ()

    def missing_rights(self, arrival: Arrival) -> Iterator[Finding]:  # noqa: ARG002
        for path in (self._path, self._path.parent):
            if not os.access(path, os.W_OK):
                yield Finding(
                    Level.ERROR,
                    Subject.RIGHTS,
                    f"{path} may not be written to",
                    f"chmod u+w '{path}', as its owner",
                )

    def retention(self) -> Retention | None:
        return None

    def triggers(self) -> list[Trigger]:
        return []

    def passed_over(self, table: Table) -> Mapping[str, frozenset[str]]:  # noqa: ARG002
        return {}

    def time_zone(self) -> str | None:
        return None

    def set_time_zone(self, zone: str) -> str:  # noqa: ARG002
        return ""

    def free_bytes(self) -> int | None:
        return shutil.disk_usage(self._path.parent).free

    def space_hint(self) -> str:
        return f"df -h {self._path.parent}"

    def sql_mode(self) -> frozenset[str] | None:
        return None

    def set_sql_mode(self, modes: frozenset[str]) -> str:  # noqa: ARG002
        return ""

    def row_limit(self) -> RowLimit | None:
        return None

    def largest_row(self, table: Table) -> int:
        sizes = [
            f"COALESCE({self.byte_size.format(self._session.dialect.quote(c.name))}, 0)"
            for c in table.columns
        ]
        name = table_sql(self._session.dialect, table.name)
        ((size,),) = self._fetch(f"SELECT MAX({' + '.join(sizes)}) FROM {name}")
        return int(size or 0)

    def odd_values(self, table: Table) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        yield from ()

    def alter_column(self, name: TableName, column: Column, like: Column, of: Table) -> str:  # noqa: ARG002
        return ""

    def change_key(self, table: Table, key: Sequence[str]) -> str:  # noqa: ARG002
        return ""

    def _listed(self, kinds: Mapping[str, str], notes: Mapping[str, str]) -> list[Uncarried]:
        found = []
        for kind, query in kinds.items():
            names = tuple(str(name) for (name,) in self._fetch(query))
            if names:
                found.append(Uncarried(kind, names, notes.get(kind, "")))
        return found

    def _fetch(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._session.fetch(Statement(sql, values))


class SQLiteAdvisor(FileAdvisor):
    """A SQLite file."""

    holds = frozenset({ZERO_DATES, FAR_TIMES})
    byte_size = "LENGTH(CAST({} AS BLOB))"

    def triggers(self) -> list[Trigger]:
        rows = self._fetch(
            "SELECT tbl_name, name FROM sqlite_schema WHERE type = 'trigger'"
            " AND name NOT GLOB 'truecopy_[0-9]*' ORDER BY 1, 2"
        )
        return [
            Trigger(
                TableName(None, table),
                name,
                "trigger",
                True,
                f"DROP TRIGGER {self._session.dialect.quote(name)}",
            )
            for table, name in rows
        ]

    def passed_over(self, table: Table) -> Mapping[str, frozenset[str]]:
        rows = self._fetch(
            "SELECT x.name, x.coll FROM pragma_index_list(?) AS l JOIN pragma_index_xinfo(l.name) AS x"
            ' WHERE l."unique" AND x.key AND x.name IS NOT NULL',
            table.name.table,
        )
        found: dict[str, frozenset[str]] = {}
        for column, collation in rows:
            word = _PASSED_OVER.get(str(collation).upper())
            found[column] = found.get(column, frozenset()) | ({word} if word else frozenset())
        return found

    def inventory(self) -> list[Uncarried]:
        kinds = {
            "views": "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY 1",
            "triggers": "SELECT name || ' on ' || tbl_name FROM sqlite_schema WHERE type = 'trigger'"
            " AND name NOT GLOB 'truecopy_[0-9]*' ORDER BY 1",
            "checks": "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'truecopy\\_%' ESCAPE '\\'"
            " AND upper(sql) GLOB '*CHECK*(*' ORDER BY 1",
        }
        return self._listed(kinds, {"checks": "of these tables"})


class DuckDBAdvisor(FileAdvisor):
    """A DuckDB file."""

    holds = frozenset({FAR_TIMES, NO_NUMBERS})
    byte_size = "strlen(CAST({} AS VARCHAR))"

    def as_target(self, arrival: Arrival) -> Iterator[Finding]:
        for table in arrival.existing:
            if table.foreign_keys:
                yield Finding(
                    Level.ERROR,
                    Subject.REFERENCES,
                    "DuckDB checks foreign keys at once, and parents and children do not come in an order that they"
                    " allow",
                    "make the table without its foreign keys",
                    str(table.name),
                )

    def alter_column(self, name: TableName, column: Column, like: Column, of: Table) -> str:
        from truecopy.engines import duckdb_create

        table, one = (
            table_sql(self._session.dialect, name),
            self._session.dialect.quote(column.name),
        )
        return f"ALTER TABLE {table} ALTER {one} TYPE {duckdb_create.type_of(of, like)}"

    def inventory(self) -> list[Uncarried]:
        ours = "database_name = current_database() AND NOT internal"
        kinds = {
            "views": f"SELECT view_name FROM duckdb_views() WHERE {ours} ORDER BY 1",
            "macros": f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE {ours} ORDER BY 1",
            "sequences": "SELECT sequence_name FROM duckdb_sequences() WHERE database_name = current_database()"
            " ORDER BY 1",
            "types": f"SELECT type_name FROM duckdb_types() WHERE {ours} ORDER BY 1",
            "checks": "SELECT constraint_text || ' on ' || table_name FROM duckdb_constraints()"
            " WHERE database_name = current_database() AND constraint_type = 'CHECK' ORDER BY 1",
        }
        return self._listed(kinds, {})
