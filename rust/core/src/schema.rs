//! Which tables exist, and what does each column mean?
//!
//! Every Arrow table is declared here once: name, version, columns with type, unit, meaning of null
//! and a sentence for people. Readers and rooms build their output through [`Builder`], which refuses
//! anything that is not declared; `docs/schemas.md` and the checks of `pyanalyze/tables/frames.py` come from
//! the same declarations. Column types never depend on the values.
//!
//! Conventions: `*_ns` columns are `Int64` nanoseconds on the session clock (the capture's own clock
//! until captures are joined, see `clock.rs`); `pid` is null where the export holds no process id.

use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    StringArray, UInt32Array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema};

use crate::error::{Error, Result};

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Small enumerations.
    U8,
    /// 16-bit unsigned.
    U16,
    /// Ids, grids, counts per launch.
    U32,
    /// Counts and 64-bit ids.
    U64,
    /// Small signed numbers.
    I32,
    /// Times and bytes.
    I64,
    /// Ratios and measured values.
    F64,
    /// Yes or no.
    Bool,
    /// Free text, one value a row.
    Text,
    /// Names that repeat: dictionary-encoded text.
    Name,
}

impl Kind {
    /// The Arrow type.
    #[must_use]
    pub fn data_type(self) -> DataType {
        match self {
            Self::U8 => DataType::UInt8,
            Self::U16 => DataType::UInt16,
            Self::U32 => DataType::UInt32,
            Self::U64 => DataType::UInt64,
            Self::I32 => DataType::Int32,
            Self::I64 => DataType::Int64,
            Self::F64 => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Text => DataType::Utf8,
            Self::Name => DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8)),
        }
    }
}

/// One column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Name, with its unit.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// What null means; `None` where null cannot occur.
    pub null: Option<&'static str>,
    /// One sentence for people.
    pub doc: &'static str,
}

/// One table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Name, as in `session.<name>`.
    pub name: &'static str,
    /// Raised when a column is renamed, removed or changes its meaning.
    pub version: u32,
    /// One sentence for people.
    pub doc: &'static str,
    /// Columns in order.
    pub columns: &'static [Column],
}

impl Table {
    /// `name@version`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The Arrow schema, with `pyanalyze.schema` in its metadata.
    #[must_use]
    pub fn schema(&self) -> Arc<Schema> {
        let fields: Vec<Field> =
            self.columns.iter().map(|c| Field::new(c.name, c.kind.data_type(), c.null.is_some())).collect();
        let metadata = [("pyanalyze.schema".to_owned(), self.id())].into();
        Arc::new(Schema::new_with_metadata(fields, metadata))
    }

    /// The table without rows.
    #[must_use]
    pub fn empty(&self) -> RecordBatch {
        RecordBatch::new_empty(self.schema())
    }

    fn column(&self, name: &str) -> Option<(usize, &'static Column)> {
        self.columns.iter().enumerate().find(|(_, c)| c.name == name)
    }
}

const fn col(name: &'static str, kind: Kind, doc: &'static str) -> Column {
    Column { name, kind, null: None, doc }
}

const fn opt(name: &'static str, kind: Kind, null: &'static str, doc: &'static str) -> Column {
    Column { name, kind, null: Some(null), doc }
}

use Kind::{Bool, Name, Text, F64, I32, I64, U16, U32, U64, U8};

const OLD: &str = "the nsys version did not export it";
const TOO_FEW: &str = "too few kernels, see reason";
const NO_PID: &str = "the export holds no process id";
const NO_GPU: &str = "the capture does not say";
const NO_SLICE: &str = "no complete slice";
const NO_RECORDS: &str = "no switch records";
const NO_CALL: &str =
    "API calls were not read (load(tables=...) with api_calls), or none has its correlation id";

const CAPTURE_ID: Column = col("capture", U32, "Index of the capture in the session.");
const PID: Column =
    opt("pid", U32, NO_PID, "Process id as the export has it (inside a container: the container's).");
const DEVICE_ID: Column = col("device_id", U32, "The GPU or MIG instance, see `devices`.");
const CONTEXT_ID: Column = opt("context_id", U32, OLD, "CUDA context id, unique per process only.");
const STREAM_ID: Column = opt("stream_id", U32, OLD, "CUDA stream id, unique per process and context only.");
const CORRELATION_ID: Column =
    opt("correlation_id", U32, OLD, "Links to the launching API call; unique per process only.");
const START: Column = col("start_ns", I64, "Start.");
const END: Column = col("end_ns", I64, "End.");
const BASIS: Column = col("basis", Name, "`observed`, `inferred`, `modelled` or `sampled`.");
const TENANT_ID: Column = col("tenant_id", U32, "The tenant, see `tenants`.");

/// The captures of a session.
pub const CAPTURE: Table = Table {
    name: "capture",
    version: 1,
    doc: "One row per capture: what wrote it, when, and how its clock maps to the session clock.",
    columns: &[
        CAPTURE_ID,
        col(
            "path",
            Text,
            "The file as it was named by the caller; the samples files where there is no capture.",
        ),
        col("size_bytes", I64, "Size of the file."),
        opt(
            "product",
            Text,
            "no metadata table",
            "Product that wrote the export; `samples only, no capture` where samples came alone.",
        ),
        opt("nsys_version", Text, "no metadata table", "Version of the exporter."),
        opt("schema_version", Text, "no metadata table", "Version of the export schema."),
        opt("driver_version", Text, NO_GPU, "NVIDIA driver version."),
        opt("cuda_driver_version", Text, NO_GPU, "CUDA version of the driver, such as 12.6."),
        opt("session_uuid", Text, NO_GPU, "PROFILING_SESSION_UUID: equal for exports of one report."),
        opt(
            "host_hash",
            Text,
            NO_GPU,
            "Hash of the host name: equal hosts have equal hashes, the name is not kept.",
        ),
        opt(
            "start_ns",
            I64,
            "nothing with a time was captured",
            "First time seen in any table that was read.",
        ),
        opt("end_ns", I64, "nothing with a time was captured", "Last time seen in any table that was read."),
        opt(
            "utc_origin_ns",
            I64,
            "no session start time",
            "UTC epoch time of the capture's zero, export shifts taken out.",
        ),
        opt(
            "utc_offset_s",
            I32,
            "no session start time",
            "Time zone of the target: local time minus UTC, in seconds.",
        ),
        opt("system_clock_origin_ns", I64, OLD, "OS clock of the target at the capture's zero."),
        col("export_shift_ns", I64, "What --ts-shift added to every time of the export."),
        col("export_normalized", Bool, "Times are UNIX epoch times (--ts-normalize)."),
        col("clock_offset_ns", I64, "Added to this capture's times to get session times."),
        opt(
            "clock_uncertainty_ns",
            I64,
            "cannot be placed on a common clock",
            "How wrong clock_offset_ns may be; 0 for the only capture.",
        ),
        col("synthetic", Bool, "Made by a generator, not by nsys on a GPU."),
    ],
};

