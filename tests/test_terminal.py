"""What a person at a terminal sees: suggestions, colours, help, tables that fit."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest
from command_line import run

from pyanalyze.cli import GROUPS, VERBS, cli
from pyanalyze.cli._shared import phase
from pyanalyze.cli.colour import painted
from pyanalyze.cli.examples import EXAMPLES
from pyanalyze.report.blocks import Cell, Column, Table
from pyanalyze.report.text import section_text

if TYPE_CHECKING:
    from pathlib import Path

DEMO = "demo-time-slicing.sqlite"
#: Select Graphic Rendition: colours, bold, dim.
SGR = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(*arguments: str | Path, cwd: Path, **env: str) -> str:
    """What the command writes to a terminal of its own."""
    controller, terminal = pty.openpty()
    words = [sys.executable, "-c", "from pyanalyze.cli import main; main()", *map(str, arguments)]
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "TERM")}
    environment = {**clean, "TERM": "xterm", "COLUMNS": "100", **env}
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.STDOUT, cwd=cwd, env=environment
    ) as process:
        os.close(terminal)
        said = b""
        while select.select([controller], [], [], 120)[0]:
            try:
                part = os.read(controller, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            said += part
        process.wait(timeout=120)
    os.close(controller)
    return said.decode().replace("\r\n", "\n")


def test_a_terminal_gets_the_same_letters_in_colour(fixtures: Path, tmp_path: Path) -> None:
    plain = run(fixtures / DEMO).stdout
    shown = on_a_terminal(fixtures / DEMO, "-q", cwd=tmp_path)
    assert SGR.sub("", shown) == plain
    # Three tenants, three colours, and a bar in the colour of its tenant.
    bars = re.findall(r"(\x1b\[[0-9;]*m)(app_[abc])\x1b\[0m +[0-9.]+ % (\x1b\[[0-9;]*m)█", shown)
    assert [name for _, name, _ in bars] == ["app_a", "app_b", "app_c"]
    assert all(name == bar for name, _, bar in bars)
    assert len({bar for *_, bar in bars}) == 3


@pytest.mark.parametrize(("arguments", "env"), [(("--no-color",), {}), ((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"})])
def test_colours_can_be_refused(
    fixtures: Path, tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    assert on_a_terminal(fixtures / DEMO, "-q", *arguments, cwd=tmp_path, **env) == run(fixtures / DEMO).stdout
    if arguments:
        assert on_a_terminal(*arguments, fixtures / DEMO, "-q", cwd=tmp_path) == run(fixtures / DEMO).stdout


def test_nothing_but_a_terminal_gets_colours(fixtures: Path) -> None:
    for verb in ("summary", "classify", "interference"):
        assert "\x1b" not in run(verb, fixtures / DEMO).stdout


def test_names_cannot_command_a_terminal_through_the_colours() -> None:
    # A name as hostile as it comes was made visible before; what is left of it is only letters.
    shown = painted("a\\x1b[31m.*(evil)  2.04x\n", ["a\\x1b[31m.*(evil)"])
    assert SGR.sub("", shown) == "a\\x1b[31m.*(evil)  2.04x\n"


def test_a_report_for_a_terminal_goes_to_a_file(fixtures: Path, tmp_path: Path) -> None:
    said = on_a_terminal("report", fixtures / DEMO, "-q", cwd=tmp_path)
    made = tmp_path / "demo-time-slicing-report.html"
    assert said == f"wrote {made.name}\n"
    assert made.read_text(encoding="utf-8").startswith("<!doctype html>")
    again = on_a_terminal("report", fixtures / DEMO, "-q", cwd=tmp_path)
    assert "exists; give --force" in again
    assert "<!doctype" in on_a_terminal("report", fixtures / DEMO, "-q", "-o", "-", cwd=tmp_path)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("clasify", DEMO), "classify"),
        (("Interference", DEMO), "interference"),
        (("classify", DEMO, "--expect-mode", "mpps"), "mps"),
        (("classify", DEMO, "--expct-mode", "mps"), "--expect-mode"),
        (("classify", DEMO, "-f", "jsn"), "json"),
        (("report", DEMO, "-f", "md", "--pictures", "besides"), "beside"),
        (("check", DEMO, "--slowdown", "elapse"), "elapsed"),
        (("schema", "residancy"), "residency"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_word(fixtures: Path, words: tuple[str, ...], meant: str) -> None:
    result = run(*(str(fixtures / word) if word == DEMO else word for word in words))
    assert result.returncode == 2
    assert re.search(rf"Did you mean [`']{meant}[`']\?", result.stderr), result.stderr
    assert result.stdout == "", "refused before the work"


def test_a_capture_may_have_the_name_of_a_mistyped_verb(fixtures: Path, tmp_path: Path) -> None:
    (tmp_path / "clasify").write_bytes((fixtures / DEMO).read_bytes())
    assert run("clasify", cwd=tmp_path).returncode == 0
    # And a path that is not there is a missing capture, however near its name comes to a verb.
    assert run("./classfy", cwd=tmp_path).returncode == 3
    assert run("check.sqlite", cwd=tmp_path).returncode == 3


@pytest.mark.parametrize("mode", ["Time-Slicing", "TIME-SLICING", "Time*"])
def test_modes_may_be_written_in_capitals(fixtures: Path, mode: str) -> None:
    assert run("classify", fixtures / DEMO, "--expect-mode", mode).returncode == 0
    assert run("check", fixtures / DEMO, "--expect-mode", mode).returncode == 0
    assert run("classify", fixtures / DEMO, "--expect-mode", "MIG").returncode == 1


def test_an_unknown_ending_is_refused_before_the_work(fixtures: Path, tmp_path: Path) -> None:
    for verb, ending, known in (("classify", "pdf", ".csv"), ("report", "xml", ".html"), ("classify", "html", ".txt")):
        result = run(verb, fixtures / DEMO, "-o", tmp_path / f"out.{ending}")
        assert result.returncode == 2
        assert f".{ending}" in result.stderr
        assert known in result.stderr
    assert not list(tmp_path.iterdir())
    # Who names the format decides on the name of the file.
    assert run("classify", fixtures / DEMO, "-f", "json", "-o", tmp_path / "out.dat").returncode == 0


def test_a_dash_is_standard_output(fixtures: Path, tmp_path: Path) -> None:
    for words in (("classify",), ("report", "-f", "md"), ("schema",)):
        inputs = () if words == ("schema",) else (fixtures / DEMO,)
        result = run(*words, *inputs, "-o", "-", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert result.stdout
    for words in (("export", "--to", "sqlite"), ("pack", "--key", "k")):
        result = run(*words, fixtures / DEMO, "-o", "-", cwd=tmp_path)
        assert result.returncode == 2
        assert "standard output" in result.stderr
    assert not list(tmp_path.iterdir()), "no file is named -, nor are there pictures beside it"


def test_markdown_without_pictures_says_how_to_get_them(fixtures: Path, tmp_path: Path) -> None:
    assert "Pictures are omitted" in run("report", fixtures / DEMO, "-f", "md").stdout
    out = tmp_path / "report.md"
    assert run("report", fixtures / DEMO, "-o", out).returncode == 0
    assert "Pictures are omitted" not in out.read_text(encoding="utf-8")


def test_each_verb_is_in_one_group_and_has_two_examples() -> None:
    grouped = [verb for verbs in GROUPS.values() for verb in verbs]
    assert sorted(grouped) == sorted(VERBS) == sorted(EXAMPLES)
    for verb, examples in EXAMPLES.items():
        said = run(verb, "--help").stdout
        for example in examples:
            assert f"  {example}\n" in said
            program, *words = shlex.split(example.partition(" > ")[0])
            assert program == "pyanalyze"
            # The parser takes it: its options exist, and their values are of their kind.
            context = click.Context(cli)
            name, rest = (words[0], words[1:]) if words[0] in VERBS else ("summary", words)
            assert name == verb
            command = cli.get_command(context, name)
            assert command is not None
            if not any("=" in word for word in rest):  # a name of a tenant is that of a file that exists
                command.make_context(verb, rest, parent=context)


def test_help_lists_a_verbs_own_options_first() -> None:
    said = run("check", "--help").stdout
    at = [
        said.index(word) for word in ("--max-slowdown", "\nInput:", "--samples", "\nOutput:", "--format", "\nExamples:")
    ]
    assert at == sorted(at)
    # What is shared is the same for every verb, and stands under the same head.
    for verb in ("classify", "compare", "explain", "kernels"):
        assert "\nInput:" in run(verb, "--help").stdout


def test_progress_names_what_is_done() -> None:
    assert phase("SOME_TABLE_KIND_KERNEL") == "reading kernel"
    assert phase("facts") == "collecting evidence"


NAME = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>>"
)


def table(*, name: str = NAME, columns: int = 3) -> Table:
    heads = (
        Column("Kernel"),
        *(Column(f"Figure {n}", "of something", numeric=True, minor=n == 2) for n in range(columns)),
    )
    return Table(heads, ((Cell(name, tone="code"), *(Cell("123.4 ms") for _ in range(columns))),))


def test_a_table_fits_and_shortens_names_in_the_middle() -> None:
    for width in (60, 80, 120):
        lines = section_text("Kernels", [table()], width).splitlines()
        assert max(map(len, lines)) <= width
        row = next(line for line in lines if "123.4" in line)
        assert re.match(r"void at::n.*…\S* *.*  123", row), "both ends of the name"


def test_a_table_says_which_columns_have_no_room() -> None:
    assert "Not shown for lack of room: Figure 2." in section_text("Kernels", [table(columns=5)], 70)
    assert "Not shown" not in section_text("Kernels", [table(columns=5)], 160)


def test_a_command_is_never_broken_or_shortened() -> None:
    command = "nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory --format=csv -l 1 " * 2
    rows = ((Cell("a list"), Cell(command.strip(), tone="command")),)
    assert command.strip() in section_text("Not available", [Table((Column("What"), Column("How")), rows)], 80)


def test_occupancy_is_a_table_by_kernel(fixtures: Path) -> None:
    said = run("occupancy", fixtures / DEMO).stdout
    row = next(line for line in said.splitlines() if line.startswith("A1 "))
    # Launches of A1 by hand: 113 of the scenario, 441.5 ms long as `nsys stats` counts them; 193.9 ms of these lie in
    # residency intervals of their context, from RESTORE_START to SAVE_END, by SQL.
    assert re.search(r"A1 +app_a +193\.9 ms +113 ", row)
