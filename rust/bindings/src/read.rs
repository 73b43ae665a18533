//! Reading files.

use std::path::PathBuf;

use pyanalyze_core::pipeline;
use pyanalyze_core::read::{nsys, samples};
use pyanalyze_core::table::events::Tables;
use pyanalyze_core::table::quality::Quality;
use pyanalyze_core::table::schema;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raise;
use crate::progress::{Callback, PyWatch};
use crate::table::{from_python, to_python};

pub(crate) fn wanted(tables: &[String]) -> PyResult<nsys::Want> {
    nsys::Want::parse(tables.iter().map(String::as_str)).map_err(raise)
}

/// Reads one nsys export on its own clock.
#[pyfunction]
#[pyo3(signature = (path, capture, tables, progress=None))]
pub(crate) fn read_capture(
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
pub(crate) fn kernel_summary(py: Python<'_>, path: PathBuf, progress: Callback) -> PyResult<Py<PyDict>> {
    let watch = PyWatch::new(progress);
    let made = py.detach(|| nsys::kernel_summary(&path, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, made)
}

/// The physical tables that reading these event tables looks for.
#[pyfunction]
pub(crate) fn physical_tables(tables: Vec<String>) -> PyResult<Vec<&'static str>> {
    Ok(nsys::layout::physical_tables(&wanted(&tables)?))
}

/// Puts captures on one clock and ties their devices together.
#[pyfunction]
#[pyo3(signature = (captures, progress=None))]
pub(crate) fn join_captures(
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
pub(crate) fn read_samples(py: Python<'_>, path: PathBuf, progress: Callback) -> PyResult<Py<PyDict>> {
    let watch = PyWatch::new(progress);
    let mut quality = Quality::default();
    let read = py.detach(|| samples::read(&path, &watch, &mut quality)).map_err(|e| watch.raise(e))?;
    let tables = [(schema::NVML_SAMPLES.name, read), (schema::QUALITY.name, quality.table().map_err(raise)?)];
    to_python(py, Tables::from(tables))
}

/// The session that samples make without any capture.
#[pyfunction]
pub(crate) fn samples_session(py: Python<'_>, samples: Vec<Bound<'_, PyDict>>) -> PyResult<Py<PyDict>> {
    let samples = samples.iter().map(from_python).collect::<PyResult<Vec<Tables>>>()?;
    let session = py.detach(|| pipeline::of_samples(&samples)).map_err(raise)?;
    to_python(py, session)
}

/// The session with samples on its clock and beside its devices.
#[pyfunction]
pub(crate) fn place_samples(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    samples: Vec<Bound<'_, PyDict>>,
) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let samples = samples.iter().map(from_python).collect::<PyResult<Vec<Tables>>>()?;
    let placed = py.detach(|| pipeline::add_samples(&session, &samples)).map_err(raise)?;
    to_python(py, placed)
}
