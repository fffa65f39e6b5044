"""SQL that every relational engine shares, composed from what a dialect says.

A dialect names the few things that differ (quoting, the text of a value, the hash); the shape of
the statements is here, once, and is tested without a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from truecopy.engines.protocols import Statement
from truecopy.model.errors import UsageError
from truecopy.model.fingerprint import HEX_DIGITS
from truecopy.model.relation import Between, Buckets, Chunk, Key, Relation
from truecopy.model.table import Column, TableName
from truecopy.model.types import Integer, Text, Type, Uuid, is_free_text

BITS = 4 * HEX_DIGITS


class Bytes(str):
    """An expression for the UTF-8 bytes of a text, where a dialect has those for less than the text."""


class Dialect(Protocol):
    """What one kind of SQL says differently."""

    placeholder: str

    def quote(self, name: str) -> str:
        """An identifier, quoted."""
        ...

    def canonical(self, column: Column, kind: Type) -> str:
        """An expression for the canonical text of a column, fit for `concat`; NULL stays NULL."""
        ...

    def as_text(self, expression: str) -> str:
        """The result of `canonical` as a value of a text type."""
        ...

    def concat(self, parts: Sequence[str]) -> str:
        """Texts put together; no part is NULL."""
        ...

    def byte_length(self, text: str) -> str:
        """The length of a text in UTF-8 bytes, fit for `concat`."""
        ...

    def hash60(self, text: str) -> str:
        """The first 60 bits of the SHA-256 of a text, as an integer."""
        ...

    def hash_hex(self, text: str) -> str:
        """The first 16 hex digits of the SHA-256 of a text: for the reader, who makes the integer for less."""
        ...

    def bucket(self, fingerprint: str, shift: int) -> str:
        """A fingerprint shifted right by some bits."""
        ...

    def parameter(self, column: Column, kind: Type, text: str) -> tuple[str, object]:
        """The placeholder and the value that stand for a canonical text where a column is compared or set."""
        ...

    def row_at_least(self, names: Sequence[str], places: Sequence[str]) -> str:
        """`(a, b) >= (x, y)`, in the form for which the engine uses an index."""
        ...

    def row_below(self, names: Sequence[str], places: Sequence[str]) -> str:
        """`(a, b) < (x, y)`, likewise."""
        ...

    expands_rows: bool
    """True where `row_at_least` and `row_below` take the values of `expand`, False for one each."""

    lists_integers: bool
    """True where long lists of integers are written out: a driver that binds values does it one by one."""

    lines_as: str
    """Behind the columns of a table that holds lines: names that differ in case are different."""


def table_sql(dialect: Dialect, name: TableName) -> str:
    """A table's name, quoted and qualified."""
    parts = (name.schema, name.table) if name.schema else (name.table,)
    return ".".join(dialect.quote(part) for part in parts)


def drop_table_sql(dialect: Dialect, name: TableName) -> str:
    """Every engine says it so."""
    return f"DROP TABLE {table_sql(dialect, name)}"


def rename_table_sql(dialect: Dialect, old: TableName, new: TableName) -> str:
    """To another name in the same schema."""
    return f"ALTER TABLE {table_sql(dialect, old)} RENAME TO {dialect.quote(new.table)}"


def drop_column_sql(dialect: Dialect, name: TableName, column: str) -> str:
    """Every engine says it so."""
    return f"ALTER TABLE {table_sql(dialect, name)} DROP COLUMN {dialect.quote(column)}"


def fingerprint_sql(dialect: Dialect, relation: Relation) -> str:
    """The fingerprint of the columns that the database can give the text of."""
    return dialect.hash60(row_text_sql(dialect, relation, pushed_texts(dialect, relation)))


def pushed_texts(dialect: Dialect, relation: Relation) -> list[str]:
    """The canonical texts of the columns that the database can give them of."""
    return [dialect.canonical(relation.columns[i], relation.types[i]) for i in relation.pushed]


