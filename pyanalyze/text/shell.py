"""Shell commands as text; words of them that hold foreign text: names of captures, processes and folders."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pyanalyze.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["continued", "shell_line", "shell_word"]


def shell_word(text: str) -> str:
    r"""Quote a text so that a shell takes it for one word, and a terminal shows all of it.

    A text with control characters or marks that turn text around is written with ``$'...'`` (bash, zsh, POSIX of 2024):
    a terminal would act on them inside plain quotes, and escaped there they would be another word.

    Examples
    --------
    >>> shell_word("run-1.sqlite"), shell_word("my run; rm -rf ~"), shell_word("a\x1b[2J'\u202e")
    ('run-1.sqlite', "'my run; rm -rf ~'", "$'a\\033[2J\\'\\342\\200\\256'")
    """
    if visible(text, limit=None) == text:
        return shlex.quote(text)
    return "$'" + "".join(map(_unit, text)) + "'"


def _unit(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if visible(char) == char:
        return char
    # Octal has a fixed length: a digit behind it stays a digit. Bytes of a file name that are no UTF-8 are what they
    # were; other lone surrogates have no bytes.
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", errors))


def shell_line(words: Iterable[str]) -> str:
    """Quote and join the words of a command.

    Examples
    --------
    >>> shell_line(["pyanalyze", "my run.sqlite"])
    "pyanalyze 'my run.sqlite'"
    """
    return " ".join(map(shell_word, words))


def continued(command: str, columns: int) -> list[str]:
    r"""Break a command into lines that a shell reads as one: at blanks outside quotes, with a backslash at the end.

    A word that is longer than a line stands on a line of its own. A comment is left out: it would swallow what follows
    a line break.

    Parameters
    ----------
    command
        One command.
    columns
        Characters of a line, the backslash included.

    Examples
    --------
    >>> continued("ps -o pid,user -p 41377", 100)
    ['ps -o pid,user -p 41377']
    >>> continued("kubectl label node 'a b' nvidia.com/mig.config=all", 30)
    ["kubectl label node 'a b' \\", '  nvidia.com/mig.config=all']
    >>> continued(r"rm $'a\' b' c", 14)
    ["rm $'a\\' b' \\", '  c']
    >>> continued("mig -lgi  # as root", 100), continued("# record first", 100)
    (['mig -lgi'], [])
    """
    words: list[str] = [""]
    quote = before = ""
    for character in command:
        if quote:
            # Between $' and ' a backslash keeps a quotation mark from ending the word.
            if character == quote[-1] and not (quote == "$'" and before == "\\"):
                quote = ""
            before = "" if before == "\\" else character
        elif character == "#" and not words[-1]:
            break
        elif character in "'\"":
            quote = "$'" if character == "'" and words[-1].endswith("$") else character
        elif character == " ":
            words.append("")
            continue
        words[-1] += character
    lines: list[str] = []
    for word in filter(None, words):
        if not lines:
            lines = [word]
        elif len(lines[-1]) + 1 + len(word) > columns - 2:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return lines
