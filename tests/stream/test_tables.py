"""Which tables a stream carries."""

from __future__ import annotations

import pytest

from truecopy.model.change import ORIGIN_TABLE
from truecopy.stream.tables import Choice


@pytest.mark.parametrize(
    ("patterns", "database", "table", "wanted"),
    [
        ((), "shop", "orders", True),
        ((), "other", "orders", False),
        (("orders",), "shop", "orders", True),
        (("orders",), "other", "orders", False),
        (("other.*",), "other", "orders", True),
        (("shop.*",), "shop", "orders", True),
        (("s*",), "shop", "orders", False),
        (("orders",), "shop", ORIGIN_TABLE, True),
    ],
)
def test_choice(patterns: tuple[str, ...], database: str, table: str, wanted: bool) -> None:
    assert Choice(patterns, "shop").wants(database, table) is wanted
