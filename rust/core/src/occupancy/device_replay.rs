//! Replay of block placement on one device: groups of co-resident tenants, each on a clock of its own.

use std::collections::BTreeMap;

use crate::base::hardware::{EVEN_SMS_FIRST_FROM_MAJOR, MOST_RESIDENT_GRIDS};
use crate::base::picoseconds::Ps;
use crate::occupancy::observed_blocks::{Forced, Machine, Meter, ResidentBlocks};
use crate::occupancy::placement::SmSet;
use crate::occupancy::sm_array::{PerSm, SmArray};
use crate::occupancy::theoretical::Limits;
use crate::occupancy::time_bins::Bins;

/// Where a kernel's context stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Assignment {
    pub(super) tenant: u32,
    pub(super) sm_group: usize,
    pub(super) member: usize,
    pub(super) queue: u32,
    pub(super) set: usize,
    /// SMs of the set.
    pub(super) sms: u32,
}

/// The replay of one device: its groups, and what they add up to.
#[derive(Debug)]
pub(super) struct DeviceReplay {
    pub(super) sums: Sums,
    pub(super) sm_groups: Vec<SmGroup>,
    pub(super) by_group: BTreeMap<(bool, u32), usize>,
    pub(super) queues: u32,
    /// The SM at each place of the tie order.
    pub(super) order: Vec<u32>,
    /// How many sets use each TPC.
    pub(super) users: Vec<u32>,
    pub(super) floor: SmArray,
}

/// Tenants that hold the SMs together.
#[derive(Debug)]
pub(super) struct SmGroup {
    pub(super) machine: Machine,
    pub(super) clock: Clock,
    pub(super) cursor: usize,
    /// For each of the machine's tenants its place in the sums.
    pub(super) members: Vec<usize>,
    pub(super) by_tenant: BTreeMap<u32, usize>,
    pub(super) sets: BTreeMap<(u32, Option<u32>), (usize, u32)>,
    /// Time-sliced, and nothing says when.
    pub(super) unsliced: bool,
}

/// The time of a group: real, or only while it was resident.
#[derive(Debug)]
pub(super) enum Clock {
    Real,
    /// (start, end, resident time before it), and where the last look ended.
    Resident(Vec<(Ps, Ps, Ps)>, usize),
}

impl Clock {
    pub(super) fn of(mut slices: Vec<(i64, i64)>, bins: &Bins) -> Self {
        slices.sort_unstable();
        let mut spans: Vec<(Ps, Ps, Ps)> = Vec::with_capacity(slices.len());
        for (start, end) in slices.iter().map(|s| (bins.ps(s.0), bins.ps(s.1))) {
            match spans.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => spans.push((start, end, 0)),
            }
        }
        let mut before = 0;
        for span in &mut spans {
            span.2 = before;
            before += span.1 - span.0;
        }
        Self::Resident(spans, 0)
    }

    /// The group's own time at a real one.
    pub(super) fn own(&self, time: Ps) -> Ps {
        match self {
            Self::Real => time,
            Self::Resident(spans, _) => {
                let at = spans.partition_point(|s| s.0 <= time);
                let last = at.checked_sub(1).and_then(|at| spans.get(at));
                last.map_or(0, |(start, end, before)| before + (time.min(*end) - start))
            }
        }
    }

    /// The real stretches of a stretch of own time; looks never go back.
    pub(super) fn real(&mut self, from: Ps, to: Ps, mut each: impl FnMut(Ps, Ps)) {
        match self {
            Self::Real => each(from, to),
            Self::Resident(spans, at) => {
                while let Some((start, end, before)) = spans.get(*at) {
                    let (first, last) = (from.max(*before), to.min(before + (end - start)));
                    if first < last {
                        each(start + (first - before), start + (last - before));
                    }
                    if to <= before + (end - start) {
                        return;
                    }
                    *at += 1;
                }
            }
        }
    }
}

/// Sums over time bins, in value times nanoseconds.
#[derive(Debug)]
pub(super) struct Sums {
    /// Ends of the bins, in picoseconds; the first entry is the start of the window.
    pub(super) edges: Vec<Ps>,
    pub(super) sms: usize,
    /// By bin, then by place in the tie order.
    pub(super) warps: Vec<f64>,
    pub(super) active: Vec<f64>,
    /// By bin, to be added to what is active: when all SMs are.
    pub(super) everywhere: Vec<f64>,
    /// Tenant, warps, SMs.
    pub(super) tenants: Vec<(u32, Vec<f64>, Vec<f64>)>,
}

