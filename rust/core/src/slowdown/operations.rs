//! What did each tenant ask for, when, and where did the time until it was done go?
//!
//! ```text
//!   launch call  |==|
//!   own stream       |== kernel before ==|
//!   resident      ==============|           |==========|        |====
//!   operation                            .  . |=========--------====|
//!                |la| queue, own stream  |nr| execution    nr    exec |
//! ```
//!
//! An operation is a kernel, a whole graph or a copy. Its latency runs from the begin of the launch call (the begin of
//! its interval where calls were not captured) to its end, and splits into parts that sum to it.

use std::collections::{BTreeMap, HashMap};

use crate::error::Result;
use crate::fold::{Chunk, Tables};
use crate::residency::{at, Slice};
use crate::schema::{self, Columns};
use crate::statistics::median;
use crate::tenants::{work, Union, Who, Work, WorkKind};
use crate::watch::Watch;

/// Engine idle for longer between two slices: no switch. As in `residency.rs`.
const IDLE_GAP_NS: i64 = 1_000_000;

/// Squared differences in times switched out that a slope needs.
pub(crate) const ENOUGH_CUTS: f64 = 5.0;
/// First kernels of slices, and others, that a median needs.
const ENOUGH_STARTS: usize = 5;
/// Restoring's part of saving and restoring; the rest is saving.
const RESTORE_PART: f64 = 0.4;
/// More than any board was seen to take for saving and restoring a context's state.
const MOST_STATE_NS: f64 = 200_000.0;

/// Equal work: what is compared with what.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Signature {
    pub kind: WorkKind,
    pub name: Option<String>,
    pub grid: [Option<u32>; 3],
    pub block: [Option<u32>; 3],
    /// Dynamic shared memory of a kernel, bytes of a copy.
    pub bytes: Option<i64>,
}

/// Signatures by number, the same for a session and its baselines.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    numbers: HashMap<Signature, u32>,
    pub list: Vec<Signature>,
}

impl Signatures {
    fn number(&mut self, signature: &Signature) -> u32 {
        if let Some(number) = self.numbers.get(signature) {
            return *number;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.numbers.insert(signature.clone(), number);
        self.list.push(signature.clone());
        number
    }
}

/// Who else was there while an operation was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Nobody, from its launch to its end.
    Alone,
    /// Nobody from its start to its end, but before.
    Waited,
    /// Somebody between its start and its end.
    Contended,
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    pub kind: WorkKind,
    pub company: Company,
    /// The first of its signature: warm-up, loading, first touch.
    pub first: bool,
    pub signature: u32,
    pub stream: u32,
    /// Index into the calls of its process.
    pub call: Option<u32>,
    pub launch_ns: i64,
    pub called_ns: i64,
    pub ready_ns: i64,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Of start to end, its context ran.
    pub ran_ns: i64,
    /// Of that, while work of others could have run as well.
    pub beside_ns: i64,
}

impl Op {
    pub fn latency_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.launch_ns)
    }
}

/// A call of the CUDA API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub start_ns: i64,
    pub end_ns: i64,
    pub thread: u32,
    /// It may wait for the device.
    pub waits: bool,
}

/// A tenant with its operations, by launch.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    pub id: u32,
    pub device: u32,
    pub traced: bool,
    /// (capture, pid).
    pub process: (u32, Option<u32>),
    pub ops: Vec<Op>,
    /// When its context ran; none: no records say.
    pub ran: Option<Union>,
    /// `ran` is CONTEXT_START to acknowledgement; else residency, which holds the saving and restoring of state.
    pub exact: bool,
    pub busy: Union,
    /// Others had work on the device (recorded intervals, or residency of those not traced).
    pub others: Union,
    /// Others' work could have run at the same time as its own.
    pub beside: Union,
    /// By tenant: when that other's work could run.
    pub each: BTreeMap<u32, Union>,
    /// Somebody else with work on the device was not traced and has no residency of its own.
    pub strangers: bool,
}

