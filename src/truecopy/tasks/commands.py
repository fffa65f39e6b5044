"""What a task's processes run: commands of the program, each with a file for its result and one for what it says."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truecopy.metastore.task_runs import Outcome
from truecopy.spark import state_folder

RUN, VALIDATE, VERIFY, CHECK, QUERIES = "run", "validate", "verify", "check", "queries"
CUTOVER, REHEARSE, SWITCH_BACK = "cutover", "rehearse", "switch-back"

LASTING = (RUN, VALIDATE)
"""Those that go on until they are stopped."""
ALONE = (CUTOVER, REHEARSE, SWITCH_BACK)
"""Those for which the lasting one steps aside. They are not ended from outside: writers may be locked out."""
ASKED = (VERIFY, CHECK, *ALONE)
"""Those of a task that somebody can ask for."""

PROGRAM: tuple[str, ...] = (sys.executable, "-m", "truecopy")
_FILES_KEPT = 40
_FOUND_SOMETHING = 1  # the exit code of a command that did its work and found what it looks for


@dataclass(frozen=True)
class Files:
    """Where one run writes."""

    out: Path
    log: Path
    progress: Path

    @classmethod
    def of(cls, name: str, number: int) -> Files:
        base = runs_folder() / f"{name}-{number}"
        return cls(*(base.with_name(f"{base.name}.{end}") for end in ("out", "log", "progress")))


def arguments(kind: str, file: Path) -> tuple[str, ...]:
    """The command of a run, as a user would write it."""
    name = str(file)
    return {
        RUN: ("run", name, "--json"),
        VALIDATE: ("validate", "start", name, "--json"),
        VERIFY: ("verify", "--task", name, "--json"),
        CHECK: ("check", name, "--json"),
        CUTOVER: ("cutover", name, "--no-wait", "--json"),
        REHEARSE: ("cutover", name, "--rehearse", "--no-wait", "--json"),
        SWITCH_BACK: ("switch-back", name, "--no-wait", "--json"),
        QUERIES: ("queries", "run", name, "--json"),
    }[kind]


def outcome(kind: str, files: Files, code: int | None) -> Outcome:
    """What a run that has ended left in its files."""
    documents = _documents(files.out)
    message = "" if code == 0 else _last_line(files.log) or _how(kind, code)
    if kind == QUERIES:
        # Whichever ended first, it is told alike.
        counts = dict(sorted(Counter(str(one.get("status")) for one in documents).items()))
        return Outcome(code, message, {"queries": len(documents), "statuses": counts}, documents)
    result = documents[-1] if documents else {}
    return Outcome(code, message, result, _take_differences(result), _certificates(result))


def runs_folder() -> Path:
    """Where runs write; nobody else can read it."""
    return _folder("runs")


def task_folder() -> Path:
    """Where the files of tasks are, for commands."""
    return _folder("tasks")


def write_task_file(kind: str, name: str, text: str) -> Path:
    """The file of a task, for commands; secrets are only named in it."""
    path = task_folder() / f"{name}.{kind}.yaml"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix="new-", delete=False
        ) as file:
            file.write(text)
        Path(file.name).replace(path)  # a command that starts now reads the whole of it
    return path


def remove_old_files(name: str) -> None:
    """Leaves the files of the last runs of a task."""
    names = (file.stem.removeprefix(f"{name}-") for file in runs_folder().glob(f"{name}-*.log"))
    numbers = sorted((int(one) for one in names if one.isdecimal()), reverse=True)
    for number in numbers[_FILES_KEPT:]:
        for path in vars(Files.of(name, number)).values():
            path.unlink(missing_ok=True)


def _folder(name: str) -> Path:
    folder = state_folder() / "server" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _documents(path: Path) -> list[dict[str, Any]]:
    """What was printed, a document a line; a line that a kill cut off is left out."""
    found = []
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError):
                document = json.loads(line)
                if isinstance(document, dict):
                    found.append(document)
    return found


def _take_differences(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The differing rows of a verification, taken out of its document: there may be very many."""
    found = []
    for leg in (result, *result.get("legs", ())):
        tables = leg.get("tables")
        for table in tables if isinstance(tables, list) else ():
            ends = {"source_table": table.get("source"), "target_table": table.get("target")}
            found += [{**ends, **one} for one in table.pop("differences", None) or ()]
    return found


def _certificates(result: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    found = []
    for leg in (result, *result.get("legs", ())):
        if name := leg.get("certificate"):
            with suppress(OSError, ValueError):
                path = Path(str(name))
                document = json.loads(path.read_text(encoding="utf-8"))
                found.append((document, path.with_suffix(".html").read_text(encoding="utf-8")))
                leg["certificate"] = document["id"]
    return found


def _last_line(path: Path) -> str:
    with suppress(OSError):
        lines = path.read_text(encoding="utf-8", errors="replace")[-4000:].splitlines()
        told = [_said(line) for line in lines if line.strip()]
        ours = [line for line in told if line.startswith("truecopy: ")]
        return ((ours or told or [""])[-1]).removeprefix("truecopy: ")
    return ""


def _said(line: str) -> str:
    """A line as it is where people read it (see `TRUECOPY_LOG`)."""
    with suppress(ValueError):
        document = json.loads(line)
        if isinstance(document, dict) and "message" in document:
            word = "truecopy: " if document.get("level") == "error" else ""
            return f"{word}{document['message']}"
    return line.strip()


def _how(kind: str, code: int | None) -> str:
    if code is None:
        return "it ended while nobody watched it"
    if code == _FOUND_SOMETHING:
        return what_was_found(kind)
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


def what_was_found(kind: str) -> str:
    """What a command says by its exit code 1, in words."""
    return "not ready" if kind == CHECK else "differences"


def is_final(code: int | None) -> bool:
    """Whether the same command could never succeed, so that it is not tried again."""
    return code == 2


def program_of(given: Sequence[str] | None) -> tuple[str, ...]:
    """What the commands are of; another one only in tests of what surrounds them."""
    return tuple(given) if given else PROGRAM
