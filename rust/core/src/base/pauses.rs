//! Pauses of hosts: does one last as long as it lasts, or does it end at a moment? And how long do they take to wake?

use std::hash::Hasher;

use crate::base::hardware::{MOSTLY, PAUSE_NS, WAKE_NS};
use crate::base::maps::{NumberHasher, NumberMap};
use crate::base::statistics::{median_ns, quantiles, student};

/// How long after what it waited for a call may return that took so long: a host that slept for long takes longer to wake,
/// and one that polls looks now and then.
pub(crate) fn wake_ns(call_ns: i64, noticed_within_ns: i64) -> i64 {
    WAKE_NS.max(call_ns / 10).max(noticed_within_ns)
}

/// Pauses are those of a program which has not begun its work: of the time from first to last operation, together; over
/// any pause later; and the part of execution before the last of them, at most. On an H100 two programs waited 1.84 and
/// 3.56 s for their start, and worked for one. A JAX trainer on an H200 compiled for 1.8 s in six pauses of 40 to 829 ms,
/// before a twentieth of its work, and paused for at most 1 ms after a tenth of it.
pub(crate) const PAUSE_PART: f64 = 0.1;
const PAUSE_TO_LATER: f64 = 10.0;
pub(crate) const STARTUP_PART: f64 = 0.1;

/// The operation behind the last pause before a program begins its work: what it does and how long it waits once, before,
/// does not grow with the work. 0 without such pauses.
///
/// Takes each pause with the number of the operation behind it, the operation with which [`STARTUP_PART`] of the execution
/// time is done, and the time from first to last operation.
pub(crate) fn work_begins(
    pauses: impl Iterator<Item = (i64, usize)> + Clone,
    begun: usize,
    span_ns: i64,
) -> usize {
    let later_ns = pauses.clone().filter(|(_, n)| *n > begun).map(|(ns, _)| ns).max().unwrap_or(0);
    let long =
        |(ns, n): &(i64, usize)| *n <= begun && *ns as f64 >= PAUSE_TO_LATER * later_ns as f64 && *ns > 0;
    let (mut together_ns, mut last) = (0_i64, 0);
    for (ns, n) in pauses.filter(long) {
        together_ns = together_ns.saturating_add(ns);
        last = n;
    }
    if together_ns as f64 >= PAUSE_PART * span_ns as f64 {
        last
    } else {
        0
    }
}

/// Idle times of a thread with work in flight that must end with that work before it counts as waited for.
const ENOUGH_WAITS: u32 = 5;

/// Idle times of a thread with work in flight. One that waits for its work without a call, such as for a flag in memory
/// that a kernel sets, is idle so until about the end of what it launched last:
///
/// ```text
///   host      |la|  ..idle..   |sync||la|  ..idle..       |la|
///   device        |====k1======|         |=====k2=======|
/// ```
/// It may also have been busy with itself by chance. Where that is not so of any other such time, or hardly any, it
/// waited.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdleTimes {
    with_work: u32,
    others: u32,
}

impl IdleTimes {
    /// The thread was idle from one call to the next, and what it launched ends then.
    pub fn see(&mut self, from_ns: i64, to_ns: i64, work_ns: i64) {
        match ends_with(from_ns, to_ns, work_ns) {
            Some(true) => self.with_work = self.with_work.saturating_add(1),
            Some(false) => self.others = self.others.saturating_add(1),
            None => {}
        }
    }

    /// Whether those that end with the work are waits; `None`: what was seen says so, but is too little.
    pub fn are_waits(self) -> Option<bool> {
        let mostly = self.with_work > 0 && self.with_work >= MOSTLY.saturating_mul(self.others);
        (!mostly || self.with_work >= ENOUGH_WAITS).then_some(mostly)
    }
}

