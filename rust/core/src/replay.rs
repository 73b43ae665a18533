//! What would the same programs have taken under another sharing mode?
//!
//! `programs.rs` says what each tenant's host launches, when, and what it waits for. This runs all of them on a device
//! that is shared in a given way (a [`Layout`]): hosts think and wait in real time, operations of a stream follow each
//! other, blocks are placed where there is room, engines are handed round.
//!
//! ```text
//!   Layout                instances (SMs of their own)        groups (contexts that hold the engine together)
//!   exclusive             one                                 one, one tenant in it
//!   MPS                   one                                 one, all tenants; a cap limits a tenant's SMs
//!   time-slicing          one                                 one per tenant, in turns
//!   MIG                   one per tenant or more              as above, inside each instance
//! ```
//!
//! The rules are those of `scheduler.rs` (blocks of equal length, the device as a pool of warps, registers, shared
//! memory and block slots), with one queue for each tenant as clients of MPS have: the kernel that has waited longest
//! goes first, what is left goes to the heads of the other queues. What it does not know is the same: memory, caches
//! and issue slots. [`Layout::contention`] is a stated allowance for them: while kernels of two tenants hold blocks of
//! one instance at once, its SMs run slower by that part. A group that does not hold the engine stands still; its host
//! does not.
//!
//! Cost follows operations, not blocks: equal waves of one kernel that nobody can disturb are one event.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};

use crate::error::{Error, Result};
use crate::fold::Tables;
use crate::occupancy::{Limits, Resources};
use crate::programs::{self, Op, Place, Program, Programs, Step, QUEUE_DEPTH};
use crate::scheduler::{ps, Ps};
use crate::schema::{self, Builder};
use crate::watch::Watch;

/// A context without work keeps the engine that long once somebody else has some (simulated drivers do so too; of
/// real ones only that idle contexts linger is known).
const LINGER_NS: i64 = 25_000;

/// Where a tenant stands in a layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seat {
    /// Tenant.
    pub tenant: u32,
    /// Index of its instance.
    pub instance: usize,
    /// Tenants of an instance with the same number hold the engine together.
    pub group: u32,
    /// SMs that its kernels may use; `None`: all of the instance.
    pub sms: Option<u32>,
}

/// A way to share a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Its name, as it stands in the table.
    pub name: String,
    /// SMs of each instance.
    pub instances: Vec<u32>,
    /// Who is on it; a tenant that is left out does not run.
    pub seats: Vec<Seat>,
    /// A group executes that long while others wait.
    pub slice_ns: i64,
    /// From the end of one group's execution to the begin of the next one's.
    pub switch_ns: i64,
    /// Part by which the SMs are slower while kernels of two tenants are on them.
    pub contention: f64,
    /// Block times of a kernel lie within this part of their mean; 0: all equal, as in `scheduler.rs`.
    pub ragged: f64,
    /// Every operation takes longer or shorter by up to this part, differently for each `seed`. Programs that repeat
    /// themselves fall into step, or out of it, by chance: what holds for one phase need not hold for the next.
    pub jitter: f64,
    /// See `jitter`.
    pub seed: u64,
}

impl Layout {
    /// Whether it can be replayed.
    ///
    /// # Errors
    /// [`Error::Argument`] with what is wrong.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Argument(format!("layout {}: {what}", self.name)));
        if self.slice_ns < 1000 || self.switch_ns < 0 {
            return wrong(format!(
                "a time slice of {} ns and a switch of {} ns cannot be modelled; take a slice of 1000 ns or more and a switch of 0 or more",
                self.slice_ns, self.switch_ns
            ));
        }
        if !(0.0..=10.0).contains(&self.contention) {
            return wrong(format!("contention {} is not between 0 and 10", self.contention));
        }
        if !(0.0..=0.5).contains(&self.ragged) || !(0.0..=0.5).contains(&self.jitter) {
            return wrong(format!(
                "spreads of {} and {} are not between 0 and 0.5",
                self.ragged, self.jitter
            ));
        }
        for seat in &self.seats {
            if self.instances.get(seat.instance).is_none_or(|sms| *sms == 0) {
                return wrong(format!(
                    "tenant {} is on instance {}, which has no SMs",
                    seat.tenant, seat.instance
                ));
            }
            if seat.sms == Some(0) {
                return wrong(format!("tenant {} may use no SM", seat.tenant));
            }
        }
        Ok(())
    }
}

/// What a tenant took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Took {
    /// Tenant.
    pub tenant: u32,
    /// First call to last end.
    pub elapsed_ns: i64,
    /// Launch to end, summed over kernels.
    pub latency_ns: i64,
    /// 99th percentile of the same.
    pub latency_p99_ns: i64,
    /// Operations that ended.
    pub operations: u64,
}

/// How a device was shared while it was recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recorded {
    /// SMs that a tenant's kernels could use, where those were not all of the device.
    pub visible_sms: BTreeMap<u32, u32>,
    /// Kernels of different tenants never ran at one instant, though their recorded intervals may overlap.
    pub time_sliced: bool,
    /// The layout that it was: what kernels take alone is fitted to it where none of equal shape was ever alone.
    pub layout: Option<Layout>,
}

/// Replays one device of a session in each layout: the `replay` table.
///
/// # Errors
/// [`Error::Argument`] for a layout that makes no sense, [`Error::Schema`], [`Error::Cancelled`].
pub fn run(
    session: &Tables,
    device: u32,
    recorded: &Recorded,
    layouts: &[Layout],
    threads: usize,
    watch: &dyn Watch,
) -> Result<RecordBatch> {
    layouts.iter().try_for_each(Layout::check)?;
    let mut made = programs::read(session, device, &recorded.visible_sms, recorded.time_sliced, watch)?;
    let contention = match &recorded.layout {
        Some(layout) => fit(&mut made, layout, watch)?,
        None => None,
    };
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Vec<Took>)>> {
        let mut mine = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(layout) = layouts.get(at) else { return Ok(mine) };
            mine.push((at, replay(&made.programs, &made.limits, layout, &mut |_, _, _| {}, watch)?));
        }
    };
    let mut took: Vec<(usize, Vec<Took>)> = std::thread::scope(|scope| {
        let hands: Vec<_> = (1..threads.min(layouts.len())).map(|_| scope.spawn(work)).collect();
        let mut all = work()?;
        for hand in hands {
            all.extend(hand.join().map_err(|_| Error::Cancelled)??);
        }
        Ok::<_, Error>(all)
    })?;
    took.sort_by_key(|(at, _)| *at);
    table(device, &made, layouts, &took, contention)
}

