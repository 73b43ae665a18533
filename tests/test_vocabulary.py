"""Modes and their traits: complete, as documented, and the only place that knows what the name of a mode means."""

from __future__ import annotations

import ast
import json
import pickle
import re
from pathlib import Path

import polars as pl
import pydantic
import pytest

import pyanalyze.analysis.sharing
from pyanalyze.nsys_tool import recording
from pyanalyze.report.sentences.time_split import part_words
from pyanalyze.results.time_split import Limit
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import MODES, TRAITS, Condition, Mode, condition_text

ROOT = Path(__file__).parent.parent
#: May name modes as strings: where they are defined, and where each has its rule.
EXEMPT = ("/vocabulary.py", "/sharing/rules/")
#: Shorter pieces of names ("m", "-") are pieces of anything.
SHORTEST_PIECE = 3


def having(trait: str, *, value: bool | None = True) -> set[str]:
    return {mode.value for mode in Mode if getattr(TRAITS[mode], trait) is value}


# -- the table --------------------------------------------------------------------------------------------------------


def test_every_mode_has_traits_and_they_are_documented() -> None:
    assert set(TRAITS) == set(Mode) == set(MODES)
    for mode, traits in TRAITS.items():
        # Of an undetermined mode nothing can be documented; every other one names its sources and what stays shared.
        assert bool(traits.promises.sources) is (mode != Mode.UNDETERMINED), mode
        assert bool(traits.promises.not_isolated) is (mode != Mode.UNDETERMINED), mode


def test_traits_are_what_the_hardware_does() -> None:
    """By NVIDIA's documents (MPS, MIG, vGPU) and the literature on time-slicing, written down here once more."""
    assert having("one_process") == {"exclusive", "streams", "green-contexts", "mig", "mig-shared-ci"}
    assert having("time_sliced") == {"time-slicing", "mps+time-slicing", "mig+time-slicing", "vgpu-time-sliced"}
    assert having("time_sliced", value=None) == {"software-limited", "undetermined"}
    mps = {"mps-pre-volta", "mps", "mps-partitioned", "mps-static-partition", "mps+time-slicing", "mig+mps"}
    assert having("mps") == mps
    assert having("same_sms") == {"mps-pre-volta", "mps", "mps+time-slicing", "mig+mps"}
    # A percentage is a cap and no reservation: two capped clients may have SMs in common, or none.
    assert having("same_sms", value=None) == {"mps-partitioned", "software-limited", "undetermined"}
    assert having("capped") == {"mps-partitioned", "mps-static-partition", "green-contexts"}
    assert having("capped", value=None) == {"mig+mps", "undetermined"}
    assert having("partitioned") == {"mps-static-partition"}
    assert having("mig_instance") == {"mig", "mig-shared-ci", "mig+time-slicing", "mig+mps"}
    assert having("vgpu") == {"vgpu-time-sliced", "vgpu-mig"}
    assert having("shares_outside") == {"mig-shared-ci", "vgpu-time-sliced"}
    assert having("solo") == {"exclusive", "streams", "green-contexts", "mig"}


@pytest.mark.parametrize("mode", list(Mode))
def test_traits_of_a_mode_do_not_contradict_each_other(mode: Mode) -> None:
    traits = TRAITS[mode]
    # One process has no other client or tenant to alternate with.
    assert not traits.one_process or not (traits.mps or traits.time_sliced or traits.same_sms)
    # One context at a time on the engine: no two tenants on the same SMs, unless they are clients of one MPS server.
    assert not (traits.time_sliced and traits.same_sms and not traits.mps)
    # SMs that no other tenant has are fewer than all, and not the same ones.
    assert not traits.partitioned or (traits.capped and traits.same_sms is False and traits.promises.own_sms)
    assert not (traits.vgpu and traits.mig_instance)
    # Whoever is on the same SMs shares memory bandwidth.
    assert not traits.same_sms or traits.promises.bandwidth_qos is False


# -- modes are strings to whoever prints, stores or compares them --------------------------------------------------------


def test_a_mode_is_the_string_that_it_was() -> None:
    assert pyanalyze.analysis.sharing.Mode is Mode
    assert pyanalyze.analysis.sharing.MODES is MODES
    assert (str(Mode.MIG_MPS), f"{Mode.MIG_MPS}", repr(Mode.MIG_MPS)) == ("mig+mps", "mig+mps", "'mig+mps'")
    text: str = "mig+mps"
    assert text == Mode.MIG_MPS
    assert {"mig+mps": 1}[Mode.MIG_MPS] == 1
    assert json.dumps({Mode.MPS: Mode.MIG}) == '{"mps": "mig"}'
    assert pickle.loads(pickle.dumps(Mode.MIG)) is Mode.MIG
    assert pl.DataFrame([{"mode": Mode.MPS}], schema={"mode": pl.String}).rows() == [("mps",)]


def test_the_json_schema_lists_modes_in_place_and_takes_their_strings() -> None:
    class Said(pydantic.BaseModel):
        mode: Mode

    assert Said.model_json_schema()["properties"]["mode"]["enum"] == [mode.value for mode in Mode]
    assert "$defs" not in Said.model_json_schema()
    assert Said.model_validate_json('{"mode": "mps"}').mode is Mode.MPS
    # Tests and tools set the plain string: it is written without a warning.
    assert Said(mode=Mode.MPS).model_copy(update={"mode": "mig"}).model_dump_json() == '{"mode":"mig"}'
    with pytest.raises(pydantic.ValidationError):
        Said.model_validate_json('{"mode": "mpx"}')


