//! Equal time bins of a window, and the earliest of several times.

use crate::base::picoseconds::{ps, Ps};

/// Equal parts of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bins {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) n: usize,
}

/// Before the window by so much, simulation time is zero: nothing that began in it is left out.
const BEFORE_NS: i64 = 86_400_000_000_000;

impl Bins {
    /// Simulation time. Where the clock of a capture is far along, it begins with the day before the window.
    pub(super) fn ps(&self, ns: i64) -> Ps {
        ps(ns.saturating_sub(self.start_ns.saturating_sub(BEFORE_NS).max(0)))
    }

    /// Where bin `i` begins: edges are whole nanoseconds, the last is the end of the window.
    pub(super) fn edge(&self, i: usize) -> i64 {
        // Almost always 64 bits are enough, and many times as fast.
        if let (Some(length), Ok(at), Ok(n)) =
            (self.end_ns.checked_sub(self.start_ns), i64::try_from(i), i64::try_from(self.n))
        {
            if let Some(offset) = length.checked_mul(at) {
                return self.start_ns.saturating_add(offset / n.max(1));
            }
        }
        let length = i128::from(self.end_ns) - i128::from(self.start_ns);
        let offset = length * i as i128 / (self.n as i128);
        i64::try_from(i128::from(self.start_ns) + offset).unwrap_or(self.end_ns)
    }

    pub(super) fn bin_of(&self, time_ns: i64) -> usize {
        let length = (i128::from(self.end_ns) - i128::from(self.start_ns)).max(1);
        let offset = i128::from(time_ns) - i128::from(self.start_ns);
        let mut bin = usize::try_from(offset * self.n as i128 / length).unwrap_or(0).min(self.n - 1);
        // Edges are rounded down, so the bin may be the one before or after.
        while bin + 1 < self.n && self.edge(bin + 1) <= time_ns {
            bin += 1;
        }
        while bin > 0 && self.edge(bin) > time_ns {
            bin -= 1;
        }
        bin
    }

    /// Calls `each` with every bin that `[from, to)` touches and the time in it; `cursor` is a bin not after `from`'s,
    /// and left at the last.
    #[allow(clippy::cast_precision_loss)] // a bin is shorter than 2^53 ns (104 days)
    pub(super) fn each(
        &self,
        cursor: &mut usize,
        from_ns: i64,
        to_ns: i64,
        mut each: impl FnMut(usize, f64),
    ) {
        let (mut at, to) = (from_ns.max(self.start_ns), to_ns.min(self.end_ns));
        if at >= to {
            return;
        }
        if self.edge(*cursor + 1) <= at {
            *cursor = self.bin_of(at);
        }
        while at < to {
            let end = self.edge(*cursor + 1);
            let until = end.min(to);
            each(*cursor, (until - at) as f64);
            at = until;
            if at < to {
                *cursor += 1;
            }
        }
    }
}

/// The least of some times, which begin somewhere above zero: where?
#[derive(Debug, Default)]
pub(super) struct Nearest(pub(super) Vec<i64>);

impl Nearest {
    /// How many are kept.
    pub(super) const KEPT: usize = 8;
    /// The edge must be known to one part of a slice in this many.
    pub(super) const EXACT: i64 = 50;

    pub(super) fn see(&mut self, ns: i64) {
        if self.0.len() < Self::KEPT || self.0.last().is_some_and(|last| ns < *last) {
            let at = self.0.partition_point(|kept| *kept <= ns);
            self.0.insert(at, ns);
            self.0.truncate(Self::KEPT);
        }
    }

    /// As far below the least as they lie apart; `None` where they are too few, too far apart, or half a slice away.
    pub(super) fn edge(&self, slice_ns: i64) -> Option<i64> {
        let (first, last) = (*self.0.first()?, *self.0.get(Self::KEPT - 1)?);
        let apart = last.saturating_sub(first) / (Self::KEPT as i64 - 1);
        let edge = (first - apart).max(0);
        (apart <= slice_ns / Self::EXACT && edge < slice_ns / 2).then_some(edge)
    }
}
