//! Tables of units of work and where the time of each went.

use super::Kind::{Bool, Name, I64, U32};
use super::{col, opt, Table, BASIS, CAPTURE_ID, DEVICE_ID, END, PID, START, TENANT_ID};

/// Units of work.
pub const UNITS: Table = Table {
    name: "units",
    version: 1,
    doc: "Units of work of each tenant: requests, iterations, steps. Sorted by tenant and start. A unit lasts to the end of the last operation launched inside its range, or to the end of the range where that is later; one in which nothing was launched on the device is left out.",
    columns: &[
        col("unit", U32, "Number of the unit, from 0."),
        TENANT_ID,
        DEVICE_ID,
        CAPTURE_ID,
        PID,
        opt("tid", U32, "of any thread of the process", "Thread whose launches belong to it."),
        col("source", Name, "How it was found: `given` (work units of the caller), `nvtx` (ranges of one name), `graph` (whole-graph launches), `synchronisation` (launches between the returns of two synchronisations, where they repeat; where a thread launched the same several times before it waited, each of them)."),
        col("name", Name, "Name of the range or graph, or what the sequence of launches consists of; `#` stands for numbers that differ. Hostile text."),
        START,
        END,
        col("dur_ns", I64, "end_ns - start_ns: the sum of its segments."),
        col("range_end_ns", I64, "End of its range: operations launched later are not its own."),
        col("operations", U32, "Operations in it."),
        col("without_call", U32, "Of these, without a launch call in the capture: what they waited for is known in part."),
        col("others_ns", I64, "Of its duration, while other tenants had kernels on the device, or one copy engine had copies of theirs (the longest of these), as far as that was recorded."),
        col("clamped", U32, "Operations of its chain that started before the one that released them had ended (programmatic dependent launch, parallel branches of a graph); the overlap counts once."),
    ],
};

/// Segments of units.
pub const UNIT_SEGMENTS: Table = Table {
    name: "unit_segments",
    version: 1,
    doc: "The critical chain of each unit of work, in order: the segments of a unit add up to its duration. Where parts of one step alternate (a kernel that is switched out again and again) each part is one row, with dur_ns less than end_ns - start_ns.",
    columns: &[
        col("unit", U32, "The unit, see `units`."),
        col("position", U32, "From 0, in order."),
        col("kind", Name, "`host`: the program's own time. `launch`: launch calls, and until an idle device started. `queue-same-stream`, `queue-other-stream`: behind work of the same tenant that is not the unit's. `queue-other-tenant`: ready and resident while another tenant's work was on the device. `copy`. `time-slice`: another context was resident. `switch`: the engine was being handed over, which includes saving and restoring state where kernels show it (`inferred`). `execution`. `synchronisation`: from the end of the awaited operation until the call returned. `other-thread`: another thread of the process was at work. `event`: for an event of which the capture does not say where it was recorded. `unexplained`."),
        START,
        END,
        col("dur_ns", I64, "Time of this kind from start_ns to end_ns."),
        col("count", U32, "Time slices of others, or switches; 1 for every other kind."),
        opt("other_tenant_id", U32, "nobody else's, or not known whose", "Whose slice or work it waited for; of `execution` and `queue-other-stream`, whose work ran most at the same time."),
        opt("name", Name, "no operation", "Kernel, graph or copy: that ran, or that was waited for. `[CUDA graph of N nodes]`: launched at once, its N operations are recorded one by one. Hostile text."),
        col("own", Bool, "The operation is the unit's own."),
        opt("usual_ns", I64, "not a whole operation of the unit, or the only one of its kind", "Median of what equal operations of the tenant, each behind an equal one in its stream, took while resident."),
        BASIS,
    ],
};

/// What of a tenant's work its units hold.
pub const UNIT_COVERAGE: Table = Table {
    name: "unit_coverage",
    version: 1,
    doc: "How many operations of each tenant with units of work are in one of them, and what was launched between two synchronisations and is no unit, where units were found there. Sorted by tenant.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        col("operations", U32, "Operations of the tenant: kernels, graphs, copies and memsets."),
        col("in_units", U32, "Of these, in one unit at least."),
        opt("groups", U32, "units were not found between synchronisations", "Groups of operations that a thread launched between two synchronisations and that are no units."),
        opt("longer", U32, "as of groups", "Of these groups, those that lasted longer than every unit, from the first launch to the return of the synchronisation or to the end of the last operation, if that is later."),
        opt("longest_ns", I64, "no group", "Duration of the longest of these groups."),
        opt("longest_start_ns", I64, "no group", "When that one began."),
    ],
};
