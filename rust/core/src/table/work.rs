//! GPU work of all kinds (kernels, whole graphs, copies) in order of time.

use arrow_array::{Int64Array, UInt32Array};

use crate::base::error::Result;
use crate::table::columns::{at, in_order};
use crate::table::events::Events;
use crate::table::schema;

/// What a row of GPU work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WorkKind {
    Kernel,
    Graph,
    Copy,
}

/// One row of GPU work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub kind: WorkKind,
    pub row: usize,
    pub capture: u32,
    pub pid: Option<u32>,
    pub device: u32,
    pub context: Option<u32>,
    pub stream: Option<u32>,
    pub correlation: Option<u32>,
    pub start_ns: i64,
    pub end_ns: i64,
}

/// The columns of one table of GPU work.
struct Stream<'a> {
    kind: WorkKind,
    capture: &'a UInt32Array,
    pid: &'a UInt32Array,
    device: &'a UInt32Array,
    context: &'a UInt32Array,
    stream: &'a UInt32Array,
    correlation: &'a UInt32Array,
    start: &'a Int64Array,
    end: &'a Int64Array,
    /// Rows by start, where the table is not sorted by it.
    order: Option<Vec<usize>>,
    next: usize,
}

impl Stream<'_> {
    #[inline(always)]
    fn row(&self) -> Option<usize> {
        match &self.order {
            Some(order) => order.get(self.next).copied(),
            None => (self.next < self.start.len()).then_some(self.next),
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<(i64, WorkKind)> {
        self.row().map(|row| (self.start.value(row), self.kind))
    }

    #[inline(always)]
    fn take(&mut self, row: usize) -> Work {
        self.next += 1;
        let start_ns = self.start.value(row);
        Work {
            kind: self.kind,
            row,
            capture: self.capture.value(row),
            pid: at(self.pid, row),
            device: self.device.value(row),
            context: at(self.context, row),
            stream: at(self.stream, row),
            correlation: at(self.correlation, row),
            start_ns,
            end_ns: self.end.value(row).max(start_ns),
        }
    }
}

/// Rows of GPU work by start, without a copy of the tables: a capture may have tens of millions.
pub(crate) struct Merged<'a> {
    streams: Vec<Stream<'a>>,
    /// The stream that goes on, until the first row of the others.
    now: usize,
    until: Option<(i64, WorkKind)>,
}

impl Iterator for Merged<'_> {
    type Item = Work;

    // Every pass over events goes through it: inlined, a row is not copied from place to place, and only what is asked
    // for is read.
    #[inline(always)]
    fn next(&mut self) -> Option<Work> {
        let until = self.until;
        let goes_on =
            |stream: &Stream<'_>| stream.peek().is_some_and(|first| until.is_none_or(|until| first < until));
        if !self.streams.get(self.now).is_some_and(goes_on) {
            self.change()?;
        }
        let stream = self.streams.get_mut(self.now)?;
        Some(stream.take(stream.row()?))
    }
}

impl Merged<'_> {
    /// Goes on with the stream whose first row is the first of all.
    #[cold]
    fn change(&mut self) -> Option<()> {
        let firsts = || self.streams.iter().enumerate().filter_map(|(n, s)| Some((s.peek()?, n)));
        let (_, now) = firsts().min()?;
        self.until = firsts().filter(|(_, n)| *n != now).map(|(key, _)| key).min();
        self.now = now;
        Some(())
    }
}

/// Kernels, graph launches and copies, merged by start.
pub(crate) fn work<'a>(events: &Events<'a>) -> Result<Merged<'a>> {
    let mut streams = Vec::new();
    let tables = [
        (&schema::KERNELS, WorkKind::Kernel),
        (&schema::GRAPH_LAUNCHES, WorkKind::Graph),
        (&schema::MEMOPS, WorkKind::Copy),
    ];
    for (table, kind) in tables {
        let Some(columns) = events.get(table) else { continue };
        let start = columns.i64("start_ns")?;
        let order = in_order(start);
        streams.push(Stream {
            kind,
            capture: columns.u32("capture")?,
            pid: columns.u32("pid")?,
            device: columns.u32("device_id")?,
            context: columns.u32("context_id")?,
            stream: columns.u32("stream_id")?,
            correlation: columns.u32("correlation_id")?,
            start,
            end: columns.i64("end_ns")?,
            order,
            next: 0,
        });
    }
    Ok(Merged { streams, now: 0, until: Some((i64::MIN, WorkKind::Kernel)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::draws::draws;
    use crate::table::events::Tables;
    use crate::test_tables::of_one_stream;

    #[test]
    fn merged_work_is_in_the_order_of_a_sort() {
        for seed in 0..200 {
            let mut draw = draws(seed);
            let mut expected = Vec::new();
            let mut tables = Tables::new();
            let kinds = [
                (&schema::KERNELS, WorkKind::Kernel),
                (&schema::GRAPH_LAUNCHES, WorkKind::Graph),
                (&schema::MEMOPS, WorkKind::Copy),
            ];
            for (table, kind) in kinds {
                // Few instants, so that rows of several tables start together; now and then no table, or an empty one.
                let mut rows: Vec<(i64, i64)> = (0..draw(30)).map(|_| (draw(20), draw(5))).collect();
                if draw(3) > 0 {
                    rows.sort_by_key(|r| r.0);
                }
                expected.extend(rows.iter().enumerate().map(|(row, r)| (r.0, kind, row)));
                if draw(4) > 0 || !rows.is_empty() {
                    let rows: Vec<_> = rows.iter().map(|r| (r.0, r.0 + r.1)).collect();
                    tables.insert(table.name, of_one_stream(table, &rows).finish(rows.len()).unwrap());
                }
            }
            expected.sort_unstable();
            let events = Events::of(&tables);
            let got: Vec<_> = work(&events).unwrap().map(|w| (w.start_ns, w.kind, w.row)).collect();
            assert_eq!(got, expected, "seed {seed}");
        }
    }
}
