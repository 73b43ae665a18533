//! Reconstruct the program of each tenant's host: what it launches, in which order, and what it waits for.
//!
//! The input of a forecast. A program is what was recorded, without the effects of sharing:
//!
//! ```text
//!   host      |launch|  |launch|      |......synchronize......|  think   |launch|
//!   device        |====k1====|====k2====|
//!                                       ^ the wait ends here: the host waited for k2, the rest was its own time
//! ```
//!
//! - **With API calls** a host is a thread. Time between calls and inside them is its own, except in calls that block
//!   (synchronisation, copies that are not asynchronous). Such a call waited for the operation that ended last before
//!   the call did, if the two ends lie close together ([`wake_ns`]). A call in which nothing ended waited for nothing; but
//!   one that waits for all work, when all had ended, would wait where it has not.
//!   A thread that lets the driver call it back pauses until the work before that is done. So does one whose idle times
//!   with work in flight end, almost always, when that work does: it looks for a flag in memory ([`IdleTimes`]).
//!   A thread that lives in a pause of another one was started by that one, which then waits for its end.
//! - **Without API calls** a host is assumed for each stream. It waits for the operation before, then for what is left
//!   of the gap without the residency of other tenants. Think time and waits for other streams cannot be told apart.
//! - The **work** of a kernel is its solo duration. If its tenant was switched out, it is the covered part of the
//!   interval, less the estimated cost of saving and restoring state. If other kernels ran concurrently, it is at most
//!   the usual duration of equal kernels that had the device to themselves, or the shortest tenth where none had.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::base::error::Result;
use crate::base::hardware::{
    DEFAULT_SLICE_NS, IDLE_GAP_NS, MOSTLY, PAUSE_NS, RELEASE_NS, SOON_PART, STATE_NS, SUBMIT_NS,
};
use crate::base::intervals::Union;
use crate::base::pauses::{ends_with, is_paced, wake_ns, DelaysAndPauses, IdleTimes, Unit};
use crate::base::statistics::{median_ns, nearest_rank};
use crate::base::watch::Watch;
use crate::occupancy::theoretical::{LaunchColumns, Limits, Recorded, Resources};
use crate::residency::observed::{is_of_others, slice_lengths, Slice};
use crate::simulate::client_order::{shown_order, Started};
use crate::simulate::sharing_config::{self, ClientOrder, Demand, SharingConfig};
use crate::table::calls::calls_back;
use crate::table::columns::{Columns, NameColumn};
use crate::table::events::{Events, Tables};
use crate::table::launch::Folded;
use crate::table::polls::Polls;
use crate::table::schema;
use crate::table::tenant_lookup::Who;
use crate::table::work::{work, Work, WorkKind};

/// A kernel of more waves than this is replayed in so many longer ones: cost follows waves.
const MOST_WAVES: u64 = 12;
/// A pause of at least this part of a program's time, from its first operation to its last, may divide what it does
/// before its work, or after it, from its work.
const LONG_PAUSE: f64 = 0.05;
/// What lies before or after such a pause is no part of the work if it took no more than this part of the time of all
/// operations: a process loads, warms up, waits for the start, and copies results when all is done.
const ASIDE: f64 = 0.02;
/// From this part of its time on, pauses of a host are more than odd ones.
const NOTABLE_PAUSES: f64 = 0.05;
/// A program that ends no more than this part of its time before the last one is taken to have been cut by the end of
/// the recording.
const AT_THE_END: f64 = 0.05;
/// A thread whose first call comes no later than this after the end of another one's life waited for it: what it did
/// before is not in the recording, which began later.
const JOINED_NS: i64 = 1_000_000;
/// Contexts that lost the engine without work, of which the time they kept it is taken.
const ENOUGH_LOST: usize = 16;
/// No context is taken to keep the engine for longer without work.
const MOST_LINGER_NS: i64 = 40_000;
/// A long recording is replayed in no more windows than so many.
const MOST_WINDOWS: u32 = 4;
/// Windows miss no more of a program's time than this part, in which other programs had not begun or had ended.
const MOST_MISSED: f64 = 0.1;
/// Windows hold no more or fewer of a program's operations than this part more or less than their share.
const UNLIKE: f64 = 0.1;
/// Operations of a program that a window must hold.
const ENOUGH_IN_WINDOW: usize = 200;
/// nsys calls the legacy default stream so.
const NULL_STREAM: u32 = 7;

/// What a host does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is busy with itself.
    Think(i64),
    /// It pauses: for so long, or until the moment at which that was over as recorded. Which of both is not recorded.
    Pause { ns: i64, end_ns: i64 },
    /// It launches an operation.
    Launch(u32),
    /// It waits for an operation.
    Wait(u32),
    /// It waits for all that its process has launched.
    WaitAll,
    /// It starts another host of its program.
    Start(u32),
    /// It waits until another host of its program has come to its end.
    Join(u32),
}

/// When pauses of a program's hosts end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pauses {
    /// After as long as recorded: it is busy with itself, or hardly pauses.
    #[default]
    AsLong,
    /// After as long, or at the moments at which they ended: nothing shows it.
    Unknown,
    /// At those moments: it has a frame rate.
    Moments,
}

/// What a thread of a program does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    /// When it begins; `None`: when another host starts it.
    pub begin_ns: Option<i64>,
    pub steps: Vec<Step>,
}

/// Where an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// On the SMs: blocks, how many an SM holds, what one takes.
    Sms { count: u64, per_sm: u64, ask: Resources },
    /// On all SMs: its blocks are not known.
    Device,
    /// On a copy engine: to the device, from it, or inside.
    Copy(usize),
}

/// An operation on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    /// Number of its stream in the program.
    pub stream: u32,
    /// Where it runs: index into the program's places.
    pub class: u32,
    /// Time alone on the device as it was recorded.
    pub work_ns: i64,
    /// Time from start to end in which its tenant was resident, as recorded, less what switches took of it.
    pub seen_ns: i64,
    /// Number of its name and launch configuration.
    pub shape: u32,
    /// Another kernel was on the device at the same time.
    pub co_run: bool,
    /// Number of its unit of work; [`NO_UNIT`]: it belongs to none.
    pub unit: u32,
    /// When it could have started as recorded: it had reached the device, and what it waits for had ended. Not set where
    /// launches are not known.
    pub ready_ns: i64,
}

/// An operation outside of all units of work.
pub(crate) const NO_UNIT: u32 = u32::MAX;

/// What is known of launches of one name and configuration.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ShapeSeen {
    /// Enough of them were alone on the device: their time alone is known.
    pub known: bool,
}

/// One tenant's operations, and the threads that ask for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    pub tenant: u32,
    pub ops: Vec<Op>,
    /// Where operations run, every way once.
    pub places: Vec<Place>,
    /// What operations of each place take, where it was measured.
    pub demands: Vec<Demand>,
    pub hosts: Vec<Host>,
    pub streams: u32,
    /// The stream that all others wait for and that waits for them.
    pub barrier: Option<u32>,
    pub submit_ns: i64,
    /// From the end of an operation to the start of a kernel that waited for it.
    pub release_ns: i64,
    /// The same of a copy.
    pub copy_release_ns: i64,
    /// First call (without calls: operation) to last end, as recorded.
    pub recorded_ns: i64,
    /// Of a window: what of it lies before and after that.
    pub outside_ns: i64,
    /// It is a window of a longer one, and goes round.
    pub is_window: bool,
    /// Recorded sum of launch call to end, its median and its 99th percentile; `None` without calls.
    pub latency_ns: Option<(i64, i64, i64)>,
    /// Of each unit of work: from its begin to the launch of its first operation, the host's own time.
    pub units_lead_ns: Vec<i64>,
    /// Recorded median and 99th percentile of the time of a unit; `None`: no units are known.
    pub unit_ns: Option<(i64, i64)>,
    /// Kernels and whole graphs whose blocks are not known.
    pub opaque: u64,
    /// Operations long before its work and long after it, which are not among [`Self::ops`].
    pub aside: u64,
    /// Launch and wait times are from API calls.
    pub from_calls: bool,
    /// Part of the kernels' recorded time whose alone time had to be taken from others of equal shape.
    pub contended: f64,
    /// Where it runs its kernels: SMs that it was seen to have.
    pub visible_sms: u32,
    /// When its pauses end.
    pub pauses: Pauses,
    /// A host may have waited for its work without a call: too little was seen to tell.
    pub unseen_waits: bool,
    /// It had not come to its end when the recording did: replayed, it is begun again while others are not through.
    pub goes_on: bool,
}

/// All programs of a device.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub programs: Vec<Program>,
    /// By number; equal launches of different tenants are one.
    pub shapes: Vec<ShapeSeen>,
    pub limits: Limits,
    /// Tenants that ran without being traced, with the time they were resident.
    pub unknown: Vec<(u32, i64)>,
    /// How long a context without work keeps the engine, at most, where switch records and calls show it.
    pub linger_ns: Option<i64>,
    /// Order of MPS clients without caps, where their kernels show it.
    pub client_order: Option<ClientOrder>,
}

/// An operation as recorded.
#[derive(Clone)]
struct Seen {
    work: Work,
    launch: Option<Recorded>,
    name: Option<u32>,
    copy: usize,
    covered_ns: i64,
    edges: usize,
    clear: bool,
}

/// What is known of a group of tenants that are resident together.
#[derive(Default)]
struct Held {
    resident: Union,
}

