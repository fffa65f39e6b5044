"""A lake that tasks write: `lake:///path?format=parquet` or `?format=delta`.

DuckDB reads its files and turns texts into values, in the process; nothing of it is kept in a file of its
own. Rows that a transaction writes are files that no reader looks at until it commits
(`truecopy.engines.lake_ledger` says how that is one step for rows and lines); questions inside the
transaction about a table that it has written to are answered from these files, and from no others.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from truecopy.engines import duckdb_create, duckdb_load, lake_log, loading
from truecopy.engines.duckdb import DuckDB
from truecopy.engines.duckdb_dialect import DuckDBDialect
from truecopy.engines.duckdb_schema import describe_table, list_tables
from truecopy.engines.lake_advice import LakeAdvisor
from truecopy.engines.lake_files import folder_of
from truecopy.engines.lake_ledger import APPEND, CHANGE, LakeLedger, Step
from truecopy.engines.lake_tables import (
    DELTA,
    PARQUET,
    LakeTable,
    find_described,
    made_of,
    make_durable,
    write_description,
)
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.model.relation import Relation
from truecopy.model.table import Table, TableName

_COMMENT = re.compile(r"\A/\* .*? \*/ ", re.DOTALL)
_LINE = re.compile(r'(?<!")\btruecopy_\w+')
_EMPTY = re.compile(r'DELETE FROM "((?:[^"]|"")+)"')
_DEFINE = re.compile(r'(?:CREATE|ALTER) TABLE "((?:[^"]|"")+)"')


class Format(Protocol):
    """How rows of a table are kept; modules are formats."""

    def make(self, table: LakeTable) -> None: ...
    def widen(self, table: LakeTable, known: LakeTable) -> None: ...
    def as_staged(
        self, step: Step, rows: pa.Table | None, gone: pa.Table | None, version: int
    ) -> pa.Table | None: ...
    def publish(self, table: LakeTable, step: Step) -> None: ...
    def files(self, table: LakeTable) -> list[Path]: ...
    def staged_sql(self, table: LakeTable, file: Path) -> str: ...
    def current_sql(self, table: LakeTable) -> str: ...


def _format(endpoint: Endpoint) -> Format:
    name = endpoint.option("format")
    if name == PARQUET:
        return lake_log
    if name == DELTA:
        from truecopy.engines import lake_delta  # whose library not everybody needs

        return lake_delta
    raise UsageError(f"{endpoint}: tasks write lakes with format={PARQUET} or {DELTA}")


@dataclass
class _Share:
    """What the open transaction does to one table: rows that it gets, and keys that have none any more."""

    table: LakeTable
    rows: pa.Table | None = None
    gone: pa.Table | None = None
    changes: bool = False
    emptied: bool = False
    staged: Path | None = None


class LakeTarget(DuckDB):
    """One folder of tables, all in one format."""

    driver_local = False

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.dialect = DuckDBDialect()
        self.path = folder_of(endpoint)
        self.format_name = endpoint.option("format")
        self._format = _format(endpoint)
        self._ledger = LakeLedger(self.path)
        self._said: list[tuple[Statement, int]] = []
        self._shares: dict[str, _Share] = {}
        self._note: tuple[Any, ...] = ()
        self._connection = self._open(read_only=False)

    def _open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:  # noqa: ARG002 - in memory
        connection = duckdb.connect()
        # Spark runs as many of these as there are cores.
        connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
        return connection

    def close(self) -> None:
        self._connection.close()
        self._ledger.close()

    # Questions

    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
        if _LINE.search(statement.sql):
            return self._ledger.fetch(statement)
        self._show_tables(statement.sql)
        return super().fetch(statement)

    def _arrow(self, statement: Statement) -> pa.Table:
        self._show_tables(statement.sql)
        return super()._arrow(statement)

    def _show_tables(self, sql: str) -> None:
        """Gives DuckDB the tables that a statement names, as they are now."""
        for name, table in find_described(self.path).items():
            quoted = table_sql(self.dialect, table.name)
            if quoted not in sql:
                continue
            share = self._shares.get(name)
            if share is not None and share.rows is not None:
                rows = self._format.staged_sql(table, self._stage(share))
            else:
                rows = self._format.current_sql(table)
            with self._explained():
                self._connection.execute(f"CREATE OR REPLACE VIEW {quoted} AS {rows}")

    # Transactions

    def begin(self) -> None:
        self._reset()
        self._ledger.begin()

    def execute(self, statement: Statement) -> int:
        sql = _COMMENT.sub("", statement.sql)
        if emptied := _EMPTY.fullmatch(sql):
            share = self._share(self._known(TableName(None, _unquoted(emptied[1]))))
            share.emptied, share.rows, share.gone = True, None, None
            return 0
        if defined := _DEFINE.match(sql):
            self._define(TableName(None, _unquoted(defined[1])), sql)
            return 0
        if not _LINE.search(sql):
            self._refuse()
        assert not self._shares, "lines come before rows"
        changed = self._ledger.execute(statement)
        if not self._said:
            self._ledger.finish_others(self._publish)
        self._said.append((statement, changed))
        return changed

    def commit(self) -> None:
        if not self._shares:
            self._ledger.commit()
            self._reset()
            return
        try:
            steps = [self._step(share) for share in self._shares.values()]
            tables = [step.table for step in steps]
            with self._ledger.locked(tables):
                for left in self._ledger.undone(tables):
                    self._finish(left)
                decided = self._ledger.decide(self._said, steps)
                self._shares = {}  # whose files are the ledger's from here on
                for step in decided:
                    self._finish(step)
        finally:
            self._reset()

    def rollback(self) -> None:
        self._ledger.rollback()
        self._reset()

    def load(
        self,
        relation: Relation,
        rows: pa.Table,
        annotation: str | None = None,  # noqa: ARG002 - files have no log
    ) -> int:
        table = self._known(loading.target_table(relation))
        loading.require_fit(relation, rows)
        share = self._share(table)
        found = self._typed(table, relation, rows)
        _require_one_each(relation, rows, table, found)
        if share.gone is not None:
            share.gone = _without(share.gone, found, table.key)
        share.rows = found if share.rows is None else pa.concat_tables([share.rows, found])
        return int(found.num_rows)

    def delete_keys(
        self,
        relation: Relation,
        keys: pa.Table,
        annotation: str | None = None,  # noqa: ARG002 - likewise
    ) -> int:
        """Gives how many keys there are: which of them have rows is found out by the merge only."""
        table = self._known(loading.target_table(relation))
        if {column.name for column in relation.key} != set(table.key):
            raise UsageError(
                f"{table.name} in {self.path} is kept by the key {', '.join(table.key) or 'nothing'}: start anew in"
                " another folder to keep it by another one"
            )
        share = self._share(table)
        share.changes = True
        gone = self._typed(table, relation, keys).group_by(list(table.key)).aggregate([])
        if share.rows is not None:
            share.rows = _without(share.rows, gone, table.key)
        if share.gone is not None:
            gone = pa.concat_tables([_without(share.gone, gone, table.key), gone])
        share.gone = gone
        return int(keys.num_rows)

    def _share(self, table: LakeTable) -> _Share:
        """What is done to a table; from the first on, the lines of the transaction wait for its end."""
        if not self._shares:
            self._note = self._ledger.note()
            self._ledger.rollback()
        share = self._shares.setdefault(table.folder.name, _Share(table))
        if share.staged is not None:
            share.staged.unlink(missing_ok=True)
            share.staged = None
        return share

    def _typed(self, table: LakeTable, relation: Relation, texts: pa.Table) -> pa.Table:
        """Texts as values of the table's columns, in their order."""
        with self._explained():
            found = duckdb_load.typed_rows(self._connection, relation, texts)
        fields = [column.arrow for column in table.columns if column.name in found.column_names]
        return found.select([one.name for one in fields]).cast(pa.schema(fields))

    def _stage(self, share: _Share) -> Path:
        if share.staged is None:
            self._step(share)
        assert share.staged is not None
        return share.staged

    def _step(self, share: _Share) -> Step:
        """Writes the file of a share, and says what is to be done with it."""
        table = share.table
        kind = CHANGE if share.changes and table.key else APPEND
        step = Step(table.folder.name, "", kind, share.emptied, self._note)
        if share.staged is None:
            version = self._ledger.next_number() if self.format_name == PARQUET else 0
            rows = self._format.as_staged(step, share.rows, share.gone, version)
            if rows is not None:
                share.staged = self._ledger.staged / f"{uuid.uuid4().hex}.parquet"
                pq.write_table(rows, share.staged, compression="zstd")
                make_durable(share.staged)
        staged = str(share.staged) if share.staged is not None else ""
        return Step(step.table, staged, kind, share.emptied, self._note)

    def _finish(self, step: Step) -> None:
        self._publish(step)
        self._ledger.forget(step)

    def _publish(self, step: Step) -> None:
        self._format.publish(self._known(TableName(None, step.table)), step)

    def _reset(self) -> None:
        for share in self._shares.values():
            if share.staged is not None:
                share.staged.unlink(missing_ok=True)
        self._said, self._shares, self._note = [], {}, ()

    # Tables

    def tables(self) -> list[TableName]:
        return [table.name for table in find_described(self.path).values()]

    def find(self, name: str) -> TableName | None:
        if name in self._ledger.tables() or name in find_described(self.path):
            return TableName(None, name)
        return None

    def describe(self, name: TableName) -> Table:
        table = self._known(name)
        files = self._format.files(table)
        rows = sum(int(pq.read_metadata(file).num_rows) for file in files)
        return table.described(rows, sum(file.stat().st_size for file in files))

    def create_table(self, table: Table) -> list[str]:
        return super().create_table(replace(table, name=TableName(None, str(table.name))))

    def create_indexes(self, table: Table) -> list[str]:  # noqa: ARG002 - it has none
        return []

    def creation_warnings(self, table: Table) -> list[str]:
        """As DuckDB's, in which every table of a lake is declared."""
        found = duckdb_create.warnings(table)
        made = made_of(self.path, self.format_name, self._declared(self.create_table(table)))
        found += [f"{table.name}.{c.name} is kept as text" for c in made.columns if c.weak]
        found += [
            f"{table.name} is made without the unique index {index.name}: a lake enforces no key"
            for index in table.indexes
            if index.unique
        ]
        return found

    def advisor(self) -> LakeAdvisor:
        return LakeAdvisor(self, self.path)

    def _define(self, name: TableName, sql: str) -> None:
        """Has DuckDB read a definition, and makes what it says."""
        known = find_described(self.path).get(name.table)
        if known is None:
            table = made_of(self.path, self.format_name, self._declared([sql]))
            self._format.make(table)
        else:
            columns = ", ".join(f"{self.dialect.quote(c.name)} {c.native}" for c in known.columns)
            before = f"CREATE TABLE {table_sql(self.dialect, name)} ({columns})"
            table = known.with_columns(self._declared([before, sql]))
            self._format.widen(table, known)
        write_description(table)

    def _declared(self, statements: Sequence[str]) -> Table:
        with duckdb.connect() as scratch, self._explained():
            for statement in statements:
                scratch.execute(statement)

            def fetch(statement: Statement) -> list[tuple[Any, ...]]:
                return scratch.execute(statement.sql, list(statement.values)).fetchall()

            (name,) = list_tables(fetch)
            return describe_table(fetch, self.dialect, self.endpoint, name)

    def _known(self, name: TableName) -> LakeTable:
        table = find_described(self.path).get(name.table)
        if table is None:
            raise UsageError(f"there is no table {name} that a task keeps in {self.endpoint}")
        if table.format != self.format_name:
            raise UsageError(
                f"{name} in {self.path} is kept as {table.format}: write {_with_format(self.endpoint, table.format)}"
            )
        return table

    # Only tasks write.

    def insert(self, relation: Relation, row: Sequence[str | None]) -> Statement:  # noqa: ARG002
        self._refuse()

    def update(
        self,
        relation: Relation,  # noqa: ARG002
        row: Sequence[str | None],  # noqa: ARG002
        changed: Sequence[int],  # noqa: ARG002
    ) -> Statement:
        self._refuse()

    def delete(self, relation: Relation, key: Sequence[str | None]) -> Statement:  # noqa: ARG002
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError(
            f"{self.endpoint} takes rows from tasks only (truecopy run), not by single statements"
        )


def _require_one_each(
    relation: Relation, texts: pa.Table, table: LakeTable, rows: pa.Table
) -> None:
    """A lake knows no duplicates when it is asked for none: those of one load are found here."""
    names = list(table.key)
    if not names or rows.group_by(names).aggregate([]).num_rows == rows.num_rows:
        return
    both = [("truecopy_place", "count"), ("truecopy_place", "max")]
    counted = _numbered(rows, names).group_by(names).aggregate(both)
    twice = counted.filter(pc.greater(counted.column("truecopy_place_count"), 1))
    number = twice.column("truecopy_place_max")[0].as_py()
    raise loading.refuse(relation, texts, number, "it comes twice")


def _without(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key none of the others has."""
    names = list(key)
    left = _numbered(rows, names).join(others.select(names), names, join_type="left anti")
    return rows.take(left.column("truecopy_place"))


def _numbered(rows: pa.Table, names: list[str]) -> pa.Table:
    places = pa.array(np.arange(rows.num_rows))
    return rows.select(names).append_column("truecopy_place", places)


def _unquoted(name: str) -> str:
    return name.replace('""', '"')


def _with_format(endpoint: Endpoint, form: str) -> str:
    return f"lake://{endpoint.path}?format={form}"
