//! Feed switch records in any order, with gaps, wraps and impossible times, to the residency state machine.
//!
//! Residency intervals of one engine must not overlap, none may end before it begins, and both ends of a complete
//! interval must be records.
#![no_main]

use arrow_array::{Int64Array, RecordBatch, UInt16Array, UInt32Array, UInt64Array, UInt8Array};
use libfuzzer_sys::fuzz_target;
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::pipeline::reconstruct;
use pyanalyze_core::residency::observed::Slice;
use pyanalyze_core::table::schema;
use pyanalyze_core::table::builder::Builder;
use pyanalyze_core::table::events::Tables;
use pyanalyze_fuzz::answer;

struct Record {
    time_ns: i64,
    tag: u8,
    device: u32,
    hw_context: u64,
    pid: Option<u32>,
    sequence: u16,
    /// Of a kernel instead.
    kernel_ns: Option<i64>,
}

/// Eight bytes a record: what it is, tag, device and context, pid, step of the sequence, step in time (2), its scale.
fn records(bytes: &[u8]) -> Vec<Record> {
    let mut time_ns = 0_i64;
    let mut sequence = [0_u16; 4];
    let mut all: Vec<Record> = bytes
        .chunks_exact(8)
        .take(400)
        .map(|b| {
            let step = i64::from(u16::from_le_bytes([b[5], b[6]]));
            time_ns = match b[7] {
                255 => i64::MAX - step,
                254 => i64::MIN + step,
                253 => -step,
                scale => time_ns.saturating_add(step << (scale % 24)),
            };
            let device = usize::from(b[2] & 3);
            sequence[device] = sequence[device].wrapping_add(u16::from(b[4] & 127) << (b[4] >> 7 << 3));
            Record {
                time_ns,
                tag: if b[1] > 250 { b[1] } else { b[1] % 12 },
                device: device as u32,
                hw_context: u64::from(b[2] >> 2) % 5,
                pid: (b[3] < 250).then_some(u32::from(b[3] % 6)),
                sequence: sequence[device],
                kernel_ns: (b[0] > 200).then_some(step << (b[0] % 24)),
            }
        })
        .collect();
    all.sort_by_key(|r| r.time_ns);
    all
}

fn table(records: &[Record]) -> RecordBatch {
    let rows: Vec<&Record> = records.iter().filter(|r| r.kernel_ns.is_none()).collect();
    Builder::new(&schema::SWITCH_EVENTS)
        .put("capture", UInt32Array::from(vec![0; rows.len()]))
        .put("device_id", rows.iter().map(|r| Some(r.device)).collect::<UInt32Array>())
        .put("time_ns", rows.iter().map(|r| Some(r.time_ns)).collect::<Int64Array>())
        .put("tag", rows.iter().map(|r| Some(r.tag)).collect::<UInt8Array>())
        .put("pid", rows.iter().map(|r| r.pid).collect::<UInt32Array>())
        .put("hw_context", rows.iter().map(|r| Some(r.hw_context)).collect::<UInt64Array>())
        .put("sequence", rows.iter().map(|r| Some(r.sequence)).collect::<UInt16Array>())
        .finish(rows.len())
        .expect("the declared columns")
}

fn kernels(records: &[Record]) -> RecordBatch {
    let rows: Vec<(&Record, i64)> = records.iter().filter_map(|r| Some((r, r.kernel_ns?))).collect();
    Builder::new(&schema::KERNELS)
        .put("capture", UInt32Array::from(vec![0; rows.len()]))
        .put("pid", rows.iter().map(|(r, _)| r.pid).collect::<UInt32Array>())
        .put("device_id", rows.iter().map(|(r, _)| Some(r.device)).collect::<UInt32Array>())
        .put("context_id", rows.iter().map(|(r, _)| Some(r.hw_context as u32 + 1)).collect::<UInt32Array>())
        .put("stream_id", rows.iter().map(|(r, _)| Some(u32::from(r.tag))).collect::<UInt32Array>())
        .put("correlation_id", (0..).take(rows.len()).map(Some).collect::<UInt32Array>())
        .put("start_ns", rows.iter().map(|(r, _)| Some(r.time_ns)).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|(r, ns)| Some(r.time_ns.saturating_add(*ns))).collect::<Int64Array>())
        .put_names("name", rows.iter().map(|_| Some("k")))
        .finish(rows.len())
        .expect("the declared columns")
}

fuzz_target!(|bytes: &[u8]| {
    let records = records(bytes);
    let session = Tables::from([("switch_events", table(&records)), ("kernels", kernels(&records))]);
    let Some(whole) = answer(reconstruct(&session, &Unwatched)) else { return };
    let slices = Slice::read(&whole["residency"]).expect("a table of slices");
    for device in 0..4 {
        let own: Vec<&Slice> = slices.iter().filter(|s| s.device == device).collect();
        assert!(own.windows(2).all(|w| w[0].end_ns <= w[1].start_ns), "slices overlap");
        assert!(own.iter().all(|s| s.start_ns <= s.end_ns), "a slice ends before it begins");
        for slice in own.iter().filter(|s| s.complete) {
            for end in [slice.start_ns, slice.end_ns] {
                let recorded = |r: &Record| r.kernel_ns.is_none() && r.device == device && r.time_ns == end;
                assert!(records.iter().any(recorded), "a complete slice without its record");
            }
        }
    }
});
