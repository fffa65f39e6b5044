"""The way of a row, planned: for each column of the target, its type and where its value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from truecopy.mapping.choice import nearest
from truecopy.mapping.routes import Route, Way, find_way, find_ways
from truecopy.mapping.rules import (
    NO_RULES,
    Computed,
    Fixed,
    Rule,
    Rules,
    join_by_column,
    require_tables,
    rules_of,
)
from truecopy.model.change import Definition
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import (
    Array,
    Binary,
    Boolean,
    Decimal,
    Float,
    Integer,
    Text,
    Type,
    Unsupported,
    Uuid,
    type_name,
)

SAFE_HASH = 32
"""Hex digits of a hash from which on two values of a key never meet: 128 bits."""


@dataclass(frozen=True)
class Copied:
    """The source's value as it is; `place` is where its column stands in the source."""

    place: int


@dataclass(frozen=True)
class Masked:
    """A keyed hash of the source's value."""

    place: int
    key: Secret
    length: int


@dataclass(frozen=True)
class Converted:
    """The source's value as one of the target column's type, without loss."""

    place: int


@dataclass(frozen=True)
class Expressed:
    """A Spark SQL expression over the source's columns; `type` where the task gives one."""

    sql: str
    type: Type | None = None


@dataclass(frozen=True)
class Constant:
    """The same canonical text in every row."""

    text: str | None


Origin = Copied | Masked | Converted | Expressed | Constant


@dataclass(frozen=True)
class TargetColumn:
    """A column of the target.

    Attributes:
        like: The source's column, where the value is copied: its declaration fits as well.
    """

    name: str
    type: Type
    origin: Origin
    nullable: bool = True
    like: Column | None = None


@dataclass(frozen=True)
class TableMapping:
    """How rows of one table become rows of another.

    Attributes:
        source_columns: In the order in which rows come.
        source_key: Names of the columns that the source's changes are keyed by.
        columns: In the order in which rows leave.
        key: Names of the target's key; empty for a table without one.
        filter: Conditions in Spark SQL, all of which a row must meet.
        merged: Other tables go to the same target, so that it is not this one's to empty.
        source_column: The column that holds the source table's name, where tables are merged.
    """

    source: TableName
    target: TableName
    source_columns: tuple[Column, ...]
    source_key: tuple[str, ...]
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    filter: tuple[str, ...] = ()
    merged: bool = False
    source_column: str | None = None

    @cached_property
    def is_identity(self) -> bool:
        """Whether columns are chosen, ordered and named, and nothing else: no expression is needed."""
        return not self.filter and all(isinstance(c.origin, Copied) for c in self.columns)

    @property
    def shares_rows(self) -> bool:
        """Whether rows of other tables may have the same key on the target, and are the same row there."""
        return self.merged and not self.source_column and bool(self.key)

    @cached_property
    def keeps_rows_apart(self) -> bool:
        """Whether two rows of the source never get the same key; a key that the task names may not tell them apart."""
        found = set()
        for column in self.columns:
            if column.name in self.key and isinstance(column.origin, Copied | Masked | Converted):
                own = self.source_columns[column.origin.place]
                found |= {own.name} if _keeps_apart(own.type, column) else set()
        return bool(self.source_key) and found.issuperset(self.source_key)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Of an identity: where each column of the target stands in the source."""
        return tuple(c.origin.place for c in self.columns if isinstance(c.origin, Copied))

    @cached_property
    def key_places(self) -> tuple[int, ...]:
        """Where the key's columns stand among the target's columns."""
        names = [column.name for column in self.columns]
        return tuple(names.index(name) for name in self.key)

    @cached_property
    def renames(self) -> dict[str, str]:
        """The target's name of each source column that arrives as it is."""
        return {column.like.name: column.name for column in self.columns if column.like is not None}


Infer = Callable[[Sequence[Column], str], Type]
"""The type of an expression over columns; `truecopy.mapping.transformers.inferred_by` gives one."""


@dataclass(frozen=True)
class MappingRules:
    """All that a task says about tables: what a mapping is planned from."""

    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    home: str | None = None
    infer: Infer | None = field(default=None, compare=False)


