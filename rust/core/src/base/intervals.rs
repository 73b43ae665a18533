//! Intervals of time: unions, and how much of an interval they cover.

/// Disjoint, sorted intervals with the time covered before some: "how much of this is inside" in O(log n).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Union {
    spans: Vec<(i64, i64)>,
    /// Time covered before each [`STRIDE`]-th interval. There may be as many intervals as kernels.
    before_ns: Vec<i64>,
    total_ns: i64,
}

/// Intervals that are added up at most.
const STRIDE: usize = 8;

impl Union {
    /// The union of any intervals; empty and inverted ones cover nothing.
    #[must_use]
    pub fn of(intervals: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut sorted: Vec<_> = intervals.into_iter().filter(|(a, b)| a < b).collect();
        sorted.sort_unstable();
        let mut union = Self::default();
        for (start, end) in sorted {
            union.add(start, end);
        }
        union
    }

    /// The union of unions.
    pub(crate) fn of_all<'a>(unions: impl Iterator<Item = &'a Self>) -> Self {
        let all: Vec<&Self> = unions.collect();
        match all.as_slice() {
            [only] => (*only).clone(),
            several => Self::of(several.iter().flat_map(|union| union.spans.iter().copied())),
        }
    }

    /// Adds an interval that starts no earlier than any before it.
    pub fn add(&mut self, start: i64, end: i64) {
        if start >= end {
            return;
        }
        match self.spans.last_mut() {
            Some(last) if start <= last.1 => {
                let more = end.saturating_sub(last.1).max(0);
                last.1 = last.1.max(end);
                self.total_ns = self.total_ns.saturating_add(more);
            }
            _ => {
                if self.spans.len().is_multiple_of(STRIDE) {
                    self.before_ns.push(self.total_ns);
                }
                self.spans.push((start, end));
                self.total_ns = self.total_ns.saturating_add(end.saturating_sub(start));
            }
        }
    }

    /// Time covered.
    #[must_use]
    pub fn total_ns(&self) -> i64 {
        self.total_ns
    }

    /// The intervals.
    #[must_use]
    pub fn spans(&self) -> &[(i64, i64)] {
        &self.spans
    }

    /// How often the union begins and ends between `start` and `end`.
    #[must_use]
    pub fn edges_inside(&self, start: i64, end: i64) -> usize {
        if start >= end {
            return 0;
        }
        let count = |until: i64| {
            self.spans.partition_point(|s| s.0 <= until) + self.spans.partition_point(|s| s.1 <= until)
        };
        count(end.saturating_sub(1)).saturating_sub(count(start))
    }

    /// Time covered before `time`.
    fn until_ns(&self, time: i64) -> i64 {
        self.until_span_ns(self.spans.partition_point(|s| s.0 < time), time)
    }

    /// Time covered before `time`, which lies before the span `next` starts.
    fn until_span_ns(&self, next: usize, time: i64) -> i64 {
        let Some(last) = next.checked_sub(1) else { return 0 };
        let first = last / STRIDE;
        let before_ns = self.before_ns.get(first).copied().unwrap_or(0);
        before_ns.saturating_add(self.inside_ns(first * STRIDE, next, i64::MIN, time))
    }

    /// Time that the spans from `first` up to `next` cover inside [start, end).
    fn inside_ns(&self, first: usize, next: usize, start: i64, end: i64) -> i64 {
        let some = self.spans.get(first..next).unwrap_or_default().iter();
        some.fold(0, |sum: i64, (a, b)| {
            sum.saturating_add((*b).min(end).saturating_sub((*a).max(start)).max(0))
        })
    }

    /// The interval that covers the moment before a time.
    #[must_use]
    pub fn span_to(&self, time: i64) -> Option<(i64, i64)> {
        let behind = self.spans.partition_point(|s| s.0 < time);
        self.spans.get(behind.checked_sub(1)?).filter(|s| s.1 >= time).copied()
    }

    /// Last covered moment before a time; `None` if none is.
    #[must_use]
    pub fn last_ns(&self, before: i64) -> Option<i64> {
        let behind = self.spans.partition_point(|s| s.0 < before);
        self.spans.get(behind.checked_sub(1)?).map(|s| s.1.min(before))
    }

    /// Time covered inside [start, end).
    #[must_use]
    pub fn covered_ns(&self, start: i64, end: i64) -> i64 {
        if start >= end {
            return 0;
        }
        self.until_ns(end).saturating_sub(self.until_ns(start))
    }

    /// Whether `time` lies inside, ends included.
    #[must_use]
    pub fn contains(&self, time: i64) -> bool {
        let next = self.spans.partition_point(|s| s.0 <= time);
        next.checked_sub(1).and_then(|last| self.spans.get(last)).is_some_and(|s| time <= s.1)
    }

    /// Time that both cover between `start` and `end`.
    #[must_use]
    pub fn common_within_ns(&self, other: &Self, start: i64, end: i64) -> i64 {
        let first = self.spans.partition_point(|s| s.1 <= start);
        let near = self.spans.iter().skip(first).take_while(|s| s.0 < end);
        near.fold(0_i64, |sum, (a, b)| sum.saturating_add(other.covered_ns((*a).max(start), (*b).min(end))))
    }

    /// Time that both cover.
    #[must_use]
    pub fn common_ns(&self, other: &Self) -> i64 {
        self.spans.iter().fold(0_i64, |sum, (a, b)| sum.saturating_add(other.covered_ns(*a, *b)))
    }
}

