//! Medians, quantiles and block-bootstrap confidence intervals.
//!
//! Work in time is not independent (another tenant comes and goes, clocks drift), so intervals resample whole blocks of
//! time, not single kernels. Seeds are fixed and depend only on the number of blocks: the same table gives the same
//! interval on any machine, in any row order, on any number of threads. The median of an even number of values is the
//! mean of the two middle ones, as in `nsys stats`, so that our figures can be compared with NVIDIA's.

use std::cmp::Ordering;

/// The median; `None` of nothing.
#[must_use]
pub fn median(values: &[i64]) -> Option<f64> {
    median_of(&mut values.to_vec())
}

/// The same of values whose order nobody needs any longer.
#[must_use]
pub fn median_of(scratch: &mut [i64]) -> Option<f64> {
    if scratch.is_empty() {
        return None;
    }
    // Only the middle is put in its place: sorting millions of slices takes many times as long.
    let middle = scratch.len() / 2;
    let odd = scratch.len() % 2 == 1;
    let (below, upper, _) = scratch.select_nth_unstable(middle);
    let upper = *upper;
    if odd {
        return Some(upper as f64);
    }
    let lower = *below.iter().max()?;
    // Halved first: two times near the end of the range must not overflow.
    Some(lower as f64 / 2.0 + upper as f64 / 2.0)
}

/// The median as a whole number of nanoseconds.
#[must_use]
pub fn median_ns(values: &[i64]) -> Option<i64> {
    median(values).map(|m| m.round() as i64)
}

