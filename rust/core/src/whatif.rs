//! What would each tenant have taken alone, side by side with the others, or in turns with them?
//!
//! Modelled from what was recorded, never measured. Of every kernel the model knows its *work* (the part of its
//! interval in which its tenant held the engine; the whole interval where no switch records say), of every stream
//! the *gaps* between its kernels. A gap is think time of the host, a copy, or a wait for another stream: nothing
//! says which. Only a wait for the tenant's turn can be told, from the slices of the others right before its own.
//!
//! ```text
//!   stream     |k1k1|      gap       |k2....k2|
//!   resident   |====|==|        |====|     |==|      k2's work: 4 + 2
//!   others             |=======|      |===|          of the gap, the turn of the others was no think time
//! ```
//!
//! - `elapsed_ns`: the block scheduler of `scheduler.rs` over work and gaps less turns; `time-sliced` takes the
//!   busy and idle times of the `exclusive` run and lets the tenants take turns.
//! - `elapsed_low_ns`: no gap counts, every stream runs unhindered: the longest stream's work, or what all blocks
//!   need of the whole device if that is more; less what saving and restoring the state of a context that was switched
//!   out inside a kernel may have taken of its residency (the records of release drivers do not say).
//! - `elapsed_high_ns`: its whole recorded time, then everything that the others ran, one after the other, and for
//!   `time-sliced` every switch there could be. A host may think while its own kernel waits for its turn: alone that
//!   time is no gap in the record, and comes on top of the gaps that are. But no more than the record itself shows:
//!   nothing takes longer alone than it took in company.
//! - `slowdown_low` and `slowdown_high` hold for any share of the gaps that is think time, the same one alone and in
//!   company. They would be wider still if it could differ.
//!
//! They are bounds of the model: that work does not depend on the neighbours (memory, caches, clocks) is an
//! assumption that real hardware breaks, side by side more than in turns.

use std::collections::{BTreeMap, HashMap};

use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array};

use crate::error::{Error, Result};
use crate::fold::{Chunk, Fold, Tables};
use crate::occupancy::{LaunchColumns, Limits, Recorded};
use crate::overlap::{slice_lengths, DEFAULT_SLICE_NS};
use crate::residency::Slice;
use crate::scheduler::{ps, round_robin, Blocks, Engine, Kernel, Phase, Ps, Ran, StartRule};
use crate::schema::{self, Builder};
use crate::statistics::median_ns;
use crate::tenants::{work, Union, Who, Work, WorkKind};
use crate::watch::Watch;

/// Engine idle for longer between two slices: nobody waited for the other's turn to end. As in `residency.rs`.
const IDLE_GAP_NS: i64 = 1_000_000;
/// At most this of a residency is the saving of its state, or the restoring: half of the 145 us that a whole switch was
/// measured to take on an RTX 3090, the pause between the two residencies included.
const STATE_NS: i64 = 73_000;
/// An untraced tenant with less of all residency than one in this many is a display or a context that was created
/// and closed, no tenant to reckon with.
const NOTABLE_PART: i64 = 1000;

/// Where tenants take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSlicing {
    /// Length of a slice.
    pub slice_ns: i64,
    /// Cost of a switch.
    pub gap_ns: i64,
}

/// A stream: context and stream id.
type StreamKey = (Option<u32>, Option<u32>);

#[derive(Debug, Default)]
struct Stream {
    end_ns: i64,
    /// Gaps in front of the next kernel: whole, and less turns of others.
    gap_ns: i64,
    think_ns: i64,
    all_gaps_ns: i64,
    work_ns: i64,
    /// Of the work, what may have been the saving and restoring of state.
    state_ns: i64,
    kernels: Vec<Kernel>,
}

#[derive(Debug, Default)]
struct Tenant {
    first_ns: i64,
    last_ns: i64,
    streams: BTreeMap<StreamKey, Stream>,
    launches: u64,
    /// Kernels and whole graphs whose blocks are not known.
    opaque: u64,
}

/// What is known of a tenant's residency.
#[derive(Debug, Default)]
struct Held {
    resident: Union,
    turns: Union,
}

/// The room: kernels and graph launches in, `whatif` out. Takes `devices`, `tenants` and `residency` of the session.
#[derive(Debug)]
pub struct WhatIf {
    slicing: TimeSlicing,
    who: Who,
    limits: BTreeMap<u32, Limits>,
    held: BTreeMap<u32, Held>,
    /// Devices on which somebody ran whose kernels were not traced, and who.
    unknown: BTreeMap<u32, String>,
    tenants: BTreeMap<u32, Tenant>,
    fits: HashMap<(u32, Recorded), Option<Blocks>>,
    done: u64,
}

