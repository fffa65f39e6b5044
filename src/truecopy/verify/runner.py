"""A chunk as a piece of work, and running such pieces in this process, where they are few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.relation import Chunk
from truecopy.verify.compare import ChunkResult, compare_chunk
from truecopy.verify.matching import Comparison
from truecopy.verify.options import Options

_ATTEMPTS = 3


@dataclass(frozen=True)
class ChunkTask:
    """One chunk of one comparison, by their numbers."""

    comparison: int
    number: int
    chunk: Chunk
    rows: int


Outcome = ChunkResult | TruecopyError


def run_here(
    tasks: Sequence[ChunkTask], comparisons: Sequence[Comparison], options: Options
) -> Iterator[ChunkResult]:
    """Runs chunks one after the other in this process."""
    for task in tasks:
        yield result_of(compare_task(comparisons, options, task))


def compare_task(comparisons: Sequence[Comparison], options: Options, task: ChunkTask) -> Outcome:
    """Compares a chunk; a lost connection is tried again, and an error travels as a value."""
    compare: Callable[[], ChunkResult] = partial(
        compare_chunk,
        comparisons[task.comparison],
        (task.comparison, task.number),
        task.chunk,
        task.rows,
        options,
    )
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return compare()
        except CannotFinish as error:
            if attempt == _ATTEMPTS:
                return error
            time.sleep(0.3 * attempt)
        except TruecopyError as error:
            return error
    raise AssertionError("unreachable")


def result_of(outcome: Outcome) -> ChunkResult:
    """The result; an error that travelled as a value is raised here."""
    if isinstance(outcome, TruecopyError):
        raise outcome
    return outcome
