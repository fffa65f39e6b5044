"""A table of all common types, everything that can go wrong with it, and how each engine keeps it.

Each damage owns rows of its own, so that all of them fit into one table and a verification must
find every one, and nothing else.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import random
import sqlite3
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tests.servers import Database

Row = dict[str, Any]
Finding = tuple[str, int, frozenset[str]]
"""Kind, key and columns of a difference."""

D = decimal.Decimal
ROWS = 300
STEP = 3
FIRST, LAST = -(2**63), 2**63 - 1
NONE = frozenset[str]()


def at(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


def utc(*parts: int) -> dt.datetime:
    return at(*parts).replace(tzinfo=dt.UTC)


@dataclass(frozen=True)
class Damage:
    """Something that goes wrong with rows that hold `clean` before.

    Attributes:
        clean: What the damage needs its rows to hold, one mapping for each row.
        spoil: From its rows to what is left of them.
        found: From its rows to the differences that must be found.
        keys: Keys for its rows, where it needs certain ones.
    """

    name: str
    clean: tuple[Mapping[str, Any], ...]
    spoil: Callable[[list[Row]], list[Row]]
    found: Callable[[list[Row]], set[Finding]]
    keys: tuple[int, ...] = ()


def change(name: str, /, **columns: tuple[Any, Any]) -> Damage:
    """One row, in which columns go from one value to another."""
    before = {column: pair[0] for column, pair in columns.items()}
    after = {column: pair[1] for column, pair in columns.items()}
    return Damage(
        name,
        (before,),
        lambda rows: [{**rows[0], **after}],
        lambda rows: {("differs", rows[0]["id"], frozenset(columns))},
    )


def missing(name: str, key: int | None = None) -> Damage:
    return Damage(
        name,
        ({},),
        lambda _: [],
        lambda rows: {("missing", rows[0]["id"], NONE)},
        () if key is None else (key,),
    )


def exchange(name: str, column: str, first: Any, second: Any, *, width: int = 2) -> Damage:
    """Two rows that swap their values of a column."""

    def swap(rows: list[Row]) -> list[Row]:
        a, b = rows[0], rows[-1]
        return [{**a, column: b[column]}, *rows[1:-1], {**b, column: a[column]}]

    return Damage(
        name,
        ({column: first}, *({} for _ in range(width - 2)), {column: second}),
        swap,
        lambda rows: {("differs", rows[i]["id"], frozenset([column])) for i in (0, -1)},
    )


def _copy_beside(rows: list[Row]) -> list[Row]:
    return [rows[0], {**rows[0], "id": rows[0]["id"] + 1}]


def _exchange_keys(rows: list[Row]) -> list[Row]:
    return [{**rows[1], "id": rows[0]["id"]}, {**rows[0], "id": rows[1]["id"]}]


def _shift(rows: list[Row]) -> list[Row]:
    """Each row under the key of the next one, and the last one under a key that was free."""
    keys = [row["id"] for row in rows[1:]] + [rows[-1]["id"] + 1]
    return [{**row, "id": key} for row, key in zip(rows, keys, strict=True)]


def _shifted(rows: list[Row]) -> set[Finding]:
    columns = frozenset(["big", "name"])
    middle: set[Finding] = {("differs", row["id"], columns) for row in rows[1:]}
    return middle | {("missing", rows[0]["id"], NONE), ("extra", rows[-1]["id"] + 1, NONE)}


def _narrow(number: float) -> float:
    return float(struct.unpack(">f", struct.pack(">f", number))[0])


PLAIN: Row = {
    "small": 7, "big": 1, "price": D("19.990000"), "ratio": 0.25, "active": True,
    "born": dt.date(1990, 5, 17),
    "clock": dt.time(9, 30), "made": at(2024, 5, 1, 12, 0), "seen": utc(2024, 5, 1, 12, 0),
    "name": "plain",
    "alias": "p", "note": "a note", "code": "P1", "data": b"\x01\x02", "doc": '{"a": 1}',
    "token": uuid.UUID("6fa459ea-ee8a-4ca4-894e-db77e160355e"),
}  # fmt: skip

COLUMNS = ("id", *PLAIN)

DAMAGES: tuple[Damage, ...] = (
    # Rows
    missing("missing row"),
    missing("first row missing", FIRST),
    missing("last row missing", LAST),
    Damage(
        "extra row",
        ({},),
        lambda rows: [*rows, {**PLAIN, "id": rows[0]["id"] + 1}],
        lambda rows: {("extra", rows[0]["id"] + 1, NONE)},
    ),
    Damage(
        "a row twice, under another key",
        ({},),
        _copy_beside,
        lambda rows: {("extra", rows[0]["id"] + 1, NONE)},
    ),
    Damage(
        "a key that changed",
        ({},),
        lambda rows: [{**rows[0], "id": rows[0]["id"] + 1}],
        lambda rows: {("missing", rows[0]["id"], NONE), ("extra", rows[0]["id"] + 1, NONE)},
    ),
    Damage(
        "two rows with exchanged keys",
        ({**PLAIN, "big": 10, "name": "ten"}, {**PLAIN, "big": 20, "name": "twenty"}),
        _exchange_keys,
        lambda rows: {("differs", row["id"], frozenset(["big", "name"])) for row in rows},
    ),
    Damage(
        "rows shifted by one key",
        tuple({**PLAIN, "big": number, "name": f"n{number}"} for number in range(5)),
        _shift,
        _shifted,
    ),
    Damage(
        "a row overwritten by its neighbour",
        ({**PLAIN, "big": 1, "code": "A"}, {**PLAIN, "big": 2, "code": "B"}),
        lambda rows: [rows[0], {**rows[0], "id": rows[1]["id"]}],
        lambda rows: {("differs", rows[1]["id"], frozenset(["big", "code"]))},
    ),
    exchange("two rows swapped a number", "price", D("10.000000"), D("20.000000")),
    exchange("two rows swapped a text of equal length", "name", "abcd", "wxyz"),
    exchange("two distant rows swapped a text", "note", "here", "there", width=4),
    exchange("two rows swapped NULL and a value", "born", None, dt.date(2000, 1, 1)),
    Damage(
        "errors that compensate each other",
        ({"big": 100}, {"big": 200}),
        lambda rows: [{**rows[0], "big": 101}, {**rows[1], "big": 199}],
        lambda rows: {("differs", row["id"], frozenset(["big"])) for row in rows},
    ),
    Damage(
        "the same error twice",
        ({"note": "right"}, {"note": "right"}),
        lambda rows: [{**row, "note": "wrong"} for row in rows],
        lambda rows: {("differs", row["id"], frozenset(["note"])) for row in rows},
    ),
    # Columns
    change("two columns swapped", name=("left", "right"), alias=("right", "left")),
    change("a comma moved to the next column", name=("a,b", "a"), alias=("c", "b,c")),
    change("text moved to the next column", name=("ab", "a"), alias=("", "b")),
    change("NULL moved to the next column", name=(None, "x"), alias=("x", None)),
    # Text
    change("trailing space", name=("abc", "abc ")),
    change("trailing space lost", note=("abc ", "abc")),
    change("leading space", name=("abc", " abc")),
    change("composed became decomposed", name=("café", "cafe\u0301")),
    change("combining mark lost", name=("e\u0301a", "ea")),
    change("case", name=("Straße", "straße")),
    change("case of a code", code=("AB", "Ab")),
    change("accent lost", note=("Müller", "Muller")),
    change("sharp s", note=("Straße", "Strasse")),
    change("NULL for empty text", name=("", None)),
    change("empty text for NULL", alias=(None, "")),
    change("the word NULL for NULL", note=(None, "NULL")),
    change("the word NULL for empty text", note=("", "NULL")),
    change("truncated", name=("abcdef", "abcde")),
    change("truncated at 255", name=("x" * 300, "x" * 255)),
    change("end of a long text", note=("y" * 50_000 + "a", "y" * 50_000 + "b")),
    change("emoji became a question mark", name=("ok 🙂", "ok ?")),
    change("emoji became a replacement character", note=("ok 🙂", "ok \ufffd")),
    change("mojibake", name=("Zoë", "ZoÃ«")),
    change("backslash doubled", note=("C:\\temp", "C:\\\\temp")),
    change("backslash lost", note=("a\\b", "ab")),
    change("quote lost", note=("it's", "its")),
    change("quote doubled", note=('say "x"', 'say ""x""')),
    change("newline became a space", note=("a\nb", "a b")),
    change("CRLF became LF", note=("a\r\nb", "a\nb")),
    change("last newline lost", note=("a\n", "a")),
    change("tab became a space", note=("a\tb", "a b")),
    change("no-break space became a space", note=("a\u00a0b", "a b")),
    change("zero-width joiner lost", name=("👨‍👩‍👧", "👨👩👧")),
    change("byte order mark lost", note=("\ufeffa", "a")),
    change("escaped for HTML", note=("a & b", "a &amp; b")),
    # Numbers
    change("NULL for 0", big=(0, None)),
    change("0 for NULL", small=(None, 0)),
    change("off by one", big=(41, 42)),
    change("sign", big=(5, -5)),
    change("wrapped at 32 bits", big=(2**31, -(2**31))),
    change("beyond what a double holds", big=(2**53 + 1, 2**53)),
    change("largest whole number", big=(2**63 - 1, 2**63 - 2)),
    change("decimal rounded", price=(D("1.239999"), D("1.240000"))),
    change("last digit of a decimal", price=(D("12345678901234.567891"),
    D("12345678901234.567890"))),
    change("sign of a decimal", price=(D("0.000001"), D("-0.000001"))),
    change("decimal point moved", price=(D("12.500000"), D("125.000000"))),
    change("NULL for a decimal 0", price=(D("0.000000"), None)),
    change("last bit of a float", ratio=(0.1, math.nextafter(0.1, 1.0))),
    change("last bit of a huge float", ratio=(1.7976931348623157e308, 1.7976931348623155e308)),
    change("last bit of a tiny float", ratio=(5e-324, 1e-323)),
    change("sign of a float", ratio=(1.5, -1.5)),
    change("float cut to 32 bits", ratio=(0.1, _narrow(0.1))),
    change("a tiny float became 0", ratio=(1e-310, 0.0)),
    change("NULL for a float 0", ratio=(0.0, None)),
    change("boolean flipped", active=(True, False)),
    change("NULL for false", active=(False, None)),
    # Times
    change("the next day", born=(dt.date(2024, 2, 28), dt.date(2024, 2, 29))),
    change("the day before", born=(dt.date(2000, 1, 1), dt.date(1999, 12, 31))),
    change("day and month swapped", born=(dt.date(2024, 5, 6), dt.date(2024, 6, 5))),
    change("Julian calendar", born=(dt.date(1500, 3, 1), dt.date(1500, 3, 10))),
    change("first day for NULL", born=(None, dt.date(1970, 1, 1))),
    change("one second", made=(at(2024, 1, 1, 10, 0, 0), at(2024, 1, 1, 10, 0, 1))),
    change("microseconds lost", made=(at(2024, 1, 1, 10, 0, 0, 123_456), at(2024, 1, 1, 10))),
    change("cut to milliseconds", made=(at(2024, 1, 1, 1, 1, 1, 1), at(2024, 1, 1, 1, 1, 1))),
    change("one microsecond", made=(at(2024, 1, 1, 1, 1, 1, 999_999), at(2024, 1, 1, 1, 1, 2))),
    change("an hour, in a gap of summer time", made=(at(2024, 3, 31, 2, 30), at(2024, 3, 31, 3,
    30))),
    change("twelve hours", made=(at(2024, 1, 1, 1), at(2024, 1, 1, 13))),
    change("century", made=(at(1924, 1, 1), at(2024, 1, 1))),
    change("zone shifted", seen=(utc(2024, 7, 1, 12), utc(2024, 7, 1, 14))),
    change("summer time ignored", seen=(utc(2024, 10, 27, 0, 30), utc(2024, 10, 27, 1, 30))),
    change("microseconds of an instant", seen=(utc(2024, 7, 1, 0, 0, 0, 1), utc(2024, 7, 1))),
    change("time of day lost its microseconds", clock=(dt.time(1, 2, 3, 4), dt.time(1, 2, 3))),
    change("time of day off by a minute", clock=(dt.time(23, 59), dt.time(23, 58))),
    change("midnight for NULL", clock=(None, dt.time(0))),
    # Bytes
    change("zero byte lost", data=(b"a\0b", b"ab")),
    change("cut at a zero byte", data=(b"a\0b", b"a")),
    change("last zero byte lost", data=(b"ab\0", b"ab")),
    change("bytes padded with zeros", data=(b"ab", b"ab\0\0")),
    change("bytes truncated", data=(bytes(range(256)), bytes(range(255)))),
    change("one bit", data=(b"\x00\xff", b"\x00\xfe")),
    change("bytes taken for text", data=(b"\xe9", b"\xc3\xa9")),
    change("bytes written as hex", data=(b"\xab", b"ab")),
    change("NULL for no bytes", data=(b"", None)),
    change("no bytes for NULL", data=(None, b"")),
    # Documents
    change("value in a document", doc=('{"a": 1, "b": 2}', '{"a": 1, "b": 3}')),
    change("key in a document", doc=('{"a": 1}', '{"A": 1}')),
    change("order of a list", doc=("[1, 2, 3]", "[1, 3, 2]")),
    change("number became text", doc=('{"a": 1}', '{"a": "1"}')),
    change("true became text", doc=("[true]", '["true"]')),
    change("null became a missing key", doc=('{"a": null}', "{}")),
    change("values of keys swapped", doc=('{"a": 1, "b": 2}', '{"a": 2, "b": 1}')),
    change("deep inside a document", doc=('{"a": [{"b": [1, {"c": "x"}]}]}',
    '{"a": [{"b": [1, {"c": "y"}]}]}')),
    change("digits of a number in a document", doc=('{"n": 0.1}', '{"n": 0.10000000000000002}')),
    change("large number in a document", doc=('{"n": 9007199254740993}',
    '{"n": 9007199254740992}')),
    change("accent in a document", doc=('{"a": "é"}', '{"a": "e\u0301"}')),
    change("NULL for a null document", doc=("null", None)),
    # UUIDs
    change("digit of a UUID", token=(uuid.UUID(int=0x1234 << 64), uuid.UUID(int=0x1235 << 64))),
    change("UUID with swapped bytes", token=(uuid.UUID(int=0x0102 << 112),
    uuid.UUID(int=0x0201 << 112))),
    change("no UUID for NULL", token=(None, uuid.UUID(int=0))),
    change("NULL for no UUID", token=(uuid.UUID(int=0), None)),
)  # fmt: skip


@dataclass(frozen=True)
class Tables:
    """Rows of the source, and of a target with some damages; what a verification must find.

    Attributes:
        keys: Of the rows that each damage owns.
    """

    clean: list[Row]
    damaged: list[Row]
    expected: set[Finding]
    keys: list[tuple[int, ...]]


def tables(damages: Sequence[Damage] = DAMAGES) -> Tables:
    """Rows for every damage, and more around them that no damage touches."""
    generator = random.Random(20240229)
    free = iter(range(-STEP * 40, STEP * ROWS * 4, STEP))
    clean: list[Row] = []
    damaged: list[Row] = []
    expected: set[Finding] = set()
    owned: list[tuple[int, ...]] = []
    for damage in DAMAGES:
        keys = damage.keys or tuple(next(free) for _ in damage.clean)
        owned.append(keys)
        rows = [
            {"id": key, **ordinary(generator), **values}
            for key, values in zip(keys, damage.clean, strict=True)
        ]
        clean += rows
        planted = damage in damages
        damaged += damage.spoil(rows) if planted else rows
        expected |= damage.found(rows) if planted else set()
    others = [{"id": next(free), **ordinary(generator)} for _ in range(ROWS - len(clean))]
    return Tables(clean + others, damaged + others, expected, owned)


def ordinary(generator: random.Random) -> Row:
    """A row as production has them, with something nasty now and then."""
    pick = generator.choice
    word = "".join(pick("abcdefghij äöü€ßçñ漢字🙂") for _ in range(generator.randrange(1, 20)))
    micros = generator.randrange(2**50)
    return {
        "small": pick([None, -32768, 32767, 0, generator.randrange(-999, 999)]),
        "big": pick([None, 0, generator.randrange(-(2**63), 2**63)]),
        "price": pick([None, D("0.000000"), D(generator.randrange(-(10**19), 10**19)).scaleb(-6)]),
        "ratio": pick([None, 0.0, generator.gauss(0, 1e6),
        generator.random() * 10.0 ** generator.randrange(-300, 300)]),
        "active": pick([None, True, False]),
        "born": pick([None, dt.date(1, 1, 1), dt.date(9999, 12, 31),
        dt.date.fromordinal(generator.randrange(1, 3_000_000))]),
        "clock": pick([None, dt.time(0), dt.time(generator.randrange(24), 5, 59,
        generator.randrange(10**6))]),
        "made": pick([None, at(1, 1, 1), at(9999, 12, 31, 23, 59, 59, 999_999), at(1960, 1,
        1) + dt.timedelta(microseconds=micros)]),
        "seen": pick([None, utc(1970, 1, 1, 0, 0, 1), utc(2000, 1,
        1) + dt.timedelta(microseconds=micros)]),
        "name": pick([None, "", " ", word, word, "a,b", "'", '"', "\\", "%s", "NULL"]),
        "alias": pick([None, "", word, ",", ";1", "?61"]),
        "note": pick([None, "", word * 20, "line 1\nline 2\r\n\ttab", "\\N"]),
        "code": pick([None, "", "A1", "é€ß"]),
        "data": pick([None, b"\0", generator.randbytes(generator.randrange(1, 40))]),
        "doc": pick([None, "{}", "[]", json.dumps({"k": word, "a": [1, None, {"z": 1.5, "b": True}],
        "": 0})]),
        "token": pick([None, uuid.UUID(int=generator.getrandbits(128), version=4)]),
    }  # fmt: skip


# How engines keep the table. `disguised` writes the same values in another way: order and spacing of
# documents, the sign of zero, the offset of instants, the case of UUIDs must raise no alarm.


class Keeper:
    """One engine that keeps tables named `t`, each in a database of its own."""

    def keep(self, name: str, rows: Sequence[Row], *, disguised: bool = False) -> str:
        """Makes the table; gives its URL."""
        raise NotImplementedError


def _zero(ratio: float | None, disguised: bool) -> float | None:
    return -0.0 if disguised and ratio == 0 else ratio


def _document(text: str | None, disguised: bool) -> str | None:
    if text is None or not disguised:
        return text
    value = json.loads(text, parse_float=_Number, parse_int=_Number)
    return _write(value)


class _Number(str):
    """The digits of a number, kept as they are."""

    __slots__ = ()


def _write(value: Any) -> str:
    """A document with its keys in reverse, spaces everywhere and no letter beyond ASCII."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        items = reversed(value.items())
        return "{ " + " , ".join(f"{json.dumps(k)} :\t{_write(v)}" for k, v in items) + "\n}"
    if isinstance(value, list):
        return "[ " + " , ".join(map(_write, value)) + " ]"
    return json.dumps(value)


