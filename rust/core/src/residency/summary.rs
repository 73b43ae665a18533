//! Summarise residency by tenant and by device: totals, slices, switch cost, fairness.
//!
//! ```text
//!   A        |==k==k====|            |=====k====|        idle: resident with none of its kernels in flight
//!   B                    |====k=====|            |==     a slice that ended when it was due expired, with work
//!   switch              gap        gap                   left; one that ended for want of work was yielded
//! ```
//!
//! The intervals are the observed ones; on devices without any, the inferred ones. Times and shares are of the window,
//! from the first to the last activity of any tenant (a context is also resident before that, while it is created); of
//! that, the time that switch records cover, where they cover notably less.
//! Lengths are of whole intervals.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{Float64Array, Int64Array, RecordBatch, UInt32Array, UInt64Array};

use crate::base::error::Result;
use crate::base::hardware::IDLE_RESIDENCY_NS;
use crate::base::intervals::{Growing, Union, Walk};
use crate::base::statistics::{median_ns, nearest_rank};
use crate::base::watch::Watch;
use crate::residency::observed::{creation_contexts, Slice};
use crate::residency::recorded_time::PartlyRecorded;
use crate::table::builder::Builder;
use crate::table::columns::{at, Columns};
use crate::table::events::{EventPass, Events, Tables};
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Who};
use crate::table::work::{work, WorkKind};

/// A slice below this part of the time slice was not ended by its time. A longer one may have ended for want of work:
/// where kernels are about as long as a time slice, its length does not tell.
const EARLY: f64 = 0.8;
/// Lengths within this of each other are of one kind.
const CLUSTER: f64 = 0.05;
/// Fewer slices, or a smaller part of them, are no time slice.
const CLUSTER_SLICES: usize = 5;
const CLUSTER_SHARE: f64 = 0.2;
/// NVIDIA publishes no lengths for its policies. 1.02 ms is the driver's default for a channel group, 2 to 2.3 ms is seen
/// on boards that nobody configured; for medium and long 10 and 30 ms are told, without a source. Lengths between are
/// more often those of work that repeats, and of no policy.
const POLICIES: &[(i64, i64, &str)] = &[
    (0, 900_000, "short"),
    (900_000, 2_700_000, "default"),
    (8_000_000, 20_000_000, "medium"),
    (20_000_000, i64::MAX, "long"),
];

/// The tables that this pass makes.
#[derive(Debug, Clone)]
pub struct Output {
    /// `residency_by_tenant`.
    pub by_tenant: RecordBatch,
    /// `residency_by_device`.
    pub by_device: RecordBatch,
}

/// The slices of one tenant.
#[derive(Debug, Default)]
struct TenantResidency {
    lengths: Vec<i64>,
    cut: u64,
    union: Union,
    walk: Walk,
    busy: Growing,
    busy_resident_ns: i64,
    endings: BTreeMap<&'static str, u64>,
    handed: Vec<Handed>,
    /// Work of it was recorded.
    worked: bool,
    /// Its context is that of others as well, of which not all were traced.
    partly_traced: bool,
    expired: u64,
    yielded: u64,
    inferred: bool,
}

/// A slice that another tenant ended, back to back.
#[derive(Debug, Clone, Copy)]
struct Handed {
    end_ns: i64,
    length_ns: i64,
    /// Work of the tenant was in flight when it ended.
    cut_work: bool,
}

impl TenantResidency {
    /// Takes in that the tenant had work in flight from `from` up to `to`.
    fn in_flight(&mut self, from: i64, to: i64) {
        let inside_ns = self.walk.covered_ns(&self.union, from, to);
        self.busy_resident_ns = self.busy_resident_ns.saturating_add(inside_ns);
        let first = self.handed.partition_point(|slice| slice.end_ns < from);
        let later = self.handed.get_mut(first..).unwrap_or_default();
        for slice in later.iter_mut().take_while(|slice| slice.end_ns < to) {
            slice.cut_work = true;
        }
    }

    /// Whether nothing but their lengths tells why slices ended. Who has no work left gives the engine up, however
    /// alike its slices are: that shows where all of the work was recorded.
    fn known_by_length(&self) -> bool {
        self.inferred || !self.worked || self.partly_traced
    }

    /// Lengths of the slices that may have ended because they were due.
    fn maybe_due(&self) -> impl Iterator<Item = i64> + '_ {
        let any = self.known_by_length();
        self.handed.iter().filter(move |slice| any || slice.cut_work).map(|slice| slice.length_ns)
    }

    /// Counts the slices that ended because they were due, and those that ended for want of work. One that was shorter,
    /// with work left, is neither.
    fn tell_endings(&mut self, due_ns: i64) {
        let by_length = self.known_by_length();
        let long = |slice: &Handed| slice.length_ns as f64 >= EARLY * due_ns as f64;
        let expired = |slice: &&Handed| long(slice) && (by_length || slice.cut_work);
        let yielded = |slice: &&Handed| if by_length { !long(slice) } else { !slice.cut_work };
        self.expired = self.handed.iter().filter(expired).count() as u64;
        self.yielded = self.handed.iter().filter(yielded).count() as u64;
    }
}

const ENDINGS: &[(&str, &str)] = &[
    ("WFI", "ended_wfi"),
    ("GFXP", "ended_gfxp"),
    ("CTAP", "ended_ctap"),
    ("CILP", "ended_cilp"),
    ("acknowledged", "ended_acknowledged"),
    ("reset", "ended_reset"),
    ("unknown", "ended_unknown"),
];

