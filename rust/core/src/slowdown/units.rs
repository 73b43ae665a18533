//! Compare how long units of work (requests, iterations) took with how long they take solo.
//!
//! A unit lasts from its begin to its own end, or to the end of what was launched in it. Where a thread serves requests one
//! after the other, one that arrives before that has waits in the queue of the host first. Solo each is served sooner, and
//! waits for less:
//!
//! ```text
//!   arrives    1   2  3
//!   shared     |===1===||===2===||===3===|
//!   solo       |=1=||=2=||=3=|
//! ```
//!
//! Its solo begin is the later of its arrival and the solo end of the one before it (Lindley's recursion). What arrives
//! where another one has just ended comes from a client that waits for answers: its solo arrival is not known.

use crate::base::hardware::{PAUSE_NS, WAKE_NS};
use crate::base::maps::NumberMap;
use crate::base::statistics::quantile;
use crate::slowdown::compare::{Doubt, Figure, ENOUGH, PERCENTILES};
use crate::slowdown::counterfactual::Reference;
use crate::slowdown::operations::{Op, Tenancy};
use crate::slowdown::ranges::Range;

/// Figures of the units of one name.
#[derive(Debug)]
pub(crate) struct UnitFigures {
    pub name: String,
    pub figures: Vec<Figure>,
    /// Their solo times are those of a model of the host's queue, whatever their operations are held against.
    pub modelled: bool,
}

/// A unit, and when its host began with it.
#[derive(Debug, Clone, Copy)]
struct Served {
    unit: Range,
    from_ns: i64,
}

impl Served {
    /// Whether it waited for the one before it; marks of units that follow one another may overlap a little.
    fn waited(&self) -> bool {
        self.from_ns.saturating_sub(self.unit.start_ns) > WAKE_NS
    }
}

/// How units of one name came to their host.
#[derive(Debug)]
enum Service {
    /// None began before the one before it had ended.
    Apart(Vec<Served>),
    /// Some waited for the one before them.
    Queued(Vec<Served>),
    /// Some waited, most of these from when another one had ended.
    ClosedLoop,
    /// Several at once, in a way that nobody knows.
    AtOnce(Vec<Served>),
}

type ThreadOf<'a> = &'a dyn Fn(&Op) -> Option<u32>;

/// Operations of a tenant launched from one moment until before another, by that thread where one is given.
fn launched<'a>(
    tenant: &'a Tenancy,
    thread_of: ThreadOf<'a>,
    thread: Option<u32>,
    (from_ns, until_ns): (i64, i64),
) -> impl Iterator<Item = (usize, Op)> + 'a {
    let from = tenant.ops.partition_point(|op| op.launch_ns < from_ns);
    let inside = (from..).zip(tenant.ops.from(from)).take_while(move |(_, op)| op.launch_ns < until_ns);
    inside.filter(move |(_, op)| thread.is_none() || thread_of(op) == thread)
}

impl Service {
    fn of(tenant: &Tenancy, thread_of: ThreadOf<'_>, units: &[Range]) -> Self {
        let mut units = units.to_vec();
        units.sort_by_key(|unit| (unit.start_ns, unit.end_ns));
        let apart = |unit: &Range| Served { unit: *unit, from_ns: unit.start_ns };
        // Of each thread that units are of: the end of its last unit, and the thread that launches in them.
        let mut threads: NumberMap<u32, (i64, Option<u32>)> = NumberMap::default();
        let (mut served, mut waited, mut at_ends) = (Vec::with_capacity(units.len()), 0_usize, 0_usize);
        let mut ends: Vec<i64> = units.iter().map(|unit| unit.end_ns).collect();
        ends.sort_unstable();
        let mut in_turn = true;
        for unit in &units {
            let key = unit.thread.unwrap_or(u32::MAX);
            let (ended_ns, launches) = threads.entry(key).or_insert((i64::MIN, None));
            let from_ns = unit.start_ns.max(*ended_ns);
            let waits = Served { unit: *unit, from_ns }.waited();
            let mut ops = launched(tenant, thread_of, unit.thread, (from_ns, unit.end_ns)).peekable();
            // It would have launched its work at once if it had not waited.
            in_turn &= unit.end_ns >= *ended_ns && !(waits && ops.peek().is_none());
            for (_, op) in ops {
                let thread = thread_of(&op);
                in_turn &= launches.is_none_or(|launches| Some(launches) == thread);
                *launches = thread;
            }
            if waits {
                waited += 1;
                let before = ends.partition_point(|end_ns| *end_ns <= unit.start_ns);
                let last_ns = before.checked_sub(1).and_then(|place| ends.get(place));
                at_ends +=
                    usize::from(last_ns.is_some_and(|ns| unit.start_ns.saturating_sub(*ns) < PAUSE_NS));
            }
            *ended_ns = unit.end_ns.max(*ended_ns);
            served.push(Served { unit: *unit, from_ns });
        }
        if waited == 0 {
            Self::Apart(served)
        } else if !in_turn {
            Self::AtOnce(units.iter().map(apart).collect())
        } else if at_ends * 2 > waited {
            Self::ClosedLoop
        } else {
            Self::Queued(served)
        }
    }
}

/// How long units of work took as recorded, those with operations: from their begin to their end, or that of the last
/// operation launched inside.
pub(crate) fn measured_units(tenant: &Tenancy, thread_of: ThreadOf<'_>, units: &[Range]) -> Vec<f64> {
    let took = |unit: &Range| {
        let inside = launched(tenant, thread_of, unit.thread, (unit.start_ns, unit.end_ns));
        let last = inside.map(|(_, op)| op.end_ns).max()?;
        Some(last.max(unit.end_ns).saturating_sub(unit.start_ns) as f64)
    };
    units.iter().filter_map(took).collect()
}

