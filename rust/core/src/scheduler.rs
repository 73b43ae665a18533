//! In which order would this device place these kernels' blocks, and when would they end?
//!
//! One engine for two questions: with [`StartRule::Forced`] kernels start when a trace says they did (how full
//! were the SMs?), with [`StartRule::Free`] they start when their stream and the device let them (what if?).
//!
//! ```text
//!   slots  |AAAA|AAAA|AA  |            A: 10 blocks, 4 slots: 3 waves, the last one ragged
//!          |    |    |  BB|BB  |       B: 4 blocks behind it: two start where A's last wave leaves room,
//!                                         two when A has ended (leftover policy)
//! ```
//!
//! What it assumes, and what each assumption costs where it does not hold:
//!
//! - Kernels of a stream run one after the other; programmatic dependent launch would let them overlap, so time
//!   is overstated. Waits between streams are not known: they appear as think time of the waiting stream.
//! - Blocks are placed first come first served, all of a kernel's before the first of the next (head of line,
//!   leftover). Stream priorities let work past the queue: the high priority stream is modelled too slow.
//! - All blocks of a kernel take equally long: its time alone over its waves. Uneven blocks free room earlier for
//!   others, persistent kernels hold it to the end: a kernel behind them starts too late or too early, by one
//!   duration of the kernel at most.
//! - A block takes as long in company as alone. Shared caches, DRAM, L2 and issue slots are not in it: real
//!   neighbours are slower than modelled, in published cases several times so.
//! - The device is one pool of warps, registers, shared memory and block slots: no SM of its own for a block. What
//!   is left on each SM may be too small for a block though the sum is not, so kernels of different shape start
//!   too early by up to one wave of their predecessor.
//! - A kernel whose blocks cannot be known ([`Kernel::blocks`] `None`) takes the whole device. That overstates
//!   waiting.
//!
//! Cost follows kernels and waves: blocks that start together are one cohort, and the equal waves in the middle
//! of a large grid are skipped in one step.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::error::Result;
use crate::occupancy::Resources;
use crate::watch::Watch;

/// Internal time: picoseconds, so that a kernel divides into waves without a loss that shows. 106 days fit.
pub(crate) type Ps = i64;

pub(crate) fn ps(ns: i64) -> Ps {
    ns.saturating_mul(1000)
}

/// Who decides when a kernel starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartRule {
    /// The trace: [`Kernel::after_ns`] is its start. At least one block starts then, whether or not the model has
    /// room; the others where there is room.
    Forced,
    /// Stream order and room: [`Kernel::after_ns`] is the think time since the previous kernel of the stream (for
    /// the first: since zero).
    Free,
}

/// A kernel's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// How many.
    pub count: u64,
    /// How many the device holds at once when it is empty.
    pub at_once: u64,
    /// What one takes: warps, registers, shared memory in bytes, block slots.
    pub ask: Resources,
}

impl Blocks {
    fn waves(&self) -> u64 {
        self.count.div_ceil(self.at_once.max(1)).max(1)
    }
}

/// A kernel to place.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// See [`StartRule`].
    pub after_ns: i64,
    /// Its time alone on the device.
    pub work_ns: i64,
    /// Its blocks; `None` where they are not known.
    pub blocks: Option<Blocks>,
}

/// When a kernel held the device: first block's start to last block's end, in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    pub stream: usize,
    pub start: Ps,
    pub end: Ps,
}

/// Blocks of one kernel that were resident together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Stream, as numbered in the call.
    pub stream: usize,
    /// Kernel in its stream.
    pub kernel: usize,
    /// From, in nanoseconds, rounded down.
    pub start_ns: i64,
    /// Until.
    pub end_ns: i64,
    /// Blocks at once: in a run of equal waves those of one wave.
    pub blocks: u64,
}

/// A kernel that is in the queue or running.
#[derive(Debug)]
struct Live {
    stream: usize,
    kernel: usize,
    blocks: Blocks,
    unplaced: u64,
    in_flight: u64,
    block: Ps,
    work: Ps,
    started: Option<Ps>,
}

/// Blocks that end together: (end, live kernel, start, blocks).
type Cohort = Reverse<(Ps, usize, Ps, u64)>;

/// The block scheduler of one device.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    capacity: Resources,
    rule: StartRule,
}

/// What happens while the engine runs.
struct Run<'a> {
    engine: Engine,
    free: [i128; 4],
    live: Vec<Option<Live>>,
    unused: Vec<usize>,
    queue: VecDeque<usize>,
    cohorts: BinaryHeap<Cohort>,
    span: &'a mut dyn FnMut(Span),
}

impl Engine {
    /// A device that holds `per_sm` on each of its `sm_count` SMs: warps, registers, shared memory in bytes, block
    /// slots. A limit that is not known is zero, and no block may ask for it.
    #[must_use]
    pub fn new(per_sm: Resources, sm_count: u32, rule: StartRule) -> Self {
        Self { capacity: per_sm.map(|has| has.saturating_mul(u64::from(sm_count)).max(1)), rule }
    }

    /// The blocks of a launch of `count` blocks of which an SM holds `per_sm`, cut to what the engine has room for;
    /// `None` where that is nothing.
    #[must_use]
    pub fn blocks(&self, count: u64, at_once: u64, ask: Resources) -> Option<Blocks> {
        let room =
            self.capacity.iter().zip(&ask).filter(|(_, ask)| **ask > 0).map(|(has, ask)| has / ask).min();
        let at_once = at_once.min(room.unwrap_or(at_once));
        (count > 0 && at_once > 0).then_some(Blocks { count, at_once, ask })
    }

