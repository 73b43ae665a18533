//! `nvidia-smi` without arguments, as people paste it: boxes of GPUs, of MIG devices, of processes; with `-l` one
//! answer after the other.
//!
//! The boxes are wider or narrower by driver, and names that do not fit are cut, with dots for what is missing: cells
//! are told by their bars, and the words in them by their form. A cut name of a GPU is no name.

use super::metric::{reading, Reading, Unit};
use super::time::{parse_ctime, Time};
use super::{Lines, Reader, SampleClock, Samples, Subject};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "nvidia-smi-table", clock: SampleClock::LocalOrNone, sniff, read };

/// Types of processes.
const TYPES: [&str; 4] = ["C", "G", "C+G", "M+C"];

/// Which box a line is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Gpus,
    Instances,
    Processes,
}

fn is_title(line: &str) -> bool {
    line.starts_with("| NVIDIA-SMI ")
}

/// A title, with nothing before it but a time and the edge of its box.
fn sniff(head: &[String]) -> bool {
    head.iter().position(|line| is_title(line)).is_some_and(|title| {
        title <= 2
            && head.iter().take(title).all(|line| line.starts_with("+-") || parse_ctime(line).is_some())
    })
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut time: Option<Time> = None;
    let mut part = Part::Gpus;
    let mut gpu: Option<Board> = None;
    let mut versions: Vec<(&'static str, String)> = Vec::new();
    while let Some(line) = lines.next()? {
        if let Some(found) = parse_ctime(&line) {
            time = Some(found);
            continue;
        }
        let Some(cells) = cells(&line) else { continue };
        let new = || {
            let mut subject = Subject::default();
            if let Some(time) = time {
                subject.set_time(time);
            }
            subject
        };
        let first = cells.first().copied().unwrap_or_default();
        if is_title(&line) {
            (part, gpu, versions) = (Part::Gpus, None, versions_of(first));
        } else if first.starts_with("MIG devices:") {
            part = Part::Instances;
        } else if first.starts_with("Processes:") {
            part = Part::Processes;
        } else {
            match part {
                Part::Gpus => gpu_line(&cells, gpu.take(), new, &versions, samples, &mut gpu),
                Part::Instances => instance_line(&cells, new(), samples),
                Part::Processes => process_line(first, new(), samples),
            }
        }
    }
    Ok(())
}

/// What stands between the bars of a line; `None` for edges and for what is no line of a box.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    (!inner.starts_with('=')).then(|| inner.split('|').map(str::trim).collect())
}

/// A GPU whose lines are being read.
struct Board {
    subject: Subject,
    /// Uncorrected ECC errors since the driver was loaded; under MIG and without ECC a word stands there.
    uncorrected: Option<Reading>,
}

/// `NVIDIA-SMI 570.86.15  Driver Version: 570.86.15  CUDA Version: 12.8`.
fn versions_of(title: &str) -> Vec<(&'static str, String)> {
    let after = |label: &str| title.split_once(label)?.1.split_whitespace().next().map(str::to_owned);
    let said = [("driver_version", "Driver Version:"), ("cuda_version", "CUDA Version:")];
    said.into_iter().filter_map(|(metric, label)| Some((metric, after(label)?))).collect()
}

/// A count of errors; `None` for the words that stand in its place (`N/A`, `Off`, `On`).
fn errors(word: Option<&str>) -> Option<Reading> {
    Some(reading(word?, Unit::Plain)).filter(|found| matches!(found, Reading::Number(_)))
}

const UNCORRECTED: &str = "ecc.errors.uncorrected.volatile.total";

