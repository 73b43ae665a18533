//! Simulate programs on a device under a sharing configuration, event by event.
//!
//! `simulate/forecast.rs` states what is modelled and by which rules. A simulation has millions of events and there are
//! many configurations, so three things keep an event cheap:
//!
//! - Each source of events (a host, the launches on their way to the device, a group's next blocks) has one entry in an
//!   [`Agenda`]; an entry that is no longer true is replaced, not kept.
//! - Only operations between launch and end have a state ([`Live`]), and their number is bounded by what a driver
//!   queues: the states stay in the processor's cache however long the program is.
//! - The resources of a launch are worked out once for all equal launches ([`Class`]); of an operation only its time is
//!   its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use crate::base::error::Result;
use crate::base::hardware::{LINGER_NS, QUEUE_DEPTH};
use crate::base::picoseconds::{ps, Ps};
use crate::base::statistics::nearest_rank;
use crate::base::watch::Watch;
use crate::occupancy::theoretical::{Limits, Resources};
use crate::simulate::event_queue::Agenda;
use crate::simulate::host_program::{Host, Pauses, Place, Program, Step};
use crate::simulate::sharing_config::{Assignment, ClientOrder, Demand, SharingConfig};

/// What a tenant took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Took {
    /// Tenant.
    pub tenant: u32,
    /// Which copy of its program.
    pub copy: u32,
    /// First call to last end.
    pub elapsed_ns: i64,
    /// Launch to end, summed over kernels.
    pub latency_ns: i64,
    /// Median of the same.
    pub latency_p50_ns: i64,
    /// 99th percentile of the same.
    pub latency_p99_ns: i64,
    /// Of `latency_ns`, what blocks of other tenants and residency of other groups cost; see [`StreamWaits`].
    pub waits: Waits,
    /// Median and 99th percentile of the time of a unit of work; `None`: no units are known.
    pub unit_ns: Option<(i64, i64)>,
    /// Operations that ended of those recorded.
    pub operations: u64,
}

/// Parts of a time, by what is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// For SMs that blocks of other tenants hold.
    pub queue_other_tenant_ns: i64,
    /// For the group to be resident.
    pub not_resident_ns: i64,
}

/// Runs while something is waited for; its times are of any clock that does not go back.
#[derive(Debug, Clone, Copy, Default)]
struct Stopwatch {
    sum: Ps,
    since: Option<Ps>,
}

impl Stopwatch {
    fn at(&self, time: Ps) -> Ps {
        self.since.map_or(self.sum, |since| self.sum.saturating_add(time.saturating_sub(since)))
    }

    fn run(&mut self, time: Ps, on: bool) {
        (self.sum, self.since) = (self.at(time), on.then_some(time));
    }
}

/// How long the kernel at the head of a stream has waited: those behind it wait for the same.
#[derive(Debug, Clone, Copy, Default)]
struct StreamWaits {
    /// From ready to its first block, by [`Tenant::blocked`].
    sms: Stopwatch,
    /// From ready to its end, by the time for which its group was not resident.
    residency: Stopwatch,
}

/// Who plans an event.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// A host goes on: tenant, host.
    Host(usize, usize),
    /// An operation of a tenant gets to the device.
    Arrivals(usize),
    /// One thing that an operation of a tenant waited for has ended.
    Releases(usize),
    /// The next block of a group ends.
    Blocks(usize),
    /// A slice is over, a lingering context gives up, a switch is done.
    Engine(usize),
    /// A copy ends.
    Copy(usize),
}

/// Where the entries of those begin in the agenda that are planned anew.
#[derive(Debug, Clone, Copy)]
struct Offsets {
    blocks: usize,
    engines: usize,
    copies: usize,
}

/// Not launched yet.
const AHEAD: u32 = u32::MAX;
/// Has ended.
const DONE: u32 = u32::MAX - 1;

/// An operation between its launch and its end.
#[derive(Debug, Default)]
struct Live {
    op: u32,
    class: u32,
    stream: u32,
    waits_for: u32,
    /// Those that wait for it.
    waiters: Vec<u32>,
    launched: Ps,
    /// What the two stopwatches of its stream showed then.
    waited_before: (Ps, Ps),
    ready: Ps,
    /// Time for which its group had been resident when its first block was placed; below 0 before that.
    started: Ps,
    /// The group's own time then.
    begun: Ps,
    /// Time of a block.
    block: Ps,
    unplaced: u64,
    in_flight: u64,
    /// Of uneven blocks: how many end after so many parts of a block, counted round and round.
    ends: [u64; AHEAD_PARTS],
}

/// What all launches alike ask of the SMs that their tenant may use.
#[derive(Debug, Clone, Copy)]
struct Class {
    copy: Option<usize>,
    blocks: u64,
    at_once: u64,
    ask: Resources,
    /// Blocks that find room on an instance with nothing on it.
    alone: u64,
    /// Blocks that it had on the SMs where it was recorded, mean over its time: with these it takes what was measured,
    /// which is a mean as well. While more of its blocks are there it takes more.
    recorded_mean: f64,
    /// Blocks that it had there at most, over that mean.
    recorded_peak: f64,
    /// Part of the device's memory bandwidth that it then takes, where that was measured.
    bandwidth: Option<f64>,
    /// Part of an SM's throughput that a block takes while no other tenant's are there.
    of_an_sm: f64,
    /// That was counted kernel by kernel; otherwise it is what its tenant's kernels take together.
    of_an_sm_counted: bool,
    /// How much longer its blocks take because the SMs that it may use are fewer than where it was recorded, and have
    /// not the throughput for the blocks that find room there.
    slowed: f64,
    /// The kernel's time over a block's time.
    span: Span,
}

#[derive(Debug, Clone, Copy)]
enum Span {
    /// So many waves.
    Waves(Ps),
    /// As long as the work, divided by this.
    Over(f64),
    /// As long as the work, times this.
    Times(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    For(u32),
    All,
    Room,
    /// Another host of the program.
    Host(u32),
}

#[derive(Debug)]
struct HostState<'a> {
    steps: &'a [Step],
    next: usize,
    waiting: Option<Waiting>,
    /// Its place in the agenda.
    source: usize,
}

/// Things that come after a delay, the nearest first. Delays are alike: it is nearly always the order in which they were
/// planned.
#[derive(Debug, Default)]
struct Line {
    source: usize,
    waiting: VecDeque<(Ps, u64, u32)>,
}

impl Line {
    fn push(&mut self, agenda: &mut Agenda, time: Ps, order: u64, what: u32) {
        let before = self.waiting.iter().rposition(|(other, ..)| *other <= time);
        let place = before.map_or(0, |before| before.saturating_add(1));
        if place == 0 {
            agenda.set(self.source, time, order);
        }
        self.waiting.insert(place, (time, order, what));
    }

    fn pop(&mut self, agenda: &mut Agenda) -> Option<u32> {
        let (_, _, what) = self.waiting.pop_front()?;
        match self.waiting.front() {
            Some((time, order, _)) => agenda.set(self.source, *time, *order),
            None => agenda.clear(self.source),
        }
        Some(what)
    }
}

/// What kernels that were not counted take of the throughput of an SM that holds their blocks.
#[derive(Debug, Clone, Copy)]
enum Throughput {
    /// This part, as it was measured of the tenant.
    Measured(f64),
    /// This part of an SM that holds as many of them as fit.
    Assumed(f64),
}

impl Throughput {
    fn of(assignment: &Assignment) -> Self {
        if assignment.sm_throughput > 0.0 {
            Self::Measured(assignment.sm_throughput)
        } else {
            Self::Assumed(assignment.assumed_sm_throughput)
        }
    }

    fn most(self) -> f64 {
        match self {
            Self::Measured(part) | Self::Assumed(part) => part,
        }
    }

    /// Of an SM with so much of the blocks that fit. Few warps cannot keep an SM busy, and the last of many add little:
    /// half of the blocks that fit take two thirds of what all of them take.
    fn of_an_sm(self, filled: f64) -> f64 {
        match self {
            Self::Measured(part) => part,
            Self::Assumed(part) => part * 2.0 * filled.min(1.0) / (1.0 + filled.min(1.0)),
        }
    }
}

struct Tenant<'a> {
    /// Index of the program.
    index: usize,
    copy: u32,
    start_ns: i64,
    bandwidth: f64,
    sm_throughput: Throughput,
    cache: f64,
    /// SMs that it may use.
    sms: u32,
    program: &'a Program,
    classes: Vec<Class>,
    group: usize,
    /// By operation: where its state is, or [`AHEAD`], or [`DONE`].
    ops: Vec<u32>,
    live: Vec<Live>,
    idle: Vec<u32>,
    /// The last operation of each stream.
    last: Vec<Option<u32>>,
    waits: Vec<StreamWaits>,
    /// While the first kernel of its queue has no block on the SMs because of those of other tenants; in the time for which
    /// its group was resident.
    blocked: Stopwatch,
    /// Summed over the kernels that count.
    waited: Waits,
    hosts: Vec<HostState<'a>>,
    /// Hosts that wait for something.
    waiting: usize,
    arrivals: Line,
    releases: Line,
    outstanding: u32,
    /// Kernels in order; only the head has its blocks placed.
    queue: VecDeque<u32>,
    /// What is free of the SMs that its kernels may use.
    free: [i64; 4],
    in_flight: u64,
    /// What its blocks want; `None` since some came or went.
    takes: Option<Takes>,
    first: Ps,
    end: Ps,
    latencies: Vec<i64>,
    /// Of each unit of work: launch of its first operation, end of its last.
    units: Vec<(Ps, Ps)>,
    ended: u64,
    /// When its first host begins, as recorded, and in this pass.
    origin_ns: i64,
    pass_began: Ps,
    /// How often it ran to its end. What it takes is of one time, see [`Tenant::counts`]; later ones keep the others company.
    passes: u32,
}

