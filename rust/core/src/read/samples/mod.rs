//! Read samples of nvidia-smi, DCGM and similar tools.
//!
//! One file per format and the explicit list [`READERS`]. Every reader yields rows of the one `nvml_samples` table, one
//! metric a row, under canonical names with their unit. A value that the tool could not get is null and keeps its text:
//! it is never zero. Times stay as they were written (UTC or local); `clock.rs` places them on the session clock.
//!
//! A utilisation says for which part of the time before it something ran, not how full the GPU was: one block on one SM
//! makes 100 %. The length of that time is `interval_ns`.
//!
//! Sample files hold serial numbers, host names and command lines. Dumps are read by an allow-list (`metric.rs`),
//! columns that a user asked for by name are checked against `is_secret`, and of a process only its name is kept.

mod dcgm_csv;
mod dcgm_exporter;
mod dcgmi_dmon;
mod dmon;
mod metric;
mod process_table;
mod prometheus_json;
mod query_compute_apps;
mod query_gpu;
mod query_text;
mod query_tree;
mod query_xml;
mod recording;
mod summary_table;
mod terminal;
mod time;

pub(crate) use metric::is_unavailable;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;
pub(crate) use time::is_undated;

use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array};

use crate::base::error::{Error, Result};
use crate::base::watch::Watch;
use crate::table::builder::Builder;
use crate::table::quality::{self, Quality};
use crate::table::schema::NVML_SAMPLES;

use metric::{Covers, Reading};
use time::Time;

/// A line longer than this is no line of any known format (a full `--query-gpu` line has about 5 KiB).
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// How many lines a reader sees to recognise its format.
const HEAD_LINES: usize = 20;
/// Formats without lines (JSON, UTF-16) are held in memory whole, up to this.
const MAX_DOCUMENT_BYTES: u64 = 256 << 20;

/// Which clock a format's times are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleClock {
    /// Wall-clock time of the machine, without its zone.
    Local,
    /// As [`SampleClock::Local`], but only with an option that adds date and time.
    LocalOrNone,
    /// UTC.
    Utc,
    /// UTC, where the file has times at all.
    UtcOrNone,
    /// The file has no times.
    None,
}

/// One sample format.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    /// Name, as in `nvml_samples.format`.
    pub name: &'static str,
    /// Clock of its times.
    pub clock: SampleClock,
    /// Whether the first lines of a file are of this format.
    pub sniff: fn(&[String]) -> bool,
    /// Reads the whole file.
    read: fn(&mut Lines<'_>, &mut Samples) -> Result<()>,
}

/// Every sample format that is known, in the order in which they are tried.
pub const READERS: &[Reader] = &[
    query_compute_apps::READER,
    query_gpu::READER,
    process_table::READER,
    dmon::READER,
    query_xml::READER,
    query_text::READER,
    summary_table::READER,
    dcgmi_dmon::READER,
    dcgm_csv::READER,
    dcgm_exporter::READER,
    prometheus_json::READER,
    recording::READER,
    terminal::READER,
];

/// Reads a samples file of any known format into the `nvml_samples` table.
///
/// `device_id` and `time_ns` stay null. Rows that break the format are counted as
/// [`quality::ROWS_SKIPPED`] and left out.
///
/// # Errors
/// [`Error::Io`]; [`Error::UnknownSamples`] when no reader knows the file; [`Error::Samples`] when its reader finds it
/// is not what its first lines promised; [`Error::Cancelled`].
pub fn read(path: &Path, watch: &dyn Watch, quality: &mut Quality) -> Result<RecordBatch> {
    let head = head(open(path)?, path)?;
    let Some(reader) = READERS.iter().find(|r| (r.sniff)(&head)) else {
        let known: Vec<&str> = READERS.iter().map(|r| r.name).collect();
        let what = if head.is_empty() { "the file is empty" } else { "no known format" };
        let detail = format!("{what}; known are: {} (csv needs its header line)", known.join(", "));
        return Err(Error::UnknownSamples { path: path.to_owned(), detail });
    };
    let size = std::fs::metadata(path).map_err(|e| Error::io("read", path, e))?.len();
    let mut lines = Lines::new(open(path)?, path, watch, size);
    let mut samples = Samples::default();
    (reader.read)(&mut lines, &mut samples)?;
    samples.unmeasured_under_mig();
    let source = path.display().to_string();
    let skipped = samples.skipped + lines.too_long;
    let first = samples.first_skipped.take().map_or_else(String::new, |(line, why)| {
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        format!(", first in line {line}{why}")
    });
    quality.add(None, quality::ROWS_SKIPPED, skipped, format!("{source}{first}"));
    quality.add(None, quality::SAMPLES_PER_POD, samples.per_pod, source.as_str());
    samples.count_odd(&source, quality);
    if samples.rows.is_empty() {
        quality.add(None, quality::SAMPLES_EMPTY, 1, format!("{source}: there is no sample in it"));
    }
    samples.table(&source, reader.name)
}

