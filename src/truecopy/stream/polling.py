"""Changes by asking again and again: rows whose cursor column has grown.

For databases whose log cannot be read. It is the weakest source (`Level.ROW`), and says so:

- A deleted row is never seen, nor is what a row held between two looks, nor a row whose cursor is NULL.
- It cannot tell an insert from an update: every row comes as an `update` without `before`.
- **A part read twice gives the same rows only while nothing changes.** A row that is written again moves
  to a later range, which brings it as it is then. So a consumer that writes rows by key converges, and
  nothing stronger can be promised.
- Transactions may commit in another order than that of their cursor values. So a value is read up to only when it
  was the largest one `settle` seconds ago (5 by default), by this side's clock: the rows of transactions
  that took a smaller value have that long to appear. A row that appears later still is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Protocol, Self, cast

import pyarrow as pa

from truecopy.engines import registry
from truecopy.engines.protocols import DatabaseSession, ReadsInOrder
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import UPDATE, Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.position import CursorPosition, parse_position
from truecopy.model.relation import Between, Relation
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Date, Decimal, Integer, Text, Timestamp, Type, type_name
from truecopy.stream.log import Lag, Level, Mark, Part, Wanted
from truecopy.stream.rows import ChangeRows

_SETTLE_SECONDS = 5.0
_POLL_SECONDS = 0.2
_WESTERNMOST = timedelta(hours=12)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Values = Mapping[str, str]
"""The last value read of each table; a table without one was not read yet."""


def open_polling(endpoint: Endpoint, wanted: Wanted) -> PollingLog:
    """Polls the tables that the setting `cursor` names: `updated_at`, or `orders=updated_at,lines=id`."""
    return PollingLog(endpoint, wanted)


class _Session(DatabaseSession, ReadsInOrder, Protocol):
    """What a database must offer to be polled."""


@dataclass(frozen=True)
class Polled:
    """A table and the column that says what is new in it.

    Attributes:
        relation: The cursor first, then the key, then the other columns.
        row_bytes: The engine's estimate of an average row.
    """

    definition: Definition
    relation: Relation
    row_bytes: int

    @property
    def name(self) -> str:
        return self.definition.table

    @property
    def cursor(self) -> Relation:
        """The cursor column alone."""
        first = self.relation
        return replace(first, columns=first.columns[:1], types=first.types[:1], key_width=1)


class PollingLog:
    """Tables with a cursor column, seen as a log."""

    level = Level.ROW

    def __init__(self, endpoint: Endpoint, wanted: Wanted) -> None:
        self.endpoint = endpoint
        self._wanted = wanted
        self._settle = _seconds(wanted.settings.get("settle", str(_SETTLE_SECONDS)))
        self._session: _Session | None = None
        self._definitions: Definitions | None = None
        self._seen: list[tuple[float, dict[str, str]]] = []
        with self._open() as session:
            self.driver_local = session.driver_local
            self._tables, self._skipped = _polled(session, wanted)

    def missing(self) -> list[str]:
        if not self._tables:
            return [f"no table of {self.endpoint} has the cursor column: see the setting cursor"]
        return []

    @property
    def warnings(self) -> list[str]:
        """What the stream will not show."""
        found = ["polling cannot see deleted rows, nor what rows held between two looks"]
        found += [f"{name} has no such cursor column: it is not streamed" for name in self._skipped]
        with self._open() as session:
            for table in self._tables:
                if not table.definition.key:
                    found.append(f"{table.name} has no key: a row that changes comes a second time")
                if nulls := _count_nulls(session, table):
                    column = table.relation.columns[0].name
                    found.append(
                        f"{nulls} rows of {table.name} have no {column}: they are not streamed"
                    )
        return found

    def oldest(self) -> Mark:
        return _mark({})

    def current(self) -> Mark:
        """The largest values now, settled or not; transactions under way may still come with smaller ones."""
        return self._mark(self._largest({}))

    def seek(self, position: str) -> Mark:
        return self._mark(self._values(position))

    def seek_time(self, at: int) -> Mark:
        """By cursors that are times; other tables start from their first row.

        Times without a zone may be those of any zone.
        """
        moment = _EPOCH + timedelta(microseconds=at - 1)
        values = {}
        for table in self._tables:
            match table.relation.columns[0].type:
                case Timestamp(zone):
                    shown = moment if zone else moment - _WESTERNMOST
                    text = shown.replace(tzinfo=None).isoformat(" ", "microseconds")
                    values[table.name] = text
        return self._mark(values)

    def advance(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        deadline = time.monotonic() + wait
        values = self._values(start.position)
        while True:
            if settled := self._settled(values):
                reached, written = self._reach(values, settled, max_bytes)
                if written:
                    return replace(self._mark(reached), written=start.written + written)
            left = deadline - time.monotonic()
            if left <= 0:
                return start
            time.sleep(min(_POLL_SECONDS, left))

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[Part]:
        lows, highs = self._values(start.position), self._values(end.position)
        with self._open() as session:
            # A table may have changed since the last look.
            self._tables, self._skipped = _polled(session, self._wanted)
            moved = [t for t in self._tables if highs.get(t.name) != lows.get(t.name)]
            self._definitions = self._definitions or Definitions()
            self._definitions.remember(table.definition for table in moved)
            found = []
            for table in moved:
                between = Between(lows.get(table.name), highs.get(table.name))
                share = max(1, round(parts / len(moved)))
                for low, high in pairwise(_cuts(session, table, between, share)):
                    found.append(
                        PollingPart(self.endpoint, self._wanted, table, low, high, start.position)
                    )
        return found

    def lag(self, mark: Mark) -> Lag:
        values = self._values(mark.position)
        with self._open() as session:
            size = sum(
                session.count_between(table.cursor, Between(values.get(table.name)))
                * table.row_bytes
                for table in self._tables
            )
        waiting = size and mark.committed_at
        return Lag(size, max(0.0, time.time() - mark.committed_at / 1e6) if waiting else 0.0)

    def release(self, mark: Mark) -> None:
        """Nothing is kept for a poller."""

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What is new

    def _settled(self, values: Values) -> dict[str, str]:
        """Tables with rows after `values`, and the value that was their largest `settle` seconds ago."""
        now = time.monotonic()
        largest = self._largest(values)
        if not self._seen or self._seen[-1][1] != largest:
            self._seen.append((now, largest))
        old = [place for place, (at, _) in enumerate(self._seen) if at <= now - self._settle]
        if not old:
            return {}
        # Earlier looks have nothing to say any more.
        del self._seen[: old[-1]]
        newest = self._seen[0][1]
        return {name: value for name, value in newest.items() if value != values.get(name)}

    def _reach(self, values: Values, settled: Values, max_bytes: int) -> tuple[dict[str, str], int]:
        """How far so many bytes go, one table after the other, and how many they are."""
        reached, written = dict(values), 0
        with self._open() as session:
            for table in self._tables:
                if table.name not in settled:
                    continue
                if written and written + table.row_bytes > max_bytes:
                    break
                room = max(1, (max_bytes - written) // table.row_bytes)
                between = Between(values.get(table.name), settled[table.name])
                rows = session.count_between(table.cursor, between)
                if not rows:
                    continue
                end = _value_at(session, table, between, room - 1) if rows > room else None
                reached[table.name] = end or settled[table.name]
                written += min(rows, room) * table.row_bytes
        return reached, written

    def _largest(self, values: Values) -> dict[str, str]:
        found = dict(values)
        with self._open() as session:
            for table in self._tables:
                after = Between(values.get(table.name), descending=True, limit=1)
                texts = session.rows_between(table.cursor, after).column("c0").to_pylist()
                if texts:
                    found[table.name] = texts[0]
        return found

    def _values(self, position: str) -> dict[str, str]:
        if not position:
            return {}
        parsed = parse_position(position)
        if not isinstance(parsed, CursorPosition):
            raise UsageError(f"{position!r} is no position of polled tables")
        return dict(parsed.values)

    def _mark(self, values: Values) -> Mark:
        times = [
            _microseconds(values[table.name])
            for table in self._tables
            if table.name in values and table.relation.columns[0].type == Timestamp(zone=True)
        ]
        return _mark(values, max(times, default=0))

    @contextmanager
    def _open(self) -> Iterator[_Session]:
        """The session; a file is closed again at once, since an open one may keep its writers out."""
        session = self._session or _connect(self.endpoint)
        if session.driver_local:
            with session:
                yield session
        else:
            self._session = session
            try:
                yield session
            except TruecopyError:
                self.close()
                raise


@dataclass(frozen=True)
class PollingPart:
    """Rows of one table with a cursor above `low`, up to `high`."""

    endpoint: Endpoint
    wanted: Wanted
    table: Polled
    low: str | None
    high: str | None
    start: str

    def read(self) -> Iterator[pa.RecordBatch]:
        table, relation = self.table, self.table.relation
        with _connect(self.endpoint) as session:
            found = session.rows_between(relation, Between(self.low, self.high))
        names = [column.name for column in relation.columns]
        places = [names.index(name) for name in table.definition.names]
        keys = [names.index(name) for name in table.definition.key]
        parsed = parse_position(self.start)
        before = dict(parsed.values) if isinstance(parsed, CursorPosition) else {}
        rows = ChangeRows(self.wanted.shard)
        kind = relation.columns[0].type
        # A row at a time, since a batch may have to end between any two.
        lines = zip(*(column.to_pylist() for column in found.columns), strict=True)
        for value, group in groupby(lines, key=itemgetter(0)):
            # Other tables are where the range started: a consumer that resumes here loses nothing.
            position = _mark({**before, table.name: value}).position
            order = _order(value, kind)
            at = order if kind == Timestamp(zone=True) else 0
            for seq, line in enumerate(group):
                after = [] if self.wanted.keys_only else [line[place] for place in places]
                rows.keys += [line[place] for place in keys]
                rows.after += after
                rows.add_run(
                    UPDATE,
                    table.name,
                    table.definition.schema_id,
                    1,
                    seq,
                    key_width=len(keys),
                    after_width=-1 if self.wanted.keys_only else len(places),
                    size=100 + sum(len(text) for text in after if text),
                )
                if rows.full:
                    rows.end_transaction(position, value, order, at)
                    yield rows.take()
            rows.end_transaction(position, value, order, at)
        if rows.rows:
            yield rows.take()


def _polled(session: _Session, wanted: Wanted) -> tuple[list[Polled], list[str]]:
    """The tables to poll, and those that were not named and have no such column."""
    found, skipped = [], []
    cursors = _cursors(wanted.settings["cursor"])
    everywhere = cursors.get("")
    for name in _names(session, wanted, [] if everywhere else list(cursors)):
        table = session.describe(name)
        wish = everywhere or next(
            column for given, column in cursors.items() if given in (str(name), name.table)
        )
        column = table.column(wish)
        if column is None and everywhere and not wanted.tables:
            skipped.append(str(name))
            continue
        if column is None:
            raise UsageError(f"{name} has no column {wish}, which the setting cursor names")
        found.append(_polled_table(session, table, column))
    return found, skipped


def _polled_table(session: _Session, table: Table, cursor: Column) -> Polled:
    kind = _cursor_type(cursor)
    if not isinstance(kind, Integer | Decimal | Date | Timestamp | Text):
        raise UsageError(
            f"{table.name}.{cursor.name} is of type {type_name(kind)}: a cursor is a number, a time or text"
        )
    key = table.keys[0] if table.keys else ()
    others = sorted(
        (c for c in table.columns if c is not cursor),
        key=lambda c: key.index(c.name) if c.name in key else len(key),
    )
    width = 1 + sum(column.name in key for column in others)
    relation = Relation(
        session.endpoint,
        (table.name,),
        (cursor, *others),
        (kind, *(column.type for column in others)),
        width,
    )
    return Polled(Definition(str(table.name), table.columns, key), relation, table.row_bytes)


def _cursor_type(cursor: Column) -> Type:
    """The type by whose text values are compared; weak columns compare what is stored, as it is."""
    if cursor.weak and not isinstance(cursor.type, Integer | Decimal):
        return Text()
    return cursor.type


def _names(session: _Session, wanted: Wanted, named: list[str]) -> list[TableName]:
    if named:
        found = []
        for name in named:
            table = session.find(name)
            if table is None:
                raise UsageError(f"there is no table {name}, which the setting cursor names")
            found.append(table)
        return [table for table in found if _is_wanted(wanted, table)]
    return [table for table in session.tables() if _is_wanted(wanted, table)]


def _is_wanted(wanted: Wanted, table: TableName) -> bool:
    if table.table.startswith("truecopy_"):
        return False
    return not wanted.tables or any(
        fnmatchcase(name, pattern)
        for name in (table.table, str(table))
        for pattern in wanted.tables
    )


def _cursors(setting: str) -> dict[str, str]:
    """`updated_at` for all tables (under the empty name), or `orders=updated_at,lines=id`."""
    pairs = [part.strip().rpartition("=") for part in setting.split(",") if part.strip()]
    if any(not column for *_, column in pairs) or (len(pairs) > 1 and not all(p[0] for p in pairs)):
        raise UsageError(
            f"cursor cannot be {setting!r}: write a column, or TABLE=COLUMN,TABLE=COLUMN"
        )
    return {table.strip(): column.strip() for table, _, column in pairs}


def _cuts(session: _Session, table: Polled, between: Between, parts: int) -> list[str | None]:
    """The ends of a range and values between them, about equally many rows apart."""
    rows = session.count_between(table.cursor, between) if parts > 1 else 0
    inner = [
        _value_at(session, table, between, rows * i // parts - 1)
        for i in range(1, parts)
        if rows * i // parts > 0
    ]
    found = dict.fromkeys(value for value in inner if value not in (None, between.high))
    return [between.low, *found, between.high]


def _value_at(session: _Session, table: Polled, between: Between, offset: int) -> str | None:
    row = replace(between, limit=1, offset=offset)
    texts: list[str] = session.rows_between(table.cursor, row).column("c0").to_pylist()
    return texts[0] if texts else None


def _count_nulls(session: _Session, table: Polled) -> int:
    if not table.relation.columns[0].nullable:
        return 0
    return session.count_between(table.cursor, Between(nulls=True))


def _connect(endpoint: Endpoint) -> _Session:
    session = registry.connect(endpoint)
    if not isinstance(session, ReadsInOrder):
        session.close()
        raise UsageError(
            f"{endpoint.scheme}:// cannot be polled: it is no database that answers SQL"
        )
    return cast(_Session, session)


def _mark(values: Values, committed_at: int = 0) -> Mark:
    position = str(CursorPosition(tuple(sorted(values.items())))) if values else ""
    return Mark(position, position, committed_at)


def _order(value: str, kind: Type) -> int:
    """A number that orders rows as their cursor does, where it has one."""
    if isinstance(kind, Integer) and value.lstrip("-").isdecimal():
        return max(-(2**63), min(int(value), 2**63 - 1))
    return _microseconds(value) if isinstance(kind, Timestamp | Date) else 0


def _microseconds(value: str) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return 0  # a day that the calendar does not have, such as MySQL's 0000-00-00
    return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text.removesuffix("s")))
    except ValueError:
        raise UsageError(f"settle cannot be {text!r}: write seconds, such as 5") from None
