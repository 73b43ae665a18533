"""What samples of a whole device say: use, idle share, throttling, memory, errors. Nothing of it is observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from pyanalyze.analysis.listed import UTILIZATION, VIDEO_ENGINES
from pyanalyze.results.report import Fault, Sampled, Throttling
from pyanalyze.results.sampled import SampledCounter
from pyanalyze.tables.process_lists import compute_processes, listed_times
from pyanalyze.text.numbers import bounded_int

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyanalyze.tables.tableset import TableSet

__all__ = ["sampled_of", "series_of"]

#: Quantities of the whole device that are summed up, in the order in which they are shown.
_COUNTERS = (
    "gpu_utilization_pct", "gr_engine_active_ratio", "sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio",
    "tensor_hmma_active_ratio", "tensor_imma_active_ratio", "tensor_dfma_active_ratio", "fp64_active_ratio",
    "fp32_active_ratio", "fp16_active_ratio", "int_active_ratio", "dram_active_ratio", "memory_utilization_pct",
    *(f"{engine}_utilization_pct" for engine in VIDEO_ENGINES), "memory_used_bytes",
    "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s",
    "power_w", "clock_sm_hz", "clock_memory_hz", "temperature_c",
)  # fmt: skip
#: Unit by the ending of a metric, and what its values are divided by.
_UNITS: dict[str, tuple[Literal["fraction", "bytes", "bytes/s", "Hz", "C", "W"], float]] = {
    "_pct": ("fraction", 100.0),
    "_ratio": ("fraction", 1.0),
    "_bytes": ("bytes", 1.0),
    "_bytes_per_s": ("bytes/s", 1.0),
    "_hz": ("Hz", 1.0),
    "_c": ("C", 1.0),
    "_w": ("W", 1.0),
}
#: What a counter is taken from, first that has values; all others from the metric of their name.
_OTHER_METRICS = {"power_w": ("power_w", "power_average_w", "power_instant_w")}
#: The limit that holds is the enforced one.
_POWER_LIMIT = ("power_limit_enforced_w", "power_limit_w")
#: Below this share of time a sample counts as idle: drivers round to whole per cent.
_IDLE = 0.01
#: Bits of `clocks_event_reasons.active` (NVML) and of DCGM's field 112, which has the same, that limit the clocks.
REASON_BITS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
_REASONS = frozenset(REASON_BITS.values())
_REASON_PREFIXES = ("clocks_event_reasons.", "clocks_throttle_reasons.")
_MASKS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active", "dcgm.dev_clock_throttle_reasons",
          "dcgm.dev_clocks_event_reasons")  # fmt: skip
_UNCORRECTED = ("ecc.errors.uncorrected.volatile.", "dcgm.dev_ecc_dbe_vol_", "ecc_double_bit_errors")
_CORRECTED = ("ecc.errors.corrected.volatile.", "dcgm.dev_ecc_sbe_vol_", "ecc_single_bit_errors")
#: Flags of the driver by metric, of nvidia-smi and of DCGM: what each says where it is set.
_FAULTS: dict[str, Fault] = {
    "remapped_rows.failure": "row-remapping-failed",
    "dcgm.dev_row_remap_failure": "row-remapping-failed",
    "unrepairable_memory": "unrepairable-memory",
    "remapped_rows.pending": "row-remapping-pending",
    "dcgm.dev_row_remap_pending": "row-remapping-pending",
    "channel_repair_pending": "channel-repair-pending",
    "tpc_repair_pending": "tpc-repair-pending",
    "retired_pages.pending": "page-retirement-pending",
}
#: Usual intervals between samples from which on there is a hole: one sample that is late or lost is none.
_HOLE = 3
#: Counters of how long a reason limited the clocks, in microseconds since the driver was loaded.
_REASON_COUNTERS = ("clocks_event_reasons_counters.", "clocks_throttle_reasons_counters.")
_US = "_us"
_NO_VALUES = pl.Series("value", [], pl.Float64)


def sampled_of(tables: TableSet, device_id: int) -> Sampled | None:
    """Summarise the samples of a device.

    Parameters
    ----------
    tables, device_id
        The device.

    Returns
    -------
    Sampled or None
        Means over the samples; None without samples of it. What was not sampled is null.

    Examples
    --------
    >>> import pyanalyze
    >>> sampled_of(pyanalyze.load(capture).tables, 0) is None
    True
    """
    here = tables.samples_of(device_id)
    if here.is_empty():
        return None
    whole = tables.board_samples_of(device_id)
    board = _of_board(tables, device_id, here)
    times = board["time_ns"].drop_nulls()
    start, end = times.min(), times.max()
    moments = _moments(here)
    values = {metric: rows["value"].drop_nulls() for metric, rows in whole.items()}
    use = _NO_VALUES
    for metric, scale in UTILIZATION:
        use = use if len(use) else _values(values, metric) / scale
    pids = compute_processes(tables, device_id)
    listed = _listed_stretches(tables, device_id, times, moments)
    found = [_counter(metric, whole, listed) for metric in _COUNTERS]
    limit = _first_of(values, *_POWER_LIMIT)
    counters = {counter.name: counter for counter in found if counter is not None}
    means = {name: one.mean for name, one in counters.items()}
    used = means.get("memory_used")
    indices = here["gpu_index"].drop_nulls().unique()
    entities = here["entity"].drop_nulls().cast(pl.String).unique()
    # `GPU-I 2` and the like state the kind.
    entity = entities[0] if len(entities) == 1 and entities[0].isdecimal() else None
    return Sampled(
        gpu_index=indices[0] if len(indices) == 1 else None,
        entity=entity,
        n=max([1, len(moments), *(counter.n for counter in counters.values()), _lists(here)]),
        without_time=0 if times.is_empty() else _without_time(whole),
        start_ns=start if isinstance(start, int) else None,
        end_ns=end if isinstance(end, int) else None,
        covered_share=_covered(times, _moments(board)),
        gpu_utilization=means.get("gpu_utilization"),
        gpu_utilization_peak=None if (busy := counters.get("gpu_utilization")) is None else busy.high,
        idle_share=None if not len(use) else int((use < _IDLE).sum()) / len(use),
        engine_active=means.get("gr_engine_active"),
        sm_active=means.get("sm_active"),
        dram_active=means.get("dram_active"),
        counters=list(counters.values()),
        memory_mean_bytes=None if used is None else round(used),
        power_w=means.get("power"),
        power_limit_w=float(limit[-1]) if len(limit) else None,
        processes=None if pids is None else len(pids),
        throttling=_throttling(whole, values),
        xid=_xid(values),
        ecc_uncorrected=_errors(values, _UNCORRECTED),
        ecc_corrected=_errors(values, _CORRECTED),
        faults=_faults(whole),
        recovery_action=_recovery_action(whole),
    )


def _faults(whole: Mapping[str, pl.DataFrame]) -> list[Fault] | None:
    """Flags that were set in any sample, each once; None where nobody asked."""
    said = {
        metric: [
            value > 0 if value is not None else text == "Yes"
            for value, text in whole[metric].select("value", "text").iter_rows()
            if value is not None or text in ("Yes", "No")
        ]
        for metric in _FAULTS
        if metric in whole
    }
    if not any(said.values()):
        return None
    return list(dict.fromkeys(_FAULTS[metric] for metric, flags in said.items() if any(flags)))


def _recovery_action(whole: Mapping[str, pl.DataFrame]) -> str | None:
    """The last word of the driver on it; what it does not support is none."""
    rows = whole.get("gpu_recovery_action")
    texts = [] if rows is None else [text for text in rows["text"] if text and text[0] != "[" and text != "N/A"]
    return texts[-1] if texts else None


def _of_board(tables: TableSet, device_id: int, here: pl.DataFrame) -> pl.DataFrame:
    """Samples of a board and of its MIG instances: one tool asks for all of them, and lists processes of the board.

    So a board and its instances have one span, and the same holes.
    """
    boards = dict(tables.devices.select("device_id", "gpu_uuid").iter_rows())
    board = boards.get(device_id)
    others = [number for number, uuid in boards.items() if number != device_id and board and uuid == board]
    return pl.concat([here, *(tables.samples_of(number) for number in others)])


def _moments(here: pl.DataFrame) -> pl.Series:
    """When samples were taken, in order: of the device, where it has any, in the one format that has most.

    A list of its processes is taken a moment later, and two tools sample each in their own time.
    """
    of_device = here.filter(pl.col("pid").is_null())
    rows = here if of_device.is_empty() else of_device
    each = [own["time_ns"].drop_nulls().unique() for own in rows.partition_by("format")]
    return max(each, key=len).sort()


def _lists(here: pl.DataFrame) -> int:
    """How often processes were listed: rows of one process and metric. Without times only this counts them."""
    rows = here.filter(pl.col("pid").is_not_null()).group_by("format", "pid", "metric").len()
    return int(rows["len"].max() or 0)  # type: ignore[arg-type]  # an integer


def _usual(moments: pl.Series) -> float | None:
    """The usual interval between samples; `moments`: as of :func:`_moments`."""
    usual = moments.diff().drop_nulls().median()
    return usual if isinstance(usual, float) and usual > 0 else None


def _listed_stretches(tables: TableSet, device_id: int, times: pl.Series, moments: pl.Series) -> list[tuple[int, int]]:
    """Stretches between holes in which lists name a compute process; none where there is no hole.

    Lists of one program say nothing of the samples before it began, which a hole parts from them.
    """
    usual, ordered = _usual(moments), times.unique().sort()
    if usual is None:
        return []
    part = (ordered.diff() > _HOLE * usual).fill_null(value=False).cum_sum()
    spans = (
        pl.DataFrame({"time": ordered, "part": part})
        .group_by("part")
        .agg(first=pl.col("time").min(), last=pl.col("time").max())
    )
    if spans.height < 2:
        return []
    lists = listed_times(tables, device_id)
    spans = spans.select("first", "last").sort("first")
    return [(first, last) for first, last in spans.iter_rows() if lists.is_between(first, last).any()]


def _without_time(whole: Mapping[str, pl.DataFrame]) -> int:
    """Samples without a time: of the quantity that has most."""
    valued = [rows.filter(pl.col("value").is_not_null()) for rows in whole.values()]
    return max((rows["time_ns"].null_count() for rows in valued), default=0)


def _covered(times: pl.Series, moments: pl.Series) -> float | None:
    """The part of the time from the first to the last sample that is no hole; `moments`: as of :func:`_moments`."""
    intervals = times.unique().sort().diff().drop_nulls()
    usual = _usual(moments)
    if usual is None:
        return None
    holes = intervals.filter(intervals > _HOLE * usual)
    return 1 - float((holes - usual).sum()) / float(intervals.sum())


def _counter(
    metric: str, whole: Mapping[str, pl.DataFrame], listed: Sequence[tuple[int, int]]
) -> SampledCounter | None:
    metrics = _OTHER_METRICS.get(metric, (metric,))
    valued = (whole[one].filter(pl.col("value").is_not_null()) for one in metrics if one in whole)
    rows = next((one for one in valued if one.height), None)
    if rows is None:
        return None
    values = rows["value"]
    ending = max((ending for ending in _UNITS if metric.endswith(ending)), key=len)
    unit, scale = _UNITS[ending]
    low, mean, high = (float(one) / scale for one in (values.min(), values.mean(), values.max()))  # type: ignore[arg-type]  # floats
    p10, p90 = (_nearest_rank(values, per_cent) / scale for per_cent in (10, 90))
    # A vGPU gives 0 for what its guest may not read: no GPU in use has a clock of 0 Hz.
    if unit in ("Hz", "C") and high <= 0:
        return None
    of_listed = [rows.filter(pl.col("time_ns").is_between(*stretch))["value"] for stretch in listed]
    while_listed = [value / scale for series in of_listed for value in series]
    return SampledCounter(
        name=metric.removesuffix(ending),
        unit=unit,
        mean=mean,
        low=low,
        high=high,
        n=len(values),
        p10=p10,
        p90=p90,
        listed_low=min(while_listed, default=None),
        listed_high=max(while_listed, default=None),
        listed_n=len(while_listed),
    )


def _nearest_rank(values: pl.Series, per_cent: int) -> float:
    return float(values.sort()[-(-len(values) * per_cent // 100) - 1])


def _values(values: Mapping[str, pl.Series], metric: str) -> pl.Series:
    return values.get(metric, _NO_VALUES)


def _first_of(values: Mapping[str, pl.Series], *metrics: str) -> pl.Series:
    """The values of the first metric that has any."""
    return next((one for metric in metrics if len(one := _values(values, metric))), _NO_VALUES)


def _most(values: pl.Series) -> float | None:
    return float(values.max()) if len(values) else None  # type: ignore[arg-type]  # floats


def _throttling(whole: Mapping[str, pl.DataFrame], values: Mapping[str, pl.Series]) -> Throttling | None:
    """In what part of the samples which reason limited the clocks; idle and set clocks are no throttling."""
    flags: dict[str, list[bool]] = {}
    masks: list[int] = []
    for metric, rows in whole.items():
        if metric in _MASKS:
            found = (_mask(value, text) for value, text in rows.select("value", "text").iter_rows())
            masks += [mask for mask in found if mask is not None]
        elif metric.startswith(_REASON_PREFIXES):
            reason = metric.partition(".")[2]
            if reason in _REASONS and len(values[metric]):
                flags.setdefault(reason, []).extend(value > 0 for value in values[metric])
    # `dmon` has one bit per sample for temperature.
    heat = _values(values, "thermal_violation")
    if len(heat):
        flags["thermal_limit"] = [value > 0 for value in heat]
    for bit, reason in REASON_BITS.items():
        if masks and reason not in flags:
            flags[reason] = [bool(mask & bit) for mask in masks]
    limits = dict(_violations(values))
    limited, counted_ns = _limited(whole)
    if not flags and not limits and counted_ns is None:
        return None
    shares = {reason: sum(seen) / len(seen) for reason, seen in flags.items()}
    return Throttling(
        shares={reason: share for reason, share in sorted(shares.items(), key=lambda item: -item[1]) if share > 0},
        n=max((len(seen) for seen in flags.values()), default=1),
        power_limited=limits.get("power"),
        thermal_limited=limits.get("thermal"),
        limited_ns=limited,
        counted_ns=counted_ns,
    )


def _limited(whole: Mapping[str, pl.DataFrame]) -> tuple[dict[str, int], int | None]:
    """How long each reason limited the clocks between the first and the last reading, and how long that was, ns.

    A counter that fell began anew with the driver: it says nothing of the time between.
    """
    rises, spans = dict[str, int](), list[int]()
    for metric, rows in whole.items():
        reason = metric.partition(".")[2].removesuffix(_US)
        if not metric.startswith(_REASON_COUNTERS) or not metric.endswith(_US) or reason not in _REASONS:
            continue
        read = rows.drop_nulls(["time_ns", "value"]).sort("time_ns")
        times, values = read["time_ns"].to_list(), read["value"].to_list()
        if len(values) < 2 or times[0] == times[-1] or values != sorted(values):
            continue
        spans.append(times[-1] - times[0])
        rises[reason] = round((values[-1] - values[0]) * 1000)
    found = sorted(((reason, ns) for reason, ns in rises.items() if ns > 0), key=lambda item: -item[1])
    return dict(found), max(spans, default=None)


def _mask(value: float | None, text: str | None) -> int | None:
    return int(value) if value is not None else bounded_int(f"0x{(text or '').strip().removeprefix('0x')}")


def _violations(values: Mapping[str, pl.Series]) -> Iterator[tuple[str, float]]:
    """Share of time that a limit held the clocks down; DCGM's counters of it changed their unit, and are left out."""
    for kind in ("power", "thermal"):
        percent = _values(values, f"{kind}_violation_pct")
        if len(percent):
            yield kind, float(percent.mean()) / 100  # type: ignore[arg-type]  # floats


