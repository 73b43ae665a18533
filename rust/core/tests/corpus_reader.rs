//! Compare the reader with NVIDIA's `nsys stats` on real exports of nsys 2021 to 2026.
//!
//! The same report in several schemas must give the same tables. The captures are not part of the repository:
//! `$PYANALYZE_CORPUS`, else `../shared/corpus` beside it. Without them these tests print why they do nothing.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use arrow_array::{Array, RecordBatch};
use pyanalyze_core::base::watch::{StopAfter, Unwatched};
use pyanalyze_core::read::nsys::{read, Want};
use pyanalyze_core::table::columns::Columns;
use pyanalyze_core::table::events::{Tables, EVENT_TABLES};
use pyanalyze_core::table::launch::unfold;
use pyanalyze_core::table::schema::{self, Table};
use pyanalyze_core::Error;

fn corpus() -> Option<PathBuf> {
    let folder = match std::env::var_os("PYANALYZE_CORPUS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
    };
    if folder.join("exports").is_dir() {
        return Some(folder);
    }
    println!("skipped: no captures at {}; set PYANALYZE_CORPUS", folder.display());
    None
}

fn exports(corpus: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(corpus.join("exports")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|e| e == "sqlite") {
                found.push(file);
            }
        }
    }
    found.sort();
    found
}

/// The CSV of `nsys stats` for an export: rows by column name.
fn expected(corpus: &Path, export: &Path, report: &str) -> Option<Vec<BTreeMap<String, String>>> {
    let folder = export.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let stem = export.file_stem().unwrap().to_str().unwrap();
    let text =
        std::fs::read_to_string(corpus.join(format!("expected/{folder}__{stem}_{report}.csv"))).ok()?;
    let mut rows = csv(&text).into_iter();
    let header = rows.next().unwrap();
    Some(
        rows.map(|row| {
            assert_eq!(row.len(), header.len(), "{folder}/{stem}: {row:?}");
            header.iter().cloned().zip(row).collect()
        })
        .collect(),
    )
}

/// RFC 4180: quoted fields may hold commas, line ends and doubled quotes.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            c => field.push(c),
        }
    }
    assert!(field.is_empty() && row.is_empty() && !quoted);
    rows.retain(|row: &Vec<String>| row.len() > 1 || row.iter().any(|f| !f.is_empty()));
    rows
}

#[test]
fn the_csv_reader_of_this_test_knows_quotes() {
    assert_eq!(csv("a,\"b, \"\"c\"\"\nd\"\r\ne,f\n"), [["a", "b, \"c\"\nd"], ["e", "f"]]);
}

/// Durations by name.
fn durations(batch: &RecordBatch, table: &'static Table, name: &str) -> BTreeMap<String, Vec<i64>> {
    let columns = Columns::new(table, batch);
    let (start, end) = (columns.i64("start_ns").unwrap(), columns.i64("end_ns").unwrap());
    let names = columns.names(name).unwrap();
    let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for row in 0..columns.rows() {
        let name = names.get(row).unwrap().to_owned();
        found.entry(name).or_default().push(end.value(row) - start.value(row));
    }
    found
}

/// Compares with `nsys stats`, whose averages have one decimal.
fn compare(
    what: &str,
    ours: &BTreeMap<String, Vec<i64>>,
    theirs: &[BTreeMap<String, String>],
    name: &str,
    count: &str,
) {
    assert_eq!(ours.len(), theirs.len(), "{what}: {:?}", ours.keys());
    for row in theirs {
        let mut times = ours.get(&row[name]).unwrap_or_else(|| panic!("{what}: no {}", row[name])).clone();
        times.sort_unstable();
        let number = |key: &str| row[key].parse::<f64>().unwrap();
        let n = times.len();
        let total: i64 = times.iter().sum();
        let median = (times[(n - 1) / 2] + times[n / 2]) as f64 / 2.0;
        let mean = total as f64 / n as f64;
        assert_eq!(n as f64, number(count), "{what}: {}", row[name]);
        assert_eq!(total as f64, number("Total Time (ns)"), "{what}: {}", row[name]);
        assert_eq!(times[0] as f64, number("Min (ns)"), "{what}: {}", row[name]);
        assert_eq!(times[n - 1] as f64, number("Max (ns)"), "{what}: {}", row[name]);
        assert!((mean - number("Avg (ns)")).abs() <= 0.051, "{what}: {} {mean}", row[name]);
        assert!((median - number("Med (ns)")).abs() <= 0.051, "{what}: {} {median}", row[name]);
    }
}

