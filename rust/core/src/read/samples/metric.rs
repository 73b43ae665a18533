//! Canonical names and units of metrics, for every tool.
//!
//! The one vocabulary of all sample formats. Every format has a table from its own names to the canonical name, which
//! carries the unit in which `nvml_samples` holds the value. A new metric is one line per format that has it. A column
//! that a format does not list keeps its own name if the user asked for it by name; otherwise it is dropped.

/// A value as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reading {
    Number(f64),
    /// No number, or not available.
    Text(String),
}

/// How a canonical metric is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Bytes; without a unit in the file: MiB.
    MiB,
    /// Hertz; without a unit in the file: MHz.
    MHz,
    /// As it stands.
    Plain,
    /// Bytes per second; in the file MB/s.
    MBPerS,
    /// Bytes per second; in the file KB/s.
    KBPerS,
    /// Joules; in the file mJ.
    MilliJoule,
    /// Never a number: `0x..` and versions among them.
    Words,
    /// `Active` or `Not Active`: 1 or 0.
    Flag,
}

/// What a column of a CSV file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Time,
    GpuIndex,
    GpuUuid,
    GpuName,
    Pid,
    ProcessName,
    Metric(String, Unit),
    /// Secret, or of no use.
    Ignored,
}

/// Columns of nvidia-smi and of home-made files around it, without unit and in lower case, to metrics.
#[rustfmt::skip]
const CSV: &[(&str, &str, Unit)] = &[
    ("utilization.gpu", "gpu_utilization_pct", Unit::Plain),
    ("util_gpu_pct", "gpu_utilization_pct", Unit::Plain),
    ("util_gpu", "gpu_utilization_pct", Unit::Plain),
    ("gpu_util", "gpu_utilization_pct", Unit::Plain),
    ("gpu_util_pct", "gpu_utilization_pct", Unit::Plain),
    ("gpu_utilization", "gpu_utilization_pct", Unit::Plain),
    ("utilization.memory", "memory_utilization_pct", Unit::Plain),
    ("util_mem_pct", "memory_utilization_pct", Unit::Plain),
    ("util_mem", "memory_utilization_pct", Unit::Plain),
    ("mem_util", "memory_utilization_pct", Unit::Plain),
    ("mem_util_pct", "memory_utilization_pct", Unit::Plain),
    ("utilization.encoder", "encoder_utilization_pct", Unit::Plain),
    ("utilization.decoder", "decoder_utilization_pct", Unit::Plain),
    ("utilization.jpeg", "jpeg_utilization_pct", Unit::Plain),
    ("utilization.ofa", "ofa_utilization_pct", Unit::Plain),
    ("memory.total", "memory_total_bytes", Unit::MiB),
    ("memory_total_mib", "memory_total_bytes", Unit::MiB),
    ("memory.used", "memory_used_bytes", Unit::MiB),
    ("memory_used_mib", "memory_used_bytes", Unit::MiB),
    ("memory.free", "memory_free_bytes", Unit::MiB),
    ("memory_free_mib", "memory_free_bytes", Unit::MiB),
    ("memory.reserved", "memory_reserved_bytes", Unit::MiB),
    ("used_memory", "process_memory_bytes", Unit::MiB),
    ("used_gpu_memory", "process_memory_bytes", Unit::MiB),
    ("clocks.sm", "clock_sm_hz", Unit::MHz),
    ("clocks.current.sm", "clock_sm_hz", Unit::MHz),
    ("clocks.mem", "clock_memory_hz", Unit::MHz),
    ("clocks.current.memory", "clock_memory_hz", Unit::MHz),
    ("clocks.gr", "clock_graphics_hz", Unit::MHz),
    ("clocks.current.graphics", "clock_graphics_hz", Unit::MHz),
    ("clocks.video", "clock_video_hz", Unit::MHz),
    ("clocks.current.video", "clock_video_hz", Unit::MHz),
    ("clocks.max.sm", "clock_sm_max_hz", Unit::MHz),
    ("clocks.max.memory", "clock_memory_max_hz", Unit::MHz),
    ("clocks.max.mem", "clock_memory_max_hz", Unit::MHz),
    ("clocks.max.graphics", "clock_graphics_max_hz", Unit::MHz),
    ("clocks.max.gr", "clock_graphics_max_hz", Unit::MHz),
    ("power.draw", "power_w", Unit::Plain),
    ("power_w", "power_w", Unit::Plain),
    ("power_draw_w", "power_w", Unit::Plain),
    ("power.draw.average", "power_average_w", Unit::Plain),
    ("power.draw.instant", "power_instant_w", Unit::Plain),
    ("power.limit", "power_limit_w", Unit::Plain),
    ("enforced.power.limit", "power_limit_enforced_w", Unit::Plain),
    ("temperature.gpu", "temperature_c", Unit::Plain),
    ("temp_c", "temperature_c", Unit::Plain),
    ("temperature_c", "temperature_c", Unit::Plain),
    ("temperature.memory", "temperature_memory_c", Unit::Plain),
    ("pstate", "pstate", Unit::Words),
    ("compute_mode", "compute_mode", Unit::Words),
    ("compute_cap", "compute_capability", Unit::Words),
    ("mig.mode.current", "mig_mode", Unit::Words),
    ("mig.mode.pending", "mig_mode_pending", Unit::Words),
    ("driver_version", "driver_version", Unit::Words),
];

