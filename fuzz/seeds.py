"""Seeds the fuzzers: what fixtures/ holds, made small, because a fuzzer gets nowhere with files of half a megabyte.

python fuzz/seeds.py FOLDER      # FOLDER/<target>/...
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import shutil
import sqlite3
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FIXTURES = HERE.parent / "fixtures"
REGRESSIONS = HERE / "regressions"
#: Rows of a table that stay, and pages: small enough that a mutation hits structure more often than values.
ROWS = 8
PAGE_BYTES = 512


def small_export(capture: Path, target: Path, rows: int = ROWS, page: int = PAGE_BYTES) -> None:
    """The first `rows` rows of every table of an export, and the names that they refer to."""
    shutil.copyfile(capture, target)
    with sqlite3.connect(target) as file:
        file.text_factory = bytes
        tables = [name.decode() for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            keep = 40 if table == "StringIds" else rows
            if table.startswith("sqlite_"):
                continue
            file.execute(f'DELETE FROM "{table}" WHERE rowid NOT IN (SELECT rowid FROM "{table}" LIMIT {keep})')
            # Dozens of enumerations that nothing reads make the schema larger than everything else.
            if table.startswith("ENUM_") and not re.search("MEMCPY|GPU_CTX|MEM_KIND", table):
                file.execute(f'DROP TABLE "{table}"')
        file.commit()
        file.execute("PRAGMA journal_mode = DELETE")
        file.execute(f"PRAGMA page_size = {page}")
        file.execute("VACUUM")
    file.close()


def odd_files(folder: Path) -> None:
    """What SQLite can write and nsys never does, so that a mutation need not find the way there."""
    variants = {
        "overflow": "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c BLOB);"
        "INSERT INTO t SELECT value, hex(randomblob(700)), randomblob(900) FROM generate;",
        "reals": "CREATE TABLE t (a REAL, b, c INT);"
        "INSERT INTO t SELECT value / 3.0, -value, 1 << (value % 63) FROM generate;",
        "deep": "CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t SELECT a.value, 'x' || b.value FROM generate AS a, generate AS b;",
        "virtual": "CREATE TABLE t (a, b DEFAULT 5, c AS (a + 1)); INSERT INTO t (a) SELECT value FROM generate;",
        "without": "CREATE TABLE t (a PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO t SELECT value, 'x' FROM generate;",
        "utf16": "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a, b); INSERT INTO t SELECT 'ä', value FROM generate;",
        "freed": "CREATE TABLE t (a, b); INSERT INTO t SELECT value, hex(randomblob(300)) FROM generate; DELETE FROM t WHERE a % 3;",
    }
    count = "CREATE TEMP TABLE generate AS WITH RECURSIVE n(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n WHERE value < 40) SELECT value FROM n;"
    for name, script in variants.items():
        path = folder / f"odd-{name}.sqlite"
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as file:
            file.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            # The encoding must be said before anything is written.
            first, rest = (script.split(";", 1)) if script.startswith("PRAGMA") else ("", script)
            file.execute(first)
            file.executescript(count + rest)
        file.close()


def words(samples: list[Path]) -> str:
    """What readers look for, as a dictionary for libFuzzer."""
    found: set[str] = set()
    for path in samples:
        text = path.read_text(encoding="utf-8", errors="replace")
        found.update(word for word in re.findall(r"[A-Za-z_][\w.\[\]%/]{2,30}", text) if '"' not in word)
    found.update(["N/A", "[N/A]", "[Not Supported]", "NaN", "+Inf", "-0", "1e400", "18446744073709551616", "0x"])
    return "".join(f'"{word}"\n' for word in sorted(found))


def fill(corpus: Path) -> None:
    """Write the seeds of every target below `corpus`."""
    captures = sorted(FIXTURES.glob("captures/**/*.sqlite"))
    samples = sorted([*FIXTURES.glob("samples/*"), *FIXTURES.glob("captures/*.csv")])
    for target in ("page_reader", "nsys_export", "samples", "switch_events", "escaping"):
        (corpus / target).mkdir(parents=True, exist_ok=True)
        for known in sorted((REGRESSIONS / target).glob("*")):
            shutil.copyfile(known, corpus / target / f"regression-{known.name}")
    with tempfile.TemporaryDirectory() as made:
        for capture in captures:
            small = Path(made, capture.name)
            small_export(capture, small)
            for target in ("page_reader", "nsys_export"):
                shutil.copyfile(small, corpus / target / f"{capture.parent.name}-{capture.name}")
    odd_files(corpus / "page_reader")
    for sample in samples:
        shutil.copyfile(sample, corpus / "samples" / sample.name)
    (corpus / "samples.dict").write_text(words(samples), encoding="utf-8")
    # Ordinary turns of two contexts, with acknowledgements, a lost record, a wrap; and noise.
    numbers = random.Random(13)
    for nth, tags in enumerate(([8, 7], [8, 9, 2, 7], [8, 9, 3, 7, 7], [7, 8], [8, 8, 7, 5])):
        rows = bytearray()
        for n in range(60):
            context = (n // len(tags)) % 2 + 1
            step = 1 if numbers.random() < 0.9 else 3
            rows += bytes([0, tags[n % len(tags)], context << 2, context, step, n % 251, 1, 10])
            if n % 5 == 0:
                rows += bytes([220, 7, context << 2, context, 0, 90, 0, 8])
        (corpus / "switch_events" / f"turns-{nth}").write_bytes(rows)
        (corpus / "switch_events" / f"noise-{nth}").write_bytes(numbers.randbytes(240))
    names = [
        "saxpy", "</script><script>alert(1)</script>", "\x1b[2J\u202eevil", "=cmd|' /C calc'!A0", "a|b\n# heading",
        "javascript:alert(1)", "{{ 7 * 7 }}", "x" * 300, "\ud800 lone", "&lt;b&gt;", "](https://x)", "'\"><img src=x onerror=alert(1)>",
    ]  # fmt: skip
    for name in names:
        data = name.encode("utf-8", "surrogatepass")
        (corpus / "escaping" / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    fill(parser.parse_args().folder)
