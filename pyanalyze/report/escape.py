"""The one place where hostile text becomes something that can be shown.

Kernel, process, NVTX and device names come from programs we know nothing about. They may hold terminal
escapes, bidirectional marks that reorder what follows, newlines that fake a line of ours, or ten kilobytes of
template arguments. :func:`visible` makes every such character visible; escaping for HTML or Markdown comes
on top, in the renderer.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["markdown", "visible"]

#: Longest name that is shown whole, in characters.
NAME_LIMIT = 60

# Cc controls, Cf format marks (all bidi marks, zero-width characters, tags), Cs lone surrogates,
# Zl / Zp line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def _unit(char: str) -> str:
    if " " <= char <= "~" or unicodedata.category(char) not in _UNSEEN:
        return char
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible(text: str | None, limit: int | None = NAME_LIMIT) -> str:
    r"""Text of foreign origin, safe to show on one line.

    Controls, bidirectional and zero-width marks, line separators and lone surrogates become escapes such as
    ``\n`` or ``\u202e``. A text longer than `limit` characters is shortened in the middle, because C++ names
    differ at both ends; an escape is never cut in half.

    Parameters
    ----------
    text
        The name; ``None`` gives an empty string.
    limit
        Longest result in characters; ``None`` for no limit.

    Examples
    --------
    >>> visible("evil\x1b[2J\u202ename")
    'evil\\x1b[2J\\u202ename'
    >>> visible("a" * 100, limit=11)
    'aaaaa…aaaaa'
    """
    if not text:
        return ""
    if limit is None:
        return "".join(map(_unit, text))
    # Each source character gives at least one shown one: the ends alone decide about the result.
    if len(text) <= limit:
        whole = "".join(map(_unit, text))
        if len(whole) <= limit:
            return whole
    room = limit - 1
    head = _fill(text[:limit], room - room // 2)
    tail = _fill(text[: -limit - 1 : -1], room // 2)
    return "".join(head) + "…" + "".join(reversed(tail))


def _fill(chars: str, room: int) -> list[str]:
    units: list[str] = []
    for char in chars:
        unit = _unit(char)
        room -= len(unit)
        if room < 0:
            break
        units.append(unit)
    return units


# Everything that CommonMark or a forge gives a meaning inside a line. `@` and `#` would notify people and
# link issues, `:` would make emoji; a zero-width joiner would hide in copies, so entities are used instead.
_MARKDOWN = re.compile(r"[\\`*_{}\[\]()<>#|~!&@$^]|:(?=\S)|(?<=w)w(?=w\.)")


def markdown(text: str) -> str:
    """Escape shown text (see :func:`visible`) for a Markdown paragraph or table cell.

    Numeric entities instead of backslashes: they work inside tables on every forge, and ``@name`` or
    ``#12`` then neither notifies anybody nor links anything.

    Examples
    --------
    >>> markdown("a|b <i> @me")
    'a&#124;b &#60;i&#62; &#64;me'
    """
    return _MARKDOWN.sub(lambda match: f"&#{ord(match.group())};", text)
