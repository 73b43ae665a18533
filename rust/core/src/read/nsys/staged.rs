//! Turn cells of any type into the columns of a declared table, independent of the order of the file.
//!
//! A [`Staged`] table takes cells, counts those that do not fit its columns, and is finished when strings and devices
//! are known: an export names strings by id, and devices are numbered only after all tables have been seen.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{
    make_array, Array, ArrayRef, DictionaryArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    StringArray, UInt32Array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::DataType;

use super::events::Times;
use super::layout::Place;
use crate::base::error::{Error, Result};
use crate::base::parallel::ThreadPool;
use crate::table::builder::Builder;
use crate::table::launch::{fold, is_folded, put_folded, reorder};
use crate::table::quality::{self, Quality};
use crate::table::schema::{Kind, Table};
use pyanalyze_sqlite::{replaced, As, Column, Combined, Distinct, Numbers, Row, Value};

/// The cell at `place`, [`Value::Null`] where the export has no such column.
pub(super) fn cell<'r>(row: &'r Row<'_>, place: Place) -> Value<'r> {
    place.map_or(Value::Null, |index| row.get(index))
}

/// An integer; `Err` for a cell that is none.
pub(super) fn integer(value: Value<'_>) -> std::result::Result<Option<i64>, ()> {
    value.integer()
}

/// Text, with what is not UTF-8 replaced; `None` for everything else.
pub(super) fn text(value: Value<'_>) -> Option<String> {
    match value {
        Value::Text(bytes) | Value::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(value) => Some(value.to_string()),
        Value::Real(value) => Some(value.to_string()),
        Value::Null => None,
    }
}

#[derive(Debug)]
enum Sink {
    U8(PrimitiveBuilder<UInt8Type>),
    U16(PrimitiveBuilder<UInt16Type>),
    U32(PrimitiveBuilder<UInt32Type>),
    U64(PrimitiveBuilder<UInt64Type>),
    I32(PrimitiveBuilder<Int32Type>),
    I64(PrimitiveBuilder<Int64Type>),
    F64(PrimitiveBuilder<Float64Type>),
    Name(Names),
    /// Device slots; [`NO_SLOT`] for none.
    Device(Vec<u32>),
    /// A column that came as a whole.
    Whole(ArrayRef),
}

const NO_SLOT: u32 = u32::MAX;

/// Puts `value` if it fits.
fn put<T: ArrowPrimitiveType>(sink: &mut PrimitiveBuilder<T>, value: Option<i64>) -> bool
where
    T::Native: TryFrom<i64>,
{
    let fitting = value.and_then(|v| T::Native::try_from(v).ok());
    sink.append_option(fitting);
    fitting.is_some() || value.is_none()
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    Id(i64),
    Text(String),
    /// A cell that can be no name.
    Nothing,
}

/// Names of rows, each distinct one kept once.
#[derive(Debug, Default)]
pub(super) struct Names {
    codes: Vec<u32>,
    entries: Vec<Name>,
    nothing: Option<u32>,
    ids: HashMap<i64, u32>,
    texts: HashMap<String, u32>,
}

impl Names {
    fn id(&mut self, id: i64) -> u32 {
        let next = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        *self.ids.entry(id).or_insert_with(|| {
            self.entries.push(Name::Id(id));
            next
        })
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(code) = self.texts.get(text) {
            return *code;
        }
        let code = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.entries.push(Name::Text(text.to_owned()));
        self.texts.insert(text.to_owned(), code);
        code
    }
}

impl Names {
    fn nothing(&mut self) -> u32 {
        let next = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        *self.nothing.get_or_insert_with(|| {
            self.entries.push(Name::Nothing);
            next
        })
    }

    pub(super) fn of(cells: Distinct) -> Self {
        let names = cells.entries.iter().map(|cell| match cell.value() {
            Value::Int(id) => Name::Id(id),
            Value::Text(bytes) => Name::Text(String::from_utf8_lossy(bytes).into_owned()),
            Value::Null | Value::Real(_) | Value::Blob(_) => Name::Nothing,
        });
        Self { entries: names.collect(), codes: cells.codes, ..Self::default() }
    }

