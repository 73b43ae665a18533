//! A thread pool whose results do not depend on the number of threads.
//!
//! Items are taken from one queue by as many threads as are allowed, and results are put back into the order of the
//! items.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Fewer rows are done before another thread has started.
const FEW_ROWS: usize = 1 << 18;

/// How many threads work at once.
#[derive(Debug, Clone, Copy)]
pub struct ThreadPool(usize);

impl ThreadPool {
    /// `threads`, or as many as there are processors for 0.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let all = || thread::available_parallelism().map_or(1, usize::from);
        Self(if threads == 0 { all() } else { threads })
    }

    /// All processors for so many rows, one where they are few.
    #[must_use]
    pub fn for_rows(rows: usize) -> Self {
        Self::new(usize::from(rows < FEW_ROWS))
    }

    /// `of` every item, in the order of the items.
    pub fn each<T: Send, R: Send>(self, items: Vec<T>, of: impl Fn(T) -> R + Sync) -> Vec<R> {
        let threads = self.0.min(items.len());
        if threads < 2 {
            return items.into_iter().map(of).collect();
        }
        let queue = Mutex::new(items.into_iter().enumerate());
        let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let mut done = Vec::new();
            while let Some((n, item)) = take() {
                done.push((n, of(item)));
            }
            done
        };
        let mut done: Vec<(usize, R)> = thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for other in others {
                done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            done
        });
        done.sort_unstable_by_key(|(n, _)| *n);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Rows for each thread, of so many that are all the same work; all for one where they are few.
    #[must_use]
    pub fn rows(self, all: usize) -> usize {
        all.div_ceil(self.0.max(1)).max(FEW_ROWS)
    }

    /// Both at once; `here` stays on the calling thread.
    pub fn both<A: Send, B>(self, there: impl FnOnce() -> A + Send, here: impl FnOnce() -> B) -> (A, B) {
        if self.0 < 2 {
            return (there(), here());
        }
        thread::scope(|scope| {
            let other = scope.spawn(there);
            let mine = here();
            (other.join().unwrap_or_else(|panic| resume_unwind(panic)), mine)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_the_items() {
        for threads in [0, 1, 3, 100] {
            let pool = ThreadPool::new(threads);
            assert_eq!(
                pool.each((0..50).collect(), |n: u64| n * n),
                (0..50).map(|n| n * n).collect::<Vec<_>>()
            );
            assert_eq!(pool.each(Vec::<u8>::new(), |n| n), Vec::<u8>::new());
            assert_eq!(pool.both(|| 1, || "b"), (1, "b"));
        }
    }
}
