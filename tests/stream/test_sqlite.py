"""The change log of SQLite: whatever statement changes a table, replaying the log gives the table."""

from __future__ import annotations

import os
import pickle
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truecopy.engines.sqlite_dialect import text_function
from truecopy.metastore.definitions import Definitions
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.log import ChangeLog, Level, LogGone, Mark, Wanted, open_log
from truecopy.stream.sqlite import SQLiteLog, annotate, remove
from truecopy.stream.sqlite.facts import split_index

WANTED = Wanted("shop")
EVERYTHING = 1 << 60

Change = dict[str, Any]
State = dict[tuple[str | None, ...], tuple[str | None, ...]] | Counter[tuple[str | None, ...]]


class Shop:
    """A file that an application writes to, and its log."""

    def __init__(self, path: Path, schema: str = "") -> None:
        self.path = path
        self.app = sqlite3.connect(path, isolation_level=None)
        self.app.executescript(schema)
        self.endpoint: Endpoint = parse_endpoint(f"sqlite:///{path}")

    def open(self, **settings: str) -> SQLiteLog:
        log = open_log(self.endpoint, Wanted("shop", settings=settings))
        assert isinstance(log, SQLiteLog)
        assert isinstance(log, ChangeLog)
        return log

    def close(self) -> None:
        self.app.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path / "shop.db")) as made:
        yield made


def changes(log: ChangeLog, start: Mark, end: Mark, parts: int = 1) -> list[Change]:
    return [
        row
        for part in log.split(start, end, parts)
        for batch in pickle.loads(pickle.dumps(part)).read()
        for row in batch.to_pylist()
    ]


def replay(rows: list[Change], table: str) -> State:
    """What the table must hold; a table without a key is a multiset."""
    keyed: dict[tuple[str | None, ...], tuple[str | None, ...]] = {}
    heap: Counter[tuple[str | None, ...]] = Counter()
    has_key = False
    for row in rows:
        if row["table"] != table:
            continue
        if row["kind"] == "truncate":
            keyed.clear()
            heap.clear()
            continue
        key = tuple(row["key"])
        has_key = has_key or bool(key)
        if row["kind"] == "delete":
            keyed.pop(key, None)
        else:
            keyed[key] = tuple(row["after"])
        if row["before"]:
            heap[tuple(row["before"])] -= 1
        if row["after"]:
            heap[tuple(row["after"])] += 1
    return keyed if has_key else Counter({row: n for row, n in heap.items() if n})


def held(shop: Shop, rows: list[Change], table: str) -> State:
    """What the table holds, in the form of `replay`."""
    mine = [row for row in rows if row["table"] == table]
    definition = Definitions().find(mine[-1]["schema_id"])
    texts_of = [text_function(column, column.type) for column in definition.columns]
    shop.app.text_factory = lambda data: data if _is_broken(data) else data.decode()
    names = ", ".join(f'"{name}"' for name in definition.names)
    found = [
        tuple(text_of(value) for text_of, value in zip(texts_of, row, strict=True))
        for row in shop.app.execute(f'SELECT {names} FROM "{table}"')
    ]
    if not definition.key:
        return Counter(found)
    return {tuple(row[place] for place in definition.key_places): row for row in found}


