//! What session do samples make where there is no capture?
//!
//! One pseudo-capture whose sources are all absent: nothing in it was observed. Devices are the GPUs that the
//! samples name, and the MIG instances that they number; the session's zero is the first sample. Everything
//! that only a capture knows is an empty table with its reason in `sources`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};

use crate::base::error::Result;
use crate::read::samples;
use crate::table::builder::{replace, Builder};
use crate::table::columns::{at, text_at, Columns};
use crate::table::events::{concat, Tables};
use crate::table::quality::{self, Quality};
use crate::table::schema;

/// In `capture.product` where there is no capture.
pub const PRODUCT: &str = "samples only, no capture";

/// Source, and the switch of nsys that captures it.
const SOURCES: &[(&str, &str)] = &[
    ("kernels", "-t cuda"),
    ("copies", "-t cuda"),
    ("graph_launches", "-t cuda --cuda-graph-trace=graph"),
    ("switch_events", "--gpuctxsw=true, as root"),
    ("gpu_metrics", "--gpu-metrics-device=all (--gpu-metrics-devices=all since 2024)"),
];

/// Settings among the metrics: what the driver was told, not what happened.
const SETTINGS: &[&str] = &["mig_mode", "compute_mode", "virtualization_mode", "driver_model.current"];

/// What tells one device from another, in the words of the samples.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    index: Option<u32>,
    uuid: Option<String>,
    /// Only where neither index nor UUID is known.
    name: Option<String>,
    instance: Option<(u32, Option<u32>)>,
}

/// What the samples say of a device.
#[derive(Debug, Default)]
struct Known {
    name: Option<String>,
    memory_bytes: Option<i64>,
    sm_count: Option<u32>,
    mig_profile: Option<String>,
    settings: BTreeMap<&'static str, String>,
}

/// The session that samples make by themselves.
///
/// Times of files without a time zone stay on their own clock: `utc_origin_ns` is then null.
///
/// # Errors
/// [`crate::Error::Schema`] for tables that are not what they are declared to be.
pub fn session(samples: &[Tables]) -> Result<Tables> {
    let table = &schema::NVML_SAMPLES;
    let batches: Vec<RecordBatch> = samples.iter().filter_map(|t| t.get(table.name)).cloned().collect();
    let all = concat(table, &batches)?;
    let columns = Columns::new(table, &all);
    let mut quality = Quality::default();

    let (is_utc, clock) = one_clock(&columns, &mut quality)?;
    let origin = clock.iter().flatten().min().copied();
    let times: Vec<Option<i64>> =
        clock.iter().map(|time| time.zip(origin).and_then(|(t, zero)| t.checked_sub(zero))).collect();

    let (keys, known) = devices_of(&columns)?;
    let ids: BTreeMap<&Key, u32> = known.keys().zip(0..).collect();
    let device_ids: UInt32Array = keys.iter().map(|key| ids.get(key.as_ref()?).copied()).collect();
    let placed = replace(
        table,
        &all,
        vec![("time_ns", Arc::new(Int64Array::from(times.clone()))), ("device_id", Arc::new(device_ids))],
    )?;

    let mut session: Tables = schema::TABLES.iter().map(|t| (t.name, t.empty())).collect();
    session.retain(|name, _| IN_A_SESSION.contains(name));
    let versions = (only_text(&columns, "driver_version")?, only_text(&columns, "cuda_version")?);
    let last = times.iter().flatten().max().copied();
    let sources: BTreeSet<&str> =
        (0..columns.rows()).filter_map(|row| columns.names("source").ok()?.get(row)).collect();
    session.insert(schema::CAPTURE.name, capture(&sources, versions, origin.filter(|_| is_utc), last)?);
    session.insert(schema::DEVICES.name, devices(&known)?);
    session.insert(schema::CONFIGURED.name, configured(&known)?);
    session.insert(schema::SOURCES.name, absent()?);
    session.insert(table.name, placed);
    let mut counts: Vec<RecordBatch> =
        samples.iter().filter_map(|t| t.get(schema::QUALITY.name)).cloned().collect();
    counts.push(quality.table()?);
    session.insert(schema::QUALITY.name, concat(&schema::QUALITY, &counts)?);
    Ok(session)
}

