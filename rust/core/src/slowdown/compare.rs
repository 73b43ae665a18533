//! Compare a tenant's operations with their solo counterparts: slowdown, confidence, causes, aggressors.
//!
//! Everything is a ratio of sums over the same operations, shared over solo. The shared times were recorded. The solo
//! times of this run are not known exactly; the confidence interval is about that, for this run, not for a run with
//! other tenants. Against a baseline it is the scatter between two recordings of the same work (blocks of time of the
//! baseline, resampled, see `statistics.rs`). Against the counterfactual replay it is the uncertainty of the solo
//! kernel durations, and the error of the model on generated captures.

use std::collections::BTreeMap;

use crate::base::intervals::{Union, Walk};
use crate::base::maps::NumberMap;
use crate::base::parallel::ThreadPool;
use crate::base::pauses::UntilMoments;
use crate::base::statistics::{quantile, quantiles, student, weighted_quantiles, Resamples};
use crate::slowdown::baseline::Pause;
use crate::slowdown::counterfactual::{Reference, SoloOp};
use crate::slowdown::operations::{Op, Tenancy};
use crate::slowdown::ops::Ops;
use crate::slowdown::LEAST_ADDED;
use crate::table::work::WorkKind;

/// Fewer operations than this bear no interval.
pub(crate) const ENOUGH: usize = 20;
const MOST_BLOCKS: usize = 40;
const LEAST_IN_BLOCK: usize = 5;
/// So many operations make as many blocks as there ever are.
const FILLED: usize = MOST_BLOCKS * LEAST_IN_BLOCK;
/// Idle for so long in the reference, and much longer than its usual pauses: another phase of the work begins.
const PHASE_NS: i64 = 20_000_000;
const PHASE_TIMES: f64 = 3.0;
/// Shorter than this is no pause of the host.
const PAUSE_NS: f64 = 100_000.0;
/// Exposures that go together this closely cannot be told apart.
const COLLINEAR: f64 = 0.95;

/// One figure of a tenant.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub measure: &'static str,
    pub value: f64,
    pub bounds: Option<(f64, f64)>,
    pub n: usize,
    pub shared_ns: f64,
    pub solo_ns: f64,
}

/// One place where added latency went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub name: &'static str,
    pub shared_ns: f64,
    pub solo_ns: f64,
    /// What it added to operations and, through the queue of their streams, to those behind them.
    pub root_ns: f64,
}

/// The names of `Split::parts`.
pub(crate) const PARTS: [&str; 6] =
    ["launch", "queue_same_tenant", "queue_other_tenant", "not_resident", "switch", "execution"];
/// The places of the launch call, and of an operation's wait for those before it in its stream.
const LAUNCH: usize = 0;
const OWN_QUEUE: usize = 1;

/// What an operation's latency grew by, its wait in its own stream as what held up the one before it (`before`: the same
/// of that one). A launch call that takes longer delays the next launch as much as the operation: nobody queues for it.
fn roots(shared: [i64; 6], solo: [i64; 6], mut before: [f64; 6]) -> [f64; 6] {
    let mut grew = [0.0; 6];
    for ((grew, shared), solo) in grew.iter_mut().zip(shared).zip(solo) {
        *grew = shared.saturating_sub(solo) as f64;
    }
    if let Some(launch) = before.get_mut(LAUNCH) {
        *launch = 0.0;
    }
    let whole: f64 = before.iter().map(|part| part.max(0.0)).sum();
    let Some(queued) = grew.get_mut(OWN_QUEUE) else { return grew };
    let behind = queued.min(whole);
    if behind > 0.0 {
        *queued -= behind;
        for (grew, part) in grew.iter_mut().zip(before) {
            *grew += behind * part.max(0.0) / whole;
        }
    }
    grew
}

/// What one aggressor added.
#[derive(Debug, Clone)]
pub(crate) struct AggressorShare {
    pub aggressor: u32,
    pub exposure_ns: f64,
    /// Part of the added latency, with its interval; none: cannot be told from another's.
    pub share: Option<(f64, Option<(f64, f64)>)>,
    pub with: Option<u32>,
    pub n: usize,
}

/// A tenant beside itself solo.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub figures: Vec<Figure>,
    pub parts: Vec<Part>,
    pub aggressors: Vec<AggressorShare>,
    pub blocks: usize,
    /// Operations left out of latencies and their parts: what is not the program's own held a launch up, or no call of it
    /// is known, here or there, or the window of the session shows only a part of them.
    pub left_out: usize,
    /// The host paused once, and not in the baseline: see [`lone_pause_ns`].
    pub paused: bool,
}

/// Which block of time an operation falls into.
pub(crate) struct Blocks {
    from_ns: i64,
    length_ns: i64,
    pub count: usize,
}

