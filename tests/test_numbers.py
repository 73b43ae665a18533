"""The same quantity has the same number on every page, and in the JSON of every command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command_line import run

from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = sorted(path.parent for path in (Path(__file__).parent / "golden").glob("*/report.json"))
PAGES = ("terminal.txt", "report.md", "page.txt")


def numbers(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], float]]:
    """Every number with its place."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from numbers(one, (*place, key))
    elif isinstance(value, list):
        for position, one in enumerate(value):
            yield from numbers(one, (*place, position))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, value


@pytest.mark.parametrize("name", ["demo-time-slicing", "mps", "streams"])
def test_commands_and_report_say_the_same_numbers(fixtures: Path, name: str) -> None:
    capture = fixtures / f"{name}.sqlite"
    whole = dict(numbers(json.loads(run("report", "-f", "json", capture).stdout)["devices"]))
    compared = 0
    for command in ("residency", "occupancy", "interference", "advise"):
        part = dict(numbers(json.loads(run(command, "-f", "json", capture).stdout)["devices"]))
        common = part.keys() & whole.keys()
        assert {place: part[place] for place in common} == {place: whole[place] for place in common}, command
        compared += len(common)
    assert compared > 50


def told(case: Path, pattern: str) -> set[str]:
    """What a pattern catches on any page of a case, blanks and line breaks counted as one blank."""
    found: set[str] = set()
    for page in PAGES:
        if (case / page).exists():
            text = re.sub(r"[ █]+|\n\s+", " ", (case / page).read_text(encoding="utf-8"))
            found.update(re.findall(pattern, text))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pages_say_the_numbers_of_the_report(case: Path) -> None:
    devices = json.loads((case / "report.json").read_text(encoding="utf-8"))["devices"]
    shares: dict[str, set[str]] = {}
    of_part: dict[str, set[str]] = {}
    for device in devices:
        for tenant in device["tenants"]:
            if tenant["gpu_time_share"] is not None:
                shares.setdefault(tenant["name"], set()).add(fmt.percent(tenant["gpu_time_share"]))
            # Those of the time in which all co-ran stand behind the part of the window that it is.
            if tenant["all_at_work_share"] is not None:
                of_part.setdefault(tenant["name"], set()).add(fmt.percent(tenant["all_at_work_share"]))
    for name, expected in shares.items():
        told_of_it = told(case, rf"(?:GPU time:? |, | % ){re.escape(name)} (\d[\d.]* %)")
        assert told_of_it <= expected | of_part.get(name, set()), name
    switches = {fmt.count(d["context_switches"]["count"]) for d in devices if d["context_switches"]}
    assert told(case, r"(\d[\d ]*) (?:context-switch gaps?|full context switch(?:es)?) of") <= switches
    medians = {
        fmt.duration(d["context_switches"]["median_slice_ns"])
        for d in devices
        if d["context_switches"] and d["context_switches"]["median_slice_ns"] is not None
    }
    assert told(case, r"[Mm]edian residency interval:? (\d[\d.]* \w+\b)(?! to )") <= medians
    # Where those of tenants differ, the shortest and the longest of them.
    ranges = set()
    for device in devices:
        tenants = (device["residency_summary"] or {"tenants": []})["tenants"]
        each = [tenant["median_slice_ns"] for tenant in tenants if tenant["median_slice_ns"]]
        ranges |= {f"{fmt.duration(min(each))} to {fmt.duration(max(each))}"} if each else set()
    assert told(case, r"[Mm]edian residency interval:? (\d[\d.]* \w+ to \d[\d.]* \w+)") <= ranges


def test_pages_of_the_demo_say_them_at_all() -> None:
    case = next(case for case in CASES if case.name == "time-slicing")
    assert told(case, r"(?:GPU time:? |, | % )app_[ab] (\d[\d.]* %)") == {"43.0 %", "33.2 %"}
    assert told(case, r"(\d[\d ]*) (?:context-switch gaps?|full context switch(?:es)?) of") == {"365"}
    assert told(case, r"[Mm]edian residency interval:? (\d[\d.]* \w+)") == {"2.145 ms"}
    assert told(case, r"app_b, kernel latency (\d[\d.]*x)") == {"3.00x"}
