"""The validators of a task: one for each leg, side by side in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from truecopy.transfer.continuous.validator import Validator
from truecopy.transfer.jobs import beside
from truecopy.transfer.settings import Settings

_END_SECONDS = 30.0


def run_validators(validators: Sequence[Validator], start: str | None = None) -> None:
    """Runs them until all have stopped; one that fails stops the others, and its reason is raised."""

    def stop() -> None:
        for validator in validators:
            validator.stop()

    def run() -> None:
        failures = list[BaseException]()

        def one(validator: Validator) -> None:
            try:
                validator.run(start)
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                failures.append(error)
            stop()

        threads = [threading.Thread(target=one, args=(each,)) for each in validators]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    # Spark is called in threads of their own: a signal in the middle of a call would break it.
    beside(run, stop)


@contextmanager
def validating(
    tasks: Sequence[Settings], said: Callable[[str], None], *, is_new: bool
) -> Iterator[None]:
    """Validation beside a run of tasks that ask for it, while the block runs; what stops it does not stop the run.

    Args:
        tasks: The legs of one task.
        said: Hears what validators say.
        is_new: Whether the tasks begin with this run.
    """
    validators = [Validator(one, one.continuous, said) for one in tasks if one.continuous]
    for validator in validators:
        validator.keep_log()
    threads = [
        threading.Thread(target=_beside, args=(each, is_new), daemon=True) for each in validators
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for validator in validators:
            validator.stop()
        for thread in threads:
            thread.join(_END_SECONDS)


def _beside(validator: Validator, is_new: bool) -> None:
    """What stops it is in its state, for whoever asks; the replication goes on without it."""
    try:
        validator.run_beside(is_new)
    except Exception as error:  # noqa: BLE001 - kept in the metastore, and told
        validator.tell(f"validation stopped: {error}")
