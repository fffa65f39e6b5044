"""Two private MariaDB servers with tables like those of sysbench: 200 bytes a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tests.servers import Database, MariaDB

BUFFER_POOL = "2G"
"""All tables of a full run fit: disks are not what is measured."""

_COLUMNS = """(
    id INT NOT NULL PRIMARY KEY,
    k INT NOT NULL DEFAULT 0,
    c CHAR(120) NOT NULL DEFAULT '',
    pad CHAR(60) NOT NULL DEFAULT '',
    KEY k_1 (k))"""
# No undo log and no binary log while tables are filled: InnoDB then loads in bulk.
_LOAD = "SET SESSION sql_log_bin = 0, unique_checks = 0, foreign_key_checks = 0"
# Multiplied by the number of the row, each gives a group of 11 digits that look random and are the
# same on both servers.
_FACTORS = tuple(61_803_398_875 - step * 6_700_417 for step in range(15))


@dataclass(frozen=True)
class Pair:
    """A table on each server."""

    rows: int
    source: Database
    target: Database
    source_table: str
    target_table: str

    @property
    def choice(self) -> str:
        """As `--table` names them."""
        return f"{self.source_table}={self.target_table}"


@dataclass(frozen=True)
class Pairs:
    """What is compared.

    Attributes:
        small, large: Equal tables.
        differing: As `small`, but every tenth row of the target differs in one column.
        differing_rows: How many those are.
    """

    small: Pair
    large: Pair
    differing: Pair
    differing_rows: int


@contextmanager
def filled_servers(small: int, large: int) -> Iterator[Pairs]:
    """Starts both servers, and fills them at the same time."""
    with (
        ThreadPoolExecutor(2) as both,
        MariaDB(buffer_pool=BUFFER_POOL) as first,
        MariaDB(buffer_pool=BUFFER_POOL) as second,
    ):
        source, target = first.create_database("bench"), second.create_database("bench")
        fillings = [
            both.submit(_fill, source, _equal_tables(small, large)),
            both.submit(_fill, target, [*_equal_tables(small, large), *_differing_table()]),
        ]
        for filling in fillings:
            filling.result()
        yield Pairs(
            small=Pair(small, source, target, "sbtest_small", "sbtest_small"),
            large=Pair(large, source, target, "sbtest_large", "sbtest_large"),
            differing=Pair(small, source, target, "sbtest_small", "sbtest_differing"),
            differing_rows=(small + 7) // 10,  # ids from 1 that end in 3
        )


def fill_table(database: Database, name: str, rows: int) -> None:
    """Makes one such table; the same number of rows is the same table on every server."""
    _fill(database, _table(name, _generated(rows)))


def _fill(database: Database, statements: Sequence[str]) -> None:
    database.execute("; ".join([_LOAD, *statements]))


def _equal_tables(small: int, large: int) -> list[str]:
    return [*_table("sbtest_small", _generated(small)), *_table("sbtest_large", _generated(large))]


def _differing_table() -> list[str]:
    return _table("sbtest_differing", "SELECT id, k + (id % 10 = 3), c, pad FROM sbtest_small")


def _table(name: str, rows: str) -> list[str]:
    # Up-to-date statistics: chunks are planned from them, and they lag behind a load.
    return [
        f"CREATE TABLE {name} {_COLUMNS}",
        f"INSERT INTO {name} {rows}",
        f"ANALYZE TABLE {name}",
    ]


def _generated(rows: int) -> str:
    groups = [f"LPAD(seq * {factor} % 100000000000, 11, '0')" for factor in _FACTORS]
    c, pad = (f"CONCAT_WS('-', {', '.join(part)})" for part in (groups[:10], groups[10:]))
    return f"SELECT seq, FLOOR(RAND(seq) * 1000000), {c}, {pad} FROM seq_1_to_{rows}"
