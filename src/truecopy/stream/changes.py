"""`truecopy.read_changes`: the change stream as a streaming DataFrame."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from truecopy.spark import REDACTED_OPTIONS
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from truecopy.stream.source import ChangesSource


def read_changes(
    spark: SparkSession, endpoint: str | Request, *, start: str = "current", **options: object
) -> DataFrame:
    """Every committed change of a database or keyspace, as `truecopy.stream.source` gives it.

    Args:
        spark: The session.
        endpoint: A database's URL, or the path of a keyspace file.
        start: `start`, `current`, a token, or a time; a checkpoint of the query goes before it.
        options: Those of the source: `tables`, `key_range`, `keys_only`, `max_bytes`, …
    """
    from truecopy.stream.source import ChangesSource

    return open_source(spark, ChangesSource, endpoint, start, **options).load()


def open_source(
    spark: SparkSession,
    source: type[ChangesSource],
    endpoint: str | Request,
    start: str,
    **options: object,
) -> DataStreamReader:
    """A reader of one of the sources of changes, with its options set."""
    spark.dataSource.register(source)
    # In a session that somebody else made, too: plans print the options of a source.
    spark.conf.set("spark.sql.redaction.options.regex", REDACTED_OPTIONS)
    if isinstance(endpoint, Request):
        options = {**_options(endpoint), **options}
        endpoint = endpoint.endpoint
    reader = spark.readStream.format(source.name())
    reader = reader.option("endpoint", endpoint).option("from", start)
    for name, value in options.items():
        text = ",".join(value) if isinstance(value, tuple | list) else str(value)
        reader = reader.option(name, text)
    return reader


def _options(request: Request) -> dict[str, object]:
    """A request as Spark's options, without what is left at its default."""
    plain = Request(request.endpoint)
    found: dict[str, object] = {
        field.name: getattr(request, field.name)
        for field in fields(Request)
        if field.name not in ("endpoint", "settings")
        and getattr(request, field.name) != getattr(plain, field.name)
    }
    return {**found, **request.settings}
