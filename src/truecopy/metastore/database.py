"""The metastore's database: the one that a task names, else a file in the state folder."""

from __future__ import annotations

import os
from functools import lru_cache

from sqlalchemy import Engine, MetaData, create_engine, event
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.secret import Secret
from truecopy.spark import state_folder

_WHERE = "TRUECOPY_METASTORE"


def choose_metastore(url: Secret) -> None:
    """What is opened from now on, by this process and those that it starts: streams are read in several.

    What is passed on is where the secret is, not the secret.
    """
    os.environ[_WHERE] = url.reference


def open_metastore(metadata: MetaData, file: str, url: str | None = None) -> Engine:
    """The database with some tables of the metastore, made where they are missing.

    Args:
        metadata: The tables.
        file: The name of a file in the state folder, where no database was chosen.
        url: Another database than the one that was chosen.
    """
    return _opened(metadata, url or _chosen() or f"sqlite:///{state_folder() / file}")


def _chosen() -> str:
    reference = os.environ.get(_WHERE)
    return Secret(reference).reveal() if reference else ""


@lru_cache
def _opened(metadata: MetaData, url: str) -> Engine:
    try:
        engine = create_engine(url)
    except (ArgumentError, ImportError):
        raise UsageError(
            "metastore: not a URL that SQLAlchemy can open here; write for example"
            " postgresql+psycopg://user:${PASSWORD}@host/state"
        ) from None
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def configure(connection: object, _: object) -> None:
            cursor = connection.cursor()  # type: ignore[attr-defined]
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA busy_timeout = 20000")
            cursor.close()

    try:
        metadata.create_all(engine)
    except SQLAlchemyError as error:
        cause = str(error).splitlines()[0]
        raise CannotFinish(f"the metastore cannot be used: {cause}") from None
    return engine
