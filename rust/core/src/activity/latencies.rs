//! Bin the kernel latency (launch to end) of each tenant over time.
//!
//! One pass over kernels and calls makes a bounded number of bins, as many as a chart shows:
//!
//! ```text
//!   launch call  |=|          |=|    |=|
//!   kernel          |====|           |======|       |===|
//!   latency      |-------|    |-------------:-------|---|...   counted in the bin of the launch
//!   busy            |----|           |---:--|       |---|      counted in every bin that it reaches into
//! ```

use std::collections::BTreeMap;

use arrow_array::{Int64Array, RecordBatch, UInt32Array, UInt64Array};

use crate::base::error::{Error, Result};
use crate::base::intervals::Growing;
use crate::base::maps::ByKey;
use crate::base::statistics::median_ns;
use crate::base::watch::Watch;
use crate::table::builder::Builder;
use crate::table::calls::calls;
use crate::table::columns::{at, Columns};
use crate::table::events::Tables;
use crate::table::schema;
use crate::table::tenant_lookup::{Process, Who};

/// Latency and busy time of one tenant in one bin.
#[derive(Debug, Default)]
struct Bin {
    latencies: Vec<i64>,
    busy_ns: i64,
}

/// `latencies` of one device: `[start_ns, end_ns)` in `n_bins` equal bins; latencies outside count to the outermost.
///
/// # Errors
/// [`Error::Argument`] for an empty window or no bins, [`Error::Schema`] for tables that are not what they are declared
/// to be, [`Error::Cancelled`].
pub fn latencies(
    tables: &Tables,
    device: u32,
    start_ns: i64,
    end_ns: i64,
    n_bins: u32,
    watch: &dyn Watch,
) -> Result<RecordBatch> {
    if start_ns >= end_ns || n_bins == 0 {
        return Err(Error::Argument(format!(
            "latencies over time need a window and at least one bin; got {start_ns}..{end_ns} ns and {n_bins} bins"
        )));
    }
    let Some(batch) = tables.get(schema::KERNELS.name) else { return Ok(schema::LATENCIES.empty()) };
    let columns = Columns::new(&schema::KERNELS, batch);
    let (capture, pid) = (columns.u32("capture")?, columns.u32("pid")?);
    let (on, correlation) = (columns.u32("device_id")?, columns.u32("correlation_id")?);
    let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    let here = |row: usize| on.value(row) == device;
    let id_of = |row: usize| at(correlation, row).filter(|id| *id > 0);

    let calls = calls(tables)?;
    // Of each process, where the call of its last kernel was found.
    let mut hints: BTreeMap<Process, usize> = BTreeMap::new();
    let who = Who::read(tables)?;
    let step_ns = end_ns.saturating_sub(start_ns).div_euclid(i64::from(n_bins)).max(1);
    let last_bin = i64::from(n_bins.saturating_sub(1));
    let last_ns = start_ns.saturating_add(step_ns.saturating_mul(i64::from(n_bins)));
    let bin_of = |time: i64| time.saturating_sub(start_ns).div_euclid(step_ns).clamp(0, last_bin);
    let mut bins: ByKey<(u32, i64), Bin> = ByKey::default();
    // Kernels come by start, so that of each only its part behind the latest end is new.
    let mut in_flight: BTreeMap<u32, Growing> = BTreeMap::new();
    for_runs(
        columns.rows(),
        watch,
        here,
        |row| (capture.value(row), at(pid, row)),
        |process, rows| {
            let Some(tenant) = who.of(process.0, process.1, device) else { return Ok(()) };
            let (calls, hint) = (calls.get(&process), hints.entry(process).or_default());
            let in_flight = in_flight.entry(tenant).or_default();
            for row in rows {
                let (from, to) = (start.value(*row), end.value(*row));
                let call = id_of(*row).and_then(|id| calls?.find(id, hint));
                let began = call.map_or(from, |(_, call)| call.start_ns);
                if let Some(bin) = bins.entry((tenant, bin_of(began))) {
                    bin.latencies.push(to.saturating_sub(began));
                }
                // Clipped first: a kernel has no more parts than there are bins.
                let Some((mut from, to)) = in_flight.add(from.max(start_ns), to.min(last_ns)) else {
                    continue;
                };
                while from < to {
                    let bin = bin_of(from);
                    let until = to.min(start_ns.saturating_add((bin + 1).saturating_mul(step_ns)));
                    if let Some(busy) = bins.entry((tenant, bin)) {
                        busy.busy_ns = busy.busy_ns.saturating_add(until.saturating_sub(from));
                    }
                    from = until;
                }
            }
            Ok(())
        },
    )?;
    table(bins.into_sorted(), device, start_ns, step_ns)
}

