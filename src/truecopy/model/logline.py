"""A line of a log as a JSON document: when, how bad, what, and whatever else is known."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]+@")
"""Of a URL in a message of somebody else's."""


def log_line(at: float, level: str, message: str, **fields: object) -> str:
    """The document; `at` in seconds since 1970."""
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    line = {"at": moment, "level": level, "message": message, **fields}
    return _PASSWORD.sub(r"\1***@", json.dumps(line, ensure_ascii=False))
