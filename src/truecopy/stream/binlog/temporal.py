"""Dates and times of the binary log as canonical text.

Zero dates and dates without a day or month are printed as the server prints them: they are values,
however odd. Fractions are always six digits, as canonical text wants them.

A function here takes the stored bytes; most end in front of the fraction, which the decoder adds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from truecopy.stream.binlog.caching import Cache

FRACTION_BYTES = (0, 1, 1, 2, 2, 3, 3)
"""Bytes of the fraction, by its digits."""

# MariaDB with mysql56_temporal_format=OFF, by digits after the second.
OLD_TIME_BYTES = (3, 4, 4, 5, 5, 5, 6)
OLD_DATETIME_BYTES = (8, 6, 6, 7, 7, 7, 8)

_FIRST_DAY = dt.date(1970, 1, 1).toordinal()
_ALL_DAYS = 86_400


def fraction_unit(digits: int) -> int:
    """Microseconds in one unit of a stored fraction, which has an even number of digits."""
    return (1_000_000, 10_000, 100, 1)[FRACTION_BYTES[digits]]


def date(raw: bytes) -> bytes:
    """DATE: 15 bits of the year, 4 of the month, 5 of the day."""
    n = int.from_bytes(raw, "little")
    return b"%04d-%02d-%02d" % (n >> 9, n >> 5 & 15, n & 31)


def datetime(raw: bytes) -> bytes:
    """DATETIME down to the second: a sign, 17 bits of year * 13 + month, then day, hour, minute, second."""
    n = int.from_bytes(raw, "big")
    return _packed_days[n >> 17] + _packed_clocks[n & 0x1FFFF]


def _packed_day(n: int) -> bytes:
    months = n >> 5 & 0x1FFFF
    return b"%04d-%02d-%02d " % (months // 13, months % 13, n & 31)


def _packed_clock(n: int) -> bytes:
    return b"%02d:%02d:%02d" % (n >> 12, n >> 6 & 63, n & 63)


_packed_days = Cache(_packed_day)
_packed_clocks = Cache(_packed_clock, _ALL_DAYS)


def timestamp(raw: bytes) -> bytes:
    """TIMESTAMP down to the second: seconds since the epoch, or nothing at all for the zero date."""
    return instant(int.from_bytes(raw, "big")) if any(raw) else b"0000-00-00 00:00:00"


def instant(seconds: int) -> bytes:
    """A moment in UTC, down to the second."""
    day, second = divmod(seconds, _ALL_DAYS)
    return _days[day] + _clocks[second]


def _day(n: int) -> bytes:
    return b"%b " % dt.date.fromordinal(_FIRST_DAY + n).isoformat().encode()


def _clock(n: int) -> bytes:
    return b"%02d:%02d:%02d" % (n // 3600, n // 60 % 60, n % 60)


_days = Cache(_day)
_clocks = Cache(_clock, _ALL_DAYS)


def time(fraction: int) -> Callable[[bytes], bytes]:
    """TIME(n): a number around a zero point, so that the order of the bytes is that of the times."""
    bits = 8 * FRACTION_BYTES[fraction]
    unit = fraction_unit(fraction)
    zero = 0x800000 << bits

    def text(raw: bytes) -> bytes:
        n = int.from_bytes(raw, "big") - zero
        sign, n = (b"-", -n) if n < 0 else (b"", n)
        n, part = n >> bits, (n & ((1 << bits) - 1)) * unit
        return b"%b%02d:%02d:%02d.%06d" % (sign, n >> 12 & 0x3FF, n >> 6 & 63, n & 63, part)

    return text


# What MySQL wrote before 5.6, and MariaDB still does with mysql56_temporal_format=OFF.


def old_datetime(fraction: int) -> Callable[[bytes], bytes]:
    """The digits YYYYMMDDhhmmss as a number; with a fraction, units of it in mixed radix."""
    if not fraction:
        return _digits_datetime
    per_second, unit = _powers(fraction)

    def text(raw: bytes) -> bytes:
        n, part = divmod(int.from_bytes(raw, "big"), per_second)
        n, second = divmod(n, _ALL_DAYS)
        n, day = divmod(n, 32)
        return b"%04d-%02d-%02d %b.%06d" % (n // 13, n % 13, day, _clock(second), part * unit)

    return text


def old_time(fraction: int) -> Callable[[bytes], bytes]:
    """The digits hhmmss as a number with a sign; with a fraction, units of it around a zero point."""
    if not fraction:
        return _digits_time
    per_second, unit = _powers(fraction)
    zero = 839 * 3600 * per_second

    def text(raw: bytes) -> bytes:
        n = int.from_bytes(raw, "big") - zero
        sign, n = (b"-", -n) if n < 0 else (b"", n)
        second, part = divmod(n, per_second)
        return b"%b%b.%06d" % (sign, _clock(second), part * unit)

    return text


def old_timestamp(fraction: int) -> Callable[[bytes], bytes]:
    """Seconds since the epoch, and with a fraction its digits as a number."""
    _, unit = _powers(fraction)

    def text(raw: bytes) -> bytes:
        if not any(raw):
            return b"0000-00-00 00:00:00.000000"
        seconds = int.from_bytes(raw[:4], "big" if fraction else "little")
        return b"%b.%06d" % (instant(seconds), int.from_bytes(raw[4:], "big") * unit)

    return text


def _digits_datetime(raw: bytes) -> bytes:
    day, clock = divmod(int.from_bytes(raw, "little"), 1_000_000)
    return b"%04d-%02d-%02d %02d:%02d:%02d.000000" % (*_digits(day), *_digits(clock))


def _digits_time(raw: bytes) -> bytes:
    n = int.from_bytes(raw, "little", signed=True)
    return b"%b%02d:%02d:%02d.000000" % (b"-" if n < 0 else b"", *_digits(abs(n)))


def _digits(n: int) -> tuple[int, int, int]:
    return n // 10_000, n // 100 % 100, n % 100


def _powers(fraction: int) -> tuple[int, Any]:
    return 10**fraction, 10 ** (6 - fraction)
