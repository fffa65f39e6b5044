"""Who writes: a mark that the triggers of a change log put beside each row that they log.

It stands in a table of the file for as long as its transaction writes, and so is never seen by anybody else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ANNOTATION = "truecopy_annotation"


def annotate(connection: sqlite3.Connection, annotation: str | None) -> None:
    """Marks what this transaction writes from here on; to be taken back (None) before it commits."""
    connection.execute(f"DELETE FROM {ANNOTATION}")
    if annotation is not None:
        connection.execute(f"INSERT INTO {ANNOTATION} (value) VALUES (?)", (annotation,))


@contextmanager
def annotated(connection: sqlite3.Connection, annotation: str | None) -> Iterator[None]:
    """Marks what the block writes, where the file has a log that keeps it."""
    there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    if annotation is None or not connection.execute(there, (ANNOTATION,)).fetchall():
        yield
        return
    annotate(connection, annotation)
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            annotate(connection, None)  # should somebody commit in spite of it
        raise
    annotate(connection, None)
