//! Theoretical occupancy: how many blocks of a launch fit on one SM, and which resource limits them.
//!
//! The algorithm is that of NVIDIA's occupancy calculator header of CUDA 13.5: the minimum of what warps, registers,
//! shared memory, block slots and (from compute capability 9.0 on) barriers allow, with every resource that ties. Two
//! differences, because a trace says more than a source file: the recorded shared-memory carve-out of the launch is
//! used as the pool, and the recorded number of clusters that fit on the device caps the whole device.
//!
//! Partitioned global caching (compute capability 5.2, 5.3, 6.1, 6.2 with `-Xptxas -dlcm=ca`) confines a block to half
//! an SM. No trace records it: the calculator supports it, tables are made without.
//!
//! Theoretical occupancy is what an SM could hold, not what it held. Small grids, partial last waves, uneven blocks and
//! other tenants keep it lower.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};

use crate::base::error::Result;
use crate::base::maps::{Interner, NumberMap};
use crate::base::watch::Watch;
use crate::occupancy::solo_launch::{MeanWarps, SoloLaunch};
use crate::session::devices::{self as device, Capability};
use crate::table::builder::Builder;
use crate::table::columns::NameColumn;
use crate::table::columns::{at, Columns};
use crate::table::events::{EventPass, Events};
use crate::table::launch::{Folded, LikeRows, SharedKeys};
use crate::table::schema::{DEVICES, KERNELS, KERNEL_OCCUPANCY, TENANTS};

/// How the SM's memory is split between L1 and shared memory for a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Carveout {
    /// No preference: all of the SM's shared memory is the pool.
    #[default]
    Default,
    /// Preferred carve-out in percent of the maximum.
    Percent(u8),
    /// What the driver set (`shared_executed_bytes` of `kernels`); 0 counts as not recorded.
    ExecutedBytes(i64),
}

impl Carveout {
    /// That of a legacy cache preference (`cudaFuncCache`): 1 prefers shared memory, 2 L1, 3 both alike; anything else
    /// prefers nothing.
    #[must_use]
    pub fn of_cache_preference(preference: u32) -> Self {
        match preference {
            1 => Self::Percent(100),
            2 => Self::Percent(0),
            3 => Self::Percent(50),
            _ => Self::Default,
        }
    }
}

/// What a launch asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Launch {
    /// Threads in a block.
    pub block_threads: u32,
    /// Registers of a thread; 0 limits nothing.
    pub registers: u32,
    /// Static shared memory of a block, in bytes.
    pub static_shared: i64,
    /// Dynamic shared memory of a block, in bytes.
    pub dynamic_shared: i64,
    /// The pool that shared memory comes from.
    pub carveout: Carveout,
    /// Clusters that fit on the device, where recorded.
    pub max_active_clusters: Option<u32>,
    /// Blocks in a cluster; 0 and 1: no clusters.
    pub cluster_blocks: u32,
    /// Global loads are cached in an L1 that belongs to half an SM, where the chip has such a thing.
    pub partitioned_caching: bool,
}

/// What a device has: a row of the `devices` table, with the allocation rules of its compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Compute capability.
    pub capability: Option<(u32, u32)>,
    /// SMs.
    pub sm_count: Option<u32>,
    /// Resident warps of an SM.
    pub max_warps_per_sm: Option<u32>,
    /// Resident blocks of an SM.
    pub max_blocks_per_sm: Option<u32>,
    /// Threads in one block.
    pub max_threads_per_block: Option<u32>,
    /// Registers of an SM.
    pub registers_per_sm: Option<u32>,
    /// Registers of a block.
    pub registers_per_block: Option<u32>,
    /// Shared memory of an SM.
    pub shared_per_sm_bytes: Option<i64>,
    /// Shared memory of a block without opt-in.
    pub shared_per_block_bytes: Option<i64>,
    /// Shared memory of a block with opt-in.
    pub shared_per_block_optin_bytes: Option<i64>,
}

impl Limits {
    /// The limits of a compute capability as the tables have them.
    #[must_use]
    pub fn of_capability(major: u32, minor: u32) -> Self {
        let Some(c) = device::capability(major, minor) else {
            return Self { capability: Some((major, minor)), ..Self::default() };
        };
        Self {
            capability: Some((major, minor)),
            sm_count: None,
            max_warps_per_sm: c.max_warps_per_sm,
            max_blocks_per_sm: Some(c.max_blocks_per_sm),
            max_threads_per_block: Some(device::MAX_THREADS_PER_BLOCK),
            registers_per_sm: c.registers_per_sm,
            registers_per_block: c.registers_per_block,
            shared_per_sm_bytes: c.shared_per_sm_bytes,
            shared_per_block_bytes: c.shared_per_block_bytes,
            shared_per_block_optin_bytes: c.shared_per_block_optin_bytes,
        }
    }

    /// The limits of every device of a (completed) `devices` table, by device id.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for a wrong table.
    pub fn of_devices(devices: &RecordBatch) -> Result<BTreeMap<u32, Self>> {
        let c = Columns::new(&DEVICES, devices);
        let id = c.u32("device_id")?;
        let (major, minor) = (c.u32("compute_major")?, c.u32("compute_minor")?);
        let (sm_count, max_warps, max_blocks) =
            (c.u32("sm_count")?, c.u32("max_warps_per_sm")?, c.u32("max_blocks_per_sm")?);
        let max_threads = c.u32("max_threads_per_block")?;
        let (registers_per_sm, registers_per_block) =
            (c.u32("registers_per_sm")?, c.u32("registers_per_block")?);
        let (shared_per_sm, shared_per_block, shared_per_block_optin) = (
            c.i64("shared_per_sm_bytes")?,
            c.i64("shared_per_block_bytes")?,
            c.i64("shared_per_block_optin_bytes")?,
        );
        let limits = |row: usize| {
            let number = |column: &UInt32Array| at(column, row).filter(|v| *v > 0);
            let bytes = |column: &Int64Array| at(column, row).filter(|v| *v > 0);
            Self {
                capability: at(major, row).and_then(|m| Some((m, at(minor, row)?))),
                sm_count: number(sm_count),
                max_warps_per_sm: number(max_warps),
                max_blocks_per_sm: number(max_blocks),
                max_threads_per_block: number(max_threads),
                registers_per_sm: number(registers_per_sm),
                registers_per_block: number(registers_per_block),
                shared_per_sm_bytes: bytes(shared_per_sm),
                shared_per_block_bytes: bytes(shared_per_block),
                shared_per_block_optin_bytes: bytes(shared_per_block_optin),
            }
        };
        Ok((0..c.rows()).map(|row| (id.value(row), limits(row))).collect())
    }
}

