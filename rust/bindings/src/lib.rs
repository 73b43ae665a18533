//! PyO3 glue: a dozen coarse functions between the core and `pyanalyze`. No analysis here.
//!
//! Every function takes and gives tables (see `table.rs`), releases the interpreter lock while the core
//! works, and passes progress and Ctrl-C through (see `progress.rs`).

// PyO3 hands over what it extracted; there is nobody else to own it.
#![allow(clippy::needless_pass_by_value)]

mod errors;
mod memory;
mod progress;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyanalyze_core::fold::Tables;
use pyanalyze_core::placement::{Model, PlacementPolicy, Sharing, SmSet};
use pyanalyze_core::quality::Quality;
use pyanalyze_core::replay::{self as layouts, Recorded};
use pyanalyze_core::slowdown::{self, Baseline};
use pyanalyze_core::window::{self, Selection};
use pyanalyze_core::{
    hardware, latencies as over_time, nsys, perfetto, pipeline, quality, samples, schema, timeline as lanes,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use errors::raise;
use progress::PyWatch;
use table::{from_python, one, to_python, Table};

#[global_allocator]
static ALLOCATOR: pyanalyze_spill::Spilling = pyanalyze_spill::Spilling;

type Callback = Option<Py<PyAny>>;

fn wanted(tables: &[String]) -> PyResult<nsys::Want> {
    nsys::Want::parse(tables.iter().map(String::as_str)).map_err(raise)
}

/// Reads one nsys export on its own clock.
#[pyfunction]
#[pyo3(signature = (path, capture, tables, progress=None))]
fn read_capture(
    py: Python<'_>,
    path: PathBuf,
    capture: u32,
    tables: Vec<String>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    let want = wanted(&tables)?;
    let watch = PyWatch::new(progress);
    let read = py.detach(|| nsys::read(&path, capture, &want, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, read)
}

/// How long the kernels of one nsys export took, by name, without reading other events of it.
#[pyfunction]
#[pyo3(signature = (path, progress=None))]
fn kernel_summary(py: Python<'_>, path: PathBuf, progress: Callback) -> PyResult<Py<PyDict>> {
    let watch = PyWatch::new(progress);
    let made = py.detach(|| nsys::kernel_summary(&path, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, made)
}

/// The physical tables that reading these event tables looks for.
#[pyfunction]
fn physical_tables(tables: Vec<String>) -> PyResult<Vec<&'static str>> {
    Ok(nsys::layout::physical_tables(&wanted(&tables)?))
}

/// Puts captures on one clock and ties their devices together.
#[pyfunction]
#[pyo3(signature = (captures, progress=None))]
fn join_captures(
    py: Python<'_>,
    captures: Vec<Bound<'_, PyDict>>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    let captures = captures.iter().map(from_python).collect::<PyResult<Vec<Tables>>>()?;
    let watch = PyWatch::new(progress);
    let session = py.detach(|| pipeline::join(captures, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, session)
}

/// Reads one samples file.
#[pyfunction]
#[pyo3(signature = (path, progress=None))]
fn read_samples(py: Python<'_>, path: PathBuf, progress: Callback) -> PyResult<Py<PyDict>> {
    let watch = PyWatch::new(progress);
    let mut quality = Quality::default();
    let read = py.detach(|| samples::read(&path, &watch, &mut quality)).map_err(|e| watch.raise(e))?;
    let tables = [(schema::NVML_SAMPLES.name, read), (schema::QUALITY.name, quality.table().map_err(raise)?)];
    to_python(py, Tables::from(tables))
}

/// The session that samples make without any capture.
#[pyfunction]
fn samples_session(py: Python<'_>, samples: Vec<Bound<'_, PyDict>>) -> PyResult<Py<PyDict>> {
    let samples = samples.iter().map(from_python).collect::<PyResult<Vec<Tables>>>()?;
    let session = py.detach(|| pipeline::of_samples(&samples)).map_err(raise)?;
    to_python(py, session)
}

/// The session with samples on its clock and beside its devices.
#[pyfunction]
fn place_samples(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    samples: Vec<Bound<'_, PyDict>>,
) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let samples = samples.iter().map(from_python).collect::<PyResult<Vec<Tables>>>()?;
    let placed = py.detach(|| pipeline::add_samples(&session, &samples)).map_err(raise)?;
    to_python(py, placed)
}

/// SMs that a tenant may use: how many, or which.
#[derive(FromPyObject)]
enum Sms {
    Count(u32),
    These(Vec<u32>),
}

/// The policy of these devices, by the names that `pyanalyze.session.placement_policy` gives.
fn policy_of(policies: Vec<(u32, String)>) -> PyResult<PlacementPolicy> {
    let mut policy = PlacementPolicy::default();
    for (device, name) in policies {
        let sharing = match name.as_str() {
            "time-sliced" => Sharing::TimeSliced,
            "shared" => Sharing::Shared,
            "disjoint" => Sharing::Disjoint,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "no placement policy is named {name}; choose from time-sliced, shared, disjoint"
                )))
            }
        };
        policy.sharing.insert(device, sharing);
    }
    Ok(policy)
}

