//! Infer residency under time-slicing where no switch records were captured.
//!
//! A kernel starts and ends only while its context is resident, so every recorded start and end fixes the resident
//! tenant at that moment. Between two such moments nothing starts or ends: the tenants with kernels in flight are
//! known, and the engine gives them time slices in round-robin order.
//!
//! ```text
//!   A         |k|k|k|========k========|k|k|          starts and ends of A:   ^^^^        ^^^
//!   B              ========k=====|k|k|               starts and ends of B:         ^^^
//!   resident   A A A A|  ?  |B B B B|?|A A A        `?`: a boundary lies here; the time slice says where
//! ```
//!
//! A tenant without kernels in flight yields the engine when another one has work; a tenant that nobody waits for keeps
//! it. The time slice is the one that agrees best with all fixed moments. Every boundary keeps the moments between
//! which it must lie: what lies inside them all is certain if the tenants are time-sliced. Whether they are is a
//! verdict, so this pass comes after it.
//!
//! Clients of an MPS server beside a process that is none are resident at once: they start and end kernels in between
//! each other's with no time for a slice there, and count as one.
//!
//! Where only one tenant was traced, its own kernels tell when it was switched out: see `residency/inferred_single.rs`.
//! Processes that were not traced take time slices as well: see `residency/inferred_unknown.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use arrow_array::{Int64Array, RecordBatch, UInt32Array};

use crate::base::error::Result;
use crate::base::hardware::{DEFAULT_SLICE_NS, DRAINED_SWITCH_NS};
use crate::base::watch::Watch;
use crate::residency::inferred_single as single;
use crate::table::builder::Builder;
use crate::table::calls::{calls, CallsByProcess};
use crate::table::columns::Columns;
use crate::table::events::{EventPass, Events, Tables};
use crate::table::launch::Folded;
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Who};
use crate::table::work::{work, WorkKind};

use crate::residency::inferred_single::Kernel;
use crate::residency::inferred_unknown::OwnWork;

/// Of a switch_gap: still resident after the last kernel, and already resident before the first.
const LEAVING: f64 = 0.36;
const COMING: f64 = 0.12;
/// A interval of which no kernel tells is less likely than none.
const UNSEEN_NS: f64 = 20_000.0;
/// How much agreement it takes to believe in another slice than the usual one, per factor e.
pub(crate) const UNUSUAL_NS: f64 = 100_000.0;
/// Slices that are tried: 0.25 to 20 ms.
pub(crate) const SHORTEST_NS: f64 = 250_000.0;
pub(crate) const TRIED: i32 = 150;
/// Signs of one tenant so close together that no slice of another fits between them, who has begun a kernel there that is
/// not done: from so many on, and such a part of those of the one with fewer, the two are resident at once.
const ENOUGH_BETWEEN: usize = 5;
const BETWEEN_SHARE: f64 = 0.02;
/// The slice is fitted to this many stretches of the capture, of so many starts and ends each.
const STRETCHES: usize = 5;
pub(crate) const STRETCH: usize = 4_000;

/// A kernel of a tenant starts or ends: it is resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    time_ns: i64,
    start: bool,
    tenant: usize,
}

/// One interval with the moments between which its ends lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResidencyInterval {
    pub tenant: usize,
    pub start_ns: f64,
    pub end_ns: f64,
    pub start_within: (i64, i64),
    pub end_within: (i64, i64),
}

/// What a switch_gap takes, in its three parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SwitchGap {
    pub leaving_ns: f64,
    pub gap_ns: f64,
    pub coming_ns: f64,
}

impl SwitchGap {
    /// The shortest waits from the end of one tenant's kernel to the start of another's.
    fn of(seen: &[Seen]) -> Self {
        let pairs = seen.iter().zip(seen.iter().skip(1));
        let mut waits: Vec<i64> = pairs
            .filter(|(a, b)| a.tenant != b.tenant && !a.start && b.start)
            .map(|(a, b)| b.time_ns.saturating_sub(a.time_ns))
            .filter(|wait| (10_000..400_000).contains(wait))
            .collect();
        waits.sort_unstable();
        let short = waits.get(waits.len() / 10).copied().filter(|_| waits.len() >= 5);
        Self::whole(short.unwrap_or(DRAINED_SWITCH_NS) as f64)
    }

    /// One that takes so long in all.
    pub fn whole(whole: f64) -> Self {
        let (leaving_ns, coming_ns) = (LEAVING * whole, COMING * whole);
        Self { leaving_ns, gap_ns: whole - leaving_ns - coming_ns, coming_ns }
    }
}

