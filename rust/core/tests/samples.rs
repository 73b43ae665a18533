//! Check that all sample formats give the same samples, and that every real file can be read.
//!
//! `fixtures/samples/` holds two moments of one GPU with one process, written by hand in every format.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use arrow_array::{Array, RecordBatch};
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::read::samples::{read, READERS};
use pyanalyze_core::table::columns::Columns;
use pyanalyze_core::table::quality::{self, Quality};
use pyanalyze_core::table::schema::NVML_SAMPLES;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// One row: time in s, instance, process, metric, value or text.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
struct Row {
    second: Option<i64>,
    gi_ci: (Option<u32>, Option<u32>),
    pid: Option<u32>,
    metric: String,
    value: Option<f64>,
    text: String,
}

fn rows(table: &RecordBatch) -> Vec<Row> {
    let c = Columns::new(&NVML_SAMPLES, table);
    let (utc, local) = (c.i64("time_utc_ns").unwrap(), c.i64("time_local_ns").unwrap());
    let (gi, ci, pid) = (c.u32("mig_gi").unwrap(), c.u32("mig_ci").unwrap(), c.u32("pid").unwrap());
    let (metric, value, text) =
        (c.names("metric").unwrap(), c.f64("value").unwrap(), c.text("text").unwrap());
    (0..table.num_rows())
        .map(|row| Row {
            second: [utc, local].iter().find(|t| t.is_valid(row)).map(|t| t.value(row) / 1_000_000_000),
            gi_ci: (gi.is_valid(row).then(|| gi.value(row)), ci.is_valid(row).then(|| ci.value(row))),
            pid: pid.is_valid(row).then(|| pid.value(row)),
            metric: metric.get(row).unwrap().to_owned(),
            value: value.is_valid(row).then(|| value.value(row)),
            text: if text.is_valid(row) { text.value(row).to_owned() } else { String::new() },
        })
        .collect()
}

fn read_file(path: &Path) -> (RecordBatch, Quality) {
    let mut quality = Quality::default();
    let table = read(path, &Unwatched, &mut quality).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (table, quality)
}

fn format(table: &RecordBatch) -> String {
    Columns::new(&NVML_SAMPLES, table).names("format").unwrap().get(0).unwrap().to_owned()
}

/// What the two moments hold, from the fixtures' README by hand: 23028 MiB are 24146608128 bytes.
const FIRST: i64 = 1_781_975_119;
const SECOND: i64 = 1_781_975_121;
const TRUTH: &[(&str, f64, f64)] = &[
    ("gpu_utilization_pct", 37.0, 99.0),
    ("memory_utilization_pct", 12.0, 40.0),
    ("memory_used_bytes", 24_146_608_128.0, 25_165_824_000.0),
    ("memory_total_bytes", 85_520_809_984.0, 85_520_809_984.0),
    ("clock_sm_hz", 1_410_000_000.0, 1_380_000_000.0),
    ("clock_memory_hz", 2_619_000_000.0, 2_619_000_000.0),
    ("power_w", 250.1, 412.0),
    ("temperature_c", 61.0, 64.0),
    ("clocks_event_reasons.sw_power_cap", 0.0, 1.0),
    ("sm_active_ratio", 0.504, 0.75),
    ("sm_occupancy_ratio", 0.07, 0.125),
];

const SMI: &[&str] = &[
    "gpu_utilization_pct",
    "memory_utilization_pct",
    "memory_used_bytes",
    "memory_total_bytes",
    "clock_sm_hz",
    "clock_memory_hz",
    "power_w",
    "temperature_c",
    "clocks_event_reasons.sw_power_cap",
];
const DCGM: &[&str] = &[
    "gpu_utilization_pct",
    "memory_utilization_pct",
    "memory_used_bytes",
    "clock_sm_hz",
    "power_w",
    "temperature_c",
    "sm_active_ratio",
    "sm_occupancy_ratio",
];
const DMON: &[&str] = &[
    "gpu_utilization_pct",
    "memory_utilization_pct",
    "memory_used_bytes",
    "clock_sm_hz",
    "clock_memory_hz",
    "power_w",
    "temperature_c",
];

