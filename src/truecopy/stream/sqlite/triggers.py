"""The triggers that write SQLite's change log: pure functions from facts to SQL.

What has to be right, whatever the statement and the settings of the connection that runs it:

- `OR REPLACE` removes rows without firing delete triggers, unless the application has set
  `recursive_triggers`. So a BEFORE trigger notes every row that conflicts with the new one, as a
  *candidate*; the AFTER trigger of a row that was really written logs those candidates that are gone.
  A row that `OR IGNORE` or `ON CONFLICT` turned away leaves candidates that are still in the table,
  which are never logged. A delete trigger that does fire takes its row from the candidates.
- Triggers of the application may run before ours, and change again what we are about to log. So for a
  table with a key a trigger logs what the table holds under that key *now*: the last row of the log for
  a key is always what the table held last. A table without a key has no such place; there the old
  and the new values are logged, whose sum is right in any order.
- An update that changes the key is logged as a delete and an insert.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from truecopy.engines.sqlite_annotation import ANNOTATION
from truecopy.engines.sqlite_dialect import SQLiteDialect, affinity
from truecopy.engines.sqlite_snapshot import CHANGE_LOG
from truecopy.stream.sqlite.facts import PREFIX, Facts, Term, Unique

LOG = CHANGE_LOG
CANDIDATE = PREFIX + "candidate"

INSERTED, UPDATED, DELETED = "I", "U", "D"
CAUGHT_UP, TRUNCATED, GAP, PARTIAL, START = "C", "T", "G", "P", "S"
"""Kinds of the log's rows; the last five are written by the tool and not by triggers: a row as it is
now, an emptied table, changes that nobody saw, changes of which not all was seen, the first row of a log."""

NOW = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
_TOTAL = f"COALESCE((SELECT total FROM {LOG} ORDER BY sequence DESC LIMIT 1), 0)"
_ANNOTATION = f"(SELECT value FROM {ANNOTATION} LIMIT 1)"
_ROW_BYTES = 24

quote = SQLiteDialect().quote


def trigger_sql(facts: Facts, number: int, definition: int) -> dict[str, str]:
    """The triggers of a table by name; `number` is the table's, `definition` that of its columns."""
    table = _Table(facts, number, definition)
    bodies = {
        "BEFORE INSERT": table.before_insert(),
        "BEFORE UPDATE": table.before_update(),
        "AFTER INSERT": table.after_insert(),
        "AFTER UPDATE": table.after_update(),
        "AFTER DELETE": table.after_delete(),
    }
    found = {}
    for event, statements in bodies.items():
        name = f"{PREFIX}{number}_{event.lower().replace(' ', '_')}"
        lines = "".join(f"  {statement};\n" for statement in statements)
        found[name] = (
            f"CREATE TRIGGER {quote(name)} {event} ON {quote(facts.table)} FOR EACH ROW"
            f" BEGIN\n{lines}END"
        )
    return found


def log_sql(facts: Facts, definition: int, kind: str, where: str = "") -> str:
    """Logs rows that the table holds now, all of them or some: for the tool, outside of triggers."""
    table = _Table(facts, 0, definition)
    image = table.image(quote(facts.table))
    size = f"SUM({table.size(image)}) OVER (ROWS UNBOUNDED PRECEDING)"
    return table.log(kind, image, f"FROM {quote(facts.table)} {where}", size=size)


def marker_sql(definition: int, kind: str) -> str:
    """Logs a row without values."""
    return _log(definition, kind, [], str(_ROW_BYTES))


def places(count: int) -> list[str]:
    """The log's columns for so many values."""
    return [f"v{i}" for i in range(count)]


