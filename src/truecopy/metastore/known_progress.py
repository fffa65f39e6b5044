"""How far a task is known to be: noted before and after each batch, beside what its target says.

The target's own progress is the truth about what was applied. This says whether it is still the progress that the
task left there: a target that was restored from a backup, or whose positions somebody changed, tells another one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT

from truecopy.metastore.database import open_metastore

metadata = MetaData()
_LONG = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_known = Table(
    "known_progress",
    metadata,
    Column("task", String(190), primary_key=True),
    Column("target", _LONG, nullable=False),
    Column("origin", _LONG, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("applied", _LONG, nullable=False),
    Column("reached", _LONG, nullable=False),
)


@dataclass(frozen=True)
class Known:
    """What was noted last.

    Attributes:
        target: The identity of its target.
        origin: Where the changes of the task began; another one is another life of it.
        epoch: Whose notes these are.
        applied: By part, the position up to which changes were on the target.
        reached: By shard, positions that the target may have got to since: the ends of batches that were begun.
    """

    target: str
    origin: Mapping[str, Any]
    epoch: int
    applied: Mapping[str, str]
    reached: Mapping[str, Sequence[str]]


class KnownProgress:
    """The notes about one task."""

    def __init__(self, task: str, url: str | None = None) -> None:
        self._task = task
        self._engine: Engine = open_metastore(url)

    def find(self) -> Known | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(_known).where(_known.c.task == self._task)).first()
        if row is None:
            return None
        documents = (json.loads(text) for text in (row.origin, row.applied, row.reached))
        origin, applied, reached = documents
        return Known(row.target, origin, row.epoch, applied, reached)

    def begin(self, known: Known) -> None:
        """Puts them in the place of whatever was noted."""
        with self._engine.begin() as connection:
            connection.execute(delete(_known).where(_known.c.task == self._task))
            connection.execute(
                insert(_known).values(
                    task=self._task,
                    target=known.target,
                    origin=json.dumps(known.origin),
                    epoch=known.epoch,
                    applied=json.dumps(known.applied),
                    reached=json.dumps(known.reached),
                )
            )

    def note_reached(self, reached: Mapping[str, Sequence[str]], epoch: int) -> None:
        """Before a batch is applied; whoever was replaced notes nothing."""
        self._update(epoch, reached=json.dumps(reached))

    def note_applied(self, applied: Mapping[str, str], epoch: int) -> None:
        """After it was."""
        self._update(epoch, applied=json.dumps(applied))

    def forget(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(_known).where(_known.c.task == self._task))

    def _update(self, epoch: int, **values: str) -> None:
        mine = (_known.c.task == self._task) & (_known.c.epoch == epoch)
        with self._engine.begin() as connection:
            connection.execute(update(_known).where(mine).values(**values))
