"""Keeping writers away from the tables of a database, and letting them in again.

Before anything is changed, `survey` says what is as it is; whoever keeps that can undo it from another
process, after the first one was killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from truecopy.model.table import TableName

if TYPE_CHECKING:
    from truecopy.engines.protocols import Session

READ_ONLY, TABLES, REVOKE = "read-only", "tables", "revoke"

Before = Mapping[str, Any]
"""How things were before writers were held off, as JSON can keep it."""


class WriterGate(Protocol):
    """The ways of one database to hold writers off, through one session."""

    ways: tuple[str, ...]
    """The first is the one that lasts, and is taken where none is named."""

    def survey(self, way: str, tables: Sequence[TableName]) -> dict[str, Any]:
        """What `release` will need; changes nothing."""
        ...

    def hold(self, way: str, tables: Sequence[TableName], before: Before, seconds: float) -> None:
        """Keeps everybody from writing, and waits for those who are at it, but not longer than that.

        Truecopy's own user may be able to write on.
        """
        ...

    def release(self, way: str, before: Before) -> list[str]:
        """Makes it as it was; does no harm where nothing was changed. Says what could not come back, a line each."""
        ...

    def is_held(self, way: str, tables: Sequence[TableName]) -> bool:
        """Whether writers who connect where this session is connected are held off, as far as it can tell."""
        ...

    def closes(self, way: str, other: Session) -> bool:
        """Whether the way closes all of a server, and the other session is connected to that one as well."""
        ...

    def beyond(self) -> list[str]:
        """Who is connected now, is not of Truecopy, and could write on: each as a person would name it."""
        ...

    def undoing(self, way: str, before: Before) -> list[str]:
        """The statements by which somebody can do by hand what `release` does."""
        ...

    def ease(self, way: str) -> None:
        """Lets Truecopy itself write again, and nobody else."""
        ...

    def leave(self, way: str, tables: Sequence[TableName]) -> str:
        """Writers have moved elsewhere: nobody who waits here may get in. Says what stays, in words."""
        ...


@runtime_checkable
class HoldsOffWriters(Protocol):
    """Can keep others from writing."""

    def writers(self) -> WriterGate: ...
