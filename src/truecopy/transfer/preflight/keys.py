"""Keys and unique keys: of both sides, and under which collations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.finding import Finding, Subject
from truecopy.model.table import Table
from truecopy.transfer.preflight.ends import Ends, Pair, error, statement, warning


def check_keys(ends: Ends) -> Iterator[Finding]:
    """Tables without a key, and keys that the target does not have."""
    for pair in ends.pairs:
        if not pair.source.keys:
            yield warning(
                Subject.KEYS,
                "it has no key: rows that are inserted are carried, and an update or a delete stops the run",
                statement(
                    ends.source, "ALTER TABLE {table} ADD PRIMARY KEY (…)", table=pair.source.name
                ),
                pair.name,
            )
        elif pair.target is not None and not _finds_rows(ends, pair, pair.target):
            key = ", ".join(pair.source.keys[0])
            yield warning(
                Subject.KEYS,
                f"its key is ({key}), and {pair.onto} on the target has no such key: rows are searched for without an"
                " index, and a row that is there twice is not noticed",
                statement(
                    ends.target, f"ALTER TABLE {{table}} ADD UNIQUE ({key})", table=pair.onto
                ),
                pair.name,
            )


def check_unique(ends: Ends) -> Iterator[Finding]:
    """Unique keys that only the target has."""
    for pair, target in ends.existing:
        names = source_names(ends, pair)
        ours = [frozenset(name.lower() for name in key) for key in pair.source.unique]
        for key in target.unique:
            columns = [names.get(name.lower()) for name in key]
            known = [name for name in columns if name is not None]
            # Columns that are unique by fewer of them at the source are unique here, too.
            if len(known) < len(key) or any(
                one <= {name.lower() for name in known} for one in ours
            ):
                continue
            yield _extra_key(ends, pair, key, known)


def check_collations(ends: Ends) -> Iterator[Finding]:
    """Texts that are equal on one side only, in columns of a unique key."""
    if ends.source_advisor is None or ends.target_advisor is None:
        return
    for pair, target in ends.existing:
        ours = ends.source_advisor.passed_over(pair.source)
        theirs = ends.target_advisor.passed_over(target)
        unique = {name for key in target.unique for name in key}
        for name, other in source_names(ends, pair).items():
            column = target.column(name)
            if column is None or column.name not in unique:
                continue
            yield from _collation(pair, other, column.name, ours, theirs)


def source_names(ends: Ends, pair: Pair) -> dict[str, str]:
    """Names of the source's columns by those of the target, in lower case."""
    options = ends.settings.matching
    return {options.renamed(pair.name, c.name).lower(): c.name for c in pair.source.columns}


def _collation(
    pair: Pair,
    source: str,
    target: str,
    ours: Mapping[str, frozenset[str]],
    theirs: Mapping[str, frozenset[str]],
) -> Iterator[Finding]:
    if target not in theirs and source not in ours:
        return
    here, there = ours.get(source, frozenset()), theirs.get(target, frozenset())
    if there - here:
        words = _either(there - here)
        yield warning(
            Subject.COLLATIONS,
            f"{target} is unique on the target whatever its {words}, and on the source it is not: of two rows that"
            " differ in nothing else the second is refused",
            f"give {pair.onto}.{target} a binary collation",
            pair.name,
        )
    if here - there:
        words = _either(here - there)
        yield warning(
            Subject.COLLATIONS,
            f"{source} is unique on the source whatever its {words}, and on the target it is not: once writers are"
            " there, values that differ in nothing else may stand beside each other",
            f"give {pair.onto}.{target} a collation that passes over {words}",
            pair.name,
        )


def _either(words: frozenset[str]) -> str:
    *some, last = sorted(words)
    return f"{', '.join(some)} or {last}" if some else last


def _finds_rows(ends: Ends, pair: Pair, target: Table) -> bool:
    names = source_names(ends, pair)
    there = [{names.get(name.lower(), "").lower() for name in key} for key in target.unique]
    return any({name.lower() for name in key} in there for key in pair.source.keys)


def _extra_key(ends: Ends, pair: Pair, key: Sequence[str], columns: Sequence[str]) -> Finding:
    listed = ", ".join(key)
    message = f"{pair.onto} on the target is unique by ({listed}), and the source is not"
    remedy = f"drop the unique key ({listed}) of {pair.onto}, or give the source the same"
    if pair.is_small and _has_duplicates(ends, pair.source, columns):
        return error(
            Subject.KEYS, f"{message}: it holds rows that share these values", remedy, pair.name
        )
    return warning(
        Subject.KEYS, f"{message}: a row that shares these values is refused", remedy, pair.name
    )


def _has_duplicates(ends: Ends, table: Table, columns: Sequence[str]) -> bool:
    dialect = ends.source.dialect
    quoted = [dialect.quote(name) for name in columns]
    present = " AND ".join(f"{name} IS NOT NULL" for name in quoted)
    found = ends.source.fetch(
        Statement(
            f"SELECT 1 FROM {table_sql(dialect, table.name)} WHERE {present}"
            f" GROUP BY {', '.join(quoted)} HAVING COUNT(*) > 1 LIMIT 1"
        )
    )
    return bool(found)
