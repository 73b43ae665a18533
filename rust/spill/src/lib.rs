//! Bound the memory of the process: large blocks become mapped files.
//!
//! Columns, and what passes carry from row to row, are few blocks of many megabytes each. [`Spilling`] is the allocator
//! of the extension. While all large blocks together stay below a part of the budget they are ordinary memory; from then
//! on a large block is an unlinked file, mapped into the process. The same code runs over the same bytes, so results
//! cannot differ. The system writes pages of a mapped file to the disk by itself, and a thread releases them whenever
//! the process comes near its budget:
//!
//! ```text
//!   block < 4 MiB --------------------------------> memory
//!   block >= 4 MiB, used + block <= `hold_bytes` --> memory, in huge pages
//!   else  unlinked file, its space reserved -------> mapped; released near the budget, read again at next use
//! ```
//!
//! The budget bounds the resident memory of the process (`VmRSS`: its own and mapped pages). Pages are released by a
//! thread that looks every few milliseconds, so a peak can pass the budget before it looks. [`account`] has it all the
//! same, from the system's own record (`VmHWM`), and [`check`] fails where it passed by more than a quarter. The system may keep pages
//! of the files cached beyond that while the memory is free, as for every file.
//!
//! Such a file is gone with the process, however it ends: no name, nothing to remove, nothing for others to open. Its
//! space is reserved before it is mapped, so a full disk is known when a block is requested and not when it is written
//! to. The block is then ordinary memory, and [`check`] says why the budget could not be kept.
//!
//! An allocator has no other form than `unsafe`. It returns memory of the system's allocator or of `mmap`, and keeps a
//! list of the files.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

#[cfg(target_os = "linux")]
mod blocks;
#[cfg(target_os = "linux")]
mod governor;
#[cfg(target_os = "linux")]
mod huge;

/// Smaller blocks are never spilled: there are many of them, and a file each.
pub const LARGE_BYTES: usize = 4 << 20;

/// The budget; `usize::MAX` for none.
static BUDGET: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Large blocks that may be in ordinary memory, and those that are, in bytes.
static HOLD: AtomicUsize = AtomicUsize::new(usize::MAX);
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Blocks in files: bytes now, most at once, and the error that a file could not be had for.
static SPILLED: AtomicUsize = AtomicUsize::new(0);
static SPILLED_MOST: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicI32 = AtomicI32::new(0);
/// Most resident memory seen, and that which was seen above the budget.
static RESIDENT_MOST: AtomicUsize = AtomicUsize::new(0);
static OVER: AtomicUsize = AtomicUsize::new(0);
/// Most resident memory of the process's life that is accounted for: what came before the budget does not count.
static PEAK_KNOWN: AtomicUsize = AtomicUsize::new(0);

/// The allocator: `#[global_allocator] static ALLOCATOR: Spilling = Spilling;`
#[derive(Debug, Clone, Copy)]
pub struct Spilling;

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// The budget; `None` where there is none.
    pub budget_bytes: Option<usize>,
    /// Large blocks in memory now.
    pub held_bytes: usize,
    /// Blocks in files now.
    pub spilled_bytes: usize,
    /// Blocks in files, most at once.
    pub spilled_most_bytes: usize,
    /// Most resident memory, mapped files included; 0 without a budget. Above the budget by up to a quarter of it, where
    /// pages of files were mapped faster than they could be released.
    pub resident_most_bytes: usize,
}

/// Why a budget could not be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exceeded {
    /// The budget.
    pub budget_bytes: usize,
    /// The memory that was needed when it was noticed.
    pub needed_bytes: usize,
    /// Where files were to go, and what the system said, if it gave none.
    pub refused: Option<(PathBuf, String)>,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        write!(
            f,
            "the budget of {} MiB of memory cannot be held: {} MiB were needed at once",
            mib(self.budget_bytes),
            mib(self.needed_bytes)
        )?;
        match &self.refused {
            Some((folder, why)) => write!(f, ", because {} took no more ({why})", folder.display()),
            None => Ok(()),
        }
    }
}

/// What a process may use.
#[derive(Debug, Clone, Copy)]
pub struct Budget<'a> {
    /// Resident memory, in bytes.
    pub bytes: usize,
    /// Large blocks that stay in memory before others become files, in bytes. The rest of the budget is room for what is
    /// no large block, and for the pages of files that are being used.
    pub hold_bytes: usize,
    /// Where files go.
    pub folder: &'a Path,
}

/// Sets or lifts the budget of this process. Counts begin anew.
///
/// # Errors
/// That of opening a file in the folder; [`std::io::ErrorKind::Unsupported`] where the system is not Linux.
pub fn bound(budget: Option<Budget<'_>>) -> std::io::Result<()> {
    let Some(Budget { bytes, hold_bytes, folder }) = budget else {
        HOLD.store(usize::MAX, Ordering::Relaxed);
        BUDGET.store(usize::MAX, Ordering::Relaxed);
        forget();
        return Ok(());
    };
    #[cfg(target_os = "linux")]
    {
        blocks::use_folder(folder)?;
        forget();
        PEAK_KNOWN.store(governor::peak_bytes(), Ordering::Relaxed);
        HOLD.store(hold_bytes, Ordering::Relaxed);
        BUDGET.store(bytes, Ordering::Relaxed);
        governor::start()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (bytes, hold_bytes, folder);
        Err(std::io::Error::new(
            std::io::ErrorKind::Unsupported,
            "a budget of memory can be held on Linux only",
        ))
    }
}

