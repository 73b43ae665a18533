//! Where do the asked columns stand in a row?
//!
//! A row begins with a header that gives the type and width of every column. Consecutive rows mostly have
//! the same header, byte for byte, so a header is worked out once into a shape: for every asked column
//! where its value ends and what to do with the bytes. Finding the shape of the next row is one
//! comparison, and reading a value is one load at a known place.

use super::pages::{varint, wide, Fault};
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
/// Bytes of pages that are looked at at once. A power of two: a place in it that is masked is within it, and the
/// compiler knows that, so that reading a value there takes no branch.
pub(super) const WINDOW: usize = 128 * 1024;
/// Those pages, and what may be looked at behind them.
pub(super) type Window = [u8; WINDOW + SLACK];
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
    /// Where the value begins, from the start of the row on.
    at: u32,
    /// Bytes of the value.
    len: u32,
    /// A whole number is the 8 bytes from there, shifted right, and `keep`, or `constant`.
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
    /// Numbers of 0 to 8 bytes are all the same load: what is read behind a shorter one is shifted out, and
    /// behind the last row there is room for that.
    #[inline(always)]
    pub(super) fn int(&self, buffer: &[u8], row: u32) -> i64 {
        let at = row.wrapping_add(self.at) as usize;
        let bytes = buffer.get(at..at.wrapping_add(8)).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
        let number = i64::from_be_bytes(bytes).wrapping_shr(u32::from(self.shift));
        (number & i64::from(self.keep)) | i64::from(self.constant)
    }

    /// The same for one that has bytes and stands in a page; without a branch.
    #[inline(always)]
    pub(super) fn stored_in(&self, window: &Window, row: u32) -> i64 {
        stored_in(window, row.wrapping_add(self.at), self.shift)
    }

    /// Whether a whole number of `other` is found as one of this cell is.
    fn reads_as(&self, other: &Self) -> bool {
        (self.at, self.shift, self.keep, self.constant) == (other.at, other.shift, other.keep, other.constant)
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
            let at = row.wrapping_add(self.at) as usize;
            buffer.get(at..at.wrapping_add(self.len as usize)).unwrap_or_default()
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
    /// The header, zeroes behind it, and which of those bytes count; longer ones stand in [`Rare::long`].
    wide: [u8; WIDE],
    mask: [u8; WIDE],
}

/// What is not looked at for every row of a shape.
#[derive(Debug, Clone)]
struct Rare {
    /// Bytes up to the end of the last asked column.
    needed: u64,
    /// A header that is longer than [`WIDE`].
    long: Vec<u8>,
}

/// The last block that has a row of a shape, and the place of the shape in [`Block::shapes`] there.
#[derive(Debug, Clone, Copy)]
struct Mark {
    block: u32,
    place: u8,
}

/// The shapes seen so far.
#[derive(Debug)]
pub(super) struct Shapes {
    asked: Vec<Stored>,
    shapes: Vec<Shape>,
    /// As `shapes`.
    rare: Vec<Rare>,
    marks: Vec<Mark>,
    /// For every asked column its cell in every shape.
    cells: Vec<Vec<Cell>>,
    slots: Vec<u16>,
    /// Bytes of the longest header.
    longest: usize,
    /// What came after the last few shapes when they were last seen: loops launch the same kernels again.
    guesses: Box<[u16; HISTORY]>,
    history: usize,
}

impl Shapes {
    pub(super) fn new(asked: &[Stored]) -> Self {
        Self {
            asked: asked.to_vec(),
            shapes: Vec::new(),
            rare: Vec::new(),
            marks: Vec::new(),
            cells: vec![Vec::new(); asked.len()],
            slots: vec![NO_SHAPE; SLOTS],
            longest: 0,
            guesses: Box::new([0; HISTORY]),
            history: 0,
        }
    }

    /// The cells of the `column`-th asked column, by shape.
    pub(super) fn cells(&self, column: usize) -> &[Cell] {
        self.cells.get(column).map_or(&[], Vec::as_slice)
    }

    /// Bytes of a row of `shape` up to the end of the last asked column.
    pub(super) fn needed(&self, shape: u16) -> u64 {
        self.rare.get(usize::from(shape)).map_or(u64::MAX, |s| s.needed)
    }

