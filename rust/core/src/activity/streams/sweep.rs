//! One pass over launches, starts and ends of a process: what each pair of streams had to do, did and lost.
//!
//! ```text
//!   stream A   launched |==== executes ====|
//!   stream B       launched  ...........|==== executes ====|
//!                            not_overlapped_ns     overlap
//!   both had work            |=============|
//! ```
//!
//! A pair is brought up to date when one of its streams changes.

use std::collections::BTreeMap;

use super::contention::{Durations, Identity};
use super::operations::{Held, Operation, Process};
use super::reasons::{Reason, Waited};
use crate::base::error::Result;
use crate::base::hardware::LAUNCH_GAP_NS;
use crate::base::maps::NumberMap;
use crate::base::watch::Watch;
use crate::table::work::WorkKind;

/// A part of the time before a launch in which its thread was in a call that held it: then that call is the reason.
const HELD_FOR: f64 = 0.5;

/// Time lost for one reason.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loss {
    pub ns: i64,
    pub operations: u64,
    /// The operation that was counted last.
    last: Option<usize>,
}

impl Loss {
    fn add(&mut self, ns: i64, operation: Option<usize>) {
        self.ns = self.ns.saturating_add(ns);
        if operation.is_some() && self.last != operation {
            self.operations += 1;
            self.last = operation;
        }
    }
}

/// What a pair of streams had to do, did and lost.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    pub both_had_work_ns: i64,
    pub overlap_ns: i64,
    pub not_overlapped_ns: i64,
    pub late_ns: i64,
    pub alternations: u64,
    /// By stream that waited (0: the first) and reason, while it had work and while it had none.
    pub losses: Vec<[[Loss; 2]; Reason::ALL.len()]>,
    /// Time of these by name of the kernel that left no SMs, of whatever stream: by stream that waited, reason and name.
    pub fillers: BTreeMap<(usize, Reason, u32), i64>,
    since_ns: i64,
    last: Option<usize>,
}

impl Pair {
    /// The name of the kernel that left no SMs for most of what the first or the second stream lost for a reason.
    pub(super) fn filled_by(&self, which: usize, reason: Reason) -> Option<u32> {
        let names = self.fillers.range((which, reason, 0)..=(which, reason, u32::MAX));
        names.max_by_key(|((_, _, name), ns)| (**ns, std::cmp::Reverse(*name))).map(|((_, _, name), _)| *name)
    }
}

/// What a stream has and does at the moment.
#[derive(Debug, Clone, Default)]
struct State {
    launched: u32,
    executing: u32,
    kernels_executing: u32,
    kernels_waiting: u32,
    /// The first of its operations that did not start.
    next: usize,
    busy_ns: i64,
    others_ns: i64,
    since_ns: i64,
    last_start_ns: Option<i64>,
    last_end_ns: Option<i64>,
    /// When it last had no work left, and how busy each stream had been until then.
    idle_from_ns: i64,
    busy_then_ns: Vec<i64>,
}

/// What an operation sees at its start.
struct Started {
    busy_ns: Vec<i64>,
    others_ns: i64,
}

/// What an operation missed of another stream, which ended before it was launched.
struct Missed {
    other: usize,
    ns: i64,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End,
    Launch,
    Start,
}

pub(super) struct Sweep<'a> {
    process: &'a Process,
    reasons: &'a [Option<Waited<'a>>],
    by_end: &'a [usize],
    identity: &'a dyn Fn(&Operation) -> Identity,
    states: Vec<State>,
    pairs: Vec<Pair>,
    executing: usize,
    running: NumberMap<usize, Started>,
    /// By operation that came late, until it ends.
    missed: NumberMap<usize, Vec<Missed>>,
    /// Lists of kernels that ended, for those that start.
    unused: Vec<Vec<i64>>,
    pub durations: Durations,
}

/// Place of a pair among those of `n` streams, `a` before `b`.
pub(super) fn place(a: usize, b: usize) -> usize {
    b * (b - 1) / 2 + a
}