def _is_broken(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def assert_replays(shop: Shop, log: ChangeLog, start: Mark, *tables: str) -> list[Change]:
    rows = changes(log, start, log.current())
    for table in tables:
        if any(row["table"] == table for row in rows):
            assert replay(rows, table) == held(shop, rows, table)
        else:
            assert not shop.app.execute(f'SELECT 1 FROM "{table}"').fetchall()
    return rows


def told(rows: list[Change]) -> list[tuple[str, Any, Any]]:
    return [(row["kind"], row["before"], row["after"]) for row in rows]


# Every way to change a row

TABLES = {
    "rows": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE, b INT, c, UNIQUE (b, c))",
    "auto": "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a TEXT UNIQUE, b INT, c)",
    "text key": "CREATE TABLE t (id INT, a TEXT PRIMARY KEY NOT NULL, b INT, c UNIQUE)",
    "composite": "CREATE TABLE t (id INT NOT NULL, a TEXT, b INT NOT NULL, c UNIQUE, PRIMARY KEY (id, b))",
    "without rowid": "CREATE TABLE t (id INT, a TEXT COLLATE NOCASE, b INT UNIQUE, c,"
    " PRIMARY KEY (a, id)) WITHOUT ROWID",
    "no key": "CREATE TABLE t (id INT, a TEXT, b INT, c)",
    "nullable unique": "CREATE TABLE t (id INT UNIQUE, a TEXT, b INT, c)",
    "nocase": "CREATE TABLE t (id INT, a TEXT PRIMARY KEY COLLATE NOCASE NOT NULL, b INT, c)",
    "partial": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INT, c);"
    "CREATE UNIQUE INDEX u ON t (a COLLATE NOCASE DESC) WHERE b > 1 AND c IS NOT ')';",
    "expression": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INT, c);"
    "CREATE UNIQUE INDEX u ON t (lower(a) || ',', b + 1 DESC /* , */);",
    "generated": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INT, c,"
    " d AS (b / 2) UNIQUE, e AS (upper(a)) STORED)",
    "default": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT NOT NULL DEFAULT 'x' UNIQUE,"
    " b INT NOT NULL DEFAULT 2 UNIQUE, c)",
    "schema says replace": "CREATE TABLE t (id INTEGER PRIMARY KEY ON CONFLICT REPLACE,"
    " a TEXT UNIQUE ON CONFLICT REPLACE, b INT UNIQUE ON CONFLICT IGNORE, c)",
    "stamped": "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE, b INT, c);"
    "CREATE TRIGGER stamp AFTER INSERT ON t BEGIN UPDATE t SET c = b WHERE id = NEW.id; END;"
    "CREATE TRIGGER cap AFTER UPDATE OF b ON t WHEN NEW.b > 3 BEGIN DELETE FROM t WHERE id = NEW.id; END;",
    "versioned": "CREATE TABLE t (id INT NOT NULL, a TEXT UNIQUE, b INT, c, PRIMARY KEY (id));"
    "CREATE TRIGGER older BEFORE INSERT ON t WHEN NEW.id > 0 BEGIN UPDATE t SET c = 'old' WHERE b = NEW.b;"
    " INSERT OR REPLACE INTO t (id, a) VALUES (-NEW.id, 'v'); END;",
}
LATE_TRIGGERS = (
    # Made after ours, so that SQLite runs it before ours.
    "CREATE TRIGGER late AFTER INSERT ON t BEGIN UPDATE t SET c = 'late' WHERE b = NEW.b AND c IS NULL; END"
)

_ids = st.sampled_from(["NULL", "1", "2", "3", "-1"])
_texts = st.sampled_from(["NULL", "'x'", "'X'", "'y'", "'v'"])
_numbers = st.sampled_from(["NULL", "1", "2", "3", "4"])
_others = st.sampled_from(["NULL", "1", "'p'", "2.5", "x'00ff'"])
_values = st.tuples(_ids, _texts, _numbers, _others).map(lambda values: f"({', '.join(values)})")
_or = st.sampled_from(["", " OR REPLACE", " OR IGNORE", " OR FAIL", " OR ABORT", " OR ROLLBACK"])
_upsert = st.sampled_from(
    [
        "",
        "",
        " ON CONFLICT DO NOTHING",
        " ON CONFLICT DO UPDATE SET b = excluded.b, c = 'upserted'",
        " ON CONFLICT DO UPDATE SET id = excluded.id, a = excluded.a",
    ]
)
_insert = st.builds(
    lambda resolve, rows, upsert: (
        f"INSERT{resolve} INTO t (id, a, b, c) VALUES {', '.join(rows)}{upsert}"
    ),
    _or,
    st.lists(_values, min_size=1, max_size=3),
    _upsert,
)
_where = st.one_of(
    st.just(""),
    _numbers.map(lambda value: f" WHERE b IS {value}"),
    _ids.map(lambda value: f" WHERE id IS {value}"),
    _texts.map(lambda value: f" WHERE a IS {value}"),
)
_set = st.one_of(
    _ids.map(lambda value: f"id = {value}"),
    st.sampled_from(["id = id + 1", "a = lower(a)", "a = upper(a)", "b = b + 1", "c = b"]),
    _texts.map(lambda value: f"a = {value}"),
    st.tuples(_numbers, _others).map(lambda pair: f"b = {pair[0]}, c = {pair[1]}"),
)
_update = st.builds(
    lambda resolve, to, where: f"UPDATE{resolve} t SET {to}{where}", _or, _set, _where
)
_delete = _where.map(lambda where: f"DELETE FROM t{where}")
_control = st.sampled_from(["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s"])
_statements = st.lists(
    st.one_of(_insert, _insert, _insert, _update, _update, _delete, _control), max_size=14
)


