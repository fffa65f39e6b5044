"""Reads of SQLite at a known place of the change log, which is a table of the same file."""

from __future__ import annotations

import sqlite3

CHANGE_LOG = "truecopy_log"
"""What triggers write into, once a stream has installed them."""


def open_snapshot(connection: sqlite3.Connection) -> str:
    """Opens a transaction that sees one state of the file; gives the log's last number in it."""
    connection.execute("BEGIN")
    ((last,),) = connection.execute(f"SELECT MAX(sequence) FROM {CHANGE_LOG}").fetchall()
    return str(last or 0)


def log_end(connection: sqlite3.Connection) -> str | None:
    """The last number of the log that this connection sees, with all that was written before it; None without a log."""
    there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    if not connection.execute(there, (CHANGE_LOG,)).fetchall():
        return None
    ((last,),) = connection.execute(f"SELECT MAX(sequence) FROM {CHANGE_LOG}").fetchall()
    return None if last is None else str(last)
