//! Which SMs did these kernels' blocks stand on, when the trace says from when to when each kernel ran?
//!
//! The block scheduler as published measurements describe it, held to the observed starts and ends:
//!
//! ```text
//!   SM 0 |A A|A A|A  |B B|      A: 9 blocks, two on an SM, two SMs: waves of 4, the last one ragged (SM 0, tie order)
//!   SM 1 |A A|A A|  B|B  |      B: starts where A's last wave leaves room: on SM 1
//! ```
//!
//! - A block goes to the SM that could take the most further ones of its kernel; equals in the device's tie order.
//! - Of a queue (a context's kernels) only the oldest kernel with unplaced blocks is looked at (leftover policy);
//!   queues are served by age of that kernel.
//! - All blocks of a kernel take equally long: as long as makes the last one end when the kernel did, given the room
//!   that kernels with known ends leave it. A kernel's last blocks are held to its observed end.
//! - A start is a fact. Where by the model blocks of the kernels before it in its queue have not been placed, they
//!   have been; where it has no room, the blocks that would end next end one by one around their time. Kernels whose
//!   blocks cannot be equal because of that are marked uneven.
//!
//! Cost follows kernels and waves: blocks placed together are one cohort, equal waves are taken in one step, and every
//! step is a sweep over the SMs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::scheduler::{Ask, Floor, Ps};

/// Into how many parts the blocks of a kernel are cut that must have ended one by one.
const THINNED: usize = 8;
/// Times of kernels are no more exact than this, a microsecond.
const NOISE: Ps = 1_000_000;
/// Cohorts of a kernel that may end at times of their own before further ones are joined to them.
const PHASES: u32 = 8;
/// Fewer waves than this are taken one by one: looking through all cohorts must pay.
const FEW_WAVES: u64 = 8;
/// Blocks of a kernel take equally long to one part in this many.
const INEXACT: Ps = 50;

/// A kernel to replay.
#[derive(Debug, Clone)]
pub(crate) struct Forced {
    /// Where the answer goes.
    pub row: usize,
    pub start: Ps,
    pub end: Ps,
    pub blocks: u64,
    pub ask: Ask,
    /// Index of its tenant among those of the machine.
    pub tenant: usize,
    /// Which queue it stands in.
    pub queue: u32,
    /// Index of the SMs it may use among those of the machine.
    pub set: usize,
}

/// What became of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reached {
    pub row: usize,
    /// SMs that held a block of it.
    pub sms: u32,
    /// Its blocks over what it found room for at once.
    pub waves: f64,
    /// Equal blocks contradict what was observed.
    pub uneven: bool,
}

/// Gets every stretch of time in which nothing changed.
pub(crate) trait Meter {
    /// From, until, and what stood where.
    fn stretch(&mut self, from: Ps, to: Ps, sms: &Standing<'_>);
}

/// What stands on the SMs, in tie order.
#[derive(Debug)]
pub(crate) struct Standing<'a> {
    /// Resident warps of each SM.
    pub warps: &'a [i32],
    /// Of each tenant of the machine.
    pub tenants: &'a [Held],
}

/// What a tenant holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    pub warps: i64,
    /// SMs with a block of it.
    pub sms: u32,
    blocks: Vec<i32>,
}

#[derive(Debug)]
struct Live {
    kernel: Forced,
    unplaced: u64,
    in_flight: u64,
    /// Its cohorts on the SMs.
    cohorts: u32,
    /// Time of a block.
    block: Ps,
    /// Blocks at once, as first placed or, where it found room later, at most.
    most: u64,
    reached: Vec<i32>,
    uneven: bool,
}

/// Blocks of a kernel that end together, by SM.
#[derive(Debug, Default)]
struct Cohort {
    live: usize,
    count: u64,
    end: Ps,
    on: Vec<i32>,
    /// Has been cut into parts.
    cut: bool,
}

