"""Reading a log by Spark: just the events that are committed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from truecopy.changelog.opening import CHANGES, open_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_log(spark: SparkSession, place: str | Path, log: str = CHANGES) -> DataFrame:
    """All events of a log, as they are committed now: the columns of the stream, `batch`, `era`, `table` and `day`.

    `place` is a folder, or the URL of a database that has a log of the name `log`, whose tables executors read; those
    keep no `restart_at`.
    """
    with open_log(place, log) as found:
        return found.frame(spark, found.files())
