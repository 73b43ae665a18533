"""Sentences and tables that a reader who does not know the project must understand."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sqlite3
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

import generate
import pytest
import report_examples as examples
import six_captures
from command_line import run
from exports import A100, US, kernel, with_all_switch_records, write
from shared_sessions import load

import pyanalyze
from pyanalyze import charts
from pyanalyze.fleet.summary import DeviceRow, GroupPart, summarise
from pyanalyze.nsys_tool import recording
from pyanalyze.report.blocks import Chart, Commands, Facts, Fold, Note, Para, Table
from pyanalyze.report.layout import lay_out
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.replicas import replicas_text
from pyanalyze.report.sampled_text import outside_window
from pyanalyze.report.sentences.cause import cause_sentence
from pyanalyze.report.sentences.gpu_time import gpu_time_text, residency_sentence, switching_text
from pyanalyze.report.sentences.lead import lead_sentences
from pyanalyze.report.sentences.mode import agreement_text, mode_text, weighed_evidence, weights_text
from pyanalyze.report.sentences.occupancy import bounded_text
from pyanalyze.report.sentences.samples import gpu_metrics_text, samples_text
from pyanalyze.report.sentences.slowdown import known_from_below, pairs_without_figure
from pyanalyze.report.sentences.time_split import limit_text
from pyanalyze.report.summary import render_summary
from pyanalyze.report.text import render_text
from pyanalyze.results.interference import Estimate, Slowdown
from pyanalyze.results.labels import device_title
from pyanalyze.results.occupancy import Bounded, CounterCheck, GpuMetrics
from pyanalyze.results.report import Sampled, Window
from pyanalyze.text.format import count, duration, percent
from pyanalyze.vocabulary import TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyanalyze.report.blocks import Block
    from pyanalyze.results.report import Report


def _all(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from _all(block.blocks)


def _section(report: Report, name: str) -> list[Block]:
    found = next(one for one in lay_out(report).sections if one.id.startswith(name))
    return list(_all(found.blocks))


def _table(report: Report, name: str, caption: str) -> dict[str, tuple[str, ...]]:
    """Rows of a table by their first cell."""
    found = next(one for one in _section(report, name) if isinstance(one, Table) and one.caption.startswith(caption))
    return {row[0].text: tuple(cell.text for cell in row[1:]) for row in found.rows}


@pytest.mark.parametrize(("capture", "full"), [("demo-time-slicing", False), ("node-switches-only", True)])
def test_a_switch_has_one_price_and_one_table_of_its_parts(fixtures: Path, capture: str, full: bool) -> None:
    truth = json.loads((fixtures / f"{capture}.truth.json").read_text(encoding="utf-8"))["devices"][0]["switches"]
    report = load(fixtures / f"{capture}.sqlite").report()
    (device,) = report.devices
    switches = device.context_switches
    assert switches is not None
    assert switches.gap is not None
    assert (switches.gap.median_ns, switches.gap.total_ns) == (truth["median_gap_ns"], truth["total_gap_ns"])
    rows = _table(report, "residency", "What context switches cost")
    assert rows["Switch gap"][1:3] == (duration(truth["median_gap_ns"]), duration(truth["total_gap_ns"]))
    if full:
        assert switches.save is not None
        assert switches.restore is not None
        parts = switches.save.total_ns + switches.gap.total_ns + switches.restore.total_ns
        assert parts == truth["total_full_ns"]
        assert list(rows) == ["Stop and save", "Switch gap", "Restore", "Full switch"]
        assert rows["Full switch"][1:3] == (duration(truth["median_full_ns"]), duration(truth["total_full_ns"]))
        name = f"full context switches of {duration(truth['median_full_ns'])}"
    else:
        assert list(rows) == ["Switch gap", "Save and restore (inferred)", "Full switch (inferred)"]
        # The generator knows what no record of this driver says.
        assert rows["Full switch (inferred)"][1] == f"{truth['median_full_ns'] / 1000:.0f} us"
        said = float(rows["Full switch (inferred)"][2].removesuffix(" ms"))
        assert said == pytest.approx(truth["total_full_ns"] / 1e6, rel=0.02)
        name = f"context-switch gaps of {duration(truth['median_gap_ns'])}"
    # Beside the bars, by the same name.
    assert name in switching_text(device)
    # In the section on the mode there is no second price of the same switches.
    details = next(
        one for one in _section(report, "sharing") if isinstance(one, Table) and one.caption.startswith("Details")
    )
    assert details.rows
    assert not any("Gaps at context switches" in cell.text for row in details.rows for cell in row)


def test_ends_of_intervals_that_no_record_explains_say_so(fixtures: Path) -> None:
    rows = _table(load(fixtures / "demo-time-slicing.sqlite").report(), "residency", "Context switches")
    ends = rows["Reasons for the ends of intervals"]
    assert ends[0].startswith("not recorded ")
    assert "no acknowledgement record" in ends[1]
    rows = _table(load(fixtures / "node-switches-only.sqlite").report(), "residency", "Context switches")
    assert "CILP: preempted between instructions" in rows["Reasons for the ends of intervals"][1]


def test_a_weight_says_for_which_mode_and_against_what(fixtures: Path) -> None:
    """That streams overlap says nothing for or against time-slicing: its weight for other modes is not its weight."""
    (device,) = load(fixtures / "demo-time-slicing.sqlite").report().devices
    said = weights_text(device.sharing)
    assert "log odds" in said
    assert "Weights are for time-slicing (log odds, base e): +3 makes it about 20 times as likely." in said
    weights = {one.name: weight for one, weight in weighed_evidence(device.sharing)}
    # docs/modes/time_slicing.md: contexts that alternate weigh 5; streams that overlap have no row.
    assert (weights["contexts_alternate"], weights["streams_overlap"]) == (5.0, 0.0)
    assert [abs(one) for one in weights.values()] == sorted((abs(one) for one in weights.values()), reverse=True)


def test_nothing_limits_a_kernel_at_full_occupancy(fixtures: Path) -> None:
    """Blocks of 1,024 threads with 32 registers fill an A100: 2 x 32 warps, 65,536 registers. Both are used up at once."""
    session = load(fixtures / "demo-time-slicing.sqlite")
    report = session.report()
    (device,) = report.devices
    assert device.occupancy is not None
    assert set(session.kernel_occupancy["occupancy"]) == {1.0}
    assert device.occupancy.limiters == {}
    blocks = _section(report, "occupancy")
    assert any(isinstance(one, Para) and "no resource of the SM limits it" in one.text for one in blocks)
    # Kernels of 80 registers are limited by them, those of 40 are not.
    (device,) = load(fixtures / "mps.sqlite").report().devices
    assert device.occupancy is not None
    assert set(device.occupancy.limiters) == {"registers"}
    assert 0 < device.occupancy.limiters["registers"] < 1


def test_a_grid_of_few_blocks_is_told_beside_what_limits_theoretical_occupancy(corpus: Path) -> None:
    """By SQL each of the two kernels has 1 block; 16 and 128 threads, and the GPU has 68 SMs."""
    path = corpus / "exports" / "nsys-ai" / "mock.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as export:
        grids = export.execute("SELECT gridX * gridY * gridZ FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall()
        sms = export.execute("SELECT smCount FROM TARGET_INFO_GPU").fetchall()
    assert (grids, sms) == ([(1,), (1,)], [(68,)])
    session = pyanalyze.load(path)
    report = session.report()
    assert report.devices[0].occupancy is not None
    # An SM of compute capability 8.6 has 16 block slots and 48 warp slots: blocks of one warp fill the former, at 33 %,
    # and blocks of four warps the latter. No grid changes that.
    assert report.devices[0].occupancy.small_grids == 1.0
    assert set(report.devices[0].occupancy.limiters) == {"blocks"}
    page = render_markdown(report, kernels=session.kernel_occupancy)
    assert page.count("(1 block for 68 SMs)") == 2
    said = "have at most 0.9 blocks per SM: they reach at most 90 % of the SMs."
    assert f"Launches that take 100.0 % of kernel time {said}" in page
    assert "Limiting resource" in page
    # Next to nothing has no range: what kernels have is in another table.
    assert "Such ranges" not in page
    assert "Such intervals of warps per SM (last table) contained the Nsight Compute counter for 95 % of 891" in page


@pytest.mark.parametrize(
    ("name", "grids", "rows", "said"),
    [
        # 528 blocks for 132 SMs of 8 each: half a wave, and four blocks for every SM.
        (
            "h200/alone-open_loop",
            {"R1": 528, "R2": 264},
            {"R1": ("0.500", "0.5 wave"), "R2": ("0.250", "0.25 wave")},
            "fills 50.0 % of one wave: it has a block for every SM, but block slots stay empty.",
        ),
        (
            "h100/alone-C",
            {"C1": 92, "C2": 92, "C3": 92, "C4": 158},
            {"C3": ("0.348", "92 blocks for 132 SMs"), "C4": ("0.150", "0.15 wave")},
            "",
        ),
    ],
)
def test_a_grid_of_less_than_a_wave_is_said_to_leave_sms_empty_only_where_it_does(
    name: str, grids: dict[str, int], rows: dict[str, tuple[str, str]], said: str, hardware: Path
) -> None:
    """By SQL: blocks of the kernels, and the SMs of the device. Table and chart say the same."""
    path = hardware.parent / f"{name}.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as export:
        found = export.execute(
            "SELECT DISTINCT value, gridX * gridY * gridZ FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName"
        ).fetchall()
        assert export.execute("SELECT smCount FROM TARGET_INFO_GPU").fetchall() == [(132,)]
    assert dict(found) == grids
    session = pyanalyze.load(path)
    report = session.report()
    page = render_markdown(report, kernels=session.kernel_occupancy)
    assert said in page and "leave SMs empty" not in page
    drawn = json.dumps(charts.limiters(session.kernel_occupancy, sm_count=report.devices[0].sm_count).to_dict())
    for short, (waves, fill) in rows.items():
        # 2 048 threads per SM: all of them have full theoretical occupancy, whatever their grid.
        told = [line for line in page.splitlines() if line.startswith(f"| {short} |")]
        assert any(f"| 100.0 % | nothing | {waves} |" in line for line in told)
        assert fill in drawn
    few = [f"{short} ({grid} blocks for 132 SMs)" for short, grid in grids.items() if grid < 132]
    assert ("With fewer blocks than SMs" in page) == bool(few)
    assert all(one in page for one in few)


@pytest.mark.parametrize(("grid", "small"), [(97, True), (98, False)])
def test_a_grid_is_too_small_up_to_nine_tenths_of_the_sms(grid: int, small: bool, tmp_path: Path) -> None:
    """0.9 x 108 SMs are 97.2 blocks."""
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, 1_000_000, gridX=grid, registersPerThread=80)])
    (device,) = pyanalyze.load(path).report().devices
    assert device.occupancy is not None
    assert (device.occupancy.small_grids == 1.0) == small
    # 80 registers per thread limit an SM full of such blocks, of which there may be none.
    assert "registers" in device.occupancy.limiters


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (0.72, 0.3, 0.72, "30 to 72 %"),
        (0.3, 0.3, 0.72, "30 to 72 %"),
        (0.61, 0.52, 0.7, "61 % (52 to 70)"),
    ],
)
def test_a_value_at_the_edge_of_its_interval_is_no_estimate(value: float, low: float, high: float, said: str) -> None:
    assert bounded_text(Bounded(value=value, low=low, high=high)) == said


def test_where_nothing_is_slow_no_cause_is_named() -> None:
    (device,) = examples.time_sliced().devices
    same = Estimate(value=1.01, low=0.99, high=1.02, n=50, basis="observed")
    quiet = device.tenants[0].model_copy(update={"slowdown": Slowdown(elapsed=same, latency=None, resident=None)})
    said = cause_sentence(device.model_copy(update={"tenants": [quiet]}))
    assert said == "Sharing slows no tenant (the largest slowdown is at most 1.02x)."


def test_the_chart_of_causes_shows_what_the_answer_says(fixtures: Path) -> None:
    """92.2 % waiting for its time slice in the answer: the queue behind a waiting kernel is no second cause."""
    session = load(fixtures / "demo-time-slicing.sqlite")
    (device,) = session.report().devices
    drawn = json.dumps(session.chart("causes").to_dict())
    tenant = next(one for one in device.tenants if one.name and "app_b" in one.name)
    assert tenant.root_causes is not None
    assert tenant.root_causes.not_resident is not None
    share = percent(tenant.root_causes.not_resident)
    assert share in cause_sentence(device)
    assert share in drawn
    assert "waiting for its time slice" in drawn
    assert "not resident" not in drawn
    said = " ".join(one.text for one in _section(session.report(), "interference") if isinstance(one, Para))
    assert "counts as what delayed the head of that queue" in said


def _options(report: Report) -> dict[str, str]:
    """Slowdown of each tenant, as the comparison of sharing configurations shows it."""
    table = next(one for one in _section(report, "advice") if isinstance(one, Table))
    return {row[0].text: row[3].text for row in table.rows}


def test_caps_are_shown_with_their_percentages(fixtures: Path) -> None:
    """Two clients: equal caps are half of the SMs each."""
    shown = _options(load(fixtures / "mps.sqlite").report())
    assert shown["MPS, equal caps"].count("(at 50 %)") == 2
    assert "%)" not in shown["time-slicing"]


def test_mig_is_shown_with_the_profiles_that_were_replayed(hardware: Path) -> None:
    """Two tenants on an H100 of 80 GB: halves of it are 3g.40gb and 4g.40gb (NVIDIA's MIG user guide)."""
    shown = _options(load(hardware / "torch-mps-serve-train.sqlite").report())
    assert set(re.findall(r"\(in ([^)]*)\)", shown["MIG"])) <= {"3g.40gb", "4g.40gb"}
    assert shown["MIG"].count("(in ") == 2
    assert not any("(in " in text for name, text in shown.items() if name != "MIG")


@pytest.mark.parametrize("who", ["app_a", "app_b", "app_c"])
def test_a_missing_solo_recording_has_commands_that_run_as_they_stand(who: str) -> None:
    """PROGRAM and CAPTURE are for the reader to fill in; everything else is what the shell and the program take."""
    folder = generate.built("running-example-time-slicing", solo=True)
    capture = folder / "running-example-time-slicing.no-switches.sqlite"
    (device,) = load(capture).report().devices
    (how,) = {one.how for one in device.missing_for("slowdown") if one.how}
    words = shlex.split(how, comments=True)
    named = words[words.index("--baseline") + 1].partition("=")[0]
    file = f"{named}.solo"
    assert words == [
        *("nsys", "profile", "-t", "cuda,nvtx", "-o", file, "PROGRAM", "&&"),
        *("pyanalyze", "interference", "CAPTURE", "--baseline", f"{named}={file}.nsys-rep"),
    ]
    assert {"app_a", "app_b", "app_c"} <= set(re.findall(r"app_[abc]", how))
    # The option takes the name of each of them.
    solo = folder / f"running-example-time-slicing.solo.{who[-1].upper()}.sqlite"
    (device,) = load(capture, baselines=[f"{who}={solo}"]).report().devices
    tenant = next(one for one in device.tenants if one.name == who)
    assert tenant.baseline is not None


def test_each_of_several_tenants_of_one_name_gets_a_baseline_of_its_own(fixtures: Path) -> None:
    path = fixtures.parent / "hardware" / "h200" / "mps-A-B-C.sqlite"
    (device,) = load(path).report().devices
    (how,) = {one.how for one in device.missing_for("slowdown") if one.how}
    baseline = "kit (pid 1184)=kit-pid-1184.solo.nsys-rep"
    assert shlex.split(how, comments=True)[-2:] == ["--baseline", baseline]
    others = "kit (pid 1185) and kit (pid 1186)"
    assert how.endswith(f"; the same for {others}, then pyanalyze interference once with every --baseline")
    # `advise` compares slowdowns only where it has nothing else to say.
    said = " ".join(run("advise", path).stdout.split())
    assert "Record kit (pid 1184), kit (pid 1185) and kit (pid 1186) solo first" in said


def test_what_a_command_captures_is_not_said_to_have_none(fixtures: Path) -> None:
    """One tenant was not traced: that keeps its slowdown and every forecast from being known, and has one remedy."""
    (device,) = load(fixtures / "demo-time-slicing.sqlite").report().devices
    hows = {one.what: one.how for one in device.sharing.missing}
    assert hows["options"] == hows["slowdown"]
    record = ["nsys", "profile", "-t", "cuda,nvtx", "--gpuctxsw=true", "-o", "NAME", "PROGRAM"]
    assert shlex.split(hows["options"], comments=True) == record


def test_what_may_be_in_a_kernel_is_recorded_before_the_kernel_is_made_faster(tmp_path: Path) -> None:
    """The mode is not known, and kernels limit the process: time slices of another would be in their durations."""
    (capture,) = six_captures.inputs("undetermined", tmp_path)
    (device,) = load(capture).report().devices
    first, second = device.advice[:2]
    assert first.action.startswith("Not enough data to decide")
    assert any("--gpuctxsw" in line for line in first.commands)
    assert second.action == "Make kernel k of train faster"


def test_no_switch_records_are_asked_for_under_mig(tmp_path: Path) -> None:
    """While MIG is in use the driver pauses their stream (docs/capture.md): nothing in samples leads there."""
    lines = [
        "timestamp, gpu_uuid, name, mig.mode.current, utilization.gpu [%], memory.used [MiB]",
        *(f"2026/01/05 10:00:0{n}.000, GPU-{'1' * 8}, NVIDIA A100-SXM4-40GB, {{}}, [N/A], 38 MiB" for n in range(3)),
    ]
    for mode, asked in (("Enabled", False), ("Disabled", True)):
        path = tmp_path / f"{mode}.csv"
        path.write_text("\n".join(lines).format(*[mode] * 3) + "\n", encoding="utf-8")
        (device,) = pyanalyze.load(path).report().devices
        commands = [line for one in device.advice for line in one.commands]
        assert any("--gpuctxsw" in line for line in commands) == asked
        assert any("-t cuda" in line for line in commands)


def test_one_gap_at_the_start_is_not_what_limits_a_process(tmp_path: Path) -> None:
    """Two launches, half a second of loading, then a thousand kernels back to back: the kernels limit what is left."""
    work = [kernel(41, n * US, (n + 1) * US) for n in range(2)]
    work += [kernel(41, 500_000 * US + n * 200 * US, 500_000 * US + (n + 1) * 200 * US) for n in range(1000)]
    capture = write(tmp_path / "start-up.sqlite", kernels=work, processes={41: "train"}, gpus=[A100])
    (device,) = pyanalyze.load(capture).report().devices
    said = limit_text(device)
    assert said is not None
    assert "train is limited by the host" in said
    assert "one gap of 500.0 ms at its start" in said
    assert "Almost all of the host's time" in said
    # 200.002 ms of kernels and nothing else but that gap.
    assert said.endswith("Without it: kernels 100.0 %.")
    assert "most of the rest" not in (limit_text(device, short=True) or "")
    (option,) = re.findall(r"--start (\d+us)", said)
    # To look at the rest is a command, and neither changes nor gains anything by itself.
    first = device.advice[0]
    assert first.action == "Before any change, look at train without its start, in which the GPU waited longest"
    assert any(f"--start {option}" in line for line in first.commands)
    assert first.bound is None
    (rest,) = pyanalyze.load(capture).window(start=option).report().devices
    assert (limit_text(rest) or "").startswith("train is limited by its kernels")
    # Without such a gap nothing is said of one.
    late = [kernel(41, n * 1_000 * US, n * 1_000 * US + 100 * US) for n in range(1000)]
    (device,) = (
        pyanalyze.load(write(tmp_path / "slow.sqlite", kernels=late, processes={41: "train"}, gpus=[A100]))
        .report()
        .devices
    )
    assert (limit_text(device) or "").startswith("train is limited by the host")
    assert "one gap" not in (limit_text(device) or "")


@pytest.mark.parametrize("capture", ["containers-same-pid", "mps.sqlite"])
def test_with_one_other_tenant_pairwise_interference_is_the_slowdown(fixtures: Path, capture: str) -> None:
    """Whether the victim was slowed or not."""
    (device,) = load(fixtures / capture).report().devices
    assert device.interference is not None
    assert device.interference.matrix
    for cell in device.interference.matrix:
        slowdown = next(one.slowdown for one in device.tenants if one.tenant_id == cell.victim)
        assert slowdown.elapsed is not None
        assert slowdown.latency is not None
        assert cell.slowdown == pytest.approx(slowdown.elapsed.value)
        assert (cell.low, cell.high) == (slowdown.elapsed.low, slowdown.elapsed.high)
        assert cell.latency == pytest.approx(slowdown.latency.value)


def test_kernels_per_second_say_of_which_launches(fixtures: Path) -> None:
    """A solo recording has another figure beside another co-run: only launches that both have are compared."""
    report = load(fixtures / "containers-same-pid").report()
    said = " ".join(one.text for one in _section(report, "interference") if isinstance(one, Para))
    assert "Only work that is in both runs counts." in said


def test_modes_of_a_fleet_add_up_to_what_the_line_counts() -> None:
    """Two groups recorded the same GPU: one GPU, two recordings, and modes that add up to two."""
    known: dict[str, Any] = dict.fromkeys(DeviceRow.model_fields)
    known |= {"group": "a", "host": "h", "device_id": 0, "gpu_uuid": "GPU-1", "mode": Mode.MPS, "tenants": 1}
    row = DeviceRow.model_construct(None, **known | {"lost_records": 0})
    again = row.model_copy(update={"group": "b", "mode": Mode.EXCLUSIVE})

    def line(*rows: DeviceRow) -> str:
        groups = [
            GroupPart.model_construct(name=one.group, captures=["x"], devices=[one], job="", report="", page="")
            for one in rows
        ]
        return summarise("0", groups, [], []).line

    assert line(row).startswith("1 GPU on 1 host in 1 capture: mps 1;")
    assert line(row, again).startswith("1 GPU on 1 host in 2 captures, 2 recordings of a GPU: exclusive 1, mps 1;")


def test_a_device_has_the_number_of_the_tool_that_sampled_it(tmp_path: Path) -> None:
    path = tmp_path / "dmon.txt"
    path.write_text("# gpu   pwr    sm\n# Idx     W     %\n    1   250    37\n    1   260    40\n", encoding="utf-8")
    (device,) = pyanalyze.load(path).report().devices
    assert device_title(device) == "GPU of unknown name (device 0, GPU 1 of nvidia-smi)"


def test_times_of_a_slow_unit_say_what_they_count_from(fixtures: Path) -> None:
    report = load(fixtures / "lost-records.sqlite").report()
    (device,) = report.devices
    assert device.window is not None
    assert device.slow_units
    unit = device.slow_units[0].slowest
    said = " ".join(one.caption for one in _section(report, "slow-requests") if isinstance(one, Table))
    assert f"{duration(unit.start_ns - device.window.start_ns)} after the start of the window" in said
    assert f"{duration(unit.start_ns)} on the clock of the capture" in said


@pytest.mark.parametrize("most", [3, 4])
def test_the_headline_of_copies_does_not_call_best_what_a_row_beats(fixtures: Path, most: int) -> None:
    (advice,) = load(fixtures / "exclusive.sqlite").replicas(range(1, most + 1))
    best = next(one for one in advice.options if one.recommended)
    beaten = any(one.throughput.value > best.throughput.value for one in advice.options)
    text = " ".join(replicas_text([advice]).split())
    # All copies are equal, and so are their caps.
    caps = f" ({best.percentages[0]} %)" if best.percentages else ""
    said = f"{caps} gives" if beaten else f"{caps} has most throughput:"
    assert f"For {best.copies} x python3, {best.name}{said} {best.throughput.value:.2f}x" in text
    assert ("No configuration is forecast more than 3 % better" in text) == beaten
    # Beyond the knee the text names both numbers.
    assert advice.knee is not None
    assert advice.knee.next_gain is not None
    assert -0.01 < advice.knee.next_gain < 0.05
    assert "less than the 5 % from which one is worth it" in text
    named = f"{advice.knee.copies} copies ({advice.knee.name}) may be enough."
    assert (named in text) == (best.copies > advice.knee.copies)


def test_the_best_rate_says_of_which_copies(hardware: Path) -> None:
    """The mean over copies of all sizes may be above that of the fastest large copy."""
    report = load(hardware.parent / "h200" / "mps-A-B-C.sqlite").report()
    table, legend = [one for one in _section(report, "copies") if isinstance(one, Table)]
    assert [(one.title, one.unit) for one in table.columns][-1] == ("Best rate", "in that direction")
    (said,) = [row[1].text for row in legend.rows if row[0].text == "Best rate"]
    assert "the fastest copy of at least 1 MiB of this process in the same direction, or of a row" in said


def test_what_is_modelled_is_not_read_as_measured() -> None:
    """No slowdown of the clients is known, and the forecast has one of each: the replay needs no solo recording."""
    (device,) = load(generate.built("mps-capped") / "mps-capped.sqlite").report().devices
    assert all(one.slowdown.elapsed is None and one.slowdown.latency is None for one in device.tenants)
    expected = device.advice[0].expected
    assert expected is not None
    assert expected.startswith("modelled elapsed slowdown client-1")


def test_caps_that_are_taken_away_are_named_and_given_back() -> None:
    """The command lines say 31 and 33 per cent, not whose; of 142 SMs that leaves 44 and 46, which the clients saw."""
    folder = generate.built("mps-capped")
    truth = json.loads((folder / "mps-capped.truth.json").read_text(encoding="utf-8"))
    (device,) = load(folder / "mps-capped.sqlite").report().devices
    pids = {one.tenant_id: one.pid for one in device.tenants}
    (now,) = [one for one in device.options or () if one.current]
    caps = {pids[one.tenant_id]: one.percentage for one in now.percentages}
    assert caps == {one["pid"]: {44: 31, 46: 33}[len(one["sms"])] for one in truth["tenants"] if one["mps_client"]}
    undo = device.advice[0].undo or ""
    names = [(one.name, caps[one.pid]) for one in device.tenants if one.pid in caps]
    # The command line of the parent of both sets them: a shell cannot.
    assert any("remove" in line for line in device.advice[0].commands)
    assert not any(line.startswith("unset") for line in device.advice[0].commands)
    assert [line for line in undo.split("\n") if line.startswith("# write ")] == [
        f"# write CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={cap} into the command that starts {name}" for name, cap in names
    ]
    # Each command of the undo stands on a line of the page.
    page = render_markdown(load(folder / "mps-capped.sqlite").report()).splitlines()
    assert set(undo.split("\n")) <= set(page)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("mps-capped", "with no other tenant, under MPS with the same cap as here"),
        ("mig-mps", "with no other tenant, in the same MIG instance"),
        ("mps", "with no other tenant on the GPU"),
    ],
)
def test_a_solo_recording_is_made_under_the_settings_that_the_slowdown_leaves_out(name: str, where: str) -> None:
    """Under another cap or in another instance the slowdown would include that difference."""
    (device,) = load(generate.built(name) / f"{name}.sqlite").report().devices
    (gap, *_) = device.missing_for("slowdown")
    assert where in gap.how