def row_text_sql(dialect: Dialect, relation: Relation, texts: Sequence[str]) -> str:
    """The row text, put together from the canonical texts of `pushed_texts`."""
    columns = [relation.columns[i] for i in relation.pushed]
    types = [relation.types[i] for i in relation.pushed]

    def no_null(column: Column, expression: str) -> str:
        return type(expression)(f"COALESCE({expression},'')") if column.nullable else expression

    parts: list[str] = []
    for column, text in zip(columns, texts, strict=True):
        parts += ["','", no_null(column, text)]
    parts = parts[1:]
    separator = "';'"
    for column, kind, text in zip(columns, types, texts, strict=True):
        if is_free_text(kind):
            parts += [separator, no_null(column, dialect.byte_length(text))]
            separator = "','"
    return dialect.concat(parts)


def digest_sql(dialect: Dialect, relation: Relation, table: TableName, chunk: Chunk) -> Statement:
    """Rows, and the sum of their fingerprints."""
    return select_sql(
        dialect, relation, table, chunk, f"COUNT(*), SUM({fingerprint_sql(dialect, relation)})"
    )


def bucket_digest_sql(
    dialect: Dialect, relation: Relation, table: TableName, chunk: Chunk, digits: int
) -> Statement:
    """Bucket, rows and sum for each class of fingerprints."""
    inner = select_sql(
        dialect, relation, table, chunk, f"{fingerprint_sql(dialect, relation)} AS f"
    )
    bucket = dialect.bucket("f", BITS - 4 * digits)
    return Statement(
        f"SELECT {bucket}, COUNT(*), SUM(f) FROM ({inner.sql}) AS t GROUP BY 1", inner.values
    )


def fingerprints_sql(
    dialect: Dialect, relation: Relation, table: TableName, chunk: Chunk, buckets: Buckets | None
) -> Statement:
    """Key texts and fingerprint of each row; the columns that the reader must finish come after them."""
    inner = select_sql(dialect, relation, table, chunk, _keys_and_fingerprint(dialect, relation))
    if buckets is None:
        return inner
    bucket = dialect.bucket("f", BITS - 4 * buckets.digits)
    numbers = ", ".join(map(str, buckets.numbers))
    names = ", ".join(fingerprint_names(relation))
    return Statement(
        f"SELECT {names} FROM ({inner.sql}) AS t WHERE {bucket} IN ({numbers})", inner.values
    )


def fingerprints_by_key_sql(
    dialect: Dialect, relation: Relation, table: TableName, keys: Sequence[Key]
) -> Statement:
    """The same of the rows with these keys."""
    wanted, values = _keys_condition(dialect, relation, keys)
    texts = _keys_and_fingerprint(dialect, relation)
    return select_sql(dialect, relation, table, Chunk(), texts, f"({wanted})", values)


def fingerprint_names(relation: Relation) -> list[str]:
    """What the columns of `fingerprints_sql` are called."""
    keys = [f"k{i}" for i in range(relation.key_width)]
    return [*keys, "f", *(f"d{i}" for i in relation.deferred)]


def rows_sql(dialect: Dialect, relation: Relation, table: TableName, chunk: Chunk) -> Statement:
    """The canonical texts of all columns of a chunk."""
    return select_sql(dialect, relation, table, chunk, _texts(dialect, relation))


def fingerprinted_rows_sql(
    dialect: Dialect, relation: Relation, table: TableName, chunk: Chunk
) -> Statement:
    """The same with the hash of each row in hex, `f`, in the same statement."""
    row = row_text_sql(dialect, relation, pushed_texts(dialect, relation))
    texts = f"{_texts(dialect, relation)}, {dialect.hash_hex(row)} AS f"
    return select_sql(dialect, relation, table, chunk, texts)


def rows_by_key_sql(
    dialect: Dialect, relation: Relation, table: TableName, keys: Sequence[Key]
) -> Statement:
    """The canonical texts of all columns of the rows with these keys."""
    wanted, values = _keys_condition(dialect, relation, keys)
    return select_sql(
        dialect, relation, table, Chunk(), _texts(dialect, relation), f"({wanted})", values
    )


