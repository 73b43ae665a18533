//! Limits of GPUs where the capture does not state them.
//!
//! Limits per compute capability, SM counts of known products, MIG profiles, and the two kinds of device name that
//! carry meaning (MIG instance, vGPU guest). What a capture says always wins. A figure stands here only where its
//! source states it, and is `None` where the source has a question mark or sources disagree.
//!
//! Sources: the CUDA occupancy calculator header of CUDA 13.5 (blocks, shared-memory configurations and units,
//! barriers, sub-partitions), the CUDA programming guide (warps, registers, shared memory), NVIDIA's product pages (SM
//! counts) and the NVIDIA MIG user guide (profiles).

use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{BooleanArray, PrimitiveArray, RecordBatch, StringArray};

use crate::base::error::Result;
use crate::table::builder::{self, Builder};
use crate::table::columns::Columns;
use crate::table::columns::{at, text_at};
use crate::table::quality::{self, Quality};
use crate::table::schema::DEVICES;

const KIB: i64 = 1024;
const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;

/// Limits of one compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// Compute capability, major.
    pub major: u32,
    /// Compute capability, minor.
    pub minor: u32,
    /// Resident warps of an SM; `None` where the sources leave it open.
    pub max_warps_per_sm: Option<u32>,
    /// Resident blocks of an SM.
    pub max_blocks_per_sm: u32,
    /// 32-bit registers of an SM.
    pub registers_per_sm: Option<u32>,
    /// 32-bit registers that one block may use.
    pub registers_per_block: Option<u32>,
    /// Shared memory of an SM.
    pub shared_per_sm_bytes: Option<i64>,
    /// Shared memory of a block without opt-in.
    pub shared_per_block_bytes: Option<i64>,
    /// Shared memory of a block with opt-in; equal to the former where there is none.
    pub shared_per_block_optin_bytes: Option<i64>,
    /// Shared-memory carve-outs of an SM in KiB, ascending; empty where they cannot be chosen.
    pub carveouts_kib: &'static [u32],
    /// Shared memory is allocated in units of this.
    pub shared_unit_bytes: i64,
    /// Shared memory that the driver takes of every block.
    pub shared_reserved_bytes: i64,
    /// Named barriers of an SM; they limit blocks from compute capability 9.0 on.
    pub barriers_per_sm: Option<u32>,
    /// Parts of an SM that each own a share of the registers.
    pub sub_partitions: u32,
}

const C_VOLTA: &[u32] = &[0, 8, 16, 32, 64, 96];
const C_TURING: &[u32] = &[32, 64];
const C_164: &[u32] = &[0, 8, 16, 32, 64, 100, 132, 164];
const C_100: &[u32] = &[0, 8, 16, 32, 64, 100];
const C_228: &[u32] = &[0, 8, 16, 32, 64, 100, 132, 164, 196, 228];
// The header's list for 10.7 goes on to 328; only its end is known to us, so that it serves no carve-out.
const C_NONE: &[u32] = &[];

/// Threads in one block, on every compute capability so far.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;

// One line per compute capability, in the order of the header: version, warps, blocks, K registers,
// K registers of a block, shared KiB, block KiB, opt-in KiB, carve-outs, unit, reserved, barriers, parts.
#[rustfmt::skip]
#[allow(clippy::type_complexity)]
const ROWS: &[((u32, u32), Option<u32>, u32, Option<u32>, Option<u32>, Option<i64>, Option<i64>, Option<i64>, &[u32], i64, i64, Option<u32>, u32)] = &[
    ((3, 5),  Some(64), 16, Some(64),  Some(64), Some(48),  Some(48), Some(48),  C_NONE,   256, 0,    None,     4),
    ((3, 7),  Some(64), 16, Some(128), Some(64), Some(112), Some(48), Some(48),  C_NONE,   256, 0,    None,     4),
    ((5, 0),  Some(64), 32, Some(64),  Some(64), Some(64),  Some(48), Some(48),  C_NONE,   256, 0,    Some(64), 4),
    ((5, 2),  Some(64), 32, Some(64),  Some(64), Some(96),  Some(48), Some(48),  C_NONE,   256, 0,    Some(64), 4),
    ((5, 3),  Some(64), 32, Some(64),  Some(32), Some(64),  Some(48), Some(48),  C_NONE,   256, 0,    Some(64), 4),
    ((6, 0),  Some(64), 32, Some(64),  Some(64), Some(64),  Some(48), Some(48),  C_NONE,   256, 0,    Some(64), 2),
    ((6, 1),  Some(64), 32, Some(64),  Some(64), Some(96),  Some(48), Some(48),  C_NONE,   256, 0,    Some(64), 4),
    ((6, 2),  Some(64), 32, Some(64),  Some(32), Some(64),  Some(48), Some(48),  C_NONE,   256, 0,    Some(64), 4),
    ((7, 0),  Some(64), 32, Some(64),  Some(64), Some(96),  Some(48), Some(96),  C_VOLTA,  256, 0,    Some(64), 4),
    ((7, 2),  Some(64), 32, Some(64),  Some(64), Some(96),  Some(48), Some(96),  C_VOLTA,  256, 0,    Some(64), 4),
    ((7, 5),  Some(32), 16, Some(64),  Some(64), Some(64),  Some(48), Some(64),  C_TURING, 256, 0,    Some(32), 4),
    ((8, 0),  Some(64), 32, Some(64),  Some(64), Some(164), Some(48), Some(163), C_164,    128, 1024, Some(64), 4),
    ((8, 6),  Some(48), 16, Some(64),  Some(64), Some(100), Some(48), Some(99),  C_100,    128, 1024, Some(16), 4),
    ((8, 7),  Some(48), 16, Some(64),  Some(64), Some(164), Some(48), Some(163), C_164,    128, 1024, Some(16), 4),
    ((8, 9),  Some(48), 24, Some(64),  Some(64), Some(100), Some(48), Some(99),  C_100,    128, 1024, Some(24), 4),
    ((9, 0),  Some(64), 32, Some(64),  Some(64), Some(228), Some(48), Some(227), C_228,    128, 1024, Some(64), 4),
    ((10, 0), Some(64), 32, Some(64),  Some(64), Some(228), Some(48), Some(227), C_228,    128, 1024, Some(64), 4),
    // 10.1: public figures for the warps (48) are doubtful.
    ((10, 1), None,     24, Some(64),  Some(64), Some(228), Some(48), Some(227), C_228,    128, 1024, Some(24), 4),
    ((10, 3), Some(64), 32, Some(64),  Some(64), Some(228), Some(48), Some(227), C_228,    128, 1024, Some(32), 4),
    // 10.7: in the header only.
    ((10, 7), None,     16, None,      None,     Some(328), None,     None,      C_NONE,   128, 1024, Some(16), 4),
    ((11, 0), Some(48), 24, Some(64),  Some(64), Some(228), Some(48), Some(227), C_228,    128, 1024, Some(24), 4),
    ((12, 0), Some(48), 24, Some(64),  Some(64), Some(100), Some(48), Some(99),  C_100,    128, 1024, Some(24), 4),
    ((12, 1), Some(48), 24, Some(64),  Some(64), Some(100), Some(48), Some(99),  C_100,    128, 1024, Some(24), 4),
];