impl Blocks {
    pub fn of(ops: &Ops, kept: usize) -> Self {
        let from_ns = ops.get(0).map_or(0, |op| op.launch_ns);
        let to_ns = ops.iter().next_back().map_or(0, |op| op.launch_ns);
        let count = (kept / LEAST_IN_BLOCK).clamp(2, MOST_BLOCKS);
        let length_ns = to_ns.saturating_sub(from_ns).saturating_add(1) / count as i64;
        Self { from_ns, length_ns: length_ns.max(1), count }
    }

    pub fn at(&self, time_ns: i64) -> usize {
        let block = time_ns.saturating_sub(self.from_ns) / self.length_ns;
        usize::try_from(block).unwrap_or(0).min(self.count.saturating_sub(1))
    }
}

/// Hands out the time from each launch to the next, by operation, with and without co-running tenants; what the reference waited for
/// another phase of the work is taken back from both after.
struct Advances {
    pauses: Vec<f64>,
    /// What is a phase is known when all pauses are: operation before it, and how long either side was idle.
    phases: Vec<(Before, f64, f64)>,
    end_shared: i64,
    end_alone: i64,
    /// The operation before, and when the reference launched it.
    last: Option<(Before, i64)>,
}

/// An operation whose time to the next launch is handed out: its place, and when it was launched.
#[derive(Debug, Clone, Copy)]
struct Before {
    place: usize,
    launch_ns: i64,
}

impl Advances {
    fn new() -> Self {
        let (end_shared, end_alone) = (i64::MIN, i64::MIN);
        Self { pauses: Vec::new(), phases: Vec::new(), end_shared, end_alone, last: None }
    }

    /// Takes the next operation, with the latency that the reference has of it and when that launched it.
    fn see(
        &mut self,
        place: usize,
        op: &Op,
        latency_ns: i64,
        launch: i64,
        mut out: impl FnMut(Before, f64, f64),
    ) {
        if let Some((before, alone_launch)) = self.last {
            let pause = launch.saturating_sub(self.end_alone) as f64;
            if pause > PAUSE_NS {
                self.pauses.push(pause);
            }
            if pause > PHASE_NS as f64 {
                let shared = op.launch_ns.saturating_sub(self.end_shared).max(0) as f64;
                self.phases.push((before, shared, pause));
            }
            let shared = op.launch_ns.saturating_sub(before.launch_ns) as f64;
            out(before, shared, launch.saturating_sub(alone_launch) as f64);
        }
        self.end_shared = self.end_shared.max(op.end_ns);
        self.end_alone = self.end_alone.max(launch.saturating_add(latency_ns));
        self.last = Some((Before { place, launch_ns: op.launch_ns }, launch));
    }

    fn finish(mut self, mut out: impl FnMut(Before, f64, f64)) {
        self.pauses.sort_by(f64::total_cmp);
        // Few pauses are phases of the work; five of a kind are how it waits, and of ten the odd ones are left aside.
        let usual = match self.pauses.len() {
            ..5 => None,
            5..10 => quantile(&self.pauses, 0.5),
            10.. => quantile(&self.pauses, 0.9),
        }
        .unwrap_or(0.0);
        for (before, shared, pause) in self.phases {
            if pause > PHASE_TIMES * usual {
                out(before, -shared, -pause);
            }
        }
        if let Some((last, alone_launch)) = self.last {
            let shared = self.end_shared.saturating_sub(last.launch_ns) as f64;
            out(last, shared, self.end_alone.saturating_sub(alone_launch) as f64);
        }
    }
}

/// How well it is known what the run would have taken solo.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Doubt {
    /// SoloOp, drawn again: lower and upper end of each sum over its value, on the logarithm (elapsed, latency, resident).
    /// `None`: too few blocks.
    Scatter([Option<(f64, f64)>; 3]),
    /// A replay.
    Model(ModelDoubt),
}

/// How well it is known what a replay took away.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelDoubt {
    /// Standard error of the lengths solo, on the logarithm.
    pub error: f64,
    /// Records say when its context was resident.
    pub residency: bool,
    /// How long it takes with a host as fast as it may be solo, as a part of the time with the host as it was.
    pub with_faster_host: f64,
}

/// No closer than this against a baseline: what records of time themselves are worth.
const LEAST: f64 = 0.002;
/// Half of the 95 % interval of a run that was replayed, beside what its lengths scatter: this part of what the model
/// took away, and this much in any case; with and without records of residency. From the errors on generated captures
/// (`tests/bench/interference.py`).
const MODEL: [(f64, f64); 2] = [(0.025, 0.003), (0.09, 0.02)];

impl Doubt {
    /// Where only this part of the operations of the baseline is held against a tenant: fewer scatter more.
    pub fn of_part(self, part: f64) -> Self {
        match self {
            Self::Scatter(all) if part > 0.0 && part < 1.0 => {
                let wider = part.sqrt().recip();
                Self::Scatter(all.map(|ends| ends.map(|(low, high)| (low * wider, high * wider))))
            }
            same => same,
        }
    }