impl<'a> Sweep<'a> {
    /// `reasons`: what each operation of the process waited for; `by_end`: their places, by end; `identity`: what makes
    /// two kernels the same.
    pub(super) fn new(
        process: &'a Process,
        reasons: &'a [Option<Waited<'a>>],
        by_end: &'a [usize],
        identity: &'a dyn Fn(&Operation) -> Identity,
    ) -> Self {
        let n = process.streams.len();
        let first_ns = process.operations.iter().map(|one| one.asked_ns).min().unwrap_or(0);
        let state = State {
            since_ns: first_ns,
            idle_from_ns: first_ns,
            busy_then_ns: vec![0; n],
            ..State::default()
        };
        let pair = Pair { since_ns: first_ns, losses: vec![Default::default(); 2], ..Pair::default() };
        Self {
            process,
            reasons,
            by_end,
            identity,
            states: vec![state; n],
            pairs: vec![pair; n * n.saturating_sub(1) / 2],
            executing: 0,
            running: NumberMap::default(),
            missed: NumberMap::default(),
            unused: Vec::new(),
            durations: Durations::default(),
        }
    }

    pub(super) fn run(mut self, watch: &dyn Watch) -> Result<(Vec<Pair>, Durations)> {
        let operations = &self.process.operations;
        let by_launch = self.process.in_order(|one| one.launched_ns);
        // The next end, launch and start: operations stand by start.
        let by_end = self.by_end;
        let next = |event: Event, n: usize| {
            let (place, time_ns): (_, fn(&Operation) -> i64) = match event {
                Event::End => (by_end.get(n).copied()?, |one| one.end_ns),
                Event::Launch => (by_launch.get(n).copied()?, |one| one.launched_ns),
                Event::Start => (n, |one| one.start_ns),
            };
            Some((time_ns(operations.get(place)?), event, place))
        };
        let mut passed = [0_usize; 3];
        let mut heads = [Event::End, Event::Launch, Event::Start].map(|event| next(event, 0));
        let total = operations.len() as u64;
        while let Some((time_ns, event, at)) = heads.iter().flatten().min().copied() {
            let Some(one) = operations.get(at) else { break };
            if let (Some(passed), Some(head)) =
                (passed.get_mut(event as usize), heads.get_mut(event as usize))
            {
                if event == Event::Start && *passed % (1 << 16) == 0 {
                    watch.progress("streams", *passed as u64, total)?;
                }
                *passed += 1;
                *head = next(event, *passed);
            }
            self.settle(one.stream, time_ns);
            match event {
                Event::Launch => self.launch(at, one, time_ns),
                Event::Start => self.start(at, one, time_ns),
                Event::End => self.end(at, one, time_ns),
            }
        }
        Ok((self.pairs, self.durations))
    }

    /// Brings the pairs of a stream up to date, before it changes.
    fn settle(&mut self, stream: usize, time_ns: i64) {
        for other in (0..self.states.len()).filter(|other| *other != stream) {
            let (a, b) = (stream.min(other), stream.max(other));
            let (Some(one), Some(two)) = (self.states.get(a), self.states.get(b)) else { continue };
            let Some(pair) = self.pairs.get_mut(place(a, b)) else { continue };
            let ns = time_ns.saturating_sub(pair.since_ns);
            pair.since_ns = time_ns;
            if ns <= 0 || one.launched == 0 || two.launched == 0 {
                continue;
            }
            let both_ns = pair.both_had_work_ns.saturating_add(ns);
            let (waits, holds, which) = match (one.executing > 0, two.executing > 0) {
                (true, true) => {
                    pair.both_had_work_ns = both_ns;
                    pair.overlap_ns = pair.overlap_ns.saturating_add(ns);
                    continue;
                }
                (false, false) => {
                    pair.both_had_work_ns = both_ns;
                    continue;
                }
                (true, false) => ((b, two), (a, one), 1),
                (false, true) => ((a, one), (b, two), 0),
            };
            let (mine, theirs) = (self.process.stream(waits.0), self.process.stream(holds.0));
            let head = mine.operations.get(waits.1.next).copied();
            let waited = head.and_then(|at| self.reasons.get(at).copied().flatten());
            let mut reason = waited.map_or(Reason::Unexplained, |waited| waited.reason);
            // Who has other SMs did not fill those that it waits for: the time is lost of the pair with who did.
            let for_sms =
                matches!(reason, Reason::SmResources | Reason::PossiblySmResources | Reason::WholeDevice);
            if for_sms && !theirs.can_fill_sms_of(mine) {
                continue;
            }
            pair.both_had_work_ns = both_ns;
            pair.not_overlapped_ns = pair.not_overlapped_ns.saturating_add(ns);
            if reason == Reason::CopyEngine && holds.1.kernels_executing > 0 && waits.1.kernels_waiting > 0 {
                reason = Reason::CopyInFront;
            }
            let from_ns = time_ns.saturating_sub(ns);
            let mut add = |reason: Reason, ns: i64| {
                let loss = pair.losses.get_mut(which).and_then(|all| all.get_mut(reason as usize));
                if let (Some([with_work, _]), true) = (loss, ns > 0) {
                    with_work.add(ns, head);
                }
            };
            // Nothing of a process starts while its context is switched out.
            let not_certain = matches!(
                reason,
                Reason::Unexplained
                    | Reason::PossiblySharedChannel
                    | Reason::PossiblySmResources
                    | Reason::EventTracing
            );
            let out_ns = if not_certain { self.process.switched_out.covered_ns(from_ns, time_ns) } else { 0 };
            add(Reason::TimeSlice, out_ns);
            let apart = mine.context != theirs.context && !mine.green && !theirs.green;
            if apart && matches!(reason, Reason::Unexplained | Reason::PossiblySharedChannel) {
                reason = Reason::OtherContext;
            }
            let mut rest_ns = ns.saturating_sub(out_ns);
            if reason == Reason::Unexplained {
                let Process { others, switched_out, .. } = self.process;
                let out_too_ns = switched_out.common_within_ns(others, from_ns, time_ns);
                let beside_ns = others.covered_ns(from_ns, time_ns).saturating_sub(out_too_ns);
                add(Reason::PossiblyOtherProcess, beside_ns);
                rest_ns = rest_ns.saturating_sub(beside_ns);
            }
            add(reason, rest_ns);
            if let Some((Some(name), _, _)) = waited.and_then(|waited| waited.filled_by).map(self.identity) {
                *pair.fillers.entry((which, reason, name)).or_default() += rest_ns;
            }
        }
    }

    /// Brings busy times up to date, before the number of streams that execute changes.
    fn count(&mut self, time_ns: i64) {
        for state in &mut self.states {
            let ns = time_ns.saturating_sub(state.since_ns);
            state.since_ns = time_ns;
            let own = usize::from(state.executing > 0);
            if own > 0 {
                state.busy_ns = state.busy_ns.saturating_add(ns);
            }
            if self.executing > own {
                state.others_ns = state.others_ns.saturating_add(ns);
            }
        }
    }

    /// How busy each stream has been, in place of what `list` has.
    fn busy_ns(&self, mut list: Vec<i64>) -> Vec<i64> {
        list.clear();
        list.extend(self.states.iter().map(|state| state.busy_ns));
        list
    }

    fn launch(&mut self, at: usize, one: &Operation, time_ns: i64) {
        let had_none = self.states.get(one.stream).is_some_and(|state| state.launched == 0);
        // A later node came when its graph began, whenever the host launched that.
        if had_none && one.call.is_some() && !one.later_node {
            self.count(time_ns);
            self.late(at, one, time_ns);
        }
        if let Some(state) = self.states.get_mut(one.stream) {
            state.launched += 1;
            state.kernels_waiting += u32::from(one.kind != WorkKind::Copy);
        }
    }

    /// Notes what came too late to run beside what other streams had in flight.
    fn late(&mut self, at: usize, one: &Operation, time_ns: i64) {
        let Some(mine) = self.states.get(one.stream) else { return };
        let idle_from_ns = mine.idle_from_ns;
        let mut all = Vec::new();
        for (other, state) in self.states.iter().enumerate().filter(|(other, _)| *other != one.stream) {
            let (Some(start_ns), Some(end_ns)) = (state.last_start_ns, state.last_end_ns) else { continue };
            let then = mine.busy_then_ns.get(other).copied().unwrap_or(0);
            let ns = state.busy_ns.saturating_sub(then);
            if state.executing > 0 || ns <= 0 || time_ns.saturating_sub(end_ns) > LAUNCH_GAP_NS {
                continue;
            }
            all.push(Missed { other, ns, reason: self.held(one, idle_from_ns.max(start_ns)) });
        }
        if !all.is_empty() {
            self.missed.insert(at, all);
        }
    }

    /// Counts what an operation that came late missed: at most what of it then ran without the other stream.
    ///
    /// `overlap_ns`: how long each stream was in flight beside it.
    fn count_late(&mut self, at: usize, one: &Operation, overlap_ns: &[i64]) {
        for Missed { other, ns, reason } in self.missed.remove(&at).unwrap_or_default() {
            let beside_ns = overlap_ns.get(other).copied().unwrap_or(0);
            let ns = ns.min((one.end_ns - one.start_ns).saturating_sub(beside_ns));
            let (a, b) = (one.stream.min(other), one.stream.max(other));
            let Some(pair) = self.pairs.get_mut(place(a, b)).filter(|_| ns > 0) else { continue };
            pair.late_ns = pair.late_ns.saturating_add(ns);
            let which = usize::from(one.stream == b);
            let loss = pair.losses.get_mut(which).and_then(|all| all.get_mut(reason as usize));
            if let Some([_, without]) = loss {
                without.add(ns, Some(at));
            }
        }
    }

    /// What held the thread that launched `one` since a time.
    fn held(&self, one: &Operation, from_ns: i64) -> Reason {
        if self.process.launch_blocking {
            return Reason::LaunchBlocking;
        }
        let window_ns = one.asked_ns.saturating_sub(from_ns);
        let calls =
            one.call.and_then(|call| self.process.held.get(&call.thread)).map_or(&[] as &[_], Vec::as_slice);
        let begun = calls.partition_point(|call| call.start_ns < one.asked_ns);
        let (mut waiting_ns, mut blocking_ns) = (0_i64, 0_i64);
        for call in
            calls.get(..begun).unwrap_or_default().iter().rev().take_while(|call| call.end_ns > from_ns)
        {
            let ns = call.end_ns.min(one.asked_ns).saturating_sub(call.start_ns.max(from_ns));
            match call.held {
                Held::Synchronization => waiting_ns = waiting_ns.saturating_add(ns),
                Held::Blocking => blocking_ns = blocking_ns.saturating_add(ns),
            }
        }
        let most = |ns: i64| window_ns > 0 && ns as f64 >= HELD_FOR * window_ns as f64;
        if most(waiting_ns) {
            Reason::Synchronization
        } else if most(blocking_ns) {
            Reason::BlockingCall
        } else {
            Reason::LaunchedLate
        }
    }

    fn start(&mut self, at: usize, one: &Operation, time_ns: i64) {
        self.count(time_ns);
        let kernel = one.kind != WorkKind::Copy;
        if one.kind == WorkKind::Kernel || self.missed.contains_key(&at) {
            let others_ns = self.states.get(one.stream).map_or(0, |state| state.others_ns);
            let unused = self.unused.pop().unwrap_or_default();
            self.running.insert(at, Started { busy_ns: self.busy_ns(unused), others_ns });
        }
        if let Some(state) = self.states.get_mut(one.stream) {
            self.executing += usize::from(state.executing == 0);
            state.executing += 1;
            state.kernels_executing += u32::from(kernel);
            state.kernels_waiting = state.kernels_waiting.saturating_sub(u32::from(kernel));
            state.next += 1;
            state.last_start_ns = Some(time_ns);
        }
        for other in (0..self.states.len()).filter(|other| *other != one.stream) {
            let (a, b) = (one.stream.min(other), one.stream.max(other));
            if let Some(pair) = self.pairs.get_mut(place(a, b)) {
                pair.alternations += u64::from(pair.last == Some(other));
                pair.last = Some(one.stream);
            }
        }
    }

    fn end(&mut self, at: usize, one: &Operation, time_ns: i64) {
        self.count(time_ns);
        if let Some(Started { busy_ns: mut overlap_ns, others_ns }) = self.running.remove(&at) {
            for (state, then) in self.states.iter().zip(&mut overlap_ns) {
                *then = state.busy_ns - *then;
            }
            self.count_late(at, one, &overlap_ns);
            if one.kind == WorkKind::Kernel {
                self.finished(one, &mut overlap_ns, others_ns);
            }
            self.unused.push(overlap_ns);
        }
        if let Some(state) = self.states.get_mut(one.stream) {
            state.executing = state.executing.saturating_sub(1);
            state.kernels_executing =
                state.kernels_executing.saturating_sub(u32::from(one.kind != WorkKind::Copy));
            state.launched = state.launched.saturating_sub(1);
            state.last_end_ns = state.last_end_ns.max(Some(time_ns));
            self.executing -= usize::from(state.executing == 0);
            if state.launched > 0 {
                return;
            }
        }
        let before = self.states.get_mut(one.stream).map(|state| std::mem::take(&mut state.busy_then_ns));
        let busy_then_ns = self.busy_ns(before.unwrap_or_default());
        if let Some(state) = self.states.get_mut(one.stream) {
            state.idle_from_ns = time_ns;
            state.busy_then_ns = busy_then_ns;
        }
    }

    /// Adds a kernel to the durations beside another stream, or solo.
    ///
    /// `overlap_ns`: how long each stream was in flight beside it; `others_ns`: how long others had been when it started.
    fn finished(&mut self, one: &Operation, overlap_ns: &mut [i64], others_ns: i64) {
        if let Some(own) = overlap_ns.get_mut(one.stream) {
            *own = 0;
        }
        let others_ns = self.states.get(one.stream).map_or(0, |state| state.others_ns - others_ns);
        let identity = (self.identity)(one);
        let beside = self.durations.add(
            one.stream,
            (identity, one.graph_node),
            one.end_ns - one.start_ns,
            others_ns,
            overlap_ns,
        );
        let Some(beside) = beside else { return };
        let Some(found) = self.durations.beside.get_mut(&(one.stream, identity, beside)) else { return };
        let next = self.states.get(beside).map_or(0, |state| state.next);
        let stream = self.process.stream(beside);
        for other in stream.operations.get(..next).unwrap_or_default().iter().rev() {
            let Some(other) = self.process.operations.get(*other) else { continue };
            if other.end_ns <= one.start_ns {
                break;
            }
            if let (WorkKind::Kernel, (Some(name), _, _)) = (other.kind, (self.identity)(other)) {
                let ns = other.end_ns.min(one.end_ns) - other.start_ns.max(one.start_ns);
                *found.kernels.entry(name).or_default() += ns;
            }
        }
    }
}
