//! Measure the quantities (facts) that verdicts rest on.
//!
//! [`FACTS`] is the one list. Every device with activity gets one row of each, so that a rule can tell zero from not
//! available (value null, reason in `detail`). Rules weigh these numbers elsewhere, in Python, where people can read
//! and change them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};

use crate::activity::overlap::short_ns;
use crate::base::error::Result;
use crate::base::hardware::{DEFAULT_SLICE_NS, DRIVER_HW_CONTEXT, PROMPT_NS};
use crate::base::intervals::{Growing, Union};
use crate::base::maps::{entry, ByKey, NumberMap};
use crate::base::statistics::{mad, median, weighted_median};
use crate::base::watch::Watch;
use crate::occupancy::theoretical::{LaunchColumns, Limits, Resources};
use crate::residency::observed::{creation_contexts, slice_lengths, Slice};
use crate::table::builder::Builder;
use crate::table::columns::{at, text_at, Columns, NameColumn};
use crate::table::events::{EventPass, Events, Tables};
use crate::table::launch::{Folded, LikeRows, SharedKeys};
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Tenant, Who};
use crate::table::work::{work, Work, WorkKind};

/// Slices further apart than this are not time-sliced.
const TURN_NS: i64 = 10_000_000;
/// Metric samples are timed by another clock than kernels: near an edge nothing can be said.
const METRIC_GUARD_NS: i64 = 200_000;
/// No pause: whoever took a turn in it would have made it longer.
const PAUSE_NS: i64 = 50_000;
/// How much longer than its like a kernel must be to have been switched out in between.
const STRETCH_NS: f64 = 800_000.0;
/// Residency intervals that are looked through, each way, for those of another tenant around one.
const NEAR_INTERVALS: usize = 16;
/// From how many equal launches on a group has a median that means something.
const REPEATS: usize = 5;
/// A kernel of so many waves keeps the SMs to itself for a good part of its time, unless it is switched out.
const MANY_WAVES: f64 = 3.0;
/// The last wave may take twice as long as the others, because it shares the SMs: more than that is more than one.
const WAVES_TO_GO: f64 = 2.25;
/// Blocks of a kernel are not placed in no time: one that starts so soon after it may still find room.
const PLACING_NS: i64 = 20_000;
/// A kernel that waits in a queue of the device starts this soon after what it waited for; later the device had nothing to
/// do until the program launched more.
const QUEUED_NS: i64 = 4_000;
/// CUPTI's kinds of copies that copy engines make: host to device, device to host.
const HOST_COPIES: [u8; 2] = [1, 2];
/// A kernel of nearly as many blocks as fit at once leaves no room for those of another stream.
const FULL_WAVES: f64 = 0.95;
/// Kernels of many waves that are remembered as being in flight; more never are, but in damaged captures.
const MOST_IN_FLIGHT: usize = 64;

/// Every fact: name, unit, meaning.
pub const FACTS: &[(&str, &str, &str)] = &[
    ("window_ns", "ns", "First to last activity of any tenant, residency included."),
    ("kernels", "1", "Kernels traced."),
    ("graph_launches", "1", "CUDA graphs traced as a whole."),
    ("busy_ns", "ns", "Union of all traced kernel and graph intervals, as recorded."),
    ("busy_share", "1", "busy_ns over window_ns."),
    ("traced_tenants", "1", "Tenants whose CUDA work was recorded."),
    ("resident_tenants", "1", "Tenants with two complete slices or one percent of all residency."),
    ("switch_records", "1", "Context-switch records."),
    ("switches_between_tenants", "1", "Switches from one tenant to another; creation of contexts and lost records left out."),
    ("alternation_share", "1", "Of consecutive complete slices at most 10 ms apart, those that change tenant."),
    ("median_slice_ns", "ns", "Median of complete slices, those of contexts that were only created left out."),
    ("slice_spread", "1", "Median absolute deviation of these slices over their median."),
    ("median_gap_ns", "ns", "Median SAVE_END to RESTORE_START of back-to-back switches."),
    ("switch_cost_ns", "ns", "Sum of these gaps."),
    ("switch_overhead_share", "1", "switch_cost_ns between tenants, over the time in which tenants were time-sliced."),
    ("resident_share_untraced", "1", "Share of all residency held by tenants that nsys did not trace."),
    ("resident_share_top", "1", "Share of all residency held by the tenant with most."),
    ("co_resident_ns", "ns", "Two tenants were resident at once, summed over pairs."),
    ("streams_used", "1", "Most streams with kernels in one context of one tenant."),
    ("stream_overlap_ns", "ns", "One tenant had kernels of two streams of one context in flight: the tenant with most."),
    ("stream_overlap_share", "1", "The same over the tenant's busy time: the tenant with the largest share."),
    ("streams_at_once", "1", "Most streams of one context that had kernels in flight at once."),
    ("stream_changes", "1", "Kernels that started when no other stream of their context had one in flight and the last to end was of another stream."),
    ("stream_late_share", "1", "Of these, the share that started more than 4 us after it: until the program launched more, or stopped waiting, the device had nothing to do."),
    ("stream_default_share", "1", "The share that started at once, one of the two in the legacy default stream, which waits for all others and lets them wait."),
    ("stream_full_share", "1", "The share that started at once after a kernel whose blocks filled the device."),
    ("stream_waited_share", "1", "The share that started at once and had room before: it waited for an event, or behind others in a hardware queue."),
    ("same_stream_overlap_ns", "ns", "One stream had two kernels in flight (programmatic dependent launch, graph branches): the tenant with most."),
    ("co_busy_ns", "ns", "Two or more tenants had kernels or graphs in flight, by their recorded intervals."),
    ("co_busy_share", "1", "co_busy_ns over busy_ns."),
    ("short_kernels_contended", "1", "Short kernels that started while another tenant had work in flight or waiting."),
    ("short_overlap_share", "1", "Of these, the share that overlaps a short kernel of the other tenant."),
    ("short_overlap_expected", "1", "The same share, if neither tenant ever waited for the other."),
    ("preemption_exposure", "1", "Busy time over a default slice of 2.13 ms: how often another busy tenant would have preempted."),
    ("unbroken_exposure", "1", "Of that, what follows the first slice of a stretch of work without a pause of 50 us: who pauses gives the engine up before it is taken away, and may begin with a slice of its own."),
    ("prompt_start_share", "1", "Kernels whose stream copied from or to the host for 50 us and more while their tenant had none in flight: the share before which the stream stood still for at most 100 us since. Copy engines leave the SMs to whoever has work; another tenant would have kept them for the rest of a slice."),
    ("repeats", "1", "Kernels whose name, grid and block occur at least five times for their tenant."),
    ("inflated_share", "1", "Of repeats, those longer than 1.5 times and 0.8 ms more than the median of their like."),
    ("deviating_share", "1", "Of repeats, those more than 0.8 ms shorter or longer than the median of their like: of kernels that another busy tenant interrupts, however often, some are interrupted once more than others."),
    ("inflation_ns", "ns", "Of those inflated, by how much they are longer than that median: median."),
    ("inflation_spread", "1", "Median absolute deviation of that excess over its median."),
    ("inflation_ratio_spread", "1", "The same of the ratio of their length to that median: slices add, contention multiplies."),
    ("crowded_starts", "1", "Kernels that started while only one of at least 3 waves of another tenant was in flight, which leaves no room for them while its blocks wait, both in streams of one known priority."),
    ("crowded_start_share", "1", "Of these, the share for which the other had more than 2.25 waves to go."),
    ("crowded_starts_unknown_priority", "1", "The same where the priority of one of the two streams was not recorded; those of different priorities are left out."),
    ("crowded_start_share_unknown_priority", "1", "Of these, the share for which the other had more than 2.25 waves to go."),
    ("kernels_in_preemption", "1", "Kernels that ran whole while their own context was resident, inside a gap in the residency of another tenant that fell within one of its kernels: that kernel was switched out for them. Only contexts with real pids, and residency without lost records."),
    ("repeat_spread", "1", "Median over groups of repeats, by launches, of deviation (MAD) over median."),
    ("metric_outside_pct", "%", "Mean SM activity in samples without a traced kernel or graph in flight."),
    ("metric_inside_pct", "%", "Mean SM activity in samples with one in flight."),
];

const NO_SWITCHES: &str =
    "no context-switch records of this device; record with --gpuctxsw=true as root (MIG hides them)";
const NO_KERNELS: &str = "no kernels or graphs were captured; record with -t cuda";
const NO_METRICS: &str = "no SM activity samples of this device; record with --gpu-metrics-devices=all";

/// The tables that this pass makes.
#[derive(Debug, Clone)]
pub struct Output {
    /// `facts`.
    pub facts: RecordBatch,
    /// `fact_examples`.
    pub fact_examples: RecordBatch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Example {
    capture: u32,
    start_ns: i64,
    end_ns: i64,
    pid: Option<u32>,
    correlation: Option<u32>,
}

/// The three strongest.
#[derive(Debug, Clone, Default)]
struct Top(Vec<(i64, Example)>);

impl Top {
    fn see(&mut self, strength: i64, example: impl FnOnce() -> Example) {
        if self.0.len() == 3 && self.0.last().is_some_and(|(s, _)| *s >= strength) {
            return;
        }
        self.0.push((strength, example()));
        self.0.sort_by_key(|(s, e)| (std::cmp::Reverse(*s), *e));
        self.0.truncate(3);
    }
}

#[derive(Debug, Default)]
struct Group {
    durs: Vec<i64>,
    longest: Top,
}

/// What a launch takes of a device.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// How many times its blocks fill the device.
    waves: f64,
    /// What a block takes of an SM, and what as many of them as fit leave of it.
    block: Resources,
    left: Resources,
}

impl Shape {
    /// Whether no block of `other` can be placed as long as some of this one wait: as much of everything finds no place
    /// that a waiting one would not have taken, and less only what full SMs leave.
    fn keeps_out(&self, other: &Self) -> bool {
        let larger = self.block.iter().zip(&other.block).all(|(own, others)| others >= own);
        larger || self.left.iter().zip(&other.block).any(|(left, others)| others > left)
    }
}

