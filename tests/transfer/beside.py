"""Work that goes on beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[threading.Event], object], threads: int = 1) -> Iterator[None]:
    """Does some work until the block ends, of which its event tells; what fails there fails the test."""
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        # Also where the block has failed: that is often only what came of it.
        assert not failures, failures
