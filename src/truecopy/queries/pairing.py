"""Rows of two results paired, and what differs between them: pure, for the driver and for Spark's tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truecopy.model.text import canonical_json, readable_text
from truecopy.model.types import Json, Type
from truecopy.queries.settings import Settings
from truecopy.queries.verdict import close

Row = tuple[str | None, ...]
Rows = Mapping[Row, int]
"""Rows and how often each is there."""


@dataclass(frozen=True)
class Place:
    """What is known of one text of a row."""

    label: str
    kind: Type
    is_float: bool


@dataclass(frozen=True)
class Pairing:
    """How rows are told apart and compared.

    Attributes:
        key: Places that tell rows apart; where there are none, rows are counted as wholes.
        settings: The margins of floats.
    """

    places: tuple[Place, ...]
    key: tuple[int, ...]
    settings: Settings

    def differences(self, control: Rows, test: Rows) -> Iterator[dict[str, Any]]:
        """Rows that only one side has, or whose places differ where a key pairs them."""
        one, other = self._by_meaning(control), self._by_meaning(test)
        for mine, theirs in self._pairs(one - other, other - one):
            found = self._described(mine, theirs)
            if found is not None:
                yield found

    def _by_meaning(self, rows: Rows) -> Counter[Row]:
        """Documents by their canonical text, whatever an engine prints."""
        documents = {i for i, place in enumerate(self.places) if isinstance(place.kind, Json)}
        if not documents:
            return Counter(rows)
        found: Counter[Row] = Counter()
        for row, count in rows.items():
            texts = (
                canonical_json(text) if i in documents and text is not None else text
                for i, text in enumerate(row)
            )
            found[tuple(texts)] += count
        return found

    def _pairs(
        self, control: Counter[Row], test: Counter[Row]
    ) -> Iterator[tuple[Row | None, Row | None]]:
        floats = any(place.is_float for place in self.places)
        # Without a key, rows that differ in nothing but floats are still the same rows.
        exact = [i for i, place in enumerate(self.places) if not place.is_float]
        names = self.key or (exact if floats else ())
        if not names:
            yield from ((row, None) for row in control.elements())
            yield from ((None, row) for row in test.elements())
            return
        one, other = _named(control, names), _named(test, names)
        for name in sorted(one.keys() | other.keys(), key=str):
            mine, theirs = one[name].elements(), other[name].elements()
            for row in mine:
                yield row, next(theirs, None)
            yield from ((None, row) for row in theirs)

    def _described(self, control: Row | None, test: Row | None) -> dict[str, Any] | None:
        everything = range(len(self.places))
        if control is not None and test is not None:
            columns = [i for i in everything if not self._equal(control[i], test[i], i)]
            if not columns:
                return None
            return {
                "kind": "differs",
                "key": self._shown(control, self.key),
                "columns": [self.places[i].label for i in columns],
                "control": self._shown(control, columns),
                "test": self._shown(test, columns),
            }
        row = control if control is not None else test
        assert row is not None
        kind, side = ("missing", "control") if test is None else ("extra", "test")
        return {"kind": kind, "key": self._shown(row, self.key), side: self._shown(row, everything)}

    def _shown(self, row: Row, places: Sequence[int]) -> dict[str, str | None]:
        return {self.places[i].label: readable_text(row[i], self.places[i].kind) for i in places}

    def _equal(self, control: str | None, test: str | None, at: int) -> bool:
        place = self.places[at]
        if control == test or not place.is_float or control is None or test is None:
            return control == test
        try:
            a, b = (float(readable_text(text, place.kind) or "nan") for text in (control, test))
        except ValueError:
            return False
        return close(a, b, self.settings)


def _named(rows: Counter[Row], names: Sequence[int]) -> defaultdict[Row, Counter[Row]]:
    found: defaultdict[Row, Counter[Row]] = defaultdict(Counter)
    for row, count in rows.items():
        found[tuple(row[i] for i in names)][row] = count
    return found
