//! Where do the asked columns stand in a row?
//!
//! A row begins with a header that gives the type and width of every column. Consecutive rows mostly have
//! the same header, byte for byte, so a header is worked out once into a shape: for every asked column
//! where its value ends and what to do with the bytes. Finding the shape of the next row is one
//! comparison, and reading a value is one load at a known place.

use super::pages::{be16, varint, wide, Fault};
use super::Value;

/// More than any table of an export has; a file with more is made to be slow.
const MAX_SHAPES: usize = 4096;
/// At least twice what can be in it: those above, and the rows of one block that all have new ones.
const SLOTS: usize = 1 << 16;
const NO_SHAPE: u16 = u16::MAX;
/// Headers up to here are compared in one go; those of all tables of nsys are shorter.
const WIDE: usize = 64;
/// Bytes that must be readable behind any row, whatever they are.
pub(super) const SLACK: usize = WIDE;
/// Places for what came after the last few shapes.
const HISTORY: usize = 1 << 12;

/// How a column of a table is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    /// Its place in the record; `None` for the row id under another name.
    pub(super) place: Option<usize>,
    /// Declared as REAL: whole numbers are stored as integers there, but mean reals.
    pub(super) real: bool,
}

/// What the bytes of a value mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Not there.
    Null,
    /// A whole number.
    Int,
    /// The row id.
    RowId,
    /// A whole number that means a real.
    IntAsReal,
    /// A floating-point number.
    Real,
    /// Text.
    Text,
    /// Bytes.
    Blob,
}

/// One asked column in one shape. Small, because those of all shapes in use should stay in the cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    /// Where the last 8 bytes up to the end of the value begin, from the start of the row on; wraps around
    /// for values that end in the first 8 bytes.
    at: u32,
    /// Bytes of the value.
    len: u32,
    /// A whole number is those 8 bytes, shifted left and back, and `keep`, or `constant`.
    shift: u8,
    keep: i8,
    constant: u8,
    /// What it is.
    pub(super) meaning: Meaning,
}

impl Cell {
    /// A column that the row does not have.
    pub(super) const NULL: Self =
        Self { at: 0, len: 0, shift: 0, keep: 0, constant: 0, meaning: Meaning::Null };

    /// A whole number; 0 for what is none.
    ///
    /// Without a branch: numbers of 0 to 8 bytes are all the same load. The 8 bytes may begin before the
    /// row, but never before the page, because a page begins with 8 bytes that are no row.
    #[inline(always)]
    pub(super) fn int(&self, buffer: &[u8], row: u32) -> i64 {
        let at = row.wrapping_add(self.at) as usize;
        let bytes = buffer.get(at..at.wrapping_add(8)).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
        let raw = i64::from_be_bytes(bytes);
        let shift = u32::from(self.shift);
        (raw.wrapping_shl(shift).wrapping_shr(shift) & i64::from(self.keep)) | i64::from(self.constant)
    }

    /// The number of every row of this cell, if it is the same whatever the row holds: 0 and 1 stand in the header.
    #[inline]
    pub(super) fn fixed(&self) -> Option<i64> {
        (self.meaning == Meaning::Int && self.keep == 0).then_some(i64::from(self.constant))
    }

    /// The value of any type.
    #[inline]
    pub(super) fn value<'b>(&self, buffer: &'b [u8], row: u32, row_id: i64) -> Value<'b> {
        let bytes = || {
            let end = (row.wrapping_add(self.at) as usize).wrapping_add(8);
            buffer.get(end.wrapping_sub(self.len as usize)..end).unwrap_or_default()
        };
        match self.meaning {
            Meaning::Null => Value::Null,
            Meaning::Int => Value::Int(self.int(buffer, row)),
            Meaning::RowId => Value::Int(row_id),
            // As SQLite does it: the nearest real.
            #[allow(clippy::cast_precision_loss)]
            Meaning::IntAsReal => Value::Real(self.int(buffer, row) as f64),
            Meaning::Real => {
                let real = f64::from_bits(self.int(buffer, row).cast_unsigned());
                // SQLite reads a NaN in a file as NULL.
                if real.is_nan() {
                    Value::Null
                } else {
                    Value::Real(real)
                }
            }
            Meaning::Text => Value::Text(bytes()),
            Meaning::Blob => Value::Blob(bytes()),
        }
    }
}

