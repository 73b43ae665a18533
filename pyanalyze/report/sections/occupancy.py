"""SM occupancy, by the model and by counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import SM_ORDER_ASSUMED_FROM_MAJOR
from pyanalyze.analysis.occupancy import grid_fill, kernel_time, uneven_grid
from pyanalyze.report.blocks import (
    Block,
    Cell,
    Chart,
    Column,
    Fact,
    Facts,
    Fold,
    Note,
    Para,
    Table,
    chart_key,
    value_cell,
)
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.missing import why_missing, why_missing_or_nothing
from pyanalyze.report.sentences.occupancy import bounded_text, by_traced, kernels_in_flight, while_in_flight
from pyanalyze.report.sentences.samples import samples_text
from pyanalyze.report.sentences.tenants import residency_labels
from pyanalyze.report.sentences.words import LONG, recorded_ns
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop
from pyanalyze.vocabulary import FEW_BLOCKS, SMALL_SHARE, TRAITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from pyanalyze.results.occupancy import Bounded, GpuMetrics, KernelCounters, Occupancy
    from pyanalyze.results.report import Device

#: Kernel configurations in the occupancy table: the ones with most time.
TOP_KERNELS = 20


#: Where `SM_ACTIVE_SPREAD` and the intervals of `kernel_occupancy` come from (`tests/bench/launches.py`).
_INTERVALS = "{} contained the Nsight Compute counter for 95 % of 891 launches of other programs. "


def _end(found: Bounded) -> str:
    """Which end of a range the model gives; empty: a value inside, or there is no range."""
    least, known, most = (fmt.percent(one, 0) for one in (found.low, found.value, found.high))
    if least == most or known not in (least, most):
        return ""
    return "upper" if known == most else "lower"


def _which_ranges(occupancy: Occupancy) -> str:
    """What to call the ranges whose source is told: next to nothing has none, but kernels have theirs."""
    shown = any(bounded_text(one) != fmt.percent(one.value) for one in (occupancy.sm_active, occupancy.warps))
    return "Such ranges" if shown else "Such intervals of warps per SM (last table)"


def _at_end(found: Bounded) -> str:
    """Say which end of a range the model gives, where it has no value inside."""
    end = _end(found)
    # In numbers: this row may stand beside one where the model gives neither end.
    return f"; the model gives {fmt.percent(found.value, 0)}, the {end} end" if end else ""


def _drawn(occupancy: Occupancy) -> str:
    """Say that charts draw the model's value, without the correction that makes its range and the kernels' means."""
    if occupancy.basis != "modelled" or occupancy.calibration is not None:
        return ""
    end = _end(occupancy.warps)
    of_range = f", the {end} end of the range above" if end else ""
    return (
        " The chart leaves out what starting, ending and uneven blocks cost; its mean is "
        f"{fmt.percent(occupancy.warps.value, 0)}{of_range}."
    )


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    blocks: list[Block] = []
    occupancy, metrics = device.occupancy, device.gpu_metrics
    if occupancy is None and metrics is not None:
        blocks += _counters(device, metrics)
    elif occupancy is None:
        blocks.append(Note("Occupancy is not known", why_missing(device, "occupancy")))
        if device.sm_active_at_most is not None:
            at_most = f"at most {fmt.percent(device.sm_active_at_most)}"
            of = f"mean over the window{by_traced(device)}, by the blocks of the grids and the time in flight"
            blocks.append(Facts((Fact("SMs active", at_most, of, "inferred"),)))
    else:
        check = occupancy.check_against_counters
        over = f"mean over the window{by_traced(device)}"
        facts = [
            Fact(
                "SMs active",
                bounded_text(occupancy.sm_active),
                f"{over}{_at_end(occupancy.sm_active)}",
                occupancy.basis,
            ),
            Fact(
                "Warp slots in use", bounded_text(occupancy.warps), f"{over}{_at_end(occupancy.warps)}", occupancy.basis
            ),
        ]
        if (busy := while_in_flight(occupancy)) is not None:
            active, warps = busy
            part, in_flight = fmt.percent(occupancy.in_flight), kernels_in_flight(device)
            covered = f"mean over the {part} of the window with {in_flight}"
            facts += [
                Fact("SMs active, time with kernels", bounded_text(active), covered, occupancy.basis),
                Fact("Warp slots in use, time with kernels", bounded_text(warps), covered, occupancy.basis),
            ]
        if check is not None:
            facts.append(
                Fact("SMs active by counter", fmt.percent(check.sm_active), samples_text(device, check), "sampled")
            )
            if check.warps is not None:
                facts.append(
                    Fact("Warp slots by counter", fmt.percent(check.warps), samples_text(device, check), "sampled")
                )
        blocks.append(Facts(tuple(facts)))
        if device.missing_for("sm_sets"):
            blocks.append(
                Para(
                    "The sizes of the SM sets of green contexts are not recorded. The model lets every kernel use "
                    f"{_all_sms(device)}, also those that its green context does not have."
                )
            )
        if occupancy.calibration is not None:
            blocks.append(Para(f"Calibrated to hardware counters: {visible(occupancy.calibration, LONG)}."))
        elif check is not None and check.warps is not None:
            blocks.append(
                Para(
                    "The model is not calibrated to the hardware counters, which also count work that is not modelled."
                )
            )
        measured = occupancy.check_against_blocks
        if measured is not None:
            blocks.append(
                Para(
                    f"Measured blocks ({fmt.counted(measured.kernels, 'kernel')}): modelled warps per SM are "
                    f"{fmt.percent(measured.sorted_error)} off with SMs sorted and "
                    f"{fmt.percent(measured.by_sm_error)} by SM number; spread evenly they are "
                    f"{fmt.percent(measured.sorted_error_even)} off "
                    f"({fmt.count(measured.bins)} time bins)."
                )
            )
        ranges = _INTERVALS.format(_which_ranges(occupancy)) if occupancy.basis == "modelled" else ""
        if check is None:
            blocks.append(Para(f"{ranges}{why_missing_or_nothing(device, 'gpu_metrics')}".strip(), "muted"))
        else:
            if occupancy.counters_disagree:
                text = "The counters saw another occupancy than the model: " + visible(check.detail, LONG)
                blocks.append(Note("Model and counters disagree", text, "warning"))
            else:
                inside = " That is inside the modelled range, away from its value." if check.agrees is False else ""
                blocks.append(Para(f"{full_stop(capital(visible(check.detail, LONG)))}{inside}"))
            if ranges:
                blocks.append(Para(ranges.strip(), "muted"))
            blocks.append(
                Chart(
                    chart_key("counters", device.device_id),
                    f"SMs active{'' if check.warps is None else ' and warps'}, modelled and by hardware counter",
                    "Counters count all tenants together.",
                )
            )
        blocks.append(
            Chart(
                chart_key("occupancy", device.device_id),
                "Modelled occupancy over time",
                f"Resident warps over all warp slots, stacked by tenant.{_drawn(occupancy)}",
            )
        )
        blocks.append(
            Fold(
                "The same by TPC and time (modelled)",
                (
                    Chart(
                        chart_key("sm_heatmap", device.device_id),
                        "Modelled warps by TPC and time",
                        "A row is the mean of the two SMs of a TPC; where it is darkest, hardly a block is on either. "
                        f"It is hatched, because no trace records the SM of a block.{_assumed_numbers(device)}",
                    ),
                ),
            )
        )
        if occupancy.limiters:
            limits = [("shared memory" if k == "shared" else visible(k, 24), v) for k, v in occupancy.limiters.items()]
            rows = tuple((Cell(k), Cell(fmt.percent(v))) for k, v in sorted(limits, key=lambda kv: -kv[1]))
            columns = (Column("Limiting resource"), Column("Kernel time it limits", "ties count for each", True))
            caption = "Resources that keep theoretical occupancy below 100 % (modelled)."
            blocks.append(Table(columns, rows, caption))
            if occupancy.small_grids >= SMALL_SHARE:
                blocks.append(Para(_small_grids(occupancy)))
        else:
            blocks.append(Para(_no_resource(device, occupancy, inputs.kernels)))
    blocks += _kernel_blocks(device, inputs.kernels)
    return blocks


def _no_resource(device: Device, occupancy: Occupancy, kernels: pl.DataFrame | None) -> str:
    """Say that no resource of the SM limits any kernel: occupancy is full, or grids leave SMs empty."""
    full = "Theoretical occupancy is 100 %: no resource of the SM limits it (modelled)."
    few = f" {_small_grids(occupancy)}" if occupancy.small_grids >= SMALL_SHARE else _too_few_blocks(device, kernels)
    return f"{full}{few}"


def _small_grids(occupancy: Occupancy) -> str:
    """Say which part of kernel time is of grids that leave many SMs empty, and what that means."""
    part = fmt.percent(occupancy.small_grids)
    return (
        f"Launches that take {part} of kernel time have at most {FEW_BLOCKS:g} blocks per SM: "
        f"they reach at most {fmt.percent(FEW_BLOCKS, 0)} of the SMs. Theoretical occupancy does not count that."
    )


def _too_few_blocks(device: Device, kernels: pl.DataFrame | None) -> str:
    """Say that no grid fills the SMs once, where that is so: then its blocks limit how full they are."""
    rows = [] if kernels is None else kernels.iter_rows(named=True)
    usable = _usable_sms(device)
    fills = [grid_fill(row, device.sm_count, usable) for row in rows if row["device_id"] == device.device_id]
    known = [(one.waves, one) for one in fills if one.waves is not None]
    waves, largest = max(known, key=lambda one: one[0], default=(1.0, None))
    if largest is None or len(known) < len(fills) or waves >= 1:
        return ""
    left = "block slots stay empty"
    if largest.blocks is not None and largest.sms is not None:
        enough = largest.blocks >= largest.sms
        left = f"it has a block for every SM, but {left}" if enough else "too few blocks leave SMs empty"
    said = f" But the largest grid fills {fmt.percent(waves)} of one wave: {left}."
    uneven = uneven_grid(largest)
    if uneven is None:
        return said
    last = f"the last part of each launch keeps {uneven.fuller_sms} of {uneven.sms} SMs busy"
    return f"{said} It is uneven: {uneven}. Where blocks of one SM slow each other, {last}."


def _usable_sms(device: Device) -> dict[int, int]:
    """SMs of tenants that may not use all, by tenant."""
    return {tenant.tenant_id: tenant.usable_sms for tenant in device.tenants if tenant.usable_sms is not None}


def _counters(device: Device, metrics: GpuMetrics) -> list[Block]:
    """List the hardware counters of a device without traced kernels; those that never counted stand in the caption."""
    labels = residency_labels(device)
    # One tenant's column would repeat that of all.
    tenants = metrics.tenants if len(metrics.tenants) > 1 else []
    rows = tuple(
        (
            Cell(one.name),
            *(Cell(fmt.percent(value)) for value in (one.mean, one.low, one.high)),
            *(Cell(fmt.percent(tenant.means[one.name])) for tenant in tenants),
        )
        for one in metrics.counters
        if one.high
    )
    columns = (
        Column("Counter"),
        *(Column(head, numeric=True) for head in ("Mean", "Least", "Most")),
        *(
            Column(labels.get(one.tenant_id, f"tenant {one.tenant_id}"), f"mean, n = {one.n}", numeric=True)
            for one in tenants
        ),
    )
    zero = [one.name for one in metrics.counters if not one.high]
    caption = f"Hardware counters of the whole device as nsys names them (sampled): {samples_text(device, metrics)}."
    if tenants:
        caption += (
            " Means of a tenant are of samples during which it was resident, by switch records, and no other was."
        )
    if zero:
        caption += f" 0 in every sample: {visible(', '.join(zero), LONG)}."
    whose = "" if tenants else "Whose work it was is not known. "
    text = f"{whose}{why_missing(device, 'occupancy')}"
    return [*([Table(columns, rows, caption)] if rows else [Para(caption)]), Para(text, "muted")]


def _title(device: Device) -> str:
    sampled = device.occupancy is None and device.gpu_metrics is not None
    return f"SM occupancy ({'sampled' if sampled else 'modelled'})"


def _all_sms(device: Device) -> str:
    return "all SMs" if device.sm_count is None else f"all {fmt.count(device.sm_count)} SMs"


def _assumed_numbers(device: Device) -> str:
    """Say that SM numbers are assumed, unless the device's order among equally full SMs is measured."""
    major = (device.compute_capability or "").partition(".")[0]
    if major.isdecimal() and int(major) < SM_ORDER_ASSUMED_FROM_MAJOR:
        return ""
    return " SM numbers are assumed: compare how many rows are full, not which."


