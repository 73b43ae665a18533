//! Replay a tenant's run without the other tenants (counterfactual replay).
//!
//! The program is replayed call by call: the host thinks as long as it did, launches as it did, and waits where it
//! waited, but what it waits for ends earlier. Of every operation the time in which other tenants kept it from running
//! is removed, and what one of its threads saved, those save that waited for it ([`ThreadWaits`]):
//!
//! ```text
//!   host      |la|la|sync..........................|think|la|...
//!   device        |k1|-not resident-|k1| |-- others --|k2|
//!   replayed  |la|la|sync......|think|la|...
//!   device        |k1|k1| |k2|
//! ```
//!
//! An operation that ran concurrently with others takes as long as equal operations took solo in the same capture.
//! Where there are none, there is no result. This is a model (basis `inferred`): it does not know why a host waits. One
//! that thinks, almost always, until what it launched ends has waited for that without a call ([`IdleTimes`]).

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::base::hardware::{
    CLOCK_ERROR_NS, DEFAULT_SLICE_NS, DRAINED_SWITCH_NS, FULL_QUEUE, HOST_FASTER_PERCENT, PAUSE_NS, START_NS,
    SUBMIT_NS, SWITCH_NS,
};
use crate::base::maps::{entry, ByKey, NumberMap};
use crate::base::pauses::{ends_with, is_paced, wake_ns, DelaysAndPauses, IdleTimes, Unit, UntilMoments};
use crate::base::statistics::{median, median_of, quantiles};
use crate::slowdown::operations::{CoRun, Op, Scene, Tenancy};
use crate::slowdown::others::common;
use crate::slowdown::thread_waits::{called_back, ThreadWaits, DRIVER};
use crate::table::calls::{Call, Calls};
use crate::table::work::WorkKind;

/// Equal operations without co-running tenants that stand for those co-run.
const ENOUGH_ALONE: f64 = 5.0;
/// Beside others for less than this part of its time, an operation counts as undisturbed.
const CO_RUNNING_PART: i64 = 50;
/// Of all execution time, this part may be of operations that nobody saw solo.
const BLIND_PART: f64 = 0.1;

/// One operation as it would have been (or, from a baseline, was).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SoloOp {
    pub latency_ns: i64,
    pub ran_ns: i64,
    /// Launch, own queue, other queue, not resident, switch, execution.
    pub parts: [i64; 6],
    /// On the clock of that run; none: not known.
    pub launch_ns: Option<i64>,
    /// There, what is not the program's own held its launch up.
    pub held_up: bool,
}

/// What a tenant's operations are held against: the same ones without co-running tenants, by the place of each.
pub(crate) trait Reference: Sync {
    /// `None` for an operation without a counterpart.
    fn of(&self, place: usize) -> Option<SoloOp>;
}

impl Reference for Vec<Option<SoloOp>> {
    fn of(&self, place: usize) -> Option<SoloOp> {
        self.get(place).copied().flatten()
    }
}

/// An operation that was replayed. There are as many as kernels in a capture, so only moments are kept.
#[derive(Debug, Clone, Copy)]
struct Again {
    /// `NOT_PLAYED` for none.
    launch_ns: i64,
    end_ns: i64,
}

const NOT_PLAYED: Again = Again { launch_ns: i64::MIN, end_ns: 0 };

/// A run is played three times side by side: with a host that pauses as long as it did ([`AS_LONG`]), with one that
/// sleeps until moments ([`UNTIL_MOMENTS`]), and with one that is as fast as it may be solo ([`FASTER`]).
type Readings<T = i64> = [T; 3];
const AS_LONG: usize = 0;
const UNTIL_MOMENTS: usize = 1;
const FASTER: usize = 2;

/// What a host saves of its own time if it is as fast as it may be solo.
fn saved_ns(own_ns: i64) -> i64 {
    own_ns.max(0).saturating_mul(HOST_FASTER_PERCENT) / 100
}

/// A tenant's operations as they would have been, by reading of the host.
#[derive(Debug)]
struct Played {
    again: Vec<Again>,
    /// Ends are kept until all is played.
    anchored_launch_ns: Vec<i64>,
    anchored_end_ns: Vec<i64>,
    faster_end_ns: Vec<i64>,
    /// First launch and last end, by reading.
    spans: Readings<Option<(i64, i64)>>,
    /// By how much calls that waited for a place in the launch queue return earlier, by the place of their operation.
    queued_ns: NumberMap<usize, i64>,
}

impl Played {
    fn new(operations: usize) -> Self {
        Self {
            again: vec![NOT_PLAYED; operations],
            anchored_launch_ns: vec![0; operations],
            anchored_end_ns: vec![0; operations],
            faster_end_ns: vec![0; operations],
            spans: [None; 3],
            queued_ns: NumberMap::default(),
        }
    }

