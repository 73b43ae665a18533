//! Functions that reconstruct and analyse a session.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pyanalyze_core::activity::api_calls;
use pyanalyze_core::activity::host_activity::HostKind;
use pyanalyze_core::activity::latencies as over_time;
use pyanalyze_core::activity::streams as of_process;
use pyanalyze_core::explain::chain::SegmentKind;
use pyanalyze_core::explain::units::{Choice, UnitSource};
use pyanalyze_core::output::{perfetto, timeline as tracks};
use pyanalyze_core::pipeline;
use pyanalyze_core::slowdown::{self, Baseline};
use pyanalyze_core::table::schema;
use pyanalyze_core::table::tenant_lookup::Process;
use pyanalyze_core::table::window::{self, Selection};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raise;
use crate::model::{policy_of, DevicePolicy};
use crate::progress::{Callback, PyWatch};
use crate::table::{from_python, made_of, one, to_python, Table};

/// Infer residency of time-sliced engines without switch records, given per device how its tenants share it.
#[pyfunction]
#[pyo3(signature = (session, policies, progress=None))]
pub(crate) fn infer_residency(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    policies: BTreeMap<u32, DevicePolicy>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    let policy = policy_of(policies)?;
    made_of(py, session, progress, |session, watch| pipeline::infer_residency(session, &policy, watch))
}

/// Tables of a part of a session, and the window that they were cut to.
type Part<'py> = (Bound<'py, PyDict>, Option<(i64, i64)>);

/// Reconstruct parts of a session at once, each with the window that it was cut to.
#[pyfunction]
#[pyo3(signature = (parts, progress=None, threads=0))]
pub(crate) fn reconstruct_parts(
    py: Python<'_>,
    parts: Vec<Part<'_>>,
    progress: Callback,
    threads: usize,
) -> PyResult<Vec<Py<PyDict>>> {
    let read = |(part, window): &Part<'_>| Ok((from_python(part)?, *window));
    let parts = parts.iter().map(read).collect::<PyResult<Vec<_>>>()?;
    let watch = PyWatch::new(progress);
    let made = py.detach(|| pipeline::reconstruct_parts(parts, threads, &watch));
    made.map_err(|e| watch.raise(e))?.into_iter().map(|tables| to_python(py, tables)).collect()
}

/// What of every kernel's interval its context was resident, and what it waited for before.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn attribution(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    made_of(py, session, progress, pipeline::attribution)
}

/// What the slices add up to, per tenant and per device.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn residency_summary(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    made_of(py, session, progress, pipeline::residency_summary)
}

/// Launches of one kernel with one grid and block size, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Configuration {
    name: Option<String>,
    short_name: Option<String>,
    grid_blocks: Option<u64>,
    block_threads: Option<u32>,
    launches: u64,
    total_ns: i64,
    attributed_ns: i64,
    attributed_p99_ns: Option<i64>,
    attributed_sd_ns: Option<f64>,
}

/// Consecutive launches, and where the time between the first and the last went, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Batch {
    launches: u64,
    idle_ns: i64,
    idle_not_resident_ns: i64,
    idle_other_resident_ns: i64,
    busy_ns: i64,
    attributed_ns: i64,
}

/// What a tenant launched, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Launched {
    device_id: u32,
    tenant_id: u32,
    residency_known: bool,
    configurations: Vec<Configuration>,
    other_launches: u64,
    other_ns: i64,
    startup_ns: i64,
    batches: Vec<Batch>,
}

