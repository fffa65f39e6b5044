"""Packed DECIMAL: nine digits in four bytes, on each side of the point; fewer digits in fewer bytes."""

from __future__ import annotations

from collections.abc import Callable

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def size(precision: int, scale: int) -> int:
    """Bytes of a value."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def decimal(precision: int, scale: int) -> Callable[[bytes], bytes]:
    """The text of a packed value, with all digits of its scale; zero has no sign."""
    whole = precision - scale
    # The groups in their order: the short one is first before the point, and last after it.
    groups = [
        (_DIGIT_BYTES[n], n)
        for n in (whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9)
        if n
    ]
    length = size(precision, scale)
    sign_bit = 0x80 << 8 * (length - 1)
    all_bits = (1 << 8 * length) - 1
    shifts: list[tuple[int, int, int]] = []
    at = length
    for width, digits in groups:
        at -= width
        shifts.append((8 * at, (1 << 8 * width) - 1, 10**digits))

    def text(raw: bytes) -> bytes:
        n = int.from_bytes(raw, "big") ^ sign_bit
        negative = n & sign_bit
        if negative:
            n ^= all_bits
        number = 0
        for shift, mask, power in shifts:
            number = number * power + (n >> shift & mask)
        digits = b"%0*d" % (scale + 1, number)
        if negative and number:
            digits = b"-" + digits
        return digits[:-scale] + b"." + digits[-scale:] if scale else digits

    return text
