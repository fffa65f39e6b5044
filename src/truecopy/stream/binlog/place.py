"""Where a boundary is on one server: a file of its log and an offset in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

MARIADB_NAME = "CONCAT_WS('-', @@server_id, @@hostname, @@port)"
MYSQL_NAME = "@@server_uuid"


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
        return file_number(self.file), self.offset

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """None for a boundary of which only the position is known."""
        if not text:
            return None
        place, _, server = text.partition("@")
        file, _, offset = place.rpartition(":")
        return cls(file, int(offset), server)


def file_number(name: str) -> int:
    """What files are ordered by: binlog.999999 is followed by binlog.1000000."""
    return int(name.rpartition(".")[2])


def server_name(given: object) -> str:
    """A server's own answer to `MARIADB_NAME` or `MYSQL_NAME`, as places have it."""
    return re.sub(r"[^\w.-]", "_", str(given))
