"""A log full of changes, and a native replica that applies it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.servers import Database

TABLE = "t"
EACH = 10
"""Rows that each transaction inserts, updates and deletes."""

_FILL = f"""CREATE PROCEDURE make_changes(transactions INT, ids INT) BEGIN
    DECLARE done INT DEFAULT 0;
    WHILE done < transactions DO
        START TRANSACTION;
        INSERT INTO {TABLE} SELECT ids + done * {EACH} + seq, seq * 7, REPEAT(SHA1(done * seq), 2), SHA1(seq)
            FROM seq_1_to_{EACH};
        UPDATE {TABLE} SET k = k + 1, pad = SHA1(done) WHERE id > done * {EACH} AND id <= (done + 1) * {EACH};
        DELETE FROM {TABLE} WHERE id > ids DIV 2 + done * {EACH} AND id <= ids DIV 2 + (done + 1) * {EACH};
        COMMIT;
        SET done = done + 1;
    END WHILE; END"""


@dataclass(frozen=True)
class LogPosition:
    file: str
    offset: int


def log_position(source: Database) -> LogPosition:
    ((file, offset, *_),) = source.execute("SHOW MASTER STATUS")
    return LogPosition(str(file), int(offset))


def make_backlog(source: Database, rows: int, turn: int = 1) -> int:
    """About as many changes as the table had rows: a third each of inserts, updates and deletes; how many.

    Each turn deletes what the one before has inserted, the first one rows that were there.
    """
    transactions = rows // (3 * EACH)
    # The server makes them itself: a client would take minutes.
    source.execute(_FILL)
    source.execute(f"CALL make_changes({transactions}, {rows * 2 ** (turn - 1)})")
    source.execute("DROP PROCEDURE make_changes")
    return 3 * EACH * transactions


def seconds_of_replica(source: Database, replica: Database, start: LogPosition) -> float:
    """What MariaDB's own replication takes from a position to the end of the source's log."""
    server, end = source.server, log_position(source)
    replica.execute(
        "CHANGE MASTER TO MASTER_HOST = %s, MASTER_PORT = %s, MASTER_USER = %s, MASTER_PASSWORD = %s,"
        " MASTER_LOG_FILE = %s, MASTER_LOG_POS = %s",
        (server.host, server.port, server.user, server.password, start.file, start.offset),
    )
    begun = time.monotonic()
    replica.execute("START SLAVE")
    ((waited,),) = replica.execute("SELECT MASTER_POS_WAIT(%s, %s)", (end.file, end.offset))
    seconds = time.monotonic() - begun
    replica.execute("STOP SLAVE")
    if waited is None:
        raise RuntimeError("the replica stopped before the end of the log")
    return seconds