def _xid(values: Mapping[str, pl.Series]) -> list[int] | None:
    """Codes of the last Xid errors, each once; None where nobody asked."""
    codes = _values(values, "xid_last")
    return None if codes.is_empty() else sorted({int(code) for code in codes if code > 0})


def _errors(values: Mapping[str, pl.Series], prefixes: tuple[str, ...]) -> int | None:
    """ECC errors since the driver was loaded: the total where given, else the parts; None where nobody counted."""
    counted = {metric: rows for metric, rows in values.items() if metric.startswith(prefixes) and len(rows)}
    peaks = {metric: max(_most(rows) or 0.0, 0.0) for metric, rows in counted.items()}
    totals = [value for metric, value in peaks.items() if metric.endswith(("total", "_errors"))]
    # Parts of parts (`sram.parity`, `device_memory` beside `dram`) are counted in their whole.
    parts = [
        value
        for metric, value in peaks.items()
        if metric.endswith((".dram", ".sram", ".sram.parity", ".sram.secded"))
        and not (metric.count(".") > 4 and metric.rpartition(".")[0] in peaks)
    ]
    if totals:
        return int(max(totals))
    return int(sum(parts)) if parts else None


def series_of(tables: TableSet, device_id: int) -> list[dict[str, Any]]:
    """Utilisation and memory over time, for a chart: of the device, and of each process that has its own.

    ``metric`` is what was sampled: under MIG the driver has no utilisation. ``part`` numbers the stretches of each
    between holes: nothing is known of the time of a hole.

    Examples
    --------
    >>> import pyanalyze
    >>> series_of(pyanalyze.load(capture).tables, 0)
    []
    """
    here = (
        tables.samples_of(device_id)
        .filter(pl.col("time_ns").is_not_null())
        .with_columns(pl.col("metric").cast(pl.String))
    )
    whole, own = here.filter(pl.col("pid").is_null()), here.filter(pl.col("pid").is_not_null())
    use = [(metric, "utilization", scale, whole) for metric, scale in UTILIZATION]
    used = next((one for one in use if _timed(whole, one[0]).height), use[0])
    series = (used, ("process_sm_pct", "utilization", 100.0, own), ("memory_used_bytes", "memory", 1.0, whole),
              ("process_memory_bytes", "memory", 1.0, own))  # fmt: skip
    return [
        {"pid": pid, "what": what, "metric": metric, "time_ns": time, "value": value / scale, "part": part}
        for metric, what, scale, of in series
        for pid, time, value, part in _timed(of, metric).iter_rows()
    ]


def _timed(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Process, time, value and stretch between holes of the samples of a metric, by process and time."""
    asked = rows.filter(pl.col("metric") == metric)
    # Somebody looked at rows without a value too, and at other processes: few values of one say nothing of how often.
    interval = pl.col("time_ns").diff()
    usual = (
        asked.select("source", "time_ns")
        .unique()
        .sort("time_ns")
        .group_by("source")
        .agg(usual=interval.filter(interval > 0).median())
    )
    return (
        asked.filter(pl.col("value").is_not_null())
        .join(usual, on="source", how="left", nulls_equal=True)
        .sort("pid", "time_ns")
        .select(
            "pid",
            "time_ns",
            "value",
            part=(interval > _HOLE * pl.col("usual")).fill_null(value=False).cum_sum().over("pid"),
        )
    )
