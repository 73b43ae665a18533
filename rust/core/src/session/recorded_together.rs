//! Find when all captures of a device recorded, where one of them began later or ended earlier than another.
//!
//! ```text
//!   capture A   |==k=k==k=k==k=k==|
//!   capture B              |=k==k=k==k===k==k|
//!               | B unknown| both | A unknown|
//! ```
//!
//! What a process did while its capture did not record is not known: another one was not solo then. The recording decides,
//! not the first kernel: a process that had no work while it was recorded had none. Nor had one whose recording began with
//! it, as `nsys profile PROGRAM` does.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::Array;

use crate::base::error::Result;
use crate::table::columns::{at, Columns};
use crate::table::events::Tables;
use crate::table::parts::{spans, PartOfTime, Span};
use crate::table::quality::{self, Quality};
use crate::table::schema;

/// From the begin of a program to its first work at least: CUDA is loaded and a context created, which took 265 ms and more in
/// real recordings. Where work was seen sooner, the program had begun before its recording.
const LEAST_START_NS: i64 = 20_000_000;

/// Devices of which several captures have kernels and do not all cover the time of these.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be.
fn parts(session: &Tables) -> Result<BTreeMap<u32, PartOfTime>> {
    let recordings = recordings(session)?;
    if recordings.len() < 2 {
        return Ok(BTreeMap::new());
    }
    let tables = [&schema::KERNELS, &schema::GRAPH_LAUNCHES];
    let kernels = spans(session, &tables)?;
    let mut together: BTreeMap<u32, Option<Span>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for table in tables {
        let Some(batch) = session.get(table.name) else { continue };
        let c = Columns::new(table, batch);
        let (capture, device) = (c.u32("capture")?, c.u32("device_id")?);
        for (device, capture) in device.values().iter().zip(capture.values()) {
            if seen.insert((*device, *capture)) {
                // One of which the time is not known says nothing of when it recorded together with another.
                let here = recordings.get(capture).copied().flatten();
                let known = together.entry(*device).or_insert(here);
                *known = known.zip(here).map(|(a, b)| (a.0.max(b.0), a.1.min(b.1)));
            }
        }
    }
    let several = |device: &u32| seen.range((*device, 0)..=(*device, u32::MAX)).count() > 1;
    // Captures that never recorded at the same time have nothing in common that could be compared.
    let together =
        together.into_iter().filter_map(|(device, span)| Some((device, span.filter(|s| s.0 < s.1)?)));
    let part = |(device, span)| Some((device, PartOfTime::of(span, *kernels.get(&device)?)?));
    Ok(together.filter(|(device, _)| several(device)).filter_map(part).collect())
}

/// When each capture recorded, on the clock of the session; `None`: it cannot be placed there. It has all of the time before
/// its program began.
fn recordings(session: &Tables) -> Result<BTreeMap<u32, Option<Span>>> {
    let Some(batch) = session.get(schema::CAPTURE.name) else { return Ok(BTreeMap::new()) };
    let c = Columns::new(&schema::CAPTURE, batch);
    let (capture, uncertainty) = (c.u32("capture")?, c.i64("clock_uncertainty_ns")?);
    let (start, end) = (c.i64("recording_start_ns")?, c.i64("recording_end_ns")?);
    let (first, last) = (c.i64("start_ns")?, c.i64("end_ns")?);
    let of = |row| {
        let recorded = at(start, row).zip(at(end, row)).or(at(first, row).zip(at(last, row)));
        let began = |from: i64| at(first, row).is_some_and(|ns| ns.saturating_sub(from) > LEAST_START_NS);
        let recorded = recorded.map(|(from, to)| (if began(from) { i64::MIN } else { from }, to));
        (capture.value(row), recorded.filter(|_| uncertainty.is_valid(row)))
    };
    Ok((0..c.rows()).map(of).collect())
}

/// From when to when all captures of a device recorded, by device, where that is notably less than the time of its kernels.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be.
pub(crate) fn times(session: &Tables) -> Result<BTreeMap<u32, Span>> {
    Ok(parts(session)?.into_iter().map(|(device, part)| (device, part.recorded)).collect())
}