    fn put(&mut self, place: usize, readings: Readings<Again>) {
        for (span, again) in self.spans.iter_mut().zip(readings) {
            let (from_ns, to_ns) = span.unwrap_or((again.launch_ns, again.end_ns));
            *span = Some((from_ns.min(again.launch_ns), to_ns.max(again.end_ns)));
        }
        let [again, anchored, faster] = readings;
        if let Some(slot) = self.again.get_mut(place) {
            *slot = again;
        }
        if let Some(slot) = self.faster_end_ns.get_mut(place) {
            *slot = faster.end_ns;
        }
        if let Some(slot) = self.anchored_launch_ns.get_mut(place) {
            *slot = anchored.launch_ns;
        }
        if let Some(slot) = self.anchored_end_ns.get_mut(place) {
            *slot = anchored.end_ns;
        }
    }

    /// When an operation ends, by reading of the host.
    fn ends_ns(&self, place: usize) -> Option<Readings> {
        Some([
            self.again.get(place)?.end_ns,
            *self.anchored_end_ns.get(place)?,
            *self.faster_end_ns.get(place)?,
        ])
    }

    /// How long all of it takes with a faster host, as a part of the time with the host as it was; no more than 1.
    fn with_faster_host(&self) -> f64 {
        let length = |reading: usize| {
            let (from_ns, to_ns) = self.spans.get(reading).copied().flatten()?;
            Some(to_ns.saturating_sub(from_ns).max(0) as f64)
        };
        match (length(FASTER), length(AS_LONG)) {
            (Some(faster), Some(as_long)) if as_long > 0.0 => (faster / as_long).min(1.0),
            _ => 1.0,
        }
    }
}

/// How long the launch call of an operation takes until that may start, if it waits by `queued_ns` less for a place in the
/// launch queue.
fn call_takes_ns(op: &Op, queued_ns: i64) -> i64 {
    let called_ns = op.called_ns.saturating_sub(op.launch_ns).saturating_sub(queued_ns);
    // A kernel may start before its launch call returns.
    called_ns.min(op.start_ns.saturating_sub(op.launch_ns)).max(0)
}

/// A tenant's run without the others.
#[derive(Debug)]
pub(crate) struct Replayed<'a> {
    tenant: &'a Tenancy,
    lengths: Lengths,
    played: Played,
    /// How many of its host's pauses end at moments.
    pub until_moments: UntilMoments,
    /// How much earlier its host may have been because of waits without a call, of which too few were seen to tell.
    pub unsure_ns: i64,
}

impl Replayed<'_> {
    /// When operations are launched by the other reading of the host's pauses.
    pub fn anchored_launch_ns(&self) -> &[i64] {
        &self.played.anchored_launch_ns
    }

    /// How long it takes with a host as fast as it may be solo, as a part of the time with the host as it was. Pauses that
    /// end at moments are no shorter for a faster host.
    pub fn with_faster_host(&self) -> f64 {
        1.0 - (1.0 - self.played.with_faster_host()) * (1.0 - self.until_moments.least)
    }

    /// Standard error of all lengths together, on the logarithm.
    pub fn error(&self) -> f64 {
        self.lengths.error
    }
}

impl Reference for Replayed<'_> {
    // Of most operations one or two times are asked for: inlined, only those are made.
    #[inline(always)]
    fn of(&self, place: usize) -> Option<SoloOp> {
        let Again { launch_ns, end_ns } = *self.played.again.get(place)?;
        if launch_ns == NOT_PLAYED.launch_ns {
            return None;
        }
        let op = self.tenant.ops.get(place)?;
        let ran_ns = self.lengths.of(&op);
        let begin_ns = end_ns.saturating_sub(ran_ns);
        let queued_ns = self.played.queued_ns.get(&place).copied().unwrap_or(0);
        // Solo it may have started inside of its call.
        let called_ns = launch_ns.saturating_add(call_takes_ns(&op, queued_ns)).min(begin_ns).max(launch_ns);
        Some(SoloOp {
            latency_ns: end_ns.saturating_sub(launch_ns),
            ran_ns,
            parts: [called_ns.saturating_sub(launch_ns), begin_ns.saturating_sub(called_ns), 0, 0, 0, ran_ns],
            launch_ns: Some(launch_ns),
            held_up: op.held_up(),
        })
    }
}

/// Why a tenant's run cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    NoCalls,
    NoNames,
    NeverAlone,
    Strangers,
    Nothing,
}

impl Refused {
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoCalls => {
                "over 10 % of its launch calls are not in the capture, or not in this part of it: how long their work waited cannot be seen"
            }
            Self::NoNames => "the names of its API calls are not in the capture: waiting cannot be seen",
            Self::NeverAlone => {
                "too little of the work ran without other tenants, so a solo recording is needed"
            }
            Self::Strangers => "a process on the device was neither traced nor in switch records",
            Self::Nothing => "it has no operations",
        }
    }
}

/// Mean length without co-running tenants over mean length co-run, by signature.
#[derive(Debug, Default)]
struct Stretch {
    solo: Moments,
    /// Nobody else had work from start to end, but before.
    waited: Moments,
    beside: Moments,
}

#[derive(Debug, Default, Clone, Copy)]
struct Moments {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.n += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    fn with(&self, other: &Self) -> Self {
        Self { n: self.n + other.n, sum: self.sum + other.sum, squares: self.squares + other.squares }
    }

    fn mean(&self) -> f64 {
        self.sum / self.n
    }

