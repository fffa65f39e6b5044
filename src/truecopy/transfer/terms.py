"""What a task said of a table when its rows were written: rows and changes that come later must be made alike.

The task file may be another one at the next start. Rows that are on the target already stay as they were made: sent
elsewhere from then on, or under another filter, some would be missing, and nobody would be told. A column may be left
out from some start on, and then not come back: changes were written without it. What the source's tables become is no
matter of this; `redefinition` judges that. A task may follow a column that has got another name there.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any

from truecopy.engines.lines import packed, unpacked
from truecopy.mapping.plan import Constant, Converted, Copied, Expressed, Masked, TableMapping
from truecopy.model.types import type_name


def terms_of(mapping: TableMapping) -> str:
    """For the ledger."""
    return packed(_plain(mapping))


def broken_terms(kept: str, mapping: TableMapping) -> str:
    """What a task says otherwise now, in words; empty where the rows that are there fit."""
    if not kept:
        return ""
    now = _plain(mapping)
    then = _renamed(unpacked(kept), now)
    if then["target"] != now["target"]:
        return f"its rows go to {now['target']} now, and went to {then['target']}"
    if then["filter"] != now["filter"]:
        return "its filter is another one"
    if then["source_column"] != now["source_column"]:
        return "its source-column is another one"
    for name, origin in now["columns"].items():
        if name not in then["columns"]:
            if origin.get("column") is None or origin["column"] in then["known"]:
                return f"its column {name} was left out"
        elif then["columns"][name] != origin:
            return f"its column {name} was made otherwise"
    return ""


def _renamed(then: dict[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What was said, with the new name of a column that alone has got one on the source, or may have."""
    gone = [name for name in then["known"] if name not in now["known"]]
    new = [name for name in now["known"] if name not in then["known"]]
    if len(gone) != 1 or len(new) != 1:
        return then
    old, word = gone[0], re.compile(rf"(?<!\w){re.escape(gone[0])}(?!\w)")

    def origin(said: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **said,
            **({"column": new[0]} if said.get("column") == old else {}),
            **({"sql": word.sub(lambda _: new[0], said["sql"])} if "sql" in said else {}),
        }

    columns = {name: origin(said) for name, said in then["columns"].items()}
    if columns.get(old) == {"column": new[0]}:
        columns[new[0]] = columns.pop(old)  # its name on the target followed, too
    return {
        **then,
        "filter": [word.sub(lambda _: new[0], one) for one in then["filter"]],
        "columns": columns,
    }


def _plain(mapping: TableMapping) -> dict[str, Any]:
    return {
        "target": str(mapping.target),
        "filter": list(mapping.filter),
        "source_column": mapping.source_column,
        "columns": {column.name: _origin(mapping, column.name) for column in mapping.columns},
        "known": [column.name for column in mapping.source_columns],
    }


def _origin(mapping: TableMapping, name: str) -> Mapping[str, Any]:
    (column,) = (one for one in mapping.columns if one.name == name)
    match column.origin:
        case Copied(place):
            return {"column": mapping.source_columns[place].name}
        case Converted(place):
            return {"column": mapping.source_columns[place].name, "cast": type_name(column.type)}
        case Masked(place, key, length):
            # No more than the hashes that are on the target tell of the key.
            sample = hmac.new(key.reveal().encode(), b"", hashlib.sha256).hexdigest()[:8]
            source = mapping.source_columns[place].name
            return {"column": source, "mask": length, "key": sample}
        case Expressed(sql, kind):
            # A type that the task does not give is that of the source's columns, which may become others.
            return {"sql": sql, "type": type_name(kind) if kind is not None else None}
        case Constant(text):
            return {"value": text, "type": type_name(column.type)}
