"""An invalidator as a Spark streaming query: for streams that one process does not keep up with.

Changes may be invalidated in any order, so each range of the log is a task of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from truecopy.cache.follow import DefinitionsByName, take
from truecopy.cache.invalidation import Counts, Invalidator
from truecopy.cache.objects import Objects
from truecopy.cache.store import Cache, open_cache
from truecopy.model.change import Definition
from truecopy.spark import explained, session
from truecopy.stream.changes import read_changes
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIELDS = ("changes", "stored", "kept", "rereads")


def invalidate_by_spark(
    request: Request,
    cache: str,
    objects: Objects,
    start: str,
    checkpoint: Path,
    master: str | None,
    *,
    once: bool,
) -> Counts:
    """Runs until it is interrupted, or, with `once`, until everything is done that is committed now.

    Args:
        request: Which stream.
        cache: Its URL; executors open it, so it is none of this process.
        objects: What changes are part of.
        start: Where to begin without a checkpoint.
        checkpoint: Spark's folder.
        master: Of Spark.
        once: Whether to end.
    """
    spark = session(master)
    counts, find = Counts(), DefinitionsByName()

    def handle(batch: DataFrame, _: int) -> None:
        batch.persist()
        try:
            ids = [row[0] for row in batch.select("schema_id").distinct().collect() if row[0]]
            work = partial(_work, cache, objects, {one: find(one) for one in ids})
            schema = ", ".join(f"{name} long" for name in _FIELDS)
            for row in batch.mapInArrow(work, schema).collect():
                for name in _FIELDS:
                    setattr(counts, name, getattr(counts, name) + row[name])
        finally:
            batch.unpersist()

    with explained():
        writer = read_changes(spark, request, start=start).writeStream.foreachBatch(handle)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if once:
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
    return counts


def _work(
    cache: str,
    objects: Objects,
    definitions: Mapping[str, Definition],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    invalidator = Invalidator(_opened(cache))
    for batch in batches:
        take(invalidator, objects, batch, definitions.__getitem__)
    counts = invalidator.counts
    yield pa.RecordBatch.from_pylist([{name: getattr(counts, name) for name in _FIELDS}])


@lru_cache
def _opened(url: str) -> Cache:
    return open_cache(url)