    /// What a kernel's blocks hold of each resource over its run, as picoseconds of the whole device; nothing where
    /// its blocks are not known. No order of blocks takes less time than the sum of this over all kernels.
    pub(crate) fn area(&self, kernel: &Kernel) -> [Ps; 4] {
        let Some(b) = kernel.blocks else { return [0; 4] };
        let block = u128::from(ps(kernel.work_ns).max(0).unsigned_abs() / b.waves());
        let mut area = [0; 4];
        for ((area, ask), has) in area.iter_mut().zip(&b.ask).zip(&self.capacity) {
            let held = u128::from(b.count).saturating_mul(block).saturating_mul(u128::from(*ask));
            *area = Ps::try_from(held / u128::from((*has).max(1))).unwrap_or(Ps::MAX);
        }
        area
    }

    /// Runs `streams` (each a list of kernels in order) and reports resident blocks to `span`. Returns when each
    /// kernel held the device, in the order in which they ended.
    ///
    /// # Errors
    /// [`crate::Error::Cancelled`].
    pub(crate) fn run(
        &self,
        streams: &[&[Kernel]],
        span: &mut dyn FnMut(Span),
        watch: &dyn Watch,
    ) -> Result<Vec<Ran>> {
        let total: usize = streams.iter().map(|s| s.len()).sum();
        let free = self.capacity.map(i128::from);
        let (live, unused) = (Vec::new(), Vec::new());
        let (queue, cohorts) = (VecDeque::new(), BinaryHeap::new());
        let mut run = Run { engine: *self, free, live, unused, queue, cohorts, span };
        let mut ran = Vec::with_capacity(total);
        // (time, stream, kernel): kernels that will be ready.
        let mut arrivals: BinaryHeap<Reverse<(Ps, usize, usize)>> = BinaryHeap::new();
        for (stream, kernels) in streams.iter().enumerate() {
            let ready = match self.rule {
                StartRule::Free => 1,
                StartRule::Forced => kernels.len(),
            };
            for (kernel, k) in kernels.iter().enumerate().take(ready) {
                arrivals.push(Reverse((ps(k.after_ns.max(0)), stream, kernel)));
            }
        }
        let mut entered = Vec::new();
        let mut steps = 0_u64;
        loop {
            if steps.is_multiple_of(4096) {
                watch.progress("block scheduler", ran.len() as u64, total as u64)?;
            }
            steps = steps.wrapping_add(1);
            let next_end = run.cohorts.peek().map(|c| c.0 .0);
            let next_arrival = arrivals.peek().map(|a| a.0 .0);
            let Some(now) = [next_end, next_arrival].into_iter().flatten().min() else { break };
            while let Some(done) = run.end_one(now) {
                ran.push(Ran { stream: done.0, start: done.2, end: done.3 });
                let next = done.1.saturating_add(1);
                let kernel = streams.get(done.0).and_then(|s| s.get(next));
                if let (StartRule::Free, Some(k)) = (self.rule, kernel) {
                    arrivals.push(Reverse((done.3.saturating_add(ps(k.after_ns.max(0))), done.0, next)));
                }
            }
            entered.clear();
            while let Some(Reverse((time, stream, kernel))) = arrivals.peek().copied() {
                if time > now {
                    break;
                }
                arrivals.pop();
                if let Some(k) = streams.get(stream).and_then(|s| s.get(kernel)) {
                    entered.push(run.enter(stream, kernel, k));
                }
            }
            run.place(now);
            for id in entered.iter().filter(|_| self.rule == StartRule::Forced) {
                // The trace says that it started; the model has no room for it.
                if run.live(*id).is_some_and(|live| live.started.is_none()) {
                    run.put(now, *id, 1);
                    if run.live(*id).is_some_and(|live| live.unplaced == 0) {
                        run.queue.retain(|waiting| waiting != id);
                    }
                }
            }
            // A forced start takes room from whoever is next: no wave may be taken past it.
            let forced = arrivals.peek().filter(|_| self.rule == StartRule::Forced).map(|a| a.0 .0);
            run.skip_waves(now, forced);
        }
        Ok(ran)
    }
}

