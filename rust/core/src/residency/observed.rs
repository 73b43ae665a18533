//! Reconstruct residency intervals of hardware contexts and the cost of each context switch.
//!
//! Residency is RESTORE_START (8) to SAVE_END (7) of a hardware context. Release drivers record nothing else; with more
//! privilege acknowledgements (2..6) and CONTEXT_START (9) stand between:
//!
//! ```text
//!        RESTORE_START A        ack A  SAVE_END A   RESTORE_START B   CONTEXT_START B
//!   A    |8 ... 9 =============== 2..6 ... 7|
//!   B                                              |8 ............... 9 =========
//!                                           |-gap--|
//!                                 |------------- full --------------|
//! ```
//!
//! Records get lost (a 16-bit sequence number tells), recording starts and ends inside a residency interval, and
//! unprivileged records have noisy times. Every such case has a state here, a counter, and a flag on its interval; none
//! becomes a plausible complete interval.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt32Type};
use arrow_array::{BooleanArray, Int64Array, PrimitiveArray, RecordBatch, UInt32Array, UInt64Array};
use arrow_buffer::NullBufferBuilder;

use crate::base::error::{Error, Result};
use crate::base::hardware::{DRIVER_HW_CONTEXT, IDLE_GAP_NS, IDLE_RESIDENCY_NS, WAKE_NS};
use crate::base::statistics::median_of;
use crate::base::watch::Watch;
use crate::table::builder::{Builder, Words};
use crate::table::columns::at;
use crate::table::columns::Columns;
use crate::table::events::{EventPass, Events};
use crate::table::quality::{self, Counter, Quality};
use crate::table::schema;

/// One stretch of residency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Capture that recorded it.
    pub capture: u32,
    /// Device.
    pub device: u32,
    /// Tenant, once named.
    pub tenant: Option<u32>,
    /// Host process id.
    pub pid: Option<u32>,
    /// Hardware context.
    pub hw_context: u64,
    /// RESTORE_START.
    pub start_ns: i64,
    /// SAVE_END, or the best bound known.
    pub end_ns: i64,
    /// CONTEXT_START.
    pub running_start_ns: Option<i64>,
    /// First acknowledgement.
    pub running_end_ns: Option<i64>,
    /// How it ended.
    pub ending: Ending,
    /// Both ends were recorded and no record between them is missing.
    pub complete: bool,
    /// Both ends stand in records.
    pub observed: bool,
}

impl Slice {
    /// Length.
    #[must_use]
    pub fn dur_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Whether a channel of the driver itself was resident, which runs no work of a tenant.
    #[must_use]
    pub fn is_driver(&self) -> bool {
        self.pid.is_none() && self.hw_context >= DRIVER_HW_CONTEXT
    }

    /// Reads the `residency` table.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for another table.
    pub fn read(batch: &RecordBatch) -> Result<Vec<Self>> {
        let columns = Columns::new(&schema::RESIDENCY, batch);
        let (capture, device) = (columns.u32("capture")?, columns.u32("device_id")?);
        let (tenant, pid) = (columns.u32("tenant_id")?, columns.u32("pid")?);
        let hw = columns.u64("hw_context")?;
        let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
        let (run, ack) = (columns.i64("running_start_ns")?, columns.i64("running_end_ns")?);
        let (ending, complete) = (columns.names("ending")?, columns.bool("complete")?);
        let basis = columns.names("basis")?;
        let mut endings = Endings::default();
        Ok((0..columns.rows())
            .map(|row| Self {
                capture: capture.value(row),
                device: device.value(row),
                tenant: at(tenant, row),
                pid: at(pid, row),
                hw_context: hw.value(row),
                start_ns: start.value(row),
                end_ns: end.value(row),
                running_start_ns: at(run, row),
                running_end_ns: at(ack, row),
                ending: endings.of(ending.key(row), || ending.get(row)),
                complete: complete.value(row),
                observed: basis.get(row) == Some("observed"),
            })
            .collect())
    }

    /// Writes the `residency` table.
    ///
    /// # Errors
    /// [`crate::Error::Schema`], if this disagrees with its declaration.
    pub fn write(slices: &[Self]) -> Result<RecordBatch> {
        let rows = slices.len();
        let (mut capture, mut device) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let (mut tenant, mut pid) = (Optional::<UInt32Type>::of(rows), Optional::<UInt32Type>::of(rows));
        let mut hw_context = Vec::with_capacity(rows);
        let (mut start, mut end) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let (mut run, mut ack) = (Optional::<Int64Type>::of(rows), Optional::<Int64Type>::of(rows));
        let (mut ending, mut basis) = (Words::of(rows), Words::of(rows));
        let mut complete = Vec::with_capacity(rows);
        for part in slices.chunks(CACHED_ROWS) {
            let part = || part.iter();
            capture.extend(part().map(|s| s.capture));
            device.extend(part().map(|s| s.device));
            tenant.extend(part().map(|s| s.tenant));
            pid.extend(part().map(|s| s.pid));
            hw_context.extend(part().map(|s| s.hw_context));
            start.extend(part().map(|s| s.start_ns));
            end.extend(part().map(|s| s.end_ns));
            run.extend(part().map(|s| s.running_start_ns));
            ack.extend(part().map(|s| s.running_end_ns));
            ending.extend(part().map(|s| s.ending.word()));
            complete.extend(part().map(|s| s.complete));
            basis.extend(part().map(|s| if s.observed { "observed" } else { "inferred" }));
        }
        Builder::new(&schema::RESIDENCY)
            .put("capture", UInt32Array::from(capture))
            .put("device_id", UInt32Array::from(device))
            .put("tenant_id", tenant.finish())
            .put("pid", pid.finish())
            .put("hw_context", UInt64Array::from(hw_context))
            .put("start_ns", Int64Array::from(start))
            .put("end_ns", Int64Array::from(end))
            .put("running_start_ns", run.finish())
            .put("running_end_ns", ack.finish())
            .put_column_of_words("ending", ending)
            .put("complete", BooleanArray::from(complete))
            .put_column_of_words("basis", basis)
            .finish(rows)
    }
}

/// Slices are written in stretches of so many: each is read from memory once, and not once for every column.
const CACHED_ROWS: usize = 2048;

/// A column that grows by stretches in which all values are there or none is, or some are.
///
/// Until there is a value nothing is written: what the driver never recorded takes no memory.
struct Optional<T: ArrowPrimitiveType> {
    rows: usize,
    missing: usize,
    values: Vec<T::Native>,
    present: NullBufferBuilder,
}

impl<T: ArrowPrimitiveType> Optional<T> {
    fn of(rows: usize) -> Self {
        Self { rows, missing: 0, values: Vec::new(), present: NullBufferBuilder::new(rows) }
    }

    fn extend(&mut self, part: impl ExactSizeIterator<Item = Option<T::Native>> + Clone) {
        let known = part.clone().filter(Option::is_some).count();
        if known == 0 && self.values.is_empty() {
            self.missing = self.missing.saturating_add(part.len());
            return;
        }
        if self.values.is_empty() {
            self.values.reserve_exact(self.rows);
            self.values.resize(self.missing, T::Native::default());
            self.present.append_n_nulls(self.missing);
        }
        match known {
            0 => self.present.append_n_nulls(part.len()),
            all if all == part.len() => self.present.append_n_non_nulls(all),
            _ => part.clone().for_each(|value| self.present.append(value.is_some())),
        }
        self.values.extend(part.map(Option::unwrap_or_default));
    }

    fn finish(mut self) -> PrimitiveArray<T> {
        if self.values.is_empty() {
            return PrimitiveArray::new_null(self.missing);
        }
        PrimitiveArray::new(self.values.into(), self.present.finish())
    }
}

