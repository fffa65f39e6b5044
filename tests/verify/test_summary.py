"""Verdicts: no answer without evidence."""

from __future__ import annotations

import pytest

from truecopy.model.endpoint import parse_endpoint
from truecopy.model.fingerprint import Digest
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Float, Integer, Json, Type
from truecopy.verify.compare import ChunkResult
from truecopy.verify.matching import Comparison, match_tables
from truecopy.verify.options import Options
from truecopy.verify.summary import table_report, to_record

NUMBER = Integer()


def comparison(kind: Type = NUMBER, options: Options | None = None) -> Comparison:
    columns = (
        Column("id", Integer(), "int", nullable=False, order="number"),
        Column("v", kind, "x"),
    )
    table = Table(TableName(None, "t"), columns, keys=(("id",),))
    end = parse_endpoint("sqlite:///x.db")
    return match_tables(end, (table,), end, table, options or Options())


def verdict(source: Digest, target: Digest, kind: Type = NUMBER, **choices: object) -> str:
    options = Options(**choices)  # type: ignore[arg-type]
    record = to_record(ChunkResult(0, 0, source, target))
    return table_report(comparison(kind, options), 0, [record], 1, options, None).verdict


def test_equal_needs_equal_digests() -> None:
    assert verdict(Digest(3, 30), Digest(3, 30)) == "equal"
    assert verdict(Digest(3, 30), Digest(3, 31)) == "not_compared"
    assert verdict(Digest(3, 30), Digest(2, 30)) == "not_compared"


def test_nothing_compared_is_not_a_pass() -> None:
    assert verdict(Digest(), Digest()) == "not_compared"


@pytest.mark.parametrize(
    ("kind", "choices"), [(Json("mysql"), {}), (Float(), {"float_tolerance": 1e-9})]
)
def test_equal_by_meaning_may_have_other_digests(kind: Type, choices: dict[str, float]) -> None:
    assert verdict(Digest(3, 30), Digest(3, 31), kind, **choices) == "equal"
    assert verdict(Digest(3, 30), Digest(2, 31), kind, **choices) == "not_compared"


def test_stopped_before_the_end_is_not_equal() -> None:
    record = to_record(ChunkResult(0, 0, Digest(3, 30), Digest(3, 30)))
    table = table_report(comparison(), 0, [record], 5, Options(), "stopped after 1 seconds")
    assert (table.verdict, table.complete) == ("not_compared", False)
    assert "3 rows" in (table.reason or "")
