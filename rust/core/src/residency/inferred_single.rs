//! Infer when the only traced tenant was switched out, where no switch records were captured.
//!
//! The other tenants were not recorded, but the time that they took shows. A kernel that usually takes 0.6 ms takes 2.9
//! ms if its context is switched out meanwhile. A context switched out between two kernels shows a pause of the same
//! length.
//!
//! ```text
//!   usual             |=k=|
//!   recorded    |k|k|k|====k=============|k|k|k|          |k|k|
//!   resident    ========|..absent....|===========|..absent.|====
//!                   ^^^ switched out in here: one time slice after it last came back
//! ```
//!
//! A kernel of usual duration `u` whose duration is inflated, from `start` to `end`, ran for `u` in all. Its context
//! left within `u` after `start` and was back within `u` before `end`. The shorter the kernels against a time slice,
//! the more precise that is. Nothing is inferred where most work has no usual duration, where several streams run at
//! once (their kernels slow each other), where the added times disagree, or where the program itself pauses more often
//! than it is switched out.

use std::collections::BTreeMap;

use crate::base::hardware::{DEFAULT_SLICE_NS, DRAINED_SWITCH_NS};
use crate::base::statistics::median;
use crate::residency::inferred::{ResidencyInterval, SwitchGap, SHORTEST_NS, STRETCH, TRIED, UNUSUAL_NS};

/// Fewer kernels of one signature have no usual length.
const LEAST_KERNELS: usize = 8;
/// Whoever is switched out at all is gone for longer: a visit of a context without work takes 24 us and two switches.
pub(crate) const AWAY_NS: i64 = 250_000;
/// And a kernel's own length varies by less.
const OWN_SPREAD: f64 = 0.2;
/// A kernel near a whole slice says nothing of when it was cut.
const LONGEST_NS: i64 = DEFAULT_SLICE_NS / 5 * 4;
/// At least so many kernels inflated by preemption, such a part of the work of a usual length, no more than such a part of it beside
/// other work of the same tenant, and such a part of the absences within a factor of two or so.
const LEAST_INFLATED: usize = 5;
const KNOWN_SHARE: f64 = 0.9;
const OWN_OVERLAP: f64 = 0.02;
const ALIKE_SHARE: f64 = 0.6;
/// An absence that says nothing of the slice costs the fit no more than this.
const MOST_OFF_NS: f64 = 1e6;
/// A pause may have been the program's own as well.
const PAUSE_WEIGHT: f64 = 0.1;
/// Of the absences that a slice explains, how many must be within this part of it.
const EXPLAINED_SHARE: f64 = 0.5;
const EXPLAINED_WITHIN: f64 = 0.05;

/// A kernel of the tenant; without a signature nothing is known of its usual length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub start_ns: i64,
    pub end_ns: i64,
    pub signature: Option<u32>,
}

/// The context was gone, inside a kernel or in a pause between two.
#[derive(Debug, Clone, Copy)]
struct Absence {
    /// Between these it left, and between those it came back.
    left: (i64, i64),
    back: (i64, i64),
    /// What of the kernel's length is more than usual, or the pause.
    away_ns: f64,
    pause: bool,
}

