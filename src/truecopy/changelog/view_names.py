"""What the views of a log are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from truecopy.changelog.facts import bare_name
from truecopy.model.change import OWN_PREFIX

CURRENT, HISTORY = "current", "history"
_LONGEST = 63
"""Bytes of a name that every engine takes."""
_ROOM = _LONGEST - len(f"_{HISTORY}")


def short_names(tables: Sequence[str]) -> dict[str, str]:
    """Tables without their schemas, where no two are the same then."""
    bare = Counter(bare_name(table).lower() for table in tables)
    return {
        table: name if bare[(name := bare_name(table)).lower()] == 1 else table.replace(".", "_")
        for table in tables
    }


def view_names(log: str, tables: Sequence[str]) -> dict[str, str]:
    """In a database, without their endings: of no two logs and tables the same, in any case of letters."""
    # A _ is doubled, so that the log `a_b` and the table `c` are not the log `a` and the table `b_c`.
    prefix = f"{OWN_PREFIX}{log.replace('_', '__')}_"
    found = {table: prefix + name for table, name in short_names(tables).items()}
    folded = Counter(name.lower() for name in found.values())
    return {
        table: name if _is_plain(name, prefix, folded) else _marked(name, f"{log} {table}")
        for table, name in found.items()
    }


def _is_plain(name: str, prefix: str, folded: Counter[str]) -> bool:
    is_alone = folded[name.lower()] == 1 and not name.startswith(f"{prefix}_")
    return is_alone and len(name.encode()) <= _ROOM


def _marked(name: str, of: str) -> str:
    mark = f"_{sha256(of.encode()).hexdigest()[:8]}"
    return name.encode()[: _ROOM - len(mark)].decode(errors="ignore") + mark