    /// Forgets shapes when there are too many; called between blocks, because blocks hold numbers of shapes.
    pub(super) fn forget_too_many(&mut self) {
        if self.shapes.len() > MAX_SHAPES {
            *self = Self::new(&self.asked);
        }
    }

    /// The shapes of the last rows of `block`, which stand in their page as a whole and have `totals` bytes;
    /// an error comes with the start of its row.
    pub(super) fn of_page(
        &mut self,
        window: &Window,
        block: &mut Block,
        totals: &[u16],
    ) -> std::result::Result<(), (u32, &'static str)> {
        let mut totals = totals;
        while !totals.is_empty() {
            // Most tables have short headers: what no header has is not compared.
            let done = match self.longest {
                0..=16 => self.of_rows::<16>(window, block, totals)?,
                17..=32 => self.of_rows::<32>(window, block, totals)?,
                33..=48 => self.of_rows::<48>(window, block, totals)?,
                _ => self.of_rows::<WIDE>(window, block, totals)?,
            };
            totals = totals.get(done..).unwrap_or_default();
        }
        Ok(())
    }

    /// The same as long as no header is longer than `N`; returns how many rows that were.
    fn of_rows<const N: usize>(
        &mut self,
        window: &Window,
        block: &mut Block,
        totals: &[u16],
    ) -> std::result::Result<usize, (u32, &'static str)> {
        let first = block.starts.len() - totals.len();
        let starts = block.starts.get(first..).unwrap_or_default();
        block.shape_of.resize(first + totals.len(), 0);
        let shapes = block.shape_of.get_mut(first..).unwrap_or_default();
        let mut done = 0;
        while let (Some(starts), Some(totals), Some(shapes)) =
            (starts.get(done..), totals.get(done..), shapes.get_mut(done..))
        {
            let guessed = self.guessed::<N>(window, starts, totals, shapes);
            done += guessed;
            let (Some(start), Some(total), Some(shape)) =
                (starts.get(guessed), totals.get(guessed), shapes.get_mut(guessed))
            else {
                break;
            };
            let place = (*start as usize, usize::from(*total));
            *shape = self.shape(window, place, u64::from(*total)).map_err(|what| (*start, what))?;
            if self.longest > N && N < WIDE {
                break;
            }
            self.history = after(self.history, *shape);
            done += 1;
        }
        block.shape_of.truncate(first + done);
        block.places.resize(first + done, 0);
        let places = block.places.get_mut(first..).unwrap_or_default();
        for (place, shape) in places.iter_mut().zip(block.shape_of.get(first..).unwrap_or_default()) {
            *place = self.used(block.number, &mut block.shapes, *shape);
        }
        Ok(done)
    }

    /// The shapes of rows from the first on, as long as each is the one that came after the same shapes before;
    /// returns how many rows that were.
    ///
    /// This and [`short_heads`] are where a scan of few columns spends its time.
    #[inline(never)]
    fn guessed<const N: usize>(
        &mut self,
        window: &Window,
        starts: &[u32],
        totals: &[u16],
        shapes: &mut [u16],
    ) -> usize {
        let mut history = self.history;
        let mut done = 0;
        for ((start, total), slot) in starts.iter().zip(totals).zip(shapes) {
            let guess = self.guesses.get(history & (HISTORY - 1)).copied().unwrap_or(0);
            let Some(shape) = self.shapes.get(usize::from(guess)) else { break };
            let from = *start as usize & (WINDOW - 1);
            let Some(seen) = window.get(from..from + N).and_then(<[u8]>::first_chunk::<N>) else { break };
            if shape.total != u64::from(*total) || !shape.is_short(seen) {
                break;
            }
            *slot = guess;
            history = after(history, guess);
            done += 1;
        }
        self.history = history;
        done
    }

    /// Notes that `block` has a row of `shape`; returns its place among the shapes of that block.
    #[inline(always)]
    pub(super) fn used(&mut self, block: u32, shapes: &mut Vec<u16>, shape: u16) -> u8 {
        let Some(mark) = self.marks.get_mut(usize::from(shape)) else { return 0 };
        if mark.block != block {
            // Blocks with more shapes than that do not use it.
            *mark = Mark { block, place: shapes.len() as u8 };
            shapes.push(shape);
        }
        mark.place
    }

