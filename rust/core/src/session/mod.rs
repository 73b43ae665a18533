//! One clock and one list of devices for all that was read.

pub mod clock;
pub mod devices;
pub mod samples_only;
