//! Read the event tables of an export into the declared tables.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{BooleanArray, UInt32Array};

use super::devices::Devices;
use super::layout::{self, Place, Plan, Source};
use super::shape;
use super::staged::{self, cell, integer, text, Slot, Staged};
use super::{pid_of, Owner, Reader};
use crate::base::error::Result;
use crate::base::hardware::DRIVER_HW_CONTEXT;
use crate::base::parallel::ThreadPool;
use crate::table::launch;
use crate::table::quality::{self, Counter};
use crate::table::schema;
use pyanalyze_sqlite::{
    looked_up, replaced, As, Column, Combined, Database, Distinct, Numbers, Owned, Row, Value,
};

/// No clock of a capture says a time further from zero: 146 years.
const FARTHEST_NS: i64 = 1 << 62;
/// Nothing on a GPU takes longer: a year.
const LONGEST_NS: i64 = 366 * 86_400 * 1_000_000_000;

fn plausible(time_ns: i64) -> bool {
    (-FARTHEST_NS..=FARTHEST_NS).contains(&time_ns)
}

/// Whether something can have lasted from the one time to the other.
fn is_interval(start_ns: i64, end_ns: i64) -> bool {
    plausible(start_ns) && plausible(end_ns) && (0..=LONGEST_NS).contains(&end_ns.saturating_sub(start_ns))
}

/// A read event table: staged rows, rows in the file, and the tables they came from.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) staged: Staged,
    pub(super) rows: u64,
    pub(super) tables: Vec<String>,
}

/// What CUDA activity says beside times: contexts and processes that it shows.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Device slot by (pid, context).
    pub(super) contexts: BTreeMap<(Option<u32>, u32), u32>,
    /// Global id, if the row had it, by pid.
    pub(super) traced: BTreeMap<u32, Option<u64>>,
}

/// Oddities of one physical table, counted row by row and reported once.
#[derive(Debug, Default)]
struct Odd {
    sentinel: u64,
    no_pid: u64,
    bad_interval: u64,
}

impl Odd {
    fn pid(&mut self, value: Value<'_>) -> Option<u32> {
        match pid_of(integer(value).ok().flatten()) {
            Owner::Process(pid) => Some(pid),
            Owner::Nobody => {
                self.sentinel += 1;
                None
            }
            Owner::Unknown => {
                self.no_pid += 1;
                None
            }
        }
    }

    /// The process of every distinct cell; rows that belong to none are counted.
    fn owners(&mut self, cells: &Distinct) -> Vec<Option<u32>> {
        let owners: Vec<Owner> = cells.integers().map(pid_of).collect();
        if !owners.iter().all(|owner| matches!(owner, Owner::Process(_))) {
            for code in &cells.codes {
                match owners.get(*code as usize) {
                    Some(Owner::Nobody) => self.sentinel += 1,
                    Some(Owner::Unknown) => self.no_pid += 1,
                    Some(Owner::Process(_)) | None => {}
                }
            }
        }
        let process = |owner| match owner {
            Owner::Process(pid) => Some(pid),
            Owner::Nobody | Owner::Unknown => None,
        };
        owners.into_iter().map(process).collect()
    }

    /// `[start, end]`, if it is an interval.
    fn interval(&mut self, row: &Row<'_>, start: Place, end: Place) -> Option<(i64, i64)> {
        let start = integer(cell(row, start)).ok().flatten();
        let end = integer(cell(row, end)).ok().flatten();
        let interval = start.zip(end).filter(|(start, end)| is_interval(*start, *end));
        self.bad_interval += u64::from(interval.is_none());
        interval
    }

    fn report(self, reader: &mut Reader<'_>, plan: &Plan, table: &str, intervals: Counter) {
        reader.count(quality::SENTINEL_PID, self.sentinel, table);
        reader.count(quality::NO_PIDS, self.no_pid, table);
        let mut times = ["start_ns", "end_ns"].into_iter();
        let untimed = times.find(|column| plan.at(column).is_none()).filter(|_| plan.at("time_ns").is_none());
        let detail = match untimed {
            Some(column) => format!("{table}: {} has no column that is known to hold {column}", plan.table),
            None => table.to_owned(),
        };
        reader.count(intervals, self.bad_interval, &detail);
    }
}

/// Rows of an interval table as columns, by logical name. Tables with millions of rows are read this way:
/// what is to be decided is decided once for each distinct process or device, not once a row.
pub(super) struct Raw {
    pub(super) rows: usize,
    columns: BTreeMap<&'static str, Column>,
    /// Columns in which many rows are alike, if they are held so.
    combined: Option<(Vec<&'static str>, Combined)>,
    /// What is known of its times.
    known: Times,
}

/// What was seen of the times of a table on the way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// Every row is known to start after the one before it.
    pub(super) ascending: bool,
    /// The latest end.
    pub(super) last_ns: Option<i64>,
}

impl Times {
    /// Of rows that are intervals, all of them; `next_ns` are the starts of the rows after each.
    fn of(starts_ns: &[i64], ends_ns: &[i64], next_ns: &[i64]) -> Option<Self> {
        // That a bit is set is seen of many rows at once. Hardly a clock says more than 2^62, hardly anything lasts half a
        // year; where it does, every row is looked at.
        const LONG_NS: i64 = 1 << 54;
        let (mut far, mut long, mut before, mut last_ns) = (0, 0, -1, i64::MIN);
        let mut see = |start: i64, end: i64| {
            far |= (start ^ (start << 1)) | (end ^ (end << 1));
            long |= end.wrapping_sub(start);
            last_ns = last_ns.max(end);
        };
        for ((start, end), next) in starts_ns.iter().zip(ends_ns).zip(next_ns) {
            see(*start, *end);
            before &= start.wrapping_sub(*next);
        }
        // The last row of all has none after it.
        for (start, end) in starts_ns.iter().zip(ends_ns).skip(next_ns.len()) {
            see(*start, *end);
        }
        let mut ascending = before < 0;
        if far < 0 || !(0..LONG_NS).contains(&long) {
            if !starts_ns.iter().zip(ends_ns).all(|(start, end)| is_interval(*start, *end)) {
                return None;
            }
            ascending = starts_ns.iter().zip(next_ns).all(|(start, next)| start < next);
        }
        Some(Self { ascending, last_ns: Some(last_ns).filter(|_| !starts_ns.is_empty()) })
    }
}

