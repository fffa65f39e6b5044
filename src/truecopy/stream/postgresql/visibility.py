"""How far the log can be read in the tables: a commit may be in the log before a SELECT sees it.

Under a synchronous standby a commit is in the WAL, and so in the stream, while its session still
waits for the standby; until then no snapshot shows it. A token that counted it would promise rows
that a query does not find.
"""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.engines.postgresql import PostgreSQL
from truecopy.engines.protocols import Statement
from truecopy.stream.log import Mark
from truecopy.stream.postgresql.log import PostgreSQLLog

_SNAPSHOT = """
SELECT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text END,
    pg_current_snapshot()::text
"""


@dataclass(frozen=True)
class Snapshot:
    """What a query sees, as `pg_current_snapshot()` prints it: `xmin:xmax:running,running,…`.

    Attributes:
        first: Every transaction before it is over.
        last: No transaction from here on had started.
        running: Those between that are not over.
    """

    first: int
    last: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        first, last, running = text.split(":")
        return cls(int(first), int(last), frozenset(map(int, filter(None, running.split(",")))))

    def admits(self, xid: int) -> bool:
        """As `pg_visible_in_snapshot` says, for the 32 bits of a transaction id that the log has."""
        epoch = self.last & ~0xFFFFFFFF
        full = epoch | xid
        # The counter may have gone around between the two: they are less than half a round apart.
        if full > self.last + 0x7FFFFFFF:
            full -= 1 << 32
        elif full < self.last - 0x80000000:
            full += 1 << 32
        return full < self.first or (full < self.last and full not in self.running)


def visible_position(log: PostgreSQLLog, session: PostgreSQL, after: Mark) -> str:
    """The position up to which every streamed transaction can be read in this session.

    Inside of a transaction that keeps its snapshot, it is the position of what that transaction sees.

    Args:
        log: The stream.
        session: Of the server that is streamed, or of a standby of it.
        after: A position that is known to be visible; where to start looking.
    """
    ((standby, replayed, snapshot),) = session.fetch(Statement(_SNAPSHOT))
    if standby:
        return str(replayed)
    sees = Snapshot.parse(snapshot)
    position = after.position
    for transaction in log.transactions(after):
        if not sees.admits(transaction.xid):
            break
        position = transaction.position
    return position
