"""Where the stream of a keyspace stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from truecopy.model.errors import UsageError
from truecopy.model.position import contains, parse_position
from truecopy.model.token import EventToken, KeyspacePosition
from truecopy.stream.log import Mark


@dataclass(frozen=True)
class Offset:
    """A mark of each shard.

    Attributes:
        beat: The time of the last heartbeat, in microseconds.
        left: Up to where shards were read that gave way to others: should they serve again, it goes on there.
        restart_at: As long as some of the shards do not serve any more: a time before they stopped, in
            microseconds. Who starts anew at a time starts on the shards that serve, and misses what was
            written there before it.
    """

    marks: Mapping[str, Mark]
    beat: int = 0
    left: Mapping[str, Mark] = field(default_factory=dict)
    restart_at: int = 0

    def plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"shards": _plain(self.marks), "beat": self.beat}
        if self.left:
            plain["left"] = _plain(self.left)
        if self.restart_at:
            plain["restart_at"] = self.restart_at
        return plain

    @classmethod
    def parse(cls, plain: Mapping[str, Any]) -> Offset:
        marks, left = (
            {shard: Mark(**mark) for shard, mark in plain.get(name, {}).items()}
            for name in ("shards", "left")
        )
        return cls(marks, plain.get("beat", 0), left, plain.get("restart_at", 0))

    @property
    def slowest(self) -> int:
        """The smallest commit time over all shards; 0 when not known."""
        times = [mark.committed_at for mark in self.marks.values()]
        return min(times) if times and all(times) else 0

    def token(self) -> KeyspacePosition:
        """The printable form of where this is."""
        return KeyspacePosition(
            tuple(
                EventToken(mark.committed_at, shard, parse_position(mark.position))
                for shard, mark in self.marks.items()
            )
        )


def has_reached(mark: Mark, end: Mark) -> bool:
    """Whether a boundary is at another one of the same shard, or beyond."""
    # A log may go on without changes: positions differ then, and the place is the same.
    if mark.position == end.position or (mark.place and mark.place == end.place):
        return True
    try:
        return contains(parse_position(mark.position), parse_position(end.position))
    except UsageError:
        return False


def clip(before: Mark, moved: Mark, end: Mark) -> Mark:
    """The end itself where the moved mark is beyond it; the definitions there hold here, too."""
    if not has_reached(moved, end) or moved.position == end.position:
        return moved
    # Its time is that of the last transaction before it, which is not earlier than that of the start.
    return replace(
        end,
        schemas=moved.schemas,
        written=moved.written,
        committed_at=end.committed_at or before.committed_at,
    )


def _plain(marks: Mapping[str, Mark]) -> dict[str, Any]:
    return {shard: mark.plain() for shard, mark in marks.items()}
