"""Numbers in text from outside: bounded before they are computed with, so that no input takes long or overflows."""

from __future__ import annotations

import math

__all__ = ["bounded_float", "bounded_int", "within_64_bits"]

#: The most that fits into a signed integer of 64 bits, which times and sizes have in tables.
LARGEST = (1 << 63) - 1
#: Digits of it; Python refuses to convert texts of more than 4,300 and takes quadratic time below.
_MOST_DIGITS = 19


def bounded_int(text: str, least: int = 0, most: int = LARGEST) -> int | None:
    """Read a whole number in decimal or, with 0x, hexadecimal digits; None: it is none, or out of bounds.

    Examples
    --------
    >>> bounded_int("4711"), bounded_int("0x10"), bounded_int("9" * 5000), bounded_int("-1"), bounded_int("a")
    (4711, 16, None, None, None)
    """
    digits = text.strip().lstrip("+-")
    if len(digits.removeprefix("0x").lstrip("0")) > _MOST_DIGITS:
        return None
    try:
        number = int(text.strip(), 16 if digits.lower().startswith("0x") else 10)
    except ValueError:
        return None
    return number if least <= number <= most else None


def within_64_bits(value: object) -> bool:
    """Whether every whole number in plain data fits into a signed integer of 64 bits.

    Examples
    --------
    >>> within_64_bits({"a": [1, -2, True]}), within_64_bits({"a": [1 << 63]})
    (True, False)
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, int) and not -LARGEST - 1 <= one <= LARGEST:
            return False
    return True


def bounded_float(text: str | float, least: float = -math.inf, most: float = math.inf) -> float | None:
    """Read a number; None: it is none, not finite, or out of bounds.

    Examples
    --------
    >>> [bounded_float(text, most=100) for text in ("12.5", "inf", "nan", "1e400", "101")]
    [12.5, None, None, None, None]
    """
    try:
        number = float(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and least <= number <= most else None
