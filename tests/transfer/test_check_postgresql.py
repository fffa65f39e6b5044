"""`truecopy check` on PostgreSQL."""

from __future__ import annotations

import pytest

from tests.servers import Database, PostgreSQL
from tests.transfer.checking import check, errors, found, state, warnings
from tests.verify.users import reader
from truecopy.model.errors import UsageError
from truecopy.model.finding import Level, Subject
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings


def test_a_source_is_left_as_it_was(postgres_db: Database, mariadb_db: Database) -> None:
    postgres_db.execute("CREATE TABLE t (id int PRIMARY KEY, name varchar(20))")
    before = state(postgres_db), state(mariadb_db)
    report = check(postgres_db, mariadb_db)
    assert report.is_ready, errors(report)
    assert not warnings(report)
    assert report.source_level == "transaction"
    assert (state(postgres_db), state(mariadb_db)) == before


def test_a_table_whose_changes_would_not_come(postgres_db: Database, mariadb_db: Database) -> None:
    postgres_db.execute("CREATE TABLE bare (id int); CREATE TABLE t (id int PRIMARY KEY)")
    report = check(postgres_db, mariadb_db)
    lost = found(report, Subject.LOG, "its changes not streamed")
    assert (lost.level, lost.table) == (Level.ERROR, "public.bare")
    assert "REPLICA IDENTITY FULL" in lost.remedy
    assert check(postgres_db, mariadb_db, exclude=("bare",)).is_ready


def test_a_partition_whose_writers_would_fail(postgres_db: Database, mariadb_db: Database) -> None:
    postgres_db.execute(
        "CREATE TABLE seen (who int) PARTITION BY LIST (who);"
        "CREATE TABLE seen_1 PARTITION OF seen FOR VALUES IN (1);"
        "ALTER TABLE seen REPLICA IDENTITY FULL"
    )
    report = check(postgres_db, mariadb_db)
    for subject, words in (
        (Subject.LOG, "its changes not streamed"),
        (Subject.KEYS, "not streamed"),
    ):
        lost = found(report, subject, words)
        assert (lost.level, lost.table) == (Level.ERROR, "public.seen")
        assert "which public.seen_1 lack" in lost.message
        assert lost.remedy.startswith('ALTER TABLE "public"."seen_1" REPLICA IDENTITY FULL')
    postgres_db.execute("ALTER TABLE seen_1 REPLICA IDENTITY FULL")
    assert check(postgres_db, mariadb_db).is_ready


def test_a_changed_key_that_would_stop_the_run(postgres_db: Database, mariadb_db: Database) -> None:
    postgres_db.execute(
        "CREATE TABLE pages (slug varchar(200) PRIMARY KEY, title varchar(80), body text);"
        "CREATE TABLE lines (document int, line int, body text, PRIMARY KEY (document, line));"
        "CREATE TABLE numbered (id serial PRIMARY KEY, body text);"
        "CREATE TABLE named (id uuid PRIMARY KEY, body text);"
        "CREATE TABLE short (slug varchar(200) PRIMARY KEY, title varchar(80));"
        "CREATE TABLE whole (slug text PRIMARY KEY, body text);"
        "ALTER TABLE whole REPLICA IDENTITY FULL;"
        "CREATE TABLE parted (slug varchar(9), body text, PRIMARY KEY (slug)) PARTITION BY HASH (slug);"
        "CREATE TABLE part_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE part_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
        "ALTER TABLE part_0 REPLICA IDENTITY FULL"
    )
    told = [
        one for one in check(postgres_db, mariadb_db).findings if "changes stops" in one.message
    ]
    assert [(one.table, one.level) for one in told] == [
        ("public.pages", Level.WARNING),
        ("public.parted", Level.WARNING),
        ("public.lines", Level.INFO),
    ]
    assert "(body)" in told[0].message
    assert told[1].remedy.endswith(
        "REPLICA IDENTITY FULL and of each of its partitions, if keys change"
    )
    for table in ("pages", "lines", "part_1"):
        postgres_db.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    told_still = [
        one.table
        for one in check(postgres_db, mariadb_db).findings
        if "changes stops" in one.message
    ]
    assert told_still == ["public.parted"], "its own identity says how its partitions are read"
    postgres_db.execute("ALTER TABLE parted REPLICA IDENTITY FULL")
    assert told[0].remedy.startswith('ALTER TABLE "public"."pages" REPLICA IDENTITY FULL, ')
    left = check(postgres_db, mariadb_db).findings
    assert not [one for one in left if "changes stops" in one.message]