/// How a slice ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Preempted once the engine had nothing in flight.
    Wfi,
    /// Graphics preemption.
    Gfxp,
    /// At a boundary of thread blocks.
    Ctap,
    /// At any instruction.
    Cilp,
    /// Acknowledged, without saying how.
    Acknowledged,
    /// No acknowledgement was recorded.
    Unknown,
    /// The engine was reset.
    Reset,
    /// The recording ended first.
    Open,
}

impl Ending {
    const ALL: [Self; 8] = [
        Self::Wfi,
        Self::Gfxp,
        Self::Ctap,
        Self::Cilp,
        Self::Acknowledged,
        Self::Unknown,
        Self::Reset,
        Self::Open,
    ];

    /// As it stands in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Wfi => "WFI",
            Self::Gfxp => "GFXP",
            Self::Ctap => "CTAP",
            Self::Cilp => "CILP",
            Self::Acknowledged => "acknowledged",
            Self::Unknown => "unknown",
            Self::Reset => "reset",
            Self::Open => "open",
        }
    }
}

/// How slices end, read from a dictionary column: compared once per word and not once per row.
#[derive(Debug, Default)]
struct Endings(Vec<Option<Ending>>);

impl Endings {
    fn of<'a>(&mut self, key: Option<u32>, text: impl FnOnce() -> Option<&'a str>) -> Ending {
        let Some(key) = key.map(|key| key as usize) else { return Ending::Unknown };
        if let Some(Some(ending)) = self.0.get(key) {
            return *ending;
        }
        let text = text();
        let known = Ending::ALL.into_iter().find(|ending| Some(ending.word()) == text);
        let ending = known.unwrap_or(Ending::Unknown);
        if self.0.len() <= key {
            self.0.resize(key.saturating_add(1), None);
        }
        if let Some(slot) = self.0.get_mut(key) {
            *slot = Some(ending);
        }
        ending
    }
}

/// A hardware context with the device and process that it belongs to: ids are reused after a process
/// ends, and all other users share the context id 0.
pub type HwContext = (u32, u64, Option<u32>);

/// Something for each context. Slices change between a few contexts millions of times: the place of each of the last two is
/// remembered, and a map is asked only for others.
#[derive(Debug)]
struct PerContext<K, T> {
    places: BTreeMap<K, usize>,
    values: Vec<T>,
    recent: [Option<(K, usize)>; 2],
}

impl<K, T> Default for PerContext<K, T> {
    fn default() -> Self {
        Self { places: BTreeMap::new(), values: Vec::new(), recent: [None, None] }
    }
}

impl<K: Copy + Ord, T: Default> PerContext<K, T> {
    fn place(&mut self, context: K) -> usize {
        let [last, before] = self.recent;
        match (last, before) {
            (Some((known, place)), _) if known == context => place,
            (_, Some((known, place))) if known == context => {
                self.recent = [before, last];
                place
            }
            _ => {
                let next = self.values.len();
                let place = *self.places.entry(context).or_insert(next);
                if place == next {
                    self.values.push(T::default());
                }
                self.recent = [Some((context, place)), last];
                place
            }
        }
    }

    fn of(&mut self, context: K) -> Option<&mut T> {
        let place = self.place(context);
        self.values.get_mut(place)
    }
}

impl PerContext<u64, State> {
    fn get(&mut self, context: u64) -> State {
        self.of(context).copied().unwrap_or_default()
    }

    fn set(&mut self, context: u64, state: State) {
        if let Some(slot) = self.of(context) {
            *slot = state;
        }
    }
}

/// Contexts that were created beside the one that works: at most two slices, while the same process
/// has another context with more. Their slices say nothing about the length of a time slice.
#[must_use]
pub fn creation_contexts(slices: &[Slice]) -> BTreeSet<HwContext> {
    let mut slots: PerContext<HwContext, u64> = PerContext::default();
    for s in slices {
        if let Some(count) = slots.of((s.device, s.hw_context, s.pid)) {
            *count = count.saturating_add(1);
        }
    }
    let value = |place: &usize| slots.values.get(*place).copied().unwrap_or(0);
    let counts: BTreeMap<HwContext, u64> = slots.places.iter().map(|(c, place)| (*c, value(place))).collect();
    let mut most: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for ((device, _, pid), count) in &counts {
        if let Some(pid) = pid {
            let entry = most.entry((*device, *pid)).or_default();
            *entry = (*entry).max(*count);
        }
    }
    counts
        .iter()
        .filter(|((device, _, pid), count)| {
            let most_switched = pid.and_then(|pid| most.get(&(*device, pid)));
            **count <= 2 && most_switched.is_some_and(|most| most > count)
        })
        .map(|(context, _)| *context)
        .collect()
}

/// Median length of the slices that measure the time slice: complete, and not of a context that was
/// only created.
pub(crate) fn slice_lengths(slices: &[Slice]) -> BTreeMap<u32, Vec<i64>> {
    let creation = creation_contexts(slices);
    let mut lengths: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for s in slices {
        if s.complete && !s.is_driver() && !creation.contains(&(s.device, s.hw_context, s.pid)) {
            lengths.entry(s.device).or_default().push(s.dur_ns());
        }
    }
    lengths
}

/// The tables that this pass makes.
#[derive(Debug, Clone)]
pub struct Output {
    /// `residency`, tenants not yet named.
    pub residency: RecordBatch,
    /// `switches`, tenants not yet named.
    pub switches: RecordBatch,
    /// Oddities.
    pub quality: Quality,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    capture: u32,
    device: u32,
    time_ns: i64,
    tag: u8,
    pid: Option<u32>,
    hw: u64,
    sequence: u16,
}

impl Event {
    /// How far its number is ahead of another of its device, across a wrap.
    fn after(&self, first: u16) -> i16 {
        self.sequence.wrapping_sub(first) as i16
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Ack {
    first_ns: Option<i64>,
    tag: u8,
}

impl Ack {
    fn see(&mut self, tag: u8, time_ns: i64) {
        self.first_ns.get_or_insert(time_ns);
        // A plain acknowledgement says less than one that names the preemption: it does not replace it.
        if tag > 2 || self.tag == 0 {
            self.tag = tag;
        }
    }

    fn ending(self) -> Ending {
        match self.tag {
            2 => Ending::Acknowledged,
            3 => Ending::Wfi,
            4 => Ending::Gfxp,
            5 => Ending::Ctap,
            6 => Ending::Cilp,
            _ => Ending::Unknown,
        }
    }
}

/// What is known of one hardware context.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Nothing.
    #[default]
    Unseen,
    /// Seen, but whether it is resident is not known: recording began in the middle.
    Unknown(Ack),
    /// It is resident.
    Resident { start_ns: i64, pid: Option<u32>, running_start_ns: Option<i64>, ack: Ack },
    /// It does not.
    Out,
    /// It was taken off the engine by another context's start; its own end may still come late.
    Cut,
}

/// Missing sequence numbers, with the records on both sides.
#[derive(Debug, Clone, Copy)]
struct Gap {
    first: i64,
    last: i64,
    missing: u64,
    before_ns: i64,
    after_ns: i64,
    device: u32,
}

/// Follows one 16-bit counter. Late arrivals (noisy times) fill the hole they left.
#[derive(Debug, Default)]
struct Counting {
    newest: Option<(i64, i64)>,
    gaps: Vec<Gap>,
}

impl Counting {
    fn see(&mut self, event: &Event) {
        let Some((newest, before_ns)) = self.newest else {
            self.newest = Some((i64::from(event.sequence), event.time_ns));
            return;
        };
        // The low 16 bits of the unwrapped number are the recorded one; the wrapped difference, read as
        // signed, tells ahead from behind.
        let recorded = (newest & 0xFFFF) as u16;
        let step = i64::from(event.sequence.wrapping_sub(recorded) as i16);
        if step > 0 {
            if step > 1 {
                self.gaps.push(Gap {
                    first: newest.saturating_add(1),
                    last: newest.saturating_add(step - 1),
                    missing: (step - 1).unsigned_abs(),
                    before_ns,
                    after_ns: event.time_ns,
                    device: event.device,
                });
            }
            self.newest = Some((newest.saturating_add(step), event.time_ns));
        } else if step < 0 {
            let number = newest.saturating_add(step);
            let home = self.gaps.iter_mut().rev().take(64).find(|g| g.first <= number && number <= g.last);
            if let Some(gap) = home {
                gap.missing = gap.missing.saturating_sub(1);
            }
        }
    }

