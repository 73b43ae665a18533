//! Walk the critical chain of a unit of work back from its end.
//!
//! ```text
//!   thread    |--host--|call|                                    |synchronise...|-host-|
//!   stream             |launch|--queue--|== kernel ==|== kernel ==|
//!   resident  ==================|      |=======|      |=================================
//!                                 slice            slice
//! ```
//!
//! From the end of the unit back: a thread that waited was released by the operation that it waited for; an operation
//! by what came last of its launch call, the operation before it in its stream, the one that an awaited event was recorded
//! behind, the legacy default stream, and one of another stream of its tenant that ended just before it started; a launch
//! call by its thread. Ties go to the same stream. Where the chain leaves the
//! unit, the launch of the unit's own operation ends the detour: until then the unit had not asked for anything.
//!
//! Every step adds segments as long as it goes back, so that the segments of a unit add up to its duration.
//!
//! While an operation waits for another tenant, its thread goes on. Of what it does then, the unit needs without the other
//! tenant as well what the operations behind it in the chain could not have started before: their launch calls, what the
//! thread did in between, and what it did before it waited for them. So much of the wait is launch and host time:
//!
//! ```text
//!   thread   |copy|host|====== graph launch ======|
//!   resident  ======== another tenant ====================|
//!   stream                                                |copy|== kernels of the graph ==|
//!   parts    |launch, host, launch                |waiting|
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::base::hardware::{CLOCK_ERROR_NS, RELEASE_NS, START_NS, WAKE_NS};
use crate::base::intervals::{Union, Walk as SpanWalk};
use crate::base::maps::NumberMap;
use crate::base::statistics::{median_ns, median_of};
use crate::explain::units::{thread_of, waits_by_thread, Unit};
use crate::explain::waits::Waits;
use crate::residency::observed::Slice;
use crate::slowdown::operations::{Op, Scene, Tenancy};
use crate::slowdown::ops::Ops;
use crate::slowdown::others::Present;
use crate::table::calls::Calls;
use crate::table::work::WorkKind;

/// Operations that are looked at to find one that ended or was in flight at some moment.
const LOOK_BACK: usize = 256;
/// Operations of one kind that waited for nobody, for when they usually start.
const ENOUGH_STARTS: usize = 5;
/// Steps of a chain per operation of its unit, and for any unit, after which the rest is left unexplained.
const STEPS_PER_OPERATION: usize = 8;
const STEPS: usize = 4_096;
/// The next operation of a stream starts so long after the one before at most, where nothing else holds it up.
const NEXT_NS: i64 = 2 * RELEASE_NS;
/// A launch call, or the time between two, that takes this part (one over) of a thread's time between two waits is a
/// segment of its own.
const LONG_PIECE: i64 = 4;

/// What a part of a unit's duration was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentKind {
    /// The program's own time before a launch or behind a synchronisation.
    Host,
    /// The launch call, and until an idle device started.
    Launch,
    /// Behind work of the same stream that is not the unit's own.
    QueueSameStream,
    /// Behind work of another stream of the same tenant that is not the unit's own.
    QueueOtherStream,
    /// Ready and resident while another tenant's work was on the device.
    QueueOtherTenant,
    /// A copy or a set.
    Copy,
    /// Another tenant's context was resident.
    TimeSlice,
    /// The engine was being handed over.
    Switch,
    /// A kernel or a graph ran.
    Execution,
    /// From the end of the awaited operation until the call returned.
    Synchronisation,
    /// Another thread of the process was at work before it launched.
    OtherThread,
    /// A stream waited for an event of which the capture does not say where it was recorded.
    Event,
    /// No record explains it.
    Unexplained,
}

impl SegmentKind {
    /// All of them, in the order in which they are named.
    pub const ALL: [Self; 13] = [
        Self::Host,
        Self::Launch,
        Self::QueueSameStream,
        Self::QueueOtherStream,
        Self::QueueOtherTenant,
        Self::Copy,
        Self::TimeSlice,
        Self::Switch,
        Self::Execution,
        Self::Synchronisation,
        Self::OtherThread,
        Self::Event,
        Self::Unexplained,
    ];

    /// Whether it is a wait that there is only because others share the device.
    fn waits_for_others(self) -> bool {
        matches!(self, Self::TimeSlice | Self::Switch | Self::QueueOtherTenant)
    }

    /// As in the table `unit_segments`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Launch => "launch",
            Self::QueueSameStream => "queue-same-stream",
            Self::QueueOtherStream => "queue-other-stream",
            Self::QueueOtherTenant => "queue-other-tenant",
            Self::Copy => "copy",
            Self::TimeSlice => "time-slice",
            Self::Switch => "switch",
            Self::Execution => "execution",
            Self::Synchronisation => "synchronisation",
            Self::OtherThread => "other-thread",
            Self::Event => "event",
            Self::Unexplained => "unexplained",
        }
    }
}

/// A part of a unit's duration. Parts of one step that alternate (a kernel that is switched out again and again) are one
/// segment each: its duration is less than end minus start then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub kind: SegmentKind,
    pub start_ns: i64,
    pub end_ns: i64,
    pub dur_ns: i64,
    /// Pieces: time slices, switches.
    pub count: u32,
    /// Whose work or slice it was, or beside whom it ran.
    pub other: Option<u32>,
    /// The operation: a signature.
    pub signature: Option<u32>,
    /// Of the operation.
    pub stream: Option<u32>,
    /// Of a launch of a graph, its operations; 1 for all else.
    pub nodes: u32,
    /// Median of what equal operations behind an equal one took while resident.
    pub usual_ns: Option<i64>,
    /// The operation is the unit's own.
    pub own: bool,
}

/// A chain, first segment first.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub segments: Vec<Segment>,
    /// Operations that started before the one that released them had ended: their overlap is left out.
    pub clamped: u32,
}

