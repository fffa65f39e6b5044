"""Snapshots of MariaDB and MySQL whose place in the log is known.

On MariaDB a snapshot says where it is, and takes no lock. MySQL does not: there a second connection keeps
writers off the table for the moment in which the snapshot is opened and the executed set is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import parse_position
from truecopy.model.relation import WHOLE, Relation
from truecopy.model.table import TableName

if TYPE_CHECKING:
    from truecopy.engines.mysql import MySQL

_SETTLED_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0
_LOOKS = 5
_NOTE_BYTES = 19 + 4
"""A Binlog_checkpoint event without the name of its file and its checksum."""
_LOCK_SECONDS = 10
"""How long a lock may be waited for: whoever comes later to write waits behind it."""


@dataclass(frozen=True)
class LogPlace:
    """A boundary of MariaDB's log: a byte of a file, and what is before it."""

    file: str
    offset: int
    position: str


def require_position(session: MySQL, relation: Relation) -> None:
    """Refuses tables whose rows are of no moment that the log knows."""
    for name in relation.tables:
        ((transacts, engine),) = session.fetch(
            Statement(
                "SELECT e.transactions = 'YES', e.engine FROM information_schema.tables AS t"
                " JOIN information_schema.engines AS e ON e.engine = t.engine"
                " WHERE t.table_schema = %s AND t.table_name = %s",
                (name.schema, name.table),
            )
        )
        if not int(transacts):
            raise UsageError(
                f"{name} has no key, and {engine} no snapshots, so which of its rows were copied cannot be told:"
                " give it a key, make it InnoDB, or leave it out"
            )
    _require_order(session, relation.tables[0], "it has no key")


def fingerprinted_rows_at(session: MySQL, relation: Relation) -> tuple[pa.Table, str]:
    """Rows with their fingerprints, and the position whose transactions they show: all of them, and no other."""
    with snapshot(session, relation.tables) as position:
        return session.fingerprinted_rows(relation, WHOLE), position


@contextmanager
def snapshot(session: MySQL, tables: Sequence[TableName]) -> Iterator[str]:
    """One state of these tables, for as long as it is open; the position whose transactions it shows."""
    if session.is_mariadb:
        yield open_on_mariadb(session).position
    else:
        _require_order(session, tables[0], "it is copied as of one moment")
        yield _open_behind_lock(session, tables)
    session.rollback()


def _require_order(session: MySQL, table: TableName, why: str) -> None:
    """Else the executed set could lack a commit that is before the table's last one in the log."""
    if session.is_mariadb:
        return
    ((ordered,),) = session.fetch(Statement("SELECT @@GLOBAL.binlog_order_commits"))
    if not int(ordered):
        raise UsageError(
            f"{table}: {why}, and {session.endpoint} commits in another order than it logs:"
            " SET GLOBAL binlog_order_commits = ON, or leave the table out"
        )


