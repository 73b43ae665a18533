//! `nvidia-smi --query-compute-apps=... --format=csv[,nounits]`: which process holds how much memory.

use super::metric::{field, reading, split_unit, Field, Reading};
use super::query_gpu::subject;
use super::{Lines, Reader, SampleClock, Samples};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "nvidia-smi-query-compute-apps", clock: SampleClock::Local, sniff: is_header_first, read };

fn is_header_first(head: &[String]) -> bool {
    head.first().is_some_and(|line| is_header(line))
}

/// A pid, and what only this query has: `--query-accounted-apps` has pids too, but of processes long gone.
fn is_header(line: &str) -> bool {
    let has = |wanted: &[&str]| line.split(',').any(|n| wanted.contains(&split_unit(n).0.as_str()));
    has(&["pid"]) && has(&["used_memory", "used_gpu_memory", "process_name"]) && !line.starts_with('#')
}

/// In this query `name` is the process, not the GPU.
fn process_field(header: &str) -> Field {
    if split_unit(header).0 == "name" {
        return Field::ProcessName;
    }
    field(header)
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut fields: Vec<Field> = Vec::new();
    while let Some(line) = lines.next()? {
        if is_header(&line) {
            fields = line.split(',').map(process_field).collect();
            continue;
        }
        let joined = cells(&line, &fields);
        let cells: Vec<&str> = joined.iter().map(|cell| cell.trim()).collect();
        match subject(&fields, &cells) {
            Some(subject) => samples.subject(subject),
            None => {
                samples.skip(lines.number);
                continue;
            }
        }
        let mut metrics = 0;
        for (field, cell) in fields.iter().zip(&cells) {
            if let Field::Metric(name, unit) = field {
                samples.metric(name.clone(), reading(cell, *unit));
                metrics += 1;
            }
        }
        if metrics == 0 {
            // A query without memory still says that the process was there.
            samples.metric("process_memory_bytes".to_owned(), Reading::Text("[not queried]".to_owned()));
        }
    }
    Ok(())
}

/// Cells of a line. nvidia-smi does not quote: a process name with commas is what is left between its neighbours.
fn cells(line: &str, fields: &[Field]) -> Vec<String> {
    let raw: Vec<&str> = line.split(',').collect();
    let extra = raw.len().saturating_sub(fields.len());
    let Some(at) = fields.iter().position(|f| *f == Field::ProcessName).filter(|_| extra > 0) else {
        return raw.into_iter().map(str::to_owned).collect();
    };
    let (before, rest) = raw.split_at(at.min(raw.len()));
    let (name, after) = rest.split_at((extra + 1).min(rest.len()));
    let mut cells: Vec<String> = before.iter().map(|c| (*c).to_owned()).collect();
    cells.push(name.join(","));
    cells.extend(after.iter().map(|c| (*c).to_owned()));
    cells
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::quality::ROWS_SKIPPED;

    #[test]
    fn processes_with_their_memory() {
        let text = "timestamp, gpu_uuid, gpu_serial, pid, process_name, used_gpu_memory [MiB]
2026/07/14 08:12:53.500, GPU-1, 032, 11327, /opt/a, b/run, 2 MiB
2026/07/14 08:12:53.500, GPU-1, 032, 11328, python, [N/A]
2026/07/14 08:12:53.500, GPU-1, 032, 11329, [Not Found], 0 MiB
2026/07/14 08:12:53.500, GPU-1, 032, x, python, 1 MiB
2026/07/14 08:12:53.500, GPU-1
";
        let (table, quality) = read_text(text.as_bytes());
        assert_eq!(
            shown(&table.unwrap()),
            [
                "|GPU-1|11327|/opt/a, b/run||process_memory_bytes|2097152",
                "|GPU-1|11328|python||process_memory_bytes|[N/A]",
                "|GPU-1|11329|||process_memory_bytes|0",
            ]
        );
        assert_eq!(quality.count(ROWS_SKIPPED), 2);
    }

    #[test]
    fn alias_names_and_no_rows() {
        let text = "pid, name, used_memory [MiB]\n5, python, 1\n";
        assert_eq!(
            shown(&read_text(text.as_bytes()).0.unwrap()),
            ["||5|python||process_memory_bytes|1048576"]
        );
        let empty = read_text(b"timestamp, gpu_uuid, pid, process_name, used_memory [MiB]\n").0.unwrap();
        assert_eq!(empty.num_rows(), 0);
        assert!(read_text(b"timestamp, gpu_uuid, pid, gpu_utilization [%], time [ms]\n").0.is_err());
    }
}
