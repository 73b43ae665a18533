use std::collections::BTreeSet;
use std::fs;

use rusqlite::Connection;

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stops at the n-th report.
struct StopAfter(AtomicU64);

impl StopAfter {
    fn new(reports: u64) -> Self {
        Self(AtomicU64::new(reports))
    }
}

impl Progress for StopAfter {
    fn report(&self, _table: &str, _done: u64, _total: u64) -> Result<()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        left.map(|_| ()).map_err(|_| Error::Cancelled)
    }
}

/// A folder with one database of a few pages.
fn folder(rows: i64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b#c?d%41.sqlite");
    let mut connection = Connection::open(&path).unwrap();
    let transaction = connection.transaction().unwrap();
    transaction.execute_batch("CREATE TABLE T (a INTEGER, b TEXT)").unwrap();
    for n in 0..rows {
        transaction.execute("INSERT INTO T VALUES (?1, ?2)", (n, format!("text {n}"))).unwrap();
    }
    transaction.commit().unwrap();
    (folder, path)
}

fn numbers(database: &Database) -> Vec<i64> {
    let mut found = Vec::new();
    database
        .scan::<Error>("T", &["a"], &Unwatched, |row| {
            if let Value::Int(value) = row.get(0) {
                found.push(value);
            }
            Ok(())
        })
        .unwrap();
    found.sort_unstable();
    found
}

/// Names, sizes and times of all files of a folder.
fn listing(folder: &Path) -> BTreeSet<(String, u64, std::time::SystemTime)> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            (entry.file_name().to_string_lossy().into_owned(), metadata.len(), metadata.modified().unwrap())
        })
        .collect()
}

#[test]
fn reads_cells_of_any_type_and_leaves_no_trace() {
    let (folder, path) = folder(3);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("INSERT INTO T VALUES ('word', x'00FF'), (1.5, NULL), (4, CAST(x'FF0041' AS TEXT))")
        .unwrap();
    drop(connection);
    let before = listing(folder.path());
    let database = Database::open(&path).unwrap();
    assert_eq!(database.tables()["T"], ["a", "b"]);
    assert_eq!(database.count("T").unwrap(), 6);
    let mut found = Vec::new();
    // Asked for in another order than declared.
    let rows = database
        .scan::<Error>("T", &["b", "a"], &Unwatched, |row| {
            found.push(format!("{:?} {:?}", row.get(0), row.get(1)));
            Ok(())
        })
        .unwrap();
    assert_eq!(rows, 6);
    assert_eq!(found[3], "Blob([0, 255]) Text([119, 111, 114, 100])");
    assert_eq!(found[4], "Null Real(1.5)");
    // Not UTF-8, with a NUL in the middle: handed out whole.
    assert_eq!(found[5], "Text([255, 0, 65]) Int(4)");
    assert!(!database.recovered());
    database.close().unwrap();
    assert_eq!(before, listing(folder.path()));
}

#[test]
fn a_scan_can_be_cancelled() {
    let (_folder, path) = folder(25_000);
    let database = Database::open(&path).unwrap();
    for (reports, rows) in [(0, 0), (1, 10_000), (2, 20_000)] {
        let mut seen = 0;
        let outcome = database.scan("T", &["a"], &StopAfter::new(reports), |_| {
            seen += 1;
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::Cancelled)));
        assert_eq!(seen, rows);
    }
}

/// A copy of a database with a log whose frames were never folded in, as after a crash.
#[test]
fn rows_in_the_write_ahead_log_are_seen() {
    let (source, path) = folder(3);
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0").unwrap();
    connection.execute_batch("INSERT INTO T VALUES (100, 'committed')").unwrap();
    let crashed = tempfile::tempdir().unwrap();
    let copy = crashed.path().join("x.sqlite");
    fs::copy(&path, &copy).unwrap();
    fs::copy(file::beside(&path, "-wal"), crashed.path().join("x.sqlite-wal")).unwrap();
    drop(connection);
    drop(source);
    let before = listing(crashed.path());
    let database = Database::open(&copy).unwrap();
    assert!(database.recovered());
    assert_eq!(numbers(&database), [0, 1, 2, 100]);
    database.close().unwrap();
    assert_eq!(before, listing(crashed.path()));
}