impl Raw {
    /// Reads times, the cells of `named`, and `plain` as `table` declares them; what the export does not
    /// have is missing here too.
    pub(super) fn read(
        reader: &Reader<'_>,
        plan: &Plan,
        table: &schema::Table,
        named: &[&'static str],
        plain: &[&'static str],
    ) -> Result<Self> {
        let mut asked: Vec<(&'static str, As)> = vec![("start_ns", As::I64), ("end_ns", As::I64)];
        asked.extend(named.iter().map(|name| (*name, As::Distinct)));
        for name in plain {
            asked.push((name, staged::read_as(table, name)?));
        }
        asked.retain(|(name, _)| plan.at(name).is_some());
        let (alike, asked): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|(name, _)| launch::alike(table).contains(name));
        let physical = plan.columns();
        let in_file = |asked: &[(&'static str, As)]| -> Vec<(&str, As)> {
            asked.iter().filter_map(|(name, kind)| Some((*physical.get(plan.at(name)?)?, *kind))).collect()
        };
        let (database, name) = (reader.database, plan.table.as_str());
        let (rows, columns, combined) =
            database.columns_combined(name, &in_file(&asked), &in_file(&alike), reader.watch)?;
        let named = |asked: Vec<(&'static str, As)>| asked.into_iter().map(|(name, _)| name);
        let mut columns: BTreeMap<_, _> = named(asked).zip(columns).collect();
        if combined.is_none() && !alike.is_empty() {
            let (_, each) = database.columns(name, &in_file(&alike), reader.watch)?;
            columns.extend(named(alike.clone()).zip(each));
        }
        let combined = combined.map(|combined| (named(alike).collect(), combined));
        Ok(Self { rows, columns, combined, known: Times::default() })
    }

    pub(super) fn times(&self, name: &str) -> Option<&Numbers<i64>> {
        match self.columns.get(name) {
            Some(Column::I64(times)) => Some(times),
            _ => None,
        }
    }

    /// Leaves out the rows that are no interval, and says how many those were.
    pub(super) fn keep_intervals(&mut self) -> u64 {
        let rows = self.rows;
        let (Some(start), Some(end)) = (self.times("start_ns"), self.times("end_ns")) else {
            self.keep(&[]);
            return wide(rows);
        };
        if start.nulls.is_none() && end.nulls.is_none() {
            let pool = ThreadPool::new(0);
            let part = pool.rows(rows);
            let parts = (0..rows).step_by(part).zip(start.values.chunks(part).zip(end.values.chunks(part)));
            let each = pool.each(parts.collect(), |(from, (starts, ends))| {
                Times::of(starts, ends, start.values.get(from + 1..).unwrap_or_default())
            });
            if let Some(each) = each.into_iter().collect::<Option<Vec<Times>>>() {
                self.known.ascending = each.iter().all(|times| times.ascending);
                self.known.last_ns = each.iter().filter_map(|times| times.last_ns).max();
                return 0;
            }
        }
        let kept: Vec<u32> = (0_u32..)
            .zip(start.values.iter().zip(&end.values))
            .enumerate()
            .filter(|(at, (_, (from, to)))| {
                is_interval(**from, **to) && start.is_valid(*at) && end.is_valid(*at)
            })
            .map(|(_, (row, _))| row)
            .collect();
        self.keep(&kept);
        wide(rows - kept.len())
    }

    fn keep(&mut self, rows: &[u32]) {
        self.columns.values_mut().for_each(|column| column.keep(rows));
        if let Some((_, combined)) = &mut self.combined {
            combined.keep(rows);
        }
        self.rows = rows.len();
    }

    /// The same of kernels of which nothing else is asked, counted.
    pub(super) fn keep_kernels(&mut self, reader: &mut Reader<'_>, plan: &Plan) {
        let odd = Odd { bad_interval: self.keep_intervals(), ..Odd::default() };
        odd.report(reader, plan, "kernels", quality::BAD_INTERVAL);
    }

    fn put_times(&mut self, staged: &mut Staged) {
        staged.set_rows(self.rows, self.known);
        for name in ["start_ns", "end_ns"] {
            if let Some(column) = self.columns.remove(name) {
                staged.put_column(name, column, false);
            }
        }
    }

    /// The cells of the column `name`; one NULL for all rows if the export does not have it.
    pub(super) fn distinct(&mut self, name: &str) -> Distinct {
        match self.columns.remove(name) {
            Some(Column::Distinct(cells)) => cells,
            _ if self.rows == 0 => Distinct::default(),
            _ => Distinct { codes: vec![0; self.rows], entries: vec![Owned::Null] },
        }
    }

    /// Puts times, process and device.
    fn put_activity(&mut self, staged: &mut Staged, devices: &mut Devices, seen: &mut Seen, odd: &mut Odd) {
        self.put_times(staged);
        let processes = self.distinct("global_pid");
        let ordinals = self.distinct("device");
        let owners = odd.owners(&processes);
        for (owner, global) in owners.iter().zip(processes.integers()) {
            if let Some(owner) = owner {
                seen.traced.entry(*owner).or_insert(global.map(i64::cast_unsigned));
            }
        }
        let numbers: Vec<Option<i64>> = ordinals.integers().collect();
        let owner_of = |process: u32| owners.get(process as usize).copied().flatten();
        // Devices are numbered in the order in which rows name them.
        let mut slots_of: Vec<Vec<(u32, u32)>> = vec![Vec::new(); owners.len()];
        for (_, (process, ordinal)) in first_rows(&processes.codes, &ordinals.codes, owners.len(), |_| true) {
            let number = numbers.get(ordinal as usize).copied().flatten();
            let slot = devices.cuda(owner_of(process), number);
            if let Some(slots) = slots_of.get_mut(process as usize) {
                slots.push((ordinal, slot));
            }
        }
        let slot_of = |process: u32, ordinal: u32| {
            let slots = slots_of.get(process as usize).map_or(&[] as &[_], Vec::as_slice);
            slots.iter().find(|(of, _)| *of == ordinal).map_or(0, |(_, slot)| *slot)
        };
        let mut slots = vec![0; self.rows];
        let pool = ThreadPool::new(0);
        let part = pool.rows(self.rows);
        let parts = slots.chunks_mut(part).zip(processes.codes.chunks(part).zip(ordinals.codes.chunks(part)));
        pool.each(parts.collect(), |(slots, (processes, ordinals))| {
            for (rows, process, ordinal) in stretches(processes, ordinals) {
                let slot = slot_of(process, ordinal);
                // Zeroes stand there already, and memory that nobody writes to costs nothing.
                if slot != 0 {
                    slots.get_mut(rows).unwrap_or_default().fill(slot);
                }
            }
        });
        if let Some(Column::U32(contexts)) = self.columns.get("context_id") {
            let is_there = |row| contexts.is_valid(row);
            let found = first_rows(&processes.codes, &contexts.values, owners.len(), is_there);
            for (row, (process, context)) in found {
                let slot = slots.get(row).copied().unwrap_or(0);
                seen.contexts.entry((owner_of(process), context)).or_insert(slot);
            }
        }
        staged.put_array("pid", replaced(processes.codes, &owners));
        staged.put_devices(slots);
    }

    /// Puts columns as they are; in those of `zero_is_none` 0 means: none.
    fn put_plain(&mut self, staged: &mut Staged, names: &[&'static str], zero_is_none: &[&str]) {
        for name in names {
            if let Some(column) = self.columns.remove(name) {
                staged.put_column(name, column, zero_is_none.contains(name));
            }
        }
        if let Some((names, combined)) = self.combined.take() {
            staged.put_combined(&names, combined);
        }
    }
}

/// Rows that follow each other and have the same two codes, and these.
///
/// Processes alternate, row by row at worst; what one does mostly stays on one device and in one context.
fn stretches<'a>(
    codes: &'a [u32],
    others: &'a [u32],
) -> impl Iterator<Item = (Range<usize>, u32, u32)> + use<'a> {
    // So many rows are compared at once, once as many as `FEW` were the same.
    const BLOCK: usize = 64;
    const FEW: usize = 8;
    let mut from = 0;
    std::iter::from_fn(move || {
        let (code, other) = (*codes.get(from)?, *others.get(from)?);
        let more = |at: usize, most: usize| {
            let next = codes.get(at..).unwrap_or_default().iter().zip(others.get(at..).unwrap_or_default());
            at + next.take(most).take_while(|(a, b)| (**a, **b) == (code, other)).count()
        };
        let mut to = more(from + 1, FEW);
        if to == from + 1 + FEW {
            let same = |of: &[u32], one: u32| of.iter().fold(0, |differ, code| differ | (code ^ one)) == 0;
            while let Some((a, b)) = codes.get(to..to + BLOCK).zip(others.get(to..to + BLOCK)) {
                if !(same(a, code) && same(b, other)) {
                    break;
                }
                to += BLOCK;
            }
            to = more(to, BLOCK);
        }
        let rows = from..to;
        from = to;
        Some((rows, code, other))
    })
}

/// Pairs of a code below `below` and another, each with the first row that has it and `is_there`, in the order of these.
fn first_rows(
    codes: &[u32],
    others: &[u32],
    below: usize,
    is_there: impl Fn(usize) -> bool + Sync,
) -> Vec<(usize, (u32, u32))> {
    let pool = ThreadPool::new(0);
    let part = pool.rows(codes.len());
    let parts = (0..codes.len()).step_by(part).zip(codes.chunks(part).zip(others.chunks(part)));
    let found = pool.each(parts.collect(), |(from, (codes, others))| {
        let mut found: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        let mut last = vec![None; below];
        for (rows, code, other) in stretches(codes, others) {
            let Some(last) = last.get_mut(code as usize).filter(|last| **last != Some(other)) else {
                continue;
            };
            if let Some(row) = rows.map(|row| from + row).find(|row| is_there(*row)) {
                *last = Some(other);
                found.entry((code, other)).or_insert(row);
            }
        }
        found
    });
    let mut first: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for (pair, row) in found.into_iter().flatten() {
        first.entry(pair).or_insert(row);
    }
    let mut rows: Vec<_> = first.into_iter().map(|(pair, row)| (row, pair)).collect();
    rows.sort_unstable();
    rows
}

pub(super) fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Columns that are copied as they are, and those in which 0 means: none.
struct Plain {
    columns: Vec<(&'static str, Slot, Place, bool)>,
}

impl Plain {
    fn new(staged: &mut Staged, plan: &Plan, names: &[&'static str], zero_is_none: &[&str]) -> Result<Self> {
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            columns.push((*name, staged.column(name)?, plan.at(name), zero_is_none.contains(name)));
        }
        Ok(Self { columns })
    }

    fn copy(&self, staged: &mut Staged, row: &Row<'_>) {
        for (_, slot, place, zero_is_none) in &self.columns {
            match cell(row, *place) {
                Value::Int(0) if *zero_is_none => staged.put(*slot, None),
                value => staged.put_cell(*slot, value),
            }
        }
    }
}

/// Interval tables of CUDA activity share their first columns.
struct Activity {
    pid: Slot,
    device: Slot,
    start: Slot,
    end: Slot,
    places: [Place; 5],
}

impl Activity {
    fn new(staged: &mut Staged) -> Result<Self> {
        Ok(Self {
            pid: staged.column("pid")?,
            device: staged.column("device_id")?,
            start: staged.column("start_ns")?,
            end: staged.column("end_ns")?,
            places: [None; 5],
        })
    }

    fn of(mut self, plan: &Plan) -> Self {
        self.places = ["start_ns", "end_ns", "global_pid", "device", "context_id"].map(|name| plan.at(name));
        self
    }

    /// For rows that belong to no context, whatever they say.
    fn without_context(&self) -> Self {
        let [start, end, global, device, _] = self.places;
        Self { places: [start, end, global, device, None], ..*self }
    }

    /// Puts the shared columns of a row; `false` if the row is to be left out.
    fn put(
        &self,
        staged: &mut Staged,
        row: &Row<'_>,
        devices: &mut Devices,
        seen: &mut Seen,
        odd: &mut Odd,
    ) -> bool {
        let [start, end, global, device, context] = self.places;
        let Some((start, end)) = odd.interval(row, start, end) else { return false };
        let global = cell(row, global);
        let pid = odd.pid(global);
        let slot = devices.cuda(pid, integer(cell(row, device)).ok().flatten());
        if let Some(pid) = pid {
            let global = integer(global).ok().flatten().map(i64::cast_unsigned);
            seen.traced.entry(pid).or_insert(global);
        }
        let context = integer(cell(row, context)).ok().flatten().and_then(|c| u32::try_from(c).ok());
        if let Some(context) = context {
            seen.contexts.entry((pid, context)).or_insert(slot);
        }
        staged.put(self.pid, pid.map(i64::from));
        staged.put(self.device, Some(i64::from(slot)));
        staged.put(self.start, Some(start));
        staged.put(self.end, Some(end));
        true
    }
}

/// Kernels.
pub(super) fn kernels(
    reader: &mut Reader<'_>,
    devices: &mut Devices,
    seen: &mut Seen,
) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::KERNEL)? else { return Ok(None) };
    let columns = [
        "context_id",
        "green_context_id",
        "stream_id",
        "correlation_id",
        "launch_type",
        "grid_x",
        "grid_y",
        "grid_z",
        "block_x",
        "block_y",
        "block_z",
        "registers_per_thread",
        "static_shared_bytes",
        "dynamic_shared_bytes",
        "shared_executed_bytes",
        "shared_requested_percent",
        "cache_preference",
        "local_per_thread_bytes",
        "graph_node_id",
        "cluster_x",
        "cluster_y",
        "cluster_z",
        "max_active_clusters",
        "name",
        "short_name",
    ];
    let zero_is_none = ["green_context_id", "graph_node_id"];
    let mut raw = Raw::read(reader, &plan, &schema::KERNELS, &["global_pid", "device"], &columns)?;
    let (rows, mut odd) = (raw.rows, Odd { bad_interval: raw.keep_intervals(), ..Odd::default() });
    let mut staged = Staged::new(&schema::KERNELS);
    raw.put_activity(&mut staged, devices, seen, &mut odd);
    raw.put_plain(&mut staged, &columns, &zero_is_none);
    odd.report(reader, &plan, "kernels", quality::BAD_INTERVAL);
    Ok(Some(Found { staged, rows: wide(rows), tables: vec![plan.table] }))
}

/// Graphs traced as a whole.
pub(super) fn graph_launches(
    reader: &mut Reader<'_>,
    devices: &mut Devices,
    seen: &mut Seen,
) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::GRAPH)? else { return Ok(None) };
    let columns = ["context_id", "stream_id", "correlation_id", "graph_id", "graph_exec_id"];
    let mut raw = Raw::read(reader, &plan, &schema::GRAPH_LAUNCHES, &["global_pid", "device"], &columns)?;
    let (rows, mut odd) = (raw.rows, Odd { bad_interval: raw.keep_intervals(), ..Odd::default() });
    let mut staged = Staged::new(&schema::GRAPH_LAUNCHES);
    raw.put_activity(&mut staged, devices, seen, &mut odd);
    raw.put_plain(&mut staged, &columns, &[]);
    odd.report(reader, &plan, "graph_launches", quality::GRAPH_INCOMPLETE);
    reader.count(quality::GRAPHS_TRACED_WHOLE, wide(raw.rows), "");
    Ok(Some(Found { staged, rows: wide(rows), tables: vec![plan.table] }))
}

