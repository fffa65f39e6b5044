"""How a task file says what its validation goes by."""

from __future__ import annotations

from pathlib import Path

import pytest

from truecopy.tasks.file import load_task
from truecopy.tasks.validation import validation_options


@pytest.mark.parametrize(
    ("more", "applied"),
    [
        ("", "task"),
        ("validate-only: true\nverify: {continuous: true}", "auto"),
        ("verify: {continuous: {applied: lag, lag: 5s}}", "lag"),
    ],
)
def test_a_task_of_ours_is_told_by_its_target(more: str, applied: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    ends = "source: mariadb://db1/shop\ntarget: mariadb://db2/shop"
    file.write_text(f"task: shop\n{ends}\n{more}\n", encoding="utf-8")
    assert validation_options(load_task(file)).applied == applied
