//! Activity of tenants: overlap, attribution, launches, API calls, latencies, facts.

pub mod api_calls;
pub mod attribution;
pub mod features;
pub mod host_activity;
pub mod latencies;
pub mod launches;
pub mod overlap;
pub mod streams;
