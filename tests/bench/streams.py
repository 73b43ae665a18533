"""Why streams do not overlap, and how much they slow each other: against simulated programs that know the truth.

``python tests/bench/streams.py`` prints the share of lost time that got the right reason, what a guess would have got,
how much of the time that nothing decides was given a reason, and the error and the interval of slowdowns.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from exports import MS, US, kernel, write
from stream_programs import PID, Program

import pyanalyze

if TYPE_CHECKING:
    from pyanalyze.results.streams import Streams

UNEXPLAINED = "unexplained"
#: What somebody without columns would say.
GUESSES = (UNEXPLAINED, "sm-resources", "copy-engine", "dependency")
#: Deviation of durations around their mean, and launches of a kernel on either side.
SCATTER, LAUNCHES = 0.05, (6, 40)


def random_program(seed: int) -> Program:
    """A program with several streams that waits for everything there is."""
    draw = random.Random(seed)
    flags = {7: 3, 13: draw.choice((1, 2)), 14: draw.choice((1, 2)), 15: 2}
    program = Program(flags, launch_blocking=draw.random() < 0.05)
    events = 0
    for _ in range(draw.randint(20, 60)):
        step = draw.random()
        stream = draw.choice((13, 14, 15))
        if step < 0.05:
            program.run(7, "kernel", draw.randint(50, 500) * US)
        elif step < 0.3:
            program.run(stream, draw.choice(("to-device", "to-host")), draw.randint(50, 1000) * US)
        elif step < 0.75:
            waves = draw.choice((0.05, 0.1, 1, 3, 8))
            stall = draw.randint(100, 800) * US if draw.random() < 0.1 else 0
            program.run(stream, "kernel", draw.randint(50, 2000) * US, waves=waves, stall_ns=stall)
        elif step < 0.85:
            program.record(stream, events)
            program.wait(draw.choice([other for other in (13, 14, 15) if other != stream]), events)
            events += 1
        elif step < 0.9:
            program.synchronize()
        elif step < 0.95:
            program.block(draw.randint(100, 2000) * US)
        else:
            program.sleep(draw.randint(50, 500) * US)
    return program


def compare(found: Streams, program: Program) -> Counter[tuple[str, bool]]:
    """Time by true reason, and whether it was named; by pair of reasons only sums are known, so the smaller counts."""
    out: Counter[tuple[str, bool]] = Counter()
    for had_work, truth in ((True, program.lost()), (False, program.late())):
        said: Counter[str] = Counter()
        for pair in found.pairs:
            for loss in pair.losses:
                if loss.had_work is had_work:
                    said[loss.reason] += loss.lost_ns
        for reason, ns in truth.items():
            right = min(ns, said[reason])
            out[reason, True] += right
            out[reason, False] += ns - right
    return out


def reasons(folder: Path, seeds: int) -> None:
    """Print how much lost time got its reason."""
    sums: Counter[tuple[str, bool]] = Counter()
    used = 0
    for seed in range(seeds):
        program = random_program(seed)
        if not program.consistent():
            continue
        used += 1
        path = program.write(folder / f"{seed}.sqlite")
        found = pyanalyze.load(path).analysis.streams
        path.unlink()
        if found:
            sums.update(compare(next(iter(found.values())), program))
    names = sorted({reason for reason, _ in sums})
    total = {name: sums[name, True] + sums[name, False] for name in names}
    decidable = sum(ns for name, ns in total.items() if name != UNEXPLAINED)
    right = sum(sums[name, True] for name in names if name != UNEXPLAINED)
    print(f"{used} of {seeds} programs, {decidable / 1e9:.3f} s of decidable lost and late time")
    for name in names:
        print(f"  {name:<22} {total[name] / 1e6:10.3f} ms  right {sums[name, True] / max(total[name], 1):7.2%}")
    print(f"right reason, of decidable time:        {right / max(decidable, 1):7.2%}   (aim: 95 %)")
    undecided = total.get(UNEXPLAINED, 0)
    print(f"undecidable time that got a reason:     {sums[UNEXPLAINED, False] / max(undecided, 1):7.2%}   (aim: none)")
    everything = decidable + undecided
    for guess in GUESSES:
        print(f"  always {guess!r}: {total.get(guess, 0) / max(everything, 1):.2%} of all time")


def slowdowns(folder: Path, seeds: int) -> None:
    """Print how far slowdowns are off, and how often their interval holds the truth."""
    errors: list[float] = []
    guessed: list[float] = []
    held = given = asked = 0
    for seed in range(seeds):
        draw = random.Random(seed)
        truth = draw.uniform(1.0, 3.0)
        solo_us = draw.uniform(100, 2000)
        covered = draw.uniform(0.6, 1.0)
        kernels, now = [], 0
        for _ in range(draw.randint(*LAUNCHES)):
            length = int(solo_us * draw.gauss(1, SCATTER) * US)
            kernels.append(kernel(PID, now, now + length))
            now += length + MS
        for _ in range(draw.randint(*LAUNCHES)):
            work = solo_us * draw.gauss(1, SCATTER) * US
            # `covered` of its work runs beside the other stream, the rest at its own speed.
            beside, alone = int(covered * work * truth), int((1 - covered) * work)
            kernels.append(kernel(PID, now, now + beside + alone))
            kernels.append(kernel(PID, now, now + beside, streamId=8, gridX=1))
            now += beside + alone + MS
        path = write(folder / f"{seed}.sqlite", kernels=kernels, processes={PID: "train"})
        found = next(iter(pyanalyze.load(path).analysis.streams.values()))
        path.unlink()
        asked += 1
        for one in found.slowdowns:
            if one.stream_id == 7 and one.ratio is not None and one.low is not None and one.high is not None:
                given += 1
                errors.append(abs(one.ratio / truth - 1))
                guessed.append(abs(1 / truth - 1))
                held += one.low <= truth <= one.high
    errors.sort()
    print(f"{asked} kernels with a scatter of {SCATTER:.0%}, {given} slowdowns given")
    print(f"error: median {statistics.median(errors):.2%}, 95 % below {errors[int(0.95 * len(errors))]:.2%}")
    print(f"95 % intervals that hold the truth: {held / given:.1%}   (aim: 93 to 97 %)")
    print(f"  always 1.00: median error {statistics.median(guessed):.2%}")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=400)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reasons(Path(folder), arguments.seeds)
        slowdowns(Path(folder), 2 * arguments.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
