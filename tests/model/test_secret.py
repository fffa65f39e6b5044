"""Secrets are found where they are said to be, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret


def test_reveal(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from a file\n")
    assert Secret(f"file:{file}").reveal() == "from a file"
    assert Secret("file:${DIR}/key").reveal({"DIR": str(tmp_path)}) == "from a file"
    assert Secret("a${B}c").reveal({"B": "-"}) == "a-c"


def test_never_shown() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("${NOT_SET}", "the environment variable NOT_SET is not set"),
        ("file:/not/there", "cannot read the secret in /not/there: No such file"),
    ],
)
def test_mistakes(reference: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Secret(reference).reveal({})
