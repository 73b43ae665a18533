//! dcgm-exporter, as Prometheus scrapes it: `DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-..."} 0.5`.
//!
//! One scrape is a moment: without timestamps its rows have no time. Fields are known by DCGM's number
//! behind the name, which was given new endings. The UUID is the board's also for a MIG instance, which
//! stands beside it as `GPU_I_ID`. On a shared GPU the exporter writes the one value of the GPU once for
//! every pod: one row is kept, with the names of all pods, so that nobody adds them up.

use std::collections::{BTreeMap, BTreeSet};

use super::metric::{dcgm, dcgm_reading, tidy, Reading, Unit};
use super::time::{unix_time, Time};
use super::{Lines, Reader, SampleClock, Samples, Subject};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "dcgm-exporter", clock: SampleClock::UtcOrNone, sniff, read };

/// Every field of DCGM begins so.
pub(super) const PREFIX: &str = "DCGM_FI_";

fn sniff(head: &[String]) -> bool {
    !head.first().is_some_and(|line| line.starts_with('{')) && head.iter().any(|line| series(line).is_some())
        || head.iter().any(|line| line.starts_with("# HELP DCGM_FI_") || line.starts_with("# TYPE DCGM_FI_"))
}

/// `name{labels}` taken apart, and what follows it.
fn series(line: &str) -> Option<(&str, Labels, &str)> {
    let (name, rest) = line.split_once('{')?;
    let name = name.trim();
    name.starts_with(PREFIX).then_some(())?;
    let (labels, rest) = labels(rest)?;
    Some((name, labels, rest.trim()))
}

pub(super) type Labels = BTreeMap<String, String>;

/// Labels up to the closing brace, with `\"`, `\\` and `\n` in their values.
fn labels(text: &str) -> Option<(Labels, &str)> {
    let mut found = Labels::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((found, after));
        }
        let (name, after) = rest.split_once('=')?;
        let value = after.trim_start().strip_prefix('"')?;
        let mut text = String::new();
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => text.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, c) => text.push(c),
            }
        };
        found.insert(name.trim().to_owned(), text);
        rest = value.get(end..)?.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
}

/// Whom a series is about. `Hostname` and all that is not named here is left behind.
pub(super) fn subject(labels: &Labels) -> Subject {
    let get = |name: &str| labels.get(name).filter(|value| !value.is_empty());
    Subject {
        gpu_index: get("gpu").and_then(|v| v.parse().ok()),
        gpu_uuid: get("UUID").or_else(|| get("uuid")).cloned(),
        gpu_name: get("modelName").cloned(),
        mig_gi: get("GPU_I_ID").and_then(|v| v.parse().ok()),
        mig_profile: get("GPU_I_PROFILE").cloned(),
        driver_version: get("DCGM_FI_DRIVER_VERSION").cloned(),
        pods: pod(labels),
        ..Subject::default()
    }
}

/// `namespace/pod/container` of the workload.
fn pod(labels: &Labels) -> Option<String> {
    let get = |name: &str| labels.get(name).map(String::as_str).filter(|value| !value.is_empty());
    // Prometheus puts `exported_` before labels that it sets itself; `pod` is then the exporter's own.
    let exported = labels.keys().any(|name| name.starts_with("exported_"));
    let (namespace, pod, container) = if exported {
        (get("exported_namespace"), get("exported_pod"), get("exported_container"))
    } else if labels.contains_key("pod_name") {
        // Version 2 with its old names: then `pod` beside them is Prometheus', of the exporter itself.
        (get("pod_namespace"), get("pod_name"), get("container_name"))
    } else {
        (get("namespace"), get("pod"), get("container"))
    };
    let pod = pod.filter(|pod| !pod.contains("dcgm-exporter"))?;
    Some(format!("{}/{pod}/{}", namespace.unwrap_or(""), container.unwrap_or("")))
}

/// Metric and unit of a field; `None` for what is only a label (`DCGM_FI_DRIVER_VERSION`) or a secret.
pub(super) fn metric(name: &str) -> Option<(String, Unit)> {
    if let Some(field) = dcgm(name) {
        return Some((field.metric.to_owned(), field.unit));
    }
    let rest = name.strip_prefix(PREFIX)?;
    let measured = rest.starts_with("DEV_") || rest.starts_with("PROF_");
    let word = ["SERIAL", "UUID", "NAME", "VERSION"].iter().any(|w| rest.contains(w));
    (measured && !word).then(|| (format!("dcgm.{}", tidy(rest)), Unit::Plain))
}

