"""The stream on a real standalone cluster, with nothing installed on the workers."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.program import truecopy
from tests.servers import Database


@pytest.mark.slow
@pytest.mark.cluster
def test_parquet_from_a_cluster(cluster: str, logged_db: Database, tmp_path: Path) -> None:
    logged_db.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20))")
    for first in range(1, 20_001, 1000):
        logged_db.execute(
            f"INSERT INTO items SELECT seq, CONCAT('n', seq) FROM seq_{first}_to_{first + 999}"
        )
    logged_db.execute("UPDATE items SET name = 'x' WHERE id % 1000 = 0")
    ended = truecopy(
        *("stream", logged_db.url, "--from", "start", "--until", "current"),
        *("--parquet", str(tmp_path / "changes"), "--master", cluster),
        seconds=400,
    )
    assert ended.code == 0, ended.err
    files = [str(file) for file in (tmp_path / "changes").rglob("*.parquet")]
    rows = ds.dataset(files).to_table(columns=["kind", "key", "after"]).to_pylist()
    assert sum(row["kind"] == "insert" for row in rows) == 20_000
    assert sum(row["kind"] == "update" for row in rows) == 20


@pytest.mark.cluster
def test_a_file_of_this_machine_is_refused_on_a_cluster(tmp_path: Path) -> None:
    import sqlite3

    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    ended = truecopy(
        *("stream", f"sqlite:///{file}", "--parquet", str(tmp_path / "out")),
        *("--master", "spark://127.0.0.1:1"),
    )
    assert ended.code == 2
    assert "file of this machine" in ended.err
    assert len(ended.err.strip().splitlines()) == 1
