//! The operations of each process that used several streams of one device, with their launch calls.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Result;
use crate::base::intervals::Union;
use crate::base::maps::{ByKey, NumberMap};
use crate::base::watch::Watch;
use crate::table::calls::{calls, Calls, CallsByProcess};
use crate::table::columns::{at, text_at, Columns};
use crate::table::events::{Events, Tables};
use crate::table::schema;
use crate::table::work::{work, Work, WorkKind};

/// A process on a device: capture, pid, device.
pub(super) type Owner = (u32, Option<u32>, u32);

/// No capture was seen with more busy streams in one process; pairs grow with the square.
pub(super) const MAX_STREAMS: usize = 64;

/// One operation of a stream.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub kind: WorkKind,
    /// In `kernels`, `memops` or `graph_launches`.
    pub row: usize,
    /// Place in [`Process::streams`].
    pub stream: usize,
    pub start_ns: i64,
    pub end_ns: i64,
    /// Begin and end of the launch call; the end is at most the start. Without a call that was recorded, the start. A
    /// later node of a graph is launched when the graph begins: before, the graph waits in the stream it was launched to.
    pub asked_ns: i64,
    pub launched_ns: i64,
    pub call: Option<Call>,
    pub correlation: Option<u32>,
    pub copy_kind: Option<u8>,
    pub graph_node: bool,
    /// A node of a graph that comes when the graph begins: any but the first in the stream that it was launched to.
    pub later_node: bool,
}

impl Operation {
    /// Whether it is a node of a graph whose launch is known.
    fn is_node(&self) -> bool {
        self.graph_node && self.call.is_some() && self.correlation.is_some()
    }
}

/// A launch call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub thread: u32,
    /// `_ptsz` or `_ptds`: its default stream is that of the thread.
    pub per_thread: bool,
}

/// One stream with work.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    pub context: Option<u32>,
    pub id: u32,
    pub priority: Option<i32>,
    pub flag: Option<u8>,
    /// The legacy default stream of its context.
    pub legacy: bool,
    /// Of a green context.
    pub green: bool,
    /// The green context that its kernels ran in.
    pub green_context: Option<u32>,
    /// SMs that its context may use.
    pub sms: Option<u32>,
    /// It has branches of graphs that were launched to another stream, and nothing else: CUDA made it for these.
    pub graph_branch: bool,
    /// The channel to the device of all streams of its context; `None`: several, or not exported.
    pub channel: Option<String>,
    /// Its operations, by start.
    pub operations: Vec<usize>,
    pub busy_ns: i64,
}

impl Stream {
    /// Whether its kernels can fill all SMs that those of another stream may use: those of a green context fill no more
    /// than its own.
    pub fn can_fill_sms_of(&self, other: &Self) -> bool {
        self.green_context.is_none() || self.green_context == other.green_context
    }
}

/// What a thread of the host did that kept it from launching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Synchronization,
    Blocking,
}

/// A call that kept its thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldCall {
    pub start_ns: i64,
    pub end_ns: i64,
    pub held: Held,
}

/// An event that was recorded in a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    pub called_ns: i64,
    pub stream: Option<usize>,
    pub sync_id: Option<u64>,
}

/// A stream that was told to wait for an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Awaited {
    pub called_ns: i64,
    pub context: Option<u32>,
    pub event: Option<u32>,
    pub sync_id: Option<u64>,
}

/// A process that used several streams of one device.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub streams: Vec<Stream>,
    /// By start.
    pub operations: Vec<Operation>,
    /// By thread, in order.
    pub held: BTreeMap<u32, Vec<HeldCall>>,
    /// By context and event, in order.
    pub records: BTreeMap<(Option<u32>, u32), Vec<Recorded>>,
    /// By stream, in order.
    pub waits: BTreeMap<usize, Vec<Awaited>>,
    /// Recordings of events by stream, in order, whose completion nsys traced.
    pub traced: BTreeMap<usize, Vec<i64>>,
    pub launch_blocking: bool,
    pub max_connections: Option<usize>,
    /// When other processes were resident, by switch records.
    pub switched_out: Union,
    /// When other processes had kernels in flight on the device.
    pub others: Union,
}

