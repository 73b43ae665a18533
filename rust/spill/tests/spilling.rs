//! Do blocks of files hold what was written to them, come and go as they should, and is it told when they cannot?

// A test may stop at the first surprise.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
#![cfg(target_os = "linux")]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyanalyze_spill::{account, bound, check, Budget, Spilling, LARGE_BYTES};

#[global_allocator]
static ALLOCATOR: Spilling = Spilling;

/// The budget is one of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // A test that failed left its budget behind.
    bound(None).unwrap();
    alone
}

fn budget(bytes: usize, hold_bytes: usize) {
    bound(Some(Budget { bytes, hold_bytes, folder: &std::env::temp_dir() })).unwrap();
}

fn with_hold(hold_bytes: usize, test: impl FnOnce()) {
    let _alone = alone();
    budget(1 << 40, hold_bytes);
    test();
    bound(None).unwrap();
    assert_eq!(account().spilled_bytes, 0, "a file was left behind");
}

fn numbers(n: usize) -> impl Iterator<Item = u64> {
    (0..n as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Resident memory of this process now, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn large_blocks_become_files_when_enough_are_held() {
    with_hold(32 << 20, || {
        let small = vec![1_u8; LARGE_BYTES - 1];
        let first = vec![2_u8; 31 << 20];
        assert_eq!(account().spilled_bytes, 0);
        let second = vec![3_u8; 31 << 20];
        assert_eq!(account().spilled_bytes, 31 << 20);
        assert!(small[9] == 1 && first[9] == 2 && second.iter().all(|v| *v == 3));
        drop(second);
        assert_eq!((account().spilled_bytes, account().spilled_most_bytes), (0, 31 << 20));
    });
}

#[test]
fn without_a_budget_everything_stays_in_memory() {
    let _alone = alone();
    let before = account().held_bytes;
    let block = vec![1_u8; 64 << 20];
    assert_eq!((account().spilled_bytes, account().budget_bytes), (0, None));
    assert_eq!(account().held_bytes - before, 64 << 20);
    drop(block);
    assert_eq!(account().held_bytes, before);
}

/// Address of the first byte.
fn place<T>(block: &[T]) -> usize {
    block.as_ptr() as usize
}

#[test]
fn blocks_in_memory_begin_with_a_huge_page_whatever_happens_to_them() {
    const HUGE: usize = 2 << 20;
    let _alone = alone();
    let before = account().held_bytes;
    let mut block: Vec<u64> = Vec::new();
    // One by one: it becomes large, and then has to move time and again because another block is behind it.
    let mut others = Vec::new();
    for number in numbers(4 << 20) {
        if block.len() == block.capacity() && block.len() * 8 >= LARGE_BYTES {
            others.push(vec![7_u8; LARGE_BYTES]);
        }
        block.push(number);
    }
    assert!(others.len() >= 2);
    assert_eq!(place(&block) % HUGE, 0);
    assert!(others.iter().all(|other| place(other) % HUGE == 0 && other.iter().all(|v| *v == 7)));
    assert!(block.iter().copied().eq(numbers(4 << 20)));
    // Shorter, where it is; what is cut off is memory that others may have.
    let was = place(&block);
    block.truncate(3 << 18);
    block.shrink_to_fit();
    assert_eq!(place(&block), was);
    assert_eq!(account().held_bytes - before, 6 * (1 << 20) + others.len() * LARGE_BYTES);
    let fresh = vec![0_u8; 32 << 20];
    assert!(fresh.iter().all(|v| *v == 0));
    assert!(block.iter().copied().eq(numbers(3 << 18)));
    // No longer large.
    block.truncate(1000);
    block.shrink_to_fit();
    assert!(block.iter().copied().eq(numbers(1000)));
    drop((others, fresh));
    assert_eq!(account().held_bytes, before);
}

#[test]
fn files_grow_shrink_and_keep_what_they_hold() {
    with_hold(0, || {
        // Pushed one by one: from ordinary memory to a file, then longer and longer.
        let mut block: Vec<u64> = Vec::new();
        block.extend(numbers(3 << 20));
        assert!(account().spilled_bytes >= 24 << 20);
        assert!(block.iter().copied().eq(numbers(3 << 20)));
        block.truncate(1 << 20);
        block.shrink_to_fit();
        assert_eq!(account().spilled_bytes, 8 << 20);
        assert!(block.iter().copied().eq(numbers(1 << 20)));
        // Below the size of a large block it is no file any more.
        block.truncate(1000);
        block.shrink_to_fit();
        assert_eq!(account().spilled_bytes, 0);
        assert!(block.iter().copied().eq(numbers(1000)));
    });
}

#[test]
fn fresh_blocks_are_zero_and_odd_lengths_hold() {
    with_hold(0, || {
        let block = vec![0_u8; LARGE_BYTES + 4097];
        assert_eq!(account().spilled_bytes, LARGE_BYTES + 4097);
        assert!(block.iter().all(|v| *v == 0));
    });
}

#[test]
fn many_threads_take_and_give_back() {
    with_hold(0, || {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for round in 0..20 {
                        let block: Vec<u64> = vec![thread * 100 + round; 1 << 20];
                        assert!(block.iter().all(|v| *v == thread * 100 + round));
                    }
                });
            }
        });
    });
}

