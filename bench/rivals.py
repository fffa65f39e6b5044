"""What others do with the same tables."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.tables import Pair
from tests.servers import Database

_COLUMNS = ("k", "c", "pad")


def sync_diff_digest(table: str, columns: Sequence[str]) -> str:
    """The statement of TiDB's sync-diff-inspector: a count, and the XOR of the halves of MD5s."""
    names = ", ".join(f"`{column}`" for column in columns)
    nulls = ", ".join(f"ISNULL(`{column}`)" for column in columns)
    md5 = f"MD5(CONCAT_WS(',', {names}, CONCAT({nulls})))"
    halves = (f"CAST(CONV(SUBSTRING({md5}, {start}, 16), 16, 10) AS UNSIGNED)" for start in (1, 17))
    return f"SELECT COUNT(*), BIT_XOR({' ^ '.join(halves)}) FROM `{table}`"


def reladiff(pair: Pair) -> int:
    """Runs the whole command with its default settings; gives the number of differing rows."""
    program = Path(sys.executable).with_name("reladiff")
    command = [str(program)]
    for side, table in ((pair.source, pair.source_table), (pair.target, pair.target_table)):
        command += [side.url.replace("mariadb://", "mysql://"), table]
    command += ["-k", "id", *(word for column in _COLUMNS for word in ("-c", column))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"reladiff failed:\n{done.stderr}")
    # It prints a row for each side: `- 17, …` and `+ 17, …`.
    return sum(line.startswith("+") for line in done.stdout.splitlines())


def replication_rate(database: Database, seconds: float = 20.0) -> float:
    """Rows per second that python-mysql-replication gives, counted from its first one on."""
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    server = database.server
    stream = BinLogStreamReader(
        connection_settings={
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "passwd": server.password,
        },
        server_id=77,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        is_mariadb=True,
        blocking=False,
    )
    rows, begun, last = 0, 0.0, 0.0
    for event in stream:
        count = len(event.rows)
        last = time.monotonic()
        if not begun:
            begun = last
            continue
        rows += count
        if last - begun > seconds:
            break
    stream.close()
    return rows / (last - begun)