/// Whether a thread was idle, from one call to the next, until about the end of its work; `None`: it was not idle, or
/// had no work in flight.
pub(crate) fn ends_with(from_ns: i64, to_ns: i64, work_ns: i64) -> Option<bool> {
    let idle_ns = to_ns.saturating_sub(from_ns);
    let apart_ns = to_ns.saturating_sub(work_ns).saturating_abs();
    (idle_ns > PAUSE_NS && work_ns > from_ns).then(|| apart_ns <= wake_ns(idle_ns, 0))
}

/// A frame rate shows in so many frames, the part of a program's pauses that end one, and by how much these may differ
/// in length from the usual one.
const ENOUGH_FRAMES: usize = 8;
const MOST_FRAMES: f64 = 0.8;
const FRAME_SPREAD: f64 = 0.2;
/// Frames vary by no more than this part of what the work in them does: otherwise work and pause follow each other.
const STEADIER: f64 = 0.5;

/// Whether pauses end at moments: what a thread worked longer than usual, it paused less. Of each: the work before it, and
/// the pause.
///
/// ```text
///   work |======|     pause     |==========|   pause   |=====|     pause      |
///        <------ a frame ------><------ a frame ------><------ a frame ------->
/// ```
/// Where something else varies the pauses more than that does (requests that come when they come), it cannot be seen.
pub(crate) fn is_paced(pauses: &[(i64, i64)]) -> bool {
    // Of about the usual length: a phase between two pauses of another kind is no frame.
    let frame = |(worked, paused): &(i64, i64)| worked.saturating_add(*paused);
    let Some(usual) = median_ns(&pauses.iter().map(frame).collect::<Vec<_>>()) else { return false };
    let near = |p: &&(i64, i64)| (frame(p) as f64 - usual as f64).abs() <= FRAME_SPREAD * usual as f64;
    let alike: Vec<&(i64, i64)> = pauses.iter().filter(near).collect();
    if alike.len() < ENOUGH_FRAMES || (alike.len() as f64) < MOST_FRAMES * pauses.len() as f64 {
        return false;
    }
    let spread = |of: fn(&(i64, i64)) -> i64| {
        let mean = alike.iter().map(|p| of(p) as f64).sum::<f64>() / alike.len() as f64;
        (alike.iter().map(|p| (of(p) as f64 - mean).powi(2)).sum::<f64>() / alike.len() as f64).sqrt()
    };
    spread(frame) < spread(|p| p.0) * STEADIER
}

/// Which part of a program's pauses end at moments, 0 for none, 1 for all, at least and at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UntilMoments {
    pub least: f64,
    pub most: f64,
}

impl UntilMoments {
    pub const UNKNOWN: Self = Self { least: 0.0, most: 1.0 };
    pub const ALL: Self = Self { least: 1.0, most: 1.0 };

    /// Whether more of them do than do not, surely.
    pub fn mostly(self) -> bool {
        self.least > 0.5
    }

    /// Whether so few of them do, surely, that it makes no difference.
    pub fn hardly(self) -> bool {
        self.most < HARDLY
    }
}

/// So small a part of pauses hardly changes a run.
const HARDLY: f64 = 0.25;
/// Fewer units of work, and fewer pauses, say nothing.
const ENOUGH_UNITS: f64 = 20.0;
/// More units say the same.
const MOST_UNITS: usize = 100_000;
/// What takes so many times as long as nine tenths of its kind is something else: a compilation, an evaluation.
const OTHERWISE: f64 = 5.0;

/// What a thread launches until it has waited for it, and how long it pauses before it launches again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unit {
    /// The same for the same launches.
    kind: NumberHasher,
    from_ns: Option<i64>,
    until_ns: Option<i64>,
    paused_ns: i64,
}

impl Unit {
    /// The thread had waited for all that it launched.
    pub fn waited(&mut self, until_ns: i64) {
        self.until_ns = Some(until_ns);
    }

    /// The thread was idle for long.
    pub fn paused(&mut self, pause_ns: i64) {
        self.paused_ns = self.paused_ns.saturating_add(pause_ns);
    }
}

