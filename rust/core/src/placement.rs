//! How full were the SMs, and whose work was on them?
//!
//! No supported interface measures this per SM or tenant, so it is a model, and every row says so (`modelled`).
//! Two models stand beside each other:
//!
//! - The **replay** ([`Model::Replay`]): blocks are placed SM by SM as the block scheduler would, held to the observed
//!   starts and ends (`block_replay.rs` says how and what it assumes).
//! - The **even** model ([`Model::Even`]), what the replay is measured against: a kernel holds
//!   `min(grid, blocks per SM x SMs)` blocks for the whole of its interval, spread evenly over the SMs its tenant may
//!   use. What a tenant's kernels ask for together is capped at those SMs, then the sum over tenants at the device, by
//!   scaling all in proportion.
//!
//! Bounds come with both. No fewer: one block of every kernel in flight whose tenant held the engine. No more: what the
//! even model asks for before tenants are scaled down. They hold whatever the order and the lengths of the blocks were,
//! as long as the policy is right.
//!
//! Who may be on the SMs together is the [`PlacementPolicy`]'s to say. Groups of tenants that take turns each have
//! the device to themselves, and their blocks stand still while others hold it: they are replayed on a clock of their
//! own, which runs while the group was resident: by switch records, or by the turns that starts and ends of kernels imply
//! (`turns.rs`). Records that include the restoring and saving of the state are shortened by what no kernel ever starts
//! or ends in ([`Placement::with_kernels`]). Where nothing says when that was, all groups with kernels in flight hold the
//! engine in equal shares.
//!
//! Not in it: whole-graph launches (their kernels are not recorded), copies, kernels whose occupancy or
//! tenant is not known; they are counted in [`Placed`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use arrow_array::{Float64Array, Int64Array, RecordBatch, UInt32Array, UInt64Array};

use crate::block_replay::{Forced, Machine, Meter, Standing};
use crate::device::at;
use crate::error::{Error, Result};
use crate::fold::{EventPass, Events};
use crate::occupancy::{LaunchColumns, Limiter, Limits, NumberMap, Recorded, TenantMap};
use crate::scheduler::{ps, Ask, Floor, PerSm, Ps};
use crate::schema::{
    Builder, Columns, INFERRED_RESIDENCY, KERNELS, KERNEL_PLACEMENT, RESIDENCY, SM_OCCUPANCY, SM_WARPS,
};
use crate::turns;
use crate::watch::Watch;

/// Whether the tenants of a device can be on its SMs at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// One tenant at a time.
    TimeSliced,
    /// All at once, on any SM they may use.
    #[default]
    Shared,
    /// All at once, each on SMs of its own.
    Disjoint,
}

/// SMs that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SmSet {
    /// So many. Which ones is not known: whole TPCs, those first that fewest other sets use, as NVIDIA describes the
    /// tendency of MPS.
    Count(u32),
    /// These, by number on the device.
    These(Vec<u32>),
}

/// What a verdict implies for where blocks may run.
#[derive(Debug, Clone, Default)]
pub struct PlacementPolicy {
    /// By device; [`Sharing::Shared`] where none is given.
    pub sharing: BTreeMap<u32, Sharing>,
    /// SMs by tenant, or by tenant and context (green contexts); all where none is given.
    pub sms: BTreeMap<(u32, Option<u32>), SmSet>,
    /// Tenants with an equal number are on the SMs together, others take turns with them. Where none is given, the
    /// device's sharing says it.
    pub groups: BTreeMap<u32, u32>,
    /// Tenants whose residency is that of another one: clients of an MPS server.
    pub held_by: BTreeMap<u32, u32>,
}

/// How blocks are put on SMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Model {
    /// As the block scheduler would.
    #[default]
    Replay,
    /// Evenly.
    Even,
}

/// What the model says, and what it had to leave out.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The `sm_occupancy` table: for every tenant that ran a modelled kernel, one row per time bin.
    pub sm_occupancy: RecordBatch,
    /// The `sm_warps` table: for every SM of a device that ran a modelled kernel, one row per time bin.
    pub sm_warps: RecordBatch,
    /// The `kernel_placement` table: one row per replayed kernel.
    pub kernel_placement: RecordBatch,
    /// Kernels whose occupancy or tenant is not known.
    pub unmodelled_kernels: u64,
    /// The sum of their durations.
    pub unmodelled_ns: i64,
}

/// Blocks of one kernel, or of all kernels of a tenant: warps and SMs. Whole numbers, so that what is added
/// and taken away again leaves nothing behind.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    kernels: u64,
    warps: u64,
    sms: u64,
    /// Warps of one block of each.
    least: u64,
}

/// A tenant on its device, as the even model and the bounds see it.
#[derive(Debug, Default)]
struct Tenant {
    load: Load,
    /// Slices of it that are open: more than one where it has several contexts.
    resident: u32,
    warps: Vec<f64>,
    sm_active: Vec<f64>,
    low: Vec<f64>,
    high: Vec<f64>,
    seen: bool,
}

#[derive(Debug, Default)]
struct Device {
    since_ns: Option<i64>,
    /// The bin in which the last change was.
    cursor: usize,
    tenants: BTreeMap<u32, Tenant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Kernel { warps: u64, sms: u64, least: u64 },
    Slice,
}

/// Ends that lie ahead, soonest first: (time, device, tenant, what).
type Ends = BinaryHeap<Reverse<(i64, u32, u32, End)>>;

/// What fits of a launch configuration.
#[derive(Debug, Clone, Copy)]
struct Fits {
    blocks: u32,
    warps: u32,
    ask: Ask,
    clusters: bool,
}

/// The fold over `kernels`.
#[derive(Debug)]
pub struct Placement {
    limits: BTreeMap<u32, Limits>,
    tenants: TenantMap,
    policy: PlacementPolicy,
    model: Model,
    bins: Bins,
    slices: std::vec::IntoIter<(i64, i64, u32, u32)>,
    next_slice: Option<(i64, i64, u32, u32)>,
    /// Slices by the tenant whose they are.
    held: BTreeMap<(u32, u32), Vec<(i64, i64)>>,
    /// Of whose slices records say when running began, and when it ended.
    exact: [BTreeSet<(u32, u32)>; 2],
    /// Devices whose slices are inferred: bounds do not rest on them.
    inferred: BTreeSet<u32>,
    devices: BTreeMap<u32, Device>,
    stages: BTreeMap<u32, Stage>,
    ends: Ends,
    fits: NumberMap<(u32, Recorded), Option<Fits>>,
    seats: NumberMap<Context, Option<Seat>>,
    rows: Rows,
    unmodelled_kernels: u64,
    unmodelled_ns: i64,
}

/// Equal parts of a window.
#[derive(Debug, Clone, Copy)]
struct Bins {
    start_ns: i64,
    end_ns: i64,
    n: usize,
}

impl Bins {
    /// Where bin `i` begins: edges are whole nanoseconds, the last is the end of the window.
    fn edge(&self, i: usize) -> i64 {
        // Almost always 64 bits are enough, and many times as fast.
        if let (Some(length), Ok(at), Ok(n)) =
            (self.end_ns.checked_sub(self.start_ns), i64::try_from(i), i64::try_from(self.n))
        {
            if let Some(offset) = length.checked_mul(at) {
                return self.start_ns.saturating_add(offset / n.max(1));
            }
        }
        let length = i128::from(self.end_ns) - i128::from(self.start_ns);
        let offset = length * i as i128 / (self.n as i128);
        i64::try_from(i128::from(self.start_ns) + offset).unwrap_or(self.end_ns)
    }

    fn bin_of(&self, time_ns: i64) -> usize {
        let length = (i128::from(self.end_ns) - i128::from(self.start_ns)).max(1);
        let offset = i128::from(time_ns) - i128::from(self.start_ns);
        let mut bin = usize::try_from(offset * self.n as i128 / length).unwrap_or(0).min(self.n - 1);
        // Edges are rounded down, so the bin may be the one before or after.
        while bin + 1 < self.n && self.edge(bin + 1) <= time_ns {
            bin += 1;
        }
        while bin > 0 && self.edge(bin) > time_ns {
            bin -= 1;
        }
        bin
    }

    /// Calls `each` with every bin that `[from, to)` touches and the time in it; `cursor` is a bin not after `from`'s,
    /// and left at the last.
    #[allow(clippy::cast_precision_loss)] // a bin is shorter than 2^53 ns (104 days)
    fn each(&self, cursor: &mut usize, from_ns: i64, to_ns: i64, mut each: impl FnMut(usize, f64)) {
        let (mut at, to) = (from_ns.max(self.start_ns), to_ns.min(self.end_ns));
        if at >= to {
            return;
        }
        if self.edge(*cursor + 1) <= at {
            *cursor = self.bin_of(at);
        }
        while at < to {
            let end = self.edge(*cursor + 1);
            let until = end.min(to);
            each(*cursor, (until - at) as f64);
            at = until;
            if at < to {
                *cursor += 1;
            }
        }
    }
}

/// The least of some times, which begin somewhere above zero: where?
#[derive(Debug, Default)]
struct Nearest(Vec<i64>);

impl Nearest {
    /// How many are kept.
    const KEPT: usize = 8;
    /// The edge must be known to one part of a slice in this many.
    const EXACT: i64 = 50;

    fn see(&mut self, ns: i64) {
        if self.0.len() < Self::KEPT || self.0.last().is_some_and(|last| ns < *last) {
            let at = self.0.partition_point(|kept| *kept <= ns);
            self.0.insert(at, ns);
            self.0.truncate(Self::KEPT);
        }
    }

