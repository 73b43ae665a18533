//! Resolve the GPU that a row means.
//!
//! Three numbers name a GPU in an export: `TARGET_INFO_GPU.id` (context switches, metrics), `cuDevice` (the ordinal of
//! a process that sees all GPUs) and the `deviceId` of CUDA activity, which is the ordinal of *that process* and moves
//! with CUDA_VISIBLE_DEVICES. They differ in real captures. So a row names a GPU through a slot here, and slots get
//! their `device_id` when all tables have been seen.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow_array::{Int32Array, Int64Array, RecordBatch, StringArray, UInt32Array};
use serde_json::Value;

use super::layout::{self, Place};
use super::shape;
use super::staged::{cell, integer, text};
use super::Reader;
use crate::base::error::Result;
use crate::table::builder::Builder;
use crate::table::quality;
use crate::table::schema::DEVICES;
use pyanalyze_sqlite::Row;

/// Plain numbers of a device: column of `devices` and whether it is 32 bits wide. A zero in any of
/// them means that nsys could not ask the driver, not that the GPU has none.
const WIDE: &[&str] = &[
    "clock_hz",
    "memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "l2_bytes",
    "shared_per_sm_bytes",
    "shared_per_block_bytes",
    "shared_per_block_optin_bytes",
];
const NARROW: &[&str] = &[
    "sm_count",
    "compute_major",
    "compute_minor",
    "async_engines",
    "max_warps_per_sm",
    "max_blocks_per_sm",
    "max_threads_per_block",
    "registers_per_sm",
    "registers_per_block",
];
/// What occupancy needs; with all of them the limits are the capture's own.
const LIMITS: &[&str] = &[
    "sm_count",
    "compute_major",
    "max_warps_per_sm",
    "max_blocks_per_sm",
    "max_threads_per_block",
    "registers_per_sm",
    "registers_per_block",
    "shared_per_sm_bytes",
    "shared_per_block_bytes",
];

/// Columns of `devices` and their keys in `GpuInfo`, the JSON text in which nsys up to 2021 kept them.
const IN_SYSTEM: &[(&str, &str)] = &[
    ("clock_hz", "ClockRate"),
    ("memory_bytes", "TotalMemory"),
    ("memory_bandwidth_bytes_per_s", "MemoryBandwidth"),
    ("l2_bytes", "L2CacheSize"),
    ("sm_count", "SmCount"),
];

#[derive(Debug, Default, Clone)]
struct Gpu {
    gpu_id: Option<i64>,
    ordinal: Option<i64>,
    name: Option<String>,
    uuid: Option<String>,
    bus: Option<String>,
    chip: Option<String>,
    numbers: BTreeMap<&'static str, i64>,
}

impl Gpu {
    /// Takes a number of a column, if it is one that the column can have.
    fn enter(&mut self, column: &'static str, value: Option<i64>) {
        let fits = |n: &i64| WIDE.contains(&column) || u32::try_from(*n).is_ok();
        // Only the minor compute capability can really be zero.
        let real = |n: &i64| *n > 0 || (*n == 0 && column == "compute_minor");
        if let Some(value) = value.filter(real).filter(fits) {
            self.numbers.entry(column).or_insert(value);
        }
    }

    fn is_instance(&self) -> bool {
        self.name.as_deref().is_some_and(|n| mig_profile(n).is_some() || n.contains("MIG "))
    }
}

/// Fills in what only `GpuInfo` of the system tells of a GPU, which has the same UUID there.
fn enter_system(reader: &Reader<'_>, gpus: &mut [Gpu]) -> Result<()> {
    let texts = reader.pairs(&layout::SYSTEM_ENV)?.into_iter().filter(|(name, _)| name == "GpuInfo");
    for info in texts.filter_map(|(_, text)| serde_json::from_str::<Value>(&text).ok()) {
        for told in info.get("Gpus").and_then(Value::as_array).into_iter().flatten() {
            let uuid = told.get("Uuid").and_then(Value::as_str);
            for gpu in gpus.iter_mut().filter(|gpu| uuid.is_some() && gpu.uuid.as_deref() == uuid) {
                for (column, key) in IN_SYSTEM {
                    // Numbers of 64 bits are written as texts.
                    let value = told.get(key).and_then(|v| v.as_i64().or_else(|| v.as_str()?.parse().ok()));
                    gpu.enter(column, value);
                }
            }
        }
    }
    Ok(())
}

