"""SQL for readers of a log: all changes, and of each table what it is now and what happened to it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from truecopy.changelog.facts import Base, bare_name, partition
from truecopy.changelog.store import BASE, CHANGES, VIEWS, Store
from truecopy.model.change import DELETE, TRUNCATE, Definition
from truecopy.model.types import Decimal, Integer, Type

_ORDER = "batch, commit_order, seq"
_BACKWARDS = "batch DESC, commit_order DESC, seq DESC"


@dataclass(frozen=True)
class Reader:
    """How one engine says what the views need."""

    name: str
    view: str
    quote: Callable[[str], str]
    events: Callable[[Path, str], str]
    base: Callable[[Path], str]
    element: Callable[[str, int], str]
    wrapped: str
    first: str
    contains: str
    no_numbers: str


def _double(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _backtick(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


DUCKDB = Reader(
    "duckdb",
    "CREATE OR REPLACE VIEW",
    _double,
    lambda folder, below: (
        f"read_parquet({_text(f'{folder}/{below}/*.parquet')}, hive_partitioning = true,"
        " hive_types = {'table': VARCHAR, 'day': DATE})"
    ),
    lambda folder: f"read_parquet({_text(f'{folder}/*.parquet')}, hive_partitioning = false)",
    lambda array, place: f"{array}[{place + 1}]",
    "struct_pack(v := {})",
    "first_value({} IGNORE NULLS)",
    "list_contains(unchanged, {})",
    "CAST([] AS INTEGER[])",
)
SPARK = Reader(
    "spark",
    "CREATE OR REPLACE TEMPORARY VIEW",
    _backtick,
    lambda folder, below: f"parquet.`{folder}/{below}`".replace("/*", ""),
    lambda folder: f"parquet.`{folder}`",
    lambda array, place: f"{array}[{place}]",
    "named_struct('v', {})",
    "first_value({}) IGNORE NULLS",
    "array_contains(unchanged, {})",
    "cast(array() AS array<int>)",
)


def write_views(store: Store) -> None:
    """Writes the files of views anew, each in one step."""
    for reader in (DUCKDB, SPARK):
        final = store.folder / VIEWS / f"{reader.name}.sql"
        unfinished = final.with_suffix(f".{os.getpid()}.new")
        unfinished.write_text(views_sql(store, reader), encoding="utf-8")
        unfinished.replace(final)


def views_sql(store: Store, reader: Reader) -> str:
    """The statements for one kind of readers."""
    statements = []
    if store.files():
        whole = reader.events(store.folder / CHANGES, "*/*")
        statements.append(f"{reader.view} changes AS SELECT * FROM {whole};")
    base = store.bases()[-1]
    tables = store.tables()
    bare = Counter(map(bare_name, tables))
    for table in tables:
        name = bare_name(table) if bare[bare_name(table)] == 1 else table.replace(".", "_")
        statements += _table_views(store, reader, base, table, name)
    return "\n\n".join(statements) + "\n"


def _table_views(store: Store, reader: Reader, base: Base, table: str, name: str) -> list[str]:
    files = store.files(table)
    lines = [one for one in store.base_tables(base.number) if one.table == table]
    ids = sorted({one.schema_id for one in lines}.union(*(file.schema_ids for file in files)))
    if not ids:
        return []
    definitions = {one: store.definition(one) for one in ids}
    last = store.latest(table)
    final = definitions[last if last in definitions else lines[0].schema_id if lines else ids[0]]
    made = []
    if files:
        made.append(_history(store, reader, table, name, final, definitions))
    is_partial = any(file.left_out for file in files)
    if final.key:
        made.append(
            _current(store, reader, base, table, name, final, definitions, is_partial=is_partial)
        )
    return made


def _history(
    store: Store,
    reader: Reader,
    table: str,
    name: str,
    final: Definition,
    definitions: dict[str, Definition],
) -> str:
    columns = [
        f"{_column(reader, final, definitions, at)} AS {reader.quote(column)}"
        for at, column in enumerate(final.names)
    ]
    own = ("kind", "committed_at", "shard", "position", "txn", "batch", "commit_order", "seq")
    told = ", ".join(f"{one} AS truecopy_{one}" for one in own)
    return (
        f"{reader.view} {reader.quote(f'{name}_history')} AS\nSELECT {told},\n    "
        + ",\n    ".join(columns)
        + f"\nFROM {_events(store, reader, table)};"
    )


def _current(
    store: Store,
    reader: Reader,
    base: Base,
    table: str,
    name: str,
    final: Definition,
    definitions: dict[str, Definition],
    *,
    is_partial: bool,
) -> str:
    eras = store.eras()
    parts = []
    told = f"{_ORDER}, era, kind, {reader.quote('key')}, after, unchanged, schema_id"
    if any(chunk.rows is not None for chunk in store.chunks(base.number, table)):
        folder = store.folder / BASE / str(base.number) / f"table={partition(table)}"
        parts.append(
            f"SELECT {base.batch} AS batch, -1 AS commit_order, -1 AS seq, era, 'snapshot' AS kind,"
            f" {reader.quote('key')}, after, {reader.no_numbers} AS unchanged, schema_id FROM {reader.base(folder)}"
        )
    if store.files(table):
        parts.append(
            f"SELECT {told} FROM {_events(store, reader, table)} WHERE batch > {base.batch}"
        )
    log = "\n    UNION ALL ".join(parts)
    value = _last_told if is_partial else _column
    values = [f"{value(reader, final, definitions, at)} AS v{at}" for at in range(len(final.names))]
    follows = [(era.number, old) for era in eras for old in sorted(era.ancestors)]
    names = ", ".join(f"v{at} AS {reader.quote(one)}" for at, one in enumerate(final.names))
    followed = ""
    if follows:
        pairs = " OR ".join(f"(y.era = {later} AND x.era = {old})" for later, old in follows)
        key = reader.quote("key")
        followed = f" AND NOT EXISTS (SELECT 1 FROM lasts y WHERE y.{key} = x.{key} AND ({pairs}))"
    is_emptied = any(file.truncates for file in store.files(table))
    emptied = ""
    if is_emptied:
        emptied = (
            f" AND NOT EXISTS (SELECT 1 FROM (SELECT era, max(({_ORDER})) AS at FROM log WHERE kind = '{TRUNCATE}'"
            " GROUP BY era) AS emptied WHERE emptied.era = log.era AND"
            " (log.batch, log.commit_order, log.seq) <= emptied.at)"
        )
    key = reader.quote("key")
    return f"""{reader.view} {reader.quote(f"{name}_current")} AS
