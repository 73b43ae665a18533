//! Take back time that inferred residency gives to a traced tenant, and in which it cannot have been resident.
//!
//! The engine that infers residency knows the traced tenants only. Where a process that was not traced takes time slices
//! as well, its time goes to whoever was there last. Two things show that a tenant was not resident, whoever was:
//!
//! ```text
//!   launched     |        ready: called, and nothing of its own in flight
//!   kernels   |k||............waits............|k|k|=====k===========|k|
//!   resident  ===          not its own         =====|.not its own.|=====   a kernel needs no more than its usual duration
//! ```
//!
//! Launched work of a resident context starts at once. That time is left to nobody: who had it is not known.

use std::collections::BTreeMap;

use crate::residency::inferred::{ResidencyInterval, SwitchGap};
use crate::residency::inferred_single::{needed_beyond, Kernel, AWAY_NS};

/// A tenant was gone.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Gone {
    from_ns: f64,
    to_ns: f64,
    /// Between these it left, and between those it came back.
    left: (i64, i64),
    back: (i64, i64),
}

/// What the work of one tenant says of when it was not resident.
#[derive(Debug, Default)]
pub(crate) struct OwnWork {
    pub kernels: Vec<Kernel>,
    /// Waits of launched work with nothing in flight: end of the work before, ready, start.
    waits: Vec<(i64, i64, i64)>,
    /// The end of all work so far.
    until_ns: Option<i64>,
    /// Where the call of its last kernel was found.
    pub hint: usize,
}

impl OwnWork {
    /// Work that starts, in order of starts; `called_ns`: when its launch call had returned.
    pub fn see(&mut self, start_ns: i64, end_ns: i64, called_ns: Option<i64>) {
        if let Some((until_ns, called_ns)) = self.until_ns.zip(called_ns) {
            let ready_ns = until_ns.max(called_ns);
            if start_ns.saturating_sub(ready_ns) > AWAY_NS {
                self.waits.push((until_ns, ready_ns, start_ns));
            }
        }
        self.until_ns = self.until_ns.max(Some(end_ns));
    }

    /// The intervals of the tenant without what cannot be its own.
    pub fn own(
        &self,
        intervals: &[ResidencyInterval],
        usual: &BTreeMap<u32, i64>,
        switch_gap: SwitchGap,
    ) -> Vec<ResidencyInterval> {
        let waits = self.waits.iter().map(|(until_ns, ready_ns, start_ns)| Gone {
            from_ns: *ready_ns as f64,
            to_ns: (*start_ns as f64 - switch_gap.coming_ns).max(*ready_ns as f64),
            left: (*until_ns, *ready_ns),
            back: (*start_ns, *start_ns),
        });
        let inside =
            self.kernels.iter().filter_map(|kernel| gone_inside(kernel, intervals, usual, switch_gap));
        let mut gone: Vec<Gone> = waits.chain(inside).collect();
        gone.sort_by(|a, b| a.from_ns.total_cmp(&b.from_ns));
        let mut out = Vec::with_capacity(intervals.len());
        for interval in intervals {
            let mut rest = *interval;
            let first = gone.partition_point(|one| one.to_ns <= rest.start_ns);
            for one in
                gone.get(first..).unwrap_or_default().iter().take_while(|one| one.from_ns < interval.end_ns)
            {
                if one.from_ns > rest.start_ns {
                    let end_within = (one.left.0.max(rest.start_within.0), one.left.1);
                    out.push(ResidencyInterval { end_ns: one.from_ns, end_within, ..rest });
                }
                rest.start_ns = rest.start_ns.max(one.to_ns);
                rest.start_within = one.back;
            }
            if rest.end_ns > rest.start_ns {
                out.push(rest);
            }
        }
        out
    }
}