/// What each capture could have held.
pub const SOURCES: Table = Table {
    name: "sources",
    version: 1,
    doc: "What was looked for in each capture and what was there: the difference between zero and could-not-look.",
    columns: &[
        CAPTURE_ID,
        col("source", Name, "`kernels`, `copies`, `graph_launches`, `switch_events`, `gpu_metrics`, `api_calls`, `profiler_overhead`, `thread_runs`, `nvtx`, `allocations`, `target_gpu`, `processes`, `diagnostics`, `cuda_devices` (with the SMs that each process sees)."),
        col("state", Name, "`present`: rows were read. `empty`: the table is there without rows. `absent`: no such table. `unread`: there, but not asked for."),
        col("rows", U64, "Rows in the file; of a table that was not read those that its row ids stand for, which are all there unless somebody deleted some."),
        opt("physical_table", Text, "no such table", "The table of the export it came from."),
        opt("how", Text, "nothing to do", "The switch that captures it."),
    ],
};

/// Named data-quality counters.
pub const QUALITY: Table = Table {
    name: "quality",
    version: 1,
    doc:
        "Odd data that was survived, by name; the names are listed in quality.rs and docs/troubleshooting.md.",
    columns: &[
        opt("capture", U32, "concerns the whole session", "Index of the capture."),
        col("name", Name, "Stable name of the counter."),
        col("severity", Name, "`info`, `notice`, `data-loss` or `error`."),
        col("source", Name, "`capture`: so it was recorded. `import`: found while reading."),
        col("count", U64, "How often."),
        col("detail", Text, "Where, and what it means for the answer."),
    ],
};

/// The configured side.
pub const CONFIGURED: Table = Table {
    name: "configured",
    version: 1,
    doc: "What environment, command lines, daemons or context files say was intended. Allow-listed keys only.",
    columns: &[
        opt("capture", U32, "from a context file", "Index of the capture."),
        col("source", Name, "`environment`, `command-line`, `process-list`, `device-name`, `nvml` or the context reader's name."),
        opt("pid", U32, "concerns the device or the whole capture", "Process id."),
        opt("device_id", U32, "concerns no single device", "Device."),
        col("key", Name, "Variable or property, such as CUDA_MPS_ACTIVE_THREAD_PERCENTAGE or mps_daemon."),
        col("value", Text, "Its value."),
    ],
};

/// GPUs and MIG instances.
pub const DEVICES: Table = Table {
    name: "devices",
    version: 1,
    doc: "One row per GPU, or per MIG instance. Limits are what the capture says; gaps are filled from tables in `device.rs` only where `limits_basis` says so.",
    columns: &[
        DEVICE_ID,
        CAPTURE_ID,
        opt("gpu_id", I64, "no TARGET_INFO_GPU", "TARGET_INFO_GPU.id; not the CUDA ordinal."),
        opt("cuda_ordinal", I32, "not recorded", "CUDA ordinal without CUDA_VISIBLE_DEVICES."),
        opt("name", Text, NO_GPU, "Product name."),
        opt("uuid", Text, NO_GPU, "`GPU-...` or `MIG-...`."),
        opt("gpu_uuid", Text, NO_GPU, "The board: equal to uuid unless this is a MIG instance."),
        opt("bus_location", Text, NO_GPU, "PCI address."),
        opt("chip", Text, NO_GPU, "Chip name, such as AD102."),
        opt("mig_profile", Text, "not a MIG instance", "Such as 2g.12gb or 1c.3g.20gb."),
        opt("vgpu_profile", Text, "no vGPU name", "Such as T4-4Q: the guest sees a virtual GPU."),
        opt("sm_count", U32, NO_GPU, "Streaming multiprocessors."),
        opt("compute_major", U32, NO_GPU, "Compute capability, major."),
        opt("compute_minor", U32, NO_GPU, "Compute capability, minor."),
        opt("clock_hz", I64, NO_GPU, "Maximum SM clock."),
        opt("memory_bytes", I64, NO_GPU, "Device memory."),
        opt("memory_bandwidth_bytes_per_s", I64, NO_GPU, "Peak DRAM bandwidth."),
        opt("l2_bytes", I64, NO_GPU, "L2 cache."),
        opt("async_engines", U32, NO_GPU, "Copy engines."),
        opt("max_warps_per_sm", U32, NO_GPU, "Resident warps."),
        opt("max_blocks_per_sm", U32, NO_GPU, "Resident blocks."),
        opt("max_threads_per_block", U32, NO_GPU, "Threads in one block."),
        opt("registers_per_sm", U32, NO_GPU, "32-bit registers."),
        opt("registers_per_block", U32, NO_GPU, "32-bit registers."),
        opt("shared_per_sm_bytes", I64, NO_GPU, "Shared memory of an SM."),
        opt("shared_per_block_bytes", I64, NO_GPU, "Without opt-in."),
        opt("shared_per_block_optin_bytes", I64, NO_GPU, "With opt-in."),
        col("limits_basis", Name, "`capture`: all from the file. `table`: some from device.rs. `unknown`: some known to neither."),
    ],
};

/// Processes.
pub const PROCESSES: Table = Table {
    name: "processes",
    version: 1,
    doc: "Every process that the capture names.",
    columns: &[
        CAPTURE_ID,
        PID,
        opt("global_pid", U64, NO_PID, "nsys global id: host, virtual machine and pid."),
        opt("name", Text, NO_GPU, "Process name. Hostile text."),
        col("traced", Bool, "CUDA activity of this process was recorded."),
    ],
};

/// CUDA contexts.
pub const CONTEXTS: Table = Table {
    name: "contexts",
    version: 1,
    doc: "CUDA contexts of traced processes. Keyed by (capture, pid, context_id).",
    columns: &[
        CAPTURE_ID,
        PID,
        col("context_id", U32, "CUDA context id, unique per process only."),
        opt("device_id", U32, NO_GPU, "Device."),
        opt("null_stream_id", U32, NO_GPU, "Legacy default stream."),
        opt("parent_context_id", U32, "not a green context, or not exported", "Context it was cut from."),
        opt("is_green", Bool, OLD, "A green context."),
        opt("sm_count", U32, OLD, "SMs that the context may use."),
        opt("tpc_mask", Text, OLD, "TPCs that the context may use, hexadecimal."),
    ],
};

