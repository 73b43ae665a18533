//! Tables of residency and activity.

use super::Kind::{Bool, Name, Text, F64, I64, U32, U64};
use super::{
    col, opt, Table, BASIS, CAPTURE_ID, CORRELATION_ID, DEVICE_ID, END, NO_CALL, NO_RECORDS, NO_SLICE, PID,
    START, TENANT_ID,
};

/// Which context was resident.
pub const RESIDENCY: Table = Table {
    name: "residency",
    version: 1,
    doc: "Slices: a hardware context held the compute engine from RESTORE_START to SAVE_END. Sorted by start.",
    columns: &[
        CAPTURE_ID,
        DEVICE_ID,
        opt("tenant_id", U32, "no tenant could be named", "Tenant."),
        opt("pid", U32, "recorded without privilege, or a kernel client", "Host process id."),
        col("hw_context", U64, "Hardware context."),
        START,
        END,
        opt("running_start_ns", I64, "no CONTEXT_START record", "CONTEXT_START."),
        opt("running_end_ns", I64, "no acknowledgement record", "First acknowledgement of the switch that ended the slice."),
        col("ending", Name, "How the slice ended: `WFI`, `GFXP`, `CTAP`, `CILP`, `acknowledged`, `unknown`, `reset`, or `open` at the end of the records."),
        col("complete", Bool, "Both ends were recorded. Only complete slices enter slice statistics."),
        BASIS,
    ],
};

/// Residency without records.
pub const INFERRED_RESIDENCY: Table = Table {
    name: "inferred_residency",
    version: 1,
    doc: "Residency intervals on the compute engine where the verdict is time-slicing and no switch records were captured: a kernel starts and ends only while its context is resident, and between such moments slices are dealt in turn. Of a device's only traced tenant: when its kernels were inflated, and paused, by as much as others' turns take; nothing where that cannot be told. What tenants that were not traced held is in nobody's turns. Sorted by start.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        START,
        END,
        col("earliest_start_ns", I64, "The turn began after this: the last sign of whoever had the engine before."),
        col("latest_start_ns", I64, "And before this. From here to earliest_end_ns the tenant was resident, if the tenants are time-sliced; a turn with earliest_end_ns before it is one of which no kernel tells."),
        col("earliest_end_ns", I64, "It ended after this: its tenant's last sign."),
        col("latest_end_ns", I64, "And before this."),
        opt("time_slice_ns", I64, "kernels agree on none", "Length of a slice that agrees best with all kernels of the device."),
        BASIS,
    ],
};

/// The residency_summary of slices, per tenant.
pub const RESIDENCY_BY_TENANT: Table = Table {
    name: "residency_by_tenant",
    version: 2,
    doc:
        "What the slices of each tenant add up to. On devices without observed slices, of the inferred ones. Times and shares are of the window that `residency_by_device` says; slices and their lengths are whole.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        col("slices", U64, "Complete slices; those of contexts that were only created are left out."),
        col(
            "cut_slices",
            U64,
            "Slices that the recording or lost records cut: in resident_ns, not among the lengths.",
        ),
        col("resident_ns", I64, "In the window, its contexts were resident, creation included; all of it where no activity was recorded."),
        opt("gpu_time_share", F64, "no residency", "GPU time share: resident_ns over the window; without recorded activity, over the time in which any tenant was resident."),
        opt("idle_ns", I64, "its kernels were not traced", "In the window, resident with none of its kernels in flight."),
        opt("idle_share", F64, "its kernels were not traced", "Of resident_ns."),
        opt("min_slice_ns", I64, NO_SLICE, "Shortest."),
        opt("p10_slice_ns", I64, NO_SLICE, "A tenth is not longer."),
        opt("median_slice_ns", I64, NO_SLICE, "Median: one of the lengths, of an even number the lower of the two in the middle."),
        opt("p90_slice_ns", I64, NO_SLICE, "Nine tenths are not longer."),
        opt("max_slice_ns", I64, NO_SLICE, "Longest."),
        opt(
            "expired",
            U64,
            "no time slice could be estimated",
            "Slices of at least 0.8 of the time slice that another tenant followed; where kernels of the tenant were recorded, with one in flight at the end.",
        ),
        opt(
            "yielded",
            U64,
            "no time slice could be estimated",
            "Those that another tenant followed and that ended for want of work: without a kernel in flight at the end; where no kernels of the tenant were recorded, the shorter ones.",
        ),
        opt("ended_wfi", U64, NO_RECORDS, "Ended when the engine had drained (wait for idle)."),
        opt("ended_gfxp", U64, NO_RECORDS, "Ended by graphics preemption."),
        opt("ended_ctap", U64, NO_RECORDS, "Ended between blocks (compute thread array preemption)."),
        opt(
            "ended_cilp",
            U64,
            NO_RECORDS,
            "Ended between instructions (compute instruction level preemption).",
        ),
        opt("ended_acknowledged", U64, NO_RECORDS, "Ended by an acknowledgement that does not say how."),
        opt("ended_reset", U64, NO_RECORDS, "Ended by a reset of the engine."),
        opt(
            "ended_unknown",
            U64,
            NO_RECORDS,
            "Ended without an acknowledgement record: release drivers write none.",
        ),
        BASIS,
    ],
};

