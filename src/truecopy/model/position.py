"""Positions: where a stream stands, in each engine's own form, and what is before what.

A position stands for a set of transactions: all those that come before it. So the one question that
matters is containment, and the answers to "which is older" follow from it, `UNKNOWN` included: two
positions of which neither contains the other have diverged, or are of different histories.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from truecopy.model.errors import UsageError


class Comparison(Enum):
    """What the first of two is, compared to the second."""

    OLDER = "OLDER"
    SAME = "SAME"
    NEWER = "NEWER"
    UNKNOWN = "UNKNOWN"

    def __str__(self) -> str:
        return self.value

    @property
    def reverse(self) -> Comparison:
        """The answer for the second compared to the first."""
        swapped = {Comparison.OLDER: Comparison.NEWER, Comparison.NEWER: Comparison.OLDER}
        return swapped.get(self, self)


@dataclass(frozen=True)
class Beginning:
    """Before every transaction; contained in every position."""

    def __str__(self) -> str:
        return ""


Intervals = tuple[tuple[int, int], ...]
"""First and last number of each run, ascending, and never two that touch."""

Source = tuple[str, str]
"""What counts GTIDs on its own: a server's UUID, and a tag (MySQL 8.3 and later) or the empty text."""


@dataclass(frozen=True)
class MySQLPosition:
    """A GTID set. `gtid_set` makes one from intervals in any order."""

    sources: tuple[tuple[Source, Intervals], ...]

    def __str__(self) -> str:
        return gtid_set_text(self.sources)


@dataclass(frozen=True)
class MariaDBPosition:
    """The last GTID of each replication domain: (domain, server, sequence), by domain."""

    domains: tuple[tuple[int, int, int], ...]

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, server, number in self.domains)


@dataclass(frozen=True)
class PostgreSQLPosition:
    """A log sequence number: a byte of the write-ahead log."""

    lsn: int

    def __str__(self) -> str:
        return f"{self.lsn >> 32:X}/{self.lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class SequencePosition:
    """A plain count, as SQLite's log has it."""

    number: int

    def __str__(self) -> str:
        return str(self.number)


@dataclass(frozen=True)
class FilePosition:
    """A byte of a binary log, on a server without GTIDs. Says nothing about any other server."""

    file: str
    offset: int
    server: str

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}@{self.server}"

    @property
    def log(self) -> tuple[str, str]:
        """What two positions must share to be ordered: the server and the base name of its files."""
        return self.server, self.file.rpartition(".")[0]

    @property
    def place(self) -> tuple[int, int]:
        # Numbers, not names: binlog.999999 is followed by binlog.1000000.
        return int(self.file.rpartition(".")[2]), self.offset


@dataclass(frozen=True)
class EventPosition:
    """A byte of a folder of event files, which are read in the order of their names."""

    file: str
    offset: int

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(frozen=True)
class CursorPosition:
    """The last value read of each polled table's cursor column, by table."""

    values: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return json.dumps(dict(self.values), ensure_ascii=False, separators=(",", ":"))


Position = (
    Beginning
    | MySQLPosition
    | MariaDBPosition
    | PostgreSQLPosition
    | SequencePosition
    | FilePosition
    | EventPosition
    | CursorPosition
)

BEGINNING = Beginning()


def contains(a: Position, b: Position) -> bool:
    """Whether every transaction before `b` is before `a`, too."""
    match a, b:
        case _, Beginning():
            return True
        case MySQLPosition(), MySQLPosition():
            mine = dict(a.sources)
            return all(_covers(mine.get(source, ()), runs) for source, runs in b.sources)
        case MariaDBPosition(), MariaDBPosition():
            last = {domain: (number, server) for domain, server, number in a.domains}
            return all(
                _reaches(*last.get(domain, (0, 0)), number, server)
                for domain, server, number in b.domains
            )
        case PostgreSQLPosition(), PostgreSQLPosition():
            return a.lsn >= b.lsn
        case SequencePosition(), SequencePosition():
            return a.number >= b.number
        case FilePosition(), FilePosition():
            return a.log == b.log and a.place >= b.place
        case EventPosition(), EventPosition():
            return (a.file, a.offset) >= (b.file, b.offset)
        case CursorPosition(), CursorPosition():
            read = dict(a.values)
            return all(table in read and _follows(read[table], v) for table, v in b.values)
    return False


