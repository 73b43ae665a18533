//! Read NVTX ranges, and the units of work that a caller put among them: once, for whoever asks how long they took or why.

use std::collections::BTreeMap;

use crate::activity::api_calls::{lost_launches, LostLaunch};
use crate::base::error::Result;
use crate::base::maps::NumberMap;
use crate::base::watch::Watch;
use crate::table::columns::{at, Columns};
use crate::table::events::Tables;
use crate::table::schema;
use crate::table::tenant_lookup::Process;

/// A range: an iteration, a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub start_ns: i64,
    pub end_ns: i64,
    /// Only operations that this thread launched; none: of any, as for those of a caller.
    pub thread: Option<u32>,
}

impl Range {
    /// Whether one of these launch calls, in order, was made inside it.
    fn lost_work(&self, lost: &[LostLaunch]) -> bool {
        let from = lost.partition_point(|call| call.start_ns < self.start_ns);
        let mut inside = lost.iter().skip(from).take_while(|call| call.start_ns <= self.end_ns);
        inside.any(|call| self.thread.is_none_or(|thread| thread == call.thread))
    }
}

/// Ranges of one process and name as recorded. A name may come several times.
#[derive(Debug)]
pub(crate) struct NamedRanges {
    pub process: Process,
    pub name: String,
    pub ranges: Vec<Range>,
}

/// Ranges that ended, of the names that are `wanted`, without those that a window cuts and those in which a launch has no
/// record of its work, so that what they waited for is not known; in the order of the first of each process and name.
pub(crate) fn named_ranges(
    tables: &Tables,
    window: Option<(i64, i64)>,
    wanted: impl Fn(&str) -> bool,
    watch: &dyn Watch,
) -> Result<Vec<NamedRanges>> {
    let mut out: Vec<NamedRanges> = Vec::new();
    let Some(batch) = tables.get(schema::NVTX.name) else { return Ok(out) };
    let columns = Columns::new(&schema::NVTX, batch);
    let (capture, pid, tid) = (columns.u32("capture")?, columns.u32("pid")?, columns.u32("tid")?);
    let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
    let text = columns.names("text")?;
    let mut asked: NumberMap<u32, bool> = NumberMap::default();
    let mut places: BTreeMap<(Process, u32), usize> = BTreeMap::new();
    for row in 0..columns.rows() {
        let (Some(end_ns), Some(key)) = (at(end, row), text.key(row)) else { continue };
        if !*asked.entry(key).or_insert_with(|| text.text(key).is_some_and(&wanted)) {
            continue;
        }
        let range = Range { start_ns: start.value(row), end_ns, thread: at(tid, row) };
        if window.is_some_and(|(first, last)| range.start_ns <= first || range.end_ns >= last) {
            continue;
        }
        let process = (capture.value(row), at(pid, row));
        let place = *places.entry((process, key)).or_insert_with(|| {
            let name = text.text(key).unwrap_or_default().to_owned();
            out.push(NamedRanges { process, name, ranges: Vec::new() });
            out.len() - 1
        });
        if let Some(of) = out.get_mut(place) {
            of.ranges.push(range);
        }
    }
    if out.is_empty() {
        return Ok(out);
    }
    let lost = lost_launches(tables, watch)?;
    for of in &mut out {
        if let Some(calls) = lost.get(&of.process) {
            of.ranges.retain(|range| !range.lost_work(calls));
        }
    }
    Ok(out)
}
