"""Statements that make the target equal to the source, in an order that constraints allow.

First rows that the target has too many, children before parents; then, parents before children,
the rows that change or are missing. Rows whose unique columns change are deleted and inserted again
in one transaction, since exchanging two unique values by updates would collide on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from truecopy.engines.protocols import Statement, Writes
from truecopy.model.errors import UsageError
from truecopy.model.table import TableName
from truecopy.verify.differences import Difference, differing_columns
from truecopy.verify.matching import Comparison
from truecopy.verify.report import Report, TableReport

ROWS_PER_TRANSACTION = 1000

Transaction = list[Statement]


def repair(report: Report, target: Writes) -> Iterator[Transaction]:
    """The transactions that repair the target, made one at a time."""
    tables = _parents_first(report)
    for table, comparison in reversed(tables):
        extra = (d for d in report.differences(table) if d.kind == "extra")
        deletes = (target.delete(comparison.target, difference.key) for difference in extra)
        yield from _in_batches(deletes)
    for table, comparison in tables:
        changes = (d for d in report.differences(table) if d.kind != "extra")
        if _secondary_unique(comparison):
            whole = list(_colliding(report, table, comparison, target, list(changes)))
            if whole:
                yield whole
        else:
            yield from _in_batches(_change(report, table, comparison, target, d) for d in changes)


def write_repair(report: Report, target: Writes, path: Path) -> int:
    """Writes the repair as a script for the target's own client; gives the number of statements."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(f"-- Makes {report.target} equal to {report.source}.\n")
        for line in unrepaired(report):
            file.write(f"-- {line}\n")
        for transaction in repair(report, target):
            file.write("\n" + target.script(transaction))
            count += len(transaction)
    return count


def apply_repair(report: Report, target: Writes) -> int:
    """Runs the repair on the target; each transaction holds wholly or not at all."""
    count = 0
    for transaction in repair(report, target):
        target.apply(transaction)
        count += len(transaction)
    return count


def unrepaired(report: Report) -> list[str]:
    """What the statements leave as it is, in words."""
    left = []
    for table in report.tables:
        if table.found and not table.key:
            left.append(
                f"{table.target} has no key: its {table.found} differing rows are not repaired"
            )
        if table.found and not table.complete:
            left.append(f"{table.target}: {table.reason}; rows beyond that are not repaired")
        if table.found and _mixes(report, table):
            left.append(
                f"{table.target} has children by inheritance, in one of which a row may be: its {table.found} differing"
                " rows are not repaired"
            )
        left += [f"{table.target}: {f.message}: not repaired" for f in table.structure if f.fatal]
    return left


def _parents_first(report: Report) -> list[tuple[TableReport, Comparison]]:
    """Tables with repairable differences, each after the tables that it refers to."""
    chosen = [
        (table, report.comparisons[table.comparison])
        for table in report.tables
        if table.comparison is not None and table.found and table.key and not _mixes(report, table)
    ]
    by_name = {comparison.target_table.name: (table, comparison) for table, comparison in chosen}
    ordered: dict[TableName, tuple[TableReport, Comparison]] = {}
    on_the_way: set[TableName] = set()

    def place(name: TableName) -> None:
        if name in ordered or name in on_the_way or name not in by_name:
            return  # a cycle of references is left to the checks that the transaction defers
        on_the_way.add(name)
        for reference in by_name[name][1].target_table.foreign_keys:
            place(reference.parent)
        ordered[name] = by_name[name]

    for name in by_name:
        place(name)
    return list(ordered.values())


def _mixes(report: Report, table: TableReport) -> bool:
    """Whether a statement for the table on the target would change rows of others as well."""
    chosen = table.comparison
    return chosen is not None and bool(report.comparisons[chosen].target_table.children)


def _secondary_unique(comparison: Comparison) -> list[set[int]]:
    """Unique constraints other than the key, as numbers of compared columns."""
    places = {column.name: i for i, column in enumerate(comparison.target.columns)}
    key = {column.name for column in comparison.target.key}
    constraints = [set(unique) for unique in comparison.target_table.unique if set(unique) != key]
    return [{places[name] for name in unique if name in places} for unique in constraints]


def _colliding(
    report: Report,
    table: TableReport,
    comparison: Comparison,
    target: Writes,
    changes: Sequence[Difference],
) -> Iterator[Statement]:
    """All changes of a table with further unique constraints: out first, then in."""
    unique = set().union(*_secondary_unique(comparison))
    moved = {
        d.key for d in changes if d.kind == "differs" and unique & set(_changed(report, table, d))
    }
    if moved and len(comparison.target.columns) != len(comparison.target_table.columns):
        raise UsageError(
            f"{table.target}: rows whose unique columns differ are repaired by deleting and inserting them, which"
            " would lose the columns that were not compared: verify all columns, or repair these rows by hand"
        )
    yield from (target.delete(comparison.target, key) for key in sorted(moved))
    for difference in changes:
        if difference.kind == "differs" and difference.key not in moved:
            yield _change(report, table, comparison, target, difference)
    for difference in changes:
        if difference.kind == "missing" or difference.key in moved:
            yield target.insert(comparison.target, difference.source or ())


def _change(
    report: Report,
    table: TableReport,
    comparison: Comparison,
    target: Writes,
    difference: Difference,
) -> Statement:
    row = difference.source or ()
    if difference.kind == "missing":
        return target.insert(comparison.target, row)
    return target.update(comparison.target, row, _changed(report, table, difference))


def _changed(report: Report, table: TableReport, difference: Difference) -> tuple[int, ...]:
    source, target = difference.source or (), difference.target or ()
    return differing_columns(source, target, table.types, report.options.float_tolerance)


def _in_batches(statements: Iterator[Statement]) -> Iterator[Transaction]:
    while batch := list(islice(statements, ROWS_PER_TRANSACTION)):
        yield batch
