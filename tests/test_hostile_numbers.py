"""Numbers from outside are bounded before anything is computed with them."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from command_line import run
from hypothesis import given
from hypothesis import strategies as st

import pyanalyze
from pyanalyze.errors import UsageError
from pyanalyze.inputs.context import identities, read_context
from pyanalyze.inputs.latencies import read_latencies
from pyanalyze.tables.tableset import empty_frame
from pyanalyze.text.numbers import FARTHEST_NS, LARGEST, bounded_float, bounded_int, bounded_time_ns, within_64_bits
from pyanalyze.text.times import around_ns, duration_ns, position_ns
from pyanalyze.text.toml import read_toml

MANY = "9" * 4301
#: What a signed integer of 64 bits cannot hold, or no clock shows.
FAR = (MANY, str(1 << 63), f"-{1 << 63}", f"{1 << 62}1", "999999999999h", f"{MANY}h", "1" * 25 + "ms", "146h" * 10_000)


@given(st.integers())
def test_a_whole_number_is_read_or_is_none(number: int) -> None:
    expected = number if 0 <= number <= LARGEST else None
    assert bounded_int(str(number)) == expected
    assert bounded_int(f"00{number}" if number >= 0 else f"-00{-number}") == expected
    assert bounded_int(hex(number)) == expected


@given(st.text())
def test_no_text_is_a_number_by_accident(text: str) -> None:
    number = bounded_int(text, -LARGEST)
    assert number is None or int(text, 16 if "x" in text.lower() else 10) == number
    real = bounded_float(text)
    assert real is None or (math.isfinite(real) and float(text) == real)


def test_text_of_a_million_digits_takes_no_time() -> None:
    began = time.process_time()
    for text in ("9" * 1_000_000, "0" * 1_000_000 + "x", "0x" + "f" * 1_000_000, " " * 1_000_000, "-" * 1_000_000):
        assert bounded_int(text) is None
        assert bounded_float(text) is None
    assert bounded_int("0" * 1_000_000 + "7") == 7
    assert time.process_time() - began < 20


def test_data_that_holds_itself_is_looked_at_once() -> None:
    own: list[object] = [1, "a", 1.5, None]
    own.append(own)
    assert within_64_bits(own)
    shared: object = [1 << 70]
    for _ in range(60):
        shared = [shared, shared]
    assert not within_64_bits(shared)
    assert within_64_bits({"a": [-(1 << 63), (1 << 63) - 1]})
    assert not within_64_bits({1 << 64: "a"})


@pytest.mark.parametrize("text", FAR)
def test_a_time_that_no_clock_shows_is_refused(text: str) -> None:
    for read in (duration_ns, lambda given: position_ns(given, None), lambda given: around_ns(given, None)):
        with pytest.raises(UsageError, match="out of range") as raised:
            read(text)
        assert len(str(raised.value)) < 200


def test_the_farthest_times_are_read() -> None:
    assert duration_ns(str(FARTHEST_NS)) == FARTHEST_NS
    assert duration_ns(f"-{FARTHEST_NS}") == -FARTHEST_NS
    assert bounded_time_ns(FARTHEST_NS + 1) is None
    # More digits than a nanosecond has change nothing: 1.5 ms is 1 500 000 ns.
    assert duration_ns("1.5" + "0" * 5000 + "ms") == 1_500_000
    assert around_ns("1s/99999s", None) == (1_000_000_000 - 49_999_500_000_000, 1_000_000_000 + 49_999_500_000_000)
    with pytest.raises(UsageError, match="out of range"):
        around_ns(f"{FARTHEST_NS}/1s", None)
    for moment in (1 << 63, -(1 << 70), 10**5000):
        with pytest.raises(UsageError, match="out of range"):
            position_ns(moment, None)
    with pytest.raises(UsageError, match="out of range"):
        position_ns("9999-12-31T23:59:59Z", 0)


@pytest.mark.parametrize(
    "words",
    [
        *(("info", option, text) for option in ("--start", "--end", "--around") for text in FAR[:5]),
        *(
            ("info", "--memory", text)
            for text in ("999999999999TB", f"{MANY}GB", "inf", "nan", "-1", "1e400", "0x10GB")
        ),
        *(("info", "--gpu", text) for text in (MANY, "1e3", "inf")),
        *(("info", "--threads", text) for text in (MANY, "0", "-1", "inf")),
        *(("info", "--tenant", f"a={text}") for text in (MANY, str(1 << 32))),
        *(("check", "--max-slowdown", text) for text in ("inf", "-inf", "nan", "1e400", "x")),
        *(
            ("check", option, text)
            for option in ("--max-switch-overhead", "--min-jain", "--min-sm-active", "--max-memory", "--max-change")
            for text in ("inf", "nan%", f"{MANY}%", "1e400")
        ),
        *(("advise", "--latency", text) for text in ("inf", "nan", "0", "-1", "1e400")),
        *(("compare", "--noise-floor", text) for text in ("inf", "nan%")),
        *(("record", option, text) for option in ("--rate", "--duration") for text in ("inf", "nan", "1e400")),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_an_option_that_is_no_number_is_wrong_usage(fixtures: Path, words: tuple[str, ...]) -> None:
    capture = [] if words[0] == "record" else [fixtures / "mps.sqlite"] * (2 if words[0] == "compare" else 1)
    done = run(words[0], *capture, *words[1:])
    assert done.returncode == 2, done.stderr
    assert len(done.stderr) < 1000 + len(words[-1])


@pytest.mark.parametrize("threads", ["9" * 30, str(1 << 64)])
def test_more_threads_than_processors_are_as_many(fixtures: Path, threads: str) -> None:
    assert run("kernels", fixtures / "mps.sqlite", "--threads", threads).returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        f"[check]\nmax_slowdown = 0x{'f' * 400}\n",
        f"[check]\nslowdown = 0x{'f' * 4000}\n",
        f"[check]\ninconclusive = 0x{'f' * 4000}\n",
        f"[check]\nmax_slowdown = {MANY}\n",
        "[check]\nmax_slowdown = inf\n",
        "[check]\nmin_jain = nan\n",
        "[check]\nmin_jain = []\n",
        "[check.tenants]\na = inf\n",
        "tool = 1\n",
        "[tool]\npyanalyze = []\n",
        "a = " + "[" * 50_000,
        "#" * (5 << 20),
    ],
    ids=range(12),
)
def test_thresholds_of_a_file_are_bounded(fixtures: Path, tmp_path: Path, text: str) -> None:
    config = tmp_path / "gate.toml"
    config.write_text(text, encoding="utf-8")
    done = run("check", fixtures / "mps.sqlite", "--config", config)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


RUN = '[[run]]\ncaptures = "a.sqlite"\nworkload = "w"\nrole = "shared"\nmode = "mps"\n'


@pytest.mark.parametrize(
    "text",
    [
        f"{RUN}repeat = 0x{'f' * 400}\n",
        f"{RUN}repeat = {1 << 63}\n",
        f"{RUN}tenants = {{ a = {1 << 32} }}\n",
        f"{RUN}tenants = {{ a = -1 }}\n",
        f"{RUN}throughput.a = {{ profiled = inf }}\n",
        f"{RUN}throughput.a = {{ profiled = nan }}\n",
    ],
)
def test_numbers_of_a_study_are_bounded(tmp_path: Path, text: str) -> None:
    study = tmp_path / "study.toml"
    study.write_text(f'title = "T"\n{text}', encoding="utf-8")
    done = run("study", study, "-o", tmp_path / "out", "-q")
    assert done.returncode == 2, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    with pytest.raises(UsageError, match="no TOML file"):
        read_toml("/dev/zero")


def test_numbers_in_yaml_are_bounded(tmp_path: Path) -> None:
    """YAML has hexadecimal numbers of any length, and data that holds itself."""
    file = tmp_path / "plugin.yaml"
    sound = "sharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n"
    for more in (
        f"---\nsharing:\n  mps:\n    resources:\n    - name: a\n      replicas: 0x{'f' * 5000}\n",
        "---\nsharing: &a\n  mps: *a\n",
    ):
        file.write_text(sound + more, encoding="utf-8")
        assert read_context(file)["value"].to_list() == ["strategy=time-slicing replicas=4 resource=nvidia.com/gpu"]


def test_pids_of_identities_are_pids() -> None:
    import polars as pl

    rows = [(4711, "process_pid", text) for text in ("x", MANY, "-1", str(1 << 32), "7")]
    frame = pl.DataFrame(rows, schema={"pid": pl.UInt32, "key": pl.String, "value": pl.String}, orient="row")
    assert identities([frame]).rows() == [(4711, 7)]


@pytest.mark.parametrize(
    "number", ["inf", "-inf", "nan", "NaN", "Infinity", "1e400", "1e308", "1e19", "1e250", MANY, "-1", "0x10"]
)
def test_samples_of_no_finite_value_reach_no_json(fixtures: Path, tmp_path: Path, number: str) -> None:
    file = tmp_path / "samples.csv"
    uuid = "GPU-" + "1" * 8 + "-2222-3333-4444-555555555555"
    lines = [
        f"2026/03/14 05:26:5{n}.000, {uuid}, {number} MiB, {number} %, {number} W, {number}, {number}\n"
        for n in range(4)
    ]
    columns = "memory.used [MiB], utilization.gpu [%], power.draw [W], xid_last, ecc.errors.corrected.volatile.total"
    file.write_text(f"timestamp, uuid, {columns}\n" + "".join(lines))
    for captures in ([], [fixtures / "mps.sqlite"]):
        done = run("report", *captures, "--samples", file, "-f", "json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
        assert within_64_bits(said)


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 10**400, f"{1 << 63}", f"0x{'f' * 5000}"])
def test_a_saved_report_holds_numbers_of_64_bits(fixtures: Path, tmp_path: Path, value: int | str) -> None:
    body = pyanalyze.load(fixtures / "mps.sqlite").report().to_dict()
    if isinstance(value, int):
        body["devices"][0]["window"]["end_ns"] = value
    else:
        body["clock"]["origin_utc_ns"] = value
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(body), encoding="utf-8")
    for words in (("check", saved, "--max-slowdown", "2"), ("compare", saved, saved)):
        done = run(*words)
        assert done.returncode == 3
        assert done.stderr.count("\n") == 1


def test_a_recording_cannot_have_started_before_1970(fixtures: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes((fixtures / "mps.sqlite").read_bytes())
    with closing(sqlite3.connect(damaged)) as database:
        changed = database.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?", [-(1 << 63)])
        assert changed.rowcount > 0
        database.commit()
    done = run("report", damaged, "-f", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["clock"]["origin_utc_ns"] is None


def test_settings_of_thousands_of_digits_are_no_settings(fixtures: Path, tmp_path: Path) -> None:
    names = ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_DEVICE_SM_LIMIT")
    node = {"schema": "pyanalyze.node/1", "processes": {"2411": {"environment": dict.fromkeys(names, MANY)}}}
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node), encoding="utf-8")
    done = run("report", fixtures / "streams.sqlite", "--context", file, "-f", "txt")
    assert done.returncode == 0, done.stderr
    assert MANY not in done.stdout


@pytest.mark.parametrize("row", ["{},inf", "{},1e300", "{},nan", "{},-1e300", "1e17,3", "9" * 400 + ",3", "1e400,3"])
def test_latencies_that_no_clock_shows_name_their_line(tmp_path: Path, row: str) -> None:
    file = tmp_path / "latencies.csv"
    file.write_text(f"time,latency_ms\n{row.format('2026-06-20T17:05:19Z')}\n")
    with pytest.raises(UsageError, match="line 2: "):
        read_latencies(file, empty_frame("nvml_samples"), 1_781_975_118_000_000_000)
