"""The primary is not what it was when a cutover comes to its end: its log is another file, or it is another server."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.program import truecopy as program
from tests.servers import Database, MariaDB, MySQLServer, Server
from tests.stream.test_binlog_servers import replicate, wait_for
from tests.transfer.cutting import Load, application, cut_over, dump, fill, is_equal, started
from truecopy.transfer.cutover.state import CERTIFIED
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rotated_primary_while_stopping(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """The position to stop at is in another file than what is read, again and again."""
    fill(mariadb_db, 20)
    settings = started(mariadb_db, second_mariadb_db)

    def rotate(_: str) -> None:
        mariadb_db.execute("FLUSH BINARY LOGS")

    with application(mariadb_db) as app, Load(app, 50).running():
        report = cut_over(settings, said=rotate)
    assert report.state == "switched", report.reason
    assert is_equal(mariadb_db, second_mariadb_db)


@pytest.mark.long
def test_changed_primary_while_stopping(
    spark: SparkSession, second_mariadb_db: Database, tmp_path: Path
) -> None:
    """A replica takes the address over, and nobody holds writers off there: what they write must not be lost."""
    with primary_behind_an_address() as (old, new, address):
        source = old_database(old, address)
        fill(source, 20)
        settings = started(source, second_mariadb_db)
        with application(source) as app:

            def promote(line: str) -> None:
                if CERTIFIED in line:
                    wait_for(new, old)
                    new.execute(None, "STOP SLAVE")
                    address.to = new.port
                    app.execute("UPDATE notes SET body = 'to the new primary' WHERE id = 3")

            report = cut_over(settings, said=promote)
            assert report.state == "rolled-back"
            assert "another server" in report.reason
            assert app.can_write()
        # Connections of this process may lead to the old primary still; those of another one do not.
        file = write_task(tmp_path, settings)
        assert program("run", str(file), "--until-caught-up").code == 0
        assert dump(source) == dump(second_mariadb_db)
        told = second_mariadb_db.execute("SELECT body FROM notes WHERE id = 3")
        assert told == [("to the new primary",)]


def write_task(folder: Path, settings: Settings) -> Path:
    file = folder / "task.yaml"
    ends = f"source: {settings.source}\ntarget: {settings.target}\n"
    file.write_text(f"task: {settings.task}\n{ends}consistency: table\n", encoding="utf-8")
    return file


class Address:
    """A port that leads to one server or the other; who is connected stays where he is."""

    def __init__(self, to: int) -> None:
        self.to = to
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                one, _ = self._listening.accept()
                other = socket.create_connection(("127.0.0.1", self.to))
                for ends in ((one, other), (other, one)):
                    threading.Thread(target=_carry, args=ends, daemon=True).start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while piece := one.recv(1 << 16):
            other.sendall(piece)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def primary_behind_an_address() -> Iterator[tuple[Server, Server, Address]]:
    with ExitStack() as stack:
        old, new = (
            stack.enter_context(MariaDB("--log-slave-updates", buffer_pool="16M")) for _ in range(2)
        )
        replicate(old, new)
        address = Address(old.port)
        stack.callback(address.close)
        yield old, new, address


def old_database(old: Server, address: Address) -> Database:
    """Reached through the address, by a user whom both servers know."""
    password = secrets.token_hex(8)
    old.execute(None, f"CREATE USER mover IDENTIFIED BY '{password}'")
    old.execute(None, "GRANT ALL ON *.* TO mover WITH GRANT OPTION")
    old.create_database("shop")
    return Database(MySQLServer("mariadb", "127.0.0.1", address.port, "mover", password), "shop")