    /// The shape of a row of `total` bytes that begins at `start` of `buffer`, where `there` of them stand.
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
        if let Some(guess) = self.guesses.get_mut(self.history & (HISTORY - 1)) {
            *guess = found;
        }
        Ok(found)
    }

    fn find(&mut self, header: &[u8]) -> std::result::Result<u16, &'static str> {
        let mut at = hash(header) & (SLOTS - 1);
        loop {
            match self.slots.get(at).copied() {
                Some(NO_SHAPE) | None => break,
                Some(shape) if self.is(shape, header) => {
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

    /// Whether a known shape has this header.
    fn is(&self, shape: u16, header: &[u8]) -> bool {
        let (Some(shape), Some(rare)) =
            (self.shapes.get(usize::from(shape)), self.rare.get(usize::from(shape)))
        else {
            return false;
        };
        if rare.long.is_empty() {
            shape.wide.get(..header.len()) == Some(header)
        } else {
            rare.long == header
        }
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
            let begins = u32::try_from(total).map_err(|_| TOO_LONG)?;
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
                    at: begins,
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
        let long = if header.len() > WIDE { header.to_vec() } else { Vec::new() };
        self.shapes.push(Shape::new(header, total));
        self.rare.push(Rare { needed, long });
        self.marks.push(Mark { block: u32::MAX, place: 0 });
        self.longest = self.longest.max(header.len());
        for (cells, cell) in self.cells.iter_mut().zip(found) {
            cells.push(cell);
        }
        Ok(number)
    }
}

impl Shape {
    fn new(header: &[u8], total: u64) -> Self {
        let (mut wide, mut mask) = ([0; WIDE], [0; WIDE]);
        // A header that does not fit is taken for none at a glance: no header begins with 0.
        mask[0] = 0xff;
        if header.len() <= WIDE {
            for ((wide, mask), byte) in wide.iter_mut().zip(&mut mask).zip(header) {
                *wide = *byte;
                *mask = 0xff;
            }
        }
        Self { total, wide, mask }
    }

    /// Whether `window` begins with this header. The header says how long it is, so equal bytes are enough.
    #[inline(always)]
    fn is_short<const N: usize>(&self, window: &[u8; N]) -> bool {
        let mut differ = 0;
        for ((seen, known), mask) in window.iter().zip(&self.wide).zip(&self.mask) {
            differ |= (seen ^ known) & mask;
        }
        differ == 0
    }
}

/// What came last, with one more shape.
#[inline(always)]
fn after(history: usize, shape: u16) -> usize {
    history << 3 ^ usize::from(shape)
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

/// How many shapes of a block a column can be decoded of without a branch.
const FEW: usize = 1 << u8::BITS;

/// How the whole numbers of one column are found, by the place of a shape in [`Block::shapes`]: as small as it can
/// be, and a place needs no check.
///
/// Behind those of the block at hand stand those of blocks before it, which no place of its rows points to.
pub(super) struct Finds([Find; FEW]);

impl Default for Finds {
    fn default() -> Self {
        Self([Find { at: 0, shift: 0, keep: 0, constant: 0 }; FEW])
    }
}

#[derive(Clone, Copy)]
struct Find {
    at: u32,
    shift: u8,
    keep: i8,
    constant: u8,
}

impl Finds {
    /// Makes it that of a column with these `cells`.
    pub(super) fn set(&mut self, block: &Block, cells: &[Cell]) {
        for (find, shape) in self.0.iter_mut().zip(&block.shapes) {
            let Cell { at, shift, keep, constant, .. } =
                *cells.get(usize::from(*shape)).unwrap_or(&Cell::NULL);
            *find = Find { at, shift, keep, constant };
        }
    }

    /// The whole number of a row in a page; 0 for what is none.
    #[inline(always)]
    pub(super) fn int(&self, window: &Window, row: u32, place: u8) -> i64 {
        let Some(find) = self.0.get(usize::from(place)) else { return 0 };
        (stored_in(window, row.wrapping_add(find.at), find.shift) & i64::from(find.keep))
            | i64::from(find.constant)
    }
}

/// The number that begins at `at` of the window, and ends where `shift` says.
#[inline(always)]
fn stored_in(window: &Window, at: u32, shift: u8) -> i64 {
    let at = at as usize & (WINDOW - 1);
    let bytes = window.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
    i64::from_be_bytes(bytes).wrapping_shr(u32::from(shift))
}

/// What a column of a block holds, from the shapes of its rows alone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sort {
    /// Nothing in any row.
    Nulls,
    /// The same whole number in every row: 0 and 1 stand in the header.
    Fixed(i64),
    /// Whole numbers that are found in the same way in every row.
    Same(Cell),
    /// Whole numbers here and there.
    Ints,
    /// Whole numbers, and rows without any.
    IntsAndNulls,
    /// Row ids.
    RowIds,
    /// Anything, or rows that do not stand in their page, or of more shapes than any export has in a block.
    Any,
}

/// Some rows of a table.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Where every row begins in the buffer.
    pub(super) starts: Vec<u32>,
    /// Its shape.
    pub(super) shape_of: Vec<u16>,
    /// Row ids, if they were asked for.
    pub(super) row_ids: Vec<i64>,
    /// Its place in `shapes`, if those are few enough.
    pub(super) places: Vec<u8>,
    /// Shapes that occur.
    pub(super) shapes: Vec<u16>,
    /// Whether there are rows that were put together behind the pages.
    pub(super) spilled: bool,
    pub(super) number: u32,
    pub(super) with_ids: bool,
}

impl Block {
    /// A block for the columns `asked`.
    pub(super) fn new(asked: &[Stored]) -> Self {
        Self { with_ids: asked.iter().any(|stored| stored.place.is_none()), ..Self::default() }
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Where the row begins in the buffer, and its shape.
    #[inline]
    pub(super) fn place(&self, row: usize) -> Option<(u32, u16)> {
        Some((*self.starts.get(row)?, *self.shape_of.get(row)?))
    }

    /// The row id of a row; 0 if row ids were not asked for.
    #[inline]
    pub(super) fn row_id(&self, row: usize) -> i64 {
        self.row_ids.get(row).copied().unwrap_or(0)
    }

    /// What the column with these `cells` holds.
    pub(super) fn sort(&self, cells: &[Cell]) -> Sort {
        let cell_of = |shape: &u16| cells.get(usize::from(*shape)).unwrap_or(&Cell::NULL);
        let Some(first) = self.shapes.first().map(cell_of) else { return Sort::Any };
        let (mut nulls, mut ints, mut ids, mut same) = (0, 0, 0, true);
        for cell in self.shapes.iter().map(cell_of) {
            match cell.meaning {
                Meaning::Null => nulls += 1,
                Meaning::Int => ints += 1,
                Meaning::RowId => ids += 1,
                _ => return Sort::Any,
            }
            same &= cell.reads_as(first);
        }
        let all = self.shapes.len();
        if nulls == all {
            return Sort::Nulls;
        }
        if ids == all {
            return Sort::RowIds;
        }
        if ints == all && same {
            if let Some(value) = first.fixed() {
                return Sort::Fixed(value);
            }
        }
        match () {
            () if self.spilled || self.shapes.len() > FEW => Sort::Any,
            () if ints == all && same => Sort::Same(*first),
            () if ints == all => Sort::Ints,
            () if ints + nulls == all => Sort::IntsAndNulls,
            () => Sort::Any,
        }
    }

    pub(super) fn clear(&mut self) {
        self.starts.clear();
        self.shape_of.clear();
        self.places.clear();
        self.row_ids.clear();
        self.shapes.clear();
        self.spilled = false;
        // u32::MAX is no block: it is what new shapes have.
        self.number = self.number.wrapping_add(1) % u32::MAX;
    }
}

/// The parts of one cell of a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Bytes of the row, overflow pages included.
    pub(super) payload: u64,
    /// Where its row id stands in the page.
    id: usize,
    /// Where the row begins in the page.
    pub(super) start: usize,
}

impl Head {
    /// The row id.
    #[inline]
    pub(super) fn row_id(&self, page: &[u8]) -> i64 {
        page.get(self.id..self.start).and_then(varint).map_or(0, |(id, _)| id.cast_signed())
    }
}

/// How the cells of a page begin, mostly: with a length of one or two bytes and a row id of as many as the cell before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usual {
    /// Bytes of the row id.
    id_bytes: u32,
    /// Of the 8 bytes after the length, the bits that say which byte is the last one of the row id, and what they are.
    mask: u64,
    bits: u64,
}

