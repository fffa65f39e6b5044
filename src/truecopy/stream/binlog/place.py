"""Where a boundary is on one server: a file of its log and an offset in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """`server` tells servers apart: on another one the same file and offset mean something else."""

    file: str
    offset: int
    server: str

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}@{self.server}"

    @property
    def order(self) -> tuple[int, int]:
        # Numbers, not names: binlog.999999 is followed by binlog.1000000.
        return int(self.file.rpartition(".")[2]), self.offset

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """None for a boundary of which only the position is known."""
        if not text:
            return None
        place, _, server = text.partition("@")
        file, _, offset = place.rpartition(":")
        return cls(file, int(offset), server)
