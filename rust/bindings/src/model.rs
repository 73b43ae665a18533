//! How full the SMs were, and what other sharing configurations would do.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyanalyze_core::base::hardware;
use pyanalyze_core::occupancy::placement::{Model, PlacementPolicy, Sharing, SmSet};
use pyanalyze_core::pipeline;
use pyanalyze_core::simulate::forecast as replay;
use pyanalyze_core::simulate::sharing_config::{self, Demand, Recorded};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::progress::{Callback, PyWatch};
use crate::table::{from_python, made_of, to_python};

/// SMs that a tenant may use: how many, or which.
#[derive(FromPyObject)]
enum Sms {
    Count(u32),
    These(Vec<u32>),
}

/// Who may be on which SMs of a device: `pyanalyze.analysis.occupancy.PlacementPolicy`.
#[derive(FromPyObject)]
pub(crate) struct DevicePolicy {
    sharing: String,
    /// By tenant and context.
    sms: BTreeMap<(u32, Option<u32>), Sms>,
    groups: BTreeMap<u32, u32>,
    held_by: BTreeMap<u32, u32>,
}

/// The policy of these devices.
pub(crate) fn policy_of(policies: BTreeMap<u32, DevicePolicy>) -> PyResult<PlacementPolicy> {
    let mut policy = PlacementPolicy::default();
    for (device, of_device) in policies {
        let sharing = match of_device.sharing.as_str() {
            "time-sliced" => Sharing::TimeSliced,
            "shared" => Sharing::Shared,
            "disjoint" => Sharing::Disjoint,
            name => {
                return Err(PyValueError::new_err(format!(
                    "no placement policy is named {name}; choose from time-sliced, shared, disjoint"
                )))
            }
        };
        policy.sharing.insert(device, sharing);
        for (of, sms) in of_device.sms {
            let set = match sms {
                Sms::Count(n) => SmSet::Count(n),
                Sms::These(sms) => SmSet::These(sms),
            };
            policy.sms.insert(of, set);
        }
        policy.groups.extend(of_device.groups);
        policy.held_by.extend(of_device.held_by);
    }
    Ok(policy)
}

/// How full the SMs were, given per device how its tenants share them.
#[pyfunction]
#[pyo3(signature = (session, policies, bins, progress=None, *, window=None, model="replay"))]
pub(crate) fn occupancy(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    policies: BTreeMap<u32, DevicePolicy>,
    bins: usize,
    progress: Callback,
    window: Option<(i64, i64)>,
    model: &str,
) -> PyResult<Py<PyDict>> {
    let policy = policy_of(policies)?;
    let model = match model {
        "replay" => Model::Replay,
        "even" => Model::Even,
        _ => {
            return Err(PyValueError::new_err(format!(
                "no placement model is named {model}; choose from replay, even"
            )))
        }
    };
    made_of(py, session, progress, |session, watch| {
        pipeline::occupancy(session, policy, model, window, bins, watch)
    })
}

/// What each launch configuration could hold at most, without placing a block.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn kernel_occupancy(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    made_of(py, session, progress, pipeline::kernel_occupancy)
}

/// A tenant's place in a config: `pyanalyze.analysis.advice.forecast.Assignment`.
#[derive(FromPyObject)]
pub(crate) struct Assignment {
    tenant_id: u32,
    instance: usize,
    group: u32,
    sms: Option<u32>,
    copy: u32,
    start_ns: i64,
    bandwidth: f64,
    sm_throughput: f64,
    assumed_sm_throughput: f64,
    cache: f64,
}

/// A way to share a device: `pyanalyze.analysis.advice.forecast.SharingConfig`.
#[derive(FromPyObject)]
pub(crate) struct SharingConfig {
    name: String,
    instances: Vec<u32>,
    bandwidths: Vec<f64>,
    assignments: Vec<Assignment>,
    slice_ns: i64,
    switch_ns: i64,
    contention: f64,
    linger_ns: Option<i64>,
    anchored: bool,
    block_imbalance: f64,
    jitter: f64,
    seed: u64,
    hits_over_misses: f64,
    crowding: f64,
    client_order: Option<ClientOrder>,
}

/// Which kernels of MPS clients overtake others: `pyanalyze.analysis.advice.forecast.ClientOrder`.
struct ClientOrder(sharing_config::ClientOrder);