/// Kernels.
pub const KERNELS: Table = Table {
    name: "kernels",
    version: 1,
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
        opt("short_name", Name, "no name was recorded", "Name without parameters. Hostile text."),
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

/// Copies and sets.
pub const MEMOPS: Table = Table {
    name: "memops",
    version: 1,
    doc: "Copies and sets, sorted by start.",
    columns: &[
        CAPTURE_ID,
        PID,
        DEVICE_ID,
        CONTEXT_ID,
        STREAM_ID,
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

/// NVTX ranges and marks.
pub const NVTX: Table = Table {
    name: "nvtx",
    version: 1,
    doc: "NVTX push-pop and start-end ranges and marks, sorted by start.",
    columns: &[
        CAPTURE_ID,
        PID,
        opt("tid", U32, NO_PID, "Thread id."),
        START,
        opt("end_ns", I64, "a mark, or a range that never ended", "End."),
        col("kind", Name, "`mark`, `push-pop` or `start-end`."),
        opt("text", Name, "no text", "Range name. Hostile text."),
        opt("domain_id", U64, OLD, "NVTX domain."),
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
        col("time_ns", I64, "Time of the sample."),
        col("metric", Name, "Metric, unit in brackets removed."),
        opt("unit", Name, "the export does not say", "Unit as the export writes it, such as `Throughput %`."),
        col("value", F64, "Value."),
    ],
};

/// NVML, nvidia-smi and DCGM samples.
pub const NVML_SAMPLES: Table = Table {
    name: "nvml_samples",
    version: 1,
    doc: "Samples taken beside a capture, one metric a row. A utilisation says in how much of the `interval_ns` before its time something ran, not how full the GPU was.",
    columns: &[
        col("source", Name, "The file."),
        col("format", Name, "Reader, such as `nvidia-smi-query-gpu`."),
        opt("time_utc_ns", I64, "the file has no times, or only local ones whose zone is not known", "UTC epoch time."),
        opt("time_local_ns", I64, "the file has no local times", "Local wall-clock time as if it were UTC."),
        opt("time_ns", I64, "cannot be placed on the session clock", "Session time."),
        opt("gpu_index", U32, "not in the file", "nvidia-smi index."),
        opt("gpu_uuid", Text, "not in the file", "`GPU-...` or `MIG-...`."),
        opt("gpu_name", Text, "not in the file", "Product name."),
        opt("device_id", U32, "matches no device of the session", "Device."),
        opt("pid", U32, "a device-wide sample", "Host process id."),
        opt("process_name", Text, "a device-wide sample, or not in the file", "Process name. Hostile text."),
        opt("process_type", Name, "not in the file", "C, G, C+G or M+C."),
        opt("mig_gi", U32, "the whole GPU, or not in the file", "GPU instance id (NVML's) that the row is about. Compute instances of one GPU instance share its memory: never add theirs up."),
        opt("mig_ci", U32, "not a compute instance, or not in the file", "Compute instance id that the row is about."),
        opt("entity", Name, "the GPU is named otherwise", "Part of a GPU in the tool's own words, such as `GPU-I 3`: DCGM's own numbers, which are not NVML's."),
        opt("pods", Text, "not in the file", "Kubernetes pods (`namespace/pod/container`, separated by blanks) to which an exporter ascribes the value. It is the whole device's all the same."),
        opt("interval_ns", I64, "a momentary value, the first of its kind, or no times in the file", "Length of the time before the sample over which the value is an average: since the sample before; for the driver's utilisation between 1/6 s and 1 s, as it samples by itself."),
        col("metric", Name, "Canonical name with its unit, such as `gpu_utilization_pct`, `memory_used_bytes`."),
        opt("value", F64, "not a number, or not available: see text", "Value in the unit of the metric's name."),
        opt("text", Text, "the value is a number", "Value as text; `[N/A]` and the like mean: could not look."),
    ],
};

/// Processes of the host.
pub const IDENTITIES: Table = Table {
    name: "identities",
    version: 1,
    doc: "What was written down of processes while they ran, by `record` or another who could look: ties a pid of a container to one of the host.",
    columns: &[
        col("host_pid", U32, "Process id on the host."),
        col("pid", U32, "Its pid in its own namespace."),
    ],
};

/// Who held the GPU.
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
    doc: "Turns on the compute engine where the verdict is time-slicing and no switch records were captured: a kernel starts and ends only while its context is resident, and between such moments slices are dealt in turn. Of a device's only traced tenant: when its kernels were stretched, and paused, by as much as others' turns take; nothing where that cannot be told. What tenants that were not traced held is in nobody's turns. Sorted by start.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        START,
        END,
        col("earliest_start_ns", I64, "The turn began after this: the last sign of whoever had the engine before."),
        col("latest_start_ns", I64, "And before this. From here to earliest_end_ns the tenant held the engine, if the tenants take turns; a turn with earliest_end_ns before it is one of which no kernel tells."),
        col("earliest_end_ns", I64, "It ended after this: its tenant's last sign."),
        col("latest_end_ns", I64, "And before this."),
        opt("time_slice_ns", I64, "kernels agree on none", "Length of a slice that agrees best with all kernels of the device."),
        BASIS,
    ],
};

/// The ledger of slices, per tenant.
pub const LEDGER: Table = Table {
    name: "ledger",
    version: 1,
    doc:
        "What the slices of each tenant add up to. On devices without observed slices, of the inferred ones. Times and shares are of the window that `engine` says; slices and their lengths are whole.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        col("slices", U64, "Complete slices; those of contexts that were only created are left out."),
        col(
            "cut_slices",
            U64,
            "Slices that the recording or lost records cut: in resident_ns, not among the lengths.",
        ),
        col("resident_ns", I64, "In the window, its contexts held the engine, creation included; all of it where no activity was recorded."),
        opt("resident_share", F64, "nobody held the engine", "Of the time in the window in which anybody did; where only one tenant was traced and nothing recorded, of the window."),
        opt("idle_ns", I64, "its kernels were not traced", "In the window, resident with none of its kernels in flight."),
        opt("idle_share", F64, "its kernels were not traced", "Of resident_ns."),
        opt("min_slice_ns", I64, NO_SLICE, "Shortest."),
        opt("p10_slice_ns", I64, NO_SLICE, "A tenth is not longer."),
        opt("median_slice_ns", I64, NO_SLICE, "Median."),
        opt("p90_slice_ns", I64, NO_SLICE, "Nine tenths are not longer."),
        opt("max_slice_ns", I64, NO_SLICE, "Longest."),
        opt(
            "expired",
            U64,
            "no time slice could be estimated",
            "Slices of at least 0.8 of the time slice that another tenant followed.",
        ),
        opt(
            "yielded",
            U64,
            "no time slice could be estimated",
            "Shorter ones that another tenant followed: it had no more work.",
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
pub const ENGINE: Table = Table {
    name: "engine",
    version: 1,
    doc: "The compute engine of each device that anybody held: time, switches, cost, time slice, fairness.",
    columns: &[
        DEVICE_ID,
        opt("start_ns", I64, "no activity recorded", "First activity of any tenant."),
        opt("end_ns", I64, "no activity recorded", "Last activity of any tenant."),
        opt("held_ns", I64, "no activity recorded", "In this window, somebody held it; all of it where only one tenant was traced and nothing recorded."),
        opt("idle_ns", I64, NO_RECORDS, "In this window, nobody held it and it was not being handed over."),
        opt("switches", U64, NO_RECORDS, "Back to back from one context to another that both had work."),
        opt("creations", U64, NO_RECORDS, "To or from a context that ran nothing yet."),
        opt("unclear", U64, NO_RECORDS, "Changes around which records are missing."),
        opt("cost_kind", Name, "no switch", "`gap`: SAVE_END to the next RESTORE_START; `full`: acknowledgement to CONTEXT_START, where every switch has both."),
        opt("median_cost_ns", I64, "no switch", "Median cost of a switch."),
        opt("total_cost_ns", I64, "no switch", "Sum of the costs."),
        opt("overhead_share", F64, "no switch", "Of the window."),
        opt("median_save_ns", I64, "no acknowledgement record", "Acknowledgement to SAVE_END."),
        opt("median_restore_ns", I64, "no CONTEXT_START record", "RESTORE_START to CONTEXT_START."),
        opt("time_slice_ns", I64, "too few slices agree", "Length at which most of the time in slices that another tenant ended agrees; for inferred slices the fitted one."),
        opt("policy", Name, "no time slice could be estimated", "`short` (below 0.9 ms), `default` (to 2.7 ms), `medium` (to 20 ms), `long`: as of nvidia-smi compute-policy, for which NVIDIA publishes no lengths."),
        opt("jain", F64, "nobody held the engine, or only one tenant was seen", "Jain's index of residency over tenants with two slices or a hundredth of it: 1 is equal, 1/n is one for all."),
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
        col("kind", Name, "`switch`: back to back, counted as cost. `idle`: the engine stood idle in between, not a cost. `creation`: to or from a context that ran no kernel yet. `same-context`: the same context again. `lost-records`: records are missing in between."),
    ],
};

/// Tenants.
pub const TENANTS: Table = Table {
    name: "tenants",
    version: 1,
    doc: "Who is who: one row per process (or group that cannot be told apart) and device.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        opt("capture", U32, "seen in samples only", "Capture that shows it."),
        PID,
        opt("host_pid", U32, "no switch record or sample named it", "Process id on the host."),
        col("name", Text, "Process name, or a description such as `other users`. Hostile text."),
        opt("container", Text, "not known", "Container."),
        opt("pod", Text, "not known", "Kubernetes pod."),
        col("contexts", Text, "CUDA context ids, comma-separated."),
        col("hw_contexts", Text, "Hardware contexts, comma-separated."),
        col(
            "traced",
            Bool,
            "nsys recorded its CUDA activity; otherwise it stands in switch records or samples only.",
        ),
        opt(
            "match_rate",
            F64,
            "no kernels or no residency to match",
            "Share of its kernel starts that fall inside its residency.",
        ),
        BASIS,
        opt(
            "served_by",
            U32,
            "it has a context of its own, or which one it uses is not known",
            "Tenant whose context its work goes through: the MPS server.",
        ),
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
        opt(
            "resident_ns",
            I64,
            "no switch records",
            "Its contexts held the compute engine, before the first activity and after the last as well; `ledger` has it of the window.",
        ),
        opt(
            "charged_ns",
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
        opt("median_slice_ns", I64, "no complete slice", "Median length of complete slices."),
        opt("max_slice_ns", I64, "no complete slice", "Longest complete slice."),
        BASIS,
    ],
};

/// Per-kernel charged time.
pub const CHARGED: Table = Table {
    name: "charged",
    version: 1,
    doc: "What of each kernel's interval its context held the engine, sorted as `kernels`. Graph launches are not in it.",
    columns: &[
        CAPTURE_ID,
        PID,
        DEVICE_ID,
        CORRELATION_ID,
        opt("tenant_id", U32, "no tenant could be named", "Tenant."),
        START,
        END,
        col("charged_ns", I64, "Part of the interval inside the tenant's residency; the whole interval where there are no switch records."),
        col("switched_out_ns", I64, "The rest: end_ns - start_ns - charged_ns."),
        BASIS,
        opt("call_start_ns", I64, NO_CALL, "Begin of the call that launched it. From here to end_ns, in_call_ns + queued_own_ns + queued_other_ns + charged_ns + switched_out_ns account for every nanosecond."),
        opt("in_call_ns", I64, NO_CALL, "Until that call returned, at most until the kernel started."),
        opt("queued_own_ns", I64, NO_CALL, "Then behind earlier work of its own stream, or behind its own tenant's work while that held the engine."),
        opt("queued_other_ns", I64, NO_CALL, "Then ready, but not on the engine: another tenant's turn, or the switch. Where several tenants may be on the engine at once, or residency is not known, while work of others was in flight."),
        opt("switching_ns", I64, "no switch records", "Of queued_other_ns and switched_out_ns, the part in which the engine was being handed over (SAVE_END to RESTORE_START)."),
    ],
};

/// Pairs of tenants.
pub const OVERLAPS: Table = Table {
    name: "overlaps",
    version: 1,
    doc: "For every pair of tenants on a device: how long both were busy, and what their short kernels did.",
    columns: &[
        DEVICE_ID,
        col("tenant_a", U32, "Tenant, the smaller id."),
        col("tenant_b", U32, "Tenant, the larger id."),
        col("co_window_ns", I64, "Both between their first and last activity."),
        opt("co_busy_ns", I64, "one of them was not traced", "Both had kernels or graphs in flight, by their recorded intervals."),
        opt("co_resident_ns", I64, "one of them has no residency", "Both held the engine at once: not time-sliced."),
        opt("short_kernels", U64, "one of them was not traced", "Kernels shorter than a tenth of a time slice that started while the other had work in flight."),
        opt("short_overlapping", U64, "one of them was not traced", "Those of them that overlap a kernel of the other, also a long one."),
        opt("short_short_overlapping", U64, "one of them was not traced", "Those of them that overlap a short kernel of the other: shared SMs or shared device, never time-slicing."),
        opt("short_short_expected", F64, "one of them was not traced", "How many of them would do so by chance if neither waited for the other: near zero means that their short kernels rarely could have met."),
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
        col("name", Name, "Stable name, listed in facts.rs."),
        opt("value", F64, "could not look: see detail", "Value."),
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

/// Theoretical occupancy per launch configuration.
pub const KERNEL_OCCUPANCY: Table = Table {
    name: "kernel_occupancy",
    version: 1,
    doc: "Theoretical occupancy of every distinct launch configuration, with its limiting resources.",
    columns: &[
        DEVICE_ID,
        opt("tenant_id", U32, "no tenant could be named", "Tenant."),
        opt("name", Name, "no name was recorded", "Kernel. Hostile text."),
        opt("short_name", Name, "no name was recorded", "Kernel without parameters. Hostile text."),
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
            "All resources that tie: `warps`, `registers`, `shared`, `blocks`, `barriers`, `clusters`.",
        ),
        opt(
            "waves",
            F64,
            "the device or the launch is not known well enough",
            "Grid over what the whole device holds at once: below 1 leaves SMs empty.",
        ),
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
            "No fewer than this: one block of each of its kernels in flight while it held the engine.",
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
    doc: "Modelled warps per SM and time bin. No supported interface measures this. Which SM is which rests on an order of preference among equally full SMs that was measured on Pascal and Turing and is assumed for others; sorted by warps the SMs of a bin do not depend on it.",
    columns: &[
        DEVICE_ID,
        START,
        END,
        col("sm", U32, "Number of the SM, from 0; of a MIG instance's own SMs."),
        col("warps", F64, "Mean resident warps."),
        col("active", F64, "Mean part of the time with at least one warp."),
        col("model", Name, "`replay`: blocks placed as the block scheduler would. `even`: the warps of each tenant spread evenly over the SMs it may use."),
        BASIS,
    ],
};

const NOT_REPLAYED: &str = "its tenant never held the engine between its start and its end";

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
        opt("caveat", Name, "none", "`clusters`: blocks were placed one by one, the hardware places clusters inside a GPC. `persistent`: the grid is one block per SM or exactly what the device holds, as in programs whose blocks fetch work and end when there is none. `uneven`: equal blocks contradict the start of a later kernel, so its blocks were thinned out. `not resident`."),
        BASIS,
    ],
};

/// The recorded programs under other sharing modes.
pub const REPLAY: Table = Table {
    name: "replay",
    version: 1,
    doc: "What each tenant took, as recorded, and would have taken with the same launches in other layouts: modelled, not a promise. Neighbours cost SM slots, turns, copy engines and the stated contention, nothing else.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        col("layout", Name, "Name of the layout; `recorded`: what the capture shows."),
        col("elapsed_ns", I64, "First launch call (without API calls: first start) to last end."),
        opt("latency_ns", I64, "no API calls were loaded", "Launch call to end, summed over kernels and whole graphs."),
        opt("latency_p99_ns", I64, "no API calls were loaded", "99th percentile of the same."),
        col("operations", U64, "Kernels, graphs and copies that ended."),
        opt("contention", F64, "a replayed layout, or no kernels of known time alone ran in company", "Part by which kernels of different tenants took longer beside each other than blocks and SMs explain: memory, caches, issue slots."),
        BASIS,
        col("detail", Text, "What the program was made from."),
    ],
};

/// Lanes for a timeline chart.
pub const TIMELINE: Table = Table {
    name: "timeline",
    version: 1,
    doc: "Intervals merged to what a picture can show: a bounded number of marks per lane.",
    columns: &[
        DEVICE_ID,
        opt("tenant_id", U32, "no tenant could be named", "Tenant."),
        col("lane", Name, "`kernels`, `graphs`, `copies`, `residency`, or `inferred residency`."),
        START,
        END,
        col(
            "busy_ns",
            I64,
            "Busy time inside the mark; less than its length where short intervals were merged.",
        ),
        col("events", U64, "Intervals merged into the mark."),
        opt("label", Name, "several different names", "Name, where the mark is one kernel. Hostile text."),
    ],
};

/// Latency over time, for a chart.
pub const LATENCIES: Table = Table {
    name: "latencies",
    version: 1,
    doc: "Kernels of each tenant in equal bins of time: how long they took from launch to end, and how much they were at work. What lies outside of the window counts to the outermost bins.",
    columns: &[
        DEVICE_ID,
        TENANT_ID,
        START,
        END,
        col("kernels", U64, "Kernels whose launch call began in the bin; where no call is known, that started in it."),
        opt("p50_ns", I64, "no kernel was launched in the bin", "Median of the times from begin of launch call to end of kernel."),
        opt("p95_ns", I64, "no kernel was launched in the bin", "95th percentile of the same, the nearest value."),
        col("busy_ns", I64, "Sum of the lengths of kernels that started in the bin; more than the bin where kernels overlap."),
    ],
};

/// Kernels of an export by name.
pub const KERNEL_SUMMARY: Table = Table {
    name: "kernel_summary",
    version: 1,
    doc: "How long the kernels of each name took, all processes together and switched out or not: what `nsys stats` says too.",
    columns: &[
        opt("name", Text, "its string is not in the export", "Full name."),
        col("kernels", U64, "How many there are."),
        col("total_ns", I64, "Sum of their lengths."),
        col("mean_ns", F64, "Mean length."),
        col("median_ns", F64, "Median length; of an even number the mean of the two in the middle."),
        col("min_ns", I64, "Shortest."),
        col("max_ns", I64, "Longest."),
        opt("stddev_ns", F64, "a single kernel", "Standard deviation of the lengths, as of a sample."),
    ],
};

const AGAINST_RUN: Column = col(
    "against",
    Name,
    "`baseline`: recorded alone. `replay`: this run played again without what others took.",
);
const BASELINE_ID: Column = opt("baseline", U32, "not against a baseline", "Index of the baseline.");

/// Kernels in company against alone.
pub const SLOWDOWNS: Table = Table {
    name: "slowdowns",
    version: 1,
    doc: "The same kernel (name, grid, block, dynamic shared memory) in company against alone, on the time in which its context ran. First launches, those that the profiler held up, and kernels that only waited for others are left out and counted.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        col("against", Name, "`alone`: its like in the same capture with nobody else at work. `baseline`: in a recording of the tenant alone."),
        BASELINE_ID,
        opt("name", Name, "no name was recorded", "Demangled name, or the graph. Hostile text."),
        opt("grid_x", U32, OLD, "Blocks."),
        opt("grid_y", U32, OLD, "Blocks."),
        opt("grid_z", U32, OLD, "Blocks."),
        opt("block_x", U32, OLD, "Threads."),
        opt("block_y", U32, OLD, "Threads."),
        opt("block_z", U32, OLD, "Threads."),
        opt("dynamic_shared_bytes", I64, OLD, "Dynamic shared memory of a block."),
        col("n", U64, "Kernels in company (all of the tenant's, against a baseline)."),
        col("n_alone", U64, "Kernels alone."),
        col("excluded", U64, "On either side: first launches, launches that the profiler or the loading of code held up, kernels that only waited for others, and kernels that the window of the session cuts."),
        col("excluded_overhead", U64, "Of these, held up by the profiler or the loading of code (`profiler_overhead`)."),
        opt("median_ns", I64, TOO_FEW, "Median time at work in company."),
        opt("alone_median_ns", I64, TOO_FEW, "Median time at work alone."),
        opt("median_ratio", F64, TOO_FEW, "median_ns over alone_median_ns."),
        opt("ratio", F64, TOO_FEW, "Ratio of the geometric means: what the interval is of."),
        opt("ratio_low", F64, TOO_FEW, "Lower end of its 95 % interval (2000 resamples of blocks of time)."),
        opt("ratio_high", F64, TOO_FEW, "Upper end of it."),
        opt("effect", F64, TOO_FEW, "Cliff's delta: 0 no difference, 1 every kernel in company is longer than every one alone."),
        col("total_ns", I64, "Time at work of the kernels in company."),
        opt("reason", Text, "nothing is missing", "Why a ratio or its interval is missing."),
        BASIS,
        opt("p5_ns", I64, TOO_FEW, "Time at work in company that 5 % of the kernels do not exceed."),
        opt("p25_ns", I64, TOO_FEW, "That 25 % do not exceed."),
        opt("p75_ns", I64, TOO_FEW, "That 75 % do not exceed."),
        opt("p95_ns", I64, TOO_FEW, "That 95 % do not exceed."),
        opt("alone_p5_ns", I64, TOO_FEW, "Time at work alone that 5 % of the kernels do not exceed."),
        opt("alone_p25_ns", I64, TOO_FEW, "That 25 % do not exceed."),
        opt("alone_p75_ns", I64, TOO_FEW, "That 75 % do not exceed."),
        opt("alone_p95_ns", I64, TOO_FEW, "That 95 % do not exceed."),
    ],
};

/// Slowdowns of whole tenants.
pub const TENANT_SLOWDOWNS: Table = Table {
    name: "tenant_slowdowns",
    version: 1,
    doc: "Each tenant's work beside the same work alone: shared over alone.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        col("measure", Name, "`elapsed`: first launch to last end. `latency`: sum of end minus launch over kernels; `latency_p50`, `_p95`, `_p99`: its percentiles. `resident`: sum of time at work. `none`: no comparison, see reason."),
        opt("work", Name, "of its kernels", "Units of work: the name of NVTX ranges or of given ones, from their begin to the end of the last operation launched inside. Hostile text."),
        AGAINST_RUN,
        BASELINE_ID,
        opt("value", F64, "see reason", "Shared over alone."),
        opt("low", F64, "too few operations, or a percentile", "Lower end of the 95 % interval."),
        opt("high", F64, "too few operations, or a percentile", "Upper end of the 95 % interval."),
        col("n", U64, "Kernels and graph launches compared, or units of work."),
        col("blocks", U64, "Blocks of time that were drawn from."),
        opt("excluded", U64, "of units of work", "Operations left out of latencies because the profiler or the loading of code held their launch up, or because the window of the session cuts them or begins after their launch; those that it cuts are left out of resident as well."),
        opt("shared_ns", I64, "see reason", "In company: the sum, or the percentile."),
        opt("alone_ns", I64, "see reason", "Alone: the sum, or the percentile."),
        opt("reason", Text, "nothing to add", "Why there is no value, or what it rests on."),
        BASIS,
    ],
};

