"""Text, bytes, bits and UUIDs: to the last space, the last byte and the last accent."""

from __future__ import annotations

from tests.conformance.cases import Case
from tests.conformance.check import conforms, named
from tests.conformance.engines import Engine
from tests.conformance.texts import BITS, BYTES, TEXTS, UUIDS


@named(TEXTS)
def test_texts(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(BYTES)
def test_bytes(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(UUIDS)
def test_uuids(engine: Engine, case: Case) -> None:
    conforms(engine, case)


@named(BITS)
def test_bits(engine: Engine, case: Case) -> None:
    conforms(engine, case)
