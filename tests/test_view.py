"""A part of a session: windows of time, one GPU, names replaced."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import generate
import polars as pl
import pytest
from command_line import run
from exports import RESTORE, kernel, resident, write
from shared_sessions import load

from pyanalyze.errors import UsageError
from pyanalyze.tables.frames import to_frame
from pyanalyze.tables.redact import numbered
from pyanalyze.text.times import around_ns, duration_ns, position_ns

DEMO = "demo-time-slicing.sqlite"
ORIGIN = 1_763_728_991_123_456_789


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1s200ms", 1_200_000_000),
        ("1s 200ms", 1_200_000_000),
        ("250", 250),
        ("0.000000001s", 1),
        ("9007199254740993ns", 9_007_199_254_740_993),  # not a double
        ("1h2m3s", 3_723_000_000_000),
        ("1.5us", 1500),
        ("2µs", 2000),
        ("-5ms", -5_000_000),
    ],
)
def test_times_in_the_syntax_of_nsys(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "s", "1x", "1s2", "ms1", "1..5s", "1s,2ms", "٣ s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        duration_ns(text)


def test_dates_need_a_zone_and_an_origin() -> None:
    # The origin is 2025-11-21T12:43:11.123456789Z.
    assert position_ns("2025-11-21T12:43:11.123456789Z", ORIGIN) == 0
    assert position_ns("2025-11-21T12:43:12.123456790Z", ORIGIN) == 1_000_000_001
    assert position_ns("2025-11-21 21:43:11.123456789+09:00", ORIGIN) == 0
    moment = datetime(2025, 11, 21, 21, 43, 12, tzinfo=timezone(timedelta(hours=9)))
    assert position_ns(moment, ORIGIN) == position_ns("2025-11-21T12:43:12Z", ORIGIN)
    for given in ("2025-11-21T12:43:11", datetime(2025, 11, 21), "2025-11-21T99:00:00Z", "2025-11-21"):  # noqa: DTZ001
        with pytest.raises(UsageError):
            position_ns(given, ORIGIN)
    with pytest.raises(UsageError, match="does not say when"):
        position_ns(datetime(2025, 11, 21, tzinfo=UTC), None)


def test_around_is_half_before_and_half_after() -> None:
    assert around_ns("2s", None) == (1_500_000_000, 2_500_000_000)
    assert around_ns("2s/3ns", None) == (1_999_999_999, 2_000_000_002)
    with pytest.raises(UsageError):
        around_ns("2s/0ms", None)


def test_a_window_holds_what_the_books_say_of_it() -> None:
    """Residency and busy time of a window, against the simulation's intervals clipped by hand."""
    folder = generate.built("time-slicing-pair")
    truth = json.loads((folder / "time-slicing-pair.truth.json").read_text(encoding="utf-8"))
    session = load(folder / "time-slicing-pair.sqlite")
    first, last = session.span_ns
    # Odd ends, so that both cut slices and kernels.
    start, end = first + (last - first) // 3 + 7, first + 2 * (last - first) // 3 + 11
    part = session.window(start, end)
    origin = truth["captures"][0]["origin_ns"]
    (device,) = truth["devices"]
    for tenant in truth["tenants"]:
        true = sum(
            max(0, min(stop - origin, end) - max(begin - origin, start))
            for group, begin, stop in device["residency"]
            if group == tenant["group"]
        )
        mine = part.tenants.filter(pl.col("pid") == tenant["pid"])["tenant_id"].item()
        row = part.tenant_usage.filter(tenant_id=mine).row(0, named=True)
        assert row["resident_ns"] == true
        spans = session.kernels.filter(pl.col("pid") == tenant["pid"]).select("start_ns", "end_ns").rows()
        busy, at = 0, start
        for begin, stop in sorted(spans):
            begin, stop = max(begin, at), min(stop, end)
            if stop > begin:
                busy, at = busy + stop - begin, stop
        assert row["busy_ns"] == busy
        assert row["first_ns"] >= start
        assert row["last_ns"] <= end
    assert part.report().devices[0].sharing.mode == "time-slicing"
    # The two slices at the edges are cut: they are no complete slices.
    whole = session.residency.filter(pl.col("complete") & (pl.col("start_ns") > start) & (pl.col("end_ns") < end))
    assert part.residency["complete"].sum() == whole.height


