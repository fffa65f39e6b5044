"""Event Tokens: when and where a change was committed, comparable where that can be known.

Nothing sorts by this comparison: across shards it is not transitive.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from truecopy.model.errors import UsageError
from truecopy.model.position import Comparison, Position, compare, parse_position

CLOCK_BOUND = timedelta(seconds=1)
"""How far apart the clocks of two shards may be."""

_TOKEN, _KEYSPACE = "tc1.", "tck1."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_MICROSECOND, _SECOND = 1, 1_000_000


@dataclass(frozen=True)
class Origin:
    """Where filtered replication took a transaction from."""

    shard: str
    position: Position


@dataclass(frozen=True)
class EventToken:
    """A point of one shard's stream.

    Attributes:
        committed_at: Microseconds since the epoch, by the clock of the server that committed first:
            the source's, where there is an origin. 0 when not known.
        position: After the transaction, in the shard's own log.
    """

    committed_at: int
    shard: str
    position: Position
    origin: Origin | None = None

    def __str__(self) -> str:
        return _seal(_TOKEN, _plain(self))

    @property
    def time(self) -> datetime | None:
        """The commit time; None when not known."""
        return _EPOCH + timedelta(microseconds=self.committed_at) if self.committed_at else None


@dataclass(frozen=True)
class KeyspacePosition:
    """Where the stream of a keyspace stands: a token of each shard, by the shard's name."""

    tokens: tuple[EventToken, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.tokens, key=lambda token: token.shard))
        for one, following in pairwise(ordered):
            if one.shard == following.shard:
                raise UsageError(f"a keyspace position names the shard {one.shard} twice")
        object.__setattr__(self, "tokens", ordered)

    def __str__(self) -> str:
        return _seal(_KEYSPACE, [_plain(token) for token in self.tokens])

    def of(self, shard: str) -> EventToken | None:
        return next((token for token in self.tokens if token.shard == shard), None)


def compare_tokens(
    a: EventToken, b: EventToken, clock_bound: timedelta = CLOCK_BOUND
) -> Comparison:
    """What `a` is compared to `b`.

    Positions of one log decide whenever both tokens have one, since commit times run backwards in a
    log when a transaction waited for a lock. Only tokens that share no log are told apart by time.
    """
    if a.shard == b.shard:
        return compare(a.position, b.position)
    logs_of_a, logs_of_b = _logs(a), _logs(b)
    answers = {compare(logs_of_a[log], logs_of_b[log]) for log in logs_of_a.keys() & logs_of_b}
    if answers:
        # Two shards that feed each other share two logs, which need not agree.
        return answers.pop() if len(answers) == 1 else Comparison.UNKNOWN
    return _compare_times(a.committed_at, b.committed_at, clock_bound)


def compare_keyspace_positions(a: KeyspacePosition, b: KeyspacePosition) -> Comparison:
    """`NEWER` when no shard of `a` is behind and one is ahead; `UNKNOWN` when the shards are others."""
    if [token.shard for token in a.tokens] != [token.shard for token in b.tokens]:
        return Comparison.UNKNOWN
    answers = {
        compare(mine.position, other.position)
        for mine, other in zip(a.tokens, b.tokens, strict=True)
    }
    moved = answers - {Comparison.SAME}
    if not moved:
        return Comparison.SAME
    return moved.pop() if len(moved) == 1 else Comparison.UNKNOWN


def parse_token(text: str) -> EventToken:
    """Reads the printable form; a text that was mistyped or cut off is refused."""
    if text.strip().startswith(_KEYSPACE):
        raise UsageError(
            f"{_shown(text)} is a keyspace's position, and one shard's token is wanted"
        )
    return _token(_open(_TOKEN, text), text)


def parse_keyspace_position(text: str) -> KeyspacePosition:
    """Reads the printable form; a text that was mistyped or cut off is refused."""
    if text.strip().startswith(_TOKEN):
        raise UsageError(
            f"{_shown(text)} is one shard's token, and a keyspace's position is wanted"
        )
    plain = _open(_KEYSPACE, text)
    if not isinstance(plain, list):
        raise _not_a_token(text)
    return KeyspacePosition(tuple(_token(one, text) for one in plain))


