"""The end of a task and its way back: their lines, what streams made on both sides, what verifiers keep. Rows stay."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from truecopy.engines import pool
from truecopy.engines.lines import Lines
from truecopy.engines.protocols import Introspects
from truecopy.engines.writers import READ_ONLY, REVOKE, HoldsOffWriters
from truecopy.metastore.database import choose_metastore
from truecopy.metastore.known_progress import KnownProgress
from truecopy.metastore.validations import RUNNING, Validations
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.stream.removal import remove
from truecopy.stream.request import Request
from truecopy.transfer.continuous.beginning import stream_of
from truecopy.transfer.continuous.standing import read_validation
from truecopy.transfer.control import CONTROL, COUNTS, REPORT, Control
from truecopy.transfer.cutover.back import way_back
from truecopy.transfer.cutover.standing import settled
from truecopy.transfer.cutover.state import STEPS, SWITCHED, Steps
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
    """Forgets a task that stands still, and its way back; a line for each thing that went.

    What it is known by goes last: where this is ended in between, the same again removes the rest.
    """
    if settings.metastore is not None:
        choose_metastore(settings.metastore)
    back = way_back(settings, {})
    # After a cutover the old side may be gone for good.
    ways = [back, settings] if _may_keep_lines(parse_endpoint(back.target)) else [settings]
    for way in ways:
        settled(way)
        _require_still(way)
    lines = {way.task: _tables_with_lines(way) for way in ways}
    kept = [way for way in (back, settings) if has_store(way.task)]
    if not any(lines.values()) and not kept and Validations().find(settings.task) is None:
        raise NoSuchTask(f"there is no task {settings.task} on {parse_endpoint(settings.target)}")
    _stop_validation(settings.task)
    locked = list(dict.fromkeys(line for way in ways for line in _still_locked(way)))
    # A cutover makes a slot for the way back before anything else of it is there.
    has_back = STEPS in lines[settings.task] or bool(lines.get(back.task))
    said = _forget_streams(
        [settings.request, stream_of(settings), *([back.request] if has_back else [])]
    )
    if has_back and back not in ways:
        said.append(
            f"{parse_endpoint(back.target)} does not answer, and keeps lines of {back.task}"
        )
    for way in kept if settings in kept else [*kept, settings]:
        said += _forget_proof(way)
    KnownProgress(back.task).forget()
    KnownProgress(settings.task).forget()
    for way in ways:
        said += _forget_lines(way)
    return said + _forget_validation(settings.task) + locked


def _may_keep_lines(endpoint: Endpoint) -> bool:
    """Whether it answers, and has tables that can be asked for."""
    try:
        with pool.lease(endpoint) as session:
            return isinstance(session, Introspects)
    except TruecopyError:
        return False


def _require_still(way: Settings) -> None:
    with pool.lease(parse_endpoint(way.target)) as session:
        target: Any = session
        if target.find(TASKS) is None or target.find(REPORT) is None:
            return
        line, report = Ledger(target, way.task).find(), Control(target, way.task).report()
    if is_running(line, report):
        raise UsageError(f"{way.task} runs: end it first (Ctrl-C where it was started)")


def _still_locked(way: Settings) -> list[str]:
    """The side that a cutover left, or did not switch to, is closed still: nobody else knows what it was before."""
    left = Steps(parse_endpoint(way.target), way.task).find()
    if left is None:
        return []
    is_over = left.name == SWITCHED
    side = parse_endpoint(way.source if is_over else way.target)
    lock = left.detail if is_over else left.detail.get("opens", {})
    if lock.get("way") not in (READ_ONLY, REVOKE):
        return []
    said = [f"{side} keeps writers off still ({lock['way']}), as the cutover left it"]
    with suppress(TruecopyError), pool.lease(side) as session:
        if isinstance(session, HoldsOffWriters):
            said += session.writers().undoing(lock["way"], lock.get("before", {}))
    return said


def _stop_validation(task: str) -> None:
    store = Validations()
    if store.find(task) is None:
        return
    store.ask_stop(task)
    deadline = time.monotonic() + STOP_SECONDS
    while read_validation(task).state == RUNNING:
        if time.monotonic() > deadline:
            raise CannotFinish(f"the validation of {task} does not stop: end its process")
        time.sleep(0.2)


def _forget_streams(requests: Iterable[Request]) -> list[str]:
    said: list[str] = []
    for request in requests:
        try:
            said += [line for line in remove(request) if line not in said]
        except TruecopyError as error:
            where = parse_endpoint(request.endpoint)
            said.append(f"{where} keeps what streaming made there: {error}")
    return said


def _forget_proof(way: Settings) -> list[str]:
    """What verifiers keep of one way: a slot would hold the target's log for ever, and a new task inherit the keys.

    The store is what a second try is known by, and stays where the slot could not be removed.
    """
    endpoint = parse_endpoint(way.target)
    try:
        remove_target_log(endpoint, way.task)
    except TruecopyError as error:
        return [f"{endpoint} keeps what the target verifier made there: {error}"]
    if not has_store(way.task):
        return []
    remove_store(way.task)
    return [f"what the verifiers of {way.task} kept, and made on {endpoint}"]


def _tables_with_lines(way: Settings) -> list[str]:
    with pool.lease(parse_endpoint(way.target)) as session:
        lines = Lines(cast(Any, session))
        there = [name for name in _TABLES if cast(Introspects, session).find(name) is not None]
        ours = "SELECT DISTINCT task FROM {} WHERE task = ?"
        return [name for name in there if lines.look(ours.format(name), way.task)]


def _forget_lines(way: Settings) -> list[str]:
    tables = _tables_with_lines(way)
    with pool.lease(parse_endpoint(way.target)) as session:
        lines = Lines(cast(Any, session))
        with lines.transaction():
            for name in tables:
                lines.execute(f"DELETE FROM {name} WHERE task = ?", way.task)
    return [f"the lines of {way.task} on its target; its rows stay"] if tables else []


def _forget_validation(task: str) -> list[str]:
    gone = Validations().delete(task)
    return [f"the validation of {task}, with its pending rows and errors"] if gone else []