def rows_by_fingerprint_sql(
    dialect: Dialect, relation: Relation, table: TableName, fingerprints: Sequence[int]
) -> Statement:
    """The canonical texts and the fingerprint of the rows with these fingerprints."""
    names = [f"c{i}" for i in range(len(relation.columns))]
    texts = f"{_texts(dialect, relation)}, {fingerprint_sql(dialect, relation)} AS f"
    inner = select_sql(dialect, relation, table, Chunk(), texts)
    if relation.deferred:  # the whole fingerprint is known to the reader only
        return inner
    numbers = ", ".join(map(str, fingerprints))
    return Statement(
        f"SELECT {', '.join(names)}, f FROM ({inner.sql}) AS t WHERE f IN ({numbers})", inner.values
    )


def rows_between_sql(
    dialect: Dialect, relation: Relation, table: TableName, between: Between
) -> Statement:
    """The canonical texts of rows by their first column, in its order and then that of the key."""
    condition, values = _between(dialect, relation, between)
    inner = select_sql(
        dialect, relation, table, Chunk(), _texts(dialect, relation), condition, values
    )
    # Qualified, since a column may have the name that a text is given here.
    names = [f"{table_sql(dialect, table)}.{dialect.quote(c.name)}" for c in relation.key]
    order = ", ".join(f"{name} DESC" if between.descending else name for name in names)
    limit = "" if between.limit is None else f" LIMIT {between.limit:d} OFFSET {between.offset:d}"
    return Statement(f"{inner.sql} ORDER BY {order}{limit}", inner.values)


def count_between_sql(
    dialect: Dialect, relation: Relation, table: TableName, between: Between
) -> Statement:
    """How many rows these are."""
    condition, values = _between(dialect, relation, between)
    return select_sql(dialect, relation, table, Chunk(), "COUNT(*)", condition, values)


def _between(dialect: Dialect, relation: Relation, between: Between) -> tuple[str, list[object]]:
    column, kind = relation.columns[0], relation.types[0]
    name = dialect.quote(column.name)
    if between.nulls:
        return f"{name} IS NULL", []
    conditions, values = [f"{name} IS NOT NULL"], []
    for text, compare in ((between.low, ">"), (between.high, "<=")):
        if text is not None:
            place, value = dialect.parameter(column, kind, text)
            conditions.append(f"{name} {compare} {place}")
            values.append(value)
    return " AND ".join(conditions), values


def extent_sql(dialect: Dialect, relation: Relation, table: TableName) -> Statement:
    """Smallest and largest value of the first column of the key."""
    name = dialect.quote(relation.key[0].name)
    return select_sql(dialect, relation, table, Chunk(), f"MIN({name}), MAX({name})")


def boundary_sql(
    dialect: Dialect, relation: Relation, table: TableName, chunk: Chunk, rows: int
) -> Statement:
    """The key that stands `rows` rows after the start of a chunk."""
    names = ", ".join(dialect.quote(column.name) for column in relation.key)
    # The texts are made outside, so that the inner statement can be answered from the key alone.
    inner = select_sql(dialect, relation, table, chunk, names)
    texts = ", ".join(
        dialect.as_text(dialect.canonical(column, kind))
        for column, kind in zip(relation.key, relation.key_types, strict=True)
    )
    order = ", ".join(_key_names(dialect, relation))
    ordered = f"{inner.sql} ORDER BY {order} LIMIT 1 OFFSET {rows:d}"
    return Statement(f"SELECT {texts} FROM ({ordered}) AS t", inner.values)


def insert_sql(dialect: Dialect, relation: Relation, row: Sequence[str | None]) -> Statement:
    """One row, without the columns that the database computes."""
    chosen = [i for i, column in enumerate(relation.columns) if not column.generated]
    names = ", ".join(dialect.quote(relation.columns[i].name) for i in chosen)
    places, values = _row_parameters(dialect, relation, row, chosen)
    sql = f"INSERT INTO {table_sql(dialect, _only_table(relation))} ({names}) VALUES ({', '.join(places)})"
    return Statement(sql, tuple(values))


