"""Statements in the log: which tables' definitions they change, and which are changes of rows.

Nothing here tries to understand SQL as a server does. A statement is sorted into what it is, and the
tables it names are read from it; what is not understood counts as a change of every table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = r"(?:`((?:[^`]|``)+)`|([\w$]+))"
_TABLE = rf"(?:{_NAME}\s*\.\s*)?{_NAME}"
_COMMENT = re.compile(r"\s*(?:/\*(?![!M]).*?\*/|--[ \t][^\n]*\n|#[^\n]*\n)", re.DOTALL)
_HARMLESS = re.compile(
    r"(CREATE|ALTER|DROP)\s+(OR\s+REPLACE\s+)?((DEFINER|ALGORITHM|SQL|AGGREGATE)\b.*?\b)?"
    r"(VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT|USER|ROLE|SERVER|TABLESPACE|PACKAGE)\b"
    r"|(GRANT|REVOKE|ANALYZE|OPTIMIZE|REPAIR|FLUSH|SET|SAVEPOINT|ROLLBACK|RELEASE|BEGIN|COMMIT|XA|CREATE\s+DATABASE"
    r"|CREATE\s+SCHEMA|ALTER\s+DATABASE|ALTER\s+SCHEMA|CREATE\s+TEMPORARY|DROP\s+TEMPORARY)\b",
    re.IGNORECASE | re.DOTALL,
)
_ROW_CHANGES = re.compile(
    r"(INSERT|REPLACE|UPDATE|DELETE|LOAD\s+DATA|LOAD\s+XML|CALL|WITH|MERGE|SELECT|DO)\b",
    re.IGNORECASE,
)
_INDEX = re.compile(
    rf"(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+)?INDEX\b.*?\bON\s+{_TABLE}",
    re.IGNORECASE | re.DOTALL,
)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_TABLE}", re.IGNORECASE)
_CREATE = re.compile(
    rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_TABLE}", re.IGNORECASE
)
_REPLACE = re.compile(r"CREATE\s+OR\s+REPLACE\s+TABLE\b", re.IGNORECASE)
_ALTER = re.compile(
    rf"ALTER\s+(?:ONLINE\s+|OFFLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}\s*",
    re.IGNORECASE,
)
_ALTER_RENAME = re.compile(
    rf"RENAME\s+(?:TO\s+|AS\s+)?(?!(?:COLUMN|INDEX|KEY)\b){_TABLE}\s*$", re.IGNORECASE
)
_ALTER_AND_RENAME = re.compile(rf",\s*RENAME\s+(?:TO\s+|AS\s+){_TABLE}\s*$", re.IGNORECASE)
# Rows go, or come, without a word in the log about which ones.
_ALTER_ROWS = re.compile(
    r"\b((DROP|TRUNCATE|EXCHANGE|CONVERT)\s+(SUB)?PARTITION|CONVERT\s+TABLE|(DISCARD|IMPORT)\s+(PARTITION|TABLESPACE))\b",
    re.IGNORECASE,
)
_DROP = re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_RENAME = re.compile(r"RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_RENAME_PAIR = re.compile(rf"{_TABLE}\s+(?:(?:NO)?WAIT\s+(?:\d+\s+)?)?TO\s+{_TABLE}", re.IGNORECASE)
_LISTED_TABLE = re.compile(rf"\s*{_TABLE}\s*(?:,|$)")
_AFTER_LIST = re.compile(
    r"\s+(?:RESTRICT|CASCADE|NOWAIT|WAIT\s+\d+|/\*.*?\*/)\s*$", re.IGNORECASE | re.DOTALL
)
_SEQUENCE = re.compile(
    rf"(?:CREATE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?SEQUENCE\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{_TABLE}",
    re.IGNORECASE,
)
_DROP_DATABASE = re.compile(
    rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?{_NAME}", re.IGNORECASE
)

Name = tuple[str, str]


@dataclass(frozen=True)
class Statement:
    """What a logged statement does.

    Attributes:
        kind: `rows` (changes of rows, logged as a statement), `create`, `alter`, `drop`, `rename`,
            `truncate`, `index`, `sequence`, `harmless`, or `unknown`.
        tables: The tables whose definition it changes, as database and name; `*` for all of a database.
        renamed: Old and new names, one renaming after the other.
        rest: For `alter` and `index`: the clauses.
        empties: Every row of the tables is gone after it.
        moves_rows: Some rows come or go with it, and the log does not say which.
    """

    kind: str
    tables: tuple[Name, ...] = ()
    renamed: tuple[tuple[Name, Name], ...] = ()
    rest: str = ""
    empties: bool = False
    moves_rows: bool = False

    @property
    def moves(self) -> dict[Name, Name]:
        """Each table that was renamed, and what it is called in the end."""
        found: dict[Name, Name] = {}
        for old, new in self.renamed:
            first = next((name for name, now in found.items() if now == old), old)
            found[first] = new
        return found


def parse_statement(text: str, database: str) -> Statement:
    """Sorts a statement; `database` is the one that was in use."""
    sql = _plain(text)
    if _ROW_CHANGES.match(sql):
        return Statement("rows")
    if match := _TRUNCATE.match(sql):
        return Statement("truncate", (_name(match, database),), empties=True)
    if match := _CREATE.match(sql):
        return Statement("create", (_name(match, database),), empties=bool(_REPLACE.match(sql)))
    if match := _ALTER.match(sql):
        return _alter(_name(match, database), sql[match.end() :], database)
    if match := _INDEX.match(sql):
        return Statement("index", (_name(match, database),), rest=sql)
    if match := _DROP.match(sql):
        names = sql[match.end() :]
        while end := _AFTER_LIST.search(names):
            names = names[: end.start()]
        listed = _LISTED_TABLE.finditer(names)
        return Statement("drop", tuple(_name(one, database) for one in listed), empties=True)
    if match := _RENAME.match(sql):
        pairs = tuple(
            (_name(pair, database), _name(pair, database, 4))
            for pair in _RENAME_PAIR.finditer(sql[match.end() :])
        )
        return Statement("rename", tuple(name for pair in pairs for name in pair), pairs)
    if match := _SEQUENCE.match(sql):
        return Statement("sequence", (_name(match, database),))
    if match := _DROP_DATABASE.match(sql):
        return Statement("drop", ((_unquoted(match[1], match[2]), "*"),), empties=True)
    if _HARMLESS.match(sql) or not sql:
        return Statement("harmless")
    return Statement("unknown", ((database, "*"),))


def first_comment(text: str) -> str | None:
    """The comment that a statement begins with: the mark of whoever wrote it."""
    comment, end, _ = text.partition("*/")
    return comment[2:].strip() if end and comment.startswith("/*") else None


def _alter(name: Name, rest: str, database: str) -> Statement:
    if moved := _ALTER_RENAME.match(rest):
        other = _name(moved, database)
        return Statement("rename", (name, other), ((name, other),))
    if moved := _ALTER_AND_RENAME.search(rest):
        other = _name(moved, database)
        return Statement("alter", (name, other), ((name, other),), rest=rest)
    return Statement("alter", (name,), rest=rest, moves_rows=bool(_ALTER_ROWS.search(rest)))


def _plain(text: str) -> str:
    """Without comments in front, and with what version comments hide."""
    while match := _COMMENT.match(text):
        text = text[match.end() :]
    return (
        re.sub(r"/\*[!M]+\d*\s?(.*?)\*/", r"\1", text, flags=re.DOTALL).strip().rstrip(";").strip()
    )


def _name(match: re.Match[str], database: str, first: int = 0) -> Name:
    schema, plain_schema, table, plain_table = match.groups()[first : first + 4]
    given = _unquoted(schema, plain_schema)
    return given or database, _unquoted(table, plain_table)


def _unquoted(quoted: str | None, plain: str | None) -> str:
    return quoted.replace("``", "`") if quoted else plain or ""