/// The time before each slice in which its tenant may have waited for the turns of others.
pub(crate) fn turns_of_others(slices: &[&Slice], slice_ns: i64) -> BTreeMap<u32, Vec<(i64, i64)>> {
    let mut turns: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    for (at, own) in slices.iter().enumerate() {
        let Some(tenant) = own.tenant else { continue };
        let mut from_ns = own.start_ns;
        let mut seen = Vec::new();
        // Round robin: whoever waits sees at most one slice of each of the others.
        for other in slices.iter().take(at).rev() {
            let key = (other.hw_context, other.pid);
            let idle = from_ns.saturating_sub(other.end_ns) > IDLE_GAP_NS;
            if other.tenant == own.tenant || idle || seen.contains(&key) {
                break;
            }
            seen.push(key);
            from_ns = other.start_ns.max(other.end_ns.saturating_sub(slice_ns));
            // It held the engine for longer than a slice: nobody waited when that began.
            if from_ns > other.start_ns {
                break;
            }
        }
        if from_ns < own.start_ns {
            turns.entry(tenant).or_default().push((from_ns, own.start_ns));
        }
    }
    turns
}

impl WhatIf {
    /// Reads what stands left of this room.
    ///
    /// # Errors
    /// [`Error::Argument`] for a slice shorter than a microsecond or a negative gap, [`Error::Schema`] for tables
    /// that are not what they are declared to be.
    pub fn new(session: &Tables, slicing: TimeSlicing) -> Result<Self> {
        if slicing.slice_ns < 1000 || slicing.gap_ns < 0 {
            return Err(Error::Argument(format!(
                "a time slice of {} ns and a switch of {} ns cannot be modelled; take a slice of 1000 ns or more and a switch of 0 or more",
                slicing.slice_ns, slicing.gap_ns
            )));
        }
        let who = Who::read(session)?;
        let mut slices = session.get(schema::RESIDENCY.name).map_or(Ok(Vec::new()), Slice::read)?;
        slices.sort_by_key(|s| (s.device, s.start_ns));
        let mut held: BTreeMap<u32, Held> = BTreeMap::new();
        let mut unknown = BTreeMap::new();
        let devices = match session.get(schema::DEVICES.name) {
            Some(devices) => Limits::of_devices(devices)?,
            None => BTreeMap::new(),
        };
        let mut by_device: BTreeMap<u32, Vec<&Slice>> = BTreeMap::new();
        for slice in &slices {
            by_device.entry(slice.device).or_default().push(slice);
        }
        let lengths = slice_lengths(&slices);
        for (device, slices) in &by_device {
            let usual = lengths.get(device).and_then(|l| median_ns(l)).unwrap_or(0);
            let slice_ns = usual.max(DEFAULT_SLICE_NS);
            let mut spans: BTreeMap<Option<u32>, Vec<(i64, i64)>> = BTreeMap::new();
            for s in slices {
                spans.entry(s.tenant).or_default().push((s.start_ns, s.end_ns));
            }
            let mut turns = turns_of_others(slices, slice_ns);
            let all_ns = slices.iter().fold(0_i64, |sum, s| sum.saturating_add(s.dur_ns().max(0)));
            let mut strangers = Vec::new();
            for (tenant, spans) in spans {
                let traced = tenant.and_then(|t| who.tenants.get(t as usize)).is_some_and(|t| t.traced);
                let resident = Union::of(spans);
                if !traced && resident.total_ns() > all_ns / NOTABLE_PART {
                    let ms = resident.total_ns() / 1_000_000;
                    let name = tenant.map_or("somebody unnamed".to_owned(), |t| format!("tenant {t}"));
                    strangers.push(format!("{name} held the engine for {ms} ms"));
                }
                if let Some(t) = tenant {
                    let turns = Union::of(turns.remove(&t).unwrap_or_default());
                    held.insert(t, Held { resident, turns });
                }
            }
            if !strangers.is_empty() {
                unknown.insert(*device, strangers.join(", "));
            }
        }
        for t in who.tenants.iter().filter(|t| !t.traced && !by_device.contains_key(&t.device)) {
            unknown.entry(t.device).or_insert_with(|| format!("tenant {} was seen", t.id));
        }
        let (tenants, fits) = (BTreeMap::new(), HashMap::new());
        Ok(Self { slicing, who, limits: devices, held, unknown, tenants, fits, done: 0 })
    }

    fn engine(&self, device: u32) -> Engine {
        let limits = self.limits.get(&device);
        let per_sm = limits.map_or([0; 4], Limits::resources);
        Engine::new(per_sm, limits.and_then(|l| l.sm_count).unwrap_or(0), StartRule::Free)
    }

