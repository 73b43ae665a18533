"""Golden files: a refactoring changes no output.

Each case is one set of inputs (captures of fixtures/captures, samples of fixtures/samples, or files derived from them by
the statements below). Its outputs lie in tests/golden/CASE:

    terminal.txt   commands and what they print (standard output, then standard error and the exit code)
    report.json    `report -f json`; numbers are equal to 1e-12 of their value
    report.md      `report -f md`
    page.txt       text of the HTML report, its tooltips and labels included
    charts.txt     each chart of the HTML report: its rows (sorted, hashed), the words in it, the rest of its specification
    frames.txt     each declared table: number of rows, hash of the sorted rows, and of each column by itself
    exports.txt    each exported file: its size in lines or bytes, and its hash

Golden files show that a refactoring changes no output; they prove nothing true. What is right is proven elsewhere, from
hand calculation, the generator's truth and NVIDIA's tools. A change of a golden file stands alone in its commit, with
its reason. To rewrite those of some cases, or of all:

    python tests/test_golden.py --update [CASE...]

Outputs do not depend on machine, folder, time, terminal, hash seed or number of threads: all commands run in one process
in a temporary folder that holds the inputs, versions are replaced by the word VERSION, and the one line about memory is
left out. In hashes, numbers count with 12 significant digits, and dictionary columns as text.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import math
import re
import shlex
import shutil
import sqlite3
import sys
import tempfile
import time
import unicodedata
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from command_line import run
from six_captures import inputs

import pyanalyze

# All of pyanalyze that is not public and is needed here; where it lives may change.
from pyanalyze.core._core import table_declarations
from pyanalyze.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
INPUTS = (ROOT / "fixtures" / "captures", ROOT / "fixtures" / "samples", GOLDEN / "inputs")

#: Commands whose output is shown for a capture; `summary` is run without its name.
COMMANDS = ("", "info", "kernels", "classify", "residency", "occupancy", "interference", "advise")
#: Those that take --baseline and --work.
COMPARING = ("", "interference", "report")
#: Every event table, those too that no analysis needs.
EVENT_TABLES = (
    "allocations", "api_calls", "gpu_metrics", "graph_launches", "kernels", "memops", "nvtx", "profiler_overhead",
    "switch_events", "thread_runs",
)  # fmt: skip
#: Declared tables that are not compared: it is about to be deleted.
EXPORTS = ("perfetto", "nsys-stats")


@dataclass(frozen=True)
class Case:
    """Inputs, as on the command line, and which of their outputs are compared."""

    inputs: str = ""
    commands: Sequence[str] = COMMANDS
    #: Whole command lines besides.
    lines: Sequence[str] = ()
    #: Files with the command lines that print them.
    files: dict[str, str] = field(default_factory=dict)
    report: Sequence[str] = ("json", "md")
    frames: bool = True
    exports: Sequence[str] = ()


PAGE = ("json", "md", "html")
DEMO = "time-slicing.sqlite"
#: What a change of options changes at all.
SHORT = ("", "classify", "interference")
#: The answer, and what it is made of.
SHOWN_FIRST = ("", "classify", "interference", "advise")

CASES = {
    # Every committed capture.
    "time-slicing": Case(DEMO, report=PAGE, exports=(*EXPORTS, "tables", "formats")),
    "time-slicing-samples": Case(f"{DEMO} --samples compute-apps.demo.csv --samples query-gpu.demo.csv", report=PAGE),
    "containers-same-pid": Case("containers-same-pid", report=PAGE, exports=EXPORTS),
    "exclusive": Case("exclusive.sqlite", report=PAGE, exports=EXPORTS),
    "hostile-names": Case("hostile-names.sqlite", report=PAGE, exports=(*EXPORTS, "tables", "formats")),
    "lost-records": Case("lost-records.sqlite", report=PAGE),
    "mig": Case("mig.sqlite", report=PAGE, exports=EXPORTS),
    "mps": Case("mps.sqlite", report=PAGE, exports=EXPORTS),
    "node-switches-only": Case("node-switches-only.sqlite", report=PAGE, exports=("perfetto",)),
    "streams": Case("streams.sqlite", report=PAGE),
    # The rest of the six captures whose first screens are looked at (six_captures.py).
    "mps-with-caps": Case("mps-capped.sqlite", commands=SHOWN_FIRST, report=(), frames=False),
    "mig-with-mps": Case("mig-mps.sqlite", commands=SHOWN_FIRST, report=(), frames=False),
    "undetermined": Case("undetermined.sqlite", commands=SHOWN_FIRST, report=(), frames=False),
    # Captures that lack something, or are several.
    "no-switches": Case("no-switches.sqlite", report=PAGE),
    "one-process-no-switches": Case("one-process-no-switches.sqlite", commands=SHORT, report=("json",)),
    "two-gpus": Case("mps.sqlite mig.sqlite", report=PAGE),
    "one-gpu": Case("mps.sqlite mig.sqlite --gpu 1", commands=("", "classify"), report=("json",)),
    # Samples without a capture.
    "samples-nvidia-smi": Case("--samples query-gpu.csv --samples compute-apps.csv --samples pmon.txt", report=PAGE),
    "samples-dcgm": Case("--samples dcgm-exporter.prom --samples recording.jsonl", commands=("", "info", "classify")),
    "samples-all-formats": Case(
        " ".join(f"--samples {file.name}" for file in sorted((ROOT / "fixtures" / "samples").iterdir())),
        commands=("info",),
        report=(),
    ),
    # Configuration beside a capture: agreeing, contradicting, of MPS, of MIG, of Kubernetes.
    "context-agrees": Case(
        f"{DEMO} --context gpu-list.txt --context device-plugin-time-slicing.yaml",
        commands=("", "info", "classify", "advise"),
    ),
    "context-contradicts": Case(f"{DEMO} --context device-plugin-mps.yaml", commands=("", "classify", "advise")),
    "context-mps": Case("mps.sqlite --context mps-control.txt", commands=("", "info", "classify", "occupancy")),
    "context-mig": Case("mig.sqlite --context mig-list.txt", commands=("", "info", "classify"), report=("json",)),
    "context-kubernetes": Case(
        "containers-same-pid --context node.json --context pods.json",
        commands=("", "info", "classify", "residency", "advise"),
    ),
    # Slowdowns against solo runs and by units of work.
    "baseline": Case(
        f"{DEMO} --baseline app_a=solo-a.sqlite --baseline solo-b.sqlite", commands=COMPARING[:2], report=PAGE
    ),
    "baseline-saved": Case(f"{DEMO} --baseline app_a=solo-a.json", commands=COMPARING[:2], report=("json",)),
    "baseline-is-the-capture": Case(
        "exclusive.sqlite --baseline exclusive.sqlite", commands=COMPARING[:2], report=("json",)
    ),
    "work": Case(f"{DEMO} --work requests.csv --baseline app_a=solo-a.sqlite", commands=COMPARING[:2]),
    # Parts and views of a capture.
    "window": Case(f"{DEMO} --start 240ms --end 300ms", report=PAGE),
    "window-around": Case(f"{DEMO} --around 700ms/10ms --detail", commands=SHORT, report=("json",)),
    "redacted": Case(
        "containers-same-pid --context node.json --context pods.json --redact",
        commands=("", "info", "kernels", "classify", "advise"),
        report=PAGE,
    ),
    "named-tenants": Case(
        f"{DEMO} --tenant service=41201 --tenant batch=41377", commands=("", "residency", "interference")
    ),
    # Options together: each is applied to what the others made.
    "window-of-pods": Case(
        "containers-same-pid --context node.json --context pods.json --tenant service=1289451 --start 250ms --end 450ms",
        commands=("", "residency"),
        report=("json",),
    ),
    "redacted-window-with-baselines": Case(
        f"{DEMO} --samples query-gpu.demo.csv --samples compute-apps.demo.csv --tenant other=41377 --work requests.csv"
        " --baseline app_a=solo-a.json --baseline app_b=solo-b.sqlite --start 230ms --end 700ms --redact",
        commands=COMPARING[:2],
    ),
    "pack": Case("time-slicing.pack", commands=("", "info", "kernels", "classify"), report=("json",)),
    # No capture of their own.
    "compare": Case(
        lines=(
            f"compare exclusive.sqlite {DEMO}",
            "compare solo-a.sqlite time-slicing.sqlite",
            "compare time-slicing.sqlite no-switches.sqlite",
            "compare solo-a.json time-slicing.sqlite --noise-floor 10%",
            "compare time-slicing.sqlite node-switches-only.sqlite --inconclusive warn",
            "compare solo-a.sqlite time-slicing.sqlite --redact -f md",
        ),
        files={"comparison.json": "compare solo-a.sqlite time-slicing.sqlite -f json"},
    ),
    "check": Case(
        lines=(
            f"check {DEMO} --expect-mode time-slicing --max-switch-overhead 5% --min-jain 0.5 --no-data-loss",
            f"check {DEMO} --expect-mode mps* --max-slowdown 1.5 --max-memory 50% --min-sm-active 90%",
            f"check {DEMO} --samples query-gpu.demo.csv --max-memory 50% --inconclusive warn",
            f"check {DEMO} --context device-plugin-mps.yaml --expect-agreement",
            f"check {DEMO} --against solo-a.sqlite --max-change 10%",
            f"check {DEMO} --baseline app_a=solo-a.sqlite --max-slowdown 1.5 --slowdown resident",
            "check node-switches-only.sqlite --max-slowdown 1.5 --expect-mode time-slicing",
            "check lost-records.sqlite --no-data-loss",
            "check solo-a.json --expect-mode exclusive --max-slowdown 2",
            "classify mps.sqlite --expect-mode time-slicing -q",
        ),
        files={"check.json": f"check {DEMO} --expect-mode time-slicing --max-slowdown 1.5 -f json"},
    ),
    "errors": Case(
        lines=(
            "",
            "missing.sqlite",
            "classfy mps.sqlite",
            "info query-gpu.csv",
            "info cut.sqlite",
            "info",
            "classify mps.sqlite --gpu 7",
            "classify mps.sqlite --start 9s",
            "classify mps.sqlite -o classify.pdf",
            "classify mps.sqlite -f xml",
            "classify mps.sqlite --tenant nobody=4711",
            "interference mps.sqlite --baseline missing.sqlite",
            "interference mps.sqlite --work gpu-list.txt",
            "info mps.sqlite --samples requests.csv --context requests.csv",
            "report mps.sqlite -o solo-a.json",
            "export mps.sqlite --to csv -o tables --tables kernel",
            "compare mps.sqlite",
            "check mps.sqlite",
            "residency time-slicing.sqlite solo-a.sqlite --keep-going cut.sqlite",
        ),
    ),
    "help": Case(
        lines=(
            "--help",
            *(
                f"{command} --help"
                for command in (
                    "info", "kernels", "classify", "residency", "occupancy", "interference", "advise", "compare", "check",
                    "report", "fleet", "study", "now", "record", "doctor", "export", "pack", "schema", "completion",
                )
            ),
        ),
        files={"report.schema.json": "schema"},
    ),
}  # fmt: skip


# --- the inputs ---


@contextmanager
def workplace() -> Iterator[None]:
    """Make a temporary folder with all inputs the working directory, in a known environment."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        for source in INPUTS:
            shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.truth.json"))
        for kind in ("compute-apps", "query-gpu"):
            (folder / f"demo-time-slicing.{kind}.csv").rename(folder / f"{kind}.demo.csv")
        (folder / "demo-time-slicing.sqlite").rename(folder / DEMO)
        patch.chdir(folder)
        for variable in ("FORCE_COLOR", "GITHUB_ACTIONS", "PYANALYZE_MEMORY", "PYANALYZE_NSYS", "PYANALYZE_SPILL_DIR"):
            patch.delenv(variable, raising=False)
        for variable, value in (
            ("NO_COLOR", "1"),
            ("COLUMNS", "100"),
            ("LINES", "50"),
            ("TERM", "dumb"),
            ("TZ", "UTC"),
        ):
            patch.setenv(variable, value)
        time.tzset()
        _derive_inputs()
        yield
    time.tzset()


