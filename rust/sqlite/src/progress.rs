//! Progress of reading, and cancellation.

use crate::error::Result;

/// Progress out, cancellation in.
pub trait Progress: Sync {
    /// Reports that `done` of `total` rows of `table` are read (`total` 0: not known).
    ///
    /// # Errors
    /// [`crate::Error::Cancelled`] when the caller wants to stop.
    fn report(&self, table: &str, done: u64, total: u64) -> Result<()>;
}

/// Never stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn report(&self, _table: &str, _done: u64, _total: u64) -> Result<()> {
        Ok(())
    }
}