def test_who_holds_the_gpu_all_through_a_window_holds_it_in_it() -> None:
    """Between two records nothing is recorded, and yet some context is resident."""
    session = load(Path(__file__).parent.parent / "fixtures/captures" / DEMO)
    long = session.residency.with_columns(length=pl.col("end_ns") - pl.col("start_ns")).sort("length")[-1]
    start, end = int(long["start_ns"].item()) + 1000, int(long["end_ns"].item()) - 1000
    assert session.switch_events.filter(pl.col("time_ns").is_between(start, end)).is_empty()
    part = session.window(start, end)
    assert part.residency.select("tenant_id", "start_ns", "end_ns").rows() == [(long["tenant_id"].item(), start, end)]


def test_who_has_no_slice_in_a_window_is_attributed_nothing(fixtures: Path) -> None:
    """A millisecond inside one slice: the kernels of the others are in flight all through it, and stand still."""
    session = load(fixtures / "demo-time-slicing.sqlite")
    window = (500_000_000, 501_000_000)
    slices = session.residency.filter((pl.col("start_ns") < window[1]) & (pl.col("end_ns") > window[0]))
    assert slices.height == 1, "the window is inside one slice"
    usage = session.window(*window).tenant_usage.join(session.tenants.select("tenant_id", "name"), on="tenant_id")
    found = {row["name"]: (row["resident_ns"], row["attributed_ns"]) for row in usage.iter_rows(named=True)}
    assert found["app_a"] == found["app_b"] == (0, 0)
    assert found["app_c"][0] == 1_000_000


def test_a_window_without_anything_is_refused(fixtures: Path) -> None:
    session = load(fixtures / DEMO)
    with pytest.raises(UsageError, match="nothing was recorded"):
        session.window("1h", "2h")
    with pytest.raises(UsageError, match="must end after"):
        session.window(5, 5)
    first, last = session.span_ns
    with pytest.raises(UsageError, match=f"activity is from {first} ns to {last} ns"):
        session.window("9999s")
    with pytest.raises(UsageError, match="no GPU 7"):
        session.only_gpu(7)


@pytest.mark.parametrize("given", [("--around", "100s"), ("--start", "99.5s"), ("--start", "99s", "--end", "101s")])
def test_a_window_behind_the_capture_is_refused_with_its_range(tmp_path: Path, given: tuple[str, ...]) -> None:
    """Whoever was resident at the last switch record is so at the start of any later window: nothing was recorded there."""
    switches = [*resident(41, 1, 0, 1_000_000), (1_000_500, RESTORE, 2, 42)]
    kernels = [kernel(41, 100_000, 900_000)]
    path = write(tmp_path / "a.sqlite", switches=switches, kernels=kernels, processes={41: "a", 42: "b"})
    done = run("summary", *given, path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "(0.000 s to 0.001 s; " in done.stderr
    if len(given) == 2 and given[0] == "--start":
        assert "start 99.5s lies after all that was recorded" in done.stderr


def test_a_window_before_the_capture_is_named_by_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 2_000_000_000, 3_000_000_000)], processes={41: "a"})
    done = run("summary", "--end", "1ms", path)
    assert done.returncode == 2
    assert "end 1ms lies before all that was recorded; activity is from 2000000000 ns to 3000000000 ns" in done.stderr
    assert "(2.000 s to 3.000 s; 2026-09-21 14:13:22.000 UTC to 2026-09-21 14:13:23.000 UTC)" in done.stderr


def test_the_whole_is_a_window_of_itself(fixtures: Path) -> None:
    session = load(fixtures / DEMO)
    whole = session.window(0, 10**12)
    assert whole.tenant_usage.equals(session.tenant_usage)
    assert whole.facts.equals(session.facts)


def test_one_gpu_of_two() -> None:
    folder = generate.built("two-gpus")
    session = load(folder / "two-gpus.sqlite")
    both = {v.device_id: v for v in session.classify()}
    assert len(both) == 2
    for device, verdict in both.items():
        (alone,) = session.only_gpu(device).classify()
        assert (alone.device_id, alone.mode) == (device, verdict.mode)
        assert session.only_gpu(device).report().view is not None