#[test]
fn a_finished_log_needs_no_copy() {
    let (folder, path) = folder(3);
    Connection::open(&path).unwrap().execute_batch("PRAGMA journal_mode=WAL").unwrap();
    // Bytes 18 and 19 of the header: written in WAL mode.
    assert_eq!(fs::read(&path).unwrap()[18..20], [2, 2]);
    fs::write(file::beside(&path, "-wal"), b"").unwrap();
    let before = listing(folder.path());
    let database = Database::open(&path).unwrap();
    assert!(!database.recovered());
    assert_eq!(numbers(&database), [0, 1, 2]);
    drop(database);
    assert_eq!(before, listing(folder.path()));
}

#[test]
fn a_hot_journal_is_rolled_back_in_a_copy() {
    let (_source, path) = folder(5000);
    let connection = Connection::open(&path).unwrap();
    // A cache of one page: the transaction has to write to the file before it is committed.
    connection
        .execute_batch("PRAGMA cache_size=1; PRAGMA synchronous=OFF; BEGIN; UPDATE T SET a = a + 1000000")
        .unwrap();
    let crashed = tempfile::tempdir().unwrap();
    let copy = crashed.path().join("x.sqlite");
    fs::copy(&path, &copy).unwrap();
    fs::copy(file::beside(&path, "-journal"), crashed.path().join("x.sqlite-journal")).unwrap();
    connection.execute_batch("ROLLBACK").unwrap();
    drop(connection);
    let torn = Connection::open_with_flags(
        format!("file:{}?immutable=1", copy.display()),
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
    );
    let highest: i64 = torn.unwrap().query_row("SELECT max(a) FROM T", [], |r| r.get(0)).unwrap();
    assert!(highest >= 1_000_000, "the journal of this test is not needed");
    let before = listing(crashed.path());
    let database = Database::open(&copy).unwrap();
    assert!(database.recovered());
    assert_eq!(numbers(&database), (0..5000).collect::<Vec<_>>());
    assert_eq!(before, listing(crashed.path()));
}

#[test]
fn a_log_that_cannot_be_recovered_is_named() {
    let (_folder, path) = folder(2000);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(file::beside(&path, "-wal"), [7_u8; 4096]).unwrap();
    let error = Database::open(&path).unwrap_err();
    assert!(matches!(error, Error::Unfinished { .. }), "{error}");
    assert!(error.to_string().contains("-wal"), "{error}");
}

#[cfg(unix)]
#[test]
fn read_only_files_in_read_only_folders() {
    use std::os::unix::fs::PermissionsExt;
    for wal in [false, true] {
        let (source, path) = folder(3);
        let connection = Connection::open(&path).unwrap();
        let closed = tempfile::tempdir().unwrap();
        let copy = closed.path().join("x.sqlite");
        let mut expected = vec![0, 1, 2];
        if wal {
            connection.execute_batch("PRAGMA journal_mode=WAL; INSERT INTO T VALUES (9, '')").unwrap();
            fs::copy(file::beside(&path, "-wal"), closed.path().join("x.sqlite-wal")).unwrap();
            expected.push(9);
        }
        fs::copy(&path, &copy).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(&copy, 0o444);
        mode(closed.path(), 0o555);
        let before = listing(closed.path());
        let database = Database::open(&copy).unwrap();
        assert_eq!(database.recovered(), wal);
        assert_eq!(numbers(&database), expected);
        database.close().unwrap();
        assert_eq!(before, listing(closed.path()));
        mode(closed.path(), 0o755);
        drop(source);
    }
}

#[cfg(unix)]
#[test]
fn names_that_are_not_utf8_and_links() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (folder, path) = folder(3);
    let odd = folder.path().join(OsStr::from_bytes(b"caf\xe9 \xff.sqlite"));
    // Some file systems refuse such names.
    if fs::copy(&path, &odd).is_ok() {
        assert_eq!(numbers(&Database::open(&odd).unwrap()), [0, 1, 2]);
    }
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(numbers(&Database::open(&link).unwrap()), [0, 1, 2]);
}

