"""A log that is written while a test goes on, and what it should hold."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers import Database
from truecopy.changelog.log import Log
from truecopy.changelog.opening import CHANGES
from truecopy.changelog.reading import read_log
from truecopy.changelog.record import Listener, Recording, RecordReport
from truecopy.changelog.store import Store
from truecopy.changelog.table_log import TableRecording
from truecopy.changelog.table_store import TableStore
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.position import parse_position
from truecopy.model.token import EventToken
from truecopy.stream.follow import Following
from truecopy.stream.request import Request, shard_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Event = tuple[Any, ...]


def record(request: Request, place: Path | str) -> RecordReport:
    """Up to what is committed now, into a folder or the tables of a database."""
    return _recording(request, place, 0, None).run("current")


def _recording(
    request: Request, place: Path | str, interval: float, listener: Listener | None
) -> Recording | TableRecording:
    if isinstance(place, Path):
        return Recording(request, place, interval=interval, listener=listener)
    return TableRecording(request, place, interval=interval, listener=listener)


@contextmanager
def recording(
    request: Request, place: Path | str, interval: float = 0.1, listener: Listener | None = None
) -> Iterator[None]:
    """Writes until the block ends, and then everything that was committed in it."""
    work = _recording(request, place, interval, listener)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work.run()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    except AssertionError:
        assert not failures, failures  # the likelier reason
        raise
    finally:
        work.stop()
        thread.join()
    assert not failures, failures
    record(request, place)


def wait_until_ready(place: Path | str) -> None:
    wait_until(lambda: is_begun(place))
    with log_of(place) as log:
        wait_until(lambda: bool(log.bases()) and log.bases()[-1].ready is not None)


def is_begun(place: Path | str) -> bool:
    if isinstance(place, Path):
        return (place / "_truecopy" / "log.db").exists()
    try:
        TableStore.open(parse_endpoint(place), CHANGES)
    except UsageError:
        return False
    return True


@contextmanager
def log_of(place: Path | str) -> Iterator[Log]:
    """The log, with its files as its writer left them."""
    if isinstance(place, str):
        yield TableStore.open(parse_endpoint(place), CHANGES)
        return
    with Store.open(place) as store:
        yield store


def wait_until(is_done: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def held(spark: SparkSession, folder: Path) -> Counter[Event]:
    """The events of a log, as a reader of its files sees them."""
    rows = (
        read_log(spark, folder)
        .select("shard", "position", "seq", "kind", "table", "key", "after")
        .collect()
    )
    return Counter(
        (r[0], r[1], r[2], r[3], r[4], tuple(r[5] or ()), tuple(r[6] or ())) for r in rows
    )


def given(request: Request, folder: Path) -> Counter[Event]:
    """The events of the source since the log began, read without it."""
    with Store.open(folder) as store:
        start = store.end_of(0).token()
    found: Counter[Event] = Counter()
    with Following(request, start, "current") as following:
        for c in following.changes():
            key, after = (tuple((c[name] or {}).values()) for name in ("key", "after"))
            table = c["table"].rpartition(".")[2]
            found[c["shard"], c["position"], c["seq"], c["kind"], table, key, after] += 1
    return found


@dataclass(frozen=True)
class Seen:
    """A table as one transaction saw it, and the token of that."""

    token: str
    rows: list[tuple[Any, ...]]


def seen_now(database: Database, query: str) -> Seen:
    """Under REPEATABLE READ, with the position of what it sees: MariaDB says it of a consistent snapshot."""
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
        place = {name.lower(): value for name, value in cursor.fetchall()}
        cursor.execute(
            "SELECT BINLOG_GTID_POS(%s, %s)",
            (place["binlog_snapshot_file"], int(place["binlog_snapshot_position"])),
        )
        ((position,),) = cursor.fetchall()
        cursor.execute(query)
        rows = list(cursor.fetchall())
        cursor.execute("COMMIT")
    shard = shard_name(parse_endpoint(database.url))
    return Seen(str(EventToken(0, shard, parse_position(position))), rows)