    /// Wider by what nobody knows of the execution times of the run that is held against it: the part of them by which
    /// they may be too long or too short.
    pub fn with_cuts(self, part: f64) -> Self {
        match self {
            Self::Scatter([elapsed, latency, resident]) => {
                // The ends are those of the run that it is held against, before they are doubled to both runs.
                let more = part / std::f64::consts::SQRT_2;
                Self::Scatter([elapsed, latency, resident.map(|(low, high)| (low - more, high + more))])
            }
            same => same,
        }
    }

    pub fn bounds(&self, measure: &str, value: f64) -> Option<(f64, f64)> {
        let log = value.ln();
        let (down, up) = match self {
            Self::Scatter(all) => {
                let place = ["elapsed", "latency", "resident"].iter().position(|m| *m == measure)?;
                let (low, high) = (*all.get(place)?)?;
                // The run co-run has its own scatter, as large as that of the baseline.
                let (low, high) = (low * std::f64::consts::SQRT_2, high * std::f64::consts::SQRT_2);
                (-high - LEAST, -low + LEAST)
            }
            Self::Model(ModelDoubt { error, residency, with_faster_host }) => {
                let [recorded, unknown] = MODEL;
                let (part, least) = if *residency { recorded } else { unknown };
                let half = ((2.0 * error).powi(2) + (part * log).powi(2)).sqrt() + least;
                // Operations take as long with any host.
                let host = if measure == "elapsed" { -with_faster_host.ln() } else { 0.0 };
                (-half, half + host)
            }
        };
        Some(((log + down).exp(), (log + up).exp()))
    }

    /// Those of the time of units of work, of which the host's is a part.
    pub fn of_units(&self, value: f64) -> Option<(f64, f64)> {
        self.bounds(if matches!(self, Self::Model(_)) { "elapsed" } else { "latency" }, value)
    }
}

/// How far sums over a run solo scatter around what its mix of operations takes on average.
pub(crate) fn scatter(base: &Tenancy, solo: &impl Reference) -> Doubt {
    let work = |op: &Op| op.kind != WorkKind::Copy;
    let kept = base.ops.iter().filter(|op| work(op)).count();
    if kept < ENOUGH {
        return Doubt::Scatter([None; 3]);
    }
    let blocks = Blocks::of(&base.ops, kept);
    let mut passed = vec![0.0; base.ops.len()];
    let mut pass = |before: Before, _: f64, without: f64| {
        if let Some(slot) = passed.get_mut(before.place) {
            *slot += without;
        }
    };
    let mut advances = Advances::new();
    for (n, op) in base.ops.iter().enumerate() {
        if let Some((a, launch)) = solo.of(n).and_then(|a| Some((a, a.launch_ns?))) {
            advances.see(n, &op, a.latency_ns, launch, &mut pass);
        }
    }
    advances.finish(pass);
    let values = |n: usize, op: &Op| {
        let advance = passed.get(n).copied().unwrap_or(0.0);
        [advance, op.latency_ns() as f64, op.ran_ns as f64]
    };
    // By signature: sums and count. Time between launches passes at copies, too.
    let mut means: NumberMap<u32, ([f64; 3], f64)> = NumberMap::default();
    for (n, op) in base.ops.iter().enumerate() {
        let (sums, count) = means.entry(op.signature).or_default();
        for (sum, value) in sums.iter_mut().zip(values(n, &op)) {
            *sum += value;
        }
        *count += 1.0;
    }
    let mut sums = vec![vec![0.0; blocks.count]; 6];
    for (n, op) in base.ops.iter().enumerate() {
        let Some((totals, count)) = means.get(&op.signature) else { continue };
        let block = blocks.at(op.launch_ns);
        for (place, (value, total)) in values(n, &op).into_iter().zip(totals).enumerate() {
            if place > 0 && !work(&op) {
                continue;
            }
            for (column, value) in [(2 * place, value), (2 * place + 1, total / count)] {
                if let Some(slot) = sums.get_mut(column).and_then(|c| c.get_mut(block)) {
                    *slot += value;
                }
            }
        }
    }
    let draws = Resamples::new(blocks.count);
    let one = |place: usize| {
        let (over, under) = (sums.get(2 * place)?, sums.get(2 * place + 1)?);
        let (_, low, high) = draws.ratio(over, under)?;
        let together = alike(over, under);
        Some((low.ln() * together, high.ln() * together))
    };
    Doubt::Scatter([one(0), one(1), one(2)])
}

/// What neighbouring blocks have to do with each other, as a factor on the interval: where one is long because the next
/// is short (a launch falls to either side of the border), their sum scatters less than blocks drawn one by one.
///
/// What neighbours have in common is itself estimated: of n blocks by 1/n too low, and with a scatter that leaves the
/// variance a third of the degrees of freedom (relative variance 2/n of the squares, 4/n of twice the correlation).
fn alike(over: &[f64], under: &[f64]) -> f64 {
    let (a, b): (f64, f64) = (over.iter().sum(), under.iter().sum());
    let rest: Vec<f64> = over.iter().zip(under).map(|(x, y)| x - y * a / b).collect();
    let squares: f64 = rest.iter().map(|r| r * r).sum();
    let neighbours: f64 = rest.windows(2).map(|w| w.iter().product::<f64>()).sum();
    let blocks = under.iter().filter(|v| **v != 0.0).count() as f64;
    if squares > 0.0 && blocks > 6.0 {
        let common = neighbours / squares + 1.0 / blocks;
        (1.0 + 2.0 * common).clamp(0.05, 4.0).sqrt() * student(blocks / 3.0) / student(blocks - 1.0)
    } else {
        1.0
    }
}