/// Columns of `nvidia-smi dmon`.
#[rustfmt::skip]
pub(super) const DMON: &[(&str, &str, Unit)] = &[
    ("pwr", "power_w", Unit::Plain),
    ("gtemp", "temperature_c", Unit::Plain),
    // One temperature before drivers told that of the memory.
    ("temp", "temperature_c", Unit::Plain),
    ("mtemp", "temperature_memory_c", Unit::Plain),
    ("sm", "gpu_utilization_pct", Unit::Plain),
    ("mem", "memory_utilization_pct", Unit::Plain),
    ("enc", "encoder_utilization_pct", Unit::Plain),
    ("dec", "decoder_utilization_pct", Unit::Plain),
    ("jpg", "jpeg_utilization_pct", Unit::Plain),
    ("ofa", "ofa_utilization_pct", Unit::Plain),
    ("mclk", "clock_memory_hz", Unit::MHz),
    ("pclk", "clock_sm_hz", Unit::MHz),
    ("pviol", "power_violation_pct", Unit::Plain),
    ("tviol", "thermal_violation", Unit::Plain),
    // Headed MB; the numbers are those of memory.used in MiB.
    ("fb", "memory_used_bytes", Unit::MiB),
    ("bar1", "bar1_used_bytes", Unit::MiB),
    ("ccpm", "protected_memory_used_bytes", Unit::MiB),
    ("sbecc", "ecc_single_bit_errors", Unit::Plain),
    ("dbecc", "ecc_double_bit_errors", Unit::Plain),
    ("pci", "pcie_replays", Unit::Plain),
    ("rxpci", "pcie_rx_bytes_per_s", Unit::MBPerS),
    ("txpci", "pcie_tx_bytes_per_s", Unit::MBPerS),
];

/// Columns of `nvidia-smi pmon`.
#[rustfmt::skip]
pub(super) const PMON: &[(&str, &str, Unit)] = &[
    ("sm", "process_sm_pct", Unit::Plain),
    ("mem", "process_memory_pct", Unit::Plain),
    ("enc", "process_encoder_pct", Unit::Plain),
    ("dec", "process_decoder_pct", Unit::Plain),
    ("jpg", "process_jpeg_pct", Unit::Plain),
    ("ofa", "process_ofa_pct", Unit::Plain),
    // `fb` and `ccpm` are headed MB and mean MiB.
    ("fb", "process_memory_bytes", Unit::MiB),
    ("ccpm", "process_protected_memory_bytes", Unit::MiB),
];

