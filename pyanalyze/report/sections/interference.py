"""Slowdown of each tenant, its aggressors and its causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.hardware import HOST_FASTER
from pyanalyze.analysis.impact import BEHIND_OWN, CAUSE_WORDS, Cause, behind_own, impact_of
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
from pyanalyze.report.sentences.cause import BEHIND_SLOWER, RAN_LONGER, cause_sentence
from pyanalyze.report.sentences.co_run import co_ran_word, co_run_options
from pyanalyze.report.sentences.missing import why_missing
from pyanalyze.report.sentences.slowdown import (
    bound_text,
    estimate_text,
    known_from_below,
    pairs_without_figure,
    pairwise_kind,
    victim_sentence,
)
from pyanalyze.report.sentences.words import LONG, recorded_ns
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop
from pyanalyze.vocabulary import INFERRED_STATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyanalyze.results.interference import Causes, Estimate, ExecutionSplit, Interference, MatrixCell, NotCompared
    from pyanalyze.results.report import Device, Tenant
    from pyanalyze.vocabulary import Basis


_CAUSES_CAPTION = "Where the added latency of its kernels went (inferred)."
_ROOT_CAUSES = (
    "A wait behind kernels of its own counts as what delayed the head of that queue; where nothing did, as queueing. "
    "Behind its own: waits of kernels in the same stream behind one that this delayed."
)
_NOT_TOLD_APART = (
    "Waiting for others: queueing, time slices, switches and slower execution together. No record of residency tells "
    "them apart."
)
_ABOVE = " The replay assumes 1.00x and does not use them."
#: Inferred slowdowns whose bounds hold what was measured, of all on an H100 and an H200 (`tests/bench/hardware.py`).
MEASURED_WITHIN = (14, 16)
#: Kernels of groups of work that are shown.
_KERNELS = 12


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    labels = tenant_labels(device.tenants)
    # A slow host comes first: changing the GPU would not help.
    blocks: list[Block] = [Note("Check the host first", full_stop(capital(h.detail))) for h in device.host]
    reason = why_missing(device, "interference")
    said = victim_sentence(device)
    blocks.append(Para(said, in_lead=device is inputs.main and impact_of(device).victim is not None))
    if any(t.slowdown.elapsed or t.slowdown.latency or t.slowdown.resident for t in device.tenants):
        together = (row.detail for row in inputs.report.quality if row.name == "captures_partly_together")
        blocks.append(_slowdown_table(device, labels, next(together, None)))
    # Where nobody else was there, nothing is missing of interference.
    impact = impact_of(device)
    sole = impact.victim is None and impact.sole_tenant
    reason_of_all = said if len(device.without_slowdown()) == len(device.tenants) else ""
    noted: dict[str, list[str]] = {}
    for t in () if sole and device.sharing.basis == "observed" else device.tenants:
        # What is said of all tenants is said above, once.
        notes = [full_stop(capital(visible(text, LONG))) for text in t.slowdown_notes if text not in reason_of_all]
        if notes:
            noted.setdefault(" ".join(notes), []).append(labels[t.tenant_id])
    blocks += [Note(fmt.names(names), text) for text, names in noted.items()]
    blocks += _tail_blocks(device, labels)
    figures = device.interference
    if figures is None:
        # The same reason with another command is said once.
        whys = [{one.why for one in device.missing_for(key)} for key in ("interference", "slowdown")]
        again = impact.victim is None and bool(whys[0]) and whys[0] <= whys[1]
        if reason not in said and not sole and not again:
            blocks.append(Note("Interference is not known", reason))
    else:
        blocks += _figure_blocks(device, figures)
        blocks += _matrix_blocks(device, figures, labels)
        blocks += _kernel_blocks(figures, labels)
    blocks += _cause_blocks(device)
    if counted := _columns_text(device):
        blocks.append(Fold("What each column counts", tuple(Para(text) for text in counted)))
    if device.window is not None and len(device.tenants) > 1:
        blocks.append(
            Chart(
                chart_key("latency", device.device_id),
                "Kernel latency over time, and time with kernels in flight",
                "Dot: median latency (launch to end) of the kernels launched in the interval, on a logarithmic scale. "
                "Line above it: p95. Below: part of the interval with kernels in flight.",
            )
        )
        blocks.append(
            Chart(
                chart_key("solo", device.device_id),
                "The same kernels, solo and shared",
                "Execution time of each kernel, shared and solo (without a baseline: launches here without another "
                "tenant). Point: ratio of geometric means, with its 95 % confidence interval. Tick: median."
                + _ABOVE
                * any(t.slowdown.execution_assumed for t in device.tenants),
            )
        )
    return blocks


def _slowdown_table(device: Device, labels: Mapping[int, str], together: str | None) -> Table:
    rows = tuple(
        (
            Cell(labels[t.tenant_id], tone="code"),
            _estimate_cell(t.slowdown.elapsed),
            _estimate_cell(t.slowdown.latency),
            Cell("1.00x (assumed)") if t.slowdown.execution_assumed else _estimate_cell(t.slowdown.resident),
            _throughput_cell(t),
        )
        for t in device.tenants
        if t.slowdown.elapsed or t.slowdown.latency or t.slowdown.resident
    )
    columns = (
        Column("Tenant"),
        Column("Elapsed", "first launch to last end"),
        Column("Latency", "launch to end, summed"),
        Column("Execution", "while resident" if _switched_out_known(device) else "start to end"),
        Column("Kernels/s", "solo → shared", True),
    )
    measured = sorted({visible(t.baseline) for t in device.tenants if t.baseline is not None})
    known = [e for t in device.tenants for e in (t.slowdown.elapsed, t.slowdown.latency, t.slowdown.resident) if e]
    whole = [e for t in device.tenants for e in (t.slowdown.elapsed, t.slowdown.latency) if e]
    if any(t.group_of is not None for t in device.tenants):
        against = "from the same kernels beside another group of work and solo"
    elif measured:
        against = f"measured against {', '.join(measured)}"
    elif any(e.from_below for e in whole) and all(e.high is None for e in whole):
        against = "bounded by the resident time of the other tenants"
    else:
        against = "estimated by a counterfactual replay without the other tenants"
    of = ""
    # Of groups of work only launches beside another one are compared.
    if all(t.group_of is None for t in device.tenants):
        if (recorded := recorded_ns(device)) is not None:
            of = f" Work of the {fmt.duration(recorded)} that switch records cover counts, not of the whole window."
        elif together is not None:
            of = f" Work of the time that all captures cover counts ({together}), not of the whole window."
        elif (chosen := co_run_options(device)) is not None:
            # Solo work dilutes a slowdown.
            of = f" Work that ran solo counts as well: {chosen} leaves the time in which all {co_ran_word(device)}."
    bounds_only = all(e.low is None or e.high is None or bound_text(e) for e in known)
    estimated = _is_estimated(device)
    intervals = "" if bounds_only else " with bounds" if estimated else " with 95 % confidence intervals"
    if estimated and measured:
        intervals = " with 95 % confidence intervals, or with bounds where it is inferred"
    if estimated:
        held, of_all = MEASURED_WITHIN
        of += (
            f" Bounds allow for a host that needs up to {fmt.percent(HOST_FASTER, 0)} less time solo. "
            f"On two GPUs they contain the measured slowdown of {held} of {of_all} programs."
        )
    return Table(columns, rows, f"Slowdown (shared over solo){intervals}, {against}.{of}")


def _is_estimated(device: Device) -> bool:
    """Whether a slowdown, with its bounds, is against a replay of the recording."""
    return any(
        e is not None and e.basis == "inferred" and e.high is not None and t.baseline is None and t.group_of is None
        for t in device.tenants
        for e in (t.slowdown.elapsed, t.slowdown.latency)
    )


def _columns_text(device: Device) -> list[str]:
    """What the columns of slowdowns and of causes count, a paragraph each: below the tables, folded away."""
    found = []
    if any(t.slowdown.elapsed for t in device.tenants):
        found.append(
            "Elapsed leaves out pauses of the program longer than both 20 ms and three times its usual pause; so do "
            "kernels/s."
        )
    if _is_estimated(device):
        found.append(
            "An estimate is too high where requests had piled up: solo, the program would have paused between them. "
            "Its bounds are those of the model for this recording, not of other runs."
        )
    if any(t.slowdown.latency and t.group_of is None for t in device.tenants):
        found.append("Latency begins at the launch: --work FILE measures requests from their own start.")
    if any(t.throughput is not None for t in device.tenants):
        found.append(
            "Kernels/s of the co-run are observed, those solo inferred: the same work over the time it would take. "
            "Only work that is in both runs counts."
        )
    known = [t for t in device.tenants if t.causes is not None]
    slow, caused = " ".join(found), " ".join(_causes_text(device, known)) if known else ""
    return [text for text in (slow, caused) if text]


def _causes_text(device: Device, known: Sequence[Tenant]) -> Iterator[str]:
    """What the columns of causes count, a sentence or two each."""
    own = {cause for tenant in known for cause in BEHIND_OWN if behind_own(tenant, cause) is not None}
    # Of slower execution such waits have a column of their own.
    if own - {Cause.EXECUTION}:
        yield _ROOT_CAUSES
    if any((tenant.root_causes or tenant.causes).queue_other for tenant in known):  # type: ignore[union-attr]
        yield (
            "Behind others: kernels or copies of another tenant held up this operation, or the one at the head of its "
            "queue. The rest of queueing is waits behind work of its own."
            if own
            else "Queueing behind others is behind kernels or copies of other tenants; the rest is behind its own."
        )
    if any(tenant.causes is not None and tenant.causes.others is not None for tenant in known):
        yield _NOT_TOLD_APART
    if basis := _switch_basis(device):
        yield basis


def _switched_out_known(device: Device) -> bool:
    """Whether it is known of any tenant when its context was resident: else execution is all of a kernel's interval."""
    return any(t.resident_ns is not None or t.in_mps_group for t in device.tenants)


