//! `pyanalyze record`: what our own sampler wrote beside a run.
//!
//! JSON lines, each flushed by itself, so that whatever ended the recording left whole lines and at most
//! one torn one. The first line names the format; a line with `metrics` is about one GPU, one MIG
//! instance or one process at one time; every other line (the closing one with the sampler's own
//! overhead, notes) is about the recording. Metrics have their canonical names and units already. What
//! NVML refused is null, and `errors` holds NVML's word for why: it becomes the text of the row.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::metric::{holds, is_secret, tidy, Reading};
use super::time::Time;
use super::{Lines, Reader, SampleClock, Samples, Subject};
use crate::base::error::Result;

pub(super) const READER: Reader =
    Reader { name: "pyanalyze-record", clock: SampleClock::Utc, sniff: is_ours, read };

/// What every recording begins with, up to the version of the format.
const FORMAT: &str = "pyanalyze.samples/1";

/// A value that NVML refused without an error of its own.
const REFUSED: &str = "[N/A]";

fn object(line: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(line) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

fn is_ours(head: &[String]) -> bool {
    let first = head.first().filter(|line| line.starts_with('{')).and_then(|line| object(line));
    first.is_some_and(|first| first.get("format").and_then(Value::as_str) == Some(FORMAT))
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    while let Some(line) = lines.next()? {
        // The last line of a recording that a full disk or a crash cut short is no object any more.
        let Some(object) = object(&line) else {
            samples.skip(lines.number);
            continue;
        };
        let Some(metrics) = object.get("metrics") else { continue };
        let (Some(metrics), Some(subject)) = (metrics.as_object(), subject(&object)) else {
            samples.skip(lines.number);
            continue;
        };
        let errors = object.get("errors").and_then(Value::as_object);
        samples.subject(subject);
        // Our recorder writes no such thing; a file that says it is ours may.
        for (name, value) in metrics.iter().filter(|(name, _)| !is_secret(name)) {
            samples.metric(tidy(name), reading(name, value, errors));
        }
    }
    Ok(())
}

/// Whom a line is about; `None` where it has no time or says something that cannot be.
fn subject(object: &Map<String, Value>) -> Option<Subject> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Some(None),
        Some(value) => value.as_u64().and_then(|v| u32::try_from(v).ok()).map(Some),
    };
    let instance = |key: &str| u32::try_from(object.get("metrics")?.get(key)?.as_u64()?).ok();
    let mut subject = Subject {
        gpu_index: number("gpu_index")?,
        gpu_uuid: text("gpu_uuid"),
        gpu_name: text("gpu_name"),
        pid: number("pid")?,
        process_name: text("process_name"),
        process_type: text("process_type"),
        mig_gi: instance("mig_gi_id"),
        mig_ci: instance("mig_ci_id"),
        ..Subject::default()
    };
    subject.set_time(Time::Utc(object.get("time_utc_ns")?.as_i64()?));
    Some(subject)
}

