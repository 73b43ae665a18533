//! What streams of one process wait for but for their own order: events, the legacy default stream, a shared channel.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Result;
use crate::base::hardware::CONNECTIONS;
use crate::slowdown::operations::{Op, Tenancy};
use crate::table::calls::Calls;
use crate::table::columns::{at, text_at, Columns};
use crate::table::events::Tables;
use crate::table::schema;

/// How far events are followed that wait for others.
const MAX_DEPTH: u32 = 8;
/// `stream_flags` of streams that wait for the legacy default stream, and of that one itself.
const BLOCKING: u8 = 1;
const LEGACY: u8 = 3;

/// An event that was recorded: in a stream (none: in one without work), by a call.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    called_ns: i64,
    stream: Option<u32>,
    sync_id: Option<u64>,
}

/// A stream was told to wait for an event: the recording of it, where the capture has that.
#[derive(Debug, Clone, Copy)]
struct Awaited {
    called_ns: i64,
    record: Option<Recorded>,
}

/// Context, and what is known of how it waits for others.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    context: Option<u32>,
    legacy: bool,
    blocking: bool,
}

/// What the streams of a tenant were told to wait for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// By stream, as its operations count them.
    streams: Vec<Stream>,
    /// Operations of each stream, by launch.
    launched: Vec<Vec<u32>>,
    /// By stream, in order.
    awaited: BTreeMap<u32, Vec<Awaited>>,
    /// By thread, in order: calls that let some stream wait for some event, of which no more is known.
    unknown: BTreeMap<u32, Vec<i64>>,
    /// By thread, in order: launches.
    launches: BTreeMap<u32, Vec<i64>>,
    /// Contexts with more streams than channels to the device.
    crowded: BTreeSet<Option<u32>>,
}

impl Waits {
    /// Reads what `session` says of the streams of a tenant.
    pub fn read(session: &Tables, tenant: &Tenancy, calls: Option<&Calls>) -> Result<Self> {
        let mut waits = Self {
            streams: vec![Stream::default(); tenant.streams()],
            launched: vec![Vec::new(); tenant.streams()],
            ..Self::default()
        };
        for ((context, _), number) in tenant.stream_ids() {
            if let Some(stream) = waits.streams.get_mut(number as usize) {
                stream.context = context;
            }
        }
        if waits.streams.len() < 2 {
            return Ok(waits);
        }
        for (place, op) in (0_u32..).zip(tenant.ops.iter()) {
            if let Some(launched) = waits.launched.get_mut(op.stream as usize) {
                launched.push(place);
            }
            if let Some(thread) = op.call().and_then(|call| calls?.thread(call)) {
                waits.launches.entry(thread).or_default().push(op.launch_ns);
            }
        }
        waits.read_contexts(session, tenant)?;
        waits.read_channels(session, tenant)?;
        if let Some(calls) = calls {
            let known = waits.read_events(session, tenant, calls)?;
            for call in calls.iter().filter(|call| call.stream_waits && !known.contains(&call.start_ns)) {
                waits.unknown.entry(call.thread).or_default().push(call.start_ns);
            }
        }
        Ok(waits)
    }

    fn read_contexts(&mut self, session: &Tables, tenant: &Tenancy) -> Result<()> {
        let Some(batch) = session.get(schema::CONTEXTS.name) else { return Ok(()) };
        let c = Columns::new(&schema::CONTEXTS, batch);
        let (capture, pid, id) = (c.u32("capture")?, c.u32("pid")?, c.u32("context_id")?);
        let (null_stream, flags) = (c.u32("null_stream_id")?, c.text("stream_flags")?);
        for row in (0..c.rows()).filter(|row| (capture.value(*row), at(pid, *row)) == tenant.process) {
            let context = at(id, row);
            let flags = text_at(flags, row).unwrap_or_default();
            let flags: BTreeMap<u32, u8> = flags
                .split(',')
                .filter_map(|pair| pair.split_once(':'))
                .filter_map(|(stream, flag)| Some((stream.parse().ok()?, flag.parse().ok()?)))
                .collect();
            for ((of, stream), number) in tenant.stream_ids() {
                let (Some(known), Some(stream)) = (self.streams.get_mut(number as usize), stream) else {
                    continue;
                };
                if of == context {
                    let flag = flags.get(&stream).copied();
                    known.legacy = flag == Some(LEGACY) || at(null_stream, row) == Some(stream);
                    known.blocking = flag == Some(BLOCKING);
                }
            }
        }
        Ok(())
    }

    fn read_channels(&mut self, session: &Tables, tenant: &Tenancy) -> Result<()> {
        let mut channels = CONNECTIONS;
        if let Some(batch) = session.get(schema::CONFIGURED.name) {
            let c = Columns::new(&schema::CONFIGURED, batch);
            let (capture, pid) = (c.u32("capture")?, c.u32("pid")?);
            let (key, value) = (c.names("key")?, c.text("value")?);
            for row in 0..c.rows() {
                let mine = at(capture, row) == Some(tenant.process.0)
                    && at(pid, row).is_none_or(|pid| Some(pid) == tenant.process.1);
                if mine && key.get(row) == Some("CUDA_DEVICE_MAX_CONNECTIONS") {
                    channels =
                        text_at(value, row).and_then(|text| text.trim().parse().ok()).unwrap_or(channels);
                }
            }
        }
        let mut used: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        for stream in &self.streams {
            *used.entry(stream.context).or_default() += 1;
        }
        self.crowded.extend(used.into_iter().filter(|(_, n)| *n > channels).map(|(context, _)| context));
        Ok(())
    }