#: Tables of an export that name the process of each row, and how.
_OF_A_PROCESS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "globalPid",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "globalPid",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "globalTid",
    "GPU_CONTEXT_SWITCH_EVENTS": "globalPid",
    "NVTX_EVENTS": "globalTid",
    "PROCESSES": "globalPid",
}


def _derive_inputs() -> None:
    # app_a is the only process up to 205 ms, app_b from 240 to 310 ms (fixtures/README.md).
    _derived("solo-a.sqlite", DEMO, _only_process(41201, 0, 205_000_000))
    _derived("solo-b.sqlite", DEMO, _only_process(41305, 240_000_000, 310_000_000))
    _derived("no-switches.sqlite", DEMO, ["DROP TABLE GPU_CONTEXT_SWITCH_EVENTS"])
    _derived("one-process-no-switches.sqlite", "exclusive.sqlite", ["DROP TABLE GPU_CONTEXT_SWITCH_EVENTS"])
    for name in ("MPS with caps", "MIG with MPS", "undetermined"):
        (capture,) = map(Path, inputs(name, Path()))
        if capture.parent != Path():  # else it was made here
            shutil.copy(capture, capture.name)
    Path("cut.sqlite").write_bytes(Path(DEMO).read_bytes()[:20_000])
    for line in (
        "report solo-a.sqlite -f json -o solo-a.json",
        f"pack {DEMO} -o time-slicing.pack --key pack.key --samples query-gpu.demo.csv --also api_calls",
    ):
        _, errors, code = _run(line)
        assert code == 0, errors


