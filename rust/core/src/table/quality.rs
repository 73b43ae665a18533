//! Data-quality counters of a capture, with their severity.
//!
//! The one list of named counters. Readers and passes count into a [`Quality`]; the `quality` table, `info` and
//! `docs/troubleshooting.md` come from it. A name is stable: people search for it.

use std::collections::BTreeMap;

use arrow_array::{RecordBatch, StringArray, UInt32Array, UInt64Array};

use crate::base::error::Result;
use crate::table::builder::Builder;
use crate::table::schema;

/// How bad it is for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something may look different from what is expected.
    Notice,
    /// Records are missing: sums may be too small.
    DataLoss,
    /// Part of the capture cannot be used.
    Error,
}

impl Severity {
    /// As it stands in the table.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Notice => "notice",
            Self::DataLoss => "data-loss",
            Self::Error => "error",
        }
    }
}

/// One named counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Stable name.
    pub name: &'static str,
    /// How bad.
    pub severity: Severity,
    /// `capture` (recorded so) or `import` (found while reading).
    pub source: &'static str,
    /// What it means and what to do, for the documentation.
    pub doc: &'static str,
}

macro_rules! counters {
    ($($ident:ident = $name:literal, $severity:ident, $source:literal, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub const $ident: Counter =
                Counter { name: $name, severity: Severity::$severity, source: $source, doc: $doc };
        )*
        /// Every counter, for documentation and tests.
        pub const COUNTERS: &[Counter] = &[$($ident),*];
    };
}

