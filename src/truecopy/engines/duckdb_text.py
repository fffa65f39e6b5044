"""SQL for the canonical text of DuckDB's values; `truecopy.model.text` is the reference.

Each expression is a VARCHAR, NULL for NULL, and never an error: a value that does not fit the
agreed type is `?` and the hex of its text. Casts are TRY_CAST where they could fail, since the
branches of a CASE may be computed for rows that take another one. No subqueries: those are not
allowed inside the lambdas that make the texts of lists.
"""

from __future__ import annotations

import string

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

_NAN = "7ff8000000000000"
_SPACES = "' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13)"
_HOUR = 3_600_000_000


def canonical(x: str, native: str, own: Type, kind: Type, depth: int = 0) -> str:
    """The canonical text of an expression whose column is of type `own`, under the type `kind`."""
    match kind:
        case Text() | Json():
            return own_text(x, native, own)
        case Binary():
            value = x if isinstance(own, Binary) else own_text(x, native, own)
            return f"lower(hex({value}))"
        case Uuid():
            return _uuid(x, native, own)
        case Array(element) if isinstance(own, Array):
            inner = native.rpartition("[")[0]
            item = canonical(f"e{depth}", inner, own.element, element, depth + 1)
            sized = f"COALESCE(CAST(strlen({item}) AS VARCHAR) || ':' || {item}, '-')"
            return f"array_to_string(list_transform({x}, lambda e{depth}: {sized}), '')"
        case Array():
            return own_text(x, native, own)
    if isinstance(own, Text | Json | Uuid | Array | Unsupported):
        return read(own_text(x, native, own), kind)
    if isinstance(own, Binary):
        return f"('?' || lower(hex({x})))"
    return _scalar(x, native, own, kind) or misfit(own_text(x, native, own))


def own_text(x: str, native: str, own: Type) -> str:
    """Text as it is; any other type, compared as text on request, by its own canonical text."""
    if isinstance(own, Text | Json | Unsupported):
        return _varchar(x)
    return canonical(x, native, own, own)


def misfit(text: str) -> str:
    """A value that is not of the agreed type."""
    return f"('?' || lower(hex({text})))"


def _varchar(x: str) -> str:
    return f"CAST({x} AS VARCHAR)"


def _scalar(x: str, native: str, own: Type, kind: Type) -> str | None:
    """None where no value of the one type is one of the other."""
    match kind:
        case Integer() | Boolean():
            return _whole(x, native, own)
        case Decimal(scale):
            return _decimal(x, native, own, scale)
        case Float() if isinstance(own, Float | Integer | Decimal | Boolean):
            return _float_bits(f"CAST({x} AS DOUBLE)")
        case Float() if isinstance(own, Bits):
            return _float_bits(f"CAST({_bits_number(x)} AS DOUBLE)")
        case Date():
            return _date(x, native, own)
        case Timestamp():
            return _timestamp(x, own)
        case Time() if isinstance(own, Time):
            return _interval(x) if native == "INTERVAL" else _time(x)
        case Bits() if isinstance(own, Bits):
            return _varchar(x)
        case _:
            return None


def _whole(x: str, native: str, own: Type) -> str | None:
    match own:
        case Integer():
            return _varchar(x)
        case Boolean():
            return _varchar(f"CAST({x} AS TINYINT)")
        case Bits():
            # More bits than a HUGEINT has are left as bits.
            return f"COALESCE({_varchar(_bits_number(x))}, {misfit(_varchar(x))})"
        case Decimal(scale):
            plain = _digits(x, native)
            text = _trimmed_decimal(plain, scale)
            return f"(CASE WHEN contains({text}, '.') THEN {misfit(plain)} ELSE {text} END)"
        case Float():
            number = f"TRY_CAST({x} AS HUGEINT)"
            fits = f"{x} = trunc({x}) AND {number} IS NOT NULL"
            return f"(CASE WHEN {fits} THEN {_varchar(number)} ELSE {misfit(_varchar(x))} END)"
        case _:
            return None


def _bits_number(x: str) -> str:
    """The leading 0 keeps the first bit from being a sign."""
    return f"TRY_CAST(CAST('0' || {_varchar(x)} AS BIT) AS HUGEINT)"