    fn blocks(&mut self, device: u32, launch: Recorded) -> Option<Blocks> {
        let count = launch.grid_blocks?;
        let shape = launch.shape();
        let fit = if let Some(known) = self.fits.get(&(device, shape)) {
            *known
        } else {
            let limits = self.limits.get(&device);
            let engine = self.engine(device);
            let at_once = shape.fit(limits).ok().and_then(|fit| fit.device_blocks);
            let ask = limits.and_then(|l| shape.footprint(l));
            let fit = at_once.zip(ask).and_then(|(at_once, ask)| engine.blocks(1, at_once, ask));
            self.fits.insert((device, shape), fit);
            fit
        };
        fit.map(|fit| Blocks { count, ..fit })
    }

    fn take(&mut self, w: &Work, blocks: Option<Blocks>) {
        let Some(id) = self.who.of(w.capture, w.pid, w.device) else { return };
        let held = self.held.get(&id);
        let tenant =
            self.tenants.entry(id).or_insert_with(|| Tenant { first_ns: w.start_ns, ..Tenant::default() });
        let first_ns = tenant.first_ns;
        let stream = tenant
            .streams
            .entry((w.context, w.stream))
            .or_insert_with(|| Stream { end_ns: first_ns, ..Stream::default() });
        // Kernels of one stream that overlap (branches of a graph) count once: the later one for what it adds.
        let from_ns = w.start_ns.max(stream.end_ns);
        if from_ns > stream.end_ns {
            let gap_ns = from_ns.saturating_sub(stream.end_ns);
            let turn_ns = held.map_or(0, |h| h.turns.covered_ns(stream.end_ns, from_ns));
            stream.gap_ns = stream.gap_ns.saturating_add(gap_ns);
            stream.think_ns = stream.think_ns.saturating_add(gap_ns.saturating_sub(turn_ns));
        }
        stream.end_ns = stream.end_ns.max(w.end_ns);
        tenant.last_ns = tenant.last_ns.max(w.end_ns);
        tenant.launches = tenant.launches.saturating_add(1);
        let whole_ns = w.end_ns.saturating_sub(from_ns).max(0);
        let work_ns = held.map_or(whole_ns, |h| h.resident.covered_ns(from_ns, w.end_ns));
        if work_ns == 0 {
            return;
        }
        let edges = held.map_or(0, |h| h.resident.edges_inside(from_ns, w.end_ns));
        let state_ns = i64::try_from(edges).unwrap_or(i64::MAX).saturating_mul(STATE_NS).min(work_ns / 2);
        stream.state_ns = stream.state_ns.saturating_add(state_ns);
        tenant.opaque = tenant.opaque.saturating_add(u64::from(blocks.is_none()));
        stream.all_gaps_ns = stream.all_gaps_ns.saturating_add(stream.gap_ns);
        stream.work_ns = stream.work_ns.saturating_add(work_ns);
        stream.kernels.push(Kernel { after_ns: stream.think_ns, work_ns, blocks });
        (stream.gap_ns, stream.think_ns) = (0, 0);
    }
}

/// What the model says of one tenant, in nanoseconds.
#[derive(Debug, Clone, Default)]
struct Sums {
    /// All its work, one kernel after the other.
    work_ns: i64,
    /// Gaps of the stream that has most.
    gaps_ns: i64,
    /// Nothing can be faster.
    least_ns: i64,
    /// Work of the stream with least.
    shortest_ns: i64,
    kernels: i64,
}

impl Sums {
    fn of(tenant: &Tenant, engine: &Engine) -> Self {
        let streams = || tenant.streams.values().filter(|s| !s.kernels.is_empty());
        let mut areas = [0_i64; 4];
        for k in streams().flat_map(|s| &s.kernels) {
            for (sum, area) in areas.iter_mut().zip(engine.area(k)) {
                *sum = sum.saturating_add(area);
            }
        }
        let work_ns = streams().fold(0_i64, |sum, s| sum.saturating_add(s.work_ns));
        let state_ns = streams().fold(0_i64, |sum, s| sum.saturating_add(s.state_ns));
        let surely = 1.0 - state_ns as f64 / work_ns.max(1) as f64;
        let area_ns = (areas.iter().max().copied().unwrap_or(0) as f64 / 1000.0 * surely) as i64;
        let longest = streams().map(|s| s.work_ns.saturating_sub(s.state_ns)).max().unwrap_or(0);
        Self {
            work_ns,
            gaps_ns: streams().map(|s| s.all_gaps_ns).max().unwrap_or(0),
            least_ns: longest.max(area_ns),
            shortest_ns: streams().map(|s| s.work_ns).min().unwrap_or(0),
            kernels: streams().fold(0, |n, s| n.saturating_add(i64::try_from(s.kernels.len()).unwrap_or(0))),
        }
    }

