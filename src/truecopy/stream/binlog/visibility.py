"""Positions up to which everything can be read in the tables.

The end of the log is not one: under semi-synchronous replication a commit is in the log, and so in the
stream, while its session still waits for a replica, and until then no SELECT shows it. A snapshot or a
token that counted it would promise rows that nobody finds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from truecopy.engines.mysql import MySQL
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import parse_position
from truecopy.stream.binlog.place import MARIADB_NAME, Place, server_name
from truecopy.stream.log import Mark

_OPEN = Statement("START TRANSACTION WITH CONSISTENT SNAPSHOT")
_SETTLED_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0


def visible_mark(endpoint: Endpoint) -> Mark:
    """A boundary of the log before which everything can be read by whoever asks now."""
    with snapshot(endpoint) as (_, mark):
        return mark


@contextmanager
def snapshot(endpoint: Endpoint) -> Iterator[tuple[MySQL, Mark]]:
    """A session that sees one state of all tables, and the boundary at which that state is.

    On MariaDB the session sees exactly what is before the boundary. MySQL does not tell where a snapshot
    is, so there the session may see a few commits more.
    """
    with MySQL(endpoint) as session:
        session.execute(Statement("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        if session.is_mariadb:
            mark = _open_on_mariadb(session)
        else:
            mark = _mysql_mark(session)
            session.execute(_OPEN)
        try:
            yield session, mark
        finally:
            session.rollback()


def _open_on_mariadb(session: MySQL) -> Mark:
    """Opens a snapshot whose place in the log can be trusted.

    The transaction that fills a file has it changed before it can be seen itself, and snapshots opened
    in between name the head of the new file. So a head is trusted only when it has stayed the same for
    a while in which no commit waited for a replica.
    """
    seen, since = "", time.monotonic()
    deadline = since + _PATIENCE_SECONDS
    while True:
        session.execute(_OPEN)
        mark, is_head = _mariadb_mark(session)
        now = time.monotonic()
        if mark.place != seen:
            seen, since = mark.place, now
        if not is_head or (now - since > _SETTLED_SECONDS and not _waiting_commits(session)):
            return mark
        if now > deadline:
            raise CannotFinish(
                f"commits on {session.endpoint} wait for a replica: what can be seen there cannot be told"
            )
        session.rollback()
        time.sleep(0.05)


def _mariadb_mark(session: MySQL) -> tuple[Mark, bool]:
    """Where the open snapshot is, and whether that is the head of a file."""
    status = _status(session, "binlog\\_snapshot\\_%%")
    file = status.get("binlog_snapshot_file")
    if not file:
        raise CannotFinish(
            f"{session.endpoint} writes no binary log: set log_bin and binlog_format=ROW, and restart it"
        )
    offset = int(status["binlog_snapshot_position"])
    ((name, at_start, here),) = session.fetch(
        Statement(
            f"SELECT {MARIADB_NAME}, BINLOG_GTID_POS(%s, 4), BINLOG_GTID_POS(%s, %s)",
            (file, file, offset),
        )
    )
    place = Place(file, offset, server_name(name))
    return Mark(str(parse_position(str(here or ""))), str(place)), at_start == here


def _waiting_commits(session: MySQL) -> bool:
    waiting = _status(session, "rpl\\_semi\\_sync\\_master\\_wait\\_sessions")
    return any(int(count) for count in waiting.values())


def _status(session: MySQL, pattern: str) -> dict[str, str]:
    rows = session.fetch(Statement(f"SHOW STATUS LIKE '{pattern}'"))
    return {str(name).lower(): str(value) for name, value in rows}


def _mysql_mark(session: MySQL) -> Mark:
    """A GTID is in the set only after its transaction can be seen."""
    ((mode, executed),) = session.fetch(
        Statement("SELECT @@global.gtid_mode, @@global.gtid_executed")
    )
    if not str(mode).startswith("ON"):
        raise UsageError(
            f"{session.endpoint} does not say which commits can be seen: set gtid_mode=ON"
        )
    return Mark(str(parse_position(str(executed))))