impl Tenant<'_> {
    /// Whether what it does now counts: the first pass; of a window the second one, which begins as busy as it ends.
    fn counts(&self) -> bool {
        self.passes <= u32::from(self.program.is_window)
    }
}

/// Blocks that end together, in the group's own time: (end, tenant, operation, blocks, its state). Of uneven blocks: after
/// how many parts, see `Live::ends`.
type Cohort = Reverse<(Ps, usize, u32, u64, u32)>;

/// What the blocks of a tenant want: part of the device's memory bandwidth, the throughput of so many SMs; and how many
/// there are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Takes {
    bandwidth: f64,
    sms: f64,
    blocks: u64,
}

/// A kernel with blocks on the SMs.
#[derive(Debug, Clone, Copy)]
struct OnSms {
    tenant: usize,
    slot: u32,
    blocks: u64,
    ask: Resources,
}

/// How the blocks on an instance are spread over its SMs.
///
/// What is free on all SMs together may be too little on each. Blocks go to the SM with most room, so a kernel's
/// are spread evenly: each SM has `q` of them or `q + 1`. The two kernels that take most are spread so, one's
/// surplus where the other has none; of further ones every SM has its part. The more kernels there are, the less
/// even it is: from three on half way to what fits into the sum.
#[derive(Debug, Clone, Copy)]
struct Spread {
    /// So many SMs have so much left: those with one more block of the first kernel, of the second, of both, of neither.
    left: [(u64, [f64; 4]); 4],
    /// What is left on all SMs together; below three kernels it does not matter.
    sum: Option<Resources>,
}

impl Spread {
    fn of(on_sms: &[OnSms], taken: &Resources, per_sm: &Resources, sms: u64) -> Self {
        let size = |k: &OnSms| k.ask[0].saturating_mul(k.blocks);
        let (mut first, mut second): (Option<&OnSms>, Option<&OnSms>) = (None, None);
        let (mut most, mut next) = (0, 0);
        for kernel in on_sms {
            let size = size(kernel);
            if first.is_none() || size > most {
                (first, second) = (Some(kernel), first);
                (most, next) = (size, most);
            } else if second.is_none() || size > next {
                (second, next) = (Some(kernel), size);
            }
        }
        let sms = sms.max(1);
        let of = |n: Option<&OnSms>| {
            n.map_or((0, 0, 0, [0; 4]), |k| (k.blocks, k.blocks / sms, k.blocks % sms, k.ask))
        };
        let (a, b) = (of(first), of(second));
        let both = a.2.saturating_add(b.2).saturating_sub(sms);
        let neither = sms.saturating_add(both).saturating_sub(a.2).saturating_sub(b.2);
        let mut left = [
            (a.2.saturating_sub(both), [0.0; 4]),
            (b.2.saturating_sub(both), [0.0; 4]),
            (both, [0.0; 4]),
            (neither, [0.0; 4]),
        ];
        let [of_a, of_b, of_both, of_neither] = &mut left;
        let lefts = of_a.1.iter_mut().zip(&mut of_b.1).zip(of_both.1.iter_mut().zip(&mut of_neither.1));
        let asks = a.3.iter().zip(&b.3).zip(taken.iter().zip(per_sm));
        for (((with_a, with_b), (with_both, with_neither)), ((ask_a, ask_b), (taken, has))) in lefts.zip(asks)
        {
            let of_two = ask_a.saturating_mul(a.0).saturating_add(ask_b.saturating_mul(b.0));
            let rest = taken.saturating_sub(of_two) as f64 / sms as f64;
            let least = ask_a.saturating_mul(a.1).saturating_add(ask_b.saturating_mul(b.1));
            let after = |more: u64| has.saturating_sub(least.saturating_add(more)) as f64 - rest;
            *with_a = after(*ask_a);
            *with_b = after(*ask_b);
            *with_both = after(ask_a.saturating_add(*ask_b));
            *with_neither = after(0);
        }
        let sum = (on_sms.len() >= 3).then(|| {
            let mut sum = per_sm.map(|has| has.saturating_mul(sms));
            sum.iter_mut().zip(taken).for_each(|(sum, taken)| *sum = sum.saturating_sub(*taken));
            sum
        });
        Self { left, sum }
    }

    /// How many blocks that ask so much find an SM with room.
    fn room(&self, ask: &Resources) -> u64 {
        // What is not asked for limits nothing: comparisons with no number are false, and `min` takes the other value.
        let each = ask.map(|ask| if ask == 0 { f64::NAN } else { ask as f64 });
        let mut even = 0_u64;
        for (count, left) in self.left.iter().filter(|(count, _)| *count > 0) {
            // Divisions cost more than all the rest.
            if left.iter().zip(&each).any(|(left, ask)| left < ask) {
                continue;
            }
            let fits = left.iter().zip(&each).fold(f64::INFINITY, |fits, (left, ask)| fits.min(left / ask));
            even = even.saturating_add(count.saturating_mul(fits as u64));
        }
        let Some(sum) = &self.sum else { return even };
        even.saturating_add(fits(ask, sum).max(even)) / 2
    }
}

/// Contexts that hold an engine together. Its time stands still while another group holds it.
struct Group {
    instance: usize,
    tenants: Vec<usize>,
    /// The first kernels of all queues: who has waited longest comes first.
    heads: Vec<Head>,
    on_sms: Vec<OnSms>,
    /// What those take together.
    taken: Resources,
    /// How they are spread, and what room they leave; `None` since blocks came or went.
    spread: Option<Spread>,
    rooms: Vec<(Resources, u64)>,
    cohorts: BinaryHeap<Cohort>,
    running: bool,
    /// Its own time at `since`.
    local: Ps,
    since: Ps,
    /// Time for which it had been resident at `since`.
    held: Ps,
    /// Since when it has had no work; `None` while it has some.
    idle_since: Option<Ps>,
    rate: f64,
    /// Caps leave room for everybody: nobody disturbs anybody.
    disjoint: bool,
    /// Nobody is capped, and the order is [`ClientOrder::OneLine`].
    one_line: bool,
    /// Part of the device's memory bandwidth that its instance has.
    bandwidth: f64,
    /// What some of its tenants take of memory bandwidth or SMs is known.
    demands: bool,
}

impl Group {
    fn held(&self, now: Ps) -> Ps {
        let passed = if self.running { now.saturating_sub(self.since) } else { 0 };
        self.held.saturating_add(passed)
    }

    /// So many blocks have come or gone.
    fn changed(&mut self, ask: &Resources, count: u64, with: fn(u64, u64) -> u64) {
        for (taken, ask) in self.taken.iter_mut().zip(ask) {
            *taken = with(*taken, ask.saturating_mul(count));
        }
        self.spread = None;
        self.rooms.clear();
    }
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
    slice_end: Ps,
    /// The end of the slice has been set: somebody waits for it.
    armed: bool,
    /// How often a holder that was alone was asked for the engine.
    asked: u32,
}

/// A kernel whose blocks are to be placed: since when it waits, its tenant, its state.
type Head = (Ps, usize, u32);

struct Sim<'a> {
    config: &'a SharingConfig,
    /// Where blocks of a kernel take unequally long.
    lengths: Option<Lengths>,
    /// A group has [`MANY_TENANTS`] or more.
    many_tenants: bool,
    per_sm: Resources,
    now: Ps,
    seq: u64,
    agenda: Agenda,
    sources: Vec<Source>,
    offsets: Offsets,
    tenants: Vec<Tenant<'a>>,
    groups: Vec<Group>,
    instances: Vec<Instance>,
    copies: [VecDeque<(usize, u32)>; 3],
    copying: [Option<(usize, u32)>; 3],
    see: &'a mut dyn FnMut(usize, u32, i64),
    /// Tenants that have not run to their end yet.
    first_passes: usize,
    /// Operations that ended in later passes.
    again: u64,
    // Kept for their memory.
    done: Vec<(usize, u32)>,
}

