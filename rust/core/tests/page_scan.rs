//! Compare the page scan with SQLite, value for value, also on damaged files.
//!
//! SQLite itself writes the files and says what they hold. The long run of the second half:
//! `PAGE_SCAN_SECONDS=600 cargo test --release -p pyanalyze-core --test page_scan -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::print_stdout)]

use std::cell::Cell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::read::nsys;
use pyanalyze_core::table::columns::Columns;
use pyanalyze_core::table::schema;
use pyanalyze_core::Error;
use pyanalyze_sqlite::{As, Column, Database, Owned, Unwatched as NoProgress, Value};
use rusqlite::types::Value as Sql;
use rusqlite::Connection;

const KINDS: [As; 7] = [As::U8, As::U16, As::U32, As::I32, As::I64, As::U64, As::Distinct];

/// One table and what happens to it.
#[derive(Debug, Clone)]
struct Made {
    page_size: u32,
    reserved: u8,
    encoding: &'static str,
    auto_vacuum: u8,
    journal: &'static str,
    /// Declared types, and what stands behind them.
    columns: Vec<(&'static str, &'static str)>,
    without_rowid: bool,
    rows: Vec<Vec<Sql>>,
    /// Row ids are this far apart.
    step: i64,
    /// SQL that runs after the rows were written, and again after more were.
    changes: Vec<String>,
}

fn cell() -> impl Strategy<Value = Sql> {
    prop_oneof![
        1 => Just(Sql::Null),
        3 => (-3_i64..300).prop_map(Sql::Integer),
        // All widths, and the numbers next to where the width changes.
        3 => (0_u32..64, -2_i64..3, any::<bool>()).prop_map(|(bits, near, negative)| {
            let number = 1_i64.wrapping_shl(bits).wrapping_add(near);
            Sql::Integer(if negative { number.wrapping_neg() } else { number })
        }),
        1 => any::<i64>().prop_map(Sql::Integer),
        1 => any::<f64>().prop_map(Sql::Real),
        1 => (-1000_i32..1000).prop_map(|n| Sql::Real(f64::from(n))),
        1 => (-1000_i32..1000).prop_map(|n| Sql::Text(n.to_string())),
        2 => "[a-zäß☃]{0,12}".prop_map(Sql::Text),
        1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Sql::Blob),
        // On overflow pages, several of them where pages are small.
        1 => (1_usize..6000, any::<u8>()).prop_map(|(n, byte)| Sql::Blob(vec![byte; n])),
        1 => (1_usize..3000).prop_map(|n| Sql::Text("x".repeat(n))),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    let file = (
        prop_oneof![Just(512_u32), Just(1024), Just(4096), Just(32_768), Just(65_536)],
        prop_oneof![3 => Just(0_u8), 1 => Just(8), 1 => Just(32)],
        prop_oneof![6 => Just("UTF-8"), 1 => Just("UTF-16le"), 1 => Just("UTF-16be")],
        0_u8..3,
        prop_oneof![Just("DELETE"), Just("TRUNCATE"), Just("PERSIST"), Just("WAL"), Just("MEMORY")],
    );
    let kind = prop_oneof![
        4 => Just("INTEGER"), 2 => Just("TEXT"), 2 => Just("REAL"), 1 => Just("BLOB"), 1 => Just(""),
        1 => Just("NUMERIC"), 1 => Just("DOUBLE PRECISION"), 1 => Just("FLOATING POINT"), 1 => Just("INT"),
        1 => Just("VARCHAR(9)"), 1 => Just("ANY"),
    ];
    let more = prop_oneof![
        30 => Just(""), 1 => Just("DEFAULT 7"), 1 => Just("DEFAULT 'x'"), 1 => Just("AS (1 + 1) VIRTUAL"),
        1 => Just("AS (c0) STORED"),
    ];
    let first = prop_oneof![
        4 => Just(("INTEGER", "")), 4 => Just(("INTEGER", "PRIMARY KEY")), 1 => Just(("INT", "PRIMARY KEY")),
        1 => Just(("INTEGER", "PRIMARY KEY DESC")), 1 => Just(("Integer", "PRIMARY KEY AUTOINCREMENT")),
        1 => Just(("TEXT", "PRIMARY KEY")),
    ];
    let change = prop_oneof![
        2 => (1_i64..9, 0_i64..9).prop_map(|(n, m)| format!("DELETE FROM t WHERE _rowid_ % {n} = {m}")),
        1 => (0_i64..900).prop_map(|n| format!("DELETE FROM t WHERE _rowid_ < {n}")),
        1 => Just("DELETE FROM t".to_owned()),
        1 => Just("VACUUM".to_owned()),
        1 => Just("PRAGMA incremental_vacuum".to_owned()),
        1 => Just("ALTER TABLE t ADD COLUMN late INTEGER".to_owned()),
        1 => Just("ALTER TABLE t ADD COLUMN later REAL".to_owned()),
        1 => Just("ALTER TABLE t ADD COLUMN told TEXT DEFAULT 'told'".to_owned()),
        1 => Just("CREATE TABLE IF NOT EXISTS other AS SELECT * FROM t; DELETE FROM other WHERE _rowid_ % 3 = 0".to_owned()),
        1 => Just("DROP TABLE IF EXISTS other".to_owned()),
        1 => Just("UPDATE t SET c1 = c1 || c1 WHERE _rowid_ % 5 = 0".to_owned()),
    ];
    let columns = (first, proptest::collection::vec((kind, more), 1..7));
    (file, columns, proptest::bool::weighted(0.05), proptest::collection::vec(change, 0..4)).prop_flat_map(
        |((page_size, reserved, encoding, auto_vacuum, journal), (first, rest), without_rowid, changes)| {
            let columns: Vec<_> = [first].into_iter().chain(rest).collect();
            // Rows mostly look alike, as in an export: a few patterns, repeated.
            let patterns = proptest::collection::vec(proptest::collection::vec(cell(), columns.len()), 1..6);
            (patterns, 0_usize..600, prop_oneof![4 => Just(1_i64), 1 => Just(3), 1 => Just(1_000_003)])
                .prop_map(move |(patterns, rows, step)| Made {
                    page_size,
                    reserved,
                    encoding,
                    auto_vacuum,
                    journal,
                    columns: columns.clone(),
                    without_rowid,
                    rows: (0..rows).map(|n| patterns[n % patterns.len()].clone()).collect(),
                    step,
                    changes: changes.clone(),
                })
        },
    )
}

