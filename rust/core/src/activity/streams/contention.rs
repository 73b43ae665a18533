//! The same kernel beside another stream and solo.
//!
//! A kernel of duration d of which the other stream was in flight for o took d - o at its own speed. So o is the time of the work
//! that solo takes s - (d - o), with s the mean solo duration, and the slowdown beside the other stream is the sum of o
//! over the sum of that. Where the other stream covers the whole kernel, this is d over s.

use std::collections::BTreeMap;

use crate::base::maps::NumberMap;
use crate::base::statistics::{median_ns, student};

/// A part of its duration up to which other streams may have been in flight for a launch to count as solo.
const SOLO_AT_MOST: f64 = 0.02;
/// A part of its duration from which on a launch counts as beside another stream: less of it says little about the
/// slowdown, whatever the interval.
const BESIDE_AT_LEAST: f64 = 0.5;
/// Launches on either side without which no slowdown is given.
const MIN_LAUNCHES: usize = 5;
/// Half of the interval over the slowdown, at most: a wider one says nothing.
const MAX_HALF_WIDTH: f64 = 0.5;

/// What makes two launches the same kernel: name, grid, block.
pub(super) type Identity = (Option<u32>, Option<u64>, Option<u32>);

/// Launches of one kernel in one stream beside one other stream.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Duration, and how long of it the other stream was in flight.
    pub launches: Vec<(i64, i64)>,
    /// How many of them were nodes of graphs.
    pub nodes: u64,
    /// Overlap by name of the other's kernels.
    pub kernels: BTreeMap<u32, i64>,
}

/// Durations of the kernels of a process.
#[derive(Debug, Default)]
pub(super) struct Durations {
    pub solo: NumberMap<Identity, Vec<i64>>,
    /// How many of those were nodes of graphs.
    pub solo_nodes: NumberMap<Identity, u64>,
    /// By kernel, its stream, the other stream.
    pub beside: BTreeMap<(usize, Identity, usize), Beside>,
}

impl Durations {
    /// Adds a launch, a node of a graph or not: `others_ns` is how long any other stream was in flight meanwhile,
    /// `overlap_ns` each of them.
    ///
    /// Returns the stream beside which it counts.
    pub(super) fn add(
        &mut self,
        stream: usize,
        (identity, node): (Identity, bool),
        duration_ns: i64,
        others_ns: i64,
        overlap_ns: &[i64],
    ) -> Option<usize> {
        let part = |ns: i64| ns as f64 / duration_ns.max(1) as f64;
        if part(others_ns) <= SOLO_AT_MOST {
            self.solo.entry(identity).or_default().push(duration_ns);
            *self.solo_nodes.entry(identity).or_default() += u64::from(node);
            return None;
        }
        let (most, place) = overlap_ns
            .iter()
            .enumerate()
            .map(|(place, ns)| (*ns, place))
            .max_by_key(|(ns, place)| (*ns, std::cmp::Reverse(*place)))?;
        // Beside several it is not known whose the slowdown is: one after the other, or at once.
        let another = overlap_ns.iter().enumerate().any(|(at, ns)| at != place && part(*ns) > SOLO_AT_MOST);
        if part(most) < BESIDE_AT_LEAST || another {
            return None;
        }
        let beside = self.beside.entry((stream, identity, place)).or_default();
        beside.launches.push((duration_ns, most));
        beside.nodes += u64::from(node);
        Some(place)
    }
}

/// Slowdown with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slowdown {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

/// How many times as long it took while the other stream was in flight; `None` where launches are too few, or the interval
/// says nothing.
pub(super) fn slowdown(launches: &[(i64, i64)], solo: &[i64]) -> Option<Slowdown> {
    if launches.len() < MIN_LAUNCHES || solo.len() < MIN_LAUNCHES {
        return None;
    }
    let (n, n_solo) = (launches.len() as f64, solo.len() as f64);
    let mean_solo = solo.iter().map(|ns| *ns as f64).sum::<f64>() / n_solo;
    let var_solo = solo.iter().map(|ns| (*ns as f64 - mean_solo).powi(2)).sum::<f64>() / (n_solo - 1.0);
    // While the other was in flight: its time, and what the same work takes solo.
    let pairs = || launches.iter().map(|(d, o)| (*o as f64, mean_solo - (*d - *o) as f64));
    let beside = pairs().map(|(o, _)| o).sum::<f64>() / n;
    let work = pairs().map(|(_, work)| work).sum::<f64>() / n;
    if work <= 0.0 || beside <= 0.0 {
        return None;
    }
    let ratio = beside / work;
    // Of a quotient of means, to first order; the solo mean is in every denominator.
    let rest = pairs().map(|(o, w)| (o - ratio * w).powi(2)).sum::<f64>() / (n - 1.0);
    let (one, other) = (rest / n, ratio.powi(2) * var_solo / n_solo);
    let variance = (one + other) / (work * work);
    // Welch and Satterthwaite.
    let freedom = if one + other > 0.0 {
        (one + other).powi(2) / (one.powi(2) / (n - 1.0) + other.powi(2) / (n_solo - 1.0))
    } else {
        n + n_solo - 2.0
    };
    // A factor is as likely to be twice as half: the interval is of its logarithm.
    let half = student(freedom) * variance.sqrt() / ratio;
    let told = Slowdown { ratio, low: ratio * (-half).exp(), high: ratio * half.exp() };
    (half.is_finite() && half <= MAX_HALF_WIDTH && told.low > 0.0).then_some(told)
}

