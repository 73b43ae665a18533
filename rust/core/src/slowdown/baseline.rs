//! Match a tenant's operations with those of its solo recording.
//!
//! The k-th operation of a signature stands for the k-th of the same signature. Where both runs did the same work in
//! the same mix, every operation has its counterpart, and the runs are compared operation by operation (`aligned`).
//! Otherwise each operation is compared with the mean of its signature, percentiles with those of the baseline's
//! operations, and elapsed time with the baseline's elapsed time per unit of kernel time.

use std::collections::BTreeMap;

use crate::base::intervals::Union;
use crate::base::maps::NumberMap;
use crate::base::pauses::{work_begins, PAUSE_PART, STARTUP_PART};
use crate::slowdown::compare::counts_as_latency;
use crate::slowdown::counterfactual::SoloOp;
use crate::slowdown::operations::{Op, Tenancy};
use crate::slowdown::ops::Ops;
use crate::table::work::WorkKind;

/// Of the operations, at least this part has a counterpart where runs are laid beside each other.
const ALIGNED_PART: f64 = 0.98;

/// A pause of the host so many times as long as any other comes once: nothing says whether it would have come solo. A
/// trainer on an H100 paused for 69 ms, and for at most 7 ms otherwise.
const LONE_TIMES: f64 = 5.0;

/// A tenant's work as a baseline did it.
#[derive(Debug)]
pub(crate) struct Matched {
    pub ops: Vec<Option<SoloOp>>,
    pub aligned: bool,
    /// Unless `aligned`: latency of each kernel and graph of the baseline in ns, and how many of the tenant it stands for.
    pub latencies: Vec<(f64, f64)>,
    /// First launch to last end of the baseline over the execution time in it: the elapsed_ratio of its host.
    pub elapsed_ratio: Option<f64>,
    /// The host of the baseline paused once: `elapsed_ratio` has that in it.
    pub paused: bool,
}

fn span_ns(mut ops: impl Iterator<Item = Op>) -> Option<i64> {
    let one = ops.next()?;
    let wider = |(first, last): (i64, i64), op: Op| (first.min(op.launch_ns), last.max(op.end_ns));
    let (first, last) = ops.fold((one.launch_ns, one.end_ns), wider);
    Some(last.saturating_sub(first))
}

/// The longest time in which a program had nothing in flight and launched nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pause {
    pub ns: i64,
    /// The operation behind it.
    pub place: usize,
    /// The next longest.
    next_ns: i64,
}

impl Pause {
    /// Of operations in order of their starts.
    pub fn longest(ops: impl Iterator<Item = Op> + Clone) -> Self {
        let mut found = Self::default();
        for (pause_ns, n) in pauses(ops) {
            if pause_ns > found.ns {
                found = Self { ns: pause_ns, place: n, next_ns: found.ns };
            } else {
                found.next_ns = found.next_ns.max(pause_ns);
            }
        }
        found
    }

    /// Whether it came once: it is a part of all the time that counts, and much longer than any other.
    pub fn is_lone(&self, ops: impl Iterator<Item = Op>) -> bool {
        self.ns as f64 >= PAUSE_PART * span_ns(ops).unwrap_or(0) as f64
            && self.ns as f64 >= LONE_TIMES * self.next_ns as f64
    }
}

/// Times in which a program had nothing in flight and launched nothing, each with the place of the operation behind it.
fn pauses(ops: impl Iterator<Item = Op> + Clone) -> impl Iterator<Item = (i64, usize)> + Clone {
    let mut until_ns = i64::MAX;
    ops.enumerate().map(move |(n, op)| {
        let pause_ns = op.launch_ns.saturating_sub(until_ns).max(0);
        until_ns = if n == 0 { op.end_ns } else { until_ns.max(op.end_ns) };
        (pause_ns, n)
    })
}

/// Operations before the pause after which a program begins its work, in order of their starts.
fn before_work(ops: &Ops) -> usize {
    let whole: f64 = ops.iter().map(|op| op.ran_ns as f64).sum();
    let mut done = 0.0;
    let begun = ops.iter().position(|op| {
        done += op.ran_ns as f64;
        done > STARTUP_PART * whole
    });
    work_begins(pauses(ops.iter()), begun.unwrap_or(0), span_ns(ops.iter()).unwrap_or(0))
}

/// How much of the tenant's work, and of the other's, is of signatures that both have.
pub(crate) fn likeness(tenant: &Tenancy, other: &Tenancy) -> f64 {
    let sums = |t: &Tenancy| {
        let mut sums: NumberMap<u32, f64> = NumberMap::default();
        for op in t.ops.iter() {
            *sums.entry(op.signature).or_default() += op.ran_ns as f64;
        }
        // Sums of floats depend on their order.
        sums.into_iter().collect::<BTreeMap<u32, f64>>()
    };
    let (a, b) = (sums(tenant), sums(other));
    let part = |x: &BTreeMap<u32, f64>, y: &BTreeMap<u32, f64>| {
        let whole: f64 = x.values().sum();
        let both: f64 = x.iter().filter(|(s, _)| y.contains_key(*s)).map(|(_, v)| v).sum();
        if whole > 0.0 {
            both / whole
        } else {
            0.0
        }
    };
    part(&a, &b).min(part(&b, &a))
}

