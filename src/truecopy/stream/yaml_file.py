"""Files that people write in YAML: keyspaces and tasks."""

from __future__ import annotations

from pathlib import Path

import yaml

from truecopy.model.errors import UsageError


def read_yaml(path: Path | str, what: str) -> object:
    """The document of a file; `what` says in a message which file cannot be read."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            document: object = yaml.load(file, _Loader)
    except OSError as error:
        raise UsageError(f"cannot read {what} {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {what} {path}: {_cause(error)}") from None
    return document


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
