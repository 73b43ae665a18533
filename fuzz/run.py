"""Builds the fuzz targets on the stable toolchain and runs them; `make fuzz` calls it.

    python fuzz/run.py --seconds 60                # every target, one after the other
    python fuzz/run.py --seconds 3600 nsys_export  # one of them
    python fuzz/run.py --build                     # build only

Coverage feedback and AddressSanitizer need flags that a stable compiler takes with RUSTC_BOOTSTRAP=1; the target triple
is named, so that build scripts stay without them. What is found lies in fuzz/artifacts; the command ends with 1 then.
Every run appends a line to docs/measurements.jsonl with --record: seconds of processor, executions, findings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
from pathlib import Path

import seeds

HERE = Path(__file__).parent

RUST_TARGETS = ("page_reader", "nsys_export", "samples", "switch_events")
TARGETS = (*RUST_TARGETS, "escaping")
#: Largest input in bytes: several pages of several tables, or a few hundred lines.
MAX_BYTES = {
    "page_reader": 1 << 16,
    "nsys_export": 1 << 17,
    "samples": 1 << 14,
    "switch_events": 4096,
    "escaping": 4096,
}
#: More memory than this for inputs of at most 128 KiB is a finding, and so are more seconds for one of them.
MEMORY_MIB = 2048
INPUT_SECONDS = 25
COVERAGE = (
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
)


def build(folder: Path) -> Path:
    """Compile the Rust targets; return where they lie."""
    triple = f"{platform.machine()}-unknown-linux-gnu"
    flags = " ".join(["--cfg fuzzing", *COVERAGE, "-Ccodegen-units=4", "-Zsanitizer=address"])
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": flags}
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--bins", "--target", triple]
    subprocess.run([*command, "--target-dir", str(folder)], cwd=HERE, env=environment, check=True)
    return folder / triple / "release"


def run(target: str, built: Path, corpus: Path, seconds: int, extra: list[str]) -> dict[str, object]:
    """Run one target; return what it did."""
    artifacts = HERE / "artifacts" / target
    artifacts.mkdir(parents=True, exist_ok=True)
    before = {path.name for path in artifacts.iterdir()}
    program = [str(built / target)] if target in RUST_TARGETS else [sys.executable, str(HERE / f"{target}.py")]
    command = [
        *program, str(corpus / target), f"-max_total_time={seconds}", f"-max_len={MAX_BYTES[target]}",
        f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={INPUT_SECONDS}", f"-artifact_prefix={artifacts}/", "-print_final_stats=1",
        *extra,
    ]  # fmt: skip
    if target == "samples":
        command.append(f"-dict={corpus / 'samples.dict'}")
    memory = Path("/dev/shm")  # inputs become files; in memory that costs nothing
    environment = {**os.environ, "TMPDIR": str(memory)} if memory.is_dir() else dict(os.environ)
    # SQLite is instrumented too, by the C compiler, which registers its static arrays twice.
    environment["ASAN_OPTIONS"] = "detect_odr_violation=0"
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    (HERE / "artifacts" / f"{target}.log").write_text(log.stderr[-200_000:], encoding="utf-8")
    found = sorted({path.name for path in artifacts.iterdir()} - before)
    executed = re.findall(r"stat::number_of_executed_units:\s*(\d+)", log.stderr)
    covered = re.findall(r"cov: (\d+)", log.stderr)
    return {
        "bench": "fuzz",
        "target": target,
        "cpu_s": round(now.ru_utime + now.ru_stime - spent.ru_utime - spent.ru_stime),
        "executions": int(executed[-1]) if executed else None,
        "edges": int(covered[-1]) if covered else None,
        "corpus": sum(1 for _ in (corpus / target).iterdir()),
        "found": found,
        "exit": log.returncode,
    }


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="of each target (default: %(default)s)")
    parser.add_argument("--corpus", type=Path, default=HERE / "corpus", help="kept from run to run")
    parser.add_argument("--target-dir", type=Path, default=HERE / "target")
    parser.add_argument("--build", action="store_true", help="build and seed only")
    parser.add_argument("--record", type=Path, help="append what was done to this file of JSON lines")
    arguments, extra = parser.parse_known_args()
    targets = arguments.targets or list(TARGETS)
    if unknown := [name for name in targets if name not in TARGETS]:
        parser.error(f"no target {unknown[0]}; there are {', '.join(TARGETS)}")
    built = build(arguments.target_dir.absolute())
    seeds.fill(arguments.corpus)
    failed = False
    for target in [] if arguments.build else targets:
        done = run(target, built, arguments.corpus.absolute(), arguments.seconds, extra)
        print(json.dumps(done), flush=True)
        failed |= bool(done["found"]) or done["exit"] != 0
        if arguments.record:
            with arguments.record.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(done) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