/// How much longer launches took than solo, all in all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Added {
    pub ns: f64,
    /// Half of the 95 % interval: of what these launches would have taken solo, and of the solo mean.
    pub half_ns: f64,
}

/// What the other stream added to launches beside it; `None` where solo launches are too few.
pub(super) fn added(launches: &[(i64, i64)], solo: &[i64]) -> Option<Added> {
    if launches.is_empty() || solo.len() < MIN_LAUNCHES {
        return None;
    }
    let (n, n_solo) = (launches.len() as f64, solo.len() as f64);
    let mean = solo.iter().map(|ns| *ns as f64).sum::<f64>() / n_solo;
    let variance = solo.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum::<f64>() / (n_solo - 1.0);
    let took = launches.iter().map(|(d, _)| *d as f64).sum::<f64>();
    let half_ns = student(n_solo - 1.0) * (variance * (n + n * n / n_solo)).sqrt();
    Some(Added { ns: took - n * mean, half_ns })
}

/// Median of durations.
pub(super) fn median_of(launches: &[(i64, i64)]) -> Option<i64> {
    median_ns(&launches.iter().map(|(d, _)| *d).collect::<Vec<i64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_covered_takes_its_duration_over_the_solo_one() {
        // 330 of 180 us each: 1.8333.
        let told = slowdown(&[(330_000, 330_000); 6], &[180_000; 6]).unwrap();
        assert!((told.ratio - 1.833_333).abs() < 1e-5 && told.low == told.ratio && told.high == told.ratio);
    }

    #[test]
    fn only_the_covered_part_counts() {
        // 100 us solo; 60 of 130 us at its own speed, so 70 us for what takes 40 solo: 1.75.
        let told = slowdown(&[(130, 70); 5], &[100; 5]).unwrap();
        assert!((told.ratio - 1.75).abs() < 1e-12);
    }

    #[test]
    fn few_launches_and_wide_intervals_tell_nothing() {
        assert_eq!(slowdown(&[(330, 330); 4], &[180; 5]), None);
        assert_eq!(slowdown(&[(330, 330); 5], &[180; 4]), None);
        // 0.07 to 13.7 is no answer.
        assert_eq!(
            slowdown(&[(100, 50), (900, 60), (100, 80), (4000, 90), (120, 60)], &[100, 2000, 90, 700, 80]),
            None
        );
        // A kernel that took less than the part that was not covered needs more than it has.
        assert_eq!(slowdown(&[(300, 1); 5], &[100; 5]), None);
    }

    #[test]
    fn the_interval_is_that_of_two_means() {
        // Beside: mean 200, standard deviation sqrt(250), 5 launches; solo: 100, sqrt(62.5), 5 launches.
        let beside = [180, 190, 200, 210, 220].map(|d| (d, d));
        let told = slowdown(&beside, &[90, 95, 100, 105, 110]).unwrap();
        // Both have a relative variance of 250/5/200^2 = 62.5/5/100^2 = 0.00125: half width t(8) * 0.05 = 2.306 * 0.05.
        assert!((told.ratio - 2.0).abs() < 1e-12);
        assert!((told.low - 2.0 * (-0.1153_f64).exp()).abs() < 0.002, "{told:?}");
        assert!((told.high - 2.0 * 0.1153_f64.exp()).abs() < 0.002, "{told:?}");
    }

    #[test]
    fn what_was_added_is_uncertain_by_the_work_of_the_launches_and_by_the_solo_mean() {
        // Solo: mean 100, variance 62.5, 5 launches. Beside: 3 launches of 200: 600 - 300.
        let told = added(&[(200, 200); 3], &[90, 95, 100, 105, 110]).unwrap();
        assert!((told.ns - 300.0).abs() < 1e-9);
        // t(4) = 2.776; 62.5 x (3 + 9/5) = 300.
        assert!((told.half_ns - 2.776 * 300.0_f64.sqrt()).abs() < 0.2, "{told:?}");
        assert_eq!(added(&[(200, 200); 3], &[100; 4]), None);
        assert_eq!(added(&[], &[100; 5]), None);
    }

    #[test]
    fn a_launch_counts_beside_the_one_stream_that_covers_it() {
        let mut durations = Durations::default();
        let id = (Some(1), Some(8), Some(128));
        let (kernel, node) = ((id, false), (id, true));
        assert_eq!(durations.add(0, kernel, 100, 2, &[0, 2]), None);
        assert_eq!(durations.add(0, node, 100, 60, &[0, 60]), Some(1));
        assert_eq!(durations.add(0, kernel, 100, 49, &[0, 49]), None);
        assert_eq!(durations.add(0, kernel, 100, 100, &[0, 60, 70]), None);
        // Both cover all of it: which one slowed it?
        assert_eq!(durations.add(0, kernel, 100, 100, &[0, 100, 100]), None);
        assert_eq!((durations.solo[&id].len(), durations.beside.len()), (1, 1));
        assert_eq!((durations.solo_nodes[&id], durations.beside[&(0, id, 1)].nodes), (0, 1));
    }
}
