//! Reads GPU captures and reconstructs who held the GPU, when, and how full it was.
pub mod clock;
pub mod device;
pub mod error;
pub mod facts;
pub mod fold;
pub mod nsys;
pub mod occupancy;
pub mod overlap;
pub mod perfetto;
pub mod pipeline;
pub mod placement;
pub mod quality;
pub mod residency;
pub mod samples;
pub mod scheduler;
pub mod schema;
pub mod slowdown;
pub mod sqlite;
pub mod statistics;
pub mod tenants;
pub mod timeline;
pub mod watch;
pub mod whatif;

pub use error::{Error, Result};
pub use watch::Watch;
