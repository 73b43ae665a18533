"""What to do where tenants must be isolated: by what modes promise, without a forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import mig
from pyanalyze.analysis.advice.options import memory_peaks
from pyanalyze.analysis.mps_daemon import DEFAULT_DAEMON, daemon_on
from pyanalyze.results.advice import Advice
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import MOST_COPIES, TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyanalyze.analysis.advice.simple import Resident
    from pyanalyze.analysis.mps_daemon import Daemon
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.tables.tableset import TableSet
    from pyanalyze.vocabulary import Requirement

#: Where promises come from.
_SOURCE = "This follows from NVIDIA's documentation, not from this capture"


def own_gpus(
    required: Sequence[Requirement], lacking: Iterable[tuple[str, Mode]], *, mig_could: bool, why: str = ""
) -> Advice:
    """Advise GPUs of their own where no configuration meets the requirements.

    Parameters
    ----------
    required
        What is to be promised.
    lacking
        Configurations by name, with their modes.
    mig_could
        The board has MIG, but no instances for these tenants.
    why
        Sentences that follow the reason.

    Examples
    --------
    >>> made = own_gpus(["fault-isolation"], [("MPS", Mode.MPS), ("time-slicing", Mode.TIME_SLICING)], mig_could=False)
    >>> made.action
    'Give the tenants their own GPUs: no sharing mode of this GPU is known to provide fault-isolation'
    >>> made.why.partition(". ")[0]
    'fault-isolation is not promised by MPS; sources disagree whether time-slicing provides fault-isolation'
    """
    names: dict[str, list[str]] = {}
    for name, mode in lacking:
        names.setdefault(TRAITS[mode].promises.shortfall(required), []).append(name.replace(", ", " with "))
    each = "; ".join(said.format(fmt.names(who)) for said, who in names.items())
    return Advice(
        action=f"Give the tenants their own GPUs: no sharing mode of this GPU is known to provide "
        f"{' and '.join(required)}",
        commands=[],
        expected=None,
        bound=None,
        why=f"{each}. {_SOURCE}{why}",
        undo=None,
        wrong_if="a tenant needs less memory than it used, and fits a smaller MIG instance" if mig_could else None,
        exclusive=True,
    )


def without_forecast(
    verdict: Verdict,
    required: Sequence[Requirement],
    tenants: Mapping[str, int | None],
    device: Mapping[str, object],
    why_not: str | None,
    daemon: Daemon = DEFAULT_DAEMON,
) -> Advice:
    """Advise what meets requirements that neither the present mode nor MPS does: MIG, else GPUs of their own.

    Parameters
    ----------
    verdict
        Of the device.
    required
        What is to be promised.
    tenants
        Most memory that each tenant was seen to use, by name; None: not known.
    device
        Row of the table `devices`.
    why_not
        Why there is no forecast.
    daemon
        Of the MPS clients that are recorded.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing import Case, judge
    >>> verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",)))
    >>> board = {"name": "NVIDIA A100-SXM4-40GB", "memory_bytes": None, "compute_major": 8}
    >>> made = without_forecast(verdict, ["fault-isolation"], {"a": None, "b": None}, board, "nothing was traced")
    >>> made.commands[1]
    'nvidia-smi mig -i 0 -cgi 4g.20gb:0,3g.20gb:4 -C'
    """
    traits = TRAITS[verdict.mode]
    because = "" if why_not is None else f". No forecast: {why_not}"
    family = None if traits.mig_instance or traits.vgpu else mig.of_device(device)
    placed = None
    if family is not None and len(tenants) <= MOST_COPIES:
        # Which of them would gain by a larger instance is not known: the smallest is as large as can be.
        needs = [mig.Need(name, memory, lambda sms: 1 / max(sms, 1)) for name, memory in tenants.items()]
        placed = mig.place(family, needs)
    others = [("time-slicing", Mode.TIME_SLICING)]
    if isinstance(major := device["compute_major"], int) and major >= 7:
        others.append(("MPS", Mode.MPS))
    if placed is None or placed.unplaced:
        return own_gpus(required, others, mig_could=placed is not None, why=because)
    parts = ", ".join(f"{name} {one.profile.name}" for name, one in placed.placed.items())
    unknown = " Their memory use is not known." * (None in tenants.values())
    return Advice(
        action=f"Give each tenant its own MIG instance: {parts}",
        commands=[*((daemon.stop,) if traits.mps else ()), *placed.commands()],
        expected=None,
        bound=None,
        why=f"of the sharing modes of this GPU only MIG provides {' and '.join(required)}. {_SOURCE}.{unknown} "
        f"How much slower each tenant is in its instance is not known{because}",
        undo=placed.undo() + (f"; {daemon.start}   # before the workloads start" if traits.mps else ""),
        wrong_if="a tenant needs more memory than its instance has",
        exclusive=True,
    )


def isolated(
    tables: TableSet,
    verdict: Verdict,
    required: Sequence[Requirement],
    tenants: Sequence[Resident],
    device: Mapping[str, object],
    why_not: str | None,
) -> Advice:
    """What meets requirements that neither the present mode nor MPS does, where nothing is forecast."""
    peaks = memory_peaks(tables, verdict.device_id)
    named = {one.name: peaks.get(one.tenant_id) for one in tenants if not one.is_mps_server}
    daemon = daemon_on(tables, verdict.device_id)
    return without_forecast(verdict, required, named, device, why_not, daemon)