/// The table has whole watts: the fixture's says that power is not measured.
const TABLE: &[&str] = &["gpu_utilization_pct", "memory_used_bytes", "memory_total_bytes", "temperature_c"];

/// File, reader, the metrics of the truth that it holds, whether it has times, processes.
#[rustfmt::skip]
const FIXTURES: &[(&str, &str, &[&str], bool, bool)] = &[
    ("query-gpu.csv", "nvidia-smi-query-gpu", SMI, true, false),
    ("query-gpu-nounits.csv", "nvidia-smi-query-gpu", SMI, true, false),
    ("query.xml", "nvidia-smi-query-xml", SMI, true, true),
    ("query.txt", "nvidia-smi-query-text", SMI, true, true),
    ("table.txt", "nvidia-smi-table", TABLE, true, true),
    ("recording.jsonl", "pyanalyze-record", SMI, true, true),
    ("dmon.txt", "nvidia-smi-dmon", DMON, true, false),
    ("dcgm-exporter.prom", "dcgm-exporter", DCGM, true, false),
    ("query-range.json", "prometheus-query", DCGM, true, false),
    ("dcgm.csv", "dcgm-csv", DCGM, true, false),
    ("dcgmi-dmon.txt", "dcgmi-dmon", DCGM, false, false),
    ("compute-apps.csv", "nvidia-smi-query-compute-apps", &[], true, true),
    ("pmon.txt", "nvidia-smi-pmon", &[], true, true),
    ("terminal.txt", "terminal", DMON, true, true),
];

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(ROOT).join("fixtures/samples");
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e != "md"));
    found.sort();
    found
}

#[test]
fn the_same_samples_in_every_format_are_the_same_rows() {
    let names: BTreeSet<String> =
        fixtures().iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, FIXTURES.iter().map(|f| f.0.to_owned()).collect());
    // Every format has a fixture.
    let readers: BTreeSet<&str> = READERS.iter().map(|r| r.name).collect();
    assert_eq!(readers, FIXTURES.iter().map(|f| f.1).collect());
    for (file, reader, metrics, timed, processes) in FIXTURES {
        let (table, quality) = read_file(&Path::new(ROOT).join("fixtures/samples").join(file));
        assert_eq!(format(&table), *reader, "{file}");
        assert_eq!(quality.count(quality::ROWS_SKIPPED), 0, "{file}");
        let row = |at: i64, pid: Option<u32>, metric: &str, value: f64| Row {
            second: timed.then_some(at),
            gi_ci: (None, None),
            pid,
            metric: metric.to_owned(),
            value: Some(value),
            text: String::new(),
        };
        let mut expected: Vec<Row> = Vec::new();
        for (metric, first, second) in TRUTH.iter().filter(|t| metrics.contains(&t.0)) {
            expected.push(row(FIRST, None, metric, *first));
            expected.push(row(SECOND, None, metric, *second));
        }
        if *processes {
            // 2566 and 2600 MiB.
            expected.push(row(FIRST, Some(4711), "process_memory_bytes", 2_690_646_016.0));
            expected.push(row(SECOND, Some(4711), "process_memory_bytes", 2_726_297_600.0));
        }
        let wanted = |r: &Row| TRUTH.iter().any(|t| t.0 == r.metric) || r.metric == "process_memory_bytes";
        let mut found: Vec<Row> = rows(&table).into_iter().filter(wanted).collect();
        for part in [&mut expected, &mut found] {
            part.sort_by(|a, b| a.partial_cmp(b).unwrap());
        }
        assert_eq!(found, expected, "{file}");
        // About the same GPU, in the words that the format has.
        let c = Columns::new(&NVML_SAMPLES, &table);
        let (index, uuid) = (c.u32("gpu_index").unwrap(), c.text("gpu_uuid").unwrap());
        for row in 0..table.num_rows() {
            assert!(index.is_valid(row) || uuid.is_valid(row), "{file}");
            assert!(index.is_null(row) || index.value(row) == 0, "{file}");
            assert!(
                uuid.is_null(row) || uuid.value(row) == "GPU-11111111-2222-3333-4444-555555555555",
                "{file}"
            );
        }
        // Two seconds apart; the driver averages over one at most, DCGM over all of it.
        let metrics = c.names("metric").unwrap();
        let intervals: BTreeMap<&str, i64> = (0..table.num_rows())
            .filter_map(|r| {
                let interval = c.i64("interval_ns").unwrap();
                interval.is_valid(r).then(|| (metrics.get(r).unwrap(), interval.value(r)))
            })
            .collect();
        for (metric, interval) in [("gpu_utilization_pct", 1_000_000_000), ("sm_active_ratio", 2_000_000_000)]
        {
            let known = (*timed && rows(&table).iter().any(|r| r.metric == metric)).then_some(interval);
            assert_eq!(intervals.get(metric).copied(), known, "{file}: {metric}");
        }
        assert!(!intervals.contains_key("memory_used_bytes"));
        // Serial number, host and arguments were in the files.
        let whole = format!("{table:?}");
        for secret in ["0320000000001", "node-17", "hunter2", "10.1.2.3"] {
            assert!(!whole.contains(secret), "{file}: {secret}");
        }
    }
}

