//! Model the occupancy of each SM, by tenant and time.
//!
//! No supported interface measures this per SM or tenant, so it is a model, and every row says so (`modelled`). There
//! are two models:
//!
//! - The **replay** ([`Model::Replay`]) places blocks SM by SM as the block scheduler would, constrained by the
//!   observed starts and ends (`occupancy/observed_blocks.rs` states the assumptions).
//! - The **even** model ([`Model::Even`]) is the baseline for the replay: a kernel has `min(grid, blocks per SM x SMs)`
//!   blocks for its whole interval, spread evenly over the SMs that its tenant may use. The sum of a tenant's kernels
//!   is capped at those SMs, then the sum over tenants at the device, by scaling all in proportion.
//!
//! Both have bounds. Lower: one block of every kernel in flight whose tenant was resident. Upper: what the even model
//! requests before tenants are scaled down. The bounds hold for any order and length of blocks, if the policy is right.
//!
//! [`PlacementPolicy`] says which tenants may share SMs. Groups of time-sliced tenants each have the device to
//! themselves, and their blocks stand still while others are resident. Each group is replayed on a clock that runs
//! while it was resident, by switch records or by inferred residency (`residency/inferred.rs`). Records that include
//! restoring and saving of state are shortened by the time in which no kernel ever starts or ends
//! ([`Placement::with_kernels`]). Where residency is not known, all groups with kernels in flight share the engine
//! equally.
//!
//! Not modelled: whole-graph launches (their kernels are not recorded), copies, and kernels whose occupancy or tenant
//! is not known. They are counted in [`Placed`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{Float64Array, Int64Array, RecordBatch, UInt32Array, UInt64Array};

use crate::base::error::{Error, Result};
use crate::base::maps::NumberMap;
use crate::base::watch::Watch;
use crate::occupancy::device_replay::{Assignment, Clock, DeviceReplay, SmGroup};
use crate::occupancy::even::{Device, End, Ends};
use crate::occupancy::observed_blocks::{Forced, Machine};
use crate::occupancy::sm_array::BlockFootprint;
use crate::occupancy::theoretical::{LaunchColumns, Limiter, Limits, Recorded, TenantMap};
use crate::occupancy::time_bins::{Bins, Nearest};
use crate::residency::inferred as turns;
use crate::table::builder::Builder;
use crate::table::columns::{at, Columns};
use crate::table::events::{EventPass, Events};
use crate::table::launch::LikeRows;
use crate::table::schema::{
    INFERRED_RESIDENCY, KERNELS, KERNEL_PLACEMENT, RESIDENCY, SM_OCCUPANCY, SM_WARPS,
};

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
    /// Tenants with an equal number are on the SMs together, others are time-sliced with them. Where none is given, the
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

/// A CUDA context: capture, pid, device, context id.
pub(super) type Context = (u32, Option<u32>, u32, Option<u32>);

/// What fits of a launch configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fits {
    pub(super) blocks: u32,
    pub(super) warps: u32,
    pub(super) ask: BlockFootprint,
    pub(super) clusters: bool,
}

/// The fold over `kernels`.
#[derive(Debug)]
pub struct Placement {
    pub(super) limits: BTreeMap<u32, Limits>,
    pub(super) tenants: TenantMap,
    pub(super) policy: PlacementPolicy,
    pub(super) model: Model,
    pub(super) bins: Bins,
    pub(super) slices: std::vec::IntoIter<(i64, i64, u32, u32)>,
    pub(super) next_slice: Option<(i64, i64, u32, u32)>,
    /// Slices by the tenant whose they are.
    pub(super) held: BTreeMap<(u32, u32), Vec<(i64, i64)>>,
    /// Of whose slices records say when running began, and when it ended.
    pub(super) exact: [BTreeSet<(u32, u32)>; 2],
    /// Devices whose slices are inferred: bounds do not rest on them.
    pub(super) inferred: BTreeSet<u32>,
    pub(super) devices: BTreeMap<u32, Device>,
    pub(super) replays: BTreeMap<u32, DeviceReplay>,
    pub(super) ends: Ends,
    /// Of the moment that is settled: tenant, even share of warps and SMs, least, most.
    pub(super) asked: Vec<(u32, [f64; 4])>,
    pub(super) fits: NumberMap<(u32, Recorded), Option<Fits>>,
    pub(super) assignments: NumberMap<Context, Option<Assignment>>,
    pub(super) rows: Rows,
    pub(super) unmodelled_kernels: u64,
    pub(super) unmodelled_ns: i64,
}

