"""Do intervals of elapsed slowdown hold what programs on real GPUs did?

``python tests/bench/hardware.py`` analyses the recordings in ``fixtures/hardware`` without solo recordings, and compares
each tenant's elapsed slowdown with what was measured: the time from one unit of its work to the next, counted with SQL,
in this recording over the recording of the same program solo; where there is none, over what the program's own clock
said solo (``units*.csv``). That table's shared runs would not do: a recording is a part of one, or of another run.
Programs that wait for requests or a clock are left out: their units are latencies. Bounds are no estimates. Beside it
stands the other slowdown that reports have, the forecast of the current configuration, and which of the two is nearer.

No replay of a GPU knows that its host was slower beside other programs. ``host`` is how much longer launch calls took
than solo (medians of one call), where that was recorded.
"""

from __future__ import annotations

import csv
import sqlite3
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import TYPE_CHECKING

import pyanalyze

if TYPE_CHECKING:
    from collections.abc import Iterator

HARDWARE = Path(__file__).resolve().parents[2] / "fixtures" / "hardware"
#: Units that take so many times the upper quartile did something else besides: warmed up, loaded a library.
UNUSUAL_TIMES = 3
#: Starts of a program's kernels, of its calls by name, and of its NVTX ranges by text.
KERNELS = "SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >> 24 & 0xffffff = ? ORDER BY start"
CALLS = (
    "SELECT start, end - start FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId"
    " WHERE globalTid >> 24 & 0xffffff = ? AND value LIKE ? ORDER BY start"
)
RANGES = (
    "SELECT start FROM NVTX_EVENTS WHERE globalTid >> 24 & 0xffffff = ?"
    " AND coalesce(text, (SELECT value FROM StringIds WHERE id = textId)) = ? ORDER BY start"
)
ONLY_PID = "SELECT DISTINCT globalPid >> 24 & 0xffffff FROM CUPTI_ACTIVITY_KIND_KERNEL"


@dataclass(frozen=True)
class Application:
    """A program: what begins its units, how many of these a unit has, the call that it launches with, its solo recording."""

    name: str
    mark: str = ""
    per_unit: int = 1
    call: str = "cudaLaunchKernel%"
    solo: str | None = None

    def unit_ns(self, capture: sqlite3.Connection, pid: int) -> float:
        """Mean time from unit to unit."""
        query, arguments = (RANGES, (pid, self.mark)) if self.mark else (KERNELS, (pid,))
        starts = [start for (start,) in capture.execute(query, arguments)][:: self.per_unit]
        lengths = [after - before for before, after in pairwise(starts)]
        most = UNUSUAL_TIMES * quantiles(lengths)[2]
        return fmean(length for length in lengths if length <= most)

    def call_ns(self, capture: sqlite3.Connection, pid: int) -> float:
        """How long a launch call usually takes."""
        return median(float(length) for _, length in capture.execute(CALLS, (pid, self.call)))


A = Application("A", per_unit=4, solo="alone-A")
B = Application("B", per_unit=4, solo="alone-B")
C = Application("C", per_unit=4, solo="alone-C")
SERVE = Application("serve", mark="request", call="cudaGraphLaunch%", solo="torch-alone-serve")
TRAIN = Application("train", mark="step", solo="torch-alone-train")
JAX_TRAIN = Application("jax_train", mark="Thunk:#hlo_op=command_buffer_1#")
#: Recording, its table of units, and the application of each traced tenant in the order of their pids.
RECORDINGS: tuple[tuple[str, str, tuple[Application | None, ...]], ...] = (
    ("h100/slices-A-B", "units", (A, B)),
    ("h100/replicas-slices-2-C", "units", (C, C)),
    ("h100/mps-A-B-beside-C", "units", (None, None, C)),
    ("h100/mps-small_grid-small_grid-beside-C", "units", (None, None, C)),
    ("h100/torch-slices-serve-train", "units", (SERVE, TRAIN)),
    ("h100/torch-mps-serve-train", "units", (SERVE, TRAIN)),
    ("h200/slices-copies-open_loop", "units-2", (Application("copies"), None)),
    ("h200/slices-long_kernel-B", "units-2", (Application("long_kernel"), B)),
    ("h200/slices-paced-B", "units-2", (None, B)),
    ("h200/torch-slices-jax_train-decode", "units-3", (JAX_TRAIN, Application("decode", mark="request"))),
)


