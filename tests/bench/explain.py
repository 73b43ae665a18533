"""Is it said rightly why a unit of work was slow?  ``python tests/bench/explain.py`` compares with the generator's books.

Every recording of every scenario in which whole tenants were traced, with its units as the books have them. The chain of
each unit is walked through the books as well, by code of its own: when each kernel was queued, ready, started and ended,
and when its context ran, is what the simulation did, not what was recorded. What a segment means is one definition for both
(work of the same process that waits behind another tenant counts for that tenant), so the books judge times and who
released whom, not the definition. Printed per sharing mode, with and without
switch records: the part of units whose segments add up; of the slowest 1 %, for how many the answer says that nothing in
the capture decides or explains the main cause; of the others, for how many the main cause of the excess is right (within 5 % of the
largest), beside what "always execution" gets right; and by how much the time of a cause that is at least 1 % of a unit
is off (median), and waiting that was deduced from kernels, of the time in which others had work (nine tenths of the units
are off by less). `--speed` measures a million kernels in 50,000 units instead.
Appends to docs/measurements.jsonl.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

import generate
import measurements
import polars as pl

import pyanalyze
from pyanalyze.analysis.explain import TYPICAL, unit_doubt
from pyanalyze.analysis.hardware import START_NS
from pyanalyze.vocabulary import NOISE_FLOOR, RESTS_ON_RESIDENCY, UNSETTLING, ResidencyDoubt

#: Causes that are counted as one: what the books do not tell apart.
SAME = {
    "synchronisation": "host",
    "other-thread": "host",
    "queue-same-stream": "queue",
    "queue-other-stream": "queue",
}
#: What rests on residency, as the answer says where nothing tells of it.
RESTING = {SAME.get(kind, kind) for kind in RESTS_ON_RESIDENCY}
#: A longer time between two contexts is an idle engine, not a switch.
IDLE_GAP_NS = 1_000_000
#: Of the largest excess of any cause: as good as the largest.
TIE = 0.95
#: Of a unit: what is shorter is no cause whose time is looked at.
NOTABLE = 0.01


@dataclass(frozen=True)
class Op:
    """A kernel or copy of the books."""

    launch: int
    queued: int
    ready: int
    start: int
    end: int
    copy: bool
    behind_other: int

    def inside(self, start: int, launched: int) -> bool:
        """Whether it belongs to a unit with this range: to every one in which it was launched, as `explain` defines it."""
        return start <= self.launch <= launched


class Spans:
    """Disjoint intervals by start."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self.spans = sorted(spans)
        self.ends = [end for _, end in self.spans]

    def inside(self, start: int, end: int) -> int:
        """How much of an interval they cover."""
        total, at = 0, bisect.bisect_right(self.ends, start)
        while at < len(self.spans) and self.spans[at][0] < end:
            total += min(end, self.spans[at][1]) - max(start, self.spans[at][0])
            at += 1
        return total