@settings(max_examples=int(os.environ.get("TRUECOPY_EXAMPLES", "80")), deadline=None)
@given(
    table=st.sampled_from(list(TABLES)),
    recursive=st.booleans(),
    late=st.booleans(),
    statements=_statements,
)
def test_replaying_the_log_gives_the_table(
    table: str, recursive: bool, late: bool, statements: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder) / "shop.db", TABLES[table])
        shop.app.execute(f"PRAGMA recursive_triggers = {recursive:d}")
        shop.app.execute("PRAGMA synchronous = OFF")
        with closing(shop), shop.open() as log:
            start = log.current()
            if late:
                shop.app.execute(LATE_TRIGGERS)
            for statement in statements:
                # Refused by a constraint, or no transaction to end.
                with suppress(sqlite3.Error):
                    shop.app.execute(statement)
            if shop.app.in_transaction:
                shop.app.execute("COMMIT")
            assert_replays(shop, log, start, "t")


STATEMENTS = {
    "insert": ("rows", ["INSERT INTO t VALUES (1, 'x', 1, 1)"], "I"),
    "replace by the row's number": (
        "rows",
        ["INSERT INTO t VALUES (1, 'x', 1, 1)", "REPLACE INTO t VALUES (1, 'y', 2, 2)"],
        "IDI",
    ),
    "replace by three keys at once": (
        "rows",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2), (3, 'z', 3, 3)",
            "REPLACE INTO t VALUES (1, 'y', 3, 3)",
        ],
        "IIIDDDI",
    ),
    "ignored": (
        "rows",
        ["INSERT INTO t VALUES (1, 'x', 1, 1)", "INSERT OR IGNORE INTO t VALUES (2, 'x', 2, 2)"],
        "I",
    ),
    "ignored, then replaced": (
        "rows",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2)",
            "INSERT OR IGNORE INTO t VALUES (3, 'x', 2, 2)",
            "REPLACE INTO t VALUES (3, 'z', 2, 2)",
        ],
        "IIDI",
    ),
    "ignored, then deleted": (
        "rows",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1)",
            "INSERT OR IGNORE INTO t VALUES (2, 'x', 2, 2)",
            "DELETE FROM t",
            "INSERT INTO t VALUES (1, 'x', 1, 1)",
        ],
        "IDI",
    ),
    "failed": (
        "rows",
        ["INSERT INTO t VALUES (1, 'x', 1, 1)", "INSERT OR FAIL INTO t VALUES (2, 'x', 2, 2)"],
        "I",
    ),
    "upsert that updates": (
        "rows",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1)",
            "INSERT INTO t VALUES (2, 'x', 2, 2) ON CONFLICT (a) DO UPDATE SET c = 5",
        ],
        "IU",
    ),
    "upsert that changes the key": (
        "rows",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1)",
            "INSERT INTO t VALUES (2, 'x', 2, 2) ON CONFLICT (a) DO UPDATE SET id = 7",
        ],
        "IDI",
    ),
    "update or replace": (
        "rows",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2)",
            "UPDATE OR REPLACE t SET a = 'x' WHERE id = 2",
        ],
        "IIDU",
    ),
    "update or replace of all keys": (
        "rows",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2), (3, 'z', 3, 3)",
            "UPDATE OR REPLACE t SET id = id + 1",
        ],
        None,
    ),
    "update or ignore": (
        "rows",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2)",
            "UPDATE OR IGNORE t SET a = 'x'",
            "UPDATE t SET c = 9 WHERE id = 1",
        ],
        # The first row is updated to what it is.
        "IIUU",
    ),
    "key in other letters": (
        "nocase",
        ["INSERT INTO t VALUES (1, 'x', 1, 1)", "UPDATE t SET a = 'X'"],
        "IDI",
    ),
    "replace in other letters": (
        "without rowid",
        ["INSERT INTO t VALUES (1, 'x', 1, 1)", "REPLACE INTO t VALUES (1, 'X', 2, 2)"],
        "IDI",
    ),
    "default instead of null": (
        "default",
        ["INSERT INTO t VALUES (1, 'x', 1, 1)", "REPLACE INTO t VALUES (2, NULL, 2, 2)"],
        "IDI",
    ),
    "conflict of a partial index": (
        "partial",
        [
            "INSERT INTO t VALUES (1, 'x', 2, 1), (2, 'X', 1, 1)",
            "REPLACE INTO t VALUES (3, 'X', 2, 2)",
        ],
        "IIDI",
    ),
    "conflict of an expression": (
        "expression",
        ["INSERT INTO t VALUES (1, 'x', 2, 1)", "REPLACE INTO t VALUES (3, 'X', 2, 2)"],
        "IDI",
    ),
    "conflict of a generated column": (
        "generated",
        ["INSERT INTO t VALUES (1, 'x', 2, 1)", "REPLACE INTO t VALUES (3, 'X', 3, 2)"],
        "IDI",
    ),
    "declared as replacing": (
        "schema says replace",
        ["INSERT INTO t VALUES (1, 'x', 1, 1)", "INSERT INTO t VALUES (1, 'y', 2, 2)"],
        "IDI",
    ),
    "replace without a key": (
        "nullable unique",
        ["INSERT INTO t VALUES (1, 'x', 1, 1)", "REPLACE INTO t VALUES (1, 'y', 2, 2)"],
        "IDI",
    ),
    "no key at all": (
        "no key",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1), (1, 'x', 1, 1)",
            "REPLACE INTO t (rowid, id) VALUES (2, 5)",
            "UPDATE t SET b = 7",
            "DELETE FROM t WHERE rowid = 1",
        ],
        "IIDIUUD",
    ),
    "everything deleted": (
        "rows",
        ["INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2)", "DELETE FROM t"],
        "IIDD",
    ),
    "nested replace": (
        "versioned",
        [
            "INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2)",
            "REPLACE INTO t VALUES (2, 'x', 1, 3)",
        ],
        None,
    ),
}


