"""The capabilities of a relational engine, written once over its dialect and three primitives.

An engine supplies how to run a statement (`fetch`, `fetch_texts`, `execute`) and its introspection;
digests, fingerprints, rows and repairs follow from the SQL of `truecopy.engines.sql`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import deferred, loading, sql
from truecopy.engines.protocols import KEYS_PER_QUERY, Statement
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import Between, Buckets, Chunk, Key, Relation
from truecopy.model.table import TableName


class NotAValue(CannotFinish):
    """A text that the column's type refuses, such as a key of the other side that is no UUID."""


class RelationalSession(ABC):
    """One connection to a database that speaks SQL."""

    endpoint: Endpoint
    dialect: sql.Dialect
    driver_local = False

    @abstractmethod
    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
        """The rows of a small result."""

    @abstractmethod
    def fetch_texts(self, statement: Statement, names: Sequence[str]) -> pa.Table:
        """A result of text columns, as Arrow strings."""

    def fetch_all_texts(self, statements: Sequence[Statement], names: Sequence[str]) -> pa.Table:
        """The results of statements that have the same columns, one after the other."""
        parts = [self.fetch_texts(statement, names) for statement in statements]
        none = pa.schema([(name, pa.string()) for name in names]).empty_table()
        return pa.concat_tables(parts) if parts else none

    @abstractmethod
    def execute(self, statement: Statement) -> int:
        """Runs a statement inside the open transaction; gives the number of rows it changed."""

    def delete_all(self, relation: Relation, annotation: str | None = None) -> int:
        statement = sql.delete_all_sql(self.dialect, relation)
        marked = loading.comment(annotation) + statement.sql
        return self.execute(Statement(marked, statement.values))

    @abstractmethod
    def begin(self) -> None:
        """Opens a writing transaction in which the order of foreign keys does not matter, where possible."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def literal(self, value: object) -> str:
        """A value as the engine's own client reads it."""

    transaction_start: tuple[str, ...] = ("BEGIN",)
    """What a script of statements starts each transaction with."""

    def digest(self, relation: Relation, chunk: Chunk) -> Digest:
        if relation.deferred:
            return deferred.digest_of_table(self.fingerprints(relation, chunk))
        found = Digest()
        for table in relation.tables:
            ((count, total),) = self.fetch(self.digest_sql(relation, table, chunk))
            found += Digest(int(count), int(total or 0))
        return found

    def digest_sql(self, relation: Relation, table: TableName, chunk: Chunk) -> Statement:
        """Rows of one table, and the sum of their fingerprints."""
        return sql.digest_sql(self.dialect, relation, table, chunk)

    def bucket_digests(self, relation: Relation, chunk: Chunk, digits: int) -> dict[int, Digest]:
        if relation.deferred:
            return deferred.bucket_digests_of_table(self.fingerprints(relation, chunk), digits)
        found: dict[int, Digest] = {}
        for table in relation.tables:
            statement = sql.bucket_digest_sql(self.dialect, relation, table, chunk, digits)
            for bucket, count, total in self.fetch(statement):
                found[int(bucket)] = found.get(int(bucket), Digest()) + Digest(
                    int(count), int(total)
                )
        return found

    def fingerprints(
        self, relation: Relation, chunk: Chunk, buckets: Buckets | None = None
    ) -> pa.Table:
        # A bucket is one of the whole fingerprint, which the database does not know where columns are deferred.
        pushed = None if relation.deferred else buckets
        parts = []
        for table in relation.tables:
            raw = self.fetch_fingerprints(relation, table, chunk, pushed)
            parts.append(deferred.finish_fingerprints(raw, relation))
        found = pa.concat_tables(parts)
        if buckets is None or pushed is not None:
            return found
        shifted = pc.shift_right(found.column("fingerprint"), sql.BITS - 4 * buckets.digits)
        return found.filter(pc.is_in(shifted, value_set=pa.array(buckets.numbers, pa.int64())))

    def fetch_fingerprints(
        self, relation: Relation, table: TableName, chunk: Chunk, buckets: Buckets | None
    ) -> pa.Table:
        """Columns `k…` (text), `f` (int64) and `d…` (text) of one table."""
        statement = sql.fingerprints_sql(self.dialect, relation, table, chunk, buckets)
        return self._fetch_fingerprints(relation, statement)

    def _fetch_fingerprints(self, relation: Relation, statement: Statement) -> pa.Table:
        found = self.fetch_texts(statement, sql.fingerprint_names(relation))
        place = relation.key_width
        return found.set_column(place, "f", pc.cast(found.column("f"), pa.int64()))

    def fingerprints_by_key(self, relation: Relation, keys: Sequence[Key]) -> pa.Table:
        """Key and fingerprint of the rows with these keys; a text that is no value has no row."""
        parts = []
        for at in range(0, len(keys), KEYS_PER_QUERY):
            parts += self._fingerprints_by_key(relation, keys[at : at + KEYS_PER_QUERY])
        if parts:
            return pa.concat_tables(parts)
        texts = [(f"k{i}", pa.string()) for i in range(relation.key_width)]
        return pa.schema([*texts, ("fingerprint", pa.int64())]).empty_table()

    def _fingerprints_by_key(self, relation: Relation, keys: Sequence[Key]) -> list[pa.Table]:
        try:
            raw = [
                self._fetch_fingerprints(
                    relation, sql.fingerprints_by_key_sql(self.dialect, relation, table, keys)
                )
                for table in relation.tables
            ]
        except NotAValue:
            if len(keys) == 1:
                return []
            half = len(keys) // 2
            return [
                *self._fingerprints_by_key(relation, keys[:half]),
                *self._fingerprints_by_key(relation, keys[half:]),
            ]
        return [deferred.finish_fingerprints(part, relation) for part in raw]

    def rows(self, relation: Relation, chunk: Chunk) -> pa.Table:
        return self._rows(
            relation, [sql.rows_sql(self.dialect, relation, t, chunk) for t in relation.tables]
        )

    def fingerprinted_rows(self, relation: Relation, chunk: Chunk) -> pa.Table:
        """Rows with their fingerprints, each table by one statement and so one snapshot."""
        statements = [
            sql.fingerprinted_rows_sql(self.dialect, relation, table, chunk)
            for table in relation.tables
        ]
        raws = [self.fetch_texts(each, [*_row_names(relation), "f"]) for each in statements]
        return pa.concat_tables(
            [deferred.finish_fingerprinted(raw, _of_hex(raw.column("f")), relation) for raw in raws]
        )

    def rows_between(self, relation: Relation, between: Between) -> pa.Table:
        """Rows by the relation's first column, in its order."""
        return self._rows(
            relation,
            [sql.rows_between_sql(self.dialect, relation, t, between) for t in relation.tables],
        )

    def count_between(self, relation: Relation, between: Between) -> int:
        """How many rows these are."""
        counts = [
            self.fetch(sql.count_between_sql(self.dialect, relation, t, between))
            for t in relation.tables
        ]
        return sum(int(rows[0][0]) for rows in counts)

    def rows_by_key(
        self, relation: Relation, keys: Sequence[Key], per_query: int = KEYS_PER_QUERY
    ) -> pa.Table:
        batches = [keys[at : at + per_query] for at in range(0, len(keys), per_query)]
        statements = [
            sql.rows_by_key_sql(self.dialect, relation, table, batch)
            for table in relation.tables
            for batch in batches
        ]
        try:
            return self._rows(relation, statements)
        except NotAValue:
            # Such a key is not in this database; the others may be.
            if len(keys) == 1:
                return self._rows(relation, [])
            half = len(keys) // 2
            halves = keys[:half], keys[half:]
            return pa.concat_tables([self.rows_by_key(relation, it, per_query) for it in halves])

    def rows_by_fingerprint(self, relation: Relation, fingerprints: Sequence[int]) -> pa.Table:
        parts = []
        for table in relation.tables:
            statement = sql.rows_by_fingerprint_sql(self.dialect, relation, table, fingerprints)
            raw = self.fetch_texts(statement, [*_row_names(relation), "f"])
            numbers = pc.cast(raw.column("f"), pa.int64())
            rows = deferred.finish_fingerprinted(raw, numbers, relation)
            wanted = pa.array(fingerprints, pa.int64())
            parts.append(rows.filter(pc.is_in(rows.column("fingerprint"), value_set=wanted)))
        return pa.concat_tables(parts)

    def extent(self, relation: Relation) -> tuple[int, int] | None:
        found = [
            self.fetch(sql.extent_sql(self.dialect, relation, table))[0]
            for table in relation.tables
        ]
        lows = [int(low) for low, _ in found if low is not None]
        highs = [int(high) for _, high in found if high is not None]
        return (min(lows), max(highs)) if lows else None

    def boundaries(self, relation: Relation, chunk: Chunk, rows: int) -> list[Key]:
        # Tables that are merged share their key space: cutting by the first one is good enough,
        # since a boundary is only a place to cut, not a promise of size.
        found: dict[Key, None] = {}
        rest, step = chunk, rows
        while True:
            table = relation.tables[0]
            row = self.fetch(sql.boundary_sql(self.dialect, relation, table, rest, step))
            if not row:
                return list(found)
            key = tuple(str(text) for text in row[0])
            if key == chunk.low or key in found:  # more rows than that share one key: look further
                step *= 2
                continue
            found[key] = None
            rest, step = Chunk(key, chunk.high), rows

    def insert(self, relation: Relation, row: Sequence[str | None]) -> Statement:
        return sql.insert_sql(self.dialect, relation, row)

    def update(
        self, relation: Relation, row: Sequence[str | None], changed: Sequence[int]
    ) -> Statement:
        return sql.update_sql(self.dialect, relation, row, changed)

    def delete(self, relation: Relation, key: Key) -> Statement:
        return sql.delete_sql(self.dialect, relation, key)

    def script(self, transaction: Sequence[Statement]) -> str:
        lines = [f"{line};" for line in self.transaction_start]
        lines += [f"{self._written_out(statement)};" for statement in transaction]
        return "\n".join([*lines, "COMMIT;", ""])

    def apply(self, transaction: Iterable[Statement]) -> None:
        self.begin()
        try:
            for statement in transaction:
                changed = self.execute(statement)
                if changed != 1:
                    raise CannotFinish(
                        f"a repair statement changed {changed} rows instead of 1 on {self.endpoint}; "
                        f"the target was written to meanwhile: rolled back, verify again"
                    )
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def _written_out(self, statement: Statement) -> str:
        """Placeholders replaced by values; those inside a quoted name are part of the name."""
        values = iter(statement.values)
        token = (
            re.compile(r'"(?:[^"]|"")*"|\?')
            if self.dialect.placeholder == "?"
            else re.compile("%%|%s")
        )

        def write(match: re.Match[str]) -> str:
            found = match[0]
            if found == self.dialect.placeholder:
                return self.literal(next(values))
            return "%" if found == "%%" else found

        return token.sub(write, statement.sql)

    def _rows(self, relation: Relation, statements: Sequence[Statement]) -> pa.Table:
        found = self.fetch_all_texts(statements, _row_names(relation))
        return deferred.finish_rows(found, relation)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SharedSession(RelationalSession):
    """One of a server that is written to while others read from one state of it."""

    view_start: tuple[str, ...]
    """What opens a transaction whose reads all see one state."""

    def open_view(self) -> None:
        for line in self.view_start:
            self.execute(Statement(line))


def _of_hex(hashes: pa.ChunkedArray) -> pa.ChunkedArray:
    """Fingerprints of hashes that are given by 16 hex digits each."""
    parts = []
    for part in hashes.chunks:
        if not len(part):
            continue
        _, offsets, digits = part.buffers()
        first, last = np.frombuffer(offsets, np.int32)[[part.offset, part.offset + len(part)]]
        numbers = np.frombuffer(bytes.fromhex(str(digits[int(first) : int(last)], "ascii")), ">u8")
        parts.append(pa.array((numbers >> 64 - sql.BITS).astype(np.int64)))
    return pa.chunked_array(parts, pa.int64())


def _row_names(relation: Relation) -> list[str]:
    return [f"c{i}" for i in range(len(relation.columns))]
