"""Private database servers: real ones, on free ports, in a temporary folder, gone afterwards.

    with MariaDB(buffer_pool="2G") as server:
        server.create_database("shop")
        server.execute("shop", "CREATE TABLE t (id INT PRIMARY KEY)")
        print(server.url("shop"))

The settings favour speed: nothing here survives a crash, and nothing needs to. Servers refuse to
run as root, so under root they run as the user that their package made, or as nobody.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import psycopg
import pymysql
from pymysql.constants import CLIENT

NOBODY = 65534
START_SECONDS = 60
STOP_SECONDS = 30

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Server(ABC):
    """A server that answers. Parameters are written `%s`, whatever the engine."""

    scheme: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)

    def url(self, database: str = "") -> str:
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return f"{self.scheme}://{login}@{self.host}:{self.port}/{database}"

    @abstractmethod
    def connect(self, database: str | None = None) -> Any:
        """A DB-API connection in autocommit."""

    @abstractmethod
    def drop_database(self, name: str) -> None:
        """Drop it, whoever is still connected."""

    def create_database(self, name: str) -> Database:
        self.execute(None, f"CREATE DATABASE {name}")
        return Database(self, name)

    def execute(
        self, database: str | None, sql: str, params: Sequence[object] | None = None
    ) -> list[Row]:
        """Run one statement, or several separated by `;` without parameters.

        Returns:
            The rows of the last result, if there was one.
        """
        with closing(self.connect(database)) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(sql, params)
            rows: list[Row] = []
            while True:
                if cursor.description is not None:
                    rows = list(cursor.fetchall())
                if not cursor.nextset():
                    return rows

    def executemany(self, database: str | None, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement per row, in one transaction."""
        with closing(self.connect(database)) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN")
            cursor.executemany(sql, list(rows))
            cursor.execute("COMMIT")


@dataclass(frozen=True)
class Database:
    """One database of a server."""

    server: Server
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def connect(self) -> Any:
        return self.server.connect(self.name)

    def execute(self, sql: str, params: Sequence[object] | None = None) -> list[Row]:
        return self.server.execute(self.name, sql, params)

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        self.server.executemany(self.name, sql, rows)


class MySQLServer(Server):
    """MySQL or MariaDB."""

    def connect(self, database: str | None = None) -> Any:
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            local_infile=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )

    def drop_database(self, name: str) -> None:
        # A transaction that a test left open holds a lock: fail and say so rather than hang.
        self.execute(None, f"SET SESSION lock_wait_timeout = 20; DROP DATABASE IF EXISTS {name}")
        # Workers of Spark keep connections for a while.
        asked = f"SELECT id FROM information_schema.processlist WHERE db = '{name}' AND command = 'Sleep'"
        for (connection,) in self.execute(None, asked):
            with suppress(pymysql.MySQLError):  # it has ended by itself
                self.execute(None, f"KILL {connection}")


