//! Progress and cancellation across the language border: a Python callable becomes a [`Watch`].

use std::sync::Mutex;
use std::time::{Duration, Instant};

use pyanalyze_core::{Error, Result, Watch};
use pyo3::prelude::*;

/// What Python gives for progress.
pub(crate) type Callback = Option<Py<PyAny>>;

/// Reports at most this often, so that progress costs nothing.
const EVERY: Duration = Duration::from_millis(50);

/// Calls `callback(stage, done, total)`, and listens for Ctrl-C.
pub struct PyWatch {
    callback: Option<Py<PyAny>>,
    state: Mutex<State>,
}

struct State {
    last: Instant,
    raised: Option<PyErr>,
}

impl PyWatch {
    /// A watch around an optional Python callable.
    pub fn new(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, state: Mutex::new(State { last: Instant::now(), raised: None }) }
    }

    /// The Python exception for `error`: what the callback or Ctrl-C raised, if that is why core stopped.
    pub fn raise(&self, error: Error) -> PyErr {
        let raised = match (&error, self.state.lock()) {
            (Error::Cancelled, Ok(mut state)) => state.raised.take(),
            _ => None,
        };
        raised.unwrap_or_else(|| crate::errors::raise(error))
    }
}

impl Watch for PyWatch {
    fn progress(&self, stage: &str, done: u64, total: u64) -> Result<()> {
        {
            let mut state = self.state.lock().map_err(|_| Error::Cancelled)?;
            let finished = total > 0 && done >= total;
            if state.raised.is_none() && state.last.elapsed() < EVERY && !finished {
                return Ok(());
            }
            state.last = Instant::now();
        }
        // The lock is free here: the callback may run for long, or ask for the interpreter lock.
        let outcome = Python::attach(|py| {
            py.check_signals()?;
            crate::memory::check_memory()?;
            match &self.callback {
                Some(callback) => callback.call1(py, (stage, done, total)).map(|_| ()),
                None => Ok(()),
            }
        });
        outcome.map_err(|raised| {
            if let Ok(mut state) = self.state.lock() {
                state.raised = Some(raised);
            }
            Error::Cancelled
        })
    }
}
