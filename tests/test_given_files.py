"""Files as people give them: through pipes, as addresses, in other formats, from spreadsheets."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import run

import pyanalyze
from pyanalyze.errors import NotACapture, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

DMON = """# gpu    pwr     sm
# Idx      W      %
    0    438     37
    0    440     39
"""


def piped(words: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, whose standard input is a pipe with that text."""
    command = "import sys; from pyanalyze.cli import main; sys.argv[0] = 'pyanalyze'; main()"
    return subprocess.run(
        [sys.executable, "-c", command, *words], input=text, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("words", [("-",), ("--samples", "-"), ("--samples", "/dev/stdin"), ("--context", "-")])
def test_standard_input_is_read_whichever_option_names_it(words: tuple[str, ...]) -> None:
    done = piped(words, DMON)
    assert done.returncode == 0, done.stderr
    # The mean of 37 and 39.
    assert "a kernel ran 38.0 % of the time" in " ".join(done.stdout.split())


def test_a_named_pipe_is_read_once_and_keeps_its_name(tmp_path: Path) -> None:
    pipe = tmp_path / "samples.fifo"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(DMON,), daemon=True)
    writer.start()
    session = pyanalyze.load(samples=pipe)
    writer.join(timeout=60)
    assert session.nvml_samples["source"].unique().to_list() == [str(pipe)]
    # Two lines with two metrics.
    assert session.nvml_samples.height == 4


