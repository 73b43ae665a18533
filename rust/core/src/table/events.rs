//! One pass over the events of a capture.
//!
//! Every step that touches events is an [`EventPass`]: it reads the event tables of a capture in order of time
//! and returns its tables at the end. Captures that exceed the memory budget are the allocator's business
//! (`pyanalyze-spill`): no step sees part of a capture.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;

use crate::base::error::{Error, Result};
use crate::base::watch::Watch;
use crate::table::columns::Columns;
use crate::table::launch::{fold, unfold};
use crate::table::schema::{self, Table};

/// Tables by name.
pub type Tables = BTreeMap<&'static str, RecordBatch>;

/// The tables that are streams of events, with the column that orders them.
pub const EVENT_TABLES: &[(&Table, &str)] = &[
    (&schema::KERNELS, "start_ns"),
    (&schema::GRAPH_LAUNCHES, "start_ns"),
    (&schema::MEMOPS, "start_ns"),
    (&schema::SWITCH_EVENTS, "time_ns"),
    (&schema::GPU_METRICS, "time_ns"),
];

/// The event tables of a capture.
///
/// A table that is absent was not captured or not asked for.
#[derive(Debug, Clone, Copy)]
pub struct Events<'a>(&'a Tables);

impl<'a> Events<'a> {
    /// The events among `tables`, in any order.
    #[must_use]
    pub fn of(tables: &'a Tables) -> Self {
        Self(tables)
    }

    /// The events among `tables`, each table sorted by its ordering column.
    ///
    /// # Errors
    /// [`Error::Schema`] for a table that is not what it is declared to be, or not sorted.
    pub fn sorted(tables: &'a Tables) -> Result<Self> {
        for (table, order) in EVENT_TABLES {
            let Some(batch) = tables.get(table.name) else { continue };
            if !Columns::new(table, batch).i64(order)?.values().is_sorted() {
                return Err(Error::schema(&table.id(), format!("is not sorted by {order}")));
            }
        }
        Ok(Self(tables))
    }

    /// The rows of `table`.
    #[must_use]
    pub fn get(&self, table: &'static Table) -> Option<Columns<'a>> {
        self.batch(table).map(|batch| Columns::new(table, batch))
    }

    /// The same as Arrow columns.
    #[must_use]
    pub fn batch(&self, table: &'static Table) -> Option<&'a RecordBatch> {
        self.0.get(table.name)
    }
}

/// Events in, tables out.
pub trait EventPass: Sized {
    /// What it returns.
    type Output;

    /// Reads the events.
    ///
    /// # Errors
    /// A wrong table, or [`Error::Cancelled`].
    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()>;

    /// Makes the tables.
    ///
    /// # Errors
    /// As [`EventPass::push`].
    fn finish(self, watch: &dyn Watch) -> Result<Self::Output>;

    /// Reads the events of `tables` and makes the tables.
    ///
    /// # Errors
    /// As [`EventPass::push`], and [`Error::Schema`] for events that are not sorted.
    fn run(self, tables: &Tables, watch: &dyn Watch) -> Result<Self::Output> {
        self.after(tables, watch)?.finish(watch)
    }

    /// As [`EventPass::run`], without the end.
    ///
    /// # Errors
    /// As [`EventPass::run`].
    fn after(mut self, tables: &Tables, watch: &dyn Watch) -> Result<Self> {
        self.push(&Events::sorted(tables)?, watch)?;
        Ok(self)
    }
}

/// Puts batches of one table after each other.
///
/// # Errors
/// [`Error::Schema`] if they differ in their columns.
pub fn concat(table: &'static Table, batches: &[RecordBatch]) -> Result<RecordBatch> {
    if let [one] = batches {
        return Ok(one.clone());
    }
    // Each has launch configurations of its own.
    let batches = batches.iter().map(unfold).collect::<Result<Vec<_>>>()?;
    let whole = concat_batches(&table.schema(), &batches);
    let whole = whole.map_err(|e| Error::schema(&table.id(), e.to_string()))?;
    drop(batches);
    fold(table, whole)
}