/// What makes elapsed time comparable.
pub(crate) enum Clock<'a> {
    /// The reference has its own clock.
    Own,
    /// As `Own`, and the other reading of the host's pauses, as if they ended at moments: when each operation is launched;
    /// how many of the pauses do; and how much earlier all may have ended, if the host waited without a call.
    Anchored(&'a [i64], UntilMoments, i64),
    /// Only the elapsed_ratio: elapsed over execution time; and whether that run had a pause that came once.
    ElapsedRatio(f64, bool),
}

/// Holds a tenant's operations against the same ones solo.
pub(crate) fn compare(
    tenant: &Tenancy,
    solo: &impl Reference,
    clock: &Clock<'_>,
    switching: Option<&Union>,
    latencies: bool,
    doubt: &Doubt,
    pool: ThreadPool,
) -> Compared {
    let ops = &tenant.ops;
    let counts = |(n, op): &(usize, Op)| op.kind != WorkKind::Copy && solo.of(*n).is_some();
    // More than fill all blocks need not be counted twice.
    let some = ops.iter().enumerate().filter(counts).take(FILLED).count();
    if some == 0 {
        return Compared::default();
    }
    let blocks = Blocks::of(ops, some);
    let (aggressors, compared) = pool.both(
        || aggressor_shares(tenant, solo, &blocks, &Resamples::new(blocks.count)),
        || sums_compared(tenant, solo, clock, switching, latencies, doubt, &blocks),
    );
    Compared { aggressors, blocks: blocks.count, ..compared }
}

