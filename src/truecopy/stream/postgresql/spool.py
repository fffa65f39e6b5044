"""Segments: the log of the slot, kept in files until its readers are done with it.

A segment `NUMBER.changes` holds whole transactions: a `BEGIN` frame, then the transaction's messages
as pgoutput sent them, each behind its length. `NUMBER.index` holds a line per group of transactions,
written when the group is durable: what no line speaks of is not there. NUMBER counts the bytes of
all segments before, so that one number names a place in the spool, and segments follow each other
without a list. Definitions of tables are files of their own, named by their content; a frame inside a
transaction says from where on one is in force.
"""

from __future__ import annotations

import json
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from truecopy.model.errors import CannotFinish
from truecopy.stream.postgresql.folder import Folder
from truecopy.stream.postgresql.lsn import lsn_text

LENGTH = struct.Struct(">I")
BEGIN = struct.Struct(">cIQQqQ")
"""Kind, transaction id, LSN of the commit, LSN behind it, time of the commit, bytes that follow."""
BEGIN_FRAME = struct.Struct(">IcIQQqQ")
DEFINE = struct.Struct(">cI16s")
"""Kind, object id of the table, name of the definition from here on."""
BEGIN_KIND, DEFINE_KIND = b"B", b"d"

CHANGES, INDEX, RELATION, STREAM = ".changes", ".index", ".relation", "stream.json"
_WINDOW = 256 << 10


@dataclass(frozen=True)
class Boundary:
    """A place between two transactions.

    Attributes:
        written: Bytes of the spool before it.
        lsn: Behind the last transaction before it.
        at: When that was committed; microseconds since the epoch.
        latest: The latest commit before it: commit times run backwards now and then.
    """

    written: int
    lsn: int
    at: int
    latest: int


@dataclass(frozen=True)
class Transaction:
    """The head of a transaction in the spool."""

    xid: int
    commit_lsn: int
    end_lsn: int
    at: int
    start: int
    end: int

    @property
    def position(self) -> str:
        """Where the stream stands behind it."""
        return lsn_text(self.end_lsn)


@dataclass(frozen=True)
class Group:
    """Transactions that follow each other in one segment, and became durable together.

    Attributes:
        segment: The segment's number.
        start, end: The first and last boundary.
        relations: Definitions that its transactions brought; such a transaction is a group of its own.
        changes: One of them replaced another definition of the same table.
    """

    segment: int
    start: Boundary
    end: Boundary
    relations: Mapping[int, str] = field(default_factory=dict)
    changes: bool = False


def segment_name(number: int, suffix: str) -> str:
    """Numbers are padded, so that names sort as numbers do."""
    return f"{number:020d}{suffix}"


