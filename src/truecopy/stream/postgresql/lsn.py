"""Positions in PostgreSQL's log, and times as its protocol counts them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from truecopy.model.errors import UsageError

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_MILLENNIUM = 946_684_800_000_000
"""Microseconds from the Unix epoch to PostgreSQL's, the first of January 2000."""


def parse_lsn(text: str) -> int:
    """`16/B374D848` as a number."""
    match = _LSN.fullmatch(text)
    if not match:
        raise UsageError(f"{text!r} is not a position of PostgreSQL's log, such as 16/B374D848")
    return int(match[1], 16) << 32 | int(match[2], 16)


def lsn_text(lsn: int) -> str:
    """A number as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def from_server_time(microseconds: int) -> int:
    """Microseconds since the Unix epoch."""
    return microseconds + _MILLENNIUM


def to_server_time(microseconds: int) -> int:
    """Microseconds since the first of January 2000."""
    return microseconds - _MILLENNIUM


def time_text(microseconds: int) -> str:
    """A moment as messages show it."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(sep=" ", timespec="seconds")
