//! What Prometheus answers to `query_range` (and `query`): JSON with one list of times and values per series.
//!
//! Only series of dcgm-exporter are read, with its labels (see `dcgm_exporter.rs`). Values stand as text,
//! times as seconds of UTC. A step is what was asked for, not the rate at which the GPU was sampled.

use std::collections::BTreeMap;

use serde_json::Value;

use super::dcgm_exporter::{metric, subject, Family, Labels, PREFIX};
use super::metric::{dcgm_reading, Unit};
use super::time::Time;
use super::{Lines, Reader, SampleClock, Samples};
use crate::base::error::Result;

pub(super) const READER: Reader = Reader { name: "prometheus-query", clock: SampleClock::Utc, sniff, read };

fn sniff(head: &[String]) -> bool {
    let text: String = head.iter().flat_map(|line| line.chars()).filter(|c| !c.is_whitespace()).collect();
    let start: String = text.chars().take(4096).collect();
    start.starts_with('{') && start.contains("\"status\":") && start.contains("\"resultType\":")
        || start.starts_with("{\"status\":\"error\"")
}

fn read(lines: &mut Lines<'_>, samples: &mut Samples) -> Result<()> {
    let text = lines.document()?;
    let answer: Value =
        serde_json::from_str(&text).map_err(|e| lines.refuse(format!("no whole JSON: {e}")))?;
    if answer.get("status").and_then(Value::as_str) != Some("success") {
        let why = answer.get("error").and_then(Value::as_str).unwrap_or("no reason given");
        return Err(lines.refuse(format!("Prometheus answered with an error: {why}")));
    }
    let result = answer.pointer("/data/result").and_then(Value::as_array);
    let result =
        result.ok_or_else(|| lines.refuse("no data.result in the answer of Prometheus".to_owned()))?;
    // By metric, then by time: what is equal for all pods at one time is one value of the GPU.
    let mut families: BTreeMap<(String, i64), Family> = BTreeMap::new();
    // Values without a name of what they are.
    let mut nameless: u64 = 0;
    for (number, series) in (1..).zip(result) {
        lines.watch.progress("samples", lines.done, lines.size)?;
        let Some((name, unit, labels)) = head_of(series) else {
            samples.skip(number);
            continue;
        };
        let points = series.get("values").and_then(Value::as_array).map(Vec::as_slice);
        let points = points.or_else(|| series.get("value").map(std::slice::from_ref));
        let Some(name) = name else {
            // With a name it is of another exporter, which the query asked for as well.
            if !labels.contains_key("__name__") {
                nameless += points.unwrap_or_default().len() as u64;
                samples.skip(number);
            }
            continue;
        };
        let subject = subject(&labels);
        for point in points.unwrap_or_default() {
            let Some((time, value)) = point_of(point) else {
                samples.skip(number);
                continue;
            };
            let mut subject = subject.clone();
            subject.set_time(Time::Utc(time));
            let family = families.entry((name.clone(), time)).or_default();
            family.add(subject, dcgm_reading(value, unit), samples);
        }
    }
    if families.is_empty() && nameless > 0 {
        let detail = format!(
            "{nameless} values without a metric name: avg, max and other functions drop it; query the metric itself \
             (DCGM_FI_...), or keep __name__ in by (...)"
        );
        return Err(lines.refuse(detail));
    }
    for ((metric, _), mut family) in families {
        family.emit(&metric, samples);
    }
    Ok(())
}

/// Name (none: not DCGM's), unit and labels of a series; `None` where it breaks the format.
fn head_of(series: &Value) -> Option<(Option<String>, Unit, Labels)> {
    let labels = series.get("metric")?.as_object()?;
    let labels: Labels =
        labels.iter().filter_map(|(name, v)| Some((name.clone(), v.as_str()?.to_owned()))).collect();
    let name = labels.get("__name__").filter(|name| name.starts_with(PREFIX)).and_then(|name| metric(name));
    let (name, unit) = name.map_or((None, Unit::Plain), |(name, unit)| (Some(name), unit));
    Some((name, unit, labels))
}