/// When one tenant's work could not run, and what came before what.
pub(crate) struct Walker<'a> {
    tenant: &'a Tenancy,
    calls: Option<&'a Calls>,
    switching: Option<&'a Union>,
    /// Slices of the device by start, and the longest.
    slices: &'a [Slice],
    longest_slice_ns: i64,
    /// Residency of others is not all known: that of the tenant is deduced, or other virtual machines are not recorded.
    others_unknown: bool,
    /// The tenant whose residency is its own: itself, or the server that it is a client of.
    holder: u32,
    /// By operation: the one before it in its stream that ended last.
    before: Vec<u32>,
    stream_waits: Waits,
    /// Places of operations, by end.
    by_end: Vec<u32>,
    waits: BTreeMap<u32, Vec<(i64, i64)>>,
    /// By thread, what it did.
    threads: BTreeMap<u32, ThreadTime>,
    /// By launch call of a graph: its operations.
    graphs: NumberMap<u32, u32>,
    usual_starts: UsualStarts,
    own: &'a Placed<'a>,
    /// By signature, and that of the operation before it in its stream.
    usual_ns: HashMap<(u32, Option<u32>), i64>,
    placed: &'a BTreeMap<u32, Placed<'a>>,
    copying_here: &'a Present,
}

/// A launch call.
struct LaunchCall {
    /// Signature of the first of its operations, and how many there are.
    what: Launched,
    thread: u32,
    start_ns: i64,
    end_ns: i64,
}

/// What a call launches: the signature of its first operation, and how many.
type Launched = (u32, u32);

/// The first operation of each launch call, with what that launches; `graphs` are calls that launch several. The
/// operations of one call stand together.
fn first_of_calls<'t>(
    tenant: &'t Tenancy,
    graphs: &'t NumberMap<u32, u32>,
) -> impl Iterator<Item = (Launched, Op)> + 't {
    let mut before = None;
    tenant.ops.iter().filter_map(move |op| {
        let call = op.call()?;
        let first = before.replace(call) != Some(call);
        first.then(|| ((op.signature, graphs.get(&call).copied().unwrap_or(1)), op))
    })
}

/// How long after the begin of their launch call operations start that wait for nobody, by what the call launches: some
/// start long before it returns.
struct UsualStarts(HashMap<Launched, i64>);

impl UsualStarts {
    fn of(tenant: &Tenancy, graphs: &NumberMap<u32, u32>) -> Self {
        let Some(ran) = tenant.ran.as_ref() else { return Self(HashMap::new()) };
        let mut starts: HashMap<Launched, Vec<i64>> = HashMap::new();
        let mut walk = SpanWalk::default();
        for (what, op) in first_of_calls(tenant, graphs) {
            let after_ns = op.start_ns.saturating_sub(op.launch_ns);
            if walk.covered_ns(ran, op.launch_ns, op.start_ns) == after_ns {
                starts.entry(what).or_default().push(after_ns);
            }
        }
        let enough = starts.into_iter().filter(|(_, list)| list.len() >= ENOUGH_STARTS);
        Self(enough.filter_map(|(what, list)| Some((what, median_ns(&list)?))).collect())
    }

    /// Until when the first operation of a call that launches so many needs that call.
    fn until_ns(&self, tenant: &Tenancy, op: &Op, nodes: u32) -> i64 {
        let had_context = |ran: &Union| {
            ran.covered_ns(op.launch_ns, op.start_ns) == op.start_ns.saturating_sub(op.launch_ns)
        };
        // One that waited for nobody started as it did.
        let usual_ns =
            self.0.get(&(op.signature, nodes)).filter(|_| !tenant.ran.as_ref().is_some_and(had_context));
        usual_ns.map_or(i64::MAX, |usual_ns| op.launch_ns.saturating_add(*usual_ns))
    }
}

/// What a thread did.
#[derive(Default)]
struct ThreadTime {
    /// In launch calls.
    launching: Union,
    /// The same, as long as equal calls usually take: the rest was held up, by a full queue, a limiter, a profiler.
    usual: Union,
    /// In calls that may wait for the device.
    waiting: Union,
}

impl ThreadTime {
    /// By thread. `waits` are calls that may wait, `graphs` calls that launch several operations.
    fn of(
        tenant: &Tenancy,
        calls: Option<&Calls>,
        waits: &BTreeMap<u32, Vec<(i64, i64)>>,
        graphs: &NumberMap<u32, u32>,
    ) -> BTreeMap<u32, Self> {
        let launches: Vec<LaunchCall> = first_of_calls(tenant, graphs)
            .filter_map(|(what, op)| {
                let thread = thread_of(calls, &op)?;
                Some(LaunchCall { what, thread, start_ns: op.launch_ns, end_ns: op.called_ns })
            })
            .collect();
        let mut lengths: HashMap<Launched, Vec<i64>> = HashMap::new();
        for call in &launches {
            lengths.entry(call.what).or_default().push(call.end_ns.saturating_sub(call.start_ns));
        }
        let medians =
            lengths.iter_mut().filter_map(|(what, list)| Some((*what, median_of(list)?.round() as i64)));
        let usual_ns: HashMap<Launched, i64> = medians.collect();
        let mut spans: BTreeMap<u32, [Vec<(i64, i64)>; 2]> = BTreeMap::new();
        for LaunchCall { what, thread, start_ns, end_ns } in launches {
            let [launching, usual] = spans.entry(thread).or_default();
            launching.push((start_ns, end_ns));
            let most_ns = usual_ns.get(&what).copied().unwrap_or(i64::MAX);
            usual.push((start_ns, end_ns.min(start_ns.saturating_add(most_ns))));
        }
        let of = |(thread, [launching, usual]): (u32, [Vec<(i64, i64)>; 2])| {
            let waiting = waits.get(&thread).map(Vec::as_slice).unwrap_or_default();
            let waiting = Union::of(waiting.iter().copied());
            (thread, Self { launching: Union::of(launching), usual: Union::of(usual), waiting })
        };
        spans.into_iter().map(of).collect()
    }
}

