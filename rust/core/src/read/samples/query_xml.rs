//! `nvidia-smi -q -x`: the whole answer as XML; with `-l` one document after the other.
//!
//! Documents are cut apart before they are parsed, so that a torn one (the sampler was killed) costs
//! itself alone. Read by allow-list, see `query_tree.rs`.

use quick_xml::events::Event;

use super::query_tree::{Gpu, Log};
use super::time::{parse_ctime, parse_time};
use super::{Lines, Reader, SampleClock, Samples};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "nvidia-smi-query-xml", clock: SampleClock::Local, sniff, read };

const OPEN: &str = "<nvidia_smi_log";
const CLOSE: &str = "</nvidia_smi_log>";
/// No answer is longer: 16 GPUs with their lists of clocks come to 2 MiB.
const MAX_ANSWER_BYTES: usize = 64 << 20;

fn sniff(head: &[String]) -> bool {
    head.first().is_some_and(|line| line.starts_with('<')) && head.iter().any(|line| line.contains(OPEN))
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    // Some tools store it without line ends.
    lines.max_bytes = MAX_ANSWER_BYTES as u64;
    let mut answer = String::new();
    let mut open = false;
    while let Some(line) = lines.next()? {
        let mut rest = line.as_str();
        loop {
            if !open {
                let Some(at) = rest.find(OPEN) else { break };
                rest = rest.get(at..).unwrap_or("");
                open = true;
            } else if let Some(at) = again(rest, answer.is_empty()) {
                // The one before was never closed.
                samples.skip(lines.number);
                answer.clear();
                rest = rest.get(at..).unwrap_or("");
            }
            let Some(end) = rest.find(CLOSE).map(|at| at + CLOSE.len()) else {
                answer.push_str(rest);
                answer.push('\n');
                break;
            };
            answer.push_str(rest.get(..end).unwrap_or(""));
            rest = rest.get(end..).unwrap_or("");
            match parse(&answer) {
                Some(log) => log.emit(lines.number, samples),
                None => samples.skip(lines.number),
            }
            answer.clear();
            open = false;
        }
        if answer.len() > MAX_ANSWER_BYTES {
            samples.skip(lines.number);
            answer.clear();
            open = false;
        }
    }
    if open {
        samples.skip(lines.number);
    }
    if samples.subjects.is_empty() {
        return Err(lines.refuse("no whole <nvidia_smi_log> in it: was it cut short?".to_owned()));
    }
    Ok(())
}

/// Where another answer begins although this one has not ended.
fn again(rest: &str, first: bool) -> Option<usize> {
    let from = if first { OPEN.len() } else { 0 };
    let close = rest.find(CLOSE).unwrap_or(rest.len());
    rest.get(from..)?.find(OPEN).map(|at| at + from).filter(|at| *at < close)
}

/// One document; `None` where it is not well-formed.
fn parse(text: &str) -> Option<Log> {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut log = Log::default();
    // Names of the open elements below the root, and how many of them lie above what a value is about.
    let mut stack: Vec<String> = Vec::new();
    let mut value = String::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => {
                let name = tag.name().0;
                value.clear();
                match (stack.get(1).map(String::as_str), name) {
                    (None, "gpu") => log.gpus.push(Gpu::default()),
                    (Some("gpu"), "mig_device") => log.gpus.last_mut()?.instances.push(Vec::new()),
                    (Some("gpu"), "process_info") if stack.iter().any(|s| s == "processes") => {
                        log.gpus.last_mut()?.processes.push(Vec::new());
                    }
                    _ => {}
                }
                stack.push(name.to_owned());
            }
            Event::Text(text) => value.push_str(&text.xml10_content()),
            Event::CData(text) => value.push_str(&text.xml10_content()),
            Event::GeneralRef(entity) => match entity.resolve_char_ref().ok()? {
                Some(c) => value.push(c),
                None => {
                    value.push_str(quick_xml::escape::resolve_predefined_entity(&entity.xml10_content())?);
                }
            },
            Event::End(_) => {
                put(&mut log, &stack, &value);
                stack.pop()?;
                value.clear();
            }
            Event::Eof => return stack.is_empty().then_some(log),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
}