class _Table:
    """The pieces of which the triggers of one table are made."""

    def __init__(self, facts: Facts, number: int, definition: int) -> None:
        self.facts = facts
        self.number = number
        self.definition = definition
        self.name = quote(facts.table)
        self.columns = facts.definition.columns

    # The five triggers

    def before_insert(self) -> list[str]:
        # What an earlier statement turned away is stale by now, unless a nested insert runs here in
        # the middle of an outer one; then the tool clears up, when no statement is under way.
        stale = [] if self.facts.inserts_nested else [f"DELETE FROM {CANDIDATE} WHERE {self._own}"]
        return stale + self._note_candidates("")

    def before_update(self) -> list[str]:
        return self._note_candidates(f" AND NOT ({self._same_row(self.name, 'OLD')})")

    def after_insert(self) -> list[str]:
        return [*self._log_gone(""), self._log_now(INSERTED)]

    def after_update(self) -> list[str]:
        own = f"NOT ({self._same_row(CANDIDATE, 'OLD')}) AND "
        moved = ", ".join(
            f"{place} = {value}"
            for place, value in zip(places(len(self.columns)), self.image("NEW"), strict=True)
        )
        number = f'"row" = NEW.{self.facts.row}, ' if self.facts.row else ""
        kept = (
            f"UPDATE {CANDIDATE} SET {number}{moved}"
            f" WHERE {self._own} AND {self._same_row(CANDIDATE, 'OLD')}"
        )
        both = [*self.image("OLD"), *self.image("NEW")]
        if not self.facts.definition.key:
            return [*self._log_gone(own), kept, self.log(UPDATED, both)]
        changed = self._key_changed()
        return [
            *self._log_gone(own),
            kept,
            self._log_now(UPDATED, self.image("OLD"), f" AND NOT ({changed})"),
            self.log(DELETED, self.image("OLD"), f"WHERE ({changed}) AND {self._key_is_free()}"),
            self._log_now(INSERTED, condition=f" AND ({changed})"),
        ]

    def after_delete(self) -> list[str]:
        gone = f"DELETE FROM {CANDIDATE} WHERE {self._own} AND {self._same_row(CANDIDATE, 'OLD')}"
        where = f"WHERE {self._key_is_free()}" if self.facts.definition.key else ""
        return [gone, self.log(DELETED, self.image("OLD"), where)]

    # Candidates

    @property
    def _own(self) -> str:
        return f"{CANDIDATE}.number = {self.number}"

    def _note_candidates(self, others: str) -> list[str]:
        """A statement per index, so that each is found by its own index."""
        conditions = [self._conflict(unique) for unique in self.facts.unique]
        if self.facts.row:
            row = self.facts.row
            conditions.append(f"{self.name}.{row} = NEW.{row}")
        row = f"{self.name}.{self.facts.row}" if self.facts.row else "NULL"
        target = ", ".join(["number", '"row"', *places(len(self.columns))])
        values = ", ".join([str(self.number), row, *self.image(self.name)])
        noted = (
            f"SELECT 1 FROM {CANDIDATE} WHERE {self._own}"
            f" AND {self._same_row(CANDIDATE, self.name)}"
        )
        return [
            f"INSERT INTO {CANDIDATE} ({target}) SELECT {values} FROM {self.name}"
            f" WHERE {condition}{others} AND NOT EXISTS ({noted})"
            for condition in conditions
        ]

    def _conflict(self, unique: Unique) -> str:
        """Rows that stand in the way of NEW; too many would do no harm, since only gone ones count."""
        parts = [
            f"{self._there(term)} = {self._new(term)} COLLATE {quote(term.collation)}"
            for term in unique.terms
        ]
        if unique.where:
            parts.append(f"({unique.where})")
        return " AND ".join(parts)

    def _there(self, term: Term) -> str:
        return f"{self.name}.{quote(term.column)}" if term.column else f"({term.expression})"

    def _new(self, term: Term) -> str:
        defaults = dict(self.facts.defaults)
        if term.column is None:
            # The index's expression over the new values: they stand in for the table's row.
            values = ", ".join(
                f"{new} AS {quote(column.name)}"
                for new, column in zip(self.image("NEW"), self.columns, strict=True)
            )
            return f"(SELECT {term.expression} FROM (SELECT {values}) AS {self.name})"
        value = f"NEW.{quote(term.column)}"
        # OR REPLACE puts the default where NULL is not allowed, after this trigger has run.
        default = defaults.get(term.column)
        return f"COALESCE({value}, ({default}))" if default else value

    def _log_gone(self, condition: str) -> list[str]:
        """Candidates whose place was taken by NEW, or whose row is not there any more."""
        there = f"SELECT 1 FROM {self.name} WHERE {self._same_row(self.name, CANDIDATE)}"
        gone = (
            f"WHERE {self._own} AND {condition}"
            f"({self._same_row(CANDIDATE, 'NEW')} OR NOT EXISTS ({there}))"
        )
        if self.facts.definition.key:
            # VACUUM may give a row another number: it is still there if its key is.
            gone += f" AND ({self._key_of_candidate('NEW')} OR NOT EXISTS ({self._keyed_alike()}))"
        image = [f"{CANDIDATE}.{place}" for place in places(len(self.columns))]
        return [
            self.log(DELETED, image, f"FROM {CANDIDATE} {gone}"),
            f"DELETE FROM {CANDIDATE} {gone}",
        ]

    def _same_row(self, one: str, other: str) -> str:
        """Whether two of NEW, OLD, the table and a candidate are the same row of the table."""
        if self.facts.row:
            return f"{self._row_of(one)} = {self._row_of(other)}"
        terms = self.facts.primary
        return " AND ".join(
            f"{self._value_of(one, term)} IS {self._value_of(other, term)}"
            f" COLLATE {quote(term.collation)}"
            for term in terms
        )

    def _row_of(self, side: str) -> str:
        return f'{side}."row"' if side == CANDIDATE else f"{side}.{self.facts.row}"

    def _value_of(self, side: str, term: Term) -> str:
        if side == CANDIDATE:
            return f"{side}.v{self.facts.definition.names.index(term.column or '')}"
        return f"{side}.{quote(term.column or '')}"

    # The key

    def _keys(self, compare: Callable[[str, str], str], joined: str) -> str:
        pairs = zip(self.facts.definition.key, self.facts.key_collations, strict=True)
        return joined.join(compare(quote(name), quote(collation)) for name, collation in pairs)

    def _key_of_candidate(self, side: str) -> str:
        """Whether a candidate has the key of NEW or of a row of the table, to the byte."""
        places = zip(self.facts.definition.key, self.facts.definition.key_places, strict=True)
        return " AND ".join(
            f"{side}.{quote(name)} IS {CANDIDATE}.v{place} COLLATE BINARY" for name, place in places
        )

    def _keyed_alike(self) -> str:
        by_index = " AND ".join(
            f"{self.name}.{quote(name)} IS {CANDIDATE}.v{place} COLLATE {quote(collation)}"
            for name, place, collation in zip(
                self.facts.definition.key,
                self.facts.definition.key_places,
                self.facts.key_collations,
                strict=True,
            )
        )
        exactly = self._key_of_candidate(self.name)
        return f"SELECT 1 FROM {self.name} WHERE {by_index} AND {exactly}"

    def _key_changed(self) -> str:
        # By bytes: texts that a collation takes for equal are different keys for all others.
        return self._keys(lambda name, _: f"OLD.{name} IS NOT NEW.{name} COLLATE BINARY", " OR ")

    def _key_is_free(self) -> str:
        same = self._keys(
            lambda name, collation: (
                f"{self.name}.{name} IS OLD.{name} COLLATE {collation}"
                f" AND {self.name}.{name} IS OLD.{name} COLLATE BINARY"
            ),
            " AND ",
        )
        return f"NOT EXISTS (SELECT 1 FROM {self.name} WHERE {same})"

    # The log

    def _log_now(self, kind: str, before: Sequence[str] = (), condition: str = "") -> str:
        """Logs what the table holds under the key of NEW."""
        if not self.facts.definition.key:
            return self.log(kind, [*before, *self.image("NEW")])
        same = self._keys(
            lambda name, collation: f"{self.name}.{name} IS NEW.{name} COLLATE {collation}", " AND "
        )
        image = [*before, *self.image(self.name)]
        return self.log(kind, image, f"FROM {self.name} WHERE {same}{condition}")

    def log(self, kind: str, image: Sequence[str], source: str = "", size: str = "") -> str:
        return _log(self.definition, kind, image, size or self.size(image), source)

    def image(self, side: str) -> list[str]:
        return [f"{side}.{quote(column.name)}" for column in self.columns]

    def size(self, image: Sequence[str]) -> str:
        """The bytes of some values, near enough: numbers are taken for eight."""
        columns = [*self.columns, *self.columns]
        numbers = [affinity(column.native) in ("INTEGER", "REAL") for column in columns]
        parts = [
            "8" if number else f"COALESCE(LENGTH({value}), 0)"
            for value, number in zip(image, numbers, strict=False)
        ]
        return _sum([str(_ROW_BYTES), *parts])


def _sum(parts: Sequence[str]) -> str:
    """In brackets of fifty: SQLite refuses expressions that are a thousand deep."""
    if len(parts) <= 50:
        return " + ".join(parts)
    groups = [parts[at : at + 50] for at in range(0, len(parts), 50)]
    return _sum([f"({' + '.join(group)})" for group in groups])


def _log(definition: int, kind: str, image: Sequence[str], size: str, source: str = "") -> str:
    target = ", ".join(["at", "total", "definition", "kind", "annotation", *places(len(image))])
    values = ", ".join(
        [NOW, f"{_TOTAL} + {size}", str(definition), f"'{kind}'", _ANNOTATION, *image]
    )
    return f"INSERT INTO {LOG} ({target}) SELECT {values} {source}".rstrip()
