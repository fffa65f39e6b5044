"""Rows of a large transaction on disk, between the deletes and the inserts of its net effect."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import pyarrow as pa


class Spooled:
    """Rows by the definition that they are of; for one writer, who reads them once."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}

    def __enter__(self) -> Spooled:
        self._folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="truecopy-"))
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def keep(self, schema_id: str, rows: pa.Table) -> None:
        if schema_id not in self._writers:
            file = self._folder / f"{len(self._writers)}.arrow"
            writer = pa.ipc.new_file(file, rows.schema)
            self._writers[schema_id] = self._stack.enter_context(writer)
        self._writers[schema_id].write_table(rows.combine_chunks())

    def all(self) -> Iterator[tuple[str, pa.Table]]:
        """What was kept, in the pieces in which it was; nothing can be kept any more."""
        for number, (schema_id, writer) in enumerate(self._writers.items()):
            writer.close()
            with (
                pa.OSFile(str(self._folder / f"{number}.arrow")) as file,
                pa.ipc.open_file(file) as reader,
            ):
                for place in range(reader.num_record_batches):
                    yield schema_id, pa.Table.from_batches([reader.get_batch(place)])
