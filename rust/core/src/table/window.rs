//! Restrict a table to a time window or to one device.
//!
//! Rows of one interval of time stand together, so most columns of the result share memory with the original: a part of
//! a large capture costs what its cut rows cost.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt32Array};
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;

use crate::base::error::{Error, Result};
use crate::table::builder::replace;
use crate::table::columns::{at, Columns};
use crate::table::schema::{self, Table};

/// Tags of `switch_events`: the state of a context was saved, and that of another begins to be restored.
const SAVE_END: u8 = 7;
const RESTORE_START: u8 = 8;

/// What to keep; `None`: not narrowed in that respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// First and last time.
    pub window: Option<(i64, i64)>,
    /// A device; rows of no device are kept as well.
    pub device: Option<u32>,
}

/// The rows of `batch` inside of the selection: points from the first to the last time, intervals that begin before
/// the last time and end no earlier than the first, cut there. An interval without an end is a point at its start.
///
/// # Errors
/// [`Error::Schema`] for a table that is not what it is declared to be, or without times.
pub fn cut(table: &'static Table, batch: &RecordBatch, selection: Selection) -> Result<RecordBatch> {
    let columns = Columns::new(table, batch);
    let has = |name: &str| table.columns.iter().any(|c| c.name == name);
    let device = match selection.device.filter(|_| has("device_id")) {
        Some(device) => Some((columns.u32("device_id")?, device)),
        None => None,
    };
    let of_device = |row: usize| {
        device.is_none_or(|(devices, device)| devices.is_null(row) || devices.value(row) == device)
    };
    let Some((first, last)) = selection.window else {
        return take(table, batch, 0..batch.num_rows(), of_device);
    };
    if table.name == schema::SWITCH_EVENTS.name {
        return cut_switches(table, &take(table, batch, 0..batch.num_rows(), of_device)?, (first, last));
    }
    if has("time_ns") {
        let times = columns.i64("time_ns")?;
        let inside = |row: usize| at(times, row).is_none_or(|t| (first..=last).contains(&t));
        return take(table, batch, 0..batch.num_rows(), |row| of_device(row) && inside(row));
    }
    let (starts, ends) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    // A domain is called what it is called at any time.
    let kinds = if table.name == schema::NVTX.name { Some(columns.names("kind")?) } else { None };
    let timeless = |row: usize| kinds.as_ref().is_some_and(|k| k.get(row) == Some(schema::DOMAIN));
    let inside = |row: usize| {
        let start = starts.value(row);
        timeless(row) || start < last && at(ends, row).unwrap_or(start) >= first
    };
    // Of the many rows far from the window one time is enough to see that they are.
    let mut near = 0..batch.num_rows();
    if kinds.is_none() && ends.null_count() == 0 {
        near.start = ends.values().iter().position(|end| *end >= first).unwrap_or(near.end);
        let last_row = starts.values().iter().rposition(|start| *start < last);
        near.end = last_row.map_or(near.start, |row| near.start.max(row + 1));
    }
    let kept = take(table, batch, near, |row| of_device(row) && inside(row))?;
    let columns = Columns::new(table, &kept);
    let (starts, ends) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    let mut changes: Vec<(&str, ArrayRef)> = Vec::new();
    if starts.iter().flatten().any(|t| t < first) {
        let later: Int64Array = starts.unary(|t| t.max(first));
        changes.push(("start_ns", Arc::new(later)));
    }
    if ends.iter().flatten().any(|t| t > last) {
        let earlier: Int64Array = ends.unary(|t| t.min(last));
        changes.push(("end_ns", Arc::new(earlier)));
    }
    if changes.is_empty() {
        return Ok(kept);
    }
    replace(table, &kept, changes)
}

