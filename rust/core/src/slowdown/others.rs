//! What the other tenants of a device did, put together once for all of its tenants.
//!
//! Thousands of tenants each have thousands of others. So nobody holds a union of its own: the device has one of
//! everybody, and each tenant the part of it in which nobody but itself was there.
//!
//! ```text
//!   A          |=====|
//!   B              |======|      |==|
//!   all        |==========|      |==|
//!   only A     |===|
//!   all others of A: all without only A
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use crate::activity::overlap::MANY_TENANTS;
use crate::base::intervals::{Union, Walk};
use crate::base::maps::NumberMap;

/// When others were there.
#[derive(Debug, Default)]
pub(crate) struct Others {
    all: Arc<Union>,
    /// Parts of `all` in which nobody but the tenant itself was there.
    only: Union,
}

impl Others {
    /// Of each of some tenants what the rest of them did.
    pub fn of_each(tenants: &[(u32, Arc<Union>)]) -> BTreeMap<u32, Self> {
        let some: Vec<&(u32, Arc<Union>)> = tenants.iter().filter(|t| t.1.total_ns() > 0).collect();
        if let ([a, b], 2) = (some.as_slice(), tenants.len()) {
            // Nothing need be taken off.
            return [(a.0, Self::from(Arc::clone(&b.1))), (b.0, Self::from(Arc::clone(&a.1)))].into();
        }
        let (all, mut only) = apart(&some);
        let all = Arc::new(all);
        let mut of = |id: &u32| Self { all: Arc::clone(&all), only: only.remove(id).unwrap_or_default() };
        tenants.iter().map(|one| (one.0, of(&one.0))).collect()
    }

    /// The part of it in which `ran` covers the time.
    pub fn within(&self, ran: &Union) -> Self {
        Self { all: Arc::new(common(&self.all, ran)), only: common(&self.only, ran) }
    }

    /// Time covered inside [start, end).
    pub fn covered_ns(&self, start_ns: i64, end_ns: i64) -> i64 {
        self.all.covered_ns(start_ns, end_ns).saturating_sub(self.only.covered_ns(start_ns, end_ns))
    }

    /// When they were there last before a time; `None` if they never were.
    pub fn last_ns(&self, before_ns: i64) -> Option<i64> {
        let mut before_ns = before_ns;
        loop {
            let last_ns = self.all.last_ns(before_ns)?;
            // At its end the tenant itself may have been the only one.
            match self.only.span_to(last_ns) {
                Some((only_ns, _)) => before_ns = only_ns,
                None => return Some(last_ns),
            }
        }
    }

    /// Time covered.
    pub fn total_ns(&self) -> i64 {
        self.all.total_ns().saturating_sub(self.only.total_ns())
    }
}

impl From<Arc<Union>> for Others {
    fn from(all: Arc<Union>) -> Self {
        Self { all, only: Union::default() }
    }
}

/// A place in [`Others`], as [`Walk`] is one in a union.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OthersWalk {
    all: Walk,
    only: Walk,
}

impl OthersWalk {
    /// Time that `others` cover inside [start, end).
    pub fn covered_ns(&mut self, others: &Others, start_ns: i64, end_ns: i64) -> i64 {
        let all_ns = self.all.covered_ns(&others.all, start_ns, end_ns);
        if all_ns == 0 || others.only.total_ns() == 0 {
            return all_ns;
        }
        all_ns.saturating_sub(self.only.covered_ns(&others.only, start_ns, end_ns))
    }
}

/// The union of unions, and when nobody but each was there.
fn apart(tenants: &[&(u32, Arc<Union>)]) -> (Union, BTreeMap<u32, Union>) {
    let mut only = vec![Union::default(); tenants.len()];
    let mut all = Union::default();
    // The next begin or end of each tenant; begins have even numbers, and come after ends of the same time.
    let edge = |place: usize, number: usize| {
        let (start, end) = tenants.get(place)?.1.spans().get(number / 2)?;
        let begins = number.is_multiple_of(2);
        Some(Reverse((if begins { *start } else { *end }, begins, place, number)))
    };
    let mut next: BinaryHeap<_> = (0..tenants.len()).filter_map(|place| edge(place, 0)).collect();
    // Who is there: as many, and the sum of their places, which is the place of one alone.
    let (mut count, mut places, mut since_ns) = (0_usize, 0_usize, i64::MIN);
    while let Some(Reverse((time_ns, begins, place, number))) = next.pop() {
        if count > 0 {
            all.add(since_ns, time_ns);
        }
        if let Some(only) = only.get_mut(places).filter(|_| count == 1) {
            only.add(since_ns, time_ns);
        }
        if begins {
            (count, places) = (count.saturating_add(1), places.saturating_add(place));
        } else {
            (count, places) = (count.saturating_sub(1), places.saturating_sub(place));
        }
        since_ns = time_ns;
        next.extend(edge(place, number.saturating_add(1)));
    }
    (all, tenants.iter().map(|t| t.0).zip(only).collect())
}

