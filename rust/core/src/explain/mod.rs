//! Explain units of work one by one: what was each nanosecond of a request?
//!
//! [`units`] finds requests, iterations and steps, [`chain`] walks the critical chain of each back from its end. The
//! tables `units`, `unit_segments` and `unit_coverage` hold what is found; judgement over them (which are slow, and why) is the caller's.

pub mod chain;
pub mod units;
mod waits;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use arrow_array::{BooleanArray, Int64Array, RecordBatch, UInt32Array};

use crate::base::error::Result;
use crate::base::maps::NumberMap;
use crate::base::parallel::ThreadPool;
use crate::base::watch::Watch;
use crate::explain::chain::{Chain, Device, Placed, SegmentKind, Walker};
use crate::explain::units::{find, ranges, Choice, Found, Unit, UnitSource};
use crate::explain::waits::Waits;
use crate::residency::observed::{Ending, Slice};
use crate::residency::recorded_time::PartlyRecorded;
use crate::slowdown::operations::{Gathered, Scene, Signatures, Tenancy};
use crate::slowdown::others::Present;
use crate::table::builder::{Builder, Words};
use crate::table::columns::Columns;
use crate::table::events::Tables;
use crate::table::parts::{divide, together};
use crate::table::schema;
use crate::table::tenant_lookup::Who;

/// Units that are explained between two reports of progress.
const BATCH: usize = 2_048;

/// Finds the units of work of every traced tenant of a reconstructed session, and explains each: `units`,
/// `unit_segments` and `unit_coverage`. On devices without observed residency the `inferred_residency` of the session counts, where there is
/// any. Of a device whose switch records cover notably less time than its kernels, units of that time are explained. On
/// `threads` threads (0: as many as there are processors).
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn explain(session: &Tables, choice: &Choice, threads: usize, watch: &dyn Watch) -> Result<Tables> {
    let mut made = Vec::new();
    let mut units = 0;
    for (part, window) in divide(session, &PartlyRecorded::of(session)?.times(), choice.window)? {
        let tables = explain_part(&part, &Choice { window, ..choice.clone() }, units, threads, watch)?;
        let more = tables.get(schema::UNITS.name).map_or(0, RecordBatch::num_rows);
        units = units.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
        made.push(tables);
    }
    together(made, &[&schema::UNITS, &schema::UNIT_SEGMENTS, &schema::UNIT_COVERAGE])
}

