"""Private caches: real ones, on free ports, gone afterwards."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import START_SECONDS, STOP_SECONDS, _free_port, _program
from truecopy.cache.store import Cache, open_cache
from truecopy.model.errors import CannotFinish


@contextmanager
def private_redis(*lines: str) -> Iterator[str]:
    """The URL of a Redis that keeps nothing on the disk; `lines` of its configuration."""
    port, password = _free_port(), secrets.token_urlsafe(18)
    with tempfile.TemporaryDirectory(prefix="truecopy-redis-") as folder:
        file = Path(folder) / "redis.conf"
        settings = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            'save ""',
            "appendonly no",
            f"requirepass {password}",
            *lines,
        ]
        file.write_text("\n".join(settings))
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        with _running([_program("redis-server"), str(file)], folder, lambda: open_cache(url)):
            yield url


@contextmanager
def private_memcached(*options: str) -> Iterator[str]:
    """The URL of a memcached."""
    port = _free_port()
    command = [_program("memcached"), "-l", "127.0.0.1", "-p", str(port), "-U", "0", *options]
    if os.geteuid() == 0:
        command += ["-u", "nobody"]
    url = f"memcached://127.0.0.1:{port}"
    with (
        tempfile.TemporaryDirectory(prefix="truecopy-memcached-") as folder,
        _running(command, folder, lambda: open_cache(url)),
    ):
        yield url


@contextmanager
def _running(command: list[str], folder: str, connect: Callable[[], Cache]) -> Iterator[None]:
    prefix = ["setpriv", "--pdeathsig=TERM"] if shutil.which("setpriv") else []
    with (Path(folder) / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*prefix, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for(process, connect)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], connect: Callable[[], Cache]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        cache = connect()
        try:
            cache.get(["x"])
        except CannotFinish:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
        finally:
            cache.close()
