//! Say what API calls did: in the gaps of a tenant's work, and whether what they launched has a record.
//!
//! ```text
//!   work of a tenant   |====|  short  |==|           long            |===|
//!   calls of its host    |launch|  |===query===|   |====synchronize====|
//!   counted                       |==|         |===|=================|
//! ```
//!
//! In long gaps every call counts. In short ones the process is launching, and only calls that hand over no work count,
//! where none that does runs beside them. A gap before a migration of unified memory is a long one: nobody launches it.

use std::collections::{BTreeMap, BTreeSet};

use crate::activity::host_activity::{HostActivity, HostEvents, Span};
use crate::base::error::{Error, Result};
use crate::base::hardware::LAUNCH_GAP_NS;
use crate::base::id_set::IdSet;
use crate::base::intervals::{Growing, Union, Walk};
use crate::base::maps::{ByKey, NumberMap};
use crate::base::watch::Watch;
use crate::table::columns::{at, in_order, Columns, NameColumn};
use crate::table::events::{Events, Tables};
use crate::table::launch::Folded;
use crate::table::polls::NOT_READY;
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Process, Who};
use crate::table::work::{work, WorkKind};

/// Calls that hand over work and return.
const HANDS_OVER: [&str; 4] = ["Launch", "Async", "EventRecord", "StreamWaitEvent"];
/// Calls that launch a kernel or a graph, after `cuda` or `cu`; the last one only without more behind it.
const LAUNCHES: [&str; 4] = ["LaunchKernel", "LaunchCooperativeKernel", "Launch_", "GraphLaunch"];
const LAUNCH: &str = "Launch";
const GRAPH_LAUNCH: &str = "GraphLaunch";
/// Between these a thread captures a graph: what it launches does not run.
const BEGINS_CAPTURE: &str = "StreamBeginCapture";
const ENDS_CAPTURE: &str = "StreamEndCapture";
/// Calls after which it is told that work goes on.
const PROGRESS_ROWS: usize = 1 << 20;

/// API calls in the gaps of a tenant's work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallsInGaps {
    /// Device.
    pub device: u32,
    /// Tenant.
    pub tenant: u32,
    /// Whether any call of its process was recorded: without, nothing is known of them.
    pub called: bool,
    /// In gaps longer than launching takes, of all calls, counted once.
    pub long_ns: i64,
    /// In shorter gaps, of calls that hand over no work, where none that does ran beside them.
    pub short_ns: i64,
    /// Of gaps, from the end of the launch call of what ends the gap: it was launched, and had not started. Of short ones
    /// only what counts in `short_ns`. `None`: no such call is known.
    pub waiting_ns: Option<i64>,
    /// By name without the version that CUPTI appends: the time of each in gaps, and how many calls.
    pub by_name: BTreeMap<String, (i64, u64)>,
    /// Kernels, graphs and copies.
    pub operations: u64,
    /// The longest gap; the first of equal ones.
    pub longest: Option<Gap>,
    /// What its host did in long gaps while no call ran; `None`: nothing is recorded of that.
    pub host: Option<HostActivity>,
}

/// A time between two operations of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Latest end of those before it.
    pub start_ns: i64,
    /// Start of the next one.
    pub end_ns: i64,
    /// Operations before it.
    pub operations_before: u64,
}

/// What became of launch calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchRecords {
    /// Calls that launched a kernel or a graph; a runtime call and the driver call inside it are one.
    pub launches: u64,
    /// Those that launched a graph.
    pub graphs: u64,
    /// Launches of which no kernel, graph or copy has a record.
    pub without_record: u64,
    /// Those of them after the last launch of their process that has a record.
    pub without_record_at_end: u64,
    /// API calls that failed: function, code, how many; most first.
    pub errors: Vec<(String, i32, u64)>,
}

/// The name of a call as the CUDA documentation has it: without the version that CUPTI appends.
fn documented(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((before, version)) if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) => {
            before
        }
        _ => name,
    }
}

fn launches(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    rest.is_some_and(|rest| rest == LAUNCH || LAUNCHES.iter().any(|start| rest.starts_with(start)))
}

/// What is known of every name, found out once for each of them.
struct Names<'a, T> {
    column: NameColumn<'a>,
    known: Vec<Option<T>>,
}

impl<'a, T: Copy> Names<'a, T> {
    fn new(column: NameColumn<'a>, found: impl Fn(&str) -> T) -> Self {
        Self { column, known: column.texts().map(|text| text.map(&found)).collect() }
    }

    fn of(&self, row: usize) -> Option<(u32, T)> {
        let key = self.column.key(row)?;
        Some((key, self.known.get(key as usize).copied().flatten()?))
    }
}

/// The gaps of a tenant's work, and what calls were counted in them so far.
#[derive(Default)]
struct Gaps {
    free_ns: Option<i64>,
    long: Union,
    short: Union,
    in_long: Walk,
    in_short: Walk,
    found: CallsInGaps,
    /// Long gaps, by what ends them.
    ended: EndedGaps,
    /// A long gap that no migration ends.
    long_ended: bool,
    /// Calls that hand over no work and reach into short gaps.
    quiet: Union,
    waits: Option<ShortWaits>,
    /// By key of the name.
    by_key: NumberMap<u32, (i64, u64)>,
    /// Where something is recorded of the host: calls in long gaps, and by start of a gap the thread that ends it.
    called: Union,
    ended_on: BTreeMap<i64, u32>,
}