/// Where added latency went.
pub const CAUSES: Table = Table {
    name: "causes",
    version: 1,
    doc: "Where the latency of a tenant's kernels went, in company and alone; the parts of each sum to its latency.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        AGAINST_RUN,
        BASELINE_ID,
        col("cause", Name, "`launch`: the launch call. `queue_own`: behind its own stream and kernels. `queue_other`: its context ran, others had the SMs. `not_resident`: its context did not hold the engine. `switch`: the switches. `execution`: at work."),
        col("shared_ns", I64, "In company."),
        col("alone_ns", I64, "Alone."),
        col("added_ns", I64, "The difference."),
        opt("share", F64, "nothing was added", "Of all that was added; may be negative."),
        col("residency_known", Bool, "Switch records say when its context ran; otherwise time switched out hides in queue_other and execution."),
        BASIS,
    ],
};

/// Who slowed whom.
pub const AGGRESSORS: Table = Table {
    name: "aggressors",
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

/// Which baseline is whose.
pub const BASELINE_MATCHES: Table = Table {
    name: "baseline_matches",
    version: 1,
    doc: "How alike each tenant and each recording alone are, and which was used.",
    columns: &[
        TENANT_ID,
        DEVICE_ID,
        col("baseline", U32, "Index of the baseline."),
        col("baseline_tenant_id", U32, "Tenant in the baseline."),
        col("likeness", F64, "Part of the time at work, of the one and of the other, in kernels that both have: the smaller of the two."),
        col("same_name", Bool, "The processes have one name."),
        col("named", Bool, "The caller said whose it is."),
        col("used", Bool, "The comparison was made with it."),
        opt("aligned", Bool, "not used", "Both did the same work, operation by operation."),
    ],
};

/// Every table, in the order of the documentation.
pub const TABLES: &[&Table] = &[
    &CAPTURE,
    &SOURCES,
    &QUALITY,
    &CONFIGURED,
    &DEVICES,
    &PROCESSES,
    &CONTEXTS,
    &KERNELS,
    &MEMOPS,
    &GRAPH_LAUNCHES,
    &API_CALLS,
    &PROFILER_OVERHEAD,
    &THREAD_RUNS,
    &NVTX,
    &ALLOCATIONS,
    &SWITCH_EVENTS,
    &GPU_METRICS,
    &NVML_SAMPLES,
    &IDENTITIES,
    &RESIDENCY,
    &INFERRED_RESIDENCY,
    &LEDGER,
    &ENGINE,
    &SWITCHES,
    &TENANTS,
    &TENANT_USAGE,
    &CHARGED,
    &OVERLAPS,
    &FACTS,
    &FACT_EXAMPLES,
    &KERNEL_OCCUPANCY,
    &SM_OCCUPANCY,
    &SM_WARPS,
    &KERNEL_PLACEMENT,
    &REPLAY,
    &TIMELINE,
    &LATENCIES,
    &KERNEL_SUMMARY,
    &SLOWDOWNS,
    &TENANT_SLOWDOWNS,
    &CAUSES,
    &AGGRESSORS,
    &BASELINE_MATCHES,
];

/// The table of that name.
#[must_use]
pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().copied().find(|t| t.name == name)
}

