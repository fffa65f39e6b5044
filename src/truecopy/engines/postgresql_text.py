"""SQL for the canonical text of PostgreSQL's values; `truecopy.model.text` is the reference.

It counts on the session settings of `truecopy.engines.postgresql`: UTC, ISO dates, and a client
encoding of UTF-8, by which `textsend` gives UTF-8 whatever the server's own encoding is.
Each expression is of a text type, NULL for NULL, and never an error: a value that does not fit the
agreed type is `?` and the hex of its text.
"""

from __future__ import annotations

from decimal import Context

from truecopy.engines import text_patterns as patterns
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
    Unsupported,
    Uuid,
)

_NAN, _INFINITY, _MINUS_INFINITY = "7ff8000000000000", "7ff0000000000000", "fff0000000000000"
_FIRST_DAY = "'0001-01-01 00:00:00+00'"
_TIMESTAMP = "'YYYY-MM-DD HH24:MI:SS.US'"
# Beyond these a decimal is infinite, or nothing, as a double; PostgreSQL's own cast fails.
_TOO_LARGE = str(2**1024 - 2**970)
_TOO_SMALL = str(Context(prec=800).power(2, -1075))


def canonical(x: str, native: str, own: Type, kind: Type) -> str:
    """The canonical text of an expression whose column is of type `own`, under the type `kind`."""
    match kind:
        case Text() | Json():
            return own_text(x, native, own)
        case Binary():
            return f"encode({x if isinstance(own, Binary) else _bytes(x, native, own)},'hex')"
        case Uuid():
            return _uuid(x, native, own)
        case Array(element) if isinstance(own, Array):
            return _array(x, native.removesuffix("[]"), own.element, element)
        case Array():
            return own_text(x, native, own)
    if isinstance(own, Text | Json | Uuid | Array | Unsupported):
        return read(own_text(x, native, own), kind)
    if isinstance(own, Binary):
        return f"('?'||encode({x},'hex'))"
    return _scalar(x, native, own, kind) or misfit(own_text(x, native, own))


def own_text(x: str, native: str, own: Type) -> str:
    """Text as it is; any other type, compared as text on request, by its own canonical text."""
    if isinstance(own, Text):
        if native.startswith(("text", "character varying")):
            return x
        # A cast to text adds the netmask that the type's own output leaves out.
        return f"abbrev({x})" if native == "inet" else f"{x}::text"
    if isinstance(own, Json | Unsupported):
        return f"{x}::text"
    return canonical(x, native, own, own)


def misfit(text: str) -> str:
    """A value that is not of the agreed type."""
    return f"('?'||encode(textsend({text}),'hex'))"


def _bytes(x: str, native: str, own: Type) -> str:
    return f"textsend({own_text(x, native, own)})"


def _scalar(x: str, native: str, own: Type, kind: Type) -> str | None:
    """None where no value of the one type is one of the other."""
    match kind:
        case Integer() | Boolean():
            return _whole(x, own)
        case Decimal(scale):
            return _decimal(x, own, scale)
        case Float():
            number = _double(x, own)
            return _float_bits(number) if number else None
        case Date():
            return _date(x, native, own)
        case Timestamp():
            return _timestamp(x, own)
        case Time() if isinstance(own, Time):
            return (
                _interval(x) if native.startswith("interval") else f"to_char({x},'HH24:MI:SS.US')"
            )
        case Bits() if isinstance(own, Bits):
            return f"{x}::text"
        case _:
            return None


def _whole(x: str, own: Type) -> str | None:
    match own:
        case Integer():
            return f"{x}::text"
        case Boolean():
            return f"{x}::int::text"
        case Bits(width):
            return f"{_bits_number(x, width)}::text"
        case Decimal():
            text = f"trim_scale({x})::text"
            return f"(CASE WHEN {text} ~ '^-?[0-9]+$' THEN {text} ELSE {misfit(f'{x}::text')} END)"
        case Float():
            fits = f"{x} = trunc({x}) AND {x} >= -{2**63} AND {x} < {2**63}"
            misfits = misfit(f"{x}::float8::text")
            return f"(CASE WHEN {fits} THEN {x}::bigint::text ELSE {misfits} END)"
        case _:
            return None


def _bits_number(x: str, width: int | None) -> str:
    if width is not None and width < 64:
        return f"{x}::bigint"
    power = f"2::numeric^(length({x})-1-i)"
    total = f"SELECT trim_scale(COALESCE(SUM(get_bit({x},i)*{power}),0))"
    series = f"generate_series(0,length({x})-1) AS i"
    return f"(CASE WHEN {x} IS NOT NULL THEN ({total} FROM {series}) END)"


