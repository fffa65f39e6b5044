"""A run whose verifiers watch: what somebody else did to the target fails it, and its own writes do not."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.servers import Database
from tests.transfer.cutting import HOW, cut_over, wait_until
from tests.transfer.load import fill, writing
from truecopy.engines import connect
from truecopy.engines.lines import transaction
from truecopy.engines.protocols import Statement
from truecopy.model.errors import CannotFinish
from truecopy.transfer.copying import Copying
from truecopy.transfer.deletion import delete_task
from truecopy.transfer.ledger import REPLICATE, TaskLine
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.progress import Progress
from truecopy.transfer.proof.background import Background
from truecopy.transfer.proof.inline import InlineVerifier
from truecopy.transfer.proof.verifier import NotProven, Outcome
from truecopy.transfer.run import Listener, Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.snapshot import Copied

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def watched(source: Database, target: Database, listener: Listener | None = None) -> Transfer:
    return Transfer(watched_settings(source, target), listener)


def watched_settings(source: Database, target: Database) -> Settings:
    verify = ("inline", "target")
    return Settings("watched", source.url, target.url, chunk_rows=500, verify=verify)


@pytest.fixture
def onto_postgres(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> Iterator[Database]:
    """A target whose log does not keep statements, and which a task has copied to."""
    fill(mariadb_db, 200)
    watched(mariadb_db, postgres_db).run(until_caught_up=True)
    yield postgres_db
    delete_task(watched_settings(mariadb_db, postgres_db))  # with its slot


class Lasting:
    """A run that replicates until it fails, or is stopped."""

    def __init__(self, source: Database, target: Database) -> None:
        self._replicates = threading.Event()
        self._transfer = watched(source, target, Listener(progress=self._hear))
        self._thread = threading.Thread(target=self._run)
        self.failures = list[BaseException]()
        self._thread.start()

    def await_replication(self) -> None:
        assert self._replicates.wait(60), self.failures

    def stop(self) -> None:
        self._transfer.stop()
        self._thread.join(60)

    def await_failure(self, seconds: float) -> str:
        self._thread.join(seconds)
        lasts = self._thread.is_alive()
        self.stop()
        assert not lasts, "it went on"
        return str(self.failures[0])

    def _hear(self, progress: Progress) -> None:
        if progress.phase == REPLICATE:
            self._replicates.set()

    def _run(self) -> None:
        try:
            self._transfer.run()
        except CannotFinish as error:
            self.failures.append(error)


@pytest.mark.long
def test_its_own_writes_pass(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 1000)
    with writing(mariadb_db, 1000):
        watched(mariadb_db, second_mariadb_db).run(until_caught_up=True)
    mariadb_db.execute("ALTER TABLE items ADD COLUMN more INT")
    mariadb_db.execute("UPDATE items SET more = 1 WHERE id < 100")
    watched(mariadb_db, second_mariadb_db).run(until_caught_up=True)


def test_a_row_that_somebody_else_wrote_fails_the_run(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 200)
    watched(mariadb_db, second_mariadb_db).run(until_caught_up=True)
    second_mariadb_db.execute("UPDATE items SET name = 'rogue' WHERE id = 7")
    with pytest.raises(NotProven, match="id=7"):
        watched(mariadb_db, second_mariadb_db).run(until_caught_up=True)


class Disturbed(Transfer):
    """Somebody writes to the target between two chunks of the copy."""

    def copying(self, plans: Mapping[str, TablePlan], line: TaskLine) -> Copying:
        target = self._target

        class Between(Copying):
            def _copied(self, *given: Any) -> Iterator[Copied]:
                for copied in super()._copied(*given):
                    yield copied
                    with connect(target) as session, transaction(cast(Any, session)):
                        rogue = "UPDATE items SET name = 'rogue' WHERE id = 7"
                        cast(Any, session).execute(Statement(rogue))

        return Between(self._settings, plans, line)


@pytest.mark.parametrize("target", ["second_mariadb_db", "postgres_db"])
def test_a_row_that_somebody_else_wrote_during_the_copy_fails_it(
    spark: SparkSession, mariadb_db: Database, target: str, request: pytest.FixtureRequest
) -> None:
    """Also where it is a copy alone: nobody would come to read the log later."""
    fill(mariadb_db, 200)
    asked = watched_settings(mariadb_db, request.getfixturevalue(target))
    with pytest.raises(NotProven, match=r"id=7 .* by somebody else"):
        Disturbed(asked).run(snapshot_only=True)
    delete_task(asked)  # with its slot


@pytest.mark.slow
def test_a_rogue_write_ends_a_run_that_replicates(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 200)
    failures = list[BaseException]()

    def run() -> None:
        try:
            watched(mariadb_db, second_mariadb_db).run()
        except CannotFinish as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    phase = "SELECT 1 FROM information_schema.tables WHERE table_name = 'truecopy_task' AND table_schema = DATABASE()"
    with writing(mariadb_db, 200):
        wait_until(lambda: bool(second_mariadb_db.execute(phase)))
        wait_until(
            lambda: second_mariadb_db.execute("SELECT phase FROM truecopy_task") == [("replicate",)]
        )
        time.sleep(5)
        assert not failures
        # One that the application may have written or deleted would be no rogue write.
        second_mariadb_db.execute("INSERT INTO items (id, code) VALUES (900000, 'rogue')")
        thread.join(60)
    assert "id=900000" in str(failures[0])


class Broken(InlineVerifier):
    """Its disk is full."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def work(self) -> Outcome:
        raise self._error


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("database or disk is full"), KeyError("a\nb")], ids=repr
)
def test_a_verifier_that_breaks_fails_the_run(error: Exception) -> None:
    with Background(Broken(error), interval=0.01) as background:
        deadline = time.monotonic() + 10
        while background.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
    with pytest.raises(CannotFinish, match=f"inline.*{type(error).__name__}") as failed:
        background.check()
    assert "\n" not in str(failed.value)


