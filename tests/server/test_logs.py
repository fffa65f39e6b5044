"""Logs that programs read: a JSON document a line, of the server always, of commands when asked."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.program import truecopy
from tests.server.support import SHOP, Caller, make_shop, wait_until
from tests.server.test_keeping import served_by_the_program
from truecopy.server.serving import JsonLines
from truecopy.tasks.commands import Files, outcome


def documents(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert all({"at", "level", "message"} <= one.keys() for one in found)
    return found


def test_the_server_logs_documents_without_what_came_with_a_request(tmp_path: Path) -> None:
    with served_by_the_program(tmp_path) as (_, url):
        ask = Caller(int(url.rpartition(":")[2]))
        assert ask("GET", "/api/tasks?token=hunter2", authorization="Bearer hunter2").status == 401
        log = tmp_path / "serve.log"
        wait_until(lambda: '"request"' in log.read_text())
        text = log.read_text()
    found = [one for one in documents(text) if one["message"] == "request"]
    assert {"method": "GET", "path": "/api/tasks", "status": 401}.items() <= found[0].items()
    assert found[0]["ms"] >= 0
    assert "hunter2" not in text


def test_a_trace_is_in_its_line_and_a_password_is_not() -> None:
    try:
        raise ValueError("cannot open postgresql://ada:hunter2@db/shop")
    except ValueError as error:
        given = "truecopy.server", logging.ERROR, __file__, 1, "it failed: %s", (error,)
        record = logging.LogRecord(*given, exc_info=sys.exc_info())
    (line,) = documents(JsonLines().format(record))
    assert line["message"] == "it failed: cannot open postgresql://ada:***@db/shop"
    assert "ValueError" in line["trace"]
    assert "hunter2" not in json.dumps(line)


@pytest.mark.long
def test_commands_log_documents_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUECOPY_LOG", "json")
    make_shop(tmp_path, 10)
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP.format(name="shop", folder=tmp_path) + "spark: {master: 'local[1]'}\n")
    run = truecopy("run", str(file), "--until-caught-up", "--json")
    assert run.code == 0, run.err
    said = documents(run.err)
    told = [one for one in said if one.get("task") == "shop"]
    assert told[0]["phase"] == "snapshot"
    assert all({"rows_copied", "changes_applied", "lag_seconds"} <= one.keys() for one in told)
    failed = truecopy("verify", "sqlite:////not/there.db", "sqlite:////not/there.db")
    (line,) = documents(failed.err)
    assert (line["level"], line["exit_code"]) == ("error", failed.code)
    files = Files.of("shop", 1)
    files.log.write_text(run.err + failed.err)
    assert outcome("run", files, failed.code).message == line["message"]
