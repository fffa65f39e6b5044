"""A piece of a binary log, dumped and decoded where the executor is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from truecopy.model.change import DROP, ORIGIN_TABLE, RENAME, TRUNCATE, Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.position import contains, parse_position
from truecopy.stream.binlog import walk
from truecopy.stream.binlog.ddl import Statement, parse_statement
from truecopy.stream.binlog.decoder import Decoder
from truecopy.stream.binlog.events import Query
from truecopy.stream.binlog.logged_table import LoggedTable, Runs
from truecopy.stream.binlog.place import Place, file_number
from truecopy.stream.binlog.schemas import is_sequence
from truecopy.stream.binlog.table_map import parse_names, parse_table_map
from truecopy.stream.binlog.walk import DELETED, INSERTED, ROW_KINDS, RowsKind, Small, Walk
from truecopy.stream.binlog.wire import dump
from truecopy.stream.log import Mark, Wanted
from truecopy.stream.rows import BATCH_BYTES, BATCH_ROWS, ChangeRows, Run, seldom_collected
from truecopy.stream.tables import Choice

_STATEMENT_ENDS, _WITHOUT_FOREIGN_KEYS = 1, 2


@dataclass(frozen=True)
class BinlogPart:
    """From one boundary of the log to another.

    Attributes:
        servers: Where to read it: the server whose places the marks name, then others of the shard.
        first_order: How many transactions of the batch come before.
        definitions: Of the tables that have rows here.
    """

    servers: tuple[Endpoint, ...]
    wanted: Wanted
    server_ids: range
    start: Mark
    end: Mark
    first_order: int
    definitions: Mapping[str, Definition] = field(repr=False)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Reads it where the marks' places are, and by position on another server where that one is gone.

        A connection lost half-way fails the task: what it gave is dropped, and the next attempt
        gives all of it again.
        """
        if contains(parse_position(self.start.position), parse_position(self.end.position)):
            return
        for number, server in enumerate(self.servers, 1):
            given = False
            try:
                with seldom_collected():
                    for batch in _Reading(self, server).batches():
                        given = True
                        yield batch
            except CannotFinish:
                if given or number == len(self.servers):
                    raise
            else:
                return


