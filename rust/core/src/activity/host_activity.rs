//! Say what host threads of a process did while nothing of it was on the device and no CUDA call ran.
//!
//! ```text
//!   work of a tenant   |====|                                      |===|
//!   CUDA calls              |sync|                           |launch|
//!   idle host                    |===========================|
//!   MPI calls of the thread        |==Sendrecv==|
//!   ranges of the thread         |=====step===============|
//!   counted                      |s|==Sendrecv==|===step==|--|  and "--": nothing recorded
//! ```
//!
//! The thread that launches what ends a gap decides. Where nothing of it is recorded, another thread of the process counts
//! by its MPI or video calls and its ranges: threads without work are always in some call of the C library, and say nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use crate::base::error::Result;
use crate::base::maps::ByKey;
use crate::base::watch::Watch;
use crate::table::columns::{at, Columns};
use crate::table::events::Tables;
use crate::table::schema;
use crate::table::tenant_lookup::Process;

/// Parts that are told one by one.
const MOST_PARTS: usize = 8;
/// Rows after which it is told that work goes on.
const PROGRESS_ROWS: usize = 1 << 20;

/// What a thread may be recorded to be in, from what says least to what says most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostKind {
    /// An NVTX range.
    Range,
    /// A call of the C library.
    Os,
    /// A call of the video codec SDK.
    Video,
    /// A call of MPI.
    Mpi,
}

impl HostKind {
    /// Its word in results.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::Os => schema::OS_CALL,
            Self::Video => schema::VIDEO_CALL,
            Self::Mpi => schema::MPI_CALL,
        }
    }

    fn of_call(word: &str) -> Option<Self> {
        [Self::Os, Self::Video, Self::Mpi].into_iter().find(|kind| kind.word() == word)
    }
}

/// Time in calls of one function, or in one range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPart {
    /// What it was.
    pub kind: HostKind,
    /// Function or text of the range; `None`: it has no name.
    pub name: Option<String>,
    /// How much.
    pub ns: i64,
    /// Of calls: the innermost range that most of it lay in; `None`: most of it lay in none.
    pub range: Option<String>,
}

/// CPU samples in one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledFunction {
    /// `None`: its file has no symbol for it.
    pub function: Option<String>,
    /// The file that has its code; `None`: not known.
    pub module: Option<String>,
    /// How many.
    pub samples: u64,
}

/// What the host of a tenant did while nothing of it was on the device and no CUDA call ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostActivity {
    /// What was recorded of its process at all.
    pub recorded: BTreeSet<HostKind>,
    /// Time in each kind.
    pub by_kind: BTreeMap<HostKind, i64>,
    /// Time in nothing that was recorded.
    pub nothing_ns: i64,
    /// Largest first, [`MOST_PARTS`] at most.
    pub parts: Vec<HostPart>,
    /// CPU samples of the thread that launches what comes next, or of all where that is not known.
    pub samples: u64,
    /// The functions that these were in, most samples first, [`MOST_PARTS`] at most.
    pub sampled: Vec<SampledFunction>,
}

/// A call or a range of a thread; its name is a place in [`HostEvents::names`].
#[derive(Debug, Clone, Copy)]
struct Event {
    start_ns: i64,
    end_ns: i64,
    thread: u32,
    kind: HostKind,
    name: u32,
}

/// A thread on a CPU; what it was in is a place in [`HostEvents::sampled`].
#[derive(Debug, Clone, Copy)]
struct Sample {
    time_ns: i64,
    thread: u32,
    what: u32,
}

/// What threads of a process were recorded to be in.
#[derive(Debug, Default)]
struct OfProcess {
    recorded: BTreeSet<HostKind>,
    events: Vec<Event>,
    samples: Vec<Sample>,
}

/// What threads of processes were recorded to be in.
#[derive(Debug, Default)]
pub(crate) struct HostEvents {
    names: Vec<Option<String>>,
    /// Functions with the files that have their code.
    sampled: Vec<(Option<String>, Option<String>)>,
    of: ByKey<Process, OfProcess>,
}

/// A call, with its name, and the name of the innermost range.
type Doing = (Option<(HostKind, u32)>, Option<u32>);