/// What is read of `nvidia-smi -q`, as XML or as text, and nothing else: the dump holds serial numbers,
/// fabric ids and more. Paths below the GPU, tags and labels alike in small letters with underscores.
#[rustfmt::skip]
pub(super) const TREE: &[(&str, &str, Unit)] = &[
    ("utilization/gpu_util", "gpu_utilization_pct", Unit::Plain),
    ("utilization/gpu", "gpu_utilization_pct", Unit::Plain),
    ("utilization/memory_util", "memory_utilization_pct", Unit::Plain),
    ("utilization/memory", "memory_utilization_pct", Unit::Plain),
    ("utilization/encoder_util", "encoder_utilization_pct", Unit::Plain),
    ("utilization/encoder", "encoder_utilization_pct", Unit::Plain),
    ("utilization/decoder_util", "decoder_utilization_pct", Unit::Plain),
    ("utilization/decoder", "decoder_utilization_pct", Unit::Plain),
    ("utilization/jpeg_util", "jpeg_utilization_pct", Unit::Plain),
    ("utilization/jpeg", "jpeg_utilization_pct", Unit::Plain),
    ("utilization/ofa_util", "ofa_utilization_pct", Unit::Plain),
    ("utilization/ofa", "ofa_utilization_pct", Unit::Plain),
    ("fb_memory_usage/total", "memory_total_bytes", Unit::MiB),
    ("fb_memory_usage/reserved", "memory_reserved_bytes", Unit::MiB),
    ("fb_memory_usage/used", "memory_used_bytes", Unit::MiB),
    ("fb_memory_usage/free", "memory_free_bytes", Unit::MiB),
    ("shared_fb_memory_usage/total", "memory_total_bytes", Unit::MiB),
    ("shared_fb_memory_usage/reserved", "memory_reserved_bytes", Unit::MiB),
    ("shared_fb_memory_usage/used", "memory_used_bytes", Unit::MiB),
    ("shared_fb_memory_usage/free", "memory_free_bytes", Unit::MiB),
    ("bar1_memory_usage/used", "bar1_used_bytes", Unit::MiB),
    ("clocks/graphics_clock", "clock_graphics_hz", Unit::MHz),
    ("clocks/graphics", "clock_graphics_hz", Unit::MHz),
    ("clocks/sm_clock", "clock_sm_hz", Unit::MHz),
    ("clocks/sm", "clock_sm_hz", Unit::MHz),
    ("clocks/mem_clock", "clock_memory_hz", Unit::MHz),
    ("clocks/memory", "clock_memory_hz", Unit::MHz),
    ("clocks/video_clock", "clock_video_hz", Unit::MHz),
    ("clocks/video", "clock_video_hz", Unit::MHz),
    ("max_clocks/sm_clock", "clock_sm_max_hz", Unit::MHz),
    ("max_clocks/sm", "clock_sm_max_hz", Unit::MHz),
    ("max_clocks/mem_clock", "clock_memory_max_hz", Unit::MHz),
    ("max_clocks/memory", "clock_memory_max_hz", Unit::MHz),
    ("max_clocks/graphics_clock", "clock_graphics_max_hz", Unit::MHz),
    ("max_clocks/graphics", "clock_graphics_max_hz", Unit::MHz),
    // `power_readings` up to R530, then per part of the board, since R550 as mean and as moment.
    ("power_readings/power_draw", "power_w", Unit::Plain),
    ("gpu_power_readings/power_draw", "power_w", Unit::Plain),
    ("gpu_power_readings/average_power_draw", "power_average_w", Unit::Plain),
    ("gpu_power_readings/instant_power_draw", "power_instant_w", Unit::Plain),
    ("gpu_power_readings/instantaneous_power_draw", "power_instant_w", Unit::Plain),
    ("power_readings/power_limit", "power_limit_w", Unit::Plain),
    ("power_readings/enforced_power_limit", "power_limit_enforced_w", Unit::Plain),
    ("gpu_power_readings/current_power_limit", "power_limit_w", Unit::Plain),
    ("temperature/gpu_temp", "temperature_c", Unit::Plain),
    ("temperature/gpu_current_temp", "temperature_c", Unit::Plain),
    ("temperature/memory_temp", "temperature_memory_c", Unit::Plain),
    ("temperature/memory_current_temp", "temperature_memory_c", Unit::Plain),
    ("pci/tx_util", "pcie_tx_bytes_per_s", Unit::KBPerS),
    ("pci/tx_throughput", "pcie_tx_bytes_per_s", Unit::KBPerS),
    ("pci/rx_util", "pcie_rx_bytes_per_s", Unit::KBPerS),
    ("pci/rx_throughput", "pcie_rx_bytes_per_s", Unit::KBPerS),
    ("performance_state", "pstate", Unit::Words),
    ("compute_mode", "compute_mode", Unit::Words),
    ("mig_mode/current_mig", "mig_mode", Unit::Words),
    ("mig_mode/current", "mig_mode", Unit::Words),
    ("mig_mode/pending_mig", "mig_mode_pending", Unit::Words),
    ("mig_mode/pending", "mig_mode_pending", Unit::Words),
    ("gpu_virtualization_mode/virtualization_mode", "virtualization_mode", Unit::Words),
    ("device_attributes/shared/multiprocessor_count", "sm_count", Unit::Plain),
    ("driver_model/current_dm", "driver_model.current", Unit::Words),
    ("driver_model/current", "driver_model.current", Unit::Words),
    // Since the driver was loaded. Before Ampere by bits, then by memory, then the uncorrectable of SRAM in two parts.
    ("ecc_errors/volatile/single_bit/total", "ecc.errors.corrected.volatile.total", Unit::Plain),
    ("ecc_errors/volatile/double_bit/total", "ecc.errors.uncorrected.volatile.total", Unit::Plain),
    ("ecc_errors/volatile/sram_correctable", "ecc.errors.corrected.volatile.sram", Unit::Plain),
    ("ecc_errors/volatile/dram_correctable", "ecc.errors.corrected.volatile.dram", Unit::Plain),
    ("ecc_errors/volatile/sram_uncorrectable", "ecc.errors.uncorrected.volatile.sram", Unit::Plain),
    ("ecc_errors/volatile/sram_uncorrectable_parity", "ecc.errors.uncorrected.volatile.sram.parity", Unit::Plain),
    ("ecc_errors/volatile/sram_uncorrectable_secded", "ecc.errors.uncorrected.volatile.sram.secded", Unit::Plain),
    ("ecc_errors/volatile/sram_uncorrectable_sec_ded", "ecc.errors.uncorrected.volatile.sram.secded", Unit::Plain),
    ("ecc_errors/volatile/dram_uncorrectable", "ecc.errors.uncorrected.volatile.dram", Unit::Plain),
    // What needs a reset or another board, under the names of `--query-gpu` where it has it.
    ("gpu_recovery_action", "gpu_recovery_action", Unit::Words),
    ("ecc_errors/channel_repair_pending", "channel_repair_pending", Unit::Words),
    ("ecc_errors/tpc_repair_pending", "tpc_repair_pending", Unit::Words),
    ("ecc_errors/unrepairable_memory", "unrepairable_memory", Unit::Words),
    ("remapped_rows/pending", "remapped_rows.pending", Unit::Words),
    ("remapped_rows/remapped_row_pending", "remapped_rows.pending", Unit::Words),
    ("remapped_rows/remapping_failure_occurred", "remapped_rows.failure", Unit::Words),
    ("remapped_rows/remapped_row_failure", "remapped_rows.failure", Unit::Words),
    ("retired_pages/pending_page_blacklist", "retired_pages.pending", Unit::Words),
    ("retired_pages/pending_blacklist", "retired_pages.pending", Unit::Words),
    ("retired_pages/pending_retirement", "retired_pages.pending", Unit::Words),
];

