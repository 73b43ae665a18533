//! The one thread pool: that of the SQLite reader.

pub use pyanalyze_sqlite::parallel::ThreadPool;
