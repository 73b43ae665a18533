//! Builds batches of declared tables.

use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::{
    ArrowPrimitiveType, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray,
    UInt32Array,
};
use arrow_buffer::NullBuffer;

use crate::base::error::{Error, Result};
use crate::table::schema::{Kind, Table};

/// Builds one batch of a declared table, column by column, in any order.
#[derive(Debug)]
pub struct Builder {
    table: &'static Table,
    columns: Vec<Option<ArrayRef>>,
    error: Option<Error>,
}

impl Builder {
    /// Starts an empty batch of `table`.
    #[must_use]
    pub fn new(table: &'static Table) -> Self {
        Self { table, columns: vec![None; table.columns.len()], error: None }
    }

    /// Sets a column. A wrong name or type is reported by [`Builder::finish`].
    #[must_use]
    pub fn put(mut self, name: &str, array: impl Array + 'static) -> Self {
        let outcome = match self.table.column(name) {
            None => Err(format!("has no column {name}")),
            Some((_, column)) if column.kind.data_type() != *array.data_type() => {
                Err(format!("column {name} has type {}", array.data_type()))
            }
            Some((_, column)) if column.null.is_none() && array.null_count() > 0 => {
                Err(format!("column {name} has nulls"))
            }
            Some((position, _)) => self
                .columns
                .get_mut(position)
                .map(|slot| *slot = Some(Arc::new(array)))
                .ok_or_else(|| format!("column {name} is out of range")),
        };
        if let (Err(detail), None) = (outcome, &self.error) {
            self.error = Some(Error::schema(&self.table.id(), detail));
        }
        self
    }

    /// Sets a dictionary-encoded column from text.
    #[must_use]
    pub fn put_names<'a>(self, name: &str, values: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        self.put(name, names(values))
    }

    /// Sets a dictionary column of a handful of fixed words: many rows, little to compare.
    #[must_use]
    pub fn put_words(self, name: &str, values: impl IntoIterator<Item = &'static str>) -> Self {
        let mut words = Words::default();
        words.extend(values);
        self.put_column_of_words(name, words)
    }

    /// The same, of words that were gathered before.
    #[must_use]
    pub fn put_column_of_words(self, name: &str, column: Words) -> Self {
        let words = Arc::new(StringArray::from(column.words));
        match DictionaryArray::try_new(UInt32Array::from(column.keys), words) {
            Ok(array) => self.put(name, array),
            Err(error) => Self {
                error: self.error.or(Some(Error::schema(&self.table.id(), error.to_string()))),
                ..self
            },
        }
    }

    /// The finished batch; columns that were not set become all null where they may.
    ///
    /// # Errors
    /// [`Error::Schema`] for a wrong name, type, length, or a missing column that cannot be null.
    pub fn finish(self, rows: usize) -> Result<RecordBatch> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let id = self.table.id();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (slot, column) in self.columns.into_iter().zip(self.table.columns) {
            let array = match slot {
                Some(array) => array,
                None if column.null.is_some() || rows == 0 => nothing(column.kind, rows),
                None => return Err(Error::schema(&id, format!("column {} was not set", column.name))),
            };
            if array.len() != rows {
                let detail = format!("column {} has {} rows instead of {rows}", column.name, array.len());
                return Err(Error::schema(&id, detail));
            }
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.table.schema(), arrays, &options)
            .map_err(|e| Error::schema(&id, e.to_string()))
    }
}

/// A column without any value. Its numbers are zeroes of the system's, which take no memory until somebody writes to
/// them; Arrow's own column of nulls is written to as it is made.
fn nothing(kind: Kind, rows: usize) -> ArrayRef {
    fn none<T: ArrowPrimitiveType>(zeroes: Vec<T::Native>) -> ArrayRef {
        let nulls = NullBuffer::new_null(zeroes.len());
        Arc::new(PrimitiveArray::<T>::new(zeroes.into(), Some(nulls)))
    }
    match kind {
        Kind::U8 => none::<UInt8Type>(vec![0; rows]),
        Kind::U16 => none::<UInt16Type>(vec![0; rows]),
        Kind::U32 => none::<UInt32Type>(vec![0; rows]),
        Kind::U64 => none::<UInt64Type>(vec![0; rows]),
        Kind::I32 => none::<Int32Type>(vec![0; rows]),
        Kind::I64 => none::<Int64Type>(vec![0; rows]),
        other => arrow_array::new_null_array(&other.data_type(), rows),
    }
}

/// A dictionary column of a handful of fixed words.
#[derive(Debug, Default)]
pub struct Words {
    words: Vec<&'static str>,
    keys: Vec<u32>,
}

impl Words {
    /// With room for so many rows.
    #[must_use]
    pub fn of(rows: usize) -> Self {
        Self { words: Vec::new(), keys: Vec::with_capacity(rows) }
    }
}

impl Extend<&'static str> for Words {
    fn extend<I: IntoIterator<Item = &'static str>>(&mut self, values: I) {
        let words = &mut self.words;
        self.keys.extend(values.into_iter().map(|value| {
            let same = |word: &&'static str| std::ptr::eq(*word, value) || *word == value;
            let known = words.iter().position(same).unwrap_or_else(|| {
                words.push(value);
                words.len() - 1
            });
            // A handful, as said.
            known as u32
        }));
    }
}

/// A dictionary-encoded column from text.
#[must_use]
pub fn names<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> DictionaryArray<UInt32Type> {
    let mut builder = StringDictionaryBuilder::<UInt32Type>::new();
    for value in values {
        builder.append_option(value);
    }
    builder.finish()
}

/// A batch with some of its columns replaced by others of their type.
pub(crate) fn replace(
    table: &'static Table,
    batch: &RecordBatch,
    changes: Vec<(&str, ArrayRef)>,
) -> Result<RecordBatch> {
    let mut columns = batch.columns().to_vec();
    for (name, array) in changes {
        let slot = table.columns.iter().position(|c| c.name == name);
        match slot.and_then(|slot| columns.get_mut(slot)) {
            Some(slot) => *slot = array,
            None => return Err(Error::schema(&table.id(), format!("column {name} is missing"))),
        }
    }
    RecordBatch::try_new(batch.schema(), columns).map_err(|e| Error::schema(&table.id(), e.to_string()))
}
