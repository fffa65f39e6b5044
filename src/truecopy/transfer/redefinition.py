"""Tables of the source that become others while their changes are carried: what goes on, and what needs a person.

A task pauses in front of a change that its target is not ready for, and goes on when the target is: nobody has
to tell it so. What cannot be seen on the target, that a table with an old name holds the same rows as before,
is said in the ledger: by the position at which the other table got the name. That is one answer for all statements
of a swap, whether the name became free by a `DROP`, by a `RENAME`, or by the same `RENAME`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from truecopy.engines.protocols import Advises
from truecopy.engines.sql import drop_table_sql, rename_table_sql
from truecopy.mapping.plan import TableMapping
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.table import Column, Table, TableName
from truecopy.transfer.ledger import SOURCES, SourceLine
from truecopy.transfer.preflight.fit import misfit
from truecopy.transfer.succession import Successor


class DefinitionChanged(CannotFinish):
    """The source's table is another one than the target has; the message says what to run."""


@dataclass(frozen=True)
class Renamed:
    """A table has another name on both sides."""

    name: TableName


GONE = "gone"
"""A table is gone on both sides."""
EMPTIED = "emptied"
"""A table went and was made again, so that the log says all of it."""
ACCEPTED = "accepted"
"""Another table has the name, and the ledger says that its rows are the same."""

Verdict = str | Renamed


@dataclass(frozen=True)
class Redefinition:
    """What happened to a table as a whole.

    Attributes:
        onto: The table of the target that takes its rows.
        renamed: Its new name on the source; None where it was dropped.
        onto_renamed: Where rows of a table of the new name go; None where the task does not carry it.
        merged: Rows of other tables are in the same table of the target.
        at: Where in the log.
        successor: The table that has the name on the source now; None where there is none.
    """

    task: str
    table: TableName
    onto: TableName
    at: str
    renamed: TableName | None = None
    onto_renamed: TableName | None = None
    merged: bool = False
    successor: Successor | None = None


def judge(what: Redefinition, target: Any, line: SourceLine | None) -> Verdict:
    """What becomes of a table that was dropped or renamed; pauses where the target is not ready for that.

    A table that was dropped is emptied only where the one that has its name now was made by it. One that was renamed
    to it has rows that the log does not tell of by this name: the pause is at the `DROP`, where the target still
    holds what the other table may be said to hold (`succession.find_successor`).
    """
    if what.successor is not None:
        if what.renamed is None and what.successor.is_made:
            return EMPTIED
        require_accepted(what.task, what.table, what.successor.at, line, _went(what))
        return ACCEPTED
    if what.renamed is None:
        if not has_table(target, what.onto):
            return GONE
        raise DefinitionChanged(
            f"{what.table} was dropped on the source{_at(what)}: {_drop(what, target)}"
        )
    moved = what.onto_renamed
    if moved is not None and has_table(target, moved) and not has_table(target, what.onto):
        return Renamed(what.renamed)
    raise DefinitionChanged(
        f"{what.table} is called {what.renamed} on the source{_at(what, 'since ')}: {_rename(what, target)}"
    )


def refuse_replaced(table: TableName) -> None:
    """Stops where another table has got a name, whose changes so far are not in the log."""
    raise DefinitionChanged(
        f"{table} on the source is another table than the one that was copied, and its changes so far are not in the"
        " log: exclude it, run the task again, and carry it by a task of its own"
    )


def require_accepted(
    task: str, table: TableName, at: str, line: SourceLine | None, went: str
) -> None:
    """Pauses where another table got a name, unless the ledger says that its rows are the same.

    They came by another name, if at all: only a person knows.

    Args:
        task: Whose ledger.
        table: The name.
        at: Where in the log it got the name.
        line: What the ledger says of the table that had the name.
        went: What became of that, in words.
    """
    if line is not None and line.identity == at:
        return
    raise DefinitionChanged(
        f"{went}, and another table has its name now: if that holds the same rows (an online schema change), run UPDATE"
        f" {SOURCES} SET identity = '{at}' WHERE task = '{task}' AND source_table = '{table}' on the target, and run"
        " the task again; if not, exclude it, and carry it by a task of its own"
    )


def has_table(session: Any, name: TableName) -> bool:
    """Whether a database has a table now."""
    return name in session.tables() if name.schema else session.find(name.table) is not None


def _at(what: Redefinition, word: str = "at ") -> str:
    return f" {word}{what.at}" if what.at else ""


def _drop(what: Redefinition, target: Any) -> str:
    if what.merged:
        return f"delete its rows in {what.onto} on the target, exclude it, and run the task again"
    statement = drop_table_sql(target.dialect, what.onto)
    return f"run {statement} on the target, or exclude it to keep what has arrived, and run the task again"


