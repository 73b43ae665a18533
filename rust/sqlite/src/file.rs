//! Check that a file is a whole SQLite database, and whether a journal lies next to it.
//!
//! Looks at bytes only: header, length, companions. Nothing here asks SQLite, because SQLite would already write to the
//! folder.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Error, Result};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;
const WAL_HEADER_BYTES: u64 = 32;
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// What changes when somebody writes to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Size of the file.
    pub(crate) size: u64,
    modified: Option<SystemTime>,
    change_counter: Vec<u8>,
}

impl Fingerprint {
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
        if metadata.is_dir() {
            return Err(Error::io("read", path, ErrorKind::IsADirectory.into()));
        }
        // Opening a pipe would wait for a writer that may never come.
        if !metadata.is_file() {
            return Err(Error::NotSqlite {
                path: path.to_owned(),
                detail: "it is not a regular file".to_owned(),
            });
        }
        let header = read_start(path, HEADER_BYTES)?;
        let change_counter = header.get(24..28).map(<[u8]>::to_vec).unwrap_or_default();
        Ok(Self { size: metadata.len(), modified: metadata.modified().ok(), change_counter })
    }
}

/// Refuses what is no SQLite file.
pub(crate) fn check_magic(path: &Path) -> Result<()> {
    let start = read_start(path, MAGIC.len())?;
    let not_sqlite = |detail: &str| Error::NotSqlite { path: path.to_owned(), detail: detail.to_owned() };
    if start.is_empty() {
        return Err(not_sqlite("the file is empty"));
    }
    if MAGIC.starts_with(&start) {
        return Ok(());
    }
    let report = path.extension().is_some_and(|e| e == "nsys-rep" || e == "qdrep");
    Err(not_sqlite(if report {
        "by its name it is a report: export it first"
    } else {
        "it does not start with `SQLite format 3`"
    }))
}

/// Refuses what is shorter than it says.
pub(crate) fn check_length(path: &Path) -> Result<()> {
    let header = read_start(path, HEADER_BYTES)?;
    let damaged = |detail: String| Error::Damaged { path: path.to_owned(), detail };
    let size = std::fs::metadata(path).map_err(|e| Error::io("read", path, e))?.len();
    let (Some(page_bytes), Some(change), Some(pages), Some(valid_for)) = (
        big_endian(&header, 16, 2),
        big_endian(&header, 24, 4),
        big_endian(&header, 28, 4),
        big_endian(&header, 92, 4),
    ) else {
        return Err(damaged(format!("it ends at offset {size}, inside the header of {HEADER_BYTES} bytes")));
    };
    // 65536 does not fit into two bytes: the format writes 1 for it.
    let page_bytes = if page_bytes == 1 { 65_536 } else { page_bytes };
    if !page_bytes.is_power_of_two() || page_bytes < 512 {
        return Err(damaged(format!("page size {page_bytes} at offset 16 is none that SQLite can write")));
    }
    // The page count is valid only if the last writer knew of it; else the length of the file counts.
    let needed = if change == valid_for { pages.max(1).saturating_mul(page_bytes) } else { page_bytes };
    if size < needed {
        return Err(damaged(format!(
            "it ends at offset {size}, but its header promises {needed} bytes ({} pages of {page_bytes})",
            needed / page_bytes
        )));
    }
    Ok(())
}

/// Files beside `real` without which it is not complete: a log with frames, a hot journal.
pub(crate) fn unfinished(real: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let wal = beside(real, "-wal");
    match std::fs::metadata(&wal) {
        Ok(metadata) if metadata.len() > WAL_HEADER_BYTES => found.push(wal),
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(Error::io("read", &wal, e)),
    }
    let journal = beside(real, "-journal");
    match std::fs::metadata(&journal) {
        // A journal whose first bytes are zero or cut off belongs to a finished transaction.
        Ok(metadata) if metadata.len() > 0 => {
            if read_start(&journal, JOURNAL_MAGIC.len())? == JOURNAL_MAGIC {
                found.push(journal);
            }
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(Error::io("read", &journal, e)),
    }
    Ok(found)
}

/// Copies the database and `companions` to a folder that only this user can read.
pub(crate) fn copy_with_companions(
    real: &Path,
    companions: &[PathBuf],
) -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::Builder::new()
        .prefix("pyanalyze-")
        .tempdir()
        .map_err(|e| Error::io("create a private copy of", real, e))?;
    // A plain name: SQLite finds the companions of the copy by it.
    let copied = folder.path().join("capture.sqlite");
    copy(real, &copied)?;
    for companion in companions {
        let suffix =
            if companion.as_os_str().as_encoded_bytes().ends_with(b"-wal") { "-wal" } else { "-journal" };
        copy(companion, &beside(&copied, suffix))?;
    }
    Ok((folder, copied))
}

/// Not `fs::copy`: that also copies permissions, and a read-only copy cannot be recovered.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let state = |path: &Path| {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io("read", path, e))?;
        Ok::<_, Error>((metadata.len(), metadata.modified().ok()))
    };
    let before = state(from)?;
    let mut source = File::open(from).map_err(|e| Error::io("open", from, e))?;
    let mut target = File::create_new(to).map_err(|e| Error::io("write", to, e))?;
    let copied = std::io::copy(&mut source, &mut target).map_err(|e| Error::io("copy", from, e))?;
    if state(from)? != before || copied != before.0 {
        return Err(Error::Changed { path: from.to_owned() });
    }
    Ok(())
}

/// `file:` URI that tells SQLite: nobody writes, so take no lock and look for no companion.
pub(crate) fn immutable_uri(real: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in real.as_os_str().as_encoded_bytes() {
        // `?`, `#`, `%` and spaces mean something in a URI, other bytes may be no UTF-8.
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri + "?immutable=1"
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn read_start(path: &Path, bytes: usize) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
    let mut start = Vec::with_capacity(bytes);
    let limit = u64::try_from(bytes).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut start).map_err(|e| Error::io("read", path, e))?;
    Ok(start)
}

pub(crate) fn big_endian(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let part = bytes.get(at..at + len)?;
    Some(part.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}
