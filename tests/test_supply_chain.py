"""What is built in, under which licence, from where; and does anything ask the network?"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyanalyze.cli import cli

ROOT = Path(__file__).parent.parent
ALLOWED = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
#: How packages of Python call the same licences.
PYTHON_LICENCES = {
    "apache 2.0", "apache license, version 2.0", "public domain", "apache-2.0", "apache license 2.0", "apache software license", "bsd license", "bsd-2-clause", "bsd-3-clause",
    "isc", "mit", "mit license", "mpl-2.0", "psf-2.0", "python software foundation license", "the unlicense (unlicense)",
}  # fmt: skip


def _fits(expression: str) -> bool:
    """Whether an SPDX expression can be met with the allowed licences; parentheses and slashes as crates write them."""
    words = re.findall(r"\(|\)|[^\s()/]+(?:\s+WITH\s+\S+)?|/", expression)
    python = " ".join(
        {"(": "(", ")": ")", "OR": "or", "/": "or", "AND": "and"}.get(word, str(word in ALLOWED)) for word in words
    )
    return bool(eval(python))  # of True, False, or, and, and parentheses only


def test_every_crate_has_an_allowed_licence_and_comes_from_the_registry() -> None:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not on PATH")
    made = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"the crates are not all at hand: {made.stderr.strip().splitlines()[-1]}")
    packages = json.loads(made.stdout)["packages"]
    assert len(packages) > 50
    odd = []
    for package in packages:
        where = package["source"]
        if where is None:
            assert Path(package["manifest_path"]).is_relative_to(ROOT)
        elif not re.match(r"registry\+https://github\.com/rust-lang/crates\.io-index", where):
            odd.append((package["name"], where))
        if not _fits(package["license"] or "none"):
            odd.append((package["name"], package["license"]))
    assert odd == []


def test_every_package_that_is_installed_with_us_has_an_allowed_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted, seen = [re.split(r"[<>=\[ ;]", one)[0] for one in project["dependencies"]], {}
    while wanted:
        name = wanted.pop().lower().replace("_", "-")
        if name in seen:
            continue
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # Of another platform or Python.
            continue
        # An email message at run time; the stubs promise less.
        heads: Any = found.metadata
        classes = [c.split(" :: ")[-1] for c in heads.get_all("Classifier") or [] if c.startswith("License")]
        spoken = [*(heads.get_all("License-Expression") or []), *classes, *(heads.get_all("License") or []), ""]
        stated = spoken[0]
        seen[name] = str(stated).strip()
        wanted += [re.split(r"[<>=!~\[ ;(]", one)[0] for one in found.requires or [] if "extra ==" not in one]
    assert len(seen) > 12
    odd = {
        name: licence
        for name, licence in seen.items()
        if not any(part.strip().lower() in PYTHON_LICENCES for part in re.split(r" OR | AND ", licence))
    }
    assert odd == {}


def test_the_fuzzers_lock_follows_the_core() -> None:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not on PATH")
    asked = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    made = subprocess.run(asked, cwd=ROOT / "fuzz", capture_output=True, text=True)
    # A crate that only the fuzzers use need not have been downloaded; a lock that lacks one is told apart.
    assert "lock file" not in made.stderr or "--locked" not in made.stderr, made.stderr


def test_everything_is_pinned() -> None:
    lines = [line for line in (ROOT / "requirements-dev.lock").read_text().splitlines() if re.match(r"\w", line)]
    assert len(lines) > 30
    assert [line for line in lines if not re.match(r"[\w.-]+(\[[\w,]+\])?==[\w.]+", line)] == []
    for lock in ("Cargo.lock", "fuzz/Cargo.lock"):
        packages = tomllib.loads((ROOT / lock).read_text())["package"]
        assert all("checksum" in one for one in packages if "source" in one)


def test_no_module_can_speak_to_the_network() -> None:
    """What could open a connection is imported nowhere; what runs programs does so in a few named places."""
    speaks = {
        "http",
        "urllib.request",
        "requests",
        "aiohttp",
        "ftplib",
        "smtplib",
        "socketserver",
        "xmlrpc",
        "ssl",
        "httpx",
        "distributed",
    }
    found = set()
    for path in sorted((ROOT / "pyanalyze").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {(path.name, name) for name in names if name in speaks or name.split(".")[0] in speaks}
    # Dask, and only for the scheduler that somebody named with --scheduler.
    assert {file for file, _ in found} == {"executors.py"}
    assert {name.split(".")[0] for _, name in found} == {"distributed"}


def test_with_the_network_off_nothing_is_missed(
    fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection or a look-up fails the verb that asks for it."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something asked the network")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    capture = str(fixtures / "demo-time-slicing.sqlite")
    for words in (
        [capture], ["info", capture], ["report", capture, "-o", str(tmp_path / "r.html")], ["advise", capture],
        ["export", capture, "--to", "parquet", "-o", str(tmp_path / "p")], ["interference", capture],
    ):  # fmt: skip
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, (words, result.output, result.exception)
    page = (tmp_path / "r.html").read_text()
    # Namespaces of XML are names, not addresses; vega's own text holds some that it never opens.
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//", page)


def test_it_works_where_there_is_no_network_at_all(fixtures: Path, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-n", "true"], capture_output=True).returncode:
        pytest.skip("this user may not make a network namespace")
    words = ["report", str(fixtures / "demo-time-slicing.sqlite"), "-o", str(tmp_path / "r.html")]
    command = [unshare, "-n", sys.executable, "-c", "from pyanalyze.cli import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").stat().st_size > 100_000


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o nosort"), ("zsh", "#compdef"), ("fish", "complete --")]
)
def test_shells_complete_verbs_and_options(shell: str, mark: str) -> None:
    script = CliRunner().invoke(cli, ["completion", shell]).output
    assert mark in script
    assert "_PYANALYZE_COMPLETE" in script
    code = "import sys; sys.argv[0] = 'pyanalyze'; from pyanalyze.cli import main; main()"
    env = {
        **os.environ,
        "_PYANALYZE_COMPLETE": "bash_complete",
        "COMP_WORDS": "pyanalyze report --form",
        "COMP_CWORD": "2",
    }
    asked = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert asked.stdout.split() == ["plain,--format"], asked.stderr
    env |= {"COMP_WORDS": "pyanalyze inter", "COMP_CWORD": "1"}
    asked = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert asked.stdout.split() == ["plain,interference"], asked.stderr
