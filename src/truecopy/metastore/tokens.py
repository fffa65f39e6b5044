"""Tokens of people and programs, and the sessions of browsers: only their hashes are kept."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from truecopy.metastore.control import now, web_session
from truecopy.metastore.control import token as _token
from truecopy.metastore.database import open_metastore
from truecopy.model.errors import UsageError

VIEW, OPERATE, ADMIN = "view", "operate", "admin"
ROLES = VIEW, OPERATE, ADMIN
"""Each may do what those before it may."""
SESSION_SECONDS = 12 * 3600
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Token:
    """What is known of a token, which is not the token itself; `expires_at` 0: never."""

    name: str
    role: str
    made_at: int
    expires_at: int

    @property
    def is_expired(self) -> bool:
        return 0 < self.expires_at <= now()


class Tokens:
    """The tokens of a metastore."""

    def __init__(self, url: str | None = None) -> None:
        self._engine = open_metastore(url)

    def add(self, name: str, role: str, seconds: float | None) -> str:
        """Makes a token; its text is told this once and never again."""
        if role not in ROLES:
            raise UsageError(f"there is no role {role}; known are {', '.join(ROLES)}")
        text = f"tc_{secrets.token_urlsafe(32)}"
        expires_at = now() + int(seconds * _MICROSECONDS) if seconds is not None else 0
        values = {"name": name, "digest": _digest(text), "role": role, "made_at": now()}
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(_token).values(expires_at=expires_at, **values))
        except IntegrityError:
            raise UsageError(f"there is a token {name} already: remove it first") from None
        return text

    def remove(self, name: str) -> bool:
        """Ends a token and the sessions that began with it."""
        with self._engine.begin() as connection:
            connection.execute(delete(web_session).where(web_session.c.token == name))
            return connection.execute(delete(_token).where(_token.c.name == name)).rowcount > 0

    def all(self) -> list[Token]:
        with self._engine.connect() as connection:
            rows = connection.execute(select(_token).order_by(_token.c.name))
            return [Token(row.name, row.role, row.made_at, row.expires_at) for row in rows]

    def find(self, text: str) -> Token | None:
        """The token of this text, unless it has expired."""
        return self._alive(_token.c.digest == _digest(text))

    # Sessions of browsers

    def open_session(self, token: Token) -> str:
        """What a browser keeps in the place of the token, which scripts of a page cannot read."""
        text = secrets.token_urlsafe(32)
        end = now() + SESSION_SECONDS * _MICROSECONDS
        expires_at = min(end, token.expires_at) if token.expires_at else end
        with self._engine.begin() as connection:
            connection.execute(delete(web_session).where(web_session.c.expires_at <= now()))
            values = {"digest": _digest(text), "token": token.name, "expires_at": expires_at}
            connection.execute(insert(web_session).values(**values))
        return text

    def session(self, text: str) -> Token | None:
        """The token that a session began with, while both last."""
        c = web_session.c
        wanted = select(c.token).where(c.digest == _digest(text), c.expires_at > now())
        with self._engine.connect() as connection:
            row = connection.execute(wanted).first()
        return self._alive(_token.c.name == row.token) if row else None

    def close_session(self, text: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(web_session).where(web_session.c.digest == _digest(text)))

    def _alive(self, condition: object) -> Token | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(_token).where(condition)).first()  # type: ignore[arg-type]
        found = Token(row.name, row.role, row.made_at, row.expires_at) if row else None
        return None if found is None or found.is_expired else found


def _digest(text: str) -> str:
    # The texts are random and long, so that nobody can try them all: no slow hash is needed.
    return hashlib.sha256(text.encode()).hexdigest()
