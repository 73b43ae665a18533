"""Advice that follows from the verdict and residency alone: bounds, without a forecast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyanalyze.analysis.mps_daemon import DEFAULT_DAEMON, PIPE
from pyanalyze.analysis.sharing.thresholds import MIN_COUNTER_SAMPLES, MIN_LOUD_SM_ACTIVE_PCT
from pyanalyze.nsys_tool import record_all, recording
from pyanalyze.results.advice import Advice
from pyanalyze.results.sharing import most_likely, open_in_mig
from pyanalyze.text import format as fmt
from pyanalyze.text.shell import shell_word
from pyanalyze.vocabulary import SMALL_SHARE, TRAITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyanalyze.analysis.mps_daemon import Daemon
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.analysis.sharing.facts import IdleProgram
    from pyanalyze.results.interference import AddedLatency


#: Busy over attributed time above which kernels were switched out for a time worth telling.
NOTABLE_INFLATION = 1.05
#: Part of the samples that find all SMs active, from which on it is doubtful that MPS gains much.
MOSTLY_ACTIVE = 0.5
#: Variables by which limiters and preloaded libraries are told what to do.
_LIMITERS = "^(LD_PRELOAD|CUDA_|GPU_|NVSHARE)"


@dataclass(frozen=True)
class Resident:
    """What advice needs to know of a tenant.

    Attributes
    ----------
    tenant_id, name, host_pid
        Who.
    traced
        nsys recorded its work.
    gpu_time_share
        Its resident time over the window; None without switch records.
    inflation
        Its busy time over its attributed time, less what is assumed to be switching: what time-slicing cost its kernels
        at most; None: not known.
    switching
        The fraction of its busy time that is assumed to be switching; None: nothing is assumed.
    named
        The capture names its process.
    fills_sms
        Most of its kernel time is in grids of at least one wave; None: not known.
    is_mps_server
        It is resident for its clients.
    latency
        Its kernel latency, shared over solo; None: not known, or only a lower bound of it.
    added
        The latency that others added, by whether kernels had started; None: not known.
    waves
        Mean waves of its grids, by their time: what part of the block slots of the device its kernels take. None: not
        known.
    """

    tenant_id: int
    name: str
    host_pid: int | None
    traced: bool
    gpu_time_share: float | None
    inflation: float | None
    named: bool = False
    fills_sms: bool | None = None
    switching: float | None = None
    is_mps_server: bool = False
    latency: float | None = None
    added: AddedLatency | None = None
    waves: float | None = None

    @property
    def waits(self) -> bool:
        """Whether its latency has more added than its time in flight: waits before kernels started."""
        if self.added is not None:
            return self.added.waited
        return (self.latency or 0.0) * (1 - SMALL_SHARE) > (self.inflation or 1.0)

    @property
    def gain(self) -> float:
        """What sharing without time slices takes away at most: of its latency, else of its time in flight."""
        most = max(self.inflation or 1.0, self.latency or 1.0)
        return 1 - 1 / most


#: Shows what traced programs wrote.
_SHOW_OUTPUT = (
    'sqlite3 CAPTURE.sqlite "SELECT value FROM ProcessStreams, StringIds WHERE id = contentId"   # standard output as '
    "well; it may hold secrets"
)


def record_first(
    verdict: Verdict,
    *,
    mig: bool = False,
    captured: bool = True,
    idle_program: IdleProgram | None = None,
    listed: int = 0,
    listed_nobody: bool = False,
) -> Iterator[Advice]:
    """Say what to record where the mode is not known; on a board in MIG mode, or in an instance, no switch records.

    Without a capture it takes a recording of every tenant, and a first screen has no room for a long comment. A program
    of which CUDA was traced in vain would be recorded in vain again. `listed`: how many processes lists name;
    `listed_nobody`: there was a list, and it was empty.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing import Case, judge
    >>> verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",)))
    >>> next(record_first(verdict)).action
    'Not enough data to decide: record what is missing before changing how the GPU is shared'
    """
    if idle_program is not None:
        lines = idle_program.stderr_lines
        held = f"the export holds {fmt.counted(lines, 'line')} that it wrote to standard error"
        wrote = f"{held}, which may say why it ended early. A" if lines else "a"
        yield Advice(
            action=f"Look whether {idle_program.name} uses CUDA: nsys traced CUDA and collected no event",
            # What a program writes may hold secrets: it is never repeated.
            commands=[_SHOW_OUTPUT] if lines else [],
            expected=None,
            bound=None,
            why=f"{wrote} program that ends before its CUDA work, or has none, gives the same recording again. Record "
            "it until it has used the GPU",
            undo=None,
        )
        return
    # While MIG is in use the driver pauses the stream of switch records: they cannot decide there.
    useless = {"context_switches"} if mig else set[str]()
    # What records switches records kernels.
    if not mig and any(gap.what == "context_switches" and gap.how for gap in verdict.missing):
        useless = {"kernels"}
    # How sharing was set up does not say what happened.
    useless.add("configured_mode")
    commands = list(dict.fromkeys(gap.how for gap in verdict.missing if gap.how and gap.what not in useless))
    lists = {gap.how for gap in verdict.missing if gap.what == "process_list"}
    what = "what is missing before changing how the GPU is shared"
    if not (captured or mig):
        what = "all tenants at once, as root, before any change"
    elif mig and not captured and listed > 1:
        what = f"all {listed} listed processes at once before any change"
        # What records kernels of one records them of each.
        kernels = {gap.how for gap in verdict.missing if gap.what == "kernels"}
        commands = [record_all(switches=False), *(how for how in commands if how not in kernels)]
    if listed_nobody and not captured:
        yield Advice(
            action="Start the workload, then list the processes and record: no process was listed",
            # Who is there comes before what they do.
            commands=sorted(commands, key=lambda how: how not in lists)[:3],
            expected=None,
            bound=None,
            why="an idle GPU does not show how it is shared. A container without the pid namespace of the host sees "
            "no process either: list on the host",
            undo=None,
        )
    elif commands:
        yield Advice(
            action=f"Not enough data to decide: record {what}",
            commands=commands[:3],
            expected=None,
            bound=None,
            why=("" if captured else _open_in_mig(verdict)) or f"the sharing mode is not known{_likeliest(verdict)}",
            undo=None,
        )


def _open_in_mig(verdict: Verdict) -> str:
    """What is not known of tenants, where MIG mode is on."""
    return next((open_in_mig(one.mode) for one in verdict.alternatives), "")


def _likeliest(verdict: Verdict) -> str:
    """The most likely mode in parentheses; empty where nothing speaks for any."""
    likely = most_likely(verdict.alternatives)
    return f" ({likely})" if likely else ""


def unknown_tenants(tenants: Sequence[Resident], client: str | None = None) -> Iterator[Advice]:
    """Ask for the identity of untraced tenants, which keep every change of sharing from being forecast.

    With `client`, tenants are MPS clients that find their daemon by it.

    Examples
    --------
    >>> mine, other = Resident(0, "app", 7, True, 0.6, None), Resident(1, "stranger", 8, False, 0.4, None)
    >>> next(unknown_tenants([mine, other])).action
    'Identify process 8 (stranger) and record it as well'
    """
    if not any(tenant.traced for tenant in tenants):
        return  # a capture of the node traces no tenant
    for tenant in tenants:
        if tenant.is_mps_server:
            continue
        if not tenant.traced and (tenant.gpu_time_share or 0) >= 0.05 and tenant.host_pid:
            known = " The capture names only its program" if tenant.named else " The capture does not name its program"
            yield Advice(
                action=f"Identify process {tenant.host_pid} ({tenant.name}) and record it as well",
                commands=[
                    f"ps -o pid,user,lstart,cmd -p {tenant.host_pid}   # while it runs",
                    f"cat /proc/{tenant.host_pid}/cgroup",
                    record_all(client=client),
                ],
                expected=None,
                bound=None,
                why=f"its context was resident for {fmt.percent(tenant.gpu_time_share or 0)} of the window. Its "
                f"kernels were not traced, so no change of sharing can be forecast.{known}: ps and cgroup show "
                "user, command line and container",
                undo=None,
            )


def unlisted_process(
    verdict: Verdict,
    tenants: Sequence[Resident],
    before_calls: Callable[[], tuple[float, int] | None] = lambda: None,
    client: str | None = None,
) -> Iterator[Advice]:
    """Ask who kept the SMs active while no traced kernel ran, where neither the capture nor a list names somebody.

    Parameters
    ----------
    verdict, tenants
        Of the device.
    before_calls
        Finds mean SM activity (per cent) before the tenants' first CUDA call, and the number of its samples.
    client
        Of MPS clients: what they find their daemon by; None: no tenant is one.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing import Case, judge
    >>> verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",)))
    >>> list(unlisted_process(verdict, [Resident(0, "app", 7, True, None, None)]))
    []
    """
    loud = next((one for one in verdict.evidence if one.name == "sm_active_outside_traced_kernels"), None)
    listed = all(gap.what != "process_list" for gap in verdict.missing)
    if loud is None or listed or not tenants or not all(tenant.traced for tenant in tenants):
        return
    names = fmt.names([tenant.name for tenant in tenants])
    before, not_its_own = before_calls(), ""
    if before is not None and before[0] >= MIN_LOUD_SM_ACTIVE_PCT and before[1] >= MIN_COUNTER_SAMPLES:
        not_its_own = (
            f". It was {before[0]:.1f} % before the first recorded CUDA call of {names} (mean of "
            f"{fmt.count(before[1])} samples): that is not its work, unless it ran before the recording"
        )
    yield Advice(
        action=f"Find what else runs on this GPU: its SMs were active without a kernel of {names}",
        commands=[
            "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv   # while it runs",
            "nvidia-smi pmon -c 1   # lists graphics as well",
            record_all(client=client),
        ],
        expected=None,
        bound=None,
        why=f"{loud.detail}{not_its_own}. A process that has ended, or that a container hides, is in no list. How much "
        f"it slows {names} is not known before both are recorded",
        undo=None,
    )


def in_turn(verdict: Verdict) -> bool:
    """Whether software gives the tenants the device in turn.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing import Case, judge
    >>> in_turn(judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",))))
    False
    """
    return any(one.name == "turns_in_software" for one in verdict.evidence)


def kept_apart(tenants: Sequence[Resident]) -> Advice:
    """Advise to find the software that keeps tenants apart.

    Examples
    --------
    >>> kept_apart([Resident(0, "serve", 7, True, None, None), Resident(1, "train", 8, True, None, None)]).action
    'Find what gives serve and train the GPU in turn, before changing how it is shared'
    """
    names = fmt.names([one.name for one in tenants])
    pids = " ".join(str(one.host_pid) for one in tenants if one.host_pid) or "PID"
    return Advice(
        action=f"Find what gives {names} the GPU in turn, before changing how it is shared",
        commands=[
            f"for p in {pids}; do tr '\\0' '\\n' < /proc/$p/environ | grep -E '{_LIMITERS}'; done   # while they run"
        ],
        expected=None,
        bound=None,
        why="they never had work at the same time, and each had the GPU for longer than any time slice: a scheduler, a "
        "lock, or one waiting for the other keeps them apart, whatever the sharing mode",
        undo=None,
        wrong_if="one process needs the result of the other",
    )


def simple_bounds(
    verdict: Verdict,
    tenants: Iterable[Resident],
    device: Mapping[str, object],
    why_not: str | None,
    daemon: Daemon = DEFAULT_DAEMON,
    all_active: Callable[[], tuple[float, int] | None] = lambda: None,
) -> Iterator[Advice]:
    """Advise without a forecast, and say why there is none: MPS, unless kernels of a tenant fill the SMs anyway.

    Parameters
    ----------
    verdict, tenants, device, why_not, daemon
        Of the device.
    all_active
        Finds the part of the counter samples that found all SMs active, and their number; None: there are none.

    Examples
    --------
    >>> from pyanalyze.analysis.sharing import Case, judge
    >>> verdict = judge(Case(0, "NVIDIA A100", None, None, None, (8, 0), 108, {}, (), {}, ("app",)))
    >>> list(simple_bounds(verdict, [], {"compute_major": 8}, "nobody was traced"))
    []
    """
    tenants = list(tenants)
    worst = max((t for t in tenants if t.inflation is not None), key=lambda t: t.gain, default=None)
    major = device["compute_major"]
    traits = TRAITS[verdict.mode]
    # In a MIG instance and in a virtual machine MPS is another set-up, or none.
    whole_gpu = not (traits.mig_instance or traits.vgpu)
    if not (traits.time_sliced and whole_gpu) or not isinstance(major, int) or major < 7:
        return
    if any(t.fills_sms for t in tenants):
        return  # Beside such kernels those of others wait for SMs instead of their time slice.
    bound, waits, busy = None, "", ""
    if not any(t.traced for t in tenants):
        # Whether their kernels leave SMs to others decides what MPS gains, and nothing is known of a kernel.
        unknown_what = "whether they leave SMs to other tenants is not known"
        yield record_kernels(unknown_what, daemon.client if traits.mps else None)
        active = all_active()
        if active is not None and active[0] >= MOSTLY_ACTIVE and active[1] >= MIN_COUNTER_SAMPLES:
            share, samples = fmt.percent(active[0]), fmt.count(active[1])
            busy = f" MPS may gain little: all SMs were active in {share} of {samples} counter samples."
    if worst is not None and worst.inflation is not None:
        bound = _most_gain(worst, worst.inflation)
        if bound is None:
            waits = " Kernels were hardly switched out while in flight: only waits before they start can shrink."
        elif together := _too_many_blocks(tenants):
            bound = f"{bound}. {together}"
    unknown = [t.name for t in tenants if t.fills_sms is None]
    because = "" if why_not is None else f" No forecast: {why_not}."
    action = "Run the tenants under MPS instead of time-slicing"
    commands = [f"{daemon.start}   # stop all tenants; run this as the user that they run as; start them again"]
    undo = daemon.quit
    if daemon.lone:
        commands, undo = [*daemon.reach], daemon.undo
    if traits.mps:
        action = "Run the processes outside of the MPS group as its clients"
        find = f"{PIPE}={'DIRECTORY' if daemon.pipe is None else shell_word(daemon.pipe)}"
        commands = [f"export {find}   # that of the clients, as their user; start PROGRAM again"]
        undo = f"unset {PIPE}   # and start PROGRAM again"
    yield Advice(
        action=action,
        commands=commands,
        expected=None,
        bound=bound,
        why=f"MPS clients share the SMs instead of alternating.{waits}{busy}{because} A fault of one MPS client ends "
        "the others",
        undo=undo,
        exclusive=True,
        wrong_if=f"kernels of {fmt.names(unknown)}, whose grids are not known, fill the SMs"
        if unknown
        else "tenants wait for copies: MPS clients share the copy engines as well",
    )


def _too_many_blocks(tenants: Iterable[Resident]) -> str:
    """Say that the kernels of the tenants do not fit on the SMs at once, so that no bound without others is reached."""
    known = [(one.name, one.waves) for one in tenants if one.waves is not None]
    waves = sum(one for _, one in known)
    if len(known) < 2 or waves <= 1:
        return ""
    each = " and ".join(f"{name} {fmt.number(one)}" for name, one in known)
    return f"It is not reached while all run: their grids take {fmt.number(waves)} waves together ({each}; modelled)"


def _most_gain(tenant: Resident, inflation: float) -> str | None:
    """Say what a tenant gains at most: waits before the start count where they are known; None: next to nothing."""
    inside = 1 - 1 / inflation
    if tenant.latency is not None and tenant.waits:
        less = fmt.percent(1 - 1 / tenant.latency)
        said = f"kernel latency of {tenant.name} at most {less} less, as in a replay without other tenants"
        if tenant.added is not None:
            whole_ns = tenant.added.shared_ns
            parts = [
                f"waits before the start {fmt.percent(tenant.added.before_start_ns / whole_ns)}",
                f"switched out in flight {fmt.percent(tenant.added.switched_out_ns / whole_ns)}",
            ]
            if tenant.added.saving_ns:
                parts.append(f"saving and restoring {fmt.percent(tenant.added.saving_ns / whole_ns)}, assumed")
            said = f"{said} ({', '.join(parts)})"
        return said
    if inflation < NOTABLE_INFLATION:
        return None
    of = "switched out"
    if tenant.switching is not None:
        out, saving = fmt.percent(inside - tenant.switching), fmt.percent(tenant.switching)
        of = f"switched out {out}, saving and restoring {saving}, assumed"
    # A latency that is known, and that has no such waits, has been dealt with.
    rest = ", and wait less before they start, which is not known" if tenant.latency is None else ""
    return f"kernels of {tenant.name} are in flight for at most {fmt.percent(inside)} less time ({of}){rest}"


def record_kernels(unknown: str, client: str | None = None) -> Advice:
    """Ask for the kernels of tenants of which none was traced, without which something is not known.

    With `client`, tenants are MPS clients that find their daemon by it.

    Examples
    --------
    >>> record_kernels("who was slowed is not known").why
    'no kernels were traced: who was slowed is not known'
    """
    return Advice(
        action="Not enough data to decide: record kernels of all tenants before any change",
        commands=[record_all(client=client)],
        expected=None,
        bound=None,
        why=f"no kernels were traced: {unknown}",
        undo=None,
    )


def look_at_host() -> Advice:
    """Send a guest to the host of its virtual GPU, which alone lists the other guests.

    Examples
    --------
    >>> look_at_host().commands[0].partition("   # ")[0]
    'nvidia-smi vgpu -q'
    """
    return Advice(
        action="Look at the vGPU host: it lists the other virtual machines of the GPU, their use and the scheduler",
        commands=[
            "nvidia-smi vgpu -q   # on the host: guests, vGPU types, scheduling policy",
            "nvidia-smi vgpu -u   # on the host: use by each virtual machine",
        ],
        expected=None,
        bound=None,
        why="a guest does not see other virtual machines: whether and by whom it is slowed, only the host shows",
        undo=None,
    )


def without_green_contexts() -> Advice:
    """Ask for a run without the split of SMs inside the process: what it costs or gains takes both."""
    return Advice(
        action="Record the same work without green contexts, and compare: their split of the SMs was not evaluated",
        commands=[
            f"{recording(switches=False)}   # the same work, in plain streams",
            "pyanalyze compare CAPTURE NAME.nsys-rep",
        ],
        expected=None,
        bound=None,
        why="kernels of a green context run on its own SMs only, even while others are idle. Whether that costs more "
        "than it keeps kernels of other sets from slowing them, one capture does not show",
        undo=None,
    )
