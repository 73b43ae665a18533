//! Check sums of intervals against counting nanosecond by nanosecond, and that every step stops when told to.

// A test may stop at the first surprise, also in its helpers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{Float64Array, Int64Array, RecordBatch, UInt16Array, UInt32Array, UInt64Array, UInt8Array};
use proptest::prelude::*;
use pyanalyze_core::activity::attribution::Attribution;
use pyanalyze_core::activity::features::{Facts, FACTS};
use pyanalyze_core::activity::launches::{Batch, Launches};
use pyanalyze_core::activity::overlap::Overlap;
use pyanalyze_core::base::intervals::Union;
use pyanalyze_core::base::watch::{StopAfter, Unwatched};
use pyanalyze_core::identity::tenants::Tenants;
use pyanalyze_core::output::timeline::timeline;
use pyanalyze_core::pipeline::{attribution, reconstruct};
use pyanalyze_core::residency::observed::{Residency, Slice};
use pyanalyze_core::table::builder::Builder;
use pyanalyze_core::table::columns::Columns;
use pyanalyze_core::table::events::{EventPass, Tables};
use pyanalyze_core::table::schema::{self, Table};
use pyanalyze_core::Error;

/// Times stay below this, so that every nanosecond can be looked at.
const RANGE: i64 = 120;

/// A row of work: start, length, capture, pid, device, context, stream.
type Row = (i64, i64, u32, u32, u32, u32, u32);

fn row() -> impl Strategy<Value = Row> {
    (0..RANGE - 20, 0_i64..20, 0_u32..2, 1_u32..4, 0_u32..2, 1_u32..3, 7_u32..9)
}

fn work(table: &'static Table, rows: &[Row]) -> RecordBatch {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|r| r.0);
    let column = |f: fn(&Row) -> u32| rows.iter().map(|r| Some(f(r))).collect::<UInt32Array>();
    let batch = Builder::new(table)
        .put("capture", column(|r| r.2))
        .put("pid", rows.iter().map(|r| (r.3 < 3 || r.2 == 0).then_some(r.3)).collect::<UInt32Array>())
        .put("device_id", column(|r| r.4))
        .put("context_id", column(|r| r.5))
        .put("stream_id", column(|r| r.6))
        .put("start_ns", rows.iter().map(|r| Some(r.0)).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| Some(r.0 + r.1)).collect::<Int64Array>());
    match table.name {
        "kernels" => batch
            .put("correlation_id", (0..).take(rows.len()).map(Some).collect::<UInt32Array>())
            .put_names("name", rows.iter().map(|r| Some(if r.1 % 2 == 0 { "even" } else { "odd" })))
            .finish(rows.len())
            .unwrap(),
        "memops" => batch
            .put_names("operation", rows.iter().map(|_| Some("[CUDA memcpy Host-to-Device]")))
            .put("copy_kind", rows.iter().map(|r| (r.1 % 3 > 0).then_some(1)).collect::<UInt8Array>())
            .put("bytes", rows.iter().map(|r| Some(r.1)).collect::<Int64Array>())
            .finish(rows.len())
            .unwrap(),
        _ => batch.finish(rows.len()).unwrap(),
    }
}

/// A call for most kernels, some of them odd: too late, returning late, or of another process.
fn calls(kernels: &RecordBatch) -> RecordBatch {
    let k = Columns::new(&schema::KERNELS, kernels);
    let rows: Vec<usize> = (0..k.rows()).filter(|row| row % 7 != 3).collect();
    let start = |row: usize| k.i64("start_ns").unwrap().value(row) - (row as i64 * 7) % 23 + 2;
    Builder::new(&schema::API_CALLS)
        .put(
            "capture",
            rows.iter().map(|r| Some(k.u32("capture").unwrap().value(*r))).collect::<UInt32Array>(),
        )
        .put(
            "pid",
            rows.iter().map(|r| k.u32("pid").unwrap().iter().nth(*r).unwrap()).collect::<UInt32Array>(),
        )
        .put("correlation_id", rows.iter().map(|r| Some(*r as u32)).collect::<UInt32Array>())
        .put("start_ns", rows.iter().map(|r| Some(start(*r))).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| Some(start(*r) + (*r as i64 * 5) % 9)).collect::<Int64Array>())
        .finish(rows.len())
        .unwrap()
}

