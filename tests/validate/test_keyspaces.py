"""Validation of a task with a keyspace: each leg knows which rows are its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database, Server
from tests.transfer.sharded import fill, keyspace, legs_of, shards_of, task_file, write
from tests.validate.watching import beside, wait_for
from truecopy.metastore.validation_errors import NEW
from truecopy.metastore.validations import Validations
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.together import run_validators
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.fleet import Fleet
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def shards(second_mariadb_server: Server) -> Iterator[dict[str, Database]]:
    with shards_of(second_mariadb_server) as made:
        yield made


def validated(legs: tuple[Settings, ...], wrong: int) -> dict[str, list[tuple[str, str | None]]]:
    """The errors of each leg, once there are so many, and nothing is pending."""
    options = ContinuousOptions(validate_interval=1.0, row_error_delay=1.0)
    validators = [Validator(leg, options) for leg in legs]
    store = Validations()

    def found() -> dict[str, list[tuple[str, str | None]]]:
        return {
            leg.task: sorted((e.kind, e.key["id"]) for e in store.errors.of(leg.task, (NEW,)))
            for leg in legs
        }

    def stop() -> None:
        for validator in validators:
            validator.stop()

    with beside(lambda: run_validators(validators), stop):
        wait_for(lambda: sum(map(len, found().values())) >= wrong)
        wait_for(lambda: not sum(store.pending(leg.task).total for leg in legs))
        return found()


def begun(legs: tuple[Settings, ...]) -> None:
    for leg in legs:
        Validator(leg, ContinuousOptions()).begin()


def test_a_database_that_is_split(
    spark: SparkSession,
    mariadb_db: Database,
    shards: dict[str, Database],
    tmp_path: Path,
    task: str,
) -> None:
    fill(mariadb_db)
    legs = legs_of(task_file(tmp_path, mariadb_db.url, keyspace(shards), task=task))
    Fleet(legs).run(until_caught_up=True)
    begun(legs)
    write(mariadb_db)
    mariadb_db.execute("UPDATE account SET code = CONCAT('z', id)")
    Fleet(legs).run(until_caught_up=True)
    low, high = (shards[shard].execute("SELECT MIN(id) FROM account") for shard in ("-80", "80-"))
    shards["-80"].execute("DELETE FROM account WHERE id = %s", low[0])
    shards["80-"].execute("UPDATE account SET code = 'wrong' WHERE id = %s", high[0])
    assert validated(legs, 2) == {
        f"{task}:-80": [("missing", str(low[0][0]))],
        f"{task}:80-": [("differs", str(high[0][0]))],
    }


def test_two_shards_that_are_merged(
    spark: SparkSession,
    mariadb_db: Database,
    shards: dict[str, Database],
    tmp_path: Path,
    task: str,
) -> None:
    for shard, database in shards.items():
        fill(database, shard)
    legs = legs_of(task_file(tmp_path, keyspace(shards), mariadb_db.url, task=task))
    Fleet(legs).run(until_caught_up=True)
    begun(legs)
    for seed, (shard, database) in enumerate(shards.items()):
        write(database, shard, seed)
        database.execute("UPDATE account SET code = CONCAT('z', id)")
    Fleet(legs).run(until_caught_up=True)
    ((one,),) = shards["80-"].execute("SELECT MIN(id) FROM account")
    mariadb_db.execute("UPDATE account SET code = 'wrong' WHERE id = %s", (one,))
    found = validated(legs, 1)
    assert sorted(found.values()) == [[], [("differs", str(one))]]
    # The other shard's row is no business of a leg, though it lies in the same table.
    assert next(leg for leg, errors in found.items() if errors).startswith(f"{task}:80-")
