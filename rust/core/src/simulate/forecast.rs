//! Forecast what the recorded programs would take under another sharing configuration.
//!
//! `host_program.rs` says what each tenant's host launches, when, and what it waits for. This runs all of them on a
//! device that is shared in a given way (a [`SharingConfig`]): hosts think and wait in real time, operations of a
//! stream follow each other, blocks are placed where SMs have capacity, and the engine is time-sliced.
//!
//! ```text
//!   SharingConfig         instances (SMs of their own)        groups (contexts that are resident together)
//!   exclusive             one                                 one, one tenant in it
//!   MPS                   one                                 one, all tenants; a cap limits a tenant's SMs
//!   time-slicing          one                                 one per tenant
//!   MIG                   one per tenant or more              as above, inside each instance
//! ```
//!
//! The rules: blocks of equal length; SMs with warps, registers, shared memory and block slots; one queue for each
//! tenant, as MPS clients have. The kernel that has waited longest goes first. Heads of other queues get what it leaves
//! where somebody is capped, or where the recording shows that kernels overtake ([`ClientOrder`]). Memory bandwidth and
//! the throughput of SMs are shared where it is known what kernels take of them solo.
//! A program that had not come to its end when the recording did is begun again until every other one has run once: what
//! it takes is of its first pass, and nobody is left alone by the end of a recording. One that had ended before ends.
//! Not modelled: stream priorities and programmatic dependent launch. [`SharingConfig::contention`] is a stated allowance
//! for what is not known of caches, bandwidth and SMs: while kernels of two tenants have blocks on one instance at once,
//! its SMs run slower by that part. A group that is not resident stands still; its host does not.
//!
//! Cost follows operations, not blocks: equal waves of one kernel that no other kernel can disturb are one event.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use arrow_array::{
    BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};

use crate::base::error::{Error, Result};
use crate::base::statistics::student;
use crate::base::watch::Watch;
use crate::simulate::device::{simulate, Took, Waits};
use crate::simulate::host_program::{Host, Op, Pauses, Place, Program, Programs, Recording, Step};
use crate::simulate::sharing_config::{ClientOrder, Recorded, SharingConfig, MOST_COMPLEMENTARY};
use crate::table::builder::Builder;
use crate::table::events::Tables;
use crate::table::schema;

/// Replays one device of a session in each config: the `forecast` table.
///
/// Where a config has copies of more than `most_operations` operations, windows of the recording stand for all of it, if
/// the programs do the same all the time: see [`Recording::windows`].
///
/// `fitted` is what an earlier call on the same recording gave: fitting takes as long as replaying several configs.
///
/// # Errors
/// [`Error::Argument`] for a config that makes no sense, [`Error::Schema`], [`Error::Cancelled`].
#[allow(clippy::too_many_arguments)] // Python names them
pub fn run(
    session: &Tables,
    device: u32,
    recorded: &Recorded,
    configs: &[SharingConfig],
    most_operations: usize,
    fitted: Option<Arc<Fit>>,
    threads: usize,
    watch: &dyn Watch,
) -> Result<(RecordBatch, Arc<Fit>)> {
    configs.iter().try_for_each(SharingConfig::check)?;
    let recording = Recording::read(session, device, recorded, watch)?;
    let mut whole = recording.programs(watch)?;
    let (linger_ns, client_order) = (whole.linger_ns, whole.client_order);
    let as_shown = |config: &SharingConfig| SharingConfig {
        linger_ns: config.linger_ns.or(linger_ns),
        client_order: config.client_order.or(client_order),
        ..config.clone()
    };
    let configs: Vec<SharingConfig> = configs.iter().map(as_shown).collect();
    let as_recorded = recorded.config.as_ref().map(as_shown);
    let mut windows = sampled(&recording, &whole, &configs, most_operations);
    let replayed = if windows.is_empty() { std::slice::from_mut(&mut whole) } else { &mut windows[..] };
    let fitted = match (&as_recorded, fitted) {
        (None, _) => Arc::default(),
        (Some(_), Some(fitted)) if fitted.is_of(replayed) => {
            fitted.apply(replayed);
            fitted
        }
        (Some(config), _) => Arc::new(Fit::of(replayed, config, watch)?),
    };
    let contention = fitted.contention;
    let replayed = if windows.is_empty() { std::slice::from_ref(&whole) } else { &windows[..] };
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let jobs: Vec<(&SharingConfig, &Programs)> =
        configs.iter().flat_map(|config| replayed.iter().map(move |part| (config, part))).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Vec<Took>)>> {
        let mut mine = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((config, part)) = jobs.get(at) else { return Ok(mine) };
            mine.push((at, simulate(&part.programs, &part.limits, config, &mut |_, _, _| {}, watch)?));
        }
    };
    let mut took: Vec<(usize, Vec<Took>)> = std::thread::scope(|scope| {
        let hands: Vec<_> = (1..threads.min(jobs.len())).map(|_| scope.spawn(work)).collect();
        let mut all = work()?;
        for hand in hands {
            all.extend(hand.join().map_err(|_| Error::Cancelled)??);
        }
        Ok::<_, Error>(all)
    })?;
    took.sort_by_key(|(at, _)| *at);
    let took: Vec<Vec<Took>> = took.into_iter().map(|(_, took)| took).collect();
    Ok((table(device, &whole, &windows, &configs, &took, contention)?, fitted))
}

/// What operations take alone, so that the replay agrees with what was recorded.
#[derive(Debug, Default)]
pub struct Fit {
    /// By part that is replayed, by program.
    work_ns: Vec<Vec<Vec<i64>>>,
    /// How long each part of each program took as recorded.
    recorded_ns: Vec<i64>,
    contention: Option<f64>,
}

impl Fit {
    fn of(replayed: &mut [Programs], config: &SharingConfig, watch: &dyn Watch) -> Result<Self> {
        let mut contention = Vec::new();
        for programs in replayed.iter_mut() {
            contention.extend(fit(programs, config, watch)?);
        }
        Ok(Self {
            work_ns: replayed.iter().map(work_of).collect(),
            recorded_ns: recorded_of(replayed).collect(),
            contention: (!contention.is_empty())
                .then(|| contention.iter().sum::<f64>() / contention.len() as f64),
        })
    }

    /// Whether it is of the same parts: how many windows there are depends on the configs.
    fn is_of(&self, replayed: &[Programs]) -> bool {
        let operations = |p: &Programs| p.programs.iter().map(|p| p.ops.len()).collect::<Vec<_>>();
        let known = self.work_ns.iter().map(|part| part.iter().map(Vec::len).collect::<Vec<_>>());
        known.eq(replayed.iter().map(operations))
            && self.recorded_ns.iter().copied().eq(recorded_of(replayed))
    }

    fn apply(&self, replayed: &mut [Programs]) {
        for (programs, work_ns) in replayed.iter_mut().zip(&self.work_ns) {
            set_work(programs, work_ns);
        }
    }
}

/// Windows of the programs, where the configs replay more operations than that; empty: all is replayed.
fn sampled(
    recording: &Recording<'_>,
    whole: &Programs,
    configs: &[SharingConfig],
    most_operations: usize,
) -> Vec<Programs> {
    let count = |config: &SharingConfig| {
        let of = |tenant: u32| whole.programs.iter().find(|p| p.tenant == tenant).map_or(0, |p| p.ops.len());
        config.assignments.iter().map(|one| of(one.tenant)).sum::<usize>()
    };
    let most = configs.iter().map(count).max().unwrap_or(0);
    if most <= most_operations || recording.is_part() {
        return Vec::new();
    }
    let part = most_operations as f64 * REPLAYED / most as f64;
    recording.windows(whole, part).unwrap_or_default()
}

/// Of the operations that are replayed at most, windows hold so many where there are more: each is replayed twice.
const REPLAYED: f64 = 0.25;

