"""SIGTERM at any instant of a run: it ends with one line that says so, and soon, whatever was at work."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.program import start
from truecopy import ending
from truecopy.model.errors import CannotFinish
from truecopy.spark import explain_spark
from truecopy.transfer.gate import Gate
from truecopy.transfer.limits import Limits

WHY = "terminated; the same command goes on where this one stopped"


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_run_says_that_it_was_terminated(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """While modules are imported, the JVM starts, rows are copied, the stream begins, and nothing happens."""
    seed = random.SystemRandom().randrange(2**32)
    record_property("seed", seed)
    dice = random.Random(seed)
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, code TEXT NOT NULL)")
        shop.executemany("INSERT INTO orders VALUES (?, ?)", [(n, f"c{n}") for n in range(5000)])
    sqlite3.connect(tmp_path / "copy.db").close()
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"task: shop\nsource: sqlite:///{tmp_path}/shop.db\ntarget: sqlite:///{tmp_path}/copy.db\n",
        encoding="utf-8",
    )
    for _ in range(5):
        run = start("run", str(file))
        time.sleep(dice.uniform(3, 10))
        run.send_signal(signal.SIGTERM)
        _, said = run.communicate(timeout=60)
        assert (run.returncode, said.splitlines()[-1]) == (3, f"truecopy: {WHY}"), f"seed {seed}"


def test_what_swallows_it_does_not_keep_the_work_going(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_asked", [])
    Gate(Limits()).before_changes()
    ending.ask(WHY)
    with pytest.raises(CannotFinish, match=WHY):
        Gate(Limits()).before_changes()
    assert str(explain_spark(RuntimeError("An error occurred while calling o1.load"))) == WHY
