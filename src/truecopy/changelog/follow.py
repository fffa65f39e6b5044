"""A copy of a database in another one, kept up to date: dump, then follow (`truecopy.changelog.forward`).

How far it has come is kept in the target. A batch that was applied, and not noted, is applied again: that changes
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.changelog.base import SourceTable, read_chunk, servers_at, source_tables
from truecopy.changelog.forward import (
    CREATE_TURNS,
    DELETED,
    TOKEN,
    TURNS,
    ForwardTable,
    dumped,
    forward_table,
    move,
    with_own_columns,
)
from truecopy.changelog.loading import find_or_make, is_empty, row_target
from truecopy.changelog.record import Listener, RecordReport, open_stream
from truecopy.changelog.stepping import CURRENT, NEVER, Steps, databases, identity, own_name
from truecopy.engines import connect, pool
from truecopy.engines.lines import Lines
from truecopy.engines.protocols import Reads, Session
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import TRUNCATE
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.relation import Chunk, Relation
from truecopy.model.table import TableName
from truecopy.spark import explained
from truecopy.spark import session as spark_session
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import Part
from truecopy.stream.offset import Offset
from truecopy.stream.request import Request
from truecopy.verify.chunks import plan_chunks
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPIES, CHUNKS = "truecopy_follow", "truecopy_follow_chunk"
_CREATE = (
    f"""CREATE TABLE IF NOT EXISTS {COPIES} (
        copy VARCHAR(64) NOT NULL PRIMARY KEY, source TEXT NOT NULL, ends TEXT NOT NULL, dumped_to TEXT,
        stop INTEGER NOT NULL)""",
    f"""CREATE TABLE IF NOT EXISTS {CHUNKS} (
        copy VARCHAR(64) NOT NULL, shard VARCHAR(190) NOT NULL, table_name VARCHAR(190) NOT NULL,
        number INTEGER NOT NULL, bounds TEXT NOT NULL, held BIGINT, PRIMARY KEY (copy, shard, table_name, number))""",
    CREATE_TURNS,
)
_COPY = "copy"
_MOST_ROWS = 20_000


@dataclass(frozen=True)
class DumpChunk:
    """One chunk to dump; plain values."""

    shard: str
    table: str
    number: int
    bounds: str
    read: Relation
    write: Relation
    places: tuple[int, ...]


@dataclass(frozen=True)
class DumpingChunks:
    """Chunks for executors, by number."""

    chunks: Sequence[DumpChunk]
    endpoint: Endpoint

    def __call__(self, number: int) -> Iterator[int]:
        """Writes one chunk and its line in one transaction; gives its rows."""
        one = self.chunks[number]
        low, high = json.loads(one.bounds)
        chunk = Chunk(tuple(low) if low else None, tuple(high) if high else None)
        with pool.lease(one.read.endpoint) as session:
            rows, _ = read_chunk(session, one.read, chunk)
        ordered = pa.table({f"c{i}": rows.column(place) for i, place in enumerate(one.places)})
        with pool.lease(self.endpoint) as session:
            target: Any = session
            lines = Lines(target)
            with lines.transaction():
                if not lines.execute(
                    f"UPDATE {CHUNKS} SET held = ? WHERE copy = ? AND shard = ? AND table_name = ? AND number = ?"
                    " AND held IS NULL",
                    *(rows.num_rows, _COPY, one.shard, one.table, one.number),
                ):
                    return  # another attempt has done it
                if rows.num_rows:
                    target.load(one.write, dumped(ordered))
        yield rows.num_rows


@dataclass(frozen=True)
class Moving:
    """What executors need to apply changes; plain values. One task for each shard, since its changes have an order.

    Attributes:
        replaying: Whether they are from before the end of the dump.
        is_whole: Whether one shard has all rows.
    """

    parts: Sequence[Sequence[Part]]
    endpoint: Endpoint
    relations: Mapping[str, Relation]
    databases: Mapping[str, str]
    replaying: bool
    is_whole: bool

    def __call__(self, number: int) -> Iterator[int]:
        """Applies the changes of one shard; gives how many rows have moved."""
        tables: dict[str, ForwardTable] = {}
        for changes in whole_transactions(self.parts[number]):
            for schema_id in changes.column("schema_id").unique().to_pylist():
                if schema_id and schema_id not in tables:
                    definition = Definitions().find(schema_id)
                    name = own_name(definition.table, self.databases.get(_shard(changes), ""))
                    if name not in self.relations:
                        raise CannotFinish(
                            f"{name} was not there when the copy began: begin the copy anew, or leave it"
                            " out (--tables)"
                        )
                    tables[schema_id] = forward_table(self.relations[name], definition)
            yield self._moved(changes, tables)

    def _moved(self, changes: pa.Table, tables: Mapping[str, ForwardTable]) -> int:
        moved = 0
        with pool.lease(self.endpoint) as session:
            lines = Lines(cast(Any, session))
            for table in changes.column("table").unique().to_pylist():
                of_table = changes.filter(pc.equal(changes.column("table"), table))
                self._require_whole(table, of_table)
                relation = tables[of_table.column("schema_id")[0].as_py()].relation
                moved += move(lines, session, relation, of_table, tables, replaying=self.replaying)
        return moved

    def _require_whole(self, table: str, changes: pa.Table) -> None:
        if not self.is_whole and pc.any(pc.equal(changes.column("kind"), TRUNCATE)).as_py():
            raise CannotFinish(
                f"{table} was truncated on shard {_shard(changes)}, and which rows of the copy are that shard's is not"
                " known: empty the copy's table, and begin the copy anew"
            )


def whole_transactions(parts: Sequence[Part]) -> Iterator[pa.Table]:
    """The changes of one shard in tables that end with a transaction."""
    waiting = list[pa.RecordBatch]()
    for part in parts:
        for batch in part.read():
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= _MOST_ROWS:
                table = pa.Table.from_batches(waiting)
                orders = table.column("commit_order")
                is_last = pc.equal(orders, pc.max(orders))
                whole = table.filter(pc.invert(is_last))
                waiting = table.filter(is_last).to_batches()
                if whole.num_rows:
                    yield whole
    if waiting:
        yield pa.Table.from_batches(waiting)


class Copy:
    """One run of a copy that is kept up to date."""

    def __init__(
        self,
        request: Request,
        to: str,
        *,
        interval: float = 0.5,
        master: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        self._request = request
        self._endpoint = parse_endpoint(to)
        self._interval = interval
        self._master = master
        self._listener = listener or Listener()
        self._is_told_to_stop = False
        self._moved = self._dumped = 0

    def stop(self) -> None:
        """Ends the run after the batch that is being applied; may be called by a signal."""
        self._is_told_to_stop = True

    def run(self, until: str = NEVER) -> RecordReport:
        """Dumps what is not dumped, then applies changes to the end asked for."""
        spark = spark_session(self._master)
        with (
            open_stream(self._request, self._master, self._listener.said) as stream,
            explained(),
        ):
            offset = self._claim(stream)
            tables = self._tables(stream)
            if not self._dump(spark, stream, offset, tables):
                return self._report()
            relations = {
                name: relation for _, of in tables.items() for name, (_, relation, _) in of.items()
            }
            # After the dump, whose rows are right only once its end is passed.
            limit = stream.current() if until == CURRENT else None
            self._follow(spark, stream, relations, limit)
        return self._report()

    def _report(self) -> RecordReport:
        with pool.lease(self._endpoint) as session:
            return RecordReport(self._moved, self._dumped, str(self._ends(session).token()))

    def _claim(self, stream: KeyspaceStream) -> Offset:
        source = identity(self._request)
        with pool.lease(self._endpoint) as session:
            lines = Lines(cast(Any, session))
            lines.create(_CREATE)
            found = lines.look(f"SELECT source FROM {COPIES} WHERE copy = ?", _COPY)
            if not found:
                start = stream.visible()
                with lines.transaction():
                    lines.execute(
                        f"INSERT INTO {COPIES} (copy, source, ends, stop) VALUES (?, ?, ?, 0)",
                        *(_COPY, source, json.dumps(start.plain())),
                    )
            elif found[0][0] != source:
                raise UsageError(f"{self._endpoint} is a copy of {found[0][0]}, not of {source}")
            with lines.transaction():
                lines.execute(f"UPDATE {COPIES} SET stop = 0 WHERE copy = ?", _COPY)
            return self._ends(session)

    def _ends(self, session: Session) -> Offset:
        rows = Lines(cast(Any, session)).look(f"SELECT ends FROM {COPIES} WHERE copy = ?", _COPY)
        return Offset.parse(json.loads(rows[0][0]))

    # The dump

    def _tables(
        self, stream: KeyspaceStream
    ) -> dict[str, dict[str, tuple[SourceTable, Relation, tuple[int, ...]]]]:
        """By shard and name: the source's table, the copy's columns, and where these are in rows that are read."""
        left_out = stream.left_out()
        found = {}
        for shard in self._request.keyspace().serving:
            name = shard.name if self._request.is_keyspace else self._request.name
            with connect(parse_endpoint(shard.servers[0])) as source:
                tables = source_tables(source, self._request, left_out)
            _refuse_same_names(tables)
            with pool.lease(self._endpoint) as target:
                found[name] = {table.name: (table, *self._onto(target, table)) for table in tables}
        return found

    def _onto(self, target: Session, table: SourceTable) -> tuple[Relation, tuple[int, ...]]:
        if not table.relation.key_width:
            raise UsageError(
                f"{table.name} has no key, by which a row of the copy could be found: leave it out (--tables)"
            )
        key = tuple(column.name for column in table.relation.key)
        bare = TableName(None, table.described.name.table)
        keyed = with_own_columns(replace(table.described, name=bare, keys=(key,)))
        found = row_target(target, keyed, find_or_make(target, keyed))
        lines = Lines(cast(Any, target))
        name = str(found.relation.tables[0])
        with lines.transaction():
            if not lines.fetch(f"SELECT 1 FROM {TURNS} WHERE table_name = ?", name):
                lines.execute(f"INSERT INTO {TURNS} (table_name, turn) VALUES (?, 0)", name)
        names = [column.name for column in keyed.columns]
        relation, places = _own_last(found.relation, found.places, names)
        read = [column.name for column in table.relation.columns]
        return relation, tuple(read.index(names[place]) for place in places[:-2])

    def _dump(
        self,
        spark: SparkSession,
        stream: KeyspaceStream,
        start: Offset,
        tables: Mapping[str, Mapping[str, tuple[SourceTable, Relation, tuple[int, ...]]]],
    ) -> bool:
        """Dumps the chunks that are not in; False where it was stopped before."""
        with pool.lease(self._endpoint) as target:
            lines = Lines(cast(Any, target))
            if self._dumped_to(lines) is not None:
                return True
            waiting = self._planned(target, lines, start, tables)
            lanes = 1 if target.driver_local else spark.sparkContext.defaultParallelism
        for at in range(0, len(waiting), lanes):
            some = waiting[at : at + lanes]
            work = DumpingChunks(some, self._endpoint)
            rows = (
                spark.sparkContext.parallelize(range(len(some)), len(some)).flatMap(work).collect()
            )
            self._dumped += sum(rows)
            self._listener.copied(sum(rows))
            if self._is_stopping():
                return False
        with pool.lease(self._endpoint) as target:
            lines = Lines(cast(Any, target))
            with lines.transaction():
                end = json.dumps(stream.current().plain())
                lines.execute(f"UPDATE {COPIES} SET dumped_to = ? WHERE copy = ?", end, _COPY)
        return True

    def _dumped_to(self, lines: Lines) -> Offset | None:
        """The end of the source's log when the dump was complete; None while it is not."""
        ((text,),) = lines.look(f"SELECT dumped_to FROM {COPIES} WHERE copy = ?", _COPY)
        return Offset.parse(json.loads(text)) if text else None

    def _planned(
        self,
        target: Session,
        lines: Lines,
        start: Offset,
        tables: Mapping[str, Mapping[str, tuple[SourceTable, Relation, tuple[int, ...]]]],
    ) -> list[DumpChunk]:
        waiting = []
        begun = set()
        for shard, server in servers_at(self._request, start).items():
            for name, (table, relation, places) in tables[shard].items():
                chunks = self._chunks(lines, shard, name)
                if not chunks:
                    if name not in begun and not is_empty(target, relation):
                        raise UsageError(
                            f"{relation.tables[0]} in {self._endpoint} is not empty: copy into another database"
                        )
                    self._plan(lines, shard, table, server)
                    chunks = self._chunks(lines, shard, name)
                begun.add(name)
                waiting += [
                    DumpChunk(shard, name, number, bounds, table.relation, relation, places)
                    for number, bounds, held in chunks
                    if held is None
                ]
        return waiting

    def _chunks(self, lines: Lines, shard: str, table: str) -> list[tuple[int, str, int | None]]:
        rows = lines.look(
            f"SELECT number, bounds, held FROM {CHUNKS} WHERE copy = ? AND shard = ? AND table_name = ?"
            " ORDER BY number",
            *(_COPY, shard, table),
        )
        return [(int(number), bounds, held) for number, bounds, held in rows]

    def _plan(self, lines: Lines, shard: str, table: SourceTable, server: Endpoint) -> None:
        with connect(server) as source:
            chunks = plan_chunks(cast(Reads, source), table.comparison, Options())
        with lines.transaction():
            for number, chunk in enumerate(chunks):
                lines.execute(
                    f"INSERT INTO {CHUNKS} (copy, shard, table_name, number, bounds) VALUES (?, ?, ?, ?, ?)",
                    *(_COPY, shard, table.name, number, json.dumps([chunk.low, chunk.high])),
                )

    # The changes

    def _follow(
        self,
        spark: SparkSession,
        stream: KeyspaceStream,
        relations: Mapping[str, Relation],
        limit: Offset | None,
    ) -> None:
        with pool.lease(self._endpoint) as session:
            offset = self._ends(session)
            dumped_to = self._dumped_to(Lines(cast(Any, session)))
        assert dumped_to is not None

        def apply(before: Offset, after: Offset) -> None:
            parts = by_shard(stream.parts(before, after, 1))
            replaying = not stream.has_reached(before, dumped_to)
            where = databases(self._request)
            is_whole = len(before.marks) == 1
            moving = Moving(parts, self._endpoint, relations, where, replaying, is_whole)
            self._apply(spark, moving, after)

        steps = Steps(stream, self._request, self._interval, apply, self._is_stopping)
        steps.go(offset, limit)

    def _apply(self, spark: SparkSession, moving: Moving, after: Offset) -> None:
        if shards := len(moving.parts):
            numbers = spark.sparkContext.parallelize(range(shards), self._lanes(shards))
            moved = sum(numbers.flatMap(moving).collect())
            self._moved += moved
            self._listener.recorded(moved)
        with pool.lease(self._endpoint) as session:
            lines = Lines(cast(Any, session))
            with lines.transaction():
                lines.execute(
                    f"UPDATE {COPIES} SET ends = ? WHERE copy = ?", json.dumps(after.plain()), _COPY
                )

    def _lanes(self, shards: int) -> int:
        with pool.lease(self._endpoint) as session:
            return 1 if session.driver_local else shards  # a file has one writer

    def _is_stopping(self) -> bool:
        if self._is_told_to_stop:
            return True
        with pool.lease(self._endpoint) as session:
            rows = Lines(cast(Any, session)).look(
                f"SELECT stop FROM {COPIES} WHERE copy = ?", _COPY
            )
        return bool(rows and int(rows[0][0]))


def _refuse_same_names(tables: Sequence[SourceTable]) -> None:
    seen: dict[str, str] = {}
    for table in tables:
        bare = table.described.name.table
        if bare in seen:
            raise UsageError(
                f"{seen[bare]} and {table.name} would be one table of the copy: leave one out (--tables)"
            )
        seen[bare] = table.name


def _shard(changes: pa.Table) -> str:
    """Of changes that are all of one."""
    return str(changes.column("shard")[0].as_py())


def by_shard(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts of one shard together, in their order."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(getattr(part, "shard", ""), []).append(part)
    return list(found.values())


def _own_last(
    relation: Relation, places: tuple[int, ...], names: Sequence[str]
) -> tuple[Relation, tuple[int, ...]]:
    """The relation with our two columns at its end."""
    order = sorted(
        range(len(places)),
        key=lambda at: (names[places[at]] == DELETED, names[places[at]] == TOKEN),
    )
    ordered = replace(
        relation,
        columns=tuple(relation.columns[at] for at in order),
        types=tuple(relation.types[at] for at in order),
    )
    return ordered, tuple(places[at] for at in order)