/// Bytes at the end of every page are reserved by file-encrypting extensions; SQLite itself cannot be asked
/// for it in SQL, but it honours what the header of an empty database says.
fn reserve(path: &Path, page_size: u32, reserved: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[20] = reserved;
    // Where the content of the still empty page 1 begins; 65536 is written as 0.
    let usable = (page_size - u32::from(reserved)).to_be_bytes();
    bytes[105..107].copy_from_slice(&usable[2..4]);
    std::fs::write(path, bytes).unwrap();
}

fn write(made: &Made, path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch(&format!(
            "PRAGMA page_size={}; PRAGMA encoding='{}'; PRAGMA auto_vacuum={}; PRAGMA user_version=1;",
            made.page_size, made.encoding, made.auto_vacuum
        ))
        .unwrap();
    drop(connection);
    // Page 1 of an auto-vacuum file says more; those keep their pages whole.
    if made.reserved > 0 && made.auto_vacuum == 0 {
        reserve(path, made.page_size, made.reserved);
    }
    let mut connection = Connection::open(path).unwrap();
    let _ = connection.query_row(&format!("PRAGMA journal_mode={}", made.journal), [], |_| Ok(()));
    connection.execute_batch("PRAGMA synchronous=OFF").unwrap();
    let declared: Vec<String> =
        made.columns.iter().enumerate().map(|(n, (kind, more))| format!("c{n} {kind} {more}")).collect();
    let tail = if made.without_rowid && made.columns[0].1 == "PRIMARY KEY" { "WITHOUT ROWID" } else { "" };
    connection.execute_batch(&format!("CREATE TABLE t ({}) {tail}", declared.join(", "))).unwrap();
    for round in 0..2_i64 {
        let transaction = connection.transaction().unwrap();
        for (n, row) in made.rows.iter().enumerate() {
            let plain: Vec<usize> =
                (0..row.len()).filter(|at| !made.columns[*at].1.starts_with("AS")).collect();
            let names: Vec<String> = plain.iter().map(|at| format!("c{at}")).collect();
            let mut values: Vec<Sql> = plain.iter().map(|at| row[*at].clone()).collect();
            let id = (round * 100_000 + i64::try_from(n).unwrap()) * made.step - 50;
            if made.columns[0].1.starts_with("PRIMARY KEY") {
                values[0] = Sql::Integer(id);
            }
            let marks = vec!["?"; values.len()].join(", ");
            let (row_id, mark) = if tail.is_empty() && !made.columns[0].1.starts_with("PRIMARY KEY") {
                values.push(Sql::Integer(id));
                (", _rowid_", ", ?")
            } else {
                ("", "")
            };
            let sql = format!("INSERT INTO t ({}{row_id}) VALUES ({marks}{mark})", names.join(", "));
            transaction.prepare_cached(&sql).unwrap().execute(rusqlite::params_from_iter(values)).unwrap();
        }
        transaction.commit().unwrap();
        for change in &made.changes {
            // Some make no sense for some tables: a column that is there already, a table without row ids.
            let _ = connection.execute_batch(change);
        }
    }
    connection
}

