"""Servers whose defaults are against us: zones, date styles, modes. Nothing may depend on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.cases import Case
from tests.conformance.check import compare, named
from tests.conformance.documents import DOCUMENTS
from tests.conformance.engines import Engine, LakeEngine, MariaDBEngine, PostgreSQLEngine
from tests.conformance.numbers import DECIMALS, FLOATS, WHOLE_NUMBERS
from tests.conformance.texts import BITS, BYTES, TEXTS, UUIDS
from tests.conformance.times import DATES, INSTANTS, TIMES, WALL_CLOCKS
from tests.conftest import fresh_database
from tests.servers import Server
from truecopy.model.errors import UsageError

POSTGRESQL = {
    "timezone": "America/New_York",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "xmlbinary": "hex",
    "default_transaction_read_only": "on",
}
MARIADB = {
    "time_zone": "'-07:30'",
    "sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,NO_ZERO_DATE,TRADITIONAL'",
    "collation_connection": "'utf8mb4_general_ci'",
    "div_precision_increment": "0",
    "group_concat_max_len": "1024",
    "lc_time_names": "'de_DE'",
}
WIDE = {"double beside powers of two", "text"}
EVERY = [
    case
    for cases in (
        *(WHOLE_NUMBERS, DECIMALS, FLOATS, DATES, TIMES, WALL_CLOCKS, INSTANTS),
        *(TEXTS, BYTES, UUIDS, BITS, DOCUMENTS),
    )
    for case in cases
    if case.name not in WIDE
]


class HostilePostgreSQL(PostgreSQLEngine):
    setup = ("SET default_transaction_read_only = off", "SET datestyle = 'ISO, YMD'")


class HostileMariaDB(MariaDBEngine):
    setup = ("SET sql_mode = 'STRICT_ALL_TABLES'", "SET time_zone = '+00:00'")


@pytest.fixture(scope="module")
def hostile_postgresql(postgres_server: Server) -> Iterator[Engine]:
    with fresh_database(postgres_server) as database:
        for name, value in POSTGRESQL.items():
            postgres_server.execute(None, f"ALTER DATABASE {database.name} SET {name} = '{value}'")
        yield HostilePostgreSQL("postgresql", database)


@pytest.fixture(scope="module")
def hostile_mariadb(second_mariadb_server: Server) -> Iterator[Engine]:
    with fresh_database(second_mariadb_server) as database:
        before = {
            name: second_mariadb_server.execute(None, f"SELECT @@global.{name}")[0][0]
            for name in MARIADB
        }
        for name, value in MARIADB.items():
            second_mariadb_server.execute(None, f"SET GLOBAL {name} = {value}")
        yield HostileMariaDB("mariadb", database)
        for name, value in before.items():
            second_mariadb_server.execute(None, f"SET GLOBAL {name} = %s", (value,))


@named(EVERY)
def test_postgresql(hostile_postgresql: Engine, case: Case) -> None:
    _tries_edges(hostile_postgresql, case)


@named(EVERY)
def test_mariadb(hostile_mariadb: Engine, case: Case) -> None:
    _tries_edges(hostile_mariadb, case)


def test_spark_in_another_zone_is_refused(lake_engine: LakeEngine) -> None:
    """A session that the user passes in may be of any zone; reading on would shift every instant."""
    (case,) = (case for case in INSTANTS if case.name == "instant")
    spark = lake_engine.spark
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        with pytest.raises(UsageError, match="time zone is America/New_York"):
            _tries_edges(lake_engine, case)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    _tries_edges(lake_engine, case)


def _tries_edges(engine: Engine, case: Case) -> None:
    if engine.storage(case) is None:
        pytest.skip(case.absent[engine.name])
    compare(engine, case, [None, *case.edges], table="hostile")
