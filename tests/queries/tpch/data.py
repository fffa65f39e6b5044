"""The tables of TPC-H, made once per scale, in every engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb

from tests.servers import Database

KEYS = {
    "region": "r_regionkey",
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey, ps_suppkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey, l_linenumber",
}
INDEXES = {
    "partsupp": ("ps_suppkey",),
    "orders": ("o_custkey",),
    "lineitem": ("l_partkey, l_suppkey", "l_suppkey"),
    "customer": ("c_nationkey",),
    "supplier": ("s_nationkey",),
}
LENGTHS = {"l_comment": 44, "o_comment": 79, "c_comment": 117, "p_comment": 23, "ps_comment": 199}


def make_parquet(folder: Path, scale: float) -> Path:
    """The tables as Parquet files."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [program, "parquet", "-s", str(scale), "--output-dir", folder],
        check=True,
        capture_output=True,
    )
    return folder


def make_duckdb(parquet: Path, path: Path) -> Path:
    """The tables as a DuckDB file."""
    with duckdb.connect(str(path)) as connection:
        for table in KEYS:
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{parquet / table}.parquet'")
    return path


def fill_server(
    parquet: Path, database: Database, folder: Path, tables: Sequence[str] = tuple(KEYS)
) -> None:
    """The tables in MariaDB or PostgreSQL, with their keys and the indexes that the queries need."""
    mysql = database.url.startswith(("mariadb", "mysql"))
    for table in tables:
        key = KEYS[table]
        source = f"'{parquet / table}.parquet'"
        columns = duckdb.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        declared = ", ".join(f"{row[0]} {_type(row[0], row[1])} NOT NULL" for row in columns)
        database.execute(f"CREATE TABLE {table} ({declared}, PRIMARY KEY ({key}))")
        file = folder / f"{table}.csv"
        duckdb.sql(
            f"COPY (SELECT * FROM {source}) TO '{file}' (HEADER false, DELIMITER '|', QUOTE '')"
        )
        if mysql:
            database.execute(
                f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} FIELDS TERMINATED BY '|'"
            )
        else:
            with (
                database.connect() as connection,
                connection.cursor() as cursor,
                cursor.copy(f"COPY {table} FROM STDIN (DELIMITER '|')") as copy,
                file.open("rb") as data,
            ):
                while block := data.read(1 << 20):
                    copy.write(block)
        file.unlink()
        for index in INDEXES.get(table, ()):
            database.execute(f"CREATE INDEX {table}_{index.split(',')[0]} ON {table} ({index})")
        database.execute(f"{'ANALYZE TABLE' if mysql else 'ANALYZE'} {table}")


def _type(name: str, native: str) -> str:
    return f"VARCHAR({LENGTHS.get(name, 120)})" if native == "VARCHAR" else native
