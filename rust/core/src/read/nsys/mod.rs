//! Read an nsys export of any version.
//!
//! [`read`] turns one SQLite export into the declared tables. Physical names stand in [`layout`], the GPU of a row in
//! `devices`, configuration in `metadata`, the event tables in `events`; `staged` turns cells of any type into declared
//! columns. [`kernel_summary`] reads kernels only.

mod devices;
mod events;
pub mod layout;
mod metadata;
mod shape;
mod staged;
mod summary;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use arrow_array::{
    Array, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};

use crate::base::error::{Error, Result};
use crate::base::parallel::ThreadPool;
use crate::base::watch::Watch;
use crate::table::builder::Builder;
use crate::table::columns::Columns;
use crate::table::events::Tables;
use crate::table::quality::{self, Counter, Quality};
use crate::table::schema::{self, Table};
use pyanalyze_sqlite::{Database, Row};

use devices::Devices;
use events::{Found, Seen};
use layout::{Plan, Source};
use metadata::Metadata;
use staged::{cell, integer, text};

/// Which event tables to read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Want {
    /// `kernels`.
    pub kernels: bool,
    /// `graph_launches`.
    pub graph_launches: bool,
    /// `memops`.
    pub memops: bool,
    /// `switch_events`.
    pub switch_events: bool,
    /// `gpu_metrics`.
    pub gpu_metrics: bool,
    /// `api_calls`.
    pub api_calls: bool,
    /// `profiler_overhead`.
    pub profiler_overhead: bool,
    /// `thread_runs`.
    pub thread_runs: bool,
    /// `event_calls`.
    pub event_calls: bool,
    /// `nvtx`.
    pub nvtx: bool,
    /// `host_calls`.
    pub host_calls: bool,
    /// `cpu_samples`.
    pub cpu_samples: bool,
    /// `allocations`.
    pub allocations: bool,
}

impl Want {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self {
            api_calls: true,
            profiler_overhead: true,
            thread_runs: true,
            event_calls: true,
            nvtx: true,
            host_calls: true,
            cpu_samples: true,
            ..Self::analysis()
        }
    }

    /// What verdicts need: no API calls and no NVTX, which are often most of an export.
    #[must_use]
    pub fn analysis() -> Self {
        Self {
            kernels: true,
            graph_launches: true,
            memops: true,
            switch_events: true,
            gpu_metrics: true,
            allocations: true,
            ..Self::none()
        }
    }

    /// Metadata only.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The tables of that name.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is no event table.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut want = Self::none();
        for name in names {
            match name {
                "kernels" => want.kernels = true,
                "graph_launches" => want.graph_launches = true,
                "memops" => want.memops = true,
                "switch_events" => want.switch_events = true,
                "gpu_metrics" => want.gpu_metrics = true,
                "api_calls" => want.api_calls = true,
                "profiler_overhead" => want.profiler_overhead = true,
                "thread_runs" => want.thread_runs = true,
                "event_calls" => want.event_calls = true,
                "nvtx" => want.nvtx = true,
                "host_calls" => want.host_calls = true,
                "cpu_samples" => want.cpu_samples = true,
                "allocations" => want.allocations = true,
                _ => {
                    return Err(Error::Argument(format!(
                        "{name} is no event table; choose from kernels, graph_launches, memops, \
                         switch_events, gpu_metrics, api_calls, profiler_overhead, thread_runs, event_calls, \
                         nvtx, host_calls, cpu_samples, allocations"
                    )))
                }
            }
        }
        Ok(want)
    }
}

/// Reads the export at `path` as capture number `capture`.
///
/// The map holds `capture` (one row), `sources`, `quality`, `configured`, `devices`, `processes`,
/// `contexts`, and every event table of `want`; one that the export does not have is there without
/// rows, and `sources` says so. Times are those of the export.
///
/// # Errors
/// Those of [`Database::open`], [`Error::NotAnExport`], [`Error::Damaged`], [`Error::Changed`] if the
/// file was written to meanwhile, [`Error::Cancelled`].
pub fn read(path: &Path, capture: u32, want: &Want, watch: &dyn Watch) -> Result<Tables> {
    read_database(Database::open(path)?, capture, want, watch)
}

/// As [`read`], from a database that is open already.
///
/// # Errors
/// As [`read`].
pub fn read_database(database: Database, capture: u32, want: &Want, watch: &dyn Watch) -> Result<Tables> {
    read_with(database, capture, watch, |reader| reader.read(want))
}

/// How long the kernels of the export at `path` took, by name; no other events of it are read.
///
/// The map holds `kernel_summary`, the `sources` it is made of or lacks, and `quality`.
///
/// # Errors
/// As [`read`].
pub fn kernel_summary(path: &Path, watch: &dyn Watch) -> Result<Tables> {
    read_with(Database::open(path)?, 0, watch, summary::kernels)
}

