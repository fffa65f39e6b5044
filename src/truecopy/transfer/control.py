"""Between a running driver and those who ask from outside: wishes go in, a report comes out.

Both lie in the target, beside the ledger: whoever reaches the target can stop a task, wherever its driver
runs, and a driver that starts later finds the wishes that were made before. Nothing that rows depend on is
kept here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truecopy.engines.lines import Keeps, Lines

CONTROL, REPORT, COUNTS = "truecopy_control", "truecopy_report", "truecopy_count"

_CREATE = (
    f"""CREATE TABLE IF NOT EXISTS {CONTROL} (
        task VARCHAR(190) NOT NULL PRIMARY KEY, paused_at BIGINT NOT NULL, throttle TEXT NOT NULL,
        changed_at BIGINT NOT NULL)""",
    f"""CREATE TABLE IF NOT EXISTS {REPORT} (
        task VARCHAR(190) NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL, report TEXT NOT NULL,
        said_at BIGINT NOT NULL)""",
    f"""CREATE TABLE IF NOT EXISTS {COUNTS} (
        task VARCHAR(190) NOT NULL, source_table VARCHAR(190) NOT NULL, about BIGINT NOT NULL,
        changes BIGINT NOT NULL, PRIMARY KEY (task, source_table))""",
)


@dataclass(frozen=True)
class Wishes:
    """What was asked for from outside.

    Attributes:
        paused_at: Since when the task is to stand still, in microseconds; 0 when it is to go on.
        throttle: Limits that are other than in the task file, as `Limits.plain` names them.
    """

    paused_at: int = 0
    throttle: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What the driver said last, and when, in microseconds."""

    epoch: int
    said_at: int
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Count:
    """Of one source table: about how many rows there were to copy, and the changes applied since."""

    about: int = 0
    changes: int = 0


class Control:
    """The wishes and the report of one task, through one session."""

    def __init__(self, session: Keeps, task: str) -> None:
        self._lines = Lines(session)
        self._task = task

    def create(self) -> None:
        self._lines.create(_CREATE)

    # Wishes

    def wishes(self) -> Wishes:
        rows = self._lines.fetch(
            f"SELECT paused_at, throttle FROM {CONTROL} WHERE task = ?", self._task
        )
        return Wishes(int(rows[0][0]), json.loads(rows[0][1])) if rows else Wishes()

    def pause(self) -> bool:
        """Asks the task to stand still. False when that was asked for already."""
        return self._wish("paused_at = ?", "paused_at = 0", _now())

    def resume(self) -> bool:
        """Lets it go on. False when nobody had stopped it."""
        return self._wish("paused_at = ?", "paused_at > 0", 0)

    def throttle(self, changes: Mapping[str, Any]) -> None:
        """Says anew which limits are other than in the task file."""
        self._wish("throttle = ?", "1 = 1", json.dumps(dict(changes)))

    def _wish(self, change: str, where: str, value: object) -> bool:
        with self._lines.transaction():
            if not self._lines.fetch(f"SELECT 1 FROM {CONTROL} WHERE task = ?", self._task):
                self._lines.execute(
                    f"INSERT INTO {CONTROL} (task, paused_at, throttle, changed_at) VALUES (?, ?, ?, ?)",
                    *(self._task, 0, "{}", 0),
                )
            changed = self._lines.execute(
                f"UPDATE {CONTROL} SET {change}, changed_at = ? WHERE task = ? AND {where}",
                *(value, _now(), self._task),
            )
        return changed == 1

    # The report

    def report(self) -> Report | None:
        rows = self._lines.fetch(
            f"SELECT epoch, said_at, report FROM {REPORT} WHERE task = ?", self._task
        )
        return Report(int(rows[0][0]), int(rows[0][1]), json.loads(rows[0][2])) if rows else None

    def counts(self) -> dict[str, Count]:
        rows = self._lines.fetch(
            f"SELECT source_table, about, changes FROM {COUNTS} WHERE task = ?", self._task
        )
        return {table: Count(int(about), int(changes)) for table, about, changes in rows}

    def expect(self, rows: Mapping[str, int]) -> None:
        """Says about how many rows each table has; what was said first stays."""
        with self._lines.transaction():
            known = self.counts()
            for table in rows.keys() - known.keys():
                self._lines.execute(
                    f"INSERT INTO {COUNTS} (task, source_table, about, changes) VALUES (?, ?, ?, 0)",
                    *(self._task, table, rows[table]),
                )

    def say(self, document: Mapping[str, Any], changes: Mapping[str, int], epoch: int) -> None:
        """Replaces the report, unless a later driver has made one, and adds to the changes of tables."""
        with self._lines.transaction():
            text = json.dumps(dict(document), ensure_ascii=False)
            changed = self._lines.execute(
                f"UPDATE {REPORT} SET report = ?, said_at = ?, epoch = ? WHERE task = ? AND epoch <= ?",
                *(text, _now(), epoch, self._task, epoch),
            )
            if not changed and not self._lines.fetch(
                f"SELECT 1 FROM {REPORT} WHERE task = ?", self._task
            ):
                self._lines.execute(
                    f"INSERT INTO {REPORT} (task, epoch, report, said_at) VALUES (?, ?, ?, ?)",
                    *(self._task, epoch, text, _now()),
                )
            for table, more in changes.items():
                self._lines.execute(
                    f"UPDATE {COUNTS} SET changes = changes + ? WHERE task = ? AND source_table = ?",
                    *(more, self._task, table),
                )


def _now() -> int:
    return time.time_ns() // 1000
