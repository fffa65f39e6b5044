"""Who asks, and whether they may: tokens, sessions of browsers, and the loopback without either."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import HTTPException, Request, Response

from truecopy.metastore.tokens import ADMIN, OPERATE, ROLES, SESSION_SECONDS, VIEW, Tokens
from truecopy.server.guard import SAFE, Rate
from truecopy.server.settings import ServerSettings

COOKIE = "truecopy_session"
CSRF_HEADER = "X-Truecopy-CSRF"
LOCAL = "local"
_FAILED_PER_SECOND, _FAILED_AT_ONCE = 0.2, 10
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "via")


@dataclass(frozen=True)
class Who:
    """Whoever asks; `session` is what their browser keeps, if it is one."""

    name: str
    role: str
    session: str = ""

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def csrf(self) -> str:
        """What only a page of this server can know of the session, since scripts cannot read the cookie."""
        return hashlib.sha256(f"csrf:{self.session}".encode()).hexdigest()[:32]


class Doorkeeper:
    """Tells who asks."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._tokens = Tokens()
        self._failed = Rate(_FAILED_PER_SECOND, _FAILED_AT_ONCE)

    def who(self, request: Request) -> Who:
        """Whoever asks; refused where that cannot be told, or a page of another site asks in their name."""
        authorization = request.headers.get("authorization")
        session = request.cookies.get(COOKIE)
        if authorization is not None:
            kind, _, text = authorization.partition(" ")
            return self._by_token(request, text.strip() if kind.lower() == "bearer" else "")
        if session:
            found = self._tokens.session(session)
            if found is not None:
                who = Who(found.name, found.role, session)
                self._require_csrf(request, who)
                return who
        if not self._settings.needs_token and not any(h in request.headers for h in _FORWARDED):
            return Who(LOCAL, ADMIN)
        raise self._unknown("a token is needed: Authorization: Bearer TOKEN")

    def log_in(self, request: Request, response: Response, token: str) -> Who:
        """Exchanges a token for a session."""
        who = self._by_token(request, token)
        found = self._tokens.find(token)
        assert found is not None
        session = self._tokens.open_session(found)
        response.set_cookie(
            COOKIE,
            session,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self._is_https(request),
        )
        return Who(who.name, who.role, session)

    def log_out(self, request: Request, response: Response) -> None:
        if session := request.cookies.get(COOKIE):
            self._tokens.close_session(session)
        response.delete_cookie(COOKIE)

    def _is_https(self, request: Request) -> bool:
        """Whether the browser speaks HTTPS, with this server or with a proxy before it."""
        origin = request.headers.get("origin", "")
        return self._settings.scheme == "https" or origin.startswith("https://")

    def _by_token(self, request: Request, text: str) -> Who:
        address = request.client.host if request.client else ""
        found = self._tokens.find(text) if text else None
        if found is None:
            if not self._failed.take(address):
                raise HTTPException(429, "too many wrong tokens; wait", {"Retry-After": "5"})
            raise self._unknown("the token is unknown or has expired")
        return Who(found.name, found.role)

    def _require_csrf(self, request: Request, who: Who) -> None:
        # A form of a page has it in a hidden field, which was read before.
        given = str(request.headers.get(CSRF_HEADER) or getattr(request.state, "csrf", ""))
        if request.method not in SAFE and not hmac.compare_digest(
            given.encode(), who.csrf.encode()
        ):
            raise HTTPException(403, f"a change by a page needs the header {CSRF_HEADER}")

    def _unknown(self, why: str) -> HTTPException:
        return HTTPException(401, why, {"WWW-Authenticate": "Bearer"})


def asking(request: Request) -> Who:
    """Whoever asks, once a request."""
    known = getattr(request.state, "asking", None)
    if known is None:
        doorkeeper: Doorkeeper = request.app.state.doorkeeper
        known = doorkeeper.who(request)
        request.state.asking = known
        request.state.who = (known.name, known.role)
    assert isinstance(known, Who)
    return known


def needs(role: str) -> Callable[[Request], Who]:
    """What a route depends on: that whoever asks may do as much as this."""

    def require(request: Request) -> Who:
        who = asking(request)
        if not who.may(role):
            raise HTTPException(403, f"{who.name} may {who.role}; this needs the role {role}")
        return who

    return require


viewer, operator, administrator = needs(VIEW), needs(OPERATE), needs(ADMIN)
