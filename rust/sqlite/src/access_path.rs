//! Decide whether a table is read by the page scan or left to SQLite.
//!
//! Decided before the first row, from what SQLite itself says about the table: SQLite parses its schema, never this
//! crate. A table that the scan would not read exactly as SQLite does is left to SQLite.

use rusqlite::{Connection, OptionalExtension};

use crate::record::Stored;

/// How a table is stored.
#[derive(Debug, Clone)]
pub(crate) struct Stand {
    /// First page of its b-tree.
    pub(crate) root: u32,
    columns: Vec<(String, Stored)>,
}

impl Stand {
    /// How the column `name` is stored.
    pub(crate) fn column(&self, name: &str) -> Option<Stored> {
        self.columns.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, stored)| *stored)
    }

    /// Whether SQLite chooses the row ids, one after the other, and the name `rowid` stands for them.
    pub(crate) fn numbers_its_rows(&self) -> bool {
        self.columns.iter().all(|(_, stored)| stored.place.is_some()) && self.column("rowid").is_none()
    }
}

/// How `table` is stored; the inner error says why it is left to SQLite.
pub(crate) fn look(
    connection: &Connection,
    table: &str,
) -> rusqlite::Result<std::result::Result<Stand, &'static str>> {
    let mut statement = connection
        .prepare("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?1 COLLATE NOCASE")?;
    let root: Option<Option<i64>> = statement.query_row([table], |row| row.get(0)).optional()?;
    // Page 1 holds the list of tables itself.
    let Some(root) = root.flatten().and_then(|root| u32::try_from(root).ok()).filter(|root| *root > 1) else {
        return Ok(Err("it has no pages of its own"));
    };
    let mut statement = connection
        .prepare("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?1 COLLATE NOCASE")?;
    if statement.query_row([table], |row| row.get::<_, bool>(0)).optional()?.unwrap_or(true) {
        return Ok(Err("it is stored WITHOUT ROWID"));
    }
    let mut statement = connection
        .prepare("SELECT name, type, dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo(?1)")?;
    let mut declared: Vec<Declared> = Vec::new();
    let mut rows = statement.query([table])?;
    while let Some(row) = rows.next()? {
        declared.push(Declared {
            name: String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or_default()).into_owned(),
            kind: String::from_utf8_lossy(row.get_ref(1)?.as_bytes().unwrap_or_default())
                .to_ascii_uppercase(),
            has_default: row.get(2)?,
            primary: row.get::<_, i64>(3)? > 0,
            hidden: row.get::<_, i64>(4)? != 0,
        });
    }
    if declared.iter().any(|column| column.hidden) {
        return Ok(Err("it has generated columns"));
    }
    // Rows written before such a column was added do not hold its value.
    if declared.iter().any(|column| column.has_default) {
        return Ok(Err("it has columns with a default"));
    }
    // The row id under another name, unless (an old mistake that SQLite keeps) it was declared as INTEGER
    // PRIMARY KEY DESC: then there is an index for it, and the column is an ordinary one.
    let mut statement =
        connection.prepare("SELECT count(*) FROM pragma_index_list(?1) WHERE origin = 'pk'")?;
    let indexed: i64 = statement.query_row([table], |row| row.get(0))?;
    let single = declared.iter().filter(|column| column.primary).count() == 1;
    let columns = declared
        .into_iter()
        .enumerate()
        .map(|(place, column)| {
            let row_id = single && column.primary && indexed == 0 && column.kind == "INTEGER";
            let stored = Stored { place: (!row_id).then_some(place), real: is_real(&column.kind) };
            (column.name, stored)
        })
        .collect();
    Ok(Ok(Stand { root, columns }))
}

struct Declared {
    name: String,
    kind: String,
    has_default: bool,
    primary: bool,
    hidden: bool,
}

/// Whether a declared type (in upper case) means REAL: SQLite's own rules, in its own order.
fn is_real(kind: &str) -> bool {
    let has = |part| kind.contains(part);
    let other = has("INT") || has("CHAR") || has("CLOB") || has("TEXT") || has("BLOB");
    !other && (has("REAL") || has("FLOA") || has("DOUB"))
}

#[cfg(test)]
mod tests {
    use super::is_real;

    /// From section 3.1 of <https://www.sqlite.org/datatype3.html>, its odd examples included.
    #[test]
    fn declared_types_that_mean_real() {
        for kind in ["REAL", "DOUBLE", "DOUBLE PRECISION", "FLOAT"] {
            assert!(is_real(kind), "{kind}");
        }
        for kind in
            ["", "INTEGER", "FLOATING POINT", "CHARINT", "NUMERIC", "STRING", "TEXT", "BLOB", "DECIMAL(10,5)"]
        {
            assert!(!is_real(kind), "{kind}");
        }
    }
}