/// Every cell, row by row, in an order that says nothing about the path; SQLite may read an index instead.
fn cells(database: &Database, table: &str) -> Result<Vec<Vec<Owned>>, Error> {
    let columns: Vec<&str> = database.tables()[table].iter().map(String::as_str).collect();
    let mut rows = Vec::new();
    let count = database.scan::<Error>(table, &columns, &NoProgress, |row| {
        rows.push((0..columns.len()).map(|at| own(row.get(at))).collect::<Vec<_>>());
        Ok(())
    })?;
    assert_eq!(count, rows.len() as u64);
    rows.sort_unstable();
    Ok(rows)
}

fn own(value: Value<'_>) -> Owned {
    match value {
        Value::Null => Owned::Null,
        Value::Int(value) => Owned::Int(value),
        Value::Real(value) => Owned::Real(value.to_bits()),
        Value::Text(bytes) => Owned::Text(bytes.to_vec()),
        Value::Blob(bytes) => Owned::Blob(bytes.to_vec()),
    }
}

/// All columns as all types, as text; a row's columns stay together.
fn typed(database: &Database, table: &str) -> Result<(Vec<String>, usize), Error> {
    let asked: Vec<(&str, As)> = database.tables()[table]
        .iter()
        .rev()
        .flat_map(|name| KINDS.map(|kind| (name.as_str(), kind)))
        .collect();
    let (rows, columns) = database.columns(table, &asked, &NoProgress)?;
    let mut lines = vec![String::new(); rows];
    let mut refused = 0;
    macro_rules! numbers {
        ($column:ident) => {{
            assert_eq!($column.values.len(), rows);
            refused += $column.refused.len();
            let unreadable: HashSet<u32> = $column.refused.iter().copied().collect();
            for (row, line) in lines.iter_mut().enumerate() {
                let valid = $column.is_valid(row);
                // A null is always written as 0, so that equal columns have equal bytes.
                assert!(valid || $column.values[row] == 0);
                assert!(!valid || !unreadable.contains(&(row as u32)));
                line.push_str(&format!("{valid} {}, ", $column.values[row]));
            }
        }};
    }
    for column in columns {
        match column {
            Column::U8(c) => numbers!(c),
            Column::U16(c) => numbers!(c),
            Column::U32(c) => numbers!(c),
            Column::I32(c) => numbers!(c),
            Column::I64(c) => numbers!(c),
            Column::U64(c) => numbers!(c),
            Column::Distinct(c) => {
                assert_eq!(c.codes.len(), rows);
                for (line, code) in lines.iter_mut().zip(c.codes) {
                    line.push_str(&format!("{:?}, ", c.entries[code as usize]));
                }
            }
        }
    }
    lines.sort_unstable();
    Ok((lines, refused))
}