class _Reading:
    """One pass over the part on one server."""

    def __init__(self, part: BinlogPart, endpoint: Endpoint) -> None:
        self._part = part
        self._endpoint = endpoint
        self._choice = Choice(part.wanted.tables, endpoint.database)
        self._rows = ChangeRows(part.wanted.shard)
        self._sources: dict[bytes, LoggedTable | None] = {}
        self._tables: dict[bytes, LoggedTable | None] = {}
        wanted = part.wanted
        self._tells_redefinitions = wanted.settings.get("redefinitions") == "told"
        self._tells_acts = wanted.before and wanted.settings.get("cascades") == "target"
        self._seq = 0
        self._origin: str | None = None
        self._origin_time = 0
        self._note: str | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        part = self._part
        with dump(
            self._endpoint,
            part.server_ids,
            place=Place.parse(part.start.place),
            position=parse_position(part.start.position),
            blocking=False,
            annotations=part.wanted.settings.get("annotations") != "false",
        ) as pieces:
            end = Place.parse(part.end.place)
            by_place = pieces.place and end and end.server == pieces.place.server
            until = None if by_place else parse_position(part.end.position)
            server = pieces.place.server if pieces.place else ""
            walked = Walk(pieces, self._endpoint, part.start.position, server, until=until)
            if by_place and end:
                yield from self._read(walked, _EndByPlace(walked, end))
            else:
                yield from self._read(walked, _EndByPosition(walked, part.end.position))

    def _read(self, walked: Walk, end_of_part: _End) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        order = self._part.first_order
        tables = self._tables
        reached, passed = end_of_part.reached, end_of_part.passed
        last_offset, file, table_map = end_of_part.offset, "", b""
        end_transaction = rows.end_transaction
        for what, detail, buf, start, end in walked.strides():
            if what == walk.SMALL:
                count = end_of_part.count(detail.offsets)
                self._add_small(detail, order, count)
                order += count
                if rows.full:
                    yield rows.take()
                if count < len(detail.offsets) or (walked.offset >= last_offset and reached()):
                    break
            elif what == walk.ROWS:
                source = tables.get(buf[start : start + 6])
                if source is not None:
                    self._add(source, detail, buf, start, end)
                    if rows.bytes >= BATCH_BYTES and self._seq:
                        self._close(walked, order)
                        yield rows.take()
                if buf[start + 6] & _STATEMENT_ENDS:
                    self._note = None
            elif what == walk.TABLE:
                if end - start == len(table_map) and buf.startswith(table_map, start):
                    continue  # the table of the last change again
                table_map = buf[start:end]
                tables[table_map[:6]] = self._source(table_map)
            elif what == walk.END:
                if self._seq:
                    origin = self._origin
                    committed_at = self._origin_time if origin else walked.committed_at
                    end_transaction(walked.position, walked.txn, order, committed_at, origin)
                    self._seq = 0
                    if rows.rows >= BATCH_ROWS or rows.bytes >= BATCH_BYTES:
                        yield rows.take()
                self._origin = self._note = None
                order += 1
                if walked.offset >= last_offset and reached():
                    break
            elif what == walk.BEGIN:
                # Only a new file can begin behind the end: in the old one the last END has told.
                if walked.file is not file:
                    file = walked.file
                    if passed():
                        break
            elif what == walk.NOTE:
                if buf.startswith(b"/*", start):
                    self._note = _first_comment(buf, start, end)
            elif what == walk.STATEMENT:
                self._statement(detail)
        else:
            if not reached():
                raise CannotFinish(
                    f"the log of {self._endpoint} ends at {walked.file}:{walked.offset}, before"
                    f" {self._part.end.place or self._part.end.position}: was it reset?"
                )
        if rows.rows:
            yield rows.take()

    def _add_small(self, small: Small, order: int, count: int) -> None:
        """The first `count` of these transactions; the first one's number is `order`."""
        add, end_transaction, kinds = self._add, self._rows.end_transaction, ROW_KINDS
        buf, tables, source = small.rows.buf, small.tables, None
        table_map = b""
        for number, position, txn, at, table, table_end, kind, start, end in zip(
            range(order, order + count),
            small.positions,
            small.txns,
            small.committed_at,
            tables.start.tolist(),
            tables.end.tolist(),
            small.rows.kind.tolist(),
            small.rows.start.tolist(),
            small.rows.end.tolist(),
            strict=False,
        ):
            if table_end - table != len(table_map) or not buf.startswith(table_map, table):
                table_map = buf[table:table_end]
                source = self._source(table_map)
            if source is not None:
                add(source, kinds[kind], buf, start, end)
                if self._seq:
                    end_transaction(position, txn, number, at)
                    self._seq = 0
        self._origin = None

    def _source(self, table_map: bytes) -> LoggedTable | None:
        if table_map not in self._sources:
            self._sources[table_map] = self._new_source(table_map)
        return self._sources[table_map]

    def _new_source(self, raw: bytes) -> LoggedTable | None:
        database, table = parse_names(raw)
        if not self._choice.wants(database, table):
            return None
        definition = self._part.definitions.get(f"{database}.{table}")
        if definition is None:
            raise CannotFinish(
                f"the definition of {database}.{table} at {self._part.start.position} is not known"
            )
        if is_sequence(definition):
            return None
        wanted = self._part.wanted
        return LoggedTable(
            parse_table_map(raw), definition, keys_only=wanted.keys_only, before=wanted.before
        )

    def _add(self, source: LoggedTable, kind: RowsKind, buf: bytes, start: int, end: int) -> None:
        size = end - start
        runs = source.runs
        if self._tells_acts:
            runs = source.idle if buf[start + 6] & _WITHOUT_FOREIGN_KEYS else source.acting
        decoder, buf, at, end = source.open_rows(kind, buf, start, end)
        if source.is_origin:
            self._take_origin(source, decoder, buf, at, end)
            return
        rows = self._rows
        before = rows.before if runs is not source.idle else []
        if kind.change == INSERTED and decoder.decode:
            count = decoder.decode(buf, at, end, rows.keys, rows.after)
            rows.add(runs.inserts, count, self._seq, self._note, size)
        elif kind.change == DELETED and decoder.decode:
            count = decoder.decode(buf, at, end, rows.keys, before)
            rows.add(runs.deletes, count, self._seq, self._note, size)
        elif decoder.decode_updates:
            first = len(before)
            count, moved = decoder.decode_updates(buf, at, end, rows.keys, before, rows.after)
            if moved:
                if runs is source.acting:
                    _repeat(before, first, count, moved)
                count = self._add_moved(runs, count, moved, size)
            else:
                rows.add(runs.updates, count, self._seq, self._note, size)
        self._seq += count

    def _add_moved(self, runs: Runs, count: int, moved: list[int], size: int) -> int:
        """Updates of which some change the key: those are a delete and an insert. How many changes in all."""
        rows, done, seq = self._rows, 0, self._seq
        for row in moved:
            if row > done:
                rows.add(runs.updates, row - done, seq, self._note, 0)
                seq += row - done
            rows.add(runs.deletes, 1, seq, self._note, 0)
            rows.add(runs.moved, 1, seq + 1, self._note, 0)
            seq, done = seq + 2, row + 1
        if count > done:
            rows.add(runs.updates, count - done, seq, self._note, size)
            seq += count - done
        return seq - self._seq

    def _take_origin(
        self, source: LoggedTable, decoder: Decoder, buf: bytes, at: int, end: int
    ) -> None:
        found = source.origin(decoder, buf, at, end)
        self._origin, self._origin_time = str(found), found.committed_at

    def _close(self, walked: Walk, order: int) -> None:
        committed_at = self._origin_time if self._origin else walked.committed_at
        self._rows.end_transaction(walked.position, walked.txn, order, committed_at, self._origin)

    def _statement(self, query: Query) -> None:
        if query.text.startswith(("ROLLBACK", "XA PREPARE")):
            self._refuse_undone(query)
            return
        statement = parse_statement(query.text, query.database)
        if statement.kind == "rows":
            self._refuse_statement(query)
        elif statement.moves_rows:
            self._refuse_moved_rows(statement, query)
        elif statement.renamed and self._tells_redefinitions:
            for old, new in statement.moves.items():
                # A table that is not wanted may take the name of one that is.
                if self._tables_named(*old) or self._tables_named(*new):
                    self._rows.after.append(".".join(new))
                    self._redefine(RENAME, ".".join(old), after_width=1)
        elif statement.empties:
            kind = DROP if statement.kind == "drop" and self._tells_redefinitions else TRUNCATE
            for database, table in statement.tables:
                for name in self._tables_named(database, table):
                    self._redefine(kind, name)

    def _tables_named(self, database: str, table: str) -> list[str]:
        if table != "*":
            wants = self._choice.wants(database, table) and table != ORIGIN_TABLE
            return [f"{database}.{table}"] if wants else []
        known = (name.split(".", 1) for name in self._part.definitions)
        return [
            f"{schema}.{name}"
            for schema, name in known
            if schema == database and name != ORIGIN_TABLE
        ]

    def _redefine(self, kind: str, name: str, after_width: int = -1) -> None:
        definition = self._part.definitions.get(name)
        schema_id = definition.schema_id if definition else ""
        run = Run(kind, name, schema_id, after_width=after_width)
        self._rows.add(run, 1, self._seq, self._note)
        self._seq += 1

    def _refuse_undone(self, query: Query) -> None:
        """Changes that are logged and then not made: by a rollback that met tables which know none, or XA."""
        if self._seq:
            raise CannotFinish(
                f"a transaction after {self._part.start.position} on {self._endpoint} has {query.text} after changes"
                " were logged, so that the log does not say what became of them: leave those tables out, or start"
                " after it"
            )

    def _refuse_moved_rows(self, statement: Statement, query: Query) -> None:
        if self._part.wanted.settings.get("partitions") == "ignore":
            return
        for database, table in statement.tables:
            if self._choice.wants(database, table):
                raise CannotFinish(
                    f"{database}.{table} on {self._endpoint} lost or got rows by {query.text[:80]!r}, and the log does"
                    " not say which: copy the table anew and start after it, leave it out, or say partitions=ignore"
                )

    def _refuse_statement(self, query: Query) -> None:
        """A change logged as a statement says nothing of its rows; only one that is elsewhere may pass."""
        wanted = self._endpoint.database
        if wanted and query.database != wanted and wanted not in query.text:
            return
        raise CannotFinish(
            f"{self._endpoint} logs a change as a statement ({query.text[:60]!r}), which does not say which"
            " rows it changed: SET GLOBAL binlog_format = 'ROW' (and let old sessions end), or stream from a"
            " replica that logs rows (log_slave_updates and binlog_format=ROW)"
        )


