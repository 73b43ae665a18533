//! What did nvidia-smi and its like see beside the capture?
//!
//! One file per format and the explicit list [`READERS`]; every reader yields rows of the one
//! `nvml_samples` table, one metric a row, under canonical names with their unit. A value that the
//! tool could not get is null and keeps its text: it is never zero. Times stay as they were written
//! (UTC or local); placing them on the session clock is `clock.rs`'s task.
//!
//! Sample files hold serial numbers and host names: the columns of `is_secret` are never read out.

mod process_table;
mod query_compute_apps;
mod query_gpu;
mod recording;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array};

use crate::error::{Error, Result};
use crate::quality::{self, Quality};
use crate::schema::{Builder, NVML_SAMPLES};
use crate::watch::Watch;

/// A line longer than this is no line of any known format (a full `--query-gpu` line has about 5 KiB).
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// How many lines a reader sees to recognise its format.
const HEAD_LINES: usize = 20;

/// Which clock a format's times are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleClock {
    /// Wall-clock time of the machine, without its zone.
    Local,
    /// As [`SampleClock::Local`], but only with an option that adds date and time.
    LocalOrNone,
    /// UTC.
    Utc,
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
pub const READERS: &[Reader] =
    &[query_compute_apps::READER, query_gpu::READER, process_table::READER, recording::READER];

/// Reads a samples file of any known format into the `nvml_samples` table.
///
/// `device_id` and `time_ns` stay null. Rows that break the format are counted as
/// [`quality::ROWS_SKIPPED`] and left out.
///
/// # Errors
/// [`Error::Io`]; [`Error::Samples`] when no reader knows the file; [`Error::Cancelled`].
pub fn read(path: &Path, watch: &dyn Watch, quality: &mut Quality) -> Result<RecordBatch> {
    let open = || File::open(path).map_err(|e| Error::io("read", path, e));
    let size = open()?.metadata().map_err(|e| Error::io("read", path, e))?.len();
    let mut head = Vec::new();
    let mut lines = Lines::new(Box::new(BufReader::new(open()?)), path, watch, size);
    while let Some(line) = lines.next()? {
        head.push(line);
        if head.len() == HEAD_LINES {
            break;
        }
    }
    let Some(reader) = READERS.iter().find(|r| (r.sniff)(&head)) else {
        let known: Vec<&str> = READERS.iter().map(|r| r.name).collect();
        let what = if head.is_empty() { "the file is empty" } else { "no known format" };
        let detail = format!("{what}; known are: {} (csv needs its header line)", known.join(", "));
        return Err(Error::Samples { path: path.to_owned(), detail });
    };
    let mut lines = Lines::new(Box::new(BufReader::new(open()?)), path, watch, size);
    let mut samples = Samples::default();
    (reader.read)(&mut lines, &mut samples)?;
    let skipped = samples.skipped + lines.too_long;
    let first = samples.first_skipped.map(|n| format!(", first in line {n}")).unwrap_or_default();
    quality.add(None, quality::ROWS_SKIPPED, skipped, format!("{}{first}", path.display()));
    samples.table(&path.display().to_string(), reader.name)
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
}

impl<'a> Lines<'a> {
    fn new(input: Box<dyn BufRead>, path: &'a Path, watch: &'a dyn Watch, size: u64) -> Self {
        Self { input, path, watch, size, done: 0, number: 0, too_long: 0 }
    }

    fn fill(&mut self, bytes: &mut Vec<u8>) -> Result<usize> {
        bytes.clear();
        let n = self.input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', bytes);
        let n = n.map_err(|e| Error::io("read", self.path, e))?;
        self.done += n as u64;
        Ok(n)
    }

    fn next(&mut self) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        loop {
            if self.number.is_multiple_of(4096) {
                self.watch.progress("samples", self.done, self.size)?;
            }
            if self.fill(&mut bytes)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if bytes.len() as u64 == MAX_LINE_BYTES && !bytes.ends_with(b"\n") {
                self.too_long += 1;
                while !bytes.ends_with(b"\n") && self.fill(&mut bytes)? > 0 {
                    self.watch.progress("samples", self.done, self.size)?;
                }
                continue;
            }
            let text = String::from_utf8_lossy(&bytes);
            let text = if self.number == 1 { text.trim_start_matches('\u{feff}') } else { &text };
            let text = text.trim();
            if !text.is_empty() {
                return Ok(Some(text.to_owned()));
            }
        }
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
    process_name: Option<String>,
    process_type: Option<String>,
}

