"""The change stream as a Spark source whose rows are packed changes: packed where they are decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from truecopy.model.keyspace import WHOLE
from truecopy.spark import spare_the_collector
from truecopy.stream.request import Request, request_from_options
from truecopy.stream.source import ChangesSource, ChangesStreamReader
from truecopy.transfer.packing import PACKED, pack_batches

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class PackedReader(ChangesStreamReader):
    """See `ChangesStreamReader`; with some of the columns of the stream."""

    def __init__(self, request: Request, start: str, columns: list[str]) -> None:
        super().__init__(request, start)
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from pack_batches(batch.select(self._columns) for batch in super().read(partition))
        spare_the_collector("read")


class PackedSource(ChangesSource):
    """See `ChangesSource`; its one more option `columns` names those that are packed."""

    @classmethod
    def name(cls) -> str:
        return "truecopy.packed_changes"

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(PACKED)

    def streamReader(self, schema: StructType) -> PackedReader:  # noqa: N802, ARG002
        options = dict(self.options)
        columns = options.pop("columns").split(",")
        request = request_from_options(options)
        # Which rows are of a part of a shard may be told by a column that only `before` has.
        before = "before" in columns or request.key_range != WHOLE
        return PackedReader(replace(request, before=before), options.pop("from"), columns)