/// Builds one batch of a declared table, column by column, in any order.
#[derive(Debug)]
pub struct Builder {
    table: &'static Table,
    columns: Vec<Option<ArrayRef>>,
    error: Option<Error>,
}

impl Builder {
    /// Starts an empty batch of `table`.
    #[must_use]
    pub fn new(table: &'static Table) -> Self {
        Self { table, columns: vec![None; table.columns.len()], error: None }
    }

    /// Sets a column. A wrong name or type is reported by [`Builder::finish`].
    #[must_use]
    pub fn put(mut self, name: &str, array: impl Array + 'static) -> Self {
        let outcome = match self.table.column(name) {
            None => Err(format!("has no column {name}")),
            Some((_, column)) if column.kind.data_type() != *array.data_type() => {
                Err(format!("column {name} has type {}", array.data_type()))
            }
            Some((_, column)) if column.null.is_none() && array.null_count() > 0 => {
                Err(format!("column {name} has nulls"))
            }
            Some((position, _)) => self
                .columns
                .get_mut(position)
                .map(|slot| *slot = Some(Arc::new(array)))
                .ok_or_else(|| format!("column {name} is out of range")),
        };
        if let (Err(detail), None) = (outcome, &self.error) {
            self.error = Some(Error::schema(&self.table.id(), detail));
        }
        self
    }

