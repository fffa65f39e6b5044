"""Calls of Spark in a thread beside the main one: a signal that came during such a call would break it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CANCEL_SECONDS = 10.0

T = TypeVar("T")


def run_job(spark: SparkSession, action: Callable[[], T]) -> T:
    """What the action gives; its Spark jobs are cancelled when this thread is interrupted."""
    context, group = spark.sparkContext, f"truecopy-{uuid.uuid4()}"

    def run() -> T:
        context.setJobGroup(group, "truecopy run", interruptOnCancel=True)
        return action()

    return beside(run, lambda: context.cancelJobGroup(group))


def beside(action: Callable[[], T], cancel: Callable[[], None]) -> T:
    """What the action gives, from another thread; `cancel` ends it when this one is interrupted."""
    given, failed = list[T](), list[BaseException]()

    def run() -> None:
        try:
            given.append(action())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        with suppress(Exception):  # Spark itself may have been stopped by the same signal
            cancel()
        thread.join(_CANCEL_SECONDS)
        raise
    if failed:
        raise failed[0]
    return given[0]
