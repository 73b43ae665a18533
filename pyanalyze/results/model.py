"""What all results have in common: they are frozen, closed, and hold text and numbers that any JSON reader takes.

A result is constructed once, where it is computed; reports, charts and saved files hold that same object. What cannot
be known is ``None`` (JSON ``null``) with an entry in ``missing``, never zero.
"""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["Finite", "Fraction", "Missing", "Number", "Result", "Text", "rounded"]


def _valid_text(value: object) -> object:
    """Replace lone surrogates, which no UTF-8 file can hold: names come from foreign processes."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Text = Annotated[str, BeforeValidator(_valid_text)]
#: A float that may not be known; NaN and infinities read as not known.
Number = Annotated[float | None, BeforeValidator(_finite_or_none)]
#: A float that must be known: NaN and infinities are refused.
Finite = Annotated[float, Field(allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class Result(BaseModel):
    """Frozen, and closed: an unknown key is a bug of the caller, not an extension."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, ser_json_inf_nan="null")


#: Programs with which commands begin that capture what is missing.
_PROGRAMS = frozenset(("compute-sanitizer", "dcgmi", "echo", "nsys", "nvidia-smi", "pyanalyze"))


class Missing(Result):
    """Something that could not be looked at."""

    what: Text = Field(description="The key of this report that is null, or the records that were not captured.")
    why: Text = Field(description="Why it is not known.")
    how: Text = Field(description="The command or change that would capture it; empty: nothing would.")

    @property
    def is_command(self) -> bool:
        """Whether a shell runs it as it stands: it begins with a program, or variables for one, and is no sentence.

        Examples
        --------
        >>> Missing(what="a", why="b", how="nvidia-smi -L > gpus.txt").is_command
        True
        >>> Missing(what="a", why="b", how="CUDA_MPS_PIPE_DIRECTORY=/tmp/mps nsys profile PROGRAM").is_command
        True
        >>> Missing(what="a", why="b", how="record both with the same nsys").is_command
        False
        """
        words = itertools.dropwhile(lambda word: word.partition("=")[0].isupper() and "=" in word, self.how.split())
        return next(words, "") in _PROGRAMS


def rounded(value: Any) -> Any:
    """Plain data with nine significant digits: below every uncertainty here, and free of binary noise in diffs.

    Examples
    --------
    >>> rounded({"x": [0.1 + 0.2, None]})
    {'x': [0.3, None]}
    """
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value