    /// Sets a dictionary-encoded column from text.
    #[must_use]
    pub fn put_names<'a>(self, name: &str, values: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        self.put(name, names(values))
    }

    /// Sets a dictionary column of a handful of fixed words: many rows, little to compare.
    #[must_use]
    pub fn put_words(self, name: &str, values: impl IntoIterator<Item = &'static str>) -> Self {
        let mut words = Words::default();
        words.extend(values);
        self.put_column_of_words(name, words)
    }

    /// The same, of words that were gathered before.
    #[must_use]
    pub fn put_column_of_words(self, name: &str, column: Words) -> Self {
        let words = Arc::new(StringArray::from(column.words));
        match DictionaryArray::try_new(UInt32Array::from(column.keys), words) {
            Ok(array) => self.put(name, array),
            Err(error) => Self {
                error: self.error.or(Some(Error::schema(&self.table.id(), error.to_string()))),
                ..self
            },
        }
    }

    /// The finished batch; columns that were not set become all null where they may.
    ///
    /// # Errors
    /// [`Error::Schema`] for a wrong name, type, length, or a missing column that cannot be null.
    pub fn finish(self, rows: usize) -> Result<RecordBatch> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let id = self.table.id();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (slot, column) in self.columns.into_iter().zip(self.table.columns) {
            let array = match slot {
                Some(array) => array,
                None if column.null.is_some() || rows == 0 => nothing(column.kind, rows),
                None => return Err(Error::schema(&id, format!("column {} was not set", column.name))),
            };
            if array.len() != rows {
                let detail = format!("column {} has {} rows instead of {rows}", column.name, array.len());
                return Err(Error::schema(&id, detail));
            }
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.table.schema(), arrays, &options)
            .map_err(|e| Error::schema(&id, e.to_string()))
    }
}

