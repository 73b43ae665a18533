//! Assign processes, contexts and host pids to tenants.
//!
//! CUPTI rows carry the pid that the process itself sees (inside a container: the container's). Switch records carry
//! host pids. Neither carries the other. Within one capture equal pids are taken for one tenant and checked by time:
//! kernels of a tenant *start* while one of its contexts is resident. Where no pid is equal, only time can match them.
//! Two candidates that fit equally well match nothing, unless records made while they ran (pid in the namespace,
//! program) leave only one.
//!
//! ```text
//!   kernels of pid 1 (container)      |k|  |k|            |k||k|
//!   residency of host pid 30428      |==========|        |========|      all starts inside: the same
//!   residency of host pid 30398                  |=======|        |====|  none: another
//! ```

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{Array, BooleanArray, Float64Array, RecordBatch, StringArray, UInt32Array};

use crate::base::error::Result;
use crate::base::intervals::Union;
use crate::base::maps::ByKey;
use crate::base::watch::Watch;
use crate::identity::pid_match::{Memory, Steps};
use crate::residency::observed::Slice;
use crate::residency::recorded_time::PartlyRecorded;
use crate::table::builder::Builder;
use crate::table::columns::{at, Columns};
use crate::table::events::{EventPass, Events, Tables};
use crate::table::quality::{self, Quality};
use crate::table::schema;
use crate::table::work::work;
use crate::table::work::WorkKind;

/// CUPTI times and switch times come from different clocks' readings: a kernel may seem to start this
/// long before its context.
const GUARD_NS: i64 = 50_000;

/// A process as work shows it: (device, capture, pid).
type Process = (u32, u32, Option<u32>);

/// The tables that this pass makes.
#[derive(Debug, Clone)]
pub struct Output {
    /// `tenants`.
    pub tenants: RecordBatch,
    /// `residency` with tenants named.
    pub residency: RecordBatch,
    /// `switches` with tenants named.
    pub switches: RecordBatch,
    /// Oddities.
    pub quality: Quality,
}

/// What else is known of a process of the host.
#[derive(Debug, Default)]
struct Identity {
    /// Its pid in its own namespace.
    inner: Option<u32>,
    /// Programs, by NVML, by the node's /proc, by a capture that saw the host.
    names: BTreeSet<String>,
    /// Devices on which NVML lists it.
    devices: BTreeSet<u32>,
}

/// How well a traced process and one of the host go together, apart from time: what tells more stands first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    /// Not another pid in its namespace: that would be somebody else.
    possible: bool,
    same_pid: bool,
    /// It takes and gives back memory whenever the other allocates and frees.
    same_memory: bool,
    same_program: bool,
}

impl Fit {
    /// Anything speaks for it.
    fn any(self) -> bool {
        self.possible && (self.same_pid || self.same_memory || self.same_program)
    }
}

/// Whether two sources mean one program: paths differ, and /proc cuts names at 15 bytes.
fn same_program(one: &str, other: &str) -> bool {
    let base = |text: &str| text.rsplit(['/', '\\']).next().unwrap_or(text).to_owned();
    let (one, other) = (base(one), base(other));
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    !short.is_empty() && (short == long || (short.len() == 15 && long.starts_with(&short)))
}

#[derive(Debug, Default)]
struct Seen {
    contexts: BTreeSet<u32>,
    last_context: Option<u32>,
    kernels: u64,
    /// Kernel starts inside the residency of each host pid.
    inside: BTreeMap<u32, u64>,
}

/// Reads kernels, graphs and copies, makes `tenants`. Takes the finished `residency`, `switches`, `contexts` and
/// `processes` of the session.
#[derive(Debug)]
pub struct Tenants {
    slices: Vec<Slice>,
    switches: RecordBatch,
    resident: BTreeMap<u32, BTreeMap<u32, Union>>,
    partly_recorded: PartlyRecorded,
    seen: ByKey<Process, Seen>,
    contexts: BTreeMap<(u32, u32, Option<u32>), BTreeSet<u32>>,
    names: BTreeMap<(u32, u32), String>,
    traced: BTreeSet<(u32, u32)>,
    identities: BTreeMap<u32, Identity>,
    memory: Memory,
    /// How far each capture's clock may be off, where that is more than the guard; `None`: it is tied to no other.
    clocks: BTreeMap<u32, Option<i64>>,
    done: u64,
}

