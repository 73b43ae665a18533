//! Physical names of tables and columns in exports of nsys 2021 to 2026.
//!
//! The one file with physical names. A [`Source`] is a logical table; a [`Plan`] is where it was found in one export.
//! It is found by looking at the tables that are there, never by a version number, because printed schemas lag behind
//! what the exporter writes. A column that moved is one more alias here.

use pyanalyze_sqlite::Database;

/// The newest export schema that this reader was tested with.
pub const NEWEST_TESTED_SCHEMA: [u32; 3] = [3, 25, 0];

/// A logical table: where it may stand, and how its columns may be called.
#[derive(Debug)]
pub struct Source {
    /// Physical tables, the current name first.
    pub tables: &'static [&'static str],
    /// Logical column and its physical names, the current one first.
    pub columns: &'static [(&'static str, &'static [&'static str])],
}

/// Any of these makes a database an nsys export.
pub const MARKS: &[&str] = &[
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
    "ANALYSIS_DETAILS",
    "StringIds",
    "TARGET_INFO_GPU",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "GPU_CONTEXT_SWITCH_EVENTS",
    "FECS_EVENTS",
    "GPU_METRICS",
    "GENERIC_EVENTS",
    "NVTX_EVENTS",
];

macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident = [$($table:literal),+] { $($column:ident: $($alias:literal)|+),* $(,)? })*) => {
        $($(#[$doc])* pub const $name: Source = Source {
            tables: &[$($table),+],
            columns: &[$((stringify!($column), &[$($alias),+])),*],
        };)*

        const ALL: &[(&str, &Source)] = &[$((stringify!($name), &$name)),*];
    };
}