INHERITING = """
CREATE TABLE log (id int PRIMARY KEY, v int); CREATE TABLE log_2024 (PRIMARY KEY (id)) INHERITS (log);
CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parted DEFAULT
"""


def test_a_source_that_is_read_with_its_children(
    postgres_db: Database, mariadb_db: Database
) -> None:
    postgres_db.execute(INHERITING)
    report = check(postgres_db, mariadb_db)
    mixed = found(report, Subject.TABLES, "children by inheritance (public.log_2024)")
    assert (mixed.level, mixed.table) == (Level.ERROR, "public.log")
    assert "end the inheritance, or leave public.log out" in mixed.remedy
    assert len(errors(report)) == 1, errors(report)
    with pytest.raises(UsageError, match=r"public\.log has children by inheritance"):
        Transfer(Settings("move", postgres_db.url, mariadb_db.url)).run(snapshot_only=True)
    assert mariadb_db.execute("SHOW TABLES LIKE 'log%'") == []
    assert check(postgres_db, mariadb_db, exclude=("log",)).is_ready
    postgres_db.execute("ALTER TABLE log_2024 NO INHERIT log")
    assert check(postgres_db, mariadb_db).is_ready


def test_a_target_that_is_changed_with_its_children(
    postgres_db: Database, mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE log (id INT PRIMARY KEY, v INT)")
    postgres_db.execute(INHERITING)
    report = check(mariadb_db, postgres_db)
    assert found(report, Subject.TABLES, "children by inheritance").level is Level.ERROR
    with pytest.raises(UsageError, match=r"public\.log has children by inheritance"):
        Transfer(Settings("move", mariadb_db.url, postgres_db.url)).run(snapshot_only=True)


def test_retention_of_a_slot(postgres_db: Database, mariadb_db: Database) -> None:
    postgres_db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    postgres_db.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'")
    postgres_db.execute("SELECT pg_reload_conf(), pg_sleep(0.3)")
    try:
        report = check(postgres_db, mariadb_db)
    finally:
        postgres_db.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        postgres_db.execute("SELECT pg_reload_conf(), pg_sleep(0.3)")
    assert "64.0 MiB" in found(report, Subject.LOG, "max_slot_wal_keep_size").message


def test_the_log_of_a_target_that_is_watched(postgres_db: Database, mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    before = state(postgres_db)
    postgres_db.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'")
    postgres_db.execute("SELECT pg_reload_conf(), pg_sleep(0.3)")
    try:
        report = check(mariadb_db, postgres_db, verify=("target",))
    finally:
        postgres_db.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        postgres_db.execute("SELECT pg_reload_conf(), pg_sleep(0.3)")
    assert report.is_ready
    assert "64.0 MiB" in found(report, Subject.LOG, "the target keeps").message
    assert state(postgres_db) == before, "a check makes no slot"


def test_a_target_whose_log_tells_too_little(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with PostgreSQL("-c", "wal_level=replica") as server:
        report = check(mariadb_db, server.create_database("plain"), verify=("target",))
    level = found(report, Subject.LOG, "cannot read along: ")
    assert "wal_level" in level.message + level.remedy


def test_triggers_of_a_target(mariadb_db: Database, postgres_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    postgres_db.execute(
        "CREATE TABLE t (id int PRIMARY KEY);"
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        "CREATE TRIGGER plain BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();"
        "CREATE TRIGGER always BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f();"
        "ALTER TABLE t ENABLE ALWAYS TRIGGER always"
    )
    report = check(mariadb_db, postgres_db)
    assert found(report, Subject.TRIGGERS, "plain").level is Level.INFO
    fires = found(report, Subject.TRIGGERS, "always")
    assert fires.level is Level.ERROR
    postgres_db.execute(fires.remedy.partition(";")[0])
    assert check(mariadb_db, postgres_db).is_ready


def test_rights_on_the_target(mariadb_db: Database, postgres_db: Database) -> None:
    mariadb_db.execute(
        "CREATE TABLE parents (id INT PRIMARY KEY);"
        "CREATE TABLE t (id INT PRIMARY KEY, p INT REFERENCES parents (id))"
    )
    postgres_db.execute("CREATE TABLE t (id int PRIMARY KEY, p int)")
    postgres_db.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    rights = "GRANT USAGE ON SCHEMA public TO {user}; GRANT SELECT ON t TO {user}"
    with reader(postgres_db, rights) as user:
        report = check(mariadb_db, user.url)
        found(report, Subject.RIGHTS, "lacks CREATE on the schema public")
        found(report, Subject.RIGHTS, "lacks INSERT, UPDATE, DELETE")
        found(report, Subject.RIGHTS, "does not own")
        role = found(report, Subject.RIGHTS, "session_replication_role")
        assert role.level is Level.ERROR, "there are foreign keys"
        postgres_db.execute(f"ALTER TABLE t OWNER TO {user.user}")
        for finding in report.errors:
            if finding.remedy.startswith("GRANT"):
                postgres_db.execute(finding.remedy)
        report = check(mariadb_db, user.url)
        assert report.is_ready, errors(report)


def test_rows_that_policies_hide(mariadb_db: Database, postgres_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    postgres_db.execute(
        "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE ROW LEVEL SECURITY"
    )
    rights = "GRANT USAGE, CREATE ON SCHEMA public TO {user}; GRANT ALL ON t TO {user}"
    with reader(postgres_db, rights) as user:
        report = check(mariadb_db, user.url)
    assert "BYPASSRLS" in found(report, Subject.RIGHTS, "row-level security").remedy


def test_values_and_inventory(postgres_db: Database, mariadb_db: Database) -> None:
    postgres_db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, d date, n numeric(10,2), f float8);"
        "INSERT INTO t VALUES (1, 'infinity', 'NaN', 1);"
        "CREATE VIEW looks AS SELECT 1; CREATE MATERIALIZED VIEW stored AS SELECT 1;"
        "CREATE FUNCTION works() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE SEQUENCE counts;"
        "CREATE TYPE mood AS ENUM ('fine'); GRANT SELECT ON t TO PUBLIC"
    )
    report = check(postgres_db, mariadb_db)
    assert len(errors(report)) == 2, errors(report)
    found(report, Subject.TYPES, "d holds infinite times")
    found(report, Subject.TYPES, "n holds numbers that are")
    listed = {thing.kind: thing.names for thing in report.inventory}
    assert listed["views"] == ("looks",)
    assert listed["materialized views"] == ("stored",)
    assert listed["functions and procedures"] == ("works",)
    assert listed["sequences"] == ("counts",)
    assert listed["types"] == ("mood",)
    assert listed["grants"] == ("PUBLIC",)


def test_texts_that_are_unique_in_another_way(postgres_db: Database, mariadb_db: Database) -> None:
    postgres_db.execute("CREATE TABLE t (code varchar(20) PRIMARY KEY)")
    mariadb_db.execute("CREATE TABLE t (code VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY)")
    assert (
        "accents, case or trailing spaces"
        in found(
            check(postgres_db, mariadb_db), Subject.COLLATIONS, "the second takes the place"
        ).message
    )
    assert (
        "stand beside each other"
        in found(
            check(mariadb_db, postgres_db), Subject.COLLATIONS, "code is unique on the source"
        ).message
    )