    /// Reads who recorded and who awaits events; returns when calls began that let a stream wait for a known one.
    fn read_events(&mut self, session: &Tables, tenant: &Tenancy, calls: &Calls) -> Result<BTreeSet<i64>> {
        let mut known = BTreeSet::new();
        let Some(batch) = session.get(schema::EVENT_CALLS.name) else { return Ok(known) };
        let c = Columns::new(&schema::EVENT_CALLS, batch);
        let (capture, pid, context) = (c.u32("capture")?, c.u32("pid")?, c.u32("context_id")?);
        let (stream, correlation) = (c.u32("stream_id")?, c.u32("correlation_id")?);
        let (event, sync_id, kind) = (c.u32("event_id")?, c.u64("event_sync_id")?, c.names("kind")?);
        let mut records: BTreeMap<(Option<u32>, Option<u32>), Vec<Recorded>> = BTreeMap::new();
        let mut waiting = Vec::new();
        for row in (0..c.rows()).filter(|row| (capture.value(*row), at(pid, *row)) == tenant.process) {
            let Some(call) = at(correlation, row).and_then(|id| calls.with_correlation(id)) else { continue };
            let of = at(context, row);
            let place = tenant.stream_of(of, at(stream, row));
            let (event, sync_id) = (at(event, row), at(sync_id, row));
            if kind.get(row) == Some("record") {
                let record = Recorded { called_ns: call.start_ns, stream: place, sync_id };
                records.entry((of, event)).or_default().push(record);
            } else if let (true, Some(place)) = (call.stream_waits, place) {
                waiting.push((call.start_ns, place, (of, event), sync_id));
            }
        }
        for list in records.values_mut() {
            list.sort_by_key(|r| r.called_ns);
        }
        for (called_ns, stream, of, sync_id) in waiting {
            // The last recording before the wait; where recordings have numbers, that one.
            let earlier = records.get(&of).map_or(&[][..], |list| {
                let next = list.partition_point(|record| record.called_ns < called_ns);
                list.get(..next).unwrap_or_default()
            });
            let same = |record: &&Recorded| sync_id.is_some() && record.sync_id == sync_id;
            let record = earlier.iter().rev().find(same).or_else(|| earlier.last()).copied();
            if record.is_some() {
                known.insert(called_ns);
            }
            self.awaited.entry(stream).or_default().push(Awaited { called_ns, record });
        }
        for list in self.awaited.values_mut() {
            list.sort_by_key(|w| w.called_ns);
        }
        Ok(known)
    }

    /// The operation that came last of those that the events were recorded behind for which `op` was told to wait since
    /// the launch of the operation before it in its stream.
    pub fn event(&self, tenant: &Tenancy, op: &Op, before: Option<&Op>) -> Option<u32> {
        op.call()?;
        self.last_awaited(tenant, op.stream, before.map_or(i64::MIN, |b| b.launch_ns), op.launch_ns, 0)
            .map(|(_, place)| place)
    }

    fn last_awaited(
        &self,
        tenant: &Tenancy,
        stream: u32,
        from_ns: i64,
        to_ns: i64,
        depth: u32,
    ) -> Option<(i64, u32)> {
        let list = self.awaited.get(&stream).filter(|_| depth < MAX_DEPTH)?;
        let first = list.partition_point(|wait| wait.called_ns <= from_ns);
        let waits = list.get(first..).unwrap_or_default().iter().take_while(|wait| wait.called_ns < to_ns);
        let mut last: Option<(i64, u32)> = None;
        for record in waits.filter_map(|wait| wait.record) {
            let Some(stream) = record.stream else { continue };
            let op = |place: &u32| tenant.ops.get(*place as usize);
            let launched = self.launched.get(stream as usize).map_or(&[][..], Vec::as_slice);
            let next = launched.partition_point(|p| op(p).is_some_and(|o| o.launch_ns < record.called_ns));
            let before = next.checked_sub(1).and_then(|n| launched.get(n)).copied();
            let since_ns = before.and_then(|p| op(&p)).map_or(i64::MIN, |o| o.launch_ns);
            let own = before.and_then(|p| Some((op(&p)?.end_ns, p)));
            let further =
                self.last_awaited(tenant, stream, since_ns, record.called_ns, depth.saturating_add(1));
            last = last.max(own).max(further);
        }
        last
    }

    /// Whether the thread that launched `op` let some stream wait for an event of which no more is known, just before.
    pub fn unknown_event(&self, op: &Op, thread: Option<u32>) -> bool {
        let Some((calls, launches)) =
            thread.and_then(|t| Some((self.unknown.get(&t)?, self.launches.get(&t)?)))
        else {
            return false;
        };
        let next = calls.partition_point(|ns| *ns < op.launch_ns);
        let earlier = launches.partition_point(|ns| *ns < op.launch_ns);
        let called_ns = next.checked_sub(1).and_then(|n| calls.get(n));
        let launched_ns = earlier.checked_sub(1).and_then(|n| launches.get(n));
        called_ns.is_some_and(|called| launched_ns.is_none_or(|launched| launched < called))
    }

    /// Whether the legacy default stream makes `op` wait for `other`, which was launched before.
    pub fn barrier(&self, op: &Op, other: &Op) -> bool {
        let stream = |op: &Op| self.streams.get(op.stream as usize).copied().unwrap_or_default();
        let (mine, theirs) = (stream(op), stream(other));
        let between = (mine.legacy && theirs.blocking) || (theirs.legacy && mine.blocking);
        between && mine.context == theirs.context && other.launch_ns < op.launch_ns
    }

    /// Whether `op` may have been behind `other`, launched before, in one channel to the device.
    pub fn channel(&self, op: &Op, other: &Op) -> bool {
        let context = |op: &Op| self.streams.get(op.stream as usize).and_then(|s| s.context);
        let same = context(op) == context(other);
        same && other.launch_ns < op.launch_ns && self.crowded.contains(&context(op))
    }
}
