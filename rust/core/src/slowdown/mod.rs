//! Measure the slowdown of each tenant, and attribute it to the others.
//!
//! Three ways to know, best first:
//!
//! - **a baseline**: the same work recorded solo, operation by operation (`slowdown/baseline.rs`);
//! - **the capture itself**: a counterfactual replay without the other tenants (`slowdown/counterfactual.rs`), and
//!   equal kernels solo against contended (`slowdowns`, one row per signature);
//! - **nothing**: a tenant that never ran solo on SMs that it shares. Then the table holds the reason.
//!
//! This step sees the whole capture at once: what an operation waited for, and what it is compared with, may be
//! anywhere.

mod baseline;
mod compare;
mod counterfactual;
pub(crate) mod operations;
pub(crate) mod ops;
pub(crate) mod others;
pub(crate) mod ranges;
mod thread_waits;
mod units;

use std::collections::BTreeMap;

use arrow_array::{
    BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};

use crate::base::error::Result;
use crate::base::parallel::ThreadPool;
use crate::base::statistics::{cliffs_delta, quantile, Resamples};
use crate::base::watch::Watch;
use crate::residency::recorded_time::PartlyRecorded;
use crate::session::recorded_together;
use crate::slowdown::baseline::{likeness, matched};
use crate::slowdown::compare::{compare, scatter, Blocks, Clock, Compared, Doubt, Figure, ModelDoubt};
use crate::slowdown::counterfactual::{replay, Reference, Refused, SoloOp};
use crate::slowdown::operations::{CoRun, ContextState, Gathered, Op, Scene, Signatures, Tenancy, Unusual};
use crate::slowdown::ranges::{named_ranges, NamedRanges, Range};
use crate::slowdown::units::{measured_units, units, UnitFigures};
use crate::table::builder::Builder;
use crate::table::columns::Columns;
use crate::table::events::Tables;
use crate::table::parts::{divide, together, Span};
use crate::table::schema;
use crate::table::tenant_lookup::Process;
use crate::table::work::WorkKind;

/// Kernels on each side below which no ratio of a signature is given.
pub const ENOUGH_KERNELS: usize = 10;
/// Units of one name below which none are compared; names that say which unit it is are no names.
pub(crate) const ENOUGH_UNITS: usize = 5;
const MOST_NAMES: usize = 200;
/// Signatures in common, by time, below which a baseline is none of this tenant.
const LIKE: f64 = 0.5;
/// Less added latency than this part of the latency solo has no causes.
pub(crate) const LEAST_ADDED: f64 = 0.02;
/// Parts of the kernels of a signature whose lengths show how they are distributed.
const SPREAD: [f64; 4] = [0.05, 0.25, 0.75, 0.95];
/// What an equal process name adds to the likeness.
const SAME_NAME: f64 = 0.05;
/// Operations of processes that are compared at once: of each some 60 bytes are kept until its process is done, beside what
/// is kept of all.
const AT_ONCE: usize = 1 << 21;

/// A recording of tenants solo.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// A reconstructed session.
    pub tables: Tables,
    /// The tenant that it is of; none: found by its kernels.
    pub tenant: Option<u32>,
}

/// What a comparison with a baseline rests on.
const OTHER_AMOUNTS: &str = "the baseline did other amounts of work: operations are held against the mean of their like, percentiles against all its launches, elapsed time against what it took per kernel time";
const PAUSED: &str = "its host paused once, far longer than otherwise and than in the baseline: without that pause elapsed would be near the lower bound";
const OTHER_AMOUNTS_PAUSED: &str = "the baseline did other amounts of work: operations are held against the mean of their like, percentiles against all its launches, elapsed time against what it took per kernel time. Its host paused once, far longer than otherwise: without that pause elapsed would be near the lower bound";

/// The tables that are made.
const TABLES: [&schema::Table; 6] = [
    &schema::SLOWDOWNS,
    &schema::TENANT_SLOWDOWNS,
    &schema::CAUSES,
    &schema::PAIRWISE_INTERFERENCE,
    &schema::CONTEXT_STATE,
    &schema::BASELINE_MATCHES,
];

struct Row<'a> {
    tenant: &'a Tenancy,
    against: &'static str,
    baseline: Option<u32>,
    basis: &'static str,
    compared: Compared,
    /// Units of work by name.
    units: Vec<UnitFigures>,
    reason: Option<&'static str>,
    /// Each operation is held against its own counterpart.
    aligned: bool,
}

struct Match {
    tenant: u32,
    device: u32,
    baseline: u32,
    baseline_tenant: u32,
    likeness: f64,
    same_name: bool,
    forced: bool,
    used: bool,
    aligned: Option<bool>,
}

fn names(tables: &Tables) -> Result<Vec<String>> {
    let Some(batch) = tables.get(schema::TENANTS.name) else { return Ok(Vec::new()) };
    let columns = Columns::new(&schema::TENANTS, batch);
    let name = columns.text("name")?;
    Ok((0..columns.rows()).map(|row| name.value(row).to_owned()).collect())
}

/// Compares every tenant of a reconstructed session with itself solo: `slowdowns`, `tenant_slowdowns`, `causes`,
/// `pairwise_interference`, `context_state` and `baseline_matches`. On `threads` threads (0: as many as there are processors), whose number changes
/// nothing in the tables. Where the session was cut down to a `window` of time, what was cut there counts as nothing:
/// how long it took is not known. Of a device of which notably less than the time of its kernels is known, that time
/// counts.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn slowdowns(
    session: &Tables,
    baselines: &[Baseline],
    window: Option<(i64, i64)>,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Tables> {
    // Solo its context was resident, records or not.
    let solo = |b: &Baseline| -> Result<Baseline> {
        Ok(Baseline { tables: PartlyRecorded::of(&b.tables)?.forget(&b.tables)?, ..b.clone() })
    };
    let baselines = baselines.iter().map(solo).collect::<Result<Vec<_>>>()?;
    let made = divide(session, &known_times(session)?, window)?;
    let made = made.iter().map(|(part, window)| of_part(part, &baselines, *window, threads, watch));
    together(made.collect::<Result<Vec<_>>>()?, &TABLES)
}

/// When it is known of a device what every tenant did and who was resident, where that is notably less than the time of its
/// kernels: all captures recorded, and switch records, if there are any, reach there.
fn known_times(session: &Tables) -> Result<BTreeMap<u32, Span>> {
    let mut times = recorded_together::times(session)?;
    for (device, (first, last)) in PartlyRecorded::of(session)?.times() {
        let known = times.entry(device).or_insert((first, last));
        *known = (known.0.max(first), known.1.min(last));
    }
    Ok(times)
}

/// The same of a session of which all time is known.
fn of_part(
    session: &Tables,
    baselines: &[Baseline],
    window: Option<(i64, i64)>,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Tables> {
    let pool = ThreadPool::new(threads);
    let all: Vec<&Tables> = std::iter::once(session).chain(baselines.iter().map(|b| &b.tables)).collect();
    let mut gathered = Vec::with_capacity(all.len());
    for tables in all {
        gathered.push((Gathered::read(tables, pool, watch)?, names(tables)?));
    }
    if let Some((session, _)) = gathered.first_mut() {
        session.window = window;
    }
    let signatures = Signatures::of(gathered.iter_mut().map(|(session, _)| &mut session.found));
    let mut scenes =
        gathered.into_iter().map(|(session, names)| (Scene::of(session, &signatures, pool), names));
    let Some((scene, names_here)) = scenes.next() else { return Ok(Tables::new()) };
    let others: Vec<(Scene, Vec<String>)> = scenes.collect();
    let mut matches = Vec::new();
    for tenant in scene.tenants.iter().filter(|t| t.traced && !t.ops.is_empty()) {
        matches.extend(choose(tenant, &names_here, baselines, &others));
    }
    let mut processes: BTreeMap<Process, usize> = BTreeMap::new();
    for tenant in scene.tenants.iter().filter(|t| t.traced && !t.ops.is_empty()) {
        *processes.entry(tenant.process).or_default() += tenant.ops.len();
    }
    let processes: Vec<(Process, usize)> = processes.into_iter().collect();
    let work = units_of_work(session, window, watch)?;
    let of_baseline = |b: &Baseline| units_of_work(&b.tables, None, watch);
    let solo_work = baselines.iter().map(of_baseline).collect::<Result<Vec<_>>>()?;
    let none = UnitsOfProcess::new();
    watch.progress("slowdowns", 0, processes.len() as u64)?;
    // Each process is looked at by itself.
    let mut done = Vec::with_capacity(processes.len());
    let mut rest = processes.as_slice();
    while !rest.is_empty() {
        let mut operations = 0;
        let few = rest.iter().take_while(|(_, of)| {
            operations += of;
            operations <= AT_ONCE
        });
        let (now, later) = rest.split_at(few.count().max(1));
        done.extend(pool.each(now.to_vec(), |(process, _)| {
            let work = work.get(&process).unwrap_or(&none);
            of_process(&scene, &others, &solo_work, &matches, process, work, pool)
        }));
        rest = later;
    }
    watch.progress("slowdowns", processes.len() as u64, processes.len() as u64)?;
    let (rows, by_signature): (Vec<Row<'_>>, Vec<Vec<SignatureRow>>) = done.into_iter().flatten().unzip();
    let by_signature: Vec<SignatureRow> = by_signature.into_iter().flatten().collect();
    for m in &mut matches {
        if let Some(r) = rows.iter().find(|r| m.used && r.tenant.id == m.tenant && r.baseline.is_some()) {
            m.aligned = Some(r.aligned);
        }
    }
    Ok([
        (schema::SLOWDOWNS.name, signature_table(&by_signature, &signatures)?),
        (schema::TENANT_SLOWDOWNS.name, figure_table(&rows)?),
        (schema::CAUSES.name, cause_table(&rows)?),
        (schema::PAIRWISE_INTERFERENCE.name, aggressor_table(&rows)?),
        (schema::CONTEXT_STATE.name, state_table(&scene.state)?),
        (schema::BASELINE_MATCHES.name, match_table(&matches)?),
    ]
    .into())
}

/// The baselines that may be this tenant's, the one that is used marked.
fn choose(
    tenant: &Tenancy,
    names: &[String],
    baselines: &[Baseline],
    others: &[(Scene, Vec<String>)],
) -> Vec<Match> {
    let mut found = Vec::new();
    for (number, (baseline, (scene, their_names))) in baselines.iter().zip(others).enumerate() {
        let forced = baseline.tenant == Some(tenant.id);
        if baseline.tenant.is_some() && !forced {
            continue;
        }
        for theirs in scene.tenants.iter().filter(|t| t.traced && !t.ops.is_empty()) {
            let name = names.get(tenant.id as usize);
            found.push(Match {
                tenant: tenant.id,
                device: tenant.device,
                baseline: u32::try_from(number).unwrap_or(u32::MAX),
                baseline_tenant: theirs.id,
                likeness: likeness(tenant, theirs),
                same_name: name.is_some() && name == their_names.get(theirs.id as usize),
                forced,
                used: false,
                aligned: None,
            });
        }
    }
    let score =
        |m: &Match| m.likeness + if m.same_name { SAME_NAME } else { 0.0 } + if m.forced { 2.0 } else { 0.0 };
    let best = found.iter().map(score).fold(f64::NEG_INFINITY, f64::max);
    if let Some(chosen) = found.iter_mut().find(|m| score(m) >= best && (m.likeness >= LIKE)) {
        chosen.used = true;
    }
    found
}

/// Units of work of a process by name.
type UnitsOfProcess = BTreeMap<String, Vec<Range>>;

/// NVTX ranges, and what a caller put among them, as [`named_ranges`] gives them.
fn units_of_work(
    tables: &Tables,
    window: Option<(i64, i64)>,
    watch: &dyn Watch,
) -> Result<BTreeMap<Process, UnitsOfProcess>> {
    let mut out: BTreeMap<Process, UnitsOfProcess> = BTreeMap::new();
    for NamedRanges { process, name, mut ranges } in named_ranges(tables, window, |_| true, watch)? {
        let of = out.entry(process).or_default();
        if let Some(known) = of.get_mut(&name) {
            known.append(&mut ranges);
        } else if of.len() < MOST_NAMES {
            of.insert(name, ranges);
        }
    }
    Ok(out)
}

/// A tenant of a baseline, with the units of work that were recorded there.
struct SoloUnits<'a> {
    scene: &'a Scene,
    tenant: &'a Tenancy,
    work: Option<&'a UnitsOfProcess>,
}

impl SoloUnits<'_> {
    /// How long units of a name took there; none: too few were recorded.
    fn of(&self, name: &str) -> Option<Vec<f64>> {
        let calls = self.scene.calls.get(&self.tenant.process);
        let thread_of = |op: &Op| calls.and_then(|c| c.thread(op.call()?));
        let found = measured_units(self.tenant, &thread_of, self.work?.get(name)?);
        (found.len() >= ENOUGH_UNITS).then_some(found)
    }
}

