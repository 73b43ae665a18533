//! Tables for pictures and for other programs.

pub mod perfetto;
pub mod timeline;
