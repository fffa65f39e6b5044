"""Which table is compared with which, column by column, under which types and by which key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from truecopy.engines.protocols import ChecksRights, HidesTables, Introspects, Session
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import IncomparableTypes, UsageError
from truecopy.model.relation import Relation
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Json, Type, Unsupported, agree, keeps_order, type_name
from truecopy.verify.options import Options


@dataclass(frozen=True)
class Finding:
    """A difference of structure. `fatal` ones make the tables different by themselves."""

    kind: str
    column: str
    message: str
    fatal: bool = False


@dataclass(frozen=True)
class Comparison:
    """Two relations to compare: columns side by side, key first.

    Attributes:
        ordered: Both sides order the key alike, so that a key range is the same set of rows on both.
        column_names: The names that reports use: those of the source.
    """

    source: Relation
    target: Relation
    source_tables: tuple[Table, ...]
    target_table: Table
    findings: tuple[Finding, ...]
    ignored: tuple[str, ...]
    ordered: bool

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.source_name} = {self.target_name}"

    @property
    def source_name(self) -> str:
        return ", ".join(str(table) for table in self.source.tables)

    @property
    def target_name(self) -> str:
        return str(self.target.tables[0])

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.source.columns)

    @property
    def rows(self) -> int:
        """The larger side's estimate."""
        return max(sum(table.rows for table in self.source_tables), self.target_table.rows)

    @property
    def row_bytes(self) -> int:
        return max(self.source_tables[0].row_bytes, self.target_table.row_bytes, 1)


@dataclass(frozen=True)
class NotCompared:
    """A pair of tables that could not be compared, and why."""

    source_name: str
    target_name: str
    reason: str


@dataclass(frozen=True)
class Pairing:
    """The tables that stand against each other, before their columns were looked at."""

    sources: tuple[TableName, ...]
    target: TableName


def pair_tables(
    source: Introspects, target: Introspects, options: Options
) -> tuple[list[Pairing], list[NotCompared]]:
    """Pairs tables by the user's choice, else by name; tables that only one side has are not compared."""
    if options.tables:
        return _chosen(source, target, options.tables), []
    by_name: dict[str, list[TableName]] = {}
    for name in target.tables():
        by_name.setdefault(name.table.lower(), []).append(name)
    pairs, alone = [], []
    for name in source.tables():
        found = by_name.get(name.table.lower(), [])
        same_schema = [other for other in found if other.schema == name.schema]
        chosen = same_schema or found
        if len(chosen) > 1:
            raise UsageError(
                f"{name} could be any of {', '.join(map(str, chosen))} on the target: say which with "
                f"--table {name}={chosen[0]}"
            )
        if chosen:
            pairs.append(Pairing((name,), chosen[0]))
        else:
            alone.append(NotCompared(str(name), "", "the target has no table of this name"))
    taken = {pair.target for pair in pairs}
    for names in by_name.values():
        alone += [
            NotCompared("", str(n), "the source has no table of this name")
            for n in names
            if n not in taken
        ]
    return pairs, alone


def match(
    source: Session, target: Session, pairing: Pairing, options: Options
) -> Comparison | NotCompared:
    """Matches the columns of two tables; what stands in the way becomes the reason."""
    source_name, target_name = ", ".join(map(str, pairing.sources)), str(pairing.target)
    if not isinstance(source, Introspects) or not isinstance(target, Introspects):
        raise UsageError("an endpoint that cannot describe its tables cannot be verified")
    try:
        source_tables = tuple(source.describe(name) for name in pairing.sources)
        target_table = target.describe(pairing.target)
        comparison = match_tables(
            source.endpoint, source_tables, target.endpoint, target_table, options
        )
    except UsageError as error:
        return NotCompared(source_name, target_name, str(error))
    for side, relation in ((source, comparison.source), (target, comparison.target)):
        if isinstance(side, ChecksRights):
            side.require_select(relation)
    return comparison


