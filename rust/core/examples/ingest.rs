//! How fast is a table read, against SQLite and against the memory it stands in?
//!
//! `cargo run --release -p pyanalyze-core --example ingest -- EXPORT [RUNS]` prints one JSON line per set of columns:
//! seconds (medians) of `sqlite3_step` on one thread, of our scan on one thread and on all, and of a plain sum
//! over the same leaf pages in memory, and of reading those pages with nothing done to them.
//! `tests/bench/ingest.py` runs it.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use pyanalyze_core::sqlite::{As, Database};
use pyanalyze_core::watch::Unwatched;
use pyanalyze_spill::Spilling;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// As in the extension: blocks of columns are large.
#[global_allocator]
static ALLOCATOR: Spilling = Spilling;

/// What the analysis reads of every kernel, each as narrow as its column in the `kernels` table.
const TEN: [(&str, As); 10] = [
    ("start", As::I64),
    ("end", As::I64),
    ("deviceId", As::U32),
    ("contextId", As::U32),
    ("streamId", As::U32),
    ("correlationId", As::U32),
    ("globalPid", As::Distinct),
    ("demangledName", As::Distinct),
    ("gridX", As::U32),
    ("blockX", As::U32),
];
const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Median of the seconds that the work takes, and what it says each time.
///
/// The same work time and again, not in turn with others: memory that was free for a second or two the host of a virtual
/// machine may have taken back, and getting it again from there takes longer than the whole scan.
fn median(runs: usize, mut work: impl FnMut() -> usize) -> (f64, usize) {
    let mut rows = 0;
    let mut seconds: Vec<f64> = (0..runs)
        .map(|_| {
            let began = Instant::now();
            rows = black_box(work());
            began.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    (seconds.get(runs / 2).copied().unwrap_or(f64::NAN), rows)
}

/// SQLite at its best: read-only, immutable, one statement, every value taken and thrown away.
fn step(path: &Path, table: &str, columns: &[(&str, As)]) -> usize {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(format!("file:{}?immutable=1", path.display()), flags).unwrap();
    let names: Vec<String> = columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let mut statement = connection.prepare(&format!("SELECT {} FROM {table}", names.join(", "))).unwrap();
    let (mut rows, mut sum) = (0, 0_i64);
    let mut found = statement.query([]).unwrap();
    while let Some(row) = found.next().unwrap() {
        for column in 0..columns.len() {
            sum = sum.wrapping_add(match row.get_ref(column).unwrap() {
                ValueRef::Integer(value) => value,
                ValueRef::Text(bytes) => i64::try_from(bytes.len()).unwrap_or(0),
                _ => 0,
            });
        }
        rows += 1;
    }
    black_box(sum);
    rows
}

fn scan(path: &Path, table: &str, columns: &[(&str, As)], threads: usize) -> usize {
    let database = Database::open(path).unwrap().with_threads(threads);
    let (rows, columns) = database.columns(table, columns, &Unwatched).unwrap();
    assert!(database.by_sqlite().is_empty());
    black_box(columns);
    rows
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().map(std::path::PathBuf::from).unwrap_or_default();
    let runs = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(3);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let database = Database::open(&path).unwrap();
    for table in [KERNELS, CALLS] {
        let names: Vec<String> = database.tables().get(table).cloned().unwrap_or_default();
        // As narrow as the tables that are made of them: times and bytes 64 bits, names and ids of threads once.
        let kind = |name: &str| match name {
            "start" | "end" | "gridId" => As::I64,
            _ if name.contains("Memory") => As::I64,
            _ if name.contains("Name") || name.starts_with("global") || name.starts_with("tensor") => {
                As::Distinct
            }
            _ => As::U32,
        };
        let all: Vec<(&str, As)> = names.iter().map(|name| (name.as_str(), kind(name))).collect();
        let sets: Vec<(&str, Vec<(&str, As)>)> = if table == KERNELS {
            let three: Vec<_> =
                TEN.iter().copied().filter(|(n, _)| ["start", "end", "streamId"].contains(n)).collect();
            vec![("three", three), ("ten", TEN.to_vec()), ("all", all)]
        } else {
            vec![("all", all)]
        };
        let leaves = database.leaf_pages(table).unwrap();
        let (sum_s, _) = median(runs, || {
            let words = leaves.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_ne_bytes));
            black_box(words.fold(0_u64, u64::wrapping_add)) as usize
        });
        let bytes = leaves.len();
        drop(leaves);
        let (read_s, read) = median(runs, || database.read_leaves(table).unwrap());
        assert_eq!(read, bytes);
        for (name, columns) in sets {
            let (step_s, rows) = median(runs.min(3), || step(&path, table, &columns));
            let (one_s, ours) = median(runs, || scan(&path, table, &columns, 1));
            let (many_s, _) = median(runs, || scan(&path, table, &columns, threads));
            assert_eq!(rows, ours);
            println!(
                "{{\"table\": \"{table}\", \"columns\": \"{name}\", \"n_columns\": {}, \"rows\": {rows}, \
                 \"leaf_bytes\": {bytes}, \"step_s\": {step_s:.4}, \"scan_s\": {one_s:.4}, \
                 \"scan_threads_s\": {many_s:.4}, \"threads\": {threads}, \"sum_s\": {sum_s:.4}, \
                 \"read_s\": {read_s:.4}}}",
                columns.len()
            );
        }
    }
}