/// What a row can mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Meaning {
    /// A row of TARGET_INFO_GPU, by its place in id order.
    Listed(usize),
    /// A CUDA ordinal that no table ties to a GPU.
    Ordinal(Option<i64>),
    /// A GPU id that TARGET_INFO_GPU does not list.
    Unlisted(Option<i64>),
}

/// A process and its CUDA ordinal.
type CudaDevice = (Option<u32>, Option<i64>);

/// The GPUs of a capture, and what their numbers mean.
#[derive(Debug, Default)]
pub(super) struct Devices {
    gpus: Vec<Gpu>,
    /// How many of them are MIG instances.
    instances: usize,
    by_process: HashMap<(u32, i64), usize>,
    by_ordinal: BTreeMap<i64, usize>,
    sms_of_process: HashMap<(u32, i64), i64>,
    slots: Vec<Meaning>,
    known: HashMap<Meaning, u32>,
    guessed: BTreeSet<(Option<u32>, i64)>,
    /// Processes whose MIG instance was taken from its place in the list: each sees its own as device 0.
    assumed: BTreeSet<(Option<u32>, i64)>,
    /// The last answer: rows of one process come in long runs.
    last: Option<(CudaDevice, u32)>,
}

impl Devices {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut devices = Self::default();
        let Some(plan) = layout::find(reader.database, &layout::GPU)? else {
            reader.count(quality::NO_DEVICE_INFO, 1, "");
            devices.read_processes(reader)?;
            return Ok(devices);
        };
        let number = |row: &Row<'_>, name| integer(cell(row, plan.at(name))).ok().flatten();
        let word = |row: &Row<'_>, name| text(cell(row, plan.at(name))).filter(|t| !t.is_empty());
        let mut gpus = Vec::new();
        reader.scan(&plan, |row| {
            let mut gpu = Gpu {
                gpu_id: number(row, "gpu_id"),
                ordinal: number(row, "cuda_ordinal").filter(|n| (0..65_536).contains(n)),
                name: word(row, "name"),
                uuid: word(row, "uuid")
                    .filter(|u| u.bytes().any(|b| b != b'0' && b != b'-') && shape::is_uuid(u)),
                bus: word(row, "bus_location").filter(|bus| shape::is_bus_location(bus)),
                chip: word(row, "chip").filter(|chip| shape::is_chip(chip)),
                numbers: BTreeMap::new(),
            };
            for column in WIDE.iter().chain(NARROW) {
                gpu.enter(column, number(row, column));
            }
            if !gpu.numbers.contains_key("compute_major") {
                gpu.numbers.remove("compute_minor");
            }
            gpus.push(gpu);
            Ok(())
        })?;
        if gpus.iter().any(|gpu| IN_SYSTEM.iter().any(|(column, _)| !gpu.numbers.contains_key(column))) {
            enter_system(reader, &mut gpus)?;
        }
        gpus.sort_by(|a, b| (a.gpu_id, &a.uuid, &a.bus).cmp(&(b.gpu_id, &b.uuid, &b.bus)));
        // A missing SM count is counted where it is filled or given up, in device.rs.
        let mut seen = BTreeMap::<i64, u32>::new();
        for gpu in &gpus {
            if let Some(ordinal) = gpu.ordinal {
                *seen.entry(ordinal).or_default() += 1;
            }
        }
        for (place, gpu) in gpus.iter_mut().enumerate() {
            // An ordinal that two GPUs claim says nothing about either.
            gpu.ordinal = gpu.ordinal.filter(|n| seen.get(n) == Some(&1));
            if let Some(ordinal) = gpu.ordinal {
                devices.by_ordinal.insert(ordinal, place);
            }
        }
        devices.instances = gpus.iter().filter(|gpu| gpu.is_instance()).count();
        devices.gpus = gpus;
        // Listed GPUs come first in the slots, also those that nothing ran on.
        for place in 0..devices.gpus.len() {
            devices.slot(Meaning::Listed(place));
        }
        devices.read_processes(reader)?;
        Ok(devices)
    }

    /// Which ordinal of which process is which GPU.
    fn read_processes(&mut self, reader: &Reader<'_>) -> Result<()> {
        let Some(plan) = layout::find(reader.database, &layout::CUDA_DEVICE)? else { return Ok(()) };
        let number = |row: &Row<'_>, place: Place| integer(cell(row, place)).ok().flatten();
        let (gpu, ordinal, pid) = (plan.at("gpu_id"), plan.at("cuda_id"), plan.at("pid"));
        let sms = plan.at("sm_count");
        reader
            .scan(&plan, |row| {
                let (Some(ordinal), Some(pid)) = (number(row, ordinal), number(row, pid)) else {
                    return Ok(());
                };
                let Ok(pid) = u32::try_from(pid) else { return Ok(()) };
                if let Some(sms) = number(row, sms).filter(|n| *n > 0) {
                    self.sms_of_process.insert((pid, ordinal), sms);
                }
                let gpu = number(row, gpu);
                if let Some(place) = self.gpus.iter().position(|g| gpu.is_some() && g.gpu_id == gpu) {
                    self.by_process.insert((pid, ordinal), place);
                }
                Ok(())
            })
            .map(|_| ())
    }

    fn slot(&mut self, meaning: Meaning) -> u32 {
        let next = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        *self.known.entry(meaning).or_insert_with(|| {
            self.slots.push(meaning);
            next
        })
    }

    /// The slot of CUDA device `ordinal` of process `pid`.
    pub(super) fn cuda(&mut self, pid: Option<u32>, ordinal: Option<i64>) -> u32 {
        if let Some((key, slot)) = self.last {
            if key == (pid, ordinal) {
                return slot;
            }
        }
        let slot = self.slot_of_ordinal(pid, ordinal);
        self.last = Some(((pid, ordinal), slot));
        slot
    }

    fn slot_of_ordinal(&mut self, pid: Option<u32>, ordinal: Option<i64>) -> u32 {
        let Some(n) = ordinal else {
            // No column says which device; with one GPU there is no doubt.
            let only = self.gpus.len() == 1;
            return self.slot(if only { Meaning::Listed(0) } else { Meaning::Ordinal(None) });
        };
        let of_process = pid.and_then(|pid| self.by_process.get(&(pid, n)).copied());
        if of_process.is_none() && self.instances > 1 {
            self.assumed.insert((pid, n));
        }
        if let Some(place) = of_process.or_else(|| self.by_ordinal.get(&n).copied()) {
            return self.slot(Meaning::Listed(place));
        }
        match usize::try_from(n) {
            Ok(place) if self.by_ordinal.is_empty() && place < self.gpus.len() => {
                if self.gpus.len() > 1 {
                    self.guessed.insert((pid, n));
                }
                self.slot(Meaning::Listed(place))
            }
            _ => self.slot(Meaning::Ordinal(Some(n))),
        }
    }

    /// The slot of `TARGET_INFO_GPU.id`, and whether the GPU is listed.
    pub(super) fn gpu(&mut self, id: Option<i64>) -> (u32, bool) {
        let listed = match id {
            Some(_) => self.gpus.iter().position(|g| g.gpu_id == id),
            None => (self.gpus.len() == 1).then_some(0),
        };
        match listed {
            Some(place) => (self.slot(Meaning::Listed(place)), true),
            // Without any list, GPU 0 of one table and ordinal 0 of another are taken for one device:
            // two halves of a device would be a worse answer.
            None if self.gpus.is_empty() => {
                if let Some(id) = id {
                    self.guessed.insert((None, id));
                }
                (self.slot(Meaning::Ordinal(id)), false)
            }
            None => (self.slot(Meaning::Unlisted(id)), false),
        }
    }

    /// The slot of `TARGET_INFO_GPU.id`, if it is listed.
    pub(super) fn listed_gpu(&mut self, id: i64) -> Option<u32> {
        let place = self.gpus.iter().position(|g| g.gpu_id == Some(id))?;
        Some(self.slot(Meaning::Listed(place)))
    }

    /// The only GPU of the capture.
    pub(super) fn only(&mut self) -> Option<u32> {
        (self.gpus.len() == 1).then(|| self.slot(Meaning::Listed(0)))
    }

    /// SMs that `pid` sees on its CUDA device `ordinal`.
    pub(super) fn sms_of_process(&self, pid: Option<u32>, ordinal: Option<i64>) -> Option<i64> {
        self.sms_of_process.get(&(pid?, ordinal?)).copied()
    }

    /// Device ids by slot, and the `devices` table.
    pub(super) fn finish(mut self, reader: &mut Reader<'_>) -> Result<(Vec<u32>, RecordBatch)> {
        let guessed = u64::try_from(self.guessed.len()).unwrap_or(0);
        reader.count(quality::DEVICE_MAPPING_GUESSED, guessed, "");
        let assumed = u64::try_from(self.assumed.len()).unwrap_or(0);
        reader.count(quality::MIG_INSTANCE_ASSUMED, assumed, "");
        let mut taken: BTreeSet<u32> =
            self.gpus.iter().filter_map(|g| u32::try_from(g.ordinal?).ok()).collect();
        let next_free =
            |taken: &BTreeSet<u32>| (0..u32::MAX).find(|n| !taken.contains(n)).unwrap_or(u32::MAX);
        let mut ids: HashMap<Meaning, u32> = HashMap::new();
        for (place, gpu) in self.gpus.iter().enumerate() {
            let id = gpu.ordinal.and_then(|n| u32::try_from(n).ok()).unwrap_or_else(|| next_free(&taken));
            taken.insert(id);
            ids.insert(Meaning::Listed(place), id);
        }
        // Sorted, so that ids do not depend on which row came first.
        let mut others: Vec<Meaning> =
            self.slots.iter().copied().filter(|m| !matches!(m, Meaning::Listed(_))).collect();
        others.sort_unstable();
        for meaning in &others {
            let (Meaning::Ordinal(number) | Meaning::Unlisted(number)) = *meaning else { continue };
            let wish =
                number.and_then(|n| u32::try_from(n).ok()).filter(|n| !taken.contains(n) && *n < 65_536);
            let id = wish.unwrap_or_else(|| next_free(&taken));
            taken.insert(id);
            ids.insert(*meaning, id);
            let gpu = match meaning {
                Meaning::Unlisted(_) => Gpu { gpu_id: number, ..Gpu::default() },
                _ => Gpu { ordinal: number, ..Gpu::default() },
            };
            self.gpus.push(gpu);
        }
        reader.count(quality::DEVICE_UNKNOWN, u64::try_from(others.len()).unwrap_or(0), "");
        let slots = self.slots.iter().map(|m| ids.get(m).copied().unwrap_or(u32::MAX)).collect();
        let mut rows: Vec<(u32, &Gpu)> = Vec::with_capacity(self.gpus.len());
        let listed = self.gpus.len() - others.len();
        for (place, gpu) in self.gpus.iter().enumerate() {
            let meaning = place.checked_sub(listed).and_then(|n| others.get(n).copied());
            let id = ids.get(&meaning.unwrap_or(Meaning::Listed(place))).copied().unwrap_or(u32::MAX);
            rows.push((id, gpu));
        }
        rows.sort_by_key(|(id, _)| *id);
        Ok((slots, table(reader.capture, &rows)?))
    }
}