/// A kernel of many waves in flight.
#[derive(Debug, Clone, Copy)]
struct Wide {
    tenant: u32,
    start_ns: i64,
    end_ns: i64,
    shape: Shape,
    priority: Option<i32>,
}

/// Kernels that started beside a kernel of many waves of another tenant.
#[derive(Debug, Default)]
struct Crowded {
    starts: u64,
    /// Those that could not have found SM resources there.
    crowded: u64,
    top: Top,
}

/// The streams of one context.
#[derive(Debug, Default)]
struct OfContext {
    id: Option<u32>,
    /// Latest end of each stream.
    streams: Vec<(Option<u32>, i64)>,
    /// The kernel that ended last of all.
    last: Option<Ended>,
    null_stream: Option<u32>,
    /// The latest copy that gave others time to take the SMs, and what its stream did since.
    copied: Option<Copied>,
}

#[derive(Debug, Clone, Copy)]
struct Copied {
    stream: Option<u32>,
    end_ns: i64,
    /// What its stream stood still since.
    waited_ns: i64,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
    stream: Option<u32>,
    end_ns: i64,
    kept_out: KeptOut,
}

/// What of a kernel kept those of other streams from running beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptOut {
    /// Its stream is the legacy default stream.
    ByDefaultStream,
    /// It filled the device.
    ByBlocks,
    Nothing,
}

/// Why kernels of one stream followed those of another instead of running beside them.
#[derive(Debug, Default)]
struct StreamChanges {
    all: u64,
    late: u64,
    default: u64,
    full: u64,
    at_once: usize,
    top: Top,
}

#[derive(Debug, Default)]
struct OfTenant {
    busy: Growing,
    /// The kernel that ends last.
    last_kernel: Option<(i64, i64)>,
    longest: Top,
    /// Contexts by capture-wide id; few, so they are looked through.
    contexts: Vec<OfContext>,
    several: Growing,
    same: Growing,
    /// Launches by signature.
    groups: Vec<Group>,
}

impl OfContext {
    /// The context that launched this, new if need be.
    fn of<'a>(all: &'a mut Vec<Self>, w: &Work, null_streams: &NullStreams) -> Option<&'a mut Self> {
        let at = all.iter().position(|c| c.id == w.context).unwrap_or(all.len());
        if at == all.len() {
            let key = w.context.map(|context| (w.capture, w.pid, context));
            let null_stream = key.and_then(|key| null_streams.get(&key)).copied();
            all.push(Self { id: w.context, null_stream, ..Self::default() });
        }
        all.get_mut(at)
    }

    fn copy(&mut self, w: &Work, host_copy: bool) {
        let length_ns = w.end_ns.saturating_sub(w.start_ns);
        if host_copy && length_ns >= PAUSE_NS {
            self.copied = Some(Copied { stream: w.stream, end_ns: w.end_ns, waited_ns: 0 });
        } else if let Some(copied) = self.copied.as_mut().filter(|c| c.stream == w.stream) {
            copied.waited_ns =
                copied.waited_ns.saturating_add(w.start_ns.saturating_sub(copied.end_ns).max(0));
            copied.end_ns = w.end_ns;
            // The SMs make some copies: such a long one may itself have waited for its turn.
            if length_ns as f64 > STRETCH_NS {
                self.copied = None;
            }
        }
    }
}

/// The latest ends of two tenants, so that the latest of everybody but one is known without asking all of them.
#[derive(Debug, Default)]
struct LatestEnds {
    first: Option<(i64, u32)>,
    second: Option<(i64, u32)>,
}

impl LatestEnds {
    fn see(&mut self, tenant: u32, end_ns: i64) {
        match self.first {
            Some((latest_ns, id)) if id == tenant => self.first = Some((latest_ns.max(end_ns), id)),
            Some((latest_ns, _)) if latest_ns >= end_ns => {
                if self.second.is_none_or(|(second_ns, _)| second_ns < end_ns) {
                    self.second = Some((end_ns, tenant));
                }
            }
            before => (self.first, self.second) = (Some((end_ns, tenant)), before),
        }
    }

    fn of_others(&self, me: u32) -> i64 {
        let other = self.first.filter(|(_, id)| *id != me).or(self.second);
        other.map_or(i64::MIN, |(end_ns, _)| end_ns)
    }
}

/// Work that another busy tenant could have cut: in stretches that no pause parts, what follows their first slice.
#[derive(Debug, Default)]
struct Unbroken {
    stretch: Option<(i64, i64)>,
    before_ns: i64,
}

impl Unbroken {
    /// Adds work that no earlier one covers.
    fn add(&mut self, work: Option<(i64, i64)>) {
        let Some((from, to)) = work else { return };
        match &mut self.stretch {
            Some((_, last)) if from.saturating_sub(*last) <= PAUSE_NS => *last = to,
            _ => {
                self.before_ns = self.total_ns();
                self.stretch = Some((from, to));
            }
        }
    }

    fn total_ns(&self) -> i64 {
        let length_ns = self.stretch.map_or(0, |(from, to)| to.saturating_sub(from));
        self.before_ns.saturating_add(length_ns.saturating_sub(DEFAULT_SLICE_NS).max(0))
    }
}

#[derive(Debug, Default)]
struct OfDevice {
    kernels: u64,
    graphs: u64,
    busy: Growing,
    unbroken: Unbroken,
    /// The same as `busy`, where samples are held against it.
    busy_beside_samples: Union,
    tenants: ByKey<u32, OfTenant>,
    /// Of work, and of short kernels.
    ends_of_work: LatestEnds,
    ends_of_shorts: LatestEnds,
    co_busy: Growing,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    records: u64,
    metric: Vec<(i64, f64)>,
    stream_changes: StreamChanges,
    /// Short kernels that met a short one of another tenant, and those that met none although the other had work.
    top_short_met: Top,
    top_short_apart: Top,
    top_co_busy: Top,
    top_several: Top,
    top_same: Top,
    top_busy: Top,
    wide: Vec<Wide>,
    /// The two latest ends of kernels so far: whether one is in flight, and whether several are.
    latest_ends: [Option<i64>; 2],
    crowded: Crowded,
    crowded_unknown: Crowded,
    kernels_in_preemption: u64,
    top_in_preemption: Top,
    starts_behind_copies: u64,
    starts_prompt: u64,
    top_prompt: Top,
}

impl OfDevice {
    /// Looks whether a kernel of `tenant` that starts now could have found room beside what is in flight.
    fn crowd(
        &mut self,
        tenant: u32,
        w: &Work,
        shape: Option<Shape>,
        priority: Option<i32>,
        example: impl Fn((i64, i64)) -> Example,
    ) {
        self.wide.retain(|other| other.end_ns > w.start_ns);
        // With a third kernel in flight there may be holes between the blocks of both, and waves of unequal length.
        let ([latest_ns, second_ns], now_ns, end_ns) = (self.latest_ends, Some(w.start_ns), Some(w.end_ns));
        let alone = latest_ns > now_ns && second_ns <= now_ns;
        self.latest_ends = [latest_ns.max(end_ns), second_ns.max(latest_ns.min(end_ns))];
        let Some(shape) = shape else { return };
        let others = self.wide.iter().filter(|o| alone && o.tenant != tenant && o.shape.keeps_out(&shape));
        for other in others.filter(|o| w.start_ns.saturating_sub(o.start_ns) > PLACING_NS) {
            // Blocks of a stream of higher priority go before those that wait.
            let counts = match priority.zip(other.priority) {
                Some((mine, theirs)) if mine == theirs => &mut self.crowded,
                Some(_) => continue,
                None => &mut self.crowded_unknown,
            };
            counts.starts = counts.starts.saturating_add(1);
            let left_ns = other.end_ns.saturating_sub(w.start_ns);
            let wave_ns = other.end_ns.saturating_sub(other.start_ns) as f64 / other.shape.waves;
            if left_ns as f64 > WAVES_TO_GO * wave_ns {
                counts.crowded = counts.crowded.saturating_add(1);
                counts.top.see(left_ns, || example((w.start_ns, w.end_ns)));
            }
        }
        if shape.waves >= MANY_WAVES {
            if self.wide.len() >= MOST_IN_FLIGHT {
                self.wide.remove(0);
            }
            self.wide.push(Wide { tenant, start_ns: w.start_ns, end_ns: w.end_ns, shape, priority });
        }
    }
}

impl StreamChanges {
    fn count(&mut self, before: Ended, now: Ended, start_ns: i64, example: impl Fn((i64, i64)) -> Example) {
        self.all = self.all.saturating_add(1);
        let apart_ns = start_ns.saturating_sub(before.end_ns);
        let cause = if apart_ns > QUEUED_NS {
            &mut self.late
        } else if [before.kept_out, now.kept_out].contains(&KeptOut::ByDefaultStream) {
            &mut self.default
        } else if before.kept_out == KeptOut::ByBlocks {
            &mut self.full
        } else {
            // What is left of all.
            return self.top.see(now.end_ns.saturating_sub(start_ns), || example((start_ns, now.end_ns)));
        };
        *cause = cause.saturating_add(1);
        self.top.see(now.end_ns.saturating_sub(start_ns), || example((start_ns, now.end_ns)));
    }
}

/// Residency intervals of one device, by start, without those of the driver.
#[derive(Debug, Default)]
struct Residency(Vec<Slice>);

impl Residency {
    /// By device.
    fn of(slices: &[Slice]) -> BTreeMap<u32, Self> {
        let mut found: BTreeMap<u32, Self> = BTreeMap::new();
        for s in slices.iter().filter(|s| !s.is_driver()) {
            found.entry(s.device).or_default().0.push(*s);
        }
        for residency in found.values_mut() {
            residency.0.sort_by_key(|s| (s.start_ns, s.end_ns));
        }
        found
    }