/// SMs whose tenants may be on them together.
#[derive(Debug)]
pub(crate) struct Machine {
    floor: Floor,
    /// SMs that a kernel may use, in tie order: 1 or 0; `None` for all.
    sets: Vec<Option<Vec<i32>>>,
    lives: Vec<Option<Live>>,
    idle_lives: Vec<usize>,
    cohorts: Vec<Cohort>,
    idle_cohorts: Vec<usize>,
    /// (end, cohort): of a cohort only the entry with its present end counts.
    events: BinaryHeap<Reverse<(Ps, usize)>>,
    /// Kernels with unplaced blocks, oldest first.
    waiting: Vec<usize>,
    /// Kernels in flight.
    flying: Vec<usize>,
    warps: Vec<i32>,
    tenants: Vec<Held>,
    since: Ps,
    blocked: Vec<u32>,
    done: Vec<Reached>,
    /// Buffers of kernels that have ended.
    spare: Vec<Vec<i32>>,
}

impl Machine {
    pub(crate) fn new(floor: Floor) -> Self {
        let n = floor.sms();
        Self {
            floor,
            sets: vec![None],
            lives: Vec::new(),
            idle_lives: Vec::new(),
            cohorts: Vec::new(),
            idle_cohorts: Vec::new(),
            events: BinaryHeap::new(),
            waiting: Vec::new(),
            flying: Vec::new(),
            warps: vec![0; n],
            tenants: Vec::new(),
            since: Ps::MIN,
            blocked: Vec::new(),
            done: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// A further tenant; its index.
    pub(crate) fn add_tenant(&mut self) -> usize {
        self.tenants.push(Held { blocks: vec![0; self.floor.sms()], ..Held::default() });
        self.tenants.len() - 1
    }

    /// A further set of SMs (1 or 0 in tie order); its index. 0 is all SMs.
    pub(crate) fn add_set(&mut self, set: Vec<i32>) -> usize {
        self.sets.push(Some(set));
        self.sets.len() - 1
    }

    /// SMs of a set, in tie order; `None` for all.
    pub(crate) fn set(&self, set: usize) -> Option<&[i32]> {
        self.sets.get(set).and_then(|s| s.as_deref())
    }

    /// Kernels are in flight.
    pub(crate) fn busy(&self) -> bool {
        !self.flying.is_empty()
    }

    /// Kernels that have ended since the last call.
    pub(crate) fn take_done(&mut self) -> Vec<Reached> {
        std::mem::take(&mut self.done)
    }

    /// When something will change by itself.
    pub(crate) fn next(&self) -> Option<Ps> {
        self.events.peek().map(|e| e.0 .0)
    }

    /// Reports what stood there since the last change until now.
    pub(crate) fn settle(&mut self, now: Ps, meter: &mut dyn Meter) {
        if self.since < now {
            if !self.flying.is_empty() {
                meter.stretch(self.since, now, &Standing { warps: &self.warps, tenants: &self.tenants });
            }
            self.since = now;
        }
    }

    /// Lets blocks end, and others take their room, until `to`.
    pub(crate) fn advance(&mut self, to: Ps, meter: &mut dyn Meter) {
        while let Some(now) = self.next().filter(|t| *t <= to) {
            let mut room = false;
            while let Some(Reverse((time, id))) = self.events.peek().copied() {
                if time > now {
                    break;
                }
                self.events.pop();
                if self.cohorts.get(id).is_none_or(|c| c.end != time || c.live == usize::MAX) {
                    continue;
                }
                // Where blocks of the same kernel take the places at once, what stands there stays the same: the stretch
                // goes on.
                if self.goes_on(id, now) {
                    room |= !self.next_wave(id, now, to);
                } else {
                    self.settle(now, meter);
                    self.remove(id, now);
                    room = true;
                }
            }
            if room {
                self.settle(now, meter);
                self.dispatch(now);
            }
        }
    }

    /// A kernel starts.
    pub(crate) fn start(&mut self, kernel: Forced, meter: &mut dyn Meter) {
        let now = kernel.start;
        self.advance(now, meter);
        self.settle(now, meter);
        // A kernel begins when all blocks of those before it in its queue have been placed, and there is room.
        if self.before(&kernel).next().is_some() || self.room(&kernel) == 0 {
            self.hasten(now, meter);
            let before: Vec<usize> = self.before(&kernel).collect();
            for id in before {
                self.placed_all(id, now);
            }
            while self.room(&kernel) == 0 && self.thin_next(now) {
                self.advance(now, meter);
            }
        }
        let room = self.room(&kernel);
        let placed = room.min(kernel.blocks);
        let block = self.block_time(&kernel, placed);
        let (unplaced, end) = (kernel.blocks, kernel.end);
        let mut reached = self.spare.pop().unwrap_or_else(|| vec![0; self.warps.len()]);
        reached.fill(0);
        let live =
            Live { kernel, unplaced, in_flight: 0, cohorts: 0, block, most: 0, reached, uneven: false };
        let id = match self.idle_lives.pop() {
            Some(id) => id,
            None => {
                self.lives.push(None);
                self.lives.len() - 1
            }
        };
        if let Some(slot) = self.lives.get_mut(id) {
            *slot = Some(live);
        }
        self.flying.push(id);
        if placed > 0 {
            self.put(id, placed, now);
        } else {
            // The trace says that it started: one block, wherever it is tightest least.
            self.force(id, now, end);
        }
        if self.live(id).is_some_and(|l| l.unplaced > 0) {
            self.waiting.push(id);
        }
    }

    fn live(&self, id: usize) -> Option<&Live> {
        self.lives.get(id).and_then(Option::as_ref)
    }

    /// Blocks of this kernel that would find room now; the floor remembers where.
    fn room(&mut self, kernel: &Forced) -> u64 {
        let set = self.sets.get(kernel.set).and_then(|s| s.as_deref());
        self.floor.room(&kernel.ask, set)
    }

    /// How long a block takes, if all of the kernel's blocks are to be done at its end, and it gets the room that
    /// others leave when they end.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // blocks and times stay below 2^53
    fn block_time(&self, kernel: &Forced, placed: u64) -> Ps {
        let whole = (kernel.end - kernel.start).max(1);
        if placed >= kernel.blocks {
            return whole;
        }
        let all = self
            .sets
            .get(kernel.set)
            .and_then(Option::as_ref)
            .map_or(self.floor.sms() as u64, |set| set.iter().map(|s| u64::from(*s > 0)).sum());
        let capacity = all * u64::from(kernel.ask.per_sm);
        let taken = capacity.saturating_sub(placed);
        if taken == 0 {
            let waves = Ps::try_from(kernel.blocks.div_ceil(placed.max(1))).unwrap_or(Ps::MAX);
            return (whole / waves).max(1);
        }
        // (blocks, from when on): the room now, and what others leave when blocks of theirs end: all of them where none
        // waits to take the place, else only at their kernel's end.
        let mut groups: Vec<(f64, f64)> = vec![(placed as f64, 0.0)];
        let mut total = 0.0;
        for cohort in &self.cohorts {
            let Some(other) = self.live(cohort.live) else { continue };
            let end = if other.unplaced > 0 { other.kernel.end } else { cohort.end };
            let weight = cohort.count as f64 * f64::from(other.kernel.ask.warps.max(1));
            total += weight;
            groups.push((weight, (end - kernel.start).max(0) as f64));
        }
        for group in groups.iter_mut().skip(1) {
            group.0 *= taken as f64 / total.max(1.0);
        }
        groups.retain(|g| g.1 < whole as f64);
        let wanted = kernel.blocks as f64 * (1.0 - 1e-9);
        let length = whole as f64;
        let held: f64 = groups.iter().map(|g| g.0 * (length - g.1)).sum();
        let mut block = (held / wanted).min(length);
        for _ in 0..64 {
            let waves = |g: &(f64, f64)| ((length - g.1) / block * (1.0 + 1e-12)).floor();
            let done: f64 = groups.iter().map(|g| g.0 * waves(g)).sum();
            if done >= wanted {
                break;
            }
            // The next shorter time with which one of the groups gets in a wave more.
            block = groups.iter().map(|g| (length - g.1) / (waves(g) + 1.0)).fold(0.0, f64::max);
        }
        (block as Ps).max(1)
    }

    /// Starts `count` blocks of a kernel in the room that was last looked at for it.
    fn put(&mut self, id: usize, count: u64, now: Ps) {
        let slot = self.idle_cohorts.pop().unwrap_or_else(|| {
            self.cohorts.push(Cohort { on: vec![0; self.warps.len()], ..Cohort::default() });
            self.cohorts.len() - 1
        });
        let (Some(cohort), Some(Some(live))) = (self.cohorts.get_mut(slot), self.lives.get_mut(id)) else {
            return;
        };
        self.floor.choose(count, &mut cohort.on);
        self.floor.take(&live.kernel.ask, &cohort.on);
        live.unplaced -= count.min(live.unplaced);
        live.in_flight += count;
        live.cohorts += 1;
        live.most = live.most.max(live.in_flight);
        for (reached, on) in live.reached.iter_mut().zip(&cohort.on) {
            *reached |= *on;
        }
        let last = live.unplaced == 0;
        cohort.live = id;
        cohort.count = count;
        cohort.cut = false;
        cohort.end = if last { live.kernel.end } else { now.saturating_add(live.block).min(live.kernel.end) };
        let (end, crowded) = (cohort.end, live.cohorts > PHASES && !last);
        let (warps, tenant) = (live.kernel.ask.warps, live.kernel.tenant);
        stand(&mut self.warps, self.tenants.get_mut(tenant), &cohort.on, count, warps);
        if !(crowded && self.merge(slot, id, end)) {
            self.events.push(Reverse((end, slot)));
        }
    }

    /// A kernel whose waves are out of step in many ways would cost an event for each: its new blocks end with those
    /// whose end is nearest to theirs.
    fn merge(&mut self, slot: usize, id: usize, end: Ps) -> bool {
        let own = self.cohorts.iter().enumerate().filter(|(at, c)| *at != slot && c.live == id);
        let Some(into) = own.min_by_key(|(_, c)| (c.end - end).abs()).map(|(at, _)| at) else { return false };
        let Some(cohort) = self.cohorts.get_mut(slot) else { return false };
        let on = std::mem::take(&mut cohort.on);
        let count = cohort.count;
        cohort.live = usize::MAX;
        if let Some(target) = self.cohorts.get_mut(into) {
            target.count += count;
            for (there, more) in target.on.iter_mut().zip(&on) {
                *there += more;
            }
        }
        if let Some(cohort) = self.cohorts.get_mut(slot) {
            cohort.on = on;
        }
        self.idle_cohorts.push(slot);
        if let Some(Some(live)) = self.lives.get_mut(id) {
            live.cohorts -= 1;
        }
        true
    }

    /// One block of a kernel that must have begun although nothing has room.
    fn force(&mut self, id: usize, now: Ps, end: Ps) {
        let Some(Some(live)) = self.lives.get_mut(id) else { return };
        live.uneven = true;
        if live.block >= end.saturating_sub(now) {
            live.block = (end.saturating_sub(now) / 2).max(1);
        }
        let set = self.sets.get(live.kernel.set).and_then(|s| s.as_deref());
        self.floor.least_full(set);
        self.put(id, 1, now);
    }

    /// Takes a cohort's blocks away.
    fn remove(&mut self, slot: usize, now: Ps) {
        let Some(cohort) = self.cohorts.get_mut(slot) else { return };
        let Some(Some(live)) = self.lives.get_mut(cohort.live) else { return };
        self.floor.give(&live.kernel.ask, &cohort.on);
        live.in_flight -= cohort.count.min(live.in_flight);
        live.cohorts -= 1;
        let (warps, tenant) = (live.kernel.ask.warps, live.kernel.tenant);
        unstand(&mut self.warps, self.tenants.get_mut(tenant), &cohort.on, cohort.count, warps);
        let id = cohort.live;
        cohort.live = usize::MAX;
        self.idle_cohorts.push(slot);
        let Some(Some(live)) = self.lives.get(id) else { return };
        if live.in_flight == 0 && (live.unplaced == 0 || now >= live.kernel.end) {
            self.end(id);
        }
    }

    #[allow(clippy::cast_precision_loss)] // blocks stay far below 2^53
    fn end(&mut self, id: usize) {
        let Some(live) = self.lives.get_mut(id).and_then(Option::take) else { return };
        self.done.push(Reached {
            row: live.kernel.row,
            sms: u32::try_from(live.reached.iter().filter(|r| **r > 0).count()).unwrap_or(u32::MAX),
            waves: live.kernel.blocks as f64 / live.most.max(1) as f64,
            uneven: live.uneven || live.unplaced > 0,
        });
        self.spare.push(live.reached);
        self.idle_lives.push(id);
        self.waiting.retain(|w| *w != id);
        self.flying.retain(|w| *w != id);
    }

    /// As many blocks of the same kernel take the places of a cohort that ends.
    fn goes_on(&self, slot: usize, now: Ps) -> bool {
        let Some(cohort) = self.cohorts.get(slot) else { return false };
        self.waiting.first() == Some(&cohort.live)
            && self.live(cohort.live).is_some_and(|l| l.unplaced >= cohort.count && now < l.kernel.end)
    }

    /// The next wave takes the places of a cohort. True when there are further ones to come.
    fn next_wave(&mut self, slot: usize, now: Ps, to: Ps) -> bool {
        let until = self.next().map_or(to, |next| next.min(to));
        let Some(cohort) = self.cohorts.get_mut(slot) else { return true };
        let id = cohort.live;
        let Some(Some(live)) = self.lives.get_mut(id) else { return true };
        // Equal waves change nothing until something else happens: all of them at once.
        let quiet = u64::try_from(until.saturating_sub(now).max(0) / live.block).unwrap_or(0);
        let waves = (live.unplaced / cohort.count).min(quiet + 1);
        live.unplaced -= waves * cohort.count;
        let length = live.block.saturating_mul(Ps::try_from(waves).unwrap_or(Ps::MAX));
        cohort.end = now.saturating_add(length).min(live.kernel.end);
        let all = live.unplaced == 0;
        if all {
            cohort.end = live.kernel.end;
        }
        self.events.push(Reverse((cohort.end, slot)));
        if all {
            self.waiting.retain(|w| *w != id);
        } else if live.cohorts > 1 && live.unplaced / live.in_flight.max(1) >= FEW_WAVES {
            self.skip_waves(id, now, to);
        }
        // Behind its last block others may look for room.
        !all
    }

    /// The waves of a kernel whose blocks are out of step, too, change nothing until something else happens: whole
    /// rounds of all of its cohorts at once.
    fn skip_waves(&mut self, id: usize, now: Ps, to: Ps) {
        let Some((block, unplaced, in_flight, end)) =
            self.live(id).map(|l| (l.block, l.unplaced, l.in_flight.max(1), l.kernel.end))
        else {
            return;
        };
        let mut until = to.min(end);
        for cohort in self.cohorts.iter().filter(|c| c.live != usize::MAX) {
            if cohort.live != id {
                until = until.min(cohort.end);
            } else if cohort.end > now.saturating_add(block) {
                return;
            }
        }
        let rounds = (until.saturating_sub(now) / block).saturating_sub(1).max(0);
        let rounds = u64::try_from(rounds).unwrap_or(0).min(unplaced / in_flight - 1);
        if rounds == 0 {
            return;
        }
        let later = block.saturating_mul(Ps::try_from(rounds).unwrap_or(Ps::MAX));
        for (slot, cohort) in self.cohorts.iter_mut().enumerate().filter(|(_, c)| c.live == id) {
            cohort.end = cohort.end.saturating_add(later);
            self.events.push(Reverse((cohort.end, slot)));
        }
        if let Some(Some(live)) = self.lives.get_mut(id) {
            live.unplaced -= rounds * in_flight;
        }
    }

    /// Places blocks of those that wait, oldest first, in whatever room there is.
    fn dispatch(&mut self, now: Ps) {
        self.blocked.clear();
        let mut at = 0;
        while let Some(id) = self.waiting.get(at).copied() {
            let Some(Some(live)) = self.lives.get(id) else {
                self.waiting.remove(at);
                continue;
            };
            if live.kernel.end <= now {
                // Blocks that the model could not place in time.
                let idle = live.in_flight == 0;
                self.waiting.remove(at);
                if idle {
                    self.end(id);
                }
                continue;
            }
            if self.blocked.contains(&live.kernel.queue) {
                at += 1;
                continue;
            }
            let (queue, unplaced, set) = (live.kernel.queue, live.unplaced, live.kernel.set);
            let set = self.sets.get(set).and_then(|s| s.as_deref());
            let room = self.floor.room(&live.kernel.ask, set);
            let count = room.min(unplaced);
            if count > 0 {
                self.put(id, count, now);
            }
            if count == unplaced {
                self.waiting.remove(at);
            } else {
                self.blocked.push(queue);
                at += 1;
            }
        }
    }

    /// Kernels of the same queue that have blocks to place.
    fn before<'a>(&'a self, kernel: &Forced) -> impl Iterator<Item = usize> + 'a {
        let queue = kernel.queue;
        self.waiting.iter().copied().filter(move |id| self.live(*id).is_some_and(|l| l.kernel.queue == queue))
    }