#[derive(Debug, Clone)]
struct Shape {
    /// Bytes of the whole row.
    total: u64,
    /// Bytes up to the end of the last asked column.
    needed: u64,
    /// Bytes of the header.
    header: usize,
    /// The last block that has a row of it.
    block: u32,
    /// The header, zeroes behind it, and which of those bytes count; longer ones stand in `long`.
    wide: [u8; WIDE],
    mask: [u8; WIDE],
    long: Vec<u8>,
}

/// The shapes seen so far.
#[derive(Debug)]
pub(super) struct Shapes {
    asked: Vec<Stored>,
    shapes: Vec<Shape>,
    /// For every asked column its cell in every shape.
    cells: Vec<Vec<Cell>>,
    /// Rows of every shape in the block that is being filled; then, where the next one of them goes.
    counts: Vec<u32>,
    slots: Vec<u16>,
    /// What came after the last few shapes when they were last seen: loops launch the same kernels again.
    guesses: Vec<u16>,
    history: usize,
}

impl Shapes {
    pub(super) fn new(asked: &[Stored]) -> Self {
        Self {
            asked: asked.to_vec(),
            shapes: Vec::new(),
            cells: vec![Vec::new(); asked.len()],
            counts: Vec::new(),
            slots: vec![NO_SHAPE; SLOTS],
            guesses: vec![0; HISTORY],
            history: 0,
        }
    }

    /// The cells of the `column`-th asked column, by shape.
    pub(super) fn cells(&self, column: usize) -> &[Cell] {
        self.cells.get(column).map_or(&[], Vec::as_slice)
    }

    /// Bytes of a row of `shape` up to the end of the last asked column.
    pub(super) fn needed(&self, shape: u16) -> u64 {
        self.shapes.get(usize::from(shape)).map_or(u64::MAX, |s| s.needed)
    }

    /// Sorts the rows of a full block by shape: what is done with a value is then decided once for many rows.
    pub(super) fn group(&mut self, block: &mut Block) {
        block.groups.clear();
        let mut from = 0_u32;
        for shape in &block.shapes {
            let Some(count) = self.counts.get_mut(usize::from(*shape)) else { continue };
            let to = from + *count;
            block.groups.push(Group { shape: *shape, from, to });
            *count = from;
            from = to;
        }
        block.by_shape.clear();
        block.by_shape.resize(block.rows.len(), Row::default());
        for (row, place) in (0_u32..).zip(&block.rows) {
            let Some(next) = self.counts.get_mut(usize::from(place.shape)) else { continue };
            if let Some(slot) = block.by_shape.get_mut(*next as usize) {
                *slot = Row { start: place.start, row };
            }
            *next += 1;
        }
    }

    /// Forgets shapes when there are too many; called between blocks, because blocks hold numbers of shapes.
    pub(super) fn forget_too_many(&mut self) {
        if self.shapes.len() > MAX_SHAPES {
            *self = Self::new(&self.asked);
        }
    }