impl<'py> FromPyObject<'_, 'py> for ClientOrder {
    type Error = PyErr;

    fn extract(order: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let name: String = order.extract()?;
        let known = sharing_config::ClientOrder::ALL.into_iter().find(|order| order.name() == name);
        known.map(Self).ok_or_else(|| {
            PyValueError::new_err(format!(
                "no order of MPS clients is named {name}; choose from one-line, overtaking"
            ))
        })
    }
}

impl From<SharingConfig> for sharing_config::SharingConfig {
    fn from(config: SharingConfig) -> Self {
        let assignment = |assignment: Assignment| sharing_config::Assignment {
            tenant: assignment.tenant_id,
            instance: assignment.instance,
            group: assignment.group,
            sms: assignment.sms,
            copy: assignment.copy,
            start_ns: assignment.start_ns,
            bandwidth: assignment.bandwidth,
            sm_throughput: assignment.sm_throughput,
            assumed_sm_throughput: assignment.assumed_sm_throughput,
            cache: assignment.cache,
        };
        Self {
            name: config.name,
            instances: config.instances,
            bandwidths: config.bandwidths,
            assignments: config.assignments.into_iter().map(assignment).collect(),
            slice_ns: config.slice_ns,
            switch_ns: config.switch_ns,
            contention: config.contention,
            linger_ns: config.linger_ns,
            anchored: config.anchored,
            block_imbalance: config.block_imbalance,
            jitter: config.jitter,
            seed: config.seed,
            hits_over_misses: config.hits_over_misses,
            crowding: config.crowding,
            client_order: config.client_order.map(|order| order.0),
        }
    }
}

/// What was fitted to a recording, for further forecasts from it.
#[pyclass(frozen, module = "pyanalyze.core._core")]
pub struct Fit(Arc<replay::Fit>);

/// What recorded programs would have taken in other configs, and what was fitted to the recording for that.
#[pyfunction]
#[pyo3(signature = (session, device, visible_sms, time_sliced, recorded, configs, units, window, kernel_demands, most_operations, fitted, threads, progress=None))]
#[allow(clippy::too_many_arguments)] // Python names them
pub(crate) fn forecast(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    device: u32,
    visible_sms: BTreeMap<u32, u32>,
    time_sliced: bool,
    recorded: Option<SharingConfig>,
    configs: Vec<SharingConfig>,
    units: BTreeMap<u32, Vec<(i64, i64)>>,
    window: Option<(i64, i64)>,
    kernel_demands: BTreeMap<String, (Option<f64>, Option<f64>)>,
    most_operations: usize,
    fitted: Option<Bound<'_, Fit>>,
    threads: usize,
    progress: Callback,
) -> PyResult<(Py<PyDict>, Fit)> {
    let session = from_python(session)?;
    let demand = |(name, (bandwidth, sm_throughput))| (name, Demand { bandwidth, sm_throughput });
    let kernel_demands = kernel_demands.into_iter().map(demand).collect();
    let recorded = Recorded {
        visible_sms,
        time_sliced,
        kernel_demands,
        window,
        units,
        config: recorded.map(Into::into),
    };
    let configs: Vec<sharing_config::SharingConfig> = configs.into_iter().map(Into::into).collect();
    let watch = PyWatch::new(progress);
    let fitted = fitted.map(|fitted| Arc::clone(&fitted.get().0));
    let made = py.detach(|| {
        pipeline::forecast(&session, device, &recorded, &configs, most_operations, fitted, threads, &watch)
    });
    let (made, fitted) = made.map_err(|e| watch.raise(e))?;
    Ok((to_python(py, made)?, Fit(fitted)))
}

/// Timing and sizes of GPUs and their drivers that captures do not show.
#[pyfunction]
pub(crate) fn hardware_constants() -> BTreeMap<&'static str, i64> {
    hardware::CONSTANTS.iter().copied().collect()
}

/// The SMs that an MPS active thread percentage leaves to a client.
#[pyfunction]
#[pyo3(signature = (sm_count, percentage, compute_major=None))]
pub(crate) fn mps_sms(sm_count: u32, percentage: f64, compute_major: Option<u32>) -> u32 {
    hardware::mps_sms(sm_count, percentage, compute_major)
}

/// SMs of the MIG instances that a board of this name can be cut into; empty where it has no MIG or they are not known.
#[pyfunction]
pub(crate) fn mig_sm_counts(board: &str) -> Vec<u32> {
    pyanalyze_core::session::devices::mig_sm_counts(board)
}