@pytest.mark.parametrize("recursive", [False, True], ids=["plain", "recursive"])
@pytest.mark.parametrize("case", STATEMENTS)
def test_logs_each_change_once(shop: Shop, case: str, recursive: bool) -> None:
    table, statements, kinds = STATEMENTS[case]
    shop.app.executescript(TABLES[table])
    shop.app.execute(f"PRAGMA recursive_triggers = {recursive:d}")
    with shop.open() as log:
        start = log.current()
        for statement in statements:
            try:
                shop.app.execute(statement)
            except sqlite3.IntegrityError:
                assert case == "failed"
        rows = assert_replays(shop, log, start, "t")
    if kinds is not None:
        assert "".join(row["kind"][0].upper() for row in rows) == kinds


@pytest.mark.parametrize("late", [False, True], ids=["before ours", "after ours"])
@pytest.mark.parametrize(
    ("table", "trigger"),
    [
        ("rows", "AFTER INSERT ON t BEGIN UPDATE t SET c = b + 10 WHERE id = NEW.id; END"),
        ("rows", "AFTER DELETE ON t BEGIN INSERT INTO t VALUES (OLD.id, 'again', 9, 9); END"),
        ("rows", "AFTER UPDATE OF c ON t BEGIN UPDATE t SET id = id + 10 WHERE id = NEW.id; END"),
        ("nullable unique", "BEFORE INSERT ON t BEGIN UPDATE t SET c = 'o' WHERE id = NEW.id; END"),
        ("nullable unique", "AFTER INSERT ON t BEGIN UPDATE t SET c = 'n' WHERE id = NEW.id; END"),
    ],
)
def test_triggers_of_the_application(shop: Shop, table: str, trigger: str, late: bool) -> None:
    shop.app.executescript(TABLES[table])
    made = f"CREATE TRIGGER theirs {trigger}"
    if not late:
        shop.app.execute(made)
    with shop.open() as log:
        start = log.current()
        if late:
            shop.app.execute(made)
        for statement in (
            "INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2)",
            "REPLACE INTO t VALUES (1, 'z', 3, 3)",
            "UPDATE t SET c = 5 WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
        ):
            shop.app.execute(statement)
            with closing(shop.app.execute("SELECT MAX(sequence) FROM truecopy_log")) as cursor:
                end = Mark(str(cursor.fetchall()[0][0]))
            # Not through the log, which would make its triggers anew.
            rows = changes(log, start, end)
            assert replay(rows, "t") == held(shop, rows, "t")


def test_vacuum_may_number_rows_anew(shop: Shop) -> None:
    shop.app.executescript(TABLES["text key"])
    with shop.open() as log:
        start = log.current()
        shop.app.execute("INSERT INTO t VALUES (1, 'x', 1, 1), (2, 'y', 2, 2), (3, 'z', 3, 3)")
        shop.app.execute("DELETE FROM t WHERE a = 'x'")
        shop.app.execute("UPDATE OR IGNORE t SET c = 3 WHERE a = 'y'")
        shop.app.execute("VACUUM")
        shop.app.execute("UPDATE t SET b = 9 WHERE a = 'y'")
        rows = assert_replays(shop, log, start, "t")
    assert [row["kind"] for row in rows] == ["insert"] * 3 + ["delete", "update"]


