"""What to change about one MIG instance: its size, and what to record in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.analysis.advice import mig
from pyanalyze.analysis.advice.options import memory_peaks
from pyanalyze.analysis.sharing.mig_mode import instance_of_samples, mig_is_on
from pyanalyze.nsys_tool import recording
from pyanalyze.results.advice import Advice
from pyanalyze.results.labels import listed_labels
from pyanalyze.results.listed import without_tenants
from pyanalyze.tables.process_lists import listed_nobody
from pyanalyze.text import format as fmt
from pyanalyze.text.shell import shell_word
from pyanalyze.vocabulary import MEMORY_RESERVE, TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyanalyze.analysis.listed import Listed
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.tables.tableset import TableSet


def in_mig_mode(tables: TableSet, verdict: Verdict, device: Mapping[str, object]) -> bool:
    """Whether the device is a MIG instance, or by its samples a board in MIG mode."""
    if mig_is_on(tables, device):
        return True
    likely = next((one.mode for one in verdict.alternatives), Mode.UNDETERMINED)
    return not tables.paths and TRAITS[likely].mig_instance


def nothing_to_record(tables: TableSet, listed: Listed, device: Mapping[str, object]) -> Advice | None:
    """Say that nobody is there to be recorded: on a board in MIG mode, or in an instance that lists name no process of.

    None: somebody may be there. Lists speak where they name processes of another instance of the board.
    """
    device_id = int(str(device["device_id"]))
    instances = _instances(tables, device)
    # Where a list names nobody, to list again while the workload runs comes first.
    if tables.paths or not mig_is_on(tables, device) or listed_nobody(tables, device_id):
        return None
    if device_id not in instances and instances:
        action = "Record nothing on this board: in MIG mode programs run in its instances only"
        why = "each MIG instance is a device of its own, with its own advice"
    elif device_id in empty_instances(tables, listed, device):
        action = "Nothing to record here: no process was listed in this MIG instance"
        why = "the lists name processes of this board, all of them in other instances"
    else:
        return None
    return Advice(action=action, commands=[], expected=None, bound=None, why=why, undo=None)


def _start_in(instance: Mapping[str, object]) -> str:
    """Start a program in an instance; which one is a comment where no input gives its UUID."""
    uuid = instance["uuid"]
    if uuid is None:
        return "CUDA_VISIBLE_DEVICES=MIG-UUID PROGRAM   # the UUID as by nvidia-smi -L"
    return f"CUDA_VISIBLE_DEVICES={shell_word(str(uuid))} PROGRAM"


def _instances(tables: TableSet, device: Mapping[str, object]) -> list[int]:
    """The MIG instances of the board that a device is, or is an instance of."""
    board = device["gpu_uuid"]
    rows = tables.devices.select("device_id", "gpu_uuid", "mig_profile").iter_rows()
    return [
        number
        for number, uuid, profile in rows
        if board is not None
        and uuid == board
        and (profile is not None or instance_of_samples(tables, number) is not None)
    ]


def empty_instances(tables: TableSet, listed: Listed, device: Mapping[str, object]) -> list[int]:
    """The MIG instances of a board of which lists name no process, where they tell instances apart."""
    instances = _instances(tables, device)
    boards = tables.devices.select("device_id", "gpu_uuid").iter_rows()
    others = [number for number, uuid in boards if uuid == device["gpu_uuid"] and number not in instances]
    board = [one for number in others for one in listed.by_device.get(number, ())]
    return without_tenants({number: listed.by_device.get(number, ()) for number in instances}, board)


def move_to_empty(tables: TableSet, listed: Listed, device: Mapping[str, object]) -> Iterator[Advice]:
    """Move the listed process that uses most memory into an instance without one, where it fits."""
    import polars as pl

    device_id = int(str(device["device_id"]))
    here = [one for one in listed.by_device.get(device_id, ()) if one.computes]
    empty = empty_instances(tables, listed, device)
    if len(here) < 2 or not empty:
        return
    # A compute instance shares its memory with the others of its GPU instance.
    whole = ~pl.col("mig_profile").cast(pl.String).str.contains("c.", literal=True)
    rows = tables.devices.filter(pl.col("device_id").is_in(empty), pl.col("memory_bytes").is_not_null(), whole)
    # The largest first: a tenant that moves into a smaller one loses SMs.
    places = rows.sort("memory_bytes", descending=True).rows(named=True)
    labels = listed_labels(here)
    # A pod is placed by its cluster.
    known = [
        (one.memory_peak_bytes, labels[number])
        for number, one in enumerate(here)
        if one.memory_peak_bytes and one.pod is None
    ]
    for used, label in sorted(known, reverse=True):
        fitting = [row for row in places if used <= row["memory_bytes"] * (1 - MEMORY_RESERVE)]
        if not fitting:
            continue
        row = fitting[0]
        of = len(_instances(tables, device))
        sms = f"{row['sm_count']} SMs" if row["sm_count"] is not None else "fewer SMs"
        yield Advice(
            action=f"Move {label} into the MIG instance {row['mig_profile']}, in which no process was listed",
            commands=[_start_in(row)],
            expected=None,
            bound=None,
            why=f"{fmt.counted(len(here), 'process', 'processes')} share this instance, while {len(empty)} of {of} "
            f"instances had no listed process. It uses the most memory that fits there: {fmt.bytes_(used)} of "
            f"{fmt.bytes_(row['memory_bytes'])}",
            undo=_start_in(device),
            wrong_if=f"{sms} are too few for it, or another program needs that instance",
        )
        return


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
        bound=None,
        why="only one process of this MIG instance was traced. If nvidia-smi lists no other one in it, record the "
        "workload in a larger profile or on the whole GPU, then: pyanalyze interference CAPTURE --baseline "
        f"THAT_RECORDING{if_slow}",
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
