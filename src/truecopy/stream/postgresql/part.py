"""A piece of the spool, read and decoded wherever the work folder can be opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from truecopy.model.change import ORIGIN_COLUMNS, RENAME, TRUNCATE
from truecopy.model.errors import CannotFinish
from truecopy.stream.log import Mark
from truecopy.stream.origins import Applied
from truecopy.stream.postgresql import pgoutput
from truecopy.stream.postgresql.decoder import (
    FRAME,
    IMAGE,
    PADDING,
    Decode,
    decoders,
    messages,
    row_reader,
    skip,
)
from truecopy.stream.postgresql.folder import open_folder
from truecopy.stream.postgresql.lsn import lsn_text, parse_lsn
from truecopy.stream.postgresql.names import is_origin, is_wanted
from truecopy.stream.postgresql.relations import load_relation
from truecopy.stream.postgresql.spool import BEGIN, BEGIN_KIND, DEFINE, DEFINE_KIND
from truecopy.stream.rows import ChangeRows, Run

_BLOCK = 1 << 20
_TAGS = tuple((kind, image) for kind in (b"I", b"U", b"D") for image in (b"N", b"K", b"O"))


@dataclass(frozen=True)
class SpoolPart:
    """Whole transactions of the spool.

    Attributes:
        folder: The work folder.
        pieces: File, first and last offset, in order.
        relations: The definitions in force at the start: object id and name.
        tables: Names and patterns of those that are wanted.
        renames: Whether it says of a table that it has got another name, when it first changes under that.
    """

    folder: str
    pieces: tuple[tuple[str, int, int], ...]
    relations: tuple[tuple[int, str], ...]
    shard: str
    tables: tuple[str, ...] = ()
    keys_only: bool = False
    renames: bool = False

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self._decode(_Decoding(self))

    def changing_transactions(self) -> Iterator[Applied]:
        """Each transaction that changed rows, and where it came from."""
        decoding = _Decoding(replace(self, keys_only=True))
        seen: dict[str, Applied] = {}
        for batch in self._decode(decoding):
            positions = batch.column("position").unique().to_pylist()
            seen |= {position: Applied(Mark(position)) for position in positions}
        seen |= {applied.mark.position: applied for applied in decoding.origins}
        for position in sorted(seen, key=parse_lsn):
            yield seen[position]

    def _decode(self, decoding: _Decoding) -> Iterator[pa.RecordBatch]:
        folder = open_folder(self.folder)
        try:
            for name, start, end in self.pieces:
                with folder.open(name) as file:
                    yield from _read_piece(file, start, end, decoding)
        except FileNotFoundError:
            raise folder.lacks(self.pieces[0][0]) from None
        if decoding.rows.rows:
            yield decoding.batch()


def _read_piece(
    file: pa.NativeFile, start: int, end: int, decoding: _Decoding
) -> Iterator[pa.RecordBatch]:
    file.seek(start)
    data, size, place = PADDING, 0, 0
    rows, unpack = decoding.rows, FRAME.unpack_from
    while True:
        length, tag = unpack(data, place)
        after = place + 4 + length
        if after <= size:
            place = decoding.step(data, place, after, size, tag)
            if rows.full:
                yield decoding.batch()
            continue
        block = file.read(min(max(_BLOCK, after - size), end - start))
        if not block and place == size:
            return
        if not block:
            raise CannotFinish("a segment ends inside of a message: the work folder was damaged")
        start += len(block)
        data = b"".join((data[place:size], block, PADDING))
        size, place = len(data) - len(PADDING), 0


class _Decoding:
    """Where the reading of a part stands."""

    def __init__(self, part: SpoolPart) -> None:
        self.rows = ChangeRows(part.shard)
        self.origins: list[Applied] = []
        self._part = part
        self._decoders: dict[bytes, Decode] = {}
        self._tables: dict[int, tuple[str, str, bool]] = {}
        self._position, self._txn, self._order, self._at = "", "", 0, 0
        self._origin: str | None = None
        self._annotation: str | None = None
        self._seq = 0
        for oid, name in part.relations:
            self._define(oid, name)

    def step(self, data: bytes, place: int, end: int, size: int, tag: bytes) -> int:
        """Takes the message from `place` to `end`, and perhaps more of its kind; gives the next place."""
        decode = self._decoders.get(tag)
        if decode:
            place, self._seq = decode(data, place, size, self.rows, self._seq, self._annotation)
            return place
        start = place + 4
        if tag.startswith(BEGIN_KIND):
            self._begin(*BEGIN.unpack_from(data, start)[1:5])
        elif tag.startswith(DEFINE_KIND):
            _, oid, name = DEFINE.unpack_from(data, start)
            self._define(oid, name.decode())
        elif tag.startswith(b"T"):
            self._truncate(data[start:end])
        elif tag.startswith(b"M"):
            if not self._seq and self._annotation is None:  # the first one counts
                self._annotation = pgoutput.parse_annotation(data[start:end])
        else:
            raise CannotFinish(
                f"the log holds a message that cannot be decoded ({tag!r}) at {self._position};"
                " drop the stream and start anew"
            )
        return end

    def batch(self) -> pa.RecordBatch:
        self._end()
        try:
            return self.rows.take()
        except pa.ArrowInvalid as error:
            raise CannotFinish(
                f"the log holds text that is not UTF-8, before {self._position}: {error};"
                " a database in SQL_ASCII takes any bytes: convert them, or leave the table out"
            ) from None

    def _begin(self, xid: int, commit_lsn: int, end_lsn: int, at: int) -> None:
        self._end()
        self._position = lsn_text(end_lsn)
        self._txn = str(xid)
        self._order, self._at = commit_lsn, at
        self._origin = self._annotation = None
        self._seq = 0

    def _end(self) -> None:
        self.rows.end_transaction(self._position, self._txn, self._order, self._at, self._origin)

    def _define(self, oid: int, name: str) -> None:
        """From here on the rows of a table are decoded by another definition."""
        part = self._part
        relation = load_relation(part.folder, name)
        table = relation.definition.table
        wanted = is_wanted(table, part.tables)
        before, schema_id, was_wanted = self._tables.get(oid, (table, "", False))
        if part.renames and was_wanted and before != table:
            self.rows.after.append(table)
            run = Run(RENAME, before, schema_id, after_width=1)
            self.rows.add(run, 1, self._seq, self._annotation)
            self._seq += 1
        self._tables[oid] = (table, relation.definition.schema_id, wanted)
        key = oid.to_bytes(4, "big")
        if is_origin(table):
            self._decoders |= {
                kind + key + image: self._origin_reader(kind + key + image, name)
                for kind, image in _TAGS
            }
        elif wanted:
            self._decoders |= decoders(part.folder, name, oid, part.keys_only)
        else:
            self._decoders |= {
                kind + key + image: skip(kind + key + image) for kind, image in _TAGS
            }

    def _truncate(self, message: bytes) -> None:
        for oid in pgoutput.parse_truncate(message):
            if oid not in self._tables:
                continue  # a table that the publication does not list
            table, schema_id, wanted = self._tables[oid]
            if wanted and not is_origin(table):
                self.rows.add(Run(TRUNCATE, table, schema_id), 1, self._seq, self._annotation)
                self._seq += 1

    def _origin_reader(self, tag: bytes, name: str) -> Decode:
        """Reads what filtered replication says of the transaction, instead of giving it as a row."""
        definition = load_relation(self._part.folder, name).definition
        places = [definition.names.index(column) for column in ORIGIN_COLUMNS]
        read_row = row_reader(self._part.folder, name)

        def decode(
            data: bytes, place: int, size: int, _rows: ChangeRows, seq: int, _annotation: str | None
        ) -> tuple[int, int]:
            for start, end in messages(data, place, size, tag):
                place = end
                if tag.startswith(b"D"):
                    continue
                row, _, at = read_row(data, start + IMAGE)
                if not tag.endswith(b"N"):
                    row, _, at = read_row(data, at + 3)
                shard, position, committed_at = (row[i] or b"" for i in places)
                begins = tag.startswith(b"I")
                here = Mark(self._position)
                self.origins.append(Applied(here, shard.decode(), position.decode(), begins))
                self._origin = f"{shard.decode()} {position.decode()}"
                self._at = int(committed_at)
            return place, seq

        return decode