def match_tables(
    source: Endpoint,
    source_tables: tuple[Table, ...],
    target: Endpoint,
    target_table: Table,
    options: Options,
) -> Comparison:
    """The pure part of `match`."""
    first = source_tables[0]
    for other in source_tables[1:]:
        if [column.name for column in other.columns] != [column.name for column in first.columns]:
            raise UsageError(
                f"{first.name} and {other.name} cannot be merged: their columns differ"
            )
    pairs, findings, ignored = _match_columns(first, target_table, options)
    if not pairs:
        raise UsageError(
            f"{first.name} and {target_table.name} have no column in common; map them with --rename SOURCE=TARGET"
        )
    key = _choose_key(first, target_table, pairs, options)
    if (
        not options.key
        and {c.lower() for c in key} != {c.lower() for c in _first(target_table.keys)}
        and key
    ):
        findings.append(_key_finding(first, target_table))
    findings += [_children_finding(t) for t in (*source_tables, target_table) if t.children]
    ordered_pairs = [pair for name in key for pair in pairs if pair[0].name == name]
    ordered_pairs += [pair for pair in pairs if pair[0].name not in key]
    types = tuple(_agreed_type(first, target_table, a, b, options) for a, b in ordered_pairs)
    same_order = all(
        a.order is not None
        and a.order == b.order
        and keeps_order(a.type, kind)
        and keeps_order(b.type, kind)
        for (a, b), kind in zip(ordered_pairs[: len(key)], types, strict=False)
    ) and all(
        _holds_no_null(table, columns)
        for table, columns in (
            (first, [a for a, _ in ordered_pairs[: len(key)]]),
            (target_table, [b for _, b in ordered_pairs[: len(key)]]),
        )
    )
    return Comparison(
        source=Relation(
            source,
            tuple(t.name for t in source_tables),
            tuple(a for a, _ in ordered_pairs),
            types,
            len(key),
            options.where,
        ),
        target=Relation(
            target,
            (target_table.name,),
            tuple(b for _, b in ordered_pairs),
            types,
            len(key),
            options.where,
        ),
        source_tables=source_tables,
        target_table=target_table,
        findings=tuple(findings),
        ignored=tuple(ignored),
        ordered=bool(key) and same_order,
    )


def _chosen(source: Introspects, target: Introspects, tables: Sequence[str]) -> list[Pairing]:
    merged: dict[TableName, list[TableName]] = {}
    for choice in tables:
        left, equals, right = choice.partition("=")
        names = [_require_table(source, left)] if "*" not in left else _matching(source, left)
        if equals:  # a wrong name is an error, and not the table that has the source's name
            onto = _require_table(target, right)
        else:
            onto = _require_table(target, left if "." in left else names[0].table, names[0])
        merged.setdefault(onto, []).extend(
            name for name in names if name not in merged.get(onto, [])
        )
    return [Pairing(tuple(names), onto) for onto, names in merged.items()]


def _matching(source: Introspects, pattern: str) -> list[TableName]:
    found = [
        n for n in source.tables() if fnmatchcase(n.table, pattern) or fnmatchcase(str(n), pattern)
    ]
    if not found:
        raise UsageError(f"no table of the source matches {pattern}")
    return found


def _require_table(side: Introspects, name: str, like: TableName | None = None) -> TableName:
    names = [name] if like is None else [name, like.table]
    for written in names:
        found = side.find(written)
        if found is not None:
            return found
    where = getattr(side, "endpoint", "the endpoint")
    absent = UsageError(f"there is no table {name} on {where}")
    raise (side.denial(names) if isinstance(side, HidesTables) else None) or absent


