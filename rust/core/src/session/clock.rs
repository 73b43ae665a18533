//! Place all captures and samples on the session clock.
//!
//! Every capture counts nanoseconds from its own start. A session has one clock: the first capture's. What places
//! another capture on it decides how large the error may be; that uncertainty stands in `capture.clock_uncertainty_ns`
//! for every evidence that compares times of two captures.
//!
//! ```text
//!   first    0----------------------------->          session zero
//!   second          0----------------------------->   offset = its UTC origin - the first's
//! ```
//!
//! Where two captures of one GPU both have switch records, those are the same records: their times then give the offset
//! to a fraction of a microsecond, whatever the wall clocks said. The same holds for samples of hardware metrics that
//! both have.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;

use crate::base::error::{Error, Result};
use crate::base::watch::Watch;
use crate::read::samples::is_undated;
use crate::table::builder::replace;
use crate::table::columns::{at, Columns};
use crate::table::events::{concat, Tables, EVENT_TABLES};
use crate::table::quality::{self, Quality};
use crate::table::schema::{self, Table};

/// Captures of one host placed by their UTC start: nsys reads the wall clock once per session.
const SAME_HOST_NS: i64 = 1_000_000;
/// Captures of one host placed by the operating system's own clock.
const SAME_CLOCK_NS: i64 = 1_000;
/// The OS clock and the wall clock of one boot differ by less: NTP may step the wall clock in between.
const ONE_BOOT_NS: u64 = 1_000_000_000;
/// Captures of different hosts: NTP keeps them within milliseconds to tens of milliseconds.
const OTHER_HOST_NS: i64 = 10_000_000;

/// Of so many switch records of a capture it is asked when another capture saw them.
const SHARED_SAMPLE: usize = 4_000;
/// So many must agree, within so much, and are then sure to no less than this.
const SHARED_RECORDS: usize = 16;
const SHARED_SPREAD_NS: i64 = 20_000;
const SHARED_LEAST_NS: i64 = 100;

/// A time on the clock of a capture, or of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceNs(pub i64);

/// A UTC epoch time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcNs(pub i64);

/// A measured mapping from a capture's clock to the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// UTC time of the session's zero.
    pub utc_origin: Option<UtcNs>,
    /// Added to capture times to get session times.
    pub offset_ns: i64,
    /// How wrong the offset may be; `None` if the capture cannot be placed.
    pub uncertainty_ns: Option<i64>,
}

impl Clock {
    /// The session time of a time of the capture; `None` outside the range of 64 bits.
    #[must_use]
    pub fn session_from_trace(&self, time: TraceNs) -> Option<TraceNs> {
        time.0.checked_add(self.offset_ns).map(TraceNs)
    }

    /// The session time of a UTC time.
    #[must_use]
    pub fn trace_from_utc(&self, time: UtcNs) -> Option<TraceNs> {
        time.0.checked_sub(self.utc_origin?.0).map(TraceNs)
    }

    /// The UTC time of a session time.
    #[must_use]
    pub fn utc_from_trace(&self, time: TraceNs) -> Option<UtcNs> {
        time.0.checked_add(self.utc_origin?.0).map(UtcNs)
    }
}

/// What one capture says about its own clock.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Face {
    capture: u32,
    host: Option<String>,
    gpus: BTreeSet<String>,
    utc_ns: Option<i64>,
    system_ns: Option<i64>,
}

impl Face {
    /// Whether both were taken on one machine. Containers have host names of their own, but a GPU stands in one
    /// machine only.
    fn shares_machine(&self, other: &Self) -> bool {
        (self.host.is_some() && self.host == other.host) || !self.gpus.is_disjoint(&other.gpus)
    }
}

/// The UUIDs of a capture's GPUs.
fn gpus(tables: &Tables) -> Result<BTreeSet<String>> {
    let Some(batch) = tables.get(schema::DEVICES.name) else { return Ok(BTreeSet::new()) };
    let uuid = Columns::new(&schema::DEVICES, batch).text("uuid")?;
    Ok(uuid.iter().flatten().map(str::to_owned).collect())
}

fn faces(batch: &RecordBatch) -> Result<Vec<Face>> {
    let columns = Columns::new(&schema::CAPTURE, batch);
    let (capture, host) = (columns.u32("capture")?, columns.text("host_hash")?);
    let (utc, system) = (columns.i64("utc_origin_ns")?, columns.i64("system_clock_origin_ns")?);
    let (shift, epoch) = (columns.i64("export_shift_ns")?, columns.bool("export_normalized")?);
    Ok((0..columns.rows())
        .map(|row| Face {
            capture: capture.value(row),
            host: host.is_valid(row).then(|| host.value(row).to_owned()),
            gpus: BTreeSet::new(),
            utc_ns: at(utc, row),
            // The OS clock belongs to the zero of the recording: of no use where the export moved the zero.
            system_ns: at(system, row).filter(|_| shift.value(row) == 0 && !epoch.value(row)),
        })
        .collect())
}

/// Places `other` on the clock of `first`.
fn place(first: &Face, other: &Face) -> Clock {
    let same_host = first.shares_machine(other);
    let utc_origin = first.utc_ns.map(UtcNs);
    let utc = first.utc_ns.zip(other.utc_ns);
    // The OS clock counts from the boot: after another boot it says something else than the wall clock.
    let one_boot = |(a, b): &(i64, i64)| {
        utc.is_none_or(|(c, d)| b.saturating_sub(*a).abs_diff(d.saturating_sub(c)) < ONE_BOOT_NS)
    };
    let system = first.system_ns.zip(other.system_ns).filter(|_| same_host).filter(one_boot);
    let placed = match (system, utc) {
        (Some((a, b)), _) => b.checked_sub(a).map(|offset| (offset, SAME_CLOCK_NS)),
        (None, Some((a, b))) => {
            b.checked_sub(a).map(|offset| (offset, if same_host { SAME_HOST_NS } else { OTHER_HOST_NS }))
        }
        (None, None) => None,
    };
    match placed {
        Some((offset_ns, uncertainty)) => Clock { utc_origin, offset_ns, uncertainty_ns: Some(uncertainty) },
        None => Clock { utc_origin, offset_ns: 0, uncertainty_ns: None },
    }
}