def test_rows_that_foreign_keys_cascade_to_are_logged(shop: Shop) -> None:
    shop.app.executescript(
        "PRAGMA foreign_keys = ON;"
        "CREATE TABLE t (id INTEGER PRIMARY KEY, up INT REFERENCES t ON DELETE CASCADE);"
        "CREATE TABLE u (id INTEGER PRIMARY KEY, t INT REFERENCES t ON DELETE SET NULL);"
    )
    with shop.open() as log:
        start = log.current()
        shop.app.execute("INSERT INTO t VALUES (1, NULL), (2, 1), (3, 2), (4, NULL)")
        shop.app.execute("INSERT INTO u VALUES (1, 3), (2, 4)")
        shop.app.execute("REPLACE INTO t VALUES (1, NULL)")
        rows = assert_replays(shop, log, start, "t", "u")
    assert shop.app.execute("SELECT COUNT(*) FROM t").fetchall() == [(2,)]
    assert [row["kind"] for row in rows if row["table"] == "u"] == ["insert", "insert", "update"]


# Values

VALUES = [
    "NULL", "0", "-9223372036854775808", "9223372036854775807", "1.5", "-0.0", "5e-324", "9e999",
    "-9e999", "0.1", "1e23", "''", "'abc'", "'NULL'", "x''", "x'00ff'", "CAST(x'610062' AS TEXT)",
    "CAST(x'fffe' AS TEXT)", "'\u00e9\U0001f600'", "'1'", "'1.0'", "x'61'",
]  # fmt: skip


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_any_value_in_any_column(shop: Shop, encoding: str) -> None:
    shop.app.execute(f"PRAGMA encoding = '{encoding}'")
    shop.app.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, i INT, f REAL, t TEXT, b BLOB, n NUMERIC, x, d DATE)"
    )
    with shop.open() as log:
        start = log.current()
        for value in VALUES:
            shop.app.execute(f"INSERT INTO t (i, f, t, b, n, x, d) SELECT {', '.join([value] * 7)}")
        shop.app.execute("UPDATE t SET i = f, f = t, t = b, b = n, n = x, x = i")
        rows = assert_replays(shop, log, start, "t")
    assert len(rows) == 2 * len(VALUES)
    # The log keeps what canonical text cannot: bytes behind a NUL, the class of a value.
    logged = [f"typeof(v{i}), hex(v{i})" for i in range(8, 16)]
    stored = [f"typeof({name}), hex({name})" for name in ("id", *"iftbnxd")]
    assert (
        shop.app.execute(
            f"SELECT {', '.join(logged)} FROM truecopy_log WHERE kind = 'U' ORDER BY sequence"
        ).fetchall()
        == shop.app.execute(f"SELECT {', '.join(stored)} FROM t ORDER BY id").fetchall()
    )


def test_wide_tables_and_strange_names(shop: Shop) -> None:
    columns = ", ".join(f'"c ""{i}"' for i in range(400))
    shop.app.execute(f'CREATE TABLE "a ""b; table" ("rowid" TEXT PRIMARY KEY NOT NULL, {columns})')
    shop.app.execute('CREATE TABLE "order" ("group" INTEGER PRIMARY KEY, [select] UNIQUE)')
    with shop.open() as log:
        start = log.current()
        shop.app.execute('INSERT INTO "a ""b; table" ("rowid", "c ""399") VALUES (\'k\', \'last\')')
        shop.app.execute('UPDATE "a ""b; table" SET "c ""0" = 1')
        shop.app.execute('REPLACE INTO "order" VALUES (1, 2), (2, 2)')
        rows = changes(log, start, log.current())
    assert [row["table"] for row in rows] == ['a "b; table', 'a "b; table', *["order"] * 3]
    assert rows[1]["after"][-1] == "last"


def test_null_in_a_primary_key_is_said(shop: Shop) -> None:
    shop.app.execute("CREATE TABLE t (id TEXT PRIMARY KEY)")
    with shop.open() as log:
        start = log.current()
        shop.app.execute("INSERT INTO t VALUES (NULL)")
        with pytest.raises(CannotFinish, match="NULL in its primary key"):
            changes(log, start, log.current())


def test_taken_names_of_the_row_number_are_said(shop: Shop) -> None:
    shop.app.execute("CREATE TABLE t (rowid, _rowid_, oid)")
    with shop.open() as log, pytest.raises(UsageError, match="rowid, _rowid_, oid"):
        log.current()


def test_virtual_tables_are_said(shop: Shop) -> None:
    shop.app.execute("CREATE VIRTUAL TABLE words USING fts5(body)")
    with shop.open() as log:
        log.current()
        assert "words" in log.warnings[0]
    with open_log(shop.endpoint, Wanted("shop", ("words",))) as log:
        assert "triggers" in log.missing()[0]


