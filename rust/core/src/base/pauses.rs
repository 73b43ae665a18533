//! Pauses of hosts: does one last as long as it lasts, or does it end at a moment? And how long do they take to wake?

use crate::base::hardware::WAKE_NS;
use crate::base::statistics::median_ns;

/// How long after what it waited for a call may return that took so long: a host that slept for long takes longer to wake,
/// and one that polls looks now and then.
pub(crate) fn wake_ns(call_ns: i64, noticed_within_ns: i64) -> i64 {
    WAKE_NS.max(call_ns / 10).max(noticed_within_ns)
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

#[cfg(test)]
mod tests {
    use super::*;

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
