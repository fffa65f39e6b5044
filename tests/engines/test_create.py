"""Tables made as another engine has them: types, keys, indexes, references, numbering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.engines.places import ENGINES, Place, described, load, make, matched, open_place, texts
from tests.servers import Database
from truecopy.engines import creation, duckdb_create, mysql_create, postgresql_create, sqlite_create
from truecopy.engines.loading import RowRefused
from truecopy.engines.mysql_create import Server
from truecopy.engines.protocols import Creates, SetsSequences, Statement, Transacts
from truecopy.model.errors import IncomparableTypes
from truecopy.model.table import Column, Index, Table, TableName
from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Boolean,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Type,
    Unknown,
    Unsupported,
    Uuid,
)

Open = Callable[[str, str], Place]
MARIADB = Server(is_mariadb=True, version=(10, 11, 6))
MYSQL = Server(is_mariadb=False, version=(8, 0, 36))


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Open:
    return lambda engine, name: open_place(engine, request, name)


def table_of(engine: str, *columns: Column, **more: Any) -> Table:
    return Table(TableName(None, "t"), columns, engine=engine, **more)


def declared(target: str, engine: str, column: Column, **more: Any) -> str:
    table = table_of(engine, column, **more)
    match target:
        case "mariadb":
            return mysql_create.type_of(MARIADB, table, column, 0)
        case "mysql":
            return mysql_create.type_of(MYSQL, table, column, 0)
        case "postgresql":
            return postgresql_create.type_of(table, column, lambda native: native != "mood")
        case "sqlite":
            return sqlite_create.type_of(table, column)
        case _:
            return duckdb_create.type_of(table, column)


@pytest.mark.parametrize(
    ("native", "kind", "fraction", "wanted"),
    [
        ("tinyint(1)", Integer(), 0, "smallint"),
        ("tinyint(3) unsigned", Integer(), 0, "smallint"),
        ("smallint(5) unsigned", Integer(), 0, "integer"),
        ("mediumint(8) unsigned", Integer(), 0, "integer"),
        ("int(11)", Integer(), 0, "integer"),
        ("int(10) unsigned zerofill", Integer(), 0, "bigint"),
        ("bigint(20)", Integer(), 0, "bigint"),
        ("bigint(20) unsigned", Integer(), 0, "numeric(20,0)"),
        ("year(4)", Integer(), 0, "integer"),
        ("decimal(18,14)", Decimal(14), 14, "numeric(18,14)"),
        ("datetime(6)", Timestamp(zone=False), 6, "timestamp without time zone"),
        ("datetime", Timestamp(zone=False), 0, "timestamp(0) without time zone"),
        ("timestamp", Timestamp(zone=True), 0, "timestamp(0) with time zone"),
        ("time(3)", Time(), 3, "interval(3)"),
        ("enum('a','b(7)')", Text(), 0, "text"),
        ("varchar(40)", Text(), 0, "character varying(40)"),
        ("longtext", Text(), 0, "text"),
        ("binary(16)", Binary(), 0, "bytea"),
        ("bit(5)", Bits(5), 0, "bit(5)"),
        ("json", Json("mysql"), 0, "jsonb"),
        ("uuid", Uuid(), 0, "uuid"),
    ],
)
def test_types_of_mysql_in_postgresql(native: str, kind: Type, fraction: int, wanted: str) -> None:
    column = Column("c", kind, native, fraction=fraction)
    assert declared("postgresql", "mysql", column) == wanted


@pytest.mark.parametrize(
    ("target", "engine", "column", "wanted"),
    [
        ("mariadb", "postgresql", Column("c", Text(), "text"), "longtext CHARACTER SET utf8mb4"),
        ("mysql", "postgresql", Column("c", Uuid(), "uuid"), "char(36) CHARACTER SET ascii"),
        ("mariadb", "postgresql", Column("c", Uuid(), "uuid"), "uuid"),
        ("mariadb", "postgresql", Column("c", Decimal(None), "numeric"), "decimal(65,30)"),
        ("mariadb", "postgresql", Column("c", Boolean(), "boolean"), "tinyint(1)"),
        ("mariadb", "duckdb", Column("c", Integer(), "UHUGEINT"), "decimal(39,0)"),
        ("mariadb", "duckdb", Column("c", Integer(), "UTINYINT"), "tinyint unsigned"),
        ("mariadb", "sqlite", Column("c", Unknown(), "", weak=True), "longtext"),
        ("mariadb", "sqlite", Column("c", Integer(), "INT", weak=True), "bigint"),
        ("mysql", "mariadb", Column("c", Json("mariadb"), "longtext"), "json"),
        ("duckdb", "mysql", Column("c", Integer(), "bigint(20) unsigned"), "UBIGINT"),
        ("duckdb", "mysql", Column("c", Time(), "time", fraction=0), "INTERVAL"),
        ("duckdb", "postgresql", Column("c", Array(Integer()), "integer[]"), "INTEGER[]"),
        (
            "postgresql",
            "duckdb",
            Column("c", Array(Decimal(2)), "DECIMAL(9,2)[]"),
            "numeric(9,2)[]",
        ),
        ("postgresql", "postgresql", Column("c", Text(), "mood"), "text"),
        ("postgresql", "postgresql", Column("c", Text(), "citext"), "citext"),
        ("sqlite", "mysql", Column("c", Integer(), "bigint(20) unsigned"), "TEXT"),
        ("sqlite", "mysql", Column("c", Decimal(2), "decimal(10,2)"), "DECIMAL(10,2)"),
        ("sqlite", "mysql", Column("c", Decimal(2), "decimal(30,2)"), "TEXT"),
        ("sqlite", "duckdb", Column("c", Bits(None), "BIT"), "TEXT"),
    ],
)
def test_types_elsewhere(target: str, engine: str, column: Column, wanted: str) -> None:
    assert declared(target, engine, column).startswith(wanted)


@pytest.mark.parametrize(
    ("target", "engine", "column"),
    [
        ("mariadb", "postgresql", Column("c", Array(Integer()), "integer[]")),
        ("mariadb", "postgresql", Column("c", Bits(None), "bit varying")),
        ("mariadb", "postgresql", Column("c", Decimal(40), "numeric(80,40)")),
        ("duckdb", "mysql", Column("c", Decimal(30), "decimal(65,30)")),
        ("sqlite", "duckdb", Column("c", Array(Integer()), "INTEGER[]")),
        ("postgresql", "duckdb", Column("c", Array(Array(Integer())), "INTEGER[][]")),
        ("postgresql", "mysql", Column("c", Unsupported("no text"), "geometry")),
    ],
)
def test_what_no_type_holds_is_refused_by_name(target: str, engine: str, column: Column) -> None:
    with pytest.raises(IncomparableTypes, match=r"t\.c \(.*leave the column out with drop"):
        declared(target, engine, column)


@pytest.mark.parametrize(
    ("engine", "kind", "native", "wanted"),
    [
        ("mariadb", Binary(), "binary", "longblob"),
        ("mariadb", Timestamp(zone=True), "timestamptz", "timestamp(6)"),
        ("mariadb", Time(), "time", "time(6)"),
        ("mysql", Float(), "double", "double"),
        ("postgresql", Binary(), "binary", "bytea"),
        ("postgresql", Float(), "double", "double precision"),
        ("postgresql", Text(), "varchar(64)", "character varying(64)"),
        ("sqlite", Binary(), "binary", "BLOB"),
        ("sqlite", Integer(), "bigint", "BIGINT"),
        ("duckdb", Binary(), "binary", "BLOB"),
        ("duckdb", Timestamp(zone=True), "timestamptz", "TIMESTAMPTZ"),
    ],
)
def test_what_an_expression_makes_is_declared_by_what_it_holds(
    engine: str, kind: Type, native: str, wanted: str
) -> None:
    column = Column("c", kind, native, computed=True)
    assert declared(engine, engine, column) == wanted


def test_the_same_engine_keeps_its_own_declarations(
    mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute(
        "CREATE TABLE t (id INT(7) UNSIGNED ZEROFILL PRIMARY KEY AUTO_INCREMENT, e ENUM('a%b', 'c''d') NOT NULL,"
        " v VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci, b VARCHAR(9) COLLATE utf8mb4_bin,"
        " j JSON, m MEDIUMBLOB, ts TIMESTAMP NOT NULL, p POINT)"
    )
    place = Place("mariadb", mariadb_db.url, mariadb_db)
    with place.session() as session:
        table = described(session, "t")
        without = replace(table, columns=table.columns[:-1])
        made = make(session, without, "copied")
        assert made.columns == without.columns
        assert made.collations == without.collations
        assert made.numbered == ("id",)
        assert "on update" not in str(place.execute("SHOW CREATE TABLE copied")).lower()
        # A type without a canonical text is made as it is, but no row of it can be compared or sent.
        assert described(session, "t").columns[-1].native == "point"

    postgres_db.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN money2 AS numeric(10,2);"
        'CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, m mood, n money2, v varchar(9) COLLATE "C",'
        " a text[], i interval, b bit varying(7), s serial)"
    )
    with Place("postgresql", postgres_db.url, postgres_db).session() as session:
        table = described(session, "t")
        made = make(session, table, "copied")
        assert made.columns == table.columns
        assert made.collations == (("v", 'pg_catalog."C"'),)
        assert made.numbered == ("id", "s")


PARENTS = {
    "mariadb": "a BIGINT, b VARCHAR(30)",
    "postgresql": "a bigint, b varchar(30)",
    "sqlite": "a BIGINT NOT NULL, b VARCHAR(30) NOT NULL",
    "duckdb": "a BIGINT, b VARCHAR",
}
_REFERENCE = "FOREIGN KEY (x, y) REFERENCES p (a, b)"
_ACTIONS = "ON DELETE CASCADE ON UPDATE SET NULL"
CHILDREN = {
    "mariadb": "id INT PRIMARY KEY AUTO_INCREMENT, u VARCHAR(40), w INT NOT NULL, x BIGINT, y VARCHAR(30), words TEXT,"
    " d INT DEFAULT 7, UNIQUE KEY only (u, w), KEY plain (w), KEY start (words(20), x), FULLTEXT KEY found (words),"
    f" CONSTRAINT fk {_REFERENCE} {_ACTIONS}",
    "postgresql": "id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, u varchar(40), w int NOT NULL, x bigint,"
    f" y varchar(30), words text, d int DEFAULT 7, UNIQUE (u, w), {_REFERENCE} {_ACTIONS}",
    "sqlite": "id INTEGER PRIMARY KEY, u VARCHAR(40), w INT NOT NULL, x BIGINT, y VARCHAR(30), words TEXT,"
    f" d INT DEFAULT 7, UNIQUE (u, w), {_REFERENCE} {_ACTIONS}",
    "duckdb": "id INTEGER PRIMARY KEY, u VARCHAR, w INTEGER NOT NULL, x BIGINT, y VARCHAR, words VARCHAR,"
    f" UNIQUE (u, w), {_REFERENCE}",
}
OTHER_INDEXES = {
    "mariadb": (),
    "postgresql": ("CREATE INDEX plain ON t (w)", "CREATE INDEX low ON t (lower(u))"),
    "sqlite": ("CREATE INDEX plain ON t (w)", "CREATE INDEX some ON t (w) WHERE w > 0"),
    "duckdb": ("CREATE INDEX plain ON t (w)",),
}


@pytest.mark.parametrize("target", ENGINES)
@pytest.mark.parametrize("source", ENGINES)
def test_indexes_and_references_follow(place: Open, source: str, target: str) -> None:
    here, there = place(source, "source"), place(target, "target")
    here.execute(f"CREATE TABLE p ({PARENTS[source]}, PRIMARY KEY (a, b))")
    here.execute(f"CREATE TABLE t ({CHILDREN[source]})", *OTHER_INDEXES[source])
    with here.session() as first, there.session() as second:
        parent, table = described(first, "p"), described(first, "t")
        assert isinstance(second, Creates)
        assert isinstance(second, Transacts)
        made_parent = make(second, parent, "parent")
        made = make(second, table, "child")
        assert made.keys[0] == ("id",)
        assert made.indexes == ()
        assert made.foreign_keys == ()
        references = tuple(replace(f, parent=made_parent.name) for f in table.foreign_keys)
        wanted = replace(table, name=made.name, foreign_keys=references)
        statements = [*second.create_indexes(wanted), *second.create_foreign_keys(wanted)]
        for statement in statements:
            second.begin()
            second.execute(Statement(statement))
            second.commit()
        made = described(second, "child")
        assert (("u", "w"), True) in [(i.columns, i.unique) for i in made.indexes]
        assert ("w",) in [i.columns for i in made.indexes]
        if target in ("mariadb", "postgresql"):
            (reference,) = made.foreign_keys
            assert reference.columns == ("x", "y")
            assert reference.parent_columns == ("a", "b")
            actions = ("NO ACTION",) * 2 if source == "duckdb" else ("CASCADE", "SET NULL")
            kept = (reference.on_delete, reference.on_update)
            assert kept in (actions, ("RESTRICT", "RESTRICT"))  # as MariaDB calls NO ACTION
        told = second.creation_warnings(wanted)
        if source != "duckdb":
            assert any("the default of d" in line for line in told)
            assert any("the index " in line for line in told)
        if target in ("sqlite", "duckdb"):
            assert any("foreign keys" in line for line in told)


def test_long_text_in_keys_of_mysql_is_cut_to_what_an_index_holds(
    mariadb_db: Database, postgres_db: Database
) -> None:
    postgres_db.execute(
        "CREATE TABLE t (k text, k2 varchar(5000), n int, v text, big varchar(3000), PRIMARY KEY (k, k2));"
        "CREATE UNIQUE INDEX ON t (v); CREATE INDEX ON t (big, n)"
    )
    here = Place("postgresql", postgres_db.url, postgres_db)
    there = Place("mariadb", mariadb_db.url, mariadb_db)
    with here.session() as first, there.session() as second:
        table = described(first, "t")
        made = make(second, table, "copied")
        for statement in second.create_indexes(replace(table, name=made.name)):
            second.execute(Statement(statement))
        natives = {column.name: column.native for column in made.columns}
        assert natives["k"] == natives["k2"] == "varchar(384)"
        assert natives["v"] == "varchar(768)"
        assert [i.prefixes for i in described(second, "copied").indexes] == [(), (764, None)]
        told = second.creation_warnings(table)
        assert sum("part of a key" in line for line in told) == 3
        pair = matched(first, table, second, made)
        assert pair.ordered  # an exact collation of MariaDB orders as PostgreSQL's C does
        rows = texts(("a", "", None, None, None), ("a ", "", None, None, None))
        assert load(second, pair.target, rows) == 2
        with pytest.raises(RowRefused, match="longer than 384"):
            load(second, pair.target, texts(("x" * 385, "", None, None, None)))


def test_a_table_without_a_primary_key_gets_its_unique_one_at_once() -> None:
    columns = (Column("a", Integer(), "int", nullable=False), Column("b", Integer(), "int"))
    unique = Index("only", ("a",), unique=True)
    table = table_of("mysql", *columns, keys=(("a",),), unique=(("a",),), indexes=(unique,))
    assert creation.key_of(table) == (("a",), False)
    assert creation.later_indexes(table) == []
    keyless = table_of("mysql", *columns)
    assert creation.key_of(keyless) == ((), False)
    nullable = table_of("sqlite", *columns, primary=("b",))
    assert creation.later_indexes(nullable) == [Index("t_primary", ("b",), unique=True)]


def test_names_of_indexes_are_free_and_short_enough() -> None:
    table = table_of("mysql")
    assert creation.index_name(table, Index("k", ("a",)), shared=True) == "t_k"
    assert creation.index_name(table, Index("k", ("a",)), shared=False) == "k"
    long = creation.index_name(table, Index("x" * 80, ("a",)), shared=True)
    other = creation.index_name(table, Index("x" * 81, ("a",)), shared=True)
    assert len(long) <= 63
    assert long != other
    automatic = Index("sqlite_autoindex_t_1", ("a", "b"))
    assert creation.index_name(table, automatic, shared=True) == "t_a_b_key"


TAKES_A_NAME = {
    # Indexes share their namespace with tables, ...
    "postgresql": "CREATE TABLE t_k (id INT PRIMARY KEY)",
    "sqlite": "CREATE TABLE t_k (id INT PRIMARY KEY)",
    # ... or with other indexes.
    "duckdb": "CREATE INDEX t_k ON t (a)",
    "mariadb": "CREATE INDEX K ON t (a)",
}


@pytest.mark.parametrize("target", ENGINES)
def test_a_name_that_is_taken_is_not_given_again(place: Open, target: str) -> None:
    there = place(target, "target")
    there.execute("CREATE TABLE t (a INT PRIMARY KEY, b INT)", TAKES_A_NAME[target])
    with there.session() as session:
        made = described(session, "t")
        both = Index("k", ("b",)), Index("t_k", ("b", "a"))
        engine = "mariadb" if target != "mariadb" else "mysql"
        for statement in session.create_indexes(replace(made, engine=engine, indexes=both)):
            session.begin()
            session.execute(Statement(statement))
            session.commit()
        found = {index.columns for index in described(session, "t").indexes}
        assert {("b",), ("b", "a")} <= found


def test_names_that_are_taken_get_a_mark() -> None:
    table, index = table_of("mysql"), Index("k", ("a",))
    first, second = creation.index_names(table, [index, index], ["T_K"], shared=True)
    assert first.startswith("t_k_")
    assert second.startswith("t_k_")
    assert first != second


def test_a_case_insensitive_key_is_warned_of(mariadb_db: Database, postgres_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY)")
    here = Place("mariadb", mariadb_db.url, mariadb_db)
    with here.session() as first, Place("p", postgres_db.url, postgres_db).session() as second:
        (line,) = second.creation_warnings(described(first, "t"))
        assert "utf8mb4_general_ci" in line


def test_numbering_goes_on_above_every_number_given(
    mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, v INT); INSERT INTO t (id) VALUES (5), (900);"
        "DELETE FROM t WHERE id = 900"
    )
    here = Place("mariadb", mariadb_db.url, mariadb_db)
    there = Place("postgresql", postgres_db.url, postgres_db)
    with here.session() as first, there.session() as second:
        assert isinstance(first, SetsSequences)
        assert isinstance(second, SetsSequences)
        table = described(first, "t")
        assert (table.numbered, table.next_number) == (("id",), 901)
        made = make(second, table, "t")
        load(second, matched(first, table, second, made).target, texts(("5", None)))
        assert second.set_sequences(replace(table, name=TableName(None, "t"))) == [
            "id: the next number is 901"
        ]
        assert there.execute("INSERT INTO t (v) VALUES (1) RETURNING id") == [(901,)]
        back = described(second, "t")
        assert back.next_number == 902
        # And the way back: the source learns what the target gave meanwhile.
        first.set_sequences(replace(back, name=TableName(None, "t")))
        here.execute("INSERT INTO t (v) VALUES (1)")
        assert here.execute("SELECT MAX(id) FROM t") == [(902,)]


def test_an_empty_table_starts_at_one_and_rows_alone_are_enough(postgres_db: Database) -> None:
    postgres_db.execute('CREATE TABLE "T%x" (id serial PRIMARY KEY, "n%s" int)')
    there = Place("postgresql", postgres_db.url, postgres_db)
    with there.session() as session:
        table = described(session, "T%x")
        assert session.set_sequences(table) == ["id: the next number is 1"]
        assert there.execute('INSERT INTO "T%x" DEFAULT VALUES RETURNING id') == [(1,)]
        there.execute('INSERT INTO "T%x" VALUES (41)')
        assert session.set_sequences(table) == ["id: the next number is 42"]
        assert there.execute('INSERT INTO "T%x" DEFAULT VALUES RETURNING id') == [(42,)]
