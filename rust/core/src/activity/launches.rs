//! Summarise what each tenant launched and where its time went.
//!
//! The time of a tenant, from its first launch to the end of its last, is cut at its launches into batches of about
//! equally many. Of each batch:
//!
//! ```text
//!   tenant           |==busy==|            gap             |==busy==|
//!   resident           its own |  another's   |  its own
//!   co-resident               |=====|      |====|     |==|
//!   the gap                    |..absent......|b|.idle.|b.|.idle|
//! ```
//!
//! Absent: another tenant's context was resident. Beside (b): a co-resident tenant had kernels in flight while this one
//! was not absent. Idle: the rest, without the pauses of a program before it begins its work (it waits for its start, it
//! compiles), in which nothing of anybody was in flight: those do not grow with the work, and are told by themselves. Launches come by start. In a gap a tenant launches nothing itself: what tenants launch
//! that run beside each other is added up once for all of them, and so is when their contexts were resident.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use arrow_array::{Array, Int64Array, UInt32Array};

use crate::base::error::{Error, Result};
use crate::base::intervals::Growing;
use crate::base::maps::{Interner, NumberMap};
use crate::base::pauses::{work_begins, STARTUP_PART};
use crate::base::watch::Watch;
use crate::occupancy::theoretical::product;
use crate::table::columns::{at, Columns, NameColumn};
use crate::table::events::{EventPass, Events, Tables};
use crate::table::launch::Folded;
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Who};
use crate::table::work::{work, Work, WorkKind};

/// Batches that the launches of a tenant are cut into; enough for an interval, few enough for a saved report.
const BATCHES: u64 = 20;
/// Least launches in a batch: of single ones the spread is that of kernels, not of the run.
const LEAST_IN_BATCH: u64 = 2;
/// Launches from which a p99 is told: of fewer it is their longest.
const ENOUGH_FOR_P99: usize = 20;

/// A pause shorter than this part of the time so far is no pause before the work begins.
const SHORT_PAUSE: i64 = 1000;

/// Configurations that are handed out; real programs with more have a tail of tiny kernels.
const TOP_CONFIGURATIONS: usize = 100;
/// What a graph that was launched as a whole is called.
const GRAPH: &str = "CUDA graph";

/// A run of consecutive launches of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    /// Launches in it.
    pub launches: u64,
    /// Nothing was in flight, and no other tenant was in its way.
    pub idle_ns: i64,
    /// Nothing was in flight while another tenant's context was resident.
    pub absent_ns: i64,
    /// Nothing was in flight while a tenant that may run beside it had kernels in flight.
    pub beside_ns: i64,
    /// Union of its launches.
    pub busy_ns: i64,
    /// The part of it in which its context was resident.
    pub attributed_ns: i64,
}

/// Kernels of one name and size of the grid and block; whole graphs.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// Demangled name.
    pub name: Option<String>,
    /// Name without parameters.
    pub short_name: Option<String>,
    /// Blocks of the grid.
    pub grid_blocks: Option<u64>,
    /// Threads of a block.
    pub block_threads: Option<u32>,
    /// Launches.
    pub launches: u64,
    /// Sum of their lengths as recorded.
    pub total_ns: i64,
    /// Sum of what each was attributed.
    pub attributed_ns: i64,
    /// 99th percentile of what each was attributed; `None` of few launches, and where it is not known of each.
    pub attributed_p99_ns: Option<i64>,
    /// Standard deviation of the same; `None` of one launch, and where it is not known of each.
    pub attributed_sd_ns: Option<f64>,
}

/// What one tenant launched.
#[derive(Debug, Clone, PartialEq)]
pub struct Launched {
    /// Device.
    pub device: u32,
    /// Tenant.
    pub tenant: u32,
    /// Switch records say when its context was resident.
    pub residency_known: bool,
    /// Those with most time, most first.
    pub configurations: Vec<Configuration>,
    /// Launches of all others.
    pub other_launches: u64,
    /// Sum of their lengths.
    pub other_ns: i64,
    /// Pauses before its work began, in which nothing of anybody was in flight; in no batch.
    pub startup_ns: i64,
    /// In order.
    pub batches: Vec<Batch>,
}

/// Who has a context: none is known for some.
type Holder = Option<u32>;

