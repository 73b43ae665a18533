//! Small tables for tests.

use arrow_array::{Int64Array, RecordBatch, UInt32Array};

use crate::identity::tenants::Tenants;
use crate::residency::observed::Slice;
use crate::table::builder::Builder;
use crate::table::events::{EventPass, Tables};
use crate::table::quality::Quality;
use crate::table::schema;

/// One kernel: capture, pid, device, context, stream, start, end in us.
pub type K = (u32, u32, u32, u32, u32, i64, i64);

/// `kernels`, all of one name, sorted.
pub fn kernels(rows: &[K]) -> RecordBatch {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|r| r.5);
    let n = rows.len();
    Builder::new(&schema::KERNELS)
        .put("capture", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
        .put("pid", rows.iter().map(|r| Some(r.1)).collect::<UInt32Array>())
        .put("device_id", rows.iter().map(|r| Some(r.2)).collect::<UInt32Array>())
        .put("context_id", rows.iter().map(|r| Some(r.3)).collect::<UInt32Array>())
        .put("stream_id", rows.iter().map(|r| Some(r.4)).collect::<UInt32Array>())
        .put("start_ns", rows.iter().map(|r| Some(r.5 * 1000)).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| Some(r.6 * 1000)).collect::<Int64Array>())
        .put_names("name", rows.iter().map(|_| Some("k")))
        .finish(n)
        .unwrap()
}

/// A table of GPU work of one stream (capture 0, pid 7, device 0, context 1, stream 7), from when to when in ns:
/// what it needs. To be finished.
pub fn of_one_stream(table: &'static schema::Table, rows: &[(i64, i64)]) -> Builder {
    let same = |v: u32| UInt32Array::from(vec![v; rows.len()]);
    let builder = Builder::new(table)
        .put("capture", same(0))
        .put("pid", same(7))
        .put("device_id", same(0))
        .put("context_id", same(1))
        .put("stream_id", same(7))
        .put("start_ns", rows.iter().map(|r| Some(r.0)).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| Some(r.1)).collect::<Int64Array>());
    let names = rows.iter().map(|_| Some("n"));
    match table.name {
        "kernels" => builder.put_names("name", names),
        "memops" => {
            let bytes = Int64Array::from(vec![1; rows.len()]);
            builder.put_names("operation", names).put("bytes", bytes)
        }
        _ => builder,
    }
}

/// One complete slice: capture, device, pid, context, start, end in us. Pid 0: not known.
pub fn slice(row: (u32, u32, u32, u64, i64, i64)) -> Slice {
    Slice {
        capture: row.0,
        device: row.1,
        tenant: None,
        pid: (row.2 > 0).then_some(row.2),
        hw_context: row.3,
        start_ns: row.4 * 1000,
        end_ns: row.5 * 1000,
        running_start_ns: None,
        running_end_ns: None,
        ending: crate::residency::observed::Ending::Unknown,
        complete: true,
        observed: true,
    }
}

/// `residency`.
pub fn residency(rows: &[(u32, u32, u32, u64, i64, i64)]) -> RecordBatch {
    let mut slices: Vec<_> = rows.iter().copied().map(slice).collect();
    slices.sort_by_key(|s| s.start_ns);
    Slice::write(&slices).unwrap()
}

/// The session with tenants named.
pub fn named(mut tables: Tables) -> (Tables, Quality) {
    let out = Tenants::new(&tables).unwrap().run(&tables, &crate::base::watch::Unwatched).unwrap();
    tables.insert("tenants", out.tenants);
    tables.insert("residency", out.residency);
    tables.insert("switches", out.switches);
    (tables, out.quality)
}