def test_what_is_read_more_than_once_is_no_pipe(fixtures: Path, tmp_path: Path) -> None:
    capture = fixtures / "exclusive.sqlite"
    pipe = tmp_path / "solo.fifo"
    os.mkfifo(pipe)
    with pytest.raises(NotACapture, match=r"solo\.fifo is a pipe: save it to a file first"):
        pyanalyze.load(capture, baselines=pipe)
    done = subprocess.run(
        [sys.executable, "-m", "pyanalyze", "-"],
        input=capture.read_bytes(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, b"standard input is a pipe: save the capture" in done.stderr) == (3, True)


@pytest.mark.parametrize("option", [(), ("--samples",), ("--context",)])
def test_addresses_are_refused_as_what_they_are(option: tuple[str, ...]) -> None:
    done = run(*option, "https://example.com/a.csv")
    assert done.returncode == 2
    assert "https://example.com/a.csv: URLs are not read; download it to a file" in done.stderr
    with pytest.raises(UsageError, match="https://example"):
        pyanalyze.load(Path("https://example.com/a.csv"))


OTHERS = {
    "ncu.csv": ('"ID","Kernel Name","Section Name","Metric Name"\n', "advise CAPTURE --ncu"),
    "sums.csv": ("Time (%),Total Time (ns),Instances\n50.0,1,1\n", "is a table of `nsys stats`"),
    "pods.txt": ("NAME   READY   STATUS\nweb-0  1/1   Running\n", "is a table of kubectl"),
    "node.txt": ("Name:  node-a\nRoles:  <none>\n", "is text of `kubectl describe`"),
    "servers.txt": ("8810\n", "bare numbers; paste the command"),
    "bare.csv": ("2026/06/25 14:00:00.123, 0, 90, 40\n", "without its header line"),
    "trace.json": ('{"schemaVersion": 1, "traceEvents": []}', "is JSON of a profiler"),
    "policy.json": ('{"apiVersion": "apps/v1", "kind": "Deployment"}', "object of kind Deployment"),
    "error.json": ('{"status": "error", "error": "too many points"}', "answered with an error: too many points"),
    "torn.xml": ("<?xml?>\n<nvidia_smi_log>\n<gpu>", "was it cut short?"),
    "notes.txt": ("it was slow\n", "no known format"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("option", [(), ("--samples",)])
def test_another_format_is_named_with_an_option_and_without(name: str, option: tuple[str, ...], tmp_path: Path) -> None:
    text, says = OTHERS[name]
    file = tmp_path / name
    file.write_text(text)
    done = run(*option, file)
    assert done.returncode == 3
    assert says in done.stderr
    assert "SQLite" not in done.stderr


@pytest.mark.parametrize("option", [(), ("--samples",)])
def test_packed_and_utf16_files_are_the_same_with_an_option_and_without(
    option: tuple[str, ...], tmp_path: Path
) -> None:
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(DMON.encode()))
    assert "a.csv.gz is compressed; decompress it first (gunzip)" in run(*option, packed).stderr
    # As PowerShell redirects.
    wide = tmp_path / "wide.txt"
    wide.write_bytes(DMON.encode("utf-16"))
    assert "a kernel ran 38.0 % of the time" in " ".join(run(*option, wide).stdout.split())


def test_files_of_spreadsheets_are_read_or_say_which_row_is_not(tmp_path: Path) -> None:
    head = "timestamp, index, utilization.gpu [%], power.draw [W]\n"
    rows = "2026/06/25 14:00:00.000, 0, 90 %, 300,10 W\n2026/06/25 14:00:01.000, 0, 70 %, 299,90 W\n"
    comma, semicolon, closed = (tmp_path / f"{name}.csv" for name in ("comma", "semicolon", "closed"))
    comma.write_text(head + rows)
    semicolon.write_text((head + rows).replace(", ", ";"))
    for file in (comma, semicolon):
        sampled = pyanalyze.load(samples=file).report().devices[0].sampled
        assert sampled is not None
        # The means of 300.1 and 299.9 W and of 90 and 70 %.
        assert (sampled.power_w, sampled.gpu_utilization) == pytest.approx((300.0, 0.8))
    # Without blanks nobody can tell the commas apart.
    closed.write_text(f"{head}2026/06/25 14:00:00.000, 0, 90 %, [N/A]\n{rows}".replace(", ", ","))
    screen = " ".join(run(closed).stdout.split())
    assert "Data loss 2 rows of samples left out" in screen
    assert "first in line 3 (5 values for 4 columns)" in screen


def test_values_that_lost_their_metric_or_their_gpu_are_said(tmp_path: Path) -> None:
    series = '{"metric": {"UUID": "GPU-1"}, "values": [[1782396000, "97"], [1782396030, "50"]]}'
    nameless = tmp_path / "nameless.json"
    nameless.write_text(f'{{"status": "success", "data": {{"resultType": "matrix", "result": [{series}]}}}}')
    assert "2 values without a metric name" in run("--samples", nameless).stderr
    entities = tmp_path / "dcgmi.txt"
    entities.write_text("#Entity   SMACT\nID\nGPU 0     0.550\nGPU-I 0   0.450\nGPU-CI 0  0.450\n")
    screen = " ".join(run(entities).stdout.split())
    assert "DCGM GPU-I 0 and GPU-CI 0: values of no known GPU" in screen


def test_times_without_a_date_give_the_length(tmp_path: Path) -> None:
    """`dmon -o T` over midnight: 23:59:58 to 00:00:01 are 3 s; beside dated samples they are at no known time."""
    file = tmp_path / "dmon.txt"
    lines = (f" {time}  0  {use}\n" for time, use in (("23:59:58", 90), ("23:59:59", 100), ("00:00:01", 80)))
    file.write_text("#Time        gpu     sm\n#HH:MM:SS    Idx      %\n" + "".join(lines))
    report = pyanalyze.load(samples=file).report()
    sampled = report.devices[0].sampled
    assert sampled is not None
    assert (sampled.start_ns, sampled.end_ns, sampled.n) == (0, 3_000_000_000, 3)
    assert report.clock.origin_utc_ns is None
    dated = tmp_path / "dated.csv"
    dated.write_text("timestamp, index, memory.used [MiB]\n2026/06/25 14:00:00.000, 0, 1 MiB\n")
    both = pyanalyze.load(samples=[file, dated]).report().devices[0].sampled
    assert both is not None
    assert both.end_ns == 0


def test_versions_of_driver_and_cuda_are_read_from_every_output_that_has_them(tmp_path: Path) -> None:
    table = """+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA L40S                    On  |   00000000:07:00.0 Off |                    0 |
| N/A   61C    P0            310W /  350W |   20000MiB /  46068MiB |     98%      Default |
"""
    text = """==============NVSMI LOG==============
Driver Version : 570.86.15
CUDA Version : 12.8
Attached GPUs : 1
GPU 00000000:07:00.0
    FB Memory Usage
        Used : 20000 MiB
"""
    label = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",DCGM_FI_DRIVER_VERSION="570.86.15"} 98\n'
    for content, cuda in ((table, "12.8"), (text, "12.8"), (label, None)):
        file = tmp_path / "a.txt"
        file.write_text(content)
        (capture,) = pyanalyze.load(samples=file).report().captures
        assert (capture.driver_version, capture.cuda_version) == ("570.86.15", cuda)


def test_a_fleet_names_the_samples_in_its_folder(fixtures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "a.sqlite").symlink_to(fixtures / "exclusive.sqlite")
    (folder / "table.txt").write_text(DMON)
    done = run("fleet", folder, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert f"not read: {folder / 'table.txt'} is no capture" in done.stderr
