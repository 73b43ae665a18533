//! Reads GPU captures and reconstructs which tenant used the GPU, when, and how full it was.
//!
//! The modules are layers: each uses only those above it in this list (`tests/layers.rs`).

pub mod base;

pub mod table;

pub mod read;

pub mod session;

pub mod residency;

pub mod identity;

pub mod occupancy;

pub mod activity;

pub mod simulate;

pub mod slowdown;

pub mod explain;

pub mod output;

pub mod pipeline;

#[cfg(test)]
mod test_tables;

pub use base::error::{Error, Result};
pub use base::watch::Watch;