def _throughput_cell(tenant: Tenant) -> Cell:
    throughput = tenant.throughput
    if throughput is None:
        return Cell(fmt.UNKNOWN, tone="muted")
    # No solo run has just this work: what is recorded is the co-run.
    return Cell(f"{fmt.count(round(throughput.solo_per_s))} → {fmt.count(round(throughput.shared_per_s))}")


def _estimate_cell(estimate: Estimate | None) -> Cell:
    if estimate is None:
        return Cell(fmt.UNKNOWN, tone="muted")
    low, high = estimate.low, estimate.high
    if bound_text(estimate) or low is None or high is None:
        return Cell(estimate_text(estimate, basis=False), basis=estimate.basis)
    return Cell(f"{fmt.ratio(estimate.value)} ({low:.2f}-{high:.2f})", basis=estimate.basis)


def _kernel_blocks(figures: Interference, labels: Mapping[int, str]) -> list[Block]:
    """Kernels of groups of work beside other groups and solo."""
    if not figures.kernels:
        return []
    rows = tuple(
        (
            Cell(labels.get(one.tenant_id, f"#{one.tenant_id}"), tone="code"),
            Cell(visible(one.kernel or "unnamed", 40), tone="code"),
            Cell(f"{fmt.duration(one.solo_median_ns)} → {fmt.duration(one.median_ns)}"),
            Cell(fmt.ratio(one.ratio), basis="observed"),
            value_cell(f"{one.low:.2f}-{one.high:.2f}"),
            Cell(
                fmt.UNKNOWN if one.beside is None else labels.get(one.beside, f"#{one.beside}"),
                note=visible(one.beside_kernel or "copies", 40),
            ),
            Cell(f"{fmt.count(one.n)} / {fmt.count(one.n_solo)}"),
        )
        for one in figures.kernels[:_KERNELS]
    )
    columns = (
        Column("Victim"),
        Column("Kernel"),
        Column("Median", "solo → beside it", True),
        Column("Slowdown", numeric=True),
        Column("95 % CI", numeric=True),
        Column("Aggressor", "its kernel"),
        Column("n", "beside / solo", True),
    )
    more = len(figures.kernels) - _KERNELS
    caption = "The same kernels beside another group of work and solo, in this capture."
    return [Table(columns, rows, caption + (f" {more} with less time are left out." if more > 0 else ""))]


