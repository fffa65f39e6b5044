"""What is special about tables that Spark reads: text without types, NULL and '', whole folders."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from truecopy.engines import deferred
from truecopy.engines.lake import Lake, explained
from truecopy.engines.protocols import Frames, Introspects, RunsQueries
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.fingerprint import fingerprint
from truecopy.model.relation import Relation
from truecopy.model.table import TableName
from truecopy.model.text import canonical_text
from truecopy.model.types import (
    Array,
    Binary,
    Bits,
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
    Unknown,
    Unsupported,
    Uuid,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    None, "", "0", "007", " 5", "5 ", "+5", "-0", "-007", "--5", "1e3", "-1.5e2", "1e-10", "12.5e1",
    "abc", "2024-1-1", "2024-01-01", "2024-01-01 00:00", "2024-01-01T10:20:30.5Z",
    "2024-01-01 10:20:30.1234567", "2024-01-01 10:20:30.1234560+02", "2024-01-01 00:00:00-0530",
    "2024-02-30 00:00:00+01", "0001-01-01 00:00:00+01", "9999-12-31 23:59:59-01",
    "0000-01-01 00:00:00+00", "2024-01-01 00:00:00+24:00", "12024-01-01", "1.50", "1.", ".5", ".",
    "-0.0", "00.10", "0x10", "1f", "NaN", "-inf", "1e400", "5e-324", "0e5", "9" * 50, "TRUE", "yes",
    "12:00", "1:02:03", "-838:59:59.5", "0101", "🙂e\u0301", "a\nb", "a\r\nb", '"\r\n"', "5\n",
    "2024-01-01\n", " 1.5\t", "\u00a01.5", "a'b\\c\"d", "NULL", "?61", "trail  ", "nul\0x",
    '{"b": 1, "a": 1.0}', "ABCD-ef",
]  # fmt: skip
TYPES: list[Type] = [
    Integer(), Boolean(), Decimal(2), Decimal(None), Float(), Date(), Time(), Timestamp(False),
    Timestamp(True), Text(), Binary(), Json(), Uuid(), Bits(8), Array(Text()),
]  # fmt: skip
UTC = dt.UTC


def exact(*texts: str) -> list[decimal.Decimal]:
    return [decimal.Decimal(text) for text in texts]


TYPED: list[tuple[pa.DataType, list[object], list[Type]]] = [
    (pa.int64(), [0, -1, 2**63 - 1, -(2**63), None], [Integer(), Decimal(3), Float(), Text()]),
    (pa.bool_(), [True, False, None], [Boolean(), Integer()]),
    (
        pa.decimal128(38, 2),
        [*exact("0.00", "-0.01", "1.50", "9" * 36 + ".99"), None],
        [Decimal(2), Decimal(4), Decimal(None), Float()],
    ),
    (
        pa.decimal128(20, 10),
        [*exact("0.0000000000", "0.0000000001", "-1.5000000000"), None],
        [Decimal(10), Decimal(None)],
    ),
    (
        pa.float64(),
        [0.0, -0.0, 1.5, -5e-324, 2.0**-44, 1e308, float("nan"), float("-inf"), 0.1, None],
        [Float(), Text(), Decimal(None)],
    ),
    (pa.float32(), [0.5, -0.0, 2.0**-149, float("nan"), None], [Float()]),
    (
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(9999, 12, 31), None],
        [Date(), Timestamp(zone=False)],
    ),
    (
        pa.timestamp("us"),
        [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None],  # noqa: DTZ001
        [Timestamp(zone=False)],
    ),
    (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(1582, 10, 10, 1, tzinfo=UTC), None],
        [Timestamp(zone=True)],
    ),
    (
        pa.time64("us"),
        [dt.time(0), dt.time(23, 59, 59, 999999), dt.time(1, 2, 3, 100), None],
        [Time()],
    ),
    (pa.string(), ["", "a,b;1", "é\u0301🙂", "nul\0", "a'\\\"\r\n", "x ", None], [Text(), Json()]),
    (pa.binary(), [b"", b"\0\xff", b"abc", bytes(16), None], [Binary(), Text(), Uuid()]),
    (
        pa.list_(pa.string()),
        [[], ["a", None, "b,c", "", "-", "3:é"], [None], None],
        [Array(Text())],
    ),
    (pa.list_(pa.float64()), [[1.5, -0.0, None], None], [Array(Float())]),
    (pa.list_(pa.list_(pa.int32())), [[[1, 2], [], None, [None]]], [Array(Array(Integer()))]),
]


def lake(folder: Path) -> Lake:
    return Lake(parse_endpoint(f"lake://{folder}"))


def relation(session: Lake, table: str, *types: Type, where: str | None = None) -> Relation:
    found = session.describe(TableName(None, table))
    return Relation(session.endpoint, (found.name,), found.columns, types, 1, where)


def rows(session: Lake, side: Relation) -> list[tuple[str | None, ...]]:
    return sorted((tuple(row) for row in session.row_frame(side).collect()), key=str)


def read(folder: Path, table: str) -> list[tuple[str | None, ...]]:
    """Every column as text."""
    session = lake(folder)
    columns = session.describe(TableName(None, table)).columns
    return rows(session, relation(session, table, *(Text() for _ in columns)))


def check_against_model(session: Lake, side: Relation, stored: list[list[object]]) -> None:
    """The frames of a relation whose first column counts the rows, and what is stored in each."""
    expected: dict[str | None, list[str | None]] = {
        str(row[0]): [canonical_text(v, k) for v, k in zip(row, side.types, strict=True)]
        for row in stored
    }
    texts = {row[0]: list(row) for row in session.row_frame(side).collect()}
    wrong = {
        (i, str(kind)): (found, wanted)
        for i, row in expected.items()
        for found, wanted, kind in zip(texts[i], row, side.types, strict=True)
        if found != wanted
    }
    assert not wrong
    assert len(texts) == len(expected)
    kinds = [side.types[i] for i in side.pushed]
    for row in session.fingerprint_frame(side).collect():
        value = fingerprint([expected[row.k0][i] for i in side.pushed], kinds)
        if side.deferred:
            value = deferred.fold(value, [expected[row.k0][i] for i in side.deferred], side)
        assert row.fingerprint == value


@pytest.mark.parametrize("table", ["unix", "windows", "lines"])
def test_a_text_is_read_as_the_model_reads_it(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    stored = [text for text in TEXTS if table != "windows" or "\0" not in (text or "")]
    fields = ["" if text is None else '"' + text.replace('"', '""') + '"' for text in stored]
    lines = ["id,x", *(f"{i},{field}" for i, field in enumerate(fields)), ""]
    (tmp_path / "unix.csv").write_bytes("\n".join(lines).encode())
    (tmp_path / "windows.csv").write_bytes("\r\n".join(lines).encode())
    documents = [json.dumps({"id": i, "x": text}) for i, text in enumerate(stored)]
    (tmp_path / "lines.jsonl").write_text("\n".join(documents))
    session = lake(tmp_path)
    name = TableName(None, table)
    key, column = session.describe(name).columns
    columns = (key, *(column for _ in TYPES))
    side = Relation(session.endpoint, (name,), columns, (Integer(), *TYPES), 1)
    rows: list[list[object]] = [[i, *(text for _ in TYPES)] for i, text in enumerate(stored)]
    check_against_model(session, side, rows)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_typed_value_has_the_text_of_the_model(
    spark: SparkSession, tmp_path: Path, ansi: str
) -> None:
    height = max(len(values) for _, values, _ in TYPED)
    padded = [values + [None] * (height - len(values)) for _, values, _ in TYPED]
    table = {"id": pa.array(range(height), pa.int64())}
    for i, (native, _, _) in enumerate(TYPED):
        table[f"x{i}"] = pa.array(padded[i], native)
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        session = lake(tmp_path)
        name = TableName(None, "t")
        key, *columns = session.describe(name).columns
        pairs = [(i, kind) for i, (_, _, kinds) in enumerate(TYPED) for kind in kinds]
        side = Relation(
            session.endpoint,
            (name,),
            (key, *(columns[i] for i, _ in pairs)),
            (Integer(), *(kind for _, kind in pairs)),
            1,
        )
        stored = [[row, *(padded[i][row] for i, _ in pairs)] for row in range(height)]
        check_against_model(session, side, stored)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))


def test_tables_are_files_and_folders(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2]})
    (tmp_path / "orders").mkdir()
    pq.write_table(table, tmp_path / "orders" / "part-0.snappy.parquet")
    (tmp_path / "orders" / "_SUCCESS").touch()
    pq.write_table(table, tmp_path / "items.parquet")
    (tmp_path / "people.csv").write_text("id\n1\n")
    (tmp_path / "twice.csv").write_text("id\n1\n")
    (tmp_path / "twice.json").write_text('{"id": 1}')
    (tmp_path / "README.md").touch()
    session = lake(tmp_path)
    assert isinstance(session, Introspects)
    assert isinstance(session, Frames)
    names = ["items", "orders", "people", "twice.csv", "twice.json"]
    assert [str(name) for name in session.tables()] == names
    assert session.find("items.parquet") == session.find("items") == TableName(None, "items")
    assert session.find("twice") is None
    found = session.describe(TableName(None, "orders"))
    assert (found.rows, found.keys) == (2, ())
    assert (found.columns[0].type, found.columns[0].weak) == (Integer(), False)
    person = session.describe(TableName(None, "people")).columns[0]
    assert (person.type, person.weak, person.order) == (Unknown(), True, None)
    with pytest.raises(UsageError, match=r"no table oders in .*; there are items, orders, people"):
        session.describe(TableName(None, "oders"))


def test_an_empty_field_is_null_and_a_quoted_one_is_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes(
        b'\xef\xbb\xbfid,caf\xc3\xa9\r\n1,\r\n2,""\r\n'
        b'3,"a ""q""\r\nb"\r\n4, s \r\n5,NULL\r\n6,\\\r\n'
    )
    expected = [
        ("1", None),
        ("2", ""),
        ("3", 'a "q"\r\nb'),
        ("4", " s "),
        ("5", "NULL"),
        ("6", "\\"),
    ]
    assert read(tmp_path, "t") == expected
    columns = lake(tmp_path).describe(TableName(None, "t")).columns
    assert [column.name for column in columns] == ["id", "café"]


def test_what_spark_would_change_in_silence_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"id,x\r\n1,a\0b\r\n")
    with pytest.raises(UsageError, match="holds the character NUL"):
        read(tmp_path, "t")
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "1.csv").write_bytes(b"id\r\n1\r\n")
    (tmp_path / "u" / "2.csv").write_bytes(b"id\n1\n")
    with pytest.raises(UsageError, match="CRLF in some files"):
        read(tmp_path, "u")


def test_bytes_that_are_not_utf8_are_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"id,x\n1,a\xff\n2,\xef\xbf\xbd\n")
    assert read(tmp_path, "t") == [("1", "61ff"), ("2", "\ufffd")]
    (tmp_path / "j.json").write_bytes(b'{"id": "a\xff"}\n')
    with pytest.raises(UsageError, match="not UTF-8"):
        read(tmp_path, "j")


@pytest.mark.parametrize("content", ["id,x\n1,a\n2\n", "id,x\n1,a,b\n"])
def test_a_line_of_another_length_is_refused(
    spark: SparkSession, tmp_path: Path, content: str
) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(CannotFinish, match="Malformed") as caught:
        read(tmp_path, "t")
    assert "\n" not in str(caught.value)


def test_files_that_disagree_on_the_header_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "1.csv").write_text("id,x\n1,a\n")
    (tmp_path / "t" / "2.csv").write_text("x,id\nb,2\n")
    with pytest.raises(CannotFinish, match="header"):
        read(tmp_path, "t")


def test_json_values_stay_as_they_are_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '{"id": 1, "n": 1.50, "o": {"b": 12345678901234567890.10, "a": [1, null]}, "t": true}\n'
        '{"id": 2, "o": null, "s": ""}\n'
    )
    document = '{"b": 12345678901234567890.10, "a": [1, null]}'
    expected = [("1", "1.50", document, None, "true"), ("2", None, None, "", None)]
    assert read(tmp_path, "t") == expected
    (tmp_path / "t.json").write_text('{"id": 1}\n{"id": \n')
    with pytest.raises(CannotFinish, match="Unexpected end-of-input"):
        read(tmp_path, "t")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_partitions_are_columns_of_text(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    for number, month in enumerate(("01", "12")):
        folder = tmp_path / "t" / f"month={month}"
        folder.mkdir(parents=True)
        file = folder / f"f.{suffix}"
        match suffix:
            case "parquet":
                pq.write_table(pa.table({"id": [number]}), file)
            case "csv":
                file.write_text(f"id\n{number}\n")
            case _:
                file.write_text(json.dumps({"id": number}))
    assert read(tmp_path, "t") == [("0", "01"), ("1", "12")]
    month_ = lake(tmp_path).describe(TableName(None, "t")).column("month")
    assert month_
    assert (month_.type, month_.weak) == (Unknown(), True)


def test_plain_folders_below_are_read_too(spark: SparkSession, tmp_path: Path) -> None:
    for year in ("2023", "2024"):
        (tmp_path / "t" / year).mkdir(parents=True)
        (tmp_path / "t" / year / "f.csv").write_text(f"id\n{year}\n")
    assert read(tmp_path, "t") == [("2023",), ("2024",)]
    (tmp_path / "t" / "month=1").mkdir()
    (tmp_path / "t" / "month=1" / "f.csv").write_text("id\n1\n")
    with pytest.raises(UsageError, match="mixes name=value folders"):
        read(tmp_path, "t")


def test_columns_that_only_some_files_have(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t" / "1.parquet")
    pq.write_table(pa.table({"id": [2], "x": ["a"]}), tmp_path / "t" / "2.parquet")
    assert read(tmp_path, "t") == [("1", None), ("2", "a")]


def test_a_table_with_a_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t" / ".hoodie").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t" / "1.parquet")
    with pytest.raises(UsageError, match="is a Hudi table"):
        read(tmp_path, "t")


def test_condition_and_union(spark: SparkSession, tmp_path: Path) -> None:
    for name, first in (("a", 1), ("b", 3)):
        ids = pa.table({"id": [first, first + 1]})
        pq.write_table(ids, tmp_path / f"{name}.parquet")
    session = lake(tmp_path)
    side = relation(session, "a", Integer(), where="id % 2 = 1")
    both = Relation(
        side.endpoint,
        (TableName(None, "a"), TableName(None, "b")),
        side.columns,
        side.types,
        1,
        side.where,
    )
    assert rows(session, both) == [("1",), ("3",)]
    assert session.fingerprint_frame(both).columns == ["k0", "fingerprint"]
    wrong = relation(session, "a", Integer(), where="nowhere = 1")
    with pytest.raises(UsageError, match="`nowhere` cannot be resolved") as caught:
        session.row_frame(wrong)
    assert "\n" not in str(caught.value)


def test_what_has_no_text_can_be_cast(spark: SparkSession, tmp_path: Path) -> None:
    values = pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int32()), ("b", pa.string())]))
    pq.write_table(pa.table({"id": [1], "x": values}), tmp_path / "t.parquet")
    session = lake(tmp_path)
    column = session.describe(TableName(None, "t")).column("x")
    assert column
    assert isinstance(column.type, Unsupported)
    assert rows(session, relation(session, "t", Integer(), Json())) == [("1", '{"a":1}')]


def test_tables_of_the_catalog(spark: SparkSession) -> None:
    spark.sql("CREATE DATABASE lake_test")
    try:
        spark.sql("CREATE TABLE lake_test.t (c CHAR(3), v VARCHAR(3)) USING parquet")
        spark.sql("INSERT INTO lake_test.t VALUES ('a', 'b ')")
        session = Lake(parse_endpoint("lake://"))
        name = session.find("lake_test.t")
        assert name == TableName("lake_test", "t")
        assert name in session.tables()
        found = session.describe(name)
        assert [column.padded for column in found.columns] == [True, False]
        side = Relation(session.endpoint, (name,), found.columns, (Text(), Text()), 1)
        assert rows(session, side) == [("a", "b ")]
        assert session.find("lake_test.none") is None
        with pytest.raises(UsageError, match="no table none in the catalog"):
            session.describe(TableName(None, "none"))
    finally:
        spark.sql("DROP DATABASE lake_test CASCADE")


@pytest.mark.parametrize(
    ("url", "message"),
    [("lake:///nowhere/at/all", "no folder /nowhere/at/all"), ("lake://data/x", "lake:///data/x")],
)
def test_a_folder_that_is_not_there(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Lake(parse_endpoint(url))


def test_an_error_while_reading_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_text("not a parquet file, though it is called one")
    session = lake(tmp_path)
    with pytest.raises(CannotFinish) as caught, explained(session.endpoint):
        session.describe(TableName(None, "t"))
    assert "\n" not in str(caught.value)
    assert "t.parquet" in str(caught.value)


def test_a_query_of_the_user(spark: SparkSession) -> None:
    with Lake(parse_endpoint("lake://")) as session:
        assert isinstance(session, RunsQueries)
        assert session.query("SELECT ? + 1 AS n", (41,)).to_pydict() == {"n": [42]}