/// Calls `each` with rows that follow each other and belong to one process; `here` says which rows count at all.
fn for_runs(
    rows: usize,
    watch: &dyn Watch,
    here: impl Fn(usize) -> bool,
    process: impl Fn(usize) -> Process,
    mut each: impl FnMut(Process, &[usize]) -> Result<()>,
) -> Result<()> {
    let mut run: Vec<usize> = Vec::with_capacity(4096);
    let mut whose: Option<Process> = None;
    for row in (0..rows).filter(|row| here(*row)) {
        let this = process(row);
        if whose != Some(this) || run.len() >= 4096 {
            if let Some(known) = whose.replace(this) {
                each(known, &run)?;
            }
            watch.progress("latencies", row as u64, rows as u64)?;
            run.clear();
        }
        run.push(row);
    }
    watch.progress("latencies", rows as u64, rows as u64)?;
    whose.map_or(Ok(()), |known| each(known, &run))
}

fn table(
    mut bins: BTreeMap<(u32, i64), Bin>,
    device: u32,
    start_ns: i64,
    step_ns: i64,
) -> Result<RecordBatch> {
    let from = |bin: i64| start_ns.saturating_add(bin.saturating_mul(step_ns));
    let middle: Vec<Option<i64>> = bins.values().map(|bin| median_ns(&bin.latencies)).collect();
    let high: Vec<Option<i64>> = bins.values_mut().map(|bin| nearest_p95(&mut bin.latencies)).collect();
    Builder::new(&schema::LATENCIES)
        .put("device_id", bins.iter().map(|_| Some(device)).collect::<UInt32Array>())
        .put("tenant_id", bins.keys().map(|(tenant, _)| Some(*tenant)).collect::<UInt32Array>())
        .put("start_ns", bins.keys().map(|(_, bin)| Some(from(*bin))).collect::<Int64Array>())
        .put("end_ns", bins.keys().map(|(_, bin)| Some(from(bin.saturating_add(1)))).collect::<Int64Array>())
        .put("kernels", bins.values().map(|bin| Some(bin.latencies.len() as u64)).collect::<UInt64Array>())
        .put("p50_ns", middle.into_iter().collect::<Int64Array>())
        .put("p95_ns", high.into_iter().collect::<Int64Array>())
        .put("busy_ns", bins.values().map(|bin| Some(bin.busy_ns)).collect::<Int64Array>())
        .finish(bins.len())
}

