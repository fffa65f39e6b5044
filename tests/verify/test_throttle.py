"""Ceilings on the load: statements that shrink, and a replica that is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import truecopy
from tests.servers import MariaDB, Server
from tests.verify.rows import fill
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.verify import throttle


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    yield parse_endpoint(f"mysql://somewhere:{time.monotonic_ns() % 60000}/x")
    throttle._speed.clear()


def test_statements_shrink_at_once_and_grow_slowly(endpoint: Endpoint) -> None:
    assert throttle.rows_within(endpoint, 1.0) is None
    throttle.note_speed(endpoint, 100_000, 1.0)
    assert throttle.rows_within(endpoint, 0.5) == 50_000
    throttle.note_speed(endpoint, 100_000, 10.0)
    assert throttle.rows_within(endpoint, 1.0) == 10_000
    throttle.note_speed(endpoint, 100_000, 1.0)
    assert 10_000 < (throttle.rows_within(endpoint, 1.0) or 0) < 50_000


def test_slow_databases_get_more_and_smaller_statements(mariadb_server: Server) -> None:
    database = mariadb_server.create_database("slow_statements")
    fill(database, 20_000)
    database.execute(
        "SET GLOBAL log_output = 'TABLE', GLOBAL general_log = 1; TRUNCATE mysql.general_log"
    )
    throttle.note_speed(parse_endpoint(database.url), 10_000, 10.0)
    try:
        report = truecopy.verify(database.url, database.url, chunk_rows=20_000, chunk_seconds=2.0)
    finally:
        database.execute("SET GLOBAL general_log = 0")
        throttle._speed.clear()
    ((statements,),) = database.execute(
        "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE 'SELECT COUNT(*), SUM(CAST(CONV(%'"
    )
    mariadb_server.drop_database("slow_statements")
    assert (report.verdict, report.tables[0].rows_compared) == ("equal", 20_000)
    # At 1,000 rows a second 2,000 fit into a statement; later ones grow as they turn out faster.
    assert statements >= 10


def test_waits_for_a_lagging_replica() -> None:
    with MariaDB("--server-id=21") as primary, MariaDB("--server-id=22") as replica:
        login = (
            f"master_user='root', master_password='{primary.password}', master_use_gtid=slave_pos"
        )
        replica.execute(
            None,
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, {login}; START SLAVE",
        )
        database = primary.create_database("busy")
        fill(database, 1_000)
        deadline = time.monotonic() + 30
        while replica.execute(None, "SHOW DATABASES LIKE 'busy'") == []:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        watched = parse_endpoint(replica.url())
        fast = truecopy.verify(database.url, database.url, replica=watched, max_lag=2.0)
        assert fast.verdict == "equal"
        replica.execute(None, "STOP SLAVE")
        with pytest.raises(UsageError, match="not a replica"):
            truecopy.verify(database.url, database.url, replica=watched)
        started = threading.Timer(2.0, replica.execute, (None, "START SLAVE"))
        started.start()
        begin = time.monotonic()
        throttle.wait_for_replica(watched, 2.0)
        assert time.monotonic() - begin > 1.5
        started.join()
