"""Text inside charts, in a form that the drawing engine can cut."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["whole_characters"]

_Picture = TypeVar("_Picture")


def whole_characters(draw: Callable[[Any], _Picture], spec: Any) -> _Picture:
    r"""Draw a chart whose labels may hold characters outside the Basic Multilingual Plane (emoji, for one).

    Such a character is two units of UTF-16. The engine shortens a label that is too wide for its place unit by unit,
    and refuses the text that it gets if it cuts between the two. Then those characters are drawn as their code points
    (U+1F680), which can be cut anywhere and keep different names different.

    Parameters
    ----------
    draw
        Makes the picture of a specification.
    spec
        A specification, its data in lists and not as JSON text.

    Raises
    ------
    ValueError
        The chart cannot be drawn, for another reason.

    Examples
    --------
    >>> def engine(spec):
    ...     return spec["title"].encode("latin-1").decode()
    >>> whole_characters(engine, {"title": "train \U0001f680"})
    'train U+1F680'
    """
    try:
        return draw(spec)
    except ValueError:
        escaped = _escaped(spec)
        if escaped == spec:
            raise
        return draw(escaped)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub(r"[\U00010000-\U0010ffff]", lambda found: f"U+{ord(found[0]):X}", value)
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    if isinstance(value, dict):
        return {_escaped(key): _escaped(one) for key, one in value.items()}
    return value