/// Rows of `nvml_samples` as they are read.
#[derive(Debug, Default)]
struct Samples {
    subjects: Vec<Subject>,
    /// Subject, metric, value, text.
    rows: Vec<(usize, String, Option<f64>, Option<String>)>,
    skipped: u64,
    first_skipped: Option<u64>,
}

impl Samples {
    fn subject(&mut self, subject: Subject) {
        self.subjects.push(subject);
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
        self.first_skipped.get_or_insert(line);
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
            .put_names("metric", self.rows.iter().map(|r| Some(r.1.as_str())))
            .put("value", self.rows.iter().map(|r| r.2).collect::<Float64Array>())
            .put("text", self.rows.iter().map(|r| r.3.as_deref()).collect::<StringArray>())
            .finish(n)
    }
}

/// A value as it was read.
#[derive(Debug, Clone, PartialEq)]
enum Reading {
    Number(f64),
    /// No number, or not available.
    Text(String),
}

/// How a canonical metric is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Bytes; without a unit in the file: MiB.
    MiB,
    /// Hertz; without a unit in the file: MHz.
    MHz,
    /// As it stands.
    Plain,
    /// Never a number: `0x..` and versions among them.
    Words,
    /// `Active` or `Not Active`: 1 or 0.
    Flag,
}

/// What a column of a CSV file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Time,
    GpuIndex,
    GpuUuid,
    GpuName,
    Pid,
    ProcessName,
    Metric(String, Unit),
    /// Secret, or of no use.
    Ignored,
}

/// Columns of nvidia-smi and of home-made files around it, without unit and in lower case, to metrics.
#[rustfmt::skip]
const METRICS: &[(&str, &str, Unit)] = &[
    ("utilization.gpu", "gpu_utilization_pct", Unit::Plain),
    ("util_gpu_pct", "gpu_utilization_pct", Unit::Plain),
    ("util_gpu", "gpu_utilization_pct", Unit::Plain),
    ("gpu_util", "gpu_utilization_pct", Unit::Plain),
    ("gpu_util_pct", "gpu_utilization_pct", Unit::Plain),
    ("gpu_utilization", "gpu_utilization_pct", Unit::Plain),
    ("utilization.memory", "memory_utilization_pct", Unit::Plain),
    ("util_mem_pct", "memory_utilization_pct", Unit::Plain),
    ("util_mem", "memory_utilization_pct", Unit::Plain),
    ("mem_util", "memory_utilization_pct", Unit::Plain),
    ("mem_util_pct", "memory_utilization_pct", Unit::Plain),
    ("utilization.encoder", "encoder_utilization_pct", Unit::Plain),
    ("utilization.decoder", "decoder_utilization_pct", Unit::Plain),
    ("utilization.jpeg", "jpeg_utilization_pct", Unit::Plain),
    ("utilization.ofa", "ofa_utilization_pct", Unit::Plain),
    ("memory.total", "memory_total_bytes", Unit::MiB),
    ("memory_total_mib", "memory_total_bytes", Unit::MiB),
    ("memory.used", "memory_used_bytes", Unit::MiB),
    ("memory_used_mib", "memory_used_bytes", Unit::MiB),
    ("memory.free", "memory_free_bytes", Unit::MiB),
    ("memory_free_mib", "memory_free_bytes", Unit::MiB),
    ("memory.reserved", "memory_reserved_bytes", Unit::MiB),
    ("used_memory", "process_memory_bytes", Unit::MiB),
    ("used_gpu_memory", "process_memory_bytes", Unit::MiB),
    ("clocks.sm", "clock_sm_hz", Unit::MHz),
    ("clocks.current.sm", "clock_sm_hz", Unit::MHz),
    ("clocks.mem", "clock_memory_hz", Unit::MHz),
    ("clocks.current.memory", "clock_memory_hz", Unit::MHz),
    ("clocks.gr", "clock_graphics_hz", Unit::MHz),
    ("clocks.current.graphics", "clock_graphics_hz", Unit::MHz),
    ("clocks.video", "clock_video_hz", Unit::MHz),
    ("clocks.current.video", "clock_video_hz", Unit::MHz),
    ("clocks.max.sm", "clock_sm_max_hz", Unit::MHz),
    ("clocks.max.memory", "clock_memory_max_hz", Unit::MHz),
    ("clocks.max.mem", "clock_memory_max_hz", Unit::MHz),
    ("clocks.max.graphics", "clock_graphics_max_hz", Unit::MHz),
    ("clocks.max.gr", "clock_graphics_max_hz", Unit::MHz),
    ("power.draw", "power_w", Unit::Plain),
    ("power_w", "power_w", Unit::Plain),
    ("power_draw_w", "power_w", Unit::Plain),
    ("power.draw.average", "power_average_w", Unit::Plain),
    ("power.draw.instant", "power_instant_w", Unit::Plain),
    ("power.limit", "power_limit_w", Unit::Plain),
    ("enforced.power.limit", "power_limit_enforced_w", Unit::Plain),
    ("temperature.gpu", "temperature_c", Unit::Plain),
    ("temp_c", "temperature_c", Unit::Plain),
    ("temperature_c", "temperature_c", Unit::Plain),
    ("temperature.memory", "temperature_memory_c", Unit::Plain),
    ("pstate", "pstate", Unit::Words),
    ("compute_mode", "compute_mode", Unit::Words),
    ("compute_cap", "compute_capability", Unit::Words),
    ("mig.mode.current", "mig_mode", Unit::Words),
    ("mig.mode.pending", "mig_mode_pending", Unit::Words),
    ("driver_version", "driver_version", Unit::Words),
];

