//! Tables of slowdown and its causes.

use super::Kind::{Bool, Name, Text, F64, I64, U32, U64};
use super::{col, opt, Column, Table, BASIS, DEVICE_ID, END, OLD, START, TENANT_ID, TOO_FEW};

const BASELINE_ID: Column = opt("baseline", U32, "not against a baseline", "Index of the baseline.");

const AGAINST_RUN: Column = col(
    "against",
    Name,
    "`baseline`: a solo recording. `counterfactual`: this run replayed without the other tenants.",
);

/// Latency over time, for a chart.
pub const LATENCIES: Table = Table {
    name: "latencies",
    version: 2,
    doc: "Kernels of each tenant in equal bins of time: how long they took from launch to end, and how long any was in flight. Latencies of kernels launched outside of the window count to the outermost bins.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        START,
        END,
        col("kernels", U64, "Kernels whose launch call began in the bin; where no call is known, that started in it."),
        opt("p50_ns", I64, "no kernel was launched in the bin", "Median of the times from begin of launch call to end of kernel."),
        opt("p95_ns", I64, "no kernel was launched in the bin", "95th percentile of the same, the nearest value."),
        col("busy_ns", I64, "The part of the bin with a kernel in flight."),
    ],
};

/// Kernels shared against solo.
pub const SLOWDOWNS: Table = Table {
    name: "slowdowns",
    version: 1,
    doc: "The same kernel (name, grid, block, dynamic shared memory) shared against solo, on the time in which its context ran. First launches, those that the profiler held up, and kernels that only waited for others are left out and counted.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        col("against", Name, "`solo`: the same kernels in the same capture while no other tenant ran. `baseline`: in a recording of the tenant solo."),
        BASELINE_ID,
        opt("name", Name, "no name was recorded", "Demangled name, or the graph. Hostile text."),
        opt("grid_x", U32, OLD, "Blocks."),
        opt("grid_y", U32, OLD, "Blocks."),
        opt("grid_z", U32, OLD, "Blocks."),
        opt("block_x", U32, OLD, "Threads."),
        opt("block_y", U32, OLD, "Threads."),
        opt("block_z", U32, OLD, "Threads."),
        opt("dynamic_shared_bytes", I64, OLD, "Dynamic shared memory of a block."),
        col("n", U64, "Kernels in the co-run (all of the tenant's, against a baseline)."),
        col("n_solo", U64, "Kernels solo."),
        col("excluded", U64, "On either side: first launches, launches that the profiler or the loading of code held up, kernels that only waited for others, and kernels that the window of the session cuts."),
        col("excluded_overhead", U64, "Of these, held up by the profiler or the loading of code (`profiler_overhead`)."),
        opt("median_ns", I64, TOO_FEW, "Median execution time in the co-run."),
        opt("solo_median_ns", I64, TOO_FEW, "Median execution time solo."),
        opt("median_ratio", F64, TOO_FEW, "median_ns over solo_median_ns."),
        opt("ratio", F64, TOO_FEW, "Ratio of the geometric means: what the interval is of."),
        opt("ratio_low", F64, TOO_FEW, "Lower end of its 95 % interval (2000 resamples of blocks of time)."),
        opt("ratio_high", F64, TOO_FEW, "Upper end of it."),
        opt("effect", F64, TOO_FEW, "Cliff's delta: 0 no difference, 1 every kernel in the co-run is longer than every one solo."),
        col("total_ns", I64, "Execution time of the kernels in the co-run."),
        opt("reason", Text, "nothing is missing", "Why a ratio or its interval is missing."),
        BASIS,
        opt("p5_ns", I64, TOO_FEW, "Execution time in the co-run that 5 % of the kernels do not exceed."),
        opt("p25_ns", I64, TOO_FEW, "That 25 % do not exceed."),
        opt("p75_ns", I64, TOO_FEW, "That 75 % do not exceed."),
        opt("p95_ns", I64, TOO_FEW, "That 95 % do not exceed."),
        opt("solo_p5_ns", I64, TOO_FEW, "Execution time solo that 5 % of the kernels do not exceed."),
        opt("solo_p25_ns", I64, TOO_FEW, "That 25 % do not exceed."),
        opt("solo_p75_ns", I64, TOO_FEW, "That 75 % do not exceed."),
        opt("solo_p95_ns", I64, TOO_FEW, "That 95 % do not exceed."),
    ],
};