    /// Gaps of which alone and in company the ratio is most extreme: with more, think time hides waiting; with
    /// less, it does not yet set the length.
    fn telling_gaps_ns(&self) -> i64 {
        self.gaps_ns.min(self.least_ns.saturating_sub(self.shortest_ns).max(0))
    }
}

/// Busy and idle times of a run on an idle device.
fn phases(ran: &[Ran]) -> Vec<Phase> {
    let busy = Union::of(ran.iter().map(|r| (r.start, r.end)));
    let mut until = 0;
    let mut phases = Vec::with_capacity(busy.spans().len());
    for (start, end) in busy.spans() {
        phases.push(Phase { think: start.saturating_sub(until), busy: end.saturating_sub(*start) });
        until = *end;
    }
    phases
}

/// A row of `whatif`.
#[derive(Debug)]
struct Row {
    device: u32,
    tenant: u32,
    scenario: &'static str,
    /// Busy, elapsed, low, high.
    times: Option<[i64; 4]>,
    /// Value, low, high.
    slowdown: Option<[f64; 3]>,
    detail: String,
}

const EXCLUSIVE: &str = "modelled alone on the device";
const SIDE_BY_SIDE: &str = "modelled with all tenants on the same SMs: blocks first come first served, equal blocks, no contention for memory or caches";

#[allow(clippy::cast_precision_loss)] // times stay far below 2^53 ns (104 days)
fn ratio(a: i64, b: i64) -> f64 {
    a as f64 / b.max(1) as f64
}

impl WhatIf {
    fn device(&self, device: u32, rows: &mut Vec<Row>, watch: &dyn Watch) -> Result<()> {
        let engine = self.engine(device);
        let here: Vec<(u32, &Tenant)> = self
            .who
            .tenants
            .iter()
            .filter(|t| t.device == device)
            .filter_map(|t| Some((t.id, self.tenants.get(&t.id)?)))
            .filter(|(_, t)| t.streams.values().any(|s| !s.kernels.is_empty()))
            .collect();
        let sums: Vec<Sums> = here.iter().map(|(_, t)| Sums::of(t, &engine)).collect();
        let origin_ns = here.iter().map(|(_, t)| t.first_ns).min().unwrap_or(0);
        let later = |t: &Tenant| t.first_ns.saturating_sub(origin_ns);
        let elapsed = |end: Ps, from_ns: i64| end.saturating_sub(ps(from_ns)).max(0) / 1000;

        let mut alone = Vec::with_capacity(here.len());
        for (_, tenant) in &here {
            let streams: Vec<&[Kernel]> = tenant.streams.values().map(|s| s.kernels.as_slice()).collect();
            alone.push(phases(&engine.run(&streams, &mut |_| {}, watch)?));
        }
        let ends = |phases: &[Phase]| {
            phases.iter().fold(0, |sum: Ps, p| sum.saturating_add(p.think).saturating_add(p.busy))
        };
        let busy = |phases: &[Phase]| phases.iter().fold(0, |sum: Ps, p| sum.saturating_add(p.busy)) / 1000;
        let alone_ns: Vec<i64> = alone.iter().map(|p| ends(p) / 1000).collect();
        let busy_ns: Vec<i64> = alone.iter().map(|p| busy(p)).collect();

        let known = !self.unknown.contains_key(&device);
        let (mut beside, mut sliced) = (Vec::new(), Vec::new());
        if known {
            beside = self.side_by_side(&engine, &here, origin_ns, watch)?;
            let late: Vec<Vec<Phase>> = here
                .iter()
                .zip(&alone)
                .map(|((_, tenant), phases)| {
                    let mut phases = phases.clone();
                    if let Some(first) = phases.first_mut() {
                        first.think = first.think.saturating_add(ps(later(tenant)));
                    }
                    phases
                })
                .collect();
            let TimeSlicing { slice_ns, gap_ns } = self.slicing;
            let ends = round_robin(&late, ps(slice_ns), ps(gap_ns), watch)?;
            sliced = ends.iter().zip(&here).map(|(end, (_, t))| elapsed(*end, later(t))).collect();
        }
        let all_work_ns = sums.iter().fold(0_i64, |sum, s| sum.saturating_add(s.work_ns));
        let switching_ns = self.most_switching_ns(&sums);
        let TimeSlicing { slice_ns, gap_ns } = self.slicing;
        let turns = format!(
            "modelled in turns: work-conserving round robin, slices of {slice_ns} ns, {gap_ns} ns a switch; neighbours cost nothing but their turns"
        );
        for t in self.who.tenants.iter().filter(|t| t.device == device) {
            let at = here.iter().position(|(id, _)| *id == t.id);
            let mine =
                at.and_then(|n| Some((sums.get(n)?, *alone_ns.get(n)?, *busy_ns.get(n)?, here.get(n)?.1)));
            for (scenario, how) in
                [("exclusive", EXCLUSIVE), ("side-by-side", SIDE_BY_SIDE), ("time-sliced", &turns)]
            {
                let (device, tenant) = (t.device, t.id);
                let Some((sum, alone_ns, busy_ns, work)) = mine else {
                    let detail = if t.traced { "it ran no kernels" } else { "its kernels were not traced" };
                    let detail = detail.to_owned();
                    rows.push(Row { device, tenant, scenario, times: None, slowdown: None, detail });
                    continue;
                };
                let (value, busy_ns, others_ns) = match scenario {
                    "exclusive" => (Some(alone_ns), busy_ns, sum.work_ns),
                    "side-by-side" => {
                        let run = at.and_then(|n| beside.get(n)).copied();
                        (run.map(|r| r.0), run.map_or(0, |r| r.1), all_work_ns)
                    }
                    _ => {
                        let end = at.and_then(|n| sliced.get(n)).copied();
                        (end, busy_ns, all_work_ns.saturating_add(switching_ns))
                    }
                };
                let Some(value) = value else {
                    let who = self.unknown.get(&device).map_or("", String::as_str);
                    let detail = format!("{who}, and what it ran was not traced");
                    rows.push(Row { device, tenant, scenario, times: None, slowdown: None, detail });
                    continue;
                };
                let recorded_ns = work.last_ns.saturating_sub(work.first_ns);
                let own_ns = sum.gaps_ns.saturating_add(sum.work_ns).max(recorded_ns);
                let high_ns = own_ns.saturating_add(others_ns.saturating_sub(sum.work_ns));
                let slowdown = if scenario == "exclusive" {
                    [1.0; 3]
                } else {
                    let (gaps, least) = (sum.telling_gaps_ns(), sum.least_ns);
                    let low = ratio(least, gaps.saturating_add(sum.work_ns));
                    let high = ratio(gaps.saturating_add(others_ns), least);
                    [ratio(value, alone_ns), low, high]
                };
                rows.push(Row {
                    device,
                    tenant,
                    scenario,
                    times: Some([busy_ns, value, sum.least_ns, high_ns]),
                    slowdown: (alone_ns > 0).then_some(slowdown),
                    detail: self.detail(how, t.id, work),
                });
            }
        }
        Ok(())
    }