impl Process {
    pub(super) fn stream(&self, at: usize) -> &Stream {
        static NONE: Stream = Stream {
            context: None,
            id: 0,
            priority: None,
            flag: None,
            legacy: false,
            green: false,
            green_context: None,
            sms: None,
            graph_branch: false,
            channel: None,
            operations: Vec::new(),
            busy_ns: 0,
        };
        self.streams.get(at).unwrap_or(&NONE)
    }

    /// Places of its operations in the order of a time; of those at one time as they stand.
    pub(super) fn in_order(&self, time_ns: impl Fn(&Operation) -> i64) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.operations.len()).collect();
        places.sort_by_key(|place| self.operations.get(*place).map(&time_ns));
        places
    }

    fn find(&self, context: Option<u32>, id: u32) -> Option<usize> {
        self.streams.iter().position(|s| s.context == context && s.id == id)
    }
}

/// Reads the processes with several streams.
pub(super) fn processes(session: &Tables, watch: &dyn Watch) -> Result<BTreeMap<Owner, Process>> {
    let events = Events::of(session);
    let mut seen: BTreeMap<Owner, BTreeMap<(Option<u32>, u32), i64>> = BTreeMap::new();
    let mut last: Option<(Owner, (Option<u32>, u32))> = None;
    let mut busy_ns = 0_i64;
    let mut put = |last: Option<(Owner, (Option<u32>, u32))>, ns: i64| {
        if let Some((owner, stream)) = last {
            let sum = seen.entry(owner).or_default().entry(stream).or_default();
            *sum = sum.saturating_add(ns);
        }
    };
    for one in work(&events)? {
        let Some(stream) = one.stream else { continue };
        let this = Some((owner(&one), (one.context, stream)));
        if this != last {
            put(last, busy_ns);
            (last, busy_ns) = (this, 0);
        }
        busy_ns = busy_ns.saturating_add(one.end_ns.saturating_sub(one.start_ns));
    }
    put(last, busy_ns);
    watch.progress("streams", 0, 0)?;
    let mut found: BTreeMap<Owner, Process> = BTreeMap::new();
    let shared = devices_of_several(seen.keys());
    for (owner, streams) in seen.into_iter().filter(|(_, streams)| streams.len() > 1) {
        let mut kept: Vec<((Option<u32>, u32), i64)> = streams.into_iter().collect();
        kept.sort_by_key(|(key, ns)| (std::cmp::Reverse(*ns), *key));
        kept.truncate(MAX_STREAMS);
        kept.sort_unstable();
        let streams = kept.into_iter().map(|((context, id), _)| Stream { context, id, ..Stream::default() });
        found.insert(owner, Process { streams: streams.collect(), ..Process::default() });
    }
    if found.is_empty() {
        return Ok(found);
    }
    read_operations(&events, &mut found, &shared)?;
    watch.progress("streams", 0, 0)?;
    read_contexts(session, &mut found)?;
    read_settings(session, &mut found)?;
    Ok(found)
}

fn owner(one: &Work) -> Owner {
    (one.capture, one.pid, one.device)
}

/// Devices on which several processes had work.
fn devices_of_several<'a>(owners: impl Iterator<Item = &'a Owner>) -> BTreeSet<u32> {
    let (mut once, mut several) = (BTreeSet::new(), BTreeSet::new());
    for (_, _, device) in owners {
        if !once.insert(*device) {
            several.insert(*device);
        }
    }
    several
}

