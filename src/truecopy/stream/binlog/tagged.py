"""The GTID event of MySQL 8.4 and later for transactions whose GTID has a tag.

Its fields are self-describing: numbers whose first byte tells, by its lowest ones, how many bytes
follow; then pairs of a field's number and its value.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from truecopy.model.errors import CannotFinish


class TaggedGtid(NamedTuple):
    """What such an event says."""

    uuid: str
    tag: str
    number: int
    committed_at: int


def parse_tagged_gtid(buf: bytes, start: int, end: int) -> TaggedGtid:
    """Reads the fields up to the commit time."""
    at = start
    for _ in range(3):  # version of the format, size, last field that may not be ignored
        _, at = _unsigned(buf, at)
    uuid, tag, number, committed_at = "", "", 0, 0
    while at < end:
        field, at = _unsigned(buf, at)
        if field == 0:  # flags
            _, at = _unsigned(buf, at)
        elif field == 1:
            octets = []
            for _ in range(16):
                octet, at = _unsigned(buf, at)
                octets.append(octet)
            uuid = str(UUID(bytes=bytes(octets)))
        elif field == 2:
            number, at = _signed(buf, at)
        elif field == 3:
            length, at = _unsigned(buf, at)
            tag, at = buf[at : at + length].decode(), at + length
        elif field in (4, 5):  # logical clock
            _, at = _signed(buf, at)
        elif field == 6:
            committed_at, at = _unsigned(buf, at)
            break
        else:
            break
    if not uuid or not number:
        raise CannotFinish("a GTID event with a tag cannot be read: its format is not known")
    return TaggedGtid(uuid, tag, number, committed_at)


def _unsigned(buf: bytes, at: int) -> tuple[int, int]:
    first = buf[at]
    more = 0
    while more < 8 and first >> more & 1:
        more += 1
    if more == 8:
        return int.from_bytes(buf[at + 1 : at + 9], "little"), at + 9
    whole = int.from_bytes(buf[at : at + 1 + more], "little")
    return whole >> (more + 1), at + 1 + more


def _signed(buf: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(buf, at)
    return (-(value + 1) // 2 if value & 1 else value // 2), at
