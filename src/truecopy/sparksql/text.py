r"""Text read as another type, in Spark's SQL: what `truecopy.model.text` does with a `str`.

Columns of CSV and JSON files hold text only. A text that is one of the agreed type gives the
canonical text of its value, any other `?` and its hex. Patterns end in `\z`: Java's `$` would let
a line break pass. Works with ANSI mode and without.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from string import ascii_lowercase, ascii_uppercase

from truecopy.model.types import (
    Array,
    Binary,
    Bits,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Time,
    Timestamp,
    Type,
    Uuid,
)

MICROSECONDS = "yyyy-MM-dd HH:mm:ss.SSSSSS"

_DAY = "([0-9]{4,}-[0-9]{2}-[0-9]{2})"
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6})0*)?)?"
_OFFSET = "(Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?)"
_TIMESTAMP = rf"\A{_DAY}(?:[ T]{_CLOCK})? ?{_OFFSET}?\z"
_MIDNIGHT = rf"\A{_DAY}(?:[ T]00:00(?::00(?:\.0{{1,6}}0*)?)?)? ?{_OFFSET}?\z"
_TIME = r"\A(-?)([0-9]{1,4}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6})0*)?)?\z"
_NUMBER = r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\z"
_INFINITE = r"(?i)\A[+-]?inf(inity)?\z"
_SPACE = r"[ \t-\r]+"
_names = itertools.count()


def parse_sql(text: str, kind: Type, shown: str | None = None) -> str:
    """The canonical text, under an agreed type, of an expression of type STRING.

    `shown` stands for the text where it is not of the type, if that is not the text itself.
    """
    parse: Callable[[str], str]
    match kind:
        case Integer() | Boolean():
            parse = _integer
        case Decimal(scale):
            parse = partial(decimal_sql, scale=scale)
        case Float():
            parse = _float
        case Date():
            parse = _date
        case Time():
            parse = _time
        case Timestamp(zone):
            parse = partial(_timestamp, zone=zone)
        case Bits(width):
            parse = partial(_bits, width=width or 0)
        case Binary():
            return f"lower(hex({text}))"
        case Uuid():
            # Letters of ASCII only, as the model has it.
            return f"translate({shown or text}, '{ascii_uppercase}', '{ascii_lowercase}')"
        case Array():
            return f"concat('?', lower(hex({shown or text})))"
        case _:
            return shown or text
    return let(
        text,
        lambda x: (
            f"coalesce({_shortcut(x, kind)}{parse(x)}, concat('?', lower(hex({shown or x}))))"
        ),
    )


def _shortcut(x: str, kind: Type) -> str:
    """The texts that most files hold: canonical already, or without a fraction of the second."""
    seconds = "[0-9]{4,}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"
    match kind:
        case Integer() | Boolean():
            pattern = "(0|-?[1-9][0-9]*)"
        case Decimal(scale):
            fraction = rf"\.[0-9]{{{scale}}}([0-9]*[1-9])?" if scale else r"(\.[0-9]*[1-9])?"
            pattern = rf"(?!-[0.]+\z)-?(0|[1-9][0-9]*){fraction}"
        case Timestamp():
            whole = rf"CASE WHEN {x} RLIKE r'\A{seconds}\z' THEN concat({x}, '.000000') END, "
            return whole + rf"CASE WHEN {x} RLIKE r'\A{seconds}\.[0-9]{{6}}\z' THEN {x} END, "
        case _:
            return ""
    return rf"CASE WHEN {x} RLIKE r'\A{pattern}\z' THEN {x} END, "


def float_bits_sql(number: str) -> str:
    """The bits of a DOUBLE in 16 hex digits; adding 0 makes -0 the same as 0."""
    bits = f"java_method('java.lang.Double', 'doubleToLongBits', {number} + 0.0D)"
    digits = f"lower(lpad(hex(CAST({bits} AS BIGINT)), 16, '0'))"
    return f"CASE WHEN {number} IS NOT NULL THEN {digits} END"


def decimal_sql(text: str, scale: int | None) -> str:
    """A text with digits, a point and an exponent as plain digits; NULL where it is no number."""
    trimmed = rf"regexp_replace({text}, r'\A{_SPACE}|{_SPACE}\z', '')"

    def parts(t: str) -> str:
        mantissa = rf"regexp_extract({t}, r'\A[+-]?([0-9]*)\.?([0-9]*)', %d)"
        exponent = f"regexp_extract({t}, r'[eE]([+-]?[0-9]+)', 1)"
        return (
            f"named_struct('minus', {t} LIKE '-%', 'digits', {mantissa % 1} || {mantissa % 2},"
            f" 'point', length({mantissa % 1}) + coalesce(try_cast({exponent} AS INT), 0))"
        )

    def split(p: str) -> str:
        inside = f"{p}.point BETWEEN 1 AND length({p}.digits) - 1"
        whole = (
            f"CASE WHEN {inside} THEN substr({p}.digits, 1, {p}.point) WHEN {p}.point <= 0 THEN ''"
            f" ELSE {p}.digits || repeat('0', {p}.point - length({p}.digits)) END"
        )
        fraction = (
            f"CASE WHEN {inside} THEN substr({p}.digits, {p}.point + 1) WHEN {p}.point > 0 THEN ''"
            f" ELSE repeat('0', -{p}.point) || {p}.digits END"
        )
        return (
            f"named_struct('minus', {p}.minus, 'whole', trim(LEADING '0' FROM {whole}),"
            f" 'fraction', trim(TRAILING '0' FROM {fraction}))"
        )

    def join(s: str) -> str:
        fraction = f"{s}.fraction"
        if scale:
            fraction = (
                f"IF(length({fraction}) < {scale}, rpad({fraction}, {scale}, '0'), {fraction})"
            )
        point = "'.'" if scale else f"IF({fraction} = '', '', '.')"
        minus = f"IF({s}.minus AND ({s}.whole <> '' OR {s}.fraction <> ''), '-', '')"
        return f"concat({minus}, IF({s}.whole = '', '0', {s}.whole), {point}, {fraction})"

    def value(t: str) -> str:
        return (
            f"CASE WHEN {t} RLIKE r'{_NUMBER}' THEN {let(parts(t), lambda p: let(split(p), join))}"
            f" WHEN {t} RLIKE r'{_INFINITE}' THEN IF({t} LIKE '-%', '-Infinity', 'Infinity')"
            rf" WHEN {t} RLIKE r'(?i)\A[+]?nan\z' THEN 'NaN' END"
        )

    return let(trimmed, value)


def let(expression: str, body: Callable[[str], str]) -> str:
    """An expression computed once and used under a name: SQL has no other way to say that."""
    if expression.replace("`", "").isidentifier():
        return body(expression)
    name = f"v{next(_names)}"
    return f"transform(array({expression}), {name} -> {body(name)})[0]"


def _integer(x: str) -> str:
    digits = f"trim(LEADING '0' FROM ltrim('+-', {x}))"
    minus = f"IF({x} LIKE '-%', '-', '')"
    return (
        f"CASE WHEN lower({x}) = 'true' THEN '1' WHEN lower({x}) = 'false' THEN '0'"
        rf" WHEN {x} RLIKE r'\A[+-]?0+\z' THEN '0'"
        rf" WHEN {x} RLIKE r'\A[+-]?[0-9]+\z' THEN concat({minus}, {digits}) END"
    )


def _float(x: str) -> str:
    def value(t: str) -> str:
        number = f"try_cast({t} AS DOUBLE)"
        infinity = f"IF({t} LIKE '-%', 'fff0000000000000', '7ff0000000000000')"
        return (
            # Python takes an exponent of any length; the number is infinite or zero then.
            rf"CASE WHEN {t} RLIKE r'\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\z'"
            f" THEN {let(number, float_bits_sql)} WHEN {t} RLIKE r'{_INFINITE}' THEN {infinity}"
            rf" WHEN {t} RLIKE r'(?i)\A[+]?nan\z' THEN '7ff8000000000000' END"
        )

    return let(rf"regexp_replace({x}, r'\A{_SPACE}|{_SPACE}\z', '')", value)


def _date(x: str) -> str:
    return (
        rf"CASE WHEN {x} RLIKE r'\A{_DAY}\z' THEN {x}"
        f" WHEN {x} RLIKE r'{_MIDNIGHT}' THEN regexp_extract({x}, r'{_MIDNIGHT}', 1) END"
    )


def _time(x: str) -> str:
    sign, hours, minutes, seconds, fraction = (
        f"regexp_extract({x}, r'{_TIME}', {group})" for group in range(1, 6)
    )
    padded = f"IF(length({hours}) < 2, lpad({hours}, 2, '0'), {hours})"
    text = (
        f"concat({sign}, {padded}, ':', {minutes}, ':', {_or_zeros(seconds)}, '.',"
        f" rpad({fraction}, 6, '0'))"
    )
    return f"CASE WHEN {x} RLIKE r'{_TIME}' THEN {text} END"


def _timestamp(x: str, zone: bool) -> str:
    day, hours, minutes, seconds, fraction, offset = (
        f"regexp_extract({x}, r'{_TIMESTAMP}', {group})" for group in range(1, 7)
    )
    text = (
        f"concat({day}, ' ', {_or_zeros(hours)}, ':', {_or_zeros(minutes)}, ':',"
        f" {_or_zeros(seconds)}, '.', rpad({fraction}, 6, '0'))"
    )
    if zone:
        pair = f"named_struct('text', {text}, 'zone', {offset})"
        moved = let(pair, lambda p: _in_utc(f"{p}.text", f"{p}.zone"))
        text = f"IF({offset} IN ('', 'Z', 'UTC'), {text}, {moved})"
    return f"CASE WHEN {x} RLIKE r'{_TIMESTAMP}' THEN {text} END"


def _in_utc(text: str, offset: str) -> str:
    """A local time with an offset, in UTC; NULL for days and offsets that do not exist."""
    minutes = (
        f"(CAST(substr({offset}, 2, 2) AS INT) * 60"
        f" + IF(length({offset}) > 3, CAST(right({offset}, 2) AS INT), 0))"
    )
    signed = f"IF({offset} LIKE '-%', -1, 1) * {minutes}"
    moved = f"try_cast({text} AS TIMESTAMP_NTZ) - make_dt_interval(0, 0, {signed}, 0)"
    # Python's calendar, and so the model's, is that of the years 1 to 9999.
    exists = f"{text} RLIKE r'\\A(?!0000)[0-9]{{4}}-' AND {minutes} < 1440"
    shown = let(
        moved,
        lambda m: f"IF(year({m}) BETWEEN 1 AND 9999, date_format({m}, '{MICROSECONDS}'), NULL)",
    )
    return f"CASE WHEN {exists} THEN {shown} END"


def _bits(x: str, width: int) -> str:
    padded = f"IF(length({x}) < {width}, lpad({x}, {width}, '0'), {x})"
    return rf"CASE WHEN {x} RLIKE r'\A[01]*\z' THEN {padded} END"


def _or_zeros(digits: str) -> str:
    return f"IF({digits} = '', '00', {digits})"
