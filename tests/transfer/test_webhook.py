"""Events to a webhook: what arrives, what is tried again, and what never holds up a run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.transfer.webhook import Hook, Webhook


@dataclass
class Receiver:
    """An HTTP server that answers as told, and keeps what it got."""

    answers: list[int]
    delay: float = 0.0
    got: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def receiver(*answers: int, delay: float = 0.0) -> Iterator[Receiver]:
    state = Receiver(list(answers), delay)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(state.delay)
            state.paths.append(self.path)
            state.got.append(json.loads(body))
            code = state.answers.pop(0) if state.answers else 200
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - the server's name

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/hooks/s3cret"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_events_arrive_in_order_and_only_those_that_are_wanted() -> None:
    with receiver() as there:
        with Webhook(Hook(Secret(there.url), ("state", "error")), "shop") as hook:
            hook.tell("state", state="snapshot")
            hook.tell("cutover", step="lock")
            hook.tell("error", message="ü")
        first, second = there.got
    assert (first["event"], first["task"], first["state"]) == ("state", "shop", "snapshot")
    assert first["at"].endswith("+00:00")
    assert (second["event"], second["message"]) == ("error", "ü")


def test_a_hook_that_fails_is_tried_again() -> None:
    said: list[str] = []
    with receiver(500, 503) as there:
        with Webhook(Hook(Secret(there.url)), "shop", said.append) as hook:
            hook.tell("state", state="replay")
        assert [one["state"] for one in there.got] == ["replay"] * 3
    assert not said


@pytest.mark.long
def test_a_hook_that_never_answers_well_is_told_once_and_without_its_address() -> None:
    said: list[str] = []
    with (
        receiver(*[500] * 50) as there,
        Webhook(Hook(Secret(there.url)), "shop", said.append) as hook,
    ):
        hook.tell("state", state="a")
        hook.tell("state", state="b")
    (line,) = said
    assert line == "an event did not reach the webhook: it answered 500"
    nowhere = Hook(Secret(there.url))  # its server is gone
    assert "s3cret" not in repr(nowhere)
    with Webhook(nowhere, "shop", said.append) as hook:
        hook.tell("state", state="c")
    assert "cannot be reached" in said[-1]
    assert "127.0.0.1" not in said[-1]


def test_a_redirect_is_no_delivery() -> None:
    said: list[str] = []
    with receiver(*[302] * 10) as there:
        with Webhook(Hook(Secret(there.url)), "shop", said.append) as hook:
            hook.tell("state", state="a")
        assert set(there.paths) == {"/hooks/s3cret"}
    assert said == ["an event did not reach the webhook: it answered 302"]


def test_a_slow_hook_does_not_hold_up_the_run() -> None:
    said: list[str] = []
    with receiver(delay=2.0) as there:
        hook = Webhook(Hook(Secret(there.url)), "shop", said.append)
        begun = time.monotonic()
        for number in range(2000):
            hook.tell("state", state=str(number))
        hook.close(0.5)
        assert time.monotonic() - begun < 60  # where it waited for each, an hour
    assert said == ["an event did not reach the webhook: too many events wait for it"]


def test_the_address_may_be_a_variable_and_must_be_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as there:
        monkeypatch.setenv("HOOK", there.url)
        with Webhook(Hook(Secret("${HOOK}")), "shop") as hook:
            hook.tell("error", message="x")
        assert len(there.got) == 1
    with pytest.raises(UsageError, match="http://"):
        Webhook(Hook(Secret("file:///etc/passwd")), "shop")


def test_without_a_hook_nothing_happens() -> None:
    with Webhook(None, "shop") as hook:
        hook.tell("state", state="snapshot")
