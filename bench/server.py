"""How long each request and each page takes, with 200 tasks and 10,000 error rows in the metastore.

    python -m bench.server [--json] [--tasks N] [--errors N]

What the figures mean: docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sqlalchemy import insert

from bench.figures import Figure, at_most, print_figures
from tests.program import PROGRAM, truecopy
from tests.server.support import make_shop
from truecopy.metastore import control
from truecopy.metastore.control import now
from truecopy.metastore.database import open_metastore
from truecopy.metastore.task_runs import Outcome, Run, begin_run, end_run, new_run
from truecopy.metastore.tasks import SUITE, TASK, TaskLine, Tasks
from truecopy.metastore.tokens import Tokens
from truecopy.metastore.validation_errors import Found
from truecopy.metastore.validations import Validations
from truecopy.tasks.commands import Files, outcome

_MOST_MS = 300.0
_TIMES = 20
_RUNS, _ITEMS, _TABLES, _SUITES = 20, 1000, 50, 5
_EVENTS = 10_000
_DAY_OF_SAMPLES = 8640
_SECOND = 1_000_000
_BUSY = "shop-000"
"""The task that everything is asked of: all error rows are its own."""
_SUITE = "queries-0"
_PAGES = (
    "/",
    "/new",
    "/tasks/{name}",
    "/tasks/{name}/runs",
    "/tasks/{name}/settings",
    "/tasks/{name}/differences",
    "/tasks/{name}/errors",
    "/tasks/{name}/errors?offset=9000",
    "/tasks/{name}/cutover",
    "/runs/{number}",
    "/certificates",
    "/certificates/{certificate}",
    "/suites",
    "/suites/{name}",
    "/new-suite",
    "/tokens",
    "/audit",
)
_MORE = ("/api/tasks/{name}/errors?offset=9000&limit=1000", "/api/runs/{number}/items?limit=1000")
_WITHOUT_END = "/api/events/stream"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.server", description="Measures the server.")
    parser.add_argument("--tasks", type=int, default=200, metavar="N", help="default: 200")
    parser.add_argument("--errors", type=int, default=10_000, metavar="N", help="default: 10,000")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecopy-bench-") as folder:
        os.environ["TRUECOPY_STATE"] = folder + "/state"
        os.environ.pop("TRUECOPY_METASTORE", None)
        print_figures(measure(Path(folder), chosen.tasks, chosen.errors), chosen.json)


def measure(folder: Path, tasks: int, errors: int) -> list[Figure]:
    say(f"filling a metastore: {tasks} tasks, {errors:,} error rows")
    run, certificate = fill(folder, tasks, errors)
    with served(folder) as port:
        document = json.loads(ask(port, "/openapi.json")[1])
        listed = [path for path, how in document["paths"].items() if "get" in how]
        figures: list[Figure] = []
        for kind, paths in (("api", [*listed, *_MORE]), ("page", _PAGES)):
            for path in paths:
                if path != _WITHOUT_END:
                    figures += figures_of(kind, path, port, run, certificate)
        return figures


def figures_of(kind: str, path: str, port: int, run: int, certificate: str) -> Iterator[Figure]:
    name = _SUITE if "/suites" in path else _BUSY
    asked = path.format(name=name, number=run, certificate=certificate)
    status, body = ask(port, asked)
    if status != 200:
        say(f"{asked}: not measured, the answer is {status}")
        return
    taken = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        ask(port, asked)
        taken.append((time.perf_counter() - begun) * 1000)
    say(
        f"{asked}: {statistics.median(taken):.1f} ms, at most {max(taken):.1f}, {len(body):,} bytes"
    )
    word = "-".join(re.findall(r"[a-z0-9]+", path.replace("/api", "", 1))) or "all"
    yield Figure(f"{kind}-{word}-p50-ms", statistics.median(taken))
    yield Figure(f"{kind}-{word}-max-ms", max(taken), at_most(_MOST_MS))


def ask(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextmanager
def served(folder: Path) -> Iterator[int]:
    log = folder / "serve.log"
    with log.open("w") as errors:
        arguments = [PROGRAM, "serve", "--port", "0", "--rate", "100000"]
        process = subprocess.Popen(arguments, stderr=errors)
    try:
        while not (found := re.search(r"http://127\.0\.0\.1:([1-9]\d*)", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


# What is in the metastore


def fill(folder: Path, tasks: int, errors: int) -> tuple[int, str]:
    """Tasks as they are after months; one of them is real. Its last verification, and the certificate of that."""
    make_shop(folder, 10_000)
    text = (
        "task: {name}\nsource: sqlite:///{folder}/source.db\ntarget: sqlite:///{folder}/target.db\n"
    )
    file = folder / "shop.yaml"
    file.write_text(text.format(name=_BUSY, folder=folder))
    ran = truecopy("run", str(file), "--until-caught-up", seconds=600)
    assert ran.code == 0, ran.err
    with closing(sqlite3.connect(folder / "target.db")) as target, target:
        target.execute("UPDATE goods SET name = name || '!' WHERE id % 10 = 0")
    verified = outcome_of("verify", "verify", "--task", str(file), "--json")
    assert len(verified.items) == _ITEMS, verified
    names = [f"shop-{number:03}" for number in range(tasks)]
    for name in names:
        line = TaskLine(name, TASK, text.format(name=name, folder=folder), progress=progress(name))
        Tasks().add(line)
    Tokens().add("ada", "admin", None)
    fill_validations(names, errors)
    fill_history(names)
    fill_suites(folder)
    return fill_runs(names, verified)


def outcome_of(kind: str, *words: str) -> Outcome:
    """What a keeper makes of what a command leaves."""
    done = truecopy(*words, seconds=600)
    files = Files.of("bench", 0)
    files.out.write_text(done.out)
    files.log.write_text(done.err)
    return outcome(kind, files, done.code)


def fill_suites(folder: Path) -> None:
    ends = f"control: sqlite:///{folder}/source.db\ntest: sqlite:///{folder}/target.db\n"
    text = ends + "queries: [{name: all, query: SELECT * FROM goods}]\n"
    file = folder / "suite.yaml"
    file.write_text(text)
    found = outcome_of("queries", "queries", "run", str(file), "--json")
    assert found.items, found
    for number in range(_SUITES):
        Tasks().add(TaskLine(f"queries-{number}", SUITE, text))
        more = replace(found, items=[*found.items] * _ITEMS)
        add_run(f"queries-{number}", SUITE, "queries", more)


def progress(name: str) -> dict[str, Any]:
    one = {"rows_copied": 1000, "rows_about": 1000, "chunks": 1, "chunks_copied": 1}
    tables = {f"table_{n}": {**one, "changes_applied": n, "version": None} for n in range(_TABLES)}
    told = {"task": name, "phase": "replicate", "epoch": 1, "rate": 10.0, "lag_seconds": 0.4}
    return {
        **told,
        "rows_copied": 50_000,
        "rows_about": 50_000,
        "changes_applied": 7,
        "tables": tables,
    }


def fill_validations(names: list[str], errors: int) -> None:
    store = Validations()
    row = {"id": "7", "name": "a thing that costs", "price": "12.50"}
    for name in names:
        epoch = store.claim(name, "full", {}).epoch
        found = [
            Found(
                f"goods {n}", "goods", False, "differs", {"id": str(n)}, ("price",), row, row, 1, 2
            )
            for n in range(errors if name == _BUSY else 0)
        ]
        store.store(name, epoch, {}, {}, (), (), found, caught_up=True)


def fill_history(names: list[str]) -> None:
    with open_metastore().begin() as connection:
        events = [
            {
                "at": now() - (_EVENTS - n) * _SECOND,
                "task": names[n % len(names)] if n % 2 else _BUSY,
                "kind": "state",
                "message": "running",
                "detail": '{"state": "running"}',
            }
            for n in range(_EVENTS)
        ]
        connection.execute(insert(control.event), events)
        audited = {"who": "ada", "role": "admin", "address": "127.0.0.1", "action": "start_task"}
        audited |= {"subject": f"/api/tasks/{_BUSY}/start", "outcome": "200"}
        connection.execute(insert(control.audit), [{**audited, "at": now()}] * _EVENTS)
        figures = {"lag_seconds": 0.4, "rate": 10.0, "rows_copied": 50_000, "changes_applied": 7}
        for name in names:
            count = _DAY_OF_SAMPLES if name == _BUSY else _DAY_OF_SAMPLES // 100
            samples = [
                {"task": name, "at": now() - n * 10 * _SECOND, **figures} for n in range(count)
            ]
            connection.execute(insert(control.sample), samples)


def fill_runs(names: list[str], verified: Outcome) -> tuple[int, str]:
    (document, page), last = verified.certificates[0], (0, "")
    for name in names:
        for number in range(_RUNS):
            mark = hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:32]
            of_one = [({**document, "id": mark}, page)] if number % 2 else []
            busy = name == _BUSY and number == _RUNS - 1
            items = verified.items if busy else ()
            found = replace(verified, items=items, certificates=of_one)
            made = add_run(name, TASK, "verify" if number % 2 else "check", found)
            if busy:
                last = made, mark
    Files.of(_BUSY, last[0]).log.write_text("compared a chunk\n" * 20_000)
    return last


def add_run(name: str, kind: str, command: str, found: Outcome) -> int:
    with open_metastore().begin() as connection:
        number = new_run(connection, name, kind, command, "ada")
        begin_run(connection, number, "", 1, "1")
        run = Run(number, name, kind, command, "ada", 0, False, "", 1, "1", 1, 0, None, "", {})
        end_run(connection, run, found)
    return number


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
