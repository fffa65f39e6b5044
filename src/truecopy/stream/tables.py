"""Which tables a stream carries."""

from __future__ import annotations

from functools import lru_cache

from truecopy.mapping.choice import matches
from truecopy.model.change import ORIGIN_TABLE, OWN_PREFIX
from truecopy.model.table import TableName


class Choice:
    """Tables by name or pattern (`orders`, `sales.*`); without any, every table of the database."""

    def __init__(self, patterns: tuple[str, ...], database: str) -> None:
        self._patterns = patterns
        self._database = database
        self.wants = lru_cache(maxsize=65_536)(self._wants)

    def _wants(self, database: str, table: str) -> bool:
        name = TableName(database, table)
        if self._database and database != self._database:
            # A name with its database in front reaches into others; a bare one does not.
            return any("." in pattern and matches(pattern, name) for pattern in self._patterns)
        if table.startswith(OWN_PREFIX):
            # A shard that a transfer feeds holds its ledger as well, which is nobody's data.
            return table == ORIGIN_TABLE
        return not self._patterns or any(matches(pattern, name) for pattern in self._patterns)
