//! Decode rows into typed columns, on several threads.
//!
//! Every requested column is read as a type that the caller names, never as one that its values suggest. A cell that
//! does not fit becomes null and its row is reported. Leaves are divided among threads by their place in the tree; the
//! number of threads does not change the result.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Mutex;

use arrow_array::UInt32Array;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, NullBuffer};

use crate::combined::{self, Combinations, Combined};
use crate::cursor::{cut, Cursor};
use crate::error::{Error, Result};
use crate::pages::{wide, Fault, Leaf, Pages, Visited};
use crate::parallel::ThreadPool;
use crate::prefetch::{Following, Prefetch};
use crate::progress::Progress;
use crate::record::{Block, Cell, Meaning, Shapes, Sort, Stored, Window};
use crate::simd::{Found, SimdColumns, LANES, ROWS};
use crate::Value;

/// Fewer leaves are not worth a task of their own.
const LEAVES_PER_TASK: usize = 64;
/// Tasks per thread, so that a thread that is slowed down leaves its share to the others.
const TASKS_PER_THREAD: usize = 8;
/// Bytes of a task behind a reader.
const TASK_BYTES: usize = 4 << 20;

macro_rules! every {
    ($type:ident, $of:expr, $inner:ident => $numbers:expr, $names:ident => $distinct:expr) => {
        match $of {
            $type::U8($inner) => $numbers,
            $type::U16($inner) => $numbers,
            $type::U32($inner) => $numbers,
            $type::I32($inner) => $numbers,
            $type::I64($inner) => $numbers,
            $type::U64($inner) => $numbers,
            $type::Distinct($names) => $distinct,
        }
    };
}

/// What a column is read as.
///
/// Integer types take whole numbers, also those that stand there as a real or as text, as long as they
/// fit; everything else becomes null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    /// 8-bit unsigned.
    U8,
    /// 16-bit unsigned.
    U16,
    /// 32-bit unsigned.
    U32,
    /// 32-bit signed.
    I32,
    /// 64-bit signed.
    I64,
    /// 64-bit ids: SQLite can only store them as signed numbers, so their bits are taken.
    U64,
    /// Cells of any type that repeat, each distinct one kept once.
    Distinct,
}

/// A column of numbers.
#[derive(Debug, Clone)]
pub struct Numbers<T> {
    /// One a row; 0 for null.
    pub values: Vec<T>,
    /// Which rows are null; `None` if none is.
    pub nulls: Option<NullBuffer>,
    /// Rows whose cell was no such number and became null, in order.
    pub refused: Vec<u32>,
}

impl<T> Numbers<T> {
    /// Whether row `row` is there.
    #[must_use]
    pub fn is_valid(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| row < nulls.len() && nulls.is_valid(row))
    }

    fn keep(&mut self, rows: &[u32])
    where
        T: Copy,
    {
        let nulls = self.nulls.take();
        if let Some(nulls) = nulls {
            let kept = rows.iter().map(|row| nulls.is_valid(*row as usize));
            self.nulls = Some(NullBuffer::from_iter(kept));
        }
        self.values = rows.iter().filter_map(|row| self.values.get(*row as usize).copied()).collect();
        // Both are in order.
        let places = (0_u32..).zip(rows);
        let mut refused = self.refused.iter().peekable();
        self.refused = places
            .filter(|(_, row)| {
                while refused.next_if(|old| old < row).is_some() {}
                refused.peek() == Some(row)
            })
            .map(|(place, _)| place)
            .collect();
    }
}

/// A column of cells that repeat.
#[derive(Debug, Clone, Default)]
pub struct Distinct {
    /// One a row: a place in `entries`.
    pub codes: Vec<u32>,
    /// Distinct cells in the order in which the table first has them.
    pub entries: Vec<Owned>,
}

impl Distinct {
    /// The distinct cells as integers; `None` for those that are none.
    pub fn integers(&self) -> impl Iterator<Item = Option<i64>> + '_ {
        self.entries.iter().map(|entry| entry.value().integer().ok().flatten())
    }

    fn keep(&mut self, rows: &[u32]) {
        let mut places = vec![NO_CODE; self.entries.len()];
        let mut entries = Vec::new();
        let codes = rows.iter().filter_map(|row| self.codes.get(*row as usize));
        self.codes = codes
            .filter_map(|code| {
                let place = places.get_mut(*code as usize)?;
                if *place == NO_CODE {
                    *place = entries.len() as u32;
                    entries.push(self.entries.get(*code as usize)?.clone());
                }
                Some(*place)
            })
            .collect();
        self.entries = entries;
    }
}

/// A column with `values[code]` in every row; null where that is none, or there is no such place. The codes make room
/// for it.
#[must_use]
pub fn replaced(mut codes: Vec<u32>, values: &[Option<u32>]) -> UInt32Array {
    let pool = ThreadPool::new(0);
    let values = Places::new(values);
    let rows = pool.rows(codes.len()).next_multiple_of(64);
    let valid = pool.each(codes.chunks_mut(rows).collect(), |codes| values.look_up(codes, None));
    let nulls = whole_column(valid, rows, codes.len());
    UInt32Array::new(codes.into(), nulls)
}

