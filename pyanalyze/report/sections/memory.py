"""Device memory of each tenant, and how much is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing.missing import HOW
from pyanalyze.report.blocks import Block, Cell, Column, Commands, Fact, Facts, Note, Para, Table, value_cell
from pyanalyze.report.sampled_text import only_sampled, outside_window
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import MEMORY_RESERVE

if TYPE_CHECKING:
    from pyanalyze.results.report import Device
    from pyanalyze.vocabulary import Basis


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    memory = device.memory
    labels = tenant_labels(device.tenants)
    # Where nothing was traced, those that lists name are the tenants.
    peaks = [one.memory_peak_bytes for one in device.tenants or device.listed]
    known = [peak for peak in peaks if peak is not None]
    together = sum(known)
    # Where lists of processes cannot be had, neither can their memory.
    listed = all(gap.how for gap in device.missing_for("process_list"))
    how = Commands(("pyanalyze record -- PROGRAM", *((HOW["nvml"],) if listed else ())))
    if not known and (memory is None or memory.peak_bytes is None):
        return [Note("Memory in use is not known", "To capture it, run one of these:"), how]
    total = None if memory is None else memory.total_bytes
    peak = None if memory is None else memory.peak_bytes
    # Of a board in MIG mode nobody can allocate what no instance has.
    in_instances = device.is_mig_board
    free = None if memory is None or in_instances else memory.headroom_bytes
    by_driver = memory is not None and memory.free_bytes is not None
    headroom = Fact(
        "Headroom",
        fmt.bytes_(free),
        "least free memory, by the driver" if by_driver else "total minus peak",
        "sampled" if free is not None else None,
    )
    # Without a capture the size of the device is what the driver told a tool.
    basis: Basis = "sampled" if only_sampled(inputs.report, device) else "observed"
    blocks: list[Block] = [
        Facts(
            (
                Fact("Device", fmt.bytes_(total), "total", None if total is None else basis),
                Fact(
                    "Peak in use",
                    fmt.bytes_(peak),
                    "used memory of the device",
                    "sampled" if peak is not None else None,
                ),
                *([] if in_instances else [headroom]),
                Fact(
                    "Sum of the tenants' peaks",
                    fmt.bytes_(together) if known else fmt.UNKNOWN,
                    f"{fmt.count(len(known))} of {fmt.counted(len(peaks), 'tenant')}" if peaks else "",
                    "sampled" if known else None,
                ),
            )
        )
    ]
    if total is not None and free is not None and free < MEMORY_RESERVE * total:
        text = f"{fmt.bytes_(free)} of {fmt.bytes_(total)} were free at the peak ({fmt.percent(free / total)})."
        blocks.append(Note("Memory is almost full", text, "warning"))
    elif total is not None and together > total:
        text = f"The sum of the tenants' peaks is {fmt.bytes_(together)}; the device has {fmt.bytes_(total)}."
        blocks.append(Note("Memory may run out if the peaks coincide", text, "warning"))
    elif in_instances:
        text = "MIG mode is on: programs allocate memory in MIG instances only, and each instance has its own headroom."
        blocks.append(Para(text, "muted"))
    elif free is not None:
        blocks.append(Para(_never_full(device), "muted"))
    if (outside := outside_window(device)) is not None:
        blocks.append(Para(outside, "muted"))
    if device.tenants:
        rows = tuple(
            (
                Cell(labels[t.tenant_id], tone="code"),
                value_cell(fmt.bytes_(t.memory_peak_bytes)),
                value_cell(fmt.percent(_part_of(t.memory_peak_bytes, total))),
            )
            for t in device.tenants
        )
        columns = (Column("Tenant"), Column("Peak", "sampled", True), Column("Of the device", numeric=True))
        blocks.append(Table(columns, rows, "Device memory per tenant (sampled)."))
    return blocks


def _never_full(device: Device) -> str:
    counter = None if device.sampled is None else device.sampled.counter("memory_used")
    free = f"At least {fmt.percent(MEMORY_RESERVE, 0)} of memory was free"
    if counter is not None and counter.n == 1:
        return f"{free} in the only sample of it."
    samples = "" if counter is None else f" in each of {fmt.count(counter.n)} samples"
    return f"{free}{samples}. Peaks between samples are not recorded."


def _part_of(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


SECTION = DeviceSection("memory", "Device memory", _blocks)