/// A file as UTF-8, or what comes nearest: PowerShell redirects in UTF-16.
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let io = |e| Error::io("read", path, e);
    let mut file = File::open(path).map_err(io)?;
    let mut mark = Vec::new();
    file.by_ref().take(2).read_to_end(&mut mark).map_err(io)?;
    let from_bytes: fn([u8; 2]) -> u16 = match mark.as_slice() {
        [0xff, 0xfe] => u16::from_le_bytes,
        [0xfe, 0xff] => u16::from_be_bytes,
        _ => return Ok(Box::new(BufReader::new(Cursor::new(mark).chain(file)))),
    };
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT_BYTES).read_to_end(&mut bytes).map_err(io)?;
    let units = bytes.chunks_exact(2).filter_map(|pair| Some(from_bytes(pair.try_into().ok()?)));
    let text: String = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    Ok(Box::new(Cursor::new(text.into_bytes())))
}

/// The first lines, the last perhaps cut: a JSON answer is one line of any length.
fn head(input: Box<dyn BufRead>, path: &Path) -> Result<Vec<String>> {
    let mut bytes = Vec::new();
    input.take(MAX_LINE_BYTES).read_to_end(&mut bytes).map_err(|e| Error::io("read", path, e))?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).filter(|l| !l.is_empty());
    Ok(lines.take(HEAD_LINES).map(str::to_owned).collect())
}

/// Non-empty lines of a file: bounded, lossy where not UTF-8, without byte-order mark and line ends.
struct Lines<'a> {
    input: Box<dyn BufRead>,
    path: &'a Path,
    watch: &'a dyn Watch,
    size: u64,
    done: u64,
    number: u64,
    too_long: u64,
    /// Longest line that is read; longer ones are counted and left out.
    max_bytes: u64,
}

impl<'a> Lines<'a> {
    fn new(input: Box<dyn BufRead>, path: &'a Path, watch: &'a dyn Watch, size: u64) -> Self {
        Self { input, path, watch, size, done: 0, number: 0, too_long: 0, max_bytes: MAX_LINE_BYTES }
    }

    fn fill(&mut self, bytes: &mut Vec<u8>, limit: u64) -> Result<usize> {
        bytes.clear();
        let n = self.input.by_ref().take(limit).read_until(b'\n', bytes);
        let n = n.map_err(|e| Error::io("read", self.path, e))?;
        self.done += n as u64;
        Ok(n)
    }

    /// The next line, trimmed.
    fn next(&mut self) -> Result<Option<String>> {
        Ok(self.next_indented()?.map(|line| line.trim_start().to_owned()))
    }