    /// Puts a row into `block`: one of `total` bytes that begins at `start` of `buffer`, where `there` of
    /// them stand, the header at least.
    #[inline(always)]
    pub(super) fn put(
        &mut self,
        block: &mut Block,
        buffer: &[u8],
        (start, there): (usize, usize),
        total: u64,
        row_id: i64,
    ) -> std::result::Result<u16, &'static str> {
        let guess = self.guesses.get(self.history).copied().unwrap_or(0);
        let window: Option<&[u8; WIDE]> = buffer.get(start..).and_then(<[u8]>::first_chunk);
        let hit = match (window, self.shapes.get(usize::from(guess))) {
            // The part of a row that stands in its leaf may be shorter than its header.
            (Some(window), Some(shape)) => {
                shape.total == total && shape.header <= there && shape.is_short(window)
            }
            _ => false,
        };
        let found = if hit { guess } else { self.shape(buffer, (start, there), total)? };
        self.history = (self.history << 3 ^ usize::from(found)) & (HISTORY - 1);
        if let Some((shape, count)) =
            self.shapes.get_mut(usize::from(found)).zip(self.counts.get_mut(usize::from(found)))
        {
            if shape.block != block.number {
                shape.block = block.number;
                block.shapes.push(found);
                *count = 0;
            }
            *count += 1;
        }
        // Runs and spilled rows are kept far below 4 GiB.
        block.rows.push(Place { start: start as u32, shape: found });
        if block.with_ids {
            block.row_ids.push(row_id);
        }
        Ok(found)
    }

    /// The shape of a row, see [`Shapes::put`].
    #[inline(never)]
    pub(super) fn shape(
        &mut self,
        buffer: &[u8],
        (start, there): (usize, usize),
        total: u64,
    ) -> std::result::Result<u16, &'static str> {
        const CUT: &str = "is a row whose header is longer than the row";
        let record = buffer.get(start..start + there).ok_or(CUT)?;
        let (len, _) = varint(record).ok_or(CUT)?;
        let header = usize::try_from(len).ok().and_then(|len| record.get(..len)).ok_or(CUT)?;
        let found = self.find(header)?;
        if self.shapes.get(usize::from(found)).is_none_or(|shape| shape.total != total) {
            return Err("is a row whose length is not that of its columns");
        }
        if let Some(guess) = self.guesses.get_mut(self.history) {
            *guess = found;
        }
        Ok(found)
    }

    fn find(&mut self, header: &[u8]) -> std::result::Result<u16, &'static str> {
        let mut at = hash(header) & (SLOTS - 1);
        loop {
            match self.slots.get(at).copied() {
                Some(NO_SHAPE) | None => break,
                Some(shape) if self.shapes.get(usize::from(shape)).is_some_and(|s| s.is(header)) => {
                    return Ok(shape);
                }
                Some(_) => at = (at + 1) & (SLOTS - 1),
            }
        }
        let made = self.work_out(header)?;
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = made;
        }
        Ok(made)
    }

    /// Works a header out: a length of itself, then one number per column for type and width.
    fn work_out(&mut self, header: &[u8]) -> std::result::Result<u16, &'static str> {
        const BROKEN: &str = "is a row whose header ends within a number";
        const TOO_LONG: &str = "is a row with a column longer than any file";
        let number = u16::try_from(self.shapes.len()).map_err(|_| "has too many kinds of rows")?;
        let (_, mut at) = varint(header).ok_or(BROKEN)?;
        let mut total = wide(header.len());
        let mut found = vec![Cell::NULL; self.asked.len()];
        let mut needed = total;
        let mut place = 0;
        while at < header.len() {
            let (code, len) = header.get(at..).and_then(varint).ok_or(BROKEN)?;
            at += len;
            let (width, meaning) = match code {
                0 => (0, Meaning::Null),
                1..=4 => (code, Meaning::Int),
                5 => (6, Meaning::Int),
                6 => (8, Meaning::Int),
                7 => (8, Meaning::Real),
                8 | 9 => (0, Meaning::Int),
                10 | 11 => return Err("is a row with a column type that SQLite does not write"),
                _ if code % 2 == 0 => ((code - 12) / 2, Meaning::Blob),
                _ => ((code - 13) / 2, Meaning::Text),
            };
            total = total.checked_add(width).filter(|t| *t < wide(u32::MAX as usize)).ok_or(TOO_LONG)?;
            for (cell, asked) in found.iter_mut().zip(&self.asked) {
                if asked.place != Some(place) {
                    continue;
                }
                needed = total;
                let meaning = match meaning {
                    Meaning::Int if asked.real => Meaning::IntAsReal,
                    other => other,
                };
                let number = matches!(meaning, Meaning::Int | Meaning::IntAsReal | Meaning::Real);
                let bytes = number && width > 0;
                *cell = Cell {
                    at: u32::try_from(total).map_err(|_| TOO_LONG)?.wrapping_sub(8),
                    len: u32::try_from(width).map_err(|_| TOO_LONG)?,
                    shift: if bytes { 64 - 8 * u8::try_from(width).map_err(|_| TOO_LONG)? } else { 0 },
                    keep: if bytes { -1 } else { 0 },
                    constant: u8::from(code == 9),
                    meaning,
                };
            }
            place += 1;
        }
        // The row id stands outside of the row. Columns that were added later are null in older rows.
        for (cell, asked) in found.iter_mut().zip(&self.asked) {
            if asked.place.is_none() {
                *cell = Cell { meaning: Meaning::RowId, ..Cell::NULL };
            }
        }
        self.shapes.push(Shape::new(header, total, needed));
        self.counts.push(0);
        for (cells, cell) in self.cells.iter_mut().zip(found) {
            cells.push(cell);
        }
        Ok(number)
    }
}

impl Shape {
    fn new(header: &[u8], total: u64, needed: u64) -> Self {
        let (mut wide, mut mask) = ([0; WIDE], [0; WIDE]);
        let fits = header.len() <= WIDE;
        for ((wide, mask), byte) in wide.iter_mut().zip(&mut mask).zip(header) {
            *wide = *byte;
            *mask = 0xff;
        }
        let long = if fits { Vec::new() } else { header.to_vec() };
        Self { total, needed, header: header.len(), block: u32::MAX, wide, mask, long }
    }