/// A place in a [`Union`]: questions in nearly rising order are answered in nearly constant time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Walk(usize);

impl Walk {
    /// Time that `union` covers inside [start, end).
    pub fn covered_ns(&mut self, union: &Union, start: i64, end: i64) -> i64 {
        if start >= end {
            return 0;
        }
        let from = self.seek(&union.spans, start);
        let to = Self(from).seek(&union.spans, end);
        if to.saturating_sub(from) <= STRIDE {
            return union.inside_ns(from.saturating_sub(1), to, start, end);
        }
        union.until_span_ns(to, end).saturating_sub(union.until_span_ns(from, start))
    }

    /// The first span that does not start before `time`, looked for in growing steps from the last one found.
    fn seek(&mut self, spans: &[(i64, i64)], time: i64) -> usize {
        let before = |index: usize| spans.get(index).is_some_and(|s| s.0 < time);
        let (mut low, mut high, mut step) = (self.0.min(spans.len()), self.0.min(spans.len()), 1_usize);
        // Most questions are about the same place again.
        if !before(low) && low.checked_sub(1).is_none_or(before) {
            return low;
        }
        if before(low) {
            while before(high) {
                low = high;
                high = high.saturating_add(step).min(spans.len());
                step = step.saturating_mul(2);
            }
        } else {
            while low > 0 && !before(low) {
                high = low;
                low = low.saturating_sub(step);
                step = step.saturating_mul(2);
            }
        }
        let between = spans.get(low..high).unwrap_or_default();
        self.0 = low.saturating_add(between.partition_point(|s| s.0 < time));
        self.0
    }
}

/// A union that only grows at its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Growing {
    end_ns: Option<i64>,
    pub total_ns: i64,
}

impl Growing {
    /// Adds an interval that starts no earlier than those before it; returns the part that is new.
    pub fn add(&mut self, start: i64, end: i64) -> Option<(i64, i64)> {
        let from = self.end_ns.map_or(start, |e| e.max(start));
        // What has no length ends as well: the time before it is no part of a gap behind it.
        self.end_ns = Some(from.max(end));
        if from >= end {
            return None;
        }
        self.total_ns = self.total_ns.saturating_add(end.saturating_sub(from));
        Some((from, end))
    }

    /// Latest end.
    pub fn end_ns(&self) -> Option<i64> {
        self.end_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::draws::draws;

    #[test]
    fn what_has_no_length_ends_too() {
        let mut growing = Growing::default();
        assert_eq!((growing.add(5, 5), growing.end_ns()), (None, Some(5)));
        assert_eq!((growing.add(7, 9), growing.end_ns()), (Some((7, 9)), Some(9)));
        // Inside of what was added before, and behind it.
        assert_eq!((growing.add(8, 8), growing.end_ns()), (None, Some(9)));
        assert_eq!((growing.add(20, 20), growing.end_ns()), (None, Some(20)));
        assert_eq!(growing.total_ns, 2);
    }

    #[test]
    fn unions() {
        // |0==10|  |20==30|   and 25..40
        let u = Union::of([(20, 30), (0, 10), (25, 40), (5, 5), (9, 3)]);
        assert_eq!(u.spans(), [(0, 10), (20, 40)]);
        assert_eq!(u.total_ns(), 30);
        assert_eq!(u.covered_ns(5, 25), 10);
        assert_eq!(u.covered_ns(-5, 100), 30);
        assert_eq!(u.covered_ns(10, 20), 0);
        assert!(u.contains(10) && !u.contains(11) && u.contains(20));
        assert_eq!(u.common_ns(&Union::of([(8, 22)])), 4);
        let both = Union::of_all([&u, &Union::of([(8, 22), (50, 60)])].into_iter());
        assert_eq!(both.spans(), [(0, 40), (50, 60)]);
        assert_eq!(Union::of_all(std::iter::once(&u)), u);
        assert_eq!(Union::of_all(std::iter::empty()), Union::default());
    }

    #[test]
    fn a_walk_covers_what_counting_covers() {
        for seed in 0..200 {
            let mut draw = draws(seed);
            // Few long ones, or many short ones, of which more than a stride lie apart.
            let (most, longest) = if seed % 2 == 0 { (12, 60) } else { (80, 2) };
            let spans: Vec<(i64, i64)> = (0..draw(most))
                .map(|_| {
                    let from = draw(60);
                    (from, from + draw(longest))
                })
                .collect();
            let union = Union::of(spans.clone());
            let inside = |t: i64| spans.iter().any(|s| s.0 <= t && t < s.1);
            let mut walk = Walk::default();
            for _ in 0..40 {
                let (from, to) = (draw(70) - 5, draw(70) - 5);
                let counted = (from..to).filter(|t| inside(*t)).count();
                assert_eq!(walk.covered_ns(&union, from, to), counted as i64, "seed {seed}, {from} to {to}");
                assert_eq!(union.covered_ns(from, to), counted as i64, "seed {seed}, {from} to {to}");
            }
        }
    }
}