/// How full the SMs were, given per device how its tenants share them; `sms` has (tenant, context or None, SMs),
/// `groups` (tenant, group), `held_by` (tenant, tenant whose residency counts).
#[pyfunction]
#[pyo3(signature = (session, policies, bins, progress=None, *, sms=None, groups=None, held_by=None, window=None, model="replay"))]
#[allow(clippy::too_many_arguments)]
fn occupancy(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    policies: Vec<(u32, String)>,
    bins: usize,
    progress: Callback,
    sms: Option<Vec<(u32, Option<u32>, Sms)>>,
    groups: Option<Vec<(u32, u32)>>,
    held_by: Option<Vec<(u32, u32)>>,
    window: Option<(i64, i64)>,
    model: &str,
) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let mut policy = policy_of(policies)?;
    for (tenant, context, sms) in sms.unwrap_or_default() {
        let set = match sms {
            Sms::Count(n) => SmSet::Count(n),
            Sms::These(sms) => SmSet::These(sms),
        };
        policy.sms.insert((tenant, context), set);
    }
    policy.groups.extend(groups.unwrap_or_default());
    policy.held_by.extend(held_by.unwrap_or_default());
    let model = match model {
        "replay" => Model::Replay,
        "even" => Model::Even,
        _ => {
            return Err(PyValueError::new_err(format!(
                "no placement model is named {model}; choose from replay, even"
            )))
        }
    };
    let watch = PyWatch::new(progress);
    let made = py.detach(|| pipeline::occupancy(&session, policy, model, window, bins, &watch));
    to_python(py, made.map_err(|e| watch.raise(e))?)
}

/// Who held time-sliced engines without switch records, given per device how its tenants share it.
#[pyfunction]
#[pyo3(signature = (session, policies, progress=None))]
fn infer_residency(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    policies: Vec<(u32, String)>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let policy = policy_of(policies)?;
    let watch = PyWatch::new(progress);
    let made = py.detach(|| pipeline::infer_residency(&session, &policy, &watch));
    to_python(py, made.map_err(|e| watch.raise(e))?)
}

/// What the slices add up to, per tenant and per device.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
fn ledger(py: Python<'_>, session: &Bound<'_, PyDict>, progress: Callback) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let made = py.detach(|| pipeline::ledger(&session, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, made)
}

/// A configuration: name, short name, blocks, threads, launches, their time, what of it was charged.
type Configuration = (Option<String>, Option<String>, Option<u64>, Option<u32>, u64, i64, i64);
/// A batch: launches; time idle, absent, beside others, busy; what of the last was charged.
type Batch = (u64, i64, i64, i64, i64, i64);

/// What a tenant launched, as a dictionary.
#[derive(IntoPyObject)]
struct Launched {
    device_id: u32,
    tenant_id: u32,
    residency_known: bool,
    configurations: Vec<Configuration>,
    other_launches: u64,
    other_ns: i64,
    batches: Vec<Batch>,
}

/// What each tenant launched, and where its time went.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
fn launches(py: Python<'_>, session: &Bound<'_, PyDict>, progress: Callback) -> PyResult<Vec<Launched>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let found = py.detach(|| pipeline::launches(&session, &watch)).map_err(|e| watch.raise(e))?;
    let found = found.into_iter().map(|one| Launched {
        device_id: one.device,
        tenant_id: one.tenant,
        residency_known: one.residency_known,
        configurations: one
            .configurations
            .into_iter()
            .map(|c| {
                (c.name, c.short_name, c.grid_blocks, c.block_threads, c.launches, c.total_ns, c.charged_ns)
            })
            .collect(),
        other_launches: one.other_launches,
        other_ns: one.other_ns,
        batches: one
            .batches
            .into_iter()
            .map(|b| (b.launches, b.idle_ns, b.absent_ns, b.beside_ns, b.busy_ns, b.charged_ns))
            .collect(),
    });
    Ok(found.collect())
}

