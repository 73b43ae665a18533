//! How do leaves become blocks of rows?
//!
//! Leaves that lie next to each other in the file are read in one go, small enough to stay in the cache
//! until their rows are decoded. Rows are handed on in blocks of some hundred, so that whoever decodes
//! them can do so column by column.

use std::ops::Range;

use super::pages::{be32, wide, Fault, Leaf, Pages, Visited};
use super::record::{cell_head, Block, Shapes, Stored, SLACK};
use crate::error::Result;

/// Bytes read in one go.
const RUN_BYTES: usize = 128 * 1024;
/// Rows after which a block ends: few enough that they are still in a near cache for every column, many enough that
/// some have the same shape.
const BLOCK_ROWS: usize = 512;
/// Bytes of rows from overflow pages after which a block ends.
const SPILL_BYTES: usize = 4 * 1024 * 1024;

/// Walks over leaves of a table.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    pages: &'a Pages,
    table: &'a str,
    leaves: &'a [Leaf],
    overflow_seen: &'a Visited,
    /// Pages of the run; behind them rows that were put together from overflow pages.
    pub(super) buffer: Vec<u8>,
    run: Vec<(Leaf, usize)>,
    run_bytes: usize,
    page: usize,
    cell: usize,
    pub(super) shapes: Shapes,
    pub(super) block: Block,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(
        pages: &'a Pages,
        table: &'a str,
        leaves: &'a [Leaf],
        overflow_seen: &'a Visited,
        asked: &[Stored],
    ) -> Self {
        Self {
            pages,
            table,
            leaves,
            overflow_seen,
            buffer: Vec::new(),
            run: Vec::new(),
            run_bytes: 0,
            page: 0,
            cell: 0,
            shapes: Shapes::new(asked),
            block: Block::new(asked),
        }
    }

    /// Fills the block with the next rows; `false` if there are none.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.block.clear();
        self.shapes.forget_too_many();
        self.buffer.truncate(self.run_bytes + SLACK);
        loop {
            let Some((leaf, at)) = self.run.get(self.page).copied() else {
                // What is in the block points into the buffer, so it goes out before the next run comes in.
                if !self.block.rows.is_empty() {
                    return Ok(true);
                }
                if !self.read_run()? {
                    return Ok(false);
                }
                continue;
            };
            let stop = self.read_page(at).map_err(|f| self.pages.damaged(self.table, leaf.page, f))?;
            match stop {
                Stop::End => {
                    self.page += 1;
                    self.cell = 0;
                }
                Stop::Spilled(payload, start, row_id) => {
                    self.put_together(leaf.page, at, payload, start, row_id)?;
                    self.cell += 1;
                }
            }
            if self.block.rows.len() >= BLOCK_ROWS || self.buffer.len() > self.run_bytes + SLACK + SPILL_BYTES
            {
                return Ok(true);
            }
        }
    }

    /// Reads the next leaves that lie next to each other.
    fn read_run(&mut self) -> Result<bool> {
        let Some(first) = self.leaves.first().copied() else { return Ok(false) };
        let size = self.pages.page_bytes;
        let most = (RUN_BYTES / size).max(1);
        let mut end = first.page;
        self.run.clear();
        for leaf in self.leaves {
            // One foreign page in between, mostly an inner page of the same tree, is read along.
            let gap = leaf.page.checked_sub(end).filter(|gap| *gap <= 1);
            let pages = leaf.page.saturating_sub(first.page) as usize;
            if gap.is_none() || pages >= most {
                break;
            }
            self.run.push((*leaf, pages * size));
            end = leaf.page.saturating_add(1);
        }
        self.leaves = self.leaves.get(self.run.len()..).unwrap_or_default();
        self.run_bytes = (end - first.page) as usize * size;
        self.buffer.resize(self.run_bytes + SLACK, 0);
        self.page = 0;
        self.cell = 0;
        // A cut-off file has lost its last pages: read one by one, the missing page is named.
        let into = self.buffer.get_mut(..self.run_bytes).unwrap_or_default();
        if self.pages.read(self.table, first.page, into).is_err() {
            for (leaf, at) in &self.run {
                let into = self.buffer.get_mut(*at..at + size).unwrap_or_default();
                self.pages.read(self.table, leaf.page, into)?;
            }
        }
        Ok(true)
    }

    /// Takes the rows of a page into the block, from `self.cell` on, up to one that goes on elsewhere.
    fn read_page(&mut self, at: usize) -> std::result::Result<Stop, Fault> {
        let bytes = self.buffer.get(at..at + self.pages.usable).unwrap_or_default();
        let head = self.pages.head_of(bytes)?;
        if !head.is_leaf() {
            return Err(Fault { offset: 0, what: "is no leaf, where all leaves must be" });
        }
        let local = self.pages.usable - 35;
        for cell in self.cell..usize::from(head.cells) {
            let head = cell_head(bytes, cell)?;
            let fault = |what| Fault { offset: head.start, what };
            if head.payload > wide(local) {
                self.cell = cell;
                return Ok(Stop::Spilled(head.payload, head.start, head.row_id));
            }
            let payload = head.payload as usize;
            if head.start + payload > bytes.len() {
                return Err(fault("is a row that ends outside of its page"));
            }
            let place = (at + head.start, payload);
            self.shapes
                .put(&mut self.block, &self.buffer, place, head.payload, head.row_id)
                .map_err(fault)?;
        }
        Ok(Stop::End)
    }

    /// Takes a row that goes on in overflow pages; those are read as far as the asked columns need them.
    fn put_together(&mut self, page: u32, at: usize, payload: u64, start: usize, row_id: i64) -> Result<()> {
        let damaged = |what| self.pages.damaged(self.table, page, Fault { offset: start, what });
        if payload > self.pages.total_bytes() {
            return Err(damaged("is a row longer than the file"));
        }
        let (local, _) = self.pages.local_bytes(payload);
        let from = at + start;
        // Behind the part in the leaf stands the number of the first overflow page.
        if start + local + 4 > self.pages.usable {
            return Err(damaged("is a row that ends outside of its page"));
        }
        let mut next = be32(&self.buffer, from + local).unwrap_or(0);
        let known = self.shapes.shape(&self.buffer, (from, local), payload).ok();
        if known.is_some_and(|shape| self.shapes.needed(shape) <= wide(local)) {
            let put = self.shapes.put(&mut self.block, &self.buffer, (from, local), payload, row_id);
            return put.map(|_| ()).map_err(damaged);
        }
        // A header that is cut off here is worked out when all of the row is there.
        let needed = known.map_or(payload, |shape| self.shapes.needed(shape)).min(payload);
        let spilled = self.buffer.len();
        self.buffer.extend_from_within(from..from + local);
        let mut left = needed.saturating_sub(wide(local)) as usize;
        let mut overflow = vec![0_u8; self.pages.usable];
        while left > 0 {
            if next == 0 {
                return Err(self.pages.damaged(
                    self.table,
                    page,
                    Fault { offset: start, what: "is a row whose overflow pages end too early" },
                ));
            }
            self.pages.read(self.table, next, &mut overflow)?;
            if !self.overflow_seen.first_time(next) {
                let twice = Fault { offset: 0, what: "is an overflow page of two rows" };
                return Err(self.pages.damaged(self.table, next, twice));
            }
            next = be32(&overflow, 0).unwrap_or(0);
            let part = left.min(overflow.len() - 4);
            self.buffer.extend_from_slice(overflow.get(4..4 + part).unwrap_or_default());
            left -= part;
        }
        let damaged = |what| self.pages.damaged(self.table, page, Fault { offset: start, what });
        let there = self.buffer.len() - spilled;
        // What is compared of a row may reach beyond it, as in a page.
        self.buffer.resize(spilled + there + SLACK, 0);
        if u32::try_from(self.buffer.len()).is_err() {
            return Err(damaged("is a row longer than 4 GiB"));
        }
        let put = self.shapes.put(&mut self.block, &self.buffer, (spilled, there), payload, row_id);
        put.map(|_| ()).map_err(damaged)
    }
}

/// Why the rows of a page stopped coming.
enum Stop {
    End,
    /// A row with so many bytes that begins there, and its row id.
    Spilled(u64, usize, i64),
}

/// Cuts `leaves` into at most `parts` contiguous parts of about equal size.
pub(super) fn cut(leaves: usize, parts: usize) -> Vec<Range<usize>> {
    let step = leaves.div_ceil(parts.max(1)).max(1);
    (0..leaves).step_by(step).map(|from| from..(from + step).min(leaves)).collect()
}
