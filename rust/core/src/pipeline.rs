//! The order in which the passes run.
//!
//! ```text
//!   captures -> clock, device -> samples -> | switch_events -> residency -> tenants -> overlap -> facts
//!              \___________ a session _______/   \____________________ reconstructed __________________/
//! ```
//!
//! Samples may come without captures; they then make the session by themselves.
//!
//! A pass sees the tables of the passes before it and nothing else. Passes that do not depend on each other run at
//! once.

use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::activity::attribution::Attribution;
use crate::activity::features::Facts;
use crate::activity::launches::{Launched, Launches};
use crate::activity::overlap::Overlap;
use crate::base::error::Result;
use crate::base::parallel::ThreadPool;
use crate::base::watch::Watch;
use crate::explain::units::Choice;
use crate::identity::tenants::Tenants;
use crate::occupancy::placement::{Model, Placement, PlacementPolicy, Sharing};
use crate::occupancy::theoretical::{tenant_map, KernelOccupancy};
use crate::residency::inferred::InferredResidency;
use crate::residency::observed::Residency;
use crate::residency::recorded_time::PartlyRecorded;
use crate::residency::summary::ResidencySummary;
use crate::session::{clock, devices, recorded_together, samples_only};
use crate::simulate::forecast::{self, Fit};
use crate::simulate::sharing_config::{Recorded, SharingConfig};
use crate::table::columns::Columns;
use crate::table::events::{concat, EventPass, Tables};
use crate::table::kernel_names;
use crate::table::parts::{of_device, Span};
use crate::table::quality::Quality;
use crate::table::schema;

/// Makes a session of captures: one clock, one list of devices with what is known of each chip, kernels told apart by
/// `short_name`.
///
/// # Errors
/// Those of [`clock::join`], [`devices::complete`] and [`kernel_names::tell_apart`].
pub fn join(captures: Vec<Tables>, watch: &dyn Watch) -> Result<Tables> {
    let mut session = clock::join(captures, watch)?;
    let mut quality = Quality::default();
    if let Some(listed) = session.get(schema::DEVICES.name) {
        let complete = devices::complete(listed, &mut quality)?;
        session.insert(schema::DEVICES.name, complete);
    }
    if let Some(kernels) = session.get(schema::KERNELS.name) {
        if let Some(named) = kernel_names::tell_apart(kernels)? {
            session.insert(schema::KERNELS.name, named);
        }
    }
    add_quality(&mut session, &quality)?;
    // Who reads what lies beside the captures puts theirs in the place of these.
    for table in [&schema::NVML_SAMPLES, &schema::IDENTITIES] {
        session.insert(table.name, table.empty());
    }
    Ok(session)
}

/// Adds samples (each with `nvml_samples` and `quality`) to a session, placed on its clock and beside its
/// devices.
///
/// # Errors
/// Those of [`clock::place_samples`].
pub fn add_samples(session: &Tables, samples: &[Tables]) -> Result<Tables> {
    let mut session = session.clone();
    let mut quality = Quality::default();
    let mut placed = Vec::with_capacity(samples.len());
    for tables in samples {
        if let Some(batch) = tables.get(schema::NVML_SAMPLES.name) {
            placed.push(clock::place_samples(batch, &session, &mut quality)?);
        }
        if let Some(counts) = tables.get(schema::QUALITY.name) {
            let parts = [session.get(schema::QUALITY.name), Some(counts)];
            let parts: Vec<RecordBatch> = parts.into_iter().flatten().cloned().collect();
            session.insert(schema::QUALITY.name, concat(&schema::QUALITY, &parts)?);
        }
    }
    session.insert(schema::NVML_SAMPLES.name, concat(&schema::NVML_SAMPLES, &placed)?);
    add_quality(&mut session, &quality)?;
    Ok(session)
}