/// The same of a session whose switch records cover the time of its kernels; its units count from `first_unit`.
fn explain_part(
    session: &Tables,
    choice: &Choice,
    first_unit: u32,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Tables> {
    let pool = ThreadPool::new(threads);
    let slices = slices(session)?;
    let mut seen = session.clone();
    seen.insert(schema::RESIDENCY.name, Slice::write(&slices)?);
    let mut gathered = Gathered::read(&seen, pool, watch)?;
    gathered.window = choice.window;
    let signatures = Signatures::of(std::iter::once(&mut gathered.found));
    let scene = Scene::of(gathered, &signatures, pool);
    drop(seen);
    let who = Who::read(session)?;
    let ranges = ranges(session, choice, watch)?;
    let mut written = Written::new(&signatures, first_unit);
    let mut coverage = Vec::new();
    let served_by: BTreeMap<u32, u32> =
        who.tenants.iter().filter_map(|t| Some((t.id, t.served_by?))).collect();
    let mut slices_of: BTreeMap<u32, Vec<Slice>> = BTreeMap::new();
    // Whose residency is known, and whether it was observed.
    let mut holders: BTreeMap<(u32, u32), bool> = BTreeMap::new();
    for s in slices {
        if let Some(tenant) = s.tenant {
            *holders.entry((s.device, tenant)).or_default() |= s.observed;
        }
        slices_of.entry(s.device).or_default().push(s);
    }
    let traced = scene.tenants.iter().filter(|t| t.traced && !t.ops.is_empty());
    let found: Vec<(&Tenancy, Found)> = traced
        .map(|t| (t, find(&scene, t, ranges.get(&t.process), &signatures, choice)))
        .filter(|(_, found)| !found.units.is_empty())
        .collect();
    // Of many captures nobody marked units, and none are found: then nothing has to be put in order.
    let of_all = scene.tenants.iter().filter(|_| !found.is_empty());
    let placed: BTreeMap<u32, Placed<'_>> = of_all.map(|tenant| (tenant.id, Placed::of(tenant))).collect();
    let mut copying_on: BTreeMap<u32, Present> = BTreeMap::new();
    for (tenant, found) in found {
        let Some(own) = placed.get(&tenant.id) else { continue };
        let here = slices_of.get(&tenant.device).map_or(&[][..], Vec::as_slice);
        let held = |id: u32| holders.get(&(tenant.device, id)).copied();
        let server = served_by.get(&tenant.id).copied();
        let holder = server.filter(|server| held(tenant.id).is_none() && held(*server).is_some());
        let holder = holder.unwrap_or(tenant.id);
        let recorded = held(holder).unwrap_or_default();
        let others_unknown = !recorded || choice.others_unseen.contains(&tenant.device);
        let copying =
            copying_on.entry(tenant.device).or_insert_with(|| Placed::copying(placed.iter(), tenant.device));
        let device = Device { scene: &scene, slices: here, others_unknown, holder, placed: &placed, copying };
        let waits = Waits::read(session, tenant, scene.calls.get(&tenant.process))?;
        let walker = Walker::new(&device, own, waits);
        let total = found.units.len() as u64;
        let mut done = 0_u64;
        for part in found.units.chunks(BATCH) {
            watch.progress("explain", done, total)?;
            let chains = pool.each(part.chunks(BATCH.div_ceil(4)).collect(), |units: &[Unit]| {
                units.iter().map(|unit| walker.explain(unit)).collect::<Vec<Chain>>()
            });
            for (unit, chain) in part.iter().zip(chains.into_iter().flatten()) {
                written.add(tenant, &found, unit, &chain, recorded);
            }
            done = done.saturating_add(part.len() as u64);
        }
        coverage.push(Coverage::of(tenant, &found));
    }
    let (units, segments) = written.finish()?;
    let coverage = Coverage::write(&coverage)?;
    Ok([
        (schema::UNITS.name, units),
        (schema::UNIT_SEGMENTS.name, segments),
        (schema::UNIT_COVERAGE.name, coverage),
    ]
    .into())
}

/// How much of a tenant's work its units hold.
struct Coverage {
    tenant: u32,
    device: u32,
    operations: u32,
    in_units: u32,
    /// Between synchronisations.
    groups: Option<GroupsLeft>,
}

/// What was launched between two synchronisations and is no unit: how many, of these longer than every unit, and duration
/// and begin of the longest.
#[derive(Clone, Copy)]
struct GroupsLeft {
    count: u32,
    longer: u32,
    longest: Option<(i64, i64)>,
}

impl Coverage {
    fn of(tenant: &Tenancy, found: &Found) -> Self {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let length = |unit: &Unit| unit.end_ns.saturating_sub(unit.start_ns);
        let slowest_ns = found.units.iter().map(length).max().unwrap_or(i64::MAX);
        let between = found.units.iter().any(|unit| unit.source == UnitSource::Synchronisation);
        let left = &found.left_out;
        let groups = GroupsLeft {
            count: number(left.len()),
            longer: number(left.iter().filter(|group| length(group) > slowest_ns).count()),
            longest: left.iter().map(|group| (length(group), group.start_ns)).max(),
        };
        Self {
            tenant: tenant.id,
            device: tenant.device,
            operations: number(tenant.ops.len()),
            in_units: found.in_units,
            groups: between.then_some(groups),
        }
    }

    fn write(all: &[Self]) -> Result<RecordBatch> {
        let numbers = |f: fn(&Self) -> Option<u32>| -> UInt32Array { all.iter().map(f).collect() };
        let times = |f: fn((i64, i64)) -> i64| -> Int64Array {
            all.iter().map(|one| one.groups.and_then(|groups| groups.longest).map(f)).collect()
        };
        Builder::new(&schema::UNIT_COVERAGE)
            .put("tenant_id", numbers(|one| Some(one.tenant)))
            .put("device_id", numbers(|one| Some(one.device)))
            .put("operations", numbers(|one| Some(one.operations)))
            .put("in_units", numbers(|one| Some(one.in_units)))
            .put("groups", numbers(|one| one.groups.map(|groups| groups.count)))
            .put("longer", numbers(|one| one.groups.map(|groups| groups.longer)))
            .put("longest_ns", times(|longest| longest.0))
            .put("longest_start_ns", times(|longest| longest.1))
            .finish(all.len())
    }
}

/// Residency by start: as observed, and as inferred on devices without observed one.
fn slices(session: &Tables) -> Result<Vec<Slice>> {
    let mut slices = session.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
    if let Some(batch) = session.get(schema::INFERRED_RESIDENCY.name) {
        let c = Columns::new(&schema::INFERRED_RESIDENCY, batch);
        let (device, tenant) = (c.u32("device_id")?, c.u32("tenant_id")?);
        let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
        let recorded: Vec<u32> = {
            let mut all: Vec<u32> = slices.iter().map(|s| s.device).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        for row in (0..c.rows()).filter(|row| !recorded.contains(&device.value(*row))) {
            let tenant = tenant.value(row);
            slices.push(Slice {
                capture: 0,
                device: device.value(row),
                tenant: Some(tenant),
                pid: None,
                // Nobody knows it; tenants are told apart by it.
                hw_context: u64::from(tenant),
                start_ns: start.value(row),
                end_ns: end.value(row),
                // Execution, not residency, is what was inferred.
                running_start_ns: Some(start.value(row)),
                running_end_ns: Some(end.value(row)),
                ending: Ending::Unknown,
                complete: true,
                observed: false,
            });
        }
    }
    slices.sort_by_key(|s| s.start_ns);
    Ok(slices)
}

/// A unit that was explained.
struct Row {
    tenant: u32,
    device: u32,
    process: (u32, Option<u32>),
    unit: Unit,
    others_ns: i64,
    clamped: u32,
}

/// Rows of both tables, as they are found.
struct Written {
    /// Number of the first unit.
    first: u32,
    units: Vec<Row>,
    /// Texts of unit names, and by row a place among them.
    names: Vec<String>,
    unit_names: Vec<u32>,
    sources: Words,
    unit: Vec<u32>,
    position: Vec<u32>,
    kinds: Words,
    start: Vec<i64>,
    end: Vec<i64>,
    dur: Vec<i64>,
    count: Vec<u32>,
    other: Vec<Option<u32>>,
    signature: Vec<Option<u32>>,
    own: Vec<bool>,
    usual: Vec<Option<i64>>,
    basis: Words,
    /// Of signatures, then of graphs.
    texts: Vec<Option<String>>,
    graph_names: NumberMap<u32, u32>,
}

impl Written {
    fn new(signatures: &Signatures, first: u32) -> Self {
        Self {
            first,
            units: Vec::new(),
            names: Vec::new(),
            unit_names: Vec::new(),
            sources: Words::default(),
            unit: Vec::new(),
            position: Vec::new(),
            kinds: Words::default(),
            start: Vec::new(),
            end: Vec::new(),
            dur: Vec::new(),
            count: Vec::new(),
            other: Vec::new(),
            signature: Vec::new(),
            own: Vec::new(),
            usual: Vec::new(),
            basis: Words::default(),
            texts: signatures.list.iter().map(|s| s.name.clone()).collect(),
            graph_names: NumberMap::default(),
        }
    }

    fn add(&mut self, tenant: &Tenancy, found: &Found, unit: &Unit, chain: &Chain, recorded: bool) {
        let number = self.first.saturating_add(u32::try_from(self.units.len()).unwrap_or(u32::MAX));
        let name = found.names.get(unit.name as usize).map_or("", String::as_str);
        let place = self.names.iter().rposition(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        self.unit_names.push(u32::try_from(place).unwrap_or(u32::MAX));
        self.sources.extend([unit.source.word()]);
        self.units.push(Row {
            tenant: tenant.id,
            device: tenant.device,
            process: tenant.process,
            unit: *unit,
            others_ns: tenant.others_at_work_ns(unit.start_ns, unit.end_ns),
            clamped: chain.clamped,
        });
        for (position, segment) in (0_u32..).zip(&chain.segments) {
            self.unit.push(number);
            self.position.push(position);
            self.kinds.extend([segment.kind.word()]);
            self.start.push(segment.start_ns);
            self.end.push(segment.end_ns);
            self.dur.push(segment.dur_ns);
            self.count.push(segment.count);
            self.other.push(segment.other);
            let name =
                if segment.nodes > 1 { Some(self.graph_name(segment.nodes)) } else { segment.signature };
            self.signature.push(name);
            self.own.push(segment.own);
            self.usual.push(segment.usual_ns);
            // Of what is not on record a switch has the time to save and restore state, as kernels show it. No record
            // says what a launched operation waits behind: that follows from what was in flight.
            let on_record = match segment.kind {
                SegmentKind::QueueOtherTenant => false,
                SegmentKind::QueueOtherStream => recorded && segment.other.is_none(),
                SegmentKind::Switch => recorded && tenant.state_ns == 0,
                _ => recorded,
            };
            let observed = on_record || !rests_on_residency(segment.kind);
            self.basis.extend([if observed { "observed" } else { "inferred" }]);
        }
    }

    /// The place among `texts` of the name of a graph's launch: no kernel of it is what the call launched.
    fn graph_name(&mut self, nodes: u32) -> u32 {
        let Self { graph_names, texts, .. } = self;
        *graph_names.entry(nodes).or_insert_with(|| {
            texts.push(Some(format!("[CUDA graph of {nodes} nodes]")));
            u32::try_from(texts.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn finish(self) -> Result<(RecordBatch, RecordBatch)> {
        let count = self.units.len();
        let times =
            |f: fn(&Unit) -> i64| -> Int64Array { self.units.iter().map(|r| Some(f(&r.unit))).collect() };
        let numbers = |f: fn(&Row) -> u32| -> UInt32Array { self.units.iter().map(|r| Some(f(r))).collect() };
        let names = self.unit_names.iter().map(|n| self.names.get(*n as usize).map(String::as_str));
        let units = Builder::new(&schema::UNITS)
            .put("unit", (self.first..u32::MAX).take(count).map(Some).collect::<UInt32Array>())
            .put("tenant_id", numbers(|r| r.tenant))
            .put("device_id", numbers(|r| r.device))
            .put("capture", numbers(|r| r.process.0))
            .put("pid", self.units.iter().map(|r| r.process.1).collect::<UInt32Array>())
            .put("tid", self.units.iter().map(|r| r.unit.thread).collect::<UInt32Array>())
            .put_column_of_words("source", self.sources)
            .put_names("name", names)
            .put("start_ns", times(|u| u.start_ns))
            .put("end_ns", times(|u| u.end_ns))
            .put("dur_ns", times(|u| u.end_ns.saturating_sub(u.start_ns)))
            .put("range_end_ns", times(|u| u.range_end_ns))
            .put("operations", numbers(|r| r.unit.operations))
            .put("without_call", numbers(|r| r.unit.without_call))
            .put("others_ns", self.units.iter().map(|r| Some(r.others_ns)).collect::<Int64Array>())
            .put("clamped", numbers(|r| r.clamped))
            .finish(count)?;
        let rows = self.unit.len();
        let text = |n: &Option<u32>| self.texts.get((*n)? as usize)?.as_deref();
        let segments = Builder::new(&schema::UNIT_SEGMENTS)
            .put("unit", UInt32Array::from(self.unit))
            .put("position", UInt32Array::from(self.position))
            .put_column_of_words("kind", self.kinds)
            .put("start_ns", Int64Array::from(self.start))
            .put("end_ns", Int64Array::from(self.end))
            .put("dur_ns", Int64Array::from(self.dur))
            .put("count", UInt32Array::from(self.count))
            .put("other_tenant_id", UInt32Array::from(self.other))
            .put_names("name", self.signature.iter().map(text))
            .put("own", BooleanArray::from(self.own))
            .put("usual_ns", Int64Array::from(self.usual))
            .put_column_of_words("basis", self.basis)
            .finish(rows)?;
        Ok((units, segments))
    }
}

/// Whether a kind says anything that only residency decides.
fn rests_on_residency(kind: SegmentKind) -> bool {
    match kind {
        SegmentKind::Host
        | SegmentKind::Launch
        | SegmentKind::Copy
        | SegmentKind::Synchronisation
        | SegmentKind::Event
        | SegmentKind::OtherThread => false,
        SegmentKind::QueueSameStream
        | SegmentKind::QueueOtherStream
        | SegmentKind::QueueOtherTenant
        | SegmentKind::TimeSlice
        | SegmentKind::Switch
        | SegmentKind::Execution
        | SegmentKind::Unexplained => true,
    }
}