/// As [`replaced`], of codes that are needed once more.
#[must_use]
pub fn looked_up(codes: &[u32], values: &[Option<u32>]) -> UInt32Array {
    let pool = ThreadPool::new(0);
    let values = Places::new(values);
    let rows = pool.rows(codes.len()).next_multiple_of(64);
    let mut out = vec![0; codes.len()];
    let parts = out.chunks_mut(rows).zip(codes.chunks(rows)).collect();
    let valid = pool.each(parts, |(out, codes)| values.look_up(out, Some(codes)));
    let nulls = whole_column(valid, rows, codes.len());
    UInt32Array::new(out.into(), nulls)
}

/// Values by their place.
struct Places {
    values: Vec<u32>,
    /// Places without a value, if there are any.
    empty: Vec<bool>,
    /// Every value is its own place: names are mostly numbered in the order in which they come.
    as_they_are: bool,
}

impl Places {
    fn new(values: &[Option<u32>]) -> Self {
        let whole = values.iter().all(Option::is_some);
        let empty = if whole { Vec::new() } else { values.iter().map(Option::is_none).collect() };
        let values: Vec<u32> = values.iter().map(|value| value.unwrap_or(0)).collect();
        let as_they_are = values.iter().zip(0..).all(|(value, place)| *value == place);
        Self { values, empty, as_they_are }
    }

    /// Puts values where places stand, those of `rows` or else of `from`; returns a set bit for every row that has one,
    /// or nothing if all have.
    fn look_up(&self, rows: &mut [u32], from: Option<&[u32]>) -> Option<Vec<u64>> {
        // What is looked at again is still in a near cache.
        const BLOCK: usize = 4096;
        let words = rows.len().div_ceil(64);
        let mut valid: Option<Vec<u64>> = None;
        for (block, rows) in rows.chunks_mut(BLOCK).enumerate() {
            if let Some(from) = from.and_then(|from| from.get(block * BLOCK..block * BLOCK + rows.len())) {
                rows.copy_from_slice(from);
            }
            let highest = rows.iter().copied().max().unwrap_or(0) as usize;
            let inside = highest < self.values.len();
            if !(inside && self.empty.is_empty()) {
                let valid = valid.get_or_insert_with(|| vec![u64::MAX; words]);
                let there = |row: &u32| {
                    (*row as usize) < self.values.len() && self.empty.get(*row as usize) != Some(&true)
                };
                for (word, rows) in valid.iter_mut().skip(block * BLOCK / 64).zip(rows.chunks(64)) {
                    *word = rows
                        .iter()
                        .enumerate()
                        .fold(0, |word, (bit, row)| word | u64::from(there(row)) << bit);
                }
            }
            if !(inside && self.as_they_are) {
                for row in rows {
                    *row = self.values.get(*row as usize).copied().unwrap_or(0);
                }
            }
        }
        valid
    }
}

/// Which of `len` rows are null, from what each part of so many rows says.
fn whole_column(parts: Vec<Option<Vec<u64>>>, rows: usize, len: usize) -> Option<NullBuffer> {
    if parts.iter().all(Option::is_none) {
        return None;
    }
    let words = parts.into_iter().flat_map(|part| part.unwrap_or_else(|| vec![u64::MAX; rows / 64]));
    let bits = BooleanBuffer::new(words.collect::<Vec<u64>>().into(), 0, len);
    Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0)
}

/// A cell that outlives its row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owned {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// The bits of a floating-point number.
    Real(u64),
    /// Text.
    Text(Vec<u8>),
    /// Anything else.
    Blob(Vec<u8>),
}

impl Owned {
    /// The cell.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Int(value) => Value::Int(*value),
            Self::Real(bits) => Value::Real(f64::from_bits(*bits)),
            Self::Text(bytes) => Value::Text(bytes),
            Self::Blob(bytes) => Value::Blob(bytes),
        }
    }

    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Int(value) => Self::Int(value),
            Value::Real(value) => Self::Real(value.to_bits()),
            Value::Text(bytes) => Self::Text(bytes.to_vec()),
            Value::Blob(bytes) => Self::Blob(bytes.to_vec()),
        }
    }
}

/// A read column; which one is what was asked for.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Column {
    U8(Numbers<u8>),
    U16(Numbers<u16>),
    U32(Numbers<u32>),
    I32(Numbers<i32>),
    I64(Numbers<i64>),
    U64(Numbers<u64>),
    Distinct(Distinct),
}

impl Column {
    /// Leaves only `rows`, which are in order.
    pub fn keep(&mut self, rows: &[u32]) {
        every!(Self, self, numbers => numbers.keep(rows), cells => cells.keep(rows));
    }
}

/// A type that a number can be narrowed to.
trait Narrow: Copy + Default + Send + Sync {
    /// The number cut off to this type.
    fn cut(value: i64) -> Self;

    /// `seen` and whatever of `value` tells whether it is more than this type can hold.
    fn see(seen: u64, value: i64) -> u64;

    /// Whether all numbers that were seen fit.
    fn fit(seen: u64) -> bool;
}

