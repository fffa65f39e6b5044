"""Rows of a key range, as a condition in SQL: the database reads past the others itself."""

from __future__ import annotations

from truecopy.engines.sql import Dialect
from truecopy.model.errors import UsageError
from truecopy.model.keyspace import KeyRange
from truecopy.model.table import Column
from truecopy.model.types import Binary, Text, Type

_HASHED_BYTES = 7
"""Of a bound that a hash of 60 bits can be held against."""


def key_range_sql(
    dialect: Dialect, column: Column, kind: Type, function: str, wanted: KeyRange
) -> str:
    """Whether the keyspace id of a row lies in a range; see `truecopy.model.keyspace.FUNCTIONS`.

    Args:
        dialect: Of the database that holds the column.
        column: The one that the table is sharded by, as this database has it.
        kind: The type whose canonical text the id is made of: that of the column on the source.
        function: How it is made.
        wanted: The range.
    """
    value, low, high = _comparable(dialect, column, kind, function, wanted)
    conditions = [f"{value} >= {low}"] if wanted.low else []
    conditions += [f"{value} < {high}"] if wanted.high else []
    # A relation's condition is escaped with the statement that it is put into, names and all.
    return " AND ".join(conditions or ["1 = 1"]).replace("%%", "%")


def no_keyspace_id_sql(dialect: Dialect, column: Column, function: str) -> str:
    """Whether a row has no keyspace id; empty where the column's type leaves no room for such rows."""
    name = dialect.quote(column.name)
    conditions = [f"{name} IS NULL"] if column.nullable else []
    if function == "numeric" and "unsigned" not in column.native.lower():
        conditions.append(f"{name} < 0")
    return " OR ".join(conditions)


def _comparable(
    dialect: Dialect, column: Column, kind: Type, function: str, wanted: KeyRange
) -> tuple[str, str, str]:
    """A value that is ordered as the keyspace ids are, and the bounds in its form."""
    if function == "hash":
        for bound in (wanted.low, wanted.high):
            if len(bound) > _HASHED_BYTES:
                raise UsageError(
                    f"the key range {wanted} is too narrow to be copied by a hash: bounds have at most"
                    f" {2 * _HASHED_BYTES} digits"
                )
        text = dialect.as_text(dialect.canonical(column, kind))
        low, high = (int(bound.hex().ljust(15, "0"), 16) for bound in (wanted.low, wanted.high))
        return dialect.hash60(text), str(low), str(high)
    if function == "numeric":
        low, high = map(_number, (wanted.low, wanted.high))
        return dialect.quote(column.name), str(low), str(high)
    if not isinstance(column.type, Text | Binary):
        raise UsageError(f"{column.name} is no column of text or bytes: shard by hash, or numeric")
    text = dialect.as_text(dialect.canonical(column, Binary()))
    return text, f"'{wanted.low.hex()}'", f"'{wanted.high.hex()}'"


def _number(bound: bytes) -> int:
    """The least number that is not below a bound; what is behind its 8 bytes is more than nothing."""
    return int.from_bytes(bound[:8].ljust(8, b"\0"), "big") + (len(bound) > 8)
