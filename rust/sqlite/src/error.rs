//! Errors of a SQLite file.

use std::path::{Path, PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can fail in this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb: `read`, `copy`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason the operating system gave.
        source: std::io::Error,
    },
    /// The file is not a SQLite database.
    #[error("{} is not a SQLite file ({detail})", path.display())]
    NotSqlite {
        /// The file.
        path: PathBuf,
        /// What was seen instead.
        detail: String,
    },
    /// A database that breaks its own format, or ends too early.
    #[error("{} is damaged: {detail}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Table, page or offset, and what is wrong there.
        detail: String,
    },
    /// A database in the middle of a transaction that cannot be recovered in a private copy.
    #[error("{} has unfinished changes ({detail})", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// The journal or write-ahead log that stands beside it.
        detail: String,
    },
    /// The file changed while it was read: half of one state and half of another is no answer.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// An I/O error with its file.
    pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }
}
