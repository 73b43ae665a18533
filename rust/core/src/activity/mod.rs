//! Activity of tenants: overlap, attribution, launches, latencies, facts.

pub mod attribution;
pub mod features;
pub mod latencies;
pub mod launches;
pub mod overlap;
pub mod streams;
