"""Changes from files of events (`events:///folder`): JSON lines in Debezium's envelope, in a folder that grows.

Files are read in the order of their names, and lines may be appended to the last one; a line is read when
its end is written. A position is the name of a file and a byte of its (unpacked) text. The order of the lines is
that of the log they came from, but where transactions begin and end they do not say (`Level.TABLE`).
"""

from __future__ import annotations

import gzip
import io
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from truecopy.metastore.definitions import Definitions
from truecopy.model import change
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import EventPosition, parse_position
from truecopy.stream.envelope import BadEvent, Event, Texts, read_event
from truecopy.stream.log import Lag, Level, LogGone, Mark, Part, Wanted
from truecopy.stream.rows import ChangeRows

_NAME = re.compile(r"[^._].*\.(json|jsonl|ndjson)(\.gz)?")
_POLL_SECONDS = 0.1
_FILE_BITS = 40

Keys = dict[str, tuple[str, ...]]


class EventFiles:
    """A folder of event files."""

    level = Level.TABLE

    def __init__(self, endpoint: Endpoint, wanted: Wanted) -> None:
        self.endpoint = endpoint
        # Executors read the same path; only the user knows whether all machines have it.
        self.driver_local = endpoint.option("shared", "false") != "true"
        self._wanted = wanted
        self._folder = _folder_of(endpoint)
        self._keys = _parse_keys(wanted.settings.get("key", ""))
        self._definitions: Definitions | None = None
        self._sizes: dict[str, tuple[tuple[int, int, bool], int]] = {}

    def missing(self) -> list[str]:
        if not self._folder.is_dir():
            return [
                f"there is no folder {self._folder}: {self.endpoint} names a folder of event files"
            ]
        return []

    def oldest(self) -> Mark:
        return Mark("")

    def current(self) -> Mark:
        names = self._names()
        if not names:
            return Mark("")
        return self._mark(names[-1], self._complete(names[-1]))

    def seek(self, position: str) -> Mark:
        if not position:
            return self.oldest()
        name, offset = _parse(position)
        if name not in self._names() or offset > self._complete(name):
            raise LogGone(
                f"{self._folder / name} is gone or shorter than {offset} bytes; start again from a snapshot"
            )
        return self._mark(name, offset)

    def seek_time(self, at: int) -> Mark:
        last = 0
        for name in self._names():
            for line in _lines(self._folder / name, 0, self._complete(name)):
                event = self._event(name, line)
                last = (event.at if event else 0) or last
                # An event without a time is as old as the one before it.
                if event and (last >= at or not last):
                    return self._mark(name, line.start)
        return self.current()

    def advance(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        deadline = time.monotonic() + wait
        while True:
            end = self._reach(start, max_bytes)
            left = deadline - time.monotonic()
            if end is not None or left <= 0:
                return end or start
            time.sleep(min(_POLL_SECONDS, left))

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[Part]:
        pieces = self._pieces(start, end)
        found: dict[str, Definition] = {}
        cut: list[EventPart] = []
        share = max(1, sum(high - low for _, low, high in pieces) // max(1, parts))
        for number, (name, low, high) in enumerate(pieces):
            cuts = [low]
            for line in _lines(self._folder / name, low, high):
                event = self._event(name, line)
                if event and self._is_wanted(event):
                    found[event.definition.schema_id] = event.definition
                if line.end - cuts[-1] >= share:
                    cuts.append(line.end)
            if cuts[-1] != high:
                cuts.append(high)
            path = str(self._folder / name)
            cut += [
                EventPart(path, a, b, number, self._wanted, tuple(self._keys.items()))
                for a, b in pairwise(cuts)
            ]
        self._definitions = self._definitions or Definitions()
        self._definitions.remember(found.values())
        return cut

    def lag(self, mark: Mark) -> Lag:
        pieces = self._pieces(mark, self.current())
        size = sum(high - low for _, low, high in pieces)
        waiting = size and mark.committed_at
        return Lag(size, max(0.0, time.time() - mark.committed_at / 1e6) if waiting else 0.0)

    def release(self, mark: Mark) -> None:
        """The files are not ours to delete."""

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Where lines end

    def _reach(self, start: Mark, max_bytes: int) -> Mark | None:
        """The end of as many lines as fit, one at least, before a definition changes; None without news."""
        in_force: dict[str, str] = {}
        size, at, end = 0, 0, ("", 0)
        for name, line in self._between(start, self.current()):
            event = self._event(name, line)
            size += line.end - line.start
            if end[0] and size > max_bytes:
                break
            if event and self._is_wanted(event) and event.kind != change.TRUNCATE:
                table, schema = event.definition.table, event.definition.schema_id
                if in_force.setdefault(table, schema) != schema:
                    break
            at = (event.at if event else 0) or at
            end = name, line.end
        return replace(self._mark(*end), committed_at=at) if end[0] else None

    def _between(self, start: Mark, end: Mark) -> Iterator[tuple[str, _Line]]:
        for name, low, high in self._pieces(start, end):
            for line in _lines(self._folder / name, low, high):
                yield name, line

    def _pieces(self, start: Mark, end: Mark) -> list[tuple[str, int, int]]:
        """The files between two marks, each with the bytes that are between them."""
        if start.position == end.position or not end.position:
            return []
        first, low = _parse(start.position) if start.position else ("", 0)
        last, high = _parse(end.position)
        names = self._names()
        for name in (first, last):
            if name and name not in names:
                raise LogGone(f"{self._folder / name} is gone; start again from a snapshot")
        found = []
        for name in names:
            if first <= name <= last:
                piece = (
                    name,
                    low if name == first else 0,
                    high if name == last else self._complete(name),
                )
                if piece[1] < piece[2]:
                    found.append(piece)
        return found

    def _mark(self, name: str, offset: int) -> Mark:
        before = sum(self._complete(other) for other in self._names() if other < name)
        position = str(EventPosition(name, offset))
        return Mark(position, position, 0, before + offset)

    def _names(self) -> list[str]:
        if not self._folder.is_dir():
            raise UsageError(
                f"there is no folder {self._folder}: {self.endpoint} names a folder of event files"
            )
        return sorted(path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name))

    def _complete(self, name: str) -> int:
        """Bytes of the lines whose end is written; a file that is followed by another has no half line."""
        path = self._folder / name
        try:
            state = path.stat()
        except FileNotFoundError:
            raise LogGone(f"{path} is gone; start again from a snapshot") from None
        is_last = name == self._names()[-1]
        known = (state.st_size, state.st_mtime_ns, is_last)
        if self._sizes.get(name, (None, 0))[0] != known:
            self._sizes[name] = known, _complete_bytes(path, is_last=is_last)
        return self._sizes[name][1]

    def _event(self, name: str, line: _Line) -> Event | None:
        return _read(self._folder / name, line, self._keys)

    def _is_wanted(self, event: Event) -> bool:
        return _is_wanted(self._wanted, event.definition.table)


@dataclass(frozen=True)
class EventPart:
    """The lines of one file between two bytes.

    Attributes:
        number: Of the file, among those of the range.
    """

    path: str
    low: int
    high: int
    number: int
    wanted: Wanted
    keys: tuple[tuple[str, tuple[str, ...]], ...]

    def read(self) -> Iterator[pa.RecordBatch]:
        path = Path(self.path)
        rows = ChangeRows(self.wanted.shard)
        keys = dict(self.keys)
        for line in _lines(path, self.low, self.high):
            event = _read(path, line, keys)
            if event is None or not _is_wanted(self.wanted, event.definition.table):
                continue
            for seq, (kind, before, after) in enumerate(_changes(event)):
                self._add(rows, event, seq, kind, before, after)
            position = str(EventPosition(path.name, line.end))
            order = (self.number << _FILE_BITS) + line.end
            rows.end_transaction(position, event.txn or position, order, event.at)
            if rows.full:
                yield rows.take()
        if rows.rows:
            yield rows.take()

    def _add(
        self,
        rows: ChangeRows,
        event: Event,
        seq: int,
        kind: str,
        before: Texts | None,
        after: Texts | None,
    ) -> None:
        shown = after if after is not None else before
        key = None if shown is None else event.key_of(shown)
        rows.keys += key or []
        if self.wanted.keys_only:
            before = after = None
        rows.before += before or []
        rows.after += after or []
        if event.unchanged and after is not None:
            rows.mark_unchanged(event.unchanged)
        rows.add_run(
            kind,
            event.definition.table,
            event.definition.schema_id,
            1,
            seq,
            key_width=-1 if key is None else len(key),
            before_width=-1 if before is None else len(before),
            after_width=-1 if after is None else len(after),
            size=100 + sum(len(text) for text in (*(before or ()), *(after or ())) if text),
        )


def _changes(event: Event) -> Iterator[tuple[str, Texts | None, Texts | None]]:
    """An update that changes the key is a delete and an insert."""
    before, after = event.before, event.after
    if (
        event.kind == change.UPDATE
        and before is not None
        and after is not None
        and event.key_of(before) != event.key_of(after)
    ):
        yield change.DELETE, before, None
        yield change.INSERT, None, after
    else:
        yield event.kind, before, after


@dataclass(frozen=True)
class _Line:
    number: int
    start: int
    end: int
    text: bytes


def _lines(path: Path, low: int, high: int) -> Iterator[_Line]:
    """Lines from one byte to another; both are ends of lines."""
    try:
        with _open(path) as file:
            number = 1
            if path.suffix == ".gz" and low:
                # The number is for messages, and costs nothing where the text has to be unpacked anyway.
                number += _skip(file, low)
            else:
                file.seek(low)
            at = low
            while at < high and (text := file.readline()):
                yield _Line(
                    number if low == 0 or path.suffix == ".gz" else 0, at, at + len(text), text
                )
                at += len(text)
                number += 1
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None
    if at < high:
        raise LogGone(f"{path} is shorter than it was; start again from a snapshot")


def _skip(file: Any, count: int) -> int:
    lines = 0
    while count > 0 and (text := file.read(min(count, 1 << 20))):
        lines += text.count(b"\n")
        count -= len(text)
    return lines


def _complete_bytes(path: Path, *, is_last: bool) -> int:
    try:
        with _open(path) as file:
            if path.suffix == ".gz":
                return _unpacked(file, is_last=is_last)
            size: int = file.seek(0, io.SEEK_END)
            if not is_last:
                return size
            end = size
            while end:
                start = max(0, end - (1 << 16))
                file.seek(start)
                found: int = file.read(end - start).rfind(b"\n")
                if found >= 0:
                    return start + found + 1
                end = start
            return 0
    except OSError as error:
        raise _unreadable(path, error) from None


def _unpacked(file: Any, *, is_last: bool) -> int:
    """The length of a packed file, which is read when it is complete and not before."""
    size = 0
    try:
        while chunk := file.read(1 << 20):
            size += len(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        if is_last:
            return 0
        raise
    return size


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _unreadable(path: Path, error: Exception) -> CannotFinish:
    if isinstance(error, FileNotFoundError):
        return LogGone(f"{path} is gone; start again from a snapshot")
    return CannotFinish(f"cannot read {path}: {error}; is it complete?")


def _read(path: Path, line: _Line, keys: Mapping[str, Sequence[str]]) -> Event | None:
    if not line.text.strip():
        return None
    try:
        return read_event(line.text, keys)
    except BadEvent as error:
        number = line.number or _number_at(path, line.start)
        raise CannotFinish(
            f"line {number} of {path} (byte {line.start}) cannot be read: {error}; mend or remove the line,"
            " then go on from the same position"
        ) from None


def _number_at(path: Path, start: int) -> int:
    with _open(path) as file:
        return 1 + _skip(file, start)


def _is_wanted(wanted: Wanted, table: str) -> bool:
    names = (table, table.rpartition(".")[2])
    return not wanted.tables or any(
        fnmatchcase(name, pattern) for name in names for pattern in wanted.tables
    )


def _parse(position: str) -> tuple[str, int]:
    parsed = parse_position(position)
    if not isinstance(parsed, EventPosition):
        raise UsageError(f"{position!r} is no position of event files: FILE:BYTE is one")
    return parsed.file, parsed.offset


def _parse_keys(setting: str) -> Keys:
    """`orders:id;customers:a,b`."""
    found: Keys = {}
    for part in filter(None, (part.strip() for part in setting.split(";"))):
        table, colon, columns = part.rpartition(":")
        names = tuple(name.strip() for name in columns.split(",") if name.strip())
        if not colon or not table.strip() or not names:
            raise UsageError(f"key cannot be {setting!r}: write TABLE:COLUMN,COLUMN;TABLE:COLUMN")
        found[table.strip()] = names
    return found


def _folder_of(endpoint: Endpoint) -> Path:
    if endpoint.host:
        raise UsageError(
            f"{endpoint} has two slashes: write events:///{endpoint.host} for a folder"
        )
    relative = Path(endpoint.path[1:])
    return (relative if relative.is_dir() else Path(endpoint.path)).absolute()