/// Values of one metric at one time, kept until all pods that share a GPU were seen.
#[derive(Default)]
pub(super) struct Family {
    rows: Vec<(Subject, Reading)>,
    pods: Vec<BTreeSet<String>>,
}

impl Family {
    pub(super) fn add(&mut self, subject: Subject, reading: Reading, samples: &mut Samples) {
        let same = |(known, value): &(Subject, Reading)| {
            known.same(&subject) && known.time() == subject.time() && *value == reading
        };
        // Without pods a repetition is another scrape, and so is a pod that was there already.
        let twin = subject.pods.as_ref().and_then(|pod| {
            let other = |(row, pods): &(&(Subject, Reading), &mut BTreeSet<String>)| {
                !pods.is_empty() && !pods.contains(pod) && same(row)
            };
            self.rows.iter().zip(&mut self.pods).find(other).map(|(_, pods)| (pods, pod))
        });
        if let Some((pods, pod)) = twin {
            pods.insert(pod.clone());
            samples.per_pod += 1;
        } else {
            self.pods.push(subject.pods.iter().cloned().collect());
            self.rows.push((subject, reading));
        }
    }

    /// Whether a row of this subject belongs to another scrape than those held back: another time, or, without
    /// times, a series that was there already.
    fn ended(&self, subject: &Subject) -> bool {
        self.rows.last().is_some_and(|(last, _)| last.time() != subject.time())
            || self.rows.iter().zip(&self.pods).any(|((known, _), pods)| {
                known.same(subject) && subject.pods.as_ref().map_or(pods.is_empty(), |pod| pods.contains(pod))
            })
    }

