"""Days, times and instants: in every calendar corner, and whatever zone a session is in."""

from __future__ import annotations

from tests.conformance.cases import Case
from tests.conformance.check import conforms, named
from tests.conformance.engines import Engine
from tests.conformance.times import DATES, INSTANTS, TIMES, WALL_CLOCKS


@named(DATES)
def test_days(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(TIMES)
def test_times(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(WALL_CLOCKS)
def test_wall_clocks(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(INSTANTS)
def test_instants(engine: Engine, case: Case) -> None:
    conforms(engine, case)
