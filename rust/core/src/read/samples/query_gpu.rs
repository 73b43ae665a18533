//! `nvidia-smi --query-gpu=... --format=csv[,nounits]`, and CSV files that people write in its image.
//!
//! Any set of columns with a header. Units stand in the header, in the values, in both or in neither.

use super::metric::{field, is_known_metric, is_unavailable, reading, split_unit, Field};
use super::time::parse_time;
use super::{Lines, Reader, SampleClock, Samples, Subject};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "nvidia-smi-query-gpu", clock: SampleClock::Local, sniff: is_header_first, read };

fn is_header_first(head: &[String]) -> bool {
    head.first().is_some_and(|line| is_header(line))
}

fn is_header(line: &str) -> bool {
    separator(line).is_some()
}

/// What stands between the columns of a header, which names at least one metric that is known, and no process.
/// Spreadsheets write semicolons where the comma is the decimal sign.
fn separator(line: &str) -> Option<char> {
    let found = [',', ';', '\t'].into_iter().find(|mark| line.split(*mark).any(is_known_metric))?;
    let process = line.split(found).any(|name| split_unit(name).0 == "pid");
    (!line.starts_with('#') && !process).then_some(found)
}

/// Cells of a row. nvidia-smi puts a blank behind each comma between values: a decimal comma has none.
fn cells(line: &str, mark: char, columns: usize) -> Vec<&str> {
    let plain: Vec<&str> = line.split(mark).map(str::trim).collect();
    if mark == ',' && plain.len() > columns {
        let spaced: Vec<&str> = line.split(", ").map(str::trim).collect();
        if spaced.len() == columns {
            return spaced;
        }
    }
    plain
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut fields: Vec<Field> = Vec::new();
    let mut mark = ',';
    while let Some(line) = lines.next()? {
        // Logs that are appended to repeat their header, with other columns perhaps.
        if let Some(found) = separator(&line) {
            mark = found;
            fields = line.split(mark).map(field).collect();
            continue;
        }
        let cells = cells(&line, mark, fields.len());
        if cells.len() != fields.len() {
            samples.skip_uneven(lines.number, cells.len(), fields.len());
            continue;
        }
        match subject(&fields, &cells) {
            Some(subject) => samples.subject(subject),
            None => {
                samples.skip(lines.number);
                continue;
            }
        }
        for (field, cell) in fields.iter().zip(&cells) {
            if let Field::Metric(name, unit) = field {
                samples.metric(name.clone(), reading(cell, *unit));
            }
        }
    }
    Ok(())
}