sources! {
    /// Every string of the export.
    STRINGS = ["StringIds"] { id: "id", value: "value" }
    /// How the export was made; until schema 3.1 the only metadata.
    META_EXPORT = ["META_DATA_EXPORT", "EXPORT_META_DATA"] { name: "name", value: "value" }
    /// How the capture was made.
    META_CAPTURE = ["META_DATA_CAPTURE"] { name: "name", value: "value" }
    /// Properties of the target machine.
    SYSTEM_ENV = ["TARGET_INFO_SYSTEM_ENV"] { name: "name", value: "value" }
    /// How long was recorded, from the capture's zero on.
    DETAILS = ["ANALYSIS_DETAILS"] { dur_ns: "duration" }
    /// When the capture's zero was.
    SESSION_START = ["TARGET_INFO_SESSION_START_TIME"] {
        utc_epoch_ns: "utcEpochNs", utc_time: "utcTime", local_time: "localTime",
        system_clock_ns: "systemClockNs",
    }
    /// GPUs.
    GPU = ["TARGET_INFO_GPU"] {
        gpu_id: "id", cuda_ordinal: "cuDevice", name: "name", uuid: "uuid", bus_location: "busLocation",
        chip: "chipName", sm_count: "smCount", compute_major: "computeMajor", compute_minor: "computeMinor",
        clock_hz: "clockRate", memory_bytes: "totalMemory", memory_bandwidth_bytes_per_s: "memoryBandwidth",
        l2_bytes: "l2CacheSize", async_engines: "asyncEngines", max_warps_per_sm: "maxWarpsPerSm",
        max_blocks_per_sm: "maxBlocksPerSm", max_threads_per_block: "maxThreadsPerBlock",
        registers_per_sm: "maxRegistersPerSm", registers_per_block: "maxRegistersPerBlock",
        shared_per_sm_bytes: "maxShmemPerSm", shared_per_block_bytes: "maxShmemPerBlock",
        shared_per_block_optin_bytes: "maxShmemPerBlockOptin",
    }
    /// Which GPU a process sees under which CUDA ordinal.
    CUDA_DEVICE = ["TARGET_INFO_CUDA_DEVICE"] {
        gpu_id: "gpuId", cuda_id: "cudaId", pid: "pid", sm_count: "numMultiprocessors",
    }
    /// CUDA contexts; until schema 3.1 known by their default stream only.
    CONTEXT = ["TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_NULL_STREAM"] {
        pid: "processId", context_id: "contextId", device: "deviceId",
        null_stream_id: "nullStreamId" | "streamId", parent_context_id: "parentContextId",
        is_green: "isGreenContext", sm_count: "numMultiprocessors", tpc_mask: "tpcMask",
        channel_ids: "workqueueChannelIds",
    }
    /// CUDA streams.
    STREAM = ["TARGET_INFO_CUDA_STREAM"] {
        pid: "processId", context_id: "contextId", stream_id: "streamId", priority: "priority",
        flag: "flag",
    }
    /// Processes.
    PROCESS = ["PROCESSES", "TARGET_INFO_PROCESS"] {
        global_pid: "globalPid" | "globalId", pid: "pid", name: "name",
    }
    /// Names of threads.
    THREAD_NAME = ["ThreadNames"] { global_tid: "globalTid", name: "nameId" }
    /// Messages of nsys about its own recording.
    DIAGNOSTIC = ["DIAGNOSTIC_EVENT"] { severity: "severity", text: "text" }
    /// Names of the severities.
    DIAGNOSTIC_SEVERITY = ["ENUM_DIAGNOSTIC_SEVERITY_LEVEL"] { id: "id", name: "name" }
    /// Kernels.
    KERNEL = ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"] {
        start_ns: "start", end_ns: "end", device: "deviceId", global_pid: "globalPid",
        context_id: "contextId", green_context_id: "greenContextId", stream_id: "streamId",
        correlation_id: "correlationId", name: "demangledName", short_name: "shortName",
        launch_type: "launchType", grid_x: "gridX", grid_y: "gridY", grid_z: "gridZ",
        block_x: "blockX", block_y: "blockY", block_z: "blockZ",
        registers_per_thread: "registersPerThread", static_shared_bytes: "staticSharedMemory",
        dynamic_shared_bytes: "dynamicSharedMemory", shared_executed_bytes: "sharedMemoryExecuted",
        shared_requested_percent: "sharedMemoryRequestedPercentage", cache_preference: "cacheConfig",
        local_per_thread_bytes: "localMemoryPerThread", graph_node_id: "graphNodeId",
        cluster_x: "clusterX", cluster_y: "clusterY", cluster_z: "clusterZ",
        max_active_clusters: "maxActiveClusters",
    }
    /// Copies.
    MEMCPY = ["CUPTI_ACTIVITY_KIND_MEMCPY"] {
        start_ns: "start", end_ns: "end", device: "deviceId", global_pid: "globalPid",
        context_id: "contextId", stream_id: "streamId", correlation_id: "correlationId",
        bytes: "bytes", copy_kind: "copyKind", source_kind: "srcKind", destination_kind: "dstKind",
        migration_cause: "migrationCause", graph_node_id: "graphNodeId",
    }
    /// Sets.
    MEMSET = ["CUPTI_ACTIVITY_KIND_MEMSET"] {
        start_ns: "start", end_ns: "end", device: "deviceId", global_pid: "globalPid",
        context_id: "contextId", stream_id: "streamId", correlation_id: "correlationId",
        bytes: "bytes", destination_kind: "memKind", graph_node_id: "graphNodeId",
    }
    /// Names of the copy kinds.
    MEMCPY_OPERATION = ["ENUM_CUDA_MEMCPY_OPER"] { id: "id", name: "label" }
    /// Graphs traced as a whole.
    GRAPH = ["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] {
        start_ns: "start", end_ns: "end", device: "deviceId", global_pid: "globalPid",
        context_id: "contextId", stream_id: "streamId", correlation_id: "correlationId",
        graph_id: "graphId", graph_exec_id: "graphExecId",
    }
    /// CUDA API calls.
    API = ["CUPTI_ACTIVITY_KIND_RUNTIME"] {
        start_ns: "start", end_ns: "end", global_tid: "globalTid", correlation_id: "correlationId",
        name: "nameId", return_value: "returnValue",
    }
    /// Synchronisation of hosts and streams.
    SYNCHRONIZATION = ["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"] {
        global_pid: "globalPid", context_id: "contextId", stream_id: "streamId",
        correlation_id: "correlationId", event_id: "eventId", event_sync_id: "eventSyncId",
    }
    /// CUDA events as they were recorded.
    CUDA_EVENT = ["CUPTI_ACTIVITY_KIND_CUDA_EVENT"] {
        global_pid: "globalPid", context_id: "contextId", stream_id: "streamId",
        correlation_id: "correlationId", event_id: "eventId", event_sync_id: "eventSyncId",
        time_ns: "timestamp",
    }
    /// Calls of MPI, by what else their records say.
    MPI_COLLECTIVE = ["MPI_COLLECTIVES_EVENTS"] {
        start_ns: "start", end_ns: "end", global_tid: "globalTid", name: "textId",
    }
    /// To one other rank.
    MPI_P2P = ["MPI_P2P_EVENTS"] { start_ns: "start", end_ns: "end", global_tid: "globalTid", name: "textId" }
    /// Of persistent requests.
    MPI_START_WAIT = ["MPI_START_WAIT_EVENTS"] {
        start_ns: "start", end_ns: "end", global_tid: "globalTid", name: "textId",
    }
    /// The rest, and every call of exports that say no more of it.
    MPI_OTHER = ["MPI_OTHER_EVENTS"] { start_ns: "start", end_ns: "end", global_tid: "globalTid", name: "textId" }
    /// Calls of the video codec SDK.
    VIDEO_DECODER = ["NVVIDEO_DECODER_API"] {
        start_ns: "start", end_ns: "end", global_tid: "globalTid", name: "nameId",
    }
    /// To encode.
    VIDEO_ENCODER = ["NVVIDEO_ENCODER_API"] {
        start_ns: "start", end_ns: "end", global_tid: "globalTid", name: "nameId",
    }
    /// Images.
    VIDEO_JPEG = ["NVVIDEO_JPEG_API"] { start_ns: "start", end_ns: "end", global_tid: "globalTid", name: "nameId" }
    /// Calls of the C library that may block.
    OS_CALL = ["OSRT_API"] { start_ns: "start", end_ns: "end", global_tid: "globalTid", name: "nameId" }
    /// Samples of what threads ran on CPUs.
    CPU_SAMPLE = ["COMPOSITE_EVENTS"] { id: "id", time_ns: "start", global_tid: "globalTid" }
    /// Functions on the stacks of these threads, innermost first.
    CALL_CHAIN = ["SAMPLING_CALLCHAINS"] {
        id: "id", function: "symbol", module: "module", unresolved: "unresolved", depth: "stackDepth",
    }
    /// NVTX.
    NVTX = ["NVTX_EVENTS"] {
        start_ns: "start", end_ns: "end", kind: "eventType", global_tid: "globalTid",
        text: "text", text_id: "textId", domain_id: "domainId",
    }
    /// What the profiler, loaders and compilers did in threads of the program.
    OVERHEAD = ["PROFILER_OVERHEAD"] {
        start_ns: "start", end_ns: "end", global_tid: "globalTid", kind: "overheadType",
    }
    /// Names of the kinds.
    OVERHEAD_KIND = ["ENUM_CUPTI_OVERHEAD_TYPE"] { id: "id", name: "label" }
    /// Threads scheduled onto CPUs and out.
    SCHEDULE = ["SCHED_EVENTS"] { time_ns: "start", cpu: "cpu", is_in: "isSchedIn", global_tid: "globalTid" }
    /// Context-switch records; FECS is the unit of the GPU that writes them.
    SWITCH = ["GPU_CONTEXT_SWITCH_EVENTS", "FECS_EVENTS"] {
        time_ns: "timestamp", tag: "tag", sequence: "seqNo", hw_context: "contextId",
        global_pid: "globalPid", gpu_id: "gpuId",
    }
    /// Names of the tags.
    SWITCH_TAG = ["ENUM_GPU_CTX_SWITCH"] { id: "id", name: "name" }
    /// Metric samples, since schema 3.7.
    METRIC = ["GPU_METRICS"] {
        time_ns: "timestamp", raw_time_ns: "rawTimestamp", type_id: "typeId", metric_id: "metricId",
        value: "value",
    }
    /// Names of the metrics.
    METRIC_NAME = ["TARGET_INFO_GPU_METRICS"] {
        type_id: "typeId", metric_id: "metricId", name: "metricName",
    }
    /// Metric samples of nsys 2021 and 2022, as JSON, among other generic events.
    GENERIC = ["GENERIC_EVENTS"] {
        time_ns: "timestamp", raw_time_ns: "rawTimestamp", type_id: "typeId", data: "data",
    }
    /// Which source a type of generic events comes from.
    GENERIC_TYPE = ["GENERIC_EVENT_TYPES"] { type_id: "typeId", source_id: "sourceId" }
    /// Who writes generic events.
    GENERIC_SOURCE = ["GENERIC_EVENT_SOURCES"] { source_id: "sourceId", data: "data" }
    /// Device memory allocations.
    MEMORY_USAGE = ["CUDA_GPU_MEMORY_USAGE_EVENTS"] {
        time_ns: "start", global_pid: "globalPid", device: "deviceId", bytes: "bytes",
        memory_kind: "memKind", operation: "memoryOperationType",
    }
}