class Book:
    """The books of one tenant; `returned`: when recorded launch calls came back, which the books do not say."""

    def __init__(self, ops: list[Op], ran: Spans, switching: Spans, returned: dict[int, int] | None = None) -> None:
        self.by_end = sorted(ops, key=lambda op: op.end)
        self.by_launch = sorted(ops, key=lambda op: op.launch)
        self.ends = [op.end for op in self.by_end]
        returned = returned or {}
        self.launches = sorted({(op.launch, returned.get(op.launch, op.queued)) for op in ops})
        self.launching = Spans(self.launches)
        # A call that takes longer than most was held up: no work that a unit needs.
        usual = statistics.median([end - start for start, end in self.launches]) if self.launches else 0
        self.unhindered = Spans([(start, min(end, start + round(usual))) for start, end in self.launches])
        self.starts = [launch for launch, _ in self.launches]
        self.ran, self.switching = ran, switching

    def of_range(self, start: int, launched: int) -> list[Op]:
        """What was launched in a range."""
        first = bisect.bisect_left(self.by_launch, start, key=lambda op: op.launch)
        return list(itertools.takewhile(lambda op: op.launch <= launched, self.by_launch[first:]))

    def whole_graphs(self) -> Book:
        """The same book where a recording shows graphs whole: what one call launched is one operation."""
        of_call: dict[tuple[int, int], list[Op]] = defaultdict(list)
        for op in self.by_end:
            of_call[op.launch, op.queued].append(op)
        ops = []
        for (launch, queued), parts in of_call.items():
            first = min(parts, key=lambda op: op.start)
            behind = sum(op.behind_other for op in parts)
            end = max(op.end for op in parts)
            ops.append(Op(launch, queued, first.ready, first.start, end, copy=False, behind_other=behind))
        return Book(ops, self.ran, self.switching)

    def before(self, time_ns: int) -> Op | None:
        """The operation that ended last, no later than a time."""
        at = bisect.bisect_right(self.ends, time_ns)
        return self.by_end[at - 1] if at else None

    def chain(self, start: int, launched: int, end: int) -> dict[str, int]:
        """Time of each cause from the end of a unit, which launched its work until `launched`, back to its start."""
        spent: dict[str, int] = defaultdict(int)
        now = end
        op = max(self.of_range(start, launched), key=lambda one: one.end)
        # Until when the host was at what the chain could not go on without, and how long the chain took since.
        until: int | None = None
        since = 0

        def needed(to: int | None) -> None:
            nonlocal until, since
            if to is None or until is None or to > until - since:
                until, since = to, 0

        def back(to: int, kind: str, *, resident: bool = False) -> None:
            nonlocal now, until, since
            to = max(to, start)
            if to >= now:
                return
            all_ns, away, switch = now - to, 0, 0
            if resident:
                away = all_ns - self.ran.inside(to, now)
                switch = min(away, self.switching.inside(to, now))
            waits = {"time-slice": away - switch, "queue-other-tenant": 0, "switch": switch}
            if kind in waits:
                waits[kind] += all_ns - away
            else:
                spent[kind] += all_ns - away
            waited = sum(waits.values())
            since += all_ns - waited
            most = 0 if until is None else min(max(until - since - to, 0), waited)
            if until is not None and most:
                # What the host did meanwhile and the chain needed is no wait.
                launching = self.unhindered.inside(until - most, until)
                at_work = most - (self.launching.inside(until - most, until) - launching)
                spent["launch"] += launching
                spent["host"] += at_work - launching
                until, since = until - most, since + most - at_work
                for wait, ns in waits.items():
                    less = min(ns, at_work)
                    waits[wait] -= less
                    at_work -= less
            for wait, ns in waits.items():
                spent[wait] += ns
            now = to

        back(op.end, "host")
        while now > start:
            # An operation from its end to its start, then what it waited for when it was ready.
            back(op.start, "copy" if op.copy else "execution", resident=not op.copy)
            free = max(op.ready, op.queued)
            needed(op.queued)
            room = self.before(op.start)
            if (
                room is not None
                and room.inside(start, launched)
                and free < room.end
                and op.start - room.end <= START_NS
            ):
                # Its blocks had no room until another stream's kernel of the unit ended.
                back(room.end, "queue", resident=not op.copy)
                op = room
                continue
            short = op.start - free <= START_NS
            waited = "queue" if not short or op.ready > op.queued else "launch"
            if not short and op.behind_other:
                ran = self.ran.inside(free, now)
                waited = "queue-other-tenant" if 2 * op.behind_other >= ran else "queue"
            back(free, waited, resident=not op.copy)
            if op.ready > op.queued:
                earlier = self.before(op.ready)
                if earlier is not None and earlier.inside(start, launched) and earlier.end > op.queued:
                    back(earlier.end, "queue", resident=not op.copy)
                    op = earlier
                    continue
                # What its own process was at before, as that waited, until this was queued.
                while now > op.queued:
                    if earlier is None:
                        back(op.queued, "queue", resident=not op.copy)
                        break
                    free = max(earlier.ready, earlier.queued)
                    back(max(earlier.start, op.queued), "queue", resident=not earlier.copy)
                    ran = self.ran.inside(free, earlier.start)
                    others = earlier.start - free > START_NS and 2 * earlier.behind_other >= ran
                    kind = "queue-other-tenant" if others and earlier.behind_other else "queue"
                    back(max(free, op.queued), kind, resident=not earlier.copy)
                    next_one = self.before(earlier.ready) if earlier.ready > earlier.queued else None
                    earlier = next_one if next_one is not earlier else None
            needed(None)
            back(op.launch, "launch")
            # The host: it waited for what ended last, if it was not in a launch call then, and called none since.
            awaited = self.before(now)
            last = bisect.bisect_left(self.starts, now) - 1
            if awaited is not None and awaited.end > start and last >= 0 and self.launches[last][1] <= awaited.end:
                self.host(spent, awaited.end, now)
                now = awaited.end
                needed(self.launches[last][1])
                if awaited.inside(start, launched):
                    op = awaited
                    continue
                back(start, "queue", resident=True)
            self.host(spent, start, now)
            now = start
        return dict(spent)

    def host(self, spent: dict[str, int], start: int, end: int) -> None:
        """Time of the host is that of its launch calls, and the rest."""
        if end > start:
            launching = self.launching.inside(start, end)
            spent["launch"] += launching
            spent["host"] += end - start - launching


