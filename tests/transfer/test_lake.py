"""Lakes as targets: a log of Parquet files, and Delta tables with merges."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import truecopy
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.beside import beside
from tests.transfer.checking import check, errors, found
from tests.transfer.killing import kill_all
from tests.transfer.lakes import FORMATS, commits, rows, url
from tests.transfer.load import fill, writing
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.finding import Subject
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.replicate import Replication
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1000


def settings(source: str, target: str, **more: Any) -> Settings:
    return Settings("move", source, target, chunk_rows=300, **more)


def held(database: Database, table: str = "items") -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in database.execute(f"SELECT * FROM {table}"))


def utc(found: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """MariaDB's driver gives instants without their zone."""
    return Counter(
        {
            tuple(v.replace(tzinfo=None) if getattr(v, "tzinfo", None) else v for v in row): count
            for row, count in found.items()
        }
    )


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
def test_mariadb_to_a_lake_under_load(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path, form: str
) -> None:
    fill(mariadb_db, ROWS)
    target = url(tmp_path, form)
    asked = settings(mariadb_db.url, target, delivery="exactly-once", consistency="table")
    with writing(mariadb_db, ROWS):
        first = Transfer(asked).run(until_caught_up=True)
    assert first.tables[f"{mariadb_db.name}.items"].rows_copied > 0
    Transfer(asked).run(until_caught_up=True)
    assert utc(rows(tmp_path, form, "items", "id")) == held(mariadb_db)
    for end in (f"lake:///{tmp_path}", target):
        proof = truecopy.verify(mariadb_db.url, end, tables=("items",))
        assert proof.verdict == "equal"
        assert proof.tables[0].rows_compared == len(held(mariadb_db))
    if form == "delta":
        (line,) = [
            one for one in commits(tmp_path, "items")[0] if one["line"] == "truecopy_progress"
        ]
        assert line["position"]
        assert line["committed_at"] > 0
        assert line["epoch"] >= 1


@pytest.mark.parametrize("form", FORMATS)
def test_a_check_shows_what_is_given_and_refuses_more(
    mariadb_db: Database, tmp_path: Path, form: str
) -> None:
    fill(mariadb_db, 5)
    target = url(tmp_path, form)
    report = check(mariadb_db, target, delivery="exactly-once", consistency="table")
    assert report.is_ready, errors(report)
    assert report.target_level == "logical-clock"
    assert "neither loses nor doubles a change" in str(report.guarantee)
    assert not list(tmp_path.iterdir()), "a check leaves nothing behind"
    more = check(mariadb_db, target, consistency="transaction")
    refused = found(more, Subject.GUARANTEE, "the target bounds its transactions")
    assert refused.remedy == "write consistency: table"
    with pytest.raises(UsageError, match="consistency: transaction cannot be had"):
        Transfer(settings(mariadb_db.url, target, consistency="transaction")).run()
    with pytest.raises(UsageError, match=r"a lake can, with \?format=parquet"):
        check(mariadb_db, f"lake:///{tmp_path}")
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
def test_truncates_new_columns_and_rows_made_on_the_way(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path, form: str
) -> None:
    mariadb_db.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb_db.execute("CREATE TABLE log (what VARCHAR(20))")
    mariadb_db.execute("INSERT INTO items SELECT seq, 'a' FROM seq_1_to_50")
    mariadb_db.execute("INSERT INTO log SELECT 'old' FROM seq_1_to_50")
    document = {
        "task": "move", "source": mariadb_db.url, "target": url(tmp_path, form),
        "delivery": "exactly-once",
        "transformers": {"items": {"filter": "id <> 7"}},
    }  # fmt: skip
    asked = transfer_settings(parse_task(document))
    Transfer(asked).run(until_caught_up=True)
    mariadb_db.execute("ALTER TABLE items ADD COLUMN price DECIMAL(6,2)")
    mariadb_db.execute("INSERT INTO items VALUES (51, 'b', 1.5)")
    mariadb_db.execute("INSERT INTO log VALUES ('old')")
    mariadb_db.execute("UPDATE items SET id = -7 WHERE id = 7")  # enters the filter
    mariadb_db.execute("UPDATE items SET id = 7 WHERE id = 8")  # leaves it
    Transfer(asked).run(until_caught_up=True)
    expected = {row: n for row, n in held(mariadb_db).items() if row[0] != 7}
    assert rows(tmp_path, form, "items", "id") == expected
    assert rows(tmp_path, form, "log") == {("old",): 51}
    mariadb_db.execute("TRUNCATE log")
    mariadb_db.execute("INSERT INTO log VALUES ('new'), ('new')")
    mariadb_db.execute("TRUNCATE items")
    mariadb_db.execute("INSERT INTO items VALUES (1, 'z', NULL)")
    Transfer(asked).run(until_caught_up=True)
    assert rows(tmp_path, form, "items", "id") == {(1, "z", None): 1}
    proof = truecopy.verify(mariadb_db.url, f"lake:///{tmp_path}", tables=("items", "log"))
    assert proof.verdict == "equal"


