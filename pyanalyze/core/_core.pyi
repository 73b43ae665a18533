"""The compiled core: coarse functions over Arrow tables. Use :mod:`pyanalyze`, not this module."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, final

__version__: str

__all__ = [
    "Collector",
    "Fit",
    "Part",
    "Table",
    "__version__",
    "attribution",
    "bound_memory",
    "calls_by_name",
    "calls_in_gaps",
    "check_memory",
    "cut",
    "explain",
    "explain_words",
    "forecast",
    "hardware_constants",
    "infer_residency",
    "join_captures",
    "kernel_occupancy",
    "kernel_summary",
    "latencies",
    "launch_records",
    "launches",
    "memory_account",
    "mig_sm_counts",
    "mps_sms",
    "occupancy",
    "physical_tables",
    "place_samples",
    "quality_counters",
    "read_capture",
    "read_samples",
    "reconstruct",
    "reconstruct_parts",
    "residency_summary",
    "samples_session",
    "slowdowns",
    "streams",
    "table_declarations",
    "tenant_usage",
    "timeline",
    "write_perfetto",
]

@final
class Table:
    """One declared table: an Arrow stream with its ``name@version``."""

    @property
    def name(self) -> str: ...
    @property
    def schema_id(self) -> str: ...
    @property
    def num_rows(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def to_dicts(self) -> list[dict[str, Any]]:
        """Its rows, of few of them, without polars."""
    def slice(self, columns: Sequence[str], start: int = 0, rows: int = ...) -> Part:
        """Some of the columns, of some of the rows."""

@final
class Part:
    """Some columns and rows of a table."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Fit:
    """What was fitted to a recording, for further forecasts from it."""

@final
class Collector:
    """A table that is put together from parts, none of which stays in memory."""

    def __new__(cls, name: str, rows: int) -> Self:
        """Start a table of a declared name, with room for so many rows."""
    def add(self, part: Any) -> None:
        """Add rows: anything with an Arrow stream; columns that it lacks have no value there."""
    def finish(self) -> Table:
        """Give the whole table; nothing can be added to it."""

_Tables: TypeAlias = dict[str, Table]
_Progress: TypeAlias = Callable[[str, int, int], object] | None

class _Policy(Protocol):
    """`pyanalyze.analysis.occupancy.PlacementPolicy`; its mappings are dictionaries."""

    @property
    def sharing(self) -> str: ...
    @property
    def sms(self) -> Mapping[tuple[int, int | None], int | tuple[int, ...]]: ...
    @property
    def groups(self) -> Mapping[int, int]: ...
    @property
    def held_by(self) -> Mapping[int, int]: ...