/// Units of work: how long each took (or by how much others delayed it), and how long the host paused after it.
///
/// ```text
///   a time    |==unit==|    pause    |==unit==|    pause    |
///   delayed   |==unit=====|    pause    |==unit==|    pause    |
///
///   a moment  |==unit==|    pause    |==unit==|    pause    |
///   delayed   |==unit=====|  pause   |==unit==|    pause    |
/// ```
/// A delay, or kernels that take longer than usual, have nothing to do with the host: one that pauses for a time does so
/// after them as well. One that pauses until something happens that does not wait for its work (a request, a frame) has
/// paused by so much less, if it paused at all. Whatever moments those are: with the delay the mean pause falls by the
/// part of units that a pause follows, since a pause is what is left until the moment, or nothing,
/// `max(0, moment - end)`. The slope over that part is the part of pauses that end at moments. Units of one kind are held
/// against each other: what follows other work may pause otherwise.
#[derive(Debug, Default)]
pub(crate) struct DelaysAndPauses {
    /// Time and pause of each unit, by kind.
    by_kind: NumberMap<u64, Vec<(f64, f64)>>,
    count: usize,
}

impl DelaysAndPauses {
    /// A thread launches this: after a wait another unit begins.
    pub fn launched(&mut self, unit: &mut Unit, thread: u32, signature: u32, from_ns: i64) {
        if let (Some(begun_ns), Some(until_ns), true) = (unit.from_ns, unit.until_ns, self.count < MOST_UNITS)
        {
            let took = (until_ns.saturating_sub(begun_ns) as f64, unit.paused_ns as f64);
            self.by_kind.entry(unit.kind.finish()).or_default().push(took);
            self.count += 1;
        }
        if unit.from_ns.is_none() || unit.until_ns.is_some() {
            *unit = Unit { from_ns: Some(from_ns), ..Unit::default() };
            unit.kind.write_u32(thread);
        }
        unit.kind.write_u32(signature);
    }

