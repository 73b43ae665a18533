"""What a person types in a notebook: short names, short answers, completion that shows what is called."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

import pyanalyze
from pyanalyze.errors import OutputExists, UsageError

if TYPE_CHECKING:
    from pathlib import Path

DEMO = "demo-time-slicing.sqlite"


@pytest.fixture(scope="module")
def session(fixtures: Path) -> pyanalyze.Session:
    return pyanalyze.load(fixtures / DEMO)


@pytest.mark.parametrize(
    ("ending", "begins"), [("html", "<!doctype html>"), ("md", "# "), ("json", "{"), ("txt", "GPU")]
)
def test_a_session_is_saved_as_its_ending_says(
    session: pyanalyze.Session, tmp_path: Path, ending: str, begins: str
) -> None:
    path = session.save(tmp_path / f"r.{ending}")
    assert path.read_text(encoding="utf-8").startswith(begins)
    with pytest.raises(OutputExists, match="force=True"):
        session.save(path)
    assert session.save(path, force=True) == path
    with pytest.raises(UsageError, match=r"\.html, \.md, \.json or \.txt"):
        session.save(tmp_path / "r.pdf")


def test_a_session_is_exported(session: pyanalyze.Session, tmp_path: Path) -> None:
    made = session.export("parquet", tmp_path / "tables", tables=["kernels", "tenants"])
    assert pl.read_parquet(made / "kernels.parquet").height == 876
    assert session.export("perfetto", tmp_path / "run.pftrace").stat().st_size > 10_000
    with pytest.raises(OutputExists):
        session.export("perfetto", tmp_path / "run.pftrace")
    with pytest.raises(UsageError, match="Did you mean `perfetto`"):
        session.export("perfeto", tmp_path / "x")


def test_charts_are_completed_and_drawn(session: pyanalyze.Session) -> None:
    names = dir(session.charts)
    assert {"timeline", "usage", "limiters", "occupancy", "slices"} <= set(names)
    assert session.charts.timeline.to_dict() == session.chart("timeline").to_dict()
    with pytest.raises(AttributeError) as caught:
        _ = session.charts.timelin
    # Each name in the message can be given.
    assert "Did you mean `timeline`" in str(caught.value)
    listed = str(caught.value).split("there is for ")[1].split(". Did")[0].split(", ")
    assert sorted(listed) == sorted(names)


def test_many_captures_make_one_frame(fixtures: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.sqlite"
    broken.write_text("no capture")
    found = pyanalyze.classify([fixtures / DEMO, fixtures / "exclusive.sqlite", broken])
    # The truth of the generator.
    assert found["mode"].to_list() == ["time-slicing", "exclusive", None]
    assert found["error"].is_null().to_list() == [True, True, False]
    slow = pyanalyze.interference([fixtures / DEMO])
    assert slow.filter(pl.col("slowdown").is_not_null())["tenant"].unique().sort().to_list() == ["app_a", "app_b"]
    one = slow.row(by_predicate=(pl.col("tenant") == "app_b") & (pl.col("measure") == "latency"), named=True)
    (device,) = pyanalyze.load(fixtures / DEMO).report().devices
    (tenant,) = (t for t in device.tenants if t.name == "app_b")
    assert tenant.slowdown.latency is not None
    assert (one["slowdown"], one["sharing_is_the_cause"]) == (tenant.slowdown.latency.value, "yes")


def test_completion_shows_what_is_called(session: pyanalyze.Session) -> None:
    names = [name for name in dir(session) if not name.startswith("_")]
    assert len(names) <= 40
    assert {"save", "export", "charts", "classify", "interference", "kernels", "report"} <= set(names)
    assert "analysis" not in names
    for name in names:
        assert hasattr(type(session), name) or name in vars(session), name
    public = [
        "Session",
        "Verdict",
        "__version__",
        "classify",
        "compare",
        "interference",
        "kernel_summary",
        "load",
        "study",
    ]
    assert dir(pyanalyze) == public
    for name in public:
        assert getattr(pyanalyze, name) is not None


def test_help_begins_with_what_to_call_and_ends_soon() -> None:
    """The methods of a session are in `help(pyanalyze.Session)`: with them these are 3,000 lines."""
    text = pydoc.plain(pydoc.render_doc(pyanalyze))
    assert len(text.splitlines()) <= 300
    assert "session.interference()" in text.partition("PACKAGE CONTENTS")[0]
    for name in pyanalyze.__all__:
        assert f"\n    {name}(" in text or name == "__version__"
    described = pydoc.plain(pydoc.render_doc(pyanalyze.Session))
    for called in re.findall(r"session\.(\w+)\(", text.partition("PACKAGE CONTENTS")[0]):
        assert f"\n |  {called}(self" in described


def test_reprs_are_one_line(session: pyanalyze.Session) -> None:
    (verdict,), (slowed,), (held,), (advice,) = (
        session.classify(), session.interference(), session.residency_summary(), session.advise(),
    )  # fmt: skip
    compared = pyanalyze.compare(session, session)
    for result in (
        session,
        verdict,
        slowed,
        held,
        advice,
        session.report(),
        compared,
        session.charts,
        session.explain(),
    ):
        assert len(repr(result)) <= 250, repr(result)
        assert "\n" not in repr(result)
    assert repr(verdict) == "<Verdict: time-slicing, confidence 0.98 (observed)>"


def test_pandas_is_made_or_its_package_named(session: pyanalyze.Session) -> None:
    """Whichever is installed: a frame, or the name of what is missing."""
    try:
        frame = session.kernels.to_pandas()
    except ModuleNotFoundError as error:
        assert error.name in ("pandas", "pyarrow") or "pandas" in str(error) or "pyarrow" in str(error)  # noqa: PT017
    else:
        assert frame.shape[0] == session.kernels.height
    assert "pandas pyarrow" in " ".join((pyanalyze.Session.__doc__ or "").split())


def test_the_package_is_imported_lightly() -> None:
    code = (
        "import sys, pyanalyze\n"
        "print(sorted({'polars', 'altair', 'pydantic', 'click', 'rich', 'jinja2'} & set(sys.modules)), dir(pyanalyze)[:1])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("[] ")
