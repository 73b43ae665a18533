//! Reads GPU captures and reconstructs who held the GPU, when, and how full it was.
pub mod device;
pub mod error;
pub mod fold;
pub mod occupancy;
pub mod placement;
pub mod quality;
pub mod samples;
pub mod schema;
pub mod watch;

pub use error::{Error, Result};
pub use watch::Watch;
