"""What a task moves: each source table, the target table that takes its rows, and how they match."""

from __future__ import annotations

from dataclasses import dataclass, replace

from truecopy.engines.protocols import HasHome
from truecopy.mapping.plan import Constant, Masked, TableMapping, TargetColumn
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.model.relation import Relation
from truecopy.model.table import Column, ForeignKey, Table, TableName
from truecopy.model.types import Decimal, Integer, Text, Type, Unsupported, type_name
from truecopy.verify.matching import Comparison, match_tables
from truecopy.verify.options import Options

_EXACT = "bytes"
"""The order of a column in which texts that differ are never equal."""
_LONGEST_NAME = 255
"""Of a table with its schema, and of other texts that are the same in every row."""


@dataclass(frozen=True)
class Tie:
    """How foreign keys whose doings the source does not log tie rows of a table to others; see `ties`.

    Attributes:
        takes: Rows of others go, or change, when one is deleted.
        referred: Columns, by the source's names, by whose change rows of others change.
        follows: Its own rows go or change with those of others.
    """

    takes: bool = False
    referred: tuple[str, ...] = ()
    follows: bool = False


@dataclass(frozen=True)
class TablePlan:
    """One source table on its way into one target table; plain values for executors.

    Attributes:
        mapping: What becomes of a row.
        read: The source's columns as they are read, key first.
        comparison: What arrives, column by column, with the types on which it and the target agreed. Where
            rows arrive as they are, its source is `read`; else it is the source as the mapping makes it,
            which no database can be asked for.
        sliced: Whether its rows may be written in parallel: not where a second unique key ties them together.
        tie: None where the log tells of every change of its rows.
    """

    mapping: TableMapping
    read: Relation
    comparison: Comparison
    sliced: bool
    tie: Tie | None = None

    @property
    def is_mapped(self) -> bool:
        """Whether rows are made by expressions on their way."""
        return is_mapped(self.mapping)

    @property
    def is_keyless(self) -> bool:
        """Whether rows that arrive have no name: they are copied in one piece, and only added to."""
        return not self.target.key_width

    @property
    def source_name(self) -> str:
        return str(self.mapping.source)

    @property
    def source(self) -> Relation:
        return self.comparison.source

    @property
    def target(self) -> Relation:
        return self.comparison.target


@dataclass(frozen=True)
class ChangeTarget:
    """Where changes of one definition of a table go.

    Attributes:
        table: The source's name.
        relation: The target's columns, key first, typed as the *changes* are: their texts are cast on
            the way in.
        places: Where each of these columns is in a change's row.
        key_places: Where the relation's key columns are in a change's key.
        takes: Whether foreign keys act when a row is deleted.
        referred: Where the columns are in a change's row by whose change foreign keys act.
        shared: Rows of other tables may have the same key: they are the same row.
    """

    table: str
    relation: Relation
    places: tuple[int, ...]
    key_places: tuple[int, ...]
    takes: bool = False
    referred: tuple[int, ...] = ()
    shared: bool = False

    @property
    def may_act(self) -> bool:
        """Whether foreign keys may change other rows by a change of these."""
        return self.takes or bool(self.referred)


def home_of(source: object) -> str | None:
    """The schema of the source whose tables are at home on the target, too; None where it has no such one."""
    return source.home() if isinstance(source, HasHome) else None


def is_mapped(mapping: TableMapping) -> bool:
    """Whether a mapping does more than to choose columns and to name them.

    A key that is not the source's counts as well: changes come by the source's, and must be made into others.
    """
    own = tuple(mapping.renames.get(name, name) for name in mapping.source_key)
    return mapping.merged or not mapping.is_identity or mapping.key != own


def plan_table(
    mapping: TableMapping, source: Endpoint, table: Table, target: Endpoint, onto: Table
) -> TablePlan:
    """Plans the way of a table whose target is there."""
    if is_mapped(mapping):
        read = as_read(source, table)
        arrives = arriving(mapping, table)
        comparison = match_tables(source, (arrives,), target, onto, Options(key=mapping.key))
    else:
        comparison = match_tables(source, (table,), target, onto, _by_name(mapping))
        read = comparison.source
    for finding in comparison.findings:
        if finding.kind == "missing_on_target":
            raise UsageError(f"{mapping.source} cannot be carried whole: {finding.message}")
    key = tuple(column.name for column in comparison.target.key)
    sliced = may_be_sliced(mapping, table, onto, key)
    return TablePlan(mapping, read, comparison, sliced)


