//! Do the streams of one process overlap, why not, and who slows whom?
//!
//! Only processes that used several streams of one device are looked at. Reasons are decided by columns ([`reasons`]);
//! what no column decides is unexplained.

mod contention;
mod operations;
mod reasons;
mod sweep;

use std::collections::HashMap;

use arrow_array::{
    BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, UInt32Array, UInt64Array, UInt8Array,
};

use crate::base::error::Result;
use crate::base::intervals::Union;
use crate::base::maps::Interner;
use crate::base::parallel::ThreadPool;
use crate::base::watch::Watch;
use crate::occupancy::theoretical::product;
use crate::residency::observed::Slice;
use crate::table::builder::Builder;
use crate::table::columns::{Columns, NameColumn};
use crate::table::events::Tables;
use crate::table::schema::{self, Table};
use crate::table::tenant_lookup::Who;
use crate::table::work::WorkKind;

use contention::Identity;
use operations::{LaunchCalls, Operation, Owner, Process, Stream};
pub use reasons::Reason;
use reasons::{Decider, Launches, Waited};
use sweep::{place, Pair, Sweep};

/// What one process did, and who it is.
struct Found {
    owner: Owner,
    tenant: Option<u32>,
    process: Process,
    pairs: Vec<Pair>,
    durations: contention::Durations,
}

/// `stream_work`, `stream_pairs`, `stream_losses`, `stream_contention` of a session. Without API calls in it, no
/// operation is known to have waited.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn streams(session: &Tables, watch: &dyn Watch) -> Result<Tables> {
    let who = Who::read(session)?;
    let launches = Launches::read(session)?;
    let kernels = match session.get(schema::KERNELS.name) {
        Some(batch) => {
            let c = Columns::new(&schema::KERNELS, batch);
            let grid = [c.folded("grid_x")?, c.folded("grid_y")?, c.folded("grid_z")?];
            let block = [c.folded("block_x")?, c.folded("block_y")?, c.folded("block_z")?];
            Some((Names::read(batch)?, grid, block))
        }
        None => None,
    };
    let identity = |one: &Operation| -> Identity {
        let Some((names, grid, block)) = kernels.as_ref().filter(|_| one.kind == WorkKind::Kernel) else {
            return (None, None, None);
        };
        let threads = product(block, one.row).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        (names.id(one.row), product(grid, one.row).filter(|n| *n > 0), threads)
    };
    let name = |id: Option<u32>| kernels.as_ref().and_then(|(names, ..)| names.texts.text(id));
    let residency = Residency::read(session)?;
    let processes = operations::processes(session, watch)?;
    if processes.is_empty() {
        return tables(&[], name);
    }
    let calls = LaunchCalls::read(session)?;
    let found = ThreadPool::new(0).each(processes.into_iter().collect(), |(owner, mut process)| {
        let tenant = who.of(owner.0, owner.1, owner.2);
        calls.enter(owner, &mut process)?;
        process.switched_out = residency.switched_out(&who, owner.2, tenant);
        let by_end = process.in_order(|one| one.end_ns);
        let decider = Decider::new(&process, &launches, owner.2, &by_end);
        let reasons = reasons_of(&process, &decider, watch)?;
        let (pairs, durations) = Sweep::new(&process, &reasons, &by_end, &identity).run(watch)?;
        Ok(Found { owner, tenant, process, pairs, durations })
    });
    tables(&found.into_iter().collect::<Result<Vec<_>>>()?, name)
}

fn tables<'a>(all: &[Found], name: impl Fn(Option<u32>) -> Option<&'a str>) -> Result<Tables> {
    Ok([
        (schema::STREAM_WORK.name, work_table(all)?),
        (schema::STREAM_PAIRS.name, pair_table(all)?),
        (schema::STREAM_LOSSES.name, loss_table(all, &name)?),
        (schema::STREAM_CONTENTION.name, contention_table(all, &name)?),
    ]
    .into())
}