    /// As far below the least as they lie apart; `None` where they are too few, too far apart, or half a slice away.
    fn edge(&self, slice_ns: i64) -> Option<i64> {
        let (first, last) = (*self.0.first()?, *self.0.get(Self::KEPT - 1)?);
        let apart = last.saturating_sub(first) / (Self::KEPT as i64 - 1);
        let edge = (first - apart).max(0);
        (apart <= slice_ns / Self::EXACT && edge < slice_ns / 2).then_some(edge)
    }
}

/// A CUDA context: capture, pid, device, context id.
type Context = (u32, Option<u32>, u32, Option<u32>);

/// Where a kernel's context stands.
#[derive(Debug, Clone, Copy)]
struct Seat {
    tenant: u32,
    crew: usize,
    member: usize,
    queue: u32,
    set: usize,
    /// SMs of the set.
    sms: u32,
}

/// The replay of one device: its groups, and what they add up to.
#[derive(Debug)]
struct Stage {
    sums: Sums,
    crews: Vec<Crew>,
    by_group: BTreeMap<(bool, u32), usize>,
    queues: u32,
    /// The SM at each place of the tie order.
    order: Vec<u32>,
    /// How many sets use each TPC.
    users: Vec<u32>,
    floor: Floor,
}

/// Tenants that hold the SMs together.
#[derive(Debug)]
struct Crew {
    machine: Machine,
    clock: Clock,
    cursor: usize,
    /// For each of the machine's tenants its place in the sums.
    members: Vec<usize>,
    by_tenant: BTreeMap<u32, usize>,
    sets: BTreeMap<(u32, Option<u32>), (usize, u32)>,
    /// Takes turns, and nothing says when.
    unsliced: bool,
}

/// The time of a group: real, or only while it was resident.
#[derive(Debug)]
enum Clock {
    Real,
    /// (start, end, resident time before it), and where the last look ended.
    Resident(Vec<(Ps, Ps, Ps)>, usize),
}