    /// Squared standard error of the mean over the mean; twice what independent values had, since neighbours in time
    /// are alike.
    fn error(&self) -> f64 {
        let variance = (self.squares / self.n - self.mean().powi(2)).max(0.0);
        2.0 * variance / (self.n * self.mean().powi(2)).max(1e-300)
    }
}

impl Stretch {
    /// Those that had waited come next: what others left in the caches is gone. Later kernels of a graph hardly ever
    /// have a device of their own from the launch of the graph on.
    fn undisturbed(&self) -> Option<Moments> {
        let enough = |of: &Moments| of.n >= ENOUGH_ALONE;
        Some(self.solo).filter(enough).or_else(|| Some(self.solo.with(&self.waited)).filter(enough))
    }

    fn factor(&self) -> Option<f64> {
        let solo = self.undisturbed().filter(|_| self.beside.n > 0.0 && self.beside.sum > 0.0)?;
        Some(solo.mean() / self.beside.mean())
    }

    fn error(&self) -> f64 {
        self.undisturbed().map_or(0.0, |solo| solo.error()) + self.beside.error()
    }
}

fn disturbed(op: &Op) -> bool {
    op.co_running_ns.saturating_mul(CO_RUNNING_PART) > op.ran_ns
}

/// Kernels of several of its streams share the SMs otherwise without the others: standard error of their time together,
/// as a part of the time in which they overlapped. From kernels of two streams in eight runs on an H200.
const OVERLAP_ERROR: f64 = 0.2;

/// How long a tenant's operations take without the others, from when they begin to their end.
#[derive(Debug)]
struct Lengths {
    /// What those that were disturbed are shorter by, by signature.
    factors: Vec<Option<f64>>,
    /// Standard error of all of them together, on the logarithm.
    error: f64,
}

impl Lengths {
    fn factor(&self, op: &Op) -> Option<f64> {
        self.factors.get(op.signature as usize).copied().flatten().map(|factor| factor.min(1.0))
    }

    fn of(&self, op: &Op) -> i64 {
        let factor = if disturbed(op) { self.factor(op) } else { None };
        factor.map_or(op.ran_ns, |factor| (op.ran_ns as f64 * factor).round() as i64)
    }
}

/// Lengths of a tenant's operations without the others, unless too much is of operations that nobody saw solo.
fn lengths(tenant: &Tenancy) -> Result<Lengths, Refused> {
    let mut stretch: Vec<Stretch> = Vec::new();
    for op in tenant.ops.iter().filter(|op| op.unusual.is_none()) {
        let Some(s) = entry(&mut stretch, op.signature) else { continue };
        let slot = if disturbed(&op) {
            &mut s.beside
        } else if op.co_run == CoRun::Solo || tenant.ran.is_some() {
            &mut s.solo
        } else if op.co_run == CoRun::Waited {
            &mut s.waited
        } else {
            continue;
        };
        slot.add(op.ran_ns as f64);
    }
    let mut found = Lengths { factors: stretch.iter().map(Stretch::factor).collect(), error: 0.0 };
    let (mut blind, mut whole, mut kernels, mut solo) = (0.0, 0.0, 0.0, 0.0);
    let mut inflated: BTreeMap<u32, f64> = BTreeMap::new();
    for op in tenant.ops.iter() {
        let ran = op.ran_ns as f64;
        whole += ran;
        if op.kind != WorkKind::Copy {
            kernels += ran;
        }
        if disturbed(&op) {
            match found.factor(&op) {
                Some(factor) => *inflated.entry(op.signature).or_default() += ran * factor,
                None => blind += ran,
            }
        }
        solo += found.of(&op) as f64;
    }
    if blind > BLIND_PART * whole {
        return Err(Refused::NeverAlone);
    }
    let error: f64 = inflated
        .iter()
        .filter_map(|(signature, length)| {
            let s = stretch.get(*signature as usize)?;
            Some((length / solo.max(1.0)).powi(2) * s.error())
        })
        .sum();
    let at_work = tenant
        .ran
        .as_ref()
        .map_or_else(|| tenant.busy.total_ns(), |ran| common(&tenant.busy, ran).total_ns());
    let overlapped = (kernels / (at_work as f64).max(1.0) - 1.0).clamp(0.0, 1.0);
    found.error = (error + tenant.cut_doubt().powi(2) + (OVERLAP_ERROR * overlapped).powi(2)).sqrt();
    Ok(found)
}

/// Whether nobody was there from the launch of an operation to its end, and its context was: nobody but others keeps a
/// lone operation from starting for longer than usual.
fn undisturbed(tenant: &Tenancy, op: &Op) -> bool {
    op.co_run == CoRun::Solo && tenant.resident_ns(op) == op.waited_ns()
}

/// Whether an operation came after work of others rather than of its own tenant: the context that ran last stays until
/// another one has work, however long after, so its own had to be brought back where contexts alternate.
fn others_ran_last(tenant: &Tenancy, op: &Op) -> bool {
    let free_ns = op.free_ns();
    tenant.others.last_ns(free_ns) > tenant.busy.last_ns(free_ns)
}

/// Operations that tell whether the context of a tenant is brought back; more tell the same.
const TELLING: usize = 1000;
/// Of these, those that came after work of others.
const ENOUGH_RETURNS: usize = 5;
/// Operations that show how soon others start.
const ENOUGH_PROMPT: usize = 10;

