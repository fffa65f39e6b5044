"""The file that describes a keyspace."""

from __future__ import annotations

from pathlib import Path

import yaml

from truecopy.model.errors import UsageError
from truecopy.model.keyspace import Keyspace, parse_keyspace


def load_keyspace(path: Path | str) -> Keyspace:
    """Reads a keyspace from a YAML file of its own, or from the `source:` of a task file."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            document = yaml.load(file, _Loader)
    except OSError as error:
        raise UsageError(f"cannot read the keyspace file {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the keyspace file {path}: {_cause(error)}") from None
    try:
        return parse_keyspace(document)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


class _Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
    """Plain YAML, in which a key that comes twice is an error and does not hide the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} comes twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        found: dict[object, object] = super().construct_mapping(node, deep)
        return found


def _cause(error: Exception) -> str:
    # PyYAML quotes the line where it stopped, which may hold a password: only the place is told.
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} in line {error.problem_mark.line + 1}"
    return "it is not YAML in UTF-8"
