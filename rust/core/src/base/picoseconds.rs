//! Simulation time in picoseconds.

/// Internal time: picoseconds, so that a kernel divides into waves without a loss that shows. 106 days fit.
pub(crate) type Ps = i64;

pub(crate) fn ps(ns: i64) -> Ps {
    ns.saturating_mul(1000)
}
