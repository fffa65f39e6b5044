"""A table of Delta Lake, written by delta-rs: files by one append, changes by one merge, a commit each.

The commit holds, beside the rows, the number of its step (an application transaction of Delta, by which a
step that is published again is known) and the lines of the ledger that changed with it, `truecopy` in the
commit's information: how far the table has come, and when that was committed on the source.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from truecopy.engines.lake_ledger import APPEND, Step
from truecopy.engines.lake_tables import DELTA_LOG, LakeTable, make_durable, read_files_sql
from truecopy.model.errors import CannotFinish, UsageError

GONE = "truecopy_gone"
_UNREADABLE = {"deletionVectors", "columnMapping"}


def make(table: LakeTable) -> None:
    """A new table; one that an earlier attempt left without a description is taken over."""
    table.folder.mkdir(exist_ok=True)
    with _explained(table.folder):
        if DeltaTable.is_deltatable(str(table.folder)):
            found = DeltaTable(table.folder)
            if found.version() == 0 and found.schema() == Schema.from_arrow(table.schema):
                return
        if any(table.folder.iterdir()):
            raise UsageError(
                f"{table.folder} is there already, and no task keeps it: move it away, or give the table another name"
                " with routes"
            )
        DeltaTable.create(table.folder, table.schema)


def widen(table: LakeTable, known: LakeTable) -> None:
    """Adds the columns that `known` lacks."""
    before = {column.name for column in known.columns}
    with _explained(table.folder):
        found = DeltaTable(table.folder)
        there = {field.name for field in found.schema().fields}
        wanted = pa.schema([c.arrow for c in table.columns if c.name not in before | there])
        if len(wanted):
            fields: list[Field] = list(Schema.from_arrow(wanted).fields)
            found.alter.add_columns(fields)


def as_staged(
    step: Step,
    rows: pa.Table | None,
    gone: pa.Table | None,
    version: int,  # noqa: ARG001
) -> pa.Table | None:
    """New rows are a file of the table; changes are what a merge reads, with the keys that go."""
    if step.kind == APPEND or step.emptied:
        return rows
    parts = [] if rows is None else [_marked(rows, False)]
    if gone is not None:
        parts.append(_marked(gone, True))
    return pa.concat_tables(parts, promote_options="default") if parts else None


def publish(table: LakeTable, step: Step) -> None:
    """One commit, unless the table has it already."""
    application = f"truecopy-{step.lake}"
    with _explained(table.folder):
        delta = DeltaTable(table.folder)
        done = delta.transaction_version(application)
        if done is None or done < step.number:
            together = CommitProperties(
                custom_metadata={"truecopy": json.dumps(step.note)},
                app_transactions=[Transaction(application, step.number)],
            )
            if step.kind == APPEND or step.emptied:
                _add(table, delta, step, together)
            elif step.staged:
                _merge(table, delta, step, together)
            newest = f"{DeltaTable(table.folder).version():020d}.json"
            make_durable(table.folder / DELTA_LOG / newest, table.folder / DELTA_LOG)
    if step.staged:
        Path(step.staged).unlink(missing_ok=True)


def staged_sql(table: LakeTable, file: Path) -> str:
    """The rows of a file that is not published yet, likewise."""
    own = [(column.name, column.native) for column in table.columns]
    names = ", ".join(_quote(name) for name, _ in own)
    return f"SELECT {names} FROM ({read_files_sql([file], [*own, (GONE, 'BOOLEAN')])}) WHERE {GONE} IS NOT TRUE"


def current_sql(table: LakeTable) -> str:
    """The rows as they are now, as a query of DuckDB."""
    own = [(column.name, column.native) for column in table.columns]
    return read_files_sql(files(table), own)


def files(table: LakeTable) -> list[Path]:
    """The files that count."""
    return data_files(table.folder)


def data_files(folder: Path) -> list[Path]:
    """The files that count in any Delta table; one whose files alone are not its rows is refused."""
    with _explained(folder):
        found = DeltaTable(folder)
        for feature in _UNREADABLE & set(found.protocol().reader_features or ()):
            raise UsageError(
                f"{folder} is a Delta table with {feature}: its files alone are not its rows; register it in Spark's"
                " catalog and use lake://"
            )
        return [Path(path) for path in found.file_uris()]


def spark_schema(folder: Path) -> dict[str, Any]:
    """The columns of a Delta table, in the form that Spark writes a schema in."""
    with _explained(folder):
        schema: dict[str, Any] = json.loads(DeltaTable(folder).schema().to_json())
    return schema


def _add(table: LakeTable, delta: DeltaTable, step: Step, together: CommitProperties) -> None:
    actions: list[AddAction | RemoveAction] = []
    if step.staged:
        final = table.folder / f"truecopy-{step.number:012d}.parquet"
        if not final.exists():
            Path(step.staged).rename(final)
        make_durable(table.folder)
        size, now = final.stat().st_size, time.time_ns() // 1_000_000
        actions = [AddAction(final.name, size, {}, now, True, _statistics(final))]
    mode = "overwrite" if step.emptied else "append"
    delta.create_write_transaction(actions, mode, delta.schema(), commit_properties=together)


def _merge(table: LakeTable, delta: DeltaTable, step: Step, together: CommitProperties) -> None:
    rows = pq.read_table(step.staged)
    same = " AND ".join(f"t.{_quote(name)} = s.{_quote(name)}" for name in table.key)
    given = {_quote(name): f"s.{_quote(name)}" for name in rows.column_names if name != GONE}
    (
        delta.merge(rows, same, source_alias="s", target_alias="t", commit_properties=together)
        .when_matched_delete(f"s.{GONE}")
        .when_matched_update(given)
        .when_not_matched_insert(given, predicate=f"NOT s.{GONE}")
        .execute()
    )


def _statistics(file: Path) -> str:
    """Rows, and the bounds of whole numbers and days, by which readers pass files over."""
    known = pq.read_metadata(file)
    lows, highs = dict[str, Any](), dict[str, Any]()
    for group in range(known.num_row_groups):
        for place in range(known.num_columns):
            column = known.row_group(group).column(place)
            bounds = column.statistics
            if bounds is None or not bounds.has_min_max or "." in column.path_in_schema:
                continue
            low, high, name = bounds.min, bounds.max, column.path_in_schema
            if isinstance(low, bool | dt.datetime) or not isinstance(low, int | dt.date):
                continue
            lows[name] = min(low, lows.get(name, low))
            highs[name] = max(high, highs.get(name, high))
    plain = {"numRecords": known.num_rows, "minValues": lows, "maxValues": highs, "nullCount": {}}
    return json.dumps(plain, default=str)


def _marked(rows: pa.Table, gone: bool) -> pa.Table:
    return rows.append_column(GONE, pa.repeat(pa.scalar(gone), rows.num_rows))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        cause = " ".join(str(error).split())
        raise CannotFinish(f"the Delta table {folder} was not written or read: {cause}") from None