def _decimal(x: str, native: str, own: Type, scale: int | None) -> str | None:
    match own:
        case Decimal(known):
            return _decimal_text(_digits(x, native), known or 0, scale)
        case Float():
            return read(_varchar(f"CAST({x} AS DOUBLE)"), Decimal(scale))
        case _:
            text = _whole(x, native, own) or ""
            return f"({text} || '.{'0' * scale}')" if text and scale else text or None


def _digits(x: str, native: str) -> str:
    """A decimal as DuckDB prints it, with the 0 that it leaves out where all digits are fraction."""
    width, _, scale = native.removeprefix("DECIMAL(").removesuffix(")").partition(",")
    text = _varchar(x)
    return f"regexp_replace({text}, '^(-?)[.]', '\\10.')" if int(width) == int(scale) else text


def _decimal_text(text: str, known: int, scale: int | None) -> str:
    """From a text with `known` digits after the point to one with at least `scale`."""
    if scale is None:
        return _trimmed_decimal(text, known)
    if known <= scale:
        point = "." if not known and scale else ""
        return f"({text} || '{point}{'0' * (scale - known)}')" if known < scale else text
    # More digits than the agreed scale stay: such a value is not what the other side holds.
    cut = known - scale
    kept, rest = f"left({text}, -{cut})", f"rtrim(right({text}, {cut}), '0')"
    return f"({kept} || {rest})" if scale else f"rtrim({kept} || {rest}, '.')"


def _trimmed_decimal(text: str, known: int | None) -> str:
    return f"rtrim(rtrim({text}, '0'), '.')" if known else text


def _float_bits(x: str) -> str:
    bits = f"lower(hex(CAST(CAST({x} AS BIT) AS BLOB)))"
    return f"(CASE WHEN isnan({x}) THEN '{_NAN}' WHEN {x} = 0 THEN '{'0' * 16}' ELSE {bits} END)"


def _date(x: str, native: str, own: Type) -> str | None:
    if isinstance(own, Date):
        return f"(CASE WHEN {_is_day(x)} THEN {_varchar(x)} ELSE {misfit(_varchar(x))} END)"
    if isinstance(own, Timestamp):
        text = own_text(x, native, own)
        midnight = f"{text} LIKE '% 00:00:00.000000'"
        return f"(CASE WHEN {midnight} THEN left({text}, -16) ELSE {misfit(text)} END)"
    return None


def _is_day(x: str) -> str:
    """Neither infinite nor before Christ."""
    return f"isfinite({x}) AND {x} >= DATE '0001-01-01'"


def _timestamp(x: str, own: Type) -> str | None:
    if isinstance(own, Date):
        text = f"{_varchar(x)} || ' 00:00:00.000000'"
        return f"(CASE WHEN {_is_day(x)} THEN {text} ELSE {misfit(_varchar(x))} END)"
    if not isinstance(own, Timestamp):
        return None
    # An instant becomes UTC here, whatever the session's zone and without the ICU extension.
    moment = f"make_timestamp(epoch_us({x}))" if own.zone else f"TRY_CAST({x} AS TIMESTAMP)"
    fits = f"isfinite({x}) AND {moment} >= TIMESTAMP '0001-01-01'"
    text = _moment_text(moment)
    return f"(CASE WHEN {fits} THEN {text} ELSE {misfit(_varchar(x))} END)"


def _moment_text(moment: str) -> str:
    return f"strftime({moment}, '%Y-%m-%d %H:%M:%S.%f')"


def _time(x: str) -> str:
    text = _varchar(x)
    return f"rpad(CASE WHEN strlen({text}) = 8 THEN {text} || '.' ELSE {text} END, 15, '0')"