/// Residency intervals of the tenant, and the time slice if its absences agree on one; `None`: it cannot be told.
pub(crate) fn intervals(kernels: &[Kernel]) -> Option<(Vec<ResidencyInterval>, Option<f64>)> {
    let usual = usual(kernels);
    if !tells(kernels, &usual) {
        return None;
    }
    let absences = absences(kernels, &usual);
    let inflated: Vec<i64> = absences.iter().filter(|a| !a.pause).map(|a| a.away_ns as i64).collect();
    let count = inflated.len();
    if absences.len().saturating_sub(count) > count {
        return None;
    }
    let away_ns = median(&inflated).filter(|_| count >= LEAST_INFLATED)?;
    let alike = |ns: &&i64| (**ns as f64 - away_ns).abs() <= away_ns / 2.0;
    if (inflated.iter().filter(alike).count() as f64) < ALIKE_SHARE * count as f64 {
        return None;
    }
    let slice_ns = fit(&absences)?;
    let walked = walk(&absences, slice_ns);
    let explained = walked.explained as f64 >= EXPLAINED_SHARE * absences.len() as f64;
    let (first_ns, last_ns) = (kernels.first()?.start_ns, kernels.iter().map(|kernel| kernel.end_ns).max()?);
    // Whom nobody waits for keeps the engine through a pause.
    let contended_ns = 2.0 * (slice_ns + away_ns);
    let close = |a: &Absence, b: &Absence| (b.left.0.saturating_sub(a.back.1) as f64) < contended_ns;
    let mut intervals: Vec<ResidencyInterval> = Vec::with_capacity(absences.len().saturating_add(1));
    let (mut since_ns, mut since_within) = (first_ns as f64, (first_ns, first_ns));
    for (n, (absence, (left_ns, back_ns))) in absences.iter().zip(walked.gone).enumerate() {
        let before = n.checked_sub(1).and_then(|n| absences.get(n));
        let after = absences.get(n.saturating_add(1));
        let beside = before.is_some_and(|a| close(a, absence)) && after.is_some_and(|b| close(absence, b));
        if absence.pause && absence.away_ns >= 1.5 * away_ns && !beside {
            continue;
        }
        let end_ns = left_ns.max(since_ns);
        intervals.push(ResidencyInterval {
            tenant: 0,
            start_ns: since_ns,
            end_ns,
            start_within: since_within,
            end_within: absence.left,
        });
        (since_ns, since_within) = (back_ns.max(end_ns), absence.back);
    }
    let (end_ns, end_within) = ((last_ns as f64).max(since_ns), (last_ns, last_ns));
    intervals.push(ResidencyInterval {
        tenant: 0,
        start_ns: since_ns,
        end_ns,
        start_within: since_within,
        end_within,
    });
    Some((intervals, explained.then_some(slice_ns)))
}

/// The usual length of each signature: that of its shorter kernels.
fn usual(kernels: &[Kernel]) -> BTreeMap<u32, i64> {
    let mut lengths: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for kernel in kernels {
        if let Some(signature) = kernel.signature {
            let length = kernel.end_ns.saturating_sub(kernel.start_ns);
            lengths.entry(signature).or_default().push(length);
        }
    }
    lengths.retain(|_, all| all.len() >= LEAST_KERNELS);
    let quarter = |mut all: Vec<i64>| {
        let place = all.len() / 4;
        *all.select_nth_unstable(place).1
    };
    let usual = lengths.into_iter().map(|(signature, all)| (signature, quarter(all)));
    usual.filter(|(_, length)| *length <= LONGEST_NS).collect()
}

/// Whether the tenant's work can tell anything.
fn tells(kernels: &[Kernel], usual: &BTreeMap<u32, i64>) -> bool {
    let (mut busy, mut known, mut beside, mut until_ns) = (0.0, 0.0, 0.0, i64::MIN);
    for kernel in kernels {
        let length = kernel.end_ns.saturating_sub(kernel.start_ns) as f64;
        busy += length;
        if kernel.signature.is_some_and(|signature| usual.contains_key(&signature)) {
            known += length;
        }
        beside += kernel.end_ns.min(until_ns).saturating_sub(kernel.start_ns).max(0) as f64;
        until_ns = until_ns.max(kernel.end_ns);
    }
    busy > 0.0 && known >= KNOWN_SHARE * busy && beside <= OWN_OVERLAP * busy
}

fn absences(kernels: &[Kernel], usual: &BTreeMap<u32, i64>) -> Vec<Absence> {
    let pauses = || {
        let pairs = kernels.iter().zip(kernels.iter().skip(1));
        pairs.map(|(a, b)| b.start_ns.saturating_sub(a.end_ns))
    };
    let mut lengths: Vec<i64> = pauses().collect();
    let place = lengths.len() / 4;
    let usual_pause = if lengths.is_empty() { 0 } else { (*lengths.select_nth_unstable(place).1).max(0) };
    let before = [None].into_iter().chain(pauses().map(Some));
    let mut found = Vec::new();
    for (kernel, pause) in kernels.iter().zip(before) {
        let (start, end) = (kernel.start_ns, kernel.end_ns);
        if let Some(pause) = pause.filter(|pause| pause.saturating_sub(usual_pause) > AWAY_NS) {
            let within = (start.saturating_sub(pause), start);
            found.push(Absence { left: within, back: within, away_ns: pause as f64, pause: true });
        }
        if let Some((own_ns, added_ns)) = needed_beyond(kernel, usual) {
            let own = own_ns as i64;
            found.push(Absence {
                left: (start, start.saturating_add(own)),
                back: (end.saturating_sub(own), end),
                away_ns: added_ns,
                pause: false,
            });
        }
    }
    found
}