/// What each tenant launched, and where its time went.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn launches(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Vec<Launched>> {
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
            .map(|c| Configuration {
                name: c.name,
                short_name: c.short_name,
                grid_blocks: c.grid_blocks,
                block_threads: c.block_threads,
                launches: c.launches,
                total_ns: c.total_ns,
                attributed_ns: c.attributed_ns,
                attributed_p99_ns: c.attributed_p99_ns,
                attributed_sd_ns: c.attributed_sd_ns,
            })
            .collect(),
        other_launches: one.other_launches,
        other_ns: one.other_ns,
        startup_ns: one.startup_ns,
        batches: one
            .batches
            .into_iter()
            .map(|b| Batch {
                launches: b.launches,
                idle_ns: b.idle_ns,
                idle_not_resident_ns: b.absent_ns,
                idle_other_resident_ns: b.beside_ns,
                busy_ns: b.busy_ns,
                attributed_ns: b.attributed_ns,
            })
            .collect(),
    });
    Ok(found.collect())
}

/// API calls in the gaps of a tenant's work, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct CallsInGaps {
    device_id: u32,
    tenant_id: u32,
    long_ns: i64,
    short_ns: i64,
    waiting_long_ns: Option<i64>,
    waiting_short_ns: Option<i64>,
    by_name: BTreeMap<String, (i64, u64)>,
    called: bool,
    operations: u64,
    early_starts: u64,
    longest_gap: Option<Gap>,
    host: Option<HostActivity>,
}

/// What the host of a tenant did, as a dictionary; kinds by their words.
#[derive(IntoPyObject)]
pub(crate) struct HostActivity {
    recorded: Vec<&'static str>,
    by_kind: BTreeMap<&'static str, i64>,
    nothing_ns: i64,
    parts: Vec<HostPart>,
    samples: u64,
    sampled: Vec<SampledFunction>,
}

/// CPU samples in one function, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct SampledFunction {
    function: Option<String>,
    module: Option<String>,
    samples: u64,
}

/// Time in calls of one function, or in one range, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct HostPart {
    kind: &'static str,
    name: Option<String>,
    ns: i64,
    range: Option<String>,
}

/// A time between two operations, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Gap {
    start_ns: i64,
    end_ns: i64,
    operations_before: u64,
}

/// API calls in the gaps of every traced tenant with work.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn calls_in_gaps(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Vec<CallsInGaps>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let found = py.detach(|| api_calls::calls_in_gaps(&session, &watch)).map_err(|e| watch.raise(e))?;
    let found = found.into_iter().map(|one| CallsInGaps {
        device_id: one.device,
        tenant_id: one.tenant,
        long_ns: one.long_ns,
        short_ns: one.short_ns,
        waiting_long_ns: one.waiting.map(|waiting| waiting.long_ns),
        waiting_short_ns: one.waiting.map(|waiting| waiting.short_ns),
        by_name: one.by_name,
        called: one.called,
        operations: one.operations,
        early_starts: one.early_starts,
        longest_gap: one.longest.map(|gap| Gap {
            start_ns: gap.start_ns,
            end_ns: gap.end_ns,
            operations_before: gap.operations_before,
        }),
        host: one.host.map(|host| HostActivity {
            recorded: host.recorded.into_iter().map(HostKind::word).collect(),
            by_kind: host.by_kind.into_iter().map(|(kind, ns)| (kind.word(), ns)).collect(),
            nothing_ns: host.nothing_ns,
            parts: host
                .parts
                .into_iter()
                .map(|part| HostPart {
                    kind: part.kind.word(),
                    name: part.name,
                    ns: part.ns,
                    range: part.range,
                })
                .collect(),
            samples: host.samples,
            sampled: host
                .sampled
                .into_iter()
                .map(|one| SampledFunction {
                    function: one.function,
                    module: one.module,
                    samples: one.samples,
                })
                .collect(),
        }),
    });
    Ok(found.collect())
}

/// API calls by process and name: how many, and how long they took in all.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn calls_by_name(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Vec<(Process, String, u64, i64)>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let found = py.detach(|| api_calls::calls_by_name(&session, &watch)).map_err(|e| watch.raise(e))?;
    Ok(found.into_iter().map(|one| (one.process, one.name, one.calls, one.total_ns)).collect())
}

/// Where the records of a process begin, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct RecordsBegin {
    process: Process,
    first_call: u32,
    first_kernel: Option<u32>,
    kernels_before: u64,
}