/// Recorded residency of every tenant, and the time from the first record to the last, by device.
#[derive(Default)]
struct Residency {
    of: HashMap<(u32, u32), Vec<(i64, i64)>>,
    recorded: HashMap<u32, (i64, i64)>,
}

impl Residency {
    fn read(session: &Tables) -> Result<Self> {
        let mut found = Self::default();
        let slices = session.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
        for slice in slices.iter().filter(|slice| !slice.is_driver()) {
            let span = (slice.start_ns, slice.end_ns);
            let all = found.recorded.entry(slice.device).or_insert(span);
            *all = (all.0.min(span.0), all.1.max(span.1));
            if let Some(tenant) = slice.tenant {
                found.of.entry((slice.device, tenant)).or_default().push(span);
            }
        }
        Ok(found)
    }

    /// When the context of a tenant, or that of its MPS server, was switched out.
    ///
    /// Of a tenant without slices nothing is known, and so of the time before the first record and after the last.
    fn switched_out(&self, who: &Who, device: u32, tenant: Option<u32>) -> Union {
        let server = tenant.and_then(|id| who.tenants.get(id as usize)).and_then(|found| found.served_by);
        let own = [tenant, server].into_iter().flatten().find_map(|id| self.of.get(&(device, id)));
        let (Some(own), Some((mut until_ns, last_ns))) = (own, self.recorded.get(&device).copied()) else {
            return Union::default();
        };
        let mut out = Union::default();
        for (start_ns, end_ns) in Union::of(own.iter().copied()).spans() {
            out.add(until_ns, *start_ns);
            until_ns = *end_ns;
        }
        out.add(until_ns, last_ns);
        out
    }
}

/// The short names of kernels, else their long ones, each with a number: in the order in which rows have them.
struct Names<'a> {
    short: NameColumn<'a>,
    long: NameColumn<'a>,
    /// By key of each of the two.
    ids: [Vec<Option<u32>>; 2],
    texts: Interner,
}

impl<'a> Names<'a> {
    fn read(batch: &'a RecordBatch) -> Result<Self> {
        let columns = Columns::new(&schema::KERNELS, batch);
        let (short, long) = (columns.names("short_name")?, columns.names("name")?);
        let ids = [short, long].map(|column| vec![None; column.texts().count()]);
        let mut names = Self { short, long, ids, texts: Interner::default() };
        for row in 0..columns.rows() {
            let Some((which, key)) = names.key(row) else { continue };
            let text = if which == 0 { short.text(key) } else { long.text(key) };
            let id = names.ids.get_mut(which).and_then(|ids| ids.get_mut(key as usize));
            if let (Some(text), Some(id @ None)) = (text, id) {
                *id = Some(names.texts.id(text));
            }
        }
        Ok(names)
    }

    /// Which of the two has the name of a row, and its key there.
    fn key(&self, row: usize) -> Option<(usize, u32)> {
        self.short.key(row).map(|key| (0, key)).or_else(|| Some((1, self.long.key(row)?)))
    }

    /// A dictionary may hold a text twice: it has one number.
    fn id(&self, row: usize) -> Option<u32> {
        let (which, key) = self.key(row)?;
        self.ids.get(which)?.get(key as usize).copied().flatten()
    }
}

/// What each operation waited for; `None` where it did not wait.
fn reasons_of<'a>(
    process: &'a Process,
    decider: &Decider<'a>,
    watch: &dyn Watch,
) -> Result<Vec<Option<Waited<'a>>>> {
    let mut reasons = vec![None; process.operations.len()];
    for stream in &process.streams {
        let mut before: Option<&Operation> = None;
        let (mut until_ns, mut near) = (i64::MIN, 0);
        for (done, at) in stream.operations.iter().enumerate() {
            if done % (1 << 14) == 0 {
                watch.progress("streams", done as u64, stream.operations.len() as u64)?;
            }
            let Some(one) = process.operations.get(*at) else { continue };
            let ready_ns = one.launched_ns.max(until_ns);
            if let (true, Some(slot)) = (ready_ns < one.start_ns, reasons.get_mut(*at)) {
                let reason = decider.reason(one, before, ready_ns, &mut near);
                *slot = Some(Waited { reason, filled_by: decider.filled_by(one, ready_ns, reason) });
            }
            until_ns = until_ns.max(one.end_ns);
            before = Some(one);
        }
    }
    Ok(reasons)
}

