"""Positions up to which everything can be read in the tables.

The end of the log is not one: under semi-synchronous replication a commit is in the log, and so in the
stream, while its session still waits for a replica, and until then no SELECT shows it. A snapshot or a
token that counted it would promise rows that nobody finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from truecopy.engines.mysql import MySQL
from truecopy.engines.mysql_snapshot import executed_set, open_on_mariadb, open_snapshot
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import Endpoint
from truecopy.stream.binlog.place import MARIADB_NAME, Place, server_name
from truecopy.stream.log import Mark


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
        if session.is_mariadb:
            mark = _open_on_mariadb(session)
        else:
            mark = Mark(executed_set(session))
            open_snapshot(session)
        try:
            yield session, mark
        finally:
            session.rollback()


def _open_on_mariadb(session: MySQL) -> Mark:
    found = open_on_mariadb(session)
    ((name,),) = session.fetch(Statement(f"SELECT {MARIADB_NAME}"))
    return Mark(found.position, str(Place(found.file, found.offset, server_name(name))))