/// Merges intervals to what a picture can show.
#[pyfunction]
#[pyo3(signature = (session, start_ns, end_ns, marks, progress=None))]
fn timeline(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    start_ns: i64,
    end_ns: i64,
    marks: usize,
    progress: Callback,
) -> PyResult<Py<Table>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let drawn = py.detach(|| lanes::timeline(&session, start_ns, end_ns, marks, &watch));
    one(py, schema::TIMELINE.name, drawn.map_err(|e| watch.raise(e))?)
}

/// How long kernels of each tenant took from launch to end, in bins of time.
#[pyfunction]
#[pyo3(signature = (session, device, start_ns, end_ns, bins, progress=None))]
fn latencies(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    device: u32,
    start_ns: i64,
    end_ns: i64,
    bins: u32,
    progress: Callback,
) -> PyResult<Py<Table>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let made = py.detach(|| over_time::latencies(&session, device, start_ns, end_ns, bins, &watch));
    one(py, schema::LATENCIES.name, made.map_err(|e| watch.raise(e))?)
}

/// The rows of a table inside of a window of time and of one device; what stays together is not copied.
#[pyfunction]
#[pyo3(signature = (table, window=None, device=None))]
fn cut(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    window: Option<(i64, i64)>,
    device: Option<u32>,
) -> PyResult<Py<Table>> {
    let (declared, batch) = table.get().parts();
    let kept = py.detach(|| window::cut(declared, &batch, Selection { window, device }));
    one(py, declared.name, kept.map_err(raise)?)
}

/// Writes the session as a Perfetto trace; returns the number of events.
#[pyfunction]
#[pyo3(signature = (session, path, progress=None))]
fn write_perfetto(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    path: PathBuf,
    progress: Callback,
) -> PyResult<u64> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    py.detach(|| perfetto::write_file(&session, &path, &watch)).map_err(|e| watch.raise(e))
}

/// Who held the GPU: residency, tenants, charged time, overlaps, facts.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
fn reconstruct(py: Python<'_>, session: &Bound<'_, PyDict>, progress: Callback) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let made = py.detach(|| pipeline::reconstruct(&session, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, made)
}

/// A tenant's place in a layout: tenant, instance, group, SMs.
type Seat = (u32, usize, u32, Option<u32>);
/// A layout: name, SMs of its instances, seats, slice and switch, (contention, ragged, jitter), seed.
type Layout = (String, Vec<u32>, Vec<Seat>, (i64, i64), (f64, f64, f64), u64);

fn layout((name, instances, seats, turn, part, seed): Layout) -> layouts::Layout {
    let seat = |(tenant, instance, group, sms): Seat| layouts::Seat { tenant, instance, group, sms };
    layouts::Layout {
        name,
        instances,
        seats: seats.into_iter().map(seat).collect(),
        slice_ns: turn.0,
        switch_ns: turn.1,
        contention: part.0,
        ragged: part.1,
        jitter: part.2,
        seed,
    }
}

/// What recorded programs would have taken in other layouts.
#[pyfunction]
#[pyo3(signature = (session, device, visible_sms, time_sliced, recorded, layouts, threads, progress=None))]
#[allow(clippy::too_many_arguments)] // Python names them
fn replay(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    device: u32,
    visible_sms: Vec<(u32, u32)>,
    time_sliced: bool,
    recorded: Option<Layout>,
    layouts: Vec<Layout>,
    threads: usize,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let visible_sms = visible_sms.into_iter().collect();
    let recorded = Recorded { visible_sms, time_sliced, layout: recorded.map(layout) };
    let layouts: Vec<layouts::Layout> = layouts.into_iter().map(layout).collect();
    let watch = PyWatch::new(progress);
    let made = py.detach(|| pipeline::replay(&session, device, &recorded, &layouts, threads, &watch));
    to_python(py, made.map_err(|e| watch.raise(e))?)
}