impl Tenants {
    /// Reads the tables that earlier passes made.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn new(session: &Tables) -> Result<Self> {
        let slices = session.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
        let mut spans: BTreeMap<u32, BTreeMap<u32, Vec<(i64, i64)>>> = BTreeMap::new();
        for s in &slices {
            if let Some(pid) = s.pid {
                let of_pid = spans.entry(s.device).or_default().entry(pid).or_default();
                of_pid.push((s.start_ns.saturating_sub(GUARD_NS), s.end_ns.saturating_add(GUARD_NS)));
            }
        }
        let resident = spans
            .into_iter()
            .map(|(device, pids)| (device, pids.into_iter().map(|(p, s)| (p, Union::of(s))).collect()))
            .collect();
        let mut contexts: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
        let mut traced = BTreeSet::new();
        if let Some(batch) = session.get(schema::CONTEXTS.name) {
            let columns = Columns::new(&schema::CONTEXTS, batch);
            let (capture, pid) = (columns.u32("capture")?, columns.u32("pid")?);
            let (context, device) = (columns.u32("context_id")?, columns.u32("device_id")?);
            for row in 0..columns.rows() {
                let (capture, pid) = (capture.value(row), at(pid, row));
                traced.extend(pid.map(|pid| (capture, pid)));
                if let Some(device) = at(device, row) {
                    contexts.entry((device, capture, pid)).or_default().insert(context.value(row));
                }
            }
        }
        let mut names = BTreeMap::new();
        if let Some(batch) = session.get(schema::PROCESSES.name) {
            let columns = Columns::new(&schema::PROCESSES, batch);
            let (capture, pid) = (columns.u32("capture")?, columns.u32("pid")?);
            let (name, active) = (columns.text("name")?, columns.bool("traced")?);
            for row in 0..columns.rows() {
                let Some(pid) = at(pid, row) else { continue };
                if name.is_valid(row) && !name.value(row).is_empty() {
                    names.insert((capture.value(row), pid), name.value(row).to_owned());
                }
                if active.value(row) {
                    traced.insert((capture.value(row), pid));
                }
            }
        }
        let switches =
            session.get(schema::SWITCHES.name).cloned().unwrap_or_else(|| schema::SWITCHES.empty());
        let mut identities = identities(session)?;
        for slice in &slices {
            if let Some((pid, name)) =
                slice.pid.and_then(|pid| Some((pid, names.get(&(slice.capture, pid))?)))
            {
                identities.entry(pid).or_default().names.insert(name.clone());
            }
        }
        let seen = ByKey::default();
        let memory = Memory::read(session)?;
        let mut clocks = BTreeMap::new();
        if let Some(batch) = session.get(schema::CAPTURE.name) {
            let columns = Columns::new(&schema::CAPTURE, batch);
            let (capture, off) = (columns.u32("capture")?, columns.i64("clock_uncertainty_ns")?);
            let off = |row| at(off, row).map_or(Some(None), |ns| (ns > GUARD_NS).then_some(Some(ns)));
            clocks.extend((0..columns.rows()).filter_map(|row| Some((capture.value(row), off(row)?))));
        }
        Ok(Self {
            slices,
            switches,
            resident,
            partly_recorded: PartlyRecorded::of(session)?,
            seen,
            contexts,
            names,
            traced,
            identities,
            memory,
            clocks,
            done: 0,
        })
    }

    /// How well a traced process and one of the host go together, apart from time.
    fn fit(&self, process: &Process, host: u32) -> Fit {
        let (_, capture, pid) = process;
        let same_memory = self.memory.steps(process, host).is_some_and(Steps::agree);
        let Some(known) = self.identities.get(&host) else {
            return Fit { possible: true, same_memory, ..Fit::default() };
        };
        let own = pid.and_then(|pid| self.names.get(&(*capture, pid)));
        let same_program = own.is_some_and(|own| known.names.iter().any(|name| same_program(own, name)));
        match known.inner.zip(*pid) {
            Some((inner, pid)) if inner != pid => Fit::default(),
            written => Fit { possible: true, same_pid: written.is_some(), same_memory, same_program },
        }
    }

    /// How far times of a capture may be trusted when they are compared with another's.
    fn clock_words(&self, capture: u32) -> String {
        match self.clocks.get(&capture) {
            None => String::new(),
            Some(Some(ns)) => format!("; its clock may be off by {:.1} ms", *ns as f64 / 1e6),
            Some(None) => "; its clock is tied to no other".to_owned(),
        }
    }

    /// What speaks for a process of the host, apart from time.
    fn words(&self, process: &Process, host: u32) -> String {
        let fit = self.fit(process, host);
        let mut words = String::new();
        if fit.same_pid {
            words.push_str(", same pid in its namespace");
        }
        if let Some(steps) = self.memory.steps(process, host).filter(|_| fit.same_memory) {
            let (matched, seen) = (steps.matched, steps.seen);
            words.push_str(&format!(", {matched} of {seen} steps of its memory at the same times"));
        }
        if fit.same_program {
            words.push_str(", same program");
        }
        words
    }

    /// Of several that time does not tell apart, those that fit best otherwise.
    fn best<T: Copy>(candidates: &[T], fit: impl Fn(T) -> Fit) -> Vec<T> {
        let most = candidates.iter().map(|c| fit(*c)).max();
        candidates.iter().copied().filter(|c| Some(fit(*c)) == most).collect()
    }

    /// The process of the host that fits one of which no residency tells: NVML lists it on the device, and nobody else
    /// that fits as well.
    /// Where several fit equally, all of them.
    fn listed(&self, process: &Process) -> Vec<u32> {
        let listed: Vec<u32> = self
            .identities
            .iter()
            .filter(|(_, known)| known.devices.contains(&process.0))
            .map(|(host, _)| *host)
            .filter(|host| self.fit(process, *host).any())
            .collect();
        Self::best(&listed, |host| self.fit(process, host))
    }

    /// Whether no other traced process fits that one of the host as well; a pid that was written down is enough.
    fn only(&self, process: &Process, host: u32) -> bool {
        let all = self.seen.sorted().map(|(other, _)| other);
        let mut others = all.filter(|other| other.0 == process.0 && other != process);
        let fit = self.fit(process, host);
        fit.same_pid || others.all(|other| self.fit(&other, host) < fit)
    }

    /// Ties every traced process to a host pid: (device, capture, pid) -> (host pid, bridged); and the clients of an MPS
    /// server, whose records carry the server's pid, to that.
    fn tie(&self, quality: &mut Quality) -> (BTreeMap<Process, (u32, bool)>, BTreeMap<Process, u32>) {
        let mut ties = BTreeMap::new();
        let mut served = BTreeMap::new();
        let mut taken: BTreeSet<(u32, u32)> = BTreeSet::new();
        let recorded: BTreeSet<(u32, u32, u32)> =
            self.slices.iter().filter_map(|s| s.pid.map(|p| (s.device, s.capture, p))).collect();
        for ((device, capture, pid), _) in self.seen.sorted() {
            if let Some(pid) = pid.filter(|p| recorded.contains(&(device, capture, *p))) {
                ties.insert((device, capture, Some(pid)), (pid, false));
                taken.insert((device, pid));
            }
        }
        let mut wanted: BTreeMap<(u32, u32), Vec<Process>> = BTreeMap::new();
        let loose: Vec<(Process, &Seen)> =
            self.seen.sorted().filter(|(key, _)| !ties.contains_key(key)).collect();
        for (key, seen) in &loose {
            let Some(pids) = self.resident.get(&key.0) else {
                let free = |host: &u32| !taken.contains(&(key.0, *host));
                match self.listed(key).as_slice() {
                    [] => {}
                    [host] if self.only(key, *host) && free(host) => {
                        let detail = format!(
                            "device {}: {} is host pid {host} (NVML lists it on the device{})",
                            key.0,
                            pid_text(key.2),
                            self.words(key, *host),
                        );
                        quality.add(Some(key.1), quality::PID_BRIDGED, 1, detail);
                        ties.insert(*key, (*host, true));
                        taken.insert((key.0, *host));
                    }
                    hosts => {
                        let detail = format!(
                            "device {}: {} may be host pid {}: nothing tells {} apart",
                            key.0,
                            pid_text(key.2),
                            hosts.iter().map(u32::to_string).collect::<Vec<_>>().join(" or "),
                            if hosts.len() > 1 { "them" } else { "it and other traced processes" },
                        );
                        quality.add(Some(key.1), quality::PID_UNMATCHED, 1, detail);
                    }
                }
                continue;
            };
            let rate = |pid: &u32| seen.inside.get(pid).map_or(0.0, |n| *n as f64 / seen.kernels as f64);
            let fits = |p: &u32| rate(p) >= 0.5 && self.fit(key, *p).possible;
            let close: Vec<u32> = pids.keys().copied().filter(fits).collect();
            match Self::best(&close, |host| self.fit(key, host)).as_slice() {
                [one] if seen.kernels >= 3 && rate(one) >= 0.95 && !taken.contains(&(key.0, *one)) => {
                    wanted.entry((key.0, *one)).or_default().push(*key);
                }
                _ => quality.add(
                    Some(key.1),
                    quality::PID_UNMATCHED,
                    1,
                    format!(
                        "device {}: no single process of the switch records fits {}{}",
                        key.0,
                        pid_text(key.2),
                        self.clock_words(key.1)
                    ),
                ),
            }
        }
        for ((device, host), mut keys) in wanted {
            if keys.len() > 1 && !keys.iter().any(|(_, capture, _)| self.is_mps_server(*capture, host)) {
                let best = Self::best(&keys, |key| self.fit(&key, host));
                if best.len() == 1 {
                    for (_, capture, pid) in keys.iter().filter(|key| !best.contains(key)) {
                        let text =
                            format!("device {device}: host pid {host} is another than {}", pid_text(*pid));
                        quality.add(Some(*capture), quality::PID_UNMATCHED, 1, text);
                    }
                    keys = best;
                }
            }
            if keys.iter().any(|(_, capture, _)| self.is_mps_server(*capture, host)) {
                served.extend(keys.iter().map(|key| (*key, host)));
            } else if let [(_, capture, pid)] = keys.as_slice() {
                let seen = self.seen.get((device, *capture, *pid));
                let share = |host: u32| {
                    seen.map_or(0.0, |s| {
                        100.0 * s.inside.get(&host).copied().unwrap_or(0) as f64 / s.kernels.max(1) as f64
                    })
                };
                let others =
                    self.resident.get(&device).into_iter().flat_map(BTreeMap::keys).filter(|p| **p != host);
                let next = others.map(|p| share(*p)).fold(0.0, f64::max);
                let detail = format!(
                    "device {device}: {} is host pid {host} ({:.0} % of {} kernel starts inside its residency, at most \
                     {next:.0} % inside that of any other{}{})",
                    pid_text(*pid),
                    share(host),
                    seen.map_or(0, |s| s.kernels),
                    self.words(&(device, *capture, *pid), host),
                    self.clock_words(*capture),
                );
                quality.add(Some(*capture), quality::PID_BRIDGED, 1, detail);
                ties.insert((device, *capture, *pid), (host, true));
            } else {
                // Clients of one MPS server all run inside the residency of whoever owns the context; but nothing names
                // this one a server.
                for (_, capture, pid) in &keys {
                    let text =
                        format!("device {device}: several processes fit host pid {host}, {}", pid_text(*pid));
                    quality.add(Some(*capture), quality::PID_UNMATCHED, 1, text);
                }
            }
        }
        (ties, served)
    }

    fn is_mps_server(&self, capture: u32, pid: u32) -> bool {
        // PROCESSES of real exports cuts the names of processes that were not traced at 15 characters.
        self.names.get(&(capture, pid)).is_some_and(|name| name.starts_with("nvidia-cuda-mps"))
    }
}

