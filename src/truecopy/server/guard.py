"""What every request passes: whether it calls the server by its name, is not too large, and does not come too often.

Also what every answer has: headers that keep browsers from more than is meant, one line in the log, one in the audit
log for each change, and never a trace.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.exc import SQLAlchemyError

from truecopy.metastore.events import Events
from truecopy.server.settings import ServerSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SAFE = ("GET", "HEAD", "OPTIONS")
_ADDRESSES = 10_000
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"cache-control", b"no-store"),
)

_log = logging.getLogger("truecopy.server")


class TooLarge(Exception):
    """A request that is longer than it may be, which it did not say beforehand."""


class Rate:
    """So many requests a second for each who asks, and so many at once."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, who: str) -> bool:
        """Whether one more is within the limit."""
        now = time.monotonic()
        with self._lock:
            if len(self._left) > _ADDRESSES:
                self._left.clear()
            left, at = self._left.get(who, (float(self._burst), now))
            left = min(left + (now - at) * self._per_second, self._burst)
            self._left[who] = (left - 1 if left >= 1 else left), now
            return left >= 1


class Guard:
    """Stands before the application."""

    def __init__(self, app: App, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._rate = Rate(settings.rate, settings.burst)
        self._events = Events()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began = time.monotonic()
        state: dict[str, Any] = scope.setdefault("state", {})
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name for name, _ in message.get("headers", ())}
                added = [header for header in _HEADERS if header[0] not in given]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await answer(message)

        try:
            if refusal := self._refusal(scope):
                await _refuse(answer, *refusal)
            else:
                await self._app(scope, self._counted(receive), watched)
        except TooLarge:
            await _refuse(answer, 413, self._too_large)
        except Exception as error:  # noqa: BLE001 - the last resort: a line for whoever asked, the trace for us
            state["outcome"] = f"unexpected {type(error).__name__}"
            _log.exception("a request failed", extra={"path": scope["path"]})
            if not begun:
                said = "something unexpected happened; the server's log says what"
                await _refuse(answer, 500, said)
        finally:
            self._note(scope, state, status, time.monotonic() - began)

    @property
    def _too_large(self) -> str:
        return f"the request is larger than {self._settings.body:,} bytes"

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        name = urlsplit(f"//{host}").hostname or "" if _is_plain(host) else ""
        if not self._settings.answers_to(name):
            return 421, "this server is not called so; truecopy serve --name NAME adds a name"
        if scope["method"] not in SAFE and not _same_origin(headers, host, self._settings.scheme):
            return 403, "the request comes from another site"
        if not self._rate.take(_address(scope)):
            return 429, "too many requests; wait a moment"
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > self._settings.body:
            return 413, self._too_large
        return None

    def _counted(self, receive: Receive) -> Receive:
        """Requests that do not say how long they are may be no longer, either."""
        left = self._settings.body

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise TooLarge
            return message

        return counted

    def _note(self, scope: Scope, state: dict[str, Any], status: int, seconds: float) -> None:
        who, role = state.get("who", ("", ""))
        _log.info(
            "request",
            extra={
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(seconds * 1000, 1),
                "who": who,
                "address": _address(scope),
            },
        )
        if scope["method"] in SAFE or status in (421, 429):
            return
        route = scope.get("route")
        action = str(getattr(route, "name", "") or scope["method"])[:40]
        outcome = state.get("outcome") or str(status)
        try:
            subject = scope["path"][:500].replace("\x00", "")
            self._events.note(who or "?", role, _address(scope), action, subject, outcome[:500])
        except SQLAlchemyError:
            _log.warning("the audit log cannot be written", extra={"action": action, "who": who})


def _same_origin(headers: dict[bytes, str], host: str, scheme: str) -> bool:
    """A browser says from which site a change is asked for; programs say nothing."""
    if headers.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get(b"origin")
    # A proxy may have taken the request by HTTPS.
    return origin in (None, f"{scheme}://{host}", f"https://{host}")


def _is_plain(host: str) -> bool:
    return bool(host) and not any(c in host for c in "/@\\?# ") and host.isprintable()


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _refuse(send: Send, status: int, error: str) -> None:
    body = json.dumps({"error": error, "problems": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