/// The same by sums over its operations, without the aggressors.
fn sums_compared(
    tenant: &Tenancy,
    solo: &impl Reference,
    clock: &Clock<'_>,
    switching: Option<&Union>,
    latencies: bool,
    doubt: &Doubt,
    blocks: &Blocks,
) -> Compared {
    let ops = &tenant.ops;
    let work = |op: &Op| op.kind != WorkKind::Copy;
    let mut out = Compared::default();
    let mut sums = vec![vec![0.0_f64; blocks.count]; 6];
    let mut parts = [[0.0_f64; 3]; 6];
    // Of each stream, what its last operation was delayed by.
    let mut delayed = vec![[0.0_f64; 6]; tenant.streams()];
    let (mut kept, mut cut, mut no_latency) = (0, 0, 0);
    let mut ran = [0.0_f64; 2];
    // Shared and solo.
    let mut values = [(); 2].map(|()| Latencies::new(if latencies { ops.len() } else { 0 }));
    // By the launches of the reference, and by the other reading of its pauses.
    let (mut advances, mut by_moments, mut moments_ns) = (Advances::new(), Advances::new(), [0.0; 2]);
    let mut add = |column: usize, block: usize, value: f64| {
        if let Some(slot) = sums.get_mut(column).and_then(|c| c.get_mut(block)) {
            *slot += value;
        }
    };
    for (n, op) in ops.iter().enumerate() {
        let a = solo.of(n);
        if let (Some(a), Clock::Own | Clock::Anchored(..)) = (&a, clock) {
            if let Some(launch) = a.launch_ns {
                advances.see(n, &op, a.latency_ns, launch, |before, shared, without| {
                    let block = blocks.at(before.launch_ns);
                    add(4, block, shared);
                    add(5, block, without);
                });
            }
            if let Clock::Anchored(launches, ..) = clock {
                if let Some(launch) = launches.get(n) {
                    by_moments.see(n, &op, a.latency_ns, *launch, |_, shared, without| {
                        moments_ns[0] += shared;
                        moments_ns[1] += without;
                    });
                }
            }
        }
        let Some(delayed) = delayed.get_mut(op.stream as usize) else { continue };
        if !work(&op) {
            // A kernel behind a copy waits for what the copy waits for.
            if let Some(a) = a {
                *delayed = roots(tenant.split(&op, switching).parts(), a.parts, *delayed);
            }
            continue;
        }
        // What delayed one that is left out is not known: nothing behind it is counted for anything before it.
        let before = std::mem::take(delayed);
        if op.cut() {
            cut += 1;
            continue;
        }
        let Some(a) = a else { continue };
        kept += 1;
        let block = blocks.at(op.launch_ns);
        add(2, block, op.ran_ns as f64);
        add(3, block, a.ran_ns as f64);
        ran[0] += op.ran_ns as f64;
        ran[1] += a.ran_ns as f64;
        if !counts_as_latency(&op, Some(&a)) {
            no_latency += 1;
            continue;
        }
        add(0, block, op.latency_ns() as f64);
        add(1, block, a.latency_ns as f64);
        if latencies {
            values[0].push(op.latency_ns());
            values[1].push(a.latency_ns);
        }
        let split = tenant.split(&op, switching).parts();
        let root = roots(split, a.parts, before);
        for (((sum, shared), without), root) in parts.iter_mut().zip(split).zip(a.parts).zip(root) {
            sum[0] += shared as f64;
            sum[1] += without as f64;
            sum[2] += root;
        }
        *delayed = root;
    }
    out.left_out = cut + no_latency;
    let mut other_reading = None;
    match clock {
        Clock::Own | Clock::Anchored(..) => {
            advances.finish(|before, shared, without| {
                let block = blocks.at(before.launch_ns);
                add(4, block, shared);
                add(5, block, without);
            });
            if let Clock::Anchored(_, until_moments, _) = clock {
                by_moments.finish(|_, shared, without| {
                    moments_ns[0] += shared;
                    moments_ns[1] += without;
                });
                let [a, b] = moments_ns;
                other_reading = (a > 0.0 && b > 0.0).then_some((a / b, *until_moments));
            }
        }
        Clock::ElapsedRatio(elapsed_ratio, _) => {
            // No counterpart in time: its end minus begin, and as long as the baseline took for as much work.
            // Of what a window cuts, the part in it is work as well: solo it is as much shorter as the rest was.
            let slower = if ran[1] > 0.0 { ran[0] / ran[1] } else { 1.0 };
            let mut last = None;
            for (n, op) in ops.iter().enumerate() {
                let without = match solo.of(n) {
                    Some(a) => a.ran_ns as f64,
                    None if op.cut() => op.ran_ns as f64 / slower,
                    None => continue,
                };
                let block = blocks.at(op.launch_ns);
                if let Some((launch, block)) = last.replace((op.launch_ns, block)) {
                    add(4, block, op.launch_ns.saturating_sub(launch) as f64);
                }
                add(5, block, elapsed_ratio * without);
            }
            if let (Some((launch, block)), Some(end)) = (last, ops.iter().map(|op| op.end_ns).max()) {
                add(4, block, end.saturating_sub(launch) as f64);
            }
        }
    }
    let paused = lone_pause_ns(ops, solo, clock);
    out.paused = paused.is_some();
    let column = |n: usize| sums.get(n).map_or(&[][..], Vec::as_slice);
    let names = [("elapsed", 4), ("latency", 0), ("resident", 2)];
    for (measure, n) in names {
        if measure == "latency" && !latencies {
            continue;
        }
        let (over, under) = (column(n), column(n + 1));
        let (shared_ns, solo_ns): (f64, f64) = (over.iter().sum(), under.iter().sum());
        if solo_ns <= 0.0 || shared_ns <= 0.0 {
            continue;
        }
        let readings = other_reading.filter(|_| measure == "elapsed").map(|(moments, until)| {
            // The part of pauses that end at moments is the part of that reading in the time solo.
            let solo = |part: f64| (1.0 - part) * solo_ns + part * shared_ns / moments;
            let (least, most) = (solo(until.least), solo(until.most));
            (if until.mostly() { solo(1.0) } else { solo_ns }, least, most)
        });
        let solo_ns = readings.map_or(solo_ns, |(solo_ns, ..)| solo_ns);
        let value = shared_ns / solo_ns;
        let mut bounds = doubt.bounds(measure, value).filter(|_| kept >= ENOUGH);
        if let (Some((low, high)), Some((_, least, most))) = (bounds, readings) {
            let (one, other) = (shared_ns / least, shared_ns / most);
            bounds = Some((low.min(one).min(other), high.max(one).max(other)));
        }
        if let (Some((low, high)), Some(pause), "elapsed") = (bounds, paused, measure) {
            bounds = Some((low * solo_ns / (solo_ns + pause), high));
        }
        if let (Clock::Anchored(.., unsure_ns), "elapsed") = (clock, measure) {
            let least_ns = solo_ns - *unsure_ns as f64;
            // What the interval does not allow for leaves a bound.
            let high = bounds.map_or((1.0 + LEAST_ADDED) * value, |(_, high)| high);
            if least_ns <= 0.0 || shared_ns / least_ns > high {
                bounds = Some((value, f64::INFINITY));
            }
        }
        let n = if measure == "latency" { kept - no_latency } else { kept };
        out.figures.push(Figure { measure, value, bounds, n, shared_ns, solo_ns });
    }
    if latencies {
        let [shared, without] = values.map(|values| values.quantiles(PERCENTILES.map(|(_, part)| part)));
        for ((measure, _), pair) in PERCENTILES.iter().zip(shared.into_iter().zip(without)) {
            let (Some(shared_ns), Some(solo_ns)) = pair else { continue };
            if solo_ns > 0.0 {
                let value = shared_ns / solo_ns;
                let n = kept - no_latency;
                out.figures.push(Figure { measure, value, bounds: None, n, shared_ns, solo_ns });
            }
        }
        let part = |(name, [shared_ns, solo_ns, root_ns]): (&&'static str, [f64; 3])| Part {
            name,
            shared_ns,
            solo_ns,
            root_ns,
        };
        out.parts = PARTS.iter().zip(parts).map(part).collect();
    }
    out
}

