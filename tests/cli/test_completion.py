"""Completion, as the shells ask for it; the script for bash in bash itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.program import PROGRAM

_ASK = {
    "bash": {"COMP_WORDS": "truecopy {}", "COMP_CWORD": "{count}"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "truecopy {}"},
    "fish": {"_TYPER_COMPLETE_ARGS": "truecopy {}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


def _answer(variables: dict[str, str], *command: str) -> str:
    path = os.pathsep.join((str(Path(PROGRAM).parent), os.environ["PATH"]))
    done = subprocess.run(
        command or (PROGRAM,),
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", _ASK)
@pytest.mark.parametrize(
    ("typed", "wanted", "unwanted"),
    [
        ("va", ("validate",), "verify"),
        ("validate st", ("start", "stop", "status"), "errors"),
        ("verify --li", ("--live", "--limit"), "--json"),
    ],
)
def test_the_program_completes(
    shell: str, typed: str, wanted: tuple[str, ...], unwanted: str
) -> None:
    count = str(len(typed.split()))
    asked = {name: text.format(typed, count=count) for name, text in _ASK[shell].items()}
    found = _answer({"_TRUECOPY_COMPLETE": f"complete_{shell}", **asked})
    assert all(word in found for word in wanted)
    assert unwanted not in found


@pytest.mark.parametrize(("shell", "mark"), [("zsh", "#compdef truecopy"), ("fish", "complete ")])
def test_there_is_a_script(shell: str, mark: str) -> None:
    script = _answer({"_TRUECOPY_COMPLETE": f"source_{shell}"})
    assert script.strip().startswith(mark)
    assert f"_TRUECOPY_COMPLETE=complete_{shell}" in script


def test_bash_completes_by_the_script(tmp_path: Path) -> None:
    script = tmp_path / "truecopy"
    script.write_text(_answer({"_TRUECOPY_COMPLETE": "source_bash"}))
    typed = 'COMP_WORDS=(truecopy cut); COMP_CWORD=1; _truecopy_completion truecopy; echo "${COMPREPLY[@]}"'
    assert _answer({}, "bash", "-c", f"source {script}; {typed}") == "cutover\n"