def index_line(plain: Mapping[str, Any]) -> bytes:
    """A line that shows whether it was written to its end."""
    text = json.dumps(plain, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()


def head_line(start: Boundary, relations: Mapping[int, str]) -> bytes:
    """The first line of an index: where its segment starts, and the definitions in force there."""
    return index_line({"head": _plain(start), "relations": relations})


def group_line(group: Group) -> bytes:
    """The line of a group."""
    plain: dict[str, Any] = {"end": _plain(group.end)}
    if group.relations:
        plain |= {"relations": group.relations, "changes": group.changes}
    return index_line(plain)


@dataclass
class _Segment:
    number: int
    relations: dict[int, str]
    read: int
    """Bytes of the index that were understood."""


class Spool:
    """The segments of a folder, as their indexes tell of them; reads what others write."""

    def __init__(self, folder: Folder, origin: Boundary) -> None:
        self.folder = folder
        self._origin = origin
        self.reload()

    def reload(self) -> None:
        """Reads everything anew, since another process may have removed segments."""
        self._segments: list[_Segment] = []
        self._groups: list[Group] = []
        self._ends: list[int] = []
        self.start = self.end = self._origin
        for name in self.folder.names(INDEX):
            self._open(int(name.removesuffix(INDEX)))
        if self._segments:
            self.refresh()

    def refresh(self) -> bool:
        """Takes in what was added; says whether anything was."""
        before = self.end.written
        if self._segments:
            self._read_on()
        while self._open(self.end.written):
            pass
        return self.end.written > before

    def index_size(self) -> int:
        """How much of the last index is whole."""
        return self._segments[-1].read if self._segments else 0

    @property
    def last_segment(self) -> int | None:
        return self._segments[-1].number if self._segments else None

    def segments(self) -> list[tuple[int, int]]:
        """Number and end of each segment, in order."""
        numbers = [segment.number for segment in self._segments]
        return list(pairwise([*numbers, self.end.written])) if numbers else []

    def forget(self, number: int) -> None:
        """Removes the oldest segments, up to the one of this number; its index goes first."""
        while len(self._segments) > 1 and self._segments[0].number <= number:
            oldest = self._segments.pop(0)
            self.folder.remove(segment_name(oldest.number, INDEX))
            self.folder.remove(segment_name(oldest.number, CHANGES))
            kept = bisect_right(self._ends, self._segments[0].number)
            del self._groups[:kept], self._ends[:kept]
        if self._groups:
            self.start = self._groups[0].start

    def relations_at(self, written: int) -> dict[int, str]:
        """The definitions in force at a boundary, by object id."""
        segment = next((s for s in reversed(self._segments) if s.number <= written), None)
        if segment is None:
            return {}
        found = dict(segment.relations)
        for group in self._groups_after(segment.number):
            if group.end.written > written:
                break
            found |= group.relations
        return found

    def relations_between(self, start: int, end: int) -> set[str]:
        """The definitions that transactions of a range brought."""
        found: set[str] = set()
        for group in self._groups_after(start):
            if group.start.written >= end:
                break
            found |= set(group.relations.values())
        return found

    def furthest(self, start: int, limit: int) -> Boundary | None:
        """The last boundary up to `limit`, at least one transaction on; no change of a definition between."""
        found = None
        for group in self._groups_after(start):
            if found and group.changes:
                break
            if group.end.written <= limit:
                found = group.end
                continue
            for boundary in self._boundaries(group, start):
                if found and boundary.written > limit:
                    break
                found = boundary
            break
        return found

    def at_or_after(self, written: int) -> Boundary:
        """The first boundary that is not before a place."""
        for group in self._groups_after(written - 1):
            if group.start.written >= written:
                return group.start
            for boundary in self._boundaries(group, group.start.written):
                if boundary.written >= written:
                    return boundary
        return self.end

    def behind(self, lsn: int) -> Boundary:
        """The boundary behind every transaction that ends at or before an LSN."""
        at = bisect_right(self._groups, lsn, key=lambda group: group.end.lsn)
        if at == len(self._groups):
            return self.end
        found = self._groups[at].start
        for boundary in self._boundaries(self._groups[at], found.written):
            if boundary.lsn > lsn:
                break
            found = boundary
        return found

    def before_time(self, at: int) -> Boundary:
        """The last boundary before every transaction that was committed at a moment or later."""
        place = bisect_right(self._groups, at - 1, key=lambda group: group.end.latest)
        if place == len(self._groups):
            return self.end
        found = self._groups[place].start
        for boundary in self._boundaries(self._groups[place], found.written):
            if boundary.latest >= at:
                break
            found = boundary
        return found

    def transactions(self, start: int) -> Iterator[Transaction]:
        """The heads of transactions from a boundary on."""
        for group in self._groups_after(start):
            yield from self._heads(group, start)

    def pieces(self, start: int, end: int) -> list[tuple[str, int, int]]:
        """A range as file, offset and offset."""
        return [
            (segment_name(number, CHANGES), max(start, number) - number, min(end, last) - number)
            for number, last in self.segments()
            if number < end and last > start
        ]

    def _groups_after(self, written: int) -> Iterator[Group]:
        for at in range(bisect_right(self._ends, written), len(self._groups)):
            yield self._groups[at]

    def _boundaries(self, group: Group, start: int) -> Iterator[Boundary]:
        """The boundaries behind each transaction of a group that starts at `start` or later."""
        latest = group.start.latest
        for head in self._heads(group, group.start.written):
            latest = max(latest, head.at)
            if head.start >= start:
                yield Boundary(head.end, head.end_lsn, head.at, latest)

    def _heads(self, group: Group, start: int) -> Iterator[Transaction]:
        place = max(start, group.start.written)
        base = group.segment
        try:
            with self.folder.open(segment_name(base, CHANGES)) as file:
                window, first = b"", place
                while place < group.end.written:
                    if place + BEGIN_FRAME.size > first + len(window):
                        file.seek(place - base)
                        window, first = bytes(file.read(_WINDOW)), place
                    _, kind, xid, commit, end, at, size = BEGIN_FRAME.unpack_from(
                        window, place - first
                    )
                    if kind != BEGIN_KIND:
                        raise CannotFinish(
                            f"the segment {base} in {self.folder.where} is damaged at {place - base}"
                        )
                    after = place + BEGIN_FRAME.size + size
                    yield Transaction(xid, commit, end, at, place, after)
                    place = after
        except FileNotFoundError:
            raise self.folder.lacks(segment_name(base, CHANGES)) from None

    def _open(self, number: int) -> bool:
        """Takes in the index of a segment, which follows on those that are known."""
        if self._segments and number <= self._segments[-1].number:
            return False
        data = self.folder.read(segment_name(number, INDEX))
        lines, read = _whole_lines(data or b"")
        if not lines:
            return False
        if self._segments and number != self.end.written:
            raise CannotFinish(
                f"the work folder {self.folder.where} lacks the segment {self.end.written}: drop the"
                " stream, and start anew from a copy"
            )
        head = _boundary(lines[0]["head"])
        self._segments.append(_Segment(number, _relations(lines[0]), read))
        if len(self._segments) == 1:
            self.start = head
        self.end = head
        self._add(lines[1:])
        return True

    def _read_on(self) -> None:
        segment = self._segments[-1]
        data = self.folder.read(segment_name(segment.number, INDEX), segment.read)
        lines, read = _whole_lines(data or b"")
        segment.read += read
        self._add(lines)

    def _add(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            end = _boundary(line["end"])
            number = self._segments[-1].number
            changes = bool(line.get("changes"))
            self._groups.append(Group(number, self.end, end, _relations(line), changes))
            self._ends.append(end.written)
            self.end = end


def _whole_lines(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The lines up to the first that is torn, and their bytes."""
    found, read = [], 0
    for line in data.splitlines(keepends=True):
        checksum, _, text = line.partition(b" ")
        if not text.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
            break
        found.append(json.loads(text))
        read += len(line)
    return found, read


def _plain(boundary: Boundary) -> list[int]:
    return [boundary.written, boundary.lsn, boundary.at, boundary.latest]


def _boundary(plain: list[int]) -> Boundary:
    return Boundary(*plain)


def _relations(line: Mapping[str, Any]) -> dict[int, str]:
    return {int(oid): name for oid, name in line.get("relations", {}).items()}
