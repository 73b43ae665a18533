//! Collect each tenant's operations, and split their latency into parts.
//!
//! ```text
//!   launch call  |==|
//!   own stream       |== kernel before ==|
//!   resident      ==============|           |==========|        |====
//!   operation                            .  . |=========--------====|
//!                |la| queue, own stream  |nr| execution    nr    exec |
//! ```
//!
//! An operation is a kernel, a whole graph or a copy. Its latency runs from the start of the launch call (the start of
//! its interval where calls were not captured) to its end, and splits into parts that sum to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::types::Int64Type;

use crate::base::error::{Error, Result};
use crate::base::hardware::{IDLE_GAP_NS, MAX_STATE_NS, MOST_RESTORE_NS, MOST_SAVE_NS, WAKE_NS};
use crate::base::intervals::{Union, Walk};
use crate::base::maps::{entry, NumberMap};
use crate::base::parallel::ThreadPool;
use crate::base::statistics::median;
use crate::base::watch::Watch;
use crate::residency::observed::{is_of_others, Slice};
use crate::slowdown::ops::Ops;
use crate::slowdown::others::{common, Others, OthersWalk, Present};
use crate::table::calls::{calls, Call, Calls, CallsByProcess};
use crate::table::columns::{at, Columns};
use crate::table::events::{Events, Tables};
use crate::table::launch::{Folded, LikeRows, SharedKeys};
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Who};
use crate::table::work::{work, Work, WorkKind};

/// Squared differences in times switched out that a slope needs.
const ENOUGH_CUTS: f64 = 5.0;
/// Standard error from which the saving of state is better read from the first kernels of slices.
const MOST_ERROR_NS: f64 = 10_000.0;
/// First kernels of slices, and others, that a median needs; slices that end without a kernel, for what saving takes.
const ENOUGH_STARTS: usize = 5;
/// Of slices that end without a kernel, one in so many keeps the engine no longer than its state takes to be saved.
const SOON: usize = 10;
/// Restoring's part of saving and restoring; the rest is stopping and saving: 27 to 38 of 127 to 149 us on an A100.
const RESTORE_PART: f64 = 0.24;

/// Equal work: what is compared with what.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Signature {
    pub kind: WorkKind,
    pub name: Option<String>,
    pub grid: [Option<u32>; 3],
    pub block: [Option<u32>; 3],
    /// Dynamic shared memory of a kernel, bytes of a copy.
    pub bytes: Option<i64>,
    /// As CUPTI counts; of copies.
    pub copy_kind: Option<u8>,
}

/// Signatures by number, the same for a session and its baselines, in an order that no table's rows decide.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    pub list: Vec<Signature>,
}

impl Signatures {
    /// Numbers what several sessions found.
    pub fn of<'a>(found: impl IntoIterator<Item = &'a mut Found>) -> Self {
        let mut found: Vec<&mut Found> = found.into_iter().collect();
        let mut list: Vec<Signature> = found.iter().flat_map(|f| f.list.iter().cloned()).collect();
        list.sort_unstable();
        list.dedup();
        for one in &mut found {
            one.numbers = one
                .list
                .iter()
                .map(|s| list.binary_search(s).ok().and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX))
                .collect();
        }
        Self { list }
    }

    /// Of each signature the copy engine that does it.
    fn engines(&self) -> Arc<[Option<CopyEngine>]> {
        self.list.iter().map(|signature| CopyEngine::of(signature.copy_kind?)).collect()
    }
}

/// Copies from the host and copies to it are done by an engine each, one after the other whoever they are of, and beside
/// kernels of any context (seen on an H200, time-sliced and under MPS: `fixtures/hardware`, stage `hosts`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyEngine {
    FromHost,
    ToHost,
}

impl CopyEngine {
    fn of(copy_kind: u8) -> Option<Self> {
        match copy_kind {
            1 => Some(Self::FromHost),
            2 => Some(Self::ToHost),
            _ => None,
        }
    }
}

/// Signatures of the rows of one session: by row and kind of work a place in `list`, by place its number.
#[derive(Debug, Default)]
pub(crate) struct Found {
    list: Vec<Signature>,
    rows: [Vec<u32>; 3],
    numbers: Vec<u32>,
}

impl Found {
    fn of(&self, kind: WorkKind, row: u32) -> u32 {
        let [kernels, graphs, copies] = &self.rows;
        let rows = match kind {
            WorkKind::Kernel => kernels,
            WorkKind::Graph => graphs,
            WorkKind::Copy => copies,
        };
        let place = rows.get(row as usize).and_then(|place| self.numbers.get(*place as usize));
        place.copied().unwrap_or(u32::MAX)
    }
}

/// Who else was there while an operation was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CoRun {
    /// Nobody, from its launch to its end.
    Solo,
    /// Nobody from its start to its end, but before.
    Waited,
    /// Somebody between its start and its end.
    Contended,
}

/// Why an operation is no measure of its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusual {
    /// The first of its signature: warm-up, loading, first touch.
    First,
    /// The profiler, or the loading or compiling of code, was at work in its launch call.
    Overhead,
    /// The window that its session was cut down to shows a part of it, or it ended after the last context-switch record:
    /// how long it took is not known.
    Cut,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op {
    pub kind: WorkKind,
    pub co_run: CoRun,
    /// Not the program's usual work.
    pub unusual: Option<Unusual>,
    /// Its launch call is not known, or began before the window that its session was cut down to: how long it waited is
    /// not known.
    pub early: bool,
    pub signature: u32,
    pub stream: u32,
    /// Before its call is looked up, the correlation id.
    pub(super) call: Numbered,
    pub launch_ns: i64,
    pub called_ns: i64,
    pub ready_ns: i64,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Of start to end, its context ran.
    pub ran_ns: i64,
    /// Of that, while work of others could have run as well.
    pub co_running_ns: i64,
    /// Between ready and started.
    pub waited: Waited,
}

