"""`truecopy check` on MariaDB: each thing that may be wrong, made wrong for real."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers import Database
from tests.transfer.checking import check, errors, found, state, warnings
from tests.transfer.load import fill
from tests.verify.users import reader
from truecopy.mapping.plan import MappingRules
from truecopy.mapping.routes import Route
from truecopy.model.finding import Level, Subject
from truecopy.transfer.preflight.report import Report

WRITE = "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, ALTER, REFERENCES ON {db}.* TO {user}"


def test_a_plain_task_is_ready_and_nothing_is_changed(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 100)
    before = state(mariadb_db), state(second_mariadb_db)
    report = check(mariadb_db, second_mariadb_db)
    assert report.is_ready, errors(report)
    assert not warnings(report)
    assert report.estimate.rows == 100
    assert report.tables == ((f"{mariadb_db.name}.items", "items", False),)
    assert (report.source_level, report.target_level) == ("transaction", "transaction")
    assert str(report.guarantee).startswith("at-least-once, consistent by row")
    assert (state(mariadb_db), state(second_mariadb_db)) == before


def test_tables_that_are_not_there_or_not_empty(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 3)
    fill(second_mariadb_db, 1)
    report = check(mariadb_db, second_mariadb_db, tables=("items", "itens", "no_*"))
    assert found(report, Subject.TABLES, "is not empty").level is Level.ERROR
    wrong = found(report, Subject.TABLES, "names itens")
    assert (wrong.level, wrong.remedy) == (Level.ERROR, "did you mean items?")
    assert found(report, Subject.TABLES, "called no_*").level is Level.WARNING


def test_a_task_that_is_running_may_have_filled_its_tables(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 3)
    fill(second_mariadb_db, 3)
    second_mariadb_db.execute(
        "CREATE TABLE truecopy_task (task VARCHAR(190) PRIMARY KEY, phase VARCHAR(20), origin TEXT, epoch BIGINT);"
        "CREATE TABLE truecopy_chunk (task VARCHAR(190), source_table VARCHAR(190), number INT, bounds TEXT,"
        " copied BIGINT);"
        f"INSERT INTO truecopy_chunk VALUES ('move', '{mariadb_db.name}.items', 0, '', 3)"
    )
    assert check(mariadb_db, second_mariadb_db).is_ready
    mariadb_db.execute("CREATE TABLE later (id INT PRIMARY KEY)")
    report = check(mariadb_db, second_mariadb_db)
    assert found(report, Subject.TABLES, "was not there when move copied").table.endswith("later")


def test_what_the_target_adds_to_a_table(mariadb_db: Database, second_mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c VARCHAR(9))")
    mariadb_db.execute("INSERT INTO t VALUES (1, 1, 1, NULL), (2, 1, 2, 'x')")
    second_mariadb_db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT UNIQUE, b INT UNIQUE, c VARCHAR(5) NOT NULL,"
        " lonely INT NOT NULL, filled INT NOT NULL DEFAULT 1);"
        "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1"
    )
    report = check(mariadb_db, second_mariadb_db)
    assert found(report, Subject.KEYS, "unique by (a)").level is Level.ERROR, "rows share a value"
    assert found(report, Subject.KEYS, "unique by (b)").level is Level.WARNING
    trigger = found(report, Subject.TRIGGERS, "tr (BEFORE INSERT)")
    assert trigger.level is Level.ERROR
    assert trigger.remedy.startswith(f"DROP TRIGGER `{second_mariadb_db.name}`.`tr`")
    assert found(report, Subject.TYPES, "lonely is only on the target").level is Level.ERROR
    assert found(report, Subject.TYPES, "filled is only on the target").level is Level.INFO
    assert found(report, Subject.TYPES, "c holds NULL").level is Level.ERROR
    narrow = found(report, Subject.TYPES, "more than 5 characters")
    second_mariadb_db.execute(narrow.remedy)
    report = check(mariadb_db, second_mariadb_db)
    assert not [line for line in warnings(report) if "characters" in line]
    assert not [line for line in errors(report) if "c holds NULL" in line], "one remedy for both"


def test_keys_and_collations(mariadb_db: Database, second_mariadb_db: Database) -> None:
    mariadb_db.execute(
        "CREATE TABLE bare (a INT);"
        "CREATE TABLE other (id INT PRIMARY KEY, a INT);"
        "CREATE TABLE texts (t VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY,"
        " u VARCHAR(20) COLLATE utf8mb4_bin UNIQUE)"
    )
    second_mariadb_db.execute(
        "CREATE TABLE other (id INT, a INT);"
        "CREATE TABLE texts (t VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY,"
        " u VARCHAR(20) COLLATE utf8mb4_general_ci UNIQUE)"
    )
    report = check(mariadb_db, second_mariadb_db)
    (refused,) = errors(report)
    assert "takes the place of the first" in refused, "a key that the target does not tell apart"
    assert found(report, Subject.KEYS, "it has no key").table.endswith("bare")
    assert found(report, Subject.KEYS, "has no such key").table.endswith("other")
    assert "accents or case" in found(report, Subject.COLLATIONS, "t is unique").message
    assert "the second is refused" in found(report, Subject.COLLATIONS, "u is unique").message


def test_foreign_keys(mariadb_db: Database, second_mariadb_db: Database) -> None:
    mariadb_db.execute(
        "CREATE TABLE parents (id INT PRIMARY KEY);"
        "CREATE TABLE strict (id INT PRIMARY KEY, parent INT REFERENCES parents (id));"
        "CREATE TABLE children (id INT PRIMARY KEY, parent INT REFERENCES parents (id) ON DELETE CASCADE)"
    )
    report = check(mariadb_db, second_mariadb_db)
    cascade = found(report, Subject.LOG, "ON DELETE CASCADE")
    assert cascade.level is Level.ERROR
    assert "cascades=target" in cascade.remedy
    report = check(mariadb_db, second_mariadb_db, tables=("strict",))
    assert report.is_ready, errors(report)
    assert "leaves behind" in found(report, Subject.REFERENCES, "refers to").message


def test_cascades_by_the_target(
    mariadb_db: Database, second_mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute(
        "CREATE TABLE parents (id INT PRIMARY KEY); CREATE TABLE others (id INT PRIMARY KEY);"
        "CREATE TABLE children (id INT PRIMARY KEY, parent INT REFERENCES parents (id) ON DELETE CASCADE)"
    )

    def told(target: Database, **more: Any) -> Report:
        return check(mariadb_db, target, cascades="target", **more)

    report = told(second_mariadb_db)
    assert report.is_ready, errors(report)
    tied = [f.table for f in report.findings if "out of one snapshot" in f.message]
    assert sorted(tied) == [f"{mariadb_db.name}.{name}" for name in ("children", "parents")]
    for target, more, said in (
        (second_mariadb_db, {"tables": ("children",)}, "its rows go or change with"),
        (second_mariadb_db, {"delivery": "at-most-once"}, "rows may be missing"),
        (postgres_db, {}, "cannot cascade as the source does"),
    ):
        asked: dict[str, Any] = more
        refused = found(told(target, **asked), Subject.REFERENCES, said)
        assert refused.level is Level.ERROR
        assert refused.remedy


def test_a_target_whose_references_lead_elsewhere(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, parent INT)")
    second_mariadb_db.execute(
        "CREATE TABLE parents (id INT PRIMARY KEY);"
        "CREATE TABLE t (id INT PRIMARY KEY, parent INT REFERENCES parents (id))"
    )
    report = check(mariadb_db, second_mariadb_db)
    assert "does not fill" in found(report, Subject.REFERENCES, "parents").message


def test_tables_without_transactions(mariadb_db: Database, second_mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY) ENGINE = MyISAM")
    second_mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY) ENGINE = Aria")
    report = check(mariadb_db, second_mariadb_db)
    assert found(report, Subject.TABLES, "MyISAM").level is Level.WARNING
    assert found(report, Subject.TABLES, "Aria").level is Level.ERROR


def test_settings_of_the_servers(mariadb_db: Database, second_mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP)")
    mode = second_mariadb_db.execute("SELECT @@global.sql_mode")[0][0]
    second_mariadb_db.execute(
        "SET GLOBAL local_infile = 0, GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES', GLOBAL time_zone = '+02:00'"
    )
    try:
        report = check(mariadb_db, second_mariadb_db)
    finally:
        second_mariadb_db.execute(
            "SET GLOBAL local_infile = 1, GLOBAL sql_mode = %s, GLOBAL time_zone = 'SYSTEM'",
            (mode,),
        )
    bulk = found(report, Subject.SETTINGS, "local_infile")
    assert (bulk.level, bulk.remedy) == (Level.ERROR, "SET GLOBAL local_infile = 1")
    modes = found(report, Subject.SETTINGS, "sql_mode")
    assert modes.level is Level.WARNING
    assert "NO_BACKSLASH_ESCAPES, STRICT_TRANS_TABLES" in modes.message
    assert "+02:00" in found(report, Subject.TIME, "sessions").message


def test_formats_and_retention_of_the_log(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    mariadb_db.execute("INSERT INTO t SELECT seq FROM seq_1_to_60000")
    mariadb_db.execute(
        "SET GLOBAL binlog_row_image = 'MINIMAL', GLOBAL binlog_expire_logs_seconds = 1"
    )
    try:
        report = check(mariadb_db, second_mariadb_db)
    finally:
        mariadb_db.execute(
            "SET GLOBAL binlog_row_image = 'FULL', GLOBAL binlog_expire_logs_seconds = 0"
        )
    image = found(report, Subject.LOG, "MINIMAL")
    assert (image.level, image.remedy[:24]) == (Level.ERROR, "SET GLOBAL binlog_row_im")
    short = found(report, Subject.LOG, "too short")
    assert short.level is Level.ERROR
    assert short.remedy.startswith("SET GLOBAL binlog_expire_logs_seconds")
    assert check(mariadb_db, second_mariadb_db).is_ready, "kept for ever"


def test_the_log_of_a_target_that_is_watched(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    mariadb_db.execute("INSERT INTO t SELECT seq FROM seq_1_to_60000")
    watching = {"verify": ("inline", "target")}
    assert check(mariadb_db, second_mariadb_db, **watching).is_ready
    second_mariadb_db.execute(
        "SET GLOBAL binlog_annotate_row_events = OFF, GLOBAL binlog_format = 'STATEMENT',"
        " GLOBAL binlog_expire_logs_seconds = 1"
    )
    try:
        report = check(mariadb_db, second_mariadb_db, **watching)
        second_mariadb_db.execute("SET GLOBAL binlog_format = 'ROW'")
        mariadb_db.execute("ANALYZE TABLE t")
        short = check(mariadb_db, second_mariadb_db, **watching)
    finally:
        second_mariadb_db.execute(
            "SET GLOBAL binlog_annotate_row_events = ON, GLOBAL binlog_format = 'ROW',"
            " GLOBAL binlog_expire_logs_seconds = 0"
        )
    without = found(report, Subject.LOG, "without their statements")
    assert without.level is Level.ERROR
    assert without.remedy == "SET GLOBAL binlog_annotate_row_events = ON"
    assert "binlog_format" in found(report, Subject.LOG, "STATEMENT").remedy
    kept = found(short, Subject.LOG, "the target's log is kept for 1 s")
    assert kept.remedy.startswith("SET GLOBAL binlog_expire_logs_seconds")


def test_a_source_that_may_forget_what_its_log_has(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    names = "innodb_flush_log_at_trx_commit", "sync_binlog"
    (before,) = mariadb_db.execute(f"SELECT {', '.join(f'@@global.{name}' for name in names)}")
    mariadb_db.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2, GLOBAL sync_binlog = 1")
    try:
        loose = found(check(mariadb_db, second_mariadb_db), Subject.LOG, "after a crash")
        mariadb_db.execute(loose.remedy)
        durable = check(mariadb_db, second_mariadb_db)
    finally:
        for name, value in zip(names, before, strict=True):
            mariadb_db.execute(f"SET GLOBAL {name} = %s", (value,))
    assert loose.remedy == "SET GLOBAL innodb_flush_log_at_trx_commit = 1"
    assert "sync_binlog" not in loose.message
    assert not [one for one in durable.findings if "after a crash" in one.message]


def test_rows_larger_than_a_packet(mariadb_db: Database, second_mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT)")
    mariadb_db.execute("INSERT INTO t VALUES (1, REPEAT('x', 3000000))")
    packet = second_mariadb_db.execute("SELECT @@global.max_allowed_packet")[0][0]
    second_mariadb_db.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        report = check(mariadb_db, second_mariadb_db)
    finally:
        second_mariadb_db.execute("SET GLOBAL max_allowed_packet = %s", (packet,))
    assert found(report, Subject.SETTINGS, "max_allowed_packet of the target").level is Level.ERROR
    assert check(mariadb_db, second_mariadb_db).is_ready


@pytest.mark.parametrize(
    ("rights", "lacking"),
    [
        (WRITE, ""),
        ("GRANT ALL ON {db}.* TO {user}", ""),
        (
            "GRANT SELECT, INSERT ON {db}.* TO {user}",
            "CREATE, UPDATE, DELETE, INDEX, ALTER",
        ),
        (
            f"{WRITE.replace('{user}', '{role}')}; GRANT {{role}} TO {{user}}; SET DEFAULT ROLE {{role}} FOR {{user}}",
            "",
        ),
    ],
)
def test_rights_on_the_target(
    mariadb_db: Database, second_mariadb_db: Database, rights: str, lacking: str
) -> None:
    fill(mariadb_db, 1)
    second_mariadb_db.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    with reader(second_mariadb_db, rights) as user:
        report = check(mariadb_db, user.url)
        if not lacking:
            assert report.is_ready, errors(report)
            return
        wrong = found(report, Subject.RIGHTS, f"lacks {lacking} on {second_mariadb_db.name}")
        assert wrong.remedy.startswith(f"GRANT {lacking} ON `{second_mariadb_db.name}`.* TO ")
        second_mariadb_db.execute(wrong.remedy)
        assert check(mariadb_db, user.url).is_ready


def test_rights_on_one_table_of_the_target(
    mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    second_mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with reader(second_mariadb_db, WRITE.replace("{db}.*", "{db}.x")) as user:
        second_mariadb_db.execute(f"GRANT SELECT ON {second_mariadb_db.name}.t TO {user.user}")
        report = check(mariadb_db, user.url)
    found(report, Subject.RIGHTS, "lacks CREATE, SELECT, INSERT, UPDATE, DELETE")


def test_what_a_user_may_not_see_is_told(mariadb_db: Database, second_mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    second_mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    second_mariadb_db.execute("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.id = 1")
    seeing = (
        "GRANT SELECT ON {db}.* TO {user}; GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user}"
    )
    with reader(mariadb_db, seeing) as source, reader(second_mariadb_db, WRITE) as target:
        report = check(source.url, target.url)
        assert report.is_ready, errors(report)
        doubt = found(report, Subject.TRIGGERS, "triggers could not be checked")
        assert doubt.level is Level.INFO
        hidden = found(report, Subject.RIGHTS, "may lack TRIGGER, EVENT, EXECUTE, SHOW VIEW")
        mariadb_db.execute(hidden.remedy)
        second_mariadb_db.execute(doubt.remedy)
        report = check(source.url, target.url)
    assert found(report, Subject.TRIGGERS, "tr (BEFORE INSERT)").level is Level.ERROR
    assert not [f for f in report.findings if "may lack" in f.message]


def test_rights_on_the_source(mariadb_db: Database, second_mariadb_db: Database) -> None:
    fill(mariadb_db, 1)
    mariadb_db.execute("CREATE TABLE seen (id INT PRIMARY KEY)")
    with reader(mariadb_db, "GRANT SELECT ON {db}.seen TO {user}") as user:
        report = check(user.url, second_mariadb_db, tables=("items", "seen"))
        assert "lacks SELECT" in found(report, Subject.RIGHTS, "items").message
        remedies = [f.remedy for f in report.errors]
        assert sum("REPLICATION SLAVE" in text for text in remedies) == 1
        for remedy in remedies:
            mariadb_db.execute(remedy)
        assert check(user.url, second_mariadb_db, tables=("items", "seen")).is_ready


def test_zero_dates_have_no_place_in_postgresql(
    mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE NOT NULL, e DATETIME)")
    mariadb_db.execute("SET sql_mode = ''; INSERT INTO t VALUES (1, '0000-00-00', '2020-01-01')")
    report = check(mariadb_db, postgres_db)
    assert errors(report) == ["types: d holds zero dates, and the target has no place for them"]


def test_what_is_not_carried(mariadb_db: Database, postgres_db: Database) -> None:
    mariadb_db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 7, g INT AS (a + 1), CONSTRAINT sane CHECK (a > 0));"
        "CREATE VIEW looks AS SELECT * FROM t; CREATE PROCEDURE works() SELECT 1;"
        "CREATE TRIGGER fires AFTER INSERT ON t FOR EACH ROW SET @x = 1; CREATE SEQUENCE counts;"
        "CREATE EVENT happens ON SCHEDULE EVERY 1 DAY DO SELECT 1"
    )
    listed = {thing.kind: thing.names for thing in check(mariadb_db, postgres_db).inventory}
    table = f"{mariadb_db.name}.t"
    assert listed["views"] == ("looks",)
    assert listed["procedures and functions"] == ("works",)
    assert listed["triggers"] == ("fires on t",)
    assert listed["events"] == ("happens",)
    assert listed["sequences"] == ("counts",)
    assert listed["checks"] == ("sane on t",)
    assert listed["computed columns"] == (f"{table}.g",)
    assert listed["defaults"] == (f"{table}.a",)


def test_two_sources_of_one_table_and_a_table_onto_itself(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY)")
    rules = MappingRules((Route("a", "c"), Route("b", "c")))
    report = check(mariadb_db, mariadb_db, rules=rules)
    assert "goes to c already" in found(report, Subject.TABLES, "already").message
    report = check(mariadb_db, mariadb_db, tables=("a",))
    found(report, Subject.TABLES, "are the same table")