/// A resource that may limit how many blocks fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limiter {
    /// Warp slots.
    Warps,
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
    /// Block slots.
    Blocks,
    /// Named barriers.
    Barriers,
    /// Clusters that fit on the device.
    Clusters,
}

impl Limiter {
    /// As it stands in `kernel_occupancy.limiters`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warps => "warps",
            Self::Registers => "registers",
            Self::Shared => "shared",
            Self::Blocks => "blocks",
            Self::Barriers => "barriers",
            Self::Clusters => "clusters",
        }
    }
}

/// What fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// Blocks on one SM at once; 0: the launch would fail.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// Blocks on the whole device at once; `None` without an SM count.
    pub device_blocks: Option<u64>,
    /// Every resource that ties at `blocks`. [`Limiter::Clusters`] is added where clusters hold fewer blocks
    /// on the device than its SMs could: then the others limit the SM and clusters the device.
    pub limiters: Vec<Limiter>,
}

/// Why it is not known what fits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No compute capability for the device.
    NoCapability,
    /// A compute capability whose allocation rules are not known.
    UnknownCapability(u32, u32),
    /// This limit of the device is not known.
    LimitUnknown(&'static str),
    /// This property of the launch is not recorded, or makes no sense.
    LaunchUnknown(&'static str),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCapability => write!(f, "the compute capability of the device is not known"),
            Self::UnknownCapability(a, b) => {
                write!(f, "allocation rules of compute capability {a}.{b} are not known")
            }
            Self::LimitUnknown(name) => write!(f, "{name} of the device is not known"),
            Self::LaunchUnknown(name) => write!(f, "no {name} recorded for the launch"),
        }
    }
}

fn round_up(value: i64, unit: i64) -> i64 {
    value.saturating_add(unit - 1) / unit * unit
}

/// The smallest carve-out that holds `bytes`; the largest where none does.
fn carveout_for(rules: &Capability, bytes: i64) -> Option<i64> {
    let sizes = || rules.carveouts_kib.iter().map(|kib| i64::from(*kib) * 1024);
    sizes().find(|size| *size >= bytes).or_else(|| sizes().next_back())
}

fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

/// Blocks that registers allow on an SM of `parts` sub-partitions.
fn blocks_by_registers(per_warp: i64, warps: i64, parts: i64, per_sm: i64, per_block: i64) -> i64 {
    if per_warp.saturating_mul(round_up(warps, parts)) > per_block {
        return 0;
    }
    (per_sm / parts / per_warp) * parts / warps
}

/// How many blocks of `launch` one SM holds, and which resources tie.
///
/// # Errors
/// [`Reason`], when the device or the launch is not known well enough.
pub fn blocks_per_sm(launch: &Launch, limits: &Limits) -> std::result::Result<Fit, Reason> {
    let (major, minor) = limits.capability.ok_or(Reason::NoCapability)?;
    let rules = device::capability(major, minor).ok_or(Reason::UnknownCapability(major, minor))?;
    let need = |value: Option<u32>, name| value.map(i64::from).ok_or(Reason::LimitUnknown(name));
    let max_warps = need(limits.max_warps_per_sm, "max_warps_per_sm")?;
    let max_blocks = need(limits.max_blocks_per_sm, "max_blocks_per_sm")?;
    let max_threads = need(limits.max_threads_per_block, "max_threads_per_block")?;
    if launch.block_threads == 0 {
        return Err(Reason::LaunchUnknown("block size"));
    }
    if launch.static_shared < 0 || launch.dynamic_shared < 0 {
        return Err(Reason::LaunchUnknown("shared memory"));
    }
    let threads = i64::from(launch.block_threads);
    let warps = round_up(threads, 32) / 32;
    // A block that fits no half SM turns partitioned caching off for itself.
    let mut halves = launch.partitioned_caching && matches!((major, minor), (5, 2 | 3) | (6, 1 | 2));
    let mut by_registers = None;
    if launch.registers > 0 {
        let per_sm = need(limits.registers_per_sm, "registers_per_sm")?;
        let per_block = need(limits.registers_per_block, "registers_per_block")?;
        let per_warp = round_up(i64::from(launch.registers) * 32, 256);
        let max_registers = if major < 7 { 255 } else { 256 };
        let parts = i64::from(rules.sub_partitions);
        let by_parts = |parts| blocks_by_registers(per_warp, warps, parts, per_sm, per_block);
        let mut fit = by_parts(parts);
        if halves {
            let in_half = (per_sm / parts / per_warp) * (parts / 2) / warps;
            halves = in_half > 0;
            fit = if halves { fit.min(2 * in_half) } else { fit };
        }
        // The header: on 6.0 a launch that 6.1 with its four sub-partitions could not hold fails as well.
        if i64::from(launch.registers) > max_registers || ((major, minor) == (6, 0) && by_parts(4) == 0) {
            fit = 0;
        }
        by_registers = Some((Limiter::Registers, fit));
    }
    let by_warps = if halves { max_warps / 2 / warps * 2 } else { max_warps / warps };
    let mut factors = vec![(Limiter::Warps, if threads > max_threads { 0 } else { by_warps })];
    factors.extend(by_registers);

    let asked = launch.static_shared.saturating_add(launch.dynamic_shared);
    if let Some(fit) = blocks_by_shared(asked, launch.carveout, &rules, limits)? {
        factors.push((Limiter::Shared, fit));
    }
    factors.push((Limiter::Blocks, max_blocks));
    if major >= 9 {
        // A block uses one barrier; kernels with more do not say so in a trace.
        factors.push((Limiter::Barriers, need(rules.barriers_per_sm, "barriers_per_sm")?));
    }

    let blocks = factors.iter().map(|f| f.1).min().unwrap_or(0);
    let mut limiters: Vec<Limiter> = factors.iter().filter(|f| f.1 == blocks).map(|f| f.0).collect();
    let mut device_blocks = limits.sm_count.map(|n| u64::from(count(blocks)) * u64::from(n));
    if let (Some(clusters), Some(all), true) =
        (launch.max_active_clusters, device_blocks, launch.cluster_blocks > 1)
    {
        let held = u64::from(clusters) * u64::from(launch.cluster_blocks);
        // 0 is what exports write where CUDA was not asked.
        if clusters > 0 && held < all {
            device_blocks = Some(held);
            limiters.push(Limiter::Clusters);
        }
    }
    Ok(Fit { blocks: count(blocks), warps: count(blocks * warps), device_blocks, limiters })
}