/// What there was while an operation was ready and had not started, in the time in which its context was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waited {
    /// Its own tenant's work was running; of a copy, on its engine.
    pub own_ns: i64,
    /// Of the rest, others' work could run beside its own; of a copy, ran on its engine.
    pub other_ns: i64,
    /// Of the rest, others had no work (that could run, where records say when its context was there): what the device
    /// always takes.
    pub rest_ns: i64,
}

impl Waited {
    fn of(resident_ns: i64, busy_ns: i64, co_running_ns: i64, others_ns: i64) -> Self {
        let own_ns = resident_ns.min(busy_ns);
        let free_ns = resident_ns.saturating_sub(own_ns);
        Self {
            own_ns,
            other_ns: free_ns.min(co_running_ns),
            rest_ns: free_ns.saturating_sub(others_ns).max(0),
        }
    }
}

/// A number or none (the largest one) in four bytes: there are as many as kernels in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbered(u32);

impl Numbered {
    pub(super) fn of(number: Option<u32>) -> Self {
        Self(number.unwrap_or(u32::MAX))
    }

    fn get(self) -> Option<u32> {
        (self.0 < u32::MAX).then_some(self.0)
    }
}

impl Op {
    /// The call that launched it: its place among the calls of its process.
    pub fn call(&self) -> Option<u32> {
        self.call.get()
    }

    /// Launched, and nothing before it in its stream left to do.
    pub fn free_ns(&self) -> i64 {
        self.ready_ns.max(self.called_ns.min(self.start_ns))
    }

    /// How long it was ready and had not started.
    pub fn waited_ns(&self) -> i64 {
        self.start_ns.saturating_sub(self.free_ns()).max(0)
    }

    pub fn latency_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.launch_ns)
    }

    /// Whether it is a copy that was done when its call returned: one from or to pageable memory, although that call is
    /// named asynchronous.
    pub fn ends_inside(&self, call: &Call) -> bool {
        self.kind == WorkKind::Copy && self.end_ns <= call.end_ns
    }

    /// Whether what is not the program's own held its launch up.
    pub fn held_up(&self) -> bool {
        self.unusual == Some(Unusual::Overhead)
    }

    /// Whether its time from launch to end is not known, or not the program's own: it counts as no latency.
    pub fn no_latency(&self) -> bool {
        self.early || self.held_up()
    }

    /// Whether the window that its session was cut down to, or the switch records, show only a part of it.
    pub fn cut(&self) -> bool {
        self.unusual == Some(Unusual::Cut)
    }

    /// How often its context was switched out inside.
    pub fn cuts(&self, ran: &Union) -> usize {
        // Where it ran from start to end, nothing begins or ends inside.
        if self.ran_ns == self.end_ns.saturating_sub(self.start_ns) {
            0
        } else {
            ran.edges_inside(self.start_ns, self.end_ns) / 2
        }
    }
}

/// A tenant with its operations, by launch.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    pub id: u32,
    pub device: u32,
    pub traced: bool,
    /// (capture, pid).
    pub process: (u32, Option<u32>),
    pub ops: Ops,
    /// How many operations calls launched, all but migrations of unified memory; and of how many the call is known.
    launched: usize,
    called: usize,
    /// When its context ran; none: no records say.
    pub ran: Option<Union>,
    /// Until when the switch records of its device say so.
    recorded_until_ns: Option<i64>,
    /// What each cut inside a kernel took of its residency beside that, and its standard error: no execution.
    pub cut_ns: (f64, f64),
    /// What was taken out of each residency, at both ends together.
    pub state_ns: i64,
    /// Standard error of that, where kernels of the device show it.
    state_error_ns: Option<f64>,
    /// `ran` is CONTEXT_START to acknowledgement; else residency, which holds the saving and restoring of state.
    pub exact: bool,
    pub busy: Arc<Union>,
    /// Others had work on the device (recorded intervals, or residency of those not traced).
    pub others: Arc<Others>,
    /// Others' work could have run at the same time as its own.
    pub beside: Arc<Others>,
    /// By copy engine: its own copies, and those of others.
    copies: [Arc<Union>; 2],
    others_copies: [Others; 2],
    /// By signature; none: its operations run where kernels do.
    engines: Arc<[Option<CopyEngine>]>,
    /// When each tenant of its device could run its work, itself included.
    pub present: Arc<Present>,
    /// Somebody else with work on the device was not traced and has no residency of its own.
    pub strangers: bool,
    /// By signature: kernels and graphs that are usual, solo, waiting and contended (as `CoRun` counts).
    pub usual: Vec<[usize; 3]>,
    /// Context and stream, by the number that operations have of it.
    streams: NumberMap<StreamKey, u32>,
    last_stream: Option<(StreamKey, u32)>,
}

/// When tenants of a device had work, and when that could run.
#[derive(Debug, Default)]
struct OnDevice {
    work: Vec<(u32, Arc<Union>)>,
    present: Vec<(u32, Arc<Union>)>,
    /// Of some the two are not the same.
    differ: bool,
}

/// Everything that the comparison looks at.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    pub tenants: Vec<Tenancy>,
    /// Calls by process, by start.
    pub calls: BTreeMap<(u32, Option<u32>), Calls>,
    /// Switches on a device, from the last moment of one context to the first of the next.
    pub switching: BTreeMap<u32, Union>,
    /// What kernels show of saving and restoring contexts, where no record does.
    pub state: Vec<ContextState>,
    /// First and last time, where the session is a part of a capture: what crosses them was cut there.
    pub window: Option<(i64, i64)>,
}

/// What each cut inside a kernel takes of the residency of its context, and the standard error of that over kernels and
/// boards: SMs stop, state is saved and restored, caches are cold. 110 to 165 us of kernels of eight runs on an H200
/// (`fixtures/hardware`, stage `hosts`), 127 to 149 us on an A100.
const CUT_NS: (f64, f64) = (140_000.0, 40_000.0);

/// Standard error of the same over kernels of one board: 115 us of those that compute, 150 us of those that read memory.
const KERNELS_DIFFER_NS: f64 = 18_000.0;

/// What takes longer than that is no cut.
const MOST_CUT_NS: f64 = 5.0 * CUT_NS.0;

