"""The servers themselves: rights, settings, limits, space."""

from __future__ import annotations

from collections.abc import Iterator

from truecopy.engines.advice import Arrival, RowLimit
from truecopy.model.finding import Finding, Subject
from truecopy.model.table import Table
from truecopy.model.types import Binary
from truecopy.transfer.preflight.ends import Ends, Pair, error, info, warning
from truecopy.transfer.preflight.estimate import size
from truecopy.transfer.preflight.fit import longest_row

_MODES = (
    "ANSI_QUOTES",
    "NO_BACKSLASH_ESCAPES",
    "NO_ZERO_DATE",
    "NO_ZERO_IN_DATE",
    "ONLY_FULL_GROUP_BY",
    "PAD_CHAR_TO_FULL_LENGTH",
    "PIPES_AS_CONCAT",
    "STRICT_ALL_TABLES",
    "STRICT_TRANS_TABLES",
)
"""Modes under which statements mean something else, or fail."""


def check_source_server(ends: Ends) -> Iterator[Finding]:
    """What the source says."""
    if ends.source_advisor is not None:
        yield from ends.source_advisor.as_source([pair.source for pair in ends.pairs])


def check_target_server(ends: Ends) -> Iterator[Finding]:
    """What the target says."""
    if ends.target_advisor is not None:
        yield from ends.target_advisor.as_target(_arrival(ends))


def check_target_rights(ends: Ends) -> Iterator[Finding]:
    """What the user may do on the target."""
    if ends.target_advisor is None:
        yield info(Subject.RIGHTS, "the rights on the target could not be looked at")
    else:
        yield from ends.target_advisor.missing_rights(_arrival(ends))


def check_modes(ends: Ends) -> Iterator[Finding]:
    """The task sets its own modes; programs that move with the data will not."""
    if ends.source_advisor is None or ends.target_advisor is None:
        return
    here, there = ends.source_advisor.sql_mode(), ends.target_advisor.sql_mode()
    if here is None or there is None:
        return
    differ = [mode for mode in _MODES if (mode in here) != (mode in there)]
    if differ:
        yield warning(
            Subject.SETTINGS,
            f"the sql_mode of the two differs in {', '.join(differ)}: the copy does not depend on it, programs that"
            " change over to the target may",
            ends.target_advisor.set_sql_mode(here),
        )


def check_row_sizes(ends: Ends) -> Iterator[Finding]:
    """Rows that may be larger than a server takes or gives."""
    if ends.source_advisor is None or ends.target_advisor is None:
        return
    sides = (("source", ends.source_advisor), ("target", ends.target_advisor))
    limits = [(side, limit) for side, one in sides if (limit := one.row_limit()) is not None]
    for pair in ends.pairs:
        bound = longest_row(pair.read)
        narrow = [(side, limit) for side, limit in limits if bound is None or bound > limit.bytes]
        if not narrow:
            continue
        side, limit = min(narrow, key=lambda one: one[1].bytes)
        yield from _row_size(ends, pair, side, limit)


def check_space(ends: Ends) -> Iterator[Finding]:
    """What is left on the target, against what comes."""
    needed = ends.estimate.bytes
    comes = f"the rows take about {size(needed)}, and indexes some more"
    if ends.target_advisor is None:
        yield info(Subject.SPACE, f"the free space of the target could not be found out; {comes}")
        return
    free = ends.target_advisor.free_bytes()
    hint = ends.target_advisor.space_hint()
    if ends.begun:
        return  # what is there already is not told from what is still to come
    if free is None:
        yield info(
            Subject.SPACE, f"the target does not say how much space it has left; {comes}", hint
        )
    elif free < needed:
        yield error(
            Subject.SPACE, f"the target has {size(free)} left; {comes}", f"make room ({hint})"
        )
    elif free < 2 * needed:
        yield warning(
            Subject.SPACE, f"the target has {size(free)} left; {comes}", f"make room ({hint})"
        )


def _row_size(ends: Ends, pair: Pair, side: str, limit: RowLimit) -> Iterator[Finding]:
    assert ends.source_advisor is not None
    held = f"{limit.setting} of the {side} is {size(limit.bytes)}"
    if not pair.is_small:
        yield info(
            Subject.SETTINGS,
            f"{held}, and rows may be larger; the table is too large to look for that",
            limit.remedy,
            pair.name,
        )
        return
    largest = ends.source_advisor.largest_row(pair.read)
    # Bytes travel as hex digits, two each.
    factor = 2 if any(isinstance(c.type, Binary) for c in pair.read.columns) else 1
    if largest * factor >= limit.bytes:
        # A row that the filter drops does not come this far.
        found = error if pair.tells else warning
        yield found(
            Subject.SETTINGS,
            f"{held}, and a row takes {size(largest * factor)} on its way",
            limit.remedy,
            pair.name,
        )


def _arrival(ends: Ends) -> Arrival:
    made = [pair.arrives for pair in ends.pairs if pair.target is None]
    existing = [target for _, target in ends.existing]
    unfinished = [target for pair, target in ends.existing if _lacks(pair.arrives, target)]
    carried = {pair.source.name for pair in ends.pairs}
    refers = any(key.parent in carried for pair in ends.pairs for key in pair.arrives.foreign_keys)
    return Arrival(
        existing, made, unfinished, refers or any(table.foreign_keys for table in existing)
    )


def _lacks(source: Table, target: Table) -> bool:
    """Whether the transfer will add indexes or references."""
    there = {(index.columns, index.unique) for index in target.indexes}
    lacks_index = any((index.columns, index.unique) not in there for index in source.indexes)
    return lacks_index or len(target.foreign_keys) < len(source.foreign_keys)
