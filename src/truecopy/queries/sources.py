"""Where queries come from: YAML, JSON lines, a folder of `.sql` files, a table of any endpoint.

A source is a function from a location and the name of a suite (None: every suite) to queries;
other packages register theirs under `truecopy.queries.sources`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from truecopy.engines.queries.session import open_session
from truecopy.model.endpoint import mask_url, parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.queries import plugins
from truecopy.queries.query import Query
from truecopy.queries.reading import read_query

_SIDE_COLUMNS = ("setup", "teardown", "catalog", "schema", "user", "password", "session")


def read_source(location: str, suite: str | None = None, kind: str | None = None) -> list[Query]:
    """The queries at a location; names must be unique within a suite."""
    source = plugins.load("sources", kind or _kind(location))
    found: list[Query] = list(source(location, suite))
    where = mask_url(location)
    seen: set[tuple[str, str]] = set()
    for query in found:
        if (query.suite, query.name) in seen:
            raise UsageError(f"{where}: two queries of {query.suite} are named {query.name}")
        seen.add((query.suite, query.name))
    return found


def suite_document(location: str) -> Mapping[str, Any]:
    """A YAML suite file as it is written: settings at the top, and `queries`."""
    path = _file(location)
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{location} is not YAML: {' '.join(str(error).split())}") from None
    if isinstance(document, list):
        return {"queries": document}
    if not isinstance(document, dict) or not isinstance(document.get("queries"), list):
        raise UsageError(f"{location}: a list under `queries` is expected")
    return document


def from_yaml(location: str, suite: str | None) -> Iterator[Query]:
    """`suite: NAME` and `queries: [{name, query, …}]`."""
    document = suite_document(location)
    own = str(document.get("suite") or Path(location).stem)
    yield from _of_suite(
        (
            read_query(entry, own, f"{location}, query {at}")
            for at, entry in enumerate(document["queries"], 1)
        ),
        suite,
    )


def from_jsonl(location: str, suite: str | None) -> Iterator[Query]:
    """One object a line, with the keys of YAML's queries."""
    path = _file(location)

    def entries() -> Iterator[Query]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            where = f"{location}, line {number}"
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise UsageError(f"{where} is not JSON: {error}") from None
            yield read_query(entry, path.stem, where)

    yield from _of_suite(entries(), suite)


def from_folder(location: str, suite: str | None) -> Iterator[Query]:
    """`NAME.sql` for both sides, or `NAME.control.sql` and `NAME.test.sql`; a folder inside is a suite."""
    root = Path(location)
    if not root.is_dir():
        raise UsageError(f"there is no folder {location}")
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(root.rglob("*.sql")):
        name, side = path.stem, "query"
        for ending in ("control", "test"):
            if name.endswith(f".{ending}"):
                name, side = name.removesuffix(f".{ending}"), ending
        own = str(path.parent.relative_to(root))
        key = (root.name if own == "." else own, name)
        entries.setdefault(key, {"name": name})[side] = path.read_text(encoding="utf-8")
    found = (
        read_query(entry, own, f"{location}, {name}") for (own, name), entry in entries.items()
    )
    yield from _of_suite(found, suite)


def from_table(location: str, suite: str | None) -> Iterator[Query]:
    """`URL#table` with the columns suite, name, control_query and test_query.

    Circumstances are columns too, with the prefix `control_` or `test_` for one side only.
    Set-up, tear-down and `key` are JSON lists, session settings a JSON object.
    """
    url, _, table = location.rpartition("#")
    if not url:
        raise UsageError(f"{mask_url(location)} names no table: write URL#table")
    with open_session(parse_endpoint(url)) as session:
        quoted = ".".join(session.quote(part) for part in table.split("."))
        names = session.names(f"SELECT * FROM {quoted} WHERE 1 = 0")
        rows = session.fetch(session.texts.escaped(f"SELECT * FROM {quoted}"))
    queries = (_from_row(dict(zip(names, row, strict=True)), mask_url(location)) for row in rows)
    yield from _of_suite(sorted(queries, key=lambda query: (query.suite, query.name)), suite)


def _from_row(row: Mapping[str, object], where: str) -> Query:
    found = {str(name).lower(): value for name, value in row.items() if value is not None}

    def decoded(name: str) -> object:
        value = found[name]
        if not name.endswith(("setup", "teardown", "session", "key")):
            return str(value)
        try:
            return json.loads(str(value))
        except ValueError:
            raise UsageError(f"{where}: {found.get('name')}: {name} is not JSON") from None

    entry: dict[str, Any] = {
        n: decoded(n) for n in ("name", "query", "key", *_SIDE_COLUMNS) if n in found
    }
    for side in ("control", "test"):
        own = {
            n: decoded(f"{side}_{n}") for n in ("query", *_SIDE_COLUMNS) if f"{side}_{n}" in found
        }
        if own:
            entry[side] = own
    return read_query(entry, str(found.get("suite", "default")), where)


def _of_suite(queries: Iterable[Query], suite: str | None) -> Iterator[Query]:
    return (query for query in queries if suite is None or query.suite == suite)


def _kind(location: str) -> str:
    if "://" in location:
        return "table"
    if Path(location).is_dir():
        return "folder"
    known = {".yaml": "yaml", ".yml": "yaml", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    kind = known.get(Path(location).suffix.lower())
    if kind is None:
        raise UsageError(
            f"{location}: a suite is a .yaml or .jsonl file, a folder of .sql files, or URL#table"
        )
    return kind


def _file(location: str) -> Path:
    path = Path(location)
    if not path.is_file():
        raise UsageError(f"there is no file {location}")
    return path
