"""Keys and unique keys: of both sides, and under which collations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from truecopy.engines.advice import SPACES
from truecopy.engines.protocols import ReadsAtPosition, Statement
from truecopy.engines.sql import table_sql
from truecopy.mapping.plan import SAFE_HASH, Copied, Masked
from truecopy.model.errors import UsageError
from truecopy.model.finding import Finding, Subject
from truecopy.model.table import Table
from truecopy.transfer.plan import as_read
from truecopy.transfer.preflight.ends import Ends, Pair, error, statement, warning


def check_keys(ends: Ends) -> Iterator[Finding]:
    """Tables without a key, and keys that the target does not have."""
    for pair in ends.pairs:
        if not pair.arrives.keys:
            yield warning(
                Subject.KEYS,
                "it has no key: rows that are inserted are carried, and an update or a delete stops the run",
                statement(
                    ends.source, "ALTER TABLE {table} ADD PRIMARY KEY (…)", table=pair.source.name
                ),
                pair.name,
            )
            yield from _position(ends, pair)
        elif pair.target is not None and not _finds_rows(pair, pair.target):
            key = ", ".join(pair.arrives.keys[0])
            yield warning(
                Subject.KEYS,
                f"its key is ({key}), and {pair.onto} on the target has no such key: rows are searched for without an"
                " index, and a row that is there twice is not noticed",
                statement(
                    ends.target, f"ALTER TABLE {{table}} ADD UNIQUE ({key})", table=pair.onto
                ),
                pair.name,
            )


def _position(ends: Ends, pair: Pair) -> Iterator[Finding]:
    """Such a table is copied at a position of the log, which not every source can tell."""
    endpoint = ends.source.endpoint
    if not isinstance(ends.source, ReadsAtPosition):
        message = f"{endpoint.scheme}:// does not say of which moment its rows are"
        yield error(Subject.KEYS, message, "give it a key, or leave it out", pair.name)
        return
    try:
        ends.source.require_position(as_read(endpoint, pair.source))
    except UsageError as refused:
        message, _, remedy = str(refused).rpartition(": ")
        yield error(Subject.KEYS, message.removeprefix(f"{pair.name} "), remedy, pair.name)


def check_unique(ends: Ends) -> Iterator[Finding]:
    """Unique keys that only the target has."""
    for pair, target in ends.existing:
        ours = _arriving_unique(pair)
        for key in target.unique:
            names = {name.lower() for name in key}
            # Columns that are unique by fewer of them at the source are unique here, too.
            if all(pair.arriving(name) for name in key) and not any(one <= names for one in ours):
                yield _extra_key(ends, pair, key)


def check_collations(ends: Ends) -> Iterator[Finding]:
    """Texts that are equal on one side only, in columns of a unique key."""
    if ends.source_advisor is None or ends.target_advisor is None:
        return
    for pair, target in ends.existing:
        ours = ends.source_advisor.passed_over(pair.source)
        theirs = ends.target_advisor.passed_over(target)
        unique = {name for key in target.unique for name in key}
        for source, name in pair.mapping.renames.items():
            column = target.column(name)
            if column is None or column.name not in unique:
                continue
            yield from _collation(pair, source, column.name, ours, theirs)


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
        # Rows are found by their key: one that comes would take the place of another, and nobody would be told.
        is_key = target.lower() in {name.lower() for name in pair.mapping.key}
        is_lost = is_key and there - here != {SPACES}
        tells = error if is_lost else warning
        yield tells(
            Subject.COLLATIONS,
            f"{target} is unique on the target whatever its {words}, and on the source it is not: of two rows that"
            f" differ in nothing else the second {'takes the place of the first' if is_lost else 'is refused'}",
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


def _finds_rows(pair: Pair, target: Table) -> bool:
    there = [{name.lower() for name in key} for key in target.unique]
    return any({name.lower() for name in key} in there for key in pair.arrives.keys)


def _arriving_unique(pair: Pair) -> list[set[str]]:
    """What the rows that arrive are unique by, by the target's names in lower case."""
    mapping = pair.mapping
    unique = [set(mapping.key)] if mapping.key else []
    apart = {
        mapping.source_columns[column.origin.place].name: column.name
        for column in mapping.columns
        if isinstance(column.origin, Copied)
        or (isinstance(column.origin, Masked) and column.origin.length >= SAFE_HASH)
    }
    # Rows of several tables are told apart by the name of their table alone.
    origin = {mapping.source_column} if mapping.source_column else set()
    if origin or not mapping.merged:
        whole = [key for key in pair.source.unique if all(name in apart for name in key)]
        unique += [{apart[name] for name in key} | origin for key in whole]
    return [{name.lower() for name in key} for key in unique]


def _extra_key(ends: Ends, pair: Pair, key: Sequence[str]) -> Finding:
    columns = [origin for name in key if (origin := pair.origin(name)) is not None]
    is_asked = pair.tells and len(columns) == len(key)
    listed = ", ".join(key)
    message = f"{pair.onto} on the target is unique by ({listed}), and the source is not"
    remedy = f"drop the unique key ({listed}) of {pair.onto}, or give the source the same"
    if is_asked and _has_duplicates(ends, pair.source, columns):
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
