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
    r"(VIEW|TRIGGER|PROCEDURE|FUNCTION|EVENT|USER|ROLE|SERVER|TABLESPACE|SEQUENCE|PACKAGE)\b"
    r"|(GRANT|REVOKE|ANALYZE|OPTIMIZE|REPAIR|FLUSH|SET|SAVEPOINT|RELEASE|BEGIN|COMMIT|XA|CREATE\s+DATABASE"
    r"|CREATE\s+SCHEMA|ALTER\s+DATABASE|ALTER\s+SCHEMA|CREATE\s+TEMPORARY|DROP\s+TEMPORARY)\b",
    re.IGNORECASE | re.DOTALL,
)
_ROW_CHANGES = re.compile(
    r"(INSERT|REPLACE|UPDATE|DELETE|LOAD\s+DATA|LOAD\s+XML|CALL|WITH|MERGE)\b", re.IGNORECASE
)
_INDEX = re.compile(
    rf"(?:CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+)?INDEX\b.*?\bON\s+{_TABLE}",
    re.IGNORECASE | re.DOTALL,
)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_TABLE}", re.IGNORECASE)
_CREATE = re.compile(
    rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_TABLE}", re.IGNORECASE
)
_ALTER = re.compile(
    rf"ALTER\s+(?:ONLINE\s+|OFFLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}\s*",
    re.IGNORECASE,
)
_DROP = re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_RENAME = re.compile(r"RENAME\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
_DROP_DATABASE = re.compile(
    rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?{_NAME}", re.IGNORECASE
)

Name = tuple[str, str]


@dataclass(frozen=True)
class Statement:
    """What a logged statement does.

    Attributes:
        kind: `rows` (changes of rows, logged as a statement), `create`, `alter`, `drop`, `rename`,
            `truncate`, `index`, `harmless`, or `unknown`.
        tables: The tables whose definition it changes, as database and name.
        renamed: For `rename`: new names by old ones.
        rest: For `alter`: what follows the table's name.
    """

    kind: str
    tables: tuple[Name, ...] = ()
    renamed: tuple[tuple[Name, Name], ...] = ()
    rest: str = ""


def parse_statement(text: str, database: str) -> Statement:
    """Sorts a statement; `database` is the one that was in use."""
    sql = _plain(text)
    if _ROW_CHANGES.match(sql):
        return Statement("rows")
    if match := _TRUNCATE.match(sql):
        return Statement("truncate", (_name(match, database),))
    if match := _CREATE.match(sql):
        return Statement("create", (_name(match, database),))
    if match := _ALTER.match(sql):
        name, rest = _name(match, database), sql[match.end() :]
        if moved := re.match(
            rf"RENAME\s+(?:TO\s+|AS\s+)?(?!COLUMN|INDEX|KEY){_TABLE}\s*$", rest, re.IGNORECASE
        ):
            other = _name(moved, database)
            return Statement("rename", (name, other), ((name, other),))
        return Statement("alter", (name,), rest=rest)
    if match := _INDEX.match(sql):
        return Statement("index", (_name(match, database),))
    if match := _DROP.match(sql):
        return Statement("drop", tuple(_names(sql[match.end() :], database)))
    if match := _RENAME.match(sql):
        names = _names(re.sub(r"\bTO\b", ",", sql[match.end() :], flags=re.IGNORECASE), database)
        pairs = tuple(zip(names[::2], names[1::2], strict=False))
        return Statement("rename", tuple(names), pairs)
    if match := _DROP_DATABASE.match(sql):
        return Statement("drop", ((_unquoted(match[1], match[2]), "*"),))
    if _HARMLESS.match(sql) or not sql:
        return Statement("harmless")
    return Statement("unknown", ((database, "*"),))


def _plain(text: str) -> str:
    """Without comments in front, and with what version comments hide."""
    while match := _COMMENT.match(text):
        text = text[match.end() :]
    return (
        re.sub(r"/\*[!M]+\d*\s?(.*?)\*/", r"\1", text, flags=re.DOTALL).strip().rstrip(";").strip()
    )


def _name(match: re.Match[str], database: str) -> Name:
    schema = _unquoted(match[1], match[2]) if match[1] or match[2] else database
    return schema, _unquoted(match[3], match[4])


def _names(text: str, database: str) -> list[Name]:
    return [
        _name(match, database)
        for match in re.finditer(
            rf"{_TABLE}(?=\s*(?:,|$|/\*|RESTRICT|CASCADE))", text, re.IGNORECASE
        )
    ]


def _unquoted(quoted: str | None, plain: str | None) -> str:
    return quoted.replace("``", "`") if quoted else plain or ""
