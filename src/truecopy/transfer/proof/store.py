"""Rows to look at again: a count per key, in a file, since there may be more of them than memory.

It counts and is no set: a row that changes while it is looked at must be looked at once more. What was
counted before a look is subtracted after it, and what came meanwhile is left.

The position up to which changes were read is written with, or after, the last of their keys. So after a crash
the file says for sure how far it knows the changes, and whoever goes on from there, or before, loses none; a
key that is counted again is only looked at once more than it had to be.

A change is counted before it is applied, so that a row which differs though nothing was counted since is
known to be wrong. It is looked at only after it was applied: until then its row is *held*. Else a row that
changed and changed back would be found equal before it was written.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import pyarrow as pa

from truecopy.model.errors import CannotFinish
from truecopy.model.relation import Key
from truecopy.spark import state_folder
from truecopy.transfer.proof.keys import pack, unpack

_TABLES = """
CREATE TABLE IF NOT EXISTS pending (
    source_table TEXT NOT NULL, key TEXT NOT NULL, count INTEGER NOT NULL, turn INTEGER NOT NULL,
    batch INTEGER NOT NULL, PRIMARY KEY (source_table, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_turn ON pending (turn);
CREATE TABLE IF NOT EXISTS note (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
REACHED = "reached/"
"""Before the name of a shard: the note of how far its changes were counted."""
UNCOUNTED = "uncounted/"
"""Before the name of a table: the note that rows of it changed whose keys could not be counted."""
_FORM = "form/"

_CACHE_KILOBYTES = 16 << 10


@dataclass(frozen=True)
class Taken:
    """Some keys of one table, with the counts that they had when they were taken."""

    table: str
    packed: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def keys(self) -> list[Key]:
        return unpack(list(self.packed))


class ReverifyStore:
    """The keys of one task; used by one process, by any of its threads.

    Args:
        path: The file.
        identity: What the keys belong to; a file of another one is emptied.
    """

    def __init__(self, path: Path, identity: str = "") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        for setting in (
            "journal_mode = WAL",
            "synchronous = NORMAL",  # survives a kill; what a power cut takes, the positions tell
            f"cache_size = -{_CACHE_KILOBYTES}",
            "temp_store = FILE",
        ):
            self._connection.execute(f"PRAGMA {setting}")
        try:
            self._connection.executescript(_TABLES)
        except sqlite3.DatabaseError:
            raise CannotFinish(f"{path} is not a store of keys: remove it") from None
        if self.note("identity") != identity:
            with self._step() as connection:
                connection.execute("DELETE FROM pending")
                connection.execute("DELETE FROM note")
                _write_note(connection, "identity", identity)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __enter__(self) -> ReverifyStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Adding

    def add(
        self,
        keys: Mapping[str, pa.Array],
        notes: Mapping[str, str] | None = None,
        *,
        held: bool = False,
    ) -> None:
        """Counts packed keys by table, and writes notes, such as how far the changes were read, in the same step.

        Args:
            keys: As `keys.packed_keys` gives them; a key may be there several times.
            notes: Values by name.
            held: Not to be looked at before `release`.
        """
        counted = [(table, *_counts(packed)) for table, packed in keys.items() if len(packed)]
        with self._step() as connection:
            turn = _number(connection, "turn")
            batch = self._bump(connection, "batch", 1) if held else 0
            for table, texts, counts in counted:
                # A key that is there keeps its turn: one that changes all the time must not wait forever.
                connection.executemany(
                    "INSERT INTO pending VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                    " SET count = count + excluded.count, batch = max(batch, excluded.batch)",
                    zip(repeat(table), texts, counts, repeat(turn), repeat(batch)),
                )
            for name, value in (notes or {}).items():
                _write_note(connection, name, value)

    def add_keys(self, table: str, keys: Sequence[Key]) -> None:
        """Counts keys that are at hand as tuples, such as those that were found to differ."""
        if keys:
            columns = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
            self.add({table: pack(columns)})

    def keep_only(self, forms: Mapping[str, str]) -> None:
        """Forgets the keys of all tables but these, and of those whose keys were kept in another form.

        Keys of a table that is not carried any more could never be looked at, and those of another primary key would
        name no row on either side, and nothing equals nothing. Whoever calls this compares all rows of the tables
        that stay, whenever it goes on after an earlier run.

        Args:
            forms: What the keys of each table are, in words of the caller.
        """
        with self._step() as connection:
            held = connection.execute("SELECT DISTINCT source_table FROM pending").fetchall()
            for (table,) in held:
                if table not in forms or self.note(f"{_FORM}{table}") != forms[table]:
                    connection.execute("DELETE FROM pending WHERE source_table = ?", (table,))
            connection.execute("DELETE FROM note WHERE name LIKE ?", (f"{_FORM}%",))
            for table, form in forms.items():
                _write_note(connection, f"{_FORM}{table}", form)

    def take_uncounted(self) -> set[str]:
        """The tables that have a note of changes that could not be counted, once."""
        with self._lock:
            noted = self._connection.execute(
                "SELECT name FROM note WHERE name LIKE ?", (f"{UNCOUNTED}%",)
            ).fetchall()
            if noted:
                self.forget_notes(*(name for (name,) in noted))
        return {name.removeprefix(UNCOUNTED) for (name,) in noted}

    def release(self) -> None:
        """Everything that was held is applied by now."""
        with self._step() as connection:
            _write_note(connection, "released", str(_number(connection, "batch")))

    # Looking

    def take(self, limit: int, before: int | None = None) -> list[Taken]:
        """The keys that waited longest, by table; with `before`, only those of earlier turns."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT source_table, key, count FROM pending WHERE turn < ? AND batch <= ?"
                " ORDER BY turn LIMIT ?",
                (
                    before if before is not None else 1 << 62,
                    _number(self._connection, "released"),
                    limit,
                ),
            ).fetchall()
        found: dict[str, list[tuple[str, int]]] = {}
        for table, key, count in rows:
            found.setdefault(table, []).append((key, count))
        return [
            Taken(table, *map(tuple, zip(*pairs, strict=True))) for table, pairs in found.items()
        ]

    def subtract(self, taken: Taken, equal: Sequence[str]) -> None:
        """Takes what was counted before the look off the keys that it found equal."""
        counts = dict(zip(taken.packed, taken.counts, strict=True))
        with self._step() as connection:
            connection.executemany(
                "UPDATE pending SET count = count - ? WHERE source_table = ? AND key = ?",
                [(counts[key], taken.table, key) for key in equal],
            )
            connection.executemany(
                "DELETE FROM pending WHERE source_table = ? AND key = ? AND count <= 0",
                [(taken.table, key) for key in equal],
            )
            self._bump(connection, "verified", len(equal))

    def put_back(self, taken: Taken, keys: Sequence[str]) -> None:
        """Lets keys wait behind the others until their next look."""
        with self._step() as connection:
            turn = self._bump(connection, "turn", 1)
            connection.executemany(
                "UPDATE pending SET turn = ? WHERE source_table = ? AND key = ?",
                [(turn, taken.table, key) for key in keys],
            )

    def unchanged(self, taken: Taken, keys: Sequence[str]) -> set[str]:
        """Those of the keys that no change was counted for since they were taken."""
        counts = dict(zip(taken.packed, taken.counts, strict=True))
        with self._lock:
            ask = "SELECT count FROM pending WHERE source_table = ? AND key = ?"
            rows = {
                key: self._connection.execute(ask, (taken.table, key)).fetchone() for key in keys
            }
        return {key for key, row in rows.items() if row is not None and row[0] == counts[key]}

    def next_turn(self) -> int:
        """Begins a turn: what is added or put back from now on is not of those before."""
        with self._step() as connection:
            return self._bump(connection, "turn", 1)

    def __len__(self) -> int:
        """How many keys are left."""
        with self._lock:
            return int(self._connection.execute("SELECT COUNT(*) FROM pending").fetchone()[0])

    # What else must survive

    @property
    def verified(self) -> int:
        """How many looks have found a row equal."""
        return int(self.note("verified") or 0)

    def note(self, name: str) -> str | None:
        with self._lock:
            row = self._connection.execute(
                "SELECT value FROM note WHERE name = ?", (name,)
            ).fetchone()
        return row[0] if row else None

    def write_note(self, name: str, value: str) -> None:
        with self._step() as connection:
            _write_note(connection, name, value)

    def forget_notes(self, *names: str) -> None:
        """All of them in one step."""
        with self._step() as connection:
            connection.executemany("DELETE FROM note WHERE name = ?", [(name,) for name in names])

    def reached(self) -> list[str]:
        """Up to where the changes of each shard were counted."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT value FROM note WHERE name LIKE ?", (f"{REACHED}%",)
            ).fetchall()
        return [position for (position,) in rows]

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is read and written in the block is one step."""
        with self._step():
            yield

    # Inside

    @contextmanager
    def _step(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection.in_transaction:  # of `together`, by this thread
                yield self._connection
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _bump(self, connection: sqlite3.Connection, name: str, by: int) -> int:
        number = _number(connection, name) + by
        _write_note(connection, name, str(number))
        return number


def open_store(task: str, identity: str) -> ReverifyStore:
    """The store of a task, in the state folder."""
    return ReverifyStore(_path(task), identity)


def copy_store(task: str, identity: str, path: Path) -> ReverifyStore:
    """A copy of it, which may be taken while the task runs; empty where the task has none here."""
    if _path(task).exists():
        with (
            closing(sqlite3.connect(f"{_path(task).as_uri()}?mode=ro", uri=True)) as one,
            closing(sqlite3.connect(path)) as other,
        ):
            one.backup(other)
    return ReverifyStore(path, identity)


def has_store(task: str) -> bool:
    """Whether verifiers of a task keep something here."""
    return _path(task).exists()


def remove_store(task: str) -> None:
    """Removes the store of a task that stands still."""
    path = _path(task)
    for suffix in ("-wal", "-shm", ""):  # the file at last: a crash before leaves it to be removed
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _path(task: str) -> Path:
    name = hashlib.sha256(task.encode()).hexdigest()[:16]
    return state_folder() / "proof" / f"{name}.db"


def _write_note(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute(
        "INSERT INTO note VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _number(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT value FROM note WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0


def _counts(packed: pa.Array) -> tuple[list[str], list[int]]:
    found = packed.value_counts()
    return found.field("values").to_pylist(), found.field("counts").to_pylist()
