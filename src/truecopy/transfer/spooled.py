"""Rows of a large transaction on disk, between the deletes and the inserts of its net effect."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa


@contextmanager
def spooled_rows() -> Iterator[Spooled]:
    """A place for rows, which are gone when it is left."""
    with tempfile.TemporaryDirectory(prefix="truecopy-") as folder:
        spooled = Spooled(Path(folder))
        try:
            yield spooled
        finally:
            spooled.close()


@dataclass(frozen=True)
class Spooled:
    """Rows by the definition that they are of; for one writer, who reads them once."""

    folder: Path
    _writers: dict[str, pa.ipc.RecordBatchFileWriter] = field(default_factory=dict)

    def keep(self, schema_id: str, rows: pa.Table) -> None:
        if schema_id not in self._writers:
            file = self.folder / f"{len(self._writers)}.arrow"
            self._writers[schema_id] = pa.ipc.new_file(file, rows.schema)
        self._writers[schema_id].write_table(rows.combine_chunks())

    def close(self) -> None:
        """Ends the files: nothing can be kept any more."""
        for writer in self._writers.values():
            writer.close()

    def all(self) -> Iterator[tuple[str, pa.Table]]:
        """What was kept, in the pieces in which it was; nothing can be kept any more."""
        self.close()
        for number, schema_id in enumerate(self._writers):
            with (
                pa.OSFile(str(self.folder / f"{number}.arrow")) as file,
                pa.ipc.open_file(file) as reader,
            ):
                for place in range(reader.num_record_batches):
                    yield schema_id, pa.Table.from_batches([reader.get_batch(place)])