@pytest.mark.long
def test_a_rogue_write_ends_a_run_of_an_idle_source(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 200)
    run = Lasting(mariadb_db, second_mariadb_db)
    run.await_replication()
    second_mariadb_db.execute("DELETE FROM items WHERE id = 7")
    assert "id=7" in run.await_failure(15)


@pytest.mark.long
def test_a_verifier_that_breaks_ends_a_run_of_an_idle_source(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(mariadb_db, 200)
    run = Lasting(mariadb_db, second_mariadb_db)
    run.await_replication()
    monkeypatch.setattr(InlineVerifier, "work", Broken(sqlite3.OperationalError("full")).work)
    assert "inline verifier cannot go on: OperationalError: full" in run.await_failure(15)


@pytest.mark.long
def test_a_table_that_was_altered_while_the_task_stood_fails_the_next_run(
    mariadb_db: Database, onto_postgres: Database
) -> None:
    onto_postgres.execute("CREATE INDEX rogue ON items (name)")
    for _ in range(2):  # until somebody was told of it
        with pytest.raises(
            NotProven, match="items was altered on the target by somebody"
        ) as raised:
            watched(mariadb_db, onto_postgres).run(until_caught_up=True)
    raised.value.told()
    watched(mariadb_db, onto_postgres).run(until_caught_up=True)


@pytest.mark.long
def test_a_truncate_that_we_carry_is_no_rogue_write(
    mariadb_db: Database, onto_postgres: Database
) -> None:
    mariadb_db.execute("TRUNCATE TABLE items")
    mariadb_db.execute("INSERT INTO items (id, code) VALUES (1, 'after')")
    watched(mariadb_db, onto_postgres).run(until_caught_up=True)
    assert onto_postgres.execute("SELECT id, code FROM items") == [(1, "after")]


@pytest.mark.long
def test_columns_that_we_add_are_no_rogue_ddl(
    mariadb_db: Database, onto_postgres: Database
) -> None:
    mariadb_db.execute("ALTER TABLE items ADD COLUMN stood INT")
    run = Lasting(mariadb_db, onto_postgres)
    run.await_replication()
    mariadb_db.execute("ALTER TABLE items ADD COLUMN ran INT")
    mariadb_db.execute("UPDATE items SET stood = 1, ran = 1 WHERE id = 7")
    deadline = time.monotonic() + 60
    asked = "SELECT to_jsonb(items) ->> 'ran' FROM items WHERE id = 7"
    while onto_postgres.execute(asked) != [("1",)] and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(5)  # for some looks at the definitions
    run.stop()
    assert not run.failures
    assert onto_postgres.execute("SELECT stood, ran FROM items WHERE id = 7") == [(1, 1)]


@pytest.mark.long
def test_a_run_goes_on_after_a_rehearsal(mariadb_db: Database, onto_postgres: Database) -> None:
    how = replace(HOW, verify=("inline", "target"))
    settings = watched_settings(mariadb_db, onto_postgres)
    assert cut_over(settings, how, rehearse=True).state == "rehearsed"
    mariadb_db.execute("UPDATE items SET name = 'after' WHERE id = 7")
    watched(mariadb_db, onto_postgres).run(until_caught_up=True)
    onto_postgres.execute("UPDATE items SET name = 'rogue' WHERE id = 8")
    with pytest.raises(NotProven, match="id=8"):
        watched(mariadb_db, onto_postgres).run(until_caught_up=True)