fn head(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|l| !l.is_empty()).take(20).map(str::to_owned).collect()
}

fn claimed(text: &str) -> Vec<&'static str> {
    let head = head(text);
    READERS.iter().filter(|r| (r.sniff)(&head)).map(|r| r.name).collect()
}

#[test]
fn a_file_of_one_format_is_claimed_by_no_other() {
    let mut pairs = 0;
    for path in fixtures() {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let expected = FIXTURES.iter().find(|f| f.0 == name).unwrap().1;
        assert_eq!(claimed(&text), [expected], "{name}");
        assert_eq!(claimed(&text.replace('\n', "\r\n")), [expected], "{name}");
        pairs += READERS.len();
    }
    assert_eq!(pairs, 14 * 13);
    for other in
        ["", "{}", "[]", "#", "# gpu", "a,b,c\n1,2,3\n", "<html></html>", "<?xml?>\n<a/>\n", "#Entity\nID\n"]
    {
        assert!(claimed(other).is_empty(), "{other}");
    }
}

fn corpus() -> Option<PathBuf> {
    let fallback = Path::new(ROOT).join("../shared/corpus");
    let root = std::env::var_os("PYANALYZE_CORPUS").map_or(fallback, PathBuf::from).join("samples");
    if root.is_dir() {
        return Some(root);
    }
    println!("skipped: no corpus (set PYANALYZE_CORPUS)");
    None
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
    found.sort();
}

/// Outputs inside a capture of nvidia_gpu_exporter: title, text.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut in_title = false;
    for line in text.lines() {
        if line.starts_with("########") {
            in_title = !in_title;
            if in_title {
                found.push(Default::default());
            }
        } else if let Some(last) = found.last_mut() {
            let part = if in_title { &mut last.0 } else { &mut last.1 };
            part.push_str(line);
            part.push('\n');
        }
    }
    found
}

fn has(rows: &[Row], gi_ci: (Option<u32>, Option<u32>), pid: Option<u32>, metric: &str, value: f64) -> bool {
    rows.iter().any(|r| r.gi_ci == gi_ci && r.pid == pid && r.metric == metric && r.value == Some(value))
}

