//! Find units of work: requests, iterations, steps.
//!
//! In this order, per tenant: units that a caller gave (rows of `nvtx` without a thread), NVTX ranges, whole-graph
//! launches, and launches between the returns of two synchronisations of a thread. Of NVTX ranges those of one name are
//! taken, of graphs all, of synchronisations the sequences of operations that repeat.
//!
//! A unit lasts from its begin to the end of the last operation launched inside it, or to its own end where that is
//! later. An operation belongs to a unit if its launch lies inside, on the unit's thread where it has one.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::error::Result;
use crate::base::maps::NumberMap;
use crate::base::watch::Watch;
use crate::slowdown::operations::{Op, Scene, Signatures, Tenancy};
use crate::slowdown::ranges::{named_ranges, NamedRanges, Range};
use crate::slowdown::ENOUGH_UNITS;
use crate::table::calls::Calls;
use crate::table::events::Tables;
use crate::table::tenant_lookup::Process;
use crate::table::work::WorkKind;

/// From so many ranges of one name on it is taken rather than one with fewer: percentiles need them.
const MANY_UNITS: usize = 20;
/// Names whose ranges hold at least this part of the launches that any name's hold are as good as that one.
const AS_GOOD: f64 = 0.95;
/// Part of the time of its operations that ranges of a name, or a sequence that repeats, must hold to be the units of a
/// tenant that nobody named: those of the exchange between ranks, say, hold many short copies and none of the work.
const LEAST_TIME: f64 = 0.1;
/// Part of the launches of a tenant that its graphs must hold to be its units.
const MOSTLY: f64 = 0.5;
/// More names of ranges than this are not compared.
const MOST_NAMES: usize = 10_000;

/// How units were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitSource {
    /// Rows that the caller gave.
    Given,
    /// NVTX ranges of one name.
    Range,
    /// Launches of whole graphs.
    Graph,
    /// Launches between the returns of two synchronisations, where they repeat.
    Synchronisation,
}

impl UnitSource {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Given, Self::Range, Self::Graph, Self::Synchronisation];

    /// As in the table `units`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Range => "nvtx",
            Self::Graph => "graph",
            Self::Synchronisation => "synchronisation",
        }
    }
}

/// What units a caller wants.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Only ranges of this name: as it is, or with `#` for each number in it.
    pub name: Option<String>,
    /// First and last time, where the session is a part of a capture: what crosses them was cut there.
    pub window: Option<(i64, i64)>,
    /// Devices on which tenants run that no record of this machine shows: virtual GPUs.
    pub others_unseen: BTreeSet<u32>,
}

/// A unit of work of one tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    pub source: UnitSource,
    /// A place in the list of names.
    pub name: u32,
    /// Only operations that this thread launched; none: of any.
    pub thread: Option<u32>,
    /// The thread that launched its first operation.
    pub main_thread: Option<u32>,
    pub start_ns: i64,
    /// End of its range; operations launched later are not its own.
    pub range_end_ns: i64,
    /// End of its last operation, or of its range where that is later.
    pub end_ns: i64,
    /// Operations in it.
    pub operations: u32,
    /// Of those, without a launch call in the capture.
    pub without_call: u32,
    /// The operation that ended last, a place among the tenant's.
    pub last: u32,
}

impl Unit {
    /// Whether an operation was launched inside it.
    pub fn has(&self, op: &Op, thread: Option<u32>) -> bool {
        op.launch_ns >= self.start_ns
            && op.launch_ns <= self.range_end_ns
            && may_launch(self.thread, op, thread)
    }
}

/// Whether a range of one thread (none: of all) may hold an operation that another launched (none: not known which).
fn may_launch(of: Option<u32>, op: &Op, thread: Option<u32>) -> bool {
    of.is_none() || thread == of || op.call().is_none()
}

/// Ranges of each process by name; given ones apart.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    given: BTreeMap<String, Vec<Range>>,
    recorded: BTreeMap<String, Vec<Range>>,
}