/// What `nsys stats` calls the copy kinds of CUPTI, for exports without the table that says so.
const COPY_KINDS: [&str; 14] = [
    "Unknown",
    "Host-to-Device",
    "Device-to-Host",
    "Host-to-Array",
    "Array-to-Host",
    "Array-to-Array",
    "Array-to-Device",
    "Device-to-Array",
    "Device-to-Device",
    "Host-to-Host",
    "Peer-to-Peer",
    "Unified Host-to-Device",
    "Unified Device-to-Host",
    "Unified Device-to-Device",
];

/// CUPTI's copy kinds of unified memory. No stream and no context moves it: CUPTI calls the stream id of such a record
/// invalid and gives it no context, and nsys writes 0 for both.
const MIGRATIONS: std::ops::RangeInclusive<i64> = 11..=13;

/// More than any memory that a copy could fill.
const MOST_BYTES: i64 = 1 << 48;

/// Copies and sets.
pub(super) fn memops(
    reader: &mut Reader<'_>,
    devices: &mut Devices,
    seen: &mut Seen,
) -> Result<Option<Found>> {
    let copies = layout::find(reader.database, &layout::MEMCPY)?;
    let sets = layout::find(reader.database, &layout::MEMSET)?;
    if copies.is_none() && sets.is_none() {
        return Ok(None);
    }
    let kinds = reader.labels(&layout::MEMCPY_OPERATION)?;
    let mut staged = Staged::new(&schema::MEMOPS);
    let mut activity = Activity::new(&mut staged)?;
    let operation = staged.column("operation")?;
    let bytes = staged.column("bytes")?;
    let copy_kind = staged.column("copy_kind")?;
    let cause = staged.column("migration_cause")?;
    let place = [staged.column("context_id")?, staged.column("stream_id")?];
    let columns = ["correlation_id", "source_kind", "destination_kind", "graph_node_id"];
    let mut slots = Vec::with_capacity(columns.len());
    for name in columns {
        slots.push((name, staged.column(name)?));
    }
    let mut labels: HashMap<i64, String> = HashMap::new();
    let (mut rows, mut tables) = (0, Vec::new());
    for (plan, is_copy) in [(copies, true), (sets, false)] {
        let Some(plan) = plan else { continue };
        activity = activity.of(&plan);
        let nowhere = activity.without_context();
        let places = [plan.at("context_id"), plan.at("stream_id")];
        let plain = Plain {
            columns: slots.iter().map(|(n, s)| (*n, *s, plan.at(n), *n == "graph_node_id")).collect(),
        };
        let (kind_at, bytes_at, cause_at) =
            (plan.at("copy_kind"), plan.at("bytes"), plan.at("migration_cause"));
        let mut odd = Odd::default();
        rows += reader.scan(&plan, |row| {
            let kind = is_copy.then(|| {
                integer(cell(row, kind_at)).ok().flatten().filter(|k| (0..256).contains(k)).unwrap_or(0)
            });
            let migrated = kind.is_some_and(|kind| MIGRATIONS.contains(&kind));
            let activity = if migrated { &nowhere } else { &activity };
            if !activity.put(&mut staged, row, devices, seen, &mut odd) {
                return Ok(());
            }
            for (slot, at) in place.iter().zip(places) {
                match cell(row, at) {
                    _ if migrated => staged.put(*slot, None),
                    value => staged.put_cell(*slot, value),
                }
            }
            plain.copy(&mut staged, row);
            let moved = integer(cell(row, bytes_at)).ok().flatten().filter(|n| (0..=MOST_BYTES).contains(n));
            if moved.is_none() {
                staged.refuse("bytes");
            }
            staged.put(bytes, Some(moved.unwrap_or(0)));
            if let Some(kind) = kind {
                let label = labels.entry(kind).or_insert_with(|| {
                    let known = usize::try_from(kind).ok().and_then(|k| COPY_KINDS.get(k).copied());
                    let stated = kinds.get(&kind).map(String::as_str).filter(|label| shape::is_label(label));
                    let label = stated.or(known).unwrap_or("Unknown");
                    format!("[CUDA memcpy {label}]")
                });
                staged.put_name(operation, Value::Text(label.as_bytes()));
                staged.put(copy_kind, Some(kind));
                // Older exports write 0 for every copy: no cause, unless it is unified memory.
                match cell(row, cause_at) {
                    Value::Int(0) if !migrated => staged.put(cause, None),
                    value => staged.put_cell(cause, value),
                }
            } else {
                staged.put_name(operation, Value::Text(b"[CUDA memset]"));
                staged.put(copy_kind, None);
                staged.put(cause, None);
            }
            staged.end_row();
            Ok(())
        })?;
        odd.report(reader, &plan, "memops", quality::BAD_INTERVAL);
        tables.push(plan.table);
    }
    Ok(Some(Found { staged, rows, tables }))
}

