//! PyO3 glue: a dozen coarse functions between the core and `pyanalyze`. No analysis here.
//!
//! Every function takes and gives tables (see `table.rs`), releases the interpreter lock while the core
//! works, and passes progress and Ctrl-C through (see `progress.rs`).

mod errors;
mod progress;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyanalyze_core::fold::Tables;
use pyanalyze_core::placement::{Sharing, PlacementPolicy};
use pyanalyze_core::quality::Quality;
use pyanalyze_core::{clock, device, fold, nsys, pipeline, placement, quality, samples, schema, timeline as lanes};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use errors::raise;
use progress::PyWatch;
use table::{from_python, one, to_python, Table};

type Callback = Option<Py<PyAny>>;

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
    let want = nsys::Want::parse(tables.iter().map(String::as_str)).map_err(raise)?;
    let watch = PyWatch::new(progress);
    let read = py.detach(|| nsys::read(&path, capture, &want, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, read)
}
