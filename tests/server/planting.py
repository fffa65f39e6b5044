"""A task, and a suite, of which there is something to see on every page; what they hold is up to the test."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.server.support import SHOP
from truecopy.metastore.events import Events
from truecopy.metastore.task_runs import Outcome, TaskRuns, begin_run, end_run
from truecopy.metastore.tasks import SUITE, TASK, TaskLine, Tasks, add_sample, say_progress
from truecopy.metastore.validation_errors import Found
from truecopy.metastore.validations import Validations
from truecopy.tasks.commands import Files
from truecopy.tasks.processes import ProcessId

CERTIFICATE = "0123456789abcdef01234567"
SUITE_FILE = "control: sqlite:///a.db\ntest: sqlite:///b.db\nqueries: [{name: q, sql: SELECT 1}]\n"


def plant_task(folder: Path, text: str, name: str = "shop", errors: int = 3) -> None:
    """A task that has copied and replicated, was verified, and has errors; `text` stands wherever a text can."""
    line = Tasks().add(
        TaskLine(name, TASK, SHOP.format(name=name, folder=folder), message=text, made_by="ada")
    )
    runs = TaskRuns()
    tables = {text: {**_TABLE, "version": {"position": text, "committed_at": _MOMENT}}}
    with runs._engine.begin() as connection:
        for lag in (0.5, 3.0, 1.0):
            progress = {**_PROGRESS, "lag_seconds": lag, "waits": text, "tables": tables}
            say_progress(connection, line, progress)
            add_sample(connection, line, progress)
            time.sleep(0.001)
    Events().tell(name, "state", text, run=1)
    differing = {
        "source_table": text,
        "target_table": text,
        "kind": "differs",
        "key": {text: text},
        "columns": [text],
        "source": {text: text + "a"},
        "target": {text: text + "b"},
    }
    missing = {"source_table": text, "target_table": text, "kind": "missing", "key": {text: None}}
    structure = [{"kind": "x", "column": text, "message": text}]
    table = {**_VERDICT, "source": text, "target": text, "structure": structure}
    result = {"verdict": "different", "tables": [table]}
    end(
        name,
        TASK,
        "verify",
        Outcome(1, text, result, [differing, missing], [(_certificate(text), "")]),
    )
    end(name, TASK, "rehearse", Outcome(3, text, {"state": "rolled-back", "reason": text}))
    store = Validations()
    epoch = store.claim(name, "full", {}).epoch
    found = [
        Found(f"row {n}", text, kind="differs", key={text: str(n)}, columns=[text],
              source={text: f"{text}{n}"}, target={text: None})
        for n in range(errors)
    ]  # fmt: skip
    store.store(name, epoch, {}, {}, (), (), found, caught_up=True)


def plant_suite(text: str, name: str = "suite") -> None:
    """A suite whose last run found a difference and a failure."""
    Tasks().add(TaskLine(name, SUITE, SUITE_FILE + f"# {text}\n", "queries", made_by="ada"))
    side = {
        "endpoint": text, "setup": [text], "sql": text, "seconds": 0.5, "cpu_seconds": None,
        "memory_bytes": None, "rows": 3, "schema": {text: text}, "plan": text, "banked": True,
    }  # fmt: skip
    failed = {
        "suite": text, "name": text, "type": "SELECT", "repetition": 1, "status": "FAILED",
        "match": "COLUMN_MISMATCH", "skipped_reason": None, "detail": text, "determinism": None,
        "resolved_by": None, "regression": None, "exact": None, "control": side, "test": side,
        "failures": [{"kind": "OTHER", "code": "", "stage": text, "attempt": 1, "message": text}],
        "columns": [{"name": text, "match": False, "reason": text, "control": {}, "test": {}}],
        "differences": [{"kind": "differs", "key": {text: text}, "columns": [text],
                         "control": {text: text + "a"}, "test": {text: text + "b"}}],
        "seconds": 1.0,
    }  # fmt: skip
    skipped = {**failed, "status": "SKIPPED", "match": "NOT_COMPARED", "control": None, "test": None,
               "skipped_reason": "SYNTAX_ERROR", "differences": []}  # fmt: skip
    statuses = {"queries": 2, "statuses": {"FAILED": 1, "SKIPPED": 1}}
    end(name, SUITE, "queries", Outcome(1, text, statuses, [failed, skipped]))


def end(name: str, task_kind: str, kind: str, outcome: Outcome) -> int:
    """A run that has ended, with a log."""
    runs = TaskRuns()
    number = runs.ask(name, task_kind, kind, "ada")
    run = runs.find(number)
    assert run is not None
    with runs._engine.begin() as connection:
        here = ProcessId.of(1)
        begin_run(connection, number, here.machine, here.pid, here.began)
        end_run(connection, run, outcome)
    Files.of(name, number).log.write_text(f"said: {outcome.message}\n")
    return number


def _certificate(text: str) -> dict[str, Any]:
    side = {"endpoint": text, "position_before": text, "position_after": None}
    digest = {"count": 3, "sum": text}
    table = {**_VERDICT, "source": text, "target": text, "chunks": 1, "sampled": False,
             "key": [text], "columns": {text: text}, "ignored_columns": [text], "reason": text,
             "source_digest": digest, "target_digest": digest}  # fmt: skip
    return {
        "id": CERTIFICATE, "verdict": "different", "definition": text, "started_at": _MOMENT,
        "finished_at": _MOMENT, "source": side, "target": side, "tables": [table],
        "not_seen": [text], "cutover": {text: [text]},
    }  # fmt: skip


_MOMENT = "2026-11-16T06:00:00+00:00"
_TABLE = {
    "rows_copied": 3, "rows_about": 3, "chunks": 1, "chunks_copied": 1, "changes_applied": 2,
}  # fmt: skip
_PROGRESS = {
    "phase": "replicate", "rate": 12.5, "rows_copied": 3, "rows_about": 3, "changes_applied": 2,
    "seconds_left": None,
}  # fmt: skip
_VERDICT = {
    "verdict": "different", "rows_compared": 3, "missing": 1, "extra": 0, "differing": 1,
    "unsettled": 0, "reason": "",
}  # fmt: skip
