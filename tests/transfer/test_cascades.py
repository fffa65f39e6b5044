"""`cascades: target`: rows that foreign keys of MariaDB change, and its log does not tell of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import truecopy
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.cascading import TABLES, dump, fill, writing
from tests.transfer.cutting import cut_over
from tests.transfer.killing import kill_all
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.transfer.cutover.settings import NONE, How
from truecopy.transfer.cutover.standing import settings_back
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK = """task: tied
source: {source}
target: {target}
cascades: target
consistency: {consistency}
chunks: {{rows: 50}}
verify: {{inline: true, target: true}}
"""


def settings(source: Database, target: Database, **more: Any) -> Settings:
    return Settings("tied", source.url, target.url, cascades="target", chunk_rows=100, **more)


def assert_equal(source: Database, target: Database) -> None:
    assert dump(target) == dump(source)
    report = truecopy.verify(source.url, target.url, tables=tuple(TABLES))
    assert report.verdict == "equal"


def caught_up(asked: Settings) -> None:
    Transfer(asked).run(until_caught_up=True)


@pytest.mark.long
def test_every_way_in_which_foreign_keys_act(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """One batch has it all, so that the order matters."""
    asked = settings(mariadb_db, second_mariadb_db, verify=("inline", "target"))
    fill(mariadb_db)
    caught_up(asked)
    assert_equal(mariadb_db, second_mariadb_db)
    mariadb_db.execute(
        "DELETE FROM parents WHERE id IN (1, 2);"
        "UPDATE parents SET total = total + 1 WHERE id = 3;"
        "UPDATE parents SET id = 9003 WHERE id = 3;"
        "UPDATE parents SET code = 'other' WHERE id = 4;"
        "UPDATE children SET id = 9010 WHERE id = 15;"
        "DELETE FROM children WHERE id = 16;"
        "BEGIN; DELETE FROM parents WHERE id = 7; INSERT INTO parents VALUES (7, 'c7', 0);"
        "INSERT INTO children VALUES (9007, 7, 'late'); COMMIT;"
        "REPLACE INTO parents VALUES (8, 'c8', 0);"
        "BEGIN; DELETE FROM parents WHERE id = 9; INSERT INTO parents VALUES (9009, 'c9', 0); COMMIT;"
        "UPDATE parents SET id = id + 1 WHERE id > 590 ORDER BY id DESC;"
        "DELETE FROM tree WHERE id = 5; INSERT INTO tree VALUES (5, 1);"
        "SET foreign_key_checks = 0; DELETE FROM parents WHERE id = 12; UPDATE parents SET id = 9013 WHERE id = 13;"
        "SET foreign_key_checks = 1; DELETE FROM alone WHERE id = 1"
    )
    before = dump(mariadb_db)
    assert [row for row in before["children"] if row[1] == 12], "nothing acted there"
    caught_up(asked)
    assert_equal(mariadb_db, second_mariadb_db)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("consistency", ["row", "transaction"])
def test_under_load_until_the_cutover(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, consistency: str
) -> None:
    verify = ("inline", "target")
    asked = settings(mariadb_db, second_mariadb_db, consistency=consistency, verify=verify)
    fill(mariadb_db)
    with writing(mariadb_db, seed=3):
        caught_up(asked)
        caught_up(asked)
    how = How(lock=NONE, max_lag=30.0)
    report = cut_over(asked, how)
    assert report.state == "switched", report.reason
    assert_equal(mariadb_db, second_mariadb_db)
    back = settings_back(asked)
    assert back is not None
    with writing(second_mariadb_db, seed=4):
        time.sleep(1)
    caught_up(back)
    assert_equal(second_mariadb_db, mariadb_db)


def test_a_copy_that_was_stopped_begins_anew(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Rows of two snapshots do not fit together: what is there of the first one goes."""
    asked = settings(mariadb_db, second_mariadb_db)
    fill(mariadb_db)
    caught = Transfer(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("truecopy.transfer.tied.write_chunk", _third_fails(OSError("gone")))
        with pytest.raises(OSError, match="gone"):
            caught.run(until_caught_up=True)
    assert second_mariadb_db.execute("SELECT COUNT(*) FROM truecopy_chunk WHERE copied > 0") == [
        (2,)
    ]
    mariadb_db.execute("DELETE FROM parents WHERE id < 100")
    caught_up(asked)
    assert_equal(mariadb_db, second_mariadb_db)
    positions = (
        "SELECT COUNT(DISTINCT position) FROM truecopy_chunk WHERE source_table NOT LIKE '%.alone'"
    )
    assert second_mariadb_db.execute(positions) == [(1,)]


def test_a_chunk_that_fails_once_is_written_again(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    asked = settings(mariadb_db, second_mariadb_db)
    fill(mariadb_db)
    with pytest.MonkeyPatch.context() as patch:
        lost = CannotFinish("the connection is lost")
        patch.setattr("truecopy.transfer.tied.write_chunk", _third_fails(lost))
        caught_up(asked)
    assert_equal(mariadb_db, second_mariadb_db)


def _third_fails(error: Exception) -> Callable[..., Any]:
    from truecopy.transfer.snapshot import write_chunk

    calls = list[None]()

    def write(*given: Any) -> Any:
        calls.append(None)
        if len(calls) == 3:
            raise error
        return write_chunk(*given)

    return write


def test_foreign_keys_that_act_otherwise_are_refused(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    asked = settings(mariadb_db, second_mariadb_db)
    fill(mariadb_db)
    for name, sql in TABLES.items():
        second_mariadb_db.execute(sql.replace("CASCADE", "SET NULL") if name == "children" else sql)
    with pytest.raises(UsageError, match=r"children on the target lacks .* on delete cascade"):
        caught_up(asked)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed(
    mariadb_db: Database,
    second_mariadb_db: Database,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    record_property("seed", seed)
    dice = random.Random(seed)
    fill(mariadb_db)
    file = tmp_path / "tied.yaml"
    ends = {"source": mariadb_db.url, "target": second_mariadb_db.url}
    file.write_text(TASK.format(**ends, consistency="table"), encoding="utf-8")
    with writing(mariadb_db, seed=dice.randrange(1000)):
        for _ in range(5):
            run = start("run", str(file))
            time.sleep(dice.uniform(4, 20))
            assert run.poll() is None, run.communicate()
            kill_all(run)
    ended = program("run", str(file), "--until-caught-up")
    assert ended.code == 0, ended.err
    assert_equal(mariadb_db, second_mariadb_db)
