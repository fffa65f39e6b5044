"""A stream read by a person or a script: change after change, in this process, without Spark.

Only what must see every change in one place reads like this; whatever processes changes in bulk uses
the Spark source.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any

import pyarrow as pa

from truecopy.metastore.definitions import Definitions
from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish
from truecopy.model.text import readable_text
from truecopy.model.token import token_of_change
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import Part
from truecopy.stream.offset import Offset
from truecopy.stream.request import Point, Request

Change = dict[str, Any]


class Following:
    """Changes from one point to another; `offset` is where it stands, and can be come back to."""

    def __init__(self, request: Request, start: Point, until: Point) -> None:
        self._request = request
        self._stream = KeyspaceStream(request)
        if lines := self._stream.missing():
            self._stream.close()
            raise CannotFinish("; ".join(lines))
        self._until = until
        try:
            # The end first: what is committed while the start is looked for is not wanted any more.
            self._limit = self._stream.current() if until == "current" else None
            self.offset = self._stream.start(start)
        except BaseException:
            self._stream.close()
            raise
        self._definitions = Definitions()

    @property
    def warnings(self) -> list[str]:
        return self._stream.warnings()

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def changes(self) -> Iterator[Change]:
        """Every change as a dictionary of the stream's columns, with `key`, `before` and `after` by name."""
        while not self._is_over():
            after = self._stream.advance(
                self.offset, self._request.max_bytes, self._request.wait, self._end()
            )
            if after == self.offset:
                continue
            parts = self._stream.parts(self.offset, after, 1)
            yield from self._merged(parts)
            self.offset = after
            self._stream.release(after)

    def _is_over(self) -> bool:
        end = self._end()
        return end is not None and self._stream.has_reached(self.offset, end)

    def _end(self) -> Offset | None:
        """Where to stop, once that can be known: a time in the future has no place in a log yet."""
        is_due = not isinstance(self._until, int) or self._until <= time.time() * 1_000_000
        if self._limit is None and self._until != "never" and is_due:
            self._limit = self._stream.start(self._until)
        return self._limit

    def _merged(self, parts: Sequence[Part]) -> Iterator[Change]:
        """Changes of several shards by commit time, and those of one shard always in its own order."""
        shards: dict[str, list[Part]] = {}
        for part in parts:
            shards.setdefault(getattr(part, "shard", ""), []).append(part)
        streams = [self._read(of_shard) for of_shard in shards.values()]
        if len(streams) == 1:
            yield from streams[0]
        else:
            yield from merge(*streams, key=_committed_at)

    def _read(self, parts: Sequence[Part]) -> Iterator[Change]:
        for part in parts:
            for batch in part.read():
                yield from self._named(batch)

    def _named(self, batch: pa.RecordBatch) -> Iterator[Change]:
        for row in batch.to_pylist():
            if row["schema_id"]:
                definition = self._definitions.find(row["schema_id"])
                row["key"] = _by_name(definition, row["key"], definition.key_places)
                everywhere = range(len(definition.columns))
                left_out = set(row["unchanged"] or ())
                for image in ("before", "after"):
                    row[image] = _by_name(definition, row[image], everywhere)
                if left_out:
                    row["unchanged"] = [definition.names[i] for i in sorted(left_out)]
                    for name in row["unchanged"]:
                        row["after"].pop(name, None)
            row["token"] = str(token_of_change(row))
            yield row


def _by_name(
    definition: Definition, texts: Sequence[str | None] | None, places: Sequence[int]
) -> dict[str, str | None] | None:
    if texts is None:
        return None
    return {
        definition.columns[place].name: readable_text(text, definition.columns[place].type)
        for place, text in zip(places, texts, strict=True)
    }


def _committed_at(change: Change) -> float:
    moment = change["committed_at"]
    return moment.timestamp() if moment else 0.0