/// `[1781975119.493, "37"]`.
fn point_of(point: &Value) -> Option<(i64, &str)> {
    let [time, value] = point.as_array()?.as_slice() else { return None };
    let seconds = time.as_f64().filter(|s| (0.0..7e9).contains(s))?;
    // Prometheus keeps milliseconds; a double holds them exactly enough to round to.
    let ms = (seconds * 1e3).round() as i64;
    Some((ms * 1_000_000, value.as_str()?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_text, shown};
    use crate::table::columns::Columns;
    use crate::table::quality::{ROWS_SKIPPED, SAMPLES_PER_POD};
    use crate::table::schema::NVML_SAMPLES;

    fn answer(result: &str) -> String {
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}"#)
    }

    #[test]
    fn a_range_of_two_pods_is_one_series_of_the_gpu() {
        let series = |pod: &str, name: &str| {
            format!(
                r#"{{"metric":{{"__name__":"{name}","gpu":"0","UUID":"GPU-1","Hostname":"SECRET","instance":"10.0.0.1:9400",
                "exported_namespace":"n","exported_pod":"{pod}","pod":"dcgm-exporter-7"}},
                "values":[[1781975119,"37"],[1781975149.5,"38"],["soon","1"],[1781975150,7],[1781975151,"NaN"]]}}"#
            )
        };
        let util = "DCGM_FI_DEV_GPU_UTIL";
        let text =
            answer(&[series("a", util), series("b", util), series("a", "up"), "{}".to_owned()].join(","));
        let (table, quality) = read_text(text.as_bytes());
        let table = table.unwrap();
        assert_eq!(
            shown(&table),
            [
                "0|GPU-1||||gpu_utilization_pct|37",
                "0|GPU-1||||gpu_utilization_pct|38",
                "0|GPU-1||||gpu_utilization_pct|NaN",
            ]
        );
        let c = Columns::new(&NVML_SAMPLES, &table);
        assert_eq!(
            c.i64("time_utc_ns").unwrap().values()[..2],
            [1_781_975_119_000_000_000, 1_781_975_149_500_000_000]
        );
        assert_eq!(c.text("pods").unwrap().value(0), "n/a/ n/b/");
        // However long the step was, the driver's utilisation is of a second at most.
        assert_eq!(
            c.i64("interval_ns").unwrap().iter().take(2).collect::<Vec<_>>(),
            [None, Some(1_000_000_000)]
        );
        assert_eq!(quality.count(SAMPLES_PER_POD), 3);
        // Two bad points in each of two series, and the one without labels.
        assert_eq!(quality.count(ROWS_SKIPPED), 5);
        assert!(!format!("{table:?}").contains("SECRET"));
    }

    #[test]
    fn a_moment_an_error_and_torn_answers() {
        let moment = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"__name__":"DCGM_FI_PROF_SM_ACTIVE","gpu":"2"},"value":[1781975119.493,"0.5"]}]}}"#;
        assert_eq!(shown(&read_text(moment.as_bytes()).0.unwrap()), ["2|||||sm_active_ratio|0.5"]);
        let nameless =
            answer(r#"{"metric":{"UUID":"GPU-1"},"values":[[1781975119,"97"],[1781975149,"50"]]}"#);
        let message = read_text(nameless.as_bytes()).0.unwrap_err().to_string();
        assert!(message.contains("2 values without a metric name"), "{message}");
        let error = r#"{"status":"error","errorType":"bad_data","error":"too many points"}"#;
        let message = read_text(error.as_bytes()).0.unwrap_err().to_string();
        assert!(message.contains("too many points"), "{message}");
        for cut in [moment.len() - 1, moment.len() / 2] {
            assert!(read_text(&moment.as_bytes()[..cut]).0.is_err());
        }
        assert!(read_text(br#"{"status":"success","data":{"resultType":"matrix","result":7}}"#).0.is_err());
    }
}