/// A column without any value. Its numbers are zeroes of the system's, which take no memory until somebody writes to
/// them; Arrow's own column of nulls is written to as it is made.
fn nothing(kind: Kind, rows: usize) -> ArrayRef {
    fn none<T: ArrowPrimitiveType>(zeroes: Vec<T::Native>) -> ArrayRef {
        let nulls = NullBuffer::new_null(zeroes.len());
        Arc::new(PrimitiveArray::<T>::new(zeroes.into(), Some(nulls)))
    }
    match kind {
        Kind::U8 => none::<UInt8Type>(vec![0; rows]),
        Kind::U16 => none::<UInt16Type>(vec![0; rows]),
        Kind::U32 => none::<UInt32Type>(vec![0; rows]),
        Kind::U64 => none::<UInt64Type>(vec![0; rows]),
        Kind::I32 => none::<Int32Type>(vec![0; rows]),
        Kind::I64 => none::<Int64Type>(vec![0; rows]),
        other => arrow_array::new_null_array(&other.data_type(), rows),
    }
}

/// A dictionary column of a handful of fixed words.
#[derive(Debug, Default)]
pub struct Words {
    words: Vec<&'static str>,
    keys: Vec<u32>,
}

impl Words {
    /// With room for so many rows.
    #[must_use]
    pub fn of(rows: usize) -> Self {
        Self { words: Vec::new(), keys: Vec::with_capacity(rows) }
    }
}

impl Extend<&'static str> for Words {
    fn extend<I: IntoIterator<Item = &'static str>>(&mut self, values: I) {
        let words = &mut self.words;
        self.keys.extend(values.into_iter().map(|value| {
            let same = |word: &&'static str| std::ptr::eq(*word, value) || *word == value;
            let known = words.iter().position(same).unwrap_or_else(|| {
                words.push(value);
                words.len() - 1
            });
            // A handful, as said.
            known as u32
        }));
    }
}

/// A dictionary-encoded column from text.
#[must_use]
pub fn names<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> DictionaryArray<UInt32Type> {
    let mut builder = StringDictionaryBuilder::<UInt32Type>::new();
    for value in values {
        builder.append_option(value);
    }
    builder.finish()
}