/// Values, which of them are there, and refused rows of a column of numbers.
fn told(column: &Column, rows: impl Iterator<Item = usize> + Clone) -> Vec<(bool, i128, bool)> {
    macro_rules! told {
        ($column:ident) => {{
            let refused: HashSet<u32> = $column.refused.iter().copied().collect();
            rows.map(|row| {
                ($column.is_valid(row), i128::from($column.values[row]), refused.contains(&(row as u32)))
            })
            .collect()
        }};
    }
    match column {
        Column::U8(c) => told!(c),
        Column::U16(c) => told!(c),
        Column::U32(c) => told!(c),
        Column::I32(c) => told!(c),
        Column::I64(c) => told!(c),
        Column::U64(c) => told!(c),
        Column::Distinct(_) => panic!("no column of numbers"),
    }
}

/// Reads all columns as numbers of all types in combinations, beside one that is read row by row, and compares every row
/// with what they are row by row. Gives how many combinations there are; none: too many.
fn combined(database: &Database, table: &str) -> Option<usize> {
    let names = &database.tables()[table];
    let asked: Vec<(&str, As)> = names
        .iter()
        .flat_map(|name| KINDS.map(|kind| (name.as_str(), kind)))
        .filter(|(_, kind)| *kind != As::Distinct)
        .collect();
    let (rows, columns) = database.columns(table, &asked, &NoProgress).unwrap();
    let beside = [(names[0].as_str(), As::I64)];
    let (count, one, combined) = database.columns_combined(table, &beside, &asked, &NoProgress).unwrap();
    assert_eq!(count, rows);
    let (_, alone) = database.columns(table, &beside, &NoProgress).unwrap();
    assert_eq!(told(&one[0], 0..rows), told(&alone[0], 0..rows));
    let combined = combined?;
    assert_eq!((combined.codes.len(), combined.columns.len()), (rows, columns.len()));
    for (own, column) in combined.columns.iter().zip(&columns) {
        let of_rows = combined.codes.iter().map(|code| usize::from(*code));
        assert_eq!(told(own, of_rows), told(column, 0..rows));
    }
    // First seen first.
    let mut next = 0;
    for code in &combined.codes {
        assert!(usize::from(*code) <= next, "{code} before {next}");
        next += usize::from(usize::from(*code) == next);
    }
    assert_eq!(next, combined.distinct);
    Some(combined.distinct)
}

/// Table `t` is read from its pages, and every value is what SQLite says.
fn read_alike(path: &Path, threads: usize, what: &str) {
    let reference = Database::open(path).unwrap().through_sqlite();
    let database = Database::open(path).unwrap().with_threads(threads);
    assert_eq!(cells(&database, "t").unwrap(), cells(&reference, "t").unwrap(), "{what}");
    assert_eq!(typed(&database, "t").unwrap(), typed(&reference, "t").unwrap(), "{what}");
    assert!(combined(&database, "t").is_some(), "{what}");
    assert!(combined(&reference, "t").is_none(), "{what}");
    assert!(database.by_sqlite().is_empty(), "{what}");
}

#[test]
fn every_value_of_every_column_is_what_sqlite_says() {
    let by_pages = Cell::new(0);
    let by_sqlite = Cell::new(0);
    let cases = std::env::var("PAGE_SCAN_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(64);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&made(), |made| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("written.sqlite");
        let connection = write(&made, &path);
        // As after a crash, if it is a log: the writer is still there, its frames not folded in.
        let read = folder.path().join("read.sqlite");
        std::fs::copy(&path, &read).unwrap();
        let log = folder.path().join("written.sqlite-wal");
        if log.exists() {
            std::fs::copy(&log, folder.path().join("read.sqlite-wal")).unwrap();
        }
        drop(connection);
        let reference = Database::open(&read).unwrap().through_sqlite();
        for threads in [1, 3] {
            let database = Database::open(&read).unwrap().with_threads(threads);
            for table in database.tables().keys() {
                let rows = reference.count(table).unwrap();
                prop_assert_eq!(database.count(table).unwrap(), rows);
                // Rows were deleted; what is empty is known to be.
                let by_ids = database.rows_by_ids(table).unwrap();
                prop_assert!(by_ids >= rows && (by_ids > 0) == (rows > 0), "{} for {} rows", by_ids, rows);
                prop_assert_eq!(cells(&database, table).unwrap(), cells(&reference, table).unwrap());
                prop_assert_eq!(typed(&database, table).unwrap(), typed(&reference, table).unwrap());
            }
            let left = database.by_sqlite().len();
            by_sqlite.set(by_sqlite.get() + left);
            by_pages.set(by_pages.get() + database.tables().len() - left);
        }
        Ok(())
    });
    outcome.unwrap();
    println!("{} tables read from their pages, {} left to SQLite", by_pages.get(), by_sqlite.get());
    assert!(by_pages.get() > 0 && by_sqlite.get() > 0, "the cases are too one-sided");
}