/// A kernel whose tenant and occupancy are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) capture: u32,
    pub(super) pid: Option<u32>,
    pub(super) correlation: Option<u32>,
    pub(super) gpu: u32,
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) blocks: u64,
    pub(super) assignment: Assignment,
    pub(super) fit: Fits,
}

impl Entry {
    /// Blocks that its SMs hold.
    fn room(&self) -> u64 {
        u64::from(self.fit.blocks) * u64::from(self.assignment.sms)
    }

    fn replay(&self, bins: Bins, replays: &mut BTreeMap<u32, DeviceReplay>, rows: &mut Rows) {
        let Self { assignment, fit, blocks, .. } = *self;
        let Some(replay) = replays.get_mut(&self.gpu) else { return };
        let kernel = Forced {
            row: rows.start.len(),
            start: bins.ps(self.from),
            end: bins.ps(self.to),
            blocks,
            ask: fit.ask,
            tenant: assignment.member,
            queue: assignment.queue,
            set: assignment.set,
        };
        let replayed = replay.start(assignment.sm_group, kernel);
        // One block on each SM, or all that the device holds: as programs do that fetch their work themselves.
        let persistent = blocks == u64::from(assignment.sms) || blocks == self.room();
        rows.capture.push(self.capture);
        rows.pid.push(self.pid);
        rows.correlation.push(self.correlation);
        rows.device.push(self.gpu);
        rows.tenant.push(assignment.tenant);
        rows.start.push(self.from);
        rows.end.push(self.to);
        rows.blocks.push(blocks);
        rows.sms.push(None);
        rows.waves.push(None);
        rows.caveat.push(match () {
            () if replayed.is_err() => replayed.err(),
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
    /// By device and configuration: its blocks, and what fits of it.
    known: Vec<(Option<u64>, Option<Fits>)>,
    places: NumberMap<(u32, Recorded), usize>,
    /// Programs launch the same configurations again and again: most rows need no map.
    recent: LikeRows<u32, Recorded>,
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
            known: Vec::new(),
            places: NumberMap::default(),
            recent: LikeRows::default(),
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
pub(super) struct Rows {
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
            replays: BTreeMap::new(),
            ends: Ends::new(),
            asked: Vec::new(),
            fits: NumberMap::default(),
            assignments: NumberMap::default(),
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
        let switches: BTreeMap<u32, (i64, i64)> =
            gaps.iter_mut().map(|(device, gaps)| (*device, turns::not_running(usual(gaps)))).collect();
        let observed: BTreeSet<u32> = self.held.keys().map(|key| key.0).collect();
        let mut slices: Vec<_> = self.next_slice.take().into_iter().chain(self.slices).collect();
        for row in 0..c.rows() {
            let (device, tenant) = (device.value(row), tenant.value(row));
            let (from, to) = (start.value(row), end.value(row));
            if !observed.contains(&device) && from < to {
                self.inferred.insert(device);
                slices.push((from, to, device, tenant));
                let (leaving, coming) = switches.get(&device).copied().unwrap_or_default();
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
    pub(super) fn sms(&self, device: u32, tenant: u32) -> Option<(u32, u32)> {
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
    pub(super) fn holder(&self, tenant: u32) -> u32 {
        self.policy.held_by.get(&tenant).copied().unwrap_or(tenant)
    }

    /// The tenants of a device are time-sliced with others: the number of the group is its own.
    pub(super) fn group(&self, device: u32, tenant: u32) -> (bool, u32) {
        match (self.policy.groups.get(&tenant), self.policy.sharing.get(&device)) {
            (Some(group), _) => (true, *group),
            (None, Some(Sharing::TimeSliced)) => (false, self.holder(tenant)),
            (None, _) => (false, 0),
        }
    }

    /// Whether a tenant is time-sliced with others of its device.
    pub(super) fn turns(&self, device: u32, tenant: u32) -> bool {
        self.policy.sharing.get(&device) == Some(&Sharing::TimeSliced)
            || self.policy.groups.contains_key(&tenant)
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
            let ask = BlockFootprint::new(ask, limits.resources(), fit.blocks, padded);
            Some(Fits {
                blocks: fit.blocks,
                warps: fit.warps / fit.blocks.max(1),
                ask,
                clusters: shape.clustered(),
            })
        })
    }

    /// Where the kernels of a context are replayed.
    fn assignment(&mut self, device: u32, tenant: u32, context: Option<u32>) -> Option<Assignment> {
        let limits = self.limits.get(&device)?;
        let all = limits.sm_count?;
        let group = self.group(device, tenant);
        let turns = self.turns(device, tenant);
        let bins = self.bins;
        let replay = self.replays.entry(device).or_insert_with(|| DeviceReplay::new(limits, all, &bins));
        let sm_group = if let Some(sm_group) = replay.by_group.get(&group) {
            *sm_group
        } else {
            let holder = self.policy.held_by.get(&tenant).copied().unwrap_or(tenant);
            let slices = self.held.get(&(device, holder)).filter(|_| turns);
            replay.sm_groups.push(SmGroup {
                machine: Machine::new(replay.floor.clone(), replay.sums.short()),
                clock: slices.map_or(Clock::Real, |slices| Clock::of(slices.clone(), &bins)),
                cursor: 0,
                members: Vec::new(),
                by_tenant: BTreeMap::new(),
                sets: BTreeMap::new(),
                unsliced: turns && slices.is_none(),
            });
            let sm_group = replay.sm_groups.len() - 1;
            replay.by_group.insert(group, sm_group);
            sm_group
        };
        let own = (tenant, context);
        let key = if self.policy.sms.contains_key(&own) { own } else { (tenant, None) };
        let known = replay.sm_groups.get(sm_group).and_then(|c| c.sets.get(&key)).copied();
        let (set, sms) = match (known, self.policy.sms.get(&key)) {
            (Some(known), _) => known,
            (None, None) => (0, all),
            (None, Some(set)) => {
                let (mask, sms) = replay.mask(set);
                let sm_group = replay.sm_groups.get_mut(sm_group)?;
                let set = (sm_group.machine.add_set(mask), sms);
                sm_group.sets.insert(key, set);
                set
            }
        };
        let queue = replay.queues;
        replay.queues += 1;
        let sm_group_at = sm_group;
        let sm_group = replay.sm_groups.get_mut(sm_group)?;
        let member = if let Some(member) = sm_group.by_tenant.get(&tenant) {
            *member
        } else {
            let n = bins.n;
            let place = replay.sums.tenants.len();
            replay.sums.tenants.push((tenant, vec![0.0; n], vec![0.0; n]));
            sm_group.members.push(place);
            let member = sm_group.machine.add_tenant();
            sm_group.by_tenant.insert(tenant, member);
            member
        };
        (sms > 0).then_some(Assignment { tenant, sm_group: sm_group_at, member, queue, set, sms })
    }

    /// The `sm_warps` table.
    fn sm_warps(&mut self) -> Result<RecordBatch> {
        let (mut device_id, mut starts, mut ends, mut sms) = (vec![], vec![], vec![], vec![]);
        let (mut warps, mut active) = (vec![], vec![]);
        for (device, replay) in &self.replays {
            let mut places: Vec<(u32, usize)> = replay.order.iter().copied().zip(0..).collect();
            places.sort_unstable();
            let rows = replay.sums.warps.chunks(replay.sums.sms.max(1));
            let rows = rows.zip(replay.sums.active.chunks(replay.sums.sms.max(1)));
            for (bin, ((w, a), everywhere)) in rows.zip(&replay.sums.everywhere).enumerate() {
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
        let Entry { gpu, from, to, blocks, assignment, fit, .. } = *entry;
        let warps = blocks.min(entry.room()) * u64::from(fit.warps);
        let (sms, least) = (blocks.min(u64::from(assignment.sms)), u64::from(fit.warps));
        self.advance(from);
        self.settle(gpu, from);
        let n = self.bins.n;
        let tenant = self.tenant(gpu, assignment.tenant);
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
        self.devices.entry(gpu).or_default().flying.insert(assignment.tenant);
        self.ends.push(Reverse((to, gpu, assignment.tenant, End::Kernel { warps, sms, least })));
    }

    /// Reads a batch of kernels from `first` on; the row behind them. Unless it `may_assign` new contexts among those that
    /// are replayed, it ends before one.
    fn read(
        &mut self,
        c: &mut KernelRows<'_>,
        first: usize,
        batch: &mut Vec<Entry>,
        may_assign: bool,
    ) -> usize {
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
            let assignment = match self.assignments.get(&who) {
                Some(assignment) => *assignment,
                None if !may_assign => return row,
                None => {
                    let tenant = self.tenants.get(&(capture, pid, gpu)).copied();
                    let assignment = tenant.and_then(|tenant| self.assignment(gpu, tenant, context));
                    self.assignments.insert(who, assignment);
                    assignment
                }
            };
            let (launches, known, places) = (&c.launches, &mut c.known, &mut c.places);
            let place = c.recent.place(
                gpu,
                launches.key(row),
                || launches.read(row),
                || {
                    let launch = launches.read(row);
                    *places.entry((gpu, launch)).or_insert_with(|| {
                        known.push((launch.grid_blocks, self.fit(gpu, launch)));
                        known.len() - 1
                    })
                },
            );
            let (blocks, fit) = known.get(place).copied().unwrap_or_default();
            let (Some(assignment), Some(fit), Some(blocks)) = (assignment, fit, blocks) else {
                self.unmodelled_kernels += 1;
                self.unmodelled_ns = self.unmodelled_ns.saturating_add(to.saturating_sub(from));
                continue;
            };
            let correlation = at(c.correlation, row);
            batch.push(Entry { capture, pid, correlation, gpu, from, to, blocks, assignment, fit });
        }
        c.rows
    }

    /// Takes over what the replay says of kernels that have ended.
    fn collect(&mut self) {
        for sm_group in self.replays.values_mut().flat_map(|s| &mut s.sm_groups) {
            for done in sm_group.machine.take_done() {
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
        let mut kernels = KernelRows::new(&c)?;
        let total = kernels.rows as u64;
        let (mut batch, mut next) = (Vec::new(), Vec::new());
        let mut row = self.read(&mut kernels, 0, &mut batch, true);
        while !batch.is_empty() {
            watch.progress("placement", (row - batch.len()) as u64, total)?;
            // The two models share nothing but what they read. The replay takes longest: what comes next is read meanwhile.
            let (mut replays, mut rows) = (std::mem::take(&mut self.replays), std::mem::take(&mut self.rows));
            let bins = self.bins;
            std::thread::scope(|scope| {
                if self.model == Model::Replay {
                    let (replays, rows, batch) = (&mut replays, &mut rows, &batch);
                    scope.spawn(move || batch.iter().for_each(|entry| entry.replay(bins, replays, rows)));
                }
                row = self.read(&mut kernels, row, &mut next, false);
                batch.iter().for_each(|entry| self.count(entry));
            });
            (self.replays, self.rows) = (replays, rows);
            self.collect();
            row = self.read(&mut kernels, row, &mut next, true);
            std::mem::swap(&mut batch, &mut next);
            next.clear();
        }
        watch.progress("placement", total, total)
    }

    fn finish(mut self, watch: &dyn Watch) -> Result<Placed> {
        watch.progress("placement", 0, 0)?;
        self.advance(i64::MAX);
        match self.model {
            Model::Replay => self.replays.values_mut().for_each(DeviceReplay::finish),
            Model::Even => self.spread_evenly(),
        }
        self.collect();
        let (mut device_id, mut tenant_id, mut starts, mut ends) = (vec![], vec![], vec![], vec![]);
        let (mut warps, mut sm_active, mut low, mut high) = (vec![], vec![], vec![], vec![]);
        for (device, state) in &self.devices {
            let replayed = self.replays.get(device).filter(|_| self.model == Model::Replay);
            let replayed: BTreeMap<u32, _> =
                replayed.iter().flat_map(|s| &s.sums.tenants).map(|(id, w, a)| (*id, (w, a))).collect();
            let slots = self.limits.get(device).and_then(|l| Some((l.sm_count?, l.max_warps_per_sm?)));
            let (sm_count, max_warps) = slots.map_or((1.0, 1.0), |s| (f64::from(s.0), f64::from(s.1)));
            for (id, tenant) in state.tenants.iter().filter(|t| t.1.seen) {
                let own = replayed.get(id);
                for bin in 0..self.bins.n {
                    let (from, to) = (self.bins.edge(bin), self.bins.edge(bin + 1));
                    let length = (to - from).max(1) as f64;
                    let mean = |series: &[f64]| series.get(bin).copied().unwrap_or(0.0) / length;
                    let (w, a) = match own {
                        Some((w, a)) => (mean(w) / (sm_count * max_warps), mean(a) / sm_count),
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
mod tests;