def _figure_blocks(device: Device, figures: Interference) -> list[Block]:
    if any(t.group_of is not None for t in device.tenants):
        if figures.speedup_over_serial is None:
            return []
        text = (
            "solo time of what two groups had in flight at once, one after the other, over the time in which they had"
        )
        return [Facts((Fact("Speedup of overlapping", fmt.ratio(figures.speedup_over_serial), text, "inferred"),))]
    if figures.antt is None:
        return [Note("Figures of the device are not known", why_missing(device, "interference.figures"))]
    bases = {t.slowdown.elapsed.basis for t in device.tenants if t.slowdown.elapsed is not None}
    basis: Basis = "inferred" if "inferred" in bases else "observed"
    facts = (
        Fact(
            "Speedup over serial execution",
            fmt.ratio(figures.speedup_over_serial),
            "solo runs one after the other, over the time from the first launch to the last end of any; 1 is no gain",
            basis,
        ),
        Fact("ANTT", fmt.number(figures.antt), "average normalised turnaround time: mean elapsed slowdown", basis),
        Fact(
            "STP",
            fmt.number(figures.stp),
            "system throughput: sum of 1/slowdown",
            basis,
        ),
        Fact("Harmonic speedup", fmt.number(figures.harmonic), "1/ANTT; 1 is no interference", basis),
        Fact("Jain's index", fmt.number(figures.jain), "fairness of slowdowns: of 1/slowdown; 1 is fair", basis),
        Fact("Unfairness", fmt.number(figures.unfairness), "largest elapsed slowdown over the smallest", basis),
    )
    return [Facts(facts)]