/// Lays a baseline beside a tenant.
pub(crate) fn matched(tenant: &Tenancy, base: &Tenancy, switching: Option<&Union>) -> Matched {
    let mut queues: NumberMap<u32, Vec<usize>> = NumberMap::default();
    for (n, op) in base.ops.iter().enumerate() {
        queues.entry(op.signature).or_default().push(n);
    }
    let mut used: NumberMap<u32, usize> = NumberMap::default();
    let mut pairs: Vec<Option<usize>> = Vec::with_capacity(tenant.ops.len());
    for op in tenant.ops.iter() {
        let taken = used.entry(op.signature).or_insert(0);
        let found = queues.get(&op.signature).and_then(|q| q.get(*taken)).copied();
        *taken += 1;
        pairs.push(found);
    }
    let found = pairs.iter().flatten().count();
    let until = pairs.iter().flatten().max().map_or(0, |n| n + 1);
    let aligned = found as f64 >= ALIGNED_PART * tenant.ops.len().min(base.ops.len()) as f64
        && found as f64 >= ALIGNED_PART * until as f64
        && found * 2 >= tenant.ops.len();
    let (startup, base_startup) = (before_work(&tenant.ops), before_work(&base.ops));
    let worked = base.ops.from(base_startup);
    let ran: f64 = worked.clone().map(|op| op.ran_ns as f64).sum();
    let paused = Pause::longest(worked.clone()).is_lone(worked.clone());
    let elapsed_ratio = span_ns(worked.clone()).filter(|_| ran > 0.0).map(|span| span as f64 / ran);
    let of = |op: Op| SoloOp {
        latency_ns: op.latency_ns(),
        ran_ns: op.ran_ns,
        parts: base.split(&op, switching).parts(),
        launch_ns: Some(op.launch_ns),
        held_up: op.no_latency(),
    };
    let mut latencies: Vec<(u32, i64)> = Vec::new();
    let mut ops: Vec<Option<SoloOp>> = if aligned {
        let in_work = |n: &usize| *n >= base_startup;
        pairs.into_iter().map(|pair| pair.filter(in_work).and_then(|n| base.ops.get(n)).map(of)).collect()
    } else {
        let mut means: NumberMap<u32, ([f64; 8], f64)> = NumberMap::default();
        // Not of launches that something held up, unless all of a kind were.
        let held_up: NumberMap<u32, bool> = worked.clone().fold(NumberMap::default(), |mut all, op| {
            let every = all.entry(op.signature).or_insert(true);
            *every &= op.no_latency();
            all
        });
        let usual = |op: &Op| !op.no_latency() || held_up.get(&op.signature) == Some(&true);
        for op in worked.filter(usual) {
            let solo = of(op);
            let (sums, n) = means.entry(op.signature).or_default();
            let values = [solo.latency_ns, solo.ran_ns].into_iter().chain(solo.parts);
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value as f64;
            }
            *n += 1.0;
            if op.kind != WorkKind::Copy {
                latencies.push((op.signature, op.latency_ns()));
            }
        }
        let mean = |op: Op| {
            let ([latency, ran, parts @ ..], n) = means.get(&op.signature)?;
            Some(SoloOp {
                latency_ns: (latency / n).round() as i64,
                ran_ns: (ran / n).round() as i64,
                parts: parts.map(|p| (p / n).round() as i64),
                launch_ns: None,
                held_up: held_up.get(&op.signature) == Some(&true),
            })
        };
        tenant.ops.iter().map(mean).collect()
    };
    // A part of a kernel beside all of its like would look like a kernel that got faster.
    for (n, (slot, op)) in ops.iter_mut().zip(tenant.ops.iter()).enumerate() {
        if op.cut() || n < startup {
            *slot = None;
        }
    }
    let latencies = in_the_mix_of(tenant, &ops, &latencies);
    Matched { ops, aligned, latencies, elapsed_ratio, paused }
}

/// Latencies of a baseline by signature, each with the part of the tenant's operations of that signature that it stands for.
fn in_the_mix_of(tenant: &Tenancy, solo: &[Option<SoloOp>], latencies: &[(u32, i64)]) -> Vec<(f64, f64)> {
    let mut counts: NumberMap<u32, (u32, u32)> = NumberMap::default();
    for (signature, _) in latencies {
        counts.entry(*signature).or_default().1 += 1;
    }
    for (op, _) in tenant.ops.iter().zip(solo).filter(|(op, solo)| counts_as_latency(op, solo.as_ref())) {
        counts.entry(op.signature).and_modify(|(shared, _)| *shared += 1);
    }
    let weighed = latencies.iter().filter_map(|(signature, latency_ns)| {
        let (shared, alone) = counts.get(signature)?;
        Some((*latency_ns as f64, f64::from(*shared) / f64::from(*alone)))
    });
    weighed.filter(|(_, weight)| *weight > 0.0).collect()
}