fn put(log: &mut Log, stack: &[String], value: &str) {
    let Some((_, below)) = stack.split_first() else { return };
    let after = |name: &str| {
        let at = below.iter().position(|s| s == name)?;
        below.get(at + 1..).map(|rest| rest.join("/"))
    };
    match below {
        [name] if name == "timestamp" => log.time = parse_ctime(value).or_else(|| parse_time(value)),
        [name] if name == "driver_version" => log.driver = Some(value.trim().to_owned()),
        [name] if name == "cuda_version" => log.cuda = Some(value.trim().to_owned()),
        [name] if name == "attached_gpus" => log.attached = value.trim().parse().ok(),
        [gpu, rest @ ..] if gpu == "gpu" && !rest.is_empty() => {
            let Some(gpu) = log.gpus.last_mut() else { return };
            if let Some(path) = after("mig_device") {
                gpu.put_instance(&path, value);
            } else if let Some(path) = after("process_info") {
                gpu.put_process(&path, value);
            } else {
                gpu.put(&rest.join("/"), value);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::{ROWS_SKIPPED, SAMPLES_UNAVAILABLE};
    use crate::table::schema::NVML_SAMPLES;

    const MIG: &str = r#"<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Sat Jun 20 17:05:19 2026</timestamp>
  <driver_version>580.1</driver_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:01:00.0">
    <product_name>NVIDIA H100</product_name>
    <mig_mode><current_mig>Enabled</current_mig></mig_mode>
    <mig_devices>
      <mig_device>
        <index>0</index><gpu_instance_id>3</gpu_instance_id><compute_instance_id>1</compute_instance_id>
        <device_attributes><shared><multiprocessor_count>14</multiprocessor_count></shared></device_attributes>
        <fb_memory_usage><total>100 MiB</total><used>12 MiB</used></fb_memory_usage>
      </mig_device>
    </mig_devices>
    <serial>SECRET-SERIAL</serial>
    <uuid>GPU-1</uuid>
    <platformInfo><host_id>SECRET-HOST</host_id></platformInfo>
    <clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active
    </clocks_throttle_reason_sw_power_cap></clocks_throttle_reasons>
    <fb_memory_usage><used>38 MiB</used></fb_memory_usage>
    <utilization><gpu_util>N/A</gpu_util><memory_util>0 %</memory_util></utilization>
    <environment><TOKEN>SECRET-TOKEN</TOKEN></environment>
    <processes><process_info>
      <gpu_instance_id>3</gpu_instance_id><compute_instance_id>1</compute_instance_id>
      <pid>77</pid><type>C</type><process_name>/opt/a &amp; b --token=SECRET-ARG</process_name>
      <used_memory>10 MiB</used_memory>
    </process_info></processes>
    <accounted_processes><accounted_process_info><pid>5</pid></accounted_process_info></accounted_processes>
  </gpu>
</nvidia_smi_log>
"#;

    #[test]
    fn a_gpu_with_an_instance_and_a_process() {
        let (table, quality) = read_text(MIG.as_bytes());
        let table = table.unwrap();
        assert_eq!(
            shown(&table),
            [
                "0|GPU-1||||mig_mode|Enabled",
                "0|GPU-1||||clocks_event_reasons.sw_power_cap|1",
                "0|GPU-1||||memory_used_bytes|39845888",
                "0|GPU-1||||gpu_utilization_pct|N/A",
                // Not measured under MIG, whatever the tool writes.
                "0|GPU-1||||memory_utilization_pct|[0, but not measured under MIG]",
                "0|GPU-1||||driver_version|580.1",
                "0|GPU-1||||sm_count|14",
                "0|GPU-1||||memory_total_bytes|104857600",
                "0|GPU-1||||memory_used_bytes|12582912",
                "0|GPU-1|77|/opt/a & b|C|process_memory_bytes|10485760",
            ]
        );
        let c = Columns::new(&NVML_SAMPLES, &table);
        let ids = |name| c.u32(name).unwrap().iter().collect::<Vec<_>>();
        let of_instance = [vec![None; 6], vec![Some(3); 4]].concat();
        assert_eq!(ids("mig_gi"), of_instance);
        assert_eq!(ids("mig_ci"), of_instance.iter().map(|v| v.map(|_| 1)).collect::<Vec<_>>());
        assert_eq!(c.i64("time_local_ns").unwrap().value(0), 1_781_975_119_000_000_000);
        assert_eq!(quality.count(ROWS_SKIPPED), 0);
        assert_eq!(quality.count(SAMPLES_UNAVAILABLE), 2);
        assert!(!format!("{table:?}").contains("SECRET"));
    }

    #[test]
    fn documents_follow_each_other_and_a_torn_one_costs_itself_alone() {
        let whole = shown(&read_text(MIG.as_bytes()).0.unwrap()).len();
        let torn = &MIG[..MIG.len() / 2];
        for (text, answers, skipped) in [
            (MIG.repeat(3), 3, 0),
            (MIG.replace('\n', " ").repeat(2), 2, 0),
            (format!("{MIG}{torn}"), 1, 1),
            (format!("{torn}\n{MIG}"), 1, 1),
            (format!("{}{MIG}", torn.replace('\n', " ")), 1, 1),
            (format!("{}{MIG}", MIG.replace("</uuid>", "</uid>")), 1, 1),
            (format!("{}{MIG}", MIG.replace("&amp;", "&nothing;")), 1, 1),
        ] {
            let (table, quality) = read_text(text.as_bytes());
            assert_eq!(table.unwrap().num_rows(), answers * whole, "{text}");
            assert_eq!(quality.count(ROWS_SKIPPED), skipped, "{text}");
        }
        let error = read_text(torn.as_bytes()).0.unwrap_err().to_string();
        assert!(error.contains("cut short"), "{error}");
    }

    #[test]
    fn one_of_two_gpus_has_no_index() {
        let text = MIG.replace("<attached_gpus>1<", "<attached_gpus>2<");
        assert!(shown(&read_text(text.as_bytes()).0.unwrap())[0].starts_with("|GPU-1|"));
    }
}
