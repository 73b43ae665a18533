//! How full the SMs were, and what other sharing configurations would do.

use std::collections::BTreeMap;

use pyanalyze_core::base::hardware;
use pyanalyze_core::occupancy::placement::{Model, SmSet};
use pyanalyze_core::pipeline;
use pyanalyze_core::simulate::sharing_config::{self, Recorded};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::analyse::policy_of;
use crate::progress::{Callback, PyWatch};
use crate::table::{from_python, to_python};

/// SMs that a tenant may use: how many, or which.
#[derive(FromPyObject)]
pub(crate) enum Sms {
    Count(u32),
    These(Vec<u32>),
}

/// How full the SMs were, given per device how its tenants share them; `sms` has (tenant, context or None, SMs),
/// `groups` (tenant, group), `held_by` (tenant, tenant whose residency counts).
#[pyfunction]
#[pyo3(signature = (session, policies, bins, progress=None, *, sms=None, groups=None, held_by=None, window=None, model="replay"))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn occupancy(
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

/// What each launch configuration could hold at most, without placing a block.
#[pyfunction]
#[pyo3(signature = (session, progress=None))]
pub(crate) fn kernel_occupancy(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let made = py.detach(|| pipeline::kernel_occupancy(&session, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, made)
}

/// A tenant's place in a layout: tenant, instance, group, SMs.
type Seat = (u32, usize, u32, Option<u32>);
/// A layout: name, SMs of its instances, seats, slice and switch, (contention, ragged, jitter), seed.
type Layout = (String, Vec<u32>, Vec<Seat>, (i64, i64), (f64, f64, f64), u64);

pub(crate) fn layout((name, instances, seats, turn, part, seed): Layout) -> sharing_config::Layout {
    let seat = |(tenant, instance, group, sms): Seat| sharing_config::Seat { tenant, instance, group, sms };
    sharing_config::Layout {
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
pub(crate) fn replay(
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
    let layouts: Vec<sharing_config::Layout> = layouts.into_iter().map(layout).collect();
    let watch = PyWatch::new(progress);
    let made = py.detach(|| pipeline::replay(&session, device, &recorded, &layouts, threads, &watch));
    to_python(py, made.map_err(|e| watch.raise(e))?)
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
