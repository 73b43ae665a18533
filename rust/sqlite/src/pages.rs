//! Find the leaf pages of a table.
//!
//! Page size and page count from the header, positioned reads of pages, and the walk from the root of a table's b-tree
//! down to its leaves. Rows are not decoded here (see `record.rs`).
//!
//! Every number from the file is checked before it is used. A page is visited once or the file is damaged, so time and
//! memory are bounded by the size of the file, whatever it claims.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::file;

/// First byte of a page of a table's b-tree.
const INTERIOR: u8 = 0x05;
const LEAF: u8 = 0x0d;
/// SQLite itself gives up there: a tree of 20 levels would have more pages than a file can.
const MAX_DEPTH: usize = 20;
/// Fewer leaves are counted faster than a thread is started.
const LEAVES_PER_THREAD: usize = 1024;
/// Bytes of the header of the file.
const FILE_HEADER: usize = 100;

/// The pages of one file.
#[derive(Debug)]
pub(crate) struct Pages {
    file: File,
    /// The same for pages that are far from each other: of them, the system reads no more than it is asked for.
    apart: Option<File>,
    real: PathBuf,
    named: PathBuf,
    /// Size of a page.
    pub(crate) page_bytes: usize,
    /// What b-trees may use of it: some extensions reserve bytes at the end of every page.
    pub(crate) usable: usize,
    /// Pages that the file says it has.
    pub(crate) count: u32,
}

/// A leaf of a table's b-tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// Page number, from 1.
    pub(crate) page: u32,
    /// Rows it can hold at most: row ids are unique, and the pages above say which ones are here. Exports
    /// never delete, so it mostly is the number of rows; that is known before a single leaf is read.
    pub(crate) rows_at_most: u32,
}

/// The leaves of a table, in the order of row ids.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) leaves: Vec<Leaf>,
    /// Whether the system has them in memory, as far as some were looked at.
    pub(crate) in_memory: bool,
}

/// What is wrong inside of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Offset in the page.
    pub(crate) offset: usize,
    /// What is wrong there.
    pub(crate) what: &'static str,
}

