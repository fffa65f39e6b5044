"""Which definition a table had when its rows were logged.

A log that names its columns (`binlog_row_metadata=FULL`) answers by itself. Any other log says only
the types, so the definition is looked up in the database as it is now, and taken back through every
statement between the rows and now. Where a statement cannot be taken back, the definition is not
known, and saying so is better than a guess: two columns of one type may have changed places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from truecopy.engines.mysql import MySQL
from truecopy.engines.protocols import Statement as Sql
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.table import Column, TableName
from truecopy.model.types import Integer
from truecopy.stream.binlog.ddl import Name, Statement
from truecopy.stream.binlog.full_metadata import Charsets, agrees, charsets_of, from_metadata
from truecopy.stream.binlog.table_map import TableMap
from truecopy.stream.binlog.take_back import take_back

Later = Callable[[], list[Statement]]
"""The statements between the rows and now, in the order of the log."""

_SEQUENCE_COLUMNS = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value"),
    *("increment", "cache_size", "cycle_option", "cycle_count"),
)


class Schemas:
    """The definitions in force at one point of the log, as a reader moves along it."""

    def __init__(self, endpoint: Endpoint, known: Mapping[str, Definition]) -> None:
        self._endpoint = endpoint
        self._in_force = dict(known)
        self._store = Definitions()
        self._set_id: str | None = None
        self._known_charsets: Charsets | None = None

    @property
    def set_id(self) -> str:
        """The name under which the metastore keeps the definitions in force."""
        if self._set_id is None:
            self._set_id = self._store.remember_set(self._in_force)
        return self._set_id

    def changes(self, statement: Statement) -> bool:
        """Whether a statement may change a definition that is in force."""
        return bool(self._changed_by(statement))

    def apply(self, statement: Statement) -> None:
        """Forgets what a statement may have changed."""
        for name in self._changed_by(statement):
            del self._in_force[name]
            self._set_id = None

    def _changed_by(self, statement: Statement) -> set[str]:
        if statement.kind in ("rows", "harmless", "truncate"):
            return set()
        return {
            name
            for database, table in statement.tables
            for name in self._in_force
            if name == f"{database}.{table}" or (table == "*" and name.startswith(f"{database}."))
        }

    def contradicts(self, table_map: TableMap) -> bool:
        """Whether the log shows that a definition in force is so no more, without a statement that said so."""
        known = self._in_force.get(table_map.name)
        return known is not None and not agrees(table_map, known)

    def see(self, table_map: TableMap, later: Later) -> None:
        """Notes the definition of a table whose rows come next."""
        known = self._in_force.get(table_map.name)
        if known is None or not agrees(table_map, known):
            self._in_force[table_map.name] = self._find(table_map, later)
            self._set_id = None

    def _find(self, table_map: TableMap, later: Later) -> Definition:
        with MySQL(self._endpoint) as session:
            metadata = table_map.metadata
            if metadata is None:
                found, reason = _look_back(session, table_map, later)
                if found is not None and agrees(table_map, found):
                    return found
                raise CannotFinish(
                    f"the definition of {table_map.name} when its rows were logged cannot be known: {reason};"
                    " start the stream later, leave the table out (--tables), or SET GLOBAL binlog_row_metadata ="
                    " 'FULL' for the future"
                )
            charsets = self._charsets(session)
            present = _present(session, (table_map.database, table_map.table))
            key = tuple(metadata.names[place].lower() for place in metadata.key)
            if present is not None and agrees(table_map, present, charsets):
                # A unique key that serves as the key is not in the log: it may be younger than the rows.
                if key == tuple(name.lower() for name in present.key):
                    return present
                found, _ = _look_back(session, table_map, later)
                if found is not None and agrees(table_map, found, charsets):
                    return found
            return from_metadata(table_map, metadata, present, charsets)

    def _charsets(self, session: MySQL) -> Charsets:
        if self._known_charsets is None:
            self._known_charsets = charsets_of(session)
        return self._known_charsets


def _look_back(session: MySQL, table_map: TableMap, later: Later) -> tuple[Definition | None, str]:
    """The definition that the table has now, taken back to when the rows were logged."""
    while True:
        statements = later()
        name: Name = (table_map.database, table_map.table)
        for statement in statements:
            name = _renamed(name, statement)
        definition = _present(session, name)
        # A statement between the two looks would be in one of them only.
        if len(later()) == len(statements):
            break
    if definition is None:
        if any(
            _touches(statement, name) for statement in statements if statement.kind == "sequence"
        ):
            return _sequence(table_map.name), ""
        return None, "it does not exist any more"
    for statement in reversed(statements):
        if not _touches(statement, name) or statement.kind == "sequence":
            continue
        before = take_back(definition, statement)
        if before is None:
            return None, f"a later {statement.kind.upper()} TABLE changed it"
        definition = before
        name = _renamed_from(name, statement)
    return replace(definition, table=table_map.name), "it does not look as the log says"


def _renamed(name: Name, statement: Statement) -> Name:
    for old, new in statement.renamed:
        if name == old:
            name = new
    return name


def _renamed_from(name: Name, statement: Statement) -> Name:
    for old, new in reversed(statement.renamed):
        if name == new:
            name = old
    return name


def is_sequence(definition: Definition) -> bool:
    """MariaDB logs what a sequence hands out like the rows of a table."""
    return definition.names == _SEQUENCE_COLUMNS


def _sequence(name: str) -> Definition:
    natives = {"cycle_option": "tinyint"}
    columns = (Column(c, Integer(), natives.get(c, "bigint")) for c in _SEQUENCE_COLUMNS)
    return Definition(name, tuple(columns))


def _present(session: MySQL, name: Name) -> Definition | None:
    try:
        table = session.describe(TableName(*name))
    except UsageError:
        return None
    if _system_versioned(session, name):
        raise CannotFinish(
            f"{table.name} on {session.endpoint} is system-versioned, and its log tells of its history as well as of"
            " its rows: leave it out (--tables)"
        )
    return Definition(str(table.name), table.columns, table.keys[0] if table.keys else ())


def _system_versioned(session: MySQL, name: Name) -> bool:
    rows = session.fetch(
        Sql(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
            " AND table_type = 'SYSTEM VERSIONED'",
            name,
        )
    )
    return bool(rows)


def _touches(statement: Statement, name: Name) -> bool:
    return any(table == name or table == (name[0], "*") for table in statement.tables)