/// A logical table as one export has it.
#[derive(Debug)]
pub struct Plan {
    /// The physical table.
    pub table: String,
    physical: Vec<String>,
    logical: Vec<&'static str>,
}

/// A column of a [`Plan`]: its place in the scanned row, or nothing.
pub type Place = Option<usize>;

impl Plan {
    /// The columns to scan.
    #[must_use]
    pub fn columns(&self) -> Vec<&str> {
        self.physical.iter().map(String::as_str).collect()
    }

    /// Where the logical column `name` stands in a scanned row.
    #[must_use]
    pub fn at(&self, name: &str) -> Place {
        self.logical.iter().position(|n| *n == name)
    }
}

/// Looks `source` up in `database`. Case does not matter, as in SQLite itself.
///
/// A number behind the name (`_V2`) is how CUPTI names later layouts of a record; of several tables
/// the first with rows is taken.
///
/// # Errors
/// Those of [`Database::rows_by_ids`].
pub fn find(database: &Database, source: &Source) -> crate::Result<Option<Plan>> {
    let mut candidates = Vec::new();
    for name in source.tables {
        let mut same: Vec<&String> = database.tables().keys().filter(|t| is_called(t, name)).collect();
        // Later layouts first.
        same.sort_by_key(|t| std::cmp::Reverse((t.len(), t.to_ascii_uppercase())));
        candidates.extend(same);
    }
    let mut chosen = candidates.first().copied();
    if candidates.len() > 1 {
        for candidate in &candidates {
            if database.rows_by_ids(candidate)? > 0 {
                chosen = Some(candidate);
                break;
            }
        }
    }
    let Some((table, columns)) = chosen.and_then(|t| database.tables().get_key_value(t)) else {
        return Ok(None);
    };
    let mut plan = Plan { table: table.clone(), physical: Vec::new(), logical: Vec::new() };
    for (logical, aliases) in source.columns {
        let found = aliases.iter().find_map(|a| columns.iter().find(|c| c.eq_ignore_ascii_case(a)));
        if let Some(physical) = found {
            plan.physical.push(physical.clone());
            plan.logical.push(logical);
        }
    }
    Ok(Some(plan))
}