#[test]
fn what_is_no_whole_database_is_refused_by_name_and_offset() {
    let (folder, path) = folder(2000);
    let bytes = fs::read(&path).unwrap();
    let case = folder.path().join("case");
    let open = |content: &[u8]| {
        fs::write(&case, content).unwrap();
        Database::open(&case).map(|_| ()).unwrap_err()
    };
    assert!(matches!(open(b""), Error::NotSqlite { .. }));
    assert!(matches!(open(b"SQLite"), Error::Damaged { .. }));
    assert!(matches!(open(&[b'x'; 5000]), Error::NotSqlite { .. }));
    fs::write(file::beside(&case, "-wal"), [1_u8; 100]).unwrap();
    assert!(matches!(open(&[b'x'; 5000]), Error::NotSqlite { .. }));
    fs::remove_file(file::beside(&case, "-wal")).unwrap();
    let cut = open(&bytes[..bytes.len() - 1]);
    assert!(matches!(cut, Error::Damaged { .. }), "{cut}");
    assert!(cut.to_string().contains(&format!("offset {}", bytes.len() - 1)), "{cut}");
    let mut odd_page = bytes.clone();
    odd_page[16..18].copy_from_slice(&[3, 1]);
    assert!(open(&odd_page).to_string().contains("page size 769"));
    assert!(matches!(Database::open(folder.path()), Err(Error::Io { source, .. })
        if source.kind() == std::io::ErrorKind::IsADirectory));
    assert!(matches!(Database::open(&folder.path().join("none")), Err(Error::Io { source, .. })
        if source.kind() == std::io::ErrorKind::NotFound));
}

#[test]
fn a_damaged_page_is_named_with_table_and_place() {
    let (_folder, path) = folder(5000);
    let mut bytes = fs::read(&path).unwrap();
    let page = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let last = bytes.len() - page;
    bytes[last..last + 64].fill(0xAA);
    fs::write(&path, bytes).unwrap();
    let place = format!("table T, page {}, offset {last}", last / page + 1);
    for (database, place) in [
        (Database::open(&path).unwrap(), place.as_str()),
        (Database::open(&path).unwrap().through_sqlite(), "table T, row "),
    ] {
        let error = database.scan("T", &["a"], &Unwatched, |_| Ok::<_, Error>(())).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(place), "{error}");
        let error = database.columns("T", &[("a", As::I64)], &Unwatched).unwrap_err();
        assert!(error.to_string().contains("table T"), "{error}");
    }
}

#[test]
fn a_file_that_changes_under_the_reader_is_no_answer() {
    let (_folder, path) = folder(3);
    let database = Database::open(&path).unwrap();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    Connection::open(&path).unwrap().execute_batch("UPDATE T SET a = 7").unwrap();
    // Also where the clock of the file system is too coarse to show it.
    fs::File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
    assert!(matches!(database.close(), Err(Error::Changed { .. })));
}

#[test]
fn views_and_virtual_tables_are_not_looked_at() {
    let (_folder, path) = folder(1);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("CREATE VIEW V AS SELECT * FROM T; CREATE VIRTUAL TABLE F USING fts5(x)")
        .unwrap();
    drop(connection);
    let database = Database::open(&path).unwrap();
    assert!(!database.tables().contains_key("V") && !database.tables().contains_key("F"));
    assert_eq!(database.not_stored().unwrap(), ["F", "V"]);
}

