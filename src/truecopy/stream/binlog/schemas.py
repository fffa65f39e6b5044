"""Which definition a table had when its rows were logged.

A log that names its columns (`binlog_row_metadata=FULL`) answers by itself. Any other log says only
the types, so the definition is looked up in the database as it is now, and taken back through every
statement between the rows and now. Where a statement cannot be taken back, the definition is not
known, and saying so is better than a guess: two columns of one type may have changed places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from truecopy.engines.mysql import MySQL
from truecopy.engines.mysql_dialect import canonical_type
from truecopy.engines.protocols import Statement as Sql
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.table import Column, TableName
from truecopy.model.types import Binary, Text
from truecopy.stream.binlog import columns as logged
from truecopy.stream.binlog.columns import LoggedColumn
from truecopy.stream.binlog.ddl import Name, Statement
from truecopy.stream.binlog.table_map import Metadata, TableMap, parse_table_map

Later = Callable[[], list[Statement]]
"""The statements between the rows and now, in the order of the log."""


class Schemas:
    """The definitions in force at one point of the log, as a reader moves along it."""

    def __init__(self, endpoint: Endpoint, known: Mapping[str, Definition]) -> None:
        self._endpoint = endpoint
        self._in_force = dict(known)
        self._store = Definitions()
        self._set_id: str | None = None
        self._charsets: dict[int, str] | None = None

    @property
    def set_id(self) -> str:
        """The name under which the metastore keeps the definitions in force."""
        if self._set_id is None:
            self._set_id = self._store.remember_set(self._in_force)
        return self._set_id

    def apply(self, statement: Statement) -> bool:
        """Forgets what a statement may have changed; whether it may have changed anything."""
        if statement.kind in ("rows", "harmless", "truncate"):
            return False
        for database, table in statement.tables:
            gone = [
                name
                for name in self._in_force
                if name == f"{database}.{table}"
                or (table == "*" and name.startswith(f"{database}."))
            ]
            for name in gone:
                del self._in_force[name]
                self._set_id = None
        return True

    def see(self, raw: bytes, later: Later) -> None:
        """Notes the definition of a table whose rows come next."""
        table_map = parse_table_map(raw)
        name = table_map.name
        known = self._in_force.get(name)
        if known is not None and _agrees(table_map, known):
            return
        self._in_force[name] = self._find(table_map, later)
        self._set_id = None

    def _find(self, table_map: TableMap, later: Later) -> Definition:
        found, reason = self._look_back(table_map, later)
        if found is not None and _agrees(table_map, found):
            return found
        if table_map.metadata is not None:
            return _from_metadata(table_map, table_map.metadata, self._charset_names())
        raise CannotFinish(
            f"the definition of {table_map.name} when its rows were logged cannot be known: {reason}; start the"
            " stream later, leave the table out (--tables), or SET GLOBAL binlog_row_metadata = 'FULL' for the future"
        )

    def _look_back(self, table_map: TableMap, later: Later) -> tuple[Definition | None, str]:
        """The definition that the table has now, taken back to when the rows were logged."""
        name: Name = (table_map.database, table_map.table)
        with MySQL(self._endpoint) as session:
            statements, definitions = later(), _present(session, name)
            # A statement between the two looks would be in one of them only.
            while len(again := later()) != len(statements):
                statements, definitions = again, _present(session, name)
            for statement in statements:
                name = dict(statement.renamed).get(name, name)
            if name != (table_map.database, table_map.table):
                definitions = _present(session, name)
        if definitions is None:
            return None, "it does not exist any more"
        definition = definitions
        for statement in reversed(statements):
            if not _touches(statement, name):
                continue
            before = take_back(definition, statement)
            if before is None:
                return None, f"a later {statement.kind.upper()} TABLE changed it"
            definition = before
            name = {new: old for old, new in statement.renamed}.get(name, name)
        return replace(definition, table=table_map.name), "it does not look as the log says"

    def _charset_names(self) -> dict[int, str]:
        if self._charsets is None:
            with MySQL(self._endpoint) as session:
                source = (
                    "collation_character_set_applicability" if session.is_mariadb else "collations"
                )
                if session.is_mariadb and not session.fetch(
                    Sql(
                        "SELECT 1 FROM information_schema.columns WHERE table_schema = 'information_schema'"
                        " AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"
                    )
                ):
                    source = "collations"
                rows = session.fetch(
                    Sql(f"SELECT id, character_set_name FROM information_schema.{source}")
                )
            self._charsets = {
                int(number): charset for number, charset in rows if number is not None
            }
        return self._charsets


def _present(session: MySQL, name: Name) -> Definition | None:
    try:
        table = session.describe(TableName(*name))
    except UsageError:
        return None
    return Definition(str(table.name), table.columns, table.keys[0] if table.keys else ())


def _touches(statement: Statement, name: Name) -> bool:
    return any(table == name or table == (name[0], "*") for table in statement.tables)


_SAME_COLUMNS = re.compile(
    r"(ADD\s+(CONSTRAINT\b(?!.*PRIMARY)|INDEX|KEY|UNIQUE|FULLTEXT|SPATIAL|FOREIGN|CHECK|PARTITION)"
    r"|DROP\s+(CONSTRAINT|INDEX|KEY|FOREIGN|CHECK|PARTITION)|RENAME\s+(INDEX|KEY)|ENGINE|AUTO_INCREMENT|COMMENT"
    r"|ALGORITHM|LOCK|ROW_FORMAT|ENABLE|DISABLE|ALTER\s+(COLUMN\s+)?\S+\s+(SET|DROP)\s+DEFAULT|ALTER\s+INDEX|FORCE"
    r"|STATS_|KEY_BLOCK_SIZE|MAX_ROWS|MIN_ROWS|AVG_ROW_LENGTH|ORDER\s+BY|WAIT|NOWAIT)\b",
    re.IGNORECASE | re.DOTALL,
)
_ADD_COLUMN = re.compile(
    r"ADD\s+(?:COLUMN\s+)?(?:IF\s+NOT\s+EXISTS\s+)?(?!PRIMARY\b|SYSTEM\b|PERIOD\b)(?:`((?:[^`]|``)+)`|([\w$]+))\s+\w",
    re.IGNORECASE,
)
_RENAME_COLUMN = re.compile(
    r"RENAME\s+COLUMN\s+(?:IF\s+EXISTS\s+)?(?:`((?:[^`]|``)+)`|([\w$]+))\s+TO\s+(?:`((?:[^`]|``)+)`|([\w$]+))\s*$",
    re.IGNORECASE,
)


def take_back(definition: Definition, statement: Statement) -> Definition | None:
    """The definition before a statement, from the one after it; None where it cannot be told."""
    if statement.kind in ("truncate", "index", "rename"):
        return definition
    if statement.kind != "alter":
        return None
    for clause in reversed(_clauses(statement.rest)):
        if _SAME_COLUMNS.match(clause):
            continue
        if match := _RENAME_COLUMN.match(clause):
            old, new = _either(match[1], match[2]), _either(match[3], match[4])
            definition = _renamed(definition, new, old)
        elif match := _ADD_COLUMN.match(clause):
            added = _either(match[1], match[2])
            if added.lower() not in (name.lower() for name in definition.names):
                return None
            columns = tuple(c for c in definition.columns if c.name.lower() != added.lower())
            if added.lower() in (name.lower() for name in definition.key):
                return None
            definition = replace(definition, columns=columns)
        else:
            return None
    return definition


def _either(quoted: str | None, plain: str | None) -> str:
    return quoted.replace("``", "`") if quoted else plain or ""


def _renamed(definition: Definition, now: str, before: str) -> Definition:
    columns = tuple(
        replace(c, name=before) if c.name.lower() == now.lower() else c for c in definition.columns
    )
    key = tuple(before if name.lower() == now.lower() else name for name in definition.key)
    return replace(definition, columns=columns, key=key)


def _clauses(text: str) -> list[str]:
    """The parts of an ALTER TABLE, split at commas that are in no bracket and no quotes."""
    found, depth, start = [], 0, 0
    for token in re.finditer(
        r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`|[(),]", text, re.DOTALL
    ):
        if token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth -= 1
        elif token[0] == "," and not depth:
            found.append(text[start : token.start()].strip())
            start = token.end()
    return [*found, text[start:].strip()]


# Which codes a column of a declared type is logged under.
_CODES: dict[str, set[int]] = {
    "tinyint": {logged.TINY},
    "smallint": {logged.SHORT},
    "mediumint": {logged.INT24},
    "int": {logged.LONG},
    "bigint": {logged.LONGLONG},
    "float": {logged.FLOAT},
    "double": {logged.DOUBLE},
    "decimal": {logged.NEWDECIMAL},
    "year": {logged.YEAR},
    "date": {logged.DATE, logged.NEWDATE},
    "time": {logged.TIME, logged.TIME2},
    "datetime": {logged.DATETIME, logged.DATETIME2},
    "timestamp": {logged.TIMESTAMP, logged.TIMESTAMP2},
    "char": {logged.STRING},
    "binary": {logged.STRING},
    "uuid": {logged.STRING},
    "inet4": {logged.STRING},
    "inet6": {logged.STRING},
    "varchar": {logged.VARCHAR, logged.VAR_STRING, logged.VARCHAR_COMPRESSED},
    "varbinary": {logged.VARCHAR, logged.VAR_STRING, logged.VARCHAR_COMPRESSED},
    "enum": {logged.ENUM},
    "set": {logged.SET},
    "bit": {logged.BIT},
    "json": {logged.JSON, logged.BLOB},
    "vector": {logged.VECTOR, logged.VARCHAR},
}
_BLOBS = {
    logged.BLOB,
    logged.TINY_BLOB,
    logged.MEDIUM_BLOB,
    logged.LONG_BLOB,
    logged.BLOB_COMPRESSED,
}


def _agrees(table_map: TableMap, definition: Definition) -> bool:
    """Whether rows that are logged so can be of a table that is defined so."""
    if len(table_map.columns) != len(definition.columns):
        return False
    pairs = zip(table_map.columns, definition.columns, strict=True)
    if not all(_is_logged_as(column, defined) for column, defined in pairs):
        return False
    metadata = table_map.metadata
    if metadata is None:
        return True
    return tuple(n.lower() for n in metadata.names) == tuple(
        n.lower() for n in definition.names
    ) and all(
        ("unsigned" in column.native) == (i in metadata.unsigned)
        for i, column in enumerate(definition.columns)
        if table_map.columns[i].type
        in (logged.TINY, logged.SHORT, logged.INT24, logged.LONG, logged.LONGLONG)
    )


def _is_logged_as(column: LoggedColumn, defined: Column) -> bool:
    word = re.match(r"\w+", defined.native.lower())
    base = word[0] if word else ""
    if base == "decimal" and (match := re.match(r"decimal\((\d+),(\d+)\)", defined.native)):
        return column.type == logged.NEWDECIMAL and column.meta == int(match[1]) << 8 | int(
            match[2]
        )
    if base.endswith(("blob", "text")):
        return column.type in _BLOBS
    return column.type in _CODES.get(base, {column.type})


_NATIVE = {
    logged.TINY: "tinyint",
    logged.SHORT: "smallint",
    logged.INT24: "mediumint",
    logged.LONG: "int",
    logged.LONGLONG: "bigint",
    logged.FLOAT: "float",
    logged.DOUBLE: "double",
    logged.YEAR: "year",
    logged.DATE: "date",
    logged.NEWDATE: "date",
    logged.JSON: "json",
    logged.GEOMETRY: "geometry",
}
_TIMES = {
    logged.TIME: "time",
    logged.TIME2: "time",
    logged.DATETIME: "datetime",
    logged.DATETIME2: "datetime",
    logged.TIMESTAMP: "timestamp",
    logged.TIMESTAMP2: "timestamp",
}
_BLOB_NAMES = {1: "tiny", 2: "", 3: "medium", 4: "long"}


def _from_metadata(
    table_map: TableMap, metadata: Metadata, charsets: Mapping[int, str]
) -> Definition:
    """The definition that a full log gives: names, types and key; defaults and orders it does not have."""
    columns = tuple(
        _column(i, column, table_map.nullable[i], metadata, charsets)
        for i, column in enumerate(table_map.columns)
    )
    return Definition(
        table_map.name, columns, tuple(metadata.names[place] for place in metadata.key)
    )


def _column(
    place: int,
    column: LoggedColumn,
    nullable: bool,
    metadata: Metadata,
    charsets: Mapping[int, str],
) -> Column:
    charset = charsets.get(metadata.charsets.get(place, 0))
    is_text = charset is not None and charset != "binary"
    scale = None
    if column.type in _TIMES:
        native = _TIMES[column.type] + (f"({column.meta})" if column.meta else "")
    elif column.type == logged.NEWDECIMAL:
        scale = column.meta & 255
        native = f"decimal({column.meta >> 8},{scale})"
    elif column.type == logged.BIT:
        native = f"bit({column.meta})"
    elif column.type in (logged.ENUM, logged.SET):
        kind = "enum" if column.type == logged.ENUM else "set"
        labels = [label.decode("utf-8", "replace") for label in metadata.labels.get(place, ())]
        native = f"{kind}({','.join(repr_label(label) for label in labels)})"
    elif column.type == logged.STRING:
        native = f"{'char' if is_text else 'binary'}({column.meta})"
    elif column.type in (logged.VARCHAR, logged.VAR_STRING, logged.VARCHAR_COMPRESSED):
        native = f"{'varchar' if is_text else 'varbinary'}({column.meta})"
    elif column.type in _BLOBS:
        native = _BLOB_NAMES.get(column.meta, "") + ("text" if is_text else "blob")
    else:
        native = _NATIVE.get(column.type, "vector") + (
            " unsigned" if place in metadata.unsigned and column.type != logged.YEAR else ""
        )
    base = re.match(r"\w+", native)
    kind_of = canonical_type(base[0] if base else "", native, scale)
    return Column(
        name=metadata.names[place],
        type=kind_of,
        native=native,
        nullable=nullable,
        fraction=scale or (column.meta if column.type in _TIMES else 0),
        charset=charset if isinstance(kind_of, Text) and not isinstance(kind_of, Binary) else None,
        padded=native.startswith("char"),
    )


def repr_label(label: str) -> str:
    """A label as a declaration quotes it."""
    return "'" + label.replace("'", "''") + "'"