/// Blocks that shared memory allows; `None` where the launch uses none of it.
fn blocks_by_shared(
    asked: i64,
    carveout: Carveout,
    rules: &Capability,
    limits: &Limits,
) -> std::result::Result<Option<i64>, Reason> {
    let reserved = rules.shared_reserved_bytes;
    let alloc = round_up(asked.saturating_add(reserved), rules.shared_unit_bytes);
    if alloc == 0 {
        return Ok(None);
    }
    let per_block = limits.shared_per_block_bytes.ok_or(Reason::LimitUnknown("shared_per_block_bytes"))?;
    let full = limits.shared_per_sm_bytes.ok_or(Reason::LimitUnknown("shared_per_sm_bytes"))?;
    // A kernel that ran with more than 48 KiB had opted in: without, its launch would have failed.
    let cap = if asked.saturating_add(reserved) > per_block {
        limits.shared_per_block_optin_bytes.unwrap_or(per_block).max(per_block)
    } else {
        per_block
    };
    if alloc > cap.saturating_add(reserved) {
        return Ok(Some(0));
    }
    let mut pool = match carveout {
        Carveout::Percent(percent) if !rules.carveouts_kib.is_empty() => {
            carveout_for(rules, full * i64::from(percent.min(100)) / 100).unwrap_or(full)
        }
        Carveout::ExecutedBytes(bytes) if bytes > 0 => bytes,
        _ => full,
    };
    if pool < alloc {
        // The driver never runs a block in less than it needs.
        pool = carveout_for(rules, alloc).unwrap_or(full);
    }
    Ok(Some(pool.min(full) / alloc))
}

/// Answers for one device, each configuration computed once: programs launch the same ones again and again.
#[derive(Debug)]
pub struct Calculator {
    limits: Limits,
    known: NumberMap<Launch, usize>,
    fits: Vec<std::result::Result<Fit, Reason>>,
    last: Option<(Launch, usize)>,
}

impl Calculator {
    /// For a device.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, known: NumberMap::default(), fits: Vec::new(), last: None }
    }

    /// As [`blocks_per_sm`].
    ///
    /// # Errors
    /// [`Reason`], when the device or the launch is not known well enough.
    pub fn fit(&mut self, launch: &Launch) -> std::result::Result<&Fit, Reason> {
        let at = match self.last {
            Some((last, at)) if last == *launch => at,
            _ => {
                let (limits, fits) = (&self.limits, &mut self.fits);
                let at = *self.known.entry(*launch).or_insert_with(|| {
                    fits.push(blocks_per_sm(launch, limits));
                    fits.len() - 1
                });
                self.last = Some((*launch, at));
                at
            }
        };
        self.fits.get(at).map_or(Err(Reason::NoCapability), |fit| fit.as_ref().map_err(Clone::clone))
    }
}

/// Tenants by (capture, pid, device).
pub type TenantMap = BTreeMap<(u32, Option<u32>, u32), u32>;

/// Who is who, from the `tenants` table. Tenants that only samples show run no kernels and are left out.
///
/// # Errors
/// [`crate::Error::Schema`] for a wrong table.
pub fn tenant_map(tenants: &RecordBatch) -> Result<TenantMap> {
    let c = Columns::new(&TENANTS, tenants);
    let (id, device, capture, pid) =
        (c.u32("tenant_id")?, c.u32("device_id")?, c.u32("capture")?, c.u32("pid")?);
    let traced = c.bool("traced")?;
    Ok((0..c.rows())
        .filter(|row| traced.value(*row))
        .filter_map(|row| Some(((at(capture, row)?, at(pid, row), device.value(row)), id.value(row))))
        .collect())
}