#[derive(Debug, Default)]
struct DeviceResidency {
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    held: Union,
    kinds: BTreeMap<&'static str, u64>,
    gaps: Vec<i64>,
    fulls: Vec<i64>,
    saves: Vec<i64>,
    restores: Vec<i64>,
    time_slice_ns: Option<i64>,
    inferred: bool,
    /// Only one tenant was seen: which context was resident when it did not is not known, but that others did is.
    alone: bool,
}

/// Reads kernels, graphs and copies, makes `residency_by_tenant` and `residency_by_device`. Takes the finished `tenants`, `residency`, `switches` and `tenant_usage`
/// of the session, and `inferred_residency` where it was made.
#[derive(Debug)]
pub struct ResidencySummary {
    who: Who,
    held: BTreeMap<u32, TenantResidency>,
    devices: BTreeMap<u32, DeviceResidency>,
    /// Of clients whose context goes by the name of another client: that one.
    named_for: BTreeMap<u32, u32>,
    done: u64,
}

/// One slice, wherever it comes from.
#[derive(Debug, Clone, Copy)]
struct Row {
    device: u32,
    tenant: Option<u32>,
    start_ns: i64,
    end_ns: i64,
    complete: bool,
    /// Of a context that only was created beside the one that works.
    creation: bool,
    ending: &'static str,
}

fn observed(session: &Tables) -> Result<Vec<Row>> {
    let slices = session.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
    let creation = creation_contexts(&slices);
    let row = |s: Slice| Row {
        device: s.device,
        tenant: s.tenant,
        start_ns: s.start_ns,
        end_ns: s.end_ns,
        complete: s.complete,
        creation: creation.contains(&(s.device, s.hw_context, s.pid)),
        ending: ENDINGS.iter().find(|e| e.0 == s.ending.word()).map_or("unknown", |e| e.0),
    };
    Ok(slices.into_iter().map(row).collect())
}

fn inferred(session: &Tables) -> Result<(Vec<Row>, BTreeMap<u32, i64>)> {
    let mut slices = BTreeMap::new();
    let Some(batch) = session.get(schema::INFERRED_RESIDENCY.name) else { return Ok((Vec::new(), slices)) };
    let columns = Columns::new(&schema::INFERRED_RESIDENCY, batch);
    let (device, tenant) = (columns.u32("device_id")?, columns.u32("tenant_id")?);
    let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    let time_slice = columns.i64("time_slice_ns")?;
    let mut ends: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    let mut rows = Vec::with_capacity(columns.rows());
    for row in 0..columns.rows() {
        slices.extend(at(time_slice, row).map(|ns| (device.value(row), ns)));
        ends.entry(device.value(row)).or_insert((row, row)).1 = row;
        rows.push(Row {
            device: device.value(row),
            tenant: Some(tenant.value(row)),
            start_ns: start.value(row),
            end_ns: end.value(row),
            complete: true,
            creation: false,
            ending: "unknown",
        });
    }
    // Nothing tells when the first began and the last ended.
    for row in ends.into_values().flat_map(|(first, last)| [first, last]) {
        if let Some(row) = rows.get_mut(row) {
            row.complete = false;
        }
    }
    Ok((rows, slices))
}

/// The length at which most slices that others ended agree; time decides, not number: visits are short and many.
fn time_slice_ns(mut lengths: Vec<i64>) -> Option<i64> {
    lengths.retain(|ns| *ns > IDLE_RESIDENCY_NS);
    lengths.sort_unstable();
    let (mut from, mut sum_ns) = (0_usize, 0.0);
    let mut best: Option<(f64, usize, usize)> = None;
    for (to, length) in lengths.iter().enumerate() {
        sum_ns += *length as f64;
        while let Some(first) =
            lengths.get(from).filter(|first| (**first as f64) * (1.0 + CLUSTER) < *length as f64)
        {
            sum_ns -= *first as f64;
            from += 1;
        }
        if best.is_none_or(|(most_ns, ..)| sum_ns > most_ns) {
            best = Some((sum_ns, from, to));
        }
    }
    let (_, from, to) = best?;
    let cluster = lengths.get(from..=to).unwrap_or_default();
    let enough =
        cluster.len() >= CLUSTER_SLICES && cluster.len() as f64 >= CLUSTER_SHARE * lengths.len() as f64;
    median_ns(cluster).filter(|_| enough)
}

/// The time slice of which `length_ns` are two: no policy has slices of that length, one has slices of half of it, and
/// intervals of these are among `all`. One may end between two kernels, so that it does not show that it was due.
fn one_of_two_ns(all: impl Iterator<Item = i64>, length_ns: i64) -> Option<i64> {
    let half_ns = length_ns / 2;
    if policy(length_ns).is_some() || policy(half_ns).is_none() {
        return None;
    }
    let all: Vec<i64> = all.filter(|ns| *ns > IDLE_RESIDENCY_NS).collect();
    let mut halves: Vec<i64> = all.iter().copied().filter(|ns| are_alike(*ns, half_ns)).collect();
    halves.sort_unstable();
    let enough = halves.len() >= CLUSTER_SLICES && halves.len() as f64 >= CLUSTER_SHARE * all.len() as f64;
    median_ns(&halves).filter(|_| enough)
}

/// Whether two lengths are of one kind.
fn are_alike(ns: i64, other_ns: i64) -> bool {
    (ns as f64 / other_ns as f64 - 1.0).abs() <= CLUSTER
}

