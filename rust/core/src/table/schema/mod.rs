//! Which tables exist, and what does each column mean?
//!
//! Every Arrow table is declared here once: name, version, columns with type, unit, meaning of null and a sentence for
//! people. Everybody builds output through [`crate::table::builder::Builder`], which refuses anything that is not
//! declared; `docs/schemas.md` and the checks of `pyanalyze/tables/frames.py` come from the same declarations. Column
//! types never depend on the values.
//!
//! Conventions: `*_ns` columns are `Int64` nanoseconds on the session clock (the capture's own clock until captures are
//! joined, see `session/clock.rs`); `pid` is null where the export holds no process id.

mod events;
mod explain;
mod occupancy;
mod residency;
mod session;
mod slowdown;
mod streams;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema};

pub use events::*;
pub use explain::*;
pub use occupancy::*;
pub use residency::*;
pub use session::*;
pub use slowdown::*;
pub use streams::*;

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

    pub(crate) fn column(&self, name: &str) -> Option<(usize, &'static Column)> {
        self.columns.iter().enumerate().find(|(_, c)| c.name == name)
    }
}

const fn col(name: &'static str, kind: Kind, doc: &'static str) -> Column {
    Column { name, kind, null: None, doc }
}

const fn opt(name: &'static str, kind: Kind, null: &'static str, doc: &'static str) -> Column {
    Column { name, kind, null: Some(null), doc }
}

use Kind::{Name, I64, U32};

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
    &EVENT_CALLS,
    &NVTX,
    &HOST_CALLS,
    &CPU_SAMPLES,
    &ALLOCATIONS,
    &SWITCH_EVENTS,
    &GPU_METRICS,
    &NVML_SAMPLES,
    &IDENTITIES,
    &RESIDENCY,
    &INFERRED_RESIDENCY,
    &RESIDENCY_BY_TENANT,
    &RESIDENCY_BY_DEVICE,
    &SWITCHES,
    &TENANTS,
    &TENANT_USAGE,
    &KERNEL_ATTRIBUTION,
    &OVERLAPS,
    &FACTS,
    &FACT_EXAMPLES,
    &KERNEL_OCCUPANCY,
    &SM_OCCUPANCY,
    &SM_WARPS,
    &KERNEL_PLACEMENT,
    &FORECAST,
    &TIMELINE,
    &LATENCIES,
    &KERNEL_SUMMARY,
    &SLOWDOWNS,
    &TENANT_SLOWDOWNS,
    &CAUSES,
    &PAIRWISE_INTERFERENCE,
    &CONTEXT_STATE,
    &BASELINE_MATCHES,
    &UNITS,
    &UNIT_SEGMENTS,
    &UNIT_COVERAGE,
    &STREAM_WORK,
    &STREAM_PAIRS,
    &STREAM_LOSSES,
    &STREAM_CONTENTION,
];

/// The table of that name.
#[must_use]
pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().copied().find(|t| t.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::builder::Builder;
    use arrow_array::Int64Array;

    #[test]
    fn every_table_is_declared_soundly() {
        assert_eq!(TABLES.len(), 54);
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
