"""The keeper of a task: the process that runs its commands, starts them again, and alone may do so.

It holds the task's lease for as long as it lives, and everything that it writes down is refused once the lease is lost.
Whoever wants something of the task writes that into the metastore: no server has to be there for the task to go on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from truecopy import telemetry
from truecopy.metastore.events import RUN as RUN_EVENT
from truecopy.metastore.events import STATE as STATE_EVENT
from truecopy.metastore.events import note_event
from truecopy.metastore.leases import Lease, LeaseLost, Leases
from truecopy.metastore.task_runs import Outcome, Run, TaskRuns, begin_run, end_run, new_run
from truecopy.metastore.tasks import (
    FAILED,
    RESTARTING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    TaskLine,
    Tasks,
    add_sample,
    lease_name,
    say_progress,
    say_state,
    say_wanted,
)
from truecopy.model.errors import TruecopyError
from truecopy.model.secret import Secret
from truecopy.tasks import commands
from truecopy.tasks.commands import ALONE, LASTING, Files
from truecopy.tasks.processes import ProcessId, ends_with_parent
from truecopy.transfer import webhook
from truecopy.transfer.webhook import Hook, Webhook

LEASE_SECONDS = 20.0
_TURN_SECONDS = 0.5
_PROGRESS_SECONDS, _SAMPLE_SECONDS = 2.0, 10.0
_STOP_SECONDS = 60.0
_MARGIN_SECONDS = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_SETTLED_SECONDS = 60.0
KEEPER = "keeper"
_outliving: list[subprocess.Popen[bytes]] = []
"""Held, since Python takes a process for forgotten whose handle is let go of while it runs."""


@dataclass
class _Child:
    """A command that runs, or has ended and is not written down so far."""

    run: Run
    process: subprocess.Popen[bytes]
    files: Files
    began: float
    told: float = 0.0
    sampled: float = 0.0
    kill_at: float = float("inf")

    @property
    def identity(self) -> ProcessId:
        return ProcessId.of(self.process.pid)

    @property
    def was_stopped(self) -> bool:
        return self.kill_at != float("inf")

    def stop(self) -> None:
        """Asks it to end, once; it is made to end when it does not."""
        if not self.was_stopped:
            self.process.send_signal(signal.SIGTERM)
            self.kill_at = time.monotonic() + _STOP_SECONDS
        elif time.monotonic() > self.kill_at and self.run.kind not in ALONE:
            self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Keeper:
    """Keeps one task, from `keep` until nothing is wanted of it any more.

    Args:
        name: The task.
        kind: `task` or `suite`.
        program: What the commands are of.
        lease_seconds: For how long a keeper that is gone is waited for.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        program: Sequence[str] | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._name = name
        self._kind = kind
        self._program = commands.program_of(program)
        self._seconds = lease_seconds
        self._tasks, self._runs, self._leases = Tasks(), TaskRuns(), Leases()
        self._children: dict[int, _Child] = {}
        self._pause = _FIRST_PAUSE
        self._again_at = 0.0
        self._state = ""
        self._leaving = False

    def keep(self) -> bool:
        """Does what is wanted of the task; False where another keeper does."""
        holder = str(ProcessId.of(os.getpid()))
        lease = self._leases.take(lease_name(self._kind, self._name), holder, self._seconds)
        if lease is None:
            return False
        self._lease: Lease = lease
        line = self._tasks.find(self._name, self._kind)
        if line is None:
            self._leases.release(lease)
            return True
        with self._open_hook(line) as self._hook:
            try:
                self._settle_earlier(line)
                while self._turn():
                    time.sleep(_TURN_SECONDS)
                self._leases.release(self._lease)
            except LeaseLost:
                pass  # whoever has it now says how the task stands
            finally:
                self._kill_all()
        return True

    def _open_hook(self, line: TaskLine) -> Webhook:
        """A hook that cannot be used is told of, and keeps no task from running."""
        hook = Hook(Secret(line.hook["url"]), tuple(line.hook["events"])) if line.hook else None
        try:
            return Webhook(hook, self._name)
        except TruecopyError as error:
            self._tell(line, f"the webhook cannot be used: {error}")
            return Webhook(None, self._name)

    def leave(self, *_: object) -> None:
        """Ends the commands and gives the task to whoever takes it next."""
        self._leaving = True

    # A turn

    def _turn(self) -> bool:
        """Looks at what is wanted and at what there is; False when nothing is left to do."""
        try:
            self._renew()
            self._reap()
            line = self._tasks.find(self._name, self._kind)
            asked = self._runs.open(self._name, self._kind) if line else []
            if line is None or self._leaving:
                return self._end_all()
            self._obey(line, asked)
            self._hear(line)
            waiting = [run for run in asked if not run.started_at]
            return bool(self._children or waiting or line.wanted == RUNNING)
        except OperationalError:
            # The metastore cannot be reached: for a while the commands go on.
            self._require_time()
            return True

    def _renew(self) -> None:
        if time.monotonic() > self._lease.safe_until - self._seconds * 0.75:
            self._lease = self._leases.renew(self._lease, self._seconds)

    def _require_time(self) -> None:
        if time.monotonic() > self._lease.safe_until - min(_MARGIN_SECONDS, self._seconds / 4):
            raise LeaseLost(f"the metastore could not be reached in time to keep {self._name}")

    def _obey(self, line: TaskLine, asked: Sequence[Run]) -> None:
        for run in asked:
            child = self._children.get(run.id)
            if child is not None and run.stop_asked and run.kind not in ALONE:
                child.stop()
        lasting = self._find(LASTING)
        alone = [run for run in asked if run.kind in ALONE]
        if lasting is not None and (line.wanted != RUNNING or alone):
            if self._state != STOPPING:
                self._say(line, STOPPING, f"stops for a {alone[0].kind}" if alone else "")
            lasting.stop()
        for run in asked:
            if run.started_at or run.id in self._children or run.kind in LASTING:
                continue
            if run.stop_asked:
                self._write(partial(end_run, run=run, outcome=Outcome(None, "taken back")))
            elif run.kind not in ALONE or not (lasting or self._find(ALONE)):
                self._begin(line, run.kind, run.id, run.trace)
        if line.kind == "task":
            self._keep_up(line, bool(alone or lasting))

    def _keep_up(self, line: TaskLine, busy: bool) -> None:
        """Starts the lasting command, or starts it again."""
        if line.wanted == RUNNING:
            if not busy and time.monotonic() >= self._again_at:
                self._begin(line, line.command, None, line.trace)
                self._say(line, RUNNING, "")
        elif not busy and self._state not in (STOPPED, FAILED):
            self._say(line, STOPPED, "")

    def _begin(self, line: TaskLine, kind: str, number: int | None, trace: str) -> None:
        """Writes a run down before its process begins: whoever comes after a kill must find it."""
        begun: list[int] = [number] if number is not None else []

        def prepare(connection: Connection) -> None:
            if number is None:
                begun.append(new_run(connection, line.name, line.kind, kind, KEEPER, trace))

        self._write(prepare)
        files = Files.of(line.name, begun[0])
        commands.remove_old_files(line.name)
        process = self._spawn(line, kind, files, trace)
        identity = ProcessId.of(process.pid)
        at = identity.machine, identity.pid, identity.began
        run = Run(begun[0], line.name, line.kind, kind, "", 0, False, *at, 1, 0, None, "", {})
        self._children[run.id] = _Child(run, process, files, time.monotonic())
        self._write(lambda connection: begin_run(connection, run.id, *at))
        self._tell(line, f"{kind} begins", run=run.id)

    def _spawn(
        self, line: TaskLine, kind: str, files: Files, trace: str
    ) -> subprocess.Popen[bytes]:
        file = commands.write_task_file(line.kind, line.name, line.text)
        environment = {**os.environ, "TRUECOPY_PROGRESS": str(files.progress)}
        if line.master:
            environment["TRUECOPY_MASTER"] = line.master
        if trace:
            environment[telemetry.PARENT] = trace
        with files.out.open("wb") as out, files.log.open("wb") as log:
            return subprocess.Popen(
                [*self._program, *commands.arguments(kind, file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=ends_with_parent,  # noqa: PLW1509 - one system call, which takes no lock
            )

    # What has ended

    def _reap(self) -> None:
        for number, child in list(self._children.items()):
            code = child.process.poll()
            if code is None:
                continue
            line = self._tasks.find(self._name, self._kind)
            found = commands.outcome(child.run.kind, child.files, code)
            self._end(line, child.run, found)
            del self._children[number]
            if line is None:
                continue
            self._tell(
                line,
                f"{child.run.kind} ended: {found.message or 'done'}",
                run=number,
                exit_code=code,
            )
            if child.run.kind in LASTING and line.wanted == RUNNING and not child.was_stopped:
                self._judge(line, child, found)

    def _end(self, line: TaskLine | None, run: Run, found: Outcome) -> None:
        """Writes down how a run ended, and in the same transaction that a task which is over is not to run any more."""
        over = line if line is not None and found.result.get("over") else None

        def write(connection: Connection) -> None:
            end_run(connection, run=run, outcome=found)
            if over is not None:
                say_wanted(connection, over, STOPPED)

        self._write(write)
        if over is not None:
            self._say(over, STOPPED, "cut over, without a way back")

    def _judge(self, line: TaskLine, child: _Child, found: Outcome) -> None:
        """What becomes of a task whose lasting command has ended by itself."""
        code = found.exit_code
        if code == 0 or commands.is_final(code):
            self._write(lambda connection: say_wanted(connection, line, STOPPED))
            self._say(line, STOPPED if code == 0 else FAILED, found.message)
            return
        if time.monotonic() - child.began > _SETTLED_SECONDS:
            self._pause = _FIRST_PAUSE
        self._again_at = time.monotonic() + self._pause
        self._say(line, RESTARTING, f"{found.message}; tried again in {self._pause:g} s")
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _settle_earlier(self, line: TaskLine) -> None:
        """Ends what the keeper before has left, and writes down how it ended."""
        self._state = line.state
        if line.wanted == RUNNING:
            self._say(line, STARTING, "")
        for run in self._runs.open(self._name, self._kind):
            if not run.started_at and run.kind not in LASTING:
                continue
            identity = ProcessId(run.host, run.pid, run.process_began)
            while identity.is_alive:
                if run.kind not in ALONE:
                    identity.signal(signal.SIGTERM)
                    self._wait_for(identity)
                    identity.kill_session()
                else:
                    self._wait_for(identity)
            found = commands.outcome(run.kind, Files.of(self._name, run.id), None)
            if run.started_at and not identity.is_here:
                found = Outcome(None, f"its keeper on {run.host.partition('/')[0]} was lost")
            self._end(line, run, found)

    def _wait_for(self, identity: ProcessId) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        while identity.is_alive and time.monotonic() < deadline:
            self._renew()
            time.sleep(0.1)

    def _end_all(self) -> bool:
        """On the way out: whether there is still something to wait for."""
        for child in self._children.values():
            if child.run.kind not in ALONE:
                child.stop()
        return bool(self._children)

    def _kill_all(self) -> None:
        for child in self._children.values():
            if child.run.kind not in ALONE:
                child.kill()

    def _find(self, kinds: Sequence[str]) -> _Child | None:
        return next((one for one in self._children.values() if one.run.kind in kinds), None)

    # What is told

    def _hear(self, line: TaskLine) -> None:
        """Passes on how far the run is."""
        child = self._find(LASTING)
        if child is None or time.monotonic() - child.told < _PROGRESS_SECONDS:
            return
        with suppress(OSError, ValueError):
            progress = json.loads(child.files.progress.read_text(encoding="utf-8"))
            if isinstance(progress, dict):
                self._write(lambda connection: say_progress(connection, line, progress))
                if time.monotonic() - child.sampled >= _SAMPLE_SECONDS:
                    self._write(lambda connection: add_sample(connection, line, progress))
                    child.sampled = time.monotonic()
        child.told = time.monotonic()

    def _say(self, line: TaskLine, state: str, message: str) -> None:
        def write(connection: Connection) -> None:
            say_state(connection, line, state, message)
            text = f"{state}: {message}" if message else state
            note_event(connection, line.name, STATE_EVENT, text, state=state)

        self._write(write)
        self._state = state
        self._hook.tell(webhook.STATE, state=state, **({"reason": message} if message else {}))

    def _tell(self, line: TaskLine, message: str, **detail: object) -> None:
        self._write(lambda c: note_event(c, line.name, RUN_EVENT, message, **detail))

    def _write(self, what: Callable[[Connection], None]) -> None:
        with self._leases.fenced(self._lease) as connection:
            what(connection)


def start_keeper(
    name: str,
    kind: str,
    program: Sequence[str] | None = None,
    lease_seconds: float = LEASE_SECONDS,
) -> subprocess.Popen[bytes]:
    """Starts a keeper as a process of its own, which outlives the one that started it."""
    asked = {"name": name, "kind": kind, "program": program, "lease_seconds": lease_seconds}
    with (commands.runs_folder() / f"{name}-keeper.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "truecopy.tasks.keeper", json.dumps(asked)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    _outliving[:] = [one for one in _outliving if one.poll() is None]
    _outliving.append(process)
    return process


def main() -> None:
    """The process of a keeper."""
    keeper = Keeper(**json.loads(sys.argv[1]))

    def leave(_signal: int, _frame: FrameType | None) -> None:
        keeper.leave()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    keeper.keep()


if __name__ == "__main__":
    main()
