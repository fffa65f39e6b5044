"""What a shard records of the shards that feed it: `truecopy_origin`, which streams of the keyspace read as a mark.

The line of a source is inserted where its replication begins, and updated from then on, first in every
transaction that brings rows: the log of the shard itself then says what came from where (docs/keyspaces.md).
"""

from __future__ import annotations

from truecopy.engines.lines import Keeps, Lines
from truecopy.model.change import ORIGIN_TABLE
from truecopy.model.errors import CannotFinish

_CREATE = f"""CREATE TABLE IF NOT EXISTS {ORIGIN_TABLE} (
    shard VARCHAR(190) NOT NULL PRIMARY KEY, position TEXT, committed_at BIGINT)"""


class Origins:
    """The lines of one target, through one session."""

    def __init__(self, session: Keeps) -> None:
        self._lines = Lines(session)

    def begin(self, shard: str, position: str, committed_at: int) -> None:
        """Replication from a shard begins here: everything before is a copy, or an older story."""
        self._lines.create((_CREATE,))
        with self._lines.transaction():
            self._lines.execute(f"DELETE FROM {ORIGIN_TABLE} WHERE shard = ?", shard)
            self._lines.execute(
                f"INSERT INTO {ORIGIN_TABLE} (shard, position, committed_at) VALUES (?, ?, ?)",
                *(shard, position, committed_at),
            )

    def move(self, shard: str, position: str, committed_at: int) -> None:
        """Inside a transaction, and first in it: what follows is of the shard, up to this position."""
        if not self._lines.execute(
            f"UPDATE {ORIGIN_TABLE} SET position = ?, committed_at = ? WHERE shard = ?",
            *(position, committed_at, shard),
        ):
            raise CannotFinish(
                f"{ORIGIN_TABLE} has no line of shard {shard} any more: streams could not tell what came from it. Was"
                " it deleted? Start the task anew"
            )
