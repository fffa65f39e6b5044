"""Names of scratch tables, and the tables that a run which was killed left behind.

Names start with a prefix that follows from the suite and its two ends; a lock makes sure that no
other run uses it, so whatever has the prefix when a run begins is a leftover.
"""

from __future__ import annotations

import fcntl
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from truecopy.engines.queries.session import QuerySession
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.queries.query import SCRATCH_PLACE
from truecopy.queries.settings import Settings
from truecopy.spark import state_folder


@contextmanager
def held_prefix(suite: str, ends: tuple[Endpoint, Endpoint], settings: Settings) -> Iterator[str]:
    """The prefix of a run's scratch tables, which no other run has meanwhile."""
    parts = (str(state_folder()), suite, *(end.identity for end in ends), repr(settings.scratch))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]
    folder = state_folder() / "queries"
    folder.mkdir(exist_ok=True)
    with (folder / f"{key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"the suite {suite} runs already against the same two ends: wait for it, or stop it"
            ) from None
        yield f"tcq_{key}_"


def name_of_run() -> str:
    """What follows the prefix in one run: a statement that outlived its run must not meet its names."""
    return f"{secrets.token_hex(3)}_"


def sweep(session: QuerySession, prefix: str) -> list[str]:
    """Drops what an earlier run left behind; gives its names."""
    session.end_orphans(prefix)
    found = session.scratch_tables(prefix)
    for name in found:
        session.drop(name)
    return found


def placed(session: QuerySession, sql: str, table: str) -> tuple[str, list[str]]:
    """The statement with `{scratch:NAME}` filled in, and the tables that were named so."""
    names = [f"{table}_{match[1]}" for match in SCRATCH_PLACE.finditer(sql)]
    filled = SCRATCH_PLACE.sub(lambda match: session.scratch_name(f"{table}_{match[1]}"), sql)
    return filled, names
