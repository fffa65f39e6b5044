"""What a cache holds of an object: a claim, a token without a value, or a token and a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from truecopy.model.errors import UsageError
from truecopy.model.token import EventToken, parse_token

CLAIM = b"C"
"""Nobody knows anything yet: a reader has put its mark here, and is asking the database."""

_TOKEN, _VALUE = b"T", b"V"


@dataclass(frozen=True)
class Entry:
    """What is known of an object.

    Attributes:
        token: Of the last invalidation, or what the value is at least as fresh as; None for a claim.
        value: None where it was invalidated.
    """

    token: EventToken | None = None
    value: bytes | None = None

    def pack(self) -> bytes:
        if self.token is None:
            return CLAIM
        token = str(self.token).encode()
        return _TOKEN + token if self.value is None else _VALUE + token + b"\n" + self.value


def unpack(content: bytes) -> Entry:
    """Reads what `Entry.pack` made."""
    kind, rest = content[:1], content[1:]
    if content == CLAIM:
        return Entry()
    if kind == _TOKEN:
        return Entry(read_token(rest))
    if kind == _VALUE:
        token, _, value = rest.partition(b"\n")
        return Entry(read_token(token), value)
    raise UsageError(
        "the cache holds something under a name of ours that is not ours: use another prefix"
    )


@lru_cache(maxsize=1 << 16)
def read_token(text: bytes) -> EventToken:
    """The same few tokens come again and again."""
    return parse_token(text.decode())