/// Every physical table that a reader of these event tables looks for: what an export must hold.
#[must_use]
pub fn physical_tables(want: &super::Want) -> Vec<&'static str> {
    let unwanted = |name: &str| match name {
        "KERNEL" => !want.kernels,
        "MEMCPY" | "MEMSET" | "MEMCPY_OPERATION" => !want.memops,
        "GRAPH" => !want.graph_launches,
        "SWITCH" | "SWITCH_TAG" => !want.switch_events,
        "METRIC" | "METRIC_NAME" | "GENERIC" | "GENERIC_TYPE" | "GENERIC_SOURCE" => !want.gpu_metrics,
        "API" => !want.api_calls,
        "OVERHEAD" | "OVERHEAD_KIND" => !want.profiler_overhead,
        "SCHEDULE" => !want.thread_runs,
        "SYNCHRONIZATION" | "CUDA_EVENT" => !want.event_calls,
        "NVTX" => !want.nvtx,
        "MPI_COLLECTIVE" | "MPI_P2P" | "MPI_START_WAIT" | "MPI_OTHER" | "VIDEO_DECODER" | "VIDEO_ENCODER"
        | "VIDEO_JPEG" | "OS_CALL" => !want.host_calls,
        "CPU_SAMPLE" | "CALL_CHAIN" => !want.cpu_samples,
        "MEMORY_USAGE" => !want.allocations,
        _ => false,
    };
    ALL.iter().filter(|(name, _)| !unwanted(name)).flat_map(|(_, source)| source.tables).copied().collect()
}

/// Whether a reader of these event tables looks for a table of this name.
pub(super) fn is_wanted(name: &str, want: &super::Want) -> bool {
    physical_tables(want).into_iter().any(|table| is_called(name, table))
}

/// Whether `database` has any table of an nsys export.
#[must_use]
pub fn is_export(database: &Database) -> bool {
    database.tables().keys().any(|table| MARKS.iter().any(|mark| is_called(table, mark)))
}

fn is_called(table: &str, name: &str) -> bool {
    let Some((start, rest)) = table.split_at_checked(name.len()) else { return false };
    let version = |rest: &str| {
        rest.strip_prefix("_V")
            .or_else(|| rest.strip_prefix("_v"))
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    start.eq_ignore_ascii_case(name) && (rest.is_empty() || version(rest))
}

#[cfg(test)]
mod tests {
    use super::{is_called, physical_tables};
    use crate::read::nsys::Want;

    #[test]
    fn an_export_for_the_analysis_needs_no_api_calls() {
        let tables = physical_tables(&Want::analysis());
        assert!(tables.contains(&"CUPTI_ACTIVITY_KIND_KERNEL") && tables.contains(&"StringIds"));
        assert!(!tables.contains(&"CUPTI_ACTIVITY_KIND_RUNTIME") && !tables.contains(&"NVTX_EVENTS"));
        assert!(physical_tables(&Want::all()).contains(&"NVTX_EVENTS"));
    }

    #[test]
    fn names_match_without_case_and_with_a_layout_number() {
        assert!(is_called("stringids", "StringIds"));
        assert!(is_called("CUPTI_ACTIVITY_KIND_KERNEL_V3", "CUPTI_ACTIVITY_KIND_KERNEL"));
        assert!(!is_called("CUPTI_ACTIVITY_KIND_KERNEL_VIEW", "CUPTI_ACTIVITY_KIND_KERNEL"));
        assert!(!is_called("GPU_METRICS_X", "GPU_METRICS"));
        assert!(!is_called("ü", "x"));
    }
}