/// Each number in a text as one `#`.
fn pattern(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

/// Reads `nvtx`. Names that too few ranges have count under what they have in common with others but for numbers.
pub(crate) fn ranges(
    tables: &Tables,
    choice: &Choice,
    watch: &dyn Watch,
) -> Result<BTreeMap<Process, Ranges>> {
    let mut out: BTreeMap<Process, Ranges> = BTreeMap::new();
    let wanted = |name: &str| choice.name.as_deref().is_none_or(|n| n == name || n == pattern(name));
    for NamedRanges { process, name, ranges } in named_ranges(tables, choice.window, wanted, watch)? {
        let (given, recorded): (Vec<Range>, Vec<Range>) =
            ranges.into_iter().partition(|range| range.thread.is_none());
        let of = out.entry(process).or_default();
        let shown =
            if recorded.is_empty() || recorded.len() >= ENOUGH_UNITS { name.clone() } else { pattern(&name) };
        for (of, name, mut found) in [(&mut of.given, name, given), (&mut of.recorded, shown, recorded)] {
            if !found.is_empty() && (of.len() < MOST_NAMES || of.contains_key(&name)) {
                of.entry(name).or_default().append(&mut found);
            }
        }
    }
    for found in out.values_mut().flat_map(|of| of.given.values_mut().chain(of.recorded.values_mut())) {
        found.sort_by_key(|r| (r.start_ns, r.end_ns));
    }
    Ok(out)
}

/// Units of one tenant, by begin, and their names.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub units: Vec<Unit>,
    pub names: Vec<String>,
}

/// Finds the units of a tenant whose operations stand by launch.
pub(crate) fn find(
    scene: &Scene,
    tenant: &Tenancy,
    ranges: Option<&Ranges>,
    signatures: &Signatures,
    choice: &Choice,
) -> Found {
    let calls = scene.calls.get(&tenant.process);
    let given = ranges.map(|r| &r.given).filter(|r| !r.is_empty());
    let mut found = Found::default();
    if let Some(given) = given {
        for (name, list) in given {
            found.add(tenant, calls, UnitSource::Given, name, list);
        }
    } else if let Some((name, list)) =
        ranges.and_then(|r| best(tenant, calls, &r.recorded, choice.name.is_some()))
    {
        found.add(tenant, calls, UnitSource::Range, name, list);
    }
    if found.units.is_empty() && choice.name.is_none() {
        found = of_graphs(tenant, calls, signatures).unwrap_or_default();
    }
    if found.units.is_empty() && choice.name.is_none() {
        found = calls.map(|calls| between_waits(tenant, calls, signatures)).unwrap_or_default();
    }
    if let Some((first, last)) = choice.window {
        found.units.retain(|u| u.start_ns > first && u.end_ns < last);
    }
    found.units.sort_by_key(|u| (u.start_ns, u.end_ns, u.name, u.thread));
    found
}

impl Found {
    /// Takes those of the ranges in which anything was launched.
    fn add(
        &mut self,
        tenant: &Tenancy,
        calls: Option<&Calls>,
        source: UnitSource,
        name: &str,
        list: &[Range],
    ) {
        let place = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        for range in list {
            let unit = Unit {
                source,
                name: place,
                thread: range.thread,
                main_thread: range.thread,
                start_ns: range.start_ns,
                range_end_ns: range.end_ns.max(range.start_ns),
                end_ns: range.end_ns.max(range.start_ns),
                operations: 0,
                without_call: 0,
                last: 0,
            };
            self.units.extend(filled(tenant, calls, unit));
        }
    }
}

