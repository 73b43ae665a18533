//! Measure the speed of the placement replay and of the calculator, one JSON line each.
//!
//! `cargo test --release -p pyanalyze-core --test occupancy_speed -- --ignored --nocapture`; tests/bench/occupancy.py
//! runs it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::type_complexity
)]
#![allow(missing_docs)]

use std::time::Instant;

use arrow_array::{Int64Array, RecordBatch, StringArray, UInt32Array};
use pyanalyze_core::base::watch::Unwatched;
use pyanalyze_core::occupancy::placement::{Placement, PlacementPolicy, Sharing};
use pyanalyze_core::occupancy::theoretical::{Calculator, Launch, Limits, TenantMap};
use pyanalyze_core::session::devices as device;
use pyanalyze_core::table::builder::Builder;
use pyanalyze_core::table::events::{EventPass, Tables};
use pyanalyze_core::table::quality::Quality;
use pyanalyze_core::table::schema::{DEVICES, KERNELS, RESIDENCY};

fn h100() -> RecordBatch {
    let device = Builder::new(&DEVICES)
        .put("device_id", UInt32Array::from(vec![0]))
        .put("capture", UInt32Array::from(vec![0]))
        .put("name", StringArray::from(vec!["NVIDIA H100 80GB HBM3"]))
        .put_names("limits_basis", [Some("capture")])
        .finish(1)
        .unwrap();
    device::complete(&device, &mut Quality::default()).unwrap()
}

/// Start, end, tenant, stream, blocks, shape.
type Drawn = (i64, i64, usize, usize, u32, usize);

/// Kernels of `tenants` processes with `streams` streams each, of a few hundred configurations. On one lane a third fill
/// part of the device, a third up to 4 waves, the others up to 40. Lanes beside each other have kernels that fit beside
/// each other, unless they `crowd`: then every start contradicts what fits, which is the most work there can be.
fn kernels(n: usize, tenants: usize, streams: usize, crowd: bool) -> Tables {
    let mut seed = 1_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut clock = vec![0_i64; tenants * streams];
    let mut rows = Vec::with_capacity(n);
    for i in 0..n {
        let lane = i % clock.len();
        let small = tenants * streams > 1 && !crowd;
        let blocks = if small {
            1 + draw(60)
        } else {
            [1 + draw(500), 1 + draw(4000), 1 + draw(40_000)][draw(3) as usize]
        };
        let at = &mut clock[lane];
        let (start, length) = (*at + 200 + draw(2000) as i64, 2000 + draw(20_000) as i64);
        *at = start + length;
        rows.push((start, start + length, lane / streams, lane % streams, blocks as u32, draw(6) as usize));
    }
    rows.sort_unstable();
    let all = |v: u32| UInt32Array::from(vec![v; n]);
    let zero = || Int64Array::from(vec![0; n]);
    let of = |f: fn(&Drawn) -> u32| rows.iter().map(f).collect::<UInt32Array>();
    let batch = Builder::new(&KERNELS)
        .put("capture", all(0))
        .put("pid", of(|r| r.2 as u32))
        .put("device_id", all(0))
        .put("context_id", all(1))
        .put("stream_id", of(|r| r.3 as u32))
        .put("start_ns", rows.iter().map(|r| r.0).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| r.1).collect::<Int64Array>())
        .put("grid_x", of(|r| r.4))
        .put("grid_y", all(1))
        .put("grid_z", all(1))
        .put("block_x", of(|r| [64, 128, 256, 256, 512, 1024][r.5]))
        .put("block_y", all(1))
        .put("block_z", all(1))
        .put("registers_per_thread", of(|r| [32, 64, 40, 96, 48, 32][r.5]))
        .put("static_shared_bytes", zero())
        .put("dynamic_shared_bytes", zero())
        .finish(n)
        .unwrap();
    [("kernels", batch)].into()
}