/// What a copy takes by its windows, as a part of what was recorded of those: and so of all.
///
/// Returns the half width of the 95 % interval too, relative: by how much the windows differ.
fn scaled(whole: &Program, windows: &[(&Program, &Took)]) -> Option<(Took, f64)> {
    let (_, first) = windows.first()?;
    let scale = |all_ns: i64, recorded: &dyn Fn(&Program) -> i64, ran: &dyn Fn(&Took) -> i64| {
        let sum = |of: &dyn Fn(&(&Program, &Took)) -> i64| windows.iter().map(|w| of(w) as f64).sum::<f64>();
        (all_ns as f64 * sum(&|w| ran(w.1)) / sum(&|w| recorded(w.0)).max(1.0)).round() as i64
    };
    let latency = |p: &Program| p.latency_ns.unwrap_or_default();
    let unit = |p: &Program| p.unit_ns.unwrap_or_default();
    let ran = |took: &Took| took.unit_ns.unwrap_or_default();
    let (sum, p50, p99) = latency(whole);
    let units = windows.iter().all(|(p, took)| p.unit_ns.is_some() && took.unit_ns.is_some());
    let unit_ns = whole.unit_ns.filter(|_| units).map(|(p50, p99)| {
        (scale(p50, &|p| unit(p).0, &|t| ran(t).0), scale(p99, &|p| unit(p).1, &|t| ran(t).1))
    });
    let spans = windows.iter().map(|(p, took)| (p.recorded_ns.saturating_add(p.outside_ns), took.elapsed_ns));
    let (recorded, replayed) =
        spans.clone().fold((0.0, 0.0), |(all, ran), (p, took)| (all + p as f64, ran + took as f64));
    let ratio = replayed / f64::max(recorded, 1.0);
    let squares: f64 = spans.map(|(p, took)| (took as f64 - ratio * p as f64).powi(2)).sum();
    let n = windows.len() as f64;
    let spread = (squares / (n - 1.0).max(1.0) / n).sqrt() * n / f64::max(replayed, 1.0);
    let took = Took {
        elapsed_ns: (whole.recorded_ns as f64 * ratio).round() as i64,
        latency_ns: scale(sum, &|p| latency(p).0, &|t| t.latency_ns),
        latency_p50_ns: scale(p50, &|p| latency(p).1, &|t| t.latency_p50_ns),
        latency_p99_ns: scale(p99, &|p| latency(p).2, &|t| t.latency_p99_ns),
        waits: Waits {
            queue_other_tenant_ns: scale(sum, &|p| latency(p).0, &|t| t.waits.queue_other_tenant_ns),
            not_resident_ns: scale(sum, &|p| latency(p).0, &|t| t.waits.not_resident_ns),
        },
        unit_ns,
        operations: windows.iter().map(|w| w.1.operations).sum(),
        ..**first
    };
    Some((took, student_95(windows.len()) * spread))
}

/// Half width of a 95 % interval of a mean of so many values, in standard errors (Student's t). For few the expansion of
/// [`student`] is too far off.
fn student_95(n: usize) -> f64 {
    const FEW: [f64; 3] = [12.71, 4.30, 3.18];
    let freedom = n.saturating_sub(1).max(1);
    FEW.get(freedom - 1).copied().unwrap_or_else(|| student(freedom as f64))
}

/// A row of the table.
struct Row<'a> {
    tenant: u32,
    copy: u32,
    config: &'a str,
    elapsed_ns: i64,
    /// Sum, median, 99th percentile.
    latency_ns: Option<(i64, i64, i64)>,
    waits: Option<Waits>,
    unit_ns: Option<(i64, i64)>,
    operations: u64,
    goes_on: bool,
    unseen_waits: bool,
    sampling_error: Option<f64>,
    client_order: Option<ClientOrder>,
    basis: &'static str,
    detail: String,
}

/// Of every config what its copies took, of one window after the other.
fn table(
    device: u32,
    made: &Programs,
    windows: &[Programs],
    configs: &[SharingConfig],
    took: &[Vec<Took>],
    contention: Option<f64>,
) -> Result<RecordBatch> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for p in &made.programs {
        rows.push(Row {
            tenant: p.tenant,
            copy: 0,
            config: "recorded",
            elapsed_ns: p.recorded_ns,
            latency_ns: p.latency_ns,
            waits: None,
            unit_ns: p.unit_ns,
            operations: p.ops.len() as u64,
            goes_on: p.goes_on,
            unseen_waits: p.unseen_waits,
            sampling_error: None,
            client_order: made.client_order,
            basis: "observed",
            detail: detail(p, made),
        });
    }
    for (config, took) in configs.iter().zip(took.chunks(windows.len().max(1))) {
        let Some((first, _)) = took.split_first() else { continue };
        let clients = config.uncapped_clients();
        for (at, t) in first.iter().enumerate() {
            let Some(p) = made.programs.iter().find(|p| p.tenant == t.tenant) else { continue };
            let parts = windows.iter().zip(took).filter_map(|(programs, took)| {
                Some((programs.programs.iter().find(|p| p.tenant == t.tenant)?, took.get(at)?))
            });
            let (t, sampling_error) = match scaled(p, &parts.collect::<Vec<_>>()) {
                Some((scaled, error)) => (scaled, Some(error)),
                None => (*t, None),
            };
            let latencies = (t.latency_ns, t.latency_p50_ns, t.latency_p99_ns);
            rows.push(Row {
                tenant: t.tenant,
                copy: t.copy,
                config: &config.name,
                elapsed_ns: t.elapsed_ns,
                latency_ns: p.from_calls.then_some(latencies),
                waits: p.from_calls.then_some(t.waits),
                unit_ns: t.unit_ns,
                operations: t.operations,
                goes_on: p.goes_on,
                unseen_waits: p.unseen_waits,
                sampling_error,
                client_order: clients.get(&t.tenant).map(|_| config.client_order.unwrap_or_default()),
                basis: "modelled",
                detail: detail(p, made),
            });
        }
    }
    let n = rows.len();
    let measured = |r: &Row<'_>| contention.filter(|_| r.basis == "observed");
    let column = |of: &dyn Fn(&Row<'_>) -> Option<i64>| rows.iter().map(of).collect::<Int64Array>();
    Builder::new(&schema::FORECAST)
        .put("contention", rows.iter().map(measured).collect::<Float64Array>())
        .put("device_id", UInt32Array::from(vec![device; n]))
        .put("tenant_id", rows.iter().map(|r| Some(r.tenant)).collect::<UInt32Array>())
        .put("copy", rows.iter().map(|r| Some(r.copy)).collect::<UInt32Array>())
        .put_names("sharing_config", rows.iter().map(|r| Some(r.config)))
        .put("elapsed_ns", column(&|r| Some(r.elapsed_ns)))
        .put("latency_ns", column(&|r| r.latency_ns.map(|l| l.0)))
        .put("latency_p50_ns", column(&|r| r.latency_ns.map(|l| l.1)))
        .put("latency_p99_ns", column(&|r| r.latency_ns.map(|l| l.2)))
        .put("queue_other_tenant_ns", column(&|r| r.waits.map(|w| w.queue_other_tenant_ns)))
        .put("not_resident_ns", column(&|r| r.waits.map(|w| w.not_resident_ns)))
        .put("unit_p50_ns", column(&|r| r.unit_ns.map(|u| u.0)))
        .put("unit_p99_ns", column(&|r| r.unit_ns.map(|u| u.1)))
        .put("operations", rows.iter().map(|r| Some(r.operations)).collect::<UInt64Array>())
        .put("sampling_error", rows.iter().map(|r| r.sampling_error).collect::<Float64Array>())
        .put("goes_on", rows.iter().map(|r| Some(r.goes_on)).collect::<BooleanArray>())
        .put("unseen_waits", rows.iter().map(|r| Some(r.unseen_waits)).collect::<BooleanArray>())
        .put_names("client_order", rows.iter().map(|r| r.client_order.map(ClientOrder::name)))
        .put_names("basis", rows.iter().map(|r| Some(r.basis)))
        .put("detail", rows.iter().map(|r| Some(r.detail.as_str())).collect::<StringArray>())
        .finish(n)
}

