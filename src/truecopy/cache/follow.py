"""An invalidator at work: the change stream into a cache, from a checkpoint on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pyarrow as pa

from truecopy.cache.invalidation import Counts, Invalidator
from truecopy.cache.objects import Emptied, Objects
from truecopy.cache.store import Cache
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish
from truecopy.model.token import parse_any
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.request import Point, Request

SAVE_SECONDS = 1.0


class Checkpoint:
    """Where an invalidator stands, in a file: everything before was invalidated."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> Point | None:
        try:
            return parse_any(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def write(self, text: str) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_name(f"{self._file.name}.new")
        draft.write_text(text, encoding="utf-8")
        draft.replace(self._file)


class Following:
    """Invalidates what changes, in this process, until it is stopped.

    Args:
        request: Which stream; whole rows, where the objects need them.
        cache: Where to invalidate.
        objects: What changes are part of.
        start: Where to begin without a checkpoint.
        checkpoint: Where to go on; a crash in between means that some changes are invalidated again.
    """

    def __init__(
        self,
        request: Request,
        cache: Cache,
        objects: Objects,
        start: Point,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._request = request
        self._invalidator = Invalidator(cache)
        self._objects = objects
        self._checkpoint = checkpoint
        self._find = DefinitionsByName()
        self._stream = KeyspaceStream(request)
        try:
            if lines := self._stream.missing():
                raise CannotFinish("; ".join(lines))
            self.offset = self._stream.start((checkpoint and checkpoint.read()) or start)
        except BaseException:
            self._stream.close()
            raise

    @property
    def counts(self) -> Counts:
        return self._invalidator.counts

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        stop: Event | None = None,
        *,
        until_current: bool = False,
        listener: Callable[[Counts], None] = lambda _: None,
    ) -> None:
        """Until `stop` is set, or until everything is done that was committed when this was called."""
        limit = self._stream.current() if until_current else None
        # At once: a start that is looked for again later may be another one, or out of reach.
        self._save()
        saved_at = time.monotonic()
        while not (stop and stop.is_set()):
            if limit is not None and self._stream.has_reached(self.offset, limit):
                break
            after = self._stream.advance(
                self.offset, self._request.max_bytes, self._request.wait, limit
            )
            if after != self.offset:
                for part in self._stream.parts(self.offset, after, 1):
                    for batch in part.read():
                        take(self._invalidator, self._objects, batch, self._find)
                self.offset = after
                listener(self.counts)
            if time.monotonic() - saved_at > SAVE_SECONDS:
                self._save()
                saved_at = time.monotonic()
        self._save()

    def _save(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.write(str(self.offset.token()))
        self._stream.release(self.offset)


class DefinitionsByName:
    """Definitions of the metastore, each looked up once."""

    def __init__(self) -> None:
        self._store = Definitions()
        self._known: dict[str, Definition] = {}

    def __call__(self, schema_id: str) -> Definition:
        if schema_id not in self._known:
            self._known[schema_id] = self._store.find(schema_id)
        return self._known[schema_id]


def take(
    invalidator: Invalidator,
    objects: Objects,
    batch: pa.RecordBatch,
    definitions: Callable[[str], Definition],
) -> None:
    """Invalidates what a batch of changes has made old."""
    try:
        invalidator.invalidate(objects.changed(batch, definitions))
    except Emptied:
        # Its rows are not named, so everything goes; the rest of the batch is invalidated with it.
        invalidator.clear()