@pytest.mark.parametrize("form", FORMATS)
def test_long_values_that_postgresql_leaves_out_of_its_log(
    spark: SparkSession, postgres_db: Database, tmp_path: Path, form: str
) -> None:
    postgres_db.execute("CREATE TABLE docs (id int PRIMARY KEY, n numeric(30,2), body text)")
    postgres_db.execute("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL")
    postgres_db.execute(
        "INSERT INTO docs SELECT i, i / 4.0, repeat(i::text, 5000) FROM generate_series(1, 20) i"
    )
    asked = settings(postgres_db.url, url(tmp_path, form))
    Transfer(asked).run(until_caught_up=True)
    postgres_db.execute("UPDATE docs SET n = n + 1 WHERE id > 5")
    Transfer(asked).run(until_caught_up=True)
    assert rows(tmp_path, form, "docs", "id") == held(postgres_db, "docs")


class Failing(Transfer):
    """The target fails when the first changes come, and is well again afterwards."""

    fail: Callable[[], object] = staticmethod(lambda: None)

    def replication(self, *given: Any) -> Replication:
        made = super().replication(*given)
        self.fail()
        return made


@pytest.mark.long
@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once", "exactly-once"])
def test_what_each_delivery_does_when_the_target_fails(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path, delivery: str
) -> None:
    mariadb_db.execute("CREATE TABLE seen (who INT, what VARCHAR(20))")
    mariadb_db.execute("INSERT INTO seen SELECT seq % 3, 'old' FROM seq_1_to_30")
    asked = settings(mariadb_db.url, url(tmp_path, "delta"), delivery=delivery, consistency="row")
    Transfer(asked).run(until_caught_up=True)
    mariadb_db.execute("INSERT INTO seen VALUES (1, 'while it failed'), (1, 'while it failed')")
    description = tmp_path / "seen" / "_truecopy.json"
    away = tmp_path / "seen" / "_away.json"
    transfer = Failing(asked)
    transfer.fail = lambda: description.rename(away)
    with pytest.raises(TruecopyError):
        transfer.run(until_caught_up=True)
    away.rename(description)
    mariadb_db.execute("INSERT INTO seen VALUES (2, 'afterwards')")
    Transfer(asked).run(until_caught_up=True)
    lost = held(mariadb_db, "seen") - rows(tmp_path, "delta", "seen")
    assert not rows(tmp_path, "delta", "seen") - held(mariadb_db, "seen"), "nothing comes twice"
    if delivery == "at-most-once":
        assert lost == {(1, "while it failed"): 2}, "its progress was noted first"
    else:
        assert not lost


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
def test_readers_see_only_states_that_the_source_had(
    spark: SparkSession, mariadb_db: Database, tmp_path: Path, form: str
) -> None:
    """Money moves between accounts in transactions: in every version of the table the sum is the same."""
    mariadb_db.execute("CREATE TABLE accounts (id INT PRIMARY KEY, money INT)")
    mariadb_db.execute("INSERT INTO accounts SELECT seq, 100 FROM seq_1_to_40")
    asked = settings(mariadb_db.url, url(tmp_path, form), consistency="table")
    Transfer(asked).run(until_caught_up=True)
    since = len(steps(tmp_path, form))
    with moving(mariadb_db):
        for _ in range(2):
            time.sleep(1)  # some transactions
            Transfer(asked).run(until_caught_up=True)
    states = steps(tmp_path, form)[since:]
    assert len(states) >= 2
    for state in states:
        assert (len(state), sum(money for _, money in state)) == (40, 4000)