def plan_tables(tables: Iterable[Table], task: MappingRules) -> tuple[TableMapping, ...]:
    """The mappings of all chosen tables; what does not fit is one line with table and column."""
    chosen = list(tables)
    require_tables((table.name for table in chosen), task.rules)
    ways = find_ways((table.name for table in chosen), task.routes, task.home)
    found = tuple(
        plan_table(table, way, rules_of(table, task.rules), task.infer)
        for table, way in zip(chosen, ways, strict=True)
    )
    _require_alike(found)
    return found


def plan_definition(
    definition: Definition, mapping: TableMapping, task: MappingRules
) -> TableMapping:
    """The mapping of a table's changes, by the definition that they were made under.

    The key stays that of the table's mapping: one target has one key, whatever the log calls it.
    """
    table = as_table(definition, mapping.source)
    way = find_way(mapping.source, task.routes, task.home)
    return plan_table(table, way, rules_of(table, task.rules), task.infer, key=mapping.key)


def plan_table(
    table: Table,
    way: Way | None = None,
    rules: Rules = NO_RULES,
    infer: Infer | None = None,
    key: tuple[str, ...] | None = None,
) -> TableMapping:
    """The mapping of one table.

    Args:
        table: The source.
        way: Its route; None to a table of the same name.
        rules: What happens to its rows, by the real names of its columns (`rules_of`).
        infer: Tells types of added expressions; without it each must be given one.
        key: The target's key, where it is settled; None to find it.
    """
    way = way or Way(table.name, table.name)
    names = join_by_column(table.name, "rename", _real_names(table, way), rules.rename)
    _refuse_two_values(table, rules)
    columns = [
        _column(table, place, names.get(column.name, column.name), rules)
        for place, column in enumerate(table.columns)
        if (not rules.include or column.name in rules.include) and column.name not in rules.exclude
    ]
    columns += [_added(table, name, value, infer) for name, value in rules.add.items()]
    if way.source_column:
        origin = Constant(str(table.name))
        columns.insert(0, TargetColumn(way.source_column, Text(), origin, nullable=False))
    if not columns:
        raise UsageError(f"{table.name}: no column is left; choose some, or exclude the table")
    _refuse_same_name(table, columns)
    return TableMapping(
        source=table.name,
        target=way.target,
        source_columns=table.columns,
        source_key=table.keys[0] if table.keys else (),
        columns=tuple(columns),
        key=_given_key(table, columns, key or rules.key)
        if key or rules.key
        else _surviving_key(table, columns, way.source_column),
        filter=rules.filter,
        merged=way.merge,
        source_column=way.source_column,
    )


def as_table(definition: Definition, name: TableName) -> Table:
    """A definition of the stream as a table."""
    keys = (definition.key,) if definition.key else ()
    return Table(name, definition.columns, keys)


def _real_names(table: Table, way: Way) -> dict[str, str]:
    names = {}
    for name, new in way.columns.items():
        column = table.column(name)
        if column is None:
            hint = nearest(name, (c.name for c in table.columns))
            raise UsageError(
                f"{table.name}: its route renames {name}, which is no column of it{hint}"
            )
        names[column.name] = new
    return names


def _refuse_two_values(table: Table, rules: Rules) -> None:
    for column in table.columns:
        given = [
            rule
            for rule, columns in (("mask", rules.mask), ("cast", rules.cast), ("sql", rules.sql))
            if column.name in columns
        ]
        if len(given) > 1:
            raise UsageError(
                f"{table.name}.{column.name}: {' and '.join(given)} both give its value; write one sql"
            )


def _column(table: Table, place: int, name: str, rules: Rules) -> TargetColumn:
    column = table.columns[place]
    where = f"{table.name}.{column.name}"
    if mask := rules.mask.get(column.name):
        origin = Masked(place, mask.key, mask.length)
        return TargetColumn(name, Text(), origin, column.nullable)
    if (kind := rules.cast.get(column.name)) is not None:
        _require_cast(where, column.type, kind)
        return TargetColumn(name, kind, Converted(place), column.nullable)
    if computed := rules.sql.get(column.name):
        # The same column with another value: its type is another only where the rule says so.
        value = Expressed(computed.sql, computed.type)
        return TargetColumn(name, computed.type or column.type, value)
    if isinstance(column.type, Unsupported):
        raise UsageError(f"{where} cannot be carried: {column.type.reason}; leave it out with drop")
    return TargetColumn(name, column.type, Copied(place), column.nullable, column)