def parse_any(text: str) -> EventToken | KeyspacePosition:
    """Reads either form, by its beginning."""
    if text.strip().startswith(_KEYSPACE):
        return parse_keyspace_position(text)
    return parse_token(text)


def token_of_change(row: Mapping[str, object]) -> EventToken:
    """The token of a stream's row, from its columns shard, position, committed_at and origin."""
    origin = row.get("origin")
    return EventToken(
        _microseconds(row["committed_at"]),
        str(row["shard"]),
        parse_position(str(row["position"])),
        parse_origin(str(origin)) if origin else None,
    )


def origin_text(origin: Origin) -> str:
    """As the stream's column `origin` has it; names of shards have no spaces."""
    return f"{origin.shard} {origin.position}"


def parse_origin(text: str) -> Origin:
    """Reads the stream's column `origin`."""
    shard, space, position = text.partition(" ")
    if not shard or not space:
        raise UsageError(f"not an origin: {_shown(text)}; it is SHARD POSITION")
    return Origin(shard, parse_position(position))


def _logs(token: EventToken) -> dict[str, Position]:
    """The position in each log that the token has one of, by the shard whose log it is."""
    logs = {token.shard: token.position}
    if token.origin is not None:
        logs.setdefault(token.origin.shard, token.origin.position)
    return logs


def _compare_times(a: int, b: int, clock_bound: timedelta) -> Comparison:
    if not a or not b:
        return Comparison.UNKNOWN
    # Logs that keep whole seconds cut the rest off, and so do we: both times then stand for as long
    # as the coarser of the two, from its beginning.
    precision = max(_precision(a), _precision(b))
    between = abs(a // precision - b // precision) * precision - precision
    if between < clock_bound // timedelta(microseconds=1):
        return Comparison.UNKNOWN
    return Comparison.OLDER if a < b else Comparison.NEWER


def _precision(at: int) -> int:
    return _MICROSECOND if at % _SECOND else _SECOND


def _microseconds(at: object) -> int:
    if isinstance(at, datetime):
        # A time without a zone comes from PySpark, which gives the local time of this process.
        return (at.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    if at is None:
        return 0
    if isinstance(at, int):
        return at
    raise UsageError(f"not a commit time: {at!r}")


def _plain(token: EventToken) -> list[int | str]:
    origin = [token.origin.shard, str(token.origin.position)] if token.origin else []
    return [token.committed_at, token.shard, str(token.position), *origin]


def _token(plain: object, text: str) -> EventToken:
    match plain:
        case [int(at), str(shard), str(position), *rest] if 0 <= at <= _LAST:
            match rest:
                case []:
                    return EventToken(at, shard, parse_position(position))
                case [str(origin), str(taken_from)]:
                    source = Origin(origin, parse_position(taken_from))
                    return EventToken(at, shard, parse_position(position), source)
    raise _not_a_token(text)


def _seal(kind: str, plain: object) -> str:
    return _wrap(kind, json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode())


def _wrap(kind: str, content: bytes) -> str:
    # CRC-32 finds every single wrong character and every two neighbours that changed places.
    check = zlib.crc32(kind.encode() + content).to_bytes(4, "big")
    return kind + base64.urlsafe_b64encode(content + check).decode().rstrip("=")


def _open(kind: str, text: str) -> object:
    given = text.strip()
    body = given.removeprefix(kind)
    try:
        content = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))[:-4]
        # Wrapping it again finds what base64 overlooks, too: foreign characters and unused bits.
        if _wrap(kind, content) != given:
            raise _not_a_token(text)
        plain: object = json.loads(content)
    except (binascii.Error, ValueError, RecursionError):
        raise _not_a_token(text) from None
    return plain


def _not_a_token(text: str) -> UsageError:
    return UsageError(
        f"not a token: {_shown(text)}; it was mistyped or cut off, or comes from another version"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}…")
