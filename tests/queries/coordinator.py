"""The protocol by which clients talk to a coordinator of Trino or Presto, and no engine behind it.

`POST /v1/statement` takes a statement and names a URI under which its answer grows page by page;
`DELETE` of that URI (Trino), or of `/v1/query/ID` (Presto's client), cancels it.
https://trino.io/docs/current/develop/client-protocol.html
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.1
_LONGEST = 2**31 - 1


@dataclass(frozen=True)
class Answer:
    """What comes of a statement: rows in pages, or an error; one that hangs ends when it is cancelled.

    Attributes:
        columns: Names and types.
        http: A status instead of any answer.
    """

    columns: Sequence[tuple[str, str]] = ()
    pages: Sequence[Sequence[Sequence[object]]] = ()
    update: str = ""
    memory: int = 1 << 20
    error: tuple[str, str] | None = None
    hangs: bool = False
    http: int = 0


@dataclass
class Coordinator:
    """Gives the answers that a test chose, and remembers what it was asked.

    Attributes:
        asked: Statements, in their order.
        headers: Of each statement.
        cancelled: Paths that were deleted.
    """

    answer: Callable[[str], Answer]
    tls: Path | None = None
    port: int = 0
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)

    def url(self, path: str = "") -> str:
        return f"http{'s' if self.tls else ''}://localhost:{self.port}{path}"

    def begin(self, sql: str, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """The first answer to a statement: where the next one is."""
        found = self.answer(sql)
        if found.http:
            return found.http, {}
        number = f"q{len(self.asked)}"
        self.asked.append(sql)
        self.headers.append(headers)
        self.answers[number] = found
        return 200, self._page(number, "QUEUED", after=0)

    def go_on(self, number: str, token: int) -> dict[str, Any]:
        """What is under a URI."""
        found = self.answers[number]
        if found.hangs:
            time.sleep(POLL_SECONDS)
            if any(number in path for path in self.cancelled):
                return self._failed(number, "USER_CANCELED", "USER_ERROR")
            return self._page(number, "RUNNING", after=token + 1)
        if found.error:
            return self._failed(number, *found.error)
        columns = [
            {"name": name, "type": kind, "typeSignature": _signature(kind)}
            for name, kind in found.columns
        ]
        more: dict[str, Any] = {"columns": columns} if columns else {}
        if found.update:
            more["updateType"] = found.update
        if token < len(found.pages):
            return self._page(number, "RUNNING", after=token + 1, data=found.pages[token], **more)
        return self._page(number, "FINISHED", **more)

    def _failed(self, number: str, name: str, kind: str) -> dict[str, Any]:
        error = {"message": f"it is {name}", "errorCode": 1, "errorName": name, "errorType": kind}
        return self._page(number, "FAILED", error=error)

    def _page(
        self, number: str, state: str, after: int | None = None, **more: object
    ) -> dict[str, Any]:
        page = {
            "id": number,
            "infoUri": self.url(f"/ui/query.html?{number}"),
            "stats": {
                "state": state,
                "cpuTimeMillis": 250,
                "peakMemoryBytes": self.answers[number].memory,
            },
            **more,
        }
        if after is not None:
            page["nextUri"] = self.url(f"/v1/statement/executing/{number}/{after}")
        return page


@contextmanager
def coordinator(
    answer: Callable[[str], Answer], tls: tuple[Path, Path] | None = None
) -> Iterator[Coordinator]:
    """A server until the end of the block; `tls` are a certificate and its key."""
    found = Coordinator(answer, tls[0] if tls else None)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sql = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._send(*found.begin(sql, dict(self.headers.items())))

        def do_GET(self) -> None:
            number, token = self.path.split("/")[-2:]
            self._send(200, found.go_on(number, int(token)))

        def do_DELETE(self) -> None:
            found.cancelled.append(self.path)
            self.send_response(204)
            self.end_headers()

        def _send(self, status: int, page: dict[str, Any]) -> None:
            body = json.dumps(page).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: standard error is looked at."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    found.port = server.server_address[1]
    serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    serving.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def _signature(kind: str) -> dict[str, Any]:
    """A type as the protocol takes it apart, as far as the clients look; texts without a length have the longest."""
    raw, _, inside = kind.partition("(")
    numbers = [int(word) for word in inside.rstrip(")").split(",") if word.strip().isdigit()]
    if raw == "varchar" and not numbers:
        numbers = [_LONGEST]
    return {"rawType": raw, "arguments": [{"kind": "LONG", "value": n} for n in numbers]}
