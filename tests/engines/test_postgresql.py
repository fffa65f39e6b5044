"""What is special about PostgreSQL: catalogs, collations, COPY, roles, values without a calendar."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.servers import Database
from truecopy.engines.postgresql import PostgreSQL
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.model.fingerprint import digest_of, fingerprint
from truecopy.model.relation import WHOLE, Chunk, Relation
from truecopy.model.table import Column, ForeignKey, Table, TableName
from truecopy.model.types import (
    Array,
    Bits,
    Boolean,
    Date,
    Decimal,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Type,
    Unsupported,
    Uuid,
)


@pytest.fixture
def session(postgres_db: Database) -> Iterator[PostgreSQL]:
    with PostgreSQL(parse_endpoint(postgres_db.url)) as session:
        yield session


@pytest.fixture
def role(postgres_db: Database) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = f"role_{secrets.token_hex(4)}"
    postgres_db.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
    yield name
    postgres_db.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def described(session: PostgreSQL, name: str = "t") -> Table:
    found = session.find(name)
    assert found is not None
    return session.describe(found)


def relation(session: PostgreSQL, table: Table, *kinds: Type) -> Relation:
    types = kinds or tuple(column.type for column in table.columns)
    return Relation(session.endpoint, (table.name,), table.columns, types, 1)


def column(session: PostgreSQL, database: Database, declaration: str) -> Column:
    database.execute(f"DROP TABLE IF EXISTS c; CREATE TABLE c (v {declaration})")
    return described(session, "c").columns[0]


def as_role(database: Database, name: str) -> Endpoint:
    return replace(parse_endpoint(database.url), user=name, password="p")


@pytest.mark.parametrize(
    ("declaration", "kind", "order"),
    [
        ("smallint", Integer(), "number"),
        ("boolean", Boolean(), None),
        ("numeric", Decimal(None), "number"),
        ("numeric(12,3)", Decimal(3), "number"),
        ("date", Date(), "time"),
        ("timestamptz(3)", Timestamp(zone=True), "time"),
        ("interval", Time(), None),
        ("uuid", Uuid(), "bytes"),
        ("bit(3)", Bits(3), None),
        ("varbit(3)", Bits(None), None),
        ("jsonb", Json("jsonb"), None),
        ("json", Json("json-text"), None),
        ("numeric(5,1)[]", Array(Decimal(1)), None),
        ('text COLLATE "C"', Text(), "bytes"),
        ('varchar(9) COLLATE "POSIX"', Text(), "bytes"),
        ("text COLLATE ucs_basic", Text(), "bytes"),
        ("name", Text(), "bytes"),
        ("inet", Text(), None),
    ],
)
def test_types_and_orders(
    session: PostgreSQL, postgres_db: Database, declaration: str, kind: Type, order: str | None
) -> None:
    found = column(session, postgres_db, declaration)
    assert (found.type, found.order) == (kind, order)


@pytest.mark.parametrize("declaration", ["money", "point", "int4range", "timetz", "money[]"])
def test_types_without_a_text_are_refused_by_name(
    session: PostgreSQL, postgres_db: Database, declaration: str
) -> None:
    found = column(session, postgres_db, declaration)
    assert isinstance(found.type, Unsupported)
    assert found.native in found.type.reason


def test_a_collation_is_named_with_its_provider_and_version(
    session: PostgreSQL, postgres_db: Database
) -> None:
    order = column(session, postgres_db, 'text COLLATE "en-x-icu"').order
    assert order is not None
    assert order.startswith("postgresql:i:en")
    assert not order.endswith(":")


def test_a_collation_that_is_not_deterministic_gives_no_order(
    session: PostgreSQL, postgres_db: Database
) -> None:
    postgres_db.execute(
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    assert column(session, postgres_db, "text COLLATE loose").order is None
    postgres_db.execute("INSERT INTO c VALUES ('12'), ('x')")
    table = described(session, "c")
    texts = session.rows(relation(session, table, Integer()), WHOLE).column("c0").to_pylist()
    assert sorted(texts) == ["12", "?78"]


def test_domains_and_enumerations_are_seen_through(
    session: PostgreSQL, postgres_db: Database
) -> None:
    postgres_db.execute(
        "CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE DOMAIN price AS numeric(9,2);"
        "CREATE DOMAIN fee AS price; CREATE TABLE t (id fee PRIMARY KEY, m mood, ms mood[]);"
        "INSERT INTO t VALUES (1.5, 'sad', '{glad}')"
    )
    table = described(session)
    assert [c.type for c in table.columns] == [Decimal(2), Text(), Array(Text())]
    assert table.columns[1].order is None
    (row,) = session.rows(relation(session, table), WHOLE).to_pylist()
    assert list(row.values()) == ["1.50", "sad", "4:glad"]


def test_keys_and_references(session: PostgreSQL, postgres_db: Database) -> None:
    postgres_db.execute(
        "CREATE SCHEMA sales; CREATE TABLE sales.orders (a int, b int, PRIMARY KEY (b, a));"
        "CREATE TABLE t (id int NOT NULL, u int NOT NULL, n int UNIQUE, x int, y int,"
        " d int GENERATED ALWAYS AS (u + 1) STORED,"
        " PRIMARY KEY (id, u), FOREIGN KEY (x, y) REFERENCES sales.orders);"
        "CREATE UNIQUE INDEX ON t (u) INCLUDE (n);"
        "CREATE UNIQUE INDEX ON t (id) WHERE n > 0; CREATE UNIQUE INDEX ON t ((u + 1))"
    )
    table = described(session)
    assert table.keys == (("id", "u"), ("u",))
    assert table.unique == (("id", "u"), ("n",), ("u",))
    parent = TableName("sales", "orders")
    assert table.foreign_keys == (ForeignKey(("x", "y"), parent, ("b", "a")),)
    assert [c.name for c in table.columns if c.generated] == ["d"]
    assert described(session, "sales.orders").keys == (("b", "a"),)


def test_tables_are_found_as_a_user_names_them(session: PostgreSQL, postgres_db: Database) -> None:
    postgres_db.execute(
        'CREATE SCHEMA sales; CREATE TABLE sales.t (id int); CREATE TABLE "Big.Name" (id int);'
        "CREATE TABLE p (id int) PARTITION BY RANGE (id);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9); CREATE VIEW v AS SELECT 1"
    )
    assert [str(name) for name in session.tables()] == ["public.Big.Name", "public.p", "sales.t"]
    assert session.find("sales.t") == TableName("sales", "t")
    assert session.find("Big.Name") == TableName("public", "Big.Name")
    assert session.find("P") == TableName("public", "p")
    assert session.find("t") is None
    assert session.find("v") == TableName("public", "v")
    with pytest.raises(UsageError, match=r"public\.v on .* is a view"):
        session.describe(TableName("public", "v"))
    with pytest.raises(UsageError, match="there is no table"):
        session.describe(TableName("public", "nowhere"))


def test_rows_are_counted_where_nothing_was_analysed(
    session: PostgreSQL, postgres_db: Database
) -> None:
    postgres_db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (9999);"
        "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 500) AS i"
    )
    table = described(session)
    assert table.rows == 500
    assert 100 < table.row_bytes < 400
    postgres_db.execute("ANALYZE t")
    assert described(session).rows == 500


@pytest.mark.parametrize("parted", [False, True])
def test_an_old_estimate_grows_with_the_table(
    session: PostgreSQL, postgres_db: Database, parted: bool
) -> None:
    kind = "PARTITION BY RANGE (id)" if parted else ""
    postgres_db.execute(f"CREATE TABLE t (id int PRIMARY KEY, v text) {kind}")
    if parted:
        postgres_db.execute(
            "CREATE TABLE old PARTITION OF t FOR VALUES FROM (0) TO (1001);"
            "CREATE TABLE young PARTITION OF t FOR VALUES FROM (1001) TO (100000)"
        )
    fill = "INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series({}, {}) AS i"
    postgres_db.execute(f"{fill.format(1, 1000)}; ANALYZE t")
    postgres_db.execute(fill.format(1001, 20_000))
    table = described(session)
    assert 18_000 < table.rows < 22_000
    assert 100 < table.row_bytes < 200


def test_copy_keeps_every_text(session: PostgreSQL, postgres_db: Database) -> None:
    texts = [
        None, "", "NULL", "NA", "nan", "#N/A", "\\N", "\\.", '"', '""', ",", "\n", "\r\n", "a\\b",
        " a ", "\t", "it's", "%s %%", "🙂é\u0301", "x" * 3_000_000,
    ]  # fmt: skip
    postgres_db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    postgres_db.executemany("INSERT INTO t VALUES (%s, %s)", list(enumerate(texts)))
    table = described(session)
    rows = session.rows(relation(session, table), WHOLE)
    by_key = dict(zip(rows.column("c0").to_pylist(), rows.column("c1").to_pylist(), strict=True))
    assert [by_key[str(i)] for i in range(len(texts))] == texts
    only = replace(
        relation(session, table), columns=table.columns[1:], types=(Text(),), key_width=0
    )
    assert set(session.rows(only, WHOLE).column("c0").to_pylist()) == set(texts)
    expected = [fingerprint([text], [Text()]) for text in texts]
    assert session.digest(only, WHOLE) == digest_of(expected)


def test_values_outside_the_calendar(session: PostgreSQL, postgres_db: Database) -> None:
    postgres_db.execute(
        "CREATE TABLE t (id int PRIMARY KEY, d date, s timestamptz, i interval, a int[]);"
        "INSERT INTO t VALUES (1, 'infinity', '-infinity', '1 month', '{{1,2}}'),"
        " (2, '0044-03-15 BC', '2024-01-01 12:00+02', '-1 day 30 min', '[0:1]={1,2}')"
    )
    rows = session.rows(relation(session, described(session)), WHOLE).sort_by("c0").to_pylist()
    plain = [[_unhex(text) for text in row.values()] for row in rows]
    assert plain == [
        ["1", "? infinity", "? -infinity", "? 1 mon", "? {{1,2}}"],
        ["2", "? 0044-03-15 BC", "2024-01-01 10:00:00.000000", "-23:30:00.000000", "? [0:1]={1,2}"],
    ]


def test_a_deleted_row_can_be_written_back(session: PostgreSQL, postgres_db: Database) -> None:
    postgres_db.execute(
        'CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "100%s" text,'
        " n numeric, f float8, s timestamptz, b bytea, a text[], x bit(3), d date);"
        "INSERT INTO t VALUES (DEFAULT, 'it''s \\ 5%', 'NaN', '-Infinity', '2024-01-01 00:00+05',"
        " '\\x00ff', ARRAY['a,b', NULL, '\"\\'], B'101', 'infinity')"
    )
    same = relation(session, described(session))
    before = session.rows(same, WHOLE)
    row = list(before.to_pylist()[0].values())
    repair = [session.delete(same, (row[0],)), session.insert(same, row)]
    session.apply(repair)
    assert session.rows(same, WHOLE).equals(before)
    postgres_db.execute(session.script(repair))
    assert session.rows(same, WHOLE).equals(before)
    with pytest.raises(CannotFinish, match="changed 0 rows"):
        session.apply([session.delete(same, (row[0],)), session.delete(same, ("99",))])
    assert session.rows(same, WHOLE).equals(before)


def test_a_superuser_writes_without_regard_to_references(
    session: PostgreSQL, postgres_db: Database, role: str
) -> None:
    postgres_db.execute(
        "CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE t (id int PRIMARY KEY REFERENCES p)"
    )
    session.apply([session.insert(relation(session, described(session)), ["1"])])
    assert session.transaction_start[-1] == "SET LOCAL session_replication_role = replica"
    with PostgreSQL(as_role(postgres_db, role)) as plain:
        assert plain.transaction_start[-1] == "SET CONSTRAINTS ALL DEFERRED"


def test_a_range_uses_the_index(session: PostgreSQL, postgres_db: Database) -> None:
    postgres_db.execute(
        "CREATE TABLE t (a int, b numeric, PRIMARY KEY (a, b));"
        "INSERT INTO t SELECT i, i FROM generate_series(1, 20000) AS i; ANALYZE t"
    )
    table = described(session)
    whole = Relation(session.endpoint, (table.name,), table.columns, (Integer(), Decimal(None)), 2)
    chunk = Chunk(("5", "5"), ("7", "7"))
    assert session.digest(whole, chunk).count == 2
    place, value = session.dialect.parameter(table.columns[0], Integer(), "5")
    plan = session.query(f"EXPLAIN SELECT FROM t WHERE (a, b) < ({place}, 5)", [value])
    assert "Index" in str(plan.column(0).to_pylist())


def test_keys_that_the_column_cannot_hold_are_not_found(
    session: PostgreSQL, postgres_db: Database
) -> None:
    known = "0f3d1c52-0000-4000-8000-000000000001"
    postgres_db.execute(f"CREATE TABLE t (id uuid PRIMARY KEY); INSERT INTO t VALUES ('{known}')")
    same = relation(session, described(session))
    keys = [("no uuid",), (known,), ("",)]
    assert session.rows_by_key(same, keys).column("c0").to_pylist() == [known]


def test_integers_beyond_bigint_are_compared_all_the_same(
    session: PostgreSQL, postgres_db: Database
) -> None:
    postgres_db.execute("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t VALUES (1)")
    same = relation(session, described(session))
    assert session.digest(same, Chunk(("0",), (str(2**64),))).count == 1
    assert session.rows_by_key(same, [(str(2**64),)]).num_rows == 0


def test_another_server_encoding_gives_the_same_fingerprint(postgres_db: Database) -> None:
    name = f"latin_{secrets.token_hex(4)}"
    postgres_db.execute(
        f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    latin = Database(postgres_db.server, name)
    try:
        latin.execute("CREATE TABLE t (id text PRIMARY KEY); INSERT INTO t VALUES ('é')")
        with PostgreSQL(parse_endpoint(latin.url)) as session:
            table = described(session)
            found = session.fingerprints(relation(session, table), WHOLE).to_pylist()
        assert found == [{"k0": "é", "fingerprint": fingerprint(["é"], [Text()])}]
    finally:
        postgres_db.server.drop_database(name)


def test_position_and_lag(session: PostgreSQL, postgres_db: Database) -> None:
    before = session.position()
    postgres_db.execute("CREATE TABLE t (id int)")
    assert before is not None
    assert before != session.position()
    assert session.lag_seconds() is None


def test_errors_are_one_line_without_secrets(
    session: PostgreSQL, postgres_db: Database, role: str
) -> None:
    known = parse_endpoint(postgres_db.url)
    _refused(UsageError, "check the user", replace(known, user="nobody", password="geheim"))
    _refused(UsageError, "no database nowhere", replace(known, path="/nowhere"))
    _refused(CannotFinish, "cannot connect", replace(known, port=1, password="geheim"))
    postgres_db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with PostgreSQL(as_role(postgres_db, role)) as plain:
        with pytest.raises(CannotFinish, match=r"permission denied.*GRANT SELECT"):
            plain.query("SELECT * FROM t")
        postgres_db.execute(f"ALTER TABLE t ENABLE ROW LEVEL SECURITY; GRANT SELECT ON t TO {role}")
        with pytest.raises(CannotFinish, match="BYPASSRLS"):
            plain.query("SELECT * FROM t")
    with pytest.raises(UsageError, match='column "nix" does not exist'):
        session.query("SELECT nix FROM t")
    (backend,) = session.query("SELECT pg_backend_pid() AS id").column("id").to_pylist()
    postgres_db.execute(f"SELECT pg_terminate_backend({backend})")
    for _ in range(2):
        with pytest.raises(CannotFinish, match="run the same command again"):
            session.query("SELECT 1")


def _refused(kind: type[TruecopyError], words: str, endpoint: Endpoint) -> None:
    with pytest.raises(kind, match=words) as caught:
        PostgreSQL(endpoint)
    assert "\n" not in str(caught.value)
    assert "geheim" not in str(caught.value)


def _unhex(text: str) -> str:
    return f"? {bytes.fromhex(text[1:]).decode()}" if text.startswith("?") else text
