"""Damage on the target is found, named and forgotten when it is repaired; nothing else is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.servers import Database
from tests.validate.damage import KINDS, TABLE, insert
from tests.validate.watching import begun, copied, validating
from truecopy.metastore.validation_errors import RESOLVED
from truecopy.metastore.validations import Validations
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.relation import Relation
from truecopy.transfer.continuous.compare import Check, Comparer
from truecopy.transfer.continuous.repair import apply_repair, plan_repair, write_repair
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)

RIGHT = 40
REWRITTEN = len(KINDS) + 2
"""A row that is right, whose document is written in another way on the target."""


def plant(source: Database, target: Database, settings: Settings) -> None:
    """Changes a row for each kind of damage, and others; the replication brings them; then the damage is done."""
    source.execute(TABLE)
    insert(source, range(1, len(KINDS) + RIGHT + 1))
    begun(settings)
    for number, damage in enumerate(KINDS, 1):
        source.execute(damage.source, (number,))
    for number in range(len(KINDS) + 1, len(KINDS) + RIGHT + 1):
        source.execute(
            "DELETE FROM wide WHERE id = %s"
            if number % 5 == 0
            else "UPDATE wide SET id = id + 1000 WHERE id = %s"
            if number % 5 == 1
            else "UPDATE wide SET b = b + 1 WHERE id = %s",
            (number,),
        )
    copied(settings)
    for number, damage in enumerate(KINDS, 1):
        damage.spoil(target, number)
    # The same document: no damage.
    same = f'{{"b":[1,   2],  "a":{REWRITTEN}}}'
    target.execute("UPDATE wide SET doc = %s WHERE id = %s", (same, REWRITTEN))


def test_every_kind_of_damage_is_found_and_resolves_itself(
    spark: SparkSession, mariadb_db: Database, target: Database, task: str
) -> None:
    settings = Settings(task, mariadb_db.url, target.url)
    plant(mariadb_db, target, settings)
    with validating(settings, row_error_delay=2.0) as watched:
        errors = watched.until_errors(len(KINDS))
        watched.until_settled()
        found = {int(error.key["id"] or 0): (error.kind, set(error.columns)) for error in errors}
        wanted = {
            number: (damage.kind, set(damage.columns)) for number, damage in enumerate(KINDS, 1)
        }
        assert found == wanted
        # A change of a key is two: what goes, and what comes.
        moved = sum(n % 5 == 1 for n in range(len(KINDS) + 1, len(KINDS) + RIGHT + 1)) + 1
        assert watched.processed() == len(KINDS) + RIGHT + moved
        repair = plan_repair(settings, errors, spark)
        assert repair.statements == len(KINDS)
        assert "wide" in write_repair(settings, repair)
        apply_repair(settings, repair)
        Validations().errors.recheck(task, None)
        watched.until(lambda: not watched.new, "no errors")
        assert {error.status for error in watched.errors} == {RESOLVED}
        assert watched.standing.pending.errors == 0
        assert watched.standing.tables[f"{mariadb_db.name}.wide"].stage == "running"


@pytest.mark.long
def test_values_of_every_type_are_compared_and_keys_that_look_alike_kept_apart(
    spark: SparkSession, mariadb_db: Database, target: Database, task: str
) -> None:
    settings = Settings(task, mariadb_db.url, target.url)
    mariadb_db.execute(
        "CREATE TABLE kinds (id INT PRIMARY KEY, size ENUM('small', 'large'), tags SET('a', 'b'), bits BIT(8),"
        " t TIME(3), z TIMESTAMP(6) NULL, u BIGINT UNSIGNED)"
    )
    mariadb_db.execute(
        "CREATE TABLE pairs (x VARCHAR(20), y VARCHAR(20), v INT, PRIMARY KEY (x, y))"
    )
    begun(settings)
    row = "'large', 'a,b', b'101', '-01:02:03.004', '2024-03-31 02:30:00.000001', 18446744073709551615"
    mariadb_db.execute(f"INSERT INTO kinds VALUES {', '.join(f'({n}, {row})' for n in range(8))}")
    # Alike when they are joined by a tab.
    alike = [("a\tb", "c"), ("a", "b\tc")]
    mariadb_db.executemany("INSERT INTO pairs VALUES (%s, %s, 1)", alike)
    copied(settings)
    bit = "5 - 1" if target.url.startswith("mariadb") else "'00000100'"
    spoiled = {
        "size": "'small'",
        "tags": "'a'",
        "bits": bit,
        "t": "'-01:02:03.005'",
        "z": "'2024-03-31 02:30:00.000002'",
        "u": "u - 1",
    }
    for number, (column, value) in enumerate(spoiled.items(), 1):
        target.execute(f"UPDATE kinds SET {column} = {value} WHERE id = {number}")
    target.execute("UPDATE pairs SET v = 2 WHERE x = 'a'")
    with validating(settings, row_error_delay=1.0) as watched:
        errors = watched.until_errors(len(spoiled) + 1)
        watched.until_settled()
        found = {tuple(error.key.values()): tuple(error.columns) for error in errors}
        wanted: dict[tuple[str, ...], tuple[str, ...]] = {alike[1]: ("v",)}
        wanted |= {(str(number),): (column,) for number, column in enumerate(spoiled, 1)}
        assert found == wanted
        assert watched.processed() == 10


@pytest.mark.long
def test_fast_mode_looks_at_existence_alone(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    settings = Settings(task, mariadb_db.url, second_mariadb_db.url)
    plant(mariadb_db, second_mariadb_db, settings)
    with validating(settings, mode="fast", row_error_delay=1.0) as watched:
        errors = watched.until_errors(3)
        watched.until_settled()
        assert sorted(error.kind for error in errors) == ["extra", "extra", "missing"]
        assert len(watched.errors) == 3


def test_floats_may_differ_by_a_tolerance(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    settings = Settings(task, mariadb_db.url, second_mariadb_db.url)
    mariadb_db.execute("CREATE TABLE f (id INT PRIMARY KEY, x DOUBLE)")
    begun(settings)
    mariadb_db.execute("INSERT INTO f VALUES (1, 1e20), (2, 1e-20), (3, 5.0), (4, 1.0)")
    copied(settings)
    second_mariadb_db.execute("UPDATE f SET x = 1.0000001e20 WHERE id = 1")  # a share of 1e-7
    second_mariadb_db.execute("UPDATE f SET x = 3e-20 WHERE id = 2")  # next to nothing
    second_mariadb_db.execute("UPDATE f SET x = 5.1 WHERE id = 3")
    with validating(
        settings, float_tolerance=1e-6, float_absolute=1e-12, row_error_delay=1.0
    ) as watched:
        (error,) = watched.until_errors(1)
        watched.until_settled()
        assert (error.key, error.source, error.target) == ({"id": "3"}, {"x": "5"}, {"x": "5.1"})


def test_a_row_with_a_float_for_a_key_is_repaired(
    spark: SparkSession, mariadb_db: Database, target: Database, task: str
) -> None:
    settings = Settings(task, mariadb_db.url, target.url)
    mariadb_db.execute("CREATE TABLE f (x DOUBLE, n INT, v INT, PRIMARY KEY (x, n))")
    begun(settings)
    mariadb_db.execute("INSERT INTO f VALUES (0.1, 1, 1), (-1e300, 2, 2), (5, 3, 3)")
    copied(settings)
    target.execute("UPDATE f SET v = -v WHERE n < 3")
    with validating(settings, row_error_delay=1.0) as watched:
        errors = watched.until_errors(2)
        assert {error.key["x"] for error in errors} == {"0.1", "-1e+300"}
        repair = plan_repair(settings, errors, spark)
        assert repair.statements == 2
        apply_repair(settings, repair)
        Validations().errors.recheck(task, None)
        watched.until(lambda: not watched.new, "both are right")
    assert target.execute("SELECT v FROM f ORDER BY n") == [(1,), (2,), (3,)]


def test_what_was_seen_in_the_other_mode_is_not_judged() -> None:
    nothing = Relation(parse_endpoint("sqlite:///x.db"), (), (), (), 0)
    check = Check("t", nothing, (), (), (), ())
    ids = pa.chunked_array([["one", "unknown"]])
    fast, full = (Comparer({"one": check}, whole).forms(ids).to_pylist() for whole in (False, True))
    assert None not in (fast[0], full[0])
    assert fast[0] != full[0]
    assert fast[1] is full[1] is None
