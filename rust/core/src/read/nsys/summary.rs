//! Summarise kernel time by name without loading the export.
//!
//! Four columns are read, and one duration per kernel is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::slice::IterMut;

use arrow_array::cast::AsArray;
use arrow_array::{Array, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array};

use super::events::{self, wide, Raw};
use super::layout::{self, Plan};
use super::staged::{resolve, Names};
use super::{source_table, Reader, SourceRow, Want, GRAPHS_BY, KERNELS_BY};
use crate::base::error::{Error, Result};
use crate::base::parallel::ThreadPool;
use crate::base::statistics;
use crate::table::builder::Builder;
use crate::table::events::Tables;
use crate::table::kernel_names::told_apart;
use crate::table::quality;
use crate::table::schema::{self, KERNELS, KERNEL_SUMMARY};

/// `kernel_summary`, `sources` and `quality` of an export.
pub(super) fn kernels(reader: &mut Reader<'_>) -> Result<Tables> {
    if reader.database.recovered() {
        reader.count(quality::RECOVERED_COPY, 1, "");
    }
    let plan = layout::find(reader.database, &layout::KERNEL)?;
    let (made, kernels) = match plan {
        None => (KERNEL_SUMMARY.empty(), SourceRow::absent("kernels", KERNELS_BY)),
        Some(plan) => {
            let (made, rows) = of(reader, &plan)?;
            (made, SourceRow::read("kernels", KERNELS_BY, rows, &[plan.table]))
        }
    };
    if made.num_rows() == 0 {
        reader.count(quality::NO_KERNELS, 1, "");
    }
    // The kernels of graphs that were traced whole are not among ours; how long those graphs took is not asked.
    let graphs = events::known(reader, &layout::GRAPH)?;
    reader.count(quality::GRAPHS_TRACED_WHOLE, graphs.as_ref().map_or(0, |(rows, _)| *rows), "");
    let graphs = SourceRow::unread("graph_launches", GRAPHS_BY, graphs);
    reader.count_ways(&Want { kernels: true, graph_launches: true, ..Want::none() })?;
    Ok(Tables::from([
        (KERNEL_SUMMARY.name, made),
        (schema::SOURCES.name, source_table(reader.capture, &[kernels, graphs])?),
        (schema::QUALITY.name, reader.quality.table()?),
    ]))
}