/// The one text that all rows of a metric have: versions of two machines are no one's.
fn only_text(columns: &Columns<'_>, metric: &str) -> Result<Option<String>> {
    let (metrics, text) = (columns.names("metric")?, columns.text("text")?);
    let mut found: BTreeSet<&str> = (0..columns.rows())
        .filter(|row| metrics.get(*row) == Some(metric))
        .filter_map(|row| text_at(text, row))
        .filter(|text| !samples::is_unavailable(text))
        .collect();
    Ok(found.pop_first().filter(|_| found.is_empty()).map(str::to_owned))
}

/// Offsets of the world's time zones from UTC, in minutes, those in summer included.
const ODD_ZONES: &[i64] = &[-570, -210, -150, 210, 270, 330, 345, 390, 525, 570, 630, 765, 825];
const WHOLE_ZONES: std::ops::RangeInclusive<i64> = -12..=14;
const MINUTE_NS: i64 = 60_000_000_000;
/// Clocks written in whole seconds, and samples that are not of one moment, are that much apart.
const MEETING_NS: i64 = 2_000_000_000;
/// Half of what two zones are apart at least: closer than that only one of them can be.
const AGREEMENT_NS: i64 = 15 * MINUTE_NS / 2;

/// Whether times are UTC, and the time of each row on that one clock.
///
/// nvidia-smi writes local times, DCGM and Prometheus UTC. Where both are given the zone of a file is that in which
/// it meets the others, if there is one such zone alone; else its rows have no time, which is said.
fn one_clock(columns: &Columns<'_>, quality: &mut Quality) -> Result<(bool, Vec<Option<i64>>)> {
    let (utc, local) = (columns.i64("time_utc_ns")?, columns.i64("time_local_ns")?);
    let source = columns.names("source")?;
    let rows = columns.rows();
    let Some(of_utc) = span(utc.iter().flatten()) else {
        // Times without a date are on no clock but their own.
        let dated = local.iter().flatten().any(|time| !samples::is_undated(time));
        let clock: Vec<Option<i64>> =
            local.iter().map(|time| time.filter(|time| !dated || !samples::is_undated(*time))).collect();
        let placed = clock.iter().flatten().count() as u64;
        let said = "sampled values: no capture tells the time zone, so they are shown as written";
        quality.add(None, quality::SAMPLES_LOCAL_TIME, placed, said);
        quality.add(
            None,
            quality::SAMPLES_NOT_ALIGNED,
            rows as u64 - placed,
            "sampled values without a time",
        );
        return Ok((false, clock));
    };
    let only_local =
        |row: usize| at(local, row).filter(|time| at(utc, row).is_none() && !samples::is_undated(*time));
    let mut files: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for row in 0..rows {
        if let (Some(time), Some(file)) = (only_local(row), source.get(row)) {
            files.entry(file).or_default().push(time);
        }
    }
    let mut zones: BTreeMap<&str, i64> = BTreeMap::new();
    for (file, times) in &files {
        let zone = span(times.iter().copied()).and_then(|of_file| zone_of(of_file, of_utc));
        let count = times.len() as u64;
        if let Some(minutes) = zone {
            zones.insert(file, minutes);
            let said = format!(
                "{file}: local times read as {}, the only time zone in which they meet the samples in UTC",
                zone_name(minutes)
            );
            quality.add(None, quality::SAMPLES_ZONE_INFERRED, count, said);
        } else {
            let said = format!(
                "{file}: local times beside samples in UTC, and no single time zone in which they meet: they are \
                 counted, not placed. Write the zone, as in 2026-03-14T14:26:53+09:00"
            );
            quality.add(None, quality::SAMPLES_ZONE_UNKNOWN, count, said);
        }
    }
    let timeless =
        (0..rows).filter(|row| at(utc, *row).is_none() && only_local(*row).is_none()).count() as u64;
    quality.add(None, quality::SAMPLES_NOT_ALIGNED, timeless, "sampled values without a time");
    let placed = (0..rows)
        .map(|row| {
            let zone = source.get(row).and_then(|file| zones.get(file));
            let moved = || only_local(row)?.checked_sub(zone?.checked_mul(MINUTE_NS)?);
            at(utc, row).or_else(moved)
        })
        .collect();
    Ok((true, placed))
}

