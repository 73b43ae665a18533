//! Measure how fast the facts of a verdict are computed.
//!
//! `cargo run --release -p pyanalyze-core --example facts -- ROWS` prints one JSON line: kernels, seconds and processor
//! seconds (all threads) of the overlap of tenants (`overlap`) and of the facts, and the peak memory. Two processes are
//! time-sliced (2.1 ms), each with three streams and twelve kinds of kernels. `tests/bench/facts.py` runs it, one
//! process a line.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Instant;

use arrow_array::{Int64Array, RecordBatch, UInt32Array};
use pyanalyze_core::activity::features::Facts;
use pyanalyze_core::activity::overlap::Overlap;
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::identity::tenants::Tenants;
use pyanalyze_core::table::builder::Builder;
use pyanalyze_core::table::events::{EventPass, Tables};
use pyanalyze_core::table::quality::Quality;
use pyanalyze_core::table::schema;

const SLICE_NS: i64 = 2_142_000;
const NAMES: [&str; 4] = ["gemm", "softmax", "layer_norm", "copy_kernel"];

/// Ten kernels begin in every slice of their tenant; the last of them ends in its next slice. Without a generator of
/// random numbers: the scatter of lengths is that of a multiplication modulo a prime.
fn kernels(rows: usize) -> RecordBatch {
    let pid = |row: usize| 700 + ((row / 10) % 2) as u32;
    let start = |row: usize| (row / 10) as i64 * SLICE_NS + 2_000 + (row % 10) as i64 * 200_000;
    let scatter = |row: usize| (row as i64 * 7919) % 10_007;
    let end = |row: usize| start(row) + scatter(row) + if row % 10 == 9 { 2 * SLICE_NS } else { 170_000 };
    let kind = |row: usize| (row * 31) % 12;
    let column =
        |value: &dyn Fn(usize) -> u32| (0..rows).map(|row| Some(value(row))).collect::<UInt32Array>();
    Builder::new(&schema::KERNELS)
        .put("capture", column(&|_| 0))
        .put("pid", column(&pid))
        .put("device_id", column(&|_| 0))
        .put("context_id", column(&|_| 1))
        .put("stream_id", column(&|row| 13 + (row % 3) as u32))
        .put("correlation_id", column(&|row| row as u32))
        .put("start_ns", (0..rows).map(|row| Some(start(row))).collect::<Int64Array>())
        .put("end_ns", (0..rows).map(|row| Some(end(row))).collect::<Int64Array>())
        .put_words("name", (0..rows).map(|row| NAMES[kind(row) % 4]))
        .put("grid_x", column(&|row| 100 + 150 * (kind(row) / 4) as u32))
        .put("grid_y", column(&|_| 1))
        .put("grid_z", column(&|_| 1))
        .put("block_x", column(&|_| 256))
        .put("block_y", column(&|_| 1))
        .put("block_z", column(&|_| 1))
        .put("registers_per_thread", column(&|_| 64))
        .put("static_shared_bytes", Int64Array::from(vec![0; rows]))
        .put("dynamic_shared_bytes", Int64Array::from(vec![0; rows]))
        .finish(rows)
        .unwrap()
}

fn devices() -> RecordBatch {
    let one = |value: u32| UInt32Array::from(vec![value]);
    let devices = Builder::new(&schema::DEVICES)
        .put("capture", one(0))
        .put("device_id", one(0))
        .put("compute_major", one(8))
        .put("compute_minor", one(0))
        .put("sm_count", one(108))
        .put_names("limits_basis", [Some("capture")])
        .finish(1)
        .unwrap();
    pyanalyze_core::session::devices::complete(&devices, &mut Quality::default()).unwrap()
}

fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|kb| kb.parse::<usize>().ok()).unwrap_or(0)
        * 1024
}

/// What all threads of this process had of the processors so far, in clock ticks of a hundredth of a second.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    ticks.iter().sum::<f64>() / 100.0
}

fn main() {
    let rows: usize = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(100_000);
    // Who is who is found on a sample: it is not what is measured.
    let few = Tables::from([("kernels", kernels(1000))]);
    let mut tables = Tables::from([("kernels", kernels(rows)), ("devices", devices())]);
    tables.insert("tenants", Tenants::new(&few).unwrap().run(&few, &Unwatched).unwrap().tenants);
    let bytes = tables["kernels"].get_array_memory_size();
    let before_bytes = peak_bytes();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let overlap = Overlap::new(&tables).unwrap().run(&tables, &Unwatched).unwrap();
    let (overlap_s, overlap_cpu_s) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let facts = Facts::new(&tables).unwrap().beside(overlap.overlaps);
    let facts = facts.run(&tables, &Unwatched).unwrap();
    let (facts_s, facts_cpu_s) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    assert_eq!(facts.facts.num_rows(), pyanalyze_core::activity::features::FACTS.len());
    println!(
        "{{\"rows\":{rows},\"facts_s\":{facts_s:.4},\"facts_cpu_s\":{facts_cpu_s:.2},\"overlap_s\":{overlap_s:.4},\
         \"overlap_cpu_s\":{overlap_cpu_s:.2},\"table_bytes\":{bytes},\"added_bytes\":{}}}",
        peak_bytes().saturating_sub(before_bytes)
    );
}