/// A unit with what was launched in it; none where nothing was.
fn filled(tenant: &Tenancy, calls: Option<&Calls>, mut unit: Unit) -> Option<Unit> {
    let from = tenant.ops.partition_point(|op| op.launch_ns < unit.start_ns);
    let mut last_ns = i64::MIN;
    for (place, op) in (from..).zip(tenant.ops.from(from)) {
        if op.launch_ns > unit.range_end_ns {
            break;
        }
        if !unit.has(&op, thread_of(calls, &op)) {
            continue;
        }
        unit.main_thread = unit.main_thread.or_else(|| thread_of(calls, &op));
        unit.operations = unit.operations.saturating_add(1);
        unit.without_call = unit.without_call.saturating_add(u32::from(op.call().is_none()));
        if op.end_ns >= last_ns {
            last_ns = op.end_ns;
            unit.last = u32::try_from(place).unwrap_or(u32::MAX);
        }
    }
    unit.end_ns = unit.end_ns.max(last_ns);
    (unit.operations > 0 && unit.end_ns > unit.start_ns).then_some(unit)
}

/// How long an operation lasted.
fn length(op: &Op) -> f64 {
    op.end_ns.saturating_sub(op.start_ns).max(0) as f64
}

/// The thread that launched an operation, as recorded.
pub(crate) fn thread_of(calls: Option<&Calls>, op: &Op) -> Option<u32> {
    calls.and_then(|c| c.thread(op.call()?))
}

/// The name whose ranges hold the launches: of those that hold about as many, one with many ranges, then the longer.
fn best<'a>(
    tenant: &Tenancy,
    calls: Option<&Calls>,
    named: &'a BTreeMap<String, Vec<Range>>,
    asked: bool,
) -> Option<(&'a str, &'a [Range])> {
    let least_ns =
        if asked { 0.0 } else { LEAST_TIME * tenant.ops.iter().map(|op| length(&op)).sum::<f64>() };
    // Of one thread ranges of one name may be nested in each other: each launch counts once.
    let held = |list: &[Range]| {
        let mut ends: BTreeMap<Option<u32>, i64> = BTreeMap::new();
        let (mut count, mut held_ns) = (0_usize, 0.0);
        for range in list {
            let until = ends.entry(range.thread).or_insert(i64::MIN);
            let from_ns = range.start_ns.max(until.saturating_add(1));
            *until = (*until).max(range.end_ns);
            let from = tenant.ops.partition_point(|op| op.launch_ns < from_ns);
            let inside = tenant.ops.from(from).take_while(|op| op.launch_ns <= range.end_ns);
            for op in inside.filter(|op| may_launch(range.thread, op, thread_of(calls, op))) {
                count = count.saturating_add(1);
                held_ns += length(&op);
            }
        }
        if held_ns < least_ns {
            0
        } else {
            count
        }
    };
    let candidates: Vec<(usize, usize, i64, &'a str, &'a [Range])> = named
        .iter()
        .filter(|(_, list)| list.len() >= ENOUGH_UNITS)
        .map(|(name, list)| {
            let total_ns =
                list.iter().fold(0_i64, |sum, r| sum.saturating_add(r.end_ns.saturating_sub(r.start_ns)));
            let mean_ns = total_ns / i64::try_from(list.len()).unwrap_or(1).max(1);
            (held(list), list.len(), mean_ns, name.as_str(), list.as_slice())
        })
        .filter(|(held, ..)| *held > 0)
        .collect();
    let most = candidates.iter().map(|c| c.0).max()?;
    candidates
        .into_iter()
        .filter(|c| c.0 as f64 >= AS_GOOD * most as f64)
        .max_by_key(|c| (c.1 >= MANY_UNITS, c.2, std::cmp::Reverse(c.3)))
        .map(|c| (c.3, c.4))
}

/// Launches of whole graphs, traced as one row each.
fn of_graphs(tenant: &Tenancy, calls: Option<&Calls>, signatures: &Signatures) -> Option<Found> {
    let graphs = tenant.ops.iter().filter(|op| op.kind == WorkKind::Graph).count();
    if graphs < ENOUGH_UNITS || (graphs as f64) < MOSTLY * tenant.ops.len() as f64 {
        return None;
    }
    let mut found = Found::default();
    let mut names: NumberMap<u32, u32> = NumberMap::default();
    for (place, op) in tenant.ops.iter().enumerate().filter(|(_, op)| op.kind == WorkKind::Graph) {
        let name = *names.entry(op.signature).or_insert_with(|| {
            let signature = signatures.list.get(op.signature as usize);
            found.names.push(signature.and_then(|s| s.name.clone()).unwrap_or_else(|| "graph".to_owned()));
            u32::try_from(found.names.len() - 1).unwrap_or(u32::MAX)
        });
        found.units.push(Unit {
            source: UnitSource::Graph,
            name,
            thread: thread_of(calls, &op),
            main_thread: thread_of(calls, &op),
            start_ns: op.launch_ns,
            range_end_ns: op.launch_ns,
            end_ns: op.end_ns,
            operations: 1,
            without_call: u32::from(op.call().is_none()),
            last: u32::try_from(place).unwrap_or(u32::MAX),
        });
    }
    found.units.retain(|u| u.end_ns > u.start_ns);
    Some(found)
}

