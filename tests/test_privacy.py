"""Does anything come out that is nobody's business? Secrets are planted wherever an export or a sample can hold text.

Shown are names of kernels, ranges, processes and devices, and a short list of settings (docs/privacy.md). All else
that a capture holds in words must be in no output, no message and no log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import sqlite3
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner
from exports import MS, kernel, write

import pyanalyze
from pyanalyze.cli import cli
from pyanalyze.fleet.plan import probe
from pyanalyze.report.markdown import render_markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

#: No word of ours, no identifier, no number.
SECRET = "hunter2.swordfish"
#: Text that is shown: table -> columns. `StringIds` is judged by who refers to it.
SHOWN = {"PROCESSES": {"name"}, "TARGET_INFO_GPU": {"name"}, "NVTX_EVENTS": {"text"}}
#: Columns whose strings in `StringIds` are names of kernels and ranges.
NAMING = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("demangledName", "shortName"),
    "NVTX_EVENTS": ("textId",),
}
#: Metadata whose values are shown, as docs/privacy.md lists them.
SETTINGS = ("CUDA_GRAPH_TRACE_OPTIONS:MODE", "COLLECT_GPU_CTX_SW_TRACE", "PROCESS_0:COLLECT_NVTX_TRACE")
#: Tables that nsys writes on other machines, with the text they hold.
ELSEWHERE = """
CREATE TABLE PROCESS_STREAMS (globalPid INTEGER, filenameId INTEGER, contentId INTEGER);
INSERT INTO PROCESS_STREAMS VALUES (1, 900001, 900001);
INSERT INTO StringIds VALUES (900001, '{0}');
CREATE TABLE OSRT_API (start INTEGER, "end" INTEGER, globalTid INTEGER, nameId INTEGER, path TEXT);
INSERT INTO OSRT_API VALUES (1, 2, 3, 900001, '{0}');
CREATE TABLE TARGET_INFO_NIC_INFO (name TEXT, guid TEXT);
INSERT INTO TARGET_INFO_NIC_INFO VALUES ('{0}', '{0}');
CREATE TABLE GENERIC_EVENTS (timestamp INTEGER, typeId INTEGER, data TEXT);
INSERT INTO GENERIC_EVENTS VALUES (1, 1, '{{"{0}": "{0}"}}');
CREATE TABLE GENERIC_EVENT_SOURCES (sourceId INTEGER, data TEXT);
INSERT INTO GENERIC_EVENT_SOURCES VALUES (1, '{{"Name": "{0}"}}');
CREATE TABLE GENERIC_EVENT_TYPES (typeId INTEGER, sourceId INTEGER, data TEXT);
INSERT INTO GENERIC_EVENT_TYPES VALUES (1, 1, '{{"Name": "{0}"}}');
CREATE TABLE TARGET_INFO_WDDM_CONTEXTS (name TEXT); INSERT INTO TARGET_INFO_WDDM_CONTEXTS VALUES ('{0}');
CREATE TABLE "{0}" (a TEXT); INSERT INTO "{0}" VALUES ('{0}');
CREATE TABLE COMPOSITE_EVENTS (id INTEGER, threadState TEXT); INSERT INTO COMPOSITE_EVENTS VALUES (1, '{0}');
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ARGUMENT_1', '--token={0} CUDA_MPS={0} PASSWORD={0}');
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:WORKING_DIRECTORY', '/home/{0}');
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'MY_CUDA_VISIBLE_DEVICES={0}');
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'CUDA_VISIBLE_DEVICES_{0}={0}');
INSERT INTO META_DATA_CAPTURE VALUES ('{0}', '{0}');
"""


def _tables(file: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        yield name, [row[1] for row in file.execute(f'PRAGMA table_info("{name}")')]


def plant(path: Path, change: str) -> int:
    """Put the secret into every text that is not shown, instead of it or behind it; return into how many cells."""
    planted = 0
    with sqlite3.connect(path) as file:
        file.text_factory = lambda raw: raw.decode("utf-8", "replace")
        tables = dict(_tables(file))
        named = {
            row[0]
            for table, columns in NAMING.items()
            if table in tables
            for column in columns
            for row in file.execute(f'SELECT DISTINCT "{column}" FROM "{table}"')
        }
        for table, columns in tables.items():
            for column in columns:
                if column in SHOWN.get(table, ()):
                    continue
                where = f"typeof(\"{column}\") = 'text'"
                if table == "StringIds":
                    where += f" AND id NOT IN ({','.join(map(str, sorted(named)))})"
                if table in ("META_DATA_CAPTURE", "META_DATA_EXPORT", "TARGET_INFO_SYSTEM_ENV"):
                    # A setting without its name is no setting any more: the names stay, so that the values are read.
                    where += " AND " + ("0" if column == "name" else f"name NOT LIKE '%{SETTINGS[0]}'")
                    where += f" AND name NOT IN {SETTINGS[1:]}"
                    if column == "value":
                        # The name before the sign stays, or the variable would not even be looked at.
                        where += " AND name NOT LIKE '%:ENVIRONMENT_VARIABLE'"
                value = f"'{SECRET}'" if change == "instead" else f"\"{column}\" || ' {SECRET}'"
                planted += file.execute(f'UPDATE "{table}" SET "{column}" = {value} WHERE {where}').rowcount
        extra = [statement for statement in ELSEWHERE.format(SECRET).split(";\n") if statement.strip()]
        for statement in extra:
            if (made := re.match(r'\s*CREATE TABLE "?([\w.]+)', statement)) and made[1] in tables:
                file.execute(f'DROP TABLE "{made[1]}"')
            for one in statement.split("; "):
                file.execute(one)
    file.close()
    assert SECRET.encode() in path.read_bytes()
    return planted


def _everything(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The content of every file written, out of its packing."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        yield path.name, path.name.encode()
        yield path.name, data
        if path.suffix == ".parquet":
            yield path.name, str(pl.read_parquet(path).to_dicts()).encode()
        elif path.suffix == ".arrow":
            yield path.name, str(pl.read_ipc(path).to_dicts()).encode()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as pack:
                for name in pack.namelist():
                    yield f"{path.name}:{name}", pack.read(name)
        elif data[:2] == b"\x1f\x8b":
            yield path.name, zlib.decompress(data, 47)


VERBS: tuple[tuple[str, ...], ...] = (
    (),
    ("info",),
    ("info", "-f", "json"),
    ("classify",),
    ("classify", "-f", "json"),
    ("residency",),
    ("residency", "-f", "json"),
    ("occupancy",),
    ("occupancy", "-f", "json"),
    ("interference",),
    ("interference", "-f", "json"),
    ("advise",),
    ("advise", "-f", "json"),
    ("report", "-f", "html"),
    ("report", "-f", "md"),
    ("report", "-f", "txt"),
    ("report", "-f", "json", "--detail"),
    ("report", "-f", "html", "--redact"),
    ("check", "--no-data-loss", "--junit", "OUT/junit.xml"),
    ("export", "--to", "csv", "-o", "OUT/csv", "--tables", "EVERY"),
    ("export", "--to", "parquet", "-o", "OUT/parquet", "--tables", "EVERY"),
    ("export", "--to", "arrow", "-o", "OUT/arrow", "--tables", "EVERY"),
    ("export", "--to", "sqlite", "-o", "OUT/all.sqlite", "--tables", "EVERY"),
    ("export", "--to", "perfetto", "-o", "OUT/trace.pftrace"),
    ("export", "--to", "nsys-stats", "-o", "OUT/stats"),
    ("pack", "-o", "OUT/run.pack", "--key", "OUT/key", "--also", "api_calls", "--also", "nvtx"),
    ("compare",),
    ("fleet", "-o", "OUT/fleet", "--workers", "1"),
)
#: Where every table and every part of a report shows.
BRIEF = tuple(
    verb
    for verb in VERBS
    if ("EVERY" in verb and "csv" in verb) or verb in (("info", "-f", "json"), ("report", "-f", "md"))
)


@pytest.mark.usefixtures("kept_workers")
@pytest.mark.parametrize("change", ["instead", "behind"])
@pytest.mark.parametrize("name", ["demo-time-slicing", "exclusive"])
def test_what_is_no_name_comes_out_nowhere(
    fixtures: Path, tmp_path: Path, name: str, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    capture = tmp_path / "in" / f"{name}.sqlite"
    capture.parent.mkdir()
    shutil.copyfile(fixtures / f"{name}.sqlite", capture)
    assert plant(capture, change) > 50
    out = tmp_path / "out"
    out.mkdir()
    leaks: list[tuple[object, object]] = []
    every = ",".join([*pyanalyze.load(capture).tables, "api_calls", "profiler_overhead", "thread_runs", "nvtx"])
    for verb in VERBS if (name, change) == ("demo-time-slicing", "instead") else BRIEF:
        words = [word.replace("OUT", str(out)).replace("EVERY", every) for word in verb]
        captures = [str(capture), str(capture)] if verb[:1] == ("compare",) else [str(capture)]
        result = CliRunner().invoke(cli, [*words[:1], *captures, *words[1:]])
        assert result.exit_code in (0, 1, 4), (verb, result.output, result.exception)
        if SECRET in result.output:
            leaks.append((verb, result.output[max(0, result.output.index(SECRET) - 80) :][:200]))
    leaks += [(where, data[max(0, data.find(SECRET.encode()) - 80) :][:200]) for where, data in _everything(out) if SECRET.encode() in data]  # fmt: skip
    session = pyanalyze.load(capture)
    shown = [repr(session), str(session), session._repr_html_(), *(v._repr_html_() for v in session.classify())]
    shown += [part._repr_html_() for part in session.advise()]
    leaks += [("notebook", text) for text in shown if SECRET in text]
    leaks += [("log", record.getMessage()) for record in caplog.records if SECRET in record.getMessage()]
    assert not leaks


def test_no_message_about_a_broken_capture_quotes_it(fixtures: Path, tmp_path: Path) -> None:
    """Cut short, overwritten in the middle, a text file, an export of another kind: what is said names no content."""
    whole = tmp_path / "whole.sqlite"
    shutil.copyfile(fixtures / "demo-time-slicing.sqlite", whole)
    plant(whole, "instead")
    data = whole.read_bytes()
    cut = tmp_path / "cut.sqlite"
    words = tmp_path / "words.sqlite"
    words.write_text(SECRET * 200)
    samples = tmp_path / "samples.csv"
    samples.write_text(f"{SECRET}\n" * 30)
    said = []
    for size in (50, 500, 5_000, 50_000, len(data) - 3000):
        cut.write_bytes(data[:size])
        said.append(CliRunner().invoke(cli, ["report", str(cut), "-f", "txt"]).output)
    for at in range(4096, len(data) - 4096, len(data) // 25):
        cut.write_bytes(data[:at] + SECRET.encode() * 200 + data[at + 200 * len(SECRET) :])
        said.append(CliRunner().invoke(cli, ["info", str(cut)]).output)
    said.append(CliRunner().invoke(cli, ["info", str(words)]).output)
    said.append(CliRunner().invoke(cli, ["info", str(whole), "--samples", str(samples)]).output)
    said.append(CliRunner().invoke(cli, ["info", str(whole), "--context", str(samples)]).output)
    # A page overwritten with text may well be one of names.
    assert sum("error" in text.lower() or "cannot" in text or "not" in text for text in said) >= 5
    assert not [text for text in said[:5] + said[-3:] if SECRET in text]


def _in_csv(text: str) -> str:
    lines = text.splitlines()
    heads = "".join(f", {name}" for name in ("serial", "hostname", "cmdline", "api_token", "user"))
    return "\n".join([lines[0] + heads, *(line + f", {SECRET}" * 5 for line in lines[1:] if line.strip())]) + "\n"


def _in_words(text: str) -> str:
    # nvidia-smi -q has dozens of lines that are read by nobody; each may be anything. The first lines make the format.
    lines = text.splitlines()
    for at in range(len(lines) - 1, 20, -max(1, len(lines) // 8)):
        indent = re.match(r"\s*", lines[at])[0]  # type: ignore[index]
        lines[at:at] = [f"{indent}Serial Number : {SECRET}", f"{indent}Token : {SECRET}"]
    return "\n".join(lines) + "\n"


def _in_xml(text: str) -> str:
    return re.sub(r"(</(?:gpu|process_info)>)", rf"<serial>{SECRET}</serial><{'x'}_cmd>{SECRET}</x_cmd>\1", text)


def _in_prometheus(text: str) -> str:
    return re.sub(r"\{", f'{{token="{SECRET}",Hostname="{SECRET}",', text) + f"# HELP {SECRET}\n"


def _in_json(text: str) -> str:
    def walk(value: object) -> object:
        if isinstance(value, list):
            return [walk(v) for v in value]
        if isinstance(value, dict):
            more = (
                {} if "metric" not in value and "__name__" not in value and value.get("status") else {"token": SECRET}
            )
            return {**{k: walk(v) for k, v in value.items()}, **more}
        return value

    if "\n{" in text.strip():
        return "".join(json.dumps(walk(json.loads(line))) + "\n" for line in text.splitlines())
    return json.dumps(walk(json.loads(text)))


SAMPLES: dict[str, Callable[[str], str]] = {
    "query-gpu.csv": _in_csv,
    "query-gpu-nounits.csv": _in_csv,
    "compute-apps.csv": _in_csv,
    "query.txt": _in_words,
    "query.xml": _in_xml,
    "dcgm-exporter.prom": _in_prometheus,
    "query-range.json": _in_json,
    "recording.jsonl": _in_json,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_give_away_no_more(fixtures: Path, tmp_path: Path, name: str) -> None:
    samples = tmp_path / name
    samples.write_text(SAMPLES[name]((fixtures.parent / "samples" / name).read_text()))
    assert samples.read_text().count(SECRET) >= 5
    out = tmp_path / "out"
    for verb in (
        ("info", "-f", "json"),
        ("report", "-f", "json", "--detail"),
        ("report", "-f", "html"),
        ("export", "--to", "csv", "-o", str(out), "--tables", "nvml_samples,quality,devices,tenants,configured"),
    ):
        result = CliRunner().invoke(cli, [verb[0], "--samples", str(samples), *verb[1:]])
        assert result.exit_code == 0, (verb, result.output)
        assert SECRET not in result.output, verb
    assert (out / "nvml_samples.csv").stat().st_size > 200
    assert not [where for where, data in _everything(out) if SECRET.encode() in data]


def test_redaction_is_consistent_and_leads_nowhere(fixtures: Path, tmp_path: Path) -> None:
    """The same name gets the same number in every output; of no name is anything left, not even a digest."""
    import hashlib

    capture = fixtures / "demo-time-slicing.sqlite"
    session = pyanalyze.load(capture)
    ranges = pyanalyze.load(capture, tables=["nvtx"], reconstruct=False).frame("nvtx")["text"].drop_nulls().unique()
    names = {"app_a", "app_b", "app_c", *session.kernels["name"].unique(), *ranges}
    names = {str(name) for name in names if len(str(name)) > 3}
    digests = {
        maker(name.encode()).hexdigest()[:12] for name in names for maker in (hashlib.sha256, hashlib.md5, hashlib.sha1)
    }
    tenants = []
    for fmt in ("json", "html", "md", "txt"):
        text = CliRunner().invoke(cli, ["report", str(capture), "-f", fmt, "--redact"]).output
        assert not [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)], fmt
        assert not [digest for digest in digests if digest in text], fmt
        tenants.append(sorted(set(re.findall(r"process-\d+", text))))
    assert tenants[0] and all(found == tenants[0] for found in tenants)
    # Numbers are given by place in the capture, so that equal captures get equal names and no key exists.
    first, second = (pyanalyze.load(capture).redacted() for _ in range(2))
    for table in ("tenants", "kernels"):
        assert first.frame(table).equals(second.frame(table)), table
    by_kernel = session.kernels.select(before="name").with_columns(after=first.kernels["name"]).unique()
    assert by_kernel.height == by_kernel["before"].n_unique() == by_kernel["after"].n_unique()


@pytest.mark.parametrize(("name", "known"), [("node", True), ("host", False), ("localhost", False)])
def test_a_placeholder_is_no_host(tmp_path: Path, name: str, *, known: bool) -> None:
    """Exports whose names were removed all say `host`: of one digest, many machines looked like one."""
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, MS)], processes={41: "train"})
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'", (name,))
    report = pyanalyze.load(path).report()
    # FNV-1a of the name, as its authors publish it.
    digest = 0xCBF29CE484222325
    for byte in name.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    assert report.captures[0].host_hash == (f"{digest:016x}" if known else None)
    assert ("host not recorded" in render_markdown(report)) is not known
    # In a fleet captures of one host are compared.
    assert (probe(str(path)).host is not None) is known