def books(folder: Path, name: str) -> Iterator[tuple[str, int, Book, list[tuple[int, str, int, int, int]]]]:
    """Tenant, its group's device, its book, and its units: number, name, start, launched, done."""
    db = sqlite3.connect(folder / f"{name}.truth.sqlite")
    truth = json.loads((folder / f"{name}.truth.json").read_text(encoding="utf-8"))
    slices: dict[int, list[Any]] = defaultdict(list)
    for row in db.execute('SELECT device, "group", context_start_ns, acknowledged_ns FROM slices ORDER BY 3'):
        slices[row[0]].append(row)
    units = db.execute("SELECT rowid - 1, tenant, name, start_ns, launched_ns, done_ns FROM units").fetchall()
    columns = "launch_ns, queued_ns, ready_ns, start_ns, end_ns, in_queue_other_ns"
    for tenant in truth["tenants"]:
        mine = slices[tenant["device"]]
        ran = [(start, end) for _, group, start, end in mine if group == tenant["group"]]
        gaps = [(a[3], b[2]) for a, b in itertools.pairwise(mine) if a[1] != b[1] and b[2] - a[3] <= IDLE_GAP_NS]
        ops = [
            Op(row[0], row[1], row[2], row[3], row[4], copy=False, behind_other=row[5])
            for row in db.execute(f"SELECT {columns} FROM kernels WHERE tenant = ?", (tenant["name"],))
        ]
        yield (
            tenant["name"],
            tenant["device"],
            Book(ops, Spans(ran), Spans(gaps)),
            [(unit[0], *unit[2:]) for unit in units if unit[1] == tenant["name"] and unit[5] > 0],
        )
    db.close()


def as_recorded(book: Book, path: Path, pid: int, origin: int) -> Book:
    """The same book with what the books do not list one by one: copies, and when launch calls came back."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    names = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    if "CUPTI_ACTIVITY_KIND_RUNTIME" not in names:
        db.close()
        return book
    calls = "SELECT start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE (globalTid >> 24 & 16777215) = ?"
    returned = {start + origin: end + origin for start, end in db.execute(calls, (pid,))}
    found = []
    for table in {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"} & names:
        query = (
            f"SELECT r.start, r.end, m.start, m.end FROM {table} m JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON m.correlationId "
            "= r.correlationId AND (r.globalTid >> 24 & 16777215) = ? AND (m.globalPid >> 24 & 16777215) = ?"
        )
        found += db.execute(query, (pid, pid)).fetchall()
    db.close()
    copies = []
    for launch, queued, start, end in ([at + origin for at in row] for row in found):
        queued = min(queued, start)
        earlier = book.before(start)
        ready = earlier.end if earlier is not None and start - earlier.end < START_NS else queued
        copies.append(Op(launch, queued, max(ready, queued), start, end, copy=True, behind_other=0))
    return Book([*book.by_end, *copies], book.ran, book.switching, returned)


def merged(rows: Any) -> dict[str, float]:
    """Time by cause, of pairs."""
    found: dict[str, float] = defaultdict(float)
    for kind, ns in rows:
        found[SAME.get(kind, kind)] += ns
    return found


def compared(folder: Path, name: str, capture: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per unit: durations, causes in the books and found."""
    origin = capture["origin_ns"]
    traced = {one["tenant"]: one["pid"] for one in capture["traced"]}
    wanted: list[tuple[int, str, int, int, int, Book]] = []
    of_books = list(books(folder, name))
    devices = [device for _, device, _, _ in of_books]
    alone = {traced[tenant]: devices.count(device) == 1 for tenant, device, _, _ in of_books if tenant in traced}
    for tenant, _, book, units in of_books:
        if tenant in traced:
            book = book.whole_graphs() if capture["kernels_in_graphs"] else book
            book = as_recorded(book, folder / f"{capture['name']}.sqlite", traced[tenant], origin)
            wanted += [
                (traced[tenant], f"{tenant} {text}", start, launched, number, book)
                for number, text, start, launched, done in units
                if done > 0 and book.of_range(start, launched)
            ]
    if not wanted:
        return []
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch) / "work.csv"
        lines = [
            f"{pid},{start - origin},{launched - origin},{text}#{n}" for pid, text, start, launched, n, _ in wanted
        ]
        work.write_text("\n".join(["tenant,start,end,name", *lines]) + "\n", encoding="utf-8")
        session = pyanalyze.load(folder / f"{capture['name']}.sqlite", work=work)
        # Each unit has a name of its own: all of them are explained one by one.
        made = session.explain()
        recorded = set(session.residency["device_id"].unique())
        explained = {(one.tenant_id, one.name): one for one in made.result.groups}
    number = pl.col("name").cast(pl.String).str.extract(r"#(\d+)$").cast(pl.Int64)
    found = {row["n"]: row for row in made.units.with_columns(n=number).iter_rows(named=True)}
    sums = made.segments.group_by("unit", pl.col("kind").cast(pl.String)).agg(pl.col("dur_ns").sum())
    by_unit: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for unit, kind, ns in sums.iter_rows():
        by_unit[unit].append((kind, ns))
    out = []
    for pid, text, start, launched, n, book in wanted:
        row = found.get(n)
        if row is None:
            continue
        one = explained[row["tenant_id"], str(row["name"])]
        end = max(launched, *(op.end for op in book.of_range(start, launched)))
        ours = by_unit[row["unit"]]
        out.append(
            {
                "of": (pid, text),
                "dur": end - start,
                "true": merged(book.chain(start, launched, end).items()),
                "found": merged(ours),
                "doubt": one.doubt,
                "others": row["others_ns"],
                "alone": alone[pid],
                "deduced": row["device_id"] not in recorded,
                "adds_up": sum(ns for _, ns in ours) == row["dur_ns"],
                "same_length": row["dur_ns"] == end - start,
            }
        )
    return out