/// Median absolute deviation from the median; `None` of nothing.
#[must_use]
pub fn mad(values: &[i64]) -> Option<f64> {
    let middle = median(values)?;
    let mut far: Vec<f64> = values.iter().map(|v| (*v as f64 - middle).abs()).collect();
    let (at, odd) = (far.len() / 2, far.len() % 2 == 1);
    let (below, upper, _) = far.select_nth_unstable_by(at, f64::total_cmp);
    let upper = *upper;
    if odd {
        return Some(upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some((lower + upper) / 2.0)
}

/// The value at which half of the weight is reached; `None` without weight.
#[must_use]
pub fn weighted_median(values: &[(f64, u64)]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: u64 = sorted.iter().fold(0, |sum, v| sum.saturating_add(v.1));
    let mut seen = 0_u64;
    for (value, weight) in sorted {
        seen = seen.saturating_add(weight);
        if weight > 0 && seen.saturating_mul(2) >= total {
            return Some(value);
        }
    }
    None
}

/// Bootstrap samples that every interval is made of.
pub const RESAMPLES: usize = 2000;
/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Student's 95 % quantile for `freedom` degrees (Cornish-Fisher expansion, within 0.5 % from 4 degrees on).
pub(crate) fn student(freedom: f64) -> f64 {
    let (z3, z5) = (Z.powi(3), Z.powi(5));
    let z7 = Z.powi(7);
    Z + (z3 + Z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * freedom.powi(3))
}

/// How often each block is drawn in each resample: one draw for all statistics over the same blocks.
#[derive(Debug, Clone)]
pub struct Resamples {
    blocks: usize,
    /// `RESAMPLES` rows of `blocks` counts.
    counts: Vec<f64>,
}

impl Resamples {
    /// Draws `blocks` of `blocks`, with replacement.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        let mut counts = vec![0.0; RESAMPLES.saturating_mul(blocks)];
        let mut state = 0x5EED_0000_0000_0000_u64 ^ blocks as u64;
        for row in counts.chunks_mut(blocks.max(1)) {
            for _ in 0..blocks {
                // SplitMix64 (Steele, Lea, Flood 2014).
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut x = state;
                x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                x ^= x >> 31;
                let drawn = ((u128::from(x) * blocks as u128) >> 64) as usize;
                if let Some(count) = row.get_mut(drawn) {
                    *count += 1.0;
                }
            }
        }
        Self { blocks, counts }
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// `statistic` of the sums of each resample; a resample without a finite value is left out. The sums are those of
    /// `columns`, each with one value per block.
    #[must_use]
    pub fn replicates<const N: usize>(
        &self,
        columns: &[&[f64]; N],
        statistic: impl Fn(&[f64; N]) -> f64,
    ) -> Vec<f64> {
        // Most blocks of a rare signature are empty.
        let filled: Vec<usize> = (0..self.blocks)
            .filter(|b| columns.iter().any(|c| c.get(*b).is_some_and(|v| *v != 0.0)))
            .collect();
        let packed: Vec<[f64; N]> = filled
            .iter()
            .map(|b| std::array::from_fn(|n| columns.get(n).and_then(|c| c.get(*b)).copied().unwrap_or(0.0)))
            .collect();
        let dense = filled.len() == self.blocks;
        let mut out = Vec::with_capacity(RESAMPLES);
        for row in self.counts.chunks(self.blocks.max(1)) {
            let mut sums = [0.0; N];
            let mut add = |times: f64, values: &[f64; N]| {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += times * value;
                }
            };
            if dense {
                row.iter().zip(&packed).for_each(|(times, values)| add(*times, values));
            } else {
                for (block, values) in filled.iter().zip(&packed) {
                    add(row.get(*block).copied().unwrap_or(0.0), values);
                }
            }
            let value = statistic(&sums);
            if value.is_finite() {
                out.push(value);
            }
        }
        out
    }

    /// The sums of each resample over any number of columns.
    pub fn sums<'a>(&'a self, columns: &'a [Vec<f64>]) -> impl Iterator<Item = Vec<f64>> + 'a {
        self.counts.chunks(self.blocks.max(1)).map(move |row| {
            columns.iter().map(|c| c.iter().zip(row).map(|(value, times)| value * times).sum()).collect()
        })
    }

    /// The 95 % interval around `value` that replicates span, widened for few blocks as Student's t is.
    #[must_use]
    pub fn interval(&self, value: f64, mut replicates: Vec<f64>, blocks: usize) -> Option<(f64, f64)> {
        // Where hardly any resample has a value, those that have one are no fair sample.
        if blocks < 2 || replicates.len() < RESAMPLES * 9 / 10 {
            return None;
        }
        let last = (replicates.len() - 1) as f64;
        let places = ((0.025 * last).round() as usize, (0.975 * last).round() as usize);
        // Two places are wanted, not the order of all.
        let (_, low, above) = replicates.select_nth_unstable_by(places.0, f64::total_cmp);
        let low = *low;
        let high = match places.1.checked_sub(places.0 + 1) {
            Some(place) if place < above.len() => *above.select_nth_unstable_by(place, f64::total_cmp).1,
            _ => low,
        };
        let freedom = (blocks - 1) as f64;
        let widen = student(freedom) / Z * (blocks as f64 / freedom).sqrt();
        Some((value + (low - value).min(0.0) * widen, value + (high - value).max(0.0) * widen))
    }

    /// Ratio of two sums with its 95 % interval, formed on the logarithm.
    #[must_use]
    pub fn ratio(&self, over: &[f64], under: &[f64]) -> Option<(f64, f64, f64)> {
        let (a, b): (f64, f64) = (over.iter().sum(), under.iter().sum());
        let value = (a / b).ln();
        let filled = under.iter().filter(|v| **v != 0.0).count();
        let drawn = self.replicates(&[over, under], |s| (s[0] / s[1]).ln());
        let (low, high) = self.interval(value, drawn, filled)?;
        value.is_finite().then(|| (value.exp(), low.exp(), high.exp()))
    }
}

/// Cliff's delta: how much more likely a value of `b` exceeds one of `a` than the other way round; 0 no effect, 1 always.
/// Both sorted.
#[must_use]
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (mut below, mut up_to, mut sum) = (0_usize, 0_usize, 0.0);
    for value in b {
        while a.get(below).is_some_and(|x| x < value) {
            below += 1;
        }
        up_to = up_to.max(below);
        while a.get(up_to).is_some_and(|x| x <= value) {
            up_to += 1;
        }
        sum += below as f64 - (a.len() - up_to) as f64;
    }
    Some(sum / (a.len() as f64 * b.len() as f64))
}

