"""What is not available and would have helped: why, and the command that records it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.analysis.mps_daemon import DEFAULT_LOGS, daemon_of
from pyanalyze.nsys_tool import client_options, record_all, recording
from pyanalyze.results.model import Missing
from pyanalyze.text import format as fmt
from pyanalyze.text.shell import shell_word

if TYPE_CHECKING:
    from pyanalyze.analysis.sharing.facts import Case
    from pyanalyze.tables.launch_records import LaunchRecords


#: The first driver branch that records context switches.
_SWITCH_RECORDS_FROM = 435


_LIST = (
    "nvidia-smi --query-compute-apps=timestamp,gpu_uuid,pid,process_name,used_memory --format=csv -l 1 "
    "> gpu-processes.csv   # during a recording; then --samples gpu-processes.csv"
)
#: How to record what is missing; one place, so that every answer prints the same command.
HOW = {
    "kernel_records": "compute-sanitizer PROGRAM   # finds the kernel where a call failed; else call "
    "cudaDeviceSynchronize before the program ends, and record until then",
    "nvml": _LIST,
    # That query has no types of processes.
    "process_list": f"nvidia-smi pmon -c 1 > pmon.txt; {_LIST} and --samples pmon.txt, which tells MPS clients (M+C)",
    "export": "nsys export --type sqlite REPORT.nsys-rep   # without leaving out columns",
    "whole_export": "nsys export --type sqlite REPORT.nsys-rep   # of the recording, with all tables and rows",
    "instances": "nvidia-smi -L > gpus.txt; nvidia-smi mig -lgi > instances.txt   # then each as --context; or export "
    "with nsys 2025 or newer",
    "node": "kubectl get node NODE -o json > node.json   # the node of this GPU; then as --context",
    # The reader knows a bare pid by the command that it answers.
    "configured_mode": "nvidia-smi -L > gpus.txt; (echo get_server_list; echo get_server_list | "
    "nvidia-cuda-mps-control) > mps.txt   # MIG; MPS (nvidia-smi lists its clients as M+C); in Kubernetes: "
    "kubectl get nodes,pods,configmaps -A -o json > objects.json; then each as --context",
    "co_run": "record while the workloads run at the same time",
}


#: Entries on launch calls without a kernel record: records are missing, or the recording ended before the work did.
LOST_KERNELS: Final = "kernel_records"
UNFINISHED_KERNELS: Final = "unfinished_kernels"
#: The entry on kernels without their launch call, and calls that are missing before the first recorded one.
LOST_CALLS: Final = "launch_calls"


def lost_launches(records: LaunchRecords) -> Missing:
    """Say of which launches no kernel has a record, and what would bring them.

    Examples
    --------
    >>> from pyanalyze.tables.launch_records import LaunchRecords
    >>> lost_launches(LaunchRecords(3, 2, (), 0, 2)).how, lost_launches(LaunchRecords(3, 2, ())).how[:17]
    ('', 'compute-sanitizer')
    """
    if records.only_unfinished:
        how = records.how_to_finish
    else:
        how = HOW["whole_export" if records.export_cut and not records.errors else "kernel_records"]
    what = UNFINISHED_KERNELS if records.recording_ended_first else LOST_KERNELS
    return Missing(what=what, why=records.describe(), how=how)


def _client(case: Case) -> str | None:
    """The variable by which MPS clients found their daemon, with its value; None: nobody is known to be one."""
    if not any(map(case.has, ("nvml_mps_clients", "mps_client_connected", "mps_group_time_sliced"))):
        return None
    pipe = case.setting("CUDA_MPS_PIPE_DIRECTORY")
    return "" if pipe is None or not pipe.value else f"{pipe.key}={shell_word(pipe.value)}"


def gaps(case: Case) -> list[Missing]:
    """List what is not available and would have helped.

    Parameters
    ----------
    case
        One device.

    Returns
    -------
    list of Missing
        Each with the command that captures it.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing.facts import Case
    >>> case = Case(0, None, None, None, None, None, None, {}, (), {"switch_events": "absent"}, ())
    >>> [gap.what for gap in gaps(case)]
    ['context_switches', 'process_list']
    """
    found: list[Missing] = []
    client = _client(case)
    if not case.fact("switch_records"):
        state = case.sources.get("switch_events", "absent")
        why = {
            "absent": "the capture has no context-switch table"
            if case.captured
            else "there is no capture, only samples",
            "empty": "there are no context-switch records: no two contexts alternated, or recording them was not "
            "permitted (root) or paused by MIG; this is no sign of exclusive use",
            "present": "no context-switch record belongs to this GPU",
            "removed": "nsys collected context-switch records, and the export has none that tells who was resident",
        }.get(state, "the context-switch table was not read")
        again = f"{recording(*client_options(client, root=True), trace=case.trace)}   # as root"
        branch = case.driver_branch
        if branch is not None and branch < _SWITCH_RECORDS_FROM and state in ("absent", "empty"):
            why = f"driver {case.driver} records no context switches: that takes r{_SWITCH_RECORDS_FROM} or newer"
            again += f", after an update of the driver to r{_SWITCH_RECORDS_FROM} or newer"
        else:
            again += f"; driver r{_SWITCH_RECORDS_FROM} or newer" if branch is None else ""
            if case.setting("gpu_context_switch_support") is not None:
                old = "MIG or an old driver" if branch is None else "or MIG"
                why += f"; nsys says that it could not record any there: no root, a container, {old}"
                again += "; on the host, not in a container"
        # Where nothing was traced there is no recording to repeat: it takes one of every tenant.
        how = again if case.captured else record_all(case.trace, client)
        if state == "removed":
            how = HOW["whole_export"]
        traced = case.setting("gpu_context_switch_trace")
        if state == "empty" and traced is not None and traced.value == "true":
            why = (
                "switches were traced, and there is no record: no two contexts alternated, or nsys was not root, or "
                "MIG paused it; this is no sign of exclusive use"
            )
            if case.cut:
                why = (
                    "switches were traced, and there is no record: the export was cut, no two contexts alternated, "
                    "or nsys was not root; this is no sign of exclusive use"
                )
                how = HOW["whole_export"]
            if case.has("mps_daemon") or case.has("mps_client_connected") or case.has("nvml_mps_clients"):
                # Nothing that was left out at the recording: the same command again records nothing more.
                why = (
                    "switches were traced, and there is no record: between clients of one MPS server there is no "
                    "context switch. Without root nothing is recorded either"
                )
                how = ""
            if case.sources.get("kernels") != "present":
                why += ", and without a traced program nsys may write none"
                how = record_all(case.trace, client)
        if case.wsl and state in ("absent", "empty"):
            # Neither root nor another option changes that.
            why, how = "the program ran under WSL2, where nsys records no context switches", ""
        elif case.mig_profile is not None:
            how = ""
            # Where the table is there and empty that is said above.
            why += "" if state == "empty" else "; while MIG is in use the driver records no context switches"
        found.append(Missing(what="context_switches", why=why, how=how))
    if case.launches is not None and case.launches.without_record:
        found.append(lost_launches(case.launches))
    elif case.sources.get("kernels") in ("absent", "empty") and not case.fact("graph_launches"):
        why = "the capture has no CUDA kernels" if case.captured else "there is no capture, only samples"
        how = recording(*client_options(client, root=False), trace=case.trace, switches=False)
        if case.captured and case.nothing_traced and case.tenants and case.idle_program is None:
            # The same recording again, with its switch records and counters, of programs that nsys starts.
            why = "no tenant was traced: nsys traces programs that it starts, so start the tenants again under it"
            metrics = case.sources.get("gpu_metrics") in ("present", "removed")
            how = record_all(
                case.trace,
                client,
                switches=bool(case.fact("switch_records")),
                more=("--gpu-metrics-devices=all",) if metrics else (),
            )
        elif client and case.idle_program is None:
            how += "   # --env-var for MPS clients only, as the user of their daemon"
        if case.idle_program is not None:
            why = "CUDA was traced, and no traced program ran a kernel while nsys recorded"
            how += "   # as before, until the program has used the GPU: "
            how += f"look whether {case.idle_program.name} uses CUDA, and whether it ended early"
        found.append(Missing(what="kernels", why=why, how=how))
    if not case.pids_known:
        found.append(
            Missing(what="process_ids", why="the capture has no process ids (a trimmed export)", how=HOW["export"])
        )
    if case.nvml_processes is None and case.wsl:
        # NVIDIA, CUDA on WSL user guide, "Features not yet supported": queries of NVML for compute processes.
        why = (
            "no list of GPU processes was given, and inside WSL2 nvidia-smi does not support that query: other "
            "processes, such as those of Windows, are not known"
        )
        found.append(Missing(what="process_list", why=why, how=""))
    elif case.nvml_processes is None and case.nvml_listed_nobody:
        found.append(
            Missing(
                what="process_list",
                why="no process was listed; a container without the pid namespace of the host sees none either",
                how=HOW["process_list"],
            )
        )
    elif case.nvml_processes is None:
        found.append(
            Missing(
                what="process_list",
                why="no list of GPU processes (NVML, nvidia-smi) was given, so untraced processes "
                + ("without switch records are not known" if case.fact("switch_records") else "are not known"),
                how=HOW["process_list"],
            )
        )
    elif case.unlisted:
        lacks = f"{', '.join(case.unlisted[:3])}{' and others' if len(case.unlisted) > 3 else ''}"
        found.append(
            Missing(
                what="process_list",
                why=f"the list of GPU processes lacks traced processes ({lacks}), so it does not rule out other "
                "processes; its pids may be of another container, or it was taken at another time",
                how=HOW["process_list"],
            )
        )
    if case.green_contexts_unsized:
        found.append(
            Missing(
                what="sm_sets",
                why=f"the sizes of SM sets are not recorded ({case.green_contexts_unsized} of "
                f"{fmt.counted(case.green_contexts, 'green context')}): occupancy and waves are modelled over all SMs",
                how="record with nsys 2026.4 or newer, whose context records have numMultiprocessors and tpcMask",
            )
        )
    if case.has("instance_unknown") or case.has("sms_like_mig"):
        found.append(
            Missing(what="instances", why="which MIG instance each process used is not recorded", how=HOW["instances"]),
        )
    if case.has("mps_daemon") and not case.has("mps_client_connected"):
        daemon = daemon_of((one.key, one.value, one.pid) for one in case.configured)
        how = (
            f"echo ps | {daemon.control} > mps-clients.txt   # while they run; then --context mps-clients.txt; "
            f"the logs in {shell_word(daemon.logs or DEFAULT_LOGS)} do as well"
        )
        found.append(Missing(what="mps_clients", why="no MPS log or control output was given", how=how))
    return found
