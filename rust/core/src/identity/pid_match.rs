//! Match pids inside containers to host pids by changes of device memory.
//!
//! nsys records what a process allocates, NVML what each host process uses. The levels never agree (a context, its
//! modules and rounding take hundreds of MiB that nobody allocated), but the steps do:
//!
//! ```text
//!   allocated by pid 1          ____|=====2 GiB=====|________|==1 GiB==|___
//!   used by 30428, sampled      o   o   o   o   o   o   o   o   o   o   o      every step, at its time: the same
//!   used by 30398               o - o - o - o - o - o - o - o - o - o - o      none of them: no evidence for it
//! ```
//!
//! A sample is left out if its time does not say on which side of a change it stands.

use std::collections::BTreeMap;

use crate::base::error::Result;
use crate::table::columns::{at, Columns};
use crate::table::events::Tables;
use crate::table::schema;

/// A smaller change may be the driver's own: it takes memory from the device in pieces of 2 MiB, and more for modules.
const STEP_BYTES: i64 = 16 << 20;
/// Steps may differ by rounding: a piece at either end, or this part of them.
const ROUNDING_BYTES: i64 = 4 << 20;
const ROUNDING_SHARE: i64 = 20;
/// From the time written beside a sample to when the driver was asked.
const SMEAR_NS: i64 = 50_000_000;
/// Sources with whole seconds cut off the rest.
const SECOND_NS: i64 = 1_000_000_000;
/// Fewer steps may agree by chance.
const LEAST_STEPS: usize = 2;
/// Of the steps of either side, how many must stand on the other one.
const MATCHED_SHARE: f64 = 0.8;
/// nsys' numbers of memory that lies on the device: plain, arrays, static.
const ON_DEVICE: [u8; 3] = [2, 3, 5];

/// A process as it is traced: (device, capture, pid).
type Process = (u32, u32, Option<u32>);

/// How the steps of two processes go together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Steps of the traced process that samples stand around.
    pub seen: usize,
    /// Those at which the other one takes or gives back as much.
    pub matched: usize,
    /// Steps of the other one to which nothing was allocated or freed.
    pub unexplained: usize,
}

impl Steps {
    /// They are of one process, as far as memory tells.
    pub(crate) fn agree(self) -> bool {
        let all = self.seen.saturating_add(self.unexplained);
        self.matched >= LEAST_STEPS && self.matched as f64 >= MATCHED_SHARE * all as f64
    }
}

/// What each traced process has allocated, and what each process of the host held.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Time and bytes allocated from then on.
    allocated: BTreeMap<Process, Vec<(i64, i64)>>,
    /// Time and bytes held, by (device, host pid).
    held: BTreeMap<(u32, u32), Vec<(i64, i64)>>,
    slack_ns: i64,
}

impl Memory {
    /// Reads `allocations` and `nvml_samples`, where they are there.
    pub(crate) fn read(session: &Tables) -> Result<Self> {
        let mut memory = Self { slack_ns: SMEAR_NS, ..Self::default() };
        let (Some(allocations), Some(samples)) =
            (session.get(schema::ALLOCATIONS.name), session.get(schema::NVML_SAMPLES.name))
        else {
            return Ok(memory);
        };
        let columns = Columns::new(&schema::ALLOCATIONS, allocations);
        let (capture, pid) = (columns.u32("capture")?, columns.u32("pid")?);
        let (device, time) = (columns.u32("device_id")?, columns.i64("time_ns")?);
        let (operation, bytes) = (columns.names("operation")?, columns.i64("bytes")?);
        let kind = columns.u8("memory_kind")?;
        for row in 0..columns.rows() {
            if at(kind, row).is_some_and(|kind| !ON_DEVICE.contains(&kind)) {
                continue;
            }
            let key = (device.value(row), capture.value(row), at(pid, row));
            let levels = memory.allocated.entry(key).or_default();
            let before = levels.last().map_or(0, |level| level.1);
            let more = bytes.value(row);
            let level = match operation.get(row) {
                Some("freed") => before.saturating_sub(more),
                _ => before.saturating_add(more),
            };
            levels.push((time.value(row), level));
        }
        memory.slack_ns = memory.slack_ns.saturating_add(clocks_apart_ns(session)?);
        let columns = Columns::new(&schema::NVML_SAMPLES, samples);
        let (pid, device) = (columns.u32("pid")?, columns.u32("device_id")?);
        let (time, value) = (columns.i64("time_ns")?, columns.f64("value")?);
        let (utc, local) = (columns.i64("time_utc_ns")?, columns.i64("time_local_ns")?);
        let metric = columns.names("metric")?;
        let mut whole_seconds = true;
        for row in 0..columns.rows() {
            if metric.get(row) != Some("process_memory_bytes") {
                continue;
            }
            let place = at(device, row).zip(at(pid, row));
            if let ((Some(place), Some(time)), Some(value)) = ((place, at(time, row)), at(value, row)) {
                let stamp = at(utc, row).or_else(|| at(local, row)).unwrap_or(time);
                whole_seconds &= stamp.rem_euclid(SECOND_NS) == 0;
                memory.held.entry(place).or_default().push((time, value as i64));
            }
        }
        if whole_seconds {
            memory.slack_ns = memory.slack_ns.saturating_add(SECOND_NS);
        }
        for samples in memory.held.values_mut() {
            samples.sort_unstable();
        }
        Ok(memory)
    }