/// The time before each slice in which its tenant may have waited for the residency of other tenants.
///
/// Round robin: whoever waits sees at most one slice of each of the others, without idle time between them. Of a slice
/// that is longer than usual only its last part counts, and nothing before it: nobody waited when it began.
fn residency_of_others(slices: &[Slice], slice_ns: i64) -> BTreeMap<u32, Vec<(i64, i64)>> {
    let mut turns: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    let mut last_of: HashMap<u32, usize> = HashMap::new();
    let mut last_with: HashMap<(u64, Option<u32>), usize> = HashMap::new();
    // What is waited for before the slice begins here or later.
    let mut first = 0_usize;
    let mut before: Option<&Slice> = None;
    for (at, own) in slices.iter().enumerate() {
        if let Some((n, other)) = at.checked_sub(1).zip(before) {
            if own.start_ns.saturating_sub(other.end_ns) > IDLE_GAP_NS {
                first = at;
            } else if other.end_ns.saturating_sub(slice_ns) > other.start_ns {
                first = n;
            }
            if let Some(same) = last_with.insert((other.hw_context, other.pid), n) {
                first = first.max(same.saturating_add(1));
            }
        }
        before = Some(own);
        let Some(tenant) = own.tenant else { continue };
        let from = last_of.insert(tenant, at).map_or(first, |same| first.max(same.saturating_add(1)));
        if let Some(other) = slices.get(from..at).and_then(<[Slice]>::first) {
            let from_ns = other.start_ns.max(other.end_ns.saturating_sub(slice_ns));
            if from_ns < own.start_ns {
                turns.entry(tenant).or_default().push((from_ns, own.start_ns));
            }
        }
    }
    turns
}

/// Measured demands are told apart to so many parts of what the device has: kernels that differ by less are of one class.
const PARTS: f64 = 1000.0;

/// A [`Demand`] in [`PARTS`].
type DemandParts = (Option<u32>, Option<u32>);

fn demand((bandwidth, sm_throughput): DemandParts) -> Demand {
    let part = |n: u32| f64::from(n) / PARTS;
    Demand { bandwidth: bandwidth.map(part), sm_throughput: sm_throughput.map(part) }
}

/// Measured demands by number of the kernel's name.
fn by_key(
    names: &NameColumn<'_>,
    rows: usize,
    measured: &BTreeMap<String, Demand>,
) -> HashMap<u32, DemandParts> {
    let mut found = HashMap::new();
    if measured.is_empty() {
        return found;
    }
    let mut seen: HashSet<u32> = HashSet::new();
    for key in (0..rows).filter_map(|row| names.key(row)) {
        let wants = seen.insert(key).then(|| names.text(key).and_then(|name| measured.get(name))).flatten();
        if let Some(wants) = wants {
            let parts = |part: f64, most: f64| (part.clamp(0.0, most) * PARTS).round() as u32;
            let bandwidth = wants.bandwidth.map(|part| parts(part, 10.0));
            found.insert(key, (bandwidth, wants.sm_throughput.map(|part| parts(part, 1.0))));
        }
    }
    found
}

/// What was recorded of one device: programs are made from all of it, or from a window of it.
pub(crate) struct Recording<'a> {
    recorded: &'a sharing_config::Recorded,
    limits: Limits,
    unknown: Vec<(u32, i64)>,
    slices: Vec<Slice>,
    /// The time before each slice in which its tenant may have waited for others.
    turns: BTreeMap<u32, Union>,
    by_tenant: BTreeMap<u32, Vec<Seen>>,
    calls: BTreeMap<u32, Vec<Call>>,
    shapes: Vec<ShapeSeen>,
    alone: HashMap<Shape, (u32, i64)>,
    measured: HashMap<u32, DemandParts>,
    state: f64,
}

impl<'a> Recording<'a> {
    /// Reads one device.
    pub(crate) fn read(
        session: &Tables,
        device: u32,
        recorded: &'a sharing_config::Recorded,
        watch: &dyn Watch,
    ) -> Result<Self> {
        let time_sliced = recorded.time_sliced;
        let who = Who::read(session)?;
        let limits = match session.get(schema::DEVICES.name) {
            Some(devices) => Limits::of_devices(devices)?.remove(&device).unwrap_or_default(),
            None => Limits::default(),
        };
        let mut unknown = Vec::new();
        let mut shapes = Vec::new();
        let mut slices = session.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
        slices.retain(|s| s.device == device);
        slices.sort_by_key(|s| s.start_ns);
        let slice_ns = slice_lengths(&slices).get(&device).and_then(|l| median_ns(l));
        let mut turns: BTreeMap<u32, Union> =
            residency_of_others(&slices, slice_ns.unwrap_or(DEFAULT_SLICE_NS))
                .into_iter()
                .map(|(t, spans)| (t, Union::of(spans)))
                .collect();
        let mut held: BTreeMap<u32, Held> = BTreeMap::new();
        let mut spans: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        for s in &slices {
            if let Some(tenant) = s.tenant {
                spans.entry(tenant).or_default().push((s.start_ns, s.end_ns));
            }
        }
        for (tenant, spans) in spans {
            held.insert(tenant, Held { resident: Union::of(spans) });
        }
        let here: Vec<_> = who.tenants.iter().filter(|t| t.device == device).collect();
        let servers: HashSet<u32> = here.iter().filter_map(|t| t.served_by).collect();
        for t in &here {
            let serves = servers.contains(&t.id);
            let held_ns = held.get(&t.id).map_or(0, |h| h.resident.total_ns());
            if !t.traced && !serves {
                unknown.push((t.id, held_ns));
            }
            // Records may name the server for its clients.
            if let Some(of_server) = t.served_by.and_then(|server| turns.get(&server)).cloned() {
                turns.entry(t.id).or_insert(of_server);
            }
        }
        let mut by_tenant: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
        let events = Events::of(session);
        let kernels = events.get(&schema::KERNELS);
        let launches = kernels.as_ref().map(LaunchColumns::new).transpose()?;
        let names = kernels.as_ref().map(|k| k.names("name")).transpose()?;
        let measured = names.as_ref().map_or_else(HashMap::new, |n| {
            by_key(n, kernels.as_ref().map_or(0, Columns::rows), &recorded.kernel_demands)
        });
        let memops = events.get(&schema::MEMOPS);
        let kinds = memops.as_ref().map(|m| m.u8("copy_kind")).transpose()?;
        for (n, w) in work(&events)?.enumerate() {
            if n.is_multiple_of(65_536) {
                watch.progress("programs", n as u64, 0)?;
            }
            if w.device != device {
                continue;
            }
            let Some(tenant) = who.of(w.capture, w.pid, w.device) else { continue };
            let is_kernel = w.kind == WorkKind::Kernel;
            let seen = Seen {
                launch: launches.as_ref().filter(|_| is_kernel).map(|l| l.read(w.row)),
                name: names.as_ref().filter(|_| is_kernel).and_then(|n| n.key(w.row)),
                copy: match kinds
                    .filter(|_| w.kind == WorkKind::Copy)
                    .and_then(|k| crate::table::columns::at(k, w.row))
                {
                    Some(1) => 0,
                    Some(2) => 1,
                    _ => 2,
                },
                covered_ns: 0,
                edges: 0,
                clear: true,
                work: w,
            };
            by_tenant.entry(tenant).or_default().push(seen);
        }
        let holder = |id: u32| {
            let served = who.tenants.get(id as usize).and_then(|t| t.served_by);
            held.get(&served.unwrap_or(id)).or_else(|| held.get(&id))
        };
        cover(&mut by_tenant, &holder, time_sliced);
        let state = state_ns(&by_tenant);
        let alone = usual_times(&by_tenant, state, &mut shapes);
        let calls = calls(session, &who, device)?;
        Ok(Self {
            recorded,
            limits,
            unknown,
            slices,
            turns,
            by_tenant,
            calls,
            shapes,
            alone,
            measured,
            state,
        })
    }

    /// The programs of all that is to be replayed.
    pub(crate) fn programs(&self, watch: &dyn Watch) -> Result<Programs> {
        let mut made = Programs {
            shapes: self.shapes.clone(),
            limits: self.limits,
            unknown: self.unknown.clone(),
            ..Programs::default()
        };
        let mut handed_over: BTreeMap<u32, Vec<(&Slice, &Slice)>> = BTreeMap::new();
        for (own, other) in self
            .slices
            .iter()
            .zip(self.slices.iter().skip(1))
            .filter(|(own, other)| own.tenant != other.tenant)
        {
            if let Some(tenant) = own.tenant {
                handed_over.entry(tenant).or_default().push((own, other));
            }
        }
        let mut lost: Vec<i64> = Vec::new();
        let mut lives: Vec<Working> = Vec::new();
        // Beside a process outside of MPS they also wait for time slices.
        let together = self.recorded.config.as_ref().filter(|_| !self.recorded.time_sliced);
        let clients = together.map(SharingConfig::uncapped_clients).unwrap_or_default();
        let mut started: Vec<Started> = Vec::new();
        for (tenant, all) in &self.by_tenant {
            watch.progress("programs", 0, 0)?;
            let seen = working_part(all);
            let calls = self.calls.get(tenant).map_or(&[][..], Vec::as_slice);
            let aside = all.len().saturating_sub(seen.len()) as u64;
            let part = self.recorded.window.map(|window| launched_in(window, seen, calls));
            let (seen, calls) = part.as_ref().map_or((seen, calls), |(seen, calls)| (&seen[..], &calls[..]));
            let units = self.units(*tenant, self.recorded.window);
            let mut program = self.program(*tenant, seen, calls, units.as_ref());
            program.aside = aside;
            if program.from_calls {
                let lost_here = handed_over.get(tenant).map_or(&[][..], Vec::as_slice);
                lost.extend(lost_after(lost_here, seen, &launch_times(seen, calls), program.submit_ns));
                if let Some(group) = clients.get(tenant) {
                    started.extend(started_as_recorded(&program, seen, *group));
                }
            }
            if !program.ops.is_empty() {
                lives.push(Working::of(seen));
                made.programs.push(program);
            }
        }
        let last_ns = lives.iter().map(|life| life.end_ns).max().unwrap_or(0);
        for (program, life) in made.programs.iter_mut().zip(&lives) {
            program.goes_on = life.goes_on(last_ns);
        }
        if lost.len() >= ENOUGH_LOST {
            made.linger_ns = Some(percentile(&mut lost, 0.02).min(MOST_LINGER_NS));
        }
        made.client_order = shown_order(&mut started);
        Ok(made)
    }

