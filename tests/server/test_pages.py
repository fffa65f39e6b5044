"""The pages over HTTP: each is there, says things as text, and does what a role may do, and no more."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.cli.commands import parse
from tests.server.planting import CERTIFICATE, SUITE_FILE, plant_suite, plant_task
from tests.server.support import SHOP, Answer, Caller, make_shop, serving
from truecopy.metastore.tasks import Tasks
from truecopy.metastore.tokens import Tokens
from truecopy.server.pages import ROUTERS

EVIL = "\"'><script>alert('x')</script>&{{ 7 * 6 }}"
NOBODY = ("/bin/sh", "-c", "exec sleep 600")
SEEN = {
    "/": "view", "/sign-in": "", "/tasks/shop": "view", "/tasks/shop/keys": "view",
    "/tasks/shop/differences": "view", "/tasks/shop/errors": "view",
    "/tasks/shop/errors?status=all": "view", "/tasks/shop/cutover": "view", "/tasks/shop/runs": "view",
    "/tasks/shop/settings": "view", "/runs/1": "view", "/runs/2": "view", "/runs/3": "view",
    "/suites": "view", "/suites/suite": "view", "/certificates": "view",
    "/certificates?task=shop": "view", f"/certificates/{CERTIFICATE}": "view",
    "/new": "admin", "/new-suite": "admin", "/tokens": "admin", "/audit": "admin",
}  # fmt: skip
"""Every page, and who may see it."""
CHANGES = {
    "/new": "admin", "/new-suite": "admin", "/tokens": "admin", "/tokens/x/remove": "admin",
    "/tasks/shop/remove": "admin", "/suites/suite/remove": "admin",
    "/tasks/shop/start": "operate", "/tasks/shop/stop": "operate", "/tasks/shop/pause": "operate",
    "/tasks/shop/resume": "operate", "/tasks/shop/throttle": "operate",
    "/tasks/shop/runs": "operate", "/tasks/shop/errors/ignore": "operate",
    "/tasks/shop/errors/repair": "operate", "/runs/1/stop": "operate",
    "/suites/suite/run": "operate", "/sign-out": "view",
}  # fmt: skip
"""Every change that a form asks for, and who may."""
ROLES = ("view", "operate", "admin")


class Elements(HTMLParser):
    """The elements of a page, its texts, and its forms."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, name: str) -> list[str]:
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


class Browser:
    """Asks for pages as a browser does: with a session, and the hidden token of the page."""

    def __init__(self, ask: Caller, token: str = "") -> None:
        self._ask = ask
        self.cookies: dict[str, str] = {}
        self.csrf = ""
        if token:
            answer = self.post("/sign-in", token=token, back="/")
            assert answer.status == 303, answer.text
            found = re.search(r'name="csrf" value="(\w+)"', self.get("/").text)
            assert found is not None
            self.csrf = found[1]

    def get(self, path: str) -> Answer:
        return self._send("GET", path, None)

    def post(self, path: str, **fields: object) -> Answer:
        given = {"csrf": self.csrf, **fields} if self.csrf else fields
        return self._send("POST", path, urlencode(given, doseq=True))

    def _send(self, method: str, path: str, body: str | None) -> Answer:
        headers = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        answer = self._ask.send(method, path, body, headers)
        for name, text in answer.cookies.items():
            if text:
                self.cookies[name] = text
            else:
                self.cookies.pop(name, None)
        return answer


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    make_shop(tmp_path)
    with serving(program=NOBODY) as ask:
        yield Browser(ask)


