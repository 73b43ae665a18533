//! Hold what kernels say of their launch once for each launch configuration, and the thread of calls once for each.
//!
//! A capture has millions of kernels and some hundreds of launch configurations, millions of calls and a few threads.
//! Inside of the core the columns of [`LAUNCH`] and of [`THREAD`] are dictionaries that share one column of keys; who
//! takes the table out gets it as it is declared:
//!
//! ```text
//!   declared   grid_x |  64   8  64  64 ..   block_x | 256 128 256 256 ..
//!   held       key    |   0   1   0   0 ..   grid_x  |  64   8   block_x | 256 128
//! ```

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt16Type, UInt32Type, UInt8Type};
use arrow_array::{
    new_null_array, Array, ArrayRef, DictionaryArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    UInt16Array, UInt32Array,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::take::take;

use crate::base::error::{Error, Result};
use crate::base::maps::{NumberMap, Recent};
use crate::base::parallel::ThreadPool;
use crate::table::columns::at;
use crate::table::schema::{Table, API_CALLS, KERNELS};

/// What all kernels of a launch configuration have in common.
const LAUNCH: [&str; 18] = [
    "launch_type",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "registers_per_thread",
    "static_shared_bytes",
    "dynamic_shared_bytes",
    "shared_executed_bytes",
    "shared_requested_percent",
    "cache_preference",
    "local_per_thread_bytes",
    "cluster_x",
    "cluster_y",
    "cluster_z",
    "max_active_clusters",
];

/// What all calls of a thread have in common.
const THREAD: [&str; 2] = ["pid", "tid"];

/// Rows that are looked at together.
const BLOCK: usize = 1024;
/// Configurations seen last, each at the place that its hash gives.
const RECENT: usize = 1024;

/// A column that may be held once for all rows that are alike.
#[derive(Debug)]
pub struct Folded<'a, T: ArrowPrimitiveType = UInt32Type> {
    keys: Option<&'a UInt16Array>,
    values: &'a PrimitiveArray<T>,
}

impl<T: ArrowPrimitiveType> Clone for Folded<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ArrowPrimitiveType> Copy for Folded<'_, T> {}

impl<'a, T: ArrowPrimitiveType> Folded<'a, T> {
    /// `None` for a column of another type.
    pub(crate) fn new(array: &'a ArrayRef) -> Option<Self> {
        if let Some(values) = array.as_primitive_opt() {
            return Some(Self { keys: None, values });
        }
        let dictionary = array.as_dictionary_opt::<UInt16Type>()?;
        Some(Self { keys: Some(dictionary.keys()), values: dictionary.values().as_primitive_opt()? })
    }

    /// The keys by which it holds its values; `None`: it holds one for each row.
    pub(crate) fn keys(&self) -> Option<&'a UInt16Array> {
        self.keys
    }

    /// The value of a row; `None` for null and past the end.
    #[must_use]
    #[inline(always)]
    pub fn at(&self, row: usize) -> Option<T::Native> {
        let place = match self.keys {
            Some(keys) => usize::from(at(keys, row)?),
            None => row,
        };
        at(self.values, place)
    }
}

/// A [`Folded`] column that is kept.
#[derive(Debug, Clone)]
pub(crate) struct FoldedArray {
    keys: Option<UInt16Array>,
    values: UInt32Array,
}

impl FoldedArray {
    pub fn of(column: Folded<'_>) -> Self {
        Self { keys: column.keys.cloned(), values: column.values.clone() }
    }

    /// The value of a row; `None` for null and past the end.
    #[inline(always)]
    pub fn at(&self, row: usize) -> Option<u32> {
        Folded { keys: self.keys.as_ref(), values: &self.values }.at(row)
    }
}

/// The keys of several columns, where all have the same: rows of one key are alike in each of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedKeys<'a>(Option<&'a UInt16Array>);