/// Gaps by the correlation id of the operation that ends each: those of one graph have one id.
#[derive(Default)]
struct EndedGaps {
    last: NumberMap<u32, u32>,
    gaps: Vec<EndedGap>,
}

struct EndedGap {
    start_ns: i64,
    end_ns: i64,
    /// Another gap of the same id.
    before: Option<u32>,
}

impl EndedGaps {
    fn add(&mut self, id: u32, start_ns: i64, end_ns: i64) {
        let place = u32::try_from(self.gaps.len()).unwrap_or(u32::MAX);
        let before = self.last.insert(id, place);
        self.gaps.push(EndedGap { start_ns, end_ns, before });
    }

    /// Takes out those that what a call launched ended.
    fn take(&mut self, call: &Call) -> impl Iterator<Item = (i64, i64)> + '_ {
        let mut next = call.correlation.filter(|id| *id > 0).and_then(|id| self.last.remove(&id));
        let gaps = &self.gaps;
        std::iter::from_fn(move || {
            let gap = gaps.get(next? as usize)?;
            next = gap.before;
            Some((gap.start_ns, gap.end_ns))
        })
    }
}

impl Gaps {
    fn add_work(&mut self, start_ns: i64, end_ns: i64, migration: bool, correlation: Option<u32>) {
        if let Some(free_ns) = self.free_ns {
            let length_ns = start_ns.saturating_sub(free_ns);
            let is_long = migration || length_ns > LAUNCH_GAP_NS;
            if is_long { &mut self.long } else { &mut self.short }.add(free_ns, start_ns);
            self.long_ended |= is_long && !migration;
            if let Some(id) = correlation.filter(|id| is_long && *id > 0) {
                self.ended.add(id, free_ns, start_ns);
            }
            if length_ns > self.found.longest.map_or(0, |gap| gap.end_ns.saturating_sub(gap.start_ns)) {
                let operations_before = self.found.operations;
                self.found.longest = Some(Gap { start_ns: free_ns, end_ns: start_ns, operations_before });
            }
        }
        self.found.operations = self.found.operations.saturating_add(1);
        self.free_ns = Some(self.free_ns.map_or(end_ns, |free_ns| free_ns.max(end_ns)));
    }

    /// Time of an interval in long gaps, and in short ones.
    fn inside_ns(&mut self, (start_ns, end_ns): (i64, i64)) -> (i64, i64) {
        let long_ns = self.in_long.covered_ns(&self.long, start_ns, end_ns);
        // Most calls lie in one gap or in none.
        let left_ns = end_ns.saturating_sub(start_ns).saturating_sub(long_ns);
        let short_ns = if left_ns > 0 { self.in_short.covered_ns(&self.short, start_ns, end_ns) } else { 0 };
        (long_ns, short_ns)
    }

    fn add_call(&mut self, call: &Call, host_known: bool) {
        for (free_ns, start_ns) in self.ended.take(call) {
            if let Some(thread) = call.thread.filter(|_| host_known) {
                self.ended_on.insert(free_ns, thread);
            }
            let waiting_ns = start_ns.saturating_sub(call.end_ns.max(free_ns)).max(0);
            self.found.waiting_ns = Some(self.found.waiting_ns.unwrap_or(0).saturating_add(waiting_ns));
        }
        let whole = (call.start_ns, call.end_ns);
        let (long_ns, short_ns) = self.inside_ns(whole);
        if long_ns == 0 && short_ns == 0 {
            return;
        }
        if let Some((start_ns, end_ns)) = call.first.filter(|_| host_known && long_ns > 0) {
            self.called.add(start_ns, end_ns);
        }
        let mut part = |of: Option<(i64, i64)>| match of {
            None => (0, 0),
            Some(of) if of == whole => (long_ns, short_ns),
            Some(of) => self.inside_ns(of),
        };
        let (first, handing_over) = (part(call.first), part(call.first_handing_over));
        self.found.long_ns = self.found.long_ns.saturating_add(first.0);
        self.found.short_ns = self.found.short_ns.saturating_add(first.1).saturating_sub(handing_over.1);
        let Some((key, hands_over)) = call.name else { return };
        if short_ns > 0 && !hands_over {
            self.quiet.add(call.start_ns, call.end_ns);
        }
        let ns = if hands_over { long_ns } else { long_ns.saturating_add(short_ns) };
        if ns > 0 {
            let (sum_ns, calls) = self.by_key.entry(key).or_default();
            *sum_ns = sum_ns.saturating_add(ns);
            *calls = calls.saturating_add(1);
        }
    }

