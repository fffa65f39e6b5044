"""What a consumer asks of a stream, as plain values: from the command line, from Python, from Spark's options."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import WHOLE, KeyRange, Keyspace, Shard, parse_key_range
from truecopy.model.token import EventToken, KeyspacePosition, parse_any
from truecopy.stream.keyspace_file import load_keyspace

# Parts are read in small batches whatever this is; larger ones get through a backlog sooner.
DEFAULT_MAX_BYTES = 256 << 20
ENGINE_SETTINGS = (
    "annotations",
    "cascades",
    "cursor",
    "cut",
    "gaps",
    "hold_warning_bytes",
    "keep_log",
    "key",
    "longest_transaction",
    "partitions",
    "publication",
    "redefinitions",
    "retain_bytes",
    "server_ids",
    "settle",
    "slot",
    "work",
)


@dataclass(frozen=True)
class Request:
    """One stream.

    Attributes:
        endpoint: A database's URL, or the path of a keyspace file.
        shard: The name that rows and tokens carry, for an endpoint that is no keyspace; by default
            the database's name.
        tables: Names or patterns; empty for all.
        key_range: Of a keyspace: whole shards as they are, others row by row.
        keys_only: Leave `before` and `after` out.
        before: Whether `before` is wanted by a consumer within; else a log may leave it out.
        max_bytes: The most that one batch reads of the logs; the least is one transaction.
        wait: Seconds to wait for news before an idle stream answers.
        parts: Spark partitions per shard and batch.
        skew: Seconds that a shard may be ahead of the slowest one.
        max_lag: Seconds behind its source at which a server of a shard is left for another one.
        heartbeat: Seconds between heartbeats of an idle stream; 0 for none.
        stop_on_reshard: End when the serving shards change, instead of following them.
        releases: Whether the source lets go of the log as far as Spark has taken it; False where the consumer
            only holds what it took, and releases by itself what it has stored.
        settings: Options of one engine.
    """

    endpoint: str = field(repr=False)
    shard: str = ""
    tables: tuple[str, ...] = ()
    key_range: KeyRange = WHOLE
    keys_only: bool = False
    before: bool = True
    max_bytes: int = DEFAULT_MAX_BYTES
    wait: float = 0.5
    parts: int = 0
    skew: float = 2.0
    max_lag: float = 60.0
    heartbeat: float = 0.0
    stop_on_reshard: bool = False
    releases: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_keyspace(self) -> bool:
        return "://" not in self.endpoint

    def keyspace(self) -> Keyspace:
        """The keyspace, read anew each time; an endpoint is one of a single shard."""
        if self.is_keyspace:
            return load_keyspace(self.endpoint)
        return Keyspace(self.name, (Shard(WHOLE, (self.endpoint,)),))

    @property
    def name(self) -> str:
        """The name of the only shard of an endpoint."""
        return self.shard or shard_name(parse_endpoint(self.endpoint))


def shard_name(endpoint: Endpoint) -> str:
    """What an endpoint's tokens call it: its database, without the rest of a path."""
    last = endpoint.path.rstrip("/").rpartition("/")[2]
    return re.sub(r"\s+", "_", last) or endpoint.host or endpoint.scheme


def request_from_options(options: Mapping[str, str]) -> Request:
    """Reads Spark's options; an unknown one is refused, since it would be ignored in silence."""
    given = {name.lower(): value for name, value in options.items()}
    endpoint = given.pop("endpoint", "") or given.pop("keyspace", "")
    if not endpoint:
        raise UsageError(
            "truecopy.changes needs the option endpoint: a database URL or a keyspace file"
        )
    for name in ("from", "until", "path"):
        given.pop(name, None)
    request = Request(endpoint)
    settings = {name: given.pop(name) for name in ENGINE_SETTINGS if name in given}
    changes: dict[str, object] = {"settings": settings}
    for name, read in _READERS.items():
        if name in given:
            changes[name] = _value(name, given.pop(name), read)
    if given:
        unknown = next(iter(given))
        known = [*_READERS, *ENGINE_SETTINGS, "endpoint", "from", "until"]
        near = difflib.get_close_matches(unknown, known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
        raise UsageError(f"truecopy.changes has no option {unknown}{hint}")
    return replace(request, **changes)  # type: ignore[arg-type]


def _value(name: str, text: str, read: object) -> object:
    try:
        return read(text)  # type: ignore[operator]
    except ValueError:
        raise UsageError(f"the option {name} of truecopy.changes cannot be {text!r}") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _boolean(text: str) -> bool:
    return (
        {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _no()
    )


def _no() -> bool:
    raise ValueError


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_bytes(text: str) -> int:
    """A size such as 64m."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.strip().lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2]]


_READERS = {
    "shard": str,
    "tables": _names,
    "key_range": parse_key_range,
    "keys_only": _boolean,
    "max_bytes": parse_bytes,
    "wait": float,
    "parts": int,
    "skew": float,
    "max_lag": float,
    "heartbeat": float,
    "stop_on_reshard": _boolean,
    "releases": _boolean,
}

Point = str | int | EventToken | KeyspacePosition
"""Where to start or end: a word, a time in microseconds, or a token."""


def parse_point(text: str, words: tuple[str, ...]) -> Point:
    """Reads `--from` and `--until`: one of the words, a token, or a time."""
    text = text.strip()
    if text in words:
        return text
    if text.startswith("tc"):
        return parse_any(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no point of a stream: write {', '.join(words)}, a token, or a time such as"
            " 2026-01-31T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000_000)
