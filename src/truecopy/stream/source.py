"""`spark.readStream.format("truecopy.changes")`: the change stream as a Spark source.

The reader lives in a process of its own beside the driver. It is copied to the executors with each
task, so it holds plain values, and opens the stream only where it is asked for offsets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from truecopy.model.change import CHANGE_SCHEMA
from truecopy.model.errors import UsageError
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import Part
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request, parse_point, request_from_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FORMAT = "truecopy.changes"
_EVERYTHING = 1 << 62


class ChangesPartition(InputPartition):
    """A part of a shard's log."""

    def __init__(self, part: Part) -> None:
        super().__init__(0)
        self.part = part


class _Reads:
    """Reading a part, which batch and streaming share."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangesPartition)
        yield from partition.part.read()


class ChangesStreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets and partitions of a stream."""

    def __init__(self, request: Request, start: str) -> None:
        self._request = request
        self._start = start
        self._stream: KeyspaceStream | None = None
        self._limit: Offset | None = None
        self._seen: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None, "_limit": None, "_seen": None}

    def _opened(self) -> KeyspaceStream:
        if self._stream is None:
            self._stream = KeyspaceStream(self._request)
        return self._stream

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        stream = self._opened()
        if lines := stream.missing():
            raise UsageError("; ".join(lines))
        return stream.start(parse_point(self._start, ("start", "current"))).plain()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._request.max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._request.max_bytes
        if isinstance(limit, ReadAllAvailable):
            most = _EVERYTHING
        before = Offset.parse(start)
        after = self._opened().advance(before, most, self._request.wait, self._limit)
        while self._limit is not None and after == before and not self._at_limit(after):
            # Nothing yet, though the end is known to be further: the tail is on its way.
            after = self._opened().advance(before, most, self._request.wait, self._limit)
        self._seen = after
        return start if after == before else after.plain()

    def _at_limit(self, offset: Offset) -> bool:
        assert self._limit is not None
        return self._opened().has_reached(offset, self._limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._limit = self._opened().current()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the logs end, and how far behind the stream is."""
        if self._seen is None:
            return None
        lag = self._opened().lag(self._seen)
        return {"lag_bytes": lag.bytes, "lag_ms": int(lag.seconds * 1000)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        count = self._request.parts or os.cpu_count() or 1
        parts = self._opened().parts(Offset.parse(start), Offset.parse(end), count)
        return [ChangesPartition(part) for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        if self._request.releases:
            self._opened().release(Offset.parse(end))

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class ChangesReader(_Reads, DataSourceReader):
    """A range of the stream as a table, from `from` to `until`."""

    def __init__(self, request: Request, start: str, until: str) -> None:
        self._request = request
        self._start = start
        self._until = until

    def partitions(self) -> list[InputPartition]:
        with KeyspaceStream(self._request) as stream:
            if lines := stream.missing():
                raise UsageError("; ".join(lines))
            end = stream.start(parse_point(self._until, ("current",)))
            at = stream.start(parse_point(self._start, ("start", "current")))
            found: list[InputPartition] = []
            while not stream.has_reached(at, end):
                after = stream.advance(at, self._request.max_bytes, self._request.wait, end)
                found += [ChangesPartition(part) for part in stream.parts(at, after, 1)]
                at = after
        return found


class ChangesSource(DataSource):
    """The source as Spark finds it by name."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(CHANGE_SCHEMA)

    def streamReader(self, schema: StructType) -> ChangesStreamReader:  # noqa: N802, ARG002
        return ChangesStreamReader(self._request(), self._option("from", "current"))

    def reader(self, schema: StructType) -> ChangesReader:  # noqa: ARG002
        return ChangesReader(
            self._request(), self._option("from", "start"), self._option("until", "current")
        )

    def _request(self) -> Request:
        return request_from_options(self.options)

    def _option(self, name: str, default: str) -> str:
        options: Mapping[str, str] = self.options
        return options.get(name, default)


def register(spark: SparkSession) -> None:
    """Makes the source known to a session."""
    spark.dataSource.register(ChangesSource)