/// A DCGM field.
#[derive(Debug)]
pub(super) struct Dcgm {
    /// The number that never changes: names were given new endings more than once.
    pub(super) id: u16,
    /// Heading of `dcgmi dmon`; empty where no sample of it was at hand.
    pub(super) tag: &'static str,
    /// Name without `DCGM_FI_`, as of the first releases.
    pub(super) name: &'static str,
    pub(super) metric: &'static str,
    pub(super) unit: Unit,
}

/// DCGM fields that are read; ratios are 0 to 1, unlike the driver's percentages.
#[rustfmt::skip]
pub(super) const DCGM: &[Dcgm] = &[
    Dcgm { id: 100, tag: "SMCLK", name: "DEV_SM_CLOCK", metric: "clock_sm_hz", unit: Unit::MHz },
    Dcgm { id: 101, tag: "MMCLK", name: "DEV_MEM_CLOCK", metric: "clock_memory_hz", unit: Unit::MHz },
    Dcgm { id: 140, tag: "MMTMP", name: "DEV_MEMORY_TEMP", metric: "temperature_memory_c", unit: Unit::Plain },
    Dcgm { id: 150, tag: "TMPTR", name: "DEV_GPU_TEMP", metric: "temperature_c", unit: Unit::Plain },
    Dcgm { id: 155, tag: "POWER", name: "DEV_POWER_USAGE", metric: "power_w", unit: Unit::Plain },
    Dcgm { id: 156, tag: "TOTEC", name: "DEV_TOTAL_ENERGY_CONSUMPTION", metric: "energy_j", unit: Unit::MilliJoule },
    Dcgm { id: 157, tag: "POWINST", name: "DEV_POWER_USAGE_INSTANT", metric: "power_instant_w", unit: Unit::Plain },
    Dcgm { id: 160, tag: "PMLMT", name: "DEV_POWER_MGMT_LIMIT", metric: "power_limit_w", unit: Unit::Plain },
    Dcgm { id: 203, tag: "GPUTL", name: "DEV_GPU_UTIL", metric: "gpu_utilization_pct", unit: Unit::Plain },
    Dcgm { id: 204, tag: "MCUTL", name: "DEV_MEM_COPY_UTIL", metric: "memory_utilization_pct", unit: Unit::Plain },
    Dcgm { id: 206, tag: "", name: "DEV_ENC_UTIL", metric: "encoder_utilization_pct", unit: Unit::Plain },
    Dcgm { id: 207, tag: "", name: "DEV_DEC_UTIL", metric: "decoder_utilization_pct", unit: Unit::Plain },
    Dcgm { id: 230, tag: "", name: "DEV_XID_ERRORS", metric: "xid_last", unit: Unit::Plain },
    Dcgm { id: 250, tag: "FBTTL", name: "DEV_FB_TOTAL", metric: "memory_total_bytes", unit: Unit::MiB },
    Dcgm { id: 251, tag: "FBFRE", name: "DEV_FB_FREE", metric: "memory_free_bytes", unit: Unit::MiB },
    Dcgm { id: 252, tag: "FBUSD", name: "DEV_FB_USED", metric: "memory_used_bytes", unit: Unit::MiB },
    Dcgm { id: 253, tag: "", name: "DEV_FB_RESERVED", metric: "memory_reserved_bytes", unit: Unit::MiB },
    Dcgm { id: 1001, tag: "GRACT", name: "PROF_GR_ENGINE_ACTIVE", metric: "gr_engine_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1002, tag: "SMACT", name: "PROF_SM_ACTIVE", metric: "sm_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1003, tag: "SMOCC", name: "PROF_SM_OCCUPANCY", metric: "sm_occupancy_ratio", unit: Unit::Plain },
    Dcgm { id: 1004, tag: "TENSO", name: "PROF_PIPE_TENSOR_ACTIVE", metric: "tensor_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1005, tag: "DRAMA", name: "PROF_DRAM_ACTIVE", metric: "dram_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1006, tag: "FP64A", name: "PROF_PIPE_FP64_ACTIVE", metric: "fp64_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1007, tag: "FP32A", name: "PROF_PIPE_FP32_ACTIVE", metric: "fp32_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1008, tag: "FP16A", name: "PROF_PIPE_FP16_ACTIVE", metric: "fp16_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1009, tag: "PCITX", name: "PROF_PCIE_TX_BYTES", metric: "pcie_tx_bytes_per_s", unit: Unit::Plain },
    Dcgm { id: 1010, tag: "PCIRX", name: "PROF_PCIE_RX_BYTES", metric: "pcie_rx_bytes_per_s", unit: Unit::Plain },
    Dcgm { id: 1011, tag: "NVLTX", name: "PROF_NVLINK_TX_BYTES", metric: "nvlink_tx_bytes_per_s", unit: Unit::Plain },
    Dcgm { id: 1012, tag: "NVLRX", name: "PROF_NVLINK_RX_BYTES", metric: "nvlink_rx_bytes_per_s", unit: Unit::Plain },
    Dcgm { id: 1013, tag: "TIMMA", name: "PROF_PIPE_TENSOR_IMMA_ACTIVE", metric: "tensor_imma_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1014, tag: "THMMA", name: "PROF_PIPE_TENSOR_HMMA_ACTIVE", metric: "tensor_hmma_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1015, tag: "TDFMA", name: "PROF_PIPE_TENSOR_DFMA_ACTIVE", metric: "tensor_dfma_active_ratio", unit: Unit::Plain },
    Dcgm { id: 1016, tag: "", name: "PROF_PIPE_INT_ACTIVE", metric: "int_active_ratio", unit: Unit::Plain },
];

/// A DCGM field by its name, tag or number: `DCGM_FI_PROF_SM_ACTIVE`, `..._RATIO`, `SMACT`, `1002`.
pub(super) fn dcgm(word: &str) -> Option<&'static Dcgm> {
    if let Ok(id) = word.parse::<u16>() {
        return DCGM.iter().find(|f| f.id == id);
    }
    let name = word.strip_prefix("DCGM_FI_").map(|n| n.strip_suffix("_RATIO").unwrap_or(n));
    DCGM.iter().find(|f| name.map_or(f.tag == word, |n| f.name == n))
}

