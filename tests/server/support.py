"""Servers of the tests: the real application over HTTP, in a thread or in a process that can be killed."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import uvicorn

from truecopy.server.serving import make_server
from truecopy.server.settings import ServerSettings

SHOP = """
task: {name}
source: sqlite:///{folder}/source.db
target: sqlite:///{folder}/target.db
"""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def document(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Caller:
    """Asks a server as a program would, or as a browser with its headers."""

    port: int

    def __call__(
        self,
        method: str,
        path: str,
        document: object = None,
        **headers: str,
    ) -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        body = None
        if document is not None:
            body, given["Content-Type"] = json.dumps(document), "application/json"
        return self.send(method, path, body, given)

    def send(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body.encode() if body else None, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            cookies = SimpleCookie()
            for name, value in answer.getheaders():
                if name.lower() == "set-cookie":
                    cookies.load(value)
            texts = {name: one.value for name, one in cookies.items()}
            return Answer(answer.status, found, answer.read().decode(), texts)
        finally:
            connection.close()


@contextmanager
def serving(**given: Any) -> Iterator[Caller]:
    """A server in a thread."""
    server = make_server(ServerSettings(port=0, **given))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield Caller(_port(server))
    finally:
        server.should_exit = True
        thread.join(20)


def wait_until(condition: Callable[[], Any], seconds: float = 240.0) -> Any:
    """What a condition comes to, once it does."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)
    return found


def make_shop(folder: Path, rows: int = 10) -> None:
    """A source with a table, and an empty target."""
    import sqlite3

    with sqlite3.connect(folder / "source.db") as source:
        source.execute("CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        source.executemany(
            "INSERT INTO goods VALUES (?, ?)", [(n, f"thing {n}") for n in range(rows)]
        )
    source.close()
    sqlite3.connect(folder / "target.db").close()


def count(folder: Path) -> int:
    """The rows of the target's table."""
    import sqlite3

    connection = sqlite3.connect(folder / "target.db")
    try:
        return int(connection.execute("SELECT count(*) FROM goods").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def _port(server: uvicorn.Server) -> int:
    wait_until(lambda: server.started)
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port
