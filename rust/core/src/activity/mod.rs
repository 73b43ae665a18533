//! What tenants did, when and beside whom.

pub mod attribution;
pub mod features;
pub mod latencies;
pub mod launches;
pub mod overlap;
