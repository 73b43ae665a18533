//! A thread that looks at the resident memory of the process and keeps it below the budget.

use std::fs::File;
use std::io::{Read, Result, Seek};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::{blocks, BUDGET, OVER, RESIDENT_MOST, SPILLED};

/// Two processors read some 25 MB of cached files in that time, and write less.
const OFTEN: Duration = Duration::from_millis(1);
/// Where the budget is far away, and no files are read.
const RARELY: Duration = Duration::from_millis(20);

/// Room that two processors fill with pages of files from one look to the end of what it has released, seen where the
/// thread came in time; a quarter of a large budget is more.
const ROOM_BYTES: usize = 320 << 20;

/// It walks through all that is free, and others wait for it.
const TRIM_EVERY: Duration = Duration::from_millis(200);

/// Looks in a row that find more than the budget after all was released.
const ABOVE_TIMES: u32 = 3;

/// The process whose thread runs: threads do not live on in a process that was forked off.
static RUNS_IN: AtomicU32 = AtomicU32::new(0);

/// Starts the thread, once in a process.
pub(crate) fn start() -> Result<()> {
    let process = std::process::id();
    if RUNS_IN.swap(process, Ordering::Relaxed) == process {
        return Ok(());
    }
    let started = File::open("/proc/self/statm").and_then(|statm| {
        std::thread::Builder::new().name("pyanalyze-memory".to_owned()).spawn(move || watch(statm))
    });
    started.map(|_| ()).inspect_err(|_| RUNS_IN.store(0, Ordering::Relaxed))
}

fn watch(mut statm: File) {
    let mut cannot_go_bytes = 0;
    let mut trimmed = Instant::now();
    let mut above = 0_u32;
    loop {
        let budget = BUDGET.load(Ordering::Relaxed);
        let mut resident = 0;
        if budget != usize::MAX {
            resident = look(&mut statm);
            // Some room is needed for what is touched until the next look; and what cannot be let go of should not
            // make us let go of everything again and again.
            let enough =
                budget - (budget / 4).max(ROOM_BYTES).min(budget.saturating_sub(cannot_go_bytes) / 4 * 3);
            if resident > enough {
                if resident > budget || trimmed.elapsed() > TRIM_EVERY {
                    trim();
                    trimmed = Instant::now();
                }
                blocks::drop_pages();
                resident = look(&mut statm);
                cannot_go_bytes = resident;
            }
            // What is above the budget once may have been mapped again while it was released.
            above = if resident > budget { above + 1 } else { 0 };
            if above >= ABOVE_TIMES {
                OVER.fetch_max(resident, Ordering::Relaxed);
            }
        }
        let near = budget != usize::MAX && (resident > budget / 2 || SPILLED.load(Ordering::Relaxed) > 0);
        std::thread::sleep(if near { OFTEN } else { RARELY });
    }
}

/// Makes room for a file of so many bytes, which is about to be written: on a busy machine the thread may look too late.
pub(crate) fn make_room(bytes: usize) {
    let resident = File::open("/proc/self/statm").map_or(0, |mut statm| look(&mut statm));
    if resident.saturating_add(bytes) > BUDGET.load(Ordering::Relaxed) {
        blocks::drop_pages();
    }
}

/// Has the system's allocator give back what it kept of blocks that were freed.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Resident memory in bytes; 0 if it cannot be told.
fn look(statm: &mut File) -> usize {
    let mut bytes = [0; 128];
    let read = statm.rewind().and_then(|()| statm.read(&mut bytes)).unwrap_or(0);
    let pages =
        bytes.get(..read).and_then(|line| std::str::from_utf8(line).ok()?.split(' ').nth(1)?.parse().ok());
    let resident = pages.unwrap_or(0_usize).saturating_mul(page_bytes());
    RESIDENT_MOST.fetch_max(resident, Ordering::Relaxed);
    resident
}

/// Most resident memory of the process so far, in bytes, as the system recorded it; 0 if it cannot be told.
pub(crate) fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|kib| kib.parse().ok()).unwrap_or(0_usize).saturating_mul(1024)
}

fn page_bytes() -> usize {
    // SAFETY: asks for a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