/// The operations of a tenant.
pub(crate) struct Placed<'a> {
    tenant: &'a Tenancy,
    /// Their places, by start.
    by_start: Vec<u32>,
    copying: Arc<Union>,
}

impl<'a> Placed<'a> {
    pub fn of(tenant: &'a Tenancy) -> Self {
        let copies = tenant.ops.iter().filter(|op| op.kind == WorkKind::Copy);
        let copying = Union::of(copies.map(|op| (op.start_ns, op.end_ns)).collect::<Vec<_>>());
        Self {
            tenant,
            by_start: order_by(&tenant.ops, |op| (op.start_ns, op.end_ns)),
            copying: Arc::new(copying),
        }
    }

    /// When each tenant of a device copied.
    pub fn copying<'p>(placed: impl Iterator<Item = (&'p u32, &'p Self)>, device: u32) -> Present
    where
        'a: 'p,
    {
        let here = placed.filter(|(_, one)| one.tenant.device == device);
        Present::of(here.map(|(id, one)| (*id, Arc::clone(&one.copying))))
    }
}

const NONE: u32 = u32::MAX;

fn order_by<K: Ord>(ops: &Ops, key: impl Fn(&Op) -> K) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(ops.len()).unwrap_or(u32::MAX)).collect();
    order.sort_by_key(|place| ops.get(*place as usize).map(|op| key(&op)));
    order
}

/// What is known of the whole device while units of one tenant are explained.
pub(crate) struct Device<'a> {
    pub scene: &'a Scene,
    pub slices: &'a [Slice],
    pub others_unknown: bool,
    /// The tenant whose residency is that of the one that is explained.
    pub holder: u32,
    /// Operations of all tenants, and when those of the device copied.
    pub placed: &'a BTreeMap<u32, Placed<'a>>,
    pub copying: &'a Present,
}

/// Begin and end of the calls of each thread that may wait for the device, by end: those of copies that were done when the
/// call returned as well.
fn waits(tenant: &Tenancy, calls: &Calls) -> BTreeMap<u32, Vec<(i64, i64)>> {
    let mut found = waits_by_thread(calls);
    let call = |op: Op| calls.get(op.call()? as usize).filter(|call| op.ends_inside(call));
    for call in tenant.ops.iter().filter_map(call) {
        found.entry(call.thread).or_default().push((call.start_ns, call.end_ns));
    }
    for list in found.values_mut() {
        list.sort_unstable_by_key(|wait| (wait.1, wait.0));
        list.dedup();
    }
    found
}

/// Calls that launched several operations, a kernel among them: how many.
fn graphs(ops: &Ops) -> NumberMap<u32, u32> {
    let mut found: NumberMap<u32, (u32, bool)> = NumberMap::default();
    for (call, kind) in ops.iter().filter_map(|op| Some((op.call()?, op.kind))) {
        let (nodes, kernels) = found.entry(call).or_default();
        *nodes = nodes.saturating_add(1);
        *kernels |= kind == WorkKind::Kernel;
    }
    found
        .into_iter()
        .filter(|(_, (nodes, kernels))| *nodes > 1 && *kernels)
        .map(|(call, of)| (call, of.0))
        .collect()
}

/// Median of what a tenant's operations took while their context ran, by signature and that of the one `before`: a kernel
/// that two layers call with the same grid takes another time in each. What ran once has nothing to compare with.
fn usual_ns(tenant: &Tenancy, before: &[u32]) -> HashMap<(u32, Option<u32>), i64> {
    let mut lengths: HashMap<(u32, Option<u32>), Vec<i64>> = HashMap::new();
    for (op, before) in tenant.ops.iter().zip(before) {
        let before = tenant.ops.get(*before as usize).map(|op| op.signature);
        lengths.entry((op.signature, before)).or_default().push(op.ran_ns);
    }
    lengths.retain(|_, list| list.len() > 1);
    let medians = lengths.iter_mut().filter_map(|(key, list)| Some((*key, median_of(list)?.round() as i64)));
    medians.collect()
}

impl<'a> Walker<'a> {
    pub fn new(device: &Device<'a>, own: &'a Placed<'a>, stream_waits: Waits) -> Self {
        let Device { scene, slices, others_unknown, holder, placed, copying } = *device;
        let tenant = own.tenant;
        let calls = scene.calls.get(&tenant.process);
        let mut before = vec![NONE; tenant.ops.len()];
        let mut last = vec![(i64::MIN, NONE); tenant.streams()];
        for place in &own.by_start {
            let Some(op) = tenant.ops.get(*place as usize) else { continue };
            let Some(latest) = last.get_mut(op.stream as usize) else { continue };
            if let Some(slot) = before.get_mut(*place as usize) {
                *slot = latest.1;
            }
            if op.end_ns >= latest.0 {
                *latest = (op.end_ns, *place);
            }
        }
        let waits = calls.map(|calls| waits(tenant, calls)).unwrap_or_default();
        let graphs = graphs(&tenant.ops);
        Self {
            tenant,
            calls,
            switching: scene.switching.get(&tenant.device),
            slices,
            longest_slice_ns: slices.iter().map(Slice::dur_ns).max().unwrap_or(0),
            others_unknown,
            holder,
            usual_ns: usual_ns(tenant, &before),
            before,
            stream_waits,
            by_end: order_by(&tenant.ops, |op| (op.end_ns, op.start_ns)),
            threads: ThreadTime::of(tenant, calls, &waits, &graphs),
            usual_starts: UsualStarts::of(tenant, &graphs),
            waits,
            graphs,
            own,
            placed,
            copying_here: copying,
        }
    }

    fn op(&self, place: u32) -> Option<Op> {
        self.tenant.ops.get(place as usize)
    }

    fn usual_ns(&self, place: u32, op: &Op) -> Option<i64> {
        let before = self.before.get(place as usize).and_then(|p| self.op(*p));
        self.usual_ns.get(&(op.signature, before.map(|op| op.signature))).copied()
    }

