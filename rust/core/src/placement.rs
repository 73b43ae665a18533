//! How full were the SMs, and whose work was on them?
//!
//! No supported interface measures this per tenant, so it is a model, and every row says so
//! (`modelled`). The model is the simplest that uses what a trace knows:
//!
//! - A kernel's blocks spread evenly over the SMs its tenant may use (all, unless [`PlacementPolicy`] says
//!   fewer). Its resident blocks are `min(grid, blocks per SM x SMs)`, so it is active on
//!   `min(grid, SMs)` SMs. Block scheduling prefers the SM with most room, which for one kernel on an
//!   empty device is the same.
//! - It holds them for the whole of its interval: no last wave, no uneven blocks. That overstates.
//! - Kernels in flight at once share the limits: what a tenant's kernels ask for together is capped at the
//!   SMs it may use, then the sum over tenants at the whole device, by scaling all in proportion. Capped
//!   this way, `sm_active` is a share of SM time, also where two tenants are on one SM.
//! - Under [`Sharing::TimeSliced`] a kernel counts only while its tenant held the engine, by the residency
//!   slices. Where a tenant has no slices, the tenants in flight that have none hold the engine in equal
//!   shares.
//! - `Shared` and `Disjoint` differ in the policy's SM sets only: proportional scaling cannot tell blocks
//!   on the same SM from blocks beside it.
//!
//! Not in it: whole-graph launches (their kernels are not recorded), copies, kernels whose occupancy or
//! tenant is not known; they are counted in [`Placed`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use arrow_array::{Float64Array, Int64Array, RecordBatch, UInt32Array};

use crate::device::at;
use crate::error::{Error, Result};
use crate::fold::{Chunk, Fold};
use crate::occupancy::{LaunchColumns, Limits, Recorded, TenantMap};
use crate::schema::{Builder, Columns, KERNELS, RESIDENCY, SM_OCCUPANCY};
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

/// What a verdict implies for where blocks may run.
#[derive(Debug, Clone, Default)]
pub struct PlacementPolicy {
    /// By device; [`Sharing::Shared`] where none is given.
    pub sharing: BTreeMap<u32, Sharing>,
    /// SMs that a tenant may use; all where none is given.
    pub sm_counts: BTreeMap<u32, u32>,
}

/// What the model says, and what it had to leave out.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The `sm_occupancy` table: for every tenant that ran a modelled kernel, one row per time bin.
    pub sm_occupancy: RecordBatch,
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
}

/// A tenant on its device.
#[derive(Debug, Default)]
struct Tenant {
    load: Load,
    /// Slices of it that are open: more than one where it has several contexts.
    resident: u32,
    warps: Vec<f64>,
    sm_active: Vec<f64>,
    seen: bool,
}

#[derive(Debug, Default)]
struct Device {
    since_ns: Option<i64>,
    tenants: BTreeMap<u32, Tenant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Kernel { warps: u64, sms: u64 },
    Slice,
}

/// Ends that lie ahead, soonest first: (time, device, tenant, what).
type Ends = BinaryHeap<Reverse<(i64, u32, u32, End)>>;

/// The fold over `kernels`.
#[derive(Debug)]
pub struct Placement {
    limits: BTreeMap<u32, Limits>,
    tenants: TenantMap,
    policy: PlacementPolicy,
    bins: Bins,
    slices: std::vec::IntoIter<(i64, i64, u32, u32)>,
    next_slice: Option<(i64, i64, u32, u32)>,
    /// Tenants whose residency is known.
    sliced: BTreeSet<(u32, u32)>,
    devices: BTreeMap<u32, Device>,
    ends: Ends,
    fits: HashMap<(u32, Recorded), Option<(u32, u32)>>,
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

    /// Adds `value` for `[from, to)` to bins, in value times nanoseconds.
    #[allow(clippy::cast_precision_loss)] // a bin is shorter than 2^53 ns (104 days)
    fn add(&self, into: &mut [f64], from_ns: i64, to_ns: i64, value: f64) {
        let (from, to) = (from_ns.max(self.start_ns), to_ns.min(self.end_ns));
        if from >= to || value <= 0.0 {
            return;
        }
        let mut at = from;
        let mut bin = self.bin_of(from);
        while at < to && bin < self.n {
            let until = self.edge(bin + 1).min(to);
            if let Some(slot) = into.get_mut(bin) {
                *slot += value * (until - at) as f64;
            }
            at = until;
            bin += 1;
        }
    }
}

