//! Tables of captures, devices and identities.

use super::Kind::{Bool, Name, Text, F64, I32, I64, U32, U64};
use super::{col, opt, Table, BASIS, CAPTURE_ID, DEVICE_ID, END, NO_GPU, NO_PID, OLD, PID, START, TENANT_ID};

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
            "recording_start_ns",
            I64,
            "no length of the recording",
            "Recording began, whether or not anything had happened by then.",
        ),
        opt("recording_end_ns", I64, "no length of the recording", "Recording stopped."),
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
    doc: "What was looked for in each capture and what was there: the difference between zero and not available.",
    columns: &[
        CAPTURE_ID,
        col("source", Name, "`kernels`, `copies`, `graph_launches`, `switch_events`, `gpu_metrics`, `api_calls`, `profiler_overhead`, `thread_runs`, `nvtx`, `host_calls` (calls of MPI, video codecs and the C library; only where there are any), `cpu_samples` (only where there are any), `allocations`, `target_gpu`, `processes`, `diagnostics`, `cuda_devices` (with the SMs that each process sees)."),
        col("state", Name, "`present`: rows were read. `empty`: the table is there without rows. `absent`: no such table. `unread`: there, but not asked for. `removed`: nsys collected rows, and the export has none."),
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
    doc: "One row per GPU, or per MIG instance. Limits are what the capture says; gaps are filled from tables in `session/devices.rs` only where `limits_basis` says so.",
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
        opt("mig_profile", Text, "not a MIG instance", "Such as 2g.12gb or 1c.3g.20gb: by its name, or because SMs, memory, L2 cache and bandwidth are all that profile's part of the named board."),
        opt("vgpu_profile", Text, "no vGPU name", "Such as T4-4Q: the guest sees a virtual GPU."),
        opt("sm_count", U32, NO_GPU, "Streaming multiprocessors."),
        opt("product_sm_count", U32, "no known product", "SMs of the whole board that the name means."),
        opt("memory_below_product", Bool, "no known product", "Less memory than that board has, by more than ECC and the driver keep."),
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
        col("limits_basis", Name, "`capture`: all from the file. `table`: some from devices.rs. `unknown`: some known to neither."),
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
        opt("channel_ids", Text, OLD, "Channels to the device that its streams are bound to, as exported."),
        opt(
            "stream_priorities",
            Text,
            "not exported",
            "Priority of each of its streams, `stream:priority`, comma-separated; a lower number goes first.",
        ),
        opt(
            "stream_flags",
            Text,
            "not exported",
            "How each of its streams was made, `stream:flag`, comma-separated: 1 synchronises with the legacy default stream, 2 does not, 3 is it.",
        ),
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
        opt("time_local_ns", I64, "the file has no local times", "Local wall-clock time as if it were UTC; of a file without dates (`-o T`) as if from 1969-01-01 on."),
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
        opt("text", Text, "the value is a number", "Value as text; `[N/A]` and the like mean: not available."),
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
            "Tenant whose context its work goes through: the MPS server, or the process of a group of work.",
        ),
    ],
};

/// Tracks for a timeline chart.
pub const TIMELINE: Table = Table {
    name: "timeline",
    version: 1,
    doc: "Intervals merged to what a picture can show: a bounded number of marks per track.",
    columns: &[
        DEVICE_ID,
        opt("tenant_id", U32, "no tenant could be named", "Tenant."),
        col("track", Name, "`kernels`, `graphs`, `copies`, `residency`, or `inferred residency`."),
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