    fn lost(&self) -> u64 {
        self.gaps.iter().fold(0, |sum, g| sum.saturating_add(g.missing))
    }
}

/// The engine of one device, as one capture recorded it.
#[derive(Debug, Default)]
struct Engine {
    states: PerContext<u64, State>,
    resident: Option<u64>,
    first_ns: Option<i64>,
    last_ns: i64,
    /// Since when it has not been held, as far as records tell.
    free_since_ns: Option<i64>,
    records: u64,
    slices: Vec<Slice>,
    /// The interval that the first record ends. How long it was is shown by the work of its process only.
    leading: Option<Slice>,
    /// Times at which records are evidently missing, whatever the sequence numbers say.
    broken_ns: Vec<i64>,
    counting: Counting,
}

impl Engine {
    fn step(&mut self, event: &Event, quality: &mut Quality) {
        self.counting.see(event);
        self.records = self.records.saturating_add(1);
        let mut count = |counter: Counter| quality.add(Some(event.capture), counter, 1, "");
        if event.tag == 10 {
            // Its time is what is invalid: it must not become the first or last time of anything.
            return count(quality::SWITCH_INVALID);
        }
        let now = event.time_ns;
        let first_ns = *self.first_ns.get_or_insert(now);
        self.last_ns = if self.records == 1 { now } else { self.last_ns.max(now) };
        let state = self.states.get(event.hw);
        match event.tag {
            0 | 1 => {}
            2..=6 => {
                let slot = self.states.of(event.hw);
                if let Some(slot @ State::Unseen) = slot {
                    let mut ack = Ack::default();
                    ack.see(event.tag, now);
                    *slot = State::Unknown(ack);
                } else if let Some(State::Unknown(ack) | State::Resident { ack, .. }) = slot {
                    ack.see(event.tag, now);
                }
            }
            9 => {
                if let Some(State::Resident { running_start_ns, .. }) = self.states.of(event.hw) {
                    running_start_ns.get_or_insert(now);
                }
            }
            8 => {
                if let State::Resident { .. } = state {
                    // Its end is not known and neither is who ran since: the slice is dropped.
                    count(quality::SWITCH_REPEATED_START);
                    self.broken_ns.push(now);
                } else if let Some(other) = self.resident {
                    count(quality::SWITCH_OVERLAP);
                    self.broken_ns.push(now);
                    self.close(event, other, now, None, false, false);
                    self.states.set(other, State::Cut);
                }
                let start = State::Resident {
                    start_ns: now,
                    pid: event.pid,
                    running_start_ns: None,
                    ack: Ack::default(),
                };
                self.states.set(event.hw, start);
                self.resident = Some(event.hw);
            }
            7 => match state {
                State::Resident { .. } => {
                    self.close(event, event.hw, now, None, true, true);
                    self.states.set(event.hw, State::Out);
                }
                State::Cut => {
                    // The late end of a slice that was already cut and counted.
                    self.states.set(event.hw, State::Out);
                }
                State::Unseen | State::Unknown(_) => {
                    count(quality::SWITCH_END_WITHOUT_START);
                    let ack = if let State::Unknown(ack) = state { ack } else { Ack::default() };
                    let since = self.free_since_ns.unwrap_or(first_ns);
                    // Resident when recording began, unless another context was resident meanwhile.
                    if self.resident.is_none() {
                        let slice = Slice {
                            capture: event.capture,
                            device: event.device,
                            tenant: None,
                            pid: event.pid,
                            hw_context: event.hw,
                            start_ns: since,
                            end_ns: now,
                            running_start_ns: None,
                            running_end_ns: ack.first_ns,
                            ending: ack.ending(),
                            complete: false,
                            observed: false,
                        };
                        if self.free_since_ns.is_none() {
                            self.leading = Some(slice);
                        } else if since < now {
                            self.slices.push(slice);
                            self.broken_ns.push(since);
                        }
                        self.free_since_ns = Some(now);
                    }
                    self.states.set(event.hw, State::Out);
                }
                State::Out => {
                    count(quality::SWITCH_END_WITHOUT_START);
                    self.broken_ns.push(now);
                }
            },
            11 => {
                count(quality::SWITCH_RESET);
                if let Some(hw) = self.resident {
                    self.close(event, hw, now, Some(Ending::Reset), false, true);
                }
                self.broken_ns.push(now);
                for state in self.states.values.iter_mut().filter(|state| !matches!(state, State::Unseen)) {
                    *state = State::Out;
                }
                self.free_since_ns = Some(now);
            }
            _ => count(quality::SWITCH_UNKNOWN_TAG),
        }
    }

    /// Until when `hw`, resident at the last record, is known to have stayed: until the last work of the device.
    ///
    /// Where a process of another context had work later than the last record, the switch to it was not recorded: then
    /// nothing is known after that record. Gives how long that was, too.
    fn open_until_ns(
        &mut self,
        hw: u64,
        device: u32,
        last_work_ns: &BTreeMap<(u32, Option<u32>), i64>,
    ) -> (i64, i64) {
        let work = || last_work_ns.range((device, None)..=(device, Some(u32::MAX)));
        let last_ns = work().map(|(_, last_ns)| *last_ns).max().unwrap_or(i64::MIN);
        let later = |ns: i64| ns.saturating_sub(self.last_ns) > WAKE_NS;
        if !later(last_ns) {
            return (self.last_ns.max(last_ns), 0);
        }
        let State::Resident { pid, .. } = self.states.get(hw) else { return (self.last_ns, 0) };
        let others = self.other_processes(hw, pid);
        let switched = |pid: &Option<u32>| pid.is_some_and(|pid| others.contains(&pid));
        if work().any(|((_, pid), last_ns)| switched(pid) && later(*last_ns)) {
            return (self.last_ns, last_ns.saturating_sub(self.last_ns));
        }
        (last_ns, 0)
    }

    /// Processes that had other contexts than `hw`, which is of process `pid`, and none that was resident as it.
    fn other_processes(&self, hw: u64, pid: Option<u32>) -> BTreeSet<u32> {
        let creation = creation_contexts(&self.slices);
        let (mut own, mut others) = (BTreeSet::from_iter(pid), BTreeSet::new());
        for slice in self.slices.iter().filter(|s| !creation.contains(&(s.device, s.hw_context, s.pid))) {
            if slice.hw_context == hw { &mut own } else { &mut others }.extend(slice.pid);
        }
        &others - &own
    }

    /// Whether the interval that the first record ends may have begun any time: a process of another context began a
    /// kernel before that record, and the switch from it was not recorded.
    fn leads_unseen(&self, leading: &Slice, first_kernel_ns: &BTreeMap<(u32, u32), i64>) -> bool {
        let before = |ns: &i64| leading.end_ns.saturating_sub(*ns) > WAKE_NS;
        let began = |pid: &u32| first_kernel_ns.get(&(leading.device, *pid)).is_some_and(before);
        self.other_processes(leading.hw_context, leading.pid).iter().any(began)
    }

