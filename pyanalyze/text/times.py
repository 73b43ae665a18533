"""Points in time as people write them: nsys syntax (`1s200ms`), nanoseconds, or a date with a zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from pyanalyze.errors import UsageError
from pyanalyze.text.numbers import bounded_int, bounded_time_ns

__all__ = ["Moment", "around_ns", "duration_ns", "position_ns"]

#: What a point in time may be given as.
Moment = int | str | datetime

_UNITS_NS = {"h": 3_600_000_000_000, "min": 60_000_000_000, "m": 60_000_000_000, "s": 10**9, "sec": 10**9}
_UNITS_NS |= {"ms": 10**6, "us": 10**3, "µs": 10**3, "μs": 10**3, "ns": 1}
_PART = re.compile(r"([0-9]+)(?:\.([0-9]+))?\s*(min|sec|ms|us|µs|μs|ns|h|m|s)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Length of what `around` shows when only a point is given.
AROUND_NS = 1_000_000_000


def duration_ns(text: str) -> int:
    """Read a length of time in nsys syntax.

    Parameters
    ----------
    text
        Numbers with units one behind the other, `h`, `m` or `min`, `s` or `sec`, `ms`, `us`, `ns`, such as
        ``1s200ms`` or ``1.5ms``; a number alone is nanoseconds, as in nsys. A leading minus sign negates it.

    Returns
    -------
    int
        Nanoseconds.

    Raises
    ------
    pyanalyze.errors.UsageError
        Anything else.

    Examples
    --------
    >>> duration_ns("1s200ms"), duration_ns("1.5ms"), duration_ns("250")
    (1200000000, 1500000, 250)
    """
    given = text.strip()
    sign, body = (-1, given[1:].strip()) if given.startswith("-") else (1, given)
    if body.isascii() and body.isdecimal():
        return _within(text, sign * _bounded(text, body))
    total, at = 0, 0
    while at < len(body):
        part = _PART.match(body, at)
        if part is None:
            break
        whole, decimals, unit = part.groups()
        scale = _UNITS_NS[unit]
        # Exact: a float has not enough digits for nanoseconds of a long capture.
        total += _bounded(text, whole) * scale
        # Digits below an attosecond of an hour change no nanosecond.
        below = (decimals or "")[:18]
        total += int(below) * scale // 10 ** len(below) if below else 0
        at = part.end()
        while at < len(body) and body[at] == " ":
            at += 1
    if not body or at < len(body):
        raise UsageError(
            f"{text[:80]!r} is not a time: write it as nsys does, such as 1s200ms or 350us (a number alone is ns)"
        )
    return _within(text, sign * total)


def _bounded(text: str, digits: str) -> int:
    number = bounded_int(digits)
    if number is None:
        raise _too_far(text)
    return number


def _within(text: str, number_ns: int) -> int:
    if bounded_time_ns(number_ns) is None:
        raise _too_far(text)
    return number_ns


def _too_far(text: str) -> UsageError:
    shown = repr(text if len(text) <= 40 else f"{text[:40]}...")
    return UsageError(f"{shown} is out of range: times are at most 146 years from zero")


def position_ns(moment: Moment, origin_utc_ns: int | None) -> int:
    """Place a point in time on the session clock.

    Parameters
    ----------
    moment
        Nanoseconds on the session clock (where nsys shows the same times); text in nsys syntax, counted from the
        clock's zero; or an RFC 3339 date with its zone (text or :class:`datetime.datetime`).
    origin_utc_ns
        UTC time of the clock's zero, nanoseconds; None where the capture does not say.

    Returns
    -------
    int
        Nanoseconds on the session clock.

    Raises
    ------
    pyanalyze.errors.UsageError
        No such syntax, a date without a zone, or a date for a capture that does not know when it was made.

    Examples
    --------
    >>> position_ns("1s200ms", None)
    1200000000
    >>> position_ns("2023-11-14T22:13:21.5Z", 1_700_000_000_000_000_000)
    1500000000
    """
    if isinstance(moment, int):
        return _within(hex(moment), moment)
    if isinstance(moment, str):
        # A date has a time of day behind a T or a blank; no duration has.
        if not re.match(r"\s*\d{4}-\d\d-\d\d", moment):
            return duration_ns(moment)
        given = moment
        moment, below_ns = _dated(moment)
    else:
        given, below_ns = moment.isoformat(), 0
    if moment.tzinfo is None:
        raise UsageError(f"{given!r} has no time zone; end it with Z or an offset such as +09:00")
    if origin_utc_ns is None:
        raise UsageError(
            f"{given!r} cannot be placed: the input does not say when it was recorded (tables of nvidia-smi have no "
            "time zone). Use the time since its start, such as 1s200ms"
        )
    since = (moment - _EPOCH) // timedelta(microseconds=1)
    return _within(given, since * 1000 + below_ns - origin_utc_ns)


def _dated(text: str) -> tuple[datetime, int]:
    """Date and time, and the nanoseconds below the microsecond that Python's dates do not hold."""
    match = re.fullmatch(r"\s*(\S+?[T ]\S*?\d)(?:\.([0-9]{1,9}))?\s*(Z|z|[+-]\d\d:?\d\d)?\s*", text)
    base, decimals, zone = ("", "", "") if match is None else match.groups()
    digits = (decimals or "").ljust(9, "0")
    zone = "+00:00" if zone in ("Z", "z") else zone or ""
    try:
        return datetime.fromisoformat(f"{base}.{digits[:6]}{zone}"), int(digits[6:])
    except ValueError:
        raise UsageError(f"{text!r} is not an RFC 3339 date, such as 2026-03-14T05:26:53.7Z") from None


def around_ns(text: str, origin_utc_ns: int | None) -> tuple[int, int]:
    """Read `TIME` or `TIME/LENGTH`: a stretch of time with a point in its middle.

    Returns
    -------
    tuple of int
        Start and end, nanoseconds on the session clock; one second in all where no length is given.

    Examples
    --------
    >>> around_ns("1s/200ms", None)
    (900000000, 1100000000)
    """
    point, slash, length = text.partition("/")
    middle = position_ns(point.strip(), origin_utc_ns)
    whole = duration_ns(length) if slash else AROUND_NS
    if whole <= 0:
        raise UsageError(f"--around {text[:80]}: the length must be above zero")
    start = _within(text, middle - whole // 2)
    return start, _within(text, start + whole)
