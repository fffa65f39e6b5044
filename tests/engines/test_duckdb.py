"""What is special about DuckDB: a file with one writer, lists, lambdas, decimals without a 0."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from truecopy.engines.duckdb import DuckDB
from truecopy.engines.duckdb_dialect import canonical_type
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import WHOLE, Chunk, Relation
from truecopy.model.table import ForeignKey, Table, TableName
from truecopy.model.types import Array, Bits, Decimal, Integer, Json, Text, Time, Type, Unsupported

Open = Callable[[str], DuckDB]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.duckdb"


@pytest.fixture
def make(file: Path) -> Iterator[Open]:
    opened = []

    def make(statements: str) -> DuckDB:
        with closing(duckdb.connect(str(file))) as connection:
            connection.execute(statements)
        opened.append(DuckDB(parse_endpoint(f"duckdb://{file}")))
        return opened[-1]

    yield make
    for session in opened:
        session.close()


def described(session: DuckDB, name: str = "t") -> Table:
    found = session.find(name)
    assert found is not None
    return session.describe(found)


def relation(session: DuckDB, table: Table, width: int = 1) -> Relation:
    types = tuple(column.type for column in table.columns)
    return Relation(session.endpoint, (table.name,), table.columns, types, width)


@pytest.mark.parametrize(
    ("native", "kind"),
    [
        ("UHUGEINT", Integer()),
        ("DECIMAL(10,2)[3]", Array(Decimal(2))),
        ("INTEGER[][]", Array(Array(Integer()))),
        ("ENUM('a[]', 'b')", Text()),
        ("JSON", Json("duckdb")),
        ("BIT", Bits(None)),
        ("INTERVAL", Time()),
    ],
)
def test_types(native: str, kind: Type) -> None:
    assert canonical_type(native) == kind


@pytest.mark.parametrize(
    "native",
    ["STRUCT(a INTEGER)", "MAP(INTEGER, INTEGER)[]", "TIMESTAMP_NS", "TIME WITH TIME ZONE"],
)
def test_types_without_a_text_are_refused_by_name(native: str) -> None:
    kind = canonical_type(native)
    assert isinstance(kind, Unsupported)
    assert native in kind.reason


def test_tables_keys_and_references(make: Open) -> None:
    session = make(
        "CREATE SCHEMA sales; CREATE TABLE sales.p (a INT PRIMARY KEY, b TEXT COLLATE nocase);"
        "CREATE TABLE sales.c (y INT NOT NULL, x INT REFERENCES sales.p (a), UNIQUE (x, y));"
        "CREATE UNIQUE INDEX u ON sales.c (y); CREATE UNIQUE INDEX e ON sales.c ((y + 1));"
        "CREATE TABLE Orders (id INT, b TEXT, g INT GENERATED ALWAYS AS (id + 1), PRIMARY KEY (id, b));"
        "CREATE VIEW v AS SELECT 1"
    )
    assert [str(name) for name in session.tables()] == ["Orders", "sales.c", "sales.p"]
    assert session.find("orders") == TableName(None, "Orders")
    assert session.find("SALES.c") == TableName("sales", "c")
    assert session.find("c") is None
    child = described(session, "sales.c")
    assert (child.keys, child.unique) == ((("y",),), (("y",), ("x", "y")))
    assert child.foreign_keys == (ForeignKey(("x",), TableName("sales", "p"), ("a",)),)
    assert [c.order for c in described(session, "sales.p").columns] == ["number", None]
    orders = described(session, "orders")
    assert orders.keys == (("id", "b"),)
    assert [c.order for c in orders.columns[:2]] == ["number", "bytes"]
    assert [c.name for c in orders.columns if c.generated] == ["g"]
    assert session.position() is None
    with pytest.raises(UsageError, match=r"v on .* is a view"):
        session.describe(TableName(None, "v"))


def test_values_that_need_care(make: Open) -> None:
    session = make(
        "CREATE TABLE t (id INT PRIMARY KEY, n DECIMAL(3,3), f DOUBLE, d DATE, i INTERVAL,"
        " l TEXT[][], z TIMESTAMPTZ);"
        "INSERT INTO t VALUES (1, -0.05, -0.0, 'infinity', '-1 day 30 minutes',"
        " [['a,b', NULL], [], NULL], '2024-01-01 12:00+02')"
    )
    (row,) = session.rows(relation(session, described(session)), WHOLE).to_pylist()
    assert list(row.values()) == [
        "1",
        "-0.050",
        "0" * 16,
        "?" + b"infinity".hex(),
        "-23:30:00.000000",
        "6:3:a,b-0:-",
        "2024-01-01 10:00:00.000000",
    ]


def test_chunks_of_a_key_of_two_columns_add_up(make: Open) -> None:
    session = make(
        "CREATE TABLE t (a INT, b TEXT, PRIMARY KEY (a, b));"
        "INSERT INTO t SELECT i // 10, i::TEXT FROM range(1000) AS r(i)"
    )
    same = relation(session, described(session), width=2)
    cuts = [None, *session.boundaries(same, WHOLE, 300), None]
    assert len(cuts) == 5
    parts = [session.digest(same, Chunk(low, high)) for low, high in pairwise(cuts)]
    assert sum(parts, start=Digest()) == session.digest(same, WHOLE)
    assert [part.count for part in parts] == [300, 300, 300, 100]


def test_a_deleted_row_can_be_written_back(make: Open, file: Path) -> None:
    session = make(
        'CREATE TABLE t (id BIGINT PRIMARY KEY, "what?" TEXT, f DOUBLE, b BLOB, l DECIMAL(5,2)[],'
        " u UUID, d DATE, h HUGEINT, x BIT);"
        "INSERT INTO t VALUES (1, 'it''s ?', 'nan', '\\x00\\xFF', [1.5, NULL],"
        f" '0f3d1c52-0000-4000-8000-000000000001', '2024-02-29', {2**126}, '0101')"
    )
    same = relation(session, described(session))
    before = session.rows(same, WHOLE)
    row = list(before.to_pylist()[0].values())
    repair = [session.delete(same, (row[0],)), session.insert(same, row)]
    session.apply(repair)
    assert session.rows(same, WHOLE).equals(before)
    script = session.script(repair)
    session.close()
    session = make(script)
    assert session.rows(same, WHOLE).equals(before)
    with pytest.raises(CannotFinish, match="changed 0 rows"):
        session.apply([session.delete(same, (row[0],)), session.delete(same, ("99",))])
    assert session.rows(same, WHOLE).equals(before)


def test_reading_shares_the_file_and_writing_does_not(make: Open, file: Path) -> None:
    session = make("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)")
    same = relation(session, described(session))
    removal = [session.delete(same, ("1",))]
    with DuckDB(session.endpoint) as other:
        assert other.digest(same, WHOLE).count == 1
        with pytest.raises(CannotFinish, match="in use by another process or session"):
            session.apply(removal)
    assert session.digest(same, WHOLE).count == 1
    session.apply(removal)
    assert session.digest(same, WHOLE).count == 0


def test_another_thread_that_writes_is_waited_for(make: Open, file: Path) -> None:
    """The driver reads its ledger while a batch is being written, by another thread of the same process."""
    session = make("CREATE TABLE t (id INT)")
    session.begin()
    later = threading.Timer(0.5, session.commit)
    later.start()
    with DuckDB(parse_endpoint(f"duckdb://{file}")) as other:
        assert other.tables() == [TableName(None, "t")]
    later.join()


def test_a_file_that_another_process_writes_says_so(make: Open, file: Path) -> None:
    make("CREATE TABLE t (id INT)").close()
    hold = f"import duckdb, sys; c = duckdb.connect({str(file)!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(CannotFinish, match="in use by another process") as caught:
            DuckDB(parse_endpoint(f"duckdb://{file}"))
        writer.communicate()
    assert "\n" not in str(caught.value)


def test_a_relative_path_and_a_missing_file(
    make: Open, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("CREATE TABLE t (id INT)").close()
    monkeypatch.chdir(file.parent)
    with DuckDB(parse_endpoint("duckdb:///shop.duckdb")) as session:
        assert session.tables() == [TableName(None, "t")]
    for url in ("duckdb:///nowhere.duckdb", "duckdb://", "duckdb:///"):
        with pytest.raises(UsageError, match="there is no DuckDB file"):
            DuckDB(parse_endpoint(url))
    assert [path.name for path in file.parent.iterdir()] == ["shop.duckdb"]


def test_errors_are_one_line(make: Open, file: Path) -> None:
    session = make("CREATE TABLE t (id INT)")
    for statement in ("SELECT nix FROM t", "SELECT 1 FROM nix", "SELEC"):
        with pytest.raises(UsageError, match="refused a statement"):
            session.query(statement)
    session.close()
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(CannotFinish, match="cannot open") as caught:
        DuckDB(session.endpoint)
    assert "\n" not in str(caught.value)
