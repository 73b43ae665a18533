//! Model which SMs the blocks of kernels ran on, given the observed start and end of each kernel.
//!
//! The block scheduler follows published measurements and is constrained by the observed times:
//!
//! ```text
//!   SM 0 |A A|A A|A  |B B|      A: 9 blocks, two per SM, two SMs: waves of 4, a partial last wave (SM 0, tie order)
//!   SM 1 |A A|A A|  B|B  |      B: starts in A's partial last wave, on SM 1
//! ```
//!
//! - A block goes to the SM that could take the most further blocks of its kernel; ties follow the device's tie order.
//! - Of a queue (a context's kernels) only the oldest kernel with unplaced blocks is considered (leftover policy);
//!   queues are served by the age of that kernel.
//! - All blocks of a kernel take equally long: so long that the last one ends when the kernel did, given the capacity
//!   that kernels with known ends leave it. A kernel's last blocks end at its observed end.
//! - Observed starts override the model. If predecessors in the same queue still have unplaced blocks, they are treated
//!   as placed. Older kernels of other queues would have taken the capacity: the blocks that the model still has of
//!   them come later. If no SM has capacity, an eighth of the blocks that would end next end at once; where these are
//!   their kernel's last, the others end one by one around their time. Kernels whose blocks cannot be equal because of
//!   that are marked uneven.
//!
//! Cost follows kernels and waves: blocks placed together are one cohort, equal waves are one step, and every step
//! sweeps the SMs. The waves of a short kernel are not followed if it began without capacity, or next to a kernel that
//! did; see [`Machine::new`] for what counts as short. It keeps its blocks until it ends.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use crate::base::picoseconds::Ps;
use crate::occupancy::sm_array::{BlockFootprint, PerSm, SmArray};

/// One in so many blocks makes room for what started although there was none.
const THINNED: u32 = 8;
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
    pub ask: BlockFootprint,
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
    fn stretch(&mut self, from: Ps, to: Ps, sms: &ResidentBlocks<'_>);
}

/// What stands on the SMs, in tie order.
#[derive(Debug)]
pub(crate) struct ResidentBlocks<'a> {
    /// Resident warps of each SM.
    pub warps: &'a [PerSm],
    /// There are some on every SM.
    pub everywhere: bool,
    /// Of each tenant of the machine.
    pub tenants: &'a [TenantBlocks],
    /// Those that hold warps.
    pub holding: &'a BTreeSet<usize>,
}

/// What a tenant holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct TenantBlocks {
    pub warps: i64,
    /// SMs with a block of it.
    pub sms: u32,
    blocks: Vec<PerSm>,
    /// `sms` is not that of these blocks any more.
    changed: bool,
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
    reached: Vec<PerSm>,
    uneven: bool,
    /// Its waves are not followed.
    holds: bool,
}

/// Blocks of a kernel that end together, by SM.
#[derive(Debug, Default)]
struct Cohort {
    live: usize,
    count: u64,
    end: Ps,
    on: Vec<PerSm>,
    /// Has been cut into parts.
    cut: bool,
}

/// SMs whose tenants may be on them together.
#[derive(Debug)]
pub(crate) struct Machine {
    floor: SmArray,
    /// SMs that a kernel may use, in tie order: 1 or 0; `None` for all.
    sets: Vec<Option<Vec<PerSm>>>,
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
    /// Where there is no block.
    nowhere: Vec<PerSm>,
    /// When last settled.
    warps: Vec<PerSm>,
    tenants: Vec<TenantBlocks>,
    /// Those that hold warps.
    holding: BTreeSet<usize>,
    since: Ps,
    blocked: Vec<u32>,
    done: Vec<Reached>,
    /// Buffers of kernels that have ended.
    spare: Vec<Vec<PerSm>>,
    short: Ps,
}

