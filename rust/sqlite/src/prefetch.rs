//! Prefetch the leaf pages of tables from disk while other threads decode.
//!
//! One thread reads tables in the order in which they will be requested, from front to back and in large pieces, and
//! publishes how far it is. Decoders wait for it and do not read the disk themselves: several readers would make the
//! disk seek between their positions, with a cold read-ahead at each. While columns of one table are finished, the disk
//! is busy with the next.
//!
//! Pages that are in memory already are not read here.

use std::fs::File;
use std::ops::Range;
use std::sync::{mpsc, Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::pages::{wide, Leaf, Pages, Walked};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Pages of others between two leaves that are read along.
const GAP_PAGES: u32 = 16;
/// Smaller pieces, on average, are left to those who decode: together they ask the disk for several at once.
const WORTHWHILE_BYTES: usize = 64 << 10;
/// Smaller tables are there before a thread has begun.
const LEAST_BYTES: usize = 4 << 20;
/// Bytes that may be read and not yet decoded: where memory is short, what is read too early is gone when it is needed.
const FARTHEST_BYTES: u64 = 128 << 20;

/// Reads tables that will be asked for.
#[derive(Debug)]
pub(crate) struct Prefetch {
    shared: Arc<PrefetchState>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Begins with `tables`, names and first pages, for so many processors.
    pub(crate) fn start(pages: Arc<Pages>, tables: Vec<(String, u32)>, processors: usize) -> Self {
        let shared = Arc::new(PrefetchState { tables, state: Mutex::default(), changed: Condvar::new() });
        let on_it = Arc::clone(&shared);
        let thread = std::thread::Builder::new().spawn(move || {
            let _done = Done(&on_it);
            on_it.read(&pages, processors);
        });
        if thread.is_err() {
            shared.stop();
        }
        Self { shared, thread: thread.ok() }
    }

    /// The leaves of `table` with somebody who reads them; none if it is not on the list, comes before one that was asked
    /// for, or is damaged.
    pub(crate) fn follow(&self, table: &str) -> Option<Following<'_>> {
        let shared = &self.shared;
        let at = shared.tables.iter().position(|(name, _)| name == table)?;
        let mut state = shared.state();
        if at < state.wanted {
            return None;
        }
        state.wanted = at;
        shared.changed.notify_all();
        let unknown = |state: &mut State| !state.stopped && state.tables.len() <= at;
        let state = shared.changed.wait_while(state, unknown).unwrap_or_else(PoisonError::into_inner);
        let Some(Some(found)) = state.tables.get(at) else { return None };
        Some(Following { shared, at, found: found.clone() })
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say: what it could not read is read again by who decodes it.
            let _ = thread.join();
        }
    }
}

/// A table whose leaves somebody reads.
#[derive(Debug)]
pub(crate) struct Following<'a> {
    shared: &'a PrefetchState,
    at: usize,
    found: Found,
}

impl Following<'_> {
    /// Its leaves.
    pub(crate) fn leaves(&self) -> &[Leaf] {
        &self.found.walked.leaves
    }

    /// Whether its leaves are fetched in order, or left to those who decode.
    pub(crate) fn is_fetched(&self) -> bool {
        self.found.is_fetched
    }

    /// Says that decoding has come to the leaf `leaf`.
    pub(crate) fn take(&self, leaf: usize) {
        let taken = self.found.from_byte + wide(leaf) * self.found.leaf_bytes;
        self.shared.change(|state| state.taken_bytes = state.taken_bytes.max(taken));
    }

    /// Waits until all leaves before `leaf` were read.
    pub(crate) fn wait(&self, leaf: usize) {
        let behind = |state: &mut State| !state.stopped && state.place < (self.at, leaf);
        let waited = self.shared.changed.wait_while(self.shared.state(), behind);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// What is known of a table on the list.
#[derive(Debug, Clone)]
struct Found {
    walked: Arc<Walked>,
    is_fetched: bool,
    leaf_bytes: u64,
    /// Bytes that were read before its first.
    from_byte: u64,
}

/// How far the reader and those behind it are.
#[derive(Debug)]
struct PrefetchState {
    tables: Vec<(String, u32)>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The tables that the reader has come to; none for one that it could not walk.
    tables: Vec<Option<Found>>,
    /// Table and leaf that are read next.
    place: (usize, usize),
    read_bytes: u64,
    taken_bytes: u64,
    /// Nobody will ask for tables before it.
    wanted: usize,
    stopped: bool,
}

impl PrefetchState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Nobody waits any longer.
    fn stop(&self) {
        self.change(|state| state.stopped = true);
    }

    fn read(&self, pages: &Pages, processors: usize) {
        let (tell, walked) = mpsc::channel();
        std::thread::scope(|scope| {
            // What is fetched leaves the disk some time for a few pages that are far from each other.
            scope.spawn(move || {
                for (name, root) in &self.tables {
                    let leaves = pages.bounded_leaves(name, *root, processors).ok().map(Arc::new);
                    if self.state().stopped || tell.send(leaves).is_err() {
                        return;
                    }
                }
            });
            self.fetch(pages, &walked);
        });
    }

    /// Fetches what was `walked`, in this order.
    fn fetch(&self, pages: &Pages, walked: &mpsc::Receiver<Option<Arc<Walked>>>) {
        let mut front = Front { file: pages.opened_again(), nowhere: nowhere(), piece: Vec::new() };
        for (at, walked) in walked.iter().enumerate() {
            if self.state().stopped {
                return;
            }
            let leaves = walked.as_ref().filter(|walked| worthwhile(walked, pages.page_bytes));
            self.change(|state| {
                let (from_byte, leaf_bytes) = (state.read_bytes, wide(pages.page_bytes));
                let found = |walked| Found { walked, is_fetched: leaves.is_some(), leaf_bytes, from_byte };
                state.tables.push(walked.clone().map(found));
            });
            for range in leaves.iter().flat_map(|walked| pieces(&walked.leaves, pages.page_bytes)) {
                if !self.may_read(at) {
                    break;
                }
                let leaves = leaves.and_then(|walked| walked.leaves.get(range.clone())).unwrap_or_default();
                front.fetch(pages, leaves);
                self.change(|state| {
                    state.place = (at, range.end);
                    state.read_bytes += wide(leaves.len() * pages.page_bytes);
                });
            }
            self.change(|state| state.place = (at + 1, 0));
        }
    }

    /// Waits until decoding is near enough; false if nobody wants the rest of the table.
    fn may_read(&self, at: usize) -> bool {
        let wanted = |state: &State| !state.stopped && state.wanted <= at;
        let far = |state: &mut State| wanted(state) && state.read_bytes > state.taken_bytes + FARTHEST_BYTES;
        let state = self.changed.wait_while(self.state(), far).unwrap_or_else(PoisonError::into_inner);
        wanted(&state)
    }
}