def test_no_name_survives_redaction(fixtures: Path, tmp_path: Path) -> None:
    plain = load(fixtures / DEMO)
    names = {str(name) for name in (*plain.kernels["name"].unique(), *plain.tenants["name"])} | {"demo-time-slicing"}
    assert len(names) == 12
    for fmt in ("html", "json", "md", "txt"):
        out = tmp_path / f"out.{fmt}"
        result = run("report", fixtures / DEMO, "--redact", "-f", fmt, "-o", out)
        assert result.returncode == 0, result.stderr
        text = out.read_text(encoding="utf-8")
        assert [name for name in names if name in text] == []
        assert "process-1" in text
    redacted = plain.redacted()
    # The same numbers, and the same name for the same thing.
    assert redacted.kernels.drop("name", "short_name").equals(plain.kernels.drop("name", "short_name"))
    pairs = pl.DataFrame({"old": plain.kernels["name"].cast(str), "new": redacted.kernels["name"].cast(str)}).unique()
    assert pairs["old"].n_unique() == pairs["new"].n_unique() == pairs.height
    assert redacted.classify()[0].mode == plain.classify()[0].mode


def test_info_hides_names_as_well(fixtures: Path) -> None:
    """`info` reads a session in which nothing was reconstructed: it has no tenants to rename."""
    plain, hidden = (run("info", fixtures / DEMO, "-f", "json", *more) for more in ((), ("--redact",)))
    assert (plain.returncode, hidden.returncode) == (0, 0), hidden.stderr
    names = [process["name"] for process in json.loads(plain.stdout)["processes"]]
    assert names
    assert not any(name in hidden.stdout for name in names)
    assert [p["pid"] for p in json.loads(hidden.stdout)["processes"]] == [
        p["pid"] for p in json.loads(plain.stdout)["processes"]
    ]


def test_the_mps_server_keeps_its_name_and_its_mode(fixtures: Path) -> None:
    session = load(fixtures / "mps.sqlite")
    hidden = session.redacted()
    assert [v.mode for v in hidden.classify()] == [v.mode for v in session.classify()] == ["mps"]
    assert [v.confidence for v in hidden.classify()] == [v.confidence for v in session.classify()]


