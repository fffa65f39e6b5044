"""Columns that a source has filled by itself, in rows that it did not log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from truecopy.changelog.facts import EventFile
from truecopy.changelog.ledger import Ledger
from truecopy.engines import connect
from truecopy.engines.protocols import Introspects
from truecopy.model.change import Definition
from truecopy.model.endpoint import parse_endpoint


def new_definitions(
    files: Sequence[EventFile], known: Mapping[str, Definition]
) -> Iterator[tuple[str, str]]:
    """Tables and `schema_id`s of files that are not the last that were known."""
    for table, schema_id in dict.fromkeys((f.table, one) for f in files for one in f.schema_ids):
        last = known.get(table)
        if last is None or last.schema_id != schema_id:
            yield table, schema_id


def note_gap(
    ledger: Ledger, server: str, table: str, before: Definition | None, after: Definition
) -> str | None:
    """Notes the columns that came with a value in every row; gives what the user should know of it."""
    if before is None:
        return None
    names = {name.lower() for name in before.names}
    added = [name for name in after.names if name.lower() not in names]
    filled = [name for name in added if not _is_empty_at_first(server, table, name)]
    if not filled:
        return None
    ledger.note_gap(table, after.schema_id, filled)
    return (
        f"{table} got the column {filled[0]} with a value in every row, which no log tells: rows that do not"
        " change from now on cannot be restored after this; begin a log anew"
    )


def _is_empty_at_first(server: str, table: str, name: str) -> bool:
    """Whether a column is NULL in every row that was there before it."""
    with connect(parse_endpoint(server)) as session:
        source = cast(Introspects, session)
        found = source.find(table)
        described = source.describe(found) if found else None
    column = described.column(name) if described else None
    if described is None or column is None:
        return False
    return column.nullable and not column.generated and column.name not in described.defaulted
