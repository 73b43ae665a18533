//! Find the calls of the CUDA API of a process. There may be tens of millions of them: they stay in their table.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, Int64Array, UInt32Array};

use crate::base::error::Result;
use crate::base::intervals::Union;
use crate::table::columns::{at, Columns};
use crate::table::events::Tables;
use crate::table::launch::{Folded, FoldedArray};
use crate::table::polls::Polls;
use crate::table::schema;
use crate::table::tenant_lookup::Process;

/// What a function does, by its name.
#[derive(Debug, Clone, Copy, Default)]
struct Function {
    waits: bool,
    stream_waits: bool,
    calls_back: bool,
}

impl Function {
    fn named(name: &str) -> Self {
        Self {
            waits: name.contains("Synchronize")
                || name.contains("cudaMemcpy_")
                || name.contains("cuMemcpyDtoH_"),
            stream_waits: name.contains("StreamWaitEvent"),
            calls_back: calls_back(name),
        }
    }
}

/// Whether a function lets the driver call the program when a stream has come so far.
pub(crate) fn calls_back(name: &str) -> bool {
    name.contains("LaunchHostFunc") || name.contains("StreamAddCallback")
}

/// Calls behind the one found last that are looked at one by one: between two launches there are few others.
const NEAR: usize = 8;

/// A call of the CUDA API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub start_ns: i64,
    pub end_ns: i64,
    /// As recorded.
    pub thread: u32,
    /// It may return only when the device has done something. The queries of a poll are one such call.
    pub waits: bool,
    /// How long after that a poll may notice it; 0 for other calls.
    pub noticed_within_ns: i64,
    /// It lets a stream wait for an event.
    pub stream_waits: bool,
    /// It lets the driver call the program when a stream has come so far.
    pub calls_back: bool,
}

/// The table of calls.
#[derive(Debug, Clone)]
struct Recorded {
    start: Int64Array,
    end: Int64Array,
    tid: FoldedArray,
    correlation: UInt32Array,
    /// Number of the name.
    name: UInt32Array,
    functions: Arc<[Function]>,
    polls: Arc<Polls>,
}

impl Recorded {
    fn start_ns(&self, row: usize) -> i64 {
        self.start.values().get(row).copied().unwrap_or(0)
    }

    fn end_ns(&self, row: usize) -> i64 {
        self.end.values().get(row).copied().unwrap_or(0).max(self.start_ns(row))
    }
}

/// Calls of one process, by start.
#[derive(Debug)]
pub(crate) struct Calls {
    table: Recorded,
    /// The row of each; none: they are all the rows, as they stand.
    rows: Option<Vec<u32>>,
    /// Calls with a correlation id, by id; of several with one id the first to start is first. None: all of them, as they
    /// stand.
    by_correlation: Option<Vec<u32>>,
    /// By thread as recorded: when it was kept by what is not the program's own.
    overhead: BTreeMap<u32, Union>,
}

impl Calls {
    /// Calls of those rows of a table; `None`: of all.
    fn of(table: Recorded, mut rows: Option<Vec<u32>>) -> Self {
        let by_start = match &rows {
            None => table.start.values().is_sorted(),
            Some(rows) => rows.is_sorted_by_key(|row| table.start_ns(*row as usize)),
        };
        if !by_start {
            let every = || (0..u32::try_from(table.start.len()).unwrap_or(u32::MAX)).collect();
            let rows = rows.get_or_insert_with(every);
            rows.sort_by_key(|row| (table.start_ns(*row as usize), Reverse(table.end_ns(*row as usize))));
        }
        let mut calls = Self { table, rows, by_correlation: None, overhead: BTreeMap::new() };
        let ids = || (0..calls.len()).map(|place| calls.id(place));
        if calls.table.correlation.null_count() > 0 || !ids().is_sorted() {
            let mut places: Vec<u32> =
                (0_u32..).zip(ids()).filter_map(|(place, id)| id.and(Some(place))).collect();
            // A driver call inside a runtime call has the same id: the outer one came first.
            places.sort_by_key(|place| calls.id(*place as usize));
            calls.by_correlation = Some(places);
        }
        calls
    }

    pub fn len(&self) -> usize {
        self.rows.as_ref().map_or(self.table.start.len(), Vec::len)
    }

    fn row(&self, place: usize) -> Option<usize> {
        match &self.rows {
            Some(rows) => rows.get(place).map(|row| *row as usize),
            None => (place < self.table.start.len()).then_some(place),
        }
    }

    // Of every call two or three of these are asked for: inlined, only those are made.
    /// The call at a place.
    #[inline(always)]
    pub fn get(&self, place: usize) -> Option<Call> {
        let row = self.row(place)?;
        let name = at(&self.table.name, row);
        let function = name.and_then(|name| self.table.functions.get(name as usize));
        let Function { waits, stream_waits, calls_back } = function.copied().unwrap_or_default();
        let poll = self.table.polls.begun_in(row);
        Some(Call {
            start_ns: self.table.start_ns(row),
            end_ns: poll.map_or_else(|| self.table.end_ns(row), |poll| poll.end_ns),
            thread: self.table.tid.at(row).unwrap_or(0),
            waits: waits || poll.is_some(),
            noticed_within_ns: poll.map_or(0, |poll| poll.period_ns),
            stream_waits,
            calls_back,
        })
    }

