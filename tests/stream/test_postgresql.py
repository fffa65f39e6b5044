"""What PostgreSQL's change log says of changes, against a real server."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers import Database, Server
from tests.stream.replay import Change, Tables, differences, read_changes, replay, selected
from tests.stream.slots import OpenStream, Slots
from truecopy.engines.postgresql import PostgreSQL as Session
from truecopy.engines.protocols import Statement
from truecopy.metastore.definitions import Definitions
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.stream.log import ChangeLog, Fed, Level, LogGone, Mark, RecordsOrigins
from truecopy.stream.postgresql.pgoutput import LoggedColumn, LoggedRelation
from truecopy.stream.postgresql.relations import resolve_relation


def changes_since(log: ChangeLog, start: Mark) -> list[Change]:
    return read_changes(log, start, log.current())


def test_is_a_change_log(db: Database, stream: OpenStream) -> None:
    log = stream()
    assert isinstance(log, ChangeLog)
    assert log.level is Level.TRANSACTION
    assert log.missing() == []


# What the changes say

TYPES = {
    "small": "smallint",
    "whole": "integer",
    "big": "bigint",
    "id_of": "oid",
    "exact": "numeric(12,4)",
    "round": "numeric(5,-2)",
    "loose": "numeric",
    "single": "real",
    "double": "double precision",
    "truth": "boolean",
    "note": "text",
    "short": "varchar(20)",
    "padded": "char(6)",
    "name": "name",
    "letter": '"char"',
    "day": "date",
    "clock": "time",
    "moment": "timestamp",
    "instant": "timestamptz",
    "coarse": "timestamptz(0)",
    "span": "interval",
    "raw": "bytea",
    "unique_id": "uuid",
    "doc": "json",
    "docb": "jsonb",
    "bits": "bit(5)",
    "more_bits": "varbit",
    "address": "inet",
    "network": "cidr",
    "mac": "macaddr",
    "mood": "mood",
    "positive": "positive",
    "numbers": "integer[]",
    "prices": "numeric(8,2)[]",
    "texts": "text[]",
    "halves": "float8[]",
    "instants": "timestamptz[]",
    "flags": "boolean[]",
    "codes": "char(3)[]",
    "raws": "bytea[]",
    "area": "box",
    "range": "int4range",
}
VALUES: dict[str, list[str]] = {
    "small": ["-32768", "0"],
    "big": ["9223372036854775807", "-1"],
    "id_of": ["4294967295"],
    "exact": ["1.5", "-0.0001", "NaN", "99999999.9999"],
    "round": ["12345"],
    "loose": ["1.500", "100", "0.000", "1e40", "-1e-20", "NaN", "Infinity"],
    "single": ["0.1", "3.4028235e38", "1e-45", "NaN", "-0", "-Infinity", "16777217"],
    "double": ["0.1", "1e308", "5e-324", "NaN", "-0", "Infinity", "1e16", "123456789.123"],
    "truth": ["true", "false"],
    "note": ["", "ünï 漢字 😀", "a\\b'c\"d\n\t", "NULL"],
    "short": [" x "],
    "padded": ["ab", "", "abcdef"],
    "letter": ["x"],
    "day": ["2024-02-29", "0001-01-01", "12345-06-07", "infinity", "0044-03-15 BC"],
    "clock": ["00:00:00", "23:59:59.999999", "24:00:00", "12:30:00.5"],
    "moment": [
        "2024-02-29 12:00:00", "1999-12-31 23:59:59.123", "20240-01-01 00:00:00.1", "-infinity",
        "0044-03-15 01:02:03.123 BC", "2024-01-01 00:00:00.000001",
    ],
    "instant": [
        "2024-02-29 12:00:00+05:30", "1900-01-01 00:00:00.5+00", "infinity",
        "0044-03-15 01:02:03.123+00 BC",
    ],
    "coarse": ["2024-02-29 12:00:00.6+02"],
    "span": [
        "0", "1 day", "-1 day", "3 days 04:05:06.789", "-1 day +02:03", "100:00:00.000001", "1 month",
        "1 year -12 months 5 hours", "-00:00:00.5", "40 days", "-2 days -03:04:05",
    ],
    "raw": ["\\x", "\\x00ff5c", "\\xdeadbeef"],
    "unique_id": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
    "doc": ['{"b": 1,  "a": [1.0, null]}', '"x"', "null"],
    "docb": ['{"b": 1,  "a": [1.0, null]}', '"x"', "1e2"],
    "bits": ["10101", "00000"],
    "more_bits": ["", "1", "0101"],
    "address": ["10.0.0.1", "10.1.2.3/8", "::1"],
    "network": ["10.0.0.0/8", "10.1.2.3/32"],
    "mac": ["08:00:2b:01:02:03"],
    "mood": ["happy", "so-so, really"],
    "positive": ["7"],
    "numbers": ["{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[2:3]={5,6}"],
    "prices": ["{1.5,2}"],
    "texts": ['{"a,b","c\\"d",NULL,"NULL","","e\\\\f"," g ","{h}"}', '{"\n"}'],
    "halves": ["{0.1,NaN,-0,Infinity}"],
    "instants": ['{"2024-02-29 12:00:00+02",infinity}'],
    "flags": ["{t,f,NULL}"],
    "codes": ["{ab,c}"],
    "raws": ['{"\\\\x00ff",NULL}'],
    "area": ["(1,1),(0,0)"],
    "range": ["[1,5)"],
}  # fmt: skip


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_gives_every_type_as_select_does(db: Database, stream: OpenStream, identity: str) -> None:
    db.execute("CREATE TYPE mood AS ENUM ('happy', 'so-so, really')")
    db.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)")
    columns = ", ".join(f'"{name}" {kind}' for name, kind in TYPES.items())
    db.execute(f"CREATE TABLE t (id integer PRIMARY KEY, {columns})")
    db.execute(f"ALTER TABLE t REPLICA IDENTITY {identity}")
    # What somebody sets for the role or the database must not change the texts.
    for setting in ("datestyle = 'SQL, DMY'", "timezone = 'Asia/Kolkata'", "bytea_output = escape"):
        db.execute(f"ALTER DATABASE {db.name} SET {setting}")
    db.execute(f"ALTER DATABASE {db.name} SET intervalstyle = iso_8601")
    db.execute(f"ALTER DATABASE {db.name} SET extra_float_digits = -15")
    log = stream()
    start = log.oldest()
    with closing(db.connect()) as connection:
        connection.execute("SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'")
        connection.execute("INSERT INTO t (id) VALUES (0)")
        most = max(map(len, VALUES.values()))
        for number in range(1, most + 1):
            values = {n: texts[(number - 1) % len(texts)] for n, texts in VALUES.items()}
            names = ", ".join(f'"{name}"' for name in values)
            places = ", ".join(["%s"] * len(values))
            connection.execute(
                f"INSERT INTO t (id, {names}) VALUES ({number}, {places})", [*values.values()]
            )
        connection.execute("UPDATE t SET note = 'again' WHERE id % 2 = 0")
        connection.execute("DELETE FROM t WHERE id = 3")
    changes = changes_since(log, start)
    assert not differences(replay(changes)["public.t"], selected(db.url, "t"))
    definition = Definitions().find(changes[-1]["schema_id"])
    with Session(parse_endpoint(db.url)) as session:
        found = session.find("t")
        assert found is not None
        described = session.describe(found)
    assert definition.columns == described.columns
    assert definition.key == described.keys[0] == ("id",)


def test_carries_what_transactions_and_changes_are(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    log = stream()
    start = log.oldest()
    with closing(db.connect()) as connection, connection.transaction():
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        connection.execute("UPDATE t SET v = 'c' WHERE id = 1")
        connection.execute("DELETE FROM t WHERE id = 2")
        ((xid, now),) = connection.execute(
            "SELECT pg_current_xact_id()::text, clock_timestamp()"
        ).fetchall()
    changes = changes_since(log, start)
    first = changes[0]
    assert [c["kind"] for c in changes] == ["insert", "insert", "update", "delete"]
    assert [c["seq"] for c in changes] == [0, 1, 2, 3]
    assert [c["key"] for c in changes] == [["1"], ["2"], ["1"], ["2"]]
    assert [c["after"] for c in changes] == [["1", "a"], ["2", "b"], ["1", "c"], None]
    assert all(c["before"] is None for c in changes)
    assert len({(c["position"], c["txn"], c["commit_order"]) for c in changes}) == 1
    assert first["txn"] == xid
    assert first["shard"] == "s1"
    assert first["table"] == "public.t"
    assert abs((first["committed_at"] - now).total_seconds()) < 1
    assert log.seek(first["position"]).written == log.current().written


def test_whole_rows_before_a_change_where_the_table_logs_them(
    db: Database, stream: OpenStream
) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL")
    log = stream()
    start = log.oldest()
    db.execute("INSERT INTO t VALUES (1, 'a'); UPDATE t SET v = NULL; DELETE FROM t")
    changes = changes_since(log, start)
    assert [(c["key"], c["before"], c["after"]) for c in changes] == [
        (["1"], None, ["1", "a"]),
        (["1"], ["1", "a"], ["1", None]),
        (["1"], ["1", None], None),
    ]


def test_rows_without_a_key_are_streamed_whole(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (v text, w text); ALTER TABLE t REPLICA IDENTITY FULL")
    log = stream()
    start = log.oldest()
    db.execute("INSERT INTO t VALUES ('a', NULL); UPDATE t SET w = 'b'; DELETE FROM t")
    changes = changes_since(log, start)
    assert [(c["kind"], c["key"], c["before"], c["after"]) for c in changes] == [
        ("insert", [], None, ["a", None]),
        ("update", [], ["a", None], ["a", "b"]),
        ("delete", [], ["a", "b"], None),
    ]
    assert Definitions().find(changes[0]["schema_id"]).key == ()


def test_an_index_can_be_the_identity(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a int NOT NULL, b int NOT NULL, UNIQUE (b, a))")
    db.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX t_b_a_key")
    log = stream()
    start = log.oldest()
    db.execute("INSERT INTO t VALUES (1, 2, 3); UPDATE t SET id = 9; DELETE FROM t")
    changes = changes_since(log, start)
    assert [(c["kind"], c["key"]) for c in changes] == [
        ("insert", ["3", "2"]), ("update", ["3", "2"]), ("delete", ["3", "2"]),
    ]  # fmt: skip


def test_values_that_did_not_change_and_were_left_out(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int, long text, more text)")
    db.execute("CREATE TABLE f (LIKE t INCLUDING ALL); ALTER TABLE f REPLICA IDENTITY FULL")
    for table in ("t", "f"):
        for column in ("long", "more"):
            db.execute(f"ALTER TABLE {table} ALTER {column} SET STORAGE EXTERNAL")
    log = stream()
    start = log.oldest()
    for table in ("t", "f"):
        db.execute(
            f"INSERT INTO {table} SELECT i, i, repeat('x', 5000), 'm' FROM generate_series(1, 3) i"
        )
        db.execute(f"UPDATE {table} SET v = v + 1, more = repeat('y', 4000) WHERE id > 1")
        db.execute(f"UPDATE {table} SET v = v + 1; UPDATE {table} SET long = NULL WHERE id = 1")
        db.execute(f"UPDATE {table} SET id = 9 WHERE id = 1")
    changes = changes_since(log, start)
    tables = replay(changes)
    assert tables["public.t"] == selected(db.url, "t")
    assert tables["public.f"] == selected(db.url, "f")
    unchanged = [
        c["unchanged"] for c in changes if c["kind"] == "update" and c["table"] == "public.t"
    ]
    assert unchanged == [[2], [2], [2], [2, 3], [2, 3], None]
    assert all(c["unchanged"] is None for c in changes if c["table"] == "public.f")


def test_a_changed_key_is_a_delete_and_an_insert(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (b text, v int, a int, PRIMARY KEY (a, b))")
    log = stream()
    start = log.oldest()
    db.execute("INSERT INTO t VALUES ('x', 1, 1); UPDATE t SET a = 2, v = 5; UPDATE t SET v = 6")
    changes = changes_since(log, start)
    assert [(c["kind"], c["key"], c["after"]) for c in changes] == [
        ("insert", ["1", "x"], ["x", "1", "1"]),
        ("delete", ["1", "x"], None),
        ("insert", ["2", "x"], ["x", "5", "2"]),
        ("update", ["2", "x"], ["x", "6", "2"]),
    ]
    assert [c["seq"] for c in changes] == [0, 1, 2, 3]


def test_truncate(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    log = stream()
    start = log.oldest()
    db.execute("INSERT INTO t VALUES (1), (2)")
    db.execute("INSERT INTO u VALUES (7); TRUNCATE t, u; INSERT INTO t VALUES (1)")
    changes = changes_since(log, start)
    kinds = [(c["kind"], c["table"]) for c in changes[3:5]]
    assert sorted(kinds) == [("truncate", "public.t"), ("truncate", "public.u")]
    assert replay(changes) == {"public.t": {("1",): {"id": "1"}}, "public.u": {}}


def test_what_was_rolled_back_is_not_there(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    log = stream()
    start = log.oldest()
    with closing(db.connect()) as connection:
        connection.execute("BEGIN; INSERT INTO t VALUES (1); ROLLBACK")
        connection.execute("BEGIN; INSERT INTO t VALUES (2); SAVEPOINT s; INSERT INTO t VALUES (3)")
        connection.execute("ROLLBACK TO s; INSERT INTO t VALUES (4); SAVEPOINT s2")
        connection.execute("INSERT INTO t VALUES (5); RELEASE s2; COMMIT")
    assert [c["key"] for c in changes_since(log, start)] == [["2"], ["4"], ["5"]]


def test_transactions_come_whole_and_in_the_order_of_their_commits(
    db: Database, stream: OpenStream
) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    log = stream()
    start = log.oldest()
    connections = [db.connect() for _ in range(4)]
    for connection in connections:
        connection.execute("BEGIN")
    for step in range(3):
        for number, connection in enumerate(connections):
            connection.execute("INSERT INTO t VALUES (%s)", [number * 10 + step])
    for connection in reversed(connections):
        connection.execute("COMMIT")
        connection.close()
    changes = changes_since(log, start)
    keys = [int(c["key"][0]) for c in changes]
    assert keys == [30, 31, 32, 20, 21, 22, 10, 11, 12, 0, 1, 2]
    assert [c["seq"] for c in changes] == [0, 1, 2] * 4


def test_rows_are_decoded_by_the_definition_in_force(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b text)")
    log = stream()
    start = log.oldest()
    db.execute("INSERT INTO t VALUES (1, 1, 'one')")
    for number, ddl in enumerate(
        (
            "ADD COLUMN c numeric(10,2) NOT NULL DEFAULT 1.5",
            "DROP COLUMN a",
            "RENAME COLUMN b TO named",
            "ALTER COLUMN c TYPE numeric(12,4)",
            "ALTER COLUMN named TYPE bytea USING named::bytea",
            "RENAME TO t2",
        ),
        2,
    ):
        db.execute(f"ALTER TABLE t {ddl}")
        table = "t2" if "t2" in ddl else "t"
        db.execute(f"INSERT INTO {table} (id) VALUES ({number})")
    db.execute(
        "BEGIN; INSERT INTO t2 VALUES (20); ALTER TABLE t2 ADD d int; INSERT INTO t2 VALUES (21); COMMIT"
    )
    end = log.current()
    changes = read_changes(log, start, end)
    shapes = [
        (c["table"], dict(zip(Definitions().find(c["schema_id"]).names, c["after"], strict=True)))
        for c in changes
    ]
    assert shapes == [
        ("public.t", {"id": "1", "a": "1", "b": "one"}),
        ("public.t", {"id": "2", "a": None, "b": None, "c": "1.50"}),
        ("public.t", {"id": "3", "b": None, "c": "1.50"}),
        ("public.t", {"id": "4", "named": None, "c": "1.50"}),
        ("public.t", {"id": "5", "named": None, "c": "1.5000"}),
        ("public.t", {"id": "6", "named": None, "c": "1.5000"}),
        ("public.t2", {"id": "7", "named": None, "c": "1.5000"}),
        ("public.t2", {"id": "20", "named": None, "c": "1.5000"}),
        ("public.t2", {"id": "21", "named": None, "c": "1.5000", "d": None}),
    ]
    # A batch never spans a change of a definition.
    mark, batches = start, []
    while (further := log.advance(mark, 1 << 30, 0)).written > mark.written:
        batches.append([c["key"][0] for c in read_changes(log, mark, further)])
        mark = further
    assert batches == [["1"], ["2"], ["3"], ["4"], ["5"], ["6"], ["7"], ["20", "21"]]


def test_a_table_that_is_altered_while_it_is_looked_at(db: Database) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, c numeric(10,2))")
    ((oid,),) = db.execute("SELECT 't'::regclass::oid::bigint")

    class Overtaken(Session):
        """The table changes after each look at its columns."""

        def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
            found = super().fetch(statement)
            if "pg_attribute" in statement.sql:
                db.execute("ALTER TABLE t ALTER COLUMN c TYPE numeric(12,4)")
            return found

    numeric_10_2 = (10 << 16 | 2) + 4
    columns = (LoggedColumn("id", 23, -1, True), LoggedColumn("c", 1700, numeric_10_2, False))
    logged = LoggedRelation(oid, "public", "t", "d", columns)
    with Overtaken(parse_endpoint(db.url)) as session:
        columns_found = resolve_relation(session, logged).definition.columns
    assert [column.native for column in columns_found] == ["integer", "numeric(10,2)"]


def test_partitions_are_streamed_as_their_table(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    db.execute("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)")
    db.execute("CREATE TABLE t2 (v int, id int PRIMARY KEY)")
    db.execute("ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)")
    log = stream()
    start = log.oldest()
    db.execute(
        "INSERT INTO t VALUES (1, 1), (11, 11); UPDATE t SET v = 5; UPDATE t SET id = 12 WHERE id = 1"
    )
    changes = changes_since(log, start)
    assert {c["table"] for c in changes} == {"public.t"}
    assert replay(changes)["public.t"] == selected(db.url, "t")
    assert any("TRUNCATE of a single partition" in line for line in log.warnings)


def test_generated_columns_are_not_in_the_log(db: Database, stream: OpenStream) -> None:
    db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, d int GENERATED ALWAYS AS (id * 2) STORED, v int)"
    )
    log = stream()
    start = log.oldest()
    db.execute("INSERT INTO t VALUES (1, DEFAULT, 3)")
    (change,) = changes_since(log, start)
    assert change["after"] == ["1", "3"]
    assert Definitions().find(change["schema_id"]).names == ("id", "v")


def test_annotation_and_origin(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute(
        "CREATE TABLE truecopy_origin (shard text PRIMARY KEY, position text, committed_at bigint)"
    )
    log = stream("t")
    start = log.oldest()
    with closing(db.connect()) as connection:
        for id_, prefix in enumerate(("truecopy", "other")):
            with connection.transaction():
                connection.execute("SELECT pg_logical_emit_message(true, %s, 'täsk 1')", [prefix])
                connection.execute("INSERT INTO t VALUES (%s), (%s)", [id_, id_ + 10])
        connection.execute(
            "SELECT pg_logical_emit_message(false, 'truecopy', 'not of a transaction')"
        )
        for id_, position in ((5, "0-1-7"), (6, "0-1-8")):
            with connection.transaction():
                connection.execute(
                    "INSERT INTO truecopy_origin VALUES ('-80', %s, 1700000000000000)"
                    " ON CONFLICT (shard) DO UPDATE SET position = excluded.position",
                    [position],
                )
                connection.execute("INSERT INTO t VALUES (%s)", [id_])
    changes = changes_since(log, start)
    assert [(c["annotation"], c["origin"]) for c in changes] == [
        ("täsk 1", None), ("täsk 1", None), (None, None), (None, None),
        (None, "-80 0-1-7"), (None, "-80 0-1-8"),
    ]  # fmt: skip
    assert {c["table"] for c in changes} == {"public.t"}
    assert changes[4]["committed_at"].timestamp() == 1_700_000_000
    assert isinstance(log, RecordsOrigins)
    assert log.seek_origin({"-80": "0-1-7"}).position == changes[4]["position"]
    assert log.seek_origin({"-80": "0-1-9"}).position == changes[5]["position"]
    assert isinstance(log, Fed)
    assert log.fed_by() == {"-80": "0-1-8"}
    for origins in ({"-80": "0-1-6"}, {"-80": "0-1-7", "80-": "0-1-1"}):
        with pytest.raises(LogGone, match="starts after what was replicated"):
            log.seek_origin(origins)


def test_keys_only(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (v text, id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY FULL")
    log = stream(keys_only=True)
    start = log.oldest()
    db.execute(
        "INSERT INTO t VALUES ('a', 1); UPDATE t SET v = 'b'; UPDATE t SET id = 2; DELETE FROM t"
    )
    changes = changes_since(log, start)
    assert [(c["kind"], c["key"]) for c in changes] == [
        ("insert", ["1"]), ("update", ["1"]), ("delete", ["1"]), ("insert", ["2"]), ("delete", ["2"]),
    ]  # fmt: skip
    assert all(c["before"] is c["after"] is c["unchanged"] is None for c in changes)


def test_bytes_that_are_no_text_are_an_error(postgres_server: Server, tmp_path: Path) -> None:
    postgres_server.execute(
        None,
        "CREATE DATABASE ascii ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    )
    try:
        db = Database(postgres_server, "ascii")
        db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with Slots(db, tmp_path) as open_stream:
            log = open_stream()
            start = log.oldest()
            db.execute("INSERT INTO t VALUES (1, E'\\xff\\xfe')")
            with pytest.raises(CannotFinish, match="bytes that are no text"):
                changes_since(log, start)
    finally:
        postgres_server.drop_database("ascii")


OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["insert", "update", "delete", "move"]), st.sampled_from("tf"),
              st.integers(0, 4), st.sampled_from(["", "x", "NULL", "ü" * 3, "long"])),
    st.tuples(st.sampled_from(["truncate", "savepoint", "back"]), st.sampled_from("tf"),
              st.just(0), st.just("")),
)  # fmt: skip


def perform(connection: Any, operation: tuple[str, str, int, str]) -> None:
    what, table, key, text = operation
    value = None if text == "NULL" else "l" * 5000 if text == "long" else text
    values: list[object]
    match what:
        case "insert":
            sql, values = "INSERT INTO {} VALUES (%s, 1, %s) ON CONFLICT DO NOTHING", [key, value]
        case "update":
            sql, values = "UPDATE {} SET n = n + 1, v = coalesce(%s, v) WHERE id = %s", [value, key]
        case "delete":
            sql, values = "DELETE FROM {} WHERE id = %s", [key]
        case "move":
            # A value that is left out of a moved row cannot be known: it is given along.
            free = "NOT EXISTS (SELECT FROM {0} WHERE id = %s)"
            sql = f"UPDATE {{0}} SET id = id + 10, v = v || '.' WHERE id = %s AND {free}"
            values = [key, key + 10]
        case "truncate":
            sql, values = "TRUNCATE {}", []
        case "savepoint":
            sql, values = "SAVEPOINT s", []
        case _:
            sql, values = "ROLLBACK TO s", []
    connection.execute(sql.format(table), values)


def test_random_transactions_replayed_give_the_tables(db: Database, stream: OpenStream) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, n int, v text)")
    db.execute(
        "CREATE TABLE f (id int PRIMARY KEY, n int, v text); ALTER TABLE f REPLICA IDENTITY FULL"
    )
    for table in "tf":
        db.execute(f"ALTER TABLE {table} ALTER v SET STORAGE EXTERNAL")
    log = stream()
    mark = log.oldest()
    tables: Tables = {}

    def tables_now(connection: Any) -> Tables:
        found: Tables = {}
        for table in "tf":
            rows = connection.execute(f"SELECT id::text, n::text, v FROM {table}").fetchall()
            found[f"public.{table}"] = {
                (r[0],): dict(zip(("id", "n", "v"), r, strict=True)) for r in rows
            }
        return found

    with closing(db.connect()) as connection:

        @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(st.tuples(st.lists(OPERATIONS, max_size=8), st.booleans()), max_size=5))
        def check(transactions: list[tuple[list[tuple[str, str, int, str]], bool]]) -> None:
            nonlocal mark
            expected: dict[str, Tables] = {}
            for operations, commits in transactions:
                connection.execute("BEGIN; SAVEPOINT s")
                ((xid,),) = connection.execute("SELECT pg_current_xact_id()::text").fetchall()
                for operation in operations:
                    perform(connection, operation)
                expected[xid] = tables_now(connection)
                connection.execute("COMMIT" if commits else "ROLLBACK")
            end = log.current()
            changes = read_changes(log, mark, end)
            assert changes == read_changes(log, mark, end, parts=3)
            mark = end
            for xid, state in expected.items():
                own = [c for c in changes if c["txn"] == xid]
                if own:
                    replay(own, tables)
                    assert {"public.t": {}, "public.f": {}, **tables} == state
            assert not {c["txn"] for c in changes} - set(expected)

        check()
