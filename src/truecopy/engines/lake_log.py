"""A table as a log of Parquet files: rows as they came, each with its kind and its token.

Files are added and never changed: each is what one step did to the table, and appears by being renamed into
the folder, whole. So whoever reads the folder sees the table after some step, and never half of one. A row
takes the place of all earlier ones with its key; `truecopy_kind` is `insert`, `upsert`, `delete` (of which
only the key is told) or `truncate` (which has no row at all, and ends everything before it).

Files are named by the number of their step, by which a step that is published again is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.engines.lake_ledger import APPEND, Step
from truecopy.engines.lake_tables import LakeTable, arrow_type, make_durable, read_files_sql
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.sparksql.dialect import quote as spark_quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KIND, VERSION, POSITION, COMMITTED_AT = (
    "truecopy_kind",
    "truecopy_version",
    "truecopy_position",
    "truecopy_committed_at",
)
INSERT, UPSERT, DELETE, TRUNCATE = "insert", "upsert", "delete", "truncate"
OWN_COLUMNS = (
    (KIND, "VARCHAR"),
    (VERSION, "BIGINT"),
    (POSITION, "VARCHAR"),
    (COMMITTED_AT, "TIMESTAMP WITH TIME ZONE"),
)
_NAME = re.compile(r"(\d{12})(-truncate)?\.parquet")


def make(table: LakeTable) -> None:
    """The folder of a new table."""
    table.folder.mkdir(exist_ok=True)
    if any(table.folder.iterdir()):
        raise UsageError(
            f"{table.folder} is there already, and no task keeps it: move it away, or give the table another name"
            " with routes"
        )


def widen(table: LakeTable, known: LakeTable) -> None:
    """Nothing is to be done: files without a column are read as if it were NULL."""


def as_staged(
    step: Step, rows: pa.Table | None, gone: pa.Table | None, version: int
) -> pa.Table | None:
    """The rows of the log: rows that are there now, keys that are not, and the token of both."""
    kind = INSERT if step.kind == APPEND else UPSERT
    parts = [] if rows is None else [_marked(rows, kind)]
    if gone is not None and gone.num_rows and not step.emptied:
        parts.append(_marked(gone, DELETE))
    if step.emptied:
        parts.append(pa.table({KIND: [TRUNCATE]}))
    if not parts:
        return None
    found = pa.concat_tables([_nullable(part) for part in parts], promote_options="default")
    position, committed_at = _token(step.note)
    count = found.num_rows
    for name, value, kind_ in (
        (VERSION, version, pa.int64()),
        (POSITION, position, pa.string()),
        (COMMITTED_AT, committed_at, pa.timestamp("us", "UTC")),
    ):
        found = found.append_column(name, pa.repeat(pa.scalar(value, kind_), count))
    return found


def publish(table: LakeTable, step: Step) -> None:
    """Renames the file of a step to where readers look."""
    if not step.staged:
        return
    suffix = "-truncate" if step.emptied else ""
    staged, final = Path(step.staged), table.folder / f"{step.number:012d}{suffix}.parquet"
    try:
        staged.rename(final)
    except FileNotFoundError:
        if not final.exists():
            raise CannotFinish(
                f"{staged} is gone, and with it rows of {table.name} that were to be published: start the task anew"
            ) from None
    make_durable(table.folder)


def files(table: LakeTable) -> list[Path]:
    """What counts: everything since the table was emptied last."""
    found = sorted(path for path in table.folder.iterdir() if _NAME.fullmatch(path.name))
    emptied = [path.name for path in found if path.name.endswith("-truncate.parquet")]
    return [path for path in found if not emptied or path.name >= emptied[-1]]


def log_schema(table: LakeTable) -> pa.Schema:
    """The columns of the files: only the newest have all of them."""
    own = [pa.field(name, arrow_type(native)) for name, native in OWN_COLUMNS]
    return pa.schema([*(column.arrow.with_nullable(True) for column in table.columns), *own])


def staged_sql(table: LakeTable, file: Path) -> str:
    """The rows of a file that is not published yet, likewise."""
    own = [(column.name, column.native) for column in table.columns]
    names = ", ".join(map(_quote, (name for name, _ in own)))
    log = read_files_sql([file], [*own, *OWN_COLUMNS])
    return f"SELECT {names} FROM ({log}) WHERE {KIND} IN ('{INSERT}', '{UPSERT}')"


def current_sql(table: LakeTable) -> str:
    """The rows as they are now, as a query of DuckDB."""
    own = [(column.name, column.native) for column in table.columns]
    log = read_files_sql(files(table), [*own, *OWN_COLUMNS])
    names = ", ".join(map(_quote, (name for name, _ in own)))
    if not table.key:
        return f"SELECT {names} FROM ({log}) WHERE {KIND} = '{INSERT}'"
    keys = ", ".join(map(_quote, table.key))
    last = f"row_number() OVER (PARTITION BY {keys} ORDER BY {VERSION} DESC) = 1"
    return (
        f"SELECT {names} FROM (SELECT * FROM ({log}) WHERE {KIND} <> '{TRUNCATE}' QUALIFY {last})"
        f" WHERE {KIND} <> '{DELETE}'"
    )


def current_frame(log: DataFrame, key: Sequence[str]) -> DataFrame:
    """The same by Spark, of the files that count."""
    from pyspark.sql import functions as F

    own = {name for name, _ in OWN_COLUMNS}
    names = [name for name in log.columns if name not in own]
    is_row = F.col(KIND).isin(INSERT, UPSERT)
    if not key:
        return log.where(is_row).select(*map(spark_quote, names))
    last = F.max_by(F.struct(KIND, *map(spark_quote, names)), F.col(VERSION)).alias("last")
    newest = (
        log.where(F.col(KIND) != TRUNCATE)
        .groupBy(*map(spark_quote, key))
        .agg(last)
        .select("last.*")
    )
    return newest.where(is_row).select(*map(spark_quote, names))


def _marked(rows: pa.Table, kind: str) -> pa.Table:
    return rows.append_column(KIND, pa.repeat(pa.scalar(kind), rows.num_rows))


def _nullable(rows: pa.Table) -> pa.Table:
    """A row of the log need not have a key."""
    return rows.cast(pa.schema([one.with_nullable(True) for one in rows.schema]))


def _token(note: Sequence[Mapping[str, Any]]) -> tuple[str | None, datetime | None]:
    """Where the table stands after a step, as the lines say that changed with it."""
    for line in note:
        if line.get("position"):
            at = line.get("committed_at")
            return line["position"], datetime.fromtimestamp(at / 1e6, UTC) if at else None
    return None, None


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