/// The limits of a compute capability; `None` for one that is not in the table: newer limits are not guessed.
#[must_use]
pub fn capability(major: u32, minor: u32) -> Option<Capability> {
    let row = ROWS.iter().find(|row| row.0 == (major, minor))?;
    Some(Capability {
        major,
        minor,
        max_warps_per_sm: row.1,
        max_blocks_per_sm: row.2,
        registers_per_sm: row.3.map(|k| k * 1024),
        registers_per_block: row.4.map(|k| k * 1024),
        shared_per_sm_bytes: row.5.map(|k| k * KIB),
        shared_per_block_bytes: row.6.map(|k| k * KIB),
        shared_per_block_optin_bytes: row.7.map(|k| k * KIB),
        carveouts_kib: row.8,
        shared_unit_bytes: row.9,
        shared_reserved_bytes: row.10,
        barriers_per_sm: row.11,
        sub_partitions: row.12,
    })
}

/// The compute capability of a chip, by the name that nsys exports (`GA102`).
#[must_use]
pub fn capability_of_chip(chip: &str) -> Option<(u32, u32)> {
    Some(match chip.trim().to_ascii_uppercase().as_str() {
        "GK110" | "GK110B" => (3, 5),
        "GK210" => (3, 7),
        "GM107" | "GM108" => (5, 0),
        "GM200" | "GM204" | "GM206" => (5, 2),
        "GM20B" => (5, 3),
        "GP100" => (6, 0),
        "GP102" | "GP104" | "GP106" | "GP107" | "GP108" => (6, 1),
        "GP10B" => (6, 2),
        "GV100" => (7, 0),
        "GV11B" => (7, 2),
        "TU102" | "TU104" | "TU106" | "TU116" | "TU117" => (7, 5),
        "GA100" => (8, 0),
        "GA102" | "GA103" | "GA104" | "GA106" | "GA107" => (8, 6),
        "GA10B" => (8, 7),
        "AD102" | "AD103" | "AD104" | "AD106" | "AD107" => (8, 9),
        "GH100" => (9, 0),
        "GB100" => (10, 0),
        "GB202" | "GB203" | "GB205" | "GB206" | "GB207" => (12, 0),
        _ => return None,
    })
}

/// A product whose name settles its compute capability, and its SM count where sources agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Name without maker, brand and memory size.
    pub name: &'static str,
    /// Compute capability.
    pub capability: (u32, u32),
    /// SMs of the whole board; `None` where sources disagree.
    pub sm_count: Option<u32>,
    /// Memory of the whole board; `None` where it is sold with several sizes, of which the name says one.
    pub memory_gib: Option<u32>,
}

const fn product(
    name: &'static str,
    capability: (u32, u32),
    sm_count: Option<u32>,
    memory_gib: Option<u32>,
) -> Product {
    Product { name, capability, sm_count, memory_gib }
}

// The words of the name, lower case, in this order; what may follow is in `harmless`.
const PRODUCTS: &[Product] = &[
    product("p100", (6, 0), Some(56), None),
    product("v100", (7, 0), Some(80), None),
    product("t4", (7, 5), Some(40), Some(16)),
    product("rtx 2080 ti", (7, 5), Some(68), Some(11)),
    product("quadro rtx 6000", (7, 5), Some(72), Some(24)),
    product("a100", (8, 0), Some(108), None),
    product("a30", (8, 0), Some(56), Some(24)),
    product("a10", (8, 6), Some(72), Some(24)),
    product("a10g", (8, 6), Some(80), Some(24)),
    product("a40", (8, 6), Some(84), Some(48)),
    product("rtx a6000", (8, 6), Some(84), Some(48)),
    product("rtx a5000", (8, 6), Some(64), Some(24)),
    product("rtx 3070", (8, 6), Some(46), Some(8)),
    product("rtx 3090", (8, 6), Some(82), Some(24)),
    product("rtx 6000 ada generation", (8, 9), Some(142), Some(48)),
    product("rtx 4060 ti", (8, 9), Some(34), None),
    product("l4", (8, 9), Some(58), Some(24)),
    product("l40", (8, 9), Some(142), Some(48)),
    product("l40s", (8, 9), Some(142), Some(48)),
    product("rtx 4090", (8, 9), Some(128), Some(24)),
    product("h100 pcie", (9, 0), Some(114), Some(80)),
    // Public tables say 132 and 114.
    product("h100 nvl", (9, 0), None, None),
    product("h100", (9, 0), Some(132), None),
    product("h200", (9, 0), Some(132), Some(141)),
    product("gh200", (9, 0), Some(132), None),
    product("h20", (9, 0), Some(78), None),
    // Another die of GB200 than of B200.
    product("gb200", (10, 0), Some(152), None),
    product("b200", (10, 0), Some(148), None),
    // Public tables say 148, 158 and 160.
    product("b300", (10, 3), None, None),
    product("rtx 5090", (12, 0), Some(170), Some(32)),
    product("rtx pro 6000 blackwell", (12, 0), Some(188), Some(96)),
];

/// Words that do not change which chip a name means. Everything else does: `Laptop`, `D`, `Max-Q`, `MIG`, `4Q`.
fn harmless(word: &str) -> bool {
    let memory =
        word.strip_suffix("gb").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    memory
        || matches!(
            word,
            "sxm" | "sxm2" | "sxm3" | "sxm4" | "sxm5" | "sxm6" | "pcie" | "hbm2" | "hbm2e" | "hbm3" | "hbm3e"
        )
}

