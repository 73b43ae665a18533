//! Puts a declared table together from parts that came from outside, in large blocks, which can leave memory.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float64Type, Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type, UInt8Type,
};
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, StringArray};

use crate::base::error::{Error, Result};
use crate::table::builder::Builder;
use crate::table::columns::conform;
use crate::table::schema::{Kind, Table};

/// A table that grows part by part.
#[derive(Debug)]
pub struct Collector {
    table: &'static Table,
    expected: usize,
    rows: usize,
    /// A column that no part had yet takes no memory.
    columns: Vec<Option<Growing>>,
}

#[derive(Debug)]
enum Growing {
    U8(PrimitiveBuilder<UInt8Type>),
    U16(PrimitiveBuilder<UInt16Type>),
    U32(PrimitiveBuilder<UInt32Type>),
    U64(PrimitiveBuilder<UInt64Type>),
    I32(PrimitiveBuilder<Int32Type>),
    I64(PrimitiveBuilder<Int64Type>),
    F64(PrimitiveBuilder<Float64Type>),
    Bool(BooleanBuilder),
    Text(StringBuilder),
    Name(Names),
}

/// A dictionary column: every text once, whatever dictionaries the parts had.
#[derive(Debug, Default)]
struct Names {
    known: HashMap<String, u32>,
    texts: Vec<String>,
    keys: PrimitiveBuilder<UInt32Type>,
}

impl Collector {
    /// An empty table with room for so many rows; more may come.
    #[must_use]
    pub fn new(table: &'static Table, expected: usize) -> Self {
        Self { table, expected, rows: 0, columns: table.columns.iter().map(|_| None).collect() }
    }

    /// Rows behind those that are there. A column that a part lacks has no value in it.
    ///
    /// # Errors
    /// [`Error::Schema`] for a column that is missing, cannot be cast, or has nulls where it may not.
    pub fn add(&mut self, part: &RecordBatch) -> Result<()> {
        let conformed = conform(self.table, part)?;
        let (before, expected) = (self.rows, self.expected);
        for ((column, slot), array) in
            self.table.columns.iter().zip(&mut self.columns).zip(conformed.columns())
        {
            if part.column_by_name(column.name).is_none() && slot.is_none() {
                continue;
            }
            slot.get_or_insert_with(|| Growing::new(column.kind, expected, before)).add(array);
        }
        self.rows += conformed.num_rows();
        Ok(())
    }

    /// The whole table.
    ///
    /// # Errors
    /// [`Error::Schema`] for a column that no part had and that may not be null.
    pub fn finish(self) -> Result<RecordBatch> {
        let mut builder = Builder::new(self.table);
        for (column, growing) in self.table.columns.iter().zip(self.columns) {
            if let Some(growing) = growing {
                let array = growing.finish().map_err(|e| Error::schema(&self.table.id(), e.to_string()))?;
                builder = builder.put(column.name, array);
            }
        }
        builder.finish(self.rows)
    }
}

fn sized<T: ArrowPrimitiveType>(expected: usize, absent: usize) -> PrimitiveBuilder<T> {
    let mut builder = PrimitiveBuilder::with_capacity(expected.max(absent));
    builder.append_nulls(absent);
    builder
}

impl Growing {
    fn new(kind: Kind, expected: usize, absent: usize) -> Self {
        match kind {
            Kind::U8 => Self::U8(sized(expected, absent)),
            Kind::U16 => Self::U16(sized(expected, absent)),
            Kind::U32 => Self::U32(sized(expected, absent)),
            Kind::U64 => Self::U64(sized(expected, absent)),
            Kind::I32 => Self::I32(sized(expected, absent)),
            Kind::I64 => Self::I64(sized(expected, absent)),
            Kind::F64 => Self::F64(sized(expected, absent)),
            Kind::Bool => {
                let mut builder = BooleanBuilder::with_capacity(expected.max(absent));
                builder.append_nulls(absent);
                Self::Bool(builder)
            }
            Kind::Text => {
                let mut builder = StringBuilder::new();
                (0..absent).for_each(|_| builder.append_null());
                Self::Text(builder)
            }
            Kind::Name => Self::Name(Names { keys: sized(expected, absent), ..Names::default() }),
        }
    }

    /// The array has the type of the column: `conform` saw to it.
    fn add(&mut self, array: &ArrayRef) {
        match self {
            Self::U8(builder) => append(builder, array),
            Self::U16(builder) => append(builder, array),
            Self::U32(builder) => append(builder, array),
            Self::U64(builder) => append(builder, array),
            Self::I32(builder) => append(builder, array),
            Self::I64(builder) => append(builder, array),
            Self::F64(builder) => append(builder, array),
            Self::Bool(builder) => array.as_boolean().iter().for_each(|value| builder.append_option(value)),
            Self::Text(builder) => {
                array.as_string::<i32>().iter().for_each(|value| builder.append_option(value));
            }
            Self::Name(names) => names.add(array.as_dictionary()),
        }
    }

