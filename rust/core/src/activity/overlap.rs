//! Measure how long tenants were active at once, and attribute their busy time.
//!
//! A recorded kernel interval includes time in which its context was switched out. Attributed GPU time is the interval
//! intersected with the tenant's residency. So an overlap of recorded intervals does not prove concurrent execution.
//! Short kernels do: a kernel much shorter than a time slice cannot span many switches, so under time-slicing short
//! kernels of two tenants exclude each other.
//!
//! ```text
//!   A's kernel   |========================|      recorded 24
//!   A resident   |======|      |======|  |==|    attributed 7 + 7 + 2, switched out 8
//!   B's shorts          |k|k|k|                  contended: A is in flight on both sides
//! ```
//!
//! Everything is streamed: rows come by start, so the part of a new interval that any earlier interval of a group
//! covers is `[start, min(end, latest end of the group))`, and unions grow at their end.
//!
//! The pairs of thousands of tenants are millions, most of which never met. Above [`MANY_TENANTS`] on a device only
//! pairs that met have a row, and work is compared with those that it can have met: tenants stand by the end of their
//! work.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{Float64Array, Int64Array, RecordBatch, UInt32Array, UInt64Array};

use crate::base::error::Result;
use crate::base::hardware::{DEFAULT_SLICE_NS, LAUNCH_GAP_NS, SHORT_KERNEL_NS};
use crate::base::intervals::Growing;
use crate::base::intervals::Union;
use crate::base::maps::NumberMap;
use crate::base::statistics::{median, nearest_rank};
use crate::base::watch::Watch;
use crate::residency::observed::slice_lengths;
use crate::residency::observed::{creation_contexts, Slice};
use crate::residency::recorded_time::PartlyRecorded;
use crate::table::builder::Builder;
use crate::table::columns::at;
use crate::table::events::{EventPass, Events, Tables};
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Who};
use crate::table::work::{work, Work, WorkKind};

/// Tenants of a device up to which every pair has a row: an MPS server takes at most 60 clients, a GPU has less memory
/// than more processes need that are in use.
pub const MANY_TENANTS: usize = 64;
/// Shorter than any time slice: those of an H100 and an H200 change the tenant after 2.4 ms and more.
const QUICK_NS: i64 = 800_000;
/// A kernel is certainly in flight where it ends so much later: each process times its kernels by itself.
const CERTAIN_NS: i64 = 20_000;

/// The tables that this pass makes.
#[derive(Debug, Clone)]
pub struct Output {
    /// `tenant_usage`.
    pub tenant_usage: RecordBatch,
    /// `overlaps`.
    pub overlaps: RecordBatch,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Kernels up to this are short.
    short_ns: i64,
    /// A tenant whose next work comes within this time after its last had work waiting: another
    /// tenant's slices may have kept it off the engine.
    bridge_ns: i64,
}

impl Limits {
    fn short(self, w: &Work) -> bool {
        w.kind == WorkKind::Kernel && w.end_ns.saturating_sub(w.start_ns) <= self.short_ns
    }
}

#[derive(Debug, Default)]
struct Usage {
    device: u32,
    traced: bool,
    residency: Option<Union>,
    /// Residency of the MPS server that its work goes through.
    through: Option<Union>,
    observed: bool,
    slices: Vec<i64>,
    kernels: u64,
    graphs: u64,
    copies: u64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    busy: Growing,
    attributed_ns: i64,
    /// Busy outside of the time that switch records cover.
    unknown_ns: i64,
    copy: Growing,
    copy_bytes: i64,
    /// Kernels, graphs and copies.
    work: Growing,
    /// Between two of these, in gaps up to [`LAUNCH_GAP_NS`].
    launch_gap_ns: i64,
    shorts: u64,
    short_busy: Growing,
    /// Busy time with bridged gaps.
    spell_ns: i64,
    /// The kernel that started last.
    last_kernel: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    start_ns: i64,
    end_ns: i64,
    contended: bool,
    any: bool,
    short: bool,
}

/// Kernels of one tenant, seen against another.
#[derive(Debug, Default)]
struct Against {
    /// Kernels that started while one of the other was in flight, which had started since the tenant's last one; and those
    /// of them that started so soon after that last one that no time slice fits in between.
    changes: u64,
    quick: u64,
    /// Kernels that started beside one of the other when the tenant's last one was through: changes, all of them, and
    /// those that started soon after that last one. Kernels of several streams start at once, changes seldom.
    serial_changes: u64,
    serial: u64,
    serial_soon: u64,
    /// Of short kernels.
    waiting: Vec<Waiting>,
    contended: u64,
    any: u64,
    short: u64,
    dur_ns: i64,
}

impl Against {
    fn count(&mut self, w: Waiting) {
        if w.contended {
            self.contended = self.contended.saturating_add(1);
            self.dur_ns = self.dur_ns.saturating_add(w.end_ns.saturating_sub(w.start_ns));
            self.any = self.any.saturating_add(u64::from(w.any));
            self.short = self.short.saturating_add(u64::from(w.short));
        }
    }

