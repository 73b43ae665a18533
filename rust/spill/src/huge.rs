//! Large blocks of ordinary memory, made of huge pages.
//!
//! Handing out pages of 4 KiB one by one takes a third of the time that reading a capture takes. A huge page begins at
//! a multiple of its size, so a block does too: what lay before the first and behind the last one would be small pages
//! again. The system may have no huge pages, or be told to hand out none; then these are blocks as any other.

use std::ptr::null_mut;

use libc::c_void;

use crate::blocks::PAGE_BYTES;

/// What a huge page has where pages have 4 KiB; elsewhere a block merely begins at a rounder address than it must.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

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

/// A block of zeroes, as the system hands it out; null if there is no memory.
pub(crate) fn take(bytes: usize) -> *mut u8 {
    map(mapped(bytes))
}

/// Ends a block.
pub(crate) fn give_back(block: *mut u8, bytes: usize) {
    unmap(block, mapped(bytes));
}

/// Makes a block longer or shorter without copying; null if there is no memory, and it stays as it was.
pub(crate) fn resize(block: *mut u8, old: usize, bytes: usize) -> *mut u8 {
    let (from, to) = (mapped(old), mapped(bytes));
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