counters! {
    SYNTHETIC_CAPTURE = "synthetic_capture", Info, "capture", "The capture was made by a generator, not recorded on a GPU: its numbers prove nothing about real hardware.";
    NEWER_THAN_TESTED = "newer_than_tested", Notice, "import", "The export schema is newer than any this version was tested with; tables were found by looking, columns that moved may read as missing.";
    NO_METADATA = "no_metadata", Info, "capture", "No metadata table (nsys 2021, or a trimmed export): versions, session start and environment are not known.";
    NO_SESSION_START = "no_session_start", Notice, "capture", "No session start time: times cannot be given in UTC, and samples or other captures cannot be placed beside this one.";
    NO_DEVICE_INFO = "no_device_info", Notice, "capture", "TARGET_INFO_GPU is missing: device names, SM counts and limits are not known.";
    DEVICE_UNKNOWN = "device_unknown", Notice, "capture", "Activity on a device that TARGET_INFO_GPU does not list; its name and limits are not known.";
    DEVICE_MAPPING_GUESSED = "device_mapping_guessed", Notice, "import", "The CUDA ordinal could not be tied to a GPU by any table; ordinal and order of the GPU list were taken to agree.";
    MIG_INSTANCE_ASSUMED = "mig_instance_assumed", Notice, "import", "Processes of which the export does not say which of several MIG instances they used: each sees its own as device 0.";
    SM_COUNT_MISSING = "sm_count_missing", Notice, "capture", "The SM count of a device is NULL, 0 or more than any GPU has; it was taken from a table of known chips where the name is known, else occupancy cannot be computed.";
    NO_PIDS = "no_pids", Notice, "capture", "Activity without process ids: tenants cannot be told apart.";
    SENTINEL_PID = "sentinel_pid", Info, "capture", "Rows whose process id is a sentinel (0, negative or all ones): they belong to no process.";
    NAME_MISSING = "name_missing", Notice, "capture", "Names that point to no string.";
    VALUE_OUT_OF_RANGE = "value_out_of_range", Notice, "import", "Values outside the range of their column became null.";
    BAD_INTERVAL = "bad_interval", DataLoss, "capture", "Rows whose end is missing, before their start or more than a year after it, and times that no clock says (146 years from zero), were left out.";
    GRAPH_INCOMPLETE = "graph_incomplete", DataLoss, "capture", "Graph launches whose end is missing or before their start were left out.";
    GRAPHS_TRACED_WHOLE = "graphs_traced_whole", Notice, "capture", "CUDA graphs were traced as a whole: they count as busy time, their kernels cannot be seen. Record with --cuda-graph-trace=node to see them (at more overhead).";
    METRIC_WRAPPED = "metric_wrapped", Info, "import", "Metric values that the export stored as negative numbers of 8 or 32 bits were read as unsigned.";
    METRIC_UNNAMED = "metric_unnamed", Notice, "capture", "Metric samples without a name in TARGET_INFO_GPU_METRICS were left out.";
    METRICS_DEVICE_UNKNOWN = "metrics_device_unknown", Notice, "capture", "Metric samples of several GPUs that the export does not tie to a device.";
    SWITCH_EVENTS_LOST = "switch_events_lost", DataLoss, "capture", "Gaps in the sequence numbers of context-switch records: slices around them are not complete.";
    SWITCH_REPEATED_START = "switch_repeated_start", DataLoss, "capture", "A context was restored twice without a save in between: the save record is lost.";
    SWITCH_END_WITHOUT_START = "switch_end_without_start", Info, "capture", "A save without a restore before it. One per context at the beginning is normal: it was resident when recording began.";
    SWITCH_START_WITHOUT_END = "switch_start_without_end", Info, "capture", "A restore without a save after it. One at the end of a whole recording is normal: the context was resident when it ended.";
    SWITCH_RECORDS_END_EARLY = "switch_records_end_early", Notice, "capture", "Another process had work after the last context-switch record, so that a switch to it is missing: who was resident from that record on is not known, and counts for nobody.";
    SWITCH_RECORDS_PARTIAL = "switch_records_partial", Notice, "capture", "Context-switch records cover notably less time than kernels: who was resident in the rest is not known. GPU time, context switches, slowdowns, units of work and forecasts are of the time that they cover.";
    SWITCH_OVERLAP = "switch_overlap", DataLoss, "capture", "Two contexts seem resident at once on one engine: records are lost or their times are noisy.";
    SWITCH_INVALID = "switch_invalid", DataLoss, "capture", "Context-switch records that the driver marked as invalid.";
    SWITCH_RESET = "switch_reset", DataLoss, "capture", "The engine was reset while recording.";
    SWITCH_UNKNOWN_TAG = "switch_unknown_tag", Notice, "import", "Context-switch records with a tag this version does not know.";
    SWITCH_UNPRIVILEGED = "switch_unprivileged", Notice, "capture", "Records of other users: recorded without root, so their pids are hidden and their times are deliberately noisy. Record as root for exact figures.";
    SWITCH_KERNEL_CLIENT = "switch_kernel_client", Info, "capture", "Records of driver-internal clients.";
    SWITCH_DEVICE_UNKNOWN = "switch_device_unknown", Notice, "capture", "Context-switch records of a GPU that TARGET_INFO_GPU does not list.";
    PID_BRIDGED = "pid_bridged", Notice, "import", "Kernels carry container pids and switch records host pids; they were tied together by time.";
    PID_UNMATCHED = "pid_unmatched", Notice, "import", "Traced processes that no single process of the host (by switch records, else by NVML) could be tied to: their residency is not known.";
    LOW_MATCH_RATE = "low_match_rate", Notice, "import", "Many kernels start outside the residency of their process: clocks disagree, records are lost, or the pids do not mean the same.";
    DIAGNOSTIC_WARNING = "diagnostic_warning", Notice, "capture", "nsys itself warned or reported errors while recording. Its messages may name paths: SELECT text FROM DIAGNOSTIC_EVENT WHERE severity IN (2, 3) shows them in the export.";
    DIAGNOSTIC_LOSS = "diagnostic_loss", DataLoss, "capture", "nsys reported lost or dropped data. Its messages say what, and may name paths: SELECT text FROM DIAGNOSTIC_EVENT shows them in the export.";
    EXPORT_CUT = "export_cut", Notice, "capture", "The export holds fewer CUDA events than nsys says it collected: rows were removed from it, or it was exported in part. Times and counts are of what is left.";
    SWITCH_RECORDS_CUT = "switch_records_cut", Notice, "capture", "The export holds fewer context-switch records than nsys says it collected: rows were removed from it, or it was exported in part. GPU time and switches are of the time between those that it holds, and not known where none is of the time of the work.";
    COUNTER_SAMPLES_CUT = "counter_samples_cut", Notice, "capture", "The export holds fewer samples of hardware counters than nsys says it collected: rows were removed from it, or it was exported in part. Means are of those that it holds, if any.";
    RECOVERED_COPY = "recovered_copy", Info, "import", "The database had an unfinished journal or write-ahead log; it was recovered in a private copy and read there.";
    READ_BY_SQLITE = "read_by_sqlite", Info, "import", "Tables that SQLite stepped through, because what is in them is not read exactly from the pages of the file; the result is the same, reading takes several times as long.";
    TABLE_NOT_STORED = "table_not_stored", Notice, "capture", "What nsys stores as a table is a view or a virtual table in this file. Those run code that came with the file, so they are not looked at: it counts as absent. Write it into an ordinary table (CREATE TABLE t AS SELECT ...).";
    NO_KERNELS = "no_kernels", Notice, "capture", "No kernel was captured: what the GPU ran is not known.";
    CAPTURES_APART = "captures_apart", Notice, "import", "Captures that do not overlap in time, or cannot be placed on one clock; of one GPU they get no common verdict.";
    CAPTURES_PARTLY_TOGETHER = "captures_partly_together", Notice, "import", "Captures of one device that recorded notably different times: what a process did while its capture did not record is not known. Slowdowns are of the time that all captures cover.";
    CLOCKS_CONTRADICT = "clocks_contradict", Notice, "import", "The start time of a capture and the switch records that it shares with the first capture do not agree on its place in time; the records were believed. One of the wall clocks was wrong or was set while recording.";
    DUPLICATE_CAPTURE = "duplicate_capture", Notice, "import", "Another export of a recording that is already in the session was left out: read twice, one process would look like two that share the GPU.";
    SAMPLES_UNREAD = "samples_unread", Notice, "import", "A samples or context file that no reader knows.";
    SETTINGS_NOT_PLACED = "settings_not_placed", Notice, "import", "Settings or samples that name no GPU, given with captures of several machines: they are used for none of them.";
    SAMPLES_EMPTY = "samples_empty", Notice, "capture", "A samples file of a known format without one sample in it: nothing was looked at, or (lists of processes) there was none to list.";
    SAMPLES_LOCAL_TIME = "samples_local_time", Notice, "import", "Sampled values (each metric of a sample counts) with local times; the zone was taken from the capture, or from the overlap with it.";
    SAMPLES_ZONE_INFERRED = "samples_zone_inferred", Notice, "import", "Sampled values (each metric of a sample counts) with local times beside others in UTC: they were read in the one time zone in which the files meet.";
    SAMPLES_ZONE_UNKNOWN = "samples_zone_unknown", Notice, "import", "Sampled values (each metric of a sample counts) with local times beside others in UTC, in no or in several time zones of the same time: they are counted, not placed.";
    SAMPLES_NOT_ALIGNED = "samples_not_aligned", Notice, "import", "Sampled values (each metric of a sample counts) that could not be placed on the capture's clock: they are shown, not joined.";
    SAMPLES_OTHER_GPU = "samples_other_gpu", Notice, "import", "Samples of a GPU that the capture does not show.";
    SAMPLES_UNAVAILABLE = "samples_unavailable", Info, "import", "Values that the driver or DCGM did not give: they are null, never zero. The driver has none where nothing new was counted since the last sample, for processes of others, and of utilisation under MIG: per instance use DCGM 1001 and 1002.";
    SAMPLES_ABOVE_ONE = "samples_above_one", Notice, "capture", "Ratios above 1, which DCGM reports for some MIG instances: kept as they are, not to be trusted.";
    SAMPLES_PER_POD = "samples_per_pod", Info, "import", "An exporter repeated the value of a GPU for every pod that shares it; one row was kept, for it is the whole GPU's and must not be added up.";
    ROWS_SKIPPED = "rows_skipped", DataLoss, "import", "Rows of a samples file that break its own format were left out.";
}

