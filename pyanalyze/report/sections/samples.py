"""What samples and listings show: use over time, tenants that they name, and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from pyanalyze.report.sampled_text import (
    ALMOST_ALL,
    association_text,
    counters_table,
    engines_sentence,
    engines_text,
    health_parts,
    idle_note,
    least_to_most,
    memory_text,
    only_sampled,
    outside_window,
    range_text,
    sampled_times,
    seen_text,
    share_text,
    sharing_sentence,
    throttling_text,
)
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.words import LONG, id_text
from pyanalyze.results.labels import listed_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import MPS_CUT_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.results.listed import ListedTenant, Setting
    from pyanalyze.results.report import Device, Sampled
    from pyanalyze.results.sampled import SampledCounter

#: What the chart draws of the engines of a device, by counter, and what it is.
_SHARES = {
    "gpu_utilization": ("Utilisation", "the share of time in which a kernel ran, not occupancy"),
    "gr_engine_active": ("Graphics engine active", "the share of time with graphics or compute work, not occupancy"),
    "sm_active": ("SMs active", "the share of SMs with at least one warp"),
}
#: Rows of a list that are shown outside of a fold.
_MOST = 40


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    blocks: list[Block] = []
    who = sharing_sentence(inputs.report, device)
    # Where there is nothing else the page begins with this sentence.
    if who is not None and not only_sampled(inputs.report, device):
        # A name keeps its first letter as it is.
        blocks.append(Para(f"{who}."))
    if (outside := outside_window(device)) is not None:
        blocks.append(Para(outside))
    if (busier := engines_sentence(device)) is not None:
        blocks.append(Para(f"{capital(busier)}."))
    wrong = health_parts(device)
    if wrong:
        blocks.append(Note("Health", f"{capital('; '.join(wrong))}.", "warning"))
    if device.sampled is not None:
        if not only_sampled(inputs.report, device):
            blocks.append(use_chart(device))
        blocks += [_figures(device), *counters_table(device)]
    blocks += [Para(f"{capital(association_text(one))}.") for one in device.associations]
    blocks += tenants_table(device.listed, inputs, "Tenants that samples and listings name (sampled, configured).")
    blocks += settings_fold(device.settings, "Settings of this device")
    return blocks


def use_chart(device: Device) -> Chart | Para:
    """Draw what was sampled over time; of one moment there is nothing to draw."""
    if device.sampled is not None and device.sampled.one_moment:
        return Para("One reading: there is nothing to draw over time.", "muted")
    counters = () if device.sampled is None else device.sampled.counters
    # The first of them is the one that is drawn.
    name, meaning = next((_SHARES[one.name] for one in counters if one.name in _SHARES), ("Utilisation", ""))
    found = device.sampled
    said = [f"{name} is {meaning} (sampled)." if meaning else "Sampled."]
    if found is not None and found.covered_share is not None and found.covered_share < ALMOST_ALL:
        said.append("Time without samples has no line.")
    if found is not None and found.without_time:
        of = f"{fmt.count(found.without_time)} of {fmt.counted(found.n, 'sample')}"
        said.append(f"{of} have no time and are not drawn.")
    return Chart(chart_key("samples", device.device_id), f"{name} and memory over time", " ".join(said))


def _figures(device: Device) -> Facts:
    found = device.sampled
    if found is None:
        return Facts(())
    memory, used = device.memory, found.counter("memory_used")
    peak, total = (None, None) if memory is None else (memory.peak_bytes, memory.total_bytes)
    of_device = f"; {fmt.percent(peak / total)} of the device" if peak is not None and total else ""
    errors = (
        fmt.UNKNOWN if found.xid is None else ", ".join(map(str, found.xid)) or "none",
        fmt.UNKNOWN if found.ecc_uncorrected is None else fmt.count(found.ecc_uncorrected),
    )
    rows = (
        ("Idle", fmt.percent(found.idle_share), idle_note(found)),
        ("Memory", fmt.bytes_(peak), f"peak of {_samples(used)}{of_device}{_spread(found, used)}"),
        ("Power", *_power(found)),
        ("Throttling", throttling_text(device), _throttling_source(found)),
        ("Xid errors", errors[0], "last codes"),
        ("Uncorrected ECC errors", errors[1], "since the driver was loaded"),
    )
    return Facts(
        tuple(Fact(label, value, note, "sampled") for label, value, note in rows if not value.startswith(fmt.UNKNOWN))
    )


def _throttling_source(found: Sampled) -> str:
    counted = found.throttling is not None and found.throttling.counted_ns is not None
    return "flags of the driver; its counters from first to last reading" if counted else "flags of the driver"


def _spread(found: Sampled, used: SampledCounter | None) -> str:
    """Mean and range of the memory, or the least of samples that are of separate moments."""
    if used is None:
        return ""
    if found.separate_moments:
        return f"; least {fmt.bytes_(used.low)}, at separate moments"
    return "; ".join(["", f"mean {fmt.bytes_(used.mean)}", *filter(None, [range_text(used)])])


def _power(found: Sampled) -> tuple[str, str]:
    """Power, and what it is of: with its limit, where that was sampled."""
    power = found.counter("power")
    if power is None:
        return fmt.UNKNOWN, ""
    limit = [] if found.power_limit_w is None else [f"limit {found.power_limit_w:.0f} W"]
    if found.separate_moments:
        of = [f"least to most of {_samples(power)} at separate moments"]
        return least_to_most(power), "; ".join([*of, *limit])
    ranges = filter(None, [range_text(power)])
    return f"{power.mean:.0f} W", "; ".join([f"mean of {_samples(power)}", *ranges, *limit])


def _samples(counter: SampledCounter | None) -> str:
    return "samples" if counter is None else fmt.counted(counter.n, "sample")


def tenants_table(listed: Sequence[ListedTenant], inputs: Inputs, caption: str) -> list[Block]:
    """List tenants: what each is, what it asked for and used; empty: none."""
    if not listed:
        return []
    labels = listed_labels(listed)
    clock = inputs.report.clock
    cells = [
        (
            Cell(labels[number], tone="code", note=visible(one.name, LONG)),
            Cell(
                one.kind + (f" ({visible(one.process_type, 8)})" if one.process_type else ""),
                note=f"named by {', '.join(visible(source) for source in one.sources)}",
            ),
            value_cell(id_text(one.pid)),
            value_cell(_whose(one)),
            value_cell(visible(one.mig) or fmt.UNKNOWN),
            value_cell(visible(one.requested, LONG) or fmt.UNKNOWN),
            value_cell(share_text(one)),
            value_cell(engines_text(one) or ("none" if one.engines else fmt.UNKNOWN)),
            value_cell(fmt.count(sampled_times(one))),
            value_cell(memory_text(one)),
            value_cell(seen_text(one, clock)),
        )
        for number, one in enumerate(listed)
    ]
    heads = (
        # The MPS server is listed, and no tenant.
        Column("Listed"),
        Column("Kind"),
        Column("pid", numeric=True),
        Column("Namespace/pod/container"),
        Column("MIG instance"),
        Column("Requested", "configured"),
        Column("Utilisation", "mean, sampled", True),
        Column("Other engines", "mean, sampled"),
        Column("Samples", "of the means", True),
        Column("Memory", "peak, sampled", True),
        Column("Seen"),
    )
    # What is known of no tenant is no column.
    kept = [n for n in range(len(heads)) if any(row[n].text != fmt.UNKNOWN for row in cells)]
    columns = tuple(heads[n] for n in kept)
    rows = [tuple(row[n] for n in kept) for row in cells]
    if any(" to " in share_text(one) for one in listed):
        caption += (
            " Utilisation is a range where some samples have no value of the process: its lower end counts them as no "
            "use."
        )
    uses = [one.utilization.value for one in listed if one.utilization is not None]
    if sum(use for use in uses if use is not None) > 1:
        caption += " Utilisation adds up to more than 100 %: it does not divide the GPU between tenants."
    blocks: list[Block] = [Table(columns, tuple(rows[:_MOST]), caption)]
    if len(rows) > _MOST:
        blocks.append(Fold(f"{len(rows) - _MOST} more", (Table(columns, tuple(rows[_MOST:])),)))
    return blocks


def _whose(tenant: ListedTenant) -> str:
    parts = (tenant.namespace, tenant.pod, tenant.container)
    return "/".join(visible(part) for part in parts if part) or fmt.UNKNOWN


_MPS_NAMES = " (the control daemon and its server: their names are cut)"


def settings_fold(settings: Sequence[Setting], title: str) -> list[Block]:
    """Fold settings as the inputs state them; empty: none."""
    if not settings:
        return []
    # What several processes are said to have is one setting.
    pids: dict[tuple[str, str, str], list[int | None]] = {}
    for one in settings:
        pids.setdefault((one.key, one.value, one.source), []).append(one.pid)
    rows = tuple(
        (
            Cell(visible(key), tone="code"),
            Cell(f"{visible(value, None)}{_MPS_NAMES if value == MPS_CUT_NAME and len(of) > 1 else ''}"),
            # Where no process is named, several captures say it.
            value_cell(", ".join(dict.fromkeys(id_text(pid) for pid in of))),
            Cell(visible(source)),
        )
        for (key, value, source), of in pids.items()
    )
    columns = (Column("Setting"), Column("Value"), Column("pid", numeric=True), Column("Said by"))
    caption = "As the inputs state them (configured)."
    if any(one.source == "process-list" for one in settings):
        caption += " process-list: the processes of the machine, as the capture lists them."
    return [Fold(f"{title} ({len(rows)})", (Table(columns, rows, caption),))]


SECTION = DeviceSection("samples", "Samples and listings", _blocks)
