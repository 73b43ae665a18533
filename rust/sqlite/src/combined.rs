//! Decode columns whose values come in few combinations once for each combination.
//!
//! Of such columns a row gets one code, so that millions of rows take two bytes each, however many columns there are.
//! Rows of one shape with the same bytes in these columns have the same combination: a row costs a look at those bytes,
//! and its cells are decoded only where its bytes are new to a task. Combinations are known to a thread over all of its
//! tasks; at the end those of all threads get codes in the order in which rows first have them, so that the number of
//! threads does not change the result.

use std::collections::hash_map::Entry;
use std::collections::HashMap;

use crate::columns::{As, Column, Values};
use crate::cursor::Cursor;
use crate::parallel::ThreadPool;
use crate::record::{Cell, Meaning};
use crate::Value;

/// As many as a code can tell apart; where there are more, columns are read row by row.
const MOST: usize = 1 << 16;
/// Places for bytes that a task has seen; a power of two.
const SLOTS: usize = 1 << 12;
/// A part of them stays empty, so that new bytes are soon known to be new.
const FULL: usize = SLOTS / 2;

/// Columns whose values come in few combinations, each distinct one kept once.
#[derive(Debug, Clone)]
pub struct Combined {
    /// One a row: a place in each of `columns`.
    pub codes: Vec<u16>,
    /// How many distinct combinations there are.
    pub distinct: usize,
    /// The distinct combinations, in the order in which the table first has them.
    pub columns: Vec<Column>,
}

impl Combined {
    /// Leaves only `rows`, which are in order, and the combinations that they have.
    pub fn keep(&mut self, rows: &[u32]) {
        self.codes = rows.iter().filter_map(|row| self.codes.get(*row as usize).copied()).collect();
        let mut there = vec![false; MOST];
        for code in &self.codes {
            if let Some(there) = there.get_mut(usize::from(*code)) {
                *there = true;
            }
        }
        // Rows were left out, none was moved: what stays is still in the order in which rows have it, but for
        // combinations whose first row is gone, and nothing depends on that.
        let kept: Vec<u32> = (0..).zip(&there).filter(|(_, there)| **there).map(|(code, _)| code).collect();
        let mut places = vec![0; MOST];
        for (place, code) in (0_u16..=u16::MAX).zip(&kept) {
            if let Some(slot) = places.get_mut(*code as usize) {
                *slot = place;
            }
        }
        replace(&mut self.codes, &places);
        self.distinct = kept.len();
        self.columns.iter_mut().for_each(|column| column.keep(&kept));
    }
}

fn replace(codes: &mut [u16], places: &[u16]) {
    for code in codes {
        *code = places.get(usize::from(*code)).copied().unwrap_or(0);
    }
}

/// What a cell says where a number is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Number {
    Null,
    Whole(i64),
    /// Anything else.
    None,
}

impl Number {
    fn of(value: Value<'_>) -> Self {
        match value.integer() {
            Ok(None) => Self::Null,
            Ok(Some(number)) => Self::Whole(number),
            Err(()) => Self::None,
        }
    }

    /// A cell that says it.
    fn value(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Whole(number) => Value::Int(number),
            Self::None => Value::Blob(&[]),
        }
    }
}

/// Where rows of a shape have the bytes of all these columns: 8 bytes from a place on, and which of them count. `None`
/// where bytes alone do not tell the numbers.
type Layout = Option<Vec<(u32, u64)>>;

fn layout<'c>(cells: impl Iterator<Item = &'c Cell>) -> Layout {
    let mut bytes: Vec<u32> = Vec::new();
    for cell in cells {
        match (cell.meaning, cell.stored()) {
            // What is not there, and what stands in the header, is the same in all rows of the shape.
            (Meaning::Null, _) | (Meaning::Int, None) => {}
            (Meaning::Int, Some((at, len))) => bytes.extend(at..at + len),
            _ => return None,
        }
    }
    bytes.sort_unstable();
    let mut words: Vec<(u32, u64)> = Vec::new();
    for byte in bytes {
        match words.last_mut() {
            Some((at, mask)) if byte - *at < 8 => *mask |= 0xff << (8 * (byte - *at)),
            _ => words.push((byte, 0xff)),
        }
    }
    Some(words)
}

