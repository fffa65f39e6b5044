"""Reading a log by Spark: just the files that are committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from truecopy.changelog.events import EVENT_SCHEMA
from truecopy.changelog.store import CHANGES, EventFile, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_log(spark: SparkSession, folder: str | Path) -> DataFrame:
    """All events of a log, as they are committed now: the columns of the stream, `batch`, `era` and `day`."""
    with Store.open(Path(folder)) as store:
        store.publish()
        return read_events(spark, store, store.files())


def read_events(spark: SparkSession, store: Store, files: Sequence[EventFile]) -> DataFrame:
    """The events of some files."""
    from pyspark.sql.pandas.types import from_arrow_schema

    whole = pa.schema([*EVENT_SCHEMA, ("table", pa.string()), ("day", pa.date32())])
    schema = from_arrow_schema(whole)
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", str(store.folder / CHANGES))
    return reader.parquet(*(str(store.path(file)) for file in files))