def test_every_page_is_there_and_shows_texts_as_text(browser: Browser, tmp_path: Path) -> None:
    plant_task(tmp_path, EVIL)
    plant_suite(EVIL)
    shown = 0
    for path in SEEN:
        answer = browser.get(path)
        assert answer.status == 200, (path, answer.text)
        assert answer.headers["content-type"].startswith("text/html"), path
        assert "'self'" in answer.headers["content-security-policy"], path
        page = Elements(answer.text)
        # Nothing of it became an element, and no page has a script, a style or a handler of its own.
        assert page.all("script", "src") == ["/static/live.js", "/static/forms.js"], path
        assert page.tags.count("script") == 2, path
        assert "style" not in page.tags, path
        assert not [one for one in page.attributes if one[1].startswith("on") or one[1] == "style"]
        assert "42" not in page.text or EVIL in page.text, path
        assert "{{" not in page.text.replace(EVIL, ""), path
        shown += EVIL in page.text
    assert shown >= 10
    page = Elements(browser.get("/tasks/shop/differences").text)
    assert "mark" in page.tags
    assert "polyline" in Elements(browser.get("/tasks/shop").text).tags
    assert browser.get("/runs/1").text.count("&lt;script&gt;") >= 2


def test_every_route_of_a_page_is_in_these_tests() -> None:
    """A page that is added must be added to the lists above, and so be held to what they hold others to."""
    listed = {path.partition("?")[0] for path in SEEN} | {*CHANGES, "/sign-in"}
    parts = {"number": "1", "how": "ignore", "certificate": CERTIFICATE}
    for router in ROUTERS:
        for route in router.routes:
            path = str(getattr(route, "path", ""))
            name = {"/suites": "suite", "/tokens": "x"}.get(path[:7], "shop")
            for part, text in {**parts, "name": name}.items():
                path = path.replace(f"{{{part}}}", text)
            assert path in listed or path.startswith("/static/"), path


@pytest.mark.parametrize("role", ROLES)
def test_a_role_sees_and_does_what_it_may(role: str, tmp_path: Path) -> None:
    make_shop(tmp_path)
    plant_task(tmp_path, "plain")
    plant_suite("plain")
    token = Tokens().add(role, role, 600)
    with serving(require_token=True, program=NOBODY) as ask:
        browser = Browser(ask, token)
        for path, needed in SEEN.items():
            allowed = not needed or ROLES.index(role) >= ROLES.index(needed)
            answer = browser.get(path)
            assert answer.status == (200 if allowed else 403), path
            if role == "view":
                buttons = [one for one in Elements(answer.text).all("form", "action") if one]
                assert set(buttons) <= {"/sign-out", "/sign-in", "/tasks/shop/errors/recheck"}, path
                assert answer.text.count("<button") <= 2, path
        for path, needed in CHANGES.items():
            if path == "/sign-out":
                continue
            answer = browser.post(path)
            assert (answer.status == 403) == (ROLES.index(role) < ROLES.index(needed)), (
                path,
                answer.status,
            )
        assert browser.post("/sign-out").status == 303
        assert browser.get("/").status == 401


def test_without_a_token_or_with_a_wrong_one_nothing_is_told(tmp_path: Path) -> None:
    make_shop(tmp_path)
    plant_task(tmp_path, "plain")
    tokens = Tokens()
    expired = tokens.add("late", "admin", -1)
    with serving(require_token=True, program=NOBODY) as ask:
        browser = Browser(ask)
        for path, needed in SEEN.items():
            answer = browser.get(path)
            assert answer.status == (401 if needed else 200), path
            assert "shop" not in answer.text.replace(f'value="{path}"', "").replace(
                f'value="{path.partition("?")[0]}"', ""
            ), path
        for path in CHANGES:
            assert browser.post(path).status == 401, path
        for wrong in (expired, "tc_wrong", "", EVIL):
            answer = browser.post("/sign-in", token=wrong, back="/tasks/shop")
            assert answer.status == 401
            assert "truecopy_session" not in answer.headers.get("set-cookie", "")
            assert "unknown or has expired" in answer.text
        browser.cookies["truecopy_session"] = "made-up"
        assert browser.get("/tasks/shop").status == 401
        known = Browser(ask, tokens.add("ada", "admin", 600))
        assert known.get("/tasks/shop").status == 200
        tokens.remove("ada")
        assert known.get("/tasks/shop").status == 401
        for back in ("//evil.example", "https://evil.example", "/\\evil.example", "evil"):
            answer = browser.post("/sign-in", token=tokens.add("bob", "view", 60), back=back)
            assert answer.headers["location"] == "/"
            tokens.remove("bob")