/// The most bins of a window: a picture has no more columns, and a row stands for each tenant and bin.
pub const MAX_BINS: usize = 1_000_000;

impl Placement {
    /// For completed `devices`, the tenants of `kernels`, the `residency` slices where there are any, and
    /// `window` (start, end) cut into `n_bins`.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty window or no bins, [`Error::Schema`] for wrong tables.
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
        if let Some(residency) = residency {
            let c = Columns::new(&RESIDENCY, residency);
            let (device, tenant) = (c.u32("device_id")?, c.u32("tenant_id")?);
            let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
            slices = (0..c.rows())
                .filter_map(|row| {
                    Some((start.value(row), end.value(row), device.value(row), at(tenant, row)?))
                })
                .filter(|slice| slice.0 < slice.1)
                .collect();
            slices.sort_unstable();
        }
        let sliced = slices.iter().map(|s| (s.2, s.3)).collect();
        let mut slices = slices.into_iter();
        let next_slice = slices.next();
        Ok(Self {
            limits: Limits::of_devices(devices)?,
            tenants,
            policy,
            bins: Bins { start_ns, end_ns, n: n_bins },
            slices,
            next_slice,
            sliced,
            devices: BTreeMap::new(),
            ends: Ends::new(),
            fits: HashMap::new(),
            unmodelled_kernels: 0,
            unmodelled_ns: 0,
        })
    }

    /// SMs that a tenant may use, of how many.
    fn sms(&self, device: u32, tenant: u32) -> Option<(u32, u32)> {
        let all = self.limits.get(&device)?.sm_count?;
        Some((self.policy.sm_counts.get(&tenant).copied().unwrap_or(all).min(all), all))
    }

    /// Adds to the bins what was there from the device's last change until now.
    fn settle(&mut self, device: u32, now_ns: i64) {
        let Some((_, all)) = self.sms(device, u32::MAX) else { return };
        let Some(max_warps) = self.limits.get(&device).and_then(|l| l.max_warps_per_sm) else { return };
        let time_sliced = self.policy.sharing.get(&device) == Some(&Sharing::TimeSliced);
        let state = self.devices.entry(device).or_default();
        let since_ns = state.since_ns.replace(now_ns).unwrap_or(now_ns);
        if since_ns >= now_ns {
            return;
        }
        let unsliced = |id: u32| !self.sliced.contains(&(device, id));
        let waiting = state.tenants.iter().filter(|(id, t)| t.load.kernels > 0 && unsliced(**id)).count();
        let mut asked: Vec<(u32, f64, f64)> = Vec::new();
        for (id, tenant) in &state.tenants {
            if tenant.load.kernels == 0 {
                continue;
            }
            let weight = match (time_sliced, unsliced(*id)) {
                (false, _) => 1.0,
                (true, true) => 1.0 / waiting as f64,
                (true, false) => f64::from(u8::from(tenant.resident > 0)),
            };
            let own = self.policy.sm_counts.get(id).copied().unwrap_or(all).min(all);
            let cap = f64::from(own) / f64::from(all);
            let warps = tenant.load.warps as f64 / (f64::from(all) * f64::from(max_warps));
            let sms = tenant.load.sms as f64 / f64::from(all);
            asked.push((*id, weight * warps.min(cap), weight * sms.min(cap)));
        }
        let total = asked.iter().fold((0.0, 0.0), |sum, a| (sum.0 + a.1, sum.1 + a.2));
        let scale = (1.0 / f64::max(total.0, 1.0), 1.0 / f64::max(total.1, 1.0));
        for (id, warps, sms) in asked {
            if let Some(tenant) = state.tenants.get_mut(&id) {
                self.bins.add(&mut tenant.warps, since_ns, now_ns, warps * scale.0);
                self.bins.add(&mut tenant.sm_active, since_ns, now_ns, sms * scale.1);
            }
        }
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
                        End::Kernel { warps, sms } => {
                            tenant.load.kernels = tenant.load.kernels.saturating_sub(1);
                            tenant.load.warps = tenant.load.warps.saturating_sub(warps);
                            tenant.load.sms = tenant.load.sms.saturating_sub(sms);
                        }
                    }
                }
            }
        }
    }

    /// Warps and SMs of a kernel; `None` where they cannot be modelled.
    fn load(&mut self, device: u32, tenant: u32, launch: Recorded) -> Option<(u64, u64)> {
        let (own, _) = self.sms(device, tenant)?;
        let grid = launch.grid_blocks?;
        let shape = launch.shape();
        let limits = self.limits.get(&device);
        let (blocks, warps) = (*self.fits.entry((device, shape)).or_insert_with(|| {
            let fit = shape.fit(limits).ok()?;
            Some((fit.blocks, fit.warps / fit.blocks.max(1)))
        }))?;
        let resident = grid.min(u64::from(blocks) * u64::from(own));
        Some((resident * u64::from(warps), grid.min(u64::from(own))))
    }
}