    /// Elapsed and busy time of each tenant with all on the device at once.
    fn side_by_side(
        &self,
        engine: &Engine,
        here: &[(u32, &Tenant)],
        origin_ns: i64,
        watch: &dyn Watch,
    ) -> Result<Vec<(i64, i64)>> {
        let (mut owners, mut streams) = (Vec::new(), Vec::new());
        for (owner, (_, tenant)) in here.iter().enumerate() {
            let later_ns = tenant.first_ns.saturating_sub(origin_ns);
            for stream in tenant.streams.values() {
                let mut kernels = stream.kernels.clone();
                if let Some(first) = kernels.first_mut() {
                    first.after_ns = first.after_ns.saturating_add(later_ns);
                }
                owners.push(owner);
                streams.push(kernels);
            }
        }
        let streams: Vec<&[Kernel]> = streams.iter().map(Vec::as_slice).collect();
        let mut own: Vec<Vec<Ran>> = vec![Vec::new(); here.len()];
        for ran in engine.run(&streams, &mut |_| {}, watch)? {
            let owner = owners.get(ran.stream).and_then(|n| own.get_mut(*n));
            owner.into_iter().for_each(|list| list.push(ran));
        }
        Ok(here
            .iter()
            .zip(own)
            .map(|((_, tenant), ran)| {
                let end = ran.iter().map(|r| r.end).max().unwrap_or(0);
                let from = ps(tenant.first_ns.saturating_sub(origin_ns));
                let busy = Union::of(ran.iter().map(|r| (r.start, r.end))).total_ns();
                (end.saturating_sub(from) / 1000, busy / 1000)
            })
            .collect())
    }

    /// Every switch that taking turns could cost: a slice ends when it is over or its tenant has no work, and of
    /// two switches in a row one is to a tenant that is not the most frequent.
    fn most_switching_ns(&self, sums: &[Sums]) -> i64 {
        let turns = |s: &Sums| (s.work_ns / self.slicing.slice_ns.max(1)).saturating_add(s.kernels);
        let all = sums.iter().fold(0_i64, |n, s| n.saturating_add(turns(s)));
        let most = sums.iter().map(turns).max().unwrap_or(0);
        let switches = all.min(all.saturating_sub(most).saturating_mul(2).saturating_add(1));
        if sums.len() < 2 {
            0
        } else {
            switches.saturating_mul(self.slicing.gap_ns)
        }
    }