#[test]
fn every_real_file_reads() {
    let Some(root) = corpus() else { return };
    let mut files = Vec::new();
    walk(&root, &mut files);
    let scratch = tempfile::tempdir().unwrap();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |format: String| *seen.entry(format).or_default() += 1;
    let board = (None, None);
    for path in &files {
        let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        if folder != "nvidia-gpu-exporter" {
            let (table, quality) = read_file(path);
            assert_eq!(quality.count(quality::ROWS_SKIPPED), 0, "{name}");
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(claimed(&text), [format(&table)], "{name}");
            let found = rows(&table);
            // Values read by eye, one of every family.
            match name {
                "results__nsys_20260212_093711__dmon_mps.txt" => {
                    // 15 lines; in the fourth the PCIe bus was busy.
                    assert_eq!(found.len(), 15 * 10);
                    assert!(found.iter().all(|r| r.second.is_none()));
                    assert!(has(&found, board, None, "pcie_rx_bytes_per_s", 3_710_000_000.0));
                    assert_eq!(found[33].metric, "decoder_utilization_pct");
                    assert_eq!(found[30].value, Some(86.0));
                }
                "profile_results__dcgm_mps.txt" => {
                    assert_eq!((found[0].metric.as_str(), found[0].value), ("sm_active_ratio", Some(0.854)));
                    assert_eq!(
                        (found[1].metric.as_str(), found[1].value),
                        ("sm_occupancy_ratio", Some(0.18))
                    );
                }
                "data__A100-40g__finetune_moco__dcgm.csv" => {
                    assert_eq!(found.len(), 2 * 2096);
                    let last = &found[found.len() - 2..];
                    assert_eq!((last[0].second, last[0].value), (Some(1_657_288_150), Some(0.476)));
                    // 1692 MiB
                    assert_eq!(last[1].value, Some(1_774_190_592.0));
                }
                n if n.ends_with("a100-sxm4-mig.xml") => {
                    for gi in [1, 2] {
                        let instance = (Some(gi), Some(0));
                        assert!(has(&found, instance, None, "memory_used_bytes", 19.0 * 1_048_576.0));
                        assert!(has(&found, instance, None, "sm_count", 42.0));
                    }
                    assert!(has(&found, board, None, "memory_used_bytes", 38.0 * 1_048_576.0));
                    assert!(has(&found, board, None, "power_w", 66.92));
                    assert!(found.iter().any(|r| r.metric == "gpu_utilization_pct" && r.text == "N/A"));
                    // 2023-01-27 11:32:31
                    assert_eq!(found[0].second, Some(1_674_819_151));
                    assert_eq!(quality.count(quality::SAMPLES_UNAVAILABLE), 4);
                }
                n if n.ends_with("pro-6000-maxq-blackwell-v13.xml") => {
                    assert!(has(
                        &found,
                        board,
                        Some(116_860),
                        "process_memory_bytes",
                        65_710.0 * 1_048_576.0
                    ));
                    assert!(has(&found, board, None, "power_instant_w", 3.99));
                    assert!(has(&found, board, None, "pcie_tx_bytes_per_s", 528_000.0));
                }
                // A vGPU guest: processes without memory.
                n if n.ends_with("tesla_p4.xml") => {
                    assert_eq!(found.iter().filter(|r| r.pid.is_some()).count(), 13);
                    assert!(found
                        .iter()
                        .filter(|r| r.pid.is_some())
                        .all(|r| r.value.is_none() && r.text == "N/A"));
                }
                n if n.ends_with("dual_a5000-v13.xml") => {
                    let index = Columns::new(&NVML_SAMPLES, &table).u32("gpu_index").unwrap().clone();
                    assert_eq!(index.iter().flatten().collect::<BTreeSet<_>>(), BTreeSet::from([0, 1]));
                }
                _ => {}
            }
            count(format(&table));
            continue;
        }
        // The whole capture is read as its outputs one by one.
        let (whole, quality) = read_file(path);
        assert_eq!(format(&whole), "terminal", "{name}");
        assert_eq!(quality.count(quality::ROWS_SKIPPED), 0, "{name}");
        count("terminal".to_owned());
        let mut parts = 0;
        for (title, body) in sections(&std::fs::read_to_string(path).unwrap()) {
            let kinds = [
                "query-gpu (csv",
                "query-compute-apps (per",
                "pmon (per",
                "dmon (per",
                ":: query (-q)",
                ":: nvidia-smi (default table)",
            ];
            if !kinds.iter().any(|kind| title.contains(kind)) {
                continue;
            }
            let part = scratch.path().join("section.txt");
            std::fs::write(&part, &body).unwrap();
            let mut quality = Quality::default();
            let table =
                read(&part, &Unwatched, &mut quality).unwrap_or_else(|e| panic!("{name} {title}: {e}"));
            assert_eq!(quality.count(quality::ROWS_SKIPPED), 0, "{name} {title}");
            let expected = claimed(&body);
            assert_eq!(expected.len(), 1, "{name} {title}: {expected:?}");
            let found = rows(&table);
            if title.contains("load :: query (-q)") && name.contains("h200-mig") {
                let ours = (Some(2), Some(1));
                assert!(has(&found, ours, Some(12_267), "process_memory_bytes", 13_526.0 * 1_048_576.0));
                assert!(has(&found, ours, None, "sm_count", 32.0));
                assert!(has(&found, ours, None, "memory_used_bytes", 16_925.0 * 1_048_576.0));
                assert!(has(&found, board, None, "power_average_w", 294.94));
                assert!(has(&found, board, None, "clocks_event_reasons.hw_thermal_slowdown", 0.0));
                assert_eq!(found.iter().filter(|r| r.metric == "sm_count").count(), 5);
            }
            if title.contains("load :: dmon") && name.contains("h100-mig") {
                assert!(has(&found, board, None, "power_w", 438.0));
                let util = || found.iter().filter(|r| r.metric == "gpu_utilization_pct");
                assert!(util().count() == 5 && util().all(|r| r.value.is_none() && r.text == "-"));
                assert_eq!(quality.count(quality::SAMPLES_UNAVAILABLE), 30);
            }
            count(expected[0].to_owned());
            parts += found.len();
        }
        assert_eq!(whole.num_rows(), parts, "{name}");
    }
    assert_eq!(files.len(), 34);
    let counted: Vec<(&str, usize)> = seen.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    let expected = [
        ("dcgm-csv", 8),
        ("dcgmi-dmon", 3),
        ("nvidia-smi-dmon", 3 + 10),
        ("nvidia-smi-pmon", 10),
        ("nvidia-smi-query-compute-apps", 10),
        ("nvidia-smi-query-gpu", 6 + 10),
        ("nvidia-smi-query-text", 10),
        ("nvidia-smi-query-xml", 9),
        ("nvidia-smi-table", 10),
        ("terminal", 5),
    ];
    assert_eq!(counted, expected);
}