/// Columns that say whose a row is.
fn owned(table: &'static Table, whose: &[&Found]) -> Builder {
    Builder::new(table)
        .put("device_id", whose.iter().map(|f| Some(f.owner.2)).collect::<UInt32Array>())
        .put("tenant_id", whose.iter().map(|f| f.tenant).collect::<UInt32Array>())
        .put("capture", whose.iter().map(|f| Some(f.owner.0)).collect::<UInt32Array>())
        .put("pid", whose.iter().map(|f| f.owner.1).collect::<UInt32Array>())
}

fn work_table(all: &[Found]) -> Result<RecordBatch> {
    let rows: Vec<(&Found, &Stream)> = all
        .iter()
        .flat_map(|found| found.process.streams.iter().map(move |stream| (found, stream)))
        .collect();
    let of = |found: &Found, at: Option<&usize>| at.and_then(|at| found.process.operations.get(*at)).cloned();
    let kernels = |(found, stream): &(&Found, &Stream)| {
        let kernel =
            |at: &&usize| found.process.operations.get(**at).is_some_and(|o| o.kind != WorkKind::Copy);
        Some(stream.operations.iter().filter(kernel).count() as u64)
    };
    let last = |(found, stream): &(&Found, &Stream)| {
        let ends = stream.operations.iter().filter_map(|at| found.process.operations.get(*at));
        Some(ends.map(|one| one.end_ns).max().unwrap_or(0))
    };
    let first = |(found, stream): &(&Found, &Stream)| {
        Some(of(found, stream.operations.first()).map_or(0, |one| one.start_ns))
    };
    owned(&schema::STREAM_WORK, &rows.iter().map(|r| r.0).collect::<Vec<_>>())
        .put("context_id", rows.iter().map(|r| r.1.context).collect::<UInt32Array>())
        .put("stream_id", rows.iter().map(|r| Some(r.1.id)).collect::<UInt32Array>())
        .put("green_context_id", rows.iter().map(|r| r.1.green_context).collect::<UInt32Array>())
        .put("operations", rows.iter().map(|r| Some(r.1.operations.len() as u64)).collect::<UInt64Array>())
        .put("kernels", rows.iter().map(kernels).collect::<UInt64Array>())
        .put("busy_ns", rows.iter().map(|r| Some(r.1.busy_ns)).collect::<Int64Array>())
        .put("first_ns", rows.iter().map(first).collect::<Int64Array>())
        .put("last_ns", rows.iter().map(last).collect::<Int64Array>())
        .put("priority", rows.iter().map(|r| r.1.priority).collect::<Int32Array>())
        .put("flag", rows.iter().map(|r| r.1.flag).collect::<UInt8Array>())
        .put("is_graph_branch", rows.iter().map(|r| Some(r.1.graph_branch)).collect::<BooleanArray>())
        .finish(rows.len())
}

/// Pairs of streams of a process: the two, and what they had to do.
fn pairs_of(found: &Found) -> impl Iterator<Item = (&Stream, &Stream, &Pair)> {
    let n = found.process.streams.len();
    let both = (1..n).flat_map(|b| (0..b).map(move |a| (a, b)));
    both.filter_map(move |(a, b)| {
        let pair = found.pairs.get(place(a, b))?;
        Some((found.process.stream(a), found.process.stream(b), pair))
    })
}

