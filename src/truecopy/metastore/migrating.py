"""Brings a metastore's tables to what this version knows, whichever version left them, and one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, inspect, text

from truecopy.model.errors import UsageError

HEAD = "0006"
_HISTORY = "alembic_version"
_LOCK = "truecopy metastore"
_LOCK_NUMBER = 7_238_113_902
_LOCK_SECONDS = 60


def migrate(engine: Engine) -> None:
    """Does the steps that are missing. Every process of a task opens the metastore: mostly there are none."""
    with engine.connect() as connection:
        if _version(connection) == HEAD:
            return
    with _alone(engine) as connection:
        _require_known(_version(connection))
        _upgrade(connection)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_HISTORY):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {_HISTORY}")).scalar()
    return found


def _require_known(version: str | None) -> None:
    if version is not None and version > HEAD:
        raise UsageError(
            f"the metastore was made by a newer version of truecopy (its tables are at {version}, this version"
            f" knows {HEAD}): install that version, or name another metastore"
        )


def _upgrade(connection: Connection) -> None:
    # Only a metastore that has steps to do waits for what is needed to do them.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "truecopy.metastore:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """A transaction that no other migration runs beside; where the database can, it holds wholly or not at all."""
    dialect = engine.dialect.name
    with engine.connect() as connection:
        if dialect == "sqlite":
            # The driver begins no transaction before DDL by itself.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif dialect == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})")
        elif dialect in ("mysql", "mariadb"):
            connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), _mysql_lock())
        yield connection
        connection.commit()
        if dialect in ("mysql", "mariadb"):
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK})


def _mysql_lock() -> dict[str, object]:
    return {"name": _LOCK, "seconds": _LOCK_SECONDS}
