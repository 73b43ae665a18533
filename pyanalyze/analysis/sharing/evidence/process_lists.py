"""Processes that NVML or nvidia-smi lists on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.sharing.facts import Case, Observation
from pyanalyze.text import format as fmt
from pyanalyze.text.visible import program
from pyanalyze.vocabulary import COMPUTE, MPS_CLIENT, MPS_CUT_NAME, MPS_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable


def observations(case: Case) -> Iterable[Observation]:
    """Make those of this module."""
    windows = is_windows(case)
    if windows is not None:
        why = f"{windows}: MPS does not exist on Windows or WSL2"
        yield Observation("mps_impossible", None, "1", 1, "observed" if case.wsl else "sampled", why)
    if case.nvml_processes is None:
        return
    clients = [p for p in case.nvml_processes if MPS_SERVER not in p[1]]
    servers = len(case.nvml_processes) - len(clients)
    if servers:
        yield Observation(
            "nvml_mps_server",
            float(servers),
            "processes",
            servers,
            "sampled",
            f"NVML lists {MPS_SERVER}{_taken(case)}",
            n_of="processes",
        )
    of_mps = sum(kind == MPS_CLIENT for _, _, kind in clients)
    if of_mps:
        yield Observation(
            "nvml_mps_clients",
            None,
            "1",
            of_mps,
            "sampled",
            f"NVML lists MPS clients (type {MPS_CLIENT}){_taken(case)}",
            n_of="processes",
        )
    # Names alone, without types, do not tell clients from others.
    elif not servers and len(clients) > 1 and all(kind == COMPUTE for _, _, kind in clients):
        yield Observation(
            "nvml_no_mps_clients",
            float(len(clients)),
            "processes",
            len(clients),
            "sampled",
            f"NVML lists {len(clients)} processes of type {COMPUTE} and none of type {MPS_CLIENT}{_taken(case)}",
            n_of="processes",
        )
    yield from _outside_mps(case)
    together = len(clients) if case.nvml_together is None else case.nvml_together
    # A list that lacks traced processes cannot show that there were no others.
    if len(clients) == 1 and not case.unlisted:
        yield Observation(
            "nvml_one_process",
            1.0,
            "processes",
            1,
            "sampled",
            f"NVML lists one compute process on the GPU{_taken(case)}",
            n_of="processes",
        )
    # Of a board's processes some may be in other instances.
    elif together > 1 and not case.nvml_of_board:
        yield Observation(
            "nvml_several_processes",
            float(together),
            "processes",
            together,
            "sampled",
            f"NVML lists {together} compute processes{' beside the MPS server' if servers else ''} on the GPU"
            f"{' at a time' if together < len(clients) else ''}{_taken(case)}",
            n_of="processes",
        )


def _outside_mps(case: Case) -> Iterable[Observation]:
    """Processes that are listed beside MPS clients and are none: their work is time-sliced with the server's."""
    listed = case.nvml_processes or ()
    clients = [pid for pid, _, kind in listed if kind == MPS_CLIENT]
    # Of others the list gives no type, or a type of graphics.
    outside = [(pid, name) for pid, name, kind in listed if kind == COMPUTE and MPS_CUT_NAME not in name]
    if not clients or not outside:
        return
    busy = [(pid, name) for pid, name in outside if pid in case.nvml_busy]
    both = bool(busy) and not case.nvml_busy.isdisjoint(clients)
    found = busy if both else outside
    names = fmt.names([f"{program(name) or 'process'} (pid {pid})" for pid, name in found], 3)
    said = f"NVML lists {fmt.counted(len(found), 'process', 'processes')} outside of MPS (type {COMPUTE}): {names}"
    yield Observation(
        "outside_mps_busy" if both else "nvml_outside_mps",
        float(len(found)),
        "processes",
        len(found),
        "sampled",
        f"{said}{'; its kernels ran, as those of clients did' if both else ''}{_taken(case)}",
        n_of="processes",
    )


def is_windows(case: Case) -> str | None:
    """How it is known that the machine runs Windows or WSL2, where MPS does not exist; None: it is not."""
    if case.wsl:
        return "the kernel of the recorded machine is that of WSL2"
    model = case.setting("driver_model.current")
    if model is not None and model.value in ("WDDM", "MCDM", "TCC"):
        return f"the driver model is {model.value}"
    for name in case.listed_programs:
        if name == "/Xwayland":
            return "the driver lists the X server of WSL2"
        if "\\" in name or name.lower().endswith(".exe"):
            return "the driver lists Windows programs"
    return None


def _taken(case: Case) -> str:
    """Say when the list of processes was taken, where that was not in the window."""
    apart_ns = case.nvml_apart_ns
    return "" if not apart_ns else f", {fmt.duration(abs(apart_ns))} {'before' if apart_ns > 0 else 'after'} the window"
