"""A table as it is logged, with the decoders for the images that its rows come in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from truecopy.model.change import DELETE, INSERT, ORIGIN_COLUMNS, ORIGIN_TABLE, UPDATE, Definition
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog.decoder import Decoder, Image, compile_decoder
from truecopy.stream.binlog.events import decompress, packed_integer
from truecopy.stream.binlog.table_map import TableMap
from truecopy.stream.binlog.walk import DELETED, INSERTED, PARTLY_UPDATED, RowsKind
from truecopy.stream.rows import Run

_NONE: tuple[bytes, Decoder | None] = (b"", None)


@dataclass(frozen=True)
class Origin:
    """Where filtered replication says that a transaction came from; `begins`: in its first record of the shard."""

    shard: str
    position: str
    committed_at: int
    begins: bool = False

    def __str__(self) -> str:
        return f"{self.shard} {self.position}"


class Runs(NamedTuple):
    """What the rows of an event are said as; `moved`: the insert of an update that changed the key."""

    inserts: Run
    updates: Run
    deletes: Run
    moved: Run


class LoggedTable:
    """One table map; made once, used for every rows event that follows such a map.

    Args:
        keys_only: Rows are said by their keys.
        before: Rows that go, or change, are told as they were before.

    Attributes:
        runs: What rows are said as.
        acting: The same for a reader who does what foreign keys did: where a row was moved from is told, too.
        idle: The same for rows that were changed while foreign keys were switched off: `before` is not told, since
            nothing came of it.
    """

    def __init__(
        self, table_map: TableMap, definition: Definition, *, keys_only: bool, before: bool = True
    ) -> None:
        self.definition = definition
        self.is_origin = table_map.table == ORIGIN_TABLE
        key, row = len(definition.key), -1 if keys_only else len(definition.columns)
        table, schema_id = definition.table, definition.schema_id
        inserts = Run(INSERT, table, schema_id, key, -1, row)
        updates = Run(UPDATE, table, schema_id, key, row, row)
        deletes = Run(DELETE, table, schema_id, key, row, -1)
        whole = Runs(inserts, updates, deletes, inserts)
        self.acting = whole._replace(moved=inserts._replace(before_width=row))
        self.idle = whole._replace(
            updates=updates._replace(before_width=-1), deletes=deletes._replace(before_width=-1)
        )
        self.runs = whole if before else self.idle
        self._columns = table_map.columns
        # A mark is read whole.
        self._keys_only = keys_only and not self.is_origin
        self._before = before or self.is_origin
        self._bitmap = (len(table_map.columns) + 7) // 8
        self._decoders: dict[tuple[bytes, str], Decoder] = {}
        self._last: dict[RowsKind, tuple[bytes, Decoder | None]] = {}

    def _decoder(self, bitmaps: bytes, change: str) -> Decoder:
        known = self._decoders.get((bitmaps, change))
        if known is None:
            present, after = bitmaps[: self._bitmap], bitmaps[self._bitmap :] or None
            if not self._keys_only:
                self._refuse_missing(present)
                self._refuse_missing(after or present)
            image = Image(
                present,
                after,
                self._keys_only or (change == DELETED and not self._before),
                self._before,
                change == PARTLY_UPDATED,
            )
            known = compile_decoder(self._columns, self.definition, image=image)
            self._decoders[bitmaps, change] = known
        return known

    def _refuse_missing(self, bitmap: bytes) -> None:
        missing = [
            name
            for i, name in enumerate(self.definition.names)
            if not bitmap[i >> 3] >> (i & 7) & 1
        ]
        if missing:
            raise CannotFinish(
                f"a change of {self.definition.table} is logged without {missing[0]}: some session writes with"
                " binlog_row_image other than FULL; SET GLOBAL binlog_row_image = 'FULL', or stream keys only"
                " (--keys-only)"
            )

    def open_rows(
        self, kind: RowsKind, buf: bytes, start: int, end: int
    ) -> tuple[Decoder, bytes, int, int]:
        """The decoder for a rows event, and the memory in which its rows are."""
        at = start + 8 if kind.header == 8 else start + 8 + buf[start + 8] + 256 * buf[start + 9]
        # Event after event has the same columns in it: the same bytes in front of its rows.
        front, decoder = self._last.get(kind, _NONE)
        if not front or not buf.startswith(front, at):
            columns, bitmaps = packed_integer(buf, at)
            rows = bitmaps + ((columns + 7) // 8 << (kind.change not in (INSERTED, DELETED)))
            front, decoder = buf[at:rows], self._decoder(buf[bitmaps:rows], kind.change)
            self._last[kind] = front, decoder
        assert decoder is not None
        at += len(front)
        if kind.compressed:
            buf = decompress(buf, at, end)
            return decoder, buf, 0, len(buf)
        return decoder, buf, at, end

    def origin(self, decoder: Decoder, buf: bytes, at: int, end: int) -> Origin:
        """What filtered replication recorded; of several rows the last."""
        texts: list[bytes | None] = []
        if decoder.decode is not None:
            decoder.decode(buf, at, end, [], texts)
        elif decoder.decode_updates is not None:
            decoder.decode_updates(buf, at, end, [], [], texts)
        names = self.definition.names
        row = dict(zip(names, texts[-len(names) :], strict=True))
        shard, position, committed_at = (row[name] or b"" for name in ORIGIN_COLUMNS)
        return Origin(shard.decode(), position.decode(), int(committed_at or 0))
