//! `nvidia-smi dmon`: one line per GPU and second, in columns.
//!
//! Which columns there are and how they are called depends on the driver and on `-s` and `-o`, so they are
//! read from the header; the units in its second line tell what columns mean that are not known here. `-`
//! means that nothing could be measured (utilisation under MIG): it stays text and never becomes zero.

use super::metric::{reading, tidy, Reading, Unit, DMON};
use super::time::{parse_date, time_of_day, Time, Undated};
use super::{Lines, Reader, SampleClock, Samples, Subject};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "nvidia-smi-dmon", clock: SampleClock::LocalOrNone, sniff, read };

fn sniff(head: &[String]) -> bool {
    head.first().is_some_and(|line| header(line).is_some())
}

/// The column names of a header line: `# gpu pwr gtemp ...`, `#Date Time gpu ...`. With a pid it is pmon.
fn header(line: &str) -> Option<Vec<String>> {
    let names = words(line)?;
    let has = |name: &str| names.iter().any(|n| n == name);
    let known = names.iter().any(|n| DMON.iter().any(|m| m.0 == n)) || has("gi_id");
    (has("gpu") && known && !has("pid")).then_some(names)
}

/// The units below a header: `# Idx W C C ...`.
fn units(line: &str) -> Option<Vec<String>> {
    words(line).filter(|words| words.iter().any(|w| w == "idx"))
}

fn words(line: &str) -> Option<Vec<String>> {
    Some(line.strip_prefix('#')?.split_whitespace().map(str::to_ascii_lowercase).collect())
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let (mut names, mut heads): (Vec<String>, Vec<String>) = Default::default();
    let mut undated = Undated::default();
    while let Some(line) = lines.next()? {
        if line.starts_with('#') {
            // Repeated every screen.
            if let Some(found) = header(&line) {
                names = found;
            } else if let Some(found) = units(&line) {
                heads = found;
            }
            continue;
        }
        let Some((subject, readings)) = row(&names, &heads, &line, &mut undated) else {
            samples.skip(lines.number);
            continue;
        };
        samples.subject(subject);
        for (metric, reading) in readings {
            samples.metric(metric, reading);
        }
    }
    Ok(())
}

fn row(
    names: &[String],
    heads: &[String],
    line: &str,
    undated: &mut Undated,
) -> Option<(Subject, Vec<(String, Reading)>)> {
    let mut subject = Subject::default();
    let mut readings = Vec::new();
    let (mut day, mut clock) = (None, None);
    let mut cells = line.split_whitespace();
    for (at, name) in names.iter().enumerate() {
        let cell = cells.next()?;
        match name.as_str() {
            "date" => day = Some(parse_date(cell)?),
            "time" => clock = Some(time_of_day(cell)?),
            "gpu" => subject.gpu_index = Some(cell.parse().ok()?),
            "gi_id" => subject.mig_gi = number(cell)?,
            "ci_id" => subject.mig_ci = number(cell)?,
            "mig_id" => {}
            other => {
                let known = DMON.iter().find(|m| m.0 == other);
                let (metric, unit) = known.map_or_else(
                    || unknown(other, heads.get(at)),
                    |(_, metric, unit)| ((*metric).to_owned(), *unit),
                );
                readings.push((metric, reading(cell, unit)));
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

fn number(cell: &str) -> Option<Option<u32>> {
    if cell == "-" {
        return Some(None);
    }
    cell.parse().ok().map(Some)
}

/// A column of a driver to come, or of `--gpm-metrics`: its own name with the unit below it.
fn unknown(name: &str, head: Option<&String>) -> (String, Unit) {
    let name = tidy(name);
    match head.map(String::as_str) {
        Some("%") => (format!("{name}_pct"), Unit::Plain),
        Some("mhz") => (format!("{name}_hz"), Unit::MHz),
        Some("mb") => (format!("{name}_bytes"), Unit::MiB),
        Some("mb/s") => (format!("{name}_bytes_per_s"), Unit::MBPerS),
        Some("w") => (format!("{name}_w"), Unit::Plain),
        Some("c") => (format!("{name}_c"), Unit::Plain),
        _ => (name, Unit::Plain),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::{ROWS_SKIPPED, SAMPLES_UNAVAILABLE};
    use crate::table::schema::NVML_SAMPLES;

    #[test]
    fn drivers_of_three_generations() {
        // One temperature and no units of memory; then more columns; then a column of the future.
        let old = "# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk
# Idx     W     C     %     %     %     %   MHz   MHz
    1    43    61    37     9     0     0   877  1530
";
        let (table, quality) = read_text(old.as_bytes());
        assert_eq!(
            shown(&table.unwrap()),
            [
                "1|||||power_w|43",
                "1|||||temperature_c|61",
                "1|||||gpu_utilization_pct|37",
                "1|||||memory_utilization_pct|9",
                "1|||||encoder_utilization_pct|0",
                "1|||||decoder_utilization_pct|0",
                "1|||||clock_memory_hz|877000000",
                "1|||||clock_sm_hz|1530000000",
            ]
        );
        assert_eq!(quality.count(ROWS_SKIPPED), 0);
        let new = "#Date       Time        gpu    sm     fb   bar1   ccpm  rxpci  txpci  novel   warp
#YYYYMMDD   HH:MM:SS    Idx     %     MB     MB     MB   MB/s   MB/s      %      -
 20260620   17:05:19      0   100   2566      4      0     16      5     12      3
";
        let table = read_text(new.as_bytes()).0.unwrap();
        assert_eq!(
            shown(&table),
            [
                "0|||||gpu_utilization_pct|100",
                "0|||||memory_used_bytes|2690646016",
                "0|||||bar1_used_bytes|4194304",
                "0|||||protected_memory_used_bytes|0",
                "0|||||pcie_rx_bytes_per_s|16000000",
                "0|||||pcie_tx_bytes_per_s|5000000",
                "0|||||novel_pct|12",
                "0|||||warp|3",
            ]
        );
        // `date -u -d '2026-06-20 17:05:19' +%s` is 1781975119.
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!(c.i64("time_local_ns").unwrap().value(0), 1_781_975_119_000_000_000);
    }

    #[test]
    fn times_without_a_date_are_some_time_apart() {
        let text = "#Time        gpu     sm  tviol
#HH:MM:SS    Idx      %   bool
 23:59:58       0     90      0
 23:59:59       0    100      1
 00:00:01       0    100      0
";
        let table = read_text(text.as_bytes()).0.unwrap();
        let times = Columns::new(&NVML_SAMPLES, &table).i64("time_local_ns").unwrap().clone();
        // Two rows of the table for each line.
        assert_eq!(times.value(2) - times.value(0), 1_000_000_000);
        assert_eq!(times.value(4) - times.value(2), 2_000_000_000);
        assert!(times.iter().flatten().all(super::super::is_undated));
    }

    #[test]
    fn under_mig_a_dash_is_no_zero_and_headers_repeat() {
        let text = "# gpu    pwr     sm
# Idx      W      %
    0    438      -
# gpu    pwr     sm
# Idx      W      %
    0    440      -
    0    440
    x    440      -
    0    440      -      7
";
        let (table, quality) = read_text(text.as_bytes());
        let rows = shown(&table.unwrap());
        assert_eq!(
            rows,
            [
                "0|||||power_w|438",
                "0|||||gpu_utilization_pct|-",
                "0|||||power_w|440",
                "0|||||gpu_utilization_pct|-",
            ]
        );
        assert_eq!(quality.count(ROWS_SKIPPED), 3);
        assert_eq!(quality.count(SAMPLES_UNAVAILABLE), 2);
    }
}
