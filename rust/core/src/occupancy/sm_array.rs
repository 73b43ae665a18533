//! Free capacity of each SM of a device, and where the block scheduler puts the next blocks.
//!
//! A block goes to the SM on which most further blocks of its kernel fit; the first of equals wins.

use crate::occupancy::theoretical::Resources;

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

/// What a block takes of an SM, ready for [`SmArray`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BlockFootprint {
    /// Warps of a block.
    pub warps: i32,
    /// Blocks that an empty SM holds.
    pub per_sm: u32,
    take: [PerSm; 4],
    by: [Divisor; 4],
}

impl BlockFootprint {
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
pub(crate) struct SmArray {
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
    too_big: Vec<BlockFootprint>,
}

/// More kinds of blocks than this are not remembered as too big: they are looked for.
const REMEMBERED: usize = 8;

impl SmArray {
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
    pub(crate) fn room(&mut self, ask: &BlockFootprint, set: Option<&[PerSm]>) -> u64 {
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
    fn fits_somewhere(&self, ask: &BlockFootprint) -> bool {
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
    fn full_for(&mut self, ask: &BlockFootprint) {
        self.too_big.retain(|big| !ask.fits_where(big));
        if self.too_big.len() < REMEMBERED {
            self.too_big.push(*ask);
        }
    }

    /// Makes room for one block where most warps are free, whatever the limits say; false where even so it would be too much.
    pub(crate) fn least_full(&mut self, ask: &BlockFootprint, set: Option<&[PerSm]>) -> bool {
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
    pub(crate) fn place(&mut self, ask: &BlockFootprint, count: u64, on: &mut [PerSm]) {
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

    pub(crate) fn give(&mut self, ask: &BlockFootprint, on: &[PerSm]) {
        self.too_big.clear();
        for (free, take) in self.free.iter_mut().zip(ask.take) {
            for (free, on) in free.iter_mut().zip(on) {
                *free = free.wrapping_add(on.wrapping_mul(take));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_found_no_room_finds_it_again() {
        // Two SMs of 4 slots, blocks of one and of three slots.
        let has = [0, 0, 0, 4];
        let (small, big) = (
            BlockFootprint::new([0, 0, 0, 1], has, 4, None),
            BlockFootprint::new([0, 0, 0, 3], has, 1, None),
        );
        let mut floor = SmArray::new(has, 2);
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
        let ask = BlockFootprint::new([0, 0, 0, 1], has, 9, None);
        let mut floor = SmArray::new(has, 3);
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
        // By hand: to 9, 7: two on the second; then alternately on both from 7 on, down to 4; then on all three.
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
        let ask = BlockFootprint::new([0, 0, 16384, 0], has, 1, None);
        let mut floor = SmArray::new(has, 1);
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
}