fn table(
    device: u32,
    made: &Programs,
    layouts: &[Layout],
    took: &[(usize, Vec<Took>)],
    contention: Option<f64>,
) -> Result<RecordBatch> {
    type Row<'a> = (u32, &'a str, i64, Option<(i64, i64)>, u64, &'static str, String);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for p in &made.programs {
        let (elapsed_ns, ops) = (p.recorded_ns, p.ops.len() as u64);
        rows.push((p.tenant, "recorded", elapsed_ns, p.latency_ns, ops, "observed", detail(p, made)));
    }
    for (at, took) in took {
        let Some(layout) = layouts.get(*at) else { continue };
        for t in took {
            let Some(p) = made.programs.iter().find(|p| p.tenant == t.tenant) else { continue };
            let latency = p.from_calls.then_some((t.latency_ns, t.latency_p99_ns));
            let detail = detail(p, made);
            rows.push((t.tenant, &layout.name, t.elapsed_ns, latency, t.operations, "modelled", detail));
        }
    }
    let n = rows.len();
    let measured = |r: &Row<'_>| contention.filter(|_| r.5 == "observed");
    Builder::new(&schema::REPLAY)
        .put("contention", rows.iter().map(measured).collect::<Float64Array>())
        .put("device_id", UInt32Array::from(vec![device; n]))
        .put("tenant_id", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
        .put_names("layout", rows.iter().map(|r| Some(r.1)))
        .put("elapsed_ns", rows.iter().map(|r| Some(r.2)).collect::<Int64Array>())
        .put("latency_ns", rows.iter().map(|r| r.3.map(|l| l.0)).collect::<Int64Array>())
        .put("latency_p99_ns", rows.iter().map(|r| r.3.map(|l| l.1)).collect::<Int64Array>())
        .put("operations", rows.iter().map(|r| Some(r.4)).collect::<UInt64Array>())
        .put_names("basis", rows.iter().map(|r| Some(r.5)))
        .put("detail", rows.iter().map(|r| Some(r.6.as_str())).collect::<StringArray>())
        .finish(n)
}

/// How often the fit is improved.
const FIT_ROUNDS: usize = 6;
/// How much operations vary meanwhile.
const FIT_JITTER: f64 = 0.03;

/// Makes programs and what was recorded agree in the layout in which they were recorded.
///
/// Of kernels that never had the device for themselves nothing says what they take alone: they ran beside others, with
/// fewer SMs for their blocks. Replayed in the recorded layout they must take as long as recorded; their time alone is
/// changed until they do. Kernels of which the time alone is known must too: by how much they take longer than the
/// replay says is the contention that it does not know. Returns that, where there are such kernels.
fn fit(made: &mut Programs, layout: &Layout, watch: &dyn Watch) -> Result<Option<f64>> {
    let company = |p: &Program| p.ops.iter().any(|op| op.company && !matches!(op.place, Place::Copy(_)));
    if !made.programs.iter().any(company) {
        return Ok(None);
    }
    let mut layout = layout.clone();
    // In turns nobody is beside another tenant: what a tenant's own streams do to each other is no contention with one.
    let beside = layout.seats.iter().enumerate().any(|(n, a)| {
        layout.seats.iter().skip(n.saturating_add(1)).any(|b| (a.instance, a.group) == (b.instance, b.group))
    });
    let mut measured = None;
    // What the recorded programs fell into step with by chance is no property of their kernels.
    layout.jitter = FIT_JITTER;
    for round in 0..FIT_ROUNDS {
        layout.seed = round as u64;
        let mut sums: Vec<(f64, f64)> = vec![(0.0, 0.0); made.shapes.len()];
        let programs = &made.programs;
        let mut see = |program: usize, op: u32, ns: i64| {
            let Some(op) = programs.get(program).and_then(|p| p.ops.get(op as usize)) else { return };
            let slot = sums.get_mut(op.shape as usize);
            if let (Some(slot), true) = (slot, op.company) {
                *slot = (slot.0 + op.seen_ns as f64, slot.1 + ns as f64);
            }
        };
        replay(programs, &made.limits, &layout, &mut see, watch)?;
        let (mut recorded, mut replayed, mut worst) = (0.0, 0.0, 0.0_f64);
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
        for op in made.programs.iter_mut().flat_map(|p| &mut p.ops).filter(|op| op.company) {
            let factor = factors.get(op.shape as usize).copied().unwrap_or(1.0);
            op.work_ns = ((op.work_ns as f64 * factor) as i64).max(1);
        }
        if replayed > 0.0 && beside {
            let more: f64 = recorded / replayed;
            worst = worst.max((more - 1.0).abs());
            layout.contention = ((1.0 + layout.contention) * more - 1.0).clamp(0.0, 3.0);
            measured = Some(layout.contention);
        }
        if worst < 0.01 {
            break;
        }
    }
    Ok(measured)
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
            "; {part:.0} % of its kernel time was in company: taken for no more than what kernels of equal shape took alone"
        ));
    }
    if p.opaque > 0 {
        text.push_str(&format!("; {} of unknown shape are taken to fill the device", p.opaque));
    }
    if !made.unknown.is_empty() {
        text.push_str("; what others ran was not traced and is not in it");
    }
    text
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A host goes on.
    Host(usize, usize),
    /// An operation is on the device.
    Arrive(usize, u32),
    /// One thing that an operation waited for has ended.
    Release(usize, u32),
    /// The next block of a group ends, if the version is still true.
    Blocks(usize, u64),
    /// A slice is over, a lingering context gives up, a switch is done; if the version is still true.
    Engine(usize, u64),
    /// A copy ends.
    Copied(usize),
}

#[derive(Debug, Default)]
struct OpState {
    waits_for: u32,
    done: bool,
    waiters: Vec<u32>,
    launched: Ps,
    ready: Ps,
    /// Time for which its group had held the engine when its first block was placed.
    started: Ps,
    unplaced: u64,
    in_flight: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    For(u32),
    All,
    Room,
}

#[derive(Debug)]
struct HostState {
    next: usize,
    waiting: Option<Waiting>,
}

/// What a kernel asks on its instance.
#[derive(Debug, Clone, Copy)]
struct Shape {
    at_once: u64,
    ask: Resources,
    block: Ps,
}

struct Tenant<'a> {
    /// Index of the program.
    index: usize,
    program: &'a Program,
    group: usize,
    ops: Vec<OpState>,
    last: Vec<Option<u32>>,
    hosts: Vec<HostState>,
    outstanding: u32,
    /// Kernels in order; only the head has its blocks placed.
    queue: VecDeque<u32>,
    /// SMs that its kernels may use, and what of them is free.
    sms: u32,
    free: [i128; 4],
    in_flight: u64,
    first: Ps,
    end: Ps,
    latencies: Vec<i64>,
    ended: u64,
}

/// Blocks that end together, in the group's own time: (end, tenant, op, blocks).
type Cohort = Reverse<(Ps, usize, u32, u64)>;

/// Contexts that hold an engine together. Its time stands still while another group holds it.
struct Group {
    instance: usize,
    tenants: Vec<usize>,
    /// Kernels with blocks on the SMs: (tenant, op, blocks, what one takes).
    on_sms: Vec<(usize, u32, u64, Resources)>,
    cohorts: BinaryHeap<Cohort>,
    running: bool,
    /// Its own time at `since`.
    local: Ps,
    since: Ps,
    /// Time for which it had held the engine at `since`.
    held: Ps,
    rate: f64,
    version: u64,
    /// Caps leave room for everybody: nobody disturbs anybody.
    disjoint: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Idle,
    Running,
    Lingering,
    Switching,
}

struct Instance {
    groups: Vec<usize>,
    turn: usize,
    doing: Doing,
    version: u64,
    slice_end: Ps,
    /// The end of the slice has been set: somebody waits for it.
    armed: bool,
}

