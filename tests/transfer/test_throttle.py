"""Ceilings of a transfer: rate, hours, connections, statements that shrink, replicas that lag."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest

import truecopy
from tests.servers import Database, MariaDB
from tests.transfer.load import fill
from truecopy.engines import connect
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.hours import parse_hours
from truecopy.model.relation import Chunk
from truecopy.transfer.control import Control, Wishes
from truecopy.transfer.gate import Allowance, Closed, Gate
from truecopy.transfer.ledger import Ledger, Overtaken
from truecopy.transfer.limits import Limits
from truecopy.transfer.pacing import Pace
from truecopy.transfer.replicate import Replication
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.snapshot import Copied, CopyTask
from truecopy.transfer.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rows_beyond_the_rate_are_waited_for() -> None:
    clock = Clock()
    allowance = Allowance(clock)
    clock.now += 60
    assert allowance.seconds(1000) == 0, "the first rows need not wait"
    allowance.spend(5000)
    assert allowance.seconds(1000) == 5.0
    clock.now += 4
    assert allowance.seconds(1000) == 1.0
    assert allowance.seconds(4000) == 0.25, "a new rate counts from now on"
    assert allowance.seconds(0) == 0, "no rate, no debt"
    clock.now += 3600
    assert allowance.seconds(1000) == 0
    allowance.spend(2000)
    assert allowance.seconds(1000) == 1.0, "an idle hour saves up one second, not an hour"


def test_hours_hold_up_the_copy_and_not_the_changes() -> None:
    noon = datetime(2024, 7, 1, 12, 0, tzinfo=UTC)
    limits = Limits(hours=(parse_hours("22:00-06:00"),), timezone="Asia/Tokyo")
    assert not limits.may_copy_at(noon), "21:00 there"
    assert limits.may_copy_at(noon + timedelta(hours=1))
    now = datetime.now(UTC)
    later = f"{now + timedelta(hours=2):%H:%M}-{now + timedelta(hours=3):%H:%M}"
    gate = Gate(Limits(hours=(parse_hours(later),)))
    gate.before_changes()
    waiting = threading.Thread(target=_closed, args=(gate.before_chunks,))
    waiting.start()
    _until(lambda: later in gate.reason)
    gate.close()
    waiting.join(5)
    assert not waiting.is_alive()


def test_wishes_are_heard_within_seconds() -> None:
    wishes = [Wishes(paused_at=1)]
    gate = Gate(Limits(rate=1000), lambda: wishes[-1])
    waiting = threading.Thread(target=gate.before_changes)
    waiting.start()
    _until(lambda: gate.reason == "paused by hand")
    assert waiting.is_alive()
    wishes.append(Wishes(throttle={"rate": 5, "hours": ["00:00-23:59"], "unknown": 1}))
    waiting.join(5)
    assert not waiting.is_alive()
    assert (gate.limits.rate, gate.reason) == (5, "")


def test_an_overtaken_run_stops_waiting() -> None:
    def wishes() -> Wishes:
        raise Overtaken("another run of it has taken over")

    with pytest.raises(Overtaken):
        Gate(Limits(), wishes).before_changes()


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(UsageError, match="no time zone Europe/Atlantis"):
        Limits(timezone="Europe/Atlantis")


def test_groups_keep_to_connections_and_rate_and_chunks_shrink() -> None:
    cuts = []

    def cut(task: CopyTask, rows: int) -> list[CopyTask]:
        cuts.append((task.number, rows))
        return _cut(task, rows)

    gate = Gate(Limits(connections=2, statement_seconds=0.5))
    pace = Pace([_task(n, 20_000) for n in range(1, 21)], gate, 4, cut)
    assert pace.lanes == 2
    assert [task.number for task in pace.next_group()] == [1, 2], "how long one takes is not known"
    for _ in range(2):
        pace.note(Copied("t", 20_000, 0.4, 0.1))
    assert len(pace.next_group()) == 2 * 5
    assert not cuts
    pace.note(Copied("t", 20_000, 8.0, 4.0))  # 5,000 rows/s: half a second reads 2,500
    group = pace.next_group()
    assert cuts[0] == (13, 2500)
    assert [task.rows for task in group] == [2500, 2500]
    gate.limits = Limits(rate=1000)
    assert [task.rows for task in pace.next_group()] == [1000], "what may be read in a second"


def test_a_rate_is_kept_from_the_first_second_on() -> None:
    """However quick the databases are: a second's rows, and then as long a wait."""
    clock = Clock()
    gate = Gate(Limits(rate=10_000, connections=4))
    gate._allowance = Allowance(clock)
    clock.now += 60
    pace = Pace([_task(1, 100_000)], gate, 4, _cut)
    read = 0
    for second in range(10):
        group = pace.next_group()
        assert len(group) == 4, "every connection has its share"
        for task in group:
            pace.note(Copied("t", task.rows, 0.001, 0.001))
            read += task.rows
        assert read == 10_000 * (second + 1)
        assert gate._allowance.seconds(10_000) == 1.0
        clock.now += 1.0