/// Reads operations, and on devices of several processes when those of others were in flight.
fn read_operations(
    events: &Events<'_>,
    found: &mut BTreeMap<Owner, Process>,
    shared: &BTreeSet<u32>,
) -> Result<()> {
    let mut in_flight: ByKey<Owner, Union> = ByKey::default();
    let (nodes, green_contexts) = match events.get(&schema::KERNELS) {
        Some(kernels) => (Some(kernels.u64("graph_node_id")?), Some(kernels.u32("green_context_id")?)),
        None => (None, None),
    };
    let copies = match events.get(&schema::MEMOPS) {
        Some(memops) => Some((memops.u8("copy_kind")?, memops.u64("graph_node_id")?)),
        None => None,
    };
    for one in work(events)? {
        if one.kind != WorkKind::Copy && shared.contains(&one.device) {
            if let Some(of) = in_flight.entry(owner(&one)) {
                of.add(one.start_ns, one.end_ns);
            }
        }
        let (Some(id), Some(process)) = (one.stream, found.get_mut(&owner(&one))) else { continue };
        let Some(stream) = process.find(one.context, id) else { continue };
        // What takes no time overlaps nothing.
        if one.end_ns <= one.start_ns {
            continue;
        }
        let (copy_kind, node) = match one.kind {
            WorkKind::Kernel => (None, nodes.and_then(|nodes| at(nodes, one.row))),
            WorkKind::Graph => (None, None),
            WorkKind::Copy => {
                copies.map_or((None, None), |(kind, node)| (at(kind, one.row), at(node, one.row)))
            }
        };
        if let (WorkKind::Kernel, Some(stream)) = (one.kind, process.streams.get_mut(stream)) {
            stream.green_context = green_contexts.and_then(|contexts| at(contexts, one.row));
        }
        let place = process.operations.len();
        process.operations.push(Operation {
            kind: one.kind,
            row: one.row,
            stream,
            start_ns: one.start_ns,
            end_ns: one.end_ns,
            asked_ns: one.start_ns,
            launched_ns: one.start_ns,
            call: None,
            correlation: one.correlation.filter(|id| *id > 0),
            copy_kind,
            graph_node: node.is_some(),
            later_node: false,
        });
        if let Some(stream) = process.streams.get_mut(stream) {
            stream.operations.push(place);
        }
    }
    for (owner, process) in found {
        let others = in_flight.sorted().filter(|(other, _)| other.2 == owner.2 && other != owner);
        process.others = Union::of_all(others.map(|(_, union)| union));
        for stream in &mut process.streams {
            let mut until = i64::MIN;
            for one in stream.operations.iter().filter_map(|place| process.operations.get(*place)) {
                stream.busy_ns = stream.busy_ns.saturating_add((one.end_ns - one.start_ns.max(until)).max(0));
                until = until.max(one.end_ns);
            }
        }
    }
    Ok(())
}

/// The value of a stream in `stream:value` pairs.
fn of_stream<T: std::str::FromStr>(pairs: Option<&str>, stream: u32) -> Option<T> {
    pairs?.split(',').find_map(|pair| {
        let (id, value) = pair.split_once(':')?;
        (id.parse() == Ok(stream)).then(|| value.parse().ok())?
    })
}

/// The id in a list that has no other; however a list separates them.
fn only_one(ids: &str) -> Option<String> {
    let mut each = ids.split(|c: char| !c.is_ascii_alphanumeric()).filter(|id| !id.is_empty());
    let first = each.next()?;
    each.all(|id| id == first).then(|| first.to_owned())
}