/// Whether operations start later where others ran last, as they do where contexts alternate, and not side by side.
/// Residency says so where it was recorded.
fn is_brought_back(tenant: &Tenancy, usual_ns: i64) -> bool {
    if tenant.ran.is_some() {
        return false;
    }
    let some = (0..tenant.ops.len()).step_by(tenant.ops.len() / TELLING + 1);
    let lone = some
        .filter_map(|place| tenant.ops.get(place))
        .filter(|op| op.co_run == CoRun::Solo && op.kind != WorkKind::Copy);
    let late: Vec<i64> = lone.filter(|op| others_ran_last(tenant, op)).map(|op| op.waited.rest_ns).collect();
    late.len() >= ENOUGH_RETURNS
        && median(&late).is_some_and(|late| late > (usual_ns + DRAINED_SWITCH_NS / 2) as f64)
}

/// Plays a process again; gives its tenants' runs by tenant id.
pub(crate) fn replay(
    scene: &Scene,
    process: (u32, Option<u32>),
) -> BTreeMap<u32, Result<Replayed<'_>, Refused>> {
    let mut out = BTreeMap::new();
    let mut lengths_of: BTreeMap<u32, Lengths> = BTreeMap::new();
    let tenants: Vec<&Tenancy> = scene.tenants.iter().filter(|t| t.traced && t.process == process).collect();
    let named = scene.calls.get(&process).is_some_and(Calls::has_names);
    for tenant in &tenants {
        let found = if tenant.ops.is_empty() {
            Err(Refused::Nothing)
        } else if tenant.strangers {
            Err(Refused::Strangers)
        } else if !tenant.calls_known() {
            Err(Refused::NoCalls)
        } else if !named {
            Err(Refused::NoNames)
        } else {
            lengths(tenant)
        };
        match found {
            Ok(found) => {
                lengths_of.insert(tenant.id, found);
            }
            Err(refused) => {
                out.insert(tenant.id, Err(refused));
            }
        }
    }
    let Some(calls) = scene.calls.get(&process).filter(|_| !lengths_of.is_empty()) else { return out };
    let (played, until_moments, unsure_ns) = Play::new(&tenants, &lengths_of, calls).run(calls);
    for (tenant, played) in tenants.iter().zip(played) {
        if let Some(lengths) = lengths_of.remove(&tenant.id) {
            let run = Replayed { tenant, lengths, played, until_moments, unsure_ns };
            out.insert(tenant.id, Ok(run));
        }
    }
    out
}

/// Which threads wait for their work without a call.
#[derive(Debug, Default)]
struct UnseenWaits {
    threads: ByKey<u32, UnseenWait>,
}

#[derive(Debug, Default)]
struct UnseenWait {
    /// When its last call ended, and the latest end of what it launched.
    last: Option<(i64, i64)>,
    times: IdleTimes,
}

impl UnseenWaits {
    fn of(calls: &Calls, ops: &Operations<'_>, by_call: &InOrder) -> Self {
        let mut found = Self::default();
        let mut launched = by_call.iter().map(|op| (ops.call(op) as usize, op)).peekable();
        for (number, call) in calls.iter().enumerate() {
            let Some(thread) = found.threads.entry(call.thread) else { continue };
            let (before, work_ns) = thread.last.get_or_insert((call.start_ns, i64::MIN));
            if call.end_ns > *before {
                thread.times.see(*before, call.start_ns, *work_ns);
                *before = call.end_ns;
            }
            while let Some((_, op)) = launched.next_if(|(call, _)| *call <= number) {
                *work_ns = (*work_ns).max(ops.end_ns(op));
            }
        }
        found
    }

    /// Whether a thread waits so; `None`: what was seen of it says so, but is too little.
    fn by(&self, thread: u32) -> Option<bool> {
        self.threads.get(thread).map(|thread| thread.times).unwrap_or_default().are_waits()
    }
}