fn listing(folder: &Path) -> BTreeMap<PathBuf, (u64, Option<SystemTime>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (metadata.len(), metadata.modified().ok()));
        }
    }
    found
}

#[test]
fn every_export_loads_and_sums_as_nsys_stats_does() {
    let Some(corpus) = corpus() else { return };
    let before = listing(&corpus);
    let exports = exports(&corpus);
    assert_eq!(exports.len(), 49);
    let (mut kernel_files, mut memory_files) = (0, 0);
    for export in &exports {
        let what = export.display().to_string();
        let tables = read(export, 0, &Want::all(), &Unwatched).unwrap_or_else(|e| panic!("{e}"));
        for (table, order) in EVENT_TABLES {
            if let Some(batch) = tables.get(table.name) {
                assert!(
                    Columns::new(table, batch).i64(order).unwrap().values().is_sorted(),
                    "{what}: {}",
                    table.name
                );
            }
        }
        assert_eq!(tables["capture"].num_rows(), 1, "{what}");
        // Calls of hosts and samples of processors are named where an export has them.
        let sources = Columns::new(&schema::SOURCES, &tables["sources"]);
        let named = sources.names("source").unwrap();
        let rows = 0..tables["sources"].num_rows();
        let others =
            rows.filter(|row| !matches!(named.get(*row), Some("host_calls" | "cpu_samples"))).count();
        assert_eq!(others, 15, "{what}");
        let with_hosts = usize::from(tables.contains_key("host_calls"));
        assert_eq!(tables.len(), 19 + with_hosts, "{what}");
        check_devices(&what, &tables);
        check_secrets(&what, &tables);
        if let Some(rows) = expected(&corpus, export, "cuda_gpu_kern_sum") {
            compare(
                &what,
                &durations(&tables["kernels"], &schema::KERNELS, "name"),
                &rows,
                "Name",
                "Instances",
            );
            kernel_files += 1;
        } else {
            assert_eq!(tables["kernels"].num_rows(), 0, "{what}");
        }
        if let Some(rows) = expected(&corpus, export, "cuda_gpu_mem_time_sum") {
            let ours = durations(&tables["memops"], &schema::MEMOPS, "operation");
            compare(&what, &ours, &rows, "Operation", "Count");
            memory_files += 1;
        }
    }
    assert_eq!((kernel_files, memory_files), (44, 36));
    assert!(before == listing(&corpus), "reading changed the folder of the captures");
}

/// Every device that a row names has a row, and only one.
fn check_devices(what: &str, tables: &Tables) {
    let devices = Columns::new(&schema::DEVICES, &tables["devices"]);
    let known: Vec<u32> = devices.u32("device_id").unwrap().values().to_vec();
    assert!(known.windows(2).all(|w| w[0] < w[1]), "{what}: {known:?}");
    for (table, _) in EVENT_TABLES {
        if let Some(batch) = tables.get(table.name) {
            let ids = Columns::new(table, batch).u32("device_id").unwrap();
            assert!(ids.iter().flatten().all(|id| known.contains(&id)), "{what}: {}", table.name);
        }
    }
}