fn read_contexts(session: &Tables, found: &mut BTreeMap<Owner, Process>) -> Result<()> {
    let Some(batch) = session.get(schema::CONTEXTS.name) else { return Ok(()) };
    let c = Columns::new(&schema::CONTEXTS, batch);
    let (capture, pid, id) = (c.u32("capture")?, c.u32("pid")?, c.u32("context_id")?);
    let (null_stream, green) = (c.u32("null_stream_id")?, c.bool("is_green")?);
    let (sms, parent) = (c.u32("sm_count")?, c.u32("parent_context_id")?);
    let (priorities, flags) = (c.text("stream_priorities")?, c.text("stream_flags")?);
    let channels = c.text("channel_ids")?;
    for row in 0..c.rows() {
        for ((of, process, _), found) in &mut *found {
            if *of != capture.value(row) || *process != at(pid, row) {
                continue;
            }
            for stream in found.streams.iter_mut().filter(|s| s.context == at(id, row)) {
                stream.priority = of_stream(text_at(priorities, row), stream.id);
                stream.flag = of_stream(text_at(flags, row), stream.id);
                stream.legacy = stream.flag == Some(3) || at(null_stream, row) == Some(stream.id);
                stream.green = (row < green.len() && green.value(row)) || at(parent, row).is_some();
                stream.sms = at(sms, row);
                stream.channel = text_at(channels, row).and_then(only_one);
            }
            // Streams of green contexts have the context that these were made in.
            for stream in found.streams.iter_mut().filter(|s| s.green_context.is_some()) {
                if stream.green_context == at(id, row) {
                    stream.sms = at(sms, row);
                }
            }
        }
    }
    Ok(())
}

fn read_settings(session: &Tables, found: &mut BTreeMap<Owner, Process>) -> Result<()> {
    let Some(batch) = session.get(schema::CONFIGURED.name) else { return Ok(()) };
    let c = Columns::new(&schema::CONFIGURED, batch);
    let (capture, pid) = (c.u32("capture")?, c.u32("pid")?);
    let (key, value) = (c.names("key")?, c.text("value")?);
    for row in 0..c.rows() {
        let Some(value) = text_at(value, row) else { continue };
        for ((of, process, _), found) in &mut *found {
            if at(capture, row) != Some(*of) || at(pid, row).is_some_and(|pid| Some(pid) != *process) {
                continue;
            }
            match key.get(row) {
                Some("CUDA_LAUNCH_BLOCKING") => found.launch_blocking = value.trim() == "1",
                Some("CUDA_DEVICE_MAX_CONNECTIONS") => found.max_connections = value.trim().parse().ok(),
                _ => {}
            }
        }
    }
    Ok(())
}

/// What a function does, as far as streams are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    StreamWait,
    Synchronize,
    Blocking,
    AsyncCopy,
    Other,
}

fn function_of(name: &str) -> Function {
    let has = |part: &str| name.contains(part);
    if has("StreamWaitEvent") {
        Function::StreamWait
    } else if has("Synchronize") {
        Function::Synchronize
    } else if has("Memcpy") && has("Async") {
        Function::AsyncCopy
    } else if has("Async") || has("Launch") {
        Function::Other
    } else if ["Memcpy", "Memset", "Malloc", "Free", "MemAlloc", "HostAlloc", "HostRegister", "ModuleLoad"]
        .iter()
        .any(|part| has(part))
    {
        Function::Blocking
    } else {
        Function::Other
    }
}

/// The calls of all processes.
pub(super) struct LaunchCalls<'a> {
    session: &'a Tables,
    calls: CallsByProcess,
    /// By name what a call does, and whether its default stream is that of the thread.
    functions: Vec<(Function, bool)>,
}

impl<'a> LaunchCalls<'a> {
    pub(super) fn read(session: &'a Tables) -> Result<Self> {
        let function = |name: Option<&str>| {
            let name = name.unwrap_or_default();
            (function_of(name), name.contains("_ptsz") || name.contains("_ptds"))
        };
        let functions = match session.get(schema::API_CALLS.name) {
            Some(batch) => {
                let names = Columns::new(&schema::API_CALLS, batch).names("name")?;
                names.texts().map(function).collect()
            }
            None => Vec::new(),
        };
        Ok(Self { session, calls: calls(session)?, functions })
    }

    fn function(&self, calls: &Calls, place: usize) -> (Function, bool) {
        let known = calls.name(place).and_then(|name| self.functions.get(name as usize));
        known.copied().unwrap_or((Function::Other, false))
    }

