"""The reverify store: the changes of each key that nobody has compared yet."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

Seen = tuple[str, int] | None
"""Where a change is in the source's log; None for one that was seen in the target's."""


@dataclass
class Store:
    """It counts: a key that changes while it is compared stays. It survives its driver."""

    changes: defaultdict[int, Counter[Seen]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, key: int, seen: Seen) -> None:
        self.changes[key][seen] += 1

    def keys(self) -> list[int]:
        return [key for key, changes in self.changes.items() if changes]

    def discharge(self, key: int, compared: Counter[Seen]) -> None:
        self.changes[key] = self.changes[key] - compared
