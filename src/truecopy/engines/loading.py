"""Rows of canonical text on their way into a database: what every bulk load shares.

Whole columns are turned at once, in Arrow and NumPy; a Python value per value costs more than the
database does. What a column would round, cut or refuse is found here, before it is sent, and named:
databases round times, decimals and floats without a word, and differ in what they say of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.errors import CannotFinish, KeyTaken, UsageError
from truecopy.model.relation import Relation
from truecopy.model.table import Column, TableName
from truecopy.model.text import readable_text
from truecopy.model.types import (
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Type,
    Unsupported,
    Uuid,
)

_PIECE_BYTES = 16 << 20
_SHOWN = 60
_NIBBLE = np.zeros(256, np.uint8)
_NIBBLE[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


class RowRefused(CannotFinish):
    """A row that the target does not take; the message names it."""


class DuplicateRow(RowRefused, KeyTaken):
    """One whose key another row has."""


def target_table(relation: Relation) -> TableName:
    """The one table that rows are written to."""
    if len(relation.tables) != 1:
        raise UsageError("rows can be written to one table only, not to several that were merged")
    return relation.tables[0]


def written(relation: Relation) -> list[int]:
    """The numbers of the columns that a load gives values for."""
    return [i for i, column in enumerate(relation.columns) if not column.generated]


def comment(annotation: str | None) -> str:
    """The first comment of a statement; nothing without an annotation."""
    if annotation is None:
        return ""
    if "*/" in annotation or annotation.startswith(("!", "M!", "+")):
        raise UsageError(f"not an annotation: {annotation!r} would end or change its comment")
    return f"/* {annotation} */ "


def pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in parts of some megabytes, so that what is made of them stays small."""
    average = rows.nbytes // max(rows.num_rows, 1) + 1
    step = max(1, _PIECE_BYTES // average)
    for at in range(0, rows.num_rows, step):
        yield rows.slice(at, step)


def row_name(relation: Relation, rows: pa.Table, number: int) -> str:
    """How a message calls a row: by its key, else by its first columns."""
    width = relation.key_width or min(3, len(relation.columns))
    parts = []
    for i in range(width):
        text = readable_text(rows.column(i)[number].as_py(), relation.types[i])
        shown = "NULL" if text is None else text[:_SHOWN]
        parts.append(f"{relation.columns[i].name}={shown}")
    return f"row {', '.join(parts)}"


def refuse(
    relation: Relation, rows: pa.Table, number: int, why: str, kind: type[RowRefused] = RowRefused
) -> RowRefused:
    """The error that names one of the rows."""
    table = ", ".join(map(str, relation.tables))
    return kind(
        f"{table} on {relation.endpoint} cannot take {row_name(relation, rows, number)}: {why}"
    )


def require_fit(relation: Relation, rows: pa.Table) -> None:
    """Raises `RowRefused` for the first value that a column would change in silence."""
    for i in written(relation):
        column, kind, texts = relation.columns[i], relation.types[i], rows.column(i)
        if texts.null_count and not column.nullable:
            number = pc.index(pc.is_null(texts), True).as_py()
            raise refuse(relation, rows, number, f"{column.name} is NULL, which it must not be")
        for wrong, why in _misfits(column, kind, texts):
            number = pc.index(wrong, True).as_py()
            if number >= 0:
                value = readable_text(texts[number].as_py(), kind) or ""
                shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
                raise refuse(
                    relation,
                    rows,
                    number,
                    f"{column.name} ({column.native}) holds {shown!r}, {why}",
                )


def require_all(relation: Relation, rows: pa.Table, taken: int) -> int:
    """Raises where a trigger or a rule of the target kept rows out; else the number again."""
    if taken != rows.num_rows:
        raise CannotFinish(
            f"{target_table(relation)} on {relation.endpoint} took {taken} of {rows.num_rows} rows:"
            " does a trigger or a rule keep the others out?"
        )
    return taken


def own_texts(column: Column, kind: Type, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Canonical texts under the agreed type as texts that a column of this type reads.

    Binary stays hex and bits stay bits: how those are written is the engine's matter.
    """
    kind = own_kind(column, kind)
    own = column.type
    if isinstance(kind, Float):
        return pc.cast(floats(texts), pa.string())
    if isinstance(kind, Decimal) and isinstance(own, Integer | Boolean):
        return pc.replace_substring_regex(texts, r"\.0*$", "")
    if isinstance(kind, Timestamp) and isinstance(own, Date):
        return pc.replace_substring_regex(texts, r" 00:00:00\.0*$", "")
    return texts


def own_kind(column: Column, kind: Type) -> Type:
    """The type by which a text is read: a column compared as text holds what its own type says."""
    plain = isinstance(kind, Text) and not isinstance(column.type, Text | Unsupported)
    return column.type if plain and not column.weak else kind


def floats(bits: pa.ChunkedArray) -> pa.ChunkedArray:
    """From 16 hex digits to the doubles with these bits."""
    chunks = [_doubles(chunk) for chunk in bits.chunks]
    return pa.chunked_array(chunks, pa.float64())


def by_value(
    texts: pa.ChunkedArray, turn: Callable[[str], str], type_: pa.DataType | None = None
) -> pa.ChunkedArray:
    """One value at a time, for types too rare to be turned as a column."""
    turned = [None if text is None else turn(text) for text in texts.to_pylist()]
    return pa.chunked_array([pa.array(turned, type_ or pa.string())])


def lines(columns: Sequence[pa.ChunkedArray], escapes: Mapping[str, str]) -> Iterator[memoryview]:
    r"""Rows as lines of fields between tabs, NULL as `\N`: the bytes of LOAD DATA and of COPY.

    Args:
        columns: The texts, column by column.
        escapes: What stands for a character that would be read otherwise, the backslash first.
    """
    safe = [pc.fill_null(_escaped(column, escapes), "\\N") for column in columns]
    safe[-1] = pc.binary_join_element_wise(safe[-1], "", "\n")
    joined = pc.binary_join_element_wise(*safe, "\t") if len(safe) > 1 else safe[0]
    chunks = joined.chunks if isinstance(joined, pa.ChunkedArray) else [joined]
    for chunk in chunks:
        yield _data(chunk)


def _escaped(texts: pa.ChunkedArray, escapes: Mapping[str, str]) -> pa.ChunkedArray:
    for chunk in texts.chunks:
        data = np.frombuffer(_data(chunk), np.uint8)
        if (data < 14).any() or (data == 92).any():
            break
    else:
        return texts
    for character, replacement in escapes.items():
        texts = pc.replace_substring(texts, character, replacement)
    return texts


def _data(chunk: pa.Array) -> memoryview:
    """The bytes of all texts of an array, one after the other."""
    _, offsets, data = chunk.buffers()
    if data is None or not len(chunk):
        return memoryview(b"")
    places = np.frombuffer(offsets, np.int32)
    return memoryview(data)[places[chunk.offset] : places[chunk.offset + len(chunk)]]


def _doubles(bits: pa.Array) -> pa.Array:
    filled = pc.fill_null(bits, "0" * 16)
    digits = np.frombuffer(_data(filled), np.uint8)
    if len(digits) != 16 * len(bits):
        raise CannotFinish("a float that is not given as 16 hex digits")
    nibbles = _NIBBLE[digits]
    numbers = (nibbles[0::2] << 4 | nibbles[1::2]).view(">f8").astype("f8")
    mask = None if not bits.null_count else np.asarray(bits.is_null())
    return pa.array(numbers, pa.float64(), mask=mask)


def _misfits(
    column: Column, kind: Type, texts: pa.ChunkedArray
) -> Iterator[tuple[pa.ChunkedArray, str]]:
    """Which values do not fit, and why not, for each way not to."""
    kind = own_kind(column, kind)
    if not isinstance(kind, Text | Json | Uuid):
        # Weak sources hold what is not of their type; a weak target takes it.
        if column.weak:
            return
        yield pc.starts_with(texts, "?"), "which is not of that type"
    own = column.type
    if isinstance(kind, Float) and isinstance(own, Float) and is_single(column.native):
        numbers = floats(texts)
        narrow = [np.asarray(c.fill_null(0.0)).astype("f4").astype("f8") for c in numbers.chunks]
        kept = pa.chunked_array([pa.array(part) for part in narrow], pa.float64())
        # NaN differs from itself and is kept.
        changed = pc.and_(pc.not_equal(numbers, kept), pc.invert(pc.is_nan(numbers)))
        yield changed, "which takes more than the 24 bits of a single"
    digits = _digits_kept(column)
    if digits is not None and isinstance(kind, Decimal | Time | Timestamp):
        beyond = rf"\.[0-9]{{{digits}}}[0-9]*[1-9]"
        yield pc.match_substring_regex(texts, beyond), "with more digits than it keeps"
    if isinstance(own, Date) and isinstance(kind, Timestamp):
        yield pc.invert(pc.ends_with(texts, " 00:00:00.000000")), "which is more than a day"
    size = text_size(column)
    if size is not None and isinstance(kind, Text):
        yield pc.greater(pc.utf8_length(texts), size), f"which is longer than {size} characters"


def is_single(native: str) -> bool:
    """Whether a float of this declaration has 32 bits."""
    word = native.lower().partition("(")[0].split(" ")[0]
    return word in ("float", "real", "float4")


def _digits_kept(column: Column) -> int | None:
    """Digits after the point of a second or of a number; None where all are kept."""
    match column.type:
        case Decimal(scale):
            return scale
        case Integer() | Boolean():
            return 0
        case Time() | Timestamp():
            if column.fraction is not None:
                return None if column.fraction >= 6 else column.fraction
            named = {"TIMESTAMP_S": 0, "TIMESTAMP_MS": 3}.get(column.native)
            sized = re.search(r"\((\d)\)", column.native)
            return named if named is not None else int(sized[1]) if sized else None
        case _:
            return None


def text_size(column: Column) -> int | None:
    """The most characters that a column of text may hold, where it declares that."""
    sized = re.fullmatch(r"(?:var)?char(?:acter)?(?: varying)?\((\d+)\).*", column.native.lower())
    return int(sized[1]) if sized and isinstance(column.type, Text) and not column.weak else None


def texts_of_key(keys: pa.Table) -> list[tuple[Any, ...]]:
    """Keys as tuples, for statements that list them."""
    return list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