    /// Enters the calls that launched the operations of a process, and what held its threads.
    pub(super) fn enter(&self, (of, pid, _): Owner, found: &mut Process) -> Result<()> {
        let Some(calls) = self.calls.get(&(of, pid)) else { return Ok(()) };
        let mut pageable: BTreeSet<u32> = BTreeSet::new();
        let unpinned = pageable_rows(self.session)?;
        // Each stream is launched in order, mostly.
        let mut hints = vec![0; found.streams.len()];
        for one in &mut found.operations {
            let (Some(id), Some(hint)) = (one.correlation, hints.get_mut(one.stream)) else { continue };
            let Some((place, call)) = calls.find(id, hint) else { continue };
            one.asked_ns = call.start_ns.min(one.start_ns);
            one.launched_ns = call.end_ns.clamp(one.asked_ns, one.start_ns);
            let (_, per_thread) = self.function(calls, place as usize);
            one.call = Some(Call { thread: call.thread, per_thread });
            if one.kind == WorkKind::Copy && unpinned(one.row) {
                pageable.extend(one.correlation);
            }
        }
        begin_graphs(&mut found.operations, &mut found.streams);
        for (place, call) in calls.iter().enumerate() {
            let held = match self.function(calls, place).0 {
                Function::Synchronize => Held::Synchronization,
                Function::Other if call.waits => Held::Synchronization,
                Function::Blocking => Held::Blocking,
                Function::AsyncCopy if calls.id(place).is_some_and(|id| pageable.contains(&id)) => {
                    Held::Blocking
                }
                _ => continue,
            };
            let call_ns = HeldCall { start_ns: call.start_ns, end_ns: call.end_ns, held };
            found.held.entry(call.thread).or_default().push(call_ns);
        }
        read_event_calls(self.session, (of, pid), found, |id| {
            let (place, call) = calls.find(id, &mut 0)?;
            Some((call.start_ns, self.function(calls, place as usize).0 == Function::StreamWait))
        })
    }
}

/// Lets nodes of each graph be launched when the graph begins, and what is behind them in their streams no earlier.
///
/// Only the first node in the stream that the graph was launched to is launched with the call: there the graph waits. To
/// which of its streams that was is not recorded: a branch of a graph runs in a stream of its own, which has no work but
/// nodes of such graphs. Where that does not decide, it is the stream of the node that started first. Operations stand by
/// start.
fn begin_graphs(operations: &mut [Operation], streams: &mut [Stream]) {
    let mut graphs: NumberMap<u32, Graph> = NumberMap::default();
    for one in operations.iter().filter(|one| one.is_node()) {
        let Some(id) = one.correlation else { continue };
        let graph = graphs.entry(id).or_insert_with(|| Graph::new(one));
        graph.several |= graph.streams.first() != Some(&one.stream);
        if !graph.streams.contains(&one.stream) {
            graph.streams.push(one.stream);
        }
    }
    let in_several = |one: &Operation| {
        one.is_node() && one.correlation.is_some_and(|id| graphs.get(&id).is_some_and(|graph| graph.several))
    };
    let mut other_work = vec![false; streams.len()];
    for one in operations.iter() {
        if let Some(has) = other_work.get_mut(one.stream) {
            *has |= !in_several(one);
        }
    }
    for graph in graphs.values_mut().filter(|graph| graph.several) {
        let has_other = |stream: &&usize| other_work.get(**stream) == Some(&true);
        let mut known = graph.streams.iter().filter(has_other);
        if let (Some(stream), None) = (known.next(), known.next()) {
            graph.launched_to = *stream;
            for branch in graph.streams.iter().filter(|branch| *branch != stream) {
                if let Some(branch) = streams.get_mut(*branch) {
                    branch.graph_branch = true;
                }
            }
        }
    }
    let mut least_ns = vec![i64::MIN; streams.len()];
    for one in operations {
        let Some(least_ns) = least_ns.get_mut(one.stream) else { continue };
        let graph = one.correlation.filter(|_| one.is_node()).and_then(|id| graphs.get_mut(&id));
        if let Some(graph) = graph {
            if graph.waits && graph.launched_to == one.stream {
                graph.waits = false;
            } else {
                *least_ns = (*least_ns).max(graph.began_ns);
                one.later_node = true;
            }
        }
        one.launched_ns = one.launched_ns.max((*least_ns).min(one.start_ns));
    }
}

