"""PostgreSQL's change log over time: crashes, restarts, ranges, rights; nothing is lost or there twice."""

from __future__ import annotations

import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.fs as pa_fs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import fresh_database
from tests.servers import Database, PostgreSQL, Server, _program
from tests.stream.replay import read_changes, replay, selected
from tests.stream.slots import Slots
from truecopy.engines.postgresql import PostgreSQL as Session
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.log import LogGone, Mark, Wanted
from truecopy.stream.postgresql import drop, folder, log, receiver, writer
from truecopy.stream.postgresql.lsn import parse_lsn
from truecopy.stream.postgresql.part import SpoolPart
from truecopy.stream.postgresql.replication import Replication
from truecopy.stream.postgresql.spool import BEGIN_FRAME, Boundary, Spool
from truecopy.stream.postgresql.visibility import Snapshot, visible_position
from truecopy.stream.postgresql.writer import SpoolWriter


def write_transactions(db: Database, count: int, seed: int = 0) -> None:
    """Transactions of one to thirty changes on the table `t (id, v)`, some rolled back."""
    choose = random.Random(seed)
    with closing(db.connect()) as connection:
        for number in range(count):
            connection.execute("BEGIN")
            for _ in range(choose.choice((1, 1, 3, 30))):
                key = choose.randrange(200)
                if choose.random() < 0.2:
                    connection.execute("DELETE FROM t WHERE id = %s", [key])
                else:
                    connection.execute(
                        "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                        [key, f"{number} {'x' * choose.randrange(300)}"],
                    )
            connection.execute("ROLLBACK" if choose.random() < 0.1 else "COMMIT")


def wait_for(server: Server, sql: str, answer: object) -> None:
    deadline = time.monotonic() + 120
    while server.execute(None, sql) != [(answer,)]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Ranges