/// Where the tenant was resident for longer inside of a kernel than that needs: when it was gone.
fn gone_inside(
    kernel: &Kernel,
    intervals: &[ResidencyInterval],
    usual: &BTreeMap<u32, i64>,
    switch_gap: SwitchGap,
) -> Option<Gone> {
    let (own_ns, added_ns) = needed_beyond(kernel, usual)?;
    let (start_ns, end_ns) = (kernel.start_ns as f64, kernel.end_ns as f64);
    let first = intervals.partition_point(|one| one.end_ns <= start_ns);
    let there = intervals.get(first..)?.iter().take_while(|one| one.start_ns < end_ns);
    let resident_ns: f64 = there.map(|one| one.end_ns.min(end_ns) - one.start_ns.max(start_ns)).sum();
    needed_beyond(&Kernel { end_ns: kernel.start_ns.saturating_add(resident_ns as i64), ..*kernel }, usual)?;
    // It left when the engine says, where the kernel was not done by then.
    let leaves_ns = intervals.get(first).map_or(start_ns, |one| one.end_ns);
    let left_ns =
        if leaves_ns < start_ns + own_ns { leaves_ns.max(start_ns) } else { start_ns + own_ns / 2.0 };
    // Saving and restoring belong to its residency; the kernel stands still meanwhile.
    let from_ns = left_ns + switch_gap.leaving_ns;
    Some(Gone {
        from_ns,
        to_ns: (left_ns + added_ns - switch_gap.coming_ns).max(from_ns),
        left: (kernel.start_ns, kernel.start_ns.saturating_add(own_ns as i64)),
        back: (kernel.end_ns.saturating_sub(own_ns as i64), kernel.end_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: SwitchGap = SwitchGap { leaving_ns: 30_000.0, gap_ns: 43_000.0, coming_ns: 10_000.0 };

    fn resident(start_us: i64, end_us: i64) -> ResidencyInterval {
        let (start, end) = (start_us * 1000, end_us * 1000);
        ResidencyInterval {
            tenant: 0,
            start_ns: start as f64,
            end_ns: end as f64,
            start_within: (start, start),
            end_within: (end, end),
        }
    }

    fn us(intervals: &[ResidencyInterval]) -> Vec<(i64, i64)> {
        intervals.iter().map(|one| (one.start_ns as i64 / 1000, one.end_ns as i64 / 1000)).collect()
    }

    #[test]
    fn launched_work_that_has_not_started_is_of_nobody_resident() {
        // A kernel until 100 us, the next launched at 150 starts at 2450, a third at once.
        let mut work = OwnWork::default();
        for (start, end, called) in [(0, 100, 0), (2450, 2500, 150), (2510, 2600, 2505)] {
            work.see(start * 1000, end * 1000, Some(called * 1000));
        }
        let found = work.own(&[resident(0, 2600)], &BTreeMap::new(), GAP);
        assert_eq!(us(&found), [(0, 150), (2440, 2600)]);
        // It left between the end of the first kernel and the launch.
        assert_eq!(
            (found[0].end_within, found[1].start_within),
            ((100_000, 150_000), (2_450_000, 2_450_000))
        );
        // Without a launch call nothing is known, and a program that launches late was resident meanwhile.
        let mut work = OwnWork::default();
        for (start, end, called) in [(0, 100, None), (2450, 2500, None), (5000, 5100, Some(4_990_000))] {
            work.see(start * 1000, end * 1000, called);
        }
        assert_eq!(us(&work.own(&[resident(0, 5100)], &BTreeMap::new(), GAP)), [(0, 5100)]);
    }

    #[test]
    fn a_kernel_is_resident_for_no_longer_than_it_needs() {
        // A kernel of usually 200 us lasts from 0 to 4600; the engine has it resident until 120 and from 2400 on.
        let kernels = vec![Kernel { start_ns: 0, end_ns: 4_600_000, signature: Some(0) }];
        let work = OwnWork { kernels, ..OwnWork::default() };
        let usual = BTreeMap::from([(0, 200_000)]);
        let found = work.own(&[resident(0, 120), resident(2400, 6000)], &usual, GAP);
        assert_eq!(us(&found), [(0, 120), (4510, 6000)]);
        // Where it has what it needs, nothing is taken back.
        let fits = [resident(0, 120), resident(4500, 6000)];
        assert_eq!(us(&work.own(&fits, &usual, GAP)), us(&fits));
    }
}
