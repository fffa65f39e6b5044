"""What a validation waits for, and tables that stand still: nothing is judged too early, or passed over unsaid."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database
from tests.validate.watching import begun, beside, copied, validating, wait_for
from truecopy.metastore.validations import Stage, Validations
from truecopy.model.errors import UsageError
from truecopy.transfer.continuous.options import LAG, ContinuousOptions
from truecopy.transfer.continuous.standing import read_validation
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_a_column_that_the_target_gets_later_is_compared(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    for database in (source, target):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    with validating(settings, row_error_delay=1.0, applied=LAG, lag=0.0) as watched:
        watched.until(lambda: watched.standing.plain()["applied_by"] == "lag", "it runs")
        stage = f"{source.name}.t"
        with watched.between_checks:
            source.execute("ALTER TABLE t ADD COLUMN late INT")
            source.execute("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
            watched.until(lambda: "late" in watched.standing.tables[stage].message, "it is read")
            target.execute("ALTER TABLE t ADD COLUMN late INT")
            target.execute("INSERT INTO t VALUES (1, 1, 1), (2, 2, -2)")
        (error,) = watched.until_errors(1)
        assert (error.key, error.columns) == ({"id": "2"}, ["late"])
        assert watched.standing.tables[stage].message == ""


def test_a_table_that_stood_still_is_taken_up_without_a_false_alarm(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    for name in ("still", "good"):
        source.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO still VALUES (1, 1), (2, 2)")
    copied(settings)
    target.execute("UPDATE still SET v = -1")
    with validating(settings, row_error_delay=600.0) as watched:
        watched.until(lambda: watched.standing.pending.failed["insert"] == 2, "both rows fail")
    target.execute("RENAME TABLE still TO away")
    stage = f"{source.name}.still"
    with validating(settings, row_error_delay=1.0) as watched:
        watched.until(lambda: watched.standing.tables[stage].stage == "stopped", "it stops")
    target.execute("RENAME TABLE away TO still")
    source.execute("UPDATE still SET v = 7")
    source.execute("INSERT INTO good VALUES (1, 1)")
    copied(settings)
    target.execute("RENAME TABLE still TO away")
    with validating(settings, row_error_delay=1.0) as watched:
        watched.until_processed(3)
    target.execute("RENAME TABLE away TO still")
    with validating(settings, row_error_delay=1.0) as watched:
        watched.until(lambda: watched.standing.tables[stage].stage == "running", "it goes on")
        assert "stood still" in watched.standing.tables[stage].message
        source.execute("INSERT INTO good VALUES (2, 2)")
        target.execute("INSERT INTO good VALUES (2, 2)")
        copied(settings)
        watched.until_processed(4)
        watched.until_settled()
        time.sleep(3)
        assert watched.new == []
    # Nothing else tells of the gap: it is said as long as the validation goes on from there.
    with validating(settings) as watched:
        watched.until(lambda: bool(watched.standing.standing.report), "it runs again")
        assert "stood still" in watched.standing.tables[stage].message
    with validating(settings, "current") as watched:
        anew = Stage(stage)
        watched.until(lambda: watched.standing.tables.get(stage) == anew, "all begins anew")


def test_errors_of_a_table_that_stood_still_resolve_by_a_look_at_both_sides(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE still (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO still VALUES (1, 1), (2, 2), (3, 3)")
    copied(settings)
    target.execute("UPDATE still SET v = -1")
    with validating(settings, row_error_delay=1.0) as watched:
        watched.until_errors(3)
    target.execute("RENAME TABLE still TO away")
    stage = f"{source.name}.still"
    with validating(settings, row_error_delay=1.0) as watched:
        watched.until(lambda: watched.standing.tables[stage].stage == "stopped", "it stops")
    target.execute("RENAME TABLE away TO still")
    # Not what the change said that had failed, and right all the same.
    for database in (source, target):
        database.execute("UPDATE still SET v = 7 WHERE id = 1")
    with validating(settings, row_error_delay=1.0) as watched:
        watched.until(lambda: len(watched.new) == 2, "what is equal is resolved", 60)
        assert {error.key["id"] for error in watched.new} == {"2", "3"}
        target.execute("UPDATE still SET v = id WHERE id = 2")
        Validations().errors.recheck(task, None)
        watched.until(lambda: len(watched.new) == 1, "it is looked at when that is asked for", 60)
    target.execute("UPDATE still SET v = id WHERE id = 3")
    with validating(settings, row_error_delay=1.0) as watched:
        watched.until(lambda: not watched.new, "each start looks at what is left", 60)


def test_an_error_is_let_go_of_though_its_table_stands_still(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target, store = mariadb_db, second_mariadb_db, Validations()
    for name in ("still", "good"):
        source.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO still VALUES (1, 1), (2, 2)")
    copied(settings)
    target.execute("UPDATE still SET v = -1")
    with validating(settings, row_error_delay=1.0) as watched:
        one, _ = watched.until_errors(2)
    target.execute("DROP TABLE still")
    with validating(settings, row_error_delay=1.0) as watched:
        stage = f"{source.name}.still"
        watched.until(lambda: watched.standing.tables[stage].stage == "stopped", "it stops")
        assert watched.standing.pending.errors == 2
        store.errors.clear(task, [one.id])
        watched.until(lambda: not store.errors.wishes(task), "the wish was followed", 60)
        assert watched.standing.pending.errors == 1
        assert len(watched.errors) == 1


def test_it_is_heard_of_while_it_waits_and_empties_nothing_too_early(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO t VALUES (1, 1)")
    copied(settings)
    target.execute("UPDATE t SET v = -1")
    with validating(settings, row_error_delay=1.0) as watched:
        (error,) = watched.until_errors(1)
        source.execute("TRUNCATE TABLE t")
        watched.until(
            lambda: "waits for the replication" in (watched.standing.plain()["waits"] or ""),
            "it waits",
        )
        heard = watched.standing.standing.heard_at
        watched.until(lambda: watched.standing.standing.heard_at > heard, "it is heard of", 10)
        assert (watched.standing.plain()["lag_seconds"] or 0) > 0
        Validations().errors.recheck(task, None)
        watched.until(lambda: not Validations().errors.wishes(task), "it was looked at again")
        assert [one.kind for one in watched.errors] == [error.kind] == ["differs"]
        copied(settings)
        watched.until(lambda: not watched.new, "the emptied table has no wrong rows")


def test_it_is_not_called_near_before_it_has_read_what_there_is(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    for database in (source, target):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = Settings(task, source.url, target.url)
    Validator(settings, ContinuousOptions()).begin()
    for database in (source, target):
        database.execute("INSERT INTO t VALUES (1)")
    time.sleep(1)
    with validating(settings, validate_interval=4.0, applied=LAG, lag=0.0) as watched:
        told = list[float]()
        while watched.processed() == 0:
            found = watched.standing
            if found.lag_seconds is not None and found.standing.processed["insert"] == 0:
                told.append(found.lag_seconds)
            time.sleep(0.2)
        assert told
        assert min(told) > 0
        watched.until(lambda: watched.standing.lag_seconds == 0, "all is checked", 60)


def test_a_message_is_kept_though_nothing_else_changes(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, other INT NOT NULL)")
    settings = Settings(task, source.url, target.url)
    copied(settings)
    with validating(settings) as watched:
        watched.until(lambda: watched.standing.plain()["applied_by"] == "task", "it runs")
        source.execute("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (other)")
        source.execute("INSERT INTO t VALUES (1, 1)")
        stage = f"{source.name}.t"
        watched.until(lambda: watched.standing.tables[stage].stage == "stopped", "it stops", 60)
        assert "key changed" in watched.standing.tables[stage].message


def test_a_table_that_stops_while_its_changes_are_held_disturbs_nobody(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    for database in (source, target):
        database.execute("CREATE TABLE rekeyed (id INT PRIMARY KEY, other INT NOT NULL)")
        database.execute("CREATE TABLE good (id INT PRIMARY KEY)")
    said = list[str]()
    options = ContinuousOptions(validate_interval=3600.0, validate_changes=4, applied=LAG, lag=0.0)
    validator = Validator(Settings(task, source.url, target.url), options, said.append)

    def report(name: str) -> Any:
        found = Validations().find(task)
        return found.report.get(name) if found else None

    with beside(validator.run, validator.stop):
        wait_for(lambda: report("applied_by") == "lag")
        source.execute("INSERT INTO rekeyed VALUES (1, 1)")
        source.execute("INSERT INTO good VALUES (1)")
        wait_for(lambda: report("held_changes") == 2)
        source.execute("ALTER TABLE rekeyed DROP PRIMARY KEY, ADD PRIMARY KEY (other)")
        source.execute("INSERT INTO rekeyed VALUES (2, 2)")
        stages = Validations().stages
        wait_for(lambda: stages(task)[f"{source.name}.rekeyed"].stage == "stopped", 60)
        source.execute("INSERT INTO good VALUES (2), (3)")
        wait_for(lambda: read_validation(task).standing.processed["insert"] == 3, 60)
    assert said == []


def test_a_table_that_may_not_be_read_stops_alone(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    for database in (source, target):
        for name in ("good", "hidden"):
            database.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
    user = f"u{task[-8:]}"
    target.execute(f"CREATE USER {user}@'%' IDENTIFIED BY 'only-here'")
    target.execute(f"GRANT SELECT ON {target.name}.good TO {user}@'%'")
    target.execute(f"GRANT INSERT ON {target.name}.hidden TO {user}@'%'")
    where = target.url.rpartition("@")[2]
    settings = Settings(task, source.url, f"mariadb://{user}:only-here@{where}")
    with validating(settings, row_error_delay=1.0, applied=LAG, lag=0.0) as watched:
        watched.until(lambda: watched.standing.plain()["applied_by"] == "lag", "it runs")
        for name in ("good", "hidden"):
            source.execute(f"INSERT INTO {name} VALUES (1, 1)")
        (error,) = watched.until_errors(1)
        assert (error.table, error.kind) == (f"{source.name}.good", "missing")
        hidden = watched.standing.tables[f"{source.name}.hidden"]
        assert hidden.stage == "stopped"
        assert "SELECT" in hidden.message
        assert watched.standing.state == "running"


def test_it_begins_elsewhere_only_when_no_error_is_open(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, task: str
) -> None:
    source, target = mariadb_db, second_mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("INSERT INTO t VALUES (1, 1)")
    copied(settings)
    target.execute("UPDATE t SET v = -1")
    with validating(settings, row_error_delay=1.0) as watched:
        watched.until_errors(1)
    with pytest.raises(UsageError, match=r"1 errors of .* are open"):
        Validator(settings, ContinuousOptions()).begin("current")
    Validations().errors.clear(task, None)
    Validator(settings, ContinuousOptions()).begin("current")


def test_what_the_log_leaves_out_is_not_compared(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database, task: str
) -> None:
    source, target = postgres_db, mariadb_db
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT, big TEXT)")
    source.execute("ALTER TABLE t ALTER COLUMN big SET STORAGE EXTERNAL")
    source.execute("INSERT INTO t SELECT n, n, repeat('x', 9000) FROM generate_series(1, 2) AS n")
    settings = Settings(task, source.url, target.url)
    begun(settings)
    source.execute("UPDATE t SET v = v + 10")  # `big` stays, and is not in the log
    copied(settings)
    target.execute("UPDATE t SET v = -1 WHERE id = 2")
    with validating(settings, row_error_delay=1.0) as watched:
        (error,) = watched.until_errors(1)
        watched.until_processed(2)
        watched.until_settled()
        assert (error.key, error.columns) == ({"id": "2"}, ["v"])


@pytest.mark.parametrize(("seconds", "is_kept"), [(3600.0, False), (1.0, True)])
def test_how_far_it_is_is_kept_now_and_then_while_nothing_is_to_be_checked(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    task: str,
    seconds: float,
    is_kept: bool,
) -> None:
    source = mariadb_db
    for database in (source, second_mariadb_db):
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    source.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    settings = Settings(task, source.url, second_mariadb_db.url, tables=("t",))
    with validating(settings, meta_flush_interval=seconds, applied=LAG) as watched:
        watched.until(lambda: bool(watched.standing.plain()["applied_by"]), "it runs")
        before = watched.standing.standing
        source.execute("INSERT INTO other VALUES (1)")
        watched.until(
            lambda: watched.standing.standing.report["checked"] != before.report["checked"],
            "the log is read",
        )
        time.sleep(4)
        assert (watched.standing.standing.position != before.position) == is_kept