impl Pages {
    /// Opens `real`; the inner error says why the whole file is left to SQLite. Messages name `named`.
    pub(crate) fn open(real: &Path, named: &Path) -> Result<std::result::Result<Self, &'static str>> {
        let file = File::open(real).map_err(|e| Error::io("open", named, e))?;
        let size = file.metadata().map_err(|e| Error::io("read", named, e))?.len();
        let mut header = [0_u8; FILE_HEADER];
        read_at(&file, &mut header, 0).map_err(|e| Error::io("read", named, e))?;
        let number = |at, len| file::big_endian(&header, at, len).unwrap_or(0);
        // 65536 does not fit into two bytes: the format writes 1 for it.
        let page_bytes = if number(16, 2) == 1 { 65_536 } else { number(16, 2) };
        let reserved = number(20, 1);
        if !(512..=65_536).contains(&page_bytes)
            || !page_bytes.is_power_of_two()
            || page_bytes - reserved < 480
        {
            return Ok(Err("its page size is none that SQLite writes"));
        }
        if number(19, 1) > 2 || number(44, 4) > 4 {
            return Ok(Err("its file format is newer than 4"));
        }
        // 0 stands in a file without any table.
        if number(56, 4) > 1 {
            return Ok(Err("its text is UTF-16"));
        }
        // The page count in the header is valid only if the last writer knew of it.
        let counted = if number(24, 4) == number(92, 4) { number(28, 4) } else { 0 };
        let count = if counted > 0 { counted } else { size / page_bytes };
        let narrow = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let apart = opened_again(real, &file);
        apart.iter().for_each(reads_apart);
        Ok(Ok(Self {
            file,
            apart,
            real: real.to_owned(),
            named: named.to_owned(),
            page_bytes: narrow(page_bytes),
            usable: narrow(page_bytes - reserved),
            count: u32::try_from(count).unwrap_or(u32::MAX),
        }))
    }

    /// Rows that fit on one leaf: a cell takes at least 4 bytes and a pointer of 2.
    pub(crate) fn max_cells(&self) -> usize {
        (self.page_bytes - 8) / 6
    }

    /// Size of all pages together.
    pub(crate) fn total_bytes(&self) -> u64 {
        u64::from(self.count).saturating_mul(wide(self.page_bytes))
    }

    /// Bytes of a row that stand in its leaf, and whether that is all of them.
    ///
    /// The rule of the file format: what does not fit is cut so that the overflow pages are full.
    pub(crate) fn local_bytes(&self, payload: u64) -> (usize, bool) {
        let most = self.usable - 35;
        match usize::try_from(payload) {
            Ok(payload) if payload <= most => (payload, true),
            _ => {
                let least = (self.usable - 12) * 32 / 255 - 23;
                let rest = payload.wrapping_sub(wide(least)) % wide(self.usable - 4);
                let cut = least + usize::try_from(rest).unwrap_or(0);
                (if cut <= most { cut } else { least }, false)
            }
        }
    }

    /// Fills `into` with the bytes from the start of `page` on.
    pub(crate) fn read(&self, table: &str, page: u32, into: &mut [u8]) -> Result<()> {
        self.read_with(None, table, page, into)
    }

    /// The same with what [`Pages::opened_again`] says.
    pub(crate) fn read_with(
        &self,
        again: Option<&File>,
        table: &str,
        page: u32,
        into: &mut [u8],
    ) -> Result<()> {
        self.has(table, page)?;
        read_at(again.unwrap_or(&self.file), into, self.start_of(page)).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.damaged(table, page, Fault { offset: 0, what: "is cut off by the end of the file" })
            }
            _ => Error::io("read", &self.named, e),
        })
    }

    /// Asks the system for a page that will be read soon; true if it did not have it in memory, see [`Self::give_back`].
    #[cfg(target_os = "linux")]
    fn ask_for(&self, page: u32) -> bool {
        use rustix::io::{preadv2, Errno, ReadWriteFlags};
        let mut byte = [0];
        let into = &mut [std::io::IoSliceMut::new(&mut byte)];
        let now = preadv2(self.apart(), into, self.start_of(page), ReadWriteFlags::NOWAIT);
        if now.is_ok_and(|read| read > 0) {
            return false;
        }
        self.advise(page, rustix::fs::Advice::WillNeed);
        now == Err(Errno::AGAIN)
    }

    /// Takes a page that was read alone out of the system's memory again.
    ///
    /// Where it reads ahead, the system fetches large stretches with one request each, and the next while the last is
    /// worked on. Every page that it has already cuts them to pieces.
    #[cfg(target_os = "linux")]
    fn give_back(&self, page: u32) {
        self.advise(page, rustix::fs::Advice::DontNeed);
    }

    #[cfg(target_os = "linux")]
    fn advise(&self, page: u32, advice: rustix::fs::Advice) {
        let bytes = std::num::NonZeroU64::new(wide(self.page_bytes));
        // Only a wish: what is wrong with the file is told when it is read.
        let _ = rustix::fs::fadvise(self.apart(), self.start_of(page), bytes, advice);
    }

    /// Has the system read so many bytes from `page` on and send them `nowhere`; false if it does not do that.
    #[cfg(target_os = "linux")]
    pub(crate) fn send(&self, again: &File, nowhere: &File, page: u32, bytes: usize) -> bool {
        let (mut from, end) = (self.start_of(page), self.start_of(page) + wide(bytes));
        while from < end {
            let left = usize::try_from(end - from).unwrap_or(bytes);
            match rustix::fs::sendfile(nowhere, again, Some(&mut from), left) {
                Ok(0) | Err(_) => return false,
                Ok(_) => {}
            }
        }
        true
    }

    /// Elsewhere there is nobody to ask.
    #[cfg(not(target_os = "linux"))]
    fn ask_for(&self, _page: u32) -> bool {
        false
    }

    /// Nor does it send anything.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn send(&self, _again: &File, _nowhere: &File, _page: u32, _bytes: usize) -> bool {
        false
    }

    /// Nothing is asked for, so nothing is given back.
    #[cfg(not(target_os = "linux"))]
    fn give_back(&self, _page: u32) {}

    /// Where `page` begins in the file. Pages are counted from 1; a damaged file may say 0.
    fn start_of(&self, page: u32) -> u64 {
        u64::from(page.saturating_sub(1)) * wide(self.page_bytes)
    }

    /// The file once more, for who reads a stretch of it from front to back.
    ///
    /// The system reads ahead for everyone who has opened a file, by where he has been. Threads that share what was opened
    /// once are all over the place; asking for pages in advance instead was slower than not asking.
    /// None where it has another name by now, or another file is in its place.
    pub(crate) fn opened_again(&self) -> Option<File> {
        opened_again(&self.real, &self.file)
    }

    #[cfg(target_os = "linux")]
    fn apart(&self) -> &File {
        self.apart.as_ref().unwrap_or(&self.file)
    }

    /// The error for `fault` on `page`, with its offset in the file.
    pub(crate) fn damaged(&self, table: &str, page: u32, fault: Fault) -> Error {
        let offset = self.start_of(page) + wide(fault.offset);
        let detail = format!("table {table}, page {page}, offset {offset}: {}", fault.what);
        Error::Damaged { path: self.named.clone(), detail }
    }

    /// Which pages were seen, to find those that are pointed to twice.
    pub(crate) fn unvisited(&self) -> Visited {
        Visited((0..=self.count / 64).map(|_| AtomicU64::new(0)).collect())
    }

    /// The leaves of the table whose root is `root`, in the order of row ids.
    pub(crate) fn leaves(&self, table: &str, root: u32, visited: &Visited) -> Result<Vec<Leaf>> {
        let mut page = vec![0_u8; self.page_bytes];
        let most = u32::try_from(self.max_cells()).unwrap_or(u32::MAX);
        // Pages of one level with the row ids that may be below: above `low`, up to `high`.
        let mut level = vec![Branch { page: root, low: None, high: None }];
        for _ in 0..MAX_DEPTH {
            let Some(first) = level.first() else { break };
            // All leaves are equally deep, so the first page of a level tells what the level is.
            let (heads, _) = self.heads_alone(table, &[first.page])?;
            if heads.iter().any(|head| head.is_leaf()) {
                let mut leaves = Vec::with_capacity(level.len());
                for branch in level {
                    self.visit(table, visited, branch.page)?;
                    leaves.push(Leaf { page: branch.page, rows_at_most: branch.rows_at_most(most) });
                }
                // The first and the last range are open at one end: those two leaves say it themselves.
                let last = leaves.len().saturating_sub(1);
                let ends: Vec<u32> = [0, last].iter().filter_map(|at| Some(leaves.get(*at)?.page)).collect();
                let (heads, _) = self.heads_alone(table, &ends)?;
                for (at, head) in [0, last].into_iter().zip(heads) {
                    if let Some(leaf) = leaves.get_mut(at) {
                        leaf.rows_at_most = u32::from(head.cells);
                    }
                }
                return Ok(leaves);
            }
            let mut below = Vec::with_capacity(level.len().saturating_mul(64));
            // As in `heads_alone`.
            let fetched: Vec<bool> = level.iter().map(|branch| self.ask_for(branch.page)).collect();
            for (branch, fetched) in level.into_iter().zip(fetched) {
                self.visit(table, visited, branch.page)?;
                self.read_with(self.apart.as_ref(), table, branch.page, &mut page)?;
                if fetched {
                    self.give_back(branch.page);
                }
                self.children(branch, &page, &mut below)
                    .map_err(|fault| self.damaged(table, branch.page, fault))?;
            }
            level = below;
        }
        let fault = Fault { offset: 0, what: "its tree is deeper than any that SQLite writes" };
        Err(self.damaged(table, root, fault))
    }

    /// The leaves of a table, with limits of their rows that are worth making room for.
    ///
    /// Row ids with large gaps (rows were deleted, or somebody chose them) would make room for rows that never
    /// come; then the leaves are counted first, with so many threads.
    pub(crate) fn bounded_leaves(&self, table: &str, root: u32, threads: usize) -> Result<Walked> {
        const SAMPLES: usize = 16;
        let mut leaves = self.leaves(table, root, &self.unvisited())?;
        let step = (leaves.len() / SAMPLES).max(1);
        let samples: Vec<u32> = leaves.iter().step_by(step).map(|leaf| leaf.page).collect();
        let (heads, in_memory) = self.heads_alone(table, &samples)?;
        let rows: usize = heads.iter().map(|head| usize::from(head.cells)).sum();
        let room: usize = leaves.iter().map(|leaf| leaf.rows_at_most as usize).sum();
        if room > 2 * (rows.div_ceil(heads.len().max(1)) * leaves.len()) {
            self.count_rows(table, &mut leaves, threads)?;
        }
        Ok(Walked { leaves, in_memory })
    }

    /// Rows on the leaves of a table, with so many threads: what SQLite's `count(*)` does.
    pub(crate) fn count_rows(&self, table: &str, leaves: &mut [Leaf], threads: usize) -> Result<u64> {
        let count = |leaves: &mut [Leaf]| -> Result<u64> {
            let mut rows = 0;
            for leaf in leaves {
                leaf.rows_at_most = u32::from(self.head(None, table, leaf.page)?.cells);
                rows += u64::from(leaf.rows_at_most);
            }
            Ok(rows)
        };
        let part = leaves.len().div_ceil(threads.max(1)).max(LEAVES_PER_THREAD);
        std::thread::scope(|scope| {
            let counting: Vec<_> =
                leaves.chunks_mut(part).map(|leaves| scope.spawn(move || count(leaves))).collect();
            let counted = counting
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            // Of several errors the first in the order of the table, whoever found his earlier.
            counted.sum()
        })
    }

    /// Kinds and numbers of cells of pages that are far from each other, and whether the system had all of them.
    fn heads_alone(&self, table: &str, pages: &[u32]) -> Result<(Vec<Head>, bool)> {
        // A disk has them sooner when it is asked for all of them at once.
        let fetched: Vec<bool> = pages.iter().map(|page| self.ask_for(*page)).collect();
        let heads: Result<Vec<Head>> =
            pages.iter().map(|page| self.head(self.apart.as_ref(), table, *page)).collect();
        for (page, _) in pages.iter().zip(&fetched).filter(|(_, fetched)| **fetched) {
            self.give_back(*page);
        }
        Ok((heads?, !fetched.contains(&true)))
    }

    /// Kind and number of cells of a page, without the page.
    fn head(&self, again: Option<&File>, table: &str, page: u32) -> Result<Head> {
        let mut bytes = [0_u8; 8];
        self.read_with(again, table, page, &mut bytes)?;
        self.head_of(&bytes).map_err(|fault| self.damaged(table, page, fault))
    }

    /// Kind and number of cells of a page from its first bytes. Only page 1, which is in no tree of a table,
    /// has something else before them.
    pub(crate) fn head_of(&self, page: &[u8]) -> std::result::Result<Head, Fault> {
        let fault = |what| Fault { offset: 0, what };
        let kind = page.first().copied().unwrap_or(0);
        if kind != LEAF && kind != INTERIOR {
            return Err(fault("is no page of a table"));
        }
        let cells = be16(page, 3).unwrap_or(0);
        if usize::from(cells) > self.max_cells() {
            return Err(fault("claims more rows than a page can hold"));
        }
        Ok(Head { kind, cells })
    }

    fn has(&self, table: &str, page: u32) -> Result<()> {
        if (1..=self.count).contains(&page) {
            return Ok(());
        }
        let fault = Fault { offset: 0, what: "is pointed to, but the file does not have it" };
        Err(self.damaged(table, page, fault))
    }

    fn visit(&self, table: &str, visited: &Visited, page: u32) -> Result<()> {
        self.has(table, page)?;
        if page == 1 {
            let fault = Fault { offset: 0, what: "is the list of tables, and in a tree that is none" };
            return Err(self.damaged(table, page, fault));
        }
        if visited.first_time(page) {
            return Ok(());
        }
        Err(self.damaged(table, page, Fault { offset: 0, what: "is pointed to twice" }))
    }

    fn children(
        &self,
        parent: Branch,
        page: &[u8],
        below: &mut Vec<Branch>,
    ) -> std::result::Result<(), Fault> {
        let head = self.head_of(page)?;
        if head.kind != INTERIOR {
            return Err(Fault { offset: 0, what: "is a leaf among pages that are none" });
        }
        if head.cells == 0 {
            return Err(Fault { offset: 0, what: "is an inner page without rows" });
        }
        let mut low = parent.low;
        for cell in 0..usize::from(head.cells) {
            let pointer = 12 + 2 * cell;
            let at = usize::from(be16(page, pointer).unwrap_or(0));
            let fault = |what| Fault { offset: pointer, what };
            let (Some(child), Some((key, _))) =
                (be32(page, at), page.get(at + 4..self.usable).and_then(varint))
            else {
                return Err(fault("points outside of its page"));
            };
            let key = key.cast_signed();
            if low.is_some_and(|low| key <= low) || parent.high.is_some_and(|high| key > high) {
                return Err(fault("has row ids out of order"));
            }
            below.push(Branch { page: child, low, high: Some(key) });
            low = Some(key);
        }
        let last = be32(page, 8).unwrap_or(0);
        below.push(Branch { page: last, low, high: parent.high });
        Ok(())
    }
}

