"""What a rule is: data that an expert can read and change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.vocabulary import Mode


@dataclass(frozen=True)
class Rule:
    """How one sharing mode shows itself.

    ``weights`` maps the name of an observation to (log-likelihood ratio in nats, why): positive speaks for the
    mode, negative against it. What was not observed weighs nothing: absence of a record proves nothing.
    ``requires`` are observations without which the mode is not claimed at all; of ``requires_one_of`` one is enough.
    ``by_absence`` says that the mode is what is left where nobody else shows: it is inferred unless a record would have
    shown them.
    """

    mode: Mode
    shows: str
    looks_like: str
    weights: Mapping[str, tuple[float, str]]
    prior: float = 0.0
    requires: frozenset[str] = field(default_factory=frozenset)
    requires_one_of: frozenset[str] = field(default_factory=frozenset)
    by_absence: bool = False
