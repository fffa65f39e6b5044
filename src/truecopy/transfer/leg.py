"""One way of a keyspace's rows: from a shard of the source into a target that takes a key range of it.

A task with a keyspace at one of its ends is several such legs, each a transfer of its own with its own ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from truecopy.model.errors import UsageError
from truecopy.model.keyspace import WHOLE, KeyRange, Sharding


@dataclass(frozen=True)
class Leg:
    """What a transfer carries of a keyspace.

    Attributes:
        task: The whole task's name: all of its legs write under one annotation.
        shard: The source shard's name, by which streams and origins know it.
        source: The ids that the source shard has.
        target: The ids that the target takes.
        onto: The target shard's name; empty for a target that is no shard, and records no origins.
        sharding: By table.
        last: Whether all other legs to the same target are past their replay: it makes the indexes then.
    """

    task: str
    shard: str
    source: KeyRange = WHOLE
    target: KeyRange = WHOLE
    onto: str = ""
    sharding: Mapping[str, Sharding] = field(default_factory=dict)
    last: bool = True

    @property
    def is_filtered(self) -> bool:
        """Whether rows of the source stay behind."""
        return not self.target.covers(self.source)

    @property
    def is_shared(self) -> bool:
        """Whether the target has rows of other legs."""
        return not self.source.covers(self.target)

    def rule(self, table: str) -> Sharding:
        """How a table, by its name in the stream, is sharded."""
        found = self.sharding.get(table) or self.sharding.get(table.rpartition(".")[2])
        if found is None:
            raise UsageError(
                f"sharding: nothing says how {table} is sharded, and only some of its rows go each way: name its"
                " column and function there, or exclude the table"
            )
        return found
