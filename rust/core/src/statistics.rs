//! What is the middle of these numbers, and how far do they scatter?
//!
//! Only what the rooms use. The median of an even number of values is the mean of the two middle
//! ones, as `nsys stats` computes it, so that our figures can be held against NVIDIA's.

/// The median; `None` of nothing.
#[must_use]
pub fn median(values: &[i64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    // Only the middle is put in its place: sorting millions of slices takes many times as long.
    let mut scratch = values.to_vec();
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
    far.sort_by(f64::total_cmp);
    let upper = *far.get(far.len() / 2)?;
    if far.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *far.get((far.len() / 2).checked_sub(1)?)?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