/// A switch record without its time: the driver writes the same one to whoever listens.
type Record = (u16, u8, u64);

/// The switch records of a capture.
fn records(tables: &Tables) -> Result<Vec<(Record, i64)>> {
    let Some(batch) = tables.get(schema::SWITCH_EVENTS.name) else { return Ok(Vec::new()) };
    let columns = Columns::new(&schema::SWITCH_EVENTS, batch);
    let (time, tag) = (columns.i64("time_ns")?, columns.u8("tag")?);
    let (hw, sequence) = (columns.u64("hw_context")?, columns.u16("sequence")?);
    let row = |row| ((sequence.value(row), tag.value(row), hw.value(row)), time.value(row));
    Ok((0..columns.rows()).map(row).collect())
}

/// What a GPU's counters said at a moment and at the next: a digest of device, metrics and values. One set of values
/// may repeat for seconds (an idle GPU, a full one); two in a row that are not alike are rare enough to vote.
type Shape = (u64, u64);

/// The samples of hardware metrics of a capture, by what they say; those that say the same as the one before are left
/// out. A GPU counts by its UUID: without one nothing says that two captures mean the same GPU.
fn shapes(tables: &Tables) -> Result<Vec<(Shape, i64)>> {
    let (Some(batch), Some(devices)) =
        (tables.get(schema::GPU_METRICS.name), tables.get(schema::DEVICES.name))
    else {
        return Ok(Vec::new());
    };
    let columns = Columns::new(&schema::DEVICES, devices);
    let (id, uuid) = (columns.u32("device_id")?, columns.text("uuid")?);
    let named: BTreeMap<u32, &str> = (0..columns.rows())
        .filter(|row| uuid.is_valid(*row))
        .map(|row| (id.value(row), uuid.value(row)))
        .collect();
    let columns = Columns::new(&schema::GPU_METRICS, batch);
    let (device, time) = (columns.u32("device_id")?, columns.i64("time_ns")?);
    let (metric, value) = (columns.names("metric")?, columns.f64("value")?);
    // Rows are sorted by time and device: a moment's values of one GPU follow each other.
    let mut moments: BTreeMap<u32, Vec<(i64, u64)>> = BTreeMap::new();
    for row in 0..columns.rows() {
        let Some((board, gpu)) = at(device, row).and_then(|id| Some((id, named.get(&id)?))) else { continue };
        let mut hasher = DefaultHasher::new();
        (gpu, metric.get(row), value.value(row).to_bits()).hash(&mut hasher);
        let of_board = moments.entry(board).or_default();
        match of_board.last_mut() {
            // Exports order the metrics of a moment differently: their digests are added up.
            Some((when, sum)) if *when == time.value(row) => *sum = sum.wrapping_add(hasher.finish()),
            _ => of_board.push((time.value(row), hasher.finish())),
        }
    }
    let mut found: Vec<(Shape, i64)> = moments
        .values()
        .flat_map(|of_board| of_board.iter().zip(of_board.iter().skip(1)))
        .filter(|(now, next)| now.1 != next.1)
        .map(|(now, next)| ((now.1, next.1), now.0))
        .collect();
    found.sort_unstable_by_key(|(_, time_ns)| *time_ns);
    Ok(found)
}

/// The longest run of sorted values that lie within [`SHARED_SPREAD_NS`]: first and last index.
fn closest(values: &[i64]) -> Option<(usize, usize)> {
    let mut from = 0;
    let mut best: Option<(usize, usize)> = None;
    for (to, value) in values.iter().enumerate() {
        while values.get(from).is_some_and(|low| value.saturating_sub(*low) > SHARED_SPREAD_NS) {
            from += 1;
        }
        if best.is_none_or(|(a, b)| to - from > b - a) {
            best = Some((from, to));
        }
    }
    best
}

/// Offset and uncertainty from records that both captures hold: what most of them agree on.
///
/// Sequence numbers wrap every 65536 records, so one record may look like several; only the true pairs all differ by
/// the same time.
fn from_shared<K: Ord + Copy>(first: &[(K, i64)], other: &[(K, i64)]) -> Option<(i64, i64)> {
    let mut at: BTreeMap<K, Vec<i64>> = BTreeMap::new();
    for (record, time_ns) in first {
        at.entry(*record).or_default().push(*time_ns);
    }
    let step = other.len().div_ceil(SHARED_SAMPLE).max(1);
    let mut apart = Vec::new();
    for (record, time_ns) in other.iter().step_by(step) {
        let same = at.get(record).map_or(&[][..], Vec::as_slice);
        apart.extend(same.iter().map(|t| t.saturating_sub(*time_ns)));
    }
    apart.sort_unstable();
    let best = closest(&apart)?;
    let agreed = apart.get(best.0..=best.1).filter(|agreed| agreed.len() >= SHARED_RECORDS)?;
    // By chance a record of one pass through the numbers meets one of another: those pairs scatter.
    if agreed.len().saturating_mul(4) < other.len().div_ceil(step) {
        return None;
    }
    // A workload that repeats itself looks alike a period later: then nothing says which of the offsets it is.
    let beyond = |value: &&i64| {
        let (low, high) = (agreed.first().copied().unwrap_or(0), agreed.last().copied().unwrap_or(0));
        **value < low.saturating_sub(SHARED_SPREAD_NS) || **value > high.saturating_add(SHARED_SPREAD_NS)
    };
    let beyond_it: Vec<i64> = apart.iter().filter(beyond).copied().collect();
    if closest(&beyond_it).is_some_and(|(from, to)| (to - from + 1).saturating_mul(2) > agreed.len()) {
        return None;
    }
    let offset_ns = *agreed.get(agreed.len() / 2)?;
    let spread_ns = agreed.last()?.saturating_sub(*agreed.first()?);
    Some((offset_ns, (spread_ns / 2).max(SHARED_LEAST_NS)))
}

/// When a capture was recorded, on its own clock; where that is not known, its first and last time. Of two recordings made
/// at one time, one may have seen something at its begin only.
fn span(tables: &Tables) -> Result<Option<(i64, i64)>> {
    let Some(batch) = tables.get(schema::CAPTURE.name) else { return Ok(None) };
    let columns = Columns::new(&schema::CAPTURE, batch);
    let recorded = at(columns.i64("recording_start_ns")?, 0).zip(at(columns.i64("recording_end_ns")?, 0));
    let seen = at(columns.i64("start_ns")?, 0).zip(at(columns.i64("end_ns")?, 0));
    Ok(recorded.or(seen))
}