/// Runs programs in a config, and says of every kernel (index of its program, operation) for how long its group held the
/// engine from its first block to its last.
///
/// # Errors
/// [`crate::base::error::Error::Argument`] for a config that makes no sense, [`crate::base::error::Error::Cancelled`].
pub(crate) fn simulate(
    programs: &[Program],
    limits: &Limits,
    config: &SharingConfig,
    see: &mut dyn FnMut(usize, u32, i64),
    watch: &dyn Watch,
) -> Result<Vec<Took>> {
    config.check()?;
    let mut sim = Sim::new(programs, limits, config, see);
    sim.begin();
    let mut steps = 0_u64;
    let total: u64 = sim.tenants.iter().map(|t| t.program.ops.len() as u64).sum();
    let most_again = total.saturating_mul(MOST_PASSES);
    while let Some((time, source)) = sim.agenda.next() {
        if sim.first_passes == 0 || sim.again > most_again {
            break;
        }
        if steps.is_multiple_of(16_384) {
            let done = sim.tenants.iter().map(|t| t.ended).sum();
            watch.progress("replay", done, total)?;
        }
        steps = steps.wrapping_add(1);
        sim.now = time;
        sim.step(source);
    }
    Ok(sim.took())
}

/// Programs that go on are begun again until all have run once, for no more operations than so many times those of all
/// programs: what a tenant that is slowed more than that had not done by then takes as long as what it had.
const MOST_PASSES: u64 = 4;

/// Where block times differ they do so by whole parts of their mean, counted from the kernel's begin. What ends at about
/// the same time then ends at the same time: a kernel's blocks would otherwise fall out of step until each is an event
/// of its own.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    /// Parts of a mean block time.
    parts: u64,
    /// How many of them a quarter of the blocks each take that start together.
    quarters: [u64; 4],
}

/// Parts of a block time beside no more than one other tenant, and beside more. Events grow with the square of the tenants;
/// half as many parts change elapsed times by less than another seed does.
const PARTS: (u64, u64) = (8, 4);
/// More parts than any block takes, with one to spare for rounding.
const AHEAD_PARTS: usize = 16;
/// Beside more than one other tenant no fewer blocks of a kernel are placed at once than this part of those that it has
/// left: a kernel that goes on bit by bit costs an event for each.
const LEAST_PART: u64 = 64;
/// Tenants of a group from which on it is simulated less finely.
const MANY_TENANTS: usize = 3;

/// Of blocks whose times lie within `block_imbalance` of their mean: the middles of four equal parts of the spread.
fn lengths(block_imbalance: f64, many_tenants: bool) -> Lengths {
    let parts = if many_tenants { PARTS.1 } else { PARTS.0 };
    let from_mean = |part: f64| (block_imbalance * part * parts as f64).round() as u64;
    let (near, far) = (from_mean(0.25), from_mean(0.75));
    let quarters = [
        parts.saturating_sub(far).max(1),
        parts.saturating_sub(near).max(1),
        parts.saturating_add(near),
        parts.saturating_add(far),
    ];
    Lengths { parts, quarters }
}

/// Blocks that start together, and how many parts they take.
fn parts(count: u64, lengths: Lengths) -> impl Iterator<Item = (u64, u64)> {
    (0..).zip(lengths.quarters).filter_map(move |(i, length)| {
        // Less than four are average ones.
        if count < 4 {
            return (i == 0 && count > 0).then_some((count, lengths.parts));
        }
        let blocks = count.saturating_mul(i + 1) / 4 - count.saturating_mul(i) / 4;
        (blocks > 0).then_some((blocks, length))
    })
}

/// Time of a kernel of uneven blocks alone, in mean block times.
fn makespan(count: u64, at_once: u64, lengths: Lengths) -> f64 {
    // So many waves are all alike.
    let waves = count / at_once.max(1);
    let skipped = waves.saturating_sub(16);
    let mut left = count.saturating_sub(skipped.saturating_mul(at_once));
    let mut ends: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let (mut now, mut room) = (0_u64, at_once.max(1));
    loop {
        let blocks = left.min(room);
        for (blocks, length) in parts(blocks, lengths) {
            ends.push(Reverse((now.saturating_add(length), blocks)));
        }
        (left, room) = (left - blocks, room - blocks);
        let Some(Reverse((end, blocks))) = ends.pop() else { break };
        (now, room) = (end, room.saturating_add(blocks));
        while let Some(Reverse((_, more))) = ends.peek().copied().filter(|Reverse((e, _))| *e == end) {
            ends.pop();
            room = room.saturating_add(more);
        }
    }
    (now as f64 / lengths.parts as f64 + skipped as f64).max(1.0)
}

/// Added to the seed for times between calls, so that they do not vary as the operations of the same number do.
const THOUGHTS: u64 = 0x5bd1_e995;

/// Whether pauses of a program end when they were recorded to end.
fn at_moments(pauses: Pauses, config: &SharingConfig) -> bool {
    match pauses {
        Pauses::AsLong => false,
        Pauses::Unknown => config.anchored,
        Pauses::Moments => true,
    }
}

/// Added to the seed for the slices of whoever was alone.
const SLICES: u64 = 0x2545_f491;

/// Added to the seed, so that no pass varies as another one does.
fn of_pass(passes: u32) -> u64 {
    u64::from(passes) << 32
}

/// A number between -1 and 1 for an operation of a copy, the same in every run.
fn spread(seed: u64, tenant: u32, copy: u32, op: u32) -> f64 {
    // splitmix64
    let mut x = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(copy).wrapping_mul(0xd1b5_4a32_d192_ed03))
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

/// What the classes of a program ask in a config: on so many SMs of an instance of so many, with kernels that take
/// so much of the SMs that hold their blocks, if they were not counted.
fn classes(
    program: &Program,
    per_sm: Resources,
    sms: u32,
    whole: u32,
    lengths: Option<Lengths>,
    sm_throughput: Throughput,
    crowding: f64,
) -> Vec<Class> {
    let mut makespans: HashMap<(u64, u64), f64> = HashMap::new();
    let room = per_sm.map(|has| has.saturating_mul(u64::from(sms)));
    let alone = |ask: &Resources| u64::from(whole).saturating_mul(fits(ask, &per_sm));
    let visible = f64::from(program.visible_sms.max(1));
    // Solo no SM is asked for more than it has: what that costs is in the recorded time.
    let of_an_sm = |most: f64, mean: f64, counted: Option<f64>, room_for: u64| {
        let on_device = counted.map(|part| part * visible / mean);
        // Samples of SMs that hold blocks are no mean over those that hold none any more.
        let each = on_device.unwrap_or_else(|| {
            let on_each = (most / visible).max(1.0);
            sm_throughput.of_an_sm(on_each / room_for.max(1) as f64) / on_each
        });
        each.min(1.0 / (most / visible).ceil().max(1.0))
    };
    let mut of = |place: &Place, demand: Demand| match *place {
        Place::Copy(engine) => Class {
            copy: Some(engine),
            blocks: 1,
            at_once: 1,
            ask: [0; 4],
            alone: 0,
            recorded_mean: 1.0,
            recorded_peak: 1.0,
            bandwidth: demand.bandwidth,
            of_an_sm: 0.0,
            of_an_sm_counted: false,
            slowed: 1.0,
            span: Span::Waves(1),
        },
        Place::Device => {
            // With fewer SMs than it was seen on it takes longer in proportion: nothing better is known.
            let more = f64::from(program.visible_sms.max(sms)) / f64::from(sms.max(1));
            let (ask, span) = (room, Span::Times(more));
            Class {
                copy: None,
                blocks: 1,
                at_once: 1,
                ask,
                alone: alone(&ask),
                recorded_mean: 1.0,
                recorded_peak: 1.0,
                bandwidth: demand.bandwidth,
                of_an_sm: 0.0,
                of_an_sm_counted: false,
                slowed: 1.0,
                span,
            }
        }
        Place::Sms { count, per_sm, ask } => {
            let at_once = per_sm.saturating_mul(u64::from(sms)).min(fits(&ask, &room)).max(1);
            let then = per_sm.saturating_mul(u64::from(program.visible_sms.max(1))).max(1);
            let (span, block_times) = match lengths {
                Some(of) => {
                    let times = *makespans.entry((count, then)).or_insert_with(|| makespan(count, then, of));
                    (Span::Over(times), times)
                }
                None => {
                    let waves = count.div_ceil(then).max(1);
                    (Span::Waves(Ps::try_from(waves).unwrap_or(Ps::MAX)), waves as f64)
                }
            };
            let recorded_most = count.min(then).max(1) as f64;
            let recorded_mean = count.max(1) as f64 / block_times;
            let each = of_an_sm(recorded_most, recorded_mean, demand.sm_throughput, per_sm);
            let slowed = (each * on_busiest(count.min(at_once), sms, crowding)).max(1.0);
            let of_an_sm = each / slowed;
            Class {
                copy: None,
                blocks: count.max(1),
                at_once,
                ask,
                alone: alone(&ask),
                recorded_mean,
                recorded_peak: recorded_most / recorded_mean,
                bandwidth: demand.bandwidth,
                of_an_sm,
                of_an_sm_counted: demand.sm_throughput.is_some(),
                slowed,
                span,
            }
        }
    };
    let known = program.demands.iter().copied().chain(std::iter::repeat(Demand::default()));
    program.places.iter().zip(known).map(|(place, demand)| of(place, demand)).collect()
}

/// How many of so many blocks are on the SM that sets the pace: they are spread evenly, but for the last ones.
fn on_busiest(blocks: u64, sms: u32, crowding: f64) -> f64 {
    let even = blocks as f64 / f64::from(sms.max(1));
    crowding.mul_add(even.ceil() - even, even)
}