fn policy(time_slice_ns: i64) -> Option<&'static str> {
    let of = |(from_ns, below_ns, _): &&(i64, i64, &str)| (*from_ns..*below_ns).contains(&time_slice_ns);
    POLICIES.iter().find(of).map(|(.., name)| *name)
}

impl DeviceResidency {
    /// First to last activity of anybody, where records cover it; none where nobody's was recorded.
    fn window(&self) -> Option<(i64, i64)> {
        self.first_ns.zip(self.last_ns).filter(|(first, last)| first < last)
    }

    fn window_ns(&self) -> Option<i64> {
        self.window().map(|(first, last)| last.saturating_sub(first))
    }

    /// What of that time lies in the window; all of it where there is none.
    fn within_ns(&self, held: &Union) -> i64 {
        self.window().map_or_else(|| held.total_ns(), |(first, last)| held.covered_ns(first, last))
    }

    /// What GPU time shares are of: the window; where no activity was recorded, the time with residency.
    fn shares_of_ns(&self) -> i64 {
        self.window_ns().unwrap_or_else(|| self.resident_ns())
    }

    /// Time at the end of the window of which no switch record tells: somebody had work, so somebody was resident.
    fn unknown_ns(&self) -> i64 {
        let ends = self.last_ns.zip(self.held.spans().last()).filter(|_| !self.inferred);
        ends.map_or(0, |(last_ns, span)| last_ns.saturating_sub(span.1).max(0))
    }

    /// Time in the window in which any tenant was resident.
    fn resident_ns(&self) -> i64 {
        match (self.alone, self.window_ns()) {
            (true, Some(window_ns)) => window_ns,
            (true, None) => {
                let ends = self.held.spans().first().zip(self.held.spans().last());
                ends.map_or(0, |(first, last)| last.1.saturating_sub(first.0))
            }
            (false, _) => self.within_ns(&self.held),
        }
    }
}