/// What a thread launched until it waited, where the same sequence of operations came back.
fn between_waits(tenant: &Tenancy, calls: &Calls, signatures: &Signatures) -> Found {
    // By thread: places of operations, by launch.
    let mut launched: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (place, op) in tenant.ops.iter().enumerate() {
        if let (Some(thread), Ok(place)) = (thread_of(Some(calls), &op), u32::try_from(place)) {
            launched.entry(thread).or_default().push(place);
        }
    }
    let least_ns = LEAST_TIME * tenant.ops.iter().map(|op| length(&op)).sum::<f64>();
    // With the time of their operations.
    let mut groups: BTreeMap<Vec<u32>, (Vec<Unit>, f64)> = BTreeMap::new();
    for (thread, waits) in waits_by_thread(calls) {
        let Some(places) = launched.get(&thread) else { continue };
        let ops: Vec<(u32, Op)> =
            places.iter().filter_map(|p| Some((*p, tenant.ops.get(*p as usize)?))).collect();
        let mut next = 0;
        for wait in waits {
            let behind = ops.partition_point(|(_, op)| op.launch_ns <= wait.1);
            let Some(batch) = ops.get(next..behind).filter(|batch| !batch.is_empty()) else { continue };
            next = behind;
            let sequence: Vec<u32> = batch.iter().map(|(_, op)| op.signature).collect();
            let start_ns = batch.iter().map(|(_, op)| op.launch_ns).min().unwrap_or(wait.0);
            let unit = Unit {
                source: UnitSource::Synchronisation,
                name: 0,
                thread: Some(thread),
                main_thread: Some(thread),
                start_ns,
                range_end_ns: wait.1.max(start_ns),
                end_ns: wait.1.max(start_ns),
                operations: 0,
                without_call: 0,
                last: 0,
            };
            if let Some(unit) = filled(tenant, Some(calls), unit) {
                let (units, held_ns) = groups.entry(sequence).or_default();
                units.push(unit);
                *held_ns += batch.iter().map(|(_, op)| length(op)).sum::<f64>();
            }
        }
    }
    let mut found = Found::default();
    let telling = |units: &[Unit], held_ns: f64| units.len() >= ENOUGH_UNITS && held_ns >= least_ns;
    for (sequence, (units, _)) in groups.into_iter().filter(|(_, (units, ns))| telling(units, *ns)) {
        let first = sequence.first().and_then(|s| signatures.list.get(*s as usize));
        let first = first.and_then(|s| s.name.as_deref()).unwrap_or("unnamed");
        let name = u32::try_from(found.names.len()).unwrap_or(u32::MAX);
        found.names.push(match sequence.len() {
            1 => format!("1 operation, {first}"),
            n => format!("{n} operations, first {first}"),
        });
        found.units.extend(units.into_iter().map(|unit| Unit { name, ..unit }));
    }
    found
}

/// Begin and end of the calls of each thread that may wait for the device, by end; a call inside another is part of it.
pub(crate) fn waits_by_thread(calls: &Calls) -> BTreeMap<u32, Vec<(i64, i64)>> {
    let mut out: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.waits) {
        let list = out.entry(call.thread).or_default();
        if list.last().is_none_or(|last| call.start_ns >= last.1) {
            list.push((call.start_ns, call.end_ns));
        }
    }
    out
}
