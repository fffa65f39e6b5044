"""Random transactions on a real MariaDB: the stream, replayed, is the tables, at every boundary looked at."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers import Database, Server
from tests.stream.changes import Follower, plain, session
from tests.stream.replay import read_changes, replay, selected
from truecopy.metastore.definitions import Definitions
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog import tail

TABLES = {
    "everything": """CREATE TABLE everything (id INT PRIMARY KEY, ti TINYINT UNSIGNED, bi BIGINT UNSIGNED,
        mi MEDIUMINT, de DECIMAL(20, 6), fl FLOAT, do DOUBLE, ch CHAR(10), vc VARCHAR(300), l1 VARCHAR(20)
        CHARACTER SET latin1, tx TEXT, bl BLOB, bn BINARY(4), da DATE, ti3 TIME(3), dt DATETIME(6),
        ts TIMESTAMP(2) NULL, ye YEAR, en ENUM('a', 'b''c', 'ü'), se SET('x', 'y', 'z'), bt BIT(13), js JSON,
        uu UUID, i6 INET6)""",
    "pairs": """CREATE TABLE pairs (k VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, n INT, u INT UNIQUE,
        v VARCHAR(20), PRIMARY KEY (k, n))""",
    "plain": "CREATE TABLE plain (id INT PRIMARY KEY, v INT) ENGINE = MyISAM",
}


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def number(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from([low, high, 0, 1]), st.integers(low, high)).map(str)


def text(alphabet: str, size: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, max_size=size).map(quoted)


FEW = st.integers(1, 6).map(str)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "ti": number(0, 255),
    "bi": number(0, 2**64 - 1),
    "mi": number(-(2**23), 2**23 - 1),
    "de": number(-(10**19), 10**19).map(lambda n: f"{n}e-6"),
    "fl": st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    "do": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "ch": text("aé \0€𝄞", 10),
    "vc": text("abc€ \n'\\", 300),
    "l1": text("aéÿ€", 20),
    "tx": text("aé𝄞", 400),
    "bl": st.binary(max_size=300).map(lambda raw: f"X'{raw.hex()}'"),
    "bn": st.binary(max_size=4).map(lambda raw: f"X'{raw.hex()}'"),
    "da": st.sampled_from(["'0000-00-00'", "'2024-02-30'", "'1000-01-01'", "'9999-12-31'"]),
    "ti3": st.sampled_from(["'-838:59:59.999'", "'00:00:00'", "'-00:00:00.001'", "'12:34:56.789'"]),
    "dt": st.datetimes().map(lambda at: f"'{at}'"),
    "ts": st.sampled_from(["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.99'", "'2024-01-01'"]),
    "ye": st.sampled_from(["0", "1901", "2155"]),
    "en": st.sampled_from(["'a'", "'b''c'", "'ü'", "'wrong'"]),
    "se": st.sampled_from(["''", "'x'", "'x,z'", "'x,y,z'"]),
    "bt": number(0, 2**13 - 1),
    "js": st.sampled_from(['\'{"b": [1, 2.50, null], "a": "é"}\'', "'[]'", "'1e2'", "'null'"]),
    "uu": st.uuids().map(lambda value: f"'{value}'"),
    "i6": st.sampled_from(["'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'"]),
}


@st.composite
def everything_statement(draw: st.DrawFn) -> str:
    """An INSERT, REPLACE, upsert, UPDATE or DELETE of the wide table."""
    columns = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=8, unique=True))
    values = [draw(st.one_of(st.just("NULL"), VALUES[column])) for column in columns]
    assigned = ", ".join(f"{c} = {v}" for c, v in zip(columns, values, strict=True))
    verb = draw(st.sampled_from(["INSERT", "REPLACE", "upsert", "UPDATE", "DELETE"]))
    if verb == "DELETE":
        return f"DELETE FROM everything WHERE id % 3 = {draw(FEW)} % 3"
    if verb == "UPDATE":
        moved = f"id = id + {draw(FEW)}, " if draw(st.booleans()) else ""
        order = draw(st.sampled_from(["ASC", "DESC"]))
        return f"UPDATE everything SET {moved}{assigned} WHERE id > {draw(FEW)} ORDER BY id {order}"
    ids = draw(st.lists(FEW, min_size=1, max_size=3))
    rows = ", ".join(f"({', '.join([i, *values])})" for i in ids)
    end = f" ON DUPLICATE KEY UPDATE {assigned}" if verb == "upsert" else ""
    return f"{verb.replace('upsert', 'INSERT')} INTO everything (id, {', '.join(columns)}) VALUES {rows}{end}"


SMALL_STATEMENTS = st.one_of(
    st.tuples(st.sampled_from(["INSERT", "INSERT IGNORE", "REPLACE"]), FEW, FEW, FEW).map(
        lambda x: (
            f"{x[0]} INTO pairs VALUES ('k{x[1]}', {x[2]}, {x[3]}, 'v'), ('é', {x[1]}, NULL, NULL)"
        )
    ),
    st.tuples(FEW, FEW).map(
        lambda x: (
            f"INSERT INTO pairs VALUES ('k{x[0]}', 1, {x[1]}, 'v')"
            " ON DUPLICATE KEY UPDATE v = CONCAT(v, 'w'), u = u + 1"
        )
    ),
    st.tuples(FEW, FEW).map(
        lambda x: f"UPDATE pairs SET n = n + {x[0]} WHERE n < {x[1]} ORDER BY n DESC"
    ),
    FEW.map(
        lambda x: f"UPDATE pairs, everything SET pairs.v = 'm', everything.mi = {x} WHERE n = id"
    ),
    FEW.map(lambda x: f"DELETE FROM pairs WHERE n = {x}"),
    st.tuples(FEW, FEW).map(lambda x: f"INSERT INTO plain VALUES ({x[0]}, 1), ({x[1]}, 2)"),
    FEW.map(lambda x: f"REPLACE INTO plain VALUES ({x}, 7)"),
    FEW.map(lambda x: f"UPDATE plain SET id = id + 1 WHERE id > {x} ORDER BY id DESC"),
    st.sampled_from(["DELETE FROM plain", "TRUNCATE TABLE pairs", "TRUNCATE TABLE everything"]),
)
STATEMENTS = st.one_of(everything_statement(), SMALL_STATEMENTS)
INNODB_ONLY = STATEMENTS.filter(lambda sql: "plain" not in sql and "TRUNCATE" not in sql)
TRANSACTIONS = st.one_of(
    STATEMENTS.map(lambda sql: [sql]),
    st.tuples(
        st.lists(INNODB_ONLY, min_size=1, max_size=4), st.sampled_from(["COMMIT", "ROLLBACK"])
    ).map(lambda x: ["BEGIN", *x[0], x[1]]),
    st.tuples(st.lists(INNODB_ONLY, max_size=2), st.lists(INNODB_ONLY, max_size=2)).map(
        lambda x: ["BEGIN", *x[0], "SAVEPOINT s", *x[1], "ROLLBACK TO s", *x[0], "COMMIT"]
    ),
)


@pytest.fixture
def tables(mariadb_db: Database) -> Iterator[Follower]:
    with Follower(mariadb_db) as follower:
        for sql in TABLES.values():
            mariadb_db.execute(sql)
        yield follower


@pytest.mark.parametrize("compressed", ["OFF", "ON"])
def test_the_stream_is_the_tables(tables: Follower, compressed: str) -> None:
    database = tables.database
    database.execute(f"SET GLOBAL log_bin_compress = {compressed}, log_bin_compress_min_len = 10")

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(TRANSACTIONS, min_size=3, max_size=12), st.integers(1, 4))
    def run_and_compare(transactions: list[list[str]], parts: int) -> None:
        with session(database) as run:
            for name in TABLES:
                run(f"TRUNCATE TABLE {name}")
            for transaction in transactions:
                for statement in transaction:
                    with suppress(pymysql.MySQLError):
                        run(statement)
            run("COMMIT")
        tables.replay(parts)
        tables.check(*TABLES)

    try:
        run_and_compare()
    finally:
        database.execute("SET GLOBAL log_bin_compress = OFF")


def test_every_boundary_is_a_state_of_the_tables(
    tables: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch per transaction, each compared with what the tables were then."""
    monkeypatch.setattr(tail, "SAMPLE_BYTES", 0)
    database = tables.database
    chosen = random.Random(7)
    states: dict[str, dict[str, Any]] = {}
    with session(database) as run:
        for n in range(40):
            run("BEGIN")
            for _ in range(chosen.randint(1, 3)):
                table = chosen.choice(["pairs", "everything"])
                key = chosen.randint(1, 8)
                statement = {
                    "pairs": f"REPLACE INTO pairs VALUES ('k', {key}, {n}, 'v{n}')",
                    "everything": f"REPLACE INTO everything (id, vc) VALUES ({key}, {n})",
                }[table]
                run(statement)
            run(f"DELETE FROM pairs WHERE n = {chosen.randint(1, 8)}", "COMMIT")
            position = tables.log.current().position
            states[position] = {
                name: selected(database.url, name) for name in ("pairs", "everything")
            }
    for change_position in list(states):
        while tables.mark.position != change_position:
            start = tables.mark
            tables.mark = tables.log.advance(start, 1, 5)
            assert tables.mark != start
            replay(read_changes(tables.log, start, tables.mark), tables.tables)
        for name, rows in states[change_position].items():
            assert tables.rows(name) == rows