fn forget() {
    SPILLED_MOST.store(SPILLED.load(Ordering::Relaxed), Ordering::Relaxed);
    RESIDENT_MOST.store(0, Ordering::Relaxed);
    OVER.store(0, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
}

/// A peak that passes the budget by more than its fourth part is no moment too many pages of files were mapped in.
const PASSED_PART: usize = 4;

/// Takes in the peak that the system saw: the thread that looks can come late, and miss one.
fn take_in_peak() {
    #[cfg(target_os = "linux")]
    {
        let (peak, budget) = (governor::peak_bytes(), BUDGET.load(Ordering::Relaxed));
        if budget == usize::MAX || PEAK_KNOWN.fetch_max(peak, Ordering::Relaxed) >= peak {
            return;
        }
        RESIDENT_MOST.fetch_max(peak, Ordering::Relaxed);
        if peak > budget.saturating_add(budget / PASSED_PART) {
            OVER.fetch_max(peak, Ordering::Relaxed);
        }
    }
}

/// What happened so far.
#[must_use]
pub fn account() -> Account {
    take_in_peak();
    let budget = BUDGET.load(Ordering::Relaxed);
    Account {
        budget_bytes: (budget != usize::MAX).then_some(budget),
        held_bytes: HELD.load(Ordering::Relaxed),
        spilled_bytes: SPILLED.load(Ordering::Relaxed),
        spilled_most_bytes: SPILLED_MOST.load(Ordering::Relaxed),
        resident_most_bytes: RESIDENT_MOST.load(Ordering::Relaxed),
    }
}

/// Whether the budget was held since this was last asked: who gave up what was too much can go on.
///
/// # Errors
/// [`Exceeded`] if it was not.
pub fn check() -> Result<(), Exceeded> {
    take_in_peak();
    let needed_bytes = OVER.swap(0, Ordering::Relaxed);
    if needed_bytes == 0 {
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    let refused = match REFUSED.load(Ordering::Relaxed) {
        0 => None,
        code => Some((blocks::folder(), std::io::Error::from_raw_os_error(code).to_string())),
    };
    #[cfg(not(target_os = "linux"))]
    let refused = None;
    Err(Exceeded { budget_bytes: BUDGET.load(Ordering::Relaxed), needed_bytes, refused })
}

/// Whether a large block of so many bytes should be a file. It is taken into account as memory if not.
#[cfg(target_os = "linux")]
fn should_spill(bytes: usize) -> bool {
    HELD.load(Ordering::Relaxed).saturating_add(bytes) > HOLD.load(Ordering::Relaxed)
}

fn hold(block: *mut u8, bytes: usize) -> *mut u8 {
    if !block.is_null() {
        HELD.fetch_add(bytes, Ordering::Relaxed);
    }
    block
}

fn let_go(bytes: usize) {
    HELD.fetch_sub(bytes, Ordering::Relaxed);
}

/// Whether a block is mapped by `huge` where it is in memory; every other one is that of the system's allocator.
fn is_mapped(bytes: usize, align: usize) -> bool {
    #[cfg(target_os = "linux")]
    return bytes >= LARGE_BYTES && align <= huge::HUGE_BYTES;
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (bytes, align);
        false
    }
}

// SAFETY: every block comes from `System`, from `huge`, or from `blocks`, which keeps a list of what it gave out. A block
// that is in the list goes back there; of the others `is_mapped` says where they came from, by the layout that they were
// asked for with and that they come back with. Only blocks of `LARGE_BYTES` and more are ever in the list, so that
// smaller ones need not be looked up.
unsafe impl GlobalAlloc for Spilling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() < LARGE_BYTES {
            return unsafe { System.alloc(layout) };
        }
        #[cfg(target_os = "linux")]
        {
            if let Some(block) = blocks::take(layout) {
                return block;
            }
            if is_mapped(layout.size(), layout.align()) {
                return hold(huge::take(layout.size()), layout.size());
            }
        }
        hold(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        #[cfg(target_os = "linux")]
        if is_mapped(layout.size(), layout.align()) {
            // What is mapped holds zeroes: a fresh file, and fresh pages.
            return match blocks::take(layout) {
                Some(block) => block,
                None => hold(huge::take(layout.size()), layout.size()),
            };
        }
        let block = unsafe { System.alloc_zeroed(layout) };
        if layout.size() < LARGE_BYTES {
            return block;
        }
        hold(block, layout.size())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.size() < LARGE_BYTES {
            return unsafe { System.dealloc(block, layout) };
        }
        #[cfg(target_os = "linux")]
        if blocks::give_back(block) {
            return;
        }
        let_go(layout.size());
        #[cfg(target_os = "linux")]
        if is_mapped(layout.size(), layout.align()) {
            return huge::give_back(block, layout.size());
        }
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let old = layout.size();
        let (was_mapped, mapped) = (is_mapped(old, layout.align()), is_mapped(bytes, layout.align()));
        if !was_mapped && !mapped {
            let moved = unsafe { System.realloc(block, layout, bytes) };
            if !moved.is_null() && old >= LARGE_BYTES {
                let_go(old);
            }
            return if bytes >= LARGE_BYTES { hold(moved, bytes) } else { moved };
        }
        #[cfg(target_os = "linux")]
        {
            if bytes >= LARGE_BYTES {
                if let Some(moved) = blocks::resize(block, old, bytes) {
                    return moved;
                }
            }
            let becomes_file = bytes > old && should_spill(bytes);
            if was_mapped && mapped && !becomes_file && !blocks::is_ours(block, old) {
                let resized = huge::resize(block, old, bytes);
                if !resized.is_null() {
                    let_go(old);
                    hold(resized, bytes);
                }
                return resized;
            }
        }
        // What goes from one of the three to another moves.
        // SAFETY: the alignment is that of a valid layout, and the caller keeps sizes in range.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(bytes, layout.align())) };
        if !moved.is_null() {
            unsafe {
                std::ptr::copy_nonoverlapping(block, moved, old.min(bytes));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}