    /// Tenants whose residency began last before that time, the latest first, some of them twice.
    fn tenants_before(&self, time_ns: i64) -> impl Iterator<Item = u32> + '_ {
        let next = self.0.partition_point(|s| s.start_ns <= time_ns);
        self.0.iter().take(next).rev().take(NEAR_INTERVALS).filter_map(|s| s.tenant)
    }

    /// Whether `me` ran from `start_ns` to `end_ns` in place of `other`, whose kernel `theirs` had begun before and ended
    /// after: `me` was resident all the time, and `other` not from before to after, although its kernel was in flight.
    fn in_place_of(&self, me: u32, other: u32, (start_ns, end_ns): (i64, i64), theirs: (i64, i64)) -> bool {
        let real = |s: &Slice| s.complete && s.pid.is_some();
        let next = self.0.partition_point(|s| s.start_ns <= start_ns);
        let earlier = || self.0.iter().take(next).rev().take(NEAR_INTERVALS);
        let Some(mine) = earlier().find(|s| s.tenant == Some(me)).filter(|s| real(s) && s.end_ns >= end_ns)
        else {
            return false;
        };
        let before = earlier().find(|s| s.tenant == Some(other)).filter(|s| real(s));
        let later = self.0.iter().skip(next).take(NEAR_INTERVALS);
        let after = later.into_iter().find(|s| s.tenant == Some(other)).filter(|s| real(s));
        before.zip(after).is_some_and(|(before, after)| {
            let apart = before.end_ns <= mine.start_ns && mine.end_ns <= after.start_ns;
            apart && theirs.0 < before.end_ns && after.start_ns < theirs.1
        })
    }
}

/// Legacy default stream by capture, pid and context.
type NullStreams = BTreeMap<(u32, Option<u32>, u32), u32>;

/// Priority of each stream by capture, pid, context and stream; of streams that are not in it nothing is known.
type Priorities = NumberMap<(u32, Option<u32>, u32, u32), i32>;

/// Reads `stream:priority` pairs, as `contexts` has them.
fn stream_priorities(text: &str) -> impl Iterator<Item = (u32, i32)> + '_ {
    text.split(',').filter_map(|pair| {
        let (stream, priority) = pair.split_once(':')?;
        Some((stream.parse().ok()?, priority.parse().ok()?))
    })
}

/// Name, grid and block.
type Signature = (u32, [u64; 6]);

/// The size of a grid or block that was not recorded: no size that was is as large.
const NO_SIZE: u64 = u64::MAX;

/// One pass: work, switch records and metrics in, `facts` and `fact_examples` out. Takes all finished
/// tables to its left.
#[derive(Debug)]
pub struct Facts {
    who: Who,
    slices: Vec<Slice>,
    /// The same by device, once all is seen.
    slices_of: BTreeMap<u32, Vec<Slice>>,
    traced: BTreeMap<u32, BTreeSet<u32>>,
    residency: BTreeMap<u32, Residency>,
    switches: RecordBatch,
    overlaps: RecordBatch,
    listed: BTreeSet<u32>,
    devices: ByKey<u32, OfDevice>,
    limits: BTreeMap<u32, Limits>,
    /// By device and signature, from the first launch of it that was seen; none: it was not seen.
    shapes: ByKey<u32, Vec<Option<Option<Shape>>>>,
    null_streams: NullStreams,
    priorities: Priorities,
    /// Tenants whose residency carries the pid that their work carries: nothing else tied the two.
    same_pid: BTreeSet<u32>,
    /// Up to which length kernels are short, by device, where slices say so.
    short: BTreeMap<u32, i64>,
    work_known: bool,
    /// Samples of metrics are compared with when the device was busy.
    sampled: bool,
    last: LastTenant,
    done: u64,
}

impl Facts {
    /// Reads the tables that earlier passes made.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn new(session: &Tables) -> Result<Self> {
        let table = |t: &'static schema::Table| session.get(t.name).cloned().unwrap_or_else(|| t.empty());
        let who = Who::read(session)?;
        let slices = Slice::read(&table(&schema::RESIDENCY))?;
        let listed = who.tenants.iter().map(|t| t.device).chain(slices.iter().map(|s| s.device)).collect();
        let lengths = slice_lengths(&slices);
        let contexts = table(&schema::CONTEXTS);
        let c = Columns::new(&schema::CONTEXTS, &contexts);
        let (capture, pid) = (c.u32("capture")?, c.u32("pid")?);
        let (context, null_stream) = (c.u32("context_id")?, c.u32("null_stream_id")?);
        let null_streams = (0..c.rows())
            .filter_map(|row| {
                Some(((at(capture, row)?, at(pid, row), at(context, row)?), at(null_stream, row)?))
            })
            .collect();
        let listed_priorities = c.text("stream_priorities")?;
        let mut priorities = Priorities::default();
        for row in 0..c.rows() {
            let (Some(capture), Some(context)) = (at(capture, row), at(context, row)) else { continue };
            for (stream, priority) in text_at(listed_priorities, row).into_iter().flat_map(stream_priorities)
            {
                priorities.insert((capture, at(pid, row), context, stream), priority);
            }
        }
        let own = |t: &&Tenant| t.traced && t.pid.is_some() && t.pid == t.host_pid;
        let same_pid = who.tenants.iter().filter(own).map(|t| t.id).collect();
        Ok(Self {
            who,
            residency: Residency::of(&slices),
            slices,
            slices_of: BTreeMap::new(),
            traced: BTreeMap::new(),
            switches: table(&schema::SWITCHES),
            overlaps: schema::OVERLAPS.empty(),
            listed,
            devices: ByKey::default(),
            limits: Limits::of_devices(&table(&schema::DEVICES))?,
            shapes: ByKey::default(),
            null_streams,
            priorities,
            same_pid,
            short: lengths.iter().map(|(device, lengths)| (*device, short_ns(median(lengths)))).collect(),
            work_known: false,
            sampled: false,
            last: LastTenant::default(),
            done: 0,
        })
    }

    /// Takes who ran beside whom, the `overlaps` table, which only the end needs.
    #[must_use]
    pub fn beside(self, overlaps: RecordBatch) -> Self {
        Self { overlaps, ..self }
    }

    /// What a launch takes of its device; `None` where that cannot be known.
    fn shape(&mut self, w: &Work, signature: u32, launches: &LaunchColumns<'_>) -> Option<Shape> {
        let shapes = self.shapes.entry(w.device)?;
        *entry(shapes, signature)?.get_or_insert_with(|| {
            let limits = self.limits.get(&w.device)?;
            let launch = launches.read(w.row);
            let fit = launch.fit(Some(limits)).ok()?;
            let at_once = fit.device_blocks.filter(|n| *n > 0)?;
            let block = launch.footprint(limits)?;
            let mut left = limits.resources();
            for (left, block) in left.iter_mut().zip(block) {
                *left = left.saturating_sub(block.saturating_mul(u64::from(fit.blocks)));
            }
            Some(Shape { waves: launch.grid_blocks? as f64 / at_once as f64, block, left })
        })
    }

    fn take(&mut self, w: &Work, signature: Option<u32>, shape: Option<Shape>, host_copy: bool) {
        let tenant = self.who.of_next(&mut self.last, w.capture, w.pid, w.device);
        let short = self.short.get(&w.device).copied();
        let Some(d) = self.devices.entry(w.device) else { return };
        d.first_ns = Some(d.first_ns.map_or(w.start_ns, |t| t.min(w.start_ns)));
        d.last_ns = Some(d.last_ns.map_or(w.end_ns, |t| t.max(w.end_ns)));
        if w.kind == WorkKind::Copy {
            let Some(t) = tenant.and_then(|me| d.tenants.entry(me)) else { return };
            if let Some(context) = OfContext::of(&mut t.contexts, w, &self.null_streams) {
                context.copy(w, host_copy);
            }
            return;
        }
        let example = |(start_ns, end_ns): (i64, i64)| Example {
            capture: w.capture,
            start_ns,
            end_ns,
            pid: w.pid,
            correlation: w.correlation,
        };
        let all = (w.start_ns, w.end_ns);
        let dur_ns = w.end_ns.saturating_sub(w.start_ns);
        d.unbroken.add(d.busy.add(w.start_ns, w.end_ns));
        if self.sampled {
            d.busy_beside_samples.add(w.start_ns, w.end_ns);
        }
        d.top_busy.see(dur_ns, || example(all));
        if w.kind == WorkKind::Graph {
            d.graphs = d.graphs.saturating_add(1);
        } else {
            d.kernels = d.kernels.saturating_add(1);
        }
        let Some(me) = tenant else { return };
        let is_short = w.kind == WorkKind::Kernel && dur_ns <= short.unwrap_or_else(|| short_ns(None));
        let known = w.kind == WorkKind::Kernel && self.same_pid.contains(&me);
        if let Some(residency) = self.residency.get(&w.device).filter(|_| known) {
            let inside = |id: u32| {
                let last = d.tenants.get(id).and_then(|other| other.last_kernel);
                let theirs = last.filter(|theirs| theirs.0 < all.0 && all.1 < theirs.1);
                id != me
                    && self.same_pid.contains(&id)
                    && theirs.is_some_and(|theirs| residency.in_place_of(me, id, all, theirs))
            };
            if residency.tenants_before(all.0).any(inside) {
                d.kernels_in_preemption = d.kernels_in_preemption.saturating_add(1);
                d.top_in_preemption.see(dur_ns, || example(all));
            }
        }
        let (busy_until, short_until) = (d.ends_of_work.of_others(me), d.ends_of_shorts.of_others(me));
        if let Some(new) = d.co_busy.add(w.start_ns, w.end_ns.min(busy_until)) {
            d.top_co_busy.see(new.1.saturating_sub(new.0), || example(new));
        }
        if is_short && short_until > w.start_ns {
            let met = (w.start_ns, w.end_ns.min(short_until));
            d.top_short_met.see(met.1.saturating_sub(met.0), || example(met));
        } else if is_short && busy_until > w.start_ns {
            d.top_short_apart.see(dur_ns, || example(all));
        }
        let key = w.context.zip(w.stream).map(|(context, stream)| (w.capture, w.pid, context, stream));
        let priority = key.and_then(|key| self.priorities.get(&key)).copied();
        d.crowd(me, w, shape, priority, example);
        let Some(t) = d.tenants.entry(me) else { return };
        let idle_from = t.busy.end_ns().unwrap_or(i64::MIN);
        t.busy.add(w.start_ns, w.end_ns);
        t.busy.end_ns().into_iter().for_each(|end_ns| d.ends_of_work.see(me, end_ns));
        t.longest.see(dur_ns, || example(all));
        if w.kind == WorkKind::Graph {
            return;
        }
        if t.last_kernel.is_none_or(|last| last.1 < w.end_ns) {
            t.last_kernel = Some(all);
        }
        if is_short {
            d.ends_of_shorts.see(me, w.end_ns);
        }
        let Some(context) = OfContext::of(&mut t.contexts, w, &self.null_streams) else { return };
        if let Some(copied) = context.copied.take() {
            let still_ns = w.start_ns.saturating_sub(copied.end_ns);
            let own_pause_ns = copied.end_ns.saturating_sub(idle_from);
            if copied.stream == w.stream && still_ns >= 0 && own_pause_ns >= PAUSE_NS {
                d.starts_behind_copies = d.starts_behind_copies.saturating_add(1);
                if copied.waited_ns.saturating_add(still_ns) <= PROMPT_NS {
                    d.starts_prompt = d.starts_prompt.saturating_add(1);
                    d.top_prompt.see(own_pause_ns, || example(all));
                }
            }
        }
        let (mut several_until, mut own_until) = (i64::MIN, i64::MIN);
        let (mut own_at, mut at_once) = (None, 1);
        for (at, (stream, end_ns)) in context.streams.iter().enumerate() {
            if *stream == w.stream {
                (own_at, own_until) = (Some(at), *end_ns);
            } else {
                several_until = several_until.max(*end_ns);
                at_once += usize::from(*end_ns > w.start_ns);
            }
        }
        if let Some(new) = t.several.add(w.start_ns, w.end_ns.min(several_until)) {
            d.top_several.see(new.1.saturating_sub(new.0), || example(new));
        }
        if let Some(new) = t.same.add(w.start_ns, w.end_ns.min(own_until)) {
            d.top_same.see(new.1.saturating_sub(new.0), || example(new));
        }
        let now = Ended {
            stream: w.stream,
            end_ns: w.end_ns,
            kept_out: if context.null_stream.is_some() && context.null_stream == w.stream {
                KeptOut::ByDefaultStream
            } else if shape.is_some_and(|shape| shape.waves >= FULL_WAVES) {
                KeptOut::ByBlocks
            } else {
                KeptOut::Nothing
            },
        };
        d.stream_changes.at_once = d.stream_changes.at_once.max(at_once);
        match context.last {
            Some(before) if before.end_ns > w.start_ns => {}
            Some(before) if before.stream != w.stream => {
                d.stream_changes.count(before, now, w.start_ns, example);
            }
            _ => {}
        }
        if context.last.is_none_or(|last| last.end_ns <= w.end_ns) {
            context.last = Some(now);
        }
        match own_at.and_then(|at| context.streams.get_mut(at)) {
            Some((_, end_ns)) => *end_ns = (*end_ns).max(w.end_ns),
            None => context.streams.push((w.stream, w.end_ns)),
        }
        if let Some(group) = signature.and_then(|signature| entry(&mut t.groups, signature)) {
            group.durs.push(dur_ns);
            group.longest.see(dur_ns, || example(all));
        }
    }
}