/// Time in which nothing of a tenant was on the device and no CUDA call ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub start_ns: i64,
    pub end_ns: i64,
    /// Who launches what comes next; `None`: not known.
    pub thread: Option<u32>,
}

impl HostEvents {
    /// Reads what of `host_calls`, `nvtx` and `cpu_samples` lies in time that is `wanted`; nothing else is kept.
    pub fn read(
        session: &Tables,
        watch: &dyn Watch,
        mut wanted: impl FnMut(Process, i64, i64) -> bool,
    ) -> Result<Self> {
        let mut found = Self::default();
        for (table, text) in [(&schema::HOST_CALLS, "name"), (&schema::NVTX, "text")] {
            let Some(batch) = session.get(table.name) else { continue };
            let columns = Columns::new(table, batch);
            let (capture, pid, tid) = (columns.u32("capture")?, columns.u32("pid")?, columns.u32("tid")?);
            let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
            let (kind, text) = (columns.names("kind")?, columns.names(text)?);
            let ranges = table.name == schema::NVTX.name;
            let mut places: HashMap<Option<u32>, u32> = HashMap::new();
            for row in 0..columns.rows() {
                if row % PROGRESS_ROWS == 0 {
                    watch.progress("host", row as u64, columns.rows() as u64)?;
                }
                // Marks and domains have no end, nor has a range that never ended.
                let (Some(end_ns), Some(thread)) = (at(end, row), at(tid, row)) else { continue };
                let kind =
                    if ranges { Some(HostKind::Range) } else { kind.get(row).and_then(HostKind::of_call) };
                let Some(kind) = kind else { continue };
                let process = (capture.value(row), at(pid, row));
                let Some(of) = found.of.entry(process) else { continue };
                of.recorded.insert(kind);
                let start_ns = start.value(row);
                if start_ns >= end_ns || !wanted(process, start_ns, end_ns) {
                    continue;
                }
                let key = text.key(row);
                let name = *places.entry(key).or_insert_with(|| {
                    found.names.push(key.and_then(|key| text.text(key)).map(str::to_owned));
                    u32::try_from(found.names.len() - 1).unwrap_or(u32::MAX)
                });
                of.events.push(Event { start_ns, end_ns, thread, kind, name });
            }
        }
        found.read_samples(session, watch, wanted)?;
        for of in found.of.values_mut() {
            of.events.sort_by_key(|event| event.start_ns);
            of.samples.sort_by_key(|sample| sample.time_ns);
        }
        Ok(found)
    }

    fn read_samples(
        &mut self,
        session: &Tables,
        watch: &dyn Watch,
        mut wanted: impl FnMut(Process, i64, i64) -> bool,
    ) -> Result<()> {
        let Some(batch) = session.get(schema::CPU_SAMPLES.name) else { return Ok(()) };
        let columns = Columns::new(&schema::CPU_SAMPLES, batch);
        let (capture, pid, tid) = (columns.u32("capture")?, columns.u32("pid")?, columns.u32("tid")?);
        let time = columns.i64("time_ns")?;
        let (function, module) = (columns.names("function")?, columns.names("module")?);
        let mut places: HashMap<[Option<u32>; 2], u32> = HashMap::new();
        for row in 0..columns.rows() {
            if row % PROGRESS_ROWS == 0 {
                watch.progress("host", row as u64, columns.rows() as u64)?;
            }
            let (process, time_ns) = ((capture.value(row), at(pid, row)), time.value(row));
            if !wanted(process, time_ns, time_ns.saturating_add(1)) {
                continue;
            }
            let (Some(thread), Some(of)) = (at(tid, row), self.of.entry(process)) else { continue };
            let keys = [function.key(row), module.key(row)];
            let what = *places.entry(keys).or_insert_with(|| {
                let [of_function, of_module] = keys;
                let function = of_function.and_then(|key| function.text(key)).map(str::to_owned);
                let module = of_module.and_then(|key| module.text(key)).map(str::to_owned);
                self.sampled.push((function, module));
                u32::try_from(self.sampled.len() - 1).unwrap_or(u32::MAX)
            });
            of.samples.push(Sample { time_ns, thread, what });
        }
        Ok(())
    }