/// One database per oddity, and why its table is left to SQLite, if it is.
#[test]
fn what_is_left_to_sqlite_and_why() {
    for (prepare, create, why) in [
        ("", "CREATE TABLE t (a INTEGER, b TEXT)", None),
        ("", "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)", None),
        ("", "CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b TEXT)", None),
        ("PRAGMA auto_vacuum=FULL", "CREATE TABLE t (a, b)", None),
        ("PRAGMA page_size=65536", "CREATE TABLE t (a, b)", None),
        ("PRAGMA page_size=512", "CREATE TABLE t (a ANY, b ANY) STRICT", None),
        ("PRAGMA encoding='UTF-16le'", "CREATE TABLE t (a, b)", Some("its text is UTF-16")),
        ("", "CREATE TABLE t (a INT PRIMARY KEY, b) WITHOUT ROWID", Some("it is stored WITHOUT ROWID")),
        ("", "CREATE TABLE t (a, b, c AS (a + 1))", Some("it has generated columns")),
        ("", "CREATE TABLE t (a, b, c AS (a + 1) STORED)", Some("it has generated columns")),
        ("", "CREATE TABLE t (a, b, c DEFAULT 5)", Some("it has columns with a default")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sqlite");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(prepare).unwrap();
        connection.execute_batch(create).unwrap();
        connection.execute_batch("INSERT INTO t (a, b) VALUES (3, 'x'), (4, 5.5)").unwrap();
        drop(connection);
        let database = Database::open(&path).unwrap();
        let mut found = Vec::new();
        let add = |row: &pyanalyze_sqlite::Row<'_>| -> Result<(), Error> {
            found.push((own(row.get(0)), own(row.get(1))));
            Ok(())
        };
        database.scan("t", &["a", "b"], &NoProgress, add).unwrap();
        let expected =
            [(Owned::Int(3), Owned::Text(b"x".to_vec())), (Owned::Int(4), Owned::Real(5.5_f64.to_bits()))];
        // A TEXT column turns 5.5 into text; that is not what this test is about.
        assert_eq!(found[0], expected[0], "{create}");
        assert_eq!(found[1].0, expected[1].0, "{create}");
        let left: Vec<_> = database.by_sqlite().into_iter().map(|(_, why)| why).collect();
        assert_eq!(left, why.into_iter().collect::<Vec<_>>(), "{prepare} {create}");
    }
}

/// Many leaves, so that several threads have something to do: order, refused cells and codes do not
/// depend on how many there are.
#[test]
fn threads_do_not_change_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA page_size=512; CREATE TABLE t (a INTEGER, b INTEGER, c);
            WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 59999)
            INSERT INTO t SELECT i, CASE WHEN i % 7 = 0 THEN -1 WHEN i % 11 = 0 THEN NULL ELSE i * 1000 END,
            CASE WHEN i % 1000 = 999 THEN 'odd ' || i ELSE i % 300 END FROM n;
            DELETE FROM t WHERE a BETWEEN 20000 AND 20999",
        )
        .unwrap();
    drop(connection);
    let asked = [("a", As::I64), ("b", As::U32), ("c", As::Distinct)];
    let rows: Vec<i64> = (0..60_000).filter(|i| !(20_000..21_000).contains(i)).collect();
    for threads in [1, 2, 5] {
        let database = Database::open(&path).unwrap().with_threads(threads);
        let (count, columns) = database.columns("t", &asked, &NoProgress).unwrap();
        assert_eq!(count, rows.len());
        let [Column::I64(a), Column::U32(b), Column::Distinct(c)] = &columns[..] else { panic!() };
        assert_eq!(a.values, rows);
        let minus: Vec<u32> = (0..).zip(&rows).filter(|(_, i)| *i % 7 == 0).map(|(at, _)| at).collect();
        assert_eq!(b.refused, minus);
        for (at, i) in rows.iter().enumerate() {
            let expected = (i % 7 != 0 && i % 11 != 0).then_some(u32::try_from(i * 1000).unwrap());
            assert_eq!(b.is_valid(at).then_some(b.values[at]), expected, "{i}");
            let name = match i % 1000 {
                999 => Owned::Text(format!("odd {i}").into_bytes()),
                _ => Owned::Int(i % 300),
            };
            assert_eq!(c.entries[c.codes[at] as usize], name);
        }
        // First seen first.
        assert_eq!(c.entries[..300], (0..300).map(Owned::Int).collect::<Vec<_>>());
        // `a` is another number in each of the 59,000 rows.
        assert_eq!(combined(&database, "t"), Some(rows.len()));
    }
}

