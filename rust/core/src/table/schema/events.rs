//! Events as nsys exported them.

use super::Kind::{Bool, Name, Text, F64, I32, I64, U16, U32, U64, U8};
use super::{
    col, opt, Table, CAPTURE_ID, CONTEXT_ID, CORRELATION_ID, DEVICE_ID, END, NO_PID, OLD, PID, START,
    STREAM_ID,
};

/// Kernels.
pub const KERNELS: Table = Table {
    name: "kernels",
    version: 2,
    doc:
        "One row per kernel, sorted by start. [start_ns, end_ns] includes time the context was switched out.",
    columns: &[
        CAPTURE_ID,
        PID,
        DEVICE_ID,
        CONTEXT_ID,
        opt("green_context_id", U32, "not a green context, or not exported", "Green context."),
        STREAM_ID,
        CORRELATION_ID,
        START,
        END,
        opt("name", Name, "no name was recorded", "Demangled name. Hostile text."),
        opt(
            "short_name",
            Name,
            "no name was recorded",
            "Name without parameters; where kernels of several full names share it, with the parts that tell them \
             apart. Hostile text.",
        ),
        opt("launch_type", U8, OLD, "0 unknown, 1 regular, 2 cooperative, 3 cooperative on several devices."),
        opt("grid_x", U32, OLD, "Blocks."),
        opt("grid_y", U32, OLD, "Blocks."),
        opt("grid_z", U32, OLD, "Blocks."),
        opt("block_x", U32, OLD, "Threads."),
        opt("block_y", U32, OLD, "Threads."),
        opt("block_z", U32, OLD, "Threads."),
        opt("registers_per_thread", U32, OLD, "Registers."),
        opt("static_shared_bytes", I64, OLD, "Static shared memory of a block."),
        opt("dynamic_shared_bytes", I64, OLD, "Dynamic shared memory of a block."),
        opt(
            "shared_executed_bytes",
            I64,
            OLD,
            "Shared-memory carve-out of the SM that the driver set for this launch.",
        ),
        opt(
            "shared_requested_percent",
            U8,
            "none was asked for, or the nsys version did not export it",
            "Shared-memory carve-out that was asked for, in percent of the most an SM can have.",
        ),
        opt(
            "cache_preference",
            U8,
            "the nsys version did not export it",
            "Legacy cache preference: 0 none, 1 shared memory, 2 L1, 3 both alike.",
        ),
        opt("local_per_thread_bytes", I64, OLD, "Local memory of a thread."),
        opt("graph_node_id", U64, "not launched by a graph traced per node", "Graph node."),
        opt("cluster_x", U32, OLD, "Blocks in a cluster."),
        opt("cluster_y", U32, OLD, "Blocks in a cluster."),
        opt("cluster_z", U32, OLD, "Blocks in a cluster."),
        opt("max_active_clusters", U32, OLD, "Clusters that fit on the device."),
    ],
};

const NO_PLACE: &str =
    "the nsys version did not export it, or unified memory was migrated: no stream does that";

/// Copies and sets.
pub const MEMOPS: Table = Table {
    name: "memops",
    version: 1,
    doc: "Copies and sets, sorted by start.",
    columns: &[
        CAPTURE_ID,
        PID,
        DEVICE_ID,
        opt("context_id", U32, NO_PLACE, "CUDA context id, unique per process only."),
        opt("stream_id", U32, NO_PLACE, "CUDA stream id, unique per process and context only."),
        CORRELATION_ID,
        START,
        END,
        col("operation", Name, "As nsys names it: `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`."),
        opt(
            "copy_kind",
            U8,
            "a memset",
            "CUPTI copy kind: 1 HtoD, 2 DtoH, 8 DtoD, 10 PtoP, 11..13 unified memory.",
        ),
        opt("source_kind", U8, OLD, "CUPTI memory kind: 0 pageable, 1 pinned, 2 device, 4 managed."),
        opt("destination_kind", U8, OLD, "CUPTI memory kind; for a memset the kind of its target."),
        col("bytes", I64, "Bytes moved or set."),
        opt(
            "migration_cause",
            U8,
            "not a unified-memory migration",
            "1 user prefetch, 2 page fault, 3 speculative, 4 eviction, 5 access counters.",
        ),
        opt("graph_node_id", U64, "not launched by a graph traced per node", "Graph node."),
    ],
};

