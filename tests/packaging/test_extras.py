"""What not everybody needs is an extra: where its package is missing, a line says which."""

from __future__ import annotations

import subprocess
import sys

import pytest

_OPENED = """
import sys

sys.modules[{package!r}] = None  # as if it were not installed
from truecopy.cache.store import open_cache
from truecopy.engines.queries.session import open_session
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError

try:
    {call}
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        ("open_cache('redis://h/0')", "redis", "redis"),
        ("open_cache('memcached://h')", "pymemcache", "memcached"),
        ("open_session(parse_endpoint('mariadb://u@h/shop'))", "pymysql", "mariadb"),
        ("open_session(parse_endpoint('postgresql://u@h/shop'))", "psycopg", "postgresql"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(call: str, package: str, extra: str) -> None:
    code = _OPENED.format(package=package, call=call)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert f"pip install 'truecopy[{extra}]'" in done.stdout
    assert done.stdout.count("\n") == 1