    /// Long gaps without the calls in them. A gap whose launch is not known is taken to be ended by who ended the last one
    /// of which it is: mostly one thread launches everything.
    fn host_spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut thread = self.ended_on.values().next().copied();
        let mut calls = self.called.spans().iter().copied().peekable();
        for (start_ns, end_ns) in self.long.spans().iter().copied() {
            thread = self.ended_on.get(&start_ns).copied().or(thread);
            let mut add = |start_ns: i64, end_ns: i64| {
                if start_ns < end_ns {
                    spans.push(Span { start_ns, end_ns, thread });
                }
            };
            let mut from = start_ns;
            while let Some((call_ns, returned_ns)) = calls.peek().copied().filter(|call| call.0 < end_ns) {
                add(from, call_ns);
                from = from.max(returned_ns);
                // It may go on in the next gap.
                if returned_ns > end_ns {
                    break;
                }
                calls.next();
            }
            add(from, end_ns);
        }
        spans
    }
}

/// What ends a short gap was launched, and a call that hands over no work ran, none beside it that does.
#[derive(Default)]
struct ShortWaits {
    free_ns: Option<i64>,
    in_quiet: Walk,
    ended: EndedGaps,
    /// From the end of the launch call to the end of the gap: those that are not over.
    launched: BTreeMap<i64, i64>,
    /// `None`: no launch is known.
    waiting_ns: Option<i64>,
}

impl ShortWaits {
    fn add_work(&mut self, quiet: &Union, (start_ns, end_ns): (i64, i64), correlation: Option<u32>) {
        let gap =
            self.free_ns.filter(|free_ns| (1..=LAUNCH_GAP_NS).contains(&start_ns.saturating_sub(*free_ns)));
        if let Some((free_ns, id)) = gap.zip(correlation.filter(|id| *id > 0)) {
            if self.in_quiet.covered_ns(quiet, free_ns, start_ns) > 0 {
                self.ended.add(id, free_ns, start_ns);
            }
        }
        self.free_ns = Some(self.free_ns.map_or(end_ns, |free_ns| free_ns.max(end_ns)));
    }

    fn add_call(&mut self, call: &Call) {
        // Calls come in order of their starts: no later one reaches back.
        while self.launched.first_key_value().is_some_and(|(_, end_ns)| *end_ns <= call.start_ns) {
            self.launched.pop_first();
        }
        let (mut waiting_ns, mut known) = (0_i64, self.waiting_ns.is_some());
        for (free_ns, end_ns) in self.ended.take(call) {
            known = true;
            let from_ns = free_ns.max(call.end_ns);
            if from_ns >= end_ns {
                continue;
            }
            self.launched.insert(from_ns, end_ns);
            // What calls that began before this one have of it.
            let until = |reached_ns: Option<i64>| reached_ns.unwrap_or(from_ns).clamp(from_ns, end_ns);
            let of_quiet = until(call.reached_ns).saturating_sub(until(call.reached_handing_over_ns));
            waiting_ns = waiting_ns.saturating_add(of_quiet);
        }
        let (all_ns, handing_ns) = (self.launched_ns(call.first), self.launched_ns(call.first_handing_over));
        waiting_ns = waiting_ns.saturating_add(all_ns).saturating_sub(handing_ns);
        if known {
            self.waiting_ns = Some(self.waiting_ns.unwrap_or(0).saturating_add(waiting_ns));
        }
    }

    /// Of a part of a call: what ends the gap was launched.
    fn launched_ns(&self, part: Option<(i64, i64)>) -> i64 {
        let Some((start_ns, end_ns)) = part else { return 0 };
        self.launched.range(..end_ns).fold(0_i64, |sum, (a, b)| {
            sum.saturating_add(end_ns.min(*b).saturating_sub(start_ns.max(*a)).max(0))
        })
    }
}

/// A call, and the parts of it in which no earlier one ran: of all, and of those that hand over work.
struct Call {
    name: Option<(u32, bool)>,
    correlation: Option<u32>,
    thread: Option<u32>,
    start_ns: i64,
    end_ns: i64,
    first: Option<(i64, i64)>,
    first_handing_over: Option<(i64, i64)>,
    /// Latest end of the calls up to this one, and of those that hand over work.
    reached_ns: Option<i64>,
    reached_handing_over_ns: Option<i64>,
}

/// A process: its tenants, and when any of its calls ran.
#[derive(Default)]
struct Host {
    process: Process,
    called: bool,
    /// Whether anything but calls is recorded of its threads.
    known: bool,
    tenants: Vec<Gaps>,
    calling: Growing,
    handing_over: Growing,
}