/// Quantiles of values in any order, which are left in another: as [`quantile`] of those sorted by `order`. `parts` rise.
#[must_use]
pub fn quantiles<T: Copy, const N: usize>(
    values: &mut [T],
    mut order: impl FnMut(&T, &T) -> Ordering,
    parts: [f64; N],
) -> [Option<T>; N] {
    let (mut rest, mut passed) = (values, 0_usize);
    let all = rest.len();
    let mut last = None;
    parts.map(|part| {
        let place = ((part * all as f64).ceil() as usize).saturating_sub(1);
        if place >= all {
            return None;
        }
        if let Some(inside) = place.checked_sub(passed) {
            let (_, value, above) = std::mem::take(&mut rest).select_nth_unstable_by(inside, &mut order);
            last = Some(*value);
            rest = above;
            passed = place + 1;
        }
        last
    })
}

/// A quantile of sorted values: the smallest that at least this part of them does not exceed.
#[must_use]
pub fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied()
}

/// The same of values with weights, in any order: the smallest up to which at least this part of the weight lies.
#[must_use]
pub fn weighted_quantiles<const N: usize>(values: &mut [(f64, f64)], parts: [f64; N]) -> [Option<f64>; N] {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let whole: f64 = values.iter().map(|(_, weight)| weight).sum();
    parts.map(|part| {
        let mut passed = 0.0;
        let reached = |(_, weight): &&(f64, f64)| {
            passed += weight;
            // A sum of parts of one may miss a whole number by its last bits.
            passed >= part * whole * (1.0 - f64::EPSILON.sqrt())
        };
        values.iter().find(reached).map(|(value, _)| *value)
    })
}

