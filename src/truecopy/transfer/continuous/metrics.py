"""Figures of validations over HTTP, for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from truecopy.model.errors import TruecopyError, UsageError
from truecopy.transfer.continuous.standing import prometheus, read_validation


@contextmanager
def serving(port: int | None, tasks: Sequence[str]) -> Iterator[None]:
    """Serves `/metrics` to this machine while the block runs; nothing where there is no port."""
    if port is None:
        yield
        return
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(tasks))
    except OSError as error:
        raise UsageError(f"the port {port} cannot be served at: {error.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _handler(tasks: Sequence[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            found = []
            for task in tasks:
                try:
                    found.append(read_validation(task))
                except TruecopyError:
                    continue  # not begun yet
            body = prometheus(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Standard error is for people."""

    return Handler
