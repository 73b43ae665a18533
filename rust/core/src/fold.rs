//! How does a room see a capture that may be larger than memory?
//!
//! Every room that touches events is a [`Fold`]: it takes time-ordered [`Chunk`]s, carries state from
//! one to the next, and hands out its tables at the end. A whole capture is one chunk; any other
//! chunking must give equal results, which `tests/chunking.rs` checks for every room.

use std::collections::BTreeMap;

use arrow_array::{Int64Array, RecordBatch};
use arrow_select::concat::concat_batches;

use crate::error::{Error, Result};
use crate::schema::{self, Columns, Table};
use crate::watch::Watch;

/// Tables by name.
pub type Tables = BTreeMap<&'static str, RecordBatch>;

/// The tables that are streams of events, with the column that orders them.
pub const EVENT_TABLES: &[(&Table, &str)] = &[
    (&schema::KERNELS, "start_ns"),
    (&schema::GRAPH_LAUNCHES, "start_ns"),
    (&schema::MEMOPS, "start_ns"),
    (&schema::SWITCH_EVENTS, "time_ns"),
    (&schema::GPU_METRICS, "time_ns"),
    (&schema::RESIDENCY, "start_ns"),
];

/// One stretch of time of the event tables.
///
/// Holds every row that starts before `until_ns` and stood in no earlier chunk; each table is sorted
/// by its ordering column. Intervals may end after `until_ns`. A table that is absent was not
/// captured or not asked for; a table that is present in one chunk is present in all.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Rows of the event tables.
    pub tables: Tables,
    /// All rows that start before this time have been delivered after this chunk.
    pub until_ns: i64,
}

impl Chunk {
    /// The rows of `table` in this chunk.
    #[must_use]
    pub fn get(&self, table: &'static Table) -> Option<Columns<'_>> {
        self.tables.get(table.name).map(|batch| Columns::new(table, batch))
    }
}

/// A room: chunks in, tables out.
pub trait Fold: Sized {
    /// What it hands out.
    type Output;

    /// Takes the next chunk.
    ///
    /// # Errors
    /// A wrong table, or [`Error::Cancelled`].
    fn push(&mut self, chunk: &Chunk, watch: &dyn Watch) -> Result<()>;

    /// The end of the capture.
    ///
    /// # Errors
    /// As [`Fold::push`].
    fn finish(self, watch: &dyn Watch) -> Result<Self::Output>;

    /// Folds `tables` in chunks of about `rows` event rows (0: all at once).
    ///
    /// # Errors
    /// As [`Fold::push`].
    fn run(self, tables: &Tables, rows: usize, watch: &dyn Watch) -> Result<Self::Output> {
        self.fold(tables, rows, watch)?.finish(watch)
    }

    /// As [`Fold::run`], without the end.
    ///
    /// # Errors
    /// As [`Fold::push`].
    fn fold(mut self, tables: &Tables, rows: usize, watch: &dyn Watch) -> Result<Self> {
        for chunk in chunks(tables, rows)? {
            self.push(&chunk, watch)?;
        }
        Ok(self)
    }
}

/// Cuts the event tables of `tables` into chunks of about `rows` rows of the longest table.
///
/// # Errors
/// [`Error::Schema`] for a table that is not what it is declared to be, or not sorted.
pub fn chunks(tables: &Tables, rows: usize) -> Result<Vec<Chunk>> {
    let mut streams: Vec<(&'static Table, &RecordBatch, &Int64Array)> = Vec::new();
    for (table, order) in EVENT_TABLES {
        if let Some(batch) = tables.get(table.name) {
            let times = Columns::new(table, batch).i64(order)?;
            if times.values().is_sorted() {
                streams.push((table, batch, times));
            } else {
                return Err(Error::schema(&table.id(), format!("is not sorted by {order}")));
            }
        }
    }
    let longest = streams.iter().max_by_key(|s| s.2.len());
    let mut bounds: Vec<i64> = match longest {
        Some((_, _, times)) if rows > 0 => times.values().iter().copied().step_by(rows).skip(1).collect(),
        _ => Vec::new(),
    };
    bounds.dedup();
    bounds.push(i64::MAX);
    let mut from = vec![0_usize; streams.len()];
    let mut chunks = Vec::with_capacity(bounds.len());
    for until_ns in bounds {
        let mut part = Tables::new();
        for ((table, batch, times), from) in streams.iter().zip(from.iter_mut()) {
            let to = if until_ns == i64::MAX {
                times.len()
            } else {
                times.values().partition_point(|t| *t < until_ns)
            };
            part.insert(table.name, batch.slice(*from, to - *from));
            *from = to;
        }
        chunks.push(Chunk { tables: part, until_ns });
    }
    Ok(chunks)
}

/// Puts batches of one table after each other.
///
/// # Errors
/// [`Error::Schema`] if they differ in their columns.
pub fn concat(table: &'static Table, batches: &[RecordBatch]) -> Result<RecordBatch> {
    concat_batches(&table.schema(), batches).map_err(|e| Error::schema(&table.id(), e.to_string()))
}
