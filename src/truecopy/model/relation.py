"""One side of a comparison, and the parts into which it is cut: plain values for executors."""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.model.endpoint import Endpoint
from truecopy.model.table import Column, TableName
from truecopy.model.types import Json, Type

Key = tuple[str | None, ...]
"""A key as canonical texts, in the order of the key's columns; NULL only where a user chose the key."""


@dataclass(frozen=True)
class Relation:
    """What is read on one side: columns in the order that both sides agreed on, key first.

    Attributes:
        tables: More than one where several source tables are merged into one target.
        columns: As this side names and types them; the first `key_width` are the key.
        types: The agreed types, one per column.
        where: A condition in this side's SQL.
    """

    endpoint: Endpoint
    tables: tuple[TableName, ...]
    columns: tuple[Column, ...]
    types: tuple[Type, ...]
    key_width: int
    where: str | None = None

    @property
    def key(self) -> tuple[Column, ...]:
        """The columns of the key; empty for a table without one."""
        return self.columns[: self.key_width]

    @property
    def key_types(self) -> tuple[Type, ...]:
        """The agreed types of the key's columns."""
        return self.types[: self.key_width]

    @property
    def deferred(self) -> tuple[int, ...]:
        """Columns whose canonical text the database cannot give: finished by the reader."""
        return tuple(
            i for i, kind in enumerate(self.types) if isinstance(kind, Json) and not kind.form
        )

    @property
    def pushed(self) -> tuple[int, ...]:
        """Columns whose canonical text the database computes."""
        waiting = set(self.deferred)
        return tuple(i for i in range(len(self.columns)) if i not in waiting)


@dataclass(frozen=True)
class Chunk:
    """A half-open range of the key, `low` included and `high` not; None is an open end."""

    low: Key | None = None
    high: Key | None = None


WHOLE = Chunk()


@dataclass(frozen=True)
class Buckets:
    """Some of the `16 ** digits` classes that the first digits of the fingerprint make."""

    digits: int
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Between:
    """Rows whose first column is above `low`, up to `high`, in its order; or those where it is NULL."""

    low: str | None = None
    high: str | None = None
    nulls: bool = False
    descending: bool = False
    limit: int | None = None
    offset: int = 0
