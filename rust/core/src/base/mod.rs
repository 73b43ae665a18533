//! Used by every layer: errors, progress, statistics, hardware constants.

#[cfg(test)]
pub(crate) mod draws;
pub mod error;
pub mod hardware;
pub(crate) mod id_set;
pub mod intervals;
pub(crate) mod maps;
pub(crate) mod parallel;
pub(crate) mod pauses;
pub(crate) mod picoseconds;
pub mod statistics;
pub mod watch;
