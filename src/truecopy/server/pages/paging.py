"""Long lists in pages."""

from __future__ import annotations

from dataclasses import dataclass

ROWS = 50


@dataclass(frozen=True)
class Part:
    """A page of a list: from `offset` on, of `total`."""

    offset: int
    total: int
    size: int = ROWS

    @property
    def first(self) -> int:
        return min(self.offset + 1, self.total)

    @property
    def last(self) -> int:
        return min(self.offset + self.size, self.total)

    @property
    def before(self) -> int | None:
        return max(self.offset - self.size, 0) if self.offset else None

    @property
    def after(self) -> int | None:
        return self.last if self.last < self.total else None
