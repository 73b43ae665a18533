//! Say what API calls did: in the gaps of a tenant's work, and whether what they launched has a record.
//!
//! ```text
//!   work of a tenant   |====|  short  |==|           long            |===|
//!   calls of its host    |launch|  |===query===|   |====synchronize====|
//!   launched, not started                                       |======|
//!   counted                       |==|         |===|==========|
//! ```
//!
//! In long gaps every call counts. In short ones the process is launching, and only calls that hand over no work count,
//! where none that does runs beside them. A gap before a migration of unified memory is a long one: nobody launches it.
//! From the end of the launch call of what ends a gap on, launched work waits: whatever call the host is in then does not
//! count.

use std::collections::{BTreeMap, BTreeSet};

use crate::activity::host_activity::{HostActivity, HostEvents, Span};
use crate::base::error::Result;
use crate::base::hardware::LAUNCH_GAP_NS;
use crate::base::id_set::{IdMap, IdSet};
use crate::base::intervals::{Growing, Union, Walk};
use crate::base::maps::{entry, ByKey, NumberMap};
use crate::base::watch::Watch;
use crate::table::columns::{at, in_order, Columns, NameColumn};
use crate::table::events::{Events, Tables};
use crate::table::launch::Folded;
use crate::table::polls::NOT_READY;
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Process, Who};
use crate::table::work::{work, Work, WorkKind};

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
    /// In gaps longer than launching takes, of all calls, counted once, while no launched work waited.
    pub long_ns: i64,
    /// The same in shorter gaps, of calls that hand over no work, where none that does ran beside them.
    pub short_ns: i64,
    /// What ends a gap was launched and had not started; `None`: no such launch is known.
    pub waiting: Option<Waiting>,
    /// By name without the version that CUPTI appends: the time of each in gaps, and how many calls.
    pub by_name: BTreeMap<String, (i64, u64)>,
    /// Kernels, graphs and copies.
    pub operations: u64,
    /// Kernels that started before the one before them in their stream ended.
    pub early_starts: u64,
    /// The longest gap; the first of equal ones.
    pub longest: Option<Gap>,
    /// What its host did in long gaps while no call ran; `None`: nothing is recorded of that.
    pub host: Option<HostActivity>,
}

/// Time in which nothing of a tenant was on the device and what came next was launched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// In gaps longer than launching takes.
    pub long_ns: i64,
    /// In shorter ones.
    pub short_ns: i64,
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
    /// Where the records of each process with a numbered call begin.
    pub begins: Vec<RecordsBegin>,
}

/// Where the records of a process begin. Its calls are numbered (correlation id) as they come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordsBegin {
    /// Of whom.
    pub process: Process,
    /// The lowest number of a recorded call.
    pub first_call: u32,
    /// The lowest number of a call that launched a recorded kernel; `None`: there is none.
    pub first_kernel: Option<u32>,
    /// Kernels that earlier calls than the first recorded one launched.
    pub kernels_before: u64,
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

/// The gaps of a tenant's work up to the launch of what ends each, and what calls were counted in them so far.
#[derive(Default)]
struct Gaps {
    /// In flight, as `tenant_usage` counts it.
    work: Growing,
    long: Union,
    short: Union,
    in_long: Walk,
    in_short: Walk,
    found: CallsInGaps,
    /// Whether anything that is launched ends a gap.
    ended: bool,
    /// By context and stream: when the kernel that started last ends.
    stream_ends: ByKey<(Option<u32>, Option<u32>), Option<i64>>,
    /// By key of the name.
    by_key: NumberMap<u32, (i64, u64)>,
    /// Where something is recorded of the host: calls in long gaps, and by start of a long gap the thread that ends it.
    called: Union,
    ended_on: Vec<(i64, u32)>,
}

/// The call that launched an operation.
#[derive(Clone, Copy)]
struct LaunchCall {
    end_ns: i64,
    /// `None`: not recorded, or nothing else is of any host.
    thread: Option<u32>,
}

