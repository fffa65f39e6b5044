"""Copies without fingerprints and digests, to tell what these cost; no task can ask for such a copy."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from truecopy.model.errors import TruecopyError
from truecopy.transfer import snapshot
from truecopy.transfer.snapshot import Copied, CopyTask


@contextmanager
def without_verification() -> Iterator[None]:
    """Runs of this process copy chunks just as they do, but for their verification."""
    # Executors do not have this module: what it does with theirs travels as it is.
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        with patch.object(snapshot, "_outcomes", _outcomes):
            yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _outcomes(
    lanes: Sequence[Sequence[CopyTask]], close: bool, number: int
) -> Iterator[Copied | TruecopyError]:
    with (
        patch.object(snapshot, "read_chunk", _read_chunk),
        patch.object(snapshot, "_held", return_value=None),
    ):
        yield from snapshot._outcomes(lanes, close, number)


def _read_chunk(source: Any, task: CopyTask) -> tuple[pa.Table, str | None]:
    rows = source.rows(task.plan.read, task.chunk)
    nothing = pa.array(np.zeros(rows.num_rows, np.int64))
    return rows.append_column("fingerprint", nothing), None