def opened(path: Path) -> sqlite3.Connection:
    """A recording, for reading."""
    return sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)


def by_own_clock_ns(path: Path, application: str) -> float:
    """Mean time of a unit solo."""
    cases = {f"alone-{application}", f"torch-alone-{application}"}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["application"] == application and row["case"] in cases]
    return fmean(1e9 / float(row["units_per_s"]) for row in rows)


@dataclass(frozen=True)
class Compared:
    """A tenant's elapsed slowdown as measured, estimated and forecast, and how much slower its host was (if recorded solo)."""

    recording: str
    application: str
    measured: float
    value: float
    low: float
    high: float
    forecast: float | None
    host: float | None

    @property
    def nearer(self) -> bool | None:
        """Whether the estimate is nearer to what was measured than the forecast. None: there is no forecast."""
        if self.forecast is None:
            return None
        return abs(self.value - self.measured) < abs(self.forecast - self.measured)

    @property
    def held(self) -> bool:
        """Whether the interval holds what was measured."""
        return self.low <= self.measured <= self.high


def compared() -> Iterator[Compared]:
    """Analyse every recording, and compare."""
    for name, units, applications in RECORDINGS:
        path = HARDWARE / f"{name}.sqlite"
        session = pyanalyze.load(path)
        pids = dict(session.tenants.select("tenant_id", "pid").iter_rows())
        found = [tenant for device in session.interference() for tenant in device.tenants]
        forecasts = {
            forecast.tenant_id: forecast.slowdown
            for device in session.report().devices
            for option in device.options or ()
            if option.current
            for forecast in option.tenants
        }
        found.sort(key=lambda tenant: pids[tenant.tenant_id] or 0)
        capture = opened(path)
        for tenant, application in zip(found, applications, strict=True):
            elapsed = tenant.slowdown.elapsed
            if application is None or elapsed is None or elapsed.low is None or elapsed.high is None:
                continue
            pid, solo = pids[tenant.tenant_id], path.parent / f"{application.solo}.sqlite"
            host = None
            if solo.exists():
                alone = opened(solo)
                ((solo_pid,),) = alone.execute(ONLY_PID)
                solo_ns = application.unit_ns(alone, solo_pid)
                host = application.call_ns(capture, pid) / application.call_ns(alone, solo_pid)
            else:
                solo_ns = by_own_clock_ns(path.parent / f"{units}.csv", application.name)
            measured = application.unit_ns(capture, pid) / solo_ns
            forecast = forecasts.get(tenant.tenant_id)
            yield Compared(name, application.name, measured, elapsed.value, elapsed.low, elapsed.high, forecast, host)


def main() -> int:
    """Compare, print."""
    rows = list(compared())
    for row in rows:
        estimated = f"{row.value:.2f} ({row.low:.2f}-{row.high:.2f})"
        host = "" if row.host is None else f"{row.host:.2f}x"
        forecast = "" if row.forecast is None else f"{row.forecast:.2f}"
        print(
            f"{row.recording:42} {row.application:11} measured {row.measured:.2f}  estimated {estimated:18} "
            f"forecast {forecast:5} host {host:6} {'' if row.held else 'not held'}"
        )
    held = sum(row.held for row in rows)
    print(f"without solo recordings: {held} of {len(rows)} intervals hold what was measured")
    both = [row for row in rows if row.nearer is not None]
    print(f"the estimate is nearer than the forecast for {sum(bool(row.nearer) for row in both)} of {len(both)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
