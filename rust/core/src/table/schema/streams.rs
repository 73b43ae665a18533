//! Tables of the streams of one process.

use super::Kind::{Bool, Name, F64, I32, I64, U32, U64, U8};
use super::{col, opt, Column, Table, CAPTURE_ID, DEVICE_ID, OLD, PID};

const TENANT: Column = opt("tenant_id", U32, "the process is no tenant", "The tenant, see `tenants`.");
const CONTEXT_A: Column = opt("context_a", U32, OLD, "Context of the first stream.");
const STREAM_A: Column = col("stream_a", U32, "The first stream.");
const CONTEXT_B: Column = opt("context_b", U32, OLD, "Context of the second stream.");
const STREAM_B: Column = col("stream_b", U32, "The second stream.");
const TOO_FEW_SOLO: &str = "fewer than five solo launches";
const TOO_FEW_LAUNCHES: &str = "too few launches on either side, or an interval that says nothing";

/// What each stream did.
pub const STREAM_WORK: Table = Table {
    name: "stream_work",
    version: 1,
    doc: "Streams with work of every process that used several on one device.",
    columns: &[
        DEVICE_ID,
        TENANT,
        CAPTURE_ID,
        PID,
        opt("context_id", U32, OLD, "CUDA context id, unique per process only."),
        col("stream_id", U32, "CUDA stream id, unique per process and context only."),
        opt(
            "green_context_id",
            U32,
            "not a green context, or not exported",
            "Green context that its kernels ran in.",
        ),
        col("operations", U64, "Kernels, whole graphs, copies and sets."),
        col("kernels", U64, "Of these, kernels and whole graphs."),
        col("busy_ns", I64, "Union of its operations."),
        col("first_ns", I64, "First start."),
        col("last_ns", I64, "Last end."),
        opt("priority", I32, "not exported", "Priority; a lower number goes first."),
        opt(
            "flag",
            U8,
            "not exported",
            "1 synchronises with the legacy default stream, 2 does not, 3 is it.",
        ),
        col(
            "is_graph_branch",
            Bool,
            "All its operations are nodes of graphs that were launched to another stream: CUDA made it for a branch of a graph.",
        ),
    ],
};

/// Pairs of streams.
pub const STREAM_PAIRS: Table = Table {
    name: "stream_pairs",
    version: 1,
    doc: "Pairs of streams of one process on one device: of the 64 busiest.",
    columns: &[
        DEVICE_ID,
        TENANT,
        CAPTURE_ID,
        PID,
        CONTEXT_A,
        STREAM_A,
        CONTEXT_B,
        STREAM_B,
        col("both_had_work_ns", I64, "Both had an operation launched and not finished, and neither waited, or may have waited, for SMs of its green context, which the other one cannot fill."),
        col("overlap_ns", I64, "Both had an operation in flight."),
        col("not_overlapped_ns", I64, "Both had work, but only one had an operation in flight."),
        col(
            "late_ns",
            I64,
            "One was in flight and had ended before the other was launched: at most as long as what came late.",
        ),
        col("alternations", U64, "How often an operation of one started after one of the other."),
    ],
};

/// Why streams did not overlap.
pub const STREAM_LOSSES: Table = Table {
    name: "stream_losses",
    version: 1,
    doc: "Time in which one stream of a pair had an operation in flight and the other had none, by what the other waited for.",
    columns: &[
        DEVICE_ID,
        TENANT,
        CAPTURE_ID,
        PID,
        CONTEXT_A,
        STREAM_A,
        CONTEXT_B,
        STREAM_B,
        opt("waiting_context", U32, OLD, "Context of the stream that waited."),
        col("waiting_stream", U32, "The stream that waited."),
        col("reason", Name, "Why, as columns of the capture decide it; `unexplained` where none does."),
        col(
            "had_work",
            Bool,
            "The waiting stream had work: part of not_overlapped_ns of `stream_pairs`, else of late_ns.",
        ),
        col("without_overlap_ns", I64, "How long."),
        col("operations", U64, "How many operations waited."),
        opt(
            "filled_by",
            Name,
            "another reason, or no name was recorded",
            "Kernel of any other stream that by itself left no SMs, during most of that time. Hostile text.",
        ),
    ],
};

/// Kernels beside another stream and alone.
pub const STREAM_CONTENTION: Table = Table {
    name: "stream_contention",
    version: 2,
    doc: "Durations of the same kernel (name, grid, block) of a stream beside another stream, against those while no other stream of the process had an operation in flight.",
    columns: &[
        DEVICE_ID,
        TENANT,
        CAPTURE_ID,
        PID,
        opt("context_id", U32, OLD, "CUDA context id, unique per process only."),
        col("stream_id", U32, "The stream of the kernel."),
        opt("short_name", Name, "no name was recorded", "Kernel, as in `kernels`. Hostile text."),
        opt("grid_blocks", U64, OLD, "Blocks of the grid."),
        opt("block_threads", U32, OLD, "Threads of a block."),
        opt("beside_context", U32, OLD, "Context of the other stream."),
        col("beside_stream", U32, "The other stream, which covered at least half of the kernel."),
        opt("beside_kernel", Name, "copies only, or no name was recorded", "Kernel of the other stream that overlapped it most. Hostile text."),
        col("n", U64, "Launches beside the other stream."),
        col("n_solo", U64, "Launches solo."),
        col("n_graph_nodes", U64, "Of the launches beside the other stream, nodes of graphs."),
        col("n_solo_graph_nodes", U64, "Of the launches solo, nodes of graphs."),
        col("total_ns", I64, "Sum of the durations beside it."),
        col("overlap_ns", I64, "Of which the other stream was in flight."),
        opt("median_ns", I64, "no launch", "Median duration beside it."),
        opt("solo_median_ns", I64, "never ran solo", "Median duration solo."),
        opt("added_ns", I64, TOO_FEW_SOLO, "How much longer these launches took, in all, than as many solo."),
        opt("added_half_ns", I64, TOO_FEW_SOLO, "Half of its 95 % interval."),
        opt("ratio", F64, TOO_FEW_LAUNCHES, "How many times as long as solo the kernel took while the other stream was in flight."),
        opt("ratio_low", F64, TOO_FEW_LAUNCHES, "Lower end of its 95 % interval."),
        opt("ratio_high", F64, TOO_FEW_LAUNCHES, "Upper end of it."),
    ],
};
