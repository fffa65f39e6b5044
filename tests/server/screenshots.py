"""Pictures of every page, for the documentation: `python -m tests.server.screenshots docs/images`.

A small shop is moved, spoiled, verified, repaired and cut over by real processes. Only the figures of the hour before,
and the tasks beside it on the first page, are made up.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page
from sqlalchemy import insert

from tests.server.browsing import SHOP, chromium, do, make_goods, spoil_a_change
from tests.server.support import Caller, serving, wait_until
from truecopy.metastore.control import now, sample
from truecopy.metastore.tasks import TASK, TaskLine, Tasks
from truecopy.metastore.tokens import Tokens

_ROWS, _RATE = 3000, 150
_SECONDS = 300.0
_WIDTH, _PHONE = 1100, 390
_SUITE = """\
control: sqlite:///{folder}/source.db
test: sqlite:///{folder}/target.db
queries:
  - name: goods by day
    query: SELECT day, count(*) AS goods FROM goods GROUP BY day
  - name: the first lamps
    query: SELECT id, name FROM goods WHERE id < 20
"""


def main(folder: Path) -> None:
    """Takes all pictures."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="truecopy-pictures-") as work:
        os.environ["TRUECOPY_STATE"] = f"{work}/state"
        os.environ.pop("TRUECOPY_METASTORE", None)
        os.chdir(work)  # so that addresses are short on the pictures
        shop = Path("shop")
        shop.mkdir()
        make_goods(shop, _ROWS)
        with serving() as ask, chromium() as browser:
            try:
                _take_all(ask, browser, shop, folder)
            finally:
                for one in ask("GET", "/api/tasks").document:
                    ask("POST", f"/api/tasks/{one['name']}/stop")
                wait_until(lambda: _states(ask) <= {"stopped", "failed"}, _SECONDS)


