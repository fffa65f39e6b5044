"""A table as of a point, into any target.

The rows are cut into slices by their keys. Each slice is written in one transaction, together with a line that says
so; the same command, after whatever ended it, writes the slices that are missing, of the same point.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from truecopy.changelog.facts import Base, bare_name
from truecopy.changelog.loading import (
    RowTarget,
    described,
    find_or_make,
    is_empty,
    row_target,
    split_name,
)
from truecopy.changelog.log import Log
from truecopy.changelog.opening import CHANGES, open_log
from truecopy.changelog.packing import Settling
from truecopy.changelog.points import PointInLog, find_point
from truecopy.changelog.state import TableLog
from truecopy.engines import pool
from truecopy.engines.lines import Lines
from truecopy.engines.protocols import Session
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.spark import explained, is_local
from truecopy.spark import session as spark_session

LINES = "truecopy_restore"
_CREATE = f"""CREATE TABLE IF NOT EXISTS {LINES} (
    restore VARCHAR(64) NOT NULL, slice INTEGER NOT NULL, held BIGINT NOT NULL, note TEXT,
    PRIMARY KEY (restore, slice))"""
_HEAD = -1
"""The line that says what is restored."""


@dataclass(frozen=True)
class RestoreReport:
    """What a restore has written."""

    table: str
    target: str
    rows: int


@dataclass(frozen=True)
class LoadingSlices:
    """What executors need to write slices; plain values."""

    restore: str
    endpoint: Endpoint
    target: RowTarget

    def __call__(self, number: int, settling: Settling, events: pa.Table) -> Iterator[int]:
        """Writes the rows of a slice; gives how many."""
        rows = settling.rows(events).column("row").combine_chunks()
        with pool.lease(self.endpoint) as session:
            yield _note_slice(session, self.restore, number, self.target, rows)


def restore(
    place: str | Path,
    table: str,
    at: str,
    to: str,
    *,
    name: str = "",
    log: str = CHANGES,
    master: str | None = None,
) -> RestoreReport:
    """Writes a table as it was at a point; the target's table must be empty, or is made.

    Args:
        place: A folder, or the URL of a database that holds the log.
        table: As the log has it.
        at: The point.
        to: The URL of the target.
        name: The table's name there; the same by default.
        log: The name of a log in a database.
        master: Of Spark.
    """
    endpoint = parse_endpoint(to)
    if endpoint.scheme in ("sqlite", "duckdb") and master and not is_local(master):
        raise UsageError(
            f"{endpoint} is a file of this machine, which the executors of a cluster cannot open"
        )
    with open_log(place, log) as store, explained():
        found = store.find_table(table)
        return _Restore(store, found, at, endpoint, name or bare_name(found), master).run()


class _Restore:
    def __init__(
        self, store: Log, table: str, at: str, endpoint: Endpoint, name: str, master: str | None
    ) -> None:
        self._store = store
        self._table = table
        self._at = at
        self._endpoint = endpoint
        self._name = name
        self._spark = spark_session(master)
        words = (store.word("id"), table, at, name)
        self._id = hashlib.sha256(repr(words).encode()).hexdigest()[:32]

    def run(self) -> RestoreReport:
        with pool.lease(self._endpoint) as target:
            lines = Lines(cast(Any, target))
            lines.create((_CREATE,))
            found = lines.look(
                f"SELECT note FROM {LINES} WHERE restore = ? AND slice = ?", self._id, _HEAD
            )
        begun = self._known(json.loads(found[0][0])) if found else None
        point, base = begun[:2] if begun else find_point(self._store, self._spark, self._at)
        log = TableLog(self._store, self._spark, self._table, base)
        slices = begun[2] if begun else log.slices
        final = log.definition(point)
        with pool.lease(self._endpoint) as target:
            onto = self._onto(target, final, log.engine)
            done = self._claim(target, onto, point, base, slices)
            is_file = target.driver_local
        work = LoadingSlices(self._id, self._endpoint, onto)
        settled = log.settled([point], final, slices, work, done=done, is_alone=is_file)
        rows = sum(done.values()) + sum(settled.collect())
        with pool.lease(self._endpoint) as target:
            lines = Lines(cast(Any, target))
            with lines.transaction():
                lines.execute(f"DELETE FROM {LINES} WHERE restore = ?", self._id)
        return RestoreReport(self._table, str(onto.relation.tables[0]), rows)

    def _known(self, note: dict[str, Any]) -> tuple[PointInLog, Base, int]:
        """The point that the restore was begun with: a later one would not be of the same table."""
        bases = {base.number: base for base in self._store.bases()}
        if note["base"] not in bases:
            raise CannotFinish(
                f"a restore of {self._table} was begun from a base that was moved forward since: empty the target's"
                f" table and its lines in {LINES}, and begin anew"
            )
        bounds = {int(era): (bound[0], bound[1]) for era, bound in note["bounds"].items()}
        return PointInLog(bounds), bases[note["base"]], int(note["slices"])

    def _onto(self, target: Session, final: Definition, engine: str) -> RowTarget:
        table = described(final, engine, split_name(self._name))
        return row_target(target, table, find_or_make(target, table))

    def _claim(
        self, target: Session, onto: RowTarget, point: PointInLog, base: Base, slices: int
    ) -> dict[int, int]:
        """The slices that are in; the table of a restore that begins must be empty."""
        lines = Lines(cast(Any, target))
        rows = lines.look(f"SELECT slice, held FROM {LINES} WHERE restore = ?", self._id)
        if not rows:
            if not is_empty(target, onto.relation):
                raise UsageError(
                    f"{onto.relation.tables[0]} in {self._endpoint} is not empty: restore into another table (--as)"
                )
            note = {"bounds": point.bounds, "base": base.number, "slices": slices}
            with lines.transaction():
                lines.execute(
                    f"INSERT INTO {LINES} (restore, slice, held, note) VALUES (?, ?, 0, ?)",
                    *(self._id, _HEAD, json.dumps(note)),
                )
        return {int(number): int(held) for number, held in rows if int(number) != _HEAD}


def _note_slice(
    session: Session, restore: str, number: int, target: RowTarget, rows: pa.Array
) -> int:
    """Writes one slice and its line; an attempt that comes late finds the line."""
    loads: Any = session
    lines = Lines(loads)
    with lines.transaction():
        found = lines.fetch(
            f"SELECT held FROM {LINES} WHERE restore = ? AND slice = ?", restore, number
        )
        if found:
            return int(found[0][0])
        lines.execute(
            f"INSERT INTO {LINES} (restore, slice, held) VALUES (?, ?, ?)",
            *(restore, number, len(rows)),
        )
        if len(rows):
            loads.load(target.relation, target.columns(rows))
    return len(rows)
