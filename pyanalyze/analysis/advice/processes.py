"""What each process of a device can gain by itself: its numbers, for :mod:`pyanalyze.analysis.advice.own_time`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyanalyze.analysis.advice import demands, host_side, overlap, own_time
from pyanalyze.analysis.gpu_metrics import ENOUGH_SAMPLES
from pyanalyze.analysis.hardware import visible_sms
from pyanalyze.analysis.occupancy import UnevenGrid, grid_fill, uneven_grid
from pyanalyze.analysis.time_split import MOST_EQUAL, about_kernel
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import FEW_BLOCKS, TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.advice import Advice
    from pyanalyze.results.copies import Copies
    from pyanalyze.results.occupancy import KernelCounters
    from pyanalyze.results.streams import Streams
    from pyanalyze.results.time_split import TimeSplit
    from pyanalyze.tables.tableset import TableSet


def of_each(
    tables: TableSet,
    verdict: Verdict,
    splits: Mapping[tuple[int, int], TimeSplit],
    copies: Mapping[tuple[int, int], Copies],
    streams: Mapping[tuple[int, int], Streams],
    kernel_counters: Sequence[KernelCounters],
) -> Iterator[Advice]:
    """Advise each process what to change about its own time and its streams."""
    import polars as pl

    names = tables.labels(verdict.device_id)
    mine = {tenant: split for (device, tenant), split in splits.items() if device == verdict.device_id}
    # What a process did with its own time holds as well where it is not known who else was there.
    alone = TRAITS[verdict.mode].one_process or (
        verdict.mode == Mode.UNDETERMINED and len(tables.rows_of("tenants", verdict.device_id)) == 1
    )
    sole = alone and len(mine) == 1
    for tenant, split in mine.items():
        name = names.get(tenant, f"tenant {tenant}")
        key = (verdict.device_id, tenant)
        if sole:
            launched = _launched(tables, key, kernel_counters)
            named, left_ns = _kernel_to_name(tables, key, split, launched)
            kernel = _top_kernel(tables, key, named, split, left_ns, launched)
            sampled = "cpu_samples" in tables.sources["source"].cast(pl.String)
            yield from own_time.of_process(name, named, copies.get(key), kernel=kernel, sampled=sampled)
            uneven = _uneven(tables, key, named.top_kernel, kernel_counters)
            if uneven is not None:
                yield from own_time.even_grid(name, named, *uneven)
        else:
            yield from own_time.of_shared_process(name, split, copies.get(key))
        used = streams.get(key)
        if used is not None and host_side.could_overlap(split):
            yield from overlap.between_streams(name, used)


def _kernel_to_name(
    tables: TableSet, tenant: tuple[int, int], split: TimeSplit, launched: Sequence[_Launched]
) -> tuple[TimeSplit, dict[str, int]]:
    """The split about the kernel that leaves most to gain by the counters, and what each kernel leaves at most.

    Without counters it is the one with most time. Of kernels that run at once, counters show only what one does solo.
    """
    # Of these what they leave is their own: one with as much time may leave nothing.
    have_counters = {one.kernel for one in launched if one.used is not None}
    if not have_counters or split.top_kernel is None or split.mostly_graphs:
        return split, {}
    if split.overlapping:
        one_only = split.top_kernel in have_counters
        return (split.model_copy(update={"top_kernel_equals": []}) if one_only else split), {}
    left_ns: dict[str, float] = {}
    for one in launched:
        if one.kernel is not None:
            # Launches that no sample fits into may leave all of it.
            left_ns[one.kernel] = left_ns.get(one.kernel, 0) + one.ns * (1 - min(one.used or 0.0, 1.0))
    first, *rest = sorted(left_ns, key=lambda one: (-left_ns[one], one))
    left = {one: fmt.percent(ns / split.window_ns) for one, ns in left_ns.items()}
    equals = [one for one in rest if left[one] == left[first] and not {one, first} & have_counters][:MOST_EQUAL]
    named = about_kernel(tables, tenant, split, first).model_copy(update={"top_kernel_equals": equals})
    return named, {one: round(ns) for one, ns in left_ns.items()}


class _Launched(NamedTuple):
    """A launch configuration: its kernel, its time, and which part of what it used most while it ran."""

    kernel: str | None
    ns: int
    #: None: no counters are of it.
    used: float | None
    resource: demands.Resource
    said: str


def _launched(tables: TableSet, tenant: tuple[int, int], counted: Sequence[KernelCounters]) -> list[_Launched]:
    """The launch configurations of a tenant with what counters say of them."""
    import polars as pl

    of_launch = {
        (one.name, one.grid_blocks, one.block_threads): demands.most_used(one) for one in counted if one.whole_course
    }
    rows = tables.of_device("kernel_occupancy", tenant[0]).filter(pl.col("tenant_id") == tenant[1])
    text = (pl.col(name).cast(pl.String) for name in ("short_name", "name"))
    found = []
    for kernel, name, ns, *launch in rows.select(*text, "total_ns", "grid_blocks", "block_threads").rows():
        resource, said, used = of_launch.get((name, *launch), (demands.Resource.ISSUE, "", None))
        found.append(_Launched(kernel, ns, used, resource, said))
    return found


def _top_kernel(
    tables: TableSet,
    tenant: tuple[int, int],
    named: TimeSplit,
    split: TimeSplit,
    left_ns: Mapping[str, int],
    launched: Sequence[_Launched],
) -> own_time.TopKernel | None:
    """What the named kernel of the only process leaves of the device; None: nothing is known."""
    kernel, top = named.top_kernel, split.top_kernel
    if kernel is None or top is None:
        return None
    mine = [one for one in launched if one.kernel == kernel]
    found = [(one.ns, one.resource, one.said, one.used) for one in mine if one.used is not None]
    used = min(sum(ns * part for ns, *_, part in found) / max(sum(one.ns for one in mine), 1), 1.0)
    less = kernel != top and left_ns[top] < left_ns[kernel]
    passed_over = (top, left_ns[top]) if less else None
    first = f" of {kernel}" if named.top_kernel_equals else ""
    _, resource, used_words, _ = max(found, default=(0, demands.Resource.ISSUE, "", 0.0))
    few_blocks = _small_grids(tables, tenant[0], kernel)
    if few_blocks is not None:
        blocks, sms = few_blocks
        whose = f"grids{first}" if first else "its grids"
        said = f"{whose} have at most {fmt.counted(blocks, 'block')} for {sms} SMs"
        return own_time.TopKernel(said, few_blocks, used, passed_over, resource=resource, used_words=used_words)
    if found:
        said = f"while it ran, {used_words} (sampled)"
        return own_time.TopKernel(said, None, used, passed_over, resource=resource, used_words=used_words)
    if any(one.used is not None for one in launched):
        whose = f"launches{first}" if first else "its launches"
        said = f"fewer than {ENOUGH_SAMPLES} samples of counters fit into {whose}"
        return own_time.TopKernel("", None, 0.0, passed_over, not_counted=said)
    of_all = _resource_used_up(tables, *tenant)
    return own_time.TopKernel(of_all) if of_all else None


def _uneven(
    tables: TableSet, tenant: tuple[int, int], kernel: str | None, counted: Sequence[KernelCounters]
) -> tuple[UnevenGrid, float] | None:
    """The uneven grid of a kernel, and the mean part of SMs that counters saw active while it ran; None: no such.

    Only counters show whether SMs with fewer blocks end earlier. Several launch configurations have no one grid.
    """
    import polars as pl

    if kernel is None:
        return None
    device_id, tenant_id = tenant
    here = (pl.col("tenant_id") == tenant_id) & (pl.col("short_name").cast(pl.String) == kernel)
    rows = tables.of_device("kernel_occupancy", device_id).filter(here).to_dicts()
    if len(rows) != 1:
        return None
    (row,) = rows
    (device,) = tables.rows_of("devices", device_id)
    uneven = uneven_grid(grid_fill(row, device["sm_count"], visible_sms(tables, device_id)))
    launch = (row["name"], row["grid_blocks"], row["block_threads"])
    whole = {(one.name, one.grid_blocks, one.block_threads): one.sms_active for one in counted if one.whole_course}
    active = whole.get(launch)
    return None if uneven is None or active is None else (uneven, active)


def _small_grids(tables: TableSet, device_id: int, kernel: str) -> tuple[int, int] | None:
    """Most blocks of a grid of a kernel, and SMs of the device, where all its grids leave many of these empty."""
    import polars as pl

    sms = tables.devices.filter(pl.col("device_id") == device_id)["sm_count"].item()
    named = pl.col("short_name").cast(pl.String) == kernel
    grids = tables.of_device("kernel_occupancy", device_id).filter(named)["grid_blocks"]
    most = grids.max()
    if not sms or not isinstance(most, int) or grids.null_count() or most > FEW_BLOCKS * sms:
        return None
    return most, int(sms)


def _resource_used_up(tables: TableSet, device_id: int, tenant: int) -> str:
    """Say that DRAM or the SMs do not have much more to give to the kernels of the only process; empty: not sampled."""
    for resource, used in (
        ("DRAM bandwidth", demands.bandwidth),
        ("the throughput of the SMs", demands.sm_throughput),
    ):
        part = used(tables, device_id, [tenant], time_sliced=False).get(tenant, 0.0)
        if part >= demands.USED_UP:
            return f"its kernels take {fmt.percent(part, 0)} of {resource} (sampled)"
    return ""