/// Makes a session of samples (each with `nvml_samples` and `quality`) where there is no capture.
///
/// # Errors
/// Those of [`samples_only::session`] and [`devices::complete`].
pub fn of_samples(samples: &[Tables]) -> Result<Tables> {
    let mut session = samples_only::session(samples)?;
    let mut quality = Quality::default();
    if let Some(listed) = session.get(schema::DEVICES.name) {
        let complete = devices::complete(listed, &mut quality)?;
        session.insert(schema::DEVICES.name, complete);
    }
    add_quality(&mut session, &quality)?;
    Ok(session)
}

/// Says how full the SMs were: `kernel_occupancy`; `sm_occupancy` and `sm_warps` over `window` (else the time in which
/// any tenant was active), cut into `n_bins`; `kernel_placement`. Which tenants may be on the SMs at once, and on
/// which, is the caller's to say.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be,
/// [`crate::Error::Cancelled`].
pub fn occupancy(
    session: &Tables,
    policy: PlacementPolicy,
    model: Model,
    window: Option<(i64, i64)>,
    n_bins: usize,
    watch: &dyn Watch,
) -> Result<Tables> {
    let table = |declared: &'static schema::Table| {
        session.get(declared.name).cloned().unwrap_or_else(|| declared.empty())
    };
    let devices = table(&schema::DEVICES);
    let tenants = tenant_map(&table(&schema::TENANTS))?;
    let residency = PartlyRecorded::of(session)?.maybe_resident(&table(&schema::RESIDENCY))?;
    let mut made = Tables::new();
    let window = window.map_or_else(|| active_ns(&table(&schema::TENANT_USAGE)), |w| Ok(Some(w)))?;
    let named = tenants.clone();
    let placed = || {
        let Some(window) = window else { return Ok(None) };
        let turns = residency_without_records(session, &policy, &residency, watch)?;
        let mut placement = Placement::new(&devices, named, Some(&residency), policy, window, n_bins)?;
        if let Some(turns) = turns {
            placement = placement.with_inferred(&turns)?;
        }
        if let Some(kernels) = session.get(schema::KERNELS.name) {
            placement = placement.with_kernels(kernels)?;
        }
        placement.with_model(model).run(session, watch).map(Some)
    };
    let configurations = || KernelOccupancy::new(&devices, tenants)?.run(session, watch);
    let (configurations, placed) = both(configurations, placed)?;
    made.insert(schema::KERNEL_OCCUPANCY.name, configurations);
    let (over_time, per_sm, per_kernel) = match placed {
        Some(placed) => (placed.sm_occupancy, placed.sm_warps, placed.kernel_placement),
        None => (schema::SM_OCCUPANCY.empty(), schema::SM_WARPS.empty(), schema::KERNEL_PLACEMENT.empty()),
    };
    made.insert(schema::SM_OCCUPANCY.name, over_time);
    made.insert(schema::SM_WARPS.name, per_sm);
    made.insert(schema::KERNEL_PLACEMENT.name, per_kernel);
    Ok(made)
}

/// Says what each launch configuration could hold at most: `kernel_occupancy`, without placing a block.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn kernel_occupancy(session: &Tables, watch: &dyn Watch) -> Result<Tables> {
    let table = |declared: &'static schema::Table| {
        session.get(declared.name).cloned().unwrap_or_else(|| declared.empty())
    };
    let tenants = tenant_map(&table(&schema::TENANTS))?;
    let made = KernelOccupancy::new(&table(&schema::DEVICES), tenants)?.run(session, watch)?;
    Ok([(schema::KERNEL_OCCUPANCY.name, made)].into())
}

/// Runs two rooms that do not see each other's tables at once; of two errors the first room's counts.
fn both<A: Send, B>(
    one: impl FnOnce() -> Result<A> + Send,
    other: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        let one = one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((one, other?))
    })
}

/// The turns of time-sliced devices of which nobody recorded any; `None` where there is no such device.
fn residency_without_records(
    session: &Tables,
    policy: &PlacementPolicy,
    residency: &RecordBatch,
    watch: &dyn Watch,
) -> Result<Option<RecordBatch>> {
    let observed = Columns::new(&schema::RESIDENCY, residency).u32("device_id")?.values();
    let mut sliced = policy.sharing.iter().filter(|(_, sharing)| **sharing == Sharing::TimeSliced);
    if sliced.all(|(device, _)| observed.contains(device)) {
        return Ok(None);
    }
    Ok(infer_residency(session, policy, watch)?.remove(schema::INFERRED_RESIDENCY.name))
}