    /// Whether anything is recorded of the threads of a process.
    pub fn has(&self, process: Process) -> bool {
        self.of.get(process).is_some()
    }

    /// What the threads of a process did in `spans`, which are disjoint and in order; `None`: nothing was recorded of them.
    pub fn in_spans(&self, process: Process, spans: impl FnOnce() -> Vec<Span>) -> Option<HostActivity> {
        let of = self.of.get(process)?;
        let (mut sums, mut samples) = (BTreeMap::new(), BTreeMap::new());
        let mut now = Now {
            events: &of.events,
            next: 0,
            ends: BinaryHeap::new(),
            by_thread: BTreeSet::new(),
            others: BTreeSet::new(),
        };
        for span in spans() {
            for sample in of.sampled_in(span) {
                *samples.entry(sample.what).or_default() += 1;
            }
            let mut from = span.start_ns;
            now.advance(from);
            while from < span.end_ns {
                let to = now.next_change().map_or(span.end_ns, |change| change.min(span.end_ns));
                *sums.entry(now.doing(span.thread)).or_default() += to.saturating_sub(from);
                from = to;
                now.advance(from);
            }
        }
        let mut found = self.summed(of.recorded.clone(), sums);
        found.samples = samples.values().sum();
        found.sampled = self.functions(samples);
        Some(found)
    }

    /// The functions with most samples.
    fn functions(&self, samples: BTreeMap<u32, u64>) -> Vec<SampledFunction> {
        // By text: two captures may have the same function in two places.
        let mut by_name: BTreeMap<&(Option<String>, Option<String>), u64> = BTreeMap::new();
        for (what, samples) in samples {
            if let Some(names) = self.sampled.get(what as usize) {
                *by_name.entry(names).or_default() += samples;
            }
        }
        let mut found: Vec<SampledFunction> = by_name
            .into_iter()
            .map(|((function, module), samples)| SampledFunction {
                function: function.clone(),
                module: module.clone(),
                samples,
            })
            .collect();
        found.sort_by_key(|one| Reverse(one.samples));
        found.truncate(MOST_PARTS);
        found
    }

    fn summed(&self, recorded: BTreeSet<HostKind>, sums: BTreeMap<Doing, i64>) -> HostActivity {
        let mut found = HostActivity { recorded, ..HostActivity::default() };
        let name = |place: u32| self.names.get(place as usize).cloned().flatten();
        // By text: two tables, or two captures, may have the same name in two places.
        let mut parts: BTreeMap<(HostKind, Option<String>), BTreeMap<Option<String>, i64>> = BTreeMap::new();
        for ((call, range), ns) in sums {
            let (kind, text, inside) = match (call, range) {
                (Some((kind, place)), range) => (kind, name(place), range.and_then(name)),
                (None, Some(range)) => (HostKind::Range, name(range), None),
                (None, None) => {
                    found.nothing_ns = found.nothing_ns.saturating_add(ns);
                    continue;
                }
            };
            *found.by_kind.entry(kind).or_default() += ns;
            *parts.entry((kind, text)).or_default().entry(inside).or_default() += ns;
        }
        found.parts = parts.into_iter().map(|((kind, name), inside)| part(kind, name, inside)).collect();
        found.parts.sort_by_key(|part| Reverse(part.ns));
        found.parts.truncate(MOST_PARTS);
        found
    }
}

impl OfProcess {
    /// Samples in a span of the thread that launches what comes next; of all threads where it is not known.
    fn sampled_in(&self, span: Span) -> impl Iterator<Item = &Sample> {
        let first = self.samples.partition_point(|sample| sample.time_ns < span.start_ns);
        let inside = self.samples.get(first..).unwrap_or_default().iter();
        inside
            .take_while(move |sample| sample.time_ns < span.end_ns)
            .filter(move |sample| span.thread.is_none_or(|thread| sample.thread == thread))
    }
}

fn part(kind: HostKind, name: Option<String>, inside: BTreeMap<Option<String>, i64>) -> HostPart {
    let ns = inside.values().sum();
    let most = inside.into_iter().find(|(_, in_it)| *in_it > ns / 2);
    HostPart { kind, name, ns, range: most.and_then(|(range, _)| range) }
}

