//! How many blocks fit on the SMs, and how many were there.

mod device_replay;
mod even;
pub(crate) mod observed_blocks;
pub mod placement;
pub(crate) mod sm_array;
pub mod theoretical;
mod time_bins;
