"""Where the time of each process went, and what limits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.report.blocks import Block, Cell, Column, Para, Table, value_cell
from pyanalyze.report.sections.base import DeviceSection, Inputs
from pyanalyze.report.sentences import calls_before_text, limit_text, part_words, too_few_text
from pyanalyze.results.labels import host_words, sampled_words, tenant_labels
from pyanalyze.results.time_split import Limit
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital
from pyanalyze.vocabulary import SMALL_SHARE

if TYPE_CHECKING:
    from pyanalyze.results.report import Device
    from pyanalyze.results.time_split import TimeSplit


#: What parts exclude, below the titles of their columns.
_OF_PARTS = {Limit.COPIES: "no kernel in flight", Limit.WAITING: "launched, not started"}


def _top_kernel(split: TimeSplit) -> str:
    if split.top_kernel is None:
        return fmt.UNKNOWN
    outside = " outside whole graphs" if split.graphs_in_kernels else ""
    return f"{visible(split.top_kernel, 60)} ({fmt.percent(split.top_kernel_share)}{outside})"


def _part(split: TimeSplit, one: Limit) -> str:
    unread = {Limit.API_CALLS: split.api_calls_ns, Limit.WAITING: split.waiting_ns}
    if unread.get(one, 0) is None:
        return _at_most(split, split.launches_ns + split.host_ns)
    return fmt.percent(split.part_ns(one) / split.window_ns if split.window_ns else None)


def _at_most(split: TimeSplit, ns: int) -> str:
    """What calls may have of gaps so short that nobody looked for calls in them; of longer ones it is not known."""
    if not split.window_ns or ns > SMALL_SHARE * split.window_ns:
        return fmt.UNKNOWN
    said = fmt.percent(ns / split.window_ns)
    return said if not ns or said.startswith("<") else f"at most {said}"


def _longest_call(split: TimeSplit) -> str:
    known = split.api_calls_ns is not None or not split.launches_ns + split.host_ns
    if split.api_call is None:
        return "none" if known else fmt.UNKNOWN
    return f"{visible(split.api_call, 60)} ({fmt.percent(split.api_call_ns / split.window_ns)})"


def _host(split: TimeSplit) -> str:
    if split.host_activity is None:
        return fmt.UNKNOWN
    calls, samples = host_words(split.host_activity), split.host_activity.cpu_samples
    if samples is None:
        return calls or "nothing recorded"
    return f"{calls or 'no traced call or range'}; CPU samples {sampled_words(samples)}"


def _blocks(device: Device, inputs: Inputs) -> list[Block]:
    labels = tenant_labels(device.tenants)
    splits = [(labels[one.tenant_id], one.time_split) for one in device.tenants if one.time_split is not None]
    if not splits:
        return []
    few = [] if len(device.tenants) == 1 else [too_few_text(label, split) for label, split in splits if split.too_few]
    splits = [(label, split) for label, split in splits if not split.too_few]
    said = limit_text(device) or ""
    if not splits:
        return [Para(text) for text in [said, *few] if text]
    copies = [one.copies for one in device.tenants if one.time_split is not None]
    known = any(split.host_activity is not None for _, split in splits)
    rows = tuple(
        (
            Cell(visible(label)),
            Cell(fmt.duration(split.window_ns)),
            *(value_cell(_part(split, one)) for one in Limit),
            value_cell(_longest_call(split)),
            *((value_cell(_host(split)),) if known else ()),
            Cell(_top_kernel(split)),
        )
        for label, split in splits
    )
    columns = (
        Column("Tenant"),
        Column("Time", "first start to last end", True),
        *(Column(capital(part_words(one, copies)), _OF_PARTS.get(one, ""), True) for one in Limit),
        Column("Call with most time", "part of CUDA calls; share of the tenant's time"),
        *((Column("Host activity", "parts of host, of its launching thread"),) if known else ()),
        Column("Top kernel", "share of kernel time"),
    )
    caption = (
        "Observed parts of each tenant's own time, which may be shorter than the window; from kernels to host they add "
        "up to 100 %. A kernel counts from its start to its end, switched out or not. A gap counts as queued work "
        "once the launch call of the next operation has returned. The rest of a gap of up to 250 us counts as "
        "launching, but for CUDA calls other than launches, asynchronous calls, and event records and waits. Such a "
        "call, for example a synchronous copy, counts as CUDA call, as does any call in longer gaps. Where "
        "no call ran, or the launching thread was in MPI or a video codec, the host does."
    )
    if any(_part(split, Limit.API_CALLS).startswith("at most") for _, split in splits):
        caption += " Calls are not read where gaps are a small part: their time is in launching and host."
    if any(split.queued_in_time for _, split in splits):
        caption += " Work that waits in gaps of up to 250 us was queued in time: start latency and dependencies remain."
    before = [calls_before_text(label, split.calls_before) for label, split in splits if split.calls_before is not None]
    texts = [said, *few, *(text for text in before if text not in said)]
    return [*(Para(text) for text in texts if text), Table(columns, rows, caption)]


SECTION = DeviceSection("time-split", "Where the time went", _blocks)