/// Typed access to the columns of a batch of a declared table.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    table: &'static Table,
    batch: &'a RecordBatch,
}

impl<'a> Columns<'a> {
    /// Wraps `batch` as a batch of `table`.
    #[must_use]
    pub fn new(table: &'static Table, batch: &'a RecordBatch) -> Self {
        Self { table, batch }
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    fn get(&self, name: &str) -> Result<&'a ArrayRef> {
        self.batch
            .column_by_name(name)
            .ok_or_else(|| Error::schema(&self.table.id(), format!("column {name} is missing")))
    }

    fn primitive<T: arrow_array::ArrowPrimitiveType>(&self, name: &str) -> Result<&'a PrimitiveArray<T>> {
        let array = self.get(name)?;
        array.as_primitive_opt::<T>().ok_or_else(|| {
            Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()))
        })
    }

    /// A `u8` column. # Errors: missing column or other type; so for all of these.
    pub fn u8(&self, name: &str) -> Result<&'a PrimitiveArray<UInt8Type>> {
        self.primitive(name)
    }
    /// A `u16` column.
    pub fn u16(&self, name: &str) -> Result<&'a PrimitiveArray<UInt16Type>> {
        self.primitive(name)
    }
    /// A `u32` column.
    pub fn u32(&self, name: &str) -> Result<&'a PrimitiveArray<UInt32Type>> {
        self.primitive(name)
    }
    /// A `u64` column.
    pub fn u64(&self, name: &str) -> Result<&'a PrimitiveArray<UInt64Type>> {
        self.primitive(name)
    }
    /// An `i32` column.
    pub fn i32(&self, name: &str) -> Result<&'a PrimitiveArray<Int32Type>> {
        self.primitive(name)
    }
    /// An `i64` column.
    pub fn i64(&self, name: &str) -> Result<&'a PrimitiveArray<Int64Type>> {
        self.primitive(name)
    }
    /// An `f64` column.
    pub fn f64(&self, name: &str) -> Result<&'a PrimitiveArray<Float64Type>> {
        self.primitive(name)
    }
    /// A boolean column.
    pub fn bool(&self, name: &str) -> Result<&'a BooleanArray> {
        let array = self.get(name)?;
        array.as_boolean_opt().ok_or_else(|| {
            Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()))
        })
    }
    /// A text column.
    pub fn text(&self, name: &str) -> Result<&'a StringArray> {
        let array = self.get(name)?;
        array.as_string_opt::<i32>().ok_or_else(|| {
            Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()))
        })
    }
    /// A dictionary-encoded column.
    pub fn names(&self, name: &str) -> Result<NameColumn<'a>> {
        let array = self.get(name)?;
        let wrong =
            || Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()));
        let dictionary = array.as_dictionary_opt::<UInt32Type>().ok_or_else(wrong)?;
        let values = dictionary.values().as_string_opt::<i32>().ok_or_else(wrong)?;
        Ok(NameColumn { dictionary, values })
    }
}

/// A dictionary-encoded column, with its text.
#[derive(Debug, Clone, Copy)]
pub struct NameColumn<'a> {
    dictionary: &'a DictionaryArray<UInt32Type>,
    values: &'a StringArray,
}

impl<'a> NameColumn<'a> {
    /// The text of a row; `None` for null.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&'a str> {
        self.text(self.key(row)?)
    }

    /// The text of a dictionary key.
    #[must_use]
    pub fn text(&self, key: u32) -> Option<&'a str> {
        let key = usize::try_from(key).ok()?;
        (key < self.values.len()).then(|| self.values.value(key))
    }

    /// The dictionary key of a row: equal keys have equal text inside one batch.
    #[must_use]
    pub fn key(&self, row: usize) -> Option<u32> {
        self.dictionary.key(row).and_then(|key| u32::try_from(key).ok())
    }
}

/// Brings a batch that came from outside (another Arrow library) to the declared columns and types.
///
/// Extra columns are dropped; text views, large text and other dictionary layouts are cast.
///
/// # Errors
/// [`Error::Schema`] when a column is missing or cannot be cast.
pub fn conform(table: &'static Table, batch: &RecordBatch) -> Result<RecordBatch> {
    let id = table.id();
    let mut builder = Builder::new(table);
    for column in table.columns {
        let Some(array) = batch.column_by_name(column.name) else {
            if column.null.is_some() {
                continue;
            }
            return Err(Error::schema(&id, format!("column {} is missing", column.name)));
        };
        let want = column.kind.data_type();
        let array = if *array.data_type() == want {
            Arc::clone(array)
        } else {
            // A dictionary of string views cannot be cast in one step: through plain text it can.
            let text = arrow_cast::cast(array, &DataType::Utf8);
            let direct = arrow_cast::cast(array, &want);
            direct
                .or_else(|e| text.and_then(|t| arrow_cast::cast(&t, &want)).map_err(|_| e))
                .map_err(|e| Error::schema(&id, format!("column {}: {e}", column.name)))?
        };
        builder = builder.put(column.name, array);
    }
    builder.finish(batch.num_rows())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;

    #[test]
    fn every_table_is_declared_soundly() {
        assert_eq!(TABLES.len(), 43);
        for table in TABLES {
            let mut seen = std::collections::BTreeSet::new();
            for column in table.columns {
                assert!(seen.insert(column.name), "{} twice in {}", column.name, table.name);
                assert!(column.doc.ends_with('.'), "{}.{}: {}", table.name, column.name, column.doc);
                // What is made of many whole numbers is none itself.
                let made = ["mean_", "median_", "stddev_"].iter().any(|word| column.name.starts_with(word));
                if column.name.ends_with("_ns") && !(made && column.kind == Kind::F64) {
                    assert_eq!(column.kind, Kind::I64, "{}.{}", table.name, column.name);
                }
            }
            assert_eq!(table.empty().num_columns(), table.columns.len());
        }
    }

    #[test]
    fn a_batch_must_be_what_was_declared() {
        let wrong_name = Builder::new(&SM_OCCUPANCY).put("start", Int64Array::from(vec![1])).finish(1);
        assert!(wrong_name.unwrap_err().to_string().contains("has no column start"));
        let wrong_type = Builder::new(&SM_OCCUPANCY).put("warps", Int64Array::from(vec![1])).finish(1);
        assert!(wrong_type.unwrap_err().to_string().contains("column warps has type Int64"));
        let unset = Builder::new(&SM_OCCUPANCY).finish(1);
        assert!(unset.unwrap_err().to_string().contains("device_id was not set"));
    }
}
