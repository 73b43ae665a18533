"""How much of what on-call inputs name stands in the answer, and does the answer name anything else?

Inputs are those of `fixtures/cluster.py`: files in the forms that real versions of dcgm-exporter, Prometheus, kubectl,
nvidia-smi, the MPS daemon, the device plugin and mig-parted write. Every identity (pod, container, namespace, process, pid,
UUID, MIG instance, claim) and every setting (strategy, replicas, resources, profiles, caps, time slices) in them is known,
and on which GPU or instance they put each tenant:

    python tests/bench/oncall.py            # prints the shares; exit 1 below the goals
    python tests/bench/oncall.py --verbose  # and what is lacking

Identities of the answer are those of the JSON report: names, pids, pods, UUIDs and instances of `listed` tenants and devices.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyanalyze

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

import cluster

#: Part of the identities, settings and places that must stand in the answer.
GOAL = 0.98
#: Of each scenario.
SEEDS = 10


def tenants_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Every tenant that an answer names."""
    return [*report["listed"], *(one for device in report["devices"] for one in device["listed"])]


def named_in(report: dict[str, Any]) -> set[str]:
    """Identities that an answer names."""
    found = {str(device[key]) for device in report["devices"] for key in ("uuid", "gpu_uuid") if device[key]}
    for one in tenants_of(report):
        found |= {str(one[key]) for key in ("name", "pid", "namespace", "pod", "container") if one[key] is not None}
    return found


def holds(kind: str, text: str, report: dict[str, Any], found: set[str]) -> bool:
    """Whether the answer has an identity or a setting."""
    if kind == "instance":
        board, _, number = text.partition("/")
        return any(
            device["mig"] is not None
            and str(device["mig"]["gi"]) == number
            and (not board or device["gpu_uuid"] == board)
            for device in report["devices"]
        )
    if kind == "profile":
        return any((device["mig"] or {}).get("profile") == text for device in report["devices"])
    if kind not in ("setting", "claim"):
        return text in found or any(text in name.split("/") for name in found)
    settings = [*report["settings"], *(one for device in report["devices"] for one in device["settings"])]
    requested = [str(one["requested"]) for one in tenants_of(report)]
    return (
        text in found
        or any(text in one["value"].replace("=", " ").replace("/", " ").split() for one in settings)
        or any(text in one["value"].replace("=", " ").split() for one in settings)
        or any(text in words for words in requested)
    )


def places_in(report: dict[str, Any]) -> dict[str, set[tuple[str | None, int | None]]]:
    """Where the answer puts each pod and pid: UUID of the board, and the number of the instance."""
    places: dict[str, set[tuple[str | None, int | None]]] = defaultdict(set)
    for device in report["devices"]:
        place = (device["gpu_uuid"] or device["uuid"], (device["mig"] or {}).get("gi"))
        for one in device["listed"]:
            places[str(one["pod"] or one["pid"])].add(place)
            if one["pid"] is not None:
                places[str(one["pid"])].add(place)
    return places


def main() -> int:
    """Count, print, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    places: list[int] = [0, 0]
    absent: list[str] = []
    unread: list[str] = []
    secrets = 0
    for name in cluster.scenario_names():
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                case = cluster.make(name, seed, Path(folder))
                answer = pyanalyze.load(samples=case.samples, context=case.context).report()
                given = "".join(file.read_text(encoding="utf-8") for file in (*case.samples, *case.context))
            report = answer.to_dict()
            secrets += answer.to_json().count("do-not-show-me")
            unread += [f"{name} {seed}: {row.detail}" for row in answer.quality if row.name == "samples_unread"]
            names = named_in(report)
            for kind, text in case.named:
                counts[kind][1] += 1
                if holds(kind, text, report, names):
                    counts[kind][0] += 1
                elif options.verbose:
                    print(f"{name} {seed}: {kind} {text} is not in the answer")
            found = places_in(report)
            for who, uuid, number in case.placed:
                places[1] += 1
                if found.get(who) == {(uuid, number)}:
                    places[0] += 1
                elif options.verbose:
                    print(f"{name} {seed}: {who} is on {uuid} {number}, not on {found.get(who)}")
            # "process 4711" is what a pid without a name is called, "pod/container" two of them.
            words = {part for one in names for part in one.removeprefix("process ").split("/")}
            absent += [f"{name} {seed}: {word}" for word in sorted(words) if word not in given]
    for kind, (found_n, asked_n) in sorted(counts.items()):
        print(f"  {kind:<10} {found_n} of {asked_n}")
    found_all, asked_all = (sum(pair[n] for pair in counts.values()) for n in (0, 1))
    share, placed = found_all / asked_all, places[0] / places[1]
    print(
        f"identities and settings of the inputs that stand in the answer: {found_all} of {asked_all} ({100 * share:.1f} %)"
    )
    print(f"tenants on the GPU or MIG instance that the inputs say: {places[0]} of {places[1]} ({100 * placed:.1f} %)")
    print(f"identities in the answer that are absent from the inputs: {len(absent)}")
    for one in absent[:20]:
        print(f"  {one}")
    print(f"files that no reader knew: {len(unread)}")
    for one in unread[:20]:
        print(f"  {one}")
    print(f"secrets of the inputs in the answer: {secrets}")
    return 0 if min(share, placed) >= GOAL and not absent and not unread and not secrets else 1


if __name__ == "__main__":
    sys.exit(main())
