"""Traces: they arrive at a collector, from the request that asks for a task to the batches of its run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.program import truecopy
from tests.server.support import SHOP, Caller, count, make_shop, wait_until
from tests.server.test_keeping import served_by_the_program

_WITHIN = """
from truecopy.telemetry import Steps, apart, span, traceparent
with span("cutover", task="shop"), Steps(task="shop") as steps:
    steps.enter("holding")
    steps.enter("held")
    batch = apart("batch", lambda: None)
batch()
try:
    with span("run"):
        print(traceparent())
        raise ValueError("postgresql://ada:hunter2@db/shop")
except ValueError:
    pass
"""
_NOTHING = """
import sys
from truecopy.telemetry import Steps, apart, span, traceparent
with span("run"), Steps() as steps:
    steps.enter("held")
    assert apart("batch", len) is len
    assert traceparent() == ""
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


@dataclass
class Collector:
    """What arrived so far."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Span:
        """The first span of a name, once it has arrived."""
        found: list[Span] = wait_until(lambda: self.named(name), 120)
        return found[0]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector, and an environment in which new processes know of it."""
    with _collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        yield found


@contextmanager
def _collecting() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                found.bodies.append(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _attributes(span: Span) -> dict[str, str | int]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@pytest.mark.long
def test_a_request_is_followed_into_the_process_that_it_asked_for(
    tmp_path: Path, collector: Collector
) -> None:
    make_shop(tmp_path, 10)
    more = "spark: {master: 'local[1]'}\ncutover: {lock: none, reverse: false, max-lag: 60, max-downtime: 300}\n"
    file = SHOP.format(name="shop", folder=tmp_path) + more
    with served_by_the_program(tmp_path) as (_, url):
        ask = Caller(int(url.rpartition(":")[2]))
        ask("GET", "/api/tasks?token=hunter2", authorization="Bearer hunter2")
        assert ask("POST", "/api/tasks", {"file": file, "start": True}).status == 201
        wait_until(lambda: count(tmp_path) == 10, 120)
        replay = collector.one("replay")
        assert truecopy("task", "stop", "shop", "--server", url).code == 0
        command = collector.one("truecopy run")
        ask("POST", "/api/tasks/shop/runs", {"kind": "verify"})
        verification = collector.one("truecopy verify")
        ask("POST", "/api/tasks/shop/runs", {"kind": "cutover", "confirm": "shop"})
        cutover = collector.one("cutover")
    asked = collector.one("POST /api/tasks")
    run, snapshot = collector.one("run"), collector.one("snapshot")
    assert command.parent_span_id == asked.span_id
    assert run.parent_span_id == command.span_id
    assert {replay.parent_span_id, snapshot.parent_span_id} == {run.span_id}
    checks = {one.parent_span_id for one in collector.named("check")}
    assert {command.span_id, asked.span_id} <= checks
    assert {one.trace_id for one in (command, run, replay, snapshot)} == {asked.trace_id}
    wanted = collector.one("POST /api/tasks/{name}/runs")
    assert verification.parent_span_id == wanted.span_id
    assert collector.one("verify").parent_span_id == verification.span_id
    steps = {one.name for one in collector.spans if one.parent_span_id == cutover.span_id}
    assert steps >= {
        "catching-up",
        "held",
        "drained",
        "verified",
        "certified",
        "switching",
        "switched",
    }
    assert _attributes(wanted) == {
        "http.request.method": "POST",
        "http.route": "/api/tasks/{name}/runs",
        "http.response.status_code": 202,
    }
    assert _attributes(snapshot) == {"truecopy.task": "shop"}
    assert not [body for body in collector.bodies if b"hunter2" in body]


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_steps_follow_each_other_and_errors_are_told_by_their_kind_alone(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", f"00-{'ab' * 16}-{'cd' * 8}-01")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    carried = _run(_WITHIN)
    cutover, batch, run = (collector.one(name) for name in ("cutover", "batch", "run"))
    holding, held = collector.one("holding"), collector.one("held")
    assert cutover.trace_id == b"\xab" * 16
    assert cutover.parent_span_id == b"\xcd" * 8
    assert {holding.parent_span_id, held.parent_span_id} == {cutover.span_id}
    assert holding.end_time_unix_nano <= held.start_time_unix_nano
    assert held.end_time_unix_nano <= cutover.end_time_unix_nano
    assert batch.trace_id != cutover.trace_id
    assert [link.span_id for link in batch.links] == [held.span_id]
    assert carried == f"00-{'ab' * 16}-{run.span_id.hex()}-01"
    assert run.status.code == run.status.STATUS_CODE_ERROR
    assert _attributes(run) == {"error.type": "ValueError"}
    assert b"ours" in collector.bodies[0]
    assert not [body for body in collector.bodies if b"hunter2" in body]


def test_nothing_is_loaded_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ
    _run(_NOTHING)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    _run(_NOTHING)
