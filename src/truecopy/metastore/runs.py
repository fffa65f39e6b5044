"""The record of a verification: its plan, the chunks that are done, and their differences.

A chunk is recorded in one transaction with its differences, so that a kill at any instant leaves it
either done or not. Memory stays bounded: results are written as they come and read one by one.
"""

from __future__ import annotations

import fcntl
import json
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from sqlalchemy import (
    Column,
    Engine,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DatabaseError

from truecopy.metastore.chunks import ChunkRecord
from truecopy.model.errors import CannotFinish, UsageError

_metadata = MetaData()
_run = Table(
    "run",
    _metadata,
    Column("configuration", String, primary_key=True),
    Column("started_at", Float, nullable=False),
    Column("plan", String, nullable=False),
    Column("finished", Integer, nullable=False, default=0),
)
_chunk = Table(
    "chunk",
    _metadata,
    Column("comparison", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("summary", String, nullable=False),
    Column("found", Integer, nullable=False),
    Column("differences", LargeBinary, nullable=False),
)


class RunRecord:
    """One file that holds one verification; used by one process at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock: IO[str] = Path(f"{path}.lock").open("w")  # noqa: SIM115 - held until close
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise CannotFinish(
                f"another run uses the checkpoint {path}: wait for it, or name another one"
            ) from None
        self._engine = create_engine(f"sqlite:///{path}")
        event.listen(self._engine, "connect", _configure)
        # A report keeps its record open for as long as somebody may ask it for rows, and no longer.
        self._release = weakref.finalize(self, _release, self._engine, self._lock)
        try:
            _metadata.create_all(self._engine)
        except DatabaseError:
            self.close()
            raise UsageError(f"{path} is not a checkpoint of truecopy: name another file") from None

    def resume(self, configuration: str) -> tuple[float, list[object]] | None:
        """When an unfinished run of this configuration started, and its plan; None where there is none.

        A file that holds an unfinished run of another configuration is refused.
        """
        with self._engine.connect() as connection:
            row = connection.execute(select(_run)).first()
        if row is None or row.finished:
            return None
        if row.configuration != configuration:
            raise UsageError(
                f"the checkpoint {self.path} belongs to a run with other settings or endpoints:"
                " repeat that command, name another file, or start anew with --fresh"
            )
        return row.started_at, json.loads(row.plan)

    def start(self, configuration: str, plan: Sequence[object]) -> None:
        """Forgets whatever the file held and begins a run."""
        with self._engine.begin() as connection:
            connection.execute(_chunk.delete())
            connection.execute(_run.delete())
            values = {
                "configuration": configuration,
                "started_at": time.time(),
                "plan": json.dumps(plan),
                "finished": 0,
            }
            connection.execute(insert(_run).values(**values))

    def add(self, record: ChunkRecord) -> None:
        """Records a finished chunk; recording it again changes nothing."""
        with self._engine.begin() as connection:
            connection.execute(insert(_chunk).prefix_with("OR IGNORE"), [_values(record)])

    def done(self) -> set[tuple[int, int]]:
        """The chunks that need not be done again, by the numbers of comparison and chunk."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(_chunk.c.comparison, _chunk.c.number))
            return {(row.comparison, row.number) for row in rows}

    def records(
        self, comparison: int | None = None, only_found: bool = False
    ) -> Iterator[ChunkRecord]:
        """Finished chunks in the order of the key, one in memory at a time."""
        wanted = select(_chunk).order_by(_chunk.c.comparison, _chunk.c.number)
        if comparison is not None:
            wanted = wanted.where(_chunk.c.comparison == comparison)
        if only_found:
            wanted = wanted.where(_chunk.c.found > 0)
        with self._engine.connect().execution_options(yield_per=1) as connection:
            for row in connection.execute(wanted):
                yield ChunkRecord(
                    row.comparison, row.number, json.loads(row.summary), row.found, row.differences
                )

    def replace(self, comparison: int, records: Sequence[ChunkRecord]) -> None:
        """Puts other results in the place of those of one comparison, in one step."""
        with self._engine.begin() as connection:
            connection.execute(_chunk.delete().where(_chunk.c.comparison == comparison))
            connection.execute(insert(_chunk), [_values(record) for record in records])

    def forget(self, comparison: int) -> None:
        """Drops the results of one comparison, to do it again from its start."""
        with self._engine.begin() as connection:
            connection.execute(_chunk.delete().where(_chunk.c.comparison == comparison))

    def count_found(self) -> int:
        """Differing rows recorded so far."""
        with self._engine.connect() as connection:
            return int(
                connection.execute(select(func.coalesce(func.sum(_chunk.c.found), 0))).scalar_one()
            )

    def finish(self) -> None:
        """Marks the run as complete: the next one starts anew."""
        with self._engine.begin() as connection:
            connection.execute(update(_run).values(finished=1))

    def close(self) -> None:
        """Lets another process use the file."""
        self._release()


def _values(record: ChunkRecord) -> dict[str, object]:
    return {**record.__dict__, "summary": json.dumps(record.summary)}


def _release(engine: Engine, lock: IO[str]) -> None:
    engine.dispose()
    lock.close()


def _configure(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    # WAL with NORMAL keeps every committed chunk across a kill of the process, at a fraction of the cost.
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()
