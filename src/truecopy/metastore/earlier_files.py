"""Files of earlier versions, which kept each kind of state in a file of its own: their rows go into the metastore."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, text

from truecopy.metastore.migrating import migrate

_FILES = ("definitions.db", "validations.db")


def take_up(engine: Engine, folder: Path) -> None:
    """Copies the rows of earlier files, once: a file that was taken up gets another name.

    A kill at any instant leaves the file to be copied again, and rows that are there stay as they are.
    """
    for name in _FILES:
        path = folder / name
        if path.exists():
            earlier = create_engine(f"sqlite:///{path}")
            migrate(earlier)
            earlier.dispose()
            _copy(engine, path)
            for suffix in ("-wal", "-shm"):
                path.with_name(name + suffix).unlink(missing_ok=True)
            path.replace(path.with_name(f"{name}.taken-up"))


def _copy(engine: Engine, path: Path) -> None:
    with engine.connect() as connection:
        # Without a transaction, in which no file could be attached.
        connection.exec_driver_sql("ATTACH DATABASE ? AS earlier", (str(path),))
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            for table in _tables(connection, "earlier") & _tables(connection, "main"):
                columns = ", ".join(
                    f'"{one}"'
                    for one in _columns(connection, "earlier", table)
                    & _columns(connection, "main", table)
                )
                connection.exec_driver_sql(
                    f'INSERT OR IGNORE INTO main."{table}" ({columns})'
                    f' SELECT {columns} FROM earlier."{table}"'
                )
            connection.commit()
        finally:
            connection.rollback()
            connection.exec_driver_sql("DETACH DATABASE earlier")


def _tables(connection: Connection, schema: str) -> set[str]:
    found = connection.execute(
        text(
            f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
    )
    return {row.name for row in found} - {"alembic_version"}


def _columns(connection: Connection, schema: str, table: str) -> set[str]:
    found = connection.exec_driver_sql(f'PRAGMA {schema}.table_info("{table}")')
    return {row.name for row in found}
