//! Restrict a table to a time window or to one device.
//!
//! Rows of one interval of time stand together, so most columns of the result share memory with the original: a part of
//! a large capture costs what its cut rows cost.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_select::filter::filter_record_batch;

use crate::base::error::{Error, Result};
use crate::table::builder::replace;
use crate::table::columns::{at, Columns};
use crate::table::schema::{self, Table};

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
        return take(table, batch, of_device);
    };
    if has("time_ns") {
        let times = columns.i64("time_ns")?;
        let inside = |row: usize| at(times, row).is_none_or(|t| (first..=last).contains(&t));
        return take(table, batch, |row| of_device(row) && inside(row));
    }
    let (starts, ends) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    // A domain is called what it is called at any time.
    let kinds = if table.name == schema::NVTX.name { Some(columns.names("kind")?) } else { None };
    let timeless = |row: usize| kinds.as_ref().is_some_and(|k| k.get(row) == Some(schema::DOMAIN));
    let inside = |row: usize| {
        let start = starts.value(row);
        timeless(row) || start < last && at(ends, row).unwrap_or(start) >= first
    };
    let kept = take(table, batch, |row| of_device(row) && inside(row))?;
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

/// The rows that are to be kept; where they stand together, the same memory.
fn take(table: &Table, batch: &RecordBatch, keep: impl Fn(usize) -> bool) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let first = (0..rows).find(|row| keep(*row)).unwrap_or(rows);
    let end = (first..rows).rev().find(|row| keep(*row)).map_or(first, |last| last + 1);
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
    use arrow_array::{Float64Array, UInt32Array};

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
}
