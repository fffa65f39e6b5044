"""A change log as a folder: files of events, base snapshots, definitions, and a ledger that decides.

    changes/table=orders/day=2026-01-31/…   events, as Parquet
    base/1/table=orders/…                   the rows that were there before the first event
    definitions/….json                      the tables' definitions, by `schema_id`
    views/duckdb.sql, views/spark.sql       "current" and "history", for readers
    _truecopy/log.db                        what is committed, and how far the log has come
    _truecopy/staged/                       files that are not committed yet

A batch of events goes through these states, and a process may end between any two of them:

1. *Staged*. Executors write its files under names of their own. Ended here: nothing happened; the next writer
   removes the files.
2. *Committed*. One transaction of the ledger notes the files, and how far the source's log is read by them.
   Ended before it: the batch is read again, perhaps cut otherwise. Ended after it: its events are in.
3. *Published*. Each file is renamed to where readers look, whole. Ended in between: whoever opens the log next
   goes on; a file that was renamed already is left where it is.

So whoever lists `changes/` sees committed events only, each once.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from truecopy.changelog.events import read_files
from truecopy.changelog.facts import EventFile
from truecopy.changelog.ledger_file import LedgerFile
from truecopy.changelog.log import Log
from truecopy.changelog.pieces import FilePiece, Piece
from truecopy.changelog.swap import finish_swap
from truecopy.engines.lake_tables import make_durable
from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES, BASE, DEFINITIONS, VIEWS, OWN = "changes", "base", "definitions", "views", "_truecopy"
_ONLY = "log"
"""A folder has one log."""


class Store(Log):
    """The log of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = folder / OWN
        self._file = LedgerFile(self._own / "log.db")
        super().__init__(self._file, _ONLY)

    @classmethod
    def make(cls, folder: Path) -> Store:
        """Opens the log of a folder, made where it is missing; other files in it are a reason to stop."""
        if folder.exists() and not (folder / OWN / "log.db").exists():
            strange = [one.name for one in folder.iterdir() if one.name != OWN]
            if strange:
                raise UsageError(
                    f"{folder} holds {strange[0]} and no change log: name a folder for the log alone"
                )
        (folder / OWN / "staged").mkdir(parents=True, exist_ok=True)
        for name in (CHANGES, BASE, DEFINITIONS, VIEWS):
            (folder / name).mkdir(exist_ok=True)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Opens a log that is there."""
        if not (folder / OWN / "log.db").exists():
            raise UsageError(
                f"there is no change log in {folder}: truecopy changelog start makes one"
            )
        return cls(folder)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def place(self) -> str:
        return str(self.folder)

    @property
    def views(self) -> str | None:
        return str(self.folder / VIEWS)

    @property
    def staged(self) -> Path:
        return self._own / "staged"

    # Locks, which end with their process

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One writer at a time; what another one left half done is finished or removed first."""
        with (self._own / "writer.lock").open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CannotFinish(
                    f"{self.folder} is written by process {_said(file)}: truecopy changelog stop ends it"
                ) from None
            _say(file, f"{os.getpid()}")
            self.forget("stop")
            self.publish()
            self._sweep()
            yield

    def is_written(self) -> bool:
        with (self._own / "writer.lock").open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    @contextmanager
    def files_held(self) -> Iterator[None]:
        """Nobody else renames files meanwhile."""
        with (self._own / "files.lock").open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # Files

    def path(self, file: EventFile) -> Path:
        return self.folder / CHANGES / file.name

    def event_pieces(self, files: Sequence[EventFile]) -> list[Piece]:
        return [FilePiece(str(self.path(file))) for file in files]

    def base_pieces(self, base: int, table: str) -> list[Piece]:
        chunks = [chunk for chunk in self.chunks(base, table) if chunk.rows is not None]
        return [FilePiece(str(self.folder / BASE / chunk.name)) for chunk in chunks]

    def marks(self, spark: SparkSession, files: Sequence[EventFile]) -> DataFrame:
        return self.frame(spark, files)

    def frame(self, spark: SparkSession, files: Sequence[EventFile]) -> DataFrame:
        return read_files(spark, self.folder / CHANGES, [self.path(file) for file in files])

    def publish(self) -> None:
        """Renames committed files to where readers look, and finishes swaps of folders."""
        with self.files_held():
            self.finish_swaps()
            waiting = self._all("SELECT name, staged FROM truecopy_log_file WHERE staged <> ''")
            folders = set()
            for name, staged in waiting:
                final = self.folder / CHANGES / name
                if not final.parent.exists():
                    final.parent.mkdir(parents=True, exist_ok=True)
                    make_durable(final.parent.parent, self.folder / CHANGES)
                try:
                    (self.staged / staged).rename(final)
                except FileNotFoundError:
                    if not final.exists():
                        raise CannotFinish(
                            f"{staged} is gone from {self.staged}, and with it committed events: was it deleted?"
                        ) from None
                folders.add(final.parent)
            make_durable(*folders)
            if waiting:
                with self.transaction():
                    self._run("UPDATE truecopy_log_file SET staged = '' WHERE staged <> ''")

    def finish_swaps(self) -> None:
        """Those of compactions that were decided; the lock of the files is held."""
        for folder, gone, fresh in self._all("SELECT folder, gone, fresh FROM truecopy_log_swap"):
            names = [name.rpartition("/")[2] for name in json.loads(gone)]
            finish_swap(self._own / "fresh" / fresh, self.folder / CHANGES / folder, names)
            with self.transaction():
                self._run("DELETE FROM truecopy_log_swap WHERE folder = ?", folder)

    def decide_swap(
        self, folder: str, gone: Sequence[str], fresh: str, files: Sequence[EventFile]
    ) -> None:
        """The commit of a compaction: some files of a folder give way to others."""
        with self.transaction():
            for name in gone:
                self._run("DELETE FROM truecopy_log_file WHERE name = ?", name)
            self.add_files(files)
            self._run(
                "INSERT INTO truecopy_log_swap VALUES (?, ?, ?)",
                *(folder, json.dumps(list(gone)), fresh),
            )

    def _sweep(self) -> None:
        """Removes what a writer left that was ended before its commit."""
        for one in self.staged.glob("*.parquet"):
            one.unlink(missing_ok=True)

    # Definitions

    def keep(self, definition: Definition) -> None:
        final = self.folder / DEFINITIONS / f"{definition.schema_id}.json"
        if final.exists():
            return
        unfinished = final.with_suffix(f".{os.getpid()}.new")
        unfinished.write_text(definition.to_json(), encoding="utf-8")
        make_durable(unfinished)
        unfinished.replace(final)
        make_durable(final.parent)

    def definition(self, schema_id: str) -> Definition:
        path = self.folder / DEFINITIONS / f"{schema_id}.json"
        try:
            return Definition.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CannotFinish(f"{path} is gone: rows of that definition cannot be read") from None


def _said(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "unknown"


def _say(file: IO[str], text: str) -> None:
    file.truncate(0)
    file.write(text)
    file.flush()
