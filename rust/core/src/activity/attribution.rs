//! Split the time of each kernel, from its launch call to its end, into five parts.
//!
//! ```text
//!   launch call        |==c==|
//!   its stream          |===== earlier kernel ====|
//!   context resident   ========|         |==========|       |=====
//!   kernel                                            |=============|
//!                      |launch|- same tenant -|other..|a|out..|attr.|
//! ```
//!
//! - launch overhead: until the launch call returned, at most until the kernel started
//! - queued behind the same tenant: behind earlier work of its stream, or resident behind its tenant's other work
//! - queued behind other tenants: ready, but another tenant or the context switch had the engine
//! - attributed: started, and its context resident
//! - switched out: started, and its context not resident
//!
//! The parts add up to the whole, to the nanosecond.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, UInt32Builder};
use arrow_array::{Int64Array, RecordBatch};

use crate::base::error::Result;
use crate::base::intervals::{Union, Walk};
use crate::base::maps::ByKey;
use crate::base::watch::Watch;
use crate::residency::observed::Slice;
use crate::residency::recorded_time::PartlyRecorded;
use crate::table::builder::Builder;
use crate::table::calls::{calls, CallsByProcess};
use crate::table::columns::Columns;
use crate::table::events::{EventPass, Events, Tables};
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Who};
use crate::table::work::{work, Work, WorkKind};

/// Whose residency counts for a tenant's kernels.
#[derive(Debug, Default)]
struct Held {
    residency: Option<Arc<Union>>,
    walk: Walk,
    /// The slices are its own; that it is served by another tenant's context is a deduction.
    observed: bool,
    /// Whoever else's work may be on the engine while it is resident; `None`: nobody's.
    beside: Option<u32>,
}

/// What is found for each kernel.
#[derive(Debug, Default)]
struct Rows {
    tenant: UInt32Builder,
    attributed: Vec<i64>,
    out: Vec<i64>,
    call: Int64Builder,
    in_call: Int64Builder,
    own: Int64Builder,
    other: Int64Builder,
    switching: Int64Builder,
    observed: Vec<bool>,
}

impl Rows {
    /// Room for so many kernels: room that grows is had twice for a moment.
    fn reserve(&mut self, kernels: usize, has_calls: bool) {
        self.attributed.reserve_exact(kernels);
        self.out.reserve_exact(kernels);
        self.observed.reserve_exact(kernels);
        self.tenant = UInt32Builder::with_capacity(kernels);
        if has_calls {
            for column in [&mut self.call, &mut self.in_call, &mut self.own, &mut self.other] {
                *column = Int64Builder::with_capacity(kernels);
            }
        }
    }
}

/// A stream: capture, pid, context, stream.
type Stream = (u32, Option<u32>, Option<u32>, Option<u32>);

#[derive(Debug, Default)]
struct OfStream {
    /// Until when it was busy.
    until_ns: Option<i64>,
    /// Where the call of its last work was found.
    hint: usize,
}

/// Reads kernels, graphs and copies, makes `kernel_attribution`. Takes the finished `tenants`, `residency` and `switches` of the session, and its
/// `api_calls` where they were read.
#[derive(Debug)]
pub struct Attribution {
    who: Who,
    held: Vec<Held>,
    partly_recorded: PartlyRecorded,
    /// Time in which the engine was being handed over.
    switching: BTreeMap<u32, (Union, Walk)>,
    calls: CallsByProcess,
    has_calls: bool,
    has_switches: bool,
    streams: ByKey<Stream, OfStream>,
    /// Of each tenant that may run beside others: in flight of those, and where that was asked last.
    others: BTreeMap<u32, (Union, Walk)>,
    rows: Rows,
    /// The table, once the kernels were read.
    made: Option<RecordBatch>,
    /// The process and device looked up last: rows come in runs.
    last: LastTenant,
    done: u64,
}