fn table(capture: u32, rows: &[(u32, &Gpu)]) -> Result<RecordBatch> {
    let texts =
        |get: &dyn Fn(&Gpu) -> Option<String>| rows.iter().map(|(_, gpu)| get(gpu)).collect::<StringArray>();
    let uuid = |gpu: &Gpu| {
        let bare = gpu.uuid.as_deref()?.trim_start_matches("GPU-").trim_start_matches("MIG-");
        Some(format!("{}-{bare}", if gpu.is_instance() { "MIG" } else { "GPU" }))
    };
    let basis = |gpu: &Gpu| {
        if LIMITS.iter().all(|column| gpu.numbers.contains_key(column)) {
            "capture"
        } else {
            "unknown"
        }
    };
    let mut builder = Builder::new(&DEVICES)
        .put("device_id", rows.iter().map(|(id, _)| Some(*id)).collect::<UInt32Array>())
        .put("capture", UInt32Array::from(vec![capture; rows.len()]))
        .put("gpu_id", rows.iter().map(|(_, g)| g.gpu_id).collect::<Int64Array>())
        .put(
            "cuda_ordinal",
            rows.iter().map(|(_, g)| g.ordinal.and_then(|n| i32::try_from(n).ok())).collect::<Int32Array>(),
        )
        .put("name", texts(&|g| g.name.clone()))
        .put("uuid", texts(&uuid))
        // The export does not say which board an instance was cut from.
        .put("gpu_uuid", texts(&|g| if g.is_instance() { None } else { uuid(g) }))
        .put("bus_location", texts(&|g| g.bus.clone()))
        .put("chip", texts(&|g| g.chip.clone()))
        .put("mig_profile", texts(&|g| mig_profile(g.name.as_deref()?)))
        .put("vgpu_profile", texts(&|g| vgpu_profile(g.name.as_deref()?)))
        .put_names("limits_basis", rows.iter().map(|(_, g)| Some(basis(g))));
    for column in WIDE {
        builder = builder
            .put(column, rows.iter().map(|(_, g)| g.numbers.get(column).copied()).collect::<Int64Array>());
    }
    for column in NARROW {
        let values = rows.iter().map(|(_, g)| g.numbers.get(column).and_then(|n| u32::try_from(*n).ok()));
        builder = builder.put(column, values.collect::<UInt32Array>());
    }
    builder.finish(rows.len())
}

