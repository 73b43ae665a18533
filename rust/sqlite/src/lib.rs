//! Read the rows of a SQLite file without leaving a trace next to it.
//!
//! The only place that knows the SQLite file format. Everything else sees a [`Database`]: names of tables and columns,
//! a scan that yields the cells of chosen columns row by row, and one that turns a table into typed columns.
//!
//! ```text
//!   access_path  page scan, or row by row through SQLite
//!   pages        the b-tree of a table, down to its leaves
//!   prefetch     fetches the pages of the next tables from the disk
//!   record       where the requested columns stand in a row
//!   cursor       leaves to blocks of rows
//!   simd         blocks to whole numbers, four columns at a time
//!   columns      those to typed columns, on several threads
//! ```
//!
//! Stepping through rows with SQLite costs more than everything that is done with them afterwards. So a table is read
//! from its pages where that is exact, and by SQLite where it is not; [`Database::by_sqlite`] says which tables that
//! were, and why.
//!
//! A capture is evidence: nothing next to it or inside it may change. SQLite's `mode=ro` still writes a `-shm` file
//! next to a database in WAL mode, and `immutable=1` ignores a write-ahead log. So the header and the companions are
//! checked first. Without unfinished work the file is opened as immutable; with it, the database and its companions are
//! copied to a private folder and recovered there ([`Database::recovered`]).

mod access_path;
mod columns;
mod combined;
mod cursor;
mod error;
mod file;
mod pages;
pub mod parallel;
mod prefetch;
mod progress;
mod record;
mod simd;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use access_path::Stand;
pub use columns::{looked_up, replaced, As, Column, Distinct, Numbers, Owned};
pub use combined::Combined;
use cursor::Cursor;
pub use error::{Error, Result};
use file::Fingerprint;
use pages::Pages;
use prefetch::Prefetch;
pub use progress::{Progress, Unwatched};
use record::{Block, Shapes};

/// How many rows lie between two calls of [`Progress::report`].
const ROWS_PER_REPORT: u64 = 10_000;

/// One cell. SQLite columns have no fixed type: every row may hold another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// NULL, or the column is not there.
    Null,
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// Text as it stands in the file: not always UTF-8, and with NUL bytes if it has some.
    Text(&'a [u8]),
    /// Anything else.
    Blob(&'a [u8]),
}

impl Value<'_> {
    /// An integer; `Err` for a cell that is none. SQLite lets any type stand in any column.
    #[allow(clippy::result_unit_err, clippy::missing_errors_doc)]
    pub fn integer(self) -> std::result::Result<Option<i64>, ()> {
        match self {
            Value::Null => Ok(None),
            Value::Int(value) => Ok(Some(value)),
            // 2^63 is the first double above the range; within it, whole doubles convert exactly.
            #[allow(clippy::cast_possible_truncation)]
            Value::Real(value) if value.fract() == 0.0 && value.abs() < 9_223_372_036_854_775_808.0 => {
                Ok(Some(value as i64))
            }
            Value::Text(bytes) => {
                std::str::from_utf8(bytes).ok().and_then(|t| t.trim().parse().ok()).map(Some).ok_or(())
            }
            Value::Real(_) | Value::Blob(_) => Err(()),
        }
    }
}

/// One row of a scan.
#[derive(Debug)]
pub struct Row<'a>(Source<'a>);

#[derive(Debug)]
enum Source<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Pages { buffer: &'a [u8], block: &'a Block, shapes: &'a Shapes, row: usize },
}

impl Row<'_> {
    /// The cell of the `index`-th column that was asked for.
    #[must_use]
    pub fn get(&self, index: usize) -> Value<'_> {
        match &self.0 {
            Source::Sqlite(row) => match row.get_ref(index) {
                Ok(ValueRef::Integer(value)) => Value::Int(value),
                Ok(ValueRef::Real(value)) => Value::Real(value),
                Ok(ValueRef::Text(bytes)) => Value::Text(bytes),
                Ok(ValueRef::Blob(bytes)) => Value::Blob(bytes),
                Ok(ValueRef::Null) | Err(_) => Value::Null,
            },
            Source::Pages { buffer, block, shapes, row } => {
                let Some((start, shape)) = block.place(*row) else { return Value::Null };
                let cell = shapes.cells(index).get(usize::from(shape));
                cell.map_or(Value::Null, |cell| cell.value(buffer, start, block.row_id(*row)))
            }
        }
    }
}

