"""Capabilities of an engine. Code asks for the capability that it needs, never for an engine.

A session is one connection to one database; it is used by one thread at a time. Whatever reads
rows gives Arrow tables of canonical text: columns `k0`, `k1`, … and `fingerprint` (int64) for
fingerprints, `c0`, `c1`, … for whole rows, in the order of the relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import pyarrow as pa

from truecopy.engines.advice import Advisor
from truecopy.engines.array_views import ArrayViews
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.fingerprint import Digest
from truecopy.model.relation import Between, Buckets, Chunk, Key, Relation
from truecopy.model.table import Column, ForeignKey, Table, TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


KEYS_PER_QUERY = 1000
"""How many keys a statement names."""


class Session(Protocol):
    """One connection; closed when its block ends."""

    endpoint: Endpoint
    driver_local: bool
    """True for files of one machine, which executors on other machines cannot open."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class Introspects(Protocol):
    """Says which tables there are and how they are made."""

    def tables(self) -> list[TableName]:
        """Every table of the database; views are not tables."""
        ...

    def find(self, name: str) -> TableName | None:
        """The table or view that a user means by `name` (`orders`, `sales.orders`), if it exists."""
        ...

    def describe(self, name: TableName) -> Table:
        """The definition of a table; a view is refused with the reason."""
        ...

    def position(self) -> str | None:
        """Where the database's log stands now, in its own form; None where it has none or hides it."""
        ...


@runtime_checkable
class HasHome(Protocol):
    """Has a schema for names that are written without one."""

    def home(self) -> str | None:
        """That schema, as `tables` calls it."""
        ...


@runtime_checkable
class HidesTables(Protocol):
    """Shows its users only the tables that they have a right on."""

    def denial(self, names: Sequence[str]) -> CannotFinish | None:
        """Names the right without which none of these tables, the likeliest last, can be found.

        None where no right is missing: there is no such table.
        """
        ...


@runtime_checkable
class ChecksRights(Protocol):
    """Knows which columns its user may read."""

    def require_select(self, relation: Relation) -> None:
        """Raises `CannotFinish`, with the right that is missing, where one of the columns may not be."""
        ...


@runtime_checkable
class Digests(Protocol):
    """Computes fingerprints inside the database."""

    def digest(self, relation: Relation, chunk: Chunk) -> Digest:
        """Count and sum of the fingerprints of a chunk."""
        ...

    def fingerprints(
        self, relation: Relation, chunk: Chunk, buckets: Buckets | None = None
    ) -> pa.Table:
        """Key and fingerprint of every row of a chunk (of these buckets)."""
        ...

    def bucket_digests(self, relation: Relation, chunk: Chunk, digits: int) -> dict[int, Digest]:
        """The digests of the classes that the first `digits` of the fingerprint make."""
        ...


@runtime_checkable
class FingerprintsKeys(Protocol):
    """Computes the fingerprints of single rows inside the database."""

    def fingerprints_by_key(self, relation: Relation, keys: Sequence[Key]) -> pa.Table:
        """Key and fingerprint of the rows with these keys; a key that is not there gives no row.

        A collation that ignores case answers with rows of other keys as well.
        """
        ...


@runtime_checkable
class KeepsAnnotations(Protocol):
    """Has a log that tells which writes were annotated."""

    def annotation_gaps(self) -> list[str]:
        """What keeps annotations out of the log, a line each with its remedy; empty when all is well."""
        ...


@runtime_checkable
class Reads(Protocol):
    """Reads rows as canonical text, and finds where a key range may be cut."""

    def rows(self, relation: Relation, chunk: Chunk) -> pa.Table:
        """All columns of the rows of a chunk."""
        ...

    def fingerprinted_rows(self, relation: Relation, chunk: Chunk) -> pa.Table:
        """All columns of the rows of a chunk, and `fingerprint` (int64), by one statement a table.

        What is read and what its fingerprint says are one snapshot: no change comes between them.
        """
        ...

    def rows_by_key(
        self, relation: Relation, keys: Sequence[Key], per_query: int = KEYS_PER_QUERY
    ) -> pa.Table:
        """All columns of the rows with these keys, of which one statement names a part."""
        ...

    def rows_by_fingerprint(self, relation: Relation, fingerprints: Sequence[int]) -> pa.Table:
        """All columns, and `fingerprint`, of the rows with these fingerprints: for tables without a key."""
        ...

    def extent(self, relation: Relation) -> tuple[int, int] | None:
        """Smallest and largest value of a key that is one whole number; None for an empty table."""
        ...

    def boundaries(self, relation: Relation, chunk: Chunk, rows: int) -> list[Key]:
        """Keys inside the chunk that are `rows` rows apart, in the order of the key."""
        ...


