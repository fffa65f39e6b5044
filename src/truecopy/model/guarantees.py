"""What a transfer promises: the wish of its task, held against what both of its ends can do.

A source says how its changes belong together, a target what it can write in one go. A delivery that
an end cannot give is refused. A consistency that an end cannot give is weakened to what it can, which
`check` and `status` show with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from truecopy.model.errors import UsageError


class SourceLevel(StrEnum):
    """How the changes of a source belong together.

    Attributes:
        ROW: Each row has a time line of its own; there is no order between rows.
        TABLE: Changes come in one strict order, with positions, and without transactions.
        TRANSACTION: Changes come in commit order, each transaction whole.
    """

    ROW = "row"
    TABLE = "table"
    TRANSACTION = "transaction"


class TargetLevel(StrEnum):
    """What a target can do with what comes.

    Attributes:
        PRIMITIVE: Appends it, with its kind and token.
        UNIQUE_KEY: Replaces a row by its key.
        LOGICAL_CLOCK: Writes rows and progress in one transaction, so it knows what it has seen.
        TRANSACTION: Holds transactions of any size for any time.
    """

    PRIMITIVE = "primitive"
    UNIQUE_KEY = "unique-key"
    LOGICAL_CLOCK = "logical-clock"
    TRANSACTION = "transaction"


class Delivery(StrEnum):
    """Which progress is written first: that is the whole difference."""

    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"
    EXACTLY_ONCE = "exactly-once"


class Consistency(StrEnum):
    """What a reader of the target may rely on, from the weakest to the strongest."""

    ROW = "row"
    TABLE = "table"
    TRANSACTION = "transaction"


class Duplicates(StrEnum):
    """Where a change that came twice may be seen twice."""

    NONE = "none"
    WITHOUT_KEY = "tables without a key"
    EVERYWHERE = "every table"


@dataclass(frozen=True)
class Guarantee:
    """What a task gives.

    Attributes:
        duplicates: Where a crash may leave a change twice.
        losses: Whether a crash may lose changes.
        weakened: Why the consistency is less than was asked for; empty where it is not.
    """

    delivery: Delivery
    consistency: Consistency
    duplicates: Duplicates
    losses: bool
    weakened: str = ""

    def __str__(self) -> str:
        crash = "may lose changes" if self.losses else f"may leave duplicates in {self.duplicates}"
        if not self.losses and self.duplicates is Duplicates.NONE:
            crash = "neither loses nor doubles a change"
        because = f" ({self.weakened})" if self.weakened else ""
        return f"{self.delivery}, consistent by {self.consistency}{because}; a crash {crash}"


@dataclass(frozen=True)
class Refusal:
    """A promise that the two ends cannot keep: why, and what to write in the task instead."""

    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


def effective(
    source: SourceLevel, target: TargetLevel, delivery: Delivery, consistency: Consistency
) -> Guarantee | Refusal:
    """What a task with these ends and wishes gives, or why it cannot be had."""
    if refusal := _refuse(source, target, delivery, consistency):
        return refusal
    given, weakened = _weaker(source, target, consistency)
    return Guarantee(
        delivery=delivery,
        consistency=given,
        duplicates=_duplicates(target, delivery),
        losses=delivery is Delivery.AT_MOST_ONCE,
        weakened=weakened,
    )


def require(
    source: SourceLevel, target: TargetLevel, delivery: Delivery, consistency: Consistency
) -> Guarantee:
    """As `effective`, with a refusal as an error."""
    found = effective(source, target, delivery, consistency)
    if isinstance(found, Refusal):
        raise UsageError(str(found))
    return found


_STRENGTH = list(Consistency)
_SOURCE_GIVES = {
    SourceLevel.ROW: (Consistency.ROW, "the source has no order between rows"),
    SourceLevel.TABLE: (Consistency.TABLE, "the source does not tell its transactions"),
    SourceLevel.TRANSACTION: (Consistency.TRANSACTION, ""),
}
_TARGET_GIVES = {
    TargetLevel.PRIMITIVE: (Consistency.ROW, "the target appends rows without transactions"),
    TargetLevel.UNIQUE_KEY: (Consistency.ROW, "the target has no transactions"),
    TargetLevel.LOGICAL_CLOCK: (Consistency.TABLE, "the target bounds its transactions"),
    TargetLevel.TRANSACTION: (Consistency.TRANSACTION, ""),
}
_KEEPS_PROGRESS_WITH_ROWS = (TargetLevel.LOGICAL_CLOCK, TargetLevel.TRANSACTION)


def _refuse(
    source: SourceLevel, target: TargetLevel, delivery: Delivery, consistency: Consistency
) -> Refusal | None:
    if delivery is Delivery.EXACTLY_ONCE and target not in _KEEPS_PROGRESS_WITH_ROWS:
        keyed = target is TargetLevel.UNIQUE_KEY
        return Refusal(
            "delivery: exactly-once needs a target that writes rows and progress in one transaction,"
            f" and this one is {target}",
            "write delivery: at-least-once"
            + (", with which tables that have a key show no duplicates" if keyed else ""),
        )
    if delivery is Delivery.EXACTLY_ONCE and source is SourceLevel.ROW:
        return Refusal(
            "delivery: exactly-once needs a source whose changes are in one order, so that those seen"
            " before can be told, and this one orders each row alone",
            "write delivery: at-least-once",
        )
    if delivery is Delivery.AT_MOST_ONCE and consistency is not Consistency.ROW:
        return Refusal(
            f"delivery: at-most-once may lose changes, after which no {consistency} of the target"
            " equals the source's",
            "write consistency: row, or delivery: at-least-once",
        )
    return None


def _weaker(
    source: SourceLevel, target: TargetLevel, wanted: Consistency
) -> tuple[Consistency, str]:
    """The weakest of the three, and what made it weaker than the wish."""
    ends = (wanted, ""), _SOURCE_GIVES[source], _TARGET_GIVES[target]
    return min(ends, key=lambda end: _STRENGTH.index(end[0]))


def _duplicates(target: TargetLevel, delivery: Delivery) -> Duplicates:
    if delivery is not Delivery.AT_LEAST_ONCE:
        return Duplicates.NONE
    return Duplicates.EVERYWHERE if target is TargetLevel.PRIMITIVE else Duplicates.WITHOUT_KEY