/// Columns that hold a time on the capture's clock; durations and origins are not among them.
const TIMES: &[&str] = &["start_ns", "end_ns", "time_ns", "recording_start_ns", "recording_end_ns"];

/// Shifts all times of a batch. A time that leaves 64 bits ends up at their edge: nothing happened there.
fn shift(table: &'static Table, batch: &RecordBatch, offset_ns: i64) -> Result<RecordBatch> {
    if offset_ns == 0 {
        return Ok(batch.clone());
    }
    let columns = Columns::new(table, batch);
    let mut changes: Vec<(&str, ArrayRef)> = Vec::new();
    for name in TIMES.iter().filter(|name| table.columns.iter().any(|c| c.name == **name)) {
        let shifted: Int64Array = columns.i64(name)?.unary(|t| t.saturating_add(offset_ns));
        changes.push((name, Arc::new(shifted)));
    }
    replace(table, batch, changes)
}

/// Rewrites device ids; an id that the capture's `devices` does not list stays out of the way of all others.
fn renumber(
    table: &'static Table,
    batch: &RecordBatch,
    ids: &mut BTreeMap<u32, u32>,
    next: &mut u32,
) -> Result<RecordBatch> {
    if !table.columns.iter().any(|c| c.name == "device_id") {
        return Ok(batch.clone());
    }
    let old = Columns::new(table, batch).u32("device_id")?;
    let new: UInt32Array = old
        .iter()
        .map(|id| {
            id.map(|id| {
                *ids.entry(id).or_insert_with(|| {
                    let fresh = *next;
                    *next = next.saturating_add(1);
                    fresh
                })
            })
        })
        .collect();
    replace(table, batch, vec![("device_id", Arc::new(new))])
}

fn sorted(table: &'static Table, batch: RecordBatch, order: &str) -> Result<RecordBatch> {
    let times = Columns::new(table, &batch).i64(order)?;
    if times.values().is_sorted() {
        return Ok(batch);
    }
    let mut rows: Vec<u32> = (0..u32::try_from(batch.num_rows()).unwrap_or(u32::MAX)).collect();
    rows.sort_by_key(|row| at(times, *row as usize));
    take_record_batch(&batch, &UInt32Array::from(rows)).map_err(|e| Error::schema(&table.id(), e.to_string()))
}

/// Puts captures on one session clock, the first capture's, and their GPUs under one set of ids.
///
/// Each element is what the reader made of one capture, with its own `capture` index. Times are shifted by
/// the difference of the captures' origins, event tables are merged and sorted again, and a GPU that two
/// captures name by the same UUID becomes one device (without a UUID two captures never share one). One capture alone keeps its device ids.
///
/// # Errors
/// [`Error::Argument`] for no capture or two with the same index, [`Error::Schema`], [`Error::Cancelled`].
pub fn join(captures: Vec<Tables>, watch: &dyn Watch) -> Result<Tables> {
    let missing = || Error::schema(&schema::CAPTURE.id(), "one row per capture is missing");
    let mut known: Vec<Face> = Vec::new();
    let mut seen = BTreeSet::new();
    for tables in &captures {
        let found = faces(tables.get(schema::CAPTURE.name).ok_or_else(missing)?)?;
        let [face] = found.as_slice() else { return Err(missing()) };
        let face = Face { gpus: gpus(tables)?, ..face.clone() };
        if !seen.insert(face.capture) {
            return Err(Error::Argument(format!("two captures have the index {}", face.capture)));
        }
        known.push(face);
    }
    let Some(first) = known.first().cloned() else {
        return Err(Error::Argument("no capture was given; name at least one .sqlite export".to_owned()));
    };
    let single = captures.len() == 1;
    let reference = captures.first().filter(|_| !single).map_or(Ok(Vec::new()), records)?;
    let sampled = captures.first().filter(|_| !single).map_or(Ok(Vec::new()), shapes)?;
    let mut spans: Vec<(u32, (i64, i64))> = Vec::new();
    let mut quality = Quality::default();
    let mut next_device = 0_u32;
    let mut by_uuid: BTreeMap<String, u32> = BTreeMap::new();
    let mut parts: BTreeMap<&'static str, (&'static Table, Vec<RecordBatch>)> = BTreeMap::new();
    let total = captures.len() as u64;
    for (done, (tables, face)) in captures.into_iter().zip(&known).enumerate() {
        watch.progress("join", done as u64, total)?;
        let clock = if face.capture == first.capture {
            Clock { utc_origin: first.utc_ns.map(UtcNs), offset_ns: 0, uncertainty_ns: Some(0) }
        } else {
            let placed = place(&first, face);
            let shared = match from_shared(&reference, &records(&tables)?) {
                Some(found) => Some(("switch records", found)),
                None => from_shared(&sampled, &shapes(&tables)?).map(|found| ("metric samples", found)),
            };
            match shared {
                Some((what, (offset_ns, uncertainty))) => {
                    let away_ns = placed.offset_ns.saturating_sub(offset_ns).saturating_abs();
                    if let Some(allowed_ns) = placed.uncertainty_ns.filter(|allowed| away_ns > *allowed) {
                        let detail = format!(
                            "by its start it is {away_ns} ns from where {what} that the first capture has as well put \
                             it, which is more than {allowed_ns} ns; the {what} were believed"
                        );
                        quality.add(Some(face.capture), quality::CLOCKS_CONTRADICT, 1, detail);
                    }
                    Clock { offset_ns, uncertainty_ns: Some(uncertainty), ..placed }
                }
                None => placed,
            }
        };
        if let Some((start, end)) = span(&tables)?.filter(|_| clock.uncertainty_ns.is_some()) {
            let here = (start.saturating_add(clock.offset_ns), end.saturating_add(clock.offset_ns));
            if !spans.is_empty() && spans.iter().all(|(_, s)| s.1 < here.0 || here.1 < s.0) {
                let away_ns = spans.iter().map(|(_, s)| (here.0 - s.1).max(s.0 - here.1)).min().unwrap_or(0);
                let away_s = away_ns / 1_000_000_000;
                let detail = format!("it was recorded {away_s} s away from all captures before it");
                quality.add(Some(face.capture), quality::CAPTURES_APART, 1, detail);
            }
            spans.push((face.capture, here));
        }
        if clock.uncertainty_ns.is_none() {
            let detail = "no start time in common with the first capture: its times are its own";
            quality.add(Some(face.capture), quality::CAPTURES_APART, 1, detail);
        }
        let mut ids = BTreeMap::new();
        let mut repeated = Vec::new();
        if let Some(batch) = tables.get(schema::DEVICES.name) {
            let columns = Columns::new(&schema::DEVICES, batch);
            let (id, uuid) = (columns.u32("device_id")?, columns.text("uuid")?);
            for row in 0..columns.rows() {
                let key = uuid.is_valid(row).then(|| uuid.value(row).to_owned());
                let same = key.as_ref().and_then(|key| by_uuid.get(key)).copied();
                repeated.push(same.is_some());
                let new = same.unwrap_or(next_device);
                if same.is_none() {
                    next_device = next_device.saturating_add(1);
                    by_uuid.extend(key.map(|key| (key, new)));
                }
                ids.insert(id.value(row), new);
            }
        }
        for (name, batch) in &tables {
            watch.progress("join", done as u64, total)?;
            let table = schema::table(name)
                .ok_or_else(|| Error::schema(name, "is not a table that a capture can have"))?;
            let mut batch = shift(table, batch, clock.offset_ns)?;
            if table.name == schema::CAPTURE.name {
                batch = replace(
                    table,
                    &batch,
                    vec![
                        ("clock_offset_ns", Arc::new(Int64Array::from(vec![clock.offset_ns]))),
                        ("clock_uncertainty_ns", Arc::new(Int64Array::from(vec![clock.uncertainty_ns]))),
                    ],
                )?;
            }
            if !single {
                batch = renumber(table, &batch, &mut ids, &mut next_device)?;
            }
            if table.name == schema::DEVICES.name {
                // A device that an earlier capture showed keeps that capture's row.
                let fresh: UInt32Array =
                    (0..).zip(&repeated).filter(|(_, r)| !**r).map(|(n, _)| Some(n)).collect();
                batch = take_record_batch(&batch, &fresh)
                    .map_err(|e| Error::schema(&table.id(), e.to_string()))?;
            }
            parts.entry(table.name).or_insert((table, Vec::new())).1.push(batch);
        }
    }
    let found = quality.table()?;
    if found.num_rows() > 0 {
        parts.entry(schema::QUALITY.name).or_insert((&schema::QUALITY, Vec::new())).1.push(found);
    }
    let mut session = Tables::new();
    for (name, (table, batches)) in parts {
        watch.progress("join", total, total)?;
        let mut batch = concat(table, &batches)?;
        let order = EVENT_TABLES.iter().find(|(t, _)| t.name == name).map(|(_, order)| *order);
        let listed = match name {
            "api_calls" | "profiler_overhead" | "thread_runs" | "nvtx" | "host_calls" => Some("start_ns"),
            "cpu_samples" | "allocations" => Some("time_ns"),
            _ => None,
        };
        if let Some(order) = order.or(listed) {
            batch = sorted(table, batch, order)?;
        }
        session.insert(name, batch);
    }
    Ok(session)
}

