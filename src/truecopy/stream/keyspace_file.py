"""The file that describes a keyspace."""

from __future__ import annotations

from pathlib import Path

from truecopy.model.errors import UsageError
from truecopy.model.keyspace import Keyspace, parse_keyspace
from truecopy.stream.yaml_file import read_yaml


def load_keyspace(path: Path | str) -> Keyspace:
    """Reads a keyspace from a YAML file of its own, or from the `source:` of a task file."""
    document = read_yaml(path, "the keyspace file")
    try:
        return parse_keyspace(document)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