    /// Something begins now that by the model cannot before others end. If they would within what times are exact to,
    /// they end now.
    fn hasten(&mut self, now: Ps, meter: &mut dyn Meter) {
        for slot in 0..self.cohorts.len() {
            let Some(cohort) = self.cohorts.get_mut(slot) else { continue };
            let Some(Some(live)) = self.lives.get(cohort.live) else { continue };
            if cohort.end > now && cohort.end - now <= inexact(live.block) {
                cohort.end = now;
                self.events.push(Reverse((now, slot)));
            }
        }
        self.advance(now, meter);
    }

    /// All blocks of this kernel have been placed, although by the model they have not: those that are on the SMs now
    /// are its last, and the newest of them end with it.
    fn placed_all(&mut self, id: usize, now: Ps) {
        let Some(Some(live)) = self.lives.get_mut(id) else { return };
        let end = live.kernel.end;
        live.uneven = true;
        live.unplaced = 0;
        let idle = live.in_flight == 0;
        self.waiting.retain(|w| *w != id);
        if idle {
            self.end(id);
            return;
        }
        let own = |c: &&mut Cohort| c.live == id;
        let newest = self.cohorts.iter_mut().filter(own).map(|c| c.end).max().unwrap_or(end);
        for (slot, cohort) in self.cohorts.iter_mut().enumerate().filter(|(_, c)| c.live == id) {
            cohort.end = cohort.end.saturating_add(end - newest).clamp(now, end);
            self.events.push(Reverse((cohort.end, slot)));
        }
    }