/// Infer residency on time-sliced devices without switch records: `inferred_residency`. Which devices are
/// time-sliced is the caller's to say.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn infer_residency(session: &Tables, policy: &PlacementPolicy, watch: &dyn Watch) -> Result<Tables> {
    let sliced = policy.sharing.iter().filter(|(_, sharing)| **sharing == Sharing::TimeSliced);
    let sliced = sliced.map(|(device, _)| *device).collect();
    let made = InferredResidency::new(session, &sliced)?.run(session, watch)?;
    Ok([(schema::INFERRED_RESIDENCY.name, made)].into())
}

/// Adds the slices up: `residency_by_tenant` per tenant and `residency_by_device` per device, of observed residency, else of the
/// `inferred_residency` in `session`.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn residency_summary(session: &Tables, watch: &dyn Watch) -> Result<Tables> {
    let made = ResidencySummary::new(session)?.run(session, watch)?;
    Ok([
        (schema::RESIDENCY_BY_TENANT.name, made.by_tenant),
        (schema::RESIDENCY_BY_DEVICE.name, made.by_device),
    ]
    .into())
}

/// Reconstructs parts of a session on `threads` threads (0: as many as there are processors). A part comes with the
/// window that it was cut to: residency intervals that reach an edge of it are not complete.
///
/// # Errors
/// Those of [`reconstruct`], of the first part that has one.
pub fn reconstruct_parts(
    parts: Vec<(Tables, Option<(i64, i64)>)>,
    threads: usize,
    watch: &dyn Watch,
) -> Result<Vec<Tables>> {
    ThreadPool::new(threads)
        .each(parts, |(part, window)| reconstruct_within(&part, window, watch))
        .into_iter()
        .collect()
}

/// Attributes the interval of every kernel: what of it its context was resident, and what it waited for before: `kernel_attribution`.
/// The session is a reconstructed one.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn attribution(session: &Tables, watch: &dyn Watch) -> Result<Tables> {
    let made = Attribution::new(session)?.run(session, watch)?;
    Ok([(schema::KERNEL_ATTRIBUTION.name, made)].into())
}

/// Finds units of work and explains each: `units`, `unit_segments`, `unit_coverage`. The session is a reconstructed one,
/// with `api_calls` and `nvtx` where they were recorded, and `inferred_residency` where nobody recorded any.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn explain(session: &Tables, choice: &Choice, threads: usize, watch: &dyn Watch) -> Result<Tables> {
    crate::explain::explain(session, choice, threads, watch)
}

/// Adds up what each tenant did, and what each two did at the same time: `tenant_usage`, `overlaps`. Takes the `tenants`
/// and the `residency` of the session, whoever made them.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn tenant_usage(session: &Tables, watch: &dyn Watch) -> Result<Tables> {
    let made = Overlap::new(session)?.run(session, watch)?;
    Ok([(schema::TENANT_USAGE.name, made.tenant_usage), (schema::OVERLAPS.name, made.overlaps)].into())
}

/// Says what each tenant launched, and where its time went. Without `kernel_attribution` in the session, kernels count whole.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be, [`crate::Error::Cancelled`].
pub fn launches(session: &Tables, watch: &dyn Watch) -> Result<Vec<Launched>> {
    Launches::new(session)?.run(session, watch)
}