struct Sim<'a> {
    layout: &'a Layout,
    per_sm: Resources,
    now: Ps,
    seq: u64,
    heap: BinaryHeap<Reverse<(Ps, u64, Event)>>,
    tenants: Vec<Tenant<'a>>,
    groups: Vec<Group>,
    instances: Vec<Instance>,
    copies: [VecDeque<(usize, u32)>; 3],
    copying: [Option<(usize, u32)>; 3],
    see: &'a mut dyn FnMut(usize, u32, i64),
    /// Time of a kernel in block times, by blocks and blocks at once, where block times differ.
    makespans: HashMap<(u64, u64), f64>,
}

/// Runs programs in a layout, and says of every kernel (index of its program, operation) for how long its group held the
/// engine from its first block to its last.
///
/// # Errors
/// [`Error::Argument`] for a layout that makes no sense, [`Error::Cancelled`].
pub(crate) fn replay(
    programs: &[Program],
    limits: &Limits,
    layout: &Layout,
    see: &mut dyn FnMut(usize, u32, i64),
    watch: &dyn Watch,
) -> Result<Vec<Took>> {
    layout.check()?;
    let mut sim = Sim::new(programs, limits, layout, see);
    sim.begin();
    let mut steps = 0_u64;
    let total: usize = sim.tenants.iter().map(|t| t.program.ops.len()).sum();
    while let Some(Reverse((time, _, event))) = sim.heap.pop() {
        if steps.is_multiple_of(16_384) {
            let done = sim.tenants.iter().map(|t| t.ended).sum();
            watch.progress("replay", done, total as u64)?;
        }
        steps = steps.wrapping_add(1);
        sim.now = time;
        sim.step(event);
    }
    Ok(sim.took())
}

/// Blocks that start together, by their part of the mean block time.
fn parts(count: u64, ragged: f64) -> impl Iterator<Item = (u64, f64)> {
    // Quarters at the middles of four equal parts of the spread.
    let n = if ragged > 0.0 { 4 } else { 1 };
    (0..n).filter_map(move |i| {
        let blocks = count.saturating_mul(i + 1) / n - count.saturating_mul(i) / n;
        // Single blocks are average ones.
        let part = if count < n { 1.0 } else { 1.0 + ragged * ((2 * i + 1) as f64 / n as f64 - 1.0) };
        (blocks > 0).then_some((blocks, part))
    })
}

/// Time of a kernel alone, in mean block times.
fn makespan(count: u64, at_once: u64, ragged: f64) -> f64 {
    if ragged <= 0.0 {
        return count.div_ceil(at_once.max(1)).max(1) as f64;
    }
    // So many waves are all alike.
    let waves = count / at_once.max(1);
    let skipped = waves.saturating_sub(16);
    let mut left = count.saturating_sub(skipped.saturating_mul(at_once));
    let mut ends: BinaryHeap<Reverse<(i64, u64)>> = BinaryHeap::new();
    let (mut now, mut room) = (0_i64, at_once.max(1));
    loop {
        let blocks = left.min(room);
        for (blocks, part) in parts(blocks, ragged) {
            ends.push(Reverse((now.saturating_add((part * 1e6) as i64), blocks)));
        }
        (left, room) = (left - blocks, room - blocks);
        let Some(Reverse((end, blocks))) = ends.pop() else { break };
        (now, room) = (end, room.saturating_add(blocks));
        while let Some(Reverse((_, more))) = ends.peek().copied().filter(|Reverse((e, _))| *e == end) {
            ends.pop();
            room = room.saturating_add(more);
        }
    }
    (now as f64 / 1e6 + skipped as f64).max(1.0)
}

