"""Keyspaces: a database cut into shards by key range, and the file that describes one."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from truecopy.model.endpoint import mask_url
from truecopy.model.errors import UsageError


@dataclass(frozen=True)
class KeyRange:
    """Keyspace ids from `low`, included, to `high`, excluded; an empty `high` is the end of all.

    Bytes are compared from the left, as if zeros followed without end: `40` is the same bound as
    `4000`. They are kept without those zeros, so that equal ranges are equal values.
    """

    low: bytes = b""
    high: bytes = b""

    def __post_init__(self) -> None:
        low, high = self.low.rstrip(b"\0"), self.high.rstrip(b"\0")
        if self.high and low >= high:
            raise UsageError(f"the key range {self.low.hex()}-{self.high.hex()} is empty")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __str__(self) -> str:
        return f"{self.low.hex()}-{self.high.hex()}"

    def contains(self, keyspace_id: bytes) -> bool:
        value = keyspace_id.rstrip(b"\0")
        return self.low <= value and (not self.high or value < self.high)

    def covers(self, other: KeyRange) -> bool:
        ends_later = not self.high or (other.high != b"" and self.high >= other.high)
        return self.low <= other.low and ends_later

    def overlaps(self, other: KeyRange) -> bool:
        begins_before_end = not other.high or self.low < other.high
        return begins_before_end and (not self.high or other.low < self.high)


WHOLE = KeyRange()


@dataclass(frozen=True)
class Shard:
    """A key range and the servers that hold its rows.

    Attributes:
        servers: URLs as they were written, `${NAME}` included. Not shown: they may hold passwords.
        serving: Whether this shard takes writes now; others wait for a reshard, or are left from one.
    """

    key_range: KeyRange
    servers: tuple[str, ...] = field(repr=False)
    serving: bool = True

    @property
    def name(self) -> str:
        """The name that rows and tokens carry."""
        return str(self.key_range)


@dataclass(frozen=True)
class Sharding:
    """How a row of a table finds its shard: a column, and the function that makes its keyspace id."""

    column: str
    function: str


@dataclass(frozen=True)
class Keyspace:
    """Shards, of which those that serve tile all keyspace ids, and the sharding of each table."""

    name: str
    shards: tuple[Shard, ...]
    sharding: Mapping[str, Sharding] = field(default_factory=dict)

    @property
    def serving(self) -> tuple[Shard, ...]:
        return tuple(shard for shard in self.shards if shard.serving)


def parse_key_range(text: str) -> KeyRange:
    """Reads `-40`, `40-80`, `80-` or `-`."""
    match = re.fullmatch(r"((?:[0-9a-f]{2})*)-((?:[0-9a-f]{2})*)", text, re.IGNORECASE)
    if match is None:
        raise UsageError(
            f"not a key range: {text!r}; it is LOW-HIGH in pairs of hex digits, as -40, 40-80 or 80-"
        )
    return KeyRange(bytes.fromhex(match[1]), bytes.fromhex(match[2]))


def partition_of(ranges: Iterable[KeyRange], whole: KeyRange = WHOLE) -> bool:
    """Whether the ranges tile the whole one, without a gap or an overlap."""
    return not _flaw(ranges, whole)


def keyspace_id(function: str, text: str) -> bytes:
    """The keyspace id of a value, given as canonical text, by a function of `FUNCTIONS`."""
    return FUNCTIONS[function](text)


def parse_keyspace(document: object) -> Keyspace:
    """The keyspace that a YAML mapping describes, directly or under `source:` of a task file."""
    keyspace = parse_shards(document)
    if flaw := _flaw((shard.key_range for shard in keyspace.serving), WHOLE):
        raise UsageError(f"the serving shards of {keyspace.name} do not fit together: {flaw}")
    return keyspace


def parse_shards(document: object) -> Keyspace:
    """The same of some shards, which need not tile all keyspace ids: those that rows are written to."""
    whole = _mapping(document, "the keyspace file")
    plain = _mapping(whole["source"], "source") if "source" in whole else whole
    _refuse_unknown(plain, ("keyspace", "shards", "sharding"), "the keyspace file")
    name = plain.get("keyspace")
    if not isinstance(name, str) or not name:
        raise UsageError("the keyspace file names no keyspace; write keyspace: NAME")
    shards = _mapping(plain.get("shards"), "shards")
    keyspace = Keyspace(
        name,
        tuple(_shard(key, shard) for key, shard in shards.items()),
        {
            str(table): _sharding(f"sharding: {table}", described)
            for table, described in _mapping(plain.get("sharding", {}), "sharding").items()
        },
    )
    names = [shard.name for shard in keyspace.shards]
    for one in names:
        if names.count(one) > 1:
            raise UsageError(f"two shards of {name} have the key range {one}")
    return keyspace


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]


def _numeric(text: str) -> bytes:
    if not re.fullmatch(r"0|[1-9][0-9]{0,19}", text) or int(text) >= 2**64:
        raise UsageError(
            f"{text!r} has no numeric keyspace id: it is not an integer from 0 to 2^64-1"
        )
    return int(text).to_bytes(8, "big")


def _binary(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(
            f"{text!r} has no binary keyspace id: the column is not a binary one; use text"
        ) from None


FUNCTIONS: Mapping[str, Callable[[str], bytes]] = {
    "hash": _hash,
    "numeric": _numeric,
    "binary": _binary,
    "text": str.encode,
}
"""From a value's canonical text to its keyspace id. `hash` spreads any values evenly; the others keep
their order, for shards that are ranges of the values themselves."""


def _flaw(ranges: Iterable[KeyRange], whole: KeyRange) -> str:
    """What keeps the ranges from tiling the whole one; empty when nothing does."""
    ordered = sorted(ranges, key=lambda one: one.low)
    if not ordered:
        return f"nothing covers {whole}"
    for one in ordered:
        if not whole.covers(one):
            return f"{one} reaches out of {whole}"
    for one, following in pairwise(ordered):
        if one.overlaps(following):
            return f"{one} and {following} overlap"
        if one.high != following.low:
            return f"nothing covers {KeyRange(one.high, following.low)}"
    if ordered[0].low != whole.low:
        return f"nothing covers {KeyRange(whole.low, ordered[0].low)}"
    if ordered[-1].high != whole.high:
        return f"nothing covers {KeyRange(ordered[-1].high, whole.high)}"
    return ""


def _shard(name: object, described: object) -> Shard:
    if not isinstance(name, str):
        # YAML reads -80 as a number, and -010 as another one.
        raise UsageError(f'the shard {name} must be quoted: write its key range as "-80"')
    where = f"the shard {name}"
    plain = _mapping(described, where)
    _refuse_unknown(plain, ("servers", "serving"), where)
    servers = plain.get("servers")
    if not isinstance(servers, list) or not servers:
        raise UsageError(f"{where} has no servers; write servers: [URL, …]")
    for server in servers:
        if not isinstance(server, str) or "://" not in server:
            shown = mask_url(server) if isinstance(server, str) else type(server).__name__
            raise UsageError(f"{where} has a server that is no database URL: {shown}")
    serving = plain.get("serving", True)
    if not isinstance(serving, bool):
        raise UsageError(f"{where}: serving is true or false, not {serving!r}")
    return Shard(parse_key_range(name), tuple(servers), serving)


def _sharding(where: str, described: object) -> Sharding:
    plain = _mapping(described, where)
    _refuse_unknown(plain, ("column", "function"), where)
    column, function = plain.get("column"), plain.get("function")
    if not isinstance(column, str) or not isinstance(function, str):
        raise UsageError(f"{where}: write column: NAME, function: {' | '.join(FUNCTIONS)}")
    if function not in FUNCTIONS:
        raise UsageError(f"{where}: unknown function {function}{_hint(function, FUNCTIONS)}")
    return Sharding(column, function)


def _mapping(plain: object, where: str) -> Mapping[object, object]:
    if not isinstance(plain, Mapping):
        raise UsageError(f"{where} must be a mapping, with lines of the form NAME: VALUE")
    return plain


def _refuse_unknown(plain: Mapping[object, object], known: Collection[str], where: str) -> None:
    for key in plain:
        if key not in known:
            raise UsageError(f"{where} has an unknown key {key}{_hint(str(key), known)}")


def _hint(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"
