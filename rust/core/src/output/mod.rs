//! Output for charts and for other programs.

pub mod perfetto;
pub mod timeline;
