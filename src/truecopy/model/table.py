"""Tables as Truecopy sees them: names, columns, keys, references."""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.model.errors import UsageError
from truecopy.model.types import Type

_SHOWN = 3
"""How many tables of a long list are named."""


@dataclass(frozen=True, order=True)
class TableName:
    """A table inside one database; `schema` is None where the engine has one namespace only."""

    schema: str | None
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


@dataclass(frozen=True)
class Column:
    """One column of one side.

    Attributes:
        name: As the engine spells it.
        type: The canonical type.
        native: The engine's own declaration, for messages and for its SQL.
        nullable: False only where the engine enforces NOT NULL.
        weak: The engine does not enforce the declared type (SQLite, CSV).
        order: How the engine orders the column; ranges of a key are the same set of rows on both
            sides only where both sides name the same order. None: do not use it for ranges.
        fraction: Digits after the second (or after the point) that the engine prints.
        charset: Character set of text where it is not UTF-8.
        padded: Fixed-length text whose trailing spaces carry no meaning.
        generated: Computed by the database; compared, but never written.
        computed: Made by an expression on the way; its declaration says what it holds, and is no engine's own.
    """

    name: str
    type: Type
    native: str
    nullable: bool = True
    weak: bool = False
    order: str | None = None
    fraction: int | None = None
    charset: str | None = None
    padded: bool = False
    generated: bool = False
    computed: bool = False


_ACTIONS = "CASCADE", "SET NULL", "SET DEFAULT"


@dataclass(frozen=True)
class ForeignKey:
    """A reference from columns of this table to another table.

    Attributes:
        parent_columns: Those referred to, in the order of `columns`; empty where it is not known.
        on_delete, on_update: What happens to this table's rows when those of the parent go or change.
    """

    columns: tuple[str, ...]
    parent: TableName
    parent_columns: tuple[str, ...] = ()
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"

    @property
    def actions(self) -> str:
        """What changes rows of this table when those of the parent go or change, as SQL says it; empty for nothing."""
        rules = (("ON DELETE", self.on_delete), ("ON UPDATE", self.on_update))
        return ", ".join(f"{when} {what}" for when, what in rules if what in _ACTIONS)

    @property
    def acts_on_delete(self) -> bool:
        return self.on_delete in _ACTIONS

    @property
    def acts_on_update(self) -> bool:
        return self.on_update in _ACTIONS


@dataclass(frozen=True)
class Index:
    """An index that is not the primary key's.

    Attributes:
        prefixes: How many characters (or bytes) of each column are indexed, None for all; empty
            where all columns are whole.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    prefixes: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table with what verification needs to know of it.

    Attributes:
        keys: Candidate keys, best first: the primary key, then unique keys over non-null columns.
        unique: Every unique constraint, those over nullable columns included.
        rows: The engine's estimate.
        row_bytes: The engine's estimate of an average row.
        engine: Whose declarations `Column.native` holds: `mysql`, `mariadb`, `postgresql`, ….
        primary: The primary key's columns, also those that may be NULL (SQLite).
        indexes: The others, as far as they are over columns and all rows.
        numbered: Columns that the database numbers by itself (AUTO_INCREMENT, identity, serial).
        next_number: What the one column of `numbered` would get next; None where it is not known.
        collations: Name and collation of the columns of text that have one of their own.
        defaulted: Columns that have a default other than NULL.
        uncarried: What a table made from this description will not have, in words.
        partly_unique: It has unique indexes over expressions, parts of values or some rows, which `unique` leaves out.
        whole: It takes one write at a time, so that slices of it gain nothing.
        children: Tables of their own whose rows are read, changed and deleted with this one's.
    """

    name: TableName
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    rows: int = 0
    row_bytes: int = 100
    engine: str = ""
    primary: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    numbered: tuple[str, ...] = ()
    next_number: int | None = None
    collations: tuple[tuple[str, str], ...] = ()
    defaulted: tuple[str, ...] = ()
    uncarried: tuple[str, ...] = ()
    partly_unique: bool = False
    whole: bool = False
    children: tuple[TableName, ...] = ()

    def column(self, name: str) -> Column | None:
        """The column of that name, or of that name in another case where only one fits."""
        exact = [column for column in self.columns if column.name == name]
        folded = [column for column in self.columns if column.name.lower() == name.lower()]
        if exact:
            return exact[0]
        return folded[0] if len(folded) == 1 else None

    @property
    def children_shown(self) -> str:
        """The first of its children, and how many more there are."""
        more = len(self.children[_SHOWN:])
        return ", ".join(map(str, self.children[:_SHOWN])) + (f" and {more} more" if more else "")


def require_own_rows(table: Table) -> None:
    """Refuses a table whose rows cannot be told from those of others, which the log has under their own names."""
    if table.children:
        raise UsageError(
            f"{table.name} has children by inheritance ({table.children_shown}): their rows are read, changed and"
            " deleted with its own, and their changes are logged under their own names only; make them partitions of"
            f" it, end the inheritance, or leave {table.name} out"
        )
