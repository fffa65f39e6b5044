"""A command starts at once: what only some need is loaded by those."""

import subprocess
import sys

_LOADED = """
import sys
import truecopy.cli.main
print(*sorted({"duckdb", "jinja2", "psycopg", "pymysql", "pyspark", "sqlalchemy", "sqlglot"} & sys.modules.keys()))
"""


def test_the_program_loads_no_driver_no_spark_and_no_metastore_before_a_command_asks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