/// The calls and ranges of all threads at a moment that only moves on.
struct Now<'a> {
    /// By start.
    events: &'a [Event],
    next: usize,
    /// When each that goes on ends, and its place.
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    /// By thread and kind; of several the one that began last is the innermost.
    by_thread: BTreeSet<(u32, HostKind, i64, usize)>,
    /// Those that count for other threads too.
    others: BTreeSet<(HostKind, i64, usize)>,
}

impl Now<'_> {
    fn advance(&mut self, to_ns: i64) {
        while let Some(event) = self.events.get(self.next).filter(|event| event.start_ns <= to_ns) {
            if event.end_ns > to_ns {
                self.ends.push(Reverse((event.end_ns, self.next)));
                self.by_thread.insert((event.thread, event.kind, event.start_ns, self.next));
                if event.kind != HostKind::Os {
                    self.others.insert((event.kind, event.start_ns, self.next));
                }
            }
            self.next += 1;
        }
        while let Some(Reverse((_, place))) = self.ends.peek().copied().filter(|end| end.0 .0 <= to_ns) {
            self.ends.pop();
            if let Some(event) = self.events.get(place) {
                self.by_thread.remove(&(event.thread, event.kind, event.start_ns, place));
                self.others.remove(&(event.kind, event.start_ns, place));
            }
        }
    }

    fn next_change(&self) -> Option<i64> {
        let begins = self.events.get(self.next).map(|event| event.start_ns);
        let ends = self.ends.peek().map(|end| end.0 .0);
        begins.into_iter().chain(ends).min()
    }

    /// The call and the range that tell most, of this thread or else of another.
    fn doing(&self, thread: Option<u32>) -> Doing {
        let own = thread.map(|thread| self.of_thread(thread)).filter(|own| *own != (None, None));
        own.unwrap_or_else(|| {
            let other = self.others.last().and_then(|(_, _, place)| self.events.get(*place));
            other.map_or((None, None), |other| match self.of_thread(other.thread) {
                (Some((HostKind::Os, _)), range) => (None, range),
                doing => doing,
            })
        })
    }

    fn of_thread(&self, thread: u32) -> Doing {
        let last = |from: HostKind, to: HostKind| {
            let here = (thread, from, i64::MIN, 0)..=(thread, to, i64::MAX, usize::MAX);
            let (_, kind, _, place) = self.by_thread.range(here).next_back()?;
            Some((*kind, self.events.get(*place)?.name))
        };
        (last(HostKind::Os, HostKind::Mpi), last(HostKind::Range, HostKind::Range).map(|(_, name)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::Unwatched;
    use crate::table::builder::Builder;
    use arrow_array::{Int64Array, RecordBatch, UInt32Array};

    /// Kind, name, thread, start and end.
    type E<'a> = (&'a str, &'a str, u32, i64, i64);

    /// Rows of process 7 in capture 0.
    fn table(of: &'static schema::Table, text: &'static str, rows: &[E<'_>]) -> RecordBatch {
        Builder::new(of)
            .put("capture", UInt32Array::from(vec![0; rows.len()]))
            .put("pid", UInt32Array::from(vec![7; rows.len()]))
            .put("tid", rows.iter().map(|row| Some(row.2)).collect::<UInt32Array>())
            .put("start_ns", rows.iter().map(|row| Some(row.3)).collect::<Int64Array>())
            .put("end_ns", rows.iter().map(|row| Some(row.4)).collect::<Int64Array>())
            .put_names("kind", rows.iter().map(|row| Some(row.0)))
            .put_names(text, rows.iter().map(|row| Some(row.1)))
            .finish(rows.len())
            .unwrap()
    }

    fn in_spans(calls: &[E<'_>], ranges: &[E<'_>], spans: &[(i64, i64, Option<u32>)]) -> HostActivity {
        let tables = [
            (schema::HOST_CALLS.name, table(&schema::HOST_CALLS, "name", calls)),
            (schema::NVTX.name, table(&schema::NVTX, "text", ranges)),
        ];
        let events = HostEvents::read(&tables.into(), &Unwatched, |_, _, _| true).unwrap();
        let spans = spans.iter().map(|(start_ns, end_ns, thread)| Span {
            start_ns: *start_ns,
            end_ns: *end_ns,
            thread: *thread,
        });
        events.in_spans((0, Some(7)), || spans.collect()).unwrap()
    }

    fn parts(found: &HostActivity) -> Vec<(HostKind, &str, i64, Option<&str>)> {
        let each = found.parts.iter();
        each.map(|part| (part.kind, part.name.as_deref().unwrap_or_default(), part.ns, part.range.as_deref()))
            .collect()
    }

    #[test]
    fn what_says_most_counts() {
        // |0         step                                      80|      nothing until 100
        //    |10  inner  30|   |40 MPI_Wait 60|
        //        |20  poll        50|
        let found = in_spans(
            &[("os", "poll", 1, 20, 50), ("mpi", "MPI_Wait", 1, 40, 60)],
            &[("push-pop", "step", 1, 0, 80), ("push-pop", "inner", 1, 10, 30)],
            &[(0, 100, Some(1))],
        );
        assert_eq!(
            parts(&found),
            [
                (HostKind::Range, "step", 10 + 20, None),
                (HostKind::Os, "poll", 20, None),
                (HostKind::Mpi, "MPI_Wait", 20, Some("step")),
                (HostKind::Range, "inner", 10, None),
            ]
        );
        assert_eq!(found.nothing_ns, 20);
        let by_kind = [(HostKind::Range, 40), (HostKind::Os, 20), (HostKind::Mpi, 20)];
        assert_eq!(found.by_kind, by_kind.into());
        assert_eq!(found.recorded, [HostKind::Range, HostKind::Os, HostKind::Mpi].into());
    }

    #[test]
    fn the_thread_that_launches_comes_first() {
        // Thread 1 launches: in a range until 10, in a call from 20 to 30. Thread 2 is in MPI until 40, thread 3 always
        // waits for work in the C library.
        let calls = [("mpi", "MPI_Recv", 2, 0, 40), ("os", "read", 1, 20, 30), ("os", "futex", 3, 0, 60)];
        let ranges = [("push-pop", "load", 1, 0, 10), ("push-pop", "rest", 3, 0, 50)];
        let found = in_spans(&calls, &ranges, &[(0, 60, Some(1))]);
        let expected = [
            (HostKind::Mpi, "MPI_Recv", 20, None),
            (HostKind::Range, "load", 10, None),
            (HostKind::Range, "rest", 10, None),
            (HostKind::Os, "read", 10, None),
        ];
        let mut sorted = parts(&found);
        sorted.sort_by_key(|part| (std::cmp::Reverse(part.2), part.1));
        assert_eq!(sorted, [expected[0], expected[1], expected[3], expected[2]]);
        assert_eq!(found.nothing_ns, 10);
        // Who launches is not known.
        let found = in_spans(&calls, &ranges, &[(15, 60, None)]);
        let expected = [(HostKind::Mpi, "MPI_Recv", 25, None), (HostKind::Range, "rest", 10, None)];
        assert_eq!((parts(&found).as_slice(), found.nothing_ns), (expected.as_slice(), 10));
    }

    #[test]
    fn only_what_lies_in_spans_counts() {
        let calls = [("video", "cuvidMapVideoFrame64", 1, 5, 95), ("os", "ioctl", 1, 40, 41)];
        let found = in_spans(&calls, &[], &[(0, 10, Some(1)), (20, 30, Some(1)), (90, 100, Some(1))]);
        assert_eq!(parts(&found), [(HostKind::Video, "cuvidMapVideoFrame64", 5 + 10 + 5, None)]);
        assert_eq!(found.nothing_ns, 10);
    }

    /// Function, file, thread and time.
    type S<'a> = (Option<&'a str>, Option<&'a str>, u32, i64);

    #[test]
    fn samples_of_the_thread_that_launches_count() {
        let rows: [S<'_>; 7] = [
            (Some("parse"), Some("a.out"), 1, 10),
            (Some("parse"), Some("a.out"), 1, 19),
            // In no span, of another thread, and at the end of a span, which is no part of it.
            (Some("parse"), Some("a.out"), 1, 20),
            (Some("poll"), Some("libc.so.6"), 2, 15),
            (None, Some("libz.so"), 1, 35),
            (None, None, 2, 45),
            (Some("parse"), Some("a.out"), 1, 46),
        ];
        let samples = Builder::new(&schema::CPU_SAMPLES)
            .put("capture", UInt32Array::from(vec![0; rows.len()]))
            .put("pid", UInt32Array::from(vec![7; rows.len()]))
            .put("tid", rows.iter().map(|row| Some(row.2)).collect::<UInt32Array>())
            .put("time_ns", rows.iter().map(|row| Some(row.3)).collect::<Int64Array>())
            .put_names("function", rows.iter().map(|row| row.0))
            .put_names("module", rows.iter().map(|row| row.1))
            .finish(rows.len())
            .unwrap();
        let tables = [(schema::CPU_SAMPLES.name, samples)];
        let events = HostEvents::read(&tables.into(), &Unwatched, |_, _, _| true).unwrap();
        let spans = [(10, 20, Some(1)), (30, 40, Some(1)), (40, 50, None)];
        let spans = spans.map(|(start_ns, end_ns, thread)| Span { start_ns, end_ns, thread });
        let found = events.in_spans((0, Some(7)), || spans.to_vec()).unwrap();
        let named: Vec<_> = found
            .sampled
            .iter()
            .map(|one| (one.function.as_deref(), one.module.as_deref(), one.samples))
            .collect();
        assert_eq!(found.samples, 5);
        assert_eq!(named, [(Some("parse"), Some("a.out"), 3), (None, None, 1), (None, Some("libz.so"), 1)]);
        assert_eq!((found.nothing_ns, found.recorded), (30, BTreeSet::new()));
    }

    #[test]
    fn of_a_process_without_records_nothing_is_known() {
        let events = HostEvents::read(&Tables::new(), &Unwatched, |_, _, _| true).unwrap();
        assert_eq!(events.in_spans((0, Some(7)), Vec::new), None);
    }

    #[test]
    fn sums_are_those_of_looking_at_every_moment() {
        use crate::base::draws::draws;
        for seed in 0..200 {
            let mut draw = draws(seed);
            let kinds = ["os", "mpi", "video"];
            let mut rows = |kinds: &[&'static str]| -> Vec<E<'static>> {
                let mut rows: Vec<E<'static>> = (0..=draw(8))
                    .map(|_| {
                        let start = draw(40);
                        let kind = kinds[draw(kinds.len() as u64) as usize];
                        (kind, ["a", "b", "c"][draw(3) as usize], draw(3) as u32, start, start + draw(20))
                    })
                    .collect();
                rows.sort_by_key(|row| row.3);
                rows
            };
            let (calls, ranges) = (rows(&kinds), rows(&["push-pop"]));
            let found = in_spans(&calls, &ranges, &[(5, 25, Some(0)), (30, 55, Some(1))]);
            let mut nothing_ns = 0;
            let mut by_kind: BTreeMap<HostKind, i64> = BTreeMap::new();
            for (at, thread) in (5..25).map(|t| (t, 0)).chain((30..55).map(|t| (t, 1))) {
                let here = |row: &&E<'_>| row.3 <= at && at < row.4;
                let calls = calls.iter().filter(here).map(|row| (row.2, HostKind::of_call(row.0).unwrap()));
                let ranges = ranges.iter().filter(here).map(|row| (row.2, HostKind::Range));
                let all: Vec<_> = calls.chain(ranges).collect();
                let own = all.iter().filter(|one| one.0 == thread).map(|one| one.1).max();
                let other = all.iter().filter(|one| one.1 != HostKind::Os).map(|one| one.1).max();
                match own.or(other) {
                    Some(kind) => *by_kind.entry(kind).or_default() += 1,
                    None => nothing_ns += 1,
                }
            }
            assert_eq!((found.nothing_ns, found.by_kind), (nothing_ns, by_kind), "seed {seed}");
        }
    }
}