/// Everything that the comparison looks at.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    pub tenants: Vec<Tenancy>,
    /// Calls by process, by start.
    pub calls: BTreeMap<(u32, Option<u32>), Vec<Call>>,
    /// Switches on a device, from the last moment of one context to the first of the next.
    pub switching: BTreeMap<u32, Union>,
}

/// Where the latency of an operation went; sums to it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Split {
    pub launch_ns: i64,
    pub queue_own_ns: i64,
    pub queue_other_ns: i64,
    pub not_resident_ns: i64,
    pub switch_ns: i64,
    pub execution_ns: i64,
}

impl Split {
    pub fn parts(&self) -> [i64; 6] {
        [
            self.launch_ns,
            self.queue_own_ns,
            self.queue_other_ns,
            self.not_resident_ns,
            self.switch_ns,
            self.execution_ns,
        ]
    }
}

/// Time that both cover, as a union.
pub(crate) fn common(a: &Union, b: &Union) -> Union {
    let mut out = Union::default();
    let (mut left, mut right) = (a.spans().iter().peekable(), b.spans().iter().peekable());
    while let (Some(x), Some(y)) = (left.peek(), right.peek()) {
        out.add(x.0.max(y.0), x.1.min(y.1));
        if x.1 <= y.1 {
            left.next();
        } else {
            right.next();
        }
    }
    out
}

impl Tenancy {
    /// Splits the latency of an operation.
    pub fn split(&self, op: &Op, switching: Option<&Union>) -> Split {
        let mut split = Split::default();
        let called = op.called_ns.clamp(op.launch_ns, op.start_ns.max(op.launch_ns));
        let ready = op.ready_ns.clamp(called, op.start_ns.max(called));
        split.launch_ns = called.saturating_sub(op.launch_ns);
        split.queue_own_ns = ready.saturating_sub(called);
        let covered = |union: Option<&Union>, a: i64, b: i64| union.map_or(0, |u| u.covered_ns(a, b));
        let waited = op.start_ns.saturating_sub(ready).max(0);
        // Copies need no turn on the compute engine.
        let ran = self.ran.as_ref().filter(|_| op.kind != WorkKind::Copy);
        let resident = ran.map_or(waited, |r| r.covered_ns(ready, op.start_ns)).min(waited);
        let out = waited.saturating_sub(resident);
        let switch = out.min(covered(switching, ready, op.start_ns));
        let own = resident.min(self.busy.covered_ns(ready, op.start_ns));
        let other = resident.saturating_sub(own).min(self.beside.covered_ns(ready, op.start_ns));
        split.queue_other_ns = other;
        split.queue_own_ns = split.queue_own_ns.saturating_add(resident.saturating_sub(other));
        let dur = op.end_ns.saturating_sub(op.start_ns);
        split.execution_ns = op.ran_ns.min(dur);
        let inside = dur.saturating_sub(split.execution_ns);
        let switch_inside = inside.min(covered(switching, op.start_ns, op.end_ns));
        split.switch_ns = switch.saturating_add(switch_inside);
        split.not_resident_ns =
            out.saturating_sub(switch).saturating_add(inside.saturating_sub(switch_inside));
        split
    }
}

/// Names of calls that may return only when the device has done something.
fn waits(name: &str) -> bool {
    name.contains("Synchronize") || name.contains("cudaMemcpy_") || name.contains("cuMemcpyDtoH_")
}

/// Dictionary key of the name, grid and block, dynamic shared memory.
type Configuration = (Option<u32>, [Option<u32>; 6], Option<i64>);
/// Tenant, context, stream.
type StreamKey = (u32, Option<u32>, Option<u32>);
type CallsByProcess = BTreeMap<(u32, Option<u32>), (Vec<Call>, HashMap<u32, u32>)>;