def test_a_range_gives_the_same_rows_however_it_is_cut(
    db: Database, stream: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SEGMENT_BYTES", 20_000)
    monkeypatch.setattr(writer, "GROUP_BYTES", 3_000)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    opened = stream()
    start = opened.oldest()
    for seed in range(3):
        write_transactions(db, 60, seed)
        db.execute(f"ALTER TABLE t ADD COLUMN c{seed} int")
    end = opened.current()
    whole = read_changes(opened, start, end)
    assert len(opened.segments()) > 3
    for parts in (1, 2, 7, 50):
        cut = opened.split(start, end, parts)
        assert parts / 2 < len(cut) <= parts
        assert whole == read_changes(opened, start, end, parts)
        assert pickle.loads(pickle.dumps(cut)) == cut
    # By batches of bytes, each of at least one transaction.
    for most in (1, 2_000, 50_000):
        mark, found = start, []
        while (further := opened.advance(mark, most, 0)).position != mark.position:
            changes = read_changes(opened, mark, further)
            transactions = len({change["txn"] for change in changes})
            assert transactions == 1 or further.written - mark.written <= most
            assert most > 1 or transactions == 1
            found += changes
            mark = further
        assert found == whole
    # A process that knows nothing but the marks.
    opened.close()
    fresh = stream()
    assert whole == read_changes(fresh, start, end, 2)
    assert whole == read_changes(fresh, Mark(start.position), Mark(end.position), 2)
    assert not replay(whole)["public.t"].keys() ^ selected(db.url, "t").keys()


def test_marks(db: Database, stream: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SEGMENT_BYTES", 1)
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    before = time.time_ns() // 1000 - 1_000_000
    opened = stream()
    start = opened.oldest()
    assert opened.advance(start, 1 << 20, 0).position == start.position
    times = []
    for key in range(4):
        db.execute(f"INSERT INTO t VALUES ({key})")
        opened.current()
        times.append(time.time_ns() // 1000)
        time.sleep(0.01)
    end = opened.current()
    changes = read_changes(opened, start, end)
    for key, at in enumerate(times):
        found = opened.seek_time(at)
        assert [c["key"][0] for c in read_changes(opened, found, end)] == ["0", "1", "2", "3"][
            key + 1 :
        ]
        sought = opened.seek(changes[key]["position"])
        assert sought.written == found.written
        assert sought.committed_at <= at
    with pytest.raises(LogGone, match="no log reaches back to"):
        opened.seek_time(before)
    with pytest.raises(UsageError, match="another server"):
        opened.seek("FFFFFFF/0")
    assert opened.lag(start).bytes > 0
    assert opened.lag(start).seconds > 0.02
    assert opened.lag(end).bytes == 0
    # What is released is gone; what is behind it is not.
    opened.release(opened.seek(changes[1]["position"]))
    assert opened.oldest().position == changes[1]["position"]
    assert [c["key"][0] for c in read_changes(opened, opened.oldest(), end)] == ["2", "3"]
    with pytest.raises(LogGone, match="starts at"):
        opened.seek(start.position)
    with pytest.raises(LogGone, match="no log reaches back"):
        opened.seek_time(times[0] - 1000)


def test_news_come_at_once(db: Database, stream: Slots) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    opened = stream()
    mark = opened.current()
    waits = []
    for key in range(5):
        writing = threading.Timer(0.1, db.execute, [f"INSERT INTO t VALUES ({key})"])
        writing.start()
        further = opened.advance(mark, 1 << 20, 10)
        waits.append(time.time() - further.committed_at / 1e6)
        assert [c["key"][0] for c in read_changes(opened, mark, further)] == [str(key)]
        mark = further
        writing.join()
    assert sorted(waits)[2] < 0.3
    idle = opened.advance(mark, 1 << 20, 2.5)
    assert idle.position == mark.position
    assert idle.committed_at > mark.committed_at


def test_a_long_transaction_is_written_and_read_in_pieces(
    db: Database, stream: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    write = SpoolWriter.write

    def spy(self: SpoolWriter) -> None:
        sizes.append(self.unwritten)
        write(self)

    monkeypatch.setattr(SpoolWriter, "write", spy)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    opened = stream()
    start = opened.oldest()
    db.execute("INSERT INTO t SELECT i, repeat('x', 150) FROM generate_series(1, 100000) i")
    db.execute("INSERT INTO t VALUES (0, repeat('y', 5000000))")
    end = opened.current()
    assert max(sizes) < 6_000_000 < sum(sizes)
    (part,) = opened.split(start, opened.advance(start, 1, 5), 1)
    rows, seen = 0, set()
    for batch in part.read():
        assert batch.nbytes < 16 << 20
        rows += batch.num_rows
        seen |= set(batch.column("position").to_pylist())
    assert rows == 100_000
    assert len(seen) == 1
    changes = read_changes(opened, opened.seek(seen.pop()), end)
    assert [len(change["after"][1]) for change in changes] == [5_000_000]


# Crashes

RECEIVER = """
import sys, time
from truecopy.model.endpoint import parse_endpoint
from truecopy.stream.log import Wanted, open_log
from truecopy.stream.postgresql import writer
writer.SEGMENT_BYTES, writer.BUFFER_BYTES = 30_000, 2_000
url, slot, work = sys.argv[1:]
log = open_log(parse_endpoint(url), Wanted("s1", settings={"slot": slot, "work": work}))
log.current()
print("ready", flush=True)
time.sleep(60)
"""


def test_a_receiver_killed_at_any_instant_loses_and_repeats_nothing(
    db: Database, stream: Slots, tmp_path: Path
) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    opened = stream()
    start = opened.oldest()
    opened.close()
    enough = threading.Event()

    def write() -> None:
        seed = 0
        while not enough.is_set():
            seed += 1
            write_transactions(db, 20, seed)
            time.sleep(0.05)

    writing = threading.Thread(target=write)
    writing.start()
    choose = random.Random(5)
    command = [sys.executable, "-c", RECEIVER, db.url, f"slot_{db.name}", str(tmp_path / "work")]
    for kill in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            if kill % 2:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                time.sleep(choose.random() * 0.3)
            else:
                time.sleep(0.7 + choose.random())
            process.send_signal(signal.SIGKILL)
    enough.set()
    writing.join()
    opened = stream()
    changes = read_changes(opened, start, opened.current())
    assert replay(changes)["public.t"] == selected(db.url, "t")


@settings(max_examples=60, deadline=None)
@given(
    transactions=st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), min_size=1),
    torn=st.tuples(st.integers(0, 400), st.integers(0, 80)),
    resent=st.integers(0, 3),
)
def test_a_torn_tail_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    transactions: list[tuple[int, bool, bool]],
    torn: tuple[int, int],
    resent: int,
) -> None:
    path = tmp_path_factory.mktemp("torn")
    here = folder.open_folder(str(path))
    origin = Boundary(1000, 1000, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "SEGMENT_BYTES", 300)
        patch.setattr(writer, "BUFFER_BYTES", 50)
        spooling = SpoolWriter(here, origin, path)
        for number, (rows, defines, flushes) in enumerate(transactions):
            spooling.begin(number, 2000 + 10 * number, number)
            for row in range(rows):
                spooling.add(b"I%03d %03d" % (number, row))
            if defines:
                spooling.define(7, f"{number:016d}", changes=False)
            spooling.write()
            spooling.commit(2005 + 10 * number)
            if flushes:
                spooling.flush()
        durable = spooling.end
        # Dies while it writes: more, or less, than what it had told of.
        spooling.begin(999, 9990, 0)
        spooling.add(b"I torn")
        spooling.write()
        del spooling
        last = Spool(here, origin).last_segment
        if last is not None:
            segment, index = (path / f"{last:020d}{kind}" for kind in (".changes", ".index"))
            held = durable.written - last if durable.written > last else 0
            with segment.open("r+b") as file:
                file.truncate(max(held, segment.stat().st_size - torn[0]))
            with index.open("ab") as file:
                file.write(b'0badc0de {"end":[1,2,3,4]}\n'[: torn[1]])
        again = SpoolWriter(here, origin, path)
        assert again.end == durable
        known = [n for n in range(len(transactions)) if 2005 + 10 * n <= durable.lsn]
        assert again.relations.get(7) == next(
            (f"{n:016d}" for n in reversed(known) if transactions[n][1]), None
        )
        for number in range(len(known), len(transactions) + resent):
            again.begin(number, 2000 + 10 * number, number)
            again.add(b"I again")
            again.commit(2005 + 10 * number)
        again.flush()
        again.close()
    spool = Spool(here, origin)
    found = [transaction.xid for transaction in spool.transactions(origin.written)]
    assert found == list(range(len(transactions) + resent))
    assert all(t.end > t.start + BEGIN_FRAME.size for t in spool.transactions(origin.written))
    shutil.rmtree(path)


def test_what_the_server_sends_twice_is_there_once(
    db: Database, stream: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    opened = stream()
    start = opened.oldest()
    # The receiver dies after it wrote, and before the server heard of it.
    with monkeypatch.context() as patch:
        patch.setattr(Replication, "confirm", lambda *_args, **_given: None)
        opened.current()
        write_transactions(db, 50)
        end = opened.current()
        opened.close()
    ((confirmed,),) = db.execute(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"
        " WHERE database = current_database()"
    )
    assert parse_lsn(confirmed) < parse_lsn(end.position)
    # And the next one does not tell where it wants to go on.
    monkeypatch.setattr("truecopy.stream.postgresql.replication.lsn_text", lambda _: "0/0")
    opened = stream()
    write_transactions(db, 50, seed=1)
    changes = read_changes(opened, start, opened.current())
    assert replay(changes)["public.t"] == selected(db.url, "t")


def test_a_killed_walsender_is_replaced(db: Database, stream: Slots) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    opened = stream()
    start = opened.oldest()
    writing = threading.Thread(target=write_transactions, args=(db, 1500))
    writing.start()
    killed = 0
    while writing.is_alive():
        rows = db.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE database = current_database() AND active_pid IS NOT NULL"
        )
        killed += len(rows)
        time.sleep(0.2)
    assert killed > 1
    changes = read_changes(opened, start, opened.current())
    assert replay(changes)["public.t"] == selected(db.url, "t")


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgreSQL]:
    """A server that tests stop and start."""
    private = PostgreSQL("-c", "wal_level=logical")
    with private:
        yield private


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "crash"])
def test_a_restart_of_the_server(
    own_server: PostgreSQL, tmp_path: Path, how: signal.Signals
) -> None:
    with fresh_database(own_server.server()) as db, Slots(db, tmp_path) as slots:
        db.execute(f"ALTER DATABASE {db.name} SET synchronous_commit = on")
        db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        opened = slots()
        start = opened.oldest()
        write_transactions(db, 100)
        with closing(db.connect()) as connection:
            connection.execute("BEGIN; INSERT INTO t VALUES (1000, 'never committed')")
            own_server.restart(how)
        write_transactions(db, 100, seed=1)
        changes = read_changes(opened, start, opened.current())
        assert replay(changes)["public.t"] == selected(db.url, "t")


