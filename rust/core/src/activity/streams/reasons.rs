//! Why an operation that was launched did not start: decided by columns, or not at all.
//!
//! What an operation waited for last ended just before it started. An operation of another stream that did so explains
//! the wait only together with a column that says that the two could not run at once.

use std::collections::BTreeMap;

use arrow_array::types::UInt8Type;

use super::operations::{Awaited, Operation, Process, Recorded};
use crate::base::error::Result;
use crate::base::hardware::{CONNECTIONS, WAKE_NS};
use crate::occupancy::sm_array::{BlockFootprint, SmArray};
use crate::occupancy::theoretical::{LaunchColumns, Limits};
use crate::table::columns::{at, Columns};
use crate::table::events::Tables;
use crate::table::schema;
use crate::table::work::WorkKind;

/// What an operation waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The usual time between a launch, or the end of the operation before it, and its start.
    LaunchLatency,
    /// Its launch call ended after the operations of the other stream.
    LaunchedLate,
    /// A copy in front of kernels of the same stream waited for its engine.
    CopyInFront,
    /// A copy of the same direction had the copy engine.
    CopyEngine,
    /// A call that returns late kept the launching thread: pageable copies, allocation.
    BlockingCall,
    /// An event of another stream.
    Dependency,
    /// An event of which it is not known where it was recorded.
    UnknownDependency,
    /// The launching thread waited for the GPU.
    Synchronization,
    /// The legacy default stream.
    DefaultStream,
    /// A kernel with more than two waves of blocks left, or in its first of several.
    SmResources,
    /// Kernels in flight together may have filled the SMs; or one of the same green context, of which it is not known how
    /// many SMs it has.
    PossiblySmResources,
    /// A cooperative launch, or a kernel that fills the device with one wave.
    WholeDevice,
    /// Both streams are bound to one channel to the device.
    SharedChannel,
    /// More streams with work than channels to the device.
    PossiblySharedChannel,
    /// The order inside one graph.
    Graph,
    /// `CUDA_LAUNCH_BLOCKING`.
    LaunchBlocking,
    /// nsys traced the completion of CUDA events.
    EventTracing,
    /// Contexts alternate.
    OtherContext,
    /// Another process was resident.
    TimeSlice,
    /// Another process had kernels in flight, and no column says more.
    PossiblyOtherProcess,
    /// No column says.
    Unexplained,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 21] = [
        Self::LaunchLatency,
        Self::LaunchedLate,
        Self::CopyInFront,
        Self::CopyEngine,
        Self::BlockingCall,
        Self::Dependency,
        Self::UnknownDependency,
        Self::Synchronization,
        Self::DefaultStream,
        Self::SmResources,
        Self::PossiblySmResources,
        Self::WholeDevice,
        Self::SharedChannel,
        Self::PossiblySharedChannel,
        Self::Graph,
        Self::LaunchBlocking,
        Self::EventTracing,
        Self::OtherContext,
        Self::TimeSlice,
        Self::PossiblyOtherProcess,
        Self::Unexplained,
    ];

    /// As it stands in `stream_losses.reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LaunchLatency => "launch-latency",
            Self::LaunchedLate => "launched-late",
            Self::CopyInFront => "copy-in-front",
            Self::CopyEngine => "copy-engine",
            Self::BlockingCall => "blocking-call",
            Self::Dependency => "dependency",
            Self::UnknownDependency => "unknown-dependency",
            Self::Synchronization => "synchronization",
            Self::DefaultStream => "default-stream",
            Self::SmResources => "sm-resources",
            Self::PossiblySmResources => "possibly-sm-resources",
            Self::WholeDevice => "whole-device-launch",
            Self::SharedChannel => "shared-channel",
            Self::PossiblySharedChannel => "possibly-shared-channel",
            Self::Graph => "graph",
            Self::LaunchBlocking => "launch-blocking",
            Self::EventTracing => "possibly-event-tracing",
            Self::OtherContext => "other-context",
            Self::TimeSlice => "time-slice",
            Self::PossiblyOtherProcess => "possibly-other-process",
            Self::Unexplained => "unexplained",
        }
    }
}

