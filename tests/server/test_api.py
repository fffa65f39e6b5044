"""The API over HTTP: who may do what, what is refused, and that nothing is told that is secret."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.support import SHOP, Caller, make_shop, serving
from truecopy.metastore.task_runs import Outcome, TaskRuns, end_run
from truecopy.metastore.tokens import Tokens
from truecopy.metastore.validation_errors import Found
from truecopy.metastore.validations import Validations

EVIL = "<script>alert('x')</script>\"; DROP TABLE task; --"
NOBODY = ("/bin/sh", "-c", "exec sleep 600")
"""A command that stands for a task where only what surrounds it is looked at."""


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Caller]:
    make_shop(tmp_path)
    with serving(program=NOBODY) as caller:
        yield caller


def shop(folder: Path, name: str = "shop") -> str:
    return SHOP.format(name=name, folder=folder)


def test_a_task_is_made_shown_and_deleted(ask: Caller, tmp_path: Path) -> None:
    made = ask("POST", "/api/tasks", {"file": shop(tmp_path)})
    assert made.status == 201, made.text
    assert made.document["check"]["verdict"] == "ready"
    assert [one["name"] for one in ask("GET", "/api/tasks").document] == ["shop"]
    shown = ask("GET", "/api/tasks/shop").document
    assert shown["state"] == "stopped"
    assert shown["file"] == shop(tmp_path)
    assert ask("POST", "/api/tasks", {"file": shop(tmp_path)}).status == 409
    status = ask("GET", "/api/tasks/shop/status").document
    assert status["legs"][0]["state"] == "not begun"
    assert status["legs"][0]["guarantee"]["text"]
    assert ask("GET", "/api/tasks/shop/cutover").document["legs"][0]["cutover"] is None
    assert ask("DELETE", "/api/tasks/shop").status == 200
    assert ask("GET", "/api/tasks/shop").status == 404
    actions = [line["action"] for line in ask("GET", "/api/audit").document]
    assert actions == ["delete_task", "make_task", "make_task"]
    assert "task_run" not in ask("GET", "/metrics").text
    assert ask("GET", "/healthz").document["status"] == "ok"


def test_a_task_that_cannot_run_is_refused_with_what_to_mend(ask: Caller, tmp_path: Path) -> None:
    wrong = shop(tmp_path).replace("source.db", "nowhere.db")
    refused = ask("POST", "/api/tasks", {"file": wrong})
    assert refused.status in (400, 409)
    assert "nowhere.db" in refused.text
    unknown = ask("POST", "/api/tasks", {"file": shop(tmp_path) + "colour: red\n"})
    assert unknown.status == 400
    assert "colour" in unknown.document["problems"][0]
    assert ask("POST", "/api/tasks", {"file": "{"}).status == 400
    assert ask("GET", "/api/tasks").document == []


def test_no_secret_is_taken_or_told(ask: Caller, tmp_path: Path) -> None:
    for line in (
        "source: mariadb://root:hunter2@127.0.0.1/x",
        "source: {url: 'mariadb://root@127.0.0.1/x', password: hunter2}",
        "source: 'mariadb://root@127.0.0.1/x?ssl_key_password=hunter2'",
    ):
        refused = ask("POST", "/api/tasks", {"file": f"task: shop\n{line}\ntarget: sqlite:///x.db"})
        assert refused.status == 400
        assert "a password in the file" in refused.text
        assert "hunter2" not in refused.text
    suite = "control: sqlite:///a.db\ntest: sqlite:///b.db\nqueries: [{name: q, password: hunter2}]"
    refused = ask("POST", "/api/suites", {"name": "s", "file": suite})
    assert refused.status == 400
    assert "a password in the file" in refused.text
    spark = shop(tmp_path) + "spark: {settings: {spark.hadoop.fs.s3a.secret.key: hunter2}}\n"
    assert ask("POST", "/api/tasks", {"file": spark}).status == 400
    for more in (
        "transformers: {orders: {mask: {total: {key: hunter2}}}}\n",
        "throttle: {replicas: [{url: 'mariadb://root@127.0.0.1/x', password: hunter2}]}\n",
    ):
        refused = ask("POST", "/api/tasks", {"file": shop(tmp_path) + more})
        assert refused.status == 400, refused.text
        assert "hunter2" not in refused.text
    hooked = shop(tmp_path) + "webhook: http://127.0.0.1:9/hunter2\n"
    made = ask("POST", "/api/tasks", {"file": hooked})
    assert made.status == 201
    assert "hunter2" not in made.text
    assert "hunter2" not in ask("GET", "/api/tasks/shop").text


def test_roles(tmp_path: Path) -> None:
    make_shop(tmp_path)
    tokens = Tokens()
    texts = {role: tokens.add(role, role, 60) for role in ("view", "operate", "admin")}
    expired = tokens.add("late", "admin", -1)
    requests = {
        "view": ("GET", "/api/tasks", None),
        "operate": ("POST", "/api/tasks/shop/stop", None),
        "admin": ("POST", "/api/tasks", {"file": shop(tmp_path), "check": False}),
    }
    with serving(require_token=True, program=NOBODY) as ask:
        bearer = {role: f"Bearer {text}" for role, text in texts.items()}
        ask(*requests["admin"], Authorization=bearer["admin"])
        for needed, (method, path, document) in requests.items():
            for role in ("view", "operate", "admin"):
                status = ask(method, path, document, Authorization=bearer[role]).status
                allowed = ("view", "operate", "admin").index(role) >= (
                    "view", "operate", "admin"
                ).index(needed)  # fmt: skip
                assert (status not in (401, 403)) == allowed, (needed, role, status)
        for wrong in (f"Bearer {expired}", "Bearer tc_x", "Basic eDp5", "Bearer "):
            answer = ask("GET", "/api/tasks", Authorization=wrong)
            assert answer.status == 401
            assert "shop" not in answer.text
        assert ask("GET", "/api/tasks").status == 401
        assert ask("GET", "/metrics").status == 401
        assert ask("GET", "/healthz").status == 200
        tokens.remove("view")
        assert ask("GET", "/api/tasks", Authorization=bearer["view"]).status == 401


def test_wrong_tokens_are_slowed_down(ask: Caller) -> None:
    statuses = [ask("GET", "/api/tasks", Authorization="Bearer no").status for _ in range(12)]
    assert statuses[0] == 401
    assert statuses[-1] == 429


def test_pages_of_other_sites_change_nothing(ask: Caller) -> None:
    here = f"http://127.0.0.1:{ask.port}"
    assert ask("POST", "/api/tasks/x/stop", Origin=here).status == 404
    assert ask("POST", "/api/tasks/x/stop", Origin="http://evil.example").status == 403
    assert ask("POST", "/api/tasks/x/stop", Origin="null").status == 403
    assert ask("POST", "/api/tasks/x/stop", Sec_Fetch_Site="cross-site").status == 403
    assert ask("GET", "/api/tasks", Host="evil.example").status == 421
    assert ask("GET", "/api/tasks", Host=f"localhost:{ask.port}").status == 200
    # Behind a proxy everybody comes from this machine.
    assert ask("GET", "/api/tasks", X_Forwarded_For="203.0.113.9").status == 401


def test_a_browser_has_a_session_and_shows_that_its_page_asks(ask: Caller) -> None:
    text = Tokens().add("ada", "operate", 60)
    answer = ask("POST", "/api/session", {"token": text})
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert text not in cookie
    session: dict[str, str] = {"Cookie": cookie.partition(";")[0]}
    shown = ask("GET", "/api/session", **session).document
    assert (shown["name"], shown["role"]) == ("ada", "operate")
    assert ask("POST", "/api/tasks/x/stop", **session).status == 403
    csrf = {"X-Truecopy-CSRF": shown["csrf"]}
    assert ask("POST", "/api/tasks/x/stop", **session, **csrf).status == 404
    assert ask("DELETE", "/api/session", **session, **csrf).status == 204
    assert ask("GET", "/api/session", **session).document["name"] == "local"


def test_requests_have_limits(tmp_path: Path) -> None:
    with serving(body=2000, rate=1, burst=20) as ask:
        assert ask("POST", "/api/check", {"file": "x" * 3000}).status == 413
        announced = ask("POST", "/api/check", None, Content_Length="99999999")
        assert announced.status == 413
        statuses = [ask("GET", "/healthz").status for _ in range(30)]
        assert statuses[0] == 200
        assert statuses[-1] == 429


def test_names_and_values_are_only_text(ask: Caller, tmp_path: Path) -> None:
    for name in (EVIL, "..", "a/b", "%00", "é"):
        assert ask("POST", "/api/suites", {"name": name, "file": "x"}).status == 422
    assert ask("POST", "/api/tasks", {"file": shop(tmp_path, f"'{EVIL}'")}).status == 400
    assert ask("GET", "/api/tasks/%3Cscript%3E").status == 422
    assert ask("GET", "/api/tasks/..%2f..%2fetc%2fpasswd").status in (404, 422)
    ask("POST", "/api/tasks", {"file": shop(tmp_path)})
    store = Validations()
    epoch = store.claim("shop", "full", {}).epoch
    found = Found(
        "row", EVIL, kind="differs", key={EVIL: EVIL}, columns=[EVIL], source={EVIL: None}
    )
    store.store("shop", epoch, {}, {}, (), (), [found], caught_up=True)
    answer = ask("GET", "/api/tasks/shop/errors")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.document["errors"][0]["key"] == {EVIL: EVIL}
    metrics = ask("GET", "/metrics").text
    assert 'truecopy_validate_errors{task="shop",status="new"} 1' in metrics
    assert 'truecopy_task_state{task="shop",state="stopped"} 1' in metrics


def test_errors_are_settled(ask: Caller, tmp_path: Path) -> None:
    ask("POST", "/api/tasks", {"file": shop(tmp_path)})
    store = Validations()
    epoch = store.claim("shop", "full", {}).epoch
    found = [Found(f"row {n}", "goods", kind="missing", key={"id": str(n)}) for n in range(5)]
    store.store("shop", epoch, {}, {}, (), (), found, caught_up=True)
    page = ask("GET", "/api/tasks/shop/errors?offset=1&limit=2").document
    assert [one["id"] for one in page["errors"]] == [2, 3]
    path = "/api/tasks/shop/errors"
    assert ask("POST", f"{path}/ignore", {"ids": [1, 2]}).document == {"count": 2}
    assert ask("POST", f"{path}/resolve", {"ids": [3]}).document == {"count": 1}
    assert ask("POST", f"{path}/recheck", {"all": True}).document == {"count": 4}
    assert ask("POST", f"{path}/ignore", {}).status == 400
    counts = ask("GET", f"{path}?status=new").document["counts"]
    assert counts == {"new": 2, "ignored": 2, "resolved": 1}


def test_results_of_runs(ask: Caller, tmp_path: Path) -> None:
    ask("POST", "/api/tasks", {"file": shop(tmp_path)})
    assert ask("GET", "/api/tasks/shop/verification").status == 404
    runs = TaskRuns()
    number = runs.ask("shop", "task", "verify", "ada")
    run = runs.find(number)
    assert run is not None
    certificate = {"id": "0123456789abcdef", "verdict": "different"}
    items = [{"kind": "missing", "key": {"id": str(n)}} for n in range(7)]
    result = {"verdict": "different", "certificate": "0123456789abcdef"}
    with runs._engine.begin() as connection:
        end_run(connection, run, Outcome(1, "", result, items, [(certificate, "<html></html>")]))
    assert ask("GET", "/api/tasks/shop/verification").document["items"] == 7
    page = ask("GET", f"/api/runs/{number}/items?offset=5").document
    assert [one["key"]["id"] for one in page["items"]] == ["5", "6"]
    assert ask("GET", "/api/tasks").document[0]["verdict"] == "different"
    assert [one["id"] for one in ask("GET", "/api/certificates").document] == ["0123456789abcdef"]
    shown = ask("GET", "/api/certificates/0123456789abcdef/page")
    assert shown.headers["content-type"].startswith("text/html")
    assert ask("POST", "/api/tasks/shop/runs", {"kind": "cutover"}).status == 400


def test_pausing_reaches_the_target(ask: Caller, tmp_path: Path) -> None:
    ask("POST", "/api/tasks", {"file": shop(tmp_path)})
    assert ask("POST", "/api/tasks/shop/pause").document["said"] == ["shop: paused"]
    assert ask("GET", "/api/tasks/shop/status").document["legs"][0]["state"] == "paused"
    assert ask("POST", "/api/tasks/shop/resume").document["said"] == ["shop: goes on"]
    slowed = ask("POST", "/api/tasks/shop/throttle", {"rate": 100, "hours": ["22:00-06:00"]})
    assert slowed.document[0]["changed"] == ["hours", "rate"]
    assert slowed.document[0]["limits"]["rate"] == 100
    assert ask("POST", "/api/tasks/shop/throttle", {"hours": ["soon"]}).status == 400
    assert ask("POST", "/api/tasks/shop/throttle", {"timezone": "Nowhere/Land"}).status == 400
    assert ask("POST", "/api/tasks/shop/throttle", {"reset": True}).document[0]["changed"] == []


def test_events_are_streamed(ask: Caller, tmp_path: Path) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", ask.port, timeout=30)
    connection.request("GET", "/api/events/stream", headers={"Last-Event-ID": "0"})
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    ask("POST", "/api/tasks", {"file": shop(tmp_path), "check": False})
    lines: list[str] = []
    while not any("made by local" in line for line in lines):
        lines.append(answer.readline().decode())
    assert "id: 1\n" in lines
    connection.close()


def test_another_address_needs_tokens_that_are_there(tmp_path: Path) -> None:
    from tests.program import truecopy

    ended = truecopy("serve", "--host", "0.0.0.0", "--port", "0")
    assert ended.code == 2
    assert "truecopy serve token add" in ended.err