    fn detail(&self, how: &str, id: u32, tenant: &Tenant) -> String {
        let work = if self.held.contains_key(&id) {
            "the time its context held the engine"
        } else {
            "its recorded duration (no switch records: whatever it waited or was slowed inside is counted as work)"
        };
        let opaque = match tenant.opaque {
            0 => String::new(),
            n => format!("; {n} of unknown shape (whole graphs among them) are taken to fill the device"),
        };
        format!("{how}. {} kernels; work of a kernel: {work}; gaps of a stream, copies among them: think time, none of it in the low bound, all in the high one{opaque}", tenant.launches)
    }
}

impl Fold for WhatIf {
    type Output = RecordBatch;

    fn push(&mut self, chunk: &Chunk, watch: &dyn Watch) -> Result<()> {
        let columns = chunk.get(&schema::KERNELS);
        let launches = columns.as_ref().map(LaunchColumns::new).transpose()?;
        for w in work(chunk)? {
            if self.done.is_multiple_of(16_384) {
                watch.progress("what if", self.done, 0)?;
            }
            self.done = self.done.saturating_add(1);
            let blocks = match (w.kind, &launches) {
                (WorkKind::Copy, _) => continue,
                (WorkKind::Kernel, Some(launches)) => self.blocks(w.device, launches.read(w.row)),
                _ => None,
            };
            self.take(&w, blocks);
        }
        watch.progress("what if", self.done, 0)
    }