/// Time, tag, device, context, step of the sequence.
type Record = (i64, u8, u32, u64, u16);

fn record() -> impl Strategy<Value = Record> {
    let tag = prop_oneof![5 => Just(7_u8), 5 => Just(8_u8), 1 => 0_u8..12, 1 => Just(255_u8)];
    (0..RANGE, tag, 0_u32..2, 1_u64..4, prop_oneof![8 => Just(1_u16), 1 => 0_u16..5])
}

fn records(rows: &[Record]) -> RecordBatch {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|r| r.0);
    let mut next = BTreeMap::new();
    let sequence: Vec<u16> = rows
        .iter()
        .map(|r| {
            let n = next.entry(r.2).or_insert(65_530_u16);
            *n = n.wrapping_add(r.4);
            *n
        })
        .collect();
    Builder::new(&schema::SWITCH_EVENTS)
        .put("capture", UInt32Array::from(vec![0; rows.len()]))
        .put("device_id", rows.iter().map(|r| Some(r.2)).collect::<UInt32Array>())
        .put("time_ns", rows.iter().map(|r| Some(r.0)).collect::<Int64Array>())
        .put("tag", rows.iter().map(|r| Some(r.1)).collect::<UInt8Array>())
        .put("pid", rows.iter().map(|r| (r.3 < 3).then_some(r.3 as u32)).collect::<UInt32Array>())
        .put("hw_context", rows.iter().map(|r| Some(r.3)).collect::<UInt64Array>())
        .put("sequence", UInt16Array::from(sequence))
        .finish(rows.len())
        .unwrap()
}

fn metrics(times: &[i64]) -> RecordBatch {
    let mut times = times.to_vec();
    times.sort_unstable();
    let n = times.len();
    Builder::new(&schema::GPU_METRICS)
        .put("capture", UInt32Array::from(vec![0; n]))
        .put("device_id", UInt32Array::from(vec![0; n]))
        .put("time_ns", Int64Array::from(times))
        .put_names("metric", (0..n).map(|i| Some(if i % 3 == 0 { "SMs Active" } else { "GR Active" })))
        .put("value", (0..n).map(|i| Some(i as f64)).collect::<Float64Array>())
        .finish(n)
        .unwrap()
}

prop_compose! {
    fn session()(
        kernels in prop::collection::vec(row(), 0..40),
        graphs in prop::collection::vec(row(), 0..8),
        copies in prop::collection::vec(row(), 0..8),
        switches in prop::collection::vec(record(), 0..60),
        samples in prop::collection::vec(0..RANGE, 0..20),
        absent in 0_usize..9,
    ) -> Tables {
        let launched = work(&schema::KERNELS, &kernels);
        let all = [
            ("api_calls", calls(&launched)),
            ("kernels", launched),
            ("graph_launches", work(&schema::GRAPH_LAUNCHES, &graphs)),
            ("memops", work(&schema::MEMOPS, &copies)),
            ("switch_events", records(&switches)),
            ("gpu_metrics", metrics(&samples)),
        ];
        // One of six tables may not have been captured at all.
        all.into_iter().enumerate().filter(|(n, _)| *n != absent).map(|(_, t)| t).collect()
    }
}

/// The nanoseconds inside any of these intervals, one by one.
fn naive(intervals: impl IntoIterator<Item = (i64, i64)>) -> BTreeSet<i64> {
    intervals.into_iter().flat_map(|(a, b)| a..b).collect()
}

fn opt(array: &Int64Array, row: usize) -> Option<i64> {
    array.iter().nth(row).flatten()
}

/// Everything that was made of the capture, beside its events.
fn session_of(tables: &Tables) -> Tables {
    let mut seen = tables.clone();
    seen.extend(reconstruct(tables, &Unwatched).unwrap());
    seen.extend(attribution(&seen, &Unwatched).unwrap());
    seen
}

/// (tenant, start, end, context, stream) of kernels and graphs of a device.
type Busy = (u32, i64, i64, u32, Option<u32>);