fn span(times: impl Iterator<Item = i64>) -> Option<(i64, i64)> {
    times.fold(None, |known, time| match known {
        None => Some((time, time)),
        Some((first, last)) => Some((time.min(first), time.max(last))),
    })
}

/// The zone, in minutes, in which local times overlap with those in UTC; of several that in which both begin and end
/// together.
fn zone_of(local: (i64, i64), utc: (i64, i64)) -> Option<i64> {
    let moved = |minutes: i64| {
        let offset = minutes * MINUTE_NS;
        (local.0.saturating_sub(offset), local.1.saturating_sub(offset))
    };
    let near = |a: i64, b: i64, most: i64| a.saturating_sub(b).saturating_abs() < most;
    let all = || WHOLE_ZONES.map(|hours| 60 * hours).chain(ODD_ZONES.iter().copied());
    let meeting: Vec<i64> = all()
        .filter(|zone| {
            let (first, last) = moved(*zone);
            first <= utc.1.saturating_add(MEETING_NS) && utc.0 <= last.saturating_add(MEETING_NS)
        })
        .collect();
    let agreeing = |zone: &i64| {
        let (first, last) = moved(*zone);
        near(first, utc.0, AGREEMENT_NS) && near(last, utc.1, AGREEMENT_NS)
    };
    match meeting.as_slice() {
        [only] => Some(*only),
        several => several.iter().copied().find(agreeing),
    }
}

fn zone_name(minutes: i64) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    format!("UTC{sign}{:02}:{:02}", minutes.abs() / 60, minutes.abs() % 60)
}

/// Tables that are read, not reconstructed.
const IN_A_SESSION: &[&str] = &[
    "capture",
    "configured",
    "contexts",
    "devices",
    "gpu_metrics",
    "graph_launches",
    "kernels",
    "memops",
    "nvml_samples",
    "processes",
    "quality",
    "sources",
    "switch_events",
];

/// The device of every row (none: no single GPU is named), and what is known of each device.
type Named = (Vec<Option<Key>>, BTreeMap<Key, Known>);