def update_sql(
    dialect: Dialect, relation: Relation, row: Sequence[str | None], changed: Sequence[int]
) -> Statement:
    """The changed columns of one row."""
    return _update(dialect, relation, row[: relation.key_width], row, changed)


def move_sql(
    dialect: Dialect, relation: Relation, key: Sequence[str | None], row: Sequence[str | None]
) -> Statement:
    """All of the row that has this key so far."""
    return _update(dialect, relation, key, row, range(len(relation.columns)))


def _update(
    dialect: Dialect,
    relation: Relation,
    key: Sequence[str | None],
    row: Sequence[str | None],
    changed: Sequence[int],
) -> Statement:
    chosen = [i for i in changed if not relation.columns[i].generated]
    places, values = _row_parameters(dialect, relation, row, chosen)
    names = [dialect.quote(relation.columns[i].name) for i in chosen]
    changes = ", ".join(f"{name} = {place}" for name, place in zip(names, places, strict=True))
    condition, keys = _key_condition(dialect, relation, key)
    table = table_sql(dialect, _only_table(relation))
    return Statement(f"UPDATE {table} SET {changes} WHERE {condition}", (*values, *keys))


def delete_sql(dialect: Dialect, relation: Relation, key: Sequence[str | None]) -> Statement:
    """The row with this key."""
    condition, values = _key_condition(dialect, relation, key)
    return Statement(
        f"DELETE FROM {table_sql(dialect, _only_table(relation))} WHERE {condition}", tuple(values)
    )


def delete_all_sql(dialect: Dialect, relation: Relation) -> Statement:
    """Every row of a relation: of its table, those for which its condition holds."""
    where = f" WHERE {escape(dialect, relation.where)}" if relation.where else ""
    return Statement(f"DELETE FROM {table_sql(dialect, _only_table(relation))}{where}")


def delete_keys_sql(dialect: Dialect, relation: Relation, keys: Sequence[Key]) -> Statement:
    """The rows with these keys, listed; for lists so short that the key's index is used."""
    wanted, values = _keys_condition(dialect, relation, keys)
    table = table_sql(dialect, _only_table(relation))
    return Statement(
        f"DELETE FROM {table} WHERE ({wanted}){and_where(dialect, relation)}", tuple(values)
    )


def and_where(dialect: Dialect, relation: Relation) -> str:
    """A relation's condition beside others: rows for which it does not hold are none of it."""
    return f" AND ({escape(dialect, relation.where)})" if relation.where else ""


def compare_expanded(names: Sequence[str], places: Sequence[str], last: str, strict: str) -> str:
    """`(a, b) op (x, y)` spelled out for optimisers that use no index for rows of values.

    Values must be given in the order of `expand`.
    """
    if len(names) == 1:
        return f"{names[0]} {last} {places[0]}"
    rest = compare_expanded(names[1:], places[1:], last, strict)
    return f"({names[0]} {strict} {places[0]} OR ({names[0]} = {places[0]} AND {rest}))"


def expand(values: Sequence[object]) -> list[object]:
    """The values in the order in which `compare_expanded` mentions them."""
    return list(values) if len(values) == 1 else [values[0], values[0], *expand(values[1:])]


