"""What not everybody needs is an extra: where its package is missing, a line says which."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from truecopy.extras import BROUGHT_BY
from truecopy.spark import _distributions

_WITHOUT = """
import sys
for package in {packages!r}:
    sys.modules[package] = None  # as if it were not installed
"""
_OPENED = """
from truecopy.cache.store import open_cache
from truecopy.client.server import open_server
from truecopy.engines import connect
from truecopy.engines.queries.session import open_session
from truecopy.metastore.database import open_metastore
from truecopy.model.endpoint import parse_endpoint as end
from truecopy.model.errors import UsageError
from truecopy.stream.log import Wanted, open_log

try:
    {call}
except UsageError as error:
    print(error)
"""
_COMMAND = """
sys.argv = ["truecopy", *{words!r}]
from truecopy.cli.main import main
main()
"""
_NAMES = {"prestodb": "presto-python-client", "grpc": "pyspark[connect]"}
"""Packages that are imported by another name than they are installed by."""


def _run(packages: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(packages=packages) + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        ("open_cache('redis://h/0')", "redis", "redis"),
        ("open_cache('memcached://h')", "pymemcache", "memcached"),
        ("open_session(end('mariadb://u@h/shop'))", "pymysql", "mysql"),
        ("open_session(end('postgresql://u@h/shop'))", "psycopg", "postgresql"),
        ("open_session(end('duckdb:///a.duckdb'))", "duckdb", "duckdb"),
        ("open_session(end('trino://u@h:1/c/s'))", "trino", "trino"),
        ("connect(end('mariadb://u@h/shop'))", "pymysql", "mysql"),
        ("connect(end('postgresql://u@h/shop'))", "psycopg", "postgresql"),
        ("connect(end('duckdb:///a.duckdb'))", "duckdb", "duckdb"),
        ("connect(end('lake:///tmp?format=parquet'))", "duckdb", "duckdb"),
        ("connect(end('lake:///tmp?format=delta'))", "deltalake", "delta"),
        ("open_server(end('mysql://u@h/shop'), 's')", "pymysql", "mysql"),
        ("open_log(end('postgresql://u@h/shop'), Wanted(''))", "psycopg", "postgresql"),
        ("open_metastore('postgresql+psycopg://u@h/state')", "psycopg", "postgresql"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(call: str, package: str, extra: str) -> None:
    done = _run((package,), _OPENED.format(call=call))
    assert done.returncode == 0, done.stderr
    assert f"pip install 'truecopy[{extra}]'" in done.stdout
    assert done.stdout.count("\n") == 1


def test_every_extra_brings_what_it_is_named_for() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    for package, extra in BROUGHT_BY.items():
        name = _NAMES.get(package, package)
        assert any(one.startswith(name) for one in extras[extra]), package
    everything = set(re.findall(r"[\w-]+", extras["all"][0])) - {"truecopy"}
    others = {"all", "dev", "docs", "bench", "mariadb", "lake"}
    assert everything == extras.keys() - others


def test_a_command_without_its_extra_ends_in_one_line(tmp_path: Path) -> None:
    words = ["changelog", "ls", str(tmp_path)]
    done = _run(("duckdb",), _COMMAND.format(words=words))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "truecopy: this command needs the Python package duckdb: pip install 'truecopy[duckdb]'\n"
    )


def test_without_any_extra_files_of_sqlite_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as shop, shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        shop.execute("INSERT INTO orders VALUES (1)")
    words = ["verify", f"sqlite:///{file}", f"sqlite:///{file}"]
    done = _run((*BROUGHT_BY, "cryptography", "opentelemetry"), _COMMAND.format(words=words))
    assert done.returncode == 0, done.stderr
    assert "equal" in done.stdout


def test_executors_get_the_drivers_that_are_there() -> None:
    shipped = _distributions("truecopy", {}).keys()
    assert shipped >= {
        "pymysql",
        "cryptography",
        "psycopg",
        "psycopg-binary",
        "duckdb",
        "deltalake",
    }
    assert not shipped & {"pyspark", "fastapi", "redis", "ruff"}