/// The engine over the window.
pub const RESIDENCY_BY_DEVICE: Table = Table {
    name: "residency_by_device",
    version: 1,
    doc: "The compute engine of each device that anybody held: time, switches, cost, time slice, fairness.",
    columns: &[
        DEVICE_ID,
        opt("start_ns", I64, "no activity recorded", "First activity of any tenant; where switch records cover notably less, when they begin."),
        opt("end_ns", I64, "no activity recorded", "Last activity of any tenant; where switch records cover notably less, when they end."),
        opt("resident_ns", I64, "no activity recorded", "In this window, somebody held it; all of it where only one tenant was traced and nothing recorded."),
        opt("idle_ns", I64, NO_RECORDS, "In this window, nobody held it and it was not being handed over."),
        opt("switches", U64, NO_RECORDS, "Back to back from one context to another that both had work."),
        opt("creations", U64, NO_RECORDS, "To or from a context resident at most twice, beside another of its process: taken for one being created."),
        opt("unclear", U64, NO_RECORDS, "Changes around which records are missing."),
        opt("cost_kind", Name, "no switch", "`gap`: SAVE_END to the next RESTORE_START; `full`: acknowledgement to CONTEXT_START, where every switch has both."),
        opt("median_cost_ns", I64, "no switch", "Median cost of a switch."),
        opt("total_cost_ns", I64, "no switch", "Sum of the costs."),
        opt("overhead_share", F64, "no switch", "Of the window."),
        opt("median_save_ns", I64, "no acknowledgement record", "Acknowledgement to SAVE_END."),
        opt("median_restore_ns", I64, "no CONTEXT_START record", "RESTORE_START to CONTEXT_START."),
        opt("time_slice_ns", I64, "too few slices agree", "Length at which most of the time in slices that another tenant ended agrees; for inferred slices the fitted one."),
        opt("policy", Name, "no time slice could be estimated, or its length is told of no policy", "`short` (below 0.9 ms), `default` (to 2.7 ms), `medium` (8 to 20 ms), `long` (from 20 ms): as of nvidia-smi compute-policy, for which NVIDIA publishes no lengths."),
        opt("jain", F64, "no context was resident, or only one tenant was seen", "Jain's index of residency over tenants with two slices or a hundredth of it: 1 is equal, 1/n is one for all."),
        BASIS,
    ],
};

