"""Failures of statements: one line, and a kind by which they are retried or resolved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from truecopy.model.errors import CannotFinish


class Kind(StrEnum):
    """What went wrong, as far as retries and resolvers care."""

    CONNECTION = "CONNECTION"
    TRANSIENT = "TRANSIENT"
    TIME_LIMIT = "TIME_LIMIT"
    MEMORY = "MEMORY"
    SYNTAX = "SYNTAX"
    REFUSED = "REFUSED"
    GONE = "GONE"
    LIMITATION = "LIMITATION"
    OTHER = "OTHER"


@dataclass(frozen=True)
class Failure:
    """One failure, kept in the result even where a retry passed.

    Attributes:
        code: The engine's own code.
        stage: Which statement failed: `control`, `control set-up`, `test checksum`, ….
        attempt: The how-manieth try of the statement it was, from 1.
    """

    kind: Kind
    message: str
    code: str = ""
    stage: str = ""
    attempt: int = 1

    def to_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "kind": str(self.kind),
            "code": self.code,
            "stage": self.stage,
            "attempt": self.attempt,
            "message": self.message,
        }


class QueryFailed(CannotFinish):
    """A statement of a query failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failed(kind: Kind, message: object, code: object = "") -> QueryFailed:
    """A failure in one line."""
    return QueryFailed(Failure(kind, " ".join(str(message).split())[:600], str(code or "")))
