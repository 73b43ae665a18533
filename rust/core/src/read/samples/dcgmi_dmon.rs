//! `dcgmi dmon -e FIELDS`: hardware counters of GPUs and MIG instances, in columns.
//!
//! The heading `#Entity` and short tags, below it `ID`; both are repeated every screen. There are no times.
//! An instance stands under DCGM's own number (`GPU-I 3`), which is not the GPU instance id of NVML, and
//! nothing in the output says which GPU it belongs to.

use super::metric::{dcgm, dcgm_reading, tidy, Unit};
use super::{Lines, Reader, SampleClock, Samples, Subject};
use crate::base::error::Result;

pub(super) const READER: Reader = Reader { name: "dcgmi-dmon", clock: SampleClock::None, sniff, read };

fn sniff(head: &[String]) -> bool {
    head.first().is_some_and(|line| header(line).is_some())
}

/// The tags of a heading: `#Entity  GRACT  SMACT`, `# Entity ...`.
fn header(line: &str) -> Option<Vec<&str>> {
    let mut words = line.strip_prefix('#')?.split_whitespace();
    let tags: Vec<&str> = (words.next()? == "Entity").then(|| words.collect())?;
    (!tags.is_empty()).then_some(tags)
}

/// A field that is not in the vocabulary keeps its tag.
pub(super) fn metric(tag: &str) -> (String, Unit) {
    dcgm(tag).map_or_else(|| (format!("dcgm.{}", tidy(tag)), Unit::Plain), |f| (f.metric.to_owned(), f.unit))
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut metrics: Vec<(String, Unit)> = Vec::new();
    while let Some(line) = lines.next()? {
        if let Some(tags) = header(&line) {
            metrics = tags.into_iter().map(metric).collect();
            continue;
        }
        // The second heading line is `ID`, with units in newer versions.
        if line.split_whitespace().next() == Some("ID") || line.starts_with('#') {
            continue;
        }
        let Some((subject, cells)) = row(&line).filter(|(_, cells)| cells.len() == metrics.len()) else {
            samples.skip(lines.number);
            continue;
        };
        samples.subject(subject);
        for ((name, unit), cell) in metrics.iter().zip(cells) {
            samples.metric(name.clone(), dcgm_reading(cell, *unit));
        }
    }
    Ok(())
}

fn row(line: &str) -> Option<(Subject, Vec<&str>)> {
    let mut words = line.split_whitespace();
    let (kind, id) = (words.next()?, words.next()?);
    let number: u32 = id.parse().ok()?;
    let subject = match kind {
        // DCGM numbers GPUs as NVML does.
        "GPU" => Subject { gpu_index: Some(number), ..Subject::default() },
        "GPU-I" | "GPU-CI" | "Switch" | "Link" | "CPU" | "Core" | "vGPU" => {
            Subject { entity: Some(format!("{kind} {number}")), ..Subject::default() }
        }
        _ => return None,
    };
    Some((subject, words.collect()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::{ROWS_SKIPPED, SAMPLES_ABOVE_ONE};
    use crate::table::schema::NVML_SAMPLES;

    #[test]
    fn gpus_and_instances() {
        let text = "#Entity   GPUTL        SMACT        FBUSD        POWER        NEWTG
ID                                                              W
GPU 0     37           0.504        9            250.100      3
GPU-I 2   N/A          1.294        9223372036854775794 N/A   4
#Entity   GPUTL        SMACT        FBUSD        POWER        NEWTG
ID
GPU 0     37           0.504
DPU 0     37           0.504        9            250.100      3
";
        // The unit line of newer versions is no row: it begins with ID and holds no number.
        let (table, quality) = read_text(text.as_bytes());
        let table = table.unwrap();
        assert_eq!(
            shown(&table),
            [
                "0|||||gpu_utilization_pct|37",
                "0|||||sm_active_ratio|0.504",
                "0|||||memory_used_bytes|9437184",
                "0|||||power_w|250.1",
                "0|||||dcgm.newtg|3",
                "|||||gpu_utilization_pct|N/A",
                "|||||sm_active_ratio|1.294",
                "|||||memory_used_bytes|[DCGM: not supported]",
                "|||||power_w|N/A",
                "|||||dcgm.newtg|4",
            ]
        );
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!(c.names("entity").unwrap().get(4), None);
        assert_eq!(c.names("entity").unwrap().get(5), Some("GPU-I 2"));
        assert_eq!(quality.count(ROWS_SKIPPED), 2);
        assert_eq!(quality.count(SAMPLES_ABOVE_ONE), 1);
    }
}