def _decimal(x: str, own: Type, scale: int | None) -> str | None:
    match own:
        case Decimal(known):
            return _decimal_text(x, known, scale)
        case Float():
            # The shortest decimal that reads back, as Python prints it.
            text = f"{x}::float8::text"
            special = f"{text} IN ('NaN','Infinity','-Infinity')"
            number = _decimal_text(f"{text}::numeric", None, scale)
            return f"(CASE WHEN {special} THEN {text} ELSE {number} END)"
        case _:
            text = _whole(x, own) or ""
            return f"({text}||'.{'0' * scale}')" if text and scale else text or None


def _decimal_text(x: str, known: int | None, scale: int | None) -> str:
    if scale is None:
        return f"trim_scale({x})::text"
    if known == scale:
        return f"{x}::text"
    if known is not None and known < scale:
        return f"round({x},{scale})::text"  # pads with zeros, and leaves NaN alone
    # More digits than the agreed scale stay: such a value is not what the other side holds.
    trimmed = f"trim_scale({x})"
    return (
        f"(CASE WHEN scale({trimmed}) > {scale} THEN {trimmed} ELSE round({x},{scale}) END)::text"
    )


def _double(x: str, own: Type) -> str | None:
    match own:
        case Float():
            return f"{x}::float8"
        case Integer():
            return f"{x}::float8"
        case Boolean():
            return f"{x}::int::float8"
        case Bits(width):
            return f"{_bits_number(x, width)}::float8"
        case Decimal():
            return _double_of_decimal(x)
        case _:
            return None


def _double_of_decimal(x: str) -> str:
    return (
        f"(CASE WHEN {x} = 'NaN' THEN 'NaN'::float8"
        f" WHEN {x} >= {_TOO_LARGE} THEN 'Infinity' WHEN {x} <= -{_TOO_LARGE} THEN '-Infinity'"
        f" WHEN abs({x}) <= {_TOO_SMALL} THEN 0 ELSE {x}::float8 END)"
    )


def _float_bits(x: str) -> str:
    # + 0.0 makes 0 of -0.
    return f"(CASE WHEN {x} = 'NaN' THEN '{_NAN}' ELSE encode(float8send({x} + 0.0),'hex') END)"


def _in_calendar(x: str) -> str:
    """Neither infinite nor before Christ, which `to_char` is blind to."""
    return f"{x} >= {_FIRST_DAY} AND {x} < 'infinity'"


def _date(x: str, native: str, own: Type) -> str | None:
    if isinstance(own, Date):
        return f"(CASE WHEN {_in_calendar(x)} THEN {x}::text ELSE {misfit(f'{x}::text')} END)"
    if isinstance(own, Timestamp):
        midnight = f"{_in_calendar(x)} AND {x} = date_trunc('day',{x})"
        day = f"to_char({x},'YYYY-MM-DD')"
        return f"(CASE WHEN {midnight} THEN {day} ELSE {misfit(own_text(x, native, own))} END)"
    return None


def _timestamp(x: str, own: Type) -> str | None:
    if isinstance(own, Timestamp):
        text = f"to_char({x},{_TIMESTAMP})"
    elif isinstance(own, Date):
        text = f"{x}::text||' 00:00:00.000000'"
    else:
        return None
    return f"(CASE WHEN {_in_calendar(x)} THEN {text} ELSE {misfit(f'{x}::text')} END)"


def _interval(x: str) -> str:
    """Hours without end, a day being 24 of them; months have no fixed length."""

    def part(name: str) -> str:
        return f"extract({name} FROM {x})::numeric"

    minutes = f"(({part('day')}*24+{part('hour')})*60+{part('minute')})"
    micros = f"{minutes}*60000000+{part('microseconds')}"
    clock = "to_char(mod(abs(u),3600000000)::float8*interval '1 microsecond',':MI:SS.US')"
    hours = "CASE WHEN abs(u) < 36000000000 THEN '0' ELSE '' END||div(abs(u),3600000000)::text"
    signed = f"CASE WHEN u < 0 THEN '-' ELSE '' END||{hours}||{clock}"
    text = f"(SELECT {signed} FROM (SELECT {micros}) AS v(u))"
    fits = f"isfinite({x}) AND extract(year FROM {x}) = 0 AND extract(month FROM {x}) = 0"
    return f"(CASE WHEN {fits} THEN {text} ELSE {misfit(f'{x}::text')} END)"


def _uuid(x: str, native: str, own: Type) -> str:
    if isinstance(own, Uuid):
        return f"{x}::text"
    if isinstance(own, Binary):
        digits = f"encode({x},'hex')"
        return f"(CASE WHEN octet_length({x}) = 16 THEN {digits}::uuid::text ELSE {digits} END)"
    return f'lower({own_text(x, native, own)} COLLATE "C")'