def _match_columns(
    source: Table, target: Table, options: Options
) -> tuple[list[tuple[Column, Column]], list[Finding], list[str]]:
    pairs: list[tuple[Column, Column]] = []
    findings: list[Finding] = []
    ignored: list[str] = []
    for column in source.columns:
        if options.ignores(str(source.name), column.name):
            ignored.append(column.name)
            continue
        wanted = options.renamed(str(source.name), column.name)
        other = target.column(wanted)
        if other is None or (options.match_case and other.name != wanted):
            findings.append(
                Finding(
                    "missing_on_target",
                    column.name,
                    f"{target.name} has no column {wanted}",
                    fatal=True,
                )
            )
            continue
        pairs.append((column, other))
        if options.cast_of(str(source.name), column.name) is None and not _alike(column, other):
            message = f"{column.name}: {column.native} → {other.native}"
            findings.append(Finding("type", column.name, message, fatal=options.strict_structure))
    taken = {other.name for _, other in pairs}
    skipped = {options.renamed(str(source.name), name).lower() for name in ignored}
    for other in target.columns:
        if other.name in taken or other.name.lower() in skipped:
            continue
        if options.ignores(str(target.name), other.name):
            ignored.append(other.name)
            continue
        findings.append(
            Finding(
                "missing_on_source",
                other.name,
                f"{source.name} has no column {other.name}",
                fatal=True,
            )
        )
    if options.match_order and [b.name for _, b in pairs] != [
        c.name for c in target.columns if c.name in taken
    ]:
        findings.append(Finding("order", "", "the columns stand in another order", fatal=True))
    return pairs, findings, ignored


def _alike(source: Column, target: Column) -> bool:
    if isinstance(source.type, Json) and isinstance(target.type, Json):
        return True
    return source.weak or target.weak or source.type == target.type


def _choose_key(
    source: Table, target: Table, pairs: Sequence[tuple[Column, Column]], options: Options
) -> tuple[str, ...]:
    """The key by the source's names: the user's, else one of both sides, else one of either."""
    to_target = {a.name: b.name for a, b in pairs}
    to_source = {b.name.lower(): a.name for a, b in pairs}
    if options.key:
        names = {name.lower(): name for name in to_target}
        missing = [name for name in options.key if name.lower() not in names]
        if missing:
            raise UsageError(
                f"--key names {missing[0]}, which {source.name} and {target.name} do not share"
            )
        return tuple(names[name.lower()] for name in options.key)
    usable = [key for key in source.keys if all(name in to_target for name in key)]
    of_target = [{name.lower() for name in key} for key in target.keys]
    both = [key for key in usable if {to_target[name].lower() for name in key} in of_target]
    if both or usable:
        return (both or usable)[0]
    other = [key for key in target.keys if all(name.lower() in to_source for name in key)]
    return tuple(to_source[name.lower()] for name in other[0]) if other else ()


def _key_finding(source: Table, target: Table) -> Finding:
    left = ", ".join(_first(source.keys)) or "none"
    right = ", ".join(_first(target.keys)) or "none"
    return Finding("key", "", f"key: {left} → {right}")


def _children_finding(table: Table) -> Finding:
    shown = f"the rows of its children by inheritance ({table.children_shown})"
    return Finding("children", "", f"{table.name} is read with {shown}")


def _holds_no_null(table: Table, columns: Sequence[Column]) -> bool:
    """Whether every row has a place in the order of these columns."""
    names = {column.name for column in columns}
    return any(names == set(key) for key in table.keys) or not any(c.nullable for c in columns)


def _first(keys: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return keys[0] if keys else ()


def _agreed_type(source: Table, target: Table, a: Column, b: Column, options: Options) -> Type:
    wanted = options.cast_of(str(source.name), a.name)
    if wanted is not None:
        return wanted
    agreed = agree(a.type, b.type, weak_source=a.weak, weak_target=b.weak)
    if agreed is not None:
        return agreed
    reasons = [c.type.reason for c in (a, b) if isinstance(c.type, Unsupported)]
    why = (
        reasons[0]
        if reasons
        else f"{type_name(a.type)} and {type_name(b.type)} have no common exact form"
    )
    raise IncomparableTypes(
        f"{source.name}.{a.name} ({a.native}) and {target.name}.{b.name} ({b.native}) cannot be compared faithfully:"
        f" {why}; leave the column out with --ignore-column {a.name} or name a type with --cast {a.name}=TYPE"
    )