/// Whom a row is about; `None` for a row that breaks the format.
pub(super) fn subject(fields: &[Field], cells: &[&str]) -> Option<Subject> {
    if fields.len() != cells.len() {
        return None;
    }
    let mut subject = Subject::default();
    for (field, cell) in fields.iter().zip(cells) {
        let text = || (!is_unavailable(cell)).then(|| (*cell).to_owned());
        match field {
            Field::Time => subject.set_time(parse_time(cell)?),
            Field::GpuIndex => subject.gpu_index = Some(cell.parse().ok()?),
            Field::GpuUuid => subject.gpu_uuid = text(),
            Field::GpuName => subject.gpu_name = text(),
            Field::Pid if is_unavailable(cell) => {}
            Field::Pid => subject.pid = Some(cell.parse().ok()?),
            Field::ProcessName => subject.process_name = text(),
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
    fn the_same_values_with_and_without_units() {
        let with = "timestamp, index, uuid, serial, utilization.gpu [%], memory.used [MiB], clocks.sm [MHz], power.draw [W], clocks_throttle_reasons.sw_power_cap, pstate, fan.speed [%]
2026/06/20 17:05:19.493, 1, GPU-1, 0321, 37 %, 23028 MiB, 1410 MHz, 250.10 W, Not Active, P0, [N/A]
";
        let without = with
            .replace("37 %", "37")
            .replace("28 MiB", "28")
            .replace("1410 MHz", "1410")
            .replace("250.10 W", "250.10");
        let expected = [
            "1|GPU-1||||gpu_utilization_pct|37",
            "1|GPU-1||||memory_used_bytes|24146608128",
            "1|GPU-1||||clock_sm_hz|1410000000",
            "1|GPU-1||||power_w|250.1",
            "1|GPU-1||||clocks_event_reasons.sw_power_cap|0",
            "1|GPU-1||||pstate|P0",
            "1|GPU-1||||fan.speed_pct|[N/A]",
        ];
        for text in [
            with.to_owned(),
            without,
            with.replace("throttle_reasons", "event_reasons").replace('\n', "\r\n"),
        ] {
            let (table, quality) = read_text(text.as_bytes());
            let table = table.unwrap();
            assert_eq!(shown(&table), expected);
            let c = Columns::new(&NVML_SAMPLES, &table);
            assert_eq!(c.i64("time_local_ns").unwrap().value(0), 1_781_975_119_493_000_000);
            assert_eq!(quality.count(ROWS_SKIPPED), 0);
        }
    }

    #[test]
    fn another_unit_is_not_taken_for_the_usual_one() {
        let text =
            "index, memory.used [GiB], power.draw [mW], clocks.sm [GHz], temperature.gpu, utilization.gpu [%]
0, 20.5, 250100, 1.41, 61, 37
";
        let expected = [
            "0|||||memory.used_gib|20.5",
            "0|||||power.draw_mw|250100",
            "0|||||clocks.sm_ghz|1.41",
            "0|||||temperature_c|61",
            "0|||||gpu_utilization_pct|37",
        ];
        assert_eq!(shown(&read_text(text.as_bytes()).0.unwrap()), expected);
    }

    #[test]
    fn what_is_not_available_is_never_zero() {
        let text = "index, utilization.gpu [%], clocks.sm [MHz], temperature.gpu, memory.free [MiB]
0, [N/A], [Not Supported], [Unknown Error], [Requested functionality has been deprecated]
0, nan, inf, 1e9999, 5 furlongs
";
        let table = read_text(text.as_bytes()).0.unwrap();
        assert_eq!(Columns::new(&NVML_SAMPLES, &table).f64("value").unwrap().iter().flatten().count(), 0);
        assert_eq!(shown(&table)[3], "0|||||memory_free_bytes|[Requested functionality has been deprecated]");
    }

    #[test]
    fn decimal_commas_and_semicolons_of_other_locales() {
        let comma = "index, power.draw [W], utilization.gpu [%]
0, 300,10 W, 37 %
0, [N/A], 38 %
0, 1,234 W, 39 %
";
        let expected = [
            "0|||||power_w|300.1",
            "0|||||gpu_utilization_pct|37",
            "0|||||power_w|[N/A]",
            "0|||||gpu_utilization_pct|38",
            // Thousands or thousandths: nobody knows.
            "0|||||power_w|1,234 W",
            "0|||||gpu_utilization_pct|39",
        ];
        for text in [comma.to_owned(), comma.replace(", ", ";"), comma.replace(", ", "\t")] {
            let (table, quality) = read_text(text.as_bytes());
            assert_eq!(shown(&table.unwrap()), expected, "{text}");
            assert_eq!(quality.count(ROWS_SKIPPED), 0);
        }
        // Without a blank behind the separators a decimal comma is no different from them.
        let (table, quality) = read_text(comma.replace(", ", ",").as_bytes());
        assert_eq!(table.unwrap().num_rows(), 2);
        assert_eq!(quality.count(ROWS_SKIPPED), 2);
        let said = format!("{:?}", quality.table().unwrap());
        assert!(said.contains("first in line 2 (4 values for 3 columns)"), "{said}");
    }

    #[test]
    fn broken_rows_are_counted_and_a_new_header_is_taken() {
        let text = "timestamp,gpu_index,name,util_gpu_pct,memory_used_mib
2026/06/20 17:05:19.493, 0, NVIDIA RTX 2000 Ada Generation, 7, 2
2026/06/20 17:05:20.493, 0, NVIDIA RTX 2000
yesterday, 0, NVIDIA RTX 2000 Ada Generation, 7, 2
2026/06/20 17:05:20.493, zero, NVIDIA RTX 2000 Ada Generation, 7, 2
index, utilization.gpu [%]
3, 9 %
";
        let (table, quality) = read_text(text.as_bytes());
        assert_eq!(
            shown(&table.unwrap()),
            ["0|||||gpu_utilization_pct|7", "0|||||memory_used_bytes|2097152", "3|||||gpu_utilization_pct|9"]
        );
        assert_eq!(quality.count(ROWS_SKIPPED), 3);
    }

    #[test]
    fn columns_with_command_lines_and_the_like_are_not_read() {
        let text = "index, utilization.gpu [%], command, cmdline, env, API_TOKEN, hostname, host, vbios_version, gpu_serial
0, 5, SECRET, SECRET, SECRET, SECRET, SECRET, SECRET, SECRET, SECRET
";
        let table = read_text(text.as_bytes()).0.unwrap();
        assert_eq!(shown(&table), ["0|||||gpu_utilization_pct|5"]);
        assert!(!format!("{table:?}").contains("SECRET"));
    }
}