def steps(folder: Path, form: str) -> list[list[tuple[int, int]]]:
    """The rows of the table after each step."""
    if form == "delta":
        newest = DeltaTable(folder / "accounts").version()
        found = []
        for version in range(newest + 1):
            table = DeltaTable(folder / "accounts", version=version).to_pyarrow_table()
            found.append([(row["id"], row["money"]) for row in table.to_pylist()])
        return found
    files = sorted((folder / "accounts").glob("*.parquet"))
    found, now = [], dict[int, int]()
    for file in files:
        for row in pq.read_table(file).to_pylist():
            now.pop(row["id"], None)
            if row["truecopy_kind"] != "delete":
                now[row["id"]] = row["money"]
        found.append(list(now.items()))
    return found


@contextmanager
def moving(database: Database) -> Iterator[None]:

    def move(stop: threading.Event) -> None:
        dice = random.Random(3)
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                one, other, some = dice.randrange(1, 41), dice.randrange(1, 41), dice.randrange(9)
                cursor.execute("BEGIN")
                cursor.execute("UPDATE accounts SET money = money - %s WHERE id = %s", (some, one))
                cursor.execute(
                    "UPDATE accounts SET money = money + %s WHERE id = %s", (some, other)
                )
                cursor.execute("COMMIT")
                time.sleep(0.003)

    with beside(move):
        yield


TASK = """task: move
source: {source}
target: {target}
chunks: {{rows: 500}}
delivery: exactly-once
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("times", [1, 10])
@pytest.mark.timeout(1800)
def test_killed(mariadb_db: Database, tmp_path: Path, form: str, times: int) -> None:
    """Nothing is lost and nothing comes twice, with a key and without one."""
    fill(mariadb_db, 5000)
    mariadb_db.execute("CREATE TABLE seen (who INT, what VARCHAR(20))")
    mariadb_db.execute("INSERT INTO seen SELECT seq % 3, 'old' FROM seq_1_to_5000")
    lake = tmp_path / "lake"
    lake.mkdir()
    file = tmp_path / "move.yaml"
    file.write_text(TASK.format(source=mariadb_db.url, target=url(lake, form)), encoding="utf-8")
    dice = random.Random(times)
    with writing(mariadb_db, 5000), inserting(mariadb_db):
        for _ in range(times):
            run = start("run", str(file))
            until = time.monotonic() + 120
            while not list(lake.glob("*/*.parquet")) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(dice.uniform(0, 8))
            assert run.poll() is None, run.communicate()
            kill_all(run)
    ended = program("run", str(file), "--until-caught-up")
    assert ended.code == 0, ended.err
    assert utc(rows(lake, form, "items", "id")) == held(mariadb_db)
    assert rows(lake, form, "seen") == held(mariadb_db, "seen")
    tables = ("--table", "items", "--table", "seen")
    proof = program("verify", mariadb_db.url, f"lake:///{lake}", *tables, "--json")
    assert proof.document["verdict"] == "equal", proof.document
    stands = program("status", str(file), "--json").document
    assert stands["guarantee"]["text"].endswith("a crash neither loses nor doubles a change")
    assert all(table["version"] for table in stands["tables"].values())


@contextmanager
def inserting(database: Database) -> Iterator[None]:

    def insert(stop: threading.Event) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            count = 0
            while not stop.is_set():
                count += 1
                cursor.execute("INSERT INTO seen VALUES (%s, 'new'), (1, 'new')", (count % 4,))
                connection.commit()
                time.sleep(0.01)

    with beside(insert):
        yield