fn of_units(
    scene: &Scene,
    tenant: &Tenancy,
    solo: &impl Reference,
    work: &UnitsOfProcess,
    measured: Option<&SoloUnits<'_>>,
    doubt: &Doubt,
) -> Vec<UnitFigures> {
    let calls = scene.calls.get(&tenant.process);
    let thread_of = |op: &Op| calls.and_then(|c| c.thread(op.call()?));
    work.iter()
        .filter(|(_, list)| list.len() >= ENOUGH_UNITS)
        .map(|(name, list)| {
            let measured = measured.and_then(|there| there.of(name));
            units(tenant, solo, &thread_of, name, list, measured, doubt)
        })
        .filter(|units| !units.figures.is_empty())
        .collect()
}

fn of_process<'a>(
    scene: &'a Scene,
    others: &[(Scene, Vec<String>)],
    solo_work: &[BTreeMap<Process, UnitsOfProcess>],
    matches: &[Match],
    process: Process,
    work: &UnitsOfProcess,
    pool: ThreadPool,
) -> Vec<(Row<'a>, Vec<SignatureRow>)> {
    let tenants = || scene.tenants.iter().filter(|t| t.traced && !t.ops.is_empty() && t.process == process);
    let (within, mut replays) = pool.both(
        || tenants().map(|tenant| by_signature(tenant, None, pool)).collect::<Vec<_>>(),
        || replay(scene, process),
    );
    let mut out = Vec::new();
    for (tenant, within) in tenants().zip(within) {
        let switching = scene.switching.get(&tenant.device);
        let latencies = tenant.calls_known();
        if let Some(m) = matches.iter().find(|m| m.used && m.tenant == tenant.id) {
            let base = others
                .get(m.baseline as usize)
                .and_then(|(scene, _)| Some((scene, scene.tenants.get(m.baseline_tenant as usize)?)));
            if let Some((theirs, base)) = base {
                let found = matched(tenant, base, theirs.switching.get(&base.device));
                let clock = match found.elapsed_ratio {
                    Some(elapsed_ratio) if !found.aligned => Clock::ElapsedRatio(elapsed_ratio, found.paused),
                    _ => Clock::Own,
                };
                let both = latencies && base.calls_known();
                let mut doubt = scatter(base, &as_recorded(base));
                if scene.window.is_some() {
                    let held_against = found.ops.iter().flatten().count();
                    doubt = doubt.of_part(held_against as f64 / base.ops.len() as f64);
                }
                doubt = doubt.with_cuts(2.0 * tenant.cut_doubt());
                let mut compared = compare(tenant, &found.ops, &clock, switching, both, &doubt, pool);
                compared.hold_against(found.latencies);
                let solo_units = SoloUnits {
                    scene: theirs,
                    tenant: base,
                    work: solo_work.get(m.baseline as usize).and_then(|work| work.get(&base.process)),
                };
                // Of a part of a capture only the same units there are its like.
                let measured = (scene.window.is_none() || !found.aligned).then_some(&solo_units);
                let units = if both {
                    of_units(scene, tenant, &found.ops, work, measured, &doubt)
                } else {
                    Vec::new()
                };
                let reason = match (found.aligned, compared.paused) {
                    (true, false) => None,
                    (true, true) => Some(PAUSED),
                    (false, false) => Some(OTHER_AMOUNTS),
                    (false, true) => Some(OTHER_AMOUNTS_PAUSED),
                };
                let signatures = by_signature(tenant, Some((m.baseline, base)), pool);
                let row = Row {
                    tenant,
                    against: "baseline",
                    baseline: Some(m.baseline),
                    basis: "observed",
                    compared,
                    units,
                    reason,
                    aligned: found.aligned,
                };
                out.push((row, signatures));
            }
        }
        let refused = |r: Refused| Row {
            tenant,
            against: "counterfactual",
            baseline: None,
            basis: "inferred",
            compared: Compared::default(),
            units: Vec::new(),
            reason: Some(r.reason()),
            aligned: false,
        };
        let row = match replays.remove(&tenant.id) {
            Some(Ok(run)) => {
                let residency = tenant.ran.is_some();
                let (error, with_faster_host) = (run.error(), run.with_faster_host());
                let doubt = Doubt::Model(ModelDoubt { error, residency, with_faster_host });
                let clock = Clock::Anchored(run.anchored_launch_ns(), run.until_moments, run.unsure_ns);
                Row {
                    compared: compare(tenant, &run, &clock, switching, latencies, &doubt, pool),
                    units: of_units(scene, tenant, &run, work, None, &doubt),
                    reason: None,
                    ..refused(Refused::Nothing)
                }
            }
            Some(Err(why)) => refused(why),
            None => refused(Refused::Nothing),
        };
        out.push((row, within));
    }
    out
}

/// A run that is its own reference.
fn as_recorded(base: &Tenancy) -> Vec<Option<SoloOp>> {
    base.ops
        .iter()
        .map(|op| {
            Some(SoloOp {
                latency_ns: op.latency_ns(),
                ran_ns: op.ran_ns,
                parts: [0; 6],
                launch_ns: Some(op.launch_ns),
                held_up: op.held_up(),
            })
        })
        .collect()
}

/// One signature of a tenant, co-run against solo.
struct SignatureRow {
    tenant: u32,
    device: u32,
    baseline: Option<u32>,
    signature: u32,
    n: usize,
    n_solo: usize,
    excluded: usize,
    excluded_overhead: usize,
    medians: Option<(f64, f64)>,
    /// In co_run and solo, as `SPREAD` lists them.
    spread: Option<[[i64; 4]; 2]>,
    ratio: Option<(f64, Option<(f64, f64)>)>,
    effect: Option<f64>,
    total_ns: i64,
    reason: Option<String>,
}

/// Lengths of one side, and their logarithms by block of time.
#[derive(Debug)]
struct Side {
    lengths: Vec<f64>,
    logs: Vec<f64>,
    counts: Vec<f64>,
}

impl Side {
    fn new(blocks: usize, room: usize) -> Self {
        Self { lengths: Vec::with_capacity(room), logs: vec![0.0; blocks], counts: vec![0.0; blocks] }
    }

    fn add(&mut self, op: &Op, block: usize) {
        let length = op.ran_ns.max(1) as f64;
        self.lengths.push(length);
        if let (Some(log), Some(count)) = (self.logs.get_mut(block), self.counts.get_mut(block)) {
            *log += length.ln();
            *count += 1.0;
        }
    }

    fn mean_log(&self) -> f64 {
        self.logs.iter().sum::<f64>() / self.counts.iter().sum::<f64>()
    }

    fn filled(&self) -> usize {
        self.counts.iter().filter(|c| **c > 0.0).count()
    }

    fn draws(&self, draws: &Resamples) -> Vec<f64> {
        // Nothing drawn divides nothing by nothing: no value, and left out.
        draws.replicates(&[&self.logs, &self.counts], |s| s[0] / s[1])
    }
}

/// Kernels of one signature, co-run and solo.
struct Both {
    signature: u32,
    co_run: Side,
    solo: Side,
    excluded: usize,
    excluded_overhead: usize,
    total_ns: i64,
}

impl Both {
    fn leave_out(&mut self, why: Unusual) {
        self.excluded += 1;
        self.excluded_overhead += usize::from(why == Unusual::Overhead);
    }
}

fn by_signature(tenant: &Tenancy, base: Option<(u32, &Tenancy)>, pool: ThreadPool) -> Vec<SignatureRow> {
    let work = |op: &Op| op.kind != WorkKind::Copy;
    let blocks = Blocks::of(&tenant.ops, tenant.ops.len());
    let base_blocks = base.map(|(_, b)| Blocks::of(&b.ops, b.ops.len()));
    let usual_of = |of: &Tenancy, signature: u32| of.usual.get(signature as usize).copied().unwrap_or([0; 3]);
    let count_alone = base_blocks.as_ref().map_or(blocks.count, |b| b.count);
    let mut places: Vec<u32> = Vec::new();
    let mut sides: Vec<Both> = Vec::new();
    for op in tenant.ops.iter().filter(work) {
        let signature = op.signature as usize;
        if places.len() <= signature {
            places.resize(signature + 1, u32::MAX);
        }
        let Some(place) = places.get_mut(signature) else { continue };
        if *place == u32::MAX {
            *place = u32::try_from(sides.len()).unwrap_or(u32::MAX);
            let [lone, waited, contended] = usual_of(tenant, op.signature);
            let (there, here) = match base {
                Some((_, base)) => (usual_of(base, op.signature).iter().sum(), lone + waited + contended),
                None => (lone, contended),
            };
            let (co_run, solo) = (Side::new(blocks.count, here), Side::new(count_alone, there));
            sides.push(Both {
                signature: op.signature,
                co_run,
                solo,
                excluded: 0,
                excluded_overhead: 0,
                total_ns: 0,
            });
        }
        let Some(both) = sides.get_mut(*place as usize) else { continue };
        let block = blocks.at(op.launch_ns);
        if let Some(why) = op.unusual {
            both.leave_out(why);
        } else if base.is_some() || op.co_run == CoRun::Contended {
            both.co_run.add(&op, block);
            both.total_ns = both.total_ns.saturating_add(op.ran_ns);
        } else if op.co_run == CoRun::Solo {
            both.solo.add(&op, block);
        } else {
            both.excluded += 1;
        }
    }
    if let (Some((_, base)), Some(blocks)) = (base, &base_blocks) {
        for op in base.ops.iter().filter(work) {
            let place = places.get(op.signature as usize).copied().unwrap_or(u32::MAX);
            let Some(both) = sides.get_mut(place as usize) else { continue };
            if let Some(why) = op.unusual {
                both.leave_out(why);
            } else {
                both.solo.add(&op, blocks.at(op.launch_ns));
            }
        }
    }
    sides.sort_unstable_by_key(|both| both.signature);
    let draws = Resamples::new(blocks.count);
    let base_draws = base_blocks.as_ref().map(|b| Resamples::new(b.count));
    pool.each(sides, |both| signature_row(tenant, base.map(|b| b.0), both, &draws, base_draws.as_ref()))
}

