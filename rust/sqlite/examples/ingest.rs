//! Measure how fast a table is read, against SQLite and against memory bandwidth.
//!
//! `cargo run --release -p pyanalyze-sqlite --example ingest -- EXPORT [RUNS]` prints one JSON line per set of columns:
//! seconds of `sqlite3_step` on one thread, of our scan on one thread and on all, of a plain sum over the same leaf
//! pages in memory, and of reading those pages without decoding. Seconds are medians of interleaved runs (SQLite's are
//! not interleaved); the two that are compared have their fastest run too. `tests/bench/ingest.py` runs it.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Instant;

use pyanalyze_spill::Spilling;
use pyanalyze_sqlite::{As, Database, Unwatched};
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

/// Adds the seconds that the work takes; gives what the work gives.
fn timed<T>(seconds: &mut Vec<f64>, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let found = black_box(work());
    seconds.push(began.elapsed().as_secs_f64());
    found
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

fn connection(path: &Path) -> Connection {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(format!("file:{}?immutable=1", path.display()), flags).unwrap()
}

/// Bytes read at once.
const PIECE: u64 = 256 << 10;

/// The leaf pages of a table, by SQLite's own statistics: stretches of the file, as (offset, bytes).
fn leaf_stretches(path: &Path, table: &str) -> Vec<(u64, u64)> {
    let connection = connection(path);
    let mut statement = connection
        .prepare(
            "SELECT pgoffset, pgsize FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY pgoffset",
        )
        .unwrap();
    let unsigned = |n: i64| u64::try_from(n).unwrap_or(0);
    let pages =
        statement.query_map([table], |row| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)))).unwrap();
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    for (offset, bytes) in pages.map(Result::unwrap) {
        match stretches.last_mut() {
            Some(last) if last.0 + last.1 == offset && last.1 < PIECE => last.1 += bytes,
            _ => stretches.push((offset, bytes)),
        }
    }
    stretches
}

/// Reads the stretches one after the other into the same memory; returns how many bytes that were.
fn read(path: &Path, stretches: &[(u64, u64)], mut see: impl FnMut(&[u8])) -> usize {
    let mut file = File::open(path).unwrap();
    let (mut piece, mut total) = (Vec::new(), 0);
    for (offset, bytes) in stretches {
        piece.resize(usize::try_from(*bytes).unwrap(), 0);
        file.seek(SeekFrom::Start(*offset)).unwrap();
        file.read_exact(&mut piece).unwrap();
        see(&piece);
        total += piece.len();
    }
    total
}

/// SQLite at its best: read-only, immutable, one statement, every value taken and thrown away.
fn step(path: &Path, table: &str, columns: &[(&str, As)]) -> usize {
    let connection = connection(path);
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
        let stretches = leaf_stretches(&path, table);
        let mut leaves = Vec::new();
        let bytes = read(&path, &stretches, |piece| leaves.extend_from_slice(piece));
        for (name, columns) in sets {
            let [mut step_s, mut sum_s, mut read_s, mut one_s, mut many_s] = [(); 5].map(|()| Vec::new());
            let mut rows = 0;
            for _ in 0..runs.min(3) {
                rows = timed(&mut step_s, || step(&path, table, &columns));
            }
            // Memory that was free for two seconds the host of a virtual machine may have taken back; getting it again from
            // there takes longer than the whole scan. So nothing that takes seconds is between what follows.
            scan(&path, table, &columns, 1);
            // Alternately: what the machine lends to others it lends for seconds.
            for _ in 0..runs {
                timed(&mut sum_s, || {
                    let words = leaves.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_ne_bytes));
                    words.fold(0_u64, u64::wrapping_add)
                });
                let read = timed(&mut read_s, || {
                    read(&path, &stretches, |piece| {
                        black_box(piece);
                    })
                });
                let ours = timed(&mut one_s, || scan(&path, table, &columns, 1));
                let on_all = timed(&mut many_s, || scan(&path, table, &columns, threads));
                assert_eq!((read, ours, on_all), (bytes, rows, rows));
            }
            // Who works on the other half of a processor slows the copying of pages more than the sum, and may do so
            // for all of the runs of one.
            let fastest = |seconds: &[f64]| seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let (sum_fastest_s, scan_fastest_s) = (fastest(&sum_s), fastest(&one_s));
            let [step_s, sum_s, read_s, one_s, many_s] =
                [step_s, sum_s, read_s, one_s, many_s].map(|mut seconds| median(&mut seconds));
            println!(
                "{{\"table\": \"{table}\", \"columns\": \"{name}\", \"n_columns\": {}, \"rows\": {rows}, \
                 \"leaf_bytes\": {bytes}, \"step_s\": {step_s:.4}, \"scan_s\": {one_s:.4}, \
                 \"scan_threads_s\": {many_s:.4}, \"threads\": {threads}, \"sum_s\": {sum_s:.4}, \
                 \"read_s\": {read_s:.4}, \"sum_fastest_s\": {sum_fastest_s:.4}, \
                 \"scan_fastest_s\": {scan_fastest_s:.4}}}",
                columns.len()
            );
        }
    }
}