def test_tenants_that_were_not_traced_are_recorded_at_the_same_time(
    fixtures: Path,
) -> None:
    (device,) = load(fixtures / "demo-time-slicing.sqlite").report().devices
    (gap,) = device.missing_for("slowdown")
    said = gap.how.partition("   # ")[2]
    assert "one for each tenant, at the same time" in said


def test_what_only_a_later_capture_shows_is_no_condition(fixtures: Path) -> None:
    for path in (generate.built("mps-capped") / "mps-capped.sqlite", fixtures / "demo-time-slicing.sqlite"):
        report = load(path).report()
        after = [one for one in report.devices[0].advice if one.check_after]
        assert after
        assert all(one.wrong_if is None for one in after)
        text = " ".join(one.text for one in _section(report, "advice") if isinstance(one, Para))
        assert text.count("Check afterwards: ") == len(after)


def test_longer_time_slices_are_for_throughput_and_say_where_a_switch_is_from(fixtures: Path) -> None:
    """Release drivers record the switch gap only. With 3 tenants a kernel waits for 2 slices and 3 switches.

    Of a full switch the generator says how long it takes (median 114.09 us); in the other capture records were lost, and
    kernels are too few to show it.
    """
    report = load(fixtures / "demo-time-slicing.sqlite").report()
    (found,) = [one for one in report.devices[0].advice if "--set-timeslice=3" in "".join(one.commands)]
    assert "latency does not" in found.action
    assert "calculated: 2 x 2.074 ms and 3 full switches" in found.why
    assert "assumed" not in f"{found.bound} {found.why}"
    truth = json.loads((fixtures / "demo-time-slicing.truth.json").read_text(encoding="utf-8"))
    switches = truth["devices"][0]["switches"]
    said = re.search(r"and ([\d.]+) us to save and restore \(inferred from the extra time of kernels", found.why)
    assert said is not None
    assert float(said[1]) * 1e3 == pytest.approx(switches["median_full_ns"] - switches["median_gap_ns"], rel=0.02)
    # The same number where the added latency is explained.
    texts = [one.text for one in _section(report, "interference") if isinstance(one, Para)]
    assert any(f"about {said[1]} us (" in text for text in texts)

    (assumed,) = [
        one
        for one in load(fixtures / "lost-records.sqlite").report().devices[0].advice
        if "--set-timeslice=3" in "".join(one.commands)
    ]
    assert re.search(r"full switches of [\d.]+ us \(assumed\) after intervals that used up", assumed.bound or "")
    assert "(assumed, as on other boards: this capture shows neither)" in assumed.why


