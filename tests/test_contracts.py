"""What programs read: the JSON of every verb fits the schema that is published for it, and nothing else does."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import re
import shutil
import sqlite3
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import click
import jsonschema
import pytest

from pyanalyze.cli import VERBS as COMMANDS
from pyanalyze.cli import cli
from pyanalyze.cli.schema import VERBS as NAMED
from pyanalyze.cli.schemas import SHOWN as PARTS_OF
from pyanalyze.cli.schemas import VERBS, schema_of

if TYPE_CHECKING:
    from pathlib import Path

FORMS = ("table", "csv")
#: Kernels and switches of three tenants; switches alone: most of what can be null is.
CAPTURES = ("demo-time-slicing.sqlite", "node-switches-only.sqlite")


def run(*arguments: str | Path, status: int = 0) -> str:
    """In this process: what the process around it does has tests of its own."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert (cli.main(list(map(str, arguments)), standalone_mode=False) or 0) == status
    return out.getvalue()


def fits(body: Any, verb: str) -> bool:
    return bool(validator(verb).is_valid(body))


@functools.cache
def validator(verb: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema_of(verb))


def test_every_verb_that_writes_json_has_a_schema() -> None:
    assert tuple(VERBS) == NAMED
    # `fleet` writes its summary into the folder; the JSON of the first screen is the whole report.
    written = {name for name in COMMANDS if "|json" in run(name, "--help")}
    assert written - {"summary"} == set(VERBS) - {"fleet"}
    for verb in VERBS:
        jsonschema.Draft202012Validator.check_schema(schema_of(verb))
        assert schema_of(verb)["properties"]["schema"]["const"] == f"pyanalyze.{verb}/1"


@pytest.mark.parametrize("verb", [*PARTS_OF, "report", "info"])
def test_what_a_verb_writes_fits(fixtures: Path, verb: str) -> None:
    for name in CAPTURES:
        body = json.loads(run(verb, fixtures / name, "-f", "json"))
        validator(verb).validate(body)
        assert not fits({**body, "schema": "pyanalyze.other/1"}, verb)
        assert not fits({**body, "more": 1}, verb)
        assert not fits({key: value for key, value in body.items() if key != "schema"}, verb)
        if verb == "report":
            # Saved ones of older versions must fit as well: they did not have all keys.
            assert json.loads(run("summary", fixtures / name, "-f", "json")) == body
            continue
        for key in body:
            assert not fits({k: v for k, v in body.items() if k != key}, verb), key
        for key in body["devices"][0]:
            less = copy.deepcopy(body)
            del less["devices"][0][key]
            assert not fits(less, verb), key


@pytest.mark.parametrize("verb", ["residency", "occupancy"])
def test_arrays_of_detail_fit(fixtures: Path, verb: str) -> None:
    body = json.loads(run(verb, fixtures / CAPTURES[0], "-f", "json", "--detail"))
    validator(verb).validate(body)
    # Each shows the array that is its own.
    assert body["devices"][0][{"residency": "residency", "occupancy": "sm_warps"}[verb]]


def test_a_part_says_why_something_is_null(fixtures: Path) -> None:
    """Without CUDA tables nothing is known of occupancy: null, and the reason beside it."""
    body = json.loads(run("occupancy", fixtures / CAPTURES[1], "-f", "json"))
    (device,) = body["devices"]
    assert device["occupancy"] is None
    assert "occupancy" in {entry["what"] for entry in device["missing"]}


@pytest.mark.parametrize("name", CAPTURES)
def test_kernels_by_name_fit(fixtures: Path, name: str) -> None:
    body = json.loads(run("kernels", fixtures / name, "-f", "json"))
    validator("kernels").validate(body)
    assert not fits({**body, "more": 1}, "kernels")
    for key in body:
        assert not fits({k: v for k, v in body.items() if k != key}, "kernels"), key
    assert not fits({**body, "kernels": [{"name": "alone"}]}, "kernels")
    # Where kernels were not recorded nobody says that there were none.
    assert (body["kernels"] is None) == bool(body["missing"])