    pub(super) fn emit(&mut self, metric: &str, samples: &mut Samples) {
        for ((mut subject, reading), pods) in self.rows.drain(..).zip(self.pods.drain(..)) {
            subject.pods = (!pods.is_empty()).then(|| pods.into_iter().collect::<Vec<_>>().join(" "));
            samples.subject(subject);
            samples.metric(metric.to_owned(), reading);
        }
    }
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let mut family = Family::default();
    let mut current: Option<String> = None;
    while let Some(line) = lines.next()? {
        // Of another exporter, whose pages are often scraped together; or a word about the next family.
        if line.starts_with('#') || !line.starts_with(PREFIX) {
            continue;
        }
        let Some((name, labels, rest)) = series(&line) else {
            samples.skip(lines.number);
            continue;
        };
        let Some((metric, unit)) = metric(name) else { continue };
        let mut words = rest.split_whitespace();
        let (Some(value), time) = (words.next(), words.next()) else {
            samples.skip(lines.number);
            continue;
        };
        let mut subject = subject(&labels);
        if let Some(time) = time {
            match unix_time(time) {
                Some(ns) => subject.set_time(Time::Utc(ns)),
                None => {
                    samples.skip(lines.number);
                    continue;
                }
            }
        }
        let other = current.as_ref().is_none_or(|known| *known != metric);
        if other || family.ended(&subject) {
            if let Some(known) = &current {
                family.emit(known, samples);
            }
            current = Some(metric);
        }
        family.add(subject, dcgm_reading(value, unit), samples);
    }
    if let Some(metric) = &current {
        family.emit(metric, samples);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::{ROWS_SKIPPED, SAMPLES_ABOVE_ONE, SAMPLES_PER_POD, SAMPLES_UNAVAILABLE};
    use crate::table::schema::NVML_SAMPLES;

    #[test]
    fn both_label_schemes_sentinels_and_mig() {
        let text = r#"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A100",Hostname="SECRET"} 37
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",GPU_I_PROFILE="1g.10gb",GPU_I_ID="9",Hostname="SECRET"} 0
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-1"} 9223372036854775794
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1"} 140737488355331.0
DCGM_FI_PROF_SM_ACTIVE_RATIO{gpu="1", UUID="GPU-2", GPU_I_ID="9", exported_pod="a", exported_namespace="n", pod="dcgm-exporter-x"} 1.294
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",uuid="GPU-1",container="c\"}",namespace="n",pod="p"} 0.25 1781975119493
DCGM_FI_DEV_NEW_THING{gpu="0",UUID="GPU-1"} 5
DCGM_FI_DRIVER_VERSION{gpu="0",UUID="GPU-1",DCGM_FI_DEV_SERIAL="SECRET"} 1
go_goroutines 7
DCGM_FI_DEV_GPU_UTIL{gpu="0" 37
DCGM_FI_DEV_GPU_UTIL{gpu="0"} 37 soon
DCGM_FI_DEV_GPU_UTIL{gpu="0"}
"#;
        let (table, quality) = read_text(text.as_bytes());
        let table = table.unwrap();
        assert_eq!(
            shown(&table),
            [
                "0|GPU-1||||gpu_utilization_pct|37",
                "1|GPU-2||||mig_profile|1g.10gb",
                "1|GPU-2||||gpu_utilization_pct|[0, but not measured under MIG]",
                "0|GPU-1||||temperature_memory_c|[DCGM: not supported]",
                "0|GPU-1||||power_w|[DCGM: not permitted]",
                "1|GPU-2||||sm_active_ratio|1.294",
                "0|GPU-1||||dram_active_ratio|0.25",
                "0|GPU-1||||dcgm.dev_new_thing|5",
            ]
        );
        let c = Columns::new(&NVML_SAMPLES, &table);
        let pods = c.text("pods").unwrap();
        assert_eq!((pods.value(5), pods.value(6)), ("n/a/", "n/p/c\"}"));
        assert_eq!(c.u32("mig_gi").unwrap().value(5), 9);
        assert_eq!(
            c.i64("time_utc_ns").unwrap().iter().flatten().collect::<Vec<_>>(),
            [1_781_975_119_493_000_000]
        );
        assert_eq!(quality.count(ROWS_SKIPPED), 3);
        assert_eq!(quality.count(SAMPLES_ABOVE_ONE), 1);
        assert_eq!(quality.count(SAMPLES_UNAVAILABLE), 1);
        assert!(!format!("{table:?}{:?}", quality.table().unwrap()).contains("SECRET"));
    }

    #[test]
    fn the_driver_is_a_label_of_every_series() {
        let line = |name: &str, gpu: u32| {
            format!("DCGM_FI_{name}{{gpu=\"{gpu}\",DCGM_FI_DRIVER_VERSION=\"535.104.12\"}} 5\n")
        };
        let text = line("DEV_GPU_UTIL", 0) + &line("DEV_GPU_UTIL", 1) + &line("DEV_GPU_TEMP", 0);
        assert_eq!(
            shown(&read_text(text.as_bytes()).0.unwrap()),
            [
                "0|||||driver_version|535.104.12",
                "0|||||gpu_utilization_pct|5",
                "1|||||driver_version|535.104.12",
                "1|||||gpu_utilization_pct|5",
                "0|||||temperature_c|5",
            ]
        );
    }

    #[test]
    fn the_first_label_scheme_is_read() {
        let text = "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-1\",pod_namespace=\"n\",pod_name=\"p\",container_name=\"c\"} 5\n";
        let (table, _) = read_text(text.as_bytes());
        let table = table.unwrap();
        assert_eq!(Columns::new(&NVML_SAMPLES, &table).text("pods").unwrap().value(0), "n/p/c");
        // Scraped by Prometheus, which names the exporter in `pod`.
        let text = text.replace("pod_name", "namespace=\"ops\",pod=\"nvidia-dcgm-exporter-x\",pod_name");
        let (table, _) = read_text(text.as_bytes());
        let table = table.unwrap();
        assert_eq!(Columns::new(&NVML_SAMPLES, &table).text("pods").unwrap().value(0), "n/p/c");
    }

    #[test]
    fn the_value_of_a_shared_gpu_is_one_row_however_many_pods_share_it() {
        let line = |pod: &str, value: &str| {
            format!(
                "DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",UUID=\"GPU-1\",namespace=\"n\",pod=\"{pod}\"}} {value}\n"
            )
        };
        // Two scrapes without a time: in the second the same pods come again. Then 1000 with one.
        let scrape = line("a", "99") + &line("b", "99");
        let many: String =
            (0..1000).map(|n| scrape.replace(" 99", &format!(" 99 {}", 1_781_975_119_000_i64 + n))).collect();
        let (table, quality) = read_text(many.as_bytes());
        assert_eq!((table.unwrap().num_rows(), quality.count(SAMPLES_PER_POD)), (1000, 1000));
        let (table, quality) = read_text((scrape.clone() + &scrape).as_bytes());
        let table = table.unwrap();
        assert_eq!(shown(&table), ["0|GPU-1||||gpu_utilization_pct|99"; 2]);
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!(c.text("pods").unwrap().value(0), "n/a/ n/b/");
        assert_eq!(quality.count(SAMPLES_PER_POD), 2);
        // Other values, or two GPUs, are rows of their own.
        let apart = line("a", "99") + &line("b", "98") + &line("b", "99").replace("GPU-1", "GPU-2");
        let (table, quality) = read_text(apart.as_bytes());
        assert_eq!(table.unwrap().num_rows(), 3);
        assert_eq!(quality.count(SAMPLES_PER_POD), 0);
    }
}
