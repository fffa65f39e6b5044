"""Row changes: what a change stream carries, one row per changed row."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from truecopy.model import types
from truecopy.model.table import Column

INSERT, UPDATE, DELETE, TRUNCATE, HEARTBEAT = "insert", "update", "delete", "truncate", "heartbeat"
DROP, RENAME = "drop", "rename"
REDEFINITIONS = (DROP, RENAME)
"""A table went, or got another name, which is then all that `after` holds. Told to those who ask for it; for
others a table that was dropped is one that was emptied."""

OWN_PREFIX = "truecopy_"
"""Of the tables that Truecopy keeps in a database for itself."""

ORIGIN_TABLE = "truecopy_origin"
"""Where filtered replication records, first in each of its transactions, what the transaction came from:
columns `shard` (the key), `position`, `committed_at` (microseconds since the epoch). Streams read it
as a mark on the transaction, not as a table."""

ORIGIN_COLUMNS = "shard", "position", "committed_at"

_TEXTS = pa.list_(pa.field("element", pa.string()))
_INSTANT = pa.timestamp("us", tz="UTC")

CHANGE_SCHEMA = pa.schema(
    [
        ("shard", pa.string()),
        ("position", pa.string()),
        ("txn", pa.string()),
        ("commit_order", pa.int64()),
        ("seq", pa.int32()),
        ("committed_at", _INSTANT),
        ("restart_at", _INSTANT),
        ("kind", pa.string()),
        ("table", pa.string()),
        ("key", _TEXTS),
        ("before", _TEXTS),
        ("after", _TEXTS),
        ("unchanged", pa.list_(pa.field("element", pa.int32()))),
        ("schema_id", pa.string()),
        ("annotation", pa.string()),
        ("origin", pa.string()),
    ]
)
"""The columns of the stream.

`position` is where the stream stands after the change's transaction, `txn` the transaction's own
id; `commit_order` orders the transactions of a shard and `seq` the changes inside one. `key`,
`before` and `after` are canonical texts in the column order of `schema_id`; `unchanged` lists the
columns that the log left out because they did not change. `origin` names the shard and position
from which filtered replication brought the transaction here.
"""


@dataclass(frozen=True)
class Definition:
    """A table as it was when a change was made: what `schema_id` stands for.

    Attributes:
        table: Its name, as the stream's column `table` has it.
        columns: In the order of `before` and `after`.
        key: Names of the key's columns, in the order of `key`; empty for a table without one.
    """

    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @cached_property
    def schema_id(self) -> str:
        """The same for equal definitions, in every process and every run."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def key_places(self) -> tuple[int, ...]:
        """Where the key's columns stand among the columns."""
        return tuple(self.names.index(name) for name in self.key)

    def to_json(self) -> str:
        columns = [{**asdict(c), "type": _type_to_plain(c.type)} for c in self.columns]
        plain = {"table": self.table, "columns": columns, "key": self.key}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Definition:
        plain = json.loads(text)
        columns = tuple(
            Column(**{**column, "type": _type_from_plain(column["type"])})
            for column in plain["columns"]
        )
        return cls(plain["table"], columns, tuple(plain["key"]))


def _type_to_plain(kind: types.Type) -> list[Any]:
    if isinstance(kind, types.Array):
        return ["Array", _type_to_plain(kind.element)]
    return [type(kind).__name__, *vars(kind).values()]


def _type_from_plain(plain: list[Any]) -> types.Type:
    name, *fields = plain
    if name == "Array":
        return types.Array(_type_from_plain(fields[0]))
    made: types.Type = getattr(types, name)(*fields)
    return made
