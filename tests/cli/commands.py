"""The commands of the program, and whether it would take some words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer.main

from truecopy.cli.main import app

ROOT: Any = typer.main.get_command(app)


def parse(words: Sequence[str]) -> None:
    """Raises where the program would end with `wrong usage`; runs nothing."""
    command, parent = ROOT, None
    while True:
        context = command.make_context(command.name, list(words), parent=parent)
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not hasattr(command, "commands") or not rest:
            return
        _, command, words = command.resolve_command(context, rest)
        parent = context