/// InferredResidency of 2 ms.
fn slices(tenants: usize, end_ns: i64) -> RecordBatch {
    let n = (end_ns / 2_000_000 + 1) as usize;
    let start = || (0..n as i64).map(|i| i * 2_000_000);
    Builder::new(&RESIDENCY)
        .put("capture", UInt32Array::from(vec![0; n]))
        .put("device_id", UInt32Array::from(vec![0; n]))
        .put("tenant_id", (0..n).map(|i| Some((i % tenants) as u32)).collect::<UInt32Array>())
        .put("hw_context", (0..n).map(|i| Some((i % tenants) as u64)).collect::<arrow_array::UInt64Array>())
        .put("start_ns", start().collect::<Int64Array>())
        .put("end_ns", start().map(|t| t + 1_950_000).collect::<Int64Array>())
        .put_names("ending", vec![Some("WFI"); n])
        .put("complete", arrow_array::BooleanArray::from(vec![true; n]))
        .put_names("basis", vec![Some("observed"); n])
        .finish(n)
        .unwrap()
}

/// Seconds of processor time of this process, all threads; Linux only.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}

fn replay(n: usize, (tenants, streams, crowd): (usize, usize, bool), sharing: Sharing) -> (f64, f64) {
    let tables = kernels(n, tenants, streams, crowd);
    let ends = tables["kernels"].column_by_name("end_ns").unwrap();
    let end_ns = ends.as_any().downcast_ref::<Int64Array>().unwrap().values().iter().copied().max().unwrap();
    let who: TenantMap = (0..tenants as u32).map(|t| ((0, Some(t), 0), t)).collect();
    let held = slices(tenants, end_ns);
    let policy = PlacementPolicy { sharing: [(0, sharing)].into(), ..PlacementPolicy::default() };
    let devices = h100();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let placement = Placement::new(&devices, who, Some(&held), policy, (0, end_ns), 2000).unwrap();
    let placed = placement.run(&tables, &Unwatched).unwrap();
    let seconds = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    assert_eq!(placed.sm_warps.num_rows(), 132 * 2000);
    assert_eq!(placed.kernel_placement.num_rows(), n);
    seconds
}

#[test]
#[ignore = "a measurement"]
fn replay_of_a_million_kernels() {
    for (name, load, sharing) in [
        ("one stream, up to 40 waves", (1, 1, false), Sharing::Shared),
        ("four streams side by side", (1, 4, false), Sharing::Shared),
        ("four MPS clients side by side", (4, 1, false), Sharing::Shared),
        ("four alternately, up to 40 waves", (4, 1, true), Sharing::TimeSliced),
        ("four MPS clients, no start fits", (4, 1, true), Sharing::Shared),
    ] {
        let (quarter, whole) = (replay(250_000, load, sharing), replay(1_000_000, load, sharing));
        println!(
            "{{\"what\": \"replay\", \"load\": \"{name}\", \"kernels\": 1000000, \"sms\": 132, \"bins\": 2000, \"seconds\": {:.2}, \"cpu_seconds\": {:.2}, \"over_a_quarter\": {:.2}}}",
            whole.0,
            whole.1,
            whole.1 / quarter.1
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn calculator() {
    let configurations: Vec<Launch> = (0..500_u32)
        .map(|i| Launch {
            block_threads: 32 * (1 + i % 32),
            registers: 16 + i % 113,
            static_shared: i64::from(i % 48) * 1024,
            ..Launch::default()
        })
        .collect();
    let mut calculator = Calculator::new(Limits::of_capability(9, 0));
    let mut sum = 0_u64;
    let n = 20_000_000;
    let (began, cpu) = (Instant::now(), cpu_seconds());
    for i in 0..n {
        let launch = &configurations[(i * 7919) % configurations.len()];
        sum += u64::from(calculator.fit(launch).map_or(0, |fit| fit.blocks));
    }
    // On one core: its processor time, so that other work on the machine does not count.
    let cpu = cpu_seconds() - cpu;
    let seconds = if cpu > 0.0 { cpu } else { began.elapsed().as_secs_f64() };
    println!(
        "{{\"what\": \"calculator\", \"configurations\": 500, \"launches_per_second\": {:.0}, \"checksum\": {sum}}}",
        n as f64 / seconds
    );
}