def _values(row: Row, disguised: bool, **how: Callable[[Any], Any]) -> list[Any]:
    changed = row | {
        "ratio": _zero(row["ratio"], disguised),
        "doc": _document(row["doc"], disguised),
    }
    return [
        how[column](value) if column in how and value is not None else value
        for column, value in ((column, changed[column]) for column in COLUMNS)
    ]


class MariaDBKeeper(Keeper):
    ddl = """CREATE TABLE t (
        id BIGINT PRIMARY KEY, small SMALLINT, big BIGINT, price DECIMAL(20,6), ratio DOUBLE, active BOOLEAN,
        born DATE, clock TIME(6), made DATETIME(6), seen TIMESTAMP(6) NULL, name VARCHAR(300), alias VARCHAR(300),
        note LONGTEXT, code CHAR(10) CHARACTER SET latin1, data VARBINARY(300), doc JSON, token BINARY(16))"""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self.databases = databases

    def keep(self, name: str, rows: Sequence[Row], *, disguised: bool = False) -> str:
        database = self.databases[name]
        with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(self.ddl)
            cursor.executemany(
                f"INSERT INTO t VALUES ({', '.join(['%s'] * 17)})",
                [
                    _values(
                        row,
                        disguised,
                        clock=str,
                        seen=lambda moment: moment.replace(tzinfo=None),
                        token=lambda token: token.bytes,
                    )
                    for row in rows
                ],
            )
        return database.url