macro_rules! narrow {
    ($($type:ty, $see:expr, $fit:expr;)*) => {$(impl Narrow for $type {
        #[inline(always)]
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        fn cut(value: i64) -> Self {
            value as $type
        }

        #[inline(always)]
        fn see(seen: u64, value: i64) -> u64 {
            let see: fn(u64, i64) -> u64 = $see;
            see(seen, value)
        }

        #[inline(always)]
        fn fit(seen: u64) -> bool {
            let fit: fn(u64) -> bool = $fit;
            fit(seen)
        }
    })*};
}
narrow! {
    // No bit above those that the type has.
    u8, |seen, value| seen | value.cast_unsigned(), |seen| seen <= u64::from(u8::MAX);
    u16, |seen, value| seen | value.cast_unsigned(), |seen| seen <= u64::from(u16::MAX);
    u32, |seen, value| seen | value.cast_unsigned(), |seen| seen <= u64::from(u32::MAX);
    // The same after it was widened again.
    i32, |seen, value| seen | (i64::from(Self::cut(value)) ^ value).cast_unsigned(), |seen| seen == 0;
    i64, |seen, _| seen, |_| true;
    u64, |seen, _| seen, |_| true;
}

/// Puts whole numbers into `out`, as if all fit; returns whether they do.
#[inline]
fn narrow<T: Narrow>(out: &mut [T], numbers: &[i64]) -> bool {
    let mut seen = 0;
    for (slot, number) in out.iter_mut().zip(numbers) {
        seen = T::see(seen, *number);
        *slot = T::cut(*number);
    }
    T::fit(seen)
}

/// Rows of one column on their way in: a part of the whole column, filled from its front.
struct Part<'a, T> {
    out: &'a mut [T],
    rows: usize,
    /// Whether the numbers of the block at hand fit, so far.
    fit: bool,
    /// Set bits are null rows; empty as long as there is none.
    nulls: Vec<u64>,
    refused: Vec<u32>,
}

impl<'a, T: Narrow> Part<'a, T> {
    fn new(out: &'a mut [T]) -> Self {
        Self { out, rows: 0, fit: true, nulls: Vec::new(), refused: Vec::new() }
    }

    fn set_null(&mut self, row: usize) {
        self.set_nulls(row, row + 1);
    }

    /// Marks the rows from `from` up to `to` as null; there is at least one.
    fn set_nulls(&mut self, from: usize, to: usize) {
        if self.nulls.is_empty() {
            self.nulls = vec![0; self.out.len() / 64 + 1];
        }
        let (first, last) = (from / 64, (to - 1) / 64);
        for place in first..=last {
            let low = if place == first { from % 64 } else { 0 };
            let high = if place == last { (to - 1) % 64 } else { 63 };
            if let Some(word) = self.nulls.get_mut(place) {
                *word |= (u64::MAX << low) & (u64::MAX >> (63 - high));
            }
        }
    }

    /// Puts one cell, whatever it is.
    fn put(&mut self, row: usize, value: Value<'_>) {
        let number = value.integer();
        let fitting = number.ok().flatten().filter(|n| T::fit(T::see(0, *n))).map(T::cut);
        if let Some(slot) = self.out.get_mut(row) {
            *slot = fitting.unwrap_or_default();
        }
        if fitting.is_none() {
            self.set_null(row);
            if number != Ok(None) {
                self.refused.push(row as u32);
            }
        }
    }

    /// Puts a cell behind the last one.
    fn push(&mut self, value: Value<'_>) {
        self.put(self.rows, value);
        self.rows += 1;
    }

    /// Puts whole numbers of the block at hand in their rows, the first of which is its `from`-th.
    fn put_numbers(&mut self, from: usize, numbers: &[i64]) {
        let from = self.rows + from;
        if let Some(out) = self.out.get_mut(from..from + numbers.len()) {
            self.fit &= narrow(out, numbers);
        }
    }

    /// Puts the cells of a block behind the last ones, as far as [`Part::put_numbers`] has not.
    fn take(&mut self, cursor: &Cursor<'_>, cells: &[Cell], sort: Sort) {
        let block = &cursor.block;
        let from = self.rows;
        self.rows += block.len();
        let Some(out) = self.out.get_mut(from..self.rows) else { return };
        let fit = std::mem::replace(&mut self.fit, true);
        let done = match sort {
            // Zeroes stand there already, and memory that nobody writes to costs nothing.
            Sort::Nulls => {
                self.set_nulls(from, self.rows);
                true
            }
            Sort::Fixed(0) => true,
            Sort::Fixed(value) => {
                out.fill(T::cut(value));
                T::fit(T::see(0, value))
            }
            Sort::RowIds => narrow(out, &block.row_ids),
            Sort::Ints => fit,
            Sort::IntsAndNulls => {
                if fit {
                    self.mark_nulls(from, block, cells);
                }
                fit
            }
            Sort::Any => false,
        };
        if done {
            return;
        }
        for row in 0..block.len() {
            let Some((start, shape)) = block.place(row) else { continue };
            let cell = cells.get(usize::from(shape)).unwrap_or(&Cell::NULL);
            self.put(from + row, cell.value(&cursor.buffer, start, block.row_id(row)));
        }
    }

    /// Marks the rows of a block as null whose cell is not there; the block begins at row `from`.
    fn mark_nulls(&mut self, from: usize, block: &Block, cells: &[Cell]) {
        if self.nulls.is_empty() {
            self.nulls = vec![0; self.out.len() / 64 + 1];
        }
        for (row, shape) in (from..).zip(&block.shape_of) {
            let cell = cells.get(usize::from(*shape)).unwrap_or(&Cell::NULL);
            if let Some(word) = self.nulls.get_mut(row / 64) {
                *word |= u64::from(cell.meaning == Meaning::Null) << (row % 64);
            }
        }
    }
}