# -- no other module knows what a name means ---------------------------------------------------------------------------


def is_mode(node: ast.expr) -> bool:
    """A mode's name as a string, or a member other than `undetermined`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Mode":
        return node.attr in Mode.__members__ and node.attr != Mode.UNDETERMINED.name
    return isinstance(node, ast.Constant) and node.value in MODES


def is_piece(node: ast.expr) -> bool:
    """The begin of a mode's name, or of a word in it: "text" is no piece of "green-contexts"."""
    text = node.value.lstrip("-+") if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return len(text) >= SHORTEST_PIECE and any(re.search(rf"\b{re.escape(text)}", mode) for mode in MODES)


def parts(node: ast.expr) -> list[ast.expr]:
    """The elements of a literal collection, or the expression itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset", "tuple"):
        return [part for argument in node.args for part in parts(argument)]
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]


def decisions_by_name(source: str) -> list[int]:
    """Lines that decide by the name of a mode or by a piece of one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                sides = [part for side in (left, *comparators) for part in parts(side)]
                contains = any(isinstance(op, ast.In | ast.NotIn) for op in ops) and is_piece(left)
                bad = contains or any(is_mode(part) for part in sides)
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=[affix, *_]):
                bad = any(is_piece(part) for part in parts(affix))
            case ast.MatchValue(value=value):
                bad = is_mode(value)
            # A set of modes is a trait without a name.
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                members = parts(value)
                bad = len(members) > 1 and all(is_mode(member) for member in members)
            case _:
                bad = False
        if bad and isinstance(node, ast.stmt | ast.expr | ast.pattern):
            found.append(node.lineno)
    return sorted(set(found))


@pytest.mark.parametrize(
    "line",
    [
        'verdict.mode == "undetermined"',
        'verdict.mode != "mig"',
        'verdict.mode in ("mps", "mps-pre-volta")',
        'mode not in {"exclusive"}',
        'mode in frozenset({"exclusive", "streams"})',
        "verdict.mode == Mode.MIG",
        "mode in (Mode.MPS, Mode.MIG_MPS)",
        '"time-slic" in verdict.mode',
        '"mps" not in mode',
        'mode.startswith("mig+")',
        'mode.startswith(("mps", "time-slicing"))',
        'mode.endswith("+mps")',
        '"partitioned" in mode',
        'ALONE = ("exclusive", "streams", "mig")',
        '_ONE: tuple[Mode, ...] = ("exclusive", "streams")',
        'match mode:\n    case "mps":\n        pass',
    ],
)
def test_the_search_finds_every_kind_of_test(line: str) -> None:
    assert decisions_by_name(line)


@pytest.mark.parametrize(
    "line",
    [
        "verdict.mode == Mode.UNDETERMINED",
        "TRAITS[verdict.mode].time_sliced",
        "mode: Mode = Mode.MPS if shared else Mode.EXCLUSIVE",
        'Topic = Literal["streams", "mps", "mig", "time-slicing", "limits"]',
        'row["key"] == "mps_client"',
        'name.startswith("nvidia-cuda-mps")',
        '"-" in mode',
        '"text" in classes',
    ],
)
def test_the_search_leaves_alone_what_decides_nothing_by_name(line: str) -> None:
    assert not decisions_by_name(line)


def test_no_module_decides_by_the_name_of_a_mode() -> None:
    looked_at, found = 0, []
    for path in sorted((ROOT / "pyanalyze").rglob("*.py")):
        if any(part in path.as_posix() for part in EXEMPT):
            continue
        looked_at += 1
        source = path.read_text(encoding="utf-8")
        found += [f"{path.relative_to(ROOT)}:{line}" for line in decisions_by_name(source)]
    assert looked_at > 100
    assert found == [], "ask pyanalyze.vocabulary.TRAITS"


def test_the_vocabulary_is_the_bottom_layer() -> None:
    tree = ast.parse((ROOT / "pyanalyze" / "vocabulary.py").read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert "dataclasses" in imported
    assert {name for name in imported if name.partition(".")[0] == "pyanalyze"} <= {
        "pyanalyze.errors",
    }


def test_one_function_says_how_to_record() -> None:
    """Commands that differ would leave a reader to guess which to run; a solo run needs no switch records."""
    builders = {"nsys_tool.py", "launch.py", "build.py"}
    package = ROOT / "pyanalyze"
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in package.rglob("*.py")
        if path.name not in builders
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"nsys profile -|profile -t cuda", line)
    ]
    assert wrong == []
    assert recording() == "nsys profile -t cuda,nvtx --gpuctxsw=true -o NAME PROGRAM"


def test_the_page_has_the_words_of_each_condition() -> None:
    page = (ROOT / "docs" / "questions" / "shared.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|`]+) \| `(unless-[a-z-]+)` \|", page, re.MULTILINE)
    said = {name: condition_text(Condition(name), None) for _, name in rows}
    assert set(said) == {condition.value for condition in Condition}
    for text, name in rows:
        assert said[name] == text
        # It may also be read as "from then on".
        assert "now and then" not in said[name]


def test_the_page_has_the_words_that_reports_have_for_parts_of_time() -> None:
    page = (ROOT / "docs" / "questions" / "limits-of-one.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", page, re.MULTILINE)
    assert rows == [(limit.value, capital(part_words(limit, []))) for limit in Limit]
