//! Bytes worked out by hand from the protobuf wire format.

use super::*;
use crate::base::watch::{StopAfter, Unwatched};
use crate::table::builder::Builder;
use arrow_array::{Float64Array, RecordBatch, UInt32Array};

fn made(fill: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut message = Message::default();
    fill(&mut message);
    message.0
}

#[test]
fn fields_have_the_bytes_of_the_wire_format() {
    // 150 = 0b1_0010110: low seven bits 0x16 with the high bit set, then 1.
    assert_eq!(made(|m| m.uint(1, 150)), [0x08, 0x96, 0x01]);
    assert_eq!(made(|m| m.uint(1, 0)), [0x08, 0x00]);
    assert_eq!(made(|m| m.uint(1, 127)), [0x08, 0x7f]);
    assert_eq!(made(|m| m.uint(1, 128)), [0x08, 0x80, 0x01]);
    // Field 16 no longer fits a tag of one byte: 16 << 3 = 128.
    assert_eq!(made(|m| m.uint(16, 1)), [0x80, 0x01, 0x01]);
    let most = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(made(|m| m.uint(1, u64::MAX)), most);
    assert_eq!(made(|m| m.int(1, -1)), most);
    // 44 << 3 | 1 = 353 = 0b10_1100001; 1.0 is 0x3ff0 followed by zeros, little endian.
    assert_eq!(made(|m| m.double(44, 1.0)), [0xe1, 0x02, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
    assert_eq!(made(|m| m.text(2, "é")), [0x12, 0x02, 0xc3, 0xa9]);
    let inner = Message(vec![0x08, 0x01]);
    assert_eq!(made(|m| m.message(3, &inner)), [0x1a, 0x02, 0x08, 0x01]);
}

#[test]
fn text_is_declared_once_and_written_in_place_when_there_is_too_much() {
    let mut interned = Interned::new(2);
    let mut data = Message::default();
    assert_eq!(interned.id("a", &mut data), Some(1));
    // EventName in field 2: four bytes, iid 1, one byte of text.
    assert_eq!(data.0, [0x12, 0x05, 0x08, 0x01, 0x12, 0x01, b'a']);
    let before = data.clone();
    assert_eq!(interned.id("a", &mut data), Some(1));
    assert_eq!(data, before);
    for n in 1..MAX_INTERNED {
        interned.id(&n.to_string(), &mut Message::default());
    }
    assert_eq!(interned.id("one too many", &mut data), None);
    assert_eq!(data, before);
}

fn kernels(rows: &[(i64, i64)]) -> RecordBatch {
    let n = rows.len();
    Builder::new(&schema::KERNELS)
        .put("capture", UInt32Array::from(vec![0; n]))
        .put("device_id", UInt32Array::from(vec![0; n]))
        .put("start_ns", rows.iter().map(|r| r.0).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| r.1).collect::<Int64Array>())
        .finish(n)
        .unwrap()
}

/// (field, wire type 0 and 1: value, wire type 2: bytes), the reverse of the encoder, written apart from it.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = vec![];
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => found.push((tag >> 3, varint(&mut bytes), vec![])),
            1 => {
                found.push((tag >> 3, u64::from_le_bytes(bytes[..8].try_into().unwrap()), vec![]));
                bytes = &bytes[8..];
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                found.push((tag >> 3, 0, bytes[..length].to_vec()));
                bytes = &bytes[length..];
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn first(found: &[(u64, u64, Vec<u8>)], field: u64) -> Option<u64> {
    found.iter().find(|f| f.0 == field).map(|f| f.1)
}

/// (time, type, track, value as bits) of every event.
fn events(tables: &Tables) -> Vec<(u64, u64, u64, Option<u64>)> {
    let mut out = vec![];
    let written = write(tables, &mut out, Path::new("out"), &Unwatched).unwrap();
    let mut found = vec![];
    for (field, _, packet) in fields(&out) {
        assert_eq!(field, 1);
        let packet = fields(&packet);
        assert_eq!(first(&packet, 10), Some(1));
        if let Some((_, _, event)) = packet.iter().find(|f| f.0 == 11) {
            let event = fields(event);
            let (kind, track) = (first(&event, 9).unwrap(), first(&event, 11).unwrap());
            found.push((first(&packet, 8).unwrap(), kind, track, first(&event, 44)));
        }
    }
    assert_eq!(written, found.len() as u64);
    found
}

#[test]
fn overlapping_kernels_get_lanes_and_touching_ones_do_not() {
    // Not sorted on purpose; one that ends before it starts; one of no length.
    let found = events(&[("kernels", kernels(&[(5, 15), (0, 10), (10, 20), (30, 25), (30, 30)]))].into());
    // Tracks: 1 about, 2 device, 3 no tenant, 4 kernels, 5 their second lane.
    let expected = [
        (0, 3, 1),
        (0, 1, 4),
        (5, 1, 5),
        (10, 2, 4),
        (10, 1, 4),
        (15, 2, 5),
        (20, 2, 4),
        (30, 1, 4),
        (30, 2, 4),
        (30, 1, 4),
        (30, 2, 4),
    ];
    assert_eq!(found.iter().map(|e| (e.0, e.1, e.2)).collect::<Vec<_>>(), expected);
}

#[test]
fn times_before_zero_are_shifted_and_the_widest_span_fits() {
    let found = events(&[("kernels", kernels(&[(-7, -2), (3, 4)]))].into());
    assert_eq!(found.iter().map(|e| e.0).collect::<Vec<_>>(), [0, 0, 5, 10, 11]);
    let found = events(&[("kernels", kernels(&[(i64::MIN, i64::MAX)]))].into());
    assert_eq!(found.iter().map(|e| e.0).collect::<Vec<_>>(), [0, 0, u64::MAX]);
    // Later than zero nothing moves.
    let found = events(&[("kernels", kernels(&[(100, 101)]))].into());
    assert_eq!(found.iter().map(|e| e.0).collect::<Vec<_>>(), [100, 100, 101]);
}

#[test]
fn the_model_ends_at_zero_where_its_bins_end() {
    let batch = Builder::new(&schema::SM_OCCUPANCY)
        .put("device_id", UInt32Array::from(vec![0, 0, 0]))
        .put("tenant_id", UInt32Array::from(vec![0, 0, 1]))
        .put("start_ns", Int64Array::from(vec![0, 10, 0]))
        .put("end_ns", Int64Array::from(vec![10, 20, 20]))
        .put("warps", Float64Array::from(vec![0.25, 0.5, 1.0]))
        .put("warps_low", Float64Array::from(vec![0.2, 0.4, 0.9]))
        .put("warps_high", Float64Array::from(vec![0.3, 0.6, 1.0]))
        .put("sm_active", Float64Array::from(vec![0.25, 0.5, 1.0]))
        .put_names("basis", [Some("modelled"); 3])
        .finish(3)
        .unwrap();
    let found = events(&[("sm_occupancy", batch)].into());
    let bits = |v: f64| Some(v.to_bits());
    let values: Vec<_> = found.iter().skip(1).map(|e| (e.0, e.3)).collect();
    let expected = [
        (0, 0.25),
        (0, 0.25),
        (0, 1.0),
        (0, 1.0),
        (10, 0.5),
        (10, 0.5),
        (20, 0.0),
        (20, 0.0),
        (20, 0.0),
        (20, 0.0),
    ];
    assert_eq!(values, expected.map(|(time, value)| (time, bits(value))));
}

#[test]
fn it_stops_when_told_and_says_where_writing_failed() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let tables: Tables = [("kernels", kernels(&[(0, 1)]))].into();
    let stopped = write(&tables, &mut vec![], Path::new("out"), &StopAfter::new(0));
    assert!(matches!(stopped, Err(Error::Cancelled)));
    let failed = write(&tables, &mut Full, Path::new("some/place"), &Unwatched).unwrap_err();
    assert!(failed.to_string().contains("cannot write some/place"), "{failed}");
}
