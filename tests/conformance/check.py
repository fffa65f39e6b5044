"""The one check of the suite: what an engine computes equals the reference, value by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.cases import Case
from tests.conformance.engines import Engine
from truecopy.model.fingerprint import digest_of, fingerprint
from truecopy.model.text import canonical_text
from truecopy.model.types import Integer, Json, Type

EXAMPLES = 4
VALUES = 50


def conforms(engine: Engine, case: Case) -> None:
    """Tries the edges and generated values of a case on an engine that can hold them."""
    if engine.storage(case) is None:
        pytest.skip(case.absent.get(engine.name, "no such column"))
    compare(engine, case, [None, *case.edges, *generated(case), None])


def generated(case: Case) -> list[Any]:
    """All examples in one list, for one table: a failure names its values, so none is shrunk."""
    gathered: list[Any] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(case.values, min_size=VALUES, max_size=2 * VALUES))
    def gather(drawn: list[Any]) -> None:
        gathered.extend(drawn)

    gather()
    return gathered


def compare(engine: Engine, case: Case, values: Sequence[Any], table: str = "t") -> None:
    """Puts the values into a table and compares all that the engine says of them."""
    storage = engine.storage(case)
    assert storage is not None
    rows = [
        (key, value)
        for key, value in enumerate(values, start=-2)
        if value is None or storage.holds(value)
    ]
    engine.make(table, storage, rows)
    types = (Integer(), case.agreed)
    expected = {
        key: None if value is None else canonical_text(storage.kept(value), case.agreed)
        for key, value in rows
    }
    texts, prints, digest = engine.read(table, case.agreed)
    wanted = {key: reference((str(key), text), types) for key, text in expected.items()}
    assert texts.keys() == prints.keys() == expected.keys()
    _same(rows, expected, texts, "text")
    _same(rows, wanted, prints, "fingerprint")
    assert digest == digest_of(wanted.values())


def reference(texts: Sequence[str | None], types: Sequence[Type]) -> int:
    """The fingerprint of a row; documents compared by meaning are folded into that of the rest."""
    documents = [isinstance(kind, Json) and not kind.form for kind in types]
    rest = [i for i, document in enumerate(documents) if not document]
    partial = fingerprint([texts[i] for i in rest], [types[i] for i in rest])
    if not any(documents):
        return partial
    folded = [text for text, document in zip(texts, documents, strict=True) if document]
    return fingerprint([str(partial), *folded], [Integer(), *(Json() for _ in folded)])


def _same(rows: Sequence[tuple[int, Any]], wanted: Any, found: Any, what: str) -> None:
    wrong = [
        f"{value!r:.120}: expected {what} {wanted[key]!r:.160}, got {found[key]!r:.160}"
        for key, value in rows
        if wanted[key] != found[key]
    ]
    assert not wrong, f"{len(wrong)} of {len(rows)} values:\n" + "\n".join(wrong[:12])


def named(cases: Sequence[Case]) -> Callable[[Any], Any]:
    """A parametrisation over cases, by name."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