fn signature_row(
    tenant: &Tenancy,
    baseline: Option<u32>,
    mut both: Both,
    draws: &Resamples,
    base_draws: Option<&Resamples>,
) -> SignatureRow {
    let (n, n_solo) = (both.co_run.lengths.len(), both.solo.lengths.len());
    let mut row = SignatureRow {
        tenant: tenant.id,
        device: tenant.device,
        baseline,
        signature: both.signature,
        n,
        n_solo,
        excluded: both.excluded,
        excluded_overhead: both.excluded_overhead,
        medians: None,
        spread: None,
        ratio: None,
        effect: None,
        total_ns: both.total_ns,
        reason: None,
    };
    if n < ENOUGH_KERNELS || n_solo < ENOUGH_KERNELS {
        row.reason = Some(format!("{n} shared and {n_solo} solo; {ENOUGH_KERNELS} of each are needed"));
        return row;
    }
    both.co_run.lengths.sort_unstable_by(f64::total_cmp);
    both.solo.lengths.sort_unstable_by(f64::total_cmp);
    let value = both.co_run.mean_log() - both.solo.mean_log();
    let filled = both.co_run.filled().min(both.solo.filled());
    let bounds = match base_draws {
        // Two recordings: drawn one by itself and the other by itself.
        Some(theirs) => {
            let (a, b) = (both.co_run.draws(draws), both.solo.draws(theirs));
            let half = b.len() / 2;
            let drawn = a.iter().zip(b.iter().cycle().skip(half)).map(|(a, b)| a - b).collect();
            draws.interval(value, drawn, filled)
        }
        None => {
            let columns = [
                both.co_run.logs.as_slice(),
                both.co_run.counts.as_slice(),
                both.solo.logs.as_slice(),
                both.solo.counts.as_slice(),
            ];
            let drawn = draws.replicates(&columns, |s| s[0] / s[1] - s[2] / s[3]);
            draws.interval(value, drawn, filled)
        }
    };
    row.ratio = Some((value.exp(), bounds.map(|(low, high)| (low.exp(), high.exp()))));
    let spread = |sorted: &[f64]| SPREAD.map(|part| quantile(sorted, part).unwrap_or(0.0) as i64);
    row.spread = Some([spread(&both.co_run.lengths), spread(&both.solo.lengths)]);
    row.medians = middle(&both.solo.lengths).zip(middle(&both.co_run.lengths));
    row.effect = cliffs_delta(&both.solo.lengths, &both.co_run.lengths);
    if bounds.is_none() {
        row.reason = Some(format!("they fall into {filled} stretches of time: too few for an interval"));
    }
    row
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get((sorted.len() / 2).checked_sub(1)?)?;
    Some(f64::midpoint(lower, upper))
}

fn signature_table(rows: &[SignatureRow], signatures: &Signatures) -> Result<RecordBatch> {
    let of = |r: &SignatureRow| signatures.list.get(r.signature as usize);
    let u32s = |pick: &dyn Fn(&operations::Signature) -> Option<u32>| {
        rows.iter().map(|r| of(r).and_then(pick)).collect::<UInt32Array>()
    };
    let bound = |r: &SignatureRow| r.ratio.and_then(|(_, bounds)| bounds);
    let spread = |side: usize, part: usize| {
        let pick = |r: &SignatureRow| r.spread.and_then(|s| s.get(side)?.get(part).copied());
        rows.iter().map(pick).collect::<Int64Array>()
    };
    Builder::new(&schema::SLOWDOWNS)
        .put("tenant_id", rows.iter().map(|r| Some(r.tenant)).collect::<UInt32Array>())
        .put("device_id", rows.iter().map(|r| Some(r.device)).collect::<UInt32Array>())
        .put_names(
            "against",
            rows.iter().map(|r| Some(if r.baseline.is_some() { "baseline" } else { "solo" })),
        )
        .put("baseline", rows.iter().map(|r| r.baseline).collect::<UInt32Array>())
        .put_names("name", rows.iter().map(|r| of(r).and_then(|s| s.name.as_deref())))
        .put("grid_x", u32s(&|s| s.grid[0]))
        .put("grid_y", u32s(&|s| s.grid[1]))
        .put("grid_z", u32s(&|s| s.grid[2]))
        .put("block_x", u32s(&|s| s.block[0]))
        .put("block_y", u32s(&|s| s.block[1]))
        .put("block_z", u32s(&|s| s.block[2]))
        .put("dynamic_shared_bytes", rows.iter().map(|r| of(r).and_then(|s| s.bytes)).collect::<Int64Array>())
        .put("n", rows.iter().map(|r| Some(r.n as u64)).collect::<UInt64Array>())
        .put("n_solo", rows.iter().map(|r| Some(r.n_solo as u64)).collect::<UInt64Array>())
        .put("excluded", rows.iter().map(|r| Some(r.excluded as u64)).collect::<UInt64Array>())
        .put(
            "excluded_overhead",
            rows.iter().map(|r| Some(r.excluded_overhead as u64)).collect::<UInt64Array>(),
        )
        .put("median_ns", rows.iter().map(|r| r.medians.map(|m| m.1.round() as i64)).collect::<Int64Array>())
        .put(
            "solo_median_ns",
            rows.iter().map(|r| r.medians.map(|m| m.0.round() as i64)).collect::<Int64Array>(),
        )
        .put("median_ratio", rows.iter().map(|r| r.medians.map(|m| m.1 / m.0)).collect::<Float64Array>())
        .put("ratio", rows.iter().map(|r| r.ratio.map(|x| x.0)).collect::<Float64Array>())
        .put("ratio_low", rows.iter().map(|r| bound(r).map(|b| b.0)).collect::<Float64Array>())
        .put("ratio_high", rows.iter().map(|r| bound(r).map(|b| b.1)).collect::<Float64Array>())
        .put("effect", rows.iter().map(|r| r.effect).collect::<Float64Array>())
        .put("total_ns", rows.iter().map(|r| Some(r.total_ns)).collect::<Int64Array>())
        .put("reason", rows.iter().map(|r| r.reason.as_deref()).collect::<StringArray>())
        .put_names("basis", rows.iter().map(|_| Some("observed")))
        .put("p5_ns", spread(0, 0))
        .put("p25_ns", spread(0, 1))
        .put("p75_ns", spread(0, 2))
        .put("p95_ns", spread(0, 3))
        .put("solo_p5_ns", spread(1, 0))
        .put("solo_p25_ns", spread(1, 1))
        .put("solo_p75_ns", spread(1, 2))
        .put("solo_p95_ns", spread(1, 3))
        .finish(rows.len())
}