/// Of intervals that lie `gap_ns` apart: how long before its end a interval has no block running any more, because the state is
/// saved, and how long after its start none yet.
pub(crate) fn not_running(gap_ns: i64) -> (i64, i64) {
    let switch_gap = SwitchGap::whole(gap_ns as f64 / (1.0 - LEAVING - COMING));
    (switch_gap.leaving_ns.round() as i64, switch_gap.coming_ns.round() as i64)
}

/// How the engine went from one tenant to the next between two moments.
#[derive(Debug, Clone, Copy)]
struct Way {
    /// Switches.
    switches: usize,
    /// How far this is from what a scheduler does.
    cost_ns: f64,
    /// The last tenant's part.
    last_ns: f64,
}

/// Follows the engine.
struct Engine<'a> {
    slice_ns: f64,
    switch_gap: SwitchGap,
    in_flight: Vec<u32>,
    /// Tenants with kernels in flight.
    wanting: BTreeSet<usize>,
    /// Who holds it, since when, and between which moments that lies.
    holder: Option<(usize, f64, (i64, i64))>,
    last_ns: i64,
    cost_ns: f64,
    intervals: Option<&'a mut Vec<ResidencyInterval>>,
}

impl<'a> Engine<'a> {
    fn new(
        tenants: usize,
        slice_ns: f64,
        switch_gap: SwitchGap,
        intervals: Option<&'a mut Vec<ResidencyInterval>>,
    ) -> Self {
        Self {
            slice_ns,
            switch_gap,
            in_flight: vec![0; tenants],
            wanting: BTreeSet::new(),
            holder: None,
            last_ns: 0,
            cost_ns: 0.0,
            intervals,
        }
    }

    fn see(&mut self, next: &Seen) {
        match self.holder {
            None => self.holder = Some((next.tenant, next.time_ns as f64, (next.time_ns, next.time_ns))),
            Some((holder, since_ns, within)) => self.between(holder, since_ns, within, next),
        }
        if let Some(count) = self.in_flight.get_mut(next.tenant) {
            *count = if next.start { count.saturating_add(1) } else { count.saturating_sub(1) };
            if *count > 0 {
                self.wanting.insert(next.tenant);
            } else {
                self.wanting.remove(&next.tenant);
            }
        }
        self.last_ns = next.time_ns;
    }

    /// Who comes after a tenant, in interval.
    fn after(&self, tenant: usize) -> Option<usize> {
        let later = self.wanting.range(tenant.saturating_add(1)..).next();
        later.or_else(|| self.wanting.iter().next()).copied().filter(|next| *next != tenant)
    }

    /// From `holder` at the last moment to `next`.
    fn between(&mut self, holder: usize, since_ns: f64, within: (i64, i64), next: &Seen) {
        let others = self.wanting.iter().any(|tenant| *tenant != holder);
        if !others && holder == next.tenant {
            return;
        }
        let free_ns = next.time_ns.saturating_sub(self.last_ns) as f64;
        let works = self.wanting.contains(&holder);
        let rest_ns = if works {
            (since_ns + self.slice_ns - self.last_ns as f64).max(0.0)
        } else {
            self.switch_gap.leaving_ns
        };
        let way = if others {
            let way = self.way(holder, next, free_ns, rest_ns);
            self.cost_ns += way.cost_ns.min(DEFAULT_SLICE_NS as f64);
            way
        } else {
            // It kept the engine until the next one wanted it.
            Way { switches: 1, cost_ns: 0.0, last_ns: self.switch_gap.coming_ns.min(free_ns) }
        };
        if way.switches > 0 {
            let rest_ns = if others { rest_ns } else { free_ns };
            self.go(holder, since_ns, within, next, way, rest_ns);
        }
    }