fn paired<'a>(
    table: &'static Table,
    rows: impl Iterator<Item = (&'a Found, &'a Stream, &'a Stream)> + Clone,
) -> Builder {
    owned(table, &rows.clone().map(|r| r.0).collect::<Vec<_>>())
        .put("context_a", rows.clone().map(|r| r.1.context).collect::<UInt32Array>())
        .put("stream_a", rows.clone().map(|r| Some(r.1.id)).collect::<UInt32Array>())
        .put("context_b", rows.clone().map(|r| r.2.context).collect::<UInt32Array>())
        .put("stream_b", rows.map(|r| Some(r.2.id)).collect::<UInt32Array>())
}

fn pair_table(all: &[Found]) -> Result<RecordBatch> {
    let rows: Vec<(&Found, &Stream, &Stream, &Pair)> =
        all.iter().flat_map(|found| pairs_of(found).map(move |(a, b, pair)| (found, a, b, pair))).collect();
    let ns = |value: fn(&Pair) -> i64| rows.iter().map(|r| Some(value(r.3))).collect::<Int64Array>();
    paired(&schema::STREAM_PAIRS, rows.iter().map(|r| (r.0, r.1, r.2)))
        .put("both_had_work_ns", ns(|pair| pair.both_had_work_ns))
        .put("overlap_ns", ns(|pair| pair.overlap_ns))
        .put("not_overlapped_ns", ns(|pair| pair.not_overlapped_ns))
        .put("late_ns", ns(|pair| pair.late_ns))
        .put("alternations", rows.iter().map(|r| Some(r.3.alternations)).collect::<UInt64Array>())
        .finish(rows.len())
}

/// A row of `stream_losses`.
struct LossRow<'a> {
    found: &'a Found,
    streams: (&'a Stream, &'a Stream),
    waiting: &'a Stream,
    reason: Reason,
    had_work: bool,
    loss: sweep::Loss,
    filled_by: Option<u32>,
}

fn loss_table<'a>(all: &[Found], name: impl Fn(Option<u32>) -> Option<&'a str>) -> Result<RecordBatch> {
    let mut rows: Vec<LossRow<'_>> = Vec::new();
    for found in all {
        for (a, b, pair) in pairs_of(found) {
            for (which, (waiting, losses)) in [a, b].into_iter().zip(&pair.losses).enumerate() {
                for (reason, both) in Reason::ALL.into_iter().zip(losses) {
                    for (had_work, loss) in [true, false].into_iter().zip(both) {
                        if loss.ns > 0 {
                            let (streams, loss) = ((a, b), *loss);
                            let filled_by = if had_work { pair.filled_by(which, reason) } else { None };
                            rows.push(LossRow { found, streams, waiting, reason, had_work, loss, filled_by });
                        }
                    }
                }
            }
        }
    }
    paired(&schema::STREAM_LOSSES, rows.iter().map(|r| (r.found, r.streams.0, r.streams.1)))
        .put("waiting_context", rows.iter().map(|r| r.waiting.context).collect::<UInt32Array>())
        .put("waiting_stream", rows.iter().map(|r| Some(r.waiting.id)).collect::<UInt32Array>())
        .put_words("reason", rows.iter().map(|r| r.reason.as_str()))
        .put("had_work", rows.iter().map(|r| Some(r.had_work)).collect::<BooleanArray>())
        .put("without_overlap_ns", rows.iter().map(|r| Some(r.loss.ns)).collect::<Int64Array>())
        .put("operations", rows.iter().map(|r| Some(r.loss.operations)).collect::<UInt64Array>())
        .put_names("filled_by", rows.iter().map(|r| name(r.filled_by)))
        .finish(rows.len())
}

/// A row of `stream_contention`.
struct ContentionRow<'a> {
    found: &'a Found,
    stream: &'a Stream,
    identity: Identity,
    other: &'a Stream,
    beside: &'a contention::Beside,
    solo: &'a [i64],
    solo_nodes: u64,
}

