"""A replication and its validation, side by side in this process, and a way to see when something was checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from truecopy.metastore.validation_errors import ErrorRow
from truecopy.metastore.validations import Validations
from truecopy.model.errors import CannotFinish
from truecopy.transfer.continuous.held import Held
from truecopy.transfer.continuous.options import ContinuousOptions
from truecopy.transfer.continuous.standing import Validation, read_validation
from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

SECONDS = 240.0


@contextmanager
def beside(run: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Something that runs in a thread while the block does; what it raises fails the test, whatever the block says."""
    failures = list[BaseException]()

    def work() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join()
        assert not failures, failures


def copied(settings: Settings) -> None:
    """Copies, and replicates what there is."""
    Transfer(settings).run(until_caught_up=True)


def begun(settings: Settings) -> None:
    """Copies, and begins a validation of what comes after that."""
    copied(settings)
    Validator(settings, ContinuousOptions()).begin()


@contextmanager
def replicating(settings: Settings) -> Iterator[None]:
    """Replicates while the block runs."""
    transfer = Transfer(settings)

    def run() -> None:
        try:
            transfer.run()
        except CannotFinish as error:
            # It may be behind, or stand, when it is stopped; whoever needs it elsewhere asks for that.
            if "stopped" not in str(error):
                raise

    with beside(run, transfer.stop):
        yield


@contextmanager
def validating(settings: Settings, start: str | None = None, **options: Any) -> Iterator[Watched]:
    """Validates while the block runs."""
    validator = _Held(settings, ContinuousOptions(**{"validate_interval": 1.0, **options}))
    with beside(lambda: validator.run(start), validator.stop):
        wait_for(lambda: Validations().find(settings.task) is not None)
        yield Watched(settings.task, validator.between_checks)


class _Held(Validator):
    """Whoever spoils a row must know that no check has read it before."""

    def __init__(self, settings: Settings, options: ContinuousOptions) -> None:
        super().__init__(settings, options)
        self.between_checks = threading.Lock()

    def _round(self, held: Held) -> None:
        with self.between_checks:
            super()._round(held)


@dataclass(frozen=True)
class Watched:
    """A validation, as the metastore tells of it.

    Attributes:
        between_checks: No check begins while somebody has it.
    """

    task: str
    between_checks: threading.Lock

    @property
    def standing(self) -> Validation:
        return read_validation(self.task)

    @property
    def errors(self) -> list[ErrorRow]:
        return list(Validations().errors.of(self.task))

    @property
    def new(self) -> list[ErrorRow]:
        return list(Validations().errors.of(self.task, ("new",)))

    def processed(self) -> int:
        return sum(self.standing.standing.processed.values())

    def until(self, holds: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Waits until something holds of it."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"{what}: {self.standing.plain()}"
            time.sleep(0.1)

    def until_errors(self, count: int, seconds: float = SECONDS) -> list[ErrorRow]:
        self.until(lambda: len(self.new) >= count, f"{count} errors", seconds)
        return self.new

    def until_processed(self, count: int, seconds: float = SECONDS) -> None:
        self.until(lambda: self.processed() >= count, f"{count} changes", seconds)

    def until_settled(self, seconds: float = SECONDS) -> None:
        self.until(lambda: self.standing.pending.total == 0, "nothing is pending", seconds)


def wait_for(holds: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