def test_what_a_slowdown_covers_is_said(fixtures: Path) -> None:
    """app_a ran alone for the first 205 ms of 1129: those kernels are in its slowdown, which is larger without them."""
    session = load(fixtures / "demo-time-slicing.sqlite")
    whole, contended = session.report(), session.window("227ms").report()
    slowdown = [next(t for t in one.devices[0].tenants if t.name == "app_a").slowdown for one in (whole, contended)]
    assert slowdown[0].latency is not None
    assert slowdown[1].latency is not None
    assert slowdown[1].latency.value > slowdown[0].latency.value
    captions = [one.caption for one in _section(whole, "interference") if isinstance(one, Table)]
    assert any("Work that ran solo counts as well: --start" in one for one in captions)


def test_an_interval_longer_than_the_window_is_explained(fixtures: Path) -> None:
    """The context of the only process is resident for 141.9 ms, its work takes 126.9."""
    report = load(fixtures / "streams.sqlite").report()
    switches = _table(report, "residency", "Context switches")
    assert switches["Median residency interval"][0] == "141.9 ms"
    for capture, times in (("streams", 1), ("demo-time-slicing", 0)):
        report = load(fixtures / f"{capture}.sqlite").report()
        for name in ("tenants", "residency"):
            tables = [one for one in _section(report, name) if isinstance(one, Table)]
            heads = [column.unit for table in tables for column in table.columns]
            assert sum("complete, also outside the window" in unit for unit in heads) == times