fn devices_of(columns: &Columns<'_>) -> Result<Named> {
    let (index, gi, ci) = (columns.u32("gpu_index")?, columns.u32("mig_gi")?, columns.u32("mig_ci")?);
    let (uuid, name, text) = (columns.text("gpu_uuid")?, columns.text("gpu_name")?, columns.text("text")?);
    let (metric, entity) = (columns.names("metric")?, columns.names("entity")?);
    let value = columns.f64("value")?;
    // One GPU may be known by its index in one file and by its UUID in another; a file with both ties them.
    let (mut uuid_of, mut index_of) = (BTreeMap::new(), BTreeMap::new());
    for row in 0..columns.rows() {
        if let (Some(index), Some(uuid)) = (at(index, row), text_at(uuid, row)) {
            uuid_of.entry(index).or_insert_with(|| uuid.to_owned());
            index_of.entry(uuid.to_owned()).or_insert(index);
        }
    }
    let key_of = |row: usize| {
        let own = text_at(uuid, row).map(str::to_owned);
        let uuid = own.or_else(|| uuid_of.get(&at(index, row)?).cloned());
        let index = at(index, row).or_else(|| index_of.get(uuid.as_ref()?).copied());
        let named = text_at(name, row).filter(|_| uuid.is_none() && index.is_none()).map(str::to_owned);
        // An instance that has a UUID of its own needs no numbers to be told from others.
        let of_board = uuid.as_ref().is_none_or(|uuid| uuid.starts_with("GPU-"));
        let instance = at(gi, row).filter(|_| of_board).map(|gi| (gi, at(ci, row)));
        let key = Key { index, uuid, name: named, instance };
        let nameless = key.index.is_none() && key.uuid.is_none() && key.name.is_none();
        (!nameless && entity.get(row).is_none()).then_some(key)
    };
    let mut found: Vec<Option<Key>> = (0..columns.rows()).map(key_of).collect();
    // DCGM numbers its entities by itself. Where no other sample names a GPU they are all that is known of any.
    if found.iter().all(Option::is_none) {
        for (row, key) in found.iter_mut().enumerate() {
            *key = entity.get(row).map(|entity| Key {
                index: None,
                uuid: None,
                name: Some(format!("DCGM entity {entity}")),
                instance: None,
            });
        }
    }
    complete_instances(&mut found);
    let (mut keys, mut known): Named = Default::default();
    for (row, key) in found.into_iter().enumerate() {
        let Some(key) = key else {
            keys.push(None);
            continue;
        };
        let about = known.entry(key.clone()).or_default();
        if about.name.is_none() {
            let entity = key.name.as_deref().filter(|_| entity.get(row).is_some());
            about.name = entity.or_else(|| text_at(name, row)).map(str::to_owned);
        }
        keys.push(Some(key));
        match (metric.get(row), at(value, row)) {
            (Some("memory_total_bytes"), Some(bytes)) => about.memory_bytes = Some(bytes as i64),
            (Some("sm_count"), Some(count)) => about.sm_count = Some(count as u32),
            (Some("mig_profile"), None) => {
                about.mig_profile = text_at(text, row).map(str::to_owned);
            }
            (Some(other), None) => {
                let setting = SETTINGS.iter().find(|s| **s == other).zip(text_at(text, row));
                if let Some((setting, text)) = setting.filter(|(_, text)| !samples::is_unavailable(text)) {
                    about.settings.insert(setting, text.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok((keys, known))
}

/// dcgm-exporter numbers the GPU instance, nvidia-smi the compute instance in it too: with one of these it is the same.
fn complete_instances(keys: &mut [Option<Key>]) {
    let board = |key: &Key| (key.index, key.uuid.clone(), key.name.clone());
    let mut inside: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    for key in keys.iter().flatten() {
        if let Some((gi, Some(ci))) = key.instance {
            inside.entry((board(key), gi)).or_default().insert(ci);
        }
    }
    for key in keys.iter_mut().flatten() {
        if let Some((gi, None)) = key.instance {
            if let Some(found) = inside.get(&(board(key), gi)).filter(|found| found.len() == 1) {
                key.instance = Some((gi, found.first().copied()));
            }
        }
    }
}

fn capture(
    sources: &BTreeSet<&str>,
    (driver, cuda): (Option<String>, Option<String>),
    utc_origin: Option<i64>,
    last: Option<i64>,
) -> Result<RecordBatch> {
    let size: u64 =
        sources.iter().filter_map(|s| std::fs::metadata(Path::new(s)).ok()).map(|m| m.len()).sum();
    let path = sources.iter().copied().collect::<Vec<_>>().join(", ");
    Builder::new(&schema::CAPTURE)
        .put("capture", UInt32Array::from(vec![0]))
        .put("path", StringArray::from(vec![path]))
        .put("size_bytes", Int64Array::from(vec![i64::try_from(size).unwrap_or(i64::MAX)]))
        .put("product", StringArray::from(vec![PRODUCT]))
        .put("driver_version", StringArray::from(vec![driver]))
        .put("cuda_driver_version", StringArray::from(vec![cuda]))
        .put("start_ns", Int64Array::from(vec![last.map(|_| 0)]))
        .put("end_ns", Int64Array::from(vec![last]))
        .put("utc_origin_ns", Int64Array::from(vec![utc_origin]))
        .put("utc_offset_s", Int32Array::from(vec![utc_origin.map(|_| 0)]))
        .put("export_shift_ns", Int64Array::from(vec![0]))
        .put("export_normalized", BooleanArray::from(vec![false]))
        .put("clock_offset_ns", Int64Array::from(vec![0]))
        .put("clock_uncertainty_ns", Int64Array::from(vec![0]))
        .put("synthetic", BooleanArray::from(vec![false]))
        .finish(1)
}

fn devices(known: &BTreeMap<Key, Known>) -> Result<RecordBatch> {
    let n = known.len();
    let uuid = |key: &Key| key.uuid.clone().filter(|_| key.instance.is_none());
    // The board of an instance with a UUID of its own is not known here.
    let board = |key: &Key| key.uuid.clone().filter(|uuid| uuid.starts_with("GPU-"));
    let name = |(key, about): (&Key, &Known)| match key.instance {
        None => about.name.clone(),
        Some((gi, ci)) => {
            let ci = ci.map_or_else(String::new, |ci| format!("/{ci}"));
            Some(format!("{} (MIG instance {gi}{ci})", about.name.as_deref().unwrap_or("GPU")))
        }
    };
    Builder::new(&schema::DEVICES)
        .put("device_id", (0..).take(n).map(Some).collect::<UInt32Array>())
        .put("capture", UInt32Array::from(vec![0; n]))
        .put("name", known.iter().map(name).collect::<StringArray>())
        .put("uuid", known.keys().map(uuid).collect::<StringArray>())
        .put("gpu_uuid", known.keys().map(board).collect::<StringArray>())
        .put("mig_profile", known.values().map(|k| k.mig_profile.as_deref()).collect::<StringArray>())
        .put("sm_count", known.values().map(|k| k.sm_count).collect::<UInt32Array>())
        .put("memory_bytes", known.values().map(|k| k.memory_bytes).collect::<Int64Array>())
        .put_names("limits_basis", std::iter::repeat_n(Some("unknown"), n))
        .finish(n)
}

fn configured(known: &BTreeMap<Key, Known>) -> Result<RecordBatch> {
    let rows: Vec<(u32, &str, &str)> = known
        .values()
        .zip(0..)
        .flat_map(|(about, id)| about.settings.iter().map(move |(key, value)| (id, *key, value.as_str())))
        .collect();
    let n = rows.len();
    Builder::new(&schema::CONFIGURED)
        .put_names("source", std::iter::repeat_n(Some("nvml"), n))
        .put("device_id", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
        .put_names("key", rows.iter().map(|r| Some(r.1)))
        .put("value", rows.iter().map(|r| Some(r.2)).collect::<StringArray>())
        .finish(n)
}

fn absent() -> Result<RecordBatch> {
    let n = SOURCES.len();
    Builder::new(&schema::SOURCES)
        .put("capture", UInt32Array::from(vec![0; n]))
        .put_names("source", SOURCES.iter().map(|s| Some(s.0)))
        .put_names("state", std::iter::repeat_n(Some("absent"), n))
        .put("rows", UInt64Array::from(vec![0; n]))
        .put("how", SOURCES.iter().map(|s| Some(s.1)).collect::<StringArray>())
        .finish(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::samples::tests::read_text;
    use arrow_array::Array;

    fn read(texts: &[&str]) -> Tables {
        let files: Vec<Tables> = texts
            .iter()
            .map(|text| {
                let (table, quality) = read_text(text.as_bytes());
                Tables::from([("nvml_samples", table.unwrap()), ("quality", quality.table().unwrap())])
            })
            .collect();
        session(&files).unwrap()
    }

    fn ids(session: &Tables) -> Vec<Option<u32>> {
        let c = Columns::new(&schema::NVML_SAMPLES, &session["nvml_samples"]);
        c.u32("device_id").unwrap().iter().collect()
    }

    #[test]
    fn files_that_name_a_gpu_in_different_words_are_one_device() {
        let session = read(&[
            // 1781975119 s is the session's zero.
            "timestamp, index, uuid, name, memory.used [MiB], memory.total [MiB], compute_mode\n\
             1781975120, 1, GPU-b, NVIDIA L40S, 5 MiB, 100 MiB, Exclusive_Process\n\
             1781975119, 0, GPU-a, NVIDIA L40S, 5 MiB, 100 MiB, Default\n",
            "timestamp, gpu_uuid, pid, process_name, used_memory [MiB]\n1781975121, GPU-b, 7, x, 1 MiB\n",
            "# gpu sm\n# Idx %\n 0 50\n 7 50\n",
            "EntityId,GRACT,TimeStamp\n0,0.5,1781975119\n",
        ]);
        let d = Columns::new(&schema::DEVICES, &session["devices"]);
        let uuids: Vec<_> = d.text("uuid").unwrap().iter().collect();
        assert_eq!(uuids, [Some("GPU-a"), Some("GPU-b"), None]);
        assert_eq!(d.i64("memory_bytes").unwrap().value(0), 104_857_600);
        // Three metrics each of b and a, the process, dmon of 0 and 7, an entity of no known GPU.
        let expected = [1, 1, 1, 0, 0, 0, 1, 0, 2].map(Some);
        assert_eq!(ids(&session), [&expected[..], &[None]].concat());
        let s = Columns::new(&schema::NVML_SAMPLES, &session["nvml_samples"]);
        let times: Vec<_> = s.i64("time_ns").unwrap().iter().collect();
        assert_eq!(
            (times[0], times[3], times[6], times[7]),
            (Some(1_000_000_000), Some(0), Some(2_000_000_000), None)
        );
        let c = Columns::new(&schema::CAPTURE, &session["capture"]);
        assert_eq!(c.i64("utc_origin_ns").unwrap().value(0), 1_781_975_119_000_000_000);
        assert_eq!(
            (c.i64("start_ns").unwrap().value(0), c.i64("end_ns").unwrap().value(0)),
            (0, 2_000_000_000)
        );
        let f = Columns::new(&schema::CONFIGURED, &session["configured"]);
        assert_eq!(
            f.text("value").unwrap().iter().flatten().collect::<Vec<_>>(),
            ["Default", "Exclusive_Process"]
        );
    }

    #[test]
    fn instances_are_devices_and_local_times_are_no_utc() {
        let instance = |gi: u32, used: u32| {
            format!(
                "<mig_device><gpu_instance_id>{gi}</gpu_instance_id><compute_instance_id>0</compute_instance_id>\
                 <device_attributes><shared><multiprocessor_count>14</multiprocessor_count></shared></device_attributes>\
                 <fb_memory_usage><used>{used} MiB</used></fb_memory_usage></mig_device>"
            )
        };
        let text = format!(
            "<nvidia_smi_log><timestamp>Sat Jun 20 17:05:19 2026</timestamp><driver_version>580</driver_version>\
             <attached_gpus>1</attached_gpus><gpu><product_name>NVIDIA H100</product_name>\
             <mig_mode><current_mig>Enabled</current_mig></mig_mode><mig_devices>{}{}</mig_devices>\
             <uuid>GPU-a</uuid><processes><process_info><gpu_instance_id>2</gpu_instance_id>\
             <compute_instance_id>0</compute_instance_id><pid>7</pid></process_info></processes></gpu></nvidia_smi_log>",
            instance(1, 5),
            instance(2, 6)
        );
        let session = read(&[&text]);
        // mig_mode, driver, and of each instance the SM count and memory; the process is in the second.
        assert_eq!(ids(&session), [0, 0, 1, 1, 2, 2, 2].map(Some));
        let d = Columns::new(&schema::DEVICES, &session["devices"]);
        assert_eq!(d.text("name").unwrap().value(2), "NVIDIA H100 (MIG instance 2/0)");
        assert_eq!(d.u32("sm_count").unwrap().iter().collect::<Vec<_>>(), [None, Some(14), Some(14)]);
        let c = Columns::new(&schema::CAPTURE, &session["capture"]);
        assert!(c.i64("utc_origin_ns").unwrap().is_null(0));
        assert_eq!(c.text("driver_version").unwrap().value(0), "580");
        let s = Columns::new(&schema::NVML_SAMPLES, &session["nvml_samples"]);
        assert_eq!(s.i64("time_ns").unwrap().value(0), 0);
        let f = Columns::new(&schema::CONFIGURED, &session["configured"]);
        assert_eq!(
            (f.names("key").unwrap().get(0), f.text("value").unwrap().value(0)),
            (Some("mig_mode"), "Enabled")
        );
    }

    fn times_and_words(texts: &[&str]) -> (Vec<Option<i64>>, String) {
        let session = read(texts);
        let s = Columns::new(&schema::NVML_SAMPLES, &session["nvml_samples"]);
        let q = Columns::new(&schema::QUALITY, &session["quality"]);
        let words: Vec<&str> = q.text("detail").unwrap().iter().flatten().collect();
        (s.i64("time_ns").unwrap().iter().collect(), words.join("\n"))
    }

    #[test]
    fn a_file_of_local_times_is_placed_in_the_one_zone_in_which_it_meets_those_in_utc() {
        // 2026-06-20 17:05:19 and 17:05:29 UTC.
        let utc = "timestamp, index, utilization.gpu [%]\n1781975119, 0, 5 %\n1781975129, 0, 5 %\n";
        let local = |clock: &str| format!("timestamp, index, memory.used [MiB]\n2026/06/{clock}, 0, 5 MiB\n");
        for (clock, zone) in [
            ("21 02:05:24.000", Some("UTC+09:00")),
            ("20 17:05:24.000", Some("UTC+00:00")),
            ("20 22:50:24.000", Some("UTC+05:45")),
            ("20 13:35:24.000", Some("UTC-03:30")),
            // Seven minutes early, and another day: in no zone do they meet.
            ("20 16:58:24.000", None),
            ("24 17:05:24.000", None),
        ] {
            let (times, words) = times_and_words(&[utc, &local(clock)]);
            assert_eq!(times[..2], [Some(0), Some(10_000_000_000)], "{clock}");
            assert_eq!(times[2], zone.map(|_| 5_000_000_000), "{clock}");
            assert!(words.contains(zone.unwrap_or("local times beside samples in UTC")), "{clock}: {words}");
        }
    }

    #[test]
    fn long_files_are_placed_where_they_begin_and_end_together() {
        let utc = "timestamp, index, utilization.gpu [%]\n1781975119, 0, 5 %\n1781989519, 0, 5 %\n";
        let file = |first: &str, last: &str| {
            format!("timestamp, index, memory.used [MiB]\n{first}, 0, 5 MiB\n{last}, 0, 6 MiB\n")
        };
        // Four hours from 17:05:19 UTC on: begun in another terminal a minute later.
        let (times, words) =
            times_and_words(&[utc, &file("2026/06/21 02:06:19.000", "2026/06/21 06:05:00.000")]);
        assert_eq!(times[2..], [Some(60_000_000_000), Some(14_381_000_000_000)]);
        assert!(words.contains("UTC+09:00"), "{words}");
        // The first half hour of them, in which zone nobody can say.
        let (times, words) =
            times_and_words(&[utc, &file("2026/06/20 18:00:00.000", "2026/06/20 18:30:00.000")]);
        assert_eq!(times[2..], [None, None]);
        assert!(words.contains("counted, not placed"), "{words}");
    }

    #[test]
    fn entities_are_devices_where_no_gpu_is_named() {
        let session = read(&["EntityId,GRACT,FBUSD,TimeStamp\n0,0.5,3,1781975119\n1,0.25,9,1781975119\n"]);
        assert_eq!(ids(&session), [0, 0, 1, 1].map(Some));
        let d = Columns::new(&schema::DEVICES, &session["devices"]);
        assert_eq!(d.text("name").unwrap().value(1), "DCGM entity 1");
    }

    #[test]
    fn an_exporter_and_the_driver_number_one_instance() {
        let xml = "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu><mig_mode><current_mig>Enabled</current_mig>\
                   </mig_mode><mig_devices><mig_device><gpu_instance_id>2</gpu_instance_id>\
                   <compute_instance_id>0</compute_instance_id><fb_memory_usage><used>5 MiB</used></fb_memory_usage>\
                   </mig_device></mig_devices><uuid>GPU-a</uuid></gpu></nvidia_smi_log>";
        let page =
            "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"3g.40gb\",GPU_I_ID=\"2\"} 5\n";
        let session = read(&[xml, page]);
        let d = Columns::new(&schema::DEVICES, &session["devices"]);
        let profiles: Vec<_> = d.text("mig_profile").unwrap().iter().collect();
        assert_eq!(profiles, [None, Some("3g.40gb")]);
    }

    #[test]
    fn nothing_is_a_session_of_nothing() {
        let session = session(&[]).unwrap();
        assert_eq!(session["devices"].num_rows(), 0);
        assert_eq!(session["sources"].num_rows(), SOURCES.len());
    }
}