/// Counts by (capture, counter), with the last detail given.
#[derive(Debug, Clone, Default)]
pub struct Quality {
    counts: BTreeMap<(Option<u32>, &'static str), (Counter, u64, String)>,
}

impl Quality {
    /// Counts `count` occurrences; zero counts nothing.
    pub fn add(&mut self, capture: Option<u32>, counter: Counter, count: u64, detail: impl Into<String>) {
        if count == 0 {
            return;
        }
        let entry = self.counts.entry((capture, counter.name)).or_insert_with(|| (counter, 0, String::new()));
        entry.1 = entry.1.saturating_add(count);
        let detail = detail.into();
        if !detail.is_empty() && !entry.2.contains(&detail) {
            if !entry.2.is_empty() {
                entry.2.push_str("; ");
            }
            entry.2.push_str(&detail);
        }
    }

    /// How often `counter` was counted, over all captures.
    #[must_use]
    pub fn count(&self, counter: Counter) -> u64 {
        self.counts.iter().filter(|((_, name), _)| *name == counter.name).map(|(_, (_, n, _))| n).sum()
    }

    /// Takes over all counts of `other`.
    pub fn absorb(&mut self, other: Self) {
        for ((capture, _), (counter, count, detail)) in other.counts {
            self.add(capture, counter, count, detail);
        }
    }

    /// The `quality` table.
    ///
    /// # Errors
    /// [`crate::Error::Schema`], if this disagrees with its declaration.
    pub fn table(&self) -> Result<RecordBatch> {
        let rows: Vec<_> = self.counts.iter().map(|((capture, _), value)| (*capture, value)).collect();
        Builder::new(&schema::QUALITY)
            .put("capture", rows.iter().map(|(c, _)| *c).collect::<UInt32Array>())
            .put_names("name", rows.iter().map(|(_, v)| Some(v.0.name)))
            .put_names("severity", rows.iter().map(|(_, v)| Some(v.0.severity.as_str())))
            .put_names("source", rows.iter().map(|(_, v)| Some(v.0.source)))
            .put("count", rows.iter().map(|(_, v)| v.1).collect::<UInt64Array>())
            .put("detail", rows.iter().map(|(_, v)| Some(v.2.as_str())).collect::<StringArray>())
            .finish(rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_explained() {
        let mut seen = std::collections::BTreeSet::new();
        assert!(COUNTERS.len() > 40);
        for counter in COUNTERS {
            assert!(seen.insert(counter.name), "{} twice", counter.name);
            assert!(counter.doc.ends_with('.'), "{}", counter.name);
            assert!(["capture", "import"].contains(&counter.source), "{}", counter.name);
        }
    }

    #[test]
    fn zero_is_not_counted_and_details_are_kept() {
        let mut quality = Quality::default();
        quality.add(Some(0), NO_PIDS, 0, "kernels");
        assert_eq!(quality.table().unwrap().num_rows(), 0);
        quality.add(Some(0), NO_PIDS, 2, "kernels");
        quality.add(Some(0), NO_PIDS, 3, "copies");
        assert_eq!(quality.count(NO_PIDS), 5);
        assert_eq!(quality.table().unwrap().num_rows(), 1);
    }
}
