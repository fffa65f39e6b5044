"""Settings of servers and sessions, and kinds of tables: what is streamed, and what is refused and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Database, MariaDB
from tests.stream.changes import Follower, plain, session
from tests.stream.replay import read_changes
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog.log import BinlogLog
from truecopy.stream.log import ChangeLog, Wanted


@pytest.fixture
def follower(mariadb_db: Database) -> Iterator[Follower]:
    with Follower(mariadb_db) as follower:
        yield follower


def test_checksums_may_change_between_files(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)")
        try:
            for n, checksum in enumerate(["NONE", "CRC32", "NONE"]):
                run(f"SET GLOBAL binlog_checksum = {checksum}", f"INSERT INTO t VALUES ({n})")
                follower.read()
            run("INSERT INTO t VALUES (9)")
            follower.read()
            assert plain(follower.changes, "key") == [(("0",),), (("1",),), (("2",),), (("9",),)]
            with BinlogLog(follower.endpoint, Wanted("s")) as fresh:
                again = read_changes(fresh, follower.marks[0], follower.mark)
            assert plain(again, "key", "position") == plain(follower.changes, "key", "position")
        finally:
            run("SET GLOBAL binlog_checksum = CRC32")


def test_a_damaged_event_is_not_decoded(follower: Follower, mariadb_db: Database) -> None:
    from truecopy.stream.binlog import wire

    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'innocent')")
    start = follower.mark
    end = follower.log.advance(start, 1 << 20, 5)
    (part,) = follower.log.split(start, end, 1)
    more = wire.Pieces.more

    def damaged(self: wire.Pieces, rest: bytes, wanted: int) -> bytes:
        return more(self, rest, wanted).replace(b"innocent", b"1nnocent")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire.Pieces, "more", damaged)
        with pytest.raises(CannotFinish, match="checksum is wrong"):
            list(part.read())


def test_compressed_statements_are_read(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10")
    try:
        with session(mariadb_db) as run:
            run(
                "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)",
                "INSERT INTO t VALUES (1, REPEAT('x', 5000))",
            )
            follower.read()
            run("ALTER TABLE t /* a statement that is long enough */ CHANGE v w LONGTEXT")
            run("UPDATE t SET w = REPEAT('y', 5000)", "TRUNCATE TABLE t")
        follower.read()
    finally:
        mariadb_db.execute("SET GLOBAL log_bin_compress = OFF")
    assert plain(follower.changes, "kind", "after") == [
        ("insert", ("1", "x" * 5000)),
        ("update", ("1", "y" * 5000)),
        ("truncate", None),
    ]


def test_annotations_are_first_comments(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)")
        run("/* task:7 */ INSERT INTO t VALUES (1)", "INSERT INTO t /* not first */ VALUES (2)")
        run("BEGIN", "/*mine*/ INSERT INTO t VALUES (3)", "DELETE FROM t WHERE id = 1", "COMMIT")
        run("SET SESSION binlog_annotate_row_events = 0", "/* unseen */ INSERT INTO t VALUES (4)")
    assert plain(follower.read(), "key", "annotation") == [
        (("1",), "task:7"),
        (("2",), None),
        (("3",), "mine"),
        (("1",), None),
        (("4",), None),
    ]
    with BinlogLog(follower.endpoint, Wanted("s", settings={"annotations": "false"})) as log:
        again = read_changes(log, follower.marks[0], follower.mark)
    assert {change["annotation"] for change in again} == {None}


@pytest.mark.parametrize("form", ["STATEMENT", "MIXED"])
def test_changes_logged_as_statements_are_refused(
    follower: Follower, mariadb_db: Database, form: str
) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)", f"SET SESSION binlog_format = {form}")
        run("INSERT INTO t VALUES (1)")
    with pytest.raises(CannotFinish, match=r"as a statement.*SET GLOBAL binlog_format = 'ROW'"):
        follower.read()


def test_statements_that_change_rows_in_odd_ways_are_refused(
    mariadb_db: Database, tmp_path: Path
) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY)")
        run(
            "CREATE FUNCTION f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
            " BEGIN INSERT INTO t VALUES (1); RETURN 1; END"
        )
        run("SET SESSION binlog_format = STATEMENT")
        file = tmp_path / "rows"
        file.write_text("7\n8\n")
        for statement in (
            "SELECT f()",
            "DO f() + 1",
            f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE t",
        ):
            run("DELETE FROM t")
            with Follower(mariadb_db) as follower:
                run(statement)
                with pytest.raises(CannotFinish, match="as a statement"):
                    follower.read()


def test_statements_of_other_databases_pass(follower: Follower, mariadb_db: Database) -> None:
    other = mariadb_db.server.create_database("elsewhere_" + mariadb_db.name[-4:])
    try:
        with session(other) as run:
            run("CREATE TABLE x (id INT PRIMARY KEY)", "SET SESSION binlog_format = STATEMENT")
            run("INSERT INTO x VALUES (1)")
        mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        mariadb_db.execute("INSERT INTO t VALUES (1)")
        assert plain(follower.read(), "table") == [(f"{mariadb_db.name}.t",)]
    finally:
        mariadb_db.server.drop_database(other.name)


def test_partial_images_serve_keys_only(mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT)", "INSERT INTO t VALUES (1, 1, 'x')"
        )
        with Follower(mariadb_db, keys_only=True) as keys, Follower(mariadb_db) as full:
            run("SET SESSION binlog_row_image = MINIMAL", "INSERT INTO t VALUES (2, 2, 'y')")
            run("UPDATE t SET b = 'z' WHERE id = 1", "UPDATE t SET id = 5 WHERE id = 1")
            run("DELETE FROM t WHERE id = 2")
            assert plain(keys.read(), "kind", "key", "before", "after") == [
                ("insert", ("2",), None, None),
                ("update", ("1",), None, None),
                ("delete", ("1",), None, None),
                ("insert", ("5",), None, None),
                ("delete", ("2",), None, None),
            ]
            with pytest.raises(CannotFinish, match=r"logged without .*binlog_row_image = 'FULL'"):
                full.read()


def test_xa_transactions(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE u (id INT PRIMARY KEY)")
    with session(mariadb_db) as run, Follower(mariadb_db, tables=("t",)) as follower:
        run("XA START 'a'", "INSERT INTO t VALUES (1)", "XA END 'a'", "XA COMMIT 'a' ONE PHASE")
        run(
            "XA START 'b'",
            "INSERT INTO u VALUES (1)",
            "XA END 'b'",
            "XA PREPARE 'b'",
            "XA COMMIT 'b'",
        )
        run(
            "XA START 'c'",
            "INSERT INTO u VALUES (2)",
            "XA END 'c'",
            "XA PREPARE 'c'",
            "XA ROLLBACK 'c'",
        )
        run("INSERT INTO t VALUES (2)")
        assert plain(follower.read(), "key") == [(("1",),), (("2",),)]
        run(
            "XA START 'd'",
            "INSERT INTO t VALUES (3)",
            "XA END 'd'",
            "XA PREPARE 'd'",
            "XA COMMIT 'd'",
        )
        with pytest.raises(CannotFinish, match="XA PREPARE"):
            follower.read()


def test_a_rollback_to_a_savepoint_that_is_logged_is_refused(mariadb_db: Database) -> None:
    """A transaction that changed a table without transactions keeps in the log what it took back."""
    mariadb_db.execute("CREATE TABLE i (id INT PRIMARY KEY)")
    mariadb_db.execute("CREATE TABLE m (id INT PRIMARY KEY) ENGINE = Aria TRANSACTIONAL = 0")
    with session(mariadb_db) as run, Follower(mariadb_db) as follower:
        run("BEGIN", "INSERT INTO i VALUES (1)", "SAVEPOINT s", "INSERT INTO i VALUES (2)")
        run("INSERT INTO m VALUES (1)", "ROLLBACK TO s", "COMMIT")
        with pytest.raises(CannotFinish, match="ROLLBACK TO"):
            follower.read()


@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY"])
def test_tables_without_transactions(follower: Follower, mariadb_db: Database, engine: str) -> None:
    with session(mariadb_db) as run:
        run(f"CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE = {engine}")
        run("CREATE TABLE i (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1, 1), (2, 2)")
        run("BEGIN", "INSERT INTO i VALUES (1)", "UPDATE t SET v = 3", "ROLLBACK")
    follower.replay()
    follower.check("t", "i")


def test_a_table_made_by_a_select(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
        run("CREATE TABLE u (PRIMARY KEY (id)) SELECT * FROM t")
        run("CREATE TABLE m (PRIMARY KEY (id)) ENGINE = MyISAM SELECT * FROM t")
        run("CREATE TABLE l LIKE t", "INSERT INTO l SELECT * FROM t")
    follower.replay()
    follower.check("t", "u", "m", "l")


def test_generated_and_invisible_columns(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run(
            "CREATE TABLE t (v INT AS (a + 1) VIRTUAL, id INT PRIMARY KEY, a INT, s INT AS (a + 2) STORED,"
            " h INT INVISIBLE DEFAULT 7, w VARCHAR(20) AS (CONCAT('x', a)) VIRTUAL, UNIQUE (v))"
        )
        run(
            "INSERT INTO t (id, a) VALUES (1, 1), (2, NULL)",
            "UPDATE t SET a = 5, h = 8 WHERE id = 1",
        )
        run("DELETE FROM t WHERE id = 2")
    follower.replay()
    follower.check("t")


def test_sequences_are_no_tables(follower: Follower, mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE SEQUENCE s", "CREATE TABLE t (id INT PRIMARY KEY DEFAULT NEXTVAL(s), v INT)")
        run("SELECT NEXTVAL(s)", "INSERT INTO t (v) VALUES (1), (2)", "SELECT SETVAL(s, 5000)")
        run("DROP SEQUENCE s")
    assert plain(follower.read(), "table", "after") == [
        (f"{mariadb_db.name}.t", ("2", "1")),
        (f"{mariadb_db.name}.t", ("3", "2")),
    ]


@pytest.mark.parametrize(
    "columns",
    [
        "",
        ", b TIMESTAMP(6) AS ROW START, e TIMESTAMP(6) AS ROW END, PERIOD FOR SYSTEM_TIME (b, e)",
    ],
)
def test_system_versioned_tables_are_refused(mariadb_db: Database, columns: str) -> None:
    """Their log has a delete as an update, and the past as rows."""
    with session(mariadb_db) as run, Follower(mariadb_db) as follower:
        run(f"CREATE TABLE v (id INT PRIMARY KEY, v INT{columns}) WITH SYSTEM VERSIONING")
        run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO v (id) VALUES (1)", "DELETE FROM v")
        (line,) = follower.log.missing()
        assert f"{mariadb_db.name}.v is system-versioned" in line
        start = follower.mark
        with pytest.raises(CannotFinish, match=r"system-versioned.*leave it out"):
            follower.read()
        run("INSERT INTO t VALUES (1)")
        with Follower(mariadb_db, start, tables=("t",)) as other:
            assert other.log.missing() == []
            assert plain(other.read(), "key") == [(("1",),)]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP PARTITION p0",
        "ALTER TABLE t TRUNCATE PARTITION p0",
        "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u",
    ],
)
def test_rows_that_go_with_their_partition(mariadb_db: Database, statement: str) -> None:
    with session(mariadb_db) as run, Follower(mariadb_db) as follower:
        run("CREATE TABLE u (id INT PRIMARY KEY)")
        run(
            "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
            " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)"
        )
        run("INSERT INTO t VALUES (1), (11)")
        assert len(follower.read()) == 2
        start = follower.mark
        run(statement, "INSERT INTO t VALUES (12)")
        with pytest.raises(CannotFinish, match="the log does not say which"):
            follower.read()
        with Follower(mariadb_db, start, settings={"partitions": "ignore"}) as other:
            assert plain(other.read(), "key") == [(("12",),)]


def test_missing_names_what_is_wrong_and_the_remedy(mariadb_db: Database) -> None:
    with session(mariadb_db) as run:
        run("CREATE TABLE p (id INT PRIMARY KEY)")
        run(
            "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)"
        )
        run(
            "CREATE TABLE d (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE RESTRICT)"
        )
    endpoint = parse_endpoint(mariadb_db.url)
    with BinlogLog(endpoint, Wanted("s")) as log:
        assert isinstance(log, ChangeLog)
        (line,) = log.missing()
        assert f"{mariadb_db.name}.c" in line
        assert "cascades=target" in line
    for wanted in (Wanted("s", ("p",)), Wanted("s", settings={"cascades": "target"})):
        with BinlogLog(endpoint, wanted) as log:
            assert log.missing() == []


def test_missing_rights_are_named_with_their_grants(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE OR REPLACE USER 'few'@'%' IDENTIFIED BY 'pw'")
    mariadb_db.execute(f"GRANT SELECT ON {mariadb_db.name}.* TO 'few'@'%'")
    server = mariadb_db.server
    url = f"mariadb://few:pw@127.0.0.1:{server.port}/{mariadb_db.name}"
    try:
        with BinlogLog(parse_endpoint(url), Wanted("s")) as log:
            lines = log.missing()
            assert [line for line in lines if "GRANT REPLICATION SLAVE ON *.* TO 'few'@'%'" in line]
            assert [line for line in lines if "GRANT BINLOG MONITOR ON *.* TO 'few'@'%'" in line]
            for line in lines:
                mariadb_db.execute("GRANT" + line.rpartition(": GRANT")[2])
        with Follower(mariadb_db, url=url) as follower:
            assert follower.log.missing() == []
            mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
            mariadb_db.execute("INSERT INTO t VALUES (1)")
            assert plain(follower.read(), "key") == [(("1",),)]
    finally:
        mariadb_db.execute("DROP USER 'few'@'%'")


def test_settings_that_are_wrong_are_named() -> None:
    with MariaDB("--skip-log-bin", "--innodb-log-file-size=4M", buffer_pool="16M") as server:
        shop = server.create_database("shop")
        with BinlogLog(parse_endpoint(shop.url), Wanted("s")) as log:
            (line,) = log.missing()
            assert "writes no binary log: set log_bin" in line
            with pytest.raises(CannotFinish, match="writes no binary log"):
                log.current()
    options = ("--binlog-row-image=MINIMAL", "--innodb-log-file-size=4M")
    with MariaDB(*options, buffer_pool="16M") as server:
        shop = server.create_database("shop")
        shop.execute("SET GLOBAL binlog_format = MIXED")
        with BinlogLog(parse_endpoint(shop.url), Wanted("s")) as log:
            one, two = log.missing()
            assert "SET GLOBAL binlog_format = 'ROW'" in one
            assert "SET GLOBAL binlog_row_image = 'FULL'" in two
        with BinlogLog(parse_endpoint(shop.url), Wanted("s", keys_only=True)) as log:
            assert len(log.missing()) == 1


def test_a_row_of_many_megabytes() -> None:
    options = (
        "--max-allowed-packet=256M",
        "--innodb-log-file-size=400M",
        "--binlog-cache-size=64M",
    )
    with MariaDB(*options, buffer_pool="64M") as server:
        shop = server.create_database("shop")
        with session(shop) as run, Follower(shop) as follower:
            run("CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)")
            for size in ((16 << 20) - 60, 16 << 20, 40 << 20):
                run(f"INSERT INTO t VALUES ({size}, REPEAT(X'00ff', {size // 2}))")
            run("INSERT INTO t VALUES (1, 'small')")
            found = [(int(c["key"][0]), c["after"][1]) for c in follower.read(max_bytes=1 << 30)]
        assert [(key, len(text)) for key, text in found[:3]] == [
            (key, 2 * key) for key, _ in found[:3]
        ]
        assert {text[-8:] for _, text in found[:3]} == {"00ff00ff"}
        assert found[3] == (1, "736d616c6c")


class EncryptedMariaDB(MariaDB):
    """A server with a certificate that it signed itself."""

    def command(self) -> list[str]:
        certify = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=here")
        files = ("-keyout", self.path("key.pem"), "-out", self.path("cert.pem"))
        self.run(*certify, *files)
        return [
            *super().command(),
            f"--ssl-cert={self.path('cert.pem')}",
            f"--ssl-key={self.path('key.pem')}",
        ]


def test_an_encrypted_connection() -> None:
    private = EncryptedMariaDB("--innodb-log-file-size=4M", buffer_pool="16M")
    with private as server:
        shop = server.create_database("shop")
        shop.execute("CREATE USER safe IDENTIFIED BY 'pw' REQUIRE SSL")
        shop.execute("GRANT ALL ON *.* TO safe")
        url = f"mariadb://safe:pw@127.0.0.1:{server.port}/shop"
        for option in ("ssl=required", f"ssl_ca={private.path('cert.pem')}"):
            with Follower(shop, url=f"{url}?{option}") as follower, session(shop) as run:
                run("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
                run("INSERT INTO t VALUES (1, REPEAT('x', 3000000)), (2, 'y')")
                texts = [change["after"][1] for change in follower.read() if change["after"]]
                assert list(map(len, texts)) == [3000000, 1]