/// A page with the row ids that may be below it.
#[derive(Debug, Clone, Copy)]
struct Branch {
    page: u32,
    low: Option<i64>,
    high: Option<i64>,
}

impl Branch {
    fn rows_at_most(&self, most: u32) -> u32 {
        let range = self.low.zip(self.high).map(|(low, high)| high.abs_diff(low));
        range.and_then(|n| u32::try_from(n).ok()).map_or(most, |n| n.min(most))
    }
}

/// What the first bytes of a page of a b-tree say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    kind: u8,
    /// Rows of a leaf, children but one of an inner page.
    pub(crate) cells: u16,
}

impl Head {
    pub(crate) fn is_leaf(self) -> bool {
        self.kind == LEAF
    }
}

/// One bit per page. Shared between threads: an overflow page belongs to one row only.
#[derive(Debug)]
pub(crate) struct Visited(Vec<AtomicU64>);

impl Visited {
    /// Whether `page` is seen for the first time; a page the file does not have counts as first.
    pub(crate) fn first_time(&self, page: u32) -> bool {
        let Some(word) = usize::try_from(page / 64).ok().and_then(|at| self.0.get(at)) else { return true };
        let bit = 1_u64 << (page % 64);
        word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// A number of one to nine bytes, and how many they were.
#[inline]
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for at in 1..8 {
        let byte = *bytes.get(at)?;
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((value, at + 1));
        }
    }
    // The ninth byte counts whole.
    Some((value << 8 | u64::from(*bytes.get(8)?), 9))
}

