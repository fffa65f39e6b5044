"""Where in the log of a shard that filtered replication fed the changes begin that a stream has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from truecopy.model.position import contains, parse_position
from truecopy.stream.log import LogGone, Mark


@dataclass(frozen=True)
class Applied:
    """A transaction of the log that changed rows.

    Attributes:
        mark: The boundary after it.
        shard: Where filtered replication took it from; empty where something else wrote it.
        position: That shard's position after it.
        begins: It is the first record of that shard, made where replication began: an INSERT.
    """

    mark: Mark
    shard: str = ""
    position: str = ""
    begins: bool = False


def hop_point(
    log: Iterable[Applied],
    given: Mapping[str, str],
    applied: Mapping[str, str],
    oldest: Mark,
    is_complete: bool,
    where: str,
) -> Mark:
    """A boundary before everything that the stream has not given of the sources, and before what is no copy.

    What replication brought is known by its origin. Among the rest, what comes before the first such
    transaction is the copy that the shard was made from; what comes after it was written to the shard itself,
    and must not be passed over, even where replication goes on after it. Where the log does not reach back to
    the copy, nothing in it is a copy, and what was written to the shard before may be among what was removed.

    Args:
        log: All of it, in order.
        given: By source shard, the position up to which the stream has given its changes.
        applied: By source shard, what the shard's own table says was applied last.
        oldest: Where the log begins.
        is_complete: Whether nothing was ever removed from the log.
        where: The log, for messages.
    """
    wanted = {shard: parse_position(position) for shard, position in given.items()}
    seen: set[str] = set()
    point: Mark | None = None
    is_past = has_copy = False
    for transaction in log:
        shard = transaction.shard
        if not shard:
            is_past = is_past or bool(seen)
            has_copy = has_copy or not seen
        elif shard in wanted:
            if has_copy and not seen and not transaction.begins and not is_complete:
                raise LogGone(
                    f"the log of {where} starts after it was first written to, and replication from shard {shard} went"
                    " on after that: what was written before is lost; keep logs longer"
                )
            if not contains(wanted[shard], parse_position(transaction.position)):
                # Replication records where it begins, so what was before the first record is nowhere.
                if shard not in seen:
                    raise _starts_later(where, shard, given[shard])
                is_past = True
            elif not is_past:
                point = transaction.mark
            seen.add(shard)
        if is_past and seen.issuperset(wanted):
            break
    for shard in wanted.keys() - seen:
        # Its records may be among what was removed; the last one tells whether anything new was.
        has_news = shard not in applied or not contains(
            wanted[shard], parse_position(applied[shard])
        )
        if not is_complete and (has_news or point is None):
            raise _starts_later(where, shard, given[shard])
    return point or oldest


def _starts_later(where: str, shard: str, position: str) -> LogGone:
    return LogGone(
        f"the log of {where} starts after what was replicated from shard {shard} at {position}: keep logs longer,"
        " or let replication record its position again before the shards serve"
    )