    /// What they say, with 95 % confidence.
    pub fn until_moments(&self) -> UntilMoments {
        let (mut units, mut kinds, mut pauses, mut followed) = (0.0, 0.0, 0.0, 0.0);
        let (mut dd, mut dp, mut pp) = (0.0, 0.0, 0.0);
        for of_kind in self.by_kind.values() {
            let most = |of: fn(&(f64, f64)) -> f64| {
                let mut all: Vec<f64> = of_kind.iter().map(of).filter(|value| *value != 0.0).collect();
                OTHERWISE * quantiles(&mut all, f64::total_cmp, [0.9])[0].unwrap_or(0.0).abs()
            };
            let (most_took, most_paused) = (most(|unit| unit.0), most(|unit| unit.1));
            let usual = of_kind.iter().filter(|unit| unit.0.abs() <= most_took && unit.1 <= most_paused);
            let mut sums = [0.0; 7];
            for (d, p) in usual {
                let paused = if *p > 0.0 { 1.0 } else { 0.0 };
                for (sum, value) in sums.iter_mut().zip([1.0, paused, *d, *p, d * d, d * p, p * p]) {
                    *sum += value;
                }
            }
            let [n, paused, d, p, d_d, d_p, p_p] = sums;
            if n < 2.0 {
                continue;
            }
            let spread = d_d - d * d / n;
            units += n;
            kinds += 1.0;
            pauses += paused;
            followed += paused / n * spread;
            dd += spread;
            dp += d_p - d * p / n;
            pp += p_p - p * p / n;
        }
        let free = units - kinds - 1.0;
        if free < ENOUGH_UNITS || pauses < ENOUGH_UNITS || dd <= 0.0 || followed <= 0.0 {
            return UntilMoments::UNKNOWN;
        }
        let slope = dp / dd;
        let error = ((pp - slope * dp).max(0.0) / free / dd).sqrt();
        let of = |slope: f64| (-slope * dd / followed).clamp(0.0, 1.0);
        let half = student(free) * error;
        UntilMoments { least: of(slope + half), most: of(slope - half) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of these signatures, times and pauses, of one thread.
    fn units(all: impl Iterator<Item = (u32, i64, i64)>) -> UntilMoments {
        let (mut found, mut unit) = (DelaysAndPauses::default(), Unit::default());
        for (signature, took_ns, pause_ns) in all {
            found.launched(&mut unit, 1, signature, 0);
            unit.waited(took_ns);
            unit.paused(pause_ns);
        }
        found.until_moments()
    }

    /// Units that others delay now and then, and the pauses after them.
    fn pauses_of(pause_ns: impl Fn(usize, i64) -> i64) -> UntilMoments {
        units((0..200).map(|n| {
            let delay_ns = if n % 3 == 0 { 2_000_000 + (n as i64 % 7) * 300_000 } else { 0 };
            (7, delay_ns, pause_ns(n, delay_ns))
        }))
    }

    #[test]
    fn a_pause_that_a_delay_does_not_shorten_lasts_for_a_time() {
        let think = |n: usize| 1_000_000 + (n as i64 * 7919 % 13) * 200_000;
        let for_times = pauses_of(|n, _| think(n));
        assert!(for_times.most < 0.3, "{for_times:?}");
        // A server whose next request comes when it comes, or has come already.
        let arrival = |n: usize| 3_000_000 + (n as i64 * 7919 % 13) * 500_000;
        let requests = pauses_of(|n, delay| (arrival(n) - 1_000_000 - delay).max(0));
        assert!(requests.mostly() && requests.most > 0.9, "{requests:?}");
        // Nobody was delayed, or all alike.
        assert_eq!(pauses_of(|_, _| 0), UntilMoments::UNKNOWN);
        assert_eq!(units((0..100).map(|n| (7, 5_000, 10_000 * n))), UntilMoments::UNKNOWN);
        // Long work that nothing follows, and short work that a pause follows, are of two kinds.
        let phases = units((0..200).map(|n| {
            let delay_ns = (n * 7919 % 13) * 100_000;
            (n as u32 % 2, delay_ns * (1 + n % 2), (1 - n % 2) * think(n as usize))
        }));
        assert!(phases.most < 0.5, "{phases:?}");
        // An evaluation in the middle, which takes long and after which the host pauses for long, is left aside.
        let odd = |n: usize| if n == 77 { 900_000_000 } else { think(n) };
        assert!(pauses_of(|n, delay| (odd(n) - delay).max(0)).mostly());
        // A few pauses.
        assert_eq!(pauses_of(|n, _| if n % 20 == 0 { think(n) } else { 0 }), UntilMoments::UNKNOWN);
    }

    #[test]
    fn a_frame_rate_shows_where_frames_vary_less_than_their_work() {
        let worked = [3, 5, 2, 6, 4, 3, 7, 2, 5, 4].map(|ms: i64| ms * 1_000_000);
        let of = |pause: &dyn Fn(usize, i64) -> i64| {
            worked.iter().enumerate().map(|(n, ns)| (*ns, pause(n, *ns))).collect::<Vec<_>>()
        };
        // 33.3 ms from frame to frame.
        assert!(is_paced(&of(&|_, ns| 33_300_000 - ns)));
        // As long a pause after each: frames vary as their work does.
        assert!(!is_paced(&of(&|_, _| 29_000_000)));
        // Requests that come when they come.
        let gaps = [40, 11, 3, 77, 25, 8, 52, 19, 30, 5];
        assert!(!is_paced(&of(&|n, _| gaps[n] * 1_000_000)));
        // One frame that was dropped, and too few to say.
        let mut dropped = of(&|_, ns| 33_300_000 - ns);
        dropped[4].1 += 33_300_000;
        assert!(is_paced(&dropped));
        assert!(!is_paced(&dropped[..6]));
    }
}
