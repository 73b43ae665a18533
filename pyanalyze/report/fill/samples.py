"""What samples cannot say, and how to take them so that they can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.report.fill.how import ENTITIES
from pyanalyze.results.model import Missing
from pyanalyze.text import format as fmt

if TYPE_CHECKING:
    from pyanalyze.results.report import Sampled
    from pyanalyze.tables.tableset import TableSet

#: Tools that write lines without times unless they are told to, by the format of what they write.
_CAN_WRITE_TIMES: Final = {"nvidia-smi-dmon": "nvidia-smi dmon", "nvidia-smi-pmon": "nvidia-smi pmon"}


def only_samples(sampled: Sampled | None) -> str:
    """Why there is no window without a capture: the device was used, and no traced kernel says when."""
    if sampled is None or sampled.start_ns is None or sampled.end_ns is None:
        return "no kernel was traced: there is no capture"
    return (
        f"no kernel was traced: there are samples of {fmt.duration(sampled.end_ns - sampled.start_ns)}, and no capture"
    )


def timeless_samples(tables: TableSet, device_id: int) -> list[Missing]:
    """Samples without times, where the tool that took them can write them."""
    here = tables.samples_of(device_id)
    if tables.paths or here.is_empty() or here["time_ns"].count():
        return []
    formats = set(here["format"])
    tools = [name for format_, name in _CAN_WRITE_TIMES.items() if format_ in formats]
    how = "; ".join(f"{name} -o DT > {name.partition(' ')[2]}.txt" for name in tools)
    if not tools:
        return []
    how += "   # writes date and time in each line; then --samples FILE"
    return [Missing(what="sample_times", why="no sample has a time, so use over time is not known", how=how)]


def unavailable_samples(tables: TableSet, device_id: int) -> list[Missing]:
    """Sampled quantities of the whole device that never had a value: under MIG the driver has no utilisation."""
    if tables.samples.is_empty():
        return []
    rows = tables.board_samples_of(device_id).get("gpu_utilization_pct")
    if rows is None or rows["value"].null_count() < rows.height:
        return []
    said = ", ".join(sorted(set(rows["text"].drop_nulls())))
    why = f"the driver gave no value in any of {rows.height} samples ({said}); under MIG it has none"
    how = (
        f"dcgmi dmon -e 1001,1002,1003 -i instance:ID > dcgm.txt   # {ENTITIES}; without -i it monitors GPUs only; it "
        "writes no times; then --samples dcgm.txt"
    )
    return [Missing(what="gpu_utilization", why=why, how=how)]
