"""Every combination of ends and wishes has an answer, and the answer is the weakest of the three."""

from __future__ import annotations

from itertools import product

import pytest

from truecopy.model.errors import UsageError
from truecopy.model.guarantees import (
    Consistency,
    Delivery,
    Duplicates,
    Guarantee,
    Refusal,
    SourceLevel,
    TargetLevel,
    effective,
    require,
)

TABLE = list(product(SourceLevel, TargetLevel, Delivery, Consistency))
STRENGTH = list(Consistency)
SOURCE = {"row": "row", "table": "table", "transaction": "transaction"}
TARGET = {
    "primitive": "row",
    "unique-key": "row",
    "logical-clock": "table",
    "transaction": "transaction",
}


@pytest.mark.parametrize(("source", "target", "delivery", "consistency"), TABLE)
def test_whole_table(
    source: SourceLevel, target: TargetLevel, delivery: Delivery, consistency: Consistency
) -> None:
    found = effective(source, target, delivery, consistency)
    refused = (
        delivery == "exactly-once" and (target in ("primitive", "unique-key") or source == "row")
    ) or (delivery == "at-most-once" and consistency != "row")
    if refused:
        assert isinstance(found, Refusal)
        assert str(delivery) in found.reason
        assert found.remedy.startswith("write ")
        return
    assert isinstance(found, Guarantee)
    ends = [consistency, Consistency(SOURCE[source]), Consistency(TARGET[target])]
    assert found.consistency == min(ends, key=STRENGTH.index)
    assert bool(found.weakened) == (found.consistency != consistency)
    assert found.delivery == delivery
    assert found.losses == (delivery == "at-most-once")
    if delivery != "at-least-once":
        assert found.duplicates is Duplicates.NONE
    elif target == "primitive":
        assert found.duplicates is Duplicates.EVERYWHERE
    else:
        assert found.duplicates is Duplicates.WITHOUT_KEY


@pytest.mark.parametrize(("source", "target", "delivery", "consistency"), TABLE)
def test_remedy_of_a_refusal_is_not_refused(
    source: SourceLevel, target: TargetLevel, delivery: Delivery, consistency: Consistency
) -> None:
    found = effective(source, target, delivery, consistency)
    if not isinstance(found, Refusal):
        return
    if "delivery: at-least-once" in found.remedy:
        assert isinstance(effective(source, target, Delivery.AT_LEAST_ONCE, consistency), Guarantee)
    if "consistency: row" in found.remedy:
        assert isinstance(effective(source, target, delivery, Consistency.ROW), Guarantee)


def test_sentences() -> None:
    whole = SourceLevel.TRANSACTION, TargetLevel.TRANSACTION
    assert str(effective(*whole, Delivery.EXACTLY_ONCE, Consistency.TRANSACTION)) == (
        "exactly-once, consistent by transaction; a crash neither loses nor doubles a change"
    )
    assert str(
        effective(
            SourceLevel.TRANSACTION,
            TargetLevel.UNIQUE_KEY,
            Delivery.AT_LEAST_ONCE,
            Consistency.TABLE,
        )
    ) == (
        "at-least-once, consistent by row (the target has no transactions);"
        " a crash may leave duplicates in tables without a key"
    )


def test_require_says_reason_and_remedy() -> None:
    with pytest.raises(UsageError, match=r"exactly-once needs .*; write delivery: at-least-once"):
        require(SourceLevel.TABLE, TargetLevel.PRIMITIVE, Delivery.EXACTLY_ONCE, Consistency.ROW)
