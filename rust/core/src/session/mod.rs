//! One clock and one list of devices for all that was read.

pub mod clock;
pub mod devices;
pub(crate) mod kernel_names;
pub mod samples_only;