def excess(unit: dict[str, float], typical: list[dict[str, float]]) -> dict[str, float]:
    """Time of each cause less its mean over typical units."""
    kinds = set(unit).union(*typical)
    return {kind: unit.get(kind, 0.0) - statistics.fmean(one.get(kind, 0.0) for one in typical) for kind in kinds}


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over the units of one recording."""
    counts = ("adds_up", "same_length", "slow", "undecided", "right", "execution")
    result: dict[str, Any] = {"units": len(rows), **dict.fromkeys(counts, 0)}
    errors: list[float] = []
    slices: list[float] = []
    wrong: dict[str, int] = defaultdict(int)
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        result["adds_up"] += row["adds_up"]
        result["same_length"] += row["same_length"]
        groups[row["of"]].append(row)
        # Of times that the answer calls undecided none is claimed.
        errors += [
            abs(row["found"].get(kind, 0.0) - ns) / ns
            for kind, ns in row["true"].items()
            if ns >= NOTABLE * row["dur"] and not (row["doubt"] is ResidencyDoubt.UNDECIDED and kind in RESTING)
        ]
        # Time slices that were deduced, against the time in which others had work.
        if row["deduced"] and row["found"].get("time-slice") and row["others"]:
            waited = [sum(row[of].get(kind, 0.0) for kind in ("time-slice", "switch")) for of in ("true", "found")]
            slices.append(abs(waited[1] - waited[0]) / row["others"])
    for group in groups.values():
        group.sort(key=lambda row: row["dur"])
        low, high = (round(len(group) * rank) for rank in TYPICAL)
        middle = group[low : max(high, low + 1)] or [group[len(group) // 2]]
        usual = statistics.fmean(row["dur"] for row in middle)
        for row in group[-max(1, -(-len(group) // 100)) :]:
            if row["dur"] - usual < NOISE_FLOOR * usual:
                continue
            true = excess(row["true"], [one["true"] for one in middle])
            ours = excess(row["found"], [one["found"] for one in middle])
            most, said = max(true.values()), max(ours, key=lambda kind: ours[kind])
            result["slow"] += 1
            sliced = row["deduced"] and "time-slice" in {kind for of in (row, *middle) for kind in of["found"]}
            doubt = unit_doubt(row["doubt"], row["dur"] - usual, row["others"], inferred=sliced)
            # A condition that the books show not to hold claims nothing.
            unsettled = doubt in UNSETTLING or (doubt is ResidencyDoubt.IF_ALONE and not row["alone"])
            if said == "unexplained" or (unsettled and said in RESTING):
                result["undecided"] += 1
                continue
            right = true.get(said, 0.0) >= TIE * most
            result["right"] += right
            result["execution"] += true.get("execution", 0.0) >= TIE * most
            if not right:
                wrong[f"{said} for {max(true, key=lambda kind: true[kind])}"] += 1
    return {**result, "errors": errors, "slices": slices, "wrong": dict(wrong)}


def accuracy(names: list[str], seed: int, *, verbose: bool) -> list[dict[str, Any]]:
    """Rows per mode, with and without switch records."""
    found: dict[tuple[str, bool], list[dict[str, Any]]] = defaultdict(list)
    for name in names:
        folder = generate.built(name, seed)
        truth = json.loads((folder / f"{name}.truth.json").read_text(encoding="utf-8"))
        seen: set[bool] = set()
        for capture in truth["captures"]:
            path = folder / f"{capture['name']}.sqlite"
            exact = bool(capture["switches"])
            if exact in seen or not path.is_file() or not capture["traced"] or capture.get("graph_launches_unseen"):
                continue
            seen.add(exact)
            one = judged(compared(folder, name, capture))
            if verbose:
                error = statistics.median(one["errors"]) if one["errors"] else float("nan")
                told = {key: one[key] for key in ("units", "adds_up", "slow", "undecided", "right", "wrong")}
                print(f"  {capture['name']:44} {told} error {error:.3%}", flush=True)
            found[truth["devices"][0]["mode"], exact].append(one)
    out = []
    for (mode, exact), ones in sorted(found.items()):
        total = {
            key: sum(one[key] for one in ones)
            for key in ("units", "adds_up", "slow", "undecided", "right", "execution")
        }
        errors = [error for one in ones for error in one["errors"]]
        median = statistics.median(errors) if errors else None
        slices = sorted(error for one in ones for error in one["slices"])
        inferred = slices[len(slices) * 9 // 10] if slices else None
        out.append({"mode": mode, "switches": exact, **total, "median_error": median, "inferred_error_p90": inferred})
    return out


def speed() -> dict[str, Any]:
    """Seconds and peak memory of a million kernels in 50,000 units of 20, with a launch call each and switch records."""
    folder = Path(tempfile.gettempdir()) / "pyanalyze-bench"
    from big_export import export

    path = export(1_000_000, 1_000_000, folder)
    session = pyanalyze.load(path, tables=("kernels", "memops", "graph_launches", "api_calls"))
    pids = session.tenants.filter("traced").sort("tenant_id")["pid"].to_list()
    work = Path(tempfile.gettempdir()) / "pyanalyze-bench" / "units.csv"
    period = 40 * 21_000
    lines = [
        f"{pids[20 * n // 4096 % len(pids)]},{999_988_000 + n * period},{999_988_000 + (n + 1) * period - 1},request"
        for n in range(50_000)
    ]
    work.write_text("\n".join(["tenant,start,end,name", *lines]) + "\n", encoding="utf-8")
    session = pyanalyze.load(path, work=work, tables=(*pyanalyze.tables.frames.ANALYSIS_TABLES, "api_calls", "nvtx"))
    _ = session.tables.with_calls(), session.analysis.verdicts, session.analysis.tables.table("inferred_residency")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    made = session.analysis.unit_tables(None)
    tables_s = time.perf_counter() - begun
    found = session.explain()
    return {
        "units": found.units.height,
        "segments": found.segments.height,
        "tables_seconds": tables_s,
        "seconds": time.perf_counter() - begun,
        "peak_bytes_before": before * 1024,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "rows": made["units"].num_rows,
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", help="names; by default all of them")
    parser.add_argument("--seed", type=int, default=generate.SEED, help="seed of the generator")
    parser.add_argument("--speed", action="store_true", help="speed and memory, not accuracy")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for every recording")
    arguments = parser.parse_args()
    entry: dict[str, Any] = {"bench": "explain", "version": pyanalyze.__version__, "seed": arguments.seed}
    if arguments.speed:
        entry["speed"] = found = speed()
        print(json.dumps(found, indent=1))
    else:
        names = arguments.scenario or generate.scenario_names()
        entry["modes"] = accuracy(names, arguments.seed, verbose=arguments.verbose)
        print(
            "mode                  switches    units  add up   slow  undecided   right  always execution   median error"
            "  inferred p90"
        )
        for row in entry["modes"]:
            right, trivial = (
                (row[key] / decided if (decided := row["slow"] - row["undecided"]) else float("nan"))
                for key in ("right", "execution")
            )
            error, inferred = (
                "-" if row[key] is None else f"{row[key]:.2%}" for key in ("median_error", "inferred_error_p90")
            )
            print(
                f"{row['mode']:22}{'yes' if row['switches'] else 'no':>8} {row['units']:8} "
                f"{row['adds_up'] / max(row['units'], 1):7.1%} {row['slow']:6} {row['undecided']:10} {right:7.1%} {trivial:17.1%} {error:>14} {inferred:>13}"
            )
    entry["load"], entry["processors"] = round(os.getloadavg()[0], 1), os.cpu_count()
    measurements.append(entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
