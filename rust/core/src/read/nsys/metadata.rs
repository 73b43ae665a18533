//! Read what wrote the export, when the capture began, and what was configured.
//!
//! Exports carry the whole environment of the profiled process, passwords included. Values are read here and nowhere
//! else, and only those of [`ALLOWED`] leave this file.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{RecordBatch, StringArray, UInt32Array};

use super::layout::{self, NEWEST_TESTED_SCHEMA};
use super::shape;
use super::staged::{cell, integer, text};
use super::Reader;
use crate::base::error::Result;
use crate::table::builder::Builder;
use crate::table::quality;
use crate::table::schema::CONFIGURED;

/// Variables that say how a GPU was to be shared; a name that ends in `*` stands for all that start so.
const ALLOWED: &[&str] = &[
    "CUDA_MPS_*",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MEMORY_LIMIT*",
    "CUDA_DEVICE_SM_LIMIT*",
    "NVSHARE_*",
];

/// Capture settings that decide what the tables can show, by the end of their metadata name.
const SETTINGS: &[(&str, &str)] = &[
    ("CUDA_GRAPH_TRACE_OPTIONS:MODE", "graph_trace_mode"),
    ("COLLECT_GPU_CTX_SW_TRACE", "gpu_context_switch_trace"),
    ("COLLECT_NVTX_TRACE", "nvtx_trace"),
    ("COLLECT_CUDA_TRACE", "cuda_trace"),
];

/// What the metadata tables say.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    export: BTreeMap<String, String>,
    pub(super) product: Option<String>,
    pub(super) nsys_version: Option<String>,
    pub(super) schema_version: Option<String>,
    pub(super) driver_version: Option<String>,
    pub(super) cuda_driver_version: Option<String>,
    pub(super) session_uuid: Option<String>,
    pub(super) host_hash: Option<String>,
    pub(super) shift_ns: i64,
    pub(super) normalized: bool,
    pub(super) synthetic: bool,
    pub(super) utc_epoch_ns: Option<i64>,
    pub(super) recorded_ns: Option<i64>,
    /// Name of the first program that was profiled.
    program: Option<String>,
    pub(super) utc_offset_s: Option<i32>,
    pub(super) system_clock_ns: Option<i64>,
    configured: BTreeSet<Setting>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    source: &'static str,
    pid: Option<u32>,
    key: String,
    value: String,
}