    /// The next line as it is indented.
    fn next_indented(&mut self) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        loop {
            if self.number.is_multiple_of(4096) {
                self.watch.progress("samples", self.done, self.size)?;
            }
            if self.fill(&mut bytes, self.max_bytes)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if bytes.len() as u64 == self.max_bytes && !bytes.ends_with(b"\n") {
                self.too_long += 1;
                while !bytes.ends_with(b"\n") && self.fill(&mut bytes, MAX_LINE_BYTES)? > 0 {
                    self.watch.progress("samples", self.done, self.size)?;
                }
                continue;
            }
            let text = String::from_utf8_lossy(&bytes);
            let text = if self.number == 1 { text.trim_start_matches('\u{feff}') } else { &text };
            let text = text.trim_end();
            if !text.is_empty() {
                return Ok(Some(text.to_owned()));
            }
        }
    }

    /// Everything, for a format that has no lines.
    fn document(&mut self) -> Result<String> {
        let (mut all, mut part) = (Vec::new(), Vec::new());
        while self.fill(&mut part, MAX_LINE_BYTES)? > 0 {
            self.watch.progress("samples", self.done, self.size)?;
            all.append(&mut part);
            if all.len() as u64 > MAX_DOCUMENT_BYTES {
                let detail =
                    "longer than 256 MiB; ask Prometheus for a shorter range or a larger step".to_owned();
                return Err(Error::Samples { path: self.path.to_owned(), detail });
            }
        }
        Ok(String::from_utf8_lossy(&all).trim_start_matches('\u{feff}').to_owned())
    }

    /// The file is not what its first lines promised.
    fn refuse(&self, detail: String) -> Error {
        Error::Samples { path: self.path.to_owned(), detail }
    }
}

/// What a row of a file says about whom and when; its metrics share it.
#[derive(Debug, Clone, Default)]
struct Subject {
    time_utc_ns: Option<i64>,
    time_local_ns: Option<i64>,
    gpu_index: Option<u32>,
    gpu_uuid: Option<String>,
    gpu_name: Option<String>,
    pid: Option<u32>,
    /// Only its name, see [`program`].
    process_name: Option<String>,
    process_type: Option<String>,
    mig_gi: Option<u32>,
    mig_ci: Option<u32>,
    entity: Option<String>,
    pods: Option<String>,
    /// Profile of the instance, such as `1g.10gb`: written once per instance, as the metric `mig_profile`.
    mig_profile: Option<String>,
    /// A label of every series: written once per GPU, as the metric `driver_version`.
    driver_version: Option<String>,
}

impl Subject {
    fn set_time(&mut self, time: Time) {
        match time {
            Time::Utc(ns) => self.time_utc_ns = Some(ns),
            Time::Local(ns) => self.time_local_ns = Some(ns),
        }
    }

    /// Whether both are about the same GPU, part of a GPU or process; the time may differ.
    fn same(&self, other: &Self) -> bool {
        self.who() == other.who()
    }

    #[allow(clippy::type_complexity)]
    fn who(&self) -> (Option<u32>, Option<&str>, Option<u32>, Option<u32>, Option<u32>, Option<&str>) {
        let uuid = self.gpu_uuid.as_deref();
        (self.gpu_index, uuid, self.pid, self.mig_gi, self.mig_ci, self.entity.as_deref())
    }

    fn time(&self) -> Option<i64> {
        self.time_utc_ns.or(self.time_local_ns)
    }
}

/// The program of what a tool calls a process name.
///
/// Programs that write their own title (browsers, workers) show their arguments in it, and arguments hold
/// tokens: cut at the first word that begins with a dash or assigns something. A name may hold blanks.
fn program(name: &str) -> String {
    let cut = name
        .match_indices(char::is_whitespace)
        .map(|(at, blank)| (at, name.get(at + blank.len()..).unwrap_or("")))
        .find(|(_, rest)| {
            rest.starts_with('-') || rest.split_whitespace().next().is_some_and(|word| word.contains('='))
        });
    cut.and_then(|(at, _)| name.get(..at)).unwrap_or(name).trim().to_owned()
}

/// Rows of `nvml_samples` as they are read.
#[derive(Debug, Default)]
struct Samples {
    subjects: Vec<Subject>,
    /// Subject, metric, value, text.
    rows: Vec<(usize, String, Option<f64>, Option<String>)>,
    skipped: u64,
    /// The first row that was left out, and why where that can be said in general.
    first_skipped: Option<(u64, Option<String>)>,
    /// Instances whose profile was written: GPU and instance.
    profiled: BTreeSet<(Option<String>, Option<u32>, Option<u32>)>,
    /// GPUs whose driver was written.
    versioned: BTreeSet<(Option<String>, Option<u32>)>,
    /// Rows left out because they repeat the value of a GPU for another pod.
    per_pod: u64,
}

/// Longest and shortest period over which drivers average their utilisation, by product.
const DRIVER_PERIOD_NS: std::ops::RangeInclusive<i64> = 166_666_667..=1_000_000_000;