    /// How well the memory of a traced process and that of a process of the host go together; `None` where either is not
    /// known.
    pub(crate) fn steps(&self, process: &Process, host: u32) -> Option<Steps> {
        let levels = self.allocated.get(process)?;
        let samples = self.held.get(&(process.0, host))?;
        let mut steps = Steps::default();
        let mut before: Option<(i64, i64)> = None;
        for (time, held) in samples {
            let Some(asked) = self.level(levels, *time) else { continue };
            if let Some((asked_before, held_before)) = before.replace((asked, *held)) {
                let asked = asked.saturating_sub(asked_before);
                let held = held.saturating_sub(held_before);
                let rounding = ROUNDING_BYTES.max(asked.saturating_abs() / ROUNDING_SHARE);
                if asked.saturating_abs() >= STEP_BYTES {
                    steps.seen = steps.seen.saturating_add(1);
                    let same = held.saturating_sub(asked).saturating_abs() <= rounding;
                    steps.matched = steps.matched.saturating_add(usize::from(same));
                } else if held.saturating_abs() >= STEP_BYTES {
                    steps.unexplained = steps.unexplained.saturating_add(1);
                }
            }
        }
        Some(steps)
    }

    /// What was allocated when a sample was taken; `None` while it changed.
    fn level(&self, levels: &[(i64, i64)], time: i64) -> Option<i64> {
        let from = levels.partition_point(|l| l.0 < time.saturating_sub(self.slack_ns));
        let to = levels.partition_point(|l| l.0 <= time.saturating_add(self.slack_ns));
        let before = from.checked_sub(1).and_then(|last| levels.get(last)).map_or(0, |l| l.1);
        let near = levels.get(from..to).unwrap_or_default();
        let far = |level: i64| level.saturating_sub(before).saturating_abs() >= STEP_BYTES / 4;
        near.iter().all(|(_, level)| !far(*level)).then(|| near.last().map_or(before, |(_, level)| *level))
    }
}

