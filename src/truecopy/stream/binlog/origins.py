"""What filtered replication recorded in a shard's log: which source transactions it has applied."""

from __future__ import annotations

from collections.abc import Iterator

from truecopy.model.change import ORIGIN_TABLE, Definition
from truecopy.stream.binlog import walk
from truecopy.stream.binlog.logged_table import LoggedTable, Origin
from truecopy.stream.binlog.table_map import parse_names, parse_table_map
from truecopy.stream.binlog.walk import Walk


def recorded_origins(walked: Walk, definition: Definition) -> Iterator[Origin]:
    """The origin of every transaction that was applied; the walk stands at its end then."""
    table: LoggedTable | None = None
    number, found = b"", None
    for what, detail, buf, start, end in walked.steps():
        if what == walk.TABLE:
            raw = buf[start:end]
            database, name = parse_names(raw)
            if name == ORIGIN_TABLE and f"{database}.{name}" == definition.table:
                number = raw[:6]
                table = table or LoggedTable(parse_table_map(raw), definition, keys_only=False)
        elif what == walk.ROWS:
            if table is not None and buf[start : start + 6] == number:
                found = table.origin(*table.open_rows(detail, buf, start, end))
        elif what == walk.END:
            if found is not None:
                yield found
            number, found = b"", None
