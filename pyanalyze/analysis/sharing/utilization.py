"""Whether the driver counted kernels on a device at times when no traced one ran.

`utilization.gpu` is the share of the preceding 1/6 to 1 s, by product, in which any process had a kernel executing.
What traced kernels do not explain of it is of a process that was not traced, or of work that CUPTI does not record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pyanalyze.analysis.sharing.facts import Fact

if TYPE_CHECKING:
    from pyanalyze.tables.tableset import TableSet

__all__ = ["utilization_facts"]

#: The longest time that a sample covers (help text of nvidia-smi).
_PERIOD_NS = 1_000_000_000
#: How long the driver may count a device as active after a kernel; nobody says how finely it looks.
_TAIL_NS = 200_000


def utilization_facts(tables: TableSet, device_id: int) -> dict[str, Fact]:
    """Compare samples of utilisation with the traced kernels of the same time.

    Parameters
    ----------
    tables
        The tables.
    device_id
        The device.

    Returns
    -------
    dict of str to Fact
        ``utilization_pct``: the lowest of the ``n`` samples that cover nothing but time between the first and the last
        traced kernel. ``utilization_traced_pct``: the most that the ``n`` traced kernels of that time explain, if the
        device counted as active for 0.2 ms after each. Empty without such samples.

    Examples
    --------
    >>> import pyanalyze
    >>> utilization_facts(pyanalyze.load(capture).tables, 0)
    {}
    """
    samples = tables.board_samples_of(device_id).get("gpu_utilization_pct")
    if samples is None:
        return {}
    columns = ("device_id", "start_ns", "end_ns")
    work = pl.concat([tables.frame(name).select(*columns) for name in ("kernels", "graph_launches")])
    work = work.filter(pl.col("device_id") == device_id).sort("start_ns")
    if work.is_empty():
        return {}
    first_ns, last_ns = work["start_ns"][0], work.select(pl.max("end_ns")).item()
    inside = samples.filter(pl.col("time_ns").is_between(first_ns + _PERIOD_NS, last_ns)).drop_nulls("value")
    if inside.is_empty():
        return {}
    start_ns, end_ns = min(inside["time_ns"]) - _PERIOD_NS, max(inside["time_ns"])
    active = work.filter(pl.col("start_ns") < end_ns, pl.col("end_ns") > start_ns).select(
        pl.col("start_ns").clip(lower_bound=start_ns), (pl.col("end_ns") + _TAIL_NS).clip(upper_bound=end_ns)
    )
    until = pl.col("end_ns").cum_max().shift(1, fill_value=start_ns)
    new = (pl.col("end_ns") - pl.max_horizontal("start_ns", until)).clip(lower_bound=0)
    explained = 100 * active.select(new.sum()).item() / (end_ns - start_ns)
    return {
        "utilization_pct": Fact(min(inside["value"]), "%", inside.height, "sampled", ""),
        "utilization_traced_pct": Fact(explained, "%", active.height, "inferred", ""),
    }
