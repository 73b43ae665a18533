//! PyO3 glue: the list of what Python sees. No analysis here.
//!
//! Every function takes and gives tables (see `table.rs`), releases the interpreter lock while the core
//! works, and passes progress and Ctrl-C through (see `progress.rs`).

// PyO3 hands over what it extracted; there is nobody else to own it.
#![allow(clippy::needless_pass_by_value)]

mod analyse;
mod errors;
mod memory;
mod model;
mod progress;
mod read;
mod table;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: pyanalyze_spill::Spilling = pyanalyze_spill::Spilling;

/// The compiled core of pyanalyze.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<table::Table>()?;
    module.add_class::<table::Part>()?;
    module.add_class::<table::Collector>()?;
    module.add_class::<model::Fit>()?;
    module.add_function(wrap_pyfunction!(read::read_capture, module)?)?;
    module.add_function(wrap_pyfunction!(read::kernel_summary, module)?)?;
    module.add_function(wrap_pyfunction!(read::physical_tables, module)?)?;
    module.add_function(wrap_pyfunction!(read::join_captures, module)?)?;
    module.add_function(wrap_pyfunction!(read::read_samples, module)?)?;
    module.add_function(wrap_pyfunction!(read::place_samples, module)?)?;
    module.add_function(wrap_pyfunction!(read::samples_session, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::reconstruct, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::tenant_usage, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::reconstruct_parts, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::attribution, module)?)?;
    module.add_function(wrap_pyfunction!(model::occupancy, module)?)?;
    module.add_function(wrap_pyfunction!(model::kernel_occupancy, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::infer_residency, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::launches, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::calls_by_name, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::calls_in_gaps, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::launch_records, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::streams, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::residency_summary, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::timeline, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::latencies, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::cut, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::write_perfetto, module)?)?;
    module.add_function(wrap_pyfunction!(model::forecast, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::slowdowns, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::explain, module)?)?;
    module.add_function(wrap_pyfunction!(analyse::explain_words, module)?)?;
    module.add_function(wrap_pyfunction!(model::hardware_constants, module)?)?;
    module.add_function(wrap_pyfunction!(model::mps_sms, module)?)?;
    module.add_function(wrap_pyfunction!(model::mig_sm_counts, module)?)?;
    module.add_function(wrap_pyfunction!(table::table_declarations, module)?)?;
    module.add_function(wrap_pyfunction!(table::quality_counters, module)?)?;
    module.add_function(wrap_pyfunction!(memory::bound_memory, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_account, module)?)?;
    module.add_function(wrap_pyfunction!(memory::check_memory, module)?)?;
    Ok(())
}