/// Slowdowns of whole tenants.
pub const TENANT_SLOWDOWNS: Table = Table {
    name: "tenant_slowdowns",
    version: 1,
    doc: "Each tenant's work beside the same work solo: shared over solo.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        col("measure", Name, "`elapsed`: first launch to last end, without pauses of the program longer than both 20 ms and three times its usual pause. `latency`: sum of end minus launch over kernels; `latency_p50`, `_p95`, `_p99`: its percentiles (where the baseline did other amounts of work, of its launches in the shares of signatures that they have here). `resident`: sum of execution time. `none`: no comparison, see reason."),
        opt("work", Name, "of its kernels", "Units of work: the name of NVTX ranges or of given ones, from their begin to the end of the last operation launched inside. Hostile text."),
        AGAINST_RUN,
        BASELINE_ID,
        opt("value", F64, "see reason", "Shared over solo."),
        opt("low", F64, "too few operations, or a percentile", "Lower end of the 95 % interval."),
        opt("high", F64, "too few operations, or a percentile", "Upper end of the 95 % interval."),
        col("n", U64, "Kernels and graph launches compared, or units of work."),
        col("blocks", U64, "Blocks of time that were drawn from."),
        opt("excluded", U64, "of units of work", "Operations left out of latencies: the profiler or the loading of code held their launch up, their launch call is not recorded, or the window of the session cuts them or begins after their launch. Those that it cuts are left out of resident as well."),
        opt("shared_ns", I64, "see reason", "In the co-run: the sum, or the percentile."),
        opt("solo_ns", I64, "see reason", "Alone: the sum, or the percentile."),
        opt("reason", Text, "nothing to add", "Why there is no value, or what it rests on."),
        BASIS,
    ],
};

/// Where added latency went.
pub const CAUSES: Table = Table {
    name: "causes",
    version: 1,
    doc: "Where the latency of a tenant's kernels went, in the co-run and solo; the parts of each sum to its latency.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        AGAINST_RUN,
        BASELINE_ID,
        col("cause", Name, "`launch`: the launch call. `queue_same_tenant`: behind its own stream and kernels. `queue_other_tenant`: its context ran, others had the SMs. `not_resident`: its context was not resident. `switch`: the switches. `execution`: at work."),
        col("shared_ns", I64, "In the co-run."),
        col("solo_ns", I64, "Alone."),
        col("added_ns", I64, "The difference."),
        opt("share", F64, "nothing was added", "Of all that was added; may be negative."),
        opt("root_share", F64, "nothing was added", "The same, with the wait behind an operation of the same stream counted for what had delayed that one."),
        col("residency_known", Bool, "Switch records say when its context ran; otherwise time switched out hides in queue_other_tenant and execution."),
        BASIS,
    ],
};

/// Who slowed whom.
pub const PAIRWISE_INTERFERENCE: Table = Table {
    name: "pairwise_interference",
    version: 1,
    doc: "Added latency of each victim's kernels by the time in which each other tenant's work could run between their launch and end (regression without a constant).",
    columns: &[
        DEVICE_ID,
        col("victim", U32, "Tenant that was slowed."),
        col("aggressor", U32, "Tenant beside it."),
        AGAINST_RUN,
        BASELINE_ID,
        col("exposure_ns", I64, "Sum over the victim's kernels."),
        opt("share", F64, "nothing was added, or it cannot be told from another's", "Part of the added latency; what no aggressor explains is the rest."),
        opt("share_low", F64, "no interval", "Lower end of the 95 % interval."),
        opt("share_high", F64, "no interval", "Upper end of the 95 % interval."),
        opt("inseparable_from", U32, "it can be told from all others", "A tenant that was always there at the same time."),
        col("n", U64, "The victim's kernels."),
        BASIS,
    ],
};

/// What switching contexts costs beside the switch gap.
pub const CONTEXT_STATE: Table = Table {
    name: "context_state",
    version: 1,
    doc: "How long stopping a context, saving its state and restoring it take, where no record of the driver says so. No row: the capture does not show it.",
    columns: &[
        DEVICE_ID,
        col("save_ns", I64, "From the end of execution to SAVE_END."),
        col("restore_ns", I64, "From RESTORE_START to the begin of execution."),
        col("low_ns", I64, "Lower end of the interval of both together."),
        col("high_ns", I64, "Upper end of it."),
        col("found_from", Name, "`kernels`: from how much longer kernels ran that were switched out more often. `starts`: from when kernels start and end inside of residency intervals, which tells less."),
        BASIS,
    ],
};

/// Which baseline is whose.
pub const BASELINE_MATCHES: Table = Table {
    name: "baseline_matches",
    version: 1,
    doc: "How alike each tenant and each recording solo are, and which was used.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        col("baseline", U32, "Index of the baseline."),
        col("baseline_tenant_id", U32, "Tenant in the baseline."),
        col("likeness", F64, "Part of the execution time, of the one and of the other, in kernels that both have: the smaller of the two."),
        col("same_name", Bool, "The processes have one name."),
        col("named", Bool, "The caller said whose it is."),
        col("used", Bool, "The comparison was made with it."),
        opt("aligned", Bool, "not used", "Both did the same work, operation by operation."),
    ],
};