/// A kernel is short where so many of its length make a bin.
pub(super) const SHORT: Ps = 8;

impl Sums {
    /// Kernels that take less are short beside a bin.
    pub(super) fn short(&self) -> Ps {
        let ends = self.edges.first().zip(self.edges.get(1));
        ends.map_or(0, |(from, to)| to.saturating_sub(*from) / SHORT)
    }

    #[allow(clippy::cast_precision_loss)] // a bin is shorter than 2^53 ps (2 hours): beyond, a bit is lost
    pub(super) fn add(
        &mut self,
        cursor: &mut usize,
        weight: f64,
        from: Ps,
        to: Ps,
        resident: &ResidentBlocks<'_>,
        members: &[usize],
    ) {
        let Some((first, last)) = self.edges.first().copied().zip(self.edges.last().copied()) else { return };
        let (mut at, to) = (from.max(first), to.min(last));
        while at < to {
            while self.edges.get(*cursor + 1).is_some_and(|end| *end <= at) {
                *cursor += 1;
            }
            let Some(end) = self.edges.get(*cursor + 1) else { return };
            let until = to.min(*end);
            let length = (until - at) as f64 * weight / 1000.0;
            let row = *cursor * self.sms..(*cursor + 1) * self.sms;
            for (sum, n) in self.warps.get_mut(row.clone()).unwrap_or_default().iter_mut().zip(resident.warps)
            {
                *sum += f64::from(*n) * length;
            }
            if resident.everywhere {
                if let Some(sum) = self.everywhere.get_mut(*cursor) {
                    *sum += length;
                }
            } else {
                for (sum, n) in self.active.get_mut(row).unwrap_or_default().iter_mut().zip(resident.warps) {
                    *sum += if *n > 0 { length } else { 0.0 };
                }
            }
            for tenant in resident.holding {
                let held = resident.tenants.get(*tenant).zip(members.get(*tenant));
                let Some((held, member)) = held else { continue };
                let Some((_, warps, sms)) = self.tenants.get_mut(*member) else { continue };
                if let Some(sum) = warps.get_mut(*cursor) {
                    *sum += held.warps as f64 * length;
                }
                if let Some(sum) = sms.get_mut(*cursor) {
                    *sum += f64::from(held.sms) * length;
                }
            }
            at = until;
        }
    }
}

/// Where a machine's stretches go.
pub(super) struct Sink<'a> {
    pub(super) sums: &'a mut Sums,
    pub(super) clock: &'a mut Clock,
    pub(super) cursor: &'a mut usize,
    pub(super) members: &'a [usize],
    pub(super) weight: f64,
}

impl Meter for Sink<'_> {
    fn stretch(&mut self, from: Ps, to: Ps, resident: &ResidentBlocks<'_>) {
        let Self { sums, clock, cursor, members, weight } = self;
        clock.real(from, to, |a, b| sums.add(cursor, *weight, a, b, resident, members));
    }
}

impl SmGroup {
    /// Does something with the machine and where its stretches go.
    pub(super) fn with<T>(
        &mut self,
        sums: &mut Sums,
        weight: f64,
        act: impl FnOnce(&mut Machine, &mut Sink<'_>) -> T,
    ) -> T {
        let Self { machine, clock, cursor, members, .. } = self;
        act(machine, &mut Sink { sums, clock, cursor, members, weight })
    }
}

impl DeviceReplay {
    pub(super) fn new(limits: &Limits, sm_count: u32, bins: &Bins) -> Self {
        let n = sm_count as usize;
        let mut order: Vec<u32> = (0..sm_count).collect();
        if limits.capability.is_some_and(|(major, _)| major >= EVEN_SMS_FIRST_FROM_MAJOR) {
            // All even SMs, then all odd ones.
            order.sort_by_key(|sm| (sm % 2, *sm));
        }
        let edges = (0..=bins.n).map(|bin| bins.ps(bins.edge(bin))).collect();
        Self {
            sums: Sums {
                edges,
                sms: n,
                warps: vec![0.0; n * bins.n],
                active: vec![0.0; n * bins.n],
                everywhere: vec![0.0; bins.n],
                tenants: Vec::new(),
            },
            sm_groups: Vec::new(),
            by_group: BTreeMap::new(),
            queues: 0,
            order,
            users: vec![0; n.div_ceil(2)],
            floor: SmArray::new(limits.resources(), n),
        }
    }

