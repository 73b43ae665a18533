"""The script that draws a report's charts: vega, vega-lite and vega-embed in one text.

vl-convert packs it anew in every process, which takes longer than everything else in the report of a small capture; it
depends on the version of vl-convert alone, and is kept beside the exports that the user's cache holds.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from pyanalyze.files import write_whole
from pyanalyze.inputs.nsys_report import default_cache_dir

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["script_bundle"]


@cache
def script_bundle() -> str:
    """Return the text of the script, as it may stand inside a script element.

    Examples
    --------
    >>> "vegaEmbed" in script_bundle()
    True
    """
    kept = default_cache_dir().parent / f"vega-{version('vl-convert-python')}.js"
    text = _read(kept)
    if text is None:
        text = _packed()
        # A home that cannot be written to: packed again the next time.
        with suppress(OSError):
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(kept, f"{_digest(text)}\n{text}", force=True)
    return text


def _read(kept: Path) -> str | None:
    """What was kept, if it is whole: its first line is the digest of the rest."""
    with suppress(OSError, UnicodeDecodeError):
        digest, _, text = kept.read_bytes().decode().partition("\n")
        if digest == _digest(text):
            return text
    return None


def _packed() -> str:
    import vl_convert

    # HTML parsers turn CR into LF before hashing and would end the script at a closing tag.
    text = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # optional, its stub says not
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub(r"<(?=/script|!--|script)", r"\\x3c", text, flags=re.IGNORECASE)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