impl Metadata {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut found = Self::default();
        let export = reader.pairs(&layout::META_EXPORT)?;
        let capture = reader.pairs(&layout::META_CAPTURE)?;
        if export.is_empty() && capture.is_empty() {
            reader.count(quality::NO_METADATA, 1, "");
        }
        found.export = export.into_iter().collect();
        found.product = found.get("EXPORT_PRODUCT_NAME").and_then(|name| shape::product(&name));
        found.nsys_version = found.get("EXPORT_PRODUCT_VERSION").and_then(|v| shape::version(&v));
        found.schema_version = found.get("EXPORT_SCHEMA_VERSION").and_then(|v| shape::version(&v));
        found.normalized = found
            .get("EXPORT_PARAM_TIME_NORMALIZE")
            .is_some_and(|v| v.eq_ignore_ascii_case("true") || v == "1");
        // The parameter of the command line wins over the one of nsys's own configuration file.
        for key in ["EXPORT_PARAM_TIME_SHIFT", "EXPORT_CONFIG_TIME_SHIFT"] {
            match found.get(key).map(|v| v.trim().parse::<i64>()) {
                Some(Ok(shift)) if found.shift_ns == 0 => found.shift_ns = shift,
                Some(Err(_)) => reader.count(quality::VALUE_OUT_OF_RANGE, 1, key),
                _ => {}
            }
        }
        if found.product.as_deref().is_some_and(|p| p.contains("pyanalyze")) {
            found.synthetic = true;
            reader.count(quality::SYNTHETIC_CAPTURE, 1, "");
        }
        if let Some(version) = &found.schema_version {
            let parts: Vec<u32> = version.split('.').filter_map(|p| p.trim().parse().ok()).collect();
            if parts.as_slice() > NEWEST_TESTED_SCHEMA.as_slice() {
                reader.count(quality::NEWER_THAN_TESTED, 1, format!("schema {version}"));
            }
        }
        found.read_capture(&capture);
        found.read_system(reader)?;
        found.read_start(reader)?;
        Ok(found)
    }

    fn get(&self, key: &str) -> Option<String> {
        self.export.get(key).filter(|v| !v.is_empty()).cloned()
    }

    fn read_capture(&mut self, rows: &[(String, String)]) {
        // `PROCESS_0:PID` is 0 for a process that nsys launched itself.
        let pids: BTreeMap<&str, u32> = rows
            .iter()
            .filter_map(|(name, value)| Some((name.strip_suffix(":PID")?, value.parse().ok()?)))
            .filter(|(_, pid)| *pid > 0)
            .collect();
        for (name, value) in rows {
            if name == "PROFILING_SESSION_UUID" && !value.is_empty() && shape::is_uuid(value) {
                self.session_uuid = Some(value.clone());
            }
            let (process, property) = name.split_once(':').unwrap_or(("", name.as_str()));
            let (process, property) =
                if process.starts_with("PROCESS_") { (process, property) } else { ("", name.as_str()) };
            let pid = pids.get(process).copied();
            if property == "COMMAND" && self.program.is_none() {
                self.program = shape::program(value);
            }
            // Later versions trace CUDA in other ways as well: `false` does not say that it was not traced.
            let tells = |key: &str| key != "cuda_trace" || value == "true";
            if let Some((_, key)) = SETTINGS.iter().find(|(ending, key)| *ending == property && tells(key)) {
                self.configure("capture-settings", None, key, value);
            }
            if property == "ENVIRONMENT_VARIABLE" {
                self.read_variable(pid, value);
            } else if property == "COMMAND" || property.starts_with("ARGUMENT_") {
                for (key, value) in assignments(value) {
                    self.configure("command-line", pid, key, value);
                }
            }
        }
    }

    /// `NAME=value` or `NAME="value"`.
    fn read_variable(&mut self, pid: Option<u32>, variable: &str) {
        let Some((name, value)) = variable.split_once('=') else { return };
        if is_allowed(name) {
            let bare = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
            self.configure("environment", pid, name, bare);
        }
    }

    fn configure(&mut self, source: &'static str, pid: Option<u32>, key: &str, value: &str) {
        if is_allowed(key) && !has_shape(key, value) {
            return;
        }
        self.configured.insert(Setting { source, pid, key: key.to_owned(), value: value.to_owned() });
    }

    /// Nsys itself says that it traced CUDA and that no event came: whether the program used CUDA is the first question.
    pub(super) fn nothing_of_cuda(&mut self) {
        self.configure("capture-settings", None, "cuda_trace", "true");
        if let Some(program) = self.program.take() {
            self.configure("command-line", None, "program", &program);
        }
    }

    /// A process whose name says that the MPS daemon or server ran.
    pub(super) fn see_process(&mut self, pid: Option<u32>, name: &str) {
        if name.rsplit('/').next().is_some_and(|n| n.starts_with("nvidia-cuda-mps")) {
            self.configure("process-list", pid, "mps_daemon", name);
        }
    }

    fn read_system(&mut self, reader: &Reader<'_>) -> Result<()> {
        for (name, value) in reader.pairs(&layout::SYSTEM_ENV)? {
            match name.as_str() {
                "NvDriverVersion" => self.driver_version = shape::driver_version(&value),
                // 12060 is CUDA 12.6.
                "CudaDriverVersion" => {
                    self.cuda_driver_version = value
                        .parse::<u32>()
                        .ok()
                        .filter(|v| *v >= 1000)
                        .map(|v| format!("{}.{}", v / 1000, v % 1000 / 10));
                }
                // Without root, in a container, with MIG, under WSL2 and on drivers before r435.
                "SupportsGpuCtxsw" if value == "0" => {
                    self.configure("capture-settings", None, "gpu_context_switch_support", "false");
                }
                // Kernels of WSL2; early ones lack its name, and WSL1 has no GPU.
                "SoftwareReleaseVersion"
                    if value.contains("microsoft-standard") || value.contains("WSL2") =>
                {
                    self.configure("capture-settings", None, "wsl2", "true");
                }
                "Hostname" if !value.is_empty() => self.host_hash = Some(hash(value.as_bytes())),
                // Of the machine's session, not of one process; separated by semicolons, unquoted.
                "DeviceEnvironment" => {
                    for variable in value.split(';') {
                        self.read_variable(None, variable);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_start(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        if let Some(plan) = layout::find(reader.database, &layout::SESSION_START)? {
            reader.scan(&plan, |row| {
                let number = |name| integer(cell(row, plan.at(name))).ok().flatten();
                let word = |name| text(cell(row, plan.at(name)));
                // Before 1970 nothing was recorded: what says so is damaged.
                self.utc_epoch_ns = number("utc_epoch_ns").filter(|ns| *ns >= 0).or(self.utc_epoch_ns);
                self.system_clock_ns = number("system_clock_ns").or(self.system_clock_ns);
                let seconds = |name| word(name).and_then(|t| seconds_of(&t));
                if let (Some(utc), Some(local)) = (seconds("utc_time"), seconds("local_time")) {
                    // Both are cut to seconds, and zones lie on quarters of an hour.
                    let quarters = (local - utc + 450).div_euclid(900);
                    self.utc_offset_s = i32::try_from(quarters * 900).ok().filter(|s| s.abs() <= 15 * 3600);
                }
                Ok(())
            })?;
        }
        if let Some(plan) = layout::find(reader.database, &layout::DETAILS)? {
            reader.scan(&plan, |row| {
                let dur_ns = integer(cell(row, plan.at("dur_ns"))).ok().flatten();
                self.recorded_ns = dur_ns.filter(|ns| *ns > 0).or(self.recorded_ns);
                Ok(())
            })?;
        }
        if self.utc_epoch_ns.is_none() && !self.normalized {
            reader.count(quality::NO_SESSION_START, 1, "");
        }
        Ok(())
    }

    /// The `configured` table.
    pub(super) fn configured(&self, capture: u32) -> Result<RecordBatch> {
        let rows = &self.configured;
        Builder::new(&CONFIGURED)
            .put("capture", UInt32Array::from(vec![capture; rows.len()]))
            .put_names("source", rows.iter().map(|r| Some(r.source)))
            .put("pid", rows.iter().map(|r| r.pid).collect::<UInt32Array>())
            .put_names("key", rows.iter().map(|r| Some(r.key.as_str())))
            .put("value", rows.iter().map(|r| Some(r.value.as_str())).collect::<StringArray>())
            .finish(rows.len())
    }
}

fn is_allowed(name: &str) -> bool {
    let fits = |allowed: &str| match allowed.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == allowed,
    };
    // Nothing but a plain name: `CUDA_MPS_X secret` is not one.
    ALLOWED.iter().any(|allowed| fits(allowed))
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether the value of an allowed variable looks as such values do: what else somebody keeps there is not ours to show.
/// As `has_shape` of pyanalyze/text/allowlist.py.
fn has_shape(name: &str, value: &str) -> bool {
    let all = |fits: fn(char) -> bool| !value.is_empty() && value.chars().all(fits);
    if name.ends_with("_PERCENTAGE") {
        return all(|c| c.is_ascii_digit() || c == '.')
            && value.parse::<f64>().is_ok_and(|number| (0.0..=100.0).contains(&number));
    }
    if ["CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING"].contains(&name)
        || name.starts_with("CUDA_DEVICE_SM_LIMIT")
    {
        return value.len() <= 10 && all(|c| c.is_ascii_digit());
    }
    if name.starts_with("CUDA_DEVICE_MEMORY_LIMIT") {
        let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let digits = (1..=19).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
        let units = ["", "k", "m", "g", "t", "kb", "mb", "gb", "tb", "ki", "mi", "gi", "ti", "b"];
        return digits
            && units.contains(&value.get(number.len()..).unwrap_or("?").to_ascii_lowercase().as_str());
    }
    if name.ends_with("_DIRECTORY") || name.ends_with("_PATH") {
        // Names of folders are foreign text, and shown as such.
        return value.starts_with('/') && value.len() <= 4096;
    }
    value.len() <= 253 && value.chars().all(|c| c.is_ascii_alphanumeric() || "._:,/+= -".contains(c))
}

/// Allowed `NAME=value` in a command line, which may be a whole shell script.
fn assignments(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices('=') {
        let Some((before, after)) = line.split_at_checked(at) else { continue };
        let start = before.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let name = match start {
            Some(place) => before
                .get(place..)
                .map_or("", |n| n.trim_start_matches(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))),
            None => before,
        };
        if !is_allowed(name) {
            continue;
        }
        let Some(value) = after.get(1..) else { continue };
        let quoted = ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.split(*q).next());
        let bare = value.split(|c: char| c.is_whitespace() || "\"';&|)".contains(c)).next().unwrap_or("");
        found.push((name, quoted.unwrap_or(bare)));
    }
    found
}

/// What nsys says where it was to record context switches, and contexts never alternated.
const NO_SWITCHES: &str = "no gpu context switch events";

/// What it says of each process in which it was to trace CUDA, and nothing of it ran.
const NO_CUDA: &str = "no cuda events collected";

/// How nsys says, for each process, how many API calls, kernels, copies and memsets it collected together.
const COLLECTED: &str = "number of cuda events collected:";

/// How it says how many context-switch records, and samples of hardware counters.
const SWITCHES_COLLECTED: &str = "number of gpu context switch events collected:";
const SAMPLES_COLLECTED: &str = "number of gpu metrics events collected:";

/// How it says how many records of CUDA activity it could not read, behind which their number stands.
const UNPARSED: &str = "could not parse ";

/// Parts of warnings, and what they say. Others may hold paths and names: they are only counted.
const WARNINGS: [(&str, &str); 17] = [
    (
        "installed cuda driver version",
        "this nsys does not support the driver and traced CUDA as for an older one",
    ),
    ("not all nvtx events might have been collected", "NVTX events may be missing"),
    ("no gpu context switch events", "no GPU context switches"),
    ("no gpu video accelerator events", "no video engine events"),
    ("the gpu(s) on this system do not support video accel", "the GPU has no trace of video engines"),
    ("unified memory cannot be traced", "unified memory of a GPU cannot be traced"),
    ("unable to collect cpu kernel ip", "no CPU samples in the operating system (perf_event_paranoid)"),
    ("unable to collect kernel ip", "no CPU samples in the operating system (perf_event_paranoid)"),
    ("collection of cpu ip samples", "no CPU samples and no scheduling (perf_event_paranoid)"),
    ("collection of ip samples", "no CPU samples and no scheduling (perf_event_paranoid)"),
    ("unable to configure the collection of", "CPU sampling could not be set up"),
    ("scheduling information is absent", "no scheduling records"),
    ("no mmap events were received", "some CPU functions may have no name"),
    ("no nvtx events collected", "no NVTX events of a process"),
    ("no cuda events collected", "no CUDA events of a process"),
    ("cuda profiling might have not been started", "CUDA tracing of a process may not have started"),
    ("no opengl events collected", "no OpenGL events of a process"),
];

/// What nsys says of its own recording.
#[derive(Default)]
pub(super) struct Said {
    pub(super) no_switches: bool,
    /// CUDA was traced, and nothing of it ran in one process at least.
    no_cuda: bool,
    /// API calls, kernels, copies and memsets of all processes; 0: not said.
    pub(super) cuda_events: u64,
    /// Context-switch records; 0: not said.
    pub(super) switch_events: u64,
    /// Samples of hardware counters; 0: not said.
    pub(super) counter_samples: u64,
}

impl Said {
    /// Whether CUDA was traced, and no process used it.
    pub(super) fn nothing_of_cuda(&self) -> bool {
        self.no_cuda && self.cuda_events == 0
    }
}

/// Counts messages of nsys about its own recording, whose texts hold paths and names.
pub(super) fn diagnostics(reader: &mut Reader<'_>) -> Result<Said> {
    let mut said = Said::default();
    let Some(plan) = layout::find(reader.database, &layout::DIAGNOSTIC)? else { return Ok(said) };
    let mut bad: BTreeSet<i64> = BTreeSet::new();
    if let Some(names) = layout::find(reader.database, &layout::DIAGNOSTIC_SEVERITY)? {
        let (id, name) = (names.at("id"), names.at("name"));
        reader.scan(&names, |row| {
            let name = text(cell(row, name)).unwrap_or_default().to_ascii_lowercase();
            if let (Ok(Some(id)), true) =
                (integer(cell(row, id)), ["warning", "error", "fatal"].contains(&name.as_str()))
            {
                bad.insert(id);
            }
            Ok(())
        })?;
    }
    if bad.is_empty() {
        bad.extend([2, 3]);
    }
    let (mut warnings, mut losses, mut unparsed) = (BTreeMap::<usize, u64>::new(), 0, 0_u64);
    let (severity, message) = (plan.at("severity"), plan.at("text"));
    reader.scan(&plan, |row| {
        let message = text(cell(row, message)).unwrap_or_default().to_ascii_lowercase();
        said.no_switches |= message.starts_with(NO_SWITCHES);
        said.no_cuda |= message.starts_with(NO_CUDA);
        for (start, sum) in [
            (COLLECTED, &mut said.cuda_events),
            (SWITCHES_COLLECTED, &mut said.switch_events),
            (SAMPLES_COLLECTED, &mut said.counter_samples),
        ] {
            let number =
                message.strip_prefix(start).map(|rest| rest.trim().trim_end_matches('.').parse::<u64>());
            *sum = sum.saturating_add(number.and_then(std::result::Result::ok).unwrap_or(0));
        }
        if integer(cell(row, severity)).ok().flatten().is_some_and(|s| bad.contains(&s)) {
            // "could not parse N CUPTI activity records": those records are not in the export.
            let lost = ["dropped", "may be missing", "lost", "overflow", "could not parse"];
            if lost.iter().any(|word| message.contains(word)) {
                losses += 1;
                let records = message.strip_prefix(UNPARSED).and_then(|rest| rest.split_once(' '));
                unparsed = unparsed.saturating_add(records.and_then(|(n, _)| n.parse().ok()).unwrap_or(0));
            } else {
                let said = WARNINGS.iter().find(|(part, _)| message.contains(part)).map(|(_, said)| said);
                // Messages that say the same are one, at the place of the first.
                let known = WARNINGS.iter().position(|(_, other)| Some(other) == said);
                *warnings.entry(known.unwrap_or(WARNINGS.len())).or_default() += 1;
            }
        }
        Ok(())
    })?;
    for (place, n) in warnings {
        let detail = WARNINGS.get(place).map_or("others", |(_, said)| said);
        reader.count(quality::DIAGNOSTIC_WARNING, n, format!("{detail}: {n}"));
    }
    let detail = if unparsed == 0 {
        String::new()
    } else {
        format!("CUPTI records of CUDA activity that nsys could not parse: {unparsed}")
    };
    reader.count(quality::DIAGNOSTIC_LOSS, losses, detail);
    Ok(said)
}

/// FNV-1a, 64 bits: stable over versions and machines, unlike the hashes of the standard library.
fn hash(bytes: &[u8]) -> String {
    let value = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{value:016x}")
}

/// Seconds since 1970 of `YYYY-MM-DDTHH:MM:SS`.
fn seconds_of(time: &str) -> Option<i64> {
    let parts: Vec<i64> = time
        .split(|c: char| !c.is_ascii_digit())
        .filter(|p| !p.is_empty())
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()
        .ok()?;
    let [year, month, day, hour, minute, second, ..] = *parts.as_slice() else { return None };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days of the civil calendar, counted from March so that the leap day comes last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour.min(23) * 3600 + minute.min(59) * 60 + second.min(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_in_command_lines() {
        let script = "\n  export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n  ./a & \n  wait\n";
        assert_eq!(assignments(script), [("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")]);
        assert_eq!(
            assignments(
                "env TOKEN=secret CUDA_VISIBLE_DEVICES=\"0, 1\" 'NVSHARE_X=2'; XCUDA_VISIBLE_DEVICES=9"
            ),
            [("CUDA_VISIBLE_DEVICES", "0, 1"), ("NVSHARE_X", "2")]
        );
        assert_eq!(assignments("-e CUDA_LAUNCH_BLOCKING=1;b&c"), [("CUDA_LAUNCH_BLOCKING", "1")]);
    }

    #[test]
    fn only_listed_variables_are_allowed() {
        assert!(is_allowed("CUDA_DEVICE_MEMORY_LIMIT_0"));
        assert!(is_allowed("CUDA_MPS_PIPE_DIRECTORY"));
        for name in ["AWS_SECRET_ACCESS_KEY", "CUDA_VISIBLE_DEVICES_TOKEN", "MY_CUDA_MPS_X", "CUDA_MPS_X Y"] {
            assert!(!is_allowed(name), "{name}");
        }
    }

    #[test]
    fn values_have_the_shape_of_their_variable() {
        // The same as in tests/test_hostile_processes.py.
        let sound = [
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "12.5"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"),
            ("CUDA_VISIBLE_DEVICES", "0, 1"),
            ("CUDA_VISIBLE_DEVICES", ""),
            ("NVIDIA_VISIBLE_DEVICES", "MIG-GPU-11111111-2222-3333-4444-555555555555/1/0"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
            ("CUDA_DEVICE_MEMORY_LIMIT_0", "1024m"),
            ("CUDA_DEVICE_SM_LIMIT", "30"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G,1=512M"),
            ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/ein ordner"),
            ("CUDA_MODULE_LOADING", "LAZY"),
        ];
        for (name, value) in sound {
            assert!(has_shape(name, value), "{name}={value}");
        }
        let odd = [
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "hunter2"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "inf"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "101"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "1e1"),
            ("CUDA_VISIBLE_DEVICES", "0\u{1b}[2J"),
            ("CUDA_VISIBLE_DEVICES", "$(id)"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "99999999999"),
            ("CUDA_DEVICE_MEMORY_LIMIT_0", "much"),
            ("CUDA_DEVICE_SM_LIMIT", "-1"),
            ("CUDA_MPS_PIPE_DIRECTORY", "secret"),
            ("CUDA_MODULE_LOADING", "a;b"),
        ];
        for (name, value) in odd {
            assert!(!has_shape(name, value), "{name}={value}");
        }
        assert!(!has_shape("NVSHARE_X", &"a".repeat(300)));
    }

    #[test]
    fn times_and_hashes_are_those_of_their_definitions() {
        assert_eq!(seconds_of("2024-10-05T15:54:54"), Some(1_728_143_694));
        assert_eq!(seconds_of("2000-02-29T00:00:00"), Some(951_782_400));
        assert_eq!(seconds_of("yesterday"), None);
        // Test vector of the FNV authors.
        assert_eq!(hash(b"foobar"), "85944171f73967e8");
    }
}
