"""Secrets: kept as the text that says where they are, looked up when they are used, never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from truecopy.model.errors import UsageError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_FILE = "file:"


@dataclass(frozen=True)
class Secret:
    """`file:/path`, or a text in which `${NAME}` is a variable of the environment."""

    reference: str = field(repr=False)

    def reveal(self, environment: Mapping[str, str] | None = None) -> str:
        """The secret itself. A file's last line break is not a part of it."""
        if not self.reference.startswith(_FILE):
            return fill_variables(self.reference, environment, "a secret")
        path = fill_variables(self.reference.removeprefix(_FILE), environment, "a secret")
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UsageError(f"cannot read the secret in {path}: {cause}") from None

    def __str__(self) -> str:
        return "***"


def fill_variables(text: str, environment: Mapping[str, str] | None, user: str) -> str:
    """The text with each `${NAME}` replaced; `user` says in a message what needed the variable."""
    variables = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        if match[1] not in variables:
            raise UsageError(f"the environment variable {match[1]} is not set, but {user} uses it")
        return variables[match[1]]

    return _VARIABLE.sub(value, text)