def test_a_change_needs_the_token_of_its_page(tmp_path: Path) -> None:
    make_shop(tmp_path)
    plant_task(tmp_path, "plain")
    with serving(require_token=True, program=NOBODY) as ask:
        browser = Browser(ask, Tokens().add("ada", "admin", 600))
        right = browser.csrf
        for wrong in ("", "0" * 32, Browser(ask, Tokens().add("bob", "admin", 600)).csrf):
            browser.csrf = wrong
            for path in CHANGES:
                answer = browser.post(path)
                assert answer.status == 403, path
                assert "X-Truecopy-CSRF" in answer.text
        line = Tasks().find("shop")
        assert line is not None
        assert line.wanted == "stopped"
        browser.csrf = right
        assert browser.post("/tasks/shop/start").status == 303


def test_a_form_of_another_site_changes_nothing(browser: Browser, tmp_path: Path) -> None:
    plant_task(tmp_path, "plain")
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = browser._ask.send("POST", "/tasks/shop/start", "", headers)
        assert answer.status == 403


def test_a_task_is_made_from_the_page(browser: Browser, tmp_path: Path) -> None:
    file = SHOP.format(name="shop", folder=tmp_path)
    looked = browser.post("/new", file=file, look="yes")
    assert looked.status == 200
    assert "ready" in Elements(looked.text).text
    assert Tasks().all() == []
    wrong = browser.post("/new", file=file + "colour: red\n")
    assert wrong.status == 400
    assert "colour" in Elements(wrong.text).text
    assert file in Elements(wrong.text).text
    nowhere = browser.post("/new", file=file.replace("source.db", "nowhere.db"))
    assert nowhere.status == 400
    assert "nowhere.db" in nowhere.text
    assert browser.post("/new", file="").status == 400
    made = browser.post("/new", file=file.replace("\n", "\r\n"))
    assert (made.status, made.headers["location"]) == (303, "/tasks/shop")
    shown = browser.get("/tasks/shop")
    assert "The task shop was made." in shown.text
    assert "The task shop was made." not in browser.get("/tasks/shop").text
    again = browser.post("/new", file=file)
    assert again.status == 400
    assert "already" in again.text
    line = Tasks().find("shop")
    assert line is not None
    assert line.text == file


def test_a_task_is_steered_from_its_page(browser: Browser, tmp_path: Path) -> None:
    browser.post("/new", file=SHOP.format(name="shop", folder=tmp_path))
    for word, said in (("pause", "shop: paused"), ("resume", "shop: goes on")):
        assert browser.post(f"/tasks/shop/{word}").status == 303
        assert said in browser.get("/tasks/shop").text
    assert browser.post("/tasks/shop/throttle", rate="100", hours="22:00-06:00").status == 303
    assert "changed while it ran" in browser.get("/tasks/shop/settings").text
    assert browser.post("/tasks/shop/throttle", rate="soon").status == 400
    assert browser.post("/tasks/shop/runs", kind="verify").headers["location"] == "/tasks/shop"
    assert browser.post("/tasks/shop/runs", kind="nonsense").status == 400
    assert browser.post("/tasks/shop/remove", confirm="other").status == 400
    missing = browser.get("/tasks/nothing")
    assert missing.status == 404
    assert "there is no task nothing" in missing.text
    for path in ("/tasks/nothing", "/runs/77", "/suites/none", "/certificates/00000000"):
        back = re.search(r'href="([^"]+)">Back<', browser.get(path).text)
        assert back is not None
        assert browser.get(back[1]).status == 200, path
    assert browser.get("/tasks/%3Cscript%3E").status == 422
    assert browser.get("/nowhere").status == 404
    assert browser.get("/static/nothing.js").status == 404
    assert browser.get("/tasks/shop/start").status == 405