/// The words of a product name without the maker and brand.
fn words(name: &str) -> Vec<String> {
    name.split(|c: char| c.is_whitespace() || c == '-')
        .map(str::to_ascii_lowercase)
        .filter(|w| !w.is_empty() && !matches!(w.as_str(), "nvidia" | "tesla" | "geforce" | "grid"))
        .collect()
}

/// The product of that name. MIG instances, vGPU guests, laptop and cut-down variants are none.
#[must_use]
pub fn product_of_name(name: &str) -> Option<&'static Product> {
    let mut words = words(name);
    if words.first().is_some_and(|w| w == "rtx") {
        // `NVIDIA RTX PRO 6000 Blackwell Server Edition`: three editions, the same 188 SMs, Max-Q too.
        words.retain(|w| !matches!(w.as_str(), "server" | "workstation" | "edition" | "max" | "q"));
        if !words.iter().any(|w| w == "blackwell") && name.to_ascii_lowercase().contains("max-q") {
            return None;
        }
    }
    // `H100 80GB HBM3` is the SXM board, `H100 PCIe` another one: an exact word order decides first.
    if words.first().is_some_and(|w| w == "h100") {
        if words.iter().any(|w| w == "pcie") {
            words.retain(|w| w != "pcie");
            words.insert(1, "pcie".to_owned());
        } else if let Some(at) = words.iter().position(|w| w == "nvl") {
            let nvl = words.remove(at);
            words.insert(1, nvl);
        } else if words.len() == 1 {
            // A bare `H100` may be any of three boards.
            return None;
        }
    }
    PRODUCTS
        .iter()
        .filter(|p| {
            let wanted: Vec<&str> = p.name.split(' ').collect();
            words.len() >= wanted.len()
                && words.iter().zip(&wanted).all(|(a, b)| a == b)
                && words.iter().skip(wanted.len()).all(|w| harmless(w))
        })
        .max_by_key(|p| p.name.len())
}

/// One MIG profile of one GPU family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MigProfile {
    /// GPU family with its memory, such as `H100-80`.
    pub gpu: &'static str,
    /// Name without attributes, such as `3g.40gb`.
    pub profile: &'static str,
    /// Part of the board's memory.
    pub memory_fraction: Option<f64>,
    /// SMs; not proportional to the slices.
    pub sm_count: Option<u32>,
    /// Copy engines.
    pub copy_engines: Option<u32>,
    /// How many fit on one board.
    pub max_instances: Option<u32>,
    /// Stated by the MIG user guide; otherwise from public listings only.
    pub verified: bool,
}

type MigRow = (&'static str, &'static str, Option<f64>, Option<u32>, Option<u32>, Option<u32>, bool);

#[rustfmt::skip]
const MIG_ROWS: &[MigRow] = &[
    ("A30", "1g.6gb", Some(0.25), Some(14), Some(1), Some(4), true),
    ("A30", "2g.12gb", Some(0.5), Some(28), Some(2), Some(2), true),
    ("A30", "4g.24gb", Some(1.0), Some(56), Some(4), Some(1), true),
    ("A100-40", "1g.5gb", Some(0.125), Some(14), Some(1), Some(7), true),
    ("A100-40", "1g.10gb", Some(0.25), Some(14), Some(1), Some(4), true),
    ("A100-40", "2g.10gb", Some(0.25), Some(28), Some(2), Some(3), true),
    ("A100-40", "3g.20gb", Some(0.5), Some(42), Some(3), Some(2), true),
    ("A100-40", "4g.20gb", Some(0.5), Some(56), Some(4), Some(1), true),
    ("A100-40", "7g.40gb", Some(1.0), Some(98), Some(7), Some(1), true),
    ("A100-80", "1g.10gb", Some(0.125), Some(14), Some(1), Some(7), true),
    ("A100-80", "1g.20gb", Some(0.25), Some(14), Some(1), Some(4), true),
    ("A100-80", "2g.20gb", Some(0.25), Some(28), Some(2), Some(3), true),
    ("A100-80", "3g.40gb", Some(0.5), Some(42), Some(3), Some(2), true),
    ("A100-80", "4g.40gb", Some(0.5), Some(56), Some(4), Some(1), true),
    ("A100-80", "7g.80gb", Some(1.0), Some(98), Some(7), Some(1), true),
    ("H100-80", "1g.10gb", Some(0.125), Some(16), Some(1), Some(7), true),
    ("H100-80", "1g.20gb", Some(0.25), Some(26), Some(1), Some(4), true),
    ("H100-80", "2g.20gb", Some(0.25), Some(32), Some(2), Some(3), true),
    ("H100-80", "3g.40gb", Some(0.5), Some(60), Some(3), Some(2), true),
    ("H100-80", "4g.40gb", Some(0.5), Some(64), Some(4), Some(1), true),
    ("H100-80", "7g.80gb", Some(1.0), Some(132), Some(8), Some(1), true),
    ("H100-94", "1g.12gb", Some(0.125), Some(16), Some(1), Some(7), true),
    ("H100-94", "1g.24gb", Some(0.25), Some(26), Some(1), Some(4), true),
    ("H100-94", "2g.24gb", Some(0.25), Some(32), Some(2), Some(3), true),
    ("H100-94", "3g.47gb", Some(0.5), Some(60), Some(3), Some(2), true),
    ("H100-94", "4g.47gb", Some(0.5), Some(64), Some(4), Some(1), true),
    ("H100-94", "7g.94gb", Some(1.0), Some(132), Some(8), Some(1), true),
    ("H100-96", "1g.12gb", Some(0.125), Some(16), None, None, false),
    ("H100-96", "1g.24gb", Some(0.25), None, None, None, false),
    ("H100-96", "2g.24gb", Some(0.25), Some(32), None, None, false),
    ("H100-96", "3g.48gb", Some(0.5), Some(60), None, None, false),
    ("H100-96", "4g.48gb", Some(0.5), Some(64), None, None, false),
    ("H100-96", "7g.96gb", Some(1.0), Some(132), None, None, false),
    ("H200-141", "1g.18gb", None, Some(16), None, None, true),
    ("H200-141", "1g.35gb", None, Some(26), None, None, true),
    ("H200-141", "2g.35gb", None, Some(32), None, None, true),
    ("H200-141", "3g.71gb", None, Some(60), None, None, true),
    ("H200-141", "4g.71gb", None, Some(64), None, None, true),
    ("H200-141", "7g.141gb", None, Some(132), None, None, true),
    ("B200-180", "1g.23gb", Some(0.125), Some(18), Some(2), Some(7), false),
    ("B200-180", "1g.45gb", Some(0.25), None, None, Some(4), false),
    ("B200-180", "2g.45gb", Some(0.25), None, Some(3), Some(3), false),
    ("B200-180", "3g.90gb", Some(0.5), None, Some(6), Some(2), false),
    ("B200-180", "4g.90gb", Some(0.5), None, Some(8), Some(1), false),
    ("B200-180", "7g.180gb", Some(1.0), None, Some(16), Some(1), false),
    ("B300", "1g.34gb", None, None, None, None, false),
    ("B300", "1g.67gb", None, None, None, None, false),
    ("B300", "2g.67gb", None, None, None, None, false),
    ("B300", "3g.135gb", None, None, None, None, false),
    ("B300", "4g.135gb", None, None, None, None, false),
    ("B300", "7g.269gb", None, None, None, None, false),
    ("RTX PRO 6000", "1g.24gb", None, Some(46), None, Some(4), true),
    ("RTX PRO 6000", "2g.48gb", None, Some(94), None, Some(2), true),
    ("RTX PRO 6000", "4g.96gb", None, Some(188), None, Some(1), true),
];