/// The value that stands nearest to the 95th percentile; `None` of nothing. Reorders.
fn nearest_p95(values: &mut [i64]) -> Option<i64> {
    let place = (0.95 * values.len().checked_sub(1)? as f64).round() as usize;
    Some(*values.select_nth_unstable(place).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::test_tables::{kernels, named};

    /// Kernels of hand-made rows with ids 1, 2, 3... in the order of their starts.
    fn session(rows: &[(u32, u32, u32, u32, u32, i64, i64)], calls: &[(u32, u32, i64)]) -> Tables {
        let made = kernels(rows);
        let ids = (1..=made.num_rows() as u32).map(Some).collect::<UInt32Array>();
        let place = made.schema().index_of("correlation_id").unwrap();
        let mut columns = made.columns().to_vec();
        columns[place] = std::sync::Arc::new(ids);
        let made = RecordBatch::try_new(made.schema(), columns).unwrap();
        let called = Builder::new(&schema::API_CALLS)
            .put("capture", calls.iter().map(|_| Some(0)).collect::<UInt32Array>())
            .put("pid", calls.iter().map(|c| Some(c.0)).collect::<UInt32Array>())
            .put("correlation_id", calls.iter().map(|c| Some(c.1)).collect::<UInt32Array>())
            .put("start_ns", calls.iter().map(|c| Some(c.2 * 1000)).collect::<Int64Array>())
            .put("end_ns", calls.iter().map(|c| Some(c.2 * 1000 + 5)).collect::<Int64Array>())
            .put_names("name", calls.iter().map(|_| Some("cudaLaunchKernel")))
            .finish(calls.len())
            .unwrap();
        named(Tables::from([("kernels", made), ("api_calls", called)])).0
    }

    /// Tenant, begin, kernels, median, 95th percentile, at work.
    type Shown = (u32, i64, u64, Option<i64>, Option<i64>, i64);

    fn shown(batch: &RecordBatch) -> Vec<Shown> {
        let c = Columns::new(&schema::LATENCIES, batch);
        (0..batch.num_rows())
            .map(|row| {
                (
                    c.u32("tenant_id").unwrap().value(row),
                    c.i64("start_ns").unwrap().value(row) / 1000,
                    c.u64("kernels").unwrap().value(row),
                    at(c.i64("p50_ns").unwrap(), row).map(|ns| ns / 1000),
                    at(c.i64("p95_ns").unwrap(), row).map(|ns| ns / 1000),
                    c.i64("busy_ns").unwrap().value(row) / 1000,
                )
            })
            .collect()
    }

    #[test]
    fn latency_counts_from_the_outer_call_in_the_bin_of_its_begin() {
        //       0         100        200 us        pid 7, kernels 1..3; pid 8, kernel 4 without a call
        // 1  c|==|k====|                           call 10 (and a driver call inside at 12), kernel 20..50
        // 2            c|90   k=110..130=|         call 90: latency 40 in bin 0, busy 20 in bin 1
        // 3                     c150  k=160..170=| latency 20 in bin 1
        // 4                              k=180..190=|
        let tables = session(
            &[
                (0, 7, 0, 1, 7, 20, 50),
                (0, 7, 0, 1, 7, 110, 130),
                (0, 7, 0, 1, 7, 160, 170),
                (0, 8, 0, 1, 7, 180, 190),
            ],
            &[(7, 1, 10), (7, 1, 12), (7, 2, 90), (7, 3, 150), (7, 99, 155), (9, 4, 1)],
        );
        let made = latencies(&tables, 0, 0, 200_000, 2, &Unwatched).unwrap();
        assert_eq!(
            shown(&made),
            [
                // latencies 40 and 40: both launched before 100 us; only the first was at work there
                (0, 0, 2, Some(40), Some(40), 30),
                (0, 100, 1, Some(20), Some(20), 30),
                (1, 100, 1, Some(10), Some(10), 10),
            ]
        );
        assert_eq!(latencies(&tables, 1, 0, 200_000, 2, &Unwatched).unwrap().num_rows(), 0);
    }

    #[test]
    fn a_bin_in_which_nothing_was_launched_has_no_latency() {
        let tables = session(&[(0, 7, 0, 1, 7, 150, 160)], &[(7, 1, 20)]);
        let made = latencies(&tables, 0, 0, 200_000, 2, &Unwatched).unwrap();
        assert_eq!(shown(&made), [(0, 0, 1, Some(140), Some(140), 0), (0, 100, 0, None, None, 10)]);
    }

    #[test]
    fn busy_time_is_in_every_bin_that_a_kernel_reaches_into() {
        //          0         100        200        300        400 us
        // kernels     50|========================================|450
        //                            |220==280|  beside it: adds nothing
        let tables = session(&[(0, 7, 0, 1, 7, 50, 450), (0, 7, 0, 1, 8, 220, 280)], &[]);
        let made = latencies(&tables, 0, 0, 400_000, 4, &Unwatched).unwrap();
        let busy: Vec<_> = shown(&made).iter().map(|row| (row.1, row.2, row.5)).collect();
        assert_eq!(busy, [(0, 1, 50), (100, 0, 100), (200, 1, 100), (300, 0, 100)]);
    }

    #[test]
    fn latencies_outside_count_to_the_outermost_bins_and_busy_time_does_not() {
        let tables = session(&[(0, 7, 0, 1, 7, -50, -40), (0, 7, 0, 1, 7, 900, 930)], &[]);
        let made = latencies(&tables, 0, 0, 200_000, 2, &Unwatched).unwrap();
        assert_eq!(shown(&made), [(0, 0, 1, Some(10), Some(10), 0), (0, 100, 1, Some(30), Some(30), 0)]);
    }

    #[test]
    fn the_95th_of_a_hundred_and_of_one() {
        // places 0..99: 0.95 * 99 = 94.05, so the value at place 94
        assert_eq!(nearest_p95(&mut (1..=100).rev().collect::<Vec<i64>>()), Some(95));
        assert_eq!(nearest_p95(&mut [7]), Some(7));
        assert_eq!(nearest_p95(&mut []), None);
    }

    #[test]
    fn wrong_windows_nothing_and_cancellation() {
        let empty = Tables::new();
        assert!(latencies(&empty, 0, 5, 5, 10, &Unwatched).unwrap_err().to_string().contains("window"));
        assert!(latencies(&empty, 0, 0, 5, 0, &Unwatched).is_err());
        assert_eq!(latencies(&empty, 0, 0, 5, 10, &Unwatched).unwrap().num_rows(), 0);
        let tables = session(&[(0, 7, 0, 1, 7, 150, 160)], &[]);
        assert!(matches!(latencies(&tables, 0, 0, 5, 10, &StopAfter::new(0)), Err(Error::Cancelled)));
    }
}
