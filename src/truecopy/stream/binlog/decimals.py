"""Packed DECIMAL: nine digits in four bytes, on each side of the point; fewer digits in fewer bytes."""

from __future__ import annotations

from collections.abc import Callable

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def size(precision: int, scale: int) -> int:
    """Bytes of a value."""
    whole = precision - scale
    return whole // 9 * 4 + _DIGIT_BYTES[whole % 9] + scale // 9 * 4 + _DIGIT_BYTES[scale % 9]


def expression(precision: int, scale: int, name: str) -> tuple[str, int]:
    """The text of a value that is not below zero, and what to take from its bytes as a number first.

    The expression's `name` stands for the number; the groups are parts of it.
    """
    whole, fraction = _groups(precision, scale)
    bits = 8 * size(precision, scale)
    numbers = []
    at = bits
    for width, _ in whole + fraction:
        at -= 8 * width
        part = name if not at else f"{name} >> {at}"
        # Nothing lies before the first one.
        numbers.append(part if at + 8 * width == bits else f"{part} & {(1 << 8 * width) - 1}")
    number = "0"
    for part, (_, digits) in zip(numbers, whole, strict=False):
        number = f"({part})" if number == "0" else f"({number} * {10**digits} + ({part}))"
    places = "".join(f"%0{digits}d" for _, digits in fraction)
    rest = "".join(f", {part}" for part in numbers[len(whole) :])
    point = "." if scale else ""
    return f'b"%d{point}{places}" % ({number}{rest},)', 1 << bits - 1


def _groups(precision: int, scale: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Bytes and digits of each group: the short one is first before the point, and last after it."""
    whole = precision - scale
    before = [n for n in (whole % 9, *[9] * (whole // 9)) if n]
    after = [n for n in (*[9] * (scale // 9), scale % 9) if n]
    return [(_DIGIT_BYTES[n], n) for n in before], [(_DIGIT_BYTES[n], n) for n in after]


def decimal(precision: int, scale: int) -> Callable[[bytes], bytes]:
    """The text of a packed value, with all digits of its scale; zero has no sign."""
    whole, fraction = _groups(precision, scale)
    length = size(precision, scale)
    sign_bit = 0x80 << 8 * (length - 1)
    all_bits = (1 << 8 * length) - 1
    shifts: list[tuple[int, int, int]] = []
    at = length
    for width, digits in whole + fraction:
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
