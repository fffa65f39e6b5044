"""The time in which nobody can write: it is measured, bounded, and not to be interrupted."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from truecopy.model.errors import CannotFinish

T = TypeVar("T")


class Downtime:
    """From when writers are locked out until they are let in somewhere; at most `most` seconds."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._began = self._ended = 0.0

    @classmethod
    def over(cls, seconds: float) -> Downtime:
        """One that an earlier process has measured."""
        found = cls(seconds)
        found._ended = time.monotonic()
        found._began = found._ended - seconds
        return found

    def begin(self, locked_at: float = 0.0) -> None:
        """Now, or at a time of day at which an earlier process had locked writers out."""
        since = max(time.time() - locked_at, 0.0) if locked_at else 0.0
        self._began = time.monotonic() - since

    def end(self) -> None:
        self._ended = time.monotonic()

    @property
    def has_begun(self) -> bool:
        return bool(self._began)

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far; 0 before it began."""
        return (self._ended or time.monotonic()) - self._began if self._began else 0.0

    @property
    def left(self) -> float:
        return max(self._most - self.seconds, 0.0)

    def check(self) -> None:
        if not self.left:
            raise CannotFinish(
                f"writers were locked out for {self.seconds:.1f} s, more than cutover.max-downtime allows"
            )

    def bound(self, work: Callable[[], T]) -> T:
        """Does some work, and waits no longer for it than writers may wait, if they do."""
        if not self.has_begun or self._ended:
            return work()
        try:
            return within(max(self.left, 0.001), work)
        except NoAnswer:
            self.check()
            raise


class NoAnswer(CannotFinish):
    """Something takes too long; whether it will be done nobody knows."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """Does some work in a thread, and waits no longer for it: a server that stands still answers nothing at all."""
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.put((None, error))

    threading.Thread(target=run, name="cutover", daemon=True).start()
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        raise NoAnswer(f"there was no answer for {seconds:.0f} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value] # given wherever there is no error


@contextmanager
def refusing_signals(said: Callable[[str], None]) -> Iterator[None]:
    """Nobody ends the program politely while writers are locked out."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's business
        return

    def refuse(number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        said(
            f"{name} is refused: writers are locked out, and this takes a moment to finish or undo"
        )

    before = {number: signal.signal(number, refuse) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