def test_many_writers_with_lock_waits(tables: Follower) -> None:
    """Commit times run backwards where a statement waited; the order of the log is what counts."""
    database = tables.database
    database.execute("INSERT INTO pairs VALUES ('k', 0, NULL, '')")

    def write(number: int) -> None:
        chosen = random.Random(number)
        with session(database, "SET innodb_lock_wait_timeout = 50") as run:
            for n in range(40):
                with suppress(pymysql.MySQLError):
                    run("BEGIN", f"UPDATE pairs SET v = '{number}-{n}' WHERE n = 0")
                    run(
                        f"REPLACE INTO everything (id, vc) VALUES ({chosen.randint(1, 9)}, {n})",
                        "COMMIT",
                    )

    with session(database) as run:
        run("BEGIN", "UPDATE pairs SET v = 'first' WHERE n = 0")
        waiting = Thread(target=database.execute, args=("UPDATE pairs SET u = 5 WHERE n = 0",))
        waiting.start()
        run("DO SLEEP(1.5)", "COMMIT")
        waiting.join()
    writers = [Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    tables.replay(parts=3)
    tables.check(*TABLES)
    times = [change["committed_at"] for change in tables.changes]
    assert times != sorted(times)


COLUMN: dict[str, Callable[[int], str]] = {
    "INT": str,
    "BIGINT UNSIGNED": lambda n: str(n * 10**15),
    "VARCHAR(20)": lambda n: f"'text{n}'",
    "DECIMAL(10, 3)": lambda n: f"{n}.125",
    "DATETIME(3)": lambda n: f"'2024-01-01 00:00:{n % 60:02}.5'",
    "ENUM('a', 'b', 'c')": lambda n: str(n % 3 + 1),
}


class Evolving:
    """A table whose definition changes between transactions."""

    def __init__(self, run: Callable[..., Any], chosen: random.Random) -> None:
        self.run, self.chosen = run, chosen
        self.names = iter(f"c{n}" for n in range(1000))
        self.columns: dict[str, str] = {}
        self.table = "t0"
        self.create()

    def create(self) -> None:
        self.columns = {next(self.names): self.chosen.choice(list(COLUMN)) for _ in range(3)}
        listed = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        self.run(f"CREATE TABLE {self.table} (id INT PRIMARY KEY, {listed})")

    def write(self) -> None:
        n = self.chosen.randint(1, 30)
        values = ", ".join(f"{c} = {COLUMN[k](n)}" for c, k in self.columns.items())
        self.run(f"REPLACE INTO {self.table} SET id = {n}{', ' if values else ''}{values}")
        if self.columns and self.chosen.random() < 0.5:
            name = self.chosen.choice(list(self.columns))
            self.run(f"UPDATE {self.table} SET {name} = NULL WHERE id % 4 = {n % 4}")
        if self.chosen.random() < 0.3:
            self.run(f"DELETE FROM {self.table} WHERE id = {n}")

    def change(self) -> str:
        """One change of the definition; what kind it was."""
        kind = self.chosen.choice(
            ["add", "add first", "drop", "rename column", "modify", "rename", "recreate", "index"]
        )
        some = self.chosen.choice(list(self.columns)) if self.columns else None
        if kind.startswith("add") or some is None:
            name, kind_of = next(self.names), self.chosen.choice(list(COLUMN))
            where = "FIRST" if "first" in kind else self.chosen.choice(["", "AFTER id"])
            self.run(f"ALTER TABLE {self.table} ADD COLUMN {name} {kind_of} {where}")
            self.columns[name] = kind_of
            return "add"
        if kind == "drop":
            self.run(f"ALTER TABLE {self.table} DROP COLUMN {some}")
            del self.columns[some]
        elif kind == "rename column":
            name = next(self.names)
            self.run(f"ALTER TABLE {self.table} RENAME COLUMN {some} TO {name}")
            self.columns = {name if c == some else c: k for c, k in self.columns.items()}
        elif kind == "modify":
            kind_of = self.chosen.choice(list(COLUMN))
            self.run(f"ALTER TABLE {self.table} MODIFY COLUMN {some} {kind_of}")
            self.columns[some] = kind_of
        elif kind == "rename":
            name = next(self.names).replace("c", "t")
            self.run(f"RENAME TABLE {self.table} TO {name}")
            self.table = name
        elif kind == "recreate":
            self.run(f"DROP TABLE {self.table}")
            self.create()
        else:
            self.run(f"ALTER TABLE {self.table} ADD INDEX ({some})")
        return kind


TAKEN_BACK = {"add", "rename column", "rename", "index"}


@pytest.fixture(params=["NO_LOG", "FULL"])
def metadata(request: pytest.FixtureRequest, mariadb_server: Server) -> Iterator[str]:
    mariadb_server.execute(None, f"SET GLOBAL binlog_row_metadata = {request.param}")
    yield request.param
    mariadb_server.execute(None, "SET GLOBAL binlog_row_metadata = NO_LOG")


@pytest.mark.parametrize("seed", range(4))
def test_definitions_change_under_a_live_stream(
    mariadb_db: Database, metadata: str, seed: int
) -> None:
    """And a stream that comes later says the same, or that it cannot know."""
    chosen = random.Random(seed)
    with Follower(mariadb_db) as follower, session(mariadb_db) as run:
        start = follower.mark
        evolving = Evolving(run, chosen)
        kinds: list[str] = []
        for _ in range(12):
            for _ in range(3):
                evolving.write()
            follower.replay()
            follower.check(evolving.table)
            old = evolving.table
            kinds.append(evolving.change())
            follower.replay()
            # The values after the change are the database's doing: only what follows is the stream's.
            follower.tables.pop(f"{mariadb_db.name}.{old}", None)
            follower.tables[f"{mariadb_db.name}.{evolving.table}"] = selected(
                mariadb_db.url, evolving.table
            )
        evolving.write()
        follower.replay()
        follower.check(evolving.table)

        with Follower(mariadb_db, start) as later:
            if metadata == "FULL" or set(kinds) <= TAKEN_BACK:
                later.read()
                assert len(later.changes) == len(follower.changes)
            else:
                with pytest.raises(CannotFinish, match="cannot be known"):
                    later.read()
            assert readable(later.changes) == readable(follower.changes)[: len(later.changes)]


def readable(changes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Changes with the names of their columns, and without what the definitions say beyond that."""
    store = Definitions()
    found = []
    for change, rest in zip(
        changes, plain(changes, "txn", "seq", "kind", "table", "key"), strict=True
    ):
        names = store.find(change["schema_id"]).names if change["schema_id"] else ()
        images = [
            dict(zip(names, change[image], strict=True)) if change[image] is not None else None
            for image in ("before", "after")
        ]
        found.append((*rest, *images))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_definitions_are_taken_back(mariadb_db: Database, seed: int) -> None:
    """A stream that was not there when columns were added and renamed reads the rows of then."""
    chosen = random.Random(seed)
    with Follower(mariadb_db) as live, session(mariadb_db) as run:
        start = live.mark
        run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO t VALUES (1, 2, 3)")
        names = ["a", "b"]
        for n in range(8):
            live.read()
            kind = chosen.choice(["add", "first", "rename", "swap", "table", "index", "two"])
            column = chosen.choice(names)
            if kind in ("add", "first", "two"):
                where = "FIRST" if kind == "first" else ""
                more = (
                    f", ADD INDEX ({column}), ADD COLUMN y{n} INT AFTER id" if kind == "two" else ""
                )
                run(f"ALTER TABLE t ADD COLUMN x{n} INT {where}{more}")
                names += [f"x{n}"] + ([f"y{n}"] if more else [])
            elif kind == "rename":
                run(f"ALTER TABLE t RENAME COLUMN {column} TO z{n}")
                names = [f"z{n}" if name == column else name for name in names]
            elif kind == "swap":
                run("CREATE TABLE other LIKE t", "INSERT INTO other SELECT * FROM t")
                run(
                    "RENAME TABLE t TO swap, other TO t, swap TO other",
                    f"RENAME TABLE other TO old{n}",
                )
            elif kind == "table":
                run("RENAME TABLE t TO u", "ALTER TABLE u RENAME TO t")
            else:
                run(f"CREATE INDEX i{n} ON t ({column})")
            values = ", ".join(f"{name} = {chosen.randint(0, 9)}" for name in names)
            run(f"INSERT INTO t SET id = {n + 10}, {values}", f"UPDATE t SET {values}")
        live.read()
        with Follower(mariadb_db, start) as later:
            later.read()
            assert readable(later.changes) == readable(live.changes)
