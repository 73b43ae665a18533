//! How do cells of any type become the columns of a declared table, in an order that says nothing
//! about the order of the file?
//!
//! A [`Staged`] table takes cells, counts what does not fit its columns, and is finished when the
//! strings and the devices are known: an export names strings by id, and devices are numbered only
//! after all tables have been seen.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use arrow_array::builder::PrimitiveBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{Array, DictionaryArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_select::take::take_record_batch;

use super::layout::Place;
use crate::error::{Error, Result};
use crate::quality::{self, Quality};
use crate::schema::{Builder, Kind, Table};
use crate::sqlite::{Row, Value};

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
    Device(Vec<Option<u32>>),
}

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
}

/// Names of rows, each distinct one kept once.
#[derive(Debug, Default)]
struct Names {
    codes: Vec<Option<u32>>,
    entries: Vec<Name>,
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

/// A column of a [`Staged`] table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot(usize);

/// A table on its way in.
#[derive(Debug)]
pub(super) struct Staged {
    table: &'static Table,
    columns: Vec<(&'static str, Sink)>,
    rows: usize,
    out_of_range: BTreeMap<&'static str, u64>,
}

impl Staged {
    pub(super) fn new(table: &'static Table) -> Self {
        Self { table, columns: Vec::new(), rows: 0, out_of_range: BTreeMap::new() }
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
                sink.push(value.and_then(|v| u32::try_from(v).ok()));
                true
            }
            Sink::F64(_) | Sink::Name(_) => false,
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
            Value::Int(id) => Some(names.id(id)),
            Value::Text(bytes) => Some(names.text(&String::from_utf8_lossy(bytes))),
            Value::Null | Value::Real(_) | Value::Blob(_) => None,
        };
        names.codes.push(code);
    }

    /// Ends a row: every open column must have got one cell.
    pub(super) fn end_row(&mut self) {
        self.rows += 1;
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The string ids that its names point to.
    pub(super) fn needed_strings(&self) -> impl Iterator<Item = i64> + '_ {
        self.columns
            .iter()
            .flat_map(|(_, sink)| match sink {
                Sink::Name(names) => names.entries.as_slice(),
                _ => &[],
            })
            .filter_map(|name| match name {
                Name::Id(id) => Some(*id),
                Name::Text(_) => None,
            })
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
        for (column, sink) in self.columns {
            builder = match sink {
                Sink::U8(mut sink) => builder.put(column, sink.finish()),
                Sink::U16(mut sink) => builder.put(column, sink.finish()),
                Sink::U32(mut sink) => builder.put(column, sink.finish()),
                Sink::U64(mut sink) => builder.put(column, sink.finish()),
                Sink::I32(mut sink) => builder.put(column, sink.finish()),
                Sink::I64(mut sink) => builder.put(column, sink.finish()),
                Sink::F64(mut sink) => builder.put(column, sink.finish()),
                Sink::Device(slots) => {
                    let ids = slots.iter().map(|s| devices.get(usize::try_from((*s)?).ok()?).copied());
                    builder.put(column, ids.collect::<UInt32Array>())
                }
                Sink::Name(names) => {
                    let (array, missing) = resolve(&names, strings)?;
                    quality.add(Some(capture), quality::NAME_MISSING, missing, format!("{name}.{column}"));
                    builder.put(column, array)
                }
            };
        }
        sort(&builder.finish(self.rows)?, order)
    }
}

/// Names as a dictionary; different ids may stand for one text. Also: how many rows point nowhere.
fn resolve(names: &Names, strings: &HashMap<i64, String>) -> Result<(DictionaryArray<UInt32Type>, u64)> {
    let mut keys: Vec<Option<u32>> = Vec::with_capacity(names.entries.len());
    let mut values: Vec<&str> = Vec::new();
    let mut known: HashMap<&str, u32> = HashMap::new();
    for entry in &names.entries {
        let text = match entry {
            Name::Id(id) => strings.get(id).map(String::as_str),
            Name::Text(text) => Some(text.as_str()),
        };
        keys.push(text.map(|text| {
            *known.entry(text).or_insert_with(|| {
                values.push(text);
                u32::try_from(values.len() - 1).unwrap_or(u32::MAX)
            })
        }));
    }
    let mut missing = 0;
    let rows = names.codes.iter().map(|code| {
        let code = usize::try_from((*code)?).ok()?;
        let key = keys.get(code).copied().flatten();
        missing += u64::from(key.is_none());
        key
    });
    let rows: UInt32Array = rows.collect();
    let values = StringArray::from(values);
    let array = DictionaryArray::try_new(rows, std::sync::Arc::new(values))
        .map_err(|e| Error::schema("names", e.to_string()))?;
    Ok((array, missing))
}

/// Sorts `batch` by the columns of `order`, so that nothing depends on the order of rows in the file.
fn sort(batch: &RecordBatch, order: &[&str]) -> Result<RecordBatch> {
    let keys: Vec<Vec<i64>> =
        order.iter().filter_map(|name| batch.column_by_name(name)).map(|a| sort_key(a.as_ref())).collect();
    let compare = |a: usize, b: usize| {
        keys.iter()
            .map(|k| k.get(a).cmp(&k.get(b)))
            .find(|o| *o != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    };
    let rows = batch.num_rows();
    if (1..rows).all(|row| compare(row - 1, row) != Ordering::Greater) {
        return Ok(batch.clone());
    }
    let mut places: Vec<usize> = (0..rows).collect();
    places.sort_by(|a, b| compare(*a, *b));
    let places: UInt64Array = places.into_iter().map(|p| u64::try_from(p).ok()).collect();
    take_record_batch(batch, &places).map_err(|e| Error::schema("sort", e.to_string()))
}

/// Numbers in the order of the column's values; nulls first.
fn sort_key(array: &dyn Array) -> Vec<i64> {
    if let Some(dictionary) = array.as_dictionary_opt::<UInt32Type>() {
        let Some(values) = dictionary.values().as_string_opt::<i32>() else { return Vec::new() };
        let mut by_text: Vec<usize> = (0..values.len()).collect();
        by_text.sort_by_key(|i| values.value(*i));
        let mut rank = vec![0_i64; values.len()];
        for (place, value) in by_text.into_iter().enumerate() {
            if let (Some(slot), Ok(place)) = (rank.get_mut(value), i64::try_from(place)) {
                *slot = place;
            }
        }
        return (0..dictionary.len())
            .map(|row| dictionary.key(row).and_then(|k| rank.get(k).copied()).unwrap_or(i64::MIN))
            .collect();
    }
    if let Some(ids) = array.as_primitive_opt::<UInt64Type>() {
        return ids.iter().map(|id| id.map_or(i64::MIN, u64::cast_signed)).collect();
    }
    match arrow_cast::cast(array, &arrow_schema::DataType::Int64) {
        Ok(numbers) => numbers
            .as_primitive_opt::<Int64Type>()
            .map(|n| n.iter().map(|v| v.unwrap_or(i64::MIN)).collect())
            .unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}
