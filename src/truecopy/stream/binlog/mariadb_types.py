"""Types of MariaDB alone: UUID, INET4, INET6 and compressed columns."""

from __future__ import annotations

import socket
import struct
import zlib
from binascii import hexlify


def uuid_text(raw: bytes) -> bytes:
    """A UUID; those of the older versions are kept with their parts turned around, to be sorted by time."""
    raw = raw.ljust(16, b"\0")
    # The same marks by which the server tells: a variant where the turned form has it, and a version.
    if raw[6] & 0x80 and 0 < raw[8] < 0x80:
        raw = raw[12:16] + raw[10:12] + raw[8:10] + raw[6:8] + raw[0:6]
    digits = hexlify(raw)
    return b"-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def inet4_text(raw: bytes) -> bytes:
    """An address as four numbers."""
    return socket.inet_ntoa(raw.ljust(4, b"\0")).encode()


def inet6_text(raw: bytes) -> bytes:
    """An address as the server prints it: unlike inet_ntop it shortens a single zero, too."""
    words = struct.unpack(">8H", raw.ljust(16, b"\0"))
    gap, size = -1, 0
    for start in range(8):
        length = 0
        while start + length < 8 and not words[start + length]:
            length += 1
        if length > size:
            gap, size = start, length
    parts = [b"%x" % word for word in words]
    if gap == 0 and (size == 6 or (size == 5 and words[5] == 0xFFFF)):
        parts[6:] = [inet4_text(raw[12:])]
    if not size:
        return b":".join(parts)
    return b":".join(parts[:gap]) + b"::" + b":".join(parts[gap + size :])


def uncompressed(raw: bytes) -> bytes:
    """A value of a compressed column: a byte that says how, the length, and zlib's bytes."""
    if not raw:
        return b""
    method, length_bytes = raw[0] >> 4, raw[0] & 7
    if method == 0:
        return raw[1:]
    if method != 8:
        raise ValueError(f"a value is compressed in a way ({method}) that is not known")
    bits = -zlib.MAX_WBITS if raw[0] & 8 else zlib.MAX_WBITS
    length = int.from_bytes(raw[1 : 1 + length_bytes], "big")
    try:
        value = zlib.decompress(raw[1 + length_bytes :], bits)
    except zlib.error as error:
        raise ValueError(f"a compressed value cannot be read: {error}") from None
    if len(value) != length:
        raise ValueError("a compressed value has another length than it says")
    return value
