"""Keys of every type, cut into ranges and compared across engines: no row falls between two ranges.

Two engines may order a key differently (UUIDs, text, dates before our era): a range of keys must be
the same set of rows on both sides, or ranges must not be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest

import truecopy
from tests.conformance.cases import ENGINES, Case, Storage
from tests.conformance.check import generated, named
from tests.conformance.engines import Engine
from tests.conformance.test_rows import KEYS
from truecopy.engines.protocols import Introspects
from truecopy.model.text import canonical_text
from truecopy.verify.matching import Comparison, Pairing, match
from truecopy.verify.options import Options
from truecopy.verify.report import Report

CHUNK = 20
DATABASES = [name for name in ENGINES if name != "lake"]
PAIRS = [*pairwise(DATABASES), ("duckdb", "mariadb"), *((name, name) for name in DATABASES)]


def _is_uuid(text: str) -> bool:
    return re.fullmatch(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", text) is not None


WRITTEN_OTHERWISE = {
    ("sqlite", "uuid"): Storage("TEXT", store=lambda value: str(value).upper()),
    ("postgresql", "uuid in text"): Storage("UUID", holds=_is_uuid),
    ("duckdb", "uuid in text"): Storage("UUID", holds=_is_uuid),
    ("duckdb", "uuid in bytes"): Storage("UUID", store=str),
    ("sqlite", "uuid in bytes"): Storage("UUID", store=lambda value: str(value).upper()),
}
"""Where the other side keeps the same values in another way than the case says."""


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUECOPY_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@named(KEYS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_ranges_of_keys_are_the_same_rows_on_both_sides(
    request: pytest.FixtureRequest, source: str, target: str, case: Case
) -> None:
    storages = [
        case.storages.get(source),
        WRITTEN_OTHERWISE.get((target, case.name), case.storages.get(target)),
    ]
    if None in storages:
        pytest.skip("an engine without such a column")
    values = _keys(case, [storage for storage in storages if storage])
    engines: list[Engine] = [request.getfixturevalue(f"{name}_engine") for name in (source, target)]
    for engine, name, storage in zip(engines, ("ks", "kt"), storages, strict=True):
        assert storage is not None
        engine.make(name, storage, list(enumerate(values)))
    equal = _verify(engines)
    assert (equal.verdict, equal.tables[0].rows_compared) == ("equal", len(values))

    changed = {len(values) // 3: 1_000_003, len(values) // 2: None}
    rows = [(changed.get(number, number), value) for number, value in enumerate(values)]
    assert storages[1] is not None
    engines[1].make("kt", storages[1], [(n, value) for n, value in rows if n is not None])
    report = _verify(engines)
    found = sorted(d["kind"] for d in report.to_dict()["tables"][0]["differences"])
    assert found == ["differs", "missing"]


def _verify(engines: list[Engine]) -> Report:
    """In small ranges where the two sides order the key alike, else in one: without Spark."""
    choices = Options(tables=("ks=kt",), key=("v",))
    with engines[0].session() as source, engines[1].session() as target:
        here, there = cast(Introspects, source).find("ks"), cast(Introspects, target).find("kt")
        assert here is not None
        assert there is not None
        matched = match(source, target, Pairing((here,), there), choices)
    assert isinstance(matched, Comparison), matched
    if matched.ordered:
        choices = replace(choices, chunk_rows=CHUNK)
    return truecopy.verify(engines[0].url, engines[1].url, options=choices, fresh=True)


def _keys(case: Case, storages: list[Storage]) -> list[Any]:
    """One value for each canonical text that both sides can hold."""
    found: dict[str | None, Any] = {}
    for value in (*case.edges, *generated(case)):
        if all(storage.holds(value) for storage in storages):
            texts = {canonical_text(storage.kept(value), case.agreed) for storage in storages}
            if len(texts) == 1:
                found.setdefault(texts.pop(), value)
    return list(found.values())
