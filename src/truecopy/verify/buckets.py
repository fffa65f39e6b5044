"""Comparison through Spark, where key ranges do not serve.

That is: for keys that the two sides order differently, for tables without a key, and for sides that
Spark itself reads.

Rows are classed by the first digits of their fingerprint. One pass gives the digest of each class
on each side; equal classes hold equal rows. Only rows of differing classes travel, are counted as
+1 for the source and -1 for the target, and what does not cancel out is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from truecopy.engines import pool
from truecopy.engines.protocols import DatabaseSession, Frames, Session
from truecopy.engines.sql import BITS
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import WHOLE, Buckets, Chunk, Key, Relation
from truecopy.verify.chunks import chunk_rows, chunks_between, sample_chunks
from truecopy.verify.compare import ChunkResult, by_meaning, only_keys
from truecopy.verify.differences import SCHEMA, judge, rows_of, to_arrow, to_bytes
from truecopy.verify.matching import Comparison
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_BUCKET = 2000
MOST_DIGITS = 4
KEYS_PER_TASK = 5000
DIFFERENCES_PER_RESULT = 20_000


def compare_by_buckets(
    spark: SparkSession,
    comparison: Comparison,
    number: int,
    sides: tuple[Session, Session],
    options: Options,
) -> Iterator[ChunkResult]:
    """Compares two relations in one pass; the first result carries the digests, later ones differences."""
    relations = by_meaning(comparison.source), by_meaning(comparison.target)
    readers = [
        _Side(spark, session, relation, chunk_rows(comparison, options))
        for session, relation in zip(sides, relations, strict=True)
    ]
    digits = _digits(comparison.rows)
    digests = [reader.bucket_digests(digits) for reader in readers]
    wanted = set(sample_chunks(sorted({*digests[0], *digests[1]}), options))
    totals = [
        sum((d for bucket, d in found.items() if bucket in wanted), Digest()) for found in digests
    ]
    yield ChunkResult(number, 0, totals[0], totals[1])
    differing = [b for b in sorted(wanted) if digests[0].get(b) != digests[1].get(b)]
    if not differing:
        return
    buckets = Buckets(digits, tuple(differing))
    find = _differing_rows if relations[0].key_width else _differing_keyless
    with find(readers, buckets, options) as differences:
        for at, table in enumerate(_batches(differences), start=1):
            kinds = table.column("kind").to_pylist()
            yield ChunkResult(
                number,
                at,
                Digest(),
                Digest(),
                missing=kinds.count("missing"),
                extra=kinds.count("extra"),
                differing=kinds.count("differs"),
                differences=to_bytes(table),
            )


class _Side:
    """One side as Spark frames, whether a database answers or Spark reads the data itself."""

    def __init__(
        self, spark: SparkSession, session: Session, relation: Relation, rows: int
    ) -> None:
        self.spark = spark
        self.session = session
        self.relation = relation
        self._rows = rows
        self._chunks: list[Chunk] | None = None

    def bucket_digests(self, digits: int) -> dict[int, Digest]:
        """The digest of each class; partial ones of parts of the table add up."""
        from pyspark.sql import functions as F

        if isinstance(self.session, Frames):
            frame = self.session.fingerprint_frame(self.relation)
            bucket = F.shiftright("fingerprint", BITS - 4 * digits).alias("bucket")
            partial_sums = frame.groupBy(bucket).agg(
                F.count("*").alias("count"),
                F.sum(F.col("fingerprint").cast("decimal(38,0)")).alias("total"),
            )
        else:
            read = partial(_read_digests, self.relation, digits)
            partial_sums = self._over_chunks(read, "bucket long, count long, total decimal(38,0)")
        found: dict[int, Digest] = {}
        for bucket, count, total in partial_sums.toLocalIterator():
            found[bucket] = found.get(bucket, Digest()) + Digest(int(count), int(total))
        return found

    def fingerprints(self, relation: Relation, buckets: Buckets) -> DataFrame:
        """Keys and fingerprints of the rows of some classes."""
        from pyspark.sql import functions as F

        if isinstance(self.session, Frames):
            frame = self.session.fingerprint_frame(relation)
            bucket = F.shiftright("fingerprint", BITS - 4 * buckets.digits)
            return frame.where(bucket.isin(list(buckets.numbers)))
        keys = "".join(f"k{i} string, " for i in range(relation.key_width))
        return self._over_chunks(
            partial(_read_fingerprints, relation, buckets), f"{keys}fingerprint long"
        )

    def rows(self, keys: DataFrame) -> DataFrame:
        """Whole rows with these keys (`k0`, …)."""
        names = [f"k{i}" for i in range(self.relation.key_width)]
        if isinstance(self.session, Frames):
            rows = self.session.row_frame(self.relation)
            same = reduce(
                lambda a, b: a & b,
                (rows[f"c{i}"].eqNullSafe(keys[f"k{i}"]) for i in range(len(names))),
            )
            return rows.join(keys, same, "left_semi")
        columns = ", ".join(f"c{i} string" for i in range(len(self.relation.columns)))
        return keys.select(*names).mapInArrow(partial(_read_rows, self.relation), columns)

    def _over_chunks(self, read: Callable[[Chunk], pa.Table], schema: str) -> DataFrame:
        """Reads the parts of a database's table, each in a Spark task of its own."""
        chunks = self._own_chunks()
        numbers = self.spark.range(0, len(chunks), numPartitions=len(chunks))
        return numbers.mapInArrow(partial(_read_chunks, chunks, read), schema)

    def _own_chunks(self) -> list[Chunk]:
        """Ranges in this side's own order: the other side need not share it."""
        if self._chunks is None:
            self._chunks = [WHOLE]
            if self.relation.key_width and all(column.order for column in self.relation.key):
                session = cast(DatabaseSession, self.session)
                self._chunks = chunks_between(session.boundaries(self.relation, WHOLE, self._rows))
        return self._chunks


