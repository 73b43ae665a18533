"""Build what is published, install it where nothing is, and use it; `make dist-test` calls this.

    python packaging/dist_test.py                # wheel, sdist, an empty environment, the offline wheelhouse
    python packaging/dist_test.py --no-sdist     # without compiling a second time
    python packaging/dist_test.py --record       # append sizes and times to docs/measurements.jsonl

The sdist is compiled from its own files alone, in a folder of its own, so that a file that is missing in it shows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CAPTURE = ROOT / "fixtures" / "captures" / "demo-time-slicing.sqlite"
RUNS = 7


def _run(*command: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **how)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


def _wheel(folder: Path) -> Path:
    _run(sys.executable, "-m", "maturin", "build", "--release", "--locked", "-o", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    if not re.fullmatch(r"pyanalyze_gpu-[\d.]+-cp311-abi3-(manylinux_\d+_\d+|linux)_\w+\.whl", wheel.name):
        sys.exit(f"{wheel.name} is not one wheel for every Python from 3.11 on")
    names = zipfile.ZipFile(wheel).namelist()
    needed = (
        "pyanalyze/core/_core.abi3.so",
        "pyanalyze/py.typed",
        "pyanalyze/report/assets/report.js",
        "entry_points.txt",
    )
    for part in (
        *needed,
        "pyanalyze/report/templates/report.html.j2",
        "pyanalyze/analysis/sharing/calibration.json",
        "LICENSE",
    ):
        if not any(name.endswith(part) for name in names):
            sys.exit(f"{wheel.name} lacks {part}")
    if extra := [name for name in names if name.startswith(("tests", "fixtures", "fuzz", "docs"))]:
        sys.exit(f"{wheel.name} holds what is no part of the package: {extra[0]}")
    return wheel


def _environment(folder: Path, *packages: str | Path, options: tuple[str | Path, ...] = ()) -> Path:
    """An environment that holds these and nothing else; returns its python."""
    _run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options, *packages)
    return python


def _use(python: Path, work: Path) -> None:
    """The first screen and a report, outside of the sources, with nothing of ours in the environment."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    program = python.parent / "pyanalyze"
    said = _run(program, CAPTURE, cwd=work, env=bare).stdout
    if "time-slicing" not in said:
        sys.exit(f"the first screen of the demo does not say time-slicing:\n{said}")
    _run(program, "report", CAPTURE, "-o", work / f"{python.parent.parent.name}.html", cwd=work, env=bare)
    where = _run(python, "-c", "import pyanalyze; print(pyanalyze.__file__)", cwd=work, env=bare).stdout
    if str(ROOT) in where and str(python.parent.parent) not in where:
        sys.exit(f"it is the source that was imported: {where}")


def _times(python: Path, work: Path) -> dict[str, float]:
    def median(code: str) -> float:
        took = []
        for _ in range(RUNS):
            began = time.perf_counter()
            _run(python, "-c", code, cwd=work)
            took.append(time.perf_counter() - began)
        return statistics.median(took)

    nothing = median("pass")
    return {
        "python_s": round(nothing, 3),
        "import_s": round(median("import pyanalyze") - nothing, 3),
        "import_load_s": round(median("from pyanalyze import load") - nothing, 3),
        "import_record_s": round(median("import pyanalyze.record") - nothing, 3),
        "help_s": round(
            median("import sys; sys.argv = ['pyanalyze', '--help']; from pyanalyze.cli import main; main()"), 3
        ),
    }


def _sdist(folder: Path) -> Path:
    _run(sys.executable, "-m", "maturin", "sdist", "-o", folder, cwd=ROOT)
    (made,) = folder.glob("*.tar.gz")
    return made


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-sdist", action="store_true")
    parser.add_argument("--no-wheelhouse", action="store_true", help="do not download the dependencies a second time")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        wheel = _wheel(folder / "wheel")
        python = _environment(folder / "empty", wheel)
        work = folder / "work"
        work.mkdir()
        _use(python, work)
        row: dict[str, Any] = {
            "bench": "distribution",
            "wheel": wheel.name,
            "wheel_mib": round(wheel.stat().st_size / 2**20, 2),
            "installed_mib": round(sum(i.file_size for i in zipfile.ZipFile(wheel).infolist()) / 2**20, 2),
            **_times(python, work),
        }
        if not arguments.no_wheelhouse:
            house = folder / "wheelhouse"
            _run(sys.executable, "-m", "pip", "download", "--quiet", "--dest", house, wheel)
            offline = _environment(folder / "offline", "pyanalyze-gpu", options=("--no-index", "--find-links", house))
            _use(offline, work)
            row["wheelhouse_mib"] = round(sum(p.stat().st_size for p in house.iterdir()) / 2**20, 1)
        if not arguments.no_sdist:
            sdist = _sdist(folder / "sdist")
            with tarfile.open(sdist) as packed:
                # Python before 3.11.4 has no filters.
                packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                packed.extractall(folder / "source")
            _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "again", sdist)
            row["sdist_mib"] = round(sdist.stat().st_size / 2**20, 2)
        print(json.dumps(row))
        if arguments.record:
            with (ROOT / "docs" / "measurements.jsonl").open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
