"""The end of a task: its lines in the target, what streams made on both sides, what verifiers keep. Rows stay."""

from __future__ import annotations

import time
from typing import Any, cast

from truecopy.engines import pool
from truecopy.engines.lines import Lines
from truecopy.engines.protocols import Introspects
from truecopy.metastore.database import choose_metastore
from truecopy.metastore.known_progress import KnownProgress
from truecopy.metastore.validations import RUNNING, Validations
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.stream.removal import remove
from truecopy.transfer.continuous.beginning import stream_of
from truecopy.transfer.continuous.standing import read_validation
from truecopy.transfer.control import CONTROL, COUNTS, REPORT, Control
from truecopy.transfer.cutover.back import back_name
from truecopy.transfer.cutover.state import STEPS
from truecopy.transfer.ledger import CHUNKS, PROGRESS, SOURCES, TASKS, Ledger
from truecopy.transfer.proof.store import has_store, remove_store
from truecopy.transfer.proof.target_log import remove_target_log
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import is_running

STOP_SECONDS = 60.0
_TABLES = (TASKS, CHUNKS, PROGRESS, SOURCES, CONTROL, REPORT, COUNTS, STEPS)


class NoSuchTask(UsageError):
    """There is nothing to delete."""


def delete_task(settings: Settings) -> list[str]:
    """Forgets a task that stands still; a line for each thing that went."""
    if settings.metastore is not None:
        choose_metastore(settings.metastore)
    _require_still(settings)
    said = _stop_validation(settings)
    said += _forget_lines(settings)
    for task in (settings.task, back_name(settings.task)):
        KnownProgress(task).forget()
    if not said and not has_store(settings.task):
        raise NoSuchTask(f"there is no task {settings.task} on {parse_endpoint(settings.target)}")
    said += _forget_proof(settings.task, settings.target)
    if has_store(back := back_name(settings.task)):
        said += _forget_proof(back, settings.source)
    for request in (settings.request, stream_of(settings)):
        try:
            said += [line for line in remove(request) if line not in said]
        except TruecopyError as error:
            said.append(f"the source keeps what streaming made there: {error}")
    return said


def _forget_proof(task: str, target: str) -> list[str]:
    """What verifiers keep of one way: a slot would hold the target's log for ever, and a new task inherit the keys.

    The store is what a second try is known by, and stays where the slot could not be removed.
    """
    endpoint = parse_endpoint(target)
    try:
        remove_target_log(endpoint, task)
    except TruecopyError as error:
        return [f"{endpoint} keeps what the target verifier made there: {error}"]
    if not has_store(task):
        return []
    remove_store(task)
    return [f"what the verifiers of {task} kept, and made on {endpoint}"]


def _require_still(settings: Settings) -> None:
    with pool.lease(parse_endpoint(settings.target)) as session:
        target: Any = session
        if target.find(TASKS) is None or target.find(REPORT) is None:
            return
        line, report = Ledger(target, settings.task).find(), Control(target, settings.task).report()
    if is_running(line, report):
        raise UsageError(f"{settings.task} runs: end it first (Ctrl-C where it was started)")


def _stop_validation(settings: Settings) -> list[str]:
    store = Validations()
    if store.find(settings.task) is None:
        return []
    store.ask_stop(settings.task)
    deadline = time.monotonic() + STOP_SECONDS
    while read_validation(settings.task).state == RUNNING:
        if time.monotonic() > deadline:
            raise CannotFinish(f"the validation of {settings.task} does not stop: end its process")
        time.sleep(0.2)
    store.delete(settings.task)
    return [f"the validation of {settings.task}, with its pending rows and errors"]


def _forget_lines(settings: Settings) -> list[str]:
    with pool.lease(parse_endpoint(settings.target)) as session:
        lines = Lines(cast(Any, session))
        there = [name for name in _TABLES if cast(Introspects, session).find(name) is not None]
        if not there:
            return []
        with lines.transaction():
            gone = [
                name
                for name in there
                if lines.execute(f"DELETE FROM {name} WHERE task = ?", settings.task)
            ]
    return [f"the lines of {settings.task} on its target; its rows stay"] if gone else []
