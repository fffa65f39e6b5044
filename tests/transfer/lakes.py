"""Lakes as other programs see them: read without anything of ours."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

FORMATS = ["parquet", "delta"]

NEWEST = """
SELECT * EXCLUDE (truecopy_kind, truecopy_version, truecopy_position, truecopy_committed_at) FROM (
    SELECT * FROM read_parquet('{files}', union_by_name = true)
    WHERE truecopy_version >= (
        SELECT coalesce(max(truecopy_version) FILTER (truecopy_kind = 'truncate'), 0)
        FROM read_parquet('{files}', union_by_name = true))
    AND truecopy_kind <> 'truncate'
    QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY truecopy_version DESC) = 1)
WHERE truecopy_kind <> 'delete'"""
"""What the documentation tells readers of the log to ask."""

ALL = """
SELECT * EXCLUDE (truecopy_kind, truecopy_version, truecopy_position, truecopy_committed_at)
FROM read_parquet('{files}', union_by_name = true)"""


def url(folder: Path, form: str) -> str:
    return f"lake:///{folder}?format={form}"


def rows(folder: Path, form: str, table: str, key: str = "") -> Counter[tuple[Any, ...]]:
    """The rows of a table, each as often as it is there."""
    if form == "delta":
        found = DeltaTable(folder / table).to_pyarrow_table().to_pylist()
        return Counter(tuple(row.values()) for row in found)
    query = NEWEST if key else ALL
    with duckdb.connect() as reader:
        reader.execute("SET TimeZone = 'UTC'")
        asked = query.format(files=folder / table / "*.parquet", key=key)
        return Counter(reader.execute(asked).fetchall())


def commits(folder: Path, table: str) -> list[list[dict[str, Any]]]:
    """What our commits to a Delta table say of progress, the newest first."""
    history = DeltaTable(folder / table).history()
    return [json.loads(commit["truecopy"]) for commit in history if "truecopy" in commit]
