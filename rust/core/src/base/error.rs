//! Errors of the core: what failed, in which file, table and column, and what to do about it.
//!
//! One enum for the whole core. I/O errors keep their [`std::io::ErrorKind`], so that Python can raise the builtin
//! exception.

use std::path::{Path, PathBuf};

/// The result of everything in the core that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can fail in the core.
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
    #[error("{} is not a SQLite file ({detail}); pass the .sqlite that `nsys export --type sqlite` writes", path.display())]
    NotSqlite {
        /// The file.
        path: PathBuf,
        /// What was seen instead.
        detail: String,
    },
    /// A SQLite database without a single table of an nsys export.
    #[error("{} is a SQLite file but not an nsys export ({detail}); make one with `nsys export --type sqlite REPORT.nsys-rep`", path.display())]
    NotAnExport {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        detail: String,
    },
    /// A database that breaks its own format, or ends too early.
    #[error("{} is damaged: {detail}; export the report again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Table, page or offset, and what is wrong there.
        detail: String,
    },
    /// A database in the middle of a transaction that cannot be recovered in a private copy.
    #[error("{} has unfinished changes ({detail}); close the program that writes it, or run `sqlite3 FILE 'PRAGMA wal_checkpoint'` on a copy", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// The journal or write-ahead log that stands beside it.
        detail: String,
    },
    /// The file changed while it was read: half of one state and half of another is no answer.
    #[error("{} changed while it was read; wait until the export has finished and try again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A samples file that no reader knows.
    #[error("cannot read samples from {}: {detail}", path.display())]
    UnknownSamples {
        /// The file.
        path: PathBuf,
        /// Which formats are known.
        detail: String,
    },
    /// A samples file whose content breaks its own format.
    #[error("cannot read samples from {}: {detail}", path.display())]
    Samples {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        detail: String,
    },
    /// A table handed to the core does not have the declared columns.
    #[error("table {table}: {detail}; expected the columns of `pyanalyze schema --tables`")]
    Schema {
        /// `name@version`.
        table: String,
        /// Which column, and what is wrong with it.
        detail: String,
    },
    /// An argument that makes no sense.
    #[error("{0}")]
    Argument(String),
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
}

impl From<pyanalyze_sqlite::Error> for Error {
    fn from(error: pyanalyze_sqlite::Error) -> Self {
        use pyanalyze_sqlite::Error as Sqlite;
        match error {
            Sqlite::Io { action, path, source } => Self::Io { action, path, source },
            Sqlite::NotSqlite { path, detail } => Self::NotSqlite { path, detail },
            Sqlite::Damaged { path, detail } => Self::Damaged { path, detail },
            Sqlite::Unfinished { path, detail } => Self::Unfinished { path, detail },
            Sqlite::Changed { path } => Self::Changed { path },
            Sqlite::Cancelled => Self::Cancelled,
        }
    }
}

impl Error {
    /// An I/O error with its file.
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// A table error.
    pub fn schema(table: &str, detail: impl Into<String>) -> Self {
        Self::Schema { table: table.to_owned(), detail: detail.into() }
    }
}
