"""Every pair of engines calls equal what is equal, and finds every kind of damage and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import truecopy
from tests.conftest import fresh_database
from tests.servers import Server
from tests.verify.damage import (
    DAMAGES,
    Damage,
    DuckDBKeeper,
    Finding,
    Keeper,
    LakeKeeper,
    MariaDBKeeper,
    PostgreSQLKeeper,
    SQLiteKeeper,
    tables,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("mariadb", "postgresql", "sqlite", "duckdb", "lake")
ALL = tables()

ROW_NAMES = {
    key: damage.name for damage, keys in zip(DAMAGES, ALL.keys, strict=True) for key in keys
}


@dataclass(frozen=True)
class Kept:
    """The URLs of one engine's tables. `plain` is not disguised: lakes know documents as text only."""

    clean: str
    disguised: str
    damaged: str
    damaged_plain: str


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUECOPY_STATE", str(tmp_path_factory.mktemp("state")))
        yield


def kept(keeper: Keeper) -> Kept:
    return Kept(
        clean=keeper.keep("clean", ALL.clean),
        disguised=keeper.keep("disguised", ALL.clean, disguised=True),
        damaged=keeper.keep("damaged", ALL.damaged, disguised=True),
        damaged_plain=keeper.keep("damaged_plain", ALL.damaged),
    )


NAMES = ("clean", "disguised", "damaged", "damaged_plain")


@pytest.fixture(scope="module")
def mariadb_kept(mariadb_server: Server) -> Iterator[Kept]:
    with ExitStack() as stack:
        fresh = {n: stack.enter_context(fresh_database(mariadb_server)) for n in NAMES}
        yield kept(MariaDBKeeper(fresh))


@pytest.fixture(scope="module")
def postgresql_kept(postgres_server: Server) -> Iterator[Kept]:
    with ExitStack() as stack:
        fresh = {n: stack.enter_context(fresh_database(postgres_server)) for n in NAMES}
        yield kept(PostgreSQLKeeper(fresh))


@pytest.fixture(scope="module")
def sqlite_kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return kept(SQLiteKeeper(tmp_path_factory.mktemp("sqlite")))


@pytest.fixture(scope="module")
def duckdb_kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return kept(DuckDBKeeper(tmp_path_factory.mktemp("duckdb")))


@pytest.fixture(scope="module")
def lake_kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return kept(LakeKeeper(tmp_path_factory.mktemp("lake")))


@pytest.fixture(params=ENGINES)
def source(request: pytest.FixtureRequest) -> tuple[str, Kept]:
    return request.param, request.getfixturevalue(f"{request.param}_kept")


@pytest.fixture(params=ENGINES)
def target(request: pytest.FixtureRequest) -> tuple[str, Kept]:
    return request.param, request.getfixturevalue(f"{request.param}_kept")


@pytest.fixture
def session(
    request: pytest.FixtureRequest, source: tuple[str, Kept], target: tuple[str, Kept]
) -> Any:
    """Spark, only where a side is a lake."""
    return request.getfixturevalue("spark") if "lake" in (source[0], target[0]) else None


def verified(source: str, target: str, spark: SparkSession | None = None) -> dict[str, Any]:
    """The document of DESIGN §10 for the one table."""
    key = ("id",) if source.startswith("lake") and target.startswith("lake") else ()
    report = truecopy.verify(source, target, tables=("t",), key=key, spark=spark, fresh=True)
    document: dict[str, Any] = json.loads(json.dumps(report.to_dict()))
    (table,) = document["tables"]
    assert document["verdict"] == table["verdict"] == report.verdict
    assert report.exit_code == {"equal": 0, "different": 1}.get(table["verdict"], 2), table
    return dict(table)


def check(table: dict[str, Any], expected: set[Finding]) -> None:
    assert table["verdict"] == "different", table
    found = [
        (d["kind"], int(d["key"]["id"]), frozenset(d.get("columns", ())))
        for d in table["differences"]
    ]
    false_alarms, unseen = set(found) - expected, expected - set(found)
    assert (false_alarms, unseen) == (set(), set()), [ROW_NAMES.get(key) for _, key, _ in unseen]
    assert len(found) == len(expected), "found twice"
    kinds = [kind for kind, _, _ in expected]
    assert (table["missing"], table["extra"], table["differing"]) == tuple(
        kinds.count(kind) for kind in ("missing", "extra", "differs")
    )
    assert table["unsettled"] == 0
    assert table["rows_compared"] == table["rows_source"] + table["extra"]
    for difference in table["differences"]:
        if difference["kind"] == "differs":
            assert difference["source"].keys() == difference["target"].keys()
            assert difference["source"].keys() == set(difference["columns"])


def test_there_are_enough_kinds_of_damage() -> None:
    assert len(DAMAGES) == len({damage.name for damage in DAMAGES}) >= 40
    assert len(ALL.clean) == len({row["id"] for row in ALL.clean}) >= 200
    assert len(ALL.damaged) == len({row["id"] for row in ALL.damaged})


def test_equal_tables_are_equal(
    source: tuple[str, Kept], target: tuple[str, Kept], session: Any
) -> None:
    both_lakes = source[0] == target[0] == "lake"
    other = target[1].clean if both_lakes else target[1].disguised
    table = verified(source[1].clean, other, session)
    assert table["differences"] == []
    assert table["verdict"] == "equal", table
    assert table["rows_compared"] == table["rows_source"] == table["rows_target"] == len(ALL.clean)
    counts = ("missing", "extra", "differing", "unsettled")
    assert [table[name] for name in counts] == [0, 0, 0, 0]


def test_every_damage_is_found_and_nothing_else(
    source: tuple[str, Kept], target: tuple[str, Kept], session: Any
) -> None:
    both_lakes = source[0] == target[0] == "lake"
    table = verified(
        source[1].clean, target[1].damaged_plain if both_lakes else target[1].damaged, session
    )
    check(table, ALL.expected)
    assert (table["rows_source"], table["rows_target"]) == (len(ALL.clean), len(ALL.damaged))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_each_damage_is_found_alone(damage: Damage, sqlite_kept: Kept, tmp_path: Path) -> None:
    planted = tables([damage])
    table = verified(sqlite_kept.clean, SQLiteKeeper(tmp_path).keep("alone", planted.damaged))
    check(table, planted.expected)
