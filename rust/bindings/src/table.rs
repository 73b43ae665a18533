//! Tables across the language border: one class, the Arrow PyCapsule protocol, no pyarrow.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, Field};
use pyanalyze_core::table::collect;
use pyanalyze_core::table::columns::{conform, Columns};
use pyanalyze_core::table::events::Tables;
use pyanalyze_core::table::launch::unfold;
use pyanalyze_core::table::quality;
use pyanalyze_core::table::schema::{self, Kind};
use pyanalyze_core::{Result, Watch};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use pyo3_arrow::ffi::{to_stream_pycapsule, ArrayIterator};
use pyo3_arrow::PyTable;

use crate::errors;
use crate::progress::{Callback, PyWatch};

/// One declared table: an Arrow stream with its `name@version`.
#[pyclass(frozen, module = "pyanalyze.core._core")]
pub struct Table {
    declared: &'static schema::Table,
    batch: RecordBatch,
}

#[pymethods]
impl Table {
    #[getter]
    fn name(&self) -> &'static str {
        self.declared.name
    }

    #[getter]
    fn schema_id(&self) -> String {
        self.declared.id()
    }

    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<Table {} with {} rows>", self.declared.id(), self.batch.num_rows())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        stream(py, &self.batch, requested_schema)
    }

    /// Its rows as dictionaries: a few of them are here sooner than a library that takes tables is imported.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let batch = unfold(&self.batch).map_err(errors::raise)?;
        let columns = Columns::new(self.declared, &batch);
        let rows: Vec<Bound<'py, PyDict>> = (0..columns.rows()).map(|_| PyDict::new(py)).collect();
        for column in self.declared.columns {
            let name = column.name;
            match column.kind {
                Kind::U8 => fill(&rows, name, columns.u8(name).map_err(errors::raise)?.iter())?,
                Kind::U16 => fill(&rows, name, columns.u16(name).map_err(errors::raise)?.iter())?,
                Kind::U32 => fill(&rows, name, columns.u32(name).map_err(errors::raise)?.iter())?,
                Kind::U64 => fill(&rows, name, columns.u64(name).map_err(errors::raise)?.iter())?,
                Kind::I32 => fill(&rows, name, columns.i32(name).map_err(errors::raise)?.iter())?,
                Kind::I64 => fill(&rows, name, columns.i64(name).map_err(errors::raise)?.iter())?,
                Kind::F64 => fill(&rows, name, columns.f64(name).map_err(errors::raise)?.iter())?,
                Kind::Bool => fill(&rows, name, columns.bool(name).map_err(errors::raise)?.iter())?,
                Kind::Text => fill(&rows, name, columns.text(name).map_err(errors::raise)?.iter())?,
                Kind::Name => {
                    let names = columns.names(name).map_err(errors::raise)?;
                    fill(&rows, name, (0..columns.rows()).map(|row| names.get(row)))?;
                }
            }
        }
        PyList::new(py, rows)
    }

    /// Some of the columns, of at most `rows` rows from `start` on: what another library takes may cost it memory.
    #[pyo3(signature = (columns, start=0, rows=usize::MAX))]
    fn slice(&self, columns: Vec<String>, start: usize, rows: usize) -> PyResult<Part> {
        let schema = self.batch.schema();
        let place = |name: &String| schema.index_of(name).map_err(|_| PyKeyError::new_err(name.clone()));
        let places = columns.iter().map(place).collect::<PyResult<Vec<usize>>>()?;
        let batch = self.batch.project(&places).map_err(|e| PyKeyError::new_err(e.to_string()))?;
        let start = start.min(batch.num_rows());
        let rows = rows.min(batch.num_rows().saturating_sub(start));
        Ok(Part { batch: batch.slice(start, rows) })
    }
}

/// Puts a value under `name` into each row.
fn fill<'py, T: IntoPyObject<'py>>(
    rows: &[Bound<'py, PyDict>],
    name: &str,
    values: impl Iterator<Item = Option<T>>,
) -> PyResult<()> {
    rows.iter().zip(values).try_for_each(|(row, value)| row.set_item(name, value))
}

impl Table {
    /// What it is, and its rows.
    pub fn parts(&self) -> (&'static schema::Table, RecordBatch) {
        (self.declared, self.batch.clone())
    }
}

/// Some columns and rows of a table.
#[pyclass(frozen, module = "pyanalyze.core._core")]
pub struct Part {
    batch: RecordBatch,
}

#[pymethods]
impl Part {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        stream(py, &self.batch, requested_schema)
    }
}