    /// The string ids that they are.
    pub(super) fn needed_strings(&self) -> impl Iterator<Item = i64> + '_ {
        self.entries.iter().filter_map(|name| match name {
            Name::Id(id) => Some(*id),
            Name::Text(_) | Name::Nothing => None,
        })
    }
}

/// What the column `name` of `table` is read as.
///
/// # Errors
/// [`Error::Schema`] if the table has no such column, or one that is never read from a file.
pub(super) fn read_as(table: &Table, name: &str) -> Result<As> {
    match table.columns.iter().find(|c| c.name == name).map(|c| c.kind) {
        Some(Kind::U8) => Ok(As::U8),
        Some(Kind::U16) => Ok(As::U16),
        Some(Kind::U32) => Ok(As::U32),
        Some(Kind::U64) => Ok(As::U64),
        Some(Kind::I32) => Ok(As::I32),
        Some(Kind::I64) => Ok(As::I64),
        Some(Kind::Name) => Ok(As::Distinct),
        _ => Err(Error::schema(&table.id(), format!("cannot read a column {name}"))),
    }
}

/// A column of numbers as it was read, and the rows whose cells were refused; `None` for one of names.
fn numbers(column: Column, zero_is_none: bool) -> Option<(ArrayRef, Vec<u32>)> {
    fn of<T: ArrowPrimitiveType>(
        mut numbers: Numbers<T::Native>,
        zero_is_none: bool,
    ) -> Option<(ArrayRef, Vec<u32>)> {
        // Nulls have the value 0 too.
        let zero = T::Native::default();
        let no_value = numbers.nulls.as_ref().is_some_and(|nulls| nulls.null_count() == nulls.len());
        if zero_is_none && !no_value && numbers.values.contains(&zero) {
            let bit = |word: u64, (bit, there): (usize, bool)| word | u64::from(there) << bit;
            let words = numbers
                .values
                .chunks(64)
                .map(|values| values.iter().map(|value| *value != zero).enumerate().fold(0, bit));
            let words = Buffer::from(words.collect::<Vec<u64>>());
            let there = BooleanBuffer::new(words, 0, numbers.values.len());
            numbers.nulls = Some(NullBuffer::new(there));
        }
        let array = PrimitiveArray::<T>::new(numbers.values.into(), numbers.nulls);
        Some((Arc::new(without_zeroes(array)), numbers.refused))
    }
    match column {
        Column::U8(column) => of::<UInt8Type>(column, zero_is_none),
        Column::U16(column) => of::<UInt16Type>(column, zero_is_none),
        Column::U32(column) => of::<UInt32Type>(column, zero_is_none),
        Column::I32(column) => of::<Int32Type>(column, zero_is_none),
        Column::I64(column) => of::<Int64Type>(column, zero_is_none),
        Column::U64(column) => of::<UInt64Type>(column, zero_is_none),
        Column::Distinct(_) => None,
    }
}

/// Columns that are held once for all rows that are alike (`table/launch.rs`).
#[derive(Debug)]
struct Alike {
    keys: Vec<u16>,
    configurations: usize,
    columns: Vec<(&'static str, ArrayRef)>,
}

/// A column of a [`Staged`] table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot(usize);

/// A table on its way in.
#[derive(Debug)]
pub(super) struct Staged {
    table: &'static Table,
    columns: Vec<(&'static str, Sink)>,
    alike: Option<Alike>,
    rows: usize,
    known: Times,
    out_of_range: BTreeMap<&'static str, u64>,
}

impl Staged {
    pub(super) fn new(table: &'static Table) -> Self {
        Self {
            table,
            columns: Vec::new(),
            alike: None,
            rows: 0,
            known: Times::default(),
            out_of_range: BTreeMap::new(),
        }
    }

