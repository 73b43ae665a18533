//! Check residency on real captures against what is known of them.
//!
//! The captures stand outside the repository; without them this says so and passes.

// A test may stop at the first surprise, also in its helpers.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::path::{Path, PathBuf};

use arrow_array::{Array, Int64Array, UInt16Array, UInt32Array, UInt64Array, UInt8Array};
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::pipeline::{attribution, reconstruct};
use pyanalyze_core::residency::observed::Slice;
use pyanalyze_core::table::builder::Builder;
use pyanalyze_core::table::columns::Columns;
use pyanalyze_core::table::events::Tables;
use pyanalyze_core::table::schema;
use rusqlite::{Connection, OpenFlags};

fn capture(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PYANALYZE_CORPUS").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus")),
        PathBuf::from,
    );
    let path = root.join("exports/ctxsw-ada-timeslice").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there; set PYANALYZE_CORPUS", path.display());
    None
}

/// Kernels and switch records only, read without the reader under test elsewhere. One GPU, one capture.
fn read(path: &Path) -> Tables {
    let uri = format!("file:{}?mode=ro&immutable=1", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri, flags).unwrap();
    let rows = |sql: &str, columns: usize| -> Vec<Vec<i64>> {
        let mut statement = db.prepare(sql).unwrap();
        let rows = statement.query_map([], |r| (0..columns).map(|c| r.get(c)).collect()).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let pid = |global: i64| ((global as u64 >> 24) & 0xFF_FFFF) as u32;
    let k = rows(
        "SELECT start, end, contextId, streamId, globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start",
        6,
    );
    let kernels = Builder::new(&schema::KERNELS)
        .put("capture", UInt32Array::from(vec![0; k.len()]))
        .put("pid", k.iter().map(|r| Some(pid(r[4]))).collect::<UInt32Array>())
        .put("device_id", UInt32Array::from(vec![0; k.len()]))
        .put("context_id", k.iter().map(|r| Some(r[2] as u32)).collect::<UInt32Array>())
        .put("stream_id", k.iter().map(|r| Some(r[3] as u32)).collect::<UInt32Array>())
        .put("correlation_id", k.iter().map(|r| Some(r[5] as u32)).collect::<UInt32Array>())
        .put("start_ns", k.iter().map(|r| Some(r[0])).collect::<Int64Array>())
        .put("end_ns", k.iter().map(|r| Some(r[1])).collect::<Int64Array>())
        .finish(k.len())
        .unwrap();
    let e = rows(
        "SELECT timestamp, tag, globalPid, contextId, seqNo FROM GPU_CONTEXT_SWITCH_EVENTS ORDER BY timestamp, seqNo",
        5,
    );
    let events = Builder::new(&schema::SWITCH_EVENTS)
        .put("capture", UInt32Array::from(vec![0; e.len()]))
        .put("device_id", UInt32Array::from(vec![0; e.len()]))
        .put("time_ns", e.iter().map(|r| Some(r[0])).collect::<Int64Array>())
        .put("tag", e.iter().map(|r| Some(r[1] as u8)).collect::<UInt8Array>())
        .put("pid", e.iter().map(|r| Some(pid(r[2]))).collect::<UInt32Array>())
        .put("hw_context", e.iter().map(|r| Some(r[3] as u64)).collect::<UInt64Array>())
        .put("sequence", e.iter().map(|r| Some(r[4] as u16)).collect::<UInt16Array>())
        .finish(e.len())
        .unwrap();
    Tables::from([("kernels", kernels), ("switch_events", events)])
}

fn facts(made: &Tables) -> std::collections::BTreeMap<String, Option<f64>> {
    let c = Columns::new(&schema::FACTS, &made["facts"]);
    let (names, values) = (c.names("name").unwrap(), c.f64("value").unwrap());
    (0..c.rows())
        .map(|r| (names.get(r).unwrap().to_owned(), values.is_valid(r).then(|| values.value(r))))
        .collect()
}

fn quality(made: &Tables) -> Vec<(String, u64)> {
    let c = Columns::new(&schema::QUALITY, &made["quality"]);
    let (names, counts) = (c.names("name").unwrap(), c.u64("count").unwrap());
    (0..c.rows()).map(|r| (names.get(r).unwrap().to_owned(), counts.value(r))).collect()
}

fn median_ms(slices: &[Slice], hw: u64) -> f64 {
    let mut durs: Vec<i64> =
        slices.iter().filter(|s| s.hw_context == hw && s.complete).map(Slice::dur_ns).collect();
    durs.sort_unstable();
    let n = durs.len();
    (durs[(n - 1) / 2] + durs[n / 2]) as f64 / 2e6
}

#[test]
fn two_time_sliced_processes_on_an_ada() {
    let Some(path) = capture("utils__report1.nsys2026.sqlite") else { return };
    let mut made = read(&path);
    made.extend(reconstruct(&made, &Unwatched).unwrap());
    made.extend(attribution(&made, &Unwatched).unwrap());
    let slices = Slice::read(&made["residency"]).unwrap();
    let complete = |hw: u64| slices.iter().filter(|s| s.hw_context == hw && s.complete).count();
    assert_eq!((complete(830), complete(814), complete(837)), (606, 607, 1));
    assert_eq!(format!("{:.3} {:.3}", median_ms(&slices, 830), median_ms(&slices, 814)), "2.131 2.135");

    let usage = Columns::new(&schema::TENANT_USAGE, &made["tenant_usage"]);
    let tenants = Columns::new(&schema::TENANTS, &made["tenants"]);
    assert_eq!(tenants.u32("host_pid").unwrap().values(), &[30428, 30398]);
    assert!(tenants.bool("traced").unwrap().value(0) && !tenants.bool("traced").unwrap().value(1));
    assert_eq!(tenants.text("hw_contexts").unwrap().value(0), "830,837");
    // Context 837 belongs to 30428 and was only created: it is not among its slices.
    assert_eq!(usage.u64("slices").unwrap().values(), &[606, 607]);

    let attributed = Columns::new(&schema::KERNEL_ATTRIBUTION, &made["kernel_attribution"]);
    assert_eq!(attributed.i64("start_ns").unwrap().values(), &[284_272_939]);
    assert_eq!(attributed.i64("end_ns").unwrap().values(), &[2_795_970_339]);
    let (held, out) = (
        attributed.i64("attributed_ns").unwrap().value(0),
        attributed.i64("switched_out_ns").unwrap().value(0),
    );
    assert_eq!(format!("{:.1} {:.1}", held as f64 / 1e6, (held + out) as f64 / 1e6), "1230.8 2511.7");

    let facts = facts(&made);
    assert_eq!(format!("{:.1}", facts["median_gap_ns"].unwrap() / 1e3), "42.7");
    assert_eq!(facts["switch_records"], Some(2430.0));
    assert_eq!(facts["resident_tenants"], Some(2.0));
    assert_eq!(facts["traced_tenants"], Some(1.0));
    assert_eq!(facts["co_resident_ns"], Some(0.0));
    assert!(facts["alternation_share"].unwrap() > 0.99, "{facts:?}");
    // 42.7 us lost in about 2.13 + 0.043 ms of every turn.
    assert!((facts["switch_overhead_share"].unwrap() - 0.02).abs() < 0.003, "{facts:?}");
    assert_eq!(facts["metric_outside_pct"], None);

    // The untraced process was resident when recording began and ended; no record is lost.
    let expected = [("switch_end_without_start".to_owned(), 1), ("switch_start_without_end".to_owned(), 1)];
    assert_eq!(quality(&made), expected);
    let kinds = Columns::new(&schema::SWITCHES, &made["switches"]);
    let kinds = kinds.names("kind").unwrap();
    let creation = (0..made["switches"].num_rows()).filter(|r| kinds.get(*r) == Some("creation")).count();
    assert!(creation >= 2, "into and out of 837");
}

#[test]
fn page_faulting_victims_beside_an_untraced_process() {
    // name, records, complete slices, leading saves: counted by hand from the tags of each file
    for (name, records, complete, leading) in [
        ("paging__ada-1.nsys2026.sqlite", 122.0, 60, 1),
        ("paging__ada-sync-iteration.nsys2026.sqlite", 162.0, 80, 1),
        ("paging__report1.nsys2026.sqlite", 161.0, 80, 0),
    ] {
        let Some(path) = capture(name) else { return };
        let made = reconstruct(&read(&path), &Unwatched).unwrap();
        let slices = Slice::read(&made["residency"]).unwrap();
        assert_eq!(facts(&made)["switch_records"], Some(records), "{name}");
        assert_eq!(slices.iter().filter(|s| s.complete).count(), complete, "{name}");
        let open: Vec<_> = slices.iter().filter(|s| s.ending.word() == "open").collect();
        assert_eq!(open.len(), 1, "{name}");
        assert!(!open[0].complete && open[0].start_ns == slices.last().unwrap().start_ns);
        let mut expected = vec![("switch_start_without_end".to_owned(), 1)];
        if leading > 0 {
            expected.insert(0, ("switch_end_without_start".to_owned(), 1));
        }
        assert_eq!(quality(&made), expected, "{name}");
    }
}