/// What DCGM writes where it has no value, and why.
///
/// Blanks of doubles begin at 2^47, of 64-bit numbers at `0x7ffffffffffffff0`, of 32-bit ones at
/// `0x7ffffff0`; one more: not found, two: not supported, three: no permission, four: not updated.
pub(super) fn dcgm_reading(text: &str, unit: Unit) -> Reading {
    const REASONS: [&str; 5] = ["blank", "not found", "not supported", "not permitted", "not updated"];
    const FP64: f64 = 140_737_488_355_328.0;
    let Ok(value) = text.parse::<f64>() else { return reading(text, unit) };
    // 64-bit blanks do not survive as doubles: the steps between them are lost in 2^63.
    let offset = match text.parse::<i64>() {
        Ok(v) if v >= 0x7fff_ffff_ffff_fff0 => Some((v - 0x7fff_ffff_ffff_fff0) as usize),
        Ok(v) if (0x7fff_fff0..=0x7fff_fff4).contains(&v) => Some((v - 0x7fff_fff0) as usize),
        _ if value >= 9.223_372_036_854_775e18 => Some(0),
        _ if (FP64..FP64 + 5.0).contains(&value) => Some((value - FP64) as usize),
        _ => None,
    };
    match offset {
        Some(n) => {
            let why = REASONS.get(n).copied().unwrap_or("blank");
            Reading::Text(format!("[DCGM: {why}]"))
        }
        None => reading(text, unit),
    }
}

