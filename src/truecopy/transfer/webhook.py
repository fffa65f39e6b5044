"""Events to a webhook: JSON by POST, in the background. A hook that fails or is slow never holds up the run."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any

from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret

STATE, ERROR, CUTOVER = "state", "error", "cutover"
EVENTS = (STATE, ERROR, CUTOVER)

_TRIES = 4
_TIMEOUT_SECONDS = 5.0
_PAUSE_SECONDS = 0.5
_MOST_WAITING = 1000
_LAST_SECONDS = 10.0


@dataclass(frozen=True)
class Hook:
    """Where events go, and which; the address is a secret, since many hold a token."""

    url: Secret = field(repr=False)
    events: tuple[str, ...] = EVENTS


class Webhook:
    """Sends events, one after the other, from a thread of its own.

    Args:
        hook: None sends nothing.
        said: Hears, once, that the hook cannot be reached.
    """

    def __init__(
        self, hook: Hook | None, task: str, said: Callable[[str], None] = lambda _: None
    ) -> None:
        self._events = hook.events if hook else ()
        self._task = task
        self._said = said
        self._has_failed = False
        self._give_up_at = float("inf")
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        if hook is not None:
            url = _address(hook)
            self._thread = threading.Thread(
                target=self._run, args=(url,), name="webhook", daemon=True
            )
            self._thread.start()

    def tell(self, event: str, **facts: Any) -> None:
        """Sends an event, if it is one of those that are wanted; returns at once."""
        if event not in self._events:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        document = {"event": event, "task": self._task, "at": now, **facts}
        try:
            self._waiting.put_nowait(json.dumps(document, ensure_ascii=False).encode())
        except queue.Full:
            self._complain("too many events wait for it")

    def close(self, seconds: float = _LAST_SECONDS) -> None:
        """Waits for what is still to be sent, but not long."""
        if self._thread is None:
            return
        self._give_up_at = time.monotonic() + seconds
        try:
            self._waiting.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def __enter__(self) -> Webhook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, url: str) -> None:
        while (body := self._waiting.get()) is not None:
            self._send(url, body)

    def _send(self, url: str, body: bytes) -> None:
        for attempt in range(_TRIES):
            left = self._give_up_at - time.monotonic()
            if left <= 0:
                return self._complain("it took too long at the end of the run")
            why = post(url, body, min(_TIMEOUT_SECONDS, left))
            if not why:
                return None
            if attempt + 1 < _TRIES:
                time.sleep(min(_PAUSE_SECONDS * 2**attempt, max(left, 0.0)))
        return self._complain(why)

    def _complain(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._said(f"an event did not reach the webhook: {why}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET, without the event."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def post(url: str, body: bytes, seconds: float) -> str:
    """Sends it; what went wrong, in words without the address, or nothing."""
    headers = {"Content-Type": "application/json", "User-Agent": "truecopy"}
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with _opener.open(request, timeout=seconds):
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return f"it answered {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return (
            f"it cannot be reached ({getattr(reason, 'strerror', None) or type(reason).__name__})"
        )


def _address(hook: Hook) -> str:
    url = hook.url.reveal()
    if not url.startswith(("http://", "https://")):
        raise UsageError("the webhook's address does not begin with http:// or https://")
    return url