def test_a_server_that_stays_away_is_an_error(own_server: PostgreSQL, tmp_path: Path) -> None:
    with fresh_database(own_server.server()) as db, Slots(db, tmp_path) as slots:
        opened = slots(retry_seconds="0.5")
        mark = opened.current()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(receiver, "BUSY_SECONDS", 0.5)
            patch.setattr(own_server, "port", own_server.port)
            assert own_server._process is not None
            own_server._process.send_signal(signal.SIGQUIT)
            own_server._process.wait(30)
            with pytest.raises(CannotFinish, match="lost the connection to"):
                opened.advance(mark, 1, 20)
            own_server._start()


# Slots and publications


def test_a_dropped_slot_is_a_clear_error(db: Database, stream: Slots) -> None:
    opened = stream()
    mark = opened.current()
    slot = f"FROM pg_replication_slots WHERE slot_name = 'slot_{db.name}'"
    while db.execute(f"SELECT {slot}"):
        db.execute(f"SELECT pg_terminate_backend(active_pid) {slot}")
        with suppress(psycopg.errors.ObjectInUse):  # the receiver was faster
            db.execute(f"SELECT pg_drop_replication_slot(slot_name) {slot}")
    with pytest.raises(LogGone, match=r"does not exist.*start anew"):
        opened.advance(mark, 1, 20)
    opened.close()
    with pytest.raises(LogGone, match=r"is gone.*start anew"):
        stream()


