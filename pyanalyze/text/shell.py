"""Shell commands as text."""

from __future__ import annotations

__all__ = ["continued"]


def continued(command: str, columns: int) -> list[str]:
    r"""Break a command into lines that a shell reads as one: at blanks outside quotes, with a backslash at the end.

    A word that is longer than a line stands on a line of its own.

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
    """
    words: list[str] = [""]
    quote = ""
    for character in command:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == " ":
            words.append("")
            continue
        words[-1] += character
    lines = [""]
    for word in filter(None, words):
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else lines[-1] + word
        if len(longer) > columns - 2 and lines[-1].strip():
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] = longer
    return lines