impl ContentionRow<'_> {
    fn slowdown(&self) -> Option<contention::Slowdown> {
        contention::slowdown(&self.beside.launches, self.solo)
    }

    fn aggressor(&self) -> Option<u32> {
        let kernels = self.beside.kernels.iter();
        kernels.max_by_key(|(name, ns)| (**ns, std::cmp::Reverse(**name))).map(|(name, _)| *name)
    }
}

fn contention_table<'a>(all: &[Found], name: impl Fn(Option<u32>) -> Option<&'a str>) -> Result<RecordBatch> {
    let mut rows: Vec<ContentionRow<'_>> = Vec::new();
    for found in all {
        for ((stream, identity, other), beside) in &found.durations.beside {
            let solo = found.durations.solo.get(identity).map_or(&[] as &[_], Vec::as_slice);
            let solo_nodes = found.durations.solo_nodes.get(identity).copied().unwrap_or(0);
            let (stream, other) = (found.process.stream(*stream), found.process.stream(*other));
            rows.push(ContentionRow { found, stream, identity: *identity, other, beside, solo, solo_nodes });
        }
    }
    let told: Vec<Option<contention::Slowdown>> = rows.iter().map(ContentionRow::slowdown).collect();
    let added: Vec<_> = rows.iter().map(|r| contention::added(&r.beside.launches, r.solo)).collect();
    let ratio = |value: fn(&contention::Slowdown) -> f64| {
        told.iter().map(|told| told.as_ref().map(value)).collect::<Float64Array>()
    };
    let sum = |value: fn(&(i64, i64)) -> i64| {
        rows.iter().map(|r| Some(r.beside.launches.iter().map(value).sum::<i64>())).collect::<Int64Array>()
    };
    owned(&schema::STREAM_CONTENTION, &rows.iter().map(|r| r.found).collect::<Vec<_>>())
        .put("context_id", rows.iter().map(|r| r.stream.context).collect::<UInt32Array>())
        .put("stream_id", rows.iter().map(|r| Some(r.stream.id)).collect::<UInt32Array>())
        .put_names("short_name", rows.iter().map(|r| name(r.identity.0)))
        .put("grid_blocks", rows.iter().map(|r| r.identity.1).collect::<UInt64Array>())
        .put("block_threads", rows.iter().map(|r| r.identity.2).collect::<UInt32Array>())
        .put("beside_context", rows.iter().map(|r| r.other.context).collect::<UInt32Array>())
        .put("beside_stream", rows.iter().map(|r| Some(r.other.id)).collect::<UInt32Array>())
        .put_names("beside_kernel", rows.iter().map(|r| name(r.aggressor())))
        .put("n", rows.iter().map(|r| Some(r.beside.launches.len() as u64)).collect::<UInt64Array>())
        .put("n_solo", rows.iter().map(|r| Some(r.solo.len() as u64)).collect::<UInt64Array>())
        .put("n_graph_nodes", rows.iter().map(|r| Some(r.beside.nodes)).collect::<UInt64Array>())
        .put("n_solo_graph_nodes", rows.iter().map(|r| Some(r.solo_nodes)).collect::<UInt64Array>())
        .put("total_ns", sum(|(duration, _)| *duration))
        .put("overlap_ns", sum(|(_, overlap)| *overlap))
        .put(
            "median_ns",
            rows.iter().map(|r| contention::median_of(&r.beside.launches)).collect::<Int64Array>(),
        )
        .put(
            "solo_median_ns",
            rows.iter().map(|r| crate::base::statistics::median_ns(r.solo)).collect::<Int64Array>(),
        )
        .put("added_ns", added.iter().map(|a| a.map(|a| a.ns.round() as i64)).collect::<Int64Array>())
        .put(
            "added_half_ns",
            added.iter().map(|a| a.map(|a| a.half_ns.ceil() as i64)).collect::<Int64Array>(),
        )
        .put("ratio", ratio(|told| told.ratio))
        .put("ratio_low", ratio(|told| told.low))
        .put("ratio_high", ratio(|told| told.high))
        .finish(rows.len())
}
