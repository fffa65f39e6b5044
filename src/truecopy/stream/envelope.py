"""Debezium's envelope: one JSON document per changed row, with or without its Kafka Connect schema.

Without a schema a column's type is not known, and its text is that of its JSON value: numbers exactly, true
and false as 1 and 0, strings as they are, objects and arrays as JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Context
from decimal import Decimal as Number
from functools import lru_cache
from typing import Any

from truecopy.model import change
from truecopy.model.change import Definition
from truecopy.model.table import Column
from truecopy.model.text import canonical_json, canonical_text
from truecopy.model.types import (
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
    Uuid,
)

UNAVAILABLE = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
"""What Debezium writes for a value that the log left out because it did not change, as text and as bytes."""

_KINDS = {"c": change.INSERT, "r": change.INSERT, "u": change.UPDATE, "d": change.DELETE}
_NOTHING = ("m",)  # a message of the application, not a row
_EXACT = Context(prec=100_000)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's, as the types say

Texts = list[str | None]


class BadEvent(ValueError):
    """What is wrong with a document, in words."""


@dataclass(frozen=True)
class Event:
    """One changed row.

    Attributes:
        before: Texts in the order of the definition; None where the event has none or not all.
        unchanged: Places of values that the log left out.
        at: Commit time in microseconds, 0 where the event does not say.
        txn: The transaction's id in its own log, empty where the event does not say.
    """

    kind: str
    definition: Definition
    before: Texts | None
    after: Texts | None
    unchanged: tuple[int, ...]
    at: int
    txn: str

    def key_of(self, texts: Texts) -> Texts:
        return [texts[place] for place in self.definition.key_places]


def read_event(line: bytes, keys: Mapping[str, Sequence[str]]) -> Event | None:
    """The row change of a line; None for a tombstone or a message.

    Args:
        line: A JSON document: an envelope, alone, in `payload`, or beside its `key` in `value`.
        keys: Key columns by table, for events that do not tell theirs.
    """
    document = _parse(line)
    key: Any = None
    if isinstance(document, dict) and "value" in document and "op" not in document:
        key, document = document.get("key"), document["value"]
    if isinstance(document, str):  # some sinks write a document as a string
        document = _parse(document.encode())
    schema: dict[str, Any] = {}
    if isinstance(document, dict) and "payload" in document:
        schema, document = document.get("schema") or {}, document["payload"]
    if document is None:
        return None
    if not isinstance(document, dict) or "op" not in document:
        raise BadEvent("it is no event: an envelope with op, before and after is expected")
    return _event(document, schema, _key_names(key), keys)


def _event(
    payload: dict[str, Any],
    schema: dict[str, Any],
    key: tuple[str, ...],
    keys: Mapping[str, Sequence[str]],
) -> Event | None:
    operation, source = payload["op"], payload.get("source") or {}
    if operation in _NOTHING:
        return None
    table = _table_name(source)
    key = key or tuple(keys.get(table) or keys.get(table.rpartition(".")[2]) or ())
    at, txn = _time(payload, source), _transaction(payload, source)
    if operation == "t":
        return Event(change.TRUNCATE, Definition(table, ()), None, None, (), at, txn)
    if operation not in _KINDS:
        raise BadEvent(f"its op is {operation!r}, and c, u, d, r and t are known")
    before, after = payload.get("before"), payload.get("after")
    whole = before if operation == "d" else after
    if not isinstance(whole, dict):
        side = "before" if operation == "d" else "after"
        raise BadEvent(f"its op is {operation!r}, but it has no {side}")
    definition = _definition(table, tuple(whole), _fields(schema), key)
    if missing := [name for name in definition.key if name not in whole]:
        raise BadEvent(f"the key column {missing[0]} of {table} is not among its columns")
    left_out = tuple(i for i, value in enumerate(whole.values()) if _is_left_out(value))
    # An image is worth something only as a whole: which of its values are missing cannot be said.
    earlier = before if isinstance(before, dict) and before.keys() == whole.keys() else None
    if earlier and operation != "d" and any(map(_is_left_out, earlier.values())):
        earlier = None
    return Event(
        _KINDS[operation],
        definition,
        None if earlier is None else _texts(definition, earlier),
        None if operation == "d" else _texts(definition, whole),
        () if operation == "d" else left_out,
        at,
        txn,
    )


def _texts(definition: Definition, values: Mapping[str, Any]) -> Texts:
    found: Texts = []
    for column in definition.columns:
        value = values[column.name]
        try:
            text = None if value is None or _is_left_out(value) else _text(column, value)
        except (ValueError, TypeError, KeyError, ArithmeticError, binascii.Error) as error:
            raise BadEvent(
                f"the column {column.name} of {definition.table} is {column.native}, and"
                f" {_shown(value)} is not one ({error})"
            ) from None
        found.append(text)
    return found


def _is_left_out(value: Any) -> bool:
    return isinstance(value, str) and value in UNAVAILABLE


def _text(column: Column, value: Any) -> str | None:
    if isinstance(column.type, Unknown):
        return _plain(value)
    return canonical_text(
        _READERS.get(column.native.partition("(")[0], _plain_value)(value, column), column.type
    )


def _plain(value: Any) -> str | None:
    """A JSON value as text, where nothing says what it is."""
    if isinstance(value, dict | list):
        return canonical_json(_json(value))
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, _Number):
        return canonical_text(Number(value), Decimal(None))
    return str(value)


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value)


def _plain_value(value: Any, _: Column) -> Any:
    if isinstance(value, dict | list):
        return _plain(value)
    return str(value) if isinstance(value, _Number) else value


# Debezium's and Connect's logical types, by the name that a schema gives them.
_Reader = Callable[[Any, Column], Any]


def _days(value: Any, _: Column) -> Any:
    return (_EPOCH + timedelta(days=int(value))).date()


def _moment(unit: int) -> _Reader:
    """Counts of so many nanoseconds."""

    def read(value: Any, _: Column) -> Any:
        return _EPOCH + timedelta(microseconds=_whole_microseconds(int(value) * unit))

    return read


def _span(unit: int) -> _Reader:
    def read(value: Any, _: Column) -> Any:
        return timedelta(microseconds=_whole_microseconds(int(value) * unit))

    return read


def _whole_microseconds(nanoseconds: int) -> int:
    if nanoseconds % 1000:
        raise ValueError("finer than microseconds")
    return nanoseconds // 1000


def _decimal(value: Any, column: Column) -> Any:
    """The unscaled number as bytes in base64."""
    scale = column.type.scale if isinstance(column.type, Decimal) else 0
    return Number(_unscaled(value)).scaleb(-(scale or 0), _EXACT)


def _variable_decimal(value: Any, _: Column) -> Any:
    return Number(_unscaled(value["value"])).scaleb(-int(value["scale"]), _EXACT)


def _unscaled(value: Any) -> int:
    return int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)


def _bytes(value: Any, _: Column) -> Any:
    return base64.b64decode(value, validate=True)


def _bits(value: Any, _: Column) -> Any:
    # Least significant byte first.
    return int.from_bytes(base64.b64decode(value, validate=True), "little")


def _zoned(value: Any, _: Column) -> Any:
    return datetime.fromisoformat(str(value))


_MILLI, _MICRO, _NANO = 1_000_000, 1_000, 1
_LOGICAL: dict[str, tuple[Type, _Reader]] = {
    "io.debezium.time.Date": (Date(), _days),
    "org.apache.kafka.connect.data.Date": (Date(), _days),
    "io.debezium.time.Time": (Time(), _span(_MILLI)),
    "io.debezium.time.MicroTime": (Time(), _span(_MICRO)),
    "io.debezium.time.NanoTime": (Time(), _span(_NANO)),
    "org.apache.kafka.connect.data.Time": (Time(), _span(_MILLI)),
    "io.debezium.time.Timestamp": (Timestamp(zone=False), _moment(_MILLI)),
    "io.debezium.time.MicroTimestamp": (Timestamp(zone=False), _moment(_MICRO)),
    "io.debezium.time.NanoTimestamp": (Timestamp(zone=False), _moment(_NANO)),
    "org.apache.kafka.connect.data.Timestamp": (Timestamp(zone=False), _moment(_MILLI)),
    "io.debezium.time.ZonedTimestamp": (Timestamp(zone=True), _zoned),
    "io.debezium.time.Year": (Integer(), _plain_value),
    "io.debezium.data.Json": (Json(), _plain_value),
    "io.debezium.data.Uuid": (Uuid(), _plain_value),
    "io.debezium.data.Bits": (Bits(None), _bits),
    "io.debezium.data.VariableScaleDecimal": (Decimal(None), _variable_decimal),
    "org.apache.kafka.connect.data.Decimal": (Decimal(None), _decimal),
}
_READERS: dict[str, _Reader] = {
    **{name: reader for name, (_, reader) in _LOGICAL.items()},
    "bytes": _bytes,
}
_PLAIN_TYPES: dict[str, Type] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), Integer()),
    **dict.fromkeys(("float", "double", "float32", "float64"), Float()),
    "boolean": Boolean(),
    "string": Text(),
    "bytes": Binary(),
}


def _fields(schema: Mapping[str, Any]) -> str:
    """The columns that a schema describes, as text that can be remembered: most lines say the same."""
    for side in schema.get("fields") or ():
        if side.get("field") in ("after", "before") and side.get("fields"):
            return json.dumps(side["fields"])
    return ""


@lru_cache(maxsize=4096)
def _definition(
    table: str, names: tuple[str, ...], fields: str, key: tuple[str, ...]
) -> Definition:
    described = {field["field"]: field for field in (json.loads(fields) if fields else ())}
    columns = tuple(_column(name, described.get(name)) for name in names)
    return Definition(table, columns, key)


def _column(name: str, field: Mapping[str, Any] | None) -> Column:
    if field is None:
        return Column(name, Unknown(), "json", weak=True)
    logical, parameters = field.get("name") or "", field.get("parameters") or {}
    plain = str(field.get("type"))
    kind = _LOGICAL[logical][0] if logical in _LOGICAL else _PLAIN_TYPES.get(plain, Unknown())
    if isinstance(kind, Decimal) and "scale" in parameters:
        kind = Decimal(int(parameters["scale"]))
    if isinstance(kind, Bits) and "length" in parameters:
        kind = replace(kind, width=int(parameters["length"]))
    native = logical if logical in _LOGICAL else plain
    return Column(name, kind, native, nullable=bool(field.get("optional", False)))


def _key_names(key: Any) -> tuple[str, ...]:
    if isinstance(key, str):
        try:
            key = json.loads(key)
        except ValueError:
            return ()
    if isinstance(key, dict) and "payload" in key:
        key = key["payload"]
    return tuple(key) if isinstance(key, dict) else ()


def _table_name(source: Mapping[str, Any]) -> str:
    table = source.get("table")
    if not isinstance(table, str) or not table:
        raise BadEvent("its source names no table")
    space = source.get("schema") or source.get("db")
    return f"{space}.{table}" if space else table


def _time(payload: Mapping[str, Any], source: Mapping[str, Any]) -> int:
    for place, name, unit in (
        (source, "ts_us", 1),
        (source, "ts_ms", 1000),
        (payload, "ts_us", 1),
        (payload, "ts_ms", 1000),
    ):
        if place.get(name):
            return int(place[name]) * unit
    return 0


def _transaction(payload: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    block = payload.get("transaction") or {}
    for value in (block.get("id"), source.get("gtid"), source.get("txId")):
        if value is not None:
            return str(value)
    return ""


class _Number(str):
    """The digits of a JSON number, as they stand there; a type of its own, so that `"1"` is not `1`."""

    __slots__ = ()


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"it is not JSON: {error}") from None


def _shown(value: Any) -> str:
    text = repr(str(value))
    return text if len(text) <= 40 else f"{text[:37]}…"