/// What one unit took from when its host began with it.
struct Took {
    /// As recorded, from its begin on.
    shared_ns: i64,
    solo_ns: i64,
    /// Until the host could begin with the next one.
    host_solo_ns: i64,
}

/// `Err`: not known. `Ok(None)`: it launched nothing.
fn took(
    tenant: &Tenancy,
    solo: &impl Reference,
    thread_of: ThreadOf<'_>,
    Served { unit, from_ns }: Served,
) -> Result<Option<Took>, ()> {
    let mut seen: Option<[i64; 3]> = None;
    for (n, op) in launched(tenant, thread_of, unit.thread, (from_ns, unit.end_ns)) {
        // It was launched before any unit that lies in the window.
        if op.early {
            continue;
        }
        let known = solo.of(n).filter(|_| !op.cut());
        let (a, launch_ns) = known.and_then(|a| Some((a, a.launch_ns?))).ok_or(())?;
        // What its host did before the first launch takes as long solo.
        let begin_ns = launch_ns.saturating_sub(op.launch_ns.saturating_sub(from_ns));
        let [begin_ns, last_ns, last_solo_ns] = seen.unwrap_or([begin_ns, i64::MIN, i64::MIN]);
        let end_solo_ns = launch_ns.saturating_add(a.latency_ns);
        seen = Some([begin_ns, last_ns.max(op.end_ns), last_solo_ns.max(end_solo_ns)]);
    }
    Ok(seen.map(|[begin_ns, last_ns, last_solo_ns]| {
        let rest_ns = unit.end_ns.saturating_sub(last_ns);
        let solo_ns = last_solo_ns.saturating_add(rest_ns.max(0)).saturating_sub(begin_ns);
        Took {
            shared_ns: last_ns.max(unit.end_ns).saturating_sub(unit.start_ns),
            solo_ns,
            // A host that does not wait for its work is not held up by it.
            host_solo_ns: if rest_ns < 0 { unit.end_ns.saturating_sub(from_ns) } else { solo_ns },
        }
    }))
}

/// Times of those units whose solo times are known, shared and solo; of others that began behind them nothing is known.
fn times(
    tenant: &Tenancy,
    solo: &impl Reference,
    thread_of: ThreadOf<'_>,
    served: &[Served],
) -> [Vec<f64>; 2] {
    let mut out = [Vec::new(), Vec::new()];
    // Of each thread that units are of: when it is done solo with the unit before; none: not known.
    let mut done: NumberMap<u32, Option<i64>> = NumberMap::default();
    for one in served {
        let done_ns = done.entry(one.unit.thread.unwrap_or(u32::MAX)).or_insert(None);
        // What did not wait as recorded would not have waited solo.
        if !one.waited() {
            *done_ns = Some(one.unit.start_ns);
        }
        let begin_ns = done_ns.map(|done_ns| done_ns.max(one.unit.start_ns));
        let found = took(tenant, solo, thread_of, *one);
        let host_ns = match &found {
            Ok(Some(took)) => Some(took.host_solo_ns),
            Ok(None) => Some(one.unit.end_ns.saturating_sub(one.from_ns)),
            Err(()) => None,
        };
        if let (Ok(Some(took)), Some(begin_ns)) = (found, begin_ns) {
            out[0].push(took.shared_ns as f64);
            out[1].push(begin_ns.saturating_sub(one.unit.start_ns).saturating_add(took.solo_ns) as f64);
        }
        *done_ns = begin_ns.zip(host_ns).map(|(begin_ns, host_ns)| begin_ns.saturating_add(host_ns));
    }
    out
}

/// Latency of units of work of one name against the same ones solo: as `measured` there, or else from their operations.
pub(crate) fn units(
    tenant: &Tenancy,
    solo: &impl Reference,
    thread_of: ThreadOf<'_>,
    name: &str,
    units: &[Range],
    measured: Option<Vec<f64>>,
    doubt: &Doubt,
) -> UnitFigures {
    let (times, modelled) = match (measured, Service::of(tenant, thread_of, units)) {
        (Some(measured), _) => ([measured_units(tenant, thread_of, units), measured], false),
        (None, Service::Apart(served)) => (times(tenant, solo, thread_of, &served), false),
        (None, Service::Queued(served)) => (times(tenant, solo, thread_of, &served), true),
        // Which of them an operation is of is known where they are of threads.
        (None, Service::AtOnce(served)) => {
            (times(tenant, solo, thread_of, &served), units.iter().any(|unit| unit.thread.is_none()))
        }
        (None, Service::ClosedLoop) => ([Vec::new(), Vec::new()], true),
    };
    UnitFigures { name: name.to_owned(), figures: figures(times, doubt), modelled }
}

fn figures([mut shared, mut without]: [Vec<f64>; 2], doubt: &Doubt) -> Vec<Figure> {
    let n = shared.len();
    let solo_ns = without.iter().sum::<f64>() * n as f64 / without.len().max(1) as f64;
    let shared_ns = shared.iter().sum::<f64>();
    if n == 0 || solo_ns <= 0.0 {
        return Vec::new();
    }
    shared.sort_by(f64::total_cmp);
    without.sort_by(f64::total_cmp);
    let value = shared_ns / solo_ns;
    let bounds = doubt.of_units(value).filter(|_| n >= ENOUGH);
    let mut out = vec![Figure { measure: "latency", value, bounds, n, shared_ns, solo_ns }];
    for (measure, part) in PERCENTILES {
        if let (Some(a), Some(b)) = (quantile(&shared, part), quantile(&without, part)) {
            if b > 0.0 {
                out.push(Figure { measure, value: a / b, bounds: None, n, shared_ns: a, solo_ns: b });
            }
        }
    }
    out
}