def test_waves_of_a_capped_client_say_of_which_sms() -> None:
    report = load(generate.built("mps-capped") / "mps-capped.sqlite").report()
    kernels = load(generate.built("mps-capped") / "mps-capped.sqlite").kernel_occupancy
    (section,) = [one for one in lay_out(report, kernels).sections if one.id.startswith("occupancy")]
    tables = [one for one in section.blocks if isinstance(one, Table)]
    assert "Waves are over the SMs that each tenant may use: client-1 46 and client-2 44, of 142." in tables[-1].caption


def test_a_command_of_a_table_can_be_copied_from_markdown(fixtures: Path) -> None:
    """Entities and a bar inside a cell would be another command."""
    report = load(generate.built("mps-capped") / "mps-capped.sqlite").report()
    text = render_markdown(report)
    hows = {one.how for one in report.devices[0].sharing.missing if one.how}
    assert any("|" in how for how in hows)
    assert any("&&" in how for how in hows)
    assert all(f"```sh\n{how}\n```" in text for how in hows)


def test_an_mps_server_is_named_among_untraced_processes(fixtures: Path) -> None:
    """Its residency is that of its clients, which are traced; under time-slicing there is none."""
    capped = load(generate.built("mps-capped") / "mps-capped.sqlite").report()
    shown = [text for text in _table(capped, "sharing", "Evidence") if text.startswith("Untraced processes")]
    assert [text.endswith("(the MPS server is one of them)") for text in shown] == [True]
    sliced = load(fixtures / "demo-time-slicing.sqlite").report()
    shown = [text for text in _table(sliced, "sharing", "Evidence") if text.startswith("Untraced processes")]
    assert [text.endswith("of the resident time in the whole capture") for text in shown] == [True]
    evidence = {one.name: one.n for one in capped.devices[0].sharing.evidence}
    assert evidence["busy_without_switches"] == 561  # kernels: 246 and 315
    assert evidence["untraced_resident"] == 1  # interval


def test_every_word_of_a_basis_is_explained_where_the_key_numbers_point(fixtures: Path) -> None:
    report = load(fixtures / "demo-time-slicing.sqlite").report()
    page = lay_out(report)
    (section,) = [one for one in page.sections if one.id == "glossary"]
    (table,) = [one for one in section.blocks if isinstance(one, Table)]
    explained = {row[0].basis or row[0].text for row in table.rows}
    words = {"observed", "inferred", "modelled", "sampled", "configured", "assumed", "documented"}
    assert explained == {*words, "confidence"}
    assert any(section.title in one.text for one in _section(report, "summary") if isinstance(one, Para))


def test_gpu_time_of_a_server_names_what_its_clients_had(fixtures: Path) -> None:
    """Switch records name the MPS server only: 100 % of it says nothing of either client."""
    truth = json.loads((fixtures / "mps.truth.json").read_text(encoding="utf-8"))
    (device,) = load(fixtures / "mps.sqlite").report().devices
    assert device.window is not None
    window_ns = device.window.end_ns - device.window.start_ns
    for text in (switching_text(device), gpu_time_text(device)):
        for tenant in (one for one in truth["tenants"] if one["busy_ns"]):
            assert f"(pid {tenant['pid']}) {percent(tenant['busy_ns'] / window_ns)}" in text
    (device,) = load(fixtures / "demo-time-slicing.sqlite").report().devices
    assert "kernels in flight" not in switching_text(device)


def test_no_advice_is_cut_in_the_middle() -> None:
    """Eight tenants with their memory and instances take more than 600 characters; names are shortened before."""
    report = examples.time_sliced()
    why = ", ".join(f"tenant {n} gets an instance of 19.0 GiB" for n in range(30))
    device = report.devices[0]
    advice = [device.advice[0].model_copy(update={"why": why})]
    report = report.model_copy(update={"devices": [device.model_copy(update={"advice": advice})]})
    assert why[1:] in render_markdown(report)


def test_the_table_of_causes_has_the_part_that_the_sentence_names_and_what_of_it_is_behind_its_own(
    fixtures: Path,
) -> None:
    report = load(fixtures / "demo-time-slicing.sqlite").report()
    blocks = _section(report, "interference")
    (table,) = [one for one in blocks if isinstance(one, Table) and one.caption.startswith("Where the added latency")]
    (row,) = [[cell.text for cell in row] for row in table.rows if row[0].text == "app_b"]
    waiting = [column.title for column in table.columns].index("Waiting for its time slice")
    said = re.search(r"\(([\d.]+ %) of the added latency\)", " ".join(lead_sentences(report.devices[0])))
    assert said is not None
    assert said.group() in cause_sentence(report.devices[0])
    whole, own = re.fullmatch(r"([\d.]+ %) \(([\d.]+) % behind its own\)", row[waiting]).groups()  # type: ignore[union-attr]
    assert whole == said.group(1)
    # Most kernels of it wait behind one that waits.
    assert float(own) > 0.5 * float(whole.removesuffix(" %"))


def test_commands_of_samples_say_nothing_of_kernels_that_they_do_not_have(tmp_path: Path) -> None:
    paths = six_captures.inputs("samples only", tmp_path)
    assert "launch configuration" not in run("interference", *paths).stdout
    classified = run("classify", *paths).stdout
    assert re.search(r": undetermined \(most likely exclusive, 0\.\d\d\)\n", classified)
    # One command records both kernels and switches.
    (advice, *_) = json.loads(run("advise", *paths, "-f", "json").stdout)["devices"][0]["advice"]
    assert [line.partition("   #")[0] for line in advice["commands"]] == [recording()]


def test_the_timeline_says_whose_residency_the_clients_of_a_server_share(hardware: Path) -> None:
    """Both clients ran kernels at once for seconds; the switch records name one of them (fixtures/hardware/h100)."""
    report = load(hardware / "mps-50-50-A-B.sqlite").report()
    (chart,) = [one for one in _section(report, "timeline") if isinstance(one, Chart)]
    assert "The shading of kit (pid 2341) is the residency of all MPS clients." in chart.caption


def test_clients_of_mps_in_flight_at_once_ran_beside_each_other(hardware: Path) -> None:
    """Kernels of each pair overlap for most of the window, by SQL, and no context switched."""
    path = hardware.parent / "h200" / "mps-A-B-C.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag = 7").fetchone() == (0,)
        query = """SELECT DISTINCT a.globalPid >> 24 & 0xFFFFFF, b.globalPid >> 24 & 0xFFFFFF
            FROM CUPTI_ACTIVITY_KIND_KERNEL AS a JOIN CUPTI_ACTIVITY_KIND_KERNEL AS b
            ON a.globalPid < b.globalPid AND a.start < b."end" AND b.start < a."end" """
        assert sorted(db.execute(query)) == [(1184, 1185), (1184, 1186), (1185, 1186)]
    (device,) = load(path).report().devices
    assert device.sharing.mode == "mps"
    assert [one.relation for one in device.relations] == ["side-by-side"] * 3
    # 186.8 ms with work in both streams less 37.59 ms overlapped and 27.91 ms with one in flight.
    table = next(
        one
        for one in _section(load(path).report(), "streams")
        if isinstance(one, Table) and any(cell.text == "186.8 ms" for row in one.rows for cell in row)
    )
    place = [column.title for column in table.columns].index("Neither")
    assert table.rows[0][place].text == "121.3 ms"


