//! `nvidia-smi pmon`: which process ran on which GPU, and of which kind it is (C, G, C+G, M+C).
//!
//! The columns depend on the driver and on `-s` and `-o`, so they are read from the header. `-` means
//! that nothing could be measured, or (for a pid) that no process is there or none can be seen: under MIG
//! the driver shows `-` for every process. Both stay text, neither becomes zero.

use super::metric::{reading, Reading, PMON};
use super::time::{parse_date, time_of_day, Time, Undated};
use super::{Lines, Reader, SampleClock, Samples, Subject};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "nvidia-smi-pmon", clock: SampleClock::LocalOrNone, sniff, read };

fn sniff(head: &[String]) -> bool {
    head.first().is_some_and(|line| header(line).is_some())
}

/// The column names of a header line: `# gpu pid type sm ... command`, `#Date Time gpu pid ...`.
fn header(line: &str) -> Option<Vec<String>> {
    let names: Vec<String> =
        line.strip_prefix('#')?.split_whitespace().map(str::to_ascii_lowercase).collect();
    let has = |name: &str| names.iter().any(|n| n == name);
    (has("gpu") && has("pid") && has("type")).then_some(names)
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    let mut undated = Undated::default();
    while let Some(line) = lines.next()? {
        if line.starts_with('#') {
            // Repeated every screen; the second line of each holds units.
            if let Some(found) = header(&line) {
                names = found;
            }
            continue;
        }
        let Some((subject, readings)) = row(&names, &line, &mut undated) else {
            samples.skip(lines.number);
            continue;
        };
        samples.subject(subject);
        for (metric, reading) in readings {
            samples.metric(metric.to_owned(), reading);
        }
    }
    Ok(())
}

fn row(
    names: &[String],
    line: &str,
    undated: &mut Undated,
) -> Option<(Subject, Vec<(&'static str, Reading)>)> {
    let mut subject = Subject::default();
    let mut readings = Vec::new();
    let (mut day, mut clock) = (None, None);
    let mut cells = line.split_whitespace();
    for name in names {
        let cell = cells.next()?;
        match name.as_str() {
            "date" => day = Some(parse_date(cell)?),
            "time" => clock = Some(time_of_day(cell)?),
            "gpu" => subject.gpu_index = Some(cell.parse().ok()?),
            "pid" if cell == "-" => {}
            "pid" => subject.pid = Some(cell.parse().ok()?),
            "type" => subject.process_type = (cell != "-").then(|| cell.to_owned()),
            "command" => {
                // The last column: a command may hold blanks.
                let command = cells.by_ref().fold(cell.to_owned(), |all, word| all + " " + word);
                subject.process_name = (command != "-").then_some(command);
            }
            other => {
                if let Some((_, metric, unit)) = PMON.iter().find(|m| m.0 == other) {
                    readings.push((*metric, reading(cell, *unit)));
                }
            }
        }
    }
    match (day, clock) {
        (Some(day), Some(clock)) => subject.set_time(Time::Local(day * 86_400_000_000_000 + clock)),
        (None, Some(clock)) => subject.set_time(undated.place(clock)),
        (_, None) => {}
    }
    cells.next().is_none().then_some((subject, readings))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::ROWS_SKIPPED;
    use crate::table::schema::NVML_SAMPLES;

    #[test]
    fn eight_columns_and_ten() {
        let old = "# gpu        pid  type    sm   mem   enc   dec   command
# Idx          #   C/G     %     %     %     %   name
    0      21180   M+C    62     9     -     -   python
    1          -     -     -     -     -     -   -
";
        assert_eq!(
            shown(&read_text(old.as_bytes()).0.unwrap())[..5],
            [
                "0||21180|python|M+C|process_sm_pct|62",
                "0||21180|python|M+C|process_memory_pct|9",
                "0||21180|python|M+C|process_encoder_pct|-",
                "0||21180|python|M+C|process_decoder_pct|-",
                "1|||||process_sm_pct|-",
            ]
        );
        let new = "#Date       Time        gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command
#YYYYMMDD   HH:MM:SS    Idx           #    C/G      %      %      %      %      %      %     MB     MB    name
 20260620   17:05:19      0       21180     C      99     10      -      -      -      -   2566      0    my app
 20260620   17:05:19      0       what      C      99     10      -      -      -      -   2566      0    my app
";
        let (table, quality) = read_text(new.as_bytes());
        let table = table.unwrap();
        let rows = shown(&table);
        assert_eq!(rows[6], "0||21180|my app|C|process_memory_bytes|2690646016");
        assert_eq!(rows.len(), 8);
        assert_eq!(quality.count(ROWS_SKIPPED), 1);
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!(c.i64("time_local_ns").unwrap().value(0), 1_781_975_119_000_000_000);
        assert_eq!(c.i64("time_utc_ns").unwrap().null_count(), 8);
    }

    use arrow_array::Array;
}