/// CUDA API calls.
pub(super) fn api_calls(reader: &mut Reader<'_>, seen: &mut Seen) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::API)? else { return Ok(None) };
    let columns = ["name", "correlation_id", "return_value"];
    let mut raw = Raw::read(reader, &plan, &schema::API_CALLS, &["global_tid"], &columns)?;
    let (rows, mut odd) = (raw.rows, Odd { bad_interval: raw.keep_intervals(), ..Odd::default() });
    let mut staged = Staged::new(&schema::API_CALLS);
    raw.put_times(&mut staged);
    let threads = raw.distinct("global_tid");
    let owners = odd.owners(&threads);
    for (owner, global) in owners.iter().zip(threads.integers()) {
        if let Some(owner) = owner {
            seen.traced.entry(*owner).or_insert(global.map(|g| g.cast_unsigned() & !0xFF_FFFF));
        }
    }
    let numbers: Vec<Option<u32>> = owners
        .iter()
        .zip(threads.integers())
        .map(|(owner, global)| owner.and(global).and_then(|g| u32::try_from(g & 0xFF_FFFF).ok()))
        .collect();
    // As few as there are keys.
    if owners.len() <= usize::from(u16::MAX) + 1 {
        let keys = threads.codes.iter().map(|code| *code as u16).collect();
        let (pids, tids) = (UInt32Array::from(owners), UInt32Array::from(numbers));
        staged.put_alike(keys, pids.len(), vec![("pid", Arc::new(pids)), ("tid", Arc::new(tids))]);
    } else {
        staged.put_array("pid", looked_up(&threads.codes, &owners));
        staged.put_array("tid", replaced(threads.codes, &numbers));
    }
    raw.put_plain(&mut staged, &columns, &[]);
    odd.report(reader, &plan, "api_calls", quality::BAD_INTERVAL);
    Ok(Some(Found { staged, rows: wide(rows), tables: vec![plan.table] }))
}

/// What the profiler, loaders and compilers did in threads of the program.
pub(super) fn profiler_overhead(reader: &mut Reader<'_>) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::OVERHEAD)? else { return Ok(None) };
    let labels = reader.labels(&layout::OVERHEAD_KIND)?;
    let mut staged = Staged::new(&schema::PROFILER_OVERHEAD);
    let thread = (staged.column("pid")?, staged.column("tid")?);
    let (start, end, kind) = (staged.column("start_ns")?, staged.column("end_ns")?, staged.column("kind")?);
    let (start_at, end_at) = (plan.at("start_ns"), plan.at("end_ns"));
    let (global_at, kind_at) = (plan.at("global_tid"), plan.at("kind"));
    let mut odd = Odd::default();
    let rows = reader.scan(&plan, |row| {
        let Some((from, to)) = odd.interval(row, start_at, end_at) else { return Ok(()) };
        put_thread(&mut staged, thread, cell(row, global_at), &mut odd);
        staged.put(start, Some(from));
        staged.put(end, Some(to));
        let label = integer(cell(row, kind_at)).ok().flatten().and_then(|id| labels.get(&id));
        staged.put_name(kind, label.map_or(Value::Null, |label| Value::Text(label.as_bytes())));
        staged.end_row();
        Ok(())
    })?;
    odd.report(reader, &plan, "profiler_overhead", quality::BAD_INTERVAL);
    Ok(Some(Found { staged, rows, tables: vec![plan.table] }))
}

/// When threads were on a CPU: from an event that schedules one in to the next that schedules it out.
pub(super) fn thread_runs(reader: &mut Reader<'_>) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::SCHEDULE)? else { return Ok(None) };
    let (time_at, cpu_at) = (plan.at("time_ns"), plan.at("cpu"));
    let (in_at, global_at) = (plan.at("is_in"), plan.at("global_tid"));
    let mut events: Vec<(i64, i64, bool, Option<i64>)> = Vec::new();
    let mut odd = Odd::default();
    let rows = reader.scan(&plan, |row| {
        let number = |place| integer(cell(row, place)).ok().flatten();
        match (number(global_at), number(time_at), number(in_at)) {
            (Some(global), Some(at), Some(on)) => events.push((global, at, on != 0, number(cpu_at))),
            _ => odd.bad_interval += 1,
        }
        Ok(())
    })?;
    // Of a moment the event that ends a run comes first: between two CPUs a thread is scheduled out, then in.
    events.sort_unstable();
    let mut staged = Staged::new(&schema::THREAD_RUNS);
    let thread = (staged.column("pid")?, staged.column("tid")?);
    let (start, end, cpu) = (staged.column("start_ns")?, staged.column("end_ns")?, staged.column("cpu")?);
    for pair in events.windows(2) {
        let [(global, from, true, on), (same, to, false, _)] = pair else { continue };
        if global != same {
            continue;
        }
        put_thread(&mut staged, thread, Value::Int(*global), &mut odd);
        staged.put(start, Some(*from));
        staged.put(end, Some(*to));
        staged.put(cpu, *on);
        staged.end_row();
    }
    odd.report(reader, &plan, "thread_runs", quality::BAD_INTERVAL);
    Ok(Some(Found { staged, rows, tables: vec![plan.table] }))
}

