"""Names of tenants: those that the caller gave, and pods and containers that the configuration knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.errors import UsageError
from pyanalyze.tables.frames import FrameTable, to_frame
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible
from pyanalyze.text.pairs import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from pyanalyze.tables.frames import AnyTable


def name_pods(tenants: pl.DataFrame, configured: pl.DataFrame) -> pl.DataFrame:
    """Give tenants the pod and container that a recording of the node saw their process in.

    Parameters
    ----------
    tenants
        The table `tenants`. Processes are told by `host_pid`, for in containers of their own many have pid 1.
    configured
        The table `configured`.

    Returns
    -------
    polars.DataFrame
        The same rows; `pod` (`namespace/name`) and `container` (its name, else its id) filled where they were null.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"pid": 4711, "key": "k8s_pod", "value": "pod=team/trainer-0 container=main"}
    >>> tenants = pl.DataFrame([{"host_pid": 4711, "pod": None, "container": None}])
    >>> name_pods(tenants, pl.DataFrame([row])).select("pod", "container").row(0)
    ('team/trainer-0', 'main')
    """
    import polars as pl

    if configured["pid"].null_count() == configured.height:
        return tenants
    pods: dict[int, str] = {}
    containers: dict[int, str] = {}
    for row in configured.filter(pl.col("pid").is_not_null()).iter_rows(named=True):
        fields = parse_pairs(row["value"]) if row["key"] == "k8s_pod" else {}
        if "pod" in fields:
            pods[row["pid"]] = fields["pod"]
        if "container" in fields:
            containers[row["pid"]] = fields["container"]
        elif row["key"] == "container":
            containers.setdefault(row["pid"], row["value"])
    found = tenants
    for column, names in (("pod", pods), ("container", containers)):
        if names:
            pids = tenants["host_pid"].to_list()
            known = pl.Series(column, [names.get(pid) for pid in pids], dtype=pl.String)
            found = found.with_columns(pl.coalesce(pl.col(column).cast(pl.String), known).alias(column))
    return found


def meant(who: int | Path, paths: Sequence[Path]) -> pl.Expr:
    """Say which rows of `tenants` a name was given to.

    Parameters
    ----------
    who
        A pid, as the capture or the host has it; or the capture in which only that process was traced.
    paths
        The captures, in the order of the `capture` column.
    """
    import polars as pl

    if isinstance(who, int):
        return (pl.col("pid") == who) | (pl.col("host_pid") == who)
    own = [index for index, path in enumerate(paths) if path == who]
    return pl.col("capture").is_in(own) & pl.col("traced")


def with_given_names(
    tenants: pl.DataFrame, names: Mapping[str, int | Path], paths: Sequence[Path], *, narrowed: bool
) -> pl.DataFrame:
    """Give tenants the names that the caller chose.

    Parameters
    ----------
    tenants
        The table `tenants`.
    names, paths
        Names, and the captures, see :func:`meant`.
    narrowed
        A part of the captures: who did nothing in it is not there to be named.

    Raises
    ------
    pyanalyze.errors.UsageError
        A name that was given to no tenant.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"name": "python", "pid": 7, "host_pid": None, "capture": 0, "traced": True}
    >>> with_given_names(pl.DataFrame([row]), {"web": 7}, (), narrowed=False)["name"].to_list()
    ['web']
    """
    import polars as pl

    if not names:
        return tenants
    name = pl.col("name")
    for given, who in names.items():
        new: pl.Expr = pl.lit(given)
        named = meant(who, paths)
        found = tenants.filter(named).height
        if found == 0 and not narrowed:
            lacks = f"no tenant has that pid; there are {_pids(tenants)}"
            lacks = lacks if isinstance(who, int) else "that capture has no traced process"
            raise UsageError(f"--tenant {given}={who}: {lacks}")
        if found > 1 and not isinstance(who, int):
            new = pl.format(f"{given.replace('{', '').replace('}', '')} (pid {{}})", pl.col("pid"))
        name = pl.when(named).then(new).otherwise(name)
    return tenants.with_columns(name.alias("name"))


#: Processes that an error lists.
_LISTED = 8


def _pids(tenants: pl.DataFrame) -> str:
    """The processes that may be named: those that were traced first."""
    known = tenants.filter(tenants["pid"].is_not_null()).sort("traced", descending=True, maintain_order=True)
    rows = known.select("name", "pid").unique(maintain_order=True).iter_rows()
    return fmt.names([f"{visible(name)} {pid}" for name, pid in rows], most=_LISTED) or "none"


def named(
    tenants: AnyTable,
    configured: pl.DataFrame,
    names: Mapping[str, int | Path],
    paths: Sequence[Path],
    *,
    narrowed: bool,
) -> AnyTable:
    """Return the table `tenants` with pods from the configuration and names from the caller, if there are any.

    Parameters
    ----------
    tenants
        As reconstructed.
    configured
        The table `configured`.
    names, paths, narrowed
        See :func:`with_given_names`.

    Raises
    ------
    pyanalyze.errors.UsageError
        A name that was given to no tenant.
    """
    recorded = to_frame(tenants)
    frame = with_given_names(name_pods(recorded, configured), names, paths, narrowed=narrowed)
    return tenants if frame is recorded or frame.equals(recorded) else FrameTable("tenants", frame)