def test_gates_and_comparisons_fit(fixtures: Path) -> None:
    demo = fixtures / CAPTURES[0]
    for limits, status in (
        (("--max-memory", "9%"), 4),
        (("--max-slowdown", "9"), 0),
        (("--max-switch-overhead", "1%"), 1),
    ):
        body = json.loads(run("check", demo, *limits, "-f", "json", status=status))
        validator("check").validate(body)
        assert not fits({**body, "exit_code": 7}, "check")
    jsonschema.validate(json.loads(run("compare", demo, demo, "-f", "json")), schema_of("compare"))


def test_the_verb_prints_them() -> None:
    for verb in ("residency", "now"):
        assert json.loads(run("schema", verb)) == schema_of(verb)
    assert json.loads(run("schema", "--compare")) == schema_of("compare")
    with pytest.raises(click.UsageError, match="one of"):
        run("schema", "residency", "--tables")


#: What moves a cursor, hides or turns text around, or ends a line: never raw in anything that is shown.
NEVER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


SHOWN = pytest.mark.parametrize(
    "arguments",
    [
        ("summary",),
        *((verb, "-f", form) for verb in ("classify", "residency", "occupancy", "interference") for form in FORMS),
        ("advise",),
        *(("explain", "-f", form) for form in FORMS),
        ("info",),
        *(("kernels", "-f", form) for form in (*FORMS, "json")),
        ("check", "--max-memory", "90%", "--inconclusive", "warn"),
        *(("report", "-f", form) for form in ("html", "md", "txt", "json")),
        *(("compare", "-f", form) for form in ("table", "md", "html", "json")),
    ],
    ids=" ".join,
)


@SHOWN
def test_hostile_names_are_harmless_wherever_they_are_shown(
    fixtures: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A capture with script, quotes, marks that turn text around, ten kilobytes and broken UTF-8 as names."""
    hostile = fixtures / "hostile-names.sqlite"
    captures = [hostile, hostile] if arguments[0] == "compare" else [hostile]
    shown = run(*arguments[:1], *captures, *arguments[1:])
    assert shown.strip()
    assert NEVER.search(shown.replace("\n", "").replace("\t", "")) is None
    shown.encode("utf-8")
    if "html" in arguments:
        assert "<script>alert" not in shown
        assert "onerror=alert" not in shown.replace("&gt;", "")[: shown.index("<style>")]
    # Programs get names as they are.
    if "json" not in arguments and arguments not in (("kernels", "-f", "csv"), ("explain", "-f", "csv")):
        assert "n" * 2000 not in shown
    if arguments[0] == "check":
        junit = tmp_path / "junit.xml"
        run(*arguments[:1], hostile, *arguments[1:], "--junit", junit)
        text = junit.read_text(encoding="utf-8")
        assert NEVER.search(text.replace("\n", "")) is None
        ET.fromstring(text)


#: Sets the clipboard of a terminal; begins a line that a CI service takes for a command; moves the cursor; turns text.
COMMANDING = ("\x1b]52;c;eHg=\x07", "x\n::error::y", "\x9b2Jz", "\u202egnp.exe")


@SHOWN
def test_names_of_tenants_command_nothing_wherever_reasons_quote_them(
    fixtures: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """The slowdowns of two clients of MPS are not known: the reasons name them."""
    capture = tmp_path / "mps.sqlite"
    shutil.copy(fixtures / "mps.sqlite", capture)
    with contextlib.closing(sqlite3.connect(capture)) as db, db:
        renamed = db.execute("UPDATE PROCESSES SET name = ? WHERE name = 'client'", ("".join(COMMANDING),))
        assert renamed.rowcount == 2
    shown = run(*arguments[:1], *([capture] * (2 if arguments[0] == "compare" else 1)), *arguments[1:])
    if arguments == ("interference", "-f", "table"):
        assert all(ascii(name)[1:-1] in shown for name in COMMANDING)
    assert NEVER.search(shown.replace("\n", "").replace("\t", "")) is None
    assert not re.search("^::", shown, re.MULTILINE)


def test_the_name_of_a_capture_that_is_left_out_commands_nothing(
    fixtures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / f"{COMMANDING[0]}{COMMANDING[1]}.sqlite"
    broken.write_text("no capture")
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(["info", "--keep-going", str(fixtures / CAPTURES[0]), str(broken)], standalone_mode=False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pyanalyze: left out ")
    assert NEVER.search(line) is None
    assert line.count(r"\x1b]52;c;eHg=\x07x\n::error::y.sqlite") >= 1