/// Adds up API calls in the gaps of every traced tenant with work, by device and tenant, and what its host did in the rest
/// of the long ones. Takes `tenants`, the work, and `api_calls`, `host_calls` and `nvtx` of the session, if there are any.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn calls_in_gaps(session: &Tables, watch: &dyn Watch) -> Result<Vec<CallsInGaps>> {
    let none = schema::API_CALLS.empty();
    let columns = Columns::new(&schema::API_CALLS, session.get(schema::API_CALLS.name).unwrap_or(&none));
    let mut hosts = hosts(session)?;
    let events = HostEvents::read(session, watch, |process, start_ns, end_ns| {
        let tenants = hosts.get_mut(process).map_or(&mut [] as &mut [Gaps], |host| &mut host.tenants);
        tenants.iter_mut().any(|gaps| gaps.in_long.covered_ns(&gaps.long, start_ns, end_ns) > 0)
    })?;
    hosts.values_mut().for_each(|host| host.known = events.has(host.process));
    let (pid, tid): (Folded<'_>, Folded<'_>) = (columns.folded("pid")?, columns.folded("tid")?);
    let capture = columns.u32("capture")?;
    let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    let correlation = columns.u32("correlation_id")?;
    let hands_over = |name: &str| HANDS_OVER.iter().any(|part| name.contains(part));
    let names = Names::new(columns.names("name")?, hands_over);
    let order = in_order(start);
    // Calls in order of their starts, twice: what they have of short gaps is known before what of it was launched.
    let each = |hosts: &mut ByKey<Process, Host>, take: fn(&mut Gaps, &Call, bool)| {
        for n in 0..columns.rows() {
            if n % PROGRESS_ROWS == 0 {
                watch.progress("calls", n as u64, columns.rows() as u64)?;
            }
            let row = order.as_ref().map_or(n, |order| order.get(n).copied().unwrap_or(n));
            let Some(host) = hosts.get_mut((capture.value(row), pid.at(row))) else { continue };
            let (start_ns, end_ns) = (start.value(row), end.value(row));
            let name = names.of(row);
            let handing = matches!(name, Some((_, true)));
            host.called = true;
            let call = Call {
                name,
                correlation: at(correlation, row),
                thread: if host.known { tid.at(row) } else { None },
                start_ns,
                end_ns,
                first: host.calling.add(start_ns, end_ns),
                first_handing_over: handing.then(|| host.handing_over.add(start_ns, end_ns)).flatten(),
                reached_ns: host.calling.end_ns(),
                reached_handing_over_ns: host.handing_over.end_ns(),
            };
            host.tenants.iter_mut().for_each(|gaps| take(gaps, &call, host.known));
        }
        Ok::<(), Error>(())
    };
    each(&mut hosts, Gaps::add_call)?;
    if find_short_waits(session, &mut hosts)? {
        each(&mut hosts, |gaps, call, _| {
            if let Some(waits) = &mut gaps.waits {
                waits.add_call(call);
            }
        })?;
    }
    let mut found = Vec::new();
    let of_hosts = hosts
        .into_values()
        .flat_map(|host| host.tenants.into_iter().map(move |of| ((host.process, host.called), of)));
    for ((process, called), gaps) in of_hosts {
        let host = events.in_spans(process, || gaps.host_spans());
        let Gaps { found: mut one, by_key, long_ended, waits, .. } = gaps;
        (one.called, one.host) = (called, host);
        if let Some(waiting_ns) = waits.and_then(|waits| waits.waiting_ns) {
            one.waiting_ns = Some(one.waiting_ns.unwrap_or(0).saturating_add(waiting_ns));
        }
        if !long_ended && one.short_ns == 0 {
            one.waiting_ns.get_or_insert(0);
        }
        for (key, (ns, calls)) in by_key {
            let name = documented(names.column.text(key).unwrap_or_default()).to_owned();
            let sums = one.by_name.entry(name).or_default();
            *sums = (sums.0.saturating_add(ns), sums.1.saturating_add(calls));
        }
        found.push(one);
    }
    found.sort_by_key(|one| (one.device, one.tenant));
    Ok(found)
}

/// Notes what ends the short gaps of tenants in which calls ran that hand over no work; whether there are any.
fn find_short_waits(session: &Tables, hosts: &mut ByKey<Process, Host>) -> Result<bool> {
    let mut some = false;
    for host in hosts.values_mut() {
        (host.calling, host.handing_over) = (Growing::default(), Growing::default());
        for gaps in host.tenants.iter_mut().filter(|gaps| gaps.found.short_ns > 0) {
            gaps.waits = Some(ShortWaits::default());
            some = true;
        }
    }
    if !some {
        return Ok(false);
    }
    for w in work(&Events::of(session))? {
        let Some(host) = hosts.get_mut((w.capture, w.pid)) else { continue };
        let here = host.tenants.iter_mut().find(|gaps| gaps.found.device == w.device);
        if let Some(Gaps { waits: Some(waits), quiet, .. }) = here {
            waits.add_work(quiet, (w.start_ns, w.end_ns), w.correlation);
        }
    }
    Ok(true)
}

/// The gaps in the work of every tenant, by process.
fn hosts(session: &Tables) -> Result<ByKey<Process, Host>> {
    let who = Who::read(session)?;
    let mut last = LastTenant::default();
    let mut hosts: ByKey<Process, Host> = ByKey::default();
    for w in work(&Events::of(session))? {
        let Some(tenant) = who.of_next(&mut last, w.capture, w.pid, w.device) else { continue };
        let Some(host) = hosts.entry((w.capture, w.pid)) else { continue };
        host.process = (w.capture, w.pid);
        // A process uses few devices.
        let known = host.tenants.iter().position(|gaps| gaps.found.device == w.device);
        let place = known.unwrap_or_else(|| {
            let found = CallsInGaps { device: w.device, tenant, ..CallsInGaps::default() };
            host.tenants.push(Gaps { found, ..Gaps::default() });
            host.tenants.len().saturating_sub(1)
        });
        let migration = w.kind == WorkKind::Copy && w.correlation == Some(0);
        if let Some(gaps) = host.tenants.get_mut(place) {
            gaps.add_work(w.start_ns, w.end_ns, migration, w.correlation);
        }
    }
    Ok(hosts)
}