/// Every MIG profile that is known.
pub fn mig_profiles() -> impl Iterator<Item = MigProfile> {
    MIG_ROWS.iter().map(|r| MigProfile {
        gpu: r.0,
        profile: r.1,
        memory_fraction: r.2,
        sm_count: r.3,
        copy_engines: r.4,
        max_instances: r.5,
        verified: r.6,
    })
}

/// What the name of a MIG instance says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigName {
    /// The whole profile, such as `1c.3g.20gb+me`.
    pub profile: String,
    /// Compute slices of the compute instance, where it is smaller than its GPU instance.
    pub compute_slices: Option<u32>,
    /// Slices of the GPU instance.
    pub gpu_slices: u32,
    /// Memory of the GPU instance.
    pub memory_gb: u32,
    /// Such as `+me`, `-me`, `+gfx`.
    pub attribute: Option<String>,
}

fn digits(text: &str) -> Option<u32> {
    (!text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

fn one_digit(text: &str) -> Option<u32> {
    digits(text).filter(|n| text.len() == 1 && (1..=8).contains(n))
}

/// Reads `... MIG [<c>c.]<g>g.<m>gb[+attribute|-attribute]`; `None` for every other name.
#[must_use]
pub fn parse_mig_name(name: &str) -> Option<MigName> {
    let mut tokens = name.split_whitespace();
    tokens.by_ref().find(|t| *t == "MIG")?;
    let profile = tokens.next()?;
    let (body, attribute) = match profile.find(['+', '-']) {
        Some(at) => (profile.get(..at)?, Some(profile.get(at..)?)),
        None => (profile, None),
    };
    if let Some(attribute) = attribute {
        let letters = attribute.get(1..)?;
        if letters.is_empty() || !letters.bytes().all(|b| b.is_ascii_lowercase() || b == b'.') {
            return None;
        }
    }
    let parts: Vec<&str> = body.split('.').collect();
    let (compute, gpu, memory) = match parts.as_slice() {
        [gpu, memory] => (None, *gpu, *memory),
        [compute, gpu, memory] => (Some(one_digit(compute.strip_suffix('c')?)?), *gpu, *memory),
        _ => return None,
    };
    Some(MigName {
        profile: profile.to_owned(),
        compute_slices: compute,
        gpu_slices: one_digit(gpu.strip_suffix('g')?)?,
        memory_gb: digits(memory.strip_suffix("gb")?)?,
        attribute: attribute.map(str::to_owned),
    })
}

/// The profile of a MIG instance's name where every family that fits agrees on its SM count.
fn mig_profile_of_name(name: &str, mig: &MigName) -> Option<MigProfile> {
    let profile = format!("{}g.{}gb", mig.gpu_slices, mig.memory_gb);
    let board = words(name);
    let mut found = mig_profiles().filter(|p| p.profile == profile && is_of_family(&board, p.gpu));
    let first = found.next()?;
    found.all(|p| p.sm_count == first.sm_count && p.copy_engines == first.copy_engines).then_some(first)
}

/// Whether boards of these words have the profiles of a family of [`MigProfile`].
fn is_of_family(board: &[String], family: &str) -> bool {
    let has = |word: &str| board.iter().any(|w| w == word);
    // The H100 PCIe board has 114 SMs; what its instances have is not published.
    if has("h100") && has("pcie") {
        return false;
    }
    match family {
        "A30" => has("a30"),
        "A100-40" => has("a100") && !has("80gb"),
        "A100-80" => has("a100") && !has("40gb"),
        "H100-80" => has("h100") && has("80gb"),
        "H100-94" => has("h100") && has("nvl"),
        "H100-96" => has("gh200") || (has("h100") && has("96gb")),
        "H200-141" => has("h200"),
        "B200-180" => has("b200"),
        "B300" => has("b300"),
        "RTX PRO 6000" => has("rtx") && has("pro") && has("6000"),
        _ => false,
    }
}

/// A board that can be partitioned: family of [`MigProfile`], memory in GiB, L2 cache in MiB, and the bandwidths of its
/// variants in GB/s, as exports show them of whole boards (of an A30: twice what they show of a 2g.12gb).
const MIG_BOARDS: &[(&str, f64, f64, &[f64])] = &[
    ("A30", 24.0, 24.0, &[933.12]),
    ("A100-40", 40.0, 40.0, &[1555.2]),
    ("A100-80", 80.0, 40.0, &[1935.36, 2039.04]),
    ("H100-80", 80.0, 50.0, &[3352.32]),
    ("H200-141", 141.0, 60.0, &[4916.736]),
];
/// An instance's memory over its part of the board's, less what is reserved: 4864 of 5120 MiB, 11 of 12 GB.
const INSTANCE_MEMORY: std::ops::RangeInclusive<f64> = 0.88..=1.02;
/// L2 cache and bandwidth are whole parts of the board's.
const SAME: std::ops::RangeInclusive<f64> = 0.98..=1.02;
/// Less memory than this part of the board's is not what ECC and the driver keep of it (9 % of a T4).
const LEAST_OF_MEMORY: f64 = 0.85;

/// What a device says of itself beside its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// SMs.
    pub sm_count: u32,
    /// Memory.
    pub memory_bytes: i64,
    /// L2 cache.
    pub l2_bytes: i64,
    /// DRAM bandwidth.
    pub bandwidth_bytes_per_s: i64,
}

/// The profile of a MIG instance that bears its board's name: SMs, memory, L2 cache and bandwidth are all that profile's
/// part of the named board. Fewer SMs alone are a cap, less memory alone is a vGPU or a limit in software. An instance
/// of the whole board cannot be told from it.
#[must_use]
pub fn mig_profile_of_figures(board: &str, figures: &Figures) -> Option<String> {
    let board = words(board);
    let ratio = |value: i64, of: f64| value as f64 / of;
    MIG_BOARDS.iter().filter(|b| is_of_family(&board, b.0)).find_map(
        |(family, memory_gib, l2_mib, speeds)| {
            mig_profiles().filter(|p| p.gpu == *family).find_map(|p| {
                let memory_gb = p.profile.split_once('.')?.1.strip_suffix("gb")?.parse::<f64>().ok()?;
                // Parts of the memory are eighths or quarters; names round.
                let part = p.memory_fraction.unwrap_or((8.0 * memory_gb / memory_gib).round() / 8.0);
                let memory = ratio(figures.memory_bytes, part * memory_gib * GIB);
                let l2 = ratio(figures.l2_bytes, part * l2_mib * MIB);
                let speed = |whole: &f64| ratio(figures.bandwidth_bytes_per_s, part * whole * 1e9);
                let parts = INSTANCE_MEMORY.contains(&memory)
                    && SAME.contains(&l2)
                    && speeds.iter().any(|whole| SAME.contains(&speed(whole)));
                if part >= 1.0 || !parts {
                    return None;
                }
                let (sms, slices) = (p.sm_count?, one_digit(p.profile.get(..1)?)?);
                if figures.sm_count == sms {
                    return Some(p.profile.to_owned());
                }
                // A compute instance has some of the slices, where all are alike.
                let slice = sms.is_multiple_of(slices).then_some(sms / slices)?;
                let compute = figures.sm_count.is_multiple_of(slice).then_some(figures.sm_count / slice)?;
                (1..slices).contains(&compute).then(|| format!("{compute}c.{}", p.profile))
            })
        },
    )
}

/// SMs of the MIG instances that the board of this name can be cut into, where they are known.
#[must_use]
pub fn mig_sm_counts(board: &str) -> Vec<u32> {
    let board = words(board);
    mig_profiles().filter(|p| is_of_family(&board, p.gpu)).filter_map(|p| p.sm_count).collect()
}

/// Memory of the named product in GiB.
fn memory_gib_of(name: &str, product: &Product) -> Option<u32> {
    // `GH200 480GB`: the memory of its processor.
    if product.name == "gh200" {
        return None;
    }
    let word = words(name).iter().find_map(|w| digits(w.strip_suffix("gb")?));
    word.or(product.memory_gib)
}

/// SMs of a MIG instance by its name, where the table knows the GPU and the profile.
#[must_use]
pub fn mig_sm_count(name: &str) -> Option<u32> {
    let mig = parse_mig_name(name)?;
    let sms = mig_profile_of_name(name, &mig)?.sm_count?;
    match mig.compute_slices {
        None => Some(sms),
        // A compute instance gets its slices; that is a fixed number of SMs only where all slices are alike.
        Some(c) if sms == 14 * mig.gpu_slices => Some(14 * c),
        Some(_) => None,
    }
}

/// What the device name of a vGPU guest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VgpuName {
    /// The vGPU type, such as `T4-4Q` or `A100X-3-20C`.
    pub profile: String,
    /// Slices of the MIG instance below it; `None`: time-sliced.
    pub mig_slices: Option<u32>,
    /// Frame buffer.
    pub memory_gb: u32,
}

