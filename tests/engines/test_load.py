"""Rows from every engine into every engine, whole or not at all."""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.all_types import ROWS, fill
from tests.engines.places import (
    ENGINES,
    Place,
    delete,
    described,
    held,
    load,
    make,
    matched,
    open_place,
    own_relation,
    texts,
)
from tests.servers import Database
from truecopy.engines import connect, loading
from truecopy.engines.loading import RowRefused, floats, lines, require_fit
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, KeyTaken, UsageError
from truecopy.model.fingerprint import Digest, digest_of
from truecopy.model.relation import WHOLE, Relation
from truecopy.model.table import Column, TableName
from truecopy.model.types import Date, Decimal, Integer, Text, Timestamp, Type

MIDNIGHT, NOON = "00:00:00.000000", "2024-01-01 12:00:00.000000"
Open = Callable[[str, str], Place]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Open:
    return lambda engine, name: open_place(engine, request, name)


MYSQL = [("mysql", "mysql"), ("mysql", "postgresql"), ("mariadb", "mysql"), ("mysql", "mariadb")]
PAIRS = [
    *((source, target) for source in ENGINES for target in ENGINES),
    *(pytest.param(*pair, marks=pytest.mark.mysql) for pair in MYSQL),
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_value_arrives_in_a_table_made_for_it(place: Open, source: str, target: str) -> None:
    here, there = place(source, "source"), place(target, "target")
    fill(here)
    with here.session() as first, there.session() as second:
        table = described(first, "t")
        made = make(second, table, "copied")
        comparison = matched(first, table, second, made)
        assert not [f for f in comparison.findings if f.fatal], comparison.findings
        rows = first.fingerprinted_rows(comparison.source, WHOLE)
        assert rows.num_rows == ROWS
        assert digest_of(rows.column("fingerprint").to_pylist()) == first.digest(
            comparison.source, WHOLE
        )
        given = rows.drop_columns(["fingerprint"])
        second.begin()
        assert second.load(comparison.target, given, "task shop") == ROWS
        inside = second.digest(comparison.target, WHOLE)  # before the commit, as transfer asks
        second.commit()
        assert held(second, comparison.target) == held(first, comparison.source)
        sent = first.digest(comparison.source, WHOLE)
        assert inside == sent == second.digest(comparison.target, WHOLE)
        # And again as a batch of changes: out, then in, in one transaction.
        keys = pa.table({"k0": given.column("c0")})
        second.begin()
        assert second.delete_keys(comparison.target, keys, "task shop") == ROWS
        assert second.load(comparison.target, given, "task shop") == ROWS
        second.commit()
        assert second.digest(comparison.target, WHOLE) == sent


TEXT_TABLES = {
    "mariadb": "CREATE TABLE w (id INT PRIMARY KEY, v LONGTEXT CHARACTER SET utf8mb4, b LONGBLOB)",
    "postgresql": "CREATE TABLE w (id int PRIMARY KEY, v text, b bytea)",
    "sqlite": "CREATE TABLE w (id INTEGER PRIMARY KEY, v TEXT, b BLOB)",
    "duckdb": "CREATE TABLE w (id INTEGER PRIMARY KEY, v VARCHAR, b BLOB)",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_any_text_and_any_bytes_come_back(place: Open, engine: str) -> None:
    there = place(engine, "target")
    there.execute(TEXT_TABLES[engine])
    refused = "\0" if engine == "postgresql" else ""
    characters = st.characters(codec="utf-8", exclude_characters=refused)
    special = st.sampled_from(
        ["\\N", "\\", "\t", "\n", "\r\n", "NULL", "", "'", '"', ",", "\\.", "\x1a"]
    )
    words = st.lists(special | st.text(characters, max_size=8), max_size=5).map("".join)
    values = st.tuples(st.none() | words, st.none() | st.binary(max_size=40).map(bytes.hex))

    with there.session() as session:
        relation = own_relation(session, described(session, "w"))

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(values, min_size=1, max_size=40))
        def comes_back(drawn: list[tuple[str | None, str | None]]) -> None:
            rows = [(str(i), text, data) for i, (text, data) in enumerate(drawn)]
            session.begin()
            session.load(relation, texts(*rows))
            assert held(session, relation) == sorted(rows, key=str)
            session.rollback()
            assert session.digest(relation, WHOLE) == Digest()

        comes_back()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_that_is_there_already_is_named_and_nothing_stays(place: Open, engine: str) -> None:
    there = place(engine, "target")
    there.execute(TEXT_TABLES[engine])
    with there.session() as session:
        relation = own_relation(session, described(session, "w"))
        assert load(session, relation, texts(("17", "first", None))) == 1
        with pytest.raises(RowRefused, match=r"17|w\.id"):
            load(session, relation, texts(("1", "a", None), ("17", "again", None)))
        with pytest.raises(RowRefused, match=r"\b5\b|w\.id"):
            load(session, relation, texts(("5", "a", None), ("5", "b", None)))
        assert held(session, relation) == [("17", "first", None)]


NARROW = {
    "mariadb": "v VARCHAR(3), d DECIMAL(5,2), t DATETIME(3), f FLOAT, r INT NOT NULL",
    "postgresql": "v varchar(3), d numeric(5,2), t timestamp(3), f real, r int NOT NULL",
    "duckdb": "v VARCHAR, d DECIMAL(5,2), t TIMESTAMP_MS, f FLOAT, r INTEGER NOT NULL",
}
TENTH = struct.pack(">d", 0.1).hex()


@pytest.mark.parametrize("engine", NARROW)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("v", "abc "),
        ("v", "abcd"),
        ("d", "1.005"),
        ("d", "1000.00"),
        ("t", "2024-01-01 00:00:00.123400"),
        ("t", "2024-13-01 00:00:00.000000"),
        ("f", TENTH),
        ("r", None),
        ("r", "?6162"),
        ("r", "2147483648"),
    ],
)
def test_a_value_that_would_be_cut_rounded_or_refused_names_its_row(
    place: Open, engine: str, column: str, value: str | None
) -> None:
    if engine == "duckdb" and column == "v":
        pytest.skip("texts of DuckDB have no length")
    there = place(engine, "target")
    there.execute(f"CREATE TABLE n (id INTEGER PRIMARY KEY, {NARROW[engine]})")
    good: dict[str, str | None] = {"v": "abc", "d": "1.500", "t": None, "f": None, "r": "1"}
    bad = {**good, column: value}
    with there.session() as session:
        relation = own_relation(session, described(session, "n"))
        rows = [("1", *good.values()), ("42", *bad.values())]
        with pytest.raises(RowRefused, match="row id=42"):
            load(session, relation, texts(*rows))
        assert session.digest(relation, WHOLE) == Digest()
        assert load(session, relation, texts(rows[0])) == 1