    /// Opens the column `name`.
    ///
    /// # Errors
    /// [`Error::Schema`] if the table has no such column, or one of another kind.
    pub(super) fn column(&mut self, name: &'static str) -> Result<Slot> {
        let kind = self.table.columns.iter().find(|c| c.name == name).map(|c| c.kind);
        let sink = match kind {
            Some(Kind::U32) if name == "device_id" => Sink::Device(Vec::new()),
            Some(Kind::U8) => Sink::U8(PrimitiveBuilder::new()),
            Some(Kind::U16) => Sink::U16(PrimitiveBuilder::new()),
            Some(Kind::U32) => Sink::U32(PrimitiveBuilder::new()),
            Some(Kind::U64) => Sink::U64(PrimitiveBuilder::new()),
            Some(Kind::I32) => Sink::I32(PrimitiveBuilder::new()),
            Some(Kind::I64) => Sink::I64(PrimitiveBuilder::new()),
            Some(Kind::F64) => Sink::F64(PrimitiveBuilder::new()),
            Some(Kind::Name) => Sink::Name(Names::default()),
            _ => return Err(Error::schema(&self.table.id(), format!("cannot stage a column {name}"))),
        };
        self.columns.push((name, sink));
        Ok(Slot(self.columns.len() - 1))
    }

    /// Counts a cell of `column` that became null.
    pub(super) fn refuse(&mut self, column: &'static str) {
        *self.out_of_range.entry(column).or_default() += 1;
    }

    /// Appends an integer, or null where it does not fit.
    pub(super) fn put(&mut self, slot: Slot, value: Option<i64>) {
        let Some((name, sink)) = self.columns.get_mut(slot.0) else { return };
        let fits = match sink {
            Sink::U8(sink) => put(sink, value),
            Sink::U16(sink) => put(sink, value),
            Sink::U32(sink) => put(sink, value),
            Sink::I32(sink) => put(sink, value),
            Sink::I64(sink) => put(sink, value),
            // Ids of 64 bits: SQLite can only store them as signed numbers.
            Sink::U64(sink) => {
                sink.append_option(value.map(i64::cast_unsigned));
                true
            }
            Sink::Device(sink) => {
                sink.push(value.and_then(|v| u32::try_from(v).ok()).unwrap_or(NO_SLOT));
                true
            }
            Sink::F64(_) | Sink::Name(_) | Sink::Whole(_) => false,
        };
        if !fits {
            *self.out_of_range.entry(name).or_default() += 1;
        }
    }

    /// Appends a cell that should be an integer.
    pub(super) fn put_cell(&mut self, slot: Slot, value: Value<'_>) {
        let value = integer(value).unwrap_or_else(|()| {
            if let Some((name, _)) = self.columns.get(slot.0) {
                *self.out_of_range.entry(name).or_default() += 1;
            }
            None
        });
        self.put(slot, value);
    }

    /// Appends a measured value.
    pub(super) fn put_f64(&mut self, slot: Slot, value: f64) {
        if let Some((_, Sink::F64(sink))) = self.columns.get_mut(slot.0) {
            sink.append_value(value);
        }
    }

    /// Appends a name: an id into the strings of the export, or (in trimmed exports) the text itself.
    pub(super) fn put_name(&mut self, slot: Slot, value: Value<'_>) {
        let Some((_, Sink::Name(names))) = self.columns.get_mut(slot.0) else { return };
        let code = match value {
            Value::Int(id) => names.id(id),
            Value::Text(bytes) => names.text(&String::from_utf8_lossy(bytes)),
            Value::Null | Value::Real(_) | Value::Blob(_) => names.nothing(),
        };
        names.codes.push(code);
    }

    /// Says how many rows the columns have that come as a whole, and what is known of their times.
    pub(super) fn set_rows(&mut self, rows: usize, known: Times) {
        (self.rows, self.known) = (rows, known);
    }

    /// The latest end, if it is known.
    pub(super) fn last_ns(&self) -> Option<i64> {
        self.known.last_ns
    }

    /// Puts a whole column.
    pub(super) fn put_array(&mut self, name: &'static str, array: impl Array + 'static) {
        self.columns.push((name, Sink::Whole(Arc::new(array))));
    }

    /// Puts the device slots of all rows.
    pub(super) fn put_devices(&mut self, slots: Vec<u32>) {
        self.columns.push(("device_id", Sink::Device(slots)));
    }

