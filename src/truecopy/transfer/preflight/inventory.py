"""What stays behind: listed, never forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from truecopy.engines.advice import Uncarried
from truecopy.transfer.preflight.ends import Ends

_COMPUTED, _DEFAULT, _INDEX = (
    "the expression of the computed column ",
    "the default of ",
    "the index ",
)


def inventory(ends: Ends) -> list[Uncarried]:
    """Of the source as a whole, and of the tables that will be made without some of what they have."""
    found = list(ends.source_advisor.inventory()) if ends.source_advisor is not None else []
    lost = [
        (pair.name, thing)
        for pair in ends.pairs
        if pair.target is None
        for thing in pair.source.uncarried
    ]
    kinds = {
        "computed columns": _COMPUTED,
        "defaults": _DEFAULT,
        "other indexes": _INDEX,
        "": "",
    }
    for kind, start in kinds.items():
        some = [(table, thing) for table, thing in lost if thing.startswith(start)]
        lost = [one for one in lost if one not in some]
        if kind and some:
            found.append(Uncarried(kind, tuple(_named(some, start)), "of tables that are made"))
        elif some:
            named = tuple(f"{thing} on {table}" for table, thing in some)
            found.append(Uncarried("other things", named, "of tables that are made"))
    return found


def _named(some: Iterable[tuple[str, str]], start: str) -> Iterable[str]:
    return (f"{table}.{thing.removeprefix(start)}" for table, thing in some)