/// Cells of one column, each distinct one kept once.
struct Dictionary<'a> {
    codes: &'a mut [u32],
    rows: usize,
    entries: Vec<Owned>,
    known: HashMap<Owned, u32>,
    /// Codes of small numbers plus one: ids of strings are counted from 0.
    small: Vec<u32>,
    /// The last numbers seen, each at the place that its bits give.
    recent: Vec<(i64, u32)>,
    /// The last code of a cell that is no number.
    last: u32,
}

/// Numbers below it have their code in a plain list.
const SMALL: i64 = 1 << 20;
const RECENT: usize = 256;
const NO_CODE: u32 = u32::MAX;

impl<'a> Dictionary<'a> {
    fn new(codes: &'a mut [u32]) -> Self {
        Self {
            codes,
            rows: 0,
            entries: Vec::new(),
            known: HashMap::new(),
            small: Vec::new(),
            recent: vec![(0, NO_CODE); RECENT],
            last: NO_CODE,
        }
    }

    fn code(&mut self, entry: Owned) -> u32 {
        let next = self.entries.len() as u32;
        match self.known.entry(entry) {
            MapEntry::Occupied(known) => *known.get(),
            MapEntry::Vacant(new) => {
                self.entries.push(new.key().clone());
                *new.insert(next)
            }
        }
    }

