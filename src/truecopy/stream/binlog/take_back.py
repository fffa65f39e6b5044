"""A table's definition before a statement, from the one after it, where the statement tells enough."""

from __future__ import annotations

import re
from dataclasses import replace

from truecopy.model.change import Definition
from truecopy.stream.binlog.ddl import Statement

_NAME = r"(?:`((?:[^`]|``)+)`|([\w$]+))"
_SAME_COLUMNS = re.compile(
    r"(ADD\s+(CONSTRAINT\b(?!.*PRIMARY)|INDEX|KEY|UNIQUE|FULLTEXT|SPATIAL|FOREIGN|CHECK|PARTITION)"
    r"|DROP\s+(CONSTRAINT|INDEX|KEY|FOREIGN|CHECK|PARTITION)|RENAME\s+(INDEX|KEY)|ENGINE|AUTO_INCREMENT|COMMENT"
    r"|ALGORITHM|LOCK|ROW_FORMAT|ENABLE|DISABLE|ALTER\s+(COLUMN\s+)?\S+\s+(SET|DROP)\s+DEFAULT|ALTER\s+INDEX|FORCE"
    r"|STATS_|KEY_BLOCK_SIZE|MAX_ROWS|MIN_ROWS|AVG_ROW_LENGTH|ORDER\s+BY|WAIT|NOWAIT)\b",
    re.IGNORECASE | re.DOTALL,
)
# With IF EXISTS or IF NOT EXISTS nobody knows whether anything was done: those fit nothing here.
_ADD_COLUMN = re.compile(
    rf"ADD\s+(?:COLUMN\s+)?(?!(?:PRIMARY|SYSTEM|PERIOD|CONSTRAINT|IF)\b){_NAME}\s+\w", re.IGNORECASE
)
_RENAME_COLUMN = re.compile(
    rf"RENAME\s+COLUMN\s+{_NAME}\s+TO\s+{_NAME}\s*$",
    re.IGNORECASE,
)
_UNIQUE = re.compile(
    r"(ADD|CREATE)\b.*\bUNIQUE\b[^(]*\((?P<columns>.*)\)", re.IGNORECASE | re.DOTALL
)
_JSON_CHECK = re.compile(r"json_valid", re.IGNORECASE)
_TOKEN = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`|[(),]", re.DOTALL)


def take_back(definition: Definition, statement: Statement) -> Definition | None:
    """The definition before a statement, from the one after it; None where it cannot be told."""
    if statement.kind in ("truncate", "rename"):
        return definition
    if statement.kind not in ("alter", "index"):
        return None
    added: set[str] = set()
    old_names: dict[str, str] = {}
    for clause in _clauses(statement.rest):
        if statement.kind == "index" or _SAME_COLUMNS.match(clause):
            # What tells rows apart now may not have done so before; and a check may have made text JSON.
            if _adds_key(clause, definition) or _JSON_CHECK.search(clause):
                return None
        elif match := _RENAME_COLUMN.match(clause):
            old_names[_unquoted(match[3], match[4]).lower()] = _unquoted(match[1], match[2])
        elif match := _ADD_COLUMN.match(clause):
            added.add(_unquoted(match[1], match[2]).lower())
        else:
            return None
    rest = _without(definition, added)
    return rest and _renamed(rest, old_names)


def _adds_key(clause: str, definition: Definition) -> bool:
    match = _UNIQUE.match(clause)
    if match is None:
        return False
    columns = {name.strip(" `\n").lower() for name in match["columns"].split(",")}
    return columns == {name.lower() for name in definition.key}


def _without(definition: Definition, added: set[str]) -> Definition | None:
    columns = tuple(c for c in definition.columns if c.name.lower() not in added)
    were_added = len(columns) == len(definition.columns) - len(added)
    if not were_added or not added.isdisjoint(name.lower() for name in definition.key):
        return None
    return replace(definition, columns=columns)


def _renamed(definition: Definition, old_names: dict[str, str]) -> Definition:
    """All at once: two columns may have changed their names with each other."""
    columns = tuple(
        replace(c, name=old_names.get(c.name.lower(), c.name)) for c in definition.columns
    )
    key = tuple(old_names.get(name.lower(), name) for name in definition.key)
    return replace(definition, columns=columns, key=key)


def _clauses(text: str) -> list[str]:
    """The parts of an ALTER TABLE, split at commas that are in no bracket and no quotes."""
    found, depth, start = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth -= 1
        elif token[0] == "," and not depth:
            found.append(text[start : token.start()].strip())
            start = token.end()
    return [*found, text[start:].strip()]


def _unquoted(quoted: str | None, plain: str | None) -> str:
    return quoted.replace("``", "`") if quoted else plain or ""
