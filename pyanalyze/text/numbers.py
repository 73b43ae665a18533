"""Numbers in text from outside: bounded before they are computed with, so that no input takes long or overflows."""

from __future__ import annotations

import math
import re

__all__ = [
    "FARTHEST_NS",
    "LARGEST",
    "MOST_PID",
    "MOST_THREADS",
    "bounded_float",
    "bounded_int",
    "bounded_time_ns",
    "within_64_bits",
]

#: The most that fits into a signed integer of 64 bits, which times and sizes have in tables.
LARGEST = (1 << 63) - 1
#: No clock shows a time further from zero (146 years), and sums and differences of two such times fit into 64 bits.
FARTHEST_NS = 1 << 62
#: Tables hold process ids in 32 bits; Linux gives out 22.
MOST_PID = (1 << 32) - 1
#: More than any machine has processors; polars panics at numbers of more than 64 bits.
MOST_THREADS = 1 << 16
#: Python refuses to convert texts of more than 4,300 digits and takes quadratic time below; no table holds so many.
_WHOLE = re.compile(r"([+-]?)(?:0[xX]0*([0-9a-fA-F]{1,16})|0*([0-9]{1,19}))")


def bounded_int(text: str, least: int = 0, most: int = LARGEST) -> int | None:
    """Read a whole number in decimal or, with 0x, hexadecimal digits; None: it is none, or out of bounds.

    Examples
    --------
    >>> bounded_int("4711"), bounded_int("0x10"), bounded_int("9" * 5000), bounded_int("-1"), bounded_int("1_0")
    (4711, 16, None, None, None)
    """
    found = _WHOLE.fullmatch(text.strip(" \t\r\n"))
    if found is None:
        return None
    sign, hexadecimal, decimal = found.groups()
    number = int(decimal) if hexadecimal is None else int(hexadecimal, 16)
    number = -number if sign == "-" else number
    return number if least <= number <= most else None


def bounded_time_ns(number: int) -> int | None:
    """Give back a time or a length of time in nanoseconds; None: no clock shows it.

    Examples
    --------
    >>> bounded_time_ns(-5), bounded_time_ns(1 << 63)
    (-5, None)
    """
    return number if -FARTHEST_NS <= number <= FARTHEST_NS else None


def within_64_bits(value: object) -> bool:
    """Whether every whole number in plain data fits into a signed integer of 64 bits.

    Data that holds itself (YAML has references) is looked at once.

    Examples
    --------
    >>> within_64_bits({"a": [1, -2, True]}), within_64_bits({"a": [1 << 63]})
    (True, False)
    """
    waiting = [value]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, (dict, list, tuple)):
            if id(one) in seen:
                continue
            seen.add(id(one))
            waiting += [*one, *one.values()] if isinstance(one, dict) else one
        elif isinstance(one, int) and not -LARGEST - 1 <= one <= LARGEST:
            return False
    return True


def bounded_float(text: object, least: float = -math.inf, most: float = math.inf) -> float | None:
    """Read a number; None: it is none, not finite, or out of bounds.

    Examples
    --------
    >>> [bounded_float(text, most=100) for text in ("12.5", "inf", "nan", "1e400", "101", None)]
    [12.5, None, None, None, None, None]
    """
    if not isinstance(text, str | int | float):
        return None
    try:
        number = float(text)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and least <= number <= most else None