/// One byte string of the file replaced, and what is then said of which page.
#[test]
fn every_kind_of_damage_is_named_with_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA page_size=512; CREATE TABLE T (a INTEGER, b TEXT);
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000)
            INSERT INTO T SELECT i, CASE WHEN i = 1500 THEN hex(randomblob(2000)) ELSE 'text' END FROM n",
        )
        .unwrap();
    drop(connection);
    let whole = fs::read(&path).unwrap();
    let at = |page: u32| 512 * (usize::try_from(page).unwrap() - 1);
    let number = |offset: usize, len: usize| {
        u32::try_from(whole[offset..offset + len].iter().fold(0, |n, byte| n << 8 | usize::from(*byte)))
            .unwrap()
    };
    // Page 2 is the root; its first child is an inner page, and the first child of that a leaf.
    let root = at(2);
    assert_eq!(whole[root], 5);
    let first_cell = root + usize::try_from(number(root + 12, 2)).unwrap();
    let inner = number(first_cell, 4);
    let inner_cell = at(inner) + usize::try_from(number(at(inner) + 12, 2)).unwrap();
    let later_cell = at(inner) + usize::try_from(number(at(inner) + 14, 2)).unwrap();
    let leaf = number(inner_cell, 4);
    assert_eq!((whole[at(inner)], whole[at(leaf)]), (5, 13));
    let row = at(leaf) + usize::try_from(number(at(leaf) + 8 + 2 * 5, 2)).unwrap();
    // Where the text of 4000 letters goes on: the leaf whose row has an overflow page.
    let pages = u32::try_from(whole.len() / 512).unwrap();
    let chained: Vec<u32> = (3..=pages).filter(|page| ![5, 13].contains(&whole[at(*page)])).collect();
    let overflow = chained[1];
    let next = number(at(overflow), 4);
    assert!(chained.contains(&next));
    let cases: Vec<(usize, Vec<u8>, u32, &str)> = vec![
        (first_cell, 2_u32.to_be_bytes().to_vec(), 2, "is pointed to twice"),
        (inner_cell, inner.to_be_bytes().to_vec(), inner, ""),
        (inner_cell, 0_u32.to_be_bytes().to_vec(), 0, "the file does not have it"),
        (inner_cell, (pages + 1).to_be_bytes().to_vec(), pages + 1, "the file does not have it"),
        (later_cell, u32::MAX.to_be_bytes().to_vec(), u32::MAX, "the file does not have it"),
        (later_cell, 1_u32.to_be_bytes().to_vec(), 1, "is the list of tables"),
        (at(leaf), vec![7], leaf, "is no page of a table"),
        (at(leaf) + 3, vec![0xff, 0xff], leaf, "claims more rows than a page can hold"),
        (at(leaf) + 8, vec![0xff, 0xff], leaf, "points to a row outside of its page"),
        (at(leaf) + 8, vec![0, 0], leaf, "points to a row outside of its page"),
        (row, vec![0xff; 9], leaf, "is a row longer than the file"),
        (row, vec![0x70], leaf, "is a row that ends outside of its page"),
        (row, vec![whole[row] - 1], leaf, "length is not that of its columns"),
        (row + 2, vec![0x7f], leaf, "header is longer than the row"),
        (row + 3, vec![10], leaf, "column type that SQLite does not write"),
        (row + 3, vec![6], leaf, "length is not that of its columns"),
        (at(overflow), overflow.to_be_bytes().to_vec(), overflow, "is an overflow page of two rows"),
        (at(overflow), 0_u32.to_be_bytes().to_vec(), 0, "overflow pages end too early"),
        (at(overflow), (pages + 9).to_be_bytes().to_vec(), pages + 9, "the file does not have it"),
    ];
    for (offset, bytes, page, what) in cases {
        let mut broken = whole.clone();
        broken[offset..offset + bytes.len()].copy_from_slice(&bytes);
        fs::write(&path, broken).unwrap();
        for threads in [1, 2] {
            let database = Database::open(&path).unwrap().with_threads(threads);
            let asked = [("a", As::I64), ("b", As::Distinct)];
            let scanned = database.scan("T", &["a", "b"], &Unwatched, |_| Ok::<_, Error>(())).unwrap_err();
            let read = database.columns("T", &asked, &Unwatched).unwrap_err();
            for error in [scanned, read] {
                let said = error.to_string();
                let place = if page == 0 {
                    "table T, page ".to_owned()
                } else {
                    format!("table T, page {page}, offset ")
                };
                assert!(said.contains(&place) && said.contains(what), "{offset} {bytes:?}: {said}");
            }
        }
    }
}

/// Ten thousand rows that all claim the same long chain of overflow pages would take hours to read.
#[test]
fn a_chain_of_overflow_pages_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("PRAGMA page_size=512; CREATE TABLE T (b BLOB); INSERT INTO T VALUES (zeroblob(5100)), (zeroblob(5100))")
        .unwrap();
    drop(connection);
    let mut bytes = fs::read(&path).unwrap();
    // Both rows stand in page 2; the number of their first overflow page is the last of the local part.
    let cells: Vec<usize> = (0..2)
        .map(|cell| 512 + usize::from(u16::from_be_bytes([bytes[520 + 2 * cell], bytes[521 + 2 * cell]])))
        .collect();
    let (low, high) = (cells[1], cells[0]);
    let chain = bytes[high - 4..high].to_vec();
    assert!(chain[..3] == [0, 0, 0] && chain[3] > 2);
    let size = high - low;
    bytes[high + size - 4..high + size].copy_from_slice(&chain);
    fs::write(&path, bytes).unwrap();
    let error =
        Database::open(&path).unwrap().scan("T", &["b"], &Unwatched, |_| Ok::<_, Error>(())).unwrap_err();
    assert!(error.to_string().contains("is an overflow page of two rows"), "{error}");
}