/// A number between -1 and 1 for an operation, the same in every run.
fn spread(seed: u64, tenant: u32, op: u32) -> f64 {
    // splitmix64
    let mut x = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add((u64::from(tenant) << 32) | u64::from(op))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    (x >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

fn span(event_ns: i64) -> Ps {
    ps(event_ns.max(0))
}

impl<'a> Sim<'a> {
    fn new(
        programs: &'a [Program],
        limits: &Limits,
        layout: &'a Layout,
        see: &'a mut dyn FnMut(usize, u32, i64),
    ) -> Self {
        let per_sm = limits.resources();
        let of = |sms: u32| per_sm.map(|has| i128::from(has.saturating_mul(u64::from(sms)).max(1)));
        let mut instances: Vec<Instance> = layout
            .instances
            .iter()
            .map(|_| Instance {
                groups: Vec::new(),
                turn: 0,
                doing: Doing::Idle,
                version: 0,
                slice_end: 0,
                armed: false,
            })
            .collect();
        let mut groups: Vec<Group> = Vec::new();
        let mut numbers: BTreeMap<(usize, u32), usize> = BTreeMap::new();
        let mut tenants = Vec::new();
        for seat in &layout.seats {
            let found = programs.iter().enumerate().find(|(_, p)| p.tenant == seat.tenant);
            let Some((index, program)) = found else { continue };
            let whole = layout.instances.get(seat.instance).copied().unwrap_or(0);
            let sms = seat.sms.unwrap_or(whole).min(whole).max(1);
            let group = *numbers.entry((seat.instance, seat.group)).or_insert_with(|| {
                groups.push(Group {
                    instance: seat.instance,
                    tenants: Vec::new(),
                    on_sms: Vec::new(),
                    cohorts: BinaryHeap::new(),
                    running: false,
                    local: 0,
                    since: 0,
                    held: 0,
                    rate: 1.0,
                    version: 0,
                    disjoint: false,
                });
                if let Some(instance) = instances.get_mut(seat.instance) {
                    instance.groups.push(groups.len().saturating_sub(1));
                }
                groups.len().saturating_sub(1)
            });
            if let Some(group) = groups.get_mut(group) {
                group.tenants.push(tenants.len());
            }
            tenants.push(Tenant {
                index,
                program,
                group,
                ops: (0..program.ops.len()).map(|_| OpState::default()).collect(),
                last: vec![None; program.streams as usize],
                hosts: program.hosts.iter().map(|_| HostState { next: 0, waiting: None }).collect(),
                outstanding: 0,
                queue: VecDeque::new(),
                sms,
                free: of(sms),
                in_flight: 0,
                first: Ps::MAX,
                end: 0,
                latencies: Vec::with_capacity(program.ops.len()),
                ended: 0,
            });
        }
        for group in &mut groups {
            let whole = layout.instances.get(group.instance).copied().unwrap_or(0);
            let asked = group
                .tenants
                .iter()
                .filter_map(|t| tenants.get(*t))
                .fold(0_u32, |n, t| n.saturating_add(t.sms));
            group.disjoint = asked <= whole;
        }
        Self {
            layout,
            per_sm,
            now: 0,
            seq: 0,
            heap: BinaryHeap::new(),
            tenants,
            groups,
            instances,
            copies: [const { VecDeque::new() }; 3],
            copying: [None; 3],
            see,
            makespans: HashMap::new(),
        }
    }

    fn at(&mut self, time: Ps, event: Event) {
        self.seq = self.seq.wrapping_add(1);
        self.heap.push(Reverse((time.max(self.now), self.seq, event)));
    }

    fn begin(&mut self) {
        let origin_ns =
            self.tenants.iter().flat_map(|t| t.program.hosts.iter().map(|h| h.0)).min().unwrap_or(0);
        let hosts: Vec<(usize, usize, Ps)> = self
            .tenants
            .iter()
            .enumerate()
            .flat_map(|(t, tenant)| {
                let begin = move |h: &(i64, Vec<Step>)| span(h.0.saturating_sub(origin_ns));
                tenant.program.hosts.iter().enumerate().map(move |(h, host)| (t, h, begin(host)))
            })
            .collect();
        for (t, h, begin) in hosts {
            if let Some(tenant) = self.tenants.get_mut(t) {
                tenant.first = tenant.first.min(begin);
            }
            self.at(begin, Event::Host(t, h));
        }
        // Nobody to hand the engine to: it is never given up.
        for instance in 0..self.instances.len() {
            let only =
                self.instances.get(instance).filter(|i| i.groups.len() == 1).and_then(|i| i.groups.first());
            if let Some(group) = only.copied() {
                self.start(group);
            }
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Host(tenant, host) => self.host(tenant, host),
            Event::Arrive(tenant, op) => self.arrive(tenant, op),
            Event::Release(tenant, op) => {
                let state = self.tenants.get_mut(tenant).and_then(|t| t.ops.get_mut(op as usize));
                if state.is_some_and(|s| {
                    s.waits_for = s.waits_for.saturating_sub(1);
                    s.waits_for == 0
                }) {
                    self.ready(tenant, op);
                }
            }
            Event::Blocks(group, version) => {
                if self.groups.get(group).is_some_and(|g| g.version == version) {
                    self.blocks_end(group);
                }
            }
            Event::Engine(instance, version) => {
                if self.instances.get(instance).is_some_and(|i| i.version == version) {
                    self.engine(instance);
                }
            }
            Event::Copied(engine) => {
                let done = self.copying.get_mut(engine).and_then(Option::take);
                if let Some((tenant, op)) = done {
                    self.ended(tenant, op);
                }
                self.copy(engine);
            }
        }
    }

    // -- hosts ------------------------------------------------------------------------------------------

    fn host(&mut self, tenant: usize, host: usize) {
        loop {
            let Some(t) = self.tenants.get_mut(tenant) else { return };
            let program = t.program;
            let Some(state) = t.hosts.get_mut(host) else { return };
            let step = program.hosts.get(host).and_then(|h| h.1.get(state.next)).copied();
            let Some(step) = step else { return };
            match step {
                Step::Think(ns) => {
                    state.next = state.next.saturating_add(1);
                    let time = self.now.saturating_add(span(ns));
                    self.at(time, Event::Host(tenant, host));
                    return;
                }
                Step::Launch(op) => {
                    if t.outstanding >= QUEUE_DEPTH {
                        state.waiting = Some(Waiting::Room);
                        return;
                    }
                    state.next = state.next.saturating_add(1);
                    t.outstanding = t.outstanding.saturating_add(1);
                    if let Some(o) = t.ops.get_mut(op as usize) {
                        o.launched = self.now;
                    }
                    let time = self.now.saturating_add(span(program.submit_ns));
                    self.at(time, Event::Arrive(tenant, op));
                }
                Step::Wait(op) => {
                    if !t.ops.get(op as usize).is_none_or(|o| o.done) {
                        state.waiting = Some(Waiting::For(op));
                        return;
                    }
                    state.next = state.next.saturating_add(1);
                }
                Step::WaitAll => {
                    if t.outstanding > 0 {
                        state.waiting = Some(Waiting::All);
                        return;
                    }
                    state.next = state.next.saturating_add(1);
                }
            }
        }
    }

    fn ended(&mut self, tenant: usize, op: u32) {
        let now = self.now;
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        let program = t.program;
        t.outstanding = t.outstanding.saturating_sub(1);
        t.ended = t.ended.saturating_add(1);
        t.end = t.end.max(now);
        let mut waiters = Vec::new();
        if let Some(o) = t.ops.get_mut(op as usize) {
            o.done = true;
            waiters = std::mem::take(&mut o.waiters);
            let copy = program.ops.get(op as usize).is_some_and(|o| matches!(o.place, Place::Copy(_)));
            if !copy {
                t.latencies.push(now.saturating_sub(o.launched) / 1000);
            }
        }
        let mut woken = Vec::new();
        for (host, state) in t.hosts.iter_mut().enumerate() {
            let over = match state.waiting {
                Some(Waiting::For(wanted)) => wanted == op,
                Some(Waiting::All) => t.outstanding == 0,
                Some(Waiting::Room) => t.outstanding < QUEUE_DEPTH.saturating_sub(64),
                None => false,
            };
            if over {
                state.waiting = None;
                woken.push(host);
            }
        }
        let release = now.saturating_add(span(program.release_ns));
        for waiter in waiters {
            self.at(release, Event::Release(tenant, waiter));
        }
        for host in woken {
            self.at(now, Event::Host(tenant, host));
        }
    }

    // -- streams ----------------------------------------------------------------------------------------

    fn arrive(&mut self, tenant: usize, op: u32) {
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        let Some(Op { stream, .. }) = t.program.ops.get(op as usize).copied() else { return };
        let mut before: Vec<u32> = Vec::new();
        match t.program.barrier {
            Some(barrier) if stream == barrier => before.extend(t.last.iter().flatten()),
            Some(barrier) => {
                before.extend(t.last.get(stream as usize).copied().flatten());
                before.extend(t.last.get(barrier as usize).copied().flatten());
            }
            None => before.extend(t.last.get(stream as usize).copied().flatten()),
        }
        let mut waits = 0_u32;
        for other in before {
            if let Some(o) = t.ops.get_mut(other as usize).filter(|o| !o.done) {
                o.waiters.push(op);
                waits = waits.saturating_add(1);
            }
        }
        if let Some(last) = t.last.get_mut(stream as usize) {
            *last = Some(op);
        }
        if let Some(o) = t.ops.get_mut(op as usize) {
            o.waits_for = waits;
        }
        if waits == 0 {
            self.ready(tenant, op);
        }
    }

    fn ready(&mut self, tenant: usize, op: u32) {
        let now = self.now;
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        let Some(kind) = t.program.ops.get(op as usize).map(|o| o.place) else { return };
        if let Place::Copy(engine) = kind {
            if let Some(queue) = self.copies.get_mut(engine) {
                queue.push_back((tenant, op));
            }
            self.copy(engine);
            return;
        }
        let (group, count) = (
            t.group,
            match kind {
                Place::Sms { count, .. } => count.max(1),
                _ => 1,
            },
        );
        if let Some(o) = t.ops.get_mut(op as usize) {
            (o.ready, o.unplaced, o.started) = (now, count, -1);
        }
        t.queue.push_back(op);
        // Behind another kernel of its own nothing changes.
        if t.queue.len() == 1 && self.groups.get(group).is_some_and(|g| g.running) {
            self.dispatch(group);
        }
        self.look(group);
    }

    fn copy(&mut self, engine: usize) {
        let busy = self.copying.get(engine).is_none_or(Option::is_some);
        if busy {
            return;
        }
        let Some((tenant, op)) = self.copies.get_mut(engine).and_then(VecDeque::pop_front) else { return };
        let t = self.tenants.get(tenant);
        let work = t.and_then(|t| t.program.ops.get(op as usize)).map_or(0, |o| o.work_ns);
        if let Some(slot) = self.copying.get_mut(engine) {
            *slot = Some((tenant, op));
        }
        let end = self.now.saturating_add(span(work));
        self.at(end, Event::Copied(engine));
    }

    // -- blocks -----------------------------------------------------------------------------------------

    /// A group's own time.
    fn local(&self, group: usize) -> Ps {
        let Some(g) = self.groups.get(group) else { return 0 };
        if !g.running {
            return g.local;
        }
        let passed = self.now.saturating_sub(g.since);
        // The common case without rounding.
        let own = if g.rate < 1.0 { (passed as f64 * g.rate) as Ps } else { passed };
        g.local.saturating_add(own)
    }

    /// Brings a group's own time up to now.
    fn settle(&mut self, group: usize) {
        let (local, held) = (self.local(group), self.held(group));
        let now = self.now;
        if let Some(g) = self.groups.get_mut(group) {
            (g.local, g.held, g.since) = (local, held, now);
        }
    }

    /// For how long a group has held the engine.
    fn held(&self, group: usize) -> Ps {
        self.groups.get(group).map_or(0, |g| {
            let passed = if g.running { self.now.saturating_sub(g.since) } else { 0 };
            g.held.saturating_add(passed)
        })
    }

    fn start(&mut self, group: usize) {
        let now = self.now;
        if let Some(g) = self.groups.get_mut(group) {
            (g.running, g.since) = (true, now);
        }
        self.dispatch(group);
    }

    fn stop(&mut self, group: usize) {
        self.settle(group);
        if let Some(g) = self.groups.get_mut(group) {
            g.running = false;
            g.version = g.version.wrapping_add(1);
        }
    }

    fn has_work(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|g| {
            !g.cohorts.is_empty()
                || g.tenants.iter().any(|t| self.tenants.get(*t).is_some_and(|t| !t.queue.is_empty()))
        })
    }

    /// What a kernel asks of the SMs that its tenant may use.
    fn shape(&mut self, tenant: usize, op: u32) -> Option<Shape> {
        let t = self.tenants.get(tenant)?;
        let o = t.program.ops.get(op as usize)?;
        let mut work = ps(o.work_ns.max(1));
        if self.layout.jitter > 0.0 {
            let drawn = spread(self.layout.seed, t.program.tenant, op);
            work = (work as f64 * self.layout.jitter.mul_add(drawn, 1.0)) as Ps;
        }
        let Place::Sms { count, per_sm, ask } = o.place else {
            let whole = self.per_sm.map(|has| has.saturating_mul(u64::from(t.sms)));
            // With fewer SMs than it was seen on it takes longer in proportion: nothing better is known.
            let more = f64::from(t.program.visible_sms.max(t.sms)) / f64::from(t.sms.max(1));
            return Some(Shape { at_once: 1, ask: whole, block: (work as f64 * more) as Ps });
        };
        let room = t.free_when_empty(self.per_sm);
        let fits = room.iter().zip(&ask).filter(|(_, ask)| **ask > 0).map(|(has, ask)| has / ask).min();
        let at_once = per_sm.saturating_mul(u64::from(t.sms)).min(fits.unwrap_or(u64::MAX)).max(1);
        let then = per_sm.saturating_mul(u64::from(t.program.visible_sms.max(1))).max(1);
        let block = if self.layout.ragged > 0.0 {
            let ragged = self.layout.ragged;
            let span = *self.makespans.entry((count, then)).or_insert_with(|| makespan(count, then, ragged));
            (work as f64 / span) as Ps
        } else {
            work / Ps::try_from(count.div_ceil(then).max(1)).unwrap_or(Ps::MAX)
        };
        Some(Shape { at_once, ask, block: block.max(1) })
    }

    /// How many blocks that ask so much find an SM with room.
    ///
    /// What is free on all SMs together may be too little on each. Blocks go to the SM with most room, so a kernel's
    /// are spread evenly: each SM has `q` of them or `q + 1`. The two kernels that take most are spread so, one's
    /// surplus where the other has none; of further ones every SM has its part. The more kernels there are, the less
    /// even it is: from three on half way to what fits into the sum.
    fn room(&self, group: usize, ask: &Resources) -> u64 {
        let Some(g) = self.groups.get(group) else { return 0 };
        let sms = u64::from(self.layout.instances.get(g.instance).copied().unwrap_or(0));
        let size =
            |k: &(usize, u32, u64, Resources)| k.3.first().map_or(0, |warps| warps.saturating_mul(k.2));
        let mut order: Vec<&(usize, u32, u64, Resources)> = g.on_sms.iter().collect();
        order.sort_by_key(|k| Reverse(size(k)));
        let per_sm = |n: Option<&&(usize, u32, u64, Resources)>| {
            n.map_or((0, 0, [0; 4]), |k| (k.2 / sms.max(1), k.2 % sms.max(1), k.3))
        };
        let (a, b) = (per_sm(order.first()), per_sm(order.get(1)));
        let mut rest = [0.0; 4];
        for k in order.iter().skip(2) {
            for (rest, ask) in rest.iter_mut().zip(&k.3) {
                *rest += (ask.saturating_mul(k.2)) as f64 / sms.max(1) as f64;
            }
        }
        // SMs with one more of the first, of the second, of both, of neither.
        let both = a.1.saturating_add(b.1).saturating_sub(sms);
        let classes = [
            (a.1.saturating_sub(both), 1, 0),
            (b.1.saturating_sub(both), 0, 1),
            (both, 1, 1),
            (sms.saturating_add(both).saturating_sub(a.1).saturating_sub(b.1), 0, 0),
        ];
        let even = classes.iter().fold(0, |sum: u64, (count, more_a, more_b)| {
            if *count == 0 {
                return sum;
            }
            let mut fits = u64::MAX;
            for (n, (ask, has)) in ask.iter().zip(&self.per_sm).enumerate() {
                if *ask == 0 {
                    continue;
                }
                let of = |k: &(u64, u64, Resources), more: u64| {
                    k.2.get(n).map_or(0, |each| each.saturating_mul(k.0.saturating_add(more)))
                };
                let taken = of(&a, *more_a).saturating_add(of(&b, *more_b));
                let others = rest.get(n).copied().unwrap_or(0.0);
                let left = (has.saturating_sub(taken) as f64 - others).max(0.0);
                fits = fits.min((left / *ask as f64) as u64);
            }
            sum.saturating_add(count.saturating_mul(fits))
        });
        if order.len() < 3 {
            return even;
        }
        let mut sum = u64::MAX;
        for (n, (ask, has)) in ask.iter().zip(&self.per_sm).enumerate().filter(|(_, (ask, _))| **ask > 0) {
            let taken = order.iter().fold(0_u64, |taken, k| {
                taken.saturating_add(k.3.get(n).map_or(0, |each| each.saturating_mul(k.2)))
            });
            sum = sum.min(has.saturating_mul(sms).saturating_sub(taken) / ask);
        }
        even.saturating_add(sum.max(even)) / 2
    }

    /// Places what there is room for: the head that has waited longest first, and that again after every kernel.
    fn dispatch(&mut self, group: usize) {
        let Some(g) = self.groups.get(group) else { return };
        let members = g.tenants.clone();
        let local = self.local(group);
        let mut full = vec![false; members.len()];
        loop {
            let head = |(n, t): (usize, &usize)| {
                let tenant = self.tenants.get(*t)?;
                let op = tenant.queue.front().copied()?;
                Some((tenant.ops.get(op as usize)?.ready, n, *t, op))
            };
            let next = members
                .iter()
                .enumerate()
                .filter(|(n, _)| !full.get(*n).copied().unwrap_or(true))
                .filter_map(head)
                .min();
            let Some((_, n, tenant, op)) = next else { break };
            if self.place(group, local, tenant, op) {
                if let Some(t) = self.tenants.get_mut(tenant) {
                    t.queue.pop_front();
                }
            } else if let Some(full) = full.get_mut(n) {
                *full = true;
            }
        }
        self.pace(group);
        self.tick(group);
    }

    /// Places blocks of a kernel; true when none is left.
    fn place(&mut self, group: usize, local: Ps, tenant: usize, op: u32) -> bool {
        let Some(shape) = self.shape(tenant, op) else { return true };
        let held = self.held(group);
        let ragged = self.layout.ragged;
        let apart = self.groups.get(group).is_some_and(|g| g.disjoint);
        let beside = if apart { u64::MAX } else { self.room(group, &shape.ask) };
        let Some(g) = self.groups.get_mut(group) else { return true };
        let Some(t) = self.tenants.get_mut(tenant) else { return true };
        let Some(o) = t.ops.get_mut(op as usize) else { return true };
        let room = |free: &[i128; 4]| {
            let asks = shape.ask.iter().zip(free).filter(|(ask, _)| **ask > 0);
            let least = asks.map(|(ask, free)| (*free).max(0) / i128::from(*ask)).min();
            least.map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(u64::MAX))
        };
        let own = shape.at_once.saturating_sub(o.in_flight);
        // A kernel whose footprint is larger than the pool (its blocks were cut to what fits) still runs alone.
        let empty = t.in_flight == 0 && (g.disjoint || g.cohorts.is_empty());
        let mut count = o.unplaced.min(own).min(room(&t.free)).min(beside);
        if count == 0 && empty {
            count = o.unplaced.min(own);
        }
        if count == 0 {
            return false;
        }
        // Whole waves that nobody can come between: all but the last at once.
        // Who comes later waits longer: it gets what the kernel leaves, as between two waves.
        let undisturbed = ragged <= 0.0 && (g.cohorts.is_empty() || (g.disjoint && t.in_flight == 0));
        let mut waves = 1;
        if undisturbed && count == shape.at_once {
            let left = o.unplaced.saturating_sub(count);
            let more = left.saturating_sub(1) / shape.at_once;
            waves = waves.max(more.saturating_add(1));
            o.unplaced = o.unplaced.saturating_sub(more.saturating_mul(count));
        }
        if o.in_flight == 0 && o.started < 0 {
            o.started = held;
        }
        o.unplaced = o.unplaced.saturating_sub(count);
        o.in_flight = o.in_flight.saturating_add(count);
        t.in_flight = t.in_flight.saturating_add(count);
        for (n, ask) in shape.ask.iter().enumerate() {
            let taken = i128::from(*ask).saturating_mul(i128::from(count));
            if let Some(free) = t.free.get_mut(n) {
                *free = free.saturating_sub(taken);
            }
        }
        match g.on_sms.iter_mut().find(|k| (k.0, k.1) == (tenant, op)) {
            Some(kernel) => kernel.2 = kernel.2.saturating_add(count),
            None => g.on_sms.push((tenant, op, count, shape.ask)),
        }
        let length = shape.block.saturating_mul(Ps::try_from(waves).unwrap_or(Ps::MAX));
        for (blocks, part) in parts(count, ragged) {
            let own = if ragged > 0.0 { (length as f64 * part) as Ps } else { length };
            g.cohorts.push(Reverse((local.saturating_add(own.max(1)), tenant, op, blocks)));
        }
        o.unplaced == 0
    }

    fn blocks_end(&mut self, group: usize) {
        self.settle(group);
        let (local, held) = (self.local(group), self.held(group));
        let mut done: Vec<(usize, u32)> = Vec::new();
        loop {
            let Some(g) = self.groups.get_mut(group) else { return };
            let Some(Reverse((end, tenant, op, count))) = g.cohorts.peek().copied() else { break };
            if end > local {
                break;
            }
            g.cohorts.pop();
            let Some(shape) = self.shape(tenant, op) else { continue };
            let Some(g) = self.groups.get_mut(group) else { return };
            let Some(t) = self.tenants.get_mut(tenant) else { continue };
            t.in_flight = t.in_flight.saturating_sub(count);
            for (n, ask) in shape.ask.iter().enumerate() {
                let given = i128::from(*ask).saturating_mul(i128::from(count));
                if let Some(free) = t.free.get_mut(n) {
                    *free = free.saturating_add(given);
                }
            }
            if let Some(at) = g.on_sms.iter().position(|k| (k.0, k.1) == (tenant, op)) {
                let left = g.on_sms.get_mut(at).map_or(0, |k| {
                    k.2 = k.2.saturating_sub(count);
                    k.2
                });
                if left == 0 {
                    g.on_sms.swap_remove(at);
                }
            }
            if let Some(o) = t.ops.get_mut(op as usize) {
                o.in_flight = o.in_flight.saturating_sub(count);
                if o.in_flight == 0 && o.unplaced == 0 {
                    done.push((tenant, op));
                    let ns = held.saturating_sub(o.started) / 1000;
                    (self.see)(t.index, op, ns);
                }
            }
        }
        for (tenant, op) in done {
            self.ended(tenant, op);
        }
        self.dispatch(group);
        self.look(group);
    }

    /// How fast the SMs of a group run.
    fn pace(&mut self, group: usize) {
        if self.layout.contention <= 0.0 {
            return;
        }
        let Some(g) = self.groups.get(group) else { return };
        let busy =
            g.tenants.iter().filter(|t| self.tenants.get(**t).is_some_and(|t| t.in_flight > 0)).count();
        let rate = if busy >= 2 { 1.0 / (1.0 + self.layout.contention) } else { 1.0 };
        if (rate - g.rate).abs() > 1e-12 {
            self.settle(group);
            if let Some(g) = self.groups.get_mut(group) {
                g.rate = rate;
            }
        }
    }

    /// Sets the alarm for the next blocks that end.
    fn tick(&mut self, group: usize) {
        let local = self.local(group);
        let Some(g) = self.groups.get_mut(group) else { return };
        g.version = g.version.wrapping_add(1);
        if !g.running {
            return;
        }
        let Some(Reverse((end, ..))) = g.cohorts.peek().copied() else { return };
        let left = end.saturating_sub(local).max(0);
        let wait = if g.rate < 1.0 { (left as f64 / g.rate).ceil() as Ps } else { left };
        let (time, version) = (self.now.saturating_add(wait), g.version);
        self.at(time, Event::Blocks(group, version));
    }

    // -- engines ----------------------------------------------------------------------------------------

    /// Looks at an engine after a group has got or lost work.
    fn look(&mut self, group: usize) {
        let Some(instance) = self.groups.get(group).map(|g| g.instance) else { return };
        let Some(i) = self.instances.get(instance) else { return };
        if i.groups.len() < 2 {
            return;
        }
        match i.doing {
            Doing::Idle => self.hand_over(instance, false),
            Doing::Running | Doing::Lingering => self.watch_turn(instance),
            Doing::Switching => {}
        }
    }

    /// Sets the alarm for the end of a turn, if somebody waits for it.
    fn watch_turn(&mut self, instance: usize) {
        let waits = self.next(instance).is_some();
        let Some(i) = self.instances.get_mut(instance) else { return };
        let current = i.groups.get(i.turn).copied();
        let (doing, armed) = (i.doing, i.armed);
        // A holder that was alone has used whole slices.
        let slice = ps(self.layout.slice_ns).max(1);
        let over = self.now.saturating_sub(i.slice_end);
        if over >= 0 {
            i.slice_end = i.slice_end.saturating_add((over / slice).saturating_add(1).saturating_mul(slice));
        }
        let left = i.slice_end.saturating_sub(self.now);
        let idle = current.is_some_and(|g| !self.has_work(g));
        match (waits, idle) {
            (true, true) if doing == Doing::Running => self.alarm(instance, Doing::Lingering, ps(LINGER_NS)),
            (true, false) if doing == Doing::Lingering || !armed => {
                self.alarm(instance, Doing::Running, left);
                if let Some(i) = self.instances.get_mut(instance) {
                    i.armed = true;
                }
            }
            _ => {}
        }
    }

    fn alarm(&mut self, instance: usize, doing: Doing, after: Ps) {
        let time = self.now.saturating_add(after);
        let Some(i) = self.instances.get_mut(instance) else { return };
        i.doing = doing;
        i.armed = false;
        i.version = i.version.wrapping_add(1);
        let version = i.version;
        self.at(time, Event::Engine(instance, version));
    }

    /// The turn after the present one whose group has work.
    fn next(&self, instance: usize) -> Option<usize> {
        let i = self.instances.get(instance)?;
        let n = i.groups.len();
        (1..n)
            .map(|step| i.turn.saturating_add(step) % n.max(1))
            .find(|turn| i.groups.get(*turn).is_some_and(|g| self.has_work(*g)))
    }

    fn engine(&mut self, instance: usize) {
        let now = self.now;
        let slice = ps(self.layout.slice_ns);
        let Some(i) = self.instances.get_mut(instance) else { return };
        i.armed = false;
        let (doing, current) = (i.doing, i.groups.get(i.turn).copied());
        if doing != Doing::Idle {
            i.doing = Doing::Running;
        }
        match doing {
            Doing::Switching => {
                i.slice_end = now.saturating_add(slice);
                if let Some(group) = current {
                    self.start(group);
                }
                self.watch_turn(instance);
            }
            Doing::Lingering if current.is_some_and(|g| self.has_work(g)) => self.watch_turn(instance),
            Doing::Running | Doing::Lingering => {
                if self.next(instance).is_some() {
                    self.hand_over(instance, true);
                }
            }
            Doing::Idle => {}
        }
    }

    fn hand_over(&mut self, instance: usize, leaving: bool) {
        let Some(i) = self.instances.get(instance) else { return };
        let current = i.groups.get(i.turn).copied();
        let n = i.groups.len();
        let next = if leaving {
            self.next(instance)
        } else {
            // Idle so far: whoever has work.
            (0..n).find(|turn| i.groups.get(*turn).is_some_and(|g| self.has_work(*g)))
        };
        let Some(next) = next else { return };
        if let (true, Some(group)) = (leaving, current) {
            self.stop(group);
        }
        if let Some(i) = self.instances.get_mut(instance) {
            i.turn = next;
        }
        let cost = if leaving { ps(self.layout.switch_ns) } else { 0 };
        self.alarm(instance, Doing::Switching, cost);
    }

    fn took(self) -> Vec<Took> {
        self.tenants
            .into_iter()
            .map(|mut t| {
                let latency_ns = t.latencies.iter().fold(0_i64, |sum, l| sum.saturating_add(*l));
                let last = t.latencies.len().saturating_sub(1);
                let at = (last as f64 * 0.99).round() as usize;
                let p99 = if t.latencies.is_empty() { 0 } else { *t.latencies.select_nth_unstable(at).1 };
                Took {
                    tenant: t.program.tenant,
                    elapsed_ns: t.end.saturating_sub(t.first.min(t.end)) / 1000,
                    latency_ns,
                    latency_p99_ns: p99,
                    operations: t.ended,
                }
            })
            .collect()
    }
}

