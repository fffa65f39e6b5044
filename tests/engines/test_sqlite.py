"""What is special about SQLite: any value in any column, keys with NULLs, a file for a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from truecopy.engines.sqlite import SQLite
from truecopy.engines.sqlite_dialect import canonical_type
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.model.fingerprint import Digest, digest_of, fingerprint
from truecopy.model.relation import WHOLE, Buckets, Chunk, Relation
from truecopy.model.table import ForeignKey, TableName
from truecopy.model.text import canonical_text
from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Type,
    Unknown,
    Uuid,
)

Open = Callable[..., SQLite]

NASTY = [
    None, 0, -(2**63), 2**63 - 1, 1.5, -0.0, 5e-324, 1e308, float("inf"), "", "abc", "NULL",
    "a,b;1", "é\u0301🙂", "nul\0x", "it's \\ \"x\"\n", b"\xff\0", b"", b"abc", "2024-01-01",
    "2024-01-01 10:00", "2024-01-01T00:00:00Z", "12:00:00", "007", " 5", "1e3", "1.50", "true",
    "x  ", "[1, 2]", '{"b": 1, "a": 1.0}', "NaN", "123E4567-e89b-12d3-a456-426614174000", "0101",
]  # fmt: skip
TYPES: list[Type] = [
    Integer(), Boolean(), Decimal(2), Decimal(None), Float(), Date(), Time(), Timestamp(False),
    Timestamp(True), Text(), Binary(), Json(), Uuid(), Bits(8), Array(Text()),
]  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop 100%.db"


@pytest.fixture
def make(file: Path) -> Iterator[Open]:
    opened = []

    def make(*statements: str) -> SQLite:
        connection = sqlite3.connect(file)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        opened.append(open_(f"sqlite:///{str(file).replace('%', '%25')}"))
        return opened[-1]

    yield make
    for session in opened:
        session.close()


def open_(url: str) -> SQLite:
    return SQLite(parse_endpoint(url))


def relation(session: SQLite, table: str, *types: Type, key_width: int = 1) -> Relation:
    found = session.describe(TableName(None, table))
    kinds = types or tuple(column.type for column in found.columns)
    return Relation(session.endpoint, (found.name,), found.columns, kinds, key_width)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", Integer()),
        ("int(11) unsigned", Integer()),
        ("UNSIGNED BIG INT", Integer()),
        ("YEAR", Integer()),
        ("BOOLEAN", Boolean()),
        ("DOUBLE PRECISION", Float()),
        ("decimal(10, 2)", Decimal(2)),
        ("NUMERIC(10)", Decimal(None)),
        ("NUMERIC", Decimal(None)),
        ("DATE", Date()),
        ("TIME", Time()),
        ("datetime", Timestamp(zone=False)),
        ("TIMESTAMP WITH TIME ZONE", Timestamp(zone=True)),
        ("TIMESTAMP(6) WITHOUT TIME ZONE", Timestamp(zone=False)),
        ("CHARACTER VARYING(20)", Text()),
        ("CHAR(5)", Text()),
        ("BLOB", Binary()),
        ("JSONB", Json("sqlite-text")),
        ("UUID", Uuid()),
        ("BIT(8)", Bits(8)),
        ("INTERVAL", Unknown()),
        ("", Unknown()),
    ],
)
def test_a_declaration_means_a_type(declared: str, kind: Type) -> None:
    assert canonical_type(declared) == kind


def test_three_slashes_are_relative_and_four_absolute(
    make: Open, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    name = str(file).replace("%", "%25")
    monkeypatch.chdir(file.parent)
    # Four slashes; three where only the absolute path exists; three and a relative path.
    for url in (f"sqlite:///{name}", f"sqlite://{name}", "sqlite:///shop%20100%25.db"):
        with open_(url) as session:
            assert session.path == file


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///missing.db", "no file missing.db"),
        ("sqlite:///", "names no file"),
        ("sqlite://shop.db", "sqlite:///shop.db"),
        ("sqlite:////tmp", "not a file"),
    ],
)
def test_what_is_not_there_is_refused_and_not_created(
    url: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        open_(url)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_database_is_refused(file: Path) -> None:
    file.write_text("id,name\n" * 1000)
    with pytest.raises(UsageError, match="not a SQLite database"):
        open_(f"sqlite:///{str(file).replace('%', '%25')}")


def test_tables_views_and_unknown_names(make: Open) -> None:
    session = make(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT)",
        'CREATE TABLE "a.b" (x)',
        "CREATE VIEW v AS SELECT 1",
    )
    assert [str(name) for name in session.tables()] == ["a.b", "orders"]
    assert session.find("ORDERS") == session.find("main.orders") == TableName(None, "orders")
    assert session.find("a.b") == TableName(None, "a.b")
    assert session.find("none") is None
    view = session.find("v")
    assert view
    with pytest.raises(UsageError, match="is a view"):
        session.describe(view)
    with pytest.raises(UsageError, match=r"there are a\.b, orders"):
        session.describe(TableName(None, "oders"))


def test_keys(make: Open) -> None:
    session = make(
        "CREATE TABLE rowid (id INTEGER PRIMARY KEY, u TEXT NOT NULL UNIQUE, n TEXT UNIQUE)",
        "CREATE UNIQUE INDEX partial ON rowid (u) WHERE u > 'a'",
        "CREATE UNIQUE INDEX expression ON rowid (lower(u))",
        "CREATE TABLE without (b TEXT, a INT, PRIMARY KEY (a, b)) WITHOUT ROWID",
        "CREATE TABLE clean (a INT PRIMARY KEY, b)",
        "INSERT INTO clean VALUES (1, 1)",
        "CREATE TABLE nulls (a INT PRIMARY KEY, b)",
        "INSERT INTO nulls VALUES (NULL, 1)",
        "CREATE TABLE child (r INT REFERENCES rowid, a INT, b TEXT,"
        " FOREIGN KEY (a, b) REFERENCES without (a, b))",
    )

    def keys(table: str) -> tuple[tuple[str, ...], ...]:
        return session.describe(TableName(None, table)).keys

    assert keys("rowid") == (("id",), ("u",))
    assert session.describe(TableName(None, "rowid")).unique == (("id",), ("u",), ("n",))
    assert keys("without") == (("a", "b"),)
    assert keys("clean") == (("a",),)
    assert keys("nulls") == ()
    assert set(session.describe(TableName(None, "child")).foreign_keys) == {
        ForeignKey(("r",), TableName(None, "rowid")),
        ForeignKey(("a", "b"), TableName(None, "without"), ("a", "b")),
    }


def test_columns(make: Open) -> None:
    session = make(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, i INT NOT NULL, s TEXT, c CHAR(3), b BLOB,"
        " g INT AS (id + 1), h INT AS (id) STORED)",
        "CREATE TABLE strict (i INT NOT NULL UNIQUE) STRICT",
        "CREATE TABLE collated (s TEXT COLLATE NOCASE PRIMARY KEY)",
        "CREATE TABLE descending (id INTEGER PRIMARY KEY DESC)",
    )

    def column(table: str, name: str) -> tuple[str | None, bool, bool]:
        found = session.describe(TableName(None, table)).column(name)
        assert found
        assert found.weak
        return found.order, found.nullable, found.generated

    assert column("t", "id") == ("number", False, False)
    assert column("t", "i") == (None, False, False)
    assert column("t", "s") == ("bytes", True, False)
    assert column("t", "c") == (None, True, False)
    assert column("t", "b") == ("bytes", True, False)
    assert column("t", "g") == (None, True, True)
    assert column("t", "h") == (None, True, True)
    assert column("strict", "i") == ("number", False, False)
    assert column("collated", "s") == (None, True, False)
    assert column("descending", "id") == (None, True, False)  # no alias of the row's number


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_any_stored_value_has_the_text_of_the_model(make: Open, file: Path, kind: Type) -> None:
    session = make("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
    with sqlite3.connect(file) as connection:
        connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(NASTY))
        connection.execute("INSERT INTO t VALUES (?, CAST(x'ff41' AS TEXT))", (len(NASTY),))
    connection.close()
    side = relation(session, "t", Integer(), kind)
    texts = session.rows(side, WHOLE).column("c1").to_pylist()
    assert texts == [canonical_text(value, kind) for value in [*NASTY, b"\xffA"]]
    found = session.fingerprints(side, WHOLE)
    values = found.column("fingerprint").to_pylist()
    if not isinstance(kind, Json):
        pairs = [(str(i), text) for i, text in enumerate(texts)]
        assert values == [fingerprint(pair, side.types) for pair in pairs]
    assert session.digest(side, WHOLE) == digest_of(values)
    buckets = session.bucket_digests(side, WHOLE, 1)
    assert sum(buckets.values(), Digest()) == digest_of(values)
    first = Buckets(1, (values[0] >> 56,))
    chosen = session.fingerprints(side, WHOLE, first).column("fingerprint").to_pylist()
    assert chosen == [value for value in values if value >> 56 == first.numbers[0]]
    (row,) = session.rows_by_fingerprint(side, [values[4]]).to_pylist()
    assert row == {"c0": "4", "c1": texts[4], "fingerprint": values[4]}


def test_fixed_length_text_ends_before_its_spaces(make: Open) -> None:
    session = make(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c CHAR(3))", "INSERT INTO t VALUES (1, 'a ')"
    )
    assert session.rows(relation(session, "t"), WHOLE).column("c1").to_pylist() == ["a"]


def test_a_key_is_found_however_it_is_stored(make: Open) -> None:
    session = make(
        "CREATE TABLE t (d DATE PRIMARY KEY NOT NULL, v)",
        "INSERT INTO t VALUES ('2024-01-01 00:00:00', 1), ('2024-01-02', 2)",
    )
    found = session.rows_by_key(relation(session, "t"), [("2024-01-01",), ("2024-01-02",)])
    assert found.to_pylist() == [{"c0": "2024-01-01", "c1": "1"}, {"c0": "2024-01-02", "c1": "2"}]


def test_many_keys_of_two_columns_are_found(make: Open) -> None:
    session = make(
        "CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, PRIMARY KEY (a, b))",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)"
        " INSERT INTO t SELECT i, i FROM n",
    )
    keys = [(str(i), str(i)) for i in range(1, 2501)]
    assert session.rows_by_key(relation(session, "t", key_width=2), keys).num_rows == 2500
    assert session.rows_by_key(relation(session, "t", key_width=2), []).num_rows == 0


def test_chunks_and_boundaries(make: Open) -> None:
    session = make(
        "CREATE TABLE t (a TEXT, b BLOB, PRIMARY KEY (a, b)) WITHOUT ROWID",
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9)"
        " INSERT INTO t SELECT i / 5, CAST(char(65 + i) AS BLOB) FROM n",
    )
    side = relation(session, "t", key_width=2)
    assert session.boundaries(side, WHOLE, 4) == [("0", "45"), ("1", "49")]
    chunk = Chunk(("0", "45"), ("1", "49"))
    assert session.digest(side, chunk).count == 4
    assert session.boundaries(side, chunk, 3) == [("1", "48")]


def test_repair_is_applied_and_printed(make: Open, file: Path) -> None:
    kinds: tuple[Type, ...] = (Integer(), Text(), Float(), Binary(), Bits(4), Integer())
    session = make(
        'CREATE TABLE t (id INTEGER PRIMARY KEY, "a?b" TEXT, f REAL, b BLOB, w BIT(4), u INT)',
        "INSERT INTO t VALUES (1, 'old', 0, x'', 0, 0), (2, 'gone', 0, x'', 0, 0)",
    )
    side = relation(session, "t", *kinds)
    before = file.read_bytes()
    rows: dict[str, list[str | None]] = {
        "1": ["1", "it's\n?", "7ff0000000000000", "00ff", "0101", None],
        "3": ["3", "nul\0", "7ff8000000000000", "", "0000", "?616263"],
    }
    transaction = [
        session.update(side, rows["1"], [1, 2, 3, 4, 5]),
        session.delete(side, ("2",)),
        session.insert(side, rows["3"]),
    ]
    script = session.script(transaction)
    session.apply(transaction)
    expected = [rows["1"], rows["3"]]
    assert [list(row.values()) for row in session.rows(side, WHOLE).to_pylist()] == expected
    file.write_bytes(before)
    with sqlite3.connect(file) as connection:
        connection.executescript(script)
    connection.close()
    with open_(str(session.endpoint).replace("%", "%25")) as again:
        assert [list(row.values()) for row in again.rows(side, WHOLE).to_pylist()] == expected


def test_a_repair_that_misses_its_row_is_rolled_back(make: Open) -> None:
    session = make("CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "INSERT INTO t VALUES (1, 1)")
    side = relation(session, "t")
    before = session.digest(side, WHOLE)
    with pytest.raises(CannotFinish, match="changed 0 rows"):
        session.apply([session.delete(side, ("1",)), session.delete(side, ("2",))])
    assert session.digest(side, WHOLE) == before


def test_a_locked_database_is_one_line(make: Open, file: Path) -> None:
    make("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    session = open_(f"sqlite:///{str(file).replace('%', '%25')}?busy_timeout=0.1")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CannotFinish, match="database is locked") as caught:
        session.tables()
    other.close()
    session.close()
    assert "\n" not in str(caught.value)


def test_a_wrong_condition_is_one_line(make: Open) -> None:
    session = make("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    side = relation(session, "t")
    wrong = Relation(side.endpoint, side.tables, side.columns, side.types, 1, where="nowhere = 1")
    with pytest.raises(TruecopyError, match="refused a statement: no such column: nowhere"):
        session.digest(wrong, WHOLE)


def test_the_position_moves_with_each_write(make: Open, file: Path) -> None:
    session = make("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    before = session.position()
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
        assert session.position() != before
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert session.position() is None
