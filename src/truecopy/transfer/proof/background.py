"""A verifier's work beside the replication, in a thread of its own; what it finds ends the run."""

from __future__ import annotations

import threading

from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.spark import explained
from truecopy.transfer.gate import Closed
from truecopy.transfer.proof.verifier import NotProven, Outcome, Verifier

INTERVAL_SECONDS = 1.0


class Background:
    """Calls `work` again and again, from `with` to the end of the block.

    Begin it when the copy is complete: before that, rows are missing that are to come.

    Attributes:
        failure: What the work failed with, or what it found, once it did.
    """

    def __init__(self, verifier: Verifier, interval: float = INTERVAL_SECONDS) -> None:
        self._verifier = verifier
        self._interval = interval
        self._stop = threading.Event()
        self.failure: TruecopyError | Outcome | None = None
        self._thread = threading.Thread(target=self._run, name=f"verify-{verifier.name}")

    def check(self) -> None:
        """Raises what the work has come upon; to be called with every batch, and between them."""
        if isinstance(self.failure, Outcome):
            raise NotProven(self.failure)
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Ends it after the look that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while self.failure is None and not self._stop.wait(self._interval):
            try:
                with explained():
                    outcome = self._verifier.work()
            except Closed:
                return  # the run is over, and the next one goes on with it
            except TruecopyError as error:
                self.failure = error
            except Exception as error:  # noqa: BLE001 - a run must not go on that nobody verifies any more
                self.failure = _in_one_line(self._verifier.name, error)
            else:
                self.failure = outcome if outcome.found else None


def _in_one_line(name: str, error: Exception) -> CannotFinish:
    said = " ".join(str(error).split())
    return CannotFinish(f"the {name} verifier cannot go on: {type(error).__name__}: {said[:300]}")