impl<'a> Sim<'a> {
    fn new(
        programs: &'a [Program],
        limits: &Limits,
        config: &'a SharingConfig,
        see: &'a mut dyn FnMut(usize, u32, i64),
    ) -> Self {
        let per_sm = limits.resources();
        let mut sizes: BTreeMap<(usize, u32), usize> = BTreeMap::new();
        for one in &config.assignments {
            let size = sizes.entry((one.instance, one.group)).or_default();
            *size = size.saturating_add(1);
        }
        let many_tenants = sizes.values().any(|size| *size >= MANY_TENANTS);
        let lengths = (config.block_imbalance > 0.0).then(|| lengths(config.block_imbalance, many_tenants));
        let of = |sms: u32| {
            per_sm.map(|has| i64::try_from(has.saturating_mul(u64::from(sms)).max(1)).unwrap_or(i64::MAX))
        };
        let mut instances: Vec<Instance> = config
            .instances
            .iter()
            .map(|_| Instance {
                groups: Vec::new(),
                turn: 0,
                doing: Doing::Idle,
                slice_end: 0,
                armed: false,
                asked: 0,
            })
            .collect();
        let mut groups: Vec<Group> = Vec::new();
        let mut asked: Vec<u32> = Vec::new();
        let mut numbers: BTreeMap<(usize, u32), usize> = BTreeMap::new();
        let mut tenants: Vec<Tenant<'a>> = Vec::new();
        let mut sources = Vec::new();
        for assignment in &config.assignments {
            let found = programs.iter().enumerate().find(|(_, p)| p.tenant == assignment.tenant);
            let Some((index, program)) = found else { continue };
            let whole = config.instances.get(assignment.instance).copied().unwrap_or(0);
            let sms = assignment.sms.unwrap_or(whole).min(whole).max(1);
            let group = *numbers.entry((assignment.instance, assignment.group)).or_insert_with(|| {
                asked.push(0);
                groups.push(Group {
                    instance: assignment.instance,
                    tenants: Vec::new(),
                    heads: Vec::new(),
                    on_sms: Vec::new(),
                    taken: [0; 4],
                    spread: None,
                    rooms: Vec::new(),
                    cohorts: BinaryHeap::new(),
                    running: false,
                    local: 0,
                    since: 0,
                    held: 0,
                    idle_since: Some(0),
                    rate: 1.0,
                    disjoint: false,
                    one_line: config.client_order.unwrap_or_default() == ClientOrder::OneLine,
                    bandwidth: config.bandwidths.get(assignment.instance).copied().unwrap_or(1.0),
                    demands: false,
                });
                if let Some(instance) = instances.get_mut(assignment.instance) {
                    instance.groups.push(groups.len().saturating_sub(1));
                }
                groups.len().saturating_sub(1)
            });
            if let Some((group, asked)) = groups.get_mut(group).zip(asked.get_mut(group)) {
                group.tenants.push(tenants.len());
                *asked = asked.saturating_add(sms);
                group.disjoint = *asked <= whole;
                group.one_line &= sms == whole;
                group.demands |= assignment.bandwidth > 0.0
                    || Throughput::of(assignment).most() > 0.0
                    || program.demands.iter().any(|demand| *demand != Demand::default());
            }
            let tenant = tenants.len();
            let host = |(n, host): (usize, &'a Host)| {
                sources.push(Source::Host(tenant, n));
                HostState {
                    steps: &host.steps,
                    next: 0,
                    waiting: None,
                    source: sources.len().saturating_sub(1),
                }
            };
            let hosts = program.hosts.iter().enumerate().map(host).collect();
            tenants.push(Tenant {
                index,
                copy: assignment.copy,
                start_ns: assignment.start_ns,
                bandwidth: assignment.bandwidth,
                sm_throughput: Throughput::of(assignment),
                cache: assignment.cache,
                sms,
                program,
                classes: classes(
                    program,
                    per_sm,
                    sms,
                    whole,
                    lengths,
                    Throughput::of(assignment),
                    config.crowding,
                ),
                group,
                ops: vec![AHEAD; program.ops.len()],
                live: Vec::new(),
                idle: Vec::new(),
                last: vec![None; program.streams as usize],
                waits: vec![StreamWaits::default(); program.streams as usize],
                blocked: Stopwatch::default(),
                waited: Waits::default(),
                hosts,
                waiting: 0,
                arrivals: Line::default(),
                releases: Line::default(),
                outstanding: 0,
                queue: VecDeque::new(),
                free: of(sms),
                in_flight: 0,
                takes: None,
                first: Ps::MAX,
                end: 0,
                latencies: Vec::with_capacity(program.ops.len()),
                units: vec![(Ps::MAX, 0); program.units_lead_ns.len()],
                ended: 0,
                origin_ns: program.hosts.iter().filter_map(|host| host.begin_ns).min().unwrap_or(0),
                pass_began: 0,
                passes: 0,
            });
        }
        let arrivals = sources.len();
        sources.extend((0..tenants.len()).map(Source::Arrivals));
        let releases = sources.len();
        sources.extend((0..tenants.len()).map(Source::Releases));
        let blocks = sources.len();
        sources.extend((0..groups.len()).map(Source::Blocks));
        let engines = sources.len();
        sources.extend((0..instances.len()).map(Source::Engine));
        let copies = sources.len();
        sources.extend((0..3).map(Source::Copy));
        for (n, tenant) in tenants.iter_mut().enumerate() {
            tenant.arrivals.source = arrivals.saturating_add(n);
            tenant.releases.source = releases.saturating_add(n);
        }
        Self {
            config,
            lengths,
            many_tenants,
            per_sm,
            now: 0,
            seq: 0,
            agenda: Agenda::new(sources.len()),
            sources,
            offsets: Offsets { blocks, engines, copies },
            tenants,
            groups,
            instances,
            copies: [const { VecDeque::new() }; 3],
            copying: [None; 3],
            see,
            first_passes: 0,
            again: 0,
            done: Vec::new(),
        }
    }

    /// Plans a source's nearest event.
    fn at(&mut self, source: usize, time: Ps) {
        self.seq = self.seq.wrapping_add(1);
        self.agenda.set(source, time.max(self.now), self.seq);
    }