/// Operations after which the driver calls the program back: of each call that asks for that the last one that its
/// thread launched before. The stream is not recorded with it.
fn callbacks(calls: &Calls, ops: &Operations<'_>, by_call: &InOrder) -> Vec<(i64, u32)> {
    let mut found = Vec::new();
    if !calls.has_callbacks() {
        return found;
    }
    let by_call: Vec<u32> = by_call.iter().collect();
    let mut last: NumberMap<u32, (i64, u32)> = NumberMap::default();
    let mut launched = by_call.chunk_by(|a, b| ops.call(*a) == ops.call(*b)).peekable();
    for (number, call) in calls.iter().enumerate() {
        let until = |of: &&[u32]| of.first().is_some_and(|op| ops.call(*op) as usize <= number);
        while let Some(of) = launched.next_if(until) {
            let ended_last = of.iter().map(|op| (ops.end_ns(*op), *op)).max();
            if of.first().is_some_and(|op| ops.call(*op) as usize == number) {
                last.extend(ended_last.map(|op| (call.thread, op)));
            }
        }
        if call.calls_back {
            // Nobody waits for what was done before it was asked for.
            found.extend(last.get(&call.thread).filter(|op| op.0 > call.end_ns));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The operations of the tenants of a process: one after the other, each has a number.
struct Operations<'a> {
    tenants: &'a [&'a Tenancy],
    /// The number of the first one of each tenant.
    firsts: Vec<u32>,
    count: u32,
}

impl<'a> Operations<'a> {
    fn of(tenants: &'a [&'a Tenancy]) -> Self {
        let mut count = 0_u32;
        let mut firsts = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            firsts.push(count);
            count = count.saturating_add(u32::try_from(tenant.ops.len()).unwrap_or(u32::MAX));
        }
        Self { tenants, firsts, count }
    }

    /// The places of its tenant, and of the operation among those of its tenant.
    fn place(&self, number: u32) -> (usize, usize) {
        let t = self.firsts.partition_point(|first| *first <= number).saturating_sub(1);
        (t, number.saturating_sub(self.firsts.get(t).copied().unwrap_or(0)) as usize)
    }

    #[inline(always)]
    fn get(&self, number: u32) -> Option<Op> {
        let (t, n) = self.place(number);
        self.tenants.get(t)?.ops.get(n)
    }

    /// The call that launched it; the last number of all where none did.
    fn call(&self, number: u32) -> u32 {
        self.get(number).and_then(|op| op.call()).unwrap_or(u32::MAX)
    }

    fn end_ns(&self, number: u32) -> i64 {
        self.get(number).map_or(0, |op| op.end_ns)
    }
}

/// Numbers of operations in an order, mostly that of the numbers.
#[derive(Debug)]
enum InOrder {
    All(u32),
    These(Vec<u32>),
}

impl InOrder {
    /// Those that have a key, by key and number.
    fn by<K: Ord>(ops: &Operations<'_>, key: impl Fn(&Op) -> Option<K>) -> Self {
        let all = || ops.tenants.iter().flat_map(|tenant| tenant.ops.iter());
        let mut keys = all().map(|op| key(&op));
        let as_they_stand = keys.next().is_none_or(|first| {
            let mut last = first;
            last.is_some() && keys.all(|key| key.is_some() && std::mem::replace(&mut last, key) <= last)
        });
        if as_they_stand {
            return Self::All(ops.count);
        }
        let mut these = Vec::with_capacity(ops.count as usize);
        these.extend((0..ops.count).zip(all()).filter(|(_, op)| key(op).is_some()).map(|(number, _)| number));
        // Nearly in order already, which a stable sort sees; those of one key stand by their numbers.
        these.sort_by_key(|number| ops.get(*number).and_then(|op| key(&op)));
        Self::These(these)
    }

    #[inline(always)]
    fn get(&self, place: usize) -> Option<u32> {
        match self {
            Self::All(count) => u32::try_from(place).ok().filter(|place| place < count),
            Self::These(these) => these.get(place).copied(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).map_while(|place| self.get(place))
    }
}

/// A thread of the host while its process is replayed.
#[derive(Debug, Clone, Copy, Default)]
struct HostThread {
    /// How much earlier it is than recorded, by reading.
    shifts: Readings,
    /// When its last call ended.
    before: Option<i64>,
    /// When its last pause ended.
    worked_from: i64,
    /// Of the operations that it launched the one that ended last, and that end.
    work: Option<(u32, i64)>,
    /// How much earlier it would be if it had waited without a call, where that is not sure.
    unsure_ns: i64,
    /// Of which the shift is the length.
    unit: Unit,
}

/// An operation that is launched: how long its call takes, and how long it takes once it is ready.
struct Launched {
    stream: u32,
    called_ns: i64,
    took_ns: i64,
}

impl Launched {
    /// Launched at `start` by a call that waits by `queued_ns` less for a place in the launch queue, behind what its stream
    /// does until `free`.
    fn at(&self, start: i64, queued_ns: i64, free: &mut i64) -> Again {
        let called_ns = start.saturating_add(self.called_ns.saturating_sub(queued_ns).max(0));
        let end_ns = called_ns.max(*free).saturating_add(self.took_ns);
        *free = end_ns;
        Again { launch_ns: start, end_ns }
    }
}

/// Work that had ended by the end of a call as recorded.
#[derive(Default)]
struct Ended {
    next: usize,
    last_ns: Option<i64>,
    /// When the last of it ends again, by reading of the host.
    again_ns: Readings,
}

/// Operations of each tenant that were launched and had not ended, as recorded.
struct Outstanding {
    counts: Vec<u32>,
    next_end: usize,
}

impl Outstanding {
    fn at(&mut self, tenant: usize, ns: i64, play: &Play<'_>) -> u32 {
        while let Some(op) = play.by_end.get(self.next_end).and_then(|op| Some((op, play.ops.get(op)?))) {
            let (number, op) = op;
            if op.end_ns > ns {
                break;
            }
            let count = self.counts.get_mut(play.ops.place(number).0).filter(|_| op.call().is_some());
            if let Some(count) = count {
                *count = count.saturating_sub(1);
            }
            self.next_end += 1;
        }
        self.counts.get(tenant).copied().unwrap_or(0)
    }