impl<'a> SharedKeys<'a> {
    /// Of the keys of each column.
    pub fn of<const N: usize>(keys: [Option<&'a UInt16Array>; N]) -> Self {
        let first = keys.first().copied().flatten().filter(|first| {
            let same = |other: &UInt16Array| {
                other.null_count() == 0 && other.values().inner().ptr_eq(first.values().inner())
            };
            keys.iter().all(|other| other.is_some_and(same))
        });
        Self(first)
    }

    /// The key that stands for what a row holds: two of one key are alike, two of others may be. `None`: there are no keys.
    #[inline(always)]
    pub fn at(self, row: usize) -> Option<u16> {
        self.0?.values().get(row).copied()
    }
}

/// Finds what a caller knows of rows like this one: of one name (or whatever else tells rows apart), with the same values
/// in such columns. Most rows are like one of the last thousands.
#[derive(Debug)]
pub(crate) struct LikeRows<N, V> {
    by_key: Recent<(N, u16)>,
    by_values: Recent<(N, V)>,
}

impl<N: Copy, V: Copy> Default for LikeRows<N, V> {
    fn default() -> Self {
        Self { by_key: Recent::default(), by_values: Recent::default() }
    }
}

impl<N: Copy + Hash + PartialEq, V: Copy + Hash + PartialEq> LikeRows<N, V> {
    /// The place of such rows in a list of the caller's, else a `new` one; rows that are alike may get several. Values are
    /// read only where no key stands for them.
    #[inline]
    pub fn place(
        &mut self,
        name: N,
        key: Option<u16>,
        values: impl FnOnce() -> V,
        new: impl FnOnce() -> usize,
    ) -> usize {
        match key {
            Some(key) => self.by_key.place((name, key), new),
            None => self.by_values.place((name, values()), new),
        }
    }
}

/// A column whose values tell configurations apart.
enum Telling<'a> {
    U8(&'a PrimitiveArray<UInt8Type>),
    U32(&'a UInt32Array),
    I64(&'a PrimitiveArray<Int64Type>),
}

macro_rules! every {
    ($of:expr, $array:ident => $do:expr) => {
        match $of {
            Telling::U8($array) => $do,
            Telling::U32($array) => $do,
            Telling::I64($array) => $do,
        }
    };
}

impl<'a> Telling<'a> {
    fn of(array: &'a ArrayRef) -> Option<Self> {
        let u8s = || array.as_primitive_opt().map(Self::U8);
        let u32s = || array.as_primitive_opt().map(Self::U32);
        u8s().or_else(u32s).or_else(|| array.as_primitive_opt().map(Self::I64))
    }

    /// Where its values stand.
    fn place(&self) -> *const u8 {
        every!(self, array => array.values().inner().as_ptr())
    }

    #[allow(clippy::useless_conversion)] // of one of the three types
    fn value(&self, row: usize) -> Option<i64> {
        every!(self, array => at(array, row).map(i64::from))
    }

    /// Lets the values of the rows from `from` on count in their hashes.
    #[allow(clippy::useless_conversion)] // of one of the three types
    fn mix(&self, from: usize, hashes: &mut [u64]) {
        every!(self, array => {
            let values = array.values().get(from..).unwrap_or_default();
            for (hash, value) in hashes.iter_mut().zip(values) {
                *hash = mixed(*hash, i64::from(*value).cast_unsigned());
            }
            if let Some(nulls) = array.nulls() {
                for (row, hash) in (from..).zip(hashes) {
                    *hash = mixed(*hash, u64::from(nulls.is_valid(row)));
                }
            }
        });
    }

    /// Whether the rows from `from` on have the values of the rows `firsts` that their keys name.
    fn is_as(&self, from: usize, keys: &[u16], firsts: &[u32]) -> bool {
        let first = |key: &u16| firsts.get(usize::from(*key)).map_or(usize::MAX, |row| *row as usize);
        every!(self, array => {
            let own = array.values().get(from..).unwrap_or_default();
            own.iter().zip(keys).all(|(value, key)| array.values().get(first(key)) == Some(value))
                && array.nulls().is_none_or(|nulls| {
                    (from..).zip(keys).all(|(row, key)| nulls.is_valid(row) == at(array, first(key)).is_some())
                })
        })
    }
}

fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Finds the configurations of the rows from `from` on: puts the key of each row, and gives the first row of each key.
/// `None`: there are too many, or two of them have one hash.
fn find(columns: &[Telling<'_>], from: usize, keys: &mut [u16]) -> Option<Vec<u32>> {
    let mut firsts: Vec<u32> = Vec::new();
    let mut known: NumberMap<u64, u16> = NumberMap::default();
    let mut recent: Vec<Option<(u64, u16)>> = vec![None; RECENT];
    let mut hashes = [0; BLOCK];
    for (from, keys) in (from..).step_by(BLOCK).zip(keys.chunks_mut(BLOCK)) {
        let hashes = hashes.get_mut(..keys.len())?;
        hashes.fill(0);
        columns.iter().for_each(|column| column.mix(from, hashes));
        for ((row, key), hash) in (from..).zip(keys.iter_mut()).zip(hashes) {
            let slot = recent.get_mut((*hash >> 54) as usize)?;
            *key = match *slot {
                Some((same, key)) if same == *hash => key,
                _ => match known.get(hash) {
                    Some(key) => *key,
                    None => {
                        let key = u16::try_from(firsts.len()).ok()?;
                        firsts.push(u32::try_from(row).ok()?);
                        known.insert(*hash, key);
                        key
                    }
                },
            };
            *slot = Some((*hash, *key));
        }
        if !columns.iter().all(|column| column.is_as(from, keys, &firsts)) {
            return None;
        }
    }
    Some(firsts)
}

/// The key of each row, and the first row of each key.
fn keys_of(columns: &[Telling<'_>], rows: usize) -> Option<(Vec<u16>, UInt32Array)> {
    let pool = ThreadPool::for_rows(rows);
    let part = pool.rows(rows).next_multiple_of(BLOCK).max(BLOCK);
    let mut keys = vec![0; rows];
    let parts = (0..).step_by(part).zip(keys.chunks_mut(part)).collect();
    let found = pool.each(parts, |(from, keys): (usize, &mut [u16])| find(columns, from, keys));
    let (mut firsts, mut known) = (Vec::new(), HashMap::new());
    let mut moved = Vec::with_capacity(found.len());
    for (found, keys) in found.into_iter().zip(keys.chunks_mut(part)) {
        let mut places = Vec::new();
        for row in found? {
            let values: Vec<Option<i64>> = columns.iter().map(|column| column.value(row as usize)).collect();
            let next = u16::try_from(firsts.len());
            places.push(match known.get(&values) {
                Some(key) => *key,
                None => {
                    firsts.push(row);
                    *known.entry(values).or_insert(next.ok()?)
                }
            });
        }
        moved.push((places, keys));
    }
    pool.each(moved, |(places, keys): (Vec<u16>, &mut [u16])| {
        for key in keys {
            *key = places.get(usize::from(*key)).copied().unwrap_or(0);
        }
    });
    Some((keys, firsts.into()))
}

/// The columns of a table that are held once for all rows that are alike.
pub(crate) fn alike(table: &Table) -> &'static [&'static str] {
    match table.name {
        name if name == KERNELS.name => &LAUNCH,
        name if name == API_CALLS.name => &THREAD,
        _ => &[],
    }
}

/// Whether a column is held once for all rows that are alike.
pub(crate) fn is_folded(column: &dyn Array) -> bool {
    matches!(column.data_type(), DataType::Dictionary(key, _) if **key == DataType::UInt16)
}

/// The table with each launch configuration, or each thread, held once; as it is where it has none, or too many, or where
/// it is held so.
///
/// # Errors
/// [`Error::Schema`] for a table that is not what it is declared to be.
pub fn fold(table: &Table, batch: RecordBatch) -> Result<RecordBatch> {
    let alike = alike(table);
    let held: Vec<(&str, &ArrayRef)> =
        alike.iter().filter_map(|name| Some((*name, batch.column_by_name(name)?))).collect();
    if alike.is_empty() || held.iter().any(|(_, column)| is_folded(column)) {
        return Ok(batch);
    }
    let mut telling: Vec<Telling<'_>> = Vec::new();
    // A column without any value tells nothing, and neither does one whose values are those of another.
    for (_, array) in held.iter().filter(|(_, array)| array.null_count() < array.len()) {
        let Some(column) = Telling::of(array) else { return Ok(batch) };
        if array.null_count() > 0 || telling.iter().all(|other| other.place() != column.place()) {
            telling.push(column);
        }
    }
    let Some((keys, firsts)) = keys_of(&telling, batch.num_rows()) else { return Ok(batch) };
    let mut values = Vec::with_capacity(held.len());
    for (name, array) in held {
        let of_each = take(array, &firsts, None).map_err(|e| Error::schema(&table.id(), e.to_string()))?;
        values.push((name, of_each));
    }
    put_folded(table, &batch, keys, firsts.len(), &values)
}

/// The table with these columns in place of its own: `keys` say which of `configurations` values each row has. What is
/// held so and not given has no value.
///
/// # Errors
/// [`Error::Schema`] for columns that are not as they are declared, and for keys without a value.
pub(crate) fn put_folded(
    table: &Table,
    batch: &RecordBatch,
    keys: Vec<u16>,
    configurations: usize,
    given: &[(&str, ArrayRef)],
) -> Result<RecordBatch> {
    let wrong = |detail: String| Error::schema(&table.id(), detail);
    let schema = batch.schema();
    let keys = UInt16Array::from(keys);
    let mut folded: Option<DictionaryArray<UInt16Type>> = None;
    let mut columns = batch.columns().to_vec();
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    for name in alike(table) {
        let Ok(place) = schema.index_of(name) else { continue };
        let (Some(column), Some(field)) = (columns.get_mut(place), fields.get_mut(place)) else { continue };
        let values = match given.iter().find(|(given, _)| given == name) {
            Some((_, values)) => Arc::clone(values),
            None => new_null_array(field.data_type(), configurations),
        };
        if values.data_type() != field.data_type() || values.len() != configurations {
            return Err(wrong(format!(
                "column {name} has {} values of type {}",
                values.len(),
                values.data_type()
            )));
        }
        // That there is a value for every key is looked at once: all have as many.
        let dictionary = match &folded {
            Some(other) => other.with_values(values),
            None => DictionaryArray::try_new(keys.clone(), values).map_err(|e| wrong(e.to_string()))?,
        };
        *field = Arc::new(Field::new(field.name(), dictionary.data_type().clone(), field.is_nullable()));
        *column = Arc::new(folded.insert(dictionary).clone());
    }
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    RecordBatch::try_new(Arc::new(schema), columns).map_err(|e| wrong(e.to_string()))
}

/// Rows of a table in another order.
///
/// # Errors
/// [`Error::Schema`] for places that it does not have.
pub(crate) fn reorder(table: &Table, batch: RecordBatch, places: &UInt32Array) -> Result<RecordBatch> {
    let wrong = |detail: String| Error::schema(&table.id(), detail);
    let (schema, columns, rows) = batch.into_parts();
    let mut folded: Option<DictionaryArray<UInt16Type>> = None;
    // Column by column, so that there are never two whole tables.
    let mut ordered: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        let values = column.as_dictionary_opt::<UInt16Type>().map(DictionaryArray::values);
        ordered.push(match (&folded, values) {
            // All have the same keys.
            (Some(other), Some(values)) => Arc::new(other.with_values(Arc::clone(values))),
            _ => take(&column, places, None).map_err(|e| wrong(e.to_string()))?,
        });
        folded = folded.or_else(|| ordered.last()?.as_dictionary_opt().cloned());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, ordered, &options).map_err(|e| wrong(e.to_string()))
}

/// The same rows as they are declared.
///
/// # Errors
/// [`Error::Schema`] for keys without a value.
pub fn unfold(batch: &RecordBatch) -> Result<RecordBatch> {
    let wrong = |detail: String| Error::schema("folded columns", detail);
    let schema = batch.schema();
    let folded = |field: &Field| matches!(field.data_type(), DataType::Dictionary(_, value) if **value != DataType::Utf8);
    if !schema.fields().iter().any(|field| folded(field)) {
        return Ok(batch.clone());
    }
    let mut columns = batch.columns().to_vec();
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    for (column, field) in columns.iter_mut().zip(&mut fields).filter(|(_, field)| folded(field)) {
        let Some(dictionary) = column.as_dictionary_opt::<UInt16Type>() else { continue };
        let plain = take(dictionary.values(), dictionary.keys(), None).map_err(|e| wrong(e.to_string()))?;
        *field = Arc::new(Field::new(field.name(), plain.data_type().clone(), field.is_nullable()));
        *column = plain;
    }
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).map_err(|e| wrong(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::draws::draws;
    use crate::table::builder::Builder;
    use crate::table::columns::Columns;

    /// Kernels of so many launch configurations, with and without nulls.
    fn kernels(rows: usize, configurations: u64, seed: u64) -> RecordBatch {
        let mut draw = draws(seed);
        let drawn: Vec<i64> = (0..rows).map(|_| draw(configurations)).collect();
        let u32s = |of: &dyn Fn(i64) -> Option<i64>| -> UInt32Array {
            drawn.iter().map(|n| of(*n).map(|n| n as u32)).collect()
        };
        let i64s = drawn.iter().map(|n| (n % 5 > 0).then_some(n << 33));
        let times: PrimitiveArray<Int64Type> = (0..rows as i64).map(Some).collect();
        Builder::new(&KERNELS)
            .put("capture", u32s(&|_| Some(0)))
            .put("device_id", u32s(&|_| Some(0)))
            .put("start_ns", times.clone())
            .put("end_ns", times)
            .put("grid_x", u32s(&|n| Some(n / 3)))
            .put("grid_y", u32s(&|_| Some(1)))
            .put("grid_z", u32s(&|n| (n % 2 > 0).then_some(0)))
            .put("block_x", u32s(&|n| Some(n % 3)))
            .put("dynamic_shared_bytes", i64s.collect::<PrimitiveArray<Int64Type>>())
            .put(
                "launch_type",
                drawn.iter().map(|n| Some((n % 7) as u8)).collect::<PrimitiveArray<UInt8Type>>(),
            )
            .finish(rows)
            .unwrap()
    }

    #[test]
    fn kernels_come_back_as_they_were() {
        // More rows than one thread takes, too.
        for (seed, rows) in [0, 1, 5, 1_023, 3_000, 400_000].into_iter().enumerate() {
            let plain = kernels(rows, 200, seed as u64);
            let folded = fold(&KERNELS, plain.clone()).unwrap();
            let keys = |name: &str| {
                let column = folded.column_by_name(name).unwrap();
                column.as_dictionary::<UInt16Type>().keys().values().inner().clone()
            };
            assert!(keys("grid_x").ptr_eq(&keys("launch_type")), "one column of keys");
            assert_eq!(unfold(&folded).unwrap(), plain, "{rows} rows");
            let (held, declared) = (Columns::new(&KERNELS, &folded), Columns::new(&KERNELS, &plain));
            for name in ["grid_x", "grid_y", "grid_z", "block_x", "block_y"] {
                let (held, declared) =
                    (held.folded::<UInt32Type>(name).unwrap(), declared.u32(name).unwrap());
                assert!((0..rows + 2).all(|row| held.at(row) == at(declared, row)), "{name} of {rows} rows");
            }
        }
    }

    #[test]
    fn rows_with_one_key_are_alike_in_all_columns_that_share_it() {
        let plain = kernels(3_000, 200, 9);
        let folded = fold(&KERNELS, plain.clone()).unwrap();
        let keys = |batch: &RecordBatch| {
            let c = Columns::new(&KERNELS, batch);
            let keys = ["grid_x", "grid_z", "block_x"].map(|n| c.folded::<UInt32Type>(n).unwrap().keys());
            (0..3_000).map(|row| SharedKeys::of(keys).at(row)).collect::<Vec<_>>()
        };
        let c = Columns::new(&KERNELS, &folded);
        let values =
            |row| ["grid_x", "grid_z", "block_x"].map(|name| c.folded::<UInt32Type>(name).unwrap().at(row));
        let mut of_key: HashMap<u16, usize> = HashMap::new();
        for (row, key) in keys(&folded).into_iter().enumerate() {
            let key = key.expect("a key of every row");
            assert_eq!(values(*of_key.entry(key).or_insert(row)), values(row), "row {row}");
        }
        assert_eq!(of_key.len(), 200);
        // No key stands for rows without keys, nor where one column has others.
        assert!(keys(&plain).iter().all(Option::is_none));
        let own = UInt16Array::from(vec![0; 3_000]);
        let grid = c.folded::<UInt32Type>("grid_x").unwrap().keys();
        assert_eq!(SharedKeys::of([grid, Some(&own)]).at(7), None);
    }

    #[test]
    fn like_rows_have_one_place_by_key_and_by_values() {
        let plain = kernels(3_000, 200, 9);
        for batch in [fold(&KERNELS, plain.clone()).unwrap(), plain] {
            let c = Columns::new(&KERNELS, &batch);
            let columns = ["grid_x", "grid_z", "block_x"].map(|n| c.folded::<UInt32Type>(n).unwrap());
            let keys = SharedKeys::of(columns.map(|column| column.keys()));
            let (mut like, mut firsts): (LikeRows<u32, _>, Vec<(u32, usize)>) = (LikeRows::default(), vec![]);
            for row in 0..3_000 {
                let (name, values) = (row as u32 % 2, |row: usize| columns.map(|column| column.at(row)));
                let place = like.place(
                    name,
                    keys.at(row),
                    || values(row),
                    || {
                        firsts.push((name, row));
                        firsts.len() - 1
                    },
                );
                assert_eq!((firsts[place].0, values(firsts[place].1)), (name, values(row)), "row {row}");
            }
            // Of two names with 200 configurations each, hardly any took the slot of another.
            assert!((200..600).contains(&firsts.len()), "{}", firsts.len());
        }
    }

    #[test]
    fn threads_of_calls_come_back_as_they_were_put() {
        // (pid, tid): a thread id that two processes have, and calls of no known process.
        let threads = [(Some(7), Some(70)), (Some(8), Some(70)), (None, None), (Some(7), Some(71))];
        let rows: Vec<(Option<u32>, Option<u32>)> = (0..5_000).map(|n| threads[n * 7919 % 13 % 4]).collect();
        let zeroes = |n| (0..n).map(|_| Some(0)).collect::<PrimitiveArray<Int64Type>>();
        let plain = Builder::new(&API_CALLS)
            .put("capture", UInt32Array::from(vec![0; rows.len()]))
            .put("pid", rows.iter().map(|row| row.0).collect::<UInt32Array>())
            .put("tid", rows.iter().map(|row| row.1).collect::<UInt32Array>())
            .put("start_ns", zeroes(rows.len()))
            .put("end_ns", zeroes(rows.len()))
            .finish(rows.len())
            .unwrap();
        let folded = fold(&API_CALLS, plain.clone()).unwrap();
        let c = Columns::new(&API_CALLS, &folded);
        let (pid, tid) = (c.folded::<UInt32Type>("pid").unwrap(), c.folded::<UInt32Type>("tid").unwrap());
        assert_eq!(pid.values.len(), 4, "each thread is held once");
        let kept = FoldedArray::of(tid);
        assert!((0..rows.len()).all(|row| (pid.at(row), kept.at(row)) == rows[row]));
        assert_eq!(unfold(&folded).unwrap(), plain);
    }

    #[test]
    fn as_many_configurations_as_kernels_are_not_folded() {
        let plain = kernels(100_000, 1 << 30, 1);
        assert_eq!(fold(&KERNELS, plain.clone()).unwrap(), plain);
    }
}