class PostgreSQLKeeper(Keeper):
    ddl = """CREATE TABLE t (
        id BIGINT PRIMARY KEY, small SMALLINT, big BIGINT, price NUMERIC(20,6), ratio DOUBLE PRECISION,
        active BOOLEAN, born DATE, clock TIME, made TIMESTAMP, seen TIMESTAMPTZ, name VARCHAR(300),
        alias VARCHAR(300), note TEXT, code CHAR(10), data BYTEA, doc JSONB, token UUID)"""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self.databases = databases

    def keep(self, name: str, rows: Sequence[Row], *, disguised: bool = False) -> str:
        database = self.databases[name]
        with closing(database.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(self.ddl)
            insert = f"INSERT INTO t VALUES ({', '.join(['%s'] * 17)})"
            cursor.executemany(insert, [_values(row, disguised) for row in rows])
        return database.url


class SQLiteKeeper(Keeper):
    # SQLite would make doubles of decimals in a DECIMAL column: 20 digits are kept as text.
    ddl = """CREATE TABLE t (
        id INTEGER PRIMARY KEY, small SMALLINT, big BIGINT, price TEXT, ratio DOUBLE, active BOOLEAN,
        born DATE, clock TIME, made DATETIME, seen TIMESTAMPTZ, name VARCHAR(300), alias VARCHAR(300),
        note TEXT, code CHAR(10), data BLOB, doc JSON, token UUID)"""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, name: str, rows: Sequence[Row], *, disguised: bool = False) -> str:
        file = self.folder / f"{name}.db"
        zone = dt.timezone(dt.timedelta(hours=5, minutes=30)) if disguised else dt.UTC
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(self.ddl)
            connection.executemany(
                f"INSERT INTO t VALUES ({', '.join('?' * 17)})",
                [
                    _values(
                        row,
                        disguised,
                        price=lambda price: f"{price:f}",
                        born=str,
                        clock=str,
                        made=str,
                        seen=lambda moment: str(moment.astimezone(zone)),
                        token=lambda token: str(token).upper() if disguised else str(token),
                    )
                    for row in rows
                ],
            )
            connection.commit()
        return f"sqlite:///{file}"