/// Some numbers repeat and some do not; of shapes there are more than one, and more than a thread keeps in mind.
#[test]
fn columns_in_few_combinations_are_read_as_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    for (more, expected) in [(0, Some(7 * 2 * 5)), (65_536 - 70, Some(65_536)), (65_537 - 70, None)] {
        let path = folder.path().join(format!("{more}.sqlite"));
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(&format!(
                "PRAGMA page_size=1024; CREATE TABLE t (a INTEGER, b INTEGER, c REAL, d INTEGER);
                WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 139999)
                INSERT INTO t SELECT CASE i % 7 WHEN 0 THEN 1 WHEN 1 THEN 300 WHEN 2 THEN 70000 WHEN 3 THEN NULL
                WHEN 4 THEN 'odd' WHEN 5 THEN '12' ELSE 0 END, i % 2, i % 5, 17 FROM n;
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {more})
                INSERT INTO t SELECT 4, i, 3, 17 FROM n WHERE {more} > 0"
            ))
            .unwrap();
        drop(connection);
        for threads in [1, 3] {
            let database = Database::open(&path).unwrap().with_threads(threads);
            assert_eq!(combined(&database, "t"), expected, "{more} {threads}");
        }
    }
}

/// Headers of all lengths that are compared in another way, and tables where a longer one turns up late: rows that
/// differ only in the last byte of their header, or only behind it, must not be taken for each other.
#[test]
fn headers_of_all_lengths() {
    // What is compared is that and two to five bytes before it.
    for columns in
        [1, 10, 11, 12, 13, 15, 26, 27, 28, 29, 31, 42, 43, 44, 45, 47, 58, 59, 60, 61, 62, 63, 64, 90, 200]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sqlite");
        let connection = Connection::open(&path).unwrap();
        let names: Vec<String> = (0..columns).map(|n| format!("c{n}")).collect();
        connection.execute_batch(&format!("CREATE TABLE t ({})", names.join(", "))).unwrap();
        let insert = format!("INSERT INTO t VALUES ({})", vec!["?"; columns].join(", "));
        connection.execute_batch("BEGIN").unwrap();
        // As many rows of wide tables would take most of the time of all tests here.
        let rows: i64 = if columns < 26 { 3000 } else { 900 };
        for row in 0..rows {
            let values = (0..columns).map(|column| match row % 7 {
                // One byte, of the same length as a zero and a text of one byte.
                0 => Sql::Integer(100),
                1 if column + 1 == columns => Sql::Integer(0),
                2 if column + 1 == columns => Sql::Text("x".to_owned()),
                3 if column + 1 == columns => Sql::Null,
                4 if column + 2 == columns => Sql::Integer(-1),
                // A text whose length takes two bytes of the header, late.
                5 if row > rows * 2 / 3 && column == 0 => Sql::Text("y".repeat(60 + columns)),
                6 if row > rows * 5 / 6 => Sql::Text("z".repeat(70)),
                _ => Sql::Integer(row),
            });
            connection.prepare_cached(&insert).unwrap().execute(rusqlite::params_from_iter(values)).unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
        drop(connection);
        read_alike(&path, 2, &format!("{columns} columns"));
    }
}

/// Rows of one block with more kinds of headers than a column is decoded of at once.
#[test]
fn more_kinds_of_rows_than_a_block_is_made_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE t (a, b, c, d);
            WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19999)
            INSERT INTO t SELECT i, CASE WHEN i % 3 = 0 THEN NULL ELSE i % 3 END,
            substr(hex(zeroblob(40)), 1, i * 7919 % 71), CASE i % 11 WHEN 0 THEN NULL ELSE (i % 11) << (i % 40) END
            FROM n",
        )
        .unwrap();
    drop(connection);
    read_alike(&path, 2, "");
}

