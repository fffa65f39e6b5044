"""Reads through a cache, for application servers.

A reader that finds no value asks the database, and puts the answer into the cache only where that is known to be
right. docs/cache.md says why the steps are these, in this order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from truecopy.cache.entry import CLAIM, Entry, unpack
from truecopy.cache.floor import Ends, admit
from truecopy.cache.invalidation import ENTRY
from truecopy.cache.store import Cache, Write
from truecopy.client.answer import Answer, Of
from truecopy.model.token import EventToken


class Source(Ends, Protocol):
    """Whoever answers queries: `truecopy.client.Client`."""

    def query(
        self,
        sql: str,
        values: Sequence[object] = (),
        *,
        of: Of | None = None,
        include_token: bool = False,
        compare_token: EventToken | None = None,
    ) -> Answer: ...

    def serves(self, shard: str) -> bool:
        """Whether a shard serves, as the keyspace file says now."""
        ...


@dataclass(frozen=True)
class Got:
    """An object.

    Attributes:
        value: The rows, or what `make` made of them, by way of `encode` and `decode`.
        hit: It was in the cache.
        token: What the value is at least as fresh as; None where that is not known.
        put: It is in the cache now.
    """

    value: Any
    hit: bool
    token: EventToken | None
    put: bool = False


class ReadThrough:
    """The cache in front of the database.

    Args:
        source: Where values come from.
        cache: Where they are kept.
        make: From rows to the object that is kept.
        encode: From the object to bytes; JSON by default.
        decode: Back again.
    """

    def __init__(
        self,
        source: Source,
        cache: Cache,
        *,
        make: Callable[[Answer], Any] = lambda answer: answer.rows,
        encode: Callable[[Any], bytes] | None = None,
        decode: Callable[[bytes], Any] = json.loads,
    ) -> None:
        self._source = source
        self._cache = cache
        self._make = make
        self._encode = encode or encode_json
        self._decode = decode

    def get(
        self, key: str, sql: str, values: Sequence[object] = (), *, of: Of | None = None
    ) -> Got:
        """The object of this key, from the cache, or else by this query."""
        name = ENTRY + key
        (held,) = self._cache.get([name])
        if held is None:
            # A claim first: what comes in its place afterwards is seen when the value is put.
            self._cache.put([Write(name, CLAIM)])
            (held,) = self._cache.get([name])
        entry = unpack(held.content) if held else Entry()
        if entry.value is not None:
            return Got(self._decode(entry.value), True, entry.token)
        answer = self._source.query(
            sql, values, of=of, include_token=True, compare_token=entry.token
        )
        raw = self._encode(self._make(answer))
        put = (
            held is not None
            and answer.token is not None
            and self._admits(key, entry, answer)
            and self._cache.put([Write(name, Entry(answer.token, raw).pack(), held.version)])[0]
        )
        # By way of bytes, as a hit would give it: what an application sees must not depend on that.
        return Got(self._decode(raw), False, answer.token, put)

    def _admits(self, key: str, entry: Entry, answer: Answer) -> bool:
        if answer.token is None or answer.bound is None:
            return False
        if entry.token is not None and not answer.fresher:
            return False
        # The file last: whoever reads it before new shards are written to does not put what old ones say.
        return admit(
            self._cache, key, answer.token, answer.bound, self._source
        ) and self._source.serves(answer.token.shard)


def encode_json(value: Any) -> bytes:
    """Rows as JSON; times in ISO form, decimals as texts, bytes in hex."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: object) -> object:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal() | timedelta():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case set() | frozenset():
            return sorted(value)
    return str(value)