impl Gaps {
    fn add_work(&mut self, start_ns: i64, end_ns: i64, migration: bool, launch: Option<LaunchCall>) {
        if let Some(free_ns) = self.work.end_ns() {
            let length_ns = start_ns.saturating_sub(free_ns);
            let long = migration || length_ns > LAUNCH_GAP_NS;
            let until_ns = launch.map_or(start_ns, |call| call.end_ns.max(free_ns).min(start_ns));
            if long { &mut self.long } else { &mut self.short }.add(free_ns, until_ns);
            self.ended |= length_ns > 0 && !migration;
            if launch.is_some() && length_ns > 0 {
                let waiting = self.found.waiting.get_or_insert_default();
                let sum_ns = if long { &mut waiting.long_ns } else { &mut waiting.short_ns };
                *sum_ns = sum_ns.saturating_add(start_ns.saturating_sub(until_ns));
            }
            if let Some(thread) = launch.and_then(|call| call.thread).filter(|_| long) {
                self.ended_on.push((free_ns, thread));
            }
            if length_ns > self.found.longest.map_or(0, |gap| gap.end_ns.saturating_sub(gap.start_ns)) {
                let operations_before = self.found.operations;
                self.found.longest = Some(Gap { start_ns: free_ns, end_ns: start_ns, operations_before });
            }
        }
        self.found.operations = self.found.operations.saturating_add(1);
        self.work.add(start_ns, end_ns);
    }