/// Bytes that a task has seen.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u64,
    shape: u16,
    code: u16,
    /// Where they stand among all that were seen.
    words: usize,
}

/// Combinations seen by a thread.
#[derive(Debug)]
pub(crate) struct Combinations {
    number: usize,
    /// Which of the asked columns of a cursor these are: those from here on.
    from: usize,
    known: HashMap<Vec<Number>, u16>,
    /// The task that had each last.
    task_of: Vec<usize>,
    // Of one task, because shapes are.
    task: usize,
    firsts: Vec<u16>,
    forgotten: u64,
    layouts: Vec<Layout>,
    slots: Vec<Option<Slot>>,
    filled: usize,
    words: Vec<u64>,
    row: Vec<u64>,
}

/// More combinations than there are codes.
#[derive(Debug)]
pub(crate) struct TooMany;

impl Combinations {
    /// None yet, of the `number`-th thread and the asked columns from `from` on.
    pub(crate) fn new(number: usize, from: usize) -> Self {
        Self {
            number,
            from,
            known: HashMap::new(),
            task_of: Vec::new(),
            task: 0,
            firsts: Vec::new(),
            forgotten: 0,
            layouts: Vec::new(),
            slots: vec![None; SLOTS],
            filled: 0,
            words: Vec::new(),
            row: Vec::new(),
        }
    }

    /// Begins a task.
    pub(crate) fn begin(&mut self, task: usize) {
        self.task = task;
        self.forget_shapes();
    }

    /// Ends it: whose codes its rows have, and which, in the order in which rows first have them.
    pub(crate) fn end(&mut self) -> (usize, Vec<u16>) {
        (self.number, std::mem::take(&mut self.firsts))
    }

    fn forget_shapes(&mut self) {
        self.layouts.clear();
        self.forget_bytes();
    }

    fn forget_bytes(&mut self) {
        self.slots.fill(None);
        self.words.clear();
        self.filled = 0;
    }

    /// Puts the codes of the rows of a block.
    pub(crate) fn take(&mut self, cursor: &Cursor<'_>, codes: &mut [u16]) -> Result<(), TooMany> {
        let (block, shapes) = (&cursor.block, &cursor.shapes);
        if self.forgotten != shapes.forgotten() {
            self.forgotten = shapes.forgotten();
            self.forget_shapes();
        }
        for shape in self.layouts.len()..shapes.len() {
            self.layouts.push(layout((self.from..shapes.asked()).filter_map(|c| shapes.cells(c).get(shape))));
        }
        let places = block.starts.iter().zip(&block.shape_of);
        for ((row, (start, shape)), code) in places.enumerate().zip(codes) {
            *code = self.code(cursor, row, (*start, *shape))?;
        }
        Ok(())
    }