    fn begin(&mut self) {
        let begins = self.tenants.iter().flat_map(|t| t.program.hosts.iter().filter_map(|h| h.begin_ns));
        let origin_ns = begins.min().unwrap_or(0);
        for t in 0..self.tenants.len() {
            let Some(tenant) = self.tenants.get_mut(t) else { continue };
            let begins = tenant.program.hosts.iter().zip(&tenant.hosts).filter_map(|(host, state)| {
                let begin_ns = host.begin_ns?.saturating_sub(origin_ns).saturating_add(tenant.start_ns);
                Some((span(begin_ns), state.source))
            });
            let begins: Vec<(Ps, usize)> = begins.collect();
            tenant.first = begins.iter().map(|begin| begin.0).min().unwrap_or(Ps::MAX);
            tenant.pass_began = tenant.first;
            self.first_passes = self.first_passes.saturating_add(usize::from(!begins.is_empty()));
            for (begin, source) in begins {
                self.at(source, begin);
            }
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

    fn step(&mut self, source: usize) {
        let Some(what) = self.sources.get(source).copied() else { return };
        match what {
            Source::Host(tenant, host) => {
                self.agenda.clear(source);
                self.host(tenant, host);
            }
            Source::Arrivals(tenant) => {
                let Some(t) = self.tenants.get_mut(tenant) else { return };
                if let Some(slot) = t.arrivals.pop(&mut self.agenda) {
                    self.arrive(tenant, slot);
                }
            }
            Source::Releases(tenant) => {
                let Some(t) = self.tenants.get_mut(tenant) else { return };
                let slot = t.releases.pop(&mut self.agenda);
                let state = slot.and_then(|slot| Some((slot, t.live.get_mut(slot as usize)?)));
                let Some((slot, state)) = state else { return };
                state.waits_for = state.waits_for.saturating_sub(1);
                let (waits, group) = (state.waits_for > 0, t.group);
                if !waits {
                    self.ready(tenant, slot);
                }
                // What was on its way to the device counted as work of its group: a copy, or what waits for more, is none.
                self.look(group);
            }
            Source::Blocks(group) => {
                self.agenda.clear(source);
                self.blocks_end(group);
            }
            Source::Engine(instance) => {
                self.agenda.clear(source);
                self.engine(instance);
            }
            Source::Copy(engine) => {
                self.agenda.clear(source);
                let done = self.copying.get_mut(engine).and_then(Option::take);
                if let Some((tenant, slot)) = done {
                    self.ended(tenant, slot);
                }
                self.copy(engine);
                // A kernel that waited for it asks for the engine now, though it starts later.
                if let Some(group) = done.and_then(|(tenant, _)| Some(self.tenants.get(tenant)?.group)) {
                    self.look(group);
                }
            }
        }
    }

    // -- hosts ------------------------------------------------------------------------------------------

    fn host(&mut self, tenant: usize, host: usize) {
        let now = self.now;
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        let (submit, counts) = (span(t.program.submit_ns), t.counts());
        let Some(mut state) = t.hosts.get_mut(host) else { return };
        while let Some(step) = state.steps.get(state.next).copied() {
            match step {
                Step::Pause { end_ns, .. } if at_moments(t.program.pauses, self.config) => {
                    state.next = state.next.saturating_add(1);
                    let moment = t.pass_began.saturating_add(span(end_ns.saturating_sub(t.origin_ns)));
                    let source = state.source;
                    self.at(source, moment);
                    return;
                }
                Step::Think(ns) | Step::Pause { ns, .. } => {
                    let mut think = span(ns);
                    if self.config.jitter > 0.0 {
                        let seed = self.config.seed.wrapping_add(THOUGHTS).wrapping_add(of_pass(t.passes));
                        let number = u32::try_from(state.next).unwrap_or(u32::MAX);
                        let drawn = spread(seed, t.program.tenant, t.copy, number);
                        think = (think as f64 * self.config.jitter.mul_add(drawn, 1.0)) as Ps;
                    }
                    state.next = state.next.saturating_add(1);
                    let (source, time) = (state.source, self.now.saturating_add(think));
                    self.at(source, time);
                    return;
                }
                Step::Launch(op) => {
                    if t.outstanding >= QUEUE_DEPTH {
                        state.waiting = Some(Waiting::Room);
                        t.waiting = t.waiting.saturating_add(1);
                        return;
                    }
                    state.next = state.next.saturating_add(1);
                    let (class, unit, stream) = t
                        .program
                        .ops
                        .get(op as usize)
                        .map_or((0, u32::MAX, 0), |o| (o.class, o.unit, o.stream));
                    let Some(place) = t.ops.get_mut(op as usize).filter(|place| **place == AHEAD) else {
                        continue;
                    };
                    let slot = t.idle.pop().unwrap_or_else(|| {
                        t.live.push(Live::default());
                        u32::try_from(t.live.len().saturating_sub(1)).unwrap_or(DONE)
                    });
                    *place = slot;
                    if let Some(unit) = t.units.get_mut(unit as usize).filter(|_| counts) {
                        unit.0 = unit.0.min(self.now);
                    }
                    if let Some(live) = t.live.get_mut(slot as usize) {
                        let waiters = std::mem::take(&mut live.waiters);
                        let held = self.groups.get(t.group).map_or(0, |g| g.held(now));
                        let waited_before = t.waits.get(stream as usize).map_or((0, 0), |waits| {
                            (waits.sms.at(t.blocked.at(held)), waits.residency.at(now.saturating_sub(held)))
                        });
                        *live = Live {
                            op,
                            class,
                            stream,
                            waiters,
                            launched: now,
                            waited_before,
                            ..Live::default()
                        };
                    }
                    t.outstanding = t.outstanding.saturating_add(1);
                    self.seq = self.seq.wrapping_add(1);
                    let time = self.now.saturating_add(submit);
                    t.arrivals.push(&mut self.agenda, time, self.seq, slot);
                }
                Step::Wait(op) => {
                    if t.ops.get(op as usize).is_some_and(|place| *place != DONE) {
                        state.waiting = Some(Waiting::For(op));
                        t.waiting = t.waiting.saturating_add(1);
                        return;
                    }
                    state.next = state.next.saturating_add(1);
                }
                Step::WaitAll => {
                    if t.outstanding > 0 {
                        state.waiting = Some(Waiting::All);
                        t.waiting = t.waiting.saturating_add(1);
                        return;
                    }
                    state.next = state.next.saturating_add(1);
                }
                Step::Start(other) => {
                    state.next = state.next.saturating_add(1);
                    let sources = [Some(state.source), t.hosts.get(other as usize).map(|h| h.source)];
                    for source in sources.into_iter().flatten() {
                        self.at(source, self.now);
                    }
                    return;
                }
                Step::Join(other) => {
                    let over = |h: &HostState<'_>| h.next >= h.steps.len();
                    if t.hosts.get(other as usize).is_some_and(|h| !over(h)) {
                        if let Some(state) = t.hosts.get_mut(host) {
                            state.waiting = Some(Waiting::Host(other));
                        }
                        t.waiting = t.waiting.saturating_add(1);
                        return;
                    }
                    let Some(again) = t.hosts.get_mut(host) else { return };
                    state = again;
                    state.next = state.next.saturating_add(1);
                }
            }
        }
        self.host_ended(tenant, host);
    }

    /// Lets hosts go on that wait for the end of this one.
    fn host_ended(&mut self, tenant: usize, host: usize) {
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        if t.waiting == 0 {
            self.begin_again(tenant);
            return;
        }
        let ended = u32::try_from(host).ok().map(Waiting::Host);
        for state in t.hosts.iter_mut().filter(|h| h.waiting.is_some() && h.waiting == ended) {
            state.waiting = None;
            t.waiting = t.waiting.saturating_sub(1);
            self.seq = self.seq.wrapping_add(1);
            self.agenda.set(state.source, self.now, self.seq);
        }
    }

    /// Begins a program that goes on once more, if all of it is over.
    fn begin_again(&mut self, tenant: usize) {
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        if t.outstanding > 0 || t.hosts.iter().any(|h| h.next < h.steps.len()) {
            return;
        }
        let window = t.program.is_window;
        if t.passes == u32::from(window) {
            self.first_passes = self.first_passes.saturating_sub(1);
            // What is left of a window belongs to it: on a busy device work goes on meanwhile.
            t.end = if window { self.now } else { t.end };
        }
        t.passes = t.passes.saturating_add(1);
        if window && t.passes == 1 {
            (t.first, t.end, t.ended) = (self.now, 0, 0);
            t.latencies.clear();
            t.waited = Waits::default();
            t.units.fill((Ps::MAX, 0));
        }
        if !t.program.goes_on || t.program.ops.is_empty() {
            return;
        }
        t.ops.fill(AHEAD);
        t.last.fill(None);
        t.pass_began = self.now;
        for (host, state) in t.program.hosts.iter().zip(&mut t.hosts) {
            state.next = 0;
            if let Some(begin_ns) = host.begin_ns {
                self.seq = self.seq.wrapping_add(1);
                let time = self.now.saturating_add(span(begin_ns.saturating_sub(t.origin_ns)));
                self.agenda.set(state.source, time, self.seq);
            }
        }
    }

    fn ended(&mut self, tenant: usize, slot: u32) {
        let now = self.now;
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        t.outstanding = t.outstanding.saturating_sub(1);
        let counts = t.counts();
        if counts {
            t.ended = t.ended.saturating_add(1);
            t.end = t.end.max(now);
        } else {
            self.again = self.again.saturating_add(1);
        }
        let Some(live) = t.live.get_mut(slot as usize) else { return };
        let op = live.op;
        let copy = t.classes.get(live.class as usize).is_some_and(|c| c.copy.is_some());
        if let Some(waits) = t.waits.get_mut(live.stream as usize).filter(|_| !copy) {
            let held = self.groups.get(t.group).map_or(0, |g| g.held(now));
            waits.residency.run(now.saturating_sub(held), false);
            if counts {
                t.latencies.push(now.saturating_sub(live.launched) / 1000);
                let sms = waits.sms.sum.saturating_sub(live.waited_before.0) / 1000;
                let residency = waits.residency.sum.saturating_sub(live.waited_before.1) / 1000;
                let all = &mut t.waited;
                all.queue_other_tenant_ns = all.queue_other_tenant_ns.saturating_add(sms);
                all.not_resident_ns = all.not_resident_ns.saturating_add(residency);
            }
        }
        let unit = t.program.ops.get(op as usize).map_or(u32::MAX, |o| o.unit);
        if let Some(unit) = t.units.get_mut(unit as usize).filter(|_| counts) {
            unit.1 = unit.1.max(now);
        }
        let mut waiters = std::mem::take(&mut live.waiters);
        for waiter in waiters.drain(..) {
            let class = t.live.get(waiter as usize).and_then(|l| t.classes.get(l.class as usize));
            let copy = class.is_some_and(|class| class.copy.is_some());
            let after = if copy { t.program.copy_release_ns } else { t.program.release_ns };
            self.seq = self.seq.wrapping_add(1);
            t.releases.push(&mut self.agenda, now.saturating_add(span(after)), self.seq, waiter);
        }
        // For the next operation in its place.
        if let Some(live) = t.live.get_mut(slot as usize) {
            live.waiters = waiters;
        }
        if let Some(place) = t.ops.get_mut(op as usize) {
            *place = DONE;
        }
        t.idle.push(slot);
        if t.waiting == 0 {
            self.begin_again(tenant);
            return;
        }
        for state in &mut t.hosts {
            let over = match state.waiting {
                Some(Waiting::For(wanted)) => wanted == op,
                Some(Waiting::All) => t.outstanding == 0,
                Some(Waiting::Room) => t.outstanding < QUEUE_DEPTH.saturating_sub(64),
                Some(Waiting::Host(_)) | None => false,
            };
            if over {
                state.waiting = None;
                t.waiting = t.waiting.saturating_sub(1);
                self.seq = self.seq.wrapping_add(1);
                self.agenda.set(state.source, now, self.seq);
            }
        }
    }

    // -- streams ----------------------------------------------------------------------------------------

    fn arrive(&mut self, tenant: usize, slot: u32) {
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        let Tenant { program, ops, live, last, .. } = t;
        let Some(op) = live.get(slot as usize).map(|l| l.op) else { return };
        let Some(stream) = program.ops.get(op as usize).map(|o| o.stream) else { return };
        let mut waits = 0_u32;
        let mut behind = |other: Option<u32>| {
            let place = other.and_then(|other| ops.get(other as usize)).filter(|place| **place < DONE);
            if let Some(before) = place.and_then(|place| live.get_mut(*place as usize)) {
                before.waiters.push(slot);
                waits = waits.saturating_add(1);
            }
        };
        let of = |stream: u32| last.get(stream as usize).copied().flatten();
        match program.barrier {
            Some(barrier) if stream == barrier => last.iter().for_each(|other| behind(*other)),
            Some(barrier) => {
                behind(of(stream));
                behind(of(barrier));
            }
            None => behind(of(stream)),
        }
        if let Some(last) = last.get_mut(stream as usize) {
            *last = Some(op);
        }
        if let Some(l) = live.get_mut(slot as usize) {
            l.waits_for = waits;
        }
        if waits == 0 {
            self.ready(tenant, slot);
        }
    }

    fn ready(&mut self, tenant: usize, slot: u32) {
        let now = self.now;
        let Some(t) = self.tenants.get_mut(tenant) else { return };
        let Some(live) = t.live.get_mut(slot as usize) else { return };
        let Some(class) = t.classes.get(live.class as usize) else { return };
        if let Some(engine) = class.copy {
            if let Some(queue) = self.copies.get_mut(engine) {
                queue.push_back((tenant, slot));
            }
            self.copy(engine);
            return;
        }
        let mut work = ps(t.program.ops.get(live.op as usize).map_or(1, |o| o.work_ns.max(1)));
        if self.config.jitter > 0.0 {
            let seed = self.config.seed.wrapping_add(of_pass(t.passes));
            let drawn = spread(seed, t.program.tenant, t.copy, live.op);
            work = (work as f64 * self.config.jitter.mul_add(drawn, 1.0)) as Ps;
        }
        live.block = match class.span {
            Span::Waves(1) => work.max(1),
            Span::Waves(waves) => (work / waves).max(1),
            Span::Over(span) => ((work as f64 / span) as Ps).max(1),
            Span::Times(more) => (work as f64 * more) as Ps,
        };
        if class.slowed > 1.0 {
            live.block = (live.block as f64 * class.slowed) as Ps;
        }
        (live.ready, live.unplaced, live.started) = (now, class.blocks, -1);
        if let Some(waits) = t.waits.get_mut(live.stream as usize) {
            let held = self.groups.get(t.group).map_or(0, |g| g.held(now));
            waits.sms.run(t.blocked.at(held), true);
            waits.residency.run(now.saturating_sub(held), true);
        }
        let group = t.group;
        t.queue.push_back(slot);
        // Behind another kernel of its own nothing changes, and who found no room before finds none now.
        if t.queue.len() == 1 {
            let Some(g) = self.groups.get_mut(group) else { return };
            g.heads.push((now, tenant, slot));
            let newest = g.heads.len().saturating_sub(1);
            if g.one_line && newest > 0 {
                let held = g.held(now);
                self.wait_in_line(tenant, held);
            } else if g.running {
                self.dispatch(group, newest);
            }
        }
        self.look(group);
    }

    fn copy(&mut self, engine: usize) {
        let busy = self.copying.get(engine).is_none_or(Option::is_some);
        if busy {
            return;
        }
        let Some((tenant, slot)) = self.copies.get_mut(engine).and_then(VecDeque::pop_front) else { return };
        let t = self.tenants.get(tenant);
        let op = t.and_then(|t| t.program.ops.get(t.live.get(slot as usize)?.op as usize));
        let work = op.map_or(0, |o| o.work_ns);
        if let Some(place) = self.copying.get_mut(engine) {
            *place = Some((tenant, slot));
        }
        let end = self.now.saturating_add(span(work));
        self.at(self.offsets.copies.saturating_add(engine), end);
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
        let own = if g.rate != 1.0 { (passed as f64 * g.rate) as Ps } else { passed };
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

    /// For how long a group has been resident.
    fn held(&self, group: usize) -> Ps {
        self.groups.get(group).map_or(0, |g| g.held(self.now))
    }

    fn start(&mut self, group: usize) {
        let now = self.now;
        if let Some(g) = self.groups.get_mut(group) {
            (g.running, g.since) = (true, now);
        }
        self.dispatch(group, 0);
    }

    fn stop(&mut self, group: usize) {
        self.settle(group);
        if let Some(g) = self.groups.get_mut(group) {
            g.running = false;
        }
        self.agenda.clear(self.offsets.blocks.saturating_add(group));
    }

    fn has_work(&self, group: usize) -> bool {
        self.groups.get(group).is_some_and(|g| {
            !g.cohorts.is_empty()
                // What the end of an operation released is there already: only the next launch of a host is not.
                || g.tenants.iter().any(|t| {
                    self.tenants.get(*t).is_some_and(|t| !t.queue.is_empty() || !t.releases.waiting.is_empty())
                })
        })
    }

    /// How many blocks that ask so much find an SM with room.
    ///
    /// Heads that wait ask again and again, and copies of one program ask the same: what holds until blocks come or go is
    /// worked out once.
    fn room(&mut self, group: usize, ask: &Resources) -> u64 {
        let Some(g) = self.groups.get_mut(group) else { return 0 };
        let sms = u64::from(self.config.instances.get(g.instance).copied().unwrap_or(0));
        if let Some((_, room)) = g.rooms.iter().find(|(asked, _)| asked == ask) {
            return *room;
        }
        let room = if g.on_sms.iter().all(|kernel| kernel.ask == *ask) {
            // Of equal blocks each SM holds as many whatever their kernels. By the estimate below kernels behind one that
            // waits for room would get some of it, and those of all copies be on the SMs in part.
            let there = g.on_sms.iter().fold(0_u64, |sum, kernel| sum.saturating_add(kernel.blocks));
            sms.saturating_mul(fits(ask, &self.per_sm)).saturating_sub(there)
        } else {
            let spread = g.spread.get_or_insert_with(|| Spread::of(&g.on_sms, &g.taken, &self.per_sm, sms));
            spread.room(ask)
        };
        g.rooms.push((*ask, room));
        room
    }

    /// Places what there is room for, of the heads from this one on: the one that has waited longest first, and that again
    /// after every kernel.
    fn dispatch(&mut self, group: usize, from: usize) {
        let (local, held) = (self.local(group), self.held(group));
        let one_line = self.groups.get(group).is_some_and(|g| g.one_line);
        let mut at = from;
        while let Some((_, tenant, slot)) = self.groups.get(group).and_then(|g| g.heads.get(at)).copied() {
            // Who has found no room has none now.
            if !self.place(group, (local, held), tenant, slot) {
                if one_line {
                    break;
                }
                at = at.saturating_add(1);
                continue;
            }
            let next = self.tenants.get_mut(tenant).and_then(|t| {
                t.queue.pop_front();
                let slot = t.queue.front().copied()?;
                Some((t.live.get(slot as usize)?.ready, tenant, slot))
            });
            let Some(g) = self.groups.get_mut(group) else { return };
            g.heads.remove(at);
            if let Some(next) = next {
                let later = g.heads.iter().skip(at).take_while(|(ready, ..)| *ready <= next.0).count();
                g.heads.insert(at.saturating_add(later), next);
            }
        }
        for behind in at.saturating_add(1).. {
            let head = self.groups.get(group).and_then(|g| g.heads.get(behind)).copied();
            let Some((_, tenant, _)) = head else { break };
            self.wait_in_line(tenant, held);
        }
        self.set_rates(group);
        self.tick(group);
    }

    /// The first kernel of a tenant waits behind one of another tenant.
    fn wait_in_line(&mut self, tenant: usize, held: Ps) {
        if let Some(t) = self.tenants.get_mut(tenant).filter(|t| t.blocked.since.is_none()) {
            t.blocked.run(held, true);
        }
    }

    /// Places blocks of a kernel; true when none is left.
    fn place(&mut self, group: usize, (local, held): (Ps, Ps), tenant: usize, slot: u32) -> bool {
        let lengths = self.lengths;
        let Some(g) = self.groups.get(group) else { return true };
        let Some(t) = self.tenants.get(tenant) else { return true };
        let Some(o) = t.live.get(slot as usize) else { return true };
        let Some(class) = t.classes.get(o.class as usize) else { return true };
        let (at_once, ask, alone) = (class.at_once, class.ask, class.alone);
        let own = o.unplaced.min(at_once.saturating_sub(o.in_flight));
        // A kernel whose footprint is larger than the pool (its blocks were cut to what fits) still runs alone.
        let empty = t.in_flight == 0 && (g.disjoint || g.cohorts.is_empty());
        let mut count = within(own, &ask, &t.free);
        // Other tenants' blocks are the reason where its own alone would leave room.
        let own_leave_room = o.started < 0 && (count > 0 || t.in_flight == 0);
        if count > 0 && !g.disjoint {
            count = count.min(if g.on_sms.is_empty() { alone } else { self.room(group, &ask) });
        }
        if self.many_tenants && count < own && count.saturating_mul(LEAST_PART) < own {
            count = 0;
        }
        if count == 0 && empty {
            count = own;
        }
        let Some(g) = self.groups.get_mut(group) else { return true };
        let Some(t) = self.tenants.get_mut(tenant) else { return true };
        let blocked = count == 0 && own_leave_room && g.on_sms.iter().any(|kernel| kernel.tenant != tenant);
        if blocked != t.blocked.since.is_some() {
            t.blocked.run(held, blocked);
        }
        if count == 0 {
            return false;
        }
        let Some(o) = t.live.get_mut(slot as usize) else { return true };
        // Whole waves that nobody can come between: all but the last at once.
        // Who comes later waits longer: it gets what the kernel leaves, as between two waves.
        let undisturbed = lengths.is_none() && (g.cohorts.is_empty() || (g.disjoint && t.in_flight == 0));
        let mut waves = 1;
        if undisturbed && count == at_once && o.unplaced > count {
            let left = o.unplaced.saturating_sub(count);
            let more = left.saturating_sub(1) / at_once;
            waves = waves.max(more.saturating_add(1));
            o.unplaced = o.unplaced.saturating_sub(more.saturating_mul(count));
        }
        if o.in_flight == 0 && o.started < 0 {
            (o.started, o.begun) = (held, local);
            if let Some(waits) = t.waits.get_mut(o.stream as usize) {
                waits.sms.run(t.blocked.sum, false);
            }
        }
        o.unplaced = o.unplaced.saturating_sub(count);
        o.in_flight = o.in_flight.saturating_add(count);
        t.in_flight = t.in_flight.saturating_add(count);
        t.takes = None;
        give(&mut t.free, &ask, count, i64::saturating_sub);
        g.changed(&ask, count, u64::saturating_add);
        match g.on_sms.iter_mut().find(|k| (k.tenant, k.slot) == (tenant, slot)) {
            Some(kernel) => kernel.blocks = kernel.blocks.saturating_add(count),
            None => g.on_sms.push(OnSms { tenant, slot, blocks: count, ask }),
        }
        let length = o.block.saturating_mul(Ps::try_from(waves).unwrap_or(Ps::MAX));
        if let Some(lengths) = lengths {
            let part = (length / lengths.parts.cast_signed()).max(1);
            // Times of a kernel are counted from its begin, so that what comes between shifts none of them by a little.
            let passed = local.saturating_sub(o.begun).saturating_add(part / 2) / part;
            for (blocks, parts) in parts(count, lengths) {
                let after = u64::try_from(passed).unwrap_or(0).saturating_add(parts);
                let Some(ends) = o.ends.get_mut(after as usize % AHEAD_PARTS) else { continue };
                if *ends == 0 {
                    let end = o.begun.saturating_add(part.saturating_mul(after.cast_signed()));
                    g.cohorts.push(Reverse((end, tenant, o.op, after, slot)));
                }
                *ends = ends.saturating_add(blocks);
            }
        } else {
            g.cohorts.push(Reverse((local.saturating_add(length.max(1)), tenant, o.op, count, slot)));
        }
        o.unplaced == 0
    }

    fn blocks_end(&mut self, group: usize) {
        self.settle(group);
        let (local, held) = (self.local(group), self.held(group));
        let Some(g) = self.groups.get_mut(group) else { return };
        while let Some(Reverse((end, tenant, op, which, slot))) = g.cohorts.peek().copied() {
            if end > local {
                break;
            }
            g.cohorts.pop();
            let Some(t) = self.tenants.get_mut(tenant) else { continue };
            let counts = t.counts();
            let Some(o) = t.live.get_mut(slot as usize) else { continue };
            let count = match o.ends.get_mut(which as usize % AHEAD_PARTS) {
                Some(ends) if self.lengths.is_some() => std::mem::take(ends),
                _ => which,
            };
            let Some(class) = t.classes.get(o.class as usize) else { continue };
            t.in_flight = t.in_flight.saturating_sub(count);
            t.takes = None;
            give(&mut t.free, &class.ask, count, i64::saturating_add);
            g.changed(&class.ask, count, u64::saturating_sub);
            if let Some(at) = g.on_sms.iter().position(|k| (k.tenant, k.slot) == (tenant, slot)) {
                let left = g.on_sms.get_mut(at).map_or(0, |k| {
                    k.blocks = k.blocks.saturating_sub(count);
                    k.blocks
                });
                if left == 0 {
                    g.on_sms.swap_remove(at);
                }
            }
            o.in_flight = o.in_flight.saturating_sub(count);
            if o.in_flight == 0 && o.unplaced == 0 {
                self.done.push((tenant, slot));
                if counts {
                    (self.see)(t.index, op, held.saturating_sub(o.started) / 1000);
                }
            }
        }
        let mut done = std::mem::take(&mut self.done);
        for (tenant, slot) in done.drain(..) {
            self.ended(tenant, slot);
        }
        self.done = done;
        self.dispatch(group, 0);
        self.look(group);
    }

    /// How fast the SMs of a group run.
    fn set_rates(&mut self, group: usize) {
        let Some(g) = self.groups.get(group) else { return };
        if self.config.contention == 0.0 && !g.demands {
            return;
        }
        let running = || g.tenants.iter().filter(|t| self.tenants.get(**t).is_some_and(|t| t.in_flight > 0));
        let together = match self.config.contention {
            0.0.. if running().nth(1).is_some() => 1.0 + self.config.contention,
            ..0.0 => 1.0 / self.complementary(group),
            _ => 1.0,
        };
        let demands = g.demands;
        let rate = if demands { self.limited(group) } else { 1.0 } / together;
        let before = self.groups.get(group).map_or(1.0, |g| g.rate);
        if (rate - before).abs() > 1e-12 {
            self.settle(group);
            if let Some(g) = self.groups.get_mut(group) {
                g.rate = rate;
            }
        }
    }

    /// How fast the SMs of a group run with the memory bandwidth and the throughput of SMs that its blocks want.
    ///
    /// Memory bandwidth is shared in proportion to what each wants, which is in proportion to its blocks: where all want
    /// more than the instance has, all are slower by the same part.
    fn limited(&mut self, group: usize) -> f64 {
        let Some(g) = self.groups.get(group) else { return 1.0 };
        let (mut bandwidth, mut on_sms, mut blocks, mut holders) = (0.0, 0.0, 0_u64, 0_u32);
        let (mut own, mut cached) = (1.0_f64, 0.0);
        for tenant in &g.tenants {
            let takes = self.tenants.get(*tenant).and_then(|t| t.takes);
            let takes = takes.unwrap_or_else(|| self.takes(g, *tenant));
            let Some(t) = self.tenants.get_mut(*tenant) else { continue };
            t.takes = Some(takes);
            bandwidth += takes.bandwidth;
            on_sms += takes.sms;
            blocks = blocks.saturating_add(takes.blocks);
            holders = holders.saturating_add(u32::from(takes.blocks > 0));
            own = own.max(takes.sms / f64::from(t.sms.max(1)));
            if t.in_flight > 0 {
                cached += t.cache;
            }
        }
        // L2 goes with the memory slices of an instance. What it cannot hold of all data together is read again.
        let missed = if cached > g.bandwidth { 1.0 - g.bandwidth / cached } else { 0.0 };
        let again = 1.0 + self.config.hits_over_misses * missed;
        let wanted = again * bandwidth;
        // Blocks go to the SM with most room: those of all kernels together are spread evenly, but for the last ones. No
        // SM has blocks of two tenants where caps leave room for everybody: each has fewer SMs than it was recorded on.
        let sms = self.config.instances.get(g.instance).copied().unwrap_or(0);
        let crowded = on_sms / blocks.max(1) as f64 * on_busiest(blocks, sms, self.config.crowding);
        let busiest = if g.disjoint || holders < 2 { own } else { crowded.max(1.0) };
        (g.bandwidth / wanted.max(g.bandwidth)).min(1.0 / busiest)
    }

    /// What a tenant's blocks want together of what it shares with others.
    ///
    /// Of what was measured for a tenant, and not kernel by kernel, its kernels beside each other want no more than that;
    /// and none of them more than where they were recorded: what they cost each other there is in the recorded times.
    fn takes(&self, g: &Group, tenant: usize) -> Takes {
        let mut takes = Takes::default();
        let Some(t) = self.tenants.get(tenant) else { return takes };
        if t.in_flight == 0 {
            return takes;
        }
        let recorded_on = f64::from(t.program.visible_sms.max(1));
        let (mut bandwidth, mut counted, mut others, mut slowed) = (0.0, 0.0, 0.0, 0.0);
        let mut peak = 1.0_f64;
        for k in g.on_sms.iter().filter(|k| k.tenant == tenant) {
            let live = t.live.get(k.slot as usize);
            let Some(class) = live.and_then(|live| t.classes.get(live.class as usize)) else { continue };
            takes.blocks = takes.blocks.saturating_add(k.blocks);
            let there = k.blocks as f64;
            match class.bandwidth {
                Some(part) => takes.bandwidth += part * there / class.recorded_mean,
                None => {
                    bandwidth += t.bandwidth * there / class.recorded_mean;
                    peak = peak.max(class.recorded_peak);
                }
            }
            // As where it was recorded, and as slow as its blocks are here.
            let wants = class.of_an_sm * there;
            *(if class.of_an_sm_counted { &mut counted } else { &mut others }) += wants * class.slowed;
            slowed += wants;
        }
        takes.bandwidth = (takes.bandwidth + bandwidth.min(t.bandwidth * peak)).min(1.0_f64.max(t.bandwidth));
        let uncapped = counted + others;
        if uncapped > 0.0 {
            let capped = (counted + others.min(t.sm_throughput.most() * recorded_on)).min(recorded_on);
            takes.sms = capped * slowed / uncapped;
        }
        takes
    }

    /// How much faster blocks run that need other units of an SM than those of other tenants for which there is no room.
    ///
    /// Half of a kernel's blocks do more than half of its work: what limits it all is less used by them. So with room
    /// for half of what all want, the SMs do `1 / (1 + contention)` of what they do for one tenant.
    fn complementary(&self, group: usize) -> f64 {
        let Some(g) = self.groups.get(group) else { return 1.0 };
        let (mut tenants, mut wanted, mut placed) = (0_u32, 0.0, 0.0);
        for tenant in &g.tenants {
            let Some(t) = self.tenants.get(*tenant) else { continue };
            let whole = |slot: u32| {
                let live = t.live.get(slot as usize)?;
                let class = t.classes.get(live.class as usize)?;
                let all = live.unplaced.saturating_add(live.in_flight).min(class.at_once);
                let alone = class.alone.max(1) as f64;
                Some((all as f64 / alone, live.in_flight as f64 / alone))
            };
            let head = t.queue.front().copied();
            let mine = g.on_sms.iter().filter(|k| k.tenant == *tenant);
            let slots = mine.map(|k| k.slot).filter(|slot| Some(*slot) != head).chain(head);
            let before = wanted;
            for (want, has) in slots.filter_map(whole) {
                (wanted, placed) = (wanted + want, placed + has);
            }
            tenants = tenants.saturating_add(u32::from(wanted > before));
        }
        if tenants < 2 || placed <= 0.0 {
            return 1.0;
        }
        let gain = 1.0 / (1.0 + self.config.contention) - 1.0;
        1.0 + gain * (wanted / placed - 1.0).clamp(0.0, 1.0)
    }

    /// Sets the alarm for the next blocks that end.
    fn tick(&mut self, group: usize) {
        let local = self.local(group);
        let Some(g) = self.groups.get(group) else { return };
        let source = self.offsets.blocks.saturating_add(group);
        let Some(Reverse((end, ..))) = g.cohorts.peek().copied().filter(|_| g.running) else {
            self.agenda.clear(source);
            return;
        };
        let left = end.saturating_sub(local).max(0);
        let wait = if g.rate != 1.0 { (left as f64 / g.rate).ceil() as Ps } else { left };
        self.at(source, self.now.saturating_add(wait));
    }

    // -- engines ----------------------------------------------------------------------------------------

    /// Looks at an engine after a group has got or lost work.
    fn look(&mut self, group: usize) {
        let Some(instance) = self.groups.get(group).map(|g| g.instance) else { return };
        let Some(i) = self.instances.get(instance) else { return };
        if i.groups.len() < 2 {
            return;
        }
        let (now, works) = (self.now, self.has_work(group));
        if let Some(g) = self.groups.get_mut(group) {
            g.idle_since = if works { None } else { g.idle_since.or(Some(now)) };
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
        let slice = ps(self.config.slice_ns).max(1);
        let over = self.now.saturating_sub(i.slice_end);
        let alone = !armed && doing == Doing::Running;
        if waits && alone && over.saturating_mul(2) > slice.saturating_neg() && self.config.jitter > 0.0 {
            // Who comes late in a slice, or later, does not know when it ends: on an H200 slices of which nobody waited for
            // the begin ended 2.2 or 3.2 ms after it, and no slice in which another context came soon did so later.
            let seed = self.config.seed.wrapping_add(SLICES);
            let drawn = spread(seed, u32::try_from(instance).unwrap_or(0), 0, i.asked);
            i.asked = i.asked.wrapping_add(1);
            i.slice_end = self.now.saturating_add((slice as f64 * drawn.midpoint(1.0)) as Ps);
        } else if over >= 0 && alone {
            i.slice_end = i.slice_end.saturating_add((over / slice).saturating_add(1).saturating_mul(slice));
        }
        let left = i.slice_end.saturating_sub(self.now).max(0);
        let idle = current.is_some_and(|g| !self.has_work(g));
        match (waits, idle) {
            (true, true) if doing == Doing::Running => {
                // It counts from the end of its work: a context that has been idle for longer loses the engine when another
                // gets work. On an H200 it had lost it in 414 of 478 cases where its own work came 6 us after the other's.
                let keeps = ps(self.config.linger_ns.unwrap_or(LINGER_NS));
                let since = current.and_then(|g| self.groups.get(g)?.idle_since).unwrap_or(self.now);
                let linger = keeps.saturating_sub(self.now.saturating_sub(since)).max(0);
                self.alarm(instance, Doing::Lingering, linger.min(left));
            }
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
        self.at(self.offsets.engines.saturating_add(instance), time);
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
        let slice = ps(self.config.slice_ns);
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
                if self.next(instance).is_some() {
                    self.alarm(instance, Doing::Running, slice);
                    if let Some(i) = self.instances.get_mut(instance) {
                        i.armed = true;
                    }
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
        let cost = if leaving { ps(self.config.switch_ns) } else { 0 };
        self.alarm(instance, Doing::Switching, cost);
    }

    fn took(self) -> Vec<Took> {
        let now = self.now;
        self.tenants
            .into_iter()
            .map(|mut t| {
                let latency_ns = t.latencies.iter().fold(0_i64, |sum, l| sum.saturating_add(*l));
                let end = if t.ended > 0 { t.end } else { now };
                let elapsed_ns = end.saturating_sub(t.first.min(end)) / 1000;
                // What it had not done when the simulation ended.
                let all = t.program.ops.len() as f64 / t.ended.max(1) as f64;
                let of_all = |ns: i64| (ns as f64 * all) as i64;
                let mut units: Vec<i64> = t
                    .units
                    .iter()
                    .zip(&t.program.units_lead_ns)
                    .filter(|((begin, end), _)| begin <= end)
                    .map(|((begin, end), lead)| (end.saturating_sub(*begin) / 1000).saturating_add(*lead))
                    .collect();
                Took {
                    tenant: t.program.tenant,
                    copy: t.copy,
                    elapsed_ns: of_all(elapsed_ns),
                    latency_ns: of_all(latency_ns),
                    latency_p50_ns: nearest_rank(&mut t.latencies, 0.5).unwrap_or(0),
                    latency_p99_ns: nearest_rank(&mut t.latencies, 0.99).unwrap_or(0),
                    waits: Waits {
                        queue_other_tenant_ns: of_all(t.waited.queue_other_tenant_ns),
                        not_resident_ns: of_all(t.waited.not_resident_ns),
                    },
                    unit_ns: nearest_rank(&mut units, 0.5).zip(nearest_rank(&mut units, 0.99)),
                    operations: t.ended,
                }
            })
            .collect()
    }
}

/// How many blocks that ask so much fit into what there is.
fn fits(ask: &Resources, of: &Resources) -> u64 {
    let each = of.iter().zip(ask).filter(|(_, ask)| **ask > 0).map(|(has, ask)| has / ask);
    each.min().unwrap_or(u64::MAX)
}

/// So many blocks, or as many as fit into what is free.
fn within(count: u64, ask: &Resources, free: &[i64; 4]) -> u64 {
    let wanted = i64::try_from(count).unwrap_or(i64::MAX);
    let asks = || ask.iter().zip(free).filter(|(ask, _)| **ask > 0);
    let signed = |ask: &u64| i64::try_from(*ask).unwrap_or(i64::MAX);
    // Divisions cost more than all the rest: most of the time all fit, or none.
    if asks().any(|(ask, free)| signed(ask) > *free) {
        return 0;
    }
    if asks().all(|(ask, free)| signed(ask).saturating_mul(wanted) <= *free) {
        return count;
    }
    let least = asks().map(|(ask, free)| (*free).max(0) / signed(ask)).min();
    least.map_or(count, |n| count.min(u64::try_from(n).unwrap_or(0)))
}

/// Takes what so many blocks ask, or gives it back.
fn give(free: &mut [i64; 4], ask: &Resources, count: u64, with: fn(i64, i64) -> i64) {
    for (free, ask) in free.iter_mut().zip(ask) {
        *free = with(*free, i64::try_from(ask.saturating_mul(count)).unwrap_or(i64::MAX));
    }
}
