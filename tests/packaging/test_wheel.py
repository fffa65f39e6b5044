"""The package as a user gets it: a wheel, in an environment that has nothing else."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import sysconfig
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sysconfig.get_path("scripts"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with `truecopy` and no extra."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(BIN / "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("truecopy-*.whl")
    home = folder / "venv"
    _run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, home)
    versions = ("--constraint", ROOT / "requirements.lock")
    python = home / "bin" / "python"
    _run(BIN / "uv", "pip", "install", "--quiet", "--python", python, *versions, wheel)
    return home / "bin"


def _run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    done = _tried(*words)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done


def _tried(*words: str | Path) -> subprocess.CompletedProcess[str]:
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        env=outside,
        cwd="/",
        stdin=subprocess.DEVNULL,
        timeout=600,
    )


@pytest.mark.slow
def test_the_demo_runs_without_any_extra(installed: Path) -> None:
    assert _run(installed / "truecopy", "--version").stdout.startswith("truecopy ")
    assert "Move data between databases" in _run(installed / "truecopy", "--help").stdout
    assert "equal" in _run(installed / "truecopy", "demo").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cache", "extra"),
    [
        ("redis://h/0", "redis"),
        ("memcached://h", "memcached"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(
    installed: Path, tmp_path: Path, cache: str, extra: str
) -> None:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    words = (f"sqlite:///{file}", cache, "--object", "orders=order:{id}")
    done = _tried(installed / "truecopy", "cache", *words)
    assert done.returncode == 2
    assert f"pip install 'truecopy[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("mysql://u@h/shop", "mysql"),
        ("postgresql://u@h/shop", "postgresql"),
        ("duckdb:///shop.duckdb", "duckdb"),
        ("lake:///tmp?format=delta", "duckdb"),
    ],
)
def test_a_driver_is_an_extra(installed: Path, url: str, extra: str) -> None:
    done = _tried(installed / "truecopy", "verify", url, url)
    assert done.returncode == 2
    assert f"pip install 'truecopy[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_server_is_an_extra(installed: Path) -> None:
    done = _tried(installed / "truecopy", "serve")
    assert done.returncode == 2
    assert done.stderr == "truecopy: the server is an extra: pip install 'truecopy[server]'\n"
