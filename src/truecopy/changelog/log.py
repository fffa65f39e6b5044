"""A change log as its readers see it, wherever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from truecopy.changelog.facts import EventFile
from truecopy.changelog.ledger import Ledger
from truecopy.changelog.pieces import Piece
from truecopy.model.change import Definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Log(Ledger, ABC):
    """A log that can be read: its ledger, its events and rows, and the definitions that decode them."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, as a user names it."""

    @property
    def views(self) -> str | None:
        """Where the statements of its views are, if it has some."""
        return None

    @abstractmethod
    def event_pieces(self, files: Sequence[EventFile]) -> list[Piece]:
        """The events of some files, for executors."""

    @abstractmethod
    def base_pieces(self, base: int, table: str) -> list[Piece]:
        """The rows of a base, for executors."""

    @abstractmethod
    def marks(self, spark: SparkSession, files: Sequence[EventFile]) -> DataFrame:
        """The events of some files, perhaps without their rows."""

    @abstractmethod
    def frame(self, spark: SparkSession, files: Sequence[EventFile]) -> DataFrame:
        """The events of some files, whole."""

    @abstractmethod
    def keep(self, definition: Definition) -> None:
        """Beside the events, so that they can be read without the source."""

    @abstractmethod
    def definition(self, schema_id: str) -> Definition:
        """One that was kept."""

    @abstractmethod
    def is_written(self) -> bool | None:
        """Whether a writer is at work; None where that cannot be told."""
