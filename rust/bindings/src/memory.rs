//! The budget of memory across the language border.

use std::path::PathBuf;

use pyanalyze_spill::Budget;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;

/// Sets the budget of the process: bytes, those of them that large blocks are held in, and where others go; None
/// lifts it.
#[pyfunction]
#[pyo3(signature = (budget=None))]
pub fn bound_memory(budget: Option<(usize, usize, PathBuf)>) -> PyResult<()> {
    let folder = budget.as_ref().map(|(_, _, folder)| folder.clone()).unwrap_or_default();
    let set = pyanalyze_spill::bound(budget.map(|(bytes, hold_bytes, _)| Budget {
        bytes,
        hold_bytes,
        folder: &folder,
    }));
    set.map_err(|e| errors::raise(pyanalyze_core::Error::io("keep temporary data in", &folder, e)))
}

/// What was held in memory and what in files, in bytes.
#[pyfunction]
pub fn memory_account(py: Python<'_>) -> PyResult<Py<PyDict>> {
    let account = pyanalyze_spill::account();
    let row = PyDict::new(py);
    row.set_item("budget_bytes", account.budget_bytes)?;
    row.set_item("held_bytes", account.held_bytes)?;
    row.set_item("spilled_bytes", account.spilled_bytes)?;
    row.set_item("spilled_most_bytes", account.spilled_most_bytes)?;
    row.set_item("resident_most_bytes", account.resident_most_bytes)?;
    Ok(row.unbind())
}

/// Raises `MemoryExceeded` if the budget could not be held.
#[pyfunction]
pub fn check_memory() -> PyResult<()> {
    pyanalyze_spill::check().map_err(|over| errors::named("MemoryExceeded", over.to_string()))
}