/// Context switches.
pub const SWITCHES: Table = Table {
    name: "switches",
    version: 1,
    doc: "From the end of one slice to the start of the next on the same device, sorted by time.",
    columns: &[
        DEVICE_ID,
        col("time_ns", I64, "SAVE_END of the outgoing context."),
        opt("from_tenant_id", U32, "no tenant could be named", "Outgoing tenant."),
        col("from_hw_context", U64, "Outgoing context."),
        opt("to_tenant_id", U32, "no tenant could be named", "Incoming tenant."),
        col("to_hw_context", U64, "Incoming context."),
        col("gap_ns", I64, "SAVE_END to the next RESTORE_START."),
        opt("full_ns", I64, "no acknowledgement or CONTEXT_START record", "Acknowledgement to CONTEXT_START."),
        opt("save_ns", I64, "no acknowledgement record", "Acknowledgement to SAVE_END."),
        opt("restore_ns", I64, "no CONTEXT_START record", "RESTORE_START to CONTEXT_START."),
        col("ending", Name, "How the outgoing slice ended, see `residency`."),
        col("kind", Name, "`switch`: back to back, counted as cost. `idle`: the engine stood idle in between, not a cost. `creation`: to or from a context resident at most twice, beside another of its process, taken for one being created. `same-context`: the same context again. `lost-records`: records are missing in between."),
    ],
};

/// What each tenant used.
pub const TENANT_USAGE: Table = Table {
    name: "tenant_usage",
    version: 1,
    doc: "Totals per tenant and device.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        col("kernels", U64, "Kernels."),
        col("graph_launches", U64, "Whole-graph launches."),
        col("memops", U64, "Copies and sets."),
        opt("first_ns", I64, "no activity recorded", "First start of anything it did on the device."),
        opt("last_ns", I64, "no activity recorded", "Last end of anything it did on the device."),
        opt(
            "busy_ns",
            I64,
            "its kernels were not traced",
            "Union of its kernel and graph intervals, as recorded.",
        ),
        opt("copy_ns", I64, "its copies were not traced", "Union of its copy and set intervals."),
        opt("copy_only_ns", I64, "its copies were not traced", "The part of copy_ns without a kernel or graph in flight."),
        opt(
            "launch_gap_ns",
            I64,
            "its kernels were not traced",
            "Nothing of it was in flight, in gaps of at most 250 us before an operation that a call launched.",
        ),
        opt(
            "idle_ns",
            I64,
            "its kernels were not traced, or it had no activity",
            "Nothing of it was in flight, in other gaps. busy_ns + copy_only_ns + launch_gap_ns + idle_ns = last_ns - first_ns.",
        ),
        opt(
            "resident_ns",
            I64,
            "no switch records",
            "Its contexts held the compute engine, before the first activity and after the last as well; `residency_by_tenant` has it of the window.",
        ),
        opt(
            "attributed_ns",
            I64,
            "its kernels were not traced",
            "Busy and resident; equals busy_ns where nothing is known to be switched out.",
        ),
        opt(
            "resident_idle_ns",
            I64,
            "no switch records, or its kernels were not traced",
            "Resident with none of its kernels in flight, before the first activity and after the last as well.",
        ),
        opt("copy_bytes", I64, "its copies were not traced", "Bytes copied."),
        opt("memory_peak_bytes", I64, "no memory events or samples", "Largest device memory seen in use."),
        col("slices", U64, "Complete slices."),
        opt("median_slice_ns", I64, "no complete slice", "Median length of complete slices: one of the lengths, of an even number the lower of the two in the middle."),
        opt("max_slice_ns", I64, "no complete slice", "Longest complete slice."),
        BASIS,
    ],
};

