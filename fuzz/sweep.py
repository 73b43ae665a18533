"""Tries commands on hostile names and on damaged packs, reports, exports, samples, context files and options.

    python fuzz/sweep.py --seconds 3600 --seed 7      # all kinds of cases
    python fuzz/sweep.py --seconds 60 --only pack     # one of them
    python fuzz/sweep.py --seed 7 --case 4711         # one case again, with what it says

No case may end with a traceback or a panic, need more memory than its budget or longer than its time, or print what
commands a terminal. Cases follow from the seed and their number. Findings lie in fuzz/artifacts/sweep (the inputs and
how they were called); the command ends with 1 then. It runs cases in a worker, which it starts anew when one dies.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from command_line import run  # noqa: E402
from hostile_inputs import CONTEXT, NAMES, commanding, file_name, hostile_capture  # noqa: E402

from pyanalyze.core import _core  # noqa: E402

CAPTURES = sorted((ROOT / "fixtures" / "captures").glob("*.sqlite"))
SAMPLES = sorted([*(ROOT / "fixtures" / "samples").iterdir(), *(ROOT / "fixtures" / "captures").glob("*.csv")])
ARTIFACTS = HERE / "artifacts" / "sweep"
#: Of a command on inputs of less than a megabyte.
BUDGET_BYTES = 1_500_000_000
BUDGET = "1500MB"
#: Of the processor, whatever else the machine does; a pattern that backtracks takes minutes.
CASE_SECONDS = 30
#: By the clock: what waits for ever takes no time of the processor.
HANGING_SECONDS = 600
#: So many of these make a worker old: what one case leaves behind must not help the next.
CASES_OF_A_WORKER = 400

INTEGERS = (0, 1, -1, 255, -(1 << 31), 1 << 32, 1 << 53, (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 64, 10**30, 10**400)
REALS = (0.5, -0.0, 5e-324, 1e308, -1e308, 1e19, float("inf"), float("-inf"), float("nan"))
WORDS = (*NAMES.values(), "", " ", "inf", "nan", "-1", "1e400", "9" * 4301, "0x" + "f" * 4301, "1" * 25, " " * 4000)
VALUES: tuple[Any, ...] = (*INTEGERS, *REALS, *WORDS, None, True, False, [], {}, [[]], {"a": 1})

#: What a command is asked on captures of any kind; `{}` is a file to write.
ASKED: tuple[tuple[str, ...], ...] = (
    *((verb, "-f", form) for verb in ("summary", "occupancy", "advise") for form in ("table", "json")),
    *(
        (verb, "-f", form)
        for verb in ("info", "classify", "residency", "interference", "explain", "streams", "kernels")
        for form in ("table", "json", "csv")
    ),
    *(("report", "-f", form) for form in ("md", "json", "txt")),
    ("report", "-f", "html"),
    (
        "check",
        "--max-slowdown",
        "1.1",
        "--min-jain",
        "0.5",
        "--max-switch-overhead",
        "1%",
        "--max-memory",
        "50%",
        "-f",
        "json",
    ),
    (
        "check",
        "--expect-agreement",
        "--expect-mode",
        "mps*",
        "--no-data-loss",
        "--min-sm-active",
        "5%",
        "--junit",
        "{}",
    ),
    *(("export", "--to", form, "-o", "{}") for form in ("csv", "nsys-stats", "sqlite", "perfetto", "parquet", "arrow")),
    ("pack", "-o", "{}", "--key", "{}", "--names", "{}"),
)
#: What takes saved reports.
ASKED_OF_REPORTS: tuple[tuple[str, ...], ...] = (
    ASKED[-9],
    ASKED[-8],
    ("check", "--max-slowdown", "1.1", "--expect-mode", "mig", "--no-data-loss"),
    ("check", "--max-slowdown", "1.1", "--inconclusive", "warn", "-f", "json"),
)


class Case:
    """One command line with its inputs in a folder of its own."""

    def __init__(self, seed: int, number: int, folder: Path, base: Path) -> None:
        self.numbers = random.Random(f"{seed} {number}")
        self.folder = folder
        self.base = base
        self.written = 0

    def make(self, only: str | None) -> list[str | Path]:
        """Write the inputs and give the words of the command."""
        kind = only or self.numbers.choices(list(KINDS), [RARELY.get(kind, 1.0) for kind in KINDS])[0]
        return KINDS[kind](self)

    def asked(self, table: tuple[tuple[str, ...], ...] = ASKED) -> tuple[str, ...]:
        words = self.numbers.choice(table)
        return tuple(str(self.output()) if word == "{}" else word for word in words)

    def output(self) -> Path:
        self.written += 1
        name = file_name(self.numbers.choice(list(NAMES.values())), "") if self.numbers.random() < 0.2 else "out"
        return self.folder / f"{self.written}-{name}"

    def capture(self) -> Path:
        return self.numbers.choice(CAPTURES)

    def with_options(self, *words: str | Path) -> list[str | Path]:
        """Add options, sane and insane ones."""
        found: list[str | Path] = list(words)
        if words[0] in ("pack", "kernels"):
            return found
        while self.numbers.random() < 0.3:
            option, given = self.numbers.choice(OPTIONS)
            found += [option, *([] if given is None else [self.numbers.choice(given)])]
        return found


Maker = Callable[[Case], list[str | Path]]


def names(case: Case) -> list[str | Path]:
    """A capture, sound but for its names."""
    picked = case.numbers.sample(list(NAMES.values()), 2)
    name = "".join(picked) if case.numbers.random() < 0.5 else picked[0]
    path = hostile_capture(case.capture(), case.folder / file_name(name, ".sqlite"), name)
    words = case.asked()
    return case.with_options(words[0], path, *words[1:])


def compare(case: Case) -> list[str | Path]:
    """Two captures, one of them damaged or with hostile names."""
    other = damaged_export(case) if case.numbers.random() < 0.5 else Path(names(case)[1])
    both = [case.capture(), other]
    case.numbers.shuffle(both)
    return ["compare", *both, "-f", case.numbers.choice(("table", "json", "md", "html"))]


def damaged_export(case: Case) -> Path:
    target = case.folder / "damaged.sqlite"
    shutil.copyfile(case.capture(), target)
    if case.numbers.random() < 0.3:
        damage_bytes(case, target)
    else:
        damage_rows(case, target)
    return target


def export(case: Case) -> list[str | Path]:
    """An export with values that no recorder writes, or with bytes flipped."""
    words = case.asked()
    return case.with_options(words[0], damaged_export(case), *words[1:])


def pack(case: Case) -> list[str | Path]:
    """A pack that does not hold what it says, or says what makes no sense."""
    target = case.folder / "damaged.pack"
    shutil.copyfile(case.numbers.choice(sorted(case.base.glob("*.pack"))), target)
    for _ in range(case.numbers.randrange(1, 3)):
        case.numbers.choice((damage_bytes, damage_rows, damage_rows, damage_description, damage_description))(
            case, target
        )
    words = case.asked()
    return case.with_options(words[0], target, *words[1:])


def damage_bytes(case: Case, target: Path) -> None:
    data = bytearray(target.read_bytes())
    if case.numbers.random() < 0.2:
        data = data[: case.numbers.randrange(len(data))]
    for _ in range(case.numbers.randrange(1, 30)):
        if data:
            # What is said of pages stands at their beginning.
            page = case.numbers.randrange(max(1, len(data) // 4096)) * 4096 if case.numbers.random() < 0.5 else 0
            at = min(len(data) - 1, page + case.numbers.randrange(120))
            data[case.numbers.choice((at, case.numbers.randrange(len(data))))] = case.numbers.randrange(256)
    target.write_bytes(data)


#: A file that was damaged before may take no more damage.
_IN_VAIN = (sqlite3.Error, OverflowError, IndexError, ValueError, TypeError)


def damage_rows(case: Case, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(target)) as db, contextlib.suppress(*_IN_VAIN):
        db.text_factory = bytes
        db.execute("PRAGMA ignore_check_constraints = ON")
        tables = [name.decode() for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(case.numbers.randrange(1, 6)):
            table = case.numbers.choice(tables)
            columns = [row[1].decode() for row in db.execute(f'PRAGMA table_info("{table}")')]
            column, value = (
                case.numbers.choice(columns),
                case.numbers.choice(VALUES[: len(INTEGERS) + len(REALS) + len(WORDS)]),
            )
            which = case.numbers.choice(("", f"WHERE rowid % {case.numbers.randrange(1, 9)} = 0", "WHERE rowid = 1"))
            what = case.numbers.random()
            with contextlib.suppress(*_IN_VAIN):
                if what < 0.75:
                    db.execute(f'UPDATE "{table}" SET "{column}" = ? {which}', (value,))
                elif what < 0.85:
                    db.execute(f'DELETE FROM "{table}" {which}')
                elif what < 0.9:
                    db.execute(f'DROP TABLE "{table}"')
                elif what < 0.95:
                    db.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}x"')
                else:
                    db.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" LIMIT 5')
        db.commit()


def damage_description(case: Case, target: Path) -> None:
    with contextlib.closing(sqlite3.connect(target)) as db, contextlib.suppress(*_IN_VAIN):
        ((about,),) = db.execute("SELECT about FROM pack")
        db.execute("UPDATE pack SET about = ?", (json.dumps(damaged(case, json.loads(about))),))
        db.commit()


def damaged(case: Case, body: Any) -> Any:
    """Plain data with some of it replaced, left out, doubled or put elsewhere."""
    for _ in range(case.numbers.randrange(1, 4)):
        holder, key = body, None
        while isinstance(holder, (dict, list)) and holder:
            place = case.numbers.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            inner = holder[place]
            if not isinstance(inner, (dict, list)) or not inner or case.numbers.random() < 0.15:
                key = place
                break
            holder = inner
        if key is None:
            continue
        what = case.numbers.random()
        if what < 0.7:
            # A copy: what is damaged next may be this list, and cases have nothing in common.
            holder[key] = copy.deepcopy(case.numbers.choice(VALUES))
        elif what < 0.8:
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[f"{key}x"] = copy.deepcopy(holder[key])
    return body


def report(case: Case) -> list[str | Path]:
    """A saved report that was changed, given to gates, comparisons and as a baseline."""
    saved = sorted(case.base.glob("*.json"))
    text = case.numbers.choice(saved).read_text(encoding="utf-8")
    target = case.folder / "saved.json"
    if case.numbers.random() < 0.85:
        text = json.dumps(damaged(case, json.loads(text)), ensure_ascii=case.numbers.random() < 0.5)
        target.write_bytes(text.encode("utf-8", "surrogatepass"))
    else:
        target.write_text(text, encoding="utf-8")
        damage_text(case, target)
    what = case.numbers.random()
    if what < 0.5:
        words = case.asked(ASKED_OF_REPORTS)
        return [words[0], target, *words[1:]]
    if what < 0.8:
        both = [target, case.numbers.choice([*saved, case.capture()])]
        case.numbers.shuffle(both)
        return ["compare", *both, "-f", case.numbers.choice(("table", "json", "md", "html"))]
    name = case.numbers.choice(("", "app_a=", f"{case.numbers.choice(list(NAMES.values()))}="))
    verb = case.numbers.choice((("interference",), ("report", "-f", "txt"), ("check", "--max-slowdown", "2")))
    return [verb[0], case.capture(), *verb[1:], "--baseline", f"{name}{target}"]


def damage_text(case: Case, target: Path) -> None:
    """Replace words, numbers and lines."""
    text = target.read_bytes().decode("utf-8", "replace")
    for _ in range(case.numbers.randrange(1, 6)):
        found = list(re.finditer(r"[\w.+-]+|[^\w\s]", text[:200_000]))
        if not found:
            break
        one = case.numbers.choice(found)
        what = case.numbers.random()
        new = str(case.numbers.choice(VALUES))
        if what < 0.1:
            new = case.numbers.choice((" ", "\n", "\t", "|", "{", "[", "GPU 0: ", "\0", ",")) * case.numbers.choice(
                (100, 40_000)
            )
        elif what < 0.2:
            new = one[0] * case.numbers.choice((2, 50, 5000))
        text = text[: one.start()] + new + text[one.end() :]
    if case.numbers.random() < 0.1:
        text = text[: case.numbers.randrange(len(text) + 1)]
    encoding = case.numbers.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-8-sig"))
    target.write_bytes(text.encode(encoding, "replace"))


def samples(case: Case) -> list[str | Path]:
    """Samples of any format with other words in them, alone or beside a capture."""
    source = case.numbers.choice(SAMPLES)
    target = case.folder / f"samples{source.suffix}"
    shutil.copyfile(source, target)
    damage_text(case, target)
    words = case.asked()
    captures = [] if case.numbers.random() < 0.4 and words[0] != "pack" else [case.capture()]
    return case.with_options(words[0], *captures, "--samples", target, *words[1:])


def context(case: Case) -> list[str | Path]:
    """Listings, logs and objects with other words in them."""
    target = case.folder / "context.txt"
    text = case.numbers.choice(list(CONTEXT.values()))
    if case.numbers.random() < 0.3:
        text += case.numbers.choice(list(CONTEXT.values()))
    target.write_text(text, encoding="utf-8")
    if text.startswith("{") and case.numbers.random() < 0.5:
        with contextlib.suppress(ValueError):
            target.write_bytes(json.dumps(damaged(case, json.loads(text))).encode("utf-8", "surrogatepass"))
    else:
        damage_text(case, target)
    words = case.asked()
    return case.with_options(words[0], case.capture(), "--context", target, *words[1:])


CHECK = """[check]
expect_mode = "mps"
max_slowdown = 1.2
max_switch_overhead = "5%"
min_jain = 0.9
inconclusive = "warn"
[check.tenants]
app_a = 1.5
"""
WORK = "tenant,start,end,name\napp_a,10ms,20ms,one\napp_a,30ms,45ms,two\napp_b,0,1s,three\n"


def settings(case: Case) -> list[str | Path]:
    """Thresholds, units of work and study files with other words in them."""
    what = case.numbers.random()
    target = case.folder / "file"
    if what < 0.4:
        target.write_text(CHECK, encoding="utf-8")
        damage_text(case, target)
        return ["check", case.capture(), "--config", target, "-f", case.numbers.choice(("table", "json"))]
    if what < 0.8:
        target.write_text(WORK, encoding="utf-8")
        damage_text(case, target)
        words = case.asked()
        if words[0] in ("report", "interference", "check"):
            return [words[0], case.capture(), "--work", target, *words[1:]]
        return ["report", case.capture(), "-f", "txt", "--work", target]
    run_of = f'[[run]]\ncaptures = "{case.folder}/absent.sqlite"\nworkload = "w"\nrole = "shared"\nmode = "mps"\nrepeat = 1\n'
    target.write_text(
        f'title = "T"\nauthors = [{{ family = "F" }}]\ndate = 2026-11-21\n{run_of}throughput.a = {{ profiled = 8.5 }}\n'
    )
    damage_text(case, target)
    return ["study", target, "-o", case.output(), "-q", "--workers", "1"]


_TIMES = ("0", "1s", "500ms", "-1", "1e400", "9" * 4301, f"{1 << 63}", f"-{1 << 63}", "2026-03-14T05:26:54Z", "9999-12-31T23:59:59Z",
          "0001-01-01T00:00:00+00:00", "999999999999999h", "1s/1ns", "1s/0", "1s/99999999999999999999h", "", *NAMES.values())  # fmt: skip
#: Options of commands that read captures, with what to give them.
OPTIONS: tuple[tuple[str, tuple[str, ...] | None], ...] = (
    ("--start", _TIMES),
    ("--end", _TIMES),
    ("--around", _TIMES),
    ("--gpu", ("0", "1", "-1", "4294967296", "9" * 4301, "x")),
    ("--threads", ("1", "2", "0", "-1", "9" * 30, "x")),
    ("--tenant", ("app=1", f"app={1 << 64}", "app=" + "9" * 4301, *(f"{name}=2411" for name in NAMES.values()))),
    ("--redact", None),
    ("--detail", None),
    ("--keep-going", None),
)
#: Options of which a budget must not be set higher than the sweep watches.
_SIZES = ("999999999999TB", "-1", "inf", "1e400", "0", "1", "9" * 4301 + "GB", "nan", "512MiBx", "", *NAMES.values())
_LIMITS = ("inf", "-inf", "nan", "1e400", "-1", "0", "9" * 4301, "x%", "inf%", "1e308%", *NAMES.values())


def options(case: Case) -> list[str | Path]:
    """A sound capture, and options that make no sense."""
    words = list(case.with_options(*case.asked()))
    found: list[str | Path] = [words[0], case.capture(), *words[1:]]
    what = case.numbers.random()
    if what < 0.3:
        return [*found, "--memory", case.numbers.choice(_SIZES)]
    if what < 0.7:
        limit = case.numbers.choice(
            ("--max-slowdown", "--max-switch-overhead", "--min-jain", "--min-sm-active", "--max-memory", "--slowdown")
        )
        return [
            "check",
            case.capture(),
            limit,
            case.numbers.choice(_LIMITS),
            "-f",
            case.numbers.choice(("table", "json")),
        ]
    return found


def fleet(case: Case) -> list[str | Path]:
    """A damaged capture, one with hostile names and a sound one, analysed by a process of their own."""
    folder = case.folder / "captures"
    folder.mkdir()
    shutil.copyfile(damaged_export(case), folder / "damaged.sqlite")
    named = Path(names(case)[1])
    shutil.copyfile(named, folder / named.name)
    shutil.copyfile(case.capture(), folder / "sound.sqlite")
    return ["fleet", f"{folder}/**/*.sqlite", "-o", case.output(), "-q", "--workers", "1"]


#: Kinds that take seconds, where others take a tenth of one.
RARELY = {"fleet": 0.1}
KINDS: dict[str, Maker] = {
    "names": names,
    "compare": compare,
    "export": export,
    "pack": pack,
    "report": report,
    "samples": samples,
    "context": context,
    "settings": settings,
    "options": options,
    "fleet": fleet,
}


def prepare(base: Path) -> None:
    """Packs and saved reports of the fixtures, as sound as they come."""
    for capture in CAPTURES:
        key = base / "key"
        more = ["--also", "api_calls", "--also", "nvtx"] if "demo" in capture.name else []
        for words in (
            ("pack", capture, "-o", base / f"{capture.stem}.pack", "--key", key, *more),
            ("report", capture, "-f", "json", "-o", base / f"{capture.stem}.json"),
        ):
            done = run(*words)
            if done.returncode:
                raise SystemExit(f"{words}: {done.stderr}")


def work(seed: int, first: int, base: Path, only: str | None, until: float, *, tell: bool) -> None:
    """Run cases one after the other; every one is told of before it begins, and when something is wrong."""
    noise = (base / "noise").open("w+b")
    if not tell:
        # Panics speak to the descriptor, not to Python.
        os.dup2(noise.fileno(), 2)
    number = first
    while time.time() < until and number < first + (1 if tell else CASES_OF_A_WORKER):
        with tempfile.TemporaryDirectory(dir=base) as folder:
            case = Case(seed, number, Path(folder), base)
            words = case.make(only)
            # A case that sets a budget of its own (all of them are wrong) is not given another one.
            words = words if "--memory" in words else [*words, "--memory", BUDGET]
            words = [*words, "--debug"] if tell else words
            print(json.dumps({"begin": number, "words": [str(word) for word in words]}), flush=True)
            faulthandler.dump_traceback_later(HANGING_SECONDS, exit=True)
            # The signal of this clock ends the process.
            signal.setitimer(signal.ITIMER_PROF, 2 * CASE_SECONDS)
            Path("/proc/self/clear_refs").write_text("5")
            noise.seek(0)
            noise.truncate()
            began = time.process_time()
            done = run(*words)
            took_s = time.process_time() - began
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
            noise.seek(0)
            found = wrong(case, words, done, noise.read().decode("utf-8", "replace"), took_s)
            if tell:
                print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
            if found:
                kept = ARTIFACTS / f"{seed}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept)
                (kept / "called.json").write_text(
                    json.dumps({"words": [str(word) for word in words], "found": found, "stderr": done.stderr})
                )
            print(
                json.dumps(
                    {
                        "end": number,
                        "verb": str(words[0]),
                        "code": done.returncode,
                        "s": round(took_s, 1),
                        "found": found,
                    }
                ),
                flush=True,
            )
        number += 1


def wrong(
    case: Case, words: list[str | Path], done: subprocess.CompletedProcess[str], noise: str, took_s: float
) -> list[str]:
    """What is not as promised."""
    found = []
    said = done.stderr + noise
    if done.returncode not in (0, 1, 2, 3, 4) or "Traceback" in said:
        found.append(f"exit {done.returncode}: {done.stderr.strip()[-300:]}")
    if "panicked at" in said:
        found.append(f"panic: {said[said.index('panicked at') :][:300]}")
    peak = peak_bytes()
    if peak > BUDGET_BYTES:
        found.append(f"{peak >> 20} MiB of memory")
    if took_s > CASE_SECONDS:
        found.append(f"{took_s:.0f} s")
    texts = {"output": done.stdout, "messages": done.stderr}
    for path in case.folder.rglob("*"):
        inside = path.relative_to(case.folder).parts[0]
        if (
            ".pyanalyze" not in path.parts
            and re.match(r"\d+-", inside)
            and path.is_file()
            and path.suffix not in (".parquet", ".arrow")
            and "perfetto" not in words
        ):
            data = path.read_bytes()
            if not data.startswith((b"SQLite", b"PK")):
                texts[str(path.name)] = data.decode("utf-8", "replace")
    for where, text in texts.items():
        if text and (commands := commanding(text)):
            found.append(f"{where}: {commands[0]}")
    if re.search(r"^::", done.stdout + done.stderr, re.MULTILINE):
        found.append("a line that a CI service takes for a command")
    if done.returncode == 0 and "json" in words and "-f" in words and done.stdout:
        try:
            json.loads(done.stdout, parse_constant=lambda name: found.append(f"{name} in JSON"))
        except ValueError as error:
            found.append(f"no JSON: {error}")
    return found


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(KINDS))
    parser.add_argument("--case", type=int, help="run this one alone and show what it says")
    parser.add_argument("--record", type=Path, help="append what was done to this file of JSON lines")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["PYANALYZE_CACHE"] = os.devnull
    os.environ.pop("GITHUB_ACTIONS", None)
    if given.worker:
        first, base, until = given.worker
        work(given.seed, int(first), Path(base), given.only, float(until), tell=False)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        os.environ["TMPDIR"] = folder if os.environ.get("TMPDIR") is None else os.environ["TMPDIR"]
        prepare(base)
        if given.case is not None:
            work(given.seed, given.case, base, given.only, time.time() + 1, tell=True)
            return 0
        return supervise(given, base)


def supervise(given: argparse.Namespace, base: Path) -> int:
    until, number, ran = time.time() + given.seconds, 0, 0
    codes: Counter[str] = Counter()
    slowest = (0.0, 0)
    findings: list[tuple[int, list[str]]] = []
    while time.time() < until:
        command = [sys.executable, __file__, "--seed", str(given.seed), "--worker", str(number), str(base), str(until)]
        command += ["--only", given.only] if given.only else []
        begun: dict[str, Any] | None = None
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            for line in worker.stdout or ():
                told = json.loads(line)
                if "begin" in told:
                    begun = told
                    continue
                begun = None
                number, ran = told["end"] + 1, ran + 1
                slowest = max(slowest, (told["s"], told["end"]))
                codes[f"{told['verb']} {told['code']}"] += 1
                if told["found"]:
                    findings.append((told["end"], told["found"]))
                    print(f"case {told['end']}: {told['found']}", flush=True)
        if begun is None and worker.returncode:
            raise SystemExit(f"case {number} cannot be made: run it with --case {number}")
        if begun is not None:
            findings.append((begun["begin"], [f"the process ended with {worker.returncode}: {begun['words']}"]))
            print(f"case {begun['begin']}: {findings[-1][1]}", flush=True)
            number = begun["begin"] + 1
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = {
        "bench": "sweep", "version": _core.__version__, "seed": given.seed, "cpu_s": round(spent.ru_utime + spent.ru_stime), "executions": ran,
        "exit_codes": dict(sorted(codes.items())), "found": len(findings),
        "slowest_s": slowest[0], "slowest_case": slowest[1],
    }  # fmt: skip
    print(json.dumps(done))
    if given.record:
        with given.record.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(done) + "\n")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
