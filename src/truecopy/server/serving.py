"""A server that listens, and what it writes into its log: a JSON document a line."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import uvicorn

from truecopy.model.logline import log_line
from truecopy.server.app import make_app
from truecopy.server.settings import ServerSettings

_FIELDS = ("task", "method", "path", "status", "ms", "who", "address", "action")


class JsonLines(logging.Formatter):
    """A line of the log as a document. Traces go there and nowhere else."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return log_line(record.created, record.levelname.lower(), record.getMessage(), **fields)


def log_to(stream: TextIO = sys.stderr) -> None:
    """Has the server's log written."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("truecopy.server", "truecopy.telemetry", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False


def make_server(settings: ServerSettings) -> uvicorn.Server:
    """A server that has not begun to listen; `run` does, until it is told to end."""
    app = make_app(settings)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.key,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
            limit_concurrency=500,
            h11_max_incomplete_event_size=64 * 1024,
        )
    )
    app.state.is_ending = lambda: server.should_exit
    return server