class _End(Protocol):
    offset: int
    """No end of a transaction before this offset of its file can be the end."""

    def count(self, offsets: list[int]) -> int:
        """How many of the transactions that end at these offsets are of the part."""
        ...

    def reached(self) -> bool:
        """Whether the last event ended at the end or behind it."""
        ...

    def passed(self) -> bool:
        """Whether the transaction that begins is none of the part's."""
        ...


class _EndByPlace:
    """The end as a place; it may be the head of a file that had no transaction when it was noted."""

    def __init__(self, walked: Walk, end: Place) -> None:
        self._walked = walked
        self._file, self._number = end.file, end.order[0]
        # Files before the last one are gone through to their ends, whatever the offsets there.
        self.offset = end.offset

    def count(self, offsets: list[int]) -> int:
        if self._walked.file == self._file:
            return bisect_right(offsets, self.offset)
        return 0 if self.passed() else len(offsets)

    def reached(self) -> bool:
        return self._is_behind(self._walked.offset)

    def passed(self) -> bool:
        return self._is_behind(self._walked.begun_at)

    def _is_behind(self, offset: int) -> bool:
        file = self._walked.file
        return offset >= self.offset if file == self._file else file_number(file) > self._number


class _EndByPosition:
    """The end as a position; the walk passes over what is not in it."""

    offset = 0

    def __init__(self, walked: Walk, end: str) -> None:
        self._walked = walked
        self._end = parse_position(end)

    def count(self, offsets: list[int]) -> int:
        return len(offsets)

    def reached(self) -> bool:
        return contains(parse_position(self._walked.position), self._end)

    def passed(self) -> bool:
        return False


def _first_comment(buf: bytes, start: int, end: int) -> str | None:
    """The comment that a statement begins with: the mark of whoever wrote it."""
    stop = buf.find(b"*/", start + 2, end)
    return None if stop < 0 else buf[start + 2 : stop].decode("utf-8", "replace").strip()


def _repeat(texts: list[str | bytes | None], first: int, count: int, rows: list[int]) -> None:
    """Puts some of the `count` rows whose texts begin at `first` twice."""
    width = (len(texts) - first) // count
    for row in reversed(rows):
        at = first + row * width
        texts[at:at] = texts[at : at + width]