/// What a call has to do with launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Launch,
    GraphLaunch,
    BeginCapture,
    EndCapture,
    Other,
}

fn role(name: &str) -> Role {
    if launches(name) {
        if name.contains(GRAPH_LAUNCH) {
            Role::GraphLaunch
        } else {
            Role::Launch
        }
    } else if name.contains(BEGINS_CAPTURE) {
        Role::BeginCapture
    } else if name.contains(ENDS_CAPTURE) {
        Role::EndCapture
    } else {
        Role::Other
    }
}

/// Correlation ids of launch calls of a process, in the end of those without a record; those of launches into a graph that is being captured.
#[derive(Default)]
struct Launched {
    ids: IdSet,
    /// Those that launched a graph.
    graphs: IdSet,
    /// The last id of a launch with a record; ids rise with the calls of a process.
    recorded: Option<u32>,
    captured: Vec<u32>,
    /// By thread: graphs that it is capturing.
    capturing: NumberMap<u32, i64>,
}

/// Counts launch calls whose work has no record, and API calls that failed, of these processes (`None`: all). `None`
/// where they called nothing, or no calls were captured. Takes `api_calls`, `kernels`, `graph_launches` and `memops`.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn launch_records(
    session: &Tables,
    processes: Option<&BTreeSet<Process>>,
    watch: &dyn Watch,
) -> Result<Option<LaunchRecords>> {
    Ok(launches_and_records(session, processes, watch)?.map(|(found, _)| found))
}

/// A launch call whose work has no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LostLaunch {
    pub start_ns: i64,
    /// As recorded.
    pub thread: u32,
}

/// Launch calls whose work has no record, by process and in order. Takes what [`launch_records`] takes.
pub(crate) fn lost_launches(
    session: &Tables,
    watch: &dyn Watch,
) -> Result<BTreeMap<Process, Vec<LostLaunch>>> {
    let mut found: BTreeMap<Process, Vec<LostLaunch>> = BTreeMap::new();
    let Some((records, mut lost)) = launches_and_records(session, None, watch)? else { return Ok(found) };
    let Some(batch) = session.get(schema::API_CALLS.name).filter(|_| records.without_record > 0) else {
        return Ok(found);
    };
    let columns = Columns::new(&schema::API_CALLS, batch);
    let (pid, tid): (Folded<'_>, Folded<'_>) = (columns.folded("pid")?, columns.folded("tid")?);
    let capture = columns.u32("capture")?;
    let (correlation, start) = (columns.u32("correlation_id")?, columns.i64("start_ns")?);
    for row in 0..columns.rows() {
        let process = (capture.value(row), pid.at(row));
        let Some(of) = lost.get_mut(process) else { continue };
        if at(correlation, row).is_some_and(|id| of.ids.contains(id)) {
            let call = LostLaunch { start_ns: start.value(row), thread: tid.at(row).unwrap_or(0) };
            found.entry(process).or_default().push(call);
        }
    }
    for calls in found.values_mut() {
        calls.sort();
    }
    Ok(found)
}