def _matrix_blocks(device: Device, figures: Interference, labels: Mapping[int, str]) -> list[Block]:
    if figures.matrix is None:
        return [Note("Pairwise interference is not known", why_missing(device, "interference.matrix", "interference"))]
    if not figures.matrix:
        return []
    if any(c.execution is not None for c in figures.matrix):
        return _execution_matrix(figures.matrix, labels)
    if len(device.tenants) == 2:
        # With one other tenant it is the slowdown, which stands above.
        return []
    if any(c.share is not None for c in figures.matrix):
        return _shares_matrix(device, figures.matrix, labels)
    kind = pairwise_kind(device)
    # The kind of the slowdown that is named first is first here.
    found = sorted(figures.matrix, key=lambda c: (c.victim, -(getattr(c, kind) or 0)))
    pairs = [(labels.get(c.victim, f"#{c.victim}"), labels.get(c.aggressor, f"#{c.aggressor}")) for c in found]
    least = known_from_below(device)
    values = [
        (value_cell(f"{'at least ' * (c.victim in least)}{fmt.ratio(c.latency)}"), value_cell(_elapsed(c)))
        for c in found
    ]
    heads = (Column("Latency", numeric=True), Column("Elapsed", "95 % CI", True))
    if kind == "slowdown":
        values, heads = [(elapsed, latency) for latency, elapsed in values], (heads[1], heads[0])
    rows = tuple(
        (Cell(victim), Cell(aggressor), *each, Cell(fmt.count(c.n)))
        for (victim, aggressor), each, c in zip(pairs, values, found, strict=True)
    )
    columns = (Column("Victim"), Column("Aggressor"), *heads, Column("n", numeric=True))
    together = [
        f"{labels.get(c.aggressor, c.aggressor)} and {labels.get(c.inseparable_from, c.inseparable_from)}"
        for c in figures.matrix
        if c.inseparable_from is not None and c.slowdown is None and c.aggressor < c.inseparable_from
    ]
    blocks: list[Block] = [
        Chart(
            chart_key("matrix", device.device_id),
            "Pairwise interference",
            f"{_PAIRWISE[kind]} of the victim (row) with that aggressor (column) as the only other tenant.",
        ),
        Table(
            columns,
            rows,
            "Pairwise interference (inferred).",
        ),
    ]
    if together:
        text = (
            f"{', '.join(sorted(set(together)))} were always active at the same time, or share one context. "
            "Their parts cannot be separated."
        )
        blocks.append(Note("Inseparable", text))
    if without := pairs_without_figure(device):
        blocks.append(Note("Pairs without a figure", _without_figure(without, labels)))
    return blocks