    /// The code of a row that begins at `start` of the buffer.
    #[inline]
    fn code(&mut self, cursor: &Cursor<'_>, row: usize, (start, shape): (u32, u16)) -> Result<u16, TooMany> {
        let Some(Some(layout)) = self.layouts.get(usize::from(shape)) else {
            return self.decoded(cursor, row, (start, shape));
        };
        self.row.clear();
        self.row.extend(layout.iter().map(|(at, mask)| {
            let from = start.wrapping_add(*at) as usize;
            let bytes = cursor.buffer.get(from..).and_then(<[u8]>::first_chunk).copied();
            u64::from_le_bytes(bytes.unwrap_or_default()) & mask
        }));
        let mix = |hash: u64, word: &u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = self.row.iter().fold(mix(0, &u64::from(shape)), mix);
        let mut place = (hash >> 52) as usize % SLOTS;
        while let Some(Some(slot)) = self.slots.get(place) {
            let seen = self.words.get(slot.words..slot.words + self.row.len());
            if slot.hash == hash && slot.shape == shape && seen == Some(&self.row) {
                return Ok(slot.code);
            }
            place = (place + 1) % SLOTS;
        }
        let code = self.decoded(cursor, row, (start, shape))?;
        if self.filled == FULL {
            self.forget_bytes();
        }
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Some(Slot { hash, shape, code, words: self.words.len() });
            self.words.extend_from_slice(&self.row);
            self.filled += 1;
        }
        Ok(code)
    }

    /// The same from its cells.
    #[inline(never)]
    fn decoded(
        &mut self,
        cursor: &Cursor<'_>,
        row: usize,
        (start, shape): (u32, u16),
    ) -> Result<u16, TooMany> {
        let number = |column| {
            let cell = cursor.shapes.cells(column).get(usize::from(shape)).unwrap_or(&Cell::NULL);
            Number::of(cell.value(&cursor.buffer, start, cursor.block.row_id(row)))
        };
        let numbers: Vec<Number> = (self.from..cursor.shapes.asked()).map(number).collect();
        let next = u16::try_from(self.known.len());
        let code = match self.known.entry(numbers) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.task_of.push(usize::MAX);
                *new.insert(next.map_err(|_| TooMany)?)
            }
        };
        let task = self.task_of.get_mut(usize::from(code));
        if let Some(task) = task.filter(|task| **task != self.task) {
            *task = self.task;
            self.firsts.push(code);
        }
        Ok(code)
    }

    /// All of them, by code.
    fn into_list(self) -> Vec<Vec<Number>> {
        let mut all: Vec<(u16, Vec<Number>)> = self.known.into_iter().map(|(of, code)| (code, of)).collect();
        all.sort_unstable_by_key(|(code, _)| *code);
        all.into_iter().map(|(_, numbers)| numbers).collect()
    }
}

/// Makes one list of the combinations of all threads, first seen first, and the codes point into it. `tasks` are, in the
/// order of the rows, how many each had and what [`Combinations::end`] said of it.
pub(crate) fn merge(
    mut codes: Vec<u16>,
    kinds: &[As],
    tasks: &[(usize, (usize, Vec<u16>))],
    threads: Vec<Combinations>,
) -> Option<Combined> {
    let lists: Vec<Vec<Vec<Number>>> = threads.into_iter().map(Combinations::into_list).collect();
    let mut known: HashMap<&[Number], u16> = HashMap::new();
    let mut all: Vec<&[Number]> = Vec::new();
    let mut moved = Vec::new();
    let mut rest = codes.as_mut_slice();
    for (rows, (thread, firsts)) in tasks {
        let list = lists.get(*thread)?;
        let mut places = vec![0; list.len()];
        for code in firsts {
            let numbers = list.get(usize::from(*code))?.as_slice();
            let place = match known.entry(numbers) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    all.push(numbers);
                    *new.insert(u16::try_from(all.len() - 1).ok()?)
                }
            };
            *places.get_mut(usize::from(*code))? = place;
        }
        let (part, others) = std::mem::take(&mut rest).split_at_mut_checked(*rows)?;
        rest = others;
        if firsts.iter().any(|code| places.get(usize::from(*code)) != Some(code)) {
            moved.push((part, places));
        }
    }
    ThreadPool::for_rows(moved.iter().map(|(part, _)| part.len()).sum())
        .each(moved, |(part, places): (&mut [u16], Vec<u16>)| replace(part, &places));
    let columns = kinds.iter().enumerate().map(|(column, kind)| {
        let cells = all.iter().filter_map(|numbers| numbers.get(column)).map(|number| number.value());
        Values::of(*kind, all.len(), cells)
    });
    let columns = columns.collect();
    Some(Combined { codes, distinct: all.len(), columns })
}
