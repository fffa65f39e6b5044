"""A row decoder made for one table: Python source for exactly its columns, compiled once.

A function reads a run of rows without asking for types. Which columns are NULL is a part of what it is
made for, too: rows mostly come in few patterns of NULLs. A pattern that is rare is read column by column.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish
from truecopy.stream.binlog.columns import LoggedColumn
from truecopy.stream.binlog.source import Image, SourceWriter

__all__ = ["Decoder", "Image", "Texts", "compile_decoder"]

Texts = list[bytes | None]

# A pattern of NULLs gets a function of its own when it has come this often, and there are not too many.
_COMMON = 32
_PATTERNS = 64


@dataclass(frozen=True)
class Decoder:
    """Reads rows; `buf` is `bytes`, and the rows lie between `pos` and `end` of it.

    It is quickest when `buf` goes on behind the rows; what is there does not matter.

    Attributes:
        decode: `(buf, pos, end, keys, values) -> count`, for inserts and deletes: appends each row's
            key to `keys` and its texts to `values`; `values` stays as it is for keys only.
        decode_updates: `(buf, pos, end, keys, before, after) -> (count, moved)`; None for images of
            inserts and deletes. `moved` lists the rows, counted from 0, whose key changed: for these
            `keys` gets the old key and then the new one, so that they can be said as a delete and an insert.
    """

    decode: Callable[[bytes, int, int, Texts, Texts], int] | None
    decode_updates: Callable[[bytes, int, int, Texts, Texts, Texts], tuple[int, list[int]]] | None


def compile_decoder(
    columns: tuple[LoggedColumn, ...], definition: Definition, *, image: Image
) -> Decoder:
    """A decoder for rows of this table with these columns in them.

    Columns that an image lacks become NULL texts; whether that may be is for the caller to say.
    """
    if len(columns) != len(definition.columns):
        raise CannotFinish(
            f"{definition.table} has {len(columns)} columns in the log and {len(definition.columns)} in its definition"
        )
    writer = SourceWriter(columns, definition, image)
    readers = _Readers(writer)
    table, marks, pad = definition.table, writer.before.marks, writer.longest_read

    def decode(buf: bytes, pos: int, end: int, keys: Texts, values: Texts) -> int:
        if len(buf) < end + pad:
            buf, pos, end = buf[pos:end] + bytes(pad), 0, end - pos
        count = 0
        try:
            while pos < end:
                reader = readers[buf[pos : pos + marks]]
                pos, count = reader(buf, pos, end, count, keys, values)
        except (struct.error, LookupError, ValueError, OverflowError) as error:
            raise _bad_row(table, error) from None
        if pos != end:
            raise _bad_row(table, f"{pos - end} bytes beyond its end")
        return count

    def decode_updates(
        buf: bytes, pos: int, end: int, keys: Texts, before: Texts, after: Texts
    ) -> tuple[int, list[int]]:
        if len(buf) < end + pad:
            buf, pos, end = buf[pos:end] + bytes(pad), 0, end - pos
        count = 0
        moved: list[int] = []
        try:
            while pos < end:
                reader = readers[buf[pos : pos + marks]]
                pos, count = reader(buf, pos, end, count, keys, before, after, moved)
        except (struct.error, LookupError, ValueError, OverflowError) as error:
            raise _bad_row(table, error) from None
        if pos != end:
            raise _bad_row(table, f"{pos - end} bytes beyond its end")
        return count, moved

    return Decoder(decode, None) if image.after is None else Decoder(None, decode_updates)


def _bad_row(table: str, cause: object) -> CannotFinish:
    return CannotFinish(
        f"a row of {table} in the binary log does not fit the table's definition ({cause}):"
        " was the definition changed without being logged? Take a new snapshot of the table"
    )


class _Readers(dict[bytes, Callable[..., tuple[int, int]]]):
    """Functions by the NULL marks with which a row begins."""

    def __init__(self, writer: SourceWriter) -> None:
        super().__init__()
        self._writer = writer
        self._any = writer.any_row()
        self._seen: dict[bytes, int] = {}
        if not writer.image.partial:
            self[bytes(writer.before.marks)] = writer.rows_like(bytes(writer.before.marks))

    def __missing__(self, nulls: bytes) -> Callable[..., tuple[int, int]]:
        if self._writer.image.partial or len(self) >= _PATTERNS:
            return self._any
        seen = self._seen.get(nulls, 0) + 1
        if seen < _COMMON and not self._writer.before.is_clean(nulls):
            if len(self._seen) >= 16 * _PATTERNS:
                self._seen.clear()
            self._seen[nulls] = seen
            return self._any
        self[nulls] = reader = self._writer.rows_like(nulls)
        return reader
