"""The one place where hostile text becomes something that can be shown.

Kernel, process, NVTX and device names come from programs we know nothing about. They may hold terminal
escapes, bidirectional marks that reorder what follows, newlines that fake a line of ours, or ten kilobytes of
template arguments. :func:`visible` makes every such character visible; escaping for HTML or Markdown comes
on top, in the renderer.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["json_text", "markdown", "printable", "program", "told_apart", "visible"]

#: Longest name that is shown whole, in characters.
NAME_LIMIT = 60

# Cc controls, Cf format marks (all bidi marks, zero-width characters, tags), Cs lone surrogates,
# Zl / Zp line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


#: Whatever may be one of those; text of ours is not looked at character by character.
_NOT_PLAIN = re.compile(r"[^\n\t -~]")


def _unit(char: str) -> str:
    if " " <= char <= "~" or unicodedata.category(char) not in _UNSEEN:
        return char
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable(text: str) -> str:
    r"""Text of several lines, as it leaves the program: nothing in it but line ends and tabs commands a terminal.

    Names are made visible where a sentence is put together, which alone knows whether a line end is its own. This is
    the last look, for what was forgotten there.

    Examples
    --------
    >>> print(printable("one\x1b[2J\ntwo"))
    one\x1b[2J
    two
    """
    return _NOT_PLAIN.sub(lambda found: _unit(found[0]), text)


def json_text(value: Any, indent: int | None = 2) -> str:
    r"""JSON with names as they are, but nothing in it that a terminal would hide, move or turn around.

    Examples
    --------
    >>> print(json_text({"name": "grün \u202egnp.exe"}))
    {
      "name": "grün \u202egnp.exe"
    }
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    # Outside of strings there is nothing but ASCII: an escape means the same text to every reader.
    return re.sub(
        r"[^\n -~]", lambda m: json.dumps(m[0])[1:-1] if unicodedata.category(m[0]) in _UNSEEN else m[0], text
    )


def program(name: str) -> str:
    """A process by its program, without the folder that it was called from.

    Examples
    --------
    >>> program("/home/me/venv/bin/python"), program("./nussinov"), program("team/web")
    ('python', 'nussinov', 'team/web')
    """
    called_from = name.startswith(("/", "./", "../"))
    return (called_from and name.rpartition("/")[2]) or name


def told_apart(tenants: Iterable[tuple[int, str, int | None, int | None]]) -> dict[int, str]:
    """Names that tell the tenants of a device apart, the same wherever they are spoken of.

    Parameters
    ----------
    tenants
        Id, name, pid and pid on the host of all of them, in order.

    Examples
    --------
    >>> told_apart([(0, "python3", 1, 4711), (1, "python3", 1, 815), (2, "app", 7, None)])
    {0: 'python3 (host pid 4711)', 1: 'python3 (host pid 815)', 2: 'app'}
    """
    tenants = list(tenants)
    labels: dict[int, str] = {}
    named = Counter(name for _, name, _, _ in tenants)
    alike = Counter((name, pid) for _, name, pid, _ in tenants)
    taken: set[str] = set()
    for tenant_id, name, pid, host_pid in tenants:
        label = name
        # In containers every tenant may be pid 1 of the same program: then only the host's pid tells them apart.
        if host_pid is not None and alike[name, pid] > 1:
            label = f"{label} (host pid {host_pid})"
        elif named[name] > 1 and pid is not None:
            label = f"{label} (pid {pid})"
        # Names are foreign text: two tenants must never merge into one because of them.
        while label in taken:
            label = f"{label} #{tenant_id}"
        labels[tenant_id] = label
        taken.add(label)
    return labels


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
    # Nearly all text: what Python calls printable holds none of what is escaped here.
    if text.isprintable() and (limit is None or len(text) <= limit):
        return text
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


# What CommonMark or a forge gives a meaning inside a line. An underscore between two letters means nothing and stays
# readable, one in a row of them may not: to the next one it is punctuation. `://`, `www.` and `:name:` would become
# links and emoji.
# A `&` before a blank or itself opens nothing; one at the end could, with what follows the text.
_MARKDOWN = re.compile(
    r"[\\`*\[\]<|~$]|&(?=[#A-Za-z0-9]|$)|(?<![^\W_])_|_(?![^\W_])|:(?=[A-Za-z+/_-])|(?<=w)w(?=w\.)",
    re.IGNORECASE,
)
# Forges look for mentions and issue numbers in the rendered text, where an entity is a plain character again:
# only something between the sign and the word keeps people from being notified.
_MENTION = re.compile(r"[@#!](?=\w)")


def markdown(text: str) -> str:
    """Escape shown text (see :func:`visible`) for a Markdown paragraph or table cell.

    Numeric entities instead of backslashes: they work inside tables on every forge. ``@name`` and ``#12`` get
    a zero-width space, so that they notify nobody and link nothing.

    Examples
    --------
    >>> markdown("a|b <i> @me switch_cost")
    'a&#124;b &#60;i> @&#8203;me switch_cost'
    """
    escaped = _MARKDOWN.sub(lambda match: f"&#{ord(match.group())};", text)
    # Not the `#` of the entities just written: they follow an ampersand.
    return re.sub(r"(?<!&)" + _MENTION.pattern, lambda match: match.group() + "&#8203;", escaped)
