"""What a rule is: data that an expert can read and change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Mode = Literal[
    "exclusive",
    "streams",
    "time-slicing",
    "mps-pre-volta",
    "mps",
    "mps-partitioned",
    "mps-static-partition",
    "mig",
    "mig-shared-ci",
    "mig+time-slicing",
    "mig+mps",
    "vgpu-time-sliced",
    "vgpu-mig",
    "green-contexts",
    "software-limited",
    "undetermined",
]

MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True)
class Rule:
    """How one sharing mode shows itself.

    ``weights`` maps the name of an observation to (log-likelihood ratio in nats, why): positive speaks for the
    mode, negative against it. What was not observed weighs nothing: absence of a record proves nothing.
    ``requires`` are observations without which the mode is not claimed at all; of ``requires_one_of`` one is enough.
    """

    mode: Mode
    shows: str
    looks_like: str
    weights: Mapping[str, tuple[float, str]]
    prior: float = 0.0
    requires: frozenset[str] = field(default_factory=frozenset)
    requires_one_of: frozenset[str] = field(default_factory=frozenset)