/// What became of launch calls, and by process the correlation ids of those without a record.
fn launches_and_records(
    session: &Tables,
    processes: Option<&BTreeSet<Process>>,
    watch: &dyn Watch,
) -> Result<Option<(LaunchRecords, ByKey<Process, Launched>)>> {
    let Some(batch) = session.get(schema::API_CALLS.name) else { return Ok(None) };
    let columns = Columns::new(&schema::API_CALLS, batch);
    let (pid, tid): (Folded<'_>, Folded<'_>) = (columns.folded("pid")?, columns.folded("tid")?);
    let capture = columns.u32("capture")?;
    let (correlation, code) = (columns.u32("correlation_id")?, columns.i32("return_value")?);
    let names = Names::new(columns.names("name")?, role);
    let order = in_order(columns.i64("start_ns")?);
    let mut launched: ByKey<Process, Launched> = ByKey::default();
    let mut errors: BTreeMap<(String, i32), u64> = BTreeMap::new();
    let mut called = false;
    let mut last: Option<(Process, bool)> = None;
    for n in 0..columns.rows() {
        if n % PROGRESS_ROWS == 0 {
            watch.progress("launch records", n as u64, columns.rows() as u64)?;
        }
        let row = order.as_ref().map_or(n, |order| order.get(n).copied().unwrap_or(n));
        let process = (capture.value(row), pid.at(row));
        let wanted = match last {
            Some((same, wanted)) if same == process => wanted,
            _ => {
                let wanted = processes.is_none_or(|processes| processes.contains(&process));
                last = Some((process, wanted));
                wanted
            }
        };
        if !wanted {
            continue;
        }
        called = true;
        if let Some(code) = at(code, row).filter(|code| *code != 0 && *code != NOT_READY) {
            let name = names.column.get(row).map_or("unnamed", documented).to_owned();
            let calls = errors.entry((name, code)).or_default();
            *calls = calls.saturating_add(1);
        }
        let Some((_, role)) = names.of(row).filter(|(_, role)| *role != Role::Other) else { continue };
        let Some(mine) = launched.entry(process) else { continue };
        let thread = tid.at(row).unwrap_or(u32::MAX);
        match role {
            Role::BeginCapture => *mine.capturing.entry(thread).or_default() += 1,
            Role::EndCapture => *mine.capturing.entry(thread).or_default() -= 1,
            Role::Launch | Role::GraphLaunch => {
                let Some(id) = at(correlation, row) else { continue };
                mine.ids.insert(id);
                if role == Role::GraphLaunch {
                    mine.graphs.insert(id);
                }
                if mine.capturing.get(&thread).is_some_and(|graphs| *graphs > 0) {
                    mine.captured.push(id);
                }
            }
            Role::Other => {}
        }
    }
    if !called {
        return Ok(None);
    }
    let mut found = LaunchRecords::default();
    for Launched { ids, graphs, captured, .. } in launched.values_mut() {
        for id in captured {
            ids.remove(*id);
        }
        found.launches = found.launches.saturating_add(ids.len());
        found.graphs = found.graphs.saturating_add(graphs.len());
    }
    take_recorded(session, &mut launched)?;
    found.without_record = launched.values().map(|of| of.ids.len()).sum();
    found.without_record_at_end =
        launched.values().map(|of| of.recorded.map_or(0, |id| of.ids.len_after(id))).sum();
    let mut errors: Vec<_> = errors.into_iter().map(|((name, code), calls)| (name, code, calls)).collect();
    errors.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (&a.0, a.1).cmp(&(&b.0, b.1))));
    found.errors = errors;
    Ok(Some((found, launched)))
}

