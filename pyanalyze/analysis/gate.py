"""A gate for continuous integration: thresholds in, passed, failed or not available out.

A threshold passes when all that is known of the value lies within it, and fails when all of it lies beyond. What
straddles it, is a bound on the wrong side, or was not captured is inconclusive: a gate without data never
passes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyanalyze.analysis.hardware import MAX_STATE_NS
from pyanalyze.analysis.impact import sole_tenant, untraced_share
from pyanalyze.analysis.sharing.missing import HOW, LOST_CALLS, LOST_KERNELS
from pyanalyze.errors import UsageError
from pyanalyze.nsys_tool import record_all, recording
from pyanalyze.results.check import Checked, Limits, Outcome
from pyanalyze.results.labels import device_title, tenant_labels
from pyanalyze.results.sharing import most_likely
from pyanalyze.results.switch_cost import co_run_overhead, switch_overhead
from pyanalyze.tables.cut_exports import CUT_RECORDS
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.nearest import did_you_mean
from pyanalyze.text.numbers import bounded_float
from pyanalyze.text.toml import read_toml
from pyanalyze.vocabulary import MODES, NEGLIGIBLE_RESIDENCY, Mode, Part, unless

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from pyanalyze.results.check import Status
    from pyanalyze.results.comparison import Comparison
    from pyanalyze.results.interference import Estimate, SlowdownKind
    from pyanalyze.results.model import Missing
    from pyanalyze.results.report import Device, Report, Tenant

__all__ = ["check", "parts_of", "read_limits"]

#: Where :func:`read_limits` looks when a directory is given.
CONFIG_FILES = ("pyanalyze.toml", "pyproject.toml")


#: Why no threshold but that of memory is decided without a capture.
_ONLY_SAMPLES = "samples and settings observe nothing: this gate needs a capture"


def check(
    report: Report,
    limits: Limits,
    *,
    inconclusive: Literal["fail", "warn"] = "fail",
    comparison: Comparison | None = None,
) -> Checked:
    """Compare a report with thresholds.

    Parameters
    ----------
    report
        The report of a session, or one that was saved as JSON.
    limits
        The thresholds; at least one.
    inconclusive
        Whether a threshold that could not be looked at fails the check (exit code 4) or warns.
    comparison
        This run against another, for `max_change`.

    Returns
    -------
    Checked
        An outcome for every threshold and the GPU or tenant that it concerns.

    Raises
    ------
    pyanalyze.errors.UsageError
        No threshold, one that makes no sense, or `max_change` without a comparison.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> checked = check(report, Limits(expect_mode=("mps",)))
    >>> checked.status, checked.outcomes[0].detail.partition(" (")[0]
    ('failed', 'the mode is time-slicing')
    """
    limits = _plain(limits)
    _sensible(limits)
    if limits.max_change is not None and comparison is None:
        raise UsageError("max_change needs another run: give --against (a capture, a pack or JSON)")
    found: list[Outcome] = []
    active = [device for device in report.devices if device.tenants]
    if not active:
        # Samples only, or a capture in which nothing ran: but for memory, every threshold is asked of nobody.
        captured = any(capture.nsys_version for capture in report.captures)
        why = "no activity of any tenant was recorded" if captured else _ONLY_SAMPLES
        how = record_all()
        sampled = [d for d in report.devices if d.memory is not None and d.memory.peak_bytes is not None]
        for gate in limits.asked():
            if gate == "max_memory" and sampled:
                found += [outcome for device in sampled for outcome in _memory(device, limits)]
            else:
                subjects = [device_title(device) for device in report.devices] or ["no GPU"]
                found += [Outcome(gate, subject, "inconclusive", why, how=how) for subject in subjects]
        return Checked(tuple(found), inconclusive)
    for device in active:
        for gate, look in _GATES.items():
            if gate in limits.asked():
                found += look(device, limits)
    if limits.tenants:
        found += _named_tenants(active, limits)
    if limits.no_data_loss:
        found.append(_data_loss(report))
    if comparison is not None and limits.max_change is not None:
        found += _changes(comparison, limits.max_change)
    return Checked(tuple(found), inconclusive)


def _plain(limits: Limits) -> Limits:
    """Thresholds as numbers: a caller may write fractions and one mode as the command line takes them."""
    given: dict[str, Any] = {}
    modes: Any = limits.expect_mode
    given["expect_mode"] = tuple(mode.casefold() for mode in ((modes,) if isinstance(modes, str) else modes))
    for name in _FRACTIONS:
        if (value := getattr(limits, name)) is not None:
            given[name] = fraction(value, name)
    if limits.max_slowdown is not None:
        given["max_slowdown"] = _number(limits.max_slowdown, "max_slowdown", "check")
    if limits.tenants:
        given["tenants"] = {k: _number(most, f"tenants.{k}", "check") for k, most in limits.tenants.items()}
    return replace(limits, **given)


def _sensible(limits: Limits) -> None:
    if not limits.asked():
        raise UsageError("no threshold was given; give one, such as --max-slowdown 1.2, or a TOML file")
    for pattern in limits.expect_mode:
        if not any(fnmatchcase(mode, pattern) for mode in MODES):
            raise UsageError(f"there is no mode {pattern}; modes are {', '.join(MODES)}{did_you_mean(pattern, MODES)}")
    below_one = {"max_slowdown": limits.max_slowdown, **{f"tenants.{k}": v for k, v in limits.tenants.items()}}
    for name, value in below_one.items():
        if value is not None and not value >= 1:
            raise UsageError(f"{name} is {value:g}, but a slowdown is a factor from 1 on: 1.2 is 20 % longer than solo")
    for name in ("max_switch_overhead", "min_jain", "min_sm_active", "max_memory"):
        value = getattr(limits, name)
        if value is not None and not 0 <= value <= 1:
            raise UsageError(f"{name} is {value:g}, but must be a fraction from 0 to 1 (or a percentage such as 5%)")
    if limits.max_change is not None and not limits.max_change >= 0:
        raise UsageError(f"max_change is {limits.max_change:g}, but must be a fraction from 0 on (or 5%)")


def _mode(device: Device, limits: Limits) -> Iterator[Outcome]:
    sharing, wanted = device.sharing, " or ".join(limits.expect_mode)
    known = fmt.certainty(sharing.basis, sharing.stated_confidence)
    if sharing.mode == Mode.UNDETERMINED and Mode.UNDETERMINED not in limits.expect_mode:
        first = most_likely(sharing.alternatives)
        likely = f"{first} {known}" if first else "no evidence"
        detail = f"undetermined: {likely}, expected {wanted}"
        yield Outcome("expect_mode", device_title(device), "inconclusive", detail, how=_first_command(sharing.missing))
        return
    if sharing.condition is not None:
        detail = f"{sharing.mode} {known}{unless(sharing.condition, sharing.mode)}; expected {wanted}"
        yield Outcome("expect_mode", device_title(device), "inconclusive", detail, how=_first_command(sharing.missing))
        return
    fits = any(fnmatchcase(sharing.mode, pattern) for pattern in limits.expect_mode)
    detail = f"the mode is {sharing.mode} {known}" + ("" if fits else f", expected {wanted}")
    yield Outcome("expect_mode", device_title(device), "passed" if fits else "failed", detail)


def _first_command(missing: Iterable[Missing]) -> str:
    """The first command that captures some of what is not available; empty: none does."""
    return next((gap.how for gap in missing if gap.how), "")


def _agreement(device: Device, limits: Limits) -> Iterator[Outcome]:
    sharing = device.sharing
    if sharing.agrees is None:
        status: Status = "inconclusive"
        how = _first_command(sharing.missing)
        if sharing.configured is None:
            gap = next((one for one in sharing.missing if one.what == "configured_mode"), None)
            detail = f"the configured mode is not known{f' ({gap.why})' if gap else ''}; {sharing.found}"
            how = (gap.how if gap else "") or "--context with nvidia-smi -L, MPS or kubectl output"
        elif sharing.taken_from_configuration:
            detail = f"{sharing.mode} is taken from the configuration: no record shows it, so nothing can be compared"
        else:
            detail = f"{sharing.configured} was configured; whether it took effect is not known; {sharing.found}"
    else:
        status, how = ("passed" if sharing.agrees else "failed"), ""
        detail = f"{sharing.configured} was configured, {sharing.found}"
    yield Outcome("expect_agreement", device_title(device), status, detail, how=how)


def _how_to_trace(device: Device) -> str:
    """How all tenants are traced: the report says by which variable MPS clients are recorded."""
    return next((gap.how for gap in device.missing_for("slowdown") if gap.how), record_all())


def _slowdowns(device: Device, limits: Limits) -> Iterator[Outcome]:
    # A process whose groups of work are the tenants has no work of its own.
    divided = {tenant.served_by for tenant in device.tenants if tenant.group_of is not None}
    traced = [t for t in device.tenants if t.busy_ns is not None and t.tenant_id not in divided]
    if not traced:
        detail = "no tenant was traced, so no slowdown is known"
        how = _how_to_trace(device)
        yield Outcome("max_slowdown", device_title(device), "inconclusive", detail, how=how)
    for tenant in traced:
        if limits.max_slowdown is not None:
            yield _slowdown(device, tenant, limits.max_slowdown, limits.slowdown)


def _named_tenants(devices: Iterable[Device], limits: Limits) -> Iterator[Outcome]:
    for name, most in limits.tenants.items():
        found = [(d, t) for d in devices for t in d.tenants if name in (t.name, tenant_labels(d.tenants)[t.tenant_id])]
        if not found:
            detail = "no tenant has that name; give it one with --tenant NAME=PID"
            yield Outcome("max_slowdown", visible(name), "inconclusive", detail, limit=most)
        for device, tenant in found:
            yield _slowdown(device, tenant, most, limits.slowdown)


def _slowdown(device: Device, tenant: Tenant, most: float, kind: SlowdownKind | None) -> Outcome:
    subject = tenant_labels(device.tenants)[tenant.tenant_id]
    # Of a group of work nothing but execution is compared.
    usual: tuple[SlowdownKind, ...] = ("elapsed", "latency") if tenant.group_of is None else ("resident",)
    kinds: tuple[SlowdownKind, ...] = usual if kind is None else (kind,)
    known: dict[str, Estimate | None] = {name: getattr(tenant.slowdown, name) for name in kinds}
    # A baseline that was given and is not what the figures come from: the notes say why.
    unused = tenant.baselines_not_used if tenant.baseline is None else ()
    left = "".join(f"; {visible(one.detail, limit=None)}" for one in unused)
    # A slowdown against a baseline counts in every mode.
    if sole_tenant(device) and not any(e is not None and e.basis == "observed" for e in known.values()):
        there = "was" if device.sharing.condition is None else "is known"
        detail = (
            f"only one tenant {there} on the device ({device.sharing.mode}, confidence "
            f"{device.sharing.confidence:.2f}){left}"
        )
        if device.sharing.condition is not None:
            detail = f"{detail}{unless(device.sharing.condition, device.sharing.mode)}"
            how = _first_command(device.sharing.missing)
            return Outcome("max_slowdown", subject, "inconclusive", detail, limit=most, how=how)
        return Outcome("max_slowdown", subject, "passed", detail, limit=most)
    worst = max((e for e in known.values() if e is not None), key=lambda e: e.value, default=None)
    assumed = tenant.slowdown.execution_assumed and "resident" in known
    words = "; ".join(
        f"{name} {'1.00x is assumed, not measured' if assumed and name == 'resident' else _range(estimate)}"
        for name, estimate in known.items()
    )
    low = max((e.low for e in known.values() if e is not None and e.low is not None), default=None)
    # The larger of the two is bounded only where both are.
    highs = [None if e is None else e.high for e in known.values()]
    high = None if None in highs else max(h for h in highs if h is not None)
    status = _judged(low, high, most)
    gaps = (*device.missing_for("slowdown"), *device.missing_for("interference"))
    how = ("" if assumed else _first_command(gaps)) or (
        "" if tenant.group_of else "record each workload solo in the same way and give --baseline"
    )
    return Outcome(
        "max_slowdown",
        subject,
        status,
        f"{words}; limit {fmt.ratio(most)}{left}",
        value=None if worst is None else worst.value,
        low=low,
        high=high,
        limit=most,
        how=how if status == "inconclusive" else "",
    )


def _range(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not known"
    if estimate.high is None:
        span = (
            f"at least {fmt.ratio(estimate.low)}" if estimate.low is not None else f"about {fmt.ratio(estimate.value)}"
        )
    elif estimate.low is None or estimate.low == estimate.high:
        span = f"{fmt.ratio(estimate.value)}"
    else:
        span = f"{fmt.ratio(estimate.value)} ({fmt.interval(estimate.low, estimate.high, basis=estimate.basis)})"
    return f"{span}, n = {fmt.count(estimate.n)}, {estimate.basis}"


def _judged(low: float | None, high: float | None, most: float) -> Status:
    """Compare a value, by its two ends, with a maximum; an end that is not known decides nothing."""
    if high is not None and high <= most:
        return "passed"
    return "failed" if low is not None and low > most else "inconclusive"


def _decimals(value: float, other: float, least: int) -> str:
    """A number with as many decimals as tell it from the other: 10.0 below a limit of 10.0 would be no answer."""
    places = next((n for n in range(least, 12) if value == other or f"{value:.{n}f}" != f"{other:.{n}f}"), 12)
    return f"{value:.{places}f}"


def _percents(value: float, limit: float) -> tuple[str, str]:
    """What was found and its limit, as percentages that look different where they are."""
    told = fmt.percent(value), fmt.percent(limit)
    if value == limit or told[0] != told[1]:
        return told
    return f"{_decimals(100 * value, 100 * limit, 2)} %", f"{_decimals(100 * limit, 100 * value, 2)} %"


def _overhead(device: Device, limits: Limits) -> Iterator[Outcome]:
    most = limits.max_switch_overhead or 0.0
    switches = device.context_switches
    if switches is None:
        reasons = device.missing_for("context_switches")
        detail = reasons[0].why if reasons else "there are no switch records"
        how = reasons[0].how if reasons else recording()
        yield Outcome("max_switch_overhead", device_title(device), "inconclusive", detail, limit=most, how=how)
        return
    state = None if device.interference is None else device.interference.context_state
    window_ns = None if device.window is None else device.window.end_ns - device.window.start_ns
    of_window = switch_overhead(switches, state, window_ns, MAX_STATE_NS)
    # Of a window in which one tenant was idle for long a small share says nothing of what the others pay.
    both = device.all_at_work
    co_run_ns = None if both is None else both.end_ns - both.start_ns
    of_co_run = co_run_overhead(switches, state, co_run_ns, MAX_STATE_NS)
    cost = of_window if of_co_run is None else of_co_run
    if cost is None:
        detail = "the cost of context switches is not known"
        yield Outcome("max_switch_overhead", device_title(device), "inconclusive", detail, limit=most)
        return
    status, how = _judged(cost.recorded, cost.most, most), ""
    found, limit = _percents(cost.recorded, most)
    kind = {"gap": " (switch gaps)", "full": " (full switches)"}.get(switches.cost_kind or "", "")
    count, of_time = switches.count, "the window"
    if of_co_run is not None and switches.all_at_work_switches is not None:
        count, of_time = switches.all_at_work_switches, f"the {fmt.duration(co_run_ns)} in which all tenants co-ran,"
    detail = f"{found} of {of_time} in {fmt.counted(count, 'context switch', 'context switches')}{kind}, observed"
    if cost.most > cost.recorded:
        high, beside = _percents(cost.most, most)
        assumed = f"which are assumed to take up to {fmt.duration(MAX_STATE_NS)} a switch"
        detail += f"; at most {high} with saving and restoring, {assumed if cost.likely is None else 'inferred'}"
        how = _how_to_trace(device) if cost.likely is None and status != "passed" else ""
        limit = max(limit, beside, key=len)
    if of_co_run is not None and of_window is not None and of_window != of_co_run:
        low, high = fmt.percent(of_window.recorded), fmt.percent(of_window.most)
        detail += f"; of the whole window {low}{f' to {high}' if high != low else ''}"
    detail += f"; limit {limit}"
    cut = device.missing_for("export_rows")
    if status != "failed" and switches.dropped:
        # Lost records hide switches: what was counted is a lower bound.
        status, how = "inconclusive", ""
        detail += f"; {fmt.count(switches.dropped)} records were lost, so it may be higher"
    elif status != "failed" and cut:
        # Of the rest of the recording nothing is known.
        status, how = "inconclusive", cut[0].how
        detail += f"; {cut[0].why}"
    how = how if status == "inconclusive" else ""
    value = cost.recorded if cost.likely is None else cost.likely
    yield Outcome(
        "max_switch_overhead", device_title(device), status, detail, value, cost.recorded, cost.most, most, how
    )


def _fairness(device: Device, limits: Limits) -> Iterator[Outcome]:
    least = limits.min_jain or 0.0
    value = None if device.interference is None else device.interference.jain
    if value is None:
        reasons = [*device.missing_for("interference"), *device.missing_for("interference.figures")]
        detail = reasons[0].why if reasons else "fairness of slowdowns is not known"
        how = reasons[0].how if reasons else ""
        yield Outcome("min_jain", device_title(device), "inconclusive", detail, limit=least, how=how)
        return
    detail = f"Jain's index {_decimals(value, least, 3)}, inferred; limit {_decimals(least, value, 3)}"
    yield Outcome(
        "min_jain", device_title(device), "passed" if value >= least else "failed", detail, value, limit=least
    )


def _sm_active(device: Device, limits: Limits) -> Iterator[Outcome]:
    least = limits.min_sm_active or 0.0
    if device.occupancy is None:
        reasons = device.missing_for("occupancy")
        detail = reasons[0].why if reasons else "SM occupancy is not known"
        how = reasons[0].how if reasons else ""
        yield Outcome("min_sm_active", device_title(device), "inconclusive", detail, limit=least, how=how)
        return
    found = device.occupancy.sm_active
    ends = (found.value, found.low, found.high)
    places = max(len(_decimals(100 * end, 100 * least, 1).partition(".")[2]) for end in ends)
    value, low, high, limit = (f"{100 * number:.{places}f}" for number in (*ends, least))
    how_known = device.occupancy.basis if device.occupancy.calibration is None else "calibrated to hardware counters"
    detail = f"{value} % of the SMs ({low} to {high}), mean over the window, {how_known}; limit {limit} %"
    status = _judged(-found.high, -found.low, -least)
    untraced, how = untraced_share(device), ""
    if status == "failed" and found.high + untraced >= least and untraced > NEGLIGIBLE_RESIDENCY:
        # Only traced kernels are replayed: what was found is a lower bound.
        status, how = "inconclusive", _how_to_trace(device)
        detail += (
            f"; untraced processes were resident for {fmt.percent(untraced)} of the window, and their work is not known"
        )
    elif status == "inconclusive" and device.occupancy.calibration is None:
        # The same recording again, with counters: without switch records the other answers would be worse.
        again = recording("--gpu-metrics-devices=all", switches=device.context_switches is not None)
        others = ", in one session; record the other tenants at the same time, as before"
        how = f"{again}   # counters say what the model cannot{others if len(device.tenants) > 1 else ''}"
    yield Outcome("min_sm_active", device_title(device), status, detail, found.value, found.low, found.high, least, how)


def _memory(device: Device, limits: Limits) -> Iterator[Outcome]:
    most = limits.max_memory or 0.0
    memory = device.memory
    if memory is None or memory.peak_bytes is None or not memory.total_bytes:
        detail = "memory in use is not known"
        how = "--samples with nvidia-smi --query-gpu=timestamp,uuid,memory.used --format=csv -l 1"
        yield Outcome("max_memory", device_title(device), "inconclusive", detail, limit=most, how=how)
        return
    value = memory.peak_bytes / memory.total_bytes
    found, limit = _percents(value, most)
    peak = f"peak {fmt.bytes_(memory.peak_bytes)} of {fmt.bytes_(memory.total_bytes)}"
    detail = f"{peak} ({found}), sampled; limit {limit}"
    yield Outcome(
        "max_memory", device_title(device), "passed" if value <= most else "failed", detail, value, limit=most
    )


def _data_loss(report: Report) -> Outcome:
    lost = [row for row in report.quality if row.severity in ("data-loss", "error") and row.count]
    if lost:
        names = ", ".join(f"{visible(row.name)} ({fmt.count(row.count)})" for row in lost)
        return Outcome("no_data_loss", "captures", "failed", f"records were lost: {names}")
    counted: Counter[str] = Counter()
    for row in report.quality:
        counted[row.name] += row.count
    lacking = [f"{fmt.count(counted[name])} {what}" for name, what in CUT_RECORDS.items() if counted[name]]
    # They may still be in the report of nsys: not known to be lost, and not there.
    if lacking:
        detail = f"the export was cut: it lacks {fmt.names(lacking)} that nsys collected"
    elif any(capture.counters_cover_ns is not None for capture in report.captures):
        detail = "the export was cut: its counter samples cover less than half of the recording"
    else:
        # Launches tell of records that are missing where nsys does not count them.
        gaps = {
            gap.why: gap.how
            for device in report.devices
            for what in (LOST_KERNELS, LOST_CALLS)
            for gap in device.missing_for(what)
        }
        if not gaps:
            return Outcome("no_data_loss", "captures", "passed", "no record is known to be lost")
        how = next(filter(None, gaps.values()), HOW["whole_export"])
        return Outcome("no_data_loss", "captures", "inconclusive", "; ".join(gaps), how=how)
    return Outcome("no_data_loss", "captures", "inconclusive", detail, how=HOW["whole_export"])


def _changes(comparison: Comparison, most: float) -> Iterator[Outcome]:
    if not comparison.tenants:
        detail = "no tenant of this run has a counterpart in the other"
        how = "give a process of each run one name: --tenant NAME=PID --tenant NAME=PID"
        yield Outcome("max_change", "tenants", "inconclusive", detail, how=how, limit=most)
    for pair in comparison.tenants:
        change = pair.change
        if change is None:
            yield Outcome("max_change", pair.label, "inconclusive", pair.why or "not known", limit=most)
            continue
        status = _judged(change.low, change.high, most)
        # Below what two runs of the same program differ by, no threshold can be told from zero.
        detail = (
            f"time per unit of work {fmt.signed_percent(change.value)} ({fmt.signed_percent(change.low)} to "
            f"{fmt.signed_percent(change.high)}, noise floor included); limit {fmt.signed_percent(most)}"
        )
        yield Outcome("max_change", pair.label, status, detail, change.value, change.low, change.high, most)


_GATES: dict[str, Callable[[Device, Limits], Iterator[Outcome]]] = {
    "expect_mode": _mode,
    "expect_agreement": _agreement,
    "max_slowdown": _slowdowns,
    "max_switch_overhead": _overhead,
    "min_jain": _fairness,
    "min_sm_active": _sm_active,
    "max_memory": _memory,
}

#: The part of an answer that a threshold looks at; those that are not listed need none.
_PARTS: dict[str, frozenset[Part]] = {
    "max_slowdown": frozenset({Part.INTERFERENCE}),
    "tenants": frozenset({Part.INTERFERENCE}),
    "min_jain": frozenset({Part.INTERFERENCE}),
    "min_sm_active": frozenset({Part.OCCUPANCY}),
    "max_change": frozenset({Part.WORK}),
    # How long saving and restoring take is inferred with the slowdowns; residency has what switches cost in the co-run.
    "max_switch_overhead": frozenset({Part.INTERFERENCE, Part.RESIDENCY}),
    # Launch calls are read for slowdowns: they tell of kernels without a record.
    "no_data_loss": frozenset({Part.INTERFERENCE}),
}


def parts_of(limits: Limits) -> frozenset[Part]:
    """Say which parts of a report these thresholds need.

    Examples
    --------
    >>> sorted(part.value for part in parts_of(Limits(expect_mode=("mps",), max_slowdown=1.2)))
    ['interference']
    """
    return frozenset().union(*(parts for gate, parts in _PARTS.items() if gate in limits.asked()))


_FRACTIONS = ("max_switch_overhead", "min_jain", "min_sm_active", "max_memory", "max_change")


def fraction(text: str | float, name: str) -> float:
    """Read `5%` or `0.05`.

    Examples
    --------
    >>> fraction("5%", "max_change"), fraction(0.05, "max_change")
    (0.05, 0.05)
    """
    percent = isinstance(text, str) and text.strip().endswith("%")
    number = bounded_float(text.strip()[:-1] if isinstance(text, str) and percent else text)
    if number is None:
        shown = str(text)[:40] if isinstance(text, str) else "a number too large"
        raise UsageError(f"{name} = {shown} is neither a fraction such as 0.05 nor a percentage such as 5%")
    return number / 100 if percent else number


def read_limits(path: str | os.PathLike[str]) -> tuple[Limits, Literal["fail", "warn"] | None]:
    r"""Read thresholds from a TOML file: the table `check` of a `pyanalyze.toml`, `tool.pyanalyze.check` elsewhere.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    tuple
        The thresholds, and what to do with inconclusive ones; None where the file does not say.

    Raises
    ------
    OSError
        It cannot be read.
    pyanalyze.errors.UsageError
        Not TOML, without such a table, or with a key that is no threshold.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pyanalyze.toml"
    ...     _ = file.write_text('check = {expect_mode = "mps", max_switch_overhead = "5%"}')
    ...     read_limits(file)[0].max_switch_overhead
    0.05
    """
    file = Path(path)
    whole = read_toml(file)
    table = whole.get("check")
    for name in ("tool", "pyanalyze", "check") if table is None else ():
        table = (whole if table is None else table).get(name)
        if not isinstance(table, dict):
            break
    if not isinstance(table, dict):
        raise UsageError(f"{file} has no table [check] (in a pyproject.toml: [tool.pyanalyze.check])")
    return _from_table(table, str(file))


def _from_table(table: dict[str, Any], where: str) -> tuple[Limits, Literal["fail", "warn"] | None]:
    table = {key.replace("-", "_"): value for key, value in table.items()}
    policy = table.pop("inconclusive", None)
    if policy not in (None, "fail", "warn"):
        raise UsageError(f"{where}: inconclusive = {policy!r}; it is fail or warn")
    known = {f.name for f in fields(Limits)}
    unknown = sorted(set(table) - known)
    if unknown:
        # A misspelt threshold that is skipped would be a gate that is always open.
        raise UsageError(
            f"{where}: there is no threshold {', '.join(unknown)}; there are {', '.join(sorted(known))}, inconclusive"
        )
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name == "expect_mode":
            modes = [value] if isinstance(value, str) else value
            if not isinstance(modes, list) or not all(isinstance(mode, str) for mode in modes):
                raise UsageError(f"{where}: expect_mode is a mode or a list of modes")
            values[name] = tuple(modes)
        elif name in _FRACTIONS:
            values[name] = fraction(value, name)
        elif name == "tenants":
            if not isinstance(value, dict):
                raise UsageError(f'{where}: tenants holds names, such as [check.tenants] with "service" = 1.1')
            values[name] = {str(tenant): _number(most, f"tenants.{tenant}", where) for tenant, most in value.items()}
        elif name == "slowdown":
            if value not in ("elapsed", "latency", "resident"):
                raise UsageError(f"{where}: slowdown = {value!r}; it is elapsed, latency or resident")
            values[name] = value
        elif name in ("expect_agreement", "no_data_loss"):
            if not isinstance(value, bool):
                raise UsageError(f"{where}: {name} is true or false")
            values[name] = value
        else:
            values[name] = _number(value, name, where)
    return Limits(**values), policy


def _number(value: object, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{where}: {name} = {value!r} is not a number")
    number = bounded_float(value)
    if number is None:
        raise UsageError(f"{where}: {name} is not a finite number")
    return number


def merged(file: Limits, line: Limits) -> Limits:
    """Thresholds of a file, with those of the command line over them.

    Examples
    --------
    >>> merged(Limits(max_slowdown=1.2, no_data_loss=True), Limits(max_slowdown=1.5)).max_slowdown
    1.5
    """
    given = {name: getattr(line, name) for name in line.asked()}
    if line.slowdown is not None:
        given["slowdown"] = line.slowdown
    return replace(file, **given)