/// The profile in a name such as `NVIDIA A30 MIG 2g.12gb` or `... MIG 1c.3g.20gb`.
pub(super) fn mig_profile(name: &str) -> Option<String> {
    let (_, rest) = name.split_once("MIG ")?;
    let profile = rest.split_whitespace().next()?;
    let (size, extra) = match profile.find(['+', '-']) {
        Some(at) => profile.split_at_checked(at)?,
        None => (profile, ""),
    };
    let parts: Vec<&str> = size.split('.').collect();
    let slices = |part: &str, unit: char| {
        part.strip_suffix(unit).is_some_and(|n| n.len() == 1 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let memory = |part: &str| {
        part.strip_suffix("gb").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let sound = match parts.as_slice() {
        [g, m] => slices(g, 'g') && memory(m),
        [c, g, m] => slices(c, 'c') && slices(g, 'g') && memory(m),
        _ => false,
    };
    let extra_sound = extra.is_empty()
        || (extra.len() > 1 && extra.bytes().skip(1).all(|b| b.is_ascii_lowercase() || b == b'.'));
    (sound && extra_sound).then(|| profile.to_owned())
}

/// The profile in the name a vGPU guest sees: `GRID T4-4Q`, `A100D-40C`, `A100X-3-20C`, `A800D-1-10CME`.
///
/// Boards also have dashes and numbers (`A100-SXM4-40GB`, `PG509-210`): a profile ends in the size in
/// GB and one letter for the licence.
pub(super) fn vgpu_profile(name: &str) -> Option<String> {
    let token = name.split_whitespace().next_back()?;
    let bare = token.strip_suffix("ME").unwrap_or(token);
    let bare = bare.strip_suffix(['A', 'B', 'C', 'Q'])?;
    let mut parts = bare.rsplit('-');
    let number = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !number(parts.next()?) {
        return None;
    }
    let board = parts.next_back()?;
    let starts_like_a_board = board.starts_with(|c: char| c.is_ascii_uppercase()) && !board.starts_with("PG");
    let numbered = board.bytes().any(|b| b.is_ascii_digit());
    (starts_like_a_board && numbered).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mig_names() {
        for (name, profile) in [
            ("NVIDIA A30 MIG 2g.12gb", Some("2g.12gb")),
            ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", Some("1c.3g.20gb")),
            ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", Some("1g.10gb+me")),
            ("NVIDIA RTX PRO 6000 MIG 1g.24gb+gfx", Some("1g.24gb+gfx")),
            ("NVIDIA B200 MIG 1g.23gb-me", Some("1g.23gb-me")),
            ("NVIDIA A30", None),
            ("MIG 12g.5gb", None),
            ("MIG g.5gb", None),
        ] {
            assert_eq!(mig_profile(name).as_deref(), profile, "{name}");
        }
    }

    #[test]
    fn vgpu_names_are_not_board_names() {
        for (name, profile) in [
            ("GRID T4-4Q", Some("T4-4Q")),
            ("GRID P4-1Q", Some("P4-1Q")),
            ("NVIDIA A100D-40C", Some("A100D-40C")),
            ("GRID A100X-3-20C", Some("A100X-3-20C")),
            ("NVIDIA A800D-1-10CME", Some("A800D-1-10CME")),
            ("NVIDIA A100-SXM4-40GB", None),
            ("Tesla V100-SXM2-16GB", None),
            ("NVIDIA H100 80GB HBM3", None),
            ("NVIDIA PG509-210", None),
            ("NVIDIA A10G", None),
            ("NVIDIA GeForce RTX 4060 Laptop GPU", None),
            ("Quadro RTX 6000", None),
            ("NVIDIA GB200", None),
        ] {
            assert_eq!(vgpu_profile(name).as_deref(), profile, "{name}");
        }
    }
}