impl Usual {
    /// As the cell `head` of `page` begins.
    pub(super) fn of(head: &Head) -> Option<Self> {
        // With a length of two bytes, these are all in 8 bytes.
        let id_bytes =
            u32::try_from(head.start.checked_sub(head.id)?).ok().filter(|n| (1..=6).contains(n))?;
        let mask = 0x8080_8080_8080_8080 >> (64 - 8 * id_bytes);
        Some(Self { id_bytes, mask, bits: mask ^ (0x80 << (8 * (id_bytes - 1))) })
    }
}

/// Where the rows of the cells at `pointers` of the leaf `page` begin and how long they are, from the first on, as long
/// as they are `usual`, stand behind `low`, and in their page as a whole; returns how many that were.
#[inline(never)]
pub(super) fn short_heads(
    page: &[u8],
    (low, most): (usize, usize),
    usual: Usual,
    pointers: &[[u8; 2]],
    starts: &mut [u32],
    totals: &mut [u16],
) -> usize {
    let mut done = 0;
    for ((from, start), total) in pointers.iter().zip(starts).zip(totals) {
        let from = usize::from(u16::from_be_bytes(*from));
        let Some(bytes) = page.get(from..from + 8).and_then(<[u8]>::first_chunk) else { break };
        let bytes = u64::from_le_bytes(*bytes);
        let longer = bytes >> 7 & 1;
        let length = if longer == 0 { bytes & 0x7f } else { (bytes & 0x7f) << 7 | bytes >> 8 & 0x7f };
        // The length has ended after one byte or two, and the row id where it did before.
        let open = longer & bytes >> 15;
        let id = bytes >> (8 + 8 * longer);
        let begins = from + 1 + longer as usize + usual.id_bytes as usize;
        let length = length as usize;
        if open != 0
            || id & usual.mask != usual.bits
            || from < low
            || length > most
            || begins + length > page.len()
        {
            break;
        }
        // What stands in a page is shorter than 65536.
        *start = begins as u32;
        *total = length as u16;
        done += 1;
    }
    done
}

