//! One clock and one list of devices for all that was read.

pub mod clock;
pub mod devices;
pub(crate) mod recorded_together;
pub mod samples_only;