@contextmanager
def _differing_rows(
    readers: Sequence[_Side], buckets: Buckets, options: Options
) -> Iterator[DataFrame]:
    from pyspark.sql import functions as F

    relation = readers[0].relation
    names = [f"k{i}" for i in range(relation.key_width)]
    signed = [
        reader.fingerprints(reader.relation, buckets).withColumn("sign", F.lit(sign))
        for reader, sign in zip(readers, (1, -1), strict=True)
    ]
    balance = (
        signed[0].union(signed[1]).groupBy(*names, "fingerprint").agg(F.sum("sign").alias("n"))
    )
    keys = balance.where("n <> 0").select(*names).distinct().persist()
    sides = [
        reader.rows(keys).withColumn("side", F.lit(side)) for side, reader in enumerate(readers)
    ]
    together = (
        sides[0].union(sides[1]).repartition(*[F.col(f"c{i}") for i in range(relation.key_width)])
    )
    judge_part = partial(_judge_part, relation, options.float_tolerance)
    try:
        yield together.mapInArrow(judge_part, _DIFFERENCE_DDL)
    finally:
        # The next comparison of the same classes has the same plan, for which Spark would take these keys.
        keys.unpersist()


@contextmanager
def _differing_keyless(
    readers: Sequence[_Side],
    buckets: Buckets,
    options: Options,  # noqa: ARG001
) -> Iterator[DataFrame]:
    """Rows without a key are counted as wholes: whatever is left over on a side is missing or extra."""
    from pyspark.sql import functions as F

    signed = []
    for reader, sign in zip(readers, (1, -1), strict=True):
        everything = replace(reader.relation, key_width=len(reader.relation.columns))
        signed.append(reader.fingerprints(everything, buckets).withColumn("sign", F.lit(sign)))
    texts = [name for name in signed[0].columns if name.startswith("k")]
    row = F.first(F.array(*texts)).alias("row")
    left = (
        signed[0]
        .union(signed[1])
        .groupBy("fingerprint")
        .agg(F.sum("sign").alias("n"), row)
        .where("n <> 0")
    )
    nothing = F.lit(None).cast("array<string>")
    each = left.withColumn("_", F.explode(F.sequence(F.lit(1), F.abs("n"))))
    yield each.select(
        F.when(F.col("n") > 0, "missing").otherwise("extra").alias("kind"),
        F.array().cast("array<string>").alias("key"),
        F.when(F.col("n") > 0, F.col("row")).otherwise(nothing).alias("source"),
        F.when(F.col("n") < 0, F.col("row")).otherwise(nothing).alias("target"),
    )


_DIFFERENCE_DDL = "kind string, key array<string>, source array<string>, target array<string>"


def _read_chunks(
    chunks: Sequence[Chunk], read: Callable[[Chunk], pa.Table], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read(chunks[number]).to_batches()


def _read_digests(relation: Relation, digits: int, chunk: Chunk) -> pa.Table:
    with pool.lease(relation.endpoint) as session:
        found = cast(DatabaseSession, session).bucket_digests(relation, chunk, digits)
    return pa.table(
        {
            "bucket": pa.array(found, pa.int64()),
            "count": pa.array([digest.count for digest in found.values()], pa.int64()),
            "total": pa.array([digest.total for digest in found.values()], pa.decimal128(38, 0)),
        }
    )


def _read_fingerprints(relation: Relation, buckets: Buckets, chunk: Chunk) -> pa.Table:
    with pool.lease(relation.endpoint) as session:
        return cast(DatabaseSession, session).fingerprints(relation, chunk, buckets)


def _read_rows(relation: Relation, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with pool.lease(relation.endpoint) as session:
        for batch in batches:
            keys: list[Key] = list(
                zip(*(column.to_pylist() for column in batch.columns), strict=True)
            )
            for at in range(0, len(keys), KEYS_PER_TASK):
                wanted = keys[at : at + KEYS_PER_TASK]
                rows = cast(DatabaseSession, session).rows_by_key(relation, wanted)
                yield from only_keys(rows, wanted, relation.key_width).to_batches()


def _judge_part(
    relation: Relation, tolerance: float, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Judges the rows of one partition, in which all rows of a key are."""
    found = list(batches)
    if not found:
        return
    table = pa.Table.from_batches(found)
    here, there = ([], []) if not table.num_rows else _by_side(table)
    yield from to_arrow(
        judge(here, there, relation.types, relation.key_width, tolerance)
    ).to_batches()


def _by_side(table: pa.Table) -> tuple[list[tuple[str | None, ...]], list[tuple[str | None, ...]]]:
    sides = table.column("side").to_pylist()
    rows = rows_of(table.drop_columns(["side"]))
    here = [row for row, side in zip(rows, sides, strict=True) if side == 0]
    return here, [row for row, side in zip(rows, sides, strict=True) if side == 1]


def _digits(rows: int) -> int:
    digits = 1
    while digits < MOST_DIGITS and 16**digits * ROWS_PER_BUCKET < rows:
        digits += 1
    return digits


def _batches(differences: DataFrame) -> Iterator[pa.Table]:
    """The differences in parts that fit into the driver's memory."""
    waiting: list[list[object]] = [[], [], [], []]
    for row in differences.toLocalIterator(prefetchPartitions=True):
        for column, value in zip(waiting, row, strict=True):
            column.append(value)
        if len(waiting[0]) >= DIFFERENCES_PER_RESULT:
            yield _table(waiting)
            waiting = [[], [], [], []]
    if waiting[0]:
        yield _table(waiting)


def _table(columns: list[list[object]]) -> pa.Table:
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