/// How a table is stored, or why it is left to SQLite.
type AccessPath = std::result::Result<Stand, &'static str>;

/// A SQLite file, open for reading.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    connection: Connection,
    tables: BTreeMap<String, Vec<String>>,
    before: Fingerprint,
    /// The inner error says why no table is read from its pages.
    pages: std::result::Result<Arc<Pages>, &'static str>,
    access_paths: RefCell<BTreeMap<String, AccessPath>>,
    threads: usize,
    prefetch: RefCell<Option<Prefetch>>,
    // Dropped after the connection: fields are dropped in order.
    copy: Option<tempfile::TempDir>,
}

impl Database {
    /// Opens `path` and lists its tables.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotSqlite`], [`Error::Damaged`],
    /// [`Error::Unfinished`] if unfinished changes cannot be recovered in a copy, [`Error::Changed`]
    /// if somebody wrote while it was copied.
    pub fn open(path: &Path) -> Result<Self> {
        // SQLite looks for companions beside the file itself, not beside a link to it.
        let real = path.canonicalize().map_err(|e| Error::io("open", path, e))?;
        let before = Fingerprint::take(path)?;
        file::check_magic(path)?;
        let companions = file::unfinished(&real)?;
        if companions.is_empty() {
            file::check_length(path)?;
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_URI
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(file::immutable_uri(&real), flags)
                .map_err(|e| explain(path, "cannot be opened", &e))?;
            let tables = list_tables(&connection).map_err(|e| explain(path, "table list", &e))?;
            let pages = Pages::open(&real, path)?;
            return Ok(Self::new(path, connection, tables, before, pages, None));
        }
        let names: Vec<String> = companions
            .iter()
            .filter_map(|p| p.file_name())
            .map(|n| n.to_string_lossy().into_owned())
            .collect();
        let unfinished = |detail: String| Error::Unfinished {
            path: path.to_owned(),
            detail: format!("{} beside it; {detail}", names.join(", ")),
        };
        let (folder, copied) = file::copy_with_companions(&real, &companions)?;
        if Fingerprint::take(path)? != before {
            return Err(Error::Changed { path: path.to_owned() });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let recovered = Connection::open_with_flags(&copied, flags).and_then(|connection| {
            // Rolls a hot journal back, or folds the log into the copy.
            connection.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(()))?;
            let tables = list_tables(&connection)?;
            Ok((connection, tables))
        });
        let (connection, tables) = recovered.map_err(|e| unfinished(format!("recovery failed: {e}")))?;
        // The copy must now be whole by itself.
        file::check_length(&copied).map_err(|e| match e {
            Error::Damaged { detail, .. } => unfinished(format!("after recovery {detail}")),
            other => other,
        })?;
        let pages = Pages::open(&copied, path)?;
        Ok(Self::new(path, connection, tables, before, pages, Some(folder)))
    }