def _by_name(mapping: TableMapping) -> Options:
    """How a mapping that only chooses and names columns is said to the matching."""
    arrive = {column.like.name for column in mapping.columns if column.like is not None}
    return Options(
        renames=tuple(f"{old}={new}" for old, new in mapping.renames.items() if old != new),
        ignore_columns=tuple(c.name for c in mapping.source_columns if c.name not in arrive),
    )


def as_read(source: Endpoint, table: Table) -> Relation:
    """A source table as it is, key first; columns that cannot be read are left to the mapping to miss."""
    key = table.keys[0] if table.keys else ()
    readable = [c for c in table.columns if not isinstance(c.type, Unsupported)]
    columns = sorted(readable, key=lambda c: key.index(c.name) if c.name in key else len(key))
    return Relation(source, (table.name,), tuple(columns), tuple(c.type for c in columns), len(key))


def arriving(mapping: TableMapping, source: Table) -> Table:
    """A source table as it will be on the target, by the names that columns have there.

    What is made of columns that arrive as they are stays; a unique index does not hold over rows of several tables.
    What references refer to is still called as the source calls it.
    """
    names = mapping.renames
    made = _mapped if is_mapped(mapping) else _chosen
    return replace(
        made(mapping, source),
        indexes=tuple(
            replace(index, columns=tuple(names[name] for name in index.columns))
            for index in source.indexes
            if all(name in names for name in index.columns)
            and not (index.unique and mapping.merged)
        ),
        foreign_keys=tuple(
            replace(key, columns=tuple(names[name] for name in key.columns))
            for key in source.foreign_keys
            if all(name in names for name in key.columns)
        ),
        numbered=tuple(names[name] for name in source.numbered if name in names),
        collations=tuple(
            (names[name], collation) for name, collation in source.collations if name in names
        ),
    )


def spelled(mapping: TableMapping, target: Table) -> TableMapping:
    """A mapping by the names of a table that is there: its case may be another."""

    def own(name: str) -> str:
        column = target.column(name)
        return name if column is None else column.name

    return replace(
        mapping,
        columns=tuple(replace(column, name=own(column.name)) for column in mapping.columns),
        key=tuple(map(own, mapping.key)),
    )


def referring(
    key: ForeignKey, mapping: TableMapping, parent: Table, onto: TableName
) -> ForeignKey | None:
    """A reference onto a table by the names that it has on the target; None where there is nothing to refer to.

    Args:
        key: Its own columns have the target's names, and the others the source's.
        mapping: Of the table that it refers to.
        parent: That table on the source.
        onto: Its name on the target.
    """
    names, columns = mapping.renames, key.parent_columns or parent.primary
    if mapping.merged or not all(name in names for name in columns):
        return None
    return replace(key, parent=onto, parent_columns=tuple(names[name] for name in columns))


def _mapped(mapping: TableMapping, source: Table) -> Table:
    """The columns that expressions make, with the key that identifies a row then."""
    return replace(
        source,
        columns=tuple(_arriving(column) for column in mapping.columns),
        keys=(mapping.key,) if mapping.key else (),
        primary=mapping.key,
        unique=(mapping.key,) if mapping.key else (),
    )