/// Switch records inside of the window, and those that say which context was resident at its edges, moved to the edge:
/// the records from the last RESTORE_START before it on, where no SAVE_END follows that, and those up to the first
/// SAVE_END after it, where no RESTORE_START comes first.
fn cut_switches(
    table: &'static Table,
    batch: &RecordBatch,
    (first, last): (i64, i64),
) -> Result<RecordBatch> {
    let columns = Columns::new(table, batch);
    let (devices, times, tags) = (columns.u32("device_id")?, columns.i64("time_ns")?, columns.u8("tag")?);
    let mut by_device: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for row in 0..batch.num_rows() {
        by_device.entry(at(devices, row)).or_default().push(row);
    }
    let mut kept: Vec<(i64, Option<u32>, u32)> = Vec::new();
    for (device, rows) in by_device {
        let of = |inside: &dyn Fn(i64) -> bool| -> Vec<usize> {
            rows.iter().copied().filter(|row| inside(times.value(*row))).collect()
        };
        let mut keep = |rows: &[usize], moved: Option<i64>| -> Result<()> {
            for row in rows {
                let place = u32::try_from(*row)
                    .map_err(|_| Error::schema(&table.id(), "too many rows".to_owned()))?;
                kept.push((moved.unwrap_or(times.value(*row)), device, place));
            }
            Ok(())
        };
        let before = of(&|time| time < first);
        let tagged = |row: &usize, tag: u8| tags.value(*row) == tag;
        if let Some(restored) = before.iter().rposition(|row| tagged(row, RESTORE_START)) {
            let since = before.get(restored..).unwrap_or_default();
            if !since.iter().any(|row| tagged(row, SAVE_END)) {
                keep(since, Some(first))?;
            }
        }
        keep(&of(&|time| (first..=last).contains(&time)), None)?;
        let after = of(&|time| time > last);
        if let Some(saved) = after.iter().position(|row| tagged(row, SAVE_END)) {
            let until = after.get(..=saved).unwrap_or_default();
            if !until.iter().any(|row| tagged(row, RESTORE_START)) {
                keep(until, Some(last))?;
            }
        }
    }
    kept.sort_by_key(|(time, device, _)| (*time, *device));
    let rows: UInt32Array = kept.iter().map(|(_, _, row)| Some(*row)).collect();
    let moved: Int64Array = kept.iter().map(|(time, _, _)| Some(*time)).collect();
    let taken = take_record_batch(batch, &rows).map_err(|e| Error::schema(&table.id(), e.to_string()))?;
    replace(table, &taken, vec![("time_ns", Arc::new(moved))])
}