    /// Quick changes if it made no difference that the other had started a kernel in between.
    fn quick_expected(&self) -> f64 {
        if self.serial == 0 {
            return 0.0;
        }
        self.serial_changes as f64 * (self.serial_soon as f64 / self.serial as f64)
    }

    /// The other tenant's next work starts at `now`, after it had none since `idle_ns`.
    fn resolve(&mut self, now: i64, idle_ns: i64, bridge_ns: i64, other_is_short: bool) {
        // Its room is kept: the next short kernel waits a moment later.
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|w| {
            w.contended |= idle_ns <= bridge_ns;
            let meets = now < w.end_ns;
            w.any |= meets;
            w.short |= meets && other_is_short;
            let waits_on = w.contended && w.end_ns > now && !(w.any && w.short);
            if !waits_on {
                self.count(*w);
            }
            waits_on
        });
        self.waiting = waiting;
    }
}

/// Reads kernels, graphs and copies, makes `tenant_usage` and `overlaps`. Takes the finished `tenants` and
/// `residency` of the session.
#[derive(Debug)]
pub struct Overlap {
    who: Who,
    last: LastTenant,
    usage: Vec<Usage>,
    partly_recorded: PartlyRecorded,
    /// Tenants by device, in their order.
    listed: BTreeMap<u32, Vec<u32>>,
    traced: BTreeMap<u32, Vec<u32>>,
    /// Of devices with many tenants: those with work by its latest end.
    by_end: BTreeMap<u32, BTreeSet<(i64, u32)>>,
    /// Whose short kernels wait for the next work of a tenant, on devices with many.
    awaited: BTreeMap<u32, BTreeSet<u32>>,
    limits: BTreeMap<u32, Limits>,
    co_busy: NumberMap<(u32, u32), Growing>,
    against: NumberMap<(u32, u32), Against>,
    copies_known: bool,
    done: u64,
}

/// Up to which length kernels are short beside slices of that length: none was seen, `None`. Who is left alone keeps the
/// engine for longer than a slice: beside a rare visitor the median says nothing of slices.
pub(crate) fn short_ns(slice_ns: Option<f64>) -> i64 {
    slice_ns.map_or(SHORT_KERNEL_NS, |s| (s.min(DEFAULT_SLICE_NS as f64) / 10.0) as i64)
}