def compare(a: Position, b: Position) -> Comparison:
    """What `a` is compared to `b`; `OLDER` when it is before it."""
    match contains(a, b), contains(b, a):
        case True, True:
            return Comparison.SAME
        case True, False:
            return Comparison.NEWER
        case False, True:
            return Comparison.OLDER
    return Comparison.UNKNOWN


def union(a: Position, b: Position) -> Position:
    """The smallest position that contains both; refused where the engine defines none."""
    if contains(a, b):
        return a
    if contains(b, a):
        return b
    match a, b:
        case MySQLPosition(), MySQLPosition():
            return gtid_set(
                (source, run) for p in (a, b) for source, runs in p.sources for run in runs
            )
        case MariaDBPosition(), MariaDBPosition():
            last: dict[int, tuple[int, int, int]] = {}
            for gtid in (*a.domains, *b.domains):
                other = last.setdefault(gtid[0], gtid)
                if other[2] == gtid[2] and other[1] != gtid[1]:
                    raise UsageError(
                        f"domain {gtid[0]} has diverged: no position contains both {a} and {b}"
                    )
                if gtid[2] > other[2]:
                    last[gtid[0]] = gtid
            return MariaDBPosition(tuple(sorted(last.values())))
    raise UsageError(f"no position contains both {a} and {b}: they are of different logs")


def distance(a: Position, b: Position) -> int | None:
    """How much lies between two positions, in the log's own measure; 0 where `b` is not further.

    Transactions, or bytes of a log. None where that cannot be told: other logs, gaps, another file.
    """
    if contains(a, b):
        return 0
    match a, b:
        case MariaDBPosition(), MariaDBPosition():
            mine = {domain: number for domain, _, number in a.domains}
            return sum(max(n - mine.get(domain, 0), 0) for domain, _, n in b.domains)
        case MySQLPosition(), MySQLPosition():
            return max(_size(union(a, b)) - _size(a), 0)
        case PostgreSQLPosition(), PostgreSQLPosition():
            return b.lsn - a.lsn
        case SequencePosition(), SequencePosition():
            return b.number - a.number
        case FilePosition(), FilePosition():
            return b.offset - a.offset if a.file == b.file else None
        case EventPosition(), EventPosition():
            return b.offset - a.offset if a.file == b.file else None
    return None


def _size(position: Position) -> int:
    if not isinstance(position, MySQLPosition):
        return 0
    return sum(last - first + 1 for _, runs in position.sources for first, last in runs)


