//! Recorded programs under other sharing configurations.

pub(crate) mod client_order;
pub(crate) mod device;
pub(crate) mod event_queue;
pub mod forecast;
pub(crate) mod host_program;
pub mod sharing_config;
