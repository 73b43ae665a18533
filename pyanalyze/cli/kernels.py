"""`pyanalyze kernels`: how long the kernels of each name took, without loading the capture."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import (
    ProgressBar,
    capture_options,
    csv_of,
    emit,
    expect_option,
    limit_threads,
    open_session,
    output_options,
    refuse_existing,
    require_mode,
)
from pyanalyze.cli.standard_streams import say

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.analysis.kernel_summary import KernelTimes

#: Columns of the table `kernel_summary`, in its order.
COLUMNS = ("name", "short_name", "kernels", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "stddev_ns")
#: Shared options with which one export needs no session.
_ALSO_ALONE = frozenset({"captures", "quiet", "threads", "memory", "detail", "keep_going", "strict"})
#: Longest name in the table: it is the last column, and long names of one template often differ in the middle only.
_NAME_COLUMNS = 160


@click.command("kernels")
@capture_options
@expect_option
@output_options(("table", "json", "csv"))
def command(fmt: str, output: Path | None, *, force: bool, expect_mode: tuple[str, ...], **options: Any) -> None:
    """Sum GPU time by kernel name, as cuda_gpu_kern_sum of `nsys stats` does, in a fraction of its time.

    All processes together, lengths as recorded: they hold the time a context was switched out. What each tenant really
    took is in `residency` and `report`.
    """
    refuse_existing(output, force=force)
    path = _alone(expect_mode, options)
    if path is not None:
        from pyanalyze.analysis.kernel_summary import of_export
        from pyanalyze.tables.memory import hold

        limit_threads(options["threads"])
        hold(options["memory"])
        with ProgressBar(quiet=options["quiet"]) as progress:
            found = of_export(path, progress=progress)
        emit(_shown(found, fmt), output, force=force, tenants=() if fmt == "table" else None)
        return
    from pyanalyze.analysis.kernel_summary import of_tables

    session = open_session(**options, reconstruct=bool(expect_mode))
    emit(_shown(of_tables(session.tables), fmt), output, force=force, tenants=() if fmt == "table" else None)
    require_mode(session, expect_mode)


def _alone(expect_mode: tuple[str, ...], options: dict[str, Any]) -> Path | None:
    """The export, if it is all that was given and nothing is asked that takes a session."""
    captures: tuple[Path, ...] = options["captures"]
    asked = bool(expect_mode) or any(options[name] for name in options.keys() - _ALSO_ALONE)
    if asked or options["gpu"] is not None or len(captures) != 1 or captures[0].is_dir():
        return None
    from pyanalyze.inputs.nsys_export import is_pack

    return None if is_pack(captures[0]) else captures[0]


def _shown(found: KernelTimes, fmt: str) -> str:
    if fmt == "json":
        body = {"captures": list(found.paths), "kernels": found.rows if found.known else None, "missing": found.missing}
        return json.dumps({"schema": "pyanalyze.kernels/1", **body, "quality": found.quality}, indent=2)
    if fmt == "csv":
        for gap in found.missing:
            say(f"not available: {_gap(gap)}")
        return csv_of(found.rows, COLUMNS)
    return _table(found)


def _gap(gap: dict[str, str]) -> str:
    from pyanalyze.text.escape import visible

    return visible(f"{gap['what']}: {gap['why']}; to capture it: {gap['how']}", limit=None)


def _table(found: KernelTimes) -> str:
    from pyanalyze.text.escape import visible
    from pyanalyze.text.format import count, duration, percent

    whole_ns = sum(row["total_ns"] for row in found.rows)
    kernels = sum(row["kernels"] for row in found.rows)
    times = ("total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "stddev_ns")
    lines = [("share", "kernels", *(time.removesuffix("_ns") for time in times), "name")]
    for row in found.rows:
        share = percent(row["total_ns"] / whole_ns if whole_ns else None)
        # Of a single kernel there is no deviation.
        spread = (duration(row[time]) if row[time] is not None else "-" for time in times)
        name = visible(row["short_name"] or row["name"] or "(no name in the export)", limit=_NAME_COLUMNS)
        lines.append((share, count(row["kernels"]), *spread, name))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = [f"capture: {visible(path, limit=None)}" for path in found.paths]
    if found.rows:
        what = f"{count(kernels)} kernels of {count(len(found.rows))} names, {duration(whole_ns)} as recorded"
        out.append(f"{what}; all processes added up: a row may mix tenants, share is of that sum")
    elif found.known:
        out.append("no kernels in the selection")
    for *cells, name in lines if found.rows else ():
        out.append("  ".join([*(cell.rjust(width) for cell, width in zip(cells, widths, strict=False)), name]))
    out.extend(f"not available: {_gap(gap)}" for gap in found.missing)
    for row in found.quality:
        detail = f": {visible(row['detail'], limit=None)}" if row["detail"] else ""
        out.append(f"  [{row['severity']}] {row['name']} x{count(row['count'])}{detail}")
    return "\n".join(out)