WITH log AS (
    {log}),
lasts AS (
    SELECT * FROM (
        SELECT era, kind, {key}, row_number() OVER (PARTITION BY {key}, era ORDER BY {_BACKWARDS}) AS nth,
            {", ".join(values)}
        FROM log WHERE kind <> '{TRUNCATE}'{emptied}) AS numbered
    WHERE nth = 1)
SELECT {names} FROM lasts x WHERE kind <> '{DELETE}'{followed};"""


def _events(store: Store, reader: Reader, table: str) -> str:
    return reader.events(store.folder / CHANGES / f"table={partition(table)}", "*")


def _column(reader: Reader, final: Definition, definitions: dict[str, Definition], at: int) -> str:
    text = _of_definitions(reader, final, definitions, at)
    return _typed(text, final.columns[at].type)


def _last_told(
    reader: Reader, final: Definition, definitions: dict[str, Definition], at: int
) -> str:
    """A value that may have been left out since it last changed."""
    text = _of_definitions(reader, final, definitions, at)
    cases = _cases(definitions, lambda names: _place(names, final.names[at]), str)
    is_told = f"kind <> '{DELETE}' AND NOT coalesce({reader.contains.format(cases)}, false)"
    wrapped = reader.wrapped.format(text)
    window = (
        f"PARTITION BY {reader.quote('key')}, era ORDER BY {_BACKWARDS}"
        " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
    )
    first = reader.first.format(f"CASE WHEN {is_told} THEN {wrapped} END")
    found = f"({first} OVER ({window})).v"
    return _typed(found, final.columns[at].type)


def _of_definitions(
    reader: Reader, final: Definition, definitions: dict[str, Definition], at: int
) -> str:
    """The text of a column, wherever the definition of a row has it; a key's also of rows that are gone."""
    name = final.names[at]
    text = _cases(
        definitions, lambda names: _place(names, name), lambda place: reader.element("after", place)
    )
    if name not in final.key:
        return text
    key = reader.element(reader.quote("key"), final.key.index(name))
    return f"coalesce({text}, {key})"


def _cases(
    definitions: dict[str, Definition],
    find: Callable[[Sequence[str]], int | None],
    say: Callable[[int], str],
) -> str:
    places = {schema_id: find(one.names) for schema_id, one in definitions.items()}
    if len(set(places.values())) == 1:
        (place,) = set(places.values())
        return say(place) if place is not None else "NULL"
    whens = " ".join(
        f"WHEN '{schema_id}' THEN {say(place) if place is not None else 'NULL'}"
        for schema_id, place in places.items()
    )
    return f"CASE schema_id {whens} END"


def _place(names: Sequence[str], name: str) -> int | None:
    folded = [one.lower() for one in names]
    return folded.index(name.lower()) if name.lower() in folded else None


def _typed(text: str, kind: Type) -> str:
    """Numbers as numbers; everything else as its canonical text."""
    match kind:
        case Integer():
            return f"CAST({text} AS DECIMAL(38, 0))"
        case Decimal(scale) if scale is not None:
            return f"CAST({text} AS DECIMAL(38, {scale}))"
        case _:
            return text