    fn launched(&mut self, tenant: usize) {
        if let Some(count) = self.counts.get_mut(tenant) {
            *count = count.saturating_add(1);
        }
    }
}

/// How soon after the begin of its call an operation starts that waits for nothing: one that is launched alone, the first of
/// several (a graph). `None`: most start after their call returned, or too few are seen.
type Prompt = [Option<i64>; 2];

/// The same of each tenant, by operations that came first in their calls and found nobody there. What waited in the run
/// started after its call: solo it would have been as prompt as those.
fn prompt_ns(ops: &Operations<'_>, by_call: &InOrder) -> Vec<Prompt> {
    let mut seen: Vec<[(Vec<i64>, usize); 2]> = ops.tenants.iter().map(|_| Default::default()).collect();
    let mut numbers = by_call.iter().peekable();
    while let Some(first) = numbers.next() {
        let call = ops.call(first);
        let mut several = false;
        while numbers.next_if(|next| ops.call(*next) == call).is_some() {
            several = true;
        }
        let (t, _) = ops.place(first);
        let Some((tenant, op)) = ops.tenants.get(t).zip(ops.get(first)) else { continue };
        let Some((delays, inside)) = seen.get_mut(t).and_then(|of| of.get_mut(usize::from(several))) else {
            continue;
        };
        let alone = op.kind != WorkKind::Copy && op.ready_ns <= op.launch_ns && undisturbed(tenant, &op);
        if alone && delays.len() < TELLING {
            delays.push(op.start_ns.saturating_sub(op.launch_ns).max(0));
            *inside = inside.saturating_add(usize::from(op.start_ns < op.called_ns));
        }
    }
    let usual = |(mut delays, inside): (Vec<i64>, usize)| {
        let most = delays.len() >= ENOUGH_PROMPT && inside.saturating_mul(2) > delays.len();
        most.then(|| median_of(&mut delays)).flatten().map(|ns| ns as i64)
    };
    seen.into_iter().map(|of| of.map(usual)).collect()
}

/// A process as it was recorded.
struct Play<'a> {
    tenants: &'a [&'a Tenancy],
    ops: Operations<'a>,
    lengths: Vec<Option<&'a Lengths>>,
    usual_ns: Vec<i64>,
    brought_back: Vec<bool>,
    prompt_ns: Vec<Prompt>,
    /// Looked for when a launch queue may be full: in most runs none is.
    usual_call_ns: OnceCell<i64>,
    /// Operations that a call launched, in order of calls' starts.
    by_call: InOrder,
    /// Operations in order of their ends as recorded.
    by_end: InOrder,
    /// Operations after which the driver calls the program back, by end as recorded.
    callbacks: Vec<(i64, u32)>,
    unseen_waits: UnseenWaits,
}

