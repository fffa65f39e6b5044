"""Where in a shard's log the changes begin that filtered replication brought after a given point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from truecopy.model.position import contains, parse_position
from truecopy.stream.log import LogGone


def last_contained(
    recorded: Iterable[tuple[str, str, str]], origins: Mapping[str, str], where: str
) -> str | None:
    """The position behind which everything is that these positions of source shards do not contain.

    None where nothing was recorded from one of the shards: its changes may be anywhere.

    Args:
        recorded: Position, source shard and its position, in the order of the log.
        origins: By source shard, what the stream has given of it.
        where: The log, for messages.
    """
    reached: dict[str, tuple[int, str]] = {}
    beyond: set[str] = set()
    for number, (position, shard, source_position) in enumerate(recorded):
        if shard not in origins or shard in beyond:
            continue
        if contains(parse_position(origins[shard]), parse_position(source_position)):
            reached[shard] = number, position
            continue
        beyond.add(shard)
        if shard not in reached:
            raise LogGone(
                f"the stream of {where} starts after what was replicated from shard {shard} at"
                f" {origins[shard]}: open the streams of new shards before replication to them starts"
            )
    if len(reached) < len(origins):
        return None
    return min(reached.values())[1]
