//! Readers of exports and samples.

pub mod nsys;
pub mod samples;
