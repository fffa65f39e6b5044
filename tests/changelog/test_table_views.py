"""Views of a log in a database: what each table is now, and what happened to it."""

from __future__ import annotations

import random
import re
import time
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from tests.changelog.test_log import Place
from tests.changelog.test_table_log import HOSTILE, asked, target_url
from tests.program import truecopy as program
from tests.servers import Database
from truecopy.changelog.compact import leave_past
from truecopy.changelog.eras import Era
from truecopy.changelog.events import READ_SCHEMA, file_of
from truecopy.changelog.facts import Base, BaseChunk, BaseTable
from truecopy.changelog.reading import read_log
from truecopy.changelog.record import Listener
from truecopy.changelog.table_log import TableRecording
from truecopy.changelog.table_rows import Held
from truecopy.changelog.table_store import TableStore
from truecopy.changelog.table_views import show
from truecopy.changelog.view_names import view_names
from truecopy.engines import pool
from truecopy.engines.lines import transaction
from truecopy.engines.protocols import RunsQueries
from truecopy.model.change import Definition
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.table import Column
from truecopy.model.types import Integer, Text
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = [
    "second_mariadb_db",
    "postgres_db",
    "sqlite",
    "duckdb",
    pytest.param("mysql_db", marks=pytest.mark.mysql),
]
ITEM = """CREATE TABLE item (id BIGINT UNSIGNED, shop VARCHAR(20) COLLATE utf8mb4_bin, name TEXT, price DECIMAL(20, 2),
    PRIMARY KEY (shop, id))"""
LARGEST = 2**64 - 1


def rows_of(url: str, sql: str) -> list[tuple[str | None, ...]]:
    """As texts, whatever the driver makes of numbers."""
    return [tuple(map(as_text, row.values())) for row in asked(url, sql)]


def as_text(value: Any) -> str | None:
    """Numbers without zeros at their ends: SQLite has no decimals, and not every driver makes numbers of them."""
    text = None if value is None else str(value)
    if text is None or not re.fullmatch(r"-?\d+(\.\d+)?", text):
        return text
    return f"{Decimal(text).normalize():f}"


def source_rows(database: Database, sql: str) -> list[tuple[str | None, ...]]:
    return [tuple(map(as_text, row)) for row in database.execute(sql)]


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.timeout(600)
def test_every_engine(
    spark: SparkSession,
    mariadb_db: Database,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    engine: str,
) -> None:
    mariadb_db.execute(ITEM)
    mariadb_db.execute("CREATE TABLE `odd % \"name'` (`a ? b` INT PRIMARY KEY, `%s` TEXT)")
    mariadb_db.execute("INSERT INTO item VALUES (1, 'a', %s, 1.10), (2, 'A', NULL, -7)", (HOSTILE,))
    url = target_url(engine, request, tmp_path)
    wanted = Request(mariadb_db.url, wait=0.1)

    def record(log: str = "shop") -> None:
        said: list[str] = []
        TableRecording(wanted, url, log=log, listener=Listener(said=said.append)).run("current")
        assert said == []

    def is_shown(log: str = "shop") -> None:
        view = f"SELECT * FROM truecopy_{log}_item_current ORDER BY id, shop"
        names = ", ".join(column_names(mariadb_db))
        shown = sorted(rows_of(url, view.replace("*", names)), key=str)
        assert shown == sorted(source_rows(mariadb_db, f"SELECT {names} FROM item"), key=str)

    record()
    is_shown()
    mariadb_db.execute("INSERT INTO item VALUES (%s, 'a', '', 3)", (LARGEST,))
    mariadb_db.execute("UPDATE item SET name = 'null' WHERE id = 2; DELETE FROM item WHERE id = 1")
    mariadb_db.execute("INSERT INTO `odd % \"name'` VALUES (1, 'one')")
    record()
    is_shown()
    odd = quoted(engine, "truecopy_shop_odd % \"name'_current")
    assert rows_of(url, f"SELECT * FROM {odd}") == [("1", "one")]
    record("other_log")
    mariadb_db.execute("ALTER TABLE item ADD COLUMN note TEXT")
    mariadb_db.execute("UPDATE item SET note = 'late', price = price + 1 WHERE id = 2")
    mariadb_db.execute("INSERT INTO item VALUES (3, 'b', 'x', 1234567890.12, NULL)")
    record()
    is_shown()
    history = (
        "SELECT truecopy_kind, id, price, note FROM truecopy_shop_item_history"
        " ORDER BY truecopy_batch, truecopy_commit_order, truecopy_seq"
    )
    assert rows_of(url, history) == [
        ("insert", str(LARGEST), "3", None),
        ("update", "2", "-7", None),
        ("delete", "1", None, None),
        ("update", "2", "-6", "late"),
        ("insert", "3", "1234567890.12", None),
    ]
    assert event_count(spark, url) == 6
    mariadb_db.execute("TRUNCATE TABLE item")
    mariadb_db.execute("INSERT INTO item VALUES (5, 'c', 'new', 5, NULL), (6, 'c', 'gone', 5, '')")
    mariadb_db.execute("DELETE FROM item WHERE id = 6")
    record()
    is_shown()
    time.sleep(1.1)
    assert leave_past(parse_endpoint(url), "shop", time.time_ns() // 1000).events_removed == 10
    is_shown()
    assert rows_of(url, history) == []
    mariadb_db.execute("UPDATE item SET price = 6; INSERT INTO item VALUES (7, 'c', NULL, 7, NULL)")
    record()
    is_shown()
    assert [row[0] for row in rows_of(url, history)] == ["update", "insert"]
    record("other_log")
    is_shown("other__log")
    listed = program("changelog", "ls", url, "--log", "shop", "--json").document
    assert listed["views"] == "truecopy_shop_TABLE_current, truecopy_shop_TABLE_history"


def quoted(engine: str, name: str) -> str:
    if engine in ("second_mariadb_db", "mysql_db"):
        return f"`{name}`"
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def column_names(database: Database) -> list[str]:
    rows = database.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = 'item'"
        " ORDER BY ordinal_position",
        (database.name,),
    )
    return [name for (name,) in rows]


