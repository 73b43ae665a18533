"""What kernels ask of the GPU, as Nsight Compute counted it: CSV output of `ncu --csv`, details page or raw page."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pyanalyze.errors import UsageError
from pyanalyze.files import read_bounded
from pyanalyze.text.numbers import bounded_float

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["CountedKernel", "Resource", "base_name", "read_ncu"]

#: A report of some ten thousand launches with all sections.
_MOST_BYTES = 256 << 20
#: No GPU has as much DRAM bandwidth, bytes per second.
_MOST_BYTES_PER_S = 1e15


class Resource(StrEnum):
    """What kernels on one GPU share beside the places on its SMs."""

    DRAM = "DRAM bandwidth"
    L2 = "L2 bandwidth"
    ISSUE = "issue slots"
    SM = "SM throughput"
    TENSOR = "tensor pipe"
    FMA = "FMA pipe"
    FP64 = "FP64 pipe"


@dataclass(frozen=True)
class CountedKernel:
    """A launch that Nsight Compute counted; it runs solo while it is.

    Attributes
    ----------
    name
        As ncu has it.
    duration_ns
        Time of the launch; None: not in the file.
    used
        Part of what the GPU has (0 to 1), by resource. What the file does not hold is left out: it is not zero.
    dram_bytes_per_s
        DRAM traffic; None: not in the file.
    l2_hit
        Part of the L2 accesses that hit; None: not in the file.
    """

    name: str
    duration_ns: float | None = None
    used: Mapping[Resource, float] = field(default_factory=dict)
    dram_bytes_per_s: float | None = None
    l2_hit: float | None = None


_ELAPSED, _ACTIVE = ".avg.pct_of_peak_sustained_elapsed", ".avg.pct_of_peak_sustained_active"
#: Names of the details page, and metrics of the raw page, in percent. Of several for one resource the first counts.
_PERCENT: Final[Mapping[Resource, tuple[str, ...]]] = {
    Resource.DRAM: (
        "DRAM Throughput",
        f"dram__throughput{_ELAPSED}",
        f"gpu__dram_throughput{_ELAPSED}",
        f"dram__bytes.sum{_ELAPSED.removeprefix('.avg')}",
    ),
    Resource.L2: ("L2 Cache Throughput", f"lts__throughput{_ELAPSED}", f"lts__t_sectors{_ELAPSED}"),
    Resource.ISSUE: (
        f"sm__issue_active{_ELAPSED}",
        f"sm__inst_issued{_ELAPSED}",
        "Issue Slots Busy",
        f"sm__inst_issued{_ACTIVE}",
    ),
    Resource.SM: ("Compute (SM) Throughput", f"sm__throughput{_ELAPSED}"),
    Resource.TENSOR: (
        f"sm__pipe_tensor_cycles_active{_ELAPSED}",
        f"sm__inst_executed_pipe_tensor{_ELAPSED}",
        f"sm__pipe_tensor_cycles_active{_ACTIVE}",
        f"sm__inst_executed_pipe_tensor{_ACTIVE}",
    ),
    Resource.FMA: (
        f"sm__pipe_fma_cycles_active{_ELAPSED}",
        f"sm__inst_executed_pipe_fma{_ELAPSED}",
        f"sm__pipe_fma_cycles_active{_ACTIVE}",
        f"sm__inst_executed_pipe_fma{_ACTIVE}",
    ),
    Resource.FP64: (
        f"sm__pipe_fp64_cycles_active{_ELAPSED}",
        f"sm__inst_executed_pipe_fp64{_ELAPSED}",
        f"sm__pipe_fp64_cycles_active{_ACTIVE}",
        f"sm__inst_executed_pipe_fp64{_ACTIVE}",
    ),
}
_HIT = ("L2 Hit Rate", "lts__t_sector_hit_rate.pct")
_DURATION = ("Duration", "gpu__time_duration.sum", "gpu__time_duration.avg")
#: The details page calls two metrics so, which their units tell apart: a part of the peak, and DRAM bytes in a second.
_TRAFFIC = ("dram__bytes.sum.per_second", "Memory Throughput")
_TRAFFIC_PARTS = ("dram__bytes_read.sum.per_second", "dram__bytes_write.sum.per_second")
_TIMES = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_RATE = re.compile(r"([kmgt]?)bytes?/(?:s|second)", re.IGNORECASE)


def read_ncu(path: Path) -> tuple[CountedKernel, ...]:
    r"""Read what `ncu --csv` printed: its details page (the default), or its raw page (`--page raw`).

    Parameters
    ----------
    path
        The file. Lines of ncu or of the program before the table are skipped.

    Returns
    -------
    tuple of CountedKernel
        One per launch, in order; of a summary (`--print-summary`) one per kernel.

    Raises
    ------
    pyanalyze.errors.UsageError
        If there is no such table in it, or nothing in it that a forecast uses.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> text = '''==PROF== Connected to process 1
    ... "ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
    ... "0","add(float *)","GPU Speed Of Light Throughput","DRAM Throughput","%","91.50"
    ... "0","add(float *)","GPU Speed Of Light Throughput","Duration","us","1,204.50"
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "ncu.csv"
    ...     _ = file.write_text(text)
    ...     (kernel,) = read_ncu(file)
    >>> kernel.name, kernel.duration_ns, kernel.used[Resource.DRAM]
    ('add(float *)', 1204500.0, 0.915)
    """
    body = read_bounded(path, _MOST_BYTES)
    if body is None:
        raise UsageError(f"{path}: more than {_MOST_BYTES >> 20} MiB; export fewer launches")
    try:
        rows = list(csv.reader(io.StringIO(body.decode("utf-8-sig"), newline="")))
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a CSV file: {error}") from error
    at = next((n for n, row in enumerate(rows) if "Kernel Name" in row and len(row) > 1), None)
    if at is None:
        raise UsageError(
            f"{path}: no table of Nsight Compute in it; write it with `ncu --csv` or `ncu --page raw --csv`"
        )
    header = rows[at]
    # Rows without a rule leave the last columns out.
    table = [row + [""] * (len(header) - len(row)) for row in rows[at + 1 :] if 1 < len(row) <= len(header)]
    found = tuple(_long(header, table) if "Metric Name" in header else _wide(header, table))
    known = [one for one in found if one.used or one.dram_bytes_per_s is not None]
    if not known:
        raise UsageError(
            f"{path}: no throughput of DRAM, L2 or SMs in it; count with `ncu --set basic --section "
            "MemoryWorkloadAnalysis --csv`"
        )
    return found


def _long(header: list[str], table: Iterable[list[str]]) -> Iterator[CountedKernel]:
    """One row a metric."""
    kernel, metric, unit = (header.index(name) for name in ("Kernel Name", "Metric Name", "Metric Unit"))
    value = header.index("Metric Value" if "Metric Value" in header else "Average")
    # A file may hold several processes, each of which counts its launches from 0.
    keys = [header.index(name) for name in ("ID", "Process ID") if name in header]
    launches: dict[tuple[str, ...], tuple[str, dict[str, list[tuple[str, str]]]]] = {}
    for row in table:
        # Without ids all rows of a name are of one kernel.
        key = (*(row[at] for at in keys), row[kernel])
        _, metrics = launches.setdefault(key, (row[kernel], defaultdict(list)))
        metrics[row[metric]].append((row[value], row[unit]))
    for name, metrics in launches.values():
        yield _counted(name, metrics)


def _wide(header: list[str], table: list[list[str]]) -> Iterator[CountedKernel]:
    """One row a launch, below one of units."""
    kernel = header.index("Kernel Name")
    units = next((row for row in table if not row[kernel]), [""] * len(header))
    for row in table:
        if row[kernel]:
            cells = zip(header, row, units, strict=True)
            yield _counted(row[kernel], {name: [(text, unit)] for name, text, unit in cells})


def _counted(name: str, metrics: Mapping[str, list[tuple[str, str]]]) -> CountedKernel:
    def first(names: Iterable[str], scale: Mapping[str, float] | None = None) -> float | None:
        for one in names:
            for text, unit in metrics.get(one, ()):
                factor = _scale(unit, scale)
                number = bounded_float(text.replace(",", ""), 0, _MOST_BYTES_PER_S)
                if number is not None and factor is not None:
                    return number * factor
        return None

    percents = {resource: first(names, {"%": 0.01, "": 0.01}) for resource, names in _PERCENT.items()}
    traffic = first(_TRAFFIC)
    if traffic is None:
        parts = [first([one]) for one in _TRAFFIC_PARTS]
        known = [part for part in parts if part is not None]
        traffic = sum(known) if len(known) == len(parts) else None
    hit = first(_HIT, {"%": 0.01, "": 0.01})
    return CountedKernel(
        name,
        first(_DURATION, _TIMES),
        {resource: min(1.0, part) for resource, part in percents.items() if part is not None},
        traffic,
        None if hit is None else min(1.0, hit),
    )


def _scale(unit: str, scale: Mapping[str, float] | None) -> float | None:
    """Factor of a unit; None: another kind of unit."""
    if scale is not None:
        return scale.get(unit.strip())
    rate = _RATE.fullmatch(unit.strip())
    return None if rate is None else _SCALES[rate[1].lower()]


def base_name(name: str) -> str:
    """Cut a demangled name to what all tools print: no return type, namespace, template arguments or parameters.

    Examples
    --------
    >>> base_name("void at::native::vectorized_elementwise_kernel<4, at::Add<float>>(int, float *)")
    'vectorized_elementwise_kernel'
    >>> base_name("(anonymous namespace)::copy(float *)"), base_name("ampere_sgemm_128x64_nt")
    ('copy', 'ampere_sgemm_128x64_nt')
    """
    text = name.replace("(anonymous namespace)", "").replace("<unnamed>", "").strip()
    depth = 0
    kept: list[str] = []
    for letter in text:
        if letter in "<(":
            # Parameters end the name; template arguments may stand inside of it.
            if letter == "(" and depth == 0 and kept:
                break
            depth += 1
        elif letter in ">)":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(letter)
    return "".join(kept).strip().rpartition("::")[2].rpartition(" ")[2]