impl Run<'_> {
    fn live(&mut self, id: usize) -> Option<&mut Live> {
        self.live.get_mut(id).and_then(Option::as_mut)
    }

    /// A kernel is ready: it stands in the queue.
    fn enter(&mut self, stream: usize, kernel: usize, k: &Kernel) -> usize {
        let whole = Blocks { count: 1, at_once: 1, ask: self.engine.capacity };
        let blocks = k.blocks.unwrap_or(whole);
        let work = ps(k.work_ns.max(0)).max(1);
        let waves = Ps::try_from(blocks.waves()).unwrap_or(Ps::MAX);
        let unplaced = blocks.count.max(1);
        let block = (work / waves).max(1);
        let live = Live { stream, kernel, blocks, unplaced, in_flight: 0, block, work, started: None };
        let id = if let Some(id) = self.unused.pop() {
            id
        } else {
            self.live.push(None);
            self.live.len().saturating_sub(1)
        };
        if let Some(slot) = self.live.get_mut(id) {
            *slot = Some(live);
        }
        self.queue.push_back(id);
        id
    }

    /// Starts `count` blocks of a kernel.
    fn put(&mut self, now: Ps, id: usize, count: u64) {
        let Some(live) = self.live.get_mut(id).and_then(Option::as_mut) else { return };
        live.started.get_or_insert(now);
        live.unplaced = live.unplaced.saturating_sub(count);
        live.in_flight = live.in_flight.saturating_add(count);
        for (free, ask) in self.free.iter_mut().zip(&live.blocks.ask) {
            *free = free.saturating_sub(i128::from(*ask).saturating_mul(i128::from(count)));
        }
        let end = now.saturating_add(live.block);
        self.cohorts.push(Reverse((end, id, now, count)));
    }

    /// Places blocks of the kernel at the head of the queue while there is room; the next one's only after all of
    /// its own.
    fn place(&mut self, now: Ps) {
        while let Some(id) = self.queue.front().copied() {
            let free = self.free;
            let Some(live) = self.live(id) else {
                self.queue.pop_front();
                continue;
            };
            let asks = live.blocks.ask.iter().zip(&free).filter(|(ask, _)| **ask > 0);
            let room = asks.map(|(ask, free)| (*free).max(0) / i128::from(*ask)).min();
            let room = room.map_or(u64::MAX, |room| u64::try_from(room).unwrap_or(u64::MAX));
            let own = live.blocks.at_once.saturating_sub(live.in_flight);
            let count = live.unplaced.min(own).min(room);
            let all = count == live.unplaced;
            if count > 0 {
                self.put(now, id, count);
            }
            if !all {
                return;
            }
            self.queue.pop_front();
        }
    }

    /// In the middle of a large grid every block that ends makes room for one of the same kernel, wave after wave,
    /// and nobody else can start: takes all such waves before the next block of another kernel ends at once.
    fn skip_waves(&mut self, now: Ps, forced: Option<Ps>) {
        let Some(head) = self.queue.front().copied() else { return };
        let Some(live) = self.live(head) else { return };
        let (in_flight, block) = (live.in_flight.max(1), live.block);
        let waves = live.unplaced / in_flight;
        // Looking through all cohorts must pay. The last wave is left: behind it others start.
        if live.in_flight == 0 || waves < 16 {
            return;
        }
        let others = self.cohorts.iter().filter(|c| c.0 .1 != head).map(|c| c.0 .0).min();
        let until = others.into_iter().chain(forced).min();
        let until = until.map_or(Ps::MAX, |end| end.saturating_sub(now) / block);
        let skipped = waves.saturating_sub(1).min(u64::try_from(until).unwrap_or(0));
        if skipped == 0 {
            return;
        }
        if let Some(live) = self.live(head) {
            live.unplaced = live.unplaced.saturating_sub(skipped.saturating_mul(in_flight));
        }
        let later = block.saturating_mul(Ps::try_from(skipped).unwrap_or(Ps::MAX));
        let moved = std::mem::take(&mut self.cohorts).into_iter().map(|Reverse((end, id, start, count))| {
            Reverse((if id == head { end.saturating_add(later) } else { end }, id, start, count))
        });
        self.cohorts = moved.collect();
    }

    /// Ends cohorts that end now, until a kernel is done with one: (stream, kernel, start, end).
    fn end_one(&mut self, now: Ps) -> Option<(usize, usize, Ps, Ps)> {
        while let Some(Reverse((end, id, start, count))) = self.cohorts.peek().copied() {
            if end > now {
                return None;
            }
            self.cohorts.pop();
            let Some(live) = self.live.get_mut(id).and_then(Option::as_mut) else { continue };
            for (free, ask) in self.free.iter_mut().zip(&live.blocks.ask) {
                *free = free.saturating_add(i128::from(*ask).saturating_mul(i128::from(count)));
            }
            live.in_flight = live.in_flight.saturating_sub(count);
            let (stream, kernel) = (live.stream, live.kernel);
            (self.span)(Span { stream, kernel, start_ns: start / 1000, end_ns: end / 1000, blocks: count });
            if live.unplaced == 0 && live.in_flight == 0 {
                let first = live.started.unwrap_or(start);
                // A wave is rounded down to a picosecond; a kernel is never faster than alone.
                let end = end.max(first.saturating_add(live.work));
                if let Some(slot) = self.live.get_mut(id) {
                    *slot = None;
                }
                self.unused.push(id);
                return Some((stream, kernel, first, end));
            }
        }
        None
    }
}

/// Blocks on an SM, or units of a resource: the narrower, the more of them in one instruction.
pub(crate) type PerSm = i16;

/// What each resource is counted in: what every chip hands it out in.
const UNITS: Resources = [1, 256, 128, 1];
/// More units than this are not told apart. SMs have 2,048 of a resource at most.
const MOST: PerSm = 8191;
/// So many units more than an SM has may be in use on it, where kernels started although it had no room.
const OVERDRAWN: PerSm = 2 * MOST;
/// Vectors over SMs are padded to a multiple of so many: wide instructions leave no remainder.
const LANES: usize = 16;

/// Of resource `n`, in units.
fn units(amount: u64, n: usize) -> PerSm {
    let unit = UNITS.get(n).copied().unwrap_or(1);
    PerSm::try_from(amount / unit).unwrap_or(MOST).min(MOST)
}

/// Divides what an SM has left of a resource by what a block takes of it, as [`Divisor::blocks`] says.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Divisor {
    least: PerSm,
    factor: u16,
    shift: u32,
}

impl Divisor {
    fn new(take: PerSm) -> Self {
        let Some(by) = u32::try_from(take).ok().filter(|by| *by > 0) else {
            return Self { least: MOST, factor: 1 << 15, shift: 0 };
        };
        // 2^shift <= by < 2 * 2^shift. As a fraction of 2^15 the factor is too large by less than `by` over 2^shift, less
        // than 2: that shows where 2^14 units or more are divided.
        let shift = by.ilog2();
        let factor = 1_u32.wrapping_shl(15 + shift).div_ceil(by);
        Self { least: 0, factor: u16::try_from(factor).unwrap_or(u16::MAX), shift }
    }