/// Says of each such device how much of the time of its kernels all captures cover.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be.
pub(crate) fn count(session: &Tables, quality: &mut Quality) -> Result<()> {
    for part in parts(session)?.into_values() {
        quality.add(None, quality::CAPTURES_PARTLY_TOGETHER, 1, part.text());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::builder::{replace, Builder};
    use crate::test_tables::kernels;
    use arrow_array::{BooleanArray, Int64Array, StringArray, UInt32Array};
    use std::sync::Arc;

    /// Captures by when they recorded, in us, with a kernel of each from the begin of its recording to its end.
    fn session(recorded_us: &[(i64, i64)]) -> Tables {
        let numbers = || 0..recorded_us.len() as u32;
        let times = |f: fn(&(i64, i64)) -> i64| -> Int64Array {
            recorded_us.iter().map(|r| Some(f(r) * 1000)).collect()
        };
        let names = || -> StringArray { numbers().map(|_| Some("n")).collect() };
        let rows: Vec<_> = numbers().zip(recorded_us).map(|(n, r)| (n, 7 + n, 0, 1, 7, r.0, r.1)).collect();
        let captures = Builder::new(&schema::CAPTURE)
            .put("capture", numbers().map(Some).collect::<UInt32Array>())
            .put("path", names())
            .put("size_bytes", times(|_| 0))
            .put("export_shift_ns", times(|_| 0))
            .put("export_normalized", BooleanArray::from(vec![false; recorded_us.len()]))
            .put("synthetic", BooleanArray::from(vec![true; recorded_us.len()]))
            .put("start_ns", times(|r| r.0))
            .put("end_ns", times(|r| r.1))
            .put("recording_start_ns", times(|r| r.0))
            .put("recording_end_ns", times(|r| r.1))
            .put("clock_offset_ns", times(|_| 0))
            .put("clock_uncertainty_ns", times(|_| 0))
            .finish(recorded_us.len())
            .unwrap();
        Tables::from([("capture", captures), ("kernels", kernels(&rows))])
    }

    #[test]
    fn the_time_that_all_captures_recorded_counts() {
        let found = times(&session(&[(0, 1000), (600, 1600)])).unwrap();
        assert_eq!(found, BTreeMap::from([(0, (600_000, 1_000_000))]));
        let mut quality = Quality::default();
        count(&session(&[(0, 1_000_000), (600_000, 1_600_000)]), &mut quality).unwrap();
        assert_eq!(quality.count(quality::CAPTURES_PARTLY_TOGETHER), 1);
        // Of recordings of the same time, and of one alone, there is nothing to leave out.
        assert!(times(&session(&[(0, 1000), (10, 1010)])).unwrap().is_empty());
        assert!(times(&session(&[(0, 1000)])).unwrap().is_empty());
        // Nor of those that never met.
        assert!(times(&session(&[(0, 1000), (1500, 2500)])).unwrap().is_empty());
    }

    #[test]
    fn a_program_that_began_with_its_recording_had_no_work_before() {
        // The second program had work from the begin of its recording on, or 30 ms later.
        for (first_us, expected) in [(600_000, Some((600_000_000, 1_000_000_000))), (630_000, None)] {
            let mut tables = session(&[(0, 1_000_000), (600_000, 1_000_000)]);
            let starts: Int64Array = [Some(0), Some(first_us * 1000)].into_iter().collect();
            let captures =
                replace(&schema::CAPTURE, &tables["capture"], vec![("start_ns", Arc::new(starts))]);
            tables.insert("capture", captures.unwrap());
            assert_eq!(times(&tables).unwrap().get(&0).copied(), expected);
        }
    }

    #[test]
    fn a_process_without_work_while_it_was_recorded_had_none() {
        let mut tables = session(&[(0, 1000), (0, 1000)]);
        tables.insert("kernels", kernels(&[(0, 7, 0, 1, 7, 0, 1000), (1, 8, 0, 1, 7, 700, 1000)]));
        assert!(times(&tables).unwrap().is_empty());
    }
}