/// How far the clocks of the session's captures may be apart.
fn clocks_apart_ns(session: &Tables) -> Result<i64> {
    let Some(batch) = session.get(schema::CAPTURE.name) else { return Ok(0) };
    let apart = Columns::new(&schema::CAPTURE, batch).i64("clock_uncertainty_ns")?;
    Ok(apart.iter().flatten().max().unwrap_or(0).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::builder::Builder;
    use arrow_array::{Float64Array, Int64Array, UInt32Array, UInt8Array};

    const MIB: i64 = 1 << 20;

    /// Allocations (ms, MiB; below 0: freed) of pid 1, samples (ms, pid, MiB).
    fn session(asked: &[(i64, i64)], held: &[(i64, u32, i64)]) -> Tables {
        let n = asked.len();
        let allocations = Builder::new(&schema::ALLOCATIONS)
            .put("capture", UInt32Array::from(vec![0; n]))
            .put("pid", UInt32Array::from(vec![1; n]))
            .put("device_id", UInt32Array::from(vec![0; n]))
            .put("time_ns", asked.iter().map(|a| Some(a.0 * 1_000_000)).collect::<Int64Array>())
            .put_words("operation", asked.iter().map(|a| if a.1 < 0 { "freed" } else { "allocated" }))
            .put("memory_kind", UInt8Array::from(vec![2; n]))
            .put("bytes", asked.iter().map(|a| Some(a.1.abs() * MIB)).collect::<Int64Array>())
            .finish(n)
            .unwrap();
        let n = held.len();
        let samples = Builder::new(&schema::NVML_SAMPLES)
            .put_names("source", vec![Some("apps.csv"); n])
            .put_names("format", vec![Some("nvidia-smi-query-compute-apps"); n])
            .put("time_ns", held.iter().map(|h| Some(h.0 * 1_000_000)).collect::<Int64Array>())
            .put("device_id", UInt32Array::from(vec![0; n]))
            .put("pid", held.iter().map(|h| Some(h.1)).collect::<UInt32Array>())
            .put_names("metric", vec![Some("process_memory_bytes"); n])
            .put("value", held.iter().map(|h| Some((h.2 * MIB) as f64)).collect::<Float64Array>())
            .finish(n)
            .unwrap();
        Tables::from([("allocations", allocations), ("nvml_samples", samples)])
    }

    fn steps(session: &Tables, host: u32) -> Steps {
        Memory::read(session).unwrap().steps(&(0, 0, Some(1)), host).unwrap()
    }

    #[test]
    fn steps_at_the_same_time_and_by_the_same_amount_identify() {
        // 2 GiB at 500 ms, given back at 1500, 1 GiB at 2500; sampled every 300 ms from 101 on. 30428 adds 400 MiB of its
        // own and rounds up; 30398 holds as much as 30428 at first and never changes; 30001 takes as much, a second late.
        let asked = [(500, 2048), (1500, -2048), (2500, 1024)];
        let level = |t: i64| asked.iter().filter(|a| a.0 <= t).map(|a| a.1).sum::<i64>();
        let mut held = Vec::new();
        for time in (101..4000).step_by(300) {
            let rounded = if level(time) > 0 { level(time) + 2 } else { 0 };
            held.push((time, 30428, 400 + rounded));
            held.push((time, 30398, 400));
            held.push((time, 30001, 400 + level(time - 1000)));
        }
        let session = session(&asked, &held);
        assert_eq!(steps(&session, 30428), Steps { seen: 3, matched: 3, unexplained: 0 });
        assert!(steps(&session, 30428).agree());
        assert_eq!(steps(&session, 30398), Steps { seen: 3, matched: 0, unexplained: 0 });
        assert!(!steps(&session, 30398).agree());
        assert!(!steps(&session, 30001).agree());
        // Nobody sampled it.
        assert_eq!(Memory::read(&session).unwrap().steps(&(0, 0, Some(1)), 5), None);
        assert_eq!(Memory::read(&session).unwrap().steps(&(0, 1, Some(1)), 30428), None);
    }

    #[test]
    fn equal_levels_or_one_step_are_no_evidence() {
        let flat: Vec<_> = (0..10).map(|n| (n * 300 + 1, 7, 1400)).collect();
        assert!(!steps(&session(&[(0, 1000)], &flat), 7).agree());
        let once: Vec<_> = (0..10).map(|n| (n * 300 + 1, 7, if n < 5 { 400 } else { 1400 })).collect();
        let found = steps(&session(&[(1350, 1000)], &once), 7);
        assert_eq!((found.matched, found.agree()), (1, false));
    }

    #[test]
    fn a_sample_beside_a_change_and_stamps_of_whole_seconds_say_less() {
        // Samples 20 ms after a change may have been taken before it: the one of 520 is left out, 220 and 820 are not.
        let asked = [(500, 1024)];
        let held = [(220, 7, 400), (520, 7, 400), (820, 7, 1424)];
        assert_eq!(steps(&session(&asked, &held), 7), Steps { seen: 1, matched: 1, unexplained: 0 });
        // With whole seconds the change at 1.5 s may lie before or after both.
        let held = [(1000, 7, 400), (2000, 7, 1424)];
        assert_eq!(steps(&session(&[(1500, 1024)], &held), 7), Steps::default());
    }
}
