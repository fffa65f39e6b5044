"""Cases: JSON documents, arrays, and text that is read as another type on request."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
import uuid
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.conformance.cases import Case, Storage
from tests.conformance.texts import any_text
from truecopy.model.text import canonical_text
from truecopy.model.types import (
    Array,
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    Text,
    Time,
    Timestamp,
    Type,
    Uuid,
)

NO_ARRAYS = "no arrays"
_scalar = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.integers(-(10**9), 10**9).map(lambda n: n / 64),
    any_text,
)
_document = st.recursive(
    _scalar,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=8,
)
_written = st.builds(
    lambda value, ascii_only, spaced: json.dumps(
        value, ensure_ascii=ascii_only, separators=(" , ", " : ") if spaced else (",", ":")
    ),
    _document,
    st.booleans(),
    st.booleans(),
)
JSON_EDGES = (
    "null", "true", "false", "0", "-0", "1", "1.0", "1e0", "1.50", "-1.5e3", '""', '"null"', '"1"',
    "[]", "{}", "[[]]",
    '{"a":null}', '{"b":1,"a":2}', '{"a":{"c":1,"b":[1,2,{"z":1,"y":2}]}}', '{"aa":1,"b":2}',
    '{"":""}', '[1,"1",1.0]',
    ' { "a" : 1 } ', '"\\u00e9"', '"é"', '"e\\u0301"', '"\\ud83d\\ude42"', '"🙂"', '"\\"\\\\\\/"',
    '"\\n\\t\\r\\b\\f"',
    '"a,b;c"', '{"a,b":"c"}', "0.1", "1e5", "123456789012345", "1E+2", "1.10", '"\\u001f"',
    '"\\u007f"', '"\u2028"',
    '{"é":1,"z":2,"e\\u0301":3}', "[null,null]", "-0.0", "0e5", '{"k":"' + "x" * 5000 + '"}',
)  # fmt: skip


def documents(
    name: str, values: st.SearchStrategy[str], edges: tuple[str, ...], **more: Any
) -> Case:
    every = {
        "mariadb": Storage("JSON"),
        "postgresql": Storage("JSON"),
        "sqlite": Storage("JSON"),
        "duckdb": Storage("JSON"),
        "lake": Storage(arrow=pa.string()),
    }
    return Case(name, Json(), values, every | more, edges)


BIG_NUMBERS = (
    "9007199254740993", "18446744073709551616", "123456789012345678901234567890",
    "0.1000000000000000055511151231",
    "1e30", "1e31", "1e-30", "1e-31", "1e400", "1e-400", "-12345678901234567890.123456789", "1e100",
)  # fmt: skip

DOCUMENTS = [
    documents("json", _written, JSON_EDGES),
    documents(
        "jsonb",
        _written,
        JSON_EDGES,
        postgresql=Storage("JSONB"),
        mariadb=Storage("LONGTEXT CHARACTER SET utf16"),
    ),
    documents(
        "json big numbers",
        st.integers(-(10**60), 10**60).map(str)
        | st.decimals(allow_nan=False, allow_infinity=False, places=20).map(str),
        BIG_NUMBERS,
        sqlite=Storage("TEXT"),  # a JSON column would make doubles of them
    ),
    documents(
        "json big numbers in jsonb",
        st.just("1"),
        BIG_NUMBERS,
        postgresql=Storage("JSONB"),
        sqlite=Storage("TEXT"),
    ),
    documents(
        "json in text that is none",
        any_text,
        ("", "{", "abc", "NaN", "[1,]", "'a'", "{'a':1}", "nul"),
        mariadb=Storage("TEXT"),
        postgresql=Storage("TEXT"),
        sqlite=Storage("TEXT"),
        duckdb=Storage("TEXT"),
    ),
    documents(
        "json with escaped surrogates and repeated keys",
        st.just("1"),
        ('"\\ud800"', '{"\\udc00":1}', '"\\ude42\\ud83d"', '{"a":1,"a":2}', '{"b":0,"a":1,"a":2}'),
        mariadb=Storage("LONGTEXT"),
        duckdb=Storage("VARCHAR"),  # its JSON refuses them
    ),
]


def arrays(
    name: str,
    kind: Type,
    item: st.SearchStrategy[Any],
    edges: tuple[Any, ...],
    *columns: Any,
    **store: Any,
) -> Case:
    postgresql, duckdb_, arrow = columns
    return Case(
        f"array of {name}",
        Array(kind),
        st.lists(st.none() | item, max_size=6),
        {
            "postgresql": Storage(postgresql, place=f"{{}}::{postgresql}", **store),
            "duckdb": Storage(duckdb_, place=f"CAST({{}} AS {duckdb_})", **store),
            "lake": Storage(arrow=pa.list_(arrow)),
        },
        (
            [],
            [None],
            [None, None],
            *([edge] for edge in edges),
            list(edges),
            [edges[0], None, edges[-1]],
        ),
        dict.fromkeys(("mariadb", "sqlite"), NO_ARRAYS),
    )


def _texts(items: list[Any]) -> list[Any]:
    return [None if item is None else str(item) for item in items]


ARRAYS = [
    arrays("integers", Integer(), st.integers(-(2**63), 2**63 - 1), (0, 1, -1, 2**63 - 1),
    "BIGINT[]", "BIGINT[]", pa.int64()),
    arrays(
        "texts", Text(), any_text,
        ("", "NULL", "null", ",", "{}", '"', "\\", "'", "a b", " ", "é", "🙂", "-", "1:a", "0:",
        "\n"),
        "TEXT[]", "VARCHAR[]", pa.string(),
    ),
    arrays("booleans", Boolean(), st.booleans(), (True, False), "BOOLEAN[]", "BOOLEAN[]",
    pa.bool_()),
    arrays(
        "decimals", Decimal(4), st.decimals(-99999, 99999, places=2),
        tuple(map(decimal.Decimal, ("0.00", "-0.01", "1.10", "99999.99"))),
        "NUMERIC(10,2)[]", "DECIMAL(10,2)[]", pa.decimal128(10, 2), store=_texts,
    ),
    arrays("floats", Float(), st.floats(), (0.0, -0.0, 0.1, 1e22, 5e-324), "FLOAT8[]", "DOUBLE[]",
    pa.float64()),
    arrays("dates", Date(), st.dates(), (dt.date(1, 1, 1), dt.date(9999, 12, 31)), "DATE[]",
    "DATE[]", pa.date32(), store=_texts),
    arrays(
        "timestamps", Timestamp(zone=False), st.datetimes(),
        (dt.datetime(1, 1, 1), dt.datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001
        "TIMESTAMP[]", "TIMESTAMP[]", pa.timestamp("us"), store=_texts,
    ),
    arrays("uuids", Uuid(), st.uuids().map(str), (str(uuid.UUID(int=1)),), "UUID[]", "UUID[]",
    pa.string()),
    arrays("bytes", Binary(), st.binary(max_size=9), (b"", b"\0", b"\xff", b"a\\b"), "BYTEA[]",
    "BLOB[]", pa.binary()),
]  # fmt: skip


PLAIN: dict[type[object], str] = {
    Integer: r"[-+]?[0-9]{1,60}",
    Boolean: r"[-+]?[0-9]{1,60}",
    Decimal: r"[-+]?[0-9]{1,30}([.][0-9]{0,30})?",
    Float: r"[-+]?[0-9]{1,60}([.][0-9]{0,60})?(e[-+]?[0-9]{1,2})?",
    Date: r"[0-9]{4,}-[0-9]{2}-[0-9]{2}",
    Time: r"-?[0-9]{2,4}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?",
    Timestamp: r"[0-9]{4,}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?",
}


def is_plain(text: str, kind: Type) -> bool:
    """MySQL has no cast that does not warn: it reads plain forms only, and takes others for no value."""
    read = canonical_text(text, kind)
    return read is None or read.startswith("?") or bool(re.fullmatch(PLAIN[type(kind)], text))


def readings(name: str, kind: Type, values: st.SearchStrategy[str], *edges: str) -> Case:
    """Text compared as another type, on request: what does not fit must never look as if it did."""
    return Case(
        f"text read as {name}",
        kind,
        values | any_text,
        {
            "mariadb": Storage("LONGTEXT", holds=lambda text: is_plain(text, kind)),
            "postgresql": Storage("TEXT"),
            "sqlite": Storage("TEXT"),
            "duckdb": Storage("TEXT"),
            "lake": Storage(arrow=pa.string()),
        },
        ("", " ", "abc", "NULL", "?", "é🙂", "0", "1", "-1", *edges),
    )


NUMBERS = (
    "007", "+5", " 5", "5 ", "1.0", "1.50", "-0", "-0.0", "1e3", "1E-3", "1e", ".5", "5.", "--1",
    "0x10", "1_000", "1,5", "٣",
    "NaN", "nan", "inf", "Infinity", "-inf", "+inf", "true", "FALSE", "t",
    "12345678901234567890123", "-9223372036854775808",
    "9223372036854775807", "18446744073709551615",
    "123456789012345678901234567890.123456789012345678901234567890",
    "0.1", "1e400", "-1e400", "1e-400", "5e-324", "1\n", "\t1", "0.000", "000.100", "1.005",
    "9" * 65, "9" * 80, "\u00a01",
)  # fmt: skip
MOMENTS = (
    "2024-02-29", "2023-02-29", "0000-00-00", "2024-1-1", "20240101", "2024-01-01 10:00",
    "2024-01-01 10:00:00",
    "2024-01-01T10:00:00Z", "2024-01-01 10:00:00.5", "2024-01-01 10:00:00.123456",
    "2024-01-01 10:00:00.1234567",
    "2024-01-01 10:00:00.1234560", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000",
    "2024-01-01 10:00:00+05:30",
    "2024-01-01 10:00:00+02", "2024-01-01 10:00:00 UTC", "2024-01-01 10:00:00-0330",
    "9999-12-31 23:59:59+00:00",
    "0001-01-01 00:00:00+14:00", "2024-13-45 99:99:99", "2024-01-01 25:00:00", "10000-01-01",
    "12345-01-01 00:00:00",
    "infinity", "10:00", "10:00:00", "1:02:03", "-01:00:00", "838:59:59.999999", "10:00:00.1",
    "10:00:00.1234567", "24:00:00",
    "99:99:99", "2024-01-01 ", " 2024-01-01", "2024-01-01 10:00:00+99", "2024-06-30 23:59:60",
    "2024-01-01\n",
)  # fmt: skip

READINGS = [
    readings("integer", Integer(), st.integers(-(10**30), 10**30).map(str), *NUMBERS),
    readings("boolean", Boolean(), st.booleans().map(str), *NUMBERS),
    readings("decimal(2)", Decimal(2), st.decimals(-(10**9), 10**9, places=2).map(str), *NUMBERS),
    readings("decimal", Decimal(None), st.decimals(-(10**9), 10**9, places=5).map(str), *NUMBERS),
    readings("double", Float(), st.floats().map(repr), *NUMBERS),
    readings("date", Date(), st.dates().map(str), *MOMENTS),
    readings("time", Time(), st.times().map(str), *MOMENTS),
    readings("timestamp", Timestamp(zone=False), st.datetimes().map(str), *MOMENTS),
    readings("instant", Timestamp(zone=True), st.datetimes().map(lambda t: f"{t}+03:00"), *MOMENTS),
]