/// How often the fit is improved.
const FIT_ROUNDS: usize = 6;
/// How much operations vary meanwhile.
const FIT_JITTER: f64 = 0.03;
/// Part of the time of kernels in the co-run for which their time alone must be known, to say what contention there was.
const KNOWN_PART: f64 = 0.1;
/// How much block times of one kernel vary where equal ones do not reproduce what was recorded.
const FIT_IMBALANCE: f64 = 0.35;
/// Error of the elapsed time below which a fit is good enough.
const FITS: f64 = 0.05;

/// When operations are launched while what they take alone is fitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Launched {
    /// When they could start as recorded. Hosts that launch when what they wait for has ended fall into another step than
    /// recorded while kernels take too long or too short, and other kernels meet: none is fitted to meetings that there
    /// were not.
    AsRecorded,
    /// By their hosts. At recorded times a kernel that takes too long runs beside the next one of its own tenant, which
    /// it never did: where contention is large, one round corrects too much, the next too little, and no fit is found.
    ByHosts,
}

/// What operations take alone, by program, so that the replay agrees with what was recorded.
struct Fitted {
    work_ns: Vec<Vec<i64>>,
    contention: Option<f64>,
    /// Largest relative error of the elapsed time of a tenant.
    error: f64,
}

/// Makes programs and what was recorded agree in the config in which they were recorded.
///
/// Of kernels that never had the device for themselves nothing says what they take alone: they ran beside others, with
/// fewer SMs for their blocks. Replayed in the recorded config they must take as long as recorded; their time alone is
/// changed until they do. Kernels of which the time alone is known must too: by how much they take longer than the
/// replay says is the contention that it does not know. Returns that, where there are such kernels.
///
/// Blocks that all take equally long leave the device to one kernel after the other; those of uneven ones mix. What of
/// both reproduces the recorded run better is taken. The same goes for when operations are launched meanwhile.
fn fit(made: &mut Programs, config: &SharingConfig, watch: &dyn Watch) -> Result<Option<f64>> {
    let copy = |p: &Program, class: u32| matches!(p.places.get(class as usize), Some(Place::Copy(_)));
    let co_run = |p: &Program| p.ops.iter().any(|op| op.co_run && !copy(p, op.class));
    if !made.programs.iter().any(co_run) {
        return Ok(None);
    }
    // Time-sliced, nobody is beside another tenant: what a tenant's own streams do to each other is no contention with one.
    let beside = config.assignments.iter().enumerate().any(|(n, a)| {
        config
            .assignments
            .iter()
            .skip(n.saturating_add(1))
            .any(|b| (a.instance, a.group) == (b.instance, b.group))
    });
    let recorded = work_of(made);
    let mut best: Option<Fitted> = None;
    let launched: &[Launched] = if beside && made.programs.iter().all(|p| p.from_calls) {
        &[Launched::AsRecorded, Launched::ByHosts]
    } else {
        &[Launched::ByHosts]
    };
    let ways = launched.iter().flat_map(|launched| [0.0, FIT_IMBALANCE].map(|uneven| (*launched, uneven)));
    for (launched, block_imbalance) in ways {
        if best.as_ref().is_some_and(|found| !beside || found.error < FITS) {
            break;
        }
        set_work(made, &recorded);
        let uneven = SharingConfig { block_imbalance, ..config.clone() };
        let found = fit_with(made, uneven, beside, launched, watch)?;
        if best.as_ref().is_none_or(|before| found.error < before.error) {
            best = Some(found);
        }
    }
    let Some(best) = best else { return Ok(None) };
    set_work(made, &best.work_ns);
    Ok(best.contention)
}

fn recorded_of(replayed: &[Programs]) -> impl Iterator<Item = i64> + '_ {
    replayed.iter().flat_map(|part| part.programs.iter().map(|p| p.recorded_ns))
}

fn work_of(made: &Programs) -> Vec<Vec<i64>> {
    made.programs.iter().map(|p| p.ops.iter().map(|op| op.work_ns).collect()).collect()
}

fn set_work(made: &mut Programs, work_ns: &[Vec<i64>]) {
    for (p, all) in made.programs.iter_mut().zip(work_ns) {
        p.ops.iter_mut().zip(all).for_each(|(op, ns)| op.work_ns = *ns);
    }
}

fn fit_with(
    made: &mut Programs,
    mut config: SharingConfig,
    beside: bool,
    launched: Launched,
    watch: &dyn Watch,
) -> Result<Fitted> {
    let (mut measured, mut error) = (None, f64::INFINITY);
    let mut at_recorded_times = (launched == Launched::AsRecorded)
        .then(|| made.programs.iter().map(ready_as_recorded).collect::<Vec<_>>());
    // What the recorded programs fell into step with by chance is no property of their kernels.
    config.jitter = FIT_JITTER;
    for round in 0..FIT_ROUNDS {
        config.seed = round as u64;
        let mut sums: Vec<(f64, f64)> = vec![(0.0, 0.0); made.shapes.len()];
        let programs = at_recorded_times.as_ref().unwrap_or(&made.programs);
        let mut see = |program: usize, op: u32, ns: i64| {
            let Some(op) = programs.get(program).and_then(|p| p.ops.get(op as usize)) else { return };
            let slot = sums.get_mut(op.shape as usize);
            if let (Some(slot), true) = (slot, op.co_run) {
                *slot = (slot.0 + op.seen_ns as f64, slot.1 + ns as f64);
            }
        };
        let took = simulate(programs, &made.limits, &config, &mut see, watch)?;
        error = elapsed_error(programs, &took);
        let (mut recorded, mut replayed, mut worst) = (0.0, 0.0, 0.0_f64);
        let whole: f64 = sums.iter().map(|(seen, _)| seen).sum();
        let mut factors = vec![1.0; sums.len()];
        for ((shape, (seen, ran)), factor) in made.shapes.iter().zip(&sums).zip(factors.iter_mut()) {
            if *ran <= 0.0 || *seen <= 0.0 {
                continue;
            }
            if shape.known {
                (recorded, replayed) = (recorded + seen, replayed + ran);
            } else {
                *factor = (seen / ran).clamp(0.5, 2.0);
                worst = worst.max((*factor - 1.0_f64).abs());
            }
        }
        for p in made.programs.iter_mut().chain(at_recorded_times.iter_mut().flatten()) {
            for op in p.ops.iter_mut().filter(|op| op.co_run) {
                let factor = factors.get(op.shape as usize).copied().unwrap_or(1.0);
                op.work_ns = ((op.work_ns as f64 * factor) as i64).max(1);
            }
        }
        if replayed > 0.0 && recorded >= KNOWN_PART * whole && beside {
            let more: f64 = recorded / replayed;
            worst = worst.max((more - 1.0).abs());
            config.contention = ((1.0 + config.contention) * more - 1.0).clamp(MOST_COMPLEMENTARY, 3.0);
            measured = Some(config.contention);
        }
        if worst < 0.01 {
            break;
        }
    }
    if beside {
        // The last round replayed the times before its own correction.
        let took = simulate(&made.programs, &made.limits, &config, &mut |_, _, _| {}, watch)?;
        error = elapsed_error(&made.programs, &took);
    }
    Ok(Fitted { work_ns: work_of(made), contention: measured, error })
}

/// Largest relative error of the elapsed time of a tenant.
fn elapsed_error(programs: &[Program], took: &[Took]) -> f64 {
    took.iter().fold(0.0, |worst: f64, t| {
        let seen_ns = programs.iter().find(|p| p.tenant == t.tenant).map_or(0, |p| p.recorded_ns);
        worst.max((t.elapsed_ns as f64 / seen_ns.max(1) as f64 - 1.0).abs())
    })
}

