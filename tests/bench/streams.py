"""Why streams do not overlap, and how much they slow each other: against simulated programs that know the truth.

``python tests/bench/streams.py`` prints the share of lost time that got the right reason, what a guess would have got,
how much of the time that nothing decides was given a reason, and the error and the interval of slowdowns.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import polars as pl
from exports import MS, US, kernel, write
from group_programs import FIRST_PID, Process, random_process, write_processes
from stream_programs import PID, Program

import pyanalyze

if TYPE_CHECKING:
    from pyanalyze.results.streams import Streams
    from pyanalyze.session import Session

UNEXPLAINED = "unexplained"
#: What somebody without columns would say.
GUESSES = (UNEXPLAINED, "sm-resources", "copy-engine", "dependency")
#: Deviation of durations around their mean, and launches of a kernel on either side.
SCATTER, LAUNCHES = 0.05, (6, 40)
#: Of two aggressors the worse one is to be named where it slows so many times as much.
NOTABLE = 1.05


def random_program(seed: int) -> Program:
    """A program with several streams that waits for everything there is."""
    draw = random.Random(seed)
    flags = {7: 3, 13: draw.choice((1, 2)), 14: draw.choice((1, 2)), 15: 2}
    kind = draw.random()
    contexts = {15: 2} if 0.05 <= kind < 0.1 else {}
    program = Program(flags, launch_blocking=kind < 0.05, contexts=contexts, one_channel=0.1 <= kind < 0.15)
    events = 0
    for _ in range(draw.randint(20, 60)):
        step = draw.random()
        stream = draw.choice((13, 14, 15))
        if step < 0.05:
            program.run(7, "kernel", draw.randint(50, 500) * US)
        elif step < 0.3:
            program.run(stream, draw.choice(("to-device", "to-host")), draw.randint(50, 1000) * US)
        elif step < 0.75:
            waves = draw.choice((0.05, 0.1, 1, 1.6, 3, 8))
            stall = draw.randint(100, 800) * US if draw.random() < 0.1 else 0
            if contexts:
                # A kernel cannot run while another context does: a stall meanwhile would have that reason as well.
                stall = 0
            launch = "cooperative" if waves < 1 and not stall and draw.random() < 0.1 else "kernel"
            program.run(stream, launch, draw.randint(50, 2000) * US, waves=waves, stall_ns=stall)
        elif step < 0.85:
            program.record(stream, events)
            # Whether ids of events are of a context or of a process, no export says.
            others = [
                other for other in (13, 14, 15) if other != stream and contexts.get(other) == contexts.get(stream)
            ]
            program.wait(draw.choice(others or [stream]), events)
            events += 1
        elif step < 0.87:
            program.wait_elsewhere(stream, 10_000 + events, program.now_ns + draw.randint(100, 2000) * US)
            events += 1
        elif step < 0.89:
            others = draw.sample((13, 14, 15), 2)
            program.run_graph([(others[n % 2], draw.randint(50, 500) * US) for n in range(draw.randint(2, 5))])
        elif step < 0.92:
            program.synchronize()
        elif step < 0.94:
            program.run(stream, "pageable-to-device", draw.randint(50, 500) * US)
        elif step < 0.97:
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
                    said[loss.reason] += loss.without_overlap_ns
        for reason, ns in truth.items():
            right = min(ns, said[reason])
            out[reason, True] += right
            out[reason, False] += ns - right
    return out


def reasons(folder: Path, first: int, seeds: int) -> None:
    """Print how much lost time got its reason."""
    sums: Counter[tuple[str, bool]] = Counter()
    used = 0
    for seed in range(first, first + seeds):
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


def slowdowns(folder: Path, first: int, seeds: int) -> None:
    """Print how far slowdowns are off, and how often their interval holds the truth."""
    errors: list[float] = []
    guessed: list[float] = []
    held = given = asked = 0
    for seed in range(first, first + seeds):
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


@dataclass
class Errors:
    """How far figures are off, and how many intervals hold the truth."""

    off: list[float] = field(default_factory=list)
    guessed: list[float] = field(default_factory=list)
    asked: int = 0
    given: int = 0
    held: int = 0

    def add(self, truth: float, value: float | None, interval: tuple[float, float] | None) -> None:
        """Count one figure."""
        self.asked += 1
        if value is None:
            return
        self.off.append(abs(value / truth - 1))
        self.guessed.append(abs(1 / truth - 1))
        if interval is not None:
            self.given += 1
            self.held += interval[0] <= truth <= interval[1]

    def line(self, what: str) -> str:
        """In one line."""
        if not self.off:
            return f"  {what:<34} {self.asked:5} asked, none given"
        off = sorted(self.off)
        text = f"  {what:<34} {self.asked:5} asked {len(off):5} given, off by {statistics.median(off):6.2%} (median)"
        text += f" {off[int(0.95 * len(off))]:6.2%} (95 % below); always 1.00: {statistics.median(self.guessed):.2%}"
        return text + (f"; intervals hold {self.held / self.given:.1%} of {self.given}" if self.given else "")


def random_groups(draw: random.Random, folder: Path, *, long: bool, baseline: bool) -> tuple[list[Process], Session]:
    """Two to four groups in one or two processes, solo and at once; or solo in a recording of their own."""
    processes = [
        random_process(draw, groups=draw.randint(2, 4), name=f"k{place}", scatter=SCATTER)
        for place in range(1 if baseline else draw.randint(1, 2))
    ]
    fewest, most = (100, 150) if long else (8, 20)
    for process in processes:
        streams = [group.stream for group in process.groups]
        for stream in () if baseline else streams:
            process.run([stream], draw.randint(fewest, most))
        for one, other in itertools.combinations(streams, 2):
            process.run([one, other], draw.randint(fewest, most))
        if len(streams) > 2:
            process.run(streams, draw.randint(fewest, most))
    path = write_processes(folder / "groups.sqlite", processes)
    solo = []
    for group in processes[0].groups if baseline else ():
        run = Process(draw, [group], SCATTER)
        run.run([group.stream], draw.randint(fewest, most))
        solo.append(write_processes(folder / f"solo-{group.stream}.sqlite", [run]))
    return processes, pyanalyze.load(path, by="stream", baselines=solo)


def groups(folder: Path, first: int, seeds: int) -> None:
    """Print how far the slowdowns of groups of work are off (`--by stream`)."""
    for what, long, baseline in (
        ("each ran solo for a while", True, False),
        ("few launches", False, False),
        ("solo in a --baseline", True, True),
    ):
        found = {"groups": Errors(), "pairs of groups": Errors(), "kernels": Errors()}
        named = worst = 0
        for seed in range(first, first + seeds):
            processes, session = random_groups(random.Random(f"{seed} {what}"), folder, long=long, baseline=baseline)
            (device,) = session.interference()
            for file in folder.glob("*.sqlite"):
                file.unlink()
            place = {
                row["tenant_id"]: (processes[row["pid"] - FIRST_PID], row["stream"])
                for row in session.tenants.filter(pl.col("served_by").is_not_null())
                .with_columns(stream=pl.col("name").str.extract(r"stream (\d+)").cast(pl.Int64))
                .iter_rows(named=True)
            }
            for tenant in device.tenants:
                process, stream = place[tenant.tenant_id]
                told = tenant.slowdown.resident
                interval = None if told is None or told.low is None or told.high is None else (told.low, told.high)
                found["groups"].add(process.slowdown(stream), None if told is None else told.value, interval)
            figures = device.figures
            cells = {} if figures is None else {(c.victim, c.aggressor): c.execution for c in figures.matrix or []}
            for victim, (process, stream) in place.items():
                others = [other for other in place if other != victim and place[other][0] is process]
                truth = {other: process.slowdown(stream, place[other][1]) for other in others}
                for other in others:
                    found["pairs of groups"].add(truth[other], cells.get((victim, other)), None)
                told_of = [other for other in others if cells.get((victim, other)) is not None]
                if told_of and max(truth.values()) > NOTABLE * sorted(truth.values())[-2:][0] > 1:
                    named += 1
                    worst += max(told_of, key=lambda other: cells[victim, other] or 0) == max(
                        others, key=truth.__getitem__
                    )
            for one in [] if figures is None else figures.kernels:
                process, stream = place[one.tenant_id]
                _, other = place[one.beside] if one.beside is not None else (None, None)
                group = next(group for group in process.groups if group.stream == stream)
                number = next(n for n, (name, _) in enumerate(group.kernels) if name == one.kernel)
                found["kernels"].add(group.factors[other][number], one.ratio, (one.low, one.high))
        print(f"--by stream, {seeds} programs of two to four groups, {what}:")
        for name, errors in found.items():
            print(errors.line(name))
        print(f"  worst aggressor named rightly: {worst} of {named} where it is {NOTABLE:.2f} times the next")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=400)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reasons(Path(folder), arguments.first, arguments.seeds)
        slowdowns(Path(folder), arguments.first, 2 * arguments.seeds)
        groups(Path(folder), arguments.first, max(arguments.seeds // 8, 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