/// A page in memory cuts what the system reads ahead to pieces; a page that somebody else has read stays where it is.
#[test]
#[cfg(target_os = "linux")]
fn inner_pages_are_left_in_memory_only_where_they_were() {
    use rustix::fs::{fadvise, Advice};
    use rustix::io::{preadv2, Errno, ReadWriteFlags};
    use std::os::unix::fs::FileExt;
    let (_folder, path) = folder(200_000);
    let bytes = fs::read(&path).unwrap();
    // The root is next to the header of the file, which SQLite reads.
    let inner: Vec<u64> =
        (1 << 20..bytes.len()).step_by(4096).filter(|at| bytes[*at] == 5).map(|at| at as u64).collect();
    assert!(!inner.is_empty(), "{inner:?}");
    let file = fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    // To look at one page must not bring others.
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let in_memory = |pages: &[u64]| {
        let mut byte = [0];
        let has = |at: &&u64| {
            let mut into = [std::io::IoSliceMut::new(&mut byte)];
            preadv2(&file, &mut into, **at, ReadWriteFlags::NOWAIT) != Err(Errno::AGAIN)
        };
        pages.iter().filter(has).count()
    };
    // A page that is on its way is not forgotten, so all come first.
    let forget = || {
        fs::read(&path).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    };
    forget();
    if in_memory(&inner) > 0 {
        eprintln!("skipped: where temporary files are kept here, the system never forgets any");
        return;
    }
    let after = (1..16).map(|page| inner[0] + page * 4096);
    let after: Vec<u64> = after.filter(|page| !inner.contains(page)).collect();
    let walk = |read_before: usize| {
        forget();
        let again = fs::File::open(&path).unwrap();
        fadvise(&again, 0, None, Advice::Random).unwrap();
        again.read_exact_at(&mut vec![0; read_before], 0).unwrap();
        let database = Database::open(&path).unwrap();
        let (Ok(pages), Ok(stand)) = (&database.pages, database.access_path_of("T").unwrap()) else {
            unreachable!()
        };
        let found = pages.leaves("T", stand.root, &pages.unvisited()).unwrap();
        assert!(found.len() > 500);
        (in_memory(&inner), in_memory(&after))
    };
    // All of the file, nothing of it, and what comes before an inner page, which is no reason to read what follows it.
    let whole = (inner.len(), after.len());
    assert_eq!(walk(bytes.len()), whole);
    assert_eq!(walk(0), (0, 0));
    // Now and then the system keeps a page that it has at hand elsewhere; it does not do so every time.
    let found: Vec<_> = (0..5).map(|_| walk(inner[0] as usize)).collect();
    assert!(found.contains(&(0, 0)), "{found:?}");
}

/// A table that nobody asked for may be most of a file: what is between its ends is not looked at.
#[test]
fn rows_of_a_table_are_known_without_its_pages() {
    let (_folder, path) = folder(200_000);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 8192 * 4096;
    for page in bytes[middle..middle + 100 * 4096].chunks_exact_mut(4096) {
        assert_eq!(page[0], 0x0d);
        page.fill(0xff);
    }
    fs::write(&path, bytes).unwrap();
    let database = Database::open(&path).unwrap();
    assert!(database.count("T").is_err());
    assert_eq!(database.rows_by_ids("T").unwrap(), 200_000);
    // Of ids that somebody chose, and of columns with the name of the row id, it says nothing.
    let (_folder, path) = folder(0);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE K (k INTEGER PRIMARY KEY); INSERT INTO K VALUES (-7), (9000);
            CREATE TABLE N (rowid TEXT); INSERT INTO N VALUES ('a'), ('z'), ('b');
            CREATE TABLE W (w TEXT PRIMARY KEY) WITHOUT ROWID; INSERT INTO W VALUES ('a'), ('b');
            CREATE TABLE E (e); INSERT INTO E VALUES (1), (2); DELETE FROM E",
        )
        .unwrap();
    drop(connection);
    let database = Database::open(&path).unwrap();
    for (table, rows) in [("T", 0), ("K", 2), ("N", 3), ("W", 2), ("E", 0)] {
        assert_eq!(database.rows_by_ids(table).unwrap(), rows, "{table}");
    }
}

