"""Tables without a key: copied in one snapshot of known position, and every row once, equal ones as well."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pyarrow as pa
import pytest

import truecopy
from tests.servers import Database
from tests.transfer.beside import beside
from tests.transfer.killing import put_back
from truecopy.engines import connect
from truecopy.engines.protocols import ReadsAtPosition
from truecopy.metastore.known_progress import KnownProgress
from truecopy.model.change import CHANGE_SCHEMA
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.model.relation import Relation
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.request import Request
from truecopy.tasks.file import parse_task
from truecopy.tasks.transfer import transfer_settings
from truecopy.transfer.apply import Applying
from truecopy.transfer.copying import Copying
from truecopy.transfer.ledger import Overtaken
from truecopy.transfer.packing import pack_batches
from truecopy.transfer.replicate import AS_THEY_ARE, Replication
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.snapshot import CopyTask, copy_chunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CREATE = "CREATE TABLE seen (who INT, what VARCHAR(20))"
CHANGES = pa.schema([CHANGE_SCHEMA.field(name) for name in AS_THEY_ARE])


class Busy(Transfer):
    """Something happens on the source after the stream's start was taken and before a row is read."""

    between: Callable[[], object] = staticmethod(lambda: None)
    tasks: Sequence[CopyTask] = ()
    replication_: Replication | None = None

    def copying(self, *given: Any) -> Copying:
        transfer = self

        class Noted(Copying):
            def _planned(self, *given: Any) -> list[CopyTask]:
                transfer.between()
                transfer.tasks = super()._planned(*given)
                return list(transfer.tasks)

        return Noted(self._settings, *given)

    def replication(self, *given: Any) -> Replication:
        self.replication_ = super().replication(*given)
        return self.replication_


def settings(source: str, target: str, **more: Any) -> Settings:
    return Settings("move", source, target, delivery="exactly-once", chunk_rows=100, **more)


def make(database: Database, rows: int = 0) -> None:
    database.execute(CREATE)
    if database.url.startswith("postgres"):
        database.execute("ALTER TABLE seen REPLICA IDENTITY FULL")
    if rows:
        database.executemany(
            "INSERT INTO seen VALUES (%s, %s)", [(n % 50, "old") for n in range(rows)]
        )


def dump(database: Database, table: str = "seen") -> Counter[Any]:
    return Counter(tuple(row) for row in database.execute(f"SELECT who, what FROM {table}"))


@dataclass
class Writers:
    written: int = 0


@contextmanager
def inserting(database: Database, threads: int = 1) -> Iterator[Writers]:
    """Inserts until the block ends: rows that are often equal, some in one transaction, some rolled back."""
    seen = Writers()

    def insert(stop: threading.Event) -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                seen.written += 1
                cursor.execute("BEGIN")
                for _ in range(1 + seen.written % 3):
                    cursor.execute("INSERT INTO seen VALUES (%s, 'new')", (seen.written % 10,))
                cursor.execute("COMMIT" if seen.written % 7 else "ROLLBACK")
                time.sleep(0.01)

    with beside(insert, threads):
        yield seen


def relation_of(session: Any, endpoint: Endpoint) -> Relation:
    table = session.describe(session.find("seen"))
    return Relation(endpoint, (table.name,), table.columns, tuple(c.type for c in table.columns), 0)


