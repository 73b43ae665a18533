//! Read leaf pages into blocks of rows.
//!
//! Leaves that are adjacent in the file are read at once, in pieces small enough to stay in the cache until their rows
//! are decoded. Rows are handed on in blocks of some hundred, so that they can be decoded column by column.

use std::fs::File;
use std::ops::Range;

use crate::error::Result;
use crate::pages::{be32, wide, Fault, Leaf, Pages, Visited};
use crate::prefetch::Following;
use crate::record::{cell_head, Block, CellHead, Shapes, Stored, Window, SLACK, WINDOW};

/// Rows after which a block ends: few enough that they are still in a near cache for every column, many enough that
/// some have the same shape.
const BLOCK_ROWS: usize = 2048;
/// Bytes of rows from overflow pages after which a block ends.
const SPILL_BYTES: usize = 4 * 1024 * 1024;

/// Walks over leaves of a table.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    pages: &'a Pages,
    again: Option<&'a File>,
    /// Who reads the leaves before this, and how many of the whole table stand before those that are left.
    behind: Option<(&'a Following<'a>, usize)>,
    table: &'a str,
    leaves: &'a [Leaf],
    overflow_seen: &'a Visited,
    /// Pages of the run; behind their [`Window`] rows that were put together from overflow pages.
    pub(crate) buffer: Vec<u8>,
    run: Vec<(Leaf, usize)>,
    page: usize,
    cell: usize,
    pub(crate) shapes: Shapes,
    pub(crate) block: Block,
}

impl<'a> Cursor<'a> {
    /// A walk over `leaves`, which are read with `again`, what [`Pages::opened_again`] says.
    pub(crate) fn new(
        pages: &'a Pages,
        again: Option<&'a File>,
        table: &'a str,
        leaves: &'a [Leaf],
        overflow_seen: &'a Visited,
        asked: &[Stored],
    ) -> Self {
        Self {
            pages,
            again,
            behind: None,
            table,
            leaves,
            overflow_seen,
            buffer: vec![0; WINDOW + SLACK],
            run: Vec::new(),
            page: 0,
            cell: 0,
            shapes: Shapes::new(asked),
            block: Block::new(asked),
        }
    }

    /// Has it wait for who reads the leaves, of which the first is the `from`-th of the table.
    pub(crate) fn behind(mut self, following: Option<&'a Following<'a>>, from: usize) -> Self {
        self.behind = following.map(|following| (following, from));
        self
    }