/// Nothing of the environment but what is on the list of the design.
fn check_secrets(what: &str, tables: &Tables) {
    let configured = Columns::new(&schema::CONFIGURED, &tables["configured"]);
    let keys = configured.names("key").unwrap();
    for row in 0..configured.rows() {
        let key = keys.get(row).unwrap();
        let listed = ["CUDA_MPS_", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT", "NVSHARE_"];
        let exact = [
            "CUDA_VISIBLE_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "CUDA_LAUNCH_BLOCKING",
            "CUDA_MODULE_LOADING",
            "mps_daemon",
            "graph_trace_mode",
            "gpu_context_switch_trace",
            "nvtx_trace",
            "cuda_trace",
            "program",
            "gpu_context_switch_support",
            "wsl2",
        ];
        assert!(exact.contains(&key) || listed.iter().any(|l| key.starts_with(l)), "{what}: {key}");
    }
}

/// Names of the columns that differ between two batches, of those that both schemas hold.
fn differing(a: &RecordBatch, b: &RecordBatch) -> BTreeSet<String> {
    assert_eq!(a.num_rows(), b.num_rows(), "{}", a.schema().metadata()["pyanalyze.schema"]);
    let (a, b) = (unfold(a).unwrap(), unfold(b).unwrap());
    let mut found = BTreeSet::new();
    for (at, field) in a.schema().fields().iter().enumerate() {
        let (x, y) = (a.column(at), b.column(at));
        // A column that one schema does not have is all null there.
        if x.null_count() == x.len() || y.null_count() == y.len() {
            // Exporters before 2024 do not have these; everything else must be in both.
            let newer = ["cluster_x", "cluster_y", "cluster_z", "max_active_clusters"];
            assert!(x.null_count() == y.null_count() || newer.contains(&field.name().as_str()), "{field}");
            continue;
        }
        let plain = |array: &dyn Array| match field.data_type() {
            arrow_schema::DataType::Dictionary(_, value) => arrow_cast::cast(array, value).unwrap(),
            _ => arrow_array::make_array(array.to_data()),
        };
        if plain(x) != plain(y) {
            found.insert(field.name().clone());
        }
    }
    found
}

#[test]
fn one_report_gives_equal_tables_in_every_schema() {
    let Some(corpus) = corpus() else { return };
    // The first of each line is compared with all others.
    let reports: &[&[&str]] = &[
        &["mig-a30/report1.sqlite", "mig-a30/report1.nsys2026.sqlite"],
        &["mig-a30/report3.sqlite", "mig-a30/report3.nsys2023.sqlite", "mig-a30/report3.nsys2026.sqlite"],
        &[
            "rtx3090-gpumetrics/report2.nsys2022.sqlite",
            "rtx3090-gpumetrics/report2.nsys2023.sqlite",
            "rtx3090-gpumetrics/report2.nsys2026.sqlite",
        ],
        &["fuser/report1.sqlite", "fuser/report1.nsys2026.sqlite"],
        &["mordred/report1@bb50baf.sqlite", "mordred/report1.nsys2026.sqlite"],
        &["aws_gpu/report2.sqlite", "aws_gpu/report2.nsys2025.sqlite"],
        &["balinski/report19.sqlite", "balinski/report19.nsys2026.sqlite"],
        &["test-cuda-4streams/report2.sqlite", "test-cuda-4streams/report2.nsys2026.sqlite"],
        &[
            "raiderstream/report1.nsys2022.sqlite",
            "raiderstream/report1.nsys2023.sqlite",
            "raiderstream/report1.nsys2026.sqlite",
        ],
    ];
    let mut pairs = 0;
    let mut wrong = Vec::new();
    for report in reports {
        let load =
            |name: &str| read(&corpus.join("exports").join(name), 0, &Want::analysis(), &Unwatched).unwrap();
        let first = load(report[0]);
        for name in &report[1..] {
            let other = load(name);
            for table in ["kernels", "memops", "graph_launches", "switch_events", "gpu_metrics"] {
                let differing = differing(&first[table], &other[table]);
                if !differing.is_empty() {
                    wrong.push(format!("{name} {table}: {differing:?}"));
                }
            }
            if name.starts_with("rtx3090") {
                // 6090 samples of 18 metrics, counted with SQL.
                assert_eq!(other["gpu_metrics"].num_rows(), 109_620);
            }
            pairs += 1;
        }
    }
    assert_eq!(pairs, 12);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Newer exporters shuffle rows: the same export with all its tables turned upside down.
#[test]
fn the_order_of_rows_means_nothing() {
    let Some(corpus) = corpus() else { return };
    for name in [
        "ctxsw-ada-timeslice/utils__report1.nsys2026.sqlite",
        "jaxtoolbox-gb200/nsys_report_benchmark.nsys2026.sqlite",
        "nsys-ai/h100_2gpu_1s.sqlite",
        "ngp-graph/baseline.nsys2026.sqlite",
        "nemo-a5000/report2.nsys2026.sqlite",
        "alpa-8x3090/report2.nsys2026.sqlite",
    ] {
        let original = corpus.join("exports").join(name);
        let folder = tempfile::tempdir().unwrap();
        let turned = folder.path().join("turned.sqlite");
        std::fs::copy(&original, &turned).unwrap();
        let connection = rusqlite::Connection::open(&turned).unwrap();
        let mut statement =
            connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").unwrap();
        let tables: Vec<String> =
            statement.query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect();
        drop(statement);
        connection.execute_batch("PRAGMA synchronous=OFF; BEGIN").unwrap();
        for table in tables {
            let sql = format!(
                "CREATE TABLE turned AS SELECT * FROM \"{table}\" ORDER BY rowid DESC;
                DROP TABLE \"{table}\"; ALTER TABLE turned RENAME TO \"{table}\""
            );
            connection.execute_batch(&sql).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
        drop(connection);
        let a = read(&original, 0, &Want::all(), &Unwatched).unwrap();
        let b = read(&turned, 0, &Want::all(), &Unwatched).unwrap();
        for (table, batch) in &a {
            if *table != "capture" {
                assert_eq!(differing(batch, &b[table]), BTreeSet::new(), "{name} {table}");
            }
        }
    }
}

fn row_of(tables: &Tables, name: &str, pid: u32) -> Vec<(u32, i64)> {
    let kernels = Columns::new(schema::table(name).unwrap(), &tables[name]);
    let (pids, devices) = (kernels.u32("pid").unwrap(), kernels.u32("device_id").unwrap());
    let start = kernels.i64("start_ns").unwrap();
    (0..kernels.rows())
        .filter(|r| pids.value(*r) == pid)
        .map(|r| (devices.value(r), start.value(r)))
        .collect()
}

#[test]
fn what_is_known_of_single_captures() {
    let Some(corpus) = corpus() else { return };
    let load =
        |name: &str| read(&corpus.join("exports").join(name), 7, &Want::analysis(), &Unwatched).unwrap();

    // The CUDA ordinal 0 is the GPU with id 3; counted with SQL on the file.
    let tables = load("pipit/perlmutter-cloverleaf-cuda.sqlite");
    let kernels = row_of(&tables, "kernels", 1_701_896);
    assert_eq!(kernels.len(), 1312);
    let devices = Columns::new(&schema::DEVICES, &tables["devices"]);
    assert_eq!(devices.rows(), 4);
    let place = (0..4).find(|r| devices.u32("device_id").unwrap().value(*r) == kernels[0].0).unwrap();
    assert_eq!(devices.i64("gpu_id").unwrap().value(place), 3);
    assert_eq!(devices.text("bus_location").unwrap().value(place), "0000:03:00.0");

    // Two MPS clients, 50 % each, said by the command line and the process list.
    let tables = load("concurrent-examples/mps_profile.nsys2025.sqlite");
    let configured = Columns::new(&schema::CONFIGURED, &tables["configured"]);
    let value = |key: &str, source: &str| {
        let (keys, sources) = (configured.names("key").unwrap(), configured.names("source").unwrap());
        (0..configured.rows())
            .filter(|r| keys.get(*r) == Some(key) && sources.get(*r) == Some(source))
            .map(|r| configured.text("value").unwrap().value(r).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(value("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "command-line"), ["50"]);
    assert_eq!(value("mps_daemon", "process-list"), ["nvidia-cuda-mps", "nvidia-cuda-mps"]);
    let processes = Columns::new(&schema::PROCESSES, &tables["processes"]);
    let traced: Vec<u32> = (0..processes.rows())
        .filter(|r| processes.bool("traced").unwrap().value(*r))
        .map(|r| processes.u32("pid").unwrap().value(r))
        .collect();
    assert_eq!(traced, [42157, 42158]);
    assert_eq!(tables["contexts"].num_rows(), 2);
    let start = Columns::new(&schema::CAPTURE, &tables["capture"]);
    assert_eq!(start.i64("utc_origin_ns").unwrap().value(0), 1_730_760_231_035_557_616);

    // Time-slicing against a process that only the switch records show.
    let tables = load("ctxsw-ada-timeslice/utils__report1.nsys2026.sqlite");
    assert_eq!(tables["switch_events"].num_rows(), 2430);
    assert_eq!(row_of_switches(&tables, 30398), 1216);
    let capture = Columns::new(&schema::CAPTURE, &tables["capture"]);
    assert_eq!(capture.i32("utc_offset_s").unwrap().value(0), -4 * 3600);
    assert_eq!(capture.text("cuda_driver_version").unwrap().value(0), "12.6");

    // A MIG instance; eight GPUs without ordinals; a trimmed export without GPUs.
    let tables = load("mig-a30/report1.nsys2026.sqlite");
    let devices = Columns::new(&schema::DEVICES, &tables["devices"]);
    assert_eq!(devices.text("mig_profile").unwrap().value(0), "2g.12gb");
    assert!(devices.text("uuid").unwrap().value(0).starts_with("MIG-6abc4723-"));
    assert!(devices.text("gpu_uuid").unwrap().is_null(0));
    assert_eq!(devices.names("limits_basis").unwrap().get(0), Some("capture"));
    let tables = load("gpubootcamp-8v100/report1.nsys2026.sqlite");
    assert!(quality(&tables).contains("device_mapping_guessed"));
    assert_eq!(row_of(&tables, "kernels", 32938)[0].0, 3);
    let tables = load("nsys-ai/h100_2gpu_1s.sqlite");
    assert!(quality(&tables).contains("no_device_info"));
    assert_eq!(tables["devices"].num_rows(), 2);
    let tables = load("nsys-ai/healthy_1pct.sqlite");
    assert!(quality(&tables).contains("no_pids"));
}

fn row_of_switches(tables: &Tables, pid: u32) -> usize {
    let switches = Columns::new(&schema::SWITCH_EVENTS, &tables["switch_events"]);
    switches.u32("pid").unwrap().iter().filter(|p| *p == Some(pid)).count()
}

fn quality(tables: &Tables) -> BTreeSet<String> {
    let quality = Columns::new(&schema::QUALITY, &tables["quality"]);
    let names = quality.names("name").unwrap();
    (0..quality.rows()).map(|r| names.get(r).unwrap().to_owned()).collect()
}

#[test]
fn a_caller_can_stop_it() {
    let Some(corpus) = corpus() else { return };
    let export = corpus.join("exports/ngp-graph/baseline.nsys2026.sqlite");
    for reports in [0, 3, 12] {
        let outcome = read(&export, 0, &Want::all(), &StopAfter::new(reports));
        assert!(matches!(outcome, Err(Error::Cancelled)), "{reports}");
    }
}
