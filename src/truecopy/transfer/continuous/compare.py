"""Rows as changes tell them against rows as the target gives them: column by column, many at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines.loading import floats
from truecopy.model.change import DELETE
from truecopy.model.relation import Relation
from truecopy.model.text import readable_text
from truecopy.model.types import Float, Type
from truecopy.transfer.continuous.options import Tolerance
from truecopy.transfer.effect import Layouts
from truecopy.transfer.proof.keys import pack, restated

MISSING, EXTRA, DIFFERS = "missing", "extra", "differs"

Mask = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Check:
    """How rows of one definition of a table are looked at on the target; plain values for executors.

    Attributes:
        table: The source's name.
        relation: The target's columns, key first, under the agreed types; JSON by meaning.
        names: What reports call these columns.
        places: Where each of them is in a change's row.
        key_places: Where the key's columns are in a change's key.
        own: The types that the texts of a change are of.
    """

    table: str
    relation: Relation
    names: tuple[str, ...]
    places: tuple[int, ...]
    key_places: tuple[int, ...]
    own: tuple[Type, ...]

    @cached_property
    def form(self) -> str:
        """A name for the columns that are looked at, and the types that they are looked at under."""
        told = repr((self.names, self.relation.types))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def width(self) -> int:
        """The columns of the key."""
        return self.relation.key_width

    def key_columns(self, keys: pa.Array) -> list[pa.Array]:
        """Keys of changes, as the target names them."""
        own, agreed = self.own[: self.width], self.relation.key_types
        return [
            restated(pc.list_element(keys, place), a, b)
            for place, a, b in zip(self.key_places, own, agreed, strict=True)
        ]

    def columns(self, rows: pa.Array) -> list[pa.Array]:
        """Rows of changes, as the target would give them."""
        return [
            restated(pc.list_element(rows, place), a, b)
            for place, a, b in zip(self.places, self.own, self.relation.types, strict=True)
        ]


@dataclass(frozen=True)
class Comparer:
    """Tells whether the target holds what changes say.

    Attributes:
        checks: By `schema_id`.
        whole: All columns; else only whether the row is there.
    """

    checks: Mapping[str, Check]
    whole: bool = True
    tolerance: Tolerance = field(default_factory=Tolerance)

    @property
    def layouts(self) -> Layouts:
        return {
            schema_id: dict(zip(check.names, check.places, strict=True))
            for schema_id, check in self.checks.items()
        }

    def forms(self, schema_ids: pa.ChunkedArray) -> pa.Array:
        """The form of what is seen of each definition's rows; NULL for one that is not looked at."""
        whole = (
            schema_ids.combine_chunks() if isinstance(schema_ids, pa.ChunkedArray) else schema_ids
        )
        coded = pc.dictionary_encode(whole)
        # What was seen of keys alone says nothing of columns: a validation may have gone over to the other mode since.
        extent = "" if self.whole else " key"
        found = [
            self.checks[schema_id].form + extent if schema_id in self.checks else None
            for schema_id in coded.dictionary.to_pylist()
        ]
        return pa.array(found, pa.string()).take(coded.indices)

    def equal(self, images: pa.Table, there: Mask, seen: pa.Array) -> Mask:
        """Which images the target holds.

        Args:
            images: Columns of `entries.IMAGE`.
            there: Whether the target had a row by that key.
            seen: That row, as the columns of the check's relation; ignored where it was not there.
        """
        gone = _is_gone(images)
        found: Mask = gone != there
        if not self.whole:
            return found
        waiting = found & there
        for schema_id in pc.unique(images.column("schema_id")).to_pylist():
            at = np.flatnonzero(
                waiting & np.asarray(pc.equal(images.column("schema_id"), schema_id))
            )
            if len(at):
                check = self.checks[schema_id]
                rows = _take(images.column("row"), at)
                left_out = _take(images.column("unchanged"), at)
                other = [pc.list_element(seen.take(at), i) for i in range(len(check.places))]
                found[at] = self.equal_columns(check, rows, left_out, other)
        return found

    def equal_columns(
        self, check: Check, rows: pa.Array, left_out: pa.Array, seen: Sequence[pa.Array]
    ) -> Mask:
        """The same for rows of one definition that are there, column by column."""
        found: Mask = np.ones(len(rows), bool)
        holes = np.asarray(pc.fill_null(pc.list_value_length(left_out), 0)) > 0
        for place, kind, expected, held in zip(
            check.places, check.relation.types, check.columns(rows), seen, strict=True
        ):
            same = _same(expected, held)
            if not same.all() and isinstance(kind, Float) and self.tolerance:
                at = np.flatnonzero(~same)
                same[at] = _close(expected.take(at), held.take(at), self.tolerance)
            if holes.any():
                at = np.flatnonzero(holes & ~same)
                same[at] = [place in places for places in left_out.take(at).to_pylist()]
            found &= same
        return found

    def explain(self, image: Mapping[str, Any], seen: Sequence[str | None] | None) -> Difference:
        """How one row differs, for people."""
        check = self.checks[image["schema_id"]]
        key_texts = [column[0].as_py() for column in check.key_columns(_one(image["key"]))]
        types = check.relation.types
        key = dict(zip(check.names, _readable(key_texts, types), strict=False))
        if image["kind"] == DELETE:
            return Difference(EXTRA, key, (), None, _named(check, seen))
        source = [column[0].as_py() for column in check.columns(_one(image["row"]))]
        if seen is None:
            return Difference(MISSING, key, (), _named(check, source), None)
        left_out = set(image["unchanged"] or ())
        differing = [
            i
            for i, (a, b) in enumerate(zip(source, seen, strict=True))
            if check.places[i] not in left_out
            and a != b
            and not (
                isinstance(types[i], Float)
                and self.tolerance
                and a is not None
                and b is not None
                and _close(pa.array([a]), pa.array([b]), self.tolerance)[0]
            )
        ]
        return Difference(
            DIFFERS,
            key,
            tuple(check.names[i] for i in differing),
            {check.names[i]: readable_text(source[i], types[i]) for i in differing},
            {check.names[i]: readable_text(seen[i], types[i]) for i in differing},
        )