impl Clock {
    fn of(mut slices: Vec<(i64, i64)>) -> Self {
        slices.sort_unstable();
        let mut spans: Vec<(Ps, Ps, Ps)> = Vec::with_capacity(slices.len());
        for (start, end) in slices.iter().map(|s| (ps(s.0), ps(s.1))) {
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
    fn own(&self, time: Ps) -> Ps {
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
    fn real(&mut self, from: Ps, to: Ps, mut each: impl FnMut(Ps, Ps)) {
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
struct Sums {
    /// Ends of the bins, in picoseconds; the first entry is the start of the window.
    edges: Vec<Ps>,
    sms: usize,
    /// By bin, then by place in the tie order.
    warps: Vec<f64>,
    active: Vec<f64>,
    /// By bin, to be added to what is active: when all SMs are.
    everywhere: Vec<f64>,
    /// Tenant, warps, SMs.
    tenants: Vec<(u32, Vec<f64>, Vec<f64>)>,
}

/// A kernel is short where so many of its length make a bin.
const SHORT: Ps = 8;

impl Sums {
    /// Kernels that take less are short beside a bin.
    fn short(&self) -> Ps {
        let ends = self.edges.first().zip(self.edges.get(1));
        ends.map_or(0, |(from, to)| to.saturating_sub(*from) / SHORT)
    }

    #[allow(clippy::cast_precision_loss)] // a bin is shorter than 2^53 ps (2 hours): beyond, a bit is lost
    fn add(
        &mut self,
        cursor: &mut usize,
        weight: f64,
        from: Ps,
        to: Ps,
        standing: &Standing<'_>,
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
            for (sum, n) in self.warps.get_mut(row.clone()).unwrap_or_default().iter_mut().zip(standing.warps)
            {
                *sum += f64::from(*n) * length;
            }
            if standing.everywhere {
                if let Some(sum) = self.everywhere.get_mut(*cursor) {
                    *sum += length;
                }
            } else {
                for (sum, n) in self.active.get_mut(row).unwrap_or_default().iter_mut().zip(standing.warps) {
                    *sum += if *n > 0 { length } else { 0.0 };
                }
            }
            for (held, member) in standing.tenants.iter().zip(members).filter(|(held, _)| held.warps > 0) {
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
struct Sink<'a> {
    sums: &'a mut Sums,
    clock: &'a mut Clock,
    cursor: &'a mut usize,
    members: &'a [usize],
    weight: f64,
}

impl Meter for Sink<'_> {
    fn stretch(&mut self, from: Ps, to: Ps, standing: &Standing<'_>) {
        let Self { sums, clock, cursor, members, weight } = self;
        clock.real(from, to, |a, b| sums.add(cursor, *weight, a, b, standing, members));
    }
}

impl Crew {
    /// Does something with the machine and where its stretches go.
    fn with<T>(
        &mut self,
        sums: &mut Sums,
        weight: f64,
        act: impl FnOnce(&mut Machine, &mut Sink<'_>) -> T,
    ) -> T {
        let Self { machine, clock, cursor, members, .. } = self;
        act(machine, &mut Sink { sums, clock, cursor, members, weight })
    }
}

impl Stage {
    fn new(limits: &Limits, sm_count: u32, bins: &Bins) -> Self {
        let n = sm_count as usize;
        let mut order: Vec<u32> = (0..sm_count).collect();
        // Measured on Turing (all even SMs, then all odd ones) and Pascal (in order); assumed for what came after.
        if limits.capability.is_some_and(|c| c >= (7, 5)) {
            order.sort_by_key(|sm| (sm % 2, *sm));
        }
        let edges = (0..=bins.n).map(|bin| ps(bins.edge(bin))).collect();
        Self {
            sums: Sums {
                edges,
                sms: n,
                warps: vec![0.0; n * bins.n],
                active: vec![0.0; n * bins.n],
                everywhere: vec![0.0; bins.n],
                tenants: Vec::new(),
            },
            crews: Vec::new(),
            by_group: BTreeMap::new(),
            queues: 0,
            order,
            users: vec![0; n.div_ceil(2)],
            floor: Floor::new(limits.resources(), n),
        }
    }

    /// A set in tie order, and how many SMs it has.
    fn mask(&mut self, set: &SmSet) -> (Vec<PerSm>, u32) {
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

    /// Groups that take turns, and nothing says when, hold the engine in equal shares: the share of each.
    #[allow(clippy::cast_precision_loss)] // a few groups
    fn weight(&self) -> f64 {
        let waiting = self.crews.iter().filter(|c| c.unsliced && c.machine.busy()).count();
        1.0 / waiting.max(1) as f64
    }

    /// Lets all of them get to `now`, event by event, because each one's share depends on the others.
    fn advance_unsliced(&mut self, now: Ps) {
        loop {
            let next = self.crews.iter().enumerate().filter(|(_, c)| c.unsliced);
            let next = next.filter_map(|(n, c)| Some((c.machine.next().filter(|t| *t <= now)?, n))).min();
            let weight = self.weight();
            let time = next.map_or(now, |(time, _)| time);
            for crew in self.crews.iter_mut().filter(|c| c.unsliced) {
                crew.with(&mut self.sums, weight, |machine, sink| machine.settle(time, sink));
            }
            let Some((time, n)) = next else { return };
            if let Some(crew) = self.crews.get_mut(n) {
                crew.with(&mut self.sums, weight, |machine, sink| machine.advance(time, sink));
            }
        }
    }

    fn start(&mut self, crew: usize, mut kernel: Forced) -> bool {
        let Some(unsliced) = self.crews.get(crew).map(|c| c.unsliced) else { return false };
        if unsliced {
            self.advance_unsliced(kernel.start);
        }
        let weight = if unsliced { self.weight() } else { 1.0 };
        let Some(crew) = self.crews.get_mut(crew) else { return false };
        kernel.start = crew.clock.own(kernel.start);
        kernel.end = crew.clock.own(kernel.end);
        if kernel.start >= kernel.end {
            return false;
        }
        crew.with(&mut self.sums, weight, |machine, sink| machine.start(kernel, sink));
        true
    }

    fn finish(&mut self) {
        self.advance_unsliced(Ps::MAX);
        for crew in &mut self.crews {
            crew.with(&mut self.sums, 1.0, |machine, sink| machine.advance(Ps::MAX, sink));
        }
    }
}

/// A kernel whose tenant and occupancy are known.
#[derive(Debug, Clone, Copy)]
struct Entry {
    capture: u32,
    pid: Option<u32>,
    correlation: Option<u32>,
    gpu: u32,
    from: i64,
    to: i64,
    blocks: u64,
    seat: Seat,
    fit: Fits,
}

impl Entry {
    /// Blocks that its SMs hold.
    fn room(&self) -> u64 {
        u64::from(self.fit.blocks) * u64::from(self.seat.sms)
    }

    fn replay(&self, stages: &mut BTreeMap<u32, Stage>, rows: &mut Rows) {
        let Self { seat, fit, blocks, .. } = *self;
        let Some(stage) = stages.get_mut(&self.gpu) else { return };
        let kernel = Forced {
            row: rows.start.len(),
            start: ps(self.from),
            end: ps(self.to),
            blocks,
            ask: fit.ask,
            tenant: seat.member,
            queue: seat.queue,
            set: seat.set,
        };
        let replayed = stage.start(seat.crew, kernel);
        // One block on each SM, or all that the device holds: as programs do that fetch their work themselves.
        let persistent = blocks == u64::from(seat.sms) || blocks == self.room();
        rows.capture.push(self.capture);
        rows.pid.push(self.pid);
        rows.correlation.push(self.correlation);
        rows.device.push(self.gpu);
        rows.tenant.push(seat.tenant);
        rows.start.push(self.from);
        rows.end.push(self.to);
        rows.blocks.push(blocks);
        rows.sms.push(None);
        rows.waves.push(None);
        rows.caveat.push(match () {
            () if !replayed => Some("not resident"),
            () if fit.clusters => Some("clusters"),
            () if persistent => Some("persistent"),
            () => None,
        });
    }
}

/// What is read of a kernel.
struct KernelRows<'a> {
    rows: usize,
    launches: LaunchColumns<'a>,
    capture: &'a UInt32Array,
    pid: &'a UInt32Array,
    device: &'a UInt32Array,
    context: &'a UInt32Array,
    green: &'a UInt32Array,
    correlation: &'a UInt32Array,
    start: &'a Int64Array,
    end: &'a Int64Array,
}

impl<'a> KernelRows<'a> {
    fn new(c: &Columns<'a>) -> Result<Self> {
        Ok(Self {
            rows: c.rows(),
            launches: LaunchColumns::new(c)?,
            capture: c.u32("capture")?,
            pid: c.u32("pid")?,
            device: c.u32("device_id")?,
            context: c.u32("context_id")?,
            green: c.u32("green_context_id")?,
            correlation: c.u32("correlation_id")?,
            start: c.i64("start_ns")?,
            end: c.i64("end_ns")?,
        })
    }
}

/// Rows of `kernel_placement`.
#[derive(Debug, Default)]
struct Rows {
    capture: Vec<u32>,
    pid: Vec<Option<u32>>,
    correlation: Vec<Option<u32>>,
    device: Vec<u32>,
    tenant: Vec<u32>,
    start: Vec<i64>,
    end: Vec<i64>,
    blocks: Vec<u64>,
    sms: Vec<Option<u32>>,
    waves: Vec<Option<f64>>,
    caveat: Vec<Option<&'static str>>,
}

/// The most bins of a window: a picture has no more columns, and a row stands for each tenant and bin.
pub const MAX_BINS: usize = 1_000_000;
/// Kernels that are handed to both models at once.
const BATCH: usize = 1 << 16;
/// The most values of `sm_warps`, for each of its two sums: 512 MiB.
const MAX_CELLS: usize = 1 << 26;

impl Placement {
    /// For completed `devices`, the tenants of `kernels`, the `residency` slices where there are any, and
    /// `window` (start, end) cut into `n_bins`.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty window, no bins or too many, [`Error::Schema`] for wrong tables.
    pub fn new(
        devices: &RecordBatch,
        tenants: TenantMap,
        residency: Option<&RecordBatch>,
        policy: PlacementPolicy,
        window: (i64, i64),
        n_bins: usize,
    ) -> Result<Self> {
        let (start_ns, end_ns) = window;
        if end_ns <= start_ns || n_bins == 0 || n_bins > MAX_BINS {
            return Err(Error::Argument(format!(
                "occupancy over time needs a window with a length and 1 to {MAX_BINS} bins, not {start_ns} to {end_ns} ns in {n_bins}"
            )));
        }
        let mut slices = Vec::new();
        let mut exact = [BTreeSet::new(), BTreeSet::new()];
        if let Some(residency) = residency {
            let c = Columns::new(&RESIDENCY, residency);
            let (device, tenant) = (c.u32("device_id")?, c.u32("tenant_id")?);
            let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
            let (first, last) = (c.i64("running_start_ns")?, c.i64("running_end_ns")?);
            for row in 0..c.rows() {
                let Some(holder) = at(tenant, row).map(|tenant| (device.value(row), tenant)) else {
                    continue;
                };
                for (exact, known) in exact.iter_mut().zip([at(first, row), at(last, row)]) {
                    if known.is_some() {
                        exact.insert(holder);
                    }
                }
            }
            slices = (0..c.rows())
                .filter_map(|row| {
                    // Blocks run only after the state is restored and before it is saved, where records say when.
                    let from = at(first, row).map_or(start.value(row), |t| t.max(start.value(row)));
                    let to = at(last, row).map_or(end.value(row), |t| t.min(end.value(row)));
                    Some((from, to, device.value(row), at(tenant, row)?))
                })
                .filter(|slice| slice.0 < slice.1)
                .collect();
            slices.sort_unstable();
        }
        let mut held: BTreeMap<(u32, u32), Vec<(i64, i64)>> = BTreeMap::new();
        for s in &slices {
            held.entry((s.2, s.3)).or_default().push((s.0, s.1));
        }
        let limits = Limits::of_devices(devices)?;
        let most = limits.values().filter_map(|l| l.sm_count).max().unwrap_or(0) as usize;
        if most.saturating_mul(n_bins) > MAX_CELLS {
            return Err(Error::Argument(format!(
                "{n_bins} bins of {most} SMs are more than can be held at once; take at most {} bins",
                MAX_CELLS / most.max(1)
            )));
        }
        let mut slices = slices.into_iter();
        let next_slice = slices.next();
        Ok(Self {
            limits,
            tenants,
            policy,
            model: Model::Replay,
            bins: Bins { start_ns, end_ns, n: n_bins },
            slices,
            next_slice,
            held,
            exact,
            inferred: BTreeSet::new(),
            devices: BTreeMap::new(),
            stages: BTreeMap::new(),
            ends: Ends::new(),
            fits: NumberMap::default(),
            seats: NumberMap::default(),
            rows: Rows::default(),
            unmodelled_kernels: 0,
            unmodelled_ns: 0,
        })
    }

    /// The same with the turns of devices of which no slice was observed (`inferred_residency`). Blocks do not run while the
    /// state is saved and restored, which is in the turns. The replay's clock stands still meanwhile, but not between a
    /// start and an end that was seen.
    ///
    /// # Errors
    /// [`Error::Schema`] for a wrong table.
    pub fn with_inferred(mut self, turns: &RecordBatch) -> Result<Self> {
        let c = Columns::new(&INFERRED_RESIDENCY, turns);
        let (device, tenant) = (c.u32("device_id")?, c.u32("tenant_id")?);
        let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
        let (first, last) = (c.i64("latest_start_ns")?, c.i64("earliest_end_ns")?);
        // Turns of tenants that a device has several of lie apart; those of an only one are when it ran.
        let mut gaps: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        let mut left: BTreeMap<u32, (u32, i64)> = BTreeMap::new();
        for row in 0..c.rows() {
            let before = left.insert(device.value(row), (tenant.value(row), end.value(row)));
            let gap =
                before.filter(|b| b.0 != tenant.value(row)).map(|b| start.value(row).saturating_sub(b.1));
            gaps.entry(device.value(row)).or_default().extend(gap.filter(|gap| *gap > 0));
        }
        let usual = |gaps: &mut Vec<i64>| {
            let middle = gaps.len() / 2;
            if gaps.is_empty() {
                0
            } else {
                *gaps.select_nth_unstable(middle).1
            }
        };
        let handovers: BTreeMap<u32, (i64, i64)> =
            gaps.iter_mut().map(|(device, gaps)| (*device, turns::not_running(usual(gaps)))).collect();
        let observed: BTreeSet<u32> = self.held.keys().map(|key| key.0).collect();
        let mut slices: Vec<_> = self.next_slice.take().into_iter().chain(self.slices).collect();
        for row in 0..c.rows() {
            let (device, tenant) = (device.value(row), tenant.value(row));
            let (from, to) = (start.value(row), end.value(row));
            if !observed.contains(&device) && from < to {
                self.inferred.insert(device);
                slices.push((from, to, device, tenant));
                let (leaving, coming) = handovers.get(&device).copied().unwrap_or_default();
                let running = (
                    from.saturating_add(coming).min(first.value(row).max(from)),
                    to.saturating_sub(leaving).max(last.value(row).min(to)),
                );
                let held = self.held.entry((device, tenant)).or_default();
                held.extend(Some(running).filter(|(from, to)| from < to));
            }
        }
        slices.sort_unstable();
        self.slices = slices.into_iter();
        self.next_slice = self.slices.next();
        Ok(self)
    }

    /// The same with slices that begin and end when blocks ran, where records only say when the state began to be
    /// restored and when it was saved: no kernel starts while it is restored, none ends while it is saved. Where starts
    /// (and ends) lie close enough together to tell, each slice is shorter by what none of them is in. Only the
    /// replay's clock is: bounds hold without it.
    ///
    /// # Errors
    /// [`Error::Schema`] for a wrong table.
    pub fn with_kernels(mut self, kernels: &RecordBatch) -> Result<Self> {
        let vague =
            |key: &(u32, u32)| !self.inferred.contains(&key.0) && self.exact.iter().any(|e| !e.contains(key));
        let mut seen: BTreeMap<(u32, u32), [Nearest; 2]> =
            self.held.keys().filter(|key| vague(key)).map(|key| (*key, Default::default())).collect();
        if seen.is_empty() {
            return Ok(self);
        }
        for slices in self.held.values_mut() {
            slices.sort_unstable();
        }
        let c = Columns::new(&KERNELS, kernels);
        let (capture, pid, device) = (c.u32("capture")?, c.u32("pid")?, c.u32("device_id")?);
        let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
        for row in 0..c.rows() {
            let gpu = device.value(row);
            let Some(tenant) = self.tenants.get(&(capture.value(row), at(pid, row), gpu)) else { continue };
            let key = (gpu, self.holder(*tenant));
            let (Some(slices), Some([starts, ends])) = (self.held.get(&key), seen.get_mut(&key)) else {
                continue;
            };
            let slice = |time: i64| {
                let next = slices.partition_point(|s| s.0 <= time);
                slices.get(next.checked_sub(1)?).copied().filter(|s| time <= s.1)
            };
            if let Some(slice) = slice(start.value(row)) {
                starts.see(start.value(row).saturating_sub(slice.0));
            }
            if let Some(slice) = slice(end.value(row)) {
                ends.see(slice.1.saturating_sub(end.value(row)));
            }
        }
        for (key, [starts, ends]) in seen {
            let Some(slices) = self.held.get_mut(&key).filter(|slices| !slices.is_empty()) else { continue };
            let mut lengths: Vec<i64> = slices.iter().map(|s| s.1.saturating_sub(s.0)).collect();
            let middle = lengths.len() / 2;
            let usual = *lengths.select_nth_unstable(middle).1;
            let [restore, save] = [starts, ends].map(|nearest| nearest.edge(usual).unwrap_or(0));
            let restore = if self.exact.first().is_some_and(|e| e.contains(&key)) { 0 } else { restore };
            let save = if self.exact.last().is_some_and(|e| e.contains(&key)) { 0 } else { save };
            for slice in slices.iter_mut() {
                *slice = (slice.0.saturating_add(restore), slice.1.saturating_sub(save));
            }
            slices.retain(|slice| slice.0 < slice.1);
        }
        Ok(self)
    }

    /// The same with another model.
    #[must_use]
    pub fn with_model(mut self, model: Model) -> Self {
        self.model = model;
        self
    }

    /// SMs that a tenant may use, of how many.
    fn sms(&self, device: u32, tenant: u32) -> Option<(u32, u32)> {
        let all = self.limits.get(&device)?.sm_count?;
        let own = match self.policy.sms.get(&(tenant, None)) {
            None => all,
            Some(SmSet::Count(n)) => (*n).min(all),
            Some(SmSet::These(sms)) => {
                let mut sms: Vec<u32> = sms.iter().copied().filter(|sm| *sm < all).collect();
                sms.sort_unstable();
                sms.dedup();
                u32::try_from(sms.len()).unwrap_or(all)
            }
        };
        Some((own, all))
    }

    /// Whose slices are a tenant's.
    fn holder(&self, tenant: u32) -> u32 {
        self.policy.held_by.get(&tenant).copied().unwrap_or(tenant)
    }

    /// The tenants of a device take turns with others: the number of the group is its own.
    fn group(&self, device: u32, tenant: u32) -> (bool, u32) {
        match (self.policy.groups.get(&tenant), self.policy.sharing.get(&device)) {
            (Some(group), _) => (true, *group),
            (None, Some(Sharing::TimeSliced)) => (false, self.holder(tenant)),
            (None, _) => (false, 0),
        }
    }

    /// Adds to the bins what was there from the device's last change until now.
    fn settle(&mut self, device: u32, now_ns: i64) {
        let Some((_, all)) = self.sms(device, u32::MAX) else { return };
        let Some(max_warps) = self.limits.get(&device).and_then(|l| l.max_warps_per_sm) else { return };
        let state = self.devices.entry(device).or_default();
        let since_ns = state.since_ns.replace(now_ns).unwrap_or(now_ns);
        if since_ns >= now_ns {
            return;
        }
        let Some(state) = self.devices.get(&device) else { return };
        // (tenant, even share of warps and SMs, least, most)
        let mut asked: Vec<(u32, [f64; 4])> = Vec::new();
        let mut waiting = BTreeSet::new();
        let flying = || state.tenants.iter().filter(|(_, t)| t.load.kernels > 0);
        for (id, _) in flying() {
            if self.turns(device, *id) && !self.held.contains_key(&(device, self.holder(*id))) {
                waiting.insert(self.group(device, *id));
            }
        }
        for (id, tenant) in flying() {
            let holder = self.holder(*id);
            let turns = self.turns(device, *id);
            let known = self.held.contains_key(&(device, holder));
            let resident = || state.tenants.get(&holder).is_some_and(|t| t.resident > 0);
            let (weight, least, most) = match (turns, known) {
                (false, _) => (1.0, 1.0, 1.0),
                (true, false) if waiting.len() > 1 => (1.0 / waiting.len() as f64, 0.0, 1.0),
                (true, false) => (1.0, 1.0, 1.0),
                (true, true) => {
                    let here = f64::from(u8::from(resident()));
                    if self.inferred.contains(&device) {
                        (here, 0.0, 1.0)
                    } else {
                        (here, here, here)
                    }
                }
            };
            let own = self.sms(device, *id).map_or(all, |s| s.0);
            let cap = f64::from(own) / f64::from(all);
            let slots = f64::from(all) * f64::from(max_warps);
            let warps = (tenant.load.warps as f64 / slots).min(cap);
            let sms = (tenant.load.sms as f64 / f64::from(all)).min(cap);
            let low = (tenant.load.least as f64 / slots).min(cap);
            asked.push((*id, [weight * warps, weight * sms, least * low, most * warps]));
        }
        let total = asked.iter().fold((0.0, 0.0), |sum, (_, a)| (sum.0 + a[0], sum.1 + a[1]));
        let scale = (1.0 / f64::max(total.0, 1.0), 1.0 / f64::max(total.1, 1.0));
        if asked.is_empty() {
            return;
        }
        let Some(state) = self.devices.get_mut(&device) else { return };
        let mut cursor = state.cursor;
        self.bins.each(&mut cursor, since_ns, now_ns, |bin, length| {
            for (id, [warps, sms, low, high]) in &asked {
                let Some(tenant) = state.tenants.get_mut(id) else { continue };
                let series = [&mut tenant.warps, &mut tenant.sm_active, &mut tenant.low, &mut tenant.high];
                for (series, value) in series.into_iter().zip([warps * scale.0, sms * scale.1, *low, *high]) {
                    if let Some(sum) = series.get_mut(bin) {
                        *sum += value * length;
                    }
                }
            }
        });
        state.cursor = cursor;
    }

    /// Whether a tenant takes turns with others of its device.
    fn turns(&self, device: u32, tenant: u32) -> bool {
        self.policy.sharing.get(&device) == Some(&Sharing::TimeSliced)
            || self.policy.groups.contains_key(&tenant)
    }

    fn tenant(&mut self, device: u32, tenant: u32) -> &mut Tenant {
        self.devices.entry(device).or_default().tenants.entry(tenant).or_default()
    }

    /// Lets slices begin and kernels and slices end, until `now_ns`.
    fn advance(&mut self, now_ns: i64) {
        loop {
            let slice_ns = self.next_slice.map(|s| s.0).filter(|t| *t <= now_ns);
            let end_ns = self.ends.peek().map(|Reverse(e)| e.0).filter(|t| *t <= now_ns);
            match (slice_ns, end_ns) {
                (None, None) => return,
                (Some(start), end) if end.is_none_or(|end| start < end) => {
                    let Some((_, until, device, tenant)) = self.next_slice.take() else { return };
                    self.next_slice = self.slices.next();
                    self.settle(device, start);
                    self.tenant(device, tenant).resident += 1;
                    self.ends.push(Reverse((until, device, tenant, End::Slice)));
                }
                _ => {
                    let Some(Reverse((time, device, id, end))) = self.ends.pop() else { return };
                    self.settle(device, time);
                    let tenant = self.tenant(device, id);
                    match end {
                        End::Slice => tenant.resident = tenant.resident.saturating_sub(1),
                        End::Kernel { warps, sms, least } => {
                            tenant.load.kernels = tenant.load.kernels.saturating_sub(1);
                            tenant.load.warps = tenant.load.warps.saturating_sub(warps);
                            tenant.load.sms = tenant.load.sms.saturating_sub(sms);
                            tenant.load.least = tenant.load.least.saturating_sub(least);
                        }
                    }
                }
            }
        }
    }

    /// What fits of a launch; `None` where that is not known.
    fn fit(&mut self, device: u32, launch: Recorded) -> Option<Fits> {
        let shape = launch.shape();
        let limits = self.limits.get(&device);
        *self.fits.entry((device, shape)).or_insert_with(|| {
            let fit = shape.fit(limits).ok()?;
            let limits = limits?;
            let ask = shape.footprint(limits)?;
            let padded = fit.limiters.iter().find_map(|limiter| match limiter {
                Limiter::Registers => Some(1),
                Limiter::Shared => Some(2),
                Limiter::Blocks | Limiter::Barriers => Some(3),
                Limiter::Warps | Limiter::Clusters => None,
            });
            let ask = Ask::new(ask, limits.resources(), fit.blocks, padded);
            Some(Fits {
                blocks: fit.blocks,
                warps: fit.warps / fit.blocks.max(1),
                ask,
                clusters: shape.clustered(),
            })
        })
    }

    /// Where the kernels of a context are replayed.
    fn seat(&mut self, device: u32, tenant: u32, context: Option<u32>) -> Option<Seat> {
        let limits = self.limits.get(&device)?;
        let all = limits.sm_count?;
        let group = self.group(device, tenant);
        let turns = self.turns(device, tenant);
        let bins = self.bins;
        let stage = self.stages.entry(device).or_insert_with(|| Stage::new(limits, all, &bins));
        let crew = if let Some(crew) = stage.by_group.get(&group) {
            *crew
        } else {
            let holder = self.policy.held_by.get(&tenant).copied().unwrap_or(tenant);
            let slices = self.held.get(&(device, holder)).filter(|_| turns);
            stage.crews.push(Crew {
                machine: Machine::new(stage.floor.clone(), stage.sums.short()),
                clock: slices.map_or(Clock::Real, |slices| Clock::of(slices.clone())),
                cursor: 0,
                members: Vec::new(),
                by_tenant: BTreeMap::new(),
                sets: BTreeMap::new(),
                unsliced: turns && slices.is_none(),
            });
            let crew = stage.crews.len() - 1;
            stage.by_group.insert(group, crew);
            crew
        };
        let own = (tenant, context);
        let key = if self.policy.sms.contains_key(&own) { own } else { (tenant, None) };
        let known = stage.crews.get(crew).and_then(|c| c.sets.get(&key)).copied();
        let (set, sms) = match (known, self.policy.sms.get(&key)) {
            (Some(known), _) => known,
            (None, None) => (0, all),
            (None, Some(set)) => {
                let (mask, sms) = stage.mask(set);
                let crew = stage.crews.get_mut(crew)?;
                let set = (crew.machine.add_set(mask), sms);
                crew.sets.insert(key, set);
                set
            }
        };
        let queue = stage.queues;
        stage.queues += 1;
        let crew_at = crew;
        let crew = stage.crews.get_mut(crew)?;
        let member = if let Some(member) = crew.by_tenant.get(&tenant) {
            *member
        } else {
            let n = bins.n;
            let place = stage.sums.tenants.len();
            stage.sums.tenants.push((tenant, vec![0.0; n], vec![0.0; n]));
            crew.members.push(place);
            let member = crew.machine.add_tenant();
            crew.by_tenant.insert(tenant, member);
            member
        };
        (sms > 0).then_some(Seat { tenant, crew: crew_at, member, queue, set, sms })
    }

    /// The `sm_warps` table.
    fn sm_warps(&mut self) -> Result<RecordBatch> {
        let (mut device_id, mut starts, mut ends, mut sms) = (vec![], vec![], vec![], vec![]);
        let (mut warps, mut active) = (vec![], vec![]);
        for (device, stage) in &self.stages {
            let mut places: Vec<(u32, usize)> = stage.order.iter().copied().zip(0..).collect();
            places.sort_unstable();
            let rows = stage.sums.warps.chunks(stage.sums.sms.max(1));
            let rows = rows.zip(stage.sums.active.chunks(stage.sums.sms.max(1)));
            for (bin, ((w, a), everywhere)) in rows.zip(&stage.sums.everywhere).enumerate() {
                let (from, to) = (self.bins.edge(bin), self.bins.edge(bin + 1));
                let length = (to - from).max(1) as f64;
                for (sm, place) in &places {
                    device_id.push(*device);
                    starts.push(from);
                    ends.push(to);
                    sms.push(*sm);
                    warps.push(w.get(*place).copied().unwrap_or(0.0) / length);
                    active.push((a.get(*place).copied().unwrap_or(0.0) + everywhere) / length);
                }
            }
        }
        let n = starts.len();
        let model = match self.model {
            Model::Replay => "replay",
            Model::Even => "even",
        };
        Builder::new(&SM_WARPS)
            .put("device_id", UInt32Array::from(device_id))
            .put("start_ns", Int64Array::from(starts))
            .put("end_ns", Int64Array::from(ends))
            .put("sm", UInt32Array::from(sms))
            .put("warps", Float64Array::from(warps))
            .put("active", Float64Array::from(active))
            .put_names("model", std::iter::repeat_n(Some(model), n))
            .put_names("basis", std::iter::repeat_n(Some("modelled"), n))
            .finish(n)
    }

    /// Puts the warps of the even model on the SMs that each tenant may use.
    #[allow(clippy::cast_precision_loss)] // a few hundred SMs
    fn spread_evenly(&mut self) {
        for (device, state) in &self.devices {
            let Some(max_warps) = self.limits.get(device).and_then(|l| l.max_warps_per_sm) else { continue };
            let Some(stage) = self.stages.get_mut(device) else { continue };
            let n = stage.sums.sms.max(1);
            for (id, tenant) in state.tenants.iter().filter(|t| t.1.seen) {
                let crew = stage.crews.iter().find(|c| c.by_tenant.contains_key(id));
                let set = crew.and_then(|c| c.sets.get(&(*id, None)).and_then(|set| c.machine.set(set.0)));
                let set: Vec<f64> = match set {
                    Some(set) => set.iter().map(|s| f64::from(*s)).collect(),
                    None => vec![1.0; n],
                };
                let own = set.iter().sum::<f64>().max(1.0);
                let rows = stage.sums.warps.chunks_mut(n).zip(stage.sums.active.chunks_mut(n));
                for ((warps, active), (w, a)) in rows.zip(tenant.warps.iter().zip(&tenant.sm_active)) {
                    for ((warps, active), may) in warps.iter_mut().zip(active).zip(&set) {
                        *warps += may * w * n as f64 / own * f64::from(max_warps);
                        *active += may * a * n as f64 / own;
                    }
                }
            }
        }
    }

    fn kernel_placement(&mut self) -> Result<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        let n = rows.start.len();
        Builder::new(&KERNEL_PLACEMENT)
            .put("capture", UInt32Array::from(rows.capture))
            .put("pid", UInt32Array::from(rows.pid))
            .put("correlation_id", UInt32Array::from(rows.correlation))
            .put("device_id", UInt32Array::from(rows.device))
            .put("tenant_id", UInt32Array::from(rows.tenant))
            .put("start_ns", Int64Array::from(rows.start))
            .put("end_ns", Int64Array::from(rows.end))
            .put("blocks", UInt64Array::from(rows.blocks))
            .put("sms_reached", UInt32Array::from(rows.sms))
            .put("waves", Float64Array::from(rows.waves))
            .put_names("caveat", rows.caveat)
            .put_names("basis", std::iter::repeat_n(Some("modelled"), n))
            .finish(n)
    }

    /// A kernel, as the even model and the bounds see it.
    fn count(&mut self, entry: &Entry) {
        let Entry { gpu, from, to, blocks, seat, fit, .. } = *entry;
        let warps = blocks.min(entry.room()) * u64::from(fit.warps);
        let (sms, least) = (blocks.min(u64::from(seat.sms)), u64::from(fit.warps));
        self.advance(from);
        self.settle(gpu, from);
        let n = self.bins.n;
        let tenant = self.tenant(gpu, seat.tenant);
        if !tenant.seen {
            tenant.seen = true;
            for series in [&mut tenant.warps, &mut tenant.sm_active, &mut tenant.low, &mut tenant.high] {
                *series = vec![0.0; n];
            }
        }
        tenant.load.kernels += 1;
        tenant.load.warps += warps;
        tenant.load.sms += sms;
        tenant.load.least += least;
        self.ends.push(Reverse((to, gpu, seat.tenant, End::Kernel { warps, sms, least })));
    }

    /// Reads a batch of kernels from `first` on; the row behind them. Unless it `may_seat` new contexts among those that
    /// are replayed, it ends before one.
    fn read(&mut self, c: &KernelRows<'_>, first: usize, batch: &mut Vec<Entry>, may_seat: bool) -> usize {
        for row in first..c.rows {
            if batch.len() >= BATCH {
                return row;
            }
            let (from, to, gpu) = (c.start.value(row), c.end.value(row), c.device.value(row));
            if from >= self.bins.end_ns || to <= self.bins.start_ns || from >= to {
                continue;
            }
            let (capture, pid) = (c.capture.value(row), at(c.pid, row));
            let context = at(c.green, row).or_else(|| at(c.context, row));
            let who = (capture, pid, gpu, context);
            let seat = match self.seats.get(&who) {
                Some(seat) => *seat,
                None if !may_seat => return row,
                None => {
                    let tenant = self.tenants.get(&(capture, pid, gpu)).copied();
                    let seat = tenant.and_then(|tenant| self.seat(gpu, tenant, context));
                    self.seats.insert(who, seat);
                    seat
                }
            };
            let launch = c.launches.read(row);
            let fit = seat.and_then(|_| self.fit(gpu, launch));
            let (Some(seat), Some(fit), Some(blocks)) = (seat, fit, launch.grid_blocks) else {
                self.unmodelled_kernels += 1;
                self.unmodelled_ns = self.unmodelled_ns.saturating_add(to.saturating_sub(from));
                continue;
            };
            let correlation = at(c.correlation, row);
            batch.push(Entry { capture, pid, correlation, gpu, from, to, blocks, seat, fit });
        }
        c.rows
    }

    /// Takes over what the replay says of kernels that have ended.
    fn collect(&mut self) {
        for crew in self.stages.values_mut().flat_map(|s| &mut s.crews) {
            for done in crew.machine.take_done() {
                if let Some(sms) = self.rows.sms.get_mut(done.row) {
                    *sms = Some(done.sms);
                }
                if let Some(waves) = self.rows.waves.get_mut(done.row) {
                    *waves = Some(done.waves);
                }
                if let Some(caveat) = self.rows.caveat.get_mut(done.row) {
                    // Clusters and persistent blocks are known beforehand.
                    *caveat = caveat.or(done.uneven.then_some("uneven"));
                }
            }
        }
    }
}

impl EventPass for Placement {
    type Output = Placed;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        let Some(c) = events.get(&KERNELS) else { return Ok(()) };
        let kernels = KernelRows::new(&c)?;
        let total = kernels.rows as u64;
        let (mut batch, mut next) = (Vec::new(), Vec::new());
        let mut row = self.read(&kernels, 0, &mut batch, true);
        while !batch.is_empty() {
            watch.progress("placement", (row - batch.len()) as u64, total)?;
            // The two models share nothing but what they read. The replay takes longest: what comes next is read meanwhile.
            let (mut stages, mut rows) = (std::mem::take(&mut self.stages), std::mem::take(&mut self.rows));
            std::thread::scope(|scope| {
                if self.model == Model::Replay {
                    let (stages, rows, batch) = (&mut stages, &mut rows, &batch);
                    scope.spawn(move || batch.iter().for_each(|entry| entry.replay(stages, rows)));
                }
                row = self.read(&kernels, row, &mut next, false);
                batch.iter().for_each(|entry| self.count(entry));
            });
            (self.stages, self.rows) = (stages, rows);
            self.collect();
            row = self.read(&kernels, row, &mut next, true);
            std::mem::swap(&mut batch, &mut next);
            next.clear();
        }
        watch.progress("placement", total, total)
    }

    fn finish(mut self, watch: &dyn Watch) -> Result<Placed> {
        watch.progress("placement", 0, 0)?;
        self.advance(i64::MAX);
        match self.model {
            Model::Replay => self.stages.values_mut().for_each(Stage::finish),
            Model::Even => self.spread_evenly(),
        }
        self.collect();
        let (mut device_id, mut tenant_id, mut starts, mut ends) = (vec![], vec![], vec![], vec![]);
        let (mut warps, mut sm_active, mut low, mut high) = (vec![], vec![], vec![], vec![]);
        for (device, state) in &self.devices {
            let replayed = self.stages.get(device).filter(|_| self.model == Model::Replay);
            let slots = self.limits.get(device).and_then(|l| Some((l.sm_count?, l.max_warps_per_sm?)));
            let (sm_count, max_warps) = slots.map_or((1.0, 1.0), |s| (f64::from(s.0), f64::from(s.1)));
            for (id, tenant) in state.tenants.iter().filter(|t| t.1.seen) {
                let own = replayed.and_then(|s| s.sums.tenants.iter().find(|t| t.0 == *id));
                for bin in 0..self.bins.n {
                    let (from, to) = (self.bins.edge(bin), self.bins.edge(bin + 1));
                    let length = (to - from).max(1) as f64;
                    let mean = |series: &[f64]| series.get(bin).copied().unwrap_or(0.0) / length;
                    let (w, a) = match own {
                        Some((_, w, a)) => (mean(w) / (sm_count * max_warps), mean(a) / sm_count),
                        None => (mean(&tenant.warps), mean(&tenant.sm_active)),
                    };
                    device_id.push(*device);
                    tenant_id.push(*id);
                    starts.push(from);
                    ends.push(to);
                    warps.push(w);
                    sm_active.push(a);
                    low.push(mean(&tenant.low).min(w));
                    high.push(mean(&tenant.high).max(w));
                }
            }
        }
        let n = starts.len();
        let sm_occupancy = Builder::new(&SM_OCCUPANCY)
            .put("device_id", UInt32Array::from(device_id))
            .put("tenant_id", UInt32Array::from(tenant_id))
            .put("start_ns", Int64Array::from(starts))
            .put("end_ns", Int64Array::from(ends))
            .put("warps", Float64Array::from(warps))
            .put("warps_low", Float64Array::from(low))
            .put("warps_high", Float64Array::from(high))
            .put("sm_active", Float64Array::from(sm_active))
            .put_names("basis", std::iter::repeat_n(Some("modelled"), n))
            .finish(n)?;
        let sm_warps = self.sm_warps()?;
        let kernel_placement = self.kernel_placement()?;
        let (unmodelled_kernels, unmodelled_ns) = (self.unmodelled_kernels, self.unmodelled_ns);
        Ok(Placed { sm_occupancy, sm_warps, kernel_placement, unmodelled_kernels, unmodelled_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::Tables;
    use crate::schema::DEVICES;
    use crate::watch::Unwatched;
    use arrow_array::{StringArray, UInt64Array};
    use proptest::prelude::*;

    /// A device of 10 SMs of compute capability 8.0: 64 warps each, 8 blocks of 256 threads.
    fn devices() -> RecordBatch {
        let device = Builder::new(&DEVICES)
            .put("device_id", UInt32Array::from(vec![0]))
            .put("capture", UInt32Array::from(vec![0]))
            .put("name", StringArray::from(vec!["test"]))
            .put("sm_count", UInt32Array::from(vec![10]))
            .put("compute_major", UInt32Array::from(vec![8]))
            .put("compute_minor", UInt32Array::from(vec![0]))
            .put_names("limits_basis", [Some("capture")])
            .finish(1)
            .unwrap();
        crate::device::complete(&device, &mut crate::quality::Quality::default()).unwrap()
    }

    /// Kernels of (pid, start, end, grid) with 256 threads and 32 registers.
    fn kernels(rows: &[(u32, i64, i64, u32)]) -> Tables {
        let n = rows.len();
        let all = |v: u32| UInt32Array::from(vec![v; n]);
        let zero = || Int64Array::from(vec![0; n]);
        let batch = Builder::new(&KERNELS)
            .put("capture", all(0))
            .put("pid", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
            .put("device_id", all(0))
            .put("start_ns", rows.iter().map(|r| r.1).collect::<Int64Array>())
            .put("end_ns", rows.iter().map(|r| r.2).collect::<Int64Array>())
            .put("grid_x", rows.iter().map(|r| r.3).collect::<UInt32Array>())
            .put("grid_y", all(1))
            .put("grid_z", all(1))
            .put("block_x", all(256))
            .put("block_y", all(1))
            .put("block_z", all(1))
            .put("registers_per_thread", all(32))
            .put("static_shared_bytes", zero())
            .put("dynamic_shared_bytes", zero())
            .finish(n)
            .unwrap();
        [("kernels", batch)].into()
    }

    fn slices(rows: &[(u32, i64, i64)]) -> RecordBatch {
        let n = rows.len();
        Builder::new(&RESIDENCY)
            .put("capture", UInt32Array::from(vec![0; n]))
            .put("device_id", UInt32Array::from(vec![0; n]))
            .put("tenant_id", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
            .put("hw_context", rows.iter().map(|r| u64::from(r.0)).collect::<UInt64Array>())
            .put("start_ns", rows.iter().map(|r| r.1).collect::<Int64Array>())
            .put("end_ns", rows.iter().map(|r| r.2).collect::<Int64Array>())
            .put_names("ending", rows.iter().map(|_| Some("WFI")))
            .put("complete", arrow_array::BooleanArray::from(vec![true; n]))
            .put_names("basis", rows.iter().map(|_| Some("observed")))
            .finish(n)
            .unwrap()
    }

    fn placed(tables: &Tables, residency: Option<&RecordBatch>, policy: PlacementPolicy, n: usize) -> Placed {
        by_model(Model::Even, tables, residency, policy, n)
    }

    fn by_model(
        model: Model,
        tables: &Tables,
        residency: Option<&RecordBatch>,
        policy: PlacementPolicy,
        n: usize,
    ) -> Placed {
        let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
        Placement::new(&devices(), tenants, residency, policy, (0, 100), n)
            .unwrap()
            .with_model(model)
            .run(tables, &Unwatched)
            .unwrap()
    }

    fn replayed(tables: &Tables, policy: PlacementPolicy, n: usize) -> Placed {
        by_model(Model::Replay, tables, None, policy, n)
    }

    /// Mean warps of every SM, bin after bin.
    fn per_sm(placed: &Placed) -> Vec<Vec<f64>> {
        let c = Columns::new(&SM_WARPS, &placed.sm_warps);
        let warps = c.f64("warps").unwrap();
        (0..c.rows()).map(|r| warps.value(r)).collect::<Vec<_>>().chunks(10).map(<[f64]>::to_vec).collect()
    }

    /// (SMs reached, waves, caveat)
    fn reached(placed: &Placed) -> Vec<(Option<u32>, Option<f64>, Option<String>)> {
        let c = Columns::new(&KERNEL_PLACEMENT, &placed.kernel_placement);
        let (sms, waves) = (c.u32("sms_reached").unwrap(), c.f64("waves").unwrap());
        let caveat = c.names("caveat").unwrap();
        (0..c.rows()).map(|r| (at(sms, r), at(waves, r), caveat.get(r).map(str::to_owned))).collect()
    }

    /// (tenant, start, warps, sm_active)
    fn rows(placed: &Placed) -> Vec<(u32, i64, f64, f64)> {
        let c = Columns::new(&SM_OCCUPANCY, &placed.sm_occupancy);
        (0..c.rows())
            .map(|r| {
                let (w, a) = (c.f64("warps").unwrap().value(r), c.f64("sm_active").unwrap().value(r));
                (c.u32("tenant_id").unwrap().value(r), c.i64("start_ns").unwrap().value(r), w, a)
            })
            .collect()
    }

    fn policy(sharing: Sharing, sms: &[(u32, u32)]) -> PlacementPolicy {
        let sms = sms.iter().map(|(tenant, n)| ((*tenant, None), SmSet::Count(*n))).collect();
        PlacementPolicy { sharing: [(0, sharing)].into(), sms, ..PlacementPolicy::default() }
    }

    #[test]
    fn one_kernel() {
        // 5 blocks of 8 warps on 10 SMs of 64: 40 of 640 warp slots, 5 of 10 SMs, in 25 of 50 ns of each bin.
        let tables = kernels(&[(1, 25, 75, 5)]);
        let out = placed(&tables, None, PlacementPolicy::default(), 2);
        assert_eq!(rows(&out), [(1, 0, 0.03125, 0.25), (1, 50, 0.03125, 0.25)]);
        // Confined to 2 SMs: 2 active; 5 blocks still fit there.
        let out = placed(&tables, None, policy(Sharing::Disjoint, &[(1, 2)]), 1);
        assert_eq!(rows(&out), [(1, 0, 0.03125, 0.1)]);
    }

    #[test]
    fn kernels_that_ask_for_too_much_share() {
        // Both fill the device for the whole window: half each. A tenant with 3 SMs gets no more than those.
        let tables = kernels(&[(1, 0, 100, 1000), (2, 0, 100, 1000)]);
        let out = placed(&tables, None, policy(Sharing::Shared, &[]), 1);
        assert_eq!(rows(&out), [(1, 0, 0.5, 0.5), (2, 0, 0.5, 0.5)]);
        let out = placed(&tables, None, policy(Sharing::Disjoint, &[(1, 3), (2, 7)]), 1);
        assert_eq!(rows(&out), [(1, 0, 0.3, 0.3), (2, 0, 0.7, 0.7)]);
    }

    #[test]
    fn time_slices_count_only_while_resident() {
        // Tenant 1 resident in [0,20) and [60,80), tenant 2 in [20,60): both kernels in flight all the time.
        let tables = kernels(&[(1, 0, 100, 1000), (2, 0, 100, 5)]);
        let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
        let out = placed(&tables, Some(&held), policy(Sharing::TimeSliced, &[]), 1);
        assert_eq!(rows(&out), [(1, 0, 0.4, 0.4), (2, 0, 0.025, 0.2)]);
        // Without records of who held it: equal shares of the time, not of the SMs.
        let out = placed(&tables, None, policy(Sharing::TimeSliced, &[]), 1);
        assert_eq!(rows(&out), [(1, 0, 0.5, 0.5), (2, 0, 0.03125, 0.25)]);
    }

    /// Turns of (tenant, start, end, latest start, earliest end).
    fn inferred(turns: &[(u32, i64, i64, i64, i64)]) -> RecordBatch {
        let n = turns.len();
        let of = |f: fn(&(u32, i64, i64, i64, i64)) -> i64| turns.iter().map(f).collect::<Int64Array>();
        Builder::new(&INFERRED_RESIDENCY)
            .put("device_id", UInt32Array::from(vec![0; n]))
            .put("tenant_id", turns.iter().map(|t| Some(t.0)).collect::<UInt32Array>())
            .put("start_ns", of(|t| t.1))
            .put("end_ns", of(|t| t.2))
            .put("earliest_start_ns", of(|t| t.1))
            .put("latest_start_ns", of(|t| t.3))
            .put("earliest_end_ns", of(|t| t.4))
            .put("latest_end_ns", of(|t| t.2))
            .put_names("basis", turns.iter().map(|_| Some("inferred")))
            .finish(n)
            .unwrap()
    }

    #[test]
    fn blocks_stand_still_while_turns_change() {
        // 520 ns between turns are 0.52 of a handover: 360 ns of it before the end of a turn, 120 after the start of one.
        // 1 |0=======640|~~1000                          3040~~|3160==========4040|   a kernel that is still there at 4040
        // 2                    1520~~|1640==2160|~~2520                               a start and an end
        let turns = inferred(&[(1, 0, 1000, 0, 0), (2, 1520, 2520, 1640, 2160), (1, 3040, 4040, 4040, 4040)]);
        let tables = kernels(&[(1, 0, 4040, 80), (2, 1640, 2160, 5)]);
        let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
        let placement =
            Placement::new(&devices(), tenants, None, policy(Sharing::TimeSliced, &[]), (0, 4040), 1)
                .unwrap();
        let out = placement.with_inferred(&turns).unwrap().run(&tables, &Unwatched).unwrap();
        let found = rows(&out);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(found[0].2, (640.0 + 880.0) / 4040.0), "{found:?}");
        assert!(near(found[1].2, 520.0 / 4040.0 * 40.0 / 640.0), "{found:?}");
    }

    #[test]
    fn inferred_turns_place_blocks_but_bound_nothing() {
        // As above, from turns that nobody recorded: where tenants were is the same, bounds hold for any turns.
        let inferred = inferred(&[(1, 0, 20, 0, 0), (2, 20, 60, 20, 20), (1, 60, 80, 60, 60)]);
        let tables = kernels(&[(1, 0, 100, 1000), (2, 0, 100, 5)]);
        let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
        let with = |observed: Option<&RecordBatch>| {
            Placement::new(
                &devices(),
                tenants.clone(),
                observed,
                policy(Sharing::TimeSliced, &[]),
                (0, 100),
                1,
            )
            .unwrap()
            .with_inferred(&inferred)
            .unwrap()
            .with_model(Model::Even)
            .run(&tables, &Unwatched)
            .unwrap()
        };
        let bounds = |out: &Placed| {
            let c = Columns::new(&SM_OCCUPANCY, &out.sm_occupancy);
            let of = |name: &str| c.f64(name).unwrap().values().to_vec();
            (of("warps_low"), of("warps_high"))
        };
        let out = with(None);
        assert_eq!(rows(&out), [(1, 0, 0.4, 0.4), (2, 0, 0.025, 0.2)]);
        assert_eq!(bounds(&out), (vec![0.0, 0.0], vec![1.0, 0.0625]));
        // What was observed needs no inference.
        let out = with(Some(&slices(&[(1, 0, 50), (2, 50, 100)])));
        assert_eq!(rows(&out), [(1, 0, 0.5, 0.5), (2, 0, 0.03125, 0.25)]);
        assert_eq!(bounds(&out), (vec![0.00625, 0.00625], vec![0.5, 0.03125]));
    }

    #[test]
    fn what_cannot_be_modelled_is_counted() {
        let out = placed(&kernels(&[(9, 0, 10, 5), (1, 20, 30, 0)]), None, PlacementPolicy::default(), 4);
        assert_eq!((out.sm_occupancy.num_rows(), out.unmodelled_kernels, out.unmodelled_ns), (0, 2, 20));
        let none = Placement::new(&devices(), TenantMap::new(), None, PlacementPolicy::default(), (5, 5), 1);
        assert!(matches!(none, Err(Error::Argument(_))));
    }

    // 10 SMs of 64 warps; a block has 8, so 8 fit on an SM and 80 on the device.

    #[test]
    fn blocks_go_round_even_sms_first() {
        // 13 blocks: one each, then SMs 0, 2 and 4 a second one.
        let out = replayed(&kernels(&[(1, 0, 100, 13)]), PlacementPolicy::default(), 1);
        assert_eq!(per_sm(&out), [[16.0, 8.0, 16.0, 8.0, 16.0, 8.0, 8.0, 8.0, 8.0, 8.0]]);
        assert_eq!(reached(&out), [(Some(10), Some(1.0), None)]);
        // 7 of 640 / 8 places: two odd SMs.
        let out = replayed(&kernels(&[(1, 0, 100, 7)]), PlacementPolicy::default(), 1);
        assert_eq!(per_sm(&out), [[8.0, 8.0, 8.0, 8.0, 8.0, 0.0, 8.0, 0.0, 8.0, 0.0]]);
        assert_eq!(reached(&out), [(Some(7), Some(1.0), None)]);
        let bounds = Columns::new(&SM_OCCUPANCY, &out.sm_occupancy);
        let value = |name| bounds.f64(name).unwrap().value(0);
        assert_eq!(
            (value("warps_low"), value("warps"), value("warps_high")),
            (8.0 / 640.0, 56.0 / 640.0, 56.0 / 640.0)
        );
    }

    #[test]
    fn waves_and_the_last_one() {
        // 164 blocks in waves of 80: two full ones, then 4 blocks on SMs 0, 2, 4, 6. Four bins: 4/3 of a bin a wave.
        let out = replayed(&kernels(&[(1, 0, 100, 164)]), PlacementPolicy::default(), 4);
        let bins = per_sm(&out);
        assert_eq!(bins[0], [64.0; 10]);
        let near = |a: &[f64], b: [f64; 10]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.01);
        let two_thirds = 64.0 * 2.0 / 3.0;
        let (a, b) = (two_thirds + 8.0 / 3.0, two_thirds);
        assert!(near(&bins[2], [a, b, a, b, a, b, a, b, b, b]), "{bins:?}");
        assert!(near(&bins[3], [8.0, 0.0, 8.0, 0.0, 8.0, 0.0, 8.0, 0.0, 0.0, 0.0]), "{bins:?}");
        assert_eq!(reached(&out), [(Some(10), Some(2.05), None)]);
    }

    #[test]
    fn a_kernel_takes_what_the_last_wave_of_another_leaves() {
        // A: 120 blocks, two waves of 50 ns, 40 in the second, 4 on an SM. B (other context): 30 blocks from 50 on,
        // where most room is: 3 on each.
        let out = replayed(&kernels(&[(1, 0, 100, 120), (2, 50, 100, 30)]), PlacementPolicy::default(), 2);
        let bins = per_sm(&out);
        assert_eq!(bins[0], [64.0; 10]);
        assert_eq!(bins[1], [56.0; 10]);
        // A small one of 5 blocks begins on an empty device beside 5 of another: each has SMs of its own.
        let out = replayed(&kernels(&[(1, 0, 100, 5), (2, 0, 100, 5)]), PlacementPolicy::default(), 1);
        assert_eq!(per_sm(&out), [[8.0; 10]]);
        assert_eq!(rows(&out).iter().map(|r| r.3).collect::<Vec<_>>(), [0.5, 0.5]);
    }

    #[test]
    fn sets_of_sms() {
        let these = |sms: &[u32]| SmSet::These(sms.to_vec());
        let policy = PlacementPolicy {
            sms: [((1, None), these(&[4, 5])), ((2, None), these(&[0, 9]))].into(),
            ..PlacementPolicy::default()
        };
        let out = replayed(&kernels(&[(1, 0, 100, 3), (2, 0, 100, 40)]), policy, 1);
        // Tenant 1: SM 4 first. Tenant 2: 40 blocks in waves of 16, 16 and 8.
        let bins = per_sm(&out);
        assert_eq!((bins[0][4], bins[0][5], bins[0][1]), (16.0, 8.0, 0.0));
        assert!((bins[0][0] - (64.0 + 64.0 + 32.0) / 3.0).abs() < 0.01, "{bins:?}");
        // Which SMs is not known: whole TPCs, disjoint while there are enough.
        let policy = policy_of_counts(&[(1, 4), (2, 6)]);
        let out = replayed(&kernels(&[(1, 0, 100, 4), (2, 0, 100, 12)]), policy, 1);
        assert_eq!(per_sm(&out), [[8.0, 8.0, 8.0, 8.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0]]);
    }

    fn policy_of_counts(sms: &[(u32, u32)]) -> PlacementPolicy {
        policy(Sharing::Disjoint, sms)
    }

    #[test]
    fn blocks_stand_still_while_others_hold_the_engine() {
        // Tenant 1: 160 blocks, two waves, resident in [0, 20) and [60, 80): a wave in each. Its last block ends at 80.
        let tables = kernels(&[(1, 0, 100, 160), (2, 20, 60, 5)]);
        let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
        let out = by_model(Model::Replay, &tables, Some(&held), policy(Sharing::TimeSliced, &[]), 5);
        let bins = per_sm(&out);
        assert_eq!((&bins[0], &bins[3], &bins[4]), (&vec![64.0; 10], &vec![64.0; 10], &vec![0.0; 10]));
        assert_eq!(bins[1], [8.0, 0.0, 8.0, 0.0, 8.0, 0.0, 8.0, 0.0, 8.0, 0.0]);
        assert_eq!(reached(&out)[0], (Some(10), Some(2.0), None));
    }

    #[test]
    fn a_start_where_the_model_has_no_room_thins_out_what_is_there() {
        // A: one wave of 80 blocks for 100 ns, if they are equal. B started at 20 all the same.
        let out = replayed(&kernels(&[(1, 0, 100, 80), (2, 20, 100, 80)]), PlacementPolicy::default(), 5);
        assert_eq!(reached(&out)[0].2.as_deref(), Some("persistent"));
        let warps: Vec<f64> = per_sm(&out).iter().map(|bin| bin.iter().sum::<f64>() / 640.0).collect();
        assert!(warps.iter().take(3).all(|w| *w == 1.0) && warps.iter().all(|w| *w > 0.4), "{warps:?}");
        let ours = rows(&out);
        let of = |tenant: u32| ours.iter().filter(|r| r.0 == tenant).map(|r| r.2).collect::<Vec<_>>();
        assert!(of(1).windows(2).all(|w| w[0] >= w[1]) && of(1)[4] > 0.0, "{:?}", of(1));
        assert!(of(2)[1] > 0.0, "{:?}", of(2));
    }

    #[test]
    fn a_kernel_that_started_comes_before_what_should_have_been_placed() {
        // A: 200 blocks, equal ones stand in waves of 80, 80 and 40, the second until 66.7. B began at 50 all the same:
        // an eighth of A's wave, 10 blocks, ends then, and B has their places: two rounds of blocks of 25 ns. At 66.7 the
        // other 70 end: first come B's other 10 blocks, which end with it, at 100, then A's 40.
        let out = replayed(&kernels(&[(1, 0, 100, 200), (2, 50, 100, 20)]), PlacementPolicy::default(), 2);
        let found = rows(&out);
        let near = |row: &(u32, i64, f64, f64), blocks: f64| (row.2 * 80.0 - blocks).abs() < 0.01;
        let (a, b) = ((70.0 * 16.667 + 40.0 * 33.333) / 50.0, (10.0 * 25.0 + 10.0 * 33.333) / 50.0);
        assert!(near(&found[0], 80.0) && near(&found[1], a) && near(&found[3], b), "{found:?}");
        let caveats: Vec<_> = reached(&out).into_iter().map(|r| r.2).collect();
        assert_eq!(caveats, [Some("uneven".to_owned()), None]);
    }

    #[test]
    fn where_the_least_of_many_begin() {
        let edge = |seen: &[i64]| {
            let mut nearest = Nearest::default();
            seen.iter().for_each(|ns| nearest.see(*ns));
            nearest.edge(1000)
        };
        // Every 2 ns from 12 on: they begin at 10.
        assert_eq!(edge(&[40, 26, 24, 12, 14, 16, 18, 22, 20, 28]), Some(10));
        assert_eq!(edge(&[7; 9]), Some(7));
        // Too few; too far apart for slices of a microsecond; not at the edge at all.
        assert_eq!(edge(&[7; 7]), None);
        assert_eq!(edge(&[10, 31, 52, 73, 94, 115, 136, 160]), None);
        assert_eq!(edge(&[600; 9]), None);
    }

    #[test]
    fn saving_and_restoring_is_not_running() {
        // Slices of 1000 ns every 2000. Each kernel fills the device, starts 100 ns into one slice and ends 100 ns before
        // the end of the next: 800 + 800 ns in 4000.
        let held = slices(&(0..20).map(|n| (1, 2000 * n, 2000 * n + 1000)).collect::<Vec<_>>());
        let ran: Vec<_> = (0..10).map(|n| (1, 4000 * n + 100, 4000 * n + 2900, 80)).collect();
        let tables = kernels(&ran);
        let tenants: TenantMap = [((0, Some(1), 0), 1)].into();
        let policy = policy(Sharing::TimeSliced, &[]);
        let placement = Placement::new(&devices(), tenants, Some(&held), policy, (0, 40_000), 1).unwrap();
        let out = placement.with_kernels(&tables["kernels"]).unwrap().run(&tables, &Unwatched).unwrap();
        assert!((rows(&out)[0].2 - 0.4).abs() < 1e-9, "{:?}", rows(&out));
        // Bounds do not rest on it: 900 + 900 ns.
        let bounds = Columns::new(&SM_OCCUPANCY, &out.sm_occupancy);
        assert!((bounds.f64("warps_high").unwrap().value(0) - 0.45).abs() < 1e-9);
    }

    #[test]
    fn waves_of_a_short_kernel_where_nothing_fits_are_not_followed() {
        // As above, in bins of 500 ns: B holds the 10 places that it got until it ends. A's 70 others end at 66.7, B takes
        // its other 10 places then, A its last 40.
        let tables = kernels(&[(1, 0, 100, 200), (2, 50, 100, 20)]);
        let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
        let placement =
            Placement::new(&devices(), tenants, None, PlacementPolicy::default(), (0, 500), 1).unwrap();
        let found = rows(&placement.run(&tables, &Unwatched).unwrap());
        let near = |row: &(u32, i64, f64, f64), blocks: f64| (row.2 * 80.0 * 500.0 - blocks).abs() < 0.1;
        assert!(near(&found[0], 80.0 * 50.0 + 70.0 * 16.6667 + 40.0 * 33.3333), "{found:?}");
        assert!(near(&found[1], 10.0 * 50.0 + 10.0 * 33.3333), "{found:?}");
    }

    proptest! {
        #[test]
        fn the_replay_stays_within_its_bounds(
            mut drawn in prop::collection::vec((1_u32..3, 0_i64..100, 1_i64..50, 1_u32..400), 1..40),
            n in 1_usize..9,
            sliced in any::<bool>(),
        ) {
            drawn.sort_by_key(|r| r.1);
            let tables = kernels(&drawn.iter().map(|r| (r.0, r.1, r.1 + r.2, r.3)).collect::<Vec<_>>());
            let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
            let sharing = if sliced { Sharing::TimeSliced } else { Sharing::Shared };
            let whole = by_model(Model::Replay, &tables, Some(&held), policy(sharing, &[]), n);
            let c = Columns::new(&SM_OCCUPANCY, &whole.sm_occupancy);
            let column = |name: &str| c.f64(name).unwrap().clone();
            let (low, warps, high) = (column("warps_low"), column("warps"), column("warps_high"));
            let mut by_bin: BTreeMap<i64, f64> = BTreeMap::new();
            for row in 0..c.rows() {
                prop_assert!(low.value(row) <= warps.value(row) && warps.value(row) <= high.value(row));
                *by_bin.entry(c.i64("start_ns").unwrap().value(row)).or_default() += warps.value(row) * 640.0;
            }
            // Tenants and SMs add up to the same.
            for (bin, sms) in by_bin.values().zip(per_sm(&whole)) {
                prop_assert!((bin - sms.iter().sum::<f64>()).abs() < 1e-6, "{bin} {sms:?}");
                // Only a forced start may stand beside what fills an SM.
                prop_assert!(sms.iter().all(|w| *w > -1e-9 && *w <= 64.0 + 8.0 * drawn.len() as f64));
            }
        }

        #[test]
        fn a_device_is_never_overfull(
            mut drawn in prop::collection::vec((1_u32..3, 0_i64..100, 1_i64..50, 1_u32..200), 1..40),
            n in 1_usize..9,
            sliced in any::<bool>(),
        ) {
            drawn.sort_by_key(|r| r.1);
            let tables = kernels(&drawn.iter().map(|r| (r.0, r.1, r.1 + r.2, r.3)).collect::<Vec<_>>());
            let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
            let sharing = if sliced { Sharing::TimeSliced } else { Sharing::Shared };
            let whole = rows(&placed(&tables, Some(&held), policy(sharing, &[]), n));
            let mut sums: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
            for row in whole {
                let sum = sums.entry(row.1).or_default();
                *sum = (sum.0 + row.2, sum.1 + row.3);
            }
            prop_assert!(sums.values().all(|s| s.0 <= 1.0 + 1e-9 && s.1 <= 1.0 + 1e-9));
        }
    }
}
