//! How long did the kernels of each name take, of an export that nobody loads?
//!
//! Three columns are read, and one length a kernel is kept.

use arrow_array::cast::AsArray;
use arrow_array::{Array, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array};

use super::events::Raw;
use super::layout;
use super::staged::{resolve, Names};
use super::Reader;
use crate::error::{Error, Result};
use crate::lanes::Lanes;
use crate::schema::{Builder, KERNELS, KERNEL_SUMMARY};
use crate::statistics;

/// The table `kernel_summary`: longest in total first, then by name. Rows that are no interval are left out.
pub(super) fn kernels(reader: &Reader<'_>) -> Result<RecordBatch> {
    let Some(plan) = layout::find(reader.database, &layout::KERNEL)? else {
        return Ok(KERNEL_SUMMARY.empty());
    };
    reader.database.read_soon(&[&plan.table])?;
    let mut raw = Raw::read(reader, &plan, &KERNELS, &["name"], &[])?;
    raw.keep_intervals();
    let names = Names::of(raw.distinct("name"));
    let strings = reader.strings(&names.needed_strings().collect())?;
    let (names, _) = resolve(names, &strings)?;
    let (Some(start), Some(end)) = (raw.times("start_ns"), raw.times("end_ns")) else {
        return Ok(KERNEL_SUMMARY.empty());
    };
    let Some(texts) = names.values().as_string_opt::<i32>() else {
        return Err(Error::schema("names", "are no text".to_owned()));
    };
    // The last group is that of kernels whose name is not there.
    let unnamed = texts.len();
    let (codes, named) = (names.keys().values(), names.nulls());
    let group_of = |row: usize, code: &u32| match named {
        Some(named) if named.is_null(row) => unnamed,
        _ => *code as usize,
    };
    let lanes = Lanes::for_rows(raw.rows);
    let part = lanes.rows(raw.rows);
    let gathered = lanes.each((0..raw.rows).step_by(part).collect(), |from: usize| {
        let rows = from..raw.rows.min(from + part);
        let codes = codes.get(rows.clone()).unwrap_or_default();
        let mut sizes = vec![0; unnamed + 1];
        for (row, code) in rows.clone().zip(codes) {
            if let Some(size) = sizes.get_mut(group_of(row, code)) {
                *size += 1;
            }
        }
        let mut lengths: Vec<Vec<i64>> = sizes.into_iter().map(Vec::with_capacity).collect();
        let (start, end) = (start.values.get(rows.clone()), end.values.get(rows.clone()));
        let times = start.unwrap_or_default().iter().zip(end.unwrap_or_default());
        for ((row, code), (start, end)) in rows.zip(codes).zip(times) {
            if let Some(lengths) = lengths.get_mut(group_of(row, code)) {
                lengths.push(end - start);
            }
        }
        lengths
    });
    let mut groups: Vec<(Option<&str>, Vec<i64>)> = texts.iter().map(|text| (text, Vec::new())).collect();
    groups.push((None, Vec::new()));
    for part in gathered {
        for ((_, all), lengths) in groups.iter_mut().zip(part) {
            if all.is_empty() {
                *all = lengths;
            } else {
                all.extend(lengths);
            }
        }
    }
    let mut rows: Vec<Spread<'_>> =
        lanes.each(groups, |(name, lengths)| Spread::of(name, lengths)).into_iter().flatten().collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    Builder::new(&KERNEL_SUMMARY)
        .put("name", rows.iter().map(|row| row.name).collect::<StringArray>())
        .put("kernels", rows.iter().map(|row| Some(row.kernels)).collect::<UInt64Array>())
        .put("total_ns", rows.iter().map(|row| Some(row.total_ns)).collect::<Int64Array>())
        .put("mean_ns", rows.iter().map(|row| Some(row.mean_ns)).collect::<Float64Array>())
        .put("median_ns", rows.iter().map(|row| Some(row.median_ns)).collect::<Float64Array>())
        .put("min_ns", rows.iter().map(|row| Some(row.min_ns)).collect::<Int64Array>())
        .put("max_ns", rows.iter().map(|row| Some(row.max_ns)).collect::<Int64Array>())
        .put("stddev_ns", rows.iter().map(|row| row.stddev_ns).collect::<Float64Array>())
        .finish(rows.len())
}

/// A row of the table.
struct Spread<'a> {
    name: Option<&'a str>,
    kernels: u64,
    total_ns: i64,
    mean_ns: f64,
    median_ns: f64,
    min_ns: i64,
    max_ns: i64,
    stddev_ns: Option<f64>,
}

impl<'a> Spread<'a> {
    /// `None` of nothing.
    fn of(name: Option<&'a str>, lengths: Vec<i64>) -> Option<Self> {
        let (min_ns, max_ns) = (*lengths.iter().min()?, *lengths.iter().max()?);
        // A year each: more of them than a file can hold stay within 128 bits.
        let total: i128 = lengths.iter().map(|length| i128::from(*length)).sum();
        let mean_ns = total as f64 / lengths.len() as f64;
        let squares: f64 = lengths.iter().map(|length| (*length as f64 - mean_ns).powi(2)).sum();
        let stddev_ns = (lengths.len() > 1).then(|| (squares / (lengths.len() - 1) as f64).sqrt());
        let kernels = u64::try_from(lengths.len()).unwrap_or(u64::MAX);
        let median_ns = statistics::median_of(lengths)?;
        let total_ns = i64::try_from(total).unwrap_or(i64::MAX);
        Some(Self { name, kernels, total_ns, mean_ns, median_ns, min_ns, max_ns, stddev_ns })
    }
}
