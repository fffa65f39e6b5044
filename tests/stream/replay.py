"""Changes replayed onto tables in memory, strictly, and the same tables read by SELECT.

    changes = read_changes(log, start, end)
    assert replay(changes) == selected(database.url, "t")

Rows are dictionaries of canonical texts by column. A change that does not fit what is there (an
insert of a row that exists, a delete of one that does not, an image of a row that was otherwise) fails:
a stream that lost or repeated a change cannot pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from truecopy.engines import connect
from truecopy.engines.protocols import DatabaseSession
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import CHANGE_SCHEMA, DELETE, INSERT, TRUNCATE, UPDATE
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.relation import WHOLE, Relation
from truecopy.model.types import Text, Unsupported
from truecopy.stream.log import ChangeLog, Mark

Row = dict[str, str | None]
Key = tuple[str | None, ...]
Rows = dict[Key, Row]
Tables = dict[str, Rows]
Change = dict[str, Any]


def read_changes(log: ChangeLog, start: Mark, end: Mark, parts: int = 1) -> list[Change]:
    """The changes between two marks, in order."""
    changes: list[Change] = []
    for part in log.split(start, end, parts):
        for batch in part.read():
            assert batch.schema.equals(CHANGE_SCHEMA)
            batch.validate(full=True)
            changes += batch.to_pylist()
    places = [(change["commit_order"], change["seq"]) for change in changes]
    assert places == sorted(set(places)), "changes come in order, and once"
    return changes


def replay(changes: Iterable[Change], tables: Tables | None = None) -> Tables:
    """Applies changes to tables, which start empty; `tables` is changed and given back."""
    tables = {} if tables is None else tables
    definitions = Definitions()
    for change in changes:
        rows = tables.setdefault(change["table"], {})
        if change["kind"] == TRUNCATE:
            assert change["key"] is change["before"] is change["after"] is None
            rows.clear()
            continue
        definition = definitions.find(change["schema_id"])
        assert definition.table == change["table"]
        key = tuple(change["key"])
        if change["kind"] == INSERT:
            assert key not in rows, f"{change} inserts a row that is there"
        else:
            assert key in rows, f"{change} needs a row that is not there"
        if change["before"] is not None:
            before = dict(zip(definition.names, change["before"], strict=True))
            assert {name: rows[key][name] for name in before} == before
        if change["kind"] == DELETE:
            del rows[key]
            continue
        assert change["kind"] in (INSERT, UPDATE)
        after = dict(zip(definition.names, change["after"], strict=True))
        for place in change["unchanged"] or ():
            assert change["after"][place] is None
            after[definition.names[place]] = rows[key][definition.names[place]]
        assert key == tuple(after[name] for name in definition.key)
        rows[key] = after
    return tables


def differences(one: Rows, other: Rows) -> list[tuple[Key, str, str | None, str | None]]:
    """Key, column and both texts of what differs; a row that one side lacks has no column."""
    found: list[tuple[Key, str, str | None, str | None]] = [
        (key, "", str(one.get(key)), str(other.get(key))) for key in one.keys() ^ other.keys()
    ]
    for key in one.keys() & other.keys():
        names = one[key].keys() | other[key].keys()
        texts = [(name, one[key].get(name), other[key].get(name)) for name in names]
        found += [(key, name, a, b) for name, a, b in texts if a != b]
    return found


def selected(url: str, table: str, columns: Sequence[str] = ()) -> Rows:
    """The rows of a table as its engine gives them, each column by its own type, or as text."""
    endpoint = parse_endpoint(url)
    with cast(DatabaseSession, connect(endpoint)) as session:
        found = session.find(table)
        assert found is not None
        described = session.describe(found)
        key = described.keys[0]
        rest = [c for c in described.columns if c.name not in key]
        chosen = [c for name in key if (c := described.column(name))]
        chosen += [c for c in rest if not columns or c.name in columns]
        types = tuple(Text() if isinstance(c.type, Unsupported) else c.type for c in chosen)
        relation = Relation(endpoint, (found,), tuple(chosen), types, len(key))
        texts = session.rows(relation, WHOLE).to_pydict()
    names = [column.name for column in chosen]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*texts.values(), strict=True)]
    return {tuple(row[name] for name in key): row for row in rows}