/// One launch of a graph.
struct Graph {
    began_ns: i64,
    /// The streams of its nodes, that of the first one first.
    streams: Vec<usize>,
    several: bool,
    launched_to: usize,
    /// Its first node in that stream has not been seen yet.
    waits: bool,
}

impl Graph {
    fn new(first: &Operation) -> Self {
        let stream = first.stream;
        Self {
            began_ns: first.start_ns,
            streams: vec![stream],
            several: false,
            launched_to: stream,
            waits: true,
        }
    }
}

/// Says of a row of `memops` whether one end of the copy is pageable memory of the host.
fn pageable_rows(session: &Tables) -> Result<impl Fn(usize) -> bool + use<'_>> {
    let columns = match session.get(schema::MEMOPS.name) {
        Some(batch) => {
            let c = Columns::new(&schema::MEMOPS, batch);
            Some((c.u8("copy_kind")?, c.u8("source_kind")?, c.u8("destination_kind")?))
        }
        None => None,
    };
    Ok(move |row| {
        columns.is_some_and(|(kind, source, destination)| match at(kind, row) {
            Some(1) => at(source, row) == Some(0),
            Some(2) => at(destination, row) == Some(0),
            _ => false,
        })
    })
}

/// Reads who recorded and who awaits events; `called` says when a call began, and whether it makes a stream wait.
fn read_event_calls(
    session: &Tables,
    (of, process): (u32, Option<u32>),
    found: &mut Process,
    called: impl Fn(u32) -> Option<(i64, bool)>,
) -> Result<()> {
    let Some(batch) = session.get(schema::EVENT_CALLS.name) else { return Ok(()) };
    let c = Columns::new(&schema::EVENT_CALLS, batch);
    let (capture, pid, context) = (c.u32("capture")?, c.u32("pid")?, c.u32("context_id")?);
    let (stream, correlation) = (c.u32("stream_id")?, c.u32("correlation_id")?);
    let (event, sync_id) = (c.u32("event_id")?, c.u64("event_sync_id")?);
    let (kind, traced) = (c.names("kind")?, c.bool("completion_traced")?);
    for row in 0..c.rows() {
        if capture.value(row) != of || at(pid, row) != process {
            continue;
        }
        let Some((called_ns, waits)) = at(correlation, row).and_then(&called) else { continue };
        let place = at(stream, row).and_then(|id| found.find(at(context, row), id));
        let (event, sync_id) = (at(event, row), at(sync_id, row));
        if kind.get(row) == Some("record") {
            let traced = row < traced.len() && traced.value(row);
            if let Some(event) = event {
                let record = Recorded { called_ns, stream: place, sync_id };
                found.records.entry((at(context, row), event)).or_default().push(record);
            }
            if let (true, Some(place)) = (traced, place) {
                found.traced.entry(place).or_default().push(called_ns);
            }
        } else if let (true, Some(place)) = (waits, place) {
            let awaited = Awaited { called_ns, context: at(context, row), event, sync_id };
            found.waits.entry(place).or_default().push(awaited);
        }
    }
    for records in found.records.values_mut() {
        records.sort_by_key(|r| r.called_ns);
    }
    for waits in found.waits.values_mut() {
        waits.sort_by_key(|w| w.called_ns);
    }
    for traced in found.traced.values_mut() {
        traced.sort_unstable();
    }
    Ok(())
}
