"""Requests made from the OpenAPI document, whatever they hold: no answer is a failure of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok

from tests.server.support import SHOP, Caller, make_shop, serving

_EACH = 4
_WITHOUT_END = "/api/events/stream"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Caller]:
    make_shop(tmp_path)
    idle = ("/bin/sh", "-c", "exec sleep 600")
    with serving(program=idle, rate=100_000, burst=1_000_000) as ask:
        ask("POST", "/api/tasks", {"file": SHOP.format(name="shop", folder=tmp_path)})
        yield ask


def test_no_request_makes_the_server_fail(served: Caller) -> None:
    url = f"http://127.0.0.1:{served.port}"
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    answers: list[tuple[str, int]] = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path == _WITHOUT_END:
            continue
        for mode in schemathesis.GenerationMode:

            @settings(
                max_examples=_EACH,
                database=None,
                deadline=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(mode))
            def ask(case: Any) -> None:
                answer = case.call(base_url=url)
                answers.append((case.method + " " + case.path, answer.status_code))

            with suppress(Unsatisfiable):  # nothing can be wrong with a request that has no parts
                ask()
    assert [one for one in answers if one[1] >= 500] == []
    assert len(answers) > 100
