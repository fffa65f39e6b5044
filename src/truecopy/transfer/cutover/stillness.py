"""Did a table of the task change after a position? The log tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from truecopy.model.errors import CannotFinish
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.offset import Offset

_BYTES_PER_STEP = 64 << 20
_WAIT_SECONDS = 0.1


def changes_after(stream: KeyspaceStream, start: Offset, tables: Collection[str]) -> Counter[str]:
    """Changes of these tables between an offset and the end of the log now."""
    found: Counter[str] = Counter()
    end, at = stream.current(), start
    while not stream.has_reached(at, end):
        after = stream.advance(at, _BYTES_PER_STEP, _WAIT_SECONDS, end)
        for part in stream.parts(at, after, 1):
            for batch in part.read():
                found.update(name for name in batch.column("table").to_pylist() if name in tables)
        at = after
    return found


def require_still(stream: KeyspaceStream, start: Offset, tables: Collection[str]) -> None:
    """Refuses to go on where somebody wrote though writers were locked out."""
    changed = changes_after(stream, start, tables)
    if changed:
        table, number = changed.most_common(1)[0]
        raise CannotFinish(
            f"{changed.total()} changes were made after writers were locked out, {number} of them of {table}:"
            " somebody writes with rights that the lock does not reach (a superuser?); stop it first"
        )