    /// There must be room now: the blocks that would end next end one by one from now on, later ones as much after
    /// their time as the first are before it. False when there are none left.
    fn thin_next(&mut self, now: Ps) -> bool {
        let uncut = |c: &&(usize, &Cohort)| c.1.live != usize::MAX && c.1.end > now && !c.1.cut;
        let next =
            self.cohorts.iter().enumerate().filter(|c| uncut(&c)).min_by_key(|(slot, c)| (c.end, *slot));
        let Some(slot) = next.map(|n| n.0) else { return false };
        let Some(cohort) = self.cohorts.get_mut(slot) else { return false };
        let (id, total, end) = (cohort.live, cohort.count, cohort.end);
        let Some(Some(live)) = self.lives.get_mut(id) else { return false };
        live.uneven = true;
        // Out of step in too many ways to follow each: all of them make room.
        if live.cohorts >= 2 * PHASES {
            cohort.end = now;
            cohort.cut = true;
            self.events.push(Reverse((now, slot)));
            return true;
        }
        // While blocks wait to take these places the kernel goes on as it is: one part makes room.
        let few = live.unplaced > 0 || live.cohorts >= PHASES;
        let last = if few { end } else { end.saturating_add(end - now).min(live.kernel.end).max(end) };
        let on = std::mem::take(&mut cohort.on);
        // Every n-th block goes to the n-th part.
        let mut parts: Vec<(u64, Vec<i32>)> =
            (0..if few { 2 } else { THINNED }).map(|_| (0, vec![0; on.len()])).collect();
        let mut part = 0_usize;
        for (sm, blocks) in on.iter().enumerate() {
            for _ in 0..*blocks {
                if let Some((count, there)) = parts.get_mut(if few { part.min(1) } else { part }) {
                    *count += 1;
                    if let Some(n) = there.get_mut(sm) {
                        *n += 1;
                    }
                }
                part = (part + 1) % THINNED;
            }
        }
        let made = parts.iter().filter(|p| p.0 > 0).count();
        live.cohorts += u32::try_from(made.saturating_sub(1)).unwrap_or(0);
        let mut first = Some(slot);
        let steps = Ps::try_from(made.max(2) - 1).unwrap_or(1);
        for (index, (count, there)) in (0_i64..).zip(parts) {
            if count == 0 {
                continue;
            }
            let when = if total == 1 { end } else { now + (last - now) / steps * index };
            let when = if index == steps { last } else { when };
            let target = first.take().or_else(|| self.idle_cohorts.pop()).unwrap_or_else(|| {
                self.cohorts.push(Cohort::default());
                self.cohorts.len() - 1
            });
            if let Some(cohort) = self.cohorts.get_mut(target) {
                *cohort = Cohort { live: id, count, end: when, on: there, cut: true };
                self.events.push(Reverse((when, target)));
            }
        }
        true
    }
}

