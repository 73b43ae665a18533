//! The next event of a simulation, over few sources.
//!
//! A simulation has few sources of events (hosts, queues in which operations arrive in order, engines), and of each
//! only the next event matters. So this is a tournament tree over the sources instead of a heap of events: a changed
//! entry replays its few matches, and an event that is no longer due is overwritten.

use crate::base::picoseconds::Ps;

/// Time, then the order in which things were planned, then who.
type Entry = (Ps, u64, u32);

/// Nothing planned.
const NEVER: Entry = (Ps::MAX, u64::MAX, u32::MAX);

/// The nearest event of every source.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// A tree: the winner of all at 1, of the two halves at 2 and 3, the sources themselves from `width` on.
    tree: Vec<Entry>,
    width: usize,
}

impl Agenda {
    /// For so many sources, none of which plans anything yet.
    pub(crate) fn new(sources: usize) -> Self {
        let width = sources.next_power_of_two().max(1);
        Self { tree: vec![NEVER; width.saturating_mul(2)], width }
    }

    /// A source's nearest event is at this time; of two at the same time the one with the smaller `order` comes first.
    pub(crate) fn set(&mut self, source: usize, time: Ps, order: u64) {
        let who = u32::try_from(source).unwrap_or(u32::MAX);
        self.put(source, (time, order, who));
    }

    /// A source plans nothing.
    pub(crate) fn clear(&mut self, source: usize) {
        self.put(source, NEVER);
    }

    /// The nearest event of all: when, and whose. It stays until its source sets or clears it.
    pub(crate) fn next(&self) -> Option<(Ps, usize)> {
        let (time, _, who) = *self.tree.get(1)?;
        (who != u32::MAX).then_some((time, who as usize))
    }

    fn put(&mut self, source: usize, entry: Entry) {
        let mut at = self.width.saturating_add(source);
        if let Some(slot) = self.tree.get_mut(at) {
            *slot = entry;
        }
        while at > 1 {
            let (Some(a), Some(b)) = (self.tree.get(at), self.tree.get(at ^ 1)) else { return };
            let winner = *a.min(b);
            at /= 2;
            if let Some(slot) = self.tree.get_mut(at) {
                *slot = winner;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_nearest_comes_first_and_equals_in_order() {
        let mut agenda = Agenda::new(3);
        assert_eq!(agenda.next(), None);
        agenda.set(0, 50, 1);
        agenda.set(2, 40, 3);
        agenda.set(1, 40, 2);
        assert_eq!(agenda.next(), Some((40, 1)));
        agenda.set(1, 60, 4);
        assert_eq!(agenda.next(), Some((40, 2)));
        agenda.clear(2);
        assert_eq!(agenda.next(), Some((50, 0)));
        // A single source has no match to play.
        let mut one = Agenda::new(1);
        one.set(0, 7, 1);
        assert_eq!(one.next(), Some((7, 0)));
    }

    proptest! {
        #[test]
        fn it_is_the_least_of_all(n in 1_usize..20, changes in prop::collection::vec((0_usize..20, prop::option::of(0_i64..50)), 1..60)) {
            let mut agenda = Agenda::new(n);
            let mut plain: Vec<Option<(Ps, u64)>> = vec![None; n];
            for (order, (source, time)) in (0_u64..).zip(changes) {
                let source = source % n;
                match time {
                    Some(time) => agenda.set(source, time, order),
                    None => agenda.clear(source),
                }
                plain[source] = time.map(|t| (t, order));
                let least = plain.iter().enumerate().filter_map(|(n, e)| e.map(|e| (e, n))).min();
                prop_assert_eq!(agenda.next(), least.map(|((time, _), n)| (time, n)));
            }
        }
    }
}