impl<'a> Play<'a> {
    fn new(tenants: &'a [&'a Tenancy], lengths: &'a BTreeMap<u32, Lengths>, calls: &Calls) -> Self {
        let usual_ns: Vec<i64> = tenants
            .iter()
            .map(|t| {
                // Nobody looks at others for what is shorter than any switch.
                let returned = |op: &Op| {
                    t.ran.is_none() && op.waited.rest_ns >= DRAINED_SWITCH_NS / 2 && others_ran_last(t, op)
                };
                let rests = t.ops.iter().filter(|op| undisturbed(t, op) && !returned(op));
                let mut solo: Vec<i64> = rests.map(|op| op.waited.rest_ns).collect();
                if solo.len() >= 10 {
                    return median_of(&mut solo).unwrap_or(0.0) as i64;
                }
                let mut all: Vec<i64> = t.ops.iter().map(|op| op.waited.rest_ns).collect();
                let [quarter] = quantiles(&mut all, i64::cmp, [0.25]);
                quarter.unwrap_or(0)
            })
            .collect();
        let brought_back =
            tenants.iter().zip(&usual_ns).map(|(t, usual_ns)| is_brought_back(t, *usual_ns)).collect();
        let ops = Operations::of(tenants);
        let by_call = InOrder::by(&ops, |op| Some((op.call()?, op.start_ns)));
        let by_end = InOrder::by(&ops, |op| Some(op.end_ns));
        Self {
            tenants,
            lengths: tenants.iter().map(|t| lengths.get(&t.id)).collect(),
            usual_ns,
            brought_back,
            usual_call_ns: OnceCell::new(),
            callbacks: callbacks(calls, &ops, &by_call),
            unseen_waits: UnseenWaits::of(calls, &ops, &by_call),
            prompt_ns: prompt_ns(&ops, &by_call),
            by_call,
            by_end,
            ops,
        }
    }

    /// How long a launch call usually takes that waits for nothing.
    fn usual_call_ns(&self) -> i64 {
        *self.usual_call_ns.get_or_init(|| {
            let of = |op: Op| op.called_ns.saturating_sub(op.launch_ns);
            let all = self.tenants.iter().flat_map(|t| t.ops.iter().map(of));
            median_of(&mut all.filter(|ns| *ns < START_NS).collect::<Vec<_>>())
                .map_or(SUBMIT_NS, |ns| ns as i64)
        })
    }

    /// When a call returns again that returns when work ends, by reading of the host; `None`: no work ended in it, shortly
    /// before its end.
    fn returns_ns(&self, call: &Call, ended: &mut Ended, played: &[Played]) -> Option<Readings> {
        let until = |op: &u32| self.ops.end_ns(*op) <= call.end_ns.saturating_add(CLOCK_ERROR_NS);
        while let Some(op) = self.by_end.get(ended.next).filter(until) {
            ended.last_ns = ended.last_ns.max(Some(self.ops.end_ns(op)));
            let (t, n) = self.ops.place(op);
            let ends_ns = played.get(t).and_then(|played| played.ends_ns(n)).unwrap_or_default();
            for (again_ns, end_ns) in ended.again_ns.iter_mut().zip(ends_ns) {
                *again_ns = (*again_ns).max(end_ns);
            }
            ended.next += 1;
        }
        let last_ns = ended.last_ns.filter(|last_ns| *last_ns > call.start_ns)?;
        let after_ns = call.end_ns.saturating_sub(last_ns);
        let length_ns = call.end_ns.saturating_sub(call.start_ns);
        let waited = after_ns <= wake_ns(length_ns, call.noticed_within_ns);
        waited.then(|| ended.again_ns.map(|again_ns| again_ns.saturating_add(after_ns.max(0))))
    }

    /// How an operation of a tenant is played, whenever it is launched, by a call that launches `several` or one.
    fn launched(&self, t: usize, op: &Op, several: bool) -> Option<Launched> {
        let tenant = self.tenants.get(t)?;
        let length = self.lengths.get(t).copied().flatten().map_or(op.ran_ns, |lengths| lengths.of(op));
        let mut called_ns = call_takes_ns(op, 0);
        let rest_ns = op.waited.rest_ns;
        let usual = self.usual_ns.get(t).copied().unwrap_or(0);
        let returned = || {
            self.brought_back.get(t) == Some(&true)
                && op.kind != WorkKind::Copy
                && others_ran_last(tenant, op)
        };
        let rest = if !undisturbed(tenant, op) {
            let prompt = self.prompt_ns.get(t).and_then(|of| *of.get(usize::from(several))?);
            called_ns = prompt.map_or(called_ns, |prompt_ns| called_ns.min(prompt_ns));
            rest_ns.min(usual)
        } else if rest_ns > usual && returned() {
            rest_ns.saturating_sub(DEFAULT_SLICE_NS + SWITCH_NS).max(usual)
        } else {
            rest_ns
        };
        let took_ns = op.waited.own_ns.saturating_add(rest).saturating_add(length);
        Some(Launched { stream: op.stream, called_ns, took_ns })
    }

    /// How much earlier an operation that was played ended, by reading of the host.
    fn earlier(&self, op: u32, played: &[Played]) -> Option<Readings> {
        let (t, n) = self.ops.place(op);
        let ends = played.get(t)?.ends_ns(n)?;
        Some(ends.map(|end_ns| self.ops.end_ns(op).saturating_sub(end_ns)))
    }

    /// Plays all readings of the host side by side; gives every tenant's operations as they would have been, and
    /// how many of the pauses end at moments, and how much earlier a host may have been that waits without a call.
    fn run(&self, calls: &Calls) -> (Vec<Played>, UntilMoments, i64) {
        let mut out: Vec<Played> = self.tenants.iter().map(|t| Played::new(t.ops.len())).collect();
        let mut threads: ByKey<u32, HostThread> = ByKey::default();
        let (mut pauses, mut delays) = (Vec::new(), DelaysAndPauses::default());
        let mut stream_ends: Vec<Vec<Readings>> =
            self.tenants.iter().map(|t| vec![[i64::MIN; 3]; t.streams()]).collect();
        let mut by_call = self.by_call.iter().map(|op| (self.ops.call(op) as usize, op)).peekable();
        let mut ended = Ended { again_ns: [i64::MIN; 3], ..Ended::default() };
        let mut outstanding = Outstanding { counts: vec![0; self.tenants.len()], next_end: 0 };
        let called_back_ns: Vec<i64> = self.callbacks.iter().map(|callback| callback.0).collect();
        let mut thread_waits = ThreadWaits::of(calls, &called_back_ns);
        let mut callbacks = self.callbacks.iter().peekable();
        for (number, call) in calls.iter().enumerate() {
            while let Some((ns, op)) = callbacks.next_if(|callback| callback.0 <= call.start_ns) {
                thread_waits.before(&called_back(*ns));
                let earlier = self.earlier(*op, &out);
                if let Some((shifts, driver)) = earlier.and_then(|ns| Some((ns, threads.entry(DRIVER)?))) {
                    driver.shifts = shifts;
                }
            }
            let waited_for =
                thread_waits.before(&call).and_then(|thread| threads.get(thread)).map(|t| t.shifts);
            let Some(thread) = threads.entry(call.thread) else { continue };
            let HostThread { shifts, before, worked_from, work, unsure_ns, unit } = thread;
            if before.is_none() {
                *worked_from = call.start_ns;
            }
            // The driver call that a runtime call makes is a part of it.
            let inside = before.is_some_and(|before| call.end_ns <= before);
            let idle = before.map_or(0, |before| call.start_ns.saturating_sub(before));
            let unseen = before.zip(*work).and_then(|(before, (op, end_ns))| {
                let ended_with_it = ends_with(before, call.start_ns, end_ns)?;
                Some((self.unseen_waits.by(call.thread), ended_with_it, self.earlier(op, &out)?))
            });
            if !inside {
                if let Some(theirs) = waited_for {
                    *shifts = theirs;
                    // What it does until it launches again depends on the other thread.
                    *unit = Unit::default();
                } else if let Some((Some(true), _, earlier)) = unseen {
                    // It went on as soon after the end of its work as it did, and not before it began to wait.
                    for (shift, earlier) in shifts.iter_mut().zip(earlier) {
                        *shift = earlier.min(shift.saturating_add(idle));
                    }
                    unit.waited(shifts[AS_LONG]);
                } else {
                    shifts[FASTER] = shifts[FASTER].saturating_add(saved_ns(idle));
                    if let Some(before) = before.filter(|_| idle > PAUSE_NS) {
                        if let Some((None, true, [earlier, ..])) = unseen {
                            let more_ns = earlier.saturating_sub(shifts[AS_LONG]).clamp(0, idle);
                            *unsure_ns = unsure_ns.saturating_add(more_ns);
                        }
                        shifts[UNTIL_MOMENTS] = shifts[UNTIL_MOMENTS].min(0);
                        unit.paused(idle);
                        pauses.push((before.saturating_sub(*worked_from), idle));
                        *worked_from = call.start_ns;
                    }
                }
            }
            let starts = shifts.map(|shift| call.start_ns.saturating_sub(shift));
            let length = call.end_ns.saturating_sub(call.start_ns);
            // A launch call that found the queue full returned when work of its process ended. However long any other
            // takes, that is the host's own time: a limiter, a lock, the loading of code.
            let first = by_call.peek().filter(|(of, _)| *of == number).map(|(_, op)| *op);
            let full = first.is_some_and(|op| {
                let queues = self.ops.get(op).is_some_and(|op| !op.ends_inside(&call));
                queues && outstanding.at(self.ops.place(op).0, call.start_ns, self) >= FULL_QUEUE
            });
            let queued = full.then(|| self.returns_ns(&call, &mut ended, &out)).flatten().map(|ends| {
                let least = length.min(self.usual_call_ns());
                let mut queued_ns = [0; 3];
                for ((queued_ns, end), start) in queued_ns.iter_mut().zip(ends).zip(starts) {
                    *queued_ns = length.saturating_sub(end.saturating_sub(start).max(least));
                }
                queued_ns
            });
            let queued_ns = queued.unwrap_or_default();
            let (mut waits, mut several) = (call.waits, false);
            while let Some((of, launched)) = by_call.next_if(|(of, _)| *of <= number) {
                if of != number {
                    continue;
                }
                several |= by_call.peek().is_some_and(|(of, _)| *of == number);
                let (t, n) = self.ops.place(launched);
                let Some((op, out)) = self.ops.get(launched).zip(out.get_mut(t)) else { continue };
                if work.is_none_or(|(_, last_ns)| last_ns <= op.end_ns) {
                    *work = Some((launched, op.end_ns));
                }
                waits |= op.ends_inside(&call);
                delays.launched(unit, call.thread, op.signature, shifts[AS_LONG]);
                outstanding.launched(t);
                if queued.is_some() {
                    out.queued_ns.insert(n, queued_ns[AS_LONG]);
                }
                let Some(launched) = self.launched(t, &op, several) else { continue };
                let ends = stream_ends.get_mut(t).and_then(|of| of.get_mut(launched.stream as usize));
                if let Some(free) = ends {
                    let mut readings = [NOT_PLAYED; 3];
                    for (n, (again, free)) in readings.iter_mut().zip(free).enumerate() {
                        let of = |values: Readings| values.get(n).copied().unwrap_or_default();
                        *again = launched.at(of(starts), of(queued_ns), free);
                    }
                    out.put(n, readings);
                }
            }
            if inside {
                continue;
            }
            let mut ends = starts;
            for (end, queued_ns) in ends.iter_mut().zip(queued_ns) {
                *end = end.saturating_add(length).saturating_sub(queued_ns);
            }
            ends[FASTER] = ends[FASTER].saturating_sub(saved_ns(length.saturating_sub(queued_ns[FASTER])));
            let mut waited = false;
            if let Some(returns_ns) = waits.then(|| self.returns_ns(&call, &mut ended, &out)).flatten() {
                waited = true;
                for ((end, start), returns_ns) in ends.iter_mut().zip(starts).zip(returns_ns) {
                    *end = returns_ns.max(start.saturating_add(length.min(1_000)));
                }
            }
            *shifts = ends.map(|end| call.end_ns.saturating_sub(end));
            if waited {
                unit.waited(shifts[AS_LONG]);
            }
            *before = Some(call.end_ns);
        }
        for played in &mut out {
            (played.anchored_end_ns, played.faster_end_ns) = (Vec::new(), Vec::new());
        }
        let unsure_ns = threads.values().map(|thread| thread.unsure_ns).max().unwrap_or(0);
        (out, if is_paced(&pauses) { UntilMoments::ALL } else { delays.until_moments() }, unsure_ns)
    }
}