/// Rows with a kind of header each, until what is known of them is forgotten; and then in one block more kinds than were
/// known before, of the same columns: what was known must not be used for them.
#[test]
fn kinds_of_rows_that_were_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let connection = Connection::open(&path).unwrap();
    // Every digit of base four is a kind of value: none, 0, 1, or one that takes a byte. Those with most bytes come
    // first, so that the next pages hold more rows.
    let value = |column: u32| {
        let digit = format!("(k >> {}) & 3", 2 * column);
        format!(
            "CASE {digit} WHEN 0 THEN NULL WHEN 1 THEN 0 WHEN 2 THEN 1 ELSE 2 + (k * 7 + {column}) % 120 END"
        )
    };
    let values: Vec<String> = (0..7).map(value).collect();
    connection
        .execute_batch(&format!(
            "PRAGMA page_size=65536; CREATE TABLE t (a, b, c, d, e, f, g);
            WITH RECURSIVE n(k) AS (SELECT 16383 UNION ALL SELECT k - 1 FROM n WHERE k > 0)
            INSERT INTO t SELECT {} FROM n",
            values.join(", ")
        ))
        .unwrap();
    drop(connection);
    read_alike(&path, 1, "");
}

/// The declared tables of real captures and fixtures, by both paths; only the path itself may be told apart.
#[test]
fn captures_say_the_same_by_both_paths() {
    let want = nsys::Want::all();
    for path in captures() {
        let database = Database::open(&path).unwrap().with_threads(2);
        let pages = nsys::read_database(database, 0, &want, &Unwatched).unwrap();
        let database = Database::open(&path).unwrap().through_sqlite();
        let sqlite = nsys::read_database(database, 0, &want, &Unwatched).unwrap();
        let names = |tables: &pyanalyze_core::table::events::Tables| {
            let quality = Columns::new(&schema::QUALITY, &tables["quality"]);
            let names = quality.names("name").unwrap();
            (0..quality.rows()).map(|row| names.get(row).unwrap().to_owned()).collect::<Vec<_>>()
        };
        let left = "read_by_sqlite".to_owned();
        assert!(!names(&pages).contains(&left), "{}", path.display());
        assert!(names(&sqlite).contains(&left), "{}", path.display());
        for (table, batch) in &pages {
            if *table != "quality" {
                assert_eq!(batch, &sqlite[table], "{} {table}", path.display());
            }
        }
        assert_eq!(names(&pages), names(&sqlite).into_iter().filter(|n| *n != left).collect::<Vec<_>>());
    }
}

// ---- files that no SQLite wrote --------------------------------------------------------------------------

/// Small captures of this repository, and those of the corpus if it is there.
fn captures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = std::env::var_os("PYANALYZE_CORPUS").map_or(root.join("../shared/corpus"), PathBuf::from);
    let mut folders = vec![root.join("fixtures/captures")];
    if let Ok(exports) = std::fs::read_dir(corpus.join("exports")) {
        folders.extend(exports.map(|entry| entry.unwrap().path()));
    }
    let mut found: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "sqlite"))
        .collect();
    found.sort();
    assert!(found.len() >= 5, "no captures in {folders:?}");
    found
}

