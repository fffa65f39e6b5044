"""How far a transfer is: rates, versions, and what people are shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from truecopy.cli.transfer_progress import duration, progress_line, transfer_progress
from truecopy.transfer.progress import Meter, Progress, TableProgress, Version, version_of

AT = 1_700_000_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    meter = Meter(clock)
    assert meter.rate() == 0
    for _ in range(10):
        clock.now += 1
        meter.add(100)
    assert meter.rate() == 100
    clock.now += 5
    assert round(meter.rate()) == 55, "nothing for five seconds"
    clock.now += 60
    assert meter.rate() < 1, "and then for a minute"


def test_the_rate_of_a_table_that_comes_late() -> None:
    """Its first chunk took some time to come, which nobody has measured: not longer than a rate looks back."""
    clock = Clock()
    clock.now = 3600.0
    meter = Meter(clock, since=0.0)
    meter.add(1000)
    assert meter.rate() == 100
    quick = Meter(clock, since=3598.0)
    quick.add(1000)
    assert quick.rate() == 500


def test_the_version_of_a_table_is_its_own_or_the_one_that_is_furthest_behind() -> None:
    own = {"shop/t/a": ("0-1-5", 50), "shop/t/b": ("0-1-9", 90)}
    assert version_of("a", own) == Version("0-1-5", 50)
    assert version_of("c", own) is None
    assert version_of("x", {"shop/t/t/x": ("0-1-5", 50)}) is None, "that is the table t/x"
    slices = {"shop/s/0": ("0-1-7", 70), "shop/s/63": ("0-1-6", 60), "shop/t/b": ("0-1-9", 90)}
    assert version_of("a", slices) == Version("0-1-6", 60)
    assert version_of("a", {"shop": ("0-1-8", 80)}) == Version("0-1-8", 80)


def test_progress_as_json() -> None:
    tables = {
        "shop.a": TableProgress(100, 90, 2, 2, 7, Version("0-1-5", AT)),
        "shop.b": TableProgress(50, 300, 4, 1, 0, Version("0-1-4", AT - 2_000_000), 25.0),
    }
    progress = Progress("shop", "snapshot", 3, rate=25.04, seconds_left=10.0, tables=tables)
    found = json.loads(json.dumps(progress.plain()))
    assert (found["rows_copied"], found["rows_about"]) == (150, 400), "a is complete, with 100 rows"
    assert (found["rate"], found["seconds_left"], found["lag_seconds"]) == (25.0, 10.0, None)
    assert found["waits"] is None
    assert found["tables"]["shop.a"]["version"] == {
        "position": "0-1-5",
        "committed_at": "2023-11-14T22:13:20.000+00:00",
    }
    behind = replace(progress, lag_seconds=0.5).plain()["tables"]
    assert [behind[name]["rate"] for name in tables] == [0.0, 25.0]
    assert [behind[name]["seconds_left"] for name in tables] == [None, 10.0]
    assert [behind[name]["lag_seconds"] for name in tables] == [0.5, 2.5]
    assert found["tables"]["shop.b"]["lag_seconds"] is None, "no driver tells"
    assert progress_line(progress) == "150 of about 400 rows (37 %), 25/s, 10 s left"


def test_lines_for_a_log_come_when_something_happens() -> None:
    out = io.StringIO()
    copying = Progress("shop", "snapshot", 1, rate=10, tables={"t": TableProgress(10, 100, 2, 1)})
    paused = Progress("shop", "snapshot", 1, "paused by hand", tables=copying.tables)
    with transfer_progress(Console(file=out)) as tell:
        tell(copying)
        tell(copying)
        tell(paused)
        tell(paused)
        tell(Progress("shop", "replicate", 1, lag_seconds=0.25, tables=copying.tables))
    assert out.getvalue().splitlines() == [
        "snapshot: 10 of about 100 rows (10 %), 10/s",
        "snapshot: 10 of about 100 rows (10 %) (waits: paused by hand)",
        "replicate: 10 rows copied, 0 changes applied, lag 0.2 s",
    ]


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with transfer_progress(console) as tell:
        tell(Progress("s", "snapshot", 1, "why [not]", tables={"t": TableProgress(10, 100, 2, 1)}))
    assert "10 of about 100 rows" in out.getvalue()
    assert "why [not]" in out.getvalue()


def test_times_as_people_say_them() -> None:
    said = [duration(seconds) for seconds in (0.04, 9.96, 59, 600, 86_400, 3e5)]
    assert said == ["0.0 s", "10.0 s", "59 s", "10 min", "24 h", "3 days"]