    /// Operations that ended no later than `time_ns`, the last one first.
    fn ended_before(&self, time_ns: i64) -> impl Iterator<Item = (u32, Op)> + '_ {
        let behind = self.by_end.partition_point(|p| self.op(*p).is_some_and(|op| op.end_ns <= time_ns));
        let ended = self.by_end.get(..behind).unwrap_or_default().iter().rev().take(LOOK_BACK);
        ended.filter_map(|p| Some((*p, self.op(*p)?)))
    }

    /// What a call waited for that lasted from `from_ns` to `to_ns`: of what had been launched before, what ended last.
    fn waited_for(&self, thread: u32, from_ns: i64, to_ns: i64) -> Option<u32> {
        let ended = || {
            self.ended_before(to_ns.saturating_add(CLOCK_ERROR_NS))
                .take_while(move |(_, op)| op.end_ns > from_ns)
        };
        let launched = |op: &Op| op.launch_ns <= from_ns;
        ended()
            .take_while(|(_, op)| to_ns.saturating_sub(op.end_ns) <= WAKE_NS)
            .find(|(_, op)| launched(op))
            .or_else(|| ended().find(|(_, op)| launched(op) && thread_of(self.calls, op) == Some(thread)))
            .map(|(place, _)| place)
    }

    /// Explains one unit.
    pub fn explain(&self, unit: &Unit) -> Chain {
        let mut walk = Walk {
            walker: self,
            unit,
            chain: Chain::default(),
            time_ns: unit.end_ns,
            floor_ns: unit.start_ns,
            detour: None,
            needed: None,
        };
        walk.run();
        walk.chain.segments.reverse();
        walk.chain
    }

    /// The operation of `tenant` that was longest in flight between `from_ns` and `to_ns`, but for one.
    fn in_flight(tenant: &Tenancy, by_start: &[u32], from_ns: i64, to_ns: i64, but: u32) -> Option<u32> {
        let op = |p: &u32| tenant.ops.get(*p as usize);
        let behind = by_start.partition_point(|p| op(p).is_some_and(|op| op.start_ns < to_ns));
        let near = by_start.get(..behind)?.iter().rev().take(LOOK_BACK).filter(|p| **p != but);
        let common = |op: &Op| op.end_ns.min(to_ns).saturating_sub(op.start_ns.max(from_ns));
        near.filter_map(|p| Some((common(&op(p)?), *p))).filter(|c| c.0 > 0).max().map(|c| c.1)
    }
}

/// Where a chain is.
#[derive(Debug, Clone, Copy)]
enum At {
    /// A thread was at work, or waited.
    Thread(Option<u32>),
    /// An operation was on the device.
    Op(u32),
    /// The launch call of an operation ended, or the operation could start.
    Launch(u32),
}

/// Pieces of a thread's time, from the last back: launch calls, and the program's own time between them.
struct Pieces {
    /// From here on a piece is a segment of its own.
    long_ns: i64,
    /// Passed down to here.
    at_ns: i64,
    /// Sums of the short ones since the last segment.
    launch_ns: i64,
    host_ns: i64,
}

/// What a thread had to do before the chain could be where it is, whoever else used the device.
#[derive(Debug, Clone, Copy)]
struct Needed {
    thread: u32,
    /// Of that thread's time, until here.
    until_ns: i64,
    /// The chain took so long since, but for waiting for other tenants.
    since_ns: i64,
    /// The operation whose launch call ended then; none: the thread began to wait.
    launched: Option<u32>,
}

impl Needed {
    /// Before this the chain could not have been where it is.
    fn earliest_ns(&self) -> i64 {
        self.until_ns.saturating_sub(self.since_ns)
    }
}

struct Walk<'w, 'a> {
    walker: &'w Walker<'a>,
    unit: &'w Unit,
    chain: Chain,
    /// Explained down to here.
    time_ns: i64,
    /// To be explained down to here: the begin of the unit, or the launch of the operation that a detour began with.
    floor_ns: i64,
    /// The unit's own operation from which the chain went to work that is not the unit's.
    detour: Option<u32>,
    /// None: the chain is on a thread.
    needed: Option<Needed>,
}