/// Numbers of equal launches: kernels of one name, grid and block.
struct Signatures<'a> {
    names: NameColumn<'a>,
    /// A dictionary may hold a text twice: the text decides. By key.
    numbers: Vec<Option<u32>>,
    launch: [Folded<'a>; 6],
    keys: SharedKeys<'a>,
    known: NumberMap<Signature, u32>,
    recent: LikeRows<u32, [u64; 6]>,
}

impl<'a> Signatures<'a> {
    fn new(kernels: &Columns<'a>) -> Result<Self> {
        let names = kernels.names("name")?;
        let mut texts: HashMap<&str, u32> = HashMap::new();
        let mut number = |text| {
            let next = u32::try_from(texts.len()).unwrap_or(u32::MAX);
            *texts.entry(text).or_insert(next)
        };
        let numbers = names.texts().map(|text| text.map(&mut number)).collect();
        let column = |name| kernels.folded(name);
        let (grid, block) = (["grid_x", "grid_y", "grid_z"], ["block_x", "block_y", "block_z"]);
        let [grid_x, grid_y, grid_z] = grid.map(column);
        let [block_x, block_y, block_z] = block.map(column);
        let launch = [grid_x?, grid_y?, grid_z?, block_x?, block_y?, block_z?];
        let keys = SharedKeys::of(launch.map(|column| column.keys()));
        Ok(Self { names, numbers, launch, keys, known: NumberMap::default(), recent: LikeRows::default() })
    }

    /// The number of a row; `None` where there is no name.
    fn of(&mut self, row: usize) -> Option<u32> {
        let name = self.numbers.get(self.names.key(row)? as usize).copied().flatten()?;
        let columns = self.launch;
        let launch = || columns.map(|column| column.at(row).map_or(NO_SIZE, u64::from));
        let known = &mut self.known;
        let id = self.recent.place(name, self.keys.at(row), launch, || {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *known.entry((name, launch())).or_insert(next) as usize
        });
        u32::try_from(id).ok()
    }
}

