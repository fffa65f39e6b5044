"""Single rows on both sides: found by their key whatever it is made of, told apart when they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.engines.all_types import fill as fill_all_types
from tests.engines.places import (
    ENGINES,
    Place,
    described,
    load,
    make,
    matched,
    open_place,
    own_relation,
)
from tests.servers import Database
from tests.transfer.proving import plan_of
from truecopy.engines.protocols import FingerprintsKeys
from truecopy.model.relation import WHOLE, Key
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.keys import pack, unpack
from truecopy.transfer.proof.look import look, mismatches
from truecopy.verify.differences import rows_of

Open = Callable[[str, str], Place]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Open:
    return lambda engine, name: open_place(engine, request, name)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_fingerprint_by_key_is_that_of_the_row(place: Open, engine: str) -> None:
    here = place(engine, "source")
    fill_all_types(here)
    with here.session() as session:
        assert isinstance(cast(object, session), FingerprintsKeys)
        relation = own_relation(session, described(session, "t"))
        every = rows_of(session.fingerprints(relation, WHOLE))
        keys: list[Key] = [row[:-1] for row in every]
        found = session.fingerprints_by_key(relation, [*keys[::2], ("999",) * relation.key_width])
        expected = [row for row in every if row[:-1] in keys[::2]]
        assert sorted(rows_of(found), key=str) == sorted(expected, key=str)
        assert session.fingerprints_by_key(relation, []).column_names == found.column_names


KEYS = {
    "binary": ("VARBINARY(16)", ["X'00'", "X'00FF10'", "X'6162'"]),
    "text": ("VARCHAR(40) CHARACTER SET latin1", ["'a'", "'\u00e9'", "'a,b'"]),
    "unsigned": ("BIGINT UNSIGNED", ["0", "9223372036854775809", "18446744073709551615"]),
    "negative": ("INT", ["-5", "0", "7"]),
    "decimal": ("DECIMAL(18,14)", ["0.00000000000001", "-1.5", "12"]),
    "time": ("DATETIME(3)", ["'2024-01-31 12:00:00.123'", "'1000-01-01'", "'2024-02-29'"]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("target", ["second_mariadb_db", "postgres_db"])
def test_a_key_that_matches_nothing_on_both_sides_is_not_taken_for_equal(
    mariadb_db: Database, request: pytest.FixtureRequest, kind: str, target: str
) -> None:
    """Keys of every kind are found on either side, so that a damaged row shows."""
    there: Database = request.getfixturevalue(target)
    plan = copied(mariadb_db, there, *KEYS[kind])
    keys = plan_keys(plan)
    assert len(keys) == 3
    packed = pack(list(zip_columns(keys))).to_pylist()
    seen = look(plan, packed, unpack(packed), None)
    assert None not in seen.source.values()
    assert None not in seen.target.values()
    assert seen.differing == []
    there.execute("UPDATE t SET v = 'damaged'")
    assert sorted(look(plan, packed, keys, None).differing) == sorted(packed)
    assert {one.columns for one in mismatches(plan, keys, None)} == {("v",)}
    there.execute("DELETE FROM t")
    assert {one.kind for one in mismatches(plan, keys, None)} == {"missing"}


def test_a_collation_that_ignores_case_answers_with_other_rows_too(
    mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE t (k VARCHAR(10) COLLATE utf8mb4_bin PRIMARY KEY, v TEXT)")
    mariadb_db.execute("INSERT INTO t VALUES ('a', 'one'), ('A', 'two')")
    plan = copied(mariadb_db, postgres_db)
    assert look(plan, ["a"], [("a",)], None).differing == []
    postgres_db.execute("UPDATE t SET v = 'x' WHERE k = 'A'")
    assert look(plan, ["a"], [("a",)], None).differing == []
    assert look(plan, ["A"], [("A",)], None).differing == ["A"]


def copied(
    source: Database, target: Database, native: str = "", values: list[str] | None = None
) -> TablePlan:
    """A table `t` of the source, made and filled on the target."""
    from truecopy.engines import connect
    from truecopy.model.endpoint import parse_endpoint

    if native:
        source.execute(f"CREATE TABLE t (k {native} PRIMARY KEY, v VARCHAR(20))")
        for value in values or ():
            source.execute(f"INSERT INTO t VALUES ({value}, 'some')")
    with (
        connect(parse_endpoint(source.url)) as here,
        connect(parse_endpoint(target.url)) as there,
    ):
        first = described(here, "t")
        second = make(there, first, "t")
        comparison = matched(here, first, there, second)
        reader: Any = here
        load(there, comparison.target, reader.rows(comparison.source, WHOLE))
    return plan_of(comparison)


def plan_keys(plan: TablePlan) -> list[Key]:
    from truecopy.engines import pool

    with pool.lease(plan.source.endpoint) as session:
        reader: Any = session
        return [row[: plan.source.key_width] for row in rows_of(reader.rows(plan.source, WHOLE))]


def zip_columns(keys: list[Key]) -> Any:
    import pyarrow as pa

    return (pa.array(column, pa.string()) for column in zip(*keys, strict=True))