/// How far the end of a block may be from where its kernel's other blocks put it: as far as times are exact, but never
/// by much of a block.
fn inexact(block: Ps) -> Ps {
    (block / 10).min(NOISE).max(block / INEXACT)
}

/// Blocks begin on SMs.
fn stand(warps: &mut [i32], tenant: Option<&mut Held>, on: &[i32], count: u64, each: i32) {
    for (warps, on) in warps.iter_mut().zip(on) {
        *warps += on * each;
    }
    if let Some(held) = tenant {
        held.warps += i64::try_from(count).unwrap_or(0) * i64::from(each);
        let mut sms = 0;
        for (blocks, on) in held.blocks.iter_mut().zip(on) {
            *blocks += on;
            sms += u32::from(*blocks > 0);
        }
        held.sms = sms;
    }
}

/// Blocks end on SMs.
fn unstand(warps: &mut [i32], tenant: Option<&mut Held>, on: &[i32], count: u64, each: i32) {
    for (warps, on) in warps.iter_mut().zip(on) {
        *warps -= on * each;
    }
    if let Some(held) = tenant {
        held.warps -= i64::try_from(count).unwrap_or(0) * i64::from(each);
        let mut sms = 0;
        for (blocks, on) in held.blocks.iter_mut().zip(on) {
            *blocks -= on;
            sms += u32::from(*blocks > 0);
        }
        held.sms = sms;
    }
}