def test_samples_of_another_moment_than_the_window_say_so(hardware: Path) -> None:
    node = hardware.parent / "h200" / "node-slices-A-B"
    with contextlib.closing(sqlite3.connect(node / "report.sqlite")) as db:
        ((zero,),) = db.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        ((first,),) = db.execute("SELECT min(timestamp) FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag = 8")
    rows = [json.loads(line) for line in (node / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    ahead_ns = zero + first - max(row["time_utc_ns"] for row in rows if "metrics" in row)
    assert 300_000_000 < ahead_ns < 400_000_000
    report = load(node).report()
    said = f"No sample is from the window: the last one was taken {duration(ahead_ns)} before it."
    for section in ("samples", "memory"):
        assert said in [one.text for one in _section(report, section) if isinstance(one, Para)]


@pytest.mark.parametrize(
    ("start_ns", "end_ns", "said"),
    [
        (1_000, 2_000, None),
        # Up to 2 % of the window are no word worth.
        (981, 2_020, None),
        (0, 2_000, "Samples outside of the window count as well: up to 1.00 us before it."),
        (500, 5_000, "Samples outside of the window count as well: up to 500 ns before it and 3.00 us after it."),
        (2_001, 3_000, "No sample is from the window: the first one was taken 1 ns after it."),
    ],
)
def test_how_far_samples_are_from_the_window(start_ns: int, end_ns: int, said: str | None) -> None:
    (device,) = examples.time_sliced().devices
    sampled = Sampled.model_construct(n=2, start_ns=start_ns, end_ns=end_ns)
    update = {"window": Window(start_ns=1_000, end_ns=2_000), "sampled": sampled}
    assert outside_window(device.model_copy(update=update)) == said


def test_active_sms_are_known_where_only_a_counter_has_them(hardware: Path) -> None:
    """Nothing was traced: a counter of the whole GPU is what there is."""
    node = hardware.parent / "h200" / "node-slices-A-B"
    with contextlib.closing(sqlite3.connect(node / "report.sqlite")) as db:
        ((mean,),) = db.execute(
            "SELECT avg(value) FROM GPU_METRICS WHERE (typeId, metricId) IN (SELECT typeId, metricId FROM "
            "TARGET_INFO_GPU_METRICS WHERE metricName LIKE 'SMs Active%')"
        )
    report = load(node).report()
    facts = {one.label: one for block in _section(report, "summary") if isinstance(block, Facts) for one in block.facts}
    # The first sample stands at the begin of the recording, and is of no time before it.
    assert float(facts["SMs active"].value.removesuffix(" %")) == pytest.approx(mean, abs=0.2)
    assert facts["SMs active"].basis == "sampled"


def test_counters_of_an_untraced_gpu_say_what_time_they_are_of(hardware: Path) -> None:
    """200 samples in the first 20 ms of a second; until when the last one is, is not known."""
    node = hardware.parent / "h200" / "node-mps-A-B-beside-C"
    with contextlib.closing(sqlite3.connect(node / "report.sqlite")) as db:
        sampled = dict(
            db.execute(
                "SELECT metricName, avg(value) FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS USING (typeId, metricId) "
                "WHERE timestamp < (SELECT max(timestamp) FROM GPU_METRICS) AND metricName LIKE '%[Throughput _]' "
                "GROUP BY metricName"
            )
        )
    (device,) = load(node).report().devices
    found = device.gpu_metrics
    assert found is not None
    assert (found.n, found.start_ns, found.end_ns) == (199, 7_369, 19_907_264)
    means = {f"{one.name} [Throughput %]": 100 * one.mean for one in found.counters}
    assert means == pytest.approx(sampled)
    active, warps, issue, read = (
        f"{sampled[f'{name} [Throughput %]']:.1f} %"
        for name in ("SMs Active", "Compute Warps in Flight", "SM Issue", "DRAM Read Bandwidth")
    )
    # 19.907264 - 0.427047 ms of a window of 998.249 ms are 1.95 %.
    assert gpu_metrics_text(device) == (
        f"SMs active {active}, {warps} of all warp slots in use, SM Issue {issue}, DRAM Read {read} "
        "(mean of 199 samples over 19.90 ms, 2.0 % of the window, at its start)"
    )


@pytest.mark.parametrize(
    ("start_ns", "end_ns", "said"),
    [
        (0, 100, "4 samples in the window"),
        (9, 100, "4 samples in the window"),
        (11, 100, "4 samples over 89 ns, 89.0 % of the window"),
        (-100, 100, "4 samples over 200 ns, the window has 100 ns"),
        (50, 60, "4 samples over 10 ns, 10.0 % of the window, 50 ns after its start"),
        (-100, 0, "4 samples over 100 ns, 0.0 % of the window"),
    ],
)
def test_how_much_of_the_window_samples_cover(start_ns: int, end_ns: int, said: str) -> None:
    (device,) = examples.time_sliced().devices
    found = GpuMetrics(n=4, start_ns=start_ns, end_ns=end_ns, counters=[])
    with_window = device.model_copy(update={"window": Window(start_ns=0, end_ns=100)})
    assert samples_text(with_window, found) == said


def test_counters_of_a_gpu_without_work_are_shown(corpus: Path) -> None:
    """The copy engine of the first A5000 counts as busy throughout, its SMs as idle."""
    session = load(corpus / "exports" / "nemo-a5000" / "report2.nsys2026.sqlite")
    first, second = session.report().devices
    assert first.gpu_metrics is not None and second.gpu_metrics is not None
    assert (first.gpu_metrics.n, second.gpu_metrics.n) == (1_357, 3_272)
    assert [device.gpu_metrics.mean_of("Async Copy") for device in (first, second) if device.gpu_metrics] == [1, 0]
    # From -11.002 to 124.698 ms.
    assert "SMs active 0.0 %" in str(session) and "over 135.7 ms)" in str(session)


def test_counters_say_which_samples_they_are_the_mean_of(corpus: Path) -> None:
    """SMs of an RTX 3090 worked for another process: 39.5 % of the capture of 0.6 s, 95.7 % of the window of 22 ms."""
    path = corpus / "exports" / "rtx3090-gpumetrics" / "report2.nsys2026.sqlite"
    report = load(path).report()
    (device,) = report.devices
    assert device.window is not None
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        rows = db.execute(
            "SELECT timestamp, value FROM GPU_METRICS JOIN TARGET_INFO_GPU_METRICS USING (typeId, metricId) "
            "WHERE metricName = 'SM Active' ORDER BY timestamp"
        ).fetchall()
    # A sample is the mean of the 100 us from its time on; those at the ends are in the window with a part of that.
    inside = [
        (min(time + 100_000, device.window.end_ns) - max(time, device.window.start_ns), value) for time, value in rows
    ]
    inside = [(length, value) for length, value in inside if length > 0]
    mean = sum(length * value for length, value in inside) / sum(length for length, _ in inside)
    text = " ".join(render_text(report).split())
    assert f"SMs active: {mean:.1f} % (hardware counter, mean of {len(inside)} samples in the window)" in text
    assert "SM activity was 39.5 % while no traced kernel ran (mean of 6072 samples of the whole capture)" in text
    # What others made the counters count is no measure of the model, and no figure is more precise than it can be.
    assert "counted over modelled warps" not in text
    assert "warps 0.03 % modelled, 12.4 % counted" in text


def test_the_end_that_the_model_gives_is_named_for_each_quantity() -> None:
    """Of 42 to 49 % the model gives 49 %; its 33 % of warp slots is inside of 15 to 35 %."""
    shown = {
        one.label: one.note
        for block in _section(examples.time_sliced(), "occupancy")
        if isinstance(block, Facts)
        for one in block.facts
    }
    assert shown["SMs active"].endswith("; the model gives 49 %, the upper end")
    assert "the model gives" not in shown["Warp slots in use"]


def test_charts_say_that_they_draw_the_upper_end_and_tables_that_they_are_corrected(corpus: Path) -> None:
    """A launch of 100 blocks of 8 warps on 82 SMs has 9.76 per SM; in the 2 us that it lasts, blocks start and end."""
    path = corpus / "exports" / "balinski" / "report19.nsys2026.sqlite"
    session = load(path)
    (row,) = session.tables.kernel_occupancy.filter(short_name="solve_1bc_kernel").iter_rows(named=True)
    placed = 100 * 8 / 82
    assert row["mean_warps_per_sm"] < 0.5 * placed
    assert row["mean_warps_per_sm_high"] == pytest.approx(placed)
    report = session.report()
    page = render_markdown(report, kernels=session.kernel_occupancy)
    charts = [
        one.caption for one in _section(report, "occupancy") if isinstance(one, Chart) and "Modelled" in one.title
    ]
    said = "leaves out what starting, ending and uneven blocks cost; its mean is 2 %, the upper end of the range above."
    assert [said in caption for caption in charts] == [True, False]
    assert "Warps per SM (corrected mean when solo, 95 % CI)" in page


def test_ranges_of_utilisation_are_explained(hardware: Path) -> None:
    """Of 24 samples of a process the driver had a value in five."""
    report = load(hardware.parent / "h200" / "node-slices-A-B").report()
    (table,) = [one for one in _section(report, "samples") if isinstance(one, Table) and "Tenants" in one.caption]
    place = [column.title for column in table.columns].index("Utilisation")
    assert all(" to " in row[place].text for row in table.rows)
    assert "no value of the process: its lower end counts them as no use." in table.caption
    ((listed, *_),) = [device.listed for device in report.devices]
    assert listed.utilization is not None and listed.utilization.low is not None and listed.utilization.high is not None
    assert listed.utilization.low / listed.utilization.high == pytest.approx(listed.utilization.n / 24)


@pytest.mark.parametrize(
    ("name", "said"),
    [("node-slices-A-B", "untraced: all of them"), ("node-mps-A-B-beside-C", "untraced: all of them")],
)
def test_untraced_tenants_are_not_listed_twice(hardware: Path, name: str, said: str) -> None:
    (device,) = load(hardware.parent / "h200" / name).report().devices
    (detail,) = (one.detail for one in device.sharing.details if one.name == "tenants")
    assert detail.endswith(said)


def test_two_slowdowns_of_one_tenant_say_why_they_differ(hardware: Path) -> None:
    """The replay starts from the recorded run, the forecast of the current mode replays that as well."""
    report = load(hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite").report()
    (device,) = report.devices
    current = next(option for option in device.options or () if option.current)
    tenants = {t.tenant_id: t for t in device.tenants}
    differ = {
        tenants[one.tenant_id].pid: (one.slowdown, estimate.value)
        for one in current.tenants
        if (estimate := tenants[one.tenant_id].slowdown.elapsed) is not None
    }
    here, there = differ[1905]
    assert here / there > 1.05
    (table,) = [one for one in _section(report, "advice") if isinstance(one, Table)]
    assert f"{here:.2f}x where {there:.2f}x was found for python3 (pid 1905)" in table.caption
    assert "and only the solo run is modelled" in table.caption


def test_what_is_known_of_a_pair_stands_beside_a_sure_mode(hardware: Path) -> None:
    """Two clients with half of the SMs each: by SQL their kernels overlap, on which SMs no record says."""
    for path, said in (
        (hardware / "mps-50-50-A-B.sqlite", "concurrent; whether on the same SMs is not known"),
        (
            hardware.parent / "h200" / "node-mps-A-B-beside-C",
            "clients of one MPS server; whether concurrent is not known",
        ),
    ):
        found = next(
            one for one in _section(load(path).report(), "sharing") if "Relation of" in getattr(one, "caption", "")
        )
        assert isinstance(found, Table)
        assert said in [row[2].text for row in found.rows]
        assert "not known" not in [row[2].text for row in found.rows]


def test_small_copies_have_no_column_of_unknown_rates(hardware: Path) -> None:
    """By SQL no copy of the two processes is larger than 64 bytes."""
    path = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT max(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY").fetchone() == (64,)
    table, legend = [one for one in _section(load(path).report(), "copies") if isinstance(one, Table)]
    assert "Best rate" not in [column.title for column in table.columns]
    assert "Best rate" not in [row[0].text for row in legend.rows]
    assert "best rate" not in table.caption


def test_what_a_recording_of_a_node_without_a_traced_program_lacks_can_be_recorded(hardware: Path) -> None:
    """Its recorder noted that nsys may write no switch records then; no kernel was traced for a forecast."""
    folder = hardware.parent / "h200" / "node-mps-A-B"
    assert "without a traced program nsys may write no switch records" in (folder / "samples.jsonl").read_text()
    (device,) = load(folder).report().devices
    gaps = {gap.what: gap for gap in device.sharing.missing}
    assert gaps["context_switches"].why.endswith("and without a traced program nsys may write none")
    for what in ("context_switches", "kernels", "options"):
        assert (gaps[what].how or "").startswith("nsys profile -t cuda,nvtx"), what
    # The session of nsys began 331.8 ms after the last sample, its first counter came 0.02 ms later.
    assert (gpu_metrics_text(device) or "").endswith(
        "(mean of 199 samples over 19.90 ms, 331.8 ms after the other samples)"
    )
    listed = next(one for one in device.sharing.evidence if one.name == "nvml_several_processes")
    assert listed.detail.startswith("NVML lists 2 compute processes beside the MPS server on the GPU")


def test_why_nothing_is_known_of_interference_is_said_once(hardware: Path) -> None:
    report = load(hardware.parent / "h200" / "node-slices-A-B").report()
    said = [getattr(one, "text", "") for one in _section(report, "interference")]
    assert sum("were not traced" in text for text in said) == 1


def test_why_a_sharing_configuration_is_slow_stands_below_the_table(hardware: Path) -> None:
    """Under MPS the decoder waits for blocks of the trainer; time-sliced, who had SMs of its own waits for slices."""
    h200 = hardware.parent / "h200"
    for path, said in (
        (
            h200 / "torch-slices-jax_train-decode.sqlite",
            r"Under MPS with minimal caps, \d+ % of the added kernel latency of python3 \(pid 1905\) is waiting for SMs "
            r"that blocks of other tenants hold \(modelled\)\. Under MPS, \d+ % of the added kernel latency of python3 "
            r"\(pid 1905\) is waiting for SMs that blocks of other tenants hold \(modelled\)\.",
        ),
        (
            hardware / "mps-50-50-A-B.sqlite",
            r"Under time-slicing, \d+ % of the added kernel latency of kit \(pid 2340\) is waiting for its time slice, "
            r"context switches included \(modelled\)\.",
        ),
    ):
        *_, table, reasons, _, _ = _section(load(path).report(), "advice")
        assert isinstance(table, Table)
        assert isinstance(reasons, Para)
        assert re.fullmatch(said, reasons.text)
        assert all(len(sentence.split()) <= 30 for sentence in reasons.text.split(". "))


def test_no_reason_is_said_where_no_configuration_is_slower(hardware: Path) -> None:
    report = load(hardware / "slices-A-B.sqlite").report()
    assert [type(one) for one in _section(report, "advice")[-3:]] == [Table, Fold, Para]


def test_time_in_switch_gaps_has_a_second_share_only_where_it_differs(hardware: Path) -> None:
    """Contexts alternated all the time (5.2 % of the window, 5.3 % of that time), or in a part of it."""
    for path, said in (
        (hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite", False),
        (hardware / "mps-A-B-beside-C.sqlite", True),
    ):
        captions = [one.caption for one in _section(load(path).report(), "residency") if isinstance(one, Table)]
        assert any("in which contexts alternated" in one for one in captions) is said


def test_each_command_of_an_undo_has_its_own_line(hardware: Path) -> None:
    """Behind the comment of the one before it a second command would not run."""
    report = load(hardware / "mps-A-B-beside-C.sqlite").report()
    (back,) = [one.undo for one in report.devices[0].advice if one.undo and "\n" in one.undo]
    shown = [one.lines for one in _section(report, "advice") if isinstance(one, Commands)]
    assert tuple(back.split("\n")) in shown
    assert back.split("\n")[-1].startswith("unset CUDA_MPS_PIPE_DIRECTORY")


def test_whom_a_change_makes_slower_is_said_beside_its_gain(hardware: Path) -> None:
    """Equal caps take SMs from the trainer: by the table of forecasts it loses a third, and the mean gains a fifth."""
    report = load(hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite").report()
    (device,) = report.devices
    labels = {t.tenant_id: t.pid for t in device.tenants}
    now, then = (
        {
            labels[one.tenant_id]: one.slowdown
            for option in device.options or ()
            if getattr(option, which)
            for one in option.tenants
        }
        for which in ("current", "recommended")
    )
    assert then[1904] > 1.05 * now[1904]
    assert then[1905] < now[1905]
    said = f"{then[1904] / now[1904]:.2f} times as long"
    assert f"but python3 (pid 1904) {said} as now" in " ".join(render_summary(report).split())
    check = device.advice[0].check_after or ""
    assert f"of python3 (pid 1905) should take less time than now, those of python3 (pid 1904) {said}" in check


def test_a_long_name_hides_neither_the_gain_nor_its_cost(hardware: Path) -> None:
    path = hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite"
    named = pyanalyze.load(path, tenants={"a-very-long-deployment-name-of-a-trainer-in-production": 1904})
    said = " ".join(render_summary(named.report()).split())
    assert re.search(r"p99 latency of python3 \d\.\d{3} ms -> \d{3} us, but 1 tenant slower\.", said)


def test_an_export_without_devices_is_made_again(tmp_path: Path, corpus: Path) -> None:
    """Its SM count and limits are in a table that an export may lack: no forecast asks less, and no device lacks them."""
    work = [kernel(41, n * 300 * US, n * 300 * US + 200 * US) for n in range(100)]
    for path in (
        write(tmp_path / "unlisted.sqlite", kernels=work, processes={41: "train"}, gpus=[]),
        corpus / "exports" / "nsys-ai" / "h100_2gpu_1s.sqlite",
    ):
        for device in load(path).report().devices:
            hows = {gap.what: gap.how for gap in device.sharing.missing}
            for what in ("occupancy", "options"):
                assert hows[what].startswith("nsys export "), what
                assert "new recording: this export does not list the GPU (TARGET_INFO_GPU)" in hows[what]
    listed = write(tmp_path / "listed.sqlite", kernels=work, processes={41: "train"})
    (device,) = pyanalyze.load(listed).report().devices
    assert not any("TARGET_INFO_GPU" in gap.how for gap in device.sharing.missing)


def test_kernels_that_tell_tenants_apart_are_named_only_where_there_are_any(hardware: Path) -> None:
    """No kernel of the node was traced: its page has no top kernel."""
    report = load(hardware.parent / "h200" / "node-slices-A-B").report()
    tenants = next(one for one in _section(report, "tenants") if isinstance(one, Table) and one.caption)
    assert "top kernel" not in tenants.caption
    assert "--tenant NAME=PID names a process." in tenants.caption


def test_the_peak_of_a_device_is_not_the_tenants(hardware: Path) -> None:
    """The driver counts what the device uses: more than the peaks of all its processes together, by the samples."""
    report = load(hardware.parent / "h200" / "node-slices-A-B").report()
    facts = {one.label: one for block in _section(report, "memory") if isinstance(block, Facts) for one in block.facts}
    assert facts["Peak in use"].note == "used memory of the device"


def test_a_timeline_without_kernels_has_no_bars(hardware: Path) -> None:
    """By its tables the export has no kernel, graph or copy; the samples end 333 ms before the first switch."""
    node = hardware.parent / "h200" / "node-slices-A-B"
    with contextlib.closing(sqlite3.connect(node / "report.sqlite")) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    assert not tables & {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"}
    (chart,) = [one for one in _section(load(node).report(), "timeline") if isinstance(one, Chart)]
    # By SQL intervals take 1.5 and 1.7 ms on average, and a pixel of 720 is 1.4 ms.
    said = "Shading is residency, ticks are context switches. Contexts that alternate within a pixel look concurrent."
    assert chart.caption == said


def test_gpu_time_is_not_known_without_a_kernel(corpus: Path) -> None:
    """Neither a kernel nor a switch was recorded: kernels alone would show the GPU time, if not residency."""
    report = load(corpus / "exports" / "nemo-a5000" / "report2.nsys2026.sqlite").report()
    said = "GPU time per tenant is not known: CUDA was traced, and no traced program ran a kernel while nsys recorded."
    assert said in lead_sentences(report.devices[0])[1]


def test_what_is_to_be_captured_of_memory_is_named(corpus: Path) -> None:
    report = load(corpus / "exports" / "nemo-a5000" / "report2.nsys2026.sqlite").report()
    (note,) = [one for one in _section(report, "memory") if isinstance(one, Note)]
    assert (note.title, note.text) == ("Memory in use is not known", "To capture it, run one of these:")


def test_lost_launches_of_two_devices_are_told_apart(corpus: Path) -> None:
    """By SQL each of the two processes launched 1 673 kernels, 857 of them without a record."""
    page = run("report", corpus / "exports" / "nsys-ai" / "h100_2gpu_1s.sqlite", "-f", "md").stdout
    # It recorded for 295.658 s; the last event in the export, which was cut, is an API call at 156.327 s.
    said = f"857 of {count(1673)} launch calls have no kernel record: the last ones, after which 139.3 s of recording have no record."
    for device in (0, 1):
        assert page.count(f"GPU of unknown name (device {device}): {said}") == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # By SQL: no switch record; those of one context that came and stayed; 1 346 of contexts that alternate.
        ("torch-alone-train", ""),
        ("alone-A", " Shading is residency."),
        # A pixel of 720 is 6.4 ms, and a time slice 2.1 ms.
        (
            "slices-A-B",
            " Shading is residency, ticks are context switches. Contexts that alternate within a pixel look concurrent.",
        ),
    ],
)
def test_a_timeline_explains_only_what_it_shows(name: str, said: str, hardware: Path) -> None:
    report = load(hardware / f"{name}.sqlite").report()
    (chart,) = [one for one in _section(report, "timeline") if isinstance(one, Chart)]
    # By SQL each has 250 to 1 702 copies and memsets of 3.6 to 13.6 us on average; a pixel is 0.5 to 6.3 ms.
    wide = " Short bars are widened to a pixel."
    assert chart.caption == f"Bars are kernels (rounded: graphs, thin: copies).{wide}{said}"


@pytest.mark.parametrize(
    ("name", "wide"),
    [
        # Of 5.202 s copies take 217.6 ms by SQL: 7 006 of them, most of 1 to 7 us; 720 pixels of 7.2 ms are filled.
        ("gpubootcamp-8v100/report1.nsys2026", True),
        # One kernel of 4.7 of 135.9 ms, one copy of 2 us, and 72 migrations of 1.05 of 6.09 ms.
        ("ctxsw-ada-timeslice/paging__ada-1.nsys2026", False),
        ("easycuda/nsys_easy", False),
    ],
)
def test_bars_that_look_longer_than_their_work_are_explained(name: str, wide: bool, corpus: Path) -> None:
    report = load(corpus / "exports" / f"{name}.sqlite").report()
    (chart,) = [one for one in _section(report, "timeline") if isinstance(one, Chart)]
    assert ("Short bars are widened to a pixel." in chart.caption) is wide


def test_contexts_look_concurrent_only_where_residency_intervals_have_about_a_pixel(fixtures: Path) -> None:
    """Time slices of 2.1 ms, by the switch records: 2.3 pixels of 0.91 ms in 655 ms, and 1.4 of 1.57 ms in 1.129 s."""
    said = "Contexts that alternate within a pixel look concurrent."
    for name, times in (("containers-same-pid", 0), ("demo-time-slicing", 1)):
        path = fixtures / name
        report = load(path if path.exists() else path.with_suffix(".sqlite")).report()
        (chart,) = [one for one in _section(report, "timeline") if isinstance(one, Chart)]
        assert chart.caption.count(said) == times


def test_the_reasons_for_a_mode_stand_once_in_its_section(fixtures: Path) -> None:
    report = load(fixtures / "demo-time-slicing.sqlite").report()
    blocks = _section(report, "sharing")
    (first, *_) = [one.text for one in blocks if isinstance(one, Para)]
    assert first.startswith("Sharing mode of NVIDIA A100-SXM4-40GB (device 0): time-slicing (observed, confidence 0.")
    shown = [cell.text for one in blocks if isinstance(one, Table) for row in one.rows for cell in row]
    assert sum(text.startswith("Contexts of different tenants alternated") for text in shown) == 1
    assert not any("alternated on the engine" in one.text for one in blocks if isinstance(one, Para))


def test_small_grids_with_next_to_no_time_are_not_worth_a_sentence(hardware: Path) -> None:
    """By SQL the one block of read_timer has less than 0.01 % of the kernel time of two processes."""
    path = hardware / "mps-A-B.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        query = 'SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
        (all_ns,) = db.execute(query).fetchone()
        (small_ns,) = db.execute(f"{query} WHERE gridX * gridY * gridZ <= 0.9 * 132").fetchone()
    assert 0 < small_ns < 0.0001 * all_ns
    session = load(path)
    page = render_markdown(session.report(), kernels=session.kernel_occupancy)
    assert "blocks per SM: they reach at most" not in page
    assert "With fewer blocks than SMs: read_timer (1 block for 132 SMs)." in page


def test_pauses_between_units_are_told_once(hardware: Path) -> None:
    """A server waits in cudaStreamSynchronize for its answer, then 2.1 ms for the next request: that is one finding."""
    page = render_markdown(load(hardware / "torch-alone-serve.sqlite").report())
    split = page.partition("## Where the time went")[2].partition("\n## ")[0]
    assert "pauses between its units of work" in split
    assert "had waited until nothing was queued" not in split
    # Of two processes no sentence on the limit of one tells it.
    page = render_markdown(load(hardware / "torch-slices-serve-train.sqlite").report())
    assert (
        "After cudaStreamSynchronize had waited until nothing was queued, python3 (pid 1158) made no CUDA call" in page
    )


def test_a_configuration_does_not_confirm_itself(hardware: Path) -> None:
    """That both were clients of a server shows in their overlap; the cap of 50 % stands on the command line alone."""
    (device,) = load(hardware / "mps-50-50-A-B.sqlite").report().devices
    assert {one.basis for one in device.sharing.evidence if Mode.MPS in one.against} == {"configured"}
    assert agreement_text(device) == "mps-partitioned; MPS matches, no record shows the caps"
    said = r"mps-partitioned \(observed, confidence 0\.\d\d{}\), its caps configured"
    assert re.fullmatch(rf"{said.format(' in simulations')}\.", mode_text(device))
    assert re.search(said.format(" in simulations"), run("classify", hardware / "mps-50-50-A-B.sqlite").stdout)
    (device,) = load(hardware / "mps-A-B.sqlite").report().devices
    assert agreement_text(device) == "mps; matches"
    assert "caps" not in mode_text(device)


def test_a_pause_of_all_is_said_beside_the_gpu_time(hardware: Path) -> None:
    """By SQL nothing ran between 2.9 ms and 1.896 s of 2.897 s; --start is on the clock of the capture.

    After it the first kernel is launched at 2357.209 ms and starts at 2357.242 ms; the last of one process that has no
    kernel later ends at 3358.003 ms.
    """
    report = load(hardware / "mps-50-50-A-B.sqlite").report()
    lead = " ".join(lead_sentences(report.devices[0]))
    assert "All tenants co-ran for only 34.5 % of the window, short pauses included." in lead
    assert "To choose that part: --start 2357ms --end 3359ms." in lead


def test_the_span_of_all_tenants_is_not_read_as_an_overlap_of_their_kernels(hardware: Path) -> None:
    """By SQL kernels of both are in flight at once for 34.8 % of the window, of any of the two for 35.3 %.

    The second process begins at 2.262 s and the first one ends at 3.269 s of the clock of nsys: 35.4 % of 2.843 s.
    """
    path = hardware / "mps-A-B.sqlite"
    summary = " ".join(run("summary", path).stdout.split())
    assert "any of them 35.3 % (co-run 35 %;" in summary
    lead = " ".join(lead_sentences(load(path).report().devices[0]))
    assert "All tenants co-ran for only 35.4 % of the window, short pauses included" in lead
    assert "--start 2262ms --end 3269ms" in lead
    for text in (summary, lead):
        assert "active for" not in text
        assert "all active" not in text


def test_the_time_of_all_contains_the_launch_of_its_first_kernel(corpus: Path) -> None:
    """By SQL the only kernel is launched at 306.737 ms and runs from 309.104 to 313.789 ms of 135.9 ms.

    The other process was not traced: its context was resident, and what it had to do is not known.
    """
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "paging__ada-1.nsys2026.sqlite"
    (device,) = load(path).report().devices
    chosen = "--start 306ms --end 314ms"
    part = f" To choose that part: {chosen}."
    lead = " ".join(lead_sentences(device))
    assert "GPU time while all tenants co-ran (untraced: resident), 4.685 ms or 3.4 % of the window: " in lead
    assert part in lead
    report = run("report", path, "-f", "md").stdout
    assert f"{chosen} leaves the time in which all co-ran (untraced: resident)." in report
    assert "at work" not in report
    assert "co-run, 3 % of window" in " ".join(run("summary", path).stdout.split())
    # The part has the same bound of the slowdown as the whole: the kernel and its launch lie in it.
    part_of = load(path).window("306ms", "314ms").report().devices[0].tenants[0].slowdown
    assert part_of.elapsed is not None
    assert device.tenants[0].slowdown.elapsed is not None
    assert part_of.elapsed.value == pytest.approx(device.tenants[0].slowdown.elapsed.value, rel=0.01)


def test_an_empty_part_of_a_chart_is_said_to_hold_untraced_work(corpus: Path) -> None:
    """By SQL the context of the untraced process is resident for 130 of 135.9 ms: the device was not empty."""
    said = "untraced tenants count as idle"
    for name, times in (("ctxsw-ada-timeslice/paging__ada-1.nsys2026", 2), ("easycuda/nsys_easy", 0)):
        report = load(corpus / "exports" / f"{name}.sqlite").report()
        notes = [fact.note for one in _section(report, "occupancy") if isinstance(one, Facts) for fact in one.facts]
        assert len(notes) >= 2
        assert sum(said in note for note in notes) == times


def test_a_lower_bound_is_said_with_what_it_rests_on(corpus: Path) -> None:
    """By SQL the kernel runs from 309.104 to 313.789 ms, and no CUDA call from 306.910 to 313.457 ms: one wait.

    No launch of this capture waits behind another one, and nothing in it was replayed or has an interval.
    """
    path = corpus / "exports" / "ctxsw-ada-timeslice" / "paging__ada-1.nsys2026.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        calls = "SELECT start, end FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start DESC LIMIT 2"
        assert db.execute(calls).fetchall() == [(313457392, 313790832), (306737092, 306910382)]
        assert db.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall() == [(309104431, 313789031)]
    page = run("report", path, "-f", "md").stdout
    assert "| Largest slowdown | at least 2.82x | bin/pf_spin, elapsed time, n = 1 | inferred |" in page
    wait = "the program made no CUDA call until about the end of its kernels; so few such waits cannot show whether"
    assert wait in page
    assert "Slowdown (shared over solo), bounded by the resident time of the other tenants." in page
    assert "| 1.00x (assumed) |" in page
    assert "replay" not in page.partition("## Interference")[2].partition("\n## ")[0]
    assert page.count("| Waiting for its time slice |") == 1
    assert page.count("median residency intervals 2.130 ms (constant_cycles;") == 1


def test_a_mode_under_a_condition_says_what_was_seen_and_what_is_not_excluded(corpus: Path) -> None:
    """One process, stable kernels, no list of processes: MPS clients leave nothing behind. A few kernels say nothing."""
    stable = " ".join(run("summary", generate.ROOT / "fixtures/hardware/h200/alone-dram_bound.sqlite").stdout.split())
    others = "MPS clients, brief or occasional processes"
    assert f"no (only one process is known; not excluded: {others})." in stable
    assert (
        f"exclusive (inferred, confidence 0.97 in simulations), no sign of another process (not excluded: {others});"
        in stable
    )
    # The evidence says which modes it does not weigh; the confidence beside the verdict is of the others.
    path = generate.ROOT / "fixtures/hardware/h200/alone-dram_bound.sqlite"
    report = " ".join(run("report", "-f", "txt", path).stdout.split())
    assert f"(not excluded: {others}). The confidence holds among the modes that are weighed; modes with MPS" in report
    few = corpus / "exports/nsys-ai/mock.sqlite"
    said = "but nothing shows whether there were other processes on the GPU"
    assert f"Mode exclusive (inferred), {said};" in " ".join(run("summary", few).stdout.split())
    assert f"Sharing mode: exclusive (inferred), {said}." in " ".join(run("report", "-f", "txt", few).stdout.split())


def test_what_evidence_is_not_weighed_for_is_said(corpus: Path) -> None:
    """One traced process is against time-slicing where stable kernels exclude it, and not where nothing does."""
    stable = load(generate.ROOT / "fixtures/hardware/h200/alone-dram_bound.sqlite").report().devices[0].sharing
    few = load(corpus / "exports/nsys-ai/mock.sqlite").report().devices[0].sharing
    against = [
        next(one.against for one in sharing.evidence if one.name == "one_traced_tenant") for sharing in (stable, few)
    ]
    assert against == [[Mode.TIME_SLICING], []]
    assert weights_text(stable).endswith(" Modes with MPS are not weighed: MPS clients are not excluded.")
    assert weights_text(few).endswith(
        " Modes of several processes are not weighed: nothing shows whether there were any others."
    )
    # Without a condition all modes are weighed.
    whole = load(generate.ROOT / "fixtures/hardware/h100/slices-A-B.sqlite").report().devices[0].sharing
    assert "not weighed" not in weights_text(whole)


@pytest.mark.parametrize(
    ("name", "cause", "note"),
    [
        # 2 000 kernels of 3.9 s in all: one that shared the GPU for long would have inflated some of them.
        (
            "gpubootcamp-8v100/report1.nsys2026",
            "no (only one process is known; another that slowed it would show, unless it ran occasionally or briefly)",
            "whether one that ran occasionally or briefly slowed it",
        ),
        # One kernel of 2.3 ms: nothing to compare it with.
        (
            "easycuda/nsys_easy",
            "unknown. Only one process was traced, and nothing excludes that another slowed it.",
            "whether an unknown one slowed it",
        ),
    ],
)
def test_the_cause_of_what_is_said_where_no_slowdown_is(name: str, cause: str, note: str, corpus: Path) -> None:
    report = load(corpus / "exports" / f"{name}.sqlite").report()
    (device,) = report.devices
    assert cause_sentence(device).rstrip(".") == f"Sharing is the cause: {cause}".rstrip(".")
    assert f"a solo recording would show {note}." in render_markdown(report)


def test_a_lower_bound_is_drawn_as_one_and_every_pair_has_a_cell(hardware: Path) -> None:
    """Of two MPS clients beside a third process each is known by the residency of the third, and nothing of the other."""
    path = hardware / "mps-A-B-beside-C.sqlite"
    session = load(path)
    (device,) = session.report().devices
    assert pairs_without_figure(device).keys() == {(0, 1), (1, 0)}
    labels = {tenant.tenant_id: f"kit (pid {tenant.pid})" for tenant in device.tenants}
    assert sorted(labels.values()) == ["kit (pid 951)", "kit (pid 952)", "kit (pid 953)"]
    (figures,) = (one.figures for one in session.interference())
    assert figures is not None
    chart = charts.victim_by_aggressor(
        figures.matrix or (),
        labels,
        kind="latency",
        from_below=known_from_below(device),
        without=pairs_without_figure(device),
    )
    cells = {(row["v"][-4:-1], row["a"][-4:-1]): row["text"] for row in json.loads(chart.to_dict()["data"]["values"])}
    bounds = {pair for pair, text in cells.items() if text.startswith("at least ")}
    assert bounds == {("951", "953"), ("952", "953")}
    # 953 waits for the context of both clients: which of them it is for cannot be told.
    unknown = {("951", "952"), ("952", "951"), ("953", "951"), ("953", "952")}
    assert {pair for pair, text in cells.items() if text == "?"} == unknown
    assert len(cells) == 6
    page = " ".join(render_text(session.report()).split())
    pairs = "kit (pid 951) by kit (pid 952); kit (pid 952) by kit (pid 951)"
    assert (
        f"{pairs}: of the victim only the time in which another context was resident or being switched is known."
        in page
    )


def test_recording_solo_is_the_first_action_where_nothing_else_is_advised(hardware: Path) -> None:
    """As the section on what to change says it."""
    (device,) = load(hardware.parent / "h200" / "mps-A-B-C.sqlite").report().devices
    assert not device.advice
    names = "kit (pid 1184), kit (pid 1185) and kit (pid 1186)"
    assert (
        f"First action: Record {names} solo first, one by one, under MPS as here, and give" in lead_sentences(device)[2]
    )


def test_a_median_of_short_and_long_intervals_is_one_of_them_and_has_its_range(hardware: Path) -> None:
    """104 of the intervals end early, 104 at the end of the time slice: none is as long as the mean of the middle two."""
    path = hardware.parent / "h200" / "slices-long_kernel-B.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        query = """SELECT contextId, lead(timestamp) OVER w - timestamp, tag, lead(tag) OVER w
            FROM GPU_CONTEXT_SWITCH_EVENTS WHERE globalPid >> 24 & 16777215 = 1448
            WINDOW w AS (PARTITION BY contextId ORDER BY timestamp)"""
        rows = [(context, ns) for context, ns, tag, after in db.execute(query) if (tag, after) == (8, 7)]
    # One context was resident once, while it was created.
    counts = Counter(context for context, _ in rows)
    lengths = sorted(ns for context, ns in rows if counts[context] > 1)
    between = statistics.median(lengths)
    assert not [ns for ns in lengths if 0.9 * between < ns < 1.1 * between]
    # By nearest rank, as the other percentiles are.
    assert len(lengths) == 208
    middle = lengths[103]
    (device,) = load(path).report().devices
    (tenant,) = (one for one in device.tenants if one.pid == 1448)
    assert device.residency_summary is not None
    (row,) = (one for one in device.residency_summary.tenants if one.tenant_id == tenant.tenant_id)
    assert (tenant.median_slice_ns, row.median_slice_ns) == (middle, middle)
    assert (row.p10_slice_ns, row.p90_slice_ns) == (lengths[20], lengths[187])
    said = residency_sentence(device)
    span = f"{lengths[len(lengths) // 10] / 1e6:.3f} ms - {lengths[-len(lengths) // 10] / 1e6:.3f} ms"
    assert f"{middle / 1e6:.3f} ms (kit (pid 1448); p10-p90 {span}: 104 expired, 104 with no kernel in flight)" in said


def test_two_residency_intervals_have_no_median(hardware: Path) -> None:
    """21.6 ms before the first work and 2.95 s: 1.49 s is the length of neither."""
    page = run("report", hardware / "green-64-64-A-B.sqlite", "-f", "md").stdout
    assert "1.488 s" not in page
    assert re.search(r"\| kit \| 100\.0 % \*observed\* \| 2 \| too few \| 21\.61 ms - 2\.954 s \|", page)
    # Of two neither is a p10.
    assert "| Shortest to longest |" in page
    assert "p10-p90" not in page


@pytest.mark.parametrize(
    ("slices", "column", "cells"),
    [
        ((9, 8), "Shortest to longest", ("1.000 ms - 3.000 ms", "1.000 ms - 3.000 ms")),
        ((10, 9), "p10-p90", ("1.000 ms - 3.000 ms", "1.000 ms - 3.000 ms (shortest to longest)")),
        ((606, 1), "p10-p90", ("1.000 ms - 3.000 ms", "one interval")),
    ],
)
def test_few_intervals_have_no_p10(slices: tuple[int, int], column: str, cells: tuple[str, str]) -> None:
    """By nearest rank the p10 and the p90 of up to 9 values are the first and the last."""
    report = examples.time_sliced()
    (device,) = report.devices
    assert device.residency_summary is not None
    tenants = [
        one.model_copy(update={"slices": n, "p10_slice_ns": 1_000_000, "p90_slice_ns": 3_000_000})
        for one, n in zip(device.residency_summary.tenants, slices, strict=True)
    ]
    # Their medians differ, so that the sentence names those that are known, with ranges.
    tenants[0] = tenants[0].model_copy(update={"median_slice_ns": 1_000_000})
    tenants[1] = tenants[1].model_copy(update={"median_slice_ns": 3_000_000})
    summary = device.residency_summary.model_copy(update={"tenants": tenants})
    device = device.model_copy(update={"residency_summary": summary})
    changed = report.model_copy(update={"devices": [device]})
    blocks = _section(changed, "residency")
    (table,) = [one for one in blocks if isinstance(one, Table) and one.caption.startswith("Residency intervals per")]
    at = [one.title for one in table.columns].index(column)
    assert tuple(row[at].text for row in table.rows) == cells
    said = residency_sentence(device)
    # One interval has no median that the sentence could set against another.
    both = min(slices) >= 5
    assert ("; p10-p90 1.000 ms - 3.000 ms" in said) == (both and max(slices) >= 10)
    assert ("; shortest to longest 1.000 ms - 3.000 ms" in said) == both


def test_a_heading_names_only_counters_that_were_recorded() -> None:
    report = examples.time_sliced()
    device = report.devices[0]
    assert device.occupancy is not None
    for warps, said in ((None, "SMs active, modelled"), (0.25, "SMs active and warps, modelled")):
        check = CounterCheck.model_construct(n=9, sm_active=0.5, warps=warps, agrees=True, detail="alike")
        occupancy = device.occupancy.model_copy(update={"check_against_counters": check})
        changed = report.model_copy(update={"devices": [device.model_copy(update={"occupancy": occupancy})]})
        titles = [one.title for one in _section(changed, "occupancy") if isinstance(one, Chart)]
        assert f"{said} and by hardware counter" in titles


def test_only_what_isolates_everything_is_said_to_be_the_only_one(hardware: Path) -> None:
    """Others isolate memory, some perhaps faults, as the table beside it says: all three at once only MIG does."""
    (device,) = load(hardware.parent / "h200" / "torch-slices-jax_train-decode.sqlite").report().devices
    (mig,) = (one for one in device.advice if "isolates" in one.why)
    assert "of these configurations only MIG isolates faults, memory and bandwidth at once" in mig.why
    assert device.options is not None
    isolated = {one.mode: TRAITS[one.mode].promises for one in device.options}
    whole = {
        mode for mode, has in isolated.items() if has.memory_protection and has.fault_isolation and has.bandwidth_qos
    }
    assert {mode.value for mode in whole} == {"mig"}
    assert any(has.memory_protection for mode, has in isolated.items() if mode not in whole)


def test_no_context_switch_is_not_called_a_few(hardware: Path, tmp_path: Path) -> None:
    """Switch records of one process only: there was no switch between two tenants."""
    path = with_all_switch_records(hardware.parent / "h200" / "mps-A-B-C.sqlite", tmp_path / "a.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as db:
        query = "SELECT count(*), count(DISTINCT globalPid) FROM GPU_CONTEXT_SWITCH_EVENTS"
        assert db.execute(query).fetchone() == (1, 1)
    (device,) = load(path).report().devices
    details = [one.detail for one in device.sharing.evidence if one.detail.startswith("several tenants were busy")]
    assert len(details) == 1
    assert details[0].endswith("of the busy time, with no context switch between them")


def test_a_section_repeats_no_first_paragraph_but_has_it_where_it_stands_by_itself(fixtures: Path) -> None:
    """Who is slowed most is the first sentence of a page; `pyanalyze interference` has no first paragraph."""
    report = load(fixtures / "demo-time-slicing.sqlite").report()
    assert render_markdown(report).count("Largest slowdown: app_b") == 1
    for text in (render_text(report), render_text(report, sections=("interference",))):
        assert text.count("Largest slowdown: app_b") == 1


def test_tenants_with_the_same_note_share_it(fixtures: Path) -> None:
    """Switch records of both were lost: one note says so, and no tenant has two."""
    report = load(fixtures / "lost-records.sqlite").report()
    notes = [one for one in _section(report, "interference") if isinstance(one, Note) and "switch records" in one.text]
    assert [note.title for note in notes] == ["second and first"]
