"""Samples without a capture: they answer what they can, and claim to have observed nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import pyanalyze
from pyanalyze.analysis.sampled import series_of
from pyanalyze.cli import cli
from pyanalyze.errors import NotACapture, SamplesUnreadable, UsageError
from pyanalyze.report.sampled_text import health_parts
from pyanalyze.report.sentences.samples import sampled_sentence
from pyanalyze.report.text import render_text
from pyanalyze.vocabulary import Mode

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "fixtures" / "samples"
GPU = "GPU-11111111-2222-3333-4444-555555555555"


def words(frame: pl.DataFrame, name: str) -> list[str]:
    return frame[name].cast(pl.String).to_list()


def test_several_files_of_one_gpu_are_one_device_on_one_clock() -> None:
    session = pyanalyze.load(samples=[SAMPLES / "dcgm-exporter.prom", SAMPLES / "recording.jsonl"])
    assert session.paths == ()
    assert session.devices.select("device_id", "uuid", "name").rows() == [(0, GPU, "NVIDIA H100 80GB HBM3")]
    assert session.capture["product"].to_list() == ["samples only, no capture"]
    # 17:05:19 UTC on 2026-06-20; the second moment is two seconds later.
    assert session.capture["utc_origin_ns"].to_list() == [1_781_975_119_000_000_000]
    assert sorted(set(session.nvml_samples["time_ns"])) == [0, 2_000_000_000]
    assert set(session.sources["state"].cast(pl.String)) == {"absent"}
    assert session.kernels.is_empty()
    assert "samples only" in repr(session)


def test_samples_given_as_captures_are_samples(fixtures: Path, tmp_path: Path) -> None:
    """A file of text that a reader knows is taken for what it is; of any other it is said what is known."""
    beside = [SAMPLES / "dcgm-exporter.prom", SAMPLES / "recording.jsonl"]
    assert pyanalyze.load(beside).nvml_samples.equals(pyanalyze.load(samples=beside).nvml_samples)
    demo = fixtures / "demo-time-slicing.sqlite"
    with_lists = pyanalyze.load([demo, fixtures / "demo-time-slicing.compute-apps.csv"])
    assert with_lists.paths == (demo,)
    assert with_lists.nvml_samples.height > 0
    notes = tmp_path / "notes.txt"
    notes.write_text("it was slow\n")
    with pytest.raises(NotACapture, match=r"notes\.txt: no known format; known are: nvidia-smi"):
        pyanalyze.load([demo, notes])


def test_more_memory_in_use_than_there_is_is_no_headroom(tmp_path: Path) -> None:
    """Two machines whose files call their GPU alike: 40 GiB in use of the one, 24 GiB in the other."""
    head = "timestamp, uuid, name, memory.total [MiB], memory.used [MiB]\n"
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    files[0].write_text(f"{head}2026/06/20 17:05:19.000, {GPU}, NVIDIA RTX A5000, 24576 MiB, 100 MiB\n")
    files[1].write_text(f"{head}2026/06/20 17:05:20.000, {GPU}, NVIDIA RTX A5000, 24576 MiB, 40960 MiB\n")
    device = pyanalyze.load(samples=files).report().devices[0]
    assert device.memory is not None
    assert (device.memory.total_bytes, device.memory.peak_bytes) == (None, 40_960 * 2**20)
    assert any("samples show 40.0 GiB in use" in gap.why for gap in device.sharing.missing)
    assert "-" not in "; ".join(health_parts(device))


def test_nothing_is_observed_and_what_was_not_captured_is_missing() -> None:
    report = pyanalyze.load(samples=SAMPLES / "query.xml").report()
    device = report.devices[0]
    assert device.sharing.mode == "undetermined"
    assert device.sharing.summary.startswith("Samples cannot show residency or concurrent execution; a capture can.")
    assert {evidence.basis for evidence in device.sharing.evidence} <= {"sampled", "configured"}
    assert {"context_switches", "kernels", "window"} <= {gap.what for gap in device.sharing.missing}
    # No capture was given: nothing is said of what it lacks.
    assert not any("the capture" in gap.why for gap in device.sharing.missing)
    assert (device.tenants, device.window, device.context_switches, device.occupancy) == ([], None, None, None)
    assert device.memory is not None
    # 24000 and 81559 MiB.
    assert (device.memory.peak_bytes, device.memory.total_bytes) == (25_165_824_000, 85_520_809_984)
    assert device.sampled is not None
    # Means of 37 and 99 %, of 250.1 and 412 W.
    assert (device.sampled.n, device.sampled.processes) == (2, 1)
    assert device.sampled.gpu_utilization == pytest.approx(0.68)
    assert device.sampled.power_w == pytest.approx(331.05)
    assert (device.sampled.start_ns, device.sampled.end_ns) == (0, 2_000_000_000)
    # nvidia-smi writes local time without its zone: no UTC can be given.
    assert report.clock.origin_utc_ns is None
    assert "samples_local_time" in [row.name for row in report.quality]
    assert report.captures[0].path.endswith("query.xml")


def test_mps_clients_are_named_by_samples_but_never_observed(tmp_path: Path) -> None:
    listing = tmp_path / "pmon.txt"
    listing.write_text(
        "# gpu pid type sm mem enc dec command\n# Idx # C/G % % % % name\n"
        "0 51 C - - - - nvidia-cuda-mps-server\n0 71 M+C 50 9 - - python\n0 72 M+C 49 9 - - python\n"
        "0 99 G 1 1 - - Xwayland\n",
        encoding="utf-8",
    )
    verdict = pyanalyze.load(samples=listing).classify()[0]
    names = {weighed.name for weighed in verdict.evidence}
    assert {"nvml_mps_server", "nvml_mps_clients"} <= names
    assert verdict.basis != "observed"
    assert verdict.configured == "mps"
    # The window system computes nothing.
    several = next(w for w in verdict.evidence if w.name == "nvml_several_processes")
    assert several.value == 2


def test_under_mig_utilisation_is_missing_and_instances_are_devices(tmp_path: Path) -> None:
    text = (SAMPLES / "query.xml").read_text(encoding="utf-8").split("</nvidia_smi_log>")[0] + "</nvidia_smi_log>"
    instance = (
        "<mig_device><gpu_instance_id>3</gpu_instance_id><compute_instance_id>0</compute_instance_id>"
        "<fb_memory_usage><used>10 MiB</used></fb_memory_usage></mig_device>"
    )
    text = (
        text.replace("<current_mig>Disabled", "<current_mig>Enabled")
        .replace("37 %", "0 %")
        .replace("\t\t\tNone\n", instance)
        .replace("<gpu_instance_id>N/A", "<gpu_instance_id>3")
        .replace("<compute_instance_id>N/A", "<compute_instance_id>0")
    )
    (tmp_path / "mig.xml").write_text(text, encoding="utf-8")
    session = pyanalyze.load(samples=tmp_path / "mig.xml")
    names = ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3 (MIG instance 3/0)"]
    assert session.devices["name"].to_list() == names
    process = session.nvml_samples.filter(pl.col("pid") == 4711)
    assert process["device_id"].to_list() == [1]
    board = session.report().devices[0]
    gap = next(gap for gap in board.sharing.missing if gap.what == "gpu_utilization")
    assert "[0, but not measured under MIG]" in gap.why
    assert "dcgmi dmon" in gap.how
    assert ("mig_mode", "Enabled") in zip(words(session.configured, "key"), session.configured["value"], strict=True)


@pytest.mark.parametrize("verb", ["summary", "info", "classify", "residency", "occupancy", "interference", "advise"])
def test_every_verb_answers_on_samples_only(verb: str) -> None:
    result = CliRunner().invoke(cli, [verb, "--samples", str(SAMPLES / "query-gpu.csv")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "observed" not in result.output


def test_the_first_screen_needs_no_verb() -> None:
    result = CliRunner().invoke(cli, ["--samples", str(SAMPLES / "query-gpu.csv")], catch_exceptions=False)
    assert result.exit_code == 0
    assert len(result.output.splitlines()) <= 15
    assert "NVIDIA H100" in result.output
    # A share of time, never a degree of filling; 37 and 99 % are two samples.
    said = "a kernel ran 68.0 % of the time (37.0 to 99.0 %, utilisation, not occupancy)"
    assert said in " ".join(result.output.split())
    written = CliRunner().invoke(cli, ["report", "-f", "json", "--samples", str(SAMPLES / "query-gpu.csv")])
    assert json.loads(written.output)["devices"][0]["tenants"] == []


def test_time_without_samples_is_said(tmp_path: Path) -> None:
    """A sample every second from 0 to 9 s and from 20 to 29 s: none for 10 of 29 s. One late sample is no hole."""
    for seconds, said, lines in (
        ([*range(10), *range(20, 30)], "20 samples, none for 34 % of the 29.00 s", [0] * 10 + [1] * 10),
        ([*range(10), *range(11, 30)], "29 samples", [0] * 29),
    ):
        rows = [f"0,0.500,4,{1_657_289_505 + second}" for second in seconds]
        path = tmp_path / "dcgm.csv"
        path.write_text("\n".join(["EntityId,GRACT,FBUSD,TimeStamp", *rows, ""]), encoding="utf-8")
        session = pyanalyze.load(samples=path)
        # A chart draws no line over the hole.
        drawn = series_of(session.tables, 0)
        for what in ("utilization", "memory"):
            assert [point["part"] for point in drawn if point["what"] == what] == lines
        sampled = session.report().devices[0]
        assert (sampled_sentence(sampled) or "").startswith(f"{said}; ")


def test_a_line_of_few_values_ends_where_others_were_sampled(hardware: Path) -> None:
    """The file has a row of process 505 every 50 ms, and a value in five: after 458, 360, 53 and 184 ms."""
    drawn = series_of(pyanalyze.load(hardware.parent / "h200" / "node-slices-A-B").tables, 0)
    mine = [one for one in drawn if one["pid"] == 505]
    assert [one["part"] for one in mine if one["what"] == "utilization"] == [0, 1, 2, 2, 3]
    # Its memory has a value in each row.
    assert {one["part"] for one in mine if one["what"] == "memory"} == {0}


def test_without_times_there_is_nothing_to_draw_or_to_hold_latencies_against(tmp_path: Path) -> None:
    path, latencies = tmp_path / "dmon.txt", tmp_path / "latencies.csv"
    path.write_text("#Entity   GRACT  FBUSD\nGPU 0  0.500  4\nGPU 0  0.000  4\n", encoding="utf-8")
    latencies.write_text("time,latency_ms\n1s,12\n", encoding="utf-8")
    session = pyanalyze.load(samples=path)
    assert session.samples["time_ns"].null_count() == session.samples.height > 0
    commands = [entry.how for entry in session.report().devices[0].missing_for("slowdown")]
    assert commands
    assert not any("LATENCIES.csv" in how for how in commands)
    with pytest.raises(UsageError, match="latencies need samples with times to compare with, and these have none"):
        pyanalyze.load(samples=path, work=latencies)
    page, report = tmp_path / "report.html", tmp_path / "report.md"
    for out in (page, report):
        done = CliRunner().invoke(cli, ["report", "--samples", str(path), "-o", str(out)])
        assert done.exit_code == 0, done.output
    assert "GPU use over time" not in page.read_text(encoding="utf-8")
    text = report.read_text(encoding="utf-8")
    assert "Pictures are omitted" not in text
    assert "| Sharing mode | undetermined | no evidence |  |" in text
    assert "| Idle | 50.0 % | 1 of 2 samples: Engine active below 1 % | sampled |" in text


def test_info_says_what_the_samples_hold() -> None:
    result = CliRunner().invoke(cli, ["info", "--samples", str(SAMPLES / "query.xml")], catch_exceptions=False)
    assert "samples only, no capture, driver 535.161.08" in result.output
    # Of each of two answers 13 values, the versions of driver and CUDA, and one process.
    assert "query.xml (nvidia-smi-query-xml): 32 rows of 16 metrics, 0 not available" in result.output
    result = CliRunner().invoke(cli, ["info", "--samples", str(SAMPLES / "pmon.txt")], catch_exceptions=False)
    assert "pmon.txt (nvidia-smi-pmon): 6 rows of 3 metrics, 2 not available" in result.output


def test_nothing_at_all_is_wrong_usage_and_unknown_files_are_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no capture was given"):
        pyanalyze.load()
    (tmp_path / "what.txt").write_text("hello\n", encoding="utf-8")
    with pytest.raises(SamplesUnreadable, match=r"what\.txt"):
        pyanalyze.load(samples=tmp_path / "what.txt")
    # One that can be read is enough; the other is said.
    session = pyanalyze.load(samples=[tmp_path / "what.txt", SAMPLES / "dmon.txt"])
    assert "samples_unread" in words(session.quality, "name")
    with pytest.raises(FileNotFoundError):
        pyanalyze.load(samples=tmp_path / "no.csv")


def test_samples_that_name_no_gpu_are_not_silence(tmp_path: Path) -> None:
    """DCGM numbers its entities, and of a MIG instance nothing ties the number to a board."""
    file = tmp_path / "dcgm.csv"
    file.write_text(
        "EntityId,GRACT,FBUSD,TimeStamp\n" + "".join(f"0,0.5,9,{1_700_000_000 + i}\n" for i in range(4)),
        encoding="utf-8",
    )
    session = pyanalyze.load(samples=file)
    assert session.devices.select("name", "uuid").rows() == [("DCGM entity 0", None)]
    assert session.nvml_samples.height == 8
    summary = " ".join(str(session).split())
    # GRACT is 0.5 and FBUSD 9 MiB in every row.
    assert "graphics engine active 50.0 % of the time (not occupancy); memory peak 9.00 MiB" in summary


def test_parquet_by_conversion_gives_the_same_rows(tmp_path: Path) -> None:
    session = pyanalyze.load(samples=SAMPLES / "recording.jsonl")
    file = tmp_path / "recording.parquet"
    session.nvml_samples.write_parquet(file)
    again = pyanalyze.load(samples=file)
    text = pl.col("source", "format", "process_type", "entity", "metric").cast(pl.String)
    assert again.nvml_samples.with_columns(text).equals(session.nvml_samples.with_columns(text))
    # Fewer columns are enough: what only some formats have may be left out.
    session.nvml_samples.select("source", "format", "time_utc_ns", "gpu_uuid", "metric", "value").write_parquet(file)
    assert pyanalyze.load(samples=file).nvml_samples["value"].equals(session.nvml_samples["value"])
    for bad in (pl.DataFrame({"a": [1]}), session.nvml_samples.with_columns(value=pl.lit("x"))):
        bad.write_parquet(file)
        with pytest.raises(SamplesUnreadable, match=r"recording\.parquet"):
            pyanalyze.load(samples=file)
    file.write_bytes(b"PAR1 no")
    with pytest.raises(SamplesUnreadable, match=r"recording\.parquet"):
        pyanalyze.load(samples=file)


CORPUS = Path(os.environ.get("PYANALYZE_CORPUS", ROOT / ".." / "shared" / "corpus"))


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
def test_real_samples_make_a_first_screen() -> None:
    # Every family of files that are samples as they stand.
    files = [
        *(CORPUS / "samples" / "telegraf").glob("*.xml"),
        *(CORPUS / "samples" / "netdata").glob("*.xml"),
        *(CORPUS / "samples" / "fergus-mps-h200").glob("*.txt"),
        *(CORPUS / "samples" / "george-ts-hami").glob("*.csv"),
    ]
    assert len(files) == 8 + 1 + 6 + 6
    for file in files:
        session = pyanalyze.load(samples=file)
        assert all(verdict.basis != "observed" for verdict in session.classify()), file
        assert len(str(session).splitlines()) <= 15
    # Two instances of an A100 beside the board.
    mig = pyanalyze.load(samples=files[8])
    assert mig.devices["sm_count"].to_list()[1:] == [42, 42]


def test_memory_is_held_against_a_threshold_and_listed_processes_are_somebody() -> None:
    given = [word for name in ("query-gpu.csv", "compute-apps.csv") for word in ("--samples", str(SAMPLES / name))]
    # 24,000 of 81,559 MiB, by the table: 29.4 %.
    for limit, said, status in (("30%", "PASSED", "inconclusive"), ("29%", "FAILED", "failed")):
        checked = CliRunner().invoke(cli, ["check", *given, "--max-memory", limit, "--max-slowdown", "2"])
        assert checked.output.startswith(f"check: {status}\n")
        assert said in checked.output
        assert "samples and settings observe nothing: this gate needs a capture" in checked.output
        assert "no GPU" not in checked.output
    shown = CliRunner().invoke(cli, ["report", "-f", "txt", *given]).output
    assert "; 1 compute process;" in " ".join(shown.split())
    assert "No process is known" not in shown


def test_lists_of_processes_between_samples_are_no_samples(hardware: Path) -> None:
    """The recorder wrote 24 samples of the GPU 50 ms apart, and a list of processes some milliseconds after each."""
    folder = hardware.parent / "h200" / "node-mps-A-B"
    lines = (folder / "samples.jsonl").read_text().splitlines()
    (device,) = pyanalyze.load(folder).report().devices
    assert device.sampled is not None
    assert device.sampled.n == sum('"gpu_utilization_pct"' in line for line in lines) == 24
    assert device.sampled.covered_share == 1


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
def test_an_encoder_that_is_busier_than_the_sms_is_named() -> None:
    """Two ffmpeg encode on an L40S.

    By pmon 24, 27, 28, 13, 21 % of the encoder and 40, 34, 37, 49, 42 %; by all lists 0 % seven times before that, then
    59, 60, 67, 59, 63, 59, 67 %. The 16 samples of the SMs are 100 % three times, 0 % five times, 9 % six and 10 % two.
    Samples of the device have times 0, 0.737, 15.0 and 15.415 s, the last list 15.65 s: of the hole of 14.263 s all but
    0.737 s, 86 %, is without.
    """
    (file,) = (CORPUS / "samples" / "nvidia-gpu-exporter").glob("*l40s*")
    session = pyanalyze.load(samples=file)
    report = session.report()
    (device,) = report.devices
    first, second = (one.engines["encoder"] for one in sorted(device.listed, key=lambda one: one.pid or 0))
    assert (first.value, second.value) == pytest.approx((0.226, 0.404))
    assert (first.n, second.n) == (5, 5)
    assert device.sampled is not None
    encoder, sms = (device.sampled.counter(f"{name}_utilization") for name in ("encoder", "gpu"))
    assert encoder is not None
    assert (encoder.mean, encoder.low, encoder.high, encoder.n) == pytest.approx((0.31, 0.0, 0.67, 14))
    assert sms is not None
    assert sms.mean == pytest.approx(374 / 1600)
    assert (sms.n, device.sampled.n, device.sampled.idle_share) == (16, 16, 5 / 16)
    screen = " ".join(str(session).split())
    # Separate moments have no mean. All samples of 100 % are of the idle one, of 8:33:38; in that of 8:33:53 the answers
    # with a time have 59 and 60 % of the encoder, and three times 9 % of the GPU. The rows of dmon have no time.
    busy = (
        "Engines the encoder was busy 59.0 to 60.0 % while processes were listed (2 samples), more than GPU utilisation"
    )
    assert f"{busy} (9.0 %, 3 samples) Sampled" in screen
    assert (encoder.listed_low, encoder.listed_high, encoder.listed_n) == pytest.approx((0.59, 0.60, 2))
    assert device.sampled.without_time == 10
    assert "Sampled 16 samples (10 without time), none for 86 % of the 15.65 s (separate moments, no mean)" in screen
    assert "a kernel ran 0.0 to 100.0 % of the time (9.0 % with processes listed, not occupancy) Health" in screen
    # pmon has five samples of each; the lists of processes, which have times, name them from 15.00 to 15.65 s: the table
    # of nvidia-smi and the answer of -q, both of 8:33:53, and the list of compute processes.
    listed = "Use mean of 5 samples, listed at 2 moments of the 15.65 s: ffmpeg (pid 20038) kernels 6.2 %"
    assert listed in screen
    assert "encoder 40.4 %, 681 MiB; ffmpeg (pid 20037) kernels 1.4 %, encoder 22.6 %" in screen
    text = " ".join(render_text(report, sections=("samples",)).split())
    assert "Idle 31.2 % (5 of 16 samples: Utilisation below 1 %)" in text
    assert "Not used in any sample: decoder, JPEG engine and optical flow engine." in text
    # `nsys profile --help`, 2023.4.4: -t nvvideo traces the calls of codecs, which -t cuda,nvtx leaves out.
    assert "nsys profile -t cuda,nvtx,nvvideo --gpuctxsw=true " in screen
    assert "record all tenants at once, as root, before any change. nsys" in screen
    # pmon and dmon write no times here.
    assert session.samples["time_ns"].null_count() == 200
    assert screen.endswith("; 15.65 s, local time of unknown zone; 200 values without a time")


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
@pytest.mark.parametrize("run", ["timeslice", "mps"])
def test_how_full_the_sms_were_is_said_where_dcgm_counted_it(run: str) -> None:
    file = CORPUS / "samples" / "fergus-mps-h200" / f"profile_results__dcgm_{run}.txt"
    names = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp32_active", "fp16_active")
    rows = [line.split()[2:] for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("GPU")]
    columns = dict(zip(names, zip(*(map(float, row) for row in rows), strict=True), strict=True))
    session = pyanalyze.load(samples=file)
    report = session.report()
    sampled = report.devices[0].sampled
    assert sampled is not None
    assert {one.name: one.n for one in sampled.counters} == dict.fromkeys(names, 60)
    for name, values in columns.items():
        found = sampled.counter(name)
        assert found is not None
        assert (found.low, found.high, found.unit) == (min(values), max(values), "fraction")
        assert found.mean == pytest.approx(sum(values) / 60)
    # Of the time slices: 0.838 of the SMs have a warp, and warps take 0.178 of the slots.
    active, warps = (100 * sum(columns[name]) / 60 for name in names[:2])
    screen = " ".join(str(session).split())
    said = []
    for name, mean in zip(names, (active, warps), strict=False):
        # Nearest ranks of 10 and 90 % of 60 samples.
        low, high = (100 * sorted(columns[name])[at] for at in (5, 53))
        wide = high - low > 0.15 * high
        said.append(f"{mean:.1f} %{f' (p10-p90 {low:.1f} to {high:.1f} %)' if wide else ''}")
    assert f"SMs active, mean {said[0]}, {said[1]} of all warp slots in use; DRAM active" in screen
    assert f"Warp slots in use {warps:.1f} %" in " ".join(render_text(report, sections=("samples",)).split())


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
def test_memory_of_listed_processes_is_summed_up() -> None:
    """By nvidia-smi 2.24 and 1.24 GiB of two memhog and 7.31 GiB of gpu_burn, on the first MIG instance."""
    (file,) = (CORPUS / "samples" / "nvidia-gpu-exporter").glob("*h100-mig*")
    report = pyanalyze.load(samples=file).report()
    instance = report.devices[1]
    peaks = [one.memory_peak_bytes or 0 for one in instance.listed]
    assert [round(peak / 2**30, 2) for peak in peaks] == [2.24, 1.24, 7.31]
    text = " ".join(render_text(report, sections=("memory",)).split())
    assert "Sum of the tenants' peaks 10.8 GiB (3 of 3 tenants)" in text
    # Of the instance the idle and the loaded state were listed, twice each.
    assert "At least 10 % of memory was free in each of 4 samples." in text


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
def test_processes_of_one_instance_that_are_no_clients_are_likely_time_sliced() -> None:
    """The driver lists three processes of type C in GI 2: none of M+C, nor a server. MIG mode is `Enabled`."""
    (file,) = (CORPUS / "samples" / "nvidia-gpu-exporter").glob("*h100-mig*")
    shared, empty = pyanalyze.load(samples=file).report().devices[1:3]
    # A list says who was there, not who ran.
    assert shared.sharing.mode == "undetermined"
    likely = {one.mode: one.confidence for one in shared.sharing.alternatives}
    assert likely[Mode.MIG_TIME_SLICING] > 2 * likely[Mode.MIG] > 4 * likely[Mode.MIG_MPS]
    assert empty.sharing.alternatives[0].mode == "mig"
    assert shared.sharing.configured == "mig"
    assert shared.sharing.agrees is True


@pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no real samples at {CORPUS}: set PYANALYZE_CORPUS")
def test_one_sample_of_a_virtual_gpu_claims_no_more_than_it_has() -> None:
    file = CORPUS / "samples" / "telegraf" / "plugins__inputs__nvidia_smi__testdata__tesla_p4.xml"
    report = pyanalyze.load(samples=file).report()
    sampled = report.devices[0].sampled
    assert sampled is not None
    # The file has 0 MHz and 0 C: the guest may not read them.
    assert [one.name for one in sampled.counters if one.unit in ("Hz", "C")] == []
    text = " ".join(render_text(report).split())
    assert "At least 10 % of memory was free in the only sample of it." in text
    assert "vgpu-time-sliced (the device is a virtual GPU)" in text
    assert "matches" not in text
    assert "0 ns to 0 ns" not in text


def test_traffic_and_clocks_of_dmon_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "dmon.txt"
    file.write_text(
        "# gpu     sm    mem    enc    dec   pclk  rxpci  txpci \n# Idx      %      %      %      %    MHz   MB/s   MB/s \n"
        "    0     90     84      0      0   2760     10      4 \n    0     96     90      0      0   2700     14      6 \n",
        encoding="utf-8",
    )
    report = pyanalyze.load(samples=file).report()
    sampled = report.devices[0].sampled
    assert sampled is not None
    assert {(one.name, one.unit, one.mean) for one in sampled.counters if one.high} == {
        ("gpu_utilization", "fraction", 0.93),
        ("memory_utilization", "fraction", 0.87),
        ("clock_sm", "Hz", 2.73e9),
        ("pcie_rx", "bytes/s", 12e6),
        ("pcie_tx", "bytes/s", 5e6),
    }
    text = render_text(report, sections=("samples",))
    assert "2730 MHz" in text
    assert "12.0 MB/s" in text
    # The SMs were busier.
    assert "more than" not in text
