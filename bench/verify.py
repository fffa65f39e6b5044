"""How fast `truecopy verify` is: against its rivals, against its floor, and as tables grow.

    python -m bench.verify [--json] [--rows-small N] [--rows-large N]

What the figures mean and what they should be: docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import truecopy
from bench.figures import Figure, at_least, at_most, exactly, print_figures
from bench.memory import peak_of_fresh_driver
from bench.rivals import reladiff, sync_diff_digest
from bench.tables import Pair, Pairs, filled_servers
from bench.timing import seconds_of, side_by_side
from truecopy import spark
from truecopy.engines import connect, pool
from truecopy.engines.protocols import Reads, Statement
from truecopy.engines.relational import RelationalSession
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import WHOLE, Chunk, Relation
from truecopy.model.table import TableName
from truecopy.verify.chunks import plan_chunks
from truecopy.verify.matching import Comparison, Pairing, match
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARMING = 4
"""Verifications after the first until their times stand still: a JVM compiles only what it has run often."""

_START = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.verify", description="Measures `truecopy verify`.")
    parser.add_argument(
        "--rows-small", type=int, default=1_000_000, metavar="N", help="default: 1 million"
    )
    parser.add_argument(
        "--rows-large", type=int, default=4_000_000, metavar="N", help="default: 4 million"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="truecopy-bench-") as state:
        os.environ["TRUECOPY_STATE"] = state
        print_figures(measure(chosen.rows_small, chosen.rows_large), chosen.json)


def measure(small: int, large: int) -> list[Figure]:
    say(f"filling two servers with {small:,} and {large:,} rows")
    with filled_servers(small, large) as pairs:
        # First, while no other driver shares memory with those that are measured.
        figures = memory_figures(pairs)
        start_up, session = start_session(pairs.small)
        figures += digest_figures(pairs.small)
        few = time_small(session, pairs)
        figures += small_figures(session, pairs, few)
        figures += large_figures(pairs, time_large(session, pairs), few["verify"])
        session.stop()
    return [*sorted(figures, key=lambda figure: figure.goal is None), *start_up]


def memory_figures(pairs: Pairs) -> list[Figure]:
    """Whether memory grows with the table."""
    say("peak memory, each size in a fresh driver")
    least = peak_of_fresh_driver(pairs.small, warm_up=pairs.small)
    most = peak_of_fresh_driver(pairs.large, warm_up=pairs.small)
    small, large = _short(pairs.small.rows), _short(pairs.large.rows)
    return [
        Figure(f"peak_memory_{large}_over_{small}", most / least, at_most(1.15)),
        Figure(f"peak_memory_{small}_megabytes", least / 2**20),
        Figure(f"peak_memory_{large}_megabytes", most / 2**20),
    ]


def start_session(pair: Pair) -> tuple[list[Figure], SparkSession]:
    """A session that is up and warm, and what that took."""
    say("starting Spark")
    up = seconds_of(spark.session)
    session = spark.session()
    first = seconds_of(partial(verify, session, pair))
    for _ in range(WARMING):
        verify(session, pair)
    return [Figure("session_start_seconds", up), Figure("first_verify_seconds", first)], session


def digest_figures(pair: Pair) -> list[Figure]:
    """The digest of a table in one database, against the one of sync-diff-inspector."""
    say("digest expressions")
    relation = comparison_of(pair).source
    names = [column.name for column in relation.columns]
    theirs = Statement(sync_diff_digest(pair.source_table, names))
    with pool.lease(relation.endpoint) as leased:
        session = cast(RelationalSession, leased)
        times = side_by_side(
            {
                "truecopy": lambda: session.digest(relation, WHOLE),
                "sync_diff": lambda: session.fetch(theirs),
            }
        )
    return [
        Figure(
            "digest_speed_over_sync_diff", times["sync_diff"] / times["truecopy"], at_least(2.5)
        ),
        Figure("digest_seconds", times["truecopy"]),
        Figure("digest_sync_diff_seconds", times["sync_diff"]),
    ]


def small_figures(session: SparkSession, pairs: Pairs, times: Mapping[str, float]) -> list[Figure]:
    """Against reladiff, and with many differing rows; `times` are those of `time_small`."""
    say("differing rows")
    ours = verify(session, pairs.differing)
    rival = seconds_of(partial(reladiff, pairs.differing))
    name = _short(pairs.small.rows)
    return [
        Figure(
            f"verify_speed_over_reladiff_{name}",
            times["reladiff"] / times["verify"],
            at_least(2.5),
        ),
        Figure("differing_rows_reported", ours.differences, exactly(pairs.differing_rows)),
        Figure("differing_time_over_equal", times["differing"] / times["verify"], at_most(6)),
        Figure("differing_time_over_equal_reladiff", rival / times["reladiff"]),
        Figure(f"verify_{name}_seconds", times["verify"]),
        Figure(f"reladiff_{name}_seconds", times["reladiff"]),
        Figure("verify_differing_seconds", times["differing"]),
        Figure("verify_differing_document_seconds", ours.document_seconds),
        Figure("reladiff_differing_seconds", rival),
    ]


def large_figures(pairs: Pairs, times: Mapping[str, float], small_seconds: float) -> list[Figure]:
    """Against reladiff, the floor and the small table; `times` are those of `time_large`."""
    name = _short(pairs.large.rows)
    seconds = times["verify"]
    return [
        Figure(f"verify_speed_over_reladiff_{name}", times["reladiff"] / seconds, at_least(5)),
        Figure(f"verify_time_over_floor_{name}", seconds / times["floor"], at_most(1.5)),
        Figure(
            f"verify_time_{name}_over_{_short(pairs.small.rows)}",
            seconds / small_seconds,
            at_most(4.4),
        ),
        Figure(f"verify_{name}_seconds", seconds),
        Figure(f"reladiff_{name}_seconds", times["reladiff"]),
        Figure(f"floor_{name}_seconds", times["floor"]),
        Figure(f"floor_in_chunks_{name}_seconds", times["floor in chunks"]),
    ]


def time_small(session: SparkSession, pairs: Pairs) -> dict[str, float]:
    say("verify and reladiff, small tables")
    return side_by_side(
        {
            "verify": partial(verify, session, pairs.small),
            "differing": partial(verify, session, pairs.differing),
            "reladiff": partial(reladiff_of_equal, pairs.small),
        }
    )


def time_large(session: SparkSession, pairs: Pairs) -> dict[str, float]:
    say("verify, the floor and reladiff, large tables")
    comparison = comparison_of(pairs.large)
    chunks, cores = chunks_of(comparison), session.sparkContext.defaultParallelism
    return side_by_side(
        {
            "verify": partial(verify, session, pairs.large),
            "floor": partial(digest_both, comparison, [WHOLE], 1),
            "floor in chunks": partial(digest_both, comparison, chunks, cores),
            "reladiff": partial(reladiff_of_equal, pairs.large),
        }
    )


@dataclass(frozen=True)
class Verified:
    """What a verification reported, and how long making the document of it took."""

    differences: int
    document_seconds: float


def verify(session: SparkSession, pair: Pair) -> Verified:
    """The whole of a verification, up to the text that `--json` prints."""
    report = truecopy.verify(pair.source.url, pair.target.url, tables=(pair.choice,), spark=session)
    start = time.monotonic()
    document = report.to_dict()
    json.dumps(document)
    taken = time.monotonic() - start
    if report.record is not None:
        report.record.close()
    equal = pair.source_table == pair.target_table
    if document["verdict"] != ("equal" if equal else "different"):
        raise RuntimeError(f"a wrong verdict on {pair.choice}: {document['verdict']}")
    return Verified(len(document["tables"][0]["differences"]), taken)


def reladiff_of_equal(pair: Pair) -> None:
    found = reladiff(pair)
    if found:
        raise RuntimeError(f"reladiff says that {found} rows of {pair.choice} differ")


def comparison_of(pair: Pair) -> Comparison:
    """What `verify` makes of a pair of tables."""
    with (
        closing(connect(parse_endpoint(pair.source.url))) as source,
        closing(connect(parse_endpoint(pair.target.url))) as target,
    ):
        names = (
            TableName(pair.source.name, pair.source_table),
            TableName(pair.target.name, pair.target_table),
        )
        found = match(source, target, Pairing(names[:1], names[1]), Options())
    if not isinstance(found, Comparison):
        raise RuntimeError(f"{pair.choice} cannot be compared: {found.reason}")
    return found


def chunks_of(comparison: Comparison) -> list[Chunk]:
    """The chunks that `verify` cuts it into."""
    with pool.lease(comparison.source.endpoint) as session:
        return plan_chunks(cast(Reads, session), comparison, Options())


def digest_both(comparison: Comparison, chunks: Sequence[Chunk], at_once: int) -> None:
    """The digest statements alone, `at_once` on each server, and both servers at the same time."""
    with ThreadPoolExecutor(at_once) as here, ThreadPoolExecutor(at_once) as there:
        source = here.map(partial(digest, comparison.source), chunks)
        target = there.map(partial(digest, comparison.target), chunks)
        if list(source) != list(target):
            raise RuntimeError(f"{comparison.name}: equal tables have different digests")


def digest(relation: Relation, chunk: Chunk) -> Digest:
    with pool.lease(relation.endpoint) as session:
        return cast(RelationalSession, session).digest(relation, chunk)


def say(message: str) -> None:
    print(f"{time.monotonic() - _START:4.0f} s  {message}", file=sys.stderr)


def _short(rows: int) -> str:
    """1M, 50k, 123."""
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if rows >= size and rows % size == 0:
            return f"{rows // size}{letter}"
    return str(rows)


if __name__ == "__main__":
    main()