/// The table, longest in total first, then by name, and the rows of the file; those that are no interval are left out.
fn of(reader: &mut Reader<'_>, plan: &Plan) -> Result<(RecordBatch, u64)> {
    reader.database.read_soon(&[&plan.table])?;
    let mut raw = Raw::read(reader, plan, &KERNELS, &["name", "short_name"], &[])?;
    let in_file = wide(raw.rows);
    raw.keep_kernels(reader, plan);
    let (names, shorts) = (Names::of(raw.distinct("name")), Names::of(raw.distinct("short_name")));
    let strings = reader.strings(&names.needed_strings().chain(shorts.needed_strings()).collect())?;
    let ((names, missing), (shorts, _)) = (resolve(names, &strings)?, resolve(shorts, &strings)?);
    reader.count(quality::NAME_MISSING, missing, "kernels.name");
    let (Some(start), Some(end)) = (raw.times("start_ns"), raw.times("end_ns")) else {
        return Ok((KERNEL_SUMMARY.empty(), in_file));
    };
    let (Some(texts), Some(short_texts)) =
        (names.values().as_string_opt::<i32>(), shorts.values().as_string_opt::<i32>())
    else {
        return Err(Error::schema("names", "are no text".to_owned()));
    };
    // The last group is that of kernels whose name is not there.
    let unnamed = texts.len();
    let (codes, named) = (names.keys().values(), names.nulls());
    let group_of = |row: usize, code: &u32| match named {
        Some(named) if named.is_null(row) => unnamed,
        _ => *code as usize,
    };
    // A full name has one short name.
    let mut short_of = vec![None; unnamed + 1];
    for (row, code) in codes.iter().enumerate() {
        if let Some(short @ None) = short_of.get_mut(group_of(row, code)) {
            *short = shorts.key(row).map(|key| short_texts.value(key));
        }
    }
    let mut of_short: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (short, full) in short_of.iter().zip(texts) {
        if let Some(short) = *short {
            of_short.entry(short).or_default().extend(full);
        }
    }
    let told = told_apart(&of_short);
    let called = |full: Option<&str>, short: Option<&str>| {
        let told = told.get(&(short?, full.unwrap_or_default())).map(String::as_str);
        told.or(short).map(str::to_owned)
    };
    let pool = ThreadPool::for_rows(raw.rows);
    let part = pool.rows(raw.rows);
    let parts: Vec<usize> = (0..raw.rows).step_by(part).collect();
    let rows_of = |from: usize| from..raw.rows.min(from + part);
    let codes_of = |from: usize| codes.get(rows_of(from)).unwrap_or_default();
    let sizes: Vec<Vec<usize>> = pool.each(parts.clone(), |from| {
        let mut sizes = vec![0; unnamed + 1];
        for (row, code) in rows_of(from).zip(codes_of(from)) {
            if let Some(size) = sizes.get_mut(group_of(row, code)) {
                *size += 1;
            }
        }
        sizes
    });
    // Every length has its place before one is worked out: those of a name stand together, in the order of the parts.
    let mut lengths = vec![0; raw.rows];
    let mut places: Vec<Vec<IterMut<'_, i64>>> =
        sizes.iter().map(|of| Vec::with_capacity(of.len())).collect();
    let mut rest = lengths.as_mut_slice();
    for group in 0..=unnamed {
        for (places, sizes) in places.iter_mut().zip(&sizes) {
            places.push(first_of(&mut rest, sizes.get(group)).iter_mut());
        }
    }
    pool.each(parts.into_iter().zip(places).collect(), |(from, mut places)| {
        let (start, end) = (start.values.get(rows_of(from)), end.values.get(rows_of(from)));
        let times = start.unwrap_or_default().iter().zip(end.unwrap_or_default());
        for ((row, code), (start, end)) in rows_of(from).zip(codes_of(from)).zip(times) {
            if let Some(place) = places.get_mut(group_of(row, code)).and_then(Iterator::next) {
                *place = end - start;
            }
        }
    });
    let mut rest = lengths.as_mut_slice();
    let groups = texts.iter().chain([None]).zip(short_of).enumerate().map(|(group, (name, short))| {
        let size = sizes.iter().filter_map(|sizes| sizes.get(group)).sum();
        (name, called(name, short), first_of(&mut rest, Some(&size)))
    });
    let groups: Vec<(Option<&str>, Option<String>, &mut [i64])> = groups.collect();
    let rows = pool.each(groups, |(name, short, lengths)| Spread::of(name, short, lengths));
    let mut rows: Vec<Spread<'_>> = rows.into_iter().flatten().collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    let made = Builder::new(&KERNEL_SUMMARY)
        .put("name", rows.iter().map(|row| row.name).collect::<StringArray>())
        .put("short_name", rows.iter().map(|row| row.short_name.as_deref()).collect::<StringArray>())
        .put("kernels", rows.iter().map(|row| Some(row.kernels)).collect::<UInt64Array>())
        .put("total_ns", rows.iter().map(|row| Some(row.total_ns)).collect::<Int64Array>())
        .put("mean_ns", rows.iter().map(|row| Some(row.mean_ns)).collect::<Float64Array>())
        .put("median_ns", rows.iter().map(|row| Some(row.median_ns)).collect::<Float64Array>())
        .put("min_ns", rows.iter().map(|row| Some(row.min_ns)).collect::<Int64Array>())
        .put("max_ns", rows.iter().map(|row| Some(row.max_ns)).collect::<Int64Array>())
        .put("stddev_ns", rows.iter().map(|row| row.stddev_ns).collect::<Float64Array>())
        .finish(rows.len())?;
    Ok((made, in_file))
}

/// Takes so many off the front of `rest`.
fn first_of<'a>(rest: &mut &'a mut [i64], size: Option<&usize>) -> &'a mut [i64] {
    let size = size.map_or(0, |size| (*size).min(rest.len()));
    let (first, after) = std::mem::take(rest).split_at_mut(size);
    *rest = after;
    first
}

/// A row of the table.
struct Spread<'a> {
    name: Option<&'a str>,
    short_name: Option<String>,
    kernels: u64,
    total_ns: i64,
    mean_ns: f64,
    median_ns: f64,
    min_ns: i64,
    max_ns: i64,
    stddev_ns: Option<f64>,
}

impl<'a> Spread<'a> {
    /// `None` of nothing; brings `lengths` out of their order.
    fn of(name: Option<&'a str>, short_name: Option<String>, lengths: &mut [i64]) -> Option<Self> {
        let (mut min_ns, mut max_ns, mut total) = (*lengths.first()?, *lengths.first()?, 0_i128);
        // A year each: a few of them stay within 64 bits, more than a file can hold within 128.
        for few in lengths.chunks(64) {
            let mut sum = 0;
            for length in few {
                min_ns = min_ns.min(*length);
                max_ns = max_ns.max(*length);
                sum += length;
            }
            total += i128::from(sum);
        }
        let mean_ns = total as f64 / lengths.len() as f64;
        // Each of several sums waits only for itself.
        let mut squares = [0.0; 8];
        for few in lengths.chunks(squares.len()) {
            for (sum, length) in squares.iter_mut().zip(few) {
                *sum += (*length as f64 - mean_ns).powi(2);
            }
        }
        let squares: f64 = squares.iter().sum();
        let stddev_ns = (lengths.len() > 1).then(|| (squares / (lengths.len() - 1) as f64).sqrt());
        let kernels = u64::try_from(lengths.len()).unwrap_or(u64::MAX);
        let median_ns = statistics::median_of(lengths)?;
        let total_ns = i64::try_from(total).unwrap_or(i64::MAX);
        Some(Self { name, short_name, kernels, total_ns, mean_ns, median_ns, min_ns, max_ns, stddev_ns })
    }
}
