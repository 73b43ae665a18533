//! Measure the speed and memory of residency, attribution and inferred residency.
//!
//! `cargo run --release -p pyanalyze-core --example residency -- residency|attribution|inferred ROWS` prints one JSON
//! line: rows, seconds, processor seconds of the first thread, bytes of the input and output tables, and peak memory.
//! Two contexts are time-sliced (2.1 ms); a slice holds ten kernels of 0.19 ms. `tests/bench/residency.py` runs it, one
//! process a line.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::time::Instant;

use arrow_array::{Int64Array, RecordBatch, UInt16Array, UInt32Array, UInt64Array, UInt8Array};
use pyanalyze_core::activity::attribution::Attribution;
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::identity::tenants::Tenants;
use pyanalyze_core::residency::inferred::InferredResidency;
use pyanalyze_core::residency::observed::{Ending, Residency, Slice};
use pyanalyze_core::table::builder::Builder;
use pyanalyze_core::table::events::{EventPass, Tables};
use pyanalyze_core::table::schema;

const SLICE_NS: i64 = 2_100_000;
const GAP_NS: i64 = 42_000;

/// Every slice begins at a multiple of a slice and a gap, with a little scatter at its end.
fn slice(number: i64) -> (i64, i64) {
    let start = number * (SLICE_NS + GAP_NS);
    (start, start + SLICE_NS - (number * 7919) % 20_000)
}

fn switch_events(rows: usize) -> RecordBatch {
    let time = |row: i64| if row % 2 == 0 { slice(row / 2).0 } else { slice(row / 2).1 };
    let who = |row: usize| (row / 2) % 2;
    Builder::new(&schema::SWITCH_EVENTS)
        .put("capture", UInt32Array::from(vec![0; rows]))
        .put("device_id", UInt32Array::from(vec![0; rows]))
        .put("time_ns", (0..rows as i64).map(time).collect::<Int64Array>().slice(0, rows))
        .put("tag", (0..rows).map(|row| if row % 2 == 0 { 8 } else { 7 }).map(Some).collect::<UInt8Array>())
        .put("pid", (0..rows).map(|row| Some(700 + who(row) as u32)).collect::<UInt32Array>())
        .put("hw_context", (0..rows).map(|row| Some(10 + who(row) as u64)).collect::<UInt64Array>())
        .put("sequence", (0..rows).map(|row| Some(row as u16)).collect::<UInt16Array>())
        .finish(rows)
        .unwrap()
}

/// Ten kernels begin in every slice of their tenant; the last of them ends in its next slice.
fn kernels(rows: usize) -> RecordBatch {
    let start = |row: usize| slice((row / 10) as i64).0 + 2_000 + (row % 10) as i64 * 200_000;
    let end = |row: usize| {
        if row % 10 == 9 {
            slice((row / 10) as i64 + 2).0 + 1_000
        } else {
            start(row) + 190_000
        }
    };
    Builder::new(&schema::KERNELS)
        .put("capture", UInt32Array::from(vec![0; rows]))
        .put("pid", (0..rows).map(|row| Some(700 + ((row / 10) % 2) as u32)).collect::<UInt32Array>())
        .put("device_id", UInt32Array::from(vec![0; rows]))
        .put("context_id", UInt32Array::from(vec![1; rows]))
        .put("stream_id", UInt32Array::from(vec![7; rows]))
        .put("correlation_id", (0..rows).map(|row| Some(row as u32)).collect::<UInt32Array>())
        .put("start_ns", (0..rows).map(|row| Some(start(row))).collect::<Int64Array>())
        .put("end_ns", (0..rows).map(|row| Some(end(row))).collect::<Int64Array>())
        .put_words("name", (0..rows).map(|_| "k"))
        .finish(rows)
        .unwrap()
}

fn residency(slices: usize) -> RecordBatch {
    let rows: Vec<Slice> = (0..slices as i64)
        .map(|number| Slice {
            capture: 0,
            device: 0,
            tenant: Some((number % 2) as u32),
            pid: Some(700 + (number % 2) as u32),
            hw_context: 10 + (number % 2) as u64,
            start_ns: slice(number).0,
            end_ns: slice(number).1,
            running_start_ns: None,
            running_end_ns: None,
            ending: Ending::Unknown,
            complete: true,
            observed: true,
        })
        .collect();
    Slice::write(&rows).unwrap()
}

fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|kb| kb.parse::<usize>().ok()).unwrap_or(0)
        * 1024
}

/// What this thread had of the processors so far.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let rows: usize = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(100_000);
    let bytes =
        |batches: &[&RecordBatch]| -> usize { batches.iter().map(|b| b.get_array_memory_size()).sum() };
    let (seconds, cpu, table_bytes) = match what.as_str() {
        "residency" => {
            let tables = Tables::from([("switch_events", switch_events(rows))]);
            let (began, cpu) = (Instant::now(), cpu_seconds());
            let out = Residency::default().run(&tables, &Unwatched).unwrap();
            let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
            assert_eq!(out.residency.num_rows(), rows / 2);
            let events = tables.values().next().unwrap();
            (seconds, cpu, bytes(&[events, &out.residency, &out.switches]))
        }
        "attribution" => {
            let mut tables = Tables::from([("kernels", kernels(rows)), ("residency", residency(rows / 10))]);
            // Who is who is found on a sample: it is not what is measured.
            let few = Tables::from([("kernels", kernels(1000)), ("residency", residency(100))]);
            tables.insert("tenants", Tenants::new(&few).unwrap().run(&few, &Unwatched).unwrap().tenants);
            let held = tables["residency"].clone();
            let mut events = tables.clone();
            events.remove("residency");
            let (began, cpu) = (Instant::now(), cpu_seconds());
            let out = Attribution::new(&tables).unwrap().run(&events, &Unwatched).unwrap();
            let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
            assert_eq!(out.num_rows(), rows);
            // Columns that it shares with the kernels count once.
            (seconds, cpu, bytes(&[&tables["kernels"], &held]) + rows * (4 + 8 + 8 + 4))
        }
        "inferred" => {
            let mut tables = Tables::from([("kernels", kernels(rows))]);
            let few = Tables::from([("kernels", kernels(1000))]);
            tables.insert("tenants", Tenants::new(&few).unwrap().run(&few, &Unwatched).unwrap().tenants);
            let (began, cpu) = (Instant::now(), cpu_seconds());
            let pass = InferredResidency::new(&tables, &BTreeSet::from([0])).unwrap();
            let out = pass.run(&tables, &Unwatched).unwrap();
            let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
            assert!(out.num_rows() > rows / 20);
            (seconds, cpu, bytes(&[&tables["kernels"], &out]))
        }
        _ => return println!("name residency, attribution or inferred, and how many rows"),
    };
    println!(
        "{{\"what\":\"{what}\",\"rows\":{rows},\"seconds\":{seconds:.4},\"cpu_seconds\":{cpu:.4},\"table_bytes\":{table_bytes},\"peak_bytes\":{}}}",
        peak_bytes()
    );
}
