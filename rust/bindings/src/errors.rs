//! Map errors of the core to Python exceptions. I/O errors become the builtin ones; every other kind has a class
//! in `pyanalyze.errors`.

use pyanalyze_core::Error;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

/// The Python exception for a core error.
pub fn raise(error: Error) -> PyErr {
    let class = match &error {
        Error::Io { action, path, source } => {
            let message = format!("cannot {action}: {source}");
            // OSError(errno, text, file) picks FileNotFoundError, PermissionError, ... by itself.
            return match source.raw_os_error() {
                Some(code) => PyOSError::new_err((code, message, path.display().to_string())),
                None => PyOSError::new_err(error.to_string()),
            };
        }
        Error::Argument(_) => "UsageError",
        Error::NotSqlite { .. } | Error::NotAnExport { .. } => "NotACapture",
        Error::Damaged { .. } => "CaptureDamaged",
        Error::Unfinished { .. } => "CaptureUnfinished",
        Error::Changed { .. } => "CaptureChanged",
        Error::Samples { .. } => "SamplesUnreadable",
        Error::UnknownSamples { .. } => "UnknownFormat",
        Error::Schema { .. } => "TableMismatch",
        Error::Cancelled => "Cancelled",
    };
    named(class, error.to_string())
}

/// An exception of `pyanalyze.errors`.
pub fn named(class: &str, text: String) -> PyErr {
    Python::attach(|py| {
        py.import("pyanalyze.errors")
            .and_then(|module| module.getattr(class))
            .and_then(|class| class.call1((text.clone(),)))
            .map_or_else(|_| PyRuntimeError::new_err(text.clone()), PyErr::from_value)
    })
}