/// What the recorded programs of a device would have taken under other sharing configurations: `forecast`.
///
/// `visible` and `time_sliced` say how the device was shared while it was recorded, see [`Recorded`].
/// Layouts are replayed on `threads` threads (0: as many as there are processors). `fitted` is what an earlier call on
/// the same recording gave.
///
/// # Errors
/// [`crate::Error::Argument`] for a config that makes no sense, [`crate::Error::Schema`] for tables that are not
/// what they are declared to be, [`crate::Error::Cancelled`].
#[allow(clippy::too_many_arguments)] // Python names them
pub fn forecast(
    session: &Tables,
    device: u32,
    recorded: &Recorded,
    configs: &[SharingConfig],
    most_operations: usize,
    fitted: Option<Arc<Fit>>,
    threads: usize,
    watch: &dyn Watch,
) -> Result<(Tables, Arc<Fit>)> {
    let partly = PartlyRecorded::of(session)?;
    let replayed = |time: &Span| recorded.window.is_none_or(|(first, last)| first < time.1 && time.0 < last);
    // Where nothing tells who was resident, how long kernels take alone is not known.
    let session = &match partly.times().get(&device).copied().filter(replayed) {
        Some(time) => of_device(session, device, time)?,
        None => partly.forget(session)?,
    };
    let (made, fitted) =
        forecast::run(session, device, recorded, configs, most_operations, fitted, threads, watch)?;
    Ok(([(schema::FORECAST.name, made)].into(), fitted))
}

/// First to last activity of any tenant; `None` for a session without activity, or of no length.
fn active_ns(usage: &RecordBatch) -> Result<Option<(i64, i64)>> {
    let columns = Columns::new(&schema::TENANT_USAGE, usage);
    let first = columns.i64("first_ns")?.iter().flatten().min();
    let last = columns.i64("last_ns")?.iter().flatten().max();
    Ok(first.zip(last).filter(|(first, last)| first < last))
}

fn add_quality(session: &mut Tables, quality: &Quality) -> Result<()> {
    let mut parts: Vec<RecordBatch> = session.get(schema::QUALITY.name).cloned().into_iter().collect();
    parts.push(quality.table()?);
    session.insert(schema::QUALITY.name, concat(&schema::QUALITY, &parts)?);
    Ok(())
}

/// Reconstructs a session (captures joined on one clock): hands out `residency`, `switches`, `tenants`,
/// `tenant_usage`, `overlaps`, `facts`, `fact_examples`, and `quality` with the counts made on the way added to those
/// of the session.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be,
/// [`crate::Error::Cancelled`].
pub fn reconstruct(session: &Tables, watch: &dyn Watch) -> Result<Tables> {
    reconstruct_within(session, None, watch)
}

fn reconstruct_within(session: &Tables, window: Option<(i64, i64)>, watch: &dyn Watch) -> Result<Tables> {
    let mut seen = session.clone();
    let mut made = Tables::new();
    let held = Residency::within(window).run(&seen, watch)?;
    let mut quality = held.quality;
    seen.insert(schema::RESIDENCY.name, held.residency);
    seen.insert(schema::SWITCHES.name, held.switches);

    let tenants = Tenants::new(&seen)?.run(&seen, watch)?;
    quality.absorb(tenants.quality);
    for (table, batch) in [
        (&schema::TENANTS, tenants.tenants),
        (&schema::RESIDENCY, tenants.residency),
        (&schema::SWITCHES, tenants.switches),
    ] {
        seen.insert(table.name, batch.clone());
        made.insert(table.name, batch);
    }

    PartlyRecorded::of(&seen)?.count(&mut quality);
    recorded_together::count(&seen, &mut quality)?;
    let (overlap, facts) =
        both(|| Overlap::new(&seen)?.run(&seen, watch), || Facts::new(&seen)?.after(&seen, watch))?;
    let facts = facts.beside(overlap.overlaps.clone()).finish(watch)?;
    made.insert(schema::OVERLAPS.name, overlap.overlaps);
    made.insert(schema::TENANT_USAGE.name, overlap.tenant_usage);
    made.insert(schema::FACTS.name, facts.facts);
    made.insert(schema::FACT_EXAMPLES.name, facts.fact_examples);
    add_quality(&mut seen, &quality)?;
    made.extend(seen.remove_entry(schema::QUALITY.name));
    Ok(made)
}
