//! Residency of contexts on the compute engine: observed by switch records, or inferred.

pub mod inferred;
pub(crate) mod inferred_single;
pub(crate) mod inferred_unknown;
pub mod observed;
pub(crate) mod recorded_time;
pub mod summary;