/// Processes of the host, by what was written down of them (`identities`) and what NVML listed.
fn identities(session: &Tables) -> Result<BTreeMap<u32, Identity>> {
    let mut found: BTreeMap<u32, Identity> = BTreeMap::new();
    if let Some(batch) = session.get(schema::IDENTITIES.name) {
        let columns = Columns::new(&schema::IDENTITIES, batch);
        let (host, inner) = (columns.u32("host_pid")?, columns.u32("pid")?);
        for row in 0..columns.rows() {
            found.entry(host.value(row)).or_default().inner = at(inner, row);
        }
    }
    if let Some(batch) = session.get(schema::NVML_SAMPLES.name) {
        let columns = Columns::new(&schema::NVML_SAMPLES, batch);
        let (pid, device) = (columns.u32("pid")?, columns.u32("device_id")?);
        let name = columns.text("process_name")?;
        for row in 0..columns.rows() {
            let Some(pid) = at(pid, row) else { continue };
            let known = found.entry(pid).or_default();
            known.devices.extend(at(device, row));
            // NVML answers `[Not Found]` and the like for what it may not see.
            if name.is_valid(row)
                && !name.value(row).starts_with(['[', '<'])
                && !known.names.contains(name.value(row))
            {
                known.names.insert(name.value(row).to_owned());
            }
        }
    }
    Ok(found)
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(|| "the process without pid".to_owned(), |pid| format!("pid {pid}"))
}