def _cut(task: CopyTask, rows: int) -> list[CopyTask]:
    return [replace(task, number=n, rows=rows) for n in range(task.rows // rows)]


def test_an_end_of_the_work_ends_the_groups() -> None:
    pace = Pace([], Gate(Limits()), 4, lambda task, _: [task])
    assert pace.next_group() == []
    gone = Pace([_task(1, 9_000_000)], Gate(Limits(rate=1000)), 4, lambda _, __: [])
    assert gone.next_group() == [], "another attempt has copied it meanwhile"


@pytest.mark.parametrize("kind", ["mariadb_db", "postgres_db"])
def test_a_chunk_is_replaced_by_smaller_ones(request: pytest.FixtureRequest, kind: str) -> None:
    """In one step, under new numbers: a late attempt of the old one notes nothing."""
    database: Database = request.getfixturevalue(kind)
    with connect(parse_endpoint(database.url)) as session:
        target = cast(Any, session)
        ledger = Ledger(target, "move")
        ledger.create()
        epoch = ledger.claim({}).epoch
        ledger.plan("t", [Chunk(None, ("10",)), Chunk(("10",), None)], epoch)
        smaller = [Chunk(("10",), ("20",)), Chunk(("20",), None)]
        made = ledger.split("t", 1, smaller, epoch)
        assert [(one.number, one.chunk) for one in made] == [(2, smaller[0]), (3, smaller[1])]
        assert [one.number for one in ledger.chunks("t")] == [0, 2, 3]
        target.begin()
        with pytest.raises(Overtaken):
            ledger.note_copied("t", 1, 5, epoch)
        target.rollback()
        target.begin()
        ledger.note_copied("t", 2, 7, epoch)
        target.commit()
        assert ledger.split("t", 2, smaller, epoch) == [], "it is in already"
        assert ledger.split("t", 3, smaller, epoch - 1) == [], "by a run that was replaced"
        done = ledger.copied()["t"]
        assert (done.chunks, done.chunks_copied, done.rows) == (3, 1, 7)


@pytest.mark.slow
def test_the_copy_keeps_to_its_rate_and_comes_out_equal(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """At 1,500 rows a second, 4,500 rows take no less than two: the one chunk is cut for it."""
    fill(mariadb_db, 4500)
    limits = Limits(rate=1500, connections=1)
    asked = Settings("move", mariadb_db.url, second_mariadb_db.url, limits=limits, chunk_rows=9000)
    begun = time.monotonic()
    Transfer(asked).run(snapshot_only=True)
    assert time.monotonic() - begun > 2
    assert (
        truecopy.verify(mariadb_db.url, second_mariadb_db.url, tables=("items",)).verdict == "equal"
    )
    ((chunks,),) = second_mariadb_db.execute("SELECT COUNT(*) FROM truecopy_chunk")
    assert chunks > 1


def test_a_lagging_replica_holds_up_the_work() -> None:
    with MariaDB("--server-id=31") as primary, MariaDB("--server-id=32") as replica:
        login = (
            f"master_user='root', master_password='{primary.password}', master_use_gtid=slave_pos"
        )
        replica.execute(
            None,
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, {login}; START SLAVE",
        )
        gate = Gate(Limits(replicas=(replica.url(),), max_lag=2.0))
        gate.before_changes()
        replica.execute(None, "STOP SLAVE")
        time.sleep(1.1)
        waiting = threading.Thread(target=gate.before_changes)
        waiting.start()
        _until(lambda: "does not replicate" in gate.reason)
        assert replica.password not in gate.reason
        replica.execute(None, "START SLAVE")
        waiting.join(20)
        assert not waiting.is_alive()


def _task(number: int, rows: int) -> CopyTask:
    class Plan:
        source_name = "t"

    return CopyTask("move", 1, "", cast(Any, Plan), number, Chunk(), rows)


def _closed(wait: Any) -> None:
    with pytest.raises(Closed):
        wait()


def _until(condition: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_changes_are_written_by_as_many_connections_as_are_allowed_now(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is changed from outside while it runs holds for the next batch."""
    fill(mariadb_db, 50)
    used = list[int]()
    chosen = Replication._parallel

    def noted(self: Replication, frame: Any) -> int:
        used.append(chosen(self, frame))
        return used[-1]

    monkeypatch.setattr(Replication, "_parallel", noted)
    settings = Settings("move", mariadb_db.url, second_mariadb_db.url)
    Transfer(settings).run(snapshot_only=True)
    mariadb_db.execute("UPDATE items SET price = 1 WHERE id = 1")
    Transfer(settings).run(until_caught_up=True)
    with connect(parse_endpoint(second_mariadb_db.url)) as session:
        Control(cast(Any, session), "move").throttle({"connections": 1})
    mariadb_db.execute("UPDATE items SET price = 2 WHERE id < 40")
    Transfer(settings).run(until_caught_up=True)
    assert used[0] == spark.sparkContext.defaultParallelism
    assert used[-1] == 1
    narrow = replace(settings, limits=Limits(connections=3))
    assert narrow.request.parts == 3, "nor is the log read by more"


@pytest.mark.long
def test_a_copy_that_waits_is_stopped(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    fill(mariadb_db, 50)
    settings = Settings("move", mariadb_db.url, second_mariadb_db.url)
    with connect(parse_endpoint(second_mariadb_db.url)) as session:
        control = Control(cast(Any, session), "move")
        control.create()
        control.pause()
    transfer = Transfer(settings)
    waiting = threading.Thread(target=_closed, args=(transfer.run,))
    waiting.start()
    _until(lambda: read_status(settings).progress.waits == "paused by hand", 60)
    transfer.stop()
    waiting.join(30)
    assert not waiting.is_alive()