    pub fn iter(&self) -> Iter<'_> {
        Iter { calls: self, next: 0 }
    }

    pub fn has_several_threads(&self) -> bool {
        let thread = |place: usize| Some(self.table.tid.at(self.row(place)?));
        (1..self.len()).any(|place| thread(place) != thread(0))
    }

    /// Whether the functions that were called are known.
    pub fn has_names(&self) -> bool {
        !self.table.functions.is_empty()
    }

    pub fn has_callbacks(&self) -> bool {
        self.table.functions.iter().any(|function| function.calls_back)
    }

    /// The name of the call at a place, as a key of the names of `api_calls`.
    pub fn name(&self, place: usize) -> Option<u32> {
        at(&self.table.name, self.row(place)?)
    }

    /// The thread of a call, as recorded.
    pub fn thread(&self, call: u32) -> Option<u32> {
        Some(self.table.tid.at(self.row(call as usize)?).unwrap_or(0))
    }

    /// Whether what is not the program's own fell into a call.
    pub fn held_up(&self, call: Call) -> bool {
        let kept = || self.overhead.get(&call.thread);
        !self.overhead.is_empty() && kept().is_some_and(|u| u.covered_ns(call.start_ns, call.end_ns) > 0)
    }

    /// The call with a correlation id.
    pub fn with_correlation(&self, id: u32) -> Option<Call> {
        let (_, call) = self.find(id, &mut 0)?;
        Some(call)
    }

    /// The correlation id of the call at a place.
    pub fn id(&self, place: usize) -> Option<u32> {
        at(&self.table.correlation, self.row(place)?)
    }

    /// The call with a correlation id, and its place. `hint` is where the last one was found, by id: work is launched in
    /// order, mostly.
    pub fn find(&self, correlation: u32, hint: &mut usize) -> Option<(u32, Call)> {
        let many = self.by_correlation.as_ref().map_or(self.len(), Vec::len);
        let place = |n: usize| match &self.by_correlation {
            Some(places) => places.get(n).map(|place| *place as usize),
            None => Some(n),
        };
        let before = |n: usize| place(n).and_then(|place| self.id(place)).is_some_and(|id| id < correlation);
        let mut low = many.min(*hint);
        let mut high = low;
        if before(low) {
            let near = low.saturating_add(NEAR);
            while low < near && before(low) {
                low += 1;
            }
            // It is none of the next few: looked for in growing steps.
            let mut step = 1;
            high = low;
            while before(high) {
                low = high + 1;
                high = high.saturating_add(step);
                step *= 2;
            }
            high = many.min(high);
        } else if low.checked_sub(1).is_some_and(|last| !before(last)) {
            low = 0;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        *hint = low;
        let place = place(low).filter(|place| self.id(*place) == Some(correlation))?;
        Some((u32::try_from(place).ok()?, self.get(place)?))
    }
}

/// Calls, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Iter<'a> {
    calls: &'a Calls,
    next: usize,
}

impl Iterator for Iter<'_> {
    type Item = Call;

    // Inlined as `Calls::get` is: adapters of the standard library hand calls over whole.
    #[inline(always)]
    fn next(&mut self) -> Option<Call> {
        let call = self.calls.get(self.next)?;
        self.next += 1;
        Some(call)
    }
}

pub(crate) type CallsByProcess = BTreeMap<Process, Calls>;