impl Attribution {
    /// Reads the tables that earlier passes made.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn new(session: &Tables) -> Result<Self> {
        let who = Who::read(session)?;
        let slices = session.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
        let mut spans: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        for s in &slices {
            if let Some(tenant) = s.tenant {
                spans.entry(tenant).or_default().push((s.start_ns, s.end_ns));
            }
        }
        drop(slices);
        let unions: BTreeMap<u32, Arc<Union>> =
            spans.into_iter().map(|(tenant, spans)| (tenant, Arc::new(Union::of(spans)))).collect();
        let mut held = Vec::with_capacity(who.tenants.len());
        let mut others = BTreeMap::new();
        let calls = calls(session)?;
        for t in &who.tenants {
            let own = unions.get(&t.id);
            let through = t.served_by.and_then(|server| unions.get(&server));
            // Alone with the engine only by slices of its own; beside whom it waits matters only with calls.
            let beside = (own.is_none() && !calls.is_empty()).then_some(t.id);
            if beside.is_some() && t.traced {
                others.insert(t.id, Default::default());
            }
            held.push(Held {
                residency: own.or(through).cloned(),
                walk: Walk::default(),
                observed: own.is_some(),
                beside,
            });
        }
        let switching = switching(session)?;
        Ok(Self {
            who,
            held,
            partly_recorded: PartlyRecorded::of(session)?,
            has_calls: !calls.is_empty(),
            has_switches: !switching.is_empty(),
            switching,
            calls,
            streams: ByKey::default(),
            others,
            rows: Rows::default(),
            made: None,
            last: LastTenant::default(),
            done: 0,
        })
    }

    fn take(&mut self, w: &Work) {
        let tenant = self.who.of_next(&mut self.last, w.capture, w.pid, w.device);
        if w.kind == WorkKind::Kernel {
            self.charge(w, tenant);
        }
        if !self.has_calls {
            return;
        }
        let stream = (w.capture, w.pid, w.context, w.stream);
        if let Some(stream) = self.streams.entry(stream) {
            stream.until_ns = stream.until_ns.max(Some(w.end_ns));
        }
        if let (Some(me), true) = (tenant, w.kind != WorkKind::Copy) {
            for (other, (union, _)) in &mut self.others {
                let near = self.who.tenants.get(*other as usize).is_some_and(|t| t.device == w.device);
                if near && *other != me {
                    union.add(w.start_ns, w.end_ns);
                }
            }
        }
    }

    fn charge(&mut self, w: &Work, tenant: Option<u32>) {
        let held = tenant.and_then(|t| self.held.get_mut(t as usize));
        let mut nobody = Held::default();
        let held = held.unwrap_or(&mut nobody);
        let dur_ns = w.end_ns.saturating_sub(w.start_ns);
        let (residency, walk) = (held.residency.as_ref(), &mut held.walk);
        // Outside of the recorded time it may have been resident: that is no time switched out.
        let unknown_ns = |from: i64, to: i64| self.partly_recorded.unknown_ns(w.device, from, to);
        let resident = |walk: &mut Walk, from: i64, to: i64| {
            residency.map_or(to.saturating_sub(from), |union| {
                walk.covered_ns(union, from, to).saturating_add(unknown_ns(from, to))
            })
        };
        let attributed_ns = resident(walk, w.start_ns, w.end_ns);
        let mut unknown = OfStream::default();
        let stream = self.streams.entry((w.capture, w.pid, w.context, w.stream)).unwrap_or(&mut unknown);
        let calls = self.calls.get(&(w.capture, w.pid)).zip(w.correlation.filter(|id| *id > 0));
        let call = calls.and_then(|(calls, id)| Some(calls.find(id, &mut stream.hint)?.1));
        // A call that began after its kernel is another's, or the clocks of host and device disagree.
        let call = call.filter(|call| call.start_ns <= w.start_ns);
        let waited = call.map(|call| {
            let queued_ns = call.end_ns.clamp(call.start_ns, w.start_ns);
            let ready_ns = stream.until_ns.unwrap_or(i64::MIN).clamp(queued_ns, w.start_ns);
            let wait_ns = w.start_ns.saturating_sub(ready_ns);
            let here_ns = resident(walk, ready_ns, w.start_ns);
            let beside = held.beside.and_then(|tenant| self.others.get_mut(&tenant));
            // Where several are on the engine at once, work of others in flight is what it waits for.
            let beside_ns = beside.map_or(0, |(union, walk)| match residency {
                None => walk.covered_ns(union, ready_ns, w.start_ns),
                Some(residency) => residency.common_within_ns(union, ready_ns, w.start_ns),
            });
            let other_ns = wait_ns.saturating_sub(here_ns).saturating_add(beside_ns);
            let own_ns = w.start_ns.saturating_sub(queued_ns).saturating_sub(other_ns);
            (call.start_ns, queued_ns.saturating_sub(call.start_ns), own_ns, other_ns, ready_ns)
        });
        let switching = self.switching.get_mut(&w.device).filter(|_| residency.is_some());
        let from_ns = waited.map_or(w.start_ns, |(.., ready_ns)| ready_ns);
        let rows = &mut self.rows;
        rows.tenant.append_option(tenant);
        let out_ns = dur_ns.saturating_sub(attributed_ns);
        rows.attributed.push(attributed_ns);
        rows.out.push(out_ns);
        rows.observed.push(held.observed && unknown_ns(w.start_ns, w.end_ns) == 0);
        if self.has_calls {
            rows.call.append_option(waited.map(|(call_ns, ..)| call_ns));
            rows.in_call.append_option(waited.map(|(_, launch_overhead_ns, ..)| launch_overhead_ns));
            rows.own.append_option(waited.map(|(_, _, own_ns, ..)| own_ns));
            rows.other.append_option(waited.map(|(_, _, _, other_ns, _)| other_ns));
        }
        if self.has_switches {
            let away_ns = out_ns.saturating_add(waited.map_or(0, |w| w.3));
            rows.switching.append_option(switching.map(|(union, walk)| match away_ns {
                0 => 0,
                _ => walk.covered_ns(union, from_ns, w.end_ns).min(away_ns),
            }));
        }
    }

    /// The rows of `kernels`, with what was found for each. Columns that stand in `kernels` are not copied.
    fn table(&mut self, kernels: &RecordBatch) -> Result<RecordBatch> {
        let mut rows = std::mem::take(&mut self.rows);
        let mut builder = Builder::new(&schema::KERNEL_ATTRIBUTION);
        for name in ["capture", "pid", "device_id", "correlation_id", "start_ns", "end_ns"] {
            if let Some(column) = kernels.column_by_name(name) {
                builder = builder.put(name, Arc::clone(column));
            }
        }
        let count = rows.attributed.len();
        builder = builder
            .put("tenant_id", rows.tenant.finish())
            .put("attributed_ns", Int64Array::from(rows.attributed))
            .put("switched_out_ns", Int64Array::from(rows.out))
            .put_words(
                "basis",
                rows.observed.iter().map(|observed| if *observed { "observed" } else { "inferred" }),
            );
        if self.has_calls {
            builder = builder
                .put("call_start_ns", rows.call.finish())
                .put("launch_overhead_ns", rows.in_call.finish())
                .put("queued_same_tenant_ns", rows.own.finish())
                .put("queued_other_tenant_ns", rows.other.finish());
        }
        if self.has_switches {
            builder = builder.put("switch_ns", rows.switching.finish());
        }
        builder.finish(count)
    }
}

