"""What to change about one MIG instance: its size, and what to record in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import mig
from pyanalyze.analysis.advice.options import memory_peaks
from pyanalyze.nsys_tool import recording
from pyanalyze.results.advice import Advice
from pyanalyze.text import format as fmt
from pyanalyze.vocabulary import TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.tables.tableset import TableSet


def in_mig_mode(tables: TableSet, verdict: Verdict, device: Mapping[str, object]) -> bool:
    """Whether the device is a MIG instance, or by its samples a board in MIG mode."""
    if device["mig_profile"] is not None or tables.samples_of(verdict.device_id)["mig_gi"].count():
        return True
    likely = next((one.mode for one in verdict.alternatives), Mode.UNDETERMINED)
    return not tables.paths and TRAITS[likely].mig_instance


def several_in_instance(processes: int) -> Advice:
    """Ask for a recording of all processes that are listed in an instance."""
    return Advice(
        action="Record the processes of this MIG instance at the same time",
        commands=[f"{recording(switches=False)}   # one for each process, at the same time; then pyanalyze A B"],
        expected=None,
        bound=None,
        why=f"{processes} processes are listed in the instance: how much they slow each other is not known",
        undo=None,
    )


def alone_in_instance(tables: TableSet, device: Mapping[str, object], if_slow: str) -> Advice:
    """An instance is a part of the device: nobody else in it does not mean that nothing is lost to the others."""
    import polars as pl

    device_id, sms = int(str(device["device_id"])), device["sm_count"]
    shapes = tables.kernel_occupancy.filter(pl.col("device_id") == device_id)
    known = shapes["waves"].null_count() == 0 and shapes.height > 0
    if known and isinstance(sms, int) and not shapes.filter(pl.col("waves") > 1).height:
        why = f"no kernel takes more than {fmt.percent(shapes['waves'].max())} of the block slots of its {sms} SMs"  # type: ignore[arg-type]
        smaller = _smaller_profile(tables, device, shapes["grid_blocks"].to_list(), sms)
        if smaller is None:
            return Advice(
                action="Keep this MIG instance: no kernel fills it",
                commands=[],
                expected=None,
                bound="none from more SMs",
                why=f"{why}. A larger instance also has more memory bandwidth, whose effect this capture does not show",
                undo=None,
                wrong_if="the program also runs with larger grids",
            )
        family, profile = smaller
        gib = f"{family.memory_bytes(profile) / 2**30:.1f} GiB"
        here, remove = device["mig_profile"], "nvidia-smi mig -i GPU -dci -gi {0} && nvidia-smi mig -i GPU -dgi -gi {0}"
        return Advice(
            action=f"Try the smaller MIG profile {profile.name}: no kernel fills this instance",
            commands=[
                "nvidia-smi mig -lgi   # as root: the GPU and the ID of this instance; stop its programs first",
                remove.format("ID"),
                f"nvidia-smi mig -i GPU -cgi {profile.name} -C && nvidia-smi -L   # start PROGRAM with the new UUID",
            ],
            expected=None,
            bound=f"{sms - (profile.sm_count or sms)} of {sms} SMs become free for another instance",
            why=f"{why}. On {profile.sm_count} SMs no SM gets more blocks than here. The smaller instance has less "
            "memory bandwidth, whose effect this capture does not show. Larger grids would use the SMs that are free "
            "here: choose one of the two",
            # Samples may show MIG without the profile.
            undo=None
            if here is None
            else f"{remove.format('NEW_ID')} && nvidia-smi mig -i GPU -cgi {here} -C   # NEW_ID as by -lgi",
            wrong_if=f"the program also runs with larger grids, or needs more than {gib} of memory",
        )
    return Advice(
        action="Record the workload in a larger MIG instance: its gain is not known",
        commands=[],
        expected=None,
        bound="a capture of one instance does not show what another size would gain",
        why="only one tenant was in this MIG instance. Record the workload in a larger profile or on the whole GPU, "
        f"and give that as --baseline{if_slow}",
        undo=None,
        wrong_if="samples of the same time show another process in the instance",
    )


def _smaller_profile(
    tables: TableSet, device: Mapping[str, object], grids: Sequence[int], sms: int
) -> tuple[mig.Family, mig.Profile] | None:
    """The smallest profile that holds a tenant's memory, and on which no SM gets more blocks than on these SMs."""
    family = mig.family_of(str(device["name"]), None)
    if family is None or "c." in str(device["mig_profile"]):
        # A compute instance is a part of an instance, which nothing else may use.
        return None
    peak = max(memory_peaks(tables, int(str(device["device_id"]))).values(), default=None)
    fitting = (
        (family, profile)
        for profile in mig.holds(family, mig.Need("", peak, float))
        if profile.sm_count is not None
        and profile.sm_count < sms
        and all(-(-grid // profile.sm_count) <= -(-grid // sms) for grid in grids)
    )
    return next(fitting, None)