/// Reads `[NVIDIA|GRID] <board>-<GB><A|B|C|Q>` and `<board>-<slices>-<GB>C[ME]`; `None` for every other name.
#[must_use]
pub fn parse_vgpu_name(name: &str) -> Option<VgpuName> {
    let tokens: Vec<&str> = name.split_whitespace().collect();
    let profile = match tokens.as_slice() {
        [profile] | ["NVIDIA" | "GRID", profile] | ["NVIDIA", "GRID", profile] => *profile,
        _ => return None,
    };
    let parts: Vec<&str> = profile.split('-').collect();
    let (board, slices, size) = match parts.as_slice() {
        [board, size] | [board, "Ada", size] => (*board, None, *size),
        [board, slices, size] => (*board, Some(one_digit(slices)?), *size),
        _ => return None,
    };
    let is_board = board.starts_with(|c: char| c.is_ascii_uppercase())
        && board.bytes().all(|b| b.is_ascii_alphanumeric())
        && board.bytes().any(|b| b.is_ascii_digit());
    let number = match slices {
        None => size.strip_suffix(['A', 'B', 'C', 'Q']),
        Some(_) => size.strip_suffix("CME").or_else(|| size.strip_suffix('C')),
    };
    let memory_gb = digits(number?).filter(|_| is_board)?;
    Some(VgpuName { profile: profile.to_owned(), mig_slices: slices, memory_gb })
}

const U32_LIMITS: &[&str] = &[
    "max_warps_per_sm",
    "max_blocks_per_sm",
    "max_threads_per_block",
    "registers_per_sm",
    "registers_per_block",
];
const I64_LIMITS: &[&str] =
    &["shared_per_sm_bytes", "shared_per_block_bytes", "shared_per_block_optin_bytes"];

fn u32_limit(c: &Capability, name: &str) -> Option<u32> {
    match name {
        "max_warps_per_sm" => c.max_warps_per_sm,
        "max_blocks_per_sm" => Some(c.max_blocks_per_sm),
        "max_threads_per_block" => Some(MAX_THREADS_PER_BLOCK),
        "registers_per_sm" => c.registers_per_sm,
        "registers_per_block" => c.registers_per_block,
        _ => None,
    }
}