/// Breaks `bytes` somewhere: mostly where structure stands, since most bytes of a file are values.
fn mutate(bytes: &mut Vec<u8>, rng: &mut TestRng) {
    let page = match u16::from_be_bytes([bytes[16], bytes[17]]) {
        1 => 65_536,
        n => usize::from(n).max(512),
    };
    let pages = (bytes.len() / page).max(1);
    let below = |rng: &mut TestRng, n: usize| (rng.next_u64() % (n.max(1) as u64)) as usize;
    let odd = |rng: &mut TestRng| [0, 1, 0x7f, 0x80, 0xff, 5, 13, rng.next_u32() as u8][below(rng, 8)];
    for _ in 0..=below(rng, 4) {
        let start = below(rng, pages) * page;
        let len = bytes.len();
        match below(rng, 9) {
            // The header of the file, of a page, its cell pointers, anything.
            0 => bytes[below(rng, 100)] = odd(rng),
            1 => bytes[(start + below(rng, 12)) % len] = odd(rng),
            2 | 3 => bytes[(start + 8 + below(rng, 64)) % len] = odd(rng),
            4 => bytes[(start + below(rng, page)) % len] = odd(rng),
            // The first bytes of a row: its length, its row id, its header.
            5 => {
                let pointer = start + 8 + 2 * below(rng, 16);
                if let Some([high, low]) = bytes.get(pointer..pointer + 2) {
                    let at = start + usize::from(u16::from_be_bytes([*high, *low])) + below(rng, 12);
                    bytes[at % len] = odd(rng);
                }
            }
            // A page in the place of another, or of nothing; a file that ends early.
            6 => {
                let from = below(rng, pages) * page;
                if from + page <= len && start + page <= len {
                    bytes.copy_within(from..from + page, start);
                }
            }
            7 => {
                let end = (start + page).min(len);
                let fill = odd(rng);
                bytes[start.min(end)..end].fill(fill);
            }
            // A page number of a child or an overflow page.
            _ => {
                let at = (start + 8 + below(rng, page - 16)) % (len - 4);
                let number = (below(rng, pages + 2) as u32).to_be_bytes();
                bytes[at..at + 4].copy_from_slice(&number);
            }
        }
    }
    if below(rng, 20) == 0 {
        let end = below(rng, bytes.len());
        bytes.truncate(end.max(200));
    }
}

/// Reads everything that can be read; every outcome but a panic, a hang or an error of another kind is good.
fn survive(path: &Path) -> bool {
    let check = |outcome: Result<(), Error>| match outcome {
        Ok(()) => true,
        Err(
            Error::Damaged { .. }
            | Error::NotSqlite { .. }
            | Error::NotAnExport { .. }
            | Error::Unfinished { .. }
            | Error::Io { .. },
        ) => false,
        Err(other) => panic!("{other}"),
    };
    let whole = check(nsys::read(path, 0, &nsys::Want::all(), &Unwatched).map(|_| ()));
    let Ok(database) = Database::open(path) else { return false };
    for (table, columns) in database.tables() {
        let asked: Vec<(&str, As)> = columns.iter().map(|c| (c.as_str(), As::U32)).collect();
        check(database.columns(table, &asked, &NoProgress).map(|_| ()).map_err(Error::from));
        check(database.columns_combined(table, &[], &asked, &NoProgress).map(|_| ()).map_err(Error::from));
    }
    whole
}

fn mutations(seconds: f64, seed: u64) {
    let captures = captures();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mutated.sqlite");
    let mut seeds = [0; 32];
    seeds[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seeds);
    let began = Instant::now();
    let (mut runs, mut read, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
    while began.elapsed().as_secs_f64() < seconds {
        let capture = &captures[(rng.next_u64() % captures.len() as u64) as usize];
        let mut bytes = std::fs::read(capture).unwrap();
        mutate(&mut bytes, &mut rng);
        std::fs::write(&path, &bytes).unwrap();
        let start = Instant::now();
        read += u64::from(survive(&path));
        let took = start.elapsed();
        assert!(took < Duration::from_secs(60), "{} took {took:?}", capture.display());
        slowest = slowest.max(took);
        runs += 1;
    }
    // As docs/measurements.jsonl has it.
    println!(
        "{{\"bench\": \"mutations\", \"version\": \"{}\", \"captures\": {}, \"seconds\": {seconds}, \"seed\": {seed}, \
         \"runs\": {runs}, \"read\": {read}, \"slowest_s\": {:.3}}}",
        env!("CARGO_PKG_VERSION"),
        captures.len(),
        slowest.as_secs_f64()
    );
    assert!(runs > 0);
}

#[test]
fn mutated_captures_end_in_an_answer_or_an_error() {
    mutations(3.0, 1);
}

#[test]
#[ignore = "the long run; PAGE_SCAN_SECONDS and PAGE_SCAN_SEED say how long and which"]
fn mutated_captures_for_long() {
    let number = |name, otherwise| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    mutations(number("PAGE_SCAN_SECONDS", 600_u32).into(), number("PAGE_SCAN_SEED", 2).into());
}
