//! Which host threads of a process wait for one another.
//!
//! Threads give work to one another without a call of CUDA: a main thread joins its workers, that of PyTorch waits while the
//! thread of autograd launches the backward pass:
//!
//! ```text
//!   main       |la|la|la|                |la|sync|
//!   autograd             |la|la|la|la|la|
//! ```
//!
//! If the device had been done earlier for one of them, the other would have gone on earlier as well. No record says who
//! waits for whom. Threads that work independently of one another call at the same times; those that wait for one another do not.
//!
//! The driver is one more thread: a program may let it call back when a stream has come so far (JAX waits for results
//! like that). Of such a call only the moment is known, at which the work before it in the stream was done.

use std::collections::BTreeMap;

use crate::base::hardware::{MOSTLY, PAUSE_NS, SOON_PART};
use crate::base::maps::NumberMap;
use crate::table::calls::{Call, Calls};

/// The thread of the driver's calls back.
pub(crate) const DRIVER: u32 = u32::MAX;
/// Changes between two threads: at which the one may have waited for the other, and others.
type Changes = BTreeMap<(u32, u32), [u32; 2]>;

/// Whom threads wait for.
#[derive(Debug)]
pub(crate) struct ThreadWaits {
    /// None: there is one thread.
    changes: Option<Changes>,
    seen: Seen,
}

/// What has been seen of calls, which come by their start.
#[derive(Debug, Default)]
struct Seen {
    /// Of each thread the end of its last call, and the start of the call after that, of whatever thread.
    threads: NumberMap<u32, (i64, Option<i64>)>,
    /// The thread whose call ended last, and that end.
    last: Option<(u32, i64)>,
    caller: Option<u32>,
}

/// How a thread comes to call.
enum Change {
    None,
    /// It begins, after calls of that thread.
    Begins(u32),
    /// It was idle while others worked, and that thread was the last of them.
    GoesOn(u32),
    /// It works beside that thread, or begins again long after it.
    Otherwise(u32),
}

impl Seen {
    fn next(&mut self, call: &Call) -> Change {
        if let Some((_, next_ns)) = self.caller.and_then(|caller| self.threads.get_mut(&caller)) {
            next_ns.get_or_insert(call.start_ns);
        }
        let before = self.threads.insert(call.thread, (call.end_ns, None));
        let found = match (self.last, before) {
            (Some((thread, _)), _) if thread == call.thread => Change::None,
            (Some((thread, _)), None) => Change::Begins(thread),
            (Some((thread, end_ns)), Some((own_end_ns, Some(first_ns)))) => {
                let idle_ns = call.start_ns.saturating_sub(own_end_ns);
                let apart = end_ns <= call.start_ns && own_end_ns <= first_ns;
                let late_ns = call.start_ns.saturating_sub(end_ns);
                if apart && idle_ns > PAUSE_NS && late_ns.saturating_mul(SOON_PART) <= idle_ns {
                    Change::GoesOn(thread)
                } else {
                    Change::Otherwise(thread)
                }
            }
            _ => Change::None,
        };
        if self.last.is_none_or(|(_, end_ns)| call.end_ns >= end_ns) {
            self.last = Some((call.thread, call.end_ns));
        }
        self.caller = Some(call.thread);
        found
    }
}

fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

fn changes(calls: impl Iterator<Item = Call>) -> Changes {
    let mut changes = Changes::new();
    let mut seen = Seen::default();
    for call in calls {
        let (thread, place) = match seen.next(&call) {
            // The driver calls back whatever threads do.
            _ if call.thread == DRIVER => continue,
            Change::GoesOn(thread) => (thread, 0),
            Change::Otherwise(thread) => (thread, 1),
            Change::None | Change::Begins(_) => continue,
        };
        if let Some(slot) = changes.entry(pair(thread, call.thread)).or_default().get_mut(place) {
            *slot = slot.saturating_add(1);
        }
    }
    changes
}

/// The driver's call back at a moment.
pub(crate) fn called_back(ns: i64) -> Call {
    Call {
        start_ns: ns,
        end_ns: ns,
        thread: DRIVER,
        waits: false,
        noticed_within_ns: 0,
        stream_waits: false,
        calls_back: false,
    }
}