    /// Whether a part of it is to be replayed.
    pub(crate) const fn is_part(&self) -> bool {
        self.recorded.window.is_some()
    }

    /// Parts of the programs, so many windows of time, as long as each other and as far apart, that hold `part` of all
    /// operations; as many windows as show the programs at the same work.
    ///
    /// `None` where no number of windows does: where a program does not work all the time, or begins and ends phases
    /// that are as long as a window.
    pub(crate) fn windows(&self, whole: &Programs, part: f64) -> Option<Vec<Programs>> {
        let works: Vec<AtWork<'_>> = whole.programs.iter().map(|p| self.at_work(p)).collect::<Option<_>>()?;
        let first_ns = works.iter().filter_map(|w| w.launched_ns.first()).max()?;
        let last_ns = works.iter().filter_map(|w| w.launched_ns.last()).min()?;
        let length_ns = last_ns.saturating_sub(*first_ns);
        let long_enough =
            |p: &Program| length_ns as f64 >= (1.0 - MOST_MISSED) * p.recorded_ns as f64 && length_ns > 0;
        if !whole.programs.iter().all(long_enough) {
            return None;
        }
        (2..=MOST_WINDOWS).rev().find_map(|n| {
            let each_ns = (length_ns as f64 * part / f64::from(n)) as i64;
            let middle = |k: u32| (length_ns as f64 * (f64::from(k) + 0.5) / f64::from(n)) as i64;
            let window = |k: u32| {
                let from_ns = first_ns.saturating_add(middle(k)).saturating_sub(each_ns / 2);
                (from_ns, from_ns.saturating_add(each_ns))
            };
            let windows: Vec<(i64, i64)> = (0..n).map(window).collect();
            works
                .iter()
                .all(|w| w.is_alike(&windows, part))
                .then(|| windows.iter().map(|window| self.window(whole, &works, *window)).collect())
        })
    }

    /// A program's operations in the order in which they were launched.
    fn at_work(&self, program: &Program) -> Option<AtWork<'_>> {
        let seen = working_part(self.by_tenant.get(&program.tenant)?);
        let calls = self.calls.get(&program.tenant).map_or(&[][..], Vec::as_slice);
        let calls = if program.from_calls { calls } else { &[] };
        let mut launched_ns = launched_or_begun(seen, calls);
        launched_ns.sort_unstable();
        Some(AtWork { seen, calls, launched_ns })
    }

    /// The programs of a window, which they repeat as if it were all.
    fn window(&self, whole: &Programs, works: &[AtWork<'_>], window: (i64, i64)) -> Programs {
        let (from_ns, to_ns) = window;
        let mut made = Programs {
            shapes: self.shapes.clone(),
            limits: self.limits,
            unknown: self.unknown.clone(),
            linger_ns: whole.linger_ns,
            client_order: whole.client_order,
            ..Programs::default()
        };
        for (all, work) in whole.programs.iter().zip(works) {
            let (seen, calls) = launched_in(window, work.seen, work.calls);
            let units = self.units(all.tenant, Some(window));
            let mut program = self.program(all.tenant, &seen, &calls, units.as_ref());
            // What the whole shows better than a part.
            (program.pauses, program.unseen_waits) = (all.pauses, all.unseen_waits);
            program.barrier = program.barrier.filter(|_| all.barrier.is_some());
            (program.submit_ns, program.release_ns, program.copy_release_ns) =
                (all.submit_ns, all.release_ns, all.copy_release_ns);
            (program.goes_on, program.is_window) = (true, true);
            // It goes round: what is left of the window when its work is done comes before it begins again.
            program.outside_ns = to_ns.saturating_sub(from_ns).saturating_sub(program.recorded_ns).max(0);
            let begin_ns = program.hosts.iter().filter_map(|host| host.begin_ns).min().unwrap_or(from_ns);
            let end_ns = begin_ns.saturating_add(to_ns.saturating_sub(from_ns));
            let longest = program.hosts.iter_mut().max_by_key(|host| host.steps.len());
            if let Some(host) = longest.filter(|_| program.outside_ns > 0) {
                host.steps.push(Step::Pause { ns: program.outside_ns, end_ns });
            }
            made.programs.push(program);
        }
        made
    }

    /// A tenant's units of work, those that lie in a window.
    fn units(&self, tenant: u32, window: Option<(i64, i64)>) -> Option<Vec<(i64, i64)>> {
        let inside =
            |unit: &&(i64, i64)| window.is_none_or(|(from_ns, to_ns)| unit.0 >= from_ns && unit.1 <= to_ns);
        Some(self.recorded.units.get(&tenant)?.iter().filter(inside).copied().collect())
    }

    /// A tenant's program, from these operations and calls of it.
    fn program(
        &self,
        tenant: u32,
        seen: &[Seen],
        calls: &[Call],
        units: Option<&Vec<(i64, i64)>>,
    ) -> Program {
        let sms = self.recorded.visible_sms.get(&tenant).copied().or(self.limits.sm_count).unwrap_or(0);
        let mut program = Program { tenant, visible_sms: sms, ..Program::default() };
        operations(&mut program, seen, &self.limits, self.state, &self.alone, &self.measured);
        program.from_calls = !calls.is_empty() && threads(&mut program, seen, calls, units);
        if !program.from_calls {
            streams(&mut program, seen, self.turns.get(&tenant));
        }
        program
    }
}

/// A program's operations and calls, and when its operations were launched, in order.
struct AtWork<'a> {
    seen: &'a [Seen],
    calls: &'a [Call],
    launched_ns: Vec<i64>,
}

impl AtWork<'_> {
    /// How many of its operations were launched in a window.
    fn inside(&self, window: (i64, i64)) -> usize {
        let before = |ns: i64| self.launched_ns.partition_point(|at| *at < ns);
        before(window.1).saturating_sub(before(window.0))
    }

    /// Whether windows show it at the work that it does all the time.
    fn is_alike(&self, windows: &[(i64, i64)], part: f64) -> bool {
        let counts: Vec<usize> = windows.iter().map(|window| self.inside(*window)).collect();
        let expected = part * self.launched_ns.len() as f64;
        let each = expected / windows.len() as f64;
        let sum: usize = counts.iter().sum();
        let least = counts.iter().min().copied().unwrap_or(0);
        (sum as f64 / expected - 1.0).abs() <= UNLIKE
            && least as f64 >= each / 2.0
            && least >= ENOUGH_IN_WINDOW
    }
}

/// When a program's operations ran.
struct Working {
    start_ns: i64,
    end_ns: i64,
    /// Longest time without any.
    pause_ns: i64,
}

impl Working {
    fn of(seen: &[Seen]) -> Self {
        let start_ns = seen.first().map_or(0, |s| s.work.start_ns);
        let (mut end_ns, mut pause_ns) = (start_ns, 0);
        for s in seen {
            pause_ns = pause_ns.max(s.work.start_ns.saturating_sub(end_ns));
            end_ns = end_ns.max(s.work.end_ns);
        }
        Self { start_ns, end_ns, pause_ns }
    }

    /// Whether it would have gone on after the last operation of all: it paused before for as long as it did then.
    fn goes_on(&self, last_ns: i64) -> bool {
        let short_ns = AT_THE_END * last_ns.saturating_sub(self.start_ns) as f64;
        last_ns.saturating_sub(self.end_ns) <= self.pause_ns.max(short_ns as i64)
    }
}

/// The operations of a program's work, without what it does long before and long after.
///
/// ```text
///   |init|      a long pause      |op|op| |op| ... |op|op|      a long pause      |results|
///                                 <--------- the work --->
/// ```
/// Pauses of a program do not change with the sharing mode: with these in it every mode seems to cost nothing.
fn working_part(seen: &[Seen]) -> &[Seen] {
    let first_ns = seen.iter().map(|s| s.work.start_ns).min().unwrap_or(0);
    let last_ns = seen.iter().map(|s| s.work.end_ns).max().unwrap_or(0);
    let pause_ns = LONG_PAUSE * last_ns.saturating_sub(first_ns) as f64;
    let took_ns = |s: &Seen| s.work.end_ns.saturating_sub(s.work.start_ns) as f64;
    let whole_ns: f64 = seen.iter().map(took_ns).sum();
    let (mut from, mut to) = (0, seen.len());
    let (mut done_ns, mut busy_until_ns) = (0.0, first_ns);
    for (n, s) in seen.iter().enumerate() {
        if s.work.start_ns.saturating_sub(busy_until_ns) as f64 >= pause_ns && n > 0 {
            if done_ns <= ASIDE * whole_ns {
                from = n;
            } else if whole_ns - done_ns <= ASIDE * whole_ns {
                to = n;
                break;
            }
        }
        done_ns += took_ns(s);
        busy_until_ns = busy_until_ns.max(s.work.end_ns);
    }
    seen.get(from..to).unwrap_or(seen)
}

