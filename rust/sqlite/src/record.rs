//! Find the requested columns in a row.
//!
//! A row begins with a header that gives the type and width of every column. Consecutive rows mostly have the same
//! header, byte for byte, so a header is decoded once into a shape: for every requested column where its value ends and
//! how to decode it. Finding the shape of the next row is one comparison, which also yields the length of the row and
//! that of its row id; reading a value is one load at a known place.

use crate::pages::{varint, wide, Fault};
use crate::Value;

/// More than any table of an export has; a file with more is made to be slow.
const MAX_SHAPES: usize = 4096;
/// At least twice what can be in it: those above, and the rows of one block that all have new ones.
const SLOTS: usize = 1 << 16;
const NO_SHAPE: u16 = u16::MAX;
/// Cells that are told by so many bytes are compared in one go; those of all tables of nsys are told by fewer.
const WIDE: usize = 64;
/// Bytes that must be readable behind any row, whatever they are.
pub(crate) const SLACK: usize = WIDE;
/// Bytes of pages that are looked at at once. A power of two: a place in it that is masked is within it, and the
/// compiler knows that, so that reading a value there takes no branch.
pub(crate) const WINDOW: usize = 512 * 1024;
/// Those pages, and what may be looked at behind them.
pub(crate) type Window = [u8; WINDOW + SLACK];
/// Places for what came after the last few shapes.
const HISTORY: usize = 1 << 12;

/// How a column of a table is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Its place in the record; `None` for the row id under another name.
    pub(crate) place: Option<usize>,
    /// Declared as REAL: whole numbers are stored as integers there, but mean reals.
    pub(crate) real: bool,
}

/// What the bytes of a value mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
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
pub(crate) struct Cell {
    /// Where the value begins, from the start of the row on.
    at: u32,
    /// Bytes of the value.
    len: u32,
    /// A whole number is the 8 bytes from there, shifted right, and `keep`, or `constant`.
    shift: u8,
    keep: i8,
    constant: u8,
    /// What it is.
    pub(crate) meaning: Meaning,
}

impl Cell {
    /// A column that the row does not have.
    pub(crate) const NULL: Self =
        Self { at: 0, len: 0, shift: 0, keep: 0, constant: 0, meaning: Meaning::Null };

    /// A whole number; 0 for what is none.
    ///
    /// Numbers of 0 to 8 bytes are all the same load: what is read behind a shorter one is shifted out, and
    /// behind the last row there is room for that.
    #[inline(always)]
    pub(crate) fn int(&self, buffer: &[u8], row: u32) -> i64 {
        let at = row.wrapping_add(self.at) as usize;
        let bytes = buffer.get(at..at.wrapping_add(8)).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
        self.number(bytes)
    }

    /// That of the 8 bytes from its first on.
    #[inline(always)]
    fn number(&self, bytes: [u8; 8]) -> i64 {
        let number = i64::from_be_bytes(bytes).wrapping_shr(u32::from(self.shift));
        (number & i64::from(self.keep)) | i64::from(self.constant)
    }

    /// The same for a row in a page, without a branch; anything for what is no whole number.
    #[inline(always)]
    pub(crate) fn int_in(&self, window: &Window, row: u32) -> i64 {
        let at = row.wrapping_add(self.at) as usize & (WINDOW - 1);
        let bytes = window.get(at..at + 8).and_then(|b| b.try_into().ok()).unwrap_or([0; 8]);
        self.number(bytes)
    }

    /// Where a whole number that has bytes begins, from the start of the row on, and how many it has.
    pub(crate) fn stored(&self) -> Option<(u32, u32)> {
        (self.meaning == Meaning::Int && self.keep != 0).then_some((self.at, self.len))
    }

    /// The number of every row of this cell, if it is the same whatever the row holds: 0 and 1 stand in the header.
    #[inline]
    pub(crate) fn fixed(&self) -> Option<i64> {
        (self.meaning == Meaning::Int && self.keep == 0).then_some(i64::from(self.constant))
    }

    /// The value of any type.
    #[inline]
    pub(crate) fn value<'b>(&self, buffer: &'b [u8], row: u32, row_id: i64) -> Value<'b> {
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

/// Rows with the same header, and as many bytes before it.
#[derive(Debug, Clone)]
struct Shape {
    /// How the cell of such a row begins: with its length, its row id, its header; zeroes are behind.
    begins: [u8; WIDE],
    /// Which of those bits count: of the row id only those that say where it ends, and none that are behind.
    mask: [u8; WIDE],
    /// Bytes before the row.
    head: u32,
    /// Bytes of the whole cell; [`NEVER`] for cells that are not told by how they begin.
    whole: u32,
}