fn read_with<T>(
    database: Database,
    capture: u32,
    watch: &dyn Watch,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T>,
) -> Result<T> {
    let path = database.path();
    if !layout::is_export(&database) {
        return Err(Error::NotAnExport {
            path: path.to_owned(),
            detail: format!("none of the tables {} is there", layout::MARKS.join(", ")),
        });
    }
    let mut reader =
        Reader { database: &database, capture, watch, quality: Quality::default(), counter_samples: None };
    match read(&mut reader) {
        // Damage that a writer causes under our eyes is no damage: say what really happened.
        Err(damage @ Error::Damaged { .. }) => database.close().map_err(Error::from).and(Err(damage)),
        Err(other) => Err(other),
        Ok(found) => {
            database.close()?;
            Ok(found)
        }
    }
}

/// To whom a row belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Process(u32),
    /// A sentinel: no process.
    Nobody,
    /// The export does not say.
    Unknown,
}

/// The process of a global id: 8 bits of host, 24 of process, 24 of thread, from the 56th bit down.
///
/// Ids of no process are stored as negative numbers or with a host of all ones.
fn pid_of(global: Option<i64>) -> Owner {
    let Some(global) = global else { return Owner::Unknown };
    let bits = global.cast_unsigned();
    let host = (bits >> 48) & 0xFF;
    match u32::try_from((bits >> 24) & 0xFF_FFFF) {
        Ok(pid) if global >= 0 && host < 0xFE && pid != 0 && pid != 0xFF_FFFF => Owner::Process(pid),
        _ => Owner::Nobody,
    }
}

/// A process that starts another under its own pid: nsys may have listed it before the program replaced it.
fn is_launcher(name: &str) -> bool {
    matches!(name.rsplit('/').next().unwrap_or(name), "" | "nsys" | "nsys-launcher")
}

/// Threads that the profiler, the driver or MPI named, not the program.
fn is_helper_thread(name: &str) -> bool {
    const HELPERS: [&str; 5] = ["[", "CUPTI ", "cuda-EvtHandlr", "cuda0", "MPI Rank "];
    is_launcher(name) || HELPERS.iter().any(|helper| name.starts_with(helper))
}

/// One export being read.
struct Reader<'a> {
    database: &'a Database,
    capture: u32,
    watch: &'a dyn Watch,
    quality: Quality,
    /// Samples of hardware counters in the export, if they were read.
    counter_samples: Option<u64>,
}

/// What has nsys record kernels, and graphs as a whole.
const KERNELS_BY: &str = "-t cuda";
/// How to get what nsys collected and the export lacks.
const EXPORT_AGAIN: &str =
    "nsys export --type sqlite REPORT.nsys-rep   # of the recording, with all tables and rows";
/// One in so many counter samples may be missing in a whole export: of real ones two in 4,633 were.
const SAMPLES_LEFT_OUT: u64 = 100;
const GRAPHS_BY: &str = "-t cuda --cuda-graph-trace=graph";

/// One row of `sources`.
struct SourceRow {
    name: &'static str,
    state: &'static str,
    rows: u64,
    table: Option<String>,
    how: &'static str,
}