fn busy(tables: &Tables, made: &Tables, device: u32) -> Vec<Busy> {
    let t = Columns::new(&schema::TENANTS, &made["tenants"]);
    let mut all = Vec::new();
    for table in [&schema::KERNELS, &schema::GRAPH_LAUNCHES] {
        let Some(batch) = tables.get(table.name) else { continue };
        let c = Columns::new(table, batch);
        for row in (0..c.rows()).filter(|r| c.u32("device_id").unwrap().value(*r) == device) {
            let pid = c.u32("pid").unwrap().iter().nth(row).unwrap();
            let capture = c.u32("capture").unwrap().value(row);
            let tenant = (0..t.rows()).find(|n| {
                t.u32("device_id").unwrap().value(*n) == device
                    && t.bool("traced").unwrap().value(*n)
                    && t.u32("capture").unwrap().value(*n) == capture
                    && t.u32("pid").unwrap().iter().nth(*n).unwrap() == pid
            });
            let stream = (table.name == "kernels").then(|| c.u32("stream_id").unwrap().value(row));
            all.push((
                t.u32("tenant_id").unwrap().value(tenant.unwrap()),
                c.i64("start_ns").unwrap().value(row),
                c.i64("end_ns").unwrap().value(row),
                c.u32("context_id").unwrap().value(row),
                stream,
            ));
        }
    }
    all
}

/// From when to when residency was recorded of devices where that misses more than a twentieth of the time of kernels:
/// before and after nothing tells who was resident, and what runs has its context there.
fn partly_recorded(tables: &Tables, made: &Tables) -> BTreeMap<u32, (i64, i64)> {
    let span = |batch: Option<&RecordBatch>, table, device: u32| {
        let c = Columns::new(table, batch?);
        let rows = (0..c.rows()).filter(|r| c.u32("device_id").unwrap().value(*r) == device);
        let (start, end) = (c.i64("start_ns").unwrap(), c.i64("end_ns").unwrap());
        rows.map(|r| (start.value(r), end.value(r))).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    };
    let mut found = BTreeMap::new();
    for device in 0..2 {
        let kernels = [&schema::KERNELS, &schema::GRAPH_LAUNCHES]
            .into_iter()
            .filter_map(|table| span(tables.get(table.name), table, device))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let recorded = span(made.get("residency"), &schema::RESIDENCY, device);
        let (Some(kernels), Some(recorded)) = (kernels, recorded) else { continue };
        let covered = (kernels.1.min(recorded.1) - kernels.0.max(recorded.0)).max(0);
        if 20 * (kernels.1 - kernels.0 - covered) > kernels.1 - kernels.0 {
            found.insert(device, recorded);
        }
    }
    found
}