    fn finish(self, watch: &dyn Watch) -> Result<RecordBatch> {
        let devices: std::collections::BTreeSet<u32> = self.who.tenants.iter().map(|t| t.device).collect();
        let mut rows = Vec::new();
        watch.progress("what if", self.done, self.done)?;
        for device in devices {
            self.device(device, &mut rows, watch)?;
        }
        let time =
            |n: usize| rows.iter().map(|r| r.times.and_then(|t| t.get(n).copied())).collect::<Int64Array>();
        let slow = |n: usize| {
            rows.iter().map(|r| r.slowdown.and_then(|s| s.get(n).copied())).collect::<Float64Array>()
        };
        Builder::new(&schema::WHATIF)
            .put("device_id", rows.iter().map(|r| Some(r.device)).collect::<UInt32Array>())
            .put("tenant_id", rows.iter().map(|r| Some(r.tenant)).collect::<UInt32Array>())
            .put_names("scenario", rows.iter().map(|r| Some(r.scenario)))
            .put("busy_ns", time(0))
            .put("elapsed_ns", time(1))
            .put("elapsed_low_ns", time(2))
            .put("elapsed_high_ns", time(3))
            .put("slowdown", slow(0))
            .put("slowdown_low", slow(1))
            .put("slowdown_high", slow(2))
            .put_names("basis", rows.iter().map(|_| Some("modelled")))
            .put("detail", rows.iter().map(|r| Some(r.detail.as_str())).collect::<StringArray>())
            .finish(rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{StopAfter, Unwatched};
    use arrow_array::{BooleanArray, UInt64Array};
    use proptest::prelude::*;

    /// 10 SMs of compute capability 8.0: 8 blocks of 256 threads and 32 registers each, 80 on the device.
    fn devices() -> RecordBatch {
        let device = Builder::new(&schema::DEVICES)
            .put("device_id", UInt32Array::from(vec![0]))
            .put("capture", UInt32Array::from(vec![0]))
            .put("sm_count", UInt32Array::from(vec![10]))
            .put("compute_major", UInt32Array::from(vec![8]))
            .put("compute_minor", UInt32Array::from(vec![0]))
            .put_names("limits_basis", [Some("capture")])
            .finish(1)
            .unwrap();
        crate::device::complete(&device, &mut crate::quality::Quality::default()).unwrap()
    }

    /// (tenant, stream, start, end, blocks); pid is tenant + 1.
    type Row = (u32, u32, i64, i64, u32);

    fn kernels(rows: &[Row]) -> RecordBatch {
        let n = rows.len();
        let all = |v: u32| UInt32Array::from(vec![v; n]);
        let zero = || Int64Array::from(vec![0; n]);
        Builder::new(&schema::KERNELS)
            .put("capture", all(0))
            .put("pid", rows.iter().map(|r| Some(r.0 + 1)).collect::<UInt32Array>())
            .put("device_id", all(0))
            .put("context_id", all(1))
            .put("stream_id", rows.iter().map(|r| Some(r.1)).collect::<UInt32Array>())
            .put("start_ns", rows.iter().map(|r| r.2).collect::<Int64Array>())
            .put("end_ns", rows.iter().map(|r| r.3).collect::<Int64Array>())
            .put("grid_x", rows.iter().map(|r| r.4).collect::<UInt32Array>())
            .put("grid_y", all(1))
            .put("grid_z", all(1))
            .put("block_x", all(256))
            .put("block_y", all(1))
            .put("block_z", all(1))
            .put("registers_per_thread", all(32))
            .put("static_shared_bytes", zero())
            .put("dynamic_shared_bytes", zero())
            .finish(n)
            .unwrap()
    }

    fn session(rows: &[Row], slices: &[(u32, i64, i64)], traced: &[bool]) -> Tables {
        let n = traced.len();
        let ids = || (0..n as u32).map(Some);
        let text = || StringArray::from(vec![""; n]);
        let tenants = Builder::new(&schema::TENANTS)
            .put("tenant_id", ids().collect::<UInt32Array>())
            .put("device_id", UInt32Array::from(vec![0; n]))
            .put("capture", UInt32Array::from(vec![0; n]))
            .put("pid", ids().map(|id| id.map(|id| id + 1)).collect::<UInt32Array>())
            .put("name", text())
            .put("contexts", text())
            .put("hw_contexts", text())
            .put("traced", BooleanArray::from(traced.to_vec()))
            .put_names("basis", vec![Some("observed"); n])
            .finish(n)
            .unwrap();
        let n = slices.len();
        let residency = Builder::new(&schema::RESIDENCY)
            .put("capture", UInt32Array::from(vec![0; n]))
            .put("device_id", UInt32Array::from(vec![0; n]))
            .put("tenant_id", slices.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
            .put("hw_context", slices.iter().map(|r| u64::from(r.0)).collect::<UInt64Array>())
            .put("start_ns", slices.iter().map(|r| r.1).collect::<Int64Array>())
            .put("end_ns", slices.iter().map(|r| r.2).collect::<Int64Array>())
            .put_names("ending", vec![Some("WFI"); n])
            .put("complete", BooleanArray::from(vec![true; n]))
            .put_names("basis", vec![Some("observed"); n])
            .finish(n)
            .unwrap();
        [("devices", devices()), ("tenants", tenants), ("residency", residency), ("kernels", kernels(rows))]
            .into()
    }

    const SLICING: TimeSlicing = TimeSlicing { slice_ns: 1000, gap_ns: 10 };

    fn run(tables: &Tables, chunk: usize) -> RecordBatch {
        WhatIf::new(tables, SLICING).unwrap().run(tables, chunk, &Unwatched).unwrap()
    }

    /// Elapsed, low, high and slowdown, low, high of a tenant in a scenario.
    fn row(made: &RecordBatch, tenant: u32, scenario: &str) -> Option<([i64; 3], [f64; 3])> {
        let c = schema::Columns::new(&schema::WHATIF, made);
        let at = (0..c.rows()).find(|r| {
            c.u32("tenant_id").unwrap().value(*r) == tenant
                && c.names("scenario").unwrap().get(*r) == Some(scenario)
        });
        let at = at.unwrap();
        assert!(!c.text("detail").unwrap().value(at).is_empty());
        let ns = |name| c.i64(name).unwrap().iter().nth(at).unwrap();
        let f = |name| c.f64(name).unwrap().iter().nth(at).unwrap();
        Some((
            [ns("elapsed_ns")?, ns("elapsed_low_ns")?, ns("elapsed_high_ns")?],
            [f("slowdown")?, f("slowdown_low")?, f("slowdown_high")?],
        ))
    }

    #[test]
    fn two_that_fill_the_device_are_one_after_the_other() {
        //  A |==========|             80 of 80 blocks
        //  B            |==========|  80 of 80 blocks, ready at 0 as well
        let made = run(&session(&[(0, 7, 0, 100, 80), (1, 7, 0, 100, 80)], &[], &[true, true]), 0);
        assert_eq!(row(&made, 0, "exclusive"), Some(([100, 100, 100], [1.0; 3])));
        assert_eq!(row(&made, 0, "side-by-side"), Some(([100, 100, 200], [1.0, 1.0, 2.0])));
        assert_eq!(row(&made, 1, "side-by-side"), Some(([200, 100, 200], [2.0, 1.0, 2.0])));
    }

    #[test]
    fn two_halves_run_at_once() {
        let made = run(&session(&[(0, 7, 0, 100, 40), (1, 7, 0, 100, 40)], &[], &[true, true]), 0);
        for tenant in 0..2 {
            assert_eq!(row(&made, tenant, "side-by-side"), Some(([100, 100, 200], [1.0, 1.0, 2.0])));
        }
    }

    #[test]
    fn equal_tenants_in_turns_take_twice_as_long() {
        // 1000 slices of 1000 each; turn k ends at 1010 k - 10. A has the odd turns, B the even ones.
        let n = 1_000_000;
        let made = run(&session(&[(0, 7, 0, n, 80), (1, 7, 0, n, 80)], &[], &[true, true]), 0);
        let (a, b) = (row(&made, 0, "time-sliced").unwrap(), row(&made, 1, "time-sliced").unwrap());
        assert_eq!((a.0[0], b.0[0]), (1999 * 1010 - 10, 2000 * 1010 - 10));
        assert!((a.1[0] - 2.01898).abs() < 1e-9 && (b.1[0] - 2.01999).abs() < 1e-9);
        // High: 2 n of work, and 1001 turns of each at 10 a switch.
        assert_eq!(b.0[2], 2 * n + 2002 * 10);
    }

    #[test]
    fn work_is_resident_time_and_a_turn_of_the_other_is_no_think_time() {
        // The picture at the top, times ten: of the gap 40..150 the other's turn took 60..130.
        let held = [(0, 0, 60), (1, 60, 130), (0, 130, 170), (1, 170, 210), (0, 210, 230)];
        let ran = [(0, 7, 0, 40, 80), (1, 7, 60, 210, 80), (0, 7, 150, 230, 80)];
        let made = run(&session(&ran, &held, &[true, true]), 0);
        // 40 work, 40 think, 20 + 20 work; at most all that was recorded, 0 to 230: its host may have thought while the
        // kernel waited for its turn, and would do so on an idle device alone. Without any gap 80, of which the second 40, cut in
        // the middle, may be half state that was saved and restored (which takes far longer than this drawing).
        assert_eq!(row(&made, 0, "exclusive"), Some(([120, 60, 230], [1.0; 3])));
        assert_eq!(row(&made, 1, "exclusive").unwrap().0, [110, 55, 150]);
    }

    #[test]
    fn streams_of_a_tenant_run_beside_each_other() {
        // 20 blocks for 100 ns and 60 for 50: the longest stream is the low bound, the sum the high one.
        let made = run(&session(&[(0, 7, 0, 100, 20), (0, 8, 0, 50, 60)], &[], &[true]), 0);
        assert_eq!(row(&made, 0, "exclusive").unwrap().0, [100, 100, 150]);
        // Nobody else: the same in turns.
        assert_eq!(row(&made, 0, "time-sliced").unwrap().0, [100, 100, 150]);
    }

    #[test]
    fn work_that_was_not_traced_leaves_the_shared_scenarios_open() {
        let held = [(0, 0, 60), (1, 60, 130)];
        let made = run(&session(&[(0, 7, 0, 50, 80)], &held, &[true, false]), 0);
        assert_eq!(row(&made, 0, "exclusive").unwrap().0, [50; 3]);
        for (tenant, scenario) in [(0, "side-by-side"), (0, "time-sliced"), (1, "exclusive")] {
            assert_eq!(row(&made, tenant, scenario), None);
        }
    }

    #[test]
    fn impossible_slices_are_refused_and_it_stops_when_told() {
        let tables = session(&[(0, 7, 0, 50, 80)], &[], &[true]);
        let none = WhatIf::new(&tables, TimeSlicing { slice_ns: 0, gap_ns: 1 });
        assert!(matches!(none, Err(Error::Argument(_))));
        for reports in 0..3 {
            let stop = StopAfter::new(reports);
            assert!(matches!(
                WhatIf::new(&tables, SLICING).unwrap().run(&tables, 0, &stop),
                Err(Error::Cancelled)
            ));
        }
    }

    proptest! {
        #[test]
        fn the_estimate_lies_between_its_bounds(
            mut drawn in prop::collection::vec((0_u32..3, 7_u32..9, 0_i64..20_000, 1_i64..5_000, 1_u32..400), 1..40),
            turns in prop::collection::vec((0_u32..3, 1_i64..3000), 0..20),
            cut in 1_usize..7,
        ) {
            drawn.sort_by_key(|r| r.2);
            let ran: Vec<Row> = drawn.iter().map(|r| (r.0, r.1, r.2, r.2 + r.3, r.4)).collect();
            let mut now = 0;
            let held: Vec<_> = turns.iter().map(|(t, dur)| { now += dur + 5; (*t, now - dur, now) }).collect();
            let tables = session(&ran, &held, &[true; 3]);
            let made = run(&tables, 0);
            prop_assert_eq!(&made, &run(&tables, cut));
            for tenant in 0..3 {
                for scenario in ["exclusive", "side-by-side", "time-sliced"] {
                    let Some((ns, slow)) = row(&made, tenant, scenario) else { continue };
                    prop_assert!(ns[1] <= ns[0] && ns[0] <= ns[2], "{scenario} {ns:?}");
                    let (low, high) = (slow[1] * 0.999_999, slow[2] * 1.000_001);
                    prop_assert!(low <= slow[0] && slow[0] <= high, "{scenario} {slow:?} {ns:?}");
                    prop_assert!(scenario != "exclusive" || slow == [1.0; 3]);
                }
            }
        }
    }
}