/// The same of whole numbers in any order.
#[must_use]
pub fn nearest_rank(values: &mut [i64], part: f64) -> Option<i64> {
    let last = values.len().checked_sub(1)?;
    let place = (part * values.len() as f64).ceil() as usize;
    Some(*values.select_nth_unstable(place.saturating_sub(1).min(last)).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rank_is_a_value_that_so_many_do_not_pass() {
        let mut hundred: Vec<i64> = (1..=100).rev().collect();
        assert_eq!(nearest_rank(&mut hundred, 0.99), Some(99));
        assert_eq!(nearest_rank(&mut hundred, 0.5), Some(50));
        // Of 80 the 80th: 79 are 98.75 %.
        assert_eq!(nearest_rank(&mut (1..=80).collect::<Vec<i64>>(), 0.99), Some(80));
        assert_eq!(nearest_rank(&mut [], 0.5), None);
    }

    #[test]
    fn median_is_the_mean_of_the_two_middles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7]), Some(7.0));
        assert_eq!(median(&[9, 1, 4]), Some(4.0));
        assert_eq!(median(&[9, 1, 4, 5]), Some(4.5));
        assert_eq!(median_ns(&[i64::MAX, i64::MAX]), Some(i64::MAX));
    }

    #[test]
    fn mad_is_not_moved_by_one_outlier() {
        // deviations from 3: 2 1 0 1 997 -> sorted 0 1 1 2 997
        assert_eq!(mad(&[1, 2, 3, 4, 1000]), Some(1.0));
        // deviations from 2.5: 1.5 .5 .5 1.5
        assert_eq!(mad(&[1, 2, 3, 4]), Some(1.0));
        assert_eq!(mad(&[]), None);
    }

    #[test]
    fn weight_decides() {
        assert_eq!(weighted_median(&[(1.0, 1), (5.0, 10)]), Some(5.0));
        assert_eq!(weighted_median(&[(5.0, 1), (1.0, 1)]), Some(1.0));
        assert_eq!(weighted_median(&[(5.0, 0)]), None);
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, table) in [(4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1000.0, 1.962)] {
            assert!((student(freedom) / table - 1.0).abs() < 0.005, "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn an_interval_of_a_ratio_holds_what_theory_says() {
        // 40 blocks; over: alternately 9 and 11, under: 10. Standard error of the mean of `over` is
        // 1 / sqrt(40) = 0.158: ln ratio +- 1.96 * 0.0158, widened by t(39) / z * sqrt(40 / 39) = 1.045.
        let over: Vec<f64> = (0..40).map(|n| if n % 2 == 0 { 9.0 } else { 11.0 }).collect();
        let (value, low, high) = Resamples::new(40).ratio(&over, &[10.0; 40]).unwrap();
        assert!((value - 1.0).abs() < 1e-12);
        let half = 1.96 * 0.0158 * 1.045;
        assert!((low.ln() + half).abs() < 0.002 && (high.ln() - half).abs() < 0.002, "{low} {high}");
        assert_eq!(Resamples::new(40).ratio(&over, &[10.0; 40]), Some((value, low, high)));
    }

    #[test]
    fn nothing_can_be_said_of_one_block() {
        assert_eq!(Resamples::new(1).ratio(&[2.0], &[1.0]), None);
        assert_eq!(Resamples::new(5).ratio(&[0.0; 5], &[0.0; 5]), None);
        // All in one of five blocks: a third of the resamples miss it.
        assert_eq!(Resamples::new(5).ratio(&[2.0, 0.0, 0.0, 0.0, 0.0], &[1.0, 0.0, 0.0, 0.0, 0.0]), None);
    }

    #[test]
    fn cliffs_delta_by_hand() {
        assert_eq!(cliffs_delta(&[1.0, 2.0], &[3.0, 4.0]), Some(1.0));
        assert_eq!(cliffs_delta(&[1.0, 2.0], &[1.0, 2.0]), Some(0.0));
        // pairs (a,b): (1,0)- (1,3)+ (2,0)- (2,3)+ (4,0)- (4,3)-: 2 up, 4 down of 6
        assert_eq!(cliffs_delta(&[1.0, 2.0, 4.0], &[0.0, 3.0]), Some(-2.0 / 6.0));
        assert_eq!(cliffs_delta(&[], &[1.0]), None);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(50.0));
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&[7.0], 0.01), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
        let mut mixed: Vec<f64> = (0..1000).map(|n| f64::from(n * 7919 % 1000)).collect();
        assert_eq!(
            quantiles(&mut mixed, f64::total_cmp, [0.25, 0.5, 0.5, 0.99]),
            [Some(249.0), Some(499.0), Some(499.0), Some(989.0)]
        );
        assert_eq!(quantiles(&mut [7], i64::cmp, [0.5, 0.95, 0.99]), [Some(7); 3]);
        assert_eq!(quantiles(&mut [], i64::cmp, [0.5]), [None]);
    }

    #[test]
    fn a_value_with_weight_counts_as_often() {
        // 1 1 1 1 1 1 2 3 3 3
        let mut values = [(3.0, 1.5), (1.0, 6.0), (2.0, 1.0), (3.0, 1.5)];
        assert_eq!(weighted_quantiles(&mut values, [0.6, 0.7, 0.75]), [Some(1.0), Some(2.0), Some(3.0)]);
        let mut thirds = [1.0, 2.0, 3.0].map(|value| (value, 1.0 / 3.0));
        assert_eq!(weighted_quantiles(&mut thirds, [1.0 / 3.0, 1.0]), [Some(1.0), Some(3.0)]);
        assert_eq!(weighted_quantiles(&mut [], [0.5]), [None]);
    }
}
