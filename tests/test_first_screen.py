"""Ten questions that a first screen has to answer within twelve lines, and the line that answers each.

Six captures: time-slicing with an untraced tenant, MPS with caps, MIG with MPS, streams, samples only, and one whose
sharing mode is undetermined. What they hold is known from the scenario that made them (fixtures/README.md); where a
capture does not hold the answer, the screen has to say so, or the question does not arise (None).
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from command_line import run
from six_captures import SIX, inputs

if TYPE_CHECKING:
    from pathlib import Path

QUESTIONS = (
    "is it shared?",
    "how?",
    "who is slow?",
    "by how much at p99?",
    "because of whom?",
    "through what?",
    "what do I do?",
    "what does it bring?",
    "what is not known?",
    "which capture?",
)
#: Lines of the screen that count; the one that says that a capture is simulated is no part of an answer.
LINES = 12

#: What answers each question, in the order above.
ANSWERS: dict[str, tuple[str | None, ...]] = {
    # Three tenants are time-sliced; app_b is slowest, and app_c was not traced: that a forecast needs its work is the answer.
    "time-slicing with an untraced tenant": (
        r"^Answer +Sharing is the cause: yes\.",
        r"^Mode +time-slicing \(observed, confidence 0\.\d\d in simulations\)",
        r"^Slow +app_b, kernel latency 3\.\d\dx \(bounds",
        r"19\.57 ms \(3\.2\dx, n = 106\)",
        r"Slowed by app_a \(5\d\.\d % of the time others took\) and app_c \(4\d\.\d %\)",
        r"Waiting for its time slice \(\d",
        r"^Do +Identify process 41377 \(app_c\) and record it as well\.",
        r"Expected gain: not known\.",
        r"^Missing +.*see `pyanalyze report`$",
        r"^Analysed +NVIDIA A100-SXM4-40GB \(device 0\); 1\.129 s from 2026-03-14",
    ),
    # Both clients ran all the time, so that nothing shows them solo: no slowdown, no victim, no aggressor.
    "MPS with caps": (
        r"^Mode +mps-partitioned.*matches$",
        r"^Mode +mps-partitioned \(observed, confidence 0\.\d\d in simulations\)",
        r"^Slowdown +not known from the recording \(forecasts model it\)\. Tenants client-1 and client-2",
        None,
        None,
        r"^Answer +Sharing is the cause: unknown",
        r"^Do +Run the MPS clients without caps\.",
        r"Expected: modelled mean elapsed slowdown 2\.\d\dx -> 1\.\d\dx \(1\.\d\d-1\.\d\d\)\.",
        r"^Missing +.*see `pyanalyze report`$",
        r"^Analysed +NVIDIA L40S \(device 0\)",
    ),
    "MIG with MPS": (
        r"^Mode +mig\+mps.*matches$",
        r"^Mode +mig\+mps \(observed, confidence 0\.\d\d in simulations\)",
        r"^Slowdown +first, elapsed time 1\.\d\dx \(bounds",
        None,
        None,
        r"^Answer +Sharing is the cause: unknown\. The largest known slowdown is 1\.\d\dx; that of second",
        r"^Do +Keep [a-zA-Z ]+ in this instance",
        r"Expected: modelled mean elapsed slowdown 1\.\d\dx now, 1\.\d\dx under MPS with equal caps\.",
        r"^Missing +.*see `pyanalyze report`$",
        r"^Analysed +NVIDIA H100 80GB HBM3 MIG \dg\.40gb \(device 0\)",
    ),
    # One process: nobody slows it, and what limits it takes the place of who is slow and through what.
    "streams": (
        r"^Answer +Sharing is the cause: no \(only one process used the GPU\)",
        r"^Mode +streams \(observed, confidence 0\.\d\d in simulations\)",
        r"^Limit +app is limited by its kernels",
        None,
        None,
        r"in flight for 99\.9 % of its time",
        r"^Do +Make kernel stencil of app faster\.",
        # In flight for 126.8 ms, the other kernel for 111.2 ms of it: 15.5 ms are its own.
        r"Upper bound of the gain: 15\.5\d ms, 12\.2 % of its time, in which",
        r"^Missing +.*see `pyanalyze report`$",
        r"^Analysed +NVIDIA A10G \(device 0\); 126\.9 ms",
    ),
    # Samples show no slowdown.
    "samples only": (
        r"^Tenants +worker is the only tenant listed on GPU-11111111",
        r"^Mode +undetermined\. Samples cannot show",
        None,
        None,
        None,
        None,
        r"^Do +Not enough data to decide: record",
        None,
        r"^Missing +context switches, kernels.*see `pyanalyze report`$",
        r"^Samples +NVIDIA H100 80GB HBM3 \(device 0\); 2\.000 s",
    ),
    "undetermined": (
        r"^Answer +Sharing is the cause: unknown",
        r"^Mode +undetermined \(time-slicing or mps, equally likely\)",
        r"^Limit +train is limited by its kernels",
        None,
        None,
        r"in flight for \d",
        r"^Do +Not enough data to decide: record",
        None,
        r"^Missing +.*see `pyanalyze report`$",
        r"^Analysed +NVIDIA A100-SXM4-80GB \(device 0\)",
    ),
}


@pytest.mark.parametrize("name", SIX)
def test_ten_questions_are_answered_within_twelve_lines(name: str, tmp_path: Path) -> None:
    done = run(*inputs(name, tmp_path))
    assert done.returncode == 0, done.stderr
    screen = [line for line in done.stdout.splitlines() if not line.startswith("SYNTHETIC")][:LINES]
    # A sentence may begin on one line and end on the next.
    joined = [f"{line} {after.strip()}" for line, after in zip(screen, [*screen[1:], ""], strict=True)]
    unanswered = [
        question
        for question, answer in zip(QUESTIONS, ANSWERS[name], strict=True)
        if answer is not None and not any(re.search(answer, text) for text in (*screen, *joined))
    ]
    assert unanswered == [], done.stdout


def test_commands_that_do_not_fit_are_named_in_the_sentence(hardware: Path) -> None:
    """Caps of a daemon take loops of several lines: no line of the screen stands in for them."""
    capture = hardware / "mps-50-50-A-B.sqlite"
    commands = json.loads(run("advise", capture, "-f", "json").stdout)["devices"][0]["advice"][0]["commands"]
    lines = run(capture).stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("Do "))
    after = next(n for n, line in enumerate(lines) if n > first and not line.startswith(" "))
    said = " ".join(line.strip() for line in lines[first:after])
    assert len(commands) > 1
    assert said.endswith(". `pyanalyze advise` shows its commands.")


@pytest.mark.parametrize("capture", ["slices-A-B.sqlite", "mps-A-B-beside-C.sqlite", "torch-slices-serve-train.sqlite"])
def test_no_sentence_is_cut_in_half(hardware: Path, capture: str) -> None:
    """What is left out ends where a clause ends: half of one says something else, or nothing."""
    lines = run(hardware / capture).stdout.splitlines()
    assert [line for line in lines if line.endswith("…") and not line.endswith(", …")] == []
    assert [line for line in lines if line.startswith("Slow ")] != []
    for label in ("Slow", "Answer"):
        first = next(n for n, line in enumerate(lines) if line.startswith(f"{label} "))
        after = next(n for n, line in enumerate(lines) if n > first and not line.startswith(" "))
        said = "".join(lines[first:after])
        assert said.count("(") == said.count(")")


def test_one_gap_is_named_where_there_is_no_room_for_what_the_host_did(corpus: Path) -> None:
    """By SQL nothing is on the GPU for 1 628 903 372 ns after the second of 24 operations, of which calls have 1.1 ms."""
    said = " ".join(line.strip() for line in run(corpus / "exports/fuser/report1.sqlite").stdout.splitlines()[:4])
    gap = "Most of the host's time lies in one gap of 1.629 s at its start: --start 7476932us leaves it out."
    assert gap in said


def test_the_range_that_has_most_of_the_hosts_time_is_named_beside_one_gap(corpus: Path) -> None:
    """By SQL the range takes 310 986 030 ns, within the gap of 347 819 220 ns in which calls take 4 221 235."""
    path = corpus / "exports/fuser/report2@bab6954.sqlite"
    with closing(sqlite3.connect(path)) as db:
        ranges = "SELECT max(end - start) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId WHERE coalesce(text, value) = ?"
        assert db.execute(ranges, ("executor_utils::Nvrtc::CompileProgram",)).fetchone() == (310_986_030,)
    lines = run("summary", path).stdout.splitlines()
    said = " ".join(line.strip() for line in lines[:5])
    # 310.986 of 447.348 ms.
    assert "NVTX range executor_utils::Nvrtc::CompileProgram has 69.5 % of the host's time." in said
    assert "343.6 ms of the host's time lies in one gap of 347.8 ms at its start." in said
    assert len(lines) <= 15
    assert any("--start 1696501us" in line for line in lines)


def test_calls_before_that_took_longer_than_all_work_are_on_the_first_screen(corpus: Path, tmp_path: Path) -> None:
    """By SQL the second call, cudaMalloc, takes 142.5 ms; from the first to the last operation 37.7 ms pass."""
    path = corpus / "exports/jaxtoolbox-gb200/nsys_report_cuda_graph_pdl_stream_capture.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        calls = (
            "SELECT value, end - start FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId ORDER BY start"
        )
        (_, asked_ns), (name, took_ns) = db.execute(calls).fetchmany(2)
    assert (name, asked_ns < 2_000, f"{took_ns / 1e6:.1f}") == ("cudaMalloc_v3020", True, "142.5")
    said = " ".join(" ".join(run("summary", path).stdout.splitlines()).split())
    assert "CUDA calls took 142.5 ms (context creation in cudaMalloc)." in said
    # What is in flight is one graph that was traced whole: no kernel is known.
    assert "kernels and graphs in flight" in said
    run("report", path, "-o", tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| Kernels and graphs |" in page and "Busy (kernels and graphs in flight, observed)" in page
    assert "(kernels in flight" not in page


def test_when_the_gpu_was_first_used_is_said_first(corpus: Path) -> None:
    """By SQL 11 operations are from 10.25 to 10.29 s of a recording of 10.53 s."""
    path = corpus / "exports/raiderstream/report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        names = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY")
        union = " UNION ALL ".join(f'SELECT start, "end" FROM {name}' for name in names)
        first, last = db.execute(f'SELECT min(start), max("end") FROM ({union})').fetchone()
        (recorded,) = db.execute("SELECT duration FROM ANALYSIS_DETAILS").fetchone()
    times = [f"{ns / 1e9:.2f} s" for ns in (first, recorded)] + [f"{(last - first) / 1e6:.2f} ms"]
    lines = run("summary", path).stdout.splitlines()
    assert lines[0] == "GPU         first traced operation {} into {} of recording, last ends {} later".format(*times)
    assert lines[-1].startswith(f"Analysed    Tesla V100-PCIE-32GB (device 0); {times[2]} of {times[1]} from 2024")


def test_why_a_baseline_is_not_used_is_said(fixtures: Path) -> None:
    """Three tenants share the GPU of the demo: it is no solo recording of any."""
    demo = fixtures / "demo-time-slicing.sqlite"
    done = run("summary", "--baseline", demo, demo)
    assert done.returncode == 0
    assert "Baseline    demo-time-slicing.sqlite is not used: other tenants ran" in done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) <= 15
    assert sum(line.startswith("Baseline ") for line in lines) == 1
    both = run("summary", "--baseline", fixtures / "mig.sqlite", "--baseline", fixtures / "mps.sqlite", demo).stdout
    assert "Baseline    2 are not used; the first: m" in both


def test_a_bar_of_two_shades_says_what_the_light_one_means(fixtures: Path) -> None:
    """In 60 ms app_b is resident all the time, with kernels in five sixths of it; in the whole run no bar has a light part."""
    capture = fixtures / "demo-time-slicing.sqlite"
    screen = run(str(capture), "--start", "240ms", "--end", "300ms").stdout
    assert re.search(r"█+░+ 83\.\d % with kernels\n +░ without kernels; resident, of 60\.00 ms", screen)
    assert "░" not in run(str(capture)).stdout


def test_next_to_nothing_is_no_block_of_a_bar(corpus: Path) -> None:
    """By SQL kernels of the capture take 6.129 ms of 6.514 s: 0.03 of 36 columns."""
    screen = run("summary", str(corpus / "exports" / "mordred" / "report1.nsys2026.sqlite")).stdout
    assert re.search(r"0\.09 % ▏[ \n]", screen) and "█" not in screen


def test_other_gpus_without_work_take_no_room_of_a_command(corpus: Path) -> None:
    """By SQL the capture lists 4 GPUs, and kernels ran on one of them."""
    screen = run("summary", str(corpus / "exports" / "pipit" / "perlmutter-cloverleaf-cuda.sqlite")).stdout
    assert "Analysed    NVIDIA A100-SXM4-80GB (device 0), 1 of 4 GPUs; 342.4 ms of 1.198 s" in screen
    assert "ncu --set full" in screen


@pytest.mark.parametrize(
    ("capture", "glosses"),
    [
        ("alone-C", ["launching (gaps up to 250 us)"]),
        ("torch-alone-serve", ["queued work (launched, not started)"]),
        # Three lines have room for one of the two.
        ("torch-alone-train", ["launching (gaps up to 250 us)"]),
    ],
)
def test_parts_of_the_time_are_explained_where_they_are_named(hardware: Path, capture: str, glosses: list[str]) -> None:
    """A reader did not know what `launching 2.3 %` counts, nor how queued work differs from it."""
    screen = run("summary", hardware / f"{capture}.sqlite").stdout
    assert re.findall(r"(?:launching|queued work) \([^)]*\)", " ".join(screen.split())) == glosses


def test_what_calls_took_before_the_first_operation_is_a_whole_sentence(corpus: Path) -> None:
    """Behind `of its time`, a reader asked before which time; where names had no room, the sentence had no end."""
    for name, end in (("mig-a30", "."), ("test-cuda-4streams", " (cudaHostAlloc 814.7 ms).")):
        path = min((corpus / "exports" / name).glob("report[12].sqlite"))
        screen = " ".join(run("summary", path).stdout.split())
        assert re.search(rf"Before its first operation, CUDA calls took [\d.]+ ms{re.escape(end)}", screen), screen
