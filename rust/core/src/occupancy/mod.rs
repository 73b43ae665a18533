//! SM occupancy: theoretical limits and modelled block placement.

mod device_replay;
mod even;
pub(crate) mod observed_blocks;
pub mod placement;
pub(crate) mod sm_array;
pub mod solo_launch;
pub mod theoretical;
mod time_bins;
