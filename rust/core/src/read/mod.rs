//! Readers of the files that users hold.

pub mod nsys;
pub mod samples;