def _shares_matrix(device: Device, matrix: Sequence[MatrixCell], labels: Mapping[int, str]) -> list[Block]:
    """Who took the time in which a time-sliced victim waited for several others."""
    chart = Chart(
        chart_key("matrix", device.device_id),
        "Pairwise interference",
        "Part of the time that others took from the victim (row), by the aggressor that was resident (column).",
    )
    caption = (
        "Time that others took between launch and end of the victim's kernels, by the aggressor that was resident "
        "(inferred). How much one aggressor alone would slow the victim is not known."
    )
    shares = [(c, c.share, fmt.percent(c.share)) for c in matrix]
    blocks: list[Block] = [chart, _pairs_table("Share", shares, labels, caption)]
    if without := pairs_without_figure(device):
        blocks.append(Note("Pairs without a figure", _without_figure(without, labels)))
    return blocks


def _without_figure(pairs: Mapping[tuple[int, int], str], labels: Mapping[int, str]) -> str:
    """Name the pairs, by reason and victim."""
    by_reason: dict[str, dict[int, list[str]]] = {}
    for (victim, aggressor), why in pairs.items():
        by_reason.setdefault(why, {}).setdefault(victim, []).append(labels.get(aggressor, f"#{aggressor}"))
    said = []
    for why, victims in by_reason.items():
        named = [
            f"{labels.get(victim, f'#{victim}')} by {fmt.names(sorted(by))}"
            for victim, by in list(victims.items())[:_MOST_WITHOUT]
        ]
        if more := len(victims) - len(named):
            named.append(f"pairs of {fmt.counted(more, 'more victim')}")
        said.append(f"{'; '.join(named)}: {why}.")
    return " ".join(said)


def _execution_matrix(matrix: Sequence[MatrixCell], labels: Mapping[int, str]) -> list[Block]:
    """Who slowed the execution of whom, between groups of work."""
    caption = "Pairwise interference: execution with the aggressor as the only other tenant (inferred)."
    slowed = [(c, c.execution, fmt.ratio(c.execution)) for c in matrix if c.execution is not None]
    return [_pairs_table("Execution", slowed, labels, caption)]


def _pairs_table(
    title: str,
    cells: Iterable[tuple[MatrixCell, float | None, str]],
    labels: Mapping[int, str],
    caption: str,
) -> Table:
    """One figure of each pair, and its text; by victim, the largest first."""
    rows = tuple(
        (
            Cell(labels.get(c.victim, f"#{c.victim}")),
            Cell(labels.get(c.aggressor, f"#{c.aggressor}")),
            value_cell(text),
            Cell(fmt.count(c.n)),
        )
        for c, _, text in sorted(cells, key=lambda one: (one[0].victim, -(one[1] or 0)))
    )
    columns = (Column("Victim"), Column("Aggressor"), Column(title, numeric=True), Column("n", numeric=True))
    return Table(columns, rows, caption)


#: Victims with pairs that have no figure, of which the pairs are named.
_MOST_WITHOUT = 6
#: The kinds of pairwise slowdown, in words.
_PAIRWISE = {"latency": "Slowdown of latency", "slowdown": "Slowdown of elapsed time"}


def _elapsed(cell: MatrixCell) -> str:
    span = "" if cell.low is None or cell.high is None else f" ({cell.low:.2f}-{cell.high:.2f})"
    return f"{fmt.ratio(cell.slowdown)}{span}"