    /// Blocks that fit into `free` units, at most [`MOST`]: none below zero, [`MOST`] where a block takes nothing. Exact.
    #[allow(clippy::cast_possible_truncation)] // the upper half of a product, which wide instructions keep of 16 bits
    #[inline]
    fn blocks(self, free: PerSm) -> PerSm {
        let twice = free.max(self.least).cast_unsigned().wrapping_mul(2);
        let product = u32::from(twice).wrapping_mul(u32::from(self.factor));
        ((product >> 16) as u16).wrapping_shr(self.shift).cast_signed()
    }
}

/// What a block takes of an SM, ready for [`Floor`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ask {
    /// Warps of a block.
    pub warps: i32,
    /// Blocks that an empty SM holds.
    pub per_sm: u32,
    take: [PerSm; 4],
    by: [Divisor; 4],
}

impl Ask {
    /// For blocks of `ask` (warps, registers, shared memory, block slots) on SMs that have `has` and hold `per_sm` of
    /// them; `padded` is the resource of which less than the total can be used (sub-partitions, carve-outs).
    pub(crate) fn new(ask: Resources, has: Resources, per_sm: u32, padded: Option<usize>) -> Self {
        let mut take = [0; 4];
        for (n, ((ask, has), take)) in ask.iter().zip(&has).zip(&mut take).enumerate() {
            let unit = UNITS.get(n).copied().unwrap_or(1);
            // What keeps the next block out is taken with the last one.
            let padded = if padded == Some(n) { has / unit / u64::from(per_sm.max(1)) * unit } else { 0 };
            *take = units(padded.max(ask.next_multiple_of(unit)), n);
        }
        let warps = ask.first().copied().and_then(|w| i32::try_from(w).ok()).unwrap_or(0);
        Self { warps, per_sm, take, by: take.map(Divisor::new) }
    }

    /// A block of this fits on every SM on which one of the other does.
    pub(crate) fn fits_where(&self, other: &Self) -> bool {
        self.take.iter().zip(&other.take).all(|(own, other)| own <= other)
    }
}

/// What the SMs of a device have left, SM by SM, in the order in which the block scheduler prefers equals.
///
/// Sums over SMs wrap: an SM holds a few dozen blocks. Where overflow is looked for, compilers take numbers one by one.
#[derive(Debug, Clone)]
pub(crate) struct Floor {
    sms: usize,
    /// What an SM has.
    has: [PerSm; 4],
    /// In units, by resource, then by SM: never more than an SM has, never less than [`OVERDRAWN`] below nothing.
    free: [Vec<PerSm>; 4],
    /// Blocks of the kernel last asked for that would fit on each SM, where there is one that has room.
    room: Vec<PerSm>,
    total: u64,
    /// The most room of an SM.
    top: PerSm,
    /// All SMs were looked at, none left out.
    everywhere: bool,
    /// Blocks that no SM has room for, nor for any that takes no less: since then nothing has been given back.
    too_big: Vec<Ask>,
}

/// More kinds of blocks than this are not remembered as too big: they are looked for.
const REMEMBERED: usize = 8;

impl Floor {
    /// Empty SMs of `per_sm` each.
    pub(crate) fn new(per_sm: Resources, sms: usize) -> Self {
        let mut has = [0; 4];
        for (n, (has, amount)) in has.iter_mut().zip(per_sm).enumerate() {
            *has = units(amount, n);
        }
        let mut floor = Self {
            sms,
            has,
            free: has.map(|_| Vec::new()),
            room: Vec::new(),
            total: 0,
            top: 0,
            everywhere: false,
            too_big: Vec::new(),
        };
        floor.room = floor.nowhere();
        floor.free = has.map(|has| {
            let mut free = vec![has; sms];
            free.resize(floor.room.len(), 0);
            free
        });
        floor
    }

    pub(crate) fn sms(&self) -> usize {
        self.sms
    }

    /// No blocks on any SM: so long are vectors over the SMs, the last few elements of which stand for none.
    pub(crate) fn nowhere(&self) -> Vec<PerSm> {
        vec![0; self.sms.next_multiple_of(LANES)]
    }

    /// Warps that stand on each SM. True where there are some on all of them.
    pub(crate) fn warps(&self, warps: &mut [PerSm]) -> bool {
        let ([free, ..], [has, ..]) = (&self.free, self.has);
        let mut fewest = has;
        for (warps, free) in warps.iter_mut().zip(free) {
            *warps = has.wrapping_sub(*free);
            fewest = fewest.min(*warps);
        }
        fewest > 0
    }

    /// How many blocks would fit, on the SMs of `set` (1: may be used) or all.
    pub(crate) fn room(&mut self, ask: &Ask, set: Option<&[PerSm]>) -> u64 {
        (self.total, self.everywhere) = (0, false);
        if ask.take == [0; 4] || self.too_big.iter().any(|big| big.fits_where(ask)) {
            return 0;
        }
        if !self.fits_somewhere(ask) {
            self.full_for(ask);
            return 0;
        }
        let [a, b, c, d] = &self.free;
        let [by_a, by_b, by_c, by_d] = ask.by;
        // No chip holds as many as 127 on an SM.
        let most = PerSm::from(i8::try_from(ask.per_sm).unwrap_or(i8::MAX));
        let (mut total, mut top): (PerSm, PerSm) = (0, 0);
        // Two at a time: the divisors of four do not fit into the processor's registers.
        for ((room, a), b) in self.room.iter_mut().zip(a).zip(b) {
            *room = by_a.blocks(*a).min(by_b.blocks(*b)).min(most);
        }
        for ((room, c), d) in self.room.iter_mut().zip(c).zip(d) {
            *room = by_c.blocks(*c).min(by_d.blocks(*d)).min(*room);
            total = total.wrapping_add(*room);
            top = top.max(*room);
        }
        if let Some(set) = set {
            total = 0;
            for (room, may) in self.room.iter_mut().zip(set) {
                *room &= may.wrapping_neg();
                total = total.wrapping_add(*room);
            }
        }
        self.total = self.sum(total, || self.room.iter().copied());
        (self.top, self.everywhere) = (top, set.is_none());
        self.total
    }