fn facts(made: &Tables, device: u32) -> BTreeMap<String, Option<f64>> {
    let c = Columns::new(&schema::FACTS, &made["facts"]);
    (0..c.rows())
        .filter(|r| c.u32("device_id").unwrap().value(*r) == device)
        .map(|r| {
            let name = c.names("name").unwrap().get(r).unwrap().to_owned();
            (name, c.f64("value").unwrap().iter().nth(r).unwrap())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn unions_hold_against_counting(
        spans in prop::collection::vec((0..RANGE, -3_i64..20), 0..30),
        others in prop::collection::vec((0..RANGE, -3_i64..20), 0..30),
        window in (0..RANGE, 0..RANGE),
    ) {
        let ends = |v: &[(i64, i64)]| v.iter().map(|(a, d)| (*a, a + d)).collect::<Vec<_>>();
        let (a, b) = (Union::of(ends(&spans)), Union::of(ends(&others)));
        let (na, nb) = (naive(ends(&spans)), naive(ends(&others)));
        prop_assert_eq!(a.total_ns(), na.len() as i64);
        prop_assert_eq!(a.covered_ns(window.0, window.1), na.range(window.0..window.1.max(window.0)).count() as i64);
        prop_assert_eq!(a.common_ns(&b), na.intersection(&nb).count() as i64);
        prop_assert_eq!(b.common_ns(&a), a.common_ns(&b));
        prop_assert!(a.spans().windows(2).all(|w| w[0].1 < w[1].0));
    }

    #[test]
    fn attributed_time_holds_against_counting(tables in session()) {
        let made = session_of(&tables);
        let slices = Slice::read(&made["residency"]).unwrap();
        let held: BTreeMap<u32, BTreeSet<i64>> = slices.iter().filter_map(|s| s.tenant).map(|t| {
            (t, naive(slices.iter().filter(|s| s.tenant == Some(t)).map(|s| (s.start_ns, s.end_ns))))
        }).collect();
        let partly = partly_recorded(&tables, &made);
        let unknown = |device: u32, ns: i64| partly.get(&device).is_some_and(|(first, last)| ns < *first || ns >= *last);
        let c = Columns::new(&schema::KERNEL_ATTRIBUTION, &made["kernel_attribution"]);
        for row in 0..c.rows() {
            let device = c.u32("device_id").unwrap().value(row);
            let (start, end) = (c.i64("start_ns").unwrap().value(row), c.i64("end_ns").unwrap().value(row));
            let (ns, out) = (c.i64("attributed_ns").unwrap().value(row), c.i64("switched_out_ns").unwrap().value(row));
            prop_assert_eq!(ns + out, end - start);
            if let Some(call) = opt(c.i64("call_start_ns").unwrap(), row) {
                let waits = ["launch_overhead_ns", "queued_same_tenant_ns", "queued_other_tenant_ns"];
                let waits = waits.map(|name| opt(c.i64(name).unwrap(), row).unwrap());
                prop_assert!(waits.iter().all(|part| *part >= 0), "{waits:?}");
                prop_assert_eq!(waits.iter().sum::<i64>(), start - call);
                if let Some(held) = held.get(&c.u32("tenant_id").unwrap().value(row)) {
                    let out_of = (call..start).filter(|ns| !held.contains(ns)).count() as i64;
                    prop_assert!(waits[2] <= out_of, "it waits for others only while it is not resident");
                }
            }
            let tenant = c.u32("tenant_id").unwrap().value(row);
            let expected = held.get(&tenant).map_or(end - start, |h| {
                (start..end).filter(|ns| h.contains(ns) || unknown(device, *ns)).count() as i64
            });
            prop_assert_eq!(ns, expected);
        }
        let u = Columns::new(&schema::TENANT_USAGE, &made["tenant_usage"]);
        for row in 0..u.rows() {
            let (id, device) = (u.u32("tenant_id").unwrap().value(row), u.u32("device_id").unwrap().value(row));
            let ran = naive(busy(&tables, &made, device).iter().filter(|b| b.0 == id).map(|b| (b.1, b.2)));
            let resident = held.get(&id);
            prop_assert_eq!(opt(u.i64("resident_ns").unwrap(), row), resident.map(|h| h.len() as i64));
            if let Some(ns) = opt(u.i64("busy_ns").unwrap(), row) {
                prop_assert_eq!(ns, ran.len() as i64);
                let expected = resident.map_or(ran.len(), |h| {
                    ran.iter().filter(|ns| h.contains(ns) || unknown(device, **ns)).count()
                }) as i64;
                prop_assert_eq!(opt(u.i64("attributed_ns").unwrap(), row), Some(expected));
            }
        }
    }

    #[test]
    fn time_between_launches_holds_against_counting(tables in session()) {
        let seen = session_of(&tables);
        let slices = Slice::read(&seen["residency"]).unwrap();
        for found in Launches::new(&seen).unwrap().run(&seen, &Unwatched).unwrap() {
            let all = busy(&tables, &seen, found.device);
            let mut mine: Vec<_> = all.iter().filter(|b| b.0 == found.tenant).map(|b| (b.1, b.2)).collect();
            mine.sort_by_key(|b| b.0);
            let here = slices.iter().filter(|s| s.device == found.device);
            let (own, away): (Vec<&Slice>, Vec<&Slice>) = here.partition(|s| s.tenant == Some(found.tenant));
            prop_assert_eq!(found.residency_known, !own.is_empty());
            // Nobody is served by another here: fellows are all others where nothing says which context was resident.
            let away = naive(away.iter().filter(|_| found.residency_known).map(|s| (s.start_ns, s.end_ns)));
            let near = all.iter().filter(|b| b.0 != found.tenant && !found.residency_known);
            let near = naive(near.map(|b| (b.1, b.2)));
            let (mut free, mut expected) = (mine[0].0, [0_i64; 4]);
            for (start, end) in &mine {
                let inside = |of: &BTreeSet<i64>| of.range(free.min(*start)..*start).count() as i64;
                let gap = (start - free).max(0);
                let beside = inside(&near).min(gap - inside(&away));
                for (sum, ns) in expected.iter_mut().zip([
                    gap - inside(&away) - beside,
                    inside(&away),
                    beside,
                    (end - free.max(*start)).max(0),
                ]) {
                    *sum += ns;
                }
                free = free.max(*end);
            }
            let sum = |of: fn(&Batch) -> i64| found.batches.iter().map(of).sum::<i64>();
            // Pauses before the work begins, in which nothing of anybody was in flight, are told by themselves.
            let [idle, absent] = [sum(|b| b.idle_ns), sum(|b| b.absent_ns)];
            prop_assert_eq!([sum(|b| b.beside_ns), sum(|b| b.busy_ns)], [expected[2], expected[3]]);
            prop_assert_eq!(idle + absent + found.startup_ns, expected[0] + expected[1]);
            prop_assert!(idle <= expected[0] && absent <= expected[1]);
            let any = naive(all.iter().map(|b| (b.1, b.2)));
            let nobody = (mine[0].0..free).filter(|ns| !any.contains(ns)).count() as i64;
            prop_assert!(found.startup_ns <= nobody);
            // n launches in batches of at least two, as equal as they can be.
            let (n, count) = (mine.len(), (mine.len() / 2).clamp(1, 20));
            let sizes: Vec<usize> = found.batches.iter().map(|b| b.launches as usize).collect();
            prop_assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (count, n));
            prop_assert!(sizes.iter().all(|size| *size == n / count || *size == n.div_ceil(count)));
            prop_assert_eq!(found.configurations.iter().map(|c| c.launches).sum::<u64>(), n as u64);
            let total = mine.iter().map(|(start, end)| end - start).sum::<i64>();
            prop_assert_eq!(found.configurations.iter().map(|c| c.total_ns).sum::<i64>(), total);
        }
    }

    #[test]
    fn overlaps_hold_against_counting(tables in session()) {
        let made = reconstruct(&tables, &Unwatched).unwrap();
        let o = Columns::new(&schema::OVERLAPS, &made["overlaps"]);
        for row in 0..o.rows() {
            let (a, b) = (o.u32("tenant_a").unwrap().value(row), o.u32("tenant_b").unwrap().value(row));
            let all = busy(&tables, &made, o.u32("device_id").unwrap().value(row));
            let of = |t: u32| naive(all.iter().filter(|b| b.0 == t).map(|b| (b.1, b.2)));
            if let Some(ns) = opt(o.i64("co_busy_ns").unwrap(), row) {
                prop_assert_eq!(ns, of(a).intersection(&of(b)).count() as i64);
                // All times are within one slice: a short kernel of either is contended from the moment the
                // other is first seen until it is last seen, and can meet only what is in flight.
                let n = o.u64("short_kernels").unwrap().value(row);
                prop_assert!(n <= all.iter().filter(|x| x.0 == a || x.0 == b).count() as u64);
                prop_assert!(o.u64("short_overlapping").unwrap().value(row) <= n);
                let short = o.u64("short_short_overlapping").unwrap().value(row);
                prop_assert!(short <= o.u64("short_overlapping").unwrap().value(row));
            }
        }
        for device in 0..2 {
            let facts = facts(&made, device);
            if facts.is_empty() {
                continue;
            }
            let all = busy(&tables, &made, device);
            let in_flight = |ns: i64| all.iter().filter(move |b| b.1 <= ns && ns < b.2);
            let count = |f: &dyn Fn(i64) -> bool| (0..RANGE).filter(|ns| f(*ns)).count() as f64;
            if let Some(value) = facts["co_busy_ns"] {
                let two = |ns: i64| in_flight(ns).map(|b| b.0).collect::<BTreeSet<_>>().len() > 1;
                prop_assert_eq!(value, count(&two));
            }
            if let Some(value) = facts["stream_overlap_ns"] {
                let most = all.iter().map(|b| b.0).collect::<BTreeSet<_>>().into_iter().map(|t| {
                    count(&|ns| (1..3).any(|context| {
                        let kernels = in_flight(ns).filter(|b| b.0 == t && b.3 == context && b.4.is_some());
                        kernels.map(|b| b.4).collect::<BTreeSet<_>>().len() > 1
                    }))
                });
                prop_assert_eq!(value, most.fold(0.0, f64::max));
            }
            if let Some(value) = facts["same_stream_overlap_ns"] {
                let most = all.iter().map(|b| b.0).collect::<BTreeSet<_>>().into_iter().map(|t| {
                    count(&|ns| (1..3).any(|context| (7..9).any(|stream| {
                        let one = |b: &&Busy| b.0 == t && b.3 == context && b.4 == Some(stream);
                        in_flight(ns).filter(one).count() > 1
                    })))
                });
                prop_assert_eq!(value, most.fold(0.0, f64::max));
            }
        }
    }

    #[test]
    fn every_device_has_every_fact_once(tables in session()) {
        let made = reconstruct(&tables, &Unwatched).unwrap();
        let c = Columns::new(&schema::FACTS, &made["facts"]);
        let mut devices: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for row in 0..c.rows() {
            devices.entry(c.u32("device_id").unwrap().value(row)).or_default().push(c.names("name").unwrap().get(row).unwrap());
            // A value that could not be had says why.
            prop_assert!(!c.text("detail").unwrap().value(row).is_empty());
            let value = c.f64("value").unwrap().iter().nth(row).flatten();
            prop_assert!(value.is_none_or(f64::is_finite));
        }
        let mut expected: Vec<&str> = FACTS.iter().map(|f| f.0).collect();
        expected.sort_unstable();
        for (_, mut names) in devices {
            names.sort_unstable();
            prop_assert_eq!(&names, &expected);
        }
    }

    #[test]
    fn slices_of_one_engine_never_overlap(tables in session()) {
        let made = reconstruct(&tables, &Unwatched).unwrap();
        let slices = Slice::read(&made["residency"]).unwrap();
        for device in 0..2 {
            let own: Vec<_> = slices.iter().filter(|s| s.device == device).collect();
            prop_assert!(own.windows(2).all(|w| w[0].end_ns <= w[1].start_ns), "{own:?}");
        }
    }

    #[test]
    fn every_step_stops_when_told(tables in session(), reports in 0_u64..40) {
        let mut seen = tables.clone();
        seen.extend(reconstruct(&tables, &Unwatched).unwrap());
        let cancelled = |outcome: Result<(), Error>| matches!(outcome, Ok(()) | Err(Error::Cancelled));
        let stop = || StopAfter::new(reports);
        let one = stop();
        prop_assert!(cancelled(Residency::default().run(&seen, &one).map(drop)));
        for zero in [true, false] {
            let stop = StopAfter::new(if zero { 0 } else { reports });
            let outcomes = [
                Residency::default().run(&seen, &stop).map(drop),
                Tenants::new(&seen).unwrap().run(&seen, &stop).map(drop),
                Overlap::new(&seen).unwrap().run(&seen, &stop).map(drop),
                Attribution::new(&seen).unwrap().run(&seen, &stop).map(drop),
                Facts::new(&seen).unwrap().run(&seen, &stop).map(drop),
                Launches::new(&seen).unwrap().run(&seen, &stop).map(drop),
                timeline(&seen, 0, RANGE, 5, &stop).map(drop),
                reconstruct(&tables, &stop).map(drop),
            ];
            for outcome in outcomes {
                prop_assert!(!zero || matches!(outcome, Err(Error::Cancelled)));
                prop_assert!(cancelled(outcome));
            }
        }
    }
}

#[test]
fn captures_with_nothing_give_empty_tables() {
    let empty = |t: &'static Table| (t.name, t.empty());
    for tables in [
        Tables::new(),
        [&schema::KERNELS, &schema::SWITCH_EVENTS, &schema::MEMOPS].into_iter().map(empty).collect(),
    ] {
        let made = reconstruct(&tables, &Unwatched).unwrap();
        assert_eq!(
            made.keys().copied().collect::<Vec<_>>(),
            [
                "fact_examples",
                "facts",
                "overlaps",
                "quality",
                "residency",
                "switches",
                "tenant_usage",
                "tenants"
            ]
        );
        assert!(made.values().all(|batch| batch.num_rows() == 0));
    }
}