/// From the end of what an operation waited for until it starts, at most, and the usual time from launch to start.
pub(super) const FOLLOWS_NS: i64 = WAKE_NS;
/// Waves of blocks that a kernel has left at least where it is certain that others do not fit beside it.
const WAVES_LEFT: f64 = 2.0;
/// Part of its first wave in which none of a kernel's blocks has ended yet; and how far, in waves, one that it has kept
/// waiting may start before the wave that leaves room, of uneven blocks.
const UNEVEN: f64 = 0.5;
/// SMs of the smallest green context: one TPC.
const LEAST_GREEN_SMS: u32 = 2;
/// How far events are followed that wait for others.
const MAX_DEPTH: u32 = 8;

/// Why an operation waited, and for which kernel where that one left it no SMs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waited<'a> {
    pub reason: Reason,
    pub filled_by: Option<&'a Operation>,
}

/// What is read of kernels that waited, or were waited for.
pub(super) struct Launches<'a> {
    columns: Option<(LaunchColumns<'a>, Columns<'a>)>,
    limits: BTreeMap<u32, Limits>,
    engines: BTreeMap<u32, u32>,
}

impl<'a> Launches<'a> {
    pub(super) fn read(session: &'a Tables) -> Result<Self> {
        let columns = match session.get(schema::KERNELS.name) {
            Some(batch) => {
                let c = Columns::new(&schema::KERNELS, batch);
                Some((LaunchColumns::new(&c)?, c))
            }
            None => None,
        };
        let (mut limits, mut engines) = (BTreeMap::new(), BTreeMap::new());
        if let Some(devices) = session.get(schema::DEVICES.name) {
            limits = Limits::of_devices(devices)?;
            let c = Columns::new(&schema::DEVICES, devices);
            let (id, copy_engines) = (c.u32("device_id")?, c.u32("async_engines")?);
            engines.extend((0..c.rows()).filter_map(|row| Some((id.value(row), at(copy_engines, row)?))));
        }
        Ok(Self { columns, limits, engines })
    }

    fn limits_of(&self, device: u32, sms: Option<u32>) -> Option<Limits> {
        let known = self.limits.get(&device)?;
        Some(Limits { sm_count: sms.or(known.sm_count), ..*known })
    }

    /// How many times its blocks fill the SMs; `None`: not known.
    fn waves(&self, one: &Operation, limits: &Limits) -> Option<f64> {
        let (launches, _) = self.columns.as_ref().filter(|_| one.kind == WorkKind::Kernel)?;
        let launch = launches.read(one.row);
        let fits = launch.fit(Some(limits)).ok()?.device_blocks.filter(|blocks| *blocks > 0)?;
        Some(launch.grid_blocks? as f64 / fits as f64)
    }

    /// Whether a block of `one` finds no room on an SM that `full` has filled; `None`: not known.
    fn no_room_beside(&self, one: &Operation, full: &Operation, limits: &Limits) -> Option<bool> {
        let (launches, _) = self.columns.as_ref().filter(|_| one.kind == WorkKind::Kernel)?;
        let (wants, has) = (launches.read(one.row), launches.read(full.row));
        let blocks = u64::from(has.fit(Some(limits)).ok()?.blocks);
        let (block, taken) = (wants.footprint(limits)?, has.footprint(limits)?);
        let room =
            limits.resources().into_iter().zip(taken).map(|(all, each)| all.saturating_sub(each * blocks));
        Some(block.into_iter().zip(room).any(|(block, room)| block > room))
    }

    /// How a kernel's blocks fit on the SMs of a device, and how many it has; `None`: not known.
    fn blocks(&self, one: &Operation, limits: &Limits) -> Option<(BlockFootprint, u64)> {
        let (launches, _) = self.columns.as_ref().filter(|_| one.kind == WorkKind::Kernel)?;
        let launch = launches.read(one.row);
        let per_sm = launch.fit(Some(limits)).ok()?.blocks;
        let block = BlockFootprint::new(launch.footprint(limits)?, limits.resources(), per_sm, None);
        Some((block, launch.grid_blocks?))
    }

    fn is_cooperative(&self, one: &Operation) -> bool {
        let Some((_, columns)) = self.columns.as_ref().filter(|_| one.kind == WorkKind::Kernel) else {
            return false;
        };
        columns.folded::<UInt8Type>("launch_type").is_ok_and(|kinds| kinds.at(one.row) > Some(1))
    }
}

