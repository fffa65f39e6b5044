"""Forty differences, each planted into an answer that was right: what it is, and where it must be seen.

The right answer is the same for all of one shape; each planted one changes it in one way. All are
in DuckDB's SQL; `ORDINARY` runs on every engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.queries.verdict import Match

SCHEMA, ROWS, COLUMN, ROW = (
    Match.SCHEMA_MISMATCH,
    Match.ROW_COUNT_MISMATCH,
    Match.COLUMN_MISMATCH,
    Match.ROW_MISMATCH,
)


@dataclass(frozen=True)
class Planted:
    """A right answer, a wrong one, and the verdict."""

    name: str
    right: str
    wrong: str
    match: Match
    columns: tuple[str, ...] = ()
    ordered: bool = False
    margin: float = 1e-4


def rows(*values: str) -> str:
    """A query that gives these rows, with columns a and b."""
    return " UNION ALL ".join(f"SELECT {value}" for value in values)


def _ab(*pairs: tuple[str, str]) -> str:
    return rows(*(f"{a} AS a, {b} AS b" for a, b in pairs))


_TEXTS = _ab(("1", "'x'"), ("2", "'y'"), ("3", "'z'"))
_NUMBERS = _ab(("1", "10"), ("2", "20"), ("3", "30"))
_MONEY = _ab(
    ("1", "CAST('0.10' AS DECIMAL(20,2))"), ("2", "CAST('12345678901234567.89' AS DECIMAL(20,2))")
)


def _double(text: str) -> str:
    return f"CAST('{text}' AS DOUBLE PRECISION)"


def _floats(*values: str) -> str:
    return _ab(*((str(i), v if v == "NULL" else _double(v)) for i, v in enumerate(values, 1)))


ORDINARY = [
    Planted("a row is missing", _TEXTS, _ab(("1", "'x'"), ("2", "'y'")), ROWS),
    Planted("a row is there twice", _TEXTS, _TEXTS + " UNION ALL SELECT 3, 'z'", ROWS),
    Planted("no rows at all", _TEXTS, f"SELECT * FROM ({_TEXTS}) AS t WHERE a > 9", ROWS),
    Planted(
        "one row for another",
        _TEXTS,
        _ab(("1", "'x'"), ("2", "'y'"), ("4", "'q'")),
        COLUMN,
        ("a", "b"),
    ),
    Planted("two rows swapped a text", _TEXTS, _ab(("1", "'y'"), ("2", "'x'"), ("3", "'z'")), ROW),
    Planted("two rows swapped a number", _NUMBERS, _ab(("1", "20"), ("2", "10"), ("3", "30")), ROW),
    Planted(
        "compensating whole numbers",
        _NUMBERS,
        _ab(("1", "11"), ("2", "19"), ("3", "30")),
        COLUMN,
        ("b",),
    ),
    Planted("one off", _NUMBERS, _ab(("1", "10"), ("2", "20"), ("3", "31")), COLUMN, ("b",)),
    Planted(
        "case of a letter", _TEXTS, _ab(("1", "'X'"), ("2", "'y'"), ("3", "'z'")), COLUMN, ("b",)
    ),
    Planted(
        "a space at the end", _TEXTS, _ab(("1", "'x '"), ("2", "'y'"), ("3", "'z'")), COLUMN, ("b",)
    ),
    Planted(
        "NULL for an empty text",
        _ab(("1", "''"), ("2", "'y'")),
        _ab(("1", "NULL"), ("2", "'y'")),
        COLUMN,
        ("b",),
    ),
    Planted(
        "the text NULL for NULL",
        _ab(("1", "NULL"), ("2", "'y'")),
        _ab(("1", "'NULL'"), ("2", "'y'")),
        COLUMN,
        ("b",),
    ),
    Planted(
        "NULL for 0", _ab(("1", "0"), ("2", "5")), _ab(("1", "NULL"), ("2", "5")), COLUMN, ("b",)
    ),
    Planted(
        "a text that moved its comma",
        rows("'a,b' AS a, 'c' AS b"),
        rows("'a' AS a, 'b,c' AS b"),
        COLUMN,
        ("a", "b"),
    ),
    Planted("an accent", rows("1 AS a, 'é' AS b"), rows("1 AS a, 'e' AS b"), COLUMN, ("b",)),
    Planted("a cent", _MONEY, _MONEY.replace("0.10", "0.11"), COLUMN, ("b",)),
    Planted(
        "a cent that a double does not have", _MONEY, _MONEY.replace("7.89", "7.88"), COLUMN, ("b",)
    ),
    Planted(
        "compensating cents",
        _MONEY,
        _MONEY.replace("0.10", "0.11").replace("7.89", "7.88"),
        COLUMN,
        ("b",),
    ),
    Planted(
        "a float beyond the margin",
        _floats("1", "2", "3"),
        _floats("1", "2", "3.01"),
        COLUMN,
        ("b",),
    ),
    Planted("NULL for 0.0", _floats("1", "0", "3"), _floats("1", "NULL", "3"), COLUMN, ("b",)),
    Planted(
        "compensating floats", _floats("1", "-1", "3"), _floats("2", "-2", "3"), COLUMN, ("b",)
    ),
    Planted(
        "two rows swapped a float", _floats("1", "2", "3"), _floats("2", "1", "3"), ROW, ("b",)
    ),
    Planted(
        "a small float beside a large one",
        _floats("1e12", "2", "3"),
        _floats("1e12", "2.5", "3"),
        ROW,
        ("b",),
    ),
    Planted(
        "compensating floats that are far apart",
        _floats("5", "6", "7"),
        _floats("6", "5", "7"),
        ROW,
        ("b",),
    ),
    Planted(
        "one ulp", _floats("1", "2"), _floats("1.0000000000000002", "2"), COLUMN, ("b",), margin=0.0
    ),
    Planted(
        "tiny floats, far apart in proportion",
        _floats("1e-9", "2e-9"),
        _floats("1e-9", "3e-9"),
        COLUMN,
        ("b",),
    ),
    Planted(
        "a day",
        rows("1 AS a, DATE '2024-02-29' AS b"),
        rows("1 AS a, DATE '2024-03-01' AS b"),
        COLUMN,
        ("b",),
    ),
    Planted("only in control", "SELECT 1 AS a, 2 AS b", "SELECT 1 AS a", SCHEMA, ("b",)),
    Planted("only in test", "SELECT 1 AS a", "SELECT 1 AS a, 2 AS b", SCHEMA, ("b",)),
    Planted(
        "columns in another order", "SELECT 1 AS a, 2 AS b", "SELECT 2 AS b, 1 AS a", SCHEMA, ("",)
    ),
    Planted("a text for a number", "SELECT 1 AS a", "SELECT 'x' AS a", SCHEMA, ("a",)),
]

_NAN, _INF = "'nan'::DOUBLE", "'inf'::DOUBLE"

NESTED = [
    Planted("a wider type", "SELECT 1::INTEGER AS a", "SELECT 1::BIGINT AS a", SCHEMA, ("a",)),
    Planted(
        "a text for a day",
        "SELECT DATE '2024-01-01' AS a",
        "SELECT '2024-01-01' AS a",
        SCHEMA,
        ("a",),
    ),
    Planted(
        "NaN for a number",
        _ab(("1", _NAN), ("2", "2.0::DOUBLE")),
        _floats("1", "2"),
        COLUMN,
        ("b",),
    ),
    Planted("minus infinity", _ab(("1", _INF)), _ab(("1", "'-inf'::DOUBLE")), COLUMN, ("b",)),
    Planted(
        "another hour in UTC",
        "SELECT TIMESTAMPTZ '2024-06-01 12:00:00+00' AS a",
        "SELECT TIMESTAMPTZ '2024-06-01 12:00:00+02' AS a",
        COLUMN,
        ("a",),
    ),
    Planted(
        "a microsecond",
        "SELECT TIMESTAMP '2024-06-01 12:00:00.000001' AS a",
        "SELECT TIMESTAMP '2024-06-01 12:00:00.000002' AS a",
        COLUMN,
        ("a",),
    ),
    Planted("an element", "SELECT [1, 2, 3] AS a", "SELECT [1, 2, 4] AS a", COLUMN, ("a",)),
    Planted(
        "the order of elements, asked for",
        "SELECT [1, 2, 3] AS a",
        "SELECT [3, 2, 1] AS a",
        COLUMN,
        ("a",),
        ordered=True,
    ),
    Planted("an element twice", "SELECT [1, 2] AS a", "SELECT [1, 2, 2] AS a", COLUMN, ("a",)),
    Planted(
        "a list of NULL for an empty list",
        "SELECT [NULL]::INTEGER[] AS a",
        "SELECT []::INTEGER[] AS a",
        COLUMN,
        ("a",),
    ),
    Planted(
        "elements joined otherwise", "SELECT ['a,b'] AS a", "SELECT ['a', 'b'] AS a", COLUMN, ("a",)
    ),
    Planted(
        "a float in a list",
        "SELECT [1.5::DOUBLE, 2] AS a",
        "SELECT [1.5::DOUBLE, 3] AS a",
        COLUMN,
        ("a.sum",),
    ),
    Planted(
        "0.0 for NULL in a list of floats",
        "SELECT [1.5::DOUBLE, NULL] AS a",
        "SELECT [1.5::DOUBLE, 0] AS a",
        COLUMN,
        ("a.size",),
    ),
    Planted(
        "the value of a key",
        "SELECT MAP {'k': 1, 'l': 2} AS a",
        "SELECT MAP {'k': 1, 'l': 3} AS a",
        COLUMN,
        ("a",),
    ),
    Planted(
        "values swapped between keys",
        "SELECT MAP {'k': 1, 'l': 2} AS a",
        "SELECT MAP {'k': 2, 'l': 1} AS a",
        COLUMN,
        ("a",),
    ),
    Planted(
        "another key",
        "SELECT MAP {'k': 1.5::DOUBLE} AS a",
        "SELECT MAP {'m': 1.5::DOUBLE} AS a",
        COLUMN,
        ("a.keys",),
    ),
    Planted(
        "a field",
        "SELECT {'x': 1, 'y': 'p'} AS a",
        "SELECT {'x': 1, 'y': 'q'} AS a",
        COLUMN,
        ("a.y",),
    ),
    Planted(
        "a float field",
        "SELECT {'x': 1.5::DOUBLE} AS a",
        "SELECT {'x': 1.6::DOUBLE} AS a",
        COLUMN,
        ("a.x",),
    ),
    Planted(
        "a structure of NULL for no structure",
        "SELECT {'x': NULL::INTEGER} AS a",
        "SELECT NULL::STRUCT(x INTEGER) AS a",
        COLUMN,
        ("a is there",),
    ),
    Planted(
        "a field of an element",
        "SELECT [{'x': 1}, {'x': 2}] AS a",
        "SELECT [{'x': 1}, {'x': 3}] AS a",
        COLUMN,
        ("a",),
    ),
    Planted(
        "a list in a map",
        "SELECT MAP {'k': [1, 2]} AS a",
        "SELECT MAP {'k': [1, 3]} AS a",
        COLUMN,
        ("a",),
    ),
]