fn calls(tables: &Tables) -> Result<CallsByProcess> {
    let mut out = CallsByProcess::new();
    let Some(batch) = tables.get(schema::API_CALLS.name) else { return Ok(out) };
    let columns = Columns::new(&schema::API_CALLS, batch);
    let (capture, pid, tid) = (columns.u32("capture")?, columns.u32("pid")?, columns.u32("tid")?);
    let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    let (name, correlation) = (columns.names("name")?, columns.u32("correlation_id")?);
    let mut known: HashMap<u32, bool> = HashMap::new();
    for row in 0..columns.rows() {
        let (calls, by_correlation) = out.entry((capture.value(row), at(pid, row))).or_default();
        let may_wait = name
            .key(row)
            .is_some_and(|key| *known.entry(key).or_insert_with(|| name.get(row).is_some_and(waits)));
        if let Some(id) = at(correlation, row) {
            // A driver call inside a runtime call has the same id: the outer one came first.
            by_correlation.entry(id).or_insert(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        }
        calls.push(Call {
            start_ns: start.value(row),
            end_ns: end.value(row).max(start.value(row)),
            thread: at(tid, row).unwrap_or(0),
            waits: may_wait,
        });
    }
    Ok(out)
}

/// Numbers of the signatures of each row of the three tables of work.
fn signatures_of(tables: &Tables, signatures: &mut Signatures) -> Result<[Vec<u32>; 3]> {
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    let [kernels_out, graphs_out, copies_out] = &mut out;
    if let Some(batch) = tables.get(schema::KERNELS.name) {
        let c = Columns::new(&schema::KERNELS, batch);
        let name = c.names("name")?;
        let grid = [c.u32("grid_x")?, c.u32("grid_y")?, c.u32("grid_z")?];
        let block = [c.u32("block_x")?, c.u32("block_y")?, c.u32("block_z")?];
        let shared = c.i64("dynamic_shared_bytes")?;
        // By dictionary key first: text is compared once per configuration, not once per row.
        let mut seen: HashMap<Configuration, u32> = HashMap::new();
        for row in 0..c.rows() {
            let shape = [
                at(grid[0], row),
                at(grid[1], row),
                at(grid[2], row),
                at(block[0], row),
                at(block[1], row),
                at(block[2], row),
            ];
            let key = (name.key(row), shape, at(shared, row));
            let number = *seen.entry(key).or_insert_with(|| {
                signatures.number(&Signature {
                    kind: WorkKind::Kernel,
                    name: name.get(row).map(str::to_owned),
                    grid: [shape[0], shape[1], shape[2]],
                    block: [shape[3], shape[4], shape[5]],
                    bytes: key.2,
                })
            });
            kernels_out.push(number);
        }
    }
    let plain = |kind, name: String, bytes| Signature {
        kind,
        name: Some(name),
        grid: [None; 3],
        block: [None; 3],
        bytes,
    };
    if let Some(batch) = tables.get(schema::GRAPH_LAUNCHES.name) {
        let c = Columns::new(&schema::GRAPH_LAUNCHES, batch);
        let graph = c.u64("graph_id")?;
        for row in 0..c.rows() {
            let name = at(graph, row).map_or("graph".to_owned(), |id| format!("graph {id}"));
            graphs_out.push(signatures.number(&plain(WorkKind::Graph, name, None)));
        }
    }
    if let Some(batch) = tables.get(schema::MEMOPS.name) {
        let c = Columns::new(&schema::MEMOPS, batch);
        let (operation, bytes) = (c.names("operation")?, c.i64("bytes")?);
        for row in 0..c.rows() {
            let name = operation.get(row).unwrap_or("copy").to_owned();
            copies_out.push(signatures.number(&plain(WorkKind::Copy, name, Some(bytes.value(row)))));
        }
    }
    Ok(out)
}

/// Residency by tenant, and switches by device.
type Held = (BTreeMap<u32, (Union, bool)>, BTreeMap<u32, Union>);

fn held(tables: &Tables) -> Result<Held> {
    let mut slices = tables.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
    slices.sort_by_key(|s| (s.device, s.start_ns));
    let exact = |s: &Slice| s.running_start_ns.is_some() && s.running_end_ns.is_some();
    let mut spans: BTreeMap<u32, Vec<&Slice>> = BTreeMap::new();
    for s in &slices {
        if let Some(tenant) = s.tenant {
            spans.entry(tenant).or_default().push(s);
        }
    }
    let mut switching: BTreeMap<u32, Union> = BTreeMap::new();
    for pair in slices.windows(2) {
        let [a, b] = pair else { continue };
        let gap = b.start_ns.saturating_sub(a.end_ns);
        if a.device == b.device && a.hw_context != b.hw_context && gap <= IDLE_GAP_NS {
            let from = a.running_end_ns.unwrap_or(a.end_ns);
            let to = b.running_start_ns.unwrap_or(b.start_ns);
            switching.entry(a.device).or_default().add(from, to);
        }
    }
    let ran = spans
        .into_iter()
        .map(|(tenant, of)| {
            // The last slice may be cut off by the end of the records.
            let all = of.iter().filter(|s| s.complete).all(|s| exact(s));
            let span = |s: &&Slice| {
                if all {
                    (s.running_start_ns.unwrap_or(s.start_ns), s.running_end_ns.unwrap_or(s.end_ns))
                } else {
                    (s.start_ns, s.end_ns)
                }
            };
            (tenant, (Union::of(of.iter().map(span)), all))
        })
        .collect();
    Ok((ran, switching))
}

impl Scene {
    /// Reads a reconstructed session.
    pub fn read(tables: &Tables, signatures: &mut Signatures, watch: &dyn Watch) -> Result<Self> {
        let who = Who::read(tables)?;
        let (held, switching) = held(tables)?;
        let numbers = signatures_of(tables, signatures)?;
        let mut by_process = calls(tables)?;
        let mut tenants: Vec<Tenancy> = who
            .tenants
            .iter()
            .map(|t| {
                let own = held.get(&t.id).or_else(|| t.served_by.and_then(|server| held.get(&server)));
                Tenancy {
                    id: t.id,
                    device: t.device,
                    traced: t.traced,
                    process: (t.capture.unwrap_or(0), t.pid),
                    ran: own.map(|h| h.0.clone()),
                    exact: own.is_some_and(|h| h.1),
                    ..Tenancy::default()
                }
            })
            .collect();
        let whole = Chunk { tables: tables.clone(), until_ns: i64::MAX };
        let mut streams: HashMap<StreamKey, (u32, i64)> = HashMap::new();
        for (n, w) in work(&whole)?.enumerate() {
            if n.is_multiple_of(65_536) {
                watch.progress("operations", n as u64, 0)?;
            }
            let Some(id) = who.of(w.capture, w.pid, w.device) else { continue };
            let Some(tenant) = tenants.get_mut(id as usize) else { continue };
            let of_kind = match w.kind {
                WorkKind::Kernel => &numbers[0],
                WorkKind::Graph => &numbers[1],
                WorkKind::Copy => &numbers[2],
            };
            let count = u32::try_from(streams.len()).unwrap_or(u32::MAX);
            let stream = streams.entry((id, w.context, w.stream)).or_insert((count, i64::MIN));
            let call = w.correlation.and_then(|c| {
                let (calls, by_correlation) = by_process.get(&(w.capture, w.pid))?;
                let index = *by_correlation.get(&c)?;
                calls.get(index as usize).map(|call| (index, *call))
            });
            tenant.push(&w, of_kind.get(w.row).copied().unwrap_or(0), *stream, call);
            stream.1 = stream.1.max(w.end_ns);
        }
        let calls = std::mem::take(&mut by_process).into_iter().map(|(k, (calls, _))| (k, calls)).collect();
        let mut scene = Self { tenants, calls, switching };
        scene.without_state();
        scene.see_others(&who);
        for tenant in &mut scene.tenants {
            tenant.finish(signatures.list.len());
        }
        Ok(scene)
    }

    /// Takes the saving and restoring of state out of residency where records do not say how long they took: kernels of
    /// one signature that were switched out more often inside stayed longer by that.
    fn without_state(&mut self) {
        let mut sums: BTreeMap<u32, (f64, f64, Vec<i64>, Vec<i64>)> = BTreeMap::new();
        for tenant in self.tenants.iter().filter(|t| !t.exact) {
            let (over, under) = tenant.cut_slope();
            let sum = sums.entry(tenant.device).or_default();
            sum.0 += over;
            sum.1 += under;
            tenant.first_starts(&mut sum.2, &mut sum.3);
        }
        for (device, (over, under, restored, usual)) in sums {
            // Otherwise from how much later than usual the first kernel of a slice starts.
            let late = median(&restored).unwrap_or(0.0) - median(&usual).unwrap_or(0.0);
            let state = if under >= ENOUGH_CUTS {
                over / under
            } else if restored.len() >= ENOUGH_STARTS && usual.len() >= ENOUGH_STARTS {
                late / RESTORE_PART
            } else {
                continue;
            };
            let state = state.clamp(0.0, MOST_STATE_NS);
            let restore = (RESTORE_PART * state) as i64;
            let save = (state as i64).saturating_sub(restore);
            for tenant in self.tenants.iter_mut().filter(|t| t.device == device && !t.exact) {
                tenant.shrink(restore, save);
            }
            if let Some(switching) = self.switching.get_mut(&device) {
                let wider = switching.spans().iter().map(|(a, b)| (a - save, b + restore));
                *switching = Union::of(wider.collect::<Vec<_>>());
            }
        }
    }

    /// Enters for every tenant what the others did.
    fn see_others(&mut self, who: &Who) {
        // A server's residency is its clients', who are looked at themselves.
        let serves = |id: u32| who.tenants.iter().any(|t| t.served_by == Some(id));
        let active: Vec<(u32, u32, Union, Union)> = self
            .tenants
            .iter()
            .filter_map(|t| {
                let ran = t.ran.clone();
                let (work, present) = if t.traced {
                    let present = ran.as_ref().map_or_else(|| t.busy.clone(), |r| common(&t.busy, r));
                    (t.busy.clone(), present)
                } else if serves(t.id) {
                    return None;
                } else {
                    let ran = ran?;
                    (ran.clone(), ran)
                };
                Some((t.id, t.device, work, present))
            })
            .collect();
        let blind: Vec<(u32, u32)> = self
            .tenants
            .iter()
            .filter(|t| !t.traced && t.ran.is_none() && !serves(t.id))
            .map(|t| (t.id, t.device))
            .collect();
        for tenant in &mut self.tenants {
            let mine: Vec<_> = active.iter().filter(|a| a.1 == tenant.device && a.0 != tenant.id).collect();
            tenant.others = Union::of(mine.iter().flat_map(|a| a.2.spans().iter().copied()));
            let present = Union::of(mine.iter().flat_map(|a| a.3.spans().iter().copied()));
            tenant.beside = tenant.ran.as_ref().map_or_else(|| present.clone(), |r| common(&present, r));
            tenant.each = mine.iter().map(|a| (a.0, a.3.clone())).collect();
            tenant.strangers = blind.iter().any(|b| b.1 == tenant.device && b.0 != tenant.id);
        }
    }
}

impl Tenancy {
    /// Covariance and variance sums of time at work over times switched out inside, each signature around its own mean.
    pub fn cut_slope(&self) -> (f64, f64) {
        let Some(ran) = self.ran.as_ref() else { return (0.0, 0.0) };
        let mut by_signature: HashMap<u32, [f64; 5]> = HashMap::new();
        for op in self.ops.iter().filter(|op| op.kind == WorkKind::Kernel) {
            let cuts = (ran.edges_inside(op.start_ns, op.end_ns) / 2) as f64;
            let length = op.ran_ns as f64;
            let [n, x, y, xx, xy] = by_signature.entry(op.signature).or_default();
            *n += 1.0;
            *x += cuts;
            *y += length;
            *xx += cuts * cuts;
            *xy += cuts * length;
        }
        let mut numbers: Vec<_> = by_signature.into_iter().collect();
        // Sums of floats depend on their order.
        numbers.sort_by_key(|(signature, _)| *signature);
        numbers.iter().fold((0.0, 0.0), |(over, under), (_, [n, x, y, xx, xy])| {
            (over + xy - x * y / n, under + xx - x * x / n)
        })
    }

    /// How long after the begin of a slice kernels start that waited for it, and how long after they are ready those do
    /// whose context is there already.
    fn first_starts(&self, restored: &mut Vec<i64>, usual: &mut Vec<i64>) {
        let Some(ran) = self.ran.as_ref() else { return };
        let spans = ran.spans();
        for op in self.ops.iter().filter(|op| op.kind == WorkKind::Kernel) {
            let next = spans.partition_point(|s| s.0 <= op.start_ns);
            let Some(span) = next.checked_sub(1).and_then(|n| spans.get(n)) else { continue };
            let ready = op.ready_ns.max(op.called_ns.min(op.start_ns));
            if ready >= span.0 {
                usual.push(op.start_ns.saturating_sub(ready));
            } else if op.start_ns.saturating_sub(span.0) <= MOST_STATE_NS as i64 {
                restored.push(op.start_ns.saturating_sub(span.0));
            }
        }
    }

    fn shrink(&mut self, restore: i64, save: i64) {
        let Some(ran) = self.ran.take() else { return };
        let spans: Vec<_> =
            ran.spans().iter().map(|(a, b)| (a + restore, (b - save).max(a + restore))).collect();
        let ran = Union::of(spans);
        for op in self.ops.iter_mut().filter(|op| op.kind != WorkKind::Copy) {
            op.ran_ns = ran.covered_ns(op.start_ns, op.end_ns);
        }
        self.ran = Some(ran);
    }

    fn push(&mut self, w: &Work, signature: u32, stream: (u32, i64), call: Option<(u32, Call)>) {
        // A call that is recorded as later than its work would make latencies negative.
        let call = call.filter(|(_, c)| c.start_ns <= w.start_ns);
        let (launch_ns, called_ns) = call.map_or((w.start_ns, w.start_ns), |(_, c)| (c.start_ns, c.end_ns));
        let dur_ns = w.end_ns.saturating_sub(w.start_ns);
        let ran_ns = match (&self.ran, w.kind) {
            (Some(ran), WorkKind::Kernel | WorkKind::Graph) => ran.covered_ns(w.start_ns, w.end_ns),
            _ => dur_ns,
        };
        if w.kind != WorkKind::Copy {
            self.busy.add(w.start_ns, w.end_ns);
        }
        self.ops.push(Op {
            kind: w.kind,
            company: Company::Alone,
            first: false,
            signature,
            stream: stream.0,
            call: call.map(|c| c.0),
            launch_ns,
            called_ns,
            ready_ns: stream.1.clamp(launch_ns, w.start_ns.max(launch_ns)),
            start_ns: w.start_ns,
            end_ns: w.end_ns,
            ran_ns,
            beside_ns: 0,
        });
    }

    fn finish(&mut self, signatures: usize) {
        let mut seen = vec![false; signatures];
        for op in &mut self.ops {
            if let Some(seen) = seen.get_mut(op.signature as usize) {
                op.first = !std::mem::replace(seen, true);
            }
            let inside = self.others.covered_ns(op.start_ns, op.end_ns);
            op.company = if inside > 0 {
                Company::Contended
            } else if self.others.covered_ns(op.launch_ns, op.start_ns) > 0 {
                Company::Waited
            } else {
                Company::Alone
            };
            if inside > 0 {
                op.beside_ns = self.beside.covered_ns(op.start_ns, op.end_ns).min(op.ran_ns);
            }
        }
        self.ops.sort_by_key(|op| (op.launch_ns, op.start_ns, op.end_ns, op.stream));
    }
}