    /// A set in tie order, and how many SMs it has.
    pub(super) fn mask(&mut self, set: &SmSet) -> (Vec<PerSm>, u32) {
        let all = u32::try_from(self.order.len()).unwrap_or(u32::MAX);
        let mut chosen = vec![false; self.order.len()];
        match set {
            SmSet::These(sms) => {
                for sm in sms {
                    if let Some(slot) = usize::try_from(*sm).ok().and_then(|sm| chosen.get_mut(sm)) {
                        *slot = true;
                    }
                }
            }
            SmSet::Count(n) => {
                let mut tpcs: Vec<(u32, usize)> = self.users.iter().copied().zip(0..).collect();
                tpcs.sort_unstable();
                let mut left = (*n).min(all);
                for (_, tpc) in tpcs {
                    for sm in [2 * tpc, 2 * tpc + 1] {
                        if let (Some(slot), true) = (chosen.get_mut(sm), left > 0) {
                            *slot = true;
                            left -= 1;
                        }
                    }
                }
            }
        }
        for (tpc, users) in chosen.chunks(2).zip(&mut self.users) {
            *users += u32::from(tpc.contains(&true));
        }
        let of = |sm: &u32| usize::try_from(*sm).ok().and_then(|sm| chosen.get(sm)).is_some_and(|c| *c);
        let mask: Vec<PerSm> = self.order.iter().map(|sm| PerSm::from(of(sm))).collect();
        let n = mask.iter().filter(|m| **m > 0).count();
        (mask, u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Groups that are time-sliced, and nothing says when, are resident in equal shares: the share of each.
    #[allow(clippy::cast_precision_loss)] // a few groups
    pub(super) fn weight(&self) -> f64 {
        let waiting = self.sm_groups.iter().filter(|c| c.unsliced && c.machine.busy()).count();
        1.0 / waiting.max(1) as f64
    }

    /// Lets all of them get to `now`, event by event, because each one's share depends on the others.
    pub(super) fn advance_unsliced(&mut self, now: Ps) {
        loop {
            let next = self.sm_groups.iter().enumerate().filter(|(_, c)| c.unsliced);
            let next = next.filter_map(|(n, c)| Some((c.machine.next().filter(|t| *t <= now)?, n))).min();
            let weight = self.weight();
            let time = next.map_or(now, |(time, _)| time);
            for sm_group in self.sm_groups.iter_mut().filter(|c| c.unsliced) {
                sm_group.with(&mut self.sums, weight, |machine, sink| machine.settle(time, sink));
            }
            let Some((time, n)) = next else { return };
            if let Some(sm_group) = self.sm_groups.get_mut(n) {
                sm_group.with(&mut self.sums, weight, |machine, sink| machine.advance(time, sink));
            }
        }
    }

    /// Starts a kernel; why it is not replayed, if it is not.
    pub(super) fn start(&mut self, sm_group: usize, mut kernel: Forced) -> Result<(), &'static str> {
        const NOT_RESIDENT: &str = "not resident";
        let Some(unsliced) = self.sm_groups.get(sm_group).map(|c| c.unsliced) else {
            return Err(NOT_RESIDENT);
        };
        if unsliced {
            self.advance_unsliced(kernel.start);
        }
        let weight = if unsliced { self.weight() } else { 1.0 };
        let Some(sm_group) = self.sm_groups.get_mut(sm_group) else { return Err(NOT_RESIDENT) };
        kernel.start = sm_group.clock.own(kernel.start);
        kernel.end = sm_group.clock.own(kernel.end);
        if kernel.start >= kernel.end {
            return Err(NOT_RESIDENT);
        }
        sm_group.with(&mut self.sums, weight, |machine, sink| {
            if machine.crowded(kernel.start, MOST_RESIDENT_GRIDS, sink) {
                return Err("too many in flight");
            }
            machine.start(kernel, sink);
            Ok(())
        })
    }

    pub(super) fn finish(&mut self) {
        self.advance_unsliced(Ps::MAX);
        for sm_group in &mut self.sm_groups {
            sm_group.with(&mut self.sums, 1.0, |machine, sink| machine.advance(Ps::MAX, sink));
        }
    }
}