/// PCI addresses order as numbers: `0000:3B:00.0` stands before `00000000:AF:00.0`.
fn bus_key(text: &str) -> Vec<u64> {
    text.split([':', '.']).map(|part| u64::from_str_radix(part, 16).unwrap_or(u64::MAX)).collect()
}

#[derive(Debug, Default)]
struct Board {
    id: u32,
    uuid: Option<String>,
    name: Option<String>,
    bus: Option<Vec<u64>>,
}

fn boards(session: &Tables) -> Result<Vec<Board>> {
    let Some(batch) = session.get(schema::DEVICES.name) else { return Ok(Vec::new()) };
    let columns = Columns::new(&schema::DEVICES, batch);
    let id = columns.u32("device_id")?;
    let (uuid, name, bus) = (columns.text("uuid")?, columns.text("name")?, columns.text("bus_location")?);
    let get = |c: &arrow_array::StringArray, row| c.is_valid(row).then(|| c.value(row).to_owned());
    Ok((0..columns.rows())
        .map(|row| Board {
            id: id.value(row),
            uuid: get(uuid, row),
            name: get(name, row),
            bus: get(bus, row).map(|text| bus_key(&text)),
        })
        .collect())
}

/// Places `nvml_samples` on the session clock and beside its devices: fills `time_ns` and `device_id`.
///
/// A UTC time counts from the session's UTC origin. A local time is read in the time zone of the capture.
/// A device is found by UUID, else by index (nvidia-smi counts GPUs by PCI address), else by a name that
/// only one device has. What is about a MIG instance is never about its board.
///
/// # Errors
/// [`Error::Schema`] for tables that are not what they are declared to be.
pub fn place_samples(samples: &RecordBatch, session: &Tables, quality: &mut Quality) -> Result<RecordBatch> {
    let table = &schema::NVML_SAMPLES;
    let columns = Columns::new(table, samples);
    let mut origin = None;
    let mut zone_s = None;
    if let Some(batch) = session.get(schema::CAPTURE.name) {
        let capture = Columns::new(&schema::CAPTURE, batch);
        let (utc, zone) = (capture.i64("utc_origin_ns")?, capture.i32("utc_offset_s")?);
        let offset = capture.i64("clock_offset_ns")?;
        // The first capture is the session's zero; where it has no UTC start, none can be placed on it.
        origin = at(utc, 0).and_then(|utc| utc.checked_sub(offset.value(0)));
        zone_s = (0..capture.rows()).find_map(|row| at(zone, row));
    }
    let clock = Clock { utc_origin: origin.map(UtcNs), offset_ns: 0, uncertainty_ns: None };
    let boards = boards(session)?;
    let mut by_bus: Vec<&Board> = boards.iter().filter(|b| b.bus.is_some()).collect();
    by_bus.sort_by(|a, b| a.bus.cmp(&b.bus));
    // A MIG instance shares its board's address: then an index of a board names no single device.
    let distinct = by_bus.windows(2).all(|pair| match pair {
        [a, b] => a.bus != b.bus,
        _ => true,
    });
    let numbered = distinct && by_bus.len() == boards.len();
    let (utc, local) = (columns.i64("time_utc_ns")?, columns.i64("time_local_ns")?);
    let (index, uuid, name) =
        (columns.u32("gpu_index")?, columns.text("gpu_uuid")?, columns.text("gpu_name")?);
    let (gi, ci) = (columns.u32("mig_gi")?, columns.u32("mig_ci")?);
    let (mut by_zone, mut apart, mut strange) = (0_u64, 0_u64, 0_u64);
    let (mut times, mut devices) = (Vec::new(), Vec::new());
    for row in 0..columns.rows() {
        let time = if let Some(utc) = at(utc, row) {
            clock.trace_from_utc(UtcNs(utc))
        } else {
            let zone_ns = zone_s.map(|s| i64::from(s).saturating_mul(1_000_000_000));
            let dated = at(local, row).filter(|time| !is_undated(*time));
            let utc = dated.zip(zone_ns).and_then(|(local, zone)| local.checked_sub(zone));
            let time = utc.and_then(|utc| clock.trace_from_utc(UtcNs(utc)));
            by_zone = by_zone.saturating_add(u64::from(time.is_some()));
            time
        };
        apart = apart.saturating_add(u64::from(time.is_none()));
        times.push(time.map(|t| t.0));
        let of_board = !uuid.is_valid(row) || uuid.value(row).starts_with("GPU-");
        let device = if let Some(gi) = at(gi, row).filter(|_| of_board) {
            // About an instance, but under the name of its board. Which device that is only the UUIDs of old
            // drivers tell; the board itself it is not.
            let name = at(ci, row).map(|ci| format!("MIG-{}/{gi}/{ci}", uuid.value(row)));
            boards.iter().find(|b| b.uuid.is_some() && b.uuid == name).map(|b| b.id)
        } else if uuid.is_valid(row) {
            // A UUID that matches nothing is another GPU, whatever its index or name say.
            let by_uuid = boards.iter().find(|b| b.uuid.as_deref() == Some(uuid.value(row)));
            match by_uuid {
                Some(board) => Some(board.id),
                None if boards.iter().any(|b| b.uuid.is_some()) => None,
                None => by_place(row, index, name, &boards, &by_bus, numbered),
            }
        } else {
            by_place(row, index, name, &boards, &by_bus, numbered)
        };
        strange = strange.saturating_add(u64::from(device.is_none()));
        devices.push(device);
    }
    quality.add(
        None,
        quality::SAMPLES_LOCAL_TIME,
        by_zone,
        "sampled values, read in the time zone of the capture",
    );
    quality.add(
        None,
        quality::SAMPLES_NOT_ALIGNED,
        apart,
        "sampled values: no UTC start of the capture, no time, or no time zone",
    );
    let other = if boards.is_empty() { 0 } else { strange };
    quality.add(None, quality::SAMPLES_OTHER_GPU, other, "");
    replace(
        table,
        samples,
        vec![
            ("time_ns", Arc::new(Int64Array::from(times))),
            ("device_id", Arc::new(UInt32Array::from(devices))),
        ],
    )
}