fn figure_table(rows: &[Row<'_>]) -> Result<RecordBatch> {
    let all: Vec<(&Row<'_>, Option<&Figure>, Option<&UnitFigures>)> = rows
        .iter()
        .flat_map(|r| {
            let refused = r.compared.figures.is_empty().then_some((r, None, None));
            let kernels = r.compared.figures.iter().map(move |f| (r, Some(f), None));
            let units = r
                .units
                .iter()
                .flat_map(move |units| units.figures.iter().map(move |f| (r, Some(f), Some(units))));
            kernels.chain(units).chain(refused)
        })
        .collect();
    let f64s = |pick: &dyn Fn(&Figure) -> Option<f64>| {
        all.iter().map(|(_, f, _)| f.and_then(pick)).collect::<Float64Array>()
    };
    let i64s = |pick: &dyn Fn(&Figure) -> f64| {
        all.iter().map(|(_, f, _)| f.map(|f| pick(f).round() as i64)).collect::<Int64Array>()
    };
    let basis = |r: &Row<'_>, work: Option<&UnitFigures>| {
        if work.is_some_and(|units| units.modelled) {
            "inferred"
        } else {
            r.basis
        }
    };
    Builder::new(&schema::TENANT_SLOWDOWNS)
        .put("tenant_id", all.iter().map(|(r, ..)| Some(r.tenant.id)).collect::<UInt32Array>())
        .put("device_id", all.iter().map(|(r, ..)| Some(r.tenant.device)).collect::<UInt32Array>())
        .put_names("measure", all.iter().map(|(_, f, _)| Some(f.map_or("none", |f| f.measure))))
        .put_names("work", all.iter().map(|(.., work)| work.map(|units| units.name.as_str())))
        .put_names("against", all.iter().map(|(r, ..)| Some(r.against)))
        .put("baseline", all.iter().map(|(r, ..)| r.baseline).collect::<UInt32Array>())
        .put("value", f64s(&|f| Some(f.value)))
        .put("low", f64s(&|f| f.bounds.map(|b| b.0)))
        .put("high", f64s(&|f| f.bounds.map(|b| b.1).filter(|high| high.is_finite())))
        .put("n", all.iter().map(|(_, f, _)| Some(f.map_or(0, |f| f.n as u64))).collect::<UInt64Array>())
        .put(
            "excluded",
            all.iter()
                .map(|(r, _, work)| work.is_none().then_some(r.compared.left_out as u64))
                .collect::<UInt64Array>(),
        )
        .put("blocks", all.iter().map(|(r, ..)| Some(r.compared.blocks as u64)).collect::<UInt64Array>())
        .put("shared_ns", i64s(&|f| f.shared_ns))
        .put("solo_ns", i64s(&|f| f.solo_ns))
        .put("reason", all.iter().map(|(r, ..)| r.reason).collect::<StringArray>())
        .put_names("basis", all.iter().map(|(r, _, work)| Some(basis(r, *work))))
        .finish(all.len())
}

fn cause_table(rows: &[Row<'_>]) -> Result<RecordBatch> {
    let all: Vec<(&Row<'_>, &compare::Part, f64)> = rows
        .iter()
        .flat_map(|r| {
            let (shared, solo) =
                r.compared.parts.iter().fold((0.0, 0.0), |(a, b), p| (a + p.shared_ns, b + p.solo_ns));
            // Shares of next to nothing are noise.
            let added = if shared > (1.0 + LEAST_ADDED) * solo { shared - solo } else { 0.0 };
            r.compared.parts.iter().map(move |p| (r, p, added))
        })
        .collect();
    let ns = |pick: &dyn Fn(&compare::Part) -> f64| {
        all.iter().map(|(_, p, _)| Some(pick(p).round() as i64)).collect::<Int64Array>()
    };
    let share = |pick: &dyn Fn(&compare::Part) -> f64| {
        all.iter().map(|(_, p, added)| (*added > 0.0).then(|| pick(p) / added)).collect::<Float64Array>()
    };
    Builder::new(&schema::CAUSES)
        .put("tenant_id", all.iter().map(|(r, ..)| Some(r.tenant.id)).collect::<UInt32Array>())
        .put("device_id", all.iter().map(|(r, ..)| Some(r.tenant.device)).collect::<UInt32Array>())
        .put_names("against", all.iter().map(|(r, ..)| Some(r.against)))
        .put("baseline", all.iter().map(|(r, ..)| r.baseline).collect::<UInt32Array>())
        .put_names("cause", all.iter().map(|(_, p, _)| Some(p.name)))
        .put("shared_ns", ns(&|p| p.shared_ns))
        .put("solo_ns", ns(&|p| p.solo_ns))
        .put("added_ns", ns(&|p| p.shared_ns - p.solo_ns))
        .put("share", share(&|p| p.shared_ns - p.solo_ns))
        .put("root_share", share(&|p| p.root_ns))
        .put(
            "residency_known",
            all.iter().map(|(r, ..)| Some(r.tenant.ran.is_some())).collect::<BooleanArray>(),
        )
        .put_names("basis", all.iter().map(|(r, ..)| Some(r.basis)))
        .finish(all.len())
}

fn aggressor_table(rows: &[Row<'_>]) -> Result<RecordBatch> {
    let all: Vec<(&Row<'_>, &compare::AggressorShare)> =
        rows.iter().flat_map(|r| r.compared.aggressors.iter().map(move |b| (r, b))).collect();
    let bound = |b: &compare::AggressorShare| b.share.and_then(|(_, bounds)| bounds);
    Builder::new(&schema::PAIRWISE_INTERFERENCE)
        .put("device_id", all.iter().map(|(r, _)| Some(r.tenant.device)).collect::<UInt32Array>())
        .put("victim", all.iter().map(|(r, _)| Some(r.tenant.id)).collect::<UInt32Array>())
        .put("aggressor", all.iter().map(|(_, b)| Some(b.aggressor)).collect::<UInt32Array>())
        .put_names("against", all.iter().map(|(r, _)| Some(r.against)))
        .put("baseline", all.iter().map(|(r, _)| r.baseline).collect::<UInt32Array>())
        .put("exposure_ns", all.iter().map(|(_, b)| Some(b.exposure_ns as i64)).collect::<Int64Array>())
        .put("share", all.iter().map(|(_, b)| b.share.map(|s| s.0)).collect::<Float64Array>())
        .put("share_low", all.iter().map(|(_, b)| bound(b).map(|x| x.0)).collect::<Float64Array>())
        .put("share_high", all.iter().map(|(_, b)| bound(b).map(|x| x.1)).collect::<Float64Array>())
        .put("inseparable_from", all.iter().map(|(_, b)| b.with).collect::<UInt32Array>())
        .put("n", all.iter().map(|(_, b)| Some(b.n as u64)).collect::<UInt64Array>())
        .put_names("basis", all.iter().map(|(r, _)| Some(r.basis)))
        .finish(all.len())
}

fn state_table(all: &[ContextState]) -> Result<RecordBatch> {
    let ns = |pick: fn(&ContextState) -> i64| all.iter().map(|s| Some(pick(s))).collect::<Int64Array>();
    Builder::new(&schema::CONTEXT_STATE)
        .put("device_id", all.iter().map(|s| Some(s.device)).collect::<UInt32Array>())
        .put("save_ns", ns(|s| s.save))
        .put("restore_ns", ns(|s| s.restore))
        .put("low_ns", ns(|s| s.low))
        .put("high_ns", ns(|s| s.high))
        .put_names("found_from", all.iter().map(|s| Some(s.found_from)))
        .put_names("basis", all.iter().map(|_| Some("inferred")))
        .finish(all.len())
}

fn match_table(all: &[Match]) -> Result<RecordBatch> {
    Builder::new(&schema::BASELINE_MATCHES)
        .put("tenant_id", all.iter().map(|m| Some(m.tenant)).collect::<UInt32Array>())
        .put("device_id", all.iter().map(|m| Some(m.device)).collect::<UInt32Array>())
        .put("baseline", all.iter().map(|m| Some(m.baseline)).collect::<UInt32Array>())
        .put("baseline_tenant_id", all.iter().map(|m| Some(m.baseline_tenant)).collect::<UInt32Array>())
        .put("likeness", all.iter().map(|m| Some(m.likeness)).collect::<Float64Array>())
        .put("same_name", all.iter().map(|m| Some(m.same_name)).collect::<BooleanArray>())
        .put("named", all.iter().map(|m| Some(m.forced)).collect::<BooleanArray>())
        .put("used", all.iter().map(|m| Some(m.used)).collect::<BooleanArray>())
        .put("aligned", all.iter().map(|m| m.aligned).collect::<BooleanArray>())
        .finish(all.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::residency::observed::Slice;
    use crate::table::columns::at;
    use crate::test_tables::{named, residency};

    /// Pid, name, launch call from, to, kernel start, end, all in us.
    type K = (u32, &'static str, i64, i64, i64, i64);
    /// Pid, from, to: a call that waits.
    type Sync = (u32, i64, i64);

    /// Pid, from, to, function: a call that launches nothing.
    type Other = (u32, i64, i64, &'static str);

    fn session(kernels: &[K], syncs: &[Sync], held: &[(u32, u32, u32, u64, i64, i64)]) -> Tables {
        let syncs: Vec<Other> =
            syncs.iter().map(|s| (s.0, s.1, s.2, "cudaDeviceSynchronize_v3020")).collect();
        session_with_copies(kernels, &[], &syncs, held)
    }

    /// The same with copies from the host, in the streams of the kernels.
    fn session_with_copies(
        kernels: &[K],
        copies: &[K],
        others: &[Other],
        held: &[(u32, u32, u32, u64, i64, i64)],
    ) -> Tables {
        let table = |schema: &'static schema::Table, list: &[K], first: usize| {
            let mut rows: Vec<(usize, K)> = list.iter().copied().enumerate().collect();
            rows.sort_by_key(|r| r.1 .4);
            let u32s = |pick: &dyn Fn(&(usize, K)) -> u32| {
                rows.iter().map(|r| Some(pick(r))).collect::<UInt32Array>()
            };
            let builder = Builder::new(schema)
                .put("capture", u32s(&|_| 0))
                .put("pid", u32s(&|r| r.1 .0))
                .put("device_id", u32s(&|_| 0))
                .put("context_id", u32s(&|_| 1))
                .put("stream_id", u32s(&|_| 7))
                // 0 means that no call launched it.
                .put("correlation_id", u32s(&|r| (first + r.0) as u32 + 1))
                .put("start_ns", rows.iter().map(|r| Some(r.1 .4 * 1000)).collect::<Int64Array>())
                .put("end_ns", rows.iter().map(|r| Some(r.1 .5 * 1000)).collect::<Int64Array>());
            let names = rows.iter().map(|r| Some(r.1 .1));
            let builder = if schema.name == "kernels" {
                builder.put_names("name", names)
            } else {
                let kind = |r: &(usize, K)| if r.1 .1 == "on the device" { 8 } else { 1 };
                let kinds: arrow_array::UInt8Array = rows.iter().map(|r| Some(kind(r))).collect();
                let bytes = Int64Array::from(vec![1; rows.len()]);
                builder.put_names("operation", names).put("bytes", bytes).put("copy_kind", kinds)
            };
            builder.finish(rows.len()).unwrap()
        };
        let launches = kernels.iter().map(|k| (k, "cudaLaunchKernel_v7000"));
        let launches = launches.chain(copies.iter().map(|c| (c, "cudaMemcpyAsync_v3020")));
        let mut calls: Vec<(u32, i64, i64, &str, Option<u32>)> =
            launches.zip(1..).map(|((k, name), id)| (k.0, k.2, k.3, name, Some(id))).collect();
        calls.extend(others.iter().map(|o| (o.0, o.1, o.2, o.3, None)));
        calls.sort_by_key(|c| c.1);
        let calls_table = Builder::new(&schema::API_CALLS)
            .put("capture", calls.iter().map(|_| Some(0)).collect::<UInt32Array>())
            .put("pid", calls.iter().map(|c| Some(c.0)).collect::<UInt32Array>())
            .put("tid", calls.iter().map(|c| Some(c.0)).collect::<UInt32Array>())
            .put("start_ns", calls.iter().map(|c| Some(c.1 * 1000)).collect::<Int64Array>())
            .put("end_ns", calls.iter().map(|c| Some(c.2 * 1000)).collect::<Int64Array>())
            .put_names("name", calls.iter().map(|c| Some(c.3)))
            .put("correlation_id", calls.iter().map(|c| c.4).collect::<UInt32Array>())
            .finish(calls.len())
            .unwrap();
        let mut tables = Tables::from([
            ("kernels", table(&schema::KERNELS, kernels, 0)),
            ("memops", table(&schema::MEMOPS, copies, kernels.len())),
            ("api_calls", calls_table),
        ]);
        if !held.is_empty() {
            tables.insert("residency", residency(held));
        }
        named(tables).0
    }

    /// (measure, against) of the tenant with that pid: value, shared, solo.
    fn figure(
        made: &Tables,
        session: &Tables,
        pid: u32,
        measure: &str,
        against: &str,
    ) -> Option<(f64, i64, i64)> {
        let tenants = Columns::new(&schema::TENANTS, &session["tenants"]);
        let row = (0..tenants.rows()).find(|r| tenants.u32("pid").unwrap().value(*r) == pid).unwrap();
        let id = tenants.u32("tenant_id").unwrap().value(row);
        let c = Columns::new(&schema::TENANT_SLOWDOWNS, &made["tenant_slowdowns"]);
        (0..c.rows())
            .find(|r| {
                c.u32("tenant_id").unwrap().value(*r) == id
                    && c.names("measure").unwrap().get(*r) == Some(measure)
                    && c.names("against").unwrap().get(*r) == Some(against)
            })
            .map(|r| {
                let ns = |name: &str| at(c.i64(name).unwrap(), r).unwrap_or(0);
                (at(c.f64("value").unwrap(), r).unwrap_or(f64::NAN), ns("shared_ns"), ns("solo_ns"))
            })
    }

    /// 7 launches, waits, thinks 5 us, launches again; 8 is resident inside 7's first kernel.
    /// With records that say that contexts run as long as they are resident.
    fn running_throughout(mut tables: Tables) -> Tables {
        let mut slices = Slice::read(&tables["residency"]).unwrap();
        for slice in &mut slices {
            slice.running_start_ns = Some(slice.start_ns);
            slice.running_end_ns = Some(slice.end_ns);
        }
        tables.insert("residency", Slice::write(&slices).unwrap());
        tables
    }

    fn turns() -> Tables {
        // 7 host      |0=5|sync.........115|  |120=125|sync....185|
        // 7 kernel        |10============110|     |130==180|
        // 7 resident  |-5======40|    |90==================200|       works 30 + 20, then 50
        // 8 resident           |40==90|
        session(
            &[(7, "a", 0, 5, 10, 110), (8, "b", 30, 35, 45, 85), (7, "a", 120, 125, 130, 180)],
            &[(7, 5, 115), (7, 125, 185)],
            &[(0, 0, 7, 1, -5, 40), (0, 0, 8, 2, 40, 90), (0, 0, 7, 1, 90, 200)],
        )
    }

    /// Upper times lower end of the elapsed slowdown of 7 over its square: 1 where both are as far from it.
    fn lopsided(session: &Tables) -> f64 {
        let made = slowdowns(session, &[], None, 0, &Unwatched).unwrap();
        let c = Columns::new(&schema::TENANT_SLOWDOWNS, &made["tenant_slowdowns"]);
        let (value, _, solo) = figure(&made, session, 7, "elapsed", "counterfactual").unwrap();
        let is = |r: &usize| {
            c.names("measure").unwrap().get(*r) == Some("elapsed")
                && c.names("against").unwrap().get(*r) == Some("counterfactual")
                && at(c.i64("solo_ns").unwrap(), *r) == Some(solo)
        };
        let row = (0..c.rows()).find(is).unwrap();
        let end = |name: &str| at(c.f64(name).unwrap(), row).unwrap();
        end("low") * end("high") / (value * value)
    }

    #[test]
    fn upper_bounds_allow_for_a_host_that_is_faster_solo() {
        // 60 times: 7 launches (5 us), its kernel starts 5 us later, takes 60 us of which 8 is resident for 20, its host
        // waits for the end and thinks for 100 us: solo 150 us, and 12 less with a host that thinks for 88.
        let n = 60;
        let mut kernels = Vec::new();
        let (mut waits, mut held) = (Vec::new(), Vec::new());
        for t in (0..n).map(|i| 1_000 + i * 170) {
            kernels.extend([(7, "a", t, t + 5, t + 10, t + 70), (8, "b", t + 20, t + 22, t + 31, t + 49)]);
            waits.push((7, t + 5, t + 70));
            held.extend([
                (0, 0, 7, 1, t - 95, t + 30),
                (0, 0, 8, 2, t + 30, t + 50),
                (0, 0, 7, 1, t + 50, t + 70),
            ]);
        }
        let waiting = running_throughout(session(&kernels, &waits, &held));
        assert!((lopsided(&waiting) - 150.0 / 138.0).abs() < 0.005, "{}", lopsided(&waiting));
        // A host that waits for nothing and launches as fast as it can is ahead of its kernels all the time.
        let mut kernels = Vec::new();
        let mut held = Vec::new();
        for (i, t) in (0..n).map(|i| (i, 1_000 + i * 170)) {
            kernels.extend([
                (7, "a", 800 + i * 6, 805 + i * 6, t, t + 165),
                (8, "b", t + 20, t + 22, t + 31, t + 49),
            ]);
            held.extend([
                (0, 0, 7, 1, t - 1, t + 30),
                (0, 0, 8, 2, t + 30, t + 50),
                (0, 0, 7, 1, t + 50, t + 169),
            ]);
        }
        let ahead = running_throughout(session(&kernels, &[], &held));
        assert!((lopsided(&ahead) - 1.0).abs() < 0.005, "{}", lopsided(&ahead));
    }

    #[test]
    fn a_copy_that_is_done_when_its_call_returns_was_waited_for() {
        // As `turns`, but the host waits in the call of a copy to pageable memory, which ends 3 us before that call. All
        // work starts 5 us after it could.
        let session = running_throughout(session_with_copies(
            &[(7, "a", 0, 5, 10, 110), (8, "b", 30, 35, 45, 85), (7, "a", 124, 129, 134, 184)],
            &[(7, "copy", 5, 119, 115, 116)],
            &[],
            &[(0, 0, 7, 1, -5, 40), (0, 0, 8, 2, 40, 90), (0, 0, 7, 1, 90, 200)],
        ));
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        // Again: 10..60, copied 65..66, the call returns at 69, the host launches at 74: 84..134.
        let (_, shared, solo) = figure(&made, &session, 7, "elapsed", "counterfactual").unwrap();
        assert_eq!((shared, solo), (184_000, 134_000));
    }

    #[test]
    fn a_host_that_the_driver_calls_back_waited_for_the_work_before() {
        // 7 host      |0=5|5=6 host function|                      |320=325|
        // 7 kernel        |10================================310|     |330==380|
        // 7 resident  |-5======100|            |250========================400|
        // 8 resident              |100======250|
        let tables = |function: &'static str| {
            running_throughout(session_with_copies(
                &[(7, "a", 0, 5, 10, 310), (8, "b", 90, 95, 105, 245), (7, "a", 320, 325, 330, 380)],
                &[],
                &[(7, 5, 6, function)],
                &[(0, 0, 7, 1, -5, 100), (0, 0, 8, 2, 100, 250), (0, 0, 7, 1, 250, 400)],
            ))
        };
        let elapsed = |tables: &Tables| {
            let made = slowdowns(tables, &[], None, 0, &Unwatched).unwrap();
            let (_, shared, solo) = figure(&made, tables, 7, "elapsed", "counterfactual").unwrap();
            (shared, solo)
        };
        // Again: 10..160, the host is called back then, launches 10 us later: 180..230.
        assert_eq!(elapsed(&tables("cuLaunchHostFunc")), (380_000, 230_000));
        // Without that nobody knows that it waited.
        assert_eq!(elapsed(&tables("cuEventRecord")), (380_000, 380_000));
    }

    #[test]
    fn a_kernel_behind_a_copy_waits_for_the_copies_of_others_that_it_waits_for() {
        // 7's copy is ready at 5 and waits for 8's, its kernel for that copy; both start 5 us after they could.
        let session = session_with_copies(
            &[(7, "a", 5, 10, 115, 165)],
            &[(7, "copy", 0, 5, 100, 110), (8, "copy", 1, 2, 5, 95)],
            &[],
            &[],
        );
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        let c = Columns::new(&schema::CAUSES, &made["causes"]);
        let cause = |row: usize| c.names("cause").unwrap().get(row);
        let row = |name: &str| (0..c.rows()).find(|row| cause(*row) == Some(name)).unwrap();
        let (own, others) = (row("queue_same_tenant"), row("queue_other_tenant"));
        // Again: copied 10..20, the kernel 25..75. It waited 90 us longer in its own stream, all of it for 8.
        assert_eq!(c.i64("added_ns").unwrap().value(own), 90_000);
        let root_share = |row: usize| at(c.f64("root_share").unwrap(), row).unwrap();
        assert!((root_share(others) - 1.0).abs() < 1e-9 && root_share(own).abs() < 1e-9);
    }

    #[test]
    fn a_copy_on_the_device_waits_for_its_time_slice() {
        // Of 7's copy 95 us until its context is back, and of its kernel the time behind that copy.
        let session = running_throughout(session_with_copies(
            &[(7, "a", 5, 10, 115, 165), (8, "b", 0, 1, 6, 98)],
            &[(7, "on the device", 0, 5, 105, 110)],
            &[],
            &[(0, 0, 7, 1, -5, 2), (0, 0, 8, 2, 2, 100), (0, 0, 7, 1, 100, 200)],
        ));
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        let c = Columns::new(&schema::CAUSES, &made["causes"]);
        let root_share = |name: &str| {
            let row = (0..c.rows()).find(|row| c.names("cause").unwrap().get(*row) == Some(name)).unwrap();
            at(c.f64("root_share").unwrap(), row).unwrap()
        };
        assert!((root_share("not_resident") - 1.0).abs() < 1e-9);
        assert!(root_share("queue_same_tenant").abs() < 1e-9);
    }

    #[test]
    fn residency_in_which_hardly_any_kernel_ran_is_none_of_its_tenant() {
        // Records of two MPS clients name 8 for the context of both: 7 was not switched out all the time.
        let session = session(
            &[(7, "a", 0, 5, 10, 60), (7, "a", 65, 70, 75, 125), (8, "b", 290, 295, 300, 310)],
            &[],
            &[(0, 0, 7, 1, -20, 5), (0, 0, 8, 2, 5, 400)],
        );
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        let (_, shared, _) = figure(&made, &session, 7, "resident", "counterfactual").unwrap();
        assert_eq!(shared, 100_000);
        let c = Columns::new(&schema::CAUSES, &made["causes"]);
        let not_resident = (0..c.rows()).find(|r| c.names("cause").unwrap().get(*r) == Some("not_resident"));
        assert_eq!(c.i64("shared_ns").unwrap().value(not_resident.unwrap()), 0);
        assert!(!c.bool("residency_known").unwrap().value(not_resident.unwrap()));
    }

    #[test]
    fn a_run_replayed_leaves_out_the_residency_of_others() {
        let session = running_throughout(turns());
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        // Again: 10..60, the host wakes 5 us later, thinks 5 us, launches at 70: 80..130.
        let (value, shared, solo) = figure(&made, &session, 7, "elapsed", "counterfactual").unwrap();
        assert_eq!((shared, solo), (180_000, 130_000));
        assert!((value - 180.0 / 130.0).abs() < 1e-9);
        // From launch to end: 110 and 60, solo 60 and 60.
        assert_eq!(figure(&made, &session, 7, "latency", "counterfactual").unwrap().1, 170_000);
        assert_eq!(figure(&made, &session, 7, "latency", "counterfactual").unwrap().2, 120_000);
        assert!((figure(&made, &session, 7, "resident", "counterfactual").unwrap().0 - 1.0).abs() < 1e-9);
        // What was added is 50 us of not being resident; the switch took no time in these records.
        let c = Columns::new(&schema::CAUSES, &made["causes"]);
        let added: Vec<(Option<&str>, i64)> = (0..6)
            .map(|r| (c.names("cause").unwrap().get(r), c.i64("added_ns").unwrap().value(r)))
            .filter(|(_, ns)| *ns != 0)
            .collect();
        assert_eq!(added, [(Some("not_resident"), 50_000)]);
    }

    #[test]
    fn being_switched_out_inside_a_kernel_costs_what_it_usually_does() {
        // 20 kernels of 7 that are switched out once each, for 2 ms; nothing shows what that takes.
        let (mut rows, mut held): (Vec<K>, Vec<_>) = (Vec::new(), Vec::new());
        for n in 0..20_i64 {
            let t = n * 11_000;
            rows.push((7, "a", t, t + 5, t + 10, t + 10_000));
            rows.push((8, "b", t + 100, t + 105, t + 3_300, t + 4_900));
            held.push((0, 0, 7, 1, t, t + 3_000));
            held.push((0, 0, 8, 2, t + 3_000, t + 5_000));
            held.push((0, 0, 7, 1, t + 5_000, t + 11_000));
        }
        let inexact = session(&rows, &[], &held);
        let made = slowdowns(&inexact, &[], None, 0, &Unwatched).unwrap();
        let resident = figure(&made, &inexact, 7, "resident", "counterfactual").unwrap();
        assert_eq!(resident.1, resident.2);
        // It was resident for 8 ms of each 10: the cut took 140 us of that, and the host saved it all.
        let latency = figure(&made, &inexact, 7, "latency", "counterfactual").unwrap();
        assert_eq!(latency.1 - latency.2, 20 * (2_000_000 + 140_000));
        let c = Columns::new(&schema::CAUSES, &made["causes"]);
        let switch = (0..c.rows()).find(|r| c.names("cause").unwrap().get(*r) == Some("switch")).unwrap();
        assert_eq!(c.i64("added_ns").unwrap().value(switch), 20 * 140_000);
        // Where records say from when to when it ran, nothing of that was the switch.
        let exact = running_throughout(session(&rows, &[], &held));
        let made = slowdowns(&exact, &[], None, 0, &Unwatched).unwrap();
        let resident = figure(&made, &exact, 7, "resident", "counterfactual").unwrap();
        assert_eq!(resident.1, resident.2);
    }

    #[test]
    fn bringing_a_context_back_is_the_others_doing_without_records_of_residency() {
        // 7 launches every 2 ms, and its kernels of 100 us start 3 us after the call. From the 21st on 8 ran in between,
        // 700 us before, and they start 250 us after the call; before the 31st 8 did not run, and it starts as late.
        let mut rows: Vec<K> = Vec::new();
        for n in 0..40_i64 {
            let (called, wait) = (n * 2000 + 2, if n < 20 { 3 } else { 250 });
            rows.push((7, "a", n * 2000, called, called + wait, called + wait + 100));
            if n >= 20 && n != 30 {
                rows.push((8, "b", called - 1000, called - 998, called - 900, called - 700));
            }
        }
        let switched = session(&rows, &[], &[]);
        let made = slowdowns(&switched, &[], None, 0, &Unwatched).unwrap();
        let (_, shared, solo) = figure(&made, &switched, 7, "latency", "counterfactual").unwrap();
        assert_eq!(shared, (20 * 105 + 20 * 352) * 1000);
        assert_eq!(solo, (39 * 105 + 352) * 1000, "what it waits for after its own work is its own");
        // Side by side it starts at once whoever ran last; of what it waits for now and then nobody is the cause.
        for row in rows.iter_mut().filter(|row| row.0 == 7 && row.2 / 2000 % 8 != 7) {
            (row.4, row.5) = (row.3 + 3, row.3 + 103);
        }
        let beside = session(&rows, &[], &[]);
        let made = slowdowns(&beside, &[], None, 0, &Unwatched).unwrap();
        let (value, shared, solo) = figure(&made, &beside, 7, "latency", "counterfactual").unwrap();
        assert_eq!((value, shared), (1.0, solo));
    }

    #[test]
    fn a_baseline_is_found_by_its_kernels_and_laid_beside() {
        // 30 kernels of 20 us one after the other, 8 beside them; solo 10 us each. Everything takes twice as long.
        let mut rows: Vec<K> =
            (0..30).map(|n| (7, "a", n * 30, n * 30 + 2, n * 30 + 5, n * 30 + 25)).collect();
        rows.extend((0..30).map(|n| (8, "b", n * 30, n * 30 + 2, n * 30 + 5, n * 30 + 25)));
        let shared = session(&rows, &[], &[]);
        let rows: Vec<K> = (0..30).map(|n| (3, "a", n * 15, n * 15 + 2, n * 15 + 2, n * 15 + 12)).collect();
        let solo = Baseline { tables: session(&rows, &[], &[]), tenant: None };
        let made = slowdowns(&shared, &[solo], None, 0, &Unwatched).unwrap();
        let m = Columns::new(&schema::BASELINE_MATCHES, &made["baseline_matches"]);
        let used: Vec<(f64, bool)> = (0..m.rows())
            .map(|r| (m.f64("likeness").unwrap().value(r), m.bool("used").unwrap().value(r)))
            .collect();
        assert_eq!(used.iter().filter(|u| u.1).count(), 1);
        assert!(used.contains(&(1.0, true)) && used.contains(&(0.0, false)));
        // 29 * 30 + 25 against 29 * 15 + 12; 25 against 12; 20 against 10.
        let (_, a, b) = figure(&made, &shared, 7, "elapsed", "baseline").unwrap();
        assert_eq!((a, b), (895_000, 447_000));
        assert!((figure(&made, &shared, 7, "latency", "baseline").unwrap().0 - 25.0 / 12.0).abs() < 1e-9);
        assert!((figure(&made, &shared, 7, "resident", "baseline").unwrap().0 - 2.0).abs() < 1e-9);
        // 8 was never solo, nobody was switched out, and there is no recording of it.
        assert_eq!(figure(&made, &shared, 8, "elapsed", "counterfactual"), None);
        assert!(figure(&made, &shared, 8, "none", "counterfactual").is_some());
    }

    #[test]
    fn the_wait_of_a_program_for_its_start_is_no_slowdown() {
        // Two kernels to warm up, then a wait of 50 ms solo and of 10 ms shared, then one each 30 us and each 60 us.
        let run = |pid: u32, wait: i64, step: i64| {
            let work = (0..40).map(move |n| wait + n * step);
            [0, 30]
                .into_iter()
                .chain(work)
                .map(move |at| (pid, "a", at, at + 2, at + 5, at + 25))
                .collect::<Vec<K>>()
        };
        let shared = session(&run(7, 10_000, 60), &[], &[]);
        let solo = Baseline { tables: session(&run(3, 50_000, 30), &[], &[]), tenant: None };
        let made = slowdowns(&shared, &[solo], None, 0, &Unwatched).unwrap();
        let (value, ..) = figure(&made, &shared, 7, "elapsed", "baseline").unwrap();
        assert!((value - 2_365.0 / 1_195.0).abs() < 1e-9, "{value}");
        // A program that waits like that again and again does so in any case.
        let often: Vec<K> = (0..10)
            .flat_map(|n| {
                run(3, 50_000, 30).into_iter().map(move |k| {
                    (k.0, k.1, k.2 + n * 60_000, k.3 + n * 60_000, k.4 + n * 60_000, k.5 + n * 60_000)
                })
            })
            .collect();
        let solo = Baseline { tables: session(&often, &[], &[]), tenant: None };
        let made = slowdowns(&session(&often, &[], &[]), &[solo], None, 0, &Unwatched).unwrap();
        let (value, ..) = figure(&made, &session(&often, &[], &[]), 3, "elapsed", "baseline").unwrap();
        assert!((value - 1.0).abs() < 1e-9, "{value}");
    }

    #[test]
    fn what_a_window_cuts_is_no_measure() {
        // From 1000 to 2000 us, of a run whose kernels take 20 us, 25 from launch to end, beside nobody. The first began
        // before, the second was launched before, the last ends after.
        let mut rows: Vec<K> = vec![(7, "a", 1000, 1000, 1000, 1008), (7, "a", 1000, 1001, 1010, 1030)];
        rows.extend((0..30).map(|n| {
            let launch = 1030 + n * 30;
            (7, "a", launch, launch + 2, launch + 5, launch + 25)
        }));
        rows.push((7, "a", 1980, 1982, 1985, 2000));
        let mut part = session(&rows, &[], &[]);
        // A step per kernel; those that cross the edges are cut there: the first holds a whole kernel.
        let mut steps: Vec<(i64, i64)> = (0..30).map(|n| (1030 + n * 30, 1055 + n * 30)).collect();
        steps.splice(0..1, [(1000, 1056)]);
        steps.push((1980, 2000));
        let nvtx = Builder::new(&schema::NVTX)
            .put("capture", steps.iter().map(|_| Some(0)).collect::<UInt32Array>())
            .put("pid", steps.iter().map(|_| Some(7)).collect::<UInt32Array>())
            .put("tid", steps.iter().map(|_| Some(7)).collect::<UInt32Array>())
            .put("start_ns", steps.iter().map(|s| Some(s.0 * 1000)).collect::<Int64Array>())
            .put("end_ns", steps.iter().map(|s| Some(s.1 * 1000)).collect::<Int64Array>())
            .put_names("kind", steps.iter().map(|_| Some("push-pop")))
            .put_names("text", steps.iter().map(|_| Some("step")))
            .finish(steps.len())
            .unwrap();
        part.insert("nvtx", nvtx);
        let rows: Vec<K> = (0..40).map(|n| (3, "a", n * 30, n * 30 + 2, n * 30 + 5, n * 30 + 25)).collect();
        let solo = [Baseline { tables: session(&rows, &[], &[]), tenant: None }];
        let window = Some((1_000_000, 2_000_000));
        let made = slowdowns(&part, &solo, window, 0, &Unwatched).unwrap();
        let c = Columns::new(&schema::TENANT_SLOWDOWNS, &made["tenant_slowdowns"]);
        let of = |measure: &str, work: Option<&str>| {
            let row = (0..c.rows()).find(|r| {
                c.names("measure").unwrap().get(*r) == Some(measure)
                    && c.names("work").unwrap().get(*r) == work
                    && c.names("against").unwrap().get(*r) == Some("baseline")
            });
            let row = row.unwrap();
            let ns = |name: &str| c.i64(name).unwrap().value(row);
            (
                c.u64("n").unwrap().value(row),
                ns("shared_ns"),
                ns("solo_ns"),
                at(c.u64("excluded").unwrap(), row),
            )
        };
        assert_eq!(of("resident", None), (31, 31 * 20_000, 31 * 20_000, Some(3)));
        assert_eq!(of("latency", None), (30, 30 * 25_000, 30 * 25_000, Some(3)));
        assert_eq!(of("latency", Some("step")), (29, 29 * 25_000, 29 * 25_000, None));
        let c = Columns::new(&schema::SLOWDOWNS, &made["slowdowns"]);
        let row = (0..c.rows()).find(|r| c.names("against").unwrap().get(*r) == Some("baseline")).unwrap();
        // Two that were cut; of the recording solo its first.
        let counts = ["n", "n_solo", "excluded"].map(|name| c.u64(name).unwrap().value(row));
        assert_eq!(counts, [31, 39, 3]);
        // A recording of another length, 295 us for 200 at work: parts count in what was done in the window's time.
        let rows: Vec<K> = (0..10).map(|n| (3, "a", n * 30, n * 30 + 2, n * 30 + 5, n * 30 + 25)).collect();
        let short = [Baseline { tables: session(&rows, &[], &[]), tenant: None }];
        let made = slowdowns(&part, &short, window, 0, &Unwatched).unwrap();
        let (_, shared, expected) = figure(&made, &part, 7, "elapsed", "baseline").unwrap();
        assert_eq!((shared, expected), (1_000_000, (31 * 20 + 8 + 15) * 1475));
        // Of a whole capture every kernel counts.
        let (_, shared, solo) =
            figure(&slowdowns(&part, &solo, None, 0, &Unwatched).unwrap(), &part, 7, "resident", "baseline")
                .unwrap();
        assert_eq!((shared, solo), (31 * 20_000 + 8_000 + 15_000, 33 * 20_000));
    }

    #[test]
    fn equal_kernels_alone_and_contended() {
        // 7: 40 kernels of 100 us; 8 works beside every second ten of them, and those take 150 us.
        let mut rows: Vec<K> = Vec::new();
        for n in 0..40_i64 {
            let (from, beside) = (n * 400, (n / 10) % 2 == 1);
            rows.push((7, "a", from, from + 2, from + 5, from + if beside { 155 } else { 105 }));
            if beside {
                rows.push((8, "b", from, from + 2, from + 6, from + 160));
            }
        }
        let session = session(&rows, &[], &[]);
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        let c = Columns::new(&schema::SLOWDOWNS, &made["slowdowns"]);
        let row = (0..c.rows()).find(|r| c.names("name").unwrap().get(*r) == Some("a")).unwrap();
        // The first of all is left out.
        assert_eq!(
            (
                c.u64("n").unwrap().value(row),
                c.u64("n_solo").unwrap().value(row),
                c.u64("excluded").unwrap().value(row)
            ),
            (20, 19, 1)
        );
        assert!((c.f64("ratio").unwrap().value(row) - 1.5).abs() < 1e-9);
        assert!((c.f64("median_ratio").unwrap().value(row) - 1.5).abs() < 1e-9);
        assert!((c.f64("effect").unwrap().value(row) - 1.0).abs() < 1e-9);
        // Nothing varies but the co_run: the interval is the value.
        assert!((c.f64("ratio_low").unwrap().value(row) - 1.5).abs() < 1e-6);
        let other = (0..c.rows()).find(|r| c.names("name").unwrap().get(*r) == Some("b")).unwrap();
        assert!(c.text("reason").unwrap().value(other).contains("0 solo"));
        // 7 solo: 20 of its kernels are 50 us shorter, 20 x 155 + 20 x 105 against 40 x 105.
        let (value, ..) = figure(&made, &session, 7, "latency", "counterfactual").unwrap();
        assert!((value - 5200.0 / 4200.0).abs() < 1e-6, "{value}");
        let found = Columns::new(&schema::PAIRWISE_INTERFERENCE, &made["pairwise_interference"]);
        let share = found.f64("share").unwrap().value(0);
        assert!((share - 1.0).abs() < 1e-6, "{share}");
    }

    #[test]
    fn a_launch_call_that_sleeps_with_an_empty_queue_is_the_hosts_own_time() {
        // 7's third launch call takes 5 ms, with nothing of its own outstanding, while 8 works: a limiter, which sleeps
        // solo as well.
        let session = session(
            &[
                (7, "a", 0, 5, 10, 60),
                (7, "a", 60, 65, 70, 95),
                (7, "a", 100, 5100, 5105, 5155),
                (8, "b", 200, 205, 210, 4900),
            ],
            &[(7, 5, 62 - 1), (7, 65, 96), (7, 5100, 5156)],
            &[],
        );
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        let (_, shared, solo) = figure(&made, &session, 7, "elapsed", "counterfactual").unwrap();
        assert_eq!((shared, solo), (5_155_000, 5_155_000));
    }

    #[test]
    fn a_launch_call_that_finds_the_queue_full_waits_for_the_device() {
        // Kernels of 20 us, 1 us after one another; 8 is resident for 1 ms after the first. 512 calls of 1 us fill the
        // queue, the next two return 1 us after a kernel ends, the second one 2 us after the first.
        let mut rows: Vec<K> = Vec::new();
        for n in 0..514_i64 {
            let start = if n == 0 { 10 } else { 1010 + 21 * n };
            let called = match n {
                512 => (1024, 1052),
                513 => (1054, 1073),
                _ => (2 * n, 2 * n + 1),
            };
            rows.push((7, "a", called.0, called.1, start, start + 20));
        }
        let end = 1010 + 21 * 513 + 20;
        rows.push((8, "b", 36, 37, 40, 1020));
        let session = running_throughout(session(
            &rows,
            &[(7, 1074, end + 1)],
            &[(0, 0, 7, 1, -5, 30), (0, 0, 8, 2, 30, 1030), (0, 0, 7, 1, 1030, end + 5)],
        ));
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        let (_, shared, solo) = figure(&made, &session, 7, "latency", "counterfactual").unwrap();
        // Solo kernel n ends at 30 + 21 n. When the 513th launch is called, the queue has had room for long: it takes 1 us,
        // and the last one is called 2 us later, at 1027.
        let solo_us: i64 = (0..513).map(|n| 30 + 21 * n - 2 * n).sum::<i64>() + 30 + 21 * 513 - 1027;
        let shared_us: i64 = 30 + (1..513).map(|n| 1030 + 21 * n - 2 * n).sum::<i64>() + end - 1054;
        assert_eq!((shared, solo), (shared_us * 1000, solo_us * 1000));
    }

    /// Units of 7 from (us) to (us), given by a caller: of no thread.
    fn with_units(mut tables: Tables, units: &[(i64, i64)]) -> Tables {
        let nvtx = Builder::new(&schema::NVTX)
            .put("capture", units.iter().map(|_| Some(0)).collect::<UInt32Array>())
            .put("pid", units.iter().map(|_| Some(7)).collect::<UInt32Array>())
            .put("start_ns", units.iter().map(|u| Some(u.0 * 1000)).collect::<Int64Array>())
            .put("end_ns", units.iter().map(|u| Some(u.1 * 1000)).collect::<Int64Array>())
            .put_names("kind", units.iter().map(|_| Some("given")))
            .put_names("text", units.iter().map(|_| Some("request")))
            .finish(units.len())
            .unwrap();
        tables.insert("nvtx", nvtx);
        tables
    }

    /// The latency of the units of 7: shared and solo (ns), and the basis.
    fn of_requests(made: &Tables) -> Option<(i64, i64, String)> {
        let c = Columns::new(&schema::TENANT_SLOWDOWNS, &made["tenant_slowdowns"]);
        let row = (0..c.rows()).find(|r| {
            c.names("work").unwrap().get(*r) == Some("request")
                && c.names("measure").unwrap().get(*r) == Some("latency")
        })?;
        let ns = |name: &str| at(c.i64(name).unwrap(), row).unwrap();
        let basis = c.names("basis").unwrap().get(row).unwrap_or_default().to_owned();
        Some((ns("shared_ns"), ns("solo_ns"), basis))
    }

    /// Requests of 7 that arrive at these times (us): each is a kernel of 100 us, which starts 10 us after its launch, and
    /// a wait until 2 us after its end. From 50 us after its launch on 8 keeps each from running for `delay`.
    fn requests(arrivals: &[i64], delay: i64) -> Tables {
        let (mut rows, mut syncs, mut units): (Vec<K>, Vec<Sync>, Vec<(i64, i64)>) = Default::default();
        let mut held = vec![];
        let (mut free, mut resident) = (0, -100);
        for arrival in arrivals {
            let from = free.max(*arrival);
            let end = from + 110 + delay;
            rows.push((7, "a", from, from + 4, from + 10, end));
            syncs.push((7, from + 5, end + 2));
            if delay > 0 {
                rows.push((8, "b", from + 45, from + 48, from + 50, from + 50 + delay));
                held.push((0, 0, 7, 1, resident, from + 50));
                held.push((0, 0, 8, 2, from + 50, from + 50 + delay));
                resident = from + 50 + delay;
            }
            free = end + 2;
            units.push((*arrival, free));
        }
        held.push((0, 0, 7, 1, resident, free + 10));
        let session = session(&rows, &syncs, &held);
        with_units(if delay > 0 { running_throughout(session) } else { session }, &units)
    }

    #[test]
    fn a_request_that_waits_for_the_one_before_it_waits_for_less_solo() {
        // Served for 112 us solo and 212 us shared, begun at the later of arrival and end of the one before:
        // arrives   0   100   150    1000   1300   1350
        // shared  212   324   486     212    212    374   (ends 212, 424, 636, 1212, 1512, 1724)
        // solo    112   124   186     112    112    174   (ends 112, 224, 336, 1112, 1412, 1524)
        let arrivals = [0, 100, 150, 1000, 1300, 1350];
        let (shared, solo) =
            ((212 + 324 + 486 + 212 + 212 + 374) * 1000, (112 + 124 + 186 + 112 + 112 + 174) * 1000);
        let session = requests(&arrivals, 100);
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        assert_eq!(of_requests(&made), Some((shared, solo, "inferred".to_owned())));
        // The service times of a baseline without marks are measured, the waits there are not.
        let mut alone = requests(&arrivals, 0);
        alone.remove("nvtx");
        let baseline = Baseline { tables: alone, tenant: None };
        let made = slowdowns(&session, &[baseline], None, 0, &Unwatched).unwrap();
        assert_eq!(of_requests(&made), Some((shared, solo, "inferred".to_owned())));
        // With marks of the same requests they are.
        let baseline = Baseline { tables: requests(&arrivals, 0), tenant: None };
        let made = slowdowns(&session, &[baseline], None, 0, &Unwatched).unwrap();
        assert_eq!(of_requests(&made), Some((shared, solo, "observed".to_owned())));
    }

    #[test]
    fn requests_of_clients_that_wait_for_answers_have_no_arrivals_of_their_own() {
        // Two clients, each of which sends a request 10 us after its answer: solo they would have come sooner.
        let mut arrivals = vec![0, 1];
        for n in 1..9 {
            arrivals.push(212 * n + 10);
        }
        let made = slowdowns(&requests(&arrivals, 100), &[], None, 0, &Unwatched).unwrap();
        assert_eq!(of_requests(&made), None);
    }

    #[test]
    fn what_is_launched_at_the_end_of_a_unit_is_of_the_next_one() {
        // Back to back: each 212 us shared, 112 us solo, and none has waited.
        let arrivals: Vec<i64> = (0..6).map(|n| 212 * n).collect();
        let mut alone = requests(&arrivals.iter().map(|at| at * 3).collect::<Vec<_>>(), 0);
        alone.remove("nvtx");
        let baseline = Baseline { tables: alone, tenant: None };
        let made = slowdowns(&requests(&arrivals, 100), &[baseline], None, 0, &Unwatched).unwrap();
        assert_eq!(of_requests(&made), Some((6 * 212_000, 6 * 112_000, "observed".to_owned())));
    }

    #[test]
    fn what_the_profiler_held_up_is_left_out_and_counted() {
        // As above with more room; a buffer is flushed in the 16th launch, whose call takes 300 us instead of 2.
        let mut rows: Vec<K> = Vec::new();
        for n in 0..40_i64 {
            let (from, beside) = (n * 800, (n / 10) % 2 == 1);
            let called = from + if n == 15 { 300 } else { 2 };
            rows.push((7, "a", from, called, called + 3, called + if beside { 153 } else { 103 }));
            if beside {
                rows.push((8, "b", called - 2, called, called + 4, called + 158));
            }
        }
        let mut session = session(&rows, &[], &[]);
        let overhead = |kind: &'static str| {
            Builder::new(&schema::PROFILER_OVERHEAD)
                .put("capture", UInt32Array::from(vec![0]))
                .put("pid", UInt32Array::from(vec![7]))
                .put("tid", UInt32Array::from(vec![7]))
                .put("start_ns", Int64Array::from(vec![12_001_000]))
                .put("end_ns", Int64Array::from(vec![12_299_000]))
                .put_names("kind", [Some(kind)])
                .finish(1)
                .unwrap()
        };
        let counts = |made: &Tables| {
            let c = Columns::new(&schema::SLOWDOWNS, &made["slowdowns"]);
            let row = (0..c.rows()).find(|r| c.names("name").unwrap().get(*r) == Some("a")).unwrap();
            ["n", "n_solo", "excluded", "excluded_overhead"].map(|name| c.u64(name).unwrap().value(row))
        };
        session.insert("profiler_overhead", overhead("Buffer flush (Profiler)"));
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        assert_eq!(counts(&made), [19, 19, 2, 1]);
        // Launch calls of 2 us and latencies of 155 and 105 us: 19 and 20 of them, solo 39 of 105.
        let (_, shared, solo) = figure(&made, &session, 7, "latency", "counterfactual").unwrap();
        assert_eq!((shared, solo), ((19 * 155 + 20 * 105) * 1000, 39 * 105 * 1000));
        let c = Columns::new(&schema::CAUSES, &made["causes"]);
        let launch = (0..c.rows()).find(|r| c.names("cause").unwrap().get(*r) == Some("launch")).unwrap();
        assert_eq!(c.i64("shared_ns").unwrap().value(launch), 39 * 2000);
        let c = Columns::new(&schema::TENANT_SLOWDOWNS, &made["tenant_slowdowns"]);
        let row = (0..c.rows()).find(|r| c.names("measure").unwrap().get(*r) == Some("latency")).unwrap();
        assert_eq!((c.u64("n").unwrap().value(row), c.u64("excluded").unwrap().value(row)), (39, 1));
        // A program that launches faster than the GPU works is the program's own doing.
        session.insert("profiler_overhead", overhead("Command buffer full (CUDA)"));
        assert_eq!(counts(&slowdowns(&session, &[], None, 0, &Unwatched).unwrap()), [20, 19, 1, 0]);
    }

    #[test]
    fn the_resident_tenant_is_the_aggressor() {
        // 30 rounds of 7, 8, 9, in which 7's kernel waits 30 us for 8 and 10 us for 9.
        let mut rows: Vec<K> = Vec::new();
        let mut held = Vec::new();
        for n in 0..30_i64 {
            let t = n * 100;
            held.extend([
                (0, 0, 7, 1, t, t + 20),
                (0, 0, 8, 2, t + 20, t + 50),
                (0, 0, 9, 3, t + 50, t + 60),
            ]);
            held.push((0, 0, 7, 1, t + 60, t + 100));
            rows.push((7, "a", t, t + 1, t + 5, t + 70));
            rows.push((8, "b", t + 2, t + 3, t + 22, t + 48));
            rows.push((9, "c", t + 2, t + 3, t + 52, t + 58));
        }
        let session = running_throughout(session(&rows, &[], &held));
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        let tenants = Columns::new(&schema::TENANTS, &session["tenants"]);
        let id = |pid: u32| {
            let row = (0..tenants.rows()).find(|r| tenants.u32("pid").unwrap().value(*r) == pid).unwrap();
            tenants.u32("tenant_id").unwrap().value(row)
        };
        let c = Columns::new(&schema::PAIRWISE_INTERFERENCE, &made["pairwise_interference"]);
        let share = |aggressor: u32| {
            let row = (0..c.rows())
                .find(|r| {
                    c.u32("victim").unwrap().value(*r) == id(7)
                        && c.u32("aggressor").unwrap().value(*r) == id(aggressor)
                })
                .unwrap();
            c.f64("share").unwrap().value(row)
        };
        // 8's kernels run for 26 us of each round and 9's for 6, and 40 are lost.
        assert!((share(8) - 26.0 / 40.0).abs() < 0.01, "{}", share(8));
        assert!((share(9) - 6.0 / 40.0).abs() < 0.01, "{}", share(9));
    }

    /// The rows of every table but those given, turned round.
    fn turned(tables: &Tables, but: &[&str]) -> Tables {
        let turn = |(name, batch): (&&'static str, &RecordBatch)| {
            let order: UInt32Array = (0..batch.num_rows() as u32).rev().map(Some).collect();
            let columns = batch.columns().iter().map(|c| arrow_select::take::take(c, &order, None).unwrap());
            let turned = RecordBatch::try_new(batch.schema(), columns.collect()).unwrap();
            (*name, if but.contains(name) { batch.clone() } else { turned })
        };
        tables.iter().map(turn).collect()
    }

    #[test]
    fn neither_threads_nor_the_order_of_rows_change_anything() {
        let mut rows: Vec<K> = Vec::new();
        for n in 0..300_i64 {
            let (from, long) = (n * 400, 50 + n * 7919 % 60);
            rows.push((7, ["a", "c", "d"][(n % 3) as usize], from, from + 2, from + 5, from + long));
            if (n / 10) % 2 == 1 {
                rows.push((8, "b", from + 1, from + 2, from + 6, from + 160));
                rows.push((9, "b", from + 1, from + 3, from + 7, from + 120));
            }
        }
        let session = session(&rows, &[(7, 1000, 1100)], &[]);
        let one = slowdowns(&session, &[], None, 1, &Unwatched).unwrap();
        assert!(one["slowdowns"].num_rows() == 5 && one["pairwise_interference"].num_rows() > 0);
        for threads in [2, 5] {
            assert_eq!(slowdowns(&session, &[], None, threads, &Unwatched).unwrap(), one);
        }
        // Ids of tenants are the order of their table.
        let turned = turned(&session, &["tenants"]);
        assert_eq!(slowdowns(&turned, &[], None, 0, &Unwatched).unwrap(), one);
        let baseline = |tables: &Tables| [Baseline { tables: tables.clone(), tenant: None }];
        assert_eq!(
            slowdowns(&session, &baseline(&turned), None, 3, &Unwatched).unwrap(),
            slowdowns(&turned, &baseline(&session), None, 1, &Unwatched).unwrap()
        );
    }

    #[test]
    fn long_kernels_are_cut_more_often_which_costs_nothing() {
        // 7 and 8 are time-sliced, 200 us. Kernels of one signature take 20 to 300 us at work, one after the other, so that
        // long ones are cut more often; cuts cost nothing, and nobody waits for anything else.
        let mut rows: Vec<K> = Vec::new();
        let mut held = Vec::new();
        let mut worked = 0_i64;
        // The time at which so much work is done: turns of 7 begin at 0, 400, 800...
        let at_work = |worked: i64| worked / 200 * 400 + worked % 200;
        for n in 0..400_i64 {
            let length = 20 + n * n * 7919 % 281;
            let (from, to) = (at_work(worked), at_work(worked + length - 1) + 1);
            rows.push((7, "a", from - 3, from - 1, from, to));
            worked += length;
        }
        for n in 0..=worked / 200 {
            held.push((0, 0, 7, 1, n * 400, n * 400 + 200));
            held.push((0, 0, 8, 2, n * 400 + 200, n * 400 + 400));
        }
        let session = session(&rows, &[], &held);
        let mut gathered = Gathered::read(&session, ThreadPool::new(1), &Unwatched).unwrap();
        let all = Signatures::of([&mut gathered.found]);
        let scene = Scene::of(gathered, &all, ThreadPool::new(1));
        let tenant = scene.tenants.iter().find(|t| t.ops.len() == 400).unwrap();
        // What its kernels were at work is what they are known to take: no saving of state was invented.
        let ran: i64 = tenant.ops.iter().map(|op| op.ran_ns).sum();
        assert!((ran as f64 / (1e3 * worked as f64) - 1.0).abs() < 0.01, "{ran} of {worked} us");
    }

    #[test]
    fn kernels_that_had_waited_stand_for_those_solo_where_there_are_none() {
        // No residency. 7's kernels are launched while 8's `b` runs. Ten run beside it and take 150 us, ten begin after it
        // and take 100 us.
        let mut rows: Vec<K> = Vec::new();
        for n in 0..20_i64 {
            let at = n * 1000;
            let beside = n % 2 == 0;
            rows.push((8, "b", at, at + 5, at + 10, if beside { at + 400 } else { at + 100 }));
            rows.push((7, "a", at + 20, at + 25, at + 110, at + if beside { 260 } else { 210 }));
        }
        let session = session(&rows, &[], &[]);
        let made = slowdowns(&session, &[], None, 0, &Unwatched).unwrap();
        let (_, shared_ns, solo_ns) = figure(&made, &session, 7, "resident", "counterfactual").unwrap();
        assert_eq!((shared_ns, solo_ns), (2_500_000, 2_000_000));
    }

    #[test]
    fn nothing_equal_tables_and_cancellation() {
        let empty = slowdowns(&Tables::new(), &[], None, 0, &Unwatched).unwrap();
        assert_eq!(empty.len(), 6);
        assert!(empty.values().all(|batch| batch.num_rows() == 0));
        let session = turns();
        assert_eq!(
            slowdowns(&session, &[], None, 0, &Unwatched).unwrap(),
            slowdowns(&session, &[], None, 0, &Unwatched).unwrap()
        );
        assert!(matches!(
            slowdowns(&session, &[], None, 0, &StopAfter::new(1)),
            Err(crate::Error::Cancelled)
        ));
    }
}