/// What a kernel usually takes, and by how much it took longer; `None`: by no more than it varies by itself.
pub(crate) fn needed_beyond(kernel: &Kernel, usual: &BTreeMap<u32, i64>) -> Option<(f64, f64)> {
    let own = *usual.get(&kernel.signature?)?;
    let added = kernel.end_ns.saturating_sub(kernel.start_ns).saturating_sub(own);
    (added as f64 > (AWAY_NS as f64).max(OWN_SPREAD * own as f64)).then_some((own as f64, added as f64))
}

/// Usual lengths of a tenant's kernels, where most of its work has one and half of the kernels of a signature take no
/// longer than they vary by themselves: lengths that depend on the data say nothing. Of other tenants none.
pub(crate) fn telling(kernels: &[Kernel]) -> BTreeMap<u32, i64> {
    let mut usual = usual(kernels);
    let mut counts: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    for kernel in kernels {
        let Some((signature, own)) = kernel.signature.and_then(|one| Some((one, *usual.get(&one)?))) else {
            continue;
        };
        let longer = (kernel.end_ns.saturating_sub(kernel.start_ns)) as f64 > (1.0 + OWN_SPREAD) * own as f64;
        let [all, long] = counts.entry(signature).or_default();
        (*all, *long) = (all.saturating_add(1), long.saturating_add(usize::from(longer)));
    }
    usual.retain(|signature, _| {
        counts.get(signature).is_some_and(|[all, long]| long.saturating_mul(2) < *all)
    });
    if tells(kernels, &usual) {
        usual
    } else {
        BTreeMap::new()
    }
}

/// Where each absence lies if the tenant leaves a slice after it came back.
struct Walked {
    gone: Vec<(f64, f64)>,
    cost_ns: f64,
    explained: usize,
}

fn walk(absences: &[Absence], slice_ns: f64) -> Walked {
    let SwitchGap { leaving_ns, coming_ns, .. } = SwitchGap::whole(DRAINED_SWITCH_NS as f64);
    let mut walked = Walked { gone: Vec::with_capacity(absences.len()), cost_ns: 0.0, explained: 0 };
    let mut back_ns: Option<f64> = None;
    for absence in absences {
        let due_ns = back_ns.map(|back| back + slice_ns);
        let (low, high) = (absence.left.0 as f64, absence.left.1 as f64);
        let left_ns = match due_ns {
            _ if absence.pause => low,
            // It was left alone for longer than a slice, until a visitor came: at any time.
            Some(due) if due >= low - slice_ns / 2.0 => due.clamp(low, high),
            _ => f64::midpoint(low, high),
        };
        if let Some(due) = due_ns {
            let off_ns = (due - due.clamp(low, high)).abs().min(MOST_OFF_NS);
            walked.cost_ns += if absence.pause { PAUSE_WEIGHT * off_ns } else { off_ns };
            walked.explained += usize::from(off_ns <= EXPLAINED_WITHIN * slice_ns);
        }
        let return_ns = left_ns + absence.away_ns;
        // Saving and restoring belong to its residency; the kernel stands still meanwhile.
        walked.gone.push((left_ns + leaving_ns, (return_ns - coming_ns).max(left_ns + leaving_ns)));
        back_ns = Some(return_ns);
    }
    walked
}

