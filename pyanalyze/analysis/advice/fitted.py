"""Every constant of the forecasts of replicas that was fitted to measurements, with what it was fitted to.

`tests/bench/replicas.py` prints the errors that these constants leave, and with `--fit` the constants themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyanalyze.results.advice import Checked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.results.replicas import Quantity

__all__ = ["BLOCKS", "COPIES", "CURVE", "PAIRS", "BlockConstants", "CopyConstants", "CurveConstants", "PairConstants"]


@dataclass(frozen=True)
class CurveConstants:
    """Constants of the throughput curve.

    Attributes
    ----------
    sharpness
        How abruptly the host's time gives way to the device's time as the slower of the two: 1 adds them,
        infinity takes the larger.
    memory_part
        Part of the device's time that goes with the memory slices of an instance; the rest goes with its compute
        slices. It matters only where the two are cut differently (3g and 7g).
    batch_spread
        By how much (log) the device's time at one batch size departs from the line over batch sizes.
    widths
        Half width of the 95 % interval (log), by whether solo throughput at that instance and batch was measured and
        by the number of copies; more copies than listed: that of the most, grown in proportion to the log of their
        number.
    checked
        What the constants were checked against, by whether solo throughput was measured: errors of models that were
        left out while the widths were fitted.
    """

    sharpness: float
    memory_part: float
    batch_spread: float
    widths: Mapping[tuple[bool, int], float]
    checked: Mapping[bool, Checked]


_PARVAGPU = "ParvaGPU (SC24): 6 inference models on an A100, 5 MIG sizes, 9 batch sizes, 1 to 5 MPS clients"

#: Fitted to the published throughput of six models of ParvaGPU (`--parvagpu`).
CURVE: Final = CurveConstants(
    sharpness=6.0,
    memory_part=0.3,
    batch_spread=0.2,
    widths={
        (True, 2): 0.108,
        (True, 3): 0.157,
        (True, 4): 0.149,
        (True, 5): 0.143,
        (False, 1): 0.137,
        (False, 2): 0.165,
        (False, 3): 0.232,
        (False, 4): 0.244,
        (False, 5): 0.239,
    },
    checked={
        True: Checked(against=_PARVAGPU, n=786, median_error=0.042, p95_error=0.136, coverage=0.944),
        False: Checked(against=_PARVAGPU, n=4112, median_error=0.040, p95_error=0.170, coverage=0.954),
    },
)


@dataclass(frozen=True)
class PairConstants:
    """Constants of the signs of MPS against time-slicing, by quantity; logs.

    Attributes
    ----------
    time_slicing
        Slowdown under time-slicing beside a tenant that always has work: mean, spread of one more pair, degrees of
        freedom.
    same_other
        How much tenants beside the same other one differ in MPS over time-slicing: spread, degrees of freedom. The
        freedom is that of two tenants: four pairs of them are no four tenants.
    any_pair
        MPS over time-slicing of any pair: mean, spread, degrees of freedom.
    checked
        What it was checked against, each pair forecast from the others.
    """

    time_slicing: Mapping[Quantity, tuple[float, float, int]]
    same_other: Mapping[Quantity, tuple[float, int]]
    any_pair: Mapping[Quantity, tuple[float, float, int]]
    checked: Checked


#: Fitted to 8 pairs of tally-bench (`--tally`).
PAIRS: Final = PairConstants(
    time_slicing={"mean": (0.80, 0.14, 7), "p99": (0.87, 0.20, 7)},
    same_other={"mean": (0.034, 1), "p99": (0.38, 1)},
    any_pair={"mean": (-0.06, 0.48, 7), "p99": (0.19, 0.54, 7)},
    checked=Checked(
        against="tally-bench: 2 served models beside 4 trainers on an A100, mean and p99",
        n=16,
        median_error=None,
        p95_error=None,
        coverage=None,
    ),
)


@dataclass(frozen=True)
class BlockConstants:
    """How unequal the blocks of a kernel are, of which no trace tells: a kernel takes as long as its last blocks.

    Each is the `block_imbalance` of a sharing configuration: block times are uniform, so far from their mean at most.

    Attributes
    ----------
    even, uneven
        Both are replayed, and the forecast is the mean: of one wave, the mean block takes all and 0.80 of the kernel's
        time.
    strongly
        Blocks are seldom more uneven: the mean one takes 0.57 of the kernel's time. It widens intervals only.
    """

    even: float
    uneven: float
    strongly: float


#: The mean block's part of the kernel's time, of kernels of one wave that took more than 100 us: 0.56, 0.81, 0.95, 0.98
#: and 0.99 for 10, 25, 50, 75 and 90 % of 106 launches of 10 public repositories that Nsight Compute counted (those of
#: `rust/core/src/occupancy/solo_launch.rs`; each repository weighted by the square root of its launches). So real
#: blocks are mostly even, and the middle lies between equal ones and 0.80; those of the first tenth are as uneven as
#: `strongly`. Of 14 kernels on a TITAN V, an H100 and an H200 that wrote their blocks down (`tests/bench/placement.py`;
#: without those that only spin) it is 1.00 for 3, and 0.65 to 0.82 for the others. Nothing here is from simulations.
BLOCKS: Final = BlockConstants(even=0.0, uneven=0.35, strongly=1.0)


@dataclass(frozen=True)
class CopyConstants:
    """Constants of the replay of copies, by kind of configuration.

    The kinds are `solo`, `time-sliced`, `together`, `overlap` (caps that add up to more than all SMs: which ones two
    copies have in common is not known) and `instances`.

    Attributes
    ----------
    widths
        Half width of the 95 % interval (log) beyond what the variants of the replay span: elapsed time, median latency.
    tail_widths
        The same of the 99th percentile of latency.
    recorded, recorded_tail
        Both of the recorded configuration, of which only what tenants take solo was not seen.
    start_ns
        Kernels of several clients start one after the other: each waits for no more than one start of every other copy,
        for so long each. It widens intervals upwards.
    cache_fitted
        Added in MIG instances where what tenants keep of L2 was fitted to contention that was recorded.
    cache, cache_instances
        How much longer (log) copies may take at most where they want more memory bandwidth than there is, on the whole
        device and in MIG instances: the part of their data that L2 no longer holds comes on top of that, and nothing
        in a capture says how large it is.
    checked
        What they were checked against.
    """

    widths: Mapping[str, float]
    tail_widths: Mapping[str, float]
    recorded: Mapping[str, float]
    recorded_tail: Mapping[str, float]
    start_ns: float
    cache_fitted: float
    cache: float
    cache_instances: float
    checked: Checked


#: Widths hold 97 % of the simulations of a kind (`--fit --cases`), which share no code with the replay: eleven
#: seeds of eight scenarios, 2,318 cases. Fitted without a scenario they hold 95 % of its cases. The replay that
#: they were fitted with let kernels of uneven blocks move less than was measured; `checked` is of the present one,
#: on seeds 921 to 930, with which nothing was chosen. No case is of a copy solo that was recorded beside others:
#: `solo` is what those take that were recorded solo. Few scenarios show the recorded configuration: no kind of it
#: has a narrower tail than all of them together. `start_ns` was fitted to copies of a served PyTorch model on an
#: H100, whose throughput was forecast up to 15 % too high (`tests/test_hardware.py`).
COPIES: Final = CopyConstants(
    widths={"solo": 0.01, "time-sliced": 0.045, "together": 0.075, "overlap": 0.06, "instances": 0.075},
    tail_widths={"solo": 0.09, "time-sliced": 0.1, "together": 0.12, "overlap": 0.03, "instances": 0.19},
    recorded={"solo": 0.01, "time-sliced": 0.015, "together": 0.15},
    recorded_tail={"solo": 0.09, "time-sliced": 0.06, "together": 0.06},
    start_ns=1_500,
    cache_fitted=0.2,
    cache=0.8,
    cache_instances=1.8,
    checked=Checked(
        against="simulations by the fixture generator, which shares no code with the replay",
        n=1_136,
        median_error=0.023,
        p95_error=0.255,
        coverage=0.978,
    ),
)
