"""The same log read by python-mysql-replication: event by event the same rows, for the types it gets right."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.servers import Database
from tests.stream.changes import Follower, session
from truecopy.metastore.definitions import Definitions
from truecopy.stream.binlog.place import Place

COLUMNS = {
    "id": "INT PRIMARY KEY",
    "b": "BIGINT UNSIGNED",
    "s": "SMALLINT",
    "d": "DECIMAL(14, 3)",
    "v": "VARCHAR(300)",
    "t": "TEXT",
    "dt": "DATETIME",
    "da": "DATE",
    "e": "ENUM('one', 'two', 'drei ß')",
}


@pytest.fixture
def full_metadata(mariadb_db: Database) -> Iterator[Database]:
    mariadb_db.execute("SET GLOBAL binlog_row_metadata = FULL")
    yield mariadb_db
    mariadb_db.execute("SET GLOBAL binlog_row_metadata = NO_LOG")


def write(database: Database) -> None:
    chosen = random.Random(1)
    with session(database) as run:
        for _ in range(400):
            n = chosen.randint(1, 60)
            values = [
                str(n),
                str(chosen.choice([0, 2**64 - 1, chosen.getrandbits(60)])),
                str(chosen.choice([-32768, 32767, "NULL"])),
                str(chosen.choice(["-99999999999.999", "0.001", "NULL", str(n)])),
                chosen.choice(["''", "REPEAT('é', 200)", "'𝄞 € \\0'", "NULL"]),
                chosen.choice(["NULL", f"REPEAT('x{n}', 100)"]),
                chosen.choice(["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "NULL"]),
                chosen.choice(["'2024-02-29'", "NULL"]),
                str(chosen.choice([1, 2, 3, "NULL"])),
            ]
            pairs = ", ".join(f"{c} = {v}" for c, v in zip(COLUMNS, values, strict=True))
            run(
                chosen.choice(
                    [
                        f"REPLACE INTO t SET {pairs}",
                        f"REPLACE INTO t SET {pairs}",
                        f"UPDATE t SET v = CONCAT(v, 'z'), s = NULL WHERE id % 7 = {n % 7}",
                        f"UPDATE IGNORE t SET id = id + 100 WHERE id = {n}",
                        f"DELETE FROM t WHERE id = {n}",
                        f"INSERT IGNORE INTO u SELECT * FROM t WHERE id < {n}",
                    ]
                )
            )


def theirs(database: Database, place: Place) -> list[tuple[str, str, Any, Any]]:
    server = database.server
    reader = BinLogStreamReader(
        connection_settings={
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
            "charset": "utf8mb4",
        },
        server_id=4_000_000_001,
        resume_stream=True,
        log_file=place.file,
        log_pos=place.offset,
        blocking=False,
        only_schemas=[database.name],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    found = []
    with closing(reader):
        for event in reader:
            for row in event.rows:
                before = row.get("before_values") or (
                    row["values"] if isinstance(event, DeleteRowsEvent) else None
                )
                after = row.get("after_values") or (
                    row["values"] if isinstance(event, WriteRowsEvent) else None
                )
                found += split(event.table, before, after)
    return found


def split(table: str, before: Any, after: Any) -> list[tuple[str, str, Any, Any]]:
    """As the stream says it: a change of the key is a delete and an insert."""
    before, after = texts(before), texts(after)
    if before and after and before["id"] != after["id"]:
        return [(table, "delete", before, None), (table, "insert", None, after)]
    kind = "insert" if not before else "delete" if not after else "update"
    return [(table, kind, before, after)]


def texts(row: dict[str, Any] | None) -> dict[str, str | None] | None:
    if row is None:
        return None
    return {name: None if value is None else str(value) for name, value in row.items()}


@pytest.mark.filterwarnings("ignore:'db' is deprecated")  # which the other reader uses
def test_both_read_the_same(full_metadata: Database) -> None:
    database = full_metadata
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with Follower(database) as follower:
        place = Place.parse(follower.mark.place)
        assert place is not None
        database.execute(f"CREATE TABLE t ({columns})")
        database.execute(f"CREATE TABLE u ({columns})")
        write(database)
        changes = follower.read()
        found = theirs(database, place)
    store = Definitions()
    ours = []
    for change in changes:
        names = store.find(change["schema_id"]).names
        images = [
            None
            if change[image] is None
            else dict(zip(names, map(plain_time, change[image]), strict=True))
            for image in ("before", "after")
        ]
        ours.append((change["table"].partition(".")[2], change["kind"], *images))
    assert len(ours) > 400
    assert ours == found


def plain_time(text: str | None) -> str | None:
    """Canonical times always have microseconds; Python prints them only where there are some."""
    return text and text.removesuffix(".000000")
