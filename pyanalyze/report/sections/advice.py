"""What to change, and the sharing configurations that were compared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyanalyze.analysis.advice.options import ReplayError, how_wrong
from pyanalyze.analysis.impact import CAUSE_WORDS, Cause
from pyanalyze.report.blocks import Block, Cell, Column, Commands, Fold, Note, Para, Table
from pyanalyze.report.sampled_text import without_capture
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences.co_run import co_run_part, most_alone
from pyanalyze.report.sentences.missing import solo_first, why_missing, why_missing_or_nothing
from pyanalyze.report.sentences.window import share_of_run
from pyanalyze.report.sentences.words import HALF, LONG, window_length_ns
from pyanalyze.results.advice import EXPLAINS, numbers_of, times_slower
from pyanalyze.results.labels import tenant_labels
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop
from pyanalyze.vocabulary import NOTABLE_DIFFERENCE, SMALL_SHARE, TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyanalyze.results.advice import CapStrategy, ForecastWaits, SharingOption
    from pyanalyze.results.report import Device

#: What a recording costs tenants that run already, and what there is without one.
_RESTART: Final = (
    "nsys cannot attach CUDA tracing to a running process: to record a tenant, restart it under nsys. "
    "Without a restart, a list of GPU processes says who is there. Latencies (--work) show whether they rise with the "
    "use of another tenant. pyanalyze record --nsys takes samples and, except under MIG, switch records of all "
    "processes."
)
#: Between two commands of an undo. A line break in foreign text stays escaped: no command begins behind it.
_NEXT_COMMAND = re.compile(r"\n(?=(?:# write|# where|export|unset|echo|for) )")


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    blocks: list[Block] = []
    if not device.advice:
        first = solo_first(device)
        if first is not None:
            blocks += [Para(f"{first[0]}."), Commands((first[1],))]
        found = [
            f"No {'other ' if blocks else ''}advice follows from this evidence.",
            why_missing_or_nothing(device, "advice"),
        ]
        if device.missing_for("options"):
            found.append(f"Sharing configurations were not compared. {why_missing(device, 'options')}")
        return [*blocks, Para(" ".join(part for part in found if part)), *settings_blocks(device, inputs)]
    numbers = numbers_of(device.advice)
    either = [number for number, item in zip(numbers, device.advice, strict=True) if item.exclusive]
    for number, item in zip(numbers, device.advice, strict=True):
        if len(either) > 1 and number == either[0]:
            blocks.append(Para(f"{fmt.names(either)} are alternatives: choose one."))
        small = "Small: " if item.at_stake_share is not None and item.at_stake_share < SMALL_SHARE else ""
        action = f"{number}. {small}{visible(item.action, 200)}"
        blocks.append(Note(action, full_stop(capital(visible(item.why, LONG)))))
        if item.commands:
            blocks.append(Commands(tuple(visible(line, None) for line in item.commands)))
        parts = [
            f"Expected: {visible(item.expected, LONG)}." if item.expected else "",
            # The bounds of a forecast are not the most that can be gained.
            f"{'Bounds' if item.expected else 'Upper bound of the gain'}: {visible(item.bound, LONG)}."
            if item.bound
            else "",
            f"That is {of_run}."
            if item.bound and (of_run := share_of_run(inputs.report, device, item.at_stake_ns))
            else "",
            # Looking for something changes nothing by itself.
            "Expected gain: not known."
            if not item.expected and not item.bound and (item.undo or item.wrong_if or item.check_after)
            else "",
            f"Does not apply if {visible(item.wrong_if, LONG)}." if item.wrong_if else "",
            f"Check afterwards: {visible(item.check_after, LONG)}." if item.check_after else "",
            f"Risk: {visible(item.risk, LONG)}." if item.risk else "",
        ]
        if said := " ".join(p.replace("..", ".") for p in parts if p):
            blocks.append(Para(said, "muted"))
        if item.undo:
            # On lines of its own, so that it can be copied whole.
            undo = tuple(visible(line, None) for line in _NEXT_COMMAND.split(item.undo))
            blocks += [Para("Undo:", "muted"), Commands(undo)]
    asked = any(gap.how for gap in device.missing_for("kernels"))
    # Once: each device asks for the same recordings.
    if device is inputs.main and asked and without_capture(inputs.report):
        blocks.append(Para(_RESTART))
    replayed = [Para(_replayed(device))] if device.replay_check else []
    return [*blocks, *settings_blocks(device, inputs), *replayed, *_compared(device)]


def _replayed(device: Device) -> str:
    """By how much the replay of the current configuration misses the record: once, above the table of options."""
    labels = tenant_labels(device.tenants)
    each = [
        f"{labels[one.tenant_id]} {how_wrong(ReplayError(one.tenant_id, one.error))}" for one in device.replay_check
    ]
    return f"The replay of the current configuration makes the elapsed time of {fmt.names(each)}."


def settings_blocks(device: Device | None, inputs: Inputs) -> list[Block]:
    """What pods of the cluster ask for without effect, once: with the main device, or without any."""
    if device is not inputs.main:
        return []
    return [
        Note(visible(one.action, 200), full_stop(capital(visible(one.why, LONG))))
        for one in inputs.report.settings_advice
    ]


#: How caps of each strategy are chosen.
_STRATEGIES: Final[Mapping[CapStrategy, str]] = {
    "equal": "Equal caps divide 100 % by the clients.",
    "double": "Double caps divide 200 % by the clients.",
    "proportional": "Proportional caps follow the SM time that each used.",
    "minimal": "Minimal caps give the fewest SMs with which a client's kernels lose almost nothing solo.",
}


def _compared(device: Device) -> list[Block]:
    """The sharing configurations that were forecast, and what their modes isolate."""
    if not device.options:
        return []
    labels = tenant_labels(device.tenants)
    rows = []
    for option in device.options:
        mark = " (current)" if option.current else ""
        mark += ", advised" if option.recommended and mark else " (advised)" if option.recommended else ""
        caps = {one.tenant_id: f" (at {one.percentage} %)" for one in option.percentages}
        caps |= {one.tenant_id: f" (in {visible(one.profile)})" for one in option.profiles}
        each = "; ".join(
            f"{labels.get(f.tenant_id, str(f.tenant_id))}{caps.get(f.tenant_id, '')} {fmt.ratio(f.slowdown)} "
            f"[{fmt.ratio(f.low)}, {fmt.ratio(f.high)}]"
            for f in option.tenants
        )
        rows.append(
            (
                Cell(f"{visible(option.name)}{mark}"),
                Cell(fmt.ratio(option.antt)),
                Cell(f"{option.stp:.2f}"),
                Cell(each),
                Cell(_kept_apart(option.mode)),
            )
        )
    columns = (
        Column("Sharing configuration"),
        Column("Mean slowdown", "ANTT", True),
        Column("STP", "sum of 1/slowdown", True),
        Column("Slowdown of each tenant", "[bounds]"),
        Column("Isolated", "by documentation; ?: sources disagree"),
    )
    whole = "the whole GPU" if device.mig is None else "the whole instance"
    shown = {option.strategy for option in device.options}
    strategies = "".join(f" {said}" for strategy, said in _STRATEGIES.items() if strategy in shown)
    of_caps = f" A percentage is the client's CUDA_MPS_ACTIVE_THREAD_PERCENTAGE.{strategies}" if strategies else ""
    notes = f"{_co_run_note(device)}{_other_slowdown(device)}"
    caption = f"Forecast elapsed slowdown of each tenant against a solo run on {whole} (modelled).{notes}"
    how = (
        "The recorded launches are replayed under each sharing configuration, the current one included. Operations "
        "before or after a long pause of their host are left out. STP is the system throughput: at 1 the tenants "
        f"together do no more work than one of them solo.{of_caps}"
    )
    reasons = _reasons(device.options, labels)
    return [
        Table(columns, tuple(rows), caption),
        *([Para(" ".join(reasons))] if reasons else []),
        Fold("How to read the forecasts", (Para(how),)),
    ]


#: Of the configurations that slow a tenant most, so many are explained.
_MOST_REASONS = 3


def _reasons(options: Sequence[SharingOption], labels: Mapping[int, str]) -> list[str]:
    """Why a configuration makes a tenant notably slower than now, of each the one that loses most; the worst first."""
    now = next((option.tenants for option in options if option.current), ())
    found = []
    for option in options:
        slower = times_slower(option.tenants, now)
        each = [
            (slower[row.tenant_id], labels[row.tenant_id], why)
            for row in option.tenants
            if row.tenant_id in slower and row.waits is not None and (why := _mostly(row.waits)) is not None
        ]
        if each:
            ratio, name, (part, what) = max(each)
            under = visible(option.name.replace(", ", " with "))
            said = f"Under {under}, {fmt.percent(part, 0)} of the added kernel latency of {name} is {what} (modelled)."
            found.append((ratio, said))
    return [said for _, said in sorted(found, reverse=True)[:_MOST_REASONS]]


def _mostly(waits: ForecastWaits) -> tuple[float, str] | None:
    """The wait that makes up most of an added latency; None: neither does."""
    parts = (
        (waits.queue_other, "waiting for SMs that blocks of other tenants hold"),
        (waits.not_resident, f"{CAUSE_WORDS[Cause.NOT_RESIDENT]}, context switches included"),
    )
    return next((one for one in parts if one[0] > EXPLAINS), None)


def _co_run_note(device: Device) -> str:
    """That means over the window are also of time in which a tenant had the GPU for itself; empty: of little."""
    part, window_ns = co_run_part(device), window_length_ns(device)
    if part is None or not window_ns or not most_alone(device):
        return ""
    # Long pauses of a program count in no slowdown.
    pauses = [t.time_split.one_gap for t in device.tenants if t.time_split and t.time_split.without_gap is not None]
    if any(pause.end_ns - pause.start_ns > HALF * (1 - part) * window_ns for pause in pauses if pause is not None):
        return ""
    return f" All tenants co-ran for {fmt.percent(part, 0)} of the window: then slowdowns are larger than these means."


def _other_slowdown(device: Device) -> str:
    """What the replay of the current configuration gives where the section on interference has the slowdown of now."""
    current = next((option.tenants for option in device.options or () if option.current), None)
    if current is None:
        return ""
    known = {t.tenant_id: t.slowdown.elapsed for t in device.tenants}
    labels = tenant_labels(device.tenants)
    differ = [
        f"{fmt.ratio(f.slowdown)} where {fmt.ratio(found.value)} was found for {labels[f.tenant_id]}"
        for f in current
        if (found := known.get(f.tenant_id)) is not None and abs(f.slowdown / found.value - 1) >= NOTABLE_DIFFERENCE
    ]
    said = " Compare the other rows with the current one."
    if not differ:
        return said
    return (
        f"{said} That one also checks the replay: it gives {fmt.names(differ, 3)} (Interference). "
        "Of now quote Interference: there the shared run is as recorded, and only the solo run is modelled."
    )


def _kept_apart(mode: Mode) -> str:
    """What a mode isolates between tenants, in words."""
    if mode == Mode.UNDETERMINED:
        return fmt.UNKNOWN
    found = TRAITS[mode].promises
    words = (("memory", found.memory_protection), ("faults", found.fault_isolation), ("bandwidth", found.bandwidth_qos))
    return ", ".join(f"{word}?" if value is None else word for word, value in words if value is not False) or "nothing"


SECTION = DeviceSection("advice", "What to change", _blocks)