@dataclass(frozen=True)
class Difference:
    """What an error shows: the key, and values by column."""

    kind: str
    key: Mapping[str, str | None]
    columns: tuple[str, ...]
    source: Mapping[str, str | None] | None
    target: Mapping[str, str | None] | None


def packed(keys: Sequence[pa.Array]) -> pa.Array:
    """The columns of keys as one text each."""
    return pack(list(keys))


def _named(check: Check, texts: Sequence[str | None] | None) -> dict[str, str | None] | None:
    if texts is None:
        return None
    return dict(zip(check.names, _readable(texts, check.relation.types), strict=False))


def _readable(texts: Sequence[str | None], types: Sequence[Type]) -> list[str | None]:
    return [readable_text(text, kind) for text, kind in zip(texts, types, strict=False)]


def _one(texts: Sequence[str | None] | None) -> pa.Array:
    return pa.array([texts], pa.list_(pa.string()))


def _is_gone(images: pa.Table) -> Mask:
    return np.asarray(pc.equal(images.column("kind"), DELETE))


def _take(column: pa.ChunkedArray, at: Mask) -> pa.Array:
    taken = column.take(pa.array(at))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _same(a: pa.Array, b: pa.Array) -> Mask:
    both_null = pc.and_(pc.is_null(a), pc.is_null(b))
    return np.array(pc.or_(pc.fill_null(pc.equal(a, b), False), both_null), bool)


def _close(a: pa.Array, b: pa.Array, tolerance: Tolerance) -> Mask:
    """Which pairs of floats (16 hex digits each) are near enough; what is no number is not."""
    usable = np.array(
        pc.fill_null(
            pc.and_(
                pc.match_substring_regex(a, "^[0-9a-f]{16}$"),
                pc.match_substring_regex(b, "^[0-9a-f]{16}$"),
            ),
            False,
        ),
        bool,
    )
    found = np.zeros(len(a), bool)
    at = np.flatnonzero(usable)
    x, y = (np.asarray(floats(pa.chunked_array([side.take(at)]))) for side in (a, b))
    with np.errstate(invalid="ignore", over="ignore"):
        allowed = np.maximum(
            tolerance.relative * np.maximum(np.abs(x), np.abs(y)), tolerance.absolute
        )
        found[at] = (np.abs(x - y) <= allowed) & np.isfinite(x) & np.isfinite(y)
    return found