impl Overlap {
    /// Reads the tables that earlier passes made.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn new(session: &Tables) -> Result<Self> {
        let who = Who::read(session)?;
        let slices = session.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
        let creation = creation_contexts(&slices);
        let mut spans: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        let mut usage: Vec<Usage> = who
            .tenants
            .iter()
            .map(|t| Usage { device: t.device, traced: t.traced, observed: true, ..Usage::default() })
            .collect();
        for s in &slices {
            let Some(tenant) = s.tenant else { continue };
            spans.entry(tenant).or_default().push((s.start_ns, s.end_ns));
            if let Some(u) = usage.get_mut(tenant as usize) {
                u.observed &= s.observed || s.start_ns == s.end_ns;
                if s.complete && !creation.contains(&(s.device, s.hw_context, s.pid)) {
                    u.slices.push(s.dur_ns());
                }
            }
        }
        for (tenant, spans) in spans {
            if let Some(u) = usage.get_mut(tenant as usize) {
                u.residency = Some(Union::of(spans));
            }
        }
        for t in &who.tenants {
            let server = t.served_by.and_then(|server| usage.get(server as usize));
            let through = server.and_then(|u| u.residency.clone());
            if let Some(u) = usage.get_mut(t.id as usize) {
                u.through = through;
            }
        }
        let lengths = slice_lengths(&slices);
        let mut listed: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut traced: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for t in &who.tenants {
            listed.entry(t.device).or_default().push(t.id);
            if t.traced {
                traced.entry(t.device).or_default().push(t.id);
            }
        }
        let mut limits = BTreeMap::new();
        for (device, tenants) in &listed {
            let slice = lengths.get(device).and_then(|l| median(l));
            let others = tenants.len().clamp(2, 9) - 1;
            // A context without work yields after some 24 us: such slices do not bound the waiting time.
            let turn = slice.unwrap_or(0.0).max(DEFAULT_SLICE_NS as f64);
            limits.insert(
                *device,
                Limits { short_ns: short_ns(slice), bridge_ns: (1.5 * turn * others as f64) as i64 },
            );
        }
        let many = |tenants: &&Vec<u32>| tenants.len() > MANY_TENANTS;
        let by_end = listed.iter().filter(|(_, t)| many(t)).map(|(id, _)| (*id, BTreeSet::new())).collect();
        Ok(Self {
            who,
            last: LastTenant::default(),
            usage,
            partly_recorded: PartlyRecorded::of(session)?,
            listed,
            traced,
            by_end,
            awaited: BTreeMap::new(),
            limits,
            co_busy: NumberMap::default(),
            against: NumberMap::default(),
            copies_known: false,
            done: 0,
        })
    }

    /// A kernel or graph of tenant `me` against all others of the device that it can have met.
    fn meet(&mut self, me: u32, w: &Work, limits: Limits) {
        let Some(by_end) = self.by_end.get(&w.device) else {
            let all = self.traced.get_mut(&w.device).map(std::mem::take).unwrap_or_default();
            for other in all.iter().copied().filter(|other| *other != me) {
                self.resolve(me, other, w, limits);
                self.meet_one(me, other, w, limits);
            }
            if let Some(traced) = self.traced.get_mut(&w.device) {
                *traced = all;
            }
            return;
        };
        // Work in flight was met. Of tenants whose work ended, those that had some last are the likely next.
        let in_flight = by_end.iter().rev().take_while(|(end_ns, _)| *end_ns > w.start_ns);
        let ended = by_end.iter().rev().skip_while(|(end_ns, _)| *end_ns > w.start_ns).take(MANY_TENANTS);
        let near = ended.take_while(|(end_ns, _)| w.start_ns <= end_ns.saturating_add(limits.bridge_ns));
        let met: Vec<u32> =
            in_flight.chain(near).map(|(_, other)| *other).filter(|other| *other != me).collect();
        for other in self.awaited.remove(&me).into_iter().flatten() {
            if self.resolve(me, other, w, limits) {
                self.awaited.entry(me).or_default().insert(other);
            }
        }
        for other in met {
            if self.meet_one(me, other, w, limits) {
                self.awaited.entry(other).or_default().insert(me);
            }
        }
    }

    /// Work of `me` starts: what short kernels of `other` waited for. Returns whether some still wait.
    fn resolve(&mut self, me: u32, other: u32, w: &Work, limits: Limits) -> bool {
        let Some(theirs) = self.against.get_mut(&(other, me)) else { return false };
        let mine = self.usage.get(me as usize).and_then(|u| u.busy.end_ns());
        let idle_ns = mine.map_or(i64::MAX, |end| w.start_ns.saturating_sub(end));
        theirs.resolve(w.start_ns, idle_ns, limits.bridge_ns, limits.short(w));
        !theirs.waiting.is_empty()
    }

    /// Work of `me` against that of `other` before it. Returns whether it waits for the next work of `other`.
    fn meet_one(&mut self, me: u32, other: u32, w: &Work, limits: Limits) -> bool {
        let Some(usage) = self.usage.get(other as usize) else { return false };
        let Some(end_ns) = usage.busy.end_ns() else { return false };
        let in_flight = end_ns > w.start_ns;
        if in_flight && w.end_ns > w.start_ns {
            let pair = (me.min(other), me.max(other));
            self.co_busy.entry(pair).or_default().add(w.start_ns, w.end_ns.min(end_ns));
        }
        let theirs = usage.last_kernel.filter(|k| k.1 > w.start_ns.saturating_add(CERTAIN_NS));
        let mine = self.usage.get(me as usize).and_then(|u| u.last_kernel);
        if let Some((mine, theirs)) = mine.zip(theirs).filter(|_| w.kind == WorkKind::Kernel) {
            let soon = u64::from(w.start_ns.saturating_sub(mine.0) < QUICK_NS);
            let serial = u64::from(mine.1 <= w.start_ns);
            // The other had the engine in between. Its kernel is not through: it can have lost it only as a slice ended.
            let change = u64::from(mine.0 < theirs.0);
            let against = self.against.entry((me, other)).or_default();
            for (count, by) in [
                (&mut against.changes, change),
                (&mut against.quick, change & soon),
                (&mut against.serial_changes, change & serial),
                (&mut against.serial, serial),
                (&mut against.serial_soon, serial & soon),
            ] {
                *count = count.saturating_add(by);
            }
        }
        if !limits.short(w) || w.start_ns > end_ns.saturating_add(limits.bridge_ns) {
            return false;
        }
        let waiting = Waiting {
            start_ns: w.start_ns,
            end_ns: w.end_ns,
            contended: in_flight,
            any: in_flight,
            short: usage.short_busy.end_ns().unwrap_or(i64::MIN) > w.start_ns,
        };
        let mine = self.against.entry((me, other)).or_default();
        if in_flight && waiting.short {
            mine.count(waiting);
            return false;
        }
        mine.waiting.push(waiting);
        true
    }

    fn take(&mut self, w: &Work, bytes: Option<i64>) {
        let tenant = self.who.of_next(&mut self.last, w.capture, w.pid, w.device);
        let dur_ns = w.end_ns.saturating_sub(w.start_ns);
        let Some(me) = tenant else { return };
        let limits = self.limits.get(&w.device).copied();
        let limits = limits.unwrap_or(Limits { short_ns: SHORT_KERNEL_NS, bridge_ns: DEFAULT_SLICE_NS });
        if w.kind != WorkKind::Copy {
            self.meet(me, w, limits);
        }
        let Some(u) = self.usage.get_mut(me as usize) else { return };
        u.first_ns = Some(u.first_ns.map_or(w.start_ns, |t| t.min(w.start_ns)));
        u.last_ns = Some(u.last_ns.map_or(w.end_ns, |t| t.max(w.end_ns)));
        if let Some(gap) = u.work.end_ns().map(|end| w.start_ns.saturating_sub(end)) {
            // Nobody launches a migration of unified memory.
            let launched = w.kind != WorkKind::Copy || w.correlation != Some(0);
            if launched && gap > 0 && gap <= LAUNCH_GAP_NS {
                u.launch_gap_ns = u.launch_gap_ns.saturating_add(gap);
            }
        }
        u.work.add(w.start_ns, w.end_ns);
        if w.kind == WorkKind::Copy {
            u.copies = u.copies.saturating_add(1);
            u.copy.add(w.start_ns, w.end_ns);
            u.copy_bytes = u.copy_bytes.saturating_add(bytes.unwrap_or(0).max(0));
            return;
        }
        if let Some(gap) = u.busy.end_ns().map(|end| w.start_ns.saturating_sub(end)) {
            if gap > 0 && gap <= limits.bridge_ns {
                u.spell_ns = u.spell_ns.saturating_add(gap);
            }
        }
        let before_ns = u.busy.end_ns();
        let new = u.busy.add(w.start_ns, w.end_ns);
        if let (Some(by_end), Some(end_ns)) = (self.by_end.get_mut(&w.device), u.busy.end_ns()) {
            if before_ns != Some(end_ns) {
                before_ns.map(|end_ns| by_end.remove(&(end_ns, me)));
                by_end.insert((end_ns, me));
            }
        }
        if let Some((from, to)) = new {
            let new_ns = to.saturating_sub(from);
            u.spell_ns = u.spell_ns.saturating_add(new_ns);
            let held = u.residency.as_ref().or(u.through.as_ref());
            u.attributed_ns = u.attributed_ns.saturating_add(held.map_or(new_ns, |r| r.covered_ns(from, to)));
            let unknown_ns = held.map_or(0, |_| self.partly_recorded.unknown_ns(w.device, from, to));
            u.unknown_ns = u.unknown_ns.saturating_add(unknown_ns);
        }
        if w.kind == WorkKind::Graph {
            u.graphs = u.graphs.saturating_add(1);
            return;
        }
        u.kernels = u.kernels.saturating_add(1);
        u.last_kernel = Some((w.start_ns, w.end_ns));
        if dur_ns <= limits.short_ns {
            u.shorts = u.shorts.saturating_add(1);
            u.short_busy.add(w.start_ns, w.end_ns);
        }
    }

    fn tenant_usage(&self) -> Result<RecordBatch> {
        let all = &self.usage;
        let busy = |u: &Usage, ns: i64| u.traced.then_some(ns);
        let resident = |u: &Usage| u.residency.as_ref().map(Union::total_ns);
        let span = |u: &Usage| {
            let spans = u.residency.as_ref().map(Union::spans);
            let first = spans.and_then(|s| s.first()).map(|s| s.0);
            let last = spans.and_then(|s| s.last()).map(|s| s.1);
            if u.first_ns.is_some() {
                (u.first_ns, u.last_ns)
            } else {
                (first, last)
            }
        };
        let copy = |u: &Usage, v: i64| (u.traced && self.copies_known).then_some(v);
        Builder::new(&schema::TENANT_USAGE)
            .put("tenant_id", self.who.tenants.iter().map(|t| Some(t.id)).collect::<UInt32Array>())
            .put("device_id", all.iter().map(|u| Some(u.device)).collect::<UInt32Array>())
            .put("kernels", all.iter().map(|u| Some(u.kernels)).collect::<UInt64Array>())
            .put("graph_launches", all.iter().map(|u| Some(u.graphs)).collect::<UInt64Array>())
            .put("memops", all.iter().map(|u| Some(u.copies)).collect::<UInt64Array>())
            .put("first_ns", all.iter().map(|u| span(u).0).collect::<Int64Array>())
            .put("last_ns", all.iter().map(|u| span(u).1).collect::<Int64Array>())
            .put("busy_ns", all.iter().map(|u| busy(u, u.busy.total_ns)).collect::<Int64Array>())
            .put("copy_ns", all.iter().map(|u| copy(u, u.copy.total_ns)).collect::<Int64Array>())
            .put(
                "copy_only_ns",
                all.iter()
                    .map(|u| copy(u, u.work.total_ns.saturating_sub(u.busy.total_ns)))
                    .collect::<Int64Array>(),
            )
            .put("launch_gap_ns", all.iter().map(|u| busy(u, u.launch_gap_ns)).collect::<Int64Array>())
            .put(
                "idle_ns",
                all.iter()
                    .map(|u| {
                        let span = u.last_ns?.saturating_sub(u.first_ns?);
                        busy(u, span.saturating_sub(u.work.total_ns).saturating_sub(u.launch_gap_ns))
                    })
                    .collect::<Int64Array>(),
            )
            .put("resident_ns", all.iter().map(resident).collect::<Int64Array>())
            .put(
                "attributed_ns",
                all.iter()
                    .map(|u| busy(u, u.attributed_ns.saturating_add(u.unknown_ns)))
                    .collect::<Int64Array>(),
            )
            .put(
                "resident_idle_ns",
                all.iter()
                    .map(|u| resident(u).filter(|_| u.traced).map(|r| r.saturating_sub(u.attributed_ns)))
                    .collect::<Int64Array>(),
            )
            .put("copy_bytes", all.iter().map(|u| copy(u, u.copy_bytes)).collect::<Int64Array>())
            .put("slices", all.iter().map(|u| Some(u.slices.len() as u64)).collect::<UInt64Array>())
            .put(
                "median_slice_ns",
                all.iter().map(|u| nearest_rank(&mut u.slices.clone(), 0.5)).collect::<Int64Array>(),
            )
            .put("max_slice_ns", all.iter().map(|u| u.slices.iter().max().copied()).collect::<Int64Array>())
            .put_names(
                "basis",
                all.iter().map(|u| {
                    // Without switch records it is an assumption that nothing was switched out.
                    let sure = u.observed && (u.residency.is_some() || !u.traced) && u.unknown_ns == 0;
                    Some(if sure { "observed" } else { "inferred" })
                }),
            )
            .finish(all.len())
    }

    /// Pairs of devices with many tenants that met: in flight, resident, or short kernels contended. By the smaller id.
    fn met(&self) -> BTreeMap<u32, BTreeSet<u32>> {
        let mut met: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        if self.by_end.is_empty() {
            return met;
        }
        let mut see = |a: u32, b: u32| {
            met.entry(a.min(b)).or_default().insert(a.max(b));
        };
        let crowded =
            |t: u32| self.usage.get(t as usize).is_some_and(|u| self.by_end.contains_key(&u.device));
        for (a, b) in self.co_busy.keys().filter(|(a, _)| crowded(*a)) {
            see(*a, *b);
        }
        let contended = self.against.iter().filter(|(_, against)| against.contended > 0);
        for ((a, b), _) in contended.filter(|((a, _), _)| crowded(*a)) {
            see(*a, *b);
        }
        for tenants in self.listed.values().filter(|tenants| tenants.len() > MANY_TENANTS) {
            let mut spans: Vec<(i64, i64, u32)> = Vec::new();
            for t in tenants {
                let held = self.usage.get(*t as usize).and_then(|u| u.residency.as_ref());
                spans.extend(
                    held.map(Union::spans).into_iter().flatten().map(|(start, end)| (*start, *end, *t)),
                );
            }
            spans.sort_unstable();
            let mut open: BTreeSet<(i64, u32)> = BTreeSet::new();
            for (start_ns, end_ns, tenant) in spans {
                open = open.split_off(&(start_ns.saturating_add(1), 0));
                open.iter().for_each(|(_, other)| see(tenant, *other));
                open.insert((end_ns, tenant));
            }
        }
        met
    }

    fn overlaps(&self, watch: &dyn Watch) -> Result<RecordBatch> {
        let mut pairs = Vec::new();
        let met = self.met();
        for a in &self.who.tenants {
            watch.progress("overlap", self.done, self.done)?;
            let all = self.listed.get(&a.device).filter(|all| all.len() <= MANY_TENANTS);
            let others: Box<dyn Iterator<Item = u32>> = match all {
                Some(all) => Box::new(all.iter().copied().filter(|b| *b > a.id)),
                None => Box::new(met.get(&a.id).into_iter().flatten().copied()),
            };
            for b in others {
                if let (Some(ua), Some(ub)) = (self.usage.get(a.id as usize), self.usage.get(b as usize)) {
                    pairs.push((a.id, ua, b, ub));
                }
            }
        }
        let window = |u: &Usage| {
            let spans = u.residency.as_ref().map(Union::spans);
            let first = spans.and_then(|s| s.first()).map(|s| s.0);
            let last = spans.and_then(|s| s.last()).map(|s| s.1);
            (u.first_ns.or(first), u.last_ns.or(last))
        };
        let co_window: Int64Array = pairs
            .iter()
            .map(|(_, a, _, b)| {
                let ((a0, a1), (b0, b1)) = (window(a), window(b));
                let start = a0.zip(b0).map(|(a, b)| a.max(b));
                let end = a1.zip(b1).map(|(a, b)| a.min(b));
                Some(start.zip(end).map_or(0, |(s, e)| e.saturating_sub(s).max(0)))
            })
            .collect();
        let traced = |p: &&(u32, &Usage, u32, &Usage)| p.1.traced && p.3.traced;
        let none = Against::default();
        let directed = |a: u32, b: u32| self.against.get(&(a, b)).unwrap_or(&none);
        let sum = |f: fn(&Against) -> u64| {
            let f = move |p: &(u32, &Usage, u32, &Usage)| {
                f(directed(p.0, p.2)).saturating_add(f(directed(p.2, p.0)))
            };
            pairs.iter().map(|p| Some(p).filter(traced).map(f)).collect::<UInt64Array>()
        };
        let expected = |x: &Against, other: &Usage| {
            if x.contended == 0 || other.spell_ns == 0 {
                return 0.0;
            }
            let mine = x.dur_ns as f64 / x.contended as f64;
            let reach = other.short_busy.total_ns as f64 + other.shorts as f64 * mine;
            x.contended as f64 * (reach / other.spell_ns as f64).min(1.0)
        };
        Builder::new(&schema::OVERLAPS)
            .put("device_id", pairs.iter().map(|p| Some(p.1.device)).collect::<UInt32Array>())
            .put("tenant_a", pairs.iter().map(|p| Some(p.0)).collect::<UInt32Array>())
            .put("tenant_b", pairs.iter().map(|p| Some(p.2)).collect::<UInt32Array>())
            .put("co_window_ns", co_window)
            .put(
                "co_busy_ns",
                pairs
                    .iter()
                    .map(|p| {
                        let known = Some(p).filter(traced);
                        known.map(|p| self.co_busy.get(&(p.0, p.2)).map_or(0, |g| g.total_ns))
                    })
                    .collect::<Int64Array>(),
            )
            .put(
                "co_resident_ns",
                pairs
                    .iter()
                    .map(|p| p.1.residency.as_ref().zip(p.3.residency.as_ref()).map(|(a, b)| a.common_ns(b)))
                    .collect::<Int64Array>(),
            )
            .put("short_kernels", sum(|x| x.contended))
            .put("short_overlapping", sum(|x| x.any))
            .put("short_short_overlapping", sum(|x| x.short))
            .put(
                "short_short_expected",
                pairs
                    .iter()
                    .map(|p| {
                        let known = Some(p).filter(traced);
                        known.map(|p| expected(directed(p.0, p.2), p.3) + expected(directed(p.2, p.0), p.1))
                    })
                    .collect::<Float64Array>(),
            )
            .put("changes_in_flight", sum(|x| x.changes))
            .put("quick_changes", sum(|x| x.quick))
            .put(
                "quick_changes_expected",
                pairs
                    .iter()
                    .map(|p| {
                        let known = Some(p).filter(traced);
                        known.map(|p| {
                            directed(p.0, p.2).quick_expected() + directed(p.2, p.0).quick_expected()
                        })
                    })
                    .collect::<Float64Array>(),
            )
            .put_names("basis", pairs.iter().map(|_| Some("observed")))
            .finish(pairs.len())
    }
}

