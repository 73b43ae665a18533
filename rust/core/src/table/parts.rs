//! Divide a session where devices were recorded for parts of its time, and put what was made of the parts together.

use std::collections::BTreeMap;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;

use crate::base::error::{Error, Result};
use crate::table::columns::Columns;
use crate::table::events::{concat, Tables};
use crate::table::schema::{self, Table};
use crate::table::window::{cut, Selection};

/// Of the time from the first kernel to the last, recordings that miss no more have all of it: they begin and end inside of
/// residency intervals, and not at the same moment.
const LEAST_MISSED: f64 = 0.05;

/// Tables of work on a device; of calls and ranges of its hosts, which slowdowns and units of work are read from.
const WORK: [&Table; 3] = [&schema::KERNELS, &schema::GRAPH_LAUNCHES, &schema::MEMOPS];
const HOST: [&Table; 5] = [
    &schema::API_CALLS,
    &schema::PROFILER_OVERHEAD,
    &schema::THREAD_RUNS,
    &schema::NVTX,
    &schema::HOST_CALLS,
];

/// First and last time.
pub(crate) type Span = (i64, i64);
/// A session, and the window that it was cut down to.
pub(crate) type Part = (Tables, Option<Span>);

/// A part of the time in which kernels were on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartOfTime {
    /// What was recorded.
    pub recorded: Span,
    /// First kernel to last.
    pub kernels: Span,
}

impl PartOfTime {
    /// `None`: (nearly) all of the time of the kernels was recorded.
    pub fn of(recorded: Span, kernels: Span) -> Option<Self> {
        let found = Self { recorded, kernels };
        let [covered, all] = found.lengths_ns();
        (all.saturating_sub(covered) as f64 > LEAST_MISSED * all as f64).then_some(found)
    }

    /// How long kernels were recorded, and how long there were any.
    fn lengths_ns(&self) -> [i64; 2] {
        let Self { recorded, kernels } = self;
        let both = (recorded.0.max(kernels.0), recorded.1.min(kernels.1));
        [both, *kernels].map(|(first, last)| last.saturating_sub(first).max(0))
    }

    /// The same in words.
    pub fn text(&self) -> String {
        let [covered_s, all_s] = self.lengths_ns().map(|ns| ns as f64 / 1e9);
        format!("{covered_s:.3} of {all_s:.3} s")
    }
}

/// Divides a session: each of some devices by itself, cut down to a time, and all others together.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be.
pub(crate) fn divide(
    session: &Tables,
    times: &BTreeMap<u32, Span>,
    window: Option<Span>,
) -> Result<Vec<Part>> {
    if times.is_empty() {
        return Ok(vec![(session.clone(), window)]);
    }
    let mut parts = Vec::new();
    for (device, time) in times {
        parts.push((of_device(session, *device, *time)?, Some(*time)));
    }
    let rest = without(session, &WORK, |device| times.contains_key(&device))?;
    if WORK.iter().filter_map(|table| rest.get(table.name)).any(|batch| batch.num_rows() > 0) {
        parts.push((rest, window));
    }
    Ok(parts)
}

/// What a session has of a device in a time.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be.
pub(crate) fn of_device(session: &Tables, device: u32, time: Span) -> Result<Tables> {
    let mut part = session.clone();
    let selection = Selection { window: Some(time), device: Some(device) };
    for table in WORK.into_iter().chain(HOST) {
        if let Some(batch) = session.get(table.name) {
            part.insert(table.name, cut(table, batch, selection)?);
        }
    }
    Ok(part)
}

/// A session without the rows of some devices in some tables.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be.
pub(crate) fn without(
    session: &Tables,
    tables: &[&'static Table],
    left_out: impl Fn(u32) -> bool,
) -> Result<Tables> {
    let mut rest = session.clone();
    for table in tables {
        let Some(batch) = session.get(table.name) else { continue };
        let devices = Columns::new(table, batch).u32("device_id")?;
        let kept: BooleanArray = devices.values().iter().map(|id| Some(!left_out(*id))).collect();
        let kept = filter_record_batch(batch, &kept);
        rest.insert(table.name, kept.map_err(|e| Error::schema(&table.id(), e.to_string()))?);
    }
    Ok(rest)
}

/// Puts tables that were made of each part of a session together.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be.
pub(crate) fn together(mut parts: Vec<Tables>, tables: &[&'static Table]) -> Result<Tables> {
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let mut made = Tables::new();
    for table in tables {
        let of_parts: Vec<RecordBatch> =
            parts.iter().filter_map(|part| part.get(table.name)).cloned().collect();
        made.insert(table.name, concat(table, &of_parts)?);
    }
    Ok(made)
}

/// First start and last end of the rows of some tables, by device.
pub(crate) fn spans(session: &Tables, tables: &[&'static Table]) -> Result<BTreeMap<u32, (i64, i64)>> {
    let mut found: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let mut enter = |(device, span): (u32, (i64, i64))| {
        let known = found.entry(device).or_insert(span);
        *known = (known.0.min(span.0), known.1.max(span.1));
    };
    for table in tables {
        let Some(batch) = session.get(table.name) else { continue };
        let c = Columns::new(table, batch);
        let (device, start, end) = (c.u32("device_id")?, c.i64("start_ns")?, c.i64("end_ns")?);
        // Rows of one device come in runs: a map is asked once for each.
        let mut run: Option<(u32, (i64, i64))> = None;
        for ((device, start), end) in device.values().iter().zip(start.values()).zip(end.values()) {
            match &mut run {
                Some((known, span)) if known == device => *span = (span.0.min(*start), span.1.max(*end)),
                _ => run.replace((*device, (*start, *end))).into_iter().for_each(&mut enter),
            }
        }
        run.into_iter().for_each(&mut enter);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tables::kernels;

    #[test]
    fn each_device_is_cut_down_to_its_time_and_the_others_stay_whole() {
        let rows = [(0, 7, 0, 1, 7, 0, 500), (0, 8, 0, 1, 7, 700, 1000), (0, 9, 1, 1, 7, 0, 90)];
        let session = Tables::from([("kernels", kernels(&rows))]);
        let starts_us = |part: &Part| -> Vec<i64> {
            let c = Columns::new(&schema::KERNELS, &part.0["kernels"]);
            c.i64("start_ns").unwrap().values().iter().map(|ns| ns / 1000).collect()
        };
        let parts = divide(&session, &BTreeMap::from([(0, (400_000, 600_000))]), None).unwrap();
        assert_eq!(parts.iter().map(starts_us).collect::<Vec<_>>(), [vec![400], vec![0]]);
        assert_eq!(parts.iter().map(|part| part.1).collect::<Vec<_>>(), [Some((400_000, 600_000)), None]);
        // One whole where nothing is cut.
        let parts = divide(&session, &BTreeMap::new(), Some((1, 2))).unwrap();
        assert_eq!(
            parts.iter().map(|part| (starts_us(part).len(), part.1)).collect::<Vec<_>>(),
            [(3, Some((1, 2)))]
        );
    }

    #[test]
    fn what_misses_a_small_part_misses_nothing() {
        // 20 + 30 of 1000 are not more than a twentieth; 21 + 30 are.
        assert_eq!(PartOfTime::of((20, 970), (0, 1000)), None);
        assert!(PartOfTime::of((21, 970), (0, 1000)).is_some());
        // Longer than the kernels, and before all of them.
        assert_eq!(PartOfTime::of((-500, 5000), (0, 1000)), None);
        let before = PartOfTime::of((-500, -100), (0, 2_000_000_000)).unwrap();
        assert_eq!(before.text(), "0.000 of 2.000 s");
    }
}
