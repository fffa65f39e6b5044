"""The change log of one MySQL or MariaDB server."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Self

from truecopy.engines.mysql import MySQL
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import ORIGIN_TABLE, Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.position import FilePosition, contains, parse_position
from truecopy.model.table import TableName
from truecopy.stream.binlog import tail, walk
from truecopy.stream.binlog.ddl import first_comment, parse_statement
from truecopy.stream.binlog.events import blocks, first_time
from truecopy.stream.binlog.origins import changing_transactions
from truecopy.stream.binlog.part import BinlogPart
from truecopy.stream.binlog.place import Place, file_number
from truecopy.stream.binlog.rights import missing
from truecopy.stream.binlog.schemas import Schemas
from truecopy.stream.binlog.server import LogFile, Server
from truecopy.stream.binlog.tail import Boundary, Tail
from truecopy.stream.binlog.visibility import visible_mark
from truecopy.stream.binlog.walk import Walk, now
from truecopy.stream.binlog.wire import DEFAULT_SERVER_IDS, dump
from truecopy.stream.log import Lag, Level, LoggedStatement, LogGone, Mark, Wanted
from truecopy.stream.offset import has_reached
from truecopy.stream.origins import Applied, hop_point
from truecopy.stream.tables import Choice

_SECOND = 1_000_000
# Transactions and files are logged with the time at which the statement began: a search by time starts
# so much earlier.
_LONGEST_STATEMENT = 3600 * _SECOND
_QUIET_TRIES = 3


def open_log(endpoint: Endpoint, wanted: Wanted) -> BinlogLog:
    """The log of a server; nothing is asked of the server yet."""
    return BinlogLog(endpoint, wanted)


class BinlogLog:
    """See `truecopy.stream.log.ChangeLog`."""

    level = Level.TRANSACTION

    def __init__(self, endpoint: Endpoint, wanted: Wanted) -> None:
        self._endpoint = endpoint
        self._wanted = wanted
        self._server = Server(endpoint)
        self._server_ids = _server_ids(wanted)
        self._tail: Tail | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._drop_tail()
        self._server.close()

    def missing(self) -> list[str]:
        return missing(self._server, self._wanted)

    def oldest(self) -> Mark:
        return self._server.start_of(self._server.files()[0])

    def current(self) -> Mark:
        server = self._server
        if not server.has_gtids:
            place = str(server.end())
            return Mark(place, place)
        if server.is_mariadb:
            for _ in range(_QUIET_TRIES):
                if found := server.end_with_position():
                    return found
            place_now = server.end()
            return Mark(server.position_at(place_now), str(place_now))
        return self._mysql_end()

    def _mysql_end(self) -> Mark:
        """MySQL's set of executed GTIDs lags behind its log, so the log's own ones are read."""
        end = self._server.end()
        mark = self._server.start_of(LogFile(end.file, end.offset))
        with self._walk(mark) as walked:
            for what, *_ in walked.steps():
                if walked.file != end.file or walked.offset > end.offset:
                    break
                if what == walk.END:
                    mark = Mark(walked.position, walked.place, walked.committed_at)
        return mark

    def visible(self) -> Mark:
        return visible_mark(self._endpoint)

    def seek(self, position: str) -> Mark:
        meant = parse_position(position)
        if isinstance(meant, FilePosition):
            place = Place(meant.file, meant.offset, meant.server)
            if not self._server.still_has(place, position):
                raise LogGone(
                    f"{self._endpoint} has no log at {position}: start from a newer point"
                )
            return Mark(position, position)
        # The server refuses a position that it cannot serve with its first word.
        with dump(self._endpoint, self._server_ids, position=meant, blocking=False) as pieces:
            for _ in blocks(pieces, self._endpoint):
                break
        return Mark(str(meant))

    def seek_time(self, at: int) -> Mark:
        """Searches the files by the time at which they begin, then one file by its transactions."""
        at -= at % _SECOND  # logs cut times to the second: what was logged at 12 may be of 12.9
        files = self._server.files()

        def is_early(file: LogFile) -> bool:
            return self._begins_at(file) + _LONGEST_STATEMENT < at

        low = bisect_left(files, True, key=lambda file: not is_early(file))
        while low > 1 and not is_early(files[low - 2]):
            low -= 1
        if low == 0 and not _is_complete(self.oldest()):
            raise LogGone(
                f"no log of {self._endpoint} reaches back to that time for sure: its oldest file is {files[0].name}"
            )
        mark = self._server.start_of(files[max(low - 1, 0)])
        with self._walk(mark) as walked:
            for what, *_ in walked.steps():
                if what == walk.BEGIN and walked.committed_at >= at:
                    break
                if what == walk.END:
                    mark = Mark(walked.position, walked.place, walked.committed_at)
        return mark

    def _begins_at(self, file: LogFile) -> int:
        """When a file was begun, or rather when the statement began that had it begun."""
        place = Place(file.name, 4, self._server.name)
        with dump(self._endpoint, self._server_ids, place=place, blocking=False) as pieces:
            return first_time(pieces, self._endpoint)

    @contextmanager
    def _walk(self, start: Mark) -> Iterator[Walk]:
        place = Place.parse(start.place)
        position = parse_position(start.position) if place is None else None
        with dump(
            self._endpoint, self._server_ids, place=place, position=position, blocking=False
        ) as pieces:
            yield Walk(pieces, self._endpoint, start.position, self._server.name)

    def advance(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        if self._tail is None or not self._tail.knows(start):
            self._drop_tail()
            known = Definitions().find_set(start.schemas)
            choice = Choice(self._wanted.tables, self._endpoint.database)
            schemas = Schemas(self._endpoint, known)
            apart = max(min(tail.SAMPLE_BYTES, max_bytes // 4), 1)
            self._tail = Tail(self._endpoint, choice, self._server_ids, start, schemas, apart)
        try:
            return self._tail.next(start, max_bytes, wait)
        except TruecopyError:
            self._drop_tail()
            raise

    def _drop_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[BinlogPart]:
        boundaries = self._tail.between(start, end) if self._tail else []
        if not boundaries:
            boundaries = [Boundary(start, 0), Boundary(end, 0)]
        store = Definitions()
        # Those of the start are of tables that may be gone at the end.
        definitions = store.find_set(start.schemas) | store.find_set(end.schemas)
        cuts = _cuts(boundaries, parts)
        first = cuts[0].number
        return [
            BinlogPart(
                (self._endpoint, *self._wanted.fallbacks),
                self._wanted,
                self._server_ids,
                a.mark,
                b.mark,
                a.number - first,
                definitions,
            )
            for a, b in pairwise(cuts)
        ]

    def statements(self, start: Mark, end: Mark) -> Iterator[LoggedStatement]:
        with self._walk(start) as walked:
            for what, detail, *_ in walked.steps():
                if what == walk.STATEMENT:
                    found = parse_statement(detail.text, detail.database)
                    if found.tables:
                        names = tuple(map(".".join, found.tables))
                        yield LoggedStatement(
                            walked.txn,
                            walked.position,
                            names,
                            detail.text,
                            first_comment(detail.text),
                            names if found.kind == "create" else (),
                            {".".join(old): ".".join(new) for old, new in found.moves.items()},
                        )
                elif what == walk.END and has_reached(Mark(walked.position), end):
                    return

    def lag(self, mark: Mark) -> Lag:
        end = self.current()
        if contains(parse_position(mark.position), parse_position(end.position)):
            return Lag(0, 0.0)
        sizes = [(file_number(file.name), file.size) for file in self._server.files()]
        place = Place.parse(mark.place)
        if place is None or place.server != self._server.name:
            # Where it is in this log is not known: it may be anywhere.
            behind = sum(size for _, size in sizes)
        else:
            number, offset = place.order
            behind = sum(size for other, size in sizes if other >= number) - offset
        seconds = (now() - mark.committed_at) / 1e6 if mark.committed_at else 0.0
        return Lag(max(behind, 0), max(seconds, 0.0))

    def behind(self) -> float | None:
        return self._server.behind()

    def seek_origin(self, origins: Mapping[str, str]) -> Mark:
        """Scans the log for what filtered replication recorded."""
        oldest = self.oldest()
        applied = self.fed_by()
        return hop_point(
            self._changing_transactions(oldest) if applied else (),
            origins,
            applied,
            oldest,
            _is_complete(oldest),
            str(self._endpoint),
        )

    def _changing_transactions(self, start: Mark) -> Iterator[Applied]:
        with MySQL(self._endpoint) as session:
            table = session.describe(self._origin_table)
        key = table.keys[0] if table.keys else ()
        definition = Definition(str(self._origin_table), table.columns, key)
        with self._walk(start) as walked:
            for origin in changing_transactions(walked, definition):
                mark = Mark(walked.position, walked.place, walked.committed_at)
                if origin is None:
                    yield Applied(mark)
                else:
                    yield Applied(mark, origin.shard, origin.position, origin.begins)

    def fed_by(self) -> dict[str, str]:
        with MySQL(self._endpoint) as session:
            if session.find(ORIGIN_TABLE) is None:
                return {}
            name = table_sql(session.dialect, self._origin_table)
            rows = session.fetch(Statement(f"SELECT shard, position FROM {name}"))
        return {str(shard): str(position) for shard, position in rows}

    def fed_since(self) -> int:
        oldest = self.oldest()
        if not _is_complete(oldest):
            return 0  # how it began was removed from the log
        first = next(self._changing_transactions(oldest), None)
        return first.mark.committed_at if first else 0

    @property
    def _origin_table(self) -> TableName:
        return TableName(self._endpoint.database, ORIGIN_TABLE)

    def release(self, mark: Mark) -> None:
        """Servers keep their logs as long as they are told to; nobody waits for us."""


def _is_complete(oldest: Mark) -> bool:
    """Whether the log starts with the server's first transaction, so that nothing can have been purged."""
    place = Place.parse(oldest.place)
    begins_empty = oldest.position in ("", oldest.place)
    return begins_empty and place is not None and place.order[0] <= 1


def _cuts(boundaries: Sequence[Boundary], parts: int) -> list[Boundary]:
    """Boundaries that cut the range into about equal parts by bytes."""
    first, last = boundaries[0], boundaries[-1]
    step = (last.mark.written - first.mark.written) / max(parts, 1)
    cuts = [first]
    for boundary in boundaries[1:-1]:
        if len(cuts) < parts and boundary.mark.written - first.mark.written >= step * len(cuts):
            cuts.append(boundary)
    return [*cuts, last]


def _server_ids(wanted: Wanted) -> range:
    """The ids that dumps may use: a second dump with the same id would end the first."""
    given = wanted.settings.get("server_ids")
    if not given:
        return DEFAULT_SERVER_IDS
    first, _, last = given.partition("-")
    try:
        ids = range(int(first), int(last or first) + 1)
    except ValueError:
        raise UsageError(f"server_ids={given!r} is not a range such as 5000-5099") from None
    if not ids or ids[0] < 1 or ids[-1] >= 2**32:
        raise UsageError(f"server_ids={given!r} is not a range between 1 and 4294967295")
    return ids