/// More than a page has.
const NEVER: u32 = 1 << 20;

/// What is not looked at for every row of a shape.
#[derive(Debug, Clone)]
struct Rare {
    head: CellHead,
    /// Bytes of the whole row.
    total: u64,
    /// Bytes up to the end of the last asked column.
    needed: u64,
    header: Vec<u8>,
}

/// How many bytes the numbers before a row have. None, where the row is no longer in its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CellHead {
    /// Of the length of the row.
    length: u8,
    /// Of its row id.
    id: u8,
}

/// The shapes seen so far.
#[derive(Debug)]
pub(crate) struct Shapes {
    asked: Vec<Stored>,
    shapes: Vec<Shape>,
    /// As `shapes`.
    rare: Vec<Rare>,
    /// Whether the block at hand has a row of it.
    marks: Vec<bool>,
    /// For every asked column its cell in every shape.
    cells: Vec<Vec<Cell>>,
    slots: Vec<u16>,
    /// Most bytes in which a shape is told.
    longest: usize,
    /// What came after the last few shapes when they were last seen: loops launch the same kernels again.
    guesses: Box<[u16; HISTORY]>,
    history: usize,
    /// How often all were forgotten.
    forgotten: u64,
}

impl Shapes {
    pub(crate) fn new(asked: &[Stored]) -> Self {
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
            forgotten: 0,
        }
    }

    /// How often all were forgotten: numbers of shapes mean others then.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// How many columns were asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// The place of the `column`-th asked column in a row; none for the row id.
    pub(crate) fn place_of(&self, column: usize) -> Option<usize> {
        self.asked.get(column).and_then(|asked| asked.place)
    }

    /// The cells of the `column`-th asked column, by shape.
    pub(crate) fn cells(&self, column: usize) -> &[Cell] {
        self.cells.get(column).map_or(&[], Vec::as_slice)
    }

    /// Bytes of a row of `shape` up to the end of the last asked column.
    pub(crate) fn needed(&self, shape: u16) -> u64 {
        self.rare.get(usize::from(shape)).map_or(u64::MAX, |s| s.needed)
    }

    /// Forgets shapes when there are too many; called between blocks, because blocks hold numbers of shapes.
    pub(crate) fn forget_too_many(&mut self) {
        if self.shapes.len() > MAX_SHAPES {
            *self = Self { forgotten: self.forgotten + 1, ..Self::new(&self.asked) };
        }
    }

    /// Puts the rows of cells of a page, from the first on, into `starts` and `shapes`, as long as each is of the shape
    /// that came after the same shapes before and stands in the page as a whole; returns how many rows that were.
    ///
    /// The page begins at `at` of the window, its cells `low` bytes and it ends `end` bytes further.
    pub(crate) fn known(
        &mut self,
        window: &Window,
        page: (u32, u32, u32),
        pointers: &[[u8; 2]],
        starts: &mut [u32],
        shapes: &mut [u16],
    ) -> usize {
        // Most tables have short headers: what no header has is not compared.
        match self.longest {
            0..=16 => self.known_within::<16>(window, page, pointers, starts, shapes),
            17..=32 => self.known_within::<32>(window, page, pointers, starts, shapes),
            33..=48 => self.known_within::<48>(window, page, pointers, starts, shapes),
            _ => self.known_within::<WIDE>(window, page, pointers, starts, shapes),
        }
    }

    /// The same as no shape is told in more than `N` bytes.
    ///
    /// This is where a scan of few columns spends its time.
    #[inline(never)]
    fn known_within<const N: usize>(
        &mut self,
        window: &Window,
        (at, low, end): (u32, u32, u32),
        pointers: &[[u8; 2]],
        starts: &mut [u32],
        shapes: &mut [u16],
    ) -> usize {
        let mut history = self.history;
        let mut done = 0;
        for ((pointer, start), slot) in pointers.iter().zip(starts).zip(shapes) {
            let guess = self.guesses.get(history & (HISTORY - 1)).copied().unwrap_or(0);
            let place = usize::from(guess);
            let (Some(shape), Some(mark)) = (self.shapes.get(place), self.marks.get_mut(place)) else {
                break;
            };
            let cell = u32::from(u16::from_be_bytes(*pointer));
            let from = at.wrapping_add(cell);
            let begins = from as usize & (WINDOW - 1);
            let Some(seen) = window.get(begins..begins + N).and_then(<[u8]>::first_chunk::<N>) else { break };
            if !shape.is_told_by(seen) || cell < low || cell.wrapping_add(shape.whole) > end {
                break;
            }
            *mark = true;
            *start = from.wrapping_add(shape.head);
            *slot = guess;
            history = after(history, guess);
            done += 1;
        }
        self.history = history;
        done
    }

    /// The shape of a row of `total` bytes that begins at `start` of `buffer`, where `there` of them stand.
    #[inline(never)]
    pub(crate) fn shape(
        &mut self,
        buffer: &[u8],
        head: CellHead,
        (start, there): (usize, usize),
        total: u64,
    ) -> std::result::Result<u16, &'static str> {
        const CUT: &str = "is a row whose header is longer than the row";
        let record = buffer.get(start..start + there).ok_or(CUT)?;
        let (len, _) = varint(record).ok_or(CUT)?;
        let header = usize::try_from(len).ok().and_then(|len| record.get(..len)).ok_or(CUT)?;
        let length = start
            .checked_sub(head.bytes())
            .and_then(|from| buffer.get(from..from + usize::from(head.length)));
        let found = self.find(head, length.unwrap_or_default(), header)?;
        if self.rare.get(usize::from(found)).is_none_or(|shape| shape.total != total) {
            return Err("is a row whose length is not that of its columns");
        }
        if let Some(guess) = self.guesses.get_mut(self.history & (HISTORY - 1)) {
            *guess = found;
        }
        self.history = after(self.history, found);
        if let Some(mark) = self.marks.get_mut(usize::from(found)) {
            *mark = true;
        }
        Ok(found)
    }

    /// Moves the shapes of which there were rows since it was last asked to `into`.
    pub(crate) fn take_marked(&mut self, into: &mut Vec<u16>) {
        for (shape, mark) in (0..).zip(&mut self.marks) {
            if std::mem::take(mark) {
                into.push(shape);
            }
        }
    }

    /// The row id of a row of `shape` that begins at `start` of `buffer`.
    pub(crate) fn row_id(&self, buffer: &[u8], start: u32, shape: u16) -> i64 {
        let bytes = self.rare.get(usize::from(shape)).map_or(0, |shape| u32::from(shape.head.id));
        let id = buffer.get(start.saturating_sub(bytes) as usize..start as usize);
        id.and_then(varint).map_or(0, |(id, _)| id.cast_signed())
    }

    fn find(
        &mut self,
        head: CellHead,
        length: &[u8],
        header: &[u8],
    ) -> std::result::Result<u16, &'static str> {
        let mut at = hash(head, header) & (SLOTS - 1);
        loop {
            match self.slots.get(at).copied() {
                Some(NO_SHAPE) | None => break,
                Some(shape)
                    if self
                        .rare
                        .get(usize::from(shape))
                        .is_some_and(|s| s.head == head && s.header == header) =>
                {
                    return Ok(shape);
                }
                Some(_) => at = (at + 1) & (SLOTS - 1),
            }
        }
        let made = self.work_out(head, length, header)?;
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = made;
        }
        Ok(made)
    }

    /// Works a header out: a length of itself, then one number per column for type and width.
    fn work_out(
        &mut self,
        head: CellHead,
        length: &[u8],
        header: &[u8],
    ) -> std::result::Result<u16, &'static str> {
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
        let shape = Shape::new(head, length, header, total);
        if shape.whole != NEVER {
            self.longest = self.longest.max(head.bytes() + header.len());
        }
        self.shapes.push(shape);
        self.rare.push(Rare { head, total, needed, header: header.to_vec() });
        self.marks.push(false);
        for (cells, cell) in self.cells.iter_mut().zip(found) {
            cells.push(cell);
        }
        Ok(number)
    }
}

