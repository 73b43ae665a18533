//! DCGM tags as columns of a CSV file, as people log `dcgmi dmon` with a time: `EntityId,GRACT,FBUSD,TimeStamp`.
//!
//! An `EntityId` without its kind may be a GPU or a MIG instance: it names no GPU here. A column `gpu` does.

use super::dcgmi_dmon::metric;
use super::metric::{dcgm, dcgm_reading, is_known_metric, is_secret, Unit};
use super::time::parse_time;
use super::{Lines, Reader, SampleClock, Samples, Subject};
use crate::base::error::Result;

pub(super) const READER: Reader = Reader { name: "dcgm-csv", clock: SampleClock::UtcOrNone, sniff, read };

enum Field {
    Time,
    Entity,
    Gpu,
    Uuid,
    Metric(String, Unit),
    Ignored,
}

fn sniff(head: &[String]) -> bool {
    head.first().is_some_and(|line| is_header(line))
}

fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|name| name.trim().trim_matches('"'))
}

/// A field of DCGM, and none of nvidia-smi or of Prometheus.
fn is_header(line: &str) -> bool {
    let tag = |name: &str| !name.is_empty() && name.parse::<f64>().is_err() && dcgm(name).is_some();
    line.contains(',') && !line.contains('{') && names(line).any(tag) && !names(line).any(is_known_metric)
}

fn field(name: &str) -> Field {
    match name.to_ascii_lowercase().as_str() {
        "timestamp" | "time" | "datetime" => Field::Time,
        "entity" | "entityid" | "#entity" | "entity_id" => Field::Entity,
        "gpu" | "gpu_index" | "index" => Field::Gpu,
        "uuid" | "gpu_uuid" => Field::Uuid,
        secret if is_secret(secret) => Field::Ignored,
        _ => {
            let (name, unit) = metric(name);
            Field::Metric(name, unit)
        }
    }
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut fields: Vec<Field> = Vec::new();
    while let Some(line) = lines.next()? {
        if is_header(&line) {
            fields = names(&line).map(field).collect();
            continue;
        }
        let cells: Vec<&str> = names(&line).collect();
        let Some(subject) = subject(&fields, &cells) else {
            samples.skip(lines.number);
            continue;
        };
        samples.subject(subject);
        for (field, cell) in fields.iter().zip(&cells) {
            if let Field::Metric(name, unit) = field {
                samples.metric(name.clone(), dcgm_reading(cell, *unit));
            }
        }
    }
    Ok(())
}

fn subject(fields: &[Field], cells: &[&str]) -> Option<Subject> {
    if fields.len() != cells.len() {
        return None;
    }
    let mut subject = Subject::default();
    for (field, cell) in fields.iter().zip(cells) {
        match field {
            Field::Time => subject.set_time(parse_time(cell)?),
            Field::Gpu => subject.gpu_index = Some(cell.parse().ok()?),
            Field::Uuid => subject.gpu_uuid = Some((*cell).to_owned()),
            Field::Entity => match cell.strip_prefix("GPU ").map(str::trim) {
                Some(index) => subject.gpu_index = Some(index.parse().ok()?),
                None => subject.entity = Some((*cell).to_owned()),
            },
            Field::Metric(..) | Field::Ignored => {}
        }
    }
    Some(subject)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::ROWS_SKIPPED;
    use crate::table::schema::NVML_SAMPLES;

    #[test]
    fn an_entity_without_its_kind_is_no_gpu() {
        let text = "EntityId,GRACT,FBUSD,TimeStamp
0,0.476,9,1781975119
0,0.500,9,1781975121
0,0.5
#Entity,GRACT
GPU 3,0.25
";
        let (table, quality) = read_text(text.as_bytes());
        let table = table.unwrap();
        assert_eq!(
            shown(&table),
            [
                "|||||gr_engine_active_ratio|0.476",
                "|||||memory_used_bytes|9437184",
                "|||||gr_engine_active_ratio|0.5",
                "|||||memory_used_bytes|9437184",
                "3|||||gr_engine_active_ratio|0.25",
            ]
        );
        assert_eq!(quality.count(ROWS_SKIPPED), 1);
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!(c.names("entity").unwrap().get(0), Some("0"));
        assert_eq!(c.i64("time_utc_ns").unwrap().value(0), 1_781_975_119_000_000_000);
        // A counter is an average since the row before; memory is of the moment.
        let intervals: Vec<_> = c.i64("interval_ns").unwrap().iter().collect();
        assert_eq!(intervals, [None, None, Some(2_000_000_000), None, None]);
    }
}