    /// Whether `window` begins with this header. The header says how long it is, so equal bytes are enough.
    #[inline(always)]
    fn is_short(&self, window: &[u8; WIDE]) -> bool {
        let mut differ = 0;
        for ((seen, known), mask) in window.iter().zip(&self.wide).zip(&self.mask) {
            differ |= (seen ^ known) & mask;
        }
        differ == 0 && self.long.is_empty()
    }

    fn is(&self, header: &[u8]) -> bool {
        if self.long.is_empty() {
            self.wide.get(..header.len()) == Some(header)
        } else {
            self.long == header
        }
    }
}

/// Spreads headers over the slots; rows that are made to collide only make their own file slow, and
/// [`MAX_SHAPES`] bounds that.
fn hash(header: &[u8]) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = wide(header.len());
    let mut words = header.chunks_exact(8);
    for word in words.by_ref() {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        mixed = (mixed.rotate_left(5) ^ word).wrapping_mul(ODD);
    }
    for byte in words.remainder() {
        mixed = (mixed.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(ODD);
    }
    (mixed >> 40) as usize
}

/// Where a row begins in the buffer, and its shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) start: u32,
    pub(super) shape: u16,
}

/// A row among those of its shape.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Row {
    /// Where it begins in the buffer.
    pub(super) start: u32,
    /// Its place in the block.
    pub(super) row: u32,
}

/// The rows of one shape: a range of [`Block::by_shape`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) shape: u16,
    from: u32,
    to: u32,
}

/// Some rows of a table.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) rows: Vec<Place>,
    /// The same rows, those of one shape together, if [`Shapes::group`] was called.
    by_shape: Vec<Row>,
    pub(super) groups: Vec<Group>,
    /// Row ids, if they were asked for.
    pub(super) row_ids: Vec<i64>,
    /// Shapes that occur.
    pub(super) shapes: Vec<u16>,
    number: u32,
    with_ids: bool,
}

impl Block {
    /// A block for the columns `asked`.
    pub(super) fn new(asked: &[Stored]) -> Self {
        Self { with_ids: asked.iter().any(|stored| stored.place.is_none()), ..Self::default() }
    }

    /// The row id of a row; 0 if row ids were not asked for.
    #[inline]
    pub(super) fn row_id(&self, row: usize) -> i64 {
        self.row_ids.get(row).copied().unwrap_or(0)
    }

    /// The rows of a group.
    #[inline]
    pub(super) fn of(&self, group: Group) -> &[Row] {
        self.by_shape.get(group.from as usize..group.to as usize).unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.row_ids.clear();
        self.shapes.clear();
        // u32::MAX is no block: it is what new shapes have.
        self.number = self.number.wrapping_add(1) % u32::MAX;
    }
}

/// The parts of one cell of a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Bytes of the row, overflow pages included.
    pub(super) payload: u64,
    /// Its row id.
    pub(super) row_id: i64,
    /// Where the row begins in the page.
    pub(super) start: usize,
}

/// Cell number `cell` of the leaf `page`.
#[inline(always)]
pub(super) fn cell_head(page: &[u8], cell: usize) -> std::result::Result<Head, Fault> {
    let pointer = 8 + 2 * cell;
    let outside = Fault { offset: pointer, what: "points to a row outside of its page" };
    let from = usize::from(be16(page, pointer).ok_or(outside)?);
    // A row over the pointers themselves is none.
    if from < pointer + 2 {
        return Err(outside);
    }
    let rest = page.get(from..).ok_or(outside)?;
    // Both numbers are short in almost every row: their ends are then found in 8 bytes at once.
    if let Some(both) = rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) {
        let ends = !both & 0x8080_8080_8080_8080;
        let later = ends & ends.wrapping_sub(1);
        let [low, high, ..] = both.to_le_bytes();
        if later != 0 && ends.trailing_zeros() <= 15 {
            let two = u64::from(low & 0x7f) << 7 | u64::from(high);
            let (payload, first) = if low < 0x80 { (u64::from(low), 1) } else { (two, 2) };
            let second = (later.trailing_zeros() / 8 + 1) as usize;
            let id = rest.get(first..second).unwrap_or_default();
            let row_id = id.iter().fold(0, |id, byte| id << 7 | i64::from(byte & 0x7f));
            return Ok(Head { payload, row_id, start: from + second });
        }
    }
    let (payload, first) = varint(rest).ok_or(outside)?;
    let (row_id, second) = rest.get(first..).and_then(varint).ok_or(outside)?;
    Ok(Head { payload, row_id: row_id.cast_signed(), start: from + first + second })
}