    /// Puts a whole column as it was read; cells that were refused are counted.
    pub(super) fn put_column(&mut self, name: &'static str, column: Column, zero_is_none: bool) {
        let column = match column {
            Column::Distinct(cells) => return self.columns.push((name, Sink::Name(Names::of(cells)))),
            column => numbers(column, zero_is_none),
        };
        if let Some((array, refused)) = column {
            if !refused.is_empty() {
                let refused = u64::try_from(refused.len()).unwrap_or(u64::MAX);
                *self.out_of_range.entry(name).or_default() += refused;
            }
            self.columns.push((name, Sink::Whole(array)));
        }
    }

    /// Puts what rows that are alike have in common: `keys` say which of so many configurations each has.
    pub(super) fn put_alike(
        &mut self,
        keys: Vec<u16>,
        configurations: usize,
        columns: Vec<(&'static str, ArrayRef)>,
    ) {
        self.alike = Some(Alike { keys, configurations, columns });
    }

    /// Puts such columns as they were read; cells that were refused are counted.
    pub(super) fn put_combined(&mut self, names: &[&'static str], combined: Combined) {
        let mut rows_of: Vec<u64> = vec![0; combined.distinct];
        let mut columns = Vec::with_capacity(names.len());
        for (name, column) in names.iter().zip(combined.columns) {
            let Some((array, refused)) = numbers(column, false) else { continue };
            columns.push((*name, array));
            if refused.is_empty() {
                continue;
            }
            if rows_of.iter().all(|rows| *rows == 0) {
                for code in &combined.codes {
                    rows_of.get_mut(usize::from(*code)).into_iter().for_each(|rows| *rows += 1);
                }
            }
            let rows: u64 = refused.iter().filter_map(|place| rows_of.get(*place as usize)).sum();
            *self.out_of_range.entry(name).or_default() += rows;
        }
        self.put_alike(combined.codes, combined.distinct, columns);
    }

    /// Ends a row: every open column must have got one cell.
    pub(super) fn end_row(&mut self) {
        self.rows += 1;
    }

    /// The string ids that its names point to.
    pub(super) fn needed_strings(&self) -> impl Iterator<Item = i64> + '_ {
        let names = self.columns.iter().filter_map(|(_, sink)| match sink {
            Sink::Name(names) => Some(names),
            _ => None,
        });
        names.flat_map(Names::needed_strings)
    }

    /// The finished table, sorted by `order`.
    ///
    /// `strings` resolves string ids, `devices` turns device slots into device ids.
    ///
    /// # Errors
    /// [`Error::Schema`] if this disagrees with the declaration of the table.
    pub(super) fn finish(
        self,
        capture: u32,
        strings: &HashMap<i64, String>,
        devices: &[u32],
        order: &[&str],
        quality: &mut Quality,
    ) -> Result<RecordBatch> {
        let name = self.table.name;
        for (column, count) in &self.out_of_range {
            quality.add(Some(capture), quality::VALUE_OUT_OF_RANGE, *count, format!("{name}.{column}"));
        }
        let mut builder =
            Builder::new(self.table).put("capture", UInt32Array::from(vec![capture; self.rows]));
        let device_of: Vec<Option<u32>> = devices.iter().copied().map(Some).collect();
        // What is left to do is the same for every row, so that a thread for a column is enough.
        let finished = ThreadPool::for_rows(self.rows).each(self.columns, |(column, sink)| -> Result<_> {
            let array: ArrayRef = match sink {
                Sink::U8(mut sink) => Arc::new(sink.finish()),
                Sink::U16(mut sink) => Arc::new(sink.finish()),
                Sink::U32(mut sink) => Arc::new(sink.finish()),
                Sink::U64(mut sink) => Arc::new(sink.finish()),
                Sink::I32(mut sink) => Arc::new(sink.finish()),
                Sink::I64(mut sink) => Arc::new(sink.finish()),
                Sink::F64(mut sink) => Arc::new(sink.finish()),
                Sink::Device(slots) => Arc::new(without_zeroes(replaced(slots, &device_of))),
                Sink::Whole(array) => array,
                Sink::Name(names) => {
                    let (array, missing) = resolve(names, strings)?;
                    return Ok((column, Arc::new(array) as ArrayRef, missing));
                }
            };
            Ok((column, array, 0))
        });
        for finished in finished {
            let (column, array, missing) = finished?;
            quality.add(Some(capture), quality::NAME_MISSING, missing, format!("{name}.{column}"));
            builder = builder.put(column, array);
        }
        let mut batch = builder.finish(self.rows)?;
        if let Some(alike) = self.alike {
            batch = put_folded(self.table, &batch, alike.keys, alike.configurations, &alike.columns)?;
        }
        let sorted = self.known.ascending && order.first() == Some(&"start_ns");
        fold(self.table, share_equal(if sorted { batch } else { sort(self.table, batch, order)? })?)
    }
}

/// The same column; one of zeroes only takes no memory: the system has them until somebody writes to them.
fn without_zeroes<T: ArrowPrimitiveType>(array: PrimitiveArray<T>) -> PrimitiveArray<T> {
    let zero = T::Native::default();
    if array.values().iter().any(|value| *value != zero) {
        return array;
    }
    let nulls = array.nulls().cloned();
    PrimitiveArray::new(vec![zero; array.len()].into(), nulls)
}

/// Names as a dictionary; different ids may stand for one text. Also: how many rows point nowhere.
pub(super) fn resolve(
    names: Names,
    strings: &HashMap<i64, String>,
) -> Result<(DictionaryArray<UInt32Type>, u64)> {
    let mut keys: Vec<Option<u32>> = Vec::with_capacity(names.entries.len());
    let mut values: Vec<&str> = Vec::new();
    let mut known: HashMap<&str, u32> = HashMap::new();
    for entry in &names.entries {
        let text = match entry {
            Name::Id(id) => strings.get(id).map(String::as_str),
            Name::Text(text) => Some(text.as_str()),
            Name::Nothing => None,
        };
        keys.push(text.map(|text| {
            *known.entry(text).or_insert_with(|| {
                values.push(text);
                u32::try_from(values.len() - 1).unwrap_or(u32::MAX)
            })
        }));
    }
    let nowhere = |code: &&u32| {
        let at = **code as usize;
        keys.get(at).copied().flatten().is_none() && !matches!(names.entries.get(at), Some(Name::Nothing))
    };
    let whole = keys.iter().all(Option::is_some);
    let missing = if whole { 0 } else { names.codes.iter().filter(nowhere).count() };
    // Whether there is a text for every code is looked at once, by who makes the dictionary.
    let as_they_are = keys.iter().zip(0..).all(|(key, code)| *key == Some(code));
    let rows =
        if as_they_are { UInt32Array::new(names.codes.into(), None) } else { replaced(names.codes, &keys) };
    let values = StringArray::from(values);
    let array = DictionaryArray::try_new(rows, std::sync::Arc::new(values))
        .map_err(|e| Error::schema("names", e.to_string()))?;
    Ok((array, u64::try_from(missing).unwrap_or(u64::MAX)))
}

/// Holds the values of columns that are equal once: most kernels have one dimension, so that half of what their grids and
/// blocks say is 1, and the short name of a kernel has the number of its name.
fn share_equal(batch: RecordBatch) -> Result<RecordBatch> {
    let width = |column: &ArrayRef| match column.data_type() {
        DataType::Dictionary(key, _) => key.primitive_width(),
        other => other.primitive_width(),
    };
    let (schema, columns, rows) = batch.into_parts();
    let mut shared: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        if is_folded(&column) {
            shared.push(column);
            continue;
        }
        let data = column.to_data();
        let mut like = shared
            .iter()
            .filter(|other| !is_folded(other) && width(other) == width(&column))
            .map(ArrayRef::to_data);
        let equal = like.find_map(|other| match (data.buffers(), other.buffers()) {
            ([own], [values]) if own == values => Some(values.clone()),
            _ => None,
        });
        drop(like);
        shared.push(match equal {
            // Nulls and texts are its own.
            Some(values) => {
                let data = data.into_builder().buffers(vec![values]).build();
                make_array(data.map_err(|e| Error::schema("columns", e.to_string()))?)
            }
            None => column,
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, shared, &options)
        .map_err(|e| Error::schema("columns", e.to_string()))
}

/// Sorts `batch` by the columns of `order`, so that nothing depends on the order of rows in the file.
///
/// Most tables come sorted by time, so the other columns are looked at only where times are equal.
fn sort(table: &Table, batch: RecordBatch, order: &[&str]) -> Result<RecordBatch> {
    // What has no times was put in order as it was staged.
    if order.is_empty() {
        return Ok(batch);
    }
    let keys: Vec<ArrayRef> = order.iter().filter_map(|name| batch.column_by_name(name)).cloned().collect();
    let ranks: Vec<Option<Vec<u32>>> = keys.iter().map(|key| text_ranks(key.as_ref())).collect();
    let Some(first) = keys.first().and_then(|key| key.as_primitive_opt::<Int64Type>()) else {
        return Err(Error::schema("sort", "no table begins its order with anything but a time"));
    };
    let first = first.values().clone();
    let later = |a: usize, b: usize| {
        let others = keys.iter().zip(&ranks).skip(1);
        others
            .map(|(key, ranks)| compare(key.as_ref(), ranks.as_deref(), a, b))
            .find(|o| *o != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    };
    let pool = ThreadPool::for_rows(first.len());
    // A pair belongs to the part in which its first row is.
    let part = pool.rows(first.len());
    let sorted = pool.each((0..first.len()).step_by(part).collect(), |from| {
        let pairs = first.get(from..first.len().min(from + part + 1)).unwrap_or_default().windows(2);
        (from..).zip(pairs).all(|(row, pair)| match pair {
            [a, b] => a < b || (a == b && later(row, row + 1) != Ordering::Greater),
            _ => true,
        })
    });
    if sorted.into_iter().all(|sorted| sorted) {
        return Ok(batch);
    }
    let mut places: Vec<u32> = (0_u32..).take(batch.num_rows()).collect();
    places.sort_by(|a, b| {
        let (a, b) = (*a as usize, *b as usize);
        first.get(a).cmp(&first.get(b)).then_with(|| later(a, b))
    });
    let places = UInt32Array::from(places);
    drop((keys, ranks, first));
    reorder(table, batch, &places)
}

/// The place of every dictionary entry in the order of texts; `None` for a column of numbers.
fn text_ranks(array: &dyn Array) -> Option<Vec<u32>> {
    let dictionary = array.as_dictionary_opt::<UInt32Type>()?;
    let values = dictionary.values().as_string_opt::<i32>()?;
    let mut by_text: Vec<usize> = (0..values.len()).collect();
    by_text.sort_by_key(|i| values.value(*i));
    let mut rank = vec![0; values.len()];
    for (place, value) in (0..).zip(by_text) {
        if let Some(slot) = rank.get_mut(value) {
            *slot = place;
        }
    }
    Some(rank)
}

/// Which of two rows comes first by this column; nulls first, ids in the order of their signed numbers.
fn compare(array: &dyn Array, ranks: Option<&[u32]>, a: usize, b: usize) -> Ordering {
    if let (Some(ranks), Some(names)) = (ranks, array.as_dictionary_opt::<UInt32Type>()) {
        let rank = |row| names.key(row).and_then(|key| ranks.get(key)).copied();
        return rank(a).cmp(&rank(b));
    }
    if let Some(folded) = array.as_dictionary_opt::<UInt16Type>() {
        return match (folded.key(a), folded.key(b)) {
            (Some(a), Some(b)) => compare(folded.values().as_ref(), None, a, b),
            (a, b) => a.cmp(&b),
        };
    }
    macro_rules! typed {
        ($($type:ty),*) => {$(
            if let Some(numbers) = array.as_primitive_opt::<$type>() {
                let at = |row| numbers.is_valid(row).then(|| numbers.value(row));
                return at(a).cmp(&at(b));
            }
        )*};
    }
    typed!(UInt32Type, Int64Type, UInt8Type, UInt16Type, Int32Type);
    if let Some(ids) = array.as_primitive_opt::<UInt64Type>() {
        let at = |row| ids.is_valid(row).then(|| ids.value(row).cast_signed());
        return at(a).cmp(&at(b));
    }
    if let Some(values) = array.as_primitive_opt::<Float64Type>() {
        return values.value(a).total_cmp(&values.value(b));
    }
    Ordering::Equal
}