    /// Whether any SM has room for such a block: mostly the first ones have, or none, which is seen sooner than how many fit.
    fn fits_somewhere(&self, ask: &Ask) -> bool {
        let [a, b, c, d] = self.free.each_ref().map(|free| free.as_chunks::<LANES>().0);
        // What is not asked for may be overdrawn.
        let [x, y, z, w] = ask.take.map(|take| if take > 0 { take } else { -OVERDRAWN });
        a.iter().zip(b).zip(c).zip(d).any(|(((a, b), c), d)| {
            let left = a.iter().zip(b).zip(c).zip(d).fold(-1, |most: PerSm, (((a, b), c), d)| {
                let (a, b) = (a.wrapping_sub(x), b.wrapping_sub(y));
                most.max(a.min(b).min(c.wrapping_sub(z).min(d.wrapping_sub(w))))
            });
            left >= 0
        })
    }

    /// The sum of blocks on SMs, at most 127 on one. In 16 bits it is `wrapped`, which is all of it on every real device.
    fn sum<I: Iterator<Item = PerSm>>(&self, wrapped: PerSm, on: impl FnOnce() -> I) -> u64 {
        if self.sms < 512 {
            return u64::from(wrapped.cast_unsigned());
        }
        on().map(|on| u64::try_from(on).unwrap_or(0)).sum()
    }

    /// No SM has room for such a block.
    fn full_for(&mut self, ask: &Ask) {
        self.too_big.retain(|big| !ask.fits_where(big));
        if self.too_big.len() < REMEMBERED {
            self.too_big.push(*ask);
        }
    }

    /// Makes room for one block where most warps are free, whatever the limits say; false where even so it would be too much.
    pub(crate) fn least_full(&mut self, ask: &Ask, set: Option<&[PerSm]>) -> bool {
        (self.total, self.everywhere) = (0, false);
        let [warps, ..] = &self.free;
        let may = |sm: usize| set.is_none_or(|set| set.get(sm).is_some_and(|m| *m > 0));
        let mut best: Option<(PerSm, usize)> = None;
        for (sm, free) in warps.iter().enumerate().take(self.sms).filter(|(sm, _)| may(*sm)) {
            if best.is_none_or(|(most, _)| *free > most) {
                best = Some((*free, sm));
            }
        }
        let Some((_, sm)) = best else { return false };
        let left = self.free.iter().map(|free| free.get(sm).copied().unwrap_or(0));
        if left.zip(ask.take).any(|(left, take)| left.saturating_sub(take) < -OVERDRAWN) {
            return false;
        }
        self.room.fill(0);
        if let Some(room) = self.room.get_mut(sm) {
            *room = 1;
            self.total = 1;
        }
        true
    }

    /// Puts `count` blocks of the kernel last asked for, one by one, where most further ones have room, the first of
    /// equals first. Not more than the room that was looked at.
    pub(crate) fn place(&mut self, ask: &Ask, count: u64, on: &mut [PerSm]) {
        self.choose(count, on);
        for (free, take) in self.free.iter_mut().zip(ask.take) {
            for (free, on) in free.iter_mut().zip(&*on) {
                *free = free.wrapping_sub(on.wrapping_mul(take));
            }
        }
        if count >= self.total && self.everywhere {
            self.full_for(ask);
        }
    }

    fn choose(&self, count: u64, on: &mut [PerSm]) {
        if count >= self.total {
            on.copy_from_slice(&self.room);
            return;
        }
        // Every block takes one from its SM's room: the highest are levelled down together, as far as there are blocks.
        let above = |level: PerSm| {
            let more = move |room: &PerSm| room.wrapping_sub(level).max(0);
            let wrapped = self.room.iter().fold(0, |sum: PerSm, room| sum.wrapping_add(more(room)));
            self.sum(wrapped, || self.room.iter().map(more))
        };
        let sms = self.sms.max(1) as u64;
        let alike = self.everywhere && self.total == u64::try_from(self.top).unwrap_or(0) * sms;
        let (floor, mut left) = if alike {
            // Round and round.
            (self.top.wrapping_sub(PerSm::try_from(count / sms).unwrap_or(0)), count % sms)
        } else {
            let (mut low, mut high) = (1, self.top);
            while low < high {
                let middle = PerSm::midpoint(low, high);
                if above(middle) <= count {
                    high = middle;
                } else {
                    low = middle.wrapping_add(1);
                }
            }
            (low, count - above(low))
        };
        for (on, room) in on.iter_mut().zip(&self.room) {
            *on = room.wrapping_sub(floor).max(0);
        }
        if left > 0 {
            for (on, _) in on.iter_mut().zip(&self.room).filter(|(_, room)| **room >= floor) {
                *on = on.wrapping_add(1);
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }

    pub(crate) fn give(&mut self, ask: &Ask, on: &[PerSm]) {
        self.too_big.clear();
        for (free, take) in self.free.iter_mut().zip(ask.take) {
            for (free, on) in free.iter_mut().zip(on) {
                *free = free.wrapping_add(on.wrapping_mul(take));
            }
        }
    }
}

/// A stretch of work of a tenant: it thinks for `think`, then wants the engine for `busy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Phase {
    pub think: Ps,
    pub busy: Ps,
}

/// Tenants that take turns.
struct Turns<'a> {
    tenants: &'a [Vec<Phase>],
    /// The phase each is in, and what is left of its work.
    next: Vec<usize>,
    left: Vec<Ps>,
    arrivals: BinaryHeap<Reverse<(Ps, usize)>>,
    waiting: VecDeque<usize>,
}