/// Latencies of operations, of which there are as many as kernels in a capture, in little memory.
#[derive(Debug)]
struct Latencies {
    /// Those below four seconds: nearly all.
    short_ns: Vec<u32>,
    others_ns: Vec<i64>,
}

impl Latencies {
    fn new(room: usize) -> Self {
        Self { short_ns: Vec::with_capacity(room), others_ns: Vec::new() }
    }

    fn push(&mut self, latency_ns: i64) {
        match u32::try_from(latency_ns) {
            Ok(short_ns) => self.short_ns.push(short_ns),
            Err(_) => self.others_ns.push(latency_ns),
        }
    }

    fn quantiles<const N: usize>(mut self, parts: [f64; N]) -> [Option<f64>; N] {
        if self.others_ns.is_empty() {
            return quantiles(&mut self.short_ns, u32::cmp, parts).map(|ns| ns.map(f64::from));
        }
        self.others_ns.extend(self.short_ns.into_iter().map(i64::from));
        quantiles(&mut self.others_ns, i64::cmp, parts).map(|ns| ns.map(|ns| ns as f64))
    }
}

/// Whether how long an operation took from its launch to its end is known, here and solo.
pub(crate) fn counts_as_latency(op: &Op, solo: Option<&SoloOp>) -> bool {
    let known = op.kind != WorkKind::Copy && !op.cut() && !op.no_latency();
    known && solo.is_some_and(|a| !a.held_up)
}

impl Compared {
    /// Holds percentiles against launches themselves, each with how many it stands for: those of means would be none.
    pub fn hold_against(&mut self, mut launches: Vec<(f64, f64)>) {
        let solo = weighted_quantiles(&mut launches, PERCENTILES.map(|(_, part)| part));
        for ((measure, _), solo_ns) in PERCENTILES.iter().zip(solo) {
            let figure = self.figures.iter_mut().find(|figure| figure.measure == *measure);
            if let (Some(figure), Some(solo_ns)) = (figure, solo_ns) {
                (figure.solo_ns, figure.value) = (solo_ns, figure.shared_ns / solo_ns);
            }
        }
    }
}

/// A pause of the host that came once, and that the baseline does not have; `None` without one, and for a replay, which
/// has the pauses of the run itself.
fn lone_pause_ns(ops: &Ops, solo: &impl Reference, clock: &Clock<'_>) -> Option<f64> {
    if matches!(clock, Clock::Anchored(..) | Clock::ElapsedRatio(_, true)) {
        return None;
    }
    // What a program did before it began its work has no counterpart.
    let begun = ops.iter().enumerate().position(|(n, _)| solo.of(n).is_some())?;
    let worked = ops.from(begun);
    let pause = Pause::longest(worked.clone());
    let place = begun.saturating_add(pause.place);
    let theirs_ns = if matches!(clock, Clock::Own) {
        let launch = |n: usize| solo.of(n)?.launch_ns;
        launch(place)?.saturating_sub(launch(place.checked_sub(1)?)?)
    } else {
        0
    };
    let lone = pause.is_lone(worked) && theirs_ns < pause.ns / 2;
    lone.then_some(pause.ns as f64)
}

pub(crate) const PERCENTILES: [(&str, f64); 3] =
    [("latency_p50", 0.5), ("latency_p95", 0.95), ("latency_p99", 0.99)];

/// Solves a small system; `None` where it is singular.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for pivot in 0..n {
        let best = (pivot..n).max_by(|x, y| {
            let size = |r: &usize| a.get(*r).and_then(|row| row.get(pivot)).map_or(0.0, |v| v.abs());
            size(x).total_cmp(&size(y))
        })?;
        a.swap(pivot, best);
        b.swap(pivot, best);
        let row = a.get(pivot)?.clone();
        let (head, value) = (*row.get(pivot)?, *b.get(pivot)?);
        if head.abs() < 1e-9 {
            return None;
        }
        for other in (0..n).filter(|o| *o != pivot) {
            let factor = *a.get(other)?.get(pivot)? / head;
            for (x, y) in a.get_mut(other)?.iter_mut().zip(&row) {
                *x -= factor * y;
            }
            *b.get_mut(other)? -= factor * value;
        }
    }
    (0..n).map(|n| Some(b.get(n)? / a.get(n)?.get(n)?)).collect()
}

