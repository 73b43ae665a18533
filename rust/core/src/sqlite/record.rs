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
/// No column with so many bytes can stand in a file.
const NO_SHAPE: u16 = u16::MAX;

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

/// One asked column in one shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    /// Where the value ends, from the start of the row on.
    pub(super) end: u32,
    /// Bytes of the value.
    pub(super) len: u32,
    /// A whole number is: 8 bytes that end at `end`, shifted left and back, and `keep`, or `constant`.
    shift: u32,
    keep: i64,
    constant: i64,
    /// What it is.
    pub(super) meaning: Meaning,
}

impl Cell {
    /// A column that the row does not have.
    pub(super) const NULL: Self =
        Self { end: 8, len: 0, shift: 0, keep: 0, constant: 0, meaning: Meaning::Null };

    /// A whole number; 0 for what is none.
    ///
    /// Without a branch: numbers of 0 to 8 bytes are all the same load. The 8 bytes may begin before the
    /// row, but never before the page, because a page begins with 8 bytes that are no row.
    #[inline(always)]
    pub(super) fn int(&self, buffer: &[u8], row: u32) -> i64 {
        let end = (row as usize).wrapping_add(self.end as usize);
        let bytes = buffer.get(end.wrapping_sub(8)..end).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
        let raw = i64::from_be_bytes(bytes);
        (raw.wrapping_shl(self.shift).wrapping_shr(self.shift) & self.keep) | self.constant
    }

    /// The value of any type.
    #[inline]
    pub(super) fn value<'b>(&self, buffer: &'b [u8], row: u32, row_id: i64) -> Value<'b> {
        let bytes = || {
            let end = (row as usize).wrapping_add(self.end as usize);
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

#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Where its header stands among all headers.
    header: (u32, u32),
    /// Bytes of the whole row.
    total: u64,
    /// Bytes up to the end of the last asked column.
    needed: u64,
    /// The shape that came after it last time: loops launch the same kernels again and again.
    next: u16,
}

/// The shapes seen so far.
#[derive(Debug)]
pub(super) struct Shapes {
    asked: Vec<Stored>,
    headers: Vec<u8>,
    shapes: Vec<Shape>,
    /// For every asked column its cell in every shape.
    cells: Vec<Vec<Cell>>,
    slots: Vec<u16>,
    last: u16,
}

impl Shapes {
    pub(super) fn new(asked: &[Stored]) -> Self {
        Self {
            asked: asked.to_vec(),
            headers: Vec::new(),
            shapes: Vec::new(),
            cells: vec![Vec::new(); asked.len()],
            slots: vec![NO_SHAPE; SLOTS],
            last: 0,
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

    /// Forgets shapes when there are too many; called between blocks, because blocks hold numbers of shapes.
    pub(super) fn forget_too_many(&mut self) {
        if self.shapes.len() > MAX_SHAPES {
            *self = Self::new(&self.asked);
        }
    }

    /// The shape of a row of `total` bytes of which at least the header is in `record`.
    #[inline]
    pub(super) fn find(&mut self, record: &[u8], total: u64) -> std::result::Result<u16, &'static str> {
        const CUT: &str = "is a row whose header is longer than the row";
        let header = match *record.first().ok_or(CUT)? {
            short @ 0..0x80 => record.get(..usize::from(short)).ok_or(CUT)?,
            _ => {
                let (len, _) = varint(record).ok_or(CUT)?;
                usize::try_from(len).ok().and_then(|len| record.get(..len)).ok_or(CUT)?
            }
        };
        let last = usize::from(self.last);
        let guess = self.shapes.get(last).map_or(0, |s| s.next);
        let found = if self.is(guess, header) { guess } else { self.look_up(header)? };
        let fits = self.shapes.get(usize::from(found)).is_some_and(|s| s.total == total);
        if !fits {
            return Err("is a row whose length is not that of its columns");
        }
        if found != guess {
            if let Some(shape) = self.shapes.get_mut(last) {
                shape.next = found;
            }
        }
        self.last = found;
        Ok(found)
    }

    #[inline]
    fn is(&self, shape: u16, header: &[u8]) -> bool {
        let Some(shape) = self.shapes.get(usize::from(shape)) else { return false };
        let (from, to) = (shape.header.0 as usize, shape.header.1 as usize);
        self.headers.get(from..to) == Some(header)
    }

    fn look_up(&mut self, header: &[u8]) -> std::result::Result<u16, &'static str> {
        let mut at = hash(header) & (SLOTS - 1);
        loop {
            match self.slots.get(at).copied() {
                Some(NO_SHAPE) | None => break,
                Some(shape) if self.is(shape, header) => return Ok(shape),
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
                    end: u32::try_from(total).map_err(|_| TOO_LONG)?,
                    len: u32::try_from(width).map_err(|_| TOO_LONG)?,
                    shift: if bytes { 64 - 8 * u32::try_from(width).map_err(|_| TOO_LONG)? } else { 0 },
                    keep: if bytes { -1 } else { 0 },
                    constant: i64::from(code == 9),
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
        let from = self.headers.len();
        self.headers.extend_from_slice(header);
        let (from, to) = (u32::try_from(from), u32::try_from(self.headers.len()));
        let header = from.and_then(|from| to.map(|to| (from, to))).map_err(|_| TOO_LONG)?;
        self.shapes.push(Shape { header, total, needed, next: number });
        for (cells, cell) in self.cells.iter_mut().zip(found) {
            cells.push(cell);
        }
        Ok(number)
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

/// Some rows of a table: where they begin, their shape, and their row id.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Offsets into the buffer.
    pub(super) starts: Vec<u32>,
    /// Shapes, row by row.
    pub(super) shapes: Vec<u16>,
    /// Row ids.
    pub(super) row_ids: Vec<i64>,
}

impl Block {
    pub(super) fn rows(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn clear(&mut self) {
        self.starts.clear();
        self.shapes.clear();
        self.row_ids.clear();
    }

    #[inline(always)]
    pub(super) fn push(&mut self, start: u32, shape: u16, row_id: i64) {
        self.starts.push(start);
        self.shapes.push(shape);
        self.row_ids.push(row_id);
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

/// Cell number `cell` of the leaf `page`, whose header stands at `at`.
#[inline(always)]
pub(super) fn cell_head(page: &[u8], at: usize, cell: usize) -> std::result::Result<Head, Fault> {
    let pointer = at + 8 + 2 * cell;
    let outside = Fault { offset: pointer, what: "points to a row outside of its page" };
    let from = usize::from(be16(page, pointer).ok_or(outside)?);
    // A row over the pointers themselves is none.
    if from < pointer + 2 {
        return Err(outside);
    }
    let rest = page.get(from..).ok_or(outside)?;
    let (payload, first) = varint(rest).ok_or(outside)?;
    let (row_id, second) = rest.get(first..).and_then(varint).ok_or(outside)?;
    Ok(Head { payload, row_id: row_id.cast_signed(), start: from + first + second })
}
