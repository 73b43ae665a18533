//! Find units of work: requests, iterations, steps.
//!
//! In this order, per tenant: units that a caller gave (rows of `nvtx` without a thread), NVTX ranges, whole-graph
//! launches, and launches between the returns of two synchronisations of a thread. Of NVTX ranges those of one name are
//! taken, of graphs all, of synchronisations the sequences of operations that repeat. A thread that seldom launches such a
//! sequence several times before it waits launched several units: each begins with its own first launch, as all do.
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
    /// Of units between synchronisations: what was launched between two, by begin, and is no unit.
    pub left_out: Vec<Unit>,
    /// Operations of the tenant that are in a unit.
    pub in_units: u32,
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
    for list in [&mut found.units, &mut found.left_out] {
        if let Some((first, last)) = choice.window {
            list.retain(|u| u.start_ns > first && u.end_ns < last);
        }
        list.sort_by_key(|u| (u.start_ns, u.end_ns, u.name, u.thread));
    }
    let mut held = vec![false; tenant.ops.len()];
    for (place, _) in found.units.iter().flat_map(|unit| inside(tenant, calls, unit)) {
        if let Some(held) = held.get_mut(place) {
            *held = true;
        }
    }
    found.in_units = u32::try_from(held.iter().filter(|held| **held).count()).unwrap_or(u32::MAX);
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

/// What was launched in a unit: places of operations.
fn inside<'t>(
    tenant: &'t Tenancy,
    calls: Option<&'t Calls>,
    unit: &Unit,
) -> impl Iterator<Item = (usize, Op)> + 't {
    let unit = *unit;
    let from = tenant.ops.partition_point(|op| op.launch_ns < unit.start_ns);
    (from..)
        .zip(tenant.ops.from(from))
        .take_while(move |(_, op)| op.launch_ns <= unit.range_end_ns)
        .filter(move |(_, op)| unit.has(op, thread_of(calls, op)))
}

/// A unit with what was launched in it; none where nothing was.
fn filled(tenant: &Tenancy, calls: Option<&Calls>, mut unit: Unit) -> Option<Unit> {
    let mut last_ns = i64::MIN;
    for (place, op) in inside(tenant, calls, &unit) {
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

/// What a thread launched until it waited.
struct Batch<'t> {
    thread: u32,
    /// Places of operations, by launch.
    places: &'t [u32],
    /// When the thread had waited.
    until_ns: i64,
}

impl Batch<'_> {
    fn ops<'b>(&'b self, tenant: &'b Tenancy) -> impl Iterator<Item = Op> + 'b {
        self.places.iter().filter_map(|place| tenant.ops.get(*place as usize))
    }

    fn sequence(&self, tenant: &Tenancy) -> Vec<u32> {
        self.ops(tenant).map(|op| op.signature).collect()
    }

    fn unit(&self, tenant: &Tenancy, calls: &Calls) -> Option<Unit> {
        let start_ns = self.ops(tenant).map(|op| op.launch_ns).min()?;
        let until_ns = self.until_ns.max(start_ns);
        let unit = Unit {
            source: UnitSource::Synchronisation,
            name: 0,
            thread: Some(self.thread),
            main_thread: Some(self.thread),
            start_ns,
            range_end_ns: until_ns,
            end_ns: until_ns,
            operations: 0,
            without_call: 0,
            last: 0,
        };
        filled(tenant, Some(calls), unit)
    }

    /// Parts of so many operations, each launched behind the one before and ended behind it: otherwise it is not known
    /// when one ended. Nobody waited for any but the last one.
    fn parts(&self, tenant: &Tenancy, length: usize) -> Option<Vec<Self>> {
        let part = |places| Self { thread: self.thread, places, until_ns: i64::MIN };
        let mut parts: Vec<Self> = self.places.chunks(length).map(part).collect();
        let (mut launched_ns, mut ended_ns) = (i64::MIN, i64::MIN);
        for part in &mut parts {
            let first_ns = part.ops(tenant).map(|op| op.launch_ns).min()?;
            let end_ns = part.ops(tenant).map(|op| op.end_ns).max()?;
            if first_ns <= launched_ns || end_ns <= ended_ns {
                return None;
            }
            (launched_ns, ended_ns) = (part.ops(tenant).map(|op| op.launch_ns).max()?, end_ns);
            part.until_ns = launched_ns;
        }
        parts.last_mut()?.until_ns = self.until_ns;
        Some(parts)
    }
}