    /// Ends the slice of `hw` at `end_ns`.
    fn close(
        &mut self,
        event: &Event,
        hw: u64,
        end_ns: i64,
        ending: Option<Ending>,
        complete: bool,
        observed: bool,
    ) {
        if let State::Resident { start_ns, pid, running_start_ns, ack } = self.states.get(hw) {
            self.slices.push(Slice {
                capture: event.capture,
                device: event.device,
                tenant: None,
                pid: pid.or(if hw == event.hw { event.pid } else { None }),
                hw_context: hw,
                start_ns,
                end_ns: end_ns.max(start_ns),
                running_start_ns,
                running_end_ns: ack.first_ns,
                ending: ending.unwrap_or_else(|| ack.ending()),
                complete,
                observed,
            });
        }
        if self.resident == Some(hw) {
            self.resident = None;
            self.free_since_ns = Some(end_ns);
        }
    }
}

/// One pass: `switch_events` in, `residency` and `switches` out. Kernels, graphs and copies are looked
/// at only to know how long the device is known to have been in use after its last record.
#[derive(Debug, Default)]
pub struct Residency {
    engines: BTreeMap<(u32, u32), Engine>,
    shared: BTreeMap<u32, Counting>,
    /// When the first kernel of a device began, by process; only where that is asked.
    first_kernel_ns: BTreeMap<(u32, u32), i64>,
    /// When the last work of a device ended, by process.
    last_work_ns: BTreeMap<(u32, Option<u32>), i64>,
    quality: Quality,
    done: u64,
    window: Option<(i64, i64)>,
    /// Of the window, what switches are by the whole recording.
    known: KnownSwitches,
}

impl Residency {
    /// Of events that were cut to a window: an interval that reaches an edge of it goes on beyond, so it is not complete.
    /// Where the table `switches` of the whole recording comes with them, it tells which contexts were being created.
    #[must_use]
    pub fn within(window: Option<(i64, i64)>) -> Self {
        Self { window, ..Self::default() }
    }

