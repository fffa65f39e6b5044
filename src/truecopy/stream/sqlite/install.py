"""Puts the change log into a SQLite file, keeps it fitting when tables change, and takes it out again.

The triggers of a table name its columns, so a change of the table leaves them behind until the tool
looks again. What was logged meanwhile is decoded by the older definition; what the older triggers could
not see is made good at once, in the transaction that makes the new ones, or said:

- columns were added: rows that the log holds under the old definition are logged again, whole;
- a new table: its rows are logged as inserted;
- the triggers are gone (the table was rebuilt), or a new unique index may have made `OR REPLACE` remove
  rows unseen: a gap, which stops the stream, or is filled by logging the whole table (`gaps=resync`).
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from truecopy.engines.protocols import Statement
from truecopy.engines.sqlite import explain, open_file
from truecopy.engines.sqlite_annotation import ANNOTATION
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint
from truecopy.stream.log import Wanted
from truecopy.stream.sqlite.facts import PREFIX, Facts, read_facts
from truecopy.stream.sqlite.triggers import (
    CANDIDATE,
    CAUGHT_UP,
    GAP,
    INSERTED,
    LOG,
    NOW,
    PARTIAL,
    START,
    TRUNCATED,
    UPDATED,
    log_sql,
    marker_sql,
    places,
    quote,
    trigger_sql,
)

DEFINITION = PREFIX + "definition"
TABLE = PREFIX + "table"
STATE = PREFIX + "state"

_READER = "reader "
"""Before the name of a reader, in the state: the first row of the log that it still needs."""

_OWN = (LOG, CANDIDATE, ANNOTATION, DEFINITION, TABLE, STATE)
_CREATE = (
    # The rows that were, in the order in which they were written; values as they were stored.
    f"CREATE TABLE {LOG} (sequence INTEGER PRIMARY KEY AUTOINCREMENT, at, total, definition, kind, annotation)",
    # Rows that a statement under way may be about to replace.
    f'CREATE TABLE {CANDIDATE} (number, "row")',
    f'CREATE INDEX {CANDIDATE}_row ON {CANDIDATE} (number, "row")',
    f"CREATE TABLE {ANNOTATION} (value)",
    # What decodes the log's rows; `since` is the end of the log when it came into force.
    f"CREATE TABLE {DEFINITION} (id INTEGER PRIMARY KEY, since, document)",
    # Every table that was seen; without a definition where nobody asked for it, or it was dropped.
    f"CREATE TABLE {TABLE} (number INTEGER PRIMARY KEY, name, definition, triggers, uniques, state)",
    f"CREATE TABLE {STATE} (name PRIMARY KEY, value) WITHOUT ROWID",
)


@dataclass(frozen=True)
class _Known:
    """What was installed for a table."""

    number: int
    name: str
    definition: int
    triggers: dict[str, str]
    uniques: list[Any]


def install(endpoint: Endpoint, wanted: Wanted, checked: int = 0) -> None:
    """Makes the log and its triggers where they are missing or do not fit any more, and holds the log for its reader.

    Args:
        endpoint: The file.
        wanted: Tables to log; those that were asked for earlier stay. `gaps=resync` logs whole tables
            where changes went unseen.
        checked: The end of the log when its triggers were last seen to fit.
    """
    with _writing(endpoint) as connection:
        _create(connection)
        _adapt(connection, wanted, checked)
        if (name := reader(wanted)) is not None:
            connection.execute(
                f"INSERT OR IGNORE INTO {STATE} (name, value) SELECT ?, MIN(sequence) FROM {LOG}",
                (name,),
            )


def reader(wanted: Wanted) -> str | None:
    """The name under which a stream holds the log, by the setting `slot`; None for one that lets go of nothing anyway.

    Those without a name share one: a stream that was opened once, and forgotten, must not make the file grow for ever.
    """
    if wanted.settings.get("keep_log", "").lower() in ("true", "1", "yes"):
        return None
    return _READER + wanted.settings.get("slot", "")


def let_go(connection: sqlite3.Connection, name: str, sequence: int) -> int:
    """A reader needs nothing before a row of the log; up to where nobody needs anything."""
    connection.execute(f"UPDATE {STATE} SET value = MAX(value, ?) WHERE name = ?", (sequence, name))
    ((free,),) = connection.execute(
        f"SELECT MIN(value) FROM {STATE} WHERE name GLOB '{_READER}*'"
    ).fetchall()
    return int(free or 0)  # none is known: the log was made anew since


def remove(endpoint: Endpoint, wanted: Wanted | None = None) -> None:
    """Drops the log and its triggers, with all that was logged; not while another reader holds it."""
    with _writing(endpoint) as connection:
        if wanted is not None and is_installed(connection):
            connection.execute(f"DELETE FROM {STATE} WHERE name = ?", (reader(wanted),))
            if connection.execute(f"SELECT 1 FROM {STATE} WHERE name GLOB '{_READER}*'").fetchall():
                return
        found = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name GLOB 'truecopy_[0-9]*'"
        ).fetchall()
        for (name,) in found:
            connection.execute(f"DROP TRIGGER {quote(name)}")
        for name in _OWN:
            connection.execute(f"DROP TABLE IF EXISTS {name}")


def is_installed(connection: sqlite3.Connection) -> bool:
    """Whether the file has a log; its triggers may still not fit."""
    names = ", ".join(f"'{name}'" for name in _OWN)
    ((count,),) = connection.execute(
        f"SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name IN ({names})"
    )
    return bool(count == len(_OWN))


def fits(connection: sqlite3.Connection, wanted: Wanted) -> bool:
    """Whether the log is held for its reader, and every wanted table has its triggers; reads only."""
    if not is_installed(connection):
        return False
    held = connection.execute(f"SELECT 1 FROM {STATE} WHERE name = ?", (reader(wanted),)).fetchall()
    if not held and reader(wanted) is not None:
        return False
    if wanted.settings.get("gaps") == "resync" and _gaps(connection):
        return False
    known = _known(connection)
    current = _trigger_tables(connection)
    listed = {name for name, *_ in _tables(connection)}
    seen = {name for (name,) in connection.execute(f"SELECT name FROM {TABLE} WHERE state = ''")}
    if listed - seen or seen - listed:
        return False
    for name, sql, strict, rowid in _tables(connection):
        here = next((k for k in known if k.name == name), None)
        if here is None:
            if chosen(wanted, name):
                return False
            continue
        facts = read_facts(_fetch(connection), name, sql, strict=strict, rowid=rowid)
        made = trigger_sql(facts, here.number, here.definition)
        document = _document(connection, here.definition)
        if made != here.triggers or facts.definition.to_json() != document:
            return False
        if any(current.get(trigger) != name for trigger in made):
            return False
    return True


def chosen(wanted: Wanted, table: str) -> bool:
    """Whether a consumer asked for the table."""
    return not wanted.tables or any(
        fnmatchcase(name, pattern) for name in (table, f"main.{table}") for pattern in wanted.tables
    )


def virtual_tables(connection: sqlite3.Connection, wanted: Wanted) -> list[str]:
    """Wanted tables that can have no triggers."""
    rows = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'virtual' ORDER BY name"
    )
    return [name for (name,) in rows if chosen(wanted, name)]


@contextmanager
def _writing(endpoint: Endpoint) -> Iterator[sqlite3.Connection]:
    with closing(open_file(endpoint, "rw")) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise explain(error, endpoint) from None


def _create(connection: sqlite3.Connection) -> None:
    if is_installed(connection):
        return
    for statement in _CREATE:
        connection.execute(statement)
    # A log starts at the time of day: positions of a log that was removed are before this one.
    connection.execute(
        f"INSERT INTO {LOG} (sequence, at, total, definition, kind) VALUES (?, {NOW}, 0, 0, '{START}')",
        (time.time_ns() // 1000,),
    )


def _adapt(connection: sqlite3.Connection, wanted: Wanted, checked: int) -> None:
    ((stored,),) = connection.execute(
        f"SELECT COALESCE(MAX(value), 0) FROM {STATE} WHERE name = 'checked'"
    ).fetchall()
    checked = max(checked, stored)
    ((fresh,),) = connection.execute(f"SELECT COUNT(*) = 0 FROM {TABLE}").fetchall()
    known = {k.name: k for k in _follow_renames(connection, _known(connection))}
    tables = _tables(connection)
    _note_dropped(connection, {name for name, *_ in tables})
    for name, sql, strict, rowid in tables:
        here = known.get(name)
        if here is None and not chosen(wanted, name):
            _note_seen(connection, name)
            continue
        facts = read_facts(_fetch(connection), name, sql, strict=strict, rowid=rowid)
        if here is None:
            state = _state_of(connection, name)
            here = _Known(_number(connection, name), name, 0, {}, [])
            definition = _remake(connection, here, facts)
            if state == "dropped":
                connection.execute(marker_sql(definition, TRUNCATED))
            if state == "dropped" or (state is None and not fresh):
                connection.execute(log_sql(facts, definition, INSERTED))
            continue
        _keep(connection, here, facts, checked)
    if wanted.settings.get("gaps") == "resync":
        _fill_gaps(connection)
    ((end,),) = connection.execute(f"SELECT MAX(sequence) FROM {LOG}").fetchall()
    connection.execute(f"REPLACE INTO {STATE} (name, value) VALUES ('checked', ?)", (end,))


def _keep(connection: sqlite3.Connection, here: _Known, facts: Facts, checked: int) -> None:
    """Brings the triggers of a table that is logged already up to date."""
    current = _trigger_tables(connection)
    there = all(current.get(trigger) == facts.table for trigger in here.triggers)
    document = _document(connection, here.definition)
    made = trigger_sql(facts, here.number, here.definition)
    if there and made == here.triggers and facts.definition.to_json() == document:
        return
    older = Definition.from_json(document)
    definition = _remake(connection, here, facts)
    added = [name for name in facts.definition.names if name not in older.names]
    # Renaming keeps the number of columns, and the triggers follow it by themselves.
    grown = len(facts.definition.columns) > len(older.columns) and bool(added)
    more = _has_new_unique(facts, older, here)
    written = f"definition = {here.definition} AND sequence > {checked} AND kind IN ('{INSERTED}', '{UPDATED}')"
    suspect = bool(connection.execute(f"SELECT 1 FROM {LOG} WHERE {written} LIMIT 1").fetchall())
    if not there:
        connection.execute(marker_sql(definition, GAP))
    # Rows without a key cannot be logged again: nothing says which they were.
    elif suspect and (more or (grown and not facts.definition.key)):
        connection.execute(marker_sql(definition, PARTIAL))
    elif grown and suspect:
        connection.execute(log_sql(facts, definition, CAUGHT_UP, _logged(facts, older, written)))


def _has_new_unique(facts: Facts, older: Definition, here: _Known) -> bool:
    """Whether rows may conflict in a way that the older triggers did not know; renaming is none."""
    renamed = dict(zip(older.names, facts.definition.names, strict=False))

    def shape(unique: Any) -> tuple[object, ...]:
        terms = tuple(
            (renamed.get(t["column"], t["column"]), t["collation"]) for t in unique["terms"]
        )
        return terms, bool(unique["where"])

    known = [shape(unique) for unique in here.uniques]
    renamed = {}
    return any(shape(asdict(unique)) not in known for unique in facts.unique)


def _logged(facts: Facts, older: Definition, written: str) -> str:
    """A condition on the table: rows that the log holds under the older definition, by their key."""
    width = len(older.columns)
    key = facts.definition.key
    names = ", ".join(f"{quote(facts.table)}.{quote(name)}" for name in key)
    if any(name not in older.names for name in key):
        return ""
    at = [older.names.index(name) for name in key]
    inserted = ", ".join(f"v{i}" for i in at)
    updated = ", ".join(f"v{width + i}" for i in at)
    return (
        f"WHERE ({names}) IN (SELECT {inserted} FROM {LOG} WHERE {written} AND kind = '{INSERTED}'"
        f" UNION SELECT {updated} FROM {LOG} WHERE {written} AND kind = '{UPDATED}')"
    )


def _remake(connection: sqlite3.Connection, here: _Known, facts: Facts) -> int:
    """New triggers; gives the number of the definition that they log under."""
    for name in _trigger_tables(connection):
        if name in here.triggers or name.startswith(f"{PREFIX}{here.number}_"):
            connection.execute(f"DROP TRIGGER {quote(name)}")
    definition = here.definition
    document = facts.definition.to_json()
    if not definition or document != _document(connection, definition):
        definition = int(
            connection.execute(
                f"INSERT INTO {DEFINITION} (since, document) SELECT MAX(sequence), ? FROM {LOG}",
                (document,),
            ).lastrowid
            or 0
        )
    # Nothing is under way while the file is locked for writing: candidates left over are stale.
    connection.execute(f"DELETE FROM {CANDIDATE} WHERE number = ?", (here.number,))
    _widen(connection, len(facts.definition.columns))
    made = trigger_sql(facts, here.number, definition)
    for statement in made.values():
        connection.execute(statement)
    connection.execute(
        f"REPLACE INTO {TABLE} (number, name, definition, triggers, uniques, state)"
        " VALUES (?, ?, ?, ?, ?, '')",
        (
            here.number,
            facts.table,
            definition,
            json.dumps(made),
            json.dumps([asdict(unique) for unique in facts.unique]),
        ),
    )
    return definition


def _widen(connection: sqlite3.Connection, columns: int) -> None:
    for table, count in ((LOG, 2 * columns), (CANDIDATE, columns)):
        found = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        for place in places(count):
            if place not in found:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {place}")


def _fill_gaps(connection: sqlite3.Connection) -> None:
    """Empties the tables that have gaps and logs all their rows; a gap was never read, so it may go."""
    broken = {json.loads(_document(connection, number))["table"] for number in _gaps(connection)}
    current = {row[0]: row for row in _tables(connection)}
    for here in _known(connection):
        if here.name not in broken or here.name not in current:
            continue
        _, sql, strict, rowid = current[here.name]
        facts = read_facts(_fetch(connection), here.name, sql, strict=strict, rowid=rowid)
        connection.execute(marker_sql(here.definition, TRUNCATED))
        connection.execute(log_sql(facts, here.definition, INSERTED))
    connection.execute(f"DELETE FROM {LOG} WHERE kind IN ('{GAP}', '{PARTIAL}')")


def _gaps(connection: sqlite3.Connection) -> list[int]:
    """Definitions of tables of which the log misses changes."""
    rows = connection.execute(
        f"SELECT DISTINCT definition FROM {LOG} WHERE kind IN ('{GAP}', '{PARTIAL}')"
    )
    return [number for (number,) in rows.fetchall()]


def _follow_renames(connection: sqlite3.Connection, known: Sequence[_Known]) -> list[_Known]:
    """Tables under the names that they have now: SQLite takes the triggers of a renamed table along."""
    current = _trigger_tables(connection)
    found = []
    for here in known:
        tables = {current[trigger] for trigger in here.triggers if trigger in current}
        name = tables.pop() if len(tables) == 1 else here.name
        if name != here.name:
            connection.execute(f"UPDATE {TABLE} SET name = ? WHERE number = ?", (name, here.number))
        found.append(_Known(here.number, name, here.definition, here.triggers, here.uniques))
    return found


def _note_dropped(connection: sqlite3.Connection, names: set[str]) -> None:
    for number, name in connection.execute(f"SELECT number, name FROM {TABLE}").fetchall():
        if name not in names:
            connection.execute(
                f"UPDATE {TABLE} SET state = 'dropped', definition = NULL WHERE number = ?",
                (number,),
            )


def _note_seen(connection: sqlite3.Connection, name: str) -> None:
    if _state_of(connection, name) is None:
        connection.execute(f"INSERT INTO {TABLE} (name, state) VALUES (?, '')", (name,))
    else:
        connection.execute(f"UPDATE {TABLE} SET state = '' WHERE name = ?", (name,))


def _state_of(connection: sqlite3.Connection, name: str) -> str | None:
    rows = connection.execute(f"SELECT state FROM {TABLE} WHERE name = ?", (name,)).fetchall()
    return rows[0][0] if rows else None


def _number(connection: sqlite3.Connection, name: str) -> int:
    rows = connection.execute(f"SELECT number FROM {TABLE} WHERE name = ?", (name,)).fetchall()
    if rows:
        return int(rows[0][0])
    return int(
        connection.execute(f"INSERT INTO {TABLE} (name, state) VALUES (?, '')", (name,)).lastrowid
        or 0
    )


def _known(connection: sqlite3.Connection) -> list[_Known]:
    rows = connection.execute(
        f"SELECT number, name, definition, triggers, uniques FROM {TABLE}"
        " WHERE definition IS NOT NULL ORDER BY number"
    )
    return [
        _Known(number, name, definition, json.loads(triggers), json.loads(uniques))
        for number, name, definition, triggers, uniques in rows
    ]


def _document(connection: sqlite3.Connection, definition: int) -> str:
    ((document,),) = connection.execute(
        f"SELECT document FROM {DEFINITION} WHERE id = ?", (definition,)
    ).fetchall()
    return str(document)


def _trigger_tables(connection: sqlite3.Connection) -> dict[str, str]:
    """The tables of our triggers."""
    rows = connection.execute(
        "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger'"
        " AND name GLOB 'truecopy_[0-9]*'"
    )
    return dict(rows.fetchall())


def _tables(connection: sqlite3.Connection) -> list[tuple[str, str, bool, bool]]:
    """Name, CREATE statement, strict, has row numbers."""
    rows = connection.execute(
        "SELECT l.name, s.sql, l.strict, NOT l.wr FROM pragma_table_list AS l"
        " JOIN sqlite_schema AS s ON s.type = 'table' AND s.name = l.name"
        " WHERE l.schema = 'main' AND l.type = 'table'"
        " AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " AND l.name NOT LIKE 'truecopy\\_%' ESCAPE '\\' ORDER BY l.name"
    )
    return [(name, sql or "", bool(strict), bool(rowid)) for name, sql, strict, rowid in rows]


def _fetch(connection: sqlite3.Connection) -> Any:
    def fetch(statement: Statement) -> list[tuple[Any, ...]]:
        return connection.execute(statement.sql, statement.values).fetchall()

    return fetch
