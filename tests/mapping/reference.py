"""What a mapping does, in plain Python: a table with one column of each kind, and rules for it."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from truecopy.mapping.rules import Computed, Fixed, Mask, Rules
from truecopy.model.secret import Secret
from truecopy.model.table import Column, Table, TableName
from truecopy.model.text import canonical_text
from truecopy.model.types import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Text,
    Timestamp,
    Type,
    Uuid,
)

Row = dict[str, Any]
Texts = list[str | None]

KEY = "key of the masks"
COLUMNS: dict[str, tuple[Type, str, st.SearchStrategy[Any]]] = {
    "id": (Integer(), "bigint(20)", st.integers(0, 5)),
    "big": (Integer(), "bigint(20) unsigned", st.integers(0, 2**64 - 1)),
    "n": (Integer(), "int", st.integers(-3, 3)),
    "flag": (Boolean(), "boolean", st.booleans()),
    "total": (
        Decimal(2),
        "decimal(10,2)",
        st.decimals(-99, 99, places=2, allow_nan=False, allow_infinity=False),
    ),
    "ratio": (Float(), "double", st.floats(allow_nan=False)),
    "day": (Date(), "date", st.dates(dt.date(1, 1, 1))),
    "at": (
        Timestamp(zone=False),
        "datetime(6)",
        st.datetimes(dt.datetime(1, 1, 1)),  # noqa: DTZ001 - what a wall clock shows
    ),
    "seen": (
        Timestamp(zone=True),
        "timestamptz",
        st.datetimes(dt.datetime(1900, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001
    ),
    "kind": (Text(), "varchar(20)", st.sampled_from(["a", "b", "", "ß'\n", "12"])),
    "key": (Text(), "text", st.text(st.characters(codec="utf-8"), max_size=5)),
    "data": (Binary(), "blob", st.binary(max_size=5)),
    "uuid": (Uuid(), "uuid", st.uuids()),
}
NAMES = list(COLUMNS)
TABLE = Table(
    TableName("shop", "t"),
    tuple(
        Column(name, kind, native, nullable=name != "id")
        for name, (kind, native, _) in COLUMNS.items()
    ),
    keys=(("id",),),
)


def rows(**fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    values = {
        name: fixed.get(name, strategy if name == "id" else st.none() | strategy)
        for name, (_, _, strategy) in COLUMNS.items()
    }
    return st.fixed_dictionaries(values)


def texts(row: Row) -> Texts:
    return [canonical_text(row[name], kind) for name, (kind, _, _) in COLUMNS.items()]


def mask(row: Row, name: str, length: int = 64) -> str | None:
    text = canonical_text(row[name], COLUMNS[name][0])
    if text is None:
        return None
    return hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()[:length]


def text(value: object, kind: Type) -> str | None:
    return canonical_text(value, kind)


FILTERS: dict[str, Callable[[Row], bool]] = {
    "n > 0": lambda r: r["n"] is not None and r["n"] > 0,
    "flag": lambda r: r["flag"] is True,
    "key = kind or total >= 1.5": lambda r: _or(
        _compare(r["key"], r["kind"], lambda a, b: a == b),
        _compare(r["total"], decimal.Decimal("1.5"), lambda a, b: a >= b),
    ),
    "day < date'2000-01-01'": lambda r: (
        _compare(r["day"], dt.date(2000, 1, 1), lambda a, b: a < b) is True
    ),
    "ratio > 0 and big > 9223372036854775807": lambda r: (
        _compare(r["ratio"], 0.0, lambda a, b: a > b) is True
        and _compare(r["big"], 2**63 - 1, lambda a, b: a > b) is True
    ),
    "id % 2 = 0": lambda r: r["id"] % 2 == 0,
}

# Column of the target: the rules that make it, and the text that it must have.
Given = tuple[Rules, Mapping[str, Callable[[Row], str | None]]]
TRANSFORMED: dict[str, Given] = {
    "mask": (
        Rules(mask={n: Mask(Secret(KEY), 40) for n in ("key", "data", "ratio")}),
        {n: lambda r, n=n: mask(r, n, 40) for n in ("key", "data", "ratio")},  # type: ignore[misc]
    ),
    "masked key": (Rules(mask={"id": Mask(Secret(KEY))}), {"id": lambda r: mask(r, "id")}),
    "cast": (
        Rules(
            cast={
                "n": Decimal(3),
                "flag": Integer(),
                "big": Text(),
                "total": Decimal(None),
                "day": Timestamp(zone=False),
                "uuid": Text(),
                "at": Text(),
            }
        ),
        {
            "n": lambda r: text(r["n"], Decimal(3)),
            "flag": lambda r: text(r["flag"], Integer()),
            "big": lambda r: text(r["big"], Text()),
            "total": lambda r: text(r["total"], Decimal(None)),
            "day": lambda r: text(r["day"], Timestamp(zone=False)),
            "uuid": lambda r: text(r["uuid"], Text()),
            "at": lambda r: text(text(r["at"], Timestamp(zone=False)), Text()),
        },
    ),
    "sql": (
        Rules(
            sql={
                "n": Computed("n * 2 + id"),
                "total": Computed("total * 3"),
                "flag": Computed("NOT flag"),
                "key": Computed("concat(`key`, '/', kind)"),
                "at": Computed("at + INTERVAL 1 SECOND"),
                "big": Computed("big % 10", Integer()),
                "data": Computed("concat(data, X'00')"),
                "ratio": Computed("ratio * 2"),
            }
        ),
        {
            "n": lambda r: _text(r["n"], lambda n: n * 2 + r["id"], Integer()),
            "total": lambda r: _text(r["total"], lambda t: t * 3, Decimal(2)),
            "flag": lambda r: _text(r["flag"], lambda f: not f, Boolean()),
            "key": lambda r: (
                None if r["key"] is None or r["kind"] is None else f"{r['key']}/{r['kind']}"
            ),
            "at": lambda r: _text(r["at"], _second_later, Timestamp(zone=False)),
            "big": lambda r: _text(r["big"], lambda b: b % 10, Integer()),
            "data": lambda r: _text(r["data"], lambda d: d + b"\0", Binary()),
            "ratio": lambda r: _text(r["ratio"], lambda x: x * 2, Float()),
        },
    ),
    "add": (
        Rules(
            add={
                "region": Fixed("EU", Text()),
                "nothing": Fixed(None, Text()),
                "year": Computed("year(day)", Integer()),
                "cents": Computed("total * 100", Decimal(0)),
                "said": Computed("date_format(seen, 'yyyy')", Text()),
                "digits": Computed("length(coalesce(`key`, ''))", Text()),
            }
        ),
        {
            "region": lambda _: "EU",
            "nothing": lambda _: None,
            "year": lambda r: _text(r["day"], lambda d: d.year, Integer()),
            "cents": lambda r: _text(r["total"], lambda t: t * 100, Decimal(0)),
            "said": lambda r: _text(r["seen"], lambda s: f"{s.year:04d}", Text()),
            "digits": lambda r: str(len(r["key"] or "")),
        },
    ),
    "choice": (Rules(exclude=("data", "at"), rename={"n": "number"}), {}),
}


def _second_later(at: dt.datetime) -> object:
    try:
        return at + dt.timedelta(seconds=1)
    except OverflowError:  # Spark's calendar goes on
        return f"10000-01-01 00:00:00.{at.microsecond:06d}"


def _text(value: Any, compute: Callable[[Any], object], kind: Type) -> str | None:
    return None if value is None else canonical_text(compute(value), kind)


def _compare(a: Any, b: Any, compare: Callable[[Any, Any], bool]) -> bool | None:
    return None if a is None or b is None else compare(a, b)


def _or(a: bool | None, b: bool | None) -> bool:
    return a is True or b is True