    fn add_kernel(&mut self, kernel: &Work) {
        let Some(end_ns) = self.stream_ends.entry((kernel.context, kernel.stream)) else { return };
        let early = end_ns.replace(kernel.end_ns).is_some_and(|before_ns| kernel.start_ns < before_ns);
        self.found.early_starts = self.found.early_starts.saturating_add(u64::from(early));
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
        let mut ended_on = self.ended_on.iter().copied().peekable();
        let mut thread = ended_on.peek().map(|(_, thread)| *thread);
        let mut calls = self.called.spans().iter().copied().peekable();
        for (start_ns, end_ns) in self.long.spans().iter().copied() {
            while let Some((_, ended)) = ended_on.next_if(|(free_ns, _)| *free_ns <= start_ns) {
                thread = Some(ended);
            }
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

/// A call, and the parts of it in which no earlier one ran: of all, and of those that hand over work.
struct Call {
    name: Option<(u32, bool)>,
    start_ns: i64,
    end_ns: i64,
    first: Option<(i64, i64)>,
    first_handing_over: Option<(i64, i64)>,
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
/// of the long ones: in both up to the launch of what ends them. Takes `tenants`, the work, and `api_calls`, `host_calls`, `nvtx` and `cpu_samples` of the session, if there are any.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn calls_in_gaps(session: &Tables, watch: &dyn Watch) -> Result<Vec<CallsInGaps>> {
    let none = schema::API_CALLS.empty();
    let columns = Columns::new(&schema::API_CALLS, session.get(schema::API_CALLS.name).unwrap_or(&none));
    let pid: Folded<'_> = columns.folded("pid")?;
    let capture = columns.u32("capture")?;
    let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    let hands_over = |name: &str| HANDS_OVER.iter().any(|part| name.contains(part));
    let names = Names::new(columns.names("name")?, hands_over);
    let order = in_order(start);
    let row_of = |n: usize| order.as_ref().map_or(n, |order| order.get(n).copied().unwrap_or(n));
    let mut hosts = hosts(session, &columns, row_of)?;
    let events = HostEvents::read(session, watch, |process, start_ns, end_ns| {
        let tenants = hosts.get_mut(process).map_or(&mut [] as &mut [Gaps], |host| &mut host.tenants);
        tenants.iter_mut().any(|gaps| gaps.in_long.covered_ns(&gaps.long, start_ns, end_ns) > 0)
    })?;
    hosts.values_mut().for_each(|host| host.known = events.has(host.process));
    for n in 0..columns.rows() {
        if n % PROGRESS_ROWS == 0 {
            watch.progress("calls", n as u64, columns.rows() as u64)?;
        }
        let row = row_of(n);
        let Some(host) = hosts.get_mut((capture.value(row), pid.at(row))) else { continue };
        let (start_ns, end_ns) = (start.value(row), end.value(row));
        let name = names.of(row);
        let handing = matches!(name, Some((_, true)));
        host.called = true;
        let call = Call {
            name,
            start_ns,
            end_ns,
            first: host.calling.add(start_ns, end_ns),
            first_handing_over: handing.then(|| host.handing_over.add(start_ns, end_ns)).flatten(),
        };
        host.tenants.iter_mut().for_each(|gaps| gaps.add_call(&call, host.known));
    }
    let mut found = Vec::new();
    let of_hosts = hosts
        .into_values()
        .flat_map(|host| host.tenants.into_iter().map(move |of| ((host.process, host.called), of)));
    for ((process, called), gaps) in of_hosts {
        let host = events.in_spans(process, || gaps.host_spans());
        let Gaps { found: mut one, by_key, ended, .. } = gaps;
        (one.called, one.host) = (called, host);
        if !ended {
            one.waiting.get_or_insert_default();
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

/// By process and correlation id, the row of the first call; `row_of` puts them in order.
fn first_calls(columns: &Columns<'_>, row_of: impl Fn(usize) -> usize) -> Result<ByKey<Process, IdMap>> {
    let pid: Folded<'_> = columns.folded("pid")?;
    let (capture, correlation) = (columns.u32("capture")?, columns.u32("correlation_id")?);
    let mut found: ByKey<Process, IdMap> = ByKey::default();
    for row in (0..columns.rows()).map(row_of) {
        let Some(id) = at(correlation, row).filter(|id| *id > 0) else { continue };
        if let (Some(rows), Ok(row)) = (found.entry((capture.value(row), pid.at(row))), u32::try_from(row)) {
            rows.insert_first(id, row);
        }
    }
    Ok(found)
}

/// The gaps in the work of every tenant, by process.
fn hosts(
    session: &Tables,
    calls: &Columns<'_>,
    row_of: impl Fn(usize) -> usize,
) -> Result<ByKey<Process, Host>> {
    let (tid, end): (Folded<'_>, _) = (calls.folded("tid")?, calls.i64("end_ns")?);
    let mut first_calls = first_calls(calls, row_of)?;
    let has_rows = |table: &schema::Table| session.get(table.name).is_some_and(|batch| batch.num_rows() > 0);
    let hosts_known = [&schema::HOST_CALLS, &schema::NVTX, &schema::CPU_SAMPLES].into_iter().any(has_rows);
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
        let of_process = first_calls.get_mut(host.process);
        let row = of_process.zip(w.correlation).and_then(|(rows, id)| rows.get(id));
        let launch = row.map(|row| LaunchCall {
            end_ns: end.value(row as usize),
            thread: if hosts_known { tid.at(row as usize) } else { None },
        });
        if let Some(gaps) = host.tenants.get_mut(place) {
            gaps.add_work(w.start_ns, w.end_ns, migration, launch);
            if w.kind == WorkKind::Kernel {
                gaps.add_kernel(&w);
            }
        }
    }
    Ok(hosts)
}

/// The calls of a process with one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCalls {
    /// Of whom.
    pub process: Process,
    /// As recorded.
    pub name: String,
    /// How many.
    pub calls: u64,
    /// How long they took in all.
    pub total_ns: i64,
}

/// Sums up `api_calls` by process and name; those without a name are left out. A name that the table holds twice may
/// come twice.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn calls_by_name(session: &Tables, watch: &dyn Watch) -> Result<Vec<NamedCalls>> {
    let Some(batch) = session.get(schema::API_CALLS.name) else { return Ok(Vec::new()) };
    let columns = Columns::new(&schema::API_CALLS, batch);
    let (capture, pid): (_, Folded<'_>) = (columns.u32("capture")?, columns.folded("pid")?);
    let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    let names = columns.names("name")?;
    // By process and key of the name.
    let mut sums: ByKey<Process, Vec<(u64, i64)>> = ByKey::default();
    for row in 0..columns.rows() {
        if row % PROGRESS_ROWS == 0 {
            watch.progress("calls", row as u64, columns.rows() as u64)?;
        }
        let Some(of) = sums.entry((capture.value(row), pid.at(row))) else { continue };
        let Some((calls, total_ns)) = names.key(row).and_then(|key| entry(of, key)) else { continue };
        *calls = calls.saturating_add(1);
        *total_ns = total_ns.saturating_add(end.value(row).saturating_sub(start.value(row)));
    }
    let mut found = Vec::new();
    for (process, of) in sums.into_sorted() {
        for ((calls, total_ns), name) in of.into_iter().zip(names.texts()) {
            let Some(name) = name.filter(|_| calls > 0) else { continue };
            found.push(NamedCalls { process, name: name.to_owned(), calls, total_ns });
        }
    }
    Ok(found)
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
    /// The lowest id of any call, launch or not.
    first_call: Option<u32>,
    /// The lowest id of a kernel, and kernels with a lower id than any call.
    first_kernel: Option<u32>,
    kernels_before: u64,
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
        let Some(mine) = launched.entry(process) else { continue };
        lower(&mut mine.first_call, at(correlation, row));
        let Some((_, role)) = names.of(row).filter(|(_, role)| *role != Role::Other) else { continue };
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
    let begins = launched.sorted().filter_map(|(process, of)| {
        let Launched { first_call, first_kernel, kernels_before, .. } = *of;
        Some(RecordsBegin { process, first_call: first_call?, first_kernel, kernels_before })
    });
    found.begins = begins.collect();
    Ok(Some((found, launched)))
}

/// Keeps the lowest id; 0 is none.
fn lower(lowest: &mut Option<u32>, id: Option<u32>) {
    if let Some(id) = id.filter(|id| *id > 0) {
        *lowest = Some(lowest.map_or(id, |lowest| lowest.min(id)));
    }
}

/// Takes the correlation ids of all work out of those that its process launched, and sees which kernels came first.
fn take_recorded(session: &Tables, launched: &mut ByKey<Process, Launched>) -> Result<()> {
    for table in [&schema::KERNELS, &schema::GRAPH_LAUNCHES, &schema::MEMOPS] {
        let Some(batch) = session.get(table.name) else { continue };
        let columns = Columns::new(table, batch);
        let (capture, pid) = (columns.u32("capture")?, columns.u32("pid")?);
        let correlation = columns.u32("correlation_id")?;
        for row in 0..columns.rows() {
            let of = launched.get_mut((capture.value(row), at(pid, row)));
            let Some((of, id)) = of.zip(at(correlation, row)) else { continue };
            if table.name == schema::KERNELS.name {
                lower(&mut of.first_kernel, Some(id));
                let before = id > 0 && of.first_call.is_some_and(|first| id < first);
                of.kernels_before = of.kernels_before.saturating_add(u64::from(before));
            }
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
    fn what_ends_a_gap_may_have_been_launched_long_before() {
        // Nothing runs from 100 to 1,000 us, and from 1,100 to 1,200 us, which is short and launched at its end.
        let work = with_ids(&[kernel(0, 100), kernel(1000, 1100), kernel(1200, 1300)], &[1, 2, 3]);
        let (mut tables, _) = named([(schema::KERNELS.name, work)].into());
        for (launched, long_ns) in [((50, 60), 900_000), ((250, 300), 700_000), ((950, 1010), 0)] {
            let rows = [
                ("cudaLaunchKernel", 2, 0, launched.0, launched.1),
                ("cudaDeviceSynchronize", 4, 0, 1020, 1030),
                ("cudaLaunchKernel", 3, 0, 1110, 1200),
            ];
            tables.insert(schema::API_CALLS.name, calls(&rows));
            let found = calls_in_gaps(&tables, &Unwatched).unwrap();
            assert_eq!(found[0].waiting, Some(Waiting { long_ns, short_ns: 0 }), "{launched:?}");
        }
        // The export has no ids that match, or nothing was launched that ends a gap.
        let calls = [("cudaLaunchKernel", 9, 0, 50, 60)];
        assert_eq!(in_gaps(&[kernel(0, 100), kernel(1000, 1100)], &calls).waiting, None);
        assert_eq!(in_gaps(&[kernel(0, 100), kernel(200, 300)], &calls).waiting, None);
        assert_eq!(in_gaps(&[kernel(0, 100), kernel(100, 300)], &calls).waiting, Some(Waiting::default()));
    }

    #[test]
    fn calls_do_not_count_while_launched_work_waits() {
        // Nothing runs from 100 to 200 and from 210 to 300 us; one graph, launched from 90 to 120 us, ends both gaps. The
        // next kernel is launched from 350 to 450 us and starts at 1,000 us.
        let work = [kernel(0, 100), kernel(200, 210), kernel(300, 400), kernel(1000, 1100)];
        let (mut tables, _) = named([(schema::KERNELS.name, with_ids(&work, &[1, 2, 2, 3]))].into());
        let rows = [
            ("cudaEventQuery", 5, 0, 80, 115),
            ("cudaGraphLaunch", 2, 0, 90, 120),
            ("cudaStreamSynchronize", 6, 0, 130, 320),
            ("cudaLaunchKernel", 3, 0, 350, 450),
            ("cudaEventQuery", 7, 0, 430, 460),
            ("cudaDeviceSynchronize", 8, 0, 500, 1100),
        ];
        tables.insert(schema::API_CALLS.name, calls(&rows));
        let found = calls_in_gaps(&tables, &Unwatched).unwrap();
        assert_eq!(found[0].waiting, Some(Waiting { long_ns: 550_000, short_ns: 80_000 + 90_000 }));
        // From 400 to 450 us the kernel is launched; the graph was being launched from 100 to 120 us, too.
        assert_eq!((found[0].long_ns, found[0].short_ns), (50_000, 0));
        let by_name: Vec<_> = found[0].by_name.iter().map(|(name, sums)| (name.as_str(), *sums)).collect();
        assert_eq!(by_name, [("cudaEventQuery", (15_000 + 20_000, 2)), ("cudaLaunchKernel", (50_000, 1))]);
    }

    #[test]
    fn early_starts_are_counted_by_stream() {
        // In stream 7 the second kernel starts before the first one ends, the third one as the second one ends. The first
        // one of stream 8 starts beside one of stream 7, the second one before the first one ends.
        let work = [(7, 0, 100), (7, 90, 200), (8, 150, 300), (7, 200, 250), (8, 299, 310)];
        let work: Vec<K> =
            work.iter().map(|&(stream, start, end)| (0, 7, 0, 1, stream, start, end)).collect();
        assert_eq!(in_gaps(&work, &[]).early_starts, 2);
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
    fn calls_are_summed_by_process_and_name() {
        let rows = [("cudaFree", 1, 0, 0, 2), ("cudaLaunchKernel", 2, 0, 1, 5), ("cudaFree", 3, 0, 9, 12)];
        let sums = |process, name: &str, calls, total_ns| NamedCalls {
            process,
            name: name.to_owned(),
            calls,
            total_ns,
        };
        let mut tables: Tables = [(schema::API_CALLS.name, calls(&rows))].into();
        let seven = (0, Some(7));
        let expected = [sums(seven, "cudaFree", 2, 5_000), sums(seven, "cudaLaunchKernel", 1, 4_000)];
        assert_eq!(calls_by_name(&tables, &Unwatched).unwrap(), expected);
        // The second call is of a process that is not known, the third has no name.
        let pids = Arc::new(UInt32Array::from(vec![Some(7), None, Some(7)]));
        let names = rows.iter().zip([true, true, false]).map(|(row, named)| named.then_some(row.0));
        let names: arrow_array::DictionaryArray<arrow_array::types::UInt32Type> = names.collect();
        let changed: Vec<(_, arrow_array::ArrayRef)> = vec![("pid", pids), ("name", Arc::new(names))];
        let batch =
            crate::table::builder::replace(&schema::API_CALLS, &tables[schema::API_CALLS.name], changed);
        tables.insert(schema::API_CALLS.name, batch.unwrap());
        let expected = [sums((0, None), "cudaLaunchKernel", 1, 4_000), sums(seven, "cudaFree", 1, 2_000)];
        assert_eq!(calls_by_name(&tables, &Unwatched).unwrap(), expected);
        assert_eq!(calls_by_name(&Tables::new(), &Unwatched).unwrap(), []);
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
        let begins = vec![begin(1, Some(1), 0)];
        let without = LaunchRecords {
            launches: 3,
            graphs: 1,
            without_record: 1,
            without_record_at_end: 0,
            errors,
            begins,
        };
        assert_eq!(found, Some(without));
    }

    fn begin(first_call: u32, first_kernel: Option<u32>, kernels_before: u64) -> RecordsBegin {
        RecordsBegin { process: (0, Some(7)), first_call, first_kernel, kernels_before }
    }

    #[test]
    fn kernels_of_calls_before_the_first_recorded_one_are_counted() {
        // The first call is none that launches, and number 0 is none.
        let rows = [("cudaMalloc", 5, 0, 0, 1), ("cudaFree", 0, 0, 2, 3), ("cudaLaunchKernel", 6, 0, 4, 5)];
        let begins = |rows: &[C<'_>], recorded: &[u32]| records(rows, recorded).unwrap().begins;
        assert_eq!(begins(&rows, &[6, 3, 4, 0]), [begin(5, Some(3), 2)]);
        assert_eq!(begins(&rows, &[5, 6]), [begin(5, Some(5), 0)]);
        assert_eq!(begins(&rows, &[]), [begin(5, None, 0)]);
        assert_eq!(begins(&[("cudaFree", 0, 0, 2, 3)], &[1]), []);
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