impl Samples {
    fn subject(&mut self, mut subject: Subject) {
        subject.process_name = subject.process_name.map(|name| program(&name));
        let profile = subject.mig_profile.take();
        let instance = (subject.gpu_uuid.clone(), subject.gpu_index, subject.mig_gi);
        let driver = subject.driver_version.take();
        let gpu = (subject.gpu_uuid.clone(), subject.gpu_index);
        self.subjects.push(subject);
        if let Some(driver) = driver.filter(|_| self.versioned.insert(gpu)) {
            self.metric("driver_version".to_owned(), Reading::Text(driver));
        }
        if let Some(profile) = profile.filter(|_| self.profiled.insert(instance)) {
            self.metric("mig_profile".to_owned(), Reading::Text(profile));
        }
    }

    /// A metric of the last subject.
    fn metric(&mut self, name: String, reading: Reading) {
        let Some(subject) = self.subjects.len().checked_sub(1) else { return };
        let (value, text) = match reading {
            Reading::Number(value) => (Some(value), None),
            Reading::Text(text) => (None, Some(text)),
        };
        self.rows.push((subject, name, value, text));
    }

    fn skip(&mut self, line: u64) {
        self.skipped += 1;
        self.first_skipped.get_or_insert((line, None));
    }

    /// Leaves out a row whose number of cells is not that of its header.
    fn skip_uneven(&mut self, line: u64, cells: usize, columns: usize) {
        self.skipped += 1;
        let why = || format!("{cells} values for {columns} columns");
        self.first_skipped.get_or_insert_with(|| (line, Some(why())));
    }

    /// The driver has no utilisation of a GPU or instance under MIG; some tools write 0 for that.
    fn unmeasured_under_mig(&mut self) {
        let mut under_mig: Vec<bool> = self.subjects.iter().map(|s| s.mig_gi.is_some()).collect();
        for (subject, metric, _, text) in &self.rows {
            if metric == "mig_mode" && text.as_deref() == Some("Enabled") {
                if let Some(flag) = under_mig.get_mut(*subject) {
                    *flag = true;
                }
            }
        }
        for (subject, metric, value, text) in &mut self.rows {
            let driver = metric::covers(metric) == Covers::DriverPeriod;
            if driver && *value == Some(0.0) && under_mig.get(*subject) == Some(&true) {
                *value = None;
                *text = Some("[0, but not measured under MIG]".to_owned());
            }
        }
    }