/// Calls that record CUDA events, wait for them, or synchronise otherwise.
pub(super) fn event_calls(reader: &mut Reader<'_>) -> Result<Option<Found>> {
    // Process, ids, and of a record whether the device was seen to come to it.
    type EventCall = (Option<u32>, [Option<i64>; 5], Option<bool>);
    // Ids of no stream and no event.
    const NONE: i64 = 0xFFFF_FFFF;
    let ids = ["correlation_id", "context_id", "stream_id", "event_id", "event_sync_id"];
    let mut calls: Vec<EventCall> = Vec::new();
    let (mut rows, mut tables, mut odd) = (0, Vec::new(), Odd::default());
    for (source, records) in [(&layout::CUDA_EVENT, true), (&layout::SYNCHRONIZATION, false)] {
        let Some(plan) = layout::find(reader.database, source)? else { continue };
        let places = ids.map(|name| plan.at(name));
        let (global_at, time_at) = (plan.at("global_pid"), plan.at("time_ns"));
        rows += reader.scan(&plan, |row| {
            let number = |place| integer(cell(row, place)).ok().flatten();
            let call = places.map(|place| number(place).map(|id| id & NONE).filter(|id| *id != NONE));
            let reached = number(time_at).is_some_and(|time| time > 0);
            calls.push((odd.pid(cell(row, global_at)), call, records.then_some(reached)));
            Ok(())
        })?;
        tables.push(plan.table);
    }
    calls.sort_unstable();
    let mut staged = Staged::new(&schema::EVENT_CALLS);
    let (pid, kind) = (staged.column("pid")?, staged.column("kind")?);
    let slots = ids.iter().map(|name| staged.column(name)).collect::<Result<Vec<Slot>>>()?;
    for (process, call, traced) in &calls {
        staged.put(pid, process.map(i64::from));
        for (slot, id) in slots.iter().zip(call) {
            staged.put(*slot, *id);
        }
        let word = if traced.is_some() { "record" } else { "synchronization" };
        staged.put_name(kind, Value::Text(word.as_bytes()));
        staged.end_row();
    }
    let traced: BooleanArray = calls.iter().map(|(_, _, traced)| *traced).collect();
    staged.put_array("completion_traced", traced);
    reader.count(quality::SENTINEL_PID, odd.sentinel, "event_calls");
    reader.count(quality::NO_PIDS, odd.no_pid, "event_calls");
    Ok((!tables.is_empty()).then_some(Found { staged, rows, tables }))
}

/// NVTX ranges and marks, and the names of domains.
pub(super) fn nvtx(reader: &mut Reader<'_>) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::NVTX)? else { return Ok(None) };
    let mut staged = Staged::new(&schema::NVTX);
    let (pid, tid) = (staged.column("pid")?, staged.column("tid")?);
    let (start, end) = (staged.column("start_ns")?, staged.column("end_ns")?);
    let (kind, text) = (staged.column("kind")?, staged.column("text")?);
    let plain = Plain::new(&mut staged, &plan, &["domain_id"], &[])?;
    let (start_at, end_at, kind_at) = (plan.at("start_ns"), plan.at("end_ns"), plan.at("kind"));
    let (global_at, text_at, text_id_at) = (plan.at("global_tid"), plan.at("text"), plan.at("text_id"));
    let mut odd = Odd::default();
    let rows = reader.scan(&plan, |row| {
        // 70 and 71 are the same ranges, imported from NVTXT files; the rest names things.
        let name: &[u8] = match integer(cell(row, kind_at)) {
            Ok(Some(34 | 65)) => b"mark",
            Ok(Some(59 | 70)) => b"push-pop",
            Ok(Some(60 | 71)) => b"start-end",
            Ok(Some(75)) => schema::DOMAIN.as_bytes(),
            _ => return Ok(()),
        };
        let from = integer(cell(row, start_at)).ok().flatten();
        let to = integer(cell(row, end_at)).ok().flatten();
        let Some(from) = from.filter(|from| to.is_none_or(|to| to >= *from)) else {
            odd.bad_interval += 1;
            return Ok(());
        };
        put_thread(&mut staged, (pid, tid), cell(row, global_at), &mut odd);
        staged.put(start, Some(from));
        staged.put(end, to.filter(|_| name != b"mark" && name != schema::DOMAIN.as_bytes()));
        staged.put_name(kind, Value::Text(name));
        // Registered strings stand in the strings of the export, others in the row.
        match cell(row, text_at) {
            Value::Null => staged.put_name(text, cell(row, text_id_at)),
            value => staged.put_name(text, value),
        }
        plain.copy(&mut staged, row);
        staged.end_row();
        Ok(())
    })?;
    odd.report(reader, &plan, "nvtx", quality::BAD_INTERVAL);
    Ok(Some(Found { staged, rows, tables: vec![plan.table] }))
}

/// Tables of calls of libraries that host threads spend time in, by the `kind` of their rows.
pub(super) const HOST_CALLS: [(&str, &Source); 8] = [
    (schema::MPI_CALL, &layout::MPI_COLLECTIVE),
    (schema::MPI_CALL, &layout::MPI_P2P),
    (schema::MPI_CALL, &layout::MPI_START_WAIT),
    (schema::MPI_CALL, &layout::MPI_OTHER),
    (schema::VIDEO_CALL, &layout::VIDEO_DECODER),
    (schema::VIDEO_CALL, &layout::VIDEO_ENCODER),
    (schema::VIDEO_CALL, &layout::VIDEO_JPEG),
    (schema::OS_CALL, &layout::OS_CALL),
];

/// Calls of MPI, of video codecs and of the C library.
pub(super) fn host_calls(reader: &mut Reader<'_>) -> Result<Option<Found>> {
    let mut staged = Staged::new(&schema::HOST_CALLS);
    let (pid, tid) = (staged.column("pid")?, staged.column("tid")?);
    let (start, end) = (staged.column("start_ns")?, staged.column("end_ns")?);
    let (kind, name) = (staged.column("kind")?, staged.column("name")?);
    let (mut rows, mut tables) = (0, Vec::new());
    for (word, source) in HOST_CALLS {
        let Some(plan) = layout::find(reader.database, source)? else { continue };
        let mut raw = Raw::read(reader, &plan, &schema::HOST_CALLS, &["global_tid"], &["name"])?;
        rows += wide(raw.rows);
        let mut odd = Odd { bad_interval: raw.keep_intervals(), ..Odd::default() };
        let (threads, names) = (raw.distinct("global_tid"), raw.distinct("name"));
        let owners = odd.owners(&threads);
        let numbers: Vec<Option<i64>> = threads.integers().map(|id| id.map(|id| id & 0xFF_FFFF)).collect();
        let (Some(starts), Some(ends)) = (raw.times("start_ns"), raw.times("end_ns")) else { continue };
        let times = starts.values.iter().zip(&ends.values);
        for ((from, to), (thread, named)) in times.zip(threads.codes.iter().zip(&names.codes)) {
            // Messages of the tracer itself are of no process, and take no time.
            let Some(owner) = owners.get(*thread as usize).copied().flatten().filter(|_| from < to) else {
                continue;
            };
            staged.put(pid, Some(i64::from(owner)));
            staged.put(tid, numbers.get(*thread as usize).copied().flatten());
            staged.put(start, Some(*from));
            staged.put(end, Some(*to));
            staged.put_name(kind, Value::Text(word.as_bytes()));
            staged.put_name(name, names.entries.get(*named as usize).map_or(Value::Null, Owned::value));
            staged.end_row();
        }
        odd.report(reader, &plan, "host_calls", quality::BAD_INTERVAL);
        tables.push(plan.table);
    }
    Ok((!tables.is_empty()).then_some(Found { staged, rows, tables }))
}

