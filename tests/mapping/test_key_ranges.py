"""Rows of a key range: the conditions in SQL and in Spark mean what `model.keyspace` says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.servers import Database
from truecopy.engines import connect
from truecopy.engines.key_ranges import key_range_sql, no_keyspace_id_sql
from truecopy.engines.protocols import Introspects, Statement
from truecopy.mapping.key_ranges import is_in_range, only_range
from truecopy.model.change import CHANGE_SCHEMA, DELETE, INSERT, UPDATE, Definition
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import Sharding, keyspace_id, parse_key_range
from truecopy.model.table import Column
from truecopy.model.types import Integer, Text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGES = [
    "-",
    "-80",
    "80-",
    "40-80",
    "3f-4101",
    "7fffffffffffffff-80",
    "00000000000004-000000000000c8",
]
VALUES: dict[str, Sequence[str]] = {
    "hash": [*map(str, range(300)), "-7", "9223372036854775807"],
    "numeric": ["0", "3", "4", "199", "200", "9223372036854775807", str(2**62), str(2**62 - 1)],
    "text": ["", "@", "a", "Ä", "€uro", "zebra", "\x7f", "A"],
    "binary": ["00", "40", "4000", "7fff", "80", "ff00ff", "3fff", "4101"],
}
TYPES = {
    "hash": ("BIGINT", "BIGINT"),
    "numeric": ("BIGINT", "BIGINT"),
    "text": ("VARCHAR(20) COLLATE utf8mb4_bin", "TEXT"),
    "binary": ("VARBINARY(20)", "BYTEA"),
}


def expected(function: str, wanted: str) -> list[str]:
    chosen = parse_key_range(wanted)
    return [v for v in VALUES[function] if chosen.contains(keyspace_id(function, v))]


@pytest.mark.parametrize("function", VALUES)
@pytest.mark.parametrize("engine", ["mariadb_db", "postgres_db", "duckdb"])
def test_databases_choose_the_rows_of_a_range(
    request: pytest.FixtureRequest, tmp_path: Any, engine: str, function: str
) -> None:
    values = [bytes.fromhex(v) if function == "binary" else v for v in VALUES[function]]
    if engine == "duckdb":
        import duckdb

        url, kind = f"duckdb:///{tmp_path}/one.db", TYPES[function][1]
        with duckdb.connect(str(tmp_path / "one.db")) as connection:
            connection.execute(f"CREATE TABLE t (v {kind} NOT NULL)")
            connection.executemany("INSERT INTO t VALUES (?)", [(v,) for v in values])
    else:
        database: Database = request.getfixturevalue(engine)
        url, kind = database.url, TYPES[function][engine != "mariadb_db"]
        database.execute(f"CREATE TABLE t (v {kind} NOT NULL)")
        database.executemany("INSERT INTO t VALUES (%s)", [(v,) for v in values])
    with connect(parse_endpoint(url)) as opened:
        session: Any = opened
        name = cast(Introspects, session).find("t")
        assert name is not None
        column = session.describe(name).columns[0]
        text = session.dialect.as_text(session.dialect.canonical(column, column.type))
        for wanted in RANGES:
            if function == "hash" and len(wanted) > 15 and wanted.startswith("7f"):
                continue
            where = key_range_sql(
                session.dialect, column, column.type, function, parse_key_range(wanted)
            )
            found = session.fetch(Statement(f"SELECT {text} FROM t WHERE {where}"))
            assert sorted(str(v) for (v,) in found) == sorted(expected(function, wanted)), wanted


@pytest.mark.parametrize("function", VALUES)
def test_spark_chooses_the_values_of_a_range(spark: SparkSession, function: str) -> None:
    from pyspark.sql import functions as F

    texts = spark.createDataFrame([(v,) for v in VALUES[function] if v != "-7"], "v string")
    for wanted in RANGES:
        inside = is_in_range(F.col("v"), function, parse_key_range(wanted))
        found = [v for (v,) in texts.where(inside).collect()]
        assert found == [v for v in expected(function, wanted) if v != "-7"], wanted


def test_what_cannot_be_said_in_sql() -> None:
    from truecopy.engines.mysql_dialect import MySQLDialect

    number = Column("v", Integer(), "bigint(20)", nullable=True)
    narrow = parse_key_range("4000000000000001-")
    with pytest.raises(UsageError, match="too narrow"):
        key_range_sql(MySQLDialect(), number, Integer(), "hash", narrow)
    with pytest.raises(UsageError, match="no column of text or bytes"):
        key_range_sql(MySQLDialect(), number, Integer(), "text", narrow)
    assert no_keyspace_id_sql(MySQLDialect(), number, "numeric") == "`v` IS NULL OR `v` < 0"
    sure = Column("v", Integer(), "bigint(20) unsigned", nullable=False)
    assert no_keyspace_id_sql(MySQLDialect(), sure, "numeric") == ""


SHARDED = Sharding("owner", "binary")


def changes(spark: SparkSession, *rows: dict[str, Any]) -> Any:
    import pyarrow as pa

    whole = [{"position": f"0-1-{n}", "txn": str(n), "seq": n, **row} for n, row in enumerate(rows)]
    return spark.createDataFrame(pa.Table.from_pylist(whole, schema=CHANGE_SCHEMA))


def seen(spark: SparkSession, definition: Definition, *rows: dict[str, Any]) -> list[Any]:
    chosen = only_range(changes(spark, *rows), definition, SHARDED, parse_key_range("-80"))
    return [(r["seq"], r["kind"], r["after"]) for r in chosen.orderBy("seq").collect()]


def definition(*key: str) -> Definition:
    columns = (Column("id", Integer(), "int", False), Column("owner", Text(), "text", True))
    return Definition("shop.t", columns, key)


def change(kind: str, before: str | None, after: str | None, number: str = "7") -> dict[str, Any]:
    return {
        "kind": kind,
        "key": [number],
        "before": [number, before] if before else None,
        "after": [number, after] if after else None,
    }


def test_a_row_that_leaves_a_range_and_one_that_enters(spark: SparkSession) -> None:
    assert seen(
        spark,
        definition("id"),
        change(INSERT, None, "10"),
        change(INSERT, None, "90"),
        change(UPDATE, "10", "20"),
        change(UPDATE, "20", "90"),
        change(UPDATE, "90", "a0"),
        change(UPDATE, "a0", "30"),
        change(DELETE, "30", None),
        change(DELETE, "90", None),
        # Of a log without rows before the change.
        change(UPDATE, None, "30"),
        change(UPDATE, None, "90"),
        change(DELETE, None, None),
    ) == [
        (0, INSERT, ["7", "10"]),
        (2, UPDATE, ["7", "20"]),
        (3, DELETE, None),
        (5, INSERT, ["7", "30"]),
        (6, DELETE, None),
        (8, UPDATE, ["7", "30"]),
        (9, DELETE, None),
        (10, DELETE, None),
    ]


def test_a_range_of_the_key(spark: SparkSession) -> None:
    rows = [
        {"kind": kind, "key": [number, owner], "before": None, "after": [number, owner]}
        for kind, number, owner in ((INSERT, "1", "10"), (UPDATE, "2", "90"), (UPDATE, "3", "7f"))
    ]
    found = seen(spark, definition("id", "owner"), *rows)
    assert [(seq, kind) for seq, kind, _ in found] == [(0, INSERT), (2, UPDATE)]


def test_rows_without_a_keyspace_id(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    nameless = {"kind": INSERT, "key": ["7"], "before": None, "after": ["7", None]}
    with pytest.raises(PySparkException, match=r"at 0-1-0 a row of shop\.t has no owner"):
        seen(spark, definition("id"), nameless)
    incomplete = {**change(UPDATE, "90", "10"), "unchanged": [0]}
    with pytest.raises(PySparkException, match="comes into the key range"):
        seen(spark, definition("id"), incomplete)
    only = Definition("shop.t", (Column("id", Integer(), "int", False),), ("id",))
    with pytest.raises(UsageError, match="sharded by owner, which is no column of it"):
        seen(spark, only, change(INSERT, None, "10"))