/// The slice that agrees best with the absences.
fn fit(absences: &[Absence]) -> Option<f64> {
    // Enough of them to know: the walk is done once for every slice that is tried.
    let some = absences.get(..absences.len().min(STRETCH)).unwrap_or_default();
    let cost = |slice_ns: f64| {
        let unusual = (slice_ns / DEFAULT_SLICE_NS as f64).ln().abs();
        walk(some, slice_ns).cost_ns + UNUSUAL_NS * unusual
    };
    let best = |slices: &mut dyn Iterator<Item = f64>| {
        let tried = slices.map(|slice_ns| (cost(slice_ns), slice_ns));
        tried.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, slice_ns)| slice_ns)
    };
    let near_ns = best(&mut (0..TRIED).map(|n| SHORTEST_NS * 1.03_f64.powi(n)))?;
    best(&mut (-10..=10).map(|n| near_ns * (1.0 + 0.003 * f64::from(n))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Kernels of `own_us` back to back, whose tenant holds 2000 us and is gone for 2200.
    fn cut(own_us: i64, count: usize) -> (Vec<Kernel>, Vec<(i64, i64)>) {
        let (mut now, mut kernels, mut intervals) = (0, Vec::new(), vec![(0, 2_000_000)]);
        for _ in 0..count {
            let (start, mut left) = (now, own_us * 1000);
            while let Some((_, end)) = intervals.last().copied().filter(|(_, end)| now + left > *end) {
                left -= end - now;
                now = end + 2_200_000;
                intervals.push((now, now + 2_000_000));
            }
            now += left;
            kernels.push(Kernel { start_ns: start, end_ns: now, signature: Some(0) });
        }
        (kernels, intervals)
    }

    fn us(intervals: &[ResidencyInterval]) -> Vec<(i64, i64)> {
        intervals.iter().map(|t| (t.start_ns as i64 / 1000, t.end_ns as i64 / 1000)).collect()
    }

    #[test]
    fn inflated_kernels_say_when_it_was_switched_out() {
        let (kernels, truth) = cut(300, 400);
        let (found, slice_ns) = intervals(&kernels).unwrap();
        assert!((slice_ns.unwrap() - 2_000_000.0).abs() < 30_000.0, "{slice_ns:?}");
        assert_eq!(found.len(), truth.len());
        for (interval, (start, end)) in found.iter().zip(&truth).skip(1).rev().skip(1).rev() {
            // Where inside of a kernel it was cut, nobody knows: half a kernel to either side, and 30 us of saving.
            assert!((interval.start_ns - *start as f64).abs() <= 180_000.0, "{interval:?} for {start}");
            assert!((interval.end_ns - *end as f64).abs() <= 180_000.0, "{interval:?} for {end}");
            assert!(interval.start_within.0 <= *start && *start <= interval.start_within.1);
            assert!(interval.end_within.0 <= *end && *end <= interval.end_within.1);
        }
    }

    #[test]
    fn pauses_as_long_between_kernels_count_too() {
        // 19 kernels of 100 us, then 2200 us nothing; every other time a kernel is cut.
        let (mut kernels, mut now) = (Vec::new(), 0);
        for round in 0..20 {
            for n in 0..19 {
                let away = if round % 2 == 0 && n == 18 { 2_200_000 } else { 0 };
                kernels.push(Kernel { start_ns: now, end_ns: now + 100_000 + away, signature: Some(1) });
                now += 100_000 + away + 1_000;
            }
            now += if round % 2 == 1 { 2_200_000 } else { 0 };
        }
        let (found, _) = intervals(&kernels).unwrap();
        // Whether the end of the recording ends a interval is not known.
        assert!(matches!(found.len(), 20 | 21), "{:?}", us(&found));
    }

    #[test]
    fn lengths_that_depend_on_the_data_are_not_usual() {
        // Cut kernels are as long as ever but for a few; of others half are over a fifth longer than a quarter of them.
        assert_eq!(telling(&cut(300, 400).0), BTreeMap::from([(0, 300_000)]));
        let varied =
            |n: i64| Kernel { start_ns: n * MS, end_ns: n * MS + 1_000 * (100 + n), signature: Some(0) };
        assert_eq!(telling(&(0..400).map(varied).collect::<Vec<_>>()), BTreeMap::new());
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        // Longer than a slice; never preempted; two streams at once; no signature; lengths that vary by themselves.
        assert!(intervals(&cut(5_000, 100).0).is_none());
        let plain: Vec<Kernel> = (0..100)
            .map(|n| Kernel { start_ns: n * 110_000, end_ns: n * 110_000 + 100_000, signature: Some(0) })
            .collect();
        assert!(intervals(&plain).is_none());
        let (kernels, _) = cut(300, 400);
        let both: Vec<Kernel> = kernels.iter().flat_map(|kernel| [*kernel, *kernel]).collect();
        assert!(intervals(&both).is_none());
        let nameless: Vec<Kernel> =
            kernels.iter().map(|kernel| Kernel { signature: None, ..*kernel }).collect();
        assert!(intervals(&nameless).is_none());
        let mut now = 0;
        let varied: Vec<Kernel> = (0..400_i64)
            .map(|n| {
                let length = 100_000 + if n % 2 == 0 { 0 } else { 300_000 * (1 + n * n % 40) };
                now += length;
                Kernel { start_ns: now - length, end_ns: now, signature: Some(0) }
            })
            .collect();
        assert!(intervals(&varied).is_none());
        assert!(intervals(&[]).is_none());
    }
}