def _interval(x: str) -> str:
    """Hours without end, a day being 24 of them; months have no fixed length."""

    def part(name: str) -> str:
        return f"CAST(datepart('{name}', {x}) AS HUGEINT)"

    micros = (
        f"({part('day')} * {24 * _HOUR} + {part('hour')} * {_HOUR}"
        f" + {part('minute')} * 60000000 + {part('microsecond')})"
    )
    hours, rest = f"CAST(abs(truecopy_u) // {_HOUR} AS VARCHAR)", f"(abs(truecopy_u) % {_HOUR})"
    span = (
        "CASE WHEN truecopy_u < 0 THEN '-' ELSE '' END"
        f" || lpad({hours}, {_at_least(2, hours)}, '0') || ':'"
        f" || lpad({_varchar(f'{rest} // 60000000')}, 2, '0') || ':'"
        f" || lpad({_varchar(f'{rest} // 1000000 % 60')}, 2, '0') || '.'"
        f" || lpad({_varchar(f'{rest} % 1000000')}, 6, '0')"
    )
    months = f"datepart('year', {x}) <> 0 OR datepart('month', {x}) <> 0"
    return f"(CASE WHEN {months} THEN {misfit(_varchar(x))} ELSE {_let('u', micros, span)} END)"


def _at_least(width: int, text: str) -> str:
    """A width for padding, which would otherwise cut longer texts."""
    return f"CAST(greatest({width}, strlen({text})) AS INTEGER)"


def _let(name: str, value: str, body: str) -> str:
    """`body` with a name for a value that would otherwise be computed for each mention.

    There it is `truecopy_{name}`: DuckDB prefers a column of the same name.
    """
    return f"list_extract(list_transform([{value}], lambda truecopy_{name}: {body}), 1)"


def _uuid(x: str, native: str, own: Type) -> str:
    if isinstance(own, Uuid):
        return _varchar(x)
    if isinstance(own, Binary):
        digits = f"lower(hex({x}))"
        dashed = _varchar(f"TRY_CAST({digits} AS UUID)")
        return f"(CASE WHEN octet_length({x}) = 16 THEN {dashed} ELSE {digits} END)"
    upper, lower = string.ascii_uppercase, string.ascii_lowercase
    return f"translate({own_text(x, native, own)}, '{upper}', '{lower}')"


def read(text: str, kind: Type) -> str:
    """A text read as another type on request."""
    match kind:
        case Integer() | Boolean():
            return (
                f"(CASE WHEN {_matches(text, patterns.INTEGER)} THEN {_plain_number(text, 0)}"
                f" WHEN lower({text}) = 'true' THEN '1' WHEN lower({text}) = 'false' THEN '0'"
                f" ELSE {misfit(text)} END)"
            )
        case Decimal(scale):
            number = _plain_number(_trimmed(text), scale)
            return _read_number(text, number, "NaN", "Infinity", "-Infinity")
        case Float():
            number = _float_bits(f"TRY_CAST({_trimmed(text)} AS DOUBLE)")
            return _read_number(text, number, _NAN, "7ff0000000000000", "fff0000000000000")
        case Date():
            day = f"regexp_extract({text}, '^{patterns.DATE}')"
            fits = _matches(text, f"{patterns.DATE}|{patterns.MIDNIGHT}")
            return f"(CASE WHEN {fits} THEN {day} ELSE {misfit(text)} END)"
        case Time():
            hours = f"lpad(truecopy_m.b, {_at_least(2, 'truecopy_m.b')}, '0')"
            found = f"truecopy_m.a || {hours} || {_clock('truecopy_m.c', 'truecopy_m.d', 'truecopy_m.e')}"
            return _read_groups(text, patterns.TIME, "abcde", found)
        case Timestamp(zone):
            return _read_timestamp(text, zone)
        case Bits(width):
            padded = f"lpad({text}, {_at_least(width or 0, text)}, '0')"
            return f"(CASE WHEN {_matches(text, '[01]*')} THEN {padded} ELSE {misfit(text)} END)"
        case _:
            return misfit(text)


def _matches(text: str, pattern: str) -> str:
    return f"regexp_full_match({text}, '{pattern}')"


def _trimmed(text: str) -> str:
    return f"trim({text}, {_SPACES})"