/// Samples of what threads ran on CPUs, each with the function that it was in: the innermost of its call chain.
pub(super) fn cpu_samples(reader: &mut Reader<'_>) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::CPU_SAMPLE)? else { return Ok(None) };
    let (frames, mut tables) = innermost_frames(reader)?;
    let needed = frames.values().flat_map(|frame| [frame.function, frame.module]).flatten().collect();
    let strings = reader.strings(&needed)?;
    let named = |id: Option<i64>| strings.get(&id?).map(String::as_str).filter(|text| !text.is_empty());
    let mut staged = Staged::new(&schema::CPU_SAMPLES);
    let thread = (staged.column("pid")?, staged.column("tid")?);
    let time = staged.column("time_ns")?;
    let (function, module) = (staged.column("function")?, staged.column("module")?);
    let (id_at, time_at, global_at) = (plan.at("id"), plan.at("time_ns"), plan.at("global_tid"));
    let mut odd = Odd::default();
    let rows = reader.scan(&plan, |row| {
        let number = |place| integer(cell(row, place)).ok().flatten();
        let Some(at) = number(time_at) else {
            odd.bad_interval += 1;
            return Ok(());
        };
        let frame = number(id_at).and_then(|id| frames.get(&id)).copied().unwrap_or_default();
        put_thread(&mut staged, thread, cell(row, global_at), &mut odd);
        staged.put(time, Some(at));
        // Folders say where somebody keeps files.
        let file = named(frame.module).and_then(|path| path.rsplit('/').next());
        for (slot, text) in [(function, named(frame.function)), (module, file)] {
            staged.put_name(slot, text.map_or(Value::Null, |text| Value::Text(text.as_bytes())));
        }
        staged.end_row();
        Ok(())
    })?;
    odd.report(reader, &plan, "cpu_samples", quality::BAD_INTERVAL);
    tables.insert(0, plan.table);
    Ok(Some(Found { staged, rows, tables }))
}

/// The function that a thread was in, and the file that has its code, as ids of strings.
#[derive(Debug, Clone, Copy, Default)]
struct Frame {
    /// `None`: the file has no symbol for it.
    function: Option<i64>,
    module: Option<i64>,
}

/// The innermost frame of each CPU sample by its id, and the table that they stand in.
fn innermost_frames(reader: &Reader<'_>) -> Result<(HashMap<i64, Frame>, Vec<String>)> {
    let mut frames = HashMap::new();
    let Some(plan) = layout::find(reader.database, &layout::CALL_CHAIN)? else {
        return Ok((frames, Vec::new()));
    };
    let (id_at, depth_at) = (plan.at("id"), plan.at("depth"));
    let (function_at, module_at) = (plan.at("function"), plan.at("module"));
    let unresolved_at = plan.at("unresolved");
    reader.scan(&plan, |row| {
        let number = |place| integer(cell(row, place)).ok().flatten();
        if let (Some(id), Some(0)) = (number(id_at), number(depth_at)) {
            // What stands in the place of a name then is an address.
            let resolved = number(unresolved_at).unwrap_or(0) == 0;
            let function = number(function_at).filter(|_| resolved);
            frames.insert(id, Frame { function, module: number(module_at) });
        }
        Ok(())
    })?;
    Ok((frames, vec![plan.table]))
}

/// Memory that processes allocated and freed.
pub(super) fn allocations(reader: &mut Reader<'_>, devices: &mut Devices) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::MEMORY_USAGE)? else { return Ok(None) };
    let mut staged = Staged::new(&schema::ALLOCATIONS);
    let (pid, device, time) = (staged.column("pid")?, staged.column("device_id")?, staged.column("time_ns")?);
    let (operation, bytes) = (staged.column("operation")?, staged.column("bytes")?);
    let plain = Plain::new(&mut staged, &plan, &["memory_kind"], &[])?;
    let at = |name| plan.at(name);
    let (time_at, global_at, device_at) = (at("time_ns"), at("global_pid"), at("device"));
    let (bytes_at, operation_at) = (at("bytes"), at("operation"));
    let mut odd = Odd::default();
    let rows = reader.scan(&plan, |row| {
        let number = |place| integer(cell(row, place)).ok().flatten();
        let name: &[u8] = match number(operation_at) {
            Some(0) => b"allocated",
            Some(1) => b"freed",
            _ => return Ok(()),
        };
        let Some((when, size)) = number(time_at).zip(number(bytes_at).filter(|size| *size >= 0)) else {
            odd.bad_interval += 1;
            return Ok(());
        };
        let owner = odd.pid(cell(row, global_at));
        staged.put(pid, owner.map(i64::from));
        staged.put(device, Some(i64::from(devices.cuda(owner, number(device_at)))));
        staged.put(time, Some(when));
        staged.put_name(operation, Value::Text(name));
        staged.put(bytes, Some(size));
        plain.copy(&mut staged, row);
        staged.end_row();
        Ok(())
    })?;
    odd.report(reader, &plan, "allocations", quality::BAD_INTERVAL);
    Ok(Some(Found { staged, rows, tables: vec![plan.table] }))
}

fn put_thread(
    staged: &mut Staged,
    (pid, tid): (Slot, Slot),
    global: Value<'_>,
    odd: &mut Odd,
) -> Option<u32> {
    let owner = odd.pid(global);
    let thread = integer(global).ok().flatten().map(|g| g & 0xFF_FFFF);
    staged.put(pid, owner.map(i64::from));
    staged.put(tid, owner.and(thread));
    owner
}

/// Tags by the names that nsys gives them; their place here is our own number.
const TAGS: [&str; 12] = [
    "SOF",
    "REQ_BY_HOST",
    "FE_ACK",
    "FE_ACK_WFI",
    "FE_ACK_GFXP",
    "FE_ACK_CTAP",
    "FE_ACK_CILP",
    "SAVE_END",
    "RESTORE_START",
    "CONTEXT_START",
    "INVALID_TIMESTAMP",
    "ENGINE_RESET",
];
const UNKNOWN_TAG: i64 = 255;