def _array(x: str, native: str, own: Type, element: Type) -> str:
    """Arrays of more dimensions, or that do not start at 1, are not lists: `?` starts none."""
    item = canonical("e", native, own, element)
    items = f"SELECT {item} AS t, n FROM unnest({x}) WITH ORDINALITY AS u(e,n)"
    joined = "string_agg(COALESCE(octet_length(textsend(t))::text||':'||t,'-'),'' ORDER BY n)"
    is_list = f"array_ndims({x}) = 1 AND array_lower({x},1) = 1"
    return (
        f"(CASE WHEN cardinality({x}) = 0 THEN ''"
        f" WHEN {is_list} THEN (SELECT {joined} FROM ({items}) AS i)"
        f" ELSE {misfit(f'{x}::text')} END)"
    )


def read(text: str, kind: Type) -> str:
    """A text read as another type on request."""
    # Regular expressions refuse a collation that is not deterministic.
    plain = f'({text} COLLATE "C")'
    match kind:
        case Integer() | Boolean():
            word = f"lower({plain})"
            return (
                f"(CASE WHEN {_is_number(plain, patterns.INTEGER)} THEN {plain}::numeric::text"
                f" WHEN {word} = 'true' THEN '1' WHEN {word} = 'false' THEN '0'"
                f" ELSE {misfit(text)} END)"
            )
        case Decimal(scale):
            number = _decimal_text(f"{_trimmed(plain)}::numeric", None, scale)
            return _read_number(plain, number, "NaN", "Infinity", "-Infinity")
        case Float():
            number = _float_bits(_double_of_decimal(f"{_trimmed(plain)}::numeric"))
            return _read_number(plain, number, _NAN, _INFINITY, _MINUS_INFINITY)
        case Date():
            day = f"substring({plain} FROM '^{patterns.DATE}')"
            fits = f"{plain} ~ '^(?:{patterns.DATE}|{patterns.MIDNIGHT})$'"
            return f"(CASE WHEN {fits} THEN {day} ELSE {misfit(text)} END)"
        case Time():
            return _read_time(plain)
        case Timestamp(zone):
            return _read_timestamp(plain, zone)
        case _:
            return misfit(text)


def _trimmed(text: str) -> str:
    return f"btrim({text},E' \\t\\n\\r\\f\\x0b')"


def _is_number(text: str, pattern: str) -> str:
    return f"octet_length({text}) <= {patterns.LONGEST_NUMBER} AND {text} ~ '^{pattern}$'"


def _read_number(text: str, number: str, nan: str, infinity: str, minus_infinity: str) -> str:
    trimmed = _trimmed(text)
    specials = (
        (patterns.NOT_A_NUMBER, nan),
        (patterns.INFINITY, infinity),
        (patterns.MINUS_INFINITY, minus_infinity),
    )
    found = " ".join(f"WHEN lower({trimmed}) ~ '^{p}$' THEN '{value}'" for p, value in specials)
    fits = _is_number(trimmed, patterns.NUMBER)
    return f"(CASE WHEN {fits} THEN {number} {found} ELSE {misfit(text)} END)"


def _clock(first: int) -> str:
    """Minutes, seconds and microseconds from the groups of a match."""
    seconds, fraction = f"COALESCE(m[{first + 1}],'00')", f"rpad(COALESCE(m[{first + 2}],''),6,'0')"
    return f"':'||COALESCE(m[{first}],'00')||':'||{seconds}||'.'||{fraction}"


def _read_time(text: str) -> str:
    hours = "CASE WHEN length(m[2]) = 1 THEN '0' ELSE '' END||m[2]"
    found = f"CASE WHEN m IS NULL THEN {misfit(text)} ELSE m[1]||{hours}||{_clock(3)} END"
    return f"(SELECT {found} FROM (SELECT regexp_match({text},'^{patterns.TIME}$')) AS r(m))"


def _read_timestamp(text: str, zone: bool) -> str:
    moment = f"(m[1]||' '||COALESCE(m[2],'00')||{_clock(3)})"
    found = moment
    if zone:
        minutes = "left(m[6],1)||COALESCE(NULLIF(ltrim(substr(m[6],4),':'),''),'0')||' minutes'"
        offset = f"(left(m[6],3)||' hours '||{minutes})::interval"
        real = f"{text} ~ '^{patterns.REAL_INSTANT}$' AND {text} !~ '^0000'"
        utc = f"(CASE WHEN {real} THEN {moment}::timestamp - {offset} END)"
        inside = f"{utc} >= '0001-01-01' AND {utc} < '10000-01-01'"
        found = (
            f"CASE WHEN COALESCE(m[6],'Z') IN ('Z','UTC') THEN {moment}"
            f" WHEN {inside} THEN to_char({utc},{_TIMESTAMP}) ELSE {misfit(text)} END"
        )
    match = f"(SELECT regexp_match({text},'^{patterns.TIMESTAMP}$')) AS r(m)"
    return f"(SELECT CASE WHEN m IS NULL THEN {misfit(text)} ELSE {found} END FROM {match})"
