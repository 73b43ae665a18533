//! Progress and cancellation: the handle that every pass takes.
//!
//! The core knows no terminal and no Python: the caller decides how progress looks and how a user cancels. Passes call
//! [`Watch::progress`] at least every few milliseconds of work and return its error at once.

use crate::base::error::{Error, Result};

/// Progress out, cancellation in.
pub trait Watch: Send + Sync {
    /// Reports that `done` of `total` units of `stage` are finished (`total` 0: not known).
    ///
    /// # Errors
    /// [`Error::Cancelled`] when the caller wants to stop.
    fn progress(&self, stage: &str, done: u64, total: u64) -> Result<()>;
}

impl pyanalyze_sqlite::Progress for dyn Watch + '_ {
    fn report(&self, table: &str, done: u64, total: u64) -> pyanalyze_sqlite::Result<()> {
        self.progress(table, done, total).map_err(|_| pyanalyze_sqlite::Error::Cancelled)
    }
}

/// Nobody is watching.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&self, _stage: &str, _done: u64, _total: u64) -> Result<()> {
        Ok(())
    }
}

/// Stops at the n-th report: how tests prove that a room listens.
#[derive(Debug)]
pub struct StopAfter(std::sync::atomic::AtomicU64);

impl StopAfter {
    /// Lets `reports` pass and cancels the next one.
    #[must_use]
    pub fn new(reports: u64) -> Self {
        Self(std::sync::atomic::AtomicU64::new(reports))
    }
}

impl Watch for StopAfter {
    fn progress(&self, _stage: &str, _done: u64, _total: u64) -> Result<()> {
        use std::sync::atomic::Ordering;
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        left.map(|_| ()).map_err(|_| Error::Cancelled)
    }
}
