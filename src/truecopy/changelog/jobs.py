"""Spark's jobs, and what they say when they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from truecopy.spark import explain_spark


@contextmanager
def explained() -> Iterator[None]:
    """Turns errors of Spark into one line, that of ours which a task has raised."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise explain_spark(error) from None