impl Fold for Placement {
    type Output = Placed;

    fn push(&mut self, chunk: &Chunk, watch: &dyn Watch) -> Result<()> {
        let Some(c) = chunk.get(&KERNELS) else { return Ok(()) };
        let launches = LaunchColumns::new(&c)?;
        let (capture, pid, device) = (c.u32("capture")?, c.u32("pid")?, c.u32("device_id")?);
        let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
        let total = c.rows() as u64;
        for row in 0..c.rows() {
            if row % 16_384 == 0 {
                watch.progress("placement", row as u64, total)?;
            }
            let (from, to, gpu) = (start.value(row), end.value(row), device.value(row));
            if from >= self.bins.end_ns || to <= self.bins.start_ns || from >= to {
                continue;
            }
            let tenant = self.tenants.get(&(capture.value(row), at(pid, row), gpu)).copied();
            let load = tenant.and_then(|id| Some((id, self.load(gpu, id, launches.read(row))?)));
            let Some((id, (warps, sms))) = load else {
                self.unmodelled_kernels += 1;
                self.unmodelled_ns = self.unmodelled_ns.saturating_add(to.saturating_sub(from));
                continue;
            };
            self.advance(from);
            self.settle(gpu, from);
            let n = self.bins.n;
            let tenant = self.tenant(gpu, id);
            if !tenant.seen {
                tenant.seen = true;
                tenant.warps = vec![0.0; n];
                tenant.sm_active = vec![0.0; n];
            }
            tenant.load.kernels += 1;
            tenant.load.warps += warps;
            tenant.load.sms += sms;
            self.ends.push(Reverse((to, gpu, id, End::Kernel { warps, sms })));
        }
        watch.progress("placement", total, total)
    }