impl Tenant<'_> {
    fn free_when_empty(&self, per_sm: Resources) -> Resources {
        per_sm.map(|has| has.saturating_mul(u64::from(self.sms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{StopAfter, Unwatched};

    const WARPS: u64 = 64;

    /// 10 SMs of 64 warps; a block of 8 warps: 8 of them on an SM, 80 on the device.
    fn limits() -> Limits {
        Limits { max_warps_per_sm: Some(64), sm_count: Some(10), ..Limits::default() }
    }

    fn kernel(stream: u32, us: i64, count: u64, warps: u64) -> Op {
        let place = Place::Sms { count, per_sm: WARPS / warps, ask: [warps, 0, 0, 0] };
        Op { stream, place, work_ns: us * 1000, seen_ns: us * 1000, shape: 0, company: false }
    }

    fn program(tenant: u32, ops: Vec<Op>, steps: Vec<Step>) -> Program {
        let streams = 1 + ops.iter().map(|o| o.stream).max().unwrap_or(0);
        Program {
            tenant,
            ops,
            streams,
            hosts: vec![(0, steps)],
            visible_sms: 10,
            from_calls: true,
            ..Program::default()
        }
    }

    /// Launches everything at once.
    fn burst(tenant: u32, ops: Vec<Op>) -> Program {
        let steps = (0..ops.len() as u32).map(Step::Launch).collect();
        program(tenant, ops, steps)
    }

    fn layout(seats: Vec<Seat>) -> Layout {
        Layout {
            name: "x".into(),
            instances: vec![10],
            seats,
            slice_ns: 1_000_000,
            switch_ns: 100_000,
            contention: 0.0,
            ragged: 0.0,
            jitter: 0.0,
            seed: 0,
        }
    }

    fn seat(tenant: u32, group: u32, sms: Option<u32>) -> Seat {
        Seat { tenant, instance: 0, group, sms }
    }

    /// Elapsed microseconds of each tenant.
    fn us(programs: &[Program], layout: &Layout) -> Vec<i64> {
        let took = replay(programs, &limits(), layout, &mut |_, _, _| {}, &Unwatched).unwrap();
        took.iter().map(|t| t.elapsed_ns / 1000).collect()
    }

    #[test]
    fn streams_in_order_and_beside_each_other() {
        // |k0 100|k1 100|  stream 0, 40 of 80 blocks each
        // |k2 150...|      stream 1, 40 blocks: all fit
        let p = [burst(0, vec![kernel(0, 100, 40, 8), kernel(0, 100, 40, 8), kernel(1, 150, 40, 8)])];
        assert_eq!(us(&p, &layout(vec![seat(0, 0, None)])), [200]);
        // The legacy default stream in between: k2 waits for k0, k1 for k2.
        let mut p = burst(0, vec![kernel(0, 100, 40, 8), kernel(1, 150, 40, 8), kernel(0, 100, 40, 8)]);
        p.barrier = Some(1);
        assert_eq!(us(&[p], &layout(vec![seat(0, 0, None)])), [350]);
    }

    #[test]
    fn hosts_think_and_wait() {
        // launch, wait for it (100), think 30, launch (100): 230; what it waits for is what counts, not how long.
        let steps = vec![Step::Launch(0), Step::Wait(0), Step::Think(30_000), Step::Launch(1), Step::WaitAll];
        let p = [program(0, vec![kernel(0, 100, 80, 8), kernel(0, 100, 80, 8)], steps)];
        assert_eq!(us(&p, &layout(vec![seat(0, 0, None)])), [230]);
        // Thinking beside its own kernel costs nothing: 20 + 100.
        let steps = vec![Step::Launch(0), Step::Think(20_000), Step::Launch(1)];
        let p = [program(0, vec![kernel(0, 10, 80, 8), kernel(0, 100, 80, 8)], steps)];
        assert_eq!(us(&p, &layout(vec![seat(0, 0, None)])), [120]);
    }

    #[test]
    fn side_by_side_in_turns_and_apart() {
        let both =
            |blocks| [burst(0, vec![kernel(0, 3000, blocks, 8)]), burst(1, vec![kernel(0, 3000, blocks, 8)])];
        let mps = layout(vec![seat(0, 0, None), seat(1, 0, None)]);
        assert_eq!(us(&both(40), &mps), [3000, 3000]);
        assert_eq!(us(&both(80), &mps), [3000, 6000]);
        // Turns of 1000, 100 between them: A 0..1000, 2200..3200, 4400..5400; B 1100..2100, 3300..4300; A lingers
        // 25 without work, B 5525..6525.
        let turns = layout(vec![seat(0, 0, None), seat(1, 1, None)]);
        assert_eq!(us(&both(80), &turns), [5400, 6525]);
        // Halves: caps of 5 SMs take two waves of what fitted in one.
        let capped = layout(vec![seat(0, 0, Some(5)), seat(1, 0, Some(5))]);
        assert_eq!(us(&both(80), &capped), [6000, 6000]);
        let mig = Layout {
            instances: vec![4, 5],
            seats: vec![
                Seat { tenant: 0, instance: 0, group: 0, sms: None },
                Seat { tenant: 1, instance: 1, group: 0, sms: None },
            ],
            ..layout(vec![])
        };
        // 80 blocks on 4 SMs (32 at once): three waves; on 5: two.
        assert_eq!(us(&both(80), &mig), [9000, 6000]);
        // Beside each other at 3/4 of the speed.
        assert_eq!(us(&both(40), &Layout { contention: 1.0 / 3.0, ..mps }), [4000, 4000]);
    }

    #[test]
    fn a_host_goes_on_while_its_context_does_not_hold_the_engine() {
        // A works all the time. B: 100 of work, wait, think 900, again. Alone 1100; in turns its second kernel is
        // launched while A has the engine.
        let a = burst(0, vec![kernel(0, 10_000, 80, 8)]);
        let steps = vec![Step::Launch(0), Step::Wait(0), Step::Think(900_000), Step::Launch(1)];
        let b = program(1, vec![kernel(0, 100, 80, 8), kernel(0, 100, 80, 8)], steps);
        // A 0..1000, B 1100..1200 + 25 of lingering, A 1325..2325, B from 2425 (launched at 2100) to 2525 + 25, A from
        // 2650 with 8000 left.
        let turns = layout(vec![seat(0, 0, None), seat(1, 1, None)]);
        assert_eq!(us(&[a, b], &turns), [10_650, 2525]);
    }

    #[test]
    fn blocks_need_room_on_one_sm() {
        // A: 5 of 8 places on every SM. B's blocks want 32 warps of the 24 that are left on each: it waits although
        // 240 warps are free.
        let a = burst(0, vec![kernel(0, 100, 50, 8)]);
        let b = burst(1, vec![kernel(0, 100, 5, 32)]);
        assert_eq!(us(&[a, b], &layout(vec![seat(0, 0, None), seat(1, 0, None)])), [100, 200]);
    }

    #[test]
    fn copies_have_engines_of_their_own() {
        let copy = |ns| Op { place: Place::Copy(0), work_ns: ns, ..kernel(1, 1, 1, 8) };
        let p = [burst(0, vec![kernel(0, 100, 80, 8), copy(80_000)]), burst(1, vec![copy(80_000)])];
        // Two copies to the device one after the other, beside the kernel.
        assert_eq!(us(&p, &layout(vec![seat(0, 0, None), seat(1, 1, None)])), [100, 160]);
    }

    #[test]
    fn uneven_blocks_take_as_long_as_they_took_alone() {
        for (count, us_alone) in [(40, 100), (80, 100), (130, 300), (1000, 5000)] {
            let p = [burst(0, vec![kernel(0, us_alone, count, 8)])];
            let ragged = Layout { ragged: 0.4, ..layout(vec![seat(0, 0, None)]) };
            let found = us(&p, &ragged);
            assert!((found[0] - us_alone).abs() <= 1 + us_alone / 100, "{count}: {found:?}");
        }
    }

    #[test]
    fn what_takes_long_in_company_is_fitted_to_the_record() {
        // Both were recorded side by side, each half of the device: 40 blocks in one wave, 100 long, alone 100 too. B's
        // 80 blocks got 40 places: recorded 200, alone 100.
        let mut a = burst(0, (0..20).map(|_| kernel(0, 100, 40, 8)).collect());
        let mut b = burst(1, (0..10).map(|_| kernel(0, 200, 80, 8)).collect());
        for p in [&mut a, &mut b] {
            p.ops.iter_mut().for_each(|op| op.company = true);
        }
        b.ops.iter_mut().for_each(|op| op.shape = 1);
        let shapes = vec![crate::programs::ShapeSeen { known: false }; 2];
        let mut made = Programs { programs: vec![a, b], shapes, limits: limits(), ..Programs::default() };
        let capped = layout(vec![seat(0, 0, Some(5)), seat(1, 0, Some(5))]);
        assert_eq!(fit(&mut made, &capped, &Unwatched).unwrap(), None);
        let alone: Vec<i64> = made.programs.iter().map(|p| p.ops[0].work_ns / 1000).collect();
        assert!((alone[0] - 100).abs() <= 4 && (alone[1] - 100).abs() <= 4, "{alone:?}");
    }

    #[test]
    fn nonsense_is_refused_and_it_stops_when_told() {
        let p = [burst(0, vec![kernel(0, 100, 80, 8)])];
        let good = layout(vec![seat(0, 0, None)]);
        for bad in [
            Layout { slice_ns: 0, ..good.clone() },
            Layout { contention: -1.0, ..good.clone() },
            Layout { jitter: 2.0, ..good.clone() },
            Layout { instances: vec![0], ..good.clone() },
            layout(vec![seat(0, 0, Some(0))]),
        ] {
            let made = replay(&p, &limits(), &bad, &mut |_, _, _| {}, &Unwatched);
            assert!(matches!(made, Err(Error::Argument(_))));
        }
        let stop = StopAfter::new(0);
        assert!(matches!(replay(&p, &limits(), &good, &mut |_, _, _| {}, &stop), Err(Error::Cancelled)));
    }
}