def parse_position(text: str) -> Position:
    """Reads any engine's position; each has a syntax of its own."""
    if text.lstrip().startswith("{"):
        return _parse_cursors(text)
    if match := re.fullmatch(_EVENT_FILE, text.strip()):
        return EventPosition(match[1], int(match[2]))
    plain = re.sub(r"\s*,\s*", ",", text.strip())  # MySQL prints a line break after each comma
    if not plain:
        return BEGINNING
    if re.fullmatch(r"[0-9]{1,20}", plain):
        return SequencePosition(int(plain))
    if match := re.fullmatch(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", plain):
        return PostgreSQLPosition(int(match[1], 16) << 32 | int(match[2], 16))
    if match := re.fullmatch(
        r"([^:@/\s]+\.(?:\d{6}|[1-9]\d{6,9})):(\d{1,20})@([^@\s]+)", plain, re.ASCII
    ):
        return FilePosition(match[1], int(match[2]), match[3])
    if re.fullmatch(rf"{_MARIADB_GTID}(,{_MARIADB_GTID})*", plain, re.ASCII):
        return _parse_mariadb(plain)
    if re.match(_UUID + ":", plain):
        return _parse_mysql(plain)
    raise UsageError(
        f"not a position: {_shown(text)}; known are MySQL GTID sets (UUID:1-5), MariaDB GTIDs (0-1-100),"
        " PostgreSQL LSNs (16/B374D848), plain numbers, FILE:OFFSET@SERVER, event files and cursors"
    )


def gtid_set(runs: Iterable[tuple[Source, tuple[int, int]]]) -> MySQLPosition:
    """A GTID set of intervals in any order, which may touch and overlap."""
    collected: dict[Source, list[tuple[int, int]]] = {}
    for source, run in runs:
        collected.setdefault(source, []).append(run)
    return MySQLPosition(tuple((source, _merge(collected[source])) for source in sorted(collected)))


def gtid_set_text(sources: Iterable[tuple[Source, Intervals]]) -> str:
    """A GTID set as MySQL prints it, without the line breaks: a UUID once, then its tags."""
    parts: list[str] = []
    last = ""
    for (uuid, tag), runs in sources:
        head = ":" if uuid == last else f",{uuid}:" if last else f"{uuid}:"
        parts.append(head + (f"{tag}:" if tag else "") + intervals_text(runs))
        last = uuid
    return "".join(parts)


def intervals_text(runs: Intervals) -> str:
    """Intervals as MySQL prints them: `1-5:7`."""
    return ":".join(f"{a}-{b}" if b > a else f"{a}" for a, b in runs)


_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_EVENT_FILE = r"([^/\0]+\.(?:json|jsonl|ndjson)(?:\.gz)?):([0-9]{1,18})"
_MARIADB_GTID = r"\d{1,10}-\d{1,10}-\d{1,20}"
_LARGEST = 2**63 - 2  # MySQL's last GTID number


def _parse_mysql(text: str) -> MySQLPosition:
    runs: list[tuple[Source, tuple[int, int]]] = []
    for item in text.split(","):
        uuid, *parts = item.lower().split(":")
        if not re.fullmatch(_UUID, uuid) or not parts:
            raise UsageError(f"not a GTID set: {_shown(text)}; {_shown(item)} is not UUID:INTERVAL")
        tag = ""
        for part in parts:
            if re.fullmatch(r"[a-z_][a-z0-9_]{0,31}", part):
                tag = part
            elif match := re.fullmatch(r"(\d{1,20})(?:-(\d{1,20}))?", part, re.ASCII):
                first, last = int(match[1]), int(match[2] or match[1])
                if not 1 <= first <= last <= _LARGEST:
                    raise UsageError(f"not a GTID set: {_shown(text)}; {part} is not an interval")
                runs.append(((uuid, tag), (first, last)))
            else:
                raise UsageError(
                    f"not a GTID set: {_shown(text)}; {_shown(part)} is neither an interval nor a tag"
                )
        if not re.match(r"\d", parts[-1]):
            raise UsageError(f"not a GTID set: {_shown(text)}; nothing follows the tag {parts[-1]}")
    return gtid_set(runs)


def _parse_mariadb(text: str) -> Position:
    last: dict[int, tuple[int, int, int]] = {}
    for item in text.split(","):
        domain, server, number = map(int, item.split("-"))
        if max(domain, server) >= 2**32 or number >= 2**64:
            raise UsageError(f"not a MariaDB GTID: {item} in {_shown(text)} is out of range")
        if domain in last:
            raise UsageError(f"not a MariaDB position: {_shown(text)} names domain {domain} twice")
        last[domain] = domain, server, number
    # Sequences begin with 1, so 0 says the same as leaving the domain out.
    domains = tuple(gtid for gtid in sorted(last.values()) if gtid[2])
    return MariaDBPosition(domains) if domains else BEGINNING


def _parse_cursors(text: str) -> CursorPosition:
    try:
        values = json.loads(text)
    except ValueError:
        raise UsageError(f"not a position: {_shown(text)} is not JSON") from None
    if not all(isinstance(value, str) for value in values.values()):
        raise UsageError(f"not a position of cursors: {_shown(text)}")
    return CursorPosition(tuple(sorted(values.items())))


def _follows(mine: str, other: str) -> bool:
    """Whether a cursor's value is not before another one: known of whole numbers and of times."""
    if re.fullmatch(r"-?[0-9]+", mine) and re.fullmatch(r"-?[0-9]+", other):
        return int(mine) >= int(other)
    day = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    if re.match(day, mine) and re.match(day, other):
        return mine >= other
    return mine == other


def _covers(mine: Intervals, runs: Intervals) -> bool:
    at = 0
    for first, last in runs:
        while at < len(mine) and mine[at][1] < last:
            at += 1
        if at == len(mine) or mine[at][0] > first:
            return False
    return True


def _reaches(mine: int, my_server: int, number: int, server: int) -> bool:
    # The same number from another server is another transaction: the histories have parted.
    return mine > number or (mine == number and my_server == server)


def _merge(runs: list[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return tuple(merged)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}…")