/// Per-kernel attributed time.
pub const KERNEL_ATTRIBUTION: Table = Table {
    name: "kernel_attribution",
    version: 1,
    doc: "What of each kernel's interval its context was resident, sorted as `kernels`. Graph launches are not in it.",
    columns: &[
        CAPTURE_ID,
        PID,
        DEVICE_ID,
        CORRELATION_ID,
        opt("tenant_id", U32, "no tenant could be named", "Tenant."),
        START,
        END,
        col("attributed_ns", I64, "Part of the interval inside the tenant's residency; all of the time of which there are no switch records."),
        col("switched_out_ns", I64, "The rest: end_ns - start_ns - attributed_ns."),
        BASIS,
        opt("call_start_ns", I64, NO_CALL, "Begin of the call that launched it. From here to end_ns, launch_overhead_ns + queued_same_tenant_ns + queued_other_tenant_ns + attributed_ns + switched_out_ns account for every nanosecond."),
        opt("launch_overhead_ns", I64, NO_CALL, "Until that call returned, at most until the kernel started."),
        opt("queued_same_tenant_ns", I64, NO_CALL, "Then behind earlier work of its own stream, or behind its own tenant's work while that was resident."),
        opt("queued_other_tenant_ns", I64, NO_CALL, "Then ready, but not on the engine: another tenant's turn, or the switch. Where several tenants may be on the engine at once, or residency is not known, while work of others was in flight."),
        opt("switch_ns", I64, "no switch records", "Of queued_other_tenant_ns and switched_out_ns, the part in which the engine was being handed over (SAVE_END to RESTORE_START)."),
    ],
};

/// Pairs of tenants.
pub const OVERLAPS: Table = Table {
    name: "overlaps",
    version: 1,
    doc: "For every pair of tenants on a device: how long both were busy, and what their short kernels did. A device with more than 64 tenants has rows of pairs that met only: both had work in flight or were resident at once, or short kernels of one started soon after work of the other (of the 64 tenants that had work last).",
    columns: &[
        DEVICE_ID,
        col("tenant_a", U32, "Tenant, the smaller id."),
        col("tenant_b", U32, "Tenant, the larger id."),
        col("co_window_ns", I64, "Both between their first and last activity."),
        opt("co_busy_ns", I64, "one of them was not traced", "Both had kernels or graphs in flight, by their recorded intervals."),
        opt("co_resident_ns", I64, "one of them has no residency", "Both were resident at once: not time-sliced."),
        opt("short_kernels", U64, "one of them was not traced", "Kernels shorter than a tenth of a time slice that started while the other had work in flight."),
        opt("short_overlapping", U64, "one of them was not traced", "Those of them that overlap a kernel of the other, also a long one."),
        opt("short_short_overlapping", U64, "one of them was not traced", "Those of them that overlap a short kernel of the other: shared SMs or shared device, never time-slicing."),
        opt("short_short_expected", F64, "one of them was not traced", "How many of them would do so by chance if neither waited for the other: near zero means that their short kernels rarely could have met."),
        opt("changes_in_flight", U64, "one of them was not traced", "Kernels that started while one of the other was in flight for 20 us more, which had started since the last kernel of their own tenant."),
        opt("quick_changes", U64, "one of them was not traced", "Those of them that started less than 0.8 ms after that last kernel: no time slice of the other fits in between, so no context was switched."),
        opt("quick_changes_expected", F64, "one of them was not traced", "How many of them would do so if it made no difference that the other had started a kernel in between. Counted by kernels that started when the last one of their tenant had ended."),
        BASIS,
    ],
};

/// Measured quantities.
pub const FACTS: Table = Table {
    name: "facts",
    version: 1,
    doc: "The measured quantities that verdicts look at, per device.",
    columns: &[
        DEVICE_ID,
        col("name", Name, "Stable name, listed in features.rs."),
        opt("value", F64, "not available: see detail", "Value."),
        col("unit", Name, "Unit, `1` for plain numbers."),
        col("n", U64, "How many rows it is computed from."),
        BASIS,
        col("detail", Text, "How it was computed, or why it could not be."),
    ],
};

/// Strongest intervals behind a fact.
pub const FACT_EXAMPLES: Table = Table {
    name: "fact_examples",
    version: 1,
    doc: "Up to three intervals behind each fact, to be found again in the nsys timeline.",
    columns: &[
        DEVICE_ID,
        col("fact", Name, "Name of the fact."),
        CAPTURE_ID,
        START,
        END,
        PID,
        CORRELATION_ID,
    ],
};