/// Time that both cover.
pub(crate) fn common(a: &Union, b: &Union) -> Union {
    let (few, many) = if a.spans().len() <= b.spans().len() { (a, b) } else { (b, a) };
    let mut out = Union::default();
    let mut next = 0;
    for (start, end) in few.spans() {
        let rest = many.spans().get(next..).unwrap_or_default();
        // A few spans are looked up in many, as many are walked through.
        let skipped = match rest.get(8) {
            Some(ahead) if ahead.1 <= *start => rest.partition_point(|s| s.1 <= *start),
            _ => rest.iter().take_while(|s| s.1 <= *start).count(),
        };
        next = next.saturating_add(skipped);
        for (from, to) in many.spans().get(next..).unwrap_or_default().iter().take_while(|s| s.0 < *end) {
            out.add((*from).max(*start), (*to).min(*end));
        }
    }
    out
}

/// When each tenant of a device could run its work.
#[derive(Debug, Default)]
pub(crate) struct Present {
    /// By tenant, in order.
    each: Vec<(u32, Arc<Union>)>,
    /// Of more than [`MANY_TENANTS`]: their spans by start, with the place in `each`.
    spans: Vec<(i64, i64, u32)>,
    /// Of each span and those before it the latest end.
    latest_ns: Vec<i64>,
}

impl Present {
    /// Those that have any time.
    pub fn of(each: impl IntoIterator<Item = (u32, Arc<Union>)>) -> Self {
        let mut each: Vec<_> = each.into_iter().filter(|one| one.1.total_ns() > 0).collect();
        each.sort_by_key(|one| one.0);
        let mut spans = Vec::new();
        if each.len() > MANY_TENANTS {
            for (place, (_, union)) in (0_u32..).zip(&each) {
                spans.extend(union.spans().iter().map(|(start, end)| (*start, *end, place)));
            }
            spans.sort();
        }
        let latest = |latest_ns: &mut i64, span: &(i64, i64, u32)| {
            *latest_ns = span.1.max(*latest_ns);
            Some(*latest_ns)
        };
        let latest_ns = spans.iter().scan(i64::MIN, latest).collect();
        Self { each, spans, latest_ns }
    }

    /// Spans that have a part of [start, end), with the place of their tenant.
    fn near(&self, start_ns: i64, end_ns: i64) -> impl Iterator<Item = &(i64, i64, u32)> {
        let behind = self.spans.partition_point(|s| s.0 < end_ns);
        let first = self.latest_ns.get(..behind).unwrap_or_default().partition_point(|t| *t <= start_ns);
        self.spans.get(first..behind).unwrap_or_default().iter().filter(move |s| s.1 > start_ns)
    }

    /// Tenants that can have been there in any of these times, but for one, in order.
    pub fn during(&self, times: impl Iterator<Item = (i64, i64)>, but: u32) -> Vec<(u32, &Union)> {
        let one = |(id, union): &(u32, Arc<Union>)| *id != but && union.total_ns() > 0;
        if self.spans.is_empty() {
            return self.each.iter().filter(|t| one(t)).map(|(id, union)| (*id, &**union)).collect();
        }
        let places: BTreeSet<u32> = times.flat_map(|(from, to)| self.near(from, to)).map(|s| s.2).collect();
        let there = places.into_iter().filter_map(|place| self.each.get(place as usize));
        there.filter(|t| one(t)).map(|(id, union)| (*id, &**union)).collect()
    }