/// Takes the correlation ids of all work out of those that its process launched.
fn take_recorded(session: &Tables, launched: &mut ByKey<Process, Launched>) -> Result<()> {
    for table in [&schema::KERNELS, &schema::GRAPH_LAUNCHES, &schema::MEMOPS] {
        let Some(batch) = session.get(table.name) else { continue };
        let columns = Columns::new(table, batch);
        let (capture, pid) = (columns.u32("capture")?, columns.u32("pid")?);
        let correlation = columns.u32("correlation_id")?;
        for row in 0..columns.rows() {
            let of = launched.get_mut((capture.value(row), at(pid, row)));
            let Some((of, id)) = of.zip(at(correlation, row)) else { continue };
            if of.ids.remove(id) {
                of.recorded = of.recorded.max(Some(id));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::Unwatched;
    use crate::table::builder::Builder;
    use crate::test_tables::{kernels, named, of_one_stream, K};
    use arrow_array::{Int32Array, Int64Array, RecordBatch, UInt32Array};
    use std::sync::Arc;

    /// Name, correlation id, error, start and end in us.
    type C<'a> = (&'a str, u32, i32, i64, i64);

    /// Calls of pid 7 in capture 0, on one thread.
    fn calls(rows: &[C<'_>]) -> RecordBatch {
        let n = rows.len();
        Builder::new(&schema::API_CALLS)
            .put("capture", UInt32Array::from(vec![0; n]))
            .put("pid", UInt32Array::from(vec![7; n]))
            .put("tid", UInt32Array::from(vec![70; n]))
            .put("correlation_id", rows.iter().map(|r| Some(r.1)).collect::<UInt32Array>())
            .put("return_value", rows.iter().map(|r| Some(r.2)).collect::<Int32Array>())
            .put("start_ns", rows.iter().map(|r| Some(r.3 * 1000)).collect::<Int64Array>())
            .put("end_ns", rows.iter().map(|r| Some(r.4 * 1000)).collect::<Int64Array>())
            .put_names("name", rows.iter().map(|r| Some(r.0)))
            .finish(n)
            .unwrap()
    }

    /// A kernel of pid 7, from when to when in us.
    fn kernel(start: i64, end: i64) -> K {
        (0, 7, 0, 1, 7, start, end)
    }

    /// Kernels with these correlation ids.
    fn with_ids(work: &[K], ids: &[u32]) -> RecordBatch {
        let ids = Arc::new(UInt32Array::from(ids.to_vec()));
        let columns = vec![("correlation_id", ids as _)];
        crate::table::builder::replace(&schema::KERNELS, &kernels(work), columns).unwrap()
    }

    fn in_gaps(work: &[K], rows: &[C<'_>]) -> CallsInGaps {
        let (mut tables, _) = named([(schema::KERNELS.name, kernels(work))].into());
        tables.insert(schema::API_CALLS.name, calls(rows));
        let found = calls_in_gaps(&tables, &Unwatched).unwrap();
        assert_eq!(found.len(), 1);
        found.into_iter().next().unwrap()
    }

    #[test]
    fn calls_in_long_gaps_count_once_and_by_name() {
        // Nothing runs from 100 to 1,000 us.
        let found = in_gaps(
            &[kernel(0, 100), kernel(1000, 1100)],
            &[
                ("cudaDeviceSynchronize_v3020", 1, 0, 50, 300),
                ("cudaMalloc", 2, 0, 250, 400),
                ("cudaLaunchKernel", 3, 0, 900, 1200),
                ("cudaFree", 4, 0, 1010, 1050),
            ],
        );
        assert_eq!(found.long_ns, (400 - 100 + 1000 - 900) * 1000);
        let longest = Gap { start_ns: 100_000, end_ns: 1_000_000, operations_before: 1 };
        assert_eq!((found.called, found.operations, found.longest), (true, 2, Some(longest)));
        assert_eq!(found.short_ns, 0);
        let by_name: Vec<_> = found.by_name.iter().map(|(name, sums)| (name.as_str(), *sums)).collect();
        assert_eq!(
            by_name,
            [
                ("cudaDeviceSynchronize", (200_000, 1)),
                ("cudaLaunchKernel", (100_000, 1)),
                ("cudaMalloc", (150_000, 1))
            ]
        );
    }

    #[test]
    fn in_short_gaps_only_calls_without_a_launch_beside_them_count() {
        // Gaps from 100 to 200 and from 300 to 400 us.
        let found = in_gaps(
            &[kernel(0, 100), kernel(200, 300), kernel(400, 500)],
            &[
                ("cudaEventQuery", 1, 0, 110, 150),
                ("cudaLaunchKernel", 2, 0, 140, 190),
                ("cudaLaunchKernel", 3, 0, 310, 390),
            ],
        );
        assert_eq!((found.long_ns, found.short_ns), (0, 30_000));
        assert_eq!(found.by_name, BTreeMap::from([("cudaEventQuery".to_owned(), (40_000, 1))]));
    }

    #[test]
    fn what_ends_a_long_gap_may_have_been_launched_long_before() {
        // Nothing runs from 100 to 1,000 us, and from 1,100 to 1,200 us, which is short.
        let work = with_ids(&[kernel(0, 100), kernel(1000, 1100), kernel(1200, 1300)], &[1, 2, 3]);
        let (mut tables, _) = named([(schema::KERNELS.name, work)].into());
        for (launched, waiting_ns) in [((50, 60), 900_000), ((250, 300), 700_000), ((950, 1010), 0)] {
            let rows = [
                ("cudaLaunchKernel", 2, 0, launched.0, launched.1),
                ("cudaDeviceSynchronize", 4, 0, 1020, 1030),
                ("cudaLaunchKernel", 3, 0, 1110, 1120),
            ];
            tables.insert(schema::API_CALLS.name, calls(&rows));
            let found = calls_in_gaps(&tables, &Unwatched).unwrap();
            assert_eq!(found[0].waiting_ns, Some(waiting_ns), "{launched:?}");
        }
        // The export has no ids that match, or none at all, or no long gap.
        tables.insert(schema::API_CALLS.name, calls(&[("cudaLaunchKernel", 9, 0, 50, 60)]));
        assert_eq!(calls_in_gaps(&tables, &Unwatched).unwrap()[0].waiting_ns, None);
        let calls = [("cudaLaunchKernel", 9, 0, 50, 60)];
        assert_eq!(in_gaps(&[kernel(0, 100), kernel(1000, 1100)], &calls).waiting_ns, None);
        let short = in_gaps(&[kernel(0, 100), kernel(200, 300)], &calls);
        assert_eq!(short.waiting_ns, Some(0));
    }

    #[test]
    fn in_short_gaps_launched_work_waits_while_a_call_hands_over_nothing() {
        // Nothing runs from 100 to 200 and from 210 to 300 us; one graph, launched from 90 to 120 us, ends both gaps.
        let work = with_ids(&[kernel(0, 100), kernel(200, 210), kernel(300, 400)], &[1, 2, 2]);
        let (mut tables, _) = named([(schema::KERNELS.name, work)].into());
        let mut waiting_ns = |rest: &[C<'_>]| {
            let mut rows = vec![("cudaGraphLaunch", 2, 0, 90, 120)];
            rows.extend(rest);
            rows.sort_by_key(|row| row.3);
            tables.insert(schema::API_CALLS.name, calls(&rows));
            calls_in_gaps(&tables, &Unwatched).unwrap()[0].waiting_ns
        };
        // The thread waits from 130 us on; another one has waited from the begin; that one launches from 150 to 220 us.
        assert_eq!(waiting_ns(&[("cudaStreamSynchronize", 3, 0, 130, 400)]), Some((70 + 90) * 1000));
        assert_eq!(waiting_ns(&[("cudaStreamSynchronize", 3, 0, 0, 400)]), Some((80 + 90) * 1000));
        let launches = ("cudaLaunchKernel", 4, 0, 150, 220);
        assert_eq!(waiting_ns(&[("cudaStreamSynchronize", 3, 0, 0, 400), launches]), Some((30 + 80) * 1000));
        // Without such a call the process is launching.
        assert_eq!(waiting_ns(&[]), Some(0));
        assert_eq!(waiting_ns(&[("cudaLaunchKernel", 3, 0, 130, 400)]), Some(0));
    }

    #[test]
    fn gaps_are_there_without_calls() {
        let (tables, _) =
            named([(schema::KERNELS.name, kernels(&[kernel(0, 100), kernel(150, 200)]))].into());
        let found = calls_in_gaps(&tables, &Unwatched).unwrap();
        let gap = Gap { start_ns: 100_000, end_ns: 150_000, operations_before: 1 };
        assert_eq!((found[0].called, found[0].longest), (false, Some(gap)));
    }

    #[test]
    fn a_gap_before_a_migration_is_a_long_one() {
        let rows = [("cudaLaunchKernel", 3, 0, 110, 190)];
        for (correlation, long_ns) in [(0, 80_000), (5, 0)] {
            let copies = of_one_stream(&schema::MEMOPS, &[(200_000, 210_000)])
                .put("correlation_id", UInt32Array::from(vec![correlation]))
                .finish(1)
                .unwrap();
            let tables = [(schema::KERNELS.name, kernels(&[kernel(0, 100)])), (schema::MEMOPS.name, copies)];
            let (mut tables, _) = named(tables.into());
            tables.insert(schema::API_CALLS.name, calls(&rows));
            let found = calls_in_gaps(&tables, &Unwatched).unwrap();
            assert_eq!(found[0].long_ns, long_ns, "correlation id {correlation}");
        }
    }

    fn records(rows: &[C<'_>], recorded: &[u32]) -> Option<LaunchRecords> {
        let work: Vec<K> = recorded.iter().map(|_| kernel(0, 100)).collect();
        let tables =
            [(schema::KERNELS.name, with_ids(&work, recorded)), (schema::API_CALLS.name, calls(rows))];
        launch_records(&tables.into(), None, &Unwatched).unwrap()
    }

    #[test]
    fn launches_without_a_record_and_errors_are_counted() {
        let found = records(
            &[
                ("cudaLaunchKernel_v7000", 1, 0, 0, 1),
                ("cuLaunchKernel", 1, 0, 0, 1),
                ("cudaLaunchKernel_v7000", 2, 700, 2, 3),
                ("cudaLaunchHostFunc_v10000", 3, 0, 3, 4),
                ("cudaGraphLaunch_v10000", 4, 0, 4, 5),
                ("cudaEventQuery", 5, 600, 6, 7),
                ("cudaDeviceSynchronize_v3020", 6, 700, 8, 9),
                ("cudaDeviceSynchronize_v3020", 7, 700, 9, 10),
            ],
            &[4, 1],
        );
        let errors =
            vec![("cudaDeviceSynchronize".to_owned(), 700, 2), ("cudaLaunchKernel".to_owned(), 700, 1)];
        let without =
            LaunchRecords { launches: 3, graphs: 1, without_record: 1, without_record_at_end: 0, errors };
        assert_eq!(found, Some(without));
    }

    #[test]
    fn launches_after_the_last_one_with_a_record_are_told_apart() {
        let rows: Vec<C<'_>> = (1..=5).map(|id| ("cudaLaunchKernel", id, 0, i64::from(id), 9)).collect();
        let lost = |recorded: &[u32]| {
            let found = records(&rows, recorded).unwrap();
            (found.without_record, found.without_record_at_end)
        };
        assert_eq!(lost(&[1, 2, 3]), (2, 2));
        assert_eq!(lost(&[1, 3]), (3, 2));
        assert_eq!(lost(&[5, 1]), (3, 0));
        assert_eq!(lost(&[]), (5, 0));
    }

    #[test]
    fn launches_without_a_record_are_told_by_time_and_thread() {
        let work = with_ids(&[kernel(0, 100)], &[2]);
        let rows = [
            ("cudaLaunchKernel", 3, 0, 6, 7),
            ("cudaLaunchKernel", 1, 0, 4, 5),
            ("cudaLaunchKernel", 2, 0, 0, 1),
            ("cudaDeviceSynchronize", 4, 0, 8, 9),
        ];
        let tables = [(schema::KERNELS.name, work), (schema::API_CALLS.name, calls(&rows))];
        let found = lost_launches(&tables.into(), &Unwatched).unwrap();
        let at = |start_ns| LostLaunch { start_ns, thread: 70 };
        assert_eq!(found, [((0, Some(7)), vec![at(4000), at(6000)])].into());
    }

    #[test]
    fn launches_into_a_graph_that_is_captured_run_nothing() {
        let found = records(
            &[
                ("cudaStreamBeginCapture_v10000", 1, 0, 0, 1),
                ("cudaLaunchKernel", 2, 0, 2, 3),
                ("cudaStreamEndCapture_v10000", 3, 0, 4, 5),
                ("cudaLaunchKernel", 4, 0, 6, 7),
            ],
            &[],
        );
        let found = found.unwrap();
        assert_eq!((found.launches, found.without_record), (1, 1));
    }

    #[test]
    fn without_calls_nothing_is_known() {
        assert_eq!(launch_records(&Tables::new(), None, &Unwatched).unwrap(), None);
        assert_eq!(records(&[], &[1]), None);
    }
}