/// Two lists of calls, each in order of their start, as one.
fn merged(a: impl Iterator<Item = Call>, b: impl Iterator<Item = Call>) -> impl Iterator<Item = Call> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(one), Some(other)) if one.start_ns < other.start_ns => a.next(),
        (_, Some(_)) => b.next(),
        _ => a.next(),
    })
}

impl ThreadWaits {
    /// Whom threads wait for, from their calls and the moments of the driver's calls back, in order.
    pub fn of(calls: &Calls, called_back_ns: &[i64]) -> Self {
        let several = calls.has_several_threads() || !called_back_ns.is_empty();
        let all = || merged(calls.iter(), called_back_ns.iter().map(|ns| called_back(*ns)));
        Self { changes: several.then(|| changes(all())), seen: Seen::default() }
    }

    /// The thread that this call's one waited for before it; calls are asked for in order of their start.
    pub fn before(&mut self, call: &Call) -> Option<u32> {
        let changes = self.changes.as_ref()?;
        match self.seen.next(call) {
            Change::Begins(thread) => Some(thread),
            Change::GoesOn(thread) => {
                let [waited, otherwise] = *changes.get(&pair(thread, call.thread))?;
                (otherwise.saturating_mul(MOSTLY) <= waited).then_some(thread)
            }
            Change::None | Change::Otherwise(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of (thread, start, length) in us; gives the thread that each waited for.
    fn waited_for(calls: &[(u32, i64, i64)]) -> Vec<Option<u32>> {
        let mut list: Vec<Call> = calls
            .iter()
            .map(|&(thread, start, length)| Call {
                start_ns: start * 1_000,
                end_ns: (start + length) * 1_000,
                thread,
                waits: false,
                noticed_within_ns: 0,
                stream_waits: false,
                calls_back: false,
            })
            .collect();
        list.sort_by_key(|call| call.start_ns);
        let changes = Some(changes(list.iter().copied()));
        let mut thread_waits = ThreadWaits { changes, seen: Seen::default() };
        list.iter().map(|call| thread_waits.before(call)).collect()
    }

    /// Launches of a thread, one each 100 us.
    fn launches(thread: u32, from: i64, to: i64) -> Vec<(u32, i64, i64)> {
        (from..to).step_by(100).map(|at| (thread, at, 10)).collect()
    }

    #[test]
    fn a_thread_that_was_idle_while_another_worked_waited_for_it() {
        // Forward, backward, forward, backward, each 1 ms; the second thread begins with the first backward pass.
        let steps: Vec<_> = (0..4)
            .flat_map(|n| {
                launches(n % 2, 0, 1_000).into_iter().map(move |(t, at, l)| (t, at + 1_000 * i64::from(n), l))
            })
            .collect();
        let found = waited_for(&steps);
        let expected = |n: usize| match n {
            10 | 30 => Some(0),
            20 => Some(1),
            _ => None,
        };
        assert_eq!(found, (0..40).map(expected).collect::<Vec<_>>());
    }

    #[test]
    fn a_main_thread_that_joins_two_workers_waited_for_the_last() {
        // It slept before it started them.
        let mut calls = vec![(0, -20_000, 10)];
        calls.extend(launches(1, 500, 5_000));
        calls.extend(launches(2, 520, 5_000));
        calls.push((0, 5_100, 10));
        let found = waited_for(&calls);
        assert_eq!(found.last(), Some(&Some(2)));
        // Workers begin after who started them, and go on by themselves.
        assert_eq!(found[..3], [None, Some(0), Some(1)]);
        assert!(found[3..found.len() - 1].iter().all(Option::is_none));
    }

    #[test]
    fn threads_that_work_at_the_same_times_do_not_wait_for_each_other() {
        // The second thread works for 600 us, then sleeps for 2 ms; the first one works all the time.
        let mut calls = launches(0, 0, 26_000);
        for n in 0..10 {
            calls.extend(launches(1, 2_600 * n + 30, 2_600 * n + 630));
        }
        let found = waited_for(&calls);
        assert_eq!(found.iter().flatten().count(), 1);
        // Nor where a thread goes on long after the other one.
        let often: Vec<_> =
            (0..10).flat_map(|n| [(0, 10_000 * n, 10), (1, 10_000 * n + 4_000, 10)]).collect();
        assert_eq!(waited_for(&often).iter().flatten().count(), 1);
    }
}