@pytest.mark.parametrize(
    "engine", ["mariadb_db", "postgres_db", pytest.param("mysql_db", marks=pytest.mark.mysql)]
)
def test_rows_are_exactly_those_of_their_position(
    engine: str, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(engine)
    make(database)
    endpoint = parse_endpoint(database.url)
    found = []
    with KeyspaceStream(Request(database.url, tables=("seen",))) as stream:
        start = stream.visible()
        with inserting(database, threads=4), connect(endpoint) as session:
            assert isinstance(session, ReadsAtPosition)
            relation = relation_of(session, endpoint)
            session.require_position(relation)
            for _ in range(15):
                rows, position = session.fingerprinted_rows_at(relation)
                found.append((rows.num_rows, parse_position(position)))
                time.sleep(0.02)
        end = stream.current()
        positions = Counter[str]()
        while not stream.has_reached(start, end):
            after = stream.advance(start, 1 << 30, 5.0, end)
            for part in stream.parts(start, after, 1):
                for batch in part.read():
                    positions.update(batch.column("position").to_pylist())
            start = after
    logged = [(parse_position(text), count) for text, count in positions.items()]
    assert found[0][0] < found[-1][0]
    assert [count for count, _ in found] == [
        sum(count for one, count in logged if contains(position, one)) for _, position in found
    ]


@pytest.mark.long
@pytest.mark.parametrize("source", ["mariadb_db", "postgres_db"])
def test_every_row_comes_once_under_load(
    spark: SparkSession,
    source: str,
    second_mariadb_db: Database,
    request: pytest.FixtureRequest,
) -> None:
    database: Database = request.getfixturevalue(source)
    make(database, 500)
    asked = settings(database.url, second_mariadb_db.url)
    with inserting(database) as seen:
        transfer = Busy(asked)
        transfer.between = lambda: time.sleep(0.5)
        transfer.run(snapshot_only=True)
        assert seen.written
        Transfer(asked).run(until_caught_up=True)
    Transfer(asked).run(until_caught_up=True)
    assert dump(second_mariadb_db) == dump(database)
    assert truecopy.verify(database.url, second_mariadb_db.url, tables=("seen",)).verdict == "equal"


def test_a_late_attempt_and_a_resumed_run_bring_nothing(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    make(mariadb_db, 30)
    asked = settings(mariadb_db.url, second_mariadb_db.url)
    transfer = Busy(asked)
    transfer.between = lambda: mariadb_db.execute("INSERT INTO seen VALUES (1, 'old'), (1, 'old')")
    transfer.run(snapshot_only=True)
    mariadb_db.execute("INSERT INTO seen VALUES (1, 'old')")
    resumed = Busy(asked)
    resumed.run(until_caught_up=True)
    replication = cast(Any, resumed.replication_)
    table, schema_id = f"{mariadb_db.name}.seen", next(iter(replication.tables.targets))
    part = next(name for name in replication._progress if name.endswith(table))
    assert dump(second_mariadb_db) == dump(mariadb_db)

    assert copy_chunk(transfer.tasks[0]).rows == 0, "the chunk is in"
    work = Applying(
        asked.task,
        replication._epoch,
        asked.annotation,
        parse_endpoint(asked.target),
        replication.tables.targets,
        stands={part: ("0-1-1", 0)},
        starts=replication._origins,
        ends=replication._reached,
    )
    changes = pa.RecordBatch.from_pylist(
        [
            {"shard": part.split("/")[0], "table": table, "key": [], "kind": "insert", "commit_order": 1, "seq": 0,
             "after": ["1", "old"], "schema_id": schema_id, "position": "0-1-2"}
        ],
        schema=CHANGES,
    )  # fmt: skip
    (late,) = pack_batches([changes])
    late = late.append_column("part", pa.array([part]))
    list(work([late]))
    assert dump(second_mariadb_db) == dump(mariadb_db), "the line stands where the batch ends"
    Transfer(asked).run(until_caught_up=True)
    with pytest.raises(Overtaken):
        list(work([late]))
    assert dump(second_mariadb_db) == dump(mariadb_db)


@pytest.mark.long
def test_each_row_comes_once_though_batches_are_cut_otherwise_after_a_kill(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """The table is ahead of where the run goes on, and of where the first batches end."""
    source, target = mariadb_db, second_mariadb_db
    make(source, 20)
    source.execute("CREATE TABLE items (id INT PRIMARY KEY)")
    asked = settings(source.url, target.url)
    Transfer(asked).run(until_caught_up=True)
    source.execute("INSERT INTO items VALUES (0)")
    source.execute("INSERT INTO seen VALUES (0, 'both have a line')")
    Transfer(asked).run(until_caught_up=True)
    before: dict[str, str] = dict(
        target.execute("SELECT part, position FROM truecopy_progress WHERE part NOT LIKE '%.seen'")
    )
    known = KnownProgress(asked.task).find()
    assert known is not None
    for number in range(1, 6):
        source.execute(f"INSERT INTO items VALUES ({number})")
        source.execute(f"INSERT INTO seen VALUES ({number}, 'once')")
    Transfer(asked).run(until_caught_up=True)
    put_back(asked.task, target, before, known)
    transfer = Transfer(asked)
    transfer._request = replace(transfer._request, max_bytes=1)
    transfer.run(until_caught_up=True)
    assert dump(target) == dump(source)
    assert target.execute("SELECT COUNT(*) FROM items") == [(6,)]


@pytest.mark.long
def test_what_happened_before_the_copy_does_not_come_again(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Not even what could not be carried afterwards."""
    make(mariadb_db, 300)
    transfer = Busy(settings(mariadb_db.url, second_mariadb_db.url))

    def change() -> None:
        mariadb_db.execute("TRUNCATE TABLE seen")
        mariadb_db.execute("INSERT INTO seen VALUES (1, 'a'), (1, 'a'), (2, 'b')")
        mariadb_db.execute("UPDATE seen SET what = 'c' WHERE who = 2")
        mariadb_db.execute("DELETE FROM seen WHERE who = 1 LIMIT 1")

    transfer.between = change
    transfer.run(until_caught_up=True)
    assert dump(second_mariadb_db) == {(1, "a"): 1, (2, "c"): 1}


@pytest.mark.parametrize(
    "statement",
    ["UPDATE seen SET what = 'x' WHERE who = 1", "DELETE FROM seen WHERE who = 1"],
    ids=["update", "delete"],
)
def test_an_update_or_delete_is_one_clear_line(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database, statement: str
) -> None:
    make(mariadb_db, 60)
    asked = settings(mariadb_db.url, second_mariadb_db.url)
    Transfer(asked).run(snapshot_only=True)
    mariadb_db.execute(statement)
    with pytest.raises(CannotFinish, match=r"seen has no key, so a deleted or updated row") as told:
        Transfer(asked).run(until_caught_up=True)
    assert "\n" not in str(told.value)


@pytest.mark.long
def test_rows_that_are_made_on_the_way_come_once(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    make(mariadb_db)
    insert = "INSERT INTO seen SELECT seq % 3, 'a' FROM seq_1_to_250"
    mariadb_db.execute(insert)
    document = {
        "task": "move", "source": mariadb_db.url, "target": second_mariadb_db.url,
        "transformers": {"seen": {"filter": "who > 0", "cast": {"who": "text"}}},
    }  # fmt: skip
    asked = transfer_settings(parse_task(document))
    transfer = Busy(asked)
    transfer.between = lambda: mariadb_db.execute(insert)
    transfer.run(snapshot_only=True)
    mariadb_db.execute(insert)
    Transfer(asked).run(until_caught_up=True)
    assert dump(second_mariadb_db) == {("1", "a"): 252, ("2", "a"): 249}


def test_from_a_file_every_row_comes_once(spark: SparkSession, tmp_path: Path) -> None:
    file, copy = tmp_path / "shop.db", tmp_path / "copy.duckdb"

    def insert() -> None:
        with closing(sqlite3.connect(file)) as shop, shop:
            shop.executemany("INSERT INTO seen VALUES (?, 'a')", [(n % 4,) for n in range(30)])

    with closing(sqlite3.connect(file)) as shop, shop:
        shop.execute(CREATE)
    insert()
    duckdb.connect(copy).close()
    asked = settings(f"sqlite:///{file}", f"duckdb:///{copy}")
    transfer = Busy(asked)
    transfer.between = insert
    transfer.run(snapshot_only=True)
    insert()
    Transfer(asked).run(until_caught_up=True)
    with duckdb.connect(copy) as held:
        assert held.execute("SELECT count(*), count(DISTINCT who) FROM seen").fetchone() == (90, 4)


def test_tables_that_cannot_be_followed_are_refused(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database, tmp_path: Path
) -> None:
    postgres_db.execute(CREATE)
    target = mariadb_db.url
    with pytest.raises(UsageError, match="has no key, and its changes are not streamed: it has no"):
        Transfer(settings(postgres_db.url, target)).run(snapshot_only=True)
    with duckdb.connect(tmp_path / "shop") as shop:
        shop.execute(CREATE)
    with pytest.raises(UsageError, match=r"seen has no key, and duckdb:// does not say"):
        Transfer(settings(f"duckdb:///{tmp_path / 'shop'}", target)).run(snapshot_only=True)
    mariadb_db.execute("CREATE TABLE heap (a INT) ENGINE = MyISAM")
    with connect(parse_endpoint(mariadb_db.url)) as session:
        table = cast(Any, session).describe(cast(Any, session).find("heap"))
        heap = Relation(session.endpoint, (table.name,), table.columns, (table.columns[0].type,), 0)
        with pytest.raises(UsageError, match="MyISAM no snapshots"):
            cast(ReadsAtPosition, session).require_position(heap)


def test_partitions_without_an_identity_are_named(postgres_db: Database) -> None:
    postgres_db.execute(
        f"{CREATE} PARTITION BY LIST (who); CREATE TABLE rest PARTITION OF seen DEFAULT;"
        "CREATE TABLE seen_1 PARTITION OF seen FOR VALUES IN (1);"
        "ALTER TABLE seen REPLICA IDENTITY FULL; ALTER TABLE seen_1 REPLICA IDENTITY FULL"
    )
    with connect(parse_endpoint(postgres_db.url)) as session:
        seen = relation_of(session, session.endpoint)
        assert isinstance(session, ReadsAtPosition)
        with pytest.raises(UsageError, match=r"which public\.rest lack.*ALTER TABLE .*rest"):
            session.require_position(seen)
        postgres_db.execute("ALTER TABLE rest REPLICA IDENTITY FULL")
        session.require_position(seen)


def test_a_key_that_the_log_does_not_have_is_refused(
    spark: SparkSession, postgres_db: Database, mariadb_db: Database
) -> None:
    """A unique index is a key for reading rows; PostgreSQL logs no update of such a table."""
    postgres_db.execute("CREATE TABLE items (id INT NOT NULL UNIQUE, name TEXT)")
    postgres_db.execute("INSERT INTO items VALUES (1, 'a')")
    with pytest.raises(UsageError, match="items is not streamed"):
        Transfer(Settings("keyed", postgres_db.url, mariadb_db.url)).run(until_caught_up=True)
    assert (
        postgres_db.execute(
            "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        )
        == []
    )