    fn new(
        path: &Path,
        connection: Connection,
        tables: BTreeMap<String, Vec<String>>,
        before: Fingerprint,
        pages: std::result::Result<Pages, &'static str>,
        copy: Option<tempfile::TempDir>,
    ) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (pages, access_paths, prefetch) = (pages.map(Arc::new), RefCell::default(), RefCell::default());
        Self {
            path: path.to_owned(),
            connection,
            tables,
            before,
            pages,
            access_paths,
            threads,
            prefetch,
            copy,
        }
    }

    /// Leaves every table to SQLite: the reference that the page scan is held against.
    #[must_use]
    pub fn through_sqlite(mut self) -> Self {
        self.pages = Err("that was asked for");
        self
    }

    /// Reads a table as for so many processors, with 1 on the calling thread alone; as for those that are there if not
    /// called.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// The tables read so far that were left to SQLite, and why.
    #[must_use]
    pub fn by_sqlite(&self) -> Vec<(String, &'static str)> {
        let access_paths = self.access_paths.borrow();
        access_paths
            .iter()
            .filter_map(|(table, access_path_of)| Some((table.clone(), *access_path_of.as_ref().err()?)))
            .collect()
    }

    /// Whether `table` is read from its pages.
    fn access_path_of(&self, table: &str) -> Result<AccessPath> {
        if let Some(known) = self.access_paths.borrow().get(table) {
            return Ok(known.clone());
        }
        let found = match &self.pages {
            Err(reason) => Err(*reason),
            Ok(_) => access_path::look(&self.connection, table)
                .map_err(|e| explain(&self.path, &format!("table {table}"), &e))?,
        };
        self.access_paths.borrow_mut().insert(table.to_owned(), found.clone());
        Ok(found)
    }

    /// The file as it was named by the caller.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the file when it was opened.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.before.size
    }

    /// Whether it is read from a private copy, because it had unfinished changes.
    #[must_use]
    pub fn recovered(&self) -> bool {
        self.copy.is_some()
    }

    /// The columns of every table.
    #[must_use]
    pub fn tables(&self) -> &BTreeMap<String, Vec<String>> {
        &self.tables
    }

    /// Names of views and virtual tables, which are not looked at.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Io`].
    pub fn not_stored(&self) -> Result<Vec<String>> {
        let sql = "SELECT CAST(name AS TEXT) FROM sqlite_master
            WHERE type = 'view' OR type = 'table' AND sql LIKE 'CREATE VIRTUAL%' ORDER BY name";
        let names = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.connection.prepare(sql)?;
            let names = statement
                .query_map([], |row| Ok(String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned()))?;
            names.collect()
        };
        names().map_err(|e| explain(&self.path, "table list", &e))
    }

    /// How many rows `table` has.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Io`].
    pub fn count(&self, table: &str) -> Result<u64> {
        if let (Ok(pages), Ok(stand)) = (&self.pages, self.access_path_of(table)?) {
            let mut leaves = pages.leaves(table, stand.root, &pages.unvisited())?;
            return pages.count_rows(table, &mut leaves, self.threads);
        }
        let sql = format!("SELECT count(*) FROM {}", quote(table));
        let rows: i64 = self
            .connection
            .query_row(&sql, [], |row| row.get(0))
            .map_err(|e| explain(&self.path, &format!("table {table}"), &e))?;
        Ok(u64::try_from(rows).unwrap_or(0))
    }

    /// How many rows `table` has if none was ever deleted, from its first and its last row id; none is 0 for sure.
    ///
    /// Counting looks at every page of a table, and this is asked of those that are not read. Row ids count rows only
    /// where nobody chose them; elsewhere it is [`Database::count`].
    ///
    /// # Errors
    /// As [`Database::count`].
    pub fn rows_by_ids(&self, table: &str) -> Result<u64> {
        if !self.access_path_of(table)?.is_ok_and(|stand| stand.numbers_its_rows()) {
            return self.count(table);
        }
        self.row_ids(table).map_err(|e| explain(&self.path, &format!("table {table}"), &e))
    }

    /// Hands every row of `table` to `visit`, in no promised order; returns how many there were.
    ///
    /// [`Row::get`] counts in the order of `columns`.
    ///
    /// # Errors
    /// Those of `visit` and `progress`, and [`Error::Damaged`] with the table and the row.
    pub fn scan<E: From<Error>>(
        &self,
        table: &str,
        columns: &[&str],
        progress: &(impl Progress + ?Sized),
        mut visit: impl FnMut(&Row<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<u64, E> {
        if let (Ok(pages), Ok(stand)) = (&self.pages, self.access_path_of(table)?) {
            let stored: Option<Vec<_>> = columns.iter().map(|name| stand.column(name)).collect();
            if let Some(stored) = stored {
                let leaves = pages.leaves(table, stand.root, &pages.unvisited())?;
                let total = leaves.iter().map(|leaf| u64::from(leaf.rows_at_most)).sum();
                progress.report(table, 0, total)?;
                let overflow_seen = pages.unvisited();
                let again = pages.opened_again();
                let mut cursor = Cursor::new(pages, again.as_ref(), table, &leaves, &overflow_seen, &stored);
                let mut done = 0_u64;
                while cursor.advance()? {
                    for row in 0..cursor.block.len() {
                        let (buffer, block, shapes) = (&cursor.buffer, &cursor.block, &cursor.shapes);
                        visit(&Row(Source::Pages { buffer, block, shapes, row }))?;
                        done += 1;
                        if done.is_multiple_of(ROWS_PER_REPORT) {
                            progress.report(table, done, total.max(done))?;
                        }
                    }
                }
                return Ok(done);
            }
        }
        self.step(table, columns, progress, |row| visit(&Row(Source::Sqlite(row))))
    }

    /// Says that [`Database::columns`] will be asked for these tables, in this order: where they are on a disk they are
    /// fetched while others are decoded. Whoever asks in another order, or for less, gets the same.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Io`].
    pub fn read_soon(&self, tables: &[&str]) -> Result<()> {
        let mut roots = Vec::new();
        for table in tables {
            if let Ok(stand) = self.access_path_of(table)? {
                roots.push(((*table).to_owned(), stand.root));
            }
        }
        let pages = self.pages.as_ref().ok().filter(|_| self.threads > 1 && !roots.is_empty());
        let start = |pages: &Arc<Pages>| Prefetch::start(Arc::clone(pages), roots, self.threads);
        self.prefetch.replace(pages.map(start));
        Ok(())
    }

    /// Reads columns of `table`, each as the type that is asked for; returns how many rows there are.
    ///
    /// Rows come in the order of the table.
    ///
    /// # Errors
    /// Those of `progress`, and [`Error::Damaged`] with the table and the page or row.
    pub fn columns(
        &self,
        table: &str,
        asked: &[(&str, As)],
        progress: &(impl Progress + ?Sized),
    ) -> Result<(usize, Vec<Column>)> {
        let (rows, columns, _) = self.columns_combined(table, asked, &[], progress)?;
        Ok((rows, columns))
    }

    /// The same, and columns of numbers whose values come in few combinations; [`None`] where there are too many of
    /// these, or the table is not read from its pages.
    ///
    /// # Errors
    /// As [`Database::columns`].
    pub fn columns_combined(
        &self,
        table: &str,
        asked: &[(&str, As)],
        combining: &[(&str, As)],
        progress: &(impl Progress + ?Sized),
    ) -> Result<(usize, Vec<Column>, Option<Combined>)> {
        if let (Ok(pages), Ok(stand)) = (&self.pages, self.access_path_of(table)?) {
            let stored = |asked: &[(&str, As)]| -> Option<Vec<_>> {
                asked.iter().map(|(name, kind)| Some((stand.column(name)?, *kind))).collect()
            };
            if let (Some(asked), Some(combining)) = (stored(asked), stored(combining)) {
                let (at, prefetch) = ((table, stand.root), self.prefetch.borrow());
                let prefetch = prefetch.as_ref();
                return columns::read(pages, at, &asked, &combining, self.threads, prefetch, progress);
            }
        }
        let names: Vec<&str> = asked.iter().map(|(name, _)| *name).collect();
        let kinds: Vec<As> = asked.iter().map(|(_, kind)| *kind).collect();
        let rows = usize::try_from(self.count(table)?).unwrap_or(usize::MAX);
        let (rows, columns) = columns::fill(&kinds, rows, |put| {
            self.step(table, &names, progress, |row| {
                let row = Row(Source::Sqlite(row));
                for column in 0..names.len() {
                    put(column, row.get(column));
                }
                Ok::<_, Error>(())
            })
        })?;
        Ok((rows, columns, None))
    }

    /// Lets SQLite step through `table`.
    fn step<E: From<Error>>(
        &self,
        table: &str,
        columns: &[&str],
        progress: &(impl Progress + ?Sized),
        mut visit: impl FnMut(&rusqlite::Row<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<u64, E> {
        // For a bar that moves it is enough; a table without row ids has none.
        let total = self.row_ids(table).unwrap_or(0);
        progress.report(table, 0, total)?;
        let list: Vec<String> = columns.iter().map(|c| quote(c)).collect();
        // Without a column the rows are still counted.
        let list = if list.is_empty() { "NULL".to_owned() } else { list.join(", ") };
        let sql = format!("SELECT {list} FROM {}", quote(table));
        let mut done = 0_u64;
        let place = |done: u64| format!("table {table}, row {}", done + 1);
        let mut statement =
            self.connection.prepare(&sql).map_err(|e| explain(&self.path, &place(done), &e))?;
        let mut rows = statement.query([]).map_err(|e| explain(&self.path, &place(done), &e))?;
        while let Some(row) = rows.next().map_err(|e| explain(&self.path, &place(done), &e))? {
            visit(row)?;
            done += 1;
            if done.is_multiple_of(ROWS_PER_REPORT) {
                progress.report(table, done, total.max(done))?;
            }
        }
        Ok(done)
    }

    /// Makes sure that the file is still the one that was opened.
    ///
    /// # Errors
    /// [`Error::Changed`] if it is not: what was read is then half of one state and half of another.
    pub fn close(self) -> Result<()> {
        if Fingerprint::take(&self.path)? == self.before {
            Ok(())
        } else {
            Err(Error::Changed { path: self.path })
        }
    }

    /// How many row ids there are from the first to the last: at least as many as rows, and it costs nothing.
    fn row_ids(&self, table: &str) -> rusqlite::Result<u64> {
        let table = quote(table);
        // In one query SQLite would look at every row for them.
        let sql = format!("SELECT (SELECT min(rowid) FROM {table}), (SELECT max(rowid) FROM {table})");
        let ends: (Option<i64>, Option<i64>) =
            self.connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(ends.0.zip(ends.1).map_or(0, |(first, last)| last.abs_diff(first).saturating_add(1)))
    }
}

/// Columns of every ordinary table. Views and virtual tables run code that came with the file: they
/// are not looked at.
fn list_tables(connection: &Connection) -> rusqlite::Result<BTreeMap<String, Vec<String>>> {
    connection.execute_batch("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;")?;
    let mut statement = connection
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")?;
    let mut tables = BTreeMap::new();
    let mut rows = statement.query([])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        if let ValueRef::Text(bytes) = row.get_ref(0)? {
            // A name that is not UTF-8 is none of nsys's.
            if let Ok(name) = std::str::from_utf8(bytes) {
                names.push(name.to_owned());
            }
        }
    }
    for name in names {
        let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let columns = statement
            .query_map([&name], |row| Ok(row.get_ref(0)?.as_bytes()?.to_vec()))?
            .map(|bytes| bytes.map(|b| String::from_utf8_lossy(&b).into_owned()))
            .collect::<rusqlite::Result<Vec<String>>>()?;
        tables.insert(name, columns);
    }
    Ok(tables)
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What an error of SQLite means for the file at `path`.
fn explain(path: &Path, place: &str, error: &rusqlite::Error) -> Error {
    let damaged = |detail: String| Error::Damaged { path: path.to_owned(), detail };
    match error.sqlite_error() {
        Some(e) if e.code == ErrorCode::NotADatabase => {
            damaged(format!("{place}: the header is that of a SQLite file, the content is not (encrypted?)"))
        }
        Some(e) if e.code == ErrorCode::OutOfMemory => {
            Error::io("read", path, std::io::Error::from(std::io::ErrorKind::OutOfMemory))
        }
        Some(e) if e.code == ErrorCode::CannotOpen || e.code == ErrorCode::PermissionDenied => {
            Error::io("open", path, std::io::Error::other(error.to_string()))
        }
        Some(e)
            if e.code == ErrorCode::SystemIoFailure
                && e.extended_code != rusqlite::ffi::SQLITE_IOERR_SHORT_READ =>
        {
            Error::io("read", path, std::io::Error::other(format!("{place}: {error}")))
        }
        _ => damaged(format!("{place}: {error}")),
    }
}

#[cfg(test)]
mod tests;