/// What threads launched until they waited.
fn batches<'t>(launched: &'t BTreeMap<u32, Vec<u32>>, tenant: &Tenancy, calls: &Calls) -> Vec<Batch<'t>> {
    let mut found = Vec::new();
    for (thread, waits) in waits_by_thread(calls) {
        let mut rest = launched.get(&thread).map_or(&[][..], Vec::as_slice);
        for (_, until_ns) in waits {
            let behind = rest
                .partition_point(|p| tenant.ops.get(*p as usize).is_some_and(|op| op.launch_ns <= until_ns));
            let (places, later) = rest.split_at(behind);
            rest = later;
            if !places.is_empty() {
                found.push(Batch { thread, places, until_ns });
            }
        }
    }
    found
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
    let mut groups: BTreeMap<Vec<u32>, Vec<(Unit, Batch)>> = BTreeMap::new();
    for batch in batches(&launched, tenant, calls) {
        if let Some(unit) = batch.unit(tenant, calls) {
            groups.entry(batch.sequence(tenant)).or_default().push((unit, batch));
        }
    }
    let held_ns = |list: &[(Unit, Batch)]| -> f64 {
        list.iter().flat_map(|(_, batch)| batch.ops(tenant)).map(|op| length(&op)).sum()
    };
    let (telling, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        groups.into_iter().partition(|(_, list)| list.len() >= ENOUGH_UNITS && held_ns(list) >= least_ns);
    let (several, left_out) = several_of(&telling, others, tenant, calls);
    let mut found = Found { left_out, ..Found::default() };
    for (sequence, list) in telling {
        let first = sequence.first().and_then(|s| signatures.list.get(*s as usize));
        let first = first.and_then(|s| s.name.as_deref()).unwrap_or("unnamed");
        let name = u32::try_from(found.names.len()).unwrap_or(u32::MAX);
        found.names.push(match sequence.len() {
            1 => format!("1 operation, {first}"),
            n => format!("{n} operations, first {first}"),
        });
        let waited_for = list.into_iter().map(|(unit, _)| unit);
        let units = waited_for.chain(several.get(&sequence).into_iter().flatten().copied());
        found.units.extend(units.map(|unit| Unit { name, ..unit }));
    }
    found
}

/// Units of sequences that came back of which a thread launched several before it waited, and what is left.
///
/// Of a sequence there may be no more of these than were waited for one by one: in a loop that launches a thousand and
/// waits once, a unit lasts as long as the queue is, which says nothing of it.
fn several_of<'t>(
    telling: &BTreeMap<Vec<u32>, Vec<(Unit, Batch<'t>)>>,
    others: BTreeMap<Vec<u32>, Vec<(Unit, Batch<'t>)>>,
    tenant: &Tenancy,
    calls: &Calls,
) -> (BTreeMap<Vec<u32>, Vec<Unit>>, Vec<Unit>) {
    let (mut several, mut left_out) = (BTreeMap::<Vec<u32>, Vec<Unit>>::new(), Vec::new());
    for (sequence, list) in others {
        let repeats = |one: &&Vec<u32>| sequence.chunks(one.len()).all(|part| part == one.as_slice());
        let Some(one) = telling.keys().find(repeats) else {
            left_out.extend(list.into_iter().map(|(unit, _)| unit));
            continue;
        };
        let most = telling.get(one).map_or(0, Vec::len);
        let units = several.entry(one.clone()).or_default();
        for (unit, batch) in list {
            let parts = batch.parts(tenant, one.len()).unwrap_or_default();
            let parts: Vec<Unit> = parts.iter().filter_map(|part| part.unit(tenant, calls)).collect();
            if parts.is_empty() || units.len().saturating_add(parts.len()) > most {
                left_out.push(unit);
            } else {
                units.extend(parts);
            }
        }
    }
    (several, left_out)
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