def test_a_cutover_is_guarded(browser: Browser, tmp_path: Path) -> None:
    browser.post("/new", file=SHOP.format(name="shop", folder=tmp_path))
    page = browser.get("/tasks/shop/cutover")
    assert 'name="doubts"' in page.text
    assert "truecopy cutover shop.yaml" in page.text
    assert browser.post("/tasks/shop/runs", kind="cutover").status == 400
    assert browser.post("/tasks/shop/runs", kind="cutover", confirm="other").status == 400
    doubtful = browser.post("/tasks/shop/runs", kind="cutover", confirm="shop", doubts="yes")
    assert doubtful.status == 400
    answer = browser.post(
        "/tasks/shop/runs", kind="cutover", confirm="shop", doubts="yes", anyway="yes"
    )
    assert answer.headers["location"] == "/tasks/shop/cutover"


def test_errors_are_settled_in_pages(browser: Browser, tmp_path: Path) -> None:
    plant_task(tmp_path, "plain", errors=120)
    first = browser.get("/tasks/shop/errors")
    assert len(Elements(first.text).all("input", "value")) >= 50
    assert "1 to 50 of 120 errors" in first.text
    last = browser.get("/tasks/shop/errors?status=new&offset=100")
    assert "101 to 120 of 120 errors" in last.text
    assert browser.post("/tasks/shop/errors/ignore", id=[1, 2]).status == 303
    assert "2 errors ignored." in browser.get("/tasks/shop/errors").text
    assert browser.post("/tasks/shop/errors/resolve", id="3").status == 303
    assert browser.post("/tasks/shop/errors/recheck", all="yes").status == 303
    assert browser.post("/tasks/shop/errors/ignore").status == 400
    assert browser.post("/tasks/shop/errors/repair").status == 400
    counts = browser.get("/tasks/shop/errors").text
    for word in ("new (117)", "ignored (2)", "resolved (1)"):
        assert word in counts


def test_suites_and_tokens_are_made_and_removed(browser: Browser) -> None:
    wrong = browser.post("/new-suite", name="s", file="control: sqlite:///a.db\n")
    assert wrong.status == 400
    assert browser.post("/new-suite", name="<b>", file=SUITE_FILE).status == 400
    assert browser.post("/new-suite", name="s", file=SUITE_FILE).status == 303
    assert "It was not run so far." in browser.get("/suites/s").text
    assert browser.post("/suites/s/remove", confirm="s").status == 303
    assert browser.get("/suites/s").status == 404
    made = browser.post("/tokens", name="ada", role="view", days="1")
    token = re.search(r"tc_[\w-]+", made.text)
    assert token is not None
    assert "tc_" not in browser.get("/tokens").text
    assert browser.post("/tokens", name="ada", role="view", days="1").status == 400
    assert browser.post("/tokens", name="bob", role="king", days="1").status == 400
    assert Browser(browser._ask, token[0]).get("/").status == 200
    assert browser.post("/tokens/ada/remove").status == 303
    assert browser.post("/tokens/ada/remove").status == 404
    audit = Elements(browser.get("/audit").text).text
    for word in ("make token", "remove token", "make suite", "log in"):
        assert word in audit


def test_every_button_shows_its_command(browser: Browser, tmp_path: Path) -> None:
    plant_task(tmp_path, "plain")
    plant_suite("plain")
    for path in SEEN:
        page = browser.get(path).text
        for form in re.findall(r"<form.*?</form>", page, re.DOTALL):
            if "/sign-out" not in form and "/sign-in" not in form and "<button" in form:
                twins = re.findall(r'class="twin"[^>]*>truecopy ([^<]+)<', form)
                assert len(twins) == form.count("<button"), (path, form)
                for twin in twins:
                    parse(shlex.split(re.sub(r"\bN\b|ID…", "1", html.unescape(twin))))


def test_a_page_that_is_open_does_not_keep_the_server_from_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import http.client

    make_shop(tmp_path)
    with serving(program=NOBODY) as ask:
        connection = http.client.HTTPConnection("127.0.0.1", ask.port, timeout=60)
        connection.request("GET", "/api/events/stream")
        stream = connection.getresponse()
        assert stream.readline().startswith(b"event")
    assert stream.read() is not None  # it has an end
    connection.close()
    assert "Cancel" not in caplog.text
