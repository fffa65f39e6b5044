"""Who holds writers off: the source itself, a command, an HTTP address, or somebody by hand."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from truecopy.engines.protocols import Session
from truecopy.engines.writers import TABLES, HoldsOffWriters
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.table import TableName
from truecopy.transfer.cutover.settings import CALLBACK, COMMAND, NONE, Callback, How
from truecopy.transfer.webhook import post

HOLD, RELEASE, SWITCH = "hold", "release", "switch"
_PAUSE_SECONDS = 0.5


class Writers(Protocol):
    """The writers of one side.

    Attributes:
        way: How they are held off; kept, so that another process can let them in again.
    """

    way: str

    def survey(self) -> dict[str, Any]: ...
    def hold(self, before: Mapping[str, Any], seconds: float) -> None: ...
    def release(self, before: Mapping[str, Any]) -> None: ...
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

    def call(self, step: str, seconds: float, *, required: bool) -> bool:
        """Runs the command of a step, or tells the address; False where there is neither."""
        command = getattr(self.how.commands, step)
        if self.how.callback is not None and (required or not command):
            self._tell(self.how.callback, step, seconds)
        elif command:
            self._run(command, step, seconds)
        elif required:
            raise UsageError(f"cutover.commands.{step} is missing, which lock: command needs")
        else:
            return False
        return True

    def _run(self, command: str, step: str, seconds: float) -> None:
        told = {
            "TRUECOPY_TASK": self.task,
            "TRUECOPY_STEP": step,
            "TRUECOPY_DIRECTION": self.direction,
        }
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                env=os.environ | told,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=max(seconds, 1.0),
                check=False,
                start_new_session=True,  # a Ctrl-C that is refused here must not end it, either
            )
        except subprocess.TimeoutExpired:
            raise CannotFinish(
                f"cutover.commands.{step} took longer than {seconds:.0f} s"
            ) from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            why = f": {said[-1]}" if said else ""
            raise CannotFinish(f"cutover.commands.{step} ended with {done.returncode}{why}")

    def _tell(self, callback: Callback, step: str, seconds: float) -> None:
        body = json.dumps({"task": self.task, "step": step, "direction": self.direction}).encode()
        deadline = time.monotonic() + max(seconds, 1.0)
        url, why = callback.url.reveal(), ""
        for attempt in range(callback.attempts):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if not (why := post(url, body, min(callback.seconds, left))):
                return
            time.sleep(min(_PAUSE_SECONDS * 2**attempt, max(deadline - time.monotonic(), 0.0)))
        raise CannotFinish(f"cutover.callback did not do {step}: {why or 'it took too long'}")


class EngineWriters:
    """Held off by the database itself."""

    def __init__(self, session: HoldsOffWriters, way: str, tables: Sequence[TableName]) -> None:
        self.way = way
        self._gate = session.writers()
        self._tables = tuple(tables)

    def survey(self) -> dict[str, Any]:
        return self._gate.survey(self.way, self._tables)

    def hold(self, before: Mapping[str, Any], seconds: float) -> None:
        self._gate.hold(self.way, self._tables, before, seconds)

    def release(self, before: Mapping[str, Any]) -> None:
        self._gate.release(self.way, before)

    def ease(self) -> None:
        self._gate.ease(self.way)

    def leave(self) -> str:
        return self._gate.leave(self.way, self._tables)


class HookWriters:
    """Held off by a command or an address."""

    def __init__(self, hooks: Hooks, way: str, seconds: float) -> None:
        self.way = way
        self._hooks = hooks
        self._seconds = seconds

    def survey(self) -> dict[str, Any]:
        return {}

    def hold(self, before: Mapping[str, Any], seconds: float) -> None:  # noqa: ARG002
        self._hooks.call(HOLD, seconds, required=True)

    def release(self, before: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._hooks.call(RELEASE, self._seconds, required=True)

    def ease(self) -> None:
        """The database itself was never locked."""

    def leave(self) -> str:
        return f"nothing in the old side itself keeps writers away: that was the {self.way}'s part"


class WritersByHand:
    """Held off by somebody, before the cutover began; the log shows whether that is so."""

    way = NONE

    def survey(self) -> dict[str, Any]:
        return {}

    def hold(self, before: Mapping[str, Any], seconds: float) -> None:
        """It was done by hand."""

    def release(self, before: Mapping[str, Any]) -> None:
        """To be done by hand."""

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
