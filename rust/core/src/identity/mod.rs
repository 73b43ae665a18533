//! Identity of tenants over processes, contexts and pids.

pub(crate) mod pid_match;
pub mod tenants;