impl EventPass for Facts {
    type Output = Output;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        watch.progress("facts", self.done, 0)?;
        self.work_known |=
            [&schema::KERNELS, &schema::GRAPH_LAUNCHES].iter().any(|t| events.get(t).is_some());
        let kernels = events.get(&schema::KERNELS);
        let mut signatures = kernels.as_ref().map(Signatures::new).transpose()?;
        let launches = kernels.as_ref().map(LaunchColumns::new).transpose()?;
        self.sampled = events.get(&schema::GPU_METRICS).is_some_and(|c| c.rows() > 0);
        let copies = events.get(&schema::MEMOPS);
        let copy_kinds = copies.as_ref().map(|c| c.u8("copy_kind")).transpose()?;
        for w in work(events)? {
            if self.done.is_multiple_of(4096) {
                watch.progress("facts", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            let kernel = w.kind == WorkKind::Kernel;
            let signature = signatures.as_mut().filter(|_| kernel).and_then(|all| all.of(w.row));
            let shape =
                signature.zip(launches.as_ref()).and_then(|(id, launches)| self.shape(&w, id, launches));
            let copy = w.kind == WorkKind::Copy;
            let copy_kind = copy_kinds.filter(|_| copy).and_then(|kinds| at(kinds, w.row));
            let host_copy = copy_kind.is_some_and(|kind| HOST_COPIES.contains(&kind));
            self.take(&w, signature, shape, host_copy);
        }
        if let Some(columns) = events.get(&schema::SWITCH_EVENTS) {
            for device in columns.u32("device_id")?.values() {
                let Some(d) = self.devices.entry(*device) else { continue };
                d.records = d.records.saturating_add(1);
            }
        }
        if let Some(columns) = events.get(&schema::GPU_METRICS) {
            let (device, time) = (columns.u32("device_id")?, columns.i64("time_ns")?);
            let (metric, value) = (columns.names("metric")?, columns.f64("value")?);
            for row in 0..columns.rows() {
                let sm = matches!(metric.get(row), Some("SM Active" | "SMs Active"));
                if let (true, Some(device)) = (sm, at(device, row)) {
                    let Some(d) = self.devices.entry(device) else { continue };
                    d.metric.push((time.value(row), value.value(row)));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, watch: &dyn Watch) -> Result<Output> {
        for device in &self.listed {
            self.devices.entry(*device);
        }
        let devices = std::mem::take(&mut self.devices);
        let lengths = slice_lengths(&self.slices);
        let creation = creation_contexts(&self.slices);
        for slice in std::mem::take(&mut self.slices) {
            self.slices_of.entry(slice.device).or_default().push(slice);
        }
        for tenant in self.who.tenants.iter().filter(|t| t.traced) {
            self.traced.entry(tenant.device).or_default().insert(tenant.id);
        }
        let switches = rows_of(Columns::new(&schema::SWITCHES, &self.switches).u32("device_id")?);
        let pairs = rows_of(Columns::new(&schema::OVERLAPS, &self.overlaps).u32("device_id")?);
        let of = |rows: &BTreeMap<u32, Vec<usize>>, id: &u32| rows.get(id).cloned().unwrap_or_default();
        let mut sheet = Sheet::default();
        for (id, device) in devices.sorted() {
            watch.progress("facts", self.done, self.done)?;
            let complete: Vec<&Slice> = self
                .held(id)
                .iter()
                .filter(|s| s.complete && !s.is_driver())
                .filter(|s| !creation.contains(&(s.device, s.hw_context, s.pid)))
                .collect();
            let lengths = lengths.get(&id).map_or(&[][..], Vec::as_slice);
            self.work_facts(&mut sheet, id, device);
            self.residency_facts(&mut sheet, id, device, &complete, lengths);
            self.switch_facts(&mut sheet, id, device.records > 0, of(&switches, &id))?;
            self.pair_facts(&mut sheet, id, device, of(&pairs, &id))?;
            repeat_facts(&mut sheet, id, device, self.work_known);
            metric_facts(&mut sheet, id, device, self.work_known);
        }
        sheet.write()
    }
}

/// What each tenant of a device did, in order of their ids.
fn of_tenants(d: &OfDevice) -> impl Iterator<Item = &OfTenant> {
    d.tenants.sorted().map(|(_, of)| of)
}

/// Row numbers by device.
fn rows_of(device: &UInt32Array) -> BTreeMap<u32, Vec<usize>> {
    let mut rows: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for row in 0..device.len() {
        rows.entry(device.value(row)).or_default().push(row);
    }
    rows
}

impl Facts {
    /// Residency intervals of a device.
    fn held(&self, id: u32) -> &[Slice] {
        self.slices_of.get(&id).map_or(&[], Vec::as_slice)
    }

    fn work_facts(&self, sheet: &mut Sheet, id: u32, d: &OfDevice) {
        let held = || self.held(id).iter();
        let first = held().map(|s| s.start_ns).chain(d.first_ns).min();
        let last = held().map(|s| s.end_ns).chain(d.last_ns).max();
        let window = first.zip(last).map(|(a, b)| b.saturating_sub(a) as f64);
        let n = d.kernels.saturating_add(d.graphs);
        sheet.put(id, "window_ns", window, n, "observed", "no activity");
        let known = |v: f64| self.work_known.then_some(v);
        let busy = d.busy.total_ns as f64;
        sheet.put(id, "kernels", known(d.kernels as f64), d.kernels, "observed", NO_KERNELS);
        sheet.put(id, "graph_launches", known(d.graphs as f64), d.graphs, "observed", NO_KERNELS);
        sheet.put(id, "busy_ns", known(busy), n, "observed", NO_KERNELS);
        sheet.examples(id, "busy_ns", &d.top_busy);
        let share = window.filter(|w| *w > 0.0).and_then(|w| known(busy / w));
        sheet.put(id, "busy_share", share, n, "observed", NO_KERNELS);
        let traced = self.traced.get(&id).map_or(0, BTreeSet::len);
        sheet.put(id, "traced_tenants", Some(traced as f64), traced as u64, "observed", "");
        // The longest of each of the three with the longest.
        let mut top = Top::default();
        for (dur_ns, example) in of_tenants(d).filter_map(|t| t.longest.0.first()) {
            top.see(*dur_ns, || *example);
        }
        sheet.examples(id, "traced_tenants", &top);
        sheet.put(
            id,
            "preemption_exposure",
            known(busy / DEFAULT_SLICE_NS as f64),
            n,
            "inferred",
            NO_KERNELS,
        );
        let unbroken = d.unbroken.total_ns() as f64 / DEFAULT_SLICE_NS as f64;
        sheet.put(id, "unbroken_exposure", known(unbroken), n, "inferred", NO_KERNELS);
        let n = d.starts_behind_copies;
        let prompt = (n > 0).then(|| d.starts_prompt as f64 / n as f64);
        sheet.put(
            id,
            "prompt_start_share",
            prompt,
            n,
            "observed",
            "no kernel started behind a copy of 50 us",
        );
        sheet.examples(id, "prompt_start_share", &d.top_prompt);
        let streams = of_tenants(d).flat_map(|t| &t.contexts).map(|c| c.streams.len()).max();
        let streams = streams.unwrap_or(0);
        let kernels = (self.work_known && d.kernels > 0).then_some(());
        let unseen = if d.graphs > 0 {
            "only whole graphs were traced; record with --cuda-graph-trace=node"
        } else {
            NO_KERNELS
        };
        sheet.put(id, "streams_used", kernels.map(|()| streams as f64), d.kernels, "observed", unseen);
        let most = |f: fn(&OfTenant) -> f64| of_tenants(d).map(f).fold(0.0, f64::max);
        let several = most(|t| t.several.total_ns as f64);
        sheet.put(id, "stream_overlap_ns", kernels.map(|()| several), d.kernels, "observed", unseen);
        sheet.examples(id, "stream_overlap_ns", &d.top_several);
        let share =
            most(
                |t| {
                    if t.busy.total_ns > 0 {
                        t.several.total_ns as f64 / t.busy.total_ns as f64
                    } else {
                        0.0
                    }
                },
            );
        sheet.put(id, "stream_overlap_share", kernels.map(|()| share), d.kernels, "observed", unseen);
        let h = &d.stream_changes;
        let at_once = kernels.map(|()| h.at_once as f64);
        sheet.put(id, "streams_at_once", at_once, d.kernels, "observed", unseen);
        sheet.put(id, "stream_changes", kernels.map(|()| h.all as f64), d.kernels, "observed", unseen);
        sheet.examples(id, "stream_changes", &h.top);
        let why = if kernels.is_some() { "no kernel followed one of another stream" } else { unseen };
        let rest = h.all.saturating_sub(h.late).saturating_sub(h.default).saturating_sub(h.full);
        for (name, n) in [
            ("stream_late_share", h.late),
            ("stream_default_share", h.default),
            ("stream_full_share", h.full),
            ("stream_waited_share", rest),
        ] {
            let share = (h.all > 0).then(|| n as f64 / h.all as f64);
            sheet.put(id, name, share, h.all, "inferred", why);
        }
        let same = most(|t| t.same.total_ns as f64);
        sheet.put(id, "same_stream_overlap_ns", kernels.map(|()| same), d.kernels, "observed", unseen);
        sheet.examples(id, "same_stream_overlap_ns", &d.top_same);
        let pairs = self.work_known.then_some(d.co_busy.total_ns as f64);
        sheet.put(id, "co_busy_ns", pairs, d.kernels, "observed", NO_KERNELS);
        sheet.examples(id, "co_busy_ns", &d.top_co_busy);
        let share = (busy > 0.0).then(|| d.co_busy.total_ns as f64 / busy);
        sheet.put(id, "co_busy_share", share, d.kernels, "observed", NO_KERNELS);
    }

    fn residency_facts(
        &self,
        sheet: &mut Sheet,
        id: u32,
        d: &OfDevice,
        complete: &[&Slice],
        lengths: &[i64],
    ) {
        let looked = (d.records > 0).then_some(());
        let recorded = looked.map(|()| d.records as f64);
        sheet.put(id, "switch_records", recorded, d.records, "observed", NO_SWITCHES);
        let mut held: BTreeMap<Option<u32>, (i64, u64)> = BTreeMap::new();
        let mut total_ns = 0_i64;
        for s in self.held(id).iter().filter(|s| !s.is_driver()) {
            let entry = held.entry(s.tenant).or_default();
            entry.0 = entry.0.saturating_add(s.dur_ns());
            total_ns = total_ns.saturating_add(s.dur_ns());
        }
        for s in complete {
            held.entry(s.tenant).or_default().1 += 1;
        }
        let resident = held
            .values()
            .filter(|(ns, slices)| *slices >= 2 || (total_ns > 0 && ns.saturating_mul(100) >= total_ns));
        let n = complete.len() as u64;
        let resident = looked.map(|()| resident.count() as f64);
        sheet.put(id, "resident_tenants", resident, held.len() as u64, "observed", NO_SWITCHES);

        let close: Vec<_> = complete
            .iter()
            .zip(complete.iter().skip(1))
            .filter(|(a, b)| b.start_ns.saturating_sub(a.end_ns) <= TURN_NS)
            .collect();
        let turns = close.iter().filter(|(a, b)| a.tenant != b.tenant).count();
        let share = (!close.is_empty()).then(|| turns as f64 / close.len() as f64);
        let why = if looked.is_some() { "no two complete slices near each other" } else { NO_SWITCHES };
        sheet.put(id, "alternation_share", share, close.len() as u64, "observed", why);
        let mut top = Top::default();
        for (a, b) in close.iter().filter(|(a, b)| a.tenant != b.tenant) {
            top.see(a.dur_ns().min(b.dur_ns()), || slice_example(a));
        }
        sheet.examples(id, "alternation_share", &top);

        let why = if looked.is_some() { "no complete slice" } else { NO_SWITCHES };
        let middle = median(lengths);
        sheet.put(id, "median_slice_ns", middle, n, "observed", why);
        let mut top = Top::default();
        for s in complete {
            top.see(s.dur_ns(), || slice_example(s));
        }
        sheet.examples(id, "median_slice_ns", &top);
        let spread = mad(lengths).zip(middle.filter(|m| *m > 0.0)).map(|(mad, m)| mad / m);
        sheet.put(id, "slice_spread", spread, n, "observed", why);

        let why = if looked.is_some() { "" } else { NO_SWITCHES };
        let inside = looked.map(|()| d.kernels_in_preemption as f64);
        sheet.put(id, "kernels_in_preemption", inside, d.kernels_in_preemption, "observed", why);
        sheet.examples(id, "kernels_in_preemption", &d.top_in_preemption);

        let share = |ns: i64| (total_ns > 0).then(|| ns as f64 / total_ns as f64);
        let traced = self.traced.get(&id);
        let untraced = |t: &Option<u32>| t.is_none_or(|t| !traced.is_some_and(|all| all.contains(&t)));
        let others =
            held.iter().filter(|(t, _)| untraced(t)).fold(0_i64, |sum, (_, (ns, _))| sum.saturating_add(*ns));
        let why = if looked.is_some() { "nothing was resident for any time" } else { NO_SWITCHES };
        let slices = self.held(id).len() as u64;
        sheet.put(id, "resident_share_untraced", share(others), slices, "observed", why);
        let mut top = Top::default();
        let strange = |s: &&Slice| !s.is_driver() && untraced(&s.tenant);
        for s in self.held(id).iter().filter(strange) {
            top.see(s.dur_ns(), || slice_example(s));
        }
        sheet.examples(id, "resident_share_untraced", &top);
        let most = held.iter().max_by_key(|(_, (ns, _))| *ns);
        let most_ns = most.map_or(0, |(_, (ns, _))| *ns);
        sheet.put(id, "resident_share_top", share(most_ns), n, "observed", why);
        let mut top = Top::default();
        let of_most = |s: &&Slice| most.is_some_and(|(tenant, _)| s.tenant == *tenant);
        for s in self.held(id).iter().filter(of_most) {
            top.see(s.dur_ns(), || slice_example(s));
        }
        sheet.examples(id, "resident_share_top", &top);
    }

    fn switch_facts(&self, sheet: &mut Sheet, id: u32, looked: bool, rows: Vec<usize>) -> Result<()> {
        let columns = Columns::new(&schema::SWITCHES, &self.switches);
        let (time, gap) = (columns.i64("time_ns")?, columns.i64("gap_ns")?);
        let (from, to) = (columns.u32("from_tenant_id")?, columns.u32("to_tenant_id")?);
        let (from_hw, to_hw) = (columns.u64("from_hw_context")?, columns.u64("to_hw_context")?);
        let kind = columns.names("kind")?;
        // Who was resident before a channel of the driver: that stands between two tenants, and is none.
        let mut before_driver: Option<u32> = None;
        let (mut all, mut between) = (0_u64, 0_u64);
        let (mut cost_ns, mut turn_cost_ns, mut turns_ns) = (0_i64, 0_i64, 0_i64);
        let mut gaps = Vec::new();
        let mut top = Top::default();
        let mut turn: Option<(i64, i64)> = None;
        for row in rows {
            let (start, gap_ns) = (time.value(row), gap.value(row));
            let end = start.saturating_add(gap_ns);
            let from_driver = from_hw.value(row) >= DRIVER_HW_CONTEXT;
            let outgoing = if from_driver { before_driver } else { at(from, row) };
            let to_driver = to_hw.value(row) >= DRIVER_HW_CONTEXT;
            if to_driver {
                before_driver = outgoing;
            }
            let changes = !to_driver && outgoing != at(to, row);
            let counted = matches!(kind.get(row), Some("switch" | "idle"));
            all = all.saturating_add(u64::from(counted));
            between = between.saturating_add(u64::from(counted && changes));
            if kind.get(row) != Some("switch") {
                continue;
            }
            gaps.push(gap_ns);
            cost_ns = cost_ns.saturating_add(gap_ns);
            let example = Example { capture: 0, start_ns: start, end_ns: end, pid: None, correlation: None };
            top.see(gap_ns, || example);
            if changes {
                turn_cost_ns = turn_cost_ns.saturating_add(gap_ns);
                match &mut turn {
                    Some((_, last)) if start.saturating_sub(*last) <= TURN_NS => *last = end,
                    other => {
                        turns_ns = turns_ns.saturating_add(other.map_or(0, |(a, b)| b.saturating_sub(a)));
                        *other = Some((start, end));
                    }
                }
            }
        }
        turns_ns = turns_ns.saturating_add(turn.map_or(0, |(a, b)| b.saturating_sub(a)));
        let seen = |v: f64| looked.then_some(v);
        let n = gaps.len() as u64;
        sheet.put(id, "switches_between_tenants", seen(between as f64), all, "observed", NO_SWITCHES);
        let why = if looked { "no back-to-back switch" } else { NO_SWITCHES };
        sheet.put(id, "median_gap_ns", median(&gaps), n, "observed", why);
        sheet.put(id, "switch_cost_ns", seen(cost_ns as f64), n, "observed", NO_SWITCHES);
        // The switch table names no capture; the slice that ends there does.
        for (_, example) in &mut top.0 {
            let slice = self.held(id).iter().find(|s| s.end_ns == example.start_ns);
            if let Some(slice) = slice {
                (example.capture, example.pid) = (slice.capture, slice.pid);
            }
        }
        sheet.examples(id, "switch_cost_ns", &top);
        let why = if looked { "tenants were not time-sliced" } else { NO_SWITCHES };
        let share = (turns_ns > 0).then(|| turn_cost_ns as f64 / turns_ns as f64);
        sheet.put(id, "switch_overhead_share", share, n, "observed", why);
        Ok(())
    }

    fn pair_facts(&self, sheet: &mut Sheet, id: u32, d: &OfDevice, rows: Vec<usize>) -> Result<()> {
        let columns = Columns::new(&schema::OVERLAPS, &self.overlaps);
        let (resident, expected) = (columns.i64("co_resident_ns")?, columns.f64("short_short_expected")?);
        let (contended, met) = (columns.u64("short_kernels")?, columns.u64("short_short_overlapping")?);
        let mut co_resident: Option<i64> = None;
        let (mut n, mut hits, mut chance) = (0_u64, 0_u64, 0.0);
        for row in rows {
            if let Some(ns) = at(resident, row) {
                co_resident = Some(co_resident.unwrap_or(0).saturating_add(ns));
            }
            n = n.saturating_add(at(contended, row).unwrap_or(0));
            hits = hits.saturating_add(at(met, row).unwrap_or(0));
            chance += at(expected, row).unwrap_or(0.0);
        }
        // Pairs that never met may have no row.
        let holders: BTreeSet<u32> = self.held(id).iter().filter_map(|s| s.tenant).collect();
        let co_resident = co_resident.or((holders.len() > 1).then_some(0));
        let paired = self.traced.get(&id).is_some_and(|traced| traced.len() > 1);
        let why = if d.records > 0 { "fewer than two tenants with residency" } else { NO_SWITCHES };
        sheet.put(id, "co_resident_ns", co_resident.map(|v| v as f64), d.records, "observed", why);
        let why = if self.work_known { "fewer than two traced tenants" } else { NO_KERNELS };
        sheet.put(id, "short_kernels_contended", paired.then_some(n as f64), n, "observed", why);
        let why = if paired { "no short kernel met work of another tenant" } else { why };
        let share = |v: f64| (n > 0).then(|| v / n as f64);
        sheet.put(id, "short_overlap_share", share(hits as f64), n, "observed", why);
        sheet.examples(id, "short_overlap_share", &d.top_short_met);
        sheet.examples(id, "short_kernels_contended", &d.top_short_apart);
        sheet.put(id, "short_overlap_expected", share(chance), n, "inferred", why);
        Ok(())
    }
}

fn slice_example(s: &Slice) -> Example {
    Example { capture: s.capture, start_ns: s.start_ns, end_ns: s.end_ns, pid: s.pid, correlation: None }
}

fn repeat_facts(sheet: &mut Sheet, id: u32, d: &OfDevice, known: bool) {
    let mut launches = 0_u64;
    let (mut inflated, mut deviating) = (0_u64, 0_u64);
    let (mut excess_ns, mut ratios_ppm) = (Vec::new(), Vec::new());
    let mut spreads = Vec::new();
    let mut top = Top::default();
    let groups = of_tenants(d).flat_map(|t| &t.groups);
    for group in groups.filter(|g| g.durs.len() >= REPEATS) {
        let n = group.durs.len() as u64;
        let Some(middle) = median(&group.durs) else { continue };
        launches = launches.saturating_add(n);
        let long = |dur: i64| dur as f64 > middle + STRETCH_NS && dur as f64 > 1.5 * middle;
        let deviates = |dur: i64| (dur as f64 - middle).abs() > STRETCH_NS;
        deviating = deviating.saturating_add(group.durs.iter().filter(|d| deviates(**d)).count() as u64);
        for dur in group.durs.iter().filter(|d| long(**d)) {
            inflated = inflated.saturating_add(1);
            excess_ns.push(dur.saturating_sub(middle as i64));
            ratios_ppm.push((1e6 * *dur as f64 / middle) as i64);
        }
        for (dur, example) in group.longest.0.iter().filter(|(dur, _)| long(*dur)) {
            top.see(dur.saturating_sub(middle as i64), || *example);
        }
        if let (Some(mad), true) = (mad(&group.durs), middle > 0.0) {
            spreads.push((mad / middle, n));
        }
    }
    sheet.put(id, "repeats", known.then_some(launches as f64), d.kernels, "observed", NO_KERNELS);
    let why = if known { "no kernel was launched five times in the same shape" } else { NO_KERNELS };
    let share = |part: u64| (launches > 0).then(|| part as f64 / launches as f64);
    sheet.put(id, "deviating_share", share(deviating), launches, "inferred", why);
    sheet.put(id, "inflated_share", share(inflated), launches, "inferred", why);
    sheet.examples(id, "inflated_share", &top);
    let n = excess_ns.len() as u64;
    let why = if launches > 0 { "no repeat is inflated" } else { why };
    sheet.put(id, "inflation_ns", median(&excess_ns), n, "inferred", why);
    let relative = |values: &[i64]| mad(values).zip(median(values)).map(|(mad, middle)| mad / middle);
    sheet.put(id, "inflation_spread", relative(&excess_ns), n, "inferred", why);
    sheet.put(id, "inflation_ratio_spread", relative(&ratios_ppm), n, "inferred", why);
    sheet.put(id, "repeat_spread", weighted_median(&spreads), launches, "observed", why);
    let traced = d.tenants.len() > 1;
    let why =
        if traced { "no kernel started beside one of many waves" } else { "fewer than two traced tenants" };
    for (c, [starts, share]) in [
        (&d.crowded, ["crowded_starts", "crowded_start_share"]),
        (&d.crowded_unknown, ["crowded_starts_unknown_priority", "crowded_start_share_unknown_priority"]),
    ] {
        sheet.put(id, starts, traced.then_some(c.starts as f64), c.starts, "inferred", why);
        let crowded = (c.starts > 0).then(|| c.crowded as f64 / c.starts as f64);
        sheet.put(id, share, crowded, c.starts, "inferred", why);
        sheet.examples(id, share, &c.top);
    }
}

fn metric_facts(sheet: &mut Sheet, id: u32, d: &OfDevice, known: bool) {
    let (mut outside, mut inside) = ((0.0, 0_u64), (0.0, 0_u64));
    let samples = d.metric.iter().zip(d.metric.iter().skip(1));
    // A sample covers the time until the next one: the last covers a time that is not known.
    for ((time, value), (next, _)) in samples {
        let (start, end) = (time.saturating_sub(METRIC_GUARD_NS), next.saturating_add(METRIC_GUARD_NS));
        let far = if d.busy_beside_samples.covered_ns(*time, *next) > 0 {
            &mut inside
        } else if d.busy_beside_samples.covered_ns(start, end) == 0 {
            &mut outside
        } else {
            continue;
        };
        far.0 += value;
        far.1 = far.1.saturating_add(1);
    }
    let mean = |(sum, n): (f64, u64)| (n > 0 && known).then(|| sum / n as f64);
    let why = if d.metric.is_empty() {
        NO_METRICS
    } else if known {
        "no such sample"
    } else {
        NO_KERNELS
    };
    sheet.put(id, "metric_outside_pct", mean(outside), outside.1, "sampled", why);
    sheet.put(id, "metric_inside_pct", mean(inside), inside.1, "sampled", why);
}

#[derive(Debug, Default)]
struct Sheet {
    device: Vec<u32>,
    name: Vec<&'static str>,
    value: Vec<Option<f64>>,
    n: Vec<u64>,
    basis: Vec<&'static str>,
    detail: Vec<&'static str>,
    examples: Vec<(u32, &'static str, Example)>,
}

impl Sheet {
    /// Adds a fact; `why` says why there is no value, if there is none.
    fn put(
        &mut self,
        device: u32,
        name: &'static str,
        value: Option<f64>,
        n: u64,
        basis: &'static str,
        why: &'static str,
    ) {
        let doc = FACTS.iter().find(|f| f.0 == name).map_or("", |f| f.2);
        self.device.push(device);
        self.name.push(name);
        self.value.push(value);
        self.n.push(n);
        self.basis.push(basis);
        self.detail.push(if value.is_some() { doc } else { why });
    }

    fn examples(&mut self, device: u32, name: &'static str, top: &Top) {
        self.examples.extend(top.0.iter().map(|(_, e)| (device, name, *e)));
    }

    fn write(&self) -> Result<Output> {
        let unit = |name: &&'static str| FACTS.iter().find(|f| f.0 == *name).map_or("1", |f| f.1);
        let facts = Builder::new(&schema::FACTS)
            .put("device_id", UInt32Array::from(self.device.clone()))
            .put_names("name", self.name.iter().map(|n| Some(*n)))
            .put("value", Float64Array::from(self.value.clone()))
            .put_names("unit", self.name.iter().map(|n| Some(unit(n))))
            .put("n", UInt64Array::from(self.n.clone()))
            .put_names("basis", self.basis.iter().map(|b| Some(*b)))
            .put("detail", self.detail.iter().map(|d| Some(*d)).collect::<StringArray>())
            .finish(self.name.len())?;
        let e = &self.examples;
        let fact_examples = Builder::new(&schema::FACT_EXAMPLES)
            .put("device_id", e.iter().map(|e| Some(e.0)).collect::<UInt32Array>())
            .put_names("fact", e.iter().map(|e| Some(e.1)))
            .put("capture", e.iter().map(|e| Some(e.2.capture)).collect::<UInt32Array>())
            .put("start_ns", e.iter().map(|e| Some(e.2.start_ns)).collect::<Int64Array>())
            .put("end_ns", e.iter().map(|e| Some(e.2.end_ns)).collect::<Int64Array>())
            .put("pid", e.iter().map(|e| e.2.pid).collect::<UInt32Array>())
            .put("correlation_id", e.iter().map(|e| e.2.correlation).collect::<UInt32Array>())
            .finish(e.len())?;
        Ok(Output { facts, fact_examples })
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::UInt8Array;

    use super::*;
    use crate::base::watch::Unwatched;
    use crate::pipeline::reconstruct;
    use crate::test_tables::{kernels, of_one_stream, K};

    fn of(tables: &Tables) -> BTreeMap<String, (Option<f64>, String)> {
        let made = reconstruct(tables, &Unwatched).unwrap();
        let c = Columns::new(&schema::FACTS, &made["facts"]);
        (0..c.rows())
            .map(|r| {
                let value = at(c.f64("value").unwrap(), r);
                let detail = c.text("detail").unwrap().value(r).to_owned();
                (c.names("name").unwrap().get(r).unwrap().to_owned(), (value, detail))
            })
            .collect()
    }

    fn work(rows: &[K]) -> Tables {
        Tables::from([("kernels", kernels(rows))])
    }

    #[test]
    fn inflated_repeats_stand_out() {
        // nine kernels of 1000 us; one of 3500 us, as a switch inside it would make it
        let mut rows: Vec<K> = (0..9).map(|n| (0, 7, 0, 1, 7, n * 5000, n * 5000 + 1000)).collect();
        rows.push((0, 7, 0, 1, 7, 45_000, 48_500));
        let facts = of(&work(&rows));
        assert_eq!(facts["repeats"].0, Some(10.0));
        assert_eq!(facts["inflated_share"].0, Some(0.1));
        assert_eq!(facts["deviating_share"].0, Some(0.1));
        // Of 12.5 ms only the longest kernel lasts a slice of 2.13 ms without a pause: a cut may come after that.
        assert_eq!(facts["unbroken_exposure"].0, Some(1_368_500.0 / DEFAULT_SLICE_NS as f64));
        assert_eq!(facts["repeat_spread"].0, Some(0.0));
        assert_eq!(facts["busy_ns"].0, Some(12_500_000.0));
        assert_eq!(facts["window_ns"].0, Some(48_500_000.0));
        let made = reconstruct(&work(&rows), &Unwatched).unwrap();
        let e = Columns::new(&schema::FACT_EXAMPLES, &made["fact_examples"]);
        let row = (0..e.rows()).find(|r| e.names("fact").unwrap().get(*r) == Some("inflated_share")).unwrap();
        assert_eq!(e.i64("start_ns").unwrap().value(row), 45_000_000);
        // Four launches have no like.
        assert_eq!(of(&work(&rows[..4]))["inflated_share"].0, None);
    }

    #[test]
    fn starts_behind_copies_are_prompt_or_not() {
        // Stream 7: the kernel behind a copy of 60 us starts 2 us later, that behind the next 2 ms later; behind one of
        // 60 us, a fill and a copy on the device another starts after 90 us of standing still. Not counted: those behind
        // a copy of 40 us, behind a copy on the device of 0.9 ms, and behind a copy beside which the tenant had a
        // kernel in flight until 10 us before its end.
        let copies = [
            (Some(1_u8), 100_i64, 160_i64),
            (Some(2), 300, 400),
            (Some(1), 2600, 2640),
            (Some(1), 2800, 2860),
            (None, 2900, 2910),
            (Some(8), 2940, 3100),
            (Some(1), 3200, 3300),
            (Some(8), 3310, 4210),
            (Some(1), 4500, 4600),
        ];
        let starts = [(0, 10), (162, 200), (2400, 2500), (2641, 2700), (3120, 3150), (4211, 4300)];
        let mut rows: Vec<K> = starts.iter().map(|(a, b)| (0, 7, 0, 1, 7, *a, *b)).collect();
        rows.extend([(0, 7, 0, 1, 8, 4450, 4590), (0, 7, 0, 1, 7, 4601, 4700)]);
        let mut tables = work(&rows);
        let times: Vec<_> = copies.iter().map(|c| (1000 * c.1, 1000 * c.2)).collect();
        let kinds = copies.iter().map(|c| c.0).collect::<UInt8Array>();
        let made =
            of_one_stream(&schema::MEMOPS, &times).put("copy_kind", kinds).finish(copies.len()).unwrap();
        tables.insert("memops", made);
        let made = reconstruct(&tables, &Unwatched).unwrap();
        let c = Columns::new(&schema::FACTS, &made["facts"]);
        let row = (0..c.rows()).find(|r| c.names("name").unwrap().get(*r) == Some("prompt_start_share"));
        let row = row.unwrap();
        assert_eq!(c.u64("n").unwrap().value(row), 3);
        assert_eq!(at(c.f64("value").unwrap(), row), Some(2.0 / 3.0));
        assert_eq!(of(&work(&rows))["prompt_start_share"].0, None);
    }

    #[test]
    fn a_smaller_block_may_fit_beside_full_sms() {
        // Blocks of 8 warps, seven on an SM of 60: 4 warps are left.
        let shape = |warps: u64| Shape { waves: 4.0, block: [warps, 0, 0, 1], left: [60 % warps, 0, 0, 9] };
        assert!(shape(8).keeps_out(&shape(8)));
        assert!(shape(8).keeps_out(&shape(6)));
        assert!(!shape(8).keeps_out(&shape(4)));
    }

    /// Kernels as (pid, start, end in us, grid) of stream 7, see [`streamed`].
    fn launched(rows: &[(u32, i64, i64, u32)]) -> Tables {
        let rows: Vec<_> = rows.iter().map(|r| (r.0, r.1, r.2, r.3, 7)).collect();
        streamed(&rows)
    }

    /// Kernels as (pid, start, end in us, grid, stream), blocks of 256 threads, on a device of cc 8.0 with two SMs: 16
    /// blocks at once.
    fn streamed(rows: &[(u32, i64, i64, u32, u32)]) -> Tables {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|r| r.1);
        let n = rows.len();
        let same = |value: u32| UInt32Array::from(vec![value; n]);
        let kernels = Builder::new(&schema::KERNELS)
            .put("capture", same(0))
            .put("pid", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
            .put("device_id", same(0))
            .put("context_id", same(1))
            .put("stream_id", rows.iter().map(|r| Some(r.4)).collect::<UInt32Array>())
            .put("start_ns", rows.iter().map(|r| Some(r.1 * 1000)).collect::<Int64Array>())
            .put("end_ns", rows.iter().map(|r| Some(r.2 * 1000)).collect::<Int64Array>())
            .put_names("name", rows.iter().map(|_| Some("k")))
            .put("grid_x", rows.iter().map(|r| Some(r.3)).collect::<UInt32Array>())
            .put("grid_y", same(1))
            .put("grid_z", same(1))
            .put("block_x", same(256))
            .put("block_y", same(1))
            .put("block_z", same(1))
            .put("registers_per_thread", same(32))
            .put("static_shared_bytes", Int64Array::from(vec![0; n]))
            .put("dynamic_shared_bytes", Int64Array::from(vec![0; n]))
            .finish(n)
            .unwrap();
        let devices = Builder::new(&schema::DEVICES)
            .put("capture", UInt32Array::from(vec![0]))
            .put("device_id", UInt32Array::from(vec![0]))
            .put("compute_major", UInt32Array::from(vec![8]))
            .put("compute_minor", UInt32Array::from(vec![0]))
            .put("sm_count", UInt32Array::from(vec![2]))
            .put_names("limits_basis", [Some("capture")])
            .finish(1)
            .unwrap();
        let devices =
            crate::session::devices::complete(&devices, &mut crate::table::quality::Quality::default())
                .unwrap();
        Tables::from([("kernels", kernels), ("devices", devices)])
    }

    #[test]
    fn slices_add_to_kernels_of_any_length() {
        // Two kinds of kernels, 1000 us and 4000 us, each nine times as usual and three times with 2200 us on top:
        // the excess is the same, the ratios (3.2 and 1.55) are not.
        let mut rows = Vec::new();
        for (grid, dur) in [(1, 1000), (2, 4000)] {
            for n in 0..12 {
                let start = n * 20_000 + i64::from(grid) * 1_000_000;
                rows.push((7, start, start + dur + if n < 9 { 0 } else { 2200 }, grid));
            }
        }
        let facts = of(&launched(&rows));
        assert_eq!(facts["inflated_share"].0, Some(0.25));
        assert_eq!(facts["inflation_ns"].0, Some(2_200_000.0));
        assert_eq!(facts["inflation_spread"].0, Some(0.0));
        // Ratios 3.2 three times, 1.55 three times: the median 2.375 is 0.825 from each.
        let spread = facts["inflation_ratio_spread"].0.unwrap();
        assert!((spread - 0.825 / 2.375).abs() < 1e-5, "{spread}");
        assert_eq!(facts["crowded_starts"].0, None);
    }

    #[test]
    fn a_kernel_of_many_waves_leaves_no_room_until_its_last() {
        // 16 blocks fit: 64 blocks are four waves, of 1000 us each.
        //   wide  |0 ==== ==== ==== ====4000|
        //   other          |1500|             while three waves are to come: crowded
        //   other                     |3500|  in the last wave there is room
        //   other |10|                        its blocks may have come first
        let small = |at| (8, at, at + 100, 4);
        let facts = of(&launched(&[(7, 0, 4000, 64), small(10), small(1500), small(3500)]));
        assert_eq!(facts["crowded_starts_unknown_priority"].0, Some(2.0));
        assert_eq!(facts["crowded_start_share_unknown_priority"].0, Some(0.5));
        // The priorities of these streams were not recorded.
        assert_eq!(facts["crowded_starts"].0, Some(0.0));
        // Beside a third kernel nothing can be said.
        let third = (9, 500, 3900, 1);
        let facts = of(&launched(&[(7, 0, 4000, 64), third, small(1500)]));
        assert_eq!(facts["crowded_starts_unknown_priority"].0, Some(1.0));
        // Two waves go in at once and leave soon: nothing can be said. Its own kernels do not count.
        let facts = of(&launched(&[(7, 0, 4000, 32), small(1500), (7, 5000, 9000, 64), (7, 6000, 7000, 4)]));
        assert_eq!(facts["crowded_starts_unknown_priority"].0, Some(0.0));
        assert_eq!(facts["crowded_start_share_unknown_priority"].0, None);
    }

    #[test]
    fn several_streams_are_not_yet_concurrency() {
        // stream 7 |0==10|          stream 8       |20==30|
        let facts = of(&work(&[(0, 7, 0, 1, 7, 0, 10), (0, 7, 0, 1, 8, 20, 30)]));
        assert_eq!((facts["streams_used"].0, facts["stream_overlap_ns"].0), (Some(2.0), Some(0.0)));
        // stream 7 |0=======10|
        // stream 8     |5========20|   and another process on its own stream 7, which is not concurrency of streams
        let facts = of(&work(&[(0, 7, 0, 1, 7, 0, 10), (0, 7, 0, 1, 8, 5, 20), (0, 8, 0, 1, 7, 0, 20)]));
        assert_eq!(facts["stream_overlap_ns"].0, Some(5000.0));
        assert_eq!(facts["stream_overlap_share"].0, Some(0.25));
        assert_eq!(facts["co_busy_ns"].0, Some(20_000.0));
        assert_eq!(facts["same_stream_overlap_ns"].0, Some(0.0));
        assert_eq!(facts["traced_tenants"].0, Some(2.0));
    }

    #[test]
    fn why_kernels_of_streams_follow_each_other() {
        // stream 13 |==== full|     |=====|
        // stream 14            |====|         100 us |====|         14 leaves room; then nothing is queued
        // stream  7                                       |=====|   the default stream
        // stream 13                                          |======|   beside it: not after it
        let mut tables = streamed(&[
            (7, 0, 100, 16, 13),
            (7, 101, 200, 4, 14),
            (7, 201, 300, 4, 13),
            (7, 400, 500, 4, 14),
            (7, 501, 600, 4, 7),
            (7, 550, 650, 4, 13),
        ]);
        let one = |value: u32| UInt32Array::from(vec![value]);
        let contexts = Builder::new(&schema::CONTEXTS)
            .put("capture", one(0))
            .put("pid", one(7))
            .put("context_id", one(1))
            .put("device_id", one(0))
            .put("null_stream_id", one(7))
            .finish(1)
            .unwrap();
        let unlisted = of(&tables);
        tables.insert("contexts", contexts);
        let facts = of(&tables);
        assert_eq!((facts["streams_used"].0, facts["streams_at_once"].0), (Some(3.0), Some(2.0)));
        assert_eq!(facts["stream_changes"].0, Some(4.0));
        for name in ["stream_full_share", "stream_waited_share", "stream_late_share", "stream_default_share"]
        {
            assert_eq!(facts[name].0, Some(0.25), "{name}");
        }
        // Which stream is the default one was not recorded: the kernel before left room.
        assert_eq!(
            (unlisted["stream_default_share"].0, unlisted["stream_waited_share"].0),
            (Some(0.0), Some(0.5))
        );
        // One stream has nothing to follow.
        let facts = of(&streamed(&[(7, 0, 100, 16, 13), (7, 101, 200, 4, 13)]));
        assert_eq!((facts["stream_changes"].0, facts["stream_full_share"].0), (Some(0.0), None));
    }

    #[test]
    fn short_kernels_are_shown_that_met_or_did_not() {
        let shown = |rows: &[K], fact: &str| -> Vec<(i64, i64)> {
            let made = reconstruct(&work(rows), &Unwatched).unwrap();
            let e = Columns::new(&schema::FACT_EXAMPLES, &made["fact_examples"]);
            let rows = (0..e.rows()).filter(|r| e.names("fact").unwrap().get(*r) == Some(fact));
            rows.map(|r| (e.i64("start_ns").unwrap().value(r), e.i64("end_ns").unwrap().value(r))).collect()
        };
        // 7 |0=====100|   |1000 ============ 3000|
        // 8      |60==150|        |1500=1600|          the first two meet for 40 us, the third runs inside a long one
        let rows = [
            (0, 7, 0, 1, 7, 0, 100),
            (0, 8, 0, 1, 7, 60, 150),
            (0, 7, 0, 1, 7, 1000, 3000),
            (0, 8, 0, 1, 7, 1500, 1600),
        ];
        assert_eq!(shown(&rows, "short_overlap_share"), [(60_000, 100_000)]);
        assert_eq!(shown(&rows, "short_kernels_contended"), [(1_500_000, 1_600_000)]);
        assert_eq!(shown(&rows, "traced_tenants"), [(1_000_000, 3_000_000), (1_500_000, 1_600_000)]);
    }

    #[test]
    fn what_was_not_looked_at_is_null_with_a_reason() {
        let facts = of(&work(&[(0, 7, 0, 1, 7, 0, 10)]));
        for (name, reason) in [
            ("switch_records", "gpuctxsw"),
            ("resident_share_untraced", "gpuctxsw"),
            ("switch_cost_ns", "gpuctxsw"),
            ("metric_outside_pct", "gpu-metrics"),
            ("short_overlap_share", "fewer than two"),
        ] {
            assert_eq!(facts[name].0, None, "{name}");
            assert!(facts[name].1.contains(reason), "{name}: {}", facts[name].1);
        }
        let metrics = Builder::new(&schema::GPU_METRICS)
            .put("capture", UInt32Array::from(vec![0]))
            .put("device_id", UInt32Array::from(vec![0]))
            .put("time_ns", Int64Array::from(vec![5]))
            .put_names("metric", [Some("SMs Active")])
            .put("value", Float64Array::from(vec![50.0]))
            .finish(1)
            .unwrap();
        let facts = of(&Tables::from([("gpu_metrics", metrics)]));
        assert_eq!(facts["kernels"].0, None);
        assert!(facts["busy_ns"].1.contains("-t cuda"));
    }

    #[test]
    fn sm_activity_beside_and_inside_traced_work() {
        // kernel |10 ms ====== 12 ms|, samples every ms: 10 and 11 are inside, 9 and 12 touch the guard,
        // all others are outside
        let mut tables = work(&[(0, 7, 0, 1, 7, 10_000, 12_000)]);
        let n = 20;
        let value = |ms: i64| match ms {
            10 | 11 => 90.0,
            9 | 12 => 1000.0,
            _ => 5.0,
        };
        let metrics = Builder::new(&schema::GPU_METRICS)
            .put("capture", UInt32Array::from(vec![0; n]))
            .put("device_id", UInt32Array::from(vec![0; n]))
            .put("time_ns", (0..20).map(|ms| Some(ms * 1_000_000)).collect::<Int64Array>())
            .put_names("metric", (0..n).map(|_| Some("SM Active")))
            .put("value", (0..20).map(|ms| Some(value(ms))).collect::<Float64Array>())
            .finish(n)
            .unwrap();
        tables.insert("gpu_metrics", metrics);
        let facts = of(&tables);
        assert_eq!(facts["metric_inside_pct"].0, Some(90.0));
        assert_eq!(facts["metric_outside_pct"].0, Some(5.0));
    }
}