/// The calls of every process of a session.
pub(crate) fn calls(tables: &Tables) -> Result<CallsByProcess> {
    let Some(batch) = tables.get(schema::API_CALLS.name) else { return Ok(CallsByProcess::new()) };
    let columns = Columns::new(&schema::API_CALLS, batch);
    let (capture, pid): (_, Folded<'_>) = (columns.u32("capture")?, columns.folded("pid")?);
    let names = columns.names("name")?;
    let table = Recorded {
        start: columns.i64("start_ns")?.clone(),
        end: columns.i64("end_ns")?.clone(),
        tid: FoldedArray::of(columns.folded("tid")?),
        correlation: columns.u32("correlation_id")?.clone(),
        name: names.keys().clone(),
        functions: names.texts().map(|name| name.map_or_else(Function::default, Function::named)).collect(),
        polls: Arc::new(Polls::of(batch)?),
    };
    let process = |row: usize| (capture.value(row), pid.at(row));
    let rows = columns.rows();
    if rows == 0 {
        return Ok(CallsByProcess::new());
    }
    let every_row = table.polls.is_empty() && (1..rows).all(|row| process(row) == process(0));
    let mut out: CallsByProcess = if every_row {
        [(process(0), Calls::of(table, None))].into()
    } else {
        let mut rows = rows_of(rows, process);
        if !table.polls.is_empty() {
            rows.values_mut().for_each(|of| of.retain(|row| !table.polls.is_part(*row as usize)));
        }
        rows.into_iter().map(|(process, rows)| (process, Calls::of(table.clone(), Some(rows)))).collect()
    };
    enter_overhead(tables, &mut out)?;
    Ok(out)
}

/// The rows of each process.
fn rows_of(rows: usize, process: impl Fn(usize) -> Process) -> BTreeMap<Process, Vec<u32>> {
    let mut found: BTreeMap<Process, Vec<u32>> = BTreeMap::new();
    let mut from = 0;
    while from < rows {
        // What one process calls in a row is looked up once.
        let one = process(from);
        let to = (from..rows).find(|row| process(*row) != one).unwrap_or(rows);
        found.entry(one).or_default().extend((from..to).filter_map(|row| u32::try_from(row).ok()));
        from = to;
    }
    found
}

/// A full command buffer is no overhead of anybody's: the program launches faster than the GPU works.
const COMMAND_BUFFER_FULL: &str = "command buffer full";

fn enter_overhead(tables: &Tables, calls: &mut CallsByProcess) -> Result<()> {
    let Some(batch) = tables.get(schema::PROFILER_OVERHEAD.name) else { return Ok(()) };
    let columns = Columns::new(&schema::PROFILER_OVERHEAD, batch);
    let (capture, pid, tid) = (columns.u32("capture")?, columns.u32("pid")?, columns.u32("tid")?);
    let (start, end, kind) = (columns.i64("start_ns")?, columns.i64("end_ns")?, columns.names("kind")?);
    let mut spans: BTreeMap<_, Vec<(i64, i64)>> = BTreeMap::new();
    for row in 0..columns.rows() {
        if kind.get(row).is_some_and(|k| k.to_lowercase().starts_with(COMMAND_BUFFER_FULL)) {
            continue;
        }
        let thread = ((capture.value(row), at(pid, row)), at(tid, row).unwrap_or(0));
        spans.entry(thread).or_default().push((start.value(row), end.value(row)));
    }
    for ((process, thread), mut of) in spans {
        of.sort_unstable();
        if let Some(calls) = calls.get_mut(&process) {
            calls.overhead.insert(thread, Union::of(of));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::draws::draws;
    use crate::table::builder::Builder;

    #[test]
    fn calls_are_found_as_by_looking_at_all() {
        for seed in 0..200 {
            let mut draw = draws(seed);
            let (processes, few) = (1 + draw(2) as u64, 4 + draw(40) as u64);
            // (pid, start, end, correlation), now and then by start, with ids that come twice, or none.
            let mut rows: Vec<(u32, i64, i64, Option<u32>)> = (0..draw(60))
                .map(|n| {
                    let id = if seed % 3 == 0 { n / 2 } else { draw(few) };
                    let start = if seed % 2 == 0 { n } else { draw(50) };
                    let known = seed % 5 > 0 || draw(4) > 0;
                    (draw(processes) as u32, start, start + draw(9), known.then_some(id as u32))
                })
                .collect();
            if draw(2) == 0 {
                rows.sort_by_key(|row| row.1);
            }
            let batch = Builder::new(&schema::API_CALLS)
                .put("capture", UInt32Array::from(vec![0; rows.len()]))
                .put("pid", rows.iter().map(|row| Some(row.0)).collect::<UInt32Array>())
                .put("tid", rows.iter().map(|row| Some(row.0 + 100)).collect::<UInt32Array>())
                .put("start_ns", rows.iter().map(|row| Some(row.1)).collect::<Int64Array>())
                .put("end_ns", rows.iter().map(|row| Some(row.2)).collect::<Int64Array>())
                .put_names("name", rows.iter().map(|_| Some("cudaLaunchKernel")))
                .put("correlation_id", rows.iter().map(|row| row.3).collect::<UInt32Array>())
                .put("return_value", arrow_array::Int32Array::from(vec![0; rows.len()]))
                .finish(rows.len())
                .unwrap();
            let found = calls(&[(schema::API_CALLS.name, batch)].into()).unwrap();
            for pid in 0..2 {
                let mut own: Vec<_> = rows.iter().filter(|row| row.0 == pid).collect();
                // The outer one of two that start together comes first.
                if !own.is_sorted_by_key(|row| row.1) {
                    own.sort_by_key(|row| (row.1, Reverse(row.2)));
                }
                let Some(calls) = found.get(&(0, Some(pid))) else {
                    assert!(own.is_empty(), "seed {seed}");
                    continue;
                };
                let got: Vec<_> = calls.iter().map(|c| (c.start_ns, c.end_ns, c.thread)).collect();
                let expected: Vec<_> = own.iter().map(|row| (row.1, row.2, pid + 100)).collect();
                assert_eq!(got, expected, "seed {seed}");
                let mut hint = usize::MAX;
                for _ in 0..40 {
                    let id = draw(few + 2) as u32;
                    let place = own.iter().position(|row| row.3 == Some(id));
                    let got = calls.find(id, &mut hint).map(|(place, _)| place as usize);
                    assert_eq!(got, place, "seed {seed}, id {id}");
                }
            }
        }
    }
}
