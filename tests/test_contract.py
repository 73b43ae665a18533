"""What the parts promise each other: tables, exceptions, verbs, docs."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from pydantic import BaseModel

import pyanalyze
from pyanalyze import errors as exceptions
from pyanalyze import results
from pyanalyze.analysis.sharing.rules import RULES
from pyanalyze.core import _core
from pyanalyze.results.report import json_schema
from pyanalyze.session import Session
from pyanalyze.tables import frames as tables
from pyanalyze.tables.frames import ON_REQUEST
from pyanalyze.tables.tableset import Frame
from pyanalyze.vocabulary import MODES, Mode

ROOT = Path(__file__).parent.parent


def test_every_declared_table_is_an_attribute_of_a_session() -> None:
    computed_apart = {"identities", "forecast", "kernel_summary", "latencies", "timeline"}
    attributes = {name for name, _ in inspect.getmembers_static(Session, lambda value: isinstance(value, Frame))}
    assert attributes == set(tables.declarations()) - computed_apart


def test_a_table_says_what_its_columns_are() -> None:
    text = Session.kernels.__doc__
    assert text is not None
    for column in tables.declarations()["kernels"]["columns"]:
        assert f"{column['name']} : {column['type']}" in text


def test_frames_have_the_declared_columns(fixtures: Path) -> None:
    session = pyanalyze.load(fixtures / "demo-time-slicing.sqlite")
    checked = 0
    for table in _core.table_declarations():
        if table["name"] in (*ON_REQUEST, "forecast", "kernel_summary", "latencies", "timeline"):
            continue
        frame = session.frame(table["name"])
        assert frame.columns == [column["name"] for column in table["columns"]]
        for column in table["columns"]:
            if column["null"] is None:
                assert frame[column["name"]].null_count() == 0, f"{table['name']}.{column['name']}"
        checked += 1
    assert checked == 43


@pytest.mark.parametrize("name", ["kernels", "kernel_attribution"])
def test_some_columns_of_a_table_leave_the_others_as_they_are(fixtures: Path, name: str) -> None:
    """Also of a computed table: of millions of rows each column that is converted costs memory."""
    set_ = pyanalyze.load(fixtures / "demo-time-slicing.sqlite").analysis.tables
    some = set_.columns(name, "end_ns", "start_ns")
    assert name not in set_._frames
    assert some.equals(set_.frame(name).select("end_ns", "start_ns"))


def test_tables_survive_the_way_through_polars(fixtures: Path) -> None:
    """Other Arrow libraries hand back views and other dictionaries: the core must take them."""
    session = pyanalyze.load(fixtures / "demo-time-slicing.sqlite")
    joined = {
        name: session.frame(name)
        for name in (
            "capture",
            "devices",
            "kernels",
            "graph_launches",
            "memops",
            "switch_events",
            "gpu_metrics",
            "processes",
            "contexts",
            "sources",
            "quality",
            "configured",
            "nvml_samples",
        )
    }
    again = _core.reconstruct(joined)
    for name in ("residency", "tenant_usage", "facts"):
        assert pl.DataFrame(again[name]).equals(session.frame(name))


def test_the_contract_and_the_rules_name_the_same_modes() -> None:
    assert [rule.mode for rule in RULES] == [mode for mode in MODES if mode != Mode.UNDETERMINED]
    assert len(MODES) == 17


def test_json_keys_mean_what_the_columns_mean() -> None:
    """A key of the contract that shares its name with a column shares its unit."""
    columns = {column["name"] for table in _core.table_declarations() for column in table["columns"]}
    shared = set()
    modules = [importlib.import_module(m.name) for m in pkgutil.iter_modules(results.__path__, "pyanalyze.results.")]
    found = [thing for module in modules for thing in vars(module).values() if inspect.isclass(thing)]
    for thing in found:
        if issubclass(thing, BaseModel):
            for name, field in thing.model_fields.items():
                if name in columns and name.endswith(("_ns", "_bytes")):
                    shared.add(name)
                    unit = "ns" if name.endswith("_ns") else "bytes"
                    assert re.search(rf"\b{unit}\b", field.description or ""), f"{thing.__name__}.{name}"
    assert {"busy_ns", "resident_ns", "attributed_ns", "memory_peak_bytes", "start_ns"} <= shared


def test_every_exception_is_one_of_ours_and_reachable() -> None:
    found = [c for c in vars(exceptions).values() if inspect.isclass(c) and issubclass(c, Exception)]
    assert len(found) == 14
    for error in found:
        assert issubclass(error, exceptions.PyanalyzeError)
        assert error.exit_code in (2, 3, 130)
    rust = (ROOT / "rust/bindings/src/errors.rs").read_text(encoding="utf-8")
    raised = set(re.findall(r'=> "(\w+)"', rust))
    assert raised <= {error.__name__ for error in found}
    assert len(raised) == 9


def test_all_is_true() -> None:
    for name in pyanalyze.__all__:
        assert getattr(pyanalyze, name) is not None


def test_every_public_function_has_an_example_that_runs() -> None:
    """Public is what a package names in `__all__`, and what these modules define; the examples run as doctests."""
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(pyanalyze.__path__, "pyanalyze.")
        if module.ispkg and not module.name.endswith((".cli", ".rules"))
    ]
    alone = [
        importlib.import_module(f"pyanalyze.{name}")
        for name in (
            "session",
            "analysis.residency",
            "export.nsys_stats",
            "export.sqlite",
            "inputs.nsys_recipes",
            "inputs.nsys_report",
            "report.rendering",
            "tables.frames",
        )
    ]
    looked_at = set()
    without = []
    for module in [pyanalyze, *modules, *alone]:
        named = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", [name for name in named if not name.startswith("_")]):
            thing = getattr(module, name)
            functions = [(name, thing)] if inspect.isfunction(thing) else []
            if inspect.isclass(thing):
                functions = [
                    (f"{name}.{key}", value)
                    for key, value in vars(thing).items()
                    if not key.startswith("_") and inspect.isfunction(value)
                ]
            for label, function in functions:
                looked_at.add(label)
                if ">>>" not in (function.__doc__ or ""):
                    without.append(f"{module.__name__}.{label}")
    assert without == []
    assert {"load", "Session.classify", "judge", "render", "timeline", "read_context"} <= looked_at
    assert len(looked_at) >= 35


def test_the_contract_says_what_its_words_mean(fixtures: Path) -> None:
    """A probability says where it was measured, a word of the descriptions is explained, and any context counts."""
    schema = json_schema()
    described = schema["$defs"]["Sharing"]["properties"]["confidence"]["description"]
    assert "on simulated recordings" in described
    page = (ROOT / "docs/json_page.py").read_text(encoding="utf-8")
    assert "Hostile text" not in json.dumps(schema) or "Hostile text is " in page
    assert "another context" not in schema["$defs"]["ResidencySummary"]["properties"]["resident_ns"]["description"]
    (device,) = pyanalyze.load(fixtures / "demo-time-slicing.sqlite").report().devices
    assert device.residency_summary is not None
    assert device.residency_summary.resident_ns == sum(tenant.resident_ns or 0 for tenant in device.tenants)


def test_generated_docs_are_current() -> None:
    result = subprocess.run([sys.executable, str(ROOT / "docs/generate.py"), "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_physical_names_stand_in_one_file() -> None:
    """Names of nsys tables belong to the layout; tests, fixtures and SQL for experts may repeat them."""
    sources = [*ROOT.glob("rust/**/src/**/*.rs"), *ROOT.glob("pyanalyze/**/*.py")]
    assert len(sources) > 50
    allowed = {"layout.rs", "tests.rs", "nsys_report.py"}
    guilty = []
    for path in sources:
        code = path.read_text(encoding="utf-8").split("#[cfg(test)]")[0]
        code = "\n".join(line for line in code.splitlines() if not line.strip().startswith(("//", "#")))
        if re.search(r'"[^"\n]*CUPTI_ACTIVITY_KIND_(KERNEL|MEMCPY)[^"\n]*"', code) and path.name not in allowed:
            guilty.append(path.name)
    assert guilty == []


def test_progress_is_told_and_can_stop(fixtures: Path) -> None:
    stages: list[str] = []
    pyanalyze.load(fixtures / "demo-time-slicing.sqlite", progress=lambda stage, *_: stages.append(stage))
    assert stages

    def stop(*_: object) -> None:
        raise TimeoutError("enough")

    with pytest.raises(TimeoutError, match="enough"):
        pyanalyze.load(fixtures / "demo-time-slicing.sqlite", progress=stop)