class _Assignment(Protocol):
    """`pyanalyze.analysis.advice.forecast.Assignment`."""

    @property
    def tenant_id(self) -> int: ...
    @property
    def instance(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def sms(self) -> int | None: ...
    @property
    def copy(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def bandwidth(self) -> float: ...
    @property
    def sm_throughput(self) -> float: ...
    @property
    def assumed_sm_throughput(self) -> float: ...
    @property
    def cache(self) -> float: ...

class _SharingConfig(Protocol):
    """`pyanalyze.analysis.advice.forecast.SharingConfig`."""

    @property
    def name(self) -> str: ...
    @property
    def instances(self) -> Sequence[int]: ...
    @property
    def bandwidths(self) -> Sequence[float]: ...
    @property
    def assignments(self) -> Sequence[_Assignment]: ...
    @property
    def slice_ns(self) -> int: ...
    @property
    def switch_ns(self) -> int: ...
    @property
    def contention(self) -> float: ...
    @property
    def block_imbalance(self) -> float: ...
    @property
    def jitter(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def hits_over_misses(self) -> float: ...
    @property
    def crowding(self) -> float: ...
    @property
    def client_order(self) -> str | None: ...

def read_capture(path: str, capture: int, tables: Sequence[str], progress: _Progress = None) -> _Tables:
    """Read one nsys export on its own clock; `tables` are the event tables wanted."""

def kernel_summary(path: str, progress: _Progress = None) -> _Tables:
    """Say how long the kernels of one nsys export took, by name: `kernel_summary`, its `sources`, `quality`."""

def physical_tables(tables: Sequence[str]) -> list[str]:
    """The tables of an export that reading these event tables looks for."""

def join_captures(captures: Sequence[Mapping[str, Any]], progress: _Progress = None) -> _Tables:
    """Put captures on one clock and tie their devices together."""

def read_samples(path: str, progress: _Progress = None) -> _Tables:
    """Read one samples file: `nvml_samples` and `quality`."""

def place_samples(session: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> _Tables:
    """Place samples on the session's clock and devices; the session with `nvml_samples`."""

def samples_session(samples: Sequence[Mapping[str, Any]]) -> _Tables:
    """Make a session of samples without any capture: its sources are absent, its zero is the first sample."""

def reconstruct(session: Mapping[str, Any], progress: _Progress = None) -> _Tables:
    """Which context was resident: residency, switches, tenants, overlaps, facts; quality of all steps."""

def reconstruct_parts(
    parts: Sequence[tuple[Mapping[str, Any], tuple[int, int] | None]], progress: _Progress = None, threads: int = 0
) -> list[_Tables]:
    """Reconstruct parts of a session at once, each with the window that it was cut to."""

def attribution(session: Mapping[str, Any], progress: _Progress = None) -> _Tables:
    """Attribute every kernel's interval: `kernel_attribution`, of a reconstructed session."""

def tenant_usage(session: Mapping[str, Any], progress: _Progress = None) -> _Tables:
    """Add up what tenants did: `tenant_usage` and `overlaps`, of a session with `tenants` and `residency`."""

def streams(session: Mapping[str, Any], progress: _Progress = None) -> _Tables:
    """Say whether streams overlapped, of a reconstructed session: the tables named `stream_...`."""

def occupancy(
    session: Mapping[str, Any],
    policies: Mapping[int, _Policy],
    bins: int,
    progress: _Progress = None,
    *,
    window: tuple[int, int] | None = None,
    model: str = "replay",
) -> _Tables:
    """How full the SMs were: `kernel_occupancy`, and by a model `sm_occupancy`, `sm_warps`, `kernel_placement`."""

def infer_residency(session: Mapping[str, Any], policies: Mapping[int, _Policy], progress: _Progress = None) -> _Tables:
    """Infer residency of time-sliced engines without switch records: `inferred_residency`."""

def residency_summary(session: Mapping[str, Any], progress: _Progress = None) -> _Tables:
    """Sum up `residency`, else `inferred_residency`: `residency_by_tenant` and `residency_by_device`."""

def explain(
    session: Mapping[str, Any],
    name: str | None = None,
    window: tuple[int, int] | None = None,
    others_unseen: set[int] = ...,
    threads: int = 0,
    progress: _Progress = None,
) -> _Tables:
    """Find units of work and explain each: `units`, `unit_segments` and `unit_coverage`.

    `others_unseen`: devices on which tenants run that no record of this machine shows.
    """

def explain_words() -> tuple[list[str], list[str]]:
    """List the words of `unit_segments.kind` and of `units.source`."""

def launches(session: Mapping[str, Any], progress: _Progress = None) -> list[dict[str, Any]]:
    """What each tenant launched and where its time went.

    By device and tenant: `residency_known`; `configurations` with most time, `other_launches` and `other_ns` of the
    rest; `startup_ns`, pauses before the work began; `batches` of consecutive launches.
    """

def calls_in_gaps(session: Mapping[str, Any], progress: _Progress = None) -> list[dict[str, Any]]:
    """Add up API calls while a traced tenant had nothing on the device.

    By device and tenant: `waiting_long_ns` and `waiting_short_ns`, in which what ends a gap was launched and had not
    started, in gaps longer than launching takes and in shorter ones (None: no such launch is known); of the rest of
    these gaps `long_ns` of all calls, counted once, and `short_ns` of calls that hand over no work, where none that
    does ran beside them; `by_name` (ns, calls) of both; whether its process `called` anything; its `operations`, and
    the `longest_gap` between two of them, if there is any (`start_ns`, `end_ns`, `operations_before`); `early_starts`,
    its kernels that started before the one before them in their stream ended; what its `host` did in the rest of long
    gaps while no call ran, with the functions of CPU samples there (None: nothing else is recorded of its threads).
    """

def calls_by_name(
    session: Mapping[str, Any], progress: _Progress = None
) -> list[tuple[tuple[int, int | None], str, int, int]]:
    """Sum up API calls by process (capture, pid) and name: how many, and their nanoseconds in all.

    Calls without a name are left out. A name may come several times.
    """

def launch_records(
    session: Mapping[str, Any], processes: set[tuple[int, int | None]] | None = None, progress: _Progress = None
) -> dict[str, Any] | None:
    """Count `launches`, `graphs` among them, those `without_record` of their work, and failed calls.

    `without_record_at_end` are those after the last one of their process with a record; `errors` are function, code
    and how many. `begins` are processes with a numbered call (correlation id): `process`, the lowest number of a call
    (`first_call`), the lowest one of a kernel (`first_kernel`; None: it has none), and how many kernels have a lower
    number than any call (`kernels_before`). Of some processes (capture, pid; None: of all); None where they called
    nothing.
    """

def timeline(session: Mapping[str, Any], start_ns: int, end_ns: int, marks: int, progress: _Progress = None) -> Table:
    """Merge intervals to what a picture can show."""

def latencies(
    session: Mapping[str, Any], device: int, start_ns: int, end_ns: int, bins: int, progress: _Progress = None
) -> Table:
    """Bin how long kernels of each tenant took from launch to end."""

def write_perfetto(session: Mapping[str, Any], path: str, progress: _Progress = None) -> int:
    """Write a Perfetto protobuf trace over `path`; the number of events. No table but those given is in it."""

def forecast(
    session: Mapping[str, Any],
    device: int,
    visible_sms: Mapping[int, int],
    time_sliced: bool,
    recorded: _SharingConfig | None,
    configs: Sequence[_SharingConfig],
    units: Mapping[int, Sequence[tuple[int, int]]],
    window: tuple[int, int] | None,
    kernel_demands: Mapping[str, tuple[float | None, float | None]],
    most_operations: int,
    fitted: Fit | None,
    threads: int,
    progress: _Progress = None,
) -> tuple[_Tables, Fit]:
    """What recorded programs would have taken in other sharing configurations, and what was fitted for that."""

def slowdowns(
    session: Mapping[str, Any],
    baselines: Sequence[tuple[Mapping[str, Any], int | None]],
    progress: _Progress = None,
    threads: int = 0,
    window: tuple[int, int] | None = None,
) -> _Tables:
    """Every tenant beside itself alone; each baseline with the tenant that it is of, if that is known.

    `window`: first and last time that the session was cut down to. What it cuts is no measure of anything.
    """

def table_declarations() -> list[dict[str, Any]]:
    """Every table: name, version, doc, columns (name, type, null, doc)."""

def quality_counters() -> list[dict[str, str]]:
    """Every quality counter: name, severity, source, doc."""

def cut(table: Table, window: tuple[int, int] | None = None, device: int | None = None) -> Table:
    """The rows of a table inside of a window of time and of one device."""

def bound_memory(budget: tuple[int, int, Path] | None = None) -> None:
    """Set the budget of the process: bytes, those that large blocks are held in, where others go; None lifts it."""

def memory_account() -> dict[str, Any]:
    """What was held in memory and what in files, in bytes."""

def check_memory() -> None:
    """Raise `MemoryExceeded` if the budget could not be held."""

def hardware_constants() -> dict[str, int]:
    """Return timing and sizes of GPUs and their drivers that captures do not show, by name."""

def mig_sm_counts(board: str) -> list[int]:
    """Return the SMs of the MIG instances that a board of this name can be cut into."""

def mps_sms(sm_count: int, percentage: float, compute_major: int | None = None) -> int:
    """Return the SMs that an MPS active thread percentage leaves to a client."""

def kernel_occupancy(session: Mapping[str, Any], progress: _Progress = None) -> _Tables:
    """Say what each launch configuration could hold at most: `kernel_occupancy`."""