def open_snapshot(session: MySQL) -> None:
    """A transaction that sees one state of all tables."""
    session.execute(Statement("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    session.execute(Statement("START TRANSACTION WITH CONSISTENT SNAPSHOT"))


def open_on_mariadb(session: MySQL) -> LogPlace:
    """Opens a snapshot whose place in the log can be trusted.

    The end of a transaction can: a snapshot there shows it, and so all before it. The transaction that fills a file
    has it changed before it can be seen itself, and snapshots opened in between name the head of the new file; and
    when the server notes in there that it is done with the old file, they name the end of that note, though
    commits before it still wait. Such places are trusted only when they have stayed the same for a while in which
    no commit waited for a replica.
    """
    seen, since = None, time.monotonic()
    deadline = since + _PATIENCE_SECONDS
    while True:
        open_snapshot(session)
        place, is_proven = _place(session)
        now = time.monotonic()
        if place != seen:
            seen, since = place, now
        if is_proven or (now - since > _SETTLED_SECONDS and not _waiting_commits(session)):
            return place
        if now > deadline:
            raise CannotFinish(
                f"commits on {session.endpoint} wait for a replica: what can be seen there cannot be told"
            )
        session.rollback()
        time.sleep(0.05)


def visible_position(session: MySQL) -> str | None:
    """Up to where everything can be read; under semi-synchronous replication the log is ahead of that.

    The beginning of the log (empty) where nothing further is known: commits wait, and a file has just begun.
    """
    if not session.is_mariadb:
        return session.position()
    logged = log_end(session)
    if logged is None:
        return None
    ((file, end, *_),) = session.fetch(Statement("SHOW MASTER STATUS"))
    ((head,),) = session.fetch(Statement("SELECT BINLOG_GTID_POS(%s, 4)", (file,)))
    for _ in range(_LOOKS if head != logged else 0):
        open_snapshot(session)
        seen = _status(session, "binlog\\_snapshot\\_%%")
        session.rollback()
        # The end of the log was asked for behind its position, so what is seen up to there contains it.
        if seen["binlog_snapshot_file"] == file and int(seen["binlog_snapshot_position"]) >= int(
            end
        ):
            return _unless_waiting(session, logged)
        time.sleep(0.02)
    # Commits wait, or a file has just begun: to find the position of a place, the server reads the file.
    found, is_proven = _snapshot_place(session)
    if is_proven:
        return found.position
    time.sleep(_SETTLED_SECONDS)
    settled = _snapshot_place(session) == (found, False) and not _waiting_commits(session)
    return found.position if settled else ""


def _unless_waiting(session: MySQL, logged: str) -> str:
    """All of the log, if no commit waits: an event that a rotation adds later hides that one before it does."""
    return "" if _waiting_commits(session) else logged


def _snapshot_place(session: MySQL) -> tuple[LogPlace, bool]:
    """Where a snapshot is that is opened now, and whether it shows all that is before."""
    open_snapshot(session)
    try:
        return _place(session)
    finally:
        session.rollback()


def log_end(session: MySQL) -> str | None:
    """MariaDB logs a commit before it shows it. MySQL says it the other way round, a moment later."""
    if not session.is_mariadb:
        return session.position()
    ((position,),) = session.fetch(Statement("SELECT @@GLOBAL.gtid_binlog_pos"))
    return str(position) or None


def executed_set(session: MySQL) -> str:
    """MySQL's executed transactions: a GTID is in the set only after its transaction can be seen."""
    ((mode, executed),) = session.fetch(
        Statement("SELECT @@global.gtid_mode, @@global.gtid_executed")
    )
    if not str(mode).startswith("ON"):
        raise UsageError(
            f"{session.endpoint} does not say which commits can be seen: set gtid_mode=ON"
        )
    return str(parse_position(str(executed)))


def _open_behind_lock(session: MySQL, tables: Sequence[TableName]) -> str:
    """The lock is given when every transaction that wrote to the tables can be seen and is in the executed set.

    Until it is let go no other comes, so the snapshot and the set agree on these tables, whatever happens to others.
    """
    locked = ", ".join(f"{table_sql(session.dialect, name)} READ" for name in tables)
    with type(session)(session.endpoint) as locking:
        locking.execute(Statement(f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}"))
        locking.execute(Statement(f"LOCK TABLES {locked}"))
        open_snapshot(session)
        return executed_set(session)


def _place(session: MySQL) -> tuple[LogPlace, bool]:
    """Where the open snapshot is, and whether that is the end of a transaction, and so a proof."""
    status = _status(session, "binlog\\_snapshot\\_%%")
    file = status.get("binlog_snapshot_file")
    if not file:
        raise CannotFinish(
            f"{session.endpoint} writes no binary log: set log_bin and binlog_format=ROW, and restart it"
        )
    offset = int(status["binlog_snapshot_position"])
    # Between events there is no position. A note behind the head names a file, and is as long as that makes it.
    note = f"{_NOTE_BYTES + len(file)} + IF(@@GLOBAL.binlog_checksum = 'NONE', 0, 4)"
    ((at_start, here, before_note),) = session.fetch(
        Statement(
            "SELECT BINLOG_GTID_POS(%s, 4), BINLOG_GTID_POS(%s, %s),"
            f" IF(%s > {note}, BINLOG_GTID_POS(%s, %s - ({note})), NULL)",
            (file, file, offset, offset, file, offset),
        )
    )
    is_proven = at_start != here and before_note is None
    return LogPlace(file, offset, str(parse_position(str(here or "")))), is_proven


def _waiting_commits(session: MySQL) -> bool:
    waiting = _status(session, "rpl\\_semi\\_sync\\_master\\_wait\\_sessions")
    return any(int(count) for count in waiting.values())


def _status(session: MySQL, pattern: str) -> dict[str, str]:
    rows = session.fetch(Statement(f"SHOW STATUS LIKE '{pattern}'"))
    return {str(name).lower(): str(value) for name, value in rows}
