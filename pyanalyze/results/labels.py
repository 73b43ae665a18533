"""How a report names its devices and tenants: the same in every table, chart, sentence and check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyanalyze.results.time_split import HostKind, WaitsFor
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import program, visible
from pyanalyze.text.visible import told_apart
from pyanalyze.vocabulary import NAMED_SHARE, SMALL_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyanalyze.results.collectives import CollectiveWaits
    from pyanalyze.results.copies import Copies
    from pyanalyze.results.listed import ListedTenant
    from pyanalyze.results.report import Device, Report, Tenant
    from pyanalyze.results.time_split import CpuSamples, HostActivity, HostPart

__all__ = [
    "copies_words",
    "device_title",
    "host_part_name",
    "host_words",
    "late_words",
    "listed_labels",
    "main_device",
    "mps_group_name",
    "outside_words",
    "sampled_words",
    "tenant_labels",
]

#: What host threads are recorded to be in.
_HOST_WORDS: Final[Mapping[HostKind, str]] = {
    HostKind.MPI: "MPI calls",
    HostKind.VIDEO: "video codec calls",
    HostKind.OS: "OS calls",
    HostKind.RANGE: "NVTX ranges",
}
#: What a host does while it waits, to stand before the function.
_WAITS_WORDS: Final[Mapping[WaitsFor, str]] = {
    WaitsFor.INPUT: "waits for input",
    WaitsFor.PEER: "waits for another process or the network",
    WaitsFor.SLEEP: "sleeps",
    WaitsFor.LOCK: "waits for a lock or another thread",
    WaitsFor.FILE: "reads a file or a pipe",
}
#: What nsys calls the file that has the code of the operating system's kernel.
_KERNEL_MODULE: Final = "[kernel.kallsyms]"
#: Files of nsys that it loads into the program: time in them is its own.
_PROFILER_MODULES: Final = ("libToolsInjection",)
#: Kinds that a sentence tells: with more it would be too long.
_MOST_KINDS = 2


def tenant_labels(tenants: Iterable[Tenant]) -> dict[int, str]:
    """One short, unique, visible label per tenant id, the same in every table and chart.

    Examples
    --------
    >>> import pyanalyze
    >>> report = pyanalyze.load(capture).report()
    >>> tenant_labels(report.devices[0].tenants)
    {0: 'app_a', 1: 'app_b', 2: 'app_c'}
    """
    return told_apart((t.tenant_id, visible(program(t.name), 40) or "unnamed", t.pid, t.host_pid) for t in tenants)


def listed_labels(listed: Sequence[ListedTenant]) -> dict[int, str]:
    """One short, unique, visible label per place in the list.

    Examples
    --------
    >>> listed_labels([])
    {}
    """
    return told_apart((n, visible(one.name, 48) or "unnamed", one.pid, None) for n, one in enumerate(listed))


def mps_group_name(clients: Sequence[str]) -> str:
    """Name the clients of an MPS group as one, as who was resident.

    Examples
    --------
    >>> mps_group_name(["web", "train"])
    'MPS clients web and train'
    >>> mps_group_name(["web"])
    'MPS group of web'
    """
    return f"MPS {'clients' if len(clients) > 1 else 'group of'} {fmt.names(clients, 3)}"


def device_title(device: Device) -> str:
    """Name of a device entry, for headings."""
    name = visible(device.name) or "GPU of unknown name"
    if device.mig is not None and device.mig.profile and device.mig.profile not in name:
        name = f"{name} MIG {visible(device.mig.profile, 20)}"
    # Devices are numbered here; the tool that sampled this one may have another number for it.
    index = None if device.sampled is None else device.sampled.gpu_index
    smi = "" if index in (None, device.device_id) else f", GPU {index} of nvidia-smi"
    return f"{name} (device {device.device_id}{smi})"


def main_device(report: Report) -> Device | None:
    """The device that the first screen speaks of: most tenants, then most busy time; as good as equal: the first."""
    most = max((_busy_ns(device) for device in report.devices), default=0)
    return max(
        report.devices,
        key=lambda d: (
            len(d.tenants),
            _busy_ns(d) if _busy_ns(d) < (1 - SMALL_SHARE) * most else most,
            # Of devices that only samples show: the one with most tenants listed.
            sum(t.computes for t in d.listed),
            d.sampled is not None,
            -d.device_id,
        ),
        default=None,
    )


def _busy_ns(device: Device) -> int:
    return sum(tenant.busy_ns or 0 for tenant in device.tenants)


def copies_words(copies: Iterable[Copies | None]) -> str:
    """What copies are called: migrations of unified memory are no copies of the program.

    Parameters
    ----------
    copies
        Those of some processes; None: not known.

    Examples
    --------
    >>> copies_words([None])
    'copies and memsets'
    """
    known = [one for one in copies if one is not None]
    if not any(one.migrations for one in known):
        return "copies and memsets"
    return "copies, memsets and migrations" if any(one.kinds or one.memsets for one in known) else "migrations"


def late_words(waits: CollectiveWaits) -> list[str]:
    """Which rank collective kernels waited for most, and what it did meanwhile, in sentences; empty: they did not wait.

    Parameters
    ----------
    waits
        Waits of one rank.

    Examples
    --------
    >>> from pyanalyze.results.collectives import CollectiveWaits, LateRank
    >>> late = LateRank(device_id=1, tenant_id=3, waits=2, waited_ns=400_000, longest_ns=300_000, busy_ns=300_000)
    >>> waits = CollectiveWaits(kernel="nccl", collectives=9, time_ns=900_000, ends_ns=9_000, waits=2,
    ...                         waited_ns=400_000, late=[late])
    >>> for text in late_words(waits):
    ...     print(text)
    2 of 9 collective kernels (nccl) waited for the rank on device 1, 400 us in all and at most 300 us
    Inferred: its kernels of that name started later and ended with them (within 9.00 us), as one collective does
    Meanwhile other work of that rank was in flight on its device for 300 us, and none for 100 us
    """
    if not waits.late:
        return []
    most = waits.late[0]
    idle_ns = most.waited_ns - most.busy_ns
    kernels = f"{fmt.counted(waits.collectives, 'collective kernel')} ({visible(waits.kernel, 60)})"
    waited = f"{fmt.duration(most.waited_ns)} in all and at most {fmt.duration(most.longest_ns)}"
    within = f"(within {fmt.duration(waits.ends_ns)})"
    busy = f"in flight on its device for {fmt.duration(most.busy_ns)}, and none for {fmt.duration(idle_ns)}"
    return [
        f"{fmt.count(most.waits)} of {kernels} waited for the rank on device {most.device_id}, {waited}",
        f"Inferred: its kernels of that name started later and ended with them {within}, as one collective does",
        f"Meanwhile other work of that rank was {busy}",
    ]


def host_part_name(part: HostPart) -> str:
    """What the host was in: a function, or an NVTX range.

    Examples
    --------
    >>> from pyanalyze.results.time_split import HostPart
    >>> host_part_name(HostPart(kind=HostKind.RANGE, name="step", ns=1, share=1.0, range=None))
    'NVTX range step'
    """
    name = "without a name" if part.name is None else visible(part.name, 40)
    if part.kind is HostKind.RANGE:
        return f"NVTX range {name}"
    return name if part.name else f"{_HOST_WORDS[part.kind]} {name}"


def outside_words(activity: HostActivity, *, rest: bool = True) -> str:
    """What the host waited longest for that no code of it shortens; empty: nothing for long.

    With `rest`, what took most of its other time, if that wait is the largest part. It stands behind the host or its
    thread.

    Examples
    --------
    >>> from pyanalyze.results.time_split import HostActivity, HostPart
    >>> parts = [HostPart(kind="os", name=name, ns=ns, share=ns / 1e9, range=None)
    ...          for name, ns in (("getc", 700_000_000), ("read", 200_000_000))]
    >>> kinds = {"mpi_ns": 0, "video_ns": 0, "os_ns": 900_000_000, "range_ns": 0, "nothing_ns": 100_000_000}
    >>> for sentence in outside_words(HostActivity(recorded=["os"], parts=parts, **kinds)).split(". "):
    ...     print(sentence)
    waits for input in getc for 700.0 ms: no code of it is slow there
    Next, it reads a file or a pipe in read for 200.0 ms
    """
    outside, inside = activity.longest_outside, activity.longest_inside
    if outside is None:
        return ""
    said = f"{_done_in(outside)}: no code of it is slow there"
    next_to_it = rest and inside is not None and inside.ns <= outside.ns
    return said if inside is None or not next_to_it else f"{said}. Next, it {_done_in(inside)}"


def _done_in(part: HostPart) -> str:
    """What the host does in a part of its time, and for how long."""
    does = "is" if part.waits_for is None else _WAITS_WORDS[part.waits_for]
    return f"{does} in {host_part_name(part)} for {fmt.duration(part.ns)}"


def sampled_words(samples: CpuSamples, most: int = 2) -> str:
    """How many CPU samples there are, and which functions most were in; one without a symbol by its file.

    Examples
    --------
    >>> from pyanalyze.results.time_split import CpuSamples
    >>> functions = [{"function": "main", "module": "a.out", "samples": 70}, {"function": None, "module": "libz.so",
    ...              "samples": 20}]
    >>> sampled_words(CpuSamples(samples=100, functions=functions))
    '(n = 100): 70.0 % in main (a.out), 20.0 % in libz.so (no symbols)'
    """
    said: list[str] = []
    for one in samples.functions[:most]:
        module = "" if one.module is None else visible(one.module, 40)
        if one.module == _KERNEL_MODULE:
            what = "the operating system"
        elif one.module is not None and one.module.startswith(_PROFILER_MODULES):
            what = f"the profiler ({module})"
        elif one.function is not None:
            what = f"{visible(one.function, 40)}{f' ({module})' if module else ''}"
        else:
            what = f"{module} (no symbols)" if module else "code without a call chain"
        share = one.samples / samples.samples
        if not said or share >= SMALL_SHARE:
            said.append(f"{fmt.percent(share)} in {what}")
    return f"(n = {fmt.count(samples.samples)}): {', '.join(said)}"


def host_words(activity: HostActivity, most: int = _MOST_KINDS) -> str:
    """What the host was in for most of its time, with the largest part of each kind; empty: in nothing recorded.

    Examples
    --------
    >>> from pyanalyze.results.time_split import HostActivity, HostPart
    >>> wait = HostPart(kind=HostKind.MPI, name="MPI_Wait", ns=90, share=0.9, range="step")
    >>> kinds = {"mpi_ns": 90, "video_ns": 0, "os_ns": 0, "range_ns": 0, "nothing_ns": 10}
    >>> host_words(HostActivity(recorded=["mpi"], parts=[wait], **kinds))
    '90.0 % in MPI calls (MPI_Wait 90.0 %), 10.0 % in no traced call or range'
    """
    all_ns = sum(map(activity.kind_ns, HostKind)) + activity.nothing_ns
    kinds = sorted((kind for kind in HostKind if activity.kind_ns(kind) >= NAMED_SHARE * all_ns), key=activity.kind_ns)
    said = []
    for kind in kinds[: -most - 1 : -1]:
        part = next((part for part in activity.parts if part.kind is kind and part.name), None)
        named = "" if part is None else f" ({visible(part.name, 40)} {fmt.percent(part.share)})"
        said.append(f"{fmt.percent(activity.kind_ns(kind) / all_ns)} in {_HOST_WORDS[kind]}{named}")
    if said and most > 1 and activity.nothing_ns >= NAMED_SHARE * all_ns:
        said.append(f"{fmt.percent(activity.nothing_ns / all_ns)} in no traced call or range")
    return ", ".join(said)