    /// The way that agrees best with slices in interval.
    fn way(&self, holder: usize, next: &Seen, free_ns: f64, rest_ns: f64) -> Way {
        let (slice_ns, SwitchGap { leaving_ns, gap_ns, coming_ns }) = (self.slice_ns, self.switch_gap);
        let wants = self.wanting.contains(&next.tenant);
        let only = self.wanting.len() == 1;
        let mut best: Option<Way> = None;
        let mut offer = |way: Way| {
            if best.is_none_or(|b| way.cost_ns < b.cost_ns) {
                best = Some(way);
            }
        };
        if holder == next.tenant {
            // Beyond its slice, or idle while others wait: both should have cost it the engine.
            let stays_ns = if wants { rest_ns } else { leaving_ns };
            offer(Way { switches: 0, cost_ns: (free_ns - stays_ns).max(0.0), last_ns: 0.0 });
        }
        let whole = |switches: usize| {
            rest_ns + switches as f64 * gap_ns + switches.saturating_sub(1) as f64 * slice_ns
        };
        let unseen = |switches: usize| UNSEEN_NS * switches.saturating_sub(1) as f64;
        let nearly = |ns: f64| {
            let intervals = (free_ns - rest_ns - gap_ns - ns) / (slice_ns + gap_ns);
            intervals.max(0.0) as usize
        };
        if wants {
            // Its place in the intervals after the holder; then once in every round.
            let position = |tenant: usize| self.wanting.iter().filter(|t| **t <= tenant).count();
            let members = self.wanting.len();
            let ahead = position(next.tenant) + members - position(holder);
            let first = match ahead % members {
                0 => members,
                place => place,
            };
            if !(only && holder == next.tenant) {
                let rounds = nearly(0.0).saturating_sub(first.saturating_sub(1)) / members;
                for round in rounds..=rounds.saturating_add(1) {
                    let switches = first.saturating_add(round.saturating_mul(members));
                    let last_ns = free_ns - whole(switches);
                    // Alone it keeps the engine.
                    let beyond_ns = if only { 0.0 } else { (last_ns - slice_ns).max(0.0) };
                    let cost_ns = beyond_ns + (-last_ns).max(0.0) + unseen(switches);
                    let last_ns = last_ns.clamp(0.0, if only { free_ns } else { slice_ns });
                    offer(Way { switches, cost_ns, last_ns });
                    if only {
                        break;
                    }
                }
            }
        } else {
            // It wanted the engine only just now, or waited for it: its kernel starts when it gets it.
            let last_ns = coming_ns.min(free_ns);
            let least = if holder == next.tenant { 2 } else { 1 };
            let alone = only && !self.wanting.contains(&holder);
            let most = if only { 2 } else { usize::MAX };
            let near = nearly(coming_ns).saturating_add(1);
            for switches in [least, near, near.saturating_add(1)] {
                let switches = switches.clamp(least, most);
                let off_ns = free_ns - whole(switches) - last_ns;
                let off_ns =
                    if alone && switches == 2 { (-off_ns - slice_ns).max(0.0) } else { off_ns.abs() };
                offer(Way { switches, cost_ns: off_ns + unseen(switches), last_ns });
            }
        }
        best.unwrap_or(Way { switches: 1, cost_ns: 0.0, last_ns: coming_ns.min(free_ns) })
    }

    /// Goes that way; what does not fit is spread over the parts.
    fn go(&mut self, holder: usize, since_ns: f64, within: (i64, i64), next: &Seen, way: Way, rest_ns: f64) {
        let free_ns = next.time_ns.saturating_sub(self.last_ns) as f64;
        let switches = way.switches as f64;
        let here = (self.last_ns, next.time_ns);
        let held_ns = free_ns - way.last_ns - switches * self.switch_gap.gap_ns;
        let alone = way.switches == 2 && self.wanting.len() == 1 && !self.wanting.contains(&holder);
        let model_ns = rest_ns + (switches - 1.0) * self.slice_ns;
        let (part, gap_ns) = if held_ns <= 0.0 {
            (0.0, (free_ns - way.last_ns).max(0.0) / switches)
        } else if model_ns > 0.0 {
            (held_ns / model_ns, self.switch_gap.gap_ns)
        } else {
            (0.0, self.switch_gap.gap_ns)
        };
        let (mut tenant, mut start_ns, mut start_within) = (holder, since_ns, within);
        let mut now_ns = self.last_ns as f64;
        for step in 0..way.switches {
            now_ns += match (step, alone && held_ns > 0.0) {
                (0, true) => rest_ns.min(held_ns),
                (_, true) => (held_ns - rest_ns).max(0.0),
                (0, false) => rest_ns * part,
                (_, false) => self.slice_ns * part,
            };
            if let Some(intervals) = &mut self.intervals {
                intervals.push(ResidencyInterval {
                    tenant,
                    start_ns,
                    end_ns: now_ns,
                    start_within,
                    end_within: here,
                });
            }
            now_ns += gap_ns;
            let last = step.saturating_add(1) == way.switches;
            tenant = if last { next.tenant } else { self.after(tenant).unwrap_or(next.tenant) };
            (start_ns, start_within) = (now_ns, here);
        }
        self.holder = Some((tenant, start_ns.min(next.time_ns as f64), start_within));
    }

    fn finish(self) -> f64 {
        if let (Some((tenant, start_ns, start_within)), Some(intervals)) = (self.holder, self.intervals) {
            let end = (self.last_ns, self.last_ns);
            let end_ns = self.last_ns as f64;
            intervals.push(ResidencyInterval { tenant, start_ns, end_ns, start_within, end_within: end });
        }
        self.cost_ns
    }
}

