//! Find where switch records cover only a part of the time in which kernels were recorded.
//!
//! ```text
//!   kernels     |=k==k=k===k==k==k=k===k==k=k==k==k===|
//!   residency               |=A=|=B=|=A=|
//!               |  unknown  | recorded  |   unknown   |
//! ```
//!
//! Before the first residency interval and after the last, every tenant may have been resident: nothing there counts as
//! time switched out, and nothing as residency. Intervals at the edges are as long as records and work support
//! ([`crate::residency::observed`]).

use std::collections::BTreeMap;

use arrow_array::RecordBatch;

use crate::base::error::Result;
use crate::residency::observed::{Ending, Slice};
use crate::table::events::Tables;
use crate::table::parts::{spans, without, PartOfTime, Span};
use crate::table::quality::{self, Quality};
use crate::table::schema;

/// Devices whose switch records cover only a part of the time of their kernels.
#[derive(Debug, Default)]
pub(crate) struct PartlyRecorded {
    by_device: BTreeMap<u32, PartOfTime>,
}

impl PartlyRecorded {
    /// Of a session with `residency`.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn of(session: &Tables) -> Result<Self> {
        let recorded = spans(session, &[&schema::RESIDENCY])?;
        if recorded.is_empty() {
            return Ok(Self::default());
        }
        let kernels = spans(session, &[&schema::KERNELS, &schema::GRAPH_LAUNCHES])?;
        let partly = |(device, recorded)| Some((device, PartOfTime::of(recorded, *kernels.get(&device)?)?));
        Ok(Self { by_device: recorded.into_iter().filter_map(partly).collect() })
    }

    /// From when to when records say who was resident, by device.
    pub fn times(&self) -> BTreeMap<u32, Span> {
        self.by_device.iter().map(|(device, part)| (*device, part.recorded)).collect()
    }

    /// Says of each such device how much of the time of its kernels the records cover.
    pub fn count(&self, quality: &mut Quality) {
        for part in self.by_device.values() {
            quality.add(None, quality::SWITCH_RECORDS_PARTIAL, 1, part.text());
        }
    }

    /// How much of an interval lies outside of the recorded time.
    pub fn unknown_ns(&self, device: u32, start_ns: i64, end_ns: i64) -> i64 {
        self.by_device.get(&device).map_or(0, |PartOfTime { recorded: (first, last), .. }| {
            let before_ns = end_ns.min(*first).saturating_sub(start_ns).max(0);
            before_ns.saturating_add(end_ns.saturating_sub(start_ns.max(*last)).max(0))
        })
    }

    /// Whether nothing tells who was resident at a time.
    pub fn is_unknown(&self, device: u32, time_ns: i64) -> bool {
        self.unknown_ns(device, time_ns, time_ns.saturating_add(1)) > 0
    }

    /// The session as if nothing had been recorded of residency on such devices.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for tables that are not what they are declared to be.
    pub fn forget(&self, session: &Tables) -> Result<Tables> {
        if self.by_device.is_empty() {
            return Ok(session.clone());
        }
        without(session, &[&schema::RESIDENCY, &schema::SWITCHES], |device| {
            self.by_device.contains_key(&device)
        })
    }

    /// `residency` in which every tenant that was ever resident on such a device was so outside of the recorded time: for
    /// what runs work only while its context is resident.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for a table that is not what it is declared to be.
    pub fn maybe_resident(&self, residency: &RecordBatch) -> Result<RecordBatch> {
        if self.by_device.is_empty() {
            return Ok(residency.clone());
        }
        let mut slices = Slice::read(residency)?;
        let mut of_tenants: BTreeMap<(u32, u32), Slice> = BTreeMap::new();
        for slice in &slices {
            if let Some(tenant) = slice.tenant {
                of_tenants.entry((slice.device, tenant)).or_insert(*slice);
            }
        }
        for ((device, _), slice) in of_tenants {
            let Some(PartOfTime { recorded, kernels }) = self.by_device.get(&device) else { continue };
            for (start_ns, end_ns) in [(kernels.0, recorded.0), (recorded.1, kernels.1)] {
                let unknown = Slice {
                    start_ns,
                    end_ns,
                    running_start_ns: None,
                    running_end_ns: None,
                    ending: Ending::Unknown,
                    complete: false,
                    observed: false,
                    ..slice
                };
                slices.extend(Some(unknown).filter(|slice| slice.dur_ns() > 0));
            }
        }
        slices.sort_by_key(|s| (s.start_ns, s.device, s.end_ns, s.hw_context));
        Slice::write(&slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tables::{kernels, named, residency};

    /// Kernels of device 0 from 0 to 1000 us; residency there from 400 to 600 us.
    fn session(residency_us: (i64, i64)) -> Tables {
        Tables::from([
            ("kernels", kernels(&[(0, 7, 0, 1, 7, 0, 500), (0, 8, 0, 1, 7, 450, 1000)])),
            ("residency", residency(&[(0, 0, 7, 814, residency_us.0, residency_us.1)])),
        ])
    }

    #[test]
    fn time_outside_of_the_records_is_unknown() {
        let partly = PartlyRecorded::of(&session((400, 600))).unwrap();
        assert_eq!(partly.times(), BTreeMap::from([(0, (400_000, 600_000))]));
        let unknown_us = |a: i64, b: i64| partly.unknown_ns(0, a * 1000, b * 1000) / 1000;
        assert_eq!([unknown_us(0, 500), unknown_us(450, 1000), unknown_us(0, 1000)], [400, 400, 800]);
        assert_eq!([unknown_us(400, 600), unknown_us(100, 200), unknown_us(700, 900)], [0, 100, 200]);
        assert_eq!(partly.unknown_ns(1, 0, 1000), 0);
    }

    #[test]
    fn without_records_nothing_is_recorded_in_part() {
        let mut none = session((400, 600));
        none.remove("residency");
        assert_eq!(PartlyRecorded::of(&none).unwrap().times(), BTreeMap::new());
    }

    #[test]
    fn residency_of_a_part_is_forgotten_or_filled_up() {
        let session = session((400, 600));
        let partly = PartlyRecorded::of(&session).unwrap();
        assert_eq!(partly.forget(&session).unwrap()["residency"].num_rows(), 0);
        // Nobody was named: nobody may have been resident before and after.
        assert_eq!(Slice::read(&partly.maybe_resident(&session["residency"]).unwrap()).unwrap().len(), 1);
        let (named, _) = named(session);
        let filled = Slice::read(&partly.maybe_resident(&named["residency"]).unwrap()).unwrap();
        let spans_us: Vec<_> =
            filled.iter().map(|s| (s.start_ns / 1000, s.end_ns / 1000, s.observed)).collect();
        assert_eq!(spans_us, [(0, 400, false), (400, 600, true), (600, 1000, false)]);
    }
}