def _added(table: Table, name: str, value: Computed | Fixed, infer: Infer | None) -> TargetColumn:
    if isinstance(value, Fixed):
        return TargetColumn(name, value.type, Constant(value.text), value.text is None)
    kind = value.type or (infer(table.columns, value.sql) if infer is not None else None)
    if kind is None:
        raise UsageError(f"{table.name}.{name}: say its type: add: {{{name}: {{sql: …, type: …}}}}")
    return TargetColumn(name, kind, Expressed(value.sql, value.type))


def _require_cast(where: str, own: Type, kind: Type) -> None:
    if own == kind:
        return
    reason = ""
    if isinstance(own, Unsupported):
        reason = own.reason
    elif isinstance(own, Array):
        reason = "an array's text is its own"
    elif isinstance(own, Float) and not isinstance(kind, Float):
        reason = f"a double has no exact {type_name(kind)}; round it with sql"
    if reason:
        raise UsageError(f"{where} cannot be cast to {type_name(kind)}: {reason}")


def _refuse_same_name(table: Table, columns: Sequence[TargetColumn]) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise UsageError(
                f"{table.name}.{column.name}: two columns of the target would have this name"
            )
        seen.add(column.name.lower())


def _given_key(
    table: Table, columns: Sequence[TargetColumn], wanted: Sequence[str]
) -> tuple[str, ...]:
    names = {column.name.lower(): column.name for column in columns}
    for name in wanted:
        if name.lower() not in names:
            raise UsageError(
                f"{table.name}: key names {name}, which the target does not have{nearest(name, names.values())}"
            )
    return tuple(names[name.lower()] for name in wanted)


def _surviving_key(
    table: Table, columns: Sequence[TargetColumn], source_column: str | None
) -> tuple[str, ...]:
    """The source's key by the target's names; refused where two rows could become one."""
    if not table.keys:
        return ()
    arrived = {
        column.origin.place: column
        for column in columns
        if isinstance(column.origin, Copied | Masked | Converted)
    }
    places = {column.name: place for place, column in enumerate(table.columns)}
    expressed = {column.name.lower() for column in columns}
    key = [source_column] if source_column else []
    for name in table.keys[0]:
        found = arrived.get(places[name])
        if found is None:
            why = "is computed by sql" if name.lower() in expressed else "stays behind"
            raise _lost_key(table, name, why)
        if not _keeps_apart(table.columns[places[name]].type, found):
            raise _lost_key(table, name, _blame(found))
        key.append(found.name)
    return tuple(key)


def _keeps_apart(own: Type, column: TargetColumn) -> bool:
    """Whether two values of the source are two values of the target."""
    match column.origin:
        case Masked(length=length):
            return length >= SAFE_HASH
        case Converted():
            if isinstance(own, Text):
                return column.type == own
            # Uuid and binary are one value in two forms; numbers keep all of their digits.
            return isinstance(column.type, Text) or (
                isinstance(own, Integer | Boolean | Decimal | Uuid | Binary)
                and isinstance(column.type, Integer | Decimal | Uuid | Binary)
            )
        case _:
            return True


def _blame(column: TargetColumn) -> str:
    if isinstance(column.origin, Masked):
        return f"is masked with fewer than {SAFE_HASH} digits"
    return f"is cast to {type_name(column.type)}"


def _lost_key(table: Table, name: str, why: str) -> UsageError:
    return UsageError(
        f"{table.name}.{name}: this column of the key {why}, so that two rows could become one; keep it, or"
        " name the columns that identify a row on the target with key: [NAME, …]"
    )


def _require_alike(mappings: Sequence[TableMapping]) -> None:
    """Tables that merge must agree on the columns and the key of what they merge into."""
    first: dict[TableName, TableMapping] = {}
    for mapping in mappings:
        other = first.setdefault(mapping.target, mapping)
        mine, theirs = (
            {column.name: column.type for column in one.columns} for one in (mapping, other)
        )
        for name in [*mine, *theirs]:
            if mine.get(name) != theirs.get(name):
                raise UsageError(
                    f"{other.source} and {mapping.source} cannot merge into {mapping.target}: they differ in the"
                    f" column {name}"
                )
        if mapping.key != other.key:
            raise UsageError(
                f"{other.source} and {mapping.source} cannot merge into {mapping.target}: their keys differ"
            )