/// The launch-shaped columns of `kernels`.
pub(crate) struct LaunchColumns<'a> {
    grid: [Folded<'a>; 3],
    block: [Folded<'a>; 3],
    cluster: [Folded<'a>; 3],
    registers: Folded<'a>,
    static_shared: Folded<'a, Int64Type>,
    dynamic_shared: Folded<'a, Int64Type>,
    executed: Folded<'a, Int64Type>,
    requested: Folded<'a, UInt8Type>,
    preference: Folded<'a, UInt8Type>,
    max_active_clusters: Folded<'a>,
    keys: SharedKeys<'a>,
}

/// Of the three sides of a grid or block; `None` where one is not known.
pub(crate) fn product(columns: &[Folded<'_>; 3], row: usize) -> Option<u64> {
    columns.iter().try_fold(1_u64, |all, column| all.checked_mul(u64::from(column.at(row)?)))
}

impl<'a> LaunchColumns<'a> {
    pub(crate) fn new(c: &Columns<'a>) -> Result<Self> {
        let mut columns = Self {
            grid: [c.folded("grid_x")?, c.folded("grid_y")?, c.folded("grid_z")?],
            block: [c.folded("block_x")?, c.folded("block_y")?, c.folded("block_z")?],
            cluster: [c.folded("cluster_x")?, c.folded("cluster_y")?, c.folded("cluster_z")?],
            registers: c.folded("registers_per_thread")?,
            static_shared: c.folded("static_shared_bytes")?,
            dynamic_shared: c.folded("dynamic_shared_bytes")?,
            executed: c.folded("shared_executed_bytes")?,
            requested: c.folded("shared_requested_percent")?,
            preference: c.folded("cache_preference")?,
            max_active_clusters: c.folded("max_active_clusters")?,
            keys: SharedKeys::of([]),
        };
        let [grid_x, grid_y, grid_z] = columns.grid.map(|column| column.keys());
        let [block_x, block_y, block_z] = columns.block.map(|column| column.keys());
        let [cluster_x, cluster_y, cluster_z] = columns.cluster.map(|column| column.keys());
        columns.keys = SharedKeys::of([
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            cluster_x,
            cluster_y,
            cluster_z,
            columns.registers.keys(),
            columns.static_shared.keys(),
            columns.dynamic_shared.keys(),
            columns.executed.keys(),
            columns.requested.keys(),
            columns.preference.keys(),
            columns.max_active_clusters.keys(),
        ]);
        Ok(columns)
    }

    /// The key that stands for the launch configuration of a row, if one does.
    pub(crate) fn key(&self, row: usize) -> Option<u16> {
        self.keys.at(row)
    }

    /// What the driver set, else what it was asked for, else what it was asked for in the old way.
    fn carveout(&self, row: usize) -> Carveout {
        if let Some(bytes) = self.executed.at(row).filter(|v| *v > 0) {
            return Carveout::ExecutedBytes(bytes);
        }
        match self.requested.at(row) {
            Some(percent) if percent <= 100 => Carveout::Percent(percent),
            _ => Carveout::of_cache_preference(u32::from(self.preference.at(row).unwrap_or(0))),
        }
    }

    pub(crate) fn read(&self, row: usize) -> Recorded {
        let clusters = product(&self.cluster, row).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        Recorded {
            grid_blocks: product(&self.grid, row).filter(|n| *n > 0),
            block_threads: product(&self.block, row).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
            registers: self.registers.at(row),
            static_shared: self.static_shared.at(row),
            dynamic_shared: self.dynamic_shared.at(row),
            carveout: self.carveout(row),
            cluster_blocks: clusters,
            max_active_clusters: self.max_active_clusters.at(row),
        }
    }
}

/// A launch configuration as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Recorded {
    pub(crate) grid_blocks: Option<u64>,
    pub(crate) block_threads: Option<u32>,
    registers: Option<u32>,
    static_shared: Option<i64>,
    dynamic_shared: Option<i64>,
    carveout: Carveout,
    cluster_blocks: u32,
    max_active_clusters: Option<u32>,
}

impl Recorded {
    /// The same without its grid, which decides how many waves but not what fits.
    pub(crate) fn shape(self) -> Self {
        Self { grid_blocks: None, ..self }
    }

    /// Launched in clusters of several blocks.
    pub(crate) fn clustered(&self) -> bool {
        self.cluster_blocks > 1
    }

    /// What fits of it; a launch that ran although by these limits it could not is not known well enough.
    pub(crate) fn fit(&self, limits: Option<&Limits>) -> std::result::Result<Fit, String> {
        let unknown = |name| Reason::LaunchUnknown(name).to_string();
        let launch = Launch {
            block_threads: self.block_threads.ok_or_else(|| unknown("block size"))?,
            registers: self.registers.ok_or_else(|| unknown("registers"))?,
            static_shared: self.static_shared.ok_or_else(|| unknown("static shared memory"))?,
            dynamic_shared: self.dynamic_shared.ok_or_else(|| unknown("dynamic shared memory"))?,
            carveout: self.carveout,
            max_active_clusters: self.max_active_clusters,
            cluster_blocks: self.cluster_blocks,
            partitioned_caching: false,
        };
        let limits = limits.ok_or_else(|| "the device is not known".to_owned())?;
        match blocks_per_sm(&launch, limits) {
            Ok(fit) if fit.blocks == 0 => {
                let by: Vec<_> = fit.limiters.iter().map(|l| l.as_str()).collect();
                Err(format!("it ran, but by the known limits no block fits ({})", by.join(", ")))
            }
            Ok(fit) => Ok(fit),
            Err(reason) => Err(reason.to_string()),
        }
    }
}

/// What decides how many blocks fit beside each other: warps, registers, shared memory, block slots.
pub(crate) type Resources = [u64; 4];

impl Limits {
    /// What an SM has; nothing where a limit is not known.
    pub(crate) fn resources(&self) -> Resources {
        [
            u64::from(self.max_warps_per_sm.unwrap_or(0)),
            u64::from(self.registers_per_sm.unwrap_or(0)),
            self.shared_per_sm_bytes.and_then(|v| u64::try_from(v).ok()).unwrap_or(0),
            u64::from(self.max_blocks_per_sm.unwrap_or(0)),
        ]
    }
}

impl Recorded {
    /// What one block takes of an SM; nothing of a resource whose limit is not known.
    pub(crate) fn footprint(&self, limits: &Limits) -> Option<Resources> {
        let (major, minor) = limits.capability?;
        let rules = device::capability(major, minor)?;
        let known = |value: i64| u64::try_from(value).ok();
        let warps = round_up(i64::from(self.block_threads?), 32) / 32;
        let registers = round_up(i64::from(self.registers?).saturating_mul(32), 256).saturating_mul(warps);
        let asked = self.static_shared?.saturating_add(self.dynamic_shared?);
        let shared =
            round_up(asked.saturating_add(rules.shared_reserved_bytes), rules.shared_unit_bytes.max(1));
        let mut asks = [known(warps)?, known(registers)?, known(shared)?, 1];
        for (ask, has) in asks.iter_mut().zip(limits.resources()) {
            *ask = if has == 0 { 0 } else { *ask };
        }
        Some(asks)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    device: u32,
    tenant: Option<u32>,
    name: Option<u32>,
    short_name: Option<u32>,
    launch: Recorded,
}

/// Device, tenant, dictionary keys of the name and the short name.
type SeenName = (u32, Option<u32>, Option<u32>, Option<u32>);

/// The `kernel_occupancy` table, one row per device, tenant, kernel and launch configuration.
#[derive(Debug)]
pub struct KernelOccupancy {
    limits: BTreeMap<u32, Limits>,
    tenants: TenantMap,
    names: Interner,
    groups: NumberMap<Key, (u64, i64)>,
}

impl KernelOccupancy {
    /// For the (completed) `devices` and the tenants of `kernels`.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for a wrong `devices` table.
    pub fn new(devices: &RecordBatch, tenants: TenantMap) -> Result<Self> {
        let limits = Limits::of_devices(devices)?;
        Ok(Self { limits, tenants, names: Interner::default(), groups: NumberMap::default() })
    }

    /// What a launch of this configuration holds on average when it runs by itself for its mean duration.
    #[allow(clippy::cast_precision_loss)] // durations are shorter than 2^53 ns
    fn mean_warps(&self, key: &Key, (launches, total_ns): (u64, i64), fit: &Fit) -> Option<MeanWarps> {
        let limits = self.limits.get(&key.device)?;
        let solo = SoloLaunch {
            grid_blocks: key.launch.grid_blocks?,
            block_warps: fit.warps.checked_div(fit.blocks)?,
            device_blocks: fit.device_blocks?,
            sm_count: limits.sm_count?,
            max_warps_per_sm: limits.max_warps_per_sm?,
            duration_ns: total_ns as f64 / launches as f64,
        };
        solo.mean_warps()
    }
}

impl EventPass for KernelOccupancy {
    type Output = RecordBatch;

    fn push(&mut self, events: &Events<'_>, watch: &dyn Watch) -> Result<()> {
        let Some(c) = events.get(&KERNELS) else { return Ok(()) };
        let launches = LaunchColumns::new(&c)?;
        let (capture, pid, device) = (c.u32("capture")?, c.u32("pid")?, c.u32("device_id")?);
        let (start, end) = (c.i64("start_ns")?, c.i64("end_ns")?);
        let (name, short) = (c.names("name")?, c.names("short_name")?);
        // A dictionary may hold a text twice: the text decides, looked up once per key.
        let mut long_ids: HashMap<u32, u32> = HashMap::new();
        let mut short_ids: HashMap<u32, u32> = HashMap::new();
        // Programs launch the same configurations again and again: most rows need no map.
        let mut recent: LikeRows<SeenName, Recorded> = LikeRows::default();
        let mut sums: Vec<(Key, u64, i64)> = Vec::new();
        let mut known = None;
        let total = c.rows() as u64;
        for row in 0..c.rows() {
            if row % 65_536 == 0 {
                watch.progress("kernel occupancy", row as u64, total)?;
            }
            let names = &mut self.names;
            let mut intern = |column: &NameColumn<'_>, ids: &mut HashMap<u32, u32>| {
                let key = column.key(row)?;
                let text = column.get(row)?;
                Some(*ids.entry(key).or_insert_with(|| names.id(text)))
            };
            let process = (capture.value(row), at(pid, row), device.value(row));
            let tenant = match known {
                Some((same, tenant)) if same == process => tenant,
                _ => {
                    let tenant = self.tenants.get(&process).copied();
                    known = Some((process, tenant));
                    tenant
                }
            };
            // By dictionary keys first; texts are compared once per configuration.
            let seen = (process.2, tenant, name.key(row), short.key(row));
            let place = recent.place(
                seen,
                launches.key(row),
                || launches.read(row),
                || {
                    let (name, short_name) = (intern(&name, &mut long_ids), intern(&short, &mut short_ids));
                    let (device, launch) = (process.2, launches.read(row));
                    sums.push((Key { device, tenant, name, short_name, launch }, 0, 0));
                    sums.len() - 1
                },
            );
            if let Some((_, count, sum_ns)) = sums.get_mut(place) {
                *count += 1;
                *sum_ns = sum_ns.saturating_add(end.value(row).saturating_sub(start.value(row)));
            }
        }
        for (key, count, sum_ns) in sums {
            let group = self.groups.entry(key).or_insert((0, 0));
            group.0 += count;
            group.1 = group.1.saturating_add(sum_ns);
        }
        watch.progress("kernel occupancy", total, total)
    }

    fn finish(self, watch: &dyn Watch) -> Result<RecordBatch> {
        watch.progress("kernel occupancy", 0, 0)?;
        let names = &self.names;
        let mut rows: Vec<(&Key, &(u64, i64))> = self.groups.iter().collect();
        // By text, not by number: numbers depend on the order in which names were first seen.
        rows.sort_by(|(a, x), (b, y)| {
            (a.device, a.tenant, -x.1, names.text(a.name), names.text(a.short_name), a.launch).cmp(&(
                b.device,
                b.tenant,
                -y.1,
                names.text(b.name),
                names.text(b.short_name),
                b.launch,
            ))
        });
        let mut cache: HashMap<(u32, Recorded), std::result::Result<Fit, String>> = HashMap::new();
        let fits: Vec<std::result::Result<Fit, String>> = rows
            .iter()
            .map(|(key, _)| {
                let launch = key.launch.shape();
                let limits = self.limits.get(&key.device);
                cache.entry((key.device, launch)).or_insert_with(|| launch.fit(limits)).clone()
            })
            .collect();
        let fit = || fits.iter().map(|f| f.as_ref().ok());
        let occupancy = |((key, _), fit): (&(&Key, _), &std::result::Result<Fit, String>)| {
            let max = self.limits.get(&key.device)?.max_warps_per_sm?;
            Some(f64::from(fit.as_ref().ok()?.warps) / f64::from(max))
        };
        #[allow(clippy::cast_precision_loss)] // grids and devices stay far below 2^53 blocks
        let waves = |((key, _), fit): (&(&Key, _), &std::result::Result<Fit, String>)| {
            Some(key.launch.grid_blocks? as f64 / fit.as_ref().ok()?.device_blocks? as f64)
        };
        let solo: Vec<Option<MeanWarps>> = rows
            .iter()
            .zip(&fits)
            .map(|((key, sums), fit)| self.mean_warps(key, **sums, fit.as_ref().ok()?))
            .collect();
        let shared = |k: &Key| Some(k.launch.static_shared?.saturating_add(k.launch.dynamic_shared?));
        // The driver sets a carve-out that holds the blocks which another resource allows, and takes some shared memory
        // for every block. Where the largest carve-out holds more, shared memory is no limit beside that resource.
        let limiters = rows.iter().zip(fit()).map(|((key, _), fit)| {
            let all = &fit?.limiters;
            let mut told: Vec<Limiter> = all.iter().copied().filter(|l| *l != Limiter::Shared).collect();
            let ample = || {
                let widest = Recorded { carveout: Carveout::Percent(100), ..key.launch.shape() };
                let fit = widest.fit(self.limits.get(&key.device));
                shared(key) == Some(0) || fit.is_ok_and(|fit| !fit.limiters.contains(&Limiter::Shared))
            };
            if told.is_empty() || (told.len() < all.len() && !ample()) {
                told.clone_from(all);
            }
            Some(told.iter().map(|l| l.as_str()).collect::<Vec<_>>().join(","))
        });
        Builder::new(&KERNEL_OCCUPANCY)
            .put("device_id", rows.iter().map(|r| r.0.device).collect::<UInt32Array>())
            .put("tenant_id", rows.iter().map(|r| r.0.tenant).collect::<UInt32Array>())
            .put_names("name", rows.iter().map(|r| names.text(r.0.name)))
            .put_names("short_name", rows.iter().map(|r| names.text(r.0.short_name)))
            .put("launches", rows.iter().map(|r| r.1 .0).collect::<UInt64Array>())
            .put("total_ns", rows.iter().map(|r| r.1 .1).collect::<Int64Array>())
            .put("grid_blocks", rows.iter().map(|r| r.0.launch.grid_blocks).collect::<UInt64Array>())
            .put("block_threads", rows.iter().map(|r| r.0.launch.block_threads).collect::<UInt32Array>())
            .put("registers_per_thread", rows.iter().map(|r| r.0.launch.registers).collect::<UInt32Array>())
            .put("shared_bytes", rows.iter().map(|r| shared(r.0)).collect::<Int64Array>())
            .put("blocks_per_sm", fit().map(|f| f.map(|f| f.blocks)).collect::<UInt32Array>())
            .put("warps_per_sm", fit().map(|f| f.map(|f| f.warps)).collect::<UInt32Array>())
            .put("occupancy", rows.iter().zip(&fits).map(occupancy).collect::<Float64Array>())
            .put("limiters", limiters.collect::<StringArray>())
            .put("waves", rows.iter().zip(&fits).map(waves).collect::<Float64Array>())
            .put("mean_warps_per_sm", solo.iter().map(|m| Some(m.as_ref()?.value)).collect::<Float64Array>())
            .put(
                "mean_warps_per_sm_low",
                solo.iter().map(|m| Some(m.as_ref()?.low)).collect::<Float64Array>(),
            )
            .put(
                "mean_warps_per_sm_high",
                solo.iter().map(|m| Some(m.as_ref()?.high)).collect::<Float64Array>(),
            )
            .put("reason", fits.iter().map(|f| f.as_ref().err().map(String::as_str)).collect::<StringArray>())
            .put_names("basis", rows.iter().map(|_| Some("modelled")))
            .finish(rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch::Unwatched;

    // Computed with NVIDIA's own occupancy calculator header (CUDA 13.5): blocks per SM and limiting factors
    // (w warps, r registers, s shared, b blocks, B barriers). Columns: block size, registers, static and
    // dynamic shared bytes, carve-out percent (-1: default), then one compute capability each.
    const VECTORS: &str = "
bs,regs,static,dyn,carve,cc3.5,cc5.2,cc6.0,cc6.1,cc7.0,cc7.5,cc8.0,cc8.6,cc8.9,cc9.0,cc10.0,cc10.3,cc12.0
32,16,0,0,-1,16b,32b,32b,32b,32b,16b,32b,16b,24b,32b,32b,32bB,24bB
64,32,0,0,-1,16b,32wrb,32wrb,32wrb,32wrb,16wb,32wrb,16b,24wb,32wrb,32wrb,32wrbB,24wbB
96,40,0,0,-1,16rb,16r,16r,16r,16r,10w,16r,16wrb,16wr,16r,16r,16r,16wr
128,32,0,0,-1,16wrb,16wr,16wr,16wr,16wr,8w,16wr,12w,12w,16wr,16wr,16wr,12w
128,96,0,0,-1,5r,5r,5r,5r,5r,5r,5r,5r,5r,5r,5r,5r,5r
192,56,0,0,-1,6r,6r,6r,6r,6r,5w,6r,6r,6r,6r,6r,6r,6r
256,32,0,0,-1,8wr,8wr,8wr,8wr,8wr,4w,8wr,6w,6w,8wr,8wr,8wr,6w
256,64,0,0,-1,4r,4r,4r,4r,4r,4wr,4r,4r,4r,4r,4r,4r,4r
256,128,4096,0,-1,2r,2r,2r,2r,2r,2r,2r,2r,2r,2r,2r,2r,2r
256,168,0,0,-1,1r,1r,1r,1r,1r,1r,1r,1r,1r,1r,1r,1r,1r
384,80,0,48128,-1,1s,2rs,1s,2rs,2rs,1s,2r,2rs,2rs,2r,2r,2r,2rs
512,63,0,0,-1,2r,2r,2r,2r,2r,2wr,2r,2r,2r,2r,2r,2r,2r
512,128,16384,0,-1,1r,1r,1r,1r,1r,1r,1r,1r,1r,1r,1r,1r,1r
1024,32,0,0,-1,2wr,2wr,2wr,2wr,2wr,1w,2wr,1w,1w,2wr,2wr,2wr,1w
1024,64,0,0,-1,1r,1r,1r,1r,1r,1wr,1r,1wr,1wr,1r,1r,1r,1wr
1024,65,0,0,-1,0r,0r,0r,0r,0r,0r,0r,0r,0r,0r,0r,0r,0r
128,255,0,0,-1,2r,2r,2r,2r,2r,2r,2r,2r,2r,2r,2r,2r,2r
128,40,1,0,-1,12r,12r,12r,12r,12r,8w,12r,12wr,12wr,12r,12r,12r,12wr
128,40,10240,0,-1,4s,9s,6s,9s,9s,6s,12r,9s,9s,12r,12r,12r,9s
128,40,10240,0,50,4s,9s,6s,9s,6s,3s,9s,5s,5s,12rs,12rs,12rs,5s
128,40,10240,0,0,4s,9s,6s,9s,1s,3s,1s,1s,1s,1s,1s,1s,1s
128,168,0,98304,-1,0s,0s,0s,0s,1s,0s,1s,1s,1s,2s,2s,2s,1s
384,168,0,204800,-1,0s,0s,0s,0s,0s,0s,0s,0s,0s,1rs,1rs,1rs,0s
33,33,0,0,-1,16b,24r,25r,24r,24r,16wb,24r,16b,24wrb,24r,24r,24r,24wrbB
160,72,100,3000,-1,5r,5r,5r,5r,5r,5r,5r,5r,5r,5r,5r,5r,5r
736,40,0,0,-1,2wr,2wr,2wr,2wr,2wr,1w,2wr,2wr,2wr,2wr,2wr,2wr,2wr";

    #[test]
    fn nvidias_own_answers() {
        let mut lines = VECTORS.trim().lines();
        let capabilities: Vec<(u32, u32)> = lines
            .next()
            .unwrap()
            .split(',')
            .skip(5)
            .map(|c| c.trim_start_matches("cc").split_once('.').unwrap())
            .map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()))
            .collect();
        let mut checked = 0;
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let n = |i: usize| cells[i].parse::<i64>().unwrap();
            let launch = Launch {
                block_threads: n(0) as u32,
                registers: n(1) as u32,
                static_shared: n(2),
                dynamic_shared: n(3),
                carveout: u8::try_from(n(4)).map_or(Carveout::Default, Carveout::Percent),
                ..Launch::default()
            };
            for (cell, (major, minor)) in cells[5..].iter().zip(&capabilities) {
                let fit = blocks_per_sm(&launch, &Limits::of_capability(*major, *minor)).unwrap();
                let letters: String = fit
                    .limiters
                    .iter()
                    .map(|l| match l {
                        Limiter::Warps => 'w',
                        Limiter::Registers => 'r',
                        Limiter::Shared => 's',
                        Limiter::Blocks => 'b',
                        Limiter::Barriers => 'B',
                        Limiter::Clusters => 'c',
                    })
                    .collect();
                assert_eq!(format!("{}{letters}", fit.blocks), *cell, "{line} on {major}.{minor}");
                checked += 1;
            }
        }
        assert_eq!(checked, 26 * 13);
    }

    #[test]
    fn the_recorded_carve_out_is_the_pool() {
        // 10 KiB + 1 KiB reserved a block in 32 KiB: 2; all 164 KiB would hold 14 and warps/registers 12.
        let mut launch =
            Launch { block_threads: 128, registers: 40, static_shared: 10240, ..Launch::default() };
        let limits = Limits::of_capability(8, 0);
        assert_eq!(blocks_per_sm(&launch, &limits).unwrap().blocks, 12);
        launch.carveout = Carveout::ExecutedBytes(32 * 1024);
        assert_eq!(blocks_per_sm(&launch, &limits).unwrap().blocks, 2);
        // A carve-out that cannot hold one block is raised to the next that can (16 KiB): one block.
        launch.carveout = Carveout::ExecutedBytes(8 * 1024);
        assert_eq!(blocks_per_sm(&launch, &limits).unwrap().blocks, 1);
    }

    #[test]
    fn a_cache_preference_is_a_carve_out() {
        // 10 KiB + 1 KiB reserved a block on 8.6 (carve-outs 0, 8, 16, 32, 64, 100): all 100 KiB hold 9, the 64 KiB of
        // "both alike" 5, and no carve-out that is smaller than a block is ever used: 16 KiB hold one.
        let limits = Limits::of_capability(8, 6);
        let fit = |preference| {
            let carveout = Carveout::of_cache_preference(preference);
            let launch = Launch {
                block_threads: 128,
                registers: 40,
                static_shared: 10240,
                carveout,
                ..Launch::default()
            };
            blocks_per_sm(&launch, &limits).unwrap().blocks
        };
        assert_eq!([0, 1, 2, 3].map(fit), [9, 9, 1, 5]);
    }

    #[test]
    fn partitioned_caching_keeps_a_block_in_half_an_sm() {
        let fit = |threads, registers, capability: (u32, u32)| {
            let launch =
                Launch { block_threads: threads, registers, partitioned_caching: true, ..Launch::default() };
            blocks_per_sm(&launch, &Limits::of_capability(capability.0, capability.1)).unwrap().blocks
        };
        // 20 warps: 64 slots hold 3, a half of 32 one.
        assert_eq!((fit(640, 32, (5, 2)), fit(640, 32, (5, 0)), fit(640, 32, (6, 1))), (2, 3, 2));
        // 16 warps of 40 registers: 12 to a sub-partition, 24 to a half, one block each; 48 in all, 3 blocks.
        assert_eq!((fit(512, 40, (6, 2)), fit(512, 40, (6, 0))), (2, 3));
        // 32 warps of 40 registers fit no half: caching is turned off, 48 warps hold one.
        assert_eq!(fit(1024, 40, (6, 1)), 1);
    }

    #[test]
    fn every_capability_up_to_12_1_has_rules_and_others_say_that_they_have_none() {
        let launch = Launch { block_threads: 256, registers: 32, ..Launch::default() };
        // 8 warps a block, 64, 48 or 32 slots; 65536 / (32 * 32 * 8) = 8 blocks by registers (16 on 3.7, blocks 16).
        let known = [
            ((3, 5), 8),
            ((3, 7), 8),
            ((5, 0), 8),
            ((5, 2), 8),
            ((5, 3), 8),
            ((6, 0), 8),
            ((6, 1), 8),
            ((6, 2), 8),
            ((7, 0), 8),
            ((7, 2), 8),
            ((7, 5), 4),
            ((8, 0), 8),
            ((8, 6), 6),
            ((8, 7), 6),
            ((8, 9), 6),
            ((9, 0), 8),
            ((10, 0), 8),
            ((10, 3), 8),
            ((11, 0), 6),
            ((12, 0), 6),
            ((12, 1), 6),
        ];
        for ((major, minor), blocks) in known {
            let fit = blocks_per_sm(&launch, &Limits::of_capability(major, minor)).unwrap();
            assert_eq!(fit.blocks, blocks, "{major}.{minor}");
        }
        for (major, minor) in [(3, 0), (8, 8), (12, 2), (13, 0)] {
            let none = blocks_per_sm(&launch, &Limits::of_capability(major, minor));
            assert_eq!(none, Err(Reason::UnknownCapability(major, minor)));
        }
    }

    #[test]
    fn clusters_cap_the_device() {
        let limits = Limits { sm_count: Some(132), ..Limits::of_capability(9, 0) };
        let launch = Launch {
            block_threads: 1024,
            registers: 32,
            max_active_clusters: Some(14),
            cluster_blocks: 16,
            ..Launch::default()
        };
        let fit = blocks_per_sm(&launch, &limits).unwrap();
        assert_eq!((fit.blocks, fit.device_blocks), (2, Some(14 * 16)));
        assert!(fit.limiters.contains(&Limiter::Clusters));
        let free = blocks_per_sm(&Launch { max_active_clusters: None, ..launch }, &limits).unwrap();
        assert_eq!(free.device_blocks, Some(264));
    }

    #[test]
    fn what_is_not_known_is_a_reason() {
        let launch = Launch { block_threads: 128, registers: 32, ..Launch::default() };
        assert_eq!(blocks_per_sm(&launch, &Limits::default()), Err(Reason::NoCapability));
        assert_eq!(
            blocks_per_sm(&launch, &Limits::of_capability(13, 0)),
            Err(Reason::UnknownCapability(13, 0))
        );
        assert_eq!(
            blocks_per_sm(&launch, &Limits::of_capability(10, 1)),
            Err(Reason::LimitUnknown("max_warps_per_sm"))
        );
        let none = Launch::default();
        assert_eq!(
            blocks_per_sm(&none, &Limits::of_capability(8, 0)),
            Err(Reason::LaunchUnknown("block size"))
        );
    }

    #[test]
    fn launches_are_grouped_by_configuration() {
        use crate::table::events::Tables;
        let devices = Builder::new(&DEVICES)
            .put("device_id", UInt32Array::from(vec![0]))
            .put("capture", UInt32Array::from(vec![0]))
            .put("name", StringArray::from(vec!["NVIDIA A100-SXM4-40GB"]))
            .put_names("limits_basis", [Some("capture")])
            .finish(1)
            .unwrap();
        let devices = device::complete(&devices, &mut crate::table::quality::Quality::default()).unwrap();
        let n = |v: [u32; 4]| UInt32Array::from(v.to_vec());
        let zero = || Int64Array::from(vec![0; 4]);
        // a a b ?: two equal launches of 216 blocks of 256 threads, one other kernel, one without block size.
        let kernels = Builder::new(&KERNELS)
            .put("capture", n([0; 4]))
            .put("pid", n([7; 4]))
            .put("device_id", n([0; 4]))
            .put("start_ns", Int64Array::from(vec![0, 10, 20, 30]))
            .put("end_ns", Int64Array::from(vec![5, 15, 21, 31]))
            .put_names("name", ["a", "a", "b", "c"].map(Some))
            .put("grid_x", n([216, 216, 1, 1]))
            .put("grid_y", n([1; 4]))
            .put("grid_z", n([1; 4]))
            .put("block_x", UInt32Array::from(vec![Some(256), Some(256), Some(32), None]))
            .put("block_y", n([1; 4]))
            .put("block_z", n([1; 4]))
            .put("registers_per_thread", n([32, 32, 16, 16]))
            .put("static_shared_bytes", zero())
            .put("dynamic_shared_bytes", zero())
            .finish(4)
            .unwrap();
        let tables: Tables = [("kernels", kernels)].into();
        let tenants: TenantMap = [((0, Some(7), 0), 3)].into();
        let pass = KernelOccupancy::new(&devices, tenants.clone()).unwrap();
        let out = pass.run(&tables, &Unwatched).unwrap();
        let c = Columns::new(&KERNEL_OCCUPANCY, &out);
        assert_eq!(c.rows(), 3);
        assert_eq!(c.names("name").unwrap().get(0), Some("a"));
        assert_eq!((c.u64("launches").unwrap().value(0), c.i64("total_ns").unwrap().value(0)), (2, 10));
        assert_eq!((c.u32("blocks_per_sm").unwrap().value(0), c.u32("tenant_id").unwrap().value(0)), (8, 3));
        assert_eq!(c.f64("occupancy").unwrap().value(0), 1.0);
        // 216 blocks where 8 x 108 fit.
        assert_eq!(c.f64("waves").unwrap().value(0), 0.25);
        assert_eq!(c.text("limiters").unwrap().value(0), "warps,registers");
        let unknown = (0..3).find(|r| c.names("name").unwrap().get(*r) == Some("c")).unwrap();
        assert_eq!(c.text("reason").unwrap().value(unknown), "no block size recorded for the launch");
        assert_eq!(at(c.u32("blocks_per_sm").unwrap(), unknown), None);
    }
}