impl Turns<'_> {
    /// Lets in who has work by now; when the next one will.
    fn admit(&mut self, now: Ps) -> Option<Ps> {
        while let Some(Reverse((time, id))) = self.arrivals.peek().copied() {
            if time > now {
                return Some(time);
            }
            self.arrivals.pop();
            let phase = self.next.get(id).and_then(|n| self.tenants.get(id)?.get(*n));
            if let (Some(phase), Some(left)) = (phase, self.left.get_mut(id)) {
                *left = phase.busy;
                self.waiting.push_back(id);
            }
        }
        None
    }

    /// Whole rounds in which everybody who waits uses a whole slice and nobody comes: their length.
    fn skip_rounds(&mut self, now: Ps, coming: Option<Ps>, slice: Ps, gap: Ps) -> Ps {
        let least = self.waiting.iter().filter_map(|id| self.left.get(*id)).min().copied().unwrap_or(0);
        let waiting = Ps::try_from(self.waiting.len()).unwrap_or(Ps::MAX);
        let round = slice.saturating_add(gap).saturating_mul(waiting).max(1);
        let free = coming.map_or(Ps::MAX, |time| time.saturating_sub(now) / round);
        let rounds = (least.saturating_sub(1) / slice).min(free).max(0);
        for id in &self.waiting {
            if let Some(left) = self.left.get_mut(*id) {
                *left = left.saturating_sub(rounds.saturating_mul(slice));
            }
        }
        rounds.saturating_mul(round)
    }
}