/// Over which interval a value is an average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Covers {
    /// A moment, or nobody says.
    Moment,
    /// The driver's own sampling period, which lies between a sixth of a second and a second by product.
    DriverPeriod,
    /// All the time since the sample before.
    SinceLast,
}

/// Over which interval values of a canonical metric are averages.
pub(super) fn covers(metric: &str) -> Covers {
    if metric.ends_with("_utilization_pct") {
        Covers::DriverPeriod
    } else if metric.ends_with("_ratio")
        || metric.starts_with("nvlink_")
        || (metric.starts_with("process_") && metric.ends_with("_pct"))
    {
        Covers::SinceLast
    } else {
        Covers::Moment
    }
}

/// Names hardware or host for good, or is of use to an attacker: never read out.
///
/// Files that people write in the image of nvidia-smi may have a column with the command line of a process.
pub(super) fn is_secret(column: &str) -> bool {
    const PARTS: &[&str] = &[
        "serial",
        "hostname",
        "host_id",
        "guid",
        "clusteruuid",
        "user",
        "cmd",
        "command",
        "args",
        "environ",
        "token",
        "secret",
        "password",
        "credential",
    ];
    column == "host"
        || column == "env"
        || ["inforom", "vbios"].iter().any(|start| column.starts_with(start))
        || PARTS.iter().any(|part| column.contains(part))
}