/// The rows that are to be kept, all of them `near`; where they stand together, the same memory.
fn take(
    table: &Table,
    batch: &RecordBatch,
    near: Range<usize>,
    keep: impl Fn(usize) -> bool,
) -> Result<RecordBatch> {
    let first = near.clone().find(|row| keep(*row)).unwrap_or(near.end);
    let end = (first..near.end).rev().find(|row| keep(*row)).map_or(first, |last| last + 1);
    let stretch: Range<usize> = first..end;
    let inner = batch.slice(stretch.start, stretch.len());
    if stretch.clone().all(&keep) {
        return Ok(inner);
    }
    let kept: BooleanArray = stretch.map(|row| Some(keep(row))).collect();
    filter_record_batch(&inner, &kept).map_err(|e| Error::schema(&table.id(), e.to_string()))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Float64Array, UInt16Array, UInt64Array, UInt8Array};

    use super::*;
    use crate::table::builder::Builder;

    fn kernels(rows: &[(u32, i64, i64)]) -> RecordBatch {
        let column = |value: u32| UInt32Array::from(vec![value; rows.len()]);
        Builder::new(&schema::KERNELS)
            .put("capture", column(0))
            .put("device_id", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
            .put("start_ns", rows.iter().map(|r| Some(r.1)).collect::<Int64Array>())
            .put("end_ns", rows.iter().map(|r| Some(r.2)).collect::<Int64Array>())
            .finish(rows.len())
            .unwrap()
    }

    fn times(batch: &RecordBatch) -> Vec<(i64, i64)> {
        let column = |name| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
        column("start_ns").into_iter().zip(column("end_ns")).collect()
    }

    fn select(window: Option<(i64, i64)>, device: Option<u32>) -> Selection {
        Selection { window, device }
    }

    #[test]
    fn intervals_are_cut_at_both_edges() {
        // Before, ending at the edge, across it, inside, across the other, beginning there.
        let all = kernels(&[(0, 0, 5), (0, 1, 10), (0, 2, 15), (0, 12, 14), (0, 18, 30), (0, 20, 25)]);
        let cut = cut(&schema::KERNELS, &all, select(Some((10, 20)), None)).unwrap();
        assert_eq!(times(&cut), [(10, 10), (10, 15), (12, 14), (18, 20)]);
    }

    #[test]
    fn a_long_one_from_before_is_kept_though_others_between_are_not() {
        let all = kernels(&[(0, 0, 50), (0, 1, 2), (1, 11, 12), (0, 13, 14)]);
        assert_eq!(
            times(&cut(&schema::KERNELS, &all, select(Some((10, 20)), None)).unwrap()),
            [(10, 20), (11, 12), (13, 14)]
        );
        assert_eq!(
            times(&cut(&schema::KERNELS, &all, select(Some((10, 20)), Some(0))).unwrap()),
            [(10, 20), (13, 14)]
        );
        assert_eq!(times(&cut(&schema::KERNELS, &all, select(None, Some(1))).unwrap()), [(11, 12)]);
        assert_eq!(cut(&schema::KERNELS, &all, select(Some((90, 95)), None)).unwrap().num_rows(), 0);
    }

    #[test]
    fn marks_and_samples_are_points() {
        let marks = Builder::new(&schema::NVTX)
            .put("capture", UInt32Array::from(vec![0; 3]))
            .put("start_ns", Int64Array::from(vec![9, 10, 19]))
            .put("end_ns", Int64Array::from(vec![None, None, Some(40)]))
            .put_names("kind", [Some("mark"), Some("mark"), Some("push-pop")])
            .finish(3)
            .unwrap();
        let cut_marks = cut(&schema::NVTX, &marks, select(Some((10, 20)), Some(7))).unwrap();
        let ends = cut_marks.column_by_name("end_ns").unwrap().as_primitive::<Int64Type>().clone();
        assert_eq!(ends.iter().collect::<Vec<_>>(), [None, Some(20)]);
        let samples = Builder::new(&schema::GPU_METRICS)
            .put("capture", UInt32Array::from(vec![0; 3]))
            .put("device_id", UInt32Array::from(vec![0; 3]))
            .put("time_ns", Int64Array::from(vec![9, 20, 21]))
            .put_names("metric", [Some("SMs Active"); 3])
            .put("value", Float64Array::from(vec![1.0, 2.0, 3.0]))
            .finish(3)
            .unwrap();
        let kept = cut(&schema::GPU_METRICS, &samples, select(Some((10, 20)), None)).unwrap();
        assert_eq!(kept.num_rows(), 1);
    }

    #[test]
    fn who_was_resident_at_an_edge_is_so_from_there_on() {
        // (device, time, tag): 7 save end, 8 restore start, 9 context start.
        let records = |rows: &[(u32, i64, u8)]| {
            Builder::new(&schema::SWITCH_EVENTS)
                .put("capture", UInt32Array::from(vec![0; rows.len()]))
                .put("device_id", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
                .put("time_ns", rows.iter().map(|r| Some(r.1)).collect::<Int64Array>())
                .put("tag", rows.iter().map(|r| Some(r.2)).collect::<UInt8Array>())
                .put("hw_context", UInt64Array::from(vec![1; rows.len()]))
                .put("sequence", UInt16Array::from(vec![0; rows.len()]))
                .finish(rows.len())
                .unwrap()
        };
        let cut_to = |rows: &[(u32, i64, u8)]| -> Vec<(u32, i64, u8)> {
            let kept = cut(&schema::SWITCH_EVENTS, &records(rows), select(Some((10, 20)), None)).unwrap();
            let columns = Columns::new(&schema::SWITCH_EVENTS, &kept);
            let (devices, times) = (columns.u32("device_id").unwrap(), columns.i64("time_ns").unwrap());
            let tags = columns.u8("tag").unwrap();
            (0..kept.num_rows()).map(|row| (devices.value(row), times.value(row), tags.value(row))).collect()
        };
        // Restored before and saved after: resident from edge to edge; on the other device, saved before the window.
        let across =
            [(0, 1, 7), (0, 2, 8), (0, 3, 9), (1, 4, 8), (1, 5, 7), (0, 30, 7), (0, 31, 8), (1, 40, 8)];
        assert_eq!(cut_to(&across), [(0, 10, 8), (0, 10, 9), (0, 20, 7)]);
        // Inside all stay as they are; a restore that follows the window says nothing of its end.
        assert_eq!(
            cut_to(&[(0, 9, 7), (0, 12, 8), (0, 15, 7), (0, 21, 8), (0, 22, 7)]),
            [(0, 12, 8), (0, 15, 7)]
        );
    }
}
