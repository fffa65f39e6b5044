"""What a replica's position says of one source: it may hold what came from elsewhere, or was written to the replica."""

from __future__ import annotations

from itertools import product

from truecopy.model.position import (
    BEGINNING,
    MariaDBPosition,
    MySQLPosition,
    Position,
    gtid_set,
)


def common(replica: Position, end: Position) -> Position:
    """The part of a replica's position that is of a source's log, which ends there by now; it may be nothing."""
    match replica, end:
        case MySQLPosition(), MySQLPosition():
            logged = dict(end.sources)
            return gtid_set(
                (source, (max(a, c), min(b, d)))
                for source, runs in replica.sources
                for (a, b), (c, d) in product(runs, logged.get(source, ()))
                if max(a, c) <= min(b, d)
            )
        case MariaDBPosition(), MariaDBPosition():
            logged_domains = {domain for domain, _, _ in end.domains}
            return MariaDBPosition(
                tuple(gtid for gtid in replica.domains if gtid[0] in logged_domains)
            )
    return replica if type(replica) is type(end) else BEGINNING
