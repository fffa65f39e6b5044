"""The metastore's database: the one that a task names, else a file in the state folder."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from truecopy.extras import needed_by
from truecopy.metastore.earlier_files import take_up
from truecopy.metastore.migrating import migrate
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.secret import Secret
from truecopy.spark import state_folder

FILE = "metastore.db"
_WHERE = "TRUECOPY_METASTORE"


def choose_metastore(url: Secret) -> None:
    """What is opened from now on, by this process and those that it starts: streams are read in several.

    What is passed on is where the secret is, not the secret.
    """
    os.environ[_WHERE] = url.reference


def open_metastore(url: str | None = None) -> Engine:
    """The metastore with its tables as this version knows them.

    Args:
        url: Another database than the one that was chosen; where none was, it is a file in the state folder.
    """
    chosen = url or _chosen()
    if chosen:
        return _opened(chosen)
    folder = state_folder()
    return _opened(f"sqlite:///{folder / FILE}", folder)


def _chosen() -> str:
    reference = os.environ.get(_WHERE)
    return Secret(reference).reveal() if reference else ""


@lru_cache
def _opened(url: str, folder: Path | None = None) -> Engine:
    try:
        with needed_by("metastore: this URL"):
            engine = create_engine(url, pool_pre_ping=True)
    except ArgumentError:
        raise UsageError(
            "metastore: not a URL that SQLAlchemy can open here; write for example"
            " postgresql+psycopg://user:${PASSWORD}@host/state"
        ) from None
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def configure(connection: object, _: object) -> None:
            cursor = connection.cursor()  # type: ignore[attr-defined]
            cursor.execute("PRAGMA busy_timeout = 20000")
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.close()

    try:
        migrate(engine)
        if folder is not None:
            take_up(engine, folder)
    except SQLAlchemyError as error:
        cause = str(error).splitlines()[0]
        raise CannotFinish(f"the metastore cannot be used: {cause}") from None
    return engine
