//! Read any file with every sample reader, and build the session of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pyanalyze_core::pipeline;
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::read::samples;
use pyanalyze_core::table::schema;
use pyanalyze_core::table::events::Tables;
use pyanalyze_core::table::quality::Quality;
use pyanalyze_fuzz::{answer, as_file};

fuzz_target!(|bytes: &[u8]| {
    let path = as_file(bytes, "txt");
    let mut quality = Quality::default();
    let Some(batch) = answer(samples::read(&path, &Unwatched, &mut quality)) else { return };
    let counted = quality.table().expect("counts make a table");
    let tables = Tables::from([(schema::NVML_SAMPLES.name, batch), (schema::QUALITY.name, counted)]);
    answer(pipeline::of_samples(&[tables.clone(), tables]));
});