/// Where engines were being handed over: SAVE_END to RESTORE_START of switches.
fn switching(session: &Tables) -> Result<BTreeMap<u32, (Union, Walk)>> {
    let Some(batch) = session.get(schema::SWITCHES.name) else { return Ok(BTreeMap::new()) };
    let columns = Columns::new(&schema::SWITCHES, batch);
    let (device, time, gap) = (columns.u32("device_id")?, columns.i64("time_ns")?, columns.i64("gap_ns")?);
    let kind = columns.names("kind")?;
    let mut spans: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    for row in 0..columns.rows() {
        if matches!(kind.get(row), Some("switch" | "creation")) {
            let start = time.value(row);
            spans.entry(device.value(row)).or_default().push((start, start.saturating_add(gap.value(row))));
        }
    }
    Ok(spans.into_iter().map(|(device, spans)| (device, (Union::of(spans), Walk::default()))).collect())
}

impl EventPass for Attribution {
    type Output = RecordBatch;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        watch.progress("attribution", self.done, 0)?;
        self.rows.reserve(events.batch(&schema::KERNELS).map_or(0, RecordBatch::num_rows), self.has_calls);
        for w in work(events)? {
            if self.done.is_multiple_of(4096) {
                watch.progress("attribution", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            self.take(&w);
        }
        self.made = events.batch(&schema::KERNELS).map(|kernels| self.table(kernels)).transpose()?;
        Ok(())
    }

    fn finish(self, watch: &dyn Watch) -> Result<RecordBatch> {
        watch.progress("attribution", self.done, self.done)?;
        Ok(self.made.unwrap_or_else(|| schema::KERNEL_ATTRIBUTION.empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::Unwatched;
    use crate::table::columns::at;
    use crate::test_tables::{kernels, named, residency, K};
    use arrow_array::UInt32Array;

    /// (pid, correlation, start, end) in us.
    fn api(rows: &[(u32, u32, i64, i64)]) -> RecordBatch {
        let n = rows.len();
        Builder::new(&schema::API_CALLS)
            .put("capture", UInt32Array::from(vec![0; n]))
            .put("pid", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
            .put("correlation_id", rows.iter().map(|r| Some(r.1)).collect::<UInt32Array>())
            .put("start_ns", rows.iter().map(|r| Some(r.2 * 1000)).collect::<Int64Array>())
            .put("end_ns", rows.iter().map(|r| Some(r.3 * 1000)).collect::<Int64Array>())
            .finish(n)
            .unwrap()
    }

    /// Kernels with the correlation ids 1, 2, ... in the order given, which must be that of their starts.
    fn numbered(rows: &[K]) -> RecordBatch {
        let batch = kernels(rows);
        let ids: UInt32Array = (1..).take(rows.len()).map(Some).collect();
        crate::table::builder::replace(&schema::KERNELS, &batch, vec![("correlation_id", Arc::new(ids))])
            .unwrap()
    }

    /// In call, own, other, attributed, out, switching in us per kernel; the sum is checked.
    fn parts(tables: Tables) -> Vec<[Option<i64>; 6]> {
        let (tables, _) = named(tables);
        let batch = Attribution::new(&tables).unwrap().run(&tables, &Unwatched).unwrap();
        let c = Columns::new(&schema::KERNEL_ATTRIBUTION, &batch);
        let column = |name: &str, row| at(c.i64(name).unwrap(), row);
        (0..c.rows())
            .map(|row| {
                let names = [
                    "launch_overhead_ns",
                    "queued_same_tenant_ns",
                    "queued_other_tenant_ns",
                    "attributed_ns",
                    "switched_out_ns",
                    "switch_ns",
                ];
                let found = names.map(|name| column(name, row));
                if let Some(call) = column("call_start_ns", row) {
                    let sum: i64 = found[..5].iter().map(|part| part.unwrap()).sum();
                    assert_eq!(sum, column("end_ns", row).unwrap() - call);
                } else {
                    assert_eq!(&found[..3], &[None, None, None]);
                    let sum = found[3].unwrap() + found[4].unwrap();
                    assert_eq!(sum, column("end_ns", row).unwrap() - column("start_ns", row).unwrap());
                }
                found.map(|part| part.map(|ns| ns / 1000))
            })
            .collect()
    }

    #[test]
    fn every_nanosecond_from_the_call_to_the_end_has_one_place() {
        // call 1 |0=20|   kernel 1 |20=======1500|
        // call 2   |20=50|                          kernel 2 |2100=============4300|
        // 7 resident |0=====1000|       |2040=======3000|        |4040==5000|
        // 8 resident               |1040==2000|        |3040=4000|
        // kernel 2: call 30, own stream 50..1500, other 1500..2040, own (resident, ready) 2040..2100,
        // attributed 2100..3000 and 4040..4300, out 3000..4040.
        let mut tables = Tables::from([
            ("kernels", numbered(&[(0, 7, 0, 1, 7, 20, 1500), (0, 7, 0, 1, 7, 2100, 4300)])),
            (
                "residency",
                residency(&[
                    (0, 0, 7, 1, 0, 1000),
                    (0, 0, 8, 2, 1040, 2000),
                    (0, 0, 7, 1, 2040, 3000),
                    (0, 0, 8, 2, 3040, 4000),
                    (0, 0, 7, 1, 4040, 5000),
                ]),
            ),
        ]);
        let some = |values: [i64; 6]| values.map(Some);
        let without = parts(tables.clone());
        assert_eq!(without[1], [None, None, None, Some(1160), Some(1040), None]);
        tables.insert("api_calls", api(&[(7, 1, 0, 20), (7, 2, 20, 50)]));
        let switch = |at: i64, from: u64, to: u64| (at, from, to);
        let rows = [switch(1000, 1, 2), switch(2000, 2, 1), switch(3000, 1, 2), switch(4000, 2, 1)];
        let switches = Builder::new(&schema::SWITCHES)
            .put("device_id", UInt32Array::from(vec![0; 4]))
            .put("time_ns", rows.iter().map(|r| Some(r.0 * 1000)).collect::<Int64Array>())
            .put("from_hw_context", rows.iter().map(|r| Some(r.1)).collect::<arrow_array::UInt64Array>())
            .put("to_hw_context", rows.iter().map(|r| Some(r.2)).collect::<arrow_array::UInt64Array>())
            .put("gap_ns", Int64Array::from(vec![40_000; 4]))
            .put_words("ending", ["unknown"; 4])
            .put_words("kind", ["switch"; 4])
            .finish(4)
            .unwrap();
        tables.insert("switches", switches);
        let with = parts(tables);
        assert_eq!(with[0], some([20, 0, 0, 980, 500, 40]));
        // Two switches inside, and the one at 2000 that it waited for.
        assert_eq!(with[1], some([30, 1450 + 60, 540, 1160, 1040, 120]));
    }

    #[test]
    fn without_residency_others_in_flight_are_what_a_ready_kernel_waits_for() {
        // 8's kernels  |0==100|      |200=300|
        // 7: call |0=10|          kernel |260==400|   250 us ready: 90 + 60 beside 8, 100 own
        let rows = [(0, 8, 0, 1, 7, 0, 100), (0, 8, 0, 1, 7, 200, 300), (0, 7, 0, 1, 7, 260, 400)];
        let tables = Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&[(7, 3, 0, 10)]))]);
        assert_eq!(parts(tables)[2], [Some(10), Some(100), Some(150), Some(140), Some(0), None]);
    }

    #[test]
    fn odd_calls_are_not_believed() {
        // The id is 9's, the call begins after the kernel, it returns after the kernel started.
        let rows = [(0, 7, 0, 1, 7, 100, 200), (0, 7, 0, 1, 7, 300, 400), (0, 7, 0, 1, 7, 500, 600)];
        let calls = [(9, 1, 0, 10), (7, 2, 350, 360), (7, 3, 450, 900)];
        let found = parts(Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls))]));
        assert_eq!(found[0][..3], [None, None, None]);
        assert_eq!(found[1][..3], [None, None, None]);
        assert_eq!(found[2][..3], [Some(50), Some(0), Some(0)]);
        // A driver call inside the runtime call shares its id: the outer one counts.
        let calls = [(7, 1, 20, 30), (7, 1, 10, 40)];
        let found = parts(Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls))]));
        assert_eq!(found[0][..3], [Some(30), Some(60), Some(0)]);
    }

    #[test]
    fn attributed_time_is_resident_time() {
        // kernel of 7  |100=================2400|
        // 7 resident  |0======1000|      |2000====3000|      attributed 900 + 400, out 1000
        // 8 resident              |1040=1960|
        let found = parts(Tables::from([
            ("kernels", kernels(&[(0, 7, 0, 1, 7, 100, 2400)])),
            (
                "residency",
                residency(&[(0, 0, 7, 1, 0, 1000), (0, 0, 8, 2, 1040, 1960), (0, 0, 7, 1, 2000, 3000)]),
            ),
        ]));
        assert_eq!(found[0][3..5], [Some(1300), Some(1000)]);
        // Without switch records all of it, as an assumption.
        let rows = kernels(&[(0, 7, 0, 1, 7, 100, 2400), (0, 7, 0, 1, 8, 200, 2500)]);
        let (tables, _) = named(Tables::from([("kernels", rows)]));
        let batch = Attribution::new(&tables).unwrap().run(&tables, &Unwatched).unwrap();
        let c = Columns::new(&schema::KERNEL_ATTRIBUTION, &batch);
        assert_eq!(c.i64("attributed_ns").unwrap().values(), &[2_300_000, 2_300_000]);
        assert_eq!(c.names("basis").unwrap().get(0), Some("inferred"));
    }
}