def _chosen(mapping: TableMapping, source: Table) -> Table:
    """Columns that are only chosen and named, with the keys that are whole among them."""
    names = mapping.renames
    columns = tuple(
        replace(column, name=names[column.name])
        for column in source.columns
        if column.name in names
    )

    def renamed(keys: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        whole = [key for key in keys if all(name in names for name in key)]
        return tuple(tuple(names[name] for name in key) for key in whole)

    (primary, *_) = (*renamed((source.primary,)), ())
    return replace(
        source,
        columns=columns,
        keys=renamed(source.keys),
        unique=renamed(source.unique),
        primary=primary,
    )


def _arriving(column: TargetColumn) -> Column:
    if column.like is not None:
        return replace(column.like, name=column.name, generated=False)
    return Column(column.name, column.type, _declaration(column), column.nullable, computed=True)


def _declaration(column: TargetColumn) -> str:
    """What a computed column holds, in words of its own; one that may be in a key has a length."""
    match column.type, column.origin:
        case Text(), Masked(length=length):
            return f"varchar({length})"
        case Text(), Constant(text):
            return f"varchar({max(_LONGEST_NAME, len(text or ''))})"
        case Text(), _:
            return "text"
        case Integer(), _:
            return "bigint"
        case Decimal(scale), _ if scale is not None:
            return f"decimal(38,{scale})"
        case kind, _:
            return type_name(kind)


def change_target(plan: TablePlan, definition: Definition) -> ChangeTarget:
    """Matches a definition that rows were logged under with the table that takes them, by column name."""
    pairs = list(zip(plan.source.columns, plan.target.columns, strict=True))
    names = {column.name.lower(): place for place, column in enumerate(definition.columns)}
    carried = [(a, b) for a, b in pairs if a.name.lower() in names and not b.generated]
    key = pairs[: plan.source.key_width]
    for column, _ in key:
        if column.name.lower() not in (name.lower() for name in definition.key):
            raise UsageError(
                f"changes of {definition.table} are keyed by {', '.join(definition.key) or 'nothing'}, and the copy by"
                f" {column.name}: give both the same key"
            )
    places = tuple(names[a.name.lower()] for a, _ in carried)
    types = tuple(definition.columns[place].type for place in places)
    keys = [name.lower() for name in definition.key]
    key_places = tuple(keys.index(column.name.lower()) for column, _ in key)
    tie = plan.tie or Tie()
    return ChangeTarget(
        plan.source_name,
        _written(plan, [b for _, b in carried], types),
        places,
        key_places,
        tie.takes,
        tuple(names[name.lower()] for name in tie.referred),
    )


def mapped_target(plan: TablePlan, mapping: TableMapping) -> ChangeTarget:
    """The same for rows that come out of a mapping, made for the definition that they were logged under."""
    names = [column.name for column in mapping.columns]
    pairs = list(zip(plan.source.columns, plan.target.columns, strict=True))
    carried = [(a, b) for a, b in pairs if a.name in names and not b.generated]
    places = tuple(names.index(a.name) for a, _ in carried)
    types = tuple(mapping.columns[place].type for place in places)
    key_places = tuple(mapping.key.index(a.name) for a, _ in pairs[: plan.source.key_width])
    return ChangeTarget(
        plan.source_name,
        _written(plan, [b for _, b in carried], types),
        places,
        key_places,
        shared=mapping.shares_rows,
    )


def _written(plan: TablePlan, columns: list[Column], types: tuple[Type, ...]) -> Relation:
    """The target as changes are written there; a leg keeps the condition that tells its rows from others."""
    return replace(plan.target, columns=tuple(columns), types=types)


def tied(plan: TablePlan, tie: Tie | None) -> TablePlan:
    """The plan of a table whose rows are tied to others: all of them are written in one transaction."""
    return replace(plan, tie=tie, sliced=False) if tie is not None else plan


def may_be_sliced(
    mapping: TableMapping, source: Table, target: Table, key: tuple[str, ...]
) -> bool:
    """Whether rows of different keys have nothing to do with each other, so that no order is needed among them.

    A swap of two unique values is right only where both rows are written in one transaction; the target may get
    the source's unique keys later. Texts that differ may be one key to a collation. And a row may go from one of
    several tables that are merged to another.
    """
    if not key or target.whole or mapping.shares_rows:
        return False
    columns = [target.column(name) for name in key]
    is_exact = all(
        column is not None and (not isinstance(column.type, Text) or column.order == _EXACT)
        for column in columns
    )
    return is_exact and _is_alone(target, key) and _is_alone(source, mapping.source_key)


def _is_alone(table: Table, key: tuple[str, ...]) -> bool:
    """Whether a table is unique by this key only."""
    wanted = {name.lower() for name in key}
    is_only = all({c.lower() for c in unique} == wanted for unique in table.unique)
    return is_only and not table.partly_unique
