//! Hold the operations of a tenant, of which there are as many as kernels in a capture, in little memory.

use crate::slowdown::operations::{CoRun, Numbered, Op, Unusual, Waited};
use crate::table::work::WorkKind;

/// Operations, each in little more than half the memory of an [`Op`]: times count from the launch, in 32 bits.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    packed: Vec<Packed>,
    /// Those that do not fit: hardly an operation takes or waits for longer than four seconds.
    long: Vec<Op>,
}

/// An operation, or the place of a long one.
#[derive(Debug, Clone, Copy)]
struct Packed {
    launch_ns: i64,
    /// As `times` has them.
    since_ns: [u32; 9],
    /// Of a long operation its place.
    signature: u32,
    call: Numbered,
    stream: u16,
    /// Two bits each: kind of work, [`LONG`] for a long operation; `co_run`; `unusual`; and whether it is early.
    marks: u8,
}

/// In place of a kind of work.
const LONG: u8 = 3;

impl Packed {
    fn of(op: &Op) -> Option<Self> {
        let since = |ns: i64| u32::try_from(ns.checked_sub(op.launch_ns)?).ok();
        let length = |ns: i64| u32::try_from(ns).ok();
        let Waited { own_ns, other_ns, rest_ns } = op.waited;
        let kind = match op.kind {
            WorkKind::Kernel => 0,
            WorkKind::Graph => 1,
            WorkKind::Copy => 2,
        };
        let co_run = match op.co_run {
            CoRun::Solo => 0,
            CoRun::Waited => 1,
            CoRun::Contended => 2,
        };
        let unusual = match op.unusual {
            None => 0,
            Some(Unusual::First) => 1,
            Some(Unusual::Overhead) => 2,
            Some(Unusual::Cut) => 3,
        };
        Some(Self {
            launch_ns: op.launch_ns,
            since_ns: [
                since(op.called_ns)?,
                since(op.ready_ns)?,
                since(op.start_ns)?,
                since(op.end_ns)?,
                length(op.ran_ns)?,
                length(op.co_running_ns)?,
                length(own_ns)?,
                length(other_ns)?,
                length(rest_ns)?,
            ],
            signature: op.signature,
            call: op.call,
            stream: u16::try_from(op.stream).ok()?,
            marks: kind | co_run << 2 | unusual << 4 | u8::from(op.early) << 6,
        })
    }

    fn long(place: usize) -> Self {
        Self {
            launch_ns: 0,
            since_ns: [0; 9],
            signature: u32::try_from(place).unwrap_or(u32::MAX),
            call: Numbered::of(None),
            stream: 0,
            marks: LONG,
        }
    }

    fn long_place(&self) -> Option<usize> {
        (self.marks & 3 == LONG).then_some(self.signature as usize)
    }

    // Of most operations one or two times are asked for: inlined, only those are made.
    #[inline(always)]
    fn op(&self) -> Op {
        // It was told from the launch before, so that the sum is no larger than any time.
        let at = |since_ns: u32| self.launch_ns.wrapping_add(i64::from(since_ns));
        let [called, ready, start, end, ran, co_running, own, other, rest] = self.since_ns;
        Op {
            kind: match self.marks & 3 {
                0 => WorkKind::Kernel,
                1 => WorkKind::Graph,
                _ => WorkKind::Copy,
            },
            co_run: match self.marks >> 2 & 3 {
                0 => CoRun::Solo,
                1 => CoRun::Waited,
                _ => CoRun::Contended,
            },
            unusual: match self.marks >> 4 & 3 {
                0 => None,
                1 => Some(Unusual::First),
                2 => Some(Unusual::Overhead),
                _ => Some(Unusual::Cut),
            },
            early: self.marks >> 6 != 0,
            signature: self.signature,
            stream: u32::from(self.stream),
            call: self.call,
            launch_ns: self.launch_ns,
            called_ns: at(called),
            ready_ns: at(ready),
            start_ns: at(start),
            end_ns: at(end),
            ran_ns: i64::from(ran),
            co_running_ns: i64::from(co_running),
            waited: Waited { own_ns: i64::from(own), other_ns: i64::from(other), rest_ns: i64::from(rest) },
        }
    }
}