def _only_process(pid: int, start_ns: int, end_ns: int) -> list[str]:
    # Bits 24 to 47 of a global id are the pid.
    kept = {table: f"({column} >> 24) & 0xFFFFFF = {pid}" for table, column in _OF_A_PROCESS.items()}
    for table in kept:
        if table != "PROCESSES":
            first, last = ("timestamp", "timestamp") if table.startswith("GPU_CONTEXT") else ("start", "end")
            kept[table] += f" AND {first} >= {start_ns} AND {last} <= {end_ns}"
    return [f"DELETE FROM {table} WHERE NOT ({condition})" for table, condition in kept.items()]


def _derived(name: str, capture: str, statements: Sequence[str]) -> None:
    shutil.copy(capture, name)
    with closing(sqlite3.connect(name)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


# --- the outputs ---


def _run(line: str) -> tuple[str, str, int]:
    """Run a command line in this process; what it printed on both streams, and its exit code."""
    done = run(*shlex.split(line))
    return done.stdout, done.stderr, done.returncode


def outputs(name: str) -> dict[str, str]:
    """All outputs of a case by the name of their golden file."""
    case = CASES[name]
    found = {}
    lines = [*(_line(command, case.inputs) for command in case.commands if case.inputs), *case.lines]
    if lines:
        found["terminal.txt"] = _shown("\n".join(map(_transcript, lines)))
    documents = {f"report.{kind}": f"{_line('report', case.inputs)} -f {kind}" for kind in case.report if case.inputs}
    for file, line in (documents | case.files).items():
        text, errors, code = _run(line)
        assert code in (0, 1, 4), f"{line}: {errors}"
        if file.endswith(".html"):
            page = _Page(text)
            found["page.txt"] = _shown(page.text())
            found["charts.txt"] = _shown("\n".join(_chart(key, spec) for key, spec in page.charts))
        elif file.endswith(".json"):
            found[file] = json.dumps(_folded(json.loads(_without_versions(text))), indent=1) + "\n"
        else:
            found[file] = _shown(text)
    if case.inputs and case.frames:
        found["frames.txt"] = _shown(_frames(case.inputs))
    if case.exports:
        found["exports.txt"] = "".join(sorted(line for kind in case.exports for line in _EXPORTED[kind](case.inputs)))
    return found


def _line(command: str, inputs: str) -> str:
    return f"{command} {inputs}".strip()


def _transcript(line: str) -> str:
    text, errors, code = _run(line)
    text = re.sub(r"(?m)^memory: .*$", "memory: (differs from run to run)", text)
    end = f"[exit {code}]\n" if code else ""
    return f"$ {' '.join(['pyanalyze', line]).strip()}\n{_ended(text)}{_ended(errors)}{end}"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _without_versions(text: str) -> str:
    text = re.sub(r"\b(pyanalyze|polars|altair|vl-convert-python) \d+\.\d[\w.+-]*\w", r"\1 VERSION", text)
    return text.replace(json.dumps(pyanalyze.__version__), '"VERSION"')


def _shown(text: str) -> str:
    """Text without versions, and with characters that an editor or a terminal would not show as what they are."""
    text = _without_versions(text)
    return "".join(
        f"⟦U+{ord(char):04X}⟧"
        if (unicodedata.category(char)[0] == "C" and char != "\n") or char in "\u2028\u2029"
        else char
        for char in _ended(text)
    )


def _frames(inputs: str) -> str:
    session = _session(inputs)
    lines = []
    for table in table_declarations():
        name = table["name"]
        try:
            frame = session.frame(name)
        except UsageError:
            lines.append(f"{name}@{table['version']}: not in this session\n")
            continue
        columns = [_texts(column) for column in frame]
        lines.append(f"{name}@{table['version']}: {frame.height} rows {_rows_digest(columns)}\n")
        for column, texts in zip(frame, columns, strict=True):
            lines.append(f"    {column.name} {column.dtype}: {_digest(sorted(texts))}\n")
    return "".join(lines)


def _session(inputs: str) -> pyanalyze.Session:
    """The session that these inputs make on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("captures", nargs="*")
    for option in ("samples", "context", "baseline", "tenant"):
        parser.add_argument(f"--{option}", action="append", default=[])
    for option in ("work", "start", "end", "around"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--gpu", type=int)
    for option in ("redact", "detail"):
        parser.add_argument(f"--{option}", action="store_true")
    given = parser.parse_args(inputs.split())
    session = pyanalyze.load(
        given.captures,
        samples=given.samples,
        context=given.context,
        baselines=given.baseline,
        work=given.work,
        tenants={name: int(pid) for name, pid in (tenant.split("=") for tenant in given.tenant)},
        tables=EVENT_TABLES,
    )
    if given.gpu is not None:
        session = session.only_gpu(given.gpu)
    if given.around is not None:
        middle, length = (int(part.removesuffix("ms")) * 1_000_000 for part in given.around.split("/"))
        session = session.window(middle - length // 2, middle + length // 2)
    elif given.start is not None or given.end is not None:
        session = session.window(given.start, given.end)
    return session.redacted() if given.redact else session


def _rows_digest(columns: Sequence[Sequence[str]]) -> str:
    return _digest(sorted("\t".join(row) for row in zip(*columns, strict=True)))


def _texts(column: pl.Series) -> list[str]:
    if column.dtype.is_integer():
        return column.cast(pl.String).fill_null("null").to_list()
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        column = column.cast(pl.String)
    values = column.to_list()
    if column.dtype.is_nested():
        return [json.dumps(_rounded(value)) for value in values]
    # Most values are in many rows.
    texts = {value: json.dumps(_rounded(value)) for value in set(values)}
    return [texts[value] for value in values]


def _rounded(value: Any) -> Any:
    """A value whose numbers have 12 significant digits, at any depth."""
    if isinstance(value, float):
        # A zero has no sign here.
        return float(f"{value:.11e}") + 0.0
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value


def _folded(value: Any) -> Any:
    """JSON with a digest in place of each array that no reviewer would read."""
    if isinstance(value, dict):
        return {key: _folded(one) for key, one in value.items()}
    if isinstance(value, list):
        text = json.dumps(_rounded(value))
        # Brackets, numbers and null alone.
        if len(text) > 20_000 and not re.search('["{]', text):
            return f"{len(value)} items {_digest([text])}"
        return [_folded(one) for one in value]
    return value


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _digest_of_text(text: str) -> str:
    fractions = r"-?\d+\.\d+(?:[eE][+-]?\d+)?"
    return _digest([re.sub(fractions, lambda found: repr(_rounded(float(found[0]))), text)])


def _export_perfetto(inputs: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        file = Path(folder) / "trace"
        _, errors, code = _run(f"export {inputs} --to perfetto -o {file}")
        assert code == 0, errors
        content = file.read_bytes()
        yield f"perfetto: {len(content)} bytes {hashlib.sha256(content).hexdigest()[:16]}\n"


def _export_folder(kind: str, inputs: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        _, errors, code = _run(f"export {inputs} --to {kind} -o {folder}")
        assert code == 0, errors
        for file in Path(folder).iterdir():
            text = file.read_text(encoding="utf-8")
            yield f"{kind}/{file.name}: {text.count(chr(10))} lines {_digest_of_text(text)}\n"


def _formats(inputs: str) -> Iterator[str]:
    """What commands print for other programs."""
    for command in COMMANDS[1:]:
        for kind in ("csv", "json"):
            if (command, kind) in (("info", "json"), ("advise", "csv")):
                continue  # The former holds the memory that was used; the latter does not exist.
            text, errors, code = _run(f"{command} {inputs} -f {kind}")
            assert code == 0, errors
            yield f"{command} -f {kind}: {text.count(chr(10))} lines {_digest_of_text(_without_versions(text))}\n"


_EXPORTED: dict[str, Callable[[str], Iterator[str]]] = {
    "perfetto": _export_perfetto,
    "nsys-stats": lambda inputs: _export_folder("nsys-stats", inputs),
    "tables": lambda inputs: _export_folder("csv", inputs),
    "formats": _formats,
}


class _Page(HTMLParser):
    """Text of an HTML report, one line for each block or row, and the specifications of its charts."""

    _INLINE = frozenset({"a", "b", "br", "code", "em", "small", "span", "strong", "td", "th", "wbr"})
    _HIDDEN = frozenset({"script", "style", "svg"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.charts: list[tuple[str, Any]] = []
        self._lines: list[str] = [""]
        self._hidden: list[str] = []
        self._spec: str | None = None
        self.feed(html)
        self.close()

    def text(self) -> str:
        lines = (re.sub(r"[ \n]+", " ", line).strip() for line in self._lines)
        return "\n".join(line for line in lines if line)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in self._HIDDEN:
            self._hidden.append(tag)
            self._spec = given.get("id") if given.get("type") == "application/json" else None
        if self._hidden:
            return
        if tag not in self._INLINE:
            self._lines.append("#" * int(tag[1]) + " " if re.fullmatch("h[1-6]", tag) else "")
        elif tag in {"td", "th"}:
            self._lines[-1] += " | "
        for name in ("title", "aria-label", "href"):
            if given.get(name):
                self._lines[-1] += f" [{name}: {given[name]}] "

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[-1]:
            self._hidden.pop()
        elif not self._hidden and tag not in self._INLINE:
            self._lines.append("")

    def handle_data(self, data: str) -> None:
        if self._spec is not None and self._hidden:
            self.charts.append((self._spec, json.loads(data)))
            self._spec = None
        elif not self._hidden:
            self._lines[-1] += data


def _chart(key: str, spec: dict[str, Any]) -> str:
    """A chart in lines: the words in it, a digest of its specification without data, and one of each set of rows."""
    sets: list[tuple[str, list[Any]]] = []
    words: list[str] = []
    kept = _without_rows({name: value for name, value in spec.items() if name != "$schema"}, sets, words)
    # altair numbers what has no name, over all charts that a process makes.
    numbers: dict[str, str] = {}
    text = re.sub(
        r'"(view|param|selector|concat|layer)_(\d+)',
        lambda found: f'"{found[1]}_' + numbers.setdefault(found[0], f"#{len(numbers)}"),
        json.dumps(_rounded(kept), sort_keys=True),
    )
    lines = [f"{key}: {_digest([text])}", *(f"    text: {word}" for word in dict.fromkeys(words))]
    for name, rows in sets:
        columns = sorted({column for row in rows if isinstance(row, dict) for column in row})
        digest = _digest(sorted(json.dumps(_rounded(row), sort_keys=True) for row in rows))
        lines.append(f"    {name}: {len(rows)} rows {digest} of {', '.join(columns)}")
    return "\n".join(lines)


def _without_rows(part: Any, sets: list[tuple[str, list[Any]]], words: list[str]) -> Any:
    if isinstance(part, list):
        return [_without_rows(one, sets, words) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {}
    for name, value in part.items():
        if name in ("datasets", "data") and isinstance(value, dict):
            held = value.items() if name == "datasets" else [("values", value.get("values"))]
            found = [(label, rows) for label, rows in held if isinstance(rows, list)]
            # Where altair names data, it does so by a hash of the rows.
            sets.extend(("rows", rows) for _, rows in found)
            kept[name] = sorted(set(value) - {label for label, _ in found} - {"name"})
            continue
        if name in ("title", "text", "summary", "labelExpr", "description") and isinstance(value, str):
            words.append(value)
        kept[name] = _without_rows(value, sets, words)
    return kept


# --- comparing ---


def difference(file: str, golden: str, output: str) -> str:
    """The first lines that differ, or nothing."""
    if file.endswith(".json") and _equal(json.loads(golden), json.loads(output)):
        return ""
    if golden == output:
        return ""
    lines = difflib.unified_diff(golden.splitlines(), output.splitlines(), "golden", "now", lineterm="", n=0)
    shown = [line[:300] for line, _ in zip(lines, range(24), strict=False)]
    return f"{file}:\n" + "\n".join(shown)


def _equal(golden: Any, output: Any) -> bool:
    if isinstance(golden, float) and isinstance(output, float):
        return math.isclose(golden, output, rel_tol=1e-12)
    if type(golden) is not type(output):
        return False
    if isinstance(golden, dict):
        # The order of keys is what a reader sees.
        return list(golden) == list(output) and all(_equal(golden[key], output[key]) for key in golden)
    if isinstance(golden, list):
        return len(golden) == len(output) and all(map(_equal, golden, output))
    return bool(golden == output)


def differences(name: str, found: dict[str, str]) -> list[str]:
    """How the outputs of a case differ from its golden files."""
    folder = GOLDEN / name
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} if folder.is_dir() else {}
    out = [difference(file, there[file], found[file]) for file in found if file in there]
    out += [f"{file}: there is no golden file of it" for file in found if file not in there]
    out += [f"{file}: no output is compared with it any more" for file in there if file not in found]
    return [line for line in out if line]


@pytest.fixture(scope="module")
def _inputs() -> Iterator[None]:
    with workplace():
        yield


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("_inputs", "commands_share_sessions")
def test_outputs_are_those_of_the_golden_files(name: str) -> None:
    found = differences(name, outputs(name))
    how = f"If that is wanted: python tests/test_golden.py --update {name}, in a commit of its own with the reason."
    assert not found, "\n\n".join([f"outputs of {name} changed", *found, how])


def test_each_golden_folder_has_a_case() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted([*CASES, "inputs"])


def test_differences_are_seen() -> None:
    assert difference("report.json", '{"a": [1.0, "x"]}', '{"a": [1.0000000000000002, "x"]}') == ""
    assert difference("report.json", '{"a": [1.0]}', '{"a": [1.00000001]}') == 'report.json:\n--- golden\n+++ now\n@@ -1 +1 @@\n-{"a": [1.0]}\n+{"a": [1.00000001]}'  # fmt: skip
    for golden, output in (
        ("[1]", "[1.0]"),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
        ("[1]", "[1, 2]"),
        ("[0]", "[false]"),
    ):
        assert difference("report.json", golden, output), (golden, output)
    assert difference("page.txt", "one\ntwo\n", "one\n2\n").splitlines()[-2:] == ["-two", "+2"]
    assert _rows_digest(["12", "xy"]) == _rows_digest(["21", "yx"]) != _rows_digest(["12", "yx"])
    assert _texts(pl.Series([0.1 + 0.2, -0.0, None, math.nan])) == ["0.3", "0.0", "null", "NaN"]
    assert _texts(pl.Series(["x", None], dtype=pl.Categorical)) == ['"x"', "null"]
    page = _Page(
        '<h2 title="t">A</h2><p>b <b>c</b></p><tr><td>1<td>2</tr><svg><text>no</text></svg>'
        '<script type="application/json" id="spec-x">{"title": "T", "data": {"values": [{"k": 1}]}}</script>'
    )
    assert page.text() == "## [title: t] A\nb c\n| 1 | 2"
    (chart,) = page.charts
    lines = _chart(*chart).splitlines()
    assert lines[1] == "    text: T"
    assert re.fullmatch(r"    rows: 1 rows [0-9a-f]{16} of k", lines[2])
    other = _chart("spec-x", {"title": "T", "data": {"values": [{"k": 2}]}}).splitlines()
    assert (other[:2], other[2] == lines[2]) == (lines[:2], False)
    assert _shown("a\x1b[1m\u202e\ud83d pyanalyze 0.1.0") == "a⟦U+001B⟧[1m⟦U+202E⟧⟦U+D83D⟧ pyanalyze VERSION\n"


def update(names: Sequence[str]) -> None:
    """Rewrite the golden files of some cases where the outputs differ from them."""
    with workplace():
        for name in names:
            found = outputs(name)
            changed = differences(name, found)
            folder = GOLDEN / name
            if changed:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                for file, text in found.items():
                    (folder / file).write_text(text, encoding="utf-8")
            sys.stdout.write(f"{name}: {'written' if changed else 'as it was'}\n")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=f"Rewrite golden files. Cases are {', '.join(CASES)}.")
    asked.add_argument("--update", nargs="*", required=True, metavar="CASE", help="all, if none is named")
    chosen = asked.parse_args().update
    if unknown := set(chosen) - set(CASES):
        asked.error(f"no case is named {', '.join(sorted(unknown))}")
    update(chosen or list(CASES))