impl Machine {
    /// SMs with `floor` to give. Waves of kernels that take less than `short` are not followed where equal blocks contradict
    /// the starts.
    pub(crate) fn new(floor: SmArray, short: Ps) -> Self {
        Self {
            short,
            nowhere: floor.nowhere(),
            warps: floor.nowhere(),
            floor,
            sets: vec![None],
            lives: Vec::new(),
            idle_lives: Vec::new(),
            cohorts: Vec::new(),
            idle_cohorts: Vec::new(),
            events: BinaryHeap::new(),
            waiting: Vec::new(),
            flying: Vec::new(),
            tenants: Vec::new(),
            holding: BTreeSet::new(),
            since: Ps::MIN,
            blocked: Vec::new(),
            done: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// A further tenant; its index.
    pub(crate) fn add_tenant(&mut self) -> usize {
        self.tenants.push(TenantBlocks { blocks: self.nowhere.clone(), ..TenantBlocks::default() });
        self.tenants.len() - 1
    }

    /// A further set of SMs (1 or 0 in tie order); its index. 0 is all SMs.
    pub(crate) fn add_set(&mut self, mut set: Vec<PerSm>) -> usize {
        set.resize(self.nowhere.len(), 0);
        self.sets.push(Some(set));
        self.sets.len() - 1
    }

    /// SMs of a set, in tie order; `None` for all.
    pub(crate) fn set(&self, set: usize) -> Option<&[PerSm]> {
        self.sets.get(set).and_then(|s| s.as_deref())
    }

    /// Kernels are in flight.
    pub(crate) fn busy(&self) -> bool {
        !self.flying.is_empty()
    }

    /// Kernels in flight at a time, what has ended before it taken away, if they may be as many as `most`.
    pub(crate) fn crowded(&mut self, now: Ps, most: usize, meter: &mut dyn Meter) -> bool {
        if self.flying.len() >= most {
            self.advance(now.saturating_sub(1), meter);
            self.clear(now, meter);
        }
        self.flying.len() >= most
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
                let everywhere = self.floor.warps(&mut self.warps);
                for tenant in &self.holding {
                    let Some(held) = self.tenants.get_mut(*tenant).filter(|held| held.changed) else {
                        continue;
                    };
                    held.sms = occupied(&held.blocks);
                    held.changed = false;
                }
                let (warps, tenants, holding) = (&self.warps, &self.tenants, &self.holding);
                meter.stretch(self.since, now, &ResidentBlocks { warps, everywhere, tenants, holding });
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
        // Blocks that end at this instant make room for it, too: who gets that is decided below.
        self.advance(now.saturating_sub(1), meter);
        let mut freed = self.clear(now, meter);
        self.settle(now, meter);
        let behind = self.waiting.iter().any(|id| self.goes_before(*id, &kernel));
        let mut room = if behind { 0 } else { self.room(&kernel) };
        if room == 0 || (freed && !self.waiting.is_empty()) {
            freed |= room == 0 && self.hasten(now, meter);
            self.make_way(&kernel, now, freed);
            room = self.room(&kernel);
        }
        let holds = kernel.end - now < self.short && (room == 0 || self.contradicted());
        while room == 0 && self.thin_next(now, &kernel.ask) {
            self.clear(now, meter);
            room = self.room(&kernel);
        }
        let placed = room.min(kernel.blocks);
        // Those that are still there although they should not be come after it: what is left of them fills what it leaves.
        let turn = self.waiting.iter().position(|id| self.goes_before(*id, &kernel));
        let turn = turn.unwrap_or(self.waiting.len());
        for id in self.waiting.iter().skip(turn) {
            if let Some(Some(live)) = self.lives.get_mut(*id) {
                live.uneven = true;
            }
        }
        let block = if holds { kernel.end - now } else { self.block_time(&kernel, placed) };
        let (unplaced, end) = (kernel.blocks, kernel.end);
        let mut reached = self.spare.pop().unwrap_or_else(|| self.nowhere.clone());
        reached.fill(0);
        let live = Live {
            kernel,
            unplaced,
            in_flight: 0,
            cohorts: 0,
            block,
            most: 0,
            reached,
            uneven: false,
            holds,
        };
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
            self.waiting.insert(turn, id);
        }
        // What it left comes to those behind it.
        self.dispatch(now);
    }

    /// What is in flight is not as equal blocks would be.
    fn contradicted(&self) -> bool {
        self.flying.iter().any(|id| self.live(*id).is_some_and(|live| live.uneven || live.holds))
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
        let slot = self.spare_slot();
        let (Some(cohort), Some(Some(live))) = (self.cohorts.get_mut(slot), self.lives.get_mut(id)) else {
            return;
        };
        self.floor.place(&live.kernel.ask, count, &mut cohort.on);
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
        let crowded = if live.holds { live.cohorts > 1 } else { live.cohorts > PHASES && !last };
        let end = cohort.end;
        let (warps, tenant) = (live.kernel.ask.warps, live.kernel.tenant);
        if stand(self.tenants.get_mut(tenant), &cohort.on, count, warps, 1) {
            self.holding.insert(tenant);
        }
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
            target.cut = false;
            for (there, more) in target.on.iter_mut().zip(&on) {
                *there = there.wrapping_add(*more);
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

    /// One block of a kernel that must have begun although nothing has room. False where so many have that no more can.
    fn force(&mut self, id: usize, now: Ps, end: Ps) -> bool {
        let Some(Some(live)) = self.lives.get_mut(id) else { return false };
        live.uneven = true;
        if live.block >= end.saturating_sub(now) {
            live.block = (end.saturating_sub(now) / 2).max(1);
        }
        let set = self.sets.get(live.kernel.set).and_then(|s| s.as_deref());
        if !self.floor.least_full(&live.kernel.ask, set) {
            return false;
        }
        self.put(id, 1, now);
        true
    }

    /// Takes a cohort's blocks away.
    fn remove(&mut self, slot: usize, now: Ps) {
        let Some(cohort) = self.cohorts.get_mut(slot) else { return };
        let Some(Some(live)) = self.lives.get_mut(cohort.live) else { return };
        self.floor.give(&live.kernel.ask, &cohort.on);
        live.in_flight -= cohort.count.min(live.in_flight);
        live.cohorts -= 1;
        let (warps, tenant) = (live.kernel.ask.warps, live.kernel.tenant);
        if !stand(self.tenants.get_mut(tenant), &cohort.on, cohort.count, warps, -1) {
            self.holding.remove(&tenant);
        }
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
            sms: occupied(&live.reached),
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
        let waves = (live.unplaced / cohort.count.max(1)).min(quiet + 1);
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
            let Some(live) = self.lives.get(id).and_then(Option::as_ref).filter(|l| l.kernel.end > now)
            else {
                self.too_late(at, id);
                continue;
            };
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

    /// Takes away what ends until `now`; nothing is put in its place. True if there was anything.
    fn clear(&mut self, now: Ps, meter: &mut dyn Meter) -> bool {
        let mut any = false;
        while let Some(Reverse((time, slot))) = self.events.peek().copied().filter(|e| e.0 .0 <= now) {
            self.events.pop();
            if self.cohorts.get(slot).is_some_and(|c| c.end == time && c.live != usize::MAX) {
                self.settle(now, meter);
                self.remove(slot, now);
                any = true;
            }
        }
        any
    }

    /// Something begins now that by the model cannot before others end. If they would within what times are exact to,
    /// they end now. True if any did.
    fn hasten(&mut self, now: Ps, meter: &mut dyn Meter) -> bool {
        for (slot, cohort) in self.cohorts.iter_mut().enumerate() {
            let Some(Some(live)) = self.lives.get(cohort.live) else { continue };
            if cohort.end > now && cohort.end - now <= inexact(live.block) {
                cohort.end = now;
                self.events.push(Reverse((now, slot)));
            }
        }
        self.clear(now, meter)
    }

    /// Whether this one's blocks should all have been placed when a kernel begins: it is before it in its queue, or is
    /// older and fits wherever the other does.
    fn goes_before(&self, id: usize, kernel: &Forced) -> bool {
        self.live(id).is_some_and(|live| {
            let own = &live.kernel;
            let reaches = own.set == 0 || own.set == kernel.set;
            own.queue == kernel.queue || (reaches && own.ask.fits_where(&kernel.ask))
        })
    }

    /// Places what comes before a kernel that begins now. How many blocks came last of those that by the model would
    /// take all the room, or more, nobody knows: between none and that. Half of it is taken. `freed`: there may be room.
    fn make_way(&mut self, kernel: &Forced, now: Ps, freed: bool) {
        self.blocked.clear();
        let mut at = 0;
        while let Some(id) = self.waiting.get(at).copied() {
            let before = self.goes_before(id, kernel);
            let Some(live) = self.lives.get(id).and_then(Option::as_ref).filter(|l| l.kernel.end > now)
            else {
                self.too_late(at, id);
                continue;
            };
            let (queue, unplaced, idle) = (live.kernel.queue, live.unplaced, live.in_flight == 0);
            if queue != kernel.queue && (!freed || self.blocked.contains(&queue)) {
                at += 1;
                continue;
            }
            let set = self.sets.get(live.kernel.set).and_then(|s| s.as_deref());
            let room = if freed { self.floor.room(&live.kernel.ask, set) } else { 0 };
            let count = match () {
                () if unplaced < room || !before => unplaced.min(room),
                () if idle => room.div_ceil(2),
                () => room / 2,
            };
            if count > 0 {
                self.put(id, count, now);
            }
            if count == unplaced {
                self.waiting.remove(at);
            } else if queue == kernel.queue {
                self.placed_all(id, now);
            } else {
                self.blocked.push(queue);
                at += 1;
            }
        }
    }

    /// A kernel that waits has ended: there are blocks that the model could not place in time.
    fn too_late(&mut self, at: usize, id: usize) {
        self.waiting.remove(at);
        if self.live(id).is_some_and(|live| live.in_flight == 0) {
            self.end(id);
        }
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
            // It has not ended: one is there.
            if !self.force(id, now, end) {
                self.end(id);
            }
            return;
        }
        let own = |c: &&mut Cohort| c.live == id;
        let newest = self.cohorts.iter_mut().filter(own).map(|c| c.end).max().unwrap_or(end);
        for (slot, cohort) in self.cohorts.iter_mut().enumerate().filter(|(_, c)| c.live == id) {
            cohort.end = cohort.end.saturating_add(end - newest).clamp(now, end);
            self.events.push(Reverse((cohort.end, slot)));
        }
    }

    /// There must be room now: of the blocks that would end next every n-th ends, or, where one of them makes no room
    /// for a block that asks for more, all on every n-th SM. If those are their kernel's last, the others end one by one
    /// from now on, the later ones as much after their time as the first are before it. False when there are none left.
    fn thin_next(&mut self, now: Ps, ask: &BlockFootprint) -> bool {
        let uncut = |c: &&(usize, &Cohort)| c.1.live != usize::MAX && c.1.end > now && !c.1.cut;
        let next =
            self.cohorts.iter().enumerate().filter(|c| uncut(&c)).min_by_key(|(slot, c)| (c.end, *slot));
        let Some(slot) = next.map(|n| n.0) else { return false };
        let Some(cohort) = self.cohorts.get_mut(slot) else { return false };
        let id = cohort.live;
        let Some(Some(live)) = self.lives.get_mut(id) else { return false };
        cohort.cut = true;
        let one_is_enough = ask.fits_where(&live.kernel.ask);
        let parts = if one_is_enough { cohort.count } else { u64::from(occupied(&cohort.on)) };
        if parts <= 1 {
            // It ends when its kernel does.
            return true;
        }
        live.uneven = true;
        let end = cohort.end;
        // Where blocks wait to take these places the kernel goes on as it is: one part makes room.
        let spread = !live.holds && live.unplaced == 0 && live.cohorts < PHASES;
        let made = if spread { u32::try_from(parts).unwrap_or(THINNED).min(THINNED) } else { 2 };
        let last = if spread { end.saturating_add(end - now).min(live.kernel.end).max(end) } else { end };
        let step = (last - now) / Ps::from(made - 1);
        live.cohorts += made - 1;
        // Out of step in too many ways to follow each: all of them make room.
        let all = live.cohorts > 2 * PHASES;
        // Blocks of the last part are what the others leave.
        let (mut on, mut gone) = (std::mem::take(&mut cohort.on), 0);
        let mut whole = self.spare.pop().unwrap_or_else(|| self.nowhere.clone());
        whole.copy_from_slice(&on);
        for part in 0..made - 1 {
            let target = self.spare_slot();
            let Some(cohort) = self.cohorts.get_mut(target) else { continue };
            let count = every_nth(&whole, &mut cohort.on, part, one_is_enough);
            for (left, taken) in on.iter_mut().zip(&cohort.on) {
                *left = left.wrapping_sub(*taken);
            }
            gone += count;
            let end = now + step * Ps::from(part);
            (cohort.live, cohort.count, cohort.end, cohort.cut) = (id, count, end, true);
            self.events.push(Reverse((end, target)));
        }
        self.spare.push(whole);
        let Some(cohort) = self.cohorts.get_mut(slot) else { return false };
        cohort.count -= gone.min(cohort.count);
        cohort.on = on;
        cohort.end = if all { now } else { last };
        self.events.push(Reverse((cohort.end, slot)));
        true
    }

    /// A cohort that nobody uses.
    fn spare_slot(&mut self) -> usize {
        self.idle_cohorts.pop().unwrap_or_else(|| {
            self.cohorts.push(Cohort { on: self.nowhere.clone(), live: usize::MAX, ..Cohort::default() });
            self.cohorts.len() - 1
        })
    }
}

/// Of `all` blocks every n-th, or those of every n-th SM that has any, from the one at `first` on; how many those are.
fn every_nth(all: &[PerSm], on: &mut [PerSm], first: u32, by_block: bool) -> u64 {
    const ONES: u64 = 0x0001_0001_0001_0001;
    // Four SMs at once, one in each 16 bits of a number: times four ones in a row is the sum of all up to each. Where it
    // gets over a multiple of n, one is taken.
    let (mut sum, mut count) = (u64::from(THINNED - 1 - first), 0_u64);
    for (on, all) in on.as_chunks_mut::<4>().0.iter_mut().zip(all.as_chunks::<4>().0) {
        let [a, b, c, d] = all.map(|blocks| u64::from(blocks.cast_unsigned()));
        let blocks = a | b << 16 | c << 32 | d << 48;
        let any = (blocks.wrapping_add(ONES * 0x7fff) >> 15) & ONES;
        let sums = if by_block { blocks } else { any }.wrapping_add(sum).wrapping_mul(ONES);
        let until = (sums >> THINNED.ilog2()) & (ONES * (0xffff >> THINNED.ilog2()));
        let nth = until.wrapping_sub(until << 16);
        let taken = if by_block { nth } else { blocks & nth.wrapping_mul(0xffff) };
        *on = [taken, taken >> 16, taken >> 32, taken >> 48].map(lowest);
        sum = (sums >> 48) % u64::from(THINNED);
        count = count.wrapping_add(taken.wrapping_mul(ONES) >> 48);
    }
    count
}

/// Blocks on one SM: the last 16 bits.
#[allow(clippy::cast_possible_truncation)]
fn lowest(blocks: u64) -> PerSm {
    (blocks as u16).cast_signed()
}

/// How far the end of a block may be from where its kernel's other blocks put it: as far as times are exact, but never
/// by much of a block.
fn inexact(block: Ps) -> Ps {
    (block / 10).min(NOISE).max(block / INEXACT)
}

/// How many SMs there are blocks on.
fn occupied(blocks: &[PerSm]) -> u32 {
    // As many SMs at once as 16 bits count.
    let some = |sms: &[PerSm]| sms.iter().fold(0_u16, |sum, on| sum.wrapping_add(u16::from(*on > 0)));
    blocks.chunks(1 << 15).map(|sms| u32::from(some(sms))).sum()
}

/// Blocks of `each` warps begin on SMs; -1 times that where they end. Sums wrap, as in [`SmArray`]. Returns whether the
/// tenant holds warps then.
fn stand(tenant: Option<&mut TenantBlocks>, on: &[PerSm], count: u64, each: i32, sign: PerSm) -> bool {
    let Some(held) = tenant else { return false };
    held.warps += i64::try_from(count).unwrap_or(0) * i64::from(each) * i64::from(sign);
    held.changed = true;
    for (blocks, on) in held.blocks.iter_mut().zip(on) {
        *blocks = blocks.wrapping_add(on.wrapping_mul(sign));
    }
    held.warps > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_eighth_block() {
        // Of SMs 3 to 5, behind an empty one and before another.
        let part = |[a, b, c]: [PerSm; 3], first, by_block| {
            let mut on = [9; 8];
            let n = every_nth(&[0, 0, 0, a, b, c, 0, 0], &mut on, first, by_block);
            assert_eq!([on[0], on[1], on[2], on[6], on[7]], [0; 5]);
            (n, [on[3], on[4], on[5]])
        };
        // Blocks 0 and 8 of 3 + 7; 1 and 9; 2.
        assert_eq!(
            [0, 1, 2].map(|first| part([3, 0, 7], first, true)),
            [(2, [1, 0, 1]), (2, [1, 0, 1]), (1, [1, 0, 0])]
        );
        // 0, 8 and 16 of 17; 7 and 15.
        assert_eq!([0, 7].map(|first| part([17, 0, 0], first, true)), [(3, [3, 0, 0]), (2, [2, 0, 0])]);
        // The first SM that has any; the second; there is no third.
        assert_eq!(
            [0, 1, 2].map(|first| part([0, 3, 7], first, false)),
            [(3, [0, 3, 0]), (7, [0, 0, 7]), (0, [0, 0, 0])]
        );
    }

    /// Stretches: from, until, warps of each tenant.
    struct Seen(Vec<(Ps, Ps, Vec<i64>)>);

    impl Meter for Seen {
        fn stretch(&mut self, from: Ps, to: Ps, sms: &ResidentBlocks<'_>) {
            self.0.push((from, to, sms.tenants.iter().map(|held| held.warps).collect()));
        }
    }

    #[test]
    fn a_kernel_is_not_ended_to_make_room() {
        // One SM of 64 warps. 8 blocks of 8 fill it until 100; a block of 16 of another client begins at 50 all the same,
        // which one block less makes no room for. That the first kernel ends at 100 is a fact, too: both are there until
        // then. What comes later finds an empty SM.
        let has = [64, 0, 0, 0];
        let mut machine = Machine::new(SmArray::new(has, 1), 0);
        for _ in 0..2 {
            machine.add_tenant();
        }
        let mut seen = Seen(Vec::new());
        for (tenant, start, end, blocks, warps) in
            [(0, 0, 100, 8, 8), (1, 50, 200, 1, 16), (0, 300, 400, 4, 8)]
        {
            let per_sm = u32::try_from(64 / warps).unwrap_or(0);
            let ask = BlockFootprint::new([warps, 0, 0, 0], has, per_sm, None);
            let queue = u32::from(tenant > 0);
            machine.start(Forced { row: 0, start, end, blocks, ask, tenant, queue, set: 0 }, &mut seen);
        }
        machine.advance(Ps::MAX, &mut seen);
        let expected = [(0, 50, 64, 0), (50, 100, 64, 16), (100, 200, 0, 16), (300, 400, 32, 0)];
        assert_eq!(seen.0, expected.map(|(from, to, a, b)| (from, to, vec![a, b])));
    }
}