/// More rows than one thread takes; what is null stands in some of their parts only.
#[test]
fn codes_become_values_and_nulls() {
    use arrow_array::Array;
    let rows = 600_001;
    let named = [Some(0), Some(1), Some(2)];
    let others = [Some(7), None, Some(9)];
    let codes: [Vec<u32>; 3] = [
        (0..rows).map(|row| row % 3).collect(),
        (0..rows).map(|row| if row == 599_990 { 1 } else { 2 }).collect(),
        // No such place.
        (0..rows).map(|row| if row == 4_100 { 3 } else { 0 }).collect(),
    ];
    for codes in &codes {
        for values in [named, others] {
            let expected: Vec<Option<u32>> =
                codes.iter().map(|code| values.get(*code as usize).copied().flatten()).collect();
            let nulls = expected.iter().filter(|value| value.is_none()).count();
            for array in [looked_up(codes, &values), replaced(codes.clone(), &values)] {
                assert_eq!(array.iter().collect::<Vec<_>>(), expected);
                assert_eq!((array.null_count(), array.nulls().is_some()), (nulls, nulls > 0));
            }
        }
    }
    assert_eq!(replaced(Vec::new(), &named).len(), 0);
}

/// Two tables of some 10 MB, the rows of which were written in turn, many at a time; T is damaged if asked for.
#[cfg(target_os = "linux")]
fn two_tables(damaged: bool) -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = folder(0);
    let mut connection = Connection::open(&path).unwrap();
    let transaction = connection.transaction().unwrap();
    transaction.execute_batch("CREATE TABLE U (a INTEGER, b TEXT)").unwrap();
    for part in 0..8 {
        for table in ["T", "U"] {
            let sql = format!(
                "WITH RECURSIVE n(i) AS (SELECT {part} * 40000 UNION ALL SELECT i + 1 FROM n LIMIT 40000)
                INSERT INTO {table} SELECT i, 'the row ' || i || ' of {table}' FROM n"
            );
            transaction.execute_batch(&sql).unwrap();
        }
    }
    transaction.commit().unwrap();
    drop(connection);
    if damaged {
        let mut bytes = fs::read(&path).unwrap();
        let text = b"the row 150000 of T";
        let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
        bytes[at / 4096 * 4096] = 7;
        fs::write(&path, bytes).unwrap();
    }
    fs::File::open(&path).unwrap().sync_all().unwrap();
    (folder, path)
}

#[test]
#[cfg(target_os = "linux")]
fn from_a_disk_tables_are_fetched_in_the_order_in_which_they_are_asked_for() {
    use rustix::fs::{fadvise, Advice};
    let asked = [("a", As::I64), ("b", As::Distinct)];
    let read = |database: &Database, table: &str| {
        let (rows, columns) = database.columns(table, &asked, &Unwatched)?;
        let Column::I64(numbers) = &columns[0] else { unreachable!() };
        let Column::Distinct(texts) = &columns[1] else { unreachable!() };
        Ok::<_, Error>((rows, numbers.values.clone(), texts.codes.clone(), texts.entries.clone()))
    };
    for damaged in [false, true] {
        let (_folder, path) = two_tables(damaged);
        let alone = Database::open(&path).unwrap().with_threads(1);
        let expected = ["T", "U"].map(|table| read(&alone, table).map_err(|e| e.to_string()));
        assert_eq!(expected[0].is_err(), damaged, "{:?}", expected[0].as_ref().err());
        assert_eq!(expected[1].as_ref().unwrap().0, 320_000);
        // On its list and in its order, in another one, and only the second of them.
        for order in [vec!["T", "U"], vec!["U", "T"], vec!["U"]] {
            fadvise(fs::File::open(&path).unwrap(), 0, None, Advice::DontNeed).unwrap();
            let database = Database::open(&path).unwrap().with_threads(3);
            database.read_soon(&["T", "U", "nowhere"]).unwrap();
            if order[0] == "T" {
                let prefetch = database.prefetch.borrow();
                let following = prefetch.as_ref().unwrap().follow("T").unwrap();
                if !following.is_fetched() {
                    eprintln!("skipped: where temporary files are kept here, the system never forgets any");
                    return;
                }
                assert!(following.leaves().len() > 1000);
            }
            for table in order {
                let found = read(&database, table).map_err(|e| e.to_string());
                assert_eq!(found, expected[usize::from(table == "U")], "{table}");
            }
        }
        // What is in memory is left to those who decode it, and nobody waits for who is told to stop.
        fs::read(&path).unwrap();
        let database = Database::open(&path).unwrap().with_threads(2);
        database.read_soon(&["U"]).unwrap();
        assert!(!database.prefetch.borrow().as_ref().unwrap().follow("U").unwrap().is_fetched());
        fadvise(fs::File::open(&path).unwrap(), 0, None, Advice::DontNeed).unwrap();
        database.read_soon(&["T", "U"]).unwrap();
        drop(database);
    }
}