    /// Counts what could not be read and what cannot be.
    fn count_odd(&self, source: &str, quality: &mut Quality) {
        let mut unavailable: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut above, mut most) = (0, 1.0_f64);
        for (_, metric, value, text) in &self.rows {
            let matters = metric::covers(metric) != Covers::Moment || metric == "memory_used_bytes";
            if matters && text.is_some() {
                *unavailable.entry(metric).or_default() += 1;
            }
            if let Some(value) = value.filter(|v| *v > 1.0 && metric.ends_with("_ratio")) {
                above += 1;
                most = most.max(value);
            }
        }
        let names: Vec<String> = unavailable.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let detail = format!("{source}: {}", names.join(", "));
        quality.add(None, quality::SAMPLES_UNAVAILABLE, unavailable.values().sum(), detail);
        quality.add(None, quality::SAMPLES_ABOVE_ONE, above, format!("{source}: up to {most:.3}"));
    }

    /// How much time before it each value covers; null where it is of a moment or nobody can say.
    fn intervals(&self) -> Vec<Option<i64>> {
        let mut last: HashMap<_, i64> = HashMap::new();
        let mut found = Vec::with_capacity(self.rows.len());
        for (subject, metric, _, _) in &self.rows {
            let covers = metric::covers(metric);
            let subject = self.subjects.get(*subject).filter(|_| covers != Covers::Moment);
            let Some((subject, time)) = subject.and_then(|s| Some((s, s.time()?))) else {
                found.push(None);
                continue;
            };
            let before = last.insert((subject.who(), metric.as_str()), time);
            let gap = before.and_then(|before| time.checked_sub(before)).filter(|gap| *gap > 0);
            found.push(match covers {
                Covers::DriverPeriod => {
                    gap.map(|gap| gap.clamp(*DRIVER_PERIOD_NS.start(), *DRIVER_PERIOD_NS.end()))
                }
                Covers::SinceLast | Covers::Moment => gap,
            });
        }
        found
    }

    fn table(&self, source: &str, format: &str) -> Result<RecordBatch> {
        let of = || self.rows.iter().map(|r| self.subjects.get(r.0));
        let n = self.rows.len();
        Builder::new(&NVML_SAMPLES)
            .put_names("source", std::iter::repeat_n(Some(source), n))
            .put_names("format", std::iter::repeat_n(Some(format), n))
            .put("time_utc_ns", of().map(|s| s?.time_utc_ns).collect::<Int64Array>())
            .put("time_local_ns", of().map(|s| s?.time_local_ns).collect::<Int64Array>())
            .put("gpu_index", of().map(|s| s?.gpu_index).collect::<UInt32Array>())
            .put("gpu_uuid", of().map(|s| s?.gpu_uuid.as_deref()).collect::<StringArray>())
            .put("gpu_name", of().map(|s| s?.gpu_name.as_deref()).collect::<StringArray>())
            .put("pid", of().map(|s| s?.pid).collect::<UInt32Array>())
            .put("process_name", of().map(|s| s?.process_name.as_deref()).collect::<StringArray>())
            .put_names("process_type", of().map(|s| s?.process_type.as_deref()))
            .put("mig_gi", of().map(|s| s?.mig_gi).collect::<UInt32Array>())
            .put("mig_ci", of().map(|s| s?.mig_ci).collect::<UInt32Array>())
            .put_names("entity", of().map(|s| s?.entity.as_deref()))
            .put("pods", of().map(|s| s?.pods.as_deref()).collect::<StringArray>())
            .put("interval_ns", self.intervals().into_iter().collect::<Int64Array>())
            .put_names("metric", self.rows.iter().map(|r| Some(r.1.as_str())))
            .put("value", self.rows.iter().map(|r| r.2).collect::<Float64Array>())
            .put("text", self.rows.iter().map(|r| r.3.as_deref()).collect::<StringArray>())
            .finish(n)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::table::columns::Columns;
    use std::path::PathBuf;

    pub(crate) fn read_text(text: &[u8]) -> (Result<RecordBatch>, Quality) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.txt");
        std::fs::write(&path, text).unwrap();
        let mut quality = Quality::default();
        let table = read(&path, &Unwatched, &mut quality);
        (table, quality)
    }

    /// Rows as `index|uuid|pid|process|type|metric|value-or-text`.
    pub(super) fn shown(table: &RecordBatch) -> Vec<String> {
        let c = Columns::new(&NVML_SAMPLES, table);
        let text = |name: &str, row| {
            crate::table::columns::text_at(c.text(name).unwrap(), row).unwrap_or("").to_owned()
        };
        let number = |name: &str, row| {
            crate::table::columns::at(c.u32(name).unwrap(), row).map_or(String::new(), |v| v.to_string())
        };
        (0..c.rows())
            .map(|row| {
                let value = crate::table::columns::at(c.f64("value").unwrap(), row)
                    .map_or_else(|| text("text", row), |v| v.to_string());
                [
                    number("gpu_index", row),
                    text("gpu_uuid", row),
                    number("pid", row),
                    text("process_name", row),
                    c.names("process_type").unwrap().get(row).unwrap_or("").to_owned(),
                    c.names("metric").unwrap().get(row).unwrap().to_owned(),
                    value,
                ]
                .join("|")
            })
            .collect()
    }

    #[test]
    fn an_unknown_file_names_what_is_known() {
        for text in ["", "hello\nworld\n", "EntityId,Thing,TimeStamp\n0,0.000,1656776962\n", "{\"a\": 1}\n"] {
            let message = read_text(text.as_bytes()).0.unwrap_err().to_string();
            for reader in READERS {
                assert!(message.contains(reader.name), "{message}");
            }
        }
        let missing = read(Path::new("no/such/file.csv"), &Unwatched, &mut Quality::default());
        assert!(matches!(missing, Err(Error::Io { .. })));
    }

    #[test]
    fn a_file_without_a_sample_is_counted() {
        for text in ["index, utilization.gpu [%]\n", "pid, process_name, used_memory [MiB]\n"] {
            let (table, quality) = read_text(text.as_bytes());
            assert_eq!((table.unwrap().num_rows(), quality.count(quality::SAMPLES_EMPTY)), (0, 1), "{text}");
        }
        let (_, quality) = read_text(b"index, utilization.gpu [%]\n0, 1 %\n");
        assert_eq!(quality.count(quality::SAMPLES_EMPTY), 0);
    }

    #[test]
    fn lines_are_bounded_and_reading_can_be_stopped() {
        let mut text = b"\xef\xbb\xbfindex, utilization.gpu [%]\r\n0, 1 %\r\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 300_000));
        text.extend(b"\r\n0, \xff\r\n0, 2 %");
        let (table, quality) = read_text(&text);
        assert_eq!(
            shown(&table.unwrap()),
            [
                "0|||||gpu_utilization_pct|1",
                "0|||||gpu_utilization_pct|\u{fffd}",
                "0|||||gpu_utilization_pct|2"
            ]
        );
        assert_eq!(quality.count(quality::ROWS_SKIPPED), 1);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long.csv");
        std::fs::write(&path, "index, utilization.gpu [%]\n".to_owned() + &"0, 1 %\n".repeat(10_000))
            .unwrap();
        let stopped = read(&path, &StopAfter::new(2), &mut Quality::default());
        assert!(matches!(stopped, Err(Error::Cancelled)));
    }

    pub(super) fn corpus() -> Option<PathBuf> {
        let fallback = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
        let root = std::env::var_os("PYANALYZE_CORPUS").map_or(fallback, PathBuf::from);
        if root.join("samples").is_dir() {
            return Some(root);
        }
        println!("skipped: no corpus (set PYANALYZE_CORPUS)");
        None
    }

    /// Sections of an nvidia_gpu_exporter capture: title and text.
    fn sections(text: &str) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        let mut in_title = false;
        for line in text.lines() {
            if line.starts_with("########") {
                in_title = !in_title;
                if in_title {
                    found.push((String::new(), String::new()));
                }
            } else if let Some(last) = found.last_mut() {
                let part = if in_title { &mut last.0 } else { &mut last.1 };
                part.push_str(line);
                part.push('\n');
            }
        }
        found
    }

    #[test]
    fn real_files_lose_no_line() {
        let Some(root) = corpus() else { return };
        let mut seen = [0; 4];
        for entry in std::fs::read_dir(root.join("samples/nvidia-gpu-exporter")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for (title, body) in sections(&text) {
                let kind = ["query-gpu (csv", "query-compute-apps (per", "pmon (per"]
                    .iter()
                    .position(|k| title.contains(k));
                let Some(kind) = kind else { continue };
                let lines = body.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).count()
                    - usize::from(kind < 2);
                let (table, quality) = read_text(body.as_bytes());
                let table = table.unwrap_or_else(|e| panic!("{title}: {e}"));
                assert_eq!(quality.count(quality::ROWS_SKIPPED), 0, "{title}");
                let metric = ["|memory_used_bytes|", "|process_memory_bytes|", "|process_sm_pct|"][kind];
                let rows = shown(&table);
                assert_eq!(rows.iter().filter(|r| r.contains(metric)).count(), lines, "{title}");
                assert!(!rows
                    .iter()
                    .any(|r| r.contains("serial") || r.contains("vbios") || r.contains("hostname")));
                seen[kind] += 1;
            }
        }
        for entry in std::fs::read_dir(root.join("samples/george-ts-hami")).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let mut quality = Quality::default();
            let rows = shown(&read(&path, &Unwatched, &mut quality).unwrap());
            // Six metrics beside time, index and name.
            assert_eq!(rows.len(), 6 * (text.lines().filter(|l| !l.trim().is_empty()).count() - 1));
            assert_eq!(quality.count(quality::ROWS_SKIPPED), 0);
            seen[3] += 1;
        }
        assert_eq!(seen, [10, 10, 10, 6]);
    }
}