    #[inline]
    fn code_of_int(&mut self, value: i64) -> u32 {
        // Negative numbers wrap to places that no list has.
        let known = usize::try_from(value.cast_unsigned()).ok().and_then(|place| self.small.get(place));
        if let Some(code) = known.and_then(|code| code.checked_sub(1)) {
            return code;
        }
        let spread = (value.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize;
        match self.recent.get(spread) {
            Some((number, code)) if *number == value && *code != NO_CODE => *code,
            _ => self.look_up(value, spread),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, value: i64, spread: usize) -> u32 {
        let code = self.code(Owned::Int(value));
        if let Some(place) = usize::try_from(value).ok().filter(|_| value < SMALL) {
            if self.small.len() <= place {
                self.small.resize(place + 1, 0);
            }
            if let Some(slot) = self.small.get_mut(place) {
                *slot = code + 1;
            }
        } else if let Some(slot) = self.recent.get_mut(spread) {
            *slot = (value, code);
        }
        code
    }

    fn code_of(&mut self, value: Value<'_>) -> u32 {
        if let Value::Int(value) = value {
            return self.code_of_int(value);
        }
        // Not made anew for every row: text that repeats often repeats at once.
        let last = self.entries.get(self.last as usize).map(Owned::value);
        if !matches!(value, Value::Real(_)) && last == Some(value) {
            return self.last;
        }
        self.last = self.code(Owned::of(value));
        self.last
    }

    fn push(&mut self, value: Value<'_>) {
        let code = self.code_of(value);
        if let Some(slot) = self.codes.get_mut(self.rows) {
            *slot = code;
        }
        self.rows += 1;
    }

    /// Puts whole numbers of the block at hand in their rows, the first of which is its `from`-th.
    fn put_numbers(&mut self, from: usize, numbers: &[i64]) {
        let from = self.rows + from;
        // Out of reach of `self`, so that finding a code may add one.
        let codes = std::mem::take(&mut self.codes);
        let out = codes.get_mut(from..from + numbers.len()).unwrap_or_default();
        // Processes and threads often have many rows to themselves.
        let first = numbers.first().copied().unwrap_or(0);
        if numbers.iter().fold(0, |differ, number| differ | (number ^ first)) == 0 {
            let code = self.code_of_int(first);
            // Zeroes stand there already, and memory that nobody writes to costs nothing.
            if code != 0 {
                out.fill(code);
            }
        } else {
            for (slot, number) in out.iter_mut().zip(numbers) {
                *slot = self.code_of_int(*number);
            }
        }
        self.codes = codes;
    }

    /// Puts the cells of a block behind the last ones, as far as [`Dictionary::put_numbers`] has not.
    fn take(&mut self, cursor: &Cursor<'_>, cells: &[Cell], sort: Sort) {
        let block = &cursor.block;
        let from = self.rows;
        self.rows += block.len();
        let one = match sort {
            Sort::Nulls => Some(self.code_of(Value::Null)),
            Sort::Fixed(value) => Some(self.code_of_int(value)),
            Sort::Ints => return,
            Sort::IntsAndNulls | Sort::RowIds | Sort::Any => None,
        };
        if let Some(code) = one {
            // Zeroes stand there already, and memory that nobody writes to costs nothing.
            if let Some(out) = self.codes.get_mut(from..self.rows).filter(|_| code != 0) {
                out.fill(code);
            }
            return;
        }
        for row in 0..block.len() {
            let Some((start, shape)) = block.place(row) else { continue };
            let cell = cells.get(usize::from(shape)).unwrap_or(&Cell::NULL);
            let code = self.code_of(cell.value(&cursor.buffer, start, block.row_id(row)));
            if let Some(slot) = self.codes.get_mut(from + row) {
                *slot = code;
            }
        }
    }
}

/// What a task has done with one column, apart from the values themselves.
#[derive(Debug, Default)]
struct Told {
    nulls: Vec<u64>,
    refused: Vec<u32>,
    entries: Vec<Owned>,
}

/// A part of one column of any type.
enum AnyPart<'a> {
    U8(Part<'a, u8>),
    U16(Part<'a, u16>),
    U32(Part<'a, u32>),
    I32(Part<'a, i32>),
    I64(Part<'a, i64>),
    U64(Part<'a, u64>),
    Distinct(Dictionary<'a>),
}

impl AnyPart<'_> {
    /// Whether whole numbers are put by [`AnyPart::put_numbers`] before [`AnyPart::take`] does the rest.
    fn takes_numbers(&self, sort: Sort) -> bool {
        match sort {
            Sort::Ints => true,
            // For a name, a row without a number has a code of its own.
            Sort::IntsAndNulls => !matches!(self, Self::Distinct(_)),
            _ => false,
        }
    }

    /// Where numbers of the block at hand can be put as they are, so many from its `from`-th row on.
    fn place(&mut self, from: usize, rows: usize) -> Option<&mut [i64]> {
        match self {
            Self::I64(part) => part.out.get_mut(part.rows + from..part.rows + from + rows),
            _ => None,
        }
    }

    /// Puts numbers of the block at hand from its `from`-th row on, if they have no [`AnyPart::place`].
    fn put_numbers(&mut self, from: usize, numbers: &[i64]) {
        if let Self::I64(_) = self {
            return;
        }
        every!(AnyPart, self, part => part.put_numbers(from, numbers), names => names.put_numbers(from, numbers));
    }

    fn take(&mut self, cursor: &Cursor<'_>, cells: &[Cell], sort: Sort) {
        every!(AnyPart, self, part => part.take(cursor, cells, sort), names => names.take(cursor, cells, sort));
    }

    fn push(&mut self, value: Value<'_>) {
        every!(AnyPart, self, part => part.push(value), names => names.push(value));
    }

    fn finish(self) -> Told {
        every!(
            AnyPart,
            self,
            part => Told { nulls: part.nulls, refused: part.refused, entries: Vec::new() },
            names => Told { entries: names.entries, ..Told::default() }
        )
    }
}

/// The values of a whole column, before they are filled in.
pub(crate) enum Values {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    Distinct(Vec<u32>),
}

impl Values {
    /// Zeroes cost nothing until they are written to: the system hands out empty pages.
    fn new(kind: As, rows: usize) -> Self {
        match kind {
            As::U8 => Self::U8(vec![0; rows]),
            As::U16 => Self::U16(vec![0; rows]),
            As::U32 => Self::U32(vec![0; rows]),
            As::I32 => Self::I32(vec![0; rows]),
            As::I64 => Self::I64(vec![0; rows]),
            As::U64 => Self::U64(vec![0; rows]),
            As::Distinct => Self::Distinct(vec![0; rows]),
        }
    }

    /// A whole column of these cells.
    pub(crate) fn of<'v>(kind: As, rows: usize, mut cells: impl Iterator<Item = Value<'v>>) -> Column {
        let mut values = Self::new(kind, rows);
        let mut parts = values.parts(&[rows]);
        parts.iter_mut().for_each(|part| cells.by_ref().for_each(|cell| part.push(cell)));
        let told = parts.into_iter().map(AnyPart::finish).collect();
        values.finish(&[rows], &[rows], told)
    }

    /// Cuts the column into parts of so many rows.
    fn parts(&mut self, lengths: &[usize]) -> Vec<AnyPart<'_>> {
        match self {
            Self::U8(v) => split(v, lengths).into_iter().map(|p| AnyPart::U8(Part::new(p))).collect(),
            Self::U16(v) => split(v, lengths).into_iter().map(|p| AnyPart::U16(Part::new(p))).collect(),
            Self::U32(v) => split(v, lengths).into_iter().map(|p| AnyPart::U32(Part::new(p))).collect(),
            Self::I32(v) => split(v, lengths).into_iter().map(|p| AnyPart::I32(Part::new(p))).collect(),
            Self::I64(v) => split(v, lengths).into_iter().map(|p| AnyPart::I64(Part::new(p))).collect(),
            Self::U64(v) => split(v, lengths).into_iter().map(|p| AnyPart::U64(Part::new(p))).collect(),
            Self::Distinct(v) => {
                split(v, lengths).into_iter().map(|p| AnyPart::Distinct(Dictionary::new(p))).collect()
            }
        }
    }

    /// The finished column, from what each part had room for, how many rows it has, and what it told.
    fn finish(self, rooms: &[usize], rows: &[usize], told: Vec<Told>) -> Column {
        fn numbers<T: Copy>(
            mut values: Vec<T>,
            rooms: &[usize],
            rows: &[usize],
            told: &[Told],
        ) -> Numbers<T> {
            close_gaps(&mut values, rooms, rows);
            let mut refused = Vec::new();
            let mut offset = 0;
            for (told, rows) in told.iter().zip(rows) {
                refused.extend(told.refused.iter().map(|row| row + offset as u32));
                offset += rows;
            }
            let nulls = told.iter().any(|t| !t.nulls.is_empty()).then(|| validity(told, rows));
            Numbers { values, nulls, refused }
        }
        match self {
            Self::U8(v) => Column::U8(numbers(v, rooms, rows, &told)),
            Self::U16(v) => Column::U16(numbers(v, rooms, rows, &told)),
            Self::U32(v) => Column::U32(numbers(v, rooms, rows, &told)),
            Self::I32(v) => Column::I32(numbers(v, rooms, rows, &told)),
            Self::I64(v) => Column::I64(numbers(v, rooms, rows, &told)),
            Self::U64(v) => Column::U64(numbers(v, rooms, rows, &told)),
            Self::Distinct(mut codes) => {
                close_gaps(&mut codes, rooms, rows);
                Column::Distinct(merge(codes, rows, told))
            }
        }
    }
}

/// Cuts rows into parts of so many.
fn split<'a, T>(mut rest: &'a mut [T], lengths: &[usize]) -> Vec<&'a mut [T]> {
    let mut parts = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (part, others) = std::mem::take(&mut rest).split_at_mut_checked(*length).unwrap_or_default();
        parts.push(part);
        rest = others;
    }
    parts
}

/// Moves the rows of all parts together where a part had more room than rows.
fn close_gaps<T: Copy>(values: &mut Vec<T>, rooms: &[usize], rows: &[usize]) {
    let (mut from, mut to) = (0, 0);
    for (room, rows) in rooms.iter().zip(rows) {
        if from != to {
            values.copy_within(from..from + rows, to);
        }
        from += room;
        to += rows;
    }
    values.truncate(to);
}

/// One bit a row, set where there is a value.
fn validity(told: &[Told], rows: &[usize]) -> NullBuffer {
    let mut bits = BooleanBufferBuilder::new(rows.iter().sum());
    for (told, rows) in told.iter().zip(rows) {
        let words = told.nulls.iter().map(|word| !word).chain(std::iter::repeat(u64::MAX));
        let bytes: Vec<u8> = words.take(rows.div_ceil(64)).flat_map(u64::to_le_bytes).collect();
        bits.append_packed_range(0..*rows, &bytes);
    }
    NullBuffer::new(bits.finish())
}

/// Makes one list of the entries of all parts, first seen first, and the codes point into it.
fn merge(mut codes: Vec<u32>, rows: &[usize], told: Vec<Told>) -> Distinct {
    let mut told = told.into_iter();
    let mut entries = told.next().map(|t| t.entries).unwrap_or_default();
    let mut known: HashMap<Owned, u32> = HashMap::new();
    let mut rest = codes.get_mut(rows.first().copied().unwrap_or(0)..).unwrap_or_default();
    let mut moved = Vec::new();
    for (told, rows) in told.zip(rows.iter().skip(1)) {
        if known.is_empty() {
            known.extend(entries.iter().cloned().zip(0..));
        }
        let places: Vec<u32> = told
            .entries
            .into_iter()
            .map(|entry| match known.entry(entry) {
                MapEntry::Occupied(known) => *known.get(),
                MapEntry::Vacant(new) => {
                    entries.push(new.key().clone());
                    *new.insert((entries.len() - 1) as u32)
                }
            })
            .collect();
        let (part, others) = std::mem::take(&mut rest).split_at_mut_checked(*rows).unwrap_or_default();
        rest = others;
        // Most parts of a table find the same cells in the same order.
        if !places.iter().zip(0..).all(|(place, code)| *place == code) {
            moved.push((part, places));
        }
    }
    ThreadPool::for_rows(moved.iter().map(|(part, _)| part.len()).sum()).each(moved, |(part, places)| {
        for code in part {
            *code = places.get(*code as usize).copied().unwrap_or(0);
        }
    });
    Distinct { codes, entries }
}

/// Reads columns cell by cell, from whatever `each` gets its rows from; there are `rows` of them.
pub(crate) fn fill(
    kinds: &[As],
    rows: usize,
    each: impl FnOnce(&mut dyn FnMut(usize, Value<'_>)) -> Result<u64>,
) -> Result<(usize, Vec<Column>)> {
    let mut values: Vec<Values> = kinds.iter().map(|kind| Values::new(*kind, rows)).collect();
    let mut parts: Vec<AnyPart<'_>> = values.iter_mut().flat_map(|v| v.parts(&[rows])).collect();
    let found = each(&mut |column, value| {
        if let Some(part) = parts.get_mut(column) {
            part.push(value);
        }
    })?;
    let told: Vec<Told> = parts.into_iter().map(AnyPart::finish).collect();
    let found = usize::try_from(found).unwrap_or(rows).min(rows);
    let columns = values.into_iter().zip(told).map(|(v, told)| v.finish(&[rows], &[found], vec![told]));
    Ok((found, columns.collect()))
}

/// What a task has done: how many rows it had, what it told of each column, and of the codes of combinations.
struct Done {
    rows: usize,
    told: Vec<Told>,
    combined: (usize, Vec<u16>),
}

/// A stretch of leaves with the parts of all columns that its rows go to.
struct Task<'a> {
    number: usize,
    /// How many leaves of the table stand before these.
    from: usize,
    leaves: &'a [Leaf],
    parts: Vec<AnyPart<'a>>,
    /// Codes of combinations, if such columns were asked for.
    codes: Option<&'a mut [u16]>,
}

/// Takes blocks into the parts of all columns.
struct Takes {
    groups: SimdColumns,
    found: Box<Found>,
    /// What the block at hand has in each column.
    sorts: Vec<Sort>,
    /// Columns whose numbers are taken.
    numbers: Vec<usize>,
}

impl Takes {
    fn new() -> Self {
        Self {
            groups: SimdColumns::new(),
            found: Box::new([[0; ROWS]; LANES]),
            sorts: Vec::new(),
            numbers: Vec::new(),
        }
    }

    fn block(&mut self, cursor: &Cursor<'_>, parts: &mut [AnyPart<'_>]) {
        let (block, shapes) = (&cursor.block, &cursor.shapes);
        self.sorts.clear();
        self.sorts.extend((0..parts.len()).map(|column| block.sort(shapes.cells(column))));
        let takes = |(column, (part, sort)): (usize, (&AnyPart<'_>, &Sort))| {
            part.takes_numbers(*sort).then_some(column)
        };
        self.numbers.clear();
        self.numbers.extend(parts.iter().zip(&self.sorts).enumerate().filter_map(takes));
        if let (false, Some(window)) = (self.numbers.is_empty(), cursor.window()) {
            self.groups.prepare(&self.numbers, shapes);
            for four in 0..self.groups.len() {
                self.four(four, window, block, shapes, parts);
            }
        }
        for (column, (part, sort)) in parts.iter_mut().zip(&self.sorts).enumerate() {
            part.take(cursor, shapes.cells(column), *sort);
        }
    }

    /// Puts the numbers of four columns.
    fn four(
        &mut self,
        four: usize,
        window: &Window,
        block: &Block,
        shapes: &Shapes,
        parts: &mut [AnyPart<'_>],
    ) {
        let columns = self.groups.columns(four);
        let mut lanes = [const { None }; LANES];
        for (column, part) in parts.iter_mut().enumerate() {
            let of = columns.iter().position(|c| *c == Some(column));
            if let Some(lane) = of.and_then(|lane| lanes.get_mut(lane)) {
                *lane = Some(part).filter(|_| self.numbers.contains(&column));
            }
        }
        if lanes.iter().all(Option::is_none) {
            return;
        }
        let near = self.groups.near(four, block);
        for from in (0..block.len()).step_by(ROWS) {
            let rows = ROWS.min(block.len() - from);
            let mut places = self.found.each_mut().map(|found| found.get_mut(..rows).unwrap_or_default());
            for (lane, place) in lanes.iter_mut().zip(&mut places) {
                if let Some(own) = lane.as_mut().and_then(|part| part.place(from, rows)) {
                    *place = own;
                }
            }
            self.groups.find((four, near), window, block, from, shapes, places);
            for (lane, found) in lanes.iter_mut().zip(self.found.iter()) {
                if let (Some(part), Some(found)) = (lane, found.get(..rows)) {
                    part.put_numbers(from, found);
                }
            }
        }
    }
}

/// What all threads know of each other.
struct Common<'a> {
    pages: &'a Pages,
    table: &'a str,
    asked: &'a [Stored],
    /// Who reads the leaves, if they come from a disk.
    following: Option<&'a Following<'a>>,
    overflow_seen: &'a Visited,
    /// Rows done by all threads.
    done: AtomicU64,
    /// The first task that failed: those after it need not go on, those before it must, so that the error
    /// that is reported does not depend on who was faster.
    failed: AtomicUsize,
    cancelled: AtomicBool,
    /// There are more combinations than codes, and nobody needs those any longer.
    too_many: AtomicBool,
}

impl Common<'_> {
    fn run(
        &self,
        task: Task<'_>,
        combinations: &mut Combinations,
        again: Option<&File>,
        report: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Done> {
        let Task { number, from, leaves, mut parts, mut codes } = task;
        combinations.begin(number);
        let room = rooms(leaves);
        let cursor = Cursor::new(self.pages, again, self.table, leaves, self.overflow_seen, self.asked);
        if let Some(following) = self.following {
            following.take(from);
        }
        let mut cursor = cursor.behind(self.following, from);
        let mut takes = Takes::new();
        let mut rows = 0;
        while cursor.advance()? {
            let block = cursor.block.len();
            rows += block;
            if rows > room {
                let page = leaves.first().map_or(0, |leaf| leaf.page);
                let fault =
                    Fault { offset: 0, what: "has more rows, or the pages after it, than row ids are left" };
                return Err(self.pages.damaged(self.table, page, fault));
            }
            takes.block(&cursor, &mut parts);
            if let Some(codes) = codes.as_mut().filter(|_| !self.too_many.load(Ordering::Relaxed)) {
                let own = codes.get_mut(rows - block..rows).unwrap_or_default();
                if combinations.take(&cursor, own).is_err() {
                    self.too_many.store(true, Ordering::Relaxed);
                }
            }
            let done = self.done.fetch_add(wide(block), Ordering::Relaxed) + wide(block);
            report(done)?;
            if self.cancelled.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed) < number {
                return Err(Error::Cancelled);
            }
        }
        let told = parts.into_iter().map(AnyPart::finish).collect();
        Ok(Done { rows, told, combined: combinations.end() })
    }
}

fn rooms(leaves: &[Leaf]) -> usize {
    leaves.iter().map(|leaf| leaf.rows_at_most as usize).sum()
}

/// Threads for so many processors where nobody else reads: while one waits for the disk another has something to do.
fn threads_without_reader(processors: usize) -> usize {
    if processors > 1 {
        2 * processors
    } else {
        1
    }
}

/// Reads columns of a table from its pages, for so many processors; those of `combining` as combinations, if there are
/// few enough.
pub(crate) fn read(
    pages: &Pages,
    (table, root): (&str, u32),
    asked: &[(Stored, As)],
    combining: &[(Stored, As)],
    processors: usize,
    prefetch: Option<&Prefetch>,
    progress: &(impl Progress + ?Sized),
) -> Result<(usize, Vec<Column>, Option<Combined>)> {
    let following = prefetch.and_then(|prefetch| prefetch.follow(table));
    let walked;
    let leaves = match &following {
        Some(following) => following.leaves(),
        None => {
            walked = pages.bounded_leaves(table, root, processors)?;
            &walked.leaves
        }
    };
    let following = following.as_ref().filter(|following| following.is_fetched());
    let total = wide(rooms(leaves));
    progress.report(table, 0, total)?;
    let threads = if following.is_none() { threads_without_reader(processors) } else { processors };
    let threads = threads.clamp(1, leaves.len().div_ceil(LEAVES_PER_TASK).max(1));
    // Behind a reader all stay close to where it is.
    let followed = following.map_or(0, |_| leaves.len() * pages.page_bytes / TASK_BYTES);
    let tasks = (threads * TASKS_PER_THREAD).max(followed).min(leaves.len() / LEAVES_PER_TASK).max(1);
    let stretches: Vec<(usize, &[Leaf])> = cut(leaves.len(), tasks)
        .into_iter()
        .filter_map(|range| Some((range.start, leaves.get(range)?)))
        .collect();
    let lengths: Vec<usize> = stretches.iter().map(|(_, leaves)| rooms(leaves)).collect();
    let room = lengths.iter().sum();
    let mut values: Vec<Values> = asked.iter().map(|(_, kind)| Values::new(*kind, room)).collect();
    let mut codes: Vec<u16> = vec![0; if combining.is_empty() { 0 } else { room }];

    let mut tasks: Vec<Task<'_>> = stretches
        .iter()
        .enumerate()
        .map(|(number, (from, leaves))| Task {
            number,
            from: *from,
            leaves,
            parts: Vec::with_capacity(asked.len()),
            codes: None,
        })
        .collect();
    if !combining.is_empty() {
        for (task, part) in tasks.iter_mut().zip(split(&mut codes, &lengths)) {
            task.codes = Some(part);
        }
    }
    for column in &mut values {
        for (task, part) in tasks.iter_mut().zip(column.parts(&lengths)) {
            task.parts.push(part);
        }
    }
    let stored: Vec<Stored> = asked.iter().chain(combining).map(|(stored, _)| *stored).collect();
    let overflow_seen = pages.unvisited();
    let common = Common {
        pages,
        table,
        asked: &stored,
        following,
        overflow_seen: &overflow_seen,
        done: AtomicU64::new(0),
        failed: AtomicUsize::new(usize::MAX),
        cancelled: AtomicBool::new(false),
        too_many: AtomicBool::new(false),
    };
    let mut combinations: Vec<Combinations> =
        (0..threads).map(|number| Combinations::new(number, asked.len())).collect();
    let mut outcomes: Vec<Option<Result<Done>>> = tasks.iter().map(|_| None).collect();
    let finished = Mutex::new(&mut outcomes);
    let waiting = Mutex::new(tasks.into_iter());
    let next = || waiting.lock().ok()?.next();
    let work = |combinations: &mut Combinations, report: &dyn Fn(u64) -> Result<()>| {
        let again = pages.opened_again();
        while let Some(task) = next() {
            let number = task.number;
            if common.failed.load(Ordering::Relaxed) < number || common.cancelled.load(Ordering::Relaxed) {
                continue;
            }
            let outcome = common.run(task, combinations, again.as_ref(), report);
            if outcome.is_err() {
                common.failed.fetch_min(number, Ordering::Relaxed);
            }
            if let Some(slot) = finished.lock().ok().as_mut().and_then(|all| all.get_mut(number)) {
                *slot = Some(outcome);
            }
        }
    };
    std::thread::scope(|scope| {
        let mut each = combinations.iter_mut();
        let Some(own) = each.next() else { return };
        for of_thread in each {
            let work = &work;
            scope.spawn(move || work(of_thread, &|_| Ok(())));
        }
        // Only the calling thread reports: Python listens for Ctrl-C on its own thread alone.
        work(own, &|done| {
            progress.report(table, done, total.max(done)).inspect_err(|_| {
                common.cancelled.store(true, Ordering::Relaxed);
            })
        });
    });
    if common.cancelled.load(Ordering::Relaxed) {
        return Err(Error::Cancelled);
    }
    drop(waiting);
    let mut rows = Vec::with_capacity(lengths.len());
    let mut told: Vec<Vec<Told>> = asked.iter().map(|_| Vec::with_capacity(lengths.len())).collect();
    let mut combined = Vec::with_capacity(lengths.len());
    for outcome in outcomes {
        // A task that nobody ran comes after one that failed.
        let done = outcome.unwrap_or(Err(Error::Cancelled))?;
        rows.push(done.rows);
        combined.push((done.rows, done.combined));
        for (column, told_of) in told.iter_mut().zip(done.told) {
            column.push(told_of);
        }
    }
    let merged = (!combining.is_empty() && !common.too_many.load(Ordering::Relaxed)).then(|| {
        close_gaps(&mut codes, &lengths, &rows);
        let kinds: Vec<As> = combining.iter().map(|(_, kind)| *kind).collect();
        combined::merge(codes, &kinds, &combined, combinations)
    });
    let columns = values.into_iter().zip(told).collect();
    let columns = ThreadPool::new(processors)
        .each(columns, |(values, told): (Values, Vec<Told>)| values.finish(&lengths, &rows, told));
    Ok((rows.iter().sum(), columns, merged.flatten()))
}
