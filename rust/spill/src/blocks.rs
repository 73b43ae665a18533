//! Blocks that are mapped files without a name.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::governor::make_room;
use crate::{should_spill, LARGE_BYTES, REFUSED, SPILLED, SPILLED_MOST};

/// Alignment of every mapping on all systems that we run on.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A block: how long it is, and its file, which must stay open so that it can grow.
#[derive(Debug, Clone, Copy)]
struct Block {
    bytes: usize,
    file: i32,
}

/// By address. Its own nodes are small, so that the allocator never comes back here for them.
static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());
static FOLDER: Mutex<Option<CString>> = Mutex::new(None);

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics with the lock held; and an allocator must not panic either.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn use_folder(folder: &Path) -> Result<()> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    let file = open(&name)?;
    close(file);
    *held(&FOLDER) = Some(name);
    Ok(())
}

pub(crate) fn folder() -> PathBuf {
    held(&FOLDER).as_ref().map(|name| PathBuf::from(OsStr::from_bytes(name.as_bytes()))).unwrap_or_default()
}

/// Opens a file that has no name, readable by this user alone.
fn open(folder: &CString) -> Result<i32> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC | libc::O_EXCL;
    // SAFETY: the name ends with a zero byte and lives until the call returns.
    let file = unsafe { libc::open(folder.as_ptr(), flags, 0o600 as libc::c_uint) };
    if file >= 0 {
        return Ok(file);
    }
    // Some file systems make no file without a name; one whose name is removed at once is the same.
    let mut template = folder.as_bytes().to_vec();
    template.extend_from_slice(b"/pyanalyze-XXXXXX\0");
    // SAFETY: the template is writable, ends with a zero byte, and lives until both calls have returned.
    unsafe {
        let file = libc::mkostemp(template.as_mut_ptr().cast(), libc::O_CLOEXEC);
        if file < 0 {
            return Err(Error::last_os_error());
        }
        libc::unlink(template.as_ptr().cast());
        Ok(file)
    }
}

fn close(file: i32) {
    // SAFETY: the descriptor is ours, and nobody uses it any more.
    unsafe { libc::close(file) };
}

/// Reserves space: writing to a mapped file on a full disk would otherwise end the process.
fn reserve(file: i32, bytes: usize) -> std::result::Result<(), i32> {
    let length = libc::off_t::try_from(bytes).map_err(|_| libc::EFBIG)?;
    // SAFETY: plain call on a descriptor of ours.
    match unsafe { libc::posix_fallocate(file, 0, length) } {
        0 => Ok(()),
        code => Err(code),
    }
}

fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES)
}

/// A block in a file, if this one is to be in a file and there is room for it.
pub(crate) fn take(layout: Layout) -> Option<*mut u8> {
    if layout.align() > PAGE_BYTES || !should_spill(layout.size()) {
        return None;
    }
    let bytes = layout.size();
    make_room(bytes);
    let file = held(&FOLDER).as_ref().map(open)?.map_err(|e| refuse(e.raw_os_error())).ok()?;
    if let Err(code) = reserve(file, whole_pages(bytes)) {
        refuse(Some(code));
        close(file);
        return None;
    }
    // SAFETY: a new mapping of a whole file of ours; the system chooses a free place for it.
    let block = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            whole_pages(bytes),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file,
            0,
        )
    };
    if block == libc::MAP_FAILED {
        refuse(Error::last_os_error().raw_os_error());
        close(file);
        return None;
    }
    held(&BLOCKS).insert(block as usize, Block { bytes, file });
    count(bytes);
    Some(block.cast())
}

fn refuse(code: Option<i32>) {
    REFUSED.store(code.unwrap_or(libc::EIO), Ordering::Relaxed);
}

fn count(bytes: usize) {
    let now = SPILLED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    SPILLED_MOST.fetch_max(now, Ordering::Relaxed);
}

/// Whether a block of so many bytes is a file.
pub(crate) fn is_ours(block: *mut u8, bytes: usize) -> bool {
    bytes >= LARGE_BYTES
        && SPILLED.load(Ordering::Relaxed) > 0
        && held(&BLOCKS).contains_key(&(block as usize))
}

/// Ends a block, if it is a file.
pub(crate) fn give_back(block: *mut u8) -> bool {
    if SPILLED.load(Ordering::Relaxed) == 0 {
        return false;
    }
    // The lock is held until it is unmapped: the governor must not touch what is no longer ours.
    let mut blocks = held(&BLOCKS);
    let Some(ended) = blocks.remove(&(block as usize)) else { return false };
    // SAFETY: mapped by `take` or `resize` with this length, and its owner gave it up.
    unsafe { libc::munmap(block.cast(), whole_pages(ended.bytes)) };
    drop(blocks);
    close(ended.file);
    SPILLED.fetch_sub(ended.bytes, Ordering::Relaxed);
    true
}

/// Makes a block that is a file longer or shorter, without copying; `None` if it is none, or there is no room.
pub(crate) fn resize(block: *mut u8, old: usize, bytes: usize) -> Option<*mut u8> {
    if !is_ours(block, old) {
        return None;
    }
    // Only its owner, who called, ends or moves it: the disk may take its time without the lock.
    let known = *held(&BLOCKS).get(&(block as usize))?;
    let (from, to) = (whole_pages(known.bytes), whole_pages(bytes));
    if to > from {
        make_room(to - from);
        reserve(known.file, to).map_err(|code| refuse(Some(code))).ok()?;
    }
    let mut blocks = held(&BLOCKS);
    // SAFETY: the whole of a mapping of ours; its owner asked for it to move.
    let moved = unsafe { libc::mremap(block.cast(), from, to, libc::MREMAP_MAYMOVE) };
    if moved == libc::MAP_FAILED {
        refuse(Error::last_os_error().raw_os_error());
        return None;
    }
    if let (true, Ok(length)) = (to < from, libc::off_t::try_from(to)) {
        // What was cut off gives its space back; if that fails it does so at the end.
        // SAFETY: nothing beyond `to` is mapped any more.
        let _ = unsafe { libc::ftruncate(known.file, length) };
    }
    blocks.remove(&(block as usize));
    blocks.insert(moved as usize, Block { bytes, file: known.file });
    drop(blocks);
    count(bytes);
    SPILLED.fetch_sub(known.bytes, Ordering::Relaxed);
    Some(moved.cast())
}

/// Lets go of all pages of files. They are in the files, and come back when they are used.
pub(crate) fn drop_pages() {
    for (block, known) in held(&BLOCKS).iter() {
        // SAFETY: a shared mapping of ours, which the lock keeps where it is. Dropping its pages loses nothing: what
        // was written is in the file.
        unsafe { libc::madvise(*block as *mut libc::c_void, whole_pages(known.bytes), libc::MADV_DONTNEED) };
    }
}
