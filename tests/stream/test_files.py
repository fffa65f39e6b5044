"""Event files in Debezium's envelope: read in order, as they grow, and the same however they are cut."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest

from truecopy.metastore.definitions import Definitions
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.stream.files import EventFiles
from truecopy.stream.log import ChangeLog, Level, LogGone, Mark, Wanted, open_log

EVERYTHING = 1 << 40


def open_files(folder: Path, *tables: str, **settings: str) -> EventFiles:
    log = open_log(parse_endpoint(f"events:///{folder}"), Wanted("shop", tables, settings=settings))
    assert isinstance(log, EventFiles)
    assert isinstance(log, ChangeLog)
    return log


def changes(log: ChangeLog, start: Mark, end: Mark, parts: int = 1) -> list[dict[str, Any]]:
    return [
        row
        for part in log.split(start, end, parts)
        for batch in pickle.loads(pickle.dumps(part)).read()
        for row in batch.to_pylist()
    ]


def event(
    op: str, before: Any, after: Any, table: str = "orders", ts: int = 1_700_000_000_000
) -> str:
    source = {"db": "shop", "table": table, "ts_ms": ts, "gtid": "0-1-7"}
    return json.dumps(
        {"before": before, "after": after, "source": source, "op": op, "ts_ms": ts + 5}
    )


def write(folder: Path, name: str, *lines: str) -> None:
    with (folder / name).open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def inserts(first: int, count: int, **more: Any) -> list[str]:
    return [
        event("c", None, {"id": i, "note": "n" * 20}, **more) for i in range(first, first + count)
    ]


def test_reads_every_kind_of_event(tmp_path: Path) -> None:
    write(
        tmp_path,
        "0001.jsonl",
        event("c", None, {"id": 1, "price": 1.10, "note": None, "on": True, "tags": {"b": [1.0], "a": "x"}}),
        event("r", None, {"id": 2, "price": 12345678901234567890.123456789, "note": "1", "on": False, "tags": []}),
        event("u", {"id": 1, "note": "a"}, {"id": 1, "note": "b"}),
        event("u", {"id": 1, "note": "b"}, {"id": 9, "note": "b"}),
        event("u", None, {"id": 9, "note": "__debezium_unavailable_value"}),
        event("d", {"id": 9, "note": "b"}, None),
        "null",
        "",
        event("m", None, None),
        event("t", None, None),
        event("c", None, {"a": "x", "b": 3}, table="lines"),
    )  # fmt: skip
    with open_files(tmp_path, key="orders:id;shop.lines:b,a") as log:
        assert log.level is Level.TABLE
        rows = changes(log, log.oldest(), log.current())
    assert [(r["kind"], r["key"], r["before"], r["after"]) for r in rows] == [
        ("insert", ["1"], None, ["1", "1.1", None, "1", '{"a":"x","b":[1]}']),
        ("insert", ["2"], None, ["2", "12345678901234567000", "1", "0", "[]"]),
        ("update", ["1"], ["1", "a"], ["1", "b"]),
        ("delete", ["1"], ["1", "b"], None),
        ("insert", ["9"], None, ["9", "b"]),
        ("update", ["9"], None, ["9", None]),
        ("delete", ["9"], ["9", "b"], None),
        ("truncate", None, None, None),
        ("insert", ["3", "x"], None, ["x", "3"]),
    ]
    assert rows[5]["unchanged"] == [1]
    assert [row["seq"] for row in rows[3:5]] == [0, 1]
    assert {row["table"] for row in rows} == {"shop.orders", "shop.lines"}
    assert rows[0]["txn"] == "0-1-7"
    assert rows[0]["committed_at"].timestamp() == 1_700_000_000
    assert Definitions().find(rows[-1]["schema_id"]).key == ("b", "a")


def test_numbers_stay_exact(tmp_path: Path) -> None:
    line = event("c", None, {"id": 1, "n": "@"}).replace(
        '"@"', "98765432109876543210.12345678901234567890"
    )
    write(tmp_path, "a.jsonl", line)
    with open_files(tmp_path) as log:
        (row,) = changes(log, log.oldest(), log.current())
    assert row["after"] == ["1", "98765432109876543210.1234567890123456789"]
    assert row["key"] == []


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


DECIMAL = "org.apache.kafka.connect.data.Decimal"
ZONED = "io.debezium.time.ZonedTimestamp"
BITS = "io.debezium.data.Bits"
TYPED = [
    ({"type": "int32"}, 7, "7"),
    ({"type": "double"}, 1.5, "3ff8000000000000"),
    ({"type": "boolean"}, True, "1"),
    ({"type": "string"}, "é", "é"),
    ({"type": "bytes"}, b64(b"\x00\xff"), "00ff"),
    ({"type": "int32", "name": "io.debezium.time.Date"}, 19_358, "2023-01-01"),
    ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 1_672_531_200_123, "2023-01-01 00:00:00.123000"),
    ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 1_672_531_200_000_001, "2023-01-01 00:00:00.000001"),
    ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 3_600_000_001, "01:00:00.000001"),
    ({"type": "string", "name": ZONED}, "2023-01-01T01:00:00+01:00", "2023-01-01 00:00:00.000000"),
    ({"type": "string", "name": ZONED}, "2023-01-01T00:00:00Z", "2023-01-01 00:00:00.000000"),
    ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, b64(b"\x30\x39"), "123.45"),
    ({"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, b64(b"\xff"), "-0.01"),
    ({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, {"scale": 3, "value": b64(b"\x01")}, "0.001"),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"b":1.0,"a":2}', '{"a":2,"b":1}'),
    ({"type": "string", "name": "io.debezium.data.Uuid"}, "AA-bb", "aa-bb"),
    ({"type": "bytes", "name": BITS, "parameters": {"length": "10"}}, b64(b"\x05\x02"), "1000000101"),
    ({"type": "string", "name": "io.debezium.data.Enum"}, "small", "small"),
    ({"type": "array"}, [1, "a"], '[1,"a"]'),
]  # fmt: skip


def with_schema(field: dict[str, Any], value: Any) -> str:
    fields = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "v", "optional": True, **field},
    ]
    side = {"type": "struct", "fields": fields, "optional": True}
    schema = {"type": "struct", "fields": [{**side, "field": "before"}, {**side, "field": "after"}]}
    value_part = {"schema": schema, "payload": json.loads(event("c", None, {"id": 1, "v": value}))}
    key = {"schema": {"type": "struct"}, "payload": {"id": 1}}
    return json.dumps({"key": key, "value": value_part})


@pytest.mark.parametrize(("field", "value", "text"), TYPED)
def test_types_of_a_schema(tmp_path: Path, field: dict[str, Any], value: Any, text: str) -> None:
    write(tmp_path, "a.jsonl", with_schema(field, value), with_schema(field, None))
    with open_files(tmp_path) as log:
        rows = changes(log, log.oldest(), log.current())
    assert [row["after"] for row in rows] == [["1", text], ["1", None]]
    assert rows[0]["key"] == ["1"]
    definition = Definitions().find(rows[0]["schema_id"])
    assert (definition.key, definition.columns[0].nullable) == (("id",), False)


def test_a_range_reads_the_same_however_it_is_cut(tmp_path: Path) -> None:
    write(tmp_path, "0001.jsonl", *inserts(1, 10))
    with gzip.open(tmp_path / "0002.jsonl.gz", "wt") as file:
        file.writelines(f"{line}\n" for line in inserts(11, 10))
    write(tmp_path, "0003.jsonl", *inserts(21, 10))
    (tmp_path / ".0004.jsonl").write_text("hidden\n")
    (tmp_path / "notes.txt").write_text("no events\n")
    with open_files(tmp_path, key="orders:id") as log:
        start, end = log.oldest(), log.current()
        once = changes(log, start, end)
        assert [row["key"][0] for row in once] == [str(i) for i in range(1, 31)]
        for parts in (1, 2, 7):
            assert changes(log, start, end, parts) == once
        assert len(log.split(start, end, 7)) >= 6
        assert [row["commit_order"] for row in once] == sorted(
            {row["commit_order"] for row in once}
        )
        middle = log.seek(once[13]["position"])
        assert [row["key"] for row in changes(log, middle, end)] == [r["key"] for r in once[14:]]
    with open_files(tmp_path, key="orders:id") as fresh:
        assert changes(fresh, fresh.seek(""), fresh.seek(end.position), 3) == once


def test_advances_by_bytes_line_by_line(tmp_path: Path) -> None:
    write(tmp_path, "0001.jsonl", *inserts(10, 5))
    write(tmp_path, "0002.jsonl", *inserts(15, 5))
    with open_files(tmp_path, key="orders:id") as log:
        size = log.current().written // 10
        mark, counts = log.oldest(), []
        while (end := log.advance(mark, 3 * size, 0)) != mark:
            counts.append(len(changes(log, mark, end)))
            assert end.written > mark.written
            assert contains(parse_position(end.position), parse_position(mark.position))
            mark = end
        assert counts == [3, 3, 3, 1]
        assert mark.position == log.current().position
        assert log.lag(mark).bytes == 0
        assert log.lag(log.oldest()).bytes == mark.written
        first = log.advance(log.oldest(), 1, 0)
        assert len(changes(log, log.oldest(), first)) == 1
        assert first.committed_at == 1_700_000_000_000_000


def test_never_steps_over_a_change_of_columns(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.jsonl",
        event("c", None, {"id": 1}),
        event("c", None, {"id": 1}, table="other"),
        event("c", None, {"id": 2, "more": 1}),
        event("c", None, {"id": 3, "more": 1}),
    )
    with open_files(tmp_path) as log:
        first = log.advance(log.oldest(), EVERYTHING, 0)
        assert len(changes(log, log.oldest(), first)) == 2
        second = log.advance(first, EVERYTHING, 0)
        assert len(changes(log, first, second)) == 2
        assert second.position == log.current().position
    with open_files(tmp_path, "other") as log:
        assert log.advance(log.oldest(), EVERYTHING, 0).position == second.position


def test_waits_for_lines_to_be_complete(tmp_path: Path) -> None:
    with open_files(tmp_path, key="orders:id") as log:
        start = log.advance(log.oldest(), EVERYTHING, 0)
        assert start == log.current() == log.oldest()
        line = event("c", None, {"id": 1})
        (tmp_path / "a.jsonl").write_text(line[:30])
        began = time.monotonic()
        assert log.advance(start, EVERYTHING, 0.2) == start
        assert time.monotonic() - began >= 0.2
        (tmp_path / "a.jsonl").write_text(f"{line}\n{line[:10]}")
        first = log.advance(start, EVERYTHING, 0)
        assert len(changes(log, start, first)) == 1
        # A file that is followed by another one is complete, with or without a last line break.
        (tmp_path / "a.jsonl").write_text(f"{line}\n{line}")
        assert log.advance(first, EVERYTHING, 0) == first
        write(tmp_path, "b.jsonl", line)
        assert len(changes(log, first, log.advance(first, EVERYTHING, 0))) == 2


def test_a_packed_file_is_read_when_it_is_complete(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(inserts(1, 100)).encode() + b"\n")
    with open_files(tmp_path) as log:
        (tmp_path / "a.jsonl.gz").write_bytes(packed[:-20])
        assert log.advance(log.oldest(), EVERYTHING, 0) == log.oldest()
        (tmp_path / "a.jsonl.gz").write_bytes(packed)
        assert len(changes(log, log.oldest(), log.advance(log.oldest(), EVERYTHING, 0))) == 100


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ('{"id": 1}', "no event"),
        (event("x", None, {"id": 1}), "op is 'x'"),
        (event("c", None, None), "no after"),
        (event("d", None, None), "no before"),
        (event("c", None, {"other": 1}), "key column id"),
        (event("c", None, {"id": 1}).replace('"table"', '"no"'), "no table"),
        (with_schema({"type": "bytes"}, "!"), "the column v"),
        (
            with_schema({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1),
            "microseconds",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    write(tmp_path, "a.jsonl", *inserts(1, 3), line)
    with open_files(tmp_path, key="orders:id") as log:
        for start in (log.oldest(), log.seek(f"a.jsonl:{len(inserts(1, 1)[0]) + 1}")):
            with pytest.raises(CannotFinish, match=r"line 4 of .*a\.jsonl") as error:
                log.advance(start, EVERYTHING, 0)
            assert reason in str(error.value)
            assert "mend or remove" in str(error.value)


def test_what_is_gone_is_said(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", *inserts(1, 3))
    write(tmp_path, "b.jsonl", *inserts(4, 3))
    with open_files(tmp_path) as log:
        start = log.advance(log.oldest(), 1, 0)
        end = log.current()
        parts = log.split(start, end, 1)
        (tmp_path / "a.jsonl").unlink()
        with pytest.raises(LogGone):
            log.seek(start.position)
        with pytest.raises(LogGone):
            log.advance(start, EVERYTHING, 0)
        with pytest.raises(LogGone):
            list(parts[0].read())
        (tmp_path / "b.jsonl").write_text("")
        with pytest.raises(LogGone):
            log.seek(end.position)
        with pytest.raises(LogGone):
            list(parts[-1].read())
        with pytest.raises(UsageError):
            log.seek("0-1-7")
    with open_files(tmp_path / "absent") as log:
        assert "no folder" in log.missing()[0]
        with pytest.raises(UsageError):
            log.current()
    with pytest.raises(UsageError, match="TABLE:COLUMN"):
        open_files(tmp_path, key="orders")


def test_seeks_by_time(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", *inserts(1, 2, ts=1000), *inserts(3, 2, ts=3000))
    write(tmp_path, "b.jsonl", *inserts(5, 2, ts=2000))
    with open_files(tmp_path, key="orders:id") as log:
        for at, first in ((0, "1"), (1_000_000, "1"), (1_000_001, "3"), (3_000_000, "3")):
            rows = changes(log, log.seek_time(at), log.current())
            assert rows[0]["key"] == [first]
        assert log.seek_time(3_000_001).position == log.current().position


def test_keys_only_and_chosen_tables(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", *inserts(1, 2), *inserts(7, 1, table="lines"))
    wanted = Wanted("shop", ("shop.l*",), keys_only=True, settings={"key": "lines:id"})
    with open_log(parse_endpoint(f"events:///{tmp_path}"), wanted) as log:
        rows = changes(log, log.oldest(), log.current())
    assert [(row["key"], row["before"], row["after"]) for row in rows] == [(["7"], None, None)]