def _read_number(text: str, number: str, nan: str, infinity: str, minus_infinity: str) -> str:
    trimmed = _trimmed(text)
    specials = (
        (patterns.NOT_A_NUMBER, nan),
        (patterns.INFINITY, infinity),
        (patterns.MINUS_INFINITY, minus_infinity),
    )
    found = " ".join(
        f"WHEN {_matches(f'lower({trimmed})', pattern)} THEN '{value}'"
        for pattern, value in specials
    )
    fits = f"strlen({text}) <= {patterns.LONGEST_NUMBER} AND {_matches(trimmed, patterns.NUMBER)}"
    return f"(CASE WHEN {fits} THEN {number} {found} ELSE {misfit(text)} END)"


def _plain_number(text: str, scale: int | None) -> str:
    """A number's digits moved by its exponent: no type of DuckDB holds every decimal.

    `n` has sign, whole part, fraction and exponent; `d` all digits and the place of the point; `p`
    the parts without needless zeros.
    """
    groups = "^([+-]?)([0-9]*)[.]?([0-9]*)(?:[eE]([+-]?[0-9]+))?$"
    exponent = "COALESCE(TRY_CAST(truecopy_n.e AS INTEGER), 0)"
    point = f"CAST(strlen(truecopy_n.w) + {exponent} AS INTEGER)"
    moved = (
        f"{{s: truecopy_n.s, t: truecopy_n.w || truecopy_n.f, p: {point}, z: greatest({point}, 0)}}"
    )
    whole = "ltrim(rpad(left(truecopy_d.t, truecopy_d.z), truecopy_d.z, '0'), '0')"
    fraction = "rtrim(repeat('0', greatest(-truecopy_d.p, 0)) || substr(truecopy_d.t, truecopy_d.z + 1), '0')"
    parts = f"{{s: truecopy_d.s, w: {whole}, f: {fraction}}}"
    padded = (
        f"rpad(truecopy_p.f, {_at_least(scale, 'truecopy_p.f')}, '0')" if scale else "truecopy_p.f"
    )
    sign = (
        "CASE WHEN truecopy_p.s = '-' AND truecopy_p.w || truecopy_p.f <> '' THEN '-' ELSE '' END"
    )
    final = (
        f"{sign} || CASE WHEN truecopy_p.w = '' THEN '0' ELSE truecopy_p.w END"
        f" || CASE WHEN {padded} = '' THEN '' ELSE '.' || {padded} END"
    )
    match = f"regexp_extract({text}, '{groups}', ['s', 'w', 'f', 'e'])"
    return _let("n", match, _let("d", moved, _let("p", parts, final)))


def _clock(minutes: str, seconds: str, fraction: str) -> str:
    return f"':' || {minutes} || ':' || {_or_zero(seconds)} || '.' || rpad({fraction}, 6, '0')"


def _or_zero(group: str) -> str:
    return f"CASE WHEN {group} = '' THEN '00' ELSE {group} END"


def _read_groups(text: str, pattern: str, names: str, found: str) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    match = f"regexp_extract({text}, '^{pattern}$', [{listed}])"
    fits = _matches(text, pattern)
    return f"(CASE WHEN {fits} THEN {_let('m', match, found)} ELSE {misfit(text)} END)"


def _read_timestamp(text: str, zone: bool) -> str:
    hours, minutes = _or_zero("truecopy_m.b"), _or_zero("truecopy_m.c")
    moment = f"truecopy_m.a || ' ' || {hours} || {_clock(minutes, 'truecopy_m.d', 'truecopy_m.e')}"
    found = moment
    if zone:
        utc = f"make_timestamp(epoch_us(TRY_CAST({moment} || truecopy_m.f AS TIMESTAMPTZ)))"
        inside = f"{utc} >= TIMESTAMP '0001-01-01' AND {utc} < TIMESTAMP '10000-01-01'"
        real = f"{_matches(text, patterns.REAL_INSTANT)} AND left({text}, 4) <> '0000' AND {inside}"
        found = (
            f"CASE WHEN truecopy_m.f IN ('', 'Z', 'UTC') THEN {moment}"
            f" WHEN {real} THEN {_moment_text(utc)} ELSE {misfit(text)} END"
        )
    return _read_groups(text, patterns.TIMESTAMP, "abcdef", found)