fn by_place(
    row: usize,
    index: &UInt32Array,
    name: &arrow_array::StringArray,
    boards: &[Board],
    by_bus: &[&Board],
    numbered: bool,
) -> Option<u32> {
    let text = name.is_valid(row).then(|| name.value(row));
    let by_index = at(index, row).filter(|_| numbered).and_then(|n| by_bus.get(n as usize));
    // A capture may list fewer GPUs than nvidia-smi counts: an index that lands on another name is wrong.
    let fits = |b: &&&Board| text.is_none() || b.name.is_none() || b.name.as_deref() == text;
    if let Some(board) = by_index.filter(fits) {
        return Some(board.id);
    }
    let mut same = boards.iter().filter(|b| text.is_some() && b.name.as_deref() == text);
    match (same.next(), same.next()) {
        (Some(board), None) => Some(board.id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::table::builder::Builder;
    use crate::test_tables::kernels;
    use arrow_array::{BooleanArray, Int32Array, StringArray};
    use arrow_array::{UInt16Array, UInt64Array, UInt8Array};

    struct Origin {
        host: Option<&'static str>,
        utc: Option<i64>,
        system: Option<i64>,
    }

    fn capture(index: u32, origin: &Origin, uuids: &[Option<&str>], kernel_us: i64) -> Tables {
        let n = uuids.len();
        let row = Builder::new(&schema::CAPTURE)
            .put("capture", UInt32Array::from(vec![index]))
            .put("path", StringArray::from(vec!["x.sqlite"]))
            .put("size_bytes", Int64Array::from(vec![1]))
            .put("host_hash", StringArray::from(vec![origin.host]))
            .put("start_ns", Int64Array::from(vec![5]))
            .put("utc_origin_ns", Int64Array::from(vec![origin.utc]))
            .put("utc_offset_s", Int32Array::from(vec![7200]))
            .put("system_clock_origin_ns", Int64Array::from(vec![origin.system]))
            .put("export_shift_ns", Int64Array::from(vec![0]))
            .put("export_normalized", BooleanArray::from(vec![false]))
            .put("clock_offset_ns", Int64Array::from(vec![0]))
            .put("synthetic", BooleanArray::from(vec![true]))
            .finish(1)
            .unwrap();
        let devices = Builder::new(&schema::DEVICES)
            .put("device_id", (0..).take(n).map(Some).collect::<UInt32Array>())
            .put("capture", UInt32Array::from(vec![index; n]))
            .put("uuid", StringArray::from(uuids.to_vec()))
            .put("name", StringArray::from(vec!["board"; n]))
            // Listed in the opposite order of their addresses.
            .put(
                "bus_location",
                (0..n).map(|d| Some(format!("0000:{:X}:00.0", 0xAF - d))).collect::<StringArray>(),
            )
            .put_names("limits_basis", (0..n).map(|_| Some("capture")))
            .finish(n)
            .unwrap();
        let last = n as u32 - 1;
        let work = kernels(&[(index, 1, last, 1, 7, kernel_us, kernel_us + 10)]);
        Tables::from([("capture", row), ("devices", devices), ("kernels", work)])
    }

    const HERE: Origin = Origin { host: Some("a"), utc: Some(1_000_000_000), system: None };

    fn placed(second: &Origin) -> (i64, Option<i64>) {
        let joined =
            join(vec![capture(0, &HERE, &[None], 0), capture(1, second, &[None], 0)], &Unwatched).unwrap();
        let c = Columns::new(&schema::CAPTURE, &joined["capture"]);
        (c.i64("clock_offset_ns").unwrap().value(1), at(c.i64("clock_uncertainty_ns").unwrap(), 1))
    }

    #[test]
    fn how_captures_are_placed_decides_how_wrong_it_may_be() {
        let later = Some(1_000_500_000);
        assert_eq!(placed(&Origin { host: Some("a"), utc: later, system: None }), (500_000, Some(1_000_000)));
        assert_eq!(
            placed(&Origin { host: Some("b"), utc: later, system: None }),
            (500_000, Some(10_000_000))
        );
        assert_eq!(placed(&Origin { host: None, utc: later, system: Some(1) }), (500_000, Some(10_000_000)));
        assert_eq!(placed(&Origin { host: Some("a"), utc: None, system: None }), (0, None));
        // Another boot: the OS clock says that no time passed, the wall clock says an hour.
        let a = Origin { host: Some("a"), utc: Some(0), system: Some(70_000) };
        let b = Origin { host: Some("a"), utc: Some(3_600_000_000_000), system: Some(70_000) };
        let joined = join(vec![capture(0, &a, &[None], 0), capture(1, &b, &[None], 0)], &Unwatched).unwrap();
        let c = Columns::new(&schema::CAPTURE, &joined["capture"]);
        assert_eq!(c.i64("clock_offset_ns").unwrap().values(), &[0, 3_600_000_000_000]);
        // The OS clock of one host beats UTC, which may have stepped in between.
        let a = Origin { host: Some("a"), utc: Some(1_000), system: Some(70_000) };
        let b = Origin { host: Some("a"), utc: Some(900_000), system: Some(73_000) };
        let joined = join(vec![capture(0, &a, &[None], 0), capture(1, &b, &[None], 0)], &Unwatched).unwrap();
        let c = Columns::new(&schema::CAPTURE, &joined["capture"]);
        assert_eq!(c.i64("clock_offset_ns").unwrap().values(), &[0, 3_000]);
        assert_eq!(at(c.i64("clock_uncertainty_ns").unwrap(), 1), Some(1_000));
    }

    /// Events in the first and in the last millisecond of ten seconds, recorded as given.
    fn apart(recorded: Option<[(i64, i64); 2]>) -> u64 {
        let origin = Origin { host: Some("a"), utc: Some(1_000_000_000), system: None };
        let tables = [(0, 0, 1_000_000), (1, 9_999_000_000, 10_000_000_000)].map(|(index, first, last)| {
            let mut tables = capture(index, &origin, &[Some("GPU-a")], first / 1000);
            let mut columns: Vec<(&str, ArrayRef)> = vec![
                ("start_ns", Arc::new(Int64Array::from(vec![first]))),
                ("end_ns", Arc::new(Int64Array::from(vec![last]))),
            ];
            if let Some((start, end)) = recorded.map(|r| r[index as usize]) {
                columns.push(("recording_start_ns", Arc::new(Int64Array::from(vec![start]))));
                columns.push(("recording_end_ns", Arc::new(Int64Array::from(vec![end]))));
            }
            let row = replace(&schema::CAPTURE, &tables["capture"], columns).unwrap();
            tables.insert("capture", row);
            tables
        });
        let joined = join(tables.into(), &Unwatched).unwrap();
        let Some(quality) = joined.get("quality") else { return 0 };
        let c = Columns::new(&schema::QUALITY, quality);
        let (name, count) = (c.names("name").unwrap(), c.u64("count").unwrap());
        (0..c.rows()).filter(|row| name.get(*row) == Some("captures_apart")).map(|row| count.value(row)).sum()
    }

    #[test]
    fn recordings_at_one_time_belong_together_whatever_they_saw() {
        // A node of which only the begin shows a switch, and a process that worked at the end.
        assert_eq!(apart(Some([(0, 10_000_000_000), (0, 10_000_000_000)])), 0);
        assert_eq!(apart(Some([(0, 2_000_000), (9_000_000_000, 10_000_000_000)])), 1);
        // Without the length of a recording its events say when it was made.
        assert_eq!(apart(None), 1);
    }

    #[test]
    fn times_are_shifted_and_merged_and_one_gpu_is_one_device() {
        // first   |kernel at 900 us, device 1 = GPU-b
        // second       its 100 us is 600 us of the session, its device 0 = GPU-b
        let second = Origin { host: Some("a"), utc: Some(1_000_500_000), system: None };
        let tables = vec![
            capture(0, &HERE, &[Some("GPU-a"), Some("GPU-b")], 900),
            capture(1, &second, &[Some("GPU-b")], 100),
        ];
        let joined = join(tables, &Unwatched).unwrap();
        let k = Columns::new(&schema::KERNELS, &joined["kernels"]);
        assert_eq!(k.i64("start_ns").unwrap().values(), &[600_000, 900_000]);
        assert_eq!(k.u32("capture").unwrap().values(), &[1, 0]);
        assert_eq!(k.u32("device_id").unwrap().values(), &[1, 1]);
        assert_eq!(joined["devices"].num_rows(), 2);
        let c = Columns::new(&schema::CAPTURE, &joined["capture"]);
        assert_eq!(c.i64("start_ns").unwrap().values(), &[5, 500_005]);
    }

    #[test]
    fn a_uuid_is_one_gpu_also_when_containers_have_host_names_of_their_own() {
        let pod = Origin { host: Some("pod"), utc: Some(1_000_500_000), system: None };
        for (second, ids, uncertainty_ns) in
            [(None, vec![0, 1], 10_000_000), (Some("GPU-a"), vec![0], 1_000_000)]
        {
            let tables = vec![capture(0, &HERE, &[Some("GPU-a")], 0), capture(1, &pod, &[second], 0)];
            let joined = join(tables, &Unwatched).unwrap();
            let devices = Columns::new(&schema::DEVICES, &joined["devices"]).u32("device_id").unwrap();
            assert_eq!(devices.values(), &ids[..]);
            let c = Columns::new(&schema::CAPTURE, &joined["capture"]);
            assert_eq!(at(c.i64("clock_uncertainty_ns").unwrap(), 1), Some(uncertainty_ns));
        }
    }

    #[test]
    fn a_shift_beyond_64_bits_is_no_panic() {
        let second = Origin { host: Some("a"), utc: Some(i64::MAX), system: None };
        let far = Origin { host: Some("a"), utc: Some(i64::MIN), system: None };
        for pair in [[&HERE, &second], [&second, &HERE], [&far, &second]] {
            let tables =
                vec![capture(0, pair[0], &[None], 0), capture(1, pair[1], &[None], i64::MAX / 1000 - 11)];
            assert!(join(tables, &Unwatched).is_ok());
        }
    }

    #[test]
    fn nothing_twice_and_cancelled() {
        assert!(matches!(join(vec![], &Unwatched), Err(Error::Argument(_))));
        let twice = vec![capture(0, &HERE, &[None], 0), capture(0, &HERE, &[None], 0)];
        assert!(matches!(join(twice, &Unwatched), Err(Error::Argument(_))));
        assert!(matches!(join(vec![Tables::new()], &Unwatched), Err(Error::Schema { .. })));
        let stopped = join(vec![capture(0, &HERE, &[None], 0)], &StopAfter::new(2));
        assert!(matches!(stopped, Err(Error::Cancelled)));
        assert_eq!(join(vec![capture(3, &HERE, &[None], 0)], &Unwatched).unwrap()["kernels"].num_rows(), 1);
    }

    #[test]
    fn samples_of_an_instance_are_not_those_of_its_board() {
        let n = 4;
        let ids = |v: [Option<u32>; 4]| UInt32Array::from(v.to_vec());
        let samples = Builder::new(&schema::NVML_SAMPLES)
            .put_names("source", vec![Some("f"); n])
            .put_names("format", vec![Some("x"); n])
            // The board; two of its instances by the board's name; one by its own.
            .put(
                "gpu_uuid",
                StringArray::from(vec![Some("GPU-a"), Some("GPU-a"), Some("GPU-a"), Some("MIG-GPU-a/2/0")]),
            )
            .put("mig_gi", ids([None, Some(1), Some(2), Some(2)]))
            .put("mig_ci", ids([None, Some(0), Some(0), Some(0)]))
            .put_names("metric", vec![Some("memory_used_bytes"); n])
            .finish(n)
            .unwrap();
        let uuids = [Some("GPU-a"), Some("MIG-GPU-a/2/0")];
        let session = join(vec![capture(0, &HERE, &uuids, 0)], &Unwatched).unwrap();
        let placed = place_samples(&samples, &session, &mut Quality::default()).unwrap();
        let devices = Columns::new(&schema::NVML_SAMPLES, &placed).u32("device_id").unwrap().clone();
        assert_eq!(devices.iter().collect::<Vec<_>>(), [Some(0), None, Some(1), Some(1)]);
    }

    #[test]
    fn samples_find_their_time_and_gpu() {
        let n = 6;
        let samples = Builder::new(&schema::NVML_SAMPLES)
            .put_names("source", vec![Some("f"); n])
            .put_names("format", vec![Some("x"); n])
            // UTC; local (two hours ahead of UTC); none
            .put(
                "time_utc_ns",
                Int64Array::from(vec![Some(1_000_000_700), None, None, Some(0), Some(0), Some(0)]),
            )
            .put(
                "time_local_ns",
                Int64Array::from(vec![None, Some(7_201_000_000_900), None, None, None, None]),
            )
            .put("gpu_uuid", StringArray::from(vec![Some("GPU-b"), None, Some("GPU-zzz"), None, None, None]))
            .put("gpu_index", UInt32Array::from(vec![Some(9), Some(0), Some(0), Some(1), Some(7), None]))
            .put(
                "gpu_name",
                StringArray::from(vec![None, Some("board"), None, Some("other"), None, Some("board")]),
            )
            .put_names("metric", vec![Some("gpu_utilization_pct"); n])
            .finish(n)
            .unwrap();
        let session = join(vec![capture(0, &HERE, &[Some("GPU-a"), Some("GPU-b")], 0)], &Unwatched).unwrap();
        let mut quality = Quality::default();
        let placed = place_samples(&samples, &session, &mut quality).unwrap();
        let c = Columns::new(&schema::NVML_SAMPLES, &placed);
        let times: Vec<_> = c.i64("time_ns").unwrap().iter().collect();
        assert_eq!(times[..3], [Some(700), Some(900), None]);
        // By UUID; by PCI order (device 1 stands at the lower address); a foreign UUID; an index with another
        // name; an index too far; a name that two GPUs have.
        let devices: Vec<_> = c.u32("device_id").unwrap().iter().collect();
        assert_eq!(devices, [Some(1), Some(1), None, None, None, None]);
        assert_eq!(quality.count(quality::SAMPLES_LOCAL_TIME), 1);
        assert_eq!(quality.count(quality::SAMPLES_NOT_ALIGNED), 1);
        assert_eq!(quality.count(quality::SAMPLES_OTHER_GPU), 4);
        // One GPU of that name: the name is enough.
        let one = join(vec![capture(0, &HERE, &[None], 0)], &Unwatched).unwrap();
        let placed = place_samples(&samples, &one, &mut quality).unwrap();
        assert_eq!(at(Columns::new(&schema::NVML_SAMPLES, &placed).u32("device_id").unwrap(), 5), Some(0));
    }

    /// Records from number `first` on, one per 2 ms, as a capture that began at `zero_us` saw them.
    fn seen(capture: u32, first: u32, n: u32, zero_us: i64) -> RecordBatch {
        let rows = first..first + n;
        let count = n as usize;
        Builder::new(&schema::SWITCH_EVENTS)
            .put("capture", UInt32Array::from(vec![capture; count]))
            .put("device_id", UInt32Array::from(vec![0; count]))
            .put(
                "time_ns",
                rows.clone()
                    // Odd steps, or every pair of records would be as far apart as every other.
                    .map(|r| Some((i64::from(r) * 2000 + i64::from(r) * i64::from(r) % 997 - zero_us) * 1000))
                    .collect::<Int64Array>(),
            )
            .put("tag", rows.clone().map(|r| Some(7 + (r % 2) as u8)).collect::<UInt8Array>())
            .put("hw_context", rows.clone().map(|r| Some(u64::from(r / 2 % 3))).collect::<UInt64Array>())
            .put("sequence", rows.map(|r| Some(r as u16)).collect::<UInt16Array>())
            .finish(count)
            .unwrap()
    }

    #[test]
    fn records_that_both_saw_say_the_offset_better_than_the_wall_clocks() {
        // The second began 1 000 000 us later; its wall clock says 1 000 300.
        let origin = |utc| Origin { host: Some("h"), utc: Some(utc), system: None };
        let mut one = capture(0, &origin(5_000_000_000), &[Some("GPU-1")], 10);
        let mut two = capture(1, &origin(6_000_300_000), &[Some("GPU-1")], 10);
        one.insert("switch_events", seen(0, 0, 2000, 0));
        two.insert("switch_events", seen(1, 600, 2000, 1_000_000));
        let session = join(vec![one.clone(), two.clone()], &Unwatched).unwrap();
        let c = Columns::new(&schema::CAPTURE, &session["capture"]);
        assert_eq!(c.i64("clock_offset_ns").unwrap().values(), &[0, 1_000_000_000]);
        assert_eq!(at(c.i64("clock_uncertainty_ns").unwrap(), 1), Some(SHARED_LEAST_NS));
        // 300 us are within what two wall clock readings may be apart: no contradiction.
        let quality = |session: &Tables| session.get("quality").map_or(0, RecordBatch::num_rows);
        assert_eq!(quality(&session), 0);
        // Five seconds are not.
        let mut late = capture(1, &origin(11_000_000_000), &[Some("GPU-1")], 10);
        late.insert("switch_events", seen(1, 600, 2000, 1_000_000));
        let session = join(vec![one.clone(), late], &Unwatched).unwrap();
        let c = Columns::new(&schema::CAPTURE, &session["capture"]);
        assert_eq!(c.i64("clock_offset_ns").unwrap().values(), &[0, 1_000_000_000]);
        let q = Columns::new(&schema::QUALITY, &session["quality"]);
        assert_eq!(q.names("name").unwrap().get(0), Some("clocks_contradict"));
        // Records of another stretch have numbers and contexts in common, but no time that they agree on.
        let mut elsewhere = capture(1, &origin(6_000_300_000), &[Some("GPU-1")], 10);
        elsewhere.insert("switch_events", seen(1, 65_536 + 100, 300, 1_000_000));
        let session = join(vec![one, elsewhere], &Unwatched).unwrap();
        let c = Columns::new(&schema::CAPTURE, &session["capture"]);
        assert_eq!(at(c.i64("clock_uncertainty_ns").unwrap(), 1), Some(SAME_HOST_NS));
    }

    /// Counters of one GPU every 100 us from number `first` on, as a capture that began at `zero_us` saw them: full for
    /// ten samples, then busy to a degree of its own for one; after `period` samples all begins anew.
    fn sampled(
        capture: u32,
        first: u32,
        n: u32,
        zero_us: i64,
        order: [&'static str; 2],
        period: u32,
    ) -> RecordBatch {
        let rows: Vec<(u32, &str)> =
            (first..first + n).flat_map(|r| order.map(|metric| (r, metric))).collect();
        let value = |r: u32, metric: &str| {
            let r = r % period;
            let busy = if r.is_multiple_of(11) {
                f64::from((r.wrapping_mul(2_654_435_761) >> 8) % 9973)
            } else {
                1e4
            };
            if metric == "SMs Active" {
                busy
            } else {
                busy / 2.0
            }
        };
        Builder::new(&schema::GPU_METRICS)
            .put("capture", UInt32Array::from(vec![capture; rows.len()]))
            .put("device_id", UInt32Array::from(vec![0; rows.len()]))
            .put(
                "time_ns",
                rows.iter().map(|r| Some((i64::from(r.0) * 100 - zero_us) * 1000)).collect::<Int64Array>(),
            )
            .put_names("metric", rows.iter().map(|r| Some(r.1)))
            .put("value", rows.iter().map(|r| Some(value(r.0, r.1))).collect::<arrow_array::Float64Array>())
            .finish(rows.len())
            .unwrap()
    }

    #[test]
    fn counters_that_both_saw_say_it_too() {
        // The second began 7 000 us later; its wall clock says 7 400. It writes its metrics in another order.
        let origin = |utc| Origin { host: Some("h"), utc: Some(utc), system: None };
        let names = ["SMs Active", "SM Issue"];
        let with = |uuid, first, n, period| {
            let mut one = capture(0, &origin(5_000_000_000), &[Some("GPU-1")], 10);
            one.insert("gpu_metrics", sampled(0, 0, 4000, 0, names, period));
            let mut two = capture(1, &origin(5_007_400_000), &[uuid], 10);
            two.insert("gpu_metrics", sampled(1, first, n, 7_000, ["SM Issue", "SMs Active"], period));
            let session = join(vec![one, two], &Unwatched).unwrap();
            let c = Columns::new(&schema::CAPTURE, &session["capture"]);
            (c.i64("clock_offset_ns").unwrap().value(1), at(c.i64("clock_uncertainty_ns").unwrap(), 1))
        };
        let never = u32::MAX;
        assert_eq!(with(Some("GPU-1"), 70, 2000, never), (7_000_000, Some(SHARED_LEAST_NS)));
        // Another GPU's counters, those of another time, of work that repeats itself, or too few of them say nothing.
        let by_wall_clock = (7_400_000, Some(SAME_HOST_NS));
        assert_eq!(with(Some("GPU-2"), 70, 2000, never), by_wall_clock);
        assert_eq!(with(Some("GPU-1"), 900_000, 2000, never), by_wall_clock);
        assert_eq!(with(Some("GPU-1"), 70, 2000, 330), by_wall_clock);
        assert_eq!(with(Some("GPU-1"), 70, 60, never), by_wall_clock);
    }
}
