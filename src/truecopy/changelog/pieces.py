"""Pieces of a log, as executors read them: wherever its events and the rows of its base are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq


class Piece(Protocol):
    """Some events, or rows of a base; plain values."""

    def read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """These columns, as far as it has them, in tables of a bounded size."""
        ...


@dataclass(frozen=True)
class FilePiece:
    """A file."""

    path: str

    def read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        with pq.ParquetFile(self.path) as file:
            present = [name for name in names if name in file.schema_arrow.names]
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=present)
