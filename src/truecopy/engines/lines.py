"""Lines that are kept in a target: statements written once for every engine, in transactions."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from truecopy.engines.protocols import Statement
from truecopy.model.errors import CannotFinish, TruecopyError

_LONGEST = 60_000
"""What the smallest TEXT of all engines holds."""


class TooLong(CannotFinish):
    """What a line was to hold does not go into it."""


class Keeps(Protocol):
    """A session of a target that can hold lines: it runs statements in transactions."""

    dialect: Any

    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]: ...
    def execute(self, statement: Statement) -> int: ...
    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


@contextmanager
def transaction(target: Any) -> Iterator[None]:
    """A transaction of the target, rolled back where something fails."""
    target.begin()
    try:
        yield
    except BaseException:
        with suppress(TruecopyError):
            target.rollback()
        raise
    target.commit()


class Lines:
    """Statements through one session, with `?` for values whatever the engine."""

    def __init__(self, session: Keeps) -> None:
        self._session = session

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with transaction(self._session):
            yield

    def create(self, statements: Sequence[str]) -> None:
        """Makes tables that are missing, each for itself: most engines commit that at once anyhow."""
        for statement in statements:
            with self.transaction():
                self.execute(statement + self._session.dialect.lines_as)

    def execute(self, sql: str, *values: object) -> int:
        """Inside a transaction; gives how many lines it changed."""
        return self._session.execute(self._statement(sql, values))

    def fetch(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Inside a transaction, or where it does not matter of which moment the lines are."""
        return self._session.fetch(self._statement(sql, values))

    def look(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """A question alone."""
        with self.transaction():
            return self.fetch(sql, *values)

    def _statement(self, sql: str, values: tuple[object, ...]) -> Statement:
        return Statement(sql.replace("?", self._session.dialect.placeholder), values)


def packed(value: Mapping[str, Any]) -> str:
    """JSON for a line; compressed where there is much of it, such as the rights of very many tables."""
    text = json.dumps(dict(value), ensure_ascii=False)
    if len(text.encode()) > _LONGEST:
        text = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    if len(text) > _LONGEST:
        raise TooLong(f"{len(text)} bytes are too many to be kept in a line")
    return text


def unpacked(text: str) -> dict[str, Any]:
    """What was packed."""
    if not text.startswith("{"):  # what zlib has compressed begins with a letter in base 85
        text = zlib.decompress(base64.b85decode(text)).decode()
    found: dict[str, Any] = json.loads(text)
    return found