    /// Fills the block with the next rows; `false` if there are none.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.block.clear();
        self.shapes.forget_too_many();
        self.buffer.truncate(WINDOW + SLACK);
        loop {
            let Some((leaf, at)) = self.run.get(self.page).copied() else {
                // What is in the block points into the buffer, so it goes out before the next run comes in.
                if self.block.len() > 0 {
                    break;
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
            if self.block.len() >= BLOCK_ROWS || self.buffer.len() > WINDOW + SLACK + SPILL_BYTES {
                break;
            }
        }
        self.shapes.take_marked(&mut self.block.shapes);
        Ok(true)
    }

    /// Reads the next leaves that lie next to each other.
    fn read_run(&mut self) -> Result<bool> {
        let Some(first) = self.leaves.first().copied() else { return Ok(false) };
        let size = self.pages.page_bytes;
        let most = (WINDOW / size).max(1);
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
        self.page = 0;
        self.cell = 0;
        if let Some((following, leaf)) = &mut self.behind {
            *leaf += self.run.len();
            following.wait(*leaf);
        }
        // A cut-off file has lost its last pages: read one by one, the missing page is named.
        let run_bytes = (end - first.page) as usize * size;
        let into = self.buffer.get_mut(..run_bytes).unwrap_or_default();
        if self.pages.read_with(self.again, self.table, first.page, into).is_err() {
            for (leaf, at) in &self.run {
                let into = self.buffer.get_mut(*at..at + size).unwrap_or_default();
                self.pages.read_with(self.again, self.table, leaf.page, into)?;
            }
        }
        Ok(true)
    }

    /// The pages of the run.
    pub(crate) fn window(&self) -> Option<&Window> {
        self.buffer.first_chunk()
    }

    /// Takes the rows of a page into the block, from `self.cell` on, up to one that goes on elsewhere.
    fn read_page(&mut self, at: usize) -> std::result::Result<Stop, Fault> {
        let bytes = self.buffer.get(at..at + self.pages.usable).unwrap_or_default();
        let head = self.pages.head_of(bytes)?;
        if !head.is_leaf() {
            return Err(Fault { offset: 0, what: "is no leaf, where all leaves must be" });
        }
        let pointers = bytes.get(8..8 + 2 * usize::from(head.cells));
        let outside = Fault { offset: 8, what: "points to a row outside of its page" };
        let (pointers, _) = pointers.ok_or(outside)?.as_chunks();
        let pointers = pointers.get(self.cell..).unwrap_or_default();
        let Some(window) = self.buffer.first_chunk() else { return Ok(Stop::End) };
        let block = &mut self.block;
        let local = self.pages.usable - 35;
        // What stands in a page is shorter than 65537.
        let page = (at as u32, 8 + 2 * u32::from(head.cells), self.pages.usable as u32);
        let had = block.len();
        // Room for all of them at once: what is not used is given back below.
        block.starts.resize(had + pointers.len(), 0);
        block.shape_of.resize(had + pointers.len(), 0);
        let mut found = 0;
        let stop = loop {
            let rows = had + found..;
            let (Some(left), Some(starts), Some(shapes)) =
                (pointers.get(found..), block.starts.get_mut(rows.clone()), block.shape_of.get_mut(rows))
            else {
                break Ok(Stop::End);
            };
            let known = self.shapes.known(window, page, left, starts, shapes);
            found += known;
            // The one that is not as was to be expected.
            let (Some(from), Some(start), Some(shape)) =
                (left.get(known), starts.get_mut(known), shapes.get_mut(known))
            else {
                break Ok(Stop::End);
            };
            let cell = self.cell + found;
            let from = usize::from(u16::from_be_bytes(*from));
            let head = match cell_head(bytes, 8 + 2 * cell, from) {
                Ok(head) => head,
                Err(fault) => break Err(fault),
            };
            if head.payload > wide(local) {
                self.cell = cell;
                break Ok(Stop::Spilled(head.payload, head.start, head.row_id(bytes)));
            }
            let payload = head.payload as usize;
            if head.start + payload > bytes.len() {
                break Err(Fault { offset: head.start, what: "is a row that ends outside of its page" });
            }
            let place = (at + head.start, payload);
            match self.shapes.shape(&self.buffer, head.bytes(from), place, head.payload) {
                Ok(of) => (*start, *shape) = ((at + head.start) as u32, of),
                Err(what) => break Err(Fault { offset: head.start, what }),
            }
            found += 1;
        };
        block.starts.truncate(had + found);
        block.shape_of.truncate(had + found);
        if block.with_ids {
            let rows = block.starts.iter().zip(&block.shape_of).skip(had);
            block.row_ids.extend(rows.map(|(start, shape)| self.shapes.row_id(window, *start, *shape)));
        }
        stop
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
        let known = self.shapes.shape(&self.buffer, CellHead::default(), (from, local), payload).ok();
        if known.is_some_and(|shape| self.shapes.needed(shape) <= wide(local)) {
            return self.put((from, local), payload, row_id).map_err(damaged);
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
        self.put((spilled, there), payload, row_id).map_err(damaged)
    }

    /// Takes a row into the block of which only a part stands in its page, if any: `there` bytes from `start` on.
    fn put(
        &mut self,
        (start, there): (usize, usize),
        payload: u64,
        row_id: i64,
    ) -> std::result::Result<(), &'static str> {
        let shape = self.shapes.shape(&self.buffer, CellHead::default(), (start, there), payload)?;
        let block = &mut self.block;
        block.spilled |= start >= WINDOW;
        // Runs and spilled rows are kept far below 4 GiB.
        block.starts.push(start as u32);
        block.shape_of.push(shape);
        if block.with_ids {
            block.row_ids.push(row_id);
        }
        Ok(())
    }
}

/// Why the rows of a page stopped coming.
enum Stop {
    End,
    /// A row with so many bytes that begins there, and its row id.
    Spilled(u64, usize, i64),
}

/// Cuts `leaves` into at most `parts` contiguous parts of about equal size.
pub(crate) fn cut(leaves: usize, parts: usize) -> Vec<Range<usize>> {
    let step = leaves.div_ceil(parts.max(1)).max(1);
    (0..leaves).step_by(step).map(|from| from..(from + step).min(leaves)).collect()
}
