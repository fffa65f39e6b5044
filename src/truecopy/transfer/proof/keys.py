"""Keys of changed rows, in the one form in which both sides name a row.

A log gives a key under the type that its table had; the two sides of a comparison give it under the type
that they agreed on. A key that is looked for in the wrong form matches nothing on either side, and
nothing equals nothing: so every key is brought into the agreed form before it is kept.

Kept, a key is one text: its parts between separators. All of this works on whole Arrow columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.model.change import Definition
from truecopy.model.relation import Key
from truecopy.model.text import canonical_text, readable_text
from truecopy.model.types import Binary, Bits, Type

_SEPARATOR, _ESCAPE = "\x1f", "\x1e"
_ESCAPED = ((_ESCAPE, _ESCAPE + "0"), (_SEPARATOR, _ESCAPE + "1"))
_NULL = _ESCAPE + "N"


@dataclass(frozen=True)
class KeyForm:
    """How a key of the log becomes one of a comparison.

    Attributes:
        places: Where each column of the comparison's key is in the log's key.
        own: The types that the texts are of.
        agreed: The types that they are wanted in.
    """

    places: tuple[int, ...]
    own: tuple[Type, ...]
    agreed: tuple[Type, ...]


def key_form(key: Sequence[str], types: tuple[Type, ...], definition: Definition) -> KeyForm | None:
    """Matches the key that changes are logged by with that of a comparison.

    None where the log's key does not have all of it: such changes do not say which rows to look at, as those that were
    made under another primary key.

    Args:
        key: Names of the comparison's key, as the logged table has them.
        types: On which the comparison agreed for them.
        definition: What the changes were logged under.
    """
    names = [name.lower() for name in definition.key]
    if not {name.lower() for name in key} <= set(names):
        return None
    places = tuple(names.index(name.lower()) for name in key)
    own = tuple(definition.columns[definition.key_places[place]].type for place in places)
    return KeyForm(places, own, types)


def packed_keys(lists: pa.ChunkedArray | pa.Array, form: KeyForm) -> pa.Array:
    """Keys as a log gives them (a list of texts each) as the texts that are kept."""
    whole = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    columns = [
        restated(pc.list_element(whole, place), own, agreed)
        for place, own, agreed in zip(form.places, form.own, form.agreed, strict=True)
    ]
    return pack(columns)


def pack(columns: list[pa.Array]) -> pa.Array:
    """Columns of a key as one text each."""
    safe = []
    for column in columns:
        texts = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        for character, replacement in _ESCAPED:
            texts = pc.replace_substring(texts, character, replacement)
        safe.append(pc.fill_null(texts, _NULL))
    return safe[0] if len(safe) == 1 else pc.binary_join_element_wise(*safe, _SEPARATOR)


def unpack(packed: list[str]) -> list[Key]:
    """The inverse of `pack`, as tuples for statements."""
    return [tuple(map(_unescaped, text.split(_SEPARATOR))) for text in packed]


def restated(texts: pa.Array, own: Type, agreed: Type) -> pa.Array:
    """Texts of one type as those of another; each value once, since this is rare."""
    if own == agreed:
        return texts
    coded = pc.dictionary_encode(texts)
    values = [canonical_text(_value(text, own), agreed) for text in coded.dictionary.to_pylist()]
    return pc.take(pa.array(values, pa.string()), coded.indices)


def _unescaped(part: str) -> str | None:
    if part == _NULL:
        return None
    if _ESCAPE in part:
        for character, replacement in reversed(_ESCAPED):
            part = part.replace(replacement, character)
    return part


def _value(text: str, own: Type) -> object:
    if text.startswith("?"):
        return readable_text(text, own)
    if isinstance(own, Binary):
        return bytes.fromhex(text)
    if isinstance(own, Bits):
        return int(text, 2)
    return readable_text(text, own)