def event_count(spark: SparkSession, url: str) -> int:
    """The log as a reader by Spark sees it: whole rows of the stream."""
    events = read_log(spark, url, log="shop")
    first = events.where("kind = 'insert' AND `table` = 'item'").orderBy("batch").first()
    assert first is not None
    assert first["key"] == ["a", str(LARGEST)]
    assert first["after"][2:] == ["", "3.00"]
    assert first["day"] == first["committed_at"].date()
    return events.count()


@pytest.mark.parametrize(
    "engine",
    [
        "second_mariadb_db",
        pytest.param("postgres_db", marks=pytest.mark.slow),
        pytest.param("sqlite", marks=pytest.mark.slow),
        pytest.param("duckdb", marks=pytest.mark.slow),
        pytest.param("mysql_db", marks=pytest.mark.mysql),
    ],
)
@pytest.mark.timeout(600)
def test_values_that_the_source_left_out(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    source = Place("postgresql", request, tmp_path)
    source.execute(
        "CREATE TABLE item (id INT PRIMARY KEY, name TEXT, note TEXT, price NUMERIC(9,2))"
    )
    long = random.Random(1).randbytes(5000).hex()
    source.execute(f"INSERT INTO item VALUES (1, 'one', '{long}', 1.10), (2, 'two', '{long}', 2)")
    url = target_url(engine, request, tmp_path)
    wanted = Request(source.url, settings=source.settings)
    record = TableRecording(wanted, url, log="shop").run
    record("current")
    source.execute("UPDATE item SET price = price + 1, name = NULL")
    record("current")
    current = "SELECT id, name, note, price FROM truecopy_shop_item_current ORDER BY id"
    assert rows_of(url, current) == [("1", None, long, "2.1"), ("2", None, long, "3")]
    source.execute("ALTER TABLE item ADD COLUMN more TEXT; UPDATE item SET more = 'm' WHERE id = 1")
    source.execute("UPDATE item SET note = 'short', price = 3.25 WHERE id = 2")
    source.execute("UPDATE item SET price = 4 WHERE id = 2; DELETE FROM item WHERE id = 1")
    source.execute(f"INSERT INTO item VALUES (1, 'again', '{long}x', 7, NULL)")
    source.execute("UPDATE item SET more = 'n' WHERE id = 1")
    record("current")
    assert rows_of(url, current.replace("price", "price, more")) == [
        ("1", "again", long + "x", "7", "n"),
        ("2", None, "short", "4", None),
    ]


def test_without_the_right_to_make_views(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """It is said once, and the log goes on; with the right the views come."""
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    name, server = second_mariadb_db.name, second_mariadb_db.server
    user = f"u{name[-12:]}"
    rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX"
    server.execute(None, f"CREATE USER '{user}'@'%' IDENTIFIED BY 'pw'")
    server.execute(None, f"GRANT {rights} ON {name}.* TO '{user}'@'%'")
    url = f"mariadb://{user}:pw@{server.host}:{server.port}/{name}"
    said: list[str] = []
    work = TableRecording(
        Request(mariadb_db.url, wait=0.1), url, listener=Listener(said=said.append)
    )
    mariadb_db.execute("INSERT INTO item VALUES (1)")
    work.run("current")
    mariadb_db.execute("INSERT INTO item VALUES (2)")
    assert work.run("current").events == 1
    (line,) = set(said)
    assert "the views of" in line
    assert "CREATE VIEW" in line
    assert "pw" not in line
    server.execute(None, f"GRANT CREATE VIEW, DROP ON {name}.* TO '{user}'@'%'")
    said.clear()
    pool.close_idle()  # a session has the rights that it began with
    work.run("current")
    assert said == []
    assert rows_of(url, "SELECT id FROM truecopy_changes_item_current ORDER BY id") == [
        ("1",),
        ("2",),
    ]
    server.execute(None, f"DROP USER '{user}'@'%'")


@pytest.mark.long
def test_a_reader_who_takes_his_time(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    """Does not hold up the log; as long as views cannot be made anew, they show no rows that they cannot read."""
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name TEXT)")
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one')")
    wanted, said = Request(mariadb_db.url, wait=0.1), list[str]()
    record = TableRecording(wanted, postgres_db.url, listener=Listener(said=said.append)).run
    record("current")
    mariadb_db.execute("INSERT INTO item VALUES (2, 'two')")
    record("current")
    current = "SELECT * FROM truecopy_changes_item_current ORDER BY id"
    history = "SELECT count(*) FROM truecopy_changes_item_history"
    with closing(postgres_db.connect()) as reader:
        reader.execute("BEGIN")
        reader.execute(current)
        mariadb_db.execute("ALTER TABLE item DROP COLUMN name, ADD COLUMN n INT")
        mariadb_db.execute("UPDATE item SET n = id")
        assert record("current").events == 2
        assert any("cannot be made" in line for line in said)
        assert postgres_db.execute(current) == [(1, "one"), (2, "two")]
        assert postgres_db.execute(history) == [(1,)]
        reader.execute("COMMIT")
    record("current")
    assert postgres_db.execute(current) == [(1, 1), (2, 2)]
    assert postgres_db.execute(history) == [(3,)]


HARD = "\0 and \\u0000 and \\\0"
LONG = "k" * 1500
"""Servers may compare only the first thousand bytes of a text when they sort."""


@pytest.mark.parametrize("engine", ENGINES)
def test_shards_that_took_over(request: pytest.FixtureRequest, tmp_path: Path, engine: str) -> None:
    """Of a log that is written here line by line: two shards, of which the first is followed by a third."""
    endpoint = parse_endpoint(target_url(engine, request, tmp_path))
    store = TableStore.make(endpoint, "by_hand")
    shown = HARD.replace("\0", "␀") if engine in ("postgres_db", "sqlite") else HARD
    old = definition("id", "a", "b")
    new = definition("b", "id", "c")
    for one in (old, new):
        store.keep(one)
    store.begin("nowhere", Offset({}), [Era(1, "-80", 0), Era(2, "80-", 0)], 0)
    chunk = BaseChunk(0, "t", 0, "[null, null]", 6, "")
    tables = [BaseTable(era, "t", old.schema_id, "mariadb", None) for era in (1, 2)]
    store.move_base(1, Base(7, 0, 0, 0), tables, [chunk])
    load(
        store,
        store.rows,
        [
            Line(1, "moved", ("moved", "1", "x")),
            Line(1, "stays", ("stays", "1", HARD)),
            Line(1, "gone", ("gone", "1", "x")),
            Line(2, "emptied", ("emptied", "1", "x")),
            Line(1, f"{LONG}1", (f"{LONG}1", "1", None)),
            Line(1, f"{LONG}2", (f"{LONG}2", "2", None)),
        ],
        old,
        base=7,
        table="t",
        chunk=0,
    )
    assert show(store) is None
    ids = {"moved", "stays", "gone", "emptied", f"{LONG}1", f"{LONG}2"}
    assert set(current_of(store, "id")) == ids
    era = Era(3, "-80", 2, frozenset({1}))
    first = [
        Line(1, "moved", ("moved", "2", None), unchanged=(2,)),
        Line(2, None, None, kind="truncate"),
        Line(2, "later", ("later", "5", "y")),
    ]
    commit(store, first, old, [era])
    assert "emptied" in current_of(store, "id"), "not before the views know of it"
    assert show(store) is None
    assert current_of(store, "id", "a", "b") == {
        "moved": ("2", "x"),
        "stays": ("1", shown),
        "gone": ("1", "x"),
        "later": ("5", "y"),
        f"{LONG}1": ("1", None),
        f"{LONG}2": ("2", None),
    }
    second = [
        Line(3, "moved", ("z", "moved", None)),
        Line(3, "gone", None, kind="delete"),
        Line(2, "later", (None, "later", "8"), unchanged=(0,)),
    ]
    commit(store, second, new, [])
    assert show(store) is None
    assert current_of(store, "id", "b", "c") == {
        "moved": ("z", None),
        "stays": (shown, None),
        "later": ("y", "8"),
        f"{LONG}1": (None, None),
        f"{LONG}2": (None, None),
    }


@dataclass(frozen=True)
class Line:
    era: int
    key: str | None
    after: tuple[str | None, ...] | None
    unchanged: tuple[int, ...] | None = None
    kind: str = "update"


def definition(*names: str) -> Definition:
    types = {"a": Integer(), "c": Integer()}
    columns = tuple(Column(name, types.get(name, Text()), "text") for name in names)
    return Definition("t", columns, ("id",))


def load(
    store: TableStore, held: Held, lines: list[Line], of: Definition, **words: object
) -> pa.Table:
    """Lines as events of one transaction of the next batch, or as rows."""
    plain = [
        {
            "shard": f"shard {line.era}",
            "era": line.era,
            "batch": store.last + 1,
            "commit_order": 1,
            "seq": at,
            "kind": line.kind,
            "table": "t",
            "key": None if line.key is None else [line.key],
            "after": line.after,
            "unchanged": line.unchanged,
            "schema_id": of.schema_id,
        }
        for at, line in enumerate(lines)
    ]
    rows = pa.Table.from_pylist(plain, READ_SCHEMA)
    with pool.lease(store.endpoint) as session:
        target: Any = session
        with transaction(target):
            target.load(held.relation, held.texts(rows, log=store.log, **words))
    return rows


def commit(store: TableStore, lines: list[Line], of: Definition, eras: list[Era]) -> None:
    rows = load(store, store.events, lines, of)
    number = store.last + 1
    file = file_of(rows, f"{number}", "t", number)
    store.commit(Offset({}), [file], eras, is_news=True)


def current_of(store: TableStore, *names: str) -> dict[str | None, tuple[str | None, ...]]:
    query = f"SELECT {', '.join(names)} FROM truecopy_by__hand_t_current"
    with pool.lease(store.endpoint) as session:
        rows = cast(RunsQueries, session).query(query).to_pylist()
    found = [tuple(map(as_text, row.values())) for row in rows]
    assert len({row[0] for row in found}) == len(found), "a row is there twice"
    return {row[0]: row[1:] for row in found}


def test_names() -> None:
    assert view_names("shop", ["public.item", "Order"]) == {
        "public.item": "truecopy_shop_item",
        "Order": "truecopy_shop_Order",
    }
    both = view_names("a_b", ["x.item", "y.Item", "c"])
    assert both == {
        "x.item": "truecopy_a__b_x_item",
        "y.Item": "truecopy_a__b_y_Item",
        "c": "truecopy_a__b_c",
    }
    tables = ["_b_c", "x.item", "x_item", "Ä" * 60, "Ä" * 61, "item", "ITEM"]
    found = view_names("a", tables)
    assert len({name.lower() for name in found.values()}) == len(tables)
    assert all(len(f"{name}_history".encode()) <= 63 for name in found.values())
    assert not set(found.values()) & set(both.values())