/// Added latency of each operation by the time in which each other's work could run between its launch and its end.
/// No constant: without others nothing is added.
fn aggressor_shares(
    tenant: &Tenancy,
    solo: &impl Reference,
    blocks: &Blocks,
    draws: &Resamples,
) -> Vec<AggressorShare> {
    let rows = || {
        let whole = |op: &Op| op.kind != WorkKind::Copy && !op.cut() && !op.early;
        let work = tenant.ops.iter().enumerate().filter(move |(_, op)| whole(op));
        work.filter_map(|(n, op)| Some((op, op.latency_ns().saturating_sub(solo.of(n)?.latency_ns) as f64)))
    };
    if rows().take(ENOUGH).count() < ENOUGH {
        return Vec::new();
    }
    let each = tenant.present.during(rows().map(|(op, _)| (op.launch_ns, op.end_ns)), tenant.id);
    // Time-sliced tenants run one at a time: whose turn it was is a matter of record, not of regression.
    if tenant.ran.is_some() && tenant.beside.total_ns() == 0 {
        return turns(rows(), &each, blocks, draws);
    }
    let mut exposed: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (other, union) in &each {
        let mut walk = Walk::default();
        let mut times = Vec::with_capacity(tenant.ops.len());
        times.extend(rows().map(|(op, _)| walk.covered_ns(union, op.launch_ns, op.end_ns) as f64));
        if times.iter().any(|t| *t > 0.0) {
            exposed.insert(*other, times);
        }
    }
    let ids: Vec<u32> = exposed.keys().copied().collect();
    let columns: Vec<&Vec<f64>> = exposed.values().collect();
    let Some(count) = columns.first().map(|column| column.len()) else { return Vec::new() };
    let total = |c: &[f64]| c.iter().sum::<f64>();
    // Who always comes together is looked at together: the pair's sum stands for both.
    let mut with: BTreeMap<u32, u32> = BTreeMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (n, column) in columns.iter().enumerate() {
        let near = groups.iter_mut().find(|group| {
            group.iter().any(|m| columns.get(*m).is_some_and(|c| correlation(c, column) > COLLINEAR))
        });
        match near {
            Some(group) => {
                if let (Some(a), Some(b)) = (group.first().and_then(|m| ids.get(*m)), ids.get(n)) {
                    with.insert(*b, *a);
                    with.entry(*a).or_insert(*b);
                }
                group.push(n);
            }
            None => groups.push(vec![n]),
        }
    }
    let k = groups.len();
    // Per block: products of exposures, products with what was added, exposures, what was added.
    let mut products = vec![vec![0.0; blocks.count]; k * k + 2 * k + 1];
    let mut x = vec![0.0; k];
    for (row, (op, added)) in rows().enumerate() {
        let block = blocks.at(op.launch_ns);
        for (slot, group) in x.iter_mut().zip(&groups) {
            *slot = group.iter().filter_map(|n| columns.get(*n)?.get(row)).sum::<f64>() / 1e6;
        }
        let y = added / 1e6;
        let pairs = x.iter().flat_map(|a| x.iter().map(move |b| a * b));
        let values = pairs.chain(x.iter().map(|a| a * y)).chain(x.iter().copied()).chain([y]);
        for (column, value) in products.iter_mut().zip(values) {
            if let Some(slot) = column.get_mut(block) {
                *slot += value;
            }
        }
    }
    let shares = |sums: &[f64]| -> Option<Vec<f64>> {
        let matrix: Vec<Vec<f64>> =
            (0..k).map(|i| (0..k).map(|j| sums.get(i * k + j).copied().unwrap_or(0.0)).collect()).collect();
        let right: Vec<f64> = (0..k).map(|i| sums.get(k * k + i).copied().unwrap_or(0.0)).collect();
        let slopes = solve(matrix, right)?;
        let added = *sums.get(k * k + 2 * k)?;
        if added <= 0.0 {
            return None;
        }
        let exposure = |i: usize| sums.get(k * k + k + i).copied().unwrap_or(0.0);
        Some(slopes.iter().enumerate().map(|(i, slope)| slope * exposure(i) / added).collect())
    };
    let sums: Vec<f64> = products.iter().map(|c| total(c)).collect();
    let values = shares(&sums);
    let filled = products.last().map_or(0, |c| c.iter().filter(|v| **v != 0.0).count());
    let mut drawn: Vec<Vec<f64>> = vec![Vec::new(); k];
    if values.is_some() {
        for sums in draws.sums(&products) {
            if let Some(one) = shares(&sums) {
                for (slot, value) in drawn.iter_mut().zip(one) {
                    slot.push(value);
                }
            }
        }
    }
    let mut out = Vec::new();
    for (group, drawn) in groups.iter().zip(drawn).enumerate().map(|(g, (group, d))| ((g, group), d)) {
        let (g, members) = group;
        let value = values.as_ref().and_then(|v| v.get(g)).copied();
        let bounds = value.and_then(|v| draws.interval(v, drawn, filled));
        for member in members {
            let (Some(id), Some(column)) = (ids.get(*member), columns.get(*member)) else { continue };
            let separable = members.len() == 1;
            out.push(AggressorShare {
                aggressor: *id,
                exposure_ns: total(column),
                share: value.filter(|_| separable).map(|v| (v, bounds)),
                with: with.get(id).copied(),
                n: count,
            });
        }
    }
    out.sort_by_key(|b| b.aggressor);
    out
}