/// The slices of a device so far, and for how long nobody but some one or two holders had any.
#[derive(Debug, Default)]
struct Engine {
    now_ns: i64,
    /// Ends of the slices that are not over, soonest first.
    ends: BinaryHeap<Reverse<(i64, Holder)>>,
    /// How many of them each holder has.
    holding: BTreeMap<Holder, u32>,
    held_ns: i64,
    by_one_ns: BTreeMap<Holder, i64>,
    by_two_ns: BTreeMap<(Holder, Holder), i64>,
    /// When gaps of its tenants open, soonest first.
    gaps: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Engine {
    /// Goes on to `time_ns`, up to which it has all slices.
    fn advance(&mut self, time_ns: i64) {
        while let Some(Reverse((end_ns, holder))) =
            self.ends.peek().copied().filter(|end| end.0 .0 <= time_ns)
        {
            self.ends.pop();
            self.account(end_ns);
            if let Some(slices) = self.holding.get_mut(&holder) {
                *slices = slices.saturating_sub(1);
                if *slices == 0 {
                    self.holding.remove(&holder);
                }
            }
        }
        self.account(time_ns);
    }

    fn account(&mut self, time_ns: i64) {
        let passed_ns = time_ns.saturating_sub(self.now_ns).max(0);
        self.now_ns = self.now_ns.max(time_ns);
        let mut holders = self.holding.keys().copied();
        let Some(first) = holders.next() else { return };
        self.held_ns = self.held_ns.saturating_add(passed_ns);
        let sum = match (holders.next(), holders.next()) {
            (None, _) => self.by_one_ns.entry(first).or_default(),
            (Some(second), None) => self.by_two_ns.entry((first, second)).or_default(),
            _ => return,
        };
        *sum = sum.saturating_add(passed_ns);
    }

    /// A slice that starts now.
    fn hold(&mut self, holder: Holder, end_ns: i64) {
        if end_ns > self.now_ns {
            self.ends.push(Reverse((end_ns, holder)));
            let slices = self.holding.entry(holder).or_default();
            *slices = slices.saturating_add(1);
        }
    }

    /// How long so far anybody had a slice but a tenant and the one that serves it.
    fn others_ns(&self, own: u32, server: Option<u32>) -> i64 {
        let own = Some(own);
        let one_ns = |holder: &Holder| self.by_one_ns.get(holder).copied().unwrap_or(0);
        let mut mine_ns = one_ns(&own);
        if server.is_some() && server != own {
            let both = (own.min(server), own.max(server));
            let both_ns = self.by_two_ns.get(&both).copied().unwrap_or(0);
            mine_ns = mine_ns.saturating_add(one_ns(&server)).saturating_add(both_ns);
        }
        self.held_ns.saturating_sub(mine_ns)
    }
}

/// Tenants that may run beside each other: all of a device, or the clients of one MPS server.
type Group = (u32, Option<u32>);

/// The launches of a group.
#[derive(Debug, Default)]
struct Launching {
    busy: Growing,
    /// When gaps of its tenants open, soonest first.
    gaps: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Launching {
    /// Time covered before `time_ns`, which none of the launches so far starts after.
    fn before_ns(&self, time_ns: i64) -> i64 {
        let until_ns = self.busy.end_ns().unwrap_or(i64::MIN);
        self.busy.total_ns.saturating_sub(until_ns.saturating_sub(time_ns).max(0))
    }
}

/// Stretches in which a device had nothing of anybody in flight, long ones, in order.
#[derive(Debug, Default)]
struct IdleDevice {
    first_ns: i64,
    free_ns: Option<i64>,
    long: Vec<(i64, i64)>,
}

impl IdleDevice {
    fn take(&mut self, start_ns: i64, end_ns: i64) {
        let Some(free_ns) = self.free_ns else {
            (self.first_ns, self.free_ns) = (start_ns, Some(end_ns));
            return;
        };
        if is_long(start_ns.saturating_sub(free_ns), start_ns, self.first_ns) {
            self.long.push((free_ns, start_ns));
        }
        self.free_ns = Some(free_ns.max(end_ns));
    }

