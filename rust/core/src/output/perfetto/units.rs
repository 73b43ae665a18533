//! Units of work, and the steps of their critical chains, each with an arrow to the next.

use super::{I64s, Key, Names, Note, U32s, Value, Writer};
use crate::base::error::Result;
use crate::table::columns::{at, Columns};

/// Rows of `units`.
pub(super) struct UnitRows<'a> {
    unit: U32s<'a>,
    device: U32s<'a>,
    tenant: U32s<'a>,
    pub start: I64s<'a>,
    end: I64s<'a>,
    name: Names<'a>,
    source: Names<'a>,
    operations: U32s<'a>,
}

impl<'a> UnitRows<'a> {
    pub fn read(c: Columns<'a>) -> Result<Self> {
        Ok(Self {
            unit: c.u32("unit")?,
            device: c.u32("device_id")?,
            tenant: c.u32("tenant_id")?,
            start: c.i64("start_ns")?,
            end: c.i64("end_ns")?,
            name: c.names("name")?,
            source: c.names("source")?,
            operations: c.u32("operations")?,
        })
    }

    pub fn write(&self, row: usize, writer: &mut Writer<'_>) -> Result<()> {
        let unit = self.unit.value(row);
        let notes = [
            ("unit", Value::Uint(unit.into())),
            ("found_by", Value::Text(self.source.get(row).unwrap_or("given"))),
            ("operations", Value::Uint(self.operations.value(row).into())),
        ];
        let name = format!("{} (unit {unit})", self.name.get(row).unwrap_or("unit"));
        let key = Key::Units(self.device.value(row), self.tenant.value(row));
        writer.slice(self.start.value(row), self.end.value(row), key, &name, &notes)
    }

    /// Device and tenant of a unit; units are numbered in the order of their rows.
    fn of(&self, unit: u32) -> Option<(u32, u32)> {
        let row = unit as usize;
        let known = row < self.unit.len() && self.unit.value(row) == unit;
        known.then(|| (self.device.value(row), self.tenant.value(row)))
    }
}

/// Rows of `unit_segments`: by unit, in order.
pub(super) struct SegmentRows<'a> {
    unit: U32s<'a>,
    kind: Names<'a>,
    pub start: I64s<'a>,
    end: I64s<'a>,
    dur: I64s<'a>,
    name: Names<'a>,
    other: U32s<'a>,
    basis: Names<'a>,
}

impl<'a> SegmentRows<'a> {
    pub fn read(c: Columns<'a>) -> Result<Self> {
        Ok(Self {
            unit: c.u32("unit")?,
            kind: c.names("kind")?,
            start: c.i64("start_ns")?,
            end: c.i64("end_ns")?,
            dur: c.i64("dur_ns")?,
            name: c.names("name")?,
            other: c.u32("other_tenant_id")?,
            basis: c.names("basis")?,
        })
    }

    fn step(&self, row: usize) -> (u32, i64, i64) {
        (self.unit.value(row), self.start.value(row), self.end.value(row))
    }

    fn same_unit(&self, row: usize, unit: u32) -> bool {
        row < self.unit.len() && self.unit.value(row) == unit
    }

    /// Writes the step that begins with a row: its parts alternate, so that it is one slice, named by the longest.
    pub fn write(&self, row: usize, units: &UnitRows<'_>, writer: &mut Writer<'_>) -> Result<()> {
        let step = self.step(row);
        let (unit, start_ns, end_ns) = step;
        let begins = row.checked_sub(1).is_none_or(|before| self.step(before) != step);
        let Some((device, tenant)) = units.of(unit).filter(|_| begins) else { return Ok(()) };
        let rows = (row..self.unit.len()).take_while(|r| self.step(*r) == step);
        let mut notes: Vec<Note<'_>> = vec![("unit", Value::Uint(unit.into()))];
        let (mut longest, mut last) = (row, row);
        for part in rows {
            last = part;
            if self.dur.value(part) > self.dur.value(longest) {
                longest = part;
            }
            if let Some(key) = self.kind.get(part).and_then(note_of) {
                notes.push((key, Value::Int(self.dur.value(part))));
            }
            if let Some(other) = at(self.other, part) {
                notes.push(("other_tenant_id", Value::Uint(other.into())));
            }
        }
        notes.push(("basis", Value::Text(self.basis.get(longest).unwrap_or("inferred"))));
        let kind = self.kind.get(longest).unwrap_or("unexplained");
        let name = match self.name.get(longest) {
            Some(operation) => format!("{kind}: {operation}"),
            None => kind.to_owned(),
        };
        // An arrow from each step to the next of its unit; its number is that of the row that it leads to.
        let flow = |row: usize| row as u64 + 1;
        let comes = row.checked_sub(1).filter(|before| self.same_unit(*before, unit)).map(|_| flow(row));
        let goes = Some(last.saturating_add(1)).filter(|next| self.same_unit(*next, unit)).map(flow);
        writer.slice_with_flows((start_ns, end_ns), Key::Chain(device, tenant), &name, &notes, [comes, goes])
    }
}

/// What the time of a kind is called beside a slice.
fn note_of(kind: &str) -> Option<&'static str> {
    use crate::explain::chain::SegmentKind as K;
    let kind = K::ALL.into_iter().find(|known| known.word() == kind)?;
    Some(match kind {
        K::Host => "host_ns",
        K::Launch => "launch_ns",
        K::QueueSameStream => "queue_same_stream_ns",
        K::QueueOtherStream => "queue_other_stream_ns",
        K::QueueOtherTenant => "queue_other_tenant_ns",
        K::Copy => "copy_ns",
        K::TimeSlice => "time_slice_ns",
        K::Switch => "switch_ns",
        K::Execution => "execution_ns",
        K::Synchronisation => "synchronisation_ns",
        K::OtherThread => "other_thread_ns",
        K::Event => "event_ns",
        K::Unexplained => "unexplained_ns",
    })
}