def test_options_of_the_command_line_cut_and_detail(fixtures: Path) -> None:
    result = run(
        "report", fixtures / DEMO, "-f", "json", "--start", "300ms", "--end", "400ms", "--detail", "--threads", "1"
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["view"] == {"start_ns": 300_000_000, "end_ns": 400_000_000, "gpu": None, "redacted": False}
    (device,) = report["devices"]
    assert device["window"] == {"start_ns": 300_000_000, "end_ns": 400_000_000}
    held = device["residency"]
    assert sum(s["end_ns"] - s["start_ns"] for s in held) == sum(t["resident_ns"] or 0 for t in device["tenants"])
    warps = device["sm_warps"]["warps"]
    assert {len(bin_) for bin_ in warps} == {device["sm_count"]}
    # 64 warps fit on an SM of this GPU.
    assert 0 < max(max(bin_) for bin_ in warps) <= 64
    plain = json.loads(run("report", fixtures / DEMO, "-f", "json").stdout)
    assert not {"residency", "sm_warps"} & set(plain["devices"][0])
    assert plain["view"] is None
    assert run("info", fixtures / DEMO, "--around", "1s", "--start", "1s").returncode == 2
    assert run("info", fixtures / DEMO, "--start", "soon").returncode == 2


def test_a_cell_never_starts_a_formula(tmp_path: Path) -> None:
    from pyanalyze.export.write import _WRITERS
    from pyanalyze.text.escape import spreadsheet

    odd = ["=1+1", "+x", "-x", "@x", "\t=x", "plain", None]
    frame = pl.DataFrame({"name": pl.Series(odd, dtype=pl.Categorical), "value": [-1, 2, 3, 4, 5, 6, 7]})
    _WRITERS["csv"](frame, tmp_path / "out.csv")
    back = pl.read_csv(tmp_path / "out.csv")
    assert back["name"].to_list() == ["'=1+1", "'+x", "'-x", "'@x", "'\t=x", "plain", None]
    assert back["value"].to_list() == [-1, 2, 3, 4, 5, 6, 7], "numbers stay numbers"
    assert spreadsheet("a=1") == "a=1"


def test_what_is_read_late_is_cut_and_renamed_as_well(fixtures: Path) -> None:
    """API calls and ranges are read when a question needs them: long after the window was chosen."""
    session = load(fixtures / DEMO)
    calls = session.window("300ms", "400ms").tables.with_calls()["api_calls"].frame
    assert 0 < calls.height < session.tables.with_calls()["api_calls"].num_rows
    assert calls["start_ns"].min() >= 300_000_000
    assert calls["end_ns"].max() <= 400_000_000
    plain = set(to_frame(session.tables.with_calls()["nvtx"])["text"].cast(pl.String).drop_nulls())
    hidden = set(session.redacted().nvtx["text"].cast(pl.String).drop_nulls())
    assert plain
    assert not plain & hidden
    assert len(plain) == len(hidden)
    assert session.redacted().report().devices[0].tenants[0].name == "process-1"


def test_names_that_come_later_are_replaced_in_text_as_well() -> None:
    """The pattern of all names is kept between texts, but not beyond the next name."""
    names = numbered()
    assert names.of("process", "trainer") == "process-1"
    assert names.in_text("trainer beside server, see /tmp/run") == "process-1 beside server, see path-1"
    assert names.of("process", "server") == "process-2"
    assert names.in_text("trainer beside server, see /tmp/run") == "process-1 beside process-2, see path-1"
    assert numbered().in_text("nothing named") == "nothing named"


# -- what holds for a window ------------------------------------------------------------------------------------------

ROOT = Path(__file__).parent.parent
#: Recordings with samples and settings beside them, and captures of all kinds. The trace of node-mps-A-B is empty.
RECORDINGS = [
    *(ROOT / f"fixtures/hardware/h200/{name}" for name in ("node-mps-A-B-beside-C", "node-slices-A-B")),
    *sorted(ROOT.glob("fixtures/captures/*.sqlite")),
    ROOT / "fixtures/captures/containers-same-pid",
]
NODE = ROOT / "fixtures/hardware/h200/node-mps-A-B-beside-C"


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: p.stem)
def test_a_window_does_not_change_how_the_gpu_was_shared(path: Path) -> None:
    """Where all tenants worked, each part of a recording has the mode of the whole, or too little to say one."""
    session = load(path)
    whole = {verdict.device_id: verdict.mode for verdict in session.classify()}
    usage = session.tenant_usage.drop_nulls("first_ns")
    first, last = usage["first_ns"].max(), usage["last_ns"].min()
    assert isinstance(first, int)
    assert isinstance(last, int)
    for begin, end in ((0, 0.3), (0.3, 0.7), (0.8, 1), (0.45, 0.55), (0.1, 0.9)):
        window = first + round(begin * (last - first)), first + round(end * (last - first))
        for verdict in session.window(*window).classify():
            assert verdict.mode in (whole[verdict.device_id], "undetermined"), window


def test_a_window_keeps_the_nearest_list_of_processes() -> None:
    """`node.json` and NVML say that 708 and 709 are MPS clients, and 775 is none; the last list is of before the trace.

    Its time, by hand: 16:59:53.254 (UTC ns of the line in samples.jsonl) - 16:59:53.541 (start of the session).
    """
    lines = [json.loads(line) for line in (NODE / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    listed = [line for line in lines if "pid" in line]
    assert {line["pid"] for line in listed if line["process_type"] == "M+C"} == {708, 709}
    session = load(NODE)
    last = max(line["time_utc_ns"] for line in listed) - session.capture["utc_origin_ns"][0]
    assert last < 0
    part = session.window("900ms", "1100ms")
    assert part.nvml_samples.is_empty()
    assert set(part.tables.samples["pid"]) == {708, 709, 713, 775}
    assert part.tables.samples["time_ns"].max() == last
    # How busy they were then says nothing of the window.
    shares = part.tables.samples.filter(pl.col("metric").cast(pl.String).str.ends_with("_pct"))
    assert shares.height > 0
    assert shares["value"].null_count() == shares.height
    (verdict,) = part.classify()
    assert (verdict.mode, verdict.configured) == ("mps+time-slicing", "mps")
    details = [one.detail for one in verdict.evidence]
    assert f"NVML lists MPS clients (type M+C), {(900 - last / 1e6) / 1e3:.3f} s before the window" in details
    assert not any("whole capture" in detail for detail in details)


def test_records_that_name_one_client_in_a_window_are_of_the_group() -> None:
    """After the first 0.3 s the switch records name pid 708 for the context of both clients."""
    (device,) = load(NODE).window("400ms", "700ms").residency_summary()
    assert [tenant.name for tenant in device.tenants] == ["MPS group of kit (pid 708)", "kit"]