    /// How much of this time they take.
    fn within_ns(&self, from_ns: i64, until_ns: i64) -> i64 {
        let begin = self.long.partition_point(|(_, end_ns)| *end_ns <= from_ns);
        let inside = self.long.iter().skip(begin).take_while(|(start_ns, _)| *start_ns < until_ns);
        inside.fold(0, |sum, (start_ns, end_ns)| {
            sum.saturating_add((*end_ns).min(until_ns).saturating_sub((*start_ns).max(from_ns)))
        })
    }
}

fn is_long(pause_ns: i64, now_ns: i64, first_ns: i64) -> bool {
    pause_ns > now_ns.saturating_sub(first_ns) / SHORT_PAUSE
}

/// A pause of a tenant while nothing of anybody was in flight.
#[derive(Debug)]
struct Pause {
    ns: i64,
    /// The launch behind it, and its batch.
    launch: usize,
    batch: usize,
    /// What the batch counts as idle of the gap that it lies in.
    idle_ns: i64,
}

/// A tenant, and what it launched so far.
#[derive(Debug)]
struct Tally {
    device: u32,
    /// Who may run beside it: with residency that is known, only clients of its own server.
    group: Option<Group>,
    /// The tenant that serves it.
    server: Option<u32>,
    residency_known: bool,
    /// Launches it will have had in the end.
    expected: u64,
    /// Busy and resident, of its whole time.
    attributed_ns: i64,
    first_ns: i64,
    /// Latest end of its launches; before the first there is no gap.
    free_ns: i64,
    /// How long others had been resident when the gap opened.
    others_ns: i64,
    /// What its group had covered then.
    group_ns: i64,
    launches: u64,
    batches: Vec<Batch>,
    /// Of each batch: what its launches were attributed, each the part in which no earlier one was in flight.
    attributed: Vec<f64>,
    /// The sum of these so far, and the launch with which its work is under way.
    done_ns: f64,
    begun: Option<usize>,
    pauses: Vec<Pause>,
}

impl Tally {
    #[allow(clippy::cast_precision_loss)] // of nanoseconds beyond 2^53 none counts
    fn take(
        &mut self,
        (start_ns, end_ns): (i64, i64),
        attributed_ns: i64,
        others_ns: i64,
        group_ns: i64,
        idle_device: &IdleDevice,
    ) {
        if self.launches == 0 {
            (self.first_ns, self.free_ns) = (start_ns, start_ns);
        }
        let free_ns = self.free_ns;
        let gap_ns = start_ns.saturating_sub(free_ns).max(0);
        let busy_ns = end_ns.saturating_sub(start_ns.max(free_ns)).max(0);
        let absent_ns = others_ns.saturating_sub(self.others_ns).min(gap_ns);
        let beside_ns = group_ns.saturating_sub(self.group_ns).min(gap_ns.saturating_sub(absent_ns));
        let length_ns = end_ns.saturating_sub(start_ns).max(1);

        let count = (self.expected / LEAST_IN_BATCH).clamp(1, BATCHES);
        let place = self.launches.saturating_mul(count).checked_div(self.expected).unwrap_or(0);
        let place = usize::try_from(place.min(count.saturating_sub(1))).unwrap_or(0);
        if self.batches.len() <= place {
            self.batches.resize(place.saturating_add(1), Batch::default());
            self.attributed.resize(place.saturating_add(1), 0.0);
        }
        if let (Some(batch), Some(attributed)) = (self.batches.get_mut(place), self.attributed.get_mut(place))
        {
            let idle_ns = gap_ns.saturating_sub(absent_ns).saturating_sub(beside_ns);
            batch.launches = batch.launches.saturating_add(1);
            batch.idle_ns = batch.idle_ns.saturating_add(idle_ns);
            batch.absent_ns = batch.absent_ns.saturating_add(absent_ns);
            batch.beside_ns = batch.beside_ns.saturating_add(beside_ns);
            batch.busy_ns = batch.busy_ns.saturating_add(busy_ns);
            let done_ns = attributed_ns as f64 * busy_ns as f64 / length_ns as f64;
            *attributed += done_ns;
            self.done_ns += done_ns;
            let launch = usize::try_from(self.launches).unwrap_or(usize::MAX);
            if self.begun.is_none() && self.done_ns > STARTUP_PART * self.attributed_ns as f64 {
                self.begun = Some(launch);
            }
            if is_long(gap_ns, start_ns, self.first_ns) {
                let ns = idle_device.within_ns(free_ns, start_ns);
                self.pauses.push(Pause { ns, launch, batch: place, idle_ns });
            }
        }
        self.launches = self.launches.saturating_add(1);
        self.free_ns = free_ns.max(end_ns);
    }

    /// Overlapping launches share a tenant's time: what each was attributed is scaled to what all were.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // as in `take`
    fn finished(mut self) -> (i64, Vec<Batch>) {
        let startup_ns = self.leave_out_startup();
        let all: f64 = self.attributed.iter().sum();
        let scale = if all > 0.0 { self.attributed_ns as f64 / all } else { 1.0 };
        for (batch, attributed) in self.batches.iter_mut().zip(&self.attributed) {
            batch.attributed_ns = ((attributed * scale).round_ties_even() as i64).min(batch.busy_ns);
        }
        self.batches.retain(|batch| batch.launches > 0);
        (startup_ns, self.batches)
    }

    /// Takes the pauses before its work began out of the batches: how long they took.
    fn leave_out_startup(&mut self) -> i64 {
        let pauses = self.pauses.iter().map(|pause| (pause.ns, pause.launch));
        let begins = work_begins(pauses, self.begun.unwrap_or(0), self.free_ns.saturating_sub(self.first_ns));
        let mut startup_ns = 0_i64;
        for pause in self.pauses.iter().filter(|pause| pause.launch <= begins) {
            let Some(batch) = self.batches.get_mut(pause.batch) else { continue };
            // Another tenant's context may have been resident meanwhile, without work.
            let idle_ns = pause.ns.min(pause.idle_ns);
            batch.idle_ns = batch.idle_ns.saturating_sub(idle_ns);
            batch.absent_ns = batch.absent_ns.saturating_sub(pause.ns.saturating_sub(idle_ns));
            startup_ns = startup_ns.saturating_add(pause.ns);
        }
        startup_ns
    }
}

/// Whose, name, blocks, threads; names by number.
type Key = (u32, Option<u32>, Option<u64>, Option<u32>);

/// What the launches of one configuration add up to.
#[derive(Debug)]
struct Sums {
    short_name: Option<u32>,
    launches: u64,
    total_ns: i64,
    attributed_ns: i64,
    /// What each was attributed, where that is known.
    each_ns: Vec<i64>,
}

impl Sums {
    fn of(short_name: Option<u32>) -> Self {
        Self { short_name, launches: 0, total_ns: 0, attributed_ns: 0, each_ns: Vec::new() }
    }

    fn add(&mut self, launches: u64, total_ns: i64, attributed_ns: i64) {
        self.launches = self.launches.saturating_add(launches);
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.attributed_ns = self.attributed_ns.saturating_add(attributed_ns);
    }