impl CellHead {
    /// Of both numbers.
    fn bytes(self) -> usize {
        usize::from(self.length) + usize::from(self.id)
    }
}

impl Shape {
    /// That of rows with this header and `total` bytes, with a head that has this `length`.
    fn new(head: CellHead, length: &[u8], header: &[u8], total: u64) -> Self {
        // The bits that tell where a number ends; of one with nine bytes the last one has none.
        let id = (1..=head.id).map(|byte| match byte {
            9 => (0, 0),
            byte if byte == head.id => (0, 0x80),
            _ => (0x80, 0x80),
        });
        let all = |bytes: &[u8]| bytes.iter().map(|byte| (*byte, 0xff)).collect::<Vec<_>>();
        let told: Vec<(u8, u8)> = all(length).into_iter().chain(id).chain(all(header)).collect();
        let whole = u32::try_from(total).ok().and_then(|total| total.checked_add(head.bytes() as u32));
        let whole =
            whole.filter(|whole| *whole < NEVER && head.bytes() > 0 && told.len() <= WIDE).unwrap_or(NEVER);
        let (mut begins, mut mask) = ([0; WIDE], [0; WIDE]);
        for ((begins, mask), (byte, bits)) in begins.iter_mut().zip(&mut mask).zip(told) {
            (*begins, *mask) = (byte, bits);
        }
        Self { begins, mask, head: head.bytes() as u32, whole }
    }