impl Reader<'_> {
    /// Counts what nsys collected and is not in the export, and marks tables of which nothing is; what nsys collected is 0
    /// where it is not said.
    ///
    /// CUDA events are the sum of API calls, kernels, copies and memsets in each of 39 complete exports. Whether they count
    /// other events, which few or none of those have, is not known: they count as if they did. Of hardware counters it
    /// says the samples, of which each has at least one row.
    fn compare_with_collected(&mut self, said: &metadata::Said, sources: &mut [SourceRow]) {
        let collected = said.cuda_events;
        let rows = |names: &[&str]| -> u64 {
            let of = sources.iter().filter(|row| names.contains(&row.name));
            of.fold(0, |sum: u64, row| sum.saturating_add(row.rows))
        };
        let held = rows(&["kernels", "copies", "api_calls"]);
        let others = rows(&["allocations", "graph_launches", "event_calls", "profiler_overhead"]);
        let page_faults = self.database.tables().keys().any(|table| table.starts_with("CUDA_UM_"));
        if !page_faults && collected > held.saturating_add(others) {
            let detail =
                format!("{held} of {collected} API calls, kernels, copies and memsets that nsys collected are in the export");
            self.count(quality::EXPORT_CUT, collected - held, detail);
        }
        let others = [
            ("switch_events", said.switch_events, quality::SWITCH_RECORDS_CUT, "context-switch records"),
            (
                "gpu_metrics",
                said.counter_samples,
                quality::COUNTER_SAMPLES_CUT,
                "samples of hardware counters",
            ),
        ];
        for (name, collected, counter, what) in others {
            let Some(row) = sources.iter_mut().find(|row| row.name == name) else { continue };
            // A sample has a row for each counter, and a whole export lacks the first or the last one.
            let of_counters = self.counter_samples.filter(|_| name == "gpu_metrics");
            let held = of_counters.unwrap_or(row.rows);
            if held.saturating_add(of_counters.map_or(0, |_| collected / SAMPLES_LEFT_OUT)) >= collected {
                continue;
            }
            if held == 0 {
                (row.state, row.how) = ("removed", EXPORT_AGAIN);
            }
            let part = if held == 0 { "none".to_owned() } else { held.to_string() };
            let detail = format!("{part} of {collected} {what} that nsys collected are in the export");
            self.count(counter, collected - held, detail);
        }
    }

    fn count(&mut self, counter: Counter, count: u64, detail: impl Into<String>) {
        self.quality.add(Some(self.capture), counter, count, detail);
    }

    fn scan(&self, plan: &Plan, visit: impl FnMut(&Row<'_>) -> Result<()>) -> Result<u64> {
        self.database.scan(&plan.table, &plan.columns(), self.watch, visit)
    }

    /// Has the large tables of `want` fetched, in the order in which they are read.
    fn read_soon(&self, want: &Want) -> Result<()> {
        let large = [
            (want.kernels, &layout::KERNEL),
            (want.graph_launches, &layout::GRAPH),
            (want.api_calls, &layout::API),
        ];
        let mut tables = Vec::new();
        for (_, source) in large.into_iter().filter(|(wanted, _)| *wanted) {
            tables.extend(layout::find(self.database, source)?.map(|plan| plan.table));
        }
        self.database.read_soon(&tables.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(())
    }

    /// Names and values of a table of properties.
    fn pairs(&self, source: &Source) -> Result<Vec<(String, String)>> {
        let mut pairs = Vec::new();
        if let Some(plan) = layout::find(self.database, source)? {
            let (name, value) = (plan.at("name"), plan.at("value"));
            self.scan(&plan, |row| {
                if let (Some(name), Some(value)) = (text(cell(row, name)), text(cell(row, value))) {
                    pairs.push((name, value));
                }
                Ok(())
            })?;
        }
        Ok(pairs)
    }

    /// What the numbers of an enumeration are called.
    fn labels(&self, source: &Source) -> Result<HashMap<i64, String>> {
        let mut labels = HashMap::new();
        if let Some(plan) = layout::find(self.database, source)? {
            let (id, name) = (plan.at("id"), plan.at("name"));
            self.scan(&plan, |row| {
                if let (Ok(Some(id)), Some(name)) = (integer(cell(row, id)), text(cell(row, name))) {
                    labels.insert(id, name);
                }
                Ok(())
            })?;
        }
        Ok(labels)
    }

    fn read(&mut self, want: &Want) -> Result<Tables> {
        if self.database.recovered() {
            self.count(quality::RECOVERED_COPY, 1, "");
        }
        self.read_soon(want)?;
        let mut metadata = Metadata::read(self)?;
        let mut devices = Devices::read(self)?;
        let mut seen = Seen::default();
        let mut sources = Vec::new();
        let mut read: Vec<(&'static Table, &'static [&'static str], Option<Found>)> = Vec::new();

        // One call per table, so that what is not asked for is not read.
        macro_rules! table {
            ($wanted:expr, $source:literal, $how:expr, $table:expr, $order:expr, $physical:expr, $read:expr) => {
                if $wanted {
                    let found = $read?;
                    sources.push(match &found {
                        None => SourceRow::absent($source, $how),
                        Some(found) => SourceRow::read($source, $how, found.rows, &found.tables),
                    });
                    read.push((&$table, $order, found));
                } else {
                    sources.push(SourceRow::unread($source, $how, events::unread(self, $physical)?));
                }
            };
        }
        table!(
            want.kernels,
            "kernels",
            KERNELS_BY,
            schema::KERNELS,
            ORDER_KERNELS,
            &[&layout::KERNEL],
            events::kernels(self, &mut devices, &mut seen)
        );
        table!(
            want.memops,
            "copies",
            "-t cuda",
            schema::MEMOPS,
            ORDER_MEMOPS,
            &[&layout::MEMCPY, &layout::MEMSET],
            events::memops(self, &mut devices, &mut seen)
        );
        table!(
            want.graph_launches,
            "graph_launches",
            GRAPHS_BY,
            schema::GRAPH_LAUNCHES,
            ORDER_GRAPHS,
            &[&layout::GRAPH],
            events::graph_launches(self, &mut devices, &mut seen)
        );
        table!(
            want.switch_events,
            "switch_events",
            "--gpuctxsw=true, as root",
            schema::SWITCH_EVENTS,
            ORDER_SWITCHES,
            &[&layout::SWITCH],
            events::switch_events(self, &mut devices)
        );
        table!(
            want.gpu_metrics,
            "gpu_metrics",
            "--gpu-metrics-device=all (--gpu-metrics-devices=all since 2024)",
            schema::GPU_METRICS,
            ORDER_METRICS,
            &[events::metric_source(self)?],
            events::gpu_metrics(self, &mut devices)
        );
        table!(
            want.api_calls,
            "api_calls",
            "-t cuda",
            schema::API_CALLS,
            ORDER_CALLS,
            &[&layout::API],
            events::api_calls(self, &mut seen)
        );
        table!(
            want.profiler_overhead,
            "profiler_overhead",
            "-t cuda",
            schema::PROFILER_OVERHEAD,
            ORDER_OVERHEAD,
            &[&layout::OVERHEAD],
            events::profiler_overhead(self)
        );
        table!(
            want.thread_runs,
            "thread_runs",
            "--cpuctxsw=process-tree",
            schema::THREAD_RUNS,
            ORDER_RUNS,
            &[&layout::SCHEDULE],
            events::thread_runs(self)
        );
        table!(
            want.event_calls,
            "event_calls",
            "-t cuda",
            schema::EVENT_CALLS,
            ORDER_EVENT_CALLS,
            &[&layout::SYNCHRONIZATION, &layout::CUDA_EVENT],
            events::event_calls(self)
        );
        table!(want.nvtx, "nvtx", "-t nvtx", schema::NVTX, ORDER_NVTX, &[&layout::NVTX], events::nvtx(self));
        let calls = events::HOST_CALLS.map(|(_, source)| source);
        table!(
            want.host_calls,
            "host_calls",
            "-t mpi,osrt",
            schema::HOST_CALLS,
            ORDER_HOST_CALLS,
            &calls,
            events::host_calls(self)
        );
        table!(
            want.cpu_samples,
            "cpu_samples",
            "--sample=process-tree",
            schema::CPU_SAMPLES,
            ORDER_CPU_SAMPLES,
            &[&layout::CPU_SAMPLE],
            events::cpu_samples(self)
        );
        // Few programs use such libraries, and samples are of the host: that neither was recorded is no news.
        sources.retain(|row| !["host_calls", "cpu_samples"].contains(&row.name) || row.rows > 0);
        table!(
            want.allocations,
            "allocations",
            "--cuda-memory-usage=true",
            schema::ALLOCATIONS,
            ORDER_ALLOCATIONS,
            &[&layout::MEMORY_USAGE],
            events::allocations(self, &mut devices)
        );
        let gpus = events::known(self, &layout::GPU)?;
        sources.push(SourceRow::known("target_gpu", "-t cuda, and export all tables", gpus));
        let processes = self.processes(&mut metadata, &seen)?;
        let listed = events::known(self, &layout::PROCESS)?;
        sources.push(SourceRow::known("processes", "export the report with a newer nsys", listed));
        let said = metadata::diagnostics(self)?;
        self.compare_with_collected(&said, &mut sources);
        let none_of_cuda = said.nothing_of_cuda()
            && sources.iter().filter(|row| OF_CUDA.contains(&row.name)).all(|row| row.rows == 0);
        if none_of_cuda {
            metadata.nothing_of_cuda();
        }
        // A table without rows is left out of an export.
        for row in sources.iter_mut().filter(|row| row.state == "absent") {
            let none = if OF_CUDA.contains(&row.name) {
                none_of_cuda
            } else {
                said.no_switches && row.name == "switch_events"
            };
            if none {
                row.state = "empty";
            }
        }
        let listed = events::known(self, &layout::DIAGNOSTIC)?;
        sources.push(SourceRow::known("diagnostics", "export the report with a newer nsys", listed));
        // Where each process' count of visible SMs stands.
        let shown = layout::find(self.database, &layout::CUDA_DEVICE)?.filter(|p| p.at("sm_count").is_some());
        let shown = shown
            .map(|p| Ok::<_, crate::Error>((self.database.count(&p.table)?, vec![p.table])))
            .transpose()?;
        sources.push(SourceRow::known("cuda_devices", "export the report with nsys 2024.6 or newer", shown));

        let contexts = self.contexts(&mut devices, &seen)?;
        let found = read.iter().filter_map(|(_, _, found)| found.as_ref());
        let strings = self.strings(&found.flat_map(|found| found.staged.needed_strings()).collect())?;
        let (slots, device_table) = devices.finish(self)?;
        let mut tables = Tables::new();
        let last_ns = |(table, _, found): &(&Table, _, Option<Found>)| {
            Some((table.name, found.as_ref()?.staged.last_ns()?))
        };
        let last_ns: BTreeMap<&str, i64> = read.iter().filter_map(last_ns).collect();
        let functions = strings.iter().filter(|(_, name)| shape::is_function(name));
        let functions: HashMap<i64, String> = functions.map(|(id, name)| (*id, name.clone())).collect();
        let capture = self.capture;
        let finished = ThreadPool::new(0).each(read, |(table, order, found)| -> Result<_> {
            let mut quality = Quality::default();
            let Some(found) = found else { return Ok((table, table.empty(), quality)) };
            let calls = [schema::API_CALLS.name, schema::HOST_CALLS.name].contains(&table.name);
            let names = if calls { &functions } else { &strings };
            let batch = found.staged.finish(capture, names, &slots, order, &mut quality)?;
            Ok((table, batch, quality))
        });
        for finished in finished {
            let (table, batch, quality) = finished?;
            self.quality.absorb(quality);
            tables.insert(table.name, batch);
        }
        if tables.get("kernels").is_some_and(|kernels| kernels.num_rows() == 0) {
            self.count(quality::NO_KERNELS, 1, "");
        }
        tables.insert("devices", device_table);
        tables.insert("contexts", context_table(self.capture, &contexts, &slots)?);
        tables.insert("processes", processes);
        tables.insert("configured", metadata.configured(self.capture)?);
        tables.insert("sources", source_table(self.capture, &sources)?);
        let window = window(&tables, &last_ns)?;
        tables.insert("capture", self.capture_table(&metadata, window)?);
        self.count_ways(want)?;
        tables.insert("quality", self.quality.table()?);
        Ok(tables)
    }

    /// Says which tables were not read from the pages of the file, and which of `want` cannot be read at all.
    fn count_ways(&mut self, want: &Want) -> Result<()> {
        let mut left: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (table, why) in self.database.by_sqlite() {
            left.entry(why).or_default().push(table);
        }
        for (why, names) in left {
            let detail = format!("{why} ({})", names.join(", "));
            self.count(quality::READ_BY_SQLITE, u64::try_from(names.len()).unwrap_or(0), detail);
        }
        let mut hidden = self.database.not_stored()?;
        hidden.retain(|name| layout::is_wanted(name, want));
        self.count(quality::TABLE_NOT_STORED, u64::try_from(hidden.len()).unwrap_or(0), hidden.join(", "));
        Ok(())
    }

    /// The strings that names point to, read in one pass: an export may hold millions of others.
    fn strings(&self, needed: &BTreeSet<i64>) -> Result<HashMap<i64, String>> {
        let mut strings = HashMap::with_capacity(needed.len());
        let Some(plan) = layout::find(self.database, &layout::STRINGS)? else { return Ok(strings) };
        if needed.is_empty() {
            return Ok(strings);
        }
        let (id, value) = (plan.at("id"), plan.at("value"));
        self.scan(&plan, |row| {
            if let Ok(Some(id)) = integer(cell(row, id)) {
                if needed.contains(&id) {
                    if let Some(value) = text(cell(row, value)) {
                        strings.insert(id, value);
                    }
                }
            }
            Ok(())
        })?;
        Ok(strings)
    }

    fn processes(&self, metadata: &mut Metadata, seen: &Seen) -> Result<RecordBatch> {
        type Process = (Option<u32>, Option<u64>, Option<String>);
        let mut rows: BTreeSet<Process> = BTreeSet::new();
        if let Some(plan) = layout::find(self.database, &layout::PROCESS)? {
            let (global_at, pid_at, name_at) = (plan.at("global_pid"), plan.at("pid"), plan.at("name"));
            self.scan(&plan, |row| {
                let global = integer(cell(row, global_at)).ok().flatten();
                let stated = integer(cell(row, pid_at)).ok().flatten().and_then(|p| u32::try_from(p).ok());
                let pid = stated.or(match pid_of(global) {
                    Owner::Process(pid) => Some(pid),
                    Owner::Nobody | Owner::Unknown => None,
                });
                let name = text(cell(row, name_at));
                if let Some(name) = &name {
                    metadata.see_process(pid, name);
                }
                rows.insert((pid, global.map(i64::cast_unsigned), name));
                Ok(())
            })?;
        }
        let listed: BTreeSet<u32> = rows.iter().filter_map(|(pid, _, _)| *pid).collect();
        for (pid, global) in &seen.traced {
            if !listed.contains(pid) {
                rows.insert((Some(*pid), *global, None));
            }
        }
        let traced = |pid: &Option<u32>| pid.is_some_and(|pid| seen.traced.contains_key(&pid));
        let unnamed = |row: &Process| traced(&row.0) && row.2.as_deref().is_none_or(is_launcher);
        let open: BTreeSet<u32> = rows.iter().filter(|row| unnamed(row)).filter_map(|row| row.0).collect();
        let names = if open.is_empty() { BTreeMap::new() } else { self.names_of_threads(&open)? };
        let rows: BTreeSet<Process> = rows
            .into_iter()
            .map(|row| match row.0.and_then(|pid| names.get(&pid)) {
                Some(name) if unnamed(&row) => (row.0, row.1, Some(name.clone())),
                _ => row,
            })
            .collect();
        Builder::new(&schema::PROCESSES)
            .put("capture", UInt32Array::from(vec![self.capture; rows.len()]))
            .put("pid", rows.iter().map(|(pid, _, _)| *pid).collect::<UInt32Array>())
            .put("global_pid", rows.iter().map(|(_, global, _)| *global).collect::<UInt64Array>())
            .put("name", rows.iter().map(|(_, _, name)| name.as_deref()).collect::<StringArray>())
            .put("traced", rows.iter().map(|(pid, _, _)| Some(traced(pid))).collect::<BooleanArray>())
            .finish(rows.len())
    }

    /// Names of processes by their threads: that of the main thread, else the most frequent, of those that are the
    /// program's own.
    fn names_of_threads(&self, pids: &BTreeSet<u32>) -> Result<BTreeMap<u32, String>> {
        let Some(plan) = layout::find(self.database, &layout::THREAD_NAME)? else {
            return Ok(BTreeMap::new());
        };
        let (thread_at, name_at) = (plan.at("global_tid"), plan.at("name"));
        let mut threads: BTreeMap<(u32, u64), i64> = BTreeMap::new();
        self.scan(&plan, |row| {
            let global = integer(cell(row, thread_at)).ok().flatten();
            if let (Owner::Process(pid), Some(global), Ok(Some(name))) =
                (pid_of(global), global, integer(cell(row, name_at)))
            {
                if pids.contains(&pid) {
                    threads.insert((pid, global.cast_unsigned() & 0xFF_FFFF), name);
                }
            }
            Ok(())
        })?;
        let strings = self.strings(&threads.values().copied().collect())?;
        // By process and name: whether the main thread has it, and how many have it.
        let mut found: BTreeMap<u32, BTreeMap<&str, (bool, u64)>> = BTreeMap::new();
        for ((pid, tid), id) in &threads {
            let Some(name) = strings.get(id).filter(|name| !is_helper_thread(name)) else { continue };
            let (main, times) = found.entry(*pid).or_default().entry(name).or_default();
            *main |= u64::from(*pid) == *tid;
            *times += 1;
        }
        let best = |names: BTreeMap<&str, (bool, u64)>| {
            names
                .into_iter()
                .max_by_key(|(name, seen)| (*seen, std::cmp::Reverse(*name)))
                .map(|(name, _)| name.to_owned())
        };
        Ok(found.into_iter().filter_map(|(pid, names)| Some((pid, best(names)?))).collect())
    }

    /// Contexts by (pid, context id): those that the export lists, and those that activity shows.
    fn contexts(&self, devices: &mut Devices, seen: &Seen) -> Result<BTreeMap<(Option<u32>, u32), Context>> {
        let mut contexts = BTreeMap::new();
        if let Some(plan) = layout::find(self.database, &layout::CONTEXT)? {
            let at = |name| plan.at(name);
            self.scan(&plan, |row| {
                let number = |name| integer(cell(row, at(name))).ok().flatten();
                let narrow = |name| number(name).and_then(|n| u32::try_from(n).ok());
                let Some(id) = narrow("context_id") else { return Ok(()) };
                let (pid, ordinal) = (narrow("pid"), number("device"));
                let own = number("sm_count").filter(|n| *n > 0);
                let sms = own.or_else(|| devices.sms_of_process(pid, ordinal));
                let context = Context {
                    device: ordinal.map(|n| devices.cuda(pid, Some(n))),
                    null_stream: narrow("null_stream_id"),
                    parent: narrow("parent_context_id").filter(|n| *n > 0),
                    green: number("is_green").map(|n| n != 0),
                    sms: sms.and_then(|n| u32::try_from(n).ok()),
                    tpc_mask: text(cell(row, at("tpc_mask"))).filter(|m| !m.is_empty()),
                    channels: text(cell(row, at("channel_ids"))).filter(|ids| !ids.is_empty()),
                    priorities: BTreeMap::new(),
                    flags: BTreeMap::new(),
                };
                contexts.insert((pid, id), context);
                Ok(())
            })?;
        }
        if let Some(plan) = layout::find(self.database, &layout::STREAM)? {
            self.scan(&plan, |row| {
                let number = |name| integer(cell(row, plan.at(name))).ok().flatten();
                let narrow = |name| number(name).and_then(|n| u32::try_from(n).ok());
                let (Some(id), Some(stream)) = (narrow("context_id"), narrow("stream_id")) else {
                    return Ok(());
                };
                // Signed in 32 bits, printed unsigned: 4294967291 is -5.
                let priority = narrow("priority").map(u32::cast_signed);
                let Some(context) = contexts.get_mut(&(narrow("pid"), id)) else { return Ok(()) };
                let context: &mut Context = context;
                context.priorities.extend(priority.map(|priority| (stream, priority)));
                // 0: nsys does not know.
                context.flags.extend(narrow("flag").filter(|flag| *flag > 0).map(|flag| (stream, flag)));
                Ok(())
            })?;
        }
        for (key, slot) in &seen.contexts {
            let context = contexts.entry(*key).or_insert_with(Context::default);
            context.device.get_or_insert(*slot);
        }
        Ok(contexts)
    }

    fn capture_table(&self, metadata: &Metadata, window: Option<(i64, i64)>) -> Result<RecordBatch> {
        // Exports without the parameter, or trimmed ones: no capture lasts 30 years, so larger times
        // are counted from 1970.
        let looks_like_epoch = window.is_some_and(|(start, _)| start > 1_000_000_000_000_000_000);
        let normalized = metadata.normalized || looks_like_epoch;
        let origin = if normalized {
            Some(metadata.shift_ns.saturating_neg())
        } else {
            metadata.utc_epoch_ns.map(|utc| utc.saturating_sub(metadata.shift_ns))
        };
        // The recording begins at the capture's zero, which the export may have moved.
        let zero = if normalized { metadata.utc_epoch_ns } else { Some(0) };
        let recorded = zero.zip(metadata.recorded_ns).map(|(zero, dur_ns)| {
            let start = zero.saturating_add(metadata.shift_ns);
            (start, start.saturating_add(dur_ns))
        });
        // Not the length of what the export holds: it was trimmed, or counts from elsewhere.
        let recorded = recorded.filter(|r| window.is_none_or(|w| r.0 <= w.1 && w.0 <= r.1));
        let words = |word: &Option<String>| StringArray::from(vec![word.as_deref()]);
        let path = self.database.path().to_string_lossy();
        let size = i64::try_from(self.database.size_bytes()).unwrap_or(i64::MAX);
        Builder::new(&schema::CAPTURE)
            .put("capture", UInt32Array::from(vec![self.capture]))
            .put("path", StringArray::from(vec![path.as_ref()]))
            .put("size_bytes", Int64Array::from(vec![size]))
            .put("product", words(&metadata.product))
            .put("nsys_version", words(&metadata.nsys_version))
            .put("schema_version", words(&metadata.schema_version))
            .put("driver_version", words(&metadata.driver_version))
            .put("cuda_driver_version", words(&metadata.cuda_driver_version))
            .put("session_uuid", words(&metadata.session_uuid))
            .put("host_hash", words(&metadata.host_hash))
            .put("start_ns", Int64Array::from(vec![window.map(|w| w.0)]))
            .put("end_ns", Int64Array::from(vec![window.map(|w| w.1)]))
            .put("recording_start_ns", Int64Array::from(vec![recorded.map(|r| r.0)]))
            .put("recording_end_ns", Int64Array::from(vec![recorded.map(|r| r.1)]))
            .put("utc_origin_ns", Int64Array::from(vec![origin]))
            .put("utc_offset_s", Int32Array::from(vec![metadata.utc_offset_s]))
            .put("system_clock_origin_ns", Int64Array::from(vec![metadata.system_clock_ns]))
            .put("export_shift_ns", Int64Array::from(vec![metadata.shift_ns]))
            .put("export_normalized", BooleanArray::from(vec![normalized]))
            .put("clock_offset_ns", Int64Array::from(vec![0]))
            .put("clock_uncertainty_ns", Int64Array::from(vec![Some(0)]))
            .put("synthetic", BooleanArray::from(vec![metadata.synthetic]))
            .finish(1)
    }
}

const ORDER_KERNELS: &[&str] =
    &["start_ns", "device_id", "pid", "correlation_id", "end_ns", "stream_id", "graph_node_id", "name"];
const ORDER_MEMOPS: &[&str] = &[
    "start_ns",
    "device_id",
    "pid",
    "correlation_id",
    "end_ns",
    "stream_id",
    "graph_node_id",
    "operation",
    "bytes",
];
const ORDER_GRAPHS: &[&str] =
    &["start_ns", "device_id", "pid", "correlation_id", "end_ns", "stream_id", "graph_id", "graph_exec_id"];
const ORDER_SWITCHES: &[&str] = &["time_ns", "device_id", "sequence", "hw_context", "tag", "pid"];
const ORDER_METRICS: &[&str] = &["time_ns", "device_id", "metric", "unit", "value"];
const ORDER_CALLS: &[&str] = &["start_ns", "pid", "tid", "correlation_id", "end_ns", "name", "return_value"];
const ORDER_OVERHEAD: &[&str] = &["start_ns", "pid", "tid", "end_ns", "kind"];
const ORDER_RUNS: &[&str] = &["start_ns", "pid", "tid", "end_ns", "cpu"];
const ORDER_EVENT_CALLS: &[&str] = &[];
const ORDER_ALLOCATIONS: &[&str] = &["time_ns", "pid", "device_id", "operation", "memory_kind", "bytes"];
const ORDER_HOST_CALLS: &[&str] = &["start_ns", "pid", "tid", "end_ns", "kind", "name"];
const ORDER_CPU_SAMPLES: &[&str] = &["time_ns", "pid", "tid", "function", "module"];
const ORDER_NVTX: &[&str] = &["start_ns", "pid", "tid", "end_ns", "kind", "text", "domain_id"];

#[derive(Debug, Default)]
struct Context {
    device: Option<u32>,
    null_stream: Option<u32>,
    parent: Option<u32>,
    green: Option<bool>,
    sms: Option<u32>,
    tpc_mask: Option<String>,
    channels: Option<String>,
    priorities: BTreeMap<u32, i32>,
    flags: BTreeMap<u32, u32>,
}

impl Context {
    /// `stream:priority` pairs; `None` where the export lists no stream of it.
    fn stream_priorities(&self) -> Option<String> {
        pairs(self.priorities.iter().map(|(stream, priority)| format!("{stream}:{priority}")))
    }

    /// `stream:flag` pairs; `None` where the export says none.
    fn stream_flags(&self) -> Option<String> {
        pairs(self.flags.iter().map(|(stream, flag)| format!("{stream}:{flag}")))
    }
}

fn pairs(each: impl Iterator<Item = String>) -> Option<String> {
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join(","))
}

fn context_table(
    capture: u32,
    contexts: &BTreeMap<(Option<u32>, u32), Context>,
    slots: &[u32],
) -> Result<RecordBatch> {
    let device = |c: &Context| slots.get(usize::try_from(c.device?).ok()?).copied();
    Builder::new(&schema::CONTEXTS)
        .put("capture", UInt32Array::from(vec![capture; contexts.len()]))
        .put("pid", contexts.keys().map(|(pid, _)| *pid).collect::<UInt32Array>())
        .put("context_id", contexts.keys().map(|(_, id)| Some(*id)).collect::<UInt32Array>())
        .put("device_id", contexts.values().map(device).collect::<UInt32Array>())
        .put("null_stream_id", contexts.values().map(|c| c.null_stream).collect::<UInt32Array>())
        .put("parent_context_id", contexts.values().map(|c| c.parent).collect::<UInt32Array>())
        .put("is_green", contexts.values().map(|c| c.green).collect::<BooleanArray>())
        .put("sm_count", contexts.values().map(|c| c.sms).collect::<UInt32Array>())
        .put("tpc_mask", contexts.values().map(|c| c.tpc_mask.as_deref()).collect::<StringArray>())
        .put("channel_ids", contexts.values().map(|c| c.channels.as_deref()).collect::<StringArray>())
        .put("stream_priorities", contexts.values().map(Context::stream_priorities).collect::<StringArray>())
        .put("stream_flags", contexts.values().map(Context::stream_flags).collect::<StringArray>())
        .finish(contexts.len())
}

impl SourceRow {
    fn absent(name: &'static str, how: &'static str) -> Self {
        Self { name, state: "absent", rows: 0, table: None, how }
    }

    fn read(name: &'static str, how: &'static str, rows: u64, tables: &[String]) -> Self {
        let state = if rows > 0 { "present" } else { "empty" };
        Self { name, state, rows, table: Some(tables.join(", ")), how }
    }

    /// A table that was read as a whole for another purpose.
    fn known(name: &'static str, how: &'static str, found: Option<(u64, Vec<String>)>) -> Self {
        match found {
            None => Self::absent(name, how),
            Some((rows, tables)) => Self::read(name, how, rows, &tables),
        }
    }

    fn unread(name: &'static str, how: &'static str, found: Option<(u64, Vec<String>)>) -> Self {
        match Self::known(name, how, found) {
            row if row.state == "present" => Self { state: "unread", ..row },
            row => row,
        }
    }
}

fn source_table(capture: u32, rows: &[SourceRow]) -> Result<RecordBatch> {
    let how = |row: &SourceRow| ["absent", "empty", "removed"].contains(&row.state).then_some(row.how);
    Builder::new(&schema::SOURCES)
        .put("capture", UInt32Array::from(vec![capture; rows.len()]))
        .put_names("source", rows.iter().map(|r| Some(r.name)))
        .put_names("state", rows.iter().map(|r| Some(r.state)))
        .put("rows", rows.iter().map(|r| Some(r.rows)).collect::<UInt64Array>())
        .put("physical_table", rows.iter().map(|r| r.table.as_deref()).collect::<StringArray>())
        .put("how", rows.iter().map(how).collect::<StringArray>())
        .finish(rows.len())
}

/// Sources of what nsys counts as CUDA events.
const OF_CUDA: [&str; 4] = ["kernels", "copies", "graph_launches", "api_calls"];

/// Tables that are read on request only.
const ON_REQUEST: [&str; 7] =
    ["api_calls", "profiler_overhead", "thread_runs", "event_calls", "nvtx", "host_calls", "cpu_samples"];

/// First and last time of the event tables that were read; `last_ns` are latest ends that are known.
///
/// What was read on request does not count where anything else was recorded: a capture has the same times whatever else
/// of it was read.
fn window(tables: &Tables, last_ns: &BTreeMap<&str, i64>) -> Result<Option<(i64, i64)>> {
    let (requested, always): (Vec<&str>, Vec<&str>) =
        tables.keys().copied().partition(|name| ON_REQUEST.contains(name));
    match window_of(tables, &always, last_ns)? {
        Some(window) => Ok(Some(window)),
        None => window_of(tables, &requested, last_ns),
    }
}

/// First and last time of these tables.
fn window_of(tables: &Tables, names: &[&str], last_ns: &BTreeMap<&str, i64>) -> Result<Option<(i64, i64)>> {
    let mut window: Option<(i64, i64)> = None;
    for (name, batch) in tables.iter().filter(|(name, _)| names.contains(*name)) {
        let Some(table) = schema::table(name) else { continue };
        for column in table.columns.iter().filter(|c| ["start_ns", "end_ns", "time_ns"].contains(&c.name)) {
            let times = Columns::new(table, batch).i64(column.name)?;
            let (first, last) = (times.values().first().copied(), times.values().last().copied());
            let known = match column.name {
                "end_ns" => last_ns.get(*name).map(|last| (*last, *last)),
                // Tables are sorted by when something began.
                _ => first.zip(last).filter(|_| times.null_count() == 0),
            };
            if let Some((from, to)) = known.or_else(|| bounds(times)) {
                window = Some(window.map_or((from, to), |known| wider(known, (from, to))));
            }
        }
    }
    Ok(window)
}

/// Least and most of a column.
fn bounds(times: &Int64Array) -> Option<(i64, i64)> {
    if times.null_count() > 0 {
        return times.iter().flatten().map(|time| (time, time)).reduce(wider);
    }
    let pool = ThreadPool::new(0);
    let parts = times.values().chunks(pool.rows(times.len())).collect();
    let each = pool.each(parts, |part: &[i64]| part.iter().map(|time| (*time, *time)).reduce(wider));
    each.into_iter().flatten().reduce(wider)
}

fn wider(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    (a.0.min(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests;