def _kernel_blocks(device: Device, kernels: pl.DataFrame | None) -> list[Block]:
    if kernels is None:
        return [Para("This report has no launch configurations.", "muted")]
    mine = [row for row in kernels.iter_rows(named=True) if row["device_id"] == device.device_id]
    if not mine:
        # Why there are none is said above.
        return []
    time = kernel_time(kernels.filter(kernels["device_id"] == device.device_id))
    if recorded_ns(device) is not None:
        # Time without switch records would count as resident.
        time = None
    mine.sort(key=lambda row: -int(row[time or "total_ns"]))
    labels = tenant_labels(device.tenants)
    usable = _usable_sms(device)
    found = [] if device.occupancy is None else device.occupancy.kernel_counters
    counted = {(one.name, one.grid_blocks, one.block_threads): one for one in found}
    rows = tuple(_kernel_row(row, labels, device, usable, counted, time) for row in mine[:TOP_KERNELS])
    # Of a capped client the fewer SMs make more waves.
    capped = not usable and TRAITS[device.sharing.mode].capped and device.sm_count is not None
    columns = (
        Column("Kernel"),
        Column("Tenant"),
        Column("Resident time", "sum, without time switched out", True)
        if time
        else Column("Time", "sum of durations", True),
        Column("Launches", numeric=True),
        Column("Occupancy", "theoretical", True),
        Column("Occupancy limited by"),
        Column("Waves", f"of blocks{'' if capped else '; below 1: empty block slots'}", True),
        Column("Warps per SM", f"corrected mean {'of all SMs, ' if usable else ''}when solo, 95 % CI", True),
        Column("Grid x block", "blocks x threads", numeric=True, minor=True),
        Column("Registers", "per thread", numeric=True, minor=True),
        Column("Shared", "per block", numeric=True, minor=True),
        *([Column("Counters", "mean while it ran; n samples", minor=True)] if counted else []),
    )
    more = f" of {fmt.count(len(mine))}" if len(mine) > TOP_KERNELS else ""
    few = [
        f"{visible(row['short_name'] or row['name'], 24)} ({fill})"
        for row in mine[:TOP_KERNELS]
        if (fill := grid_fill(row, device.sm_count, usable)).blocks and fill.sms and fill.blocks < fill.sms
    ]
    fewer = f" With fewer blocks than SMs: {fmt.names(list(dict.fromkeys(few)), 3)}." if few else ""
    over = ""
    if usable:
        each = fmt.names([f"{labels[tenant]} {fmt.count(sms)}" for tenant, sms in usable.items()], most=4)
        over = f" Waves are over the SMs that each tenant may use: {each}, of {fmt.count(device.sm_count)}."
    elif capped:
        over = f" Waves are over {_all_sms(device)}. A process or context that has fewer has more waves."
    of_time = "resident time" if time else "time"
    most = f"The {len(rows)}{more} launch configurations with the most {of_time}. "
    return [
        Chart(
            chart_key("limiters", device.device_id),
            "Occupancy limit of each kernel",
            f"Theoretical occupancy of the kernels with the most {of_time}, coloured by what limits it.",
        ),
        Table(
            columns,
            rows,
            ("" if len(rows) == 1 else most)
            + f"Times and launches are observed; occupancy, waves and warps are modelled.{fewer}{over}"
            + (" Counters are sampled while no other kernel was in flight." if counted else ""),
        ),
    ]