/// Decides what operations of a process waited for.
pub(super) struct Decider<'a> {
    process: &'a Process,
    launches: &'a Launches<'a>,
    device: u32,
    /// Operations by end.
    by_end: &'a [usize],
}

impl<'a> Decider<'a> {
    pub(super) fn new(
        process: &'a Process,
        launches: &'a Launches<'a>,
        device: u32,
        by_end: &'a [usize],
    ) -> Self {
        Self { process, launches, device, by_end }
    }

    fn operation(&self, place: usize) -> Option<&'a Operation> {
        self.process.operations.get(place)
    }

    /// Operations of other streams that ended just before `one` started, and after it was ready. `near`: where those
    /// before the last one asked for were found, by end.
    fn ended_before(
        &self,
        one: &'a Operation,
        ready_ns: i64,
        near: &mut usize,
    ) -> impl Iterator<Item = &'a Operation> + use<'a, '_> {
        let from = one.start_ns.saturating_sub(FOLLOWS_NS).max(ready_ns);
        let before = |n: usize| {
            let other = self.by_end.get(n).and_then(|place| self.operation(*place));
            other.is_some_and(|other| other.end_ns < from)
        };
        while near.checked_sub(1).is_some_and(|n| !before(n)) {
            *near -= 1;
        }
        while before(*near) {
            *near += 1;
        }
        let rest =
            self.by_end.get(*near..).unwrap_or_default().iter().filter_map(|place| self.operation(*place));
        rest.take_while(|other| other.end_ns <= one.start_ns).filter(|other| other.stream != one.stream)
    }

    /// What other streams had in flight at a time.
    fn executing(&self, of: usize, time_ns: i64) -> impl Iterator<Item = &'a Operation> + use<'a, '_> {
        self.process.streams.iter().enumerate().filter(move |(place, _)| *place != of).filter_map(
            move |(_, stream)| {
                let start_of =
                    |place: &usize| self.operation(*place).map_or(i64::MAX, |other| other.start_ns);
                let next = stream.operations.partition_point(|place| start_of(place) <= time_ns);
                let last = stream.operations.get(next.checked_sub(1)?)?;
                self.operation(*last).filter(|other| other.end_ns > time_ns)
            },
        )
    }

    /// Why `one` waited from when it was ready until it started.
    ///
    /// `before`: the operation in front of it in its stream; `near`: a place in the order of ends, kept from one operation
    /// of a stream to the next.
    pub(super) fn reason(
        &self,
        one: &'a Operation,
        before: Option<&'a Operation>,
        ready_ns: i64,
        near: &mut usize,
    ) -> Reason {
        let ended: Vec<&Operation> = self.ended_before(one, ready_ns, near).collect();
        let same_graph = |other: &&Operation| {
            other.graph_node && other.correlation.is_some() && other.correlation == one.correlation
        };
        // A node that starts shortly after its graph began, where none of the graph ended, awaited none: it is a further
        // first node. With programmatic edges, one that waits longer may start before the other ends.
        let short = one.start_ns.saturating_sub(ready_ns) <= FOLLOWS_NS;
        if one.graph_node
            && (ended.iter().any(same_graph)
                || (!short && self.executing(one.stream, ready_ns).any(|o| same_graph(&o))))
        {
            return Reason::Graph;
        }
        let (depends, unknown) = self.dependency(one, before, ready_ns);
        if depends {
            return Reason::Dependency;
        }
        if ended.iter().any(|other| self.default_stream(one, other)) {
            return Reason::DefaultStream;
        }
        // What the program asked for is the reason of a short wait too; the rest takes longer than any launch.
        if short {
            return Reason::LaunchLatency;
        }
        // In one channel everything is in order, whatever else would have let it wait.
        if ended.iter().any(|other| self.same_channel(one, other)) {
            return Reason::SharedChannel;
        }
        if one.kind == WorkKind::Copy && ended.iter().any(|other| self.same_engine(one, other)) {
            return Reason::CopyEngine;
        }
        if one.kind == WorkKind::Kernel {
            // That it started at the end of one says more than that it started in the last waves of another.
            if self.whole_device(one, &ended, ready_ns) {
                return Reason::WholeDevice;
            }
            if self.filled_by(one, ready_ns, Reason::SmResources).is_some() {
                return Reason::SmResources;
            }
        }
        if ended.iter().any(|other| self.other_context(one, other)) {
            return Reason::OtherContext;
        }
        if unknown {
            return Reason::UnknownDependency;
        }
        if !ended.is_empty() {
            if self.traced_event(one, before) {
                return Reason::EventTracing;
            }
            let context = self.process.stream(one.stream).context;
            let used = self.process.streams.iter().filter(|s| s.context == context).count();
            if used > self.process.max_connections.unwrap_or(CONNECTIONS) {
                return Reason::PossiblySharedChannel;
            }
        }
        if self.filled_by(one, ready_ns, Reason::PossiblySmResources).is_some()
            || self.filled_together(one, ready_ns)
        {
            return Reason::PossiblySmResources;
        }
        Reason::Unexplained
    }

    /// Whether kernels in flight together left no room for a block of `one` until just before it started, and one of them
    /// had ended then, or was in the second half of its last wave, in which blocks end.
    fn filled_together(&self, one: &'a Operation, ready_ns: i64) -> bool {
        let mine = self.process.stream(one.stream);
        // When a node of a graph could have started is not recorded.
        let Some(limits) = self.launches.limits_of(self.device, mine.sms).filter(|_| !one.graph_node) else {
            return false;
        };
        let Some((block, _)) = self.launches.blocks(one, &limits) else { return false };
        let Some(sms) = limits.sm_count else { return false };
        let mut gave_room = false;
        let mut beside: Vec<(&Operation, BlockFootprint, u64, bool)> = Vec::new();
        for other in self.executing(one.stream, one.start_ns.saturating_sub(FOLLOWS_NS).max(ready_ns)) {
            let theirs = self.process.stream(other.stream);
            let one_set = mine.context == theirs.context && mine.green_context == theirs.green_context;
            // One of higher priority waits for the next block that ends, whatever else is in flight.
            if !one_set || mine.priority.is_none() || mine.priority != theirs.priority {
                continue;
            }
            let blocks = self.launches.blocks(other, &limits).zip(self.launches.waves(other, &limits));
            let Some(((footprint, count), waves)) = blocks else { continue };
            let length_ns = (other.end_ns - other.start_ns) as f64;
            let ends_ns = length_ns * (1.0 - UNEVEN / waves.ceil().max(1.0));
            let ends = (one.start_ns - other.start_ns) as f64 >= ends_ns;
            beside.push((other, footprint, count, ends || waves <= 1.0));
            gave_room |= ends;
        }
        if !gave_room {
            return false;
        }
        beside.sort_by_key(|(other, ..)| other.start_ns);
        let mut array = SmArray::new(limits.resources(), sms as usize);
        for (_, footprint, count, few_wait) in &beside {
            let placed = array.room(footprint, None).min(*count);
            // Its other blocks wait for room, and go first. Of one with waves left `one` would not have started beside it.
            if placed < *count && *few_wait {
                return true;
            }
            let mut on = array.nowhere();
            array.place(footprint, placed, &mut on);
        }
        array.room(&block, None) == 0
    }

    /// The kernel that left `one` no SMs, by itself, where it waited for them; `None` for any other reason.
    ///
    /// It may be of any other stream: who else was in flight meanwhile left room beside itself.
    pub(super) fn filled_by(
        &self,
        one: &'a Operation,
        ready_ns: i64,
        reason: Reason,
    ) -> Option<&'a Operation> {
        let mut others = self.executing(one.stream, ready_ns);
        match reason {
            Reason::SmResources => others.find(|other| self.no_sms(one, other, ready_ns)),
            Reason::PossiblySmResources => others.find(|other| self.possibly_no_sms(one, other)),
            _ => None,
        }
    }

    /// Host times between which calls stand in the stream between the operation before and this one.
    fn between(one: &Operation, before: Option<&Operation>) -> Option<(i64, i64)> {
        one.call?;
        Some((before.map_or(i64::MIN, |other| other.asked_ns), one.asked_ns))
    }

    /// Whether an event of another stream held it, and whether it awaits one of which nothing is known.
    fn dependency(&self, one: &Operation, before: Option<&Operation>, ready_ns: i64) -> (bool, bool) {
        let Some((from, to)) = Self::between(one, before) else { return (false, false) };
        let Some(waits) = self.process.waits.get(&one.stream) else { return (false, false) };
        let mut unknown = false;
        for wait in awaited_between(waits, from, to) {
            match self.record_of(wait) {
                None => unknown = true,
                Some(record) => {
                    let done_ns = self.completed(record, 0);
                    let just_before =
                        |ns: i64| (one.start_ns.saturating_sub(FOLLOWS_NS)..=one.start_ns).contains(&ns);
                    if done_ns.is_some_and(|ns| ns >= ready_ns && just_before(ns)) {
                        return (true, false);
                    }
                }
            }
        }
        (false, unknown)
    }

    /// The last recording of the awaited event before the wait.
    fn record_of(&self, wait: &Awaited) -> Option<&'a Recorded> {
        let records = self.process.records.get(&(wait.context, wait.event?))?;
        let next = records.partition_point(|record| record.called_ns < wait.called_ns);
        let earlier = records.get(..next)?;
        let same = |record: &&Recorded| wait.sync_id.is_some() && record.sync_id == wait.sync_id;
        earlier.iter().rev().find(same).or_else(|| earlier.last())
    }

    /// When everything in front of a recording of an event had ended.
    fn completed(&self, record: &Recorded, depth: u32) -> Option<i64> {
        let place = record.stream?;
        let stream = self.process.streams.get(place)?;
        let asked_of = |at: &usize| self.operation(*at).map_or(i64::MAX, |other| other.asked_ns);
        let next = stream.operations.partition_point(|at| asked_of(at) < record.called_ns);
        let last =
            next.checked_sub(1).and_then(|at| stream.operations.get(at)).and_then(|at| self.operation(*at));
        let mut done_ns = last.map(|other| other.end_ns);
        if depth < MAX_DEPTH {
            let waits = self.process.waits.get(&place).map_or(&[] as &[_], Vec::as_slice);
            let from = last.map_or(i64::MIN, |other| other.asked_ns);
            for wait in awaited_between(waits, from, record.called_ns) {
                let further = self.record_of(wait).and_then(|record| self.completed(record, depth + 1));
                done_ns = done_ns.max(further);
            }
        }
        done_ns
    }

    /// Whether the legacy default stream lets `one` wait for `other`.
    fn default_stream(&self, one: &Operation, other: &Operation) -> bool {
        let (mine, theirs) = (self.process.stream(one.stream), self.process.stream(other.stream));
        let ours = |call: &Operation| call.call.is_some_and(|call| !call.per_thread);
        let in_order = ours(one) && ours(other) && other.asked_ns < one.asked_ns;
        let one_is_legacy = mine.legacy && theirs.flag == Some(1);
        let other_is_legacy = theirs.legacy && mine.flag == Some(1);
        in_order && mine.context == theirs.context && (one_is_legacy || other_is_legacy)
    }

    /// Whether the export says that both streams are bound to the same channel, in which work runs in order.
    fn same_channel(&self, one: &Operation, other: &Operation) -> bool {
        let (mine, theirs) = (self.process.stream(one.stream), self.process.stream(other.stream));
        mine.channel.is_some() && mine.channel == theirs.channel && other.asked_ns < one.asked_ns
    }

    /// Whether both need the compute engine, each for a context of its own.
    fn other_context(&self, one: &Operation, other: &Operation) -> bool {
        let (mine, theirs) = (self.process.stream(one.stream), self.process.stream(other.stream));
        let compute = one.kind != WorkKind::Copy && other.kind != WorkKind::Copy;
        compute && mine.context != theirs.context && !mine.green && !theirs.green
    }

    /// Whether two copies need the same engine.
    fn same_engine(&self, one: &Operation, other: &Operation) -> bool {
        let crosses = |kind: Option<u8>| matches!(kind, Some(1 | 2));
        let single = self.launches.engines.get(&self.device) == Some(&1);
        let both = crosses(one.copy_kind) && other.kind == WorkKind::Copy && crosses(other.copy_kind);
        both && (single || one.copy_kind == other.copy_kind)
    }

    /// Whether the blocks of `other` left no room when `one` was ready, and it started where they did.
    ///
    /// They surely left none with more waves left than let anything start beside it, or in the first of several, where
    /// none of them has ended.
    fn no_sms(&self, one: &Operation, other: &Operation, ready_ns: i64) -> bool {
        let (mine, theirs) = (self.process.stream(one.stream), self.process.stream(other.stream));
        // A higher priority goes first at the next block: only equal ones that are known let it wait.
        let one_context = mine.context == theirs.context && theirs.can_fill_sms_of(mine);
        if !one_context || mine.priority.is_none() || mine.priority != theirs.priority {
            return false;
        }
        let Some(limits) = self.launches.limits_of(self.device, theirs.sms) else { return false };
        let Some(waves) = self.launches.waves(other, &limits) else { return false };
        let wave_ns = (other.end_ns - other.start_ns) as f64 / waves;
        let left = (other.end_ns - ready_ns) as f64 / wave_ns;
        let started = (other.end_ns - one.start_ns) as f64;
        let late = waves > WAVES_LEFT && left > WAVES_LEFT && started <= WAVES_LEFT * wave_ns;
        // A last wave that is not full takes as long as a full one.
        let full_ns = (other.end_ns - other.start_ns) as f64 / waves.ceil();
        let after = |ns: i64, part: f64| (ns - other.start_ns) as f64 >= part * full_ns;
        let first =
            waves > 1.0 && !after(ready_ns, UNEVEN) && after(one.start_ns, waves.ceil() - 1.0 - UNEVEN);
        let in_first = first && self.launches.no_room_beside(one, other, &limits) == Some(true);
        (late || in_first) && started >= -(FOLLOWS_NS as f64)
    }

    /// Whether the blocks of `other` may have left no room until `one` started: both are of one green context, the
    /// export does not say how many SMs it has, and the blocks would fill the smallest.
    fn possibly_no_sms(&self, one: &Operation, other: &Operation) -> bool {
        let (mine, theirs) = (self.process.stream(one.stream), self.process.stream(other.stream));
        let one_set = mine.green_context.is_some() && mine.green_context == theirs.green_context;
        let same_priority = mine.priority.is_some() && mine.priority == theirs.priority;
        if !one_set || theirs.sms.is_some() || !same_priority {
            return false;
        }
        let Some(limits) = self.launches.limits_of(self.device, Some(LEAST_GREEN_SMS)) else { return false };
        self.launches.waves(other, &limits).is_some_and(|waves| waves >= 1.0)
            && self.launches.no_room_beside(one, other, &limits) == Some(true)
            && one.start_ns.saturating_sub(other.end_ns) <= FOLLOWS_NS
    }

    /// Whether it, or what ended just before it started, needs the whole device.
    fn whole_device(&self, one: &Operation, ended: &[&Operation], ready_ns: i64) -> bool {
        let mine = self.process.stream(one.stream);
        ended.iter().filter(|other| other.kind == WorkKind::Kernel && other.start_ns <= ready_ns).any(
            |other| {
                let theirs = self.process.stream(other.stream);
                if theirs.context != mine.context || !theirs.can_fill_sms_of(mine) {
                    return false;
                }
                if self.launches.is_cooperative(one) {
                    return true;
                }
                let Some(limits) = self.launches.limits_of(self.device, theirs.sms) else { return false };
                let full = self
                    .launches
                    .waves(other, &limits)
                    .is_some_and(|waves| (waves - 1.0).abs() < f64::EPSILON);
                full && self.launches.no_room_beside(one, other, &limits) == Some(true)
            },
        )
    }

    /// Whether an event whose completion nsys traced stands in front of it.
    fn traced_event(&self, one: &Operation, before: Option<&Operation>) -> bool {
        let Some((from, to)) = Self::between(one, before) else { return false };
        let traced = self.process.traced.get(&one.stream).map_or(&[] as &[_], Vec::as_slice);
        let first = traced.partition_point(|called| *called <= from);
        traced.get(first).is_some_and(|called| *called < to)
    }
}

/// Waits that were called between two times.
fn awaited_between(waits: &[Awaited], from: i64, to: i64) -> impl Iterator<Item = &Awaited> {
    let first = waits.partition_point(|wait| wait.called_ns <= from);
    waits.get(first..).unwrap_or_default().iter().take_while(move |wait| wait.called_ns < to)
}
