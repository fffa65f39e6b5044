"""Which tables a stream carries."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from truecopy.model.change import ORIGIN_TABLE


class Choice:
    """Tables by name or pattern (`orders`, `sales.*`); without any, every table of the database."""

    def __init__(self, patterns: tuple[str, ...], database: str) -> None:
        self._patterns = patterns
        self._database = database
        self.wants = lru_cache(maxsize=65_536)(self._wants)

    def _wants(self, database: str, table: str) -> bool:
        if self._database and database != self._database:
            # A name with its database in front reaches into others; a bare one does not.
            return any("." in p and fnmatchcase(f"{database}.{table}", p) for p in self._patterns)
        if table == ORIGIN_TABLE:
            return True
        if not self._patterns:
            return True
        names = (table, f"{database}.{table}")
        return any(fnmatchcase(name, pattern) for name in names for pattern in self._patterns)