fn i64_limit(c: &Capability, name: &str) -> Option<i64> {
    match name {
        "shared_per_sm_bytes" => c.shared_per_sm_bytes,
        "shared_per_block_bytes" => c.shared_per_block_bytes,
        "shared_per_block_optin_bytes" => c.shared_per_block_optin_bytes,
        _ => None,
    }
}

/// How the figures of one device came about.
#[derive(Clone, Copy, Default)]
struct Basis {
    from_table: bool,
    unknown: bool,
}

impl Basis {
    fn take<T>(&mut self, captured: Option<T>, known: Option<T>) -> Option<T> {
        if captured.is_none() {
            self.from_table |= known.is_some();
            self.unknown |= known.is_none();
        }
        captured.or(known)
    }

    fn as_str(self) -> &'static str {
        match (self.unknown, self.from_table) {
            (true, _) => "unknown",
            (false, true) => "table",
            (false, false) => "capture",
        }
    }
}

/// More SMs than any GPU has by far: a damaged value, not a limit to reserve room by.
const MOST_SMS: u32 = 4096;

/// Fills what the capture leaves open in the `devices` table from the tables of this room.
///
/// Zero counts as not recorded: old exports write 0 for limits they did not know. Counts
/// [`quality::SM_COUNT_MISSING`].
///
/// # Errors
/// [`crate::Error::Schema`] if `devices` is not a `devices` table.
pub fn complete(devices: &RecordBatch, quality: &mut Quality) -> Result<RecordBatch> {
    let c = Columns::new(&DEVICES, devices);
    let rows = c.rows();
    let (names, chips) = (c.text("name")?, c.text("chip")?);
    let (mig, vgpu) = (c.text("mig_profile")?, c.text("vgpu_profile")?);
    let (sms, major, minor) = (c.u32("sm_count")?, c.u32("compute_major")?, c.u32("compute_minor")?);
    let (engines, captures) = (c.u32("async_engines")?, c.u32("capture")?);
    let (memory, l2) = (c.i64("memory_bytes")?, c.i64("l2_bytes")?);
    let bandwidth = c.i64("memory_bandwidth_bytes_per_s")?;

    let mut bases = vec![Basis::default(); rows];
    let mut capabilities: Vec<Option<(u32, u32)>> = Vec::with_capacity(rows);
    let mut migs = Vec::with_capacity(rows);
    let mut vgpus = Vec::with_capacity(rows);
    let mut sm_counts = Vec::with_capacity(rows);
    let mut copy_engines = Vec::with_capacity(rows);
    let mut product_sms = Vec::with_capacity(rows);
    let mut memory_cut = Vec::with_capacity(rows);
    for (row, basis) in bases.iter_mut().enumerate() {
        let name = text_at(names, row).unwrap_or_default();
        let mig_name = parse_mig_name(name);
        let figures = || {
            Some(Figures {
                sm_count: at(sms, row)?,
                memory_bytes: at(memory, row)?,
                l2_bytes: at(l2, row)?,
                bandwidth_bytes_per_s: at(bandwidth, row)?,
            })
        };
        let named =
            text_at(mig, row).map(str::to_owned).or_else(|| mig_name.as_ref().map(|m| m.profile.clone()));
        migs.push(named.or_else(|| mig_profile_of_figures(name, &figures()?)));
        vgpus
            .push(text_at(vgpu, row).map(str::to_owned).or_else(|| parse_vgpu_name(name).map(|v| v.profile)));
        // A MIG instance or guest has its board's capability, also where it is no product of its own.
        let board = name.split(" MIG ").next().unwrap_or(name);
        let product = product_of_name(board);
        let known =
            text_at(chips, row).and_then(capability_of_chip).or_else(|| product.map(|p| p.capability));
        // Compute capability 0.x does not exist: 0 is an old export's null.
        let captured = at(major, row).filter(|m| *m > 0).and_then(|m| Some((m, at(minor, row)?)));
        capabilities.push(basis.take(captured, known));

        let captured = at(sms, row).filter(|n| (1..=MOST_SMS).contains(n));
        product_sms.push(product.and_then(|p| p.sm_count));
        let whole = product.and_then(|p| memory_gib_of(board, p)).map(|gib| f64::from(gib) * GIB);
        let less = |bytes: i64| whole.map(|whole| (bytes as f64) < LEAST_OF_MEMORY * whole);
        memory_cut.push(at(memory, row).filter(|bytes| *bytes > 0).and_then(less));
        let known = if mig_name.is_some() { mig_sm_count(name) } else { product.and_then(|p| p.sm_count) };
        if captured.is_none() {
            let outcome =
                known.map_or_else(|| "not known".to_owned(), |n| format!("taken as {n} from its name"));
            let called = if name.is_empty() { "a GPU of unknown name" } else { name };
            quality.add(at(captures, row), quality::SM_COUNT_MISSING, 1, format!("{called}: {outcome}"));
        }
        sm_counts.push(basis.take(captured, known));
        let from_profile =
            mig_name.as_ref().and_then(|m| mig_profile_of_name(name, m)).and_then(|p| p.copy_engines);
        copy_engines.push(at(engines, row).or(from_profile));
    }

    let limits: Vec<Option<Capability>> =
        capabilities.iter().map(|v| v.and_then(|(major, minor)| capability(major, minor))).collect();
    let mut builder = Builder::new(&DEVICES);
    let done = [
        "mig_profile",
        "vgpu_profile",
        "sm_count",
        "compute_major",
        "compute_minor",
        "async_engines",
        "product_sm_count",
        "memory_below_product",
        "limits_basis",
    ];
    for name in U32_LIMITS {
        let array = c.u32(name)?;
        let values: PrimitiveArray<UInt32Type> = (0..rows)
            .zip(bases.iter_mut())
            .zip(&limits)
            .map(|((row, basis), l)| {
                basis.take(at(array, row).filter(|v| *v > 0), l.as_ref().and_then(|l| u32_limit(l, name)))
            })
            .collect();
        builder = builder.put(name, values);
    }
    for name in I64_LIMITS {
        let array = c.i64(name)?;
        let values: PrimitiveArray<Int64Type> = (0..rows)
            .zip(bases.iter_mut())
            .zip(&limits)
            .map(|((row, basis), l)| {
                basis.take(at(array, row).filter(|v| *v > 0), l.as_ref().and_then(|l| i64_limit(l, name)))
            })
            .collect();
        builder = builder.put(name, values);
    }
    for column in DEVICES.columns {
        let filled = U32_LIMITS.contains(&column.name) || I64_LIMITS.contains(&column.name);
        if !filled && !done.contains(&column.name) {
            if let Some(array) = devices.column_by_name(column.name) {
                builder = builder.put(column.name, std::sync::Arc::clone(array));
            }
        }
    }
    builder
        .put("mig_profile", StringArray::from(migs))
        .put("vgpu_profile", StringArray::from(vgpus))
        .put("sm_count", sm_counts.into_iter().collect::<PrimitiveArray<UInt32Type>>())
        .put(
            "compute_major",
            capabilities.iter().map(|v| v.map(|v| v.0)).collect::<PrimitiveArray<UInt32Type>>(),
        )
        .put(
            "compute_minor",
            capabilities.iter().map(|v| v.map(|v| v.1)).collect::<PrimitiveArray<UInt32Type>>(),
        )
        .put("async_engines", copy_engines.into_iter().collect::<PrimitiveArray<UInt32Type>>())
        .put("product_sm_count", product_sms.into_iter().collect::<PrimitiveArray<UInt32Type>>())
        .put("memory_below_product", memory_cut.into_iter().collect::<BooleanArray>())
        .put("limits_basis", builder::names(bases.iter().map(|b| Some(b.as_str()))))
        .finish(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_array::UInt32Array;
    use std::sync::Arc;

    #[test]
    fn every_capability_of_the_header_is_there() {
        assert_eq!(ROWS.len(), 23);
        let h100 = capability(9, 0).unwrap();
        assert_eq!((h100.max_warps_per_sm, h100.shared_per_block_optin_bytes), (Some(64), Some(227 * 1024)));
        assert_eq!(capability(10, 7).unwrap().max_warps_per_sm, None);
        assert!(capability(13, 0).is_none());
    }

    #[test]
    fn mig_names() {
        let mig = parse_mig_name("NVIDIA A30 MIG 2g.12gb").unwrap();
        assert_eq!((mig.profile.as_str(), mig.gpu_slices, mig.memory_gb), ("2g.12gb", 2, 12));
        let ci = parse_mig_name("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb").unwrap();
        assert_eq!((ci.compute_slices, ci.gpu_slices), (Some(1), 3));
        assert_eq!(parse_mig_name("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me").unwrap().attribute.unwrap(), "+me");
        for name in [
            "NVIDIA A30",
            "MIG",
            "MIG g.12gb",
            "NVIDIA A30 MIG 2g.gb",
            "X MIG 2g.12gb+",
            "2g.12gb",
            "MIG 1\u{e9}.2g",
        ] {
            assert_eq!(parse_mig_name(name), None, "{name}");
        }
        assert_eq!(mig_sm_count("NVIDIA A30 MIG 2g.12gb"), Some(28));
        assert_eq!(mig_sm_count("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"), Some(14));
        assert_eq!(mig_sm_count("NVIDIA H100 80GB HBM3 MIG 1g.20gb"), Some(26));
        assert_eq!(mig_sm_count("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"), None);
        assert_eq!(mig_sm_count("NVIDIA H100 PCIe MIG 1g.10gb"), None);
        assert_eq!(mig_sm_count("NVIDIA B200 MIG 3g.90gb"), None);
    }

    #[test]
    fn vgpu_names_are_told_from_boards() {
        for (name, profile, slices, memory) in [
            ("GRID T4-4Q", "T4-4Q", None, 4),
            ("GRID P4-1Q", "P4-1Q", None, 1),
            ("NVIDIA A100D-40C", "A100D-40C", None, 40),
            ("NVIDIA RTX6000-Ada-48Q", "RTX6000-Ada-48Q", None, 48),
            ("NVIDIA A100X-3-20C", "A100X-3-20C", Some(3), 20),
            ("GRID A800D-1-10CME", "A800D-1-10CME", Some(1), 10),
        ] {
            let found = parse_vgpu_name(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(
                (found.profile.as_str(), found.mig_slices, found.memory_gb),
                (profile, slices, memory)
            );
        }
        for name in [
            "NVIDIA A100-SXM4-40GB",
            "Tesla V100-SXM2-16GB",
            "NVIDIA H100 80GB HBM3",
            "NVIDIA RTX 6000 Ada Generation",
            "NVIDIA PG509-210",
            "Tesla T4",
            "NVIDIA A30 MIG 2g.12gb",
            "NVIDIA GeForce RTX 2070 with Max-Q Design",
            "GeForce 940M-2",
            "",
        ] {
            assert_eq!(parse_vgpu_name(name), None, "{name}");
        }
    }

    #[test]
    fn four_figures_of_one_profile_are_an_instance_whatever_its_name() {
        // A 2g.12gb of an A30 as nsys exports it, under the name of its board.
        let a30 = Figures {
            sm_count: 28,
            memory_bytes: 12_549_357_568,
            l2_bytes: 12 << 20,
            bandwidth_bytes_per_s: 466_560_000_000,
        };
        assert_eq!(mig_profile_of_figures("NVIDIA A30", &a30).as_deref(), Some("2g.12gb"));
        // 3g.40gb: half of the memory, L2 and bandwidth of an A100-SXM4-80GB, 42 of its 108 SMs.
        let a100 = Figures {
            sm_count: 42,
            memory_bytes: 42_297_524_224,
            l2_bytes: 20 << 20,
            bandwidth_bytes_per_s: 1_019_520_000_000,
        };
        let name = "NVIDIA A100-SXM4-80GB";
        assert_eq!(mig_profile_of_figures(name, &a100).as_deref(), Some("3g.40gb"));
        assert_eq!(
            mig_profile_of_figures(name, &Figures { sm_count: 14, ..a100 }).as_deref(),
            Some("1c.3g.40gb")
        );
        let whole = Figures {
            sm_count: 108,
            memory_bytes: 84_990_623_744,
            l2_bytes: 40 << 20,
            bandwidth_bytes_per_s: 2_039_040_000_000,
        };
        for (other, why) in [
            (whole, "a whole board"),
            (Figures { sm_count: 42, ..whole }, "an MPS percentage: L2 and bandwidth are whole"),
            (Figures { memory_bytes: 42_297_524_224, ..whole }, "a limit in software or a vGPU"),
            (Figures { sm_count: 98, ..whole }, "7g.80gb, or a cap of 91 %"),
            (Figures { sm_count: 40, ..a100 }, "no profile has 40 SMs"),
        ] {
            assert_eq!(mig_profile_of_figures(name, &other), None, "{why}");
        }
        // 56 SMs are a whole A30, and a 4g.40gb of an A100: the name decides.
        assert!(mig_sm_counts(name).contains(&56) && !mig_sm_counts("NVIDIA A10").contains(&14));
    }

    #[test]
    fn products_are_matched_by_whole_words() {
        let sms = |name| product_of_name(name).map(|p| p.sm_count);
        assert_eq!(sms("Tesla V100-PCIE-32GB"), Some(Some(80)));
        assert_eq!(sms("NVIDIA A100 80GB PCIe"), Some(Some(108)));
        assert_eq!(sms("NVIDIA A10G"), Some(Some(80)));
        assert_eq!(sms("NVIDIA A10"), Some(Some(72)));
        assert_eq!(sms("NVIDIA H100 PCIe"), Some(Some(114)));
        assert_eq!(sms("NVIDIA H100 80GB HBM3"), Some(Some(132)));
        assert_eq!(sms("NVIDIA H100 NVL"), Some(None));
        // As exports show them.
        assert_eq!(sms("Quadro RTX 6000"), Some(Some(72)));
        assert_eq!(sms("NVIDIA RTX 6000 Ada Generation"), Some(Some(142)));
        assert_eq!(sms("NVIDIA GB200"), Some(Some(152)));
        assert_eq!(sms("NVIDIA RTX A5000"), Some(Some(64)));
        assert_eq!(sms("NVIDIA RTX PRO 6000 Blackwell Server Edition"), Some(Some(188)));
        for name in [
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA GeForce RTX 4090 D",
            "GRID T4-4Q",
            "NVIDIA H100",
            "GPU",
            "NVIDIA A30 MIG 2g.12gb",
        ] {
            assert_eq!(sms(name), None, "{name}");
        }
    }

    #[test]
    fn less_memory_than_the_product_has_is_a_limit() {
        let cut = |name: &str, bytes: i64| {
            let memory = Arc::new(PrimitiveArray::<Int64Type>::from(vec![bytes]));
            let row =
                builder::replace(&DEVICES, &device(name, Some(1), None), vec![("memory_bytes", memory)]);
            let done = complete(&row.unwrap(), &mut Quality::default()).unwrap();
            let column = done.column_by_name("memory_below_product").unwrap();
            let column = column.as_any().downcast_ref::<BooleanArray>().unwrap();
            column.is_valid(0).then(|| column.value(0))
        };
        // As exports show whole boards: ECC keeps 9 % of a T4.
        assert_eq!(cut("Tesla T4", 15_637_086_208), Some(false));
        assert_eq!(cut("NVIDIA A100-SXM4-80GB", 84_990_623_744), Some(false));
        assert_eq!(cut("NVIDIA H200", 150_121_545_728), Some(false));
        assert_eq!(cut("NVIDIA A10G", 8 << 30), Some(true));
        assert_eq!(cut("NVIDIA A100-SXM4-80GB", 40 << 30), Some(true));
        // 96 GB of its own; the name says what the processor has.
        assert_eq!(cut("NVIDIA GH200 480GB", 102_000_000_000), None);
        assert_eq!(cut("NVIDIA GeForce RTX 4060 Laptop GPU", 1 << 30), None);
    }

    fn device(name: &str, sms: Option<u32>, blocks: Option<u32>) -> RecordBatch {
        Builder::new(&DEVICES)
            .put("device_id", UInt32Array::from(vec![0]))
            .put("capture", UInt32Array::from(vec![0]))
            .put("name", StringArray::from(vec![name]))
            .put("sm_count", UInt32Array::from(vec![sms]))
            .put("max_blocks_per_sm", UInt32Array::from(vec![blocks]))
            .put_names("limits_basis", [Some("capture")])
            .finish(1)
            .unwrap()
    }

    #[test]
    fn the_capture_wins_and_gaps_are_named() {
        let mut quality = Quality::default();
        let done = complete(&device("Tesla V100-SXM2-16GB", None, Some(0)), &mut quality).unwrap();
        let c = Columns::new(&DEVICES, &done);
        assert_eq!(c.u32("sm_count").unwrap().value(0), 80);
        assert_eq!(c.u32("max_blocks_per_sm").unwrap().value(0), 32, "0 is an old export's null");
        assert_eq!(c.i64("shared_per_sm_bytes").unwrap().value(0), 96 * 1024);
        assert_eq!(c.names("limits_basis").unwrap().get(0), Some("table"));
        assert_eq!(quality.count(quality::SM_COUNT_MISSING), 1);

        let done = complete(&device("NVIDIA A30 MIG 2g.12gb", Some(24), Some(7)), &mut quality).unwrap();
        let c = Columns::new(&DEVICES, &done);
        assert_eq!(
            (c.u32("sm_count").unwrap().value(0), c.u32("max_blocks_per_sm").unwrap().value(0)),
            (24, 7)
        );
        assert_eq!(c.text("mig_profile").unwrap().value(0), "2g.12gb");
        assert_eq!(quality.count(quality::SM_COUNT_MISSING), 1);

        let done =
            complete(&device("Tesla V100-SXM2-16GB", Some(2_000_000_000), None), &mut quality).unwrap();
        let c = Columns::new(&DEVICES, &done);
        assert_eq!(c.u32("sm_count").unwrap().value(0), 80, "no GPU has so many");
        assert_eq!(quality.count(quality::SM_COUNT_MISSING), 2);

        let done = complete(&device("Prototype", None, None), &mut quality).unwrap();
        let c = Columns::new(&DEVICES, &done);
        assert!(c.u32("sm_count").unwrap().is_null(0));
        assert_eq!(c.names("limits_basis").unwrap().get(0), Some("unknown"));
    }
}
