//! Load any file that looks like an export, through every step: it must end in an answer or an error.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use pyanalyze_core::pipeline;
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::read::nsys;
use pyanalyze_fuzz::{answer, as_file, mutate_pages};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 3 == 0 {
        fuzzer_mutate(data, size, max_size)
    } else {
        mutate_pages(data, size, seed)
    }
});

fuzz_target!(|bytes: &[u8]| {
    let path = as_file(bytes, "sqlite");
    let Some(tables) = answer(nsys::read(&path, 0, &nsys::Want::all(), &Unwatched)) else { return };
    let Some(mut session) = answer(pipeline::join(vec![tables], &Unwatched)) else { return };
    let Some(made) = answer(pipeline::reconstruct(&session, &Unwatched)) else { return };
    session.extend(made);
    let Some(made) = answer(pipeline::attribution(&session, &Unwatched)) else { return };
    session.extend(made);
    answer(pipeline::residency_summary(&session, &Unwatched));
});