def test_a_lost_slot_is_a_clear_error(own_server: PostgreSQL, tmp_path: Path) -> None:
    server = own_server.server()
    server.execute(None, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
    server.execute(None, "SELECT pg_reload_conf()")
    with fresh_database(server) as db, Slots(db, tmp_path) as slots:
        slots().close()
        for _ in range(4):
            server.execute(None, "SELECT pg_switch_wal(); CREATE TABLE x (i int); DROP TABLE x")
            server.execute(None, "CHECKPOINT")
        with pytest.raises(LogGone, match="removed WAL"):
            slots()
    server.execute(None, "ALTER SYSTEM RESET max_slot_wal_keep_size")
    server.execute(None, "SELECT pg_reload_conf()")


def test_a_slot_in_use_elsewhere_is_a_clear_error(
    db: Database, stream: Slots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream().current()
    slot = f"FROM pg_replication_slots WHERE slot_name = 'slot_{db.name}'"
    wait_for(db.server, f"SELECT active {slot}", True)
    monkeypatch.setattr(receiver, "BUSY_SECONDS", 0.5)
    other = stream(work=str(tmp_path / "other"))
    with pytest.raises(CannotFinish, match=r"is active for PID \d+.*choose another slot"):
        other.advance(other.oldest(), 1, 20)


def test_processes_share_a_receiver(db: Database, stream: Slots) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    first, second = stream(), stream()
    start = first.oldest()
    for key in range(2):
        db.execute(f"INSERT INTO t VALUES ({key})")
        for each in (first, second):
            assert len(read_changes(each, start, each.current())) == key + 1
    # The one that receives ends; the other one takes over.
    first.close()
    db.execute("INSERT INTO t VALUES (2)")
    assert len(read_changes(second, start, second.current())) == 3


def test_an_idle_slot_advances(db: Database, stream: Slots, postgres_server: Server) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    stream().current()
    with fresh_database(postgres_server) as other:
        other.execute("CREATE TABLE big AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
    (target,) = db.execute("SELECT pg_current_wal_lsn()::text")[0]
    deadline = time.monotonic() + 10
    behind = (
        "SELECT confirmed_flush_lsn < %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    )
    while db.execute(behind, [target, f"slot_{db.name}"])[0][0]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_current_needs_no_commit_that_waits_for_the_disk(
    postgres_db: Database, tmp_path: Path
) -> None:
    with Slots(postgres_db, tmp_path) as slots:
        postgres_db.execute("CREATE TABLE t (id int PRIMARY KEY)")
        opened = slots()
        start = opened.oldest()
        with closing(postgres_db.connect()) as connection:
            for key in range(3):
                connection.execute("INSERT INTO t VALUES (%s)", [key])
                # An open transaction leaves WAL behind that nobody brings to the disk.
                with closing(postgres_db.connect()) as other:
                    other.execute("BEGIN; INSERT INTO t VALUES (100)")
                    assert len(read_changes(opened, start, opened.current())) == key + 1


def test_tables_without_an_identity(db: Database, stream: Slots) -> None:
    db.execute("CREATE TABLE keyed (id int PRIMARY KEY); CREATE TABLE keyless (v int)")
    db.execute("CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY)")
    opened = stream()
    start = opened.oldest()
    (keyless,) = [line for line in opened.warnings if "keyless" in line]
    assert 'ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL' in keyless
    assert any("fleeting" in line and "SET LOGGED" in line for line in opened.warnings)
    # In production nothing may fail because of the stream.
    db.execute("INSERT INTO keyless VALUES (1); UPDATE keyless SET v = 2; DELETE FROM keyless")
    db.execute("INSERT INTO keyed VALUES (1); UPDATE keyed SET id = 2")
    assert {c["table"] for c in read_changes(opened, start, opened.current())} == {"public.keyed"}
    opened.close()
    with pytest.raises(UsageError, match="REPLICA IDENTITY FULL"):
        stream("keyless")
    with pytest.raises(UsageError, match="there is no table nowhere"):
        stream("nowhere", slot="another", work="unused")
    # A later look finds what has an identity by then, and what has it no more.
    db.execute("ALTER TABLE keyless REPLICA IDENTITY FULL; CREATE TABLE young (id int PRIMARY KEY)")
    db.execute("ALTER TABLE keyed REPLICA IDENTITY NOTHING")
    opened = stream()
    assert any("young is new to the stream" in line for line in opened.warnings)
    mark = opened.current()
    db.execute("INSERT INTO keyless VALUES (1); INSERT INTO young VALUES (1)")
    tables = {c["table"] for c in read_changes(opened, mark, opened.current())}
    assert tables == {"public.keyless", "public.young"}
    db.execute("INSERT INTO keyed VALUES (5); DELETE FROM keyed")


def test_a_publication_of_somebody_else_is_left_alone(
    db: Database, stream: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    db.execute("CREATE PUBLICATION theirs FOR TABLE t WITH (publish = 'insert')")
    with stream(publication="theirs") as opened:
        (line,) = opened.missing()
        assert "SET (publish = 'insert, update, delete, truncate')" in line
    db.execute("ALTER PUBLICATION theirs SET (publish = 'insert, update, delete, truncate')")
    with stream(publication="theirs") as opened:
        assert [
            line
            for line in opened.warnings
            if "public.u is not streamed: it is not in the publication" in line
        ]
        start = opened.oldest()
        db.execute("INSERT INTO u VALUES (1); INSERT INTO t VALUES (1)")
        assert [c["table"] for c in read_changes(opened, start, opened.current())] == ["public.t"]
    drop(parse_endpoint(db.url), stream.wanted(publication="theirs"))
    assert db.execute("SELECT pubname::text FROM pg_publication") == [("theirs",)]


def test_patterns_choose_tables(db: Database, stream: Slots) -> None:
    db.execute("CREATE SCHEMA sales")
    for table in ("a1", "a2", "b1", "sales.a1", "sales.c"):
        db.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    opened = stream("public.a*", "sales.c")
    start = opened.oldest()
    for table in ("a1", "a2", "b1", "sales.a1", "sales.c"):
        db.execute(f"INSERT INTO {table} VALUES (1)")
    changes = read_changes(opened, start, opened.current())
    assert [c["table"] for c in changes] == ["public.a1", "public.a2", "sales.c"]


def test_what_is_missing_is_said_with_its_remedy(db: Database, tmp_path: Path) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("DROP ROLE IF EXISTS limited; CREATE ROLE limited LOGIN PASSWORD 'limited'")
    url = f"postgresql://limited:limited@{db.server.host}:{db.server.port}/{db.name}"
    wanted = Wanted("s1", settings={"slot": f"slot_{db.name}", "work": str(tmp_path / "work")})
    endpoint = parse_endpoint(url)
    try:
        with log.PostgreSQLLog(endpoint, wanted) as opened:
            replicate, create, own = opened.missing()
            with pytest.raises(CannotFinish, match="cannot be streamed"):
                opened.current()
        assert 'ALTER ROLE "limited" REPLICATION' in replicate
        assert f'GRANT CREATE ON DATABASE "{db.name}" TO "limited"' in create
        assert 'ALTER TABLE "public"."t" OWNER TO "limited"' in own
        for statement in (
            'ALTER ROLE "limited" REPLICATION',
            f'GRANT CREATE ON DATABASE "{db.name}" TO "limited"',
            'ALTER TABLE "public"."t" OWNER TO "limited"',
        ):
            db.execute(statement)
        with log.PostgreSQLLog(endpoint, wanted) as opened:
            assert opened.missing() == []
            start = opened.oldest()
            db.execute("INSERT INTO t VALUES (1)")
            assert len(read_changes(opened, start, opened.current())) == 1
        drop(endpoint, wanted)
        assert not db.execute(
            "SELECT FROM pg_replication_slots WHERE database = current_database()"
        )
        assert not db.execute("SELECT FROM pg_publication")
        assert not (tmp_path / "work").exists()
    finally:
        db.execute("DROP OWNED BY limited; DROP ROLE limited")


def test_wal_that_the_slot_holds_back_is_told(db: Database, stream: Slots) -> None:
    opened = stream(hold_warning_bytes="1")
    db.execute("CREATE TABLE t AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
    opened.lag(opened.current())
    assert any("holds back" in line for line in opened.warnings)


def test_wrong_settings_are_refused(db: Database, stream: Slots) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a slot"):
        stream(slot="Not A Name")
    with pytest.raises(UsageError, match="hold_warning_bytes=much is not a number"):
        stream(hold_warning_bytes="much")
    with pytest.raises(UsageError, match="cannot open the work folder"):
        stream(work="nowhere://x")


def test_a_folder_that_a_machine_cannot_reach_is_named(db: Database, stream: Slots) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    opened = stream()
    start = opened.oldest()
    db.execute("INSERT INTO t VALUES (1)")
    (part,) = opened.split(start, opened.current(), 1)
    assert isinstance(part, SpoolPart)
    elsewhere = replace(part, folder="/not/here")
    with pytest.raises(LogGone, match="not on this machine"):
        list(elsewhere.read())


def test_a_folder_where_files_are_written_whole(
    monkeypatch: pytest.MonkeyPatch, db: Database, stream: Slots, tmp_path: Path
) -> None:
    """As on an object store: no file is appended to, each holds whole transactions."""

    def remote(where: str) -> folder.Folder:
        return folder.Folder(
            where, pa_fs.LocalFileSystem(), where.removeprefix("store:/"), local=False
        )

    for module in ("log", "part", "relations"):
        monkeypatch.setattr(f"truecopy.stream.postgresql.{module}.open_folder", remote)
    monkeypatch.setattr(receiver, "OBJECT_SECONDS", 0.2)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    opened = stream(work=f"store:/{tmp_path}/store")
    start = opened.oldest()
    write_transactions(db, 300)
    db.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1000, 30000) i")
    write_transactions(db, 100, seed=1)
    end = opened.current()
    changes = read_changes(opened, start, end, parts=3)
    assert replay(changes)["public.t"] == selected(db.url, "t")
    opened.close()
    opened = stream(work=f"store:/{tmp_path}/store")
    assert read_changes(opened, start, opened.current()) == changes
    opened.release(end)
    assert opened.oldest().written > start.written


# Visibility


class Standby(PostgreSQL):
    """A standby of another server, streaming from it."""

    def __init__(self, primary: Server) -> None:
        super().__init__()
        self.primary = primary
        self.password = primary.password

    def initialise(self) -> None:
        login = " ".join(
            f"{name}={value}"
            for name, value in {
                "host": self.primary.host,
                "port": self.primary.port,
                "user": self.primary.user,
                "password": self.primary.password,
            }.items()
        )
        self.run(
            _program("pg_basebackup"),
            f"--pgdata={self.path('data')}",
            f"--dbname={login}",
            "--write-recovery-conf",
            "--checkpoint=fast",
        )


@contextmanager
def background(connection: Any, sql: str) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=connection.execute, args=(sql,))
    thread.start()
    yield thread
    thread.join(20)
    assert not thread.is_alive()


def test_a_commit_that_waits_for_a_standby_is_in_the_log_and_not_visible(
    own_server: PostgreSQL, tmp_path: Path
) -> None:
    server = own_server.server()
    with fresh_database(server) as db, Slots(db, tmp_path) as slots:
        db.execute("CREATE TABLE t (id int PRIMARY KEY)")
        opened = slots()
        start = opened.oldest()
        with Standby(server) as standby:
            server.execute(None, "ALTER SYSTEM SET synchronous_standby_names = 'walreceiver'")
            server.execute(None, "SELECT pg_reload_conf()")
            wait_for(
                server, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", 1
            )
            try:
                with (
                    closing(db.connect()) as waiting,
                    Session(parse_endpoint(db.url)) as here,
                    Session(parse_endpoint(standby.url(db.name))) as there,
                ):
                    waiting.execute("SET synchronous_commit = remote_apply")
                    waiting.execute("INSERT INTO t VALUES (1)")
                    first = opened.current()
                    assert visible_position(opened, here, start) == first.position
                    standby.execute(None, "SELECT pg_wal_replay_pause()")
                    wait_for(standby, "SELECT pg_get_wal_replay_pause_state()", "paused")
                    with background(waiting, "INSERT INTO t VALUES (2)"):
                        second = opened.advance(first, 1 << 20, 10)
                        assert [c["key"] for c in read_changes(opened, first, second)] == [["2"]], (
                            "the log has it"
                        )
                        assert db.execute("SELECT id FROM t") == [(1,)], "no query sees it"
                        assert visible_position(opened, here, start) == first.position
                        # One that does not wait is visible, but is not behind all that is.
                        db.execute("INSERT INTO t VALUES (3)")
                        third = opened.advance(second, 1 << 20, 10)
                        assert db.execute("SELECT id FROM t") == [(1,), (3,)]
                        assert visible_position(opened, here, start) == first.position
                        replayed = visible_position(opened, there, start)
                        assert opened.seek(replayed).written == first.written
                        standby.execute(None, "SELECT pg_wal_replay_resume()")
                    assert visible_position(opened, here, start) == third.position
                    applied = f"SELECT pg_last_wal_replay_lsn() >= '{third.position}'"
                    wait_for(standby, applied, True)
                    replayed = visible_position(opened, there, start)
                    assert opened.seek(replayed).written == third.written
            finally:
                server.execute(None, "ALTER SYSTEM RESET synchronous_standby_names")
                server.execute(None, "SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("snapshot", "seen", "unseen"),
    [
        ("100:100:", [1, 99], [100, 101]),
        ("100:105:100,103", [99, 101, 102, 104], [100, 103, 105]),
        (f"{2**32 + 10}:{2**32 + 12}:{2**32 + 10}", [11, 9, 2**32 - 1], [10, 12, 500]),
        (f"{2**33 - 2}:{2**33 - 1}:", [2**32 - 3], [2**32 - 1, 0, 7]),
    ],
)
def test_snapshots(snapshot: str, seen: list[int], unseen: list[int]) -> None:
    parsed = Snapshot.parse(snapshot)
    assert [xid for xid in seen + unseen if parsed.admits(xid)] == seen
