"""What fails for a reason that may pass is tried again, after pauses that grow; not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from truecopy.model.errors import CannotFinish

PAUSES = 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 60.0, 60.0
"""Between tries, in seconds; then it is given up."""


class Tries:
    """How often in a row something has failed."""

    def __init__(self) -> None:
        self._failed = 0

    def pause_after(self, error: CannotFinish) -> float:
        """How long to wait before the next try; raises the error where there was one too many."""
        if self._failed >= len(PAUSES):
            raise error
        self._failed += 1
        return PAUSES[self._failed - 1]

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self._failed = 0


@contextmanager
def metastore_explained() -> Iterator[None]:
    """A block in which a metastore that fails becomes one line, without the statement and its values."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = str(error).splitlines()[0]
        raise CannotFinish(f"the metastore cannot be used: {cause}") from error
