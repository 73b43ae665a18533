"""How full the SMs were, and how that compares with counters."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from pyanalyze.results.model import Finite, Fraction, Number, Result, Text
from pyanalyze.results.sampled import SampledCounter
from pyanalyze.vocabulary import Basis

__all__ = ["BlockCheck", "Bounded", "CounterCheck", "GpuMetrics", "Occupancy", "SmWarps", "TenantCounters"]


class Bounded(Result):
    """A fraction with the ends of its interval.

    Examples
    --------
    >>> Bounded(value=0.61, low=0.52, high=0.7).low
    0.52
    """

    value: Fraction = Field(description="Most likely.")
    low: Fraction = Field(description="Lower end.")
    high: Fraction = Field(description="Upper end.")


class CounterCheck(Result):
    """The modelled occupancy beside what sampled counters said."""

    sm_active: Number = Field(description="Mean fraction of SMs active by counter; sampled.")
    warps: Number = Field(description="Mean warps over warp slots by counter; sampled.")
    n: int = Field(ge=0, description="Samples.")
    agrees: bool | None = Field(description="Model and counter agree within the model's tolerance.")
    start_ns: int | None = Field(default=None, description="Begin of what the samples cover, ns from the origin.")
    end_ns: int | None = Field(default=None, description="End of it, ns from the origin; inside there may be pauses.")
    detail: Text = Field(description="What was compared, how far apart, and what only one of them sees.")
    bins: int = Field(ge=0, description="Time bins over which model and counters were compared.")
    sm_active_difference: float = Field(description="Mean modelled less mean counted, fraction of the SMs.")
    warps_difference: float | None = Field(description="The same of warps, fraction of the slots; null: not counted.")
    sm_active_by_bin: float = Field(description="Mean over bins of how far apart they are, fraction of the SMs.")
    warps_by_bin: float | None = Field(description="The same of warps, fraction of the slots; null: not counted.")
    warps_factor: float | None = Field(
        description="Counted over modelled warps: what occupancy was scaled by, over all bins."
    )


class TenantCounters(Result):
    """Means of counter samples that lie wholly in residency intervals of one tenant, and of no other."""

    tenant_id: int = Field(ge=0, description="Tenant that was resident, by switch records.")
    n: int = Field(ge=1, description="Samples.")
    means: dict[Text, Finite] = Field(description="By counter, fraction of what the GPU can do.")


class GpuMetrics(Result):
    """Hardware counters of a device that nsys sampled while no kernel of it was traced; basis `sampled`.

    The mean of the whole recording: samples may cover a part of the window, or more than it.
    """

    n: int = Field(ge=1, description="Samples; the last one, whose end is not known, is left out.")
    start_ns: int = Field(description="Begin of what the samples cover, ns from the origin.")
    end_ns: int = Field(description="End of it, ns from the origin.")
    counters: list[SampledCounter] = Field(description="Every counter that is a part of what the GPU can do.")
    tenants: list[TenantCounters] = Field(
        default_factory=list,
        description="By tenant, where switch records say who was resident: only its work runs then. Empty: none do.",
    )

    def mean_of(self, start: str) -> float | None:
        """Mean of the counter whose name starts so, whatever the case: nsys changed names; None: not sampled.

        Examples
        --------
        >>> GpuMetrics.model_construct(counters=[]).mean_of("SM") is None
        True
        """
        return next((one.mean for one in self.counters if one.name.lower().startswith(start.lower())), None)

    @property
    def sm_active(self) -> float | None:
        """Mean fraction of SMs active; None: not sampled."""
        old = self.mean_of("SM Active")
        return self.mean_of("SMs Active") if old is None else old


#: Part of the course of launches from which on samples of it are samples of the kernel.
_WHOLE_COURSE: Final = 0.8
#: How the counter of active SMs begins, as versions of nsys name it.
_SMS_ACTIVE: Final = ("sms active", "sm active")


class KernelCounters(Result):
    """Means of counter samples that lie wholly in launches of one kernel while no other was in flight; `sampled`."""

    name: Text = Field(description="Kernel, as `kernels.name` has it. Hostile text.")
    grid_blocks: int | None = Field(description="Blocks of its grids; null: not recorded.")
    block_threads: int | None = Field(description="Threads of its blocks; null: not recorded.")
    n: int = Field(ge=1, description="Samples, each the mean until the next one.")
    means: dict[Text, Finite] = Field(description="By counter, fraction of what the GPU can do.")
    course: Fraction = Field(
        default=1.0,
        description="Part of the course of its launches that samples can be of: the steps of 2 % in which no other "
        "kernel was in flight about as often as in the others. Below 0.8 the means are of that part only.",
    )
    course_from: Fraction = Field(default=0.0, description="Where in a launch the first such step begins.")

    @property
    def sms_active(self) -> float | None:
        """Mean fraction of SMs active; None: not sampled.

        Examples
        --------
        >>> one = KernelCounters(name="k", grid_blocks=1, block_threads=1, n=9, means={"SMs Active": 0.8})
        >>> one.sms_active
        0.8
        """
        return next((mean for name, mean in self.means.items() if name.lower().startswith(_SMS_ACTIVE)), None)

    @property
    def whole_course(self) -> bool:
        """Whether its means are of the kernel: samples are of nearly all of the course of a launch.

        Where others overlap one end of each launch, what is left is another phase of it, such as its last blocks.

        Examples
        --------
        >>> KernelCounters(name="k", grid_blocks=1, block_threads=1, n=9, means={}, course=0.5).whole_course
        False
        """
        return self.course >= _WHOLE_COURSE


class BlockCheck(Result):
    """The modelled warps per SM beside those of measured blocks (``--blocks``), where all kernels were measured."""

    kernels: int = Field(ge=1, description="Kernels whose blocks were measured.")
    blocks: int = Field(ge=1, description="Their blocks.")
    bins: int = Field(ge=1, description="Time bins compared: those in which every kernel was measured.")
    sorted_error: float = Field(description="Sum of |modelled - measured| warps over the measured ones, SMs sorted.")
    sorted_error_even: float = Field(description="The same of warps spread evenly.")
    by_sm_error: float = Field(description="The same by SM number.")
    warps_ratio: float = Field(description="Modelled over measured warps of the device.")


class Occupancy(Result):
    """How full the SMs were: means over the window, as fractions of the device.

    The intervals are for 95 %: docs/occupancy.md has how often they held the truth, on simulated and real GPUs.
    """

    sm_active: Bounded = Field(description="Mean fraction of SMs with at least one warp of a traced kernel.")
    warps: Bounded = Field(description="Mean resident warps of traced kernels over all warp slots.")
    whole_graphs: Fraction = Field(
        description="Part of the window with whole CUDA graphs in flight, whose kernels were not recorded: values "
        "leave them out, upper ends allow for all that they may hold."
    )
    in_flight: Number = Field(
        default=None,
        description="Part of the window with traced kernels or whole graphs in flight: means over that time are means "
        "over the window divided by it.",
    )
    limiters: dict[Text, Fraction] = Field(
        description="Resource that keeps theoretical occupancy below 1: fraction of kernel time, resident time where "
        "switch records tell it. Ties count for each."
    )
    small_grids: Fraction = Field(
        default=0.0,
        description="Part of the same time in grids of at most 0.9 blocks per usable SM: a tenth of the SMs or more "
        "have no block of them. What limits their theoretical occupancy is in limiters.",
    )
    basis: Basis = Field(description="modelled: no supported interface measures this per SM.")
    calibration: Text | None = Field(
        description="By which counter samples it was scaled, and what was not sampled; null: not scaled."
    )
    check_against_counters: CounterCheck | None = Field(
        description="The model before it was scaled, beside counter samples; null: none to compare with."
    )
    check_against_blocks: BlockCheck | None = Field(
        description="The model beside measured blocks; null: none were given, or no time bin was measured whole."
    )
    kernel_counters: list[KernelCounters] = Field(
        default_factory=list,
        description="Counters while a kernel ran, of a device that one process had, most samples first. Empty: none "
        "were sampled, or no kernel lasts as long as the time between samples.",
    )

    @property
    def counters_disagree(self) -> bool:
        """Whether the counters are neither near the model in time bins nor, over the window, inside its range.

        Examples
        --------
        >>> import pyanalyze
        >>> pyanalyze.load(capture).report().devices[0].occupancy.counters_disagree  # there are none
        False
        """
        check = self.check_against_counters
        if check is None or check.agrees is not False:
            return False
        means = ((self.sm_active, check.sm_active), (self.warps, check.warps))
        return not all(mean is None or one.low <= mean <= one.high for one, mean in means)


class SmWarps(Result):
    """Mean resident warps per SM and time bin (only with --detail); modelled, or of measured blocks."""

    start_ns: int = Field(description="Start of the first bin, ns from the origin.")
    end_ns: int = Field(description="End of the last bin, ns from the origin.")
    warps: list[list[float]] = Field(description="Per time bin: mean resident warps of SM 0 to n-1.")