/// Context-switch records.
pub(super) fn switch_events(reader: &mut Reader<'_>, devices: &mut Devices) -> Result<Option<Found>> {
    let Some(plan) = layout::find(reader.database, &layout::SWITCH)? else { return Ok(None) };
    let mut staged = Staged::new(&schema::SWITCH_EVENTS);
    let (device, time, tag) = (staged.column("device_id")?, staged.column("time_ns")?, staged.column("tag")?);
    let pid = staged.column("pid")?;
    let (context, sequence) = (staged.column("hw_context")?, staged.column("sequence")?);
    // Numbers of tags differ between exports and driver; the table of names, if filled, decides.
    let named: HashMap<i64, i64> = reader
        .labels(&layout::SWITCH_TAG)?
        .into_iter()
        .map(|(id, name)| {
            let place = TAGS.iter().position(|t| t.eq_ignore_ascii_case(name.trim()));
            (id, place.and_then(|p| i64::try_from(p).ok()).unwrap_or(UNKNOWN_TAG))
        })
        .collect();
    let at = |name| plan.at(name);
    let (time_at, tag_at, sequence_at) = (at("time_ns"), at("tag"), at("sequence"));
    let (context_at, global_at, gpu_at) = (at("hw_context"), at("global_pid"), at("gpu_id"));
    let (mut no_time, mut unknown_tag, mut unprivileged) = (0, 0, 0);
    let (mut kernel_client, mut sentinel, mut no_pid, mut unlisted) = (0, 0, 0, 0);
    let rows = reader.scan(&plan, |row| {
        let number = |place| integer(cell(row, place)).ok().flatten();
        let Some(when) = number(time_at).filter(|when| plausible(*when)) else {
            no_time += 1;
            return Ok(());
        };
        let raw_tag = number(tag_at);
        let code = match raw_tag {
            Some(raw) if named.is_empty() => {
                if (0..=11).contains(&raw) {
                    raw
                } else {
                    UNKNOWN_TAG
                }
            }
            Some(raw) => named.get(&raw).copied().unwrap_or(UNKNOWN_TAG),
            None => UNKNOWN_TAG,
        };
        unknown_tag += u64::from(code == UNKNOWN_TAG);
        let hw_context = number(context_at).unwrap_or(0).cast_unsigned();
        let global = number(global_at);
        let bits = global.unwrap_or(0).cast_unsigned();
        let is_kernel = hw_context & DRIVER_HW_CONTEXT == DRIVER_HW_CONTEXT
            || bits & DRIVER_HW_CONTEXT == DRIVER_HW_CONTEXT
            || (bits >> 24) & 0xFF_FFFF == 0xFF_FFFF;
        let hw_context = if is_kernel { DRIVER_HW_CONTEXT } else { hw_context };
        let owner = match pid_of(global) {
            _ if is_kernel => {
                kernel_client += 1;
                None
            }
            Owner::Process(owner) => Some(owner),
            // The driver blanks pid and context of other users' records.
            Owner::Nobody if hw_context == 0 => {
                unprivileged += 1;
                None
            }
            Owner::Nobody => {
                sentinel += 1;
                None
            }
            Owner::Unknown => {
                no_pid += 1;
                None
            }
        };
        let (slot, listed) = devices.gpu(number(gpu_at));
        unlisted += u64::from(!listed);
        staged.put(device, Some(i64::from(slot)));
        staged.put(time, Some(when));
        staged.put(tag, Some(code));
        staged.put(pid, owner.map(i64::from));
        staged.put(context, Some(hw_context.cast_signed()));
        // 16 bits in the driver; only its low bits count for finding gaps.
        staged.put(sequence, Some(number(sequence_at).unwrap_or(0) & 0xFFFF));
        staged.end_row();
        Ok(())
    })?;
    reader.count(quality::BAD_INTERVAL, no_time, "switch_events without a time");
    reader.count(quality::SWITCH_UNKNOWN_TAG, unknown_tag, "");
    reader.count(quality::SWITCH_UNPRIVILEGED, unprivileged, "");
    reader.count(quality::SWITCH_KERNEL_CLIENT, kernel_client, "");
    reader.count(quality::SENTINEL_PID, sentinel, "switch_events");
    reader.count(quality::NO_PIDS, no_pid, "switch_events");
    reader.count(quality::SWITCH_DEVICE_UNKNOWN, unlisted, "");
    Ok(Some(Found { staged, rows, tables: vec![plan.table] }))
}

/// Metric samples, in whichever of the two tables the export has them.
pub(super) fn gpu_metrics(reader: &mut Reader<'_>, devices: &mut Devices) -> Result<Option<Found>> {
    let metrics = layout::find(reader.database, &layout::METRIC)?;
    let generic = match generic_types(reader)? {
        types if types.is_empty() => None,
        types => layout::find(reader.database, &layout::GENERIC)?.map(|plan| (plan, types)),
    };
    let filled = match &metrics {
        Some(plan) => reader.database.rows_by_ids(&plan.table)? > 0,
        None => false,
    };
    match (metrics, generic) {
        (Some(plan), _) if filled => metric_rows(reader, devices, plan).map(Some),
        (_, Some((plan, types))) => generic_rows(reader, devices, plan, &types).map(Some),
        (Some(plan), None) => metric_rows(reader, devices, plan).map(Some),
        (None, None) => Ok(None),
    }
}

/// Columns of `gpu_metrics`, and what was odd.
struct Samples {
    staged: Staged,
    device: Slot,
    time: Slot,
    metric: Slot,
    unit: Slot,
    value: Slot,
    known: HashMap<i64, Option<u32>>,
    no_device: u64,
    /// Of which type and time the last value was: those of one sample follow each other.
    last: Option<(i64, i64)>,
    samples: u64,
}

impl Samples {
    fn new() -> Result<Self> {
        let mut staged = Staged::new(&schema::GPU_METRICS);
        Ok(Self {
            device: staged.column("device_id")?,
            time: staged.column("time_ns")?,
            metric: staged.column("metric")?,
            unit: staged.column("unit")?,
            value: staged.column("value")?,
            staged,
            known: HashMap::new(),
            no_device: 0,
            last: None,
            samples: 0,
        })
    }

    fn put(
        &mut self,
        devices: &mut Devices,
        type_id: i64,
        time: i64,
        name: (&str, Option<&str>),
        value: f64,
    ) {
        // The low byte of the type is the GPU; with one GPU there is no doubt.
        let slot = *self
            .known
            .entry(type_id)
            .or_insert_with(|| devices.only().or_else(|| devices.listed_gpu(type_id & 0xFF)));
        self.no_device += u64::from(slot.is_none());
        self.samples += u64::from(self.last.replace((type_id, time)) != Some((type_id, time)));
        self.staged.put(self.device, slot.map(i64::from));
        self.staged.put(self.time, Some(time));
        self.staged.put_name(self.metric, Value::Text(name.0.as_bytes()));
        self.staged.put_name(self.unit, name.1.map_or(Value::Null, |u| Value::Text(u.as_bytes())));
        self.staged.put_f64(self.value, value);
        self.staged.end_row();
    }

    fn finish(self, reader: &mut Reader<'_>, rows: u64, table: String, unnamed: u64, untimed: u64) -> Found {
        reader.count(quality::METRICS_DEVICE_UNKNOWN, self.no_device, "");
        reader.count(quality::METRIC_UNNAMED, unnamed, "");
        reader.count(quality::BAD_INTERVAL, untimed, "gpu_metrics without a time");
        reader.counter_samples = Some(self.samples);
        Found { staged: self.staged, rows, tables: vec![table] }
    }
}

/// `SMs Active [Throughput %]`: the metric and its unit.
fn metric_and_unit(name: &str) -> (&str, Option<&str>) {
    match name.strip_suffix(']').and_then(|n| n.rsplit_once(" [")) {
        Some((metric, unit)) => (metric, Some(unit)),
        None => (name, None),
    }
}

fn metric_rows(reader: &mut Reader<'_>, devices: &mut Devices, plan: Plan) -> Result<Found> {
    let mut names: HashMap<(i64, i64), String> = HashMap::new();
    if let Some(plan) = layout::find(reader.database, &layout::METRIC_NAME)? {
        let (type_at, id_at, name_at) = (plan.at("type_id"), plan.at("metric_id"), plan.at("name"));
        reader.scan(&plan, |row| {
            let number = |place| integer(cell(row, place)).ok().flatten();
            if let (Some(kind), Some(id), Some(name)) =
                (number(type_at), number(id_at), text(cell(row, name_at)).filter(|n| shape::is_label(n)))
            {
                names.insert((kind, id), name);
            }
            Ok(())
        })?;
    }
    let mut samples = Samples::new()?;
    let (time_at, raw_at) = (plan.at("time_ns"), plan.at("raw_time_ns"));
    let (type_at, id_at, value_at) = (plan.at("type_id"), plan.at("metric_id"), plan.at("value"));
    let (mut unnamed, mut untimed, mut wrapped) = (0, 0, 0);
    let rows = reader.scan(&plan, |row| {
        let number = |place| integer(cell(row, place)).ok().flatten();
        let Some(time) = number(time_at).or_else(|| number(raw_at)).filter(|time| plausible(*time)) else {
            untimed += 1;
            return Ok(());
        };
        let type_id = number(type_at).unwrap_or(0);
        let Some(name) = number(id_at).and_then(|id| names.get(&(type_id, id))) else {
            unnamed += 1;
            return Ok(());
        };
        let value = match cell(row, value_at) {
            Value::Real(value) => value,
            other => match integer(other) {
                // Unsigned values come out signed: warps per TPC of 8 bits, of 32 bits clock rates above 2.1 GHz.
                Ok(Some(value)) if (i64::from(i32::MIN)..0).contains(&value) => {
                    wrapped += 1;
                    to_f64(value + if value < i64::from(i8::MIN) { 1 << 32 } else { 1 << 8 })
                }
                Ok(Some(value)) => to_f64(value),
                _ => {
                    samples.staged.refuse("value");
                    return Ok(());
                }
            },
        };
        samples.put(devices, type_id, time, metric_and_unit(name), value);
        Ok(())
    })?;
    reader.count(quality::METRIC_WRAPPED, wrapped, "");
    Ok(samples.finish(reader, rows, plan.table, unnamed, untimed))
}