/// Every tenant beside itself alone: in baselines, and in this run played again.
#[pyfunction]
#[pyo3(signature = (session, baselines, progress=None, threads=0, window=None))]
fn slowdowns(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    baselines: Vec<(Bound<'_, PyDict>, Option<u32>)>,
    progress: Callback,
    threads: usize,
    window: Option<(i64, i64)>,
) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let baselines = baselines
        .iter()
        .map(|(tables, tenant)| Ok(Baseline { tables: from_python(tables)?, tenant: *tenant }))
        .collect::<PyResult<Vec<Baseline>>>()?;
    let watch = PyWatch::new(progress);
    let made = py.detach(|| slowdown::slowdowns(&session, &baselines, window, threads, &watch));
    to_python(py, made.map_err(|e| watch.raise(e))?)
}

/// Every table with its columns.
#[pyfunction]
fn table_declarations(py: Python<'_>) -> PyResult<Py<PyList>> {
    let tables = PyList::empty(py);
    for declared in schema::TABLES {
        let columns = PyList::empty(py);
        for column in declared.columns {
            let row = PyDict::new(py);
            row.set_item("name", column.name)?;
            row.set_item("type", type_name(column.kind))?;
            row.set_item("null", column.null)?;
            row.set_item("doc", column.doc)?;
            columns.append(row)?;
        }
        let row = PyDict::new(py);
        row.set_item("name", declared.name)?;
        row.set_item("version", declared.version)?;
        row.set_item("doc", declared.doc)?;
        row.set_item("columns", columns)?;
        tables.append(row)?;
    }
    Ok(tables.unbind())
}

fn type_name(kind: schema::Kind) -> String {
    match kind {
        schema::Kind::Name => "Dictionary<UInt32, Utf8>".to_owned(),
        other => other.data_type().to_string(),
    }
}

/// Every quality counter.
#[pyfunction]
fn quality_counters(py: Python<'_>) -> PyResult<Py<PyList>> {
    let counters = PyList::empty(py);
    for counter in quality::COUNTERS {
        let row = PyDict::new(py);
        row.set_item("name", counter.name)?;
        row.set_item("severity", counter.severity.as_str())?;
        row.set_item("source", counter.source)?;
        row.set_item("doc", counter.doc)?;
        counters.append(row)?;
    }
    Ok(counters.unbind())
}

/// Timing and sizes of GPUs and their drivers that captures do not show.
#[pyfunction]
fn hardware_constants() -> BTreeMap<&'static str, i64> {
    hardware::CONSTANTS.iter().copied().collect()
}

/// The SMs that an MPS active thread percentage leaves to a client.
#[pyfunction]
#[pyo3(signature = (sm_count, percentage, compute_major=None))]
fn mps_sms(sm_count: u32, percentage: f64, compute_major: Option<u32>) -> u32 {
    hardware::mps_sms(sm_count, percentage, compute_major)
}

/// The compiled core of pyanalyze.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Table>()?;
    module.add_class::<table::Part>()?;
    module.add_function(wrap_pyfunction!(read_capture, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_summary, module)?)?;
    module.add_function(wrap_pyfunction!(physical_tables, module)?)?;
    module.add_function(wrap_pyfunction!(join_captures, module)?)?;
    module.add_function(wrap_pyfunction!(read_samples, module)?)?;
    module.add_function(wrap_pyfunction!(place_samples, module)?)?;
    module.add_function(wrap_pyfunction!(samples_session, module)?)?;
    module.add_function(wrap_pyfunction!(reconstruct, module)?)?;
    module.add_function(wrap_pyfunction!(occupancy, module)?)?;
    module.add_function(wrap_pyfunction!(infer_residency, module)?)?;
    module.add_function(wrap_pyfunction!(launches, module)?)?;
    module.add_function(wrap_pyfunction!(ledger, module)?)?;
    module.add_function(wrap_pyfunction!(timeline, module)?)?;
    module.add_function(wrap_pyfunction!(latencies, module)?)?;
    module.add_function(wrap_pyfunction!(cut, module)?)?;
    module.add_function(wrap_pyfunction!(write_perfetto, module)?)?;
    module.add_function(wrap_pyfunction!(replay, module)?)?;
    module.add_function(wrap_pyfunction!(slowdowns, module)?)?;
    module.add_function(wrap_pyfunction!(hardware_constants, module)?)?;
    module.add_function(wrap_pyfunction!(mps_sms, module)?)?;
    module.add_function(wrap_pyfunction!(table_declarations, module)?)?;
    module.add_function(wrap_pyfunction!(quality_counters, module)?)?;
    module.add_function(wrap_pyfunction!(memory::bound_memory, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_account, module)?)?;
    module.add_function(wrap_pyfunction!(memory::check_memory, module)?)?;
    Ok(())
}
