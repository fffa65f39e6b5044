"""Reading a log by Spark: just the files that are committed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from truecopy.changelog.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_log(spark: SparkSession, folder: str | Path) -> DataFrame:
    """All events of a log, as they are committed now: the columns of the stream, `batch`, `era` and `day`."""
    with Store.open(Path(folder)) as store:
        store.publish()
        return store.marks(spark, store.files())