/// Names hardware or host for good, or is of use to an attacker: never read out.
fn is_secret(column: &str) -> bool {
    column.contains("serial")
        || column.starts_with("inforom")
        || column.starts_with("vbios")
        || column.contains("hostname")
        || column.contains("host_id")
        || column.contains("guid")
        || column.contains("clusteruuid")
        || column.contains("user")
}

/// Splits `name [unit]`.
fn split_unit(header: &str) -> (String, Option<String>) {
    let header = header.trim();
    if let Some((name, unit)) = header.strip_suffix(']').and_then(|h| h.split_once('[')) {
        return (name.trim().to_ascii_lowercase(), Some(unit.trim().to_owned()));
    }
    (header.to_ascii_lowercase(), None)
}

/// What a column is, from its header.
fn field(header: &str) -> Field {
    let (name, unit) = split_unit(header);
    match name.as_str() {
        "timestamp" | "time" | "datetime" => return Field::Time,
        "index" | "gpu_index" | "gpu" => return Field::GpuIndex,
        "uuid" | "gpu_uuid" => return Field::GpuUuid,
        "name" | "gpu_name" => return Field::GpuName,
        "pid" => return Field::Pid,
        "process_name" => return Field::ProcessName,
        _ if is_secret(&name) => return Field::Ignored,
        _ => {}
    }
    // Renamed in R535; the old name lives on in scripts.
    let reason =
        ["clocks_throttle_reasons.", "clocks_event_reasons."].iter().find_map(|p| name.strip_prefix(p));
    if let Some(reason) = reason {
        let unit = if matches!(reason, "active" | "supported") { Unit::Words } else { Unit::Flag };
        return Field::Metric(format!("clocks_event_reasons.{}", tidy(reason)), unit);
    }
    if let Some((_, metric, unit)) = METRICS.iter().find(|m| m.0 == name) {
        return Field::Metric((*metric).to_owned(), *unit);
    }
    let name = tidy(&name);
    match unit.as_deref() {
        Some("MiB") => Field::Metric(format!("{name}_bytes"), Unit::MiB),
        Some("MHz") => Field::Metric(format!("{name}_hz"), Unit::MHz),
        Some("%") => Field::Metric(format!("{name}_pct"), Unit::Plain),
        Some(unit) => Field::Metric(format!("{name}_{}", tidy(&unit.to_ascii_lowercase())), Unit::Plain),
        None => Field::Metric(name, Unit::Plain),
    }
}

