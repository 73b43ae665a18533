//! Tables of occupancy and forecasts.

use super::Kind::{Bool, Name, Text, F64, I64, U32, U64};
use super::{col, opt, Table, BASIS, CAPTURE_ID, CORRELATION_ID, DEVICE_ID, END, OLD, PID, START, TENANT_ID};

const NOT_REPLAYED: &str = "its tenant was never resident between its start and its end";

/// Theoretical occupancy per launch configuration.
pub const KERNEL_OCCUPANCY: Table = Table {
    name: "kernel_occupancy",
    version: 3,
    doc: "Theoretical occupancy of every distinct launch configuration, with its limiting resources, and the warps that such a launch holds on average when it runs solo.",
    columns: &[
        DEVICE_ID,
        opt("tenant_id", U32, "no tenant could be named", "Tenant."),
        opt("name", Name, "no name was recorded", "Kernel. Hostile text."),
        opt("short_name", Name, "no name was recorded", "Kernel, as in `kernels`. Hostile text."),
        col("launches", U64, "How many launches share this configuration."),
        col("total_ns", I64, "Sum of their durations as recorded."),
        opt("grid_blocks", U64, OLD, "Blocks in the grid."),
        opt("block_threads", U32, OLD, "Threads in a block."),
        opt("registers_per_thread", U32, OLD, "Registers."),
        opt("shared_bytes", I64, OLD, "Static and dynamic shared memory of a block."),
        opt(
            "blocks_per_sm",
            U32,
            "the device or the launch is not known well enough",
            "Blocks that fit on one SM at once.",
        ),
        opt("warps_per_sm", U32, "the device or the launch is not known well enough", "Their warps."),
        opt(
            "occupancy",
            F64,
            "the device or the launch is not known well enough",
            "warps_per_sm over the SM's limit.",
        ),
        opt(
            "limiters",
            Text,
            "the device or the launch is not known well enough",
            "All resources that tie: `warps`, `registers`, `shared`, `blocks`, `barriers`, `clusters`. `shared` stands beside another one only where the kernel uses shared memory: the driver takes some for every block.",
        ),
        opt(
            "waves",
            F64,
            "the device or the launch is not known well enough",
            "Grid over what the whole device holds at once: below 1 leaves block slots empty.",
        ),
        opt(
            "mean_warps_per_sm",
            F64,
            "the device or the launch is not known well enough",
            "Mean warps per SM from start to end of a launch that runs solo for the mean recorded duration: with what starting, ending, block turnover and uneven blocks cost real kernels.",
        ),
        opt(
            "mean_warps_per_sm_low",
            F64,
            "the device or the launch is not known well enough",
            "Lower end of its interval, which holds 95 % of real launches in repositories that it was not fitted on.",
        ),
        opt("mean_warps_per_sm_high", F64, "the device or the launch is not known well enough", "Upper end."),
        opt("reason", Text, "computed", "Why it could not be computed."),
        BASIS,
    ],
};

/// How full the SMs were, over time.
pub const SM_OCCUPANCY: Table = Table {
    name: "sm_occupancy",
    version: 1,
    doc: "Modelled warps and busy SMs per tenant and time bin. No supported interface measures this.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        START,
        END,
        col("warps", F64, "Mean resident warps as a fraction of the device's warp slots."),
        col("sm_active", F64, "Mean fraction of SMs with at least one of its warps."),
        BASIS,
        col(
            "warps_low",
            F64,
            "No fewer than this: one block of each of its kernels in flight while it was resident.",
        ),
        col(
            "warps_high",
            F64,
            "No more than this: as many blocks of each as its SMs hold, for the whole of each kernel.",
        ),
    ],
};

/// How full each SM was, over time.
pub const SM_WARPS: Table = Table {
    name: "sm_warps",
    version: 1,
    doc: "Modelled warps per SM and time bin. No supported interface measures this. Which SM is which rests on an order of preference among equally full SMs that was measured on Pascal (in order), Volta and Turing (even numbers first). From compute capability 8.0 on it is an assumption, and so are SM numbers; sorted by warps the SMs of a bin do not depend on it.",
    columns: &[
        DEVICE_ID,
        START,
        END,
        col("sm", U32, "Number of the SM, from 0; of a MIG instance's own SMs. Assumed from compute capability 8.0 on."),
        col("warps", F64, "Mean resident warps."),
        col("active", F64, "Mean part of the time with at least one warp."),
        col("model", Name, "`replay`: blocks placed as the block scheduler would. `even`: the warps of each tenant spread evenly over the SMs it may use. `measured`: blocks that were given (`--blocks`) and cover every kernel of the bin; `basis` is then `observed`."),
        BASIS,
    ],
};