/// Three lines of a GPU: its number, name and ECC errors; power, memory and utilisation; its MIG mode.
fn gpu_line(
    cells: &[&str],
    known: Option<Board>,
    new: impl Fn() -> Subject,
    versions: &[(&'static str, String)],
    samples: &mut Samples,
    next: &mut Option<Board>,
) {
    let [left, middle, right] = cells else { return };
    let words: Vec<&str> = left.split_whitespace().collect();
    // Persistence mode, or the driver model of Windows, stands last.
    if let [index, name @ .., last] = words.as_slice() {
        if let (Ok(index), true) = (index.parse(), middle.contains(':')) {
            let name = name.join(" ");
            let mut subject = new();
            subject.gpu_index = Some(index);
            subject.gpu_name = (!name.is_empty() && !name.ends_with("...")).then_some(name);
            if matches!(*last, "WDDM" | "TCC" | "MCDM") {
                samples.subject(subject.clone());
                samples.metric("driver_model.current".to_owned(), Reading::Text((*last).to_owned()));
            }
            let uncorrected = errors(right.split_whitespace().next());
            *next = Some(Board { subject, uncorrected });
            return;
        }
    }
    let Some(Board { subject, uncorrected }) = known else { return };
    let right: Vec<&str> = right.split_whitespace().collect();
    if let Some((used, total)) = of_total(middle) {
        samples.subject(subject.clone());
        let mut put = |metric: &str, value: Reading| samples.metric(metric.to_owned(), value);
        put("memory_used_bytes", used);
        put("memory_total_bytes", total);
        let unit = |word: &str, end: char| {
            word.strip_suffix(end).filter(|n| n.parse::<f64>().is_ok()).map(str::to_owned)
        };
        if let Some(watts) = words.iter().find_map(|word| unit(word, 'W')) {
            put("power_w", reading(&watts, Unit::Plain));
        }
        if let Some(degrees) = words.iter().find_map(|word| unit(word, 'C')) {
            put("temperature_c", reading(&degrees, Unit::Plain));
        }
        if let [busy, mode @ ..] = right.as_slice() {
            put("gpu_utilization_pct", reading(busy, Unit::Plain));
            put("compute_mode", Reading::Text(compute_mode(&mode.join(" ")).to_owned()));
        }
        if let Some(uncorrected) = uncorrected {
            put(UNCORRECTED, uncorrected);
        }
        for (metric, version) in versions {
            put(metric, reading(version, Unit::Words));
        }
        *next = Some(Board { subject, uncorrected: None });
    } else if let ([], [mode]) = (words.as_slice(), right.as_slice()) {
        // A star: another mode is pending.
        let mode = mode.trim_end_matches('*');
        if matches!(mode, "Enabled" | "Disabled") {
            samples.subject(subject);
            samples.metric("mig_mode".to_owned(), Reading::Text(mode.to_owned()));
        }
    }
}

/// The mode as other outputs of nvidia-smi spell it.
fn compute_mode(text: &str) -> &str {
    match text {
        "E. Process" => "Exclusive_Process",
        "E. Thread" => "Exclusive_Thread",
        other => other,
    }
}

/// `11125MiB / 81559MiB`.
fn of_total(text: &str) -> Option<(Reading, Reading)> {
    let (used, total) = text.split_once('/')?;
    let mib = |text: &str| text.trim().strip_suffix("MiB").map(|number| reading(number, Unit::MiB));
    Some((mib(used)?, mib(total)?))
}

/// `0    2   0   0 | 11091MiB / 40448MiB | 60      0 | ...`: numbers of GPU, instances and device; memory; SMs.
fn instance_line(cells: &[&str], mut subject: Subject, samples: &mut Samples) {
    let [numbers, memory, sms, ..] = cells else { return };
    let numbers: Vec<u32> = numbers.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let ([gpu, gi, ci, _], Some((used, total))) = (numbers.as_slice(), of_total(memory)) else { return };
    (subject.gpu_index, subject.mig_gi, subject.mig_ci) = (Some(*gpu), Some(*gi), Some(*ci));
    samples.subject(subject);
    samples.metric("memory_used_bytes".to_owned(), used);
    samples.metric("memory_total_bytes".to_owned(), total);
    let mut words = sms.split_whitespace();
    if let Some(sms) = words.next() {
        samples.metric("sm_count".to_owned(), reading(sms, Unit::Plain));
    }
    if let Some(uncorrected) = errors(words.next()) {
        samples.metric(UNCORRECTED.to_owned(), uncorrected);
    }
}

/// GPU, instances (not before r450), pid, type, name, memory.
fn process_line(line: &str, mut subject: Subject, samples: &mut Samples) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    let is_type = |at: usize| words.get(at).is_some_and(|word| TYPES.contains(word));
    let (Some(gpu), Some(at)) =
        (number(0), [3, 1].into_iter().find(|at| number(*at).is_some() && is_type(at + 1)))
    else {
        return;
    };
    let rest = words.get(at + 2..).unwrap_or_default();
    let [name @ .., memory] = rest else { return };
    subject.gpu_index = Some(gpu);
    (subject.mig_gi, subject.mig_ci) = if at == 3 { (number(1), number(2)) } else { (None, None) };
    (subject.pid, subject.process_type) = (number(at), words.get(at + 1).map(|word| (*word).to_owned()));
    subject.process_name = (!name.is_empty()).then(|| name.join(" "));
    samples.subject(subject);
    let used = memory.strip_suffix("MiB").unwrap_or(memory);
    samples.metric("process_memory_bytes".to_owned(), reading(used, Unit::MiB));
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::schema::NVML_SAMPLES;

    const BOARD: &str = "Sat Jun 20 17:05:19 2026
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
";

    #[test]
    fn a_divided_board_with_processes() {
        let text = BOARD.to_owned()
            + "|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                   On |
| N/A   55C    P0             251W / 400W |   5125MiB / 81920MiB |     N/A      Default |
|                                         |                      |             Enabled* |
+-----------------------------------------+----------------------+----------------------+
| MIG devices:                                                                          |
| GPU  GI  CI  MIG |                   Memory-Usage |        SM |        Shared         |
|      ID  ID  Dev |                     BAR1-Usage |       ECC | CE ENC  DEC  OFA  JPG |
|==================+================================+===========+=======================|
|  0    2   0   0  |            5026MiB / 40192MiB  | 42      0 |  3   0    2    0    0 |
|                  |               0MiB / 65535MiB  |           |                       |
+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|        ID   ID                                                             Usage      |
|=======================================================================================|
|    0    2    0       4711      C   /opt/serve me                             5000MiB |
+---------------------------------------------------------------------------------------+
";
        let (table, _) = read_text(text.as_bytes());
        let table = table.unwrap();
        assert_eq!(
            shown(&table),
            [
                "0|||||memory_used_bytes|5373952000",
                "0|||||memory_total_bytes|85899345920",
                "0|||||power_w|251",
                "0|||||temperature_c|55",
                "0|||||gpu_utilization_pct|N/A",
                "0|||||compute_mode|Default",
                "0|||||driver_version|535.129.03",
                "0|||||cuda_version|12.2",
                "0|||||mig_mode|Enabled",
                "0|||||memory_used_bytes|5270142976",
                "0|||||memory_total_bytes|42144366592",
                "0|||||sm_count|42",
                "0|||||ecc.errors.uncorrected.volatile.total|0",
                "0||4711|/opt/serve me|C|process_memory_bytes|5242880000",
            ]
        );
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!((c.u32("mig_gi").unwrap().value(9), c.u32("mig_gi").unwrap().value(13)), (2, 2));
        assert_eq!(c.i64("time_local_ns").unwrap().value(0), 1_781_975_119_000_000_000);
        assert_eq!(c.text("gpu_name").unwrap().value(0), "NVIDIA A100-SXM4-80GB");
    }

    #[test]
    fn uncorrected_errors_and_versions() {
        let text = BOARD.to_owned()
            + "|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0B:00.0 Off |                    2 |
| N/A   84C    P0             398W / 400W |  80120MiB /  81920MiB |    100%   E. Process |
";
        let rows = shown(&read_text(text.as_bytes()).0.unwrap());
        assert!(rows.contains(&"1|||||ecc.errors.uncorrected.volatile.total|2".to_owned()), "{rows:?}");
        assert!(rows.contains(&"1|||||driver_version|535.129.03".to_owned()), "{rows:?}");
        assert!(rows.contains(&"1|||||cuda_version|12.2".to_owned()), "{rows:?}");
    }

    #[test]
    fn windows_and_older_drivers() {
        let text = BOARD.to_owned()
            + "|   0  NVIDIA GeForce RTX 208... WDDM  | 00000000:01:00.0  On |                  N/A |
| 33%   45C    P8              18W / 215W |    819MiB /  8192MiB |      4%   E. Process |
+-----------------------------------------+----------------------+----------------------+
| Processes:                                                                  |
|  GPU       PID   Type   Process name                             GPU Memory |
|=============================================================================|
|    0      1234      C   python                                      1000MiB |
|    0      1300    C+G   ...\\explorer.exe                              N/A    |
";
        let (table, _) = read_text(text.as_bytes());
        let table = table.unwrap();
        let rows = shown(&table);
        assert_eq!(rows[0], "0|||||driver_model.current|WDDM");
        assert!(rows.contains(&"0|||||compute_mode|Exclusive_Process".to_owned()), "{rows:?}");
        assert!(rows.contains(&"0||1234|python|C|process_memory_bytes|1048576000".to_owned()), "{rows:?}");
        assert!(
            rows.contains(&"0||1300|...\\explorer.exe|C+G|process_memory_bytes|N/A".to_owned()),
            "{rows:?}"
        );
        // A cut name is none.
        assert!(Columns::new(&NVML_SAMPLES, &table)
            .text("gpu_name")
            .unwrap()
            .iter()
            .all(|name| name.is_none()));
    }

    #[test]
    fn a_pasted_terminal_with_a_table_is_read_command_by_command() {
        let table = BOARD.to_owned()
            + "|   0  NVIDIA L40S                    On  | 00000000:07:00.0 Off |                    0 |
| N/A   55C    P0             251W / 400W |   5125MiB / 81920MiB |      9%      Default |
";
        let text = format!("me@node:~$ nvidia-smi\n{table}\nme@node:~$ nvidia-smi dmon -c 1\n# gpu    pwr     sm\n# Idx      W      %\n    0    438     37\n");
        let (found, _) = read_text(text.as_bytes());
        let rows = shown(&found.unwrap());
        assert!(rows.contains(&"0|||||gpu_utilization_pct|9".to_owned()), "{rows:?}");
        assert!(rows.contains(&"0|||||gpu_utilization_pct|37".to_owned()), "{rows:?}");
    }
}