fn is_known_metric(header: &str) -> bool {
    let (name, _) = split_unit(header);
    METRICS.iter().any(|m| m.0 == name) || name.starts_with("clocks_event_reasons.")
}

fn tidy(name: &str) -> String {
    name.chars()
        .map(
            |c| {
                if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') {
                    c.to_ascii_lowercase()
                } else {
                    '_'
                }
            },
        )
        .collect()
}

/// Reads a cell: `37 %`, `23028 MiB`, `1410 MHz`, `250.10 W`, `42`, `P0`, `[N/A]`.
fn reading(cell: &str, unit: Unit) -> Reading {
    let cell = cell.trim();
    let text = || Reading::Text(cell.to_owned());
    match unit {
        Unit::Words => return text(),
        Unit::Flag => {
            return match cell {
                "Active" => Reading::Number(1.0),
                "Not Active" => Reading::Number(0.0),
                _ => text(),
            }
        }
        Unit::MiB | Unit::MHz | Unit::Plain => {}
    }
    let (number, suffix) = match cell.split_once(char::is_whitespace) {
        Some((number, suffix)) => (number, suffix.trim()),
        None => match cell.strip_suffix('%') {
            Some(number) => (number, "%"),
            None => (cell, ""),
        },
    };
    // Rust reads `inf` and `nan` as numbers; no GPU reports either.
    let Some(value) = number.parse::<f64>().ok().filter(|v| v.is_finite()) else { return text() };
    let scale = match (unit, suffix) {
        (Unit::MiB, "" | "MiB" | "MB") => 1_048_576.0,
        (Unit::MiB, "KiB") => 1024.0,
        (Unit::MiB, "GiB") => 1_073_741_824.0,
        (Unit::MHz, "" | "MHz") => 1e6,
        (Unit::MHz, "GHz") => 1e9,
        (Unit::Plain, "" | "%" | "W" | "C" | "us" | "ms") => 1.0,
        // A unit that was not expected is no licence to guess.
        _ => return text(),
    };
    Reading::Number(value * scale)
}

/// `[N/A]`, `[Not Supported]`, `N/A`, `-` and empty: no identity can be read from these.
fn is_unavailable(cell: &str) -> bool {
    cell.is_empty() || cell == "-" || cell == "N/A" || (cell.starts_with('[') && cell.ends_with(']'))
}

/// A time of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    Utc(i64),
    Local(i64),
}