    fn finish(mut self, watch: &dyn Watch) -> Result<Placed> {
        watch.progress("placement", 0, 0)?;
        self.advance(i64::MAX);
        let (mut device_id, mut tenant_id, mut starts, mut ends) = (vec![], vec![], vec![], vec![]);
        let (mut warps, mut sm_active) = (vec![], vec![]);
        for (device, state) in &self.devices {
            for (id, tenant) in state.tenants.iter().filter(|t| t.1.seen) {
                for (bin, (w, a)) in tenant.warps.iter().zip(&tenant.sm_active).enumerate() {
                    let (from, to) = (self.bins.edge(bin), self.bins.edge(bin + 1));
                    let length = (to - from).max(1) as f64;
                    device_id.push(*device);
                    tenant_id.push(*id);
                    starts.push(from);
                    ends.push(to);
                    warps.push(w / length);
                    sm_active.push(a / length);
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
            .put("sm_active", Float64Array::from(sm_active))
            .put_names("basis", std::iter::repeat_n(Some("modelled"), n))
            .finish(n)?;
        let (unmodelled_kernels, unmodelled_ns) = (self.unmodelled_kernels, self.unmodelled_ns);
        Ok(Placed { sm_occupancy, unmodelled_kernels, unmodelled_ns })
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

    fn placed(
        tables: &Tables,
        residency: Option<&RecordBatch>,
        policy: PlacementPolicy,
        n: usize,
        rows: usize,
    ) -> Placed {
        let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
        Placement::new(&devices(), tenants, residency, policy, (0, 100), n)
            .unwrap()
            .run(tables, rows, &Unwatched)
            .unwrap()
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
        PlacementPolicy { sharing: [(0, sharing)].into(), sm_counts: sms.iter().copied().collect() }
    }

    #[test]
    fn one_kernel() {
        // 5 blocks of 8 warps on 10 SMs of 64: 40 of 640 warp slots, 5 of 10 SMs, in 25 of 50 ns of each bin.
        let tables = kernels(&[(1, 25, 75, 5)]);
        let out = placed(&tables, None, PlacementPolicy::default(), 2, 0);
        assert_eq!(rows(&out), [(1, 0, 0.03125, 0.25), (1, 50, 0.03125, 0.25)]);
        // Confined to 2 SMs: 2 active; 5 blocks still fit there.
        let out = placed(&tables, None, policy(Sharing::Disjoint, &[(1, 2)]), 1, 0);
        assert_eq!(rows(&out), [(1, 0, 0.03125, 0.1)]);
    }

    #[test]
    fn kernels_that_ask_for_too_much_share() {
        // Both fill the device for the whole window: half each. A tenant with 3 SMs gets no more than those.
        let tables = kernels(&[(1, 0, 100, 1000), (2, 0, 100, 1000)]);
        let out = placed(&tables, None, policy(Sharing::Shared, &[]), 1, 0);
        assert_eq!(rows(&out), [(1, 0, 0.5, 0.5), (2, 0, 0.5, 0.5)]);
        let out = placed(&tables, None, policy(Sharing::Disjoint, &[(1, 3), (2, 7)]), 1, 0);
        assert_eq!(rows(&out), [(1, 0, 0.3, 0.3), (2, 0, 0.7, 0.7)]);
    }

    #[test]
    fn time_slices_count_only_while_resident() {
        // Tenant 1 resident in [0,20) and [60,80), tenant 2 in [20,60): both kernels in flight all the time.
        let tables = kernels(&[(1, 0, 100, 1000), (2, 0, 100, 5)]);
        let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
        let out = placed(&tables, Some(&held), policy(Sharing::TimeSliced, &[]), 1, 0);
        assert_eq!(rows(&out), [(1, 0, 0.4, 0.4), (2, 0, 0.025, 0.2)]);
        // Without records of who held it: equal shares of the time, not of the SMs.
        let out = placed(&tables, None, policy(Sharing::TimeSliced, &[]), 1, 0);
        assert_eq!(rows(&out), [(1, 0, 0.5, 0.5), (2, 0, 0.03125, 0.25)]);
    }

    #[test]
    fn what_cannot_be_modelled_is_counted() {
        let out = placed(&kernels(&[(9, 0, 10, 5), (1, 20, 30, 0)]), None, PlacementPolicy::default(), 4, 0);
        assert_eq!((out.sm_occupancy.num_rows(), out.unmodelled_kernels, out.unmodelled_ns), (0, 2, 20));
        let none = Placement::new(&devices(), TenantMap::new(), None, PlacementPolicy::default(), (5, 5), 1);
        assert!(matches!(none, Err(Error::Argument(_))));
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter_and_a_device_is_never_overfull(
            mut drawn in prop::collection::vec((1_u32..3, 0_i64..100, 1_i64..50, 1_u32..200), 1..40),
            n in 1_usize..9,
            cut in 1_usize..7,
            sliced in any::<bool>(),
        ) {
            drawn.sort_by_key(|r| r.1);
            let tables = kernels(&drawn.iter().map(|r| (r.0, r.1, r.1 + r.2, r.3)).collect::<Vec<_>>());
            let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
            let sharing = if sliced { Sharing::TimeSliced } else { Sharing::Shared };
            let whole = rows(&placed(&tables, Some(&held), policy(sharing, &[]), n, 0));
            prop_assert_eq!(&whole, &rows(&placed(&tables, Some(&held), policy(sharing, &[]), n, cut)));
            let mut sums: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
            for row in whole {
                let sum = sums.entry(row.1).or_default();
                *sum = (sum.0 + row.2, sum.1 + row.3);
            }
            prop_assert!(sums.values().all(|s| s.0 <= 1.0 + 1e-9 && s.1 <= 1.0 + 1e-9));
        }
    }
}