/// Where kernels ran.
pub const KERNEL_PLACEMENT: Table = Table {
    name: "kernel_placement",
    version: 1,
    doc: "One row per kernel that was replayed, sorted by start: how many SMs its blocks reached, by the model.",
    columns: &[
        CAPTURE_ID,
        PID,
        CORRELATION_ID,
        DEVICE_ID,
        TENANT_ID,
        START,
        END,
        col("blocks", U64, "Blocks in the grid."),
        opt("sms_reached", U32, NOT_REPLAYED, "SMs that held at least one of its blocks."),
        opt("waves", F64, NOT_REPLAYED, "Blocks over the most that were resident at once."),
        opt("caveat", Name, "none", "`clusters`: blocks were placed one by one, the hardware places clusters inside a GPC. `persistent`: the grid is one block per SM or exactly what the device holds, as in programs whose blocks fetch work and end when there is none. `uneven`: equal blocks contradict the start of a later kernel, so its blocks were thinned out. `not resident`. `too many in flight`: 256 other kernels of its group had started and not ended, more than a GPU holds; it was not replayed."),
        BASIS,
    ],
};

/// The recorded programs under other sharing modes.
pub const FORECAST: Table = Table {
    name: "forecast",
    version: 2,
    doc: "What each tenant took, as recorded, and would have taken for the same launches under other sharing configurations, while the others go on: modelled, not a promise. Other tenants cost SM slots, turns, copy engines and the stated contention, nothing else.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        col("copy", U32, "Which copy of the tenant's program, from 0."),
        col("sharing_config", Name, "Name of the sharing configuration; `recorded`: what the capture shows."),
        col("elapsed_ns", I64, "First launch call (without API calls: first start) to last end."),
        opt("latency_ns", I64, "no API calls were loaded", "Launch call to end, summed over kernels and whole graphs."),
        opt("latency_p50_ns", I64, "no API calls were loaded", "Median of the same, of one launch."),
        opt("latency_p99_ns", I64, "no API calls were loaded", "99th percentile of the same."),
        opt("queue_other_tenant_ns", I64, "no API calls were loaded, or as recorded", "Of latency_ns, the wait of a ready and resident kernel for its first block while blocks of other tenants hold the SMs that it needs. Kernels behind it in its stream wait for the same."),
        opt("not_resident_ns", I64, "no API calls were loaded, or as recorded", "Of latency_ns, from ready to end of a kernel, the time in which its context was not resident, with the switches; for kernels behind it in its stream as well."),
        opt("unit_p50_ns", I64, "no units of work are known", "Median time of a unit of work, from its begin to the end of its last operation."),
        opt("unit_p99_ns", I64, "no units of work are known", "99th percentile of the same."),
        col("operations", U64, "Kernels, graphs and copies of the recorded ones that ended."),
        opt("sampling_error", F64, "all recorded operations were replayed", "Half width of the 95 % interval of `elapsed_ns`, as a part of it, for replaying windows of the recording instead of all of it: by how much the windows differ."),
        col("goes_on", Bool, "Its work went on to the end of the recording: in a forecast it is begun again until all others have run once, so nobody is left alone."),
        col("unseen_waits", Bool, "Its host may have waited for its work without a call, such as for a flag in memory: too little was seen to tell. A forecast takes it for busy, so that `elapsed_ns` is a lower bound where its work takes longer than recorded."),
        opt("client_order", Name, "no MPS clients without caps, or as recorded too few of their kernels met to tell", "Which of them get SMs while one of another client that was ready earlier waits for SMs. `one-line`: none. `overtaking`: those for which there is room."),
        opt("contention", F64, "a forecast, or no kernels of known time alone ran in the co-run", "Part by which kernels of different tenants took longer beside each other than blocks and SMs explain: memory, caches, issue slots."),
        BASIS,
        col("detail", Text, "What the program was made from."),
    ],
};
