"""What a task said of a table when its rows were copied: rows and changes that come later must be made alike.

The task file may be another one at the next start. Rows that are on the target already stay as they were made: sent
elsewhere from then on, or under another filter, some would be missing, and nobody would be told. What the source's
tables become is no matter of this; `redefinition` judges that.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from truecopy.engines.lines import packed, unpacked
from truecopy.mapping.plan import Constant, Converted, Copied, Expressed, Masked, TableMapping
from truecopy.model.types import type_name


def terms_of(mapping: TableMapping) -> str:
    """For the ledger."""
    return packed(_plain(mapping))


def broken_terms(kept: str, mapping: TableMapping) -> str:
    """What a task says otherwise now, in words; empty where rows that were copied fit."""
    if not kept:
        return ""
    then, now = unpacked(kept), _plain(mapping)
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
        case Expressed(sql):
            return {"sql": sql, "type": type_name(column.type)}
        case Constant(text):
            return {"value": text, "type": type_name(column.type)}
