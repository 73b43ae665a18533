//! Typed access to batches of declared tables.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch, StringArray, UInt32Array,
};
use arrow_schema::DataType;

use crate::base::error::{Error, Result};
use crate::table::builder::Builder;
use crate::table::launch::Folded;
use crate::table::schema::Table;

/// Typed access to the columns of a batch of a declared table.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    table: &'static Table,
    batch: &'a RecordBatch,
}

impl<'a> Columns<'a> {
    /// Wraps `batch` as a batch of `table`.
    #[must_use]
    pub fn new(table: &'static Table, batch: &'a RecordBatch) -> Self {
        Self { table, batch }
    }

    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    fn get(&self, name: &str) -> Result<&'a ArrayRef> {
        self.batch
            .column_by_name(name)
            .ok_or_else(|| Error::schema(&self.table.id(), format!("column {name} is missing")))
    }

    fn primitive<T: arrow_array::ArrowPrimitiveType>(&self, name: &str) -> Result<&'a PrimitiveArray<T>> {
        let array = self.get(name)?;
        array.as_primitive_opt::<T>().ok_or_else(|| {
            Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()))
        })
    }

    /// A `u8` column. # Errors: missing column or other type; so for all of these.
    pub fn u8(&self, name: &str) -> Result<&'a PrimitiveArray<UInt8Type>> {
        self.primitive(name)
    }
    /// A `u16` column.
    pub fn u16(&self, name: &str) -> Result<&'a PrimitiveArray<UInt16Type>> {
        self.primitive(name)
    }
    /// A `u32` column.
    pub fn u32(&self, name: &str) -> Result<&'a PrimitiveArray<UInt32Type>> {
        self.primitive(name)
    }
    /// A `u64` column.
    pub fn u64(&self, name: &str) -> Result<&'a PrimitiveArray<UInt64Type>> {
        self.primitive(name)
    }
    /// An `i32` column.
    pub fn i32(&self, name: &str) -> Result<&'a PrimitiveArray<Int32Type>> {
        self.primitive(name)
    }
    /// An `i64` column.
    pub fn i64(&self, name: &str) -> Result<&'a PrimitiveArray<Int64Type>> {
        self.primitive(name)
    }
    /// An `f64` column.
    pub fn f64(&self, name: &str) -> Result<&'a PrimitiveArray<Float64Type>> {
        self.primitive(name)
    }
    /// A column that may be held once for all rows that are alike (`table/launch.rs`).
    pub fn folded<T: ArrowPrimitiveType>(&self, name: &str) -> Result<Folded<'a, T>> {
        let array = self.get(name)?;
        Folded::new(array).ok_or_else(|| {
            Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()))
        })
    }
    /// A boolean column.
    pub fn bool(&self, name: &str) -> Result<&'a BooleanArray> {
        let array = self.get(name)?;
        array.as_boolean_opt().ok_or_else(|| {
            Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()))
        })
    }
    /// A text column.
    pub fn text(&self, name: &str) -> Result<&'a StringArray> {
        let array = self.get(name)?;
        array.as_string_opt::<i32>().ok_or_else(|| {
            Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()))
        })
    }
    /// A dictionary-encoded column.
    pub fn names(&self, name: &str) -> Result<NameColumn<'a>> {
        let array = self.get(name)?;
        let wrong =
            || Error::schema(&self.table.id(), format!("column {name} has type {}", array.data_type()));
        let dictionary = array.as_dictionary_opt::<UInt32Type>().ok_or_else(wrong)?;
        let values = dictionary.values().as_string_opt::<i32>().ok_or_else(wrong)?;
        Ok(NameColumn { dictionary, values })
    }
}

/// A dictionary-encoded column, with its text.
#[derive(Debug, Clone, Copy)]
pub struct NameColumn<'a> {
    dictionary: &'a DictionaryArray<UInt32Type>,
    values: &'a StringArray,
}

impl<'a> NameColumn<'a> {
    /// The text of a row; `None` for null.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&'a str> {
        self.text(self.key(row)?)
    }

    /// The dictionary keys of all rows.
    #[must_use]
    pub fn keys(&self) -> &'a UInt32Array {
        self.dictionary.keys()
    }

    /// The text of every dictionary key.
    pub fn texts(&self) -> impl Iterator<Item = Option<&'a str>> {
        self.values.iter()
    }

    /// The text of a dictionary key.
    #[must_use]
    pub fn text(&self, key: u32) -> Option<&'a str> {
        let key = usize::try_from(key).ok()?;
        (key < self.values.len()).then(|| self.values.value(key))
    }

    /// The dictionary key of a row: equal keys have equal text inside one batch.
    #[must_use]
    pub fn key(&self, row: usize) -> Option<u32> {
        at(self.dictionary.keys(), row)
    }
}

/// Brings a batch that came from outside (another Arrow library) to the declared columns and types.
///
/// Extra columns are dropped; text views, large text and other dictionary layouts are cast.
///
/// # Errors
/// [`Error::Schema`] when a column is missing or cannot be cast.
pub fn conform(table: &'static Table, batch: &RecordBatch) -> Result<RecordBatch> {
    let id = table.id();
    let mut builder = Builder::new(table);
    for column in table.columns {
        let Some(array) = batch.column_by_name(column.name) else {
            if column.null.is_some() {
                continue;
            }
            return Err(Error::schema(&id, format!("column {} is missing", column.name)));
        };
        let want = column.kind.data_type();
        let array = if *array.data_type() == want {
            Arc::clone(array)
        } else {
            // A dictionary of string views cannot be cast in one step: through plain text it can.
            arrow_cast::cast(array, &want)
                .or_else(|e| {
                    let text = arrow_cast::cast(array, &DataType::Utf8);
                    text.and_then(|text| arrow_cast::cast(&text, &want)).map_err(|_| e)
                })
                .map_err(|e| Error::schema(&id, format!("column {}: {e}", column.name)))?
        };
        builder = builder.put(column.name, array);
    }
    builder.finish(batch.num_rows())
}

/// The value of a row; `None` for null and past the end.
pub(crate) fn at<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
    let value = array.values().get(row).copied()?;
    // Asked of every row of a table: it is looked up once, and nulls only where there are any.
    array.nulls().is_none_or(|nulls| nulls.is_valid(row)).then_some(value)
}

/// Rows in order of their times; `None` where they are in order as they stand.
pub(crate) fn in_order(times: &PrimitiveArray<Int64Type>) -> Option<Vec<usize>> {
    (!times.values().is_sorted()).then(|| {
        let mut rows: Vec<usize> = (0..times.len()).collect();
        rows.sort_by_key(|row| at(times, *row));
        rows
    })
}

/// The text of a row; `None` for null and past the end.
pub(crate) fn text_at(array: &StringArray, row: usize) -> Option<&str> {
    (row < array.len() && array.is_valid(row)).then(|| array.value(row))
}
