"""Why something is not known, and what to record for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.report.sentences.tenants import tenant_names
from pyanalyze.report.sentences.words import LONG
from pyanalyze.text.escape import visible
from pyanalyze.text.format import capital, full_stop
from pyanalyze.vocabulary import TRAITS, Mode

if TYPE_CHECKING:
    from pyanalyze.results.report import Device

#: Characters of a reason inside a sentence.
_SHORT = 160
#: Behind the reason for a gap. Commands are copied from that table; inside a paragraph words would be copied with them.
TO_DO: Final = ' The table "Not available" says how to capture it.'


def outside_report(text: str) -> str:
    """The same text where that table is not shown: it names the command that shows it.

    Examples
    --------
    >>> outside_report(f"No kernel was traced.{TO_DO}")
    'No kernel was traced. `pyanalyze report` says how to capture it.'
    """
    return text.replace(TO_DO, " `pyanalyze report` says how to capture it.")


def short_why(device: Device, *keys: str) -> str:
    """The reason without the remedy, to stand inside a sentence."""
    why = next((entry.why for key in keys for entry in device.missing_for(key)), "see what is not available")
    words = visible(why, LONG).strip().rstrip(".")
    # The end of a reason says least.
    return words if len(words) <= _SHORT else words[:_SHORT].rpartition(" ")[0].rstrip(",;:") + " …"


def why_missing(device: Device, *keys: str) -> str:
    """Why something is null: the matching entry of `missing`, else an honest pointer."""
    for key in keys:
        for entry in device.missing_for(key):
            return f"{full_stop(capital(visible(entry.why, LONG)))}{TO_DO if entry.how else ''}"
    return "See what is not available."


def why_missing_or_nothing(device: Device, key: str) -> str:
    """The same; nothing where no entry says so."""
    return why_missing(device, key) if device.missing_for(key) else ""


#: What is not available, in words where its key is none.
_MISSING_WORDS = {
    "co_run": "a co-run",
    "configured_mode": "configured mode",
    "export_rows": "rows of the export",
    "gpu_metrics": "GPU metrics",
    "interference": "interference between tenants",
    "interference.figures": "mean slowdown, system throughput and fairness",
    "occupancy.part": "a part of occupancy",
    "occupancy.replay": "occupancy over time",
    "mps_clients": "MPS clients",
    "options": "other sharing configurations",
    "sm_sets": "SM sets of green contexts",
    # The other list is that of the capture, of all processes of the machine.
    "process_list": "NVML list of GPU processes",
    "slowdown": "the slowdown of a tenant",
    "window": "analysed window",
}


def missing_words(what: str) -> str:
    """Name what is not available."""
    if what.startswith("execution_split."):
        return "the split of execution time"
    return _MISSING_WORDS.get(what, visible(what, 30).replace("_", " "))


def solo_first(device: Device) -> tuple[str, str] | None:
    """What to record where nothing is advised and a slowdown is not known: the action, and its command."""
    entry = next((one for one in device.missing_for("slowdown") if one.how), None)
    # Of those that were not traced a recording of all says more.
    unknown = [tenant for tenant in device.without_slowdown() if tenant.busy_ns]
    decided = device.sharing.mode != Mode.UNDETERMINED and len(device.tenants) > 1
    if device.advice or entry is None or not unknown or not decided:
        return None
    names = tenant_names(device, unknown)
    if len(unknown) > 1:
        mps = ", under MPS as here" if TRAITS[device.sharing.mode].mps else ""
        action = (
            f"Record {names} solo first, one by one{mps}, and give each as --baseline: their slowdowns are not known"
        )
        return action, visible(entry.how, None)
    return f"Record {names} solo first: its slowdown is not known", visible(entry.how, None)