    /// Steps through events in order. The engine of one device is taken out of the map while its events last.
    fn follow(&mut self, events: impl Iterator<Item = Event>, watch: &dyn Watch) -> Result<()> {
        let mut current: Option<((u32, u32), Engine)> = None;
        let mut shared: Option<(u32, Counting)> = None;
        for event in events {
            if self.done.is_multiple_of(4096) {
                watch.progress("residency", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            match &mut shared {
                Some((capture, counting)) if *capture == event.capture => counting.see(&event),
                _ => {
                    self.shared.extend(shared.take());
                    let mut counting = self.shared.remove(&event.capture).unwrap_or_default();
                    counting.see(&event);
                    shared = Some((event.capture, counting));
                }
            }
            let key = (event.capture, event.device);
            match &mut current {
                Some((known, engine)) if *known == key => engine.step(&event, &mut self.quality),
                _ => {
                    self.engines.extend(current.take());
                    let mut engine = self.engines.remove(&key).unwrap_or_default();
                    engine.step(&event, &mut self.quality);
                    current = Some((key, engine));
                }
            }
        }
        self.engines.extend(current);
        self.shared.extend(shared);
        Ok(())
    }

    /// Begins the interval that the first record of a device ends with the first work of its process: a switch to another
    /// context and back would have been recorded.
    fn lead<'a, W>(&mut self, work: impl Fn() -> W) -> Result<()>
    where
        W: Iterator<Item = (&'static schema::Table, Columns<'a>)>,
    {
        let mut leading: Vec<_> = self
            .engines
            .iter_mut()
            .filter_map(|(key, engine)| {
                let slice = engine.leading.as_mut()?;
                Some((*key, slice.pid?, slice))
            })
            .collect();
        if leading.is_empty() {
            return Ok(());
        }
        for columns in
            work().take_while(|(table, _)| table.name != schema::MEMOPS.name).map(|(_, columns)| columns)
        {
            let (device, pid, start) =
                (columns.u32("device_id")?, columns.u32("pid")?, columns.i64("start_ns")?);
            for (row, (device, start)) in device.values().iter().zip(start.values()).enumerate() {
                if let Some(pid) = at(pid, row) {
                    let first = self.first_kernel_ns.entry((*device, pid)).or_insert(*start);
                    *first = (*first).min(*start);
                }
            }
        }
        for (_, columns) in work() {
            let (capture, device) = (columns.u32("capture")?, columns.u32("device_id")?);
            let (pid, start) = (columns.u32("pid")?, columns.i64("start_ns")?);
            for (key, process, slice) in &mut leading {
                let own = |row: &usize| {
                    (capture.value(*row), device.value(*row)) == *key && at(pid, *row) == Some(*process)
                };
                let first = (0..columns.rows()).filter(own).map(|row| start.value(row)).min();
                slice.start_ns = slice.start_ns.min(first.unwrap_or(i64::MAX));
            }
        }
        Ok(())
    }
}

impl EventPass for Residency {
    type Output = Output;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        watch.progress("residency", self.done, 0)?;
        if let Some(switches) = events.get(&schema::SWITCHES).filter(|_| self.window.is_some()) {
            self.known = KnownSwitches::read(&switches)?;
        }
        let work = [&schema::KERNELS, &schema::GRAPH_LAUNCHES, &schema::MEMOPS];
        let work = || work.into_iter().filter_map(|table| Some((table, events.get(table)?)));
        for (_, columns) in work() {
            let (device, pid) = (columns.u32("device_id")?, columns.u32("pid")?);
            let end = columns.i64("end_ns")?;
            for (row, (device, end)) in device.values().iter().zip(end.values()).enumerate() {
                let last = self.last_work_ns.entry((*device, at(pid, row))).or_insert(*end);
                *last = (*last).max(*end);
            }
        }
        let Some(columns) = events.get(&schema::SWITCH_EVENTS) else {
            return Ok(());
        };
        let (capture, device) = (columns.u32("capture")?, columns.u32("device_id")?);
        let (time, tag) = (columns.i64("time_ns")?, columns.u8("tag")?);
        let (pid, hw) = (columns.u32("pid")?, columns.u64("hw_context")?);
        let sequence = columns.u16("sequence")?;
        let event = |row: usize| Event {
            capture: capture.value(row),
            device: device.value(row),
            time_ns: time.value(row),
            tag: tag.value(row),
            pid: at(pid, row),
            hw: hw.value(row),
            sequence: sequence.value(row),
        };
        // Nearly always the rows already stand as they must be followed: then nothing is copied.
        let mut first = None;
        let follows = |row: usize| {
            let (a, b) = (event(row), event(row.saturating_add(1)));
            let (same_time, same) = ((a.capture, a.time_ns) == (b.capture, b.time_ns), a.device == b.device);
            if !(same_time && same) {
                first = None;
                return (a.capture, a.time_ns) < (b.capture, b.time_ns) || (same_time && a.device < b.device);
            }
            let first = *first.get_or_insert(a.sequence);
            a.after(first) < b.after(first)
        };
        let rows = columns.rows();
        let rising = |times: &[i64]| times.iter().zip(times.iter().skip(1)).all(|(a, b)| a < b);
        let one = |captures: &[u32]| captures.iter().zip(captures.iter().skip(1)).all(|(a, b)| a == b);
        let clear = rising(time.values()) && one(capture.values());
        if clear || (0..rows.saturating_sub(1)).all(follows) {
            self.follow((0..rows).map(event), watch)?;
            return self.lead(work);
        }
        let mut events: Vec<Event> = (0..rows).map(event).collect();
        events.sort_by_key(|e| (e.capture, e.time_ns, e.device));
        // Equal times: the sequence decides, which may wrap from 65535 to 0 among them. Counted from the first of
        // them, not from one to the next.
        for ties in
            events.chunk_by_mut(|a, b| (a.capture, a.time_ns, a.device) == (b.capture, b.time_ns, b.device))
        {
            if let (true, Some(first)) = (ties.len() > 1, ties.first().map(|e| e.sequence)) {
                ties.sort_by_key(|e| e.after(first));
            }
        }
        self.follow(events.into_iter(), watch)?;
        self.lead(work)
    }

    fn finish(mut self, watch: &dyn Watch) -> Result<Output> {
        watch.progress("residency", self.done, 0)?;
        let mut gaps: BTreeMap<(u32, u32), Vec<Gap>> = BTreeMap::new();
        for (capture, shared) in &self.shared {
            let own: Vec<_> = self.engines.iter().filter(|((c, _), _)| c == capture).collect();
            let own_lost = own.iter().fold(0_u64, |sum, (_, e)| sum.saturating_add(e.counting.lost()));
            // Whether the driver counts per GPU or for all GPUs of a buffer is not documented (dense per GPU in
            // every capture seen, all of one GPU). A counter read the wrong way shows a gap at most records; a
            // real loss does not.
            let records = own.iter().fold(0_u64, |sum, (_, e)| sum.saturating_add(e.records));
            let together = own_lost > records / 4 && shared.lost() < own_lost;
            for (key, engine) in own {
                let found: Vec<Gap> =
                    if together { shared.gaps.clone() } else { engine.counting.gaps.clone() };
                gaps.insert(*key, found.into_iter().filter(|g| g.missing > 0).collect());
            }
            let lost = if together { shared.lost() } else { own_lost };
            let places = if together {
                shared.gaps.iter().filter(|g| g.missing > 0).count()
            } else {
                gaps.iter().filter(|((c, _), _)| c == capture).map(|(_, g)| g.len()).sum()
            };
            let detail = format!("{lost} records in {places} places");
            self.quality.add(Some(*capture), quality::SWITCH_EVENTS_LOST, lost, detail);
        }
        for ((capture, device), engine) in &mut self.engines {
            if let Some(hw) = engine.resident {
                let (last_ns, unknown_ns) = engine.open_until_ns(hw, *device, &self.last_work_ns);
                if unknown_ns > 0 {
                    let detail = format!("the last {:.1} ms", unknown_ns as f64 / 1e6);
                    self.quality.add(Some(*capture), quality::SWITCH_RECORDS_END_EARLY, 1, detail);
                }
                self.quality.add(Some(*capture), quality::SWITCH_START_WITHOUT_END, 1, "");
                let end = Event {
                    capture: *capture,
                    device: *device,
                    time_ns: last_ns,
                    tag: 7,
                    pid: None,
                    hw,
                    sequence: 0,
                };
                engine.close(&end, hw, last_ns, Some(Ending::Open), false, false);
            }
            let key = (*capture, *device);
            let gaps = gaps.get(&key).map_or(&[][..], Vec::as_slice);
            for slice in &mut engine.slices {
                let (start_ns, end_ns) = (slice.start_ns, slice.end_ns);
                let cut = self.window.is_some_and(|(first, last)| start_ns <= first || end_ns >= last);
                if slice.complete && (cut || holds_gap(gaps, *device, start_ns, end_ns)) {
                    slice.complete = false;
                }
            }
            let torn = |slice: &Slice| holds_gap(gaps, *device, slice.start_ns, slice.end_ns);
            let slices = std::mem::take(&mut engine.slices);
            engine.slices = cut_torn_slices(slices, torn, &mut engine.broken_ns);
            engine.slices.sort_by_key(|s| (s.start_ns, s.end_ns, s.hw_context));
            engine.broken_ns.sort_unstable();
        }
        // Two captures of one GPU (one per container, run as root) hold the same records twice.
        let mut order: Vec<(u32, u32)> = self.engines.keys().copied().collect();
        order.sort_by_key(|k| std::cmp::Reverse(self.engines.get(k).map_or(0, |e| e.records)));
        let mut covered: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        for key in order {
            if let Some(engine) = self.engines.get_mut(&key) {
                let taken = covered.entry(key.1).or_default();
                engine.slices.retain(|s| !taken.iter().any(|(a, b)| *a <= s.start_ns && s.start_ns < *b));
                let leading = engine.leading.take().filter(|s| s.start_ns < s.end_ns && taken.is_empty());
                let leading = leading.filter(|s| !engine.leads_unseen(s, &self.first_kernel_ns));
                engine.slices.splice(0..0, leading);
                if let Some(first) = engine.first_ns {
                    taken.push((first, engine.last_ns));
                }
            }
        }
        let mut slices: Vec<Slice> = Vec::new();
        let mut switches: Vec<Switch> = Vec::new();
        if let (Some((key, engine)), 1) = (self.engines.first_key_value(), self.engines.len()) {
            // Both are as long as there are slices: one is written beside the other.
            let gaps = gaps.get(key).map_or(&[][..], Vec::as_slice);
            let (residency, switches) = std::thread::scope(|scope| {
                let (slices, known) = (&engine.slices, &self.known);
                let beside = scope
                    .spawn(|| write_switches(slices, &between(slices, 0, gaps, &engine.broken_ns, known)));
                (Slice::write(slices), beside.join())
            });
            let stopped = || Error::schema(&schema::SWITCHES.id(), "was not written: its thread ended early");
            let switches = switches.map_err(|_| stopped())??;
            return Ok(Output { residency: residency?, switches, quality: self.quality });
        }
        for (key, engine) in &mut self.engines {
            watch.progress("residency", self.done, 0)?;
            let gaps = gaps.get(key).map_or(&[][..], Vec::as_slice);
            switches.extend(between(&engine.slices, slices.len(), gaps, &engine.broken_ns, &self.known));
            slices.append(&mut engine.slices);
        }
        let key = |s: &Switch| ends(&slices, s).map(|(a, _)| (a.end_ns, a.device, a.hw_context));
        switches.sort_by_key(key);
        let switches = write_switches(&slices, &switches)?;
        slices.sort_by_key(|s| (s.start_ns, s.device, s.end_ns, s.hw_context));
        Ok(Output { residency: Slice::write(&slices)?, switches, quality: self.quality })
    }
}

/// A slice between whose ends records are missing may hide that the context left and came back. Of one that is far
/// longer than what its device shows elsewhere only a usual slice at either end is kept: time that no record supports
/// is unknown, not residency.
fn cut_torn_slices(
    slices: Vec<Slice>,
    torn: impl Fn(&Slice) -> bool,
    broken_ns: &mut Vec<i64>,
) -> Vec<Slice> {
    if !slices.iter().any(|s| !s.complete && torn(s)) {
        return slices;
    }
    let whole = slices.iter().filter(|s| s.complete && s.dur_ns() > IDLE_RESIDENCY_NS).map(Slice::dur_ns);
    let Some(usual_ns) = crate::base::statistics::median_ns(&whole.collect::<Vec<_>>()) else {
        return slices;
    };
    let mut cut = |slice: Slice| {
        // Halved, as twice the usual may be more than a number can hold.
        if slice.complete || !torn(&slice) || slice.dur_ns() / 2 < usual_ns {
            return [Some(slice), None];
        }
        let first = Slice { end_ns: slice.start_ns.saturating_add(usual_ns), running_end_ns: None, ..slice };
        let last = Slice { start_ns: slice.end_ns.saturating_sub(usual_ns), running_start_ns: None, ..slice };
        broken_ns.push(first.end_ns);
        [Some(Slice { observed: false, ..first }), Some(Slice { observed: false, ..last })]
    };
    slices.into_iter().flat_map(&mut cut).flatten().collect()
}

/// Do records that are missing lie between these two records?
fn holds_gap(gaps: &[Gap], device: u32, from_ns: i64, to_ns: i64) -> bool {
    // Gaps come in order of their later record.
    let first = gaps.partition_point(|g| g.before_ns < from_ns);
    let close = gaps.iter().skip(first.saturating_sub(1)).take_while(|g| g.before_ns <= to_ns);
    let mut near = close.filter(|g| {
        let own = g.device == device && g.before_ns >= from_ns && g.after_ns <= to_ns;
        // A counter shared by several GPUs: which of them lost records cannot be told.
        let shared = g.device != device && g.before_ns < to_ns && g.after_ns > from_ns;
        own || shared
    });
    near.next().is_some()
}

/// What lies between two slices that follow each other: the place of the first, and the kind. Everything else stands in
/// the slices, of which there may be millions.
#[derive(Debug, Clone, Copy)]
struct Switch {
    first: u32,
    kind: Kind,
}

/// What happened there.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Switch,
    Creation,
    Idle,
    SameContext,
    LostRecords,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Creation => "creation",
            Self::Idle => "idle",
            Self::SameContext => "same-context",
            Self::LostRecords => "lost-records",
        }
    }
}

