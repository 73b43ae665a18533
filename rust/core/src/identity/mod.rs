//! Which processes, contexts and pids are one tenant.

pub(crate) mod pid_match;
pub mod tenants;
