"""Views of a log in a database, beside its tables: `truecopy_shop_orders_current`, `truecopy_shop_orders_history`.

They find the newest base by themselves, so a base that is moved is moved for them in the same moment. And they end
before the first batch that they could not read, because of a definition, a shard or a truncate that came after they
were made: until they are made anew they show the log as it was. So no reader sees rows that are half understood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, cast

from truecopy.changelog.facts import Base
from truecopy.changelog.ledger import UNSHOWN
from truecopy.changelog.table_store import BASE_ROWS, CHANGES, TableStore
from truecopy.changelog.view_names import view_names
from truecopy.changelog.views import HISTORY_COLUMNS, LOG_COLUMNS, make_views, views_of
from truecopy.engines import pool
from truecopy.engines.array_views import Arrays, ArrayViews
from truecopy.engines.lines import transaction
from truecopy.engines.protocols import ShowsArrays, Statement
from truecopy.engines.sql import escape
from truecopy.model.errors import TruecopyError, UsageError

_MADE = "view "
"""Of the words that say which views were made, and of what."""
_LAST = 2**63 - 1
_OF_BASE = {
    "batch": "newest.batch",
    "commit_order": "-1",
    "seq": "-1",
    "kind": "'snapshot'",
    "unchanged": "NULL",
}


def show(store: TableStore) -> str | None:
    """Makes the views that have changed, and drops those that are gone; gives what to say where that cannot be."""
    said: list[str] = []

    def make() -> bool:
        said[:] = []
        try:
            return _Making(store, said).run()
        except TruecopyError as error:
            said.append(str(error))
            return False

    make_views(store, make)
    return f"the views of {store.place} cannot be made: {said[0]}" if said else None


class _Making:
    """One attempt to make all views."""

    def __init__(self, store: TableStore, said: list[str]) -> None:
        self._store = store
        self._said = said
        self._made = store.words(_MADE)
        self._reader = _array_views(store)

    def run(self) -> bool:
        """Whether no view is left that knows less than the log has."""
        store = self._store
        names = view_names(store.log, store.tables())
        wanted = {
            f"{names[view.table]}_{view.kind}": view.query
            for view in views_of(store, _Tables(store, self._reader))
            if view.table in names
        }
        gone = [name for name in self._made if name not in wanted]
        changed = [name for name, query in wanted.items() if self._made.get(name) != _mark(query)]
        are_gone = [self._drop(name) for name in gone]
        are_right = [self._replace(name, wanted[name]) for name in changed]
        return all((*are_gone, *are_right))

    def _replace(self, name: str, query: str) -> bool:
        for way in self._reader.replacing:
            if why := self._try(way, name, query):
                continue
            self._store.say(f"{_MADE}{name}", _mark(query))
            return True
        self._said.append(why)
        # Rather none than one that does not know what it reads.
        return name not in self._made or self._drop(name)

    def _drop(self, name: str) -> bool:
        if why := self._try(("DROP VIEW IF EXISTS {name}",), name, ""):
            self._said.append(why)
            return False
        self._store.forget(f"{_MADE}{name}")
        return True

    def _try(self, statements: Sequence[str], name: str, query: str) -> str:
        """Runs statements in one transaction, where the engine has such; gives why it could not."""
        quoted = self._reader.arrays.quote(name)
        try:
            with pool.lease(self._store.endpoint) as session:
                target: Any = session
                with transaction(target):
                    for one in (*self._reader.before, *statements, *self._reader.after):
                        sql = one.format(name=quoted, query=query)
                        target.execute(Statement(escape(target.dialect, sql)))
        except TruecopyError as error:
            return str(error)
        return ""


def _array_views(store: TableStore) -> ArrayViews:
    with pool.lease(store.endpoint) as session:
        if not isinstance(session, ShowsArrays):
            raise UsageError(f"there are none for {store.endpoint.scheme}://")
        return session.array_views


def _mark(query: str) -> str:
    return sha256(query.encode()).hexdigest()


@dataclass(frozen=True)
class _Tables:
    """See `truecopy.changelog.views.Source`."""

    store: TableStore
    tables: ArrayViews

    @property
    def reader(self) -> Arrays:
        return self.tables.arrays

    def history(self, table: str) -> str | None:
        return f"({self._events(table, HISTORY_COLUMNS)}) AS events"

    def log(self, table: str, base: Base) -> list[str]:  # noqa: ARG002 - the views find the newest
        log = self._literal(self.store.log)
        newest = (
            f"(SELECT number, batch FROM truecopy_log_base WHERE log = {log}"
            " ORDER BY number DESC LIMIT 1) AS newest"
        )
        columns = self._columns(LOG_COLUMNS, "r", _OF_BASE)
        rows = (
            f"SELECT {columns} FROM {BASE_ROWS} AS r JOIN {newest} ON newest.number = r.base{self.tables.beside('r')}"
            f" WHERE r.log = {log} AND r.table_name = {self._literal(table)}"
        )
        return [rows, self._events(table, LOG_COLUMNS, f" JOIN {newest} ON newest.batch < e.batch")]

    def _events(self, table: str, names: Sequence[str], onto: str = "") -> str:
        log = self._literal(self.store.log)
        unshown = (
            "SELECT CAST(w.value AS DECIMAL(20, 0)) FROM truecopy_log_word AS w"
            f" WHERE w.log = {log} AND w.name = '{UNSHOWN}'"
        )
        return (
            f"SELECT {self._columns(names, 'e', {})} FROM {CHANGES} AS e{onto}{self.tables.beside('e')}"
            f" WHERE e.log = {log} AND e.table_name = {self._literal(table)}"
            f" AND e.batch < coalesce(({unshown}), {_LAST})"
        )

    def _columns(self, names: Sequence[str], of: str, values: Mapping[str, str]) -> str:
        made = {"key": f"{of}.row_key", "after": self.tables.array(of), **values}
        quote = self.reader.quote
        return ", ".join(f"{made.get(name, f'{of}.{name}')} AS {quote(name)}" for name in names)

    def _literal(self, value: str) -> str:
        with pool.lease(self.store.endpoint) as session:
            return str(cast(Any, session).literal(value))
