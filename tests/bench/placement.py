"""How far is the modelled placement from real blocks?  ``python tests/bench/placement.py`` says it per run.

Real recordings of which SM every block ran on (instrumented programs: `corpus/placement` on an 80-SM Volta, those of
`fixtures/hardware` on an H100 and an H200, the first 40 launches of each) are turned into exports: a kernel starts with its
first block and ends with its last one, and nothing else of the blocks is left. The modelled warps of each SM are then
compared with the true ones, over 200 bins:

- ``sorted``: sum of |modelled - true| warps over the SMs of each bin, both sorted, over the sum of true warps.
- ``by SM``: the same with every SM compared with itself.
- ``first wave``: the same by SM over half of the first wave of blocks, where a recording has one kernel.

Beside the replay stands ``even``: every kernel at its most for all of its time, spread evenly over all SMs. ``uneven``:
longest less shortest block of a kernel over the mean. Runs that say nothing about placement are excluded, with the reason; so are,
from the target only, those with what no trace tells. Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import measurements  # noqa: E402
import polars as pl  # noqa: E402
from exports import A100, kernel, write  # noqa: E402

import pyanalyze  # noqa: E402
from pyanalyze.core import _core  # noqa: E402
from pyanalyze.inputs.blocks import MeasuredBlocks, read_blocks  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", ROOT.parent / "shared" / "corpus"))
HARDWARE = ROOT / "fixtures" / "hardware"
#: The GPU of the corpus. Registers are not given; of spin kernels 16 a thread fit.
TITAN_V = {
    **A100, "name": "NVIDIA TITAN V", "chipName": "GV100", "smCount": 80, "computeMajor": 7, "computeMinor": 0,
    "maxShmemPerSm": 98_304, "maxShmemPerBlockOptin": 98_304,
}  # fmt: skip
REGISTERS = 16
H100 = {
    **A100, "name": "NVIDIA H100 80GB HBM3", "chipName": "GH100", "smCount": 132, "computeMajor": 9, "computeMinor": 0,
    "maxShmemPerSm": 233_472, "maxShmemPerBlockOptin": 232_448,
}  # fmt: skip
GPUS = {gpu["name"]: gpu for gpu in (TITAN_V, H100, {**H100, "name": "NVIDIA H200"})}
#: Of what the kit wrote, so many launches: 200 bins are then no longer than those of a recording of one kernel.
LAUNCHES = 40
BINS = 200
#: Fewer blocks say nothing about an order.
FEWEST_BLOCKS = 3
#: What the replay is held to, SMs sorted, where nothing excludes a run.
TARGET = 0.02
#: Blocks of a first wave start within that time.
WAVE_NS = 100_000
#: Blocks are uneven where longest and shortest are this part of the mean apart: no trace tells how long each took.
UNEVEN = 0.1

Grid = list[list[float]]


@dataclass(frozen=True)
class Run:
    """Files that were recorded at the same time."""

    name: str
    files: tuple[MeasuredBlocks, ...]
    gpu: dict[str, Any]
    #: By kernel; none: not recorded.
    registers: dict[str, int]

    @property
    def sms(self) -> int:
        """SMs of its GPU."""
        return int(self.gpu["smCount"])

    @property
    def excluded(self) -> str:
        """Why it says nothing about the placement of one process; empty: it does."""
        pids = {pid for one in self.files for pid in one.launches["pid"]}
        if len(pids) > 1:
            return f"{len(pids)} processes without switch records: nothing says which of them was resident when"
        if sum(one.blocks.height for one in self.files) < FEWEST_BLOCKS:
            return f"fewer than {FEWEST_BLOCKS} blocks"
        return ""

    @property
    def uneven(self) -> float:
        """Longest less shortest block over the mean of its kernel, the worst kernel."""
        length = pl.col("end_ns") - pl.col("start_ns")
        spread = (length.max() - length.min()) / length.mean()
        of_files = (one.blocks.group_by("launch").agg(spread=spread)["spread"].to_list() for one in self.files)
        return max(float(value) for values in of_files for value in values)

    @property
    def untold(self) -> str:
        """What decided its placement and no trace tells; empty: nothing of the kind."""
        if self.uneven >= UNEVEN:
            return f"uneven blocks: longest and shortest are {self.uneven:.2f} of the mean apart"
        for one in self.files:
            starts = one.blocks.sort("start_ns")["start_ns"]
            later = one.blocks.filter(pl.col("start_ns") > int(starts[0]) + WAVE_NS).height
            if one.launches.height == 1 and 1 < later < one.blocks.height - later:
                return f"a partial last wave of {later} blocks: each goes where a slot frees first"
        return ""


@dataclass(frozen=True)
class Errors:
    """Of one model."""

    sorted: float
    by_sm: float


def runs_of_kit(folder: Path) -> list[Run]:
    """Processes of one run of ``fixtures/hardware/run.py`` are a run."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.blocks.bin.xz")):
        groups[path.name.partition(".")[0]].append(path)
    found = []
    for name, packed in groups.items():
        files: list[MeasuredBlocks] = []
        registers: dict[str, int] = {}
        device = ""
        for path in packed:
            prefix = path.name.removesuffix(".blocks.bin.xz")
            with tempfile.TemporaryDirectory() as unpacked:
                (Path(unpacked) / f"{prefix}.blocks.bin").write_bytes(lzma.decompress(path.read_bytes()))
                for kept in ("meta.json", "launches.csv"):
                    shutil.copy(folder / f"{prefix}.{kept}", unpacked)
                one = read_blocks(Path(unpacked) / f"{prefix}.meta.json")
            some = pl.col("launch") < LAUNCHES
            files.append(replace(one, path=path, launches=one.launches.filter(some), blocks=one.blocks.filter(some)))
            with (folder / f"{prefix}.launches.csv").open(newline="") as file:
                registers |= {row["kernel"]: int(row["registers"]) for row in csv.DictReader(file)}
            device = json.loads((folder / f"{prefix}.meta.json").read_text())["device"]
        found.append(Run(f"{folder.name}/{name}", tuple(files), GPUS[device], registers))
    return found