/// A program whose operations can start when they could as recorded, whatever others take.
fn ready_as_recorded(program: &Program) -> Program {
    let mut order: Vec<(i64, u32)> = (0..).zip(&program.ops).map(|(n, op)| (op.ready_ns, n)).collect();
    order.sort_unstable();
    let begin_ns = order.first().map(|(ready_ns, _)| *ready_ns);
    let launch = |(end_ns, op): &(i64, u32)| [Step::Pause { ns: 0, end_ns: *end_ns }, Step::Launch(*op)];
    // Each in a stream of its own: it waits for no other.
    let streams = order.len() as u32;
    Program {
        tenant: program.tenant,
        ops: (0..).zip(&program.ops).map(|(stream, op)| Op { stream, ..*op }).collect(),
        places: program.places.clone(),
        demands: program.demands.clone(),
        hosts: vec![Host { begin_ns, steps: order.iter().flat_map(launch).collect() }],
        streams,
        recorded_ns: program.recorded_ns,
        visible_sms: program.visible_sms,
        pauses: Pauses::Moments,
        ..Program::default()
    }
}

fn detail(p: &Program, made: &Programs) -> String {
    let waits = if p.from_calls {
        "launches and waits from API calls"
    } else {
        "no API calls: gaps of a stream are taken for think time"
    };
    let mut text = format!("{} operations; {waits}", p.ops.len());
    if p.contended > 0.0 {
        let part = 100.0 * p.contended;
        text.push_str(&format!(
            "; {part:.0} % of its kernel time was co-run: taken for no more than what kernels of equal shape took alone"
        ));
    }
    if p.opaque > 0 {
        text.push_str(&format!("; {} of unknown shape are taken to fill the device", p.opaque));
    }
    if p.aside > 0 {
        text.push_str(&format!("; {} long before or after its work are left out", p.aside));
    }
    if !made.unknown.is_empty() {
        text.push_str("; what others ran was not traced and is not in it");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::occupancy::theoretical::Limits;
    use crate::simulate::host_program::NO_UNIT;
    use crate::simulate::sharing_config::{Assignment, Demand};

    const WARPS: u64 = 64;

    /// 10 SMs of 64 warps; a block of 8 warps: 8 of them on an SM, 80 on the device.
    fn limits() -> Limits {
        Limits { max_warps_per_sm: Some(64), sm_count: Some(10), ..Limits::default() }
    }

    fn kernel(stream: u32, us: i64, count: u64, warps: u64) -> (Op, Place) {
        let place = Place::Sms { count, per_sm: WARPS / warps, ask: [warps, 0, 0, 0] };
        let (work_ns, seen_ns) = (us * 1000, us * 1000);
        let unit = NO_UNIT;
        (Op { stream, class: 0, work_ns, seen_ns, shape: 0, co_run: false, unit, ready_ns: 0 }, place)
    }

    fn program(tenant: u32, ops: Vec<(Op, Place)>, steps: Vec<Step>) -> Program {
        let streams = 1 + ops.iter().map(|o| o.0.stream).max().unwrap_or(0);
        let places = ops.iter().map(|o| o.1).collect();
        let ops = (0..).zip(ops).map(|(class, (op, _))| Op { class, ..op }).collect();
        Program {
            tenant,
            ops,
            places,
            streams,
            hosts: vec![Host { begin_ns: Some(0), steps }],
            visible_sms: 10,
            from_calls: true,
            ..Program::default()
        }
    }

    /// Launches everything at once.
    fn burst(tenant: u32, ops: Vec<(Op, Place)>) -> Program {
        let steps = (0..ops.len() as u32).map(Step::Launch).collect();
        program(tenant, ops, steps)
    }

    fn config(assignments: Vec<Assignment>) -> SharingConfig {
        SharingConfig {
            name: "x".into(),
            instances: vec![10],
            bandwidths: Vec::new(),
            assignments,
            slice_ns: 1_000_000,
            switch_ns: 100_000,
            contention: 0.0,
            linger_ns: Some(25_000),
            anchored: false,
            hits_over_misses: 0.0,
            crowding: 0.0,
            block_imbalance: 0.0,
            client_order: None,
            jitter: 0.0,
            seed: 0,
        }
    }

    fn assignment(tenant: u32, group: u32, sms: Option<u32>) -> Assignment {
        Assignment { tenant, group, sms, ..Assignment::default() }
    }

    /// Elapsed microseconds of each tenant.
    fn us(programs: &[Program], config: &SharingConfig) -> Vec<i64> {
        let took = simulate(programs, &limits(), config, &mut |_, _, _| {}, &Unwatched).unwrap();
        took.iter().map(|t| t.elapsed_ns / 1000).collect()
    }

    #[test]
    fn windows_stand_for_all_in_proportion_to_what_was_recorded() {
        let program = |recorded_ns, outside_ns| Program {
            recorded_ns,
            outside_ns,
            latency_ns: Some((recorded_ns / 2, 4, 8)),
            ..Program::default()
        };
        let took = |elapsed_ns| Took {
            elapsed_ns,
            latency_ns: elapsed_ns,
            latency_p50_ns: 6,
            latency_p99_ns: 10,
            waits: Waits { queue_other_tenant_ns: elapsed_ns / 10, not_resident_ns: elapsed_ns / 5 },
            operations: 5,
            ..Took::default()
        };
        let whole = program(1_000, 0);
        assert_eq!(scaled(&whole, &[]), None);
        // 150 and 170 for 100 each: 1.6 times as long. Each is 10 from that, so their sum is known to 20 of 320, and its
        // 95 % interval is 12.71 times as wide.
        let (one, (short, long)) = (program(100, 0), (took(150), took(170)));
        let (all, error) = scaled(&whole, &[(&one, &short), (&one, &long)]).unwrap();
        assert_eq!((all.elapsed_ns, all.latency_ns, all.operations), (1_600, 1_600, 10));
        assert_eq!((all.latency_p50_ns, all.latency_p99_ns), (6, 10));
        // 32 and 64 of the windows, whose recorded latency is a fifth of all.
        assert_eq!(all.waits, Waits { queue_other_tenant_ns: 160, not_resident_ns: 320 });
        assert!((error - 12.71 * 20.0 / 320.0).abs() < 1e-9, "{error}");
        // With a pause around each that is as long as the work they were recorded to take 200.
        let one = program(100, 100);
        let (all, _) = scaled(&whole, &[(&one, &short), (&one, &long)]).unwrap();
        assert_eq!(all.elapsed_ns, 800);
    }

    #[test]
    fn streams_in_order_and_beside_each_other() {
        // |k0 100|k1 100|  stream 0, 40 of 80 blocks each
        // |k2 150...|      stream 1, 40 blocks: all fit
        let p = [burst(0, vec![kernel(0, 100, 40, 8), kernel(0, 100, 40, 8), kernel(1, 150, 40, 8)])];
        assert_eq!(us(&p, &config(vec![assignment(0, 0, None)])), [200]);
        // The legacy default stream in between: k2 waits for k0, k1 for k2.
        let mut p = burst(0, vec![kernel(0, 100, 40, 8), kernel(1, 150, 40, 8), kernel(0, 100, 40, 8)]);
        p.barrier = Some(1);
        assert_eq!(us(&[p], &config(vec![assignment(0, 0, None)])), [350]);
    }

    #[test]
    fn hosts_think_and_wait() {
        // launch, wait for it (100), think 30, launch (100): 230; what it waits for is what counts, not how long.
        let steps = vec![Step::Launch(0), Step::Wait(0), Step::Think(30_000), Step::Launch(1), Step::WaitAll];
        let p = [program(0, vec![kernel(0, 100, 80, 8), kernel(0, 100, 80, 8)], steps)];
        assert_eq!(us(&p, &config(vec![assignment(0, 0, None)])), [230]);
        // Thinking beside its own kernel costs nothing: 20 + 100.
        let steps = vec![Step::Launch(0), Step::Think(20_000), Step::Launch(1)];
        let p = [program(0, vec![kernel(0, 10, 80, 8), kernel(0, 100, 80, 8)], steps)];
        assert_eq!(us(&p, &config(vec![assignment(0, 0, None)])), [120]);
    }

    #[test]
    fn a_host_waits_for_the_end_of_those_it_started() {
        // The first starts a second, which launches 100 and waits; the first then launches 50 more: 10 + 100 + 5 + 50.
        let mut p = program(
            0,
            vec![kernel(0, 100, 80, 8), kernel(1, 50, 80, 8)],
            vec![
                Step::Think(10_000),
                Step::Start(1),
                Step::Join(1),
                Step::Think(5_000),
                Step::Launch(1),
                Step::WaitAll,
            ],
        );
        p.hosts.push(Host { begin_ns: None, steps: vec![Step::Launch(0), Step::Wait(0)] });
        assert_eq!(us(&[p], &config(vec![assignment(0, 0, None)])), [165]);
    }

    #[test]
    fn kernels_overtake_one_of_another_tenant_that_waits_for_room_in_one_order_only() {
        let after = |us: i64| vec![Step::Think(us * 1000), Step::Launch(0), Step::WaitAll];
        // The first has 6 blocks of 8 warps on each SM. Those of the second need a whole SM, and wait for its end at 100.
        // Blocks of the third find room at 20. In one line they come after all of the second's, which end at 200.
        let p = [
            burst(0, vec![kernel(0, 100, 60, 8)]),
            program(1, vec![kernel(0, 100, 10, 64)], after(10)),
            program(2, vec![kernel(0, 50, 10, 8)], after(20)),
        ];
        let of = |sms| config((0..3).map(|tenant| assignment(tenant, 0, sms)).collect());
        assert_eq!(us(&p, &of(None)), [100, 200, 250]);
        let overtaking = SharingConfig { client_order: Some(ClientOrder::Overtaking), ..of(None) };
        assert_eq!(us(&p, &overtaking), [100, 200, 70]);
        // With caps each client has a line of its own: 9 SMs hold 54 of the first's blocks, and the rest ends at 200.
        assert_eq!(us(&p, &of(Some(9))).last(), Some(&70));
    }

    #[test]
    fn side_by_side_time_sliced_and_apart() {
        let both =
            |blocks| [burst(0, vec![kernel(0, 3000, blocks, 8)]), burst(1, vec![kernel(0, 3000, blocks, 8)])];
        let mps = config(vec![assignment(0, 0, None), assignment(1, 0, None)]);
        assert_eq!(us(&both(40), &mps), [3000, 3000]);
        assert_eq!(us(&both(80), &mps), [3000, 6000]);
        // Turns of 1000, 100 between them: A 0..1000, 2200..3200, 4400..5400; B 1100..2100, 3300..4300; A
        // ends with its slice, so that it keeps the engine no longer: B 5500..6500.
        let turns = config(vec![assignment(0, 0, None), assignment(1, 1, None)]);
        assert_eq!(us(&both(80), &turns), [5400, 6500]);
        // Halves: caps of 5 SMs take two waves of what fitted in one.
        let capped = config(vec![assignment(0, 0, Some(5)), assignment(1, 0, Some(5))]);
        assert_eq!(us(&both(80), &capped), [6000, 6000]);
        let mig = SharingConfig {
            instances: vec![4, 5],
            assignments: vec![
                Assignment::default(),
                Assignment { tenant: 1, instance: 1, ..Assignment::default() },
            ],
            ..config(vec![])
        };
        // 80 blocks on 4 SMs (32 at once): three waves; on 5: two.
        assert_eq!(us(&both(80), &mig), [9000, 6000]);
        // Beside each other at 3/4 of the speed.
        assert_eq!(us(&both(40), &SharingConfig { contention: 1.0 / 3.0, ..mps }), [4000, 4000]);
    }

    #[test]
    fn a_program_that_goes_on_keeps_the_others_company_to_their_end() {
        // A fills the device for 1000, again and again; B's three kernels of 100 fill it too, each launched when the one
        // before has ended. Side by side the one that has waited longest goes first.
        let ends = burst(0, vec![kernel(0, 1000, 80, 8)]);
        let steps = vec![
            Step::Launch(0),
            Step::Wait(0),
            Step::Launch(1),
            Step::Wait(1),
            Step::Launch(2),
            Step::Wait(2),
        ];
        let b = program(1, (0..3).map(|_| kernel(0, 100, 80, 8)).collect(), steps);
        let mps = config(vec![assignment(0, 0, None), assignment(1, 0, None)]);
        // A ends at 1000: B 1000..1300.
        assert_eq!(us(&[ends.clone(), b.clone()], &mps), [1000, 1300]);
        // A again at 1000, when B has waited longer: B 1000..1100, A to 2100, B to 2200, A to 3200, B to 3300. Its own
        // time is that of its first pass.
        let goes_on = Program { goes_on: true, ..ends };
        assert_eq!(us(&[goes_on.clone(), b.clone()], &mps), [1000, 3300]);
        // Time-sliced: A 0..1000, then B in one slice, 1100..1400.
        let turns = config(vec![assignment(0, 0, None), assignment(1, 1, None)]);
        assert_eq!(us(&[goes_on.clone(), b.clone()], &turns), [1000, 1400]);
        // Alone nobody waits for it.
        assert_eq!(us(&[goes_on, b], &config(vec![assignment(0, 0, None)])), [1000]);
    }

    #[test]
    fn pauses_last_as_long_or_until_the_moment_at_which_they_ended() {
        // Works 100, pauses to 1000, works 100, pauses to 2000, works 100.
        let steps = vec![
            Step::Launch(0),
            Step::Wait(0),
            Step::Pause { ns: 900_000, end_ns: 1_000_000 },
            Step::Launch(1),
            Step::Wait(1),
            Step::Pause { ns: 900_000, end_ns: 2_000_000 },
            Step::Launch(2),
            Step::Wait(2),
        ];
        let mut p = program(0, (0..3).map(|_| kernel(0, 100, 80, 8)).collect(), steps);
        let alone = config(vec![assignment(0, 0, None)]);
        assert_eq!(us(&[p.clone()], &alone), [2100]);
        let anchored = SharingConfig { anchored: true, ..alone };
        p.pauses = Pauses::Unknown;
        assert_eq!(us(&[p.clone()], &anchored), [2100]);
        // B's five kernels of 500, each launched when the one before has ended; whoever has waited longest goes first.
        let steps = (0..5).flat_map(|n| [Step::Launch(n), Step::Wait(n)]).collect();
        let b = program(1, (0..5).map(|_| kernel(0, 500, 80, 8)).collect(), steps);
        let both = vec![assignment(1, 0, None), assignment(0, 0, None)];
        // B 0..500, A 500..600, B 600..1100, 1100..1600: A comes at 1500, runs 1600..1700, B 1700..2200, 2200..2700: A
        // comes at 2600, runs 2700..2800.
        assert_eq!(us(&[p.clone(), b.clone()], &config(both.clone())), [2700, 2800]);
        // A comes at 1000, runs 1100..1200; B 1200..1700, 1700..2200: A comes at 2000, runs 2200..2300.
        let anchored = SharingConfig { anchored: true, ..config(both.clone()) };
        assert_eq!(us(&[p.clone(), b.clone()], &anchored), [2800, 2300]);
        p.pauses = Pauses::Moments;
        assert_eq!(us(&[p, b], &config(both)), [2800, 2300]);
    }

    #[test]
    fn what_is_slowed_too_much_is_forecast_from_what_it_had_done() {
        // Each has room for its blocks: A two kernels of 10 again and again, B four of 100. Six operations: A is begun
        // again for 24 more and one, which are over at 270. By then B has done two in 200, so it is taken to need 400.
        let a = Program { goes_on: true, ..burst(0, (0..2).map(|_| kernel(0, 10, 40, 8)).collect()) };
        let b = burst(1, (0..4).map(|_| kernel(0, 100, 40, 8)).collect());
        let mps = config(vec![assignment(0, 0, None), assignment(1, 0, None)]);
        let took = simulate(&[a, b], &limits(), &mps, &mut |_, _, _| {}, &Unwatched).unwrap();
        let found: Vec<_> = took.iter().map(|t| (t.elapsed_ns / 1000, t.operations)).collect();
        assert_eq!(found, [(20, 2), (400, 2)]);
    }

    #[test]
    fn a_host_goes_on_while_its_context_is_not_resident() {
        // A works all the time. B: 100 of work, wait, think 900, again. Solo 1100; time-sliced its second kernel is
        // launched while A has the engine.
        let a = burst(0, vec![kernel(0, 10_000, 80, 8)]);
        let steps = vec![Step::Launch(0), Step::Wait(0), Step::Think(900_000), Step::Launch(1)];
        let b = program(1, vec![kernel(0, 100, 80, 8), kernel(0, 100, 80, 8)], steps);
        // A 0..1000, B 1100..1200 + 25 of lingering, A 1325..2325, B from 2425 (launched at 2100) to 2525 + 25, A from
        // 2650 with 8000 left.
        let turns = config(vec![assignment(0, 0, None), assignment(1, 1, None)]);
        assert_eq!(us(&[a, b], &turns), [10_650, 2525]);
    }

    #[test]
    fn blocks_need_room_on_one_sm() {
        // A: 5 of 8 places on every SM. B's blocks want 32 warps of the 24 that are left on each: it waits although
        // 240 warps are free.
        let a = burst(0, vec![kernel(0, 100, 50, 8)]);
        let b = burst(1, vec![kernel(0, 100, 5, 32)]);
        assert_eq!(us(&[a, b], &config(vec![assignment(0, 0, None), assignment(1, 0, None)])), [100, 200]);
    }

    #[test]
    fn equal_blocks_of_many_kernels_have_as_many_places_as_of_one() {
        // Two blocks of 24 warps on each SM are 20 places: of the fourth kernel's 6 blocks one waits.
        let of = |tenant, count| burst(tenant, vec![kernel(0, 100, count, 24)]);
        let p = [of(0, 5), of(1, 5), of(2, 5), of(3, 6)];
        let all = config((0..4).map(|tenant| assignment(tenant, 0, None)).collect());
        assert_eq!(us(&p, &all), [100, 100, 100, 200]);
    }

    #[test]
    fn copies_have_engines_of_their_own() {
        let copy = |ns| (Op { work_ns: ns, ..kernel(1, 1, 1, 8).0 }, Place::Copy(0));
        let p = [burst(0, vec![kernel(0, 100, 80, 8), copy(80_000)]), burst(1, vec![copy(80_000)])];
        // Two copies to the device one after the other, beside the kernel.
        assert_eq!(us(&p, &config(vec![assignment(0, 0, None), assignment(1, 1, None)])), [100, 160]);
    }

    #[test]
    fn uneven_blocks_take_as_long_as_they_took_alone() {
        for (count, us_alone) in [(40, 100), (80, 100), (130, 300), (1000, 5000)] {
            let p = [burst(0, vec![kernel(0, us_alone, count, 8)])];
            let block_imbalance =
                SharingConfig { block_imbalance: 0.4, ..config(vec![assignment(0, 0, None)]) };
            let found = us(&p, &block_imbalance);
            assert!((found[0] - us_alone).abs() <= 1 + us_alone / 100, "{count}: {found:?}");
        }
    }

    #[test]
    fn what_takes_long_concurrently_is_fitted_to_the_record() {
        // Both were recorded side by side, each half of the device: 40 blocks in one wave, 100 long, alone 100 too. B's
        // 80 blocks got 40 places: recorded 200, alone 100.
        let mut a = burst(0, (0..20).map(|_| kernel(0, 100, 40, 8)).collect());
        let mut b = burst(1, (0..10).map(|_| kernel(0, 200, 80, 8)).collect());
        for p in [&mut a, &mut b] {
            p.ops.iter_mut().for_each(|op| op.co_run = true);
        }
        b.ops.iter_mut().for_each(|op| op.shape = 1);
        for (p, each_ns) in [(&mut a, 100_000), (&mut b, 200_000)] {
            (0..).zip(&mut p.ops).for_each(|(n, op)| op.ready_ns = n * each_ns);
        }
        let shapes = vec![crate::simulate::host_program::ShapeSeen { known: false }; 2];
        let mut made = Programs { programs: vec![a, b], shapes, limits: limits(), ..Programs::default() };
        let capped = config(vec![assignment(0, 0, Some(5)), assignment(1, 0, Some(5))]);
        assert_eq!(fit(&mut made, &capped, &Unwatched).unwrap(), None);
        let alone: Vec<i64> = made.programs.iter().map(|p| p.ops[0].work_ns / 1000).collect();
        assert!((alone[0] - 100).abs() <= 4 && (alone[1] - 100).abs() <= 4, "{alone:?}");
    }

    #[test]
    fn waits_are_told_apart_by_what_is_waited_for() {
        let long = |us| burst(0, vec![kernel(0, us, 80, 8)]);
        let short = burst(1, vec![kernel(0, 100, 10, 8), kernel(0, 100, 10, 8)]);
        let waits = |programs: &[Program], assignments| {
            let config = config(assignments);
            let took = simulate(programs, &limits(), &config, &mut |_, _, _| {}, &Unwatched).unwrap();
            let us = |t: &Took| (t.waits.queue_other_tenant_ns / 1000, t.waits.not_resident_ns / 1000);
            took.iter().map(us).collect::<Vec<_>>()
        };
        let later = |group, sms| Assignment { start_ns: 100_000, ..assignment(1, group, sms) };
        // The long kernel fills the device until 1000; both short ones are launched at 100, one behind the other.
        let both = [long(1000), short.clone()];
        assert_eq!(waits(&both, vec![assignment(0, 0, None), later(0, None)]), [(0, 0), (1800, 0)]);
        // Time-sliced: 1000 of the long one, a switch of 100, 200 of the short ones, which linger for 25, a switch of 100.
        let both = [long(1500), short];
        assert_eq!(waits(&both, vec![assignment(0, 0, None), later(1, None)]), [(0, 425), (0, 2000)]);
        // Solo, and on SMs of their own, each waits for nothing but its own kernels.
        let two_streams = burst(1, vec![kernel(0, 100, 80, 8), kernel(1, 100, 80, 8)]);
        assert_eq!(waits(std::slice::from_ref(&two_streams), vec![assignment(1, 0, None)]), [(0, 0)]);
        let halves = vec![assignment(0, 0, Some(5)), later(0, Some(5))];
        assert_eq!(waits(&[long(1000), two_streams], halves), [(0, 0), (0, 0)]);
    }

    #[test]
    fn copies_run_the_same_program_each_from_its_own_begin() {
        // Both copies fill the device: the second waits for the first, then has it for itself.
        let p = [burst(3, vec![kernel(0, 100, 80, 8)])];
        let copy = |copy, start_ns| Assignment { copy, start_ns, ..assignment(3, 0, None) };
        let both = config(vec![copy(0, 0), copy(1, 40_000)]);
        let took = simulate(&p, &limits(), &both, &mut |_, _, _| {}, &Unwatched).unwrap();
        let seen: Vec<_> = took.iter().map(|t| (t.tenant, t.copy, t.elapsed_ns / 1000)).collect();
        assert_eq!(seen, [(3, 0, 100), (3, 1, 160)]);
    }

    #[test]
    fn copies_vary_each_in_its_own_way() {
        let p = [burst(0, vec![kernel(0, 1000, 40, 8)])];
        let copy = |copy| Assignment { copy, ..assignment(0, 0, None) };
        let both = SharingConfig { jitter: 0.1, seed: 1, ..config(vec![copy(0), copy(1)]) };
        let took = us(&p, &both);
        assert_ne!(took[0], took[1]);
        assert!(took.iter().all(|us| (900..=1100).contains(us)), "{took:?}");
    }

    #[test]
    fn kernels_that_need_different_units_make_up_for_the_room_they_lack() {
        // Each fills the device: one after the other, 1000 and 2000. At -0.2 both together take 0.8 of that.
        let p = [burst(0, vec![kernel(0, 1000, 80, 8)]), burst(1, vec![kernel(0, 1000, 80, 8)])];
        let both = |contention| SharingConfig {
            contention,
            ..config(vec![assignment(0, 0, None), assignment(1, 0, None)])
        };
        assert_eq!(us(&p, &both(0.0)), [1000, 2000]);
        // The first at 1.25 of its speed while the second waits, which then has the device to itself.
        assert_eq!(us(&p, &both(-0.2)), [800, 1800]);
        // There is room for both: nothing to make up for.
        let p = [burst(0, vec![kernel(0, 1000, 40, 8)]), burst(1, vec![kernel(0, 1000, 40, 8)])];
        assert_eq!(us(&p, &both(-0.2)), [1000, 1000]);
    }

    #[test]
    fn a_context_without_work_keeps_the_engine_for_a_while() {
        // Each launches 100, waits, thinks 20 and launches again. Who lingers for 30 runs both in one turn: A to 220, and
        // its lingering; B 250..350 and 370..470.
        let steps =
            || vec![Step::Launch(0), Step::Wait(0), Step::Think(20_000), Step::Launch(1), Step::Wait(1)];
        let two = |tenant| program(tenant, vec![kernel(0, 100, 80, 8), kernel(0, 100, 80, 8)], steps());
        let sliced = |linger_ns| SharingConfig {
            linger_ns: Some(linger_ns),
            switch_ns: 0,
            ..config(vec![assignment(0, 0, None), assignment(1, 1, None)])
        };
        assert_eq!(us(&[two(0), two(1)], &sliced(30_000)), [220, 470]);
        assert_eq!(us(&[two(0), two(1)], &sliced(0)), [300, 400]);
    }

    #[test]
    fn a_context_whose_kernels_have_ended_leaves_while_it_copies() {
        // The first one's copy of 300 us follows its kernel; the second one's kernel comes while the first one's runs. It
        // begins once the first context has lingered for 25 us and been switched for 100 us, not at the end of a slice.
        let copies = |us: i64| {
            let op =
                Op { stream: 0, class: 1, work_ns: us * 1000, seen_ns: us * 1000, ..kernel(0, 0, 1, 8).0 };
            (op, Place::Copy(1))
        };
        let first = burst(0, vec![kernel(0, 100, 80, 8), copies(300)]);
        let second = burst(1, vec![kernel(0, 100, 80, 8)]);
        let later = Assignment { start_ns: 50_000, ..assignment(1, 1, None) };
        let sliced = config(vec![assignment(0, 0, None), later]);
        assert_eq!(us(&[first, second], &sliced), [400, 275]);
    }

    #[test]
    fn memory_bandwidth_is_shared_by_what_each_wants() {
        // Room for both; each wants 80 % of the bandwidth: both take 1.6 times as long.
        let p = [burst(0, vec![kernel(0, 1000, 40, 8)]), burst(1, vec![kernel(0, 1000, 40, 8)])];
        let wants = |tenant, bandwidth| Assignment { bandwidth, ..assignment(tenant, 0, None) };
        assert_eq!(us(&p, &config(vec![wants(0, 0.8), wants(1, 0.8)])), [1600, 1600]);
        assert_eq!(us(&p, &config(vec![wants(0, 0.4), wants(1, 0.6)])), [1000, 1000]);
        // An instance with half of it: 1.6 times as long solo.
        let half = SharingConfig { bandwidths: vec![0.5], ..config(vec![wants(0, 0.8)]) };
        assert_eq!(us(&p, &half), [1600]);
    }

    #[test]
    fn a_kernel_of_known_bandwidth_takes_that_and_not_its_tenants() {
        let mut p = [burst(0, vec![kernel(0, 1000, 40, 8)]), burst(1, vec![kernel(0, 1000, 40, 8)])];
        p[0].demands = vec![Demand { bandwidth: Some(0.8), ..Demand::default() }];
        let wants = |tenant, bandwidth| Assignment { bandwidth, ..assignment(tenant, 0, None) };
        assert_eq!(us(&p, &config(vec![wants(0, 0.1), wants(1, 0.8)])), [1600, 1600]);
        // Measured as nothing is not unknown.
        p[0].demands = vec![Demand { bandwidth: Some(0.0), ..Demand::default() }];
        assert_eq!(us(&p, &config(vec![wants(0, 0.8), wants(1, 0.8)])), [1000, 1000]);
    }

    #[test]
    fn while_most_blocks_run_more_is_wanted_than_in_the_mean() {
        // Quarters of the blocks end after 200, 600, 1000 and 1400: 4/7 of all are there in the mean. So a mean of 0.5 is
        // 0.875 at first. Both want 1.75, 1.3125, 0.875 and 0.4375: 200 x 1.75 + 400 x 1.3125 + 400 + 400.
        let mut p = [burst(0, vec![kernel(0, 1400, 40, 8)]), burst(1, vec![kernel(0, 1400, 40, 8)])];
        for program in &mut p {
            program.demands = vec![Demand { bandwidth: Some(0.5), ..Demand::default() }];
        }
        let both = config(vec![assignment(0, 0, None), assignment(1, 0, None)]);
        assert_eq!(us(&p, &SharingConfig { block_imbalance: 1.0, ..both.clone() }), [1675, 1675]);
        assert_eq!(us(&p, &both), [1400, 1400]);
        // Waves of 80 and 40 blocks with a mean of 0.6 want 0.8 and 0.4: of half of the bandwidth 500 x 1.6 + 500.
        let waves = burst(0, vec![kernel(0, 1000, 120, 8)]);
        let wants = Assignment { bandwidth: 0.6, ..assignment(0, 0, None) };
        let half = SharingConfig { bandwidths: vec![0.5], ..config(vec![wants]) };
        assert_eq!(us(&[waves], &half), [1300]);
    }

    #[test]
    fn throughput_of_sms_is_shared_by_what_each_wants() {
        // Two blocks on each of 10 SMs, each of which wants 0.45 of one: of two such kernels an SM has four, 1.8 of it.
        let p = [burst(0, vec![kernel(0, 1000, 20, 8)]), burst(1, vec![kernel(0, 1000, 20, 8)])];
        let wants = |tenant, sm_throughput| Assignment { sm_throughput, ..assignment(tenant, 0, None) };
        assert_eq!(us(&p, &config(vec![wants(0, 0.9), wants(1, 0.9)])), [1800, 1800]);
        assert_eq!(us(&p, &config(vec![wants(0, 0.9), wants(1, 0.1)])), [1000, 1000]);
        // Five SMs each: nobody meets anybody, and each SM has four blocks of one tenant.
        let capped = |tenant, sm_throughput| Assignment { sms: Some(5), ..wants(tenant, sm_throughput) };
        assert_eq!(us(&p, &config(vec![capped(0, 0.9), capped(1, 0.4)])), [1800, 1000]);
    }

    #[test]
    fn kernels_of_which_nothing_was_measured_take_less_where_few_of_their_blocks_are() {
        // 8 blocks fit on an SM, where they are assumed to take 0.9 of it. Half of them take 0.9 x 2/3: two such kernels
        // 1.2 of each SM; one block takes 0.9 x 2/9, so those of four kernels find 0.8 of an SM enough.
        let assumed = |tenant| Assignment { assumed_sm_throughput: 0.9, ..assignment(tenant, 0, None) };
        let of = |blocks, tenants: u32| -> Vec<Program> {
            (0..tenants).map(|tenant| burst(tenant, vec![kernel(0, 1000, blocks, 8)])).collect()
        };
        assert_eq!(us(&of(40, 2), &config(vec![assumed(0), assumed(1)])), [1200, 1200]);
        assert_eq!(us(&of(10, 4), &config((0..4).map(assumed).collect())), [1000; 4]);
        // What was measured of a tenant counts first, however few its blocks are.
        let known = |tenant| Assignment { sm_throughput: 0.9, ..assumed(tenant) };
        assert_eq!(us(&of(10, 2), &config(vec![known(0), known(1)])), [1800, 1800]);
    }

    #[test]
    fn kernels_of_one_tenant_beside_each_other_want_no_more_than_it_was_seen_to_take() {
        // Two streams: each SM has a block of each kernel, and the tenant was seen to take 0.8 of it, not 1.6.
        let own = |tenant| burst(tenant, vec![kernel(0, 1000, 10, 8), kernel(1, 1000, 10, 8)]);
        let wants = |tenant| Assignment { sm_throughput: 0.8, bandwidth: 0.5, ..assignment(tenant, 0, None) };
        let other = || burst(1, vec![kernel(0, 1000, 10, 8)]);
        assert_eq!(us(&[own(0), other()], &config(vec![wants(0), wants(1)])), [1600, 1600]);
        // Counted one by one each wants 0.8; they got by with one SM's throughput where they were recorded.
        let mut counted = own(0);
        counted.demands = vec![Demand { sm_throughput: Some(0.8), ..Demand::default() }; 2];
        assert_eq!(us(&[counted, other()], &config(vec![wants(0), wants(1)])), [1800, 1800]);
    }

    #[test]
    fn kernels_of_one_tenant_meet_on_fewer_sms_than_they_were_recorded_on() {
        // Two streams of kernels with a block on each of 10 SMs, which together took 0.9 of them: on 5 SMs 1.8.
        let own = |tenant| burst(tenant, vec![kernel(0, 1000, 10, 8), kernel(1, 1000, 10, 8)]);
        let wants = |tenant, sms| Assignment { sm_throughput: 0.9, ..assignment(tenant, 0, sms) };
        let halves = config(vec![wants(0, Some(5)), wants(1, Some(5))]);
        assert_eq!(us(&[own(0), own(1)], &halves), [1800, 1800]);
        // On all of them alone it is as fast as recorded, also while the other one has not begun.
        let crowded = SharingConfig { crowding: 1.0, ..config(vec![wants(0, None)]) };
        assert_eq!(us(&[own(0)], &crowded), [1000]);
        let later = Assignment { start_ns: 5_000_000, ..wants(1, None) };
        let apart = SharingConfig { crowding: 1.0, ..config(vec![wants(0, None), later]) };
        assert_eq!(us(&[own(0), own(1)], &apart), [1000, 1000]);
    }

    #[test]
    fn blocks_on_part_of_the_sms_meet_on_some_of_them() {
        // 7 blocks each, which want all of an SM: 14 on 10 SMs are 1.4 in the mean, and two on the busiest.
        let p = [burst(0, vec![kernel(0, 1000, 7, 8)]), burst(1, vec![kernel(0, 1000, 7, 8)])];
        let wants = |tenant| Assignment { sm_throughput: 1.0, ..assignment(tenant, 0, None) };
        let both = config(vec![wants(0), wants(1)]);
        assert_eq!(us(&p, &both), [1400, 1400]);
        assert_eq!(us(&p, &SharingConfig { crowding: 1.0, ..both.clone() }), [2000, 2000]);
        assert_eq!(us(&p, &SharingConfig { crowding: 0.5, ..both }), [1700, 1700]);
        // Solo nobody is slower than recorded.
        assert_eq!(us(&p, &SharingConfig { crowding: 1.0, ..config(vec![wants(0)]) }), [1000]);
    }

    #[test]
    fn a_counted_kernel_takes_what_was_counted_of_all_sms() {
        // 0.7 of all SMs' throughput by 7 blocks on 10 SMs: each wants all of one. Its tenant's 0.1 does not count.
        let mut p = [burst(0, vec![kernel(0, 1000, 7, 8)]), burst(1, vec![kernel(0, 1000, 7, 8)])];
        for program in &mut p {
            program.demands = vec![Demand { sm_throughput: Some(0.7), ..Demand::default() }];
        }
        let wants = |tenant| Assignment { sm_throughput: 0.1, ..assignment(tenant, 0, None) };
        assert_eq!(us(&p, &config(vec![wants(0), wants(1)])), [1400, 1400]);
    }

    #[test]
    fn what_the_cache_cannot_hold_of_both_is_read_again() {
        // Each keeps 0.8 of L2: 0.6 of the 1.6 do not fit, 0.375 of the hits miss. At 3 hits for each miss the traffic
        // of 0.4 + 0.4 grows by 1 + 3 x 0.375 = 2.125 to 1.7 of the bandwidth.
        let p = [burst(0, vec![kernel(0, 1000, 40, 8)]), burst(1, vec![kernel(0, 1000, 40, 8)])];
        let keeps = |tenant, cache| Assignment { bandwidth: 0.4, cache, ..assignment(tenant, 0, None) };
        let misses = |c: SharingConfig| SharingConfig { hits_over_misses: 3.0, ..c };
        assert_eq!(us(&p, &misses(config(vec![keeps(0, 0.8), keeps(1, 0.8)]))), [1700, 1700]);
        // Both fit.
        assert_eq!(us(&p, &misses(config(vec![keeps(0, 0.5), keeps(1, 0.5)]))), [1000, 1000]);
        // Solo in half of the device with half of its L2: a quarter more than fits; 0.4 x (1 + 3 x 0.375) of 0.5.
        let half = SharingConfig { bandwidths: vec![0.5], ..config(vec![keeps(0, 0.8)]) };
        assert_eq!(us(&p, &misses(half)), [1700]);
    }

    #[test]
    fn units_of_work_last_from_their_begin_to_their_last_end() {
        // Two units of one kernel each: 5 us of the host's own before the first launch, then 100, and 100 behind it.
        let mut p = burst(0, vec![kernel(0, 100, 80, 8), kernel(0, 100, 80, 8)]);
        (p.ops[0].unit, p.ops[1].unit) = (0, 1);
        p.units_lead_ns = vec![5_000, 0];
        let one = config(vec![assignment(0, 0, None)]);
        let took = simulate(&[p], &limits(), &one, &mut |_, _, _| {}, &Unwatched).unwrap();
        // By the nearest rank half of two are the shorter one.
        assert_eq!(took[0].unit_ns, Some((105_000, 200_000)));
        assert_eq!(took[0].latency_p99_ns, 200_000);
    }

    #[test]
    fn nonsense_is_refused_and_it_stops_when_told() {
        let p = [burst(0, vec![kernel(0, 100, 80, 8)])];
        let good = config(vec![assignment(0, 0, None)]);
        for bad in [
            SharingConfig { slice_ns: 0, ..good.clone() },
            SharingConfig { contention: -1.0, ..good.clone() },
            SharingConfig { linger_ns: Some(-1), ..good.clone() },
            SharingConfig { jitter: 2.0, ..good.clone() },
            SharingConfig { instances: vec![0], ..good.clone() },
            config(vec![assignment(0, 0, Some(0))]),
            config(vec![Assignment { start_ns: -1, ..Assignment::default() }]),
            config(vec![Assignment { bandwidth: -1.0, ..Assignment::default() }]),
            config(vec![Assignment { sm_throughput: 1.1, ..Assignment::default() }]),
            SharingConfig { crowding: -0.1, ..good.clone() },
            SharingConfig { bandwidths: vec![0.5, 0.5], ..good.clone() },
            SharingConfig { bandwidths: vec![0.0], ..good.clone() },
            SharingConfig { hits_over_misses: f64::NAN, ..good.clone() },
            config(vec![Assignment { cache: -1.0, ..Assignment::default() }]),
        ] {
            let made = simulate(&p, &limits(), &bad, &mut |_, _, _| {}, &Unwatched);
            assert!(matches!(made, Err(Error::Argument(_))));
        }
        let stop = StopAfter::new(0);
        assert!(matches!(simulate(&p, &limits(), &good, &mut |_, _, _| {}, &stop), Err(Error::Cancelled)));
    }
}