impl EventPass for Overlap {
    type Output = Output;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        watch.progress("overlap", self.done, 0)?;
        let copies = events.get(&schema::MEMOPS);
        self.copies_known |= copies.is_some();
        let copies =
            copies.map(|c| Ok::<_, crate::Error>((c.i64("bytes")?, c.u8("copy_kind")?))).transpose()?;
        for w in work(events)? {
            if self.done.is_multiple_of(4096) {
                watch.progress("overlap", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            let bytes = copies.filter(|_| w.kind == WorkKind::Copy);
            // A memset has no copy kind: what it sets was not moved.
            let bytes = bytes.and_then(|(bytes, kind)| at(kind, w.row).and_then(|_| at(bytes, w.row)));
            self.take(&w, bytes);
        }
        Ok(())
    }

    fn finish(mut self, watch: &dyn Watch) -> Result<Output> {
        watch.progress("overlap", self.done, self.done)?;
        for against in self.against.values_mut() {
            for w in std::mem::take(&mut against.waiting) {
                against.count(w);
            }
        }
        Ok(Output { tenant_usage: self.tenant_usage()?, overlaps: self.overlaps(watch)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::table::columns::Columns;
    use crate::test_tables::{kernels, named, residency, K};

    fn run(tables: Tables) -> Output {
        let (tables, _) = named(tables);
        Overlap::new(&tables).unwrap().run(&tables, &Unwatched).unwrap()
    }

    #[test]
    fn attributed_time_is_resident_time_and_conserves_every_nanosecond() {
        // kernel of 7  |100=================2400|
        // 7 resident  |0======1000|      |2000====3000|      attributed 900 + 400, out 1000
        // 8 resident              |1040=1960|
        let out = run(Tables::from([
            ("kernels", kernels(&[(0, 7, 0, 1, 7, 100, 2400)])),
            (
                "residency",
                residency(&[(0, 0, 7, 1, 0, 1000), (0, 0, 8, 2, 1040, 1960), (0, 0, 7, 1, 2000, 3000)]),
            ),
        ]));
        let u = Columns::new(&schema::TENANT_USAGE, &out.tenant_usage);
        assert_eq!(u.i64("busy_ns").unwrap().value(0), 2_300_000);
        assert_eq!(u.i64("resident_ns").unwrap().value(0), 2_000_000);
        assert_eq!(u.i64("attributed_ns").unwrap().value(0), 1_300_000);
        assert_eq!(u.i64("resident_idle_ns").unwrap().value(0), 700_000);
        assert_eq!(u.u64("slices").unwrap().values(), &[2, 1]);
        assert_eq!(at(u.i64("busy_ns").unwrap(), 1), None);
        assert_eq!(at(u.i64("copy_ns").unwrap(), 0), None);
        let o = Columns::new(&schema::OVERLAPS, &out.overlaps);
        assert_eq!(at(o.i64("co_resident_ns").unwrap(), 0), Some(0));
        assert_eq!(at(o.i64("co_busy_ns").unwrap(), 0), None);
    }

    #[test]
    fn without_switch_records_all_is_attributed_as_an_assumption() {
        let out = run(Tables::from([(
            "kernels",
            kernels(&[(0, 7, 0, 1, 7, 100, 2400), (0, 7, 0, 1, 8, 200, 2500)]),
        )]));
        let u = Columns::new(&schema::TENANT_USAGE, &out.tenant_usage);
        assert_eq!(u.i64("busy_ns").unwrap().value(0), 2_400_000);
        assert_eq!(at(u.i64("resident_ns").unwrap(), 0), None);
    }

    fn shorts(rows: &[K]) -> (u64, u64, u64, f64) {
        let out = run(Tables::from([("kernels", kernels(rows))]));
        let o = Columns::new(&schema::OVERLAPS, &out.overlaps);
        (
            o.u64("short_kernels").unwrap().value(0),
            o.u64("short_overlapping").unwrap().value(0),
            o.u64("short_short_overlapping").unwrap().value(0),
            o.f64("short_short_expected").unwrap().value(0),
        )
    }

    #[test]
    fn alternating_bursts_of_short_kernels_contend_and_never_meet() {
        // 7 |10 kernels of 100, 2 ms| ------------ |again| ...
        // 8                         |10 kernels| -------- |again|
        let mut rows = Vec::new();
        for turn in 0..8_i64 {
            for n in 0..10 {
                let start = turn * 2100 + n * 200;
                rows.push((0, 7 + (turn % 2) as u32, 0, 1, 7, start, start + 100));
            }
        }
        let (contended, any, short, expected) = shorts(&rows);
        // The first burst of 7 has nobody before it; 8's last burst has nobody after it.
        assert_eq!((contended, any, short), (60, 0, 0));
        assert!(expected > 20.0, "{expected}");
    }

    #[test]
    fn short_kernels_that_meet_are_counted_once() {
        // 7 |0=100|    |200=300|     |400=500|
        // 8    |50=======250|    |350==450|        two of 8, all overlap; 200 is the limit of short
        let rows = [
            (0, 7, 0, 1, 7, 0, 100),
            (0, 8, 0, 1, 7, 50, 250),
            (0, 7, 0, 1, 7, 200, 300),
            (0, 8, 0, 1, 7, 350, 450),
            (0, 7, 0, 1, 7, 400, 500),
        ];
        // The first kernel of 7 found nobody: it is not contended. The other four start in flight or in a gap.
        let (contended, any, short, _) = shorts(&rows);
        assert_eq!((contended, any, short), (4, 4, 4));
    }

    #[test]
    fn short_kernels_beside_one_long_kernel_prove_nothing() {
        // 7 |0================================50 ms|
        // 8   |k| |k| |k| ...
        let mut rows = vec![(0, 7, 0, 1, 7, 0, 50_000)];
        rows.extend((0..20).map(|n| (0, 8, 0, 1, 7, 100 + n * 1000, 150 + n * 1000)));
        let (contended, any, short, expected) = shorts(&rows);
        assert_eq!((contended, any, short), (20, 20, 0));
        assert!(expected < 0.5, "nothing short of 7 could have been met: {expected}");
    }

    fn changes(rows: &[K]) -> (u64, u64, f64) {
        let out = run(Tables::from([("kernels", kernels(rows))]));
        let o = Columns::new(&schema::OVERLAPS, &out.overlaps);
        (
            o.u64("changes_in_flight").unwrap().value(0),
            o.u64("quick_changes").unwrap().value(0),
            o.f64("quick_changes_expected").unwrap().value(0),
        )
    }

    #[test]
    fn no_time_slice_fits_between_quick_changes() {
        // 7 |0======400|  |600====1000|
        // 8       |300======700|  |900====1300|      7 at 600 and 8 at 900: each 600 us after its last kernel
        let (seven, eight) = (|from, to| (0, 7, 0, 1, 7, from, to), |from, to| (0, 8, 0, 1, 7, from, to));
        assert_eq!(
            changes(&[seven(0, 400), eight(300, 700), seven(600, 1000), eight(900, 1300)]),
            (2, 2, 2.0)
        );
        // 7 |0====2000----4100==4200||4210====6200-- ...
        // 8           |2100====4100----6200==6300|   7 at 4210 had to wait for a slice of 8
        assert_eq!(changes(&[seven(0, 4200), eight(2100, 6300), seven(4210, 8000)]), (1, 0, 0.0));
        // 8 ends within 20 us of the start of 7: clocks may differ so much. And two in a row are no change.
        assert_eq!(changes(&[seven(0, 400), eight(300, 700), seven(690, 1000)]), (0, 0, 0.0));
        assert_eq!(changes(&[seven(0, 400), seven(410, 700), eight(500, 900)]), (0, 0, 0.0));
        // Of four kernels of 7 beside the first of 8, three start 100 us after their last one.
        let mut rows = vec![seven(0, 50), eight(60, 4000)];
        rows.extend([2160, 2260, 2360, 2460].map(|at| seven(at, at + 50)));
        rows.push(eight(4200, 4900));
        assert_eq!(changes(&rows), (1, 0, 0.75));
    }

    #[test]
    fn what_a_visitor_leaves_alone_is_no_slice() {
        assert_eq!(short_ns(None), 200_000);
        assert_eq!(short_ns(Some(1_000_000.0)), 100_000);
        // Somebody who is alone for 20 ms between two visits: a kernel of 2 ms is not short for that.
        assert_eq!(short_ns(Some(20_000_000.0)), 213_150);
    }

    #[test]
    fn a_tenant_long_gone_contends_with_nobody() {
        let rows =
            [(0, 7, 0, 1, 7, 0, 100), (0, 8, 0, 1, 7, 50_000, 50_100), (0, 7, 0, 1, 7, 100_000, 100_100)];
        assert_eq!(shorts(&rows), (0, 0, 0, 0.0));
    }

    /// Every row, the ids of tenants as pids, of pairs of which both have a pid of at most `last`.
    fn rows(rows: &[K], last: u32) -> Vec<String> {
        let (tables, _) = named(Tables::from([("kernels", kernels(rows))]));
        let pids: Vec<u32> = Who::read(&tables).unwrap().tenants.iter().filter_map(|t| t.pid).collect();
        let out = Overlap::new(&tables).unwrap().run(&tables, &Unwatched).unwrap();
        let o = Columns::new(&schema::OVERLAPS, &out.overlaps);
        let pid = |name: &str, row: usize| pids[o.u32(name).unwrap().value(row) as usize];
        let number = |name: &str, row: usize| o.u64(name).unwrap().value(row);
        let mut found: Vec<String> = (0..o.rows())
            .map(|row| (pid("tenant_a", row), pid("tenant_b", row), row))
            .filter(|(a, b, _)| *a.max(b) <= last)
            .map(|(a, b, row)| {
                format!(
                    "{a} {b}: {} {} {} {} {:.6}",
                    at(o.i64("co_busy_ns").unwrap(), row).unwrap(),
                    number("short_kernels", row),
                    number("short_overlapping", row),
                    number("short_short_overlapping", row),
                    o.f64("short_short_expected").unwrap().value(row)
                )
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn pairs_that_met_are_the_same_however_many_others_there_are() {
        // 12 tenants whose kernels of 20 to 300 us overlap by chance, seconds after 60 that came one after the other.
        for seed in 0..20_u64 {
            let mut state = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut draw = |below: i64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                i64::try_from(state >> 33).unwrap() % below
            };
            let few: Vec<K> = (0..400)
                .map(|n| {
                    let start = 9_000_000 + n * 100 + draw(90);
                    (0, 1 + draw(12) as u32, 0, 1, 7, start, start + 20 + draw(280))
                })
                .collect();
            let mut all: Vec<K> =
                (0..60_i64).map(|n| (0, 100 + n as u32, 0, 1, 7, n * 100_000, n * 100_000 + 10)).collect();
            all.extend(&few);
            let met = |rows: Vec<String>| -> Vec<String> {
                rows.into_iter().filter(|row| !row.contains(": 0 0 0 0")).collect()
            };
            let expected = met(rows(&few, 12));
            assert!(expected.len() > 30, "{}", expected.len());
            assert_eq!(met(rows(&all, 12)), expected, "seed {seed}");
        }
    }

    #[test]
    fn pairs_of_many_tenants_that_never_met_have_no_row() {
        let apart: Vec<K> =
            (0..80_i64).map(|n| (0, 100 + n as u32, 0, 1, 7, n * 100_000, n * 100_000 + 10)).collect();
        let out = run(Tables::from([("kernels", kernels(&apart))]));
        assert_eq!((out.tenant_usage.num_rows(), out.overlaps.num_rows()), (80, 0));
        let few = run(Tables::from([("kernels", kernels(&apart[..20]))]));
        assert_eq!(few.overlaps.num_rows(), 20 * 19 / 2);
    }

    #[test]
    fn residency_that_overlaps_is_found_among_many_tenants() {
        // 70 contexts one after the other; the last two share 5 us.
        let mut held: Vec<_> =
            (0..70_i64).map(|n| (0, 0, 100 + n as u32, 1 + n as u64, n * 100, n * 100 + 90)).collect();
        held.push((0, 0, 200, 99, 69 * 100 + 85, 69 * 100 + 200));
        let out = run(Tables::from([("residency", residency(&held))]));
        let o = Columns::new(&schema::OVERLAPS, &out.overlaps);
        assert_eq!(o.rows(), 1);
        assert_eq!(at(o.i64("co_resident_ns").unwrap(), 0), Some(5_000));
        assert_eq!(at(o.i64("co_busy_ns").unwrap(), 0), None);
    }

    #[test]
    fn empty_and_cancelled() {
        let out = run(Tables::new());
        assert_eq!((out.tenant_usage.num_rows(), out.overlaps.num_rows()), (0, 0));
        let (tables, _) = named(Tables::from([("kernels", kernels(&[(0, 7, 0, 1, 7, 0, 1)]))]));
        let stopped = Overlap::new(&tables).unwrap().run(&tables, &StopAfter::new(1));
        assert!(matches!(stopped, Err(crate::Error::Cancelled)));
    }
}
