"""Static pictures are drawn by a process beside; what goes wrong there must not cost a picture."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyanalyze.report import static_charts as _pictures
from pyanalyze.report.static_charts import Painter, svg


@pytest.fixture(autouse=True)
def process_that_draws() -> None:
    """It is what is tested here."""


def _bars(height: int) -> str:
    values = [{"x": "a", "y": height}]
    return json.dumps(
        {"mark": "bar", "data": {"values": values}, "encoding": {"y": {"field": "y", "type": "quantitative"}}}
    )


CONFIG = json.dumps({"background": "transparent"})


def _process(painter: Painter) -> subprocess.Popen[bytes]:
    assert painter._process is not None
    return painter._process


def test_beside_and_here_the_pictures_are_the_same() -> None:
    charts = [_bars(height) for height in range(1, 5)]
    with Painter() as painter:
        waiting = [painter.svg(chart, CONFIG) for chart in charts]
        drawn = [picture.result() for picture in waiting]
        process = _process(painter)
        assert process.poll() is None
    assert drawn == [svg(chart, CONFIG) for chart in charts]
    assert len(set(drawn)) == len(charts)
    assert process.poll() is not None  # nobody waits for more


def test_the_process_draws_and_not_we(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pictures, "svg", lambda *_: pytest.fail("drawn in this process"))
    with Painter() as painter:
        assert painter.svg(_bars(1), CONFIG).result().startswith("<svg")


def test_charts_and_pictures_larger_than_a_pipe_come_through() -> None:
    values = [{"x": n, "unused": "x" * 100} for n in range(2000)]
    chart = {"mark": "point", "data": {"values": values}, "encoding": {"x": {"field": "x", "type": "quantitative"}}}
    with Painter() as painter:
        waiting = [painter.svg(json.dumps(chart), CONFIG) for _ in range(2)]
        assert all(len(picture.result()) > 1 << 17 for picture in waiting)


def test_a_killed_process_costs_no_picture() -> None:
    with Painter() as painter:
        first = painter.svg(_bars(1), CONFIG).result()
        process = _process(painter)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert painter.svg(_bars(1), CONFIG).result() == first
        assert painter.svg(_bars(2), CONFIG).result() == svg(_bars(2), CONFIG)


def test_an_interrupt_while_it_ends_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    painter = Painter()
    process = _process(painter)

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), painter:
        monkeypatch.setattr(painter._waiting, "shutdown", interrupted)
    assert process.returncode == -signal.SIGKILL
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdin.closed
    assert process.stdout.closed


def test_where_no_process_can_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for command in ((str(tmp_path / "absent"),), (sys.executable, "-c", "raise SystemExit(1)")):
        monkeypatch.setattr(_pictures, "_CHILD", command)
        with Painter() as painter:
            assert painter.svg(_bars(3), CONFIG).result() == svg(_bars(3), CONFIG)


def test_one_processor_gets_no_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with Painter() as painter:
        assert painter._process is None
        assert painter.svg(_bars(3), CONFIG).result() == svg(_bars(3), CONFIG)


def test_a_chart_that_cannot_be_drawn_is_an_error_here_too() -> None:
    with Painter() as painter, pytest.raises(ValueError, match=r"."):
        painter.svg('{"mark": "no such mark"}', CONFIG).result()


@pytest.mark.parametrize("before", ["", "x"])
def test_a_label_that_is_cut_inside_an_emoji_keeps_its_chart(before: str) -> None:
    names = [before + emoji * 40 for emoji in ("\U0001f680", "\U0001f681")]
    encoding = {"y": {"field": "n", "type": "nominal", "axis": {"labelLimit": 142}}}
    chart = {"mark": "bar", "data": {"values": [{"n": name} for name in names]}, "encoding": encoding}
    with Painter() as painter:
        picture = painter.svg(json.dumps(chart), CONFIG).result()
    assert picture == svg(json.dumps(chart), CONFIG)
    # Two names that differ in such characters only stay two.
    labels = re.findall(rf">({before}U\+1F68[01])", picture)
    assert sorted(set(labels)) == [f"{before}U+1F680", f"{before}U+1F681"]


def test_an_emoji_in_a_label_that_fits_is_drawn_as_it_is() -> None:
    encoding = {"y": {"field": "n", "type": "nominal"}}
    chart = {"mark": "bar", "data": {"values": [{"n": "train \U0001f680"}]}, "encoding": encoding}
    assert ">train \U0001f680<" in svg(json.dumps(chart), CONFIG)


def test_the_process_ends_with_whoever_started_it() -> None:
    """Also if that was killed, and Ctrl-C, which reaches both, does not stop it in the middle of a line."""
    code = (
        "import sys, time; from pyanalyze.report.static_charts import Painter; p = Painter(); "
        f"p.svg({_bars(1)!r}, '{{}}').result(); print(p._process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(child, signal.SIGINT)
    time.sleep(0.1)
    assert Path(f"/proc/{child}").exists()
    parent.kill()
    parent.communicate()
    ends = time.monotonic() + 20
    while time.monotonic() < ends and _runs(child):
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
