"""MySQL itself as an end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.queries.ends import End, details, run
from tests.queries.test_run import AGREEING
from truecopy.queries.result import Status


@pytest.mark.mysql
@pytest.mark.parametrize("other", ["mysql", "mariadb", "duckdb"])
def test_the_same_data_gives_the_same_answers(other: str, end: Callable[[str], End]) -> None:
    results = run(end("mysql"), end(other), *AGREEING)
    assert details([r for r in results if r.status is not Status.SUCCEEDED]) == []
    assert end("mysql").execute("SELECT COUNT(*) FROM t")[0][0] == 5