/// Tells, also when something went badly wrong, that nothing more will come.
struct Done<'a>(&'a PrefetchState);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Whether leaves come from a disk and mostly lie next to each other.
fn worthwhile(walked: &Walked, page_bytes: usize) -> bool {
    let bytes = walked.leaves.len() * page_bytes;
    let count = pieces(&walked.leaves, page_bytes).count();
    !walked.in_memory && bytes >= LEAST_BYTES && bytes / count.max(1) >= WORTHWHILE_BYTES
}

/// Brings leaves into the memory of the system.
struct Front {
    file: Option<File>,
    /// Where the system sends what it has read, without a copy; none where that is not known.
    nowhere: Option<File>,
    piece: Vec<u8>,
}

impl Front {
    /// Those of one piece.
    fn fetch(&mut self, pages: &Pages, leaves: &[Leaf]) {
        let (Some(first), Some(last)) = (leaves.first(), leaves.last()) else { return };
        let bytes = (last.page - first.page + 1) as usize * pages.page_bytes;
        if let (Some(file), Some(nowhere)) = (&self.file, &self.nowhere) {
            if pages.send(file, nowhere, first.page, bytes) {
                return;
            }
        }
        self.piece.resize(bytes, 0);
        // What goes wrong is told by who decodes the same.
        let _ = pages.read_with(self.file.as_ref(), "", first.page, &mut self.piece);
    }
}

/// What takes everything and keeps nothing. A file in its place, as careless containers have, would keep it.
#[cfg(target_os = "linux")]
fn nowhere() -> Option<File> {
    use std::os::unix::fs::FileTypeExt;
    let opened = File::options().write(true).open("/dev/null").ok();
    opened.filter(|file| file.metadata().is_ok_and(|data| data.file_type().is_char_device()))
}

/// Elsewhere nothing is sent.
#[cfg(not(target_os = "linux"))]
fn nowhere() -> Option<File> {
    None
}

/// Leaves that are read at once.
fn pieces(leaves: &[Leaf], page_bytes: usize) -> impl Iterator<Item = Range<usize>> + '_ {
    let most = (PIECE_BYTES / page_bytes) as u32;
    let mut from = 0;
    std::iter::from_fn(move || {
        let first = leaves.get(from)?;
        let mut last = first.page;
        let more = leaves.get(from + 1..).unwrap_or_default().iter().take_while(|leaf| {
            let follows = leaf.page > last && leaf.page - last <= GAP_PAGES && leaf.page - first.page < most;
            last = leaf.page;
            follows
        });
        let range = from..from + 1 + more.count();
        from = range.end;
        Some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_that_are_near_each_other_are_read_at_once() {
        let of = |pages: &[u32]| {
            let leaves: Vec<Leaf> = pages.iter().map(|page| Leaf { page: *page, rows_at_most: 1 }).collect();
            let found = pieces(&leaves, 65_536).map(|piece| pages[piece].to_vec()).collect::<Vec<_>>();
            found
        };
        assert_eq!(of(&[]), Vec::<Vec<u32>>::new());
        assert_eq!(of(&[7]), [[7]]);
        // A page of another table is read along, one that is far away or behind is not.
        assert_eq!(of(&[2, 3, 5, 30, 31, 29]), [vec![2, 3, 5], vec![30, 31], vec![29]]);
        // 16 pages of 64 KiB are a piece.
        assert_eq!(of(&(10..30).collect::<Vec<_>>()), [(10..26).collect::<Vec<_>>(), (26..30).collect()]);
    }
}