/// How much of each kernel its tenant was resident, and whether anything ran beside it then.
fn cover<'a>(
    by_tenant: &mut BTreeMap<u32, Vec<Seen>>,
    holder: &dyn Fn(u32) -> Option<&'a Held>,
    time_sliced: bool,
) {
    // Last end of earlier kernels and first start of later ones, of all that could run at the same instant.
    let mut order: Vec<(i64, i64, u32, usize)> = Vec::new();
    let mut known: HashSet<u32> = HashSet::new();
    for (tenant, seen) in by_tenant.iter_mut() {
        let resident = |s: &Seen, h: &Held| h.resident.covered_ns(s.work.start_ns, s.work.end_ns);
        let kernel = |s: &&Seen| s.work.kind != WorkKind::Copy && s.work.end_ns > s.work.start_ns;
        let held =
            holder(*tenant).filter(|h| !is_of_others(seen.iter().filter(kernel).map(|s| resident(s, h))));
        known.extend(held.map(|_| *tenant));
        for (n, s) in seen.iter_mut().enumerate() {
            let (start, end) = (s.work.start_ns, s.work.end_ns);
            s.covered_ns = held.map_or(end.saturating_sub(start), |h| resident(s, h));
            s.edges = held.map_or(0, |h| h.resident.edges_inside(start, end));
            if s.work.kind != WorkKind::Copy {
                order.push((start, end, *tenant, n));
            }
        }
    }
    order.sort_unstable();
    // With switch records kernels of tenants that are time-sliced are no co_run for each other; without them nobody knows.
    let apart = |tenant: u32| time_sliced && known.contains(&tenant);
    type Kernel = (u32, usize);
    let mut ends: BTreeMap<Option<u32>, (i64, Option<Kernel>)> = BTreeMap::new();
    let mut co_run: Vec<Kernel> = Vec::new();
    for (start, end, tenant, n) in &order {
        let key = apart(*tenant).then_some(*tenant);
        let (last, by) = ends.entry(key).or_insert((i64::MIN, None));
        if *last > *start {
            co_run.push((*tenant, *n));
            co_run.extend(*by);
        }
        if *end > *last {
            (*last, *by) = (*end, Some((*tenant, *n)));
        }
    }
    for (tenant, n) in co_run {
        if let Some(seen) = by_tenant.get_mut(&tenant).and_then(|s| s.get_mut(n)) {
            seen.clear = false;
        }
    }
}

type Shape = (Option<u32>, Option<Recorded>);

/// Residency that one edge of a cut kernel costs: kernels of equal shape that were cut more and less often differ by
/// it (least squares over deviations from the mean of their shape).
fn state_ns(by_tenant: &BTreeMap<u32, Vec<Seen>>) -> f64 {
    let (mut xy, mut xx, mut n) = (0.0, 0.0, 0_u32);
    for seen in by_tenant.values() {
        let mut shapes: HashMap<Shape, (f64, f64, f64)> = HashMap::new();
        let kernels =
            || seen.iter().filter(|s| s.work.kind == WorkKind::Kernel && s.clear && s.edges % 2 == 0);
        for s in kernels() {
            let sums = shapes.entry((s.name, s.launch)).or_default();
            *sums = (sums.0 + 1.0, sums.1 + s.edges as f64, sums.2 + s.covered_ns as f64);
        }
        for s in kernels() {
            let Some((count, edges, covered)) = shapes.get(&(s.name, s.launch)) else { continue };
            let x = s.edges as f64 - edges / count;
            let y = s.covered_ns as f64 - covered / count;
            (xy, xx) = (x.mul_add(y, xy), x.mul_add(x, xx));
            n = n.saturating_add(u32::from(x.abs() > 0.0));
        }
    }
    if n < 8 || xx <= 0.0 {
        return STATE_NS as f64 / 2.0;
    }
    (xy / xx).clamp(0.0, STATE_NS as f64)
}

fn percentile(values: &mut [i64], part: f64) -> i64 {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * part).round() as usize).copied().unwrap_or(0)
}

/// What of a kernel's residency was its own: less what saving and restoring state took.
fn own_ns(s: &Seen, state_ns: f64) -> i64 {
    let cut = (s.edges as f64 * state_ns) as i64;
    s.covered_ns.saturating_sub(cut.min(s.covered_ns / 2)).max(0)
}

/// Number and usual time alone of each name and launch configuration, over all tenants.
fn usual_times(
    by_tenant: &BTreeMap<u32, Vec<Seen>>,
    state_ns: f64,
    shapes: &mut Vec<ShapeSeen>,
) -> HashMap<Shape, (u32, i64)> {
    let mut usual: HashMap<Shape, (Vec<i64>, Vec<i64>)> = HashMap::new();
    for s in by_tenant.values().flatten().filter(|s| s.work.kind != WorkKind::Copy) {
        let (clear, co_run) = usual.entry((s.name, s.launch)).or_default();
        let list = if s.clear { clear } else { co_run };
        list.push(own_ns(s, state_ns));
    }
    let mut alone = HashMap::new();
    for (shape, (mut clear, mut co_run)) in usual {
        let known = clear.len() >= 3;
        let usual = if known { percentile(&mut clear, 0.5) } else { percentile(&mut co_run, 0.1) };
        alone.insert(shape, (u32::try_from(shapes.len()).unwrap_or(u32::MAX), usual));
        shapes.push(ShapeSeen { known });
    }
    alone
}

/// The operations of a program, with the time each takes alone.
fn operations(
    program: &mut Program,
    seen: &[Seen],
    limits: &Limits,
    state_ns: f64,
    alone: &HashMap<Shape, (u32, i64)>,
    measured: &HashMap<u32, DemandParts>,
) {
    let surely = |s: &Seen| own_ns(s, state_ns);
    let mut fits: HashMap<Recorded, Option<(u64, Resources)>> = HashMap::new();
    let mut numbers: BTreeMap<(Option<u32>, Option<u32>), u32> = BTreeMap::new();
    let mut classes: HashMap<(Place, DemandParts), u32> = HashMap::new();
    let (mut kernels_ns, mut replaced_ns) = (0_i64, 0_i64);
    for s in seen {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let stream = *numbers.entry((s.work.context, s.work.stream)).or_insert(next);
        let whole_ns = s.work.end_ns.saturating_sub(s.work.start_ns);
        let (shape, usual) = alone.get(&(s.name, s.launch)).copied().unwrap_or((u32::MAX, i64::MAX));
        let (place, work_ns) = if s.work.kind == WorkKind::Copy {
            (Place::Copy(s.copy), whole_ns)
        } else {
            let mut ns = surely(s);
            kernels_ns = kernels_ns.saturating_add(ns);
            if !s.clear {
                replaced_ns = replaced_ns.saturating_add(ns);
                ns = ns.min(usual);
            }
            let fit = s.launch.and_then(|launch| {
                let shape = launch.shape();
                let known = fits.entry(shape).or_insert_with(|| {
                    let per_sm =
                        shape.fit(Some(limits)).ok().map(|f| u64::from(f.blocks)).filter(|n| *n > 0)?;
                    Some((per_sm, shape.footprint(limits)?))
                });
                known.zip(launch.grid_blocks)
            });
            let at_once = |per_sm: u64| per_sm.saturating_mul(u64::from(program.visible_sms)).max(1);
            let place = fit.map_or(Place::Device, |((per_sm, ask), count)| {
                // Blocks that follow each other in one place are one long block.
                let joined = count.div_ceil(at_once(per_sm)).div_ceil(MOST_WAVES).max(1);
                Place::Sms { count: count.div_ceil(joined), per_sm, ask }
            });
            program.opaque = program.opaque.saturating_add(u64::from(place == Place::Device));
            (place, ns)
        };
        let (seen_ns, co_run) = (surely(s), !s.clear);
        let wants = s.name.and_then(|name| measured.get(&name)).copied().unwrap_or_default();
        let class = *classes.entry((place, wants)).or_insert_with(|| {
            program.places.push(place);
            program.demands.push(demand(wants));
            u32::try_from(program.places.len().saturating_sub(1)).unwrap_or(u32::MAX)
        });
        program.ops.push(Op {
            stream,
            class,
            work_ns: work_ns.max(1),
            seen_ns,
            shape,
            co_run,
            unit: NO_UNIT,
            ready_ns: 0,
        });
    }
    program.streams = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    program.contended = replaced_ns as f64 / kernels_ns.max(1) as f64;
    program.barrier = barrier(seen, &numbers);
}

/// The legacy default stream, unless the capture shows it beside another stream of its context.
fn barrier(seen: &[Seen], numbers: &BTreeMap<(Option<u32>, Option<u32>), u32>) -> Option<u32> {
    let (key, number) = numbers.iter().find(|((_, stream), _)| *stream == Some(NULL_STREAM))?;
    let mut last: [i64; 2] = [i64::MIN; 2];
    for s in seen.iter().filter(|s| s.work.context == key.0) {
        let (mine, other) = if s.work.stream == key.1 { (0, 1) } else { (1, 0) };
        if last.get(other).is_some_and(|end| *end > s.work.start_ns.saturating_add(1_000)) {
            return None;
        }
        if let Some(end) = last.get_mut(mine) {
            *end = (*end).max(s.work.end_ns);
        }
    }
    Some(*number)
}

/// A CUDA call.
#[derive(Clone)]
struct Call {
    thread: u32,
    start_ns: i64,
    end_ns: i64,
    correlation: Option<u32>,
    /// It returns only when work has ended: all that was launched, or some.
    blocks: Option<bool>,
    /// How long after what it waited for a poll may notice that; 0 for other calls.
    noticed_within_ns: i64,
    /// It lets the driver call the program when a stream has come so far.
    calls_back: bool,
}

/// Whether a call waits for the device: `Some(true)` for all of its work.
fn blocking(name: &str) -> Option<bool> {
    if name.contains("Synchronize") {
        return Some(name.contains("DeviceSynchronize") || name.contains("CtxSynchronize"));
    }
    let copies = name.contains("Memcpy") || name.contains("Memset");
    (copies && !name.contains("Async")).then_some(false)
}

