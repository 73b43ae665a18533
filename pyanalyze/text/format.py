"""Numbers and sentences as people read them: three or four significant digits, always with the unit."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "UNKNOWN",
    "bytes_",
    "capital",
    "count",
    "duration",
    "full_stop",
    "interval",
    "names",
    "number",
    "percent",
    "quantities",
    "quantity",
    "ratio",
    "shortened",
    "shortened_apart",
    "signed_percent",
    "utc",
]

#: What stands where a value is not known. Never 0.
UNKNOWN = "not known"

#: Narrow no-break space: groups digits without inviting a line break or a decimal misreading.
_THIN = "\u202f"


def _digits(value: float, significant: int = 4) -> str:
    """`value` with `significant` digits and no exponent.

    Whole digits are never rounded away: 1230.8 stays four digits, 12345.6 becomes 12346.
    """
    if value == 0:
        return "0"
    if abs(value) < 10**significant:
        # Rounded first: 0.99999 has one whole digit in the end.
        value = float(f"{value:.{significant}g}")
    size = abs(value)
    whole = len(str(int(size))) if size >= 1 else 0
    if whole == 0:
        # 0.0427: the leading zeros are not digits.
        leading = 0
        while size < 0.1 and leading < 12:
            size *= 10
            leading += 1
        return f"{value:.{min(significant + leading, 12)}f}"
    return f"{value:.{max(significant - whole, 0)}f}"


def duration(ns: float | None) -> str:
    """Nanoseconds in the largest fitting unit of ns, us, ms, s; hours from three hours on, days from three days on.

    Examples
    --------
    >>> duration(2_131_000), duration(42_700), duration(1_230_800_000), duration(None)
    ('2.131 ms', '42.7 us', '1.231 s', 'not known')
    >>> duration(118_680e9), duration(1_722_851e9)
    ('32.97 h', '19.94 days')
    """
    if ns is None:
        return UNKNOWN
    size = abs(ns)
    if size < 1_000:
        return f"{ns:.0f} ns" if float(ns).is_integer() else f"{_digits(ns, 3)} ns"
    for unit, scale in (("us", 1e3), ("ms", 1e6)):
        # Switch costs are known to a tenth of a microsecond at best: three digits there.
        text = _digits(ns / scale, 3 if unit == "us" else 4)
        # What rounds to 1000 belongs to the next unit.
        if abs(float(text)) < 1000:
            return f"{text} {unit}"
    for unit, seconds in (("days", 86_400), ("h", 3_600)):
        if size >= 3e9 * seconds:
            return f"{_digits(ns / 1e9 / seconds)} {unit}"
    return f"{_digits(ns / 1e9)} s"


def bytes_(value: float | None) -> str:
    """Bytes in binary units.

    Examples
    --------
    >>> bytes_(512), bytes_(3 * 2**30)
    ('512 B', '3.00 GiB')
    """
    if value is None:
        return UNKNOWN
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} B" if unit == "B" else f"{_digits(size, 3)} {unit}"
        size /= 1024
    return UNKNOWN


def rate(bytes_per_s: float | None) -> str:
    """A rate of copying, in powers of ten as links are rated.

    Examples
    --------
    >>> rate(12.34e9), rate(8.5e6), rate(None)
    ('12.3 GB/s', '8.5 MB/s', 'not known')
    """
    if bytes_per_s is None:
        return UNKNOWN
    unit, size = ("GB/s", 1e9) if bytes_per_s >= 1e9 else ("MB/s", 1e6)
    return f"{bytes_per_s / size:.1f} {unit}"


def percent(fraction: float | None, decimals: int = 1) -> str:
    """A fraction as a percentage; small ones keep a digit.

    Examples
    --------
    >>> percent(0.49), percent(0.0004), percent(None), percent(0.914, 0)
    ('49.0 %', '0.04 %', 'not known', '91 %')
    """
    if fraction is None:
        return UNKNOWN
    value = 100 * fraction
    if decimals == 0 and (value == 0 or abs(value) >= 1):
        return f"{value:.0f} %"
    if value == 0 or abs(value) >= 0.1:
        return f"{value:.1f} %"
    return f"{value:.2f} %" if abs(value) >= 0.01 else "< 0.01 %" if value > 0 else f"{value:.2g} %"


def percent_range(value: float, low: float, high: float) -> str:
    """A fraction with the ends of its interval, as percentages; a range where one of the ends is all that is known.

    Examples
    --------
    >>> percent_range(0.61, 0.52, 0.7), percent_range(0.004, 0, 0.01)
    ('61 % (52 to 70)', '0.4 % (0 to 1)')
    >>> percent_range(0.72, 0.3, 0.72), percent_range(0.3, 0.3, 0.72), percent_range(0.72, 0.72, 0.72)
    ('30 to 72 %', '30 to 72 %', '72 %')
    """
    least, known, most = (percent(one, 0) for one in (low, value, high))
    if least == known == most:
        return known
    if known in (least, most):
        return f"{least.removesuffix(' %')} to {most}"
    return f"{known} ({least.removesuffix(' %')} to {most.removesuffix(' %')})"


def count(value: int | None) -> str:
    """A whole number, digits in groups of three.

    Examples
    --------
    >>> count(1213).replace("\u202f", "_")
    '1_213'
    """
    return UNKNOWN if value is None else f"{value:,}".replace(",", _THIN)


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things.

    Examples
    --------
    >>> counted(1, "copy", "copies"), counted(2, "copy", "copies"), counted(0, "kernel")
    ('1 copy', '2 copies', '0 kernels')
    """
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def ratio(value: float | None) -> str:
    """A slowdown.

    Examples
    --------
    >>> ratio(2.0408)
    '2.04x'
    """
    return UNKNOWN if value is None else f"{value:.2f}x"