def runs_of(folder: Path) -> list[Run]:
    """Files of one folder and pid, or of overlapping processes of one experiment, are a run."""
    if any(folder.glob("*.blocks.bin.xz")):
        return runs_of_kit(folder)
    groups: dict[str, list[MeasuredBlocks]] = defaultdict(list)
    for path in sorted(folder.rglob("*.json")):
        one = read_blocks(path)
        # Competing processes: compete_1 to _5, p1_t1 to p2_t2. Streams of one process have its pid in common.
        competing = path.stem.startswith(("counter_spin_compete", "timer_spin_p"))
        who = path.stem[:12] if competing else f"{one.launches['pid'][0]}"
        groups[f"{path.parent.relative_to(folder)}/{who}"].append(one)
    found = []
    for files in groups.values():
        first = files[0].path.relative_to(folder).with_suffix("")
        found.append(
            Run(f"{first}" + (f" and {len(files) - 1} more" if len(files) > 1 else ""), tuple(files), TITAN_V, {})
        )
    return found


def export_of(run: Run, path: Path) -> Path:
    """What nsys would have recorded of it: no block, no SM."""
    kernels = []
    # Of each stream when it is free: streams are not in the recordings, but kernels that overlap are of several.
    free_ns: list[int] = []
    for one in run.files:
        own = len(free_ns)
        for row in one.launches.iter_rows(named=True):
            stream = next((n for n in range(own, len(free_ns)) if free_ns[n] <= row["start_ns"]), len(free_ns))
            free_ns[stream : stream + 1] = [row["end_ns"]]
            kernels.append(
                kernel(
                    row["pid"], row["start_ns"], row["end_ns"], streamId=13 + stream, gridX=row["blocks"],
                    blockX=row["block_threads"], registersPerThread=run.registers.get(row["kernel"], REGISTERS),
                    staticSharedMemory=row["shared_bytes"],
                    # The driver's carve-out is not in the recording: as much as the blocks asked for may be set.
                    sharedMemoryExecuted=run.gpu["maxShmemPerSm"],
                )
            )  # fmt: skip
    kernels.sort(key=lambda row: row["start"])
    return write(path, kernels=kernels, gpus=[run.gpu])