fn reading(name: &str, value: &Value, errors: Option<&Map<String, Value>>) -> Reading {
    let text = match value {
        Value::Null => Cow::Borrowed(errors.and_then(|e| e.get(name)?.as_str()).unwrap_or(REFUSED)),
        Value::Bool(flag) => return Reading::Number(f64::from(u8::from(*flag))),
        Value::Number(number) => match number.as_f64().filter(|v| holds(*v)) {
            Some(value) => return Reading::Number(value),
            None => Cow::Owned(number.to_string()),
        },
        Value::String(text) => Cow::Borrowed(text.as_str()),
        Value::Array(_) | Value::Object(_) => Cow::Owned(value.to_string()),
    };
    Reading::Text(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::ROWS_SKIPPED;
    use crate::table::schema::NVML_SAMPLES;

    const HEAD: &str = "{\"format\": \"pyanalyze.samples/1\", \"rate_hz\": 10}\n";

    /// The same samples as nvidia-smi would write them, by hand: 23028 MiB are 24146608128 bytes.
    #[test]
    fn the_same_samples_give_the_same_rows_as_nvidia_smi() {
        let smi = "timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], clocks.sm [MHz], power.draw [W], clocks_event_reasons.sw_power_cap, pstate, compute_mode, mig.mode.current
1781975119.493000000, 1, GPU-1, NVIDIA H100, 37 %, 23028 MiB, 1410 MHz, 250.10 W, Not Active, P0, Default, Disabled
1781975119.593000000, 1, GPU-1, NVIDIA H100, [N/A], 23028 MiB, 1410 MHz, 250.10 W, Active, P0, Exclusive_Process, Enabled
";
        let ours = HEAD.to_owned()
            + r#"{"time_utc_ns": 1781975119493000000, "gpu_index": 1, "gpu_uuid": "GPU-1", "gpu_name": "NVIDIA H100", "metrics": {"gpu_utilization_pct": 37, "memory_used_bytes": 24146608128, "clock_sm_hz": 1410000000, "power_w": 250.1, "clocks_event_reasons.sw_power_cap": 0, "pstate": "P0", "compute_mode": "Default", "mig_mode": "Disabled"}}
{"time_utc_ns": 1781975119593000000, "gpu_index": 1, "gpu_uuid": "GPU-1", "gpu_name": "NVIDIA H100", "metrics": {"gpu_utilization_pct": null, "memory_used_bytes": 24146608128, "clock_sm_hz": 1410000000, "power_w": 250.1, "clocks_event_reasons.sw_power_cap": true, "pstate": "P0", "compute_mode": "Exclusive_Process", "mig_mode": "Enabled"}}
"#;
        let (theirs, ours) = (read_text(smi.as_bytes()).0.unwrap(), read_text(ours.as_bytes()).0.unwrap());
        let mut rows = [shown(&theirs), shown(&ours)];
        // The order of metrics within one sample is the file's own.
        rows.iter_mut().for_each(|r| r.sort());
        assert_eq!(rows[0].len(), 16);
        assert_eq!(rows[0], rows[1]);
        for column in ["time_utc_ns", "time_local_ns"] {
            let times = |table| Columns::new(&NVML_SAMPLES, table).i64(column).unwrap().clone();
            assert_eq!(times(&theirs), times(&ours));
        }
        let names = |table| Columns::new(&NVML_SAMPLES, table).text("gpu_name").unwrap().clone();
        assert_eq!(names(&theirs), names(&ours));
    }

    #[test]
    fn processes_give_the_same_rows_as_nvidia_smi() {
        let smi = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]
1781975119.493, GPU-1, 11327, /opt/run, 2 MiB
";
        let ours = HEAD.to_owned()
            + r#"{"time_utc_ns": 1781975119493000000, "gpu_uuid": "GPU-1", "pid": 11327, "process_name": "/opt/run", "metrics": {"process_memory_bytes": 2097152}}
"#;
        let rows = shown(&read_text(ours.as_bytes()).0.unwrap());
        assert_eq!(rows, ["|GPU-1|11327|/opt/run||process_memory_bytes|2097152"]);
        assert_eq!(rows, shown(&read_text(smi.as_bytes()).0.unwrap()));
    }

    #[test]
    fn an_instance_keeps_its_ids() {
        let text = HEAD.to_owned()
            + r#"{"time_utc_ns": 1, "gpu_uuid": "MIG-1", "metrics": {"mig_gi_id": 3, "mig_ci_id": 0}}
"#;
        let table = read_text(text.as_bytes()).0.unwrap();
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!((c.u32("mig_gi").unwrap().value(1), c.u32("mig_ci").unwrap().value(1)), (3, 0));
    }

    #[test]
    fn what_nvml_refused_keeps_its_reason_and_is_never_zero() {
        let text = HEAD.to_owned()
            + r#"{"time_utc_ns": 1, "gpu_uuid": "GPU-1", "metrics": {"gpu_utilization_pct": null, "power_w": null}, "errors": {"gpu_utilization_pct": "NVML_ERROR_GPU_IS_LOST"}}
"#;
        let table = read_text(text.as_bytes()).0.unwrap();
        assert_eq!(
            shown(&table),
            ["|GPU-1||||gpu_utilization_pct|NVML_ERROR_GPU_IS_LOST", "|GPU-1||||power_w|[N/A]"]
        );
        assert_eq!(Columns::new(&NVML_SAMPLES, &table).f64("value").unwrap().iter().flatten().count(), 0);
    }

    #[test]
    fn a_recording_is_readable_up_to_its_last_whole_line() {
        let line = |t: u32| {
            format!("{{\"time_utc_ns\": {t}, \"gpu_index\": 0, \"metrics\": {{\"power_w\": {t}}}}}\n")
        };
        let whole = HEAD.to_owned() + &line(1) + &line(2) + &line(3);
        let torn = &whole[..whole.len() - 20];
        let (table, quality) = read_text(torn.as_bytes());
        assert_eq!(shown(&table.unwrap()), ["0|||||power_w|1", "0|||||power_w|2"]);
        assert_eq!(quality.count(ROWS_SKIPPED), 1);
        let ended = whole + "{\"end\": {\"samples\": 3}}\n";
        let (table, quality) = read_text(ended.as_bytes());
        assert_eq!(table.unwrap().num_rows(), 3);
        assert_eq!(quality.count(ROWS_SKIPPED), 0);
    }

    #[test]
    fn lines_that_make_no_sense_are_counted_and_left_out() {
        let text = HEAD.to_owned()
            + r#"{"gpu_index": 0, "metrics": {"power_w": 1}}
{"time_utc_ns": "soon", "gpu_index": 0, "metrics": {"power_w": 1}}
{"time_utc_ns": 1, "gpu_index": -1, "metrics": {"power_w": 1}}
{"time_utc_ns": 1, "gpu_index": 0, "pid": 4294967296, "metrics": {"power_w": 1}}
{"time_utc_ns": 1, "metrics": 7}
[1, 2]
nonsense
{"time_utc_ns": 1, "gpu_index": null, "metrics": {"Power W": "1", "list": [1]}}
"#;
        let (table, quality) = read_text(text.as_bytes());
        assert_eq!(shown(&table.unwrap()), ["|||||power_w|1", "|||||list|[1]"]);
        assert_eq!(quality.count(ROWS_SKIPPED), 7);
    }

    #[test]
    fn other_json_and_other_versions_are_not_ours() {
        for text in ["{\"format\": \"pyanalyze.samples/2\"}\n", "{\"a\": 1}\n", "[]\n"] {
            assert!(read_text(text.as_bytes()).0.is_err(), "{text}");
        }
    }
}
