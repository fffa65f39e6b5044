"""One shell, as a reader of a page has it open, and the page typed into it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Self

from tests.tutorials.page import Command, File, Page, first_missing

STEP_SECONDS = 240.0
_WIDTH = "110"


def follow(page: Page, folder: Path, variables: Mapping[str, str]) -> None:
    """Does what the page says, in the folder; fails where something else comes out."""
    assert page.variables == variables.keys(), f"{page.name} has the reader set other variables"
    with Terminal(folder, variables) as terminal:
        for step, after in zip(page.steps, [*page.steps[1:], None], strict=True):
            if isinstance(step, File):
                file = folder / step.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(step.text, encoding="utf-8")
                continue
            output, code = terminal.type(step)
            told = f"{page.name}: $ {step.line}\n{output}"
            missing = first_missing(step.shown, output)
            assert missing is None, f"{told}\nthe page shows: {missing}"
            if not (isinstance(after, Command) and after.asks_for_code):
                assert code == 0, f"{told}\nended with {code}"


class Terminal:
    """A shell; what is started in the background ends with it."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env={**os.environ, **variables, "PATH": programs, "COLUMNS": _WIDTH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Without job control, what the shell started is in the shell's own group.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def type(self, command: Command) -> tuple[str, int]:
        """What a command prints, and its exit code."""
        mark = f"--{secrets.token_hex(8)}--"
        assert self._process.stdin is not None
        # The exit code stays what it was for the next command, which may ask for it.
        self._process.stdin.write(
            f"{{ {command.line}\n}} </dev/null; code=$?; echo; echo {mark} $code; (exit $code)\n"
        )
        self._process.stdin.flush()
        said: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=STEP_SECONDS)
            except Empty:
                raise AssertionError(f"$ {command.line}\n{''.join(said)}does not end") from None
            assert line is not None, f"$ {command.line}\n{''.join(said)}ended the shell"
            if line.startswith(mark):
                return "".join(said), int(line.split()[1])
            said.append(line)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)