impl Subject {
    fn set_time(&mut self, time: Time) {
        match time {
            Time::Utc(ns) => self.time_utc_ns = Some(ns),
            Time::Local(ns) => self.time_local_ns = Some(ns),
        }
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar; `None` for an impossible one.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    // Beyond these years nanoseconds leave 64 bits; no capture is older.
    if !(1970..2200).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    // Years that begin in March, so that the leap day is the last of its year.
    let y = if month <= 2 { year - 1 } else { year };
    let m = (month + 9) % 12;
    let day_of_year = (153 * m + 2) / 5 + day - 1;
    Some(365 * y + y / 4 - y / 100 + y / 400 + day_of_year - 719_468)
}

fn whole(text: &str) -> Option<i64> {
    (!text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// Nanoseconds of `HH:MM:SS[.fraction]`.
fn time_of_day(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let mut parts = clock.split(':').map(whole);
    let (h, m, s) = (parts.next()??, parts.next()??, parts.next()??);
    // 60: a leap second.
    if parts.next().is_some() || h > 23 || m > 59 || s > 60 {
        return None;
    }
    let nanos = whole(fraction)? * 10_i64.pow(9 - u32::try_from(fraction.len()).ok()?);
    Some((h * 3600 + m * 60 + s) * 1_000_000_000 + nanos)
}

/// `YYYY/MM/DD HH:MM:SS.mmm` (local), the same with dashes, `T` and a zone (UTC), or a UNIX time.
fn parse_time(text: &str) -> Option<Time> {
    let text = text.trim();
    if let Some(time) = unix_time(text) {
        return Some(Time::Utc(time));
    }
    let (date, rest) = text.split_once([' ', 'T'])?;
    let mut parts = date.split(['/', '-']).map(whole);
    let day = days(parts.next()??, parts.next()??, parts.next()??)?;
    if parts.next().is_some() {
        return None;
    }
    let rest = rest.trim();
    let (clock, zone_s) = match (rest.strip_suffix('Z'), rest.rfind(['+', '-'])) {
        (Some(clock), _) => (clock, Some(0)),
        (None, Some(at)) => {
            let (hours, minutes) = rest.get(at + 1..)?.split_once(':')?;
            let seconds = whole(hours)? * 3600 + whole(minutes)? * 60;
            (rest.get(..at)?, Some(if rest.get(at..=at)? == "-" { -seconds } else { seconds }))
        }
        (None, None) => (rest, None),
    };
    let local = day * 86_400_000_000_000 + time_of_day(clock.trim())?;
    Some(match zone_s {
        Some(zone) => Time::Utc(local - zone.min(86_400) * 1_000_000_000),
        None => Time::Local(local),
    })
}

/// A UNIX time in s, ms, us or ns by its size: all between 2001 and 2200 or so.
fn unix_time(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if seconds.is_empty()
        || seconds.len() > 19
        || !seconds.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let value: i64 = seconds.parse().ok()?;
    let per_unit = match seconds.len() {
        10 => 1_000_000_000,
        13 => 1_000_000,
        16 => 1_000,
        19 => 1,
        _ => return None,
    };
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let part = digits.parse::<i64>().ok()? / (1_000_000_000 / per_unit);
    value.checked_mul(per_unit)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Columns;
    use crate::watch::{StopAfter, Unwatched};
    use std::path::PathBuf;

    pub(super) fn read_text(text: &[u8]) -> (Result<RecordBatch>, Quality) {
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
        let text =
            |name: &str, row| crate::device::text_at(c.text(name).unwrap(), row).unwrap_or("").to_owned();
        let number = |name: &str, row| {
            crate::device::at(c.u32(name).unwrap(), row).map_or(String::new(), |v| v.to_string())
        };
        (0..c.rows())
            .map(|row| {
                let value = crate::device::at(c.f64("value").unwrap(), row)
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
    fn times() {
        // `date -u -d '2026-06-20 17:05:19' +%s` is 1781975119.
        let ns = 1_781_975_119_493_000_000;
        assert_eq!(parse_time("2026/06/20 17:05:19.493"), Some(Time::Local(ns)));
        assert_eq!(parse_time("2026-06-20T17:05:19.493Z"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("2026-06-20T19:05:19.493+02:00"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("2026-06-20 12:05:19.493-05:00"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("1781975119.493"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("1781975119493"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("1781975119493000"), Some(Time::Utc(ns)));
        assert_eq!(parse_time("1970/01/01 00:00:00"), Some(Time::Local(0)));
        // 2024-02-29 is day 19782.
        assert_eq!(parse_time("2024/02/29 00:00:00.000"), Some(Time::Local(19_782 * 86_400_000_000_000)));
        for bad in [
            "",
            "2026/02/29 00:00:00",
            "2026/13/01 00:00:00",
            "2026/06/20",
            "2026/06/20 25:00:00",
            "12:00",
            "[N/A]",
            "2026/06/20 1:2",
            "2026/06/20 00:00:00\u{e9}",
            "99999999999999999999",
        ] {
            assert_eq!(parse_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_unknown_file_names_what_is_known() {
        for text in ["", "hello\nworld\n", "EntityId,GRACT,FBUSD,TimeStamp\n0,0.000,3,1656776962\n"] {
            let message = read_text(text.as_bytes()).0.unwrap_err().to_string();
            for reader in READERS {
                assert!(message.contains(reader.name), "{message}");
            }
        }
        let missing = read(Path::new("no/such/file.csv"), &Unwatched, &mut Quality::default());
        assert!(matches!(missing, Err(Error::Io { .. })));
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
