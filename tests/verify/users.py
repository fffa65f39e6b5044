"""Users of a database who may do only what a test grants them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.servers import Database, PostgreSQLServer


@dataclass(frozen=True)
class Reader:
    """A user, and the database as this user sees it."""

    user: str
    password: str
    url: str


@contextmanager
def reader(database: Database, rights: str = "") -> Iterator[Reader]:
    """A user with these rights; in them `{user}`, `{role}` (a role without rights) and `{db}` are replaced."""
    server = database.server
    postgresql = isinstance(server, PostgreSQLServer)
    user, role, password = (f"{kind}_{secrets.token_hex(4)}" for kind in ("user", "role", "secret"))
    identified = "PASSWORD" if postgresql else "IDENTIFIED BY"
    database.execute(f"CREATE USER {user} {identified} '{password}'; CREATE ROLE {role}")
    try:
        if rights:
            database.execute(rights.format(user=user, role=role, db=database.name))
        place = f"{server.host}:{server.port}/{database.name}"
        yield Reader(user, password, f"{server.scheme}://{user}:{password}@{place}")
    finally:
        if postgresql:
            database.execute(f"DROP OWNED BY {user}, {role}")
        database.execute(f"DROP USER {user}; DROP ROLE {role}")