/// Sums over kernels, each signature around its own mean: of execution time (y) over times switched out inside (x), by how
/// little was left of the slice when the kernel started (z).
///
/// Longer kernels are switched out more often, so that lengths and cuts go together even where cuts cost nothing. How
/// much was left of the slice has nothing to do with the kernel's own length, but decides whether it is cut: only what
/// goes together with that is what cuts cost (an instrument, as econometrics calls it).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CutCost {
    n: f64,
    zz: f64,
    zx: f64,
    zy: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl CutCost {
    fn add(&mut self, other: &Self) {
        self.n += other.n;
        self.zz += other.zz;
        self.zx += other.zx;
        self.zy += other.zy;
        self.xx += other.xx;
        self.xy += other.xy;
        self.yy += other.yy;
    }

    /// Nanoseconds per cut, and the standard error; `None` where hardly any kernel was cut more often than its like.
    pub fn known(&self) -> Option<(f64, f64)> {
        if self.xx < ENOUGH_CUTS || self.zx <= 0.0 {
            return None;
        }
        let cost = self.zy / self.zx;
        let rest = self.yy - 2.0 * cost * self.xy + cost * cost * self.xx;
        Some((cost, (rest.max(0.0) / self.n * self.zz).sqrt() / self.zx))
    }
}

/// Where the latency of an operation went; sums to it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Split {
    pub launch_ns: i64,
    pub queue_same_tenant_ns: i64,
    pub queue_other_tenant_ns: i64,
    pub not_resident_ns: i64,
    pub switch_ns: i64,
    pub execution_ns: i64,
}

impl Split {
    pub fn parts(&self) -> [i64; 6] {
        [
            self.launch_ns,
            self.queue_same_tenant_ns,
            self.queue_other_tenant_ns,
            self.not_resident_ns,
            self.switch_ns,
            self.execution_ns,
        ]
    }
}

impl Tenancy {
    /// Streams, which its operations count from 0.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The number that operations have of a stream.
    pub fn stream_of(&self, context: Option<u32>, stream: Option<u32>) -> Option<u32> {
        self.streams.get(&(context, stream)).copied()
    }

    /// Context and id of every stream, with the number that operations have of it.
    pub fn stream_ids(&self) -> impl Iterator<Item = (StreamKey, u32)> + '_ {
        self.streams.iter().map(|(key, number)| (*key, *number))
    }

    /// Of the time in which an operation was ready and had not started, its context was there.
    pub fn resident_ns(&self, op: &Op) -> i64 {
        match self.ran {
            Some(_) => {
                let Waited { own_ns, other_ns, rest_ns } = op.waited;
                own_ns.saturating_add(other_ns).saturating_add(rest_ns)
            }
            None => op.waited_ns(),
        }
    }

    /// What an operation was resident for and did not execute in.
    fn taken_by_cuts_ns(&self, op: &Op) -> i64 {
        let ran = self.ran.as_ref().filter(|_| self.cut_ns.0 > 0.0 && op.kind != WorkKind::Copy);
        ran.map_or(0, |ran| ran.covered_ns(op.start_ns, op.end_ns).saturating_sub(op.ran_ns).max(0))
    }

    /// Splits the latency of an operation.
    pub fn split(&self, op: &Op, switching: Option<&Union>) -> Split {
        let mut split = Split::default();
        let called = op.called_ns.clamp(op.launch_ns, op.start_ns.max(op.launch_ns));
        let ready = op.free_ns();
        split.launch_ns = called.saturating_sub(op.launch_ns);
        split.queue_same_tenant_ns = ready.saturating_sub(called);
        let covered = |a: i64, b: i64| switching.map_or(0, |u| u.covered_ns(a, b));
        let resident = self.resident_ns(op);
        let out = op.waited_ns().saturating_sub(resident);
        let switch = if out > 0 { out.min(covered(ready, op.start_ns)) } else { 0 };
        let other = op.waited.other_ns;
        split.queue_other_tenant_ns = other;
        split.queue_same_tenant_ns =
            split.queue_same_tenant_ns.saturating_add(resident.saturating_sub(other));
        let dur = op.end_ns.saturating_sub(op.start_ns);
        split.execution_ns = op.ran_ns.min(dur);
        let inside = dur.saturating_sub(split.execution_ns);
        let switch_inside = if inside > 0 {
            inside.min(covered(op.start_ns, op.end_ns).saturating_add(self.taken_by_cuts_ns(op)))
        } else {
            0
        };
        split.switch_ns = switch.saturating_add(switch_inside);
        split.not_resident_ns =
            out.saturating_sub(switch).saturating_add(inside.saturating_sub(switch_inside));
        split
    }
}