    /// p99 and standard deviation of what each launch was attributed.
    fn spread(&mut self) -> (Option<i64>, Option<f64>) {
        let n = self.each_ns.len();
        if n as u64 != self.launches || n < 2 {
            return (None, None);
        }
        let mean = self.each_ns.iter().map(|ns| *ns as f64).sum::<f64>() / n as f64;
        let squares: f64 = self.each_ns.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum();
        let place = (0.99 * (n - 1) as f64).ceil() as usize;
        let p99 = *self.each_ns.select_nth_unstable(place.min(n - 1)).1;
        ((n >= ENOUGH_FOR_P99).then_some(p99), Some((squares / (n - 1) as f64).sqrt()))
    }
}

/// What says of a kernel which configuration it is of.
struct Shapes<'a> {
    name: NameColumn<'a>,
    short_name: NameColumn<'a>,
    grid: [Folded<'a>; 3],
    block: [Folded<'a>; 3],
}

impl<'a> Shapes<'a> {
    fn of(c: &Columns<'a>) -> Result<Self> {
        Ok(Self {
            name: c.names("name")?,
            short_name: c.names("short_name")?,
            grid: [c.folded("grid_x")?, c.folded("grid_y")?, c.folded("grid_z")?],
            block: [c.folded("block_x")?, c.folded("block_y")?, c.folded("block_z")?],
        })
    }

    /// Its names are keys of their dictionaries.
    fn key(&self, tenant: u32, row: usize) -> Key {
        let threads = product(&self.block, row).and_then(|n| u32::try_from(n).ok());
        (tenant, self.name.key(row), product(&self.grid, row), threads)
    }
}

/// When the engines were held, by start.
#[derive(Debug)]
struct Slices {
    device: UInt32Array,
    tenant: UInt32Array,
    start: Int64Array,
    end: Int64Array,
    next: usize,
}

/// One pass over the events. Takes the finished `tenants`, `tenant_usage`, `residency` and `kernel_attribution` of the session.
#[derive(Debug)]
pub struct Launches {
    who: Who,
    /// By tenant; none of those whose kernels were not traced.
    tallies: Vec<Option<Tally>>,
    /// Those that a tenant may run beside.
    groups: BTreeMap<Group, Launching>,
    /// By device, where residency is known of some tenant.
    engines: BTreeMap<u32, Engine>,
    idle: BTreeMap<u32, IdleDevice>,
    slices: Option<Slices>,
    attributed: Option<Int64Array>,
    names: Interner,
    configurations: NumberMap<Key, Sums>,
    last: LastTenant,
    done: u64,
}

impl Launches {
    /// Reads the tables that earlier passes made.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn new(session: &Tables) -> Result<Self> {
        let who = Who::read(session)?;
        let slices = session.get(schema::RESIDENCY.name).map(|batch| {
            let c = Columns::new(&schema::RESIDENCY, batch);
            Ok::<_, Error>(Slices {
                device: c.u32("device_id")?.clone(),
                tenant: c.u32("tenant_id")?.clone(),
                start: c.i64("start_ns")?.clone(),
                end: c.i64("end_ns")?.clone(),
                next: 0,
            })
        });
        let slices = slices.transpose()?;
        let holding: BTreeSet<u32> =
            slices.iter().flat_map(|slices| slices.tenant.iter().flatten()).collect();
        let mut tallies: Vec<Option<Tally>> = who.tenants.iter().map(|_| None).collect();
        let (mut groups, mut engines) = (BTreeMap::new(), BTreeMap::<u32, Engine>::new());
        if let Some(batch) = session.get(schema::TENANT_USAGE.name) {
            let c = Columns::new(&schema::TENANT_USAGE, batch);
            let (kernels, graphs) = (c.u64("kernels")?, c.u64("graph_launches")?);
            let (id, busy, attributed) = (c.u32("tenant_id")?, c.i64("busy_ns")?, c.i64("attributed_ns")?);
            for row in (0..c.rows()).filter(|row| busy.is_valid(*row)) {
                let place = id.value(row) as usize;
                let (Some(tenant), Some(tally)) = (who.tenants.get(place), tallies.get_mut(place)) else {
                    continue;
                };
                let mut holders = std::iter::once(tenant.id).chain(tenant.served_by);
                let residency_known = holders.any(|tenant| holding.contains(&tenant));
                let group = (tenant.served_by.is_some() || !residency_known)
                    .then_some((tenant.device, tenant.served_by.filter(|_| residency_known)));
                if residency_known {
                    let engine = || Engine { now_ns: i64::MIN, ..Engine::default() };
                    engines.entry(tenant.device).or_insert_with(engine);
                }
                groups.extend(group.map(|group| (group, Launching::default())));
                *tally = Some(Tally {
                    device: tenant.device,
                    group,
                    server: tenant.served_by,
                    residency_known,
                    expected: kernels.value(row).saturating_add(graphs.value(row)),
                    attributed_ns: at(attributed, row).unwrap_or(0),
                    first_ns: i64::MAX,
                    free_ns: i64::MAX,
                    others_ns: 0,
                    group_ns: 0,
                    launches: 0,
                    batches: Vec::new(),
                    attributed: Vec::new(),
                    done_ns: 0.0,
                    begun: None,
                    pauses: Vec::new(),
                });
            }
        }
        let attributed = session.get(schema::KERNEL_ATTRIBUTION.name);
        let attributed = attributed
            .map(|batch| Columns::new(&schema::KERNEL_ATTRIBUTION, batch).i64("attributed_ns").cloned());
        Ok(Self {
            who,
            tallies,
            groups,
            engines,
            idle: BTreeMap::new(),
            slices,
            attributed: attributed.transpose()?,
            names: Interner::default(),
            configurations: NumberMap::default(),
            last: LastTenant::default(),
            done: 0,
        })
    }

    fn tenant_of(&mut self, w: &Work) -> Option<u32> {
        self.who.of_next(&mut self.last, w.capture, w.pid, w.device)
    }

    /// Takes the slices that begin no later than `time_ns`.
    fn hold_until(&mut self, time_ns: i64) {
        let Some(slices) = &mut self.slices else { return };
        while let Some(start_ns) = at(&slices.start, slices.next).filter(|start_ns| *start_ns <= time_ns) {
            let (device, end_ns) = (at(&slices.device, slices.next), at(&slices.end, slices.next));
            let holder = at(&slices.tenant, slices.next);
            slices.next = slices.next.saturating_add(1);
            if let Some(engine) = device.and_then(|device| self.engines.get_mut(&device)) {
                open_gaps(engine, &mut self.tallies, start_ns);
                engine.hold(holder, end_ns.unwrap_or(start_ns));
            }
        }
    }

    /// Opens the gaps of a group that begin no later than `time_ns`.
    fn open_until(&mut self, group: Group, time_ns: i64) {
        let Some(launching) = self.groups.get_mut(&group) else { return };
        while let Some(Reverse((free_ns, tenant))) = launching.gaps.peek().copied() {
            if free_ns > time_ns {
                return;
            }
            launching.gaps.pop();
            // It may have launched since, and be busy for longer.
            let tally = self.tallies.get_mut(tenant as usize).and_then(Option::as_mut);
            if let Some(tally) = tally.filter(|tally| tally.free_ns == free_ns) {
                tally.group_ns = launching.before_ns(free_ns);
            }
        }
    }

    fn take(&mut self, w: &Work, tenant: u32, attributed_ns: i64) {
        self.hold_until(w.start_ns);
        let place = tenant as usize;
        let Some(who) = self.who.tenants.get(place) else { return };
        let (device, server) = (who.device, who.served_by);
        if let Some(engine) = self.engines.get_mut(&device) {
            open_gaps(engine, &mut self.tallies, w.start_ns);
        }
        let counted_in = [Some((device, None)), server.map(|server| (device, Some(server)))];
        for group in counted_in.into_iter().flatten() {
            self.open_until(group, w.start_ns);
        }
        let idle_device = self.idle.entry(device).or_default();
        idle_device.take(w.start_ns, w.end_ns);
        if let Some(Some(tally)) = self.tallies.get_mut(place) {
            let free_ns = tally.free_ns;
            let launching = tally.group.and_then(|group| self.groups.get_mut(&group));
            let group_ns = launching.as_ref().map_or(0, |launching| launching.before_ns(w.start_ns));
            let engine = self.engines.get_mut(&device).filter(|_| tally.residency_known);
            let others_ns = engine.as_ref().map_or(0, |engine| engine.others_ns(tenant, tally.server));
            tally.take((w.start_ns, w.end_ns), attributed_ns, others_ns, group_ns, idle_device);
            if tally.free_ns != free_ns {
                let gap = Reverse((tally.free_ns, tenant));
                launching.into_iter().for_each(|launching| launching.gaps.push(gap));
                engine.into_iter().for_each(|engine| engine.gaps.push(gap));
            }
        }
        for group in counted_in.into_iter().flatten() {
            if let Some(launching) = self.groups.get_mut(&group) {
                launching.busy.add(w.start_ns, w.end_ns);
            }
        }
    }
}

/// Goes on to `time_ns`, and opens the gaps that begin until then.
fn open_gaps(engine: &mut Engine, tallies: &mut [Option<Tally>], time_ns: i64) {
    while let Some(Reverse((free_ns, tenant))) = engine.gaps.peek().copied().filter(|gap| gap.0 .0 <= time_ns)
    {
        engine.gaps.pop();
        engine.advance(free_ns);
        // It may have launched since, and be busy for longer.
        let tally = tallies.get_mut(tenant as usize).and_then(Option::as_mut);
        if let Some(tally) = tally.filter(|tally| tally.free_ns == free_ns) {
            tally.others_ns = engine.others_ns(tenant, tally.server);
        }
    }
    engine.advance(time_ns);
}

impl EventPass for Launches {
    type Output = Vec<Launched>;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        watch.progress("launches", self.done, 0)?;
        let kernels = events.get(&schema::KERNELS);
        let shapes = kernels.as_ref().map(Shapes::of).transpose()?;
        let mut here: NumberMap<Key, Sums> = NumberMap::default();
        for w in work(events)? {
            if self.done.is_multiple_of(4096) {
                watch.progress("launches", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            if w.kind == WorkKind::Copy {
                continue;
            }
            let Some(tenant) = self.tenant_of(&w) else { continue };
            let length_ns = w.end_ns.saturating_sub(w.start_ns);
            let attributed_ns = match (&shapes, w.kind) {
                (Some(shapes), WorkKind::Kernel) => {
                    let known_ns = self.attributed.as_ref().and_then(|attributed| at(attributed, w.row));
                    let attributed_ns = known_ns.unwrap_or(length_ns);
                    let sums = here.entry(shapes.key(tenant, w.row));
                    let sums = sums.or_insert_with(|| Sums::of(shapes.short_name.key(w.row)));
                    sums.add(1, length_ns, attributed_ns);
                    sums.each_ns.extend(known_ns);
                    attributed_ns
                }
                // `kernel_attribution` has kernels only; the total of the tenant, to which all are scaled, has graphs as well.
                _ => {
                    let name = Some(self.names.id(GRAPH));
                    let sums = self.configurations.entry((tenant, name, None, None));
                    sums.or_insert_with(|| Sums::of(name)).add(1, length_ns, length_ns);
                    length_ns
                }
            };
            self.take(&w, tenant, attributed_ns);
        }
        if let Some(shapes) = shapes {
            for ((tenant, name, blocks, threads), sums) in here {
                let name = name.and_then(|key| shapes.name.text(key)).map(|text| self.names.id(text));
                let short = sums.short_name.and_then(|key| shapes.short_name.text(key));
                let short = short.map(|text| self.names.id(text));
                let known = self.configurations.entry((tenant, name, blocks, threads));
                let known = known.or_insert_with(|| Sums::of(short));
                known.add(sums.launches, sums.total_ns, sums.attributed_ns);
                if known.each_ns.is_empty() {
                    known.each_ns = sums.each_ns;
                } else {
                    known.each_ns.extend(sums.each_ns);
                }
            }
        }
        Ok(())
    }

    fn finish(self, watch: &dyn Watch) -> Result<Vec<Launched>> {
        watch.progress("launches", self.done, self.done)?;
        let text = |name: Option<u32>| self.names.text(name).map(str::to_owned);
        let mut by_tenant: BTreeMap<u32, Vec<Configuration>> = BTreeMap::new();
        for ((tenant, name, grid_blocks, block_threads), mut sums) in self.configurations {
            let (attributed_p99_ns, attributed_sd_ns) = sums.spread();
            by_tenant.entry(tenant).or_default().push(Configuration {
                name: text(name),
                short_name: text(sums.short_name),
                grid_blocks,
                block_threads,
                launches: sums.launches,
                total_ns: sums.total_ns,
                attributed_ns: sums.attributed_ns,
                attributed_p99_ns,
                attributed_sd_ns,
            });
        }
        let mut found = Vec::new();
        for (tenant, tally) in self.tallies.into_iter().enumerate() {
            let (Some(tally), Ok(tenant)) = (tally.filter(|tally| tally.launches > 0), u32::try_from(tenant))
            else {
                continue;
            };
            let mut configurations = by_tenant.remove(&tenant).unwrap_or_default();
            configurations.sort_by(|a, b| {
                (b.total_ns, b.launches, &a.name, a.grid_blocks, a.block_threads).cmp(&(
                    a.total_ns,
                    a.launches,
                    &b.name,
                    b.grid_blocks,
                    b.block_threads,
                ))
            });
            let rest = configurations.split_off(configurations.len().min(TOP_CONFIGURATIONS));
            let (device, residency_known) = (tally.device, tally.residency_known);
            let (startup_ns, batches) = tally.finished();
            found.push(Launched {
                device,
                tenant,
                residency_known,
                configurations,
                other_launches: rest.iter().fold(0, |sum, one| sum.saturating_add(one.launches)),
                other_ns: rest.iter().fold(0, |sum, one| sum.saturating_add(one.total_ns)),
                startup_ns,
                batches,
            });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::attribution::Attribution;
    use crate::activity::overlap::Overlap;
    use crate::base::intervals::Union;
    use crate::base::watch::Unwatched;
    use crate::pipeline::{attribution, launches, reconstruct};
    use crate::residency::observed::Slice;
    use crate::table::builder::Builder;
    use crate::test_tables::{kernels, named, residency};
    use arrow_array::RecordBatch;

    /// Idle, absent, beside, busy, attributed in us of each batch of each tenant.
    fn parts(tables: &Tables) -> Vec<Vec<[i64; 5]>> {
        let us =
            |b: &Batch| [b.idle_ns, b.absent_ns, b.beside_ns, b.busy_ns, b.attributed_ns].map(|ns| ns / 1000);
        let found = launches(tables, &Unwatched).unwrap();
        found.iter().map(|one| one.batches.iter().map(us).collect()).collect()
    }

    fn reconstructed(mut tables: Tables) -> Tables {
        tables.extend(reconstruct(&tables, &Unwatched).unwrap());
        tables.extend(attribution(&tables, &Unwatched).unwrap());
        tables
    }

    #[test]
    fn a_gap_is_time_of_others_on_the_engine_or_its_own() {
        // 7 |0==10|       20 own         |60==80|        80==80 |80=90|
        // engine 7 |0=====15| 8 |20=====55| 7 |58===========100|
        // Gap 10..60: 35 absent; the switches and the slices of its own are idle.
        let rows = [
            (0, 7, 0, 1, 7, 0, 10),
            (0, 8, 0, 1, 7, 25, 50),
            (0, 7, 0, 1, 7, 60, 80),
            (0, 7, 0, 1, 7, 80, 90),
        ];
        let slices = [(0, 0, 7, 1, 0, 15), (0, 0, 8, 2, 20, 55), (0, 0, 7, 1, 58, 100)];
        let tables = Tables::from([("kernels", kernels(&rows)), ("residency", residency(&slices))]);
        let (mut seen, _) = named(tables);
        let usage = Overlap::new(&seen).unwrap().run(&seen, &Unwatched).unwrap().tenant_usage;
        let attributed = Attribution::new(&seen).unwrap().run(&seen, &Unwatched).unwrap();
        seen.extend([("tenant_usage", usage), ("kernel_attribution", attributed)]);
        assert_eq!(parts(&seen), [vec![[15, 35, 0, 40, 40]], vec![[0, 0, 0, 25, 25]]]);
        // Nothing says which context was resident: 8's kernel was beside it.
        let without = reconstructed(Tables::from([("kernels", kernels(&rows))]));
        assert_eq!(parts(&without), [vec![[25, 0, 25, 40, 40]], vec![[0, 0, 0, 25, 25]]]);
    }

    /// Processes 7, 8 and 9; 5 serves the first two.
    fn two_clients_of_a_server() -> RecordBatch {
        Builder::new(&schema::TENANTS)
            .put("tenant_id", (0..4).map(Some).collect::<UInt32Array>())
            .put("device_id", UInt32Array::from(vec![0; 4]))
            .put("capture", UInt32Array::from(vec![0; 4]))
            .put("pid", UInt32Array::from(vec![7, 8, 9, 5]))
            .put("host_pid", UInt32Array::from(vec![None, None, None, Some(5)]))
            .put("name", arrow_array::StringArray::from(vec!["a", "b", "c", "server"]))
            .put("contexts", arrow_array::StringArray::from(vec![""; 4]))
            .put("hw_contexts", arrow_array::StringArray::from(vec![""; 4]))
            .put("traced", arrow_array::BooleanArray::from(vec![true, true, true, false]))
            .put_words("basis", ["observed"; 4])
            .put("served_by", UInt32Array::from(vec![Some(3), Some(3), None, None]))
            .finish(4)
            .unwrap()
    }

    #[test]
    fn only_clients_of_one_server_are_beside_each_other_where_residency_is_known() {
        // 7, 8 and 9 run while 5 is resident all the time, which serves 7 and 8 but not 9.
        let rows = [
            (0, 7, 0, 1, 7, 0, 10),
            (0, 8, 0, 1, 7, 5, 20),
            (0, 9, 0, 1, 7, 25, 30),
            (0, 7, 0, 1, 7, 40, 50),
            (0, 8, 0, 1, 7, 45, 60),
        ];
        let mut seen = reconstructed(Tables::from([("kernels", kernels(&rows))]));
        seen.insert("tenants", two_clients_of_a_server());
        let mut slices = Slice::read(&residency(&[(0, 0, 5, 1, 0, 100)])).unwrap();
        slices.iter_mut().for_each(|slice| slice.tenant = Some(3));
        seen.insert("residency", Slice::write(&slices).unwrap());
        // 7's gap 10..40: 8 beside it until 20. 8's gap 20..45: 7 beside it from 40. 9 has one launch.
        let expected = [vec![[20, 0, 10, 20, 20]], vec![[20, 0, 5, 30, 30]], vec![[0, 0, 0, 5, 5]]];
        assert_eq!(parts(&seen), expected);
    }

    #[test]
    fn pauses_before_the_work_begins_are_in_no_batch() {
        // Both wait for their start from 10 on, while 7's context stays resident; 8 waits for 7's kernel before its own.
        let mut rows = vec![(0, 7, 0, 1, 7, 0, 5), (0, 8, 0, 1, 7, 5, 10)];
        rows.extend((0..50).flat_map(|n| {
            let from = 1000 + 20 * n;
            [(0, 7, 0, 1, 7, from, from + 10), (0, 8, 0, 1, 7, from + 10, from + 20)]
        }));
        let mut slices = vec![(0, 0, 7, 1, 0, 5), (0, 0, 8, 2, 5, 10), (0, 0, 7, 1, 10, 1010)];
        slices.extend((0..50).flat_map(|n| {
            let from = 1000 + 20 * n;
            [(0, 0, 8, 2, from + 10, from + 20), (0, 0, 7, 1, from + 20, from + 30)]
        }));
        let tables = Tables::from([("kernels", kernels(&rows)), ("residency", residency(&slices))]);
        let (mut seen, _) = named(tables);
        let usage = Overlap::new(&seen).unwrap().run(&seen, &Unwatched).unwrap().tenant_usage;
        let attributed = Attribution::new(&seen).unwrap().run(&seen, &Unwatched).unwrap();
        seen.extend([("tenant_usage", usage), ("kernel_attribution", attributed)]);
        let found = launches(&seen, &Unwatched).unwrap();
        let us = |ns: i64| ns / 1000;
        assert_eq!(found.iter().map(|one| us(one.startup_ns)).collect::<Vec<_>>(), [990, 990]);
        // 7 waits for the 5 of 8 before the pause, and for 10 of 8 between launches; 8 for 10 of 7 before each of 50.
        let sums = |of: fn(&Batch) -> i64| {
            found.iter().map(|one| us(one.batches.iter().map(of).sum())).collect::<Vec<_>>()
        };
        assert_eq!(sums(|b| b.idle_ns), [0, 0]);
        assert_eq!(sums(|b| b.absent_ns), [495, 500]);
        assert_eq!(sums(|b| b.busy_ns), [505, 505]);
        // The same pause in the middle of the work is the program's.
        let (mut late, mut late_slices) = (rows[2..].to_vec(), slices[3..].to_vec());
        late.iter_mut().skip(50).for_each(|row| (row.5, row.6) = (row.5 + 990, row.6 + 990));
        late_slices.iter_mut().skip(50).for_each(|row| (row.4, row.5) = (row.4 + 990, row.5 + 990));
        let tables = Tables::from([("kernels", kernels(&late)), ("residency", residency(&late_slices))]);
        let (mut seen, _) = named(tables);
        let usage = Overlap::new(&seen).unwrap().run(&seen, &Unwatched).unwrap().tenant_usage;
        seen.insert("tenant_usage", usage);
        assert!(launches(&seen, &Unwatched).unwrap().iter().all(|one| one.startup_ns == 0));
    }

    #[test]
    fn beside_a_tenant_is_the_union_of_all_others() {
        // Launches of five processes in any order, some of no length, some of which start at once.
        let mut seed = 7_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((seed >> 33) % below).unwrap()
        };
        let mut rows: Vec<_> = (0..400)
            .map(|_| {
                let (pid, start) = (u32::try_from(draw(5)).unwrap(), draw(3000));
                (0, 7 + pid, 0, 1, 7, start, start + draw(30))
            })
            .collect();
        rows.sort_by_key(|row| row.5);
        let expected = (0..5).map(|pid| {
            let own = rows.iter().filter(|row| row.1 == 7 + pid);
            let others = Union::of(rows.iter().filter(|row| row.1 != 7 + pid).map(|row| (row.5, row.6)));
            let (mut free, mut beside) = (i64::MAX, 0);
            for (start, end) in own.map(|row| (row.5, row.6)) {
                beside += others.covered_ns(free, start);
                free = if free == i64::MAX { end } else { free.max(end) };
            }
            beside
        });
        let seen = reconstructed(Tables::from([("kernels", kernels(&rows))]));
        let found = parts(&seen).into_iter().map(|batches| batches.iter().map(|batch| batch[2]).sum::<i64>());
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn absent_is_the_union_of_the_slices_of_all_others() {
        // Slices overlap, as those of several engines do, and of some nobody knows whose they are.
        let mut seed = 11_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((seed >> 33) % below).unwrap()
        };
        let mut rows: Vec<_> = (0..300)
            .map(|n| {
                let (pid, start) = (7 + n % 3, draw(3000) - 500);
                (0, pid, 0, 1, 7, start, start + draw(20))
            })
            .collect();
        rows.sort_by_key(|row| row.5);
        let holders = [Some(0), Some(1), Some(2), Some(3), None];
        let mut held: Vec<_> = (0..200)
            .map(|n| {
                let start = draw(3000) - 500;
                (holders[n % 5], start, start + draw(25))
            })
            .collect();
        held.sort_by_key(|slice| slice.1);
        let places: Vec<_> = held.iter().map(|(_, start, end)| (0, 0, 5, 1, *start, *end)).collect();
        let mut slices = Slice::read(&residency(&places)).unwrap();
        slices.iter_mut().zip(&held).for_each(|(slice, (holder, ..))| slice.tenant = *holder);
        let expected: Vec<i64> = (0..3_u32)
            .map(|tenant| {
                let mine = |holder: Option<u32>| holder == Some(tenant) || (tenant < 2 && holder == Some(3));
                let others = Union::of(held.iter().filter(|s| !mine(s.0)).map(|s| (s.1, s.2)));
                let (mut free, mut absent) = (i64::MAX, 0);
                for row in rows.iter().filter(|row| row.1 == 7 + tenant) {
                    absent += others.covered_ns(free, row.5);
                    free = if free == i64::MAX { row.6 } else { free.max(row.6) };
                }
                absent
            })
            .collect();
        assert!(expected.iter().all(|absent| *absent > 100));
        let mut seen = reconstructed(Tables::from([("kernels", kernels(&rows))]));
        seen.insert("tenants", two_clients_of_a_server());
        seen.insert("residency", Slice::write(&slices).unwrap());
        let found = parts(&seen).into_iter().map(|batches| batches.iter().map(|batch| batch[1]).sum::<i64>());
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn overlapping_launches_share_their_time_and_batches_follow_each_other() {
        // Two streams: 0..10, 5..20 (the later half of the first counts for the first), 30..40, 30..50.
        let rows = [
            (0, 7, 0, 1, 7, 0, 10),
            (0, 7, 0, 1, 8, 5, 20),
            (0, 7, 0, 1, 7, 30, 40),
            (0, 7, 0, 1, 8, 30, 50),
        ];
        let seen = reconstructed(Tables::from([("kernels", kernels(&rows))]));
        assert_eq!(parts(&seen), [vec![[0, 0, 0, 20, 20], [10, 0, 0, 20, 20]]]);
        let found = launches(&seen, &Unwatched).unwrap();
        let one = &found[0].configurations[0];
        assert_eq!(
            (found[0].configurations.len(), one.launches, one.total_ns, one.attributed_ns),
            (1, 4, 55_000, 55_000)
        );
        assert_eq!((one.name.as_deref(), one.grid_blocks), (Some("k"), None));
    }
}