def true_warps(run: Run, window: tuple[int, int], bins: int) -> Grid:
    """Mean resident warps by bin and SM."""
    start, end = window
    edges = [start + (end - start) * n // bins for n in range(bins + 1)]
    grid = [[0.0] * run.sms for _ in range(bins)]
    for one in run.files:
        warps = {launch: -(-threads // 32) for launch, threads in one.launches.select("launch", "block_threads").rows()}
        for launch, _, sm, begins, ends in one.blocks.iter_rows():
            at = max(min((begins - start) * bins // (end - start), bins - 1), 0)
            while at < bins and edges[at] < ends:
                inside = min(ends, edges[at + 1]) - max(begins, edges[at])
                grid[at][sm] += max(inside, 0) * warps[launch] / (edges[at + 1] - edges[at])
                at += 1
    return grid


def errors(modelled: Grid, truth: Grid) -> Errors:
    """Of one model, as fractions of the true warps."""
    total = sum(map(sum, truth))

    def apart(order: Callable[[list[float]], list[float]]) -> float:
        pairs = zip(modelled, truth, strict=True)
        return sum(abs(a - b) for m, t in pairs for a, b in zip(order(m), order(t), strict=True)) / total

    return Errors(apart(sorted), apart(list))


def first_wave_end(one: MeasuredBlocks) -> int:
    """Half the time until a block of the first wave ends, or a later one starts: ends are up to 20 ms late there."""
    blocks = one.blocks
    later = blocks.filter(blocks["start_ns"] > int(blocks["start_ns"].min()) + WAVE_NS)["start_ns"].min()  # type: ignore[arg-type]
    ends = int(blocks["end_ns"].min())  # type: ignore[arg-type]
    over = ends if later is None else min(ends, int(later))  # type: ignore[arg-type]
    return (int(blocks["start_ns"].min()) + over) // 2  # type: ignore[arg-type]


def compared(run: Run) -> tuple[Errors, Errors, float | None]:
    """The replay, spreading evenly, and the error of the first wave by SM (None: several kernels at once)."""
    with tempfile.TemporaryDirectory() as folder:
        session = pyanalyze.load(export_of(run, Path(folder) / "run.sqlite"))
        starts, ends = session.kernels["start_ns"], session.kernels["end_ns"]
        window = int(starts.min()), int(ends.max())  # type: ignore[arg-type]

        def modelled(model: Any, window: tuple[int, int], bins: int) -> Grid:
            made = session.occupancy(bins=bins, window=window, model=model).per_sm.sort("start_ns", "sm")
            values = made["warps"].to_list()
            return [values[n * run.sms : (n + 1) * run.sms] for n in range(bins)]

        truth = true_warps(run, window, BINS)
        replay, even = (errors(modelled(model, window, BINS), truth) for model in ("replay", "even"))
        first = None
        if session.kernels.height == 1:
            wave = window[0], first_wave_end(run.files[0])
            first = errors(modelled("replay", wave, 1), true_warps(run, wave, 1)).by_sm
    return replay, even, first


def measured(runs: list[Run]) -> dict[str, Any]:
    """Measure runs of one GPU, and print."""
    print(
        f"{'run':42} {'blocks':>6} {'uneven':>6} | {'sorted':>7} {'even':>7} | {'by SM':>7} {'even':>7} | first wave, by SM"
    )
    figures, excluded = [], []
    for run in runs:
        if run.excluded:
            excluded.append({"run": run.name, "why": run.excluded})
            continue
        replay, even, first = compared(run)
        figures.append((run, replay, even, first))
        wave = "several kernels" if first is None else f"{first:.4f}"
        mark = f"  above target: {run.untold or 'unexplained'}" if replay.sorted > TARGET else ""
        blocks = sum(one.blocks.height for one in run.files)
        print(
            f"{run.name:42} {blocks:>6} {run.uneven:>6.2f} | {replay.sorted:>7.4f} {even.sorted:>7.4f} | {replay.by_sm:>7.4f} "
            f"{even.by_sm:>7.4f} | {wave}{mark}"
        )
    for one in excluded:
        print(f"excluded: {one['run']}: {one['why']}")
    waves = [first for *_, first in figures if first is not None]
    summary = {
        "bench": "placement",
        "gpu": runs[0].gpu["name"],
        "runs": len(figures),
        "blocks": sum(one.blocks.height for run, *_ in figures for one in run.files),
        "first_waves": len(waves),
        "first_wave_worst": round(max(waves), 4) if waves else None,
        "median_sorted": round(statistics.median(replay.sorted for _, replay, _, _ in figures), 4),
        "median_sorted_even": round(statistics.median(even.sorted for _, _, even, _ in figures), 4),
        "median_by_sm": round(statistics.median(replay.by_sm for _, replay, _, _ in figures), 4),
        "median_by_sm_even": round(statistics.median(even.by_sm for _, _, even, _ in figures), 4),
        "target": TARGET,
        "above_target": [
            {"run": run.name, "sorted": round(replay.sorted, 4), "even": round(even.sorted, 4), "why": run.untold}
            for run, replay, even, _ in figures
            if replay.sorted > TARGET
        ],
        "excluded": excluded,
        "version": _core.__version__,
    }
    print({key: value for key, value in summary.items() if key != "excluded"})
    return summary


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kit = [HARDWARE / "h100", HARDWARE / "h200"]
    parser.add_argument("folder", nargs="*", type=Path, default=[CORPUS / "placement", *kit], help="measured blocks")
    parser.add_argument("--no-log", action="store_true", help="only print")
    options = parser.parse_args()
    for folder in options.folder:
        if not folder.is_dir():
            print(f"no measured blocks in {folder}; set PYANALYZE_CORPUS", file=sys.stderr)
            return 2
        summary = measured(runs_of(folder))
        if not options.no_log:
            measurements.append(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