def interval(low: float, high: float, digits: int = 2, basis: str = "observed") -> str:
    """A 95 % confidence interval of a factor; of one that is inferred the bounds of the model, which no sample gave.

    Examples
    --------
    >>> interval(2.861, 3.149), interval(2.861, 3.149, basis="inferred")
    ('95 % CI 2.86-3.15', 'bounds 2.86-3.15')
    """
    return f"{'bounds' if basis == 'inferred' else '95 % CI'} {low:.{digits}f}-{high:.{digits}f}"


def signed_percent(fraction: float | None) -> str:
    """A relative change as a percentage with its sign.

    Examples
    --------
    >>> signed_percent(-0.038), signed_percent(0.962), signed_percent(0.0)
    ('-3.8 %', '+96.2 %', '0.0 %')
    """
    if fraction is None:
        return UNKNOWN
    text = f"{100 * fraction:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def names(items: Sequence[str], most: int | None = None) -> str:
    """A list in words; of more than `most` the first ones, and how many more there are.

    Examples
    --------
    >>> names(["a"]), names(["a", "b"]), names(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    >>> names(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    if most is not None and len(items) > most:
        items = [*items[:most], f"{len(items) - most} more"]
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def shortened(text: str, columns: int) -> str:
    """Text in at most so many characters, the middle left out: names differ at both ends.

    Examples
    --------
    >>> shortened("gemm_128x128_tn", 20), shortened("void at::native::vectorized_kernel<4>", 20)
    ('gemm_128x128_tn', 'void at::n…kernel<4>')
    """
    if len(text) <= columns:
        return text
    head = columns // 2
    return f"{text[:head]}…{text[len(text) - (columns - head - 1) :]}"


def shortened_apart(texts: Iterable[str], columns: int) -> dict[str, str]:
    """Each of several texts in at most so many characters, and no two alike: where the ends are, what differs is kept.

    Examples
    --------
    >>> shortened_apart(["cudnn_generated_bprop_1x1_kernel", "cudnn_generated_fprop_1x1_kernel"], 20).values()
    dict_values(['cudnn…_bprop_…kernel', 'cudnn…_fprop_…kernel'])
    """
    alike: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        alike.setdefault(shortened(text, columns), []).append(text)
    found: dict[str, str] = {}
    taken = {short for short, of in alike.items() if len(of) == 1}
    for short, of in alike.items():
        # Whatever the first and the last in order have in common, all have.
        first, last = min(of), max(of)
        differ = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        for text in of:
            label = short if len(of) == 1 else _around(text, differ, columns)
            number = 1
            while len(of) > 1 and label in taken:
                number += 1
                mark = f" #{number}"
                label = shortened(text, columns - len(mark)) + mark
            taken.add(label)
            found[text] = label
    return found


def _around(text: str, at: int, columns: int) -> str:
    """The begin of a text, a part of it around a place, and its end."""
    if len(text) <= columns:
        return text
    middle = (columns - 2) * 2 // 5
    head = (columns - 2 - middle) // 2
    tail = columns - 2 - middle - head
    # From the begin of the word that differs.
    begins = max(at - middle // 2, text.rfind("_", 0, at), text.rfind("<", 0, at), text.rfind(":", 0, at) + 1)
    begins = min(max(begins, head), len(text) - tail - middle)
    return f"{text[:head]}…{text[begins : begins + middle]}…{text[len(text) - tail :]}"


def full_stop(text: str) -> str:
    """Text as a sentence: it ends in a mark.

    Examples
    --------
    >>> full_stop("done"), full_stop("Is it done?")
    ('done.', 'Is it done?')
    """
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else text + "."


def number(value: float | None) -> str:
    """A plain number with three significant digits, whole numbers whole."""
    if value is None:
        return UNKNOWN
    if float(value).is_integer() and abs(value) < 1e15:
        return count(int(value))
    return _digits(value, 3) if 1e-4 <= abs(value) < 1e9 else f"{value:.3g}"


def quantity(value: float | None, unit: str) -> str:
    """A value in the unit it was recorded in, scaled to be readable.

    Examples
    --------
    >>> quantity(42_700, "ns"), quantity(0.49, "fraction"), quantity(12, "1"), quantity(2.52e9, "Hz")
    ('42.7 us', '49.0 %', '12', '2520 MHz')
    """
    if value is None:
        return UNKNOWN
    if unit == "ns":
        return duration(value)
    if unit in ("bytes", "B"):
        return bytes_(value)
    if unit in ("fraction", "share"):
        return percent(value)
    if unit == "bytes/s":
        return rate(value)
    if unit == "Hz":
        return f"{value / 1e6:.0f} MHz"
    return number(value) if unit in ("1", "") else f"{number(value)} {unit}"


def quantities(low: float, high: float, unit: str) -> str:
    """A range of values, the unit once where it is the same.

    Examples
    --------
    >>> quantities(0.44, 0.91, "fraction"), quantities(3 * 2**20, 3 * 2**30, "bytes"), quantities(5, 5, "C")
    ('44.0 to 91.0 %', '3.00 MiB to 3.00 GiB', '5 C')
    """
    first, last = quantity(low, unit), quantity(high, unit)
    if first == last:
        return last
    same = first.rpartition(" ")[2] == last.rpartition(" ")[2] and " " in last
    return f"{first.rpartition(' ')[0] if same else first} to {last}"


def utc(origin_utc_ns: str | None, position_ns: int | None) -> str:
    """A position as UTC with milliseconds; where there is no origin, as seconds from the capture's zero.

    Examples
    --------
    >>> utc("1700000000000000000", 1_500_000_000)
    '2023-11-14 22:13:21.500 UTC'
    >>> utc(None, 1_500_000_000)
    '1.500 s after the zero of the first capture'
    """
    if position_ns is None:
        return UNKNOWN
    if origin_utc_ns is None:
        return f"{position_ns / 1e9:.3f} s after the zero of the first capture"
    milliseconds = (int(origin_utc_ns) + position_ns) // 1_000_000
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        # A damaged session start must not take the report down.
        return f"{milliseconds} ms after 1970 (not a date)"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d} UTC"


#: A word that may begin a sentence with a capital; a name (`trainer: ...`, `solo_1.sqlite is ...`, `nsys ...`) may not.
_WORD = re.compile(r"(?!nsys\b)(?:(?:yes|no)(?=:)|[a-z][a-z-]*(?=[\s,;]|[.!?]?$))")


def certainty(basis: str, confidence: float | None) -> str:
    """Say behind a mode how it is known, and how often such verdicts were right in simulations; None: not said.

    No simulated recording has samples or settings alone.

    Examples
    --------
    >>> certainty("observed", 0.984), certainty("inferred", None)
    ('(observed, confidence 0.98 in simulations)', '(inferred)')
    >>> certainty("sampled", 0.9)
    '(sampled, confidence 0.90)'
    """
    if confidence is None:
        return f"({basis})"
    return f"({basis}, confidence {confidence:.2f}{' in simulations' if basis in ('observed', 'inferred') else ''})"


def capital(text: str) -> str:
    """A sentence from its words; a name at its start stays as it is.

    Examples
    --------
    >>> capital("its kernels waited"), capital("trainer: its kernels waited")
    ('Its kernels waited', 'trainer: its kernels waited')
    """
    return text[:1].upper() + text[1:] if _WORD.match(text) else text