/// Whether a context was being created at a switch, by device and time, as the whole recording tells it.
///
/// In a part of a recording, a context that is resident for moments only, because it has no kernel yet, looks as if it
/// was being created.
#[derive(Debug, Default)]
struct KnownSwitches(Vec<(u32, i64, bool)>);

impl KnownSwitches {
    fn read(columns: &Columns<'_>) -> Result<Self> {
        let (device, time) = (columns.u32("device_id")?, columns.i64("time_ns")?);
        let kind = columns.names("kind")?;
        let creation = |row: usize| match kind.get(row) {
            Some("creation") => Some(true),
            Some("switch" | "idle") => Some(false),
            _ => None,
        };
        let row = |row: usize| Some((device.value(row), time.value(row), creation(row)?));
        let mut known: Vec<_> = (0..columns.rows()).filter_map(row).collect();
        known.sort_unstable();
        Ok(Self(known))
    }

    /// None: not on record there.
    fn creation(&self, device: u32, time_ns: i64) -> Option<bool> {
        let key = (device, time_ns);
        let place = self.0.partition_point(|(device, time_ns, _)| (*device, *time_ns) < key);
        let (device, time_ns, creation) = self.0.get(place)?;
        ((*device, *time_ns) == key).then_some(*creation)
    }
}

/// The switches between consecutive slices of one engine, which stand from `offset` on in a longer list.
fn between(
    slices: &[Slice],
    offset: usize,
    gaps: &[Gap],
    broken_ns: &[i64],
    known: &KnownSwitches,
) -> Vec<Switch> {
    let pairs = || slices.iter().zip(slices.iter().skip(1));
    let gap = |a: &Slice, b: &Slice| b.start_ns.saturating_sub(a.end_ns);
    let mut close: Vec<i64> = pairs()
        .filter(|(a, b)| a.hw_context != b.hw_context && gap(a, b) <= IDLE_GAP_NS)
        .map(|(a, b)| gap(a, b))
        .collect();
    let idle_ns = median_of(&mut close).map_or(IDLE_GAP_NS, |m| (10.0 * m) as i64).max(IDLE_GAP_NS);
    let creation = creation_contexts(slices);
    let mut seen: PerContext<HwContext, (u64, Option<i64>)> = PerContext::default();
    for s in slices {
        if let Some(entry) = seen.of((s.device, s.hw_context, s.pid)) {
            entry.0 = entry.0.saturating_add(1);
            if s.dur_ns() > IDLE_RESIDENCY_NS {
                entry.1.get_or_insert(s.start_ns);
            }
        }
    }
    // A context with many slices that are all short works in short pieces: it is not being created.
    let mut young = |s: &Slice| {
        let key = (s.device, s.hw_context, s.pid);
        (!creation.is_empty() && creation.contains(&key))
            || seen.of(key).is_some_and(|(count, long)| long.map_or(*count <= 10, |first| s.start_ns < first))
    };
    let mut before_young = slices.first().is_some_and(&mut young);
    pairs()
        .enumerate()
        .map(|(place, (a, b))| {
            let first = broken_ns.partition_point(|t| *t < a.end_ns);
            let broken = broken_ns.get(first).is_some_and(|t| *t <= b.start_ns);
            let a_young = std::mem::replace(&mut before_young, young(b));
            let creation = || known.creation(a.device, a.end_ns).unwrap_or(a_young || before_young);
            let kind = if broken || holds_gap(gaps, a.device, a.end_ns, b.start_ns) {
                Kind::LostRecords
            } else if (a.hw_context, a.pid) == (b.hw_context, b.pid) {
                Kind::SameContext
            } else if creation() {
                Kind::Creation
            } else if gap(a, b) > idle_ns {
                Kind::Idle
            } else {
                Kind::Switch
            };
            Switch { first: u32::try_from(offset.saturating_add(place)).unwrap_or(u32::MAX), kind }
        })
        .collect()
}

/// The slices before and after a switch.
fn ends<'a>(slices: &'a [Slice], switch: &Switch) -> Option<(&'a Slice, &'a Slice)> {
    let first = switch.first as usize;
    slices.get(first).zip(slices.get(first.saturating_add(1)))
}

fn write_switches(slices: &[Slice], switches: &[Switch]) -> Result<RecordBatch> {
    let rows = switches.len();
    let (mut device, mut time) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let (mut from, mut to) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let mut gap = Vec::with_capacity(rows);
    let [mut full, mut save, mut restore] = [(); 3].map(|()| Optional::<Int64Type>::of(rows));
    let (mut ending, mut kind) = (Words::of(rows), Words::of(rows));
    let mut near: Vec<(&Slice, &Slice)> = Vec::with_capacity(CACHED_ROWS);
    for part in switches.chunks(CACHED_ROWS) {
        let pair = |s: &Switch| ends(slices, s);
        near.clear();
        near.extend(part.iter().filter_map(pair));
        let near = || near.iter();
        device.extend(near().map(|(a, _)| a.device));
        time.extend(near().map(|(a, _)| a.end_ns));
        from.extend(near().map(|(a, _)| a.hw_context));
        to.extend(near().map(|(_, b)| b.hw_context));
        gap.extend(near().map(|(a, b)| b.start_ns.saturating_sub(a.end_ns)));
        full.extend(near().map(|(a, b)| Some(b.running_start_ns?.saturating_sub(a.running_end_ns?))));
        save.extend(near().map(|(a, _)| Some(a.end_ns.saturating_sub(a.running_end_ns?))));
        restore.extend(near().map(|(_, b)| Some(b.running_start_ns?.saturating_sub(b.start_ns))));
        ending.extend(near().map(|(a, _)| a.ending.word()));
        kind.extend(part.iter().map(|s| s.kind.word()));
    }
    Builder::new(&schema::SWITCHES)
        .put("device_id", UInt32Array::from(device))
        .put("time_ns", Int64Array::from(time))
        .put("from_hw_context", UInt64Array::from(from))
        .put("to_hw_context", UInt64Array::from(to))
        .put("gap_ns", Int64Array::from(gap))
        .put("full_ns", full.finish())
        .put("save_ns", save.finish())
        .put("restore_ns", restore.finish())
        .put_column_of_words("ending", ending)
        .put_column_of_words("kind", kind)
        .finish(rows)
}

