//! `nvidia-smi -q` as text: indented labels and values; with `-l` one answer after the other.
//!
//! Four blanks a level. Read by allow-list, see `query_tree.rs`.

use super::metric::slug;
use super::query_tree::{Gpu, Log};
use super::time::{parse_ctime, parse_time};
use super::{Lines, Reader, SampleClock, Samples};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "nvidia-smi-query-text", clock: SampleClock::Local, sniff, read };

fn is_title(line: &str) -> bool {
    line.starts_with("==") && line.contains("NVSMI LOG")
}

fn sniff(head: &[String]) -> bool {
    head.first().is_some_and(|line| is_title(line))
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut log = Log::default();
    // Labels above the line, from the outermost.
    let mut stack: Vec<String> = Vec::new();
    while let Some(line) = lines.next_indented()? {
        let text = line.trim_start();
        if is_title(text) {
            log.emit(lines.number, samples);
            log = Log::default();
            continue;
        }
        let depth = (line.len() - text.len()) / 4;
        let (label, value) = match text.split_once(" : ") {
            Some((label, value)) => (slug(label), Some(value.trim())),
            None => (slug(text.strip_suffix(':').unwrap_or(text)), None),
        };
        stack.truncate(depth);
        if depth == 0 {
            match (label.as_str(), value) {
                ("timestamp", Some(value)) => log.time = parse_ctime(value).or_else(|| parse_time(value)),
                ("driver_version", Some(value)) => log.driver = Some(value.to_owned()),
                ("cuda_version", Some(value)) => log.cuda = Some(value.to_owned()),
                ("attached_gpus", Some(value)) => log.attached = value.parse().ok(),
                (other, None) if other.starts_with("gpu_") && text.starts_with("GPU ") => {
                    log.gpus.push(Gpu::default());
                }
                _ => {}
            }
            stack.push(label);
            continue;
        }
        if let Some(gpu) = log.gpus.last_mut() {
            let section = stack.get(1).map(String::as_str);
            match (section, value) {
                (None, None) if label == "mig_device" => gpu.instances.push(Vec::new()),
                (None, Some(value)) => gpu.put(&label, value),
                (Some("mig_device"), Some(value)) => gpu.put_instance(&below(&stack, 2, &label), value),
                // Type, name and memory stand below the pid, the instance ids before it.
                (Some("processes"), Some(value)) => {
                    let begun =
                        gpu.processes.last().is_some_and(|p| !p.iter().any(|(path, _)| path == "process_id"));
                    if depth == 2 && !begun && matches!(label.as_str(), "gpu_instance_id" | "process_id") {
                        gpu.processes.push(Vec::new());
                    }
                    gpu.put_process(&label, value);
                }
                (Some(_), Some(value)) => gpu.put(&below(&stack, 1, &label), value),
                _ => {}
            }
        }
        stack.push(label);
    }
    log.emit(lines.number, samples);
    Ok(())
}

fn below(stack: &[String], from: usize, label: &str) -> String {
    let above = stack.get(from..).unwrap_or_default();
    above.iter().map(|part| format!("{part}/")).collect::<String>() + label
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::ROWS_SKIPPED;
    use crate::table::schema::NVML_SAMPLES;

    #[test]
    fn a_gpu_with_an_instance_and_processes() {
        let text = "
==============NVSMI LOG==============

Timestamp                                 : Sat Jun 20 17:05:19 2026
Driver Version                            : 580.1
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA H100
    MIG Mode
        Current                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 3
        Compute Instance ID               : 1
        Device Attributes
            Shared
                Multiprocessor count      : 14
        Shared FB Memory Usage
            Used                          : 12 MiB
    Serial Number                         : SECRET
    GPU UUID                              : GPU-1
    Platform Info
        Host ID                           : SECRET
    Clocks Event Reasons
        Idle                              : Not Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Active
    FB Memory Usage
        Used                              : 38 MiB
    Utilization
        GPU                               : N/A
    GPU Power Readings
        Average Power Draw                : 294.94 W
    GPU Memory Power Readings
        Average Power Draw                : 81.57 W
    Processes
        GPU instance ID                   : 3
        Compute instance ID               : 1
        Process ID                        : 77
            Type                          : C
            Name                          : ./burn --key SECRET
            Used GPU Memory               : 10 MiB
        GPU instance ID                   : 3
        Compute instance ID               : 1
        Process ID                        : 78
            Type                          : C
            Name                          : python
            Used GPU Memory               : N/A
";
        let (table, quality) = read_text(text.repeat(2).as_bytes());
        let table = table.unwrap();
        let rows = shown(&table);
        let expected = [
            "0|GPU-1||||mig_mode|Enabled",
            "0|GPU-1||||clocks_event_reasons.gpu_idle|0",
            "0|GPU-1||||clocks_event_reasons.hw_slowdown|0",
            "0|GPU-1||||clocks_event_reasons.hw_thermal_slowdown|1",
            "0|GPU-1||||memory_used_bytes|39845888",
            "0|GPU-1||||gpu_utilization_pct|N/A",
            "0|GPU-1||||power_average_w|294.94",
            "0|GPU-1||||driver_version|580.1",
            "0|GPU-1||||cuda_version|13.0",
            "0|GPU-1||||sm_count|14",
            "0|GPU-1||||memory_used_bytes|12582912",
            "0|GPU-1|77|./burn|C|process_memory_bytes|10485760",
            "0|GPU-1|78|python|C|process_memory_bytes|N/A",
        ];
        assert_eq!(rows, [expected, expected].concat());
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!(c.u32("mig_gi").unwrap().iter().take(13).flatten().collect::<Vec<_>>(), [3; 4]);
        assert_eq!(c.i64("time_local_ns").unwrap().value(0), 1_781_975_119_000_000_000);
        assert_eq!(quality.count(ROWS_SKIPPED), 0);
    }

    #[test]
    fn what_is_wrong_with_a_gpu() {
        let text = "==============NVSMI LOG==============
Attached GPUs : 1
GPU 0000:01:00.0
    GPU Recovery Action : Reset
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity : 1
            SRAM Uncorrectable SEC-DED : 20
            DRAM Uncorrectable : 300
        Channel Repair Pending : Yes
        TPC Repair Pending : No
    Remapped Rows
        Pending : Yes
        Remapping Failure Occurred : Yes
";
        assert_eq!(
            shown(&read_text(text.as_bytes()).0.unwrap()),
            [
                "0|||||gpu_recovery_action|Reset",
                "0|||||ecc.errors.uncorrected.volatile.sram.parity|1",
                "0|||||ecc.errors.uncorrected.volatile.sram.secded|20",
                "0|||||ecc.errors.uncorrected.volatile.dram|300",
                "0|||||channel_repair_pending|Yes",
                "0|||||tpc_repair_pending|No",
                "0|||||remapped_rows.pending|Yes",
                "0|||||remapped_rows.failure|Yes",
            ]
        );
    }

    #[test]
    fn processes_of_drivers_before_mig() {
        let text = "==============NVSMI LOG==============
Attached GPUs : 2
GPU 0000:01:00.0
    Processes
        Process ID : 5
            Type : G
            Used GPU Memory : 1 MiB
        Process ID : 6
            Type : C
            Used GPU Memory : 2 MiB
";
        assert_eq!(
            shown(&read_text(text.as_bytes()).0.unwrap()),
            ["||5||G|process_memory_bytes|1048576", "||6||C|process_memory_bytes|2097152"]
        );
    }
}
