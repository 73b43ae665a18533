"""What is a file that no reader knows, and what to do with it?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyanalyze.files import head_of

if TYPE_CHECKING:
    import os

__all__ = ["CAPTURE_SUFFIXES", "other_format"]

#: How captures are called: of a file with such a name it is said what is wrong with the capture.
CAPTURE_SUFFIXES = frozenset({".sqlite", ".sqlite3", ".db", ".nsys-rep", ".qdrep"})
#: How files begin that were made smaller for the journey -> what unpacks them.
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"PK\x03\x04": "unzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"\xfd7zXZ": "unxz",
    b"BZh": "bunzip2",
}
_HEAD_BYTES = 1 << 14
_KIND = re.compile(r'"kind"\s*:\s*"(\w{1,60})"')
#: What JSON holds -> what it is, and what to give instead; the first that fits.
_JSON = (
    (
        re.compile(r'"schema"\s*:\s*"pyanalyze\.|"format"\s*:\s*"pyanalyze\.'),
        "is JSON; a saved report goes to compare, check and --baseline; other commands need a capture",
    ),
    (
        re.compile(r'"traceEvents"|"schemaVersion"'),
        "is JSON of a profiler that pyanalyze does not read; record the run with `nsys profile`",
    ),
)
_KUBECTL = "give the objects: `kubectl get nodes,pods,configmaps -A -o json`"
#: How text of other programs looks -> the same.
_TEXTS = (
    (
        re.compile(r"^==PROF==|\"?Kernel Name\"?,.*(?:Metric Name|\"?Section Name)", re.MULTILINE),
        "is a CSV file of Nsight Compute; give it with a capture: `pyanalyze advise CAPTURE --ncu FILE`",
    ),
    (
        re.compile(r"^\"?Time \(%\)\"?,\"?Total Time", re.MULTILINE),
        "is a table of `nsys stats`; give the .sqlite or .nsys-rep that it was made of",
    ),
    (re.compile(r"^(?:NAMESPACE\s+)?NAME\s+READY\s+STATUS\b", re.MULTILINE), f"is a table of kubectl; {_KUBECTL}"),
    (re.compile(r"^Name:\s.*\nRoles:\s", re.MULTILINE), f"is text of `kubectl describe`; {_KUBECTL}"),
    (
        re.compile(r"\A\s*\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+, "),
        "is CSV of nvidia-smi without its header line; sample with --format=csv (not noheader), or add the line",
    ),
    (
        re.compile(r"\A\s*\d+(?:\s+\d+)*\s*\Z"),
        "holds bare numbers; paste the command that printed them in the line above",
    ),
)


def other_format(path: str | os.PathLike[str]) -> str | None:
    """Say what a file is that no reader knows, and what to give instead; None: that is not known either.

    Regular files only: others block.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "samples.csv.gz"
    ...     _ = file.write_bytes(bytes.fromhex("1f8b0800"))
    ...     other_format(file)
    'is compressed; decompress it first (gunzip) and give the result'
    """
    if not Path(path).is_file():
        return None
    head = head_of(path, _HEAD_BYTES)
    tool = next((tool for magic, tool in _COMPRESSED.items() if head.startswith(magic)), None)
    if tool is not None:
        return f"is compressed; decompress it first ({tool}) and give the result"
    text = head.decode("utf-8-sig", errors="replace")
    if text.lstrip().startswith(("{", "[")):
        return _json(text)
    return next((said for pattern, said in _TEXTS if pattern.search(text)), None)


def _json(text: str) -> str:
    said = next((said for pattern, said in _JSON if pattern.search(text)), None)
    if said is not None:
        return said
    kind = _KIND.search(text)
    if kind is not None and '"apiVersion"' in text:
        return f"is a Kubernetes object of kind {kind[1]}, of which nothing is read; {_KUBECTL}"
    return "is JSON of no known format; a saved report goes to compare, check and --baseline"