/// Types of generic events that are GPU metrics: other sources (ftrace, ETW) share the table.
fn generic_types(reader: &Reader<'_>) -> Result<Vec<i64>> {
    let (Some(sources), Some(types)) = (
        layout::find(reader.database, &layout::GENERIC_SOURCE)?,
        layout::find(reader.database, &layout::GENERIC_TYPE)?,
    ) else {
        return Ok(Vec::new());
    };
    let mut metrics = Vec::new();
    let (id_at, data_at) = (sources.at("source_id"), sources.at("data"));
    reader.scan(&sources, |row| {
        let data = text(cell(row, data_at)).and_then(|t| serde_json::from_str::<serde_json::Value>(&t).ok());
        let name = data.as_ref().and_then(|d| d.get("Name")).and_then(|n| n.as_str());
        if name == Some("GpuMetrics") {
            metrics.extend(integer(cell(row, id_at)).ok().flatten());
        }
        Ok(())
    })?;
    let mut found = Vec::new();
    let (id_at, source_at) = (types.at("type_id"), types.at("source_id"));
    reader.scan(&types, |row| {
        let source = integer(cell(row, source_at)).ok().flatten();
        if source.is_some_and(|s| metrics.contains(&s)) {
            found.extend(integer(cell(row, id_at)).ok().flatten());
        }
        Ok(())
    })?;
    Ok(found)
}

fn generic_rows(reader: &mut Reader<'_>, devices: &mut Devices, plan: Plan, types: &[i64]) -> Result<Found> {
    let mut samples = Samples::new()?;
    let (time_at, raw_at) = (plan.at("time_ns"), plan.at("raw_time_ns"));
    let (type_at, data_at) = (plan.at("type_id"), plan.at("data"));
    let mut untimed = 0;
    let rows = reader.scan(&plan, |row| {
        let number = |place| integer(cell(row, place)).ok().flatten();
        let Some(type_id) = number(type_at).filter(|t| types.contains(t)) else { return Ok(()) };
        // Real 2022 exports leave `timestamp` NULL: the raw time already is session time.
        let Some(time) = number(time_at).or_else(|| number(raw_at)).filter(|time| plausible(*time)) else {
            untimed += 1;
            return Ok(());
        };
        let Value::Text(bytes) = cell(row, data_at) else {
            samples.staged.refuse("value");
            return Ok(());
        };
        let Ok(serde_json::Value::Object(fields)) = serde_json::from_slice(bytes) else {
            samples.staged.refuse("value");
            return Ok(());
        };
        for (name, value) in &fields {
            let value = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
            match value.filter(|v| v.is_finite() && shape::is_label(name)) {
                Some(value) => samples.put(devices, type_id, time, metric_and_unit(name), value),
                None => samples.staged.refuse("value"),
            }
        }
        Ok(())
    })?;
    Ok(samples.finish(reader, rows, plan.table, 0, untimed))
}

/// Metric values are far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn to_f64(value: i64) -> f64 {
    value as f64
}

/// Where the metric samples of this export would be read from.
pub(super) fn metric_source(reader: &Reader<'_>) -> Result<&'static Source> {
    let current = layout::find(reader.database, &layout::METRIC)?.is_some();
    Ok(if current || generic_types(reader)?.is_empty() { &layout::METRIC } else { &layout::GENERIC })
}

/// Rows of the tables of `sources`, without reading them: how many (nsys never deletes one), and in which tables.
pub(super) fn unread(reader: &Reader<'_>, sources: &[&Source]) -> Result<Option<(u64, Vec<String>)>> {
    stored(reader, sources, Database::rows_by_ids)
}

/// The same of tables that are read for another purpose, counted.
pub(super) fn known(reader: &Reader<'_>, source: &Source) -> Result<Option<(u64, Vec<String>)>> {
    stored(reader, &[source], Database::count)
}

fn stored(
    reader: &Reader<'_>,
    sources: &[&Source],
    rows_of: impl Fn(&Database, &str) -> pyanalyze_sqlite::Result<u64>,
) -> Result<Option<(u64, Vec<String>)>> {
    let (mut rows, mut tables) = (0, Vec::new());
    for source in sources {
        if let Some(plan) = layout::find(reader.database, source)? {
            rows += rows_of(reader.database, &plan.table)?;
            tables.push(plan.table);
        }
    }
    Ok((!tables.is_empty()).then_some((rows, tables)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes that stay the same for a while and then alternate, of more rows than one thread takes.
    fn codes(rows: u32, long: u32) -> Vec<u32> {
        (0..rows).map(|row| if row % 7_000 < 100 { row % 3 } else { row / long % 3 }).collect()
    }

    #[test]
    fn many_times_are_looked_at_as_one_is() {
        let odd =
            [0, 1, -1, FARTHEST_NS, FARTHEST_NS + 1, -FARTHEST_NS, -FARTHEST_NS - 1, i64::MAX, i64::MIN];
        let lengths = [0, 1, -1, 1 << 53, 1 << 54, LONGEST_NS, LONGEST_NS + 1, i64::MAX, i64::MIN];
        let mut found = [0, 0];
        for start in odd {
            for end in odd.into_iter().chain(lengths.map(|length| start.wrapping_add(length))) {
                for (others, at) in [(0, 0), (40, 17), (40, 40)] {
                    let (mut starts, mut ends): (Vec<i64>, Vec<i64>) =
                        (500..500 + others).map(|time| (time, time + 200)).unzip();
                    starts.insert(at, start);
                    ends.insert(at, end);
                    let expected = is_interval(start, end)
                        .then(|| (starts.is_sorted_by(|one, next| one < next), ends.iter().copied().max()));
                    let times = Times::of(&starts, &ends, &starts[1..]).map(|t| (t.ascending, t.last_ns));
                    assert_eq!(times, expected, "{start} {end} {others} {at}");
                    found[usize::from(times.is_some_and(|(ascending, _)| ascending))] += 1;
                }
            }
        }
        assert!(found.iter().all(|count| *count > 20), "{found:?}");
        // A part in the middle, with a row after its last.
        let times = |next: i64| Times::of(&[5, 6], &[9, 7], &[6, next]).map(|times| times.ascending);
        assert_eq!((times(7), times(6)), (Some(true), Some(false)));
        assert_eq!(Times::of(&[], &[], &[]).map(|times| times.last_ns), Some(None));
    }

    #[test]
    fn stretches_cover_all_rows_and_end_where_a_code_changes() {
        for long in [1, 2, 9, 10, 64, 73, 74, 137, 5_000] {
            let (one, other) = (codes(20_000, long), codes(20_000, 2 * long + 1));
            let mut next = 0;
            for (rows, a, b) in stretches(&one, &other) {
                assert_eq!(rows.start, next);
                assert!(one[rows.clone()].iter().all(|code| *code == a));
                assert!(other[rows.clone()].iter().all(|code| *code == b));
                assert!(one.get(rows.end) != Some(&a) || other.get(rows.end) != Some(&b));
                next = rows.end;
            }
            assert_eq!(next, one.len());
        }
    }

    #[test]
    fn the_first_row_of_every_pair_is_found() {
        let rows = 700_000;
        for (long, there) in [(1, 2), (50, 3), (10_000, 70_001)] {
            let (one, other) = (codes(rows, long), codes(rows, 3 * long));
            let is_there = |row: usize| row % there == there - 1;
            let mut expected: Vec<(usize, (u32, u32))> = Vec::new();
            for (row, pair) in one.iter().copied().zip(other.iter().copied()).enumerate() {
                if is_there(row) && !expected.iter().any(|(_, known)| *known == pair) {
                    expected.push((row, pair));
                }
            }
            assert!(expected.len() > 1);
            assert_eq!(first_rows(&one, &other, 3, is_there), expected);
        }
    }
}