def test_zero_dates_go_from_mysql_to_mysql_and_are_named_elsewhere(
    mariadb_db: Database, postgres_db: Database, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mariadb_db.execute(
        "SET sql_mode = ''; CREATE TABLE t (id INT PRIMARY KEY, d DATE, dt DATETIME(6), ts TIMESTAMP NULL, y YEAR);"
        "INSERT INTO t VALUES (1, '0000-00-00', '0000-00-00', '0000-00-00', 0),"
        " (2, '2024-00-10', '2024-01-00', NULL, 2000)"
    )
    here = Place("mariadb", mariadb_db.url, mariadb_db)
    with here.session() as first:
        table = described(first, "t")
        made = make(first, table, "copied")
        pair = matched(first, table, first, made)
        load(first, pair.target, first.rows(pair.source, WHOLE))
        assert held(first, pair.target) == held(first, pair.source)
        assert held(first, pair.source)[0][4] == "0"
        for engine in ("postgresql", "duckdb"):
            with open_place(engine, request, "target").session() as second:
                other = matched(first, table, second, make(second, table, "copied"))
                with pytest.raises(RowRefused, match="row id=1"):
                    load(second, other.target, first.rows(other.source, WHOLE))


def test_postgresql_takes_no_nul_and_says_where_it_was(postgres_db: Database) -> None:
    there = Place("postgresql", postgres_db.url, postgres_db)
    there.execute(TEXT_TABLES["postgresql"])
    with there.session() as session:
        relation = own_relation(session, described(session, "w"))
        with pytest.raises(RowRefused, match="row id=2: v holds the character NUL"):
            load(session, relation, texts(("1", "a", None), ("2", "a\0b", None)))


def test_mariadb_refuses_what_it_has_no_number_or_letter_for(mariadb_db: Database) -> None:
    there = Place("mariadb", mariadb_db.url, mariadb_db)
    there.execute(
        "CREATE TABLE m (id INT PRIMARY KEY, x DOUBLE, three VARCHAR(9) CHARACTER SET utf8mb3,"
        " e ENUM('a','b'), ts TIMESTAMP(6) NULL)"
    )
    nan, emoji = "7ff8000000000000", "\U0001f600"
    late = "2100-01-01 00:00:00.000000"
    with there.session() as session:
        relation = own_relation(session, described(session, "m"))
        bad: list[tuple[str | None, ...]] = [
            ("9", nan, None, None, None),
            ("9", None, emoji, None, None),
            ("9", None, None, "c", None),
            ("9", None, None, None, late),
        ]
        for row in bad:
            with pytest.raises(RowRefused, match="row id=9"):
                load(session, relation, texts(("1", None, None, None, None), row))
        assert session.digest(relation, WHOLE) == Digest()


KEYED = {
    "mariadb": "a BIGINT UNSIGNED, b VARCHAR(20) CHARACTER SET latin1, c VARBINARY(9), v INT",
    "postgresql": "a numeric(20), b char(20), c bytea, v int",
    "sqlite": "a TEXT NOT NULL, b TEXT NOT NULL, c BLOB NOT NULL, v INT",
    "duckdb": "a UBIGINT, b VARCHAR, c BLOB, v INTEGER",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_go_by_composite_keys_and_no_others(place: Open, engine: str) -> None:
    there = place(engine, "target")
    there.execute(f"CREATE TABLE k ({KEYED[engine]}, PRIMARY KEY (a, b, c))")
    high = str(2**64 - 1)
    with there.session() as session:
        relation = own_relation(session, described(session, "k"))
        rows: list[tuple[str | None, ...]] = [
            (high, "it's", "00ff", "1"),
            (high, "it's", "00fe", "2"),
            ("0", "a\\b", "", "3"),
            ("0", "caf\u00e9", "", "4"),
            ("1", "x,y", "5c", "5"),
        ]
        many: list[tuple[str | None, ...]] = [(str(i), "m", "", "0") for i in range(100, 2100)]
        load(session, relation, texts(*rows, *many))
        keys = [
            (high, "it's", "00ff"),
            ("0", "caf\u00e9", ""),
            ("0", "absent", ""),
            ("5", "x", "00"),
        ]
        assert delete(session, relation, keys) == 2
        assert delete(session, relation, [(str(i), "m", "") for i in range(100, 2100)]) == 2000
        assert held(session, relation) == sorted([rows[1], rows[2], rows[4]], key=str)


@pytest.mark.parametrize("keeps_out", [False, True])
def test_what_triggers_of_a_file_write_are_no_rows_of_ours(tmp_path: Path, keeps_out: bool) -> None:
    path = tmp_path / "target.db"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        file.execute("CREATE TABLE log (id, v)")
        for event, side in (("INSERT", "NEW"), ("DELETE", "OLD")):
            log = f"INSERT INTO log VALUES ({side}.id, {side}.v); INSERT INTO log VALUES (0, 0)"
            file.execute(f"CREATE TRIGGER on_{event} AFTER {event} ON t BEGIN {log}; END")
        if keeps_out:
            file.execute("CREATE TRIGGER no BEFORE INSERT ON t BEGIN SELECT RAISE(IGNORE); END")
    rows = pa.table({"c0": ["1", "2"], "c1": ["a", "b"]})
    with connect(parse_endpoint(f"sqlite:///{path}")) as opened:
        session: Any = opened
        relation = own_relation(session, described(session, "t"))
        session.begin()
        if keeps_out:
            with pytest.raises(CannotFinish, match="took 0 of 2 rows"):
                session.load(relation, rows)
            return
        assert session.load(relation, rows) == 2
        assert session.delete_keys(relation, pa.table({"k0": ["2", "3"]})) == 1
        session.commit()


@pytest.mark.parametrize("engine", ["mariadb", "duckdb"])
def test_a_uuid_kept_as_bytes_and_negative_keys(
    place: Open, engine: str, mariadb_db: Database
) -> None:
    there = place(engine, "target")
    kind = {"mariadb": "BINARY(16)", "duckdb": "BLOB"}[engine]
    there.execute(f"CREATE TABLE u (id INT PRIMARY KEY, v {kind})")
    source = Place("mariadb", mariadb_db.url, mariadb_db)
    source.execute("CREATE TABLE s (id INT PRIMARY KEY, v UUID)")
    source.execute("INSERT INTO s VALUES (-1, '123e4567-e89b-12d3-a456-426614174000'), (0, NULL)")
    with source.session() as first, there.session() as second:
        pair = matched(first, described(first, "s"), second, described(second, "u"))
        load(second, pair.target, first.rows(pair.source, WHOLE))
        assert held(second, pair.target) == held(first, pair.source)
        assert delete(second, pair.target, [("-1",)]) == 1


def test_the_annotation_is_the_first_comment_in_mariadbs_log(mariadb_db: Database) -> None:
    there = Place("mariadb", mariadb_db.url, mariadb_db)
    there.execute("CREATE TABLE `a%b` (`i%d` INT PRIMARY KEY, `v%s` VARBINARY(9))")
    with there.session() as session:
        relation = own_relation(session, described(session, "a%b"))
        load(session, relation, texts(("1", "25"), ("2", None)), "truecopy:100%s")
        session.begin()
        session.delete_keys(relation, pa.table({"k0": ["1"]}), "truecopy:100%s")
        session.commit()
        with pytest.raises(UsageError, match="annotation"):
            session.load(relation, texts(("3", None)), "x */ DROP")
        ((log, *_),) = there.execute("SHOW MASTER STATUS")
        events = there.execute(f"SHOW BINLOG EVENTS IN '{log}' LIMIT 100000")
    notes = [str(row[5]) for row in events if row[2] == "Annotate_rows" and "a%b" in str(row[5])]
    assert len(notes) == 2
    assert all(note.startswith("/* truecopy:100%s */ ") for note in notes)


def test_the_annotation_comes_first_in_postgresqls_log(postgres_db: Database) -> None:
    there = Place("postgresql", postgres_db.url, postgres_db)
    there.execute(TEXT_TABLES["postgresql"])
    there.execute("SELECT pg_create_logical_replication_slot('notes', 'test_decoding')")
    try:
        with there.session() as session:
            relation = own_relation(session, described(session, "w"))
            session.begin()
            session.delete_keys(relation, pa.table({"k0": ["1"]}), "task one")
            session.load(relation, texts(("1", "a", None)), "task one")
            session.commit()
        # The server's log reaches the disk a moment later, and is read from there.
        for _ in range(100):
            found = there.execute(
                "SELECT data FROM pg_logical_slot_peek_changes('notes', NULL, NULL)"
            )
            if found:
                break
            time.sleep(0.05)
    finally:
        there.execute("SELECT pg_drop_replication_slot('notes')")
    assert [line.split(":")[0] for (line,) in found[1:-1]] == ["message", "table public.w"]
    assert "prefix: truecopy" in found[1][0]
    assert "task one" in found[1][0]


@pytest.mark.parametrize("engine", ["mariadb", "postgresql"])
def test_a_row_is_named_also_in_a_later_piece(
    place: Open, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_PIECE_BYTES", 256)
    there = place(engine, "target")
    there.execute("CREATE TABLE m (id INTEGER PRIMARY KEY, d DATE)")
    with there.session() as session:
        relation = own_relation(session, described(session, "m"))
        good: list[tuple[str | None, ...]] = [(str(i), "2024-01-01") for i in range(1000)]
        assert load(session, relation, texts(*good)) == 1000
        bad = [*((str(i), day) for i, day in enumerate(("2024-02-02",) * 900, 1000)), ("4711", "x")]
        with pytest.raises(RowRefused, match="row id=4711"):
            load(session, relation, texts(*bad))


def test_a_server_that_takes_no_files_is_explained(mariadb_db: Database) -> None:
    there = Place("mariadb", mariadb_db.url, mariadb_db)
    there.execute("CREATE TABLE m (id INTEGER PRIMARY KEY)")
    with there.session() as session:
        relation = own_relation(session, described(session, "m"))
        there.execute("SET GLOBAL local_infile = 0")
        try:
            with pytest.raises(UsageError, match="SET GLOBAL local_infile = 1"):
                load(session, relation, texts(("1",)))
        finally:
            there.execute("SET GLOBAL local_infile = 1")
        assert load(session, relation, texts(("1",))) == 1


def test_values_of_any_length_are_read_from_mariadbs_packets(mariadb_db: Database) -> None:
    sizes = [0, 1, 4, 12, 13, 250, 251, 252, 65_535, 65_536, 1 << 20, (1 << 24) - 5, (1 << 24) + 9]
    selects = [
        f"SELECT {size} AS n, REPEAT('\u00e9', {size // 2}) AS v, NULL AS z" for size in sizes
    ]
    server = mariadb_db.server
    server.execute(None, "SET GLOBAL max_allowed_packet = 67108864")
    with Place("mariadb", mariadb_db.url, mariadb_db).session() as session:
        found = session.fetch_texts(Statement(" UNION ALL ".join(selects)), ["n", "v", "z"])
        assert found.column("n").to_pylist() == [str(size) for size in sizes]
        assert [len(v) for v in found.column("v").to_pylist()] == [size // 2 for size in sizes]
        assert found.column("v")[4].as_py() == "\u00e9" * 6
        assert found.column("z").null_count == len(sizes)
        nothing = session.fetch_texts(Statement("SELECT 1 AS n FROM DUAL WHERE FALSE"), ["n"])
        assert nothing.num_rows == 0
        with pytest.raises(UsageError, match="refused a statement"):
            session.fetch_texts(Statement("SELECT absent FROM nowhere"), ["n"])
        with pytest.raises(CannotFinish, match="more than 1 row"):
            session.fetch_texts(
                Statement("SELECT (SELECT seq FROM seq_1_to_2) + seq FROM seq_1_to_9"), ["n"]
            )
        with pytest.raises(CannotFinish, match="not UTF-8"):
            session.fetch_texts(Statement("SELECT UNHEX('ff')"), ["n"])


@pytest.mark.parametrize(
    ("column", "kind", "good", "bad"),
    [
        (Column("c", Integer(), "bigint"), Decimal(2), "7.00", "7.50"),
        (Column("c", Date(), "date"), Timestamp(zone=False), f"2024-01-01 {MIDNIGHT}", NOON),
        (Column("c", Date(), "date"), Text(), "2024-01-01", "?78"),
        (
            Column("c", Timestamp(zone=False), "TIMESTAMP_S"),
            Timestamp(zone=False),
            NOON,
            f"{NOON[:-1]}1",
        ),
        (Column("c", Integer(), "INT", weak=True), Integer(), "?78", None),
        (Column("c", Text(), "text"), Text(), "?78", None),
    ],
)
def test_what_a_cast_would_round_is_refused(
    column: Column, kind: Type, good: str, bad: str | None
) -> None:
    endpoint = parse_endpoint("postgresql://host/shop")
    relation = Relation(endpoint, (TableName(None, "t"),), (column,), (kind,), 0)
    require_fit(relation, texts((good,), (None,)))
    if bad is not None:
        with pytest.raises(RowRefused, match=r"t on postgresql.* row c="):
            require_fit(relation, texts((good,), (bad,)))


def test_floats_are_read_from_their_bits() -> None:
    numbers = [0.1, -1.5, 5e-324, 1.7976931348623157e308, float("inf"), None]
    bits = [None if n is None else struct.pack(">d", n).hex() for n in numbers]
    column = pa.chunked_array(
        [pa.array(bits[:2]), pa.array(bits[2:]), pa.array(["x" * 16, None])[1:]]
    )
    assert floats(column).to_pylist() == [*numbers, None]


def test_lines_escape_what_would_be_read_otherwise() -> None:
    columns = [
        pa.chunked_array([pa.array(["a", None, "\\N"])]),
        pa.chunked_array([["\t", "\n", ""]]),
    ]
    escapes = {"\\": "\\\\", "\t": "\\t", "\n": "\\n"}
    made = b"".join(bytes(part) for part in lines(columns, escapes))
    assert made == b"a\\t\n\\N\t\\n\n\\\\N\t\n".replace(b"a\\t\n", b"a\t\\t\n")


@pytest.mark.parametrize("engine", ENGINES)
def test_only_rows_of_the_relation_are_deleted_by_key(place: Open, engine: str) -> None:
    """Rows of others have keys as well: one that has moved to another leg of a keyspace is not deleted by the first."""
    there = place(engine, "target")
    there.execute("CREATE TABLE t (id INT, part INT, owner INT, PRIMARY KEY (id, part))")
    there.execute("INSERT INTO t VALUES (1, 1, 10), (1, 2, 11), (2, 1, 12), (3, 1, 13)")
    with there.session() as session:
        whole = own_relation(session, described(session, "t"))
        mine = replace(whole, where="owner % 2 = 1")
        assert delete(session, mine, [("1", "1"), ("1", "2"), ("2", "1")]) == 1
        left = [("1", "1", "10"), ("2", "1", "12"), ("3", "1", "13")]
        assert held(session, whole) == left
        with pytest.raises(KeyTaken):
            load(session, mine, texts(("2", "1", "15")))
        assert held(session, whole) == left
