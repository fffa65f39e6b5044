"""The target verifier from outside: it reads on from where the task's own stands, with a copy of its record.

A server that hands its log out once gives it to whichever process comes first, which keeps it in the folder of the
task's slot: all of them read it there. It stays until the task's own verifier has read it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.stream.log import ChangeLog, Mark
from truecopy.transfer.proof.store import copy_store
from truecopy.transfer.proof.target_log import TargetVerifier
from truecopy.transfer.proof.verifier import Outcome, Scene

_ATTEMPTS = 3


class Onlooker(TargetVerifier):
    """Reads a log that is held for another one."""

    def _let_go(self, log: ChangeLog, end: Mark) -> None:
        """That is for the task's own verifier to do."""


def rogue_writes(scene: Scene, endpoint: Endpoint) -> dict[str, list[str]]:
    """What somebody else has written to the target's tables, a line each, by table."""
    found: dict[str, list[str]] = {}
    for mismatch in _looked(scene, endpoint, _ATTEMPTS).mismatches:
        found.setdefault(mismatch.table, []).append(str(mismatch))
    return found


def _looked(scene: Scene, endpoint: Endpoint, attempts: int) -> Outcome:
    with (
        tempfile.TemporaryDirectory(prefix="truecopy-") as folder,
        copy_store(scene.task, endpoint.identity, Path(folder) / "copy.db") as store,
    ):
        verifier = Onlooker(scene, store, endpoint)
        if not verifier.has_begun:
            raise UsageError(
                f"nothing here knows where the target's log was when {scene.task} began to write: run the task"
                " on this machine with verify: {target: true}, or choose another --verifier"
            )
        began = verifier.mark
        try:
            verifier.start(resumed=True)
            return verifier.work()
        except TruecopyError:
            if attempts == 1 or not _has_moved(scene, endpoint, began):
                raise
        finally:
            verifier.close()
    # The task's own verifier has gone on meanwhile, and let go of what it had read.
    return _looked(scene, endpoint, attempts - 1)


def _has_moved(scene: Scene, endpoint: Endpoint, began: Mark) -> bool:
    with (
        tempfile.TemporaryDirectory(prefix="truecopy-") as folder,
        copy_store(scene.task, endpoint.identity, Path(folder) / "copy.db") as store,
    ):
        now = Onlooker(scene, store, endpoint)
        return now.has_begun and now.mark != began
