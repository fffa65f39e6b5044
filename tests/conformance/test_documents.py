"""JSON by meaning, arrays by item, and text that is read as another type on request."""

from __future__ import annotations

from tests.conformance.cases import Case
from tests.conformance.check import conforms, named
from tests.conformance.documents import ARRAYS, DOCUMENTS, READINGS
from tests.conformance.engines import Engine


@named(DOCUMENTS)
def test_documents(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(ARRAYS)
def test_arrays(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(READINGS)
def test_text_read_as_another_type(engine: Engine, case: Case) -> None:
    conforms(engine, case)