impl ResidencySummary {
    /// Reads the tables that earlier passes made.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn new(session: &Tables) -> Result<Self> {
        let who = Who::read(session)?;
        let mut rows = observed(session)?;
        let known: BTreeSet<u32> = rows.iter().map(|r| r.device).collect();
        let (turns, fitted) = inferred(session)?;
        let turned: BTreeSet<u32> = turns.iter().map(|r| r.device).collect();
        rows.extend(turns.into_iter().filter(|r| !known.contains(&r.device)));
        rows.sort_by_key(|r| (r.device, r.start_ns, r.end_ns));
        let mut devices: BTreeMap<u32, DeviceResidency> = BTreeMap::new();
        if let Some(batch) = session.get(schema::TENANT_USAGE.name) {
            let columns = Columns::new(&schema::TENANT_USAGE, batch);
            let (device, first, last) =
                (columns.u32("device_id")?, columns.i64("first_ns")?, columns.i64("last_ns")?);
            for row in 0..columns.rows() {
                let engine = devices.entry(device.value(row)).or_default();
                engine.first_ns = engine.first_ns.into_iter().chain(at(first, row)).min();
                engine.last_ns = engine.last_ns.into_iter().chain(at(last, row)).max();
            }
        }
        // Of the time in which nobody is known to have been resident, residency has no share.
        for (device, (first_ns, last_ns)) in PartlyRecorded::of(session)?.times() {
            let engine = devices.entry(device).or_default();
            engine.first_ns = engine.first_ns.map(|ns| ns.max(first_ns));
            engine.last_ns = engine.last_ns.map(|ns| ns.min(last_ns));
        }
        read_switches(session, &mut devices)?;
        // Slices that another tenant ended, back to back.
        let followed = |a: &Row, b: Option<&Row>| {
            b.is_some_and(|b| {
                let gap_ns = b.start_ns.saturating_sub(a.end_ns);
                a.device == b.device
                    && a.tenant != b.tenant
                    && gap_ns <= 1_000_000
                    && a.complete
                    && !a.creation
            })
        };
        let next = || rows.iter().skip(1).map(Some).chain([None]);
        for row in &rows {
            devices.entry(row.device).or_default();
        }
        for (device, engine) in &mut devices {
            engine.inferred = !known.contains(device) && turned.contains(device);
            engine.time_slice_ns = fitted.get(device).copied().filter(|_| engine.inferred);
        }
        let mut held: BTreeMap<u32, TenantResidency> = BTreeMap::new();
        for (a, b) in rows.iter().zip(next()) {
            let engine = devices.entry(a.device).or_default();
            engine.held.add(a.start_ns, a.end_ns);
            let Some(tenant) = a.tenant else { continue };
            let of = held.entry(tenant).or_default();
            of.union.add(a.start_ns, a.end_ns);
            of.inferred = engine.inferred;
            if a.creation {
                continue;
            }
            if !a.complete {
                of.cut = of.cut.saturating_add(1);
                continue;
            }
            let length_ns = a.end_ns.saturating_sub(a.start_ns);
            of.lengths.push(length_ns);
            *of.endings.entry(a.ending).or_default() += 1;
            if followed(a, b) {
                of.handed.push(Handed { end_ns: a.end_ns, length_ns, cut_work: false });
            }
        }
        for (device, engine) in &mut devices {
            let seen = who.tenants.iter().filter(|t| t.device == *device && held.contains_key(&t.id));
            engine.alone = engine.inferred && seen.count() == 1;
        }
        // A server has no work of its own: there nothing tells whether all of its clients were traced.
        let traced: BTreeSet<u32> = who.tenants.iter().filter(|t| t.traced).map(|t| t.id).collect();
        let mut named_for = BTreeMap::new();
        for (client, by) in who.tenants.iter().filter_map(|t| Some((t, t.served_by?))) {
            if let Some(of) = held.get_mut(&by).filter(|_| traced.contains(&by)) {
                named_for.insert(client.id, by);
                of.partly_traced |= !client.traced;
            }
        }
        Ok(Self { who, held, devices, named_for, done: 0 })
    }

    /// How long a time slice is, and which slices ended with theirs; once all work is known.
    fn tell_endings(&mut self) {
        let mut of_device: BTreeMap<u32, Vec<&TenantResidency>> = BTreeMap::new();
        for tenant in &self.who.tenants {
            if let Some(held) = self.held.get(&tenant.id) {
                of_device.entry(tenant.device).or_default().push(held);
            }
        }
        for (device, engine) in &mut self.devices {
            let fitted = engine.time_slice_ns.take();
            let held = of_device.get(device).map_or(&[] as &[_], Vec::as_slice);
            engine.time_slice_ns = fitted.or_else(|| {
                let length_ns = time_slice_ns(held.iter().flat_map(|held| held.maybe_due()).collect())?;
                // Those of a tenant without such intervals have lengths of its own work.
                let so_long = held.iter().filter(|held| held.maybe_due().any(|ns| are_alike(ns, length_ns)));
                let all = so_long.flat_map(|held| held.handed.iter().map(|slice| slice.length_ns));
                Some(one_of_two_ns(all, length_ns).unwrap_or(length_ns))
            });
        }
        for tenant in &self.who.tenants {
            let due_ns = self.devices.get(&tenant.device).and_then(|engine| engine.time_slice_ns);
            let (Some(due_ns), Some(held)) = (due_ns, self.held.get_mut(&tenant.id)) else { continue };
            held.tell_endings(due_ns);
        }
    }

    fn by_tenant(&self) -> Result<RecordBatch> {
        let all: Vec<(&crate::table::tenant_lookup::Tenant, &TenantResidency)> =
            self.who.tenants.iter().filter_map(|t| self.held.get(&t.id).map(|h| (t, h))).collect();
        let window_ns = |device: &u32| self.devices.get(device).map_or(0, DeviceResidency::shares_of_ns);
        let resident: Vec<i64> = all.iter().map(|(t, h)| self.resident_ns(t.device, h)).collect();
        let share = |part: i64, whole: i64| (whole > 0).then(|| part as f64 / whole as f64);
        let quantile = |h: &TenantResidency, q: f64| nearest_rank(&mut h.lengths.clone(), q);
        let ints = |f: &dyn Fn(&TenantResidency) -> Option<i64>| {
            all.iter().map(|(_, h)| f(h)).collect::<Int64Array>()
        };
        let counts = |f: &dyn Fn(&TenantResidency) -> Option<u64>| {
            all.iter().map(|(_, h)| f(h)).collect::<UInt64Array>()
        };
        // Work lies in the window: what it covers of the slices does, too.
        let idle: Vec<Option<i64>> = all
            .iter()
            .zip(&resident)
            .map(|((t, h), resident_ns)| t.traced.then(|| resident_ns.saturating_sub(h.busy_resident_ns)))
            .collect();
        let due = |t: &crate::table::tenant_lookup::Tenant| {
            self.devices.get(&t.device).is_some_and(|e| e.time_slice_ns.is_some())
        };
        let mut builder = Builder::new(&schema::RESIDENCY_BY_TENANT)
            .put("device_id", all.iter().map(|(t, _)| Some(t.device)).collect::<UInt32Array>())
            .put("tenant_id", all.iter().map(|(t, _)| Some(t.id)).collect::<UInt32Array>())
            .put("slices", counts(&|h| Some(h.lengths.len() as u64)))
            .put("cut_slices", counts(&|h| Some(h.cut)))
            .put("resident_ns", resident.iter().map(|ns| Some(*ns)).collect::<Int64Array>())
            .put(
                "gpu_time_share",
                all.iter()
                    .zip(&resident)
                    .map(|((t, _), ns)| share(*ns, window_ns(&t.device)))
                    .collect::<Float64Array>(),
            )
            .put("idle_ns", idle.iter().copied().collect::<Int64Array>())
            .put(
                "idle_share",
                idle.iter()
                    .zip(&resident)
                    .map(|(idle, resident_ns)| idle.and_then(|ns| share(ns, *resident_ns)))
                    .collect::<Float64Array>(),
            )
            .put("min_slice_ns", ints(&|h| h.lengths.iter().min().copied()))
            .put("p10_slice_ns", ints(&|h| quantile(h, 0.1)))
            .put("median_slice_ns", ints(&|h| quantile(h, 0.5)))
            .put("p90_slice_ns", ints(&|h| quantile(h, 0.9)))
            .put("max_slice_ns", ints(&|h| h.lengths.iter().max().copied()))
            .put("expired", all.iter().map(|(t, h)| due(t).then_some(h.expired)).collect::<UInt64Array>())
            .put("yielded", all.iter().map(|(t, h)| due(t).then_some(h.yielded)).collect::<UInt64Array>());
        for (ending, column) in ENDINGS {
            let count =
                |h: &TenantResidency| (!h.inferred).then(|| h.endings.get(ending).copied().unwrap_or(0));
            builder = builder.put(column, counts(&count));
        }
        builder
            .put_words("basis", all.iter().map(|(_, h)| if h.inferred { "inferred" } else { "observed" }))
            .finish(all.len())
    }

    fn by_device(&self) -> Result<RecordBatch> {
        let all: Vec<(u32, &DeviceResidency)> =
            self.devices.iter().filter(|(_, e)| e.held.total_ns() > 0).map(|(id, e)| (*id, e)).collect();
        let ints = |f: &dyn Fn(&DeviceResidency) -> Option<i64>| {
            all.iter().map(|(_, e)| f(e)).collect::<Int64Array>()
        };
        let held = |e: &DeviceResidency| e.window().map(|_| e.resident_ns());
        // The full cost needs tags that most drivers do not give; a mixture would compare with neither kind.
        let full = |e: &DeviceResidency| !e.fulls.is_empty() && e.fulls.len() == e.gaps.len();
        let costs = |e: &DeviceResidency| if full(e) { e.fulls.clone() } else { e.gaps.clone() };
        let total = |e: &DeviceResidency| costs(e).iter().fold(0_i64, |sum, ns| sum.saturating_add(*ns));
        let known = |e: &DeviceResidency| !e.inferred;
        let count = |e: &DeviceResidency, kind: &str| e.kinds.get(kind).copied().unwrap_or(0);
        let counts =
            |kind: &str| all.iter().map(|(_, e)| known(e).then(|| count(e, kind))).collect::<UInt64Array>();
        Builder::new(&schema::RESIDENCY_BY_DEVICE)
            .put("device_id", all.iter().map(|(id, _)| Some(*id)).collect::<UInt32Array>())
            .put("start_ns", ints(&|e| e.window().map(|w| w.0)))
            .put("end_ns", ints(&|e| e.window().map(|w| w.1)))
            .put("resident_ns", ints(&held))
            .put(
                "idle_ns",
                ints(&|e| {
                    let gaps = e.gaps.iter().fold(0_i64, |sum, ns| sum.saturating_add(*ns));
                    let free = e.window_ns()?.saturating_sub(e.resident_ns()).saturating_sub(e.unknown_ns());
                    known(e).then(|| free.saturating_sub(gaps).max(0))
                }),
            )
            .put("switches", counts("switch"))
            .put("creations", counts("creation"))
            .put("unclear", counts("lost-records"))
            .put_names(
                "cost_kind",
                all.iter().map(|(_, e)| match (e.gaps.is_empty(), full(e)) {
                    (true, _) => None,
                    (_, true) => Some("full"),
                    (_, false) => Some("gap"),
                }),
            )
            .put("median_cost_ns", ints(&|e| median_ns(&costs(e))))
            .put("total_cost_ns", ints(&|e| (known(e) && !e.gaps.is_empty()).then(|| total(e))))
            .put(
                "overhead_share",
                all.iter()
                    .map(|(_, e)| {
                        let length = e.window_ns().filter(|_| known(e) && !e.gaps.is_empty())?;
                        Some(total(e) as f64 / length as f64)
                    })
                    .collect::<Float64Array>(),
            )
            .put("median_save_ns", ints(&|e| median_ns(&e.saves)))
            .put("median_restore_ns", ints(&|e| median_ns(&e.restores)))
            .put("time_slice_ns", ints(&|e| e.time_slice_ns))
            .put_names("policy", all.iter().map(|(_, e)| e.time_slice_ns.and_then(policy)))
            .put(
                "jain",
                all.iter().map(|(id, e)| self.jain(*id).filter(|_| !e.alone)).collect::<Float64Array>(),
            )
            .put_words("basis", all.iter().map(|(_, e)| if e.inferred { "inferred" } else { "observed" }))
            .finish(all.len())
    }

    /// Time in the window in which a tenant of a device held its engine.
    fn resident_ns(&self, device: u32, held: &TenantResidency) -> i64 {
        self.devices.get(&device).map_or_else(|| held.union.total_ns(), |e| e.within_ns(&held.union))
    }

    /// Jain's index of residency, over tenants that did more than come into being.
    fn jain(&self, device: u32) -> Option<f64> {
        let of_device = |t: &&crate::table::tenant_lookup::Tenant| t.device == device;
        let held = self.who.tenants.iter().filter(of_device).filter_map(|t| self.held.get(&t.id));
        let times: Vec<(f64, usize)> =
            held.map(|h| (self.resident_ns(device, h) as f64, h.lengths.len())).collect();
        let all: f64 = times.iter().map(|t| t.0).sum();
        let notable: Vec<f64> = times.iter().filter(|t| t.1 >= 2 || t.0 >= 0.01 * all).map(|t| t.0).collect();
        let (sum, squares) = notable.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        (squares > 0.0).then(|| sum * sum / (notable.len() as f64 * squares))
    }
}

