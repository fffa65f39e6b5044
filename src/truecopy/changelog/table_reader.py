"""How views in a database read a log's tables: what each engine says differently of arrays that are kept as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from truecopy.changelog.folder_views import DUCKDB_ARRAYS, backticked, double_quoted
from truecopy.changelog.views import Reader
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError

_REPLACE = ("CREATE OR REPLACE VIEW {name} AS {query}",)
_ANEW = ("DROP VIEW IF EXISTS {name}", "CREATE VIEW {name} AS {query}")
_NO_MORE = 30
"""Digits after the point, in MySQL."""


@dataclass(frozen=True)
class TableReader:
    """An engine whose tables a log is kept in.

    Attributes:
        array: What `Reader.element` takes, of the column `after_row` of a table.
        beside: What is joined to the table for that.
        replacing: Ways to replace a view, each in one transaction; the first that works will do.
        before, after: Statements around them: a reader who takes his time must not hold up the log.
    """

    reader: Reader
    array: Callable[[str], str]
    beside: Callable[[str], str]
    replacing: tuple[tuple[str, ...], ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def reader_of(endpoint: Endpoint) -> TableReader:
    """The one for a database."""
    found = _READERS.get(endpoint.scheme)
    if found is None:
        raise UsageError(f"there are none for {endpoint.scheme}://")
    return found


def _as_it_is(of: str) -> str:
    return f"{of}.after_row"


def _nothing(_: str) -> str:
    return ""


def _without_nul(text: str) -> str:
    r"""JSON whose NULs show as ␀, for engines that have no text with one.

    Backslashes are written otherwise first, so that one before `u0000` is no longer taken for an escape.
    """
    return rf"replace(replace({text}, '\\', '\u005c'), '\u0000', '␀')"


# MySQL, MariaDB, TiDB


def _mysql_element(array: str, place: int) -> str:
    """Not JSON_VALUE, which in MySQL cuts at 512 characters, nor JSON_UNQUOTE alone, which makes a text of null."""
    one = f"JSON_EXTRACT({array}, '$[{place}]')"
    return f"CASE JSON_TYPE({one}) WHEN 'STRING' THEN JSON_UNQUOTE({one}) END"


_MYSQL = TableReader(
    Reader(
        backticked,
        _mysql_element,
        _mysql_element,
        "JSON_CONTAINS({}, CAST({} AS CHAR))".format,
        "SHA2({}, 256)".format,  # of long texts only the first bytes are compared when rows are grouped
        lambda text, scale: f"CAST({text} AS DECIMAL(65, {scale}))" if scale <= _NO_MORE else text,
    ),
    _as_it_is,
    _nothing,
    (_REPLACE,),
    before=("SET SESSION lock_wait_timeout = 3",),
    after=("SET SESSION lock_wait_timeout = DEFAULT",),
)


# PostgreSQL


def _jsonb(text: str) -> str:
    return f"CAST({_without_nul(text)} AS jsonb)"


_POSTGRESQL = TableReader(
    Reader(
        double_quoted,
        "({} ->> {})".format,
        lambda key, place: f"({_jsonb(key)} ->> {place})",
        "CAST({} AS jsonb) @> to_jsonb({})".format,
        str,
        # With digits as those of files have: other engines make doubles of a numeric that is not bounded.
        DUCKDB_ARRAYS.number,
    ),
    lambda of: f"{of}_row.after",
    # Without OFFSET the row would be parsed anew for each of its columns.
    lambda of: (
        f" CROSS JOIN LATERAL (SELECT {_jsonb(f'{of}.after_row')} AS after OFFSET 0) AS {of}_row"
    ),
    # Only the first keeps what others were granted; only the second can take a column away.
    (_REPLACE, _ANEW),
    before=("SET LOCAL lock_timeout = '3s'",),
)


# SQLite


def _sqlite_element(array: str, place: int) -> str:
    return f"json_extract({array}, '$[{place}]')"


def _sqlite_number(text: str, scale: int) -> str:
    """Numbers that it cannot hold stay texts."""
    kind, printed = (
        ("REAL", f"printf('%.{scale}f', {{}})") if scale else ("INTEGER", "CAST({} AS TEXT)")
    )
    number = f"CAST({text} AS {kind})"
    return f"CASE WHEN {printed.format(number)} = {text} THEN {number} ELSE {text} END"


_SQLITE = TableReader(
    Reader(
        double_quoted,
        _sqlite_element,
        lambda key, place: _sqlite_element(_without_nul(key), place),
        "EXISTS (SELECT 1 FROM json_each({}) WHERE value = {})".format,
        str,
        _sqlite_number,
    ),
    lambda of: _without_nul(f"{of}.after_row"),
    _nothing,
    (_ANEW,),
)


# DuckDB


def _list(text: str, kind: str = "VARCHAR") -> str:
    return f"from_json({text}, '[\"{kind}\"]')"


_DUCKDB = TableReader(
    replace(
        DUCKDB_ARRAYS,
        key_element=lambda key, place: DUCKDB_ARRAYS.key_element(_list(key), place),
        contains=lambda some, one: DUCKDB_ARRAYS.contains(_list(some, "INTEGER"), one),
    ),
    lambda of: _list(f"{of}.after_row"),
    _nothing,
    (_REPLACE,),
)

_READERS: Mapping[str, TableReader] = {
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "tidb": _MYSQL,
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "sqlite": _SQLITE,
    "duckdb": _DUCKDB,
}