/// Splits `name [unit]`.
pub(super) fn split_unit(header: &str) -> (String, Option<String>) {
    let header = header.trim();
    if let Some((name, unit)) = header.strip_suffix(']').and_then(|h| h.split_once('[')) {
        return (name.trim().to_ascii_lowercase(), Some(unit.trim().to_owned()));
    }
    (header.to_ascii_lowercase(), None)
}

/// What a column is, from its header.
pub(super) fn field(header: &str) -> Field {
    let (name, unit) = split_unit(header);
    match name.as_str() {
        "timestamp" | "time" | "datetime" => return Field::Time,
        "index" | "gpu_index" | "gpu" => return Field::GpuIndex,
        "uuid" | "gpu_uuid" => return Field::GpuUuid,
        "name" | "gpu_name" => return Field::GpuName,
        "pid" => return Field::Pid,
        "process_name" => return Field::ProcessName,
        _ if is_secret(&name) => return Field::Ignored,
        _ => {}
    }
    // Renamed in R535; the old name lives on in scripts.
    let reason =
        ["clocks_throttle_reasons.", "clocks_event_reasons."].iter().find_map(|p| name.strip_prefix(p));
    if let Some(reason) = reason {
        let unit = if matches!(reason, "active" | "supported") { Unit::Words } else { Unit::Flag };
        return Field::Metric(format!("clocks_event_reasons.{}", tidy(reason)), unit);
    }
    if let Some((_, metric, usual)) = CSV.iter().find(|m| m.0 == name) {
        if unit.as_deref().is_none_or(|unit| is_usual(metric, unit)) {
            return Field::Metric((*metric).to_owned(), *usual);
        }
    }
    let name = tidy(&name);
    match unit.as_deref() {
        Some("MiB") => Field::Metric(format!("{name}_bytes"), Unit::MiB),
        Some("MHz") => Field::Metric(format!("{name}_hz"), Unit::MHz),
        Some("%") => Field::Metric(format!("{name}_pct"), Unit::Plain),
        Some(unit) => Field::Metric(format!("{name}_{}", tidy(&unit.to_ascii_lowercase())), Unit::Plain),
        None => Field::Metric(name, Unit::Plain),
    }
}

