"""Text of the binary log, which is in the column's character set, as UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Callable

UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})

_CODECS = {
    "latin1": "cp1252",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}


def to_utf8(charset: str) -> Callable[[bytes], bytes] | None:
    """A function from text in the character set to UTF-8; None when there is no exact one."""
    if charset == "latin1":
        return _latin1
    name = _CODECS.get(charset)
    if name is None:
        return None
    decode = codecs.getdecoder(name)
    return lambda raw: decode(raw, "strict")[0].encode()


# The server's latin1 is cp1252, with control characters where that has holes.
_LATIN1 = "".join(
    bytes([n]).decode("cp1252") if n not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(n)
    for n in range(256)
)


def _latin1(raw: bytes) -> bytes:
    return codecs.charmap_decode(raw, "strict", _LATIN1)[0].encode()