def _tail_blocks(device: Device, labels: Mapping[int, str]) -> list[Block]:
    """Mean and percentiles of latency, solo and shared: of kernels, and of units of work, which users ask for."""
    rows = []
    co_ran = any(t.slowdown.latency_co_run or any(u.latency_co_run for u in t.units) for t in device.tenants)
    for t in device.tenants:
        kinds = [("kernels", t.slowdown.latency, t.slowdown.latency_co_run, t.latency_percentiles)]
        kinds += [(visible(u.name), u.latency, u.latency_co_run, u.latency_percentiles) for u in t.units]
        for name, latency, beside, tails in kinds:
            if not tails or latency is None:
                continue
            means = [Cell(fmt.ratio(latency.value), basis=latency.basis)]
            if co_ran:
                said = None if beside is None else f"{fmt.ratio(beside.value)} (n = {fmt.count(beside.n)})"
                means.append(Cell("no figure", tone="muted") if said is None else Cell(said))
            cells = [Cell(f"{fmt.duration(x.solo_ns)} → {fmt.duration(x.shared_ns)} ({x.ratio:.2f}x)") for x in tails]
            rows.append(
                (Cell(labels[t.tenant_id], tone="code"), Cell(name), Cell(fmt.count(latency.n)), *means, *cells)
            )
    if not rows:
        return []
    columns = (
        Column("Tenant"),
        Column("Work"),
        Column("n", numeric=True),
        Column("Mean", "slowdown", True),
        *([Column("Mean, co-run", "slowdown while another tenant has work", True)] if co_ran else []),
        Column("p50", "solo → shared", True),
        Column("p95", numeric=True),
        Column("p99", numeric=True),
    )
    units = any(unit.latency_percentiles for t in device.tenants for unit in t.units)
    of_units = " and of units of work (start to end, their last operation included)" if units else ""
    left_out = "".join(
        f" {_left_out(found, labels[t.tenant_id], t.slowdown.latency)}"
        for t in device.tenants
        if (found := t.not_compared) is not None
    )
    if co_ran:
        left_out += " Co-run has no figure where hardly any ran solo, or where it is not known; the rest counts all."
    return [Table(columns, tuple(rows), f"Latency of kernels (launch to end){of_units}.{left_out}")]


def _left_out(found: NotCompared, label: str, latency: Estimate | None) -> str:
    """How many kernels of a tenant are not in n, and why."""
    reasons = (
        (found.before_work, "launched before the pause after which its work begins"),
        (found.no_like, "of a kind that the baseline does not have"),
        (found.launch, "whose launch was held up by the profiler or by loading code, not recorded, or cut"),
    )
    said = [f"{fmt.count(n)} {why}" for n, why in reasons if n]
    bound = latency is not None and latency.from_below and found.launch
    counted = " The lower bound counts these from their start." if bound else ""
    return f"Of {fmt.counted(found.kernels, 'kernel')} of {label}, n leaves out {fmt.names(said)}.{counted}"


def _cause_blocks(device: Device) -> list[Block]:
    known = [t for t in device.tenants if t.causes is not None]
    victim = impact_of(device).victim
    whose = (
        f"{tenant_labels(device.tenants)[victim.tenant.tenant_id]}: " if victim is not None and victim.slowed else ""
    )
    answer: list[Block] = [Para(f"{whose}{cause_sentence(device)}")]
    if not known:
        return answer
    labels = tenant_labels(device.tenants)
    undivided = any(tenant.causes is not None and tenant.causes.others is not None for tenant in known)
    causes_shown = [cause for cause in Cause if undivided or cause is not Cause.OTHERS]
    divided = any(behind_own(tenant, Cause.EXECUTION) is not None for tenant in known)
    heads = [
        head
        for cause in causes_shown
        for head in (
            [capital(RAN_LONGER), capital(BEHIND_SLOWER)]
            if divided and cause is Cause.EXECUTION
            else [f"Other {CAUSE_WORDS[cause]}"]
            if divided and cause is Cause.QUEUE
            else [capital(CAUSE_WORDS[cause])]
        )
    ]
    columns = (Column("Tenant"), *(Column(head, numeric=True) for head in heads))
    rows = tuple(
        (
            Cell(labels[tenant.tenant_id], tone="code"),
            *(
                value_cell(text)
                for cause in causes_shown
                for text in _cause_texts(tenant, cause, divided=divided and cause is Cause.EXECUTION)
            ),
        )
        for tenant in known
    )
    chart = Chart(
        chart_key("causes", device.device_id),
        "Where the added latency went",
        "Parts of the added latency of its kernels; they sum to 100 %.",
    )
    table = Table(columns, rows, _CAUSES_CAPTION)
    return [*answer, chart, table, *_execution_blocks(known, labels)]


