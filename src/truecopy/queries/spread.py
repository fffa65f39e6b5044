"""Differing rows of large results through Spark: rows that are equal cancel out there, and few come back."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.engines.queries.failure import Kind, failed
from truecopy.queries.pairing import Pairing, Row
from truecopy.queries.results import LiveResult
from truecopy.queries.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTS = 4
"""Statements by which a side is read, each in a task of its own; each looks at the whole result."""


def spread_differences(
    sides: tuple[LiveResult, LiveResult],
    reads: tuple[Callable[[Sequence[int]], str], Callable[[Sequence[int]], str]],
    buckets: Sequence[int],
    pairing: Pairing,
    most: int,
) -> list[dict[str, Any]]:
    """At most so many differences among the rows of some buckets.

    `reads` make the statements that give rows as `h`, `r`, `n` and their texts: what a row's place
    follows from, its fingerprint, and how often it is there.
    """
    from pyspark.sql import functions as F

    from truecopy.spark import explain_spark, session

    spark = session()
    texts = [f"t{i}" for i in range(len(pairing.places))]
    parts = [list(buckets[at::PARTS]) for at in range(min(PARTS, len(buckets)))]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="truecopy-queries-"))
        frames = [
            side.frame(spark, [read(part) for part in parts], texts, f"{folder}/{at}")
            for at, (side, read) in enumerate(zip(sides, reads, strict=True))
        ]
        signed = [
            frame.withColumn("signed", F.col("n") * sign)
            for frame, sign in zip(frames, (1, -1), strict=True)
        ]
        left = (
            signed[0]
            .union(signed[1])
            .groupBy("h", "r")
            .agg(F.sum("signed").alias("n"), *(F.min(text).alias(text) for text in texts))
            .where("n <> 0")
        )
        try:
            return _judged(left, texts, pairing, most)
        except Exception as error:  # noqa: BLE001 - of py4j, of tasks, of databases that those asked
            raise failed(Kind.OTHER, explain_spark(error)) from None


def _judged(
    left: DataFrame, texts: Sequence[str], pairing: Pairing, most: int
) -> list[dict[str, Any]]:
    """Rows of one place come together, in order, so that a task holds few at a time."""
    plain = replace(pairing, settings=_margins(pairing.settings))
    rows = left.select("h", "n", *texts).repartition("h").sortWithinPartitions("h")
    found = rows.mapInArrow(partial(_judge, plain, most), "difference string").limit(most)
    return [json.loads(row[0]) for row in found.collect()]


def _margins(settings: Settings) -> Settings:
    """What tasks need of the settings, and no password with it."""
    return Settings(
        relative_margin=settings.relative_margin, absolute_margin=settings.absolute_margin
    )


def _judge(
    pairing: Pairing, most: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    shown = 0
    for group in _places(batches):
        if shown >= most:
            continue  # the rest is only read
        sides: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
        for count, row in group:
            sides[0 if count > 0 else 1][row] += abs(count)
        for difference in pairing.differences(*sides):
            yield pa.RecordBatch.from_pydict(
                {"difference": [json.dumps(difference, ensure_ascii=False)]}
            )
            shown += 1
            if shown >= most:
                break


def _places(batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[int, Row]]]:
    """The rows of each place, with how often control has them more often than test."""
    held: list[tuple[int, Row]] = []
    at: int | None = None
    for batch in batches:
        places, counts, *texts = (column.to_pylist() for column in batch.columns)
        for place, count, *row in zip(places, counts, *texts, strict=True):
            if place != at and held:
                yield held
                held = []
            at = place
            held.append((count, tuple(row)))
    if held:
        yield held
