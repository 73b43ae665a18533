//! Large blocks of ordinary memory, made of huge pages.
//!
//! Handing out pages of 4 KiB one by one takes a third of the time that reading a capture takes. A huge page begins at
//! a multiple of its size, so a block does too: what lay before the first and behind the last one would be small pages
//! again. The system may have no huge pages, or be told to hand out none; then these are blocks as any other.
//!
//! The system fills every page that it hands out with zeroes, which takes longer than most of what is done with them.
//! So some blocks that nobody needs any more are kept for the next ones, never more than were in use before:
//!
//! ```text
//!   in use      |=====================|
//!   later       |=========|
//!   kept                   ...........   at most what is free below the most that was in use, and KEPT_BYTES
//! ```

use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_void;

use crate::blocks::PAGE_BYTES;
use crate::{BUDGET, LARGE_BYTES};

/// What a huge page has where pages have 4 KiB; elsewhere a block merely begins at a rounder address than it must.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Blocks that are kept, at most: their number, and all their bytes.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 256 << 20;

/// A mapping of ours that nobody uses, and its length.
type Free = (usize, usize);

/// The blocks that are kept, in no order; a length of 0 stands for none.
static FREE: Mutex<[Free; KEPT]> = Mutex::new([(0, 0); KEPT]);
/// Bytes in use, and the most of them so far.
static USED: AtomicUsize = AtomicUsize::new(0);
static USED_MOST: AtomicUsize = AtomicUsize::new(0);

fn free() -> MutexGuard<'static, [Free; KEPT]> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn use_more(bytes: usize) {
    let used = USED.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    USED_MOST.fetch_max(used, Ordering::Relaxed);
}

fn use_less(bytes: usize) {
    USED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Bytes of kept blocks that fit beside those in use and `more`: none within a budget.
fn room(more: usize) -> usize {
    if BUDGET.load(Ordering::Relaxed) != usize::MAX {
        return 0;
    }
    let used = USED.load(Ordering::Relaxed).saturating_add(more);
    USED_MOST.load(Ordering::Relaxed).saturating_sub(used).min(KEPT_BYTES)
}

/// Gives up kept blocks, small ones first, until no more than `bytes` are kept.
fn keep_only(free: &mut [Free; KEPT], bytes: usize) {
    loop {
        let kept: usize = free.iter().map(|(_, length)| length).sum();
        let smallest = free.iter_mut().filter(|(_, length)| *length > 0).min_by_key(|(_, length)| *length);
        match smallest {
            Some(one) if kept > bytes => {
                unmap(one.0 as *mut u8, one.1);
                *one = (0, 0);
            }
            _ => return,
        }
    }
}

/// Gives up all kept blocks.
pub(crate) fn keep_nothing() {
    keep_only(&mut free(), 0);
}

/// Keeps a mapping of ours for later, or ends it where enough is kept.
fn keep(block: *mut u8, length: usize) {
    let mut free = free();
    let kept: usize = free.iter().map(|(_, length)| length).sum();
    let fits = kept.saturating_add(length) <= room(0);
    match free.iter_mut().find(|(_, length)| *length == 0).filter(|_| fits) {
        Some(slot) => *slot = (block as usize, length),
        None => unmap(block, length),
    }
}

/// A kept block with `length` bytes, whatever is in it; null without one. What it has too much stays kept.
fn reuse(length: usize) -> *mut u8 {
    let mut free = free();
    let fitting = free.iter_mut().filter(|(_, has)| *has >= length).min_by_key(|(_, has)| *has);
    let Some(slot) = fitting else {
        keep_only(&mut free, room(length));
        return null_mut();
    };
    let (place, has) = std::mem::take(slot);
    let block = place as *mut u8;
    // The rest begins with a huge page, as every block.
    let until = length.next_multiple_of(HUGE_BYTES).min(has);
    let rest = has.saturating_sub(until);
    if rest >= LARGE_BYTES {
        *slot = (place.saturating_add(until), rest);
        unmap(block.wrapping_add(length), until.saturating_sub(length));
    } else {
        unmap(block.wrapping_add(length), has.saturating_sub(length));
    }
    block
}

/// Bytes that are mapped for a block: with the whole of its last huge page, if most of that is used.
fn mapped(bytes: usize) -> usize {
    let used = bytes % HUGE_BYTES;
    bytes.next_multiple_of(if used > HUGE_BYTES / 2 { HUGE_BYTES } else { PAGE_BYTES })
}

/// Maps `length` bytes, a multiple of a page, from the begin of a huge page on; null if there is no room.
fn map(length: usize) -> *mut u8 {
    let Some(room) = length.checked_add(HUGE_BYTES) else { return null_mut() };
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at a free place that the system chooses.
    let all = unsafe { libc::mmap(null_mut(), room, access, kind, -1, 0) };
    if all == libc::MAP_FAILED {
        return null_mut();
    }
    let before = (all as usize).next_multiple_of(HUGE_BYTES) - all as usize;
    let block = all.cast::<u8>().wrapping_add(before);
    unmap(all.cast(), before);
    unmap(block.wrapping_add(length), HUGE_BYTES - before);
    // SAFETY: the whole of a mapping of ours; the advice changes nothing of what is in it.
    unsafe { libc::madvise(block.cast(), length, libc::MADV_HUGEPAGE) };
    block
}

/// Unmaps pages of a mapping of ours that nobody uses.
fn unmap(from: *mut u8, length: usize) {
    if length > 0 {
        // SAFETY: whole pages of a mapping that was made in `map`, and nobody has a pointer into them any more.
        unsafe { libc::munmap(from.cast::<c_void>(), length) };
    }
}

/// A block, whatever is in it; null if there is no memory.
pub(crate) fn take(bytes: usize) -> *mut u8 {
    let length = mapped(bytes);
    let kept = reuse(length);
    let block = if kept.is_null() { map(length) } else { kept };
    if !block.is_null() {
        use_more(length);
    }
    block
}

/// A block of zeroes; null if there is no memory.
pub(crate) fn take_zeroes(bytes: usize) -> *mut u8 {
    let length = mapped(bytes);
    // The system has zeroes already.
    let block = map(length);
    if !block.is_null() {
        use_more(length);
    }
    block
}

/// Ends a block.
pub(crate) fn give_back(block: *mut u8, bytes: usize) {
    let length = mapped(bytes);
    use_less(length);
    keep(block, length);
}

/// Makes a block longer or shorter without copying; null if there is no memory, and it stays as it was.
pub(crate) fn resize(block: *mut u8, old: usize, bytes: usize) -> *mut u8 {
    let (from, to) = (mapped(old), mapped(bytes));
    let resized = remapped(block, from, to);
    if !resized.is_null() {
        use_more(to);
        use_less(from);
    }
    resized
}

fn remapped(block: *mut u8, from: usize, to: usize) -> *mut u8 {
    if to <= from {
        unmap(block.wrapping_add(to), from - to);
        return block;
    }
    // SAFETY: the whole of a mapping of ours, made longer where it is, if nothing lies behind it.
    if unsafe { libc::mremap(block.cast(), from, to, 0) } != libc::MAP_FAILED {
        return block;
    }
    let place = map(to);
    if place.is_null() {
        return place;
    }
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the owner asked for the block to move; what it moves over was mapped just now, and nobody has seen it.
    let moved = unsafe { libc::mremap(block.cast(), from, to, flags, place.cast::<c_void>()) };
    if moved == libc::MAP_FAILED {
        unmap(place, to);
        return null_mut();
    }
    place
}