#[test]
fn resident_memory_stays_below_the_budget_while_more_is_held() {
    let _alone = alone();
    let most = resident() + (256 << 20);
    // The thread that looks needs a processor now and then: on a busy machine it may come late, but not every time.
    let held = || {
        budget(most, 128 << 20);
        let blocks: Vec<Vec<u64>> = (0..16).map(|n| numbers(8 << 20).map(|v| v ^ n).collect()).collect();
        for (n, block) in blocks.iter().enumerate() {
            assert!(block.iter().copied().eq(numbers(8 << 20).map(|v| v ^ n as u64)));
        }
        let seen = account();
        assert!(seen.spilled_bytes > 800 << 20, "{seen:?}");
        let told = check().is_err();
        drop(blocks);
        bound(None).unwrap();
        seen.resident_most_bytes <= most && !told
    };
    assert!((0..5).any(|_| held()), "above {most} bytes each time");
}

#[test]
fn a_peak_that_nobody_looked_at_is_said() {
    let _alone = alone();
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    };
    // Each peak is above all before it and gone at once: the thread, which looks now and then, cannot see all of them.
    for _ in 0..20 {
        let most = peak() + (2 << 20);
        budget(most, usize::MAX);
        let bytes = most - resident() + (4 << 20);
        drop(vec![1_u8; bytes]);
        assert!(account().resident_most_bytes > most, "{:?}", account());
    }
    // A little too much for a moment is no failure, a third is.
    let _ = check();
    let most = peak();
    budget(most, usize::MAX);
    drop(vec![1_u8; most / 3 * 4]);
    let over = check().unwrap_err();
    assert!(over.needed_bytes > over.budget_bytes / 4 * 5, "{over}");
    bound(None).unwrap();
}

#[test]
fn what_cannot_be_held_is_said() {
    let _alone = alone();
    budget(1 << 20, 1 << 20);
    let over = (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        check().err()
    });
    let over = over.unwrap();
    assert!(over.needed_bytes > 1 << 20 && over.refused.is_none());
    assert!(over.to_string().starts_with("the budget of 1 MiB of memory cannot be held: "), "{over}");
    bound(None).unwrap();
    // It may have been noticed once more in between.
    let _ = check();
    assert_eq!(check(), Ok(()));
}

#[test]
fn a_folder_that_takes_nothing_is_refused_at_once() {
    let _alone = alone();
    assert!(
        bound(Some(Budget { bytes: 1 << 30, hold_bytes: 0, folder: Path::new("/nowhere/at/all") })).is_err()
    );
    assert_eq!(account().budget_bytes, None);
}

#[test]
fn a_full_disk_is_no_crash() {
    with_hold(0, || {
        // More than any disk has; a Vec of it is refused, by memory as well.
        let mut block: Vec<u8> = Vec::new();
        assert!(block.try_reserve_exact(1 << 46).is_err());
        let fits = vec![7_u8; LARGE_BYTES];
        assert!(fits.iter().all(|v| *v == 7));
    });
}