/// When the driver called the program back: the ends of the operations that threads launched last before they asked for
/// that, in order. The stream is not recorded with it.
fn called_back(calls: &[Call], caused: &HashMap<u32, Vec<u32>>, seen: &[Seen]) -> Vec<(i64, u32)> {
    let mut found = Vec::new();
    if !calls.iter().any(|call| call.calls_back) {
        return found;
    }
    let mut last: HashMap<u32, (i64, u32)> = HashMap::new();
    for call in calls {
        let ops = call.correlation.and_then(|id| caused.get(&id)).into_iter().flatten();
        let ends = ops.filter_map(|op| Some((seen.get(*op as usize)?.work.end_ns, *op)));
        last.extend(ends.max().map(|op| (call.thread, op)));
        if call.calls_back {
            // Nobody waits for what was done before it was asked for.
            found.extend(last.get(&call.thread).filter(|op| op.0 > call.end_ns));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// What a pause of a thread waited for: the last call back in it, soon after which it ended.
fn waited_in(pause: (i64, i64), called_back: &[(i64, u32)]) -> Option<(i64, u32)> {
    let (from_ns, to_ns) = pause;
    let length_ns = to_ns.saturating_sub(from_ns);
    let before = called_back.partition_point(|back| back.0 <= to_ns).checked_sub(1)?;
    let back = called_back.get(before).filter(|back| back.0 > from_ns && length_ns > PAUSE_NS)?;
    (to_ns.saturating_sub(back.0).saturating_mul(SOON_PART) <= length_ns).then_some(*back)
}

/// Calls back for which the pauses of a thread waited; none unless most pauses with one did.
fn waits_for_calls_back(calls: &[&Call], called_back: &[(i64, u32)]) -> bool {
    let (mut waited, mut otherwise) = (0_u32, 0_u32);
    for pair in calls.windows(2) {
        let [before, after] = pair else { continue };
        let pause = (before.end_ns, after.start_ns);
        if waited_in(pause, called_back).is_some() {
            waited = waited.saturating_add(1);
        } else if pause.1.saturating_sub(pause.0) > PAUSE_NS {
            let inside = called_back.partition_point(|back| back.0 <= pause.1)
                > called_back.partition_point(|back| back.0 <= pause.0);
            otherwise = otherwise.saturating_add(u32::from(inside));
        }
    }
    waited > 0 && otherwise.saturating_mul(MOSTLY) <= waited
}

/// Idle times of a thread with work in flight; what each call launched last is given.
fn idle_times(calls: &[&Call], last_of: impl Fn(&Call) -> Option<(i64, u32)>) -> IdleTimes {
    let mut found = IdleTimes::default();
    let (mut until_ns, mut work_ns) = (i64::MIN, i64::MIN);
    for call in calls {
        if call.end_ns > until_ns {
            found.see(until_ns, call.start_ns, work_ns);
            until_ns = call.end_ns;
        }
        work_ns = work_ns.max(last_of(call).map_or(i64::MIN, |last| last.0));
    }
    found
}

/// Calls by tenant, each thread's in order; calls inside another one are part of it, and a poll is one call.
fn calls(session: &Tables, who: &Who, device: u32) -> Result<BTreeMap<u32, Vec<Call>>> {
    let mut found: BTreeMap<u32, Vec<Call>> = BTreeMap::new();
    let Some(batch) = session.get(schema::API_CALLS.name) else { return Ok(found) };
    let c = Columns::new(&schema::API_CALLS, batch);
    let (pid, thread): (Folded<'_>, Folded<'_>) = (c.folded("pid")?, c.folded("tid")?);
    let capture = c.u32("capture")?;
    let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
    let (name, correlation) = (c.names("name")?, c.u32("correlation_id")?);
    let polls = Polls::of(batch)?;
    let mut waits: HashMap<u32, (Option<bool>, bool)> = HashMap::new();
    for row in (0..c.rows()).filter(|row| !polls.is_part(*row)) {
        let Some(tenant) = who.of(capture.value(row), pid.at(row), device) else { continue };
        let of = |name: &str| (blocking(name), calls_back(name));
        let known = name
            .key(row)
            .map(|key| *waits.entry(key).or_insert_with(|| name.get(row).map_or_else(Default::default, of)));
        let (blocks, calls_back) = known.unwrap_or_default();
        let poll = polls.begun_in(row);
        let end_ns = poll.map_or_else(|| end.value(row).max(start.value(row)), |poll| poll.end_ns);
        found.entry(tenant).or_default().push(Call {
            thread: thread.at(row).unwrap_or(0),
            start_ns: start.value(row),
            end_ns,
            correlation: crate::table::columns::at(correlation, row),
            blocks: blocks.or(poll.map(|_| false)),
            noticed_within_ns: poll.map_or(0, |poll| poll.period_ns),
            calls_back,
        });
    }
    Ok(found)
}

/// Operations by the correlation id of the call that launched them.
fn caused(seen: &[Seen]) -> HashMap<u32, Vec<u32>> {
    let mut caused: HashMap<u32, Vec<u32>> = HashMap::new();
    for (n, s) in seen.iter().enumerate() {
        if let Some(correlation) = s.work.correlation {
            caused.entry(correlation).or_default().push(n as u32);
        }
    }
    caused
}

/// When the call began that launched each operation.
fn launch_times(seen: &[Seen], calls: &[Call]) -> Vec<Option<i64>> {
    let caused = caused(seen);
    let mut launched_ns: Vec<Option<i64>> = vec![None; seen.len()];
    for call in calls {
        for op in call.correlation.and_then(|c| caused.get(&c)).into_iter().flatten() {
            if let Some(at) = launched_ns.get_mut(*op as usize) {
                at.get_or_insert(call.start_ns);
            }
        }
    }
    launched_ns
}

/// When each operation was launched, or else when it began.
fn launched_or_begun(seen: &[Seen], calls: &[Call]) -> Vec<i64> {
    let launched = launch_times(seen, calls);
    seen.iter().zip(launched).map(|(s, at)| at.unwrap_or(s.work.start_ns)).collect()
}

/// Operations that were launched in a window, and the calls in it.
fn launched_in(window: (i64, i64), seen: &[Seen], calls: &[Call]) -> (Vec<Seen>, Vec<Call>) {
    let inside = |ns: &i64| (window.0..window.1).contains(ns);
    let at = launched_or_begun(seen, calls);
    let seen = seen.iter().zip(&at).filter(|(_, at)| inside(at)).map(|(s, _)| s.clone()).collect();
    (seen, calls.iter().filter(|call| inside(&call.start_ns)).cloned().collect())
}

/// How long after its last operation a tenant's next one came, each time that it had lost the engine by then.
///
/// ```text
///   own slice    |==k1==|    |   another tenant's slice   |
///                       <------>
///                              its next launch
/// ```
/// It kept the engine for no longer than the least of these. `handed_over` are its slices, each with the next one, that
/// another tenant had.
fn lost_after(
    handed_over: &[(&Slice, &Slice)],
    seen: &[Seen],
    launched_ns: &[Option<i64>],
    submit_ns: i64,
) -> Vec<i64> {
    let mut found = Vec::new();
    let mut next = 0;
    let mut busy_until_ns = i64::MIN;
    for (own, other) in handed_over {
        while let Some(s) = seen.get(next).filter(|s| s.work.start_ns < own.end_ns) {
            busy_until_ns = busy_until_ns.max(s.work.end_ns);
            next = next.saturating_add(1);
        }
        let idle = busy_until_ns > own.start_ns && busy_until_ns <= own.end_ns;
        let at_once = other.start_ns.saturating_sub(own.end_ns) < IDLE_GAP_NS;
        let launched = launched_ns.get(next).copied().flatten();
        if let (true, true, Some(launched)) = (idle, at_once, launched) {
            let after_ns = launched.saturating_add(submit_ns).saturating_sub(busy_until_ns);
            found.extend((after_ns > 0).then_some(after_ns));
        }
    }
    found
}

/// Hosts from API calls; false where too few operations have one.
fn threads(program: &mut Program, seen: &[Seen], calls: &[Call], units: Option<&Vec<(i64, i64)>>) -> bool {
    let caused = caused(seen);
    let launched_ns = launch_times(seen, calls);
    let known = launched_ns.iter().flatten().count();
    // Ids repeat across processes and are lost with old exports; a program with holes would wait for nothing.
    if known.saturating_mul(100) < seen.len().saturating_mul(98) {
        return false;
    }
    let mut ended: Vec<(i64, u32)> =
        seen.iter().enumerate().map(|(n, s)| (s.work.end_ns, n as u32)).collect();
    ended.sort_unstable();
    let mut latencies: Vec<i64> = Vec::with_capacity(seen.len());
    for (s, launched) in seen.iter().zip(&launched_ns) {
        if let (Some(from), true) = (launched, s.work.kind != WorkKind::Copy) {
            latencies.push(s.work.end_ns.saturating_sub(*from));
        }
    }
    let sum = latencies.iter().fold(0_i64, |sum, l| sum.saturating_add(*l));
    let [p50, p99] = [0.5, 0.99].map(|part| nearest_rank(&mut latencies, part).unwrap_or(0));
    program.latency_ns = Some((sum, p50, p99));
    if let Some(units) = units {
        set_units(program, seen, &launched_ns, units);
    }
    delays(program, seen, &launched_ns);
    set_ready(program, seen, &launched_ns);
    let last_ns = seen.iter().map(|s| s.work.end_ns).max().unwrap_or(0);
    let mut by_thread: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        by_thread.entry(call.thread).or_default().push(call);
    }
    // A thread without operations of the work is no host.
    let causes = |call: &&Call| call.correlation.is_some_and(|id| caused.contains_key(&id));
    by_thread.retain(|_, calls| calls.iter().any(causes));
    let threads: Vec<Vec<&Call>> = by_thread.into_values().collect();
    let lives: Vec<Life> = threads.iter().map(|calls| Life::of(calls, &causes)).collect();
    let mut children = children(&threads, &lives);
    // What no call caused (records that were lost) cannot be placed among the calls: it is left out.
    let mut launched: Vec<bool> = launched_ns.iter().map(Option::is_none).collect();
    let started: HashSet<u32> =
        children.values().flatten().filter(|child| child.started).map(|child| child.host).collect();
    let mut first_ns = i64::MAX;
    // How long each thread had worked, and then paused.
    let mut pauses: Vec<(i64, i64)> = Vec::new();
    let mut units_of_work = DelaysAndPauses::default();
    // With work in flight it may have waited for that without a sign.
    let flights = seen.iter().zip(&launched_ns).map(|(s, at)| (at.unwrap_or(s.work.start_ns), s.work.end_ns));
    let in_flight = Union::of(flights);
    let mut idle_ns = 0_i64;
    let called_back = called_back(calls, &caused, seen);
    for (host, calls) in (0_u32..).zip(&threads) {
        let called_back = if waits_for_calls_back(calls, &called_back) { &called_back[..] } else { &[] };
        let last_of = |call: &Call| {
            let ops = call.correlation.and_then(|id| caused.get(&id)).into_iter().flatten();
            ops.filter_map(|op| Some((seen.get(*op as usize)?.work.end_ns, *op))).max()
        };
        let waits = idle_times(calls, last_of).are_waits();
        program.unseen_waits |= waits.is_none();
        // What it launched that ends last.
        let mut work: Option<(i64, u32)> = None;
        let mut steps: Vec<Step> = Vec::with_capacity(calls.len().saturating_mul(3));
        let mut begin_ns = None;
        let (mut until_ns, mut working_ns) = (0, 0);
        let mut unit = Unit::default();
        for (n, call) in calls.iter().enumerate() {
            let goes_on = call.start_ns < last_ns;
            let lived = children.remove(&(host, n)).unwrap_or_default();
            if !lived.is_empty() {
                until_ns = live(&mut steps, &mut begin_ns, until_ns, &lived, goes_on);
            }
            if !goes_on {
                break;
            }
            let ops = call.correlation.and_then(|c| caused.get(&c));
            if begin_ns.is_none() {
                // Before its first launch a program initialises: no part of the work.
                if ops.is_none() && !started.contains(&host) {
                    continue;
                }
                begin_ns = Some(call.start_ns);
                until_ns = call.start_ns;
                working_ns = call.start_ns;
            }
            if call.end_ns <= until_ns && call.start_ns < until_ns {
                // Inside the call before: a runtime call and the driver call that it makes.
                launch(&mut steps, &mut launched, ops);
                work = work.max(last_of(call));
                continue;
            }
            let unseen = || {
                let (end_ns, op) = work.filter(|_| waits == Some(true))?;
                let waited = ends_with(until_ns, call.start_ns, end_ns) == Some(true);
                waited.then_some((end_ns.min(call.start_ns), op))
            };
            if let Some((end_ns, op)) = waited_in((until_ns, call.start_ns), called_back).or_else(unseen) {
                steps.push(Step::Wait(op));
                until_ns = end_ns;
                unit.waited(end_ns);
            }
            let pause_ns = call.start_ns.saturating_sub(until_ns);
            if pause_ns > PAUSE_NS {
                steps.push(Step::Pause { ns: pause_ns, end_ns: call.start_ns });
                unit.paused(pause_ns);
                pauses.push((until_ns.saturating_sub(working_ns), pause_ns));
                let waited_ns = in_flight.covered_ns(until_ns, call.start_ns);
                idle_ns = idle_ns.saturating_add(pause_ns.saturating_sub(waited_ns));
                working_ns = call.start_ns;
            } else {
                think(&mut steps, pause_ns);
            }
            launch(&mut steps, &mut launched, ops);
            work = work.max(last_of(call));
            for s in ops.into_iter().flatten().filter_map(|op| seen.get(*op as usize)) {
                units_of_work.launched(&mut unit, host, s.name.unwrap_or(u32::MAX), call.start_ns);
            }
            let own_ns = call.end_ns.saturating_sub(call.start_ns);
            // A copy from or to pageable memory is done when its call returns, although that is named asynchronous.
            let copied = |op: &u32| {
                let work = &seen.get(*op as usize)?.work;
                (work.kind == WorkKind::Copy && work.end_ns <= call.end_ns).then_some((*op, work.end_ns))
            };
            let copied = ops.into_iter().flatten().find_map(copied).map(|waited| (false, waited));
            let waited = || call.blocks.and_then(|all| Some((all, waited_for(call, &ended, &launched_ns)?)));
            match copied.or_else(waited) {
                Some((all, (op, end_ns))) => {
                    steps.push(if all { Step::WaitAll } else { Step::Wait(op) });
                    unit.waited(call.end_ns);
                    think(&mut steps, call.end_ns.saturating_sub(end_ns));
                }
                // All had ended before: on a busier device it would have waited.
                None if call.blocks == Some(true)
                    && in_flight.covered_ns(call.start_ns, call.end_ns) == 0 =>
                {
                    steps.push(Step::WaitAll);
                    think(&mut steps, own_ns);
                }
                None => think(&mut steps, own_ns),
            }
            until_ns = call.end_ns;
        }
        let begin_ns = begin_ns.filter(|_| !started.contains(&host));
        first_ns = first_ns.min(begin_ns.unwrap_or(i64::MAX));
        program.hosts.push(Host { begin_ns, steps });
    }
    program.recorded_ns = last_ns.saturating_sub(first_ns);
    let until_moments = units_of_work.until_moments();
    program.pauses = if is_paced(&pauses) || until_moments.mostly() {
        Pauses::Moments
    } else if !until_moments.hardly() && idle_ns as f64 > NOTABLE_PAUSES * program.recorded_ns as f64 {
        Pauses::Unknown
    } else {
        Pauses::AsLong
    };
    !program.hosts.is_empty()
}

/// When a thread makes calls.
#[derive(Debug, Clone, Copy)]
struct Life {
    first_ns: i64,
    /// Its first call that launches work.
    launch_ns: i64,
    last_ns: i64,
}

impl Life {
    fn of(calls: &[&Call], causes: &dyn Fn(&&Call) -> bool) -> Self {
        let first_ns = calls.first().map_or(0, |call| call.start_ns);
        Self {
            first_ns,
            launch_ns: calls.iter().find(|call| causes(call)).map_or(first_ns, |call| call.start_ns),
            last_ns: calls.iter().map(|call| call.end_ns).max().unwrap_or(first_ns),
        }
    }
}

/// A thread that lives in a pause of another one.
#[derive(Debug, Clone, Copy)]
struct Child {
    host: u32,
    life: Life,
    /// The other one had launched work before: the child begins when that one has come so far.
    started: bool,
}

/// Threads that live from their first call to their last in one pause of another thread, by that one and the number of
/// its call after the pause; in the shortest such pause, if there are several. The time before the first call of a
/// thread is such a pause for those that ended just before it ([`JOINED_NS`]), if they live in no other.
fn children(threads: &[Vec<&Call>], lives: &[Life]) -> BTreeMap<(u32, usize), Vec<Child>> {
    let mut order: Vec<(i64, u32)> = lives.iter().map(|life| life.first_ns).zip(0..).collect();
    order.sort_unstable();
    let mut ends: Vec<(i64, u32)> = lives.iter().map(|life| life.last_ns).zip(0..).collect();
    ends.sort_unstable();
    let mut shortest: BTreeMap<u32, (i64, (u32, usize), bool)> = BTreeMap::new();
    for ((parent, calls), own) in (0_u32..).zip(threads).zip(lives) {
        let mut until_ns = i64::MAX;
        for (n, call) in calls.iter().enumerate() {
            let next_ns = call.start_ns;
            if next_ns > until_ns {
                let from = order.partition_point(|(first, _)| *first < until_ns);
                for (_, child) in order.iter().skip(from).take_while(|(first, _)| *first < next_ns) {
                    let ends = lives.get(*child as usize).is_some_and(|life| life.last_ns <= next_ns);
                    let pause_ns = next_ns.saturating_sub(until_ns);
                    let least = shortest.get(child).map_or(i64::MAX, |found| found.0);
                    if ends && *child != parent && (pause_ns < least || !shortest.contains_key(child)) {
                        shortest.insert(*child, (pause_ns, (parent, n), own.launch_ns < until_ns));
                    }
                }
            }
            until_ns = if n == 0 { call.end_ns } else { until_ns.max(call.end_ns) };
        }
    }
    for (first_ns, parent) in &order {
        let before = ends.partition_point(|(last, _)| last < first_ns);
        for (last_ns, child) in ends.iter().take(before).rev() {
            if first_ns.saturating_sub(*last_ns) > JOINED_NS {
                break;
            }
            shortest.entry(*child).or_insert((i64::MAX, (*parent, 0), false));
        }
    }
    let mut found: BTreeMap<(u32, usize), Vec<Child>> = BTreeMap::new();
    for (_, child) in &order {
        let Some((life, (_, at, started))) = lives.get(*child as usize).zip(shortest.get(child)) else {
            continue;
        };
        found.entry(*at).or_default().push(Child { host: *child, life: *life, started: *started });
    }
    found
}

/// Steps of a host in a pause in which others live: it starts them and waits for their ends. Returns the end of what it
/// waited for, or the time to which the steps lead.
fn live(
    steps: &mut Vec<Step>,
    begin_ns: &mut Option<i64>,
    until_ns: i64,
    lived: &[Child],
    goes_on: bool,
) -> i64 {
    let launches = lived.iter().map(|child| child.life.launch_ns).min().unwrap_or(until_ns);
    let mut until_ns = if begin_ns.is_some() { until_ns } else { launches };
    begin_ns.get_or_insert(launches);
    let mut running: Vec<&Child> = Vec::new();
    for child in lived {
        // Who ended before the next began was waited for first.
        let (over, still): (Vec<&Child>, Vec<&Child>) =
            running.into_iter().partition(|other| other.life.last_ns <= child.life.first_ns);
        running = still;
        for other in over {
            steps.push(Step::Join(other.host));
            until_ns = until_ns.max(other.life.last_ns);
        }
        if child.started {
            think(steps, child.life.first_ns.saturating_sub(until_ns));
            steps.push(Step::Start(child.host));
            until_ns = until_ns.max(child.life.first_ns);
        }
        running.push(child);
    }
    for other in running.into_iter().filter(|_| goes_on) {
        steps.push(Step::Join(other.host));
        until_ns = until_ns.max(other.life.last_ns);
    }
    until_ns
}

/// Assigns operations to the units of work in which they were launched.
fn set_units(program: &mut Program, seen: &[Seen], launched_ns: &[Option<i64>], units: &[(i64, i64)]) {
    // Of each unit: first launch, last end.
    let mut spans: Vec<(i64, i64)> = vec![(i64::MAX, i64::MIN); units.len()];
    for ((op, s), launched) in program.ops.iter_mut().zip(seen).zip(launched_ns) {
        let Some(launched) = launched else { continue };
        // Of units inside each other, the one that begins last.
        let after = units.partition_point(|unit| unit.0 <= *launched);
        let Some(at) = after.checked_sub(1) else { continue };
        let Some((span, unit)) = spans.get_mut(at).zip(units.get(at)) else { continue };
        if *launched <= unit.1 {
            op.unit = u32::try_from(at).unwrap_or(NO_UNIT);
            *span = (span.0.min(*launched), span.1.max(s.work.end_ns));
        }
    }
    let lead = |(unit, span): (&(i64, i64), &(i64, i64))| span.0.min(unit.1).saturating_sub(unit.0).max(0);
    program.units_lead_ns = units.iter().zip(&spans).map(lead).collect();
    let mut took: Vec<i64> = units
        .iter()
        .zip(&spans)
        .filter(|(_, span)| span.0 <= span.1)
        .map(|(unit, span)| span.1.saturating_sub(unit.0))
        .collect();
    if !took.is_empty() {
        program.unit_ns = nearest_rank(&mut took, 0.5).zip(nearest_rank(&mut took, 0.99));
    }
}

fn launch(steps: &mut Vec<Step>, launched: &mut [bool], ops: Option<&Vec<u32>>) {
    for op in ops.into_iter().flatten() {
        // A runtime call and the driver call inside it have the same id.
        if let Some(done) = launched.get_mut(*op as usize).filter(|done| !**done) {
            *done = true;
            steps.push(Step::Launch(*op));
        }
    }
}

fn think(steps: &mut Vec<Step>, ns: i64) {
    if ns <= 0 {
        return;
    }
    match steps.last_mut() {
        Some(Step::Think(before)) => *before = before.saturating_add(ns),
        _ => steps.push(Step::Think(ns)),
    }
}

/// The operation that ended last before a call did, if the call waited for it.
fn waited_for(call: &Call, ended: &[(i64, u32)], launched_ns: &[Option<i64>]) -> Option<(u32, i64)> {
    let before = ended.partition_point(|e| e.0 <= call.end_ns);
    let wake_ns = wake_ns(call.end_ns.saturating_sub(call.start_ns), call.noticed_within_ns);
    ended
        .get(..before)?
        .iter()
        .rev()
        .take_while(|(end, _)| *end > call.start_ns && call.end_ns.saturating_sub(*end) <= wake_ns)
        .find(|(_, op)| {
            launched_ns.get(*op as usize).copied().flatten().is_some_and(|at| at <= call.start_ns)
        })
        .map(|(end, op)| (*op, *end))
}

/// Sets when operations could have started, as recorded.
fn set_ready(program: &mut Program, seen: &[Seen], launched_ns: &[Option<i64>]) {
    let mut ended: BTreeMap<u32, i64> = BTreeMap::new();
    for ((op, s), launched_ns) in program.ops.iter_mut().zip(seen).zip(launched_ns) {
        let of = |stream: u32| ended.get(&stream).copied();
        let before = match program.barrier {
            Some(barrier) if op.stream == barrier => ended.values().max().copied(),
            Some(barrier) => of(op.stream).max(of(barrier)),
            None => of(op.stream),
        };
        let copy = s.work.kind == WorkKind::Copy;
        let after = if copy { program.copy_release_ns } else { program.release_ns };
        let arrived = launched_ns.map(|at| at.saturating_add(program.submit_ns));
        let released = before.map(|end| end.saturating_add(after));
        op.ready_ns = arrived.max(released).unwrap_or(s.work.start_ns).min(s.work.start_ns);
        let end_ns = ended.entry(op.stream).or_insert(i64::MIN);
        *end_ns = s.work.end_ns.max(*end_ns);
    }
}

/// When kernels could have started, and when they did.
fn started_as_recorded(program: &Program, seen: &[Seen], group: (usize, u32)) -> Vec<Started> {
    let mut shapes: HashSet<u32> = HashSet::new();
    let kernels = program.ops.iter().zip(seen).filter(|(_, s)| s.work.kind != WorkKind::Copy);
    let started = kernels.map(|(op, s)| Started {
        group,
        client: program.tenant,
        ready_ns: op.ready_ns,
        start_ns: s.work.start_ns,
        first: shapes.insert(op.shape),
    });
    started.collect()
}

/// How soon the device takes what is launched on an idle stream, and what waits in a busy one.
fn delays(program: &mut Program, seen: &[Seen], launched_ns: &[Option<i64>]) {
    let (mut submit, mut release, mut of_kernels) = (Vec::new(), Vec::new(), Vec::new());
    let mut last: BTreeMap<u32, i64> = BTreeMap::new();
    for ((s, op), launched) in seen.iter().zip(&program.ops).zip(launched_ns) {
        let end = last.insert(op.stream, s.work.end_ns).unwrap_or(i64::MIN);
        let Some(launched) = launched else { continue };
        if end < *launched {
            submit.push(s.work.start_ns.saturating_sub(*launched));
        } else if end.saturating_sub(*launched) > 20_000 && end <= s.work.start_ns {
            release.push(s.work.start_ns.saturating_sub(end));
            if s.work.kind != WorkKind::Copy {
                of_kernels.push(s.work.start_ns.saturating_sub(end));
            }
        }
    }
    let usual = |values: &mut Vec<i64>| {
        values.retain(|ns| (0..1_000_000).contains(ns));
        (values.len() >= 8).then(|| percentile(values, 0.25))
    };
    // What takes longer waited for something else too: its turn, or room.
    program.submit_ns = usual(&mut submit).map_or(SUBMIT_NS, |ns| ns.min(20_000));
    program.copy_release_ns = usual(&mut release).map_or(RELEASE_NS, |ns| ns.min(20_000));
    // Where kernels always waited, how soon copies began says nothing of them.
    let waited = usual(&mut of_kernels).is_some_and(|ns| ns >= 20_000);
    program.release_ns = if waited { RELEASE_NS } else { program.copy_release_ns };
}

/// Hosts invented for streams: each launches when the operation before has ended and the gap has gone by.
fn streams(program: &mut Program, seen: &[Seen], turns: Option<&Union>) {
    let mut hosts: BTreeMap<u32, (i64, i64, Vec<Step>, Option<u32>)> = BTreeMap::new();
    let mut first_ns = i64::MAX;
    let mut last_ns = i64::MIN;
    // A stream begins to think when its process begins to work.
    for (n, (s, op)) in seen.iter().zip(&program.ops).enumerate() {
        let (start, end) = (s.work.start_ns, s.work.end_ns);
        first_ns = first_ns.min(start);
        last_ns = last_ns.max(end);
        let host = hosts.entry(op.stream).or_insert((start, start, Vec::new(), None));
        if let Some(before) = host.3 {
            host.2.push(Step::Wait(before));
        }
        let gap_ns = start.saturating_sub(host.1).max(0);
        let turn_ns = turns.map_or(0, |t| t.covered_ns(host.1, start));
        think(&mut host.2, gap_ns.saturating_sub(turn_ns));
        host.2.push(Step::Launch(n as u32));
        host.1 = host.1.max(end);
        host.3 = Some(n as u32);
    }
    program.hosts =
        hosts.into_values().map(|(begin, _, steps, _)| Host { begin_ns: Some(begin), steps }).collect();
    program.recorded_ns = last_ns.saturating_sub(first_ns).max(0);
    (program.submit_ns, program.release_ns, program.copy_release_ns) = (0, 0, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::residency::observed::Ending;
    use crate::table::work::Work;
    use proptest::prelude::*;

    fn seen(start_us: i64, end_us: i64) -> Seen {
        Seen {
            work: Work {
                kind: WorkKind::Kernel,
                row: 0,
                capture: 0,
                pid: None,
                device: 0,
                context: None,
                stream: None,
                correlation: None,
                start_ns: start_us * 1000,
                end_ns: end_us * 1000,
            },
            launch: None,
            name: None,
            copy: 0,
            covered_ns: 0,
            edges: 0,
            clear: true,
        }
    }

    fn call(start_us: i64, end_us: i64, correlation: Option<u32>) -> Call {
        Call {
            thread: 0,
            start_ns: start_us * 1000,
            end_ns: end_us * 1000,
            correlation,
            blocks: None,
            noticed_within_ns: 0,
            calls_back: false,
        }
    }

    #[test]
    fn what_lies_long_before_and_after_the_work_is_left_out() {
        let mut all = vec![seen(0, 10)];
        all.extend((0..20).map(|n| seen(5_000 + n * 100, 5_090 + n * 100)));
        all.push(seen(9_000, 9_010));
        assert_eq!(working_part(&all).first().map(|s| s.work.start_ns), Some(5_000_000));
        assert_eq!(working_part(&all).len(), 20);
        // Requests far apart are all work.
        let requests: Vec<Seen> = (0..10).map(|n| seen(n * 1_000, n * 1_000 + 50)).collect();
        assert_eq!(working_part(&requests).len(), 10);
        assert!(working_part(&[]).is_empty());
    }

    /// Of one slice, looked for from it backwards.
    fn waited_for_others(slices: &[Slice], at: usize, slice_ns: i64) -> Option<(i64, i64)> {
        let own = &slices[at];
        let (mut from_ns, mut seen) = (own.start_ns, HashSet::new());
        for other in slices[..at].iter().rev() {
            let idle = from_ns - other.end_ns > IDLE_GAP_NS;
            if other.tenant == own.tenant || idle || !seen.insert((other.hw_context, other.pid)) {
                break;
            }
            from_ns = other.start_ns.max(other.end_ns - slice_ns);
            if from_ns > other.start_ns {
                break;
            }
        }
        (own.tenant.is_some() && from_ns < own.start_ns).then_some((from_ns, own.start_ns))
    }

    proptest! {
        #[test]
        fn a_slice_waits_for_one_of_each_other_context(
            draws in prop::collection::vec((0_u32..5, 0_u64..6, prop::bool::weighted(0.9), 1_i64..60, -5_i64..60), 0..40)
        ) {
            let mut now_us = 0;
            let mut slices = Vec::new();
            for (pid, hw_context, named, dur_us, pause_us) in draws {
                // Some pauses are idle time, some slices are longer than the usual 30 us, some overlap.
                let idle_us = if pause_us > 55 { IDLE_GAP_NS / 1000 } else { 0 };
                let start_us: i64 = (now_us + pause_us.min(5) + idle_us).max(0);
                now_us = start_us + dur_us;
                slices.push(Slice {
                    capture: 0,
                    device: 0,
                    tenant: named.then_some(pid),
                    pid: Some(pid),
                    hw_context,
                    start_ns: start_us * 1000,
                    end_ns: now_us * 1000,
                    running_start_ns: None,
                    running_end_ns: None,
                    ending: Ending::Unknown,
                    complete: true,
                    observed: true,
                });
            }
            slices.sort_by_key(|slice| slice.start_ns);
            let mut expected: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
            for (at, own) in slices.iter().enumerate() {
                if let Some((tenant, span)) = own.tenant.zip(waited_for_others(&slices, at, 30_000)) {
                    expected.entry(tenant).or_default().push(span);
                }
            }
            prop_assert_eq!(residency_of_others(&slices, 30_000), expected);
        }
    }

    /// What the only host of a program does, of calls and operations with correlation ids from 1.
    fn steps(calls: &[Call], mut seen: Vec<Seen>) -> Vec<Step> {
        for (s, id) in seen.iter_mut().zip(1..) {
            s.work.correlation = Some(id);
        }
        let op = Op {
            stream: 0,
            class: 0,
            work_ns: 1,
            seen_ns: 1,
            shape: 0,
            co_run: false,
            unit: NO_UNIT,
            ready_ns: 0,
        };
        let mut program = Program { ops: vec![op; seen.len()], ..Program::default() };
        assert!(threads(&mut program, &seen, calls, None));
        program.hosts.remove(0).steps
    }

    #[test]
    fn a_host_that_the_driver_calls_back_waits_for_the_work_before() {
        let calls_back = Call { calls_back: true, ..call(5, 6, None) };
        let calls = [call(0, 5, Some(1)), calls_back, call(320, 325, Some(2))];
        // The work ends at 310, the host goes on 10 us later.
        let after = steps(&calls, vec![seen(10, 310), seen(330, 380)]);
        let (launched, waited) = (Step::Launch(0), Step::Wait(0));
        assert_eq!(
            after,
            [launched, Step::Think(6_000), waited, Step::Think(10_000), Step::Launch(1), Step::Think(5_000)]
        );
        // Long after it nobody knows what the host waited for.
        let calls =
            [call(0, 5, Some(1)), Call { calls_back: true, ..call(5, 6, None) }, call(820, 825, Some(2))];
        assert!(!steps(&calls, vec![seen(10, 310), seen(830, 880)]).contains(&waited));
    }

    #[test]
    fn a_host_that_is_idle_until_its_work_ends_waits_for_it() {
        // Each kernel takes 1 ms; the next one is launched 50 us after it, or 1.5 ms after it.
        let rounds = |count: u32, period_us: i64| {
            let at = |n: u32| i64::from(n) * period_us;
            let calls: Vec<Call> = (0..count).map(|n| call(at(n), at(n) + 10, Some(n + 1))).collect();
            steps(&calls, (0..count).map(|n| seen(at(n) + 50, at(n) + 1050)).collect())
        };
        let of = |steps: &[Step], what: fn(&Step) -> bool| steps.iter().filter(|s| what(s)).count();
        let waits = |s: &Step| matches!(s, Step::Wait(_));
        let pauses = |s: &Step| matches!(s, Step::Pause { .. });
        let spins = rounds(6, 1100);
        assert_eq!((of(&spins, waits), of(&spins, pauses)), (5, 0));
        assert_eq!(
            spins.get(..5),
            Some(
                &[Step::Launch(0), Step::Think(10_000), Step::Wait(0), Step::Think(50_000), Step::Launch(1)]
                    [..]
            )
        );
        // Once or twice may be chance; and long after its end nobody waits for it.
        for busy in [rounds(5, 1100), rounds(6, 2550)] {
            assert_eq!(of(&busy, waits), 0);
        }
    }

    #[test]
    fn a_host_waits_for_a_copy_that_is_done_when_its_call_returns() {
        let copy = Seen { work: Work { kind: WorkKind::Copy, ..seen(115, 116).work }, ..seen(115, 116) };
        let after = steps(&[call(0, 5, Some(1)), call(5, 119, Some(2))], vec![seen(10, 110), copy]);
        assert_eq!(
            after,
            [Step::Launch(0), Step::Think(5_000), Step::Launch(1), Step::Wait(1), Step::Think(3_000)]
        );
        // One that ends later is asynchronous.
        let copy = Seen { work: Work { kind: WorkKind::Copy, ..seen(115, 126).work }, ..seen(115, 126) };
        let after = steps(&[call(0, 5, Some(1)), call(5, 119, Some(2))], vec![seen(10, 110), copy]);
        assert_eq!(after, [Step::Launch(0), Step::Think(5_000), Step::Launch(1), Step::Think(114_000)]);
    }

    #[test]
    fn a_host_that_waited_for_all_when_all_had_ended_waits_where_it_has_not() {
        // The kernel ends at 30, the call that waits for all work begins at 40.
        let waits = |start_us, end_us, all| Call { blocks: Some(all), ..call(start_us, end_us, None) };
        let kernels = || vec![seen(10, 30), seen(55, 65)];
        let (launched, host) = (Step::Launch(0), Step::Think(40_000));
        let again = [Step::Think(6_000), Step::Launch(1), Step::Think(5_000)];
        let expected: Vec<Step> = [launched, host, Step::WaitAll].into_iter().chain(again).collect();
        let calls = |wait| [call(0, 5, Some(1)), wait, call(46, 51, Some(2))];
        assert_eq!(steps(&calls(waits(40, 42, true)), kernels()), expected);
        // One that waits for some work may have waited for earlier work.
        assert!(!steps(&calls(waits(40, 42, false)), kernels()).contains(&Step::WaitAll));
        // One that returned while a kernel ran did not wait for all of this program.
        assert!(!steps(&calls(waits(12, 14, true)), kernels()).contains(&Step::WaitAll));
    }

    #[test]
    fn threads_in_a_pause_of_another_are_its_children() {
        // The first calls at 0 and 1000; in between the second lives, and in the second's pause the third. The fourth
        // outlives the pause.
        let calls = [
            vec![call(0, 10, Some(1)), call(1_000, 1_010, Some(2))],
            vec![call(100, 110, Some(3)), call(800, 900, None)],
            vec![call(200, 210, Some(4)), call(300, 310, None)],
            vec![call(400, 410, Some(5)), call(1_200, 1_210, None)],
        ];
        let threads: Vec<Vec<&Call>> = calls.iter().map(|calls| calls.iter().collect()).collect();
        let lives: Vec<Life> =
            threads.iter().map(|c| Life::of(c, &|call| call.correlation.is_some())).collect();
        let found = children(&threads, &lives);
        let at = |key| found.get(&key).map(|all| all.iter().map(|c| (c.host, c.started)).collect::<Vec<_>>());
        assert_eq!(at((0, 1)), Some(vec![(1, true)]));
        assert_eq!(at((1, 1)), Some(vec![(2, true)]));
        assert_eq!(found.len(), 2);
        // The first starts the second 90 us after its own call, waits for its end and goes on 100 us later.
        let (mut steps, mut begin_ns) = (Vec::new(), Some(0));
        let until = live(&mut steps, &mut begin_ns, 10_000, &found[&(0, 1)], true);
        assert_eq!(steps, [Step::Think(90_000), Step::Start(1), Step::Join(1)]);
        assert_eq!(until, 900_000);
    }

    #[test]
    fn a_thread_that_begins_just_after_others_ended_waited_for_them() {
        // A recording that began after the main thread had started two workers: they end at 700 and 900 us, and it goes
        // on at 1000. The last thread begins long after.
        let calls = [
            vec![call(1_000, 1_010, Some(1))],
            vec![call(0, 10, Some(2)), call(800, 900, None)],
            vec![call(5, 15, Some(3)), call(690, 700, None)],
            vec![call(9_000, 9_010, Some(4))],
        ];
        let threads: Vec<Vec<&Call>> = calls.iter().map(|calls| calls.iter().collect()).collect();
        let lives: Vec<Life> =
            threads.iter().map(|c| Life::of(c, &|call| call.correlation.is_some())).collect();
        let found = children(&threads, &lives);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [(0, 0)]);
        let lived = &found[&(0, 0)];
        assert_eq!(lived.iter().map(|c| (c.host, c.started)).collect::<Vec<_>>(), [(1, false), (2, false)]);
        let (mut steps, mut begin_ns) = (Vec::new(), None);
        let until = live(&mut steps, &mut begin_ns, 0, lived, true);
        assert_eq!(steps, [Step::Join(1), Step::Join(2)]);
        assert_eq!((until, begin_ns), (900_000, Some(0)));
    }
}
