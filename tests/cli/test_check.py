"""`truecopy check` as a user runs it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.program import truecopy
from tests.servers import Database
from tests.transfer.load import fill


def task(folder: Path, source: str, target: str, more: str = "") -> str:
    file = folder / "shop.yaml"
    file.write_text(f"task: shop\nsource: {source}\ntarget: {target}\n{more}", encoding="utf-8")
    return str(file)


def test_a_task_that_can_run(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db, 20)
    ended = truecopy("check", task(tmp_path, mariadb_db.url, second_mariadb_db.url))
    assert ended.code == 0, ended.out + ended.err
    assert "ready: shop can run; 0 warnings" in ended.out
    assert "guarantee: at-least-once, consistent by table" in ended.out
    for url in (mariadb_db.url, second_mariadb_db.url):
        password = unquote(urlsplit(url).password or "")
        assert password not in ended.out + ended.err


def test_a_task_that_cannot(
    mariadb_db: Database, second_mariadb_db: Database, tmp_path: Path
) -> None:
    fill(mariadb_db, 20)
    fill(second_mariadb_db, 1)
    mariadb_db.execute("CREATE VIEW looks AS SELECT 1")
    file = task(tmp_path, mariadb_db.url, second_mariadb_db.url)
    ended = truecopy("check", file)
    assert ended.code == 1
    name = re.escape(second_mariadb_db.name)
    assert re.search(
        rf"tables\n  ✘ .*{name}.items on the target is not empty\n    → DELETE FROM", ended.out
    )
    assert re.search(r"not carried\n  views +looks", ended.out)
    assert "not ready: 1 to mend first" in ended.out
    document = truecopy("check", file, "--json").document
    assert document["verdict"] == "not_ready"
    assert [f["subject"] for f in document["findings"] if f["level"] == "error"] == ["tables"]
    assert document["guarantee"]["effective"]["consistency"] == "table"
    assert {"kind": "views", "names": ["looks"], "note": ""} in document["not_carried"]
    assert document["estimate"]["rows"] == 20


def test_wrong_usage_and_no_server(mariadb_db: Database, tmp_path: Path) -> None:
    assert truecopy("check", str(tmp_path / "none.yaml")).code == 2
    gone = "mariadb://nobody:secret-word@127.0.0.1:1/shop"
    ended = truecopy("check", task(tmp_path, mariadb_db.url, gone))
    assert ended.code == 3
    assert "cannot connect" in ended.err
    assert "secret-word" not in ended.out + ended.err