/// Whatever happens to a file, reading ends, in rows or in an error.
#[test]
fn torn_and_garbled_files_end_in_rows_or_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("bad");
    let read_bytes = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let mut quality = Quality::default();
        (read(&path, &Unwatched, &mut quality), quality)
    };
    let (mut refused, mut survived) = (0, 0);
    // Not random: the same every time.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for fixture in fixtures() {
        let bytes = std::fs::read(&fixture).unwrap();
        let whole = read_bytes(&bytes).0.unwrap().num_rows();
        for step in 0..60 {
            let mut cut = bytes[..bytes.len() * step / 60].to_vec();
            // A cut never makes rows up.
            match read_bytes(&cut).0 {
                Ok(table) => assert!(table.num_rows() <= whole, "{}", fixture.display()),
                Err(_) => refused += 1,
            }
            cut = bytes.clone();
            for _ in 0..=step {
                let at = random() as usize % cut.len();
                cut[at] = random() as u8;
            }
            match read_bytes(&cut).0 {
                Ok(_) => survived += 1,
                Err(_) => refused += 1,
            }
        }
        // In the encoding of PowerShell.
        let text = String::from_utf8(bytes).unwrap();
        let wide: Vec<u8> =
            std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        assert_eq!(read_bytes(&wide).0.unwrap().num_rows(), whole, "{}", fixture.display());
    }
    assert!(refused > 20 && survived > 100, "{refused} refused, {survived} survived");
    let noise: Vec<u8> = (0..1 << 16).map(|_| random() as u8).collect();
    assert!(read_bytes(&noise).0.is_err());
}

#[test]
fn a_line_of_100_mb_is_counted_or_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("long");
    for (file, refused) in [
        ("query-gpu.csv", false),
        ("query.xml", false),
        ("query.txt", false),
        ("dcgm-exporter.prom", false),
        ("query-range.json", true),
    ] {
        let mut bytes = std::fs::read(Path::new(ROOT).join("fixtures/samples").join(file)).unwrap();
        bytes.resize(bytes.len() + 100_000_000, b'(');
        std::fs::write(&path, &bytes).unwrap();
        let mut quality = Quality::default();
        let table = read(&path, &Unwatched, &mut quality);
        assert_eq!(table.is_err(), refused, "{file}");
        if !refused {
            assert_eq!(quality.count(quality::ROWS_SKIPPED), 1, "{file}");
        }
    }
}
