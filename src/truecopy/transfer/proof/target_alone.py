"""The target verifier from outside: it reads on from where the task's own stands, with a copy of its record."""

from __future__ import annotations

import tempfile
from pathlib import Path

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.stream.needs import opening_leaves_something
from truecopy.transfer.proof.store import copy_store
from truecopy.transfer.proof.target_log import TargetVerifier
from truecopy.transfer.proof.verifier import Scene


def rogue_writes(scene: Scene, endpoint: Endpoint) -> dict[str, list[str]]:
    """What somebody else has written to the target's tables, a line each, by table."""
    if opening_leaves_something(endpoint):
        raise UsageError(
            f"{endpoint} hands its log out once, and the task reads it: the target verifier cannot run beside it;"
            " choose --verifier iterative"
        )
    with tempfile.TemporaryDirectory(prefix="truecopy-") as folder:
        store = copy_store(scene.task, endpoint.identity, Path(folder) / "copy.db")
        verifier = TargetVerifier(scene, store, endpoint)
        try:
            if not verifier.has_begun:
                raise UsageError(
                    f"nothing here knows where the target's log was when {scene.task} began to write: run the task"
                    " on this machine with verify: {target: true}, or choose another --verifier"
                )
            verifier.start(resumed=True)
            outcome = verifier.work()
        finally:
            verifier.close()
            store.close()
    found: dict[str, list[str]] = {}
    for mismatch in outcome.mismatches:
        found.setdefault(mismatch.table, []).append(str(mismatch))
    return found