/// A table that is put together from parts, none of which stays in memory.
#[pyclass(frozen, module = "pyanalyze.core._core")]
pub struct Collector {
    declared: &'static schema::Table,
    collected: Mutex<Option<collect::Collector>>,
}

#[pymethods]
impl Collector {
    /// An empty table of a declared name, with room for so many rows.
    #[new]
    fn new(name: &str, rows: usize) -> PyResult<Self> {
        let declared = declared(name)?;
        Ok(Self { declared, collected: Mutex::new(Some(collect::Collector::new(declared, rows))) })
    }

    /// Adds rows: anything with an Arrow stream; columns that it lacks have no value there.
    fn add(&self, part: PyTable) -> PyResult<()> {
        let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let collected = collected.as_mut().ok_or_else(finished)?;
        let (batches, _) = part.into_inner();
        batches.iter().try_for_each(|batch| collected.add(batch)).map_err(errors::raise)
    }

    /// The whole table; nothing can be added to it.
    fn finish(&self) -> PyResult<Table> {
        let collected =
            self.collected.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(finished)?;
        Ok(Table { declared: self.declared, batch: collected.finish().map_err(errors::raise)? })
    }
}

fn finished() -> PyErr {
    PyRuntimeError::new_err("the table is finished")
}

fn stream<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let batch = unfold(batch).map_err(errors::raise)?;
    let schema = batch.schema();
    let field =
        Field::new_struct("", schema.fields().clone(), false).with_metadata(schema.metadata().clone());
    let rows: ArrayRef = Arc::new(StructArray::from(batch));
    debug_assert!(matches!(rows.data_type(), DataType::Struct(_)));
    let reader = Box::new(ArrayIterator::new([Ok(rows)], Arc::new(field)));
    Ok(to_stream_pycapsule(py, reader, requested_schema)?)
}

/// Tables to Python, by name.
pub fn to_python(py: Python<'_>, tables: Tables) -> PyResult<Py<PyDict>> {
    let out = PyDict::new(py);
    for (name, batch) in tables {
        out.set_item(name, one(py, name, batch)?)?;
    }
    Ok(out.unbind())
}

/// Makes tables of a session, with the interpreter free meanwhile.
pub(crate) fn made_of(
    py: Python<'_>,
    session: &Bound<'_, PyDict>,
    progress: Callback,
    run: impl FnOnce(&Tables, &dyn Watch) -> Result<Tables> + Send,
) -> PyResult<Py<PyDict>> {
    let session = from_python(session)?;
    let watch = PyWatch::new(progress);
    let made = py.detach(|| run(&session, &watch)).map_err(|e| watch.raise(e))?;
    to_python(py, made)
}

/// One table to Python.
pub fn one(py: Python<'_>, name: &str, batch: RecordBatch) -> PyResult<Py<Table>> {
    Py::new(py, Table { declared: declared(name)?, batch })
}

fn declared(name: &str) -> PyResult<&'static schema::Table> {
    schema::table(name).ok_or_else(|| PyKeyError::new_err(format!("no table is named {name}")))
}

/// Tables from Python: our own class as it is, anything else with an Arrow stream brought to the declared types.
pub fn from_python(tables: &Bound<'_, PyDict>) -> PyResult<Tables> {
    let mut out: BTreeMap<&'static str, RecordBatch> = Tables::new();
    for (name, value) in tables.iter() {
        let declared = declared(&name.extract::<String>()?)?;
        let batch = match value.cast::<Table>() {
            Ok(own) if std::ptr::eq(own.get().declared, declared) => own.get().batch.clone(),
            _ => foreign(declared, &value)?,
        };
        out.insert(declared.name, batch);
    }
    Ok(out)
}

fn foreign(declared: &'static schema::Table, value: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let (batches, arrow_schema) = value.extract::<PyTable>()?.into_inner();
    let whole = arrow_select::concat::concat_batches(&arrow_schema, &batches);
    let whole =
        whole.map_err(|e| errors::raise(pyanalyze_core::Error::schema(&declared.id(), e.to_string())))?;
    conform(declared, &whole).map_err(errors::raise)
}

/// Every table with its columns.
#[pyfunction]
pub(crate) fn table_declarations(py: Python<'_>) -> PyResult<Py<PyList>> {
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

pub(crate) fn type_name(kind: schema::Kind) -> String {
    match kind {
        schema::Kind::Name => "Dictionary<UInt32, Utf8>".to_owned(),
        other => other.data_type().to_string(),
    }
}

/// Every quality counter.
#[pyfunction]
pub(crate) fn quality_counters(py: Python<'_>) -> PyResult<Py<PyList>> {
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