def _take_all(ask: Caller, browser: Browser, shop: Path, folder: Path) -> None:
    home = f"http://127.0.0.1:{ask.port}"
    page = browser.new_page(viewport={"width": _WIDTH, "height": 700}, color_scheme="light")

    def take(name: str, path: str, before: Callable[[Page], Any] | None = None) -> None:
        page.goto(home + path)
        if before:
            before(page)
        page.wait_for_timeout(1200)  # what is live has come
        page.screenshot(path=folder / f"{name}.png", full_page=True)

    def take_on_a_phone(name: str, path: str) -> None:
        page.set_viewport_size({"width": _PHONE, "height": 800})
        take(f"{name}-phone", path)
        page.set_viewport_size({"width": _WIDTH, "height": 700})

    file = SHOP.format(folder=shop, rate=_RATE)
    take("sign-in", "/sign-in")
    take("new", "/new", lambda page: _look(page, file))
    _do(ask, "POST", "/api/tasks", {"file": file, "start": True})
    wait_until(lambda: _rows(ask) > _ROWS // 3, _SECONDS)
    take("task-copying", "/tasks/shop")
    wait_until(lambda: _phase(ask) == "replicate", _SECONDS)
    _plant_beside()
    _spoil(ask, shop)
    take("errors", "/tasks/shop/errors", lambda p: p.locator("input[name=id]").first.check())
    take_on_a_phone("errors", "/tasks/shop/errors")
    take("repair", "/tasks/shop/errors", _begin_repair)
    for kind in ("check", "verify"):
        _run(ask, "/api/tasks/shop/runs", {"kind": kind})
    do(shop / "source.db", "UPDATE goods SET price = price + 1 WHERE id % 7 = 0")
    wait_until(lambda: _changes(ask) > _ROWS // 7, _SECONDS)
    _plant_samples()
    take("task", "/tasks/shop")
    take("keys", "/tasks/shop/keys")
    take("differences", "/tasks/shop/differences")
    _do(ask, "POST", "/api/suites", {"name": "shop-queries", "file": _SUITE.format(folder=shop)})
    _run(ask, "/api/suites/shop-queries/run", None)
    take("suites", "/suites")
    take("new-suite", "/new-suite")
    take("suite", "/suites/shop-queries")
    before = _changes(ask)
    do(shop / "source.db", "UPDATE goods SET day = '2026-11-11' WHERE id < 2500")
    do(shop / "target.db", "DELETE FROM goods WHERE id = 9000")
    wait_until(lambda: _changes(ask) >= before + 2499, _SECONDS)
    for kind in ("verify", "rehearse"):
        _run(ask, "/api/tasks/shop/runs", {"kind": kind})
    take("cutover", "/tasks/shop/cutover")
    take("runs", "/tasks/shop/runs")
    take("settings", "/tasks/shop/settings")
    run = ask("GET", "/api/tasks/shop/runs?kind=run").document[-1]["id"]
    take("run", f"/runs/{run}")
    certificate = ask("GET", "/api/certificates?task=shop").document[0]["id"]
    take("certificates", "/certificates")
    take("certificate", f"/certificates/{certificate}")
    for name, role in (("ada", "operate"), ("bob", "view")):
        Tokens().add(name, role, 86_400 * 30)
    take("tokens", "/tokens")
    take("audit", "/audit")
    take("refusal", "/tasks/nothing")
    take("overview", "/")
    take_on_a_phone("overview", "/")
    take_on_a_phone("task", "/tasks/shop")
    page.emulate_media(color_scheme="dark")
    take("overview-dark", "/")
    take("task-dark", "/tasks/shop")


def _look(page: Page, file: str) -> None:
    page.get_by_label("Task file").fill(file)
    page.get_by_role("button", name="Check", exact=True).click()


def _begin_repair(page: Page) -> None:
    page.locator("input[name=id]").first.check()
    page.get_by_role("button", name="Repair…").click()
    page.wait_for_url("**/errors/repair")


def _spoil(ask: Caller, shop: Path) -> None:
    """Errors for validation, and rows that only a verification finds."""
    spoil_a_change(shop, 12, "Lamp No. 12, small", "Lamp N0. 12, smalI", ask)
    for statement in (
        "UPDATE goods SET name = 'Lamp No.  700 ' WHERE id = 700",
        "UPDATE goods SET name = 'Lаmp No. 701' WHERE id = 701",  # noqa: RUF001 - that is what is wrong with it
        "UPDATE goods SET price = 17.05 WHERE id BETWEEN 1700 AND 1712",
        "DELETE FROM goods WHERE id = 2400",
        "INSERT INTO goods VALUES (9000, 'Lamp of nobody', 1, '2026-01-01')",
    ):
        do(shop / "target.db", statement)


def _plant_beside() -> None:
    tasks = Tasks()
    failed = "the source's binary log is in the format STATEMENT: SET GLOBAL binlog_format = 'ROW'"
    for name, state, message in (("billing", "failed", failed), ("crm-eu", "stopped", "")):
        text = f"task: {name}\nsource: sqlite:///a.db\ntarget: sqlite:///b.db\n"
        tasks.add(TaskLine(name, TASK, text, state=state, message=message, made_by="ada"))


def _plant_samples() -> None:
    """An hour before: a copy that ends, then a day's changes."""
    tasks, end = Tasks(), now()
    with tasks._engine.begin() as connection:
        for minute in range(2, 340):
            wave = 1 + math.sin(minute / 17) * 0.4 + math.sin(minute / 3) * 0.15
            lag = 0.6 * wave + (6 if 120 < minute < 128 else 0)
            values = {"task": "shop", "at": end - minute * 10_000_000, "lag_seconds": lag}
            connection.execute(
                insert(sample).values(
                    rate=90 * wave, rows_copied=_ROWS, changes_applied=0, **values
                )
            )


def _run(ask: Caller, path: str, document: object) -> None:
    number = _do(ask, "POST", path, document)["id"]
    wait_until(lambda: ask("GET", f"/api/runs/{number}").document["state"] == "ended", _SECONDS)


def _do(ask: Caller, method: str, path: str, document: object) -> Any:
    answer = ask(method, path, document)
    assert answer.status < 300, answer.text
    return answer.document


def _progress(ask: Caller) -> dict[str, Any]:
    return ask("GET", "/api/tasks/shop").document["progress"] or {}


def _rows(ask: Caller) -> int:
    return int(_progress(ask).get("rows_copied", 0))


def _changes(ask: Caller) -> int:
    return int(_progress(ask).get("changes_applied", 0))


def _phase(ask: Caller) -> str | None:
    return _progress(ask).get("phase")


def _states(ask: Caller) -> set[str]:
    return {one["state"] for one in ask("GET", "/api/tasks").document}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