/// The slice that agrees best with what is seen; `None` where nobody ever contended.
fn fit(seen: &[Seen], tenants: usize, switch_gap: SwitchGap) -> Option<f64> {
    let stretch = seen.len().div_ceil(STRETCHES).max(STRETCH);
    let stretches = || seen.chunks(stretch).map(|s| s.get(..STRETCH.min(s.len())).unwrap_or_default());
    let cost = |slice_ns: f64| {
        let follow = |stretch: &[Seen]| {
            let mut engine = Engine::new(tenants, slice_ns, switch_gap, None);
            for next in stretch {
                engine.see(next);
            }
            engine.finish()
        };
        let unusual = (slice_ns / DEFAULT_SLICE_NS as f64).ln().abs();
        stretches().map(follow).sum::<f64>() + UNUSUAL_NS * unusual
    };
    let best = |slices: &mut dyn Iterator<Item = f64>| {
        slices.map(|slice_ns| (cost(slice_ns), slice_ns)).min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (_, near_ns) = best(&mut (0..TRIED).map(|n| SHORTEST_NS * 1.03_f64.powi(n)))?;
    let (_, slice_ns) = best(&mut (-10..=10).map(|n| near_ns * (1.0 + 0.003 * f64::from(n))))?;
    Some(slice_ns)
}

#[derive(Debug, Default)]
struct Device {
    /// Tenants in the order of their ids.
    tenants: Vec<u32>,
    /// Those that are resident at once, in the order of their intervals; `Seen.tenant` counts in it at the end, in
    /// `tenants` before.
    groups: Vec<Vec<u32>>,
    seen: Vec<Seen>,
    /// In the order of `tenants`.
    work: Vec<OwnWork>,
}

impl Device {
    /// Takes back what may not be certain at the end: of a kernel that was still running when the recording ended there
    /// is no record. A tenant whose kernels take as long as it has been silent may have had one in flight.
    fn doubt_the_end(&self, intervals: &mut [ResidencyInterval]) {
        let count = self.groups.len();
        let Some(until_ns) = self.seen.last().map(|seen| seen.time_ns) else { return };
        let (mut started, mut last, mut longest) =
            (vec![VecDeque::new(); count], vec![i64::MIN; count], vec![0; count]);
        for seen in &self.seen {
            let (Some(started), Some(last), Some(longest)) =
                (started.get_mut(seen.tenant), last.get_mut(seen.tenant), longest.get_mut(seen.tenant))
            else {
                continue;
            };
            if seen.start {
                started.push_back(seen.time_ns);
            } else {
                let start_ns: i64 = started.pop_front().unwrap_or(seen.time_ns);
                *longest = seen.time_ns.saturating_sub(start_ns).max(*longest);
                *last = seen.time_ns;
            }
        }
        for (tenant, (last_ns, longest_ns)) in last.into_iter().zip(longest).enumerate() {
            if until_ns.saturating_sub(last_ns) >= longest_ns {
                continue;
            }
            for interval in intervals.iter_mut().filter(|interval| interval.tenant != tenant) {
                let known_ns = last_ns.max(interval.start_within.0);
                interval.end_within.0 = interval.end_within.0.min(known_ns);
            }
        }
    }

    /// Takes back what cannot be a tenant's own: who had it was not traced. Clients that are resident at once do not tell
    /// of each other.
    fn leave_unknown(&self, intervals: &mut Vec<ResidencyInterval>, switch_gap: SwitchGap) {
        for (place, group) in self.groups.iter().enumerate() {
            let [only] = group.as_slice() else { continue };
            let Some(work) = self.tenants.binary_search(only).ok().and_then(|n| self.work.get(n)) else {
                continue;
            };
            let (own, others) = intervals.iter().partition::<Vec<_>, _>(|interval| interval.tenant == place);
            *intervals = others;
            intervals.extend(work.own(&own, &single::telling(&work.kernels), switch_gap));
        }
    }

    /// Puts tenants together that are resident at once, as clients of one MPS server beside a process that is none: who
    /// has begun a kernel that is not done loses the engine at the end of its slice only.
    fn group(&mut self) {
        let count = self.tenants.len();
        let least_ns = SHORTEST_NS + 2.0 * DRAINED_SWITCH_NS as f64;
        let mut between: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        // By tenant: how much was seen of it; the place of the last, from 1, and its time; the place of its last start,
        // and kernels in flight.
        let mut seen = vec![0_usize; count];
        let mut last = vec![(0_usize, i64::MIN); count];
        let mut begun = vec![(0_usize, 0_u32); count];
        for (place, next) in (1..).zip(&self.seen) {
            let Some(before) = last.get(next.tenant).copied() else { continue };
            if (next.time_ns.saturating_sub(before.1) as f64) < least_ns {
                let inside = begun.iter().enumerate().filter(|(_, of)| of.0 > before.0 && of.1 > 0);
                for (other, _) in inside.filter(|(other, _)| *other != next.tenant) {
                    *between.entry((next.tenant, other)).or_default() += 1;
                }
            }
            if let (Some(of), Some(own), Some(n)) =
                (last.get_mut(next.tenant), begun.get_mut(next.tenant), seen.get_mut(next.tenant))
            {
                (*of, *n) = ((place, next.time_ns), n.saturating_add(1));
                *own = if next.start {
                    (place, own.1.saturating_add(1))
                } else {
                    (own.0, own.1.saturating_sub(1))
                };
            }
        }
        let mut group: Vec<usize> = (0..count).collect();
        for ((a, b), times) in between {
            let least = seen.get(a).copied().min(seen.get(b).copied()).unwrap_or(0);
            if times >= ENOUGH_BETWEEN && times as f64 >= BETWEEN_SHARE * least as f64 {
                let (from, to) = (group.get(a).copied(), group.get(b).copied());
                if let (Some(from), Some(to)) = (from, to) {
                    group.iter_mut().filter(|g| **g == from.max(to)).for_each(|g| *g = from.min(to));
                }
            }
        }
        let mut firsts = group.clone();
        firsts.sort_unstable();
        firsts.dedup();
        let place = |tenant: usize| group.get(tenant).and_then(|g| firsts.binary_search(g).ok()).unwrap_or(0);
        self.groups = vec![Vec::new(); firsts.len()];
        for (n, tenant) in self.tenants.iter().enumerate() {
            if let Some(members) = self.groups.get_mut(place(n)) {
                members.push(*tenant);
            }
        }
        for seen in &mut self.seen {
            seen.tenant = place(seen.tenant);
        }
    }

    /// Puts the tenants in the order of their intervals, which is not that of their ids: after each comes the one that most
    /// often shows signs after it.
    fn time_slice(&mut self) {
        let count = self.groups.len();
        let mut follows: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (a, b) in self.seen.iter().zip(self.seen.iter().skip(1)).filter(|(a, b)| a.tenant != b.tenant) {
            *follows.entry((a.tenant, b.tenant)).or_default() += 1;
        }
        let mut order: Vec<usize> = vec![0];
        while let (Some(last), true) = (order.last().copied(), order.len() < count) {
            let left = (0..count).filter(|tenant| !order.contains(tenant));
            let often = |tenant: &usize| follows.get(&(last, *tenant)).copied().unwrap_or(0);
            // Of equals the first: reversed, because the last of equals is the greatest.
            order.extend(left.rev().max_by_key(often));
        }
        let places: BTreeMap<usize, usize> = order.iter().copied().zip(0..).collect();
        for seen in &mut self.seen {
            seen.tenant = places.get(&seen.tenant).copied().unwrap_or(seen.tenant);
        }
        self.groups = order.iter().filter_map(|group| self.groups.get(*group).cloned()).collect();
    }
}

/// Reads kernels, graphs and copies, makes `inferred_residency` out, for devices that are time-sliced and without records.
#[derive(Debug)]
pub struct InferredResidency {
    who: Who,
    devices: BTreeMap<u32, Device>,
    signatures: Signatures,
    calls: CallsByProcess,
    done: u64,
}

/// Kernels with one name and launch configuration are the same work again.
#[derive(Debug, Default)]
struct Signatures {
    names: HashMap<String, u32>,
    known: HashMap<(u32, [Option<u32>; 6]), u32>,
}

impl Signatures {
    /// One for each kernel.
    fn of(&mut self, kernels: &Columns<'_>) -> Result<Vec<Option<u32>>> {
        let name = kernels.names("name")?;
        let shape = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"];
        let [a, b, c, d, e, f] = shape.map(|column| kernels.folded(column));
        let shape: [Folded<'_>; 6] = [a?, b?, c?, d?, e?, f?];
        let mut keys: HashMap<u32, u32> = HashMap::new();
        let mut signature = |row: usize| {
            let key = name.key(row)?;
            let name = match keys.get(&key) {
                Some(number) => *number,
                None => {
                    let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                    let number = *self.names.entry(name.get(row)?.to_owned()).or_insert(next);
                    keys.insert(key, number);
                    number
                }
            };
            let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
            Some(*self.known.entry((name, shape.map(|column| column.at(row)))).or_insert(next))
        };
        Ok((0..kernels.rows()).map(&mut signature).collect())
    }
}

impl InferredResidency {
    /// Reads the tables that earlier passes made. `time_sliced` names the devices whose tenants take intervals, by the verdict;
    /// those with observed residency are left out.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn new(session: &Tables, time_sliced: &BTreeSet<u32>) -> Result<Self> {
        let who = Who::read(session)?;
        let mut observed: BTreeSet<u32> = BTreeSet::new();
        if let Some(batch) = session.get(schema::RESIDENCY.name) {
            observed.extend(Columns::new(&schema::RESIDENCY, batch).u32("device_id")?.values());
        }
        let mut devices: BTreeMap<u32, Device> = BTreeMap::new();
        for t in who.tenants.iter().filter(|t| t.traced && time_sliced.contains(&t.device)) {
            if !observed.contains(&t.device) {
                devices.entry(t.device).or_default().tenants.push(t.id);
            }
        }
        for device in devices.values_mut() {
            device.work.resize_with(device.tenants.len(), OwnWork::default);
        }
        let calls = if devices.is_empty() { CallsByProcess::new() } else { calls(session)? };
        Ok(Self { who, devices, signatures: Signatures::default(), calls, done: 0 })
    }
}

impl EventPass for InferredResidency {
    type Output = RecordBatch;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        watch.progress("inferred residency", self.done, 0)?;
        if self.devices.is_empty() {
            return Ok(());
        }
        let signatures =
            events.get(&schema::KERNELS).map_or(Ok(Vec::new()), |kernels| self.signatures.of(&kernels))?;
        let mut last = LastTenant::default();
        for w in work(events)? {
            if self.done.is_multiple_of(4096) {
                watch.progress("inferred residency", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            let Some(device) = self.devices.get_mut(&w.device) else { continue };
            let Some(id) = self.who.of_next(&mut last, w.capture, w.pid, w.device) else { continue };
            let Ok(tenant) = device.tenants.binary_search(&id) else { continue };
            let is_kernel = w.kind == WorkKind::Kernel;
            let Some(work) = device.work.get_mut(tenant) else { continue };
            let calls = self.calls.get(&(w.capture, w.pid)).filter(|_| is_kernel);
            let call = calls.zip(w.correlation).and_then(|(calls, id)| calls.find(id, &mut work.hint));
            // What a kernel waits for may be a copy.
            work.see(w.start_ns, w.end_ns, call.map(|(_, call)| call.end_ns));
            // Copies have engines of their own.
            if w.kind == WorkKind::Copy {
                continue;
            }
            let signature = if is_kernel { signatures.get(w.row).copied().flatten() } else { None };
            work.kernels.push(Kernel { start_ns: w.start_ns, end_ns: w.end_ns, signature });
            if device.tenants.len() > 1 {
                device.seen.push(Seen { time_ns: w.start_ns, start: true, tenant });
                // At equal times ends come first: a kernel of no length would end before it starts.
                let time_ns = w.end_ns.max(w.start_ns.saturating_add(1));
                device.seen.push(Seen { time_ns, start: false, tenant });
            }
        }
        Ok(())
    }

    fn finish(self, watch: &dyn Watch) -> Result<RecordBatch> {
        let mut rows: Vec<(u32, u32, ResidencyInterval, Option<i64>)> = Vec::new();
        for (id, mut device) in self.devices {
            watch.progress("inferred residency", self.done, 0)?;
            if let [only] = device.tenants.as_slice() {
                let kernels = device.work.first().map_or(&[][..], |work| &work.kernels);
                if let Some((intervals, slice_ns)) = single::intervals(kernels) {
                    let slice_ns = slice_ns.map(|ns| ns.round() as i64);
                    rows.extend(intervals.into_iter().map(|interval| (id, *only, interval, slice_ns)));
                }
                continue;
            }
            device.seen.sort_unstable();
            device.group();
            if device.groups.len() < 2 {
                // Nobody was ever switched out for another of them.
                continue;
            }
            device.time_slice();
            let switch_gap = SwitchGap::of(&device.seen);
            let tenants = device.groups.len();
            let Some(slice_ns) = fit(&device.seen, tenants, switch_gap) else { continue };
            watch.progress("inferred residency", self.done, 0)?;
            let mut intervals = Vec::new();
            let mut engine = Engine::new(tenants, slice_ns, switch_gap, Some(&mut intervals));
            for (n, next) in device.seen.iter().enumerate() {
                if n.is_multiple_of(4096) {
                    watch.progress("inferred residency", self.done, 0)?;
                }
                engine.see(next);
            }
            engine.finish();
            device.leave_unknown(&mut intervals, switch_gap);
            device.doubt_the_end(&mut intervals);
            for interval in intervals {
                for tenant in device.groups.get(interval.tenant).into_iter().flatten() {
                    rows.push((id, *tenant, interval, Some(slice_ns.round() as i64)));
                }
            }
        }
        watch.progress("inferred residency", self.done, self.done)?;
        rows.sort_by(|a, b| (a.2.start_ns.total_cmp(&b.2.start_ns)).then((a.0, a.1).cmp(&(b.0, b.1))));
        let time = |pick: fn(&ResidencyInterval) -> i64| {
            rows.iter().map(|r| Some(pick(&r.2))).collect::<Int64Array>()
        };
        Builder::new(&schema::INFERRED_RESIDENCY)
            .put("device_id", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
            .put("tenant_id", rows.iter().map(|r| Some(r.1)).collect::<UInt32Array>())
            .put("start_ns", time(|t| t.start_ns.round() as i64))
            .put("end_ns", time(|t| t.end_ns.max(t.start_ns).round() as i64))
            .put("earliest_start_ns", time(|t| t.start_within.0))
            .put("latest_start_ns", time(|t| t.start_within.1))
            .put("earliest_end_ns", time(|t| t.end_within.0))
            .put("latest_end_ns", time(|t| t.end_within.1))
            .put("time_slice_ns", rows.iter().map(|r| r.3).collect::<Int64Array>())
            .put_words("basis", rows.iter().map(|_| "inferred"))
            .finish(rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::test_tables::{kernels, named, residency, K};

    /// Tenant, start, end in us, and the ends that are certain.
    fn held(rows: &[K]) -> Vec<(u32, i64, i64, i64, i64)> {
        let (tables, _) = named(Tables::from([("kernels", kernels(rows))]));
        let pass = InferredResidency::new(&tables, &BTreeSet::from([0])).unwrap();
        let batch = pass.run(&tables, &Unwatched).unwrap();
        let c = Columns::new(&schema::INFERRED_RESIDENCY, &batch);
        let us = |name: &str, row| c.i64(name).unwrap().value(row) / 1000;
        (0..c.rows())
            .map(|row| {
                let tenant = c.u32("tenant_id").unwrap().value(row);
                (
                    tenant,
                    us("start_ns", row),
                    us("end_ns", row),
                    us("latest_start_ns", row),
                    us("earliest_end_ns", row),
                )
            })
            .collect()
    }

    #[test]
    fn who_is_alone_keeps_the_engine_until_the_other_starts() {
        // 7 |0=100|   |300=400|                      |2000=2100|
        // 8                        |1000=1100|                       an end and a start 83 us apart do not stand here:
        // the switch_gap is the usual one, 10 us of it before a start, 43 nobody's
        let rows = [
            (0, 7, 0, 1, 7, 0, 100),
            (0, 7, 0, 1, 7, 300, 400),
            (0, 8, 0, 1, 7, 1000, 1100),
            (0, 7, 0, 1, 7, 2000, 2100),
        ];
        let found = held(&rows);
        assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [0, 1, 0]);
        // Coming is 0.12 * 83 = 10 us, the gap 0.52 * 83 = 43 us.
        assert_eq!((found[0].1, found[0].2), (0, 946));
        assert_eq!((found[1].1, found[1].2), (990, 1946));
        assert_eq!((found[2].1, found[2].2), (1990, 2100));
        // Certain is only what lies between kernels' own starts and ends.
        assert_eq!((found[1].3, found[1].4), (1000, 1100));
    }

    #[test]
    fn a_kernel_that_outlived_the_recording_leaves_the_end_uncertain() {
        // 7 |0=100|          |9000===============|    7 seems to have the device from 9000 on, unless 8 has begun
        // 8       |1000=8000|                         another kernel of 7 ms after 8000, whose end nobody recorded
        let rows = [(0, 7, 0, 1, 7, 0, 100), (0, 8, 0, 1, 7, 1000, 8000), (0, 7, 0, 1, 7, 9000, 13000)];
        let found = held(&rows);
        assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!((found[2].3, found[2].4), (9000, 8000));
        // Of a kernel that takes 7 ms and was not begun 8 ms ago there would be a record.
        let rows = [(0, 7, 0, 1, 7, 0, 100), (0, 8, 0, 1, 7, 1000, 8000), (0, 7, 0, 1, 7, 9000, 16000)];
        assert_eq!((held(&rows)[2].3, held(&rows)[2].4), (9000, 16000));
    }

    #[test]
    fn what_starts_and_ends_between_each_other_is_resident_at_once() {
        // 7 and 8 run kernels of 50 us at once, 9 has slices of its own: 20 kernels each, then one of 2 ms, ten times.
        let mut rows: Vec<K> = Vec::new();
        for round in 0..10_i64 {
            let t = round * 5_000;
            for n in 0..20_i64 {
                rows.push((0, 7, 0, 1, 7, t + n * 60, t + n * 60 + 50));
                rows.push((0, 8, 0, 1, 7, t + n * 60 + 20, t + n * 60 + 70));
            }
            rows.push((0, 9, 0, 1, 7, t + 2_000, t + 4_000));
        }
        let found = held(&rows);
        let of = |tenant: u32| found.iter().filter(|f| f.0 == tenant).map(|f| (f.1, f.2)).collect::<Vec<_>>();
        assert_eq!(of(0), of(1));
        assert_eq!(of(2).len(), 10);
        // Within the drained switch of 83 us around the kernel of 9.
        assert!(of(2).iter().zip(0..).all(|(s, n)| (s.0 - (n * 5_000 + 1_990)).abs() < 100));
    }

    #[test]
    fn kernels_interrupted_by_slices_show_the_slices() {
        // Slices of 3 ms, 43 us apart; both run kernels of 250 us back to back, cut where the slice ends.
        let (slice, gap, length) = (3_000_i64, 43_i64, 250_i64);
        let mut rows: Vec<K> = Vec::new();
        let mut intervals = Vec::new();
        let (mut left, mut started) = ([length; 2], [None; 2]);
        for interval in 0..40_i64 {
            let who = (interval % 2) as usize;
            let (mut now, end) = (interval * (slice + gap), interval * (slice + gap) + slice);
            intervals.push((who as u32, now, end));
            while now < end {
                let start = *started[who].get_or_insert(now);
                let done = left[who].min(end - now);
                (now, left[who]) = (now + done, left[who] - done);
                if left[who] == 0 {
                    rows.push((0, 7 + who as u32, 0, 1, 7, start, now));
                    (left[who], started[who]) = (length, None);
                }
            }
        }
        let found = held(&rows);
        let mut wrong = 0;
        for (tenant, start, end) in &intervals {
            let same = found.iter().find(|f| f.0 == *tenant && (f.1 - start).abs() < 400).unwrap();
            wrong += (same.1 - start).abs() + (same.2 - end).abs();
            assert!(same.3 <= *end && same.4 >= *start, "bounds hold");
        }
        let total: i64 = intervals.iter().map(|t| t.2 - t.1).sum();
        assert!(100 * wrong < 3 * total, "{wrong} of {total}");
    }

    #[test]
    fn a_turn_of_which_no_start_or_end_tells_is_found_by_its_hole() {
        // 7 |0=2000 in kernels of 100|      hole 2200      |4200= ... kernels of 100 =6200|
        // 8 |0 ================================ one kernel of 20 ms =====================|
        let mut rows: Vec<K> = vec![(0, 8, 0, 1, 7, 0, 20_000)];
        for burst in 0..4 {
            for n in 0..20 {
                rows.push((0, 7, 0, 1, 7, 10 + burst * 4200 + n * 100, 10 + burst * 4200 + n * 100 + 99));
            }
        }
        let found = held(&rows);
        let of_8: i64 = found.iter().filter(|f| f.0 == 1).map(|f| f.2 - f.1).sum();
        // Three holes of 2.2 ms and what is left after the last burst.
        assert!((of_8 - (3 * 2100 + 5_290)).abs() < 700, "{of_8}: {found:?}");
    }

    #[test]
    fn nothing_is_inferred_without_a_verdict_beside_records_or_for_one_tenant() {
        let rows = kernels(&[(0, 7, 0, 1, 7, 0, 100), (0, 8, 0, 1, 7, 200, 300)]);
        let run = |tables: Tables, devices: &[u32]| {
            let (tables, _) = named(tables);
            let pass = InferredResidency::new(&tables, &devices.iter().copied().collect()).unwrap();
            pass.run(&tables, &Unwatched).unwrap().num_rows()
        };
        assert_eq!(run(Tables::from([("kernels", rows.clone())]), &[0]), 2);
        assert_eq!(run(Tables::from([("kernels", rows.clone())]), &[]), 0);
        let observed = residency(&[(0, 0, 7, 1, 0, 1000)]);
        assert_eq!(run(Tables::from([("kernels", rows), ("residency", observed)]), &[0]), 0);
        let one = kernels(&[(0, 7, 0, 1, 7, 0, 100), (0, 7, 0, 1, 7, 200, 300)]);
        assert_eq!(run(Tables::from([("kernels", one)]), &[0]), 0);
        assert_eq!(run(Tables::new(), &[0]), 0);
    }

    #[test]
    fn it_stops_when_told() {
        let rows = kernels(&[(0, 7, 0, 1, 7, 0, 100), (0, 8, 0, 1, 7, 200, 300)]);
        let (tables, _) = named(Tables::from([("kernels", rows)]));
        for reports in 0..3 {
            let pass = InferredResidency::new(&tables, &BTreeSet::from([0])).unwrap();
            let stopped = pass.run(&tables, &StopAfter::new(reports));
            assert!(matches!(stopped, Err(crate::Error::Cancelled)));
        }
    }
}