class PostgreSQLServer(Server):
    """PostgreSQL."""

    def connect(self, database: str | None = None) -> Any:
        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database or "postgres",
            autocommit=True,
        )

    def drop_database(self, name: str) -> None:
        self.execute(None, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


class PrivateServer(ABC):
    """A server process and its folder, from `with` to the end of the block.

    Attributes:
        account: the user that the process runs as when the tests run as root.
        root: where the server's file system starts: `/`, or a chroot.
    """

    account: str
    stop_signal = signal.SIGTERM

    def __init__(self, *options: str, root: Path = Path("/")) -> None:
        self.options = options
        self.root = root
        self.port = _free_port()
        self.password = secrets.token_urlsafe(18)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def initialise(self) -> None:
        """Make the data folder."""

    @abstractmethod
    def command(self) -> list[str]:
        """The server's command line."""

    @abstractmethod
    def server(self) -> Server:
        """How to reach it."""

    def __enter__(self) -> Server:
        try:
            self._make_folder()
            self.initialise()
            return self._start()
        except BaseException:
            self._stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def folder(self) -> Path:
        """The folder, as seen from outside a chroot."""
        assert self._folder is not None, "not started"
        return self._folder

    def path(self, name: str) -> str:
        """A path in the folder, as the server sees it."""
        return f"/{(self.folder / name).relative_to(self.root)}"

    def write(self, name: str, text: str) -> str:
        """Write a file that the server may read; its path, as the server sees it."""
        file = self.folder / name
        file.write_text(text)
        self._hand_over(file)
        return self.path(name)

    def run(self, *command: str) -> None:
        """Run a program to its end as the server's user."""
        done = subprocess.run(
            self._as_account(command), cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def _make_folder(self) -> None:
        parent = None if self.root == Path("/") else self.root / "tmp"
        self._folder = Path(tempfile.mkdtemp(prefix="truecopy-server-", dir=parent)).resolve()
        self._hand_over(self._folder)

    def _hand_over(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, *self._account_ids())

    def _account_ids(self) -> tuple[int, int]:
        if self.root == Path("/"):
            try:
                entry = pwd.getpwnam(self.account)
            except KeyError:
                pass
            else:
                return entry.pw_uid, entry.pw_gid
        return NOBODY, NOBODY

    def _as_account(self, command: Sequence[str]) -> list[str]:
        """The command without root's rights, and ended when this process ends, even if killed."""
        prefix = []
        if self.root != Path("/"):
            prefix += ["chroot", str(self.root)]
        if shutil.which("setpriv"):
            prefix += ["setpriv", f"--pdeathsig={self.stop_signal.name.removeprefix('SIG')}"]
            if os.geteuid() == 0:
                uid, gid = self._account_ids()
                prefix += [f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
        return [*prefix, *command]

    def _start(self) -> Server:
        log = self.folder / "server.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self._as_account([*self.command(), *self.options]),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C ends the tests first, and they end the server
            )
        server = self.server()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                server.execute(None, "SELECT 1")
            except (pymysql.Error, psycopg.Error) as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    tail = log.read_text(errors="replace")[-4000:]
                    raise RuntimeError(f"{self.command()[0]} did not start:\n{tail}") from error
                time.sleep(0.05)
            else:
                return server

    def restart(self, how: signal.Signals) -> Server:
        """End the process by a signal, and start it again on the same data and port."""
        assert self._process is not None, "not started"
        self._process.send_signal(how)
        self._process.wait(STOP_SECONDS)
        return self._start()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(self.stop_signal)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder)


class MariaDB(PrivateServer):
    """MariaDB, with a binary log in row format.

    Args:
        options: more options for `mariadbd`.
        buffer_pool: InnoDB's memory.
    """

    account = "mysql"

    def __init__(self, *options: str, buffer_pool: str = "256M") -> None:
        super().__init__(*options)
        self.buffer_pool = buffer_pool

    def initialise(self) -> None:
        self.run(
            _program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self.path('data')}",
            f"--tmpdir={self.path('')}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )

    def command(self) -> list[str]:
        return [
            _program("mariadbd"),
            *_mysql_options(self, self.buffer_pool),
            f"--init-file={_mysql_init_file(self)}",
            "--binlog-format=ROW",
            "--innodb-fast-shutdown=2",
        ]

    def server(self) -> Server:
        return MySQLServer("mariadb", "127.0.0.1", self.port, "root", self.password)


class MySQL(PrivateServer):
    """MySQL itself.

    Args:
        mysqld: the path of a `mysqld`, or `chroot:FOLDER` for the one in that chroot.
        options: more options for `mysqld`.
        buffer_pool: InnoDB's memory.
    """

    account = "mysql"

    def __init__(self, mysqld: str, *options: str, buffer_pool: str = "256M") -> None:
        chroot = mysqld.startswith("chroot:")
        root = Path(mysqld.removeprefix("chroot:")).resolve() if chroot else Path("/")
        super().__init__(*options, root=root)
        self.mysqld = "mysqld" if chroot else mysqld
        self.buffer_pool = buffer_pool

    def initialise(self) -> None:
        self.run(
            self.mysqld, "--no-defaults", "--initialize-insecure", f"--datadir={self.path('data')}"
        )

    def command(self) -> list[str]:
        return [
            self.mysqld,
            *_mysql_options(self, self.buffer_pool),
            f"--init-file={_mysql_init_file(self)}",
            "--mysqlx=OFF",
            "--secure-file-priv=",  # its folder is not part of the server's package
        ]

    def server(self) -> Server:
        return MySQLServer("mysql", "127.0.0.1", self.port, "root", self.password)


class PostgreSQL(PrivateServer):
    """PostgreSQL, ready for logical replication.

    Args:
        options: more options for `postgres`, such as `-c`, `work_mem=64MB`.
        shared_buffers: its memory.
    """

    account = "postgres"
    stop_signal = signal.SIGINT  # end now, without waiting for clients

    def __init__(self, *options: str, shared_buffers: str = "128MB") -> None:
        super().__init__(*options)
        self.shared_buffers = shared_buffers

    def initialise(self) -> None:
        self.run(
            _program("initdb"),
            f"--pgdata={self.path('data')}",
            "--auth=scram-sha-256",
            "--username=postgres",
            f"--pwfile={self.write('password', self.password)}",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        )

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.path(""),
            "shared_buffers": self.shared_buffers,
            "wal_level": "logical",
            "fsync": "off",
            "full_page_writes": "off",
            "synchronous_commit": "off",
        }
        return [
            _program("postgres"),
            "-D",
            self.path("data"),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def server(self) -> Server:
        return PostgreSQLServer("postgresql", "127.0.0.1", self.port, "postgres", self.password)


def _mysql_options(server: PrivateServer, buffer_pool: str) -> list[str]:
    return [
        "--no-defaults",
        f"--datadir={server.path('data')}",
        # Temporary tables are named by the process's number, which another container may have, too.
        f"--tmpdir={server.path('')}",
        f"--socket={server.path('socket')}",
        f"--pid-file={server.path('pid')}",
        f"--port={server.port}",
        "--bind-address=127.0.0.1",
        "--skip-name-resolve",
        f"--server-id={server.port}",  # differs between the servers of a run
        "--log-bin=binlog",
        "--sync-binlog=0",
        f"--innodb-buffer-pool-size={buffer_pool}",
        "--innodb-flush-log-at-trx-commit=0",
        "--local-infile=1",
        "--character-set-server=utf8mb4",
    ]


def _mysql_init_file(server: PrivateServer) -> str:
    """Both install root without a password, for local connections."""
    return server.write(
        "init.sql",
        "SET SESSION sql_log_bin = 0;\n"
        f"CREATE USER 'root'@'%' IDENTIFIED BY '{server.password}';\n"
        "GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;\n"
        "DROP USER IF EXISTS 'root'@'localhost', 'root'@'127.0.0.1', 'root'@'::1';\n",
    )


def _program(name: str) -> str:
    """Where a program is: on the PATH, or where Debian hides it. The newest PostgreSQL wins."""
    hidden = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name)
    )
    folders = [os.environ.get("PATH", ""), "/usr/sbin", *map(str, reversed(hidden))]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: run `make servers`")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