def _cause_texts(tenant: Tenant, cause: Cause, *, divided: bool) -> list[str]:
    """A part of the added latency; `divided`, in two: what kernels themselves took longer, and waits behind those."""
    causes = tenant.root_causes or tenant.causes
    if causes is None or tenant.causes is None:
        return []
    own = behind_own(tenant, cause)
    if divided:
        return [_cause_text(tenant, tenant.causes, cause), fmt.percent(0.0 if own is None else own)]
    said = _cause_text(tenant, causes, cause)
    return [said if own is None else f"{said} ({fmt.percent(own)} behind its own)"]


def _cause_text(tenant: Tenant, causes: Causes, cause: Cause) -> str:
    """A part of the added latency; with what is known of it besides."""
    part = fmt.percent(getattr(causes, cause.value))
    if cause is Cause.QUEUE and causes.queue_other:
        return f"{part} ({fmt.percent(causes.queue_other)} behind others)"
    if cause is Cause.EXECUTION and not causes.execution and tenant.slowdown.execution_assumed:
        return f"{part} (assumed)"
    latency = tenant.slowdown.latency
    if cause is Cause.LAUNCH and not causes.launch and latency is not None and latency.basis == "inferred":
        # The counterfactual replay takes each call as long as it was recorded.
        return f"{part} (assumed)"
    return part


def _switch_basis(device: Device) -> str:
    """Say where the time of saving and restoring contexts comes from, where no record has it."""
    switches = device.context_switches
    if switches is None or switches.cost_kind != "gap":
        return ""
    known = "Context switches are switch gaps, as recorded, and saving and restoring"
    state = None if device.interference is None else device.interference.context_state
    if state is None:
        return (
            f"{known}. No record of this driver and too few kernels of this capture show the latter: inside kernels it "
            "is assumed as on other boards, between kernels it is not counted."
        )
    return (
        f"{known}, which no record of this driver has: about {fmt.duration(state.save_ns + state.restore_ns)} "
        f"(between {fmt.duration(state.low_ns)} and {fmt.duration(state.high_ns)}), inferred "
        f"{INFERRED_STATE[state.found_from]}. An error there moves time between context switches and waiting."
    )


def _execution_blocks(tenants: Sequence[Tenant], labels: Mapping[int, str]) -> list[Block]:
    """The cause `execution` by evidence."""
    names = ("memory", "copy_", "clock", "uvm")
    known = [
        (t, t.causes.execution, split)
        for t in tenants
        if t.causes is not None and (split := t.causes.execution_split) is not None
    ]
    rows = tuple(
        (
            Cell(labels[t.tenant_id], tone="code"),
            value_cell(_part(execution)),
            value_cell(f"at most {_part(split.sm_slots)}" if _at_most(split) else _part(split.sm_slots)),
            *(value_cell(_part(getattr(split, name))) for name in names),
            value_cell(_part(None if _at_most(split) else split.unexplained)),
        )
        for t, execution, split in known
    )
    if not rows:
        return []
    heads = ("SM slots", "Memory system", "Copy engines", "Clock", "Page migration", "Not explained")
    columns = (
        Column("Tenant"),
        Column("Kernels ran longer", "sum of the causes", True),
        *(Column(head, numeric=True) for head in heads),
    )
    caption = "What made kernels run longer, as parts of the added latency (inferred)."
    if any(behind_own(t, Cause.EXECUTION) is not None for t, _, _ in known):
        caption += " Waits behind its own slower kernels are not divided by cause."
    if any(_at_most(split) for _, _, split in known):
        caption += (
            " At most: the model gives SM slots all that is left. Causes that are not known may have a part of it."
        )
    return [Table(columns, rows, caption)]


def _at_most(split: ExecutionSplit) -> bool:
    """Whether modelled slots took all that was left, of which causes that nobody measured may have a part."""
    return bool(split.sm_slots) and split.unexplained == 0 and None in split.parts().values()


def _part(value: float | None) -> str:
    return fmt.percent(value)


SECTION = DeviceSection("interference", "Interference", _blocks, of_trace=True)