@runtime_checkable
class ReadsAtPosition(Protocol):
    """Reads whole tables at a known position of the log: what tables without a key are copied by."""

    def require_position(self, relation: Relation) -> None:
        """Raises `UsageError` where that cannot be, or the log will lack what is inserted afterwards."""
        ...

    def fingerprinted_rows_at(self, relation: Relation) -> tuple[pa.Table, str]:
        """All columns of all rows, and `fingerprint` (int64); and the position that they are of.

        Of the transactions that changed the table, those whose position it contains are in, and no other.
        """
        ...


@runtime_checkable
class HidesCascades(Protocol):
    """Has foreign keys that change rows by themselves, of which its log may not tell."""

    def logs_cascades(self) -> bool:
        """Whether the log tells, after all."""
        ...

    def snapshot(self, tables: Sequence[TableName]) -> AbstractContextManager[str]:
        """While it is open, this session reads one state of all these tables; gives the position that it is of."""
        ...


@runtime_checkable
class TellsVisible(Protocol):
    """A server whose log may be ahead of what its tables show, and that tells both."""

    def log_end(self) -> str | None:
        """A position behind every commit that anybody can see by now, and perhaps behind others."""
        ...

    def visible_position(self) -> str | None:
        """A position up to which everything can be read by whoever asks now; None where that cannot be told."""
        ...


@runtime_checkable
class ReadsInOrder(Protocol):
    """Reads rows by the value of one column, the relation's first."""

    def rows_between(self, relation: Relation, between: Between) -> pa.Table:
        """All columns of these rows, in the order of the first one and then of the key."""
        ...

    def count_between(self, relation: Relation, between: Between) -> int:
        """How many rows these are."""
        ...


@dataclass(frozen=True)
class Statement:
    """One SQL statement with its values apart."""

    sql: str
    values: tuple[object, ...] = ()


@runtime_checkable
class Writes(Protocol):
    """Changes rows, and prints the statements that would."""

    def insert(self, relation: Relation, row: Sequence[str | None]) -> Statement: ...
    def update(
        self, relation: Relation, row: Sequence[str | None], changed: Sequence[int]
    ) -> Statement: ...
    def delete(self, relation: Relation, key: Key) -> Statement: ...

    def script(self, transaction: Sequence[Statement]) -> str:
        """A transaction as text for the engine's own client, values written out."""
        ...

    def apply(self, transaction: Iterable[Statement]) -> None:
        """Runs the statements in one transaction; each must change exactly one row."""
        ...


@runtime_checkable
class Transacts(Protocol):
    """Opens one writing transaction at a time."""

    def begin(self) -> None:
        """Opens it, such that the order of foreign keys does not matter, where possible."""
        ...

    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def execute(self, statement: Statement) -> int:
        """Runs a statement inside the open transaction; gives the number of rows it changed."""
        ...


@runtime_checkable
class Loads(Transacts, Protocol):
    """Writes many rows at once, inside the open transaction.

    `annotation` marks the writes as those of a task in the database's log (DESIGN: annotation),
    where it has one that can carry it.
    """

    def load(self, relation: Relation, rows: pa.Table, annotation: str | None = None) -> int:
        """Inserts rows of canonical text (`c0`, `c1`, …); gives how many.

        Columns that the database computes are passed over. A row that is there already, or that
        its columns cannot hold as it is, raises `RowRefused` with its name; the transaction is then
        only good for a rollback.
        """
        ...


@runtime_checkable
class DeletesKeys(Transacts, Protocol):
    """Removes many rows at once, inside the open transaction."""

    def delete_keys(self, relation: Relation, keys: pa.Table, annotation: str | None = None) -> int:
        """Deletes the rows with these keys (`k0`, `k1`, …, no NULL); gives how many there were."""
        ...

    def delete_all(self, relation: Relation, annotation: str | None = None) -> int:
        """Deletes every row of a relation; gives how many there were, where that is known."""
        ...


@runtime_checkable
class Cascades(DeletesKeys, Protocol):
    """Can let its foreign keys change rows while others are written, or keep them from it, as is wanted."""

    def cascading(self) -> AbstractContextManager[None]:
        """Inside the open transaction: until the block ends foreign keys act, which they otherwise do not."""
        ...

    def move_row(
        self, relation: Relation, key: Key, row: Sequence[str | None], annotation: str | None = None
    ) -> int:
        """Gives the row that has this key so far other values, its key included; how many rows there were."""
        ...