def _kernel_row(
    row: Mapping[str, object],
    labels: Mapping[int, str],
    device: Device,
    usable: Mapping[int, int],
    counted: Mapping[tuple[str, int | None, int | None], KernelCounters],
    time: str | None,
) -> tuple[Cell, ...]:
    """One launch configuration.

    `usable`: SMs of tenants that may not use all; `counted`: empty without counters; `time`: the column of its resident
    time, None where durations stand for it.
    """

    def whole(key: str) -> int | None:
        value = row.get(key)
        return int(value) if isinstance(value, int) else None

    def real(key: str) -> float | None:
        value = row.get(key)
        return float(value) if isinstance(value, int | float) else None

    def words(key: str) -> str:
        value = row.get(key)
        return visible(value if isinstance(value, str) else None)

    tenant = whole("tenant_id")
    owner = fmt.UNKNOWN if tenant is None else labels.get(tenant, f"#{tenant}")
    grid, block = whole("grid_blocks"), whole("block_threads")
    shape = fmt.UNKNOWN if grid is None or block is None else f"{fmt.count(grid)} x {fmt.count(block)}"
    fill = grid_fill(row, device.sm_count, usable)
    # Why the occupancy of none is known stands above the table.
    above = device.occupancy is None
    reason = row.get("reason")
    limit = words("limiters").replace(",", ", ").replace("shared", "shared memory") or (
        visible(reason, 200) if isinstance(reason, str) and not above else fmt.UNKNOWN
    )
    if (real("occupancy") or 0.0) >= 1:
        limit = "nothing"
    return (
        Cell(words("short_name") or words("name") or "unnamed", tone="code", note=words("name")),
        Cell(owner, tone="code"),
        Cell(fmt.duration(whole(time or "total_ns"))),
        Cell(fmt.count(whole("launches"))),
        value_cell(fmt.percent(real("occupancy"))),
        Cell(limit),
        value_cell(fmt.number(fill.waves)),
        value_cell(_mean_warps(*(real(f"mean_warps_per_sm{end}") for end in ("", "_low", "_high")))),
        value_cell(shape),
        value_cell(fmt.count(whole("registers_per_thread"))),
        value_cell(fmt.bytes_(whole("shared_bytes"))),
        *([_counters_cell(counted.get((str(row["name"]), grid, block)))] if counted else []),
    )


def _counters_cell(counted: KernelCounters | None) -> Cell:
    if counted is None:
        return Cell(fmt.UNKNOWN)
    if not counted.whole_course:
        part = fmt.percent(counted.course, 0)
        if counted.course_from == 0:
            which = f"the first {part} of each launch was"
        elif round(counted.course_from + counted.course, 2) >= 1:
            which = f"the last {part} of each launch was"
        else:
            which = f"{part} of each launch were"
        return Cell(f"{fmt.UNKNOWN}: only {which} without another kernel in flight (n = {fmt.count(counted.n)})")
    means = ", ".join(f"{visible(name)} {fmt.percent(mean, 0)}" for name, mean in counted.means.items())
    return Cell(f"{means} (n = {fmt.count(counted.n)})")


def _mean_warps(value: float | None, low: float | None, high: float | None) -> str:
    if value is None or low is None or high is None:
        return fmt.UNKNOWN
    return f"{fmt.number(value)} ({fmt.number(low)} to {fmt.number(high)})"


SECTION = DeviceSection("occupancy", "SM occupancy (modelled)", _blocks, _title, of_trace=True)