/// Whole-graph launches.
pub const GRAPH_LAUNCHES: Table = Table {
    name: "graph_launches",
    version: 1,
    doc: "CUDA graphs traced as a whole, sorted by start: their kernels are not in `kernels`, but the GPU was busy.",
    columns: &[
        CAPTURE_ID,
        PID,
        DEVICE_ID,
        CONTEXT_ID,
        STREAM_ID,
        CORRELATION_ID,
        START,
        END,
        opt("graph_id", U64, OLD, "Graph."),
        opt("graph_exec_id", U64, OLD, "Instantiated graph."),
    ],
};

/// CUDA API calls.
pub const API_CALLS: Table = Table {
    name: "api_calls",
    version: 1,
    doc: "CUDA runtime and driver calls, sorted by start.",
    columns: &[
        CAPTURE_ID,
        PID,
        opt("tid", U32, NO_PID, "Thread id."),
        START,
        END,
        opt("name", Name, "no name was recorded", "Function."),
        opt("correlation_id", U32, OLD, "Links to the work it caused; unique per process only."),
        opt("return_value", I32, OLD, "CUDA error code, 0 for success."),
    ],
};

/// Work that is not the program's own.
pub const PROFILER_OVERHEAD: Table = Table {
    name: "profiler_overhead",
    version: 1,
    doc: "When a thread was kept by the profiler, or by the loading and compiling of code, sorted by start: calls that this falls into took longer than the program's own.",
    columns: &[
        CAPTURE_ID,
        PID,
        opt("tid", U32, NO_PID, "Thread id."),
        START,
        END,
        opt("kind", Name, "the export is older than 2024.7 or does not say", "As nsys names it: buffer flush, instrumentation, lazy loading, ..."),
    ],
};

/// Calls about CUDA events and synchronisation.
pub const EVENT_CALLS: Table = Table {
    name: "event_calls",
    version: 1,
    doc: "Calls that record a CUDA event, let a stream or a thread wait for one, or synchronise otherwise. When and by which function stands in `api_calls`, under the same correlation id.",
    columns: &[
        CAPTURE_ID,
        PID,
        CONTEXT_ID,
        opt("stream_id", U32, "concerns no single stream", "The stream that the event is recorded in, or that waits."),
        CORRELATION_ID,
        opt("event_id", U32, "concerns no event", "Event, unique per process and context only."),
        opt("event_sync_id", U64, OLD, "Which recording of the event it is."),
        col("kind", Name, "`record`, or `synchronization`: which one, the function says."),
        opt("completion_traced", Bool, "not a record", "nsys traced when the device came to the event, which may let streams wait for each other."),
    ],
};

/// When threads were on a CPU.
pub const THREAD_RUNS: Table = Table {
    name: "thread_runs",
    version: 1,
    doc: "From being scheduled onto a CPU to being scheduled out, sorted by start. Of a thread nothing is known before its first run and after its last.",
    columns: &[
        CAPTURE_ID,
        PID,
        opt("tid", U32, NO_PID, "Thread id."),
        START,
        END,
        opt("cpu", U32, OLD, "Logical CPU."),
    ],
};

/// What `kind` of `nvtx` says of a row that names a domain.
pub const DOMAIN: &str = "domain";

/// NVTX ranges and marks.
pub const NVTX: Table = Table {
    name: "nvtx",
    version: 1,
    doc: "NVTX push-pop and start-end ranges and marks, and what domains are called, sorted by start.",
    columns: &[
        CAPTURE_ID,
        PID,
        opt("tid", U32, NO_PID, "Thread id."),
        START,
        opt("end_ns", I64, "a mark, a domain, or a range that never ended", "End."),
        col(
            "kind",
            Name,
            "`mark`, `push-pop` or `start-end`; `domain`: the row says what the domain is called.",
        ),
        opt("text", Name, "no text", "Name of the range or the domain. Hostile text."),
        opt("domain_id", U64, OLD, "NVTX domain, unique per process only; 0: the default one."),
    ],
};

/// What `kind` of `host_calls` says of calls of MPI.
pub const MPI_CALL: &str = "mpi";
/// Of the video codec SDK.
pub const VIDEO_CALL: &str = "video";
/// Of the C library.
pub const OS_CALL: &str = "os";

