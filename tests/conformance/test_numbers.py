"""Numbers: every engine writes and fingerprints them as the reference does."""

from __future__ import annotations

from tests.conformance.cases import Case
from tests.conformance.check import conforms, named
from tests.conformance.engines import Engine
from tests.conformance.numbers import DECIMALS, FLOATS, WHOLE_NUMBERS


@named(WHOLE_NUMBERS)
def test_whole_numbers(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(DECIMALS)
def test_decimals(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(FLOATS)
def test_floats(engine: Engine, case: Case) -> None:
    conforms(engine, case)