/// Context, stream.
pub(crate) type StreamKey = (Option<u32>, Option<u32>);
/// Grid and block, dynamic shared memory.
type Launch = ([Option<u32>; 6], Option<i64>);
/// Dictionary key of the name, and the same.
type Configuration = (Option<u32>, [Option<u32>; 6], Option<i64>);
/// Signatures of the three tables of work.
fn signatures_of(tables: &Tables) -> Result<Found> {
    let mut found = Found::default();
    let Found { list, rows: [kernels_out, graphs_out, copies_out], .. } = &mut found;
    let mut enter = |signature: Signature| {
        list.push(signature);
        u32::try_from(list.len() - 1).unwrap_or(u32::MAX)
    };
    if let Some(batch) = tables.get(schema::KERNELS.name) {
        let c = Columns::new(&schema::KERNELS, batch);
        let name = c.names("name")?;
        let grid: [Folded<'_>; 3] = [c.folded("grid_x")?, c.folded("grid_y")?, c.folded("grid_z")?];
        let block: [Folded<'_>; 3] = [c.folded("block_x")?, c.folded("block_y")?, c.folded("block_z")?];
        let shared: Folded<'_, Int64Type> = c.folded("dynamic_shared_bytes")?;
        // By dictionary key: text is looked at once per configuration, not once per row.
        let mut seen: NumberMap<Configuration, u32> = NumberMap::default();
        let mut recent: LikeRows<Option<u32>, Launch> = LikeRows::default();
        let [grid_x, grid_y, grid_z] = grid.map(|column| column.keys());
        let [block_x, block_y, block_z] = block.map(|column| column.keys());
        let keys = SharedKeys::of([grid_x, grid_y, grid_z, block_x, block_y, block_z, shared.keys()]);
        kernels_out.reserve_exact(c.rows());
        for row in 0..c.rows() {
            let launch = || {
                let ([x, y, z], [a, b, c]) = (grid.map(|of| of.at(row)), block.map(|of| of.at(row)));
                ([x, y, z, a, b, c], shared.at(row))
            };
            let name_key = name.key(row);
            let place = recent.place(name_key, keys.at(row), launch, || {
                let (shape, bytes) = launch();
                let place = *seen.entry((name_key, shape, bytes)).or_insert_with(|| {
                    enter(Signature {
                        kind: WorkKind::Kernel,
                        name: name.get(row).map(str::to_owned),
                        grid: [shape[0], shape[1], shape[2]],
                        block: [shape[3], shape[4], shape[5]],
                        bytes,
                        copy_kind: None,
                    })
                });
                place as usize
            });
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            kernels_out.push(place);
        }
    }
    let plain = |kind, name: String, bytes| Signature {
        kind,
        name: Some(name),
        grid: [None; 3],
        block: [None; 3],
        bytes,
        copy_kind: None,
    };
    if let Some(batch) = tables.get(schema::GRAPH_LAUNCHES.name) {
        let c = Columns::new(&schema::GRAPH_LAUNCHES, batch);
        let graph = c.u64("graph_id")?;
        let mut seen: NumberMap<Option<u64>, u32> = NumberMap::default();
        for row in 0..c.rows() {
            let graph = at(graph, row);
            let name = || graph.map_or("graph".to_owned(), |id| format!("graph {id}"));
            let place = *seen.entry(graph).or_insert_with(|| enter(plain(WorkKind::Graph, name(), None)));
            graphs_out.push(place);
        }
    }
    if let Some(batch) = tables.get(schema::MEMOPS.name) {
        let c = Columns::new(&schema::MEMOPS, batch);
        let (operation, bytes, copy_kind) = (c.names("operation")?, c.i64("bytes")?, c.u8("copy_kind")?);
        let mut seen: NumberMap<(Option<u32>, i64), u32> = NumberMap::default();
        for row in 0..c.rows() {
            let bytes = bytes.value(row);
            let name = || operation.get(row).unwrap_or("copy").to_owned();
            let copy_kind = at(copy_kind, row);
            let place = *seen.entry((operation.key(row), bytes)).or_insert_with(|| {
                enter(Signature { copy_kind, ..plain(WorkKind::Copy, name(), Some(bytes)) })
            });
            copies_out.push(place);
        }
    }
    Ok(found)
}

/// Residency by tenant; switches, and the end of the last residency, by device.
type Held = (BTreeMap<u32, (Union, bool)>, BTreeMap<u32, Union>, BTreeMap<u32, i64>);

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
    let mut until_ns: BTreeMap<u32, i64> = BTreeMap::new();
    for slice in &slices {
        let until_ns = until_ns.entry(slice.device).or_insert(slice.end_ns);
        *until_ns = slice.end_ns.max(*until_ns);
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
    Ok((ran, switching, until_ns))
}

/// How long the state of the contexts of a device takes to be saved and restored, where kernels show it and no record does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContextState {
    pub device: u32,
    pub restore: i64,
    pub save: i64,
    /// Ends of the interval of both together.
    pub low: i64,
    pub high: i64,
    pub found_from: &'static str,
}

/// What tells how long the state of the contexts of a device takes to be saved and restored.
#[derive(Debug, Default)]
struct StateTimes {
    cuts: CutCost,
    /// From the begin of a slice to its first kernel, and from when a kernel is ready to its start otherwise.
    restored: Vec<i64>,
    usual: Vec<i64>,
    /// From the last kernel of a slice to its end.
    saved: Vec<i64>,
}

/// A reconstructed session, with what each tenant did, before equal work has numbers.
pub(crate) struct Gathered {
    who: Who,
    tenants: Vec<Tenancy>,
    calls: CallsByProcess,
    switching: BTreeMap<u32, Union>,
    /// Signatures of its work; numbered by [`Signatures::of`].
    pub found: Found,
    /// First and last time, where the session was cut down to a window.
    pub window: Option<(i64, i64)>,
}

impl Gathered {
    /// Reads a reconstructed session.
    pub fn read(tables: &Tables, pool: ThreadPool, watch: &dyn Watch) -> Result<Self> {
        let who = Who::read(tables)?;
        let (held, switching, recorded_until_ns) = held(tables)?;
        let mut tenants: Vec<Tenancy> = who
            .tenants
            .iter()
            .map(|t| {
                // Clients of a server run when it is resident.
                let own = held.get(&t.id).or_else(|| t.served_by.and_then(|server| held.get(&server)));
                Tenancy {
                    id: t.id,
                    device: t.device,
                    traced: t.traced,
                    process: (t.capture.unwrap_or(0), t.pid),
                    ran: own.map(|h| h.0.clone()),
                    exact: own.is_some_and(|h| h.1),
                    recorded_until_ns: recorded_until_ns.get(&t.device).copied(),
                    ..Tenancy::default()
                }
            })
            .collect();
        let whole = Events::of(tables);
        // What each tenant did is dealt out while calls and signatures are read; then each tenant looks its own up.
        let (read, dealt) = pool.both(
            || Ok::<_, Error>((signatures_of(tables)?, calls(tables)?)),
            || deal(&whole, &who, &mut tenants, watch),
        );
        dealt?;
        let (found, calls) = read?;
        Ok(Self { who, tenants, calls, switching, found, window: None })
    }
}

impl Scene {
    /// Puts together what was gathered.
    pub fn of(gathered: Gathered, signatures: &Signatures, pool: ThreadPool) -> Self {
        let Gathered { who, mut tenants, calls, switching, found, window } = gathered;
        let engines = signatures.engines();
        pool.each(tenants.iter_mut().collect(), |tenant| {
            tenant.enter(&found, calls.get(&tenant.process), window, &engines);
        });
        drop(found);
        let mut scene = Self { tenants, calls, switching, state: Vec::new(), window };
        scene.without_state(&who);
        scene.see_others(&who);
        pool.each(scene.tenants.iter_mut().collect(), |tenant| tenant.finish(Arc::clone(&engines)));
        scene
    }

    /// Takes the saving and restoring of state out of residency where records do not say how long they took: kernels of
    /// one signature that were switched out more often inside stayed longer by that.
    fn without_state(&mut self, who: &Who) {
        // Of the last kernel of one client nothing says when the others' work ended.
        let clients: BTreeSet<u32> =
            who.tenants.iter().filter(|t| t.served_by.is_some()).map(|t| t.id).collect();
        let mut sums: BTreeMap<u32, StateTimes> = BTreeMap::new();
        for tenant in self.tenants.iter().filter(|t| !t.exact) {
            let sum = sums.entry(tenant.device).or_default();
            sum.cuts.add(&tenant.cut_cost());
            tenant.first_starts(&mut sum.restored, &mut sum.usual);
            if !clients.contains(&tenant.id) {
                tenant.last_ends(&mut sum.saved);
            }
        }
        for (device, StateTimes { cuts, restored, usual, mut saved }) in sums {
            // Otherwise restoring from how much later than usual the first kernel of a slice starts, saving from how soon
            // after the last kernel a slice may end.
            let late = median(&restored).unwrap_or(0.0) - median(&usual).unwrap_or(0.0);
            let late = late.clamp(0.0, MAX_STATE_NS as f64) as i64;
            saved.sort_unstable();
            let soon = saved.get(saved.len() / SOON).copied().filter(|_| saved.len() >= ENOUGH_STARTS);
            let soon = soon.filter(|ns| *ns <= MOST_SAVE_NS).unwrap_or(0);
            let measured = cuts.known().filter(|(_, error)| *error < MOST_ERROR_NS);
            let (found_from, restore, save, doubt_ns) = if let Some((cost, error)) = measured {
                let state = cost.clamp(0.0, MAX_STATE_NS as f64);
                let restore = (RESTORE_PART * state) as i64;
                (Some("kernels"), restore, (state as i64).saturating_sub(restore), [2.0 * error; 2])
            } else if restored.len() >= ENOUGH_STARTS && usual.len() >= ENOUGH_STARTS {
                (Some("starts"), late, soon, [(MOST_SAVE_NS - soon) as f64, soon as f64])
            } else {
                (None, 0, 0, [(MOST_RESTORE_NS + MOST_SAVE_NS) as f64, 0.0])
            };
            self.state.extend(found_from.map(|found_from| {
                let [more, less] = doubt_ns;
                let state = restore.saturating_add(save);
                ContextState {
                    device,
                    restore,
                    save,
                    low: state.saturating_sub(less as i64).max(0),
                    high: state.saturating_add(more as i64),
                    found_from,
                }
            }));
            for tenant in self.tenants.iter_mut().filter(|t| t.device == device && !t.exact) {
                tenant.state_error_ns = measured.map(|(_, error)| error);
                if restore > 0 || save > 0 {
                    tenant.shrink(restore, save);
                }
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
        let serving: BTreeSet<u32> = who.tenants.iter().filter_map(|t| t.served_by).collect();
        let mut of_device: BTreeMap<u32, OnDevice> = BTreeMap::new();
        let mut blind: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for t in &self.tenants {
            let (work, present) = match &t.ran {
                Some(ran) if t.traced => (Arc::clone(&t.busy), Arc::new(common(&t.busy, ran))),
                None if t.traced => (Arc::clone(&t.busy), Arc::clone(&t.busy)),
                _ if serving.contains(&t.id) => continue,
                Some(ran) => {
                    let ran = Arc::new(ran.clone());
                    (Arc::clone(&ran), ran)
                }
                None => {
                    blind.entry(t.device).or_default().insert(t.id);
                    continue;
                }
            };
            let here = of_device.entry(t.device).or_default();
            here.differ |= !Arc::ptr_eq(&work, &present);
            here.work.push((t.id, work));
            here.present.push((t.id, present));
        }
        for engine in [CopyEngine::FromHost, CopyEngine::ToHost] {
            self.see_copies(engine as usize);
        }
        let mut seen = BTreeMap::new();
        for (device, here) in of_device {
            // The same in one place is looked at once.
            let could_run = here.differ.then(|| Others::of_each(&here.present));
            seen.insert(
                device,
                (Others::of_each(&here.work), could_run, Arc::new(Present::of(here.present))),
            );
        }
        for tenant in &mut self.tenants {
            let id = tenant.id;
            tenant.strangers =
                blind.get(&tenant.device).is_some_and(|blind| blind.iter().any(|other| *other != id));
            let Some((work, could_run, present)) = seen.get_mut(&tenant.device) else { continue };
            // Whoever is not there has no operations of which that is asked.
            tenant.others = Arc::new(work.remove(&id).unwrap_or_default());
            let beside = match could_run {
                Some(could_run) => Arc::new(could_run.remove(&id).unwrap_or_default()),
                None => Arc::clone(&tenant.others),
            };
            tenant.beside = match &tenant.ran {
                Some(ran) => Arc::new(beside.within(ran)),
                None => beside,
            };
            tenant.present = Arc::clone(present);
        }
    }

    /// Enters for every tenant when others used a copy engine of its device.
    fn see_copies(&mut self, engine: usize) {
        let mut of_device: BTreeMap<u32, Vec<(u32, Arc<Union>)>> = BTreeMap::new();
        for tenant in &self.tenants {
            if let Some(copies) = tenant.copies.get(engine) {
                of_device.entry(tenant.device).or_default().push((tenant.id, Arc::clone(copies)));
            }
        }
        let mut seen: BTreeMap<u32, _> =
            of_device.into_iter().map(|(device, copies)| (device, Others::of_each(&copies))).collect();
        for tenant in &mut self.tenants {
            let others = seen.get_mut(&tenant.device).and_then(|others| others.remove(&tenant.id));
            if let (Some(slot), Some(others)) = (tenant.others_copies.get_mut(engine), others) {
                *slot = others;
            }
        }
    }
}

/// How many operations each tenant has at most, by tenant id.
fn counts(events: &Events<'_>, who: &Who, tenants: usize) -> Result<Vec<usize>> {
    let mut counts = vec![0; tenants];
    for table in [&schema::KERNELS, &schema::GRAPH_LAUNCHES, &schema::MEMOPS] {
        let Some(columns) = events.get(table) else { continue };
        let (capture, pid) = (columns.u32("capture")?, columns.u32("pid")?);
        let device = columns.u32("device_id")?;
        let mut last = LastTenant::default();
        for row in 0..columns.rows() {
            let id = who.of_next(&mut last, capture.value(row), at(pid, row), device.value(row));
            if let Some(count) = id.and_then(|id| counts.get_mut(id as usize)) {
                *count += 1;
            }
        }
    }
    Ok(counts)
}

/// Deals rows of work out to their tenants, by start; each holds its row, correlation id and stream until it is looked up.
fn deal(whole: &Events<'_>, who: &Who, tenants: &mut [Tenancy], watch: &dyn Watch) -> Result<()> {
    // Room that grows is asked of the system piece by piece, and a large one is faster had at once.
    let counts = counts(whole, who, tenants.len())?;
    for (tenant, count) in tenants.iter_mut().zip(counts) {
        tenant.ops.reserve(count);
    }
    let mut last = LastTenant::default();
    for (n, w) in work(whole)?.enumerate() {
        if n.is_multiple_of(65_536) {
            watch.progress("operations", n as u64, 0)?;
        }
        let id = who.of_next(&mut last, w.capture, w.pid, w.device);
        if let Some(tenant) = id.and_then(|id| tenants.get_mut(id as usize)) {
            tenant.push(&w);
        }
    }
    Ok(())
}

fn engine(engines: &[Option<CopyEngine>], op: &Op) -> Option<CopyEngine> {
    engines.get(op.signature as usize).copied().flatten()
}

impl Tenancy {
    /// Whether nine tenths of what calls launch have their calls in the capture: else waiting cannot be seen.
    pub fn calls_known(&self) -> bool {
        self.launched > 0 && self.called.saturating_mul(10) >= self.launched.saturating_mul(9)
    }

    /// Time inside [start, end) in which others had kernels on the device, or used a copy engine: of these the longest.
    pub fn others_at_work_ns(&self, start_ns: i64, end_ns: i64) -> i64 {
        let copies = self.others_copies.iter().map(|copies| copies.covered_ns(start_ns, end_ns));
        copies.fold(self.others.covered_ns(start_ns, end_ns), i64::max)
    }

    /// What being switched out inside costs a kernel while its context runs, by its kernels.
    fn cut_cost(&self) -> CutCost {
        let mut sum = CutCost::default();
        let Some(ran) = self.ran.as_ref() else { return sum };
        let spans = ran.spans();
        let [Some((first_ns, _)), Some((_, last_ns))] = [spans.first(), spans.last()] else { return sum };
        // Of what goes on where the records end, nobody knows how long it ran.
        let kernels = || {
            let inside = |op: &Op| op.start_ns >= *first_ns && op.end_ns <= *last_ns;
            self.ops.iter().filter(|op| op.kind == WorkKind::Kernel).filter(inside)
        };
        let mut lengths: Vec<(f64, f64)> = Vec::new();
        for op in kernels() {
            if let Some((length, n)) = entry(&mut lengths, op.signature) {
                *length += op.ran_ns as f64;
                *n += 1.0;
            }
        }
        // Per signature: n, and sums of time left, cuts, length, and of their products.
        let mut by_signature: Vec<[f64; 10]> = Vec::new();
        for op in kernels() {
            let next = spans.partition_point(|s| s.0 <= op.start_ns);
            let slice = next.checked_sub(1).and_then(|n| spans.get(n));
            let left = slice.map_or(0, |s| s.1.saturating_sub(op.start_ns).max(0));
            let (x, y) = (op.cuts(ran) as f64, op.ran_ns as f64);
            // More than the kernel usually takes is as good as for ever.
            let usual = lengths.get(op.signature as usize).map_or(1.0, |(length, n)| (length / n).max(1.0));
            let z = -(left as f64 / usual).min(1.0);
            let values = [1.0, z, x, y, z * z, z * x, z * y, x * x, x * y, y * y];
            for (slot, value) in entry(&mut by_signature, op.signature).into_iter().flatten().zip(values) {
                *slot += value;
            }
        }
        for [n, z, x, y, zz, zx, zy, xx, xy, yy] in by_signature.into_iter().filter(|sums| sums[0] > 0.0) {
            sum.n += n;
            sum.zz += zz - z * z / n;
            sum.zx += zx - z * x / n;
            sum.zy += zy - z * y / n;
            sum.xx += xx - x * x / n;
            sum.xy += xy - x * y / n;
            sum.yy += yy - y * y / n;
        }
        sum
    }

    /// The same of this tenant, beside what was taken out of residency already: from what is usual and from what its
    /// kernels show, each by how surely it is known.
    fn each_cut_ns(&self) -> (f64, f64) {
        let plausible = |(cost, error): &(f64, f64)| *cost > -2.0 * error && *cost < MOST_CUT_NS;
        let own = self.cut_cost().known().filter(plausible);
        let (cost, error) = if let Some(of_device) = self.state_error_ns {
            // Its own kernels are among those by which the device's were measured.
            let of_device = of_device.hypot(KERNELS_DIFFER_NS);
            own.filter(|own| own.1 < of_device).unwrap_or((0.0, of_device))
        } else {
            let (usual, usual_error) = CUT_NS;
            let usual = if self.exact { 0.0 } else { (usual - self.state_ns as f64).max(0.0) };
            let Some((cost, error)) = own else { return (usual, usual_error) };
            let (a, b) = (usual_error.powi(-2), error.max(1.0).powi(-2));
            ((usual * a + cost * b) / (a + b), (a + b).sqrt().recip())
        };
        // What may as well be nothing is taken for nothing, and its error allowed for.
        (if cost > 2.0 * error { cost } else { 0.0 }, error)
    }

    /// Takes out of executions what cuts inside them cost.
    fn without_cuts(&mut self) {
        self.cut_ns = self.each_cut_ns();
        let Some(ran) = self.ran.as_ref().filter(|_| self.cut_ns.0 > 0.0) else { return };
        let cut_ns = self.cut_ns.0;
        self.ops.change(|op| {
            if op.kind != WorkKind::Copy {
                let cost = (op.cuts(ran) as f64 * cut_ns) as i64;
                op.ran_ns = op.ran_ns.saturating_sub(cost).max(op.ran_ns / 2);
            }
        });
    }

    /// Standard error of all executions together, as a part of them, because of what cuts cost: that is the same of all
    /// cuts, so it does not average out.
    pub fn cut_doubt(&self) -> f64 {
        let Some(ran) = self.ran.as_ref() else { return 0.0 };
        let kernels = || self.ops.iter().filter(|op| op.kind != WorkKind::Copy);
        let cuts: f64 = kernels().map(|op| op.cuts(ran) as f64).sum();
        let ran_ns: f64 = kernels().map(|op| op.ran_ns as f64).sum();
        cuts * self.cut_ns.1 / ran_ns.max(1.0)
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
            } else if op.start_ns.saturating_sub(span.0) <= MAX_STATE_NS {
                restored.push(op.start_ns.saturating_sub(span.0));
            }
        }
    }

    /// How long before the end of a slice its last kernel ended, of slices that end without a kernel.
    fn last_ends(&self, found: &mut Vec<i64>) {
        let Some(ran) = self.ran.as_ref() else { return };
        let spans = ran.spans();
        // Per slice: the last end of a kernel, none where one runs on.
        let mut last: Vec<Option<i64>> = spans.iter().map(|s| Some(s.0)).collect();
        for op in self.ops.iter().filter(|op| op.kind != WorkKind::Copy) {
            let mut place = spans.partition_point(|s| s.1 <= op.start_ns);
            while let Some((span, slot)) = spans.get(place).zip(last.get_mut(place)) {
                if span.0 >= op.end_ns {
                    break;
                }
                *slot = slot.filter(|_| op.end_ns <= span.1).map(|ns| ns.max(op.end_ns));
                place = place.saturating_add(1);
            }
        }
        let worked =
            spans.iter().zip(last).filter_map(|(span, ns)| Some((span, ns.filter(|ns| *ns > span.0)?)));
        found.extend(worked.map(|(span, ns)| span.1.saturating_sub(ns)));
    }

    fn shrink(&mut self, restore: i64, save: i64) {
        let Some(ran) = self.ran.take() else { return };
        self.state_ns = restore.saturating_add(save);
        let mut spans: Vec<_> =
            ran.spans().iter().map(|(a, b)| (a + restore, (b - save).max(a + restore))).collect();
        // Whole kernels in that time show that state was restored earlier, or saved later.
        let mut place = 0;
        for op in self.ops.iter().filter(|op| op.kind == WorkKind::Kernel && op.end_ns > op.start_ns) {
            while ran.spans().get(place).is_some_and(|held| held.1 <= op.start_ns) {
                place = place.saturating_add(1);
            }
            let Some((held, span)) = ran.spans().get(place).zip(spans.get_mut(place)) else { break };
            if op.start_ns < held.0 || op.end_ns > held.1 {
                continue;
            }
            if span.0 >= span.1 {
                *span = (op.start_ns, op.end_ns);
            } else if op.end_ns <= span.0 || op.start_ns >= span.1 {
                *span = (span.0.min(op.start_ns), span.1.max(op.end_ns));
            }
        }
        let ran = Union::of(spans);
        let mut walk = Walk::default();
        self.ops.change(|op| {
            if op.kind != WorkKind::Copy {
                op.ran_ns = walk.covered_ns(&ran, op.start_ns, op.end_ns);
            }
        });
        self.ran = Some(ran);
    }

    /// Takes a row of work, of which what stands elsewhere is looked up later.
    fn push(&mut self, w: &Work) {
        let key = (w.context, w.stream);
        let stream = match self.last_stream {
            Some((same, stream)) if same == key => stream,
            _ => {
                let count = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
                let stream = *self.streams.entry(key).or_insert(count);
                self.last_stream = Some((key, stream));
                stream
            }
        };
        self.ops.push(&Op {
            kind: w.kind,
            co_run: CoRun::Solo,
            unusual: None,
            early: false,
            signature: u32::try_from(w.row).unwrap_or(u32::MAX),
            stream,
            call: Numbered::of(w.correlation),
            launch_ns: w.start_ns,
            called_ns: w.start_ns,
            ready_ns: w.start_ns,
            start_ns: w.start_ns,
            end_ns: w.end_ns,
            ran_ns: 0,
            co_running_ns: 0,
            waited: Waited::default(),
        });
    }

    /// Looks up signature, call and residency of every row.
    fn enter(
        &mut self,
        found: &Found,
        calls: Option<&Calls>,
        window: Option<(i64, i64)>,
        engines: &[Option<CopyEngine>],
    ) {
        let mut ends = vec![i64::MIN; self.streams.len()];
        let mut copies = <[Union; 2]>::default();
        let (mut hint, mut walk, mut busy) = (usize::MAX, Walk::default(), Union::default());
        let (ran, many, called) = (&self.ran, &mut self.launched, &mut self.called);
        self.ops.change(|op| {
            op.signature = found.of(op.kind, op.signature);
            let correlation = std::mem::replace(&mut op.call, Numbered::of(None)).get();
            // Correlation id 0: no call of the host launched it, as migrations of unified memory.
            let launched = correlation != Some(0);
            *many = many.saturating_add(usize::from(launched));
            let call = correlation.filter(|_| launched).and_then(|id| calls?.find(id, &mut hint));
            // A call that is recorded as later than its work would make latencies negative.
            if let Some((place, call)) = call.filter(|(_, c)| c.start_ns <= op.start_ns) {
                op.call = Numbered::of(Some(place));
                *called = called.saturating_add(1);
                op.launch_ns = call.start_ns;
                // What its call waited for is no part of launching it.
                op.called_ns = if op.ends_inside(&call) { call.start_ns } else { call.end_ns };
                if calls.is_some_and(|calls| calls.held_up(call)) {
                    op.unusual = Some(Unusual::Overhead);
                }
            }
            // Calls that ended before the window are not in it, those that crossed its begin were cut there.
            op.early = calls.is_some()
                && launched
                && (op.call().is_none() || window.is_some_and(|(first, _)| op.launch_ns <= first));
            if window.is_some_and(|(first, last)| op.start_ns <= first || op.end_ns >= last) {
                op.unusual = Some(Unusual::Cut);
                op.early = false;
            }
            op.ran_ns = match (ran, op.kind) {
                (Some(ran), WorkKind::Kernel | WorkKind::Graph) => {
                    walk.covered_ns(ran, op.start_ns, op.end_ns)
                }
                _ => op.end_ns.saturating_sub(op.start_ns),
            };
            if op.kind != WorkKind::Copy {
                busy.add(op.start_ns, op.end_ns);
            } else if let Some(copies) =
                engine(engines, op).and_then(|engine| copies.get_mut(engine as usize))
            {
                copies.add(op.start_ns, op.end_ns);
            }
            if let Some(end) = ends.get_mut(op.stream as usize) {
                op.ready_ns = (*end).clamp(op.launch_ns, op.start_ns.max(op.launch_ns));
                *end = (*end).max(op.end_ns);
            }
        });
        if window.is_none() && !self.calls_known() {
            self.ops.change(|op| op.early = false);
        }
        self.busy = Arc::new(busy);
        self.copies = copies.map(Arc::new);
        let kernels = self.ops.iter().filter(|op| op.kind != WorkKind::Copy && op.end_ns > op.start_ns);
        if self.ran.is_some() && is_of_others(kernels.map(|op| op.ran_ns)) {
            self.ran = None;
            self.ops.change(|op| op.ran_ns = op.end_ns.saturating_sub(op.start_ns));
        }
        let Some(until_ns) = self.recorded_until_ns.filter(|_| self.ran.is_some()) else { return };
        let later = |op: &Op| op.kind != WorkKind::Copy && op.end_ns.saturating_sub(until_ns) > WAKE_NS;
        if self.ops.iter().any(|op| later(&op)) {
            self.ops.change(|op| {
                if later(op) {
                    (op.unusual, op.early) = (Some(Unusual::Cut), false);
                }
            });
        }
    }

    /// Whether an operation runs only while its context is there: copies to the host and from it do not need that.
    pub fn needs_context(&self, op: &Op) -> bool {
        engine(&self.engines, op).is_none()
    }

    fn finish(&mut self, engines: Arc<[Option<CopyEngine>]>) {
        self.without_cuts();
        let mut seen = vec![false; engines.len()];
        let mut usual = vec![[0; 3]; engines.len()];
        let (ran, busy, others, beside) = (&self.ran, &*self.busy, &*self.others, &*self.beside);
        let same = Arc::ptr_eq(&self.others, &self.beside);
        let [inside, before, at_work, near] = &mut [OthersWalk::default(); 4];
        let [there, own] = &mut [Walk::default(); 2];
        let (copies, others_copies) = (&self.copies, &self.others_copies);
        self.ops.change(|op| {
            if let Some(seen) = seen.get_mut(op.signature as usize) {
                let first = !std::mem::replace(seen, true);
                op.unusual = op.unusual.or(first.then_some(Unusual::First));
            }
            let others_inside_ns = inside.covered_ns(others, op.start_ns, op.end_ns);
            let contended = others_inside_ns > 0;
            op.co_run = if contended {
                CoRun::Contended
            } else if before.covered_ns(others, op.launch_ns, op.start_ns) > 0
                || engine(&engines, op)
                    .and_then(|engine| others_copies.get(engine as usize))
                    .is_some_and(|others| others.covered_ns(op.launch_ns, op.start_ns) > 0)
            {
                CoRun::Waited
            } else {
                CoRun::Solo
            };
            if contended {
                let with_ns =
                    if same { others_inside_ns } else { at_work.covered_ns(beside, op.start_ns, op.end_ns) };
                op.co_running_ns = with_ns.min(op.ran_ns);
            }
            if op.unusual.is_none() && op.kind != WorkKind::Copy {
                let counts = usual.get_mut(op.signature as usize);
                if let Some(count) = counts.and_then(|counts| counts.get_mut(op.co_run as usize)) {
                    *count += 1;
                }
            }
            let (from, to) = (op.free_ns(), op.start_ns);
            if from >= to {
                return;
            }
            if let Some(engine) = engine(&engines, op) {
                // A copy waits for others of its engine, and needs no turn on the compute engine.
                let of_others = others_copies.get(engine as usize);
                let others_ns = of_others.map_or(0, |copies| copies.covered_ns(from, to));
                let busy_ns = copies.get(engine as usize).map_or(0, |copies| copies.covered_ns(from, to));
                op.waited = Waited::of(to.saturating_sub(from), busy_ns, others_ns, others_ns);
                return;
            }
            // Where nobody was there between launch and start, nobody was in a part of that; who is beside is there.
            let others_ns = if op.co_run == CoRun::Solo { 0 } else { before.covered_ns(others, from, to) };
            let resident_ns = ran.as_ref().map_or(to.saturating_sub(from), |r| there.covered_ns(r, from, to));
            let co_running_ns =
                if same || others_ns == 0 { others_ns } else { near.covered_ns(beside, from, to) };
            let others_ns = if ran.is_some() { co_running_ns } else { others_ns };
            op.waited = Waited::of(resident_ns, own.covered_ns(busy, from, to), co_running_ns, others_ns);
        });
        self.usual = usual;
        self.engines = engines;
        let place = |op: &Op| (op.launch_ns, op.start_ns, op.end_ns, op.stream, op.signature);
        self.ops.sort_by_key(place);
    }
}