impl<'a> Walk<'_, 'a> {
    fn run(&mut self) {
        let unit = self.unit;
        let last = self.walker.op(unit.last);
        let mut now = match last {
            Some(op) if op.end_ns >= unit.end_ns => At::Op(unit.last),
            _ => At::Thread(unit.main_thread),
        };
        let steps = STEPS.saturating_add(STEPS_PER_OPERATION.saturating_mul(unit.operations as usize));
        for _ in 0..steps {
            if self.time_ns <= self.floor_ns {
                // Launched: from here on its own launch is what the unit waited for.
                let Some(own) = self.detour.take() else { return };
                self.floor_ns = unit.start_ns;
                now = At::Launch(own);
            }
            now = match now {
                At::Thread(thread) => self.thread(thread),
                At::Op(place) => self.in_flight(place),
                At::Launch(place) => self.launch(place),
            };
        }
        self.floor_ns = unit.start_ns;
        self.back(SegmentKind::Unexplained, unit.start_ns, None);
    }

    fn own(&self, op: &Op) -> bool {
        self.unit.has(op, thread_of(self.walker.calls, op))
    }

    /// Goes back to `to_ns`, at most to the floor, with a segment of that kind. Returns how far.
    fn back(&mut self, kind: SegmentKind, to_ns: i64, op: Option<u32>) -> i64 {
        let to_ns = to_ns.max(self.floor_ns);
        let dur_ns = self.time_ns.saturating_sub(to_ns);
        if dur_ns <= 0 {
            return 0;
        }
        let segment = self.segment(kind, to_ns, self.time_ns, dur_ns, op);
        self.chain.segments.push(segment);
        self.time_ns = to_ns;
        dur_ns
    }

    fn segment(
        &self,
        kind: SegmentKind,
        start_ns: i64,
        end_ns: i64,
        dur_ns: i64,
        op: Option<u32>,
    ) -> Segment {
        let of = op.and_then(|place| self.walker.op(place));
        let call = of.as_ref().filter(|_| kind == SegmentKind::Launch).and_then(Op::call);
        Segment {
            kind,
            start_ns,
            end_ns,
            dur_ns,
            count: 1,
            other: None,
            signature: of.map(|op| op.signature),
            stream: of.map(|op| op.stream),
            nodes: call.and_then(|call| self.walker.graphs.get(&call)).copied().unwrap_or(1),
            usual_ns: None,
            own: of.is_some_and(|op| self.own(&op)),
        }
    }

    /// A thread at `time_ns`: back to the last call that returned because something had ended, else to the floor.
    fn thread(&mut self, thread: Option<u32>) -> At {
        let mine = thread.is_none() || self.unit.main_thread.is_none_or(|own| Some(own) == thread);
        let kind = if mine { SegmentKind::Host } else { SegmentKind::OtherThread };
        let waits = thread.and_then(|t| self.walker.waits.get(&t)).map_or(&[][..], Vec::as_slice);
        let behind = waits.partition_point(|w| w.1 <= self.time_ns);
        let near = waits.get(..behind).unwrap_or_default().iter().rev();
        for (from_ns, to_ns) in near.take_while(|w| w.1 > self.floor_ns).copied() {
            let Some(place) = thread.and_then(|t| self.walker.waited_for(t, from_ns, to_ns)) else {
                continue;
            };
            let end_ns = self.walker.op(place).map_or(to_ns, |op| op.end_ns.min(to_ns));
            self.at_work(kind, thread, to_ns);
            self.back(SegmentKind::Synchronisation, end_ns, Some(place));
            let begins_to_wait = |thread| Needed { thread, until_ns: from_ns, since_ns: 0, launched: None };
            self.needed = thread.map(begins_to_wait);
            self.leave_for(place, None);
            return At::Op(place);
        }
        self.at_work(kind, thread, self.floor_ns);
        At::Thread(thread)
    }

    /// Goes back to `to_ns` on a thread: launch calls of other operations on the way are no work of the program's own. Long
    /// pieces are segments; the short ones between them alternate.
    fn at_work(&mut self, kind: SegmentKind, thread: Option<u32>, to_ns: i64) {
        let to_ns = to_ns.max(self.floor_ns);
        let launching = thread.and_then(|t| Some(&self.walker.threads.get(&t)?.launching));
        let Some(launching) = launching.filter(|_| kind != SegmentKind::OtherThread) else {
            self.back(kind, to_ns, None);
            return;
        };
        let long_ns = self.time_ns.saturating_sub(to_ns) / LONG_PIECE;
        let mut pieces = Pieces { long_ns, at_ns: self.time_ns, launch_ns: 0, host_ns: 0 };
        let spans = launching.spans();
        let first = spans.partition_point(|s| s.1 <= to_ns);
        let behind = spans.partition_point(|s| s.0 < self.time_ns);
        for (from_ns, until_ns) in spans.get(first..behind).unwrap_or_default().iter().rev() {
            self.piece(&mut pieces, SegmentKind::Host, *until_ns);
            self.piece(&mut pieces, SegmentKind::Launch, (*from_ns).max(to_ns));
        }
        self.piece(&mut pieces, SegmentKind::Host, to_ns);
        self.short(&mut pieces);
    }

    /// One piece of a thread's time, which began at `from_ns`.
    fn piece(&mut self, pieces: &mut Pieces, kind: SegmentKind, from_ns: i64) {
        let dur_ns = pieces.at_ns.saturating_sub(from_ns);
        if dur_ns <= 0 {
            return;
        }
        if dur_ns >= pieces.long_ns {
            self.short(pieces);
            self.back(kind, from_ns, None);
        } else {
            let sum = if kind == SegmentKind::Launch { &mut pieces.launch_ns } else { &mut pieces.host_ns };
            *sum = sum.saturating_add(dur_ns);
        }
        pieces.at_ns = from_ns;
    }

    /// Segments of the short pieces that were passed since the last long one.
    fn short(&mut self, pieces: &mut Pieces) {
        let sums = [(SegmentKind::Launch, pieces.launch_ns), (SegmentKind::Host, pieces.host_ns)];
        for (kind, dur_ns) in sums.into_iter().filter(|sum| sum.1 > 0) {
            let segment = self.segment(kind, pieces.at_ns, self.time_ns, dur_ns, None);
            self.chain.segments.push(segment);
        }
        (pieces.launch_ns, pieces.host_ns) = (0, 0);
        self.time_ns = pieces.at_ns;
    }

    /// The chain goes to an operation: one that is not the unit's is followed until `from` was launched.
    fn leave_for(&mut self, place: u32, from: Option<u32>) {
        let foreign = self.walker.op(place).is_some_and(|op| !self.own(&op));
        let Some(from) = from.filter(|_| foreign && self.detour.is_none()) else { return };
        let Some(op) = self.walker.op(from).filter(|op| op.call().is_some()) else { return };
        self.detour = Some(from);
        self.floor_ns =
            op.called_ns.min(op.start_ns).max(op.launch_ns).max(self.unit.start_ns).min(self.time_ns);
    }

    /// An operation from its start to `time_ns`, then what released it.
    fn in_flight(&mut self, place: u32) -> At {
        let Some(op) = self.walker.op(place) else { return At::Thread(self.unit.main_thread) };
        let start_ns = op.start_ns.max(self.floor_ns).min(self.time_ns);
        let own = self.own(&op);
        let kind = match (own, op.kind) {
            (true, WorkKind::Copy) => SegmentKind::Copy,
            (true, _) => SegmentKind::Execution,
            (false, _) if self.detour_stream() == Some(op.stream) => SegmentKind::QueueSameStream,
            (false, _) => SegmentKind::QueueOtherStream,
        };
        let (to_ns, first) = (self.time_ns, self.chain.segments.len());
        let all_ns = to_ns.saturating_sub(start_ns);
        if all_ns > 0 {
            let away_ns = if op.kind == WorkKind::Copy { 0 } else { self.away(start_ns, place) };
            let ran_ns = all_ns.saturating_sub(away_ns);
            if ran_ns > 0 {
                let mut segment = self.segment(kind, start_ns, self.time_ns, ran_ns, Some(place));
                // Of a part of an operation nothing says how long it usually takes.
                if own && start_ns == op.start_ns && self.time_ns == op.end_ns {
                    segment.usual_ns = self.walker.usual_ns(place, &op);
                }
                segment.other = self.beside(&op, start_ns, self.time_ns);
                self.chain.segments.push(segment);
            }
            self.time_ns = start_ns;
            self.needed_meanwhile(first, start_ns, to_ns);
        }
        if self.time_ns <= self.floor_ns {
            return At::Op(place);
        }
        self.released(place, &op)
    }

    /// The stream that the operation which the detour began with is in; without a detour, of the unit's last.
    fn detour_stream(&self) -> Option<u32> {
        self.walker.op(self.detour.unwrap_or(self.unit.last)).map(|op| op.stream)
    }

    /// Who else's work ran most while an operation did.
    fn beside(&self, op: &Op, from_ns: i64, to_ns: i64) -> Option<u32> {
        if op.co_running_ns == 0 {
            return None;
        }
        let tenant = self.walker.tenant;
        tenant.present.longest(from_ns, to_ns, None, tenant.id).map(|longest| longest.0)
    }

    /// Before an operation started: what came last of its launch, its stream, and its tenant's other streams.
    fn released(&mut self, place: u32, op: &Op) -> At {
        let nodes = op.call().and_then(|call| self.walker.graphs.get(&call)).copied().unwrap_or(1);
        let before = place.checked_sub(1).and_then(|before| self.walker.op(before));
        let later = nodes > 1 && before.is_some_and(|before| before.call() == op.call());
        let needed_ns =
            if later { i64::MAX } else { self.walker.usual_starts.until_ns(self.walker.tenant, op, nodes) };
        let called_ns = op.called_ns.min(op.start_ns).min(needed_ns).max(op.launch_ns);
        // Later operations of a graph come after its first one, not after its call.
        if !later {
            self.launched(place, op, called_ns);
        }
        let before = self.walker.before.get(place as usize).copied().filter(|p| *p != NONE);
        let before = before.and_then(|p| Some((p, self.walker.op(p)?)));
        let stream_ns = before.map_or(i64::MIN, |(_, b)| b.end_ns);
        let overlaps = before.is_some_and(|(_, b)| b.end_ns > op.start_ns.saturating_add(CLOCK_ERROR_NS));
        if overlaps {
            self.chain.clamped = self.chain.clamped.saturating_add(1);
        }
        let stream_known_ns = if overlaps { i64::MIN } else { stream_ns };
        let known_ns = if op.call().is_some() { called_ns.max(stream_known_ns) } else { stream_known_ns };
        let other = self.other_stream(place, op, before.as_ref().map(|b| &b.1), known_ns, overlaps);
        if let Some((other, x)) = other {
            let same = x.stream == op.stream;
            let kind = if same { SegmentKind::QueueSameStream } else { SegmentKind::QueueOtherStream };
            self.wait(place, x.end_ns, kind);
            self.leave_for(other, Some(place));
            return At::Op(other);
        }
        match before {
            Some((before, b))
                if op.call().is_none() || b.end_ns.saturating_add(CLOCK_ERROR_NS) >= called_ns =>
            {
                self.wait(place, b.end_ns, SegmentKind::QueueSameStream);
                self.leave_for(before, Some(place));
                At::Op(before)
            }
            _ if op.call().is_some() => {
                self.wait(place, called_ns, SegmentKind::Launch);
                At::Launch(place)
            }
            _ => {
                self.back(SegmentKind::Unexplained, self.floor_ns, Some(place));
                At::Op(place)
            }
        }
    }

    /// What released an operation after `known_ns`, but for its own stream and its launch.
    fn other_stream(
        &self,
        place: u32,
        op: &Op,
        before: Option<&Op>,
        known_ns: i64,
        overlaps: bool,
    ) -> Option<(u32, Op)> {
        let walker = self.walker;
        let until_ns = op.start_ns.saturating_add(CLOCK_ERROR_NS);
        let late = |x: &Op| x.end_ns > known_ns.saturating_add(CLOCK_ERROR_NS);
        let event = walker.stream_waits.event(walker.tenant, op, before);
        let event = event.and_then(|p| Some((p, walker.op(p)?)));
        let event = event.filter(|(p, x)| *p != place && late(x) && x.end_ns <= until_ns);
        // Ended just before: the order of a graph, whose branches overlap in one stream, or room for its blocks. Longer
        // before: the legacy default stream, or a channel that both are in. What its own stream explains as well, that does.
        let next = before.is_some_and(|b| {
            !overlaps && b.end_ns == known_ns && op.start_ns.saturating_sub(known_ns) <= NEXT_NS
        });
        let waits = op.start_ns.saturating_sub(known_ns) > START_NS && op.call().is_some();
        let ended = walker.ended_before(until_ns).take_while(|(_, x)| late(x)).find(|(p, x)| {
            let just = op.start_ns.saturating_sub(x.end_ns) <= START_NS;
            let held = || walker.stream_waits.barrier(op, x) || walker.stream_waits.channel(op, x);
            *p != place
                && (overlaps || x.stream != op.stream)
                && x.start_ns < op.start_ns
                && ((just && !next) || (waits && x.stream != op.stream && held()))
        });
        event.into_iter().chain(ended).max_by_key(|(_, x)| x.end_ns)
    }

    /// The launch call of an operation, back to its begin; then its thread.
    fn launch(&mut self, place: u32) -> At {
        let Some(op) = self.walker.op(place) else { return At::Thread(self.unit.main_thread) };
        if op.call().is_none() {
            self.back(SegmentKind::Unexplained, self.floor_ns, Some(place));
            return At::Thread(None);
        }
        self.needed = None;
        self.back(SegmentKind::Launch, op.launch_ns, Some(place));
        At::Thread(thread_of(self.walker.calls, &op))
    }

    /// An operation that could have started at `ready_ns` and had not until `time_ns`; `rest` is what a moment of it is.
    fn wait(&mut self, place: u32, ready_ns: i64, rest: SegmentKind) {
        let from_ns = ready_ns.max(self.floor_ns).min(self.time_ns);
        let all_ns = self.time_ns.saturating_sub(from_ns);
        let Some(op) = self.walker.op(place).filter(|_| all_ns > 0) else { return };
        let (to_ns, first) = (self.time_ns, self.chain.segments.len());
        let copy = !self.walker.tenant.needs_context(&op);
        let mut left_ns = all_ns;
        if !copy {
            left_ns = left_ns.saturating_sub(self.away(from_ns, place));
        }
        let tenant = self.walker.tenant;
        let here = |union: &Union| match tenant.ran.as_ref().filter(|_| !copy) {
            Some(ran) => ran.common_within_ns(union, from_ns, to_ns),
            None => union.covered_ns(from_ns, to_ns),
        };
        // Its own tenant's other streams, then others' work: what is left over goes on.
        let own = if copy { &*self.walker.own.copying } else { &*tenant.busy };
        let own_ns = here(own).min(left_ns);
        if own_ns > START_NS {
            let who = Walker::in_flight(tenant, &self.walker.own.by_start, from_ns, to_ns, place);
            let mut segment = self.segment(SegmentKind::QueueOtherStream, from_ns, to_ns, own_ns, who);
            // None of both ended just before: which of them it waited for room beside is not on record.
            let beside = tenant.present.longest(from_ns, to_ns, tenant.ran.as_ref(), tenant.id);
            segment.other =
                beside.filter(|(_, ns)| !copy && ns.saturating_mul(2) >= own_ns).map(|(id, _)| id);
            self.chain.segments.push(segment);
            left_ns = left_ns.saturating_sub(own_ns);
        }
        if left_ns > START_NS {
            left_ns = left_ns.saturating_sub(self.behind_others(copy, from_ns, to_ns, left_ns));
        }
        if left_ns > 0 {
            let thread = thread_of(self.walker.calls, &op);
            let kind = if left_ns <= START_NS {
                rest
            } else if self.walker.stream_waits.unknown_event(&op, thread) {
                SegmentKind::Event
            } else {
                SegmentKind::Unexplained
            };
            let segment = self.segment(kind, from_ns, to_ns, left_ns, Some(place));
            self.chain.segments.push(segment);
        }
        self.time_ns = from_ns;
        self.needed_meanwhile(first, from_ns, to_ns);
    }

    /// The chain is where an operation started, which its launch call had to come before.
    fn launched(&mut self, place: u32, op: &Op, called_ns: i64) {
        if self.needed.as_ref().is_none_or(|needed| needed.earliest_ns() < called_ns) {
            let of = |thread| Needed { thread, until_ns: called_ns, since_ns: 0, launched: Some(place) };
            self.needed = thread_of(self.walker.calls, op).map(of).or(self.needed);
        }
    }

    /// Of what the segments from `first` on waited for other tenants between the two times: what the thread did meanwhile
    /// and the chain could not have gone on without is launch and host time.
    fn needed_meanwhile(&mut self, first: usize, from_ns: i64, to_ns: i64) {
        let Some(needed) = self.needed.as_mut() else { return };
        let step = self.chain.segments.get(first..).unwrap_or_default();
        let waits = step.iter().filter(|segment| segment.kind.waits_for_others());
        let waited_ns = waits.fold(0_i64, |sum, segment| sum.saturating_add(segment.dur_ns));
        needed.since_ns =
            needed.since_ns.saturating_add(to_ns.saturating_sub(from_ns)).saturating_sub(waited_ns);
        let most_ns = needed.earliest_ns().saturating_sub(from_ns).clamp(0, waited_ns);
        let Some(time) = self.walker.threads.get(&needed.thread).filter(|_| most_ns > 0) else { return };
        let until_ns = needed.until_ns;
        needed.until_ns = until_ns.saturating_sub(most_ns);
        let did = |union: &Union| union.covered_ns(needed.until_ns, until_ns);
        let launch_ns = did(&time.usual);
        let others_ns = did(&time.launching).saturating_sub(launch_ns).saturating_add(did(&time.waiting));
        let host_ns = most_ns.saturating_sub(launch_ns).saturating_sub(others_ns).max(0);
        needed.since_ns = needed.since_ns.saturating_add(others_ns);
        let call = needed.launched.and_then(|place| Some((place, self.walker.op(place)?)));
        let own = call.filter(|(_, op)| op.called_ns >= until_ns);
        let own_ns = own.map_or(0, |(_, op)| {
            time.usual.covered_ns(op.launch_ns.max(needed.until_ns), op.called_ns.min(until_ns))
        });
        let parts = [
            (SegmentKind::Launch, own_ns, own.map(|own| own.0)),
            (SegmentKind::Launch, launch_ns.saturating_sub(own_ns), None),
            (SegmentKind::Host, host_ns, None),
        ];
        let mut left_ns = launch_ns.saturating_add(host_ns);
        // The switch comes last, after all that the thread did meanwhile.
        for kind in [SegmentKind::TimeSlice, SegmentKind::QueueOtherTenant, SegmentKind::Switch] {
            for segment in self.chain.segments.iter_mut().skip(first).filter(|s| s.kind == kind) {
                let less_ns = left_ns.min(segment.dur_ns);
                segment.dur_ns = segment.dur_ns.saturating_sub(less_ns);
                left_ns = left_ns.saturating_sub(less_ns);
            }
        }
        let step = self.chain.segments.split_off(first);
        self.chain.segments.extend(step.into_iter().filter(|segment| segment.dur_ns > 0));
        for (kind, dur_ns, op) in parts.into_iter().filter(|part| part.1 > 0) {
            let segment = self.segment(kind, from_ns, to_ns, dur_ns, op);
            self.chain.segments.push(segment);
        }
    }

    /// Time in which work of other tenants was on the device beside a ready operation, with the longest of it.
    fn behind_others(&mut self, copy: bool, from_ns: i64, to_ns: i64, most_ns: i64) -> i64 {
        let tenant = self.walker.tenant;
        let longest = if copy {
            self.walker.copying_here.longest(from_ns, to_ns, None, tenant.id)
        } else {
            tenant.present.longest(from_ns, to_ns, tenant.ran.as_ref(), tenant.id)
        };
        let Some((id, ns)) = longest else { return 0 };
        let dur_ns = if copy { ns } else { tenant.beside.covered_ns(from_ns, to_ns) };
        let dur_ns = dur_ns.clamp(0, most_ns);
        if dur_ns == 0 {
            return 0;
        }
        let mut segment = self.segment(SegmentKind::QueueOtherTenant, from_ns, to_ns, dur_ns, None);
        segment.other = Some(id);
        if let Some(other) = self.walker.placed.get(&id) {
            let who = Walker::in_flight(other.tenant, &other.by_start, from_ns, to_ns, NONE);
            segment.signature = who.and_then(|p| other.tenant.ops.get(p as usize)).map(|op| op.signature);
        }
        self.chain.segments.push(segment);
        dur_ns
    }

    /// Adds segments for what of `from_ns` to `time_ns` the tenant's context did not run; returns their sum.
    fn away(&mut self, from_ns: i64, place: u32) -> i64 {
        let to_ns = self.time_ns;
        let tenant = self.walker.tenant;
        let Some(ran) = &tenant.ran else { return 0 };
        let out_ns = to_ns.saturating_sub(from_ns).saturating_sub(ran.covered_ns(from_ns, to_ns));
        if out_ns <= 0 {
            return 0;
        }
        let spans = ran.spans();
        let first = spans.partition_point(|s| s.1 <= from_ns);
        let mut switch = (0_i64, 0_u32);
        let mut slices: BTreeMap<Option<u32>, (i64, u32)> = BTreeMap::new();
        let mut idle_ns = 0_i64;
        let mut at_ns = from_ns;
        for span in spans.iter().skip(first).chain(std::iter::once(&(i64::MAX, i64::MAX))) {
            if at_ns >= to_ns {
                break;
            }
            let until_ns = span.0.min(to_ns);
            if at_ns < until_ns {
                self.gap(at_ns, until_ns, &mut switch, &mut slices, &mut idle_ns);
            }
            at_ns = span.1;
        }
        let mut sum_ns = 0_i64;
        let mut push = |walk: &mut Self, kind, ns: i64, count, other| {
            let ns = ns.min(out_ns.saturating_sub(sum_ns));
            if ns > 0 {
                let mut segment = walk.segment(kind, from_ns, to_ns, ns, Some(place));
                (segment.count, segment.other) = (count, other);
                walk.chain.segments.push(segment);
                sum_ns = sum_ns.saturating_add(ns);
            }
        };
        push(self, SegmentKind::Switch, switch.0, switch.1, None);
        for (other, (ns, count)) in slices {
            push(self, SegmentKind::TimeSlice, ns, count, other);
        }
        if idle_ns > START_NS {
            push(self, SegmentKind::Unexplained, idle_ns, 1, None);
        }
        sum_ns
    }

    /// What there was from `from_ns` to `to_ns`, in which the tenant's context did not run: the switch, slices of others
    /// by tenant, or nobody's residency.
    fn gap(
        &self,
        from_ns: i64,
        to_ns: i64,
        switch: &mut (i64, u32),
        slices: &mut BTreeMap<Option<u32>, (i64, u32)>,
        idle_ns: &mut i64,
    ) {
        let walker = self.walker;
        let switching = walker.switching;
        let covered = |a: i64, b: i64| switching.map_or(0, |u| u.covered_ns(a, b));
        let mut switch_ns = covered(from_ns, to_ns);
        let near =
            walker.slices.partition_point(|s| s.start_ns.saturating_add(walker.longest_slice_ns) <= from_ns);
        let mut others_ns = 0_i64;
        for slice in walker.slices.iter().skip(near).take_while(|s| s.start_ns < to_ns) {
            let (a, b) = (slice.start_ns.max(from_ns), slice.end_ns.min(to_ns));
            let mine = slice.tenant == Some(walker.holder);
            let ns = b.saturating_sub(a).saturating_sub(covered(a, b));
            if a >= b || ns <= 0 {
                continue;
            }
            if mine {
                // Its state was being saved or restored.
                switch_ns = switch_ns.saturating_add(ns);
            } else {
                let of = slices.entry(slice.tenant).or_default();
                *of = (of.0.saturating_add(ns), of.1.saturating_add(1));
            }
            others_ns = others_ns.saturating_add(ns);
        }
        let in_switches = covered(from_ns, to_ns);
        let rest_ns = to_ns.saturating_sub(from_ns).saturating_sub(others_ns).saturating_sub(in_switches);
        if rest_ns > 0 {
            if walker.others_unknown {
                // Of tenants that were not traced nobody knows the turns.
                let of = slices.entry(None).or_default();
                *of = (of.0.saturating_add(rest_ns), of.1.saturating_add(1));
            } else {
                *idle_ns = idle_ns.saturating_add(rest_ns);
            }
        }
        let edges =
            switching.map_or(0, |u| u.edges_inside(from_ns.saturating_sub(1), to_ns.saturating_add(1)));
        *switch = (
            switch.0.saturating_add(switch_ns),
            switch.1.saturating_add(u32::try_from(edges.div_ceil(2)).unwrap_or(1)),
        );
    }
}
