"""The replication protocol: a connection that sends what a slot decodes.

psycopg has no replication of its own, but its libpq has: TLS, SCRAM and `.pgpass` work as everywhere.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable

import psycopg
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from truecopy.engines.postgresql import connection_parameters, explain_refusal
from truecopy.model.endpoint import Endpoint
from truecopy.stream.postgresql.lsn import lsn_text, to_server_time

WAL_DATA, KEEPALIVE = b"w"[0], b"k"[0]
HEADER = 25
"""Bytes before the message of the output plugin."""
_KEEPALIVE = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")
# Texts must not depend on what somebody set for the role or the database.
_SETTINGS = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
    "xmlbinary": "base64",
}


class Refused(Exception):
    """The server ended the stream, or did not start it.

    Attributes:
        code: The SQLSTATE; empty when the connection broke.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Replication:
    """An open stream. `receive` gives one message, or None when there is none yet."""

    def __init__(self, endpoint: Endpoint, slot: str, publication: str, start: int) -> None:
        given = connection_parameters(endpoint)
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        given["options"] = f"{given.get('options', '')} {settings}".strip()
        try:
            self._connection = psycopg.connect(**given, replication="database", autocommit=True)
        except psycopg.OperationalError as error:
            raise explain_refusal(error, endpoint) from None
        self._libpq: PGconn = self._connection.pgconn
        messages = ", messages 'true'" if self._libpq.server_version >= 140000 else ""
        try:
            self._start(
                f"START_REPLICATION SLOT {_quoted(slot)} LOGICAL {lsn_text(start)} (proto_version '1',"
                f" publication_names {_literal(_quoted(publication))}{messages})"
            )
        except BaseException:
            self.close()
            raise
        self._socket = self._libpq.socket
        self.receive: Callable[[int], tuple[int, memoryview]] = self._libpq.get_copy_data

    def wait(self, seconds: float, wake: int) -> None:
        """Until there is news from the server, the handle `wake` can be read, or the time is over."""
        ready, _, _ = select.select([self._socket, wake], [], [], seconds)
        if self._socket in ready:
            try:
                self._libpq.consume_input()
            except psycopg.OperationalError as error:
                raise Refused("", _one_line(str(error))) from None

    def confirm(self, lsn: int, *, ask: bool = False) -> None:
        """Tells the server that nothing before `lsn` is needed again; asks for a sign of life."""
        now = to_server_time(time.time_ns() // 1000)
        try:
            self._libpq.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now, ask))
            self._libpq.flush()
        except psycopg.Error as error:
            raise Refused("", _one_line(str(error))) from None

    def ending(self) -> Refused:
        """Why the stream ended."""
        result = self._libpq.get_result()
        if result is None or result.status not in (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE):
            return Refused("", "the server ended the stream")
        return _refused(result)

    def close(self) -> None:
        self._connection.close()

    def _start(self, command: str) -> None:
        try:
            self._libpq.send_query(command.encode())
            while self._libpq.flush():
                select.select([], [self._libpq.socket], [], 1)
            while self._libpq.is_busy():
                select.select([self._libpq.socket], [], [], 1)
                self._libpq.consume_input()
            result = self._libpq.get_result()
        except psycopg.OperationalError as error:
            raise Refused("", _one_line(str(error))) from None
        if result is None or result.status != ExecStatus.COPY_BOTH:
            raise _refused(result) if result else Refused("", "no answer")


def parse_keepalive(data: memoryview) -> tuple[int, int, bool]:
    """Where the server stands, its clock, and whether it wants an answer."""
    _, end, clock, wants_reply = _KEEPALIVE.unpack_from(data)
    return end, clock, bool(wants_reply)


def _refused(result: PGresult) -> Refused:
    code = result.error_field(DiagnosticField.SQLSTATE) or b""
    primary = result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    return Refused(code.decode(), _one_line(primary.decode("utf-8", "replace")))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _one_line(text: str) -> str:
    return " ".join(text.split())
