//! Read every table of any file, as whole columns of every kind and row by row: no panic, no wrong memory access.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use pyanalyze_core::Error;
use pyanalyze_fuzz::{answer, as_file, mutate_pages};
use pyanalyze_sqlite::{As, Database, Unwatched, Value};

const KINDS: [As; 7] = [As::U32, As::I64, As::Distinct, As::U8, As::U64, As::U16, As::I32];

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 4 == 0 {
        fuzzer_mutate(data, size, max_size)
    } else {
        mutate_pages(data, size, seed)
    }
});

fuzz_target!(|bytes: &[u8]| {
    let path = as_file(bytes, "sqlite");
    let Some(database) = answer(Database::open(&path)) else { return };
    let database = database.with_threads(1);
    for (nth, (table, columns)) in database.tables().iter().enumerate() {
        let asked: Vec<(&str, As)> =
            columns.iter().enumerate().map(|(at, name)| (name.as_str(), KINDS[(nth + at) % KINDS.len()])).collect();
        answer(database.columns(table, &asked, &Unwatched));
        answer(database.count(table));
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut sum = 0_u64;
        answer(database.scan::<Error>(table, &names, &Unwatched, |row| {
            for at in 0..names.len() {
                let value = row.get(at);
                // Every byte is looked at: a slice that reaches too far is then seen.
                sum = sum.wrapping_add(match value {
                    Value::Text(bytes) | Value::Blob(bytes) => bytes.iter().map(|b| u64::from(*b)).sum(),
                    _ => u64::from(value.integer().is_ok()),
                });
            }
            Ok(())
        }));
        std::hint::black_box(sum);
    }
    answer(database.close());
});
