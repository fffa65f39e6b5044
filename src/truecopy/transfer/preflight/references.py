"""What one write sets off: foreign keys and triggers, on both sides."""

from __future__ import annotations

from collections.abc import Iterator

from truecopy.engines.protocols import Creates
from truecopy.model.finding import Finding, Subject
from truecopy.transfer.plan import referring
from truecopy.transfer.preflight.ends import Ends, error, info, warning
from truecopy.transfer.ties import are_wanted, find_ties, refusals


def check_source_references(ends: Ends) -> Iterator[Finding]:
    """References to tables that stay behind; and cascades. Whether the log has those is asked with the log."""
    carried = {pair.source.name for pair in ends.pairs}
    target_acts = are_wanted(ends.settings, ends.source)
    if target_acts:
        yield from _ties(ends)
    for pair in ends.pairs:
        names = pair.mapping.renames
        for key in pair.source.foreign_keys:
            if key.parent not in carried:
                if not all(name in names for name in key.columns):
                    continue  # the reference stays behind with its column
                yield warning(
                    Subject.REFERENCES,
                    f"it refers to {key.parent}, which the task leaves behind: the target gets no such foreign key",
                    f"add {key.parent} to the task",
                    pair.name,
                )
            elif key.actions and not target_acts:
                yield info(
                    Subject.REFERENCES,
                    f"its rows go or change with those of {key.parent} ({key.actions}): while the task writes, the"
                    " target does not cascade, and every such change must come from the log",
                    "",
                    pair.name,
                )


def _ties(ends: Ends) -> Iterator[Finding]:
    """What it takes that the target's foreign keys act, since the source's log does not tell of it."""
    tables = {pair.source.name: pair.source for pair in ends.pairs}
    mappings = {pair.source.name: pair.mapping for pair in ends.pairs}
    for one in refusals(ends.settings, tables, mappings, ends.target):
        yield error(Subject.REFERENCES, one.reason, one.remedy, str(one.table))
    for name in find_ties(tables):
        yield info(
            Subject.REFERENCES,
            "foreign keys that act tie it to other tables: all of them are copied out of one snapshot, by one"
            " connection and from the beginning when that is lost, and their changes are written by one writer",
            "",
            str(name),
        )


def check_target_references(ends: Ends) -> Iterator[Finding]:
    """References of tables that are there already."""
    filled = {pair.onto for pair in ends.pairs}
    for pair, target in ends.existing:
        for key in target.foreign_keys:
            if key.parent not in filled:
                yield warning(
                    Subject.REFERENCES,
                    f"{target.name} on the target refers to {key.parent}, which the task does not fill: while rows are"
                    " written nobody checks whether the parents are there",
                    f"fill {key.parent} first, or drop the foreign key",
                    pair.name,
                )


def check_made_references(ends: Ends) -> Iterator[Finding]:
    """References that the target would refuse when the rows are there, as far as definitions tell."""
    if not isinstance(ends.target, Creates):
        return
    pairs = {pair.source.name: pair for pair in ends.pairs}
    for pair in ends.pairs:
        for key in pair.arrives.foreign_keys:
            parent = pairs.get(key.parent)
            if parent is None:
                continue
            there = referring(key, parent.named, parent.source, parent.onto)
            if there is None:
                continue
            own, its = pair.target or pair.arrives, parent.target or parent.arrives
            for gap in ends.target.reference_gaps(own, there, its):
                yield warning(
                    Subject.REFERENCES,
                    f"its foreign key ({', '.join(there.columns)}) will not be made on the target: {gap}",
                    "make both tables yourself to have it",
                    pair.name,
                )


def check_triggers(ends: Ends) -> Iterator[Finding]:
    """Triggers of target tables: what those of the source did is carried already."""
    if ends.target_advisor is None:
        yield info(Subject.TRIGGERS, "triggers of the target could not be looked for")
        return
    names = {pair.onto: pair.name for pair in ends.pairs}
    for trigger in ends.target_advisor.triggers():
        if trigger.table not in names:
            continue
        said = f"the trigger {trigger.name} ({trigger.event}) of {trigger.table} on the target"
        if trigger.fires:
            yield error(
                Subject.TRIGGERS,
                f"{said} fires for every row that is written: what triggers of the source did is carried as it is",
                f"{trigger.removal}; make it again at the cutover",
                names[trigger.table],
            )
        else:
            yield info(
                Subject.TRIGGERS,
                f"{said} does not fire while rows are written",
                "",
                names[trigger.table],
            )
