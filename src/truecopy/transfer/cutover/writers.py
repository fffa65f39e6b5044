"""Who holds writers off: the source itself, a command, an HTTP address, or somebody by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from truecopy.engines.protocols import Session
from truecopy.engines.writers import TABLES, HoldsOffWriters
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.table import TableName
from truecopy.transfer.cutover.settings import CALLBACK, COMMAND, NONE, Callback, How
from truecopy.transfer.webhook import post

HOLD, RELEASE, SWITCH = "hold", "release", "switch"
_PAUSE_SECONDS = 0.5
_NAMED = 3
"""So many of those who are not reached are told."""


class Writers(Protocol):
    """The writers of one side.

    Attributes:
        way: How they are held off; kept, so that another process can let them in again.
        lasts: Whether the database itself holds them off until it is told otherwise, so that it can be asked.
    """

    way: str
    lasts: bool

    def survey(self) -> dict[str, Any]: ...
    def hold(self, before: Mapping[str, Any], seconds: float) -> None: ...
    def release(self, before: Mapping[str, Any]) -> list[str]: ...
    def is_held(self) -> bool: ...
    def beyond(self) -> list[str]:
        """Who is connected, and would not be held off, as far as the database can tell."""
        ...

    def ease(self) -> None: ...
    def leave(self) -> str:
        """Called when writers are let into the other side; says what stays on this one."""
        ...


@dataclass(frozen=True)
class Hooks:
    """Somebody else's part: a command or an address that is told what to do with writers.

    Attributes:
        task, direction: What the hook is told besides; the direction is `forth` or `back`.
    """

    how: How
    task: str
    direction: str

    def order(self, way: str, step: str, seconds: float) -> None:
        """Has writers held off or let in again by whom the way names: the command, or the address."""
        if way == CALLBACK:
            if self.how.callback is None:
                raise UsageError("cutover.callback is missing, which lock: callback needs")
            self._tell(self.how.callback, step, seconds)
        elif command := getattr(self.how.commands, step):
            self._run(command, step, seconds)
        else:
            raise UsageError(f"cutover.commands.{step} is missing, which lock: command needs")

    def switch(self, seconds: float) -> None:
        """Has writers let into the new side, whatever held them off: by the command, else the address, if any."""
        if self.how.commands.switch:
            self._run(self.how.commands.switch, SWITCH, seconds)
        elif self.how.callback is not None:
            self._tell(self.how.callback, SWITCH, seconds)

    def _run(self, command: str, step: str, seconds: float) -> None:
        """Runs a command until it ends with 0."""
        run = partial(self._run_once, command, step)
        if why := _until_done(run, self.how.commands.attempts, seconds):
            raise CannotFinish(f"cutover.commands.{step} {why}")

    def _run_once(self, command: str, step: str, seconds: float) -> str:
        """Empty where it is done, else what came of it."""
        told = {
            "TRUECOPY_TASK": self.task,
            "TRUECOPY_STEP": step,
            "TRUECOPY_DIRECTION": self.direction,
        }
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                env=os.environ | told,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",  # whatever it says, it has done its work or not
                start_new_session=True,  # a Ctrl-C that is refused here must not end it, either
            )
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException as error:
            _end_group(process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"took longer than {seconds:.0f} s"
        if not process.returncode:
            return ""
        said = (err or out).strip().splitlines()
        return f"ended with {process.returncode}" + (f": {said[-1]}" if said else "")

    def _tell(self, callback: Callback, step: str, seconds: float) -> None:
        body = json.dumps({"task": self.task, "step": step, "direction": self.direction}).encode()
        url = callback.url.reveal()

        def tell(left: float) -> str:
            return post(url, body, min(callback.seconds, left))

        if why := _until_done(tell, callback.attempts, seconds):
            raise CannotFinish(f"cutover.callback did not do {step}: {why}")


def _until_done(ask: Callable[[float], str], attempts: int, seconds: float) -> str:
    """Asks again and again, for so long at most; gives what was said last, which is nothing where it is done.

    Args:
        ask: Is told how many seconds are left.
        attempts: How often.
        seconds: For how long.
    """
    deadline = time.monotonic() + max(seconds, 1.0)
    why = ""
    for attempt in range(attempts):
        if attempt:
            pause = _PAUSE_SECONDS * 2 ** (attempt - 1)
            time.sleep(max(min(pause, deadline - time.monotonic()), 0.0))
        if (left := deadline - time.monotonic()) <= 0:
            break
        if not (why := ask(left)):
            return ""
    return why or "it took too long"


class EngineWriters:
    """Held off by the database itself."""

    def __init__(self, session: HoldsOffWriters, way: str, tables: Sequence[TableName]) -> None:
        self.way = way
        self.lasts = way != TABLES
        self._gate = session.writers()
        self._tables = tuple(tables)

    def survey(self) -> dict[str, Any]:
        return self._gate.survey(self.way, self._tables)

    def hold(self, before: Mapping[str, Any], seconds: float) -> None:
        self._gate.hold(self.way, self._tables, before, seconds)

    def release(self, before: Mapping[str, Any]) -> list[str]:
        return self._gate.release(self.way, before)

    def is_held(self) -> bool:
        return self._gate.is_held(self.way, self._tables)

    def beyond(self) -> list[str]:
        return self._gate.beyond()

    def ease(self) -> None:
        self._gate.ease(self.way)

    def leave(self) -> str:
        return self._gate.leave(self.way, self._tables)


class HookWriters:
    """Held off by a command or an address."""

    lasts = False

    def __init__(self, hooks: Hooks, way: str, seconds: float) -> None:
        self.way = way
        self._hooks = hooks
        self._seconds = seconds

    def survey(self) -> dict[str, Any]:
        return {}

    def hold(self, before: Mapping[str, Any], seconds: float) -> None:  # noqa: ARG002
        self._hooks.order(self.way, HOLD, seconds)

    def release(self, before: Mapping[str, Any]) -> list[str]:  # noqa: ARG002
        self._hooks.order(self.way, RELEASE, self._seconds)
        return []

    def is_held(self) -> bool:
        return True  # as far as the database can tell

    def beyond(self) -> list[str]:
        return []

    def ease(self) -> None:
        """The database itself was never locked."""

    def leave(self) -> str:
        return f"nothing in the old side itself keeps writers away: that was the {self.way}'s part"


class WritersByHand:
    """Held off by somebody, before the cutover began; the log shows whether that is so."""

    way = NONE
    lasts = False

    def survey(self) -> dict[str, Any]:
        return {}

    def hold(self, before: Mapping[str, Any], seconds: float) -> None:
        """It was done by hand."""

    def release(self, before: Mapping[str, Any]) -> list[str]:  # noqa: ARG002
        return []  # to be done by hand

    def is_held(self) -> bool:
        return True  # as far as the database can tell

    def beyond(self) -> list[str]:
        return []

    def ease(self) -> None:
        """The database itself was never locked."""

    def leave(self) -> str:
        return "writers were held off by hand: let them into the new side now, and keep them out of the old one"


def find_way(session: Session, how: How) -> str:
    """The way that is meant for this database; one that it does not have gives way to its own."""
    if how.lock in (COMMAND, CALLBACK, NONE):
        return how.lock
    ways = session.writers().ways if isinstance(session, HoldsOffWriters) else ()
    if not ways:
        raise UsageError(
            f"{session.endpoint} cannot hold writers off: set cutover.lock to command, callback or none"
        )
    return how.lock if how.lock in ways else ways[0]


def writers_of(session: Session, way: str, tables: Sequence[TableName], hooks: Hooks) -> Writers:
    """The writers of a side, held off in this way."""
    if way == NONE:
        return WritersByHand()
    if way in (COMMAND, CALLBACK):
        if way == CALLBACK and hooks.how.callback is None:
            raise UsageError("cutover.callback is missing, which lock: callback needs")
        return HookWriters(hooks, way, hooks.how.max_downtime)
    if not isinstance(session, HoldsOffWriters):
        raise UsageError(f"{session.endpoint} cannot hold writers off by {way}")
    return EngineWriters(session, way, tables)


def require_possible(way: str, how: How) -> None:
    """Refuses what would let writers slip through at the switch, or leave no way to switch at all."""
    if way == TABLES and not how.commands.switch and how.callback is None:
        raise UsageError(
            "table locks end with the cutover, and whoever waits for them would write to the old side: give"
            " cutover.commands.switch or cutover.callback, which moves writers, or lock: read-only"
        )
    if way == COMMAND:
        for step in (HOLD, RELEASE, SWITCH):
            if not getattr(how.commands, step):
                raise UsageError(f"lock: command needs cutover.commands.{step}")


def require_reach(writers: Writers, source: Endpoint) -> None:
    """Refuses a lock that reaches nobody who is there."""
    if (beyond := writers.beyond()) and not any(writers.survey().values()):
        raise UsageError(
            f"lock: {writers.way} would hold nobody off on {source}: no role but our own has rights to write to these"
            f" tables, and {named(beyond)} can write with ours, or as a superuser: give Truecopy a user of its own,"
            " end these sessions, or use cutover.lock: command, callback or none"
        )


def named(beyond: Sequence[str]) -> str:
    """Some of those whom a lock does not reach."""
    return ", ".join(beyond[:_NAMED]) + (", …" if len(beyond) > _NAMED else "")


def _end_group(process: subprocess.Popen[str]) -> None:
    """Ends a command with all that it has started: a late `hold` would lock writers out after the rollback."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with process:  # closes its pipes, unread: whoever left the group may hold them open
        pass