    /// Who but one was there longest inside [start, end), and how long, where `ran` covers the time; of those that were
    /// there as long the first.
    pub fn longest(&self, start_ns: i64, end_ns: i64, ran: Option<&Union>, but: u32) -> Option<(u32, i64)> {
        let mut all: NumberMap<u32, i64> = NumberMap::default();
        if self.spans.is_empty() {
            for (id, union) in self.each.iter().filter(|one| one.0 != but) {
                let ns = match ran {
                    Some(ran) => ran.common_within_ns(union, start_ns, end_ns),
                    None => union.covered_ns(start_ns, end_ns),
                };
                all.insert(*id, ns);
            }
        }
        for (from, to, place) in self.near(start_ns, end_ns) {
            let Some((id, _)) = self.each.get(*place as usize).filter(|one| one.0 != but) else { continue };
            let (from, to) = ((*from).max(start_ns), (*to).min(end_ns));
            let ns = ran.map_or_else(|| to.saturating_sub(from), |ran| ran.covered_ns(from, to));
            let sum = all.entry(*id).or_default();
            *sum = sum.saturating_add(ns);
        }
        let some = all.into_iter().filter(|one| one.1 > 0);
        some.max_by_key(|(id, ns)| (*ns, Reverse(*id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some tenants' times of a hundred, drawn.
    fn drawn(seed: u64, tenants: u32) -> Vec<(u32, Arc<Union>)> {
        let mut state = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = |below: i64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            i64::try_from(state >> 33).unwrap() % below
        };
        (0..tenants)
            .map(|id| {
                let spans: Vec<_> = (0..draw(5)).map(|_| (draw(100), draw(20))).collect();
                (3 * id, Arc::new(Union::of(spans.into_iter().map(|(from, length)| (from, from + length)))))
            })
            .collect()
    }

    fn at(union: &Union, time: i64) -> bool {
        union.covered_ns(time, time + 1) > 0
    }

    #[test]
    fn others_are_where_anybody_else_is() {
        for seed in 0..60 {
            let tenants = drawn(seed, u32::try_from(seed % 7).unwrap());
            let each = Others::of_each(&tenants);
            let ran = drawn(seed + 1000, 1).remove(0).1;
            for (id, union) in &tenants {
                let others = &each[id];
                let there = |time: i64| tenants.iter().any(|other| other.0 != *id && at(&other.1, time));
                let within = others.within(&ran);
                let mut walk = OthersWalk::default();
                for from in -1..121 {
                    let counted = (from..from + 9).filter(|time| there(*time)).count() as i64;
                    assert_eq!(
                        others.covered_ns(from, from + 9),
                        counted,
                        "seed {seed}, {id} at {from}, {union:?}"
                    );
                    assert_eq!(
                        walk.covered_ns(others, from, from + 9),
                        counted,
                        "seed {seed}, {id} at {from}"
                    );
                    let counted =
                        (from..from + 9).filter(|time| there(*time) && at(&ran, *time)).count() as i64;
                    assert_eq!(within.covered_ns(from, from + 9), counted, "seed {seed}, {id} at {from}");
                    let last = (-1..=from).rev().find(|time| there(*time - 1));
                    assert_eq!(others.last_ns(from), last, "seed {seed}, {id} before {from}");
                }
                assert_eq!(others.total_ns(), (-1..130).filter(|time| there(*time)).count() as i64);
            }
        }
    }

    #[test]
    fn whoever_was_there_longest_is_found_among_few_and_many() {
        for seed in 0..40 {
            // The same tenants, and beside them as many that were there later.
            let few = drawn(seed, 9);
            let later = (0..100).map(|n| (1000 + n, Arc::new(Union::of([(500 + i64::from(n), 900)]))));
            let many = Present::of(few.iter().cloned().chain(later));
            let few = Present::of(few);
            assert!(few.spans.is_empty() && !many.spans.is_empty());
            let ran = drawn(seed + 1000, 1).remove(0).1;
            for from in 0..120 {
                for ran in [None, Some(&*ran)] {
                    assert_eq!(few.longest(from, from + 11, ran, 6), many.longest(from, from + 11, ran, 6));
                }
                let met: Vec<u32> =
                    many.during([(from, from + 11)].into_iter(), 6).iter().map(|o| o.0).collect();
                let counted = few.each.iter().filter(|o| o.0 != 6 && o.1.covered_ns(from, from + 11) > 0);
                assert_eq!(met, counted.map(|o| o.0).collect::<Vec<_>>());
            }
        }
    }
}
