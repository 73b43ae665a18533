"""How a device was shared, with the evidence; the relation of each pair of tenants; the mode over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from pyanalyze.results.model import Finite, Fraction, Missing, Number, Result, Text
from pyanalyze.vocabulary import TRAITS, Basis, Condition, Mode, RelationKind

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "SWITCH_OVERHEAD",
    "Alternative",
    "Detail",
    "Evidence",
    "Example",
    "Relation",
    "Segment",
    "Sharing",
    "likeliest",
    "most_likely",
]

#: Name of the detail of a verdict that says which part of the time in which contexts alternated was in switch gaps.
SWITCH_OVERHEAD: Final = "switch_overhead"


class Example(Result):
    """An interval behind a piece of evidence, to be found again in the nsys timeline."""

    capture: int | None = Field(description="Index into captures.")
    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")
    pid: int | None = Field(description="Process id as the capture has it.")
    correlation_id: int | None = Field(description="CUPTI correlation id, unique per process only.")


class Evidence(Result):
    """One quantity that spoke for or against modes."""

    name: Text = Field(description="Stable name of the fact.")
    supports: list[Mode] = Field(description="Modes it speaks for.")
    against: list[Mode] = Field(description="Modes it weighs against.")
    value: Number = Field(description="The value; null: not available, see detail.")
    unit: Text = Field(description="Unit of value; 1 for plain numbers.")
    n: int = Field(ge=0, description="Rows it was computed from.")
    n_of: Text = Field(default="", description="What n counts, such as kernels; empty: a statement.")
    weight: Finite = Field(description="Its weight in the verdict, in log odds; 0: did not count.")
    basis: Basis = Field(description="How it is known.")
    detail: Text = Field(description="How it was computed, or why it could not be.")
    sql: Text | None = Field(description="A query on the export that shows the same; null: there is none.")
    examples: list[Example] = Field(description="The strongest intervals.")


class Detail(Result):
    """One figure or statement about how the mode was used."""

    topic: Literal["streams", "mps", "mig", "time-slicing", "limits"] = Field(description="What it is about.")
    name: Text = Field(description="Stable name of the figure.")
    value: Number = Field(description="The value; null: a statement without a number.")
    unit: Text = Field(description="Unit of value; 1 for plain numbers.")
    basis: Basis = Field(description="How it is known.")
    detail: Text = Field(description="The same in words.")


class Alternative(Result):
    """A mode that was considered and not chosen."""

    mode: Mode = Field(description="The mode.")
    confidence: Fraction = Field(description="Its probability.")
    why_not: Text = Field(description="What weighs against it.")


def likeliest(alternatives: Sequence[Alternative]) -> list[Mode]:
    """The modes than which no other is likelier.

    Examples
    --------
    >>> likeliest([Alternative(mode=mode, confidence=0.4, why_not="") for mode in (Mode.MPS, Mode.STREAMS)])
    ['mps', 'streams']
    """
    most = max((one.confidence for one in alternatives), default=None)
    return [one.mode for one in alternatives if one.confidence == most]


def most_likely(alternatives: Sequence[Alternative]) -> str:
    """Name the modes than which no other is likelier; empty where there are none.

    Examples
    --------
    >>> one, other = (Alternative(mode=mode, confidence=0.4, why_not="") for mode in (Mode.MPS, Mode.STREAMS))
    >>> most_likely([]), most_likely([one]), most_likely([one, other])
    ('', 'most likely mps', 'mps or streams, equally likely')
    """
    most = likeliest(alternatives)
    if len(most) > 1:
        return f"{' or '.join(most)}, equally likely"
    return f"most likely {most[0]}" if most else ""


def open_in_mig(likeliest: Mode) -> str:
    """What is not known of tenants where MIG mode is on by samples; empty where the likeliest mode is none of MIG.

    Examples
    --------
    >>> open_in_mig(Mode.MIG), open_in_mig(Mode.MPS)
    ('MIG; whether tenants share an instance is not known', '')
    """
    traits = TRAITS[likeliest]
    if not traits.mig_instance:
        return ""
    return f"MIG; {'whether' if traits.one_process else 'how'} tenants share an instance is not known"


class Sharing(Result):
    """How the device was shared, with the proof."""

    mode: Mode = Field(description="The relation between tenants that was found; undetermined: below 0.8.")
    confidence: Fraction = Field(
        description="How often such verdicts were right on simulated recordings; for undetermined, the probability of "
        "the strongest alternative."
    )
    basis: Basis = Field(description="How it is known.")
    condition: Condition | None = Field(
        default=None,
        description="Other processes that nothing excludes: the mode holds unless there was one; null: none.",
    )
    configured: Mode | None = Field(description="What the machine was set up to do; null: not known.")
    agrees: bool | None = Field(
        description="The configured mode is the one that was found; null: one of them is not known, or the mode is "
        "taken from the configuration."
    )
    summary: Text = Field(description="The verdict in one or two sentences.")
    evidence: list[Evidence] = Field(description="What speaks for and against, heaviest first.")
    details: list[Detail] = Field(
        default_factory=list,
        description="Slices and who else, clients and caps, profile, why streams followed each other; limits.",
    )
    alternatives: list[Alternative] = Field(description="The other modes, strongest first.")
    missing: list[Missing] = Field(description="What could not be looked at, for the whole device entry.")

    @property
    def switch_overhead(self) -> float | None:
        """Part of the time in which contexts alternated that was in switch gaps; None: not known.

        Examples
        --------
        >>> import pyanalyze
        >>> round(pyanalyze.load(capture).report().devices[0].sharing.switch_overhead, 3)
        0.019
        """
        return next((one.value for one in self.details if one.name == SWITCH_OVERHEAD), None)

    @property
    def open_in_mig(self) -> str:
        """What is not known of tenants where samples say that MIG mode is on; empty: they do not, or a mode was found.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).report().devices[0].sharing.open_in_mig
        ''
        """
        by_samples = self.mode == Mode.UNDETERMINED and self.basis == "sampled"
        return open_in_mig(self.alternatives[0].mode) if by_samples and self.alternatives else ""

    @property
    def stated_confidence(self) -> float | None:
        """How sure the mode is; None where its condition says all: if no other process was there, the mode is certain.

        Examples
        --------
        >>> import pyanalyze
        >>> sharing = pyanalyze.load(capture).report().devices[0].sharing
        >>> sharing.stated_confidence == sharing.confidence
        True
        """
        return None if self.condition is Condition.UNLESS_UNTRACED_TENANT else self.confidence

    @property
    def taken_from_configuration(self) -> bool:
        """Whether the mode is the configured one, and nothing else shows it: there is nothing to compare it with.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).report().devices[0].sharing.taken_from_configuration
        False
        """
        return self.agrees is None and self.configured is not None and self.configured == self.mode

    @property
    def found(self) -> str:
        """Say how the mode is known: only a record observes.

        Examples
        --------
        >>> import pyanalyze
        >>> sharing = pyanalyze.load(capture).report().devices[0].sharing
        >>> sharing.found, sharing.model_copy(update={"basis": "inferred"}).found
        ('time-slicing was observed', 'time-slicing was inferred')
        """
        if self.mode == Mode.UNDETERMINED:
            return "the mode is undetermined"
        return f"{self.mode} was {self.basis}"

    def __repr__(self) -> str:
        """Name the mode: the evidence is pages long."""
        return f"<{type(self).__name__}: {self.mode}, confidence {self.confidence:.2f} ({self.basis})>"


class Relation(Result):
    """What two tenants were to each other."""

    tenants: tuple[int, int] = Field(description="Tenant ids, the smaller first.")
    relation: RelationKind = Field(description="Kind of relation.")
    confidence: Fraction = Field(description="Probability of it.")
    co_busy_ns: int | None = Field(description="Both had work in flight, ns; null: one was not traced.")


class Segment(Result):
    """A stretch of time with one mode."""

    start_ns: int = Field(description="Start, ns from the origin.")
    end_ns: int = Field(description="End, ns from the origin.")
    mode: Mode = Field(description="The mode in it.")
    confidence: Fraction = Field(description="Probability of it.")
