"""Labelled experiments: contradictions first, intervals over runs, files that other programs take."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from command_line import run
from test_fleet import vary

from pyanalyze.errors import UsageError
from pyanalyze.fleet.estimates import Observation, empty_cells, estimates, mean_ratio, ratio_of_means, student
from pyanalyze.fleet.study import _contradicts, _options, conduct
from pyanalyze.fleet.study_file import LabelledRun, read_study


@pytest.fixture
def study_file(fixtures: Path, tmp_path: Path) -> Path:
    """Two runs under MPS as labelled, one that was time-sliced, and two alone; throughput by hand."""
    folder = tmp_path / "study"
    for number, source in enumerate(("mps", "mps", "demo-time-slicing"), start=1):
        session = f"00000000-0000-4000-8000-00000000000{number}"
        vary(fixtures / f"{source}.sqlite", folder / f"shared-{number}.sqlite", session=session)
    for number in (1, 2):
        session = f"00000000-0000-4000-8000-00000000001{number}"
        vary(fixtures / "exclusive.sqlite", folder / f"alone-{number}.sqlite", session=session)
    clients = [t for t in json.loads((fixtures / "mps.truth.json").read_text())["tenants"] if t["kernels"]]
    names = sorted(t["name"] for t in clients)
    text = ['title = "Sharing & slowing: 50 %"', 'unit = "images/s"', "date = 2026-11-21", 'version = "2"']
    text += ['authors = [{ family = "Lovelace", given = "Ada", orcid = "0000-0002-1825-0097" }]']
    for number in (1, 2, 3):
        text += [
            "[[run]]",
            f'captures = "shared-{number}.sqlite"',
            'workload = "w_1"',
            'role = "shared"',
            'mode = "mps"',
        ]
        # Both processes are called `client`; the third run, of another program, has none of them.
        text += [f'tenants."{t["name"]}" = {t["pid"]}' for t in clients if number < 3]
        text += [
            f"repeat = {number}",
            f'throughput."{names[0]}" = {{ profiled = {90 * number}, unprofiled = {100 * number} }}',
        ]
    for number in (1, 2):
        text += ["[[run]]", f'captures = ["alone-{number}.sqlite"]', 'workload = "w_1"', 'role = "solo"']
        text += [f'tenant = "{names[0]}"', f"repeat = {number}", f'throughput."{names[0]}".unprofiled = {400 * number}']
    file = folder / "study.toml"
    file.write_text("\n".join(text))
    return file


def test_a_study_from_labels_to_paper(study_file: Path, fixtures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    study = conduct(study_file, out, workers=2)
    assert study.exit_code == 0, study.failures
    assert [(one.run, one.label, one.observed) for one in study.contradicting] == [("w_1-mps-3", "mps", "time-slicing")]
    with (out / "runs.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert rows[0]["contradicts"] == "true", "flagged first"
    assert pl.read_parquet(out / "runs.parquet").height == len(rows)
    assert {row["run"] for row in rows} == {"w_1-mps-1", "w_1-mps-2", "w_1-mps-3"} | {
        row["run"] for row in rows if row["role"] == "solo"
    }
    name = next(row["tenant"] for row in rows if row["role"] == "solo")

    found = {(one.tenant, one.measure): one for one in study.estimates}
    own = found[name, "unprofiled"]
    # By hand: geometric means 400 sqrt 2 over 100 sqrt 2; the third run, 300, contradicts its label and is left out.
    assert own.value == pytest.approx(4.0)
    assert (own.runs, own.solo_runs) == (2, 2)
    # Both sets have logarithms a and a + ln 2: variance (ln 2)^2 / 2, two of them over 2; Welch's freedom is 2.
    half = 4.302653 * math.sqrt(2 * (math.log(2) ** 2 / 2) / 2)
    assert own.low == pytest.approx(4 * math.exp(-half), rel=1e-5)
    assert own.high == pytest.approx(4 * math.exp(half), rel=1e-5)
    # Slowdowns of the runs are measured against the solo recordings, or are not there.
    alone = {row["tenant"] for row in rows if row["role"] == "solo"}
    assert all(one.tenant in alone for one in study.estimates if one.measure in ("elapsed", "latency", "resident"))
    cost = found[name, "profiler"]
    assert cost.value == cost.low == cost.high == pytest.approx(100 / 90)

    table = (out / "table.tex").read_text()
    assert "Slowdowns: solo speed over shared speed" in table
    assert r"w\_1 & mps & " in table
    assert "4.00 [" in table
    paragraph = (out / "methods.md").read_text()
    assert "1 run showed another mode (`w_1-mps-3`: mps labelled, time-slicing observed)" in paragraph
    assert "runs, not kernels" in paragraph
    cff = yaml.safe_load((out / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(cff), "what version 1.2.0 requires"
    assert (cff["cff-version"], cff["title"], str(cff["date-released"])) == (
        "1.2.0",
        "Sharing & slowing: 50 %",
        "2026-11-21",
    )
    assert cff["authors"] == [
        {"family-names": "Lovelace", "given-names": "Ada", "orcid": "https://orcid.org/0000-0002-1825-0097"}
    ]
    before = {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()}
    again = conduct(study_file, out, workers=1)
    assert again.observations == study.observations
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == before


def test_a_solo_run_without_a_mode_contradicts_what_more_than_one_process_shows() -> None:
    run = LabelledRun(captures=["a.sqlite"], workload="w", role="solo")
    for mode in ("exclusive", "streams", "green-contexts", "mig"):
        assert _contradicts(run, mode) is False
    # A compute instance shares L2 and DRAM with others of its GPU instance.
    for mode in ("mig-shared-ci", "mig+mps", "time-slicing", "vgpu-time-sliced"):
        assert _contradicts(run, mode) is True
    assert _contradicts(run, "undetermined") is None
    assert _contradicts(run.model_copy(update={"mode": "mig*"}), "mig-shared-ci") is False


@pytest.mark.usefixtures("kept_workers")
def test_the_verb_says_contradictions_first(study_file: Path, tmp_path: Path) -> None:
    done = run("study", study_file, "-o", tmp_path / "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("MISLABELLED, left out: w_1-mps-3: labelled mps, but time-slicing was found")
    assert "5 runs; 1 mislabelled, 0 captures failed" in done.stdout


@pytest.mark.usefixtures("kept_workers")
def test_a_pace_is_launches_over_the_time_from_first_to_last(fixtures: Path, tmp_path: Path) -> None:
    """Against the kernels of the capture themselves."""
    import pyanalyze

    file = tmp_path / "study.toml"
    shutil.copy(fixtures / "exclusive.sqlite", tmp_path / "a.sqlite")
    file.write_text('title = "t"\n[[run]]\ncaptures = "*.sqlite"\nworkload = "w"\nrole = "solo"\ntenant = "me"')
    (row,) = conduct(file, tmp_path / "out", workers=1).observations
    kernels = pyanalyze.load(tmp_path / "a.sqlite").kernels
    first, last = kernels["start_ns"].min(), kernels["end_ns"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    assert (row.tenant, row.launches, row.contradicts) == ("me", kernels.height, False)
    assert row.elapsed_ns == last - first
    assert row.launches_per_s == pytest.approx(kernels.height * 1e9 / (last - first))


def test_student_and_intervals_against_tables() -> None:
    """The 97.5 % points of printed tables; a geometric mean by hand."""
    for freedom, point in ((1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)):
        assert student(freedom) == pytest.approx(point, abs=0.001)
    assert mean_ratio([3.0])[0] == pytest.approx(3.0)
    assert mean_ratio([3.0])[1:] == ratio_of_means([2.0], [1.0, 1.0])[1:] == (None, None)


def row(**known: Any) -> Observation:
    blank: dict[str, Any] = dict.fromkeys(Observation.__dataclass_fields__)
    return Observation(
        **{**blank, "run": "r", "workload": "w", "tenant": "t", "repeat": 1, "contradicts": False, **known}
    )


def test_only_the_same_workload_and_tenant_is_compared() -> None:
    rows = [
        row(role="shared", label="mps", launches_per_s=1.0, work="x"),
        row(role="shared", label="mps", launches_per_s=100.0, contradicts=True, work="x"),
        row(role="shared", label="mps", launches_per_s=1.0, contradicts=None, work="x"),
        row(role="solo", launches_per_s=2.0, work="x"),
        row(role="solo", launches_per_s=50.0, work="another program"),
        row(role="solo", label="mig", launches_per_s=50.0, work="x"),
        row(role="solo", launches_per_s=50.0, tenant="another", work="x"),
        row(role="solo", launches_per_s=50.0, workload="another", work="x"),
    ]
    (one,) = estimates(rows)
    assert (one.measure, one.low, one.runs, one.solo_runs) == ("launches", None, 2, 1)
    assert one.value == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title = 1", "title"),
        ('title = "t"', "run"),
        (
            'title = "t"\n[[run]]\ncaptures = "a"\nworkload = "w"\nrole = "shared"',
            "run.1: a shared run needs its intended mode",
        ),
        ('title = "t"\n[[run]]\ncaptures = "a"\nworkload = "w"\nrole = "solo"\nmode = "mpx"', "there is no mode mpx"),
        ('title = "t"\n[[run]]\ncaptures = "a"\nworkload = "w"\nrole = "solo"\nrepaet = 2', "run.1.repaet"),
        ('title = "t"\n[[run]]\ncaptures = []\nworkload = "w"\nrole = "solo"', "run.1.captures"),
        ("title = ", "not TOML"),
        ('title = "t"\ndate = "tomorrow"', "date: tomorrow is not a date"),
        ('title = "t"\ndate = 2026', "date: 2026 is not a date"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_study(file)


def test_one_capture_belongs_to_one_run(fixtures: Path, tmp_path: Path) -> None:
    shutil.copy(fixtures / "mig.sqlite", tmp_path / "a.sqlite")
    file = tmp_path / "study.toml"
    run = '\n[[run]]\ncaptures = "a.sqlite"\nworkload = "w"\nrole = "solo"'
    file.write_text('title = "t"' + run + run)
    with pytest.raises(UsageError, match="is listed in two runs"):
        conduct(file, tmp_path / "out", workers=1)


@pytest.mark.usefixtures("kept_workers")
def test_two_exports_of_one_recording_are_no_two_runs(fixtures: Path, tmp_path: Path) -> None:
    """A repeat is another recording: the same one twice would halve every interval."""
    for name in ("a", "b"):
        shutil.copy(fixtures / "mps.sqlite", tmp_path / f"{name}.sqlite")
    head = 'title = "T"\n'
    run_of = '[[run]]\ncaptures = {}\nworkload = "w"\nrole = "shared"\nmode = "mps"\nrepeat = {}\n'
    file = tmp_path / "study.toml"
    file.write_text(head + run_of.format('"a.sqlite"', 1) + run_of.format('"b.sqlite"', 2))
    with pytest.raises(UsageError, match=r"exports of one recording .* stand in two runs"):
        conduct(file, tmp_path / "out", workers=1)
    # In one run they are one recording.
    file.write_text(head + run_of.format('["a.sqlite", "b.sqlite"]', 1))
    assert {one.run for one in conduct(file, tmp_path / "out", workers=1).observations} == {"w-mps-1"}


def test_an_empty_cell_says_why() -> None:
    def seen(role: str, tenant: str, **more: Any) -> Observation:
        figures = {"launches_per_s": None, "work": None, "throughput_profiled": None, "throughput_unprofiled": None}
        figures |= {"slowdown_elapsed": None, "slowdown_latency": None, "slowdown_resident": None}
        return Observation(
            **{
                "run": "r", "workload": "w", "label": "mps" if role == "shared" else None, "role": role, "repeat": 1,
                "observed": "mps", "confidence": 0.9, "basis": "observed", "contradicts": False, "tenant": tenant,
                "launches": None, "elapsed_ns": None, **figures, **more,
            }
        )  # fmt: skip

    def reasons(*rows: Observation) -> dict[str, str]:
        return {measure: cell.why for cell in empty_cells(rows) for measure in cell.measures}

    shared = seen("shared", "a", launches_per_s=10.0, work="x", throughput_unprofiled=5.0)
    assert reasons(shared) == {
        "unprofiled": "no solo run of a has this workload",
        "profiled": "no shared run has throughput.a.profiled",
        "launches": "no solo run of a has this workload",
        **dict.fromkeys(("elapsed", "latency", "resident"), "no solo run of a has this workload"),
        "profiler": "no shared run has throughput.a both profiled and unprofiled",
    }
    # A value has no reason, and another program is no unit to compare with.
    solo = seen("solo", "a", launches_per_s=20.0, work="y", throughput_unprofiled=9.0)
    found = reasons(shared, solo)
    assert "unprofiled" not in found
    assert found["launches"] == "solo and shared runs launched different work"
    assert set(reasons(seen("shared", "a", contradicts=True)).values()) == {
        "every run of it shows another mode than its label"
    }


def test_one_solo_run_serves_all_repeats() -> None:
    """A run of the same repeat goes first; without one the first solo run is the baseline of every repeat."""
    from pyanalyze.fleet.plan import Group, probe

    capture = probe(str(Path(__file__).parents[1] / "fixtures" / "captures" / "exclusive.sqlite"))
    solo = LabelledRun(captures=["s"], workload="w", role="solo", tenant="a", repeat=1)
    runs = {"solo": (Group("solo", (capture,), ()), solo)}
    for repeat in (1, 2, 3):
        shared = LabelledRun(captures=["m"], workload="w", role="shared", mode="mps", repeat=repeat)
        runs[f"shared-{repeat}"] = (Group(f"shared-{repeat}", (capture,), ()), shared)
    options = _options(runs, ())
    assert [len(options[f"shared-{repeat}"].baselines) for repeat in (1, 2, 3)] == [1, 1, 1]
    assert options["solo"].baselines == ()


@pytest.mark.usefixtures("kept_workers")
def test_a_study_without_a_figure_warns(fixtures: Path, tmp_path: Path) -> None:
    shutil.copy(fixtures / "node-switches-only.sqlite", tmp_path / "a.sqlite")
    text = 'title = "T"\n[[run]]\ncaptures = "a.sqlite"\nworkload = "w"\nrole = "shared"\nmode = "time-slicing"\n'
    (tmp_path / "study.toml").write_text(text)
    done = run("study", tmp_path / "study.toml", "-o", tmp_path / "out")
    assert "warning: the table of estimates is empty" in done.stderr
    assert "no value of" in done.stdout