/// Whether a known metric comes in this unit, as nvidia-smi writes it. In another it is a metric of its own: read as
/// the usual one, GiB would be a thousandth of what was used.
fn is_usual(metric: &str, unit: &str) -> bool {
    const USUAL: [(&str, &str); 5] =
        [("_bytes", "MiB"), ("_hz", "MHz"), ("_pct", "%"), ("_w", "W"), ("_c", "C")];
    USUAL.iter().find(|(ending, _)| metric.ends_with(ending)).is_none_or(|(_, usual)| *usual == unit)
}

pub(super) fn is_known_metric(header: &str) -> bool {
    let (name, _) = split_unit(header);
    CSV.iter().any(|m| m.0 == name) || name.starts_with("clocks_event_reasons.")
}

pub(super) fn tidy(name: &str) -> String {
    name.chars()
        .map(
            |c| {
                if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') {
                    c.to_ascii_lowercase()
                } else {
                    '_'
                }
            },
        )
        .collect()
}

/// Reads a cell: `37 %`, `23028 MiB`, `1410 MHz`, `250.10 W`, `42`, `P0`, `[N/A]`.
pub(super) fn reading(cell: &str, unit: Unit) -> Reading {
    let cell = cell.trim();
    let text = || Reading::Text(cell.to_owned());
    match unit {
        Unit::Words => return text(),
        Unit::Flag => {
            return match cell {
                "Active" => Reading::Number(1.0),
                "Not Active" => Reading::Number(0.0),
                _ => text(),
            }
        }
        _ => {}
    }
    let (number, suffix) = match cell.split_once(char::is_whitespace) {
        Some((number, suffix)) => (number, suffix.trim()),
        None => match cell.strip_suffix('%') {
            Some(number) => (number, "%"),
            None => (cell, ""),
        },
    };
    // Rust reads `inf` and `nan` as numbers; no GPU reports either.
    let plain = number.parse::<f64>().ok().or_else(|| decimal_comma(number));
    let Some(value) = plain.filter(|v| v.is_finite()) else { return text() };
    let scale = match (unit, suffix) {
        (Unit::MiB, "" | "MiB" | "MB") => 1_048_576.0,
        (Unit::MiB, "KiB") => 1024.0,
        (Unit::MiB, "GiB") => 1_073_741_824.0,
        (Unit::MHz, "" | "MHz") => 1e6,
        (Unit::MHz, "GHz") => 1e9,
        (Unit::Plain, "" | "%" | "W" | "C" | "us" | "ms") => 1.0,
        (Unit::MBPerS, "" | "MB/s") => 1e6,
        (Unit::KBPerS, "" | "KB/s") => 1e3,
        (Unit::MilliJoule, "") => 1e-3,
        // A unit that was not expected is no licence to guess.
        _ => return text(),
    };
    // 1e308 MiB are more bytes than a number holds.
    let scaled = value * scale;
    if holds(scaled) {
        Reading::Number(scaled)
    } else {
        text()
    }
}

/// `300,10`, as some locales write it. Three digits behind the comma may be thousands: that is no licence to guess.
fn decimal_comma(number: &str) -> Option<f64> {
    let (whole, fraction) = number.split_once(',')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let known = digits(whole) && digits(fraction) && fraction.len() != 3;
    known.then(|| format!("{whole}.{fraction}").parse().ok())?
}

/// Whether a value is one of a GPU: none is beyond what 64 bits hold, and answers give bytes and counts in so many.
pub(super) fn holds(value: f64) -> bool {
    value.abs() < 9.2e18
}

/// `[N/A]`, `[Not Supported]`, `N/A`, `-` and empty: no identity can be read from these.
pub(crate) fn is_unavailable(cell: &str) -> bool {
    cell.is_empty() || cell == "-" || cell == "N/A" || (cell.starts_with('[') && cell.ends_with(']'))
}

/// A label as a tag: `GPU Current Temp` as `gpu_current_temp`.
pub(super) fn slug(label: &str) -> String {
    let words = label.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_ascii_lowercase()
}
