"""What was found before a transfer: one thing that is wrong, doubtful or worth knowing, and its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters.

    Attributes:
        ERROR: The transfer cannot work, or would be wrong, until it is mended.
        WARNING: It works, unless rows come that it does not work for, or something will be otherwise.
        INFO: Worth knowing; also what could not be found out.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Subject(StrEnum):
    """What a finding is about, in the order in which they are told."""

    TABLES = "tables"
    LOG = "log"
    GUARANTEE = "guarantee"
    RIGHTS = "rights"
    SETTINGS = "settings"
    KEYS = "keys"
    REFERENCES = "foreign keys"
    TRIGGERS = "triggers"
    TYPES = "types"
    COLLATIONS = "collations"
    TIME = "time zones"
    SPACE = "space"


@dataclass(frozen=True)
class Finding:
    """One finding; `table` is empty where it is about a whole server, `remedy` where there is none."""

    level: Level
    subject: Subject
    message: str
    remedy: str = ""
    table: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.table, self.message, self.remedy)))
