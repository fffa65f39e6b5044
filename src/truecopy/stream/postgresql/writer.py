"""Appends transactions to the spool, and makes them durable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from truecopy.model.errors import CannotFinish
from truecopy.stream.postgresql.folder import Folder, sync_folder
from truecopy.stream.postgresql.spool import (
    BEGIN_FRAME,
    BEGIN_KIND,
    CHANGES,
    DEFINE,
    DEFINE_KIND,
    INDEX,
    LENGTH,
    Boundary,
    Group,
    Spool,
    group_line,
    head_line,
    segment_name,
)

SEGMENT_BYTES = 8 << 20
GROUP_BYTES = 1 << 20
BUFFER_BYTES = 1 << 20
_ACTIVE = "active.changes"


class SpoolWriter:
    """The one writer of a spool. A transaction goes to the disk while it arrives, however long it is.

    Attributes:
        end: The boundary up to which everything is durable.
        relations: The definitions in force, by object id, those of the open transaction included.
    """

    def __init__(self, folder: Folder, origin: Boundary, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        spool = Spool(folder, origin)
        self.end = self._last = self._group_start = spool.end
        self.relations = spool.relations_at(spool.end.written)
        self._buffer = bytearray()
        # Definitions in force behind the last whole transaction, and at the start of the segment.
        self._settled = self.relations
        self._head = (self.end, self._settled)
        self._file = self._index = -1
        self._base = self._size = 0
        self._pending: list[Group] = []
        # Of the open transaction.
        self._open: tuple[int, int, int] | None = None
        self._start = 0
        self._rows = 0
        self._defined: dict[int, str] = {}
        self._changes = False
        self._recover(spool)

    def begin(self, xid: int, commit_lsn: int, at: int) -> None:
        self._open = (xid, commit_lsn, at)
        self._start = self._last.written
        self._rows = 0
        self._defined, self._changes = {}, False
        self._buffer += bytes(BEGIN_FRAME.size)

    def add(self, message: bytes | memoryview) -> None:
        """A change of the open transaction."""
        self._buffer += LENGTH.pack(len(message))
        self._buffer += message
        self._rows += 1

    def annotate(self, message: bytes) -> None:
        """A message that says something of the open transaction."""
        self._buffer += LENGTH.pack(len(message)) + message

    def define(self, oid: int, name: str, *, changes: bool) -> None:
        """From here on the table `oid` has the definition `name`."""
        self._buffer += LENGTH.pack(DEFINE.size) + DEFINE.pack(DEFINE_KIND, oid, name.encode())
        self._defined[oid] = name
        self._changes |= changes
        self.relations = {**self.relations, oid: name}

    def commit(self, end_lsn: int) -> None:
        """Ends the open transaction; one without a change leaves no trace."""
        assert self._open is not None
        if not self._rows and not self._defined:
            self.abandon()
            return
        xid, commit_lsn, at = self._open
        end = self._base + self._size + len(self._buffer)
        size = end - self._start - BEGIN_FRAME.size
        frame = BEGIN_FRAME.pack(
            BEGIN_FRAME.size - LENGTH.size, BEGIN_KIND, xid, commit_lsn, end_lsn, at, size
        )
        self._overwrite(frame)
        before = self._last
        self._last = Boundary(end, end_lsn, at, max(at, before.latest))
        self._open = None
        if self._defined:
            self._settled = self.relations
            self._close_group(before)
            self._close_group(self._last, self._defined, self._changes)
        elif end - self._group_start.written >= GROUP_BYTES:
            self._close_group(self._last)

    def abandon(self) -> None:
        """Forgets the open transaction: it will be sent again, from its start."""
        if self._open is None:
            return
        self._open = None
        self.relations = self._settled
        place = self._start - self._base
        if place >= self._size:
            del self._buffer[place - self._size :]
        else:
            self._buffer.clear()
            self._size = place
            os.ftruncate(self._file, place)

    @property
    def unwritten(self) -> int:
        """Bytes in memory."""
        return len(self._buffer)

    @property
    def undurable(self) -> int:
        """Bytes of whole transactions that could still be lost."""
        return self._last.written - self.end.written

    @property
    def last_lsn(self) -> int:
        """Behind the last whole transaction, durable or not."""
        return self._last.lsn

    def write(self) -> None:
        """Hands what is in memory to the disk."""
        if self._file < 0:
            self._start_segment()
        data = memoryview(bytes(self._buffer))
        self._buffer.clear()
        while data:
            done = os.pwrite(self._file, data, self._size)
            self._size += done
            data = data[done:]

    def flush(self) -> None:
        """Makes every whole transaction durable, and tells the readers of them."""
        if self._open is not None and not self._folder.local:
            return  # a file that is written whole holds whole transactions
        self._close_group(self._last)
        if not self._pending:
            return
        self.write()
        if self._folder.local:
            os.fsync(self._file)
            os.write(self._index, b"".join(map(group_line, self._pending)))
            os.fsync(self._index)
        else:
            self._publish()
        self.end = self._last
        self._pending = []
        if self._open is None and (self._size >= SEGMENT_BYTES or not self._folder.local):
            self._end_segment()

    def close(self) -> None:
        """Lets go of the files; what is not durable is forgotten."""
        self._end_segment()

    def _close_group(
        self, end: Boundary, relations: Mapping[int, str] | None = None, changes: bool = False
    ) -> None:
        if end.written > self._group_start.written:
            self._pending.append(
                Group(self._base, self._group_start, end, relations or {}, changes)
            )
            self._group_start = end

    def _overwrite(self, frame: bytes) -> None:
        place = self._start - self._base
        if place >= self._size:
            at = place - self._size
            self._buffer[at : at + len(frame)] = frame
        else:
            os.pwrite(self._file, frame, place)

    def _recover(self, spool: Spool) -> None:
        """Cuts off what was being written when the last writer died."""
        self._end_segment()
        known = {name.removesuffix(INDEX) for name in self._folder.names(INDEX)}
        for name in self._folder.names(CHANGES):
            if name.removesuffix(CHANGES) not in known:
                self._folder.remove(name)
        number = spool.last_segment
        if number is None or not self._folder.local:
            return
        size = self.end.written - number
        changes = self._folder.path(segment_name(number, CHANGES))
        if not changes.exists() or changes.stat().st_size < size:
            raise CannotFinish(
                f"{changes} is shorter than its index says: the folder was damaged;"
                " drop the stream and start anew"
            )
        if size >= SEGMENT_BYTES:
            return
        self._file = os.open(changes, os.O_RDWR)
        os.ftruncate(self._file, size)
        self._index = os.open(
            self._folder.path(segment_name(number, INDEX)), os.O_WRONLY | os.O_APPEND
        )
        os.ftruncate(self._index, spool.index_size())
        self._base, self._size = number, size

    def _start_segment(self) -> None:
        create = os.O_CREAT | os.O_TRUNC
        if not self._folder.local:
            self._file = os.open(self._scratch / _ACTIVE, os.O_RDWR | create, 0o600)
            return
        changes = self._folder.path(segment_name(self._base, CHANGES))
        self._file = os.open(changes, os.O_RDWR | create, 0o600)
        index = self._folder.path(segment_name(self._base, INDEX))
        self._index = os.open(index, os.O_WRONLY | os.O_APPEND | create, 0o600)
        os.write(self._index, head_line(*self._head))
        sync_folder(Path(self._folder.root))

    def _end_segment(self) -> None:
        for handle in (self._file, self._index):
            if handle >= 0:
                os.close(handle)
        self._file = self._index = -1
        self._base, self._size = self._last.written, 0
        self._head = (self._last, self._settled)

    def _publish(self) -> None:
        """The index comes last: a segment without one is not there."""
        self._folder.upload(self._scratch / _ACTIVE, segment_name(self._base, CHANGES))
        index = head_line(*self._head) + b"".join(map(group_line, self._pending))
        self._folder.write(segment_name(self._base, INDEX), index)
