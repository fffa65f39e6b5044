"""Copy and replicate under load; resume; late attempts; what each delivery promises."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import truecopy
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.load import fill, writing
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.transfer.ledger import Ledger, Overtaken
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000


def settings(source: str, target: str, **more: Any) -> Settings:
    return Settings("move", source, target, chunk_rows=500, **more)


def is_equal(source: Database, target: Database) -> bool:
    return truecopy.verify(source.url, target.url, tables=("items",)).verdict == "equal"


@pytest.mark.parametrize(
    "consistency",
    [
        "row",
        pytest.param("table", marks=pytest.mark.slow),
        pytest.param("transaction", marks=pytest.mark.slow),
    ],
)
def test_mariadb_to_mariadb_under_load(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, consistency: str
) -> None:
    fill(mariadb_db, ROWS)
    asked = settings(mariadb_db.url, second_mariadb_db.url, consistency=consistency)
    with writing(mariadb_db, ROWS):
        first = Transfer(asked).run(until_caught_up=True)
    assert first.tables[f"{mariadb_db.name}.items"].rows_copied > 0
    Transfer(asked).run(until_caught_up=True)
    assert is_equal(mariadb_db, second_mariadb_db)


def test_mariadb_to_postgresql_under_load(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    fill(mariadb_db, ROWS)
    asked = settings(mariadb_db.url, postgres_db.url)
    with writing(mariadb_db, ROWS):
        Transfer(asked).run(until_caught_up=True)
    Transfer(asked).run(until_caught_up=True)
    assert is_equal(mariadb_db, postgres_db)
    indexes = postgres_db.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'items'")
    assert indexes[0][0] == 2, "the unique index is built after the replay"


def test_postgresql_as_a_source_is_refused(postgres_db: Database, mariadb_db: Database) -> None:
    with pytest.raises(UsageError, match="not carried yet"):
        Transfer(settings(postgres_db.url, mariadb_db.url)).run(snapshot_only=True)


def test_a_target_that_is_not_empty_is_refused(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 10)
    fill(second_mariadb_db, 1)
    with pytest.raises(UsageError, match="not empty"):
        Transfer(settings(mariadb_db.url, second_mariadb_db.url)).run(snapshot_only=True)


def test_a_run_that_was_overtaken_cannot_write(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """A driver, or a task attempt, that wakes up after its replacement finds no line to move."""
    with connect(parse_endpoint(second_mariadb_db.url)) as session:
        ledger = Ledger(cast(Any, session), "move")
        ledger.create()
        old = ledger.claim({})
        ledger.open_part("shop", "0-1-1", 0, old.epoch)
        new = ledger.claim({})
        assert new.epoch == old.epoch + 1
        session_ = cast(Any, session)
        session_.begin()
        with pytest.raises(Overtaken):
            ledger.advance("shop", "0-1-1", "0-1-2", 0, old.epoch)
        session_.rollback()
        session_.begin()
        assert ledger.advance("shop", "0-1-1", "0-1-2", 0, new.epoch)
        session_.commit()
        session_.begin()
        assert not ledger.advance("shop", "0-1-1", "0-1-2", 0, new.epoch), "done already"
        session_.rollback()


def test_run_from_a_task_file(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db, 200)
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"task: shop\nsource: {mariadb_db.url}\ntarget: {second_mariadb_db.url}\n", encoding="utf-8"
    )
    ended = program("run", str(file), "--until-caught-up", "--json")
    assert ended.code == 0, ended.err
    document = ended.document
    assert document["task"] == "shop"
    assert document["tables"][f"{mariadb_db.name}.items"]["rows_copied"] == 200
    mariadb_db.execute("DELETE FROM items WHERE id <= 50")
    again = program("run", str(file), "--until-caught-up", "--json")
    assert again.document["tables"][f"{mariadb_db.name}.items"]["changes_applied"] == 50
    assert is_equal(mariadb_db, second_mariadb_db)
