"""Stages by name, through entry points: each group holds ours and those of other packages."""

from __future__ import annotations

import difflib
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from truecopy.model.errors import UsageError

GROUPS = (
    "sources",
    "filters",
    "rewriters",
    "comparators",
    "determinism",
    "resolvers",
    "retries",
    "sinks",
)


def load(group: str, name: str) -> Any:
    """What is registered as `truecopy.queries.GROUP` under a name."""
    found = _registered(group, tuple(sys.path))
    if name in found:
        try:
            return found[name].load()
        except ImportError as error:
            raise UsageError(
                f"{name} of truecopy.queries.{group} does not load: {error}; is its package whole?"
            ) from error
    near = difflib.get_close_matches(name, found, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"there is no {name!r} among truecopy.queries.{group}{hint} Known are {', '.join(sorted(found))}"
    )


@lru_cache
def _registered(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """By name, of all packages on a path; to look through them for each query would take longer than to rewrite it."""
    del path
    return {entry.name: entry for entry in entry_points(group=f"truecopy.queries.{group}")}
