//! Merge intervals to the number of marks that a chart can show.
//!
//! A track with a million kernels is a solid bar on any screen. Intervals closer than a pixel are merged into one mark,
//! which keeps how busy it was inside.
//!
//! ```text
//!   kernels   |a|a||b|   |a|                 |c|
//!   marks     [ 5 events, busy 70 % ]        [c]
//! ```

use arrow_array::{Int64Array, RecordBatch, UInt32Array, UInt64Array};

use crate::base::error::{Error, Result};
use crate::base::intervals::Growing;
use crate::base::maps::ByKey;
use crate::base::watch::Watch;
use crate::residency::observed::Slice;
use crate::table::builder::Builder;
use crate::table::columns::Columns;
use crate::table::events::{Events, Tables};
use crate::table::schema;
use crate::table::tenant_lookup::{LastTenant, Who};
use crate::table::work::{work, WorkKind};

#[derive(Debug)]
struct Mark {
    start_ns: i64,
    end_ns: i64,
    busy: Growing,
    events: u64,
    label: Option<String>,
}

type Track = (u32, Option<u32>, &'static str);

/// Marks per device, tenant and track inside `[start_ns, end_ns)`, at most `max_marks` per track.
///
/// # Errors
/// [`Error::Argument`] for an empty window or no marks, [`Error::Schema`] for tables that are not what
/// they are declared to be, [`Error::Cancelled`].
pub fn timeline(
    tables: &Tables,
    start_ns: i64,
    end_ns: i64,
    max_marks: usize,
    watch: &dyn Watch,
) -> Result<RecordBatch> {
    if start_ns >= end_ns || max_marks == 0 {
        return Err(Error::Argument(format!(
            "a timeline needs a window and at least one mark; got {start_ns}..{end_ns} ns and {max_marks} marks"
        )));
    }
    let who = Who::read(tables)?;
    let kernels = tables.get(schema::KERNELS.name).map(|b| Columns::new(&schema::KERNELS, b));
    let names = match &kernels {
        Some(columns) => Some((columns.names("short_name")?, columns.names("name")?)),
        None => None,
    };
    let whole = Events::of(tables);
    let mut tracks: ByKey<Track, Vec<Mark>> = ByKey::default();
    // With gaps of at least this between marks, no more than max_marks fit: one that begins the track needs
    // no gap before it, hence the division by one less.
    let step = i64::try_from(max_marks).unwrap_or(i64::MAX).saturating_sub(1);
    let window_ns = end_ns.saturating_sub(start_ns);
    let pixel_ns = if step == 0 { i64::MAX } else { window_ns.div_euclid(step).saturating_add(1) };
    let mut add = |track: Track, from: i64, to: i64, label: Option<&str>| {
        let (from, to) = (from.max(start_ns), to.min(end_ns));
        // Something of no length at the edge of the window still happened inside it or did not.
        if from > to || from >= end_ns || (to == start_ns && from < to) {
            return;
        }
        let Some(marks) = tracks.entry(track) else { return };
        match marks.last_mut() {
            Some(last) if from.saturating_sub(last.end_ns) < pixel_ns => {
                last.end_ns = last.end_ns.max(to);
                last.busy.add(from, to);
                last.events = last.events.saturating_add(1);
                if last.label.as_deref() != label {
                    last.label = None;
                }
            }
            _ => {
                let mut busy = Growing::default();
                busy.add(from, to);
                let label = label.map(str::to_owned);
                marks.push(Mark { start_ns: from, end_ns: to, busy, events: 1, label });
            }
        }
    };
    let mut last = LastTenant::default();
    for (n, w) in work(&whole)?.enumerate() {
        if n.is_multiple_of(4096) {
            watch.progress("timeline", n as u64, 0)?;
        }
        if w.end_ns < start_ns || w.start_ns >= end_ns || (w.end_ns == start_ns && w.start_ns < w.end_ns) {
            continue;
        }
        let track = match w.kind {
            WorkKind::Kernel => "kernels",
            WorkKind::Graph => "graphs",
            WorkKind::Copy => "copies",
        };
        let label = match (&names, w.kind) {
            (Some((short, long)), WorkKind::Kernel) => short.get(w.row).or_else(|| long.get(w.row)),
            _ => None,
        };
        let tenant = who.of_next(&mut last, w.capture, w.pid, w.device);
        add((w.device, tenant, track), w.start_ns, w.end_ns, label);
    }
    let slices = tables.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
    for (n, s) in slices.iter().enumerate() {
        if n.is_multiple_of(4096) {
            watch.progress("timeline", n as u64, 0)?;
        }
        if s.end_ns > start_ns && s.start_ns < end_ns {
            add((s.device, s.tenant, "residency"), s.start_ns, s.end_ns, None);
        }
    }
    if let Some(batch) = tables.get(schema::INFERRED_RESIDENCY.name) {
        let c = Columns::new(&schema::INFERRED_RESIDENCY, batch);
        let (device, tenant) = (c.u32("device_id")?, c.u32("tenant_id")?);
        let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
        for row in 0..c.rows() {
            if row.is_multiple_of(4096) {
                watch.progress("timeline", row as u64, 0)?;
            }
            if end.value(row) > start_ns && start.value(row) < end_ns {
                let track = (device.value(row), Some(tenant.value(row)), "inferred residency");
                add(track, start.value(row), end.value(row), None);
            }
        }
    }
    watch.progress("timeline", 1, 1)?;
    let rows: Vec<(Track, &Mark)> =
        tracks.sorted().flat_map(|(track, marks)| marks.iter().map(move |m| (track, m))).collect();
    Builder::new(&schema::TIMELINE)
        .put("device_id", rows.iter().map(|(l, _)| Some(l.0)).collect::<UInt32Array>())
        .put("tenant_id", rows.iter().map(|(l, _)| l.1).collect::<UInt32Array>())
        .put_names("track", rows.iter().map(|(l, _)| Some(l.2)))
        .put("start_ns", rows.iter().map(|(_, m)| Some(m.start_ns)).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|(_, m)| Some(m.end_ns)).collect::<Int64Array>())
        .put("busy_ns", rows.iter().map(|(_, m)| Some(m.busy.total_ns)).collect::<Int64Array>())
        .put("events", rows.iter().map(|(_, m)| Some(m.events)).collect::<UInt64Array>())
        .put_names("label", rows.iter().map(|(_, m)| m.label.as_deref()))
        .finish(rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::{StopAfter, Unwatched};
    use crate::table::columns::Columns;
    use crate::test_tables::{kernels, named, residency};

    #[test]
    fn neighbours_merge_and_the_window_clips() {
        // window 0..1000 us, 11 marks: gaps up to 100 us vanish
        // kernels  |-50==20|  |90=110|        |300==400|      |990====1200|
        let (tables, _) = named(Tables::from([
            (
                "kernels",
                kernels(&[
                    (0, 7, 0, 1, 7, -50, 20),
                    (0, 7, 0, 1, 7, 90, 110),
                    (0, 7, 0, 1, 7, 300, 400),
                    (0, 7, 0, 1, 7, 990, 1200),
                    (0, 7, 0, 1, 7, 1000, 1100),
                ]),
            ),
            ("residency", residency(&[(0, 0, 7, 1, -100, 0), (0, 0, 7, 1, 500, 600)])),
        ]));
        let batch = timeline(&tables, 0, 1_000_000, 11, &Unwatched).unwrap();
        let c = Columns::new(&schema::TIMELINE, &batch);
        assert_eq!(c.i64("start_ns").unwrap().values(), &[0, 300_000, 990_000, 500_000]);
        assert_eq!(c.i64("end_ns").unwrap().values(), &[110_000, 400_000, 1_000_000, 600_000]);
        assert_eq!(c.i64("busy_ns").unwrap().values(), &[40_000, 100_000, 10_000, 100_000]);
        assert_eq!(c.u64("events").unwrap().values(), &[2, 1, 1, 1]);
        assert_eq!(c.names("label").unwrap().get(0), Some("k"));
        assert_eq!(c.names("track").unwrap().get(3), Some("residency"));
    }

    #[test]
    fn a_track_never_has_more_marks_than_asked_for() {
        let rows: Vec<_> = (0..1000).map(|n| (0, 7, 0, 1, 7, n * 10, n * 10)).collect();
        let (tables, _) = named(Tables::from([("kernels", kernels(&rows))]));
        for max in [1, 2, 3, 50, 999, 5000] {
            let batch = timeline(&tables, 0, 10_000_000, max, &Unwatched).unwrap();
            assert!((1..=max).contains(&batch.num_rows()), "{max}: {}", batch.num_rows());
            let events: u64 =
                Columns::new(&schema::TIMELINE, &batch).u64("events").unwrap().values().iter().sum();
            assert_eq!(events, 1000);
        }
    }

    #[test]
    fn wrong_windows_nothing_and_cancellation() {
        let empty = Tables::new();
        assert!(timeline(&empty, 5, 5, 10, &Unwatched).unwrap_err().to_string().contains("window"));
        assert!(timeline(&empty, 0, 5, 0, &Unwatched).is_err());
        assert_eq!(timeline(&empty, 0, 5, 10, &Unwatched).unwrap().num_rows(), 0);
        assert!(matches!(timeline(&empty, 0, 5, 10, &StopAfter::new(0)), Err(Error::Cancelled)));
    }
}