def select_sql(
    dialect: Dialect,
    relation: Relation,
    table: TableName,
    chunk: Chunk,
    what: str,
    condition: str = "",
    values: Sequence[object] = (),
) -> Statement:
    """Expressions over the rows of a chunk, and of a condition if there is one."""
    conditions, bound = [], []
    names = _key_names(dialect, relation)
    for limit, compare in ((chunk.low, dialect.row_at_least), (chunk.high, dialect.row_below)):
        if limit is not None:
            places, found = _key_parameters(dialect, relation, limit)
            conditions.append(compare(names, places))
            bound += expand(found) if dialect.expands_rows else found
    if condition:
        conditions.append(condition)
        bound += values
    if relation.where:
        conditions.append(f"({escape(dialect, relation.where)})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return Statement(f"SELECT {what} FROM {table_sql(dialect, table)}{where}", tuple(bound))


def escape(dialect: Dialect, condition: str) -> str:
    """A relation's condition for a statement: drivers with %s placeholders take each % for one of theirs."""
    return condition.replace("%", "%%") if dialect.placeholder == "%s" else condition


def _keys_and_fingerprint(dialect: Dialect, relation: Relation) -> str:
    def text(i: int) -> str:
        return dialect.as_text(dialect.canonical(relation.columns[i], relation.types[i]))

    texts = [
        *map(text, range(relation.key_width)),
        fingerprint_sql(dialect, relation),
        *map(text, relation.deferred),
    ]
    names = fingerprint_names(relation)
    return ", ".join(f"{text} AS {name}" for text, name in zip(texts, names, strict=True))


def _texts(dialect: Dialect, relation: Relation) -> str:
    return ", ".join(
        f"{dialect.as_text(dialect.canonical(column, kind))} AS c{i}"
        for i, (column, kind) in enumerate(zip(relation.columns, relation.types, strict=True))
    )


def _key_names(dialect: Dialect, relation: Relation) -> list[str]:
    """What stands for the key in conditions: its columns, so that their index is used.

    Except for UUIDs that a column of text may hold in capitals: those are found by their canonical
    text only. Weak columns are their engine's own matter.
    """
    return [
        dialect.canonical(column, kind)
        if isinstance(kind, Uuid) and isinstance(column.type, Text) and not column.weak
        else dialect.quote(column.name)
        for column, kind in zip(relation.key, relation.key_types, strict=True)
    ]


def _key_parameters(
    dialect: Dialect, relation: Relation, key: Sequence[str | None]
) -> tuple[list[str], list[object]]:
    found = [
        dialect.parameter(column, kind, text)
        for column, kind, text in zip(relation.key, relation.key_types, key, strict=True)
        if text is not None
    ]
    return [place for place, _ in found], [value for _, value in found]


def _key_condition(
    dialect: Dialect, relation: Relation, key: Sequence[str | None]
) -> tuple[str, list[object]]:
    places, values = _key_parameters(dialect, relation, key)
    waiting = iter(places)
    names = _key_names(dialect, relation)
    equal = [
        f"{name} IS NULL" if text is None else f"{name} = {next(waiting)}"
        for name, text in zip(names, key, strict=True)
    ]
    return " AND ".join(equal), values


def _keys_condition(
    dialect: Dialect, relation: Relation, keys: Sequence[Key]
) -> tuple[str, list[object]]:
    """Never `(a, b) IN ((x, y), …)`: MariaDB 10.11 misses rows by it whose text is not UTF-8."""
    if relation.key_width == 1 and all(key[0] is not None for key in keys):
        (name,) = _key_names(dialect, relation)
        (column,), (kind,) = relation.key, relation.key_types
        if dialect.lists_integers and isinstance(kind, Integer):
            numbers = [str(int(str(text))) for (text,) in keys]
            return f"{name} IN ({','.join(numbers)})", []
        found = [dialect.parameter(column, kind, str(text)) for (text,) in keys]
        listed = ", ".join([place for place, _ in found])
        return f"{name} IN ({listed})", [value for _, value in found]
    conditions = [_key_condition(dialect, relation, key) for key in keys]
    return (
        " OR ".join(f"({condition})" for condition, _ in conditions),
        [value for _, bound in conditions for value in bound],
    )


def _row_parameters(
    dialect: Dialect, relation: Relation, row: Sequence[str | None], chosen: Sequence[int]
) -> tuple[list[str], list[object]]:
    places, values = [], []
    for i in chosen:
        text = row[i]
        if text is None:
            places.append("NULL")
            continue
        place, value = dialect.parameter(relation.columns[i], relation.types[i], text)
        places.append(place)
        values.append(value)
    return places, values


def _only_table(relation: Relation) -> TableName:
    if len(relation.tables) != 1:
        raise UsageError("rows can be written to one table only, not to several that were merged")
    return relation.tables[0]