    /// Whether a cell that begins with `seen` has a row of this shape. The header says how long it is, so equal bytes
    /// are enough.
    #[inline(always)]
    fn is_told_by<const N: usize>(&self, seen: &[u8; N]) -> bool {
        fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
            bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word))
        }
        let mut differ = 0;
        for ((seen, known), mask) in words(seen).zip(words(&self.begins)).zip(words(&self.mask)) {
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
fn hash(head: CellHead, header: &[u8]) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mixed = wide(header.len()) << 16 | u64::from(head.length) << 8 | u64::from(head.id);
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

/// What a column of a block holds, from the shapes of its rows alone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sort {
    /// Nothing in any row.
    Nulls,
    /// The same whole number in every row: 0 and 1 stand in the header.
    Fixed(i64),
    /// Whole numbers.
    Ints,
    /// Whole numbers, and rows without any.
    IntsAndNulls,
    /// Row ids.
    RowIds,
    /// Anything, or rows that do not stand in their page.
    Any,
}

/// Some rows of a table.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Where every row begins in the buffer.
    pub(crate) starts: Vec<u32>,
    /// Its shape.
    pub(crate) shape_of: Vec<u16>,
    /// Row ids, if they were asked for.
    pub(crate) row_ids: Vec<i64>,
    /// Shapes that occur.
    pub(crate) shapes: Vec<u16>,
    /// Whether there are rows that were put together behind the pages.
    pub(crate) spilled: bool,
    pub(crate) with_ids: bool,
}

impl Block {
    /// A block for the columns `asked`.
    pub(crate) fn new(asked: &[Stored]) -> Self {
        Self { with_ids: asked.iter().any(|stored| stored.place.is_none()), ..Self::default() }
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Where the row begins in the buffer, and its shape.
    #[inline]
    pub(crate) fn place(&self, row: usize) -> Option<(u32, u16)> {
        Some((*self.starts.get(row)?, *self.shape_of.get(row)?))
    }

    /// The row id of a row; 0 if row ids were not asked for.
    #[inline]
    pub(crate) fn row_id(&self, row: usize) -> i64 {
        self.row_ids.get(row).copied().unwrap_or(0)
    }

    /// What the column with these `cells` holds.
    pub(crate) fn sort(&self, cells: &[Cell]) -> Sort {
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
            same &= cell.fixed() == first.fixed();
        }
        let all = self.shapes.len();
        if nulls == all {
            return Sort::Nulls;
        }
        if ids == all {
            return Sort::RowIds;
        }
        if let (true, Some(value)) = (ints == all && same, first.fixed()) {
            return Sort::Fixed(value);
        }
        match () {
            () if self.spilled => Sort::Any,
            () if ints == all => Sort::Ints,
            () if ints + nulls == all => Sort::IntsAndNulls,
            () => Sort::Any,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.starts.clear();
        self.shape_of.clear();
        self.row_ids.clear();
        self.shapes.clear();
        self.spilled = false;
    }
}

/// The parts of one cell of a leaf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// Bytes of the row, overflow pages included.
    pub(crate) payload: u64,
    /// Where its row id stands in the page.
    id: usize,
    /// Where the row begins in the page.
    pub(crate) start: usize,
}

impl Head {
    /// How many bytes its numbers have, if its cell begins at `from`.
    pub(crate) fn bytes(&self, from: usize) -> CellHead {
        // Nine at most.
        CellHead { length: (self.id - from) as u8, id: (self.start - self.id) as u8 }
    }

    /// The row id.
    #[inline]
    pub(crate) fn row_id(&self, page: &[u8]) -> i64 {
        page.get(self.id..self.start).and_then(varint).map_or(0, |(id, _)| id.cast_signed())
    }
}

/// The cell that starts at `from` of the leaf `page`; its number is that of the pointer at `pointer`.
#[inline(always)]
pub(crate) fn cell_head(page: &[u8], pointer: usize, from: usize) -> std::result::Result<Head, Fault> {
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