fn comma<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().map(|v| v.to_string()).collect::<Vec<_>>().join(",")
}

struct Row {
    device: u32,
    capture: u32,
    pid: Option<u32>,
    host_pid: Option<u32>,
    name: String,
    contexts: String,
    hw_contexts: BTreeSet<u64>,
    traced: bool,
    match_rate: Option<f64>,
    bridged: bool,
    served_by: Option<u32>,
}

/// Whose slices a host record belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Pid(u32),
    OtherUsers,
}

/// `None` for channels of the driver itself: they run no work of anybody and are no tenant.
fn holder(slice: &Slice) -> Option<Holder> {
    match slice.pid {
        Some(pid) => Some(Holder::Pid(pid)),
        None if slice.is_driver() => None,
        None => Some(Holder::OtherUsers),
    }
}

impl EventPass for Tenants {
    type Output = Output;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        watch.progress("tenants", self.done, 0)?;
        for w in work(events)? {
            if self.done.is_multiple_of(4096) {
                watch.progress("tenants", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            let Some(seen) = self.seen.entry((w.device, w.capture, w.pid)) else { continue };
            // A process mostly goes on in one context.
            if seen.last_context != w.context {
                seen.contexts.extend(w.context);
                seen.last_context = w.context;
            }
            // Of kernels that switch records do not reach nothing tells whose context was resident.
            if w.kind == WorkKind::Kernel && !self.partly_recorded.is_unknown(w.device, w.start_ns) {
                seen.kernels = seen.kernels.saturating_add(1);
                for (pid, union) in self.resident.get(&w.device).into_iter().flatten() {
                    if union.contains(w.start_ns) {
                        *seen.inside.entry(*pid).or_default() += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, watch: &dyn Watch) -> Result<Output> {
        watch.progress("tenants", self.done, 0)?;
        let mut quality = Quality::default();
        let (ties, served) = self.tie(&mut quality);
        let mut rows: Vec<Row> = Vec::new();
        let mut owner: BTreeMap<(u32, Holder), u32> = BTreeMap::new();
        for (key, seen) in self.seen.sorted() {
            let (device, capture, pid) = key;
            let tie = ties.get(&key).copied();
            let rate = tie
                .filter(|_| seen.kernels > 0)
                .map(|(host, _)| seen.inside.get(&host).map_or(0.0, |n| *n as f64 / seen.kernels as f64));
            let mut contexts = seen.contexts.clone();
            contexts.extend(self.contexts.get(&key).into_iter().flatten());
            if let (Some((host, _)), Ok(id)) = (tie, u32::try_from(rows.len())) {
                owner.insert((device, Holder::Pid(host)), id);
            }
            let named = pid.and_then(|pid| self.names.get(&(capture, pid)).cloned());
            rows.push(Row {
                device,
                capture,
                pid,
                host_pid: tie.map(|t| t.0),
                name: named
                    .unwrap_or_else(|| pid.map_or("unknown process".to_owned(), |p| format!("pid {p}"))),
                contexts: comma(contexts),
                hw_contexts: BTreeSet::new(),
                traced: true,
                match_rate: rate,
                bridged: tie.is_some_and(|t| t.1),
                served_by: None,
            });
        }
        let mut unnamed: BTreeMap<(u32, Holder), u32> = BTreeMap::new();
        for s in &self.slices {
            let Some(holder) = holder(s) else { continue };
            let key = (s.device, holder);
            if !owner.contains_key(&key) {
                let capture = unnamed.entry(key).or_insert(s.capture);
                *capture = (*capture).min(s.capture);
            }
        }
        for ((device, holder), capture) in unnamed {
            let pid = if let Holder::Pid(pid) = holder { Some(pid) } else { None };
            let named = pid.and_then(|pid| self.names.get(&(capture, pid)).cloned());
            let name = match holder {
                Holder::Pid(pid) => named.unwrap_or_else(|| format!("pid {pid}")),
                Holder::OtherUsers => "other users".to_owned(),
            };
            if let Ok(id) = u32::try_from(rows.len()) {
                owner.insert((device, holder), id);
            }
            rows.push(Row {
                device,
                capture,
                pid,
                host_pid: pid,
                name,
                contexts: comma(self.contexts.get(&(device, capture, pid)).into_iter().flatten()),
                hw_contexts: BTreeSet::new(),
                // It may have been injected and yet have run nothing: then its silence is known.
                traced: pid.is_some_and(|pid| self.traced.contains(&(capture, pid))),
                match_rate: None,
                bridged: false,
                served_by: None,
            });
        }
        for s in &mut self.slices {
            s.tenant = holder(s).and_then(|holder| owner.get(&(s.device, holder)).copied());
            if let Some(row) = s.tenant.and_then(|t| rows.get_mut(t as usize)) {
                row.hw_contexts.insert(s.hw_context);
            }
        }
        for ((device, capture, pid), host) in served {
            let server = owner.get(&(device, Holder::Pid(host))).copied();
            let client = rows
                .iter_mut()
                .find(|r| (r.device, r.capture, r.pid, r.traced) == (device, capture, pid, true));
            if let Some(client) = client {
                client.served_by = server;
            }
        }
        watch.progress("tenants", self.done, 0)?;
        Ok(Output {
            tenants: write(&rows)?,
            residency: Slice::write(&self.slices)?,
            switches: name_switches(&self.switches, &self.slices)?,
            quality,
        })
    }
}

fn write(rows: &[Row]) -> Result<RecordBatch> {
    Builder::new(&schema::TENANTS)
        .put("tenant_id", (0..).take(rows.len()).map(Some).collect::<UInt32Array>())
        .put("device_id", rows.iter().map(|r| Some(r.device)).collect::<UInt32Array>())
        .put("capture", rows.iter().map(|r| Some(r.capture)).collect::<UInt32Array>())
        .put("pid", rows.iter().map(|r| r.pid).collect::<UInt32Array>())
        .put("host_pid", rows.iter().map(|r| r.host_pid).collect::<UInt32Array>())
        .put("name", rows.iter().map(|r| Some(r.name.as_str())).collect::<StringArray>())
        .put("contexts", rows.iter().map(|r| Some(r.contexts.as_str())).collect::<StringArray>())
        .put("hw_contexts", rows.iter().map(|r| Some(comma(&r.hw_contexts))).collect::<StringArray>())
        .put("traced", rows.iter().map(|r| Some(r.traced)).collect::<BooleanArray>())
        .put("match_rate", rows.iter().map(|r| r.match_rate).collect::<Float64Array>())
        .put_names("basis", rows.iter().map(|r| Some(if r.bridged { "inferred" } else { "observed" })))
        .put("served_by", rows.iter().map(|r| r.served_by).collect::<UInt32Array>())
        .finish(rows.len())
}

/// A context id alone is not unique (other users share 0, ids are reused), but a context cannot leave
/// or enter the engine twice at one time.
fn name_switches(switches: &RecordBatch, slices: &[Slice]) -> Result<RecordBatch> {
    let mut by_device: BTreeMap<u32, Vec<&Slice>> = BTreeMap::new();
    for s in slices {
        by_device.entry(s.device).or_default().push(s);
    }
    for own in by_device.values_mut() {
        own.sort_by_key(|s| s.start_ns);
    }
    let columns = Columns::new(&schema::SWITCHES, switches);
    let (device, time, gap) = (columns.u32("device_id")?, columns.i64("time_ns")?, columns.i64("gap_ns")?);
    let (from, to) = (columns.u64("from_hw_context")?, columns.u64("to_hw_context")?);
    let mut builder = Builder::new(&schema::SWITCHES)
        .put("device_id", device.clone())
        .put("time_ns", time.clone())
        .put("from_hw_context", from.clone())
        .put("to_hw_context", to.clone())
        .put("gap_ns", gap.clone())
        .put("full_ns", columns.i64("full_ns")?.clone())
        .put("save_ns", columns.i64("save_ns")?.clone())
        .put("restore_ns", columns.i64("restore_ns")?.clone());
    for name in ["ending", "kind"] {
        let names = columns.names(name)?;
        builder = builder.put_names(name, (0..columns.rows()).map(|row| names.get(row)));
    }
    let own = |row: usize| by_device.get(&device.value(row)).map_or(&[][..], Vec::as_slice);
    let tenant_from = |row: usize| {
        let (own, end) = (own(row), time.value(row));
        // Slices of one engine follow each other; those of a second capture of it may lie between.
        let before = own.get(..own.partition_point(|s| s.start_ns <= end)).unwrap_or_default();
        let found = before.iter().rev().take(8).find(|s| s.end_ns == end && s.hw_context == from.value(row));
        found.and_then(|s| s.tenant)
    };
    let tenant_to = |row: usize| {
        let (own, start) = (own(row), time.value(row).saturating_add(gap.value(row)));
        let first = own.partition_point(|s| s.start_ns < start);
        let mut close = own.iter().skip(first).take_while(|s| s.start_ns == start);
        close.find(|s| s.hw_context == to.value(row)).and_then(|s| s.tenant)
    };
    builder
        .put("from_tenant_id", (0..columns.rows()).map(tenant_from).collect::<UInt32Array>())
        .put("to_tenant_id", (0..columns.rows()).map(tenant_to).collect::<UInt32Array>())
        .finish(columns.rows())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::table::tenant_lookup::Who;
    use crate::test_tables::{kernels, named, residency};

    /// Pid, host pid, traced, name, match rate.
    type Shown = (Option<u32>, Option<u32>, bool, String, Option<f64>);

    fn rows(tables: &Tables) -> Vec<Shown> {
        let c = Columns::new(&schema::TENANTS, &tables["tenants"]);
        (0..c.rows())
            .map(|r| {
                (
                    at(c.u32("pid").unwrap(), r),
                    at(c.u32("host_pid").unwrap(), r),
                    c.bool("traced").unwrap().value(r),
                    c.text("name").unwrap().value(r).to_owned(),
                    at(c.f64("match_rate").unwrap(), r),
                )
            })
            .collect()
    }

    #[test]
    fn equal_pids_are_one_tenant_and_checked_by_time() {
        // pid 7 resident |0==1000|      |2000==3000|   kernels at 10, 500, 2100, 2200, 1500 (outside)
        // pid 8 resident         |1000==2000|
        let (tables, _) = named(Tables::from([
            (
                "kernels",
                kernels(&[
                    (0, 7, 0, 1, 7, 10, 20),
                    (0, 7, 0, 1, 7, 500, 600),
                    (0, 7, 0, 1, 7, 1500, 1600),
                    (0, 7, 0, 1, 7, 2100, 2101),
                    (0, 7, 0, 1, 7, 2200, 2300),
                ]),
            ),
            (
                "residency",
                residency(&[
                    (0, 0, 7, 1, 0, 1000),
                    (0, 0, 8, 2, 1000, 2000),
                    (0, 0, 7, 1, 2000, 3000),
                    (0, 0, 0, 0, 3000, 3100),
                    (0, 0, 0, 0xFFFF_FFFF, 3200, 3300),
                ]),
            ),
        ]));
        let rows = rows(&tables);
        assert_eq!(rows[0], (Some(7), Some(7), true, "pid 7".to_owned(), Some(0.8)));
        assert_eq!(rows[1], (Some(8), Some(8), false, "pid 8".to_owned(), None));
        // The channel of the driver is no tenant.
        assert_eq!((rows.len(), rows[2].3.as_str()), (3, "other users"));
        let tenants: Vec<_> = Slice::read(&tables["residency"]).unwrap().iter().map(|s| s.tenant).collect();
        assert_eq!(tenants, [Some(0), Some(1), Some(0), Some(2), None]);
    }

    #[test]
    fn container_pids_are_bridged_by_time_or_not_at_all() {
        // container pid 1, host pids 500 and 600; all starts inside 500
        let slices =
            residency(&[(0, 0, 500, 1, 0, 1000), (0, 0, 600, 2, 1200, 2000), (0, 0, 500, 1, 2200, 3000)]);
        let starts = [100, 200, 2300];
        let of = |starts: &[i64]| {
            let rows: Vec<_> = starts.iter().map(|s| (0, 1, 0, 1, 7, *s, s + 5)).collect();
            named(Tables::from([("kernels", kernels(&rows)), ("residency", slices.clone())]))
        };
        let (tables, quality) = of(&starts);
        assert_eq!(rows(&tables)[0].1, Some(500));
        assert_eq!(quality.count(quality::PID_BRIDGED), 1);
        assert_eq!(tables["tenants"].num_rows(), 2);
        // Two kernels are chance.
        let (tables, quality) = of(&[100, 200]);
        assert_eq!(rows(&tables)[0].1, None);
        assert_eq!(quality.count(quality::PID_UNMATCHED), 1);
        assert_eq!(tables["tenants"].num_rows(), 3);
        // Half here, half there ties nothing.
        assert_eq!(of(&[100, 200, 1500, 1600]).1.count(quality::PID_UNMATCHED), 1);
    }

    #[test]
    fn two_processes_inside_one_residency_are_not_bridged() {
        // MPS: both clients run inside the residency of one host pid.
        let rows: Vec<_> = (0..8).map(|n| (0, 1 + n as u32 % 2, 0, 1, 7, n * 100, n * 100 + 50)).collect();
        let (tables, quality) = named(Tables::from([
            ("kernels", kernels(&rows)),
            ("residency", residency(&[(0, 0, 900, 1, 0, 5000)])),
        ]));
        assert_eq!(quality.count(quality::PID_UNMATCHED), 2);
        assert_eq!(tables["tenants"].num_rows(), 3);
    }

    /// `identities`: host pid, pid in its own namespace.
    fn known(rows: &[(u32, u32)]) -> RecordBatch {
        Builder::new(&schema::IDENTITIES)
            .put("host_pid", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
            .put("pid", rows.iter().map(|r| Some(r.1)).collect::<UInt32Array>())
            .finish(rows.len())
            .unwrap()
    }

    #[test]
    fn what_was_written_down_decides_between_those_that_time_does_not_tell_apart() {
        // Container pid 1; every kernel starts while both host pids are resident: |500======| |600======|
        let slices = residency(&[(0, 0, 500, 1, 0, 1000), (0, 0, 600, 2, 0, 1000)]);
        let of = |rows: &[(u32, u32)]| {
            let (tables, quality) = named(Tables::from([
                (
                    "kernels",
                    kernels(&[
                        (0, 1, 0, 1, 7, 100, 105),
                        (0, 1, 0, 1, 7, 200, 205),
                        (0, 1, 0, 1, 7, 300, 305),
                    ]),
                ),
                ("residency", slices.clone()),
                ("identities", known(rows)),
            ]));
            (super::tests::rows(&tables)[0].1, quality.count(quality::PID_BRIDGED))
        };
        assert_eq!(of(&[]), (None, 0), "both fit");
        assert_eq!(of(&[(600, 1)]), (Some(600), 1), "its pid in its namespace is the capture's");
        assert_eq!(of(&[(600, 4)]), (Some(500), 1), "somebody else's pid: the other is left");
        assert_eq!(of(&[(600, 1), (500, 1)]), (None, 0), "both containers have a pid 1");
    }

    #[test]
    fn a_process_that_only_nvml_lists_is_tied_by_pid_or_by_the_one_program() {
        let processes = |name: &str| {
            Builder::new(&schema::PROCESSES)
                .put("capture", UInt32Array::from(vec![0]))
                .put("pid", UInt32Array::from(vec![1]))
                .put("name", StringArray::from(vec![name]))
                .put("traced", BooleanArray::from(vec![true]))
                .finish(1)
                .unwrap()
        };
        let nvml = |rows: &[(u32, &str)]| {
            Builder::new(&schema::NVML_SAMPLES)
                .put_names("source", rows.iter().map(|_| Some("a.csv")))
                .put_names("format", rows.iter().map(|_| Some("nvidia-smi-compute-apps")))
                .put("device_id", rows.iter().map(|_| Some(0)).collect::<UInt32Array>())
                .put("pid", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
                .put("process_name", rows.iter().map(|r| Some(r.1)).collect::<StringArray>())
                .put_names("metric", rows.iter().map(|_| Some("process_memory_bytes")))
                .finish(rows.len())
                .unwrap()
        };
        let of = |listed: &[(u32, &str)], written: &[(u32, u32)]| {
            let (tables, _) = named(Tables::from([
                ("kernels", kernels(&[(0, 1, 0, 1, 7, 100, 105)])),
                ("processes", processes("/opt/app/a-very-long-program-name")),
                ("nvml_samples", nvml(listed)),
                ("identities", known(written)),
            ]));
            rows(&tables)[0].1
        };
        assert_eq!(of(&[(500, "a-very-long-pro"), (600, "other")], &[]), Some(500), "/proc cuts at 15");
        assert_eq!(
            of(&[(500, "a-very-long-pro"), (600, "a-very-long-pro")], &[]),
            None,
            "two of that program"
        );
        let written = [(600, 1), (500, 7)];
        assert_eq!(of(&[(500, "a-very-long-pro"), (600, "a-very-long-pro")], &written), Some(600));
        assert_eq!(of(&[(500, "[Not Found]")], &[]), None);
    }

    #[test]
    fn equal_pids_of_two_captures_stay_two_tenants() {
        let (tables, _) = named(Tables::from([(
            "kernels",
            kernels(&[(0, 1, 0, 1, 7, 0, 10), (1, 1, 0, 1, 7, 5, 15), (0, 1, 1, 1, 7, 5, 15)]),
        )]));
        assert_eq!(tables["tenants"].num_rows(), 3);
        let who = Who::read(&tables).unwrap();
        assert_ne!(who.of(0, Some(1), 0), who.of(1, Some(1), 0));
        assert_eq!(who.of(0, Some(2), 0), None);
    }

    #[test]
    fn nothing_and_cancellation() {
        let (tables, quality) = named(Tables::new());
        assert_eq!(tables["tenants"].num_rows(), 0);
        assert_eq!(quality.table().unwrap().num_rows(), 0);
        let stopped = Tenants::new(&tables).unwrap().run(&tables, &StopAfter::new(0));
        assert!(matches!(stopped, Err(crate::Error::Cancelled)));
        assert!(Tenants::new(&tables).unwrap().run(&tables, &Unwatched).is_ok());
    }
}