impl Ops {
    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        self.packed.reserve_exact(more);
    }

    pub fn push(&mut self, op: &Op) {
        let packed = Self::packed(&mut self.long, op);
        self.packed.push(packed);
    }

    fn packed(long: &mut Vec<Op>, op: &Op) -> Packed {
        Packed::of(op).unwrap_or_else(|| {
            long.push(*op);
            Packed::long(long.len().saturating_sub(1))
        })
    }

    #[inline(always)]
    fn op(&self, packed: &Packed) -> Op {
        match packed.long_place() {
            None => packed.op(),
            // Every place is that of one.
            Some(place) => self.long.get(place).copied().unwrap_or_else(|| packed.op()),
        }
    }

    pub fn len(&self) -> usize {
        self.packed.len()
    }

    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    #[inline(always)]
    pub fn get(&self, place: usize) -> Option<Op> {
        Some(self.op(self.packed.get(place)?))
    }

    /// All from a place on.
    pub fn from(&self, place: usize) -> Iter<'_> {
        Iter { ops: self, packed: self.packed.get(place..).unwrap_or_default().iter() }
    }

    pub fn iter(&self) -> Iter<'_> {
        self.from(0)
    }

    /// How many at the front `are`; those of which it holds stand there.
    pub fn partition_point(&self, are: impl Fn(&Op) -> bool) -> usize {
        self.packed.partition_point(|packed| are(&self.op(packed)))
    }

    /// Changes every one, in order.
    pub fn change(&mut self, mut change: impl FnMut(&mut Op)) {
        for packed in &mut self.packed {
            let place = packed.long_place();
            match place.and_then(|place| self.long.get_mut(place)) {
                Some(op) => change(op),
                None => {
                    let mut op = packed.op();
                    change(&mut op);
                    *packed = Self::packed(&mut self.long, &op);
                }
            }
        }
    }

    /// Puts them in order; those that are equal stay as they are.
    pub fn sort_by_key<K: Ord>(&mut self, key: impl Fn(&Op) -> K) {
        let mut packed = std::mem::take(&mut self.packed);
        let of = |one: &Packed| key(&self.op(one));
        if !packed.is_sorted_by_key(of) {
            packed.sort_by_key(of);
        }
        self.packed = packed;
    }
}

/// Operations, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Iter<'a> {
    ops: &'a Ops,
    packed: std::slice::Iter<'a, Packed>,
}

// Inlined, so that of each operation only what is asked for is made: one that is handed over whole is twice as large as
// it is packed, and there are as many as kernels in a capture.
impl Iterator for Iter<'_> {
    type Item = Op;

    #[inline(always)]
    fn next(&mut self) -> Option<Op> {
        Some(self.ops.op(self.packed.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.packed.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<Op> {
        Some(self.ops.op(self.packed.nth(n)?))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Op> {
        Some(self.ops.op(self.packed.next_back()?))
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::draws::draws;

    #[test]
    fn operations_come_back_as_they_were_put() {
        // Times that 32 bits hold, and others; also ends before the launch, which a clock may give.
        const LENGTHS: [i64; 6] = [0, 1, 1_000, u32::MAX as i64, u32::MAX as i64 + 1, -1];
        let mut draw = draws(7);
        let mut op = || {
            let launch_ns = draw(1 << 40) - (1 << 39);
            let mut length = || LENGTHS[draw(6) as usize].min(1 << draw(40));
            let [called, ready, start, end, ran, co_running] = [(); 6].map(|()| length());
            let waited = Waited { own_ns: length(), other_ns: length(), rest_ns: length() };
            Op {
                kind: [WorkKind::Kernel, WorkKind::Graph, WorkKind::Copy][draw(3) as usize],
                co_run: [CoRun::Solo, CoRun::Waited, CoRun::Contended][draw(3) as usize],
                unusual: [None, Some(Unusual::First), Some(Unusual::Overhead), Some(Unusual::Cut)]
                    [draw(4) as usize],
                early: draw(2) == 0,
                signature: draw(1 << 32) as u32,
                stream: draw(70_000) as u32,
                call: Numbered::of((draw(2) == 0).then_some(draw(1 << 32) as u32)),
                launch_ns,
                called_ns: launch_ns + called,
                ready_ns: launch_ns + ready,
                start_ns: launch_ns + start,
                end_ns: launch_ns + end,
                ran_ns: ran,
                co_running_ns: co_running,
                waited,
            }
        };
        let mut expected: Vec<Op> = (0..2_000).map(|_| op()).collect();
        let mut ops = Ops::default();
        expected.iter().for_each(|op| ops.push(op));
        let mut others: Vec<Op> = (0..2_000).map(|_| op()).collect();
        for _ in 0..2 {
            assert!(ops.iter().eq(expected.iter().copied()));
            // Long ones become short ones, and short ones long.
            let mut next = others.iter();
            ops.change(|op| *op = *next.next().unwrap());
            std::mem::swap(&mut expected, &mut others);
        }
        ops.sort_by_key(|op| (op.end_ns, op.signature));
        expected.sort_by_key(|op| (op.end_ns, op.signature));
        assert!(ops.iter().eq(expected.iter().copied()));
        assert_eq!(ops.from(1_990).len(), 10);
        assert_eq!(ops.get(5), expected.get(5).copied());
        assert_eq!(ops.partition_point(|op| op.end_ns < 0), expected.partition_point(|op| op.end_ns < 0));
    }
}