/// Whether residency is not that of the tenant it is recorded for: most of its kernels, of which this is the resident part,
/// ran all outside of it. Switch records name one client of an MPS server for the context that all share, and the few that
/// name another one say nothing of its own.
pub(crate) fn is_of_others(resident_ns: impl Iterator<Item = i64>) -> bool {
    let (outside, all) =
        resident_ns.fold((0_usize, 0_usize), |(outside, all), ns| (outside + usize::from(ns == 0), all + 1));
    2 * outside > all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::Unwatched;
    use crate::table::events::Tables;
    use crate::test_tables::kernels;
    use arrow_array::Array;
    use arrow_array::{UInt16Array, UInt8Array};

    const A: u64 = 814;
    const B: u64 = 830;

    /// (time in us, tag, context, sequence); pid = context + 1000.
    fn events(rows: &[(i64, u8, u64, u16)]) -> Tables {
        let batch = Builder::new(&schema::SWITCH_EVENTS)
            .put("capture", UInt32Array::from(vec![0; rows.len()]))
            .put("device_id", UInt32Array::from(vec![0; rows.len()]))
            .put("time_ns", rows.iter().map(|r| Some(r.0 * 1000)).collect::<Int64Array>())
            .put("tag", rows.iter().map(|r| Some(r.1)).collect::<UInt8Array>())
            .put("pid", rows.iter().map(|r| Some(r.2 as u32 + 1000)).collect::<UInt32Array>())
            .put("hw_context", rows.iter().map(|r| Some(r.2)).collect::<UInt64Array>())
            .put("sequence", rows.iter().map(|r| Some(r.3)).collect::<UInt16Array>())
            .finish(rows.len())
            .unwrap();
        Tables::from([("switch_events", batch)])
    }

    fn dense(rows: &[(i64, u8, u64)]) -> Tables {
        let rows: Vec<_> = rows.iter().zip(0..).map(|(r, n)| (r.0, r.1, r.2, n)).collect();
        events(&rows)
    }

    fn run(tables: &Tables) -> (Vec<Slice>, RecordBatch, Quality) {
        let out = Residency::default().run(tables, &Unwatched).unwrap();
        (Slice::read(&out.residency).unwrap(), out.switches, out.quality)
    }

    fn us(s: &Slice) -> (u64, i64, i64) {
        (s.hw_context, s.start_ns / 1000, s.end_ns / 1000)
    }

    fn kinds(switches: &RecordBatch) -> Vec<String> {
        let kinds = Columns::new(&schema::SWITCHES, switches).names("kind").unwrap();
        (0..switches.num_rows()).map(|r| kinds.get(r).unwrap().to_owned()).collect()
    }

    #[test]
    fn only_tags_seven_and_eight() {
        // A |0======2000|          |4100=====6100|
        // B             |2040==4060|
        let (slices, switches, quality) =
            run(&dense(&[(0, 8, A), (2000, 7, A), (2040, 8, B), (4060, 7, B), (4100, 8, A), (6100, 7, A)]));
        assert_eq!(
            slices.iter().map(us).collect::<Vec<_>>(),
            [(A, 0, 2000), (B, 2040, 4060), (A, 4100, 6100)]
        );
        assert!(slices.iter().all(|s| s.complete && s.observed && s.ending == Ending::Unknown));
        let columns = Columns::new(&schema::SWITCHES, &switches);
        assert_eq!(columns.i64("gap_ns").unwrap().values(), &[40_000, 40_000]);
        assert_eq!(columns.i64("full_ns").unwrap().null_count(), 2);
        assert_eq!(kinds(&switches), ["switch", "switch"]);
        assert_eq!(quality.table().unwrap().num_rows(), 0);
    }

    #[test]
    fn acknowledgements_name_the_ending_and_the_full_cost() {
        // A |0 .9@30 ====== 1@1000 2@1100 6@1110 .. 7@1150|
        // B                                                |8@1190 9@1250 =====
        let (slices, switches, _) = run(&dense(&[
            (0, 8, A),
            (30, 9, A),
            (1000, 1, A),
            (1100, 2, A),
            (1110, 6, A),
            (1150, 7, A),
            (1190, 8, B),
            (1250, 9, B),
            (3000, 7, B),
        ]));
        assert_eq!(slices[0].ending.word(), "CILP");
        assert_eq!((slices[0].running_start_ns, slices[0].running_end_ns), (Some(30_000), Some(1_100_000)));
        let columns = Columns::new(&schema::SWITCHES, &switches);
        assert_eq!(columns.i64("full_ns").unwrap().value(0), 150_000);
        assert_eq!(columns.i64("save_ns").unwrap().value(0), 50_000);
        assert_eq!(columns.i64("restore_ns").unwrap().value(0), 60_000);
    }

    #[test]
    fn recording_begins_and_ends_inside_slices() {
        // A ?======500|           |1600===?
        // B   ^ack@100|  540==1560|
        let mut tables = dense(&[(100, 3, A), (500, 7, A), (540, 8, B), (1560, 7, B), (1600, 8, A)]);
        let (slices, _, quality) = run(&tables);
        assert_eq!(
            slices.iter().map(us).collect::<Vec<_>>(),
            [(A, 100, 500), (B, 540, 1560), (A, 1600, 1600)]
        );
        assert_eq!(slices[0].ending.word(), "WFI");
        assert!(!slices[0].complete && !slices[0].observed);
        assert_eq!(slices[2].ending.word(), "open");
        assert_eq!(quality.count(quality::SWITCH_END_WITHOUT_START), 1);
        assert_eq!(quality.count(quality::SWITCH_START_WITHOUT_END), 1);
        // A kernel that ends later shows that the device was in use until then.
        let kernel = Builder::new(&schema::MEMOPS)
            .put("capture", UInt32Array::from(vec![0]))
            .put("device_id", UInt32Array::from(vec![0]))
            .put("start_ns", Int64Array::from(vec![0]))
            .put("end_ns", Int64Array::from(vec![9_000_000]))
            .put_names("operation", [Some("[CUDA memset]")])
            .put("bytes", Int64Array::from(vec![4]))
            .finish(1)
            .unwrap();
        tables.insert("memops", kernel);
        assert_eq!(us(&run(&tables).0[2]), (A, 1600, 9000));
        // A leading end as the first record of all is no row: its length is not known at all.
        assert!(run(&dense(&[(5, 7, A)])).0.is_empty());
        // Unless work of its process shows that its context was resident before, not that of another's.
        let mut tables = dense(&[(500, 7, A), (540, 8, B), (1560, 7, B)]);
        tables
            .insert("kernels", kernels(&[(0, 9, 0, 1, 7, 50, 90), (0, A as u32 + 1000, 0, 1, 7, 100, 480)]));
        let (slices, switches, _) = run(&tables);
        assert_eq!(slices.iter().map(us).collect::<Vec<_>>(), [(A, 100, 500), (B, 540, 1560)]);
        assert!(!slices[0].complete && !slices[0].observed);
        assert_eq!(kinds(&switches).len(), 1);
    }

    #[test]
    fn residency_ends_with_the_records_where_another_process_works_later() {
        // A |0===500|            |1600==? |9000
        // B          |540==1560|
        let [a, b] = [A, B].map(|hw| hw as u32 + 1000);
        for (b_until_us, a_until_us, unknown) in [(1610, 9000, 0), (3000, 1600, 1)] {
            let mut tables = dense(&[(0, 8, A), (500, 7, A), (540, 8, B), (1560, 7, B), (1600, 8, A)]);
            tables.insert("kernels", kernels(&[(0, a, 0, 1, 7, 10, 9000), (0, b, 0, 1, 7, 600, b_until_us)]));
            let (slices, _, quality) = run(&tables);
            assert_eq!(us(&slices[2]), (A, 1600, a_until_us));
            assert_eq!(quality.count(quality::SWITCH_RECORDS_END_EARLY), unknown);
        }
    }

    #[test]
    fn repeated_start_drops_the_slice_whose_end_is_lost() {
        // A |0====?   |1000====2000|
        let (slices, _, quality) = run(&dense(&[(0, 8, A), (1000, 8, A), (2000, 7, A)]));
        assert_eq!(slices.iter().map(us).collect::<Vec<_>>(), [(A, 1000, 2000)]);
        assert_eq!(quality.count(quality::SWITCH_REPEATED_START), 1);
    }

    #[test]
    fn a_lost_save_ends_at_the_next_start_at_the_latest() {
        // A |0=========?
        // B       |1000=====2000|   and A's own, late end at 1010 is not a second slice
        let (slices, switches, quality) = run(&dense(&[(0, 8, A), (1000, 8, B), (1010, 7, A), (2000, 7, B)]));
        assert_eq!(slices.iter().map(us).collect::<Vec<_>>(), [(A, 0, 1000), (B, 1000, 2000)]);
        assert!(!slices[0].complete && !slices[0].observed && slices[1].complete);
        assert_eq!(quality.count(quality::SWITCH_OVERLAP), 1);
        assert_eq!(quality.count(quality::SWITCH_END_WITHOUT_START), 0);
        assert_eq!(kinds(&switches), ["lost-records"]);
    }

    #[test]
    fn reset_invalid_and_unknown_tags() {
        // A |0=== 10@99999 ===== reset@700    7@800 without a start
        let (slices, _, quality) =
            run(&dense(&[(0, 8, A), (500, 255, A), (700, 11, 0), (800, 7, A), (99_999, 10, A)]));
        assert_eq!(slices.iter().map(us).collect::<Vec<_>>(), [(A, 0, 700)]);
        assert_eq!(slices[0].ending.word(), "reset");
        assert!(!slices[0].complete);
        assert_eq!(quality.count(quality::SWITCH_RESET), 1);
        assert_eq!(quality.count(quality::SWITCH_INVALID), 1);
        assert_eq!(quality.count(quality::SWITCH_UNKNOWN_TAG), 1);
        assert_eq!(quality.count(quality::SWITCH_END_WITHOUT_START), 1);
    }

    #[test]
    fn sequence_gaps_wrap_and_break_slices_and_switches() {
        // 65534 65535 | 0 1 | (2..4 lost) 5 6 | 7 8 (9 10 lost) 11
        let (slices, switches, quality) = run(&events(&[
            (0, 8, A, 65534),
            (2000, 7, A, 65535),
            (2040, 8, B, 0),
            (4040, 7, B, 1),
            (4080, 8, A, 5),
            (6080, 7, A, 6),
            (6120, 8, B, 7),
            (9000, 7, B, 10),
        ]));
        assert_eq!(slices.iter().map(|s| s.complete).collect::<Vec<_>>(), [true, true, true, false]);
        assert_eq!(kinds(&switches), ["switch", "lost-records", "switch"]);
        assert_eq!(quality.count(quality::SWITCH_EVENTS_LOST), 5);
    }

    #[test]
    fn a_slice_around_lost_records_does_not_hide_that_somebody_else_was_there() {
        // A |0==2000|  B |2040==4040|  A |4080===?   (4 records lost)   ?===10400|  B |10440==12440|
        let (slices, switches, _) = run(&events(&[
            (0, 8, A, 0),
            (2000, 7, A, 1),
            (2040, 8, B, 2),
            (4040, 7, B, 3),
            (4080, 8, A, 4),
            (10400, 7, A, 9),
            (10440, 8, B, 10),
            (12440, 7, B, 11),
        ]));
        let a: Vec<_> = slices.iter().filter(|s| s.hw_context == A).map(|s| (us(s), s.complete)).collect();
        assert_eq!(a, [((A, 0, 2000), true), ((A, 4080, 6080), false), ((A, 8400, 10400), false)]);
        assert_eq!(kinds(&switches), ["switch", "switch", "lost-records", "switch"]);
    }

    #[test]
    fn what_is_kept_of_a_torn_slice_of_three_hundred_years_does_not_overlap() {
        let far = i64::MAX / 1000;
        let rows = [(-far, 8, A, 0), (1000, 7, A, 5), (1010, 8, B, 6), (far, 7, B, 7)];
        let (slices, _, _) = run(&events(&rows));
        assert_eq!(slices.iter().map(us).collect::<Vec<_>>(), [(A, -far, 1000), (B, 1010, far)]);
    }

    #[test]
    fn a_counter_shared_by_two_gpus_loses_nothing() {
        let rows: Vec<(i64, u8, u64, u16)> =
            (0..40).map(|n| (i64::from(n) * 1000, if n % 4 < 2 { 8 } else { 7 }, A, n)).collect();
        let tables = events(&rows);
        let batch = tables["switch_events"].clone();
        let devices: UInt32Array = (0..40).map(|n| Some(n % 2)).collect();
        let mut columns = batch.columns().to_vec();
        columns[1] = std::sync::Arc::new(devices);
        let batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
        let (slices, _, quality) = run(&Tables::from([("switch_events", batch)]));
        assert_eq!(slices.len(), 20);
        assert!(slices.iter().all(|s| s.complete));
        assert_eq!(quality.count(quality::SWITCH_EVENTS_LOST), 0);
    }

    #[test]
    fn noisy_times_that_swap_two_records_are_no_loss() {
        let (_, _, quality) =
            run(&events(&[(0, 8, A, 5), (10, 7, A, 6), (20, 7, B, 8), (21, 8, B, 7), (30, 8, A, 9)]));
        assert_eq!(quality.count(quality::SWITCH_EVENTS_LOST), 0);
    }

    #[test]
    fn equal_times_are_ordered_by_sequence() {
        // SAVE_END A and RESTORE_START B in the same nanosecond, handed over in the wrong order.
        let (slices, _, quality) =
            run(&events(&[(0, 8, A, 65534), (1000, 8, B, 0), (1000, 7, A, 65535), (2000, 7, B, 1)]));
        assert_eq!(slices.iter().map(us).collect::<Vec<_>>(), [(A, 0, 1000), (B, 1000, 2000)]);
        assert!(slices.iter().all(|s| s.complete));
        assert_eq!(quality.count(quality::SWITCH_OVERLAP), 0);
    }

    #[test]
    fn idle_same_context_and_creation_are_no_cost() {
        // A 0=1000  1040=2000 | idle 20 ms | B 22000=23000  A 23040=24000, A again 24040=25000
        let (_, switches, _) = run(&dense(&[
            (0, 8, A),
            (1000, 7, A),
            (1040, 8, B),
            (2000, 7, B),
            (22_000, 8, A),
            (23_000, 7, A),
            (23_040, 8, A),
            (24_000, 7, A),
        ]));
        assert_eq!(kinds(&switches), ["switch", "idle", "same-context"]);
        // B shows 25 us only, once: it was created, it did not share.
        let (_, switches, _) =
            run(&dense(&[(0, 8, A), (1000, 7, A), (1040, 8, B), (1065, 7, B), (1105, 8, A), (3000, 7, A)]));
        assert_eq!(kinds(&switches), ["creation", "creation"]);
    }

    #[test]
    fn in_a_window_the_whole_recording_tells_which_contexts_were_being_created() {
        // B is resident for 1000 us, then for 25 us each time, while A has all the rest.
        let mut rows = vec![(0, 8, B), (1000, 7, B)];
        for turn in 0..6 {
            let now = 1040 + turn * 2100;
            rows.extend([(now, 8, A), (now + 2000, 7, A), (now + 2040, 8, B), (now + 2065, 7, B)]);
        }
        let (_, whole, _) = run(&dense(&rows));
        assert_eq!(kinds(&whole), vec!["switch"; 12]);
        // From the first interval of A on nothing but the whole tells that B was not just being created.
        let mut part = dense(rows.get(2..).unwrap());
        let within = |part: &Tables| {
            let out = Residency::within(Some((1_040_000, 14_000_000))).run(part, &Unwatched).unwrap();
            kinds(&out.switches)
        };
        assert_eq!(within(&part), vec!["creation"; 11]);
        part.insert("switches", whole);
        assert_eq!(within(&part), vec!["switch"; 11]);
    }

    #[test]
    fn nothing_gives_empty_tables() {
        let (slices, switches, quality) = run(&Tables::new());
        assert!(slices.is_empty());
        assert_eq!(switches.num_rows(), 0);
        assert_eq!(quality.table().unwrap().num_rows(), 0);
    }
}
