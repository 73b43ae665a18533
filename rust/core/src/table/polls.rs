//! Find polls: a thread asks again and again whether the device has come so far. That is one wait.
//!
//! ```text
//!   cudaEventQuery   |q|  |q|  |q|  |q|
//!   answer            no   no   no   yes
//!   as a wait        |===============|
//! ```
//!
//! A thread that calls anything else before the answer is yes had other work: its queries are no wait.

use arrow_array::RecordBatch;

use crate::base::error::Result;
use crate::base::id_set::IdSet;
use crate::base::maps::NumberMap;
use crate::table::columns::{at, in_order, Columns};
use crate::table::launch::Folded;
use crate::table::schema;

/// `cudaErrorNotReady`: a query that says "not yet".
pub(crate) const NOT_READY: i32 = 600;
const READY: i32 = 0;

/// A wait by queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Poll {
    /// When it was answered.
    pub end_ns: i64,
    /// From the begin of the last query but one to the answer: what it waited for ended in that time.
    pub period_ns: i64,
}

/// The polls of a table of calls.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    /// By the row of the first query.
    found: NumberMap<u32, Poll>,
    /// Rows of all other queries of these.
    parts: IdSet,
}

/// The queries of a thread that were not answered yet.
#[derive(Default)]
struct Open {
    rows: Vec<u32>,
    last_ns: i64,
}

impl Polls {
    /// Those of `api_calls`.
    pub fn of(batch: &RecordBatch) -> Result<Self> {
        let mut polls = Self::default();
        let columns = Columns::new(&schema::API_CALLS, batch);
        let names = columns.names("name")?;
        let queries: Vec<bool> = names.texts().map(|name| name.is_some_and(is_query)).collect();
        if !queries.contains(&true) {
            return Ok(polls);
        }
        let (pid, tid): (Folded<'_>, Folded<'_>) = (columns.folded("pid")?, columns.folded("tid")?);
        let capture = columns.u32("capture")?;
        let (start, end) = (columns.i64("start_ns")?, columns.i64("end_ns")?);
        let code = columns.i32("return_value")?;
        let order = in_order(start);
        let mut open: NumberMap<(u32, Option<u32>, Option<u32>), Open> = NumberMap::default();
        for n in 0..columns.rows() {
            let row = order.as_ref().map_or(n, |order| order.get(n).copied().unwrap_or(n));
            let query = names.key(row).is_some_and(|key| queries.get(key as usize) == Some(&true));
            if !query && open.is_empty() {
                continue;
            }
            let thread = (capture.value(row), pid.at(row), tid.at(row));
            match at(code, row).filter(|_| query) {
                Some(NOT_READY) => {
                    let open = open.entry(thread).or_default();
                    open.rows.extend(u32::try_from(row));
                    open.last_ns = start.value(row);
                }
                Some(READY) => {
                    let Some(open) = open.remove(&thread) else { continue };
                    let end_ns = end.value(row).max(start.value(row));
                    let mut rows = open.rows.into_iter().chain(u32::try_from(row));
                    if let Some(first) = rows.next() {
                        let period_ns = end_ns.saturating_sub(open.last_ns);
                        polls.found.insert(first, Poll { end_ns, period_ns });
                    }
                    rows.for_each(|row| polls.parts.insert(row));
                }
                _ => {
                    open.remove(&thread);
                }
            }
        }
        Ok(polls)
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The poll whose first query stands in this row.
    pub fn begun_in(&self, row: usize) -> Option<Poll> {
        if self.is_empty() {
            return None;
        }
        self.found.get(&u32::try_from(row).ok()?).copied()
    }

    /// Whether the query in this row belongs to a poll that began before.
    pub fn is_part(&self, row: usize) -> bool {
        !self.is_empty() && u32::try_from(row).is_ok_and(|row| self.parts.contains(row))
    }
}

fn is_query(name: &str) -> bool {
    name.contains("EventQuery") || name.contains("StreamQuery")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::builder::Builder;
    use arrow_array::{Int32Array, Int64Array, UInt32Array};

    /// Polls of calls of one process: (thread, name, answer, start, end), as (row of the first query, end, period).
    fn found(calls: &[(u32, &str, i32, i64, i64)]) -> (Vec<(u32, i64, i64)>, Vec<usize>) {
        let n = calls.len();
        let batch = Builder::new(&schema::API_CALLS)
            .put("capture", UInt32Array::from(vec![0; n]))
            .put("pid", UInt32Array::from(vec![7; n]))
            .put("tid", calls.iter().map(|c| Some(c.0)).collect::<UInt32Array>())
            .put("correlation_id", (0_u32..).take(n).map(Some).collect::<UInt32Array>())
            .put("return_value", calls.iter().map(|c| Some(c.2)).collect::<Int32Array>())
            .put("start_ns", calls.iter().map(|c| Some(c.3)).collect::<Int64Array>())
            .put("end_ns", calls.iter().map(|c| Some(c.4)).collect::<Int64Array>())
            .put_names("name", calls.iter().map(|c| Some(c.1)))
            .finish(n)
            .unwrap();
        let polls = Polls::of(&batch).unwrap();
        let begun = (0..n).filter_map(|row| Some((row, polls.begun_in(row)?)));
        let begun =
            begun.map(|(row, poll)| (u32::try_from(row).unwrap(), poll.end_ns, poll.period_ns)).collect();
        (begun, (0..n).filter(|row| polls.is_part(*row)).collect())
    }

    #[test]
    fn queries_until_the_answer_is_yes_are_one_wait() {
        let calls = [
            (1, "cudaLaunchKernel", 0, 0, 5),
            (1, "cudaEventQuery_v3020", 600, 10, 12),
            (2, "cudaEventQuery_v3020", 600, 15, 16),
            (1, "cudaEventQuery_v3020", 600, 20, 22),
            (2, "cudaLaunchKernel", 0, 25, 26),
            (1, "cudaEventQuery_v3020", 0, 30, 32),
            (2, "cudaEventQuery_v3020", 0, 35, 36),
            (1, "cudaStreamQuery_v3020", 0, 40, 41),
        ];
        // The second thread launches before its answer is yes; the last query is answered at once.
        assert_eq!(found(&calls), (vec![(1, 32, 12)], vec![3, 5]));
    }

    #[test]
    fn calls_may_stand_in_any_order_and_end_without_an_answer() {
        let calls = [
            (1, "cuEventQuery", 0, 30, 31),
            (1, "cuEventQuery", 600, 10, 11),
            (1, "cuEventQuery", 700, 60, 61),
            (1, "cuEventQuery", 600, 50, 51),
            (1, "cuEventQuery", 600, 70, 71),
        ];
        assert_eq!(found(&calls), (vec![(1, 31, 21)], vec![0]));
        assert_eq!(found(&[]), (vec![], vec![]));
        assert_eq!(found(&[(1, "cudaStreamSynchronize", 600, 0, 1)]), (vec![], vec![]));
    }
}
