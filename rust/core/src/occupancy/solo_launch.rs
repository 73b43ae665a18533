//! Mean warps per SM of one launch that runs by itself, with an interval.
//!
//! Real kernels hold fewer warps than an equal-block replay says. The first blocks start later than the kernel and the
//! last ones end before it (a fixed loss), each wave of blocks leaves slots empty until the next ones stand on them
//! (block turnover), and blocks of several waves are uneven. A last wave that is nearly empty also takes less time than
//! a full one, because its blocks have the SM to themselves.
//!
//! The coefficients are fitted on 891 launches of 40 public repositories that Nsight Compute counted (of 952, those with
//! all counters), each repository weighted by the square root of its launches. `tests/bench/launches.py` refits them with
//! every repository held out in turn, and prints the error and how often the interval holds what was counted. Nsight
//! Compute locks clocks and flushes caches, so that the fixed loss of other recordings may be anything from none to
//! twice as much: the interval allows for both.

/// Start and end of a kernel cost as much as this time without any warps: `duration / (duration + this)` of its warps
/// are left.
const START_AND_END_NS: f64 = 4_717.0;
/// Between two waves slots stand empty for this time.
const TURNOVER_NS: f64 = 310.0;
/// How much of the way from equal waves to slots that are never empty, in logarithms: 0 is the replay, 1 is
/// `min(grid, slots)`.
const REFILL: f64 = 0.315;
/// What uneven blocks leave of kernels of several waves.
const UNEVEN: f64 = 0.966;
/// No kernel holds more than its slots for all of its time, up to what counters and rounding add (exceeded by 2 of 567
/// configurations).
const MOST: f64 = 1.02;

/// Counted over modelled warps, by duration: what lies between holds 95 % or more of the launches of held-out
/// repositories. (duration below, low, high).
const SPREAD: [(f64, f64, f64); 3] =
    [(10_000.0, 0.274, 1.506), (100_000.0, 0.357, 1.207), (f64::INFINITY, 0.421, 1.155)];

/// A launch and what of it fits on its device.
#[derive(Debug, Clone, Copy)]
pub struct SoloLaunch {
    /// Blocks in the grid.
    pub grid_blocks: u64,
    /// Warps of a block.
    pub block_warps: u32,
    /// Blocks that the device holds at once.
    pub device_blocks: u64,
    /// SMs of the device.
    pub sm_count: u32,
    /// Warp slots of an SM.
    pub max_warps_per_sm: u32,
    /// From the start of the kernel to its end, in nanoseconds.
    pub duration_ns: f64,
}

/// Mean warps per SM from the start of a kernel to its end, and the interval of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanWarps {
    /// Most likely.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl SoloLaunch {
    /// Mean warps per SM; `None` where nothing fits, or the kernel has no length.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // grids and devices stay far below 2^53 blocks
    pub fn mean_warps(&self) -> Option<MeanWarps> {
        let Self { grid_blocks, device_blocks, sm_count, duration_ns, .. } = *self;
        if grid_blocks == 0
            || device_blocks == 0
            || sm_count == 0
            || duration_ns.is_nan()
            || duration_ns <= 0.0
        {
            return None;
        }
        let per_sm = f64::from(self.block_warps) / f64::from(sm_count);
        let waves = grid_blocks.div_ceil(device_blocks) as f64;
        let most = per_sm * grid_blocks.min(device_blocks) as f64;
        let equal = per_sm * grid_blocks as f64 / waves;
        let held = |loss_ns: f64| {
            let of_time = duration_ns / (duration_ns + loss_ns);
            let of_waves = if waves > 1.0 {
                let wave_ns = duration_ns / waves;
                UNEVEN * wave_ns / (wave_ns + TURNOVER_NS)
            } else {
                1.0
            };
            equal * (most / equal).powf(REFILL) * of_time * of_waves
        };
        let value = held(START_AND_END_NS);
        let (_, low, high) = SPREAD.into_iter().find(|(below_ns, ..)| duration_ns < *below_ns)?;
        let slots = f64::from(self.max_warps_per_sm);
        let low = (value * low).min(held(2.0 * START_AND_END_NS));
        let high = (value * high).max(held(0.0)).min(most * MOST).max(value).min(slots);
        Some(MeanWarps { value: value.min(slots), low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: MeanWarps, expected: [f64; 3]) {
        for (found, expected) in [found.value, found.low, found.high].into_iter().zip(expected) {
            assert!((found - expected).abs() < 0.01, "{found} is not {expected}");
        }
    }

    /// 100 SMs of 64 warps that hold 4 blocks of 8 warps each, by hand.
    fn launch(grid_blocks: u64, duration_ns: f64) -> Option<MeanWarps> {
        let (block_warps, device_blocks, sm_count, max_warps_per_sm) = (8, 400, 100, 64);
        SoloLaunch { grid_blocks, block_warps, device_blocks, sm_count, max_warps_per_sm, duration_ns }
            .mean_warps()
    }

    #[test]
    fn one_wave_loses_its_start_and_end() {
        // 200 blocks of 8 warps are 16 warps per SM; 4.717 us of 4.717 + 4.717 are lost: half. Without the loss 16, with
        // twice of it 5.33; 0.274 of 8 is 2.19, 1.506 of 8 is 12.05.
        near(launch(200, 4_717.0).unwrap(), [8.0, 2.19, 16.0]);
        // A millisecond: 1/1.004717 of 16 is 15.92; 0.421 and at most 1.02 x 16.
        near(launch(200, 1e6).unwrap(), [15.92, 6.70, 16.32]);
    }

    #[test]
    fn waves_lose_turnover() {
        // 10 full waves of 32 warps per SM in a millisecond: 100 us each, of which 310 ns are lost.
        let value = 32.0 * 0.966 * (100.0 / 100.31) / 1.004717;
        near(launch(4000, 1e6).unwrap(), [value, 0.421 * value, 1.02 * 32.0]);
        // 401 blocks are two waves, of which an equal-block replay says 16.04: between that and 32.
        let value = 16.04 * (32.0_f64 / 16.04).powf(0.315) * 0.966 * (500.0 / 500.31) / 1.004717;
        near(launch(401, 1e6).unwrap(), [value, 0.421 * value, 1.155 * value]);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!([launch(0, 1e6), launch(200, 0.0), launch(200, f64::NAN)], [None; 3]);
    }
}