    fn finish(self) -> std::result::Result<ArrayRef, arrow_schema::ArrowError> {
        Ok(match self {
            Self::U8(mut builder) => Arc::new(builder.finish()),
            Self::U16(mut builder) => Arc::new(builder.finish()),
            Self::U32(mut builder) => Arc::new(builder.finish()),
            Self::U64(mut builder) => Arc::new(builder.finish()),
            Self::I32(mut builder) => Arc::new(builder.finish()),
            Self::I64(mut builder) => Arc::new(builder.finish()),
            Self::F64(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Name(mut names) => {
                let texts = Arc::new(StringArray::from(names.texts));
                Arc::new(DictionaryArray::try_new(names.keys.finish(), texts)?)
            }
        })
    }
}

fn append<T: ArrowPrimitiveType>(builder: &mut PrimitiveBuilder<T>, array: &ArrayRef) {
    let array = array.as_primitive::<T>();
    if array.null_count() == 0 {
        builder.append_slice(array.values());
    } else {
        array.iter().for_each(|value| builder.append_option(value));
    }
}

impl Names {
    fn add(&mut self, array: &DictionaryArray<UInt32Type>) {
        let values = array.values().as_string::<i32>();
        let keys: Vec<Option<u32>> = values.iter().map(|text| text.map(|text| self.key(text))).collect();
        for row in 0..array.len() {
            self.keys.append_option(array.key(row).and_then(|key| keys.get(key).copied().flatten()));
        }
    }

    fn key(&mut self, text: &str) -> u32 {
        if let Some(key) = self.known.get(text) {
            return *key;
        }
        // A column of 2^32 different names does not fit into memory.
        let key = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.known.insert(text.to_owned(), key);
        self.texts.push(text.to_owned());
        key
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, UInt32Array, UInt64Array};

    use super::*;
    use crate::table::columns::Columns;
    use crate::table::schema;

    /// Rows of `sources`, some of its columns left out.
    fn part(states: &[&str], rows: &[u64], how: Option<&[Option<&str>]>) -> RecordBatch {
        let capture: ArrayRef = Arc::new(UInt32Array::from(vec![0; rows.len()]));
        let name: ArrayRef = Arc::new(StringArray::from(vec!["kernels"; rows.len()]));
        let state: ArrayRef = Arc::new(StringArray::from(states.to_vec()));
        let count: ArrayRef = Arc::new(UInt64Array::from(rows.to_vec()));
        let mut columns = vec![("capture", capture), ("source", name), ("state", state), ("rows", count)];
        if let Some(how) = how {
            columns.push(("how", Arc::new(StringArray::from(how.to_vec()))));
        }
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true)))
            .expect("columns of one length")
    }

    #[test]
    fn parts_with_other_dictionaries_and_columns_are_one_table() {
        let mut collected = Collector::new(&schema::SOURCES, 4);
        collected.add(&part(&["present", "absent"], &[7, 0], None)).expect("declared");
        collected
            .add(&part(&["absent", "empty"], &[0, 1], Some(&[None, Some("-t cuda")])))
            .expect("declared");
        let whole = collected.finish().expect("complete");
        let columns = Columns::new(&schema::SOURCES, &whole);
        let states = columns.names("state").expect("a name");
        let seen: Vec<_> = (0..4).map(|row| states.get(row)).collect();
        assert_eq!(seen, [Some("present"), Some("absent"), Some("absent"), Some("empty")]);
        assert_eq!(states.key(1), states.key(2));
        let how: Vec<_> = columns.text("how").expect("text").iter().collect();
        assert_eq!(how, [None, None, None, Some("-t cuda")]);
        assert_eq!(columns.u64("rows").expect("a number").values(), &[7, 0, 0, 1]);
        assert_eq!(columns.text("physical_table").expect("text").null_count(), 4);
    }

    #[test]
    fn what_may_not_be_null_is_not() {
        let mut collected = Collector::new(&schema::SOURCES, 0);
        let odd: ArrayRef = Arc::new(Int64Array::from(vec![Some(-1)]));
        let columns = [("capture", odd)];
        let part = RecordBatch::try_from_iter(columns).expect("one column");
        assert!(collected.add(&part).is_err());
        assert_eq!(collected.finish().expect("no rows").num_rows(), 0);
    }
}