def _rename(what: Redefinition, target: Any) -> str:
    onto = what.onto_renamed
    if onto is None or what.merged or (onto.schema and onto.schema != what.onto.schema):
        return f"exclude {what.table}, run the task again, and carry {what.renamed} by a task of its own"
    return f"run {rename_table_sql(target.dialect, what.onto, onto)} on the target, and run the task again"


def _went(what: Redefinition) -> str:
    became = "dropped" if what.renamed is None else f"renamed to {what.renamed}"
    return f"{what.table} was {became}{_at(what)}"


# Columns and keys


def require_types(
    mapping: TableMapping, before: Table, now: Table, onto: Table, target: Any
) -> None:
    """Pauses where a column may hold what the target's cannot, and could not when changes were last applied."""
    for column in mapping.columns:
        if column.like is None:
            continue
        theirs, was = onto.column(column.name), before.column(column.like.name)
        if theirs is None or was is None or theirs.generated:
            continue
        if reason := _outgrown(was, column.like, theirs, now.engine, onto.engine):
            advisor = target.advisor() if isinstance(target, Advises) else None
            how = ""
            with suppress(UsageError):
                how = advisor.alter_column(onto.name, theirs, column.like, now) if advisor else ""
            run = (
                f"run {how} on the target"
                if how
                else f"alter {theirs.name} of {onto.name} on the target"
            )
            raise DefinitionChanged(
                f"{column.like.name} of {mapping.source} is {column.like.native} now, and {onto.name} on the target has"
                f" {theirs.native}, which does not hold {reason}: {run}, and run the task again"
            )


def _outgrown(
    was: Column, now: Column, theirs: Column, source_engine: str, target_engine: str
) -> str:
    """What does not fit that did before, in words."""
    if now.nullable and not was.nullable and not theirs.nullable and not theirs.weak:
        return "NULL"
    if type(now.type) is not type(was.type) and type(now.type) is not type(theirs.type):
        return "" if theirs.weak else "such values"
    found = misfit(now, source_engine, theirs, target_engine)
    return found if found and found != misfit(was, source_engine, theirs, target_engine) else ""


def require_key(
    mapping: TableMapping, before: Definition, now: Definition, onto: Table, target: Any
) -> None:
    """Pauses where rows are told apart by other columns than before, and not so on the target."""
    if _folded(now.key) == _folded(before.key):
        return
    if not now.key:
        raise DefinitionChanged(
            f"{mapping.source} has no key any more, so that changed rows cannot be found on the target: give it a key"
            " on the source, or exclude it, and run the task again"
        )
    key = [mapping.renames.get(name, name) for name in now.key]
    if any(_folded(key) == _folded(held) for held in onto.keys):
        return
    advisor = target.advisor() if isinstance(target, Advises) else None
    how = advisor.change_key(onto, key) if advisor else ""
    run = f"run {how} on the target" if how else f"give {onto.name} the same key on the target"
    raise DefinitionChanged(
        f"the key of {mapping.source} is ({', '.join(now.key)}) now, and was ({', '.join(before.key) or 'none'}):"
        f" {run}, and run the task again"
    )


def _folded(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


# What was known before


def known_definition(definitions: Definitions, line: SourceLine | None) -> Definition | None:
    """The definition that the last changes were applied under; None where it is not known here."""
    if line is None or not line.schema_id:
        return None
    with suppress(CannotFinish):
        return definitions.find(line.schema_id)
    return None


def defined_by(table: Table) -> Definition:
    """What the log would say of a table."""
    return Definition(str(table.name), table.columns, table.keys[0] if table.keys else ())


def as_of(
    known: Definition,
    present: Table | None,
    onto: Table | None,
    name: TableName,
    renames: Mapping[str, str],
) -> Table:
    """A table as it was when its last change was applied, as far as the target is still like that.

    The changes that come next were made under that definition. Where somebody has made the target ready for a
    later one, it is that.
    """
    if present is not None and defined_by(present) == known:
        return present
    columns = []
    for column in known.columns:
        now = present.column(column.name) if present is not None else None
        theirs = onto.column(renames.get(column.name, column.name)) if onto is not None else None
        if now is None and onto is not None and theirs is None:
            continue
        has_followed = (
            now is not None and theirs is not None and type(now.type) is type(theirs.type)
        )
        columns.append(now if now is not None and has_followed else column)
    names = {column.name for column in columns}
    keys = (known.key,) if known.key and names.issuperset(known.key) else ()
    if present is None:
        return Table(name, tuple(columns), keys, keys, primary=keys[0] if keys else ())
    others = tuple(key for key in present.keys if key not in keys and names.issuperset(key))
    return replace(present, columns=tuple(columns), keys=keys or others)