class DuckDBKeeper(Keeper):
    ddl = """CREATE TABLE t (
        id BIGINT PRIMARY KEY, small SMALLINT, big BIGINT, price DECIMAL(20,6), ratio DOUBLE, active BOOLEAN,
        born DATE, clock TIME, made TIMESTAMP, seen TIMESTAMPTZ, name VARCHAR, alias VARCHAR,
        note VARCHAR, code VARCHAR, data BLOB, doc JSON, token UUID)"""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, name: str, rows: Sequence[Row], *, disguised: bool = False) -> str:
        file = self.folder / f"{name}.duckdb"
        with closing(duckdb.connect(str(file))) as connection:
            connection.execute(self.ddl)
            connection.begin()
            connection.executemany(
                f"INSERT INTO t VALUES ({', '.join('?' * 17)})",
                [
                    _values(row, disguised, price=str, clock=str, seen=str, token=str)
                    for row in rows
                ],
            )
            connection.commit()
        return f"duckdb:///{file}"


class LakeKeeper(Keeper):
    schema = pa.schema(
        {
            "id": pa.int64(), "small": pa.int16(), "big": pa.int64(), "price": pa.decimal128(20, 6),
            "ratio": pa.float64(), "active": pa.bool_(), "born": pa.date32(),
            "clock": pa.time64("us"),
            "made": pa.timestamp("us"), "seen": pa.timestamp("us", tz="UTC"), "name": pa.string(),
            "alias": pa.string(), "note": pa.string(), "code": pa.string(), "data": pa.binary(),
            "doc": pa.string(), "token": pa.binary(16),
        }
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, name: str, rows: Sequence[Row], *, disguised: bool = False) -> str:
        folder = self.folder / f"{name}_lake"
        (folder / "t").mkdir(parents=True)
        values = [_values(row, disguised, token=lambda token: token.bytes) for row in rows]
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*values, strict=True), self.schema, strict=True)
        ]
        table = pa.table(columns, schema=self.schema)
        half = table.num_rows // 2
        pq.write_table(table.slice(0, half), folder / "t" / "part-0.parquet")
        pq.write_table(table.slice(half), folder / "t" / "part-1.parquet")
        return f"lake:///{folder}"
