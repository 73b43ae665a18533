"""Reports of samples without a capture, held against the files that they are made of."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from shared_sessions import load

from pyanalyze.report.blocks import Chart, Para
from pyanalyze.report.layout import lay_out
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.rendering import draw
from pyanalyze.report.sampled_text import use_basis
from pyanalyze.report.sentences.mode import agreement_text, likely_text, mode_text
from pyanalyze.report.sentences.samples import sampled_sentence
from pyanalyze.report.summary import render_summary
from pyanalyze.results.listed import without_tenants
from pyanalyze.vocabulary import Mode

if TYPE_CHECKING:
    from pyanalyze.results.report import Report

ROOT = Path(__file__).parents[1]
CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", ROOT / ".." / "shared" / "corpus")) / "samples"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
#: nvidia-smi of an Ada board, one line a second; the first was taken before the program began.
ADA = "george-ts-hami/*timeslicing*gpu_metrics.csv"
#: `nvidia-smi dmon` without times: 5 rows of one program, then 10 of another.
DMON = "fergus-mps-h200/results__nsys_20260212_093711__dmon_mps.txt"
#: Answers of nvidia-smi for an H100 in MIG mode: one group of an idle moment, another of a loaded one.
MIG = "nvidia-gpu-exporter/*nvidia-h100-mig__590*.txt"
#: `nvidia-smi -q -x` of an A100 in MIG mode, once.
A100 = "telegraf/*a100-sxm4-v12.xml"
#: Answers of nvidia-smi for an L40S: an idle moment, and one with two encoders.
L40S = "nvidia-gpu-exporter/*l40s*.txt"
#: `dcgmi dmon` of MPS clients on an H200, without times.
MPS = "fergus-mps-h200/profile_results__dcgm_mps.txt"
#: DCGM, one row a second, of some twenty runs.
DCGM = "migprofiler-a100/data__A100-40g__infer_bsz__dcgm.csv"


def file_of(pattern: str) -> Path:
    (file,) = CORPUS.glob(pattern)
    return file


def report_of(pattern: str) -> Report:
    return load(file_of(pattern)).report()


def page_of(pattern: str) -> str:
    return render_markdown(report_of(pattern))


def screen_of(pattern: str) -> str:
    return " ".join(render_summary(report_of(pattern)).split())


def chart_title(pattern: str) -> str:
    """Title of the picture of use over time."""
    blocks = (block for section in lay_out(report_of(pattern)).sections for block in section.blocks)
    return next(block.title for block in blocks if isinstance(block, Chart))


def rank(values: list[float], per_cent: int) -> float:
    """Nearest rank: the smallest value that at least so many per cent do not exceed."""
    return next(one for one in sorted(values) if 100 * sum(other <= one for other in values) >= per_cent * len(values))


def rows_of_dmon() -> list[list[float]]:
    lines = file_of(DMON).read_text(encoding="utf-8").splitlines()
    return [[float(word) for word in line.split()] for line in lines if not line.startswith("#")]


def test_a_mean_of_two_regimes_stands_beside_its_range() -> None:
    """`mem` is 76 to 91 % in the first 5 rows and 44 to 47 % in the others; `sm` 82 to 100 %, mostly 100 %."""
    memory = [row[2] for row in rows_of_dmon()]
    low, high = rank(memory, 10), rank(memory, 90)
    mean = sum(memory) / len(memory)
    assert (low, high) == (45, 91)
    said = f"memory busy {mean:.1f} % of the time (p10-p90 {low:.1f} to {high:.1f} %, not bandwidth)"
    assert said in screen_of(DMON)
    # Less than 15 % apart.
    assert "a kernel ran 97.6 % of the time (utilisation, not occupancy)" in screen_of(DMON)
    clocks = [row[8] for row in rows_of_dmon()]
    row = (
        f"| SM clock | {sum(clocks) / 15:.0f} MHz | {rank(clocks, 10):.0f} MHz | {rank(clocks, 90):.0f} MHz | 2310 MHz"
    )
    assert row in page_of(DMON)


def test_a_mean_over_many_runs_stands_beside_its_range() -> None:
    with file_of(DCGM).open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    active = sorted(100 * float(row["GRACT"]) for row in rows)
    used = sorted(int(row["FBUSD"]) for row in rows)
    assert len(active) == 25_038
    # Ranks 2,504 (of 2,503.8) and 22,535 (of 22,534.2).
    low, high = active[2503], active[22534]
    said = f"active {sum(active) / len(active):.1f} % of the time (p10-p90 {low:.1f} to {high:.1f} %, not occupancy)"
    assert said in screen_of(DCGM)
    gib = [f"{one / 1024:.2f}" for one in (sum(used) / len(used), used[2503], used[22534])]
    assert f"mean {gib[0]} GiB; p10-p90 {gib[1]} to {gib[2]} GiB" in page_of(DCGM)


def test_samples_of_separate_moments_have_no_mean() -> None:
    """The file has values of 9:00:26 to 27.792 and of 9:00:43 to 44.742: none for 15.208 of 18.742 s.

    A time without samples begins one usual interval (1 s) after the last of them: 14.208 s are 76 %. Power in the
    tables of nvidia-smi and of dmon, whole watts, limit 700 W.
    """
    text = file_of(MIG).read_text(encoding="utf-8")
    watts = [int(found) for found in re.findall(r"(\d+)W / +700W", text)]
    dmon = [line.split() for line in text.splitlines() if re.match(r" +0 +\d+ +\d+ +\d+ +- ", line)]
    watts += [int(row[1]) for row in dmon]
    assert len(dmon) == 10
    board, *instances = report_of(MIG).devices
    assert board.sampled is not None
    assert board.sampled.separate_moments
    said = sampled_sentence(board) or ""
    assert "16 samples (10 without time), none for 76 % of the 18.74 s (separate moments, no mean)" in said
    assert f"power {min(watts)} to {max(watts)} W (limit 700 W)" in said
    page = page_of(MIG)
    assert f"| Power | {min(watts)} to {max(watts)} W | least to most of 14 samples at separate moments; limit" in page
    assert "| SM clock | 345 MHz | 1980 MHz | 14 |" in page
    assert "1162 MHz" not in page
    assert "| Quantity | Mean |" not in page
    # An instance has the span and the hole of its board: one tool asked for both.
    assert {round(one.sampled.covered_share or 0, 3) for one in instances if one.sampled} == {round(4.534 / 18.742, 3)}


def test_what_listings_name_is_said_by_their_number_and_place() -> None:
    """The processes are in the table of 9:00:43, the answer of 9:00:44 and the list of 9:00:44.742; idle: 9:00:26."""
    instance = report_of(MIG).devices[1]
    assert {one.listings for one in instance.listed} == {3}
    assert use_basis(instance) == "listed at 3 moments of the 18.74 s"
    assert "18.00 s" not in screen_of(MIG)


def test_a_board_in_mig_mode_has_no_headroom_of_its_own() -> None:
    """nvidia-smi -q of the instance says 29357 MiB free at the loaded moment; of the board 479 MiB are reserved."""
    report = report_of(MIG)
    board, instance = report.devices[:2]
    assert board.memory is not None
    assert instance.memory is not None
    assert board.memory.free_bytes == 69956 * 2**20
    assert instance.memory.headroom_bytes == 29357 * 2**20
    sections = page_of(MIG).split("## Device memory")
    assert "Headroom" not in sections[1].partition("\n## ")[0]
    assert "programs allocate memory in MIG instances only" in sections[1]
    assert "| Headroom | 28.7 GiB | least free memory, by the driver | sampled |" in sections[2]


def test_free_memory_is_what_the_driver_says() -> None:
    """H100 without MIG: used and free do not add up to the total, because the driver reserves some."""
    file = file_of("nvidia-gpu-exporter/*nvidia-h100-80gb-hbm3*.txt")
    part = file.read_text(encoding="utf-8").split("FB Memory Usage")
    free = [int(re.search(r"Free +: (\d+) MiB", one).group(1)) for one in part[1:]]  # type: ignore[union-attr]
    report = load(file).report()
    assert report.devices[0].memory is not None
    assert report.devices[0].memory.headroom_bytes == min(free) * 2**20
    assert "At least 10 % of memory was free in each of " in render_markdown(report)


def test_under_mig_no_switch_records_are_asked_for_and_who_is_absent_is_not_recorded() -> None:
    """MIG mode is `Enabled`; all three processes are in GPU instance 2, and lists name none in 3, 9 and 10."""
    report = report_of(MIG)
    asked = [gap.how for device in report.devices for gap in device.sharing.missing]
    asked += [command for device in report.devices for one in device.advice for command in one.commands]
    assert any("nsys profile" in command for command in asked)
    assert not any("gpuctxsw" in command or "as root" in command for command in asked)
    board, shared, *empty = report.devices
    assert [device.mig.gi for device in empty if device.mig is not None] == [3, 9, 10]
    for device in (board, *empty):
        (only,) = device.advice
        assert only.commands == []
    assert "programs run in its instances only" in board.advice[0].action
    assert {device.advice[0].action for device in empty} == {
        "Nothing to record here: no process was listed in this MIG instance"
    }
    assert shared.advice[0].action.endswith("record all 3 listed processes at once before any change")
    assert "one for each tenant, at the same time" in shared.advice[0].commands[0]


def test_mig_mode_that_samples_show_is_no_question() -> None:
    """`current_mig` is Enabled, `processes` is empty, and each of four `mig_device` has 14 SMs and 19968 MiB.

    The file gives neither a profile nor a UUID of an instance.
    """
    text = file_of(A100).read_text(encoding="utf-8")
    assert "<current_mig>Enabled</current_mig>" in text
    assert "<processes />" in text
    numbers = [int(one) for one in re.findall(r"<gpu_instance_id>(\d+)</gpu_instance_id>", text)]
    assert numbers == [3, 4, 5, 6]
    report = report_of(A100)
    instances = report.devices[1:]
    assert [one.mig.gi for one in instances if one.mig is not None] == numbers
    open_question = "MIG; whether tenants share an instance is not known"
    for device in report.devices:
        assert device.sharing.configured is Mode.MIG
        assert agreement_text(device) == "mig; samples show that it is on"
        assert not device.missing_for("configured_mode")
        assert mode_text(device).startswith(f"{open_question}. ")
        assert "residency" not in mode_text(device)
        assert likely_text(device.sharing) == open_question
        (gap,) = device.missing_for("process_list")
        assert gap.why.startswith("no process was listed; a container")
        action = device.advice[0]
        assert action.action == "Start the workload, then list the processes and record: no process was listed"
        assert action.commands[0].startswith("nvidia-smi pmon")
    assert {one.evidence[0].detail for one in (device.sharing for device in instances)} == {
        f"samples are of the MIG instance GI {number}, CI 0" for number in numbers
    }
    assert "Configured MIG, 4 instances of 14 SMs, 19.5 GiB: GI 3 to 6 " in screen_of(A100)
    assert "nvidia-smi -L" not in page_of(A100)
    # In the shared instance of another board lists name three.
    shared = report_of(MIG).devices[1]
    assert mode_text(shared).startswith("MIG; how tenants share an instance is not known. Most likely mode: mig+")


def test_counters_of_the_driver_say_what_flags_of_moments_miss() -> None:
    """L40S: 200740215 us of power cap at 8:33:38.737, 204642816 us at 8:33:53.415; no flag is active in four answers."""
    text = file_of(L40S).read_text(encoding="utf-8")
    assert re.findall(r"(20\d{7}) us, 0 us, 0 us, 0 us, 0 us", text) == ["200740215", "204642816"]
    (device,) = report_of(L40S).devices
    assert device.sampled is not None
    throttling = device.sampled.throttling
    assert throttling is not None
    assert throttling.limited_ns == {"sw_power_cap": 3_902_601_000}
    assert throttling.counted_ns == 14_678_000_000
    said = "power cap for 3.903 s of 14.68 s"
    assert f"| Throttling | {said}, no flag in 4 samples | flags of the driver; its counters" in page_of(L40S)
    assert f"Health clocks throttled: {said} Do " in screen_of(L40S)
    # Of the H100 all are 0 us at 9:00:27.792 and at 9:00:44.579.
    assert "| Throttling | none in 16.79 s, no flag in 4 samples |" in page_of(MIG)


def test_samples_without_a_time_are_said_to_be_left_out_of_the_chart() -> None:
    """Five rows of dmon before the programs began, and five after: without times, beside six samples with one."""
    blocks = (block for section in lay_out(report_of(L40S)).sections for block in section.blocks)
    caption = next(block.caption for block in blocks if isinstance(block, Chart))
    assert caption.endswith(" 10 of 16 samples have no time and are not drawn.")


def test_one_reading_has_no_chart() -> None:
    """The file is one answer of nvidia-smi, of 11:44:30."""
    assert file_of(A100).read_text(encoding="utf-8").count("<timestamp>") == 1
    session = load(file_of(A100))
    blocks = [block for section in lay_out(session.report()).sections for block in section.blocks]
    assert not [block for block in blocks if isinstance(block, Chart)]
    assert Para("One reading: there is nothing to draw over time.", "muted") in blocks
    assert not [key for key in draw(session.analysis, session.report()) if key.startswith("samples")]


@pytest.mark.parametrize("pattern", [A100, L40S, MPS])
def test_what_a_recording_costs_tenants_that_run_already_is_said_once(pattern: str) -> None:
    """NVIDIA, Nsight Systems user guide: `nsys profile` and `nsys launch` start the application that they trace."""
    page = page_of(pattern)
    (section,) = re.findall(r"## What to change.*?\n\n(nsys cannot attach.*?)\n\n", page, re.DOTALL)
    assert "restart it under nsys" in section
    assert "list of GPU processes" in section
    assert "Latencies (--work)" in section
    assert page.count("cannot attach") == 1


def test_a_tenant_of_a_shared_instance_is_moved_into_an_empty_one() -> None:
    """gpu_burn has 7484 MiB, most of the three; 2g.20gb has 20096 MiB, most of the empty instances."""
    shared = report_of(MIG).devices[1]
    assert max(shared.listed, key=lambda one: one.memory_peak_bytes or 0).name == "gpu_burn"
    move = shared.advice[1]
    assert move.action == "Move gpu_burn into the MIG instance 2g.20gb, in which no process was listed"
    uuid = re.search(r"MIG 2g\.20gb +Device +1: \(UUID: (MIG-[0-9a-f-]+)\)", file_of(MIG).read_text(encoding="utf-8"))
    assert uuid is not None
    assert move.commands == [f"CUDA_VISIBLE_DEVICES={uuid.group(1)} PROGRAM"]
    assert "3 of 4 instances of its board had no listed process" in screen_of(MIG)


def test_lists_that_do_not_tell_instances_apart_leave_none_empty() -> None:
    """Where a process is known to be on the board only, it may be in any instance."""
    shared = report_of(MIG).devices[1].listed
    assert without_tenants({1: shared, 2: [], 3: []}, []) == [2, 3]
    assert without_tenants({1: shared[:1], 2: [], 3: []}, shared[1:]) == []
    assert without_tenants({1: [], 2: []}, []) == []


def test_counters_of_instances_are_asked_for_by_instance_and_can_be_given() -> None:
    (gap,) = report_of(MIG).devices[0].missing_for("gpu_utilization")
    # `dcgmi dmon --help`: without -i it monitors GPUs; its lines have no time.
    assert "-i instance:ID" in gap.how
    assert gap.how.endswith("then --samples dcgm.txt")


@pytest.mark.parametrize("pattern", [ADA, DMON, DCGM])
def test_where_the_other_commands_are_is_said(pattern: str) -> None:
    (device,) = report_of(pattern).devices
    assert len(device.advice[0].commands) == 2
    assert "# command 1 of 2" in screen_of(pattern)
    assert "`pyanalyze advise` shows both commands." in screen_of(pattern)


def test_an_instance_has_the_holes_of_its_board() -> None:
    """H200: an instance has two moments, 0 and 26 s; its board has 0, 1.444, 26 and 27.218 s, and a list at 27.377 s.

    The usual interval is 1.444 s: 23.112 s of the hole of 24.556 s are without samples.
    """
    devices = report_of("nvidia-gpu-exporter/*h200-mig*.txt").devices
    shares = {round(one.sampled.covered_share or 0, 4) for one in devices if one.sampled is not None}
    assert shares == {round(1 - 23.112 / 27.377, 4)}


def test_the_sampled_span_stands_in_local_time_as_written() -> None:
    """First and last line of the file, and of the other the table and the last list; no input gives the zone."""
    with file_of(ADA).open(encoding="utf-8") as lines:
        times = [row["timestamp"].replace("/", "-") for row in csv.DictReader(lines)]
    assert times[0] == "2026-06-21 21:13:00.440"
    span = f"{times[0]} to {times[-1][11:]} (84.86 s), local time of unknown zone"
    page = page_of(ADA)
    assert f"samples, {span}" in page.splitlines()[2]
    assert span in screen_of(ADA)
    assert f"| Sampled | {span} |" in page
    assert f"| {times[0]} local time | 84.86 s |" in page
    # Nothing is said of a capture that is not there.
    for text in (page, page_of(MIG), page_of(DMON)):
        assert "Window (UTC)" not in text
        assert "the first capture" not in text
        assert "the capture" not in text.partition("## Data quality")[2].partition("## How a value")[0]
    listed = re.findall(r"gpu_burn \| process.*\|", page_of(MIG))
    assert listed[0].endswith("| 2026-07-14 09:00:43.000 to 09:00:44.742 local time |")


def test_the_span_of_samples_in_utc_is_no_window_that_is_not_known() -> None:
    """The first row has 1656776962, the last 1656802065."""
    page = page_of(DCGM)
    assert "| Sampled | 2022-07-02 15:49:22.000 to 22:47:45.000 UTC (6.973 h) |" in page


@pytest.mark.parametrize(("pattern", "span"), [(ADA, "84.86 s"), (DCGM, "6.973 h")])
def test_a_device_in_use_is_not_said_to_have_had_no_activity(pattern: str, span: str) -> None:
    (device,) = report_of(pattern).devices
    (gap,) = device.missing_for("window")
    assert gap.why == f"no kernel was traced: there are samples of {span}, and no capture"
    assert not any("no activity" in one.why or "no work" in one.why for one in device.sharing.missing)


def test_an_entity_without_a_kind_is_not_called_a_device() -> None:
    """The file has a column EntityId, which DCGM counts apart for GPUs and for instances, and GRACT (field 1001)."""
    assert file_of(DCGM).read_text(encoding="utf-8").splitlines()[:2] == [
        "EntityId,GRACT,FBUSD,TimeStamp",
        "0,0.000,3,1656776962",
    ]
    page = page_of(DCGM)
    assert "The whole device" not in page
    assert "Entity 0 (sampled): the file does not state whether it is a GPU or a MIG instance." in page
    assert chart_title(DCGM) == "Graphics engine active and memory over time"
    session = load(file_of(DCGM))
    chart = json.dumps(draw(session.analysis, session.report())["samples-0"].to_dict())
    assert '"title": "Graphics engine active (%)"' in chart
    assert "Utilisation" not in chart
    assert "whole device" not in chart
    # Where the driver was asked it is utilisation, of the device.
    assert chart_title(ADA) == "Utilisation and memory over time"
    assert "The whole device (sampled)." in page_of(ADA)


def test_candidates_have_a_probability_and_a_reason_where_there_is_one() -> None:
    """Of an instance without processes it is only known that it is one: three modes have the same evidence."""
    parts = page_of(MIG).split("Candidates.")
    assert "| Mode | Probability | Why not |" in parts[2]
    for part in parts[3:]:
        assert "No evidence tells mig, mig+time-slicing and mig+mps apart." in part.partition("\n")[0]
        assert "| Mode | Probability |\n" in part
        assert "Why not" not in part.partition("\n## ")[0]
    assert "apart" not in parts[2].partition("\n")[0]


def test_what_writes_no_times_is_run_with_them() -> None:
    """`nvidia-smi dmon -h`: -o D and T write date and time."""
    (gap,) = report_of(DMON).devices[0].missing_for("sample_times")
    assert gap.how.startswith("nvidia-smi dmon -o DT > dmon.txt")
    assert not report_of(ADA).devices[0].missing_for("sample_times")
    (listing,) = report_of(ADA).devices[0].missing_for("process_list")
    # `nvidia-smi --help-query-compute-apps` has no type.
    assert listing.how.startswith("nvidia-smi pmon -c 1 > pmon.txt; nvidia-smi --query-compute-apps=")


def test_idle_samples_are_counted() -> None:
    with file_of(ADA).open(encoding="utf-8") as lines:
        use = [int(row["util_gpu_pct"]) for row in csv.DictReader(lines)]
    assert (use.count(0), len(use)) == (1, 83)
    assert "| Idle | 1.2 % | 1 of 83 samples: Utilisation below 1 % | sampled |" in page_of(ADA)