/// Calls of libraries in which host threads wait or work.
pub const HOST_CALLS: Table = Table {
    name: "host_calls",
    version: 1,
    doc: "Calls of MPI, of the video codec SDK and of the C library (OS runtime), sorted by start.",
    columns: &[
        CAPTURE_ID,
        PID,
        opt("tid", U32, NO_PID, "Thread id."),
        START,
        END,
        col("kind", Name, "`mpi`, `video` or `os`."),
        opt("name", Name, "no name was recorded", "Function."),
    ],
};

/// What threads ran on CPUs.
pub const CPU_SAMPLES: Table = Table {
    name: "cpu_samples",
    version: 1,
    doc: "Samples of threads that ran on a CPU, with the function that each was in, sorted by time. A thread that waits has none.",
    columns: &[
        CAPTURE_ID,
        PID,
        opt("tid", U32, NO_PID, "Thread id."),
        col("time_ns", I64, "Time of the sample."),
        opt("function", Name, "the file has no symbol for it, or no call chain was recorded", "The innermost function of its call chain. Hostile text."),
        opt("module", Name, "no call chain was recorded", "Name of the file that has its code, without folders. Hostile text."),
    ],
};

/// Device memory that processes asked for and gave back.
pub const ALLOCATIONS: Table = Table {
    name: "allocations",
    version: 1,
    doc: "Memory that traced processes allocated and freed, recorded with --cuda-memory-usage=true, sorted by time. What a context, its modules and rounding take beside it is not in here.",
    columns: &[
        CAPTURE_ID,
        PID,
        DEVICE_ID,
        col("time_ns", I64, "Time of the call."),
        col("operation", Name, "`allocated` or `freed`."),
        opt("memory_kind", U8, "not in the file", "nsys' number: 0 pageable, 1 pinned, 2 device, 3 array, 4 managed, 5 device static, 6 managed static."),
        col("bytes", I64, "Bytes asked for or given back."),
    ],
};

/// GPU context-switch records.
pub const SWITCH_EVENTS: Table = Table {
    name: "switch_events",
    version: 1,
    doc: "GPU context-switch records, sorted by (time, device, sequence). The graphics/compute engine only; host pids.",
    columns: &[
        CAPTURE_ID,
        DEVICE_ID,
        col("time_ns", I64, "Time of the record."),
        col("tag", U8, "0 start of frame, 1 switch requested, 2 acknowledged, 3 ack WFI, 4 ack GFXP, 5 ack CTAP, 6 ack CILP, 7 save end, 8 restore start, 9 context start, 10 invalid, 11 engine reset, 255 unknown. Mapped by ENUM_GPU_CTX_SWITCH name where the file has it."),
        opt("pid", U32, "recorded without privilege (another user), or a kernel client", "Host process id."),
        col("hw_context", U64, "Hardware context; not a CUDA context id."),
        col("sequence", U16, "16-bit sequence number of the driver; gaps are lost records."),
    ],
};

/// Hardware counters.
pub const GPU_METRICS: Table = Table {
    name: "gpu_metrics",
    version: 1,
    doc: "GPU metric samples (device-wide, no process), sorted by (time, device, metric).",
    columns: &[
        CAPTURE_ID,
        opt("device_id", U32, "the export does not say which GPU", "Device."),
        col("time_ns", I64, "Time of the sample: it is the mean from here until the next sample."),
        col("metric", Name, "Metric, unit in brackets removed."),
        opt("unit", Name, "the export does not say", "Unit as the export writes it, such as `Throughput %`."),
        col("value", F64, "Value."),
    ],
};

/// Kernels of an export by name.
pub const KERNEL_SUMMARY: Table = Table {
    name: "kernel_summary",
    version: 2,
    doc: "How long the kernels of each name took, all processes together and switched out or not: what `nsys stats` says too.",
    columns: &[
        opt("name", Text, "its string is not in the export", "Full name."),
        opt("short_name", Text, "its string is not in the export", "What else it is called, as in `kernels`."),
        col("kernels", U64, "How many there are."),
        col("total_ns", I64, "Sum of their lengths."),
        col("mean_ns", F64, "Mean length."),
        col("median_ns", F64, "Median length; of an even number the mean of the two in the middle."),
        col("min_ns", I64, "Shortest."),
        col("max_ns", I64, "Longest."),
        opt("stddev_ns", F64, "a single kernel", "Standard deviation of the lengths, as of a sample."),
    ],
};
