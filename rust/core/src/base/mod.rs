//! What every layer may use: errors, progress, numbers, hardware.

pub mod error;
pub mod hardware;
pub mod intervals;
pub(crate) mod maps;
pub(crate) mod parallel;
pub(crate) mod picoseconds;
pub mod statistics;
pub mod watch;