/// Two bytes at `at`.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// Four bytes at `at`.
#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

/// `usize` is at most 64 bits wide on everything Rust runs on.
#[inline]
pub(crate) fn wide(n: usize) -> u64 {
    n as u64
}

/// What has the name `real`, if it still is `file`.
fn opened_again(real: &Path, file: &File) -> Option<File> {
    File::open(real).ok().filter(|again| same_file(again, file))
}

/// Without this the system takes one page behind others that it has for the next of a long read, and fetches all that
/// follows it.
#[cfg(target_os = "linux")]
fn reads_apart(file: &File) {
    // Only a wish.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
}

#[cfg(not(target_os = "linux"))]
fn reads_apart(_file: &File) {}

#[cfg(unix)]
fn same_file(one: &File, other: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |file: &File| file.metadata().map(|data| (data.dev(), data.ino()));
    matches!((of(one), of(other)), (Ok(one), Ok(other)) if one == other)
}

/// Nothing tells for sure.
#[cfg(not(unix))]
fn same_file(_one: &File, _other: &File) -> bool {
    false
}

#[cfg(unix)]
fn read_at(file: &File, into: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(windows)]
fn read_at(file: &File, into: &mut [u8], at: u64) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt;
    let mut done = 0;
    while done < into.len() {
        let rest = into.get_mut(done..).unwrap_or_default();
        match file.seek_read(rest, at + wide(done))? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => done += read,
        }
    }
    Ok(())
}
