//! What does `nvidia-smi -q` say of a GPU, whether as XML or as indented text?
//!
//! Both are trees of the same things under nearly the same names. Only the paths of [`TREE`] and the few
//! below are ever kept: the dump holds serial numbers and fabric ids, and its process names can hold
//! command lines.

use super::metric::{is_unavailable, reading, Unit, TREE};
use super::time::Time;
use super::{Samples, Subject};

/// One MIG device or one process: path below it and value.
type Part = Vec<(String, String)>;

/// One answer of `nvidia-smi -q`.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) time: Option<Time>,
    /// GPUs of the machine; the answer holds fewer with `-i`.
    pub(super) attached: Option<usize>,
    pub(super) driver: Option<String>,
    pub(super) cuda: Option<String>,
    pub(super) gpus: Vec<Gpu>,
}

/// One GPU of an answer.
#[derive(Debug, Default)]
pub(super) struct Gpu {
    values: Part,
    pub(super) instances: Vec<Part>,
    pub(super) processes: Vec<Part>,
}

/// Which GPU, part of it or process; everything else is a metric.
const IDENTITY: &[&str] = &[
    "product_name",
    "uuid",
    "gpu_uuid",
    "gpu_instance_id",
    "compute_instance_id",
    "pid",
    "process_id",
    "type",
    "process_name",
    "name",
    "used_memory",
    "used_gpu_memory",
];

fn is_wanted(path: &str) -> bool {
    IDENTITY.contains(&path) || TREE.iter().any(|m| m.0 == path) || reason(path).is_some()
}

/// The name of a clocks event (throttle) reason as `--query-gpu` has it.
fn reason(path: &str) -> Option<&str> {
    let rest = path
        .strip_prefix("clocks_event_reasons/")
        .or_else(|| path.strip_prefix("clocks_throttle_reasons/"))?;
    // As text, reasons for HW slowdown stand below it.
    let last = rest.rsplit('/').next()?;
    let last = last
        .strip_prefix("clocks_event_reason_")
        .or_else(|| last.strip_prefix("clocks_throttle_reason_"))
        .unwrap_or(last);
    Some(match last {
        "idle" => "gpu_idle",
        "display_clock_setting" => "display_clocks_setting",
        other => other,
    })
}

impl Gpu {
    /// A value of the GPU, or of the MIG device or process that was opened last.
    pub(super) fn put(&mut self, path: &str, value: &str) {
        push(&mut self.values, path, value);
    }

    pub(super) fn put_instance(&mut self, path: &str, value: &str) {
        if let Some(part) = self.instances.last_mut() {
            push(part, path, value);
        }
    }

    pub(super) fn put_process(&mut self, path: &str, value: &str) {
        if let Some(part) = self.processes.last_mut() {
            push(part, path, value);
        }
    }
}

fn push(part: &mut Part, path: &str, value: &str) {
    let value = value.trim();
    if is_wanted(path) && !part.iter().any(|(known, _)| known == path) {
        part.push((path.to_owned(), value.to_owned()));
    }
}

fn get<'a>(part: &'a Part, names: &[&str]) -> Option<&'a str> {
    let found = part.iter().find(|(path, _)| names.contains(&path.as_str()))?;
    Some(found.1.as_str()).filter(|value| !is_unavailable(value))
}

fn id(part: &Part, name: &str) -> Option<u32> {
    get(part, &[name])?.parse().ok()
}

impl Log {
    /// Hands its rows over. A process without a readable pid is counted in `Samples::skip`.
    pub(super) fn emit(&self, line: u64, samples: &mut Samples) {
        // With `-i` fewer GPUs are listed than there are, and their place is no index.
        let numbered = self.attached == Some(self.gpus.len());
        for (index, gpu) in self.gpus.iter().enumerate() {
            let mut board = Subject {
                gpu_index: u32::try_from(index).ok().filter(|_| numbered),
                gpu_uuid: get(&gpu.values, &["uuid", "gpu_uuid"]).map(str::to_owned),
                gpu_name: get(&gpu.values, &["product_name"]).map(str::to_owned),
                ..Subject::default()
            };
            if let Some(time) = self.time {
                board.set_time(time);
            }
            samples.subject(board.clone());
            metrics(&gpu.values, samples);
            for (metric, version) in [("driver_version", &self.driver), ("cuda_version", &self.cuda)] {
                if let Some(version) = version {
                    samples.metric(metric.to_owned(), reading(version, Unit::Words));
                }
            }
            for instance in &gpu.instances {
                samples.subject(Subject {
                    mig_gi: id(instance, "gpu_instance_id"),
                    mig_ci: id(instance, "compute_instance_id"),
                    ..board.clone()
                });
                metrics(instance, samples);
            }
            for process in &gpu.processes {
                let Some(pid) = get(process, &["pid", "process_id"]).and_then(|pid| pid.parse().ok()) else {
                    samples.skip(line);
                    continue;
                };
                samples.subject(Subject {
                    pid: Some(pid),
                    process_name: get(process, &["process_name", "name"]).map(str::to_owned),
                    process_type: get(process, &["type"]).map(str::to_owned),
                    mig_gi: id(process, "gpu_instance_id"),
                    mig_ci: id(process, "compute_instance_id"),
                    ..board.clone()
                });
                let used =
                    process.iter().find(|(path, _)| path == "used_memory" || path == "used_gpu_memory");
                let used = used.map_or("[N/A]", |(_, value)| value.as_str());
                samples.metric("process_memory_bytes".to_owned(), reading(used, Unit::MiB));
            }
        }
    }
}

fn metrics(part: &Part, samples: &mut Samples) {
    for (path, value) in part {
        if let Some((_, metric, unit)) = TREE.iter().find(|m| m.0 == path) {
            samples.metric((*metric).to_owned(), reading(value, *unit));
        } else if let Some(reason) = reason(path) {
            samples.metric(format!("clocks_event_reasons.{reason}"), reading(value, Unit::Flag));
        }
    }
}