/// When each tenant's last phase ends, if the tenants take turns on the whole device: work-conserving round robin.
/// A tenant with work keeps the engine until its work is done, or its slice is over and another one waits; a turn
/// of another tenant than the last costs `gap`. Think time goes by whoever holds the engine.
///
/// Rounds in which everybody uses a whole slice are taken at once: cost follows phases, not slices.
pub(crate) fn round_robin(tenants: &[Vec<Phase>], slice: Ps, gap: Ps, watch: &dyn Watch) -> Result<Vec<Ps>> {
    let slice = slice.max(1);
    let mut ends = vec![0; tenants.len()];
    let first = |(id, phases): (usize, &Vec<Phase>)| phases.first().map(|p| Reverse((p.think, id)));
    let mut turns = Turns {
        tenants,
        next: vec![0; tenants.len()],
        left: vec![0; tenants.len()],
        arrivals: tenants.iter().enumerate().filter_map(first).collect(),
        waiting: VecDeque::new(),
    };
    let total: usize = tenants.iter().map(Vec::len).sum();
    let (mut now, mut done, mut steps) = (0_i64, 0_u64, 0_u64);
    let mut holder = None;
    loop {
        if steps.is_multiple_of(4096) {
            watch.progress("time slices", done, total as u64)?;
        }
        steps = steps.wrapping_add(1);
        let mut coming = turns.admit(now);
        // Once the holder is the last in line, every round is like the one before.
        if turns.waiting.len() > 1 && turns.waiting.back().copied() == holder {
            now = now.saturating_add(turns.skip_rounds(now, coming, slice, gap));
        }
        let Some(id) = turns.waiting.pop_front() else {
            let Some(time) = coming else { break };
            now = time;
            continue;
        };
        if holder.is_some_and(|last| last != id) {
            now = now.saturating_add(gap);
        }
        holder = Some(id);
        let mut mine = turns.left.get(id).copied().unwrap_or(0);
        coming = turns.admit(now);
        while mine > 0 {
            // Alone: whole slices go by until somebody comes.
            let slices = match coming {
                _ if !turns.waiting.is_empty() => 1,
                Some(time) => (time.saturating_sub(now) / slice).max(1),
                None => Ps::MAX,
            };
            let step = mine.min(slice.saturating_mul(slices));
            now = now.saturating_add(step);
            mine = mine.saturating_sub(step);
            coming = turns.admit(now);
            if !turns.waiting.is_empty() {
                break;
            }
        }
        if let Some(left) = turns.left.get_mut(id) {
            *left = mine;
        }
        if mine > 0 {
            turns.waiting.push_back(id);
            continue;
        }
        done = done.saturating_add(1);
        if let Some(end) = ends.get_mut(id) {
            *end = now;
        }
        let Some(next) = turns.next.get_mut(id) else { continue };
        *next = next.saturating_add(1);
        if let Some(phase) = tenants.get(id).and_then(|phases| phases.get(*next)) {
            turns.arrivals.push(Reverse((now.saturating_add(phase.think), id)));
        }
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{StopAfter, Unwatched};

    /// 4 SMs of one block slot each; nothing else limits.
    fn engine(rule: StartRule) -> Engine {
        Engine::new([0, 0, 0, 1], 4, rule)
    }

    fn kernel(after_ns: i64, work_ns: i64, count: u64) -> Kernel {
        let blocks = engine(StartRule::Free).blocks(count, 4, [0, 0, 0, 1]);
        Kernel { after_ns, work_ns, blocks }
    }

    fn run(rule: StartRule, streams: &[&[Kernel]]) -> (Vec<Span>, Vec<(usize, i64, i64)>) {
        let mut spans = Vec::new();
        let ran = engine(rule).run(streams, &mut |span| spans.push(span), &Unwatched).unwrap();
        spans.sort_unstable();
        (spans, ran.iter().map(|r| (r.stream, r.start / 1000, r.end / 1000)).collect())
    }

    fn span(stream: usize, kernel: usize, start_ns: i64, end_ns: i64, blocks: u64) -> Span {
        Span { stream, kernel, start_ns, end_ns, blocks }
    }

    #[test]
    fn what_found_no_room_finds_it_again() {
        // Two SMs of 4 slots, blocks of one and of three slots.
        let has = [0, 0, 0, 4];
        let (small, big) = (Ask::new([0, 0, 0, 1], has, 4, None), Ask::new([0, 0, 0, 3], has, 1, None));
        let mut floor = Floor::new(has, 2);
        let mut on = floor.nowhere();
        let [first, second] = [0, 1].map(|sm| {
            let mut set = floor.nowhere();
            set[sm] = 1;
            set
        });
        // None on no SM at all says nothing of the others.
        let none = floor.nowhere();
        assert_eq!([floor.room(&big, Some(&none)), floor.room(&big, None)], [0, 2]);
        floor.place(&big, 2, &mut on);
        assert_eq!(
            [floor.room(&big, None), floor.room(&small, Some(&second)), floor.room(&small, None)],
            [0, 1, 2]
        );
        floor.place(&small, 2, &mut on);
        assert_eq!([floor.room(&small, None), floor.room(&big, None)], [0, 0]);
        floor.give(&big, &first);
        assert_eq!(
            [floor.room(&small, None), floor.room(&big, None), floor.room(&big, Some(&second))],
            [3, 1, 0]
        );
    }

    #[test]
    fn division_is_exact() {
        for take in (1..300).chain([511, 512, 513, 1023, 1024, 1025, 1824, 4095, 4096, 4097, 8190, MOST]) {
            let by = Divisor::new(take);
            assert!((0..=MOST).all(|free| by.blocks(free) == free / take), "{take}");
            assert_eq!([by.blocks(-1), by.blocks(-OVERDRAWN)], [0, 0]);
        }
        // What takes nothing fits wherever it is.
        assert_eq!([-1, 0, 1, MOST].map(|free| Divisor::new(0).blocks(free)), [MOST; 4]);
    }

    #[test]
    fn blocks_level_the_room() {
        // Three SMs of 9 slots, of which 5, 0 and 2 are taken: room for 4, 9 and 7.
        let has = [0, 0, 0, 9];
        let ask = Ask::new([0, 0, 0, 1], has, 9, None);
        let mut floor = Floor::new(has, 3);
        let taken: Vec<PerSm> = [5, 0, 2].into_iter().chain([0; 13]).collect();
        for (sm, n) in [5, 0, 2].into_iter().enumerate() {
            let mut set = floor.nowhere();
            set[sm] = 1;
            floor.room(&ask, Some(&set));
            let mut on = floor.nowhere();
            if n > 0 {
                floor.place(&ask, n, &mut on);
            }
        }
        // By hand: to 9, 7: two on the second; then by turns on both from 7 on, down to 4; then on all three.
        for (count, expected) in [
            (1, [0, 1, 0]),
            (2, [0, 2, 0]),
            (3, [0, 3, 0]),
            (4, [0, 3, 1]),
            (9, [1, 5, 3]),
            (10, [1, 6, 3]),
            (20, [4, 9, 7]),
        ] {
            assert_eq!(floor.room(&ask, None), 20);
            let mut on = floor.nowhere();
            floor.place(&ask, count, &mut on);
            assert_eq!(on[..3], expected, "{count}");
            floor.give(&ask, &on);
        }
        floor.give(&ask, &taken);
        // All alike: round and round.
        floor.room(&ask, None);
        let mut on = floor.nowhere();
        floor.place(&ask, 8, &mut on);
        assert_eq!(on[..3], [3, 3, 2]);
    }

    #[test]
    fn more_than_an_sm_has_is_not_without_end() {
        // Blocks of all 128 units each, where there is no room for any.
        let has = [0, 0, 16384, 0];
        let ask = Ask::new([0, 0, 16384, 0], has, 1, None);
        let mut floor = Floor::new(has, 1);
        let mut on = floor.nowhere();
        let forced = (0..1000).take_while(|_| {
            let may = floor.least_full(&ask, None);
            if may {
                floor.place(&ask, 1, &mut on);
            }
            may
        });
        // From 128 units down to 16,382 below nothing.
        assert_eq!(forced.count(), 128);
        assert_eq!(floor.room(&ask, None), 0);
        (0..128).for_each(|_| floor.give(&ask, &on));
        assert_eq!(floor.room(&ask, None), 1);
    }

    #[test]
    fn leftover_order() {
        // The picture at the top. A: 10 blocks of 10 ns, B: 4 blocks of 20 ns.
        //   A 0..10 4, 10..20 4, 20..30 2; B 20..40 2 beside it, 30..50 2 after it.
        let (spans, ran) = run(StartRule::Free, &[&[kernel(0, 30, 10)], &[kernel(0, 20, 4)]]);
        let a = [span(0, 0, 0, 10, 4), span(0, 0, 10, 20, 4), span(0, 0, 20, 30, 2)];
        assert_eq!(spans, [&a[..], &[span(1, 0, 20, 40, 2), span(1, 0, 30, 50, 2)]].concat());
        assert_eq!(ran, [(0, 0, 30), (1, 20, 50)]);
    }

    #[test]
    fn the_head_of_the_line_blocks_what_would_fit() {
        // A holds 3 of 4 until 100; B wants 2 and gets 1; C wants 1 but is behind it.
        let (_, ran) =
            run(StartRule::Free, &[&[kernel(0, 100, 3)], &[kernel(1, 49, 2)], &[kernel(2, 10, 1)]]);
        // B: 1..50 and 50..99 in the fourth slot; C has to wait until that is free again.
        assert_eq!(ran, [(1, 1, 99), (0, 0, 100), (2, 99, 109)]);
    }

    #[test]
    fn streams_keep_their_order_and_think() {
        let (_, ran) = run(StartRule::Free, &[&[kernel(5, 10, 1), kernel(3, 10, 1)]]);
        assert_eq!(ran, [(0, 5, 15), (0, 18, 28)]);
    }

    #[test]
    fn forced_kernels_start_when_the_trace_says() {
        // The device is full until 10; the second one's first block starts at 4 all the same, the rest at 10.
        let (spans, ran) = run(StartRule::Forced, &[&[kernel(0, 10, 4), kernel(4, 10, 3)]]);
        assert_eq!(spans, [span(0, 0, 0, 10, 4), span(0, 1, 4, 14, 1), span(0, 1, 10, 20, 2)]);
        assert_eq!(ran, [(0, 0, 10), (0, 4, 20)]);
        // Free, the same rows are a chain.
        assert_eq!(
            run(StartRule::Free, &[&[kernel(0, 10, 4), kernel(4, 10, 3)]]).1,
            [(0, 0, 10), (0, 14, 24)]
        );
    }

    #[test]
    fn blocks_that_are_not_known_take_everything() {
        let unknown = Kernel { after_ns: 0, work_ns: 10, blocks: None };
        let (_, ran) = run(StartRule::Free, &[&[kernel(0, 10, 1)], &[unknown], &[kernel(0, 10, 1)]]);
        assert_eq!(ran, [(0, 0, 10), (1, 10, 20), (2, 20, 30)]);
    }

    #[test]
    fn resources_that_differ_share_an_sm() {
        // One SM of 8 warps and 100 registers. A: 4 blocks of 1 warp, 10 registers; B: 2 blocks of 2 warps, 30.
        let engine = Engine::new([8, 100, 0, 9], 1, StartRule::Free);
        let a = Kernel { after_ns: 0, work_ns: 10, blocks: engine.blocks(4, 8, [1, 10, 0, 1]) };
        let b = Kernel { after_ns: 0, work_ns: 10, blocks: engine.blocks(2, 3, [2, 30, 0, 1]) };
        let ran = engine.run(&[&[a], &[b]], &mut |_| {}, &Unwatched).unwrap();
        assert!(ran.iter().all(|r| r.end == 10_000), "40 and 60 registers fit: {ran:?}");
        // With one more register a block, one of B's two has to wait.
        let b = Kernel { after_ns: 0, work_ns: 10, blocks: engine.blocks(2, 3, [2, 31, 0, 1]) };
        let ran = engine.run(&[&[a], &[b]], &mut |_| {}, &Unwatched).unwrap();
        assert_eq!(ran.iter().map(|r| r.end).collect::<Vec<_>>(), [10_000, 20_000]);
    }

    #[test]
    fn cost_follows_kernels_not_blocks() {
        // 4 billion blocks in a billion waves, beside a kernel that ends in the middle.
        let count = 4_000_000_000;
        let mut spans = 0;
        let big = [kernel(0, 2_000_000_000, count)];
        let streams: [&[Kernel]; 2] = [&[kernel(0, 500_000_000, 1)], &big];
        let ran = engine(StartRule::Free).run(&streams, &mut |_| spans += 1, &Unwatched).unwrap();
        // 2 ns a block. 3 slots until 0.5 s: 0.75e9 blocks; the other 3.25e9 in 4 slots: 1.625 s more.
        assert!((ran[1].end - 2_125_000_000_000).abs() < 10_000, "{ran:?}");
        assert!(spans < 200, "{spans}");
        assert!(engine(StartRule::Free).run(&streams, &mut |_| {}, &StopAfter::new(0)).is_err());
    }

    fn phases(parts: &[(i64, i64)]) -> Vec<Phase> {
        parts.iter().map(|p| Phase { think: p.0, busy: p.1 }).collect()
    }

    #[test]
    fn turns() {
        //  a |10|--g--|     |10|     |5|          a: 25, slice 10, gap 1
        //  b          |10|       |2|               b: 12
        //  0..10 a, 11..21 b, 22..32 a, 33..35 b, 36..41 a
        let ends = round_robin(&[phases(&[(0, 25)]), phases(&[(0, 12)])], 10, 1, &Unwatched).unwrap();
        assert_eq!(ends, [41, 35]);
        // b comes at 13, while a runs its second slice: it waits for the end of that, 20. a keeps 25 - 20.
        let ends = round_robin(&[phases(&[(0, 25)]), phases(&[(13, 3)])], 10, 1, &Unwatched).unwrap();
        assert_eq!(ends, [30, 24]);
        // b thinks while a runs and yields when it has no work.
        let ends = round_robin(&[phases(&[(0, 10)]), phases(&[(0, 2), (4, 2)])], 3, 0, &Unwatched).unwrap();
        // a 0..3, b 3..5, a 5..8, a 8..11 with b back at 9, b 11..13, a 13..14.
        assert_eq!(ends, [14, 13]);
        assert_eq!(round_robin(&[phases(&[(7, 10), (1, 1)])], 3, 5, &Unwatched).unwrap(), [19]);
        assert!(round_robin(&[phases(&[(0, 1)])], 3, 5, &StopAfter::new(0)).is_err());
    }

    #[test]
    fn many_rounds_are_those_one_by_one() {
        // 1e9 slices each: a and b alternate, a first: a ends one turn before b. 10 + 1 a turn.
        let n = 1_000_000_000;
        let both = [phases(&[(0, 10 * n)]), phases(&[(0, 10 * n)])];
        assert_eq!(round_robin(&both, 10, 1, &Unwatched).unwrap(), [22 * n - 12, 22 * n - 1]);
    }
}
