"""The pages in a browser: a task from its making to its certificate, and what a viewer cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from tests.server.browsing import (
    PATIENCE,
    ROWS,
    SHOP,
    chromium,
    do,
    make_goods,
    spoil_a_change,
)
from tests.server.planting import plant_suite, plant_task
from tests.server.support import Caller, make_shop, serving
from tests.server.test_pages import NOBODY, SEEN
from truecopy.metastore.tasks import Tasks
from truecopy.metastore.tokens import Tokens

expect.set_options(timeout=60_000)
EVIL = "<img src=x onerror=\"alert('x')\"><script>alert('x')</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    try:
        yield context
    finally:
        context.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_task_from_its_making_to_its_certificate(page: Page, tmp_path: Path) -> None:
    make_goods(tmp_path)
    with serving() as ask:
        home = f"http://127.0.0.1:{ask.port}"
        make_it(page, home, SHOP.format(folder=tmp_path, rate=20))
        watch_the_copy(page)
        repair_a_row(page, home, tmp_path, ask)
        see_what_differs(page, home, tmp_path)
        cut_over(page, home, tmp_path)
        print_the_certificate(page)


def make_it(page: Page, home: str, file: str) -> None:
    page.goto(home)
    page.get_by_role("link", name="New task").click()
    page.get_by_label("Task file").fill(file + "colour: red\n")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("colour")
    page.get_by_label("Task file").fill(file)
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.get_by_text("✓ ready")).to_be_visible()
    page.get_by_role("button", name="Make the task").click()
    expect(page.get_by_text("The task shop was made.")).to_be_visible()


def watch_the_copy(page: Page) -> None:
    """Without a reload: the page follows the task."""
    page.evaluate("window.untouched = true")
    page.wait_for_function(
        "most => { const told = document.querySelector('#tables td[data-label=Rows]');"
        " return told && Number(told.textContent) > 0 && Number(told.textContent) < most; }",
        arg=ROWS,
        timeout=PATIENCE,
    )
    expect(page.locator("#now li[aria-current]")).to_contain_text("Copy")
    expect(page.locator("#picture rect.c-pending").first).to_be_visible()
    expect(page.locator("#tables td[data-label=Rows]")).to_have_text(str(ROWS), timeout=PATIENCE)
    expect(page.locator("#now li[aria-current]")).to_contain_text("Replicate", timeout=PATIENCE)
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("#validation")).to_contain_text("running", timeout=PATIENCE)
    assert page.evaluate("window.untouched") is True


def repair_a_row(page: Page, home: str, folder: Path, ask: Caller) -> None:
    """A row that is spoiled on the target is found by validation, and is repaired from its page."""
    page.goto(f"{home}/tasks/shop/errors")
    spoil_a_change(folder, 7, "Lamp No. 7b", "Lamp N0. 7b", ask)
    row = page.locator("#errors tbody")
    expect(row).to_contain_text("Lamp", timeout=PATIENCE)
    expect(row.locator("mark")).to_have_text(["o", "0"])
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Repair…").click()
    expect(page.locator("pre.log")).to_contain_text("Lamp No. 7b")
    assert do(folder / "target.db", "SELECT name FROM goods WHERE id = 7") == [("Lamp N0. 7b",)]
    page.get_by_role("button", name="Run on the target").click()
    expect(page.get_by_text("1 statement run")).to_be_visible()
    assert do(folder / "target.db", "SELECT name FROM goods WHERE id = 7") == [("Lamp No. 7b",)]
    expect(page.locator("#counts")).to_contain_text("resolved (1)", timeout=PATIENCE)
    expect(page.locator("#errors")).to_contain_text("No errors of this status.")


def see_what_differs(page: Page, home: str, folder: Path) -> None:
    """A row that somebody spoiled is found by a verification, and marked."""
    do(folder / "target.db", "UPDATE goods SET name = 'Lamp No.  9' WHERE id = 9")
    do(folder / "target.db", "DELETE FROM goods WHERE id = 100")
    page.goto(f"{home}/tasks/shop")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator("#now")).to_contain_text("≠ Different", timeout=PATIENCE)
    page.get_by_role("link", name="Differences").click()
    expect(page.locator("table.rows tbody")).to_have_count(2)
    expect(page.locator("table.rows")).to_contain_text("missing")
    assert page.locator("table.rows mark").count() >= 1
    page.get_by_role("link", name="Key space").click()
    cells = page.locator("figure.keys > svg")
    expect(cells.locator("rect.c-many, rect.c-most, rect.c-several")).to_have_count(2)
    do(folder / "source.db", "UPDATE goods SET price = 1 WHERE id IN (9, 100)")
    page.goto(f"{home}/tasks/shop/cutover")
    page.locator("#signs").get_by_role("button", name="Verify").click()
    expect(page.locator("#now")).to_contain_text("= Equal", timeout=PATIENCE)


def cut_over(page: Page, home: str, folder: Path) -> None:
    page.goto(f"{home}/tasks/shop/cutover")
    button = page.get_by_role("button", name="Cut over")
    expect(button).to_be_disabled()
    page.get_by_label("Not all of the signs above are right.").check()
    page.get_by_label("to confirm").fill("sho")
    expect(button).to_be_disabled()
    page.get_by_label("to confirm").fill("shop")
    button.click()
    expect(page.locator("#steps li.done")).to_have_count(7, timeout=PATIENCE)
    expect(page.locator("#steps")).to_contain_text("switched")
    expect(page.locator("#runs tbody tr").first).to_contain_text("done", timeout=PATIENCE)
    page.reload()
    expect(page.get_by_text("There is no way back")).to_be_visible()
    assert do(folder / "target.db", "SELECT count(*) FROM goods") == [(ROWS,)]


def print_the_certificate(page: Page) -> None:
    page.get_by_role("link", name="The certificate of the cutover").click()
    expect(page.get_by_role("heading", name="Certificate of comparison")).to_be_visible()
    expect(page.locator(".finding")).to_contain_text("Equal")
    page.emulate_media(media="print")
    expect(page.locator(".top")).to_be_hidden()
    expect(page.get_by_role("button")).to_have_count(0)
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    assert len(paper) > 10_000


def test_a_viewer_sees_and_cannot_operate(page: Page, tmp_path: Path) -> None:
    make_shop(tmp_path)
    plant_task(tmp_path, "plain")
    token = Tokens().add("eve", "view", 600)
    with serving(require_token=True, program=NOBODY) as ask:
        home = f"http://127.0.0.1:{ask.port}"
        page.goto(f"{home}/tasks/shop/errors")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{home}/tasks/shop/errors")
        expect(page.locator("table.rows tbody")).to_have_count(3)
        for path, role in SEEN.items():
            if role == "view" and "suite" not in path:
                page.goto(home + path)
                words = page.get_by_role("button").all_inner_texts()
                assert [one for one in words if one not in ("Sign out", "Print")] == [], path
        csrf = page.locator('input[name="csrf"]').first.get_attribute("value")
        for path in ("/tasks/shop/start", "/tasks/shop/errors/ignore", "/new"):
            status = page.evaluate(
                "([path, csrf]) => fetch(path, {method: 'POST', headers: {'X-Truecopy-CSRF': csrf}})"
                ".then(answer => answer.status)",
                [path, csrf],
            )
            assert status == 403, path
        line = Tasks().find("shop")
        assert line is not None
        assert line.wanted == "stopped"
        page.get_by_role("button", name="Sign out").click()
        page.goto(f"{home}/tasks/shop")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_wrong_or_expired_token_gets_nothing(context: BrowserContext, tmp_path: Path) -> None:
    make_shop(tmp_path)
    plant_task(tmp_path, "plain")
    tokens = Tokens()
    late = tokens.add("late", "admin", -1)
    page = context.new_page()
    with serving(require_token=True, program=NOBODY) as ask:
        home = f"http://127.0.0.1:{ask.port}"
        for wrong in (late, "tc_nonsense"):
            page.goto(home)
            page.get_by_label("Token").fill(wrong)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("alert")).to_contain_text("unknown or has expired")
            assert "shop" not in page.content()
            assert context.cookies() == []
        page.goto(home)
        page.get_by_label("Token").fill(tokens.add("ada", "admin", 600))
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#tasks")).to_contain_text("shop")
        cookies = {one["name"]: one for one in context.cookies()}
        assert cookies["truecopy_session"]["httpOnly"]
        assert cookies["truecopy_session"]["sameSite"] == "Strict"
        tokens.remove("ada")
        Tasks().want("shop", "running")  # something happens, and the page would show it
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=PATIENCE)


def test_texts_do_nothing_on_any_page_and_no_page_is_too_wide(
    browser: Browser, tmp_path: Path
) -> None:
    make_shop(tmp_path)
    plant_task(tmp_path, EVIL)
    plant_suite(EVIL + "x" * 300)
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    said: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"a dialog: {dialog.message}"))
    with serving(program=NOBODY) as ask:
        for path in SEEN:
            page.goto(f"http://127.0.0.1:{ask.port}{path}")
            page.wait_for_load_state("load")
            wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, (path, wide)
            assert page.locator("img[src=x]").count() == 0
    context.close()
    assert said == []


def test_pages_work_without_scripts(browser: Browser, tmp_path: Path) -> None:
    make_shop(tmp_path)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    file = re.sub(r"chunks.*", "", SHOP.format(folder=tmp_path, rate=20), flags=re.DOTALL)
    with serving(program=NOBODY) as ask:
        page.goto(f"http://127.0.0.1:{ask.port}/new")
        page.get_by_label("Task file").fill(file)
        page.get_by_label("Start it at once").uncheck()
        page.get_by_role("button", name="Make the task").click()
        expect(page.get_by_role("heading", name="shop")).to_be_visible()
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Start")).to_be_visible()
    context.close()