/// Added latency by whose turn it was; what the turns do not explain is nobody's.
fn turns(
    rows: impl Iterator<Item = (Op, f64)>,
    each: &[(u32, &Union)],
    blocks: &Blocks,
    draws: &Resamples,
) -> Vec<AggressorShare> {
    // Per block: what was added, all turns, the turns of each other.
    let mut columns = vec![vec![0.0; blocks.count]; each.len() + 2];
    let mut enter = |column: usize, block: usize, value: f64| {
        if let Some(slot) = columns.get_mut(column).and_then(|c| c.get_mut(block)) {
            *slot += value;
        }
    };
    let mut walks = vec![Walk::default(); each.len()];
    let mut count = 0;
    for (op, added) in rows {
        count += 1;
        let block = blocks.at(op.launch_ns);
        enter(0, block, added);
        for (n, ((_, union), walk)) in each.iter().zip(&mut walks).enumerate() {
            let time = walk.covered_ns(union, op.launch_ns, op.end_ns) as f64;
            enter(1, block, time);
            enter(n + 2, block, time);
        }
    }
    let filled = columns.first().map_or(0, |c| c.iter().filter(|v| **v != 0.0).count());
    let share = |s: &[f64; 3]| {
        let [added, all, own] = *s;
        // Turns that were waited out anyway, for other reasons, cannot have added more than was added.
        if added > 0.0 {
            own / all.max(added)
        } else {
            f64::NAN
        }
    };
    let total = |c: &Vec<f64>| c.iter().sum::<f64>();
    each.iter()
        .enumerate()
        .filter_map(|(n, (id, _))| {
            let (added, all, own) = (columns.first()?, columns.get(1)?, columns.get(n + 2)?);
            if total(own) <= 0.0 {
                return None;
            }
            let value = share(&[total(added), total(all), total(own)]);
            let drawn = draws.replicates(&[added, all, own], share);
            let share = value.is_finite().then(|| (value, draws.interval(value, drawn, filled)));
            Some(AggressorShare { aggressor: *id, exposure_ns: total(own), share, with: None, n: count })
        })
        .collect()
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let (ma, mb) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        ab += (x - ma) * (y - mb);
        aa += (x - ma).powi(2);
        bb += (y - mb).powi(2);
    }
    if aa > 0.0 && bb > 0.0 {
        ab / (aa * bb).sqrt()
    } else {
        // Exposures that never vary go together with everything.
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::{roots, Latencies};

    #[test]
    fn percentiles_of_latencies_that_32_bits_hold_and_of_others() {
        let long_ns = i64::from(u32::MAX) + 1;
        let of = |latencies_ns: [i64; 4]| {
            let mut all = Latencies::new(4);
            latencies_ns.into_iter().for_each(|ns| all.push(ns));
            all.quantiles([0.25, 0.5, 0.99])
        };
        assert_eq!(of([9, 1, 7, 3]), [Some(1.0), Some(3.0), Some(9.0)]);
        // A clock may give an end before the launch.
        assert_eq!(of([9, long_ns, -2, 3]), [Some(-2.0), Some(3.0), Some(long_ns as f64)]);
        assert_eq!(Latencies::new(0).quantiles([0.5]), [None]);
    }

    #[test]
    fn what_waits_in_a_queue_waits_for_what_delayed_the_one_before_it() {
        // Launch, own queue, other queue, not resident, switch, execution. The first waits 80 for its slice and 20 for the
        // switch; the second for the first alone, and 10 more than solo at work; the third for both.
        let first = roots([1, 0, 0, 80, 20, 5], [1, 0, 0, 0, 0, 5], [0.0; 6]);
        assert_eq!(first, [0.0, 0.0, 0.0, 80.0, 20.0, 0.0]);
        let second = roots([1, 104, 0, 0, 0, 15], [1, 4, 0, 0, 0, 5], first);
        assert_eq!(second, [0.0, 0.0, 0.0, 80.0, 20.0, 10.0]);
        let third = roots([1, 119, 0, 0, 0, 5], [1, 9, 0, 0, 0, 5], second);
        assert_eq!(third, [0.0, 0.0, 0.0, 80.0, 20.0, 10.0]);
        // It waits for more than the one before it was late, the host was faster: that stays the queue's.
        let fourth = roots([1, 159, 0, 0, 0, 5], [1, 9, 0, 0, 0, 5], third);
        assert_eq!(fourth, [0.0, 40.0, 0.0, 80.0, 20.0, 10.0]);
        // A longer launch call, and what was faster than solo, delay nobody.
        let fifth = roots([1, 60, 0, 0, 0, 5], [1, 0, 0, 0, 0, 5], [70.0, 0.0, -50.0, 60.0, 0.0, 0.0]);
        assert_eq!(fifth, [0.0, 0.0, 0.0, 60.0, 0.0, 0.0]);
    }
}
