"""Six captures that every first screen, report and picture is looked at with (fixtures/README.md says what they hold)."""

from __future__ import annotations

import sys
from pathlib import Path

from exports import A100, US, kernel, write

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "fixtures"))
CAPTURES = ROOT / "fixtures" / "captures"
SAMPLES = ROOT / "fixtures" / "samples"

SIX = (
    "time-slicing with an untraced tenant",
    "MPS with caps",
    "MIG with MPS",
    "streams",
    "samples only",
    "undetermined",
)


def inputs(name: str, folder: Path) -> list[str | Path]:
    """The files of a capture, as on the command line; what is made for it lies in the folder."""
    from generate import built

    match name:
        case "time-slicing with an untraced tenant":
            return [CAPTURES / "demo-time-slicing.sqlite"]
        case "MPS with caps":
            return [built("mps-capped") / "mps-capped.sqlite"]
        case "MIG with MPS":
            return [built("mig-mps") / "mig-mps.sqlite"]
        case "streams":
            return [CAPTURES / "streams.sqlite"]
        case "samples only":
            return [SAMPLES / "query-gpu.csv", "--samples", SAMPLES / "compute-apps.csv"]
        case _:
            # All SMs of its product, half of the memory: a virtual GPU, or a limit in software.
            kernels = [kernel(41, n * 300 * US, n * 300 * US + 200 * US) for n in range(200)]
            board = A100 | {"name": "NVIDIA A100-SXM4-80GB", "memoryBandwidth": 2_039_040_000_000}
            return [write(folder / "undetermined.sqlite", kernels=kernels, processes={41: "train"}, gpus=[board])]