/// The cell that starts at `from` of the leaf `page`; its number is that of the pointer at `pointer`.
#[inline(always)]
pub(super) fn cell_head(page: &[u8], pointer: usize, from: usize) -> std::result::Result<Head, Fault> {
    // A row over the pointers themselves is none.
    if from >= pointer + 2 {
        // Both numbers are short in almost every row: their ends are then found in 8 bytes at once.
        let first_bytes = page.get(from..).and_then(<[u8]>::first_chunk);
        if let Some(both) = first_bytes.map(|bytes| u64::from_le_bytes(*bytes)) {
            let ends = !both & 0x8080_8080_8080_8080;
            let later = ends & ends.wrapping_sub(1);
            if later != 0 && ends & 0x8080 != 0 {
                let (low, high) = (both & 0xff, both >> 8 & 0xff);
                let (payload, first) = if low < 0x80 { (low, 1) } else { ((low & 0x7f) << 7 | high, 2) };
                let second = (later.trailing_zeros() / 8 + 1) as usize;
                return Ok(Head { payload, id: from + first, start: from + second });
            }
        }
    }
    long_head(page, pointer, from)
}

/// The same for numbers of any length.
#[inline(never)]
fn long_head(page: &[u8], pointer: usize, from: usize) -> std::result::Result<Head, Fault> {
    let outside = Fault { offset: pointer, what: "points to a row outside of its page" };
    if from < pointer + 2 {
        return Err(outside);
    }
    let rest = page.get(from..).ok_or(outside)?;
    let (payload, first) = varint(rest).ok_or(outside)?;
    let (_, second) = rest.get(first..).and_then(varint).ok_or(outside)?;
    Ok(Head { payload, id: from + first, start: from + first + second })
}
