"""Dates and times of the binary log as canonical text.

Zero dates and dates without a day or month are printed as the server prints them: they are values,
however odd. Fractions are always six digits, as canonical text wants them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ZERO_TIMESTAMP = b"0000-00-00 00:00:00.000000"

FRACTION_BYTES = (0, 1, 1, 2, 2, 3, 3)
# MariaDB with mysql56_temporal_format=OFF, by digits after the second.
OLD_TIME_BYTES = (3, 4, 4, 5, 5, 5, 6)
OLD_DATETIME_BYTES = (8, 6, 6, 7, 7, 7, 8)


def date(raw: bytes) -> bytes:
    """DATE: 15 bits of the year, 4 of the month, 5 of the day."""
    n = int.from_bytes(raw, "little")
    return b"%04d-%02d-%02d" % (n >> 9, n >> 5 & 15, n & 31)


def datetime(fraction: int) -> Callable[[bytes], bytes]:
    """DATETIME(n): 40 bits down to the second, then the fraction in units of its storage."""
    bits = 8 * FRACTION_BYTES[fraction]
    unit = _unit(fraction)

    def text(raw: bytes) -> bytes:
        n = int.from_bytes(raw, "big")
        n, part = n >> bits, (n & ((1 << bits) - 1)) * unit
        months = n >> 22 & 0x1FFFF
        return b"%04d-%02d-%02d %02d:%02d:%02d.%06d" % (
            months // 13,
            months % 13,
            n >> 17 & 31,
            n >> 12 & 31,
            n >> 6 & 63,
            n & 63,
            part,
        )

    return text


def timestamp(fraction: int) -> Callable[[bytes], bytes]:
    """TIMESTAMP(n): seconds since the epoch, then the fraction; all zeros is the zero date."""
    unit = _unit(fraction)

    def text(raw: bytes) -> bytes:
        return instant(int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big") * unit)

    return text


def instant(seconds: int, micros: int) -> bytes:
    """A moment in UTC; the very first one stands for the zero date."""
    if not seconds and not micros:
        return ZERO_TIMESTAMP
    moment = _EPOCH + dt.timedelta(seconds=seconds, microseconds=micros)
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds").encode()


def time(fraction: int) -> Callable[[bytes], bytes]:
    """TIME(n): a number around a zero point, so that the order of the bytes is that of the times."""
    bits = 8 * FRACTION_BYTES[fraction]
    unit = _unit(fraction)
    zero = 0x800000 << bits

    def text(raw: bytes) -> bytes:
        n = int.from_bytes(raw, "big") - zero
        sign, n = (b"-", -n) if n < 0 else (b"", n)
        n, part = n >> bits, (n & ((1 << bits) - 1)) * unit
        return b"%b%02d:%02d:%02d.%06d" % (sign, n >> 12 & 0x3FF, n >> 6 & 63, n & 63, part)

    return text


def old_date_time(raw: bytes) -> bytes:
    """DATETIME of MySQL 5.5: the digits YYYYMMDDhhmmss as a number."""
    day, clock = divmod(int.from_bytes(raw, "little"), 1_000_000)
    return b"%04d-%02d-%02d %02d:%02d:%02d.000000" % (*_digits(day), *_digits(clock))


def old_time(raw: bytes) -> bytes:
    """TIME of MySQL 5.5: the digits hhmmss as a number with a sign."""
    n = int.from_bytes(raw, "little", signed=True)
    return b"%b%02d:%02d:%02d.000000" % (b"-" if n < 0 else b"", *_digits(abs(n)))


def old_timestamp(raw: bytes) -> bytes:
    """TIMESTAMP of MySQL 5.5: seconds since the epoch."""
    return instant(int.from_bytes(raw, "little"), 0)


def maria_datetime(fraction: int) -> Callable[[bytes], bytes]:
    """MariaDB's own DATETIME(n) with n > 0: units of the fraction since the year 0, in mixed radix."""
    per_second = 10**fraction

    def text(raw: bytes) -> bytes:
        n, part = divmod(int.from_bytes(raw, "big"), per_second)
        n, seconds = divmod(n, 60)
        n, minutes = divmod(n, 60)
        n, hours = divmod(n, 24)
        n, day = divmod(n, 32)
        year, month = divmod(n, 13)
        micros = part * 10 ** (6 - fraction)
        return b"%04d-%02d-%02d %02d:%02d:%02d.%06d" % (
            year,
            month,
            day,
            hours,
            minutes,
            seconds,
            micros,
        )

    return text


def maria_time(fraction: int) -> Callable[[bytes], bytes]:
    """MariaDB's own TIME(n) with n > 0: units of the fraction around a zero point."""
    per_second = 10**fraction
    zero = (838 * 3600 + 59 * 60 + 59 + 1) * per_second

    def text(raw: bytes) -> bytes:
        n = int.from_bytes(raw, "big") - zero
        sign, n = (b"-", -n) if n < 0 else (b"", n)
        n, part = divmod(n, per_second)
        micros = part * 10 ** (6 - fraction)
        return b"%b%02d:%02d:%02d.%06d" % (sign, n // 3600, n // 60 % 60, n % 60, micros)

    return text


def maria_timestamp(fraction: int) -> Callable[[bytes], bytes]:
    """MariaDB's own TIMESTAMP(n) with n > 0: seconds, then the digits of the fraction as a number."""
    unit = 10 ** (6 - fraction)

    def text(raw: bytes) -> bytes:
        return instant(int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big") * unit)

    return text


def _unit(fraction: int) -> int:
    """Microseconds in one unit of the stored fraction, which has an even number of digits."""
    return (1_000_000, 10_000, 100, 1)[FRACTION_BYTES[fraction]]


def _digits(n: int) -> tuple[int, int, int]:
    return n // 10_000, n // 100 % 100, n % 100