# Ranges

SIMPLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)"


def fill(shop: Shop, first: int, count: int, size: int = 1) -> None:
    shop.app.execute("BEGIN")
    rows = [(first + i, "x" * size) for i in range(count)]
    shop.app.executemany("INSERT INTO t VALUES (?, ?)", rows)
    shop.app.execute("COMMIT")


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_range_reads_the_same_however_it_is_cut(shop: Shop, mode: str) -> None:
    shop.app.executescript(f"PRAGMA journal_mode = {mode}; {SIMPLE}")
    with shop.open() as log:
        start = log.current()
        fill(shop, 1, 20)
        shop.app.execute("UPDATE t SET id = id + 100 WHERE id < 5")
        end = log.current()
        once = changes(log, start, end)
        assert len(once) == 28
        for parts in (1, 2, 7, 100):
            assert changes(log, start, end, parts) == once
    with shop.open() as fresh:
        assert changes(fresh, fresh.seek(start.position), fresh.seek(end.position), 3) == once
    assert [row["position"] for row in once] == sorted(row["position"] for row in once)


def test_ranges_end_where_something_was_committed(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    with shop.open() as log:
        start = log.current()
        ends = []
        for i in range(4):
            fill(shop, 100 * i, 50, size=100)
            ends.append(log.current())
        size = ends[0].written - start.written
        assert 50 * 100 < size < 50 * 200
        assert log.level is Level.TABLE
        assert log.advance(start, size, 0).position == ends[0].position
        assert log.advance(start, 1, 0).position == ends[0].position
        assert log.advance(start, 3 * size, 0).position == ends[2].position
        assert log.advance(start, EVERYTHING, 0).position == ends[3].position
    with shop.open() as late:  # it saw no end but this one
        assert late.advance(start, 1, 0).position == ends[3].position
    with shop.open(cut="rows") as cut:
        assert cut.level is Level.ROW
        end = cut.advance(start, size // 2, 0)
        assert 20 < len(changes(cut, start, end)) < 30
        assert len(changes(cut, start, cut.advance(start, 1, 0))) == 1
        assert cut.advance(start, EVERYTHING, 0).position == ends[3].position


def test_advance_waits_for_news_and_sees_only_what_is_committed(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    with shop.open() as log:
        start = log.current()
        shop.app.execute("BEGIN")
        shop.app.execute("INSERT INTO t VALUES (1, 'a')")
        began = time.monotonic()
        idle = log.advance(start, EVERYTHING, 0.2)
        assert time.monotonic() - began >= 0.2
        assert idle == start
        shop.app.execute("COMMIT")
        assert log.lag(start).bytes > 0
        end = log.advance(start, EVERYTHING, 5)
        assert len(changes(log, start, end)) == 1
        assert log.lag(end).bytes == 0


def test_release_lets_the_log_go(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    with shop.open() as log:
        start = log.current()
        fill(shop, 1, 1200)
        middle = log.current()
        fill(shop, 5000, 10)
        end = log.current()
        parts = log.split(start, end, 1)
        log.release(middle)
        assert log.oldest().position == middle.position
        assert len(changes(log, middle, end)) == 10
        with pytest.raises(LogGone):
            log.seek(start.position)
        with pytest.raises(LogGone):
            log.advance(start, EVERYTHING, 0)
        with pytest.raises(LogGone):
            list(parts[0].read())
        log.release(end)
        assert log.oldest() == log.current() == log.seek(end.position)
        fill(shop, 9000, 1)
        assert log.current().written > end.written
    with shop.open(keep_log="true") as log:
        log.release(log.current())
        assert len(changes(log, end, log.current())) == 1


def test_two_streams_of_one_file_keep_the_log_for_each_other(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    with shop.open(slot="one") as one, shop.open(slot="two") as two:
        start = two.current()
        fill(shop, 1, 10)
        end = one.current()
        one.release(end)
        assert len(changes(two, two.seek(start.position), end)) == 10
        two.release(end)
        assert two.oldest().position == end.position
        remove(shop.endpoint, _reading("one"))
        fill(shop, 100, 5)
        assert len(changes(two, end, two.current())) == 5
        remove(shop.endpoint, _reading("two"))
    assert not shop.app.execute(
        "SELECT 1 FROM sqlite_schema WHERE name GLOB 'truecopy_*'"
    ).fetchall()


def _reading(slot: str) -> Wanted:
    return Wanted("shop", settings={"slot": slot})


def test_seeks_by_time(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    with shop.open(longest_transaction="0") as log:
        start = log.current()
        fill(shop, 1, 5)
        time.sleep(0.05)
        at = time.time_ns() // 1000
        time.sleep(0.05)
        first = log.current()
        fill(shop, 10, 5)
        assert log.seek_time(at).position == first.position
        assert log.seek_time(start.committed_at + 1).position == start.position
        assert log.seek_time(time.time_ns() // 1000 + 1).position == log.current().position
        with pytest.raises(LogGone):
            log.seek_time(start.committed_at - 10_000_000)
    with shop.open() as log:  # a transaction may have been open for a minute
        assert log.seek_time(at).position == start.position


def test_positions_of_another_log_are_refused(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    with shop.open() as log:
        fill(shop, 1, 3)
        before = log.current()
        with pytest.raises(LogGone):
            log.seek(str(int(before.position) + 1))
        with pytest.raises(UsageError):
            log.seek("mysql-bin.1")
    remove(shop.endpoint)
    shop.app.execute("INSERT INTO t VALUES (77, 'unseen')")
    names = shop.app.execute(
        "SELECT name FROM sqlite_schema WHERE name LIKE 'truecopy%'"
    ).fetchall()
    assert names == []
    with shop.open() as log, pytest.raises(LogGone):
        log.seek(before.position)


def test_chooses_tables_and_keys_only(shop: Shop) -> None:
    shop.app.executescript(
        f"{SIMPLE}; CREATE TABLE u (id INTEGER PRIMARY KEY); CREATE TABLE v (id)"
    )
    wanted = Wanted("shop", ("t", "main.u"), keys_only=True)
    with open_log(shop.endpoint, wanted) as log:
        start = log.current()
        for table in "tuv":
            shop.app.execute(f"INSERT INTO {table} (id) VALUES (5)")
        rows = changes(log, start, log.current())
    assert [(row["table"], row["key"], row["after"]) for row in rows] == [
        ("t", ["5"], None),
        ("u", ["5"], None),
    ]
    assert {row["shard"] for row in rows} == {"shop"}


def test_annotations_are_a_column_of_the_log(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    with shop.open() as log:
        start = log.current()
        shop.app.execute("BEGIN")
        annotate(shop.app, "task shop")
        shop.app.execute("INSERT INTO t VALUES (1, 'ours')")
        annotate(shop.app, None)
        shop.app.execute("COMMIT")
        shop.app.execute("INSERT INTO t VALUES (2, 'rogue')")
        rows = changes(log, start, log.current())
    assert [row["annotation"] for row in rows] == ["task shop", None]


# Tables that change


def test_rows_written_under_older_triggers_are_logged_again(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    shop.app.execute("INSERT INTO t VALUES (1, 'old'), (2, 'old')")
    with shop.open() as log:
        start = log.current()
        shop.app.execute("INSERT INTO t VALUES (3, 'before')")
        log.current()
        shop.app.execute("ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'd'")
        shop.app.execute("INSERT INTO t VALUES (4, 'after', 'seen late')")
        shop.app.execute("UPDATE t SET b = 'too' WHERE id = 1")
        changed = log.advance(start, EVERYTHING, 0)
        old = changes(log, start, changed)
        assert told(old) == [
            ("insert", None, ["3", "before"]),
            ("insert", None, ["4", "after"]),
            ("update", ["1", "old"], ["1", "old"]),
        ]
        shop.app.execute("INSERT INTO t VALUES (5, 'new', 'b')")
        new = changes(log, changed, log.advance(changed, EVERYTHING, 0))
    assert told(new) == [
        ("update", None, ["1", "old", "too"]),
        ("update", None, ["4", "after", "seen late"]),
        ("insert", None, ["5", "new", "b"]),
    ]
    assert len({row["schema_id"] for row in old + new}) == 2
    find = Definitions().find
    assert find(old[0]["schema_id"]).names == ("id", "a")
    assert find(new[0]["schema_id"]).names == ("id", "a", "b")


def test_renaming_takes_the_triggers_along(shop: Shop) -> None:
    shop.app.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE)")
    with shop.open() as log:
        start = log.current()
        shop.app.execute("ALTER TABLE t RENAME COLUMN a TO b")
        shop.app.execute("INSERT INTO t VALUES (1, 'x')")
        middle = log.current()
        shop.app.execute("ALTER TABLE t RENAME TO u")
        shop.app.execute("REPLACE INTO u VALUES (2, 'x')")
        log.current()
        shop.app.execute("INSERT INTO u VALUES (3, 'z')")
        rows = changes(log, middle, log.current())
        assert [row["kind"] for row in changes(log, start, middle)] == ["insert"]
    assert [(row["kind"], row["table"]) for row in rows] == [
        ("delete", "t"),
        ("insert", "t"),
        ("insert", "u"),
    ]


def test_a_new_table_comes_with_its_rows(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    shop.app.execute("INSERT INTO t VALUES (1, 'the business of a snapshot')")
    with shop.open() as log:
        start = log.current()
        shop.app.executescript(
            "CREATE TABLE u (id INTEGER PRIMARY KEY); INSERT INTO u VALUES (1), (2)"
        )
        rows = changes(log, start, log.current())
        assert [(row["table"], row["key"]) for row in rows] == [("u", ["1"]), ("u", ["2"])]
        shop.app.execute("DROP TABLE u")
        log.current()
        shop.app.executescript("CREATE TABLE u (id INTEGER PRIMARY KEY); INSERT INTO u VALUES (3)")
        assert_replays(shop, log, start, "u")


REBUILD = """
    CREATE TABLE n (id INTEGER PRIMARY KEY, a TEXT); INSERT INTO n VALUES (9, 'unseen');
    DROP TABLE t; ALTER TABLE n RENAME TO t
"""


@pytest.mark.parametrize(
    "rebuild",
    [
        REBUILD,
        "CREATE UNIQUE INDEX u ON t (a); REPLACE INTO t VALUES (9, 'x')",
    ],
    ids=["rebuilt", "new unique index"],
)
def test_unseen_changes_stop_the_stream_or_are_made_good(shop: Shop, rebuild: str) -> None:
    shop.app.execute(SIMPLE)
    with shop.open() as log:
        start = log.current()
        fill(shop, 1, 1)
        log.current()
        shop.app.executescript(rebuild)
        end = log.current()
        with pytest.raises(CannotFinish, match="gaps=resync"):
            changes(log, start, end)
    with shop.open(gaps="resync") as log:
        assert_replays(shop, log, start, "t")


def test_an_index_made_while_nothing_was_written_is_no_gap(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    with shop.open() as log:
        start = log.current()
        fill(shop, 1, 1)
        log.current()
        shop.app.execute("CREATE UNIQUE INDEX u ON t (a)")
        log.current()
        shop.app.execute("REPLACE INTO t VALUES (9, 'x')")
        assert_replays(shop, log, start, "t")


def test_a_busy_file_is_said(shop: Shop) -> None:
    shop.app.execute(SIMPLE)
    shop.app.execute("BEGIN IMMEDIATE")
    impatient = parse_endpoint(f"sqlite:///{shop.path}?busy_timeout=0.1")
    with open_log(impatient, WANTED) as log, pytest.raises(CannotFinish, match="busy_timeout"):
        log.current()
    shop.app.execute("COMMIT")
    with shop.open() as log:
        log.current()
        fill(shop, 1, 10)
        end = log.current()
        shop.app.execute("BEGIN IMMEDIATE")
        log.release(end)  # waits a moment, then leaves it for the next time
        assert log.oldest().position < end.position
        shop.app.execute("COMMIT")
        log.release(end)
        assert log.oldest().position == end.position


def test_conflicts_are_looked_up_by_index(shop: Shop) -> None:
    shop.app.executescript(TABLES["expression"])
    with shop.open() as log:
        log.current()
    for name, table in shop.app.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name LIKE '%before_insert'"
    ).fetchall():
        for line in table.splitlines()[1:-1]:
            body = line.replace("NEW.rowid", "1").strip(" ;")
            body = body.replace('NEW."', '"').replace('"id" AS', "1 AS").replace('"a" AS', "'a' AS")
            body = body.replace('"b" AS', "2 AS").replace('"c" AS', "3 AS")
            plan = shop.app.execute(f"EXPLAIN QUERY PLAN {body}").fetchall()
            assert plan[0][3].startswith("SEARCH"), (name, plan)


@pytest.mark.parametrize(
    ("sql", "terms", "where"),
    [
        ("CREATE UNIQUE INDEX i ON t (a)", ["a"], ""),
        ("CREATE UNIQUE INDEX i ON t(a DESC,b COLLATE NOCASE ASC)", ["a", "b"], ""),
        ("CREATE UNIQUE INDEX \"i(\" ON [t(] (f(a, ','), (b) ) where x = ')'", ["f(a, ',')", "(b)"], "x = ')'"),
        ("CREATE UNIQUE INDEX i ON t (a -- , b\n, c /* ) */)", ["a", "c"], ""),
    ],
)  # fmt: skip
def test_reads_the_terms_of_an_index(sql: str, terms: list[str], where: str) -> None:
    assert split_index(sql) == (terms, where)
