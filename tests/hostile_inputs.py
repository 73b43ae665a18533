"""Names, captures and files that were made to do harm; tests and fuzz/sweep.py try them."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from pathlib import Path

ESCAPES = "\x1b]52;c;eHg=\x07\x1b[2J\x9b31m\x7f\x00"
LINES = "x\n::error::y\r\n\x0b\x0c\x85\u2028\u2029z\tq"
BIDI = "\u202egnp.exe\u2066\u2069\u200f\u061c\u200b\ufeff"
#: Beyond the Basic Multilingual Plane: two units each where text is UTF-16; the last two are invisible tags.
ASTRAL = "train_\U0001f680" + "\U0001f525" * 60 + "\U000e0041\U000e007f"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>|**b**[x](javascript:alert(1))\n\n# h\n```\n&lt;"
SHELL = '$(touch /tmp/pwned)`id`\'; "rm -rf ~" #\\\\'
QUOTED = '"},{"a":"\\u0000",\'),(1);--'
FORMATS = "{0}{x!r}%s%n%(a)s{{7*7}}{% raw %}${7*7}"
FORMULAS = ("=cmd|'/c calc'!A0", "@SUM(1+1)", "+1+cmd|' /c calc'!A0", "-2+3+cmd|' /c calc'!A0", "\t=1+1", "\uff1d1+1")

#: Each tries everything of one kind.
NAMES = {
    "escapes": ESCAPES,
    "lines": LINES,
    "bidi": BIDI,
    "astral": ASTRAL,
    "markup": MARKUP,
    "shell": SHELL,
    "quoted": QUOTED,
    "formats": FORMATS,
    "long": "n" * 10_000,
    **{f"formula{number}": text for number, text in enumerate(FORMULAS)},
}

#: Commands a terminal, hides, or turns around; line ends and tabs are left to who knows the format.
COMMANDING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def commanding(text: str) -> list[str]:
    """Where something in a text would command a terminal, with what stands around it."""
    return [repr(text[max(0, found.start() - 40) : found.end() + 40]) for found in COMMANDING.finditer(text)]


def hostile_capture(source: Path, target: Path, name: str) -> Path:
    """Copy an export, with a name wherever an export has text of the recorded programs and machine."""
    shutil.copy(source, target)
    with contextlib.closing(sqlite3.connect(target)) as db, db:
        stem = name.replace("\0", "")
        kernels = "SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL UNION SELECT shortName FROM CUPTI_ACTIVITY_KIND_KERNEL"
        tables = {table for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "CUPTI_ACTIVITY_KIND_KERNEL" in tables:
            db.execute(f"UPDATE StringIds SET value = ? || value WHERE id IN ({kernels})", (stem,))
        for table, column in (
            ("PROCESSES", "name"),
            ("TARGET_INFO_GPU", "name"),
            ("TARGET_INFO_GPU", "chipName"),
            ("TARGET_INFO_GPU", "busLocation"),
            ("NVTX_EVENTS", "text"),
            ("DIAGNOSTIC_EVENT", "text"),
            ("TARGET_INFO_SYSTEM_ENV", "value"),
        ):
            if table in tables:
                db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "{column}" IS NOT NULL', (name,))
    return target


def file_name(name: str, ending: str) -> str:
    """A name as a file may have it."""
    plain = name.replace("/", "_").replace("\0", "_")
    while len(plain.encode("utf-8")) > 120:
        plain = plain[:-1]
    return plain + ending
