"""The base of a log: the rows that were there when it began, read in chunks while others write.

A chunk is read later than the point at which the log begins, so it may hold what the first events say again. They
are put upon it; once they have passed the end of the copy, every row is right. Points before that cannot be
restored.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from truecopy.changelog.facts import BaseChunk, BaseTable, chunk_name
from truecopy.changelog.log import Log
from truecopy.changelog.packing import as_lists
from truecopy.changelog.stepping import own_name
from truecopy.engines import connect, pool
from truecopy.engines.lake_tables import make_durable
from truecopy.engines.protocols import ChecksRights, Introspects, Reads, ReadsAtPosition, Session
from truecopy.mapping.choice import Choice
from truecopy.model.change import OWN_PREFIX, Definition
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.model.relation import Chunk, Relation
from truecopy.model.table import Table, TableName, require_own_rows
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request
from truecopy.verify.chunks import plan_chunks
from truecopy.verify.matching import Comparison, match_tables
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE_SCHEMA = pa.schema(
    [
        ("shard", pa.string()),
        ("era", pa.int32()),
        ("key", pa.list_(pa.field("element", pa.string()))),
        ("after", pa.list_(pa.field("element", pa.string()))),
        ("schema_id", pa.string()),
    ]
)
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class SourceTable:
    """A table of a source as it is read: key first, its own types; plain values for executors."""

    described: Table
    comparison: Comparison

    @property
    def name(self) -> str:
        """As the log has it."""
        return own_name(str(self.described.name), self.relation.endpoint.database)

    @property
    def relation(self) -> Relation:
        return self.comparison.source

    @property
    def definition(self) -> Definition:
        """As rows of the base are: in the order in which they are read."""
        key = tuple(column.name for column in self.relation.key)
        return Definition(self.name, self.relation.columns, key)


@dataclass(frozen=True)
class CopyChunk:
    """One chunk to copy."""

    shard: str
    base: int
    chunk: BaseChunk
    relation: Relation
    schema_id: str

    def read(self) -> tuple[pa.Table, str | None]:
        """Its rows as a base has them; of a table without a key, with the position that they are of."""
        with pool.lease(self.relation.endpoint) as session:
            rows, position = read_chunk(session, self.relation, _chunk(self.chunk.bounds))
        return as_base_rows(self, rows), position


Copied = tuple[int, int, str | None]
"""The number of a chunk among those that are copied, its rows, and their position where it is one."""


@dataclass(frozen=True)
class CopyingChunks:
    """Chunks into files, for executors, by number; plain values."""

    folder: str
    chunks: Sequence[CopyChunk]

    def __call__(self, number: int) -> Iterator[Copied]:
        """Writes the file of a chunk, whose name says which one it is, so that it is there once."""
        rows, position = self.chunks[number].read()
        final = Path(self.folder) / self.chunks[number].chunk.name
        final.parent.mkdir(parents=True, exist_ok=True)
        unfinished = final.with_name(f"_{final.name}.{os.getpid()}")
        pq.write_table(rows, unfinished, compression="zstd")
        make_durable(unfinished)
        unfinished.replace(final)
        make_durable(final.parent)
        yield number, rows.num_rows, position


def source_tables(
    session: Session, request: Request, left_out: Mapping[str, str]
) -> list[SourceTable]:
    """The tables of one server that a log is kept of."""
    if not isinstance(session, Introspects) or not isinstance(session, Reads):
        raise UsageError(f"{session.endpoint} has no tables to begin a change log with")
    choice = Choice(request.tables)
    found = []
    for name in session.tables():
        if not choice.wants(name) or name.table.startswith(OWN_PREFIX) or str(name) in left_out:
            continue
        found.append(source_table(session, name))
    return found


def source_table(session: Session, name: TableName) -> SourceTable:
    """One table, described as it is now."""
    described = cast(Introspects, session).describe(name)
    require_own_rows(described)
    comparison = match_tables(
        session.endpoint, (described,), session.endpoint, described, Options()
    )
    if isinstance(session, ChecksRights):
        session.require_select(comparison.source)
    return SourceTable(described, comparison)


def servers_at(request: Request, start: Offset) -> dict[str, Endpoint]:
    """A server of each shard that has everything up to where the log begins."""
    keyspace = request.keyspace()
    found = {}
    for shard in keyspace.serving:
        name = shard.name if request.is_keyspace else request.name
        if name in start.marks:
            found[name] = _server_at(name, shard.servers, start.marks[name].position)
    missing = start.marks.keys() - found.keys()
    if missing:
        raise CannotFinish(
            f"shard {min(missing)} does not serve any more, and its rows are not copied yet: begin the log anew in"
            " another place"
        )
    return found


def _server_at(name: str, servers: Sequence[str], position: str) -> Endpoint:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        failure: CannotFinish | None = None
        for server in map(parse_endpoint, servers):
            try:
                with connect(server) as session:
                    if session.driver_local:
                        return server  # a file is one server
                    stands = cast(Introspects, session).position()
            except CannotFinish as error:
                failure = error
                continue
            if not stands or contains(parse_position(stands), parse_position(position)):
                return server
        if time.monotonic() > deadline:
            raise failure or CannotFinish(f"no server of shard {name} has come to {position}")
        time.sleep(0.5)


def plan_base(
    store: Log,
    base: int,
    era: int,
    server: Endpoint,
    request: Request,
    left_out: Mapping[str, str],
) -> dict[str, SourceTable]:
    """Plans the chunks of the tables of a shard that were not planned before; gives the tables."""
    with connect(server) as session:
        tables = {table.name: table for table in source_tables(session, request, left_out)}
        planned = {one.table for one in store.base_tables(base) if one.era == era}
        for table in tables.values():
            if table.name in planned:
                continue
            if not table.relation.key_width:
                _require_position(session, table)
            store.keep(table.definition)
            line = BaseTable(
                era, table.name, table.definition.schema_id, table.described.engine, None
            )
            cuts = plan_chunks(cast(Reads, session), table.comparison, Options())
            chunks = []
            for at, cut in enumerate(cuts):
                name, bounds = (
                    chunk_name(base, table.name, era, at),
                    json.dumps([cut.low, cut.high]),
                )
                chunks.append(BaseChunk(era, table.name, at, bounds, None, name))
            store.plan_table(base, line, chunks)
    return tables


def _require_position(session: Session, table: SourceTable) -> None:
    if not isinstance(session, ReadsAtPosition):
        raise UsageError(
            f"{table.name} has no key, and {session.endpoint.scheme}:// does not say of which moment its rows are: give"
            " it a key, or leave it out"
        )
    session.require_position(table.relation)


def copy_base(
    spark: SparkSession,
    store: Log,
    base: int,
    shards: Mapping[int, str],
    tables: Mapping[int, Mapping[str, SourceTable]],
    copying: Callable[[Sequence[CopyChunk]], Callable[[int], Iterator[Copied]]],
    *,
    is_alone: bool = False,
) -> Iterator[int]:
    """Copies the chunks that are not in; gives the rows of each. Shards and tables are given by era.

    `copying` makes what executors do with chunks, by their numbers; with `is_alone` they do it one after the other.
    """
    waiting = []
    for chunk in store.chunks(base):
        if chunk.rows is not None:
            continue
        table = tables[chunk.era].get(chunk.table)
        if table is None:
            raise CannotFinish(
                f"{chunk.table} is gone from the source, and was not copied yet: begin the log anew in another place"
            )
        definition = table.definition
        store.keep(definition)
        waiting.append(
            CopyChunk(shards[chunk.era], base, chunk, table.relation, definition.schema_id)
        )
    lanes = spark.sparkContext.defaultParallelism
    for at in range(0, len(waiting), 4 * lanes):
        some = waiting[at : at + 4 * lanes]
        # Secrets travel inside the function, over the wire; elements of a collection pass through a file.
        numbers = spark.sparkContext.parallelize(range(len(some)), 1 if is_alone else len(some))
        for number, rows, position in numbers.flatMap(copying(some)).collect():
            store.note_chunk(base, some[number].chunk, rows, position)
            yield rows


def read_chunk(session: Session, relation: Relation, chunk: Chunk) -> tuple[pa.Table, str | None]:
    """The rows; of a table without a key, with the position that they are of."""
    if not relation.key_width:
        found, position = cast(Any, session).fingerprinted_rows_at(relation)
        return found.drop_columns(["fingerprint"]), position
    return cast(Reads, session).rows(relation, chunk), None


def as_base_rows(one: CopyChunk, rows: pa.Table) -> pa.Table:
    """Columns of texts as arrays, with where they are of."""
    count = rows.num_rows
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.table(
        [
            pa.repeat(pa.scalar(one.shard), count),
            pa.repeat(pa.scalar(one.chunk.era, pa.int32()), count),
            as_lists(columns[: one.relation.key_width], count),
            as_lists(columns, count),
            pa.repeat(pa.scalar(one.schema_id), count),
        ],
        schema=BASE_SCHEMA,
    )


def _chunk(bounds: str) -> Chunk:
    low, high = json.loads(bounds)
    return Chunk(tuple(low) if low is not None else None, tuple(high) if high is not None else None)