/// Kinds and costs of the switches, by device.
fn read_switches(session: &Tables, devices: &mut BTreeMap<u32, DeviceResidency>) -> Result<()> {
    let Some(batch) = session.get(schema::SWITCHES.name) else { return Ok(()) };
    let columns = Columns::new(&schema::SWITCHES, batch);
    let (device, gap, full) = (columns.u32("device_id")?, columns.i64("gap_ns")?, columns.i64("full_ns")?);
    let (save, restore) = (columns.i64("save_ns")?, columns.i64("restore_ns")?);
    let kind = columns.names("kind")?;
    for row in 0..columns.rows() {
        let engine = devices.entry(device.value(row)).or_default();
        let kind = match kind.get(row) {
            Some("switch") => "switch",
            Some("creation") => "creation",
            Some("lost-records") => "lost-records",
            _ => continue,
        };
        *engine.kinds.entry(kind).or_default() += 1;
        if kind == "switch" {
            engine.gaps.push(gap.value(row));
            engine.fulls.extend(at(full, row));
            engine.saves.extend(at(save, row));
            engine.restores.extend(at(restore, row));
        }
    }
    Ok(())
}

impl EventPass for ResidencySummary {
    type Output = Output;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        watch.progress("residency summary", self.done, 0)?;
        if self.held.is_empty() {
            return Ok(());
        }
        let mut last = LastTenant::default();
        for w in work(events)? {
            if self.done.is_multiple_of(4096) {
                watch.progress("residency summary", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            if w.kind == WorkKind::Copy {
                continue;
            }
            let tenant = self.who.of_next(&mut last, w.capture, w.pid, w.device);
            let tenant = tenant.map(|t| self.named_for.get(&t).copied().unwrap_or(t));
            if let Some(held) = tenant.and_then(|t| self.held.get_mut(&t)) {
                held.worked = true;
                if let Some((from, to)) = held.busy.add(w.start_ns, w.end_ns) {
                    held.in_flight(from, to);
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, watch: &dyn Watch) -> Result<Output> {
        watch.progress("residency summary", self.done, self.done)?;
        self.tell_endings();
        Ok(Output { by_tenant: self.by_tenant()?, by_device: self.by_device()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::residency::observed::Residency;
    use crate::test_tables::{kernels, named, residency};

    fn run(tables: &Tables) -> Output {
        ResidencySummary::new(tables).unwrap().run(tables, &Unwatched).unwrap()
    }

    /// Capture, device, pid, context, start, end in us.
    type Drawn = (u32, u32, u32, u64, i64, i64);

    /// Slices and kernels through the room, with the window that the kernels make.
    fn drawn(slices: &[Drawn], kernels: RecordBatch) -> Output {
        let (mut tables, _) = named(Tables::from([("residency", residency(slices)), ("kernels", kernels)]));
        let usage =
            crate::activity::overlap::Overlap::new(&tables).unwrap().run(&tables, &Unwatched).unwrap();
        tables.insert("tenant_usage", usage.tenant_usage);
        run(&tables)
    }

    /// 7 and 8 are time-sliced, 2000 us, 40 us apart; every third turn of 8 is given up after 300 us.
    fn turns() -> (Vec<Drawn>, i64) {
        let (mut rows, mut now) = (Vec::new(), 0);
        for turn in 0..24 {
            let (pid, length) =
                if turn % 2 == 0 { (7, 2000) } else { (8, if turn % 6 == 5 { 300 } else { 2000 }) };
            rows.push((0, 0, pid, u64::from(pid), now, now + length));
            now += length + 40;
        }
        (rows, now - 40)
    }

    #[test]
    fn slices_endings_and_shares_are_those_of_the_drawing() {
        let (rows, end) = turns();
        // One kernel of 7 over all of it, one of 8 in the first 1000 us of its first turn. The window is that of kernels:
        // the last turn of 8 lies in it.
        let out = drawn(&rows, kernels(&[(0, 7, 0, 1, 7, 0, end), (0, 8, 0, 1, 7, 2040, 3040)]));
        let l = Columns::new(&schema::RESIDENCY_BY_TENANT, &out.by_tenant);
        assert_eq!(l.u64("slices").unwrap().values(), &[12, 12]);
        assert_eq!(l.i64("resident_ns").unwrap().values(), &[24_000_000, 8 * 2_000_000 + 4 * 300_000]);
        assert_eq!(l.i64("idle_ns").unwrap().values(), &[0, 8 * 2_000_000 + 4 * 300_000 - 1_000_000]);
        assert_eq!(l.i64("median_slice_ns").unwrap().values(), &[2_000_000, 2_000_000]);
        assert_eq!(l.i64("p10_slice_ns").unwrap().values(), &[2_000_000, 300_000]);
        // The last slice of 8 was ended by nobody, and nothing of it was in flight when the others ended.
        assert_eq!(l.u64("expired").unwrap().values(), &[12, 0]);
        assert_eq!(l.u64("yielded").unwrap().values(), &[0, 11]);
        assert_eq!(l.u64("ended_unknown").unwrap().values(), &[12, 12]);
        let e = Columns::new(&schema::RESIDENCY_BY_DEVICE, &out.by_device);
        assert_eq!(e.i64("time_slice_ns").unwrap().values(), &[2_000_000]);
        assert_eq!(e.names("policy").unwrap().get(0), Some("default"));
        assert_eq!(e.i64("resident_ns").unwrap().values(), &[41_200_000]);
        // (24 + 17.2)^2 / (2 (24^2 + 17.2^2)) = 1697.44 / 1743.68
        assert!((e.f64("jain").unwrap().value(0) - 0.973_481).abs() < 1e-5);
        // Of 8 no kernel was recorded: the lengths tell.
        let out = drawn(&rows, kernels(&[(0, 7, 0, 1, 7, 0, end)]));
        let l = Columns::new(&schema::RESIDENCY_BY_TENANT, &out.by_tenant);
        assert_eq!(l.u64("expired").unwrap().values(), &[12, 8]);
        assert_eq!(l.u64("yielded").unwrap().values(), &[0, 3]);
    }

    #[test]
    fn slices_that_end_for_want_of_work_are_no_time_slice() {
        // 7 and 8 alternately for 330 us; the kernel of each turn ends 10 us before it does, or 10 us after.
        let told = |after_us: i64| {
            let (mut slices, mut work) = (Vec::new(), Vec::new());
            for turn in 0..40 {
                let (pid, start) = (7 + turn % 2, i64::from(turn) * 370);
                slices.push((0, 0, pid, u64::from(pid), start, start + 330));
                work.push((0, pid, 0, pid, 7, start + 10, start + 330 + after_us));
            }
            let out = drawn(&slices, kernels(&work));
            let e = Columns::new(&schema::RESIDENCY_BY_DEVICE, &out.by_device);
            let l = Columns::new(&schema::RESIDENCY_BY_TENANT, &out.by_tenant);
            let expired = l.u64("expired").unwrap();
            (at(e.i64("time_slice_ns").unwrap(), 0), expired.iter().flatten().sum::<u64>())
        };
        assert_eq!(told(-10), (None, 0));
        // The last turn was ended by nobody.
        assert_eq!(told(10), (Some(330_000), 39));
    }

    #[test]
    fn kernels_as_long_as_a_time_slice_tell_which_slices_expired() {
        // 7 uses up 2000 us each time. Of 8, each kernel ends 20 us before its slice does, the third one 500 us after.
        let (mut slices, mut now) = (Vec::new(), 0);
        let mut work = vec![(0, 7, 0, 7, 7, 0, 100_000)];
        for turn in 0..12 {
            slices.push((0, 0, 7, 7, now, now + 2000));
            let (start, length) = (now + 2040, if turn == 5 { 1200 } else { 2050 });
            slices.push((0, 0, 8, 8, start, start + length));
            work.push((
                0,
                8,
                0,
                8,
                7,
                start,
                start + length + if [2, 5].contains(&turn) { 500 } else { -20 },
            ));
            now = start + length + 40;
        }
        slices.push((0, 0, 7, 7, now, now + 2000));
        let out = drawn(&slices, kernels(&work));
        let l = Columns::new(&schema::RESIDENCY_BY_TENANT, &out.by_tenant);
        assert_eq!(l.u64("expired").unwrap().values(), &[12, 1]);
        // The sixth slice of 8 ended early, with its kernel in flight: it is neither.
        assert_eq!(l.u64("yielded").unwrap().values(), &[0, 10]);
    }

    #[test]
    fn work_of_all_clients_tells_how_slices_of_their_context_ended() {
        // 8 and 9 are clients of one context, which records call 8; the kernel of 9 is in flight at the ends of slices.
        let (mut slices, mut work) =
            (Vec::new(), vec![(0, 7, 0, 7, 7, 0, 100_000), (0, 8, 0, 8, 7, 2040, 2100)]);
        for turn in 0..12 {
            let now = turn * 4080;
            slices.extend([(0, 0, 7, 7, now, now + 2000), (0, 0, 8, 8, now + 2040, now + 4040)]);
            work.push((0, 9, 0, 9, 7, now + 2050, now + 4060));
        }
        slices.push((0, 0, 7, 7, 12 * 4080, 12 * 4080 + 2000));
        let (mut tables, _) =
            named(Tables::from([("residency", residency(&slices)), ("kernels", kernels(&work))]));
        let endings = |tables: &Tables| {
            let out = run(tables).by_tenant;
            let l = Columns::new(&schema::RESIDENCY_BY_TENANT, &out);
            (l.u64("expired").unwrap().values().to_vec(), l.u64("yielded").unwrap().values().to_vec())
        };
        assert_eq!(endings(&tables), (vec![12, 0], vec![0, 12]));
        let served = |traced: bool| {
            let tenants = &tables["tenants"];
            let pids = Columns::new(&schema::TENANTS, tenants).u32("pid").unwrap();
            let of = |pid: u32| (0..3).find(|row| pids.value(*row) == pid).unwrap() as u32;
            let by: UInt32Array = (0..3).map(|row| (row == of(9)).then_some(of(8))).collect();
            let traced: arrow_array::BooleanArray = (0..3).map(|row| Some(row != of(9) || traced)).collect();
            let changes: Vec<(&str, arrow_array::ArrayRef)> =
                vec![("served_by", std::sync::Arc::new(by)), ("traced", std::sync::Arc::new(traced))];
            crate::table::builder::replace(&schema::TENANTS, tenants, changes).unwrap()
        };
        let [all, partly] = [true, false].map(served);
        for tenants in [all, partly] {
            tables.insert("tenants", tenants);
            assert_eq!(endings(&tables), (vec![12, 12], vec![0, 0]));
        }
    }

    #[test]
    fn times_and_shares_are_of_the_window() {
        // 7 is resident from 300 us before its kernel and 100 us beyond the last, 8 from 1200 to 1500.
        //   7 |==.....k.....==|          |..k==|        k: 0 to 1000 and 1600 to 2000
        //   8                  |..k..|                  k: 1200 to 1400
        let rows = [(0, 0, 7, 7, -300, 1100), (0, 0, 8, 8, 1150, 1500), (0, 0, 7, 7, 1550, 2100)];
        let work = [(0, 7, 0, 1, 7, 0, 1000), (0, 8, 0, 1, 7, 1200, 1400), (0, 7, 0, 1, 7, 1600, 2000)];
        let out = drawn(&rows, kernels(&work));
        let l = Columns::new(&schema::RESIDENCY_BY_TENANT, &out.by_tenant);
        // 0 to 1100 and 1550 to 2000; 1150 to 1500.
        assert_eq!(l.i64("resident_ns").unwrap().values(), &[1_550_000, 350_000]);
        assert_eq!(l.i64("idle_ns").unwrap().values(), &[150_000, 150_000]);
        let near = |name: &str, row: usize, value: f64| {
            assert!((l.f64(name).unwrap().value(row) - value).abs() < 1e-12, "{name} {row}");
        };
        near("gpu_time_share", 0, 1550.0 / 2000.0);
        near("gpu_time_share", 1, 350.0 / 2000.0);
        near("idle_share", 0, 150.0 / 1550.0);
        near("idle_share", 1, 150.0 / 350.0);
        // A slice is as long as it is.
        assert_eq!(l.i64("max_slice_ns").unwrap().values(), &[1_400_000, 350_000]);
        let e = Columns::new(&schema::RESIDENCY_BY_DEVICE, &out.by_device);
        assert_eq!(e.i64("resident_ns").unwrap().values(), &[1_900_000]);
        // 1900^2 / (2 (1550^2 + 350^2))
        assert!((e.f64("jain").unwrap().value(0) - 0.714_851).abs() < 1e-6);
    }

    #[test]
    fn costs_are_full_where_every_switch_has_its_tags() {
        // A |8@0 9@30 ... 2@1000 6@1001 7@1050|  B |8@1090 9@1150 ... 2@2100 7@2140| A |8@2190 9@2240 7@3000|
        let events = |rows: &[(i64, u8, u64)]| {
            let n = rows.len();
            let batch = Builder::new(&schema::SWITCH_EVENTS)
                .put("capture", UInt32Array::from(vec![0; n]))
                .put("device_id", UInt32Array::from(vec![0; n]))
                .put("time_ns", rows.iter().map(|r| Some(r.0 * 1000)).collect::<Int64Array>())
                .put("tag", rows.iter().map(|r| Some(r.1)).collect::<arrow_array::UInt8Array>())
                .put("pid", rows.iter().map(|r| Some(r.2 as u32)).collect::<UInt32Array>())
                .put("hw_context", rows.iter().map(|r| Some(r.2)).collect::<UInt64Array>())
                .put("sequence", (0..).take(n).map(Some).collect::<arrow_array::UInt16Array>())
                .finish(n)
                .unwrap();
            let out = Residency::default();
            let tables = Tables::from([("switch_events", batch)]);
            let out = out.run(&tables, &Unwatched).unwrap();
            named(Tables::from([("residency", out.residency), ("switches", out.switches)])).0
        };
        let rows = [
            (0, 8, 7),
            (30, 9, 7),
            (1000, 2, 7),
            (1001, 6, 7),
            (1050, 7, 7),
            (1090, 8, 8),
            (1150, 9, 8),
            (2100, 2, 8),
            (2140, 7, 8),
            (2190, 8, 7),
            (2240, 9, 7),
            (3000, 7, 7),
        ];
        let out = run(&events(&rows));
        let e = Columns::new(&schema::RESIDENCY_BY_DEVICE, &out.by_device);
        assert_eq!(e.names("cost_kind").unwrap().get(0), Some("full"));
        // 1000 to 1150 and 2100 to 2240.
        assert_eq!(e.i64("total_cost_ns").unwrap().values(), &[290_000]);
        assert_eq!(e.i64("median_save_ns").unwrap().values(), &[45_000]);
        assert_eq!(e.i64("median_restore_ns").unwrap().values(), &[55_000]);
        assert_eq!(at(e.i64("time_slice_ns").unwrap(), 0), None);
        let l = Columns::new(&schema::RESIDENCY_BY_TENANT, &out.by_tenant);
        assert_eq!(l.u64("ended_cilp").unwrap().values(), &[1, 0]);
        assert_eq!(at(l.i64("idle_ns").unwrap(), 0), None);
        let without: Vec<_> = rows.iter().copied().filter(|r| r.1 >= 7 && r.1 < 9).collect();
        let out = run(&events(&without));
        let e = Columns::new(&schema::RESIDENCY_BY_DEVICE, &out.by_device);
        assert_eq!(e.names("cost_kind").unwrap().get(0), Some("gap"));
        assert_eq!(e.i64("total_cost_ns").unwrap().values(), &[90_000]);
    }

    #[test]
    fn the_time_slice_is_where_most_time_agrees() {
        assert_eq!(time_slice_ns(vec![2_100_000; 4]), None);
        let mut lengths = vec![2_100_000; 20];
        lengths.extend([300_000; 60]);
        lengths.extend([9_000_000, 31_000_000, 20_000]);
        assert_eq!(time_slice_ns(lengths), Some(2_100_000));
        // Of 4.29 ms no policy has slices: of intervals of half of it, these are two.
        let halves = vec![4_290_000, 2_170_000, 2_180_000, 2_190_000, 2_200_000, 2_250_000, 600_000];
        assert_eq!(one_of_two_ns(halves.clone().into_iter(), 4_290_000), Some(2_190_000));
        assert_eq!(one_of_two_ns(halves.clone().into_iter(), 9_000_000), None);
        assert_eq!(one_of_two_ns(halves.into_iter().skip(3), 4_290_000), None);
        assert_eq!(policy(2_131_500), Some("default"));
        assert_eq!(policy(500_000), Some("short"));
        assert_eq!(policy(3_190_000), None);
        assert_eq!(policy(9_800_000), Some("medium"));
        assert_eq!(policy(30_000_000), Some("long"));
    }

    #[test]
    fn nothing_and_cancellation() {
        let out = run(&Tables::new());
        assert_eq!((out.by_tenant.num_rows(), out.by_device.num_rows()), (0, 0));
        let stopped = ResidencySummary::new(&Tables::new()).unwrap().run(&Tables::new(), &StopAfter::new(0));
        assert!(matches!(stopped, Err(crate::Error::Cancelled)));
    }
}