@runtime_checkable
class Creates(Protocol):
    """Prints the statements that make a table here as another database, of any engine, has it.

    What stands in the way, such as a type that no column here can hold, is a `UsageError` that
    names the column. The parts come apart because rows are loaded between them.
    """

    def create_table(self, table: Table) -> list[str]:
        """The table with its primary key."""
        ...

    def add_columns(self, table: Table, columns: Sequence[Column]) -> list[str]:
        """Columns that the table gets when it is there already; it is described with the name it has here."""
        ...

    def create_indexes(self, table: Table) -> list[str]:
        """Its other indexes, the unique ones first."""
        ...

    def create_foreign_keys(self, table: Table) -> list[str]:
        """Its references to other tables, which must be there."""
        ...

    def reference_gaps(self, table: Table, reference: ForeignKey, parent: Table) -> list[str]:
        """Why a reference between two tables, as they are or will be made here, would not be taken, in words."""
        ...

    def creation_warnings(self, table: Table) -> list[str]:
        """What will not be quite the same, in words: collations, lengths, checks."""
        ...


@runtime_checkable
class Identifies(Protocol):
    """Tells a table from another one that has got its name: for logs that do not say so themselves."""

    def identities(self) -> dict[TableName, str]:
        """Of all tables: the same for as long as the table is there, whatever it is called."""
        ...


@runtime_checkable
class LogsInPart(Protocol):
    """Leaves values that did not change out of its log, unless it is told otherwise."""

    def log_whole_rows(self, name: TableName) -> str:
        """The statement after which changes of a table are logged with all values."""
        ...


@runtime_checkable
class SetsSequences(Protocol):
    """Numbers rows by itself."""

    def set_sequences(self, table: Table, annotation: str | None = None) -> list[str]:
        """Makes each column's next number larger than all that are there; gives what was run.

        `annotation` marks the statement, where the database's log would keep it.
        """
        ...


@runtime_checkable
class HasSequences(Protocol):
    """Has sequences that belong to no column."""

    def sequences(self) -> dict[TableName, int | None]:
        """Of each the number that it gives next, or a later one; None where it hides that from the user."""
        ...

    def advance_sequence(self, name: TableName, number: int, annotation: str | None = None) -> None:
        """Lets one go on at a number, unless it is further already; `annotation` as above."""
        ...


@runtime_checkable
class RunsQueries(Protocol):
    """Runs a query of the user."""

    def query(self, sql: str, values: Sequence[object] = ()) -> pa.Table:
        """The result of a query, as the driver types it."""
        ...


@runtime_checkable
class Replicates(Protocol):
    """Knows how far it is behind its source."""

    def lag_seconds(self) -> float | None:
        """Seconds behind the source; None where replication is stopped or unknown."""
        ...


@runtime_checkable
class Views(Protocol):
    """Reads several times from one state of all tables, while others write on."""

    def open_view(self) -> None:
        """Opens a transaction in which nothing changes; it ends with `rollback`."""
        ...

    def rollback(self) -> None: ...


@runtime_checkable
class ShowsArrays(Protocol):
    """Makes views over arrays that its tables keep as JSON."""

    array_views: ArrayViews


@runtime_checkable
class TellsReplicated(Protocol):
    """May be a replica, and knows how far it has applied its source's log."""

    @property
    def replicated_exactly(self) -> bool:
        """Whether the position that is told in a view is that of the view, and not a later one."""
        ...

    def replicated_position(self) -> str | None:
        """The position of the source, of an open view where that can be told, else of now; None for no replica."""
        ...


@runtime_checkable
class Advises(Protocol):
    """Says what stands in the way of a transfer, before it begins."""

    def advisor(self) -> Advisor: ...


class DatabaseSession(Session, Introspects, Digests, Reads, Protocol):
    """What a database must offer to stand on either side of a verification."""


@runtime_checkable
class Frames(Protocol):
    """Reads by Spark alone: tables without a database that could answer a question about them.

    `where` is applied, and the tables of a relation are put together.
    """

    def fingerprint_frame(self, relation: Relation) -> DataFrame:
        """Columns `k0`, `k1`, … (string) and `fingerprint` (long) of every row."""
        ...

    def row_frame(self, relation: Relation) -> DataFrame:
        """Columns `c0`, `c1`, … (string): the canonical texts of every row."""
        ...