impl From<&api_calls::RecordsBegin> for RecordsBegin {
    fn from(begin: &api_calls::RecordsBegin) -> Self {
        let api_calls::RecordsBegin { process, first_call, first_kernel, kernels_before } = *begin;
        Self { process, first_call, first_kernel, kernels_before }
    }
}

/// What became of launch calls, as a dictionary; errors are function, code, how many.
#[derive(IntoPyObject)]
pub(crate) struct LaunchRecords {
    launches: u64,
    graphs: u64,
    without_record: u64,
    without_record_at_end: u64,
    errors: Vec<(String, i32, u64)>,
    begins: Vec<RecordsBegin>,
}

/// What became of launch calls of some processes, or of all.
#[pyfunction]
#[pyo3(signature = (session, processes=None, progress=None))]
pub(crate) fn launch_records(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    processes: Option<BTreeSet<Process>>,
    progress: Callback,
) -> PyResult<Option<LaunchRecords>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let found = py.detach(|| api_calls::launch_records(&session, processes.as_ref(), &watch));
    let found = found.map_err(|e| watch.raise(e))?;
    Ok(found.map(|found| LaunchRecords {
        begins: found.begins.iter().map(RecordsBegin::from).collect(),
        launches: found.launches,
        graphs: found.graphs,
        without_record: found.without_record,
        without_record_at_end: found.without_record_at_end,
        errors: found.errors,
    }))
}

/// What each tenant did, and what each two did at the same time.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn tenant_usage(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    made_of(py, session, progress, pipeline::tenant_usage)
}

/// Whether the streams of each process overlapped, why not, and who slowed whom.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn streams(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    made_of(py, session, progress, of_process::streams)
}

/// Merges intervals to what a picture can show.
#[pyfunction]
#[pyo3(signature = (session, start_ns, end_ns, marks, progress=None))]
pub(crate) fn timeline(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    start_ns: i64,
    end_ns: i64,
    marks: usize,
    progress: Callback,
) -> PyResult<Py<Table>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let drawn = py.detach(|| tracks::timeline(&session, start_ns, end_ns, marks, &watch));
    one(py, schema::TIMELINE.name, drawn.map_err(|e| watch.raise(e))?)
}

/// How long kernels of each tenant took from launch to end, in bins of time.
#[pyfunction]
#[pyo3(signature = (session, device, start_ns, end_ns, bins, progress=None))]
pub(crate) fn latencies(
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
pub(crate) fn cut(
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
pub(crate) fn write_perfetto(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    path: PathBuf,
    progress: Callback,
) -> PyResult<u64> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    py.detach(|| perfetto::write_file(&session, &path, &watch)).map_err(|e| watch.raise(e))
}

/// Which context was resident: residency, tenants, attributed time, overlaps, facts.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn reconstruct(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    made_of(py, session, progress, pipeline::reconstruct)
}

/// Every tenant compared with itself solo: in baselines, and in this run replayed.
#[pyfunction]
#[pyo3(signature = (session, baselines, progress=None, threads=0, window=None))]
pub(crate) fn slowdowns(
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

/// Units of work, and the critical chain of each.
#[pyfunction]
#[pyo3(signature = (session, name=None, window=None, others_unseen=BTreeSet::new(), threads=0, progress=None))]
pub(crate) fn explain(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    name: Option<String>,
    window: Option<(i64, i64)>,
    others_unseen: BTreeSet<u32>,
    threads: usize,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    let choice = Choice { name, window, others_unseen };
    made_of(py, session, progress, |session, watch| pipeline::explain(session, &choice, threads, watch))
}

/// The words of `unit_segments.kind` and of `units.source`, in order.
#[pyfunction]
pub(crate) fn explain_words() -> (Vec<&'static str>, Vec<&'static str>) {
    let kinds = SegmentKind::ALL.map(SegmentKind::word).to_vec();
    (kinds, UnitSource::ALL.map(UnitSource::word).to_vec())
}
